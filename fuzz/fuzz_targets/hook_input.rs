//! Whatever stands where an agent writes its call: it is answered in the agent's format or cannot be judged, which denies it; what is
//! denied reads as a denial, and a command that is changed runs behind the wall.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringfence::layers::{self, Project, Sources};
use ringfence::mask::Mask;
use ringfence_hook::{Agent, Answer, Event, Ground, Judge, Wall, parse};
use serde_json::Value;

/// A project of which only names are looked at. The same place in every run, so that what was found can be tried again.
static WORK: LazyLock<PathBuf> = LazyLock::new(|| {
    let work = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fuzz/hook-input"));
    fs::create_dir_all(work.join("src")).expect("a folder for the project");
    fs::write(work.join("src/main.rs"), "fn main() {}\n").expect("a file of the project");
    fs::write(work.join("sandbox.policy.yaml"), "version: 1\nnet: { mode: allowlist, allow: [docs.example.org] }\n")
        .expect("its policy");
    work.canonicalize().expect("it is there")
});

static JUDGES: LazyLock<Vec<(Agent, Judge)>> = LazyLock::new(|| {
    let own = WORK.join("sandbox.policy.yaml");
    let sources = Sources { project: Project::File(own.clone()), workspace: Some(WORK.clone()), ..Sources::default() };
    let loaded = layers::load(&sources).expect("the policy is one");
    let judge = |agent| {
        let ground = Ground {
            agent,
            loaded: loaded.clone(),
            workspace: WORK.clone(),
            own: vec![own.clone()],
            state: None,
            program: std::env::current_exe().expect("we are somewhere"),
            flags: Vec::new(),
            wall: Wall::ByPolicy,
            home: Some(WORK.join("home")),
            path: Default::default(),
            user: 1000,
        };
        (agent, Judge::new(ground))
    };
    Agent::ALL.map(judge).into()
});

fuzz_target!(|bytes: &[u8]| {
    // Seeds are recorded calls, in which a mark stands for the project.
    let text = std::str::from_utf8(bytes).map(|text| text.replace("{W}", &WORK.to_string_lossy()).into_bytes());
    let Ok(fields) = parse(text.as_deref().unwrap_or(bytes)) else { return };
    for (agent, judge) in JUDGES.iter() {
        match agent.read(&fields) {
            Err(_) => {}
            Ok(Event::After(returned)) => {
                let told = agent.answer_after(&returned, returned.masked(&Mask::default()));
                assert!(told.is_object());
            }
            Ok(Event::Before(call)) => {
                let Ok(answer) = judge.judge(&call) else { continue };
                if let Answer::Changed(input) = &answer {
                    check_changed(&call.input, input);
                }
                let denied = match &answer {
                    Answer::Free | Answer::Changed(_) => false,
                    Answer::Ask(..) => *agent != Agent::ClaudeCode,
                    Answer::Deny(_) => true,
                };
                assert_eq!(is_denial(&agent.answer(&call, answer)), denied);
            }
        }
    }
});

/// A command differs from the one that was asked about only in that it runs behind the wall.
fn check_changed(before: &serde_json::Map<String, Value>, after: &serde_json::Map<String, Value>) {
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
        let line = match value {
            Value::Array(words) => words.last().and_then(Value::as_str),
            other => other.as_str(),
        };
        let line = line.expect("what is changed is a text");
        match key.as_str() {
            // What a search leaves out.
            "glob" => assert!(line.contains("!**/")),
            _ => {
                let words = ringfence_policy::split_words(line).expect("what we write can be read");
                assert!(words.get(1).is_some_and(|word| word == "run"), "{line}");
                assert!(words.last().is_some_and(|word| word.starts_with("--shell=")), "{line}");
            }
        }
    }
}

fn is_denial(told: &Value) -> bool {
    told.pointer("/hookSpecificOutput/permissionDecision").is_some_and(|decision| decision == "deny")
        || told["decision"] == "deny"
        || told["permission"] == "deny"
}
