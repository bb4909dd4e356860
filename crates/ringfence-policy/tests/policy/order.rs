//! The order on policies, for arbitrary ones from a domain small enough that many are comparable.

use crate::demands::demands;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use ringfence_policy::{Layer, LayerInput, Overrides, PolicyFile, ResolvedPolicy, Sourced, narrow, parse, resolve};

/// Each key of a file, present or not, with one of a few values.
fn arbitrary_file() -> impl Strategy<Value = PolicyFile> {
    let line = |lines: &'static [&'static str]| proptest::option::of(select(lines));
    let list = |items: &'static [&'static str]| proptest::option::of(subsequence(items, 0..=items.len()));
    let scalars = (
        line(&[
            "backend: auto",
            "backend: docker",
            "backend: native",
            "backend: landlock",
            "backend: spawn",
            "backend: none",
            "backend: { use: auto, fallback: [landlock, spawn] }",
            "backend: { fallback: [native, none] }",
            "backend: { runtime: runsc }",
            "backend: { use: docker, runtime: kata }",
        ]),
        line(&[
            "image: a:1",
            "image: { pull: never }",
            "image: { pull: allow }",
            "image: { name: \"a:1\", pull: allow }",
            "image: { build: ./docker }",
        ]),
        line(&["mode: none", "mode: allowlist", "mode: open"]),
        line(&[
            "workspace: { mode: review }",
            "workspace: { mode: direct }",
            "workspace: { mode: read-only }",
            "workspace: { mode: ephemeral }",
        ]),
        line(&["size: 1MiB", "size: 1GiB", "size: 9GiB"]),
        line(&["memory: 1MiB", "memory: 1GiB", "memory: 9GiB"]),
        line(&["max_timeout: 1s", "max_timeout: 60s", "max_timeout: 1h"]),
        line(&["cpus: 0.5", "cpus: 4"]),
        line(&["processes: 2", "processes: 999"]),
        line(&["grace: 1s", "grace: 5s"]),
        line(&["output: 1KiB", "output: 1GiB"]),
        line(&["limits: watched", "limits: enforced"]),
    );
    let way = (
        line(&["budget: { requests: 9 }", "budget: { bytes: 1KiB, rate: 5/s }", "budget: { rate: 100/min }"]),
        line(&["unknown: deny", "unknown: ask"]),
        line(&["upstream: \"http://p.test:1\"", "upstream: \"http://q.test:1\""]),
        line(&[
            "credentials: { k: { from: { env: K }, hosts: [\"*.c.test\", c.test] } }",
            "credentials: { k: { from: { file: /k }, hosts: [c.test], header: X-Key, env: K } }",
            "credentials: { k: { from: { file: /k }, hosts: [c.test], sign: hmac-sha256 } }",
        ]),
    );
    let lists = (
        list(&["pip", "npm", "cargo"]),
        list(&[
            "a.test",
            "\"*.a.test\"",
            "b.a.test:443",
            "{ host: a.test, methods: [GET] }",
            "c.test",
            "{ host: c.test, paths: [/x], credential: k }",
            "{ host: b.a.test, methods: [GET], paths: [\"/x/**\"], inspect: true }",
            "{ host: b.a.test, paths: [\"/x/**\", \"/y/**\"], inspect: true }",
            "{ host: b.a.test, paths: [\"/x/**\", \"/y/z/**\"], strip: [X-Key] }",
            "{ host: b.a.test, budget: { connections: 3 } }",
            "{ host: b.a.test, strip: [Cookie] }",
            "{ host: \"*.a.test\", methods: [GET], strip: [Cookie, X-Id] }",
            "{ host: a.test, inspect: true, budget: { requests: 5, rate: 5/s } }",
            "{ host: \"*.a.test\", inspect: true, budget: { bytes: 1MiB, rate: 100/min } }",
            "{ host: a.test, ports: [22, 443], protocol: tcp, acknowledge: true }",
        ]),
        list(&["a.test", "\"*.a.test\"", "c.test"]),
        list(&["1", "2", "3"]),
        list(&["a/**", "b"]),
        list(&["{ host: ./a, at: /a }", "{ host: ./b, at: /b, mode: read-write }", "{ tmpfs: /t, size: 1MiB }"]),
        list(&["LANG", "LC_*", "LC_ALL", "A_*", "A_B"]),
        list(&["A: x", "B: y"]),
        list(&["{ deny: [a] }", "{ ask: [a, b] }", "{ deny: [a, b] }"]),
        list(&["t1", "t2"]),
        list(&["backend", "proc.memory"]),
    );
    (scalars, lists, way).prop_map(|(scalars, lists, (budget, unknown, upstream, credentials))| {
        let (backend, image, mode, workspace, size, memory, max, cpus, processes, grace, output, limits) = scalars;
        let (cache, allow, net_deny, localhost, deny, mounts, pass, set, commands, tools, grantable) = lists;
        let join = |key: &str, items: Option<Vec<&str>>| items.map(|items| format!("{key}: [{}]", items.join(", ")));
        let section = |key: &str, lines: Vec<Option<String>>| {
            let lines: Vec<String> = lines.into_iter().flatten().map(|line| format!("  {line}\n")).collect();
            if lines.is_empty() { String::new() } else { format!("{key}:\n{}", lines.concat()) }
        };
        let own = |line: Option<&str>| line.map(str::to_owned);
        let env = match (join("pass", pass), set.map(|items| format!("set: {{ {} }}", items.join(", ")))) {
            (None, None) => None,
            (pass, set) => {
                Some(format!("env: {{ {} }}", [pass, set].into_iter().flatten().collect::<Vec<_>>().join(", ")))
            }
        };
        let text = [
            "version: 1\n".to_owned(),
            own(backend).map(|line| line + "\n").unwrap_or_default(),
            own(image).map(|line| line + "\n").unwrap_or_default(),
            join("cache", cache).map(|line| line + "\n").unwrap_or_default(),
            section("fs", vec![own(workspace), own(size), join("deny", deny), join("mounts", mounts)]),
            section(
                "net",
                vec![
                    own(mode),
                    join("allow", allow),
                    join("deny", net_deny),
                    join("localhost", localhost),
                    own(budget),
                    own(unknown),
                    own(upstream),
                ],
            ),
            own(credentials).map(|line| line + "\n").unwrap_or_default(),
            section(
                "proc",
                vec![own(memory), own(max), own(cpus), own(processes), own(grace), own(output), own(limits), env],
            ),
            join("commands", commands).map(|line| line + "\n").unwrap_or_default(),
            section("tools", vec![join("allow", tools)]),
            section("overrides", vec![join("grantable", grantable)]),
        ]
        .concat();
        parse("p.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
    })
}

