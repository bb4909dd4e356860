use ringfence_policy::{Direction, Layer, Reading, Verdict, check_tests, compare, decide};

use crate::{project, resolved};

fn check(layers: &[(Layer, &str)], argv: &[&str], verdict: Option<Verdict>) {
    let policy = resolved(layers);
    assert_eq!(decide(&policy.commands, argv).map(|rule| rule.value.verdict), verdict, "{argv:?}");
}

fn check_project(text: &str, argv: &[&str], verdict: Option<Verdict>) {
    check(&[(Layer::Project, text)], argv, verdict);
}

#[test]
fn a_rule_matches_the_first_words_and_the_program_by_its_file_name() {
    let rule = "commands: [{ deny: [rm, -rf] }]";
    check_project(rule, &["rm", "-rf", "/"], Some(Verdict::Deny));
    check_project(rule, &["/bin/rm", "-rf", "/"], Some(Verdict::Deny));
    check_project(rule, &["../../bin/rm", "-rf"], Some(Verdict::Deny));
    check_project(rule, &["rm", "-r", "-f"], None);
    check_project(rule, &["rm"], None);
    check_project(rule, &["rmdir", "-rf"], None);
    check_project(rule, &["echo", "rm", "-rf"], None);
    check_project(rule, &[], None);
}

#[test]
fn a_rule_about_a_full_path_means_only_that_path() {
    check_project("commands: [{ allow: [/usr/bin/git] }]", &["/usr/bin/git", "x"], Some(Verdict::Allow));
    check_project("commands: [{ allow: [/usr/bin/git] }]", &["git"], None);
    check_project("commands: [{ allow: [/usr/bin/git] }]", &["/tmp/git"], None);
}

#[test]
fn the_longest_prefix_decides_then_the_stronger_verdict_then_the_later_layer() {
    let rules = "commands: [{ deny: [git] }, { allow: [git, status] }, { ask: [git, push] }, { allow: [git, push] }]";
    check_project(rules, &["git", "status", "-s"], Some(Verdict::Allow));
    check_project(rules, &["git", "push"], Some(Verdict::Ask));
    check_project(rules, &["git", "gc"], Some(Verdict::Deny));
    let layers = [
        (Layer::User, "commands: [{ deny: [a], why: user }]"),
        (Layer::Project, "commands: [{ deny: [a], why: project }]"),
    ];
    let policy = resolved(&layers);
    assert_eq!(decide(&policy.commands, &["a"]).unwrap().origin.layer, Layer::Project);
}

#[test]
fn nobody_overrules_the_operator_and_the_operators_allow_overrules_nobody() {
    let operator = (Layer::Operator, "commands: [{ deny: [git] }, { allow: [git, status] }, { allow: [rm, build] }]");
    let user = (Layer::User, "commands: [{ allow: [git, push, origin] }, { deny: [rm] }]");
    check(&[user.clone(), operator.clone()], &["git", "push", "origin"], Some(Verdict::Deny));
    check(&[user.clone(), operator.clone()], &["git", "status"], Some(Verdict::Allow));
    check(&[user, operator], &["rm", "build"], Some(Verdict::Deny));
}

#[test]
fn nobody_lets_reading_pass_where_the_operator_or_a_rule_of_the_same_words_asks() {
    let reading = |layers: &[(Layer, &str)]| {
        let policy = resolved(layers);
        let rule = decide(&policy.commands, &["git", "log"]).unwrap();
        (rule.value.verdict, rule.value.reading)
    };
    let asks = "commands: [{ ask: [git] }]";
    let passes = "commands: [{ ask: [git], reading: allow }]";
    let exception = "commands: [{ ask: [git, log], reading: allow }]";
    for below in [passes, exception] {
        let found = reading(&[(Layer::Project, below), (Layer::Operator, asks)]);
        assert_eq!(found, (Verdict::Ask, Reading::Ask), "{below}");
    }
    assert_eq!(reading(&[(Layer::Project, asks), (Layer::Operator, passes)]), (Verdict::Ask, Reading::Ask));
    assert_eq!(reading(&[(Layer::User, asks), (Layer::Project, passes)]), (Verdict::Ask, Reading::Ask));
    // The twins: the operator may, a longer rule of the same standing may, and nobody passes who was not let through.
    assert_eq!(reading(&[(Layer::Operator, passes)]), (Verdict::Ask, Reading::Allow));
    assert_eq!(reading(&[(Layer::Project, passes)]), (Verdict::Ask, Reading::Allow));
    assert_eq!(reading(&[(Layer::User, asks), (Layer::Project, exception)]), (Verdict::Ask, Reading::Allow));
    let allows = "commands: [{ allow: [git, log] }]";
    assert_eq!(reading(&[(Layer::Project, allows), (Layer::Operator, passes)]), (Verdict::Ask, Reading::Allow));
    let denies = "commands: [{ deny: [git] }]";
    assert_eq!(reading(&[(Layer::Project, passes), (Layer::Operator, denies)]).0, Verdict::Deny);
}

#[test]
fn a_rule_that_lets_reading_pass_is_wider_than_one_that_asks_about_it_too() {
    let asks = project("commands: [{ ask: [git] }]");
    let passes = project("commands: [{ ask: [git], reading: allow }]");
    assert!(asks.is_within(&passes) && !passes.is_within(&asks));
    assert_ne!(asks.hash_input(), passes.hash_input());
    assert!(!asks.hash_input().contains("reading"), "a policy that does not say keeps its hash");
    let written = project("commands: [{ ask: [git], reading: ask }]");
    assert_eq!(asks.hash_input(), written.hash_input());
    let changes: Vec<Direction> = compare(&asks, &passes).into_iter().map(|change| change.direction).collect();
    assert!(changes.contains(&Direction::Wider), "{changes:?}");
}

#[test]
fn every_example_is_reported_with_the_rule_that_really_decides() {
    let policy = project(
        "commands: [{ deny: [git], matches: [git gc, git status], rejects: [gitk] }, { allow: [git, status], matches: [git status] }]",
    );
    let results: Vec<(String, bool)> =
        check_tests(&policy).into_iter().map(|test| (test.result.example.clone(), test.passed())).collect();
    // `git status` is an example of the deny rule, but the longer allow rule decides about it.
    let expected = [("git gc", true), ("git status", false), ("gitk", true), ("git status", true)];
    assert_eq!(results, expected.map(|(example, passed)| (example.to_owned(), passed)));
}
