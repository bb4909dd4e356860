//! What a rule demands of its hosts stays, whoever makes the list narrower.

use ringfence_policy::{Layer, NetRule, Overrides, ResolvedPolicy, Widening, narrow};

use crate::resolved;

const KEYS: &str = "credentials: { k: { from: { env: K }, hosts: [\"*.corp.test\"] }, l: { from: { env: L }, hosts: [\"*.corp.test\"] } }";

fn user(allow: &str) -> ResolvedPolicy {
    resolved(&[(Layer::User, KEYS), (Layer::User, &format!("net: {{ mode: allowlist, allow: [{allow}] }}"))])
}

fn ask(policy: &ResolvedPolicy, allow: &str) -> Result<Vec<String>, Vec<Widening>> {
    let overrides = Overrides::parse_json(&format!("{{\"net\": {{\"allow\": [{allow}]}}}}")).unwrap();
    narrow(policy, &overrides).map(|narrowed| {
        assert!(narrowed.is_within(policy));
        shown(&narrowed)
    })
}

fn shown(policy: &ResolvedPolicy) -> Vec<String> {
    policy.net.allow.iter().map(|rule| rule.value.to_string()).collect()
}

fn denied(policy: &ResolvedPolicy) -> Vec<String> {
    policy.net.deny.iter().map(|rule| rule.value.to_string()).collect()
}

fn floor(lower: &str, operator: &str) -> ResolvedPolicy {
    let operator = format!("net: {{ allow: [{operator}] }}");
    resolved(&[(Layer::User, KEYS), (Layer::Project, &format!("net: {{ {lower} }}")), (Layer::Operator, &operator)])
}

#[test]
fn a_call_that_leaves_a_rule_out_keeps_its_credential() {
    let policy = user("\"*.corp.test\", { host: api.corp.test, credential: k }");
    for asked in ["\"*.corp.test\"", "\"api.corp.test\""] {
        let allow = ask(&policy, asked).unwrap();
        assert_eq!(allow[0], "api.corp.test with credential k", "{asked}: {allow:?}");
    }
    // Where it is asked for, it is as narrow as it was asked for.
    let both = "\"*.corp.test\", {\"host\": \"api.corp.test\", \"credential\": \"k\", \"methods\": [\"GET\"]}";
    assert_eq!(ask(&policy, both).unwrap(), ["*.corp.test", "api.corp.test GET with credential k"]);
    // Elsewhere nothing is added.
    assert_eq!(ask(&policy, "\"b.corp.test\"").unwrap(), ["b.corp.test"]);
    assert_eq!(
        ask(&policy, "{\"host\": \"api.corp.test\", \"credential\": \"k\"}").unwrap(),
        ["api.corp.test with credential k"]
    );
}

#[test]
fn a_call_cannot_slip_past_a_credential_by_a_method_or_a_path_that_it_is_not_for() {
    let policy = user(
        "\"*.corp.test\", { host: api.corp.test, methods: [GET], paths: [\"/x/**\"], credential: k }, { host: api.corp.test, paths: [/y], credential: l }",
    );
    for asked in [
        "{\"host\": \"api.corp.test\", \"methods\": [\"POST\"], \"paths\": [\"/x/**\"]}",
        "{\"host\": \"api.corp.test\", \"paths\": [\"/x/1\"]}",
    ] {
        let refused = ask(&policy, asked).unwrap_err();
        assert!(refused[0].allowed.contains("with credential"), "{refused:?}");
    }
    // Each credential may be left out where the other one keeps strangers' keys away.
    let one = "{\"host\": \"api.corp.test\", \"paths\": [\"/y\"], \"credential\": \"l\"}";
    assert_eq!(ask(&policy, one).unwrap().len(), 1);
    assert_eq!(ask(&policy, "\"b.corp.test\"").unwrap(), ["b.corp.test"]);
}