/// Without what a project's file may not say.
fn of_a_project(mut file: PolicyFile) -> PolicyFile {
    file.credentials = None;
    file.net.upstream = None;
    file
}

fn input(layer: Layer, file: PolicyFile) -> LayerInput {
    let file = if layer == Layer::Project { of_a_project(file) } else { file };
    LayerInput { layer, file }
}

fn arbitrary_policy() -> impl Strategy<Value = ResolvedPolicy> {
    proptest::collection::vec((select(vec![Layer::User, Layer::Project, Layer::Operator]), arbitrary_file()), 0..4)
        .prop_map(|layers| {
            let inputs: Vec<LayerInput> = layers.into_iter().map(|(layer, file)| input(layer, file)).collect();
            resolve(&inputs, &[]).unwrap()
        })
}

fn arbitrary_overrides() -> impl Strategy<Value = Overrides> {
    let pick = |values: &'static [&'static str]| proptest::option::of(select(values));
    let list = |items: &'static [&'static str]| proptest::option::of(subsequence(items, 0..=items.len()));
    (
        list(&["\"pip\"", "\"npm\""]),
        pick(&["auto", "docker", "native", "landlock", "spawn", "none"]),
        pick(&["review", "direct", "read-only", "ephemeral"]),
        pick(&["none", "allowlist", "open"]),
        list(&[
            "\"a.test\"",
            "\"b.a.test\"",
            "\"*.a.test:443\"",
            "\"d.test\"",
            "\"c.test\"",
            "{\"host\": \"c.test\", \"methods\": [\"POST\"]}",
            "{\"host\": \"b.a.test\", \"paths\": [\"/x\"]}",
            "{\"host\": \"b.a.test\", \"paths\": [\"/x/**\", \"/y/**\"], \"inspect\": true}",
            "{\"host\": \"a.test\", \"inspect\": true, \"budget\": {\"requests\": 4, \"rate\": \"5/s\"}}",
            "{\"host\": \"c.test\", \"paths\": [\"/x\"], \"credential\": \"k\"}",
        ]),
        list(&["1", "2", "9"]),
        pick(&["1MiB", "1GiB", "99GiB"]),
        pick(&["1s", "60s", "2h"]),
        pick(&["watched", "enforced"]),
        list(&["\"LANG\"", "\"LC_X\"", "\"A_*\"", "\"HOME\""]),
        list(&["\"A\": \"x\"", "\"A2\": \"z\"", "\"LD_X\": \"1\""]),
        (
            list(&["\"q\"", "\"b\""]),
            pick(&["{\"requests\": 5}", "{\"rate\": \"1/s\", \"bytes\": 9}", "{}"]),
            pick(&["deny", "ask"]),
        ),
    )
        .prop_map(|(cache, backend, mode, net, allow, localhost, memory, timeout, limits, pass, set, rest)| {
            let (deny, budget, unknown) = rest;
            let word = |key: &str, value: Option<&str>| value.map(|value| format!("\"{key}\": \"{value}\""));
            let array =
                |key: &str, items: Option<Vec<&str>>| items.map(|items| format!("\"{key}\": [{}]", items.join(", ")));
            let object = |key: &str, parts: Vec<Option<String>>| {
                Some(format!("\"{key}\": {{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", ")))
            };
            let set = set.map(|items| format!("\"set\": {{{}}}", items.join(", ")));
            let parts = [
                word("backend", backend),
                array("cache", cache),
                object("fs", vec![word("mode", mode), word("size", memory), array("deny", deny)]),
                object(
                    "net",
                    vec![
                        word("mode", net),
                        array("allow", allow),
                        array("localhost", localhost),
                        budget.map(|budget| format!("\"budget\": {budget}")),
                        word("unknown", unknown),
                    ],
                ),
                object(
                    "proc",
                    vec![
                        word("memory", memory),
                        word("timeout", timeout),
                        word("limits", limits),
                        object("env", vec![array("pass", pass), set]),
                    ],
                ),
            ];
            let text = format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
            Overrides::parse_json(&text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
        })
}

/// The narrower and narrower policies that a chain of wishes makes, skipping refused ones.
fn chain(policy: ResolvedPolicy, wishes: &[Overrides]) -> Vec<ResolvedPolicy> {
    let mut chain = vec![policy];
    for wish in wishes {
        if let Some(next) = chain.last().and_then(|last| narrow(last, wish).ok()) {
            chain.push(next);
        }
    }
    chain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn overrides_never_widen(policy in arbitrary_policy(), overrides in arbitrary_overrides()) {
        if let Ok(narrowed) = narrow(&policy, &overrides) {
            prop_assert!(narrowed.is_within(&policy), "{overrides:?}\n{}\n{}", ringfence_policy::show(&policy), ringfence_policy::show(&narrowed));
            check_demands(&narrowed, &policy)?;
        }
        // Few wishes are granted as a whole; each rule by itself is, more often.
        for rule in overrides.net.allow.iter().flatten() {
            let mut one = Overrides::default();
            one.net.allow = Some(vec![rule.clone()]);
            if let Ok(narrowed) = narrow(&policy, &one) {
                prop_assert!(narrowed.is_within(&policy), "{rule}\n{}", ringfence_policy::show(&policy));
                check_demands(&narrowed, &policy)?;
            }
        }
    }

    #[test]
    fn overrides_survive_json(overrides in arbitrary_overrides()) {
        let text = serde_json::to_string(&overrides).unwrap();
        prop_assert_eq!(&Overrides::parse_json(&text).unwrap(), &overrides);
        prop_assert_eq!(&serde_json::from_str::<Overrides>(&text).unwrap(), &overrides);
    }

    #[test]
    fn asking_for_nothing_changes_nothing(policy in arbitrary_policy()) {
        prop_assert_eq!(&narrow(&policy, &Overrides::default()).unwrap(), &policy);
        prop_assert!(policy.is_within(&policy));
    }

    #[test]
    fn within_is_transitive(
        a in arbitrary_policy(), b in arbitrary_policy(), c in arbitrary_policy(),
        wishes in proptest::collection::vec(arbitrary_overrides(), 4)
    ) {
        let mut all = chain(a, &wishes);
        all.extend([b, c]);
        for x in &all {
            for y in all.iter().filter(|y| x.is_within(y)) {
                for z in all.iter().filter(|z| y.is_within(z)) {
                    prop_assert!(x.is_within(z));
                }
            }
        }
    }

    #[test]
    fn the_operators_floor_only_narrows(user in arbitrary_file(), project in arbitrary_file(), operator in arbitrary_file()) {
        let lower = [
            input(Layer::User, user),
            input(Layer::Project, project),
        ];
        let mut all = lower.to_vec();
        all.push(LayerInput { layer: Layer::Operator, file: operator.clone() });
        let without = resolve(&lower, &[]).unwrap();
        let with = resolve(&all, &[]).unwrap();
        // Fixed values of the operator replace; they are no matter of more or less.
        let replaces = operator.proc.set.iter().flatten().any(|(name, set)| {
            without.proc.env.set.get(name).is_some_and(|known| known.value != set.value)
        });
        let other_runtime = operator.runtime.is_some() && without.backend.runtime.is_some();
        if !replaces && !other_runtime {
            prop_assert!(with.is_within(&without), "{}\n{}", ringfence_policy::show(&without), ringfence_policy::show(&with));
        }
        check_demands(&with, &without)?;
        let again = { all.push(LayerInput { layer: Layer::Operator, file: operator.clone() }); resolve(&all, &[]).unwrap() };
        // A floor held twice is the floor held once; rules and origins aside.
        prop_assert!(again.is_within(&with) && with.is_within(&again));
        check_floor(&with, &operator)?;
        let says_open = operator.net.mode.as_ref().is_some_and(|mode| mode.value == ringfence_policy::NetMode::Open);
        if operator.net.allow.is_some() && (!says_open || with.net.mode.value == ringfence_policy::NetMode::Allowlist) {
            let origin = with.net.mode.origin.clone();
            let stated = |rule: &ringfence_policy::Written<ringfence_policy::NetRule>| Sourced { value: rule.value.clone(), origin: origin.clone() };
            let mut alone = without;
            alone.net.allow = operator.net.allow.iter().flatten().map(stated).collect();
            alone.net.mode.value = ringfence_policy::NetMode::Open;
            alone.net.deny.clear();
            check_demands(&with, &alone)?;
        }
    }

    #[test]
    fn grants_of_nothing_and_any_layers_resolve(files in proptest::collection::vec(arbitrary_file(), 0..4)) {
        let inputs: Vec<LayerInput> = files.into_iter().map(|file| input(Layer::Project, file)).collect();
        let policy = resolve(&inputs, &[]).unwrap();
        prop_assert!(policy.proc.timeout.value <= policy.proc.max_timeout.value);
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same_policy(policy in arbitrary_policy()) {
        let text = ringfence_policy::show(&policy);
        let file = parse("shown.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
        // Lists grow from layer to layer; as a floor over itself the page says exactly what it shows.
        let inputs = [
            LayerInput { layer: Layer::User, file: file.clone() },
            LayerInput { layer: Layer::Operator, file: PolicyFile { commands: None, ..file } },
        ];
        let again = resolve(&inputs, &[]).unwrap();
        let mut expected = policy.canonical_json();
        // Rules say the same twice when the operator repeats them.
        let (mut commands, shown) = (expected["commands"].take(), again.canonical_json());
        if let Some(rules) = commands.as_array_mut() {
            let all = rules.clone();
            let mut index = 0;
            rules.retain(|rule| { index += 1; !all[..index - 1].contains(rule) });
        }
        expected["commands"] = commands;
        // Of an operator's list for which nobody asked, the page shows the list.
        if let Some(own) = expected["tools"].get("own").cloned() {
            expected["tools"]["allow"] = own;
        }
        prop_assert_eq!(expected, shown, "{}", text);
    }

    #[test]
    fn comparing_tells_the_direction(a in arbitrary_policy(), b in arbitrary_policy()) {
        use ringfence_policy::{Direction, compare};
        prop_assert!(compare(&a, &a).is_empty());
        let changes = compare(&a, &b);
        prop_assert_eq!(changes.is_empty(), same_values(&a, &b), "{:?}", changes);
        prop_assert_eq!(changes.len(), compare(&b, &a).len());
        let narrower = narrow(&a, &Overrides::parse_json("{\"proc\": {\"memory\": \"1MiB\"}, \"fs\": {\"deny\": [\"zz\"]}}").unwrap());
        for change in compare(&a, &narrower.unwrap()) {
            prop_assert_eq!(change.direction, Direction::Narrower);
        }
    }
}

/// Whatever `policy` reaches is reached by `wider` too, and held to no less than there.
fn check_demands(policy: &ResolvedPolicy, wider: &ResolvedPolicy) -> Result<(), TestCaseError> {
    for host in ["a.test", "b.a.test", "d.a.test", "c.test", "d.test"] {
        for (port, method, path) in [
            (443, "GET", "/x"),
            (443, "POST", "/y"),
            (80, "POST", "/x"),
            (22, "GET", "/"),
            (443, "GET", "/x/y"),
            (443, "GET", "/y/z/1"),
        ] {
            let of = |policy| demands(policy, host, port, method, path);
            let (now, then) = (of(policy), of(wider));
            if now.reached {
                let shown = || {
                    let lists = |policy: &ResolvedPolicy| format!("{:#?}", policy.canonical_json()["net"]["allow"]);
                    format!("{method} {host}:{port}{path}\n{}\n{}", lists(wider), lists(policy))
                };
                prop_assert!(then.reached, "{}", shown());
                prop_assert!(now.inspected || !then.inspected, "inspection: {}", shown());
                prop_assert!(now.bound || !then.bound, "credential: {}", shown());
                prop_assert!(then.budget.covers(&now.budget), "budget: {}", shown());
                prop_assert!(then.strip.is_subset(&now.strip), "headers: {}", shown());
            }
        }
    }
    Ok(())
}

/// Equal but for the examples and reasons of rules, and for repeats.
fn same_values(a: &ResolvedPolicy, b: &ResolvedPolicy) -> bool {
    let sorted = |policy: &ResolvedPolicy| {
        let mut value = policy.canonical_json();
        for path in [
            "/fs/deny",
            "/fs/mounts",
            "/fs/protect",
            "/net/allow",
            "/net/deny",
            "/net/localhost",
            "/proc/env/pass",
            "/commands",
            "/tools/allow",
            "/overrides/grantable",
            "/backend/fallback",
            "/cache",
        ] {
            if let Some(list) = value.pointer_mut(path).and_then(|list| list.as_array_mut()) {
                list.sort_by_key(ToString::to_string);
                list.dedup();
            }
        }
        let open = value["net"]["mode"] == "open";
        (value, open)
    };
    let ((mut a, a_open), (mut b, b_open)) = (sorted(a), sorted(b));
    if a_open && b_open {
        a["net"]["allow"].take();
        b["net"]["allow"].take();
    }
    a == b
}

/// What the operator states holds.
fn check_floor(policy: &ResolvedPolicy, floor: &PolicyFile) -> Result<(), TestCaseError> {
    let weak = |choice: ringfence_policy::BackendChoice| !choice.isolates();
    if let Some(backend) = &floor.backend {
        prop_assert!(weak(backend.value) || !weak(policy.backend.choice.value));
        let listed = floor.fallback.is_some();
        prop_assert!(weak(backend.value) || listed || policy.backend.fallback.iter().all(|kind| kind.value.isolates()));
    }
    let within = |stated: &Option<ringfence_policy::Written<ringfence_policy::Bytes>>, value| {
        stated.as_ref().is_none_or(|stated| value <= stated.value)
    };
    prop_assert!(within(&floor.proc.memory, policy.proc.memory.value));
    prop_assert!(within(&floor.fs.size, policy.fs.size.value));
    if let Some(max) = &floor.proc.max_timeout {
        prop_assert!(policy.proc.max_timeout.value <= max.value && policy.proc.timeout.value <= max.value);
    }
    if let Some(pull) = &floor.image_pull {
        prop_assert!(policy.image_pull.value <= pull.value);
    }
    if let Some(runtime) = &floor.runtime {
        prop_assert_eq!(policy.backend.runtime.as_ref().map(|known| &known.value), Some(&runtime.value));
    }
    if let Some(cache) = &floor.cache {
        prop_assert!(policy.cache.iter().all(|kind| cache.iter().any(|stated| stated.value == kind.value)));
    }
    if let Some(mode) = &floor.net.mode {
        prop_assert!(policy.net.mode.value <= mode.value);
    }
    if let Some(budget) = &floor.net.budget {
        prop_assert!(budget.value.covers(&policy.net.budget.value));
    }
    if let Some(unknown) = &floor.net.unknown {
        prop_assert!(policy.net.unknown.value <= unknown.value);
    }
    let open = floor.net.mode.as_ref().is_some_and(|mode| mode.value == ringfence_policy::NetMode::Open);
    if let Some(allow) = floor.net.allow.as_ref().filter(|_| !open) {
        prop_assert!(policy.net.allow.iter().all(|rule| allow.iter().any(|stated| stated.value.covers(&rule.value))));
    }
    for glob in floor.fs.deny.iter().flatten() {
        prop_assert!(policy.fs.deny.iter().any(|known| known.value == glob.value));
    }
    if let Some(tools) = &floor.tools {
        prop_assert!(policy.tools.allow.iter().all(|tool| tools.iter().any(|stated| stated.value == tool.value)));
    }
    Ok(())
}
