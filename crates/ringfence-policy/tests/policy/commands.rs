use ringfence_policy::{Layer, Verdict, check_tests, decide};

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
