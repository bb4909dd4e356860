use proptest::prelude::*;
use ringfence_policy::{HostPattern, NetRule};

fn check(pattern: &str, name: &str, covered: bool) {
    let pattern: HostPattern = pattern.parse().unwrap_or_else(|problem| panic!("{pattern}: {problem}"));
    assert_eq!(pattern.covers_name(name), covered, "{pattern} / {name}");
}

fn check_refused(pattern: &str, advice: &str) {
    let problem = pattern.parse::<HostPattern>().expect_err(pattern);
    assert!(problem.advice.contains(advice), "{problem}");
}

#[test]
fn wildcard_covers_subdomains_but_not_the_name_itself_or_a_lookalike() {
    check("*.example.com", "a.example.com", true);
    check("*.example.com", "a.b.example.com", true);
    check("*.example.com", "a.example.com.", true);
    check("*.example.com", "A.EXAMPLE.com", true);
    check("*.example.com", "example.com", false);
    check("*.example.com", "evilexample.com", false);
    check("*.example.com", "example.com.evil.test", false);
    check("*.example.com", ".example.com", false);
    check("*.example.com", "..example.com", false);
    check("*.example.com", "*.example.com", false);
    check("*.example.com", "a%2e.example.com", false);
    check("*.example.com", "a.example.com\0.evil.test", false);
    check("*.example.com", "a.example.com/x", false);
    check("*.example.com", "evil.test@a.example.com", false);
    check("*.example.com", "", false);
}

#[test]
fn a_name_covers_itself_in_any_case_and_with_a_dot() {
    check("PyPI.org", "pypi.org", true);
    check("pypi.org.", "PYPI.ORG.", true);
    check("pypi.org", "files.pypi.org", false);
    check("pypi.org", "pypi.org..", false);
    check("pypi.org", "pypi.orɡ", false);
}

#[test]
fn an_address_covers_only_itself_in_canonical_form() {
    check("192.0.2.7", "192.0.2.7", true);
    check("192.0.2.7", "192.0.2.07", false);
    check("192.0.2.7", "3221225991", false);
    check("2001:db8::7", "2001:DB8:0::7", true);
    check("[2001:db8::7]", "2001:db8::7", true);
    check("2001:db8::7", "2001:db8::8", false);
}

#[test]
fn odd_notations_of_an_address_are_refused_with_the_plain_one() {
    for odd in ["2852039166", "0251.0376.0251.0376", "0xa9fea9fe", "169.254.43518", "0xA9.254.169.254"] {
        check_refused(odd, "write `169.254.169.254`");
    }
    check_refused("::ffff:169.254.169.254", "write `169.254.169.254`");
    check_refused("1.2.3.4.5", "write a name");
    check_refused("999.1.1.1", "write a name");
    check_refused("fe80::1%eth0", "without a zone");
}

#[test]
fn patterns_that_mean_too_much_or_nothing_are_refused() {
    check_refused("*", "at least two labels");
    check_refused("*.com", "at least two labels");
    check_refused("*.", "at least two labels");
    check_refused("", "write a name");
    check_refused("a.*.com", "`*.pypi.org`");
    check_refused("pypi*.org", "`*.pypi.org`");
    check_refused("https://pypi.org", "the host alone");
    check_refused("user@pypi.org", "the host alone");
    check_refused("pypi.org/simple", "the host alone");
    check_refused("a..b", "write a name");
    check_refused(".pypi.org", "write a name");
    check_refused("pypi%2eorg", "the characters themselves");
    check_refused("py pi.org", "write a name");
    check_refused("pypi.org\n", "write a name");
    check_refused("pypi.org\0", "write a name");
    check_refused("пypi.org", "xn--");
    check_refused("-pypi.org", "write a name");
    check_refused("localhost", "net.localhost");
    check_refused("*.localhost", "");
    check_refused("LOCALHOST.", "net.localhost");
    check_refused(&format!("{}.org", "a".repeat(64)), "write a name");
    check_refused(&vec!["abcdefg"; 40].join("."), "write a name");
    assert!("xn--pypi-4ve.org".parse::<HostPattern>().is_ok());
}

