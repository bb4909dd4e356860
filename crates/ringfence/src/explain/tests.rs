use ringfence_policy::parse;

use super::*;
use crate::layers::LoadedFile;

/// The layers of a project's and an operator's file.
fn loaded(project: &str, operator: Option<&str>) -> Loaded {
    let texts = [(Layer::Project, Some(project)), (Layer::Operator, operator)];
    let files: Vec<LoadedFile> = texts
        .into_iter()
        .filter_map(|(layer, text)| {
            let text = format!("version: 1\n{}", text?);
            let name = format!("{layer}.yaml");
            let parsed = Some(parse(&name, &text).unwrap());
            Some(LoadedFile { layer, path: name.clone().into(), name: name.into(), text, parsed })
        })
        .collect();
    let inputs: Vec<LayerInput> =
        files.iter().map(|file| LayerInput { layer: file.layer.clone(), file: file.parsed.clone().unwrap() }).collect();
    let policy = resolve(&inputs, &[]).unwrap();
    Loaded { policy, files, project_file: Some("project.yaml".into()) }
}

fn ask(loaded: &Loaded, text: &str) -> Explanation {
    explain(loaded, &Question::read(text, None, None).unwrap())
}

#[track_caller]
fn check(loaded: &Loaded, text: &str, reason: Option<&str>) -> Explanation {
    let explanation = ask(loaded, text);
    assert_eq!(explanation.reason.as_deref(), reason, "{text}: {explanation:#?}");
    assert_eq!(explanation.allowed, reason.is_none(), "{text}");
    explanation
}

