use proptest::prelude::*;
use ringfence_policy::{HostPattern, Layer, LayerInput, NetRule, parse, resolve};

use super::*;
use crate::rules::{Inspection, Strangers};

/// Rules as they stand in a policy file, below `net:`.
fn rules(net: &str) -> Rules {
    let text = format!("version: 1\nnet:\n{net}");
    let file = parse("sandbox.policy.yaml", &text).unwrap();
    let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
    Rules::of_policy(&policy.net)
}

fn allowlist(entries: &str) -> Rules {
    rules(&format!("  mode: allowlist\n{entries}"))
}

fn rule(text: &str) -> Rule {
    Rule::new(text.parse::<NetRule>().unwrap(), text)
}

/// `None` is allowed.
fn connect(rules: &Rules, host: &str, port: u16) -> Option<Reason> {
    let Ok(host) = Host::parse(host) else { return Some(Reason::BadHost) };
    reason(decide(rules, &Target { host: &host, port, access: Access::Connection }))
}

fn request(rules: &Rules, scheme: Scheme, method: &str, host: &str, path: &str) -> Option<Reason> {
    let host = Host::parse(host).unwrap();
    let path = UrlPath::new(path);
    let access = Access::Request { scheme, method, path: &path };
    reason(decide(rules, &Target { host: &host, port: scheme.port(), access }))
}

fn reason(decision: Decision) -> Option<Reason> {
    match decision {
        Decision::Allowed(_) => None,
        Decision::Denied(denied) => {
            assert!(denied.text.contains(denied.reason.code()), "{}", denied.text);
            assert!(denied.text.contains("Do not retry in another way"), "{}", denied.text);
            Some(denied.reason)
        }
    }
}

#[test]
fn e01_an_empty_allowlist_denies_everything() {
    for rules in
        [rules("  mode: allowlist\n  allow: []\n"), rules("  mode: none\n  allow: [pypi.org]\n"), Rules::none()]
    {
        for host in ["pypi.org", "localhost", "192.0.2.7", "127.0.0.1", "a.b"] {
            assert!(connect(&rules, host, 443).is_some());
            assert!(request(&rules, Scheme::Http, "GET", host, "/").is_some());
        }
    }
    assert_eq!(connect(&allowlist("  allow: [pypi.org]\n"), "pypi.org", 443), None);
}

#[test]
fn e02_e03_names_with_a_zero_byte_a_zone_or_a_space_are_refused() {
    let rules = allowlist("  allow: [allowed.test, \"*.allowed.test\"]\n  localhost: [80]\n");
    for host in [
        "evil.test\0.allowed.test",
        "evil.test\0localhost",
        "::ffff:127.0.0.1%x.allowed.test",
        "fe80::1%lo",
        "evil.test%00.allowed.test",
        "evil.test .allowed.test",
        "evil.test\r\n.allowed.test",
        "evil.test/.allowed.test",
        "evil.test@allowed.test",
        "evil.test#.allowed.test",
        "*.allowed.test",
        "",
    ] {
        assert_eq!(connect(&rules, host, 80), Some(Reason::BadHost), "{host:?}");
    }
    assert!(Host::parse_bytes(b"\xff.allowed.test").is_err());
    assert_eq!(connect(&rules, "x.allowed.test", 80), None);
}

#[test]
fn e04_odd_notations_of_an_address_are_refused_and_the_plain_one_is_judged() {
    let rules = allowlist("  allow: [pypi.org]\n");
    for host in [
        "2852039166",
        "0251.0376.0251.0376",
        "0xa9fea9fe",
        "0XA9FEA9FE",
        "169.254.43518",
        "0x7f.1",
        "2130706433",
        "017700000001",
        "::ffff:169.254.169.254",
        "[::ffff:127.0.0.1]",
        "127.1",
        "1.2.3.4.5",
    ] {
        assert_eq!(connect(&rules, host, 80), Some(Reason::BadHost), "{host}");
    }
    assert_eq!(connect(&rules, "169.254.169.254", 80), Some(Reason::NotListed));
    assert_eq!(connect(&allowlist("  allow: [169.254.169.254]\n"), "169.254.169.254", 80), None);
    // An address that came as sixteen bytes has one reading.
    assert_eq!(Host::of_address("::ffff:192.0.2.7".parse().unwrap()), Host::parse("192.0.2.7").unwrap());
}

