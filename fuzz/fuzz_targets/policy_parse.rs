//! Any text is a policy, a grant and overrides, or is refused with a place that a front door can underline.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_policy::{Grant, Layer, LayerInput, Overrides, parse, resolve, show};

fuzz_target!(|text: &str| {
    match parse("fuzz.yaml", text) {
        Ok(file) => {
            let policy =
                resolve(&[LayerInput { layer: Layer::Project, file }], &[]).expect("a file that parses resolves");
            parse("shown.yaml", &show(&policy)).expect("what is shown parses");
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                let span = problem.span.unwrap_or_default();
                assert!(text.get(span).is_some(), "a span must cut the text between characters");
            }
        }
    }
    drop(Grant::parse("grant.yaml", text));
    drop(Overrides::parse_json(text));
});
