//! The engines of this machine, and one probe behind them and without them.

use std::path::PathBuf;

use ringfence_testkit::backends::Wall;
use ringfence_testkit::canary::until;

use crate::stage::{Ended, Invocation, SOON, Stage};

/// One engine, and a stage whose policy chooses it.
#[derive(Debug)]
pub(crate) struct Walled {
    pub(crate) wall: Wall,
    pub(crate) stage: Stage,
    bare: Stage,
}

/// Does `act` for every engine that is here, under a policy with `more` in it. Others are skipped loudly; one that was
/// required and does not work is a failure.
pub(crate) fn for_each_engine(more: &str, act: impl Fn(&Walled)) {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        if is_usable(&wall) {
            eprintln!("on {wall}");
            act(&Walled::new(wall, more));
        }
    }
}

/// Likewise, where there is no way out, and where there is one for a listed host, which has to open nothing else.
pub(crate) fn with_and_without_a_way_out(act: impl Fn(&Walled)) {
    for policy in ["", "net: { mode: allowlist, allow: [registry.example] }\n"] {
        for_each_engine(policy, |place| {
            let door = place.python("import socket; socket.create_connection(('127.0.0.1', 3128), 10)", &[]);
            assert_eq!(door.code, i32::from(policy.is_empty()), "whether our proxy can be reached: {door:?}");
            act(place);
        });
    }
}

/// Whether `doctor` says that it can be used. One that was required, with a runtime of its own choice, is not asked: a test that
/// fails says as much, and the question takes longer than many a test.
fn is_usable(wall: &Wall) -> bool {
    let is_required =
        std::env::var("RINGFENCE_TEST_REQUIRE").is_ok_and(|list| list.split(',').any(|it| it == wall.kind.to_string()));
    if is_required && wall.runtime.is_none() {
        return true;
    }
    // A program that does not know the backend does not know the policy's words for its runtime either.
    let plain = wall.with_its_own_runtime();
    let asked = if plain == *wall { vec![wall] } else { vec![&plain, wall] };
    for wall in asked {
        let place = Walled::new(wall.clone(), "");
        let report = place.ringfence(&["doctor", "--json"]).run().json();
        let kind = wall.kind.to_string();
        let found =
            report["backends"].as_array().and_then(|all| all.iter().find(|one| one["backend"] == *kind).cloned());
        let found = found.unwrap_or_default();
        if found["usable"] == true {
            continue;
        }
        let is_built = !found.to_string().contains("not part of this version") && !found.is_null();
        assert!(!(is_required && is_built), "{wall} was required: {found}");
        eprintln!("SKIPPED: {wall} cannot be used here: {found}");
        return false;
    }
    true
}

impl Walled {
    pub(crate) fn new(wall: Wall, more: &str) -> Self {
        let stage = Stage::with_policy(&format!("version: 1\n{}{more}", wall.policy()));
        Self { wall, stage, bare: Stage::with_policy(&format!("version: 1\n{more}")) }
    }

    /// `ringfence ARGS…` in the workspace, led to the engine.
    pub(crate) fn ringfence(&self, args: &[&str]) -> Invocation<'_> {
        self.led(self.stage.ringfence(args))
    }

    /// The same start, led to the engine.
    pub(crate) fn led<'a>(&self, mut invocation: Invocation<'a>) -> Invocation<'a> {
        for (name, value) in self.wall.environment() {
            invocation = invocation.env(name.to_str().unwrap(), value);
        }
        invocation
    }

    /// `ringfence run FLAGS… -- ARGV…` behind the wall, quietly.
    pub(crate) fn run(&self, flags: &[&str], argv: &[&str]) -> Invocation<'_> {
        self.ringfence(&[&["run", "-q"], flags, &["--"], argv].concat())
    }

    /// A script for the shell, with arguments.
    pub(crate) fn sh(&self, script: &str, arguments: &[&str]) -> Ended {
        self.run(&[], &[&["sh", "-c", script, "sh"], arguments].concat()).run()
    }

    pub(crate) fn python(&self, code: &str, arguments: &[&str]) -> Ended {
        self.run(&[], &[&["python3", "-c", code], arguments].concat()).run()
    }

    /// The outcome of a script as JSON.
    pub(crate) fn outcome(&self, flags: &[&str], script: &str) -> serde_json::Value {
        self.run(&[&["--json"], flags].concat(), &["sh", "-c", script]).run().json()
    }

    /// The same stage without a wall.
    pub(crate) fn bare(&self) -> &Stage {
        &self.bare
    }

    /// The twin: the same without a wall.
    pub(crate) fn bare_run(&self, flags: &[&str], argv: &[&str]) -> Ended {
        self.bare.ringfence([&["run", "-q", "--backend", "spawn"], flags, &["--"], argv].concat()).run()
    }

    pub(crate) fn bare_sh(&self, script: &str, arguments: &[&str]) -> Ended {
        self.bare_run(&[], &[&["sh", "-c", script, "sh"], arguments].concat())
    }

    pub(crate) fn bare_python(&self, code: &str, arguments: &[&str]) -> Ended {
        self.bare_run(&[], &[&["/usr/bin/python3", "-c", code], arguments].concat())
    }

    /// The twin of a limit: nothing is limited but time and output.
    pub(crate) fn limitless(&self, flags: &[&str], argv: &[&str]) -> serde_json::Value {
        self.bare.ringfence([&["run", "-q", "--json", "--backend", "none"], flags, &["--"], argv].concat()).run().json()
    }

    /// The runs that the ledger knows.
    pub(crate) fn runs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.stage.ledger()).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut runs: Vec<String> = records.filter_map(|one| one["run"].as_str().map(str::to_owned)).collect();
        runs.sort();
        runs.dedup();
        runs
    }

    /// Whether a program of one of our runs was let go: a container that was only made has nothing in it that could end it.
    pub(crate) fn has_started(&self) -> bool {
        let text = std::fs::read_to_string(self.stage.ledger()).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        records.into_iter().any(|one| one["kind"] == "started")
    }

    /// Whether the engine has removed all of its containers, which takes it a moment after their end.
    pub(crate) fn is_soon_empty(&self) -> bool {
        until(SOON, || !self.has_containers())
    }

    /// Whether the engine still has a container of one of our runs, running or not.
    pub(crate) fn has_containers(&self) -> bool {
        let list = crate::api::containers(&self.wall);
        self.runs().iter().any(|run| list.contains(run))
    }

    /// Whether the engine has removed all copies of workspaces.
    pub(crate) fn has_soon_no_volumes(&self) -> bool {
        until(SOON, || !crate::api::has_workspaces(&self.wall))
    }

    /// A folder beside the workspace, which no policy shows.
    pub(crate) fn outside(&self) -> PathBuf {
        let folder = self.stage.path().join("outside");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Whether its limits are kept by the kernel here, as its own outcome says.
    pub(crate) fn enforces(&self, guarantee: &str) -> bool {
        let outcome = self.outcome(&[], "true");
        let enforced = outcome["enforced"].as_array().cloned().unwrap_or_default();
        let found = enforced.iter().any(|one| one["guarantee"] == guarantee && one["strength"] == "enforced");
        if !found {
            eprintln!("SKIPPED: {}: {guarantee} is not enforced here", self.wall);
        }
        found
    }
}

/// The value of `name` in lines of `name value`.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([':', ' ', '\t'])).map(|it| it.trim().to_owned())
}

pub(crate) fn has_violation(outcome: &serde_json::Value, rule: &str) -> bool {
    outcome["violations"].as_array().unwrap().iter().any(|violation| violation["rule"] == rule)
}