#[test]
fn e05_a_wildcard_means_true_subdomains_only() {
    let rules = allowlist("  allow: [\"*.example.com\"]\n");
    for (host, allowed) in [
        ("a.example.com", true),
        ("a.b.c.example.com", true),
        ("a.example.com.", true),
        ("A.EXAMPLE.com", true),
        ("example.com", false),
        ("evilexample.com", false),
        ("example.com.evil.test", false),
        ("a.example.com.evil.test", false),
        ("com", false),
    ] {
        assert_eq!(connect(&rules, host, 443).is_none(), allowed, "{host}");
    }
}

#[test]
fn e06_names_that_look_like_others_are_refused_or_have_one_form() {
    let rules = allowlist("  allow: [pypi.org, xn--bcher-kva.example]\n");
    let long = format!("{}.pypi.org", "a.".repeat(130));
    for host in ["pуpi.org", "pypi。org", "pypi%2eorg", "pypi..org", ".pypi.org", "xn--pypi-.org", &long] {
        assert!(connect(&rules, host, 443).is_some(), "{host}");
    }
    for host in ["PyPI.org", "pypi.org.", "XN--BCHER-KVA.example"] {
        assert_eq!(connect(&rules, host, 443), None, "{host}");
    }
}

#[test]
fn e08_an_allowed_name_is_allowed_on_its_ports_only() {
    let rules = allowlist("  allow: [a.test, \"b.test:8443\", { host: c.test, ports: [22] }]\n");
    for (host, port, allowed) in [
        ("a.test", 80, true),
        ("a.test", 443, true),
        ("a.test", 22, false),
        ("a.test", 25, false),
        ("a.test", 0, false),
        ("b.test", 8443, true),
        ("b.test", 443, false),
        ("c.test", 22, true),
        ("c.test", 0, false),
    ] {
        let expected = (!allowed).then_some(Reason::Port);
        assert_eq!(connect(&rules, host, port), expected, "{host}:{port}");
    }
}

#[test]
fn e14_this_machine_is_reached_on_listed_ports_only_whatever_it_is_called() {
    let rules = allowlist("  allow: [a.test]\n  localhost: [5432]\n");
    for host in ["localhost", "LOCALHOST.", "x.localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"] {
        assert_eq!(connect(&rules, host, 5432), None, "{host}");
        assert_eq!(connect(&rules, host, 80), Some(Reason::NotListed), "{host}");
    }
    assert!(connect(&rules, "notlocalhost", 5432).is_some());
    // Open is open to the network, not to this machine.
    let open = self::rules("  mode: open\n");
    assert_eq!(connect(&open, "127.0.0.1", 80), Some(Reason::NotListed));
    assert_eq!(connect(&open, "pypi.org", 22), None);
}

#[test]
fn deny_beats_allow_wherever_it_stands() {
    let rules = allowlist(
        "  allow: [\"*.a.test\", b.test]\n  deny: [x.a.test, \"*.deep.a.test\", { host: b.test, ports: [80] }]\n",
    );
    for (host, port, expected) in [
        ("ok.a.test", 443, None),
        ("x.a.test", 443, Some(Reason::Denied)),
        ("deep.a.test", 443, None),
        ("y.deep.a.test", 443, Some(Reason::Denied)),
        ("b.test", 80, Some(Reason::Denied)),
        ("b.test", 443, None),
    ] {
        assert_eq!(connect(&rules, host, port), expected, "{host}:{port}");
    }
}

