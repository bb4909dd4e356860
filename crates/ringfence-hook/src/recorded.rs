//! Recorded calls: as they are, spoiled, and with more beside them than we know.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use crate::call::Answer;
use crate::tests::{POLICY, Project, RECORDED, any_json, is_denial};
use crate::{Agent, parse};

/// One of the recorded calls of an agent, as it was written.
fn pick(agent: Agent, index: &Index) -> &'static str {
    let text = RECORDED.iter().find(|(known, _)| *known == agent).unwrap().1;
    let lines: Vec<&str> = text.lines().collect();
    lines[index.index(lines.len())]
}

/// Every place in `value`, as a pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found)),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(index, value)| places(value, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

fn is_let(answer: &Answer) -> bool {
    matches!(answer, Answer::Free | Answer::Changed(_))
}

#[test]
fn every_seed_of_the_fuzz_target_is_a_recorded_call() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/hook_input");
    let mut seen = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let seed = std::fs::read_to_string(seed.unwrap().path()).unwrap();
        assert!(RECORDED.iter().any(|(_, text)| text.lines().any(|line| line == seed)), "{seed}");
        seen += 1;
    }
    assert!(seen >= 4 * 10, "only {seen} seeds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_recorded_call_that_is_cut_short_is_no_call(
        agent in select(&Agent::ALL[..]), index: Index, cut: Index
    ) {
        let text = pick(agent, &index);
        prop_assert!(parse(&text.as_bytes()[..cut.index(text.len())]).is_err());
        let twice = text.repeat(2);
        prop_assert!(parse(twice.as_bytes()).is_err());
        // The twin.
        prop_assert!(parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_recorded_call_with_anything_in_place_of_something_is_answered_or_denied(
        agent in select(&Agent::ALL[..]), index: Index, place: Index, value in any_json()
    ) {
        let project = Project::new(POLICY);
        let text = pick(agent, &index).replace("{W}", project.work().to_str().unwrap());
        let mut call: Value = serde_json::from_str(&text).unwrap();
        let mut all = Vec::new();
        places(&call, "", &mut all);
        *call.pointer_mut(&all[place.index(all.len())]).unwrap() = value;
        // Every agent may be sent what another one writes.
        for reader in Agent::ALL {
            let Ok(fields) = parse(call.to_string().as_bytes()) else { continue };
            if let Ok(Some((answer, told))) = project.answer(reader, &fields) {
                let asks = matches!(answer, Answer::Ask(..)) && reader == Agent::ClaudeCode;
                prop_assert_eq!(is_denial(&told), !is_let(&answer) && !asks, "{}", told);
            }
        }
    }

    #[test]
    fn a_recorded_call_is_let_whatever_an_agent_adds_beside_it(
        agent in select(&Agent::ALL[..]), index: Index, key in "x_[a-z_]{1,12}", value in any_json()
    ) {
        let project = Project::new(POLICY);
        let text = pick(agent, &index).replace("{W}", project.work().to_str().unwrap());
        let mut call = parse(text.as_bytes()).unwrap();
        call.insert(key, value);
        let (answer, told) = project.answer(agent, &call).unwrap().unwrap();
        prop_assert!(is_let(&answer) && !is_denial(&told), "{:?}", answer);
    }

    #[test]
    fn what_came_back_is_told_apart_from_a_call_and_never_panics(
        agent in select(&Agent::ALL[..]), response in any_json(), name in "(MCP:|mcp__)?[a-zA-Z_]{1,12}"
    ) {
        for event in ["PostToolUse", "PostToolUseFailure", "AfterTool", "postToolUse", "afterShellExecution", "afterMCPExecution"] {
            let call = serde_json::json!({
                "hook_event_name": event, "tool_name": name, "tool_input": {}, "tool_response": response.clone(),
                "tool_output": response.clone(), "output": response.clone(), "result_json": response.clone(),
            });
            if let Ok(crate::Event::After(returned)) = agent.read(call.as_object().unwrap()) {
                let masked = returned.masked(&ringfence::mask::Mask::default());
                prop_assert!(agent.answer_after(&returned, masked).is_object());
            }
        }
    }
}
