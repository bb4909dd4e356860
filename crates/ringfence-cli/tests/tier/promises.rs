//! What the tier says about itself.

use crate::probe::{Wall, fenced, is_root, run};
use crate::stage::Stage;

#[test]
fn s15_the_tier_says_what_it_does_not_enforce_and_proves_what_it_does() {
    let Some(stage) = fenced() else { return };
    let outcome = run(&stage, Wall::Tier, &["--json"], &["true"]).json();
    assert_eq!(outcome["notEnforced"], serde_json::json!(["fs.size", "proc.cpus", "priv.none", "proc.hidden"]));
    let enforced = outcome["enforced"].as_array().unwrap();
    let proven =
        ["fs.confined", "net.none", "kernel.filter", "priv.no-new", "env.clean", "proc.file-size", "proc.open-files"];
    for name in proven {
        let one = enforced.iter().find(|one| one["guarantee"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(one["evidence"].as_str().unwrap().contains("seen inside"), "{one}");
    }
    let loud = stage.ringfence(["run", "--backend", "landlock", "--", "true"]).run();
    loud.expect(0, &["warning: `landlock` is a wall with gaps; not enforced: fs.size"]);
}

#[test]
fn s16_auto_does_not_mean_the_tier_while_it_lacks_what_the_policy_requires() {
    let Some(stage) = fenced() else { return };
    let ended = stage.ringfence(["run", "--json", "--", "true"]).run().json();
    assert_ne!(ended["backend"], "landlock", "{ended:#}");
}

#[test]
fn the_tier_is_not_for_root() {
    if !is_root() {
        eprintln!("SKIPPED: only root can see that root is sent away");
        return;
    }
    let stage = Stage::with_policy("version: 1\nfs: { workspace: { mode: read-only } }\n");
    run(&stage, Wall::Tier, &[], &["true"]).expect(125, &["it is for ordinary users", "--backend native"]);
}
