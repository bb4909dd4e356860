use ringfence_policy::{
    BackendChoice, BackendKind, Field, Firmness, Grant, Layer, Overrides, Preset, ResolvedPolicy, narrow, parse,
    resolve,
};

use crate::{layer, project, resolved};

fn texts<T: std::fmt::Display>(items: &[ringfence_policy::Sourced<T>]) -> Vec<String> {
    items.iter().map(|item| item.value.to_string()).collect()
}

#[test]
fn the_defaults_confine_and_say_who_they_are() {
    let policy = resolve(&[], &[]).unwrap();
    assert_eq!(policy.backend.choice.value, BackendChoice::Auto);
    assert!(policy.backend.fallback.is_empty() && policy.net.allow.is_empty() && policy.overrides.grantable.is_empty());
    assert_eq!(policy.proc.memory.value.to_string(), "2GiB");
    assert_eq!(policy.proc.memory.origin.to_string(), "default");
    let denied = |path: &str| policy.fs.deny.iter().any(|glob| glob.value.matches(path));
    for path in
        [".env", "a/.env", ".env.production", "x/.ssh/id", "id_rsa", "a/id_ed25519.pub", "tls/server-key.pem", ".npmrc"]
    {
        assert!(denied(path), "{path}");
    }
    for path in [".env.example", "src/environment.rs", "venv/certifi/cacert.pem", "package.json"] {
        assert!(!denied(path), "{path}");
    }
    let protected = |path: &str| policy.fs.protect.iter().any(|glob| glob.value.matches(path));
    for path in [
        ".git/hooks/pre-commit",
        "sub/.git/config",
        ".claude/settings.json",
        ".mcp.json",
        ".vscode/tasks.json",
        "sandbox.policy.yaml",
    ] {
        assert!(protected(path), "{path}");
    }
}

#[test]
fn every_preset_parses_and_resolves() {
    for preset in Preset::ALL {
        parse("preset", preset.text()).unwrap_or_else(|problems| panic!("{preset}: {problems:?}"));
        let policy = project(&format!("extends: [preset:{preset}]"));
        assert_ne!(policy.fs.mode.origin.layer, Layer::Default, "{preset}");
        assert!(policy.backend.choice.value.isolates());
    }
}

#[test]
fn presets_are_no_wider_than_they_say() {
    let defaults = resolve(&[], &[]).unwrap();
    for preset in [Preset::ReadOnly, Preset::Strict] {
        let policy = project(&format!("extends: [preset:{preset}]\nfs: {{ mounts: [] }}"));
        let without_mounts =
            ResolvedPolicy { fs: ringfence_policy::FsPolicy { mounts: Vec::new(), ..policy.fs.clone() }, ..policy };
        assert!(without_mounts.is_within(&defaults), "{preset}");
    }
    let python = project("extends: [preset:python]");
    assert_eq!(texts(&python.net.allow), ["pypi.org:443", "files.pythonhosted.org:443"]);
}

#[test]
fn later_layers_replace_scalars_whatever_the_order_of_the_inputs() {
    let layers = [
        (Layer::Environment, "proc: { memory: 3GiB }"),
        (Layer::Project, "proc: { memory: 4GiB, cpus: 3 }"),
        (Layer::User, "proc: { memory: 5GiB, cpus: 4, processes: 7 }"),
    ];
    let policy = resolved(&layers);
    assert_eq!(policy.proc.memory.value.to_string(), "3GiB");
    assert_eq!(policy.proc.cpus.origin.to_string(), "project sandbox.policy.yaml:2");
    assert_eq!(policy.proc.processes.origin.layer, Layer::User);
}

#[test]
fn lists_grow_keep_their_first_origin_and_lose_repeats() {
    let policy = resolved(&[
        (Layer::User, "net: { mode: allowlist, allow: [a.test, b.test] }"),
        (Layer::Project, "net: { allow: [b.test, c.test] }\nproc: { env: { pass: [LANG, X] } }"),
    ]);
    assert_eq!(texts(&policy.net.allow), ["a.test", "b.test", "c.test"]);
    assert_eq!(policy.net.allow[1].origin.layer, Layer::User);
    assert_eq!(texts(&policy.proc.env.pass), ["LANG", "LC_*", "TERM", "TZ", "X"]);
}

