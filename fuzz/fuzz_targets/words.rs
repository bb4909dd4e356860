//! Splitting is total, and what is split as one command is split the same among several.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_policy::{split_commands, split_words};

fuzz_target!(|line: &str| {
    match split_commands(line) {
        Ok(commands) => assert!(commands.iter().all(|words| !words.is_empty())),
        Err(problem) => assert!(problem.offset <= line.len()),
    }
    if let Ok(words) = split_words(line) {
        let commands = split_commands(line).expect("one plain command is also several");
        assert_eq!(commands.into_iter().next().unwrap_or_default(), words);
    }
});
