//! Any text is read as Python without a panic, within the bounds, and every place that is told lies in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_validate::{Language, Limits, Subject, Surroundings, analyse};

fuzz_target!(|source: &str| {
    let subject = Subject::Code { language: Language::Python, source };
    let analysis = analyse(subject, &Surroundings::default(), &Limits::default());
    for step in analysis.all_steps() {
        for span in step.facts.iter().map(|act| act.span).chain([step.span]) {
            assert!(source.get(span.start..span.end).is_some(), "{span:?} is a place in the text");
        }
    }
});