#[test]
fn what_is_protected_and_denied_by_default_stays_so() {
    let defaults = resolve(&[], &[]).unwrap();
    let policy = project("fs: { protect: [], deny: [] }");
    assert_eq!(texts(&policy.fs.protect), texts(&defaults.fs.protect));
    assert_eq!(texts(&policy.fs.deny), texts(&defaults.fs.deny));
    let more = project("fs: { protect: [default, Makefile] }");
    assert_eq!(more.fs.protect.len(), defaults.fs.protect.len() + 1);
}

#[test]
fn a_mount_of_a_later_layer_takes_the_place_of_an_earlier_one() {
    let policy =
        project("extends: [preset:python]\nfs: { mounts: [{ tmpfs: /tmp, size: 1MiB }, { host: ./d, at: /d }] }");
    assert_eq!(policy.fs.mounts.len(), 2);
    assert_eq!(policy.fs.mounts[0].origin.layer, Layer::Project);
}

#[test]
fn the_default_time_limit_is_clamped_to_the_ceiling_of_another_layer() {
    let policy = project("proc: { max_timeout: 10s }");
    assert_eq!(policy.proc.timeout.value.to_string(), "10s");
    let raised = project("proc: { timeout: 900s }");
    assert_eq!(raised.proc.timeout.value.to_string(), "600s");
}

#[test]
fn an_empty_allowlist_stays_empty() {
    let policy = project("net: { mode: allowlist }");
    assert!(policy.net.allow.is_empty());
}

fn with_operator(project: &str, operator: &str) -> ResolvedPolicy {
    resolved(&[(Layer::Operator, operator), (Layer::Project, project)])
}

#[test]
fn nobody_widens_what_the_operator_states() {
    let operator = "proc: { memory: 512MiB, max_timeout: 30s, env: { pass: [LANG, LC_ALL] } }\nfs: { workspace: { mode: review }, mounts: [{ host: /deps, at: /deps }] }\nnet: { mode: allowlist, allow: [\"*.corp.test\"], deny: [bad.corp.test], localhost: [] }\ntools: { allow: [a] }";
    let project = "proc: { memory: 8GiB, timeout: 500s }\nfs: { workspace: { mode: direct }, mounts: [{ host: /deps, at: /deps, mode: read-write }, { host: /other, at: /other }] }\nnet: { mode: open, localhost: [5432] }\ntools: { allow: [a, b] }";
    let policy = with_operator(project, operator);
    assert_eq!(policy.proc.memory.value.to_string(), "512MiB");
    assert_eq!(policy.proc.memory.origin.layer, Layer::Operator);
    assert_eq!(policy.proc.timeout.value.to_string(), "30s");
    assert_eq!(policy.fs.mode.value.to_string(), "review");
    assert_eq!(policy.fs.mounts.len(), 1);
    assert!(ringfence_policy::show(&policy).contains("{ host: /deps, at: /deps, mode: read-only }"));
    assert_eq!(policy.net.mode.value.to_string(), "allowlist");
    assert_eq!(texts(&policy.net.allow), ["*.corp.test"]);
    assert_eq!(texts(&policy.net.deny), ["bad.corp.test"]);
    assert!(policy.net.localhost.is_empty());
    assert_eq!(texts(&policy.proc.env.pass), ["LANG", "LC_ALL"]);
    assert_eq!(texts(&policy.tools.allow), ["a"]);
}

#[test]
fn what_the_operator_does_not_state_is_free_and_what_is_narrower_stays() {
    let policy = with_operator("proc: { memory: 256MiB, cpus: 8 }", "proc: { memory: 512MiB }");
    assert_eq!(policy.proc.memory.value.to_string(), "256MiB");
    assert_eq!(policy.proc.memory.origin.layer, Layer::Project);
    assert_eq!(policy.proc.cpus.value.to_string(), "8");
}

