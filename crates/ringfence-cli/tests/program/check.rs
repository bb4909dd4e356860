//! What `ringfence check` prints, and what it does where it cannot attack.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::stage::Stage;

/// The same shape with every value that differs from host to host taken out.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::String(_) => "…".into(),
        Value::Number(_) => 0.into(),
        Value::Bool(_) | Value::Null => Value::Null,
    }
}

#[test]
fn the_report_has_every_stable_name() {
    let stage = Stage::new();
    let report =
        stage.ringfence(["check", "--json", "--backend", "none", "--only", "fs.deny"]).run().expect(1, &[]).json();
    insta::assert_json_snapshot!(shape(&report));
}

#[test]
fn the_attacks_have_stable_names() {
    let stage = Stage::new();
    let ended = stage.ringfence(["check", "--only", "no-such-attack"]).run().expect(2, &["no attack is called"]);
    let names = ended.stderr.split_once("name: ").unwrap().1.trim();
    insta::assert_snapshot!(names.replace(' ', "\n"));
}

#[test]
fn an_attack_that_cannot_be_made_is_said_and_is_not_green() {
    let stage = Stage::new();
    let folder = stage.path().join("few");
    std::fs::create_dir(&folder).unwrap();
    for name in ["sh", "true", "cat", "env", "tr", "sleep"] {
        let path = ["/usr/bin", "/bin"].map(|folder| std::path::Path::new(folder).join(name));
        symlink(path.iter().find(|path| path.exists()).unwrap(), folder.join(name)).unwrap();
    }
    let check = |only| stage.ringfence(["check", "--backend", "none", "--only", only]).env("PATH", &folder).run();
    let ended = check("E14-loopback").expect(1, &[]);
    let page = ended.text();
    assert!(page.contains("not tried     E14-loopback") && page.contains("none of: perl, python3"), "{page}");
    assert!(page.contains("0 held, 0 broken, 0 inconclusive, 1 not tried") && page.contains("NOT SHOWN"), "{page}");
}

#[test]
fn a_policy_that_no_wall_keeps_is_refused_and_a_missing_wall_is_an_error() {
    let stage = Stage::with_policy("version: 1\nbackend: { use: docker, fallback: [] }\n");
    stage.ringfence(["check"]).run().expect(125, &["no backend that the policy permits is available"]);
    let stage = Stage::with_policy("version: 1\ncommands: [{ deny: [\"true\"], matches: [\"true\"] }]\n");
    stage.ringfence(["check", "--backend", "none"]).run().expect(126, &["refused: `true` may not be run"]);
}

#[test]
fn a_report_fits_its_screen_and_has_no_colour_without_one() {
    let stage = Stage::new();
    let page = stage.ringfence(["check", "--backend", "none", "--only", "fs.confined"]).run().expect(1, &[]).text();
    assert!(!page.contains('\x1b'), "{page}");
    let longest = page.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= 100, "{longest}: {page}");
}
