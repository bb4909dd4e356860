use ringfence_policy::{Layer, LayerInput, parse, resolve};

use super::*;

fn loaded(net: &str, operator: Option<&str>) -> Loaded {
    let mut inputs =
        vec![LayerInput { layer: Layer::Project, file: parse("p", &format!("version: 1\n{net}")).unwrap() }];
    let mut files = Vec::new();
    if let Some(operator) = operator {
        let text = format!("version: 1\n{operator}");
        let file = parse("o", &text).unwrap();
        inputs.push(LayerInput { layer: Layer::Operator, file: file.clone() });
        let (layer, path, name) = (Layer::Operator, "o".into(), "o".into());
        files.push(crate::layers::LoadedFile { layer, path, name, text, parsed: Some(file) });
    }
    let policy = resolve(&inputs, &[]).unwrap();
    Loaded { policy, files, project_file: Some("sandbox.policy.yaml".into()) }
}

const EMPTY: &str = "net: { mode: allowlist }\n";

fn contact(host: &str, port: u16, request: Option<(&str, &str)>, reason: &str) -> Contact {
    Contact {
        host: host.to_owned(),
        port,
        via: if request.is_some() { "http" } else { "connect" }.to_owned(),
        method: request.map(|(method, _)| method.to_owned()),
        path: request.map(|(_, path)| path.to_owned()),
        allowed: reason.is_empty(),
        rule: reason.to_owned(),
        reason: (!reason.is_empty()).then(|| reason.to_owned()),
        through: None,
        count: 1,
        bytes_up: 0,
        bytes_down: 0,
        status: None,
        latency_ms: None,
    }
}

fn unlisted(host: &str, port: u16) -> Contact {
    contact(host, port, None, "net.not-listed")
}

fn taught(loaded: &Loaded, contacts: &[Contact], wishes: &Wishes) -> Lesson {
    learn(loaded, "run", contacts, 0, wishes).unwrap()
}

#[test]
fn the_proposal_lets_through_what_was_denied_and_nothing_else() {
    let policy = loaded(EMPTY, None);
    let contacts = [
        unlisted("a.test", 443),
        unlisted("a.test", 8443),
        contact("b.test", 80, Some(("GET", "/x")), "net.not-listed"),
        contact("b.test", 80, Some(("POST", "/y")), "net.not-listed"),
        contact("c.test", 80, Some(("GET", "/")), ""),
    ];
    let lesson = taught(&policy, &contacts, &Wishes::default());
    assert_eq!(
        lesson.snippet.as_deref(),
        Some(
            "net:\n  allow:\n    - { host: a.test, ports: [443, 8443] }\n    \
             - { host: b.test, ports: [80], methods: [GET], paths: [\"/x\"] }\n    \
             - { host: b.test, ports: [80], methods: [POST], paths: [\"/y\"] }\n"
        )
    );
    assert_eq!((lesson.denied, lesson.covered, lesson.apart.len()), (4, 4, 0));
    let file = parse("snippet", &format!("version: 1\n{}", lesson.snippet.unwrap())).unwrap();
    let net = with_addition(
        &policy.policy.net,
        &NetAddition {
            allow: file.net.allow.unwrap().into_iter().map(|rule| rule.value).collect(),
            ..NetAddition::default()
        },
    );
    let allows = |contact: &Contact| {
        let host = Host::parse(&contact.host).unwrap();
        Wanted { contact, host, port: contact.port, path: contact.path.as_deref().map(UrlPath::new) }
            .is_allowed_by(&Rules::of_policy(&net))
    };
    assert!(contacts[..4].iter().all(allows));
    for other in [
        unlisted("b.test", 443),
        unlisted("a.test", 80),
        contact("b.test", 80, Some(("POST", "/x")), "net.not-listed"),
        unlisted("x.a.test", 443),
    ] {
        assert!(!allows(&other), "{other:?}");
    }
}