#[test]
fn the_operators_hosts_meet_the_projects() {
    let allow = |project: &str, operator: &str| {
        let policy = with_operator(
            &format!("net: {{ mode: allowlist, allow: {project} }}"),
            &format!("net: {{ allow: {operator} }}"),
        );
        texts(&policy.net.allow)
    };
    assert_eq!(allow("[a.corp.test, b.test]", "[\"*.corp.test\"]"), ["a.corp.test"]);
    assert_eq!(allow("[\"*.corp.test\"]", "[a.corp.test:443]"), ["a.corp.test:443"]);
    assert_eq!(allow("[a.test]", "[]"), Vec::<String>::new());
    assert_eq!(allow("[{ host: a.test, methods: [GET, POST] }]", "[{ host: a.test, methods: [GET] }]"), ["a.test GET"]);
    assert_eq!(
        allow("[{ host: a.test, methods: [POST] }]", "[{ host: a.test, methods: [GET] }]"),
        Vec::<String>::new()
    );
    let open = with_operator("net: { mode: open }", "net: { allow: [] }");
    assert_eq!((open.net.mode.value.to_string(), open.net.allow.len()), ("allowlist".into(), 0));
}

#[test]
fn the_operators_wall_replaces_weaker_and_other_ones() {
    let choice = |project: &str, operator: &str| {
        let policy = with_operator(&format!("backend: {project}"), &format!("backend: {operator}"));
        (policy.backend.choice.value.to_string(), texts(&policy.backend.fallback))
    };
    let none = Vec::<String>::new();
    assert_eq!(choice("none", "auto"), ("auto".into(), none.clone()));
    assert_eq!(choice("{ use: docker, fallback: [spawn, podman] }", "auto"), ("docker".into(), vec!["podman".into()]));
    assert_eq!(choice("{ use: native, fallback: [docker] }", "microvm"), ("microvm".into(), none.clone()));
    assert_eq!(choice("native", "spawn"), ("native".into(), none.clone()));
    assert_eq!(
        choice("{ use: native, fallback: [spawn, none] }", "{ fallback: [spawn] }"),
        ("native".into(), vec!["spawn".into()])
    );
    assert_eq!(choice("none", "spawn"), ("spawn".into(), none));
}

#[test]
fn an_operator_may_take_a_preset_as_floor() {
    let policy = with_operator("proc: { memory: 8GiB }\nnet: { mode: open }", "extends: [preset:strict]");
    assert_eq!(policy.proc.memory.value.to_string(), "512MiB");
    assert_eq!(policy.proc.memory.origin.to_string(), "operator sandbox.policy.yaml:2");
    assert_eq!(policy.net.mode.value.to_string(), "none");
}

fn granting(project: &str, grant: &str) -> Result<ResolvedPolicy, Vec<ringfence_policy::Diagnostic>> {
    let grant = Grant::parse("grant.yaml", &format!("version: 1\nby: ana\ngrant: {grant}")).unwrap();
    resolve(&[layer(Layer::Project, project)], &[grant])
}

#[test]
fn a_grant_widens_only_what_is_grantable() {
    let grantable = "overrides: { grantable: [proc.memory, proc.timeout, net.mode, net.allow] }";
    let policy =
        granting(grantable, "{ proc: { memory: 8GiB, timeout: 1h }, net: { mode: allowlist, allow: [a.test] } }")
            .unwrap();
    assert_eq!(policy.proc.memory.value.to_string(), "8GiB");
    assert_eq!(policy.proc.memory.origin.to_string(), "grant grant.yaml:1");
    assert_eq!(
        (policy.proc.timeout.value, policy.proc.max_timeout.value),
        ("1h".parse().unwrap(), "1h".parse().unwrap())
    );
    assert_eq!(texts(&policy.net.allow), ["a.test"]);
    let problems = granting(grantable, "{ proc: { memory: 8GiB, cpus: 9 } }").unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "grant.yaml:1:1: the grant by `ana` widens `proc.cpus`, which no layer made grantable"
    );
    assert!(granting("", "{ backend: none }").is_err());
}