fn rule(text: &str) -> NetRule {
    text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

#[test]
fn a_rule_without_ports_means_the_web_and_a_port_is_taken_from_the_end() {
    assert_eq!(rule("pypi.org").ports, [80, 443]);
    assert_eq!(rule("pypi.org:8443").ports, [8443]);
    assert_eq!(rule("[2001:db8::7]:443").ports, [443]);
    assert_eq!(rule("2001:db8::7").ports, [80, 443]);
    for text in
        ["pypi.org:0", "pypi.org:65536", "pypi.org:", "pypi.org:+1", "pypi.org:443:443", ":443", "pypi.org:https"]
    {
        assert!(text.parse::<NetRule>().is_err(), "{text}");
    }
}

#[test]
fn a_rule_covers_what_is_within_its_host_ports_methods_and_paths() {
    assert!(rule("*.pypi.org").covers(&rule("files.pypi.org:443")));
    assert!(!rule("files.pypi.org:443").covers(&rule("files.pypi.org")));
    let reading = NetRule { methods: vec!["GET".into()], ..rule("pypi.org") };
    assert!(rule("pypi.org").covers(&reading));
    assert!(!reading.covers(&rule("pypi.org")));
    let with_credential = NetRule { credential: Some("github".into()), ..rule("pypi.org") };
    assert!(with_credential.covers(&with_credential));
    // Without it, somebody else's key would pass; with it, a secret would be used.
    assert!(!with_credential.covers(&rule("pypi.org")));
    assert!(!rule("pypi.org").covers(&with_credential));
}

#[test]
fn a_narrower_rule_looks_closer_speaks_less_and_uses_less() {
    use ringfence_policy::{Bytes, NetBudget, NetProtocol};
    let plain = rule("pypi.org");
    let budget = |bytes: u64| NetBudget { bytes: Some(Bytes::new(bytes)), ..NetBudget::default() };
    let narrower = [
        NetRule { inspect: true, ..plain.clone() },
        NetRule { budget: budget(7), ..plain.clone() },
        NetRule { inspect: true, budget: budget(7), ..plain.clone() },
        NetRule { inspect: true, strip: vec!["cookie".into()], ..plain.clone() },
    ];
    let wider =
        [NetRule { acknowledge: true, ..plain.clone() }, NetRule { protocol: NetProtocol::Tcp, ..plain.clone() }];
    for other in narrower {
        assert!(plain.covers(&other) && !other.covers(&plain), "{other}");
    }
    for other in wider {
        assert!(other.covers(&plain) && !plain.covers(&other), "{other}");
    }
    let spends = |bytes: u64| NetRule { budget: budget(bytes), ..plain.clone() };
    assert!(spends(8).covers(&spends(7)) && !spends(7).covers(&spends(8)));
}

proptest! {
    #[test]
    fn any_text_is_a_pattern_or_refused_and_a_pattern_reads_back(text in "\\PC{0,80}|[a-z0-9.*:\\[\\]-]{0,40}") {
        if let Ok(pattern) = text.parse::<HostPattern>() {
            let again: HostPattern = pattern.to_string().parse().unwrap();
            prop_assert_eq!(&again, &pattern);
            prop_assert!(pattern.covers(&again));
        }
        if let Ok(rule) = text.parse::<NetRule>() {
            prop_assert!(rule.covers(&rule));
        }
    }

    #[test]
    fn no_name_escapes_its_wildcard(name in "[a-zA-Z0-9.%*@:/-]{0,40}") {
        let pattern: HostPattern = "*.example.com".parse().unwrap();
        if pattern.covers_name(&name) {
            let lower = name.to_ascii_lowercase();
            prop_assert!(lower.trim_end_matches('.').ends_with(".example.com"));
        }
    }
}