#[test]
fn what_was_seen_in_opened_tls_is_proposed_with_its_methods_and_paths() {
    let policy = loaded("net: { mode: allowlist, allow: [{ host: a.test, methods: [GET], inspect: true }] }\n", None);
    let inside =
        |method: &str| Contact { via: "tls".to_owned(), ..contact("a.test", 443, Some((method, "/x")), "net.method") };
    let lesson = taught(&policy, &[inside("POST"), inside("PUT")], &Wishes::default());
    let expected =
        "net:\n  allow:\n    - { host: a.test, ports: [443], methods: [POST, PUT], paths: [\"/x\"], inspect: true }\n";
    assert_eq!(lesson.snippet.as_deref(), Some(expected));
}

#[test]
fn what_may_be_a_trap_is_set_apart_and_proposed_only_by_name() {
    let policy = loaded("net: { mode: allowlist, allow: [intranet.corp.example] }\n", None);
    let traps =
        ["localhost", "10.0.0.7", "8.8.8.8", "xn--pypi-4ve.org", "pypl.org", "intranet-corp.example", "webhook.site"];
    let contacts: Vec<Contact> = traps.iter().map(|host| unlisted(host, 443)).collect();
    let lesson = taught(&policy, &contacts, &Wishes::default());
    assert_eq!((lesson.snippet, lesson.apart.len()), (None, traps.len()));
    assert!(lesson.apart.iter().all(|apart| apart.can_be_included));
    let include = traps.iter().map(ToString::to_string).collect();
    let lesson = taught(&policy, &contacts, &Wishes { include, ..Wishes::default() });
    assert_eq!(lesson.apart, []);
    let snippet = lesson.snippet.unwrap();
    assert!(snippet.contains("{ host: webhook.site, ports: [443], acknowledge: true }"), "{snippet}");
    assert!(snippet.contains("localhost: [443]") && snippet.contains("pypl.org"), "{snippet}");
}

#[test]
fn what_no_rule_may_name_is_never_proposed() {
    let policy = loaded(EMPTY, None);
    let contacts = [
        contact("bad.test", 443, None, "net.denied"),
        contact("inside.test", 443, None, "net.address"),
        contact("CONNECT a.test:443\n  deny: []", 0, None, "net.bad-host"),
        unlisted("a.test, ports: [1] }\n  - b.test", 443),
        unlisted("A.test", 443),
        unlisted("*.a.test", 443),
        unlisted("a.test", 0),
        contact("m.test", 80, Some(("get", "/")), "net.not-listed"),
        contact("p.test", 443, None, "net.protocol"),
    ];
    let include = contacts.iter().map(|contact| contact.host.clone()).collect();
    let lesson = taught(&policy, &contacts, &Wishes { include, wildcards: Wildcards::Asked });
    assert_eq!((&lesson.snippet, lesson.apart.len()), (&None, contacts.len()), "{lesson:#?}");
    let shown = serde_json::to_string(&lesson.apart).unwrap();
    assert!(!shown.contains("\\n"), "{shown}");
    // The twin: a host that a rule may name.
    assert!(taught(&policy, &[unlisted("a.test", 443)], &Wishes::default()).snippet.is_some());
}

#[test]
fn the_operators_floor_is_not_proposed_away() {
    let contacts = [unlisted("a.test", 443), unlisted("b.test", 443)];
    let held = loaded(EMPTY, Some("net: { mode: allowlist, allow: [a.test] }\n"));
    let lesson = taught(&held, &contacts, &Wishes::default());
    assert_eq!(lesson.rules, ["a.test:443"]);
    assert!(lesson.apart[0].host == "b.test" && lesson.apart[0].why.contains("operator"), "{:?}", lesson.apart);
    let free = taught(&loaded(EMPTY, None), &contacts, &Wishes::default());
    assert_eq!(free.rules.len(), 2);
}

#[test]
fn names_become_a_pattern_only_when_that_is_asked_for() {
    let policy = loaded(EMPTY, None);
    let contacts =
        ["a.example.org", "b.example.org", "c.other.org", "x.co.uk", "y.co.uk"].map(|host| unlisted(host, 443));
    assert_eq!(taught(&policy, &contacts, &Wishes::default()).rules.len(), 5);
    let asked = taught(&policy, &contacts, &Wishes { wildcards: Wildcards::Asked, ..Wishes::default() });
    assert_eq!(
        asked.rules,
        ["x.co.uk:443", "y.co.uk:443", "*.example.org:443", "c.other.org:443"].map(String::from),
        "{asked:#?}"
    );
}