#[test]
fn a_grant_does_not_narrow_and_does_not_pass_the_operator() {
    let smaller = granting("overrides: { grantable: [proc.memory] }", "{ proc: { memory: 1MiB } }").unwrap();
    assert_eq!(smaller.proc.memory.value.to_string(), "2GiB");
    let grant = Grant::new(Overrides::parse_json("{\"proc\": {\"memory\": \"8GiB\"}}").unwrap(), "ana");
    let inputs = [
        layer(Layer::Project, "overrides: { grantable: [proc.memory] }"),
        layer(Layer::Operator, "proc: { memory: 3GiB }"),
    ];
    assert_eq!(resolve(&inputs, &[grant]).unwrap().proc.memory.value.to_string(), "3GiB");
}

#[test]
fn only_layers_from_outside_are_taken() {
    assert!(resolve(&[layer(Layer::Grant, ""), layer(Layer::Call, "")], &[]).is_err());
}

fn asked(policy: &ResolvedPolicy, json: &str) -> Result<ResolvedPolicy, Vec<String>> {
    let overrides = Overrides::parse_json(json).unwrap_or_else(|problems| panic!("{json}: {problems:?}"));
    narrow(policy, &overrides).map_err(|widenings| widenings.iter().map(ToString::to_string).collect())
}

#[test]
fn a_call_narrows() {
    let policy = project("net: { mode: open, localhost: [1, 2] }\nproc: { env: { pass: [A_*] } }");
    let narrowed = asked(
        &policy,
        r#"{"fs": {"mode": "read-only", "deny": ["x"], "size": "1MiB"}, "net": {"allow": ["a.test"], "localhost": [2]},
            "proc": {"memory": "1MiB", "timeout": "600s", "env": {"pass": ["A_B"], "set": {"X": "1"}}}}"#,
    )
    .unwrap();
    assert!(narrowed.is_within(&policy) && !policy.is_within(&narrowed));
    assert_eq!(narrowed.net.mode.value.to_string(), "allowlist");
    assert_eq!(narrowed.proc.timeout.value.to_string(), "600s", "above the default, within the ceiling");
    assert_eq!(narrowed.proc.memory.origin.layer, Layer::Call);
}

