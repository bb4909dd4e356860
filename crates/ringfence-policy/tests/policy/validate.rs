//! `validate`: the level, and what `strict` lets through.

use ringfence_policy::{Layer, Overrides, Sourced, ValidateLevel, lint, narrow, parse, show};

use crate::{file, project, resolved};

fn names(list: &[Sourced<String>]) -> Vec<&str> {
    list.iter().map(|it| it.value.as_str()).collect()
}

#[test]
fn the_level_is_a_word_or_stands_in_a_map_with_lists_and_is_standard_when_nobody_says() {
    assert_eq!(project("").validate.level.value, ValidateLevel::Standard);
    for (text, level) in [
        ("off", ValidateLevel::Off),
        ("\"off\"", ValidateLevel::Off),
        ("warn", ValidateLevel::Warn),
        ("{ level: strict, commands: [git, pytest], modules: [json, os.path] }", ValidateLevel::Strict),
    ] {
        assert_eq!(project(&format!("validate: {text}")).validate.level.value, level, "{text}");
    }
    let policy = project("validate: { level: strict, commands: [git], modules: [json] }");
    assert_eq!((names(&policy.validate.commands), names(&policy.validate.modules)), (vec!["git"], vec!["json"]));
    assert!(show(&policy).contains("validate:\n  level: strict"), "{}", show(&policy));
    for wrong in ["sometimes", "{ levels: off }", "{ commands: [/bin/sh] }", "{ commands: [a b] }", "[off]"] {
        assert!(parse("p.yaml", &format!("version: 1\nvalidate: {wrong}\n")).is_err(), "{wrong}");
    }
}

#[test]
fn an_operators_level_and_list_can_only_be_raised() {
    let level = |operator: &str, project: &str| {
        resolved(&[(Layer::Operator, operator), (Layer::Project, project)]).validate.level.value
    };
    assert_eq!(level("validate: standard", "validate: off"), ValidateLevel::Standard);
    assert_eq!(level("validate: warn", "validate: off"), ValidateLevel::Warn);
    assert_eq!(level("validate: standard", "validate: strict"), ValidateLevel::Strict);
    assert_eq!(
        level("fs: { size: 1GiB }", "validate: off"),
        ValidateLevel::Off,
        "the twin: who says nothing holds nobody"
    );
    let lists = |project: &str| {
        let operator = "validate: { level: strict, commands: [git, ls] }";
        let policy = resolved(&[(Layer::Operator, operator), (Layer::Project, project)]);
        names(&policy.validate.commands).join(" ")
    };
    assert_eq!(lists(""), "git ls");
    assert_eq!(lists("validate: { level: standard, commands: [rm] }"), "git ls");
    assert_eq!(lists("validate: { level: strict, commands: [rm, ls] }"), "ls");
}

#[test]
fn a_call_may_ask_for_a_closer_look_and_for_no_looser_one() {
    let policy = project("validate: standard");
    let asked = |level| narrow(&policy, &Overrides { validate: Some(level), ..Overrides::default() });
    assert_eq!(asked(ValidateLevel::Strict).unwrap().validate.level.value, ValidateLevel::Strict);
    for wider in [ValidateLevel::Warn, ValidateLevel::Off] {
        assert_eq!(asked(wider).unwrap_err().first().unwrap().field.to_string(), "validate");
    }
    assert!(Overrides::parse_json(r#"{"validate": "strict"}"#).unwrap().validate.is_some());
}

#[test]
fn a_level_that_reads_nothing_or_lets_nothing_through_is_warned_about() {
    let codes = |text: &str| {
        let warnings = lint(&file(text), &project(text));
        warnings.iter().map(|warning| warning.code).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(codes("validate: off"), "lint::not-read");
    assert_eq!(codes("validate: strict"), "lint::empty-list");
    assert_eq!(codes("validate: { commands: [git] }"), "lint::unused-list");
    assert_eq!(codes("validate: { level: strict, commands: [git] }"), "");
    assert_eq!(codes("validate: warn"), "");
}
