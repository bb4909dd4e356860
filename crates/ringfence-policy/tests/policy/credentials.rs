//! Who may say where secrets come from, and where they may go.

use ringfence_policy::{
    Diagnostic, Grant, Layer, Overrides, ResolvedPolicy, SecretUse, UnknownHosts, narrow, parse, resolve, show,
};

use crate::{layer, resolved};

const GITHUB: &str = "credentials: { github: { from: { env: GITHUB_TOKEN }, hosts: [api.github.com, \"*.github.test\"], env: GITHUB_TOKEN } }";
const RULE: &str = "net: { mode: allowlist, allow: [{ host: api.github.com, credential: github }] }";

fn problems(layers: &[(Layer, &str)]) -> Vec<Diagnostic> {
    let inputs: Vec<_> = layers.iter().map(|(name, text)| layer(name.clone(), text)).collect();
    resolve(&inputs, &[]).expect_err("must be refused")
}

fn codes(layers: &[(Layer, &str)]) -> Vec<&'static str> {
    problems(layers).iter().map(|problem| problem.code).collect()
}

#[test]
fn a_project_uses_a_credential_that_the_user_or_the_operator_defined() {
    for definer in [Layer::User, Layer::Operator] {
        let policy = resolved(&[(definer.clone(), GITHUB), (Layer::Project, RULE)]);
        assert_eq!(policy.net.allow[0].value.credential.as_deref(), Some("github"));
        assert!(policy.net.allow[0].value.inspects());
        assert_eq!(policy.credentials["github"].origin.layer, definer);
        assert_eq!(policy.credentials["github"].value.format().as_deref(), Some("Bearer {}"));
    }
}

#[test]
fn a_project_cannot_say_where_a_secret_comes_from_nor_through_which_proxy_everything_goes() {
    let found = problems(&[(Layer::Project, GITHUB)]);
    assert_eq!(found[0].code, "policy::credential-layer");
    assert!(
        found[0].place.is_some() && found[0].advice.as_deref().is_some_and(|advice| advice.contains("your own file"))
    );
    // Nor may it change what the user said.
    assert_eq!(codes(&[(Layer::User, GITHUB), (Layer::Project, GITHUB)]), ["policy::credential-layer"]);
    assert_eq!(codes(&[(Layer::Project, "net: { upstream: \"http://evil.test:1\" }")]), ["policy::upstream-layer"]);
    let upstream = "net: { upstream: \"http://proxy.test:3128\" }";
    let policy = resolved(&[(Layer::User, upstream)]);
    assert_eq!(policy.net.upstream.map(|it| it.value.to_string()).as_deref(), Some("http://proxy.test:3128"));
}

#[test]
fn a_rule_cannot_send_a_credential_to_a_host_that_it_is_not_for() {
    let evil = "net: { mode: allowlist, allow: [{ host: evil.test, credential: github }] }";
    for guilty in [Layer::User, Layer::Project, Layer::Operator] {
        let mut layers = vec![(Layer::User, GITHUB), (guilty.clone(), evil)];
        if guilty == Layer::Operator {
            // An operator's list only narrows, so somebody has to have the rule first.
            layers.push((Layer::Project, evil));
        }
        assert!(codes(&layers).iter().all(|code| *code == "policy::credential-host"), "{guilty}");
    }
    // A wildcard is wider than the one host.
    let wide = "net: { mode: allowlist, allow: [{ host: \"*.github.com\", credential: github }] }";
    assert_eq!(codes(&[(Layer::User, GITHUB), (Layer::Project, wide)]), ["policy::credential-host"]);
    let within = "net: { mode: allowlist, allow: [{ host: a.b.github.test, credential: github }] }";
    resolved(&[(Layer::User, GITHUB), (Layer::Project, within)]);
    let grant = Grant::parse(
        "g.yaml",
        "version: 1\nby: me\ngrant: { net: { allow: [{ host: evil.test, credential: github }] } }",
    )
    .unwrap();
    let inputs =
        [layer(Layer::User, &format!("{GITHUB}\nnet: {{ mode: allowlist }}\noverrides: {{ grantable: [net.allow] }}"))];
    assert_eq!(resolve(&inputs, &[grant]).unwrap_err()[0].code, "policy::credential-host");
}

#[test]
fn a_call_neither_adds_a_credential_nor_leaves_one_out() {
    let asked = |policy: &ResolvedPolicy, rule: &str| {
        let overrides = Overrides::parse_json(&format!("{{\"net\": {{\"allow\": [{rule}]}}}}")).unwrap();
        narrow(policy, &overrides).is_ok()
    };
    let bound = resolved(&[(Layer::User, GITHUB), (Layer::User, RULE)]);
    assert!(asked(&bound, "{\"host\": \"api.github.com\", \"credential\": \"github\", \"methods\": [\"GET\"]}"));
    assert!(!asked(&bound, "{\"host\": \"api.github.com\", \"inspect\": true}"));
    assert!(!asked(&bound, "\"api.github.com\""));
    // Where everything is open, a secret still goes only where a rule sends it.
    let open = resolved(&[(Layer::User, GITHUB), (Layer::User, "net: { mode: open }")]);
    assert!(asked(&open, "\"evil.test\""));
    assert!(!asked(&open, "{\"host\": \"evil.test\", \"credential\": \"github\"}"));
    assert!(!asked(&open, "{\"host\": \"api.github.com\", \"credential\": \"github\"}"));
}

