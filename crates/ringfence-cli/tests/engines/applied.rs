//! What a program wrote in a container and the host has afterwards: by itself where the workspace is `direct`, and otherwise by an apply.

use ringfence_testkit::canary::FileCanary;

use crate::left_for_the_host::{self as left, DIRECT, DIRECT_ALONE, PLANTS, filled};
use crate::stage::Ended;
use crate::walls::{Walled, for_each_engine};

/// A script in a container, with all that is told.
fn told(place: &Walled) -> impl Fn(&str, &[&str]) -> Ended + '_ {
    |script, arguments| place.ringfence(&[&["run", "--", "sh", "-c", script, "sh"], arguments].concat()).run()
}

#[test]
fn f06_direct_takes_changes_of_a_container_to_the_host_and_holds_back_the_rest() {
    for_each_engine(DIRECT, |place| left::direct_takes_changes_to_the_host(&place.stage, &told(place)));
}

#[test]
fn f04_direct_does_not_let_a_folder_of_a_container_be_moved_away() {
    for_each_engine(DIRECT_ALONE, |place| left::direct_does_not_let_a_folder_be_moved_away(&place.stage, &told(place)));
}

#[test]
fn f05_moving_a_folder_in_a_container_frees_nothing_below_it() {
    for_each_engine(DIRECT, |place| left::moving_a_folder_above_frees_nothing(&place.stage, &told(place)));
}

#[test]
fn f01_direct_in_a_container_never_writes_through_a_link() {
    for_each_engine(DIRECT_ALONE, |place| {
        left::direct_never_writes_through_a_link(&place.stage, &place.outside(), &told(place));
    });
    for_each_engine(DIRECT_ALONE, |place| left::direct_holds_back_links_that_lead_out(&place.stage, &told(place)));
}

#[test]
fn f06_f07_names_that_the_host_obeys_stay_in_a_container() {
    for_each_engine("", |place| left::names_that_the_host_obeys_stay_inside(&place.stage, &told(place)));
}

#[test]
fn f08_git_on_the_host_executes_nothing_that_a_container_left() {
    for_each_engine("", |place| left::git_on_the_host_executes_nothing(&place.stage, &told(place)));
}

#[test]
fn f21_what_a_container_left_to_run_on_the_host_comes_there_only_to_whoever_says_so() {
    for_each_engine("", |place| left::what_runs_on_the_host_is_flagged(&place.stage, &told(place)));
}

#[test]
fn direct_changes_of_a_container_are_said_in_the_outcome_and_can_be_taken_back() {
    for_each_engine(DIRECT, |place| {
        filled(&place.stage);
        let outcome = place.outcome(&[], &format!("{PLANTS}; exit 7"));
        assert_eq!((&outcome["status"], &outcome["exitCode"]), (&"exited".into(), &7.into()), "{outcome:#}");
        assert!(outcome["applied"]["applied"].as_u64().unwrap() >= 4, "{outcome:#}");
        assert!(outcome["applied"]["left"].as_u64().unwrap() >= 6, "{outcome:#}");
        let violations = outcome["violations"].to_string();
        assert!(violations.contains("fs.protect") && violations.contains("fs.deny"), "{outcome:#}");
        assert_eq!(place.stage.read("old.txt").as_deref(), Some("changed\n"), "a program that failed counts too");
        place.ringfence(&["undo", "--yes"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("old.txt").as_deref(), Some("old\n"));
        assert_eq!(place.stage.read("gone.txt").as_deref(), Some("gone\n"));
        assert_eq!(place.stage.read("new.txt"), None);
        place.ringfence(&["log", "verify"]).run().expect(0, &[]);
    });
}

#[test]
fn s07_the_policy_the_ledger_and_the_binary_are_the_hosts_own_in_review_and_direct() {
    // Into each in turn, under the name that it has here and the one that it would have inside.
    let script = "for file in sandbox.policy.yaml /workspace/sandbox.policy.yaml \"$1/ledger.jsonl\" \"$2\"; do \
        echo 'backend: none' > \"$file\"; rm -f \"$file\"; done; rm -rf \"$1\"; mkdir -p \"$1\"; echo x > \"$1/ledger.jsonl\"; echo fine > fine; :";
    for more in ["", DIRECT_ALONE] {
        for_each_engine(more, |place| {
            place.sh("true", &[]).expect(0, &[]);
            let before = std::fs::read(place.stage.ledger()).unwrap();
            let binary = place.outside().join("ringfence");
            std::fs::copy(crate::stage::binary(), &binary).unwrap();
            let canaries = [place.stage.work().join("sandbox.policy.yaml"), binary.clone()]
                .map(|path| FileCanary::set(path).unwrap());
            let changes = || canaries.each_ref().map(|canary| canary.change().unwrap().is_some());
            let state = place.stage.state();
            let arguments = [state.to_str().unwrap(), binary.to_str().unwrap()];
            let ended = place.sh(script, &arguments);
            assert_eq!(place.stage.read("fine").is_some(), !more.is_empty(), "{ended:?}");
            assert_eq!(changes(), [false, false], "{ended:?}");
            // It grows by what we write ourselves.
            let is_ours = || std::fs::read(place.stage.ledger()).is_ok_and(|now| now.starts_with(&before));
            assert!(is_ours(), "the ledger was changed");
            place.ringfence(&["log", "verify"]).run().expect(0, &[]);
            let mut twin = std::process::Command::new("sh");
            twin.args(["-c", script, "sh"]).args(arguments).current_dir(place.stage.work()).output().unwrap();
            assert!(changes() == [true, true] && !is_ours(), "the probe proves nothing");
        });
    }
}
