//! What a person reads: `show`, `lint`, `compare`, `schema`, `init`.

use ringfence_policy::{
    Layer, Origin, Place, Preset, Severity, compare, json_schema, lint, overrides_schema, parse, resolve, show, starter,
};

use crate::{DESIGN, file, layer, project, resolved};

#[test]
fn the_designs_example_is_shown_with_the_origin_of_every_line() {
    let design = parse("sandbox.policy.yaml", DESIGN).unwrap();
    let policy = resolve(&[ringfence_policy::LayerInput { layer: Layer::Project, file: design }], &[]).unwrap();
    crate::assert_page!(show(&policy));
    insta::assert_json_snapshot!(policy.canonical_json());
}

#[test]
fn hostile_texts_are_shown_as_text() {
    let policy = project(
        "commands: [{ deny: [\"a\\nversion: 2\", \"#\", \"'\", \"\\\"\"], why: \"\\e[31m\\u202e\" }]\nproc: { env: { set: { A: \"x\\n  memory: 9GiB\" } } }",
    );
    let text = show(&policy);
    let again = parse("again", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
    assert_eq!(again.commands.unwrap()[0].value, policy.commands[0].value);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
}

#[test]
fn a_file_name_cannot_write_lines_of_its_own() {
    let mut policy = project("");
    let place = Place { file: "x\nproc: { memory: 9GiB }".into(), line: 1, column: 1 };
    policy.net.mode.origin = Origin { layer: Layer::Project, place: Some(place) };
    assert_eq!(show(&policy).lines().count(), show(&project("")).lines().count());
}

#[test]
fn equal_policies_hash_equal_whoever_set_them() {
    let user = resolved(&[(Layer::User, "proc: { memory: 1GiB }")]);
    let project = resolved(&[(Layer::Project, "proc: { memory: 1024MiB }")]);
    assert_eq!(user.hash_input(), project.hash_input());
    assert_ne!(user.hash_input(), resolve(&[], &[]).unwrap().hash_input());
}

fn warnings(text: &str) -> Vec<String> {
    let file = file(text);
    let policy = resolve(&[layer(Layer::Project, text)], &[]).unwrap();
    let warnings = lint(&file, &policy);
    assert!(warnings.iter().all(|warning| warning.severity == Severity::Warning && warning.advice.is_some()));
    warnings
        .into_iter()
        .map(|warning| {
            format!("{warning} [{}]\n    hint: {}", warning.code, warning.advice.as_deref().unwrap_or_default())
        })
        .collect()
}

#[test]
fn what_is_probably_not_meant_draws_a_warning() {
    let texts = [
        "net: { mode: open }",
        "net: { mode: allowlist }",
        "net: { allow: [pypi.org] }",
        "net: { mode: allowlist, allow: [\"*.a.test\", b.a.test, c.test, c.test], deny: [c.test] }",
        "backend: none",
        "backend: landlock",
        "backend: { use: native, fallback: [docker, spawn] }",
        "fs: { workspace: { mode: direct }, mounts: [{ host: ./a, at: /a, mode: read-write }] }",
        "backend: { use: native, runtime: runsc }",
        "image: { name: \"python:3.14\", pull: allow }",
        "image: { pull: allow }",
        "fs: { deny: [a, b, a] }",
        "net: { mode: allowlist, allow: [{ host: a.test, methods: [GET] }, { host: b.test, credential: k }] }",
        "net: { mode: allowlist, allow: [{ host: a.test, budget: { requests: 5 } }] }",
        "extends: [preset:ci, preset:ci]",
        "proc: { env: { pass: [GITHUB_TOKEN], set: { API_KEY: x } } }",
        "backend: spawn\nproc: { limits: enforced }",
        "commands: [{ allow: [git] }, { deny: [git], matches: [git x] }]",
    ];
    let page: Vec<String> = texts.iter().map(|text| format!("--- {text}\n{}", warnings(text).join("\n"))).collect();
    crate::assert_page!(page.join("\n"));
    assert!(warnings("fs: { deny: [x] }").is_empty());
    assert!(
        warnings("backend: { use: docker, runtime: runsc }\nimage: { name: \"a@sha256:00\", pull: allow }").is_empty()
    );
}

#[test]
fn the_difference_of_two_policies_says_what_is_wider() {
    let a = project(
        "proc: { memory: 1GiB }\nnet: { mode: allowlist, allow: [\"*.a.test\"] }\nfs: { deny: [x] }\nbackend: docker",
    );
    let b = project(
        "proc: { memory: 2GiB, cpus: 1, user: \"7:7\", env: { set: { LD_PRELOAD: x, A: b } } }\nnet: { mode: allowlist, allow: [b.a.test, c.test] }\nbackend: { use: spawn, runtime: runsc }\nimage: { name: \"a:1\", pull: allow }\ncache: [pip]\ncommands: [{ deny: [rm] }, { allow: [ls] }]\nfs: { mounts: [{ tmpfs: /t, size: 1MiB }] }",
    );
    let page: Vec<String> = compare(&a, &b).iter().map(ToString::to_string).collect();
    crate::assert_page!(page.join("\n"));
}

#[test]
fn a_starter_parses_and_draws_no_warning() {
    for presets in [&[][..], &[Preset::Python], &Preset::ALL] {
        let text = starter(presets);
        let file = parse("sandbox.policy.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"));
        assert_eq!(file.extends.len(), presets.len());
        let policy =
            resolve(&[ringfence_policy::LayerInput { layer: Layer::Project, file: file.clone() }], &[]).unwrap();
        assert_eq!(lint(&file, &policy), []);
        // What is commented out is right as well: a person will remove the mark and expect it to work.
        let uncommented: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("# "))
            .map(|line| line.replacen('#', "", 1) + "\n")
            .collect();
        parse("uncommented", &uncommented).unwrap_or_else(|problems| panic!("{uncommented}\n{problems:?}"));
    }
    crate::assert_page!(starter(&[Preset::Python]));
}

#[test]
fn the_schema_describes_every_key() {
    let schema = json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(schema["$id"].as_str().is_some_and(|id| !id.is_empty()));
    fn walk(value: &serde_json::Value, path: &str) {
        if let Some(properties) = value.get("properties").and_then(|it| it.as_object()) {
            assert_eq!(value["additionalProperties"], false, "{path}");
            for (key, property) in properties {
                let described =
                    ["description", "$ref", "anyOf", "oneOf"].iter().any(|word| property.get(word).is_some());
                assert!(described, "{path}.{key}");
                walk(property, &format!("{path}.{key}"));
            }
        }
        for word in ["items", "anyOf", "oneOf"] {
            match value.get(word) {
                Some(serde_json::Value::Array(list)) => list.iter().for_each(|item| walk(item, path)),
                Some(item) => walk(item, path),
                None => {}
            }
        }
    }
    walk(&schema, "");
    assert_eq!(overrides_schema()["additionalProperties"], false);
    insta::assert_json_snapshot!(schema);
}