#[test]
fn a_lesson_of_any_contact_is_a_policy_or_none() {
    use proptest::prelude::*;
    let policy = loaded(EMPTY, None);
    proptest!(|(host in "\\PC{1,30}", path in "/\\PC{0,30}", method in "[A-Za-z.]{1,20}", port: u16)| {
        let contacts = [contact(&host, port, Some((&method, &path)), "net.not-listed")];
        let lesson = learn(&policy, "run", &contacts, 0, &Wishes::default()).unwrap();
        prop_assert_eq!(lesson.covered + lesson.apart.len(), 1);
        if let Some(snippet) = lesson.snippet {
            let read = parse("snippet", &format!("version: 1\n{snippet}"));
            prop_assert!(read.is_ok());
        }
    });
}

#[test]
fn a_host_that_was_only_looked_up_is_proposed_with_a_guess_that_is_said() {
    let policy = loaded(EMPTY, None);
    let lookup = |host: &str| Contact { via: "lookup".to_owned(), ..unlisted(host, 0) };
    let lesson = taught(&policy, &[lookup("a.test"), unlisted("b.test", 443)], &Wishes::default());
    assert_eq!((lesson.rules, lesson.guessed), (vec!["a.test:443".into(), "b.test:443".into()], vec!["a.test".into()]));
    assert_eq!((lesson.denied, lesson.covered, lesson.apart.len()), (2, 2, 0));
    // Where a connection was seen nothing is guessed.
    let both = taught(
        &policy,
        &[lookup("a.test"), contact("a.test", 80, Some(("GET", "/x")), "net.not-listed")],
        &Wishes::default(),
    );
    assert_eq!((both.guessed, both.denied, both.covered), (Vec::<String>::new(), 1, 1));
    assert!(both.snippet.unwrap().contains("- { host: a.test, ports: [80], methods: [GET], paths: [\"/x\"] }"));
    // A trap stays one.
    let trap = taught(&policy, &[lookup("webhook.site")], &Wishes::default());
    assert_eq!((trap.snippet, trap.guessed, trap.apart.len()), (None, Vec::<String>::new(), 1));
}

#[test]
fn names_that_are_given_out_one_by_one_become_no_pattern() {
    let policy = loaded(EMPTY, None);
    let asked = Wishes { wildcards: Wildcards::Asked, ..Wishes::default() };
    for parent in ["github.io", "vercel.app", "herokuapp.com", "s3.amazonaws.com"] {
        let contacts = ["a", "b"].map(|name| unlisted(&format!("{name}.{parent}"), 443));
        let lesson = taught(&policy, &contacts, &asked);
        assert!(lesson.rules.iter().all(|rule| !rule.contains('*')), "{lesson:#?}");
    }
    let contacts = ["a", "b"].map(|name| unlisted(&format!("{name}.example.org"), 443));
    assert_eq!(taught(&policy, &contacts, &asked).rules, ["*.example.org:443"]);
}

#[test]
fn where_paths_were_collapsed_it_is_said_how_wide_the_proposal_is() {
    let policy = loaded(EMPTY, None);
    let get = |path: String| contact("a.test", 80, Some(("GET", &path)), "net.not-listed");
    let below: Vec<Contact> = (0..20).map(|number| get(format!("/x/{number}"))).collect();
    assert_eq!(taught(&policy, &below, &Wishes::default()).wider, ["all below /x of a.test, for GET"]);
    let every: Vec<Contact> = (0..20).map(|number| get(format!("/{number}/x"))).collect();
    assert_eq!(taught(&policy, &every, &Wishes::default()).wider, ["every path of a.test, for GET"]);
    let few = [get("/x/1".to_owned()), get("/**".to_owned())];
    assert_eq!(taught(&policy, &few, &Wishes::default()).wider, Vec::<String>::new());
}