const SAMPLE: &str = "net:
  mode: allowlist
  allow:
    - pypi.org
    - { host: api.test, methods: [GET], paths: [\"/repos/**\"] }
    - webhook.site
  deny: [bad.test]
  localhost: [5432]
";

#[test]
fn the_rule_that_decides_is_named_with_its_layer_and_its_line() {
    let loaded = loaded(SAMPLE, None);
    let allowed = check(&loaded, "PyPI.org.", None);
    assert_eq!(allowed.layer.as_deref(), Some("project"));
    assert_eq!(allowed.place.map(|place| place.line), Some(5));
    assert_eq!(allowed.https, Https::Closed);
    assert!(allowed.built_in[0].contains("read as `pypi.org`"), "{:?}", allowed.built_in);
    let denied = check(&loaded, "bad.test", Some("net.denied"));
    assert_eq!(denied.place.map(|place| place.line), Some(8));
    assert_eq!((denied.fix, denied.https), (None, Https::Denied));
}

#[test]
fn what_is_advised_allows_what_was_denied() {
    for (text, project) in [
        ("evil.test", SAMPLE),
        ("pypi.org:8443", SAMPLE),
        ("http://api.test/other", SAMPLE),
        ("https://api.test/repos/x", SAMPLE),
        ("api.test", SAMPLE),
        ("https://c.test/x", SAMPLE),
        ("webhook.site", SAMPLE),
        ("localhost:99", SAMPLE),
        ("10.0.0.7", SAMPLE),
        ("[2001:db8::7]:444", SAMPLE),
        ("http://a.test/x*[y]", "backend: auto\n"),
        ("a.test", "backend: auto\n"),
    ] {
        let before = loaded(project, None);
        let fix = ask(&before, text).fix.unwrap_or_else(|| panic!("{text}"));
        let file = parse("fix", &format!("version: 1\n{}", fix.snippet)).unwrap();
        let inputs = [
            LayerInput { layer: Layer::Project, file: before.files[0].parsed.clone().unwrap() },
            LayerInput { layer: Layer::Project, file },
        ];
        let after = Loaded { policy: resolve(&inputs, &[]).unwrap(), ..loaded(project, None) };
        check(&after, text, None);
        // The twin: not more than that.
        check(&after, "other.test", Some("net.not-listed"));
    }
}

#[test]
fn a_snippet_is_never_advised_that_the_operator_would_take_back() {
    for operator in [
        "net: { mode: none }\n",
        "net: { mode: allowlist, allow: [pypi.org] }\n",
        "net: { deny: [evil.test] }\n",
        "net: { mode: allowlist, allow: [evil.test:8443] }\n",
    ] {
        let held = ask(&loaded(SAMPLE, Some(operator)), "evil.test");
        assert_eq!(held.fix, None, "{operator}: {held:#?}");
        assert!(held.hint.unwrap().contains("operator"), "{operator}");
    }
    let permits = ask(&loaded(SAMPLE, Some("net: { mode: allowlist, allow: [evil.test] }\n")), "evil.test");
    assert_eq!(permits.fix.unwrap().snippet, "net:\n  allow:\n    - { host: evil.test, ports: [443] }\n");
}

#[test]
fn strangers_odd_notations_and_private_addresses_are_told_as_what_they_are() {
    let loaded = loaded(SAMPLE, None);
    for host in ["webhook.site", "x.webhook.site"] {
        let stranger = ask(&loaded, host);
        assert!(!stranger.allowed && stranger.built_in[0].contains("strangers"), "{stranger:#?}");
        let fix = stranger.fix.unwrap();
        assert!(fix.snippet.contains("acknowledge: true"), "a name alone would not do: {fix:?}");
        assert!(stranger.hint.unwrap().contains("strangers"));
    }
    let odd = check(&loaded, "0251.0376.0251.0376", Some("net.bad-host"));
    assert!(odd.why.as_deref().unwrap().contains("169.254.169.254"), "{odd:#?}");
    let metadata = check(&loaded, "169.254.169.254", Some("net.not-listed"));
    assert!(metadata.built_in[0].contains("metadata"), "{metadata:#?}");
    for bad in ["a\u{430}.test", "a%2e.test", "user@a.test", "a..test", "::ffff:1.2.3.4%eth0", "\n", "*.a.test"] {
        assert_eq!(check(&loaded, bad, Some("net.bad-host")).fix, None, "{bad}");
    }
    assert!(check(&loaded, "xn--pypi-4ve.org", Some("net.not-listed")).built_in[0].contains("beyond ASCII"));
}

#[test]
fn methods_and_paths_are_judged_where_they_can_be_seen() {
    let loaded = loaded(SAMPLE, None);
    let with = |text: &str, method: &str| explain(&loaded, &Question::read(text, Some(method), None).unwrap());
    assert!(with("http://api.test/repos/x", "GET").allowed);
    assert_eq!(with("http://api.test/repos/x", "POST").reason.as_deref(), Some("net.method"));
    assert_eq!(with("http://api.test/x", "GET").reason.as_deref(), Some("net.path"));
    let closed = with("https://api.test/repos/x", "GET");
    assert_eq!(closed.reason.as_deref(), Some("net.needs-inspection"), "{closed:#?}");
    assert_eq!(
        closed.fix.unwrap().snippet,
        "net:\n  allow:\n    - { host: api.test, ports: [80, 443], methods: [GET], paths: [\"/repos/**\"], inspect: true }\n"
    );
    let unseen = with("https://pypi.org/x", "POST");
    assert_eq!((unseen.allowed, unseen.method, unseen.https), (true, None, Https::Closed));
}

#[test]
fn a_question_is_read_once() {
    let read = |text: &str| Question::read(text, None, None);
    assert_eq!(read("ftp://a.test").unwrap_err(), BadQuestion::Scheme("ftp".to_owned()));
    assert_eq!(Question::read("http://a.test/x", None, Some("/y")).unwrap_err(), BadQuestion::TwoPaths);
    assert_eq!(Question::read("a.test", None, Some("y")).unwrap_err(), BadQuestion::Path);
    assert_eq!(Question::read("a.test", Some("GET /"), None).unwrap_err(), BadQuestion::Method);
    for (text, port, scheme) in [
        ("a.test", 443, Scheme::Https),
        ("a.test:80", 80, Scheme::Http),
        ("a.test:22", 22, Scheme::Https),
        ("http://a.test", 80, Scheme::Http),
        ("wss://a.test:8443/x?secret#y", 8443, Scheme::Https),
        ("2001:db8::7", 443, Scheme::Https),
    ] {
        let question = read(text).unwrap();
        assert!(question.host.is_ok(), "{text}");
        assert_eq!((question.port, question.scheme), (port, scheme), "{text}");
        assert!(question.path.is_none_or(|path| path.raw() == "/x"), "{text}");
    }
}

#[test]
fn a_question_that_would_be_asked_and_a_proxy_above_are_told() {
    let mut asking = loaded("net: { mode: allowlist, allow: [a.test], unknown: ask }\n", None);
    let upstream = "http://proxy.test:3128".parse().unwrap();
    let origin = Origin { layer: Layer::User, place: None };
    asking.policy.net.upstream = Some(ringfence_policy::Sourced { value: upstream, origin });
    assert!(ask(&asking, "unknown.test").later[0].contains("a person asked"));
    assert!(ask(&asking, "a.test").later[1].contains("http://proxy.test:3128"));
    for never in ["webhook.site", "10.0.0.7", "localhost:1", "a.test:22"] {
        assert_eq!(ask(&asking, never).later, Vec::<String>::new(), "{never}");
    }
}

#[test]
fn a_method_in_small_letters_is_the_same_and_one_that_no_rule_can_name_is_not_the_operators_fault() {
    let loaded = loaded(SAMPLE, None);
    let asked = |method: &str| explain(&loaded, &Question::read("https://c.test/x", Some(method), None).unwrap());
    let small = asked("post");
    assert_eq!(small.fix, asked("POST").fix);
    assert!(small.fix.unwrap().snippet.contains("methods: [POST]"));
    let long = asked(&"A".repeat(300));
    let hint = long.hint.unwrap();
    assert!(long.fix.is_none() && !hint.contains("operator"), "{hint}");
}

#[test]
fn plain_http_to_a_host_with_a_credential_is_advised_to_be_https() {
    let mut loaded = loaded("net: { mode: allowlist, allow: [api.test, { host: b.test, ports: [80] }] }\n", None);
    // A credential is defined in another layer than the one that a test of this size has.
    loaded.policy.net.allow[0].value.credential = Some("github".to_owned());
    let plain = check(&loaded, "http://api.test/x", Some("net.needs-tls"));
    assert!(plain.fix.is_none() && plain.hint.as_deref().unwrap().contains("use https"), "{plain:#?}");
    check(&loaded, "https://api.test/x", None);
    check(&loaded, "http://b.test/x", None);
}

#[test]
fn who_is_asked_about_is_said_where_hosts_are_asked_about() {
    let asking = loaded("net: { mode: allowlist, unknown: ask }\n", None);
    let later = ask(&asking, "evil.test").later;
    assert!(later[0].contains("only programs that use the proxy variables"), "{later:?}");
    assert_eq!(ask(&loaded(SAMPLE, None), "evil.test").later, Vec::<String>::new());
}