#[test]
fn headers_that_are_left_out_stay_left_out() {
    let policy = user("\"*.corp.test\", { host: api.corp.test, strip: [X-Id, cookie] }");
    assert_eq!(shown(&policy)[1], "api.corp.test inspected without cookie,x-id");
    let stripped = "api.corp.test inspected without cookie,x-id";
    assert_eq!(ask(&policy, "\"*.corp.test\"").unwrap(), ["*.corp.test", stripped]);
    assert_eq!(ask(&policy, "\"api.corp.test\"").unwrap(), [stripped]);
    // More may be left out, not less.
    let more = "{\"host\": \"api.corp.test\", \"strip\": [\"Cookie\", \"X-Id\", \"X-More\"]}";
    assert_eq!(ask(&policy, more).unwrap(), ["api.corp.test inspected without cookie,x-id,x-more"]);
    let less = "{\"host\": \"api.corp.test\", \"strip\": [\"Cookie\"]}";
    assert_eq!(ask(&policy, less).unwrap(), [stripped]);
    // Elsewhere nothing is added.
    assert_eq!(ask(&policy, "\"b.corp.test\"").unwrap(), ["b.corp.test"]);
    // Whichever side of an operator's list says it.
    for (lower, operator) in [
        ("mode: allowlist, allow: [api.corp.test]", "{ host: \"*.corp.test\", strip: [cookie] }"),
        ("mode: allowlist, allow: [{ host: api.corp.test, strip: [cookie] }]", "\"*.corp.test\""),
    ] {
        assert_eq!(shown(&floor(lower, operator)), ["api.corp.test inspected without cookie"], "{lower}");
    }
}

#[test]
fn globs_that_are_partly_the_same_shed_no_demand() {
    let stripped = "{ host: api.corp.test, paths: [\"/a/**\", \"/b/secret/**\"], strip: [Cookie] }";
    let (wide, both) = ("paths: [\"/a/**\", \"/b/**\"]", "\"paths\": [\"/a/**\", \"/b/**\"]");
    let held = |policy: &ResolvedPolicy| {
        let of = |path: &str| demands(policy, "api.corp.test", 443, "GET", path);
        let (secret, elsewhere) = (of("/b/secret/1"), of("/c"));
        assert!(secret.reached && !elsewhere.reached, "the probe proves nothing");
        secret.strip.contains("cookie")
    };
    let lower = format!("mode: allowlist, allow: [{{ host: api.corp.test, inspect: true, {wide} }}]");
    let floored = floor(&lower, &format!("api.corp.test, {stripped}"));
    assert!(held(&floored), "{:?}", shown(&floored));
    assert!(!held(&floor(&lower, "api.corp.test")), "nobody demands it");
    let asked = Overrides::parse_json(&format!(
        "{{\"net\": {{\"allow\": [{{\"host\": \"api.corp.test\", \"inspect\": true, {both}}}]}}}}"
    ));
    let narrowed = narrow(&user(&format!("api.corp.test, {stripped}")), &asked.unwrap()).unwrap();
    assert!(held(&narrowed), "{:?}", shown(&narrowed));
    // Where all of the demanding globs are the rule's, the others stay free.
    let part = floor(&lower, "api.corp.test, { host: api.corp.test, paths: [\"/a/**\"], strip: [Cookie] }");
    assert!(!held(&part) && demands(&part, "api.corp.test", 443, "GET", "/a/1").strip.contains("cookie"));
}

#[test]
fn an_operator_who_says_open_still_demands_what_the_rules_say() {
    let operator = "net: { mode: open, allow: [{ host: api.corp.test, strip: [Cookie] }, { host: key.corp.test, credential: k }] }";
    let with = |lower: &str| resolved(&[(Layer::User, KEYS), (Layer::Project, lower), (Layer::Operator, operator)]);
    let listed = with("net: { mode: allowlist, allow: [api.corp.test, b.corp.test] }");
    assert_eq!(shown(&listed), ["api.corp.test inspected without cookie", "b.corp.test"]);
    assert!(denied(&listed).is_empty());
    // As under an operator who lists hosts: a host that only one side binds to a credential is shut.
    let key = with("net: { mode: allowlist, allow: [key.corp.test, b.corp.test] }");
    assert_eq!(denied(&key), ["key.corp.test"]);
    // All that they leave out is theirs to leave out.
    assert_eq!(shown(&with("net: { mode: allowlist, allow: [b.corp.test] }")), ["b.corp.test"]);
}