#[test]
fn a_secret_that_would_be_passed_inside_is_refused_unless_its_placeholder_takes_the_place() {
    let pass = "proc: { env: { pass: [GITHUB_*] } }";
    resolved(&[(Layer::User, GITHUB), (Layer::User, RULE), (Layer::Project, pass)]);
    let elsewhere = GITHUB.replace("env: GITHUB_TOKEN } }", "env: TOKEN } }");
    assert_eq!(
        codes(&[(Layer::User, &elsewhere), (Layer::User, RULE), (Layer::Project, pass)]),
        ["policy::credential-passed"]
    );
}

#[test]
fn the_operators_definition_stands_and_what_is_shown_reads_back() {
    let theirs = "credentials: { github: { from: { command: [pass, show, \"a b\"] }, hosts: [api.github.com], header: X-Api-Key } }";
    let policy = resolved(&[(Layer::User, GITHUB), (Layer::Operator, theirs), (Layer::User, RULE)]);
    let credential = &policy.credentials["github"];
    assert_eq!((credential.origin.layer.clone(), credential.value.header.as_str()), (Layer::Operator, "x-api-key"));
    assert_eq!(credential.value.format().as_deref(), Some("{}"));
    let text = show(&policy);
    let again = parse("shown.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
    let shown = again.credentials.unwrap();
    assert_eq!((shown[0].0.as_str(), &shown[0].1.value), ("github", &credential.value));
    // An outcome shows which program is asked, and none of the words that it is given.
    let canonical = policy.canonical_json().to_string();
    assert!(canonical.contains("\"command\":\"pass\"") && !canonical.contains("a b"), "{canonical}");
}

#[test]
fn a_credential_that_signs_is_shown_and_reads_back_and_has_nothing_that_is_sent() {
    let signs = "credentials: { corp: { from: { file: /key }, hosts: [api.corp.test], sign: hmac-sha256, header: X-Signature } }";
    let rule = "net: { mode: allowlist, allow: [{ host: api.corp.test, credential: corp }] }";
    let policy = resolved(&[(Layer::User, signs), (Layer::Project, rule)]);
    let credential = &policy.credentials["corp"].value;
    assert_eq!((credential.format(), &credential.secret), (None, &SecretUse::Signs));
    let text = show(&policy);
    assert!(text.contains("sign: hmac-sha256") && !text.contains("format"), "{text}");
    let again = parse("shown.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
    assert_eq!(&again.credentials.unwrap()[0].1.value, credential);
    let canonical = policy.canonical_json().to_string();
    assert!(canonical.contains("\"sign\":\"hmac-sha256\"") && !canonical.contains("format"), "{canonical}");
    // A definition that sends the secret instead is another one.
    let sends = signs.replace(", sign: hmac-sha256", "");
    let other = resolved(&[(Layer::User, &sends), (Layer::Project, rule)]);
    let changes = ringfence_policy::compare(&policy, &other);
    assert!(changes.iter().any(|change| change.field == "credentials.corp"), "{changes:?}");
}

#[test]
fn budgets_and_questions_narrow_by_call_and_floor() {
    let user = "net: { mode: allowlist, allow: [a.test], budget: { requests: 10, rate: 100/min }, unknown: ask }";
    let policy = resolved(&[(Layer::User, user), (Layer::Operator, "net: { budget: { bytes: 1MiB, requests: 20 } }")]);
    assert_eq!(policy.net.budget.value.to_string(), "{ requests: 10, bytes: 1MiB, rate: 100/min }");
    let call = |text: &str| narrow(&policy, &Overrides::parse_json(&format!("{{\"net\": {text}}}")).unwrap());
    let less = call("{\"budget\": {\"requests\": 3}, \"unknown\": \"deny\"}").unwrap();
    assert_eq!(less.net.budget.value.to_string(), "{ requests: 3, bytes: 1MiB, rate: 100/min }");
    assert_eq!(less.net.unknown.value, UnknownHosts::Deny);
    assert!(call("{\"budget\": {\"requests\": 11}}").is_err());
    assert!(narrow(&less, &Overrides::parse_json("{\"net\": {\"unknown\": \"ask\"}}").unwrap()).is_err());
}

#[test]
fn a_project_does_not_have_a_person_asked_who_said_no() {
    let asks = "net: { unknown: ask }";
    assert_eq!(resolved(&[(Layer::Project, asks)]).net.unknown.value, UnknownHosts::Ask);
    assert_eq!(resolved(&[(Layer::User, asks)]).net.unknown.value, UnknownHosts::Ask);
    let said_no = resolved(&[(Layer::User, "net: { unknown: deny }"), (Layer::Project, asks)]);
    assert_eq!(said_no.net.unknown.value, UnknownHosts::Deny);
    assert_eq!(
        resolved(&[(Layer::Operator, "net: { unknown: deny }"), (Layer::User, asks)]).net.unknown.value,
        UnknownHosts::Deny
    );
}
