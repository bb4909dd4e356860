//! A line of the shell is read within its bounds, and every place lies within it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_validate::{Limits, Subject, Surroundings, analyse, is_read_only};

fuzz_target!(|line: &str| {
    let limits = Limits { steps: 500, facts: 2000, ..Limits::default() };
    let analysis = analyse(Subject::Shell(line), &Surroundings::default(), &limits);
    for step in analysis.all_steps() {
        assert!(step.span.start <= step.span.end && step.span.end <= line.len(), "{:?} in {line:?}", step.span);
        for act in &step.facts {
            assert!(act.span.start <= act.span.end && act.span.end <= line.len(), "{act:?} in {line:?}");
        }
    }
    let _read_only = is_read_only(&analysis);
});