#[test]
fn methods_and_paths_are_held_against_requests_and_need_a_look_inside() {
    let rules = allowlist("  allow: [{ host: a.test, methods: [GET], paths: [\"/repos/acme/**\"] }]\n");
    let ask = |method: &str, path: &str| request(&rules, Scheme::Http, method, "a.test", path);
    assert_eq!(ask("GET", "/repos/acme/x"), None);
    assert_eq!(ask("GET", "/repos/acme/x/%2e%2e/y"), None);
    assert_eq!(ask("GET", "/repos/acme/%2e%2e/b"), Some(Reason::Path));
    assert_eq!(ask("GET", "/repos/acme/..%2fb"), Some(Reason::AmbiguousPath));
    assert_eq!(ask("POST", "/repos/acme/x"), Some(Reason::Method));
    assert_eq!(ask("get", "/repos/acme/x"), Some(Reason::Method));
    assert_eq!(ask("GET", "/"), Some(Reason::Path));
    // In a tunnel nothing of it can be seen.
    assert_eq!(connect(&rules, "a.test", 443), Some(Reason::NeedsInspection));
    let mut inspected = rule("a.test");
    inspected.inspection = Inspection::Inspected;
    let inspected = Rules::none().allow(inspected);
    assert!(inspected.need_inspection() && !rules.need_inspection());
    let host = Host::parse("a.test").unwrap();
    let target = Target { host: &host, port: 443, access: Access::Connection };
    assert!(matches!(decide(&inspected, &target), Decision::Allowed(Allowed { handling: Handling::Inspect, .. })));
}

#[test]
fn a_deny_rule_with_paths_closes_what_nobody_can_look_into() {
    let rules = allowlist("  allow: [a.test]\n  deny: [{ host: a.test, paths: [\"/admin/**\"] }]\n");
    assert_eq!(connect(&rules, "a.test", 443), Some(Reason::NeedsInspection));
    assert_eq!(request(&rules, Scheme::Http, "GET", "a.test", "/x"), None);
    assert_eq!(request(&rules, Scheme::Http, "GET", "a.test", "/x/../admin/y"), Some(Reason::Denied));
    assert_eq!(request(&rules, Scheme::Http, "GET", "a.test", "/%61dmin/y"), Some(Reason::Denied));
    assert_eq!(request(&rules, Scheme::Http, "GET", "a.test", "/x%2fy"), Some(Reason::AmbiguousPath));
}

#[test]
fn a_path_with_two_readings_passes_where_no_rule_looks_at_paths() {
    let rules = allowlist("  allow: [registry.npmjs.org]\n");
    assert_eq!(request(&rules, Scheme::Http, "GET", "registry.npmjs.org", "/@types%2fnode"), None);
}

#[test]
fn a_channel_to_strangers_needs_more_than_its_name() {
    let plain = allowlist("  allow: [webhook.site, \"*.ngrok.io\", pypi.org]\n");
    assert_eq!(connect(&plain, "webhook.site", 443), Some(Reason::Stranger));
    assert_eq!(connect(&plain, "x.ngrok.io", 443), Some(Reason::Stranger));
    assert_eq!(request(&plain, Scheme::Http, "POST", "webhook.site", "/"), Some(Reason::Stranger));
    assert_eq!(connect(&plain, "pypi.org", 443), None);
    let mut meant = rule("webhook.site");
    meant.strangers = Strangers::Acknowledged;
    assert_eq!(connect(&Rules::none().allow(meant), "webhook.site", 443), None);
    let credential = allowlist("  allow: [{ host: api.openai.com, credential: openai }]\n");
    assert_eq!(request(&credential, Scheme::Https, "POST", "api.openai.com", "/v1/files"), None);
}

#[test]
fn e22_a_credential_is_bound_to_its_host_and_travels_over_tls_alone() {
    let rules = allowlist("  allow: [a.test, { host: a.test, paths: [\"/repos/**\"], credential: hub }]\n");
    let host = Host::parse("a.test").unwrap();
    let ask = |scheme: Scheme, path: &str| {
        let path = UrlPath::new(path);
        let access = Access::Request { scheme, method: "GET", path: &path };
        match decide(&rules, &Target { host: &host, port: 443, access }) {
            Decision::Allowed(allowed) => (allowed.credential, allowed.foreign),
            Decision::Denied(denied) => panic!("{}", denied.text),
        }
    };
    assert_eq!(ask(Scheme::Https, "/repos/x"), (Some("hub".into()), ForeignCredentials::Refused));
    assert_eq!(ask(Scheme::Https, "/other"), (None, ForeignCredentials::Refused));
    let only = allowlist("  allow: [{ host: a.test, credential: hub }]\n");
    assert_eq!(request(&only, Scheme::Http, "GET", "a.test", "/"), Some(Reason::NeedsTls));
    assert_eq!(request(&only, Scheme::Https, "GET", "a.test", "/"), None);
}