#[test]
fn a_rule_that_leaves_headers_out_is_shown_and_reads_back() {
    let policy = user(
        "{ host: api.corp.test, methods: [GET], strip: [X-Id, Cookie] }, { host: b.corp.test, credential: k, strip: [X-Id] }",
    );
    let text = ringfence_policy::show(&policy);
    let again = ringfence_policy::parse("shown.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
    let read: Vec<NetRule> = again.net.allow.unwrap().into_iter().map(|rule| rule.value).collect();
    assert_eq!(read, policy.net.allow.iter().map(|rule| rule.value.clone()).collect::<Vec<_>>(), "{text}");
    let canonical = policy.canonical_json().to_string();
    assert!(canonical.contains("\"strip\":[\"cookie\",\"x-id\"]"), "{canonical}");
}

#[test]
fn a_call_that_leaves_a_rule_out_keeps_inspection_and_budget() {
    let policy = user(
        "\"*.corp.test\", { host: key.corp.test, inspect: true }, { host: api.corp.test, budget: { requests: 5 } }, { host: get.corp.test, methods: [GET], inspect: true }",
    );
    assert_eq!(
        ask(&policy, "\"*.corp.test\"").unwrap(),
        [
            "*.corp.test",
            "key.corp.test inspected",
            "api.corp.test within { requests: 5 }",
            "get.corp.test GET inspected"
        ]
    );
    assert_eq!(
        ask(&policy, "\"key.corp.test\", \"api.corp.test\", \"b.corp.test\"").unwrap(),
        ["key.corp.test inspected", "api.corp.test within { requests: 5 }", "b.corp.test"]
    );
    let post = "{\"host\": \"get.corp.test\", \"methods\": [\"POST\"]}";
    assert_eq!(ask(&policy, post).unwrap(), ["get.corp.test POST inspected"]);
    let less = "{\"host\": \"api.corp.test\", \"budget\": {\"requests\": 3}}";
    assert_eq!(ask(&policy, less).unwrap(), ["api.corp.test within { requests: 3 }"]);
}

#[test]
fn a_call_on_an_open_network_keeps_what_the_rules_demand() {
    let open = resolved(&[
        (Layer::User, KEYS),
        (Layer::User, "net: { mode: open, allow: [{ host: api.corp.test, credential: k, budget: { requests: 5 } }] }"),
    ]);
    assert_eq!(
        ask(&open, "\"*.corp.test\"").unwrap(),
        ["api.corp.test with credential k within { requests: 5 }", "*.corp.test"]
    );
    assert_eq!(ask(&open, "\"other.test\"").unwrap(), ["other.test"]);
}

#[test]
fn the_operators_inspection_and_budget_hold_for_hosts_that_a_project_lists_plainly() {
    let operator =
        "\"*.corp.test\", { host: key.corp.test, inspect: true }, { host: api.corp.test, budget: { requests: 5 } }";
    let listed = floor("mode: allowlist, allow: [key.corp.test, api.corp.test, b.corp.test]", operator);
    assert_eq!(shown(&listed), ["key.corp.test inspected", "api.corp.test within { requests: 5 }", "b.corp.test"]);
    assert_eq!(listed.net.allow[0].origin.layer, Layer::Operator);
    assert_eq!(listed.net.allow[2].origin.layer, Layer::Project);
    let open = floor("mode: open", operator);
    assert_eq!(shown(&open), ["*.corp.test", "key.corp.test inspected", "api.corp.test within { requests: 5 }"]);
    // And what those below demand of themselves stays under an operator who does not.
    let stricter = floor("mode: open, allow: [{ host: key.corp.test, inspect: true }]", "\"*.corp.test\"");
    assert_eq!(shown(&stricter), ["*.corp.test", "key.corp.test inspected"]);
}

#[test]
fn a_host_that_only_one_side_binds_to_a_credential_is_shut() {
    let operator = "\"*.corp.test\", { host: api.corp.test, credential: k }";
    for lower in ["mode: open", "mode: allowlist, allow: [api.corp.test, b.corp.test]"] {
        let policy = floor(lower, operator);
        assert!(shown(&policy).iter().all(|rule| !rule.contains("credential")), "{lower}");
        assert_eq!(denied(&policy), ["api.corp.test"], "{lower}");
        assert_eq!(policy.net.deny[0].origin.layer, Layer::Operator);
    }
    let theirs =
        floor("mode: allowlist, allow: [\"*.corp.test\", { host: api.corp.test, credential: k }]", "\"*.corp.test\"");
    assert_eq!((shown(&theirs), denied(&theirs)), (vec!["*.corp.test".to_owned()], vec!["api.corp.test".to_owned()]));
    for lower in ["mode: open", "mode: allowlist"] {
        let both = floor(&format!("{lower}, allow: [{operator}]"), operator);
        assert!(shown(&both).contains(&"api.corp.test with credential k".to_owned()), "{lower}");
        assert!(denied(&both).is_empty(), "{lower}");
        let part = floor(&format!("{lower}, allow: [{{ host: api.corp.test, paths: [/x], credential: k }}]"), operator);
        assert!(shown(&part).contains(&"api.corp.test /x with credential k".to_owned()), "{lower}");
        assert!(denied(&part).is_empty(), "{lower}");
    }
    // Where nothing else reaches the host, nothing has to be shut.
    let alone = floor("mode: open", "{ host: api.corp.test, credential: k }");
    assert!(shown(&alone).is_empty() && denied(&alone).is_empty());
}

#[test]
fn a_second_operators_file_changes_neither_the_upstream_nor_the_credentials_of_the_first() {
    let first = "net: { upstream: \"http://first.test:1\" }\ncredentials: { k: { from: { file: /first }, hosts: [api.corp.test] } }";
    let second = "net: { upstream: \"http://second.test:1\" }\ncredentials: { k: { from: { command: [evil] }, hosts: [evil.test] }, m: { from: { file: /m }, hosts: [m.test] } }";
    let upstream = |policy: &ResolvedPolicy| policy.net.upstream.as_ref().map(|it| it.value.to_string());
    for added in [second, "net: { allow: [a.test] }", "net: { deny: [a.test] }"] {
        let policy = resolved(&[(Layer::Operator, first), (Layer::Operator, added)]);
        assert_eq!(upstream(&policy).as_deref(), Some("http://first.test:1"), "{added}");
        assert_eq!(policy.credentials["k"].value.hosts[0].to_string(), "api.corp.test");
    }
    let policy = resolved(&[(Layer::Operator, first), (Layer::Operator, second)]);
    assert!(policy.credentials.contains_key("m"), "a new name is nobody's yet");
    // What the user says is the operator's to change.
    let policy = resolved(&[(Layer::User, first), (Layer::Operator, second)]);
    assert_eq!(upstream(&policy).as_deref(), Some("http://second.test:1"));
    assert_eq!(policy.credentials["k"].value.hosts[0].to_string(), "evil.test");
    assert_eq!(upstream(&resolved(&[(Layer::User, first), (Layer::Operator, "net: { deny: [a.test] }")])), None);
}

#[test]
fn a_second_operators_file_changes_nothing_of_the_first_that_has_no_order() {
    let first = "backend: { use: docker, runtime: runsc }\nimage: first:1\nfs: { workspace: { path: /first } }\n\
                 proc: { user: \"1001:1001\", env: { set: { A: \"1\" } } }";
    let second = "backend: { use: podman, runtime: runc }\nimage: second:1\nfs: { workspace: { path: /second } }\n\
                  proc: { user: \"1002:1002\", env: { set: { A: \"2\", B: \"2\" } } }";
    let said = |policy: &ResolvedPolicy| {
        [
            policy.backend.choice.value.to_string(),
            policy.backend.runtime.as_ref().map(|it| it.value.to_string()).unwrap_or_default(),
            policy.image.as_ref().map(|it| it.value.to_string()).unwrap_or_default(),
            policy.fs.workspace.value.to_string(),
            policy.proc.user.value.to_string(),
            policy.proc.env.set.get("A").map(|it| it.value.clone()).unwrap_or_default(),
        ]
    };
    let of_first = ["docker", "runsc", "first:1", "/first", "1001:1001", "1"];
    let of_second = ["podman", "runc", "second:1", "/second", "1002:1002", "2"];
    let both = resolved(&[(Layer::Operator, first), (Layer::Operator, second)]);
    assert_eq!(said(&both), of_first);
    assert_eq!(both.proc.env.set["B"].value, "2", "a new name is nobody's yet");
    // A project that says the same does not make it anybody's.
    let same = resolved(&[(Layer::Project, first), (Layer::Operator, first), (Layer::Operator, second)]);
    assert_eq!(said(&same), of_first);
    // What those below say is the operator's to change, and what the first leaves open is the second's.
    assert_eq!(said(&resolved(&[(Layer::Project, first), (Layer::Operator, second)])), of_second);
    let late =
        resolved(&[(Layer::Operator, "net: { mode: none }"), (Layer::Project, first), (Layer::Operator, second)]);
    assert_eq!(said(&late), of_second);
    // A preset that an operator's file extends is no other operator.
    let own = resolved(&[(Layer::Operator, "extends: [preset:ci]\nproc: { env: { set: { CI: \"mine\" } } }")]);
    assert_eq!(own.proc.env.set["CI"].value, "mine");
    // A stronger wall is narrower, whoever names it.
    let stronger =
        [(Layer::Project, "backend: none"), (Layer::Operator, "backend: spawn"), (Layer::Operator, "backend: docker")];
    assert_eq!(resolved(&stronger).backend.choice.value.to_string(), "docker");
}

#[test]
fn every_word_of_a_credentials_command_is_in_the_hash_and_none_but_the_program_in_the_outcome() {
    let with = |words: &str| {
        resolved(&[(
            Layer::User,
            &format!("credentials: {{ k: {{ from: {{ command: [{words}] }}, hosts: [a.test] }} }}"),
        )])
    };
    let (one, other) = (with("pass, show, one"), with("pass, show, other"));
    assert_ne!(one.hash_input(), other.hash_input());
    assert_eq!(one.hash_input(), with("pass, show, one").hash_input());
    assert_ne!(with("pass").hash_input(), with("pass, \"\"").hash_input());
    assert_eq!(one.canonical_json(), other.canonical_json());
    let plain = resolved(&[(Layer::User, "net: { mode: open }")]);
    assert_eq!(plain.hash_input(), plain.canonical_json().to_string());
}

/// What the rules of a policy demand of one target, as the proxy hears them: all rules that mean it.
pub(crate) struct Demands {
    pub(crate) reached: bool,
    pub(crate) inspected: bool,
    pub(crate) bound: bool,
    pub(crate) budget: ringfence_policy::NetBudget,
    pub(crate) strip: std::collections::BTreeSet<String>,
}

pub(crate) fn demands(policy: &ResolvedPolicy, host: &str, port: u16, method: &str, path: &str) -> Demands {
    use ringfence_policy::NetMode;
    let there = |rule: &&NetRule| rule.host.covers_name(host) && (rule.ports.is_empty() || rule.ports.contains(&port));
    let means = |rule: &&NetRule| {
        (rule.methods.is_empty() || rule.methods.iter().any(|known| known == method))
            && (rule.paths.is_empty() || rule.paths.iter().any(|known| known.matches(path)))
    };
    let allow: Vec<&NetRule> = policy.net.allow.iter().map(|rule| &rule.value).filter(there).collect();
    let denied = policy.net.deny.iter().map(|rule| &rule.value).filter(there).any(|rule| means(&rule));
    let open = policy.net.mode.value == NetMode::Open;
    let listed = policy.net.mode.value == NetMode::Allowlist && allow.iter().any(&means);
    Demands {
        reached: !denied && (open || listed),
        inspected: allow.iter().any(|rule| rule.inspects()),
        bound: allow.iter().any(|rule| rule.credential.is_some()),
        budget: allow
            .iter()
            .filter(|rule| means(rule))
            .fold(ringfence_policy::NetBudget::default(), |budget, rule| budget.meet(&rule.budget)),
        strip: allow.iter().filter(|rule| means(rule)).flat_map(|rule| rule.strip.clone()).collect(),
    }
}