#[test]
fn whoever_wants_no_network_gets_no_ports_of_the_host_either() {
    let policy = project("net: { mode: allowlist, localhost: [1, 2] }");
    assert!(asked(&policy, r#"{"net": {"mode": "none"}}"#).unwrap().net.localhost.is_empty());
    assert_eq!(asked(&policy, r#"{"net": {"mode": "allowlist"}}"#).unwrap().net.localhost.len(), 2);
}

#[test]
fn every_wish_that_widens_is_refused_with_what_is_allowed_and_who_said_so() {
    let policy =
        project("proc: { memory: 1GiB, env: { set: { CI: \"1\" } } }\nnet: { mode: allowlist, allow: [a.test] }");
    let refused = asked(
        &policy,
        r#"{"backend": "none", "cache": ["pip"], "fs": {"mode": "direct", "size": "1TiB"},
            "net": {"mode": "open", "allow": ["*.a.test", "a.test:22"], "localhost": [1], "unix": ["/x"]},
            "proc": {"cpus": 64, "memory": "2GiB", "processes": 9999, "timeout": "601s", "output": "1GiB",
                     "env": {"pass": ["HOME"], "set": {"CI": "0", "LD_PRELOAD": "/x.so"}}}}"#,
    )
    .unwrap_err();
    crate::assert_page!(refused.join("\n"));
    assert!(asked(&project(""), r#"{"net": {"allow": ["a.test"]}}"#).is_err(), "no network at all");
}

#[test]
fn a_call_cannot_reach_the_fallback_or_exchange_a_named_wall() {
    let fallback = project("backend: { use: auto, fallback: [spawn] }");
    assert!(asked(&fallback, r#"{"backend": "spawn"}"#).is_err());
    assert!(asked(&fallback, r#"{"backend": "docker"}"#).is_ok());
    let named = project("backend: microvm");
    assert!(asked(&named, r#"{"backend": "native"}"#).is_err());
    assert!(asked(&named, r#"{"backend": "auto"}"#).is_err());
    let weak = project("backend: spawn");
    let stronger = asked(&weak, r#"{"backend": "native"}"#).unwrap();
    assert_eq!(stronger.backend.choice.value, BackendChoice::Kind(BackendKind::Native));
    assert!(asked(&weak, r#"{"backend": "none"}"#).is_err());
}

#[test]
fn the_tier_stands_between_spawn_and_a_wall_and_a_call_reaches_it_only_from_below() {
    let asks = |policy: &str, backend: &str| asked(&project(policy), &format!(r#"{{"backend": "{backend}"}}"#)).is_ok();
    assert!(asks("backend: spawn", "landlock") && asks("backend: none", "landlock"));
    assert!(asks("backend: landlock", "native") && asks("backend: landlock", "auto"));
    assert!(!asks("backend: auto", "landlock") && !asks("backend: native", "landlock"));
    assert!(!asks("backend: { use: auto, fallback: [landlock] }", "landlock"));
    assert!(!asks("backend: landlock", "spawn") && !asks("backend: landlock", "none"));
    let inputs = [
        layer(Layer::Project, "backend: { use: landlock, fallback: [landlock] }"),
        layer(Layer::Operator, "backend: auto"),
    ];
    let held = resolve(&inputs, &[]).unwrap();
    assert_eq!((held.backend.choice.value, held.backend.fallback.len()), (BackendChoice::Auto, 0));
}

#[test]
fn fetching_an_image_is_off_until_a_layer_allows_it_and_never_past_the_operator() {
    let pull = |policy: &ResolvedPolicy| policy.image_pull.value.to_string();
    assert_eq!(pull(&project("image: a:1")), "never");
    let allowed = project("image: { name: \"a:1\", pull: allow }");
    assert_eq!((pull(&allowed), allowed.image_pull.origin.layer.clone()), ("allow".into(), Layer::Project));
    assert!(project("image: a:1").is_within(&allowed) && !allowed.is_within(&project("image: a:1")));
    let held = with_operator("image: { name: \"a:1\", pull: allow }", "image: { pull: never }");
    assert_eq!((pull(&held), held.image_pull.origin.layer.clone()), ("never".into(), Layer::Operator));
    assert_eq!(held.image.as_ref().unwrap().value.as_str(), "a:1", "who forbids fetching names no image");
    assert_eq!(pull(&with_operator("image: a:1", "image: { pull: allow }")), "never");
    assert!(Overrides::parse_json(r#"{"image": {"pull": "allow"}}"#).is_err(), "no call sets it");
}

#[test]
fn an_image_that_is_built_replaces_one_that_is_named_and_keeps_what_was_said_about_fetching() {
    let policy = resolved(&[
        (Layer::User, "image: { name: \"a:1\", pull: allow }"),
        (Layer::Project, "image: { build: ./docker }"),
    ]);
    assert_eq!(policy.image.as_ref().unwrap().value.to_string(), "build ./docker");
    assert_eq!(policy.image_pull.origin.layer, Layer::User);
    assert_eq!(policy.canonical_json()["image"]["build"], "./docker");
}

#[test]
fn a_runtime_that_the_operator_names_is_the_one_and_no_call_sets_another() {
    let runtime = |policy: &ResolvedPolicy| policy.backend.runtime.as_ref().map(|runtime| runtime.value.to_string());
    assert_eq!(runtime(&project("backend: docker")), None);
    let named = project("backend: { use: docker, runtime: runc }");
    assert_eq!(runtime(&named), Some("runc".into()));
    let later = resolved(&[(Layer::User, "backend: { runtime: runsc }"), (Layer::Project, "backend: docker")]);
    assert_eq!(runtime(&later), Some("runsc".into()), "naming a wall does not take its runtime away");
    let held = with_operator("backend: { use: docker, runtime: runc }", "backend: { runtime: runsc }");
    assert_eq!(runtime(&held), Some("runsc".into()));
    assert!(!held.is_within(&named) && !named.is_within(&held), "two runtimes have no order");
    assert!(named.is_within(&project("backend: docker")) && !project("backend: docker").is_within(&named));
    assert!(Overrides::parse_json(r#"{"backend": {"runtime": "runc"}}"#).is_err());
}

#[test]
fn caches_grow_with_the_layers_and_a_call_or_an_operator_only_takes_away() {
    assert!(project("").cache.is_empty());
    let policy = resolved(&[(Layer::User, "cache: [pip]"), (Layer::Project, "cache: [npm, pip]")]);
    assert_eq!(texts(&policy.cache), ["pip", "npm"]);
    assert_eq!(texts(&with_operator("cache: [pip, npm]", "cache: [pip, cargo]").cache), ["pip"]);
    let fewer = asked(&policy, r#"{"cache": ["npm"]}"#).unwrap();
    assert_eq!(texts(&fewer.cache), ["npm"]);
    assert!(fewer.is_within(&policy) && !policy.is_within(&fewer));
    assert!(asked(&policy, r#"{"cache": []}"#).unwrap().cache.is_empty());
    assert!(asked(&policy, r#"{"cache": ["cargo"]}"#).is_err());
    let granted = granting("overrides: { grantable: [cache] }", "{ cache: [pip] }").unwrap();
    assert_eq!(texts(&granted.cache), ["pip"]);
    assert!(granting("", "{ cache: [pip] }").is_err());
}

#[test]
fn limits_that_must_be_enforced_stay_so_whoever_asks() {
    let limits = |policy: &ResolvedPolicy| policy.proc.limits.value;
    assert_eq!(limits(&project("")), Firmness::Watched);
    assert_eq!(limits(&project("extends: [preset:strict]")), Firmness::Enforced);
    assert_eq!(limits(&project("extends: [preset:strict]\nproc: { limits: watched }")), Firmness::Watched);
    assert_eq!(limits(&asked(&project(""), r#"{"proc": {"limits": "enforced"}}"#).unwrap()), Firmness::Enforced);
    assert!(asked(&project("extends: [preset:strict]"), r#"{"proc": {"limits": "watched"}}"#).is_err());
    let floor = |operator: &str, below: &str| {
        let inputs = [layer(Layer::Project, below), layer(Layer::Operator, operator)];
        limits(&resolve(&inputs, &[]).unwrap())
    };
    assert_eq!(floor("proc: { limits: enforced }", "proc: { limits: watched }"), Firmness::Enforced);
    assert_eq!(floor("proc: { limits: watched }", "proc: { limits: enforced }"), Firmness::Enforced);
    let granted =
        granting("extends: [preset:strict]\noverrides: { grantable: [proc.limits] }", "{ proc: { limits: watched } }");
    assert_eq!(limits(&granted.unwrap()), Firmness::Watched);
    assert!(granting("extends: [preset:strict]", "{ proc: { limits: watched } }").is_err());
}

#[test]
fn variables_that_load_code_cannot_be_set_by_a_call() {
    let policy = project("");
    for name in [
        "LD_PRELOAD",
        "PATH",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "BASH_ENV",
        "ENV",
        "GIT_SSH_COMMAND",
        "IFS",
        "https_proxy",
        "RINGFENCE_BACKEND",
    ] {
        assert!(
            asked(&policy, &format!("{{\"proc\": {{\"env\": {{\"set\": {{\"{name}\": \"x\"}}}}}}}}")).is_err(),
            "{name}"
        );
    }
    assert!(asked(&policy, r#"{"proc": {"env": {"set": {"MY_FLAG": "x"}}}}"#).is_ok());
}

#[test]
fn every_field_that_can_be_granted_has_its_name() {
    let names: Vec<String> = Field::all().map(|field| field.to_string()).collect();
    assert_eq!(names.len(), 20);
    for field in Field::all() {
        assert_eq!(serde_json::to_value(field).unwrap(), field.to_string());
        assert_eq!(field.to_string().parse::<Field>().unwrap(), field);
    }
}