#[test]
fn a_denial_says_what_why_what_instead_and_not_to_retry() {
    let rules = allowlist("  allow: [pypi.org, { host: a.test, methods: [GET] }]\n");
    let host = Host::parse("evil.test").unwrap();
    let path = UrlPath::new("/x\u{1b}[31m\n");
    let access = Access::Request { scheme: Scheme::Https, method: "POST", path: &path };
    let Decision::Denied(denied) = decide(&rules, &Target { host: &host, port: 443, access }) else { panic!() };
    assert_eq!(
        denied.text,
        "Ringfence denied POST https://evil.test/x?[31m?.\n\
         Reason: no rule under `net.allow` names evil.test (net.not-listed).\n\
         Allowed instead: pypi.org; a.test GET.\n\
         Do not retry in another way: other tools, ports, addresses and protocols are judged by the same rules. \
         If the task needs this, say so to the person you work for.\n"
    );
    assert_eq!(&*denied.rule, "net.not-listed");
}

#[test]
fn the_rule_that_decided_is_named_with_its_line() {
    let rules = allowlist("  allow: [pypi.org]\n");
    let host = Host::parse("pypi.org").unwrap();
    let Decision::Allowed(allowed) = decide(&rules, &Target { host: &host, port: 443, access: Access::Connection })
    else {
        panic!()
    };
    assert_eq!(&*allowed.rule, "net.allow pypi.org (project sandbox.policy.yaml:4)");
}

proptest! {
    #[test]
    fn a_host_is_allowed_exactly_when_a_pattern_of_the_policy_covers_it(
        patterns in proptest::collection::vec("(\\*\\.)?([ab]{1,2}\\.){1,3}(org|test)", 0..6),
        host in "([abAB]{1,2}\\.){1,4}(org|test)\\.?",
    ) {
        let patterns: Vec<HostPattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        let rules = patterns.iter().fold(Rules::none(), |rules, pattern| {
            rules.allow(Rule::new(NetRule::new(pattern.clone()), "r"))
        });
        let expected = patterns.iter().any(|pattern| pattern.covers_name(&host));
        prop_assert_eq!(connect(&rules, &host, 443).is_none(), expected);
        let denying = patterns.iter().fold(rules, |rules, pattern| {
            rules.deny(Rule::new(NetRule::new(pattern.clone()), "d"))
        });
        prop_assert!(connect(&denying, &host, 443).is_some());
    }

    #[test]
    fn any_bytes_are_a_host_in_canonical_form_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(host) = Host::parse_bytes(&bytes) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
        }
    }
}

#[test]
fn a_deny_rule_is_not_avoided_by_the_spelling_of_a_method_or_a_path() {
    let rules = allowlist(
        "  allow: [a.test]\n  deny: [{ host: a.test, paths: [\"/Admin/**\"] }, { host: a.test, methods: [POST] }]\n",
    );
    let host = Host::parse("a.test").unwrap();
    let allowed = |method: &str, path: &str| {
        let path = UrlPath::new(path);
        let access = Access::Request { scheme: Scheme::Http, method, path: &path };
        matches!(decide(&rules, &Target { host: &host, port: 80, access }), Decision::Allowed(_))
    };
    for (method, path) in [
        ("Post", "/"),
        ("POST", "/"),
        ("GET", "/admin/x"),
        ("GET", "/ADMIN/x"),
        ("GET", "/Admin;a/x"),
        ("GET", "/admin;a=b/x;c"),
    ] {
        assert!(!allowed(method, path), "{method} {path}");
    }
    assert!(allowed("GET", "/administration/x") && allowed("PUT", "/a;b/admin"));
}

/// What an allowed target is held to.
fn allowed(rules: &Rules, host: &str, access: Access<'_>) -> Allowed {
    let host = Host::parse(host).unwrap();
    match decide(rules, &Target { host: &host, port: 443, access }) {
        Decision::Allowed(allowed) => allowed,
        Decision::Denied(denied) => panic!("{}", denied.text),
    }
}

#[test]
fn the_budgets_of_all_rules_that_mean_a_target_hold_whichever_allows_it() {
    let rules = allowlist(
        "  allow: [\"*.a.test\", { host: b.a.test, budget: { requests: 5, rate: 9/s } }, { host: b.a.test, budget: { requests: 7, bytes: 1KiB } }, { host: b.a.test, inspect: true, paths: [/x], budget: { requests: 2, connections: 3 } }]\n",
    );
    let opened = allowed(&rules, "b.a.test", Access::Connection);
    assert_eq!(opened.handling, Handling::Inspect);
    assert_eq!(
        (opened.budget.requests, opened.budget.connections, opened.budget.bytes),
        (Some(2), Some(3), Some(1024))
    );
    let asked = |path: &str| {
        let path = UrlPath::new(path);
        allowed(&rules, "b.a.test", Access::Request { scheme: Scheme::Https, method: "GET", path: &path }).budget
    };
    assert_eq!((asked("/x").requests, asked("/x").connections), (Some(2), Some(3)));
    // Elsewhere only the rules that mean every path.
    assert_eq!((asked("/y").requests, asked("/y").bytes, asked("/y").connections), (Some(5), Some(1024), None));
    assert_eq!(asked("/y").rate, "9/s".parse().ok());
    assert_eq!(allowed(&rules, "c.a.test", Access::Connection).budget, Budget::default());
}

#[test]
fn headers_are_left_out_by_every_rule_that_means_the_request() {
    let rules = allowlist(
        "  allow: [\"*.a.test\", { host: b.a.test, strip: [Cookie] }, { host: b.a.test, paths: [/x], methods: [GET], strip: [X-Id] }]\n",
    );
    // Nobody could leave them out of what is not opened.
    assert_eq!(allowed(&rules, "b.a.test", Access::Connection).handling, Handling::Inspect);
    assert_eq!(allowed(&rules, "c.a.test", Access::Connection).handling, Handling::Web);
    let asked = |host: &str, method: &str, path: &str| {
        let path = UrlPath::new(path);
        allowed(&rules, host, Access::Request { scheme: Scheme::Https, method, path: &path }).strip
    };
    assert_eq!(asked("b.a.test", "GET", "/%78"), ["cookie", "x-id"]);
    assert_eq!(asked("b.a.test", "POST", "/x"), ["cookie"]);
    assert_eq!(asked("b.a.test", "GET", "/y"), ["cookie"]);
    assert!(asked("c.a.test", "GET", "/x").is_empty());
}

#[test]
fn what_a_rule_demands_is_not_avoided_by_the_spelling_of_a_method_or_a_path() {
    let rules = allowlist(
        "  allow: [{ host: a.test, inspect: true }, { host: a.test, methods: [POST], paths: [\"/Api/**\"], strip: [Cookie], budget: { requests: 5 } }]\n",
    );
    let demanded = |method: &str, path: &str| {
        let path = UrlPath::new(path);
        let allowed = allowed(&rules, "a.test", Access::Request { scheme: Scheme::Https, method, path: &path });
        (allowed.strip == ["cookie"], allowed.budget.requests == Some(5))
    };
    for (method, path) in [
        ("POST", "/Api/x"),
        ("post", "/Api/x"),
        ("POST", "/API/x"),
        ("Post", "/api/x"),
        ("POST", "/Api;v=1/x"),
        ("POST", "/api;v=1/x;c"),
    ] {
        assert_eq!(demanded(method, path), (true, true), "{method} {path}");
    }
    for (method, path) in [("GET", "/Api/x"), ("POST", "/apis/x"), ("POST", "/x/api")] {
        assert_eq!(demanded(method, path), (false, false), "{method} {path}");
    }
}

#[test]
fn a_rule_that_opens_tls_is_heard_also_where_another_one_acknowledges_the_channel() {
    let rules = allowlist(
        "  allow: [{ host: gist.github.com, acknowledge: true }, { host: gist.github.com, inspect: true }]\n",
    );
    assert_eq!(allowed(&rules, "gist.github.com", Access::Connection).handling, Handling::Inspect);
    let unacknowledged = allowlist("  allow: [{ host: gist.github.com, inspect: true }]\n");
    assert_eq!(connect(&unacknowledged, "gist.github.com", 443), Some(Reason::Stranger));
    let plain = allowlist("  allow: [{ host: gist.github.com, acknowledge: true }]\n");
    assert_eq!(allowed(&plain, "gist.github.com", Access::Connection).handling, Handling::Web);
}
