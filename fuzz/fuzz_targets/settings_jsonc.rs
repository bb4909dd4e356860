//! Settings with comments are read or refused, and what is added to them is there, while all else means the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

#[path = "../../crates/ringfence-cli/src/init/jsonc.rs"]
mod jsonc;

fuzz_target!(|text: &str| {
    let Ok(mut expected) = jsonc::parse(text) else { return };
    // What has no comments means what it means to others.
    if let Ok(plain) = serde_json::from_str::<Value>(text) {
        assert_eq!(plain, expected);
    }
    if let Ok(changed) = jsonc::set(text, &["NEW", "deep"], &json!({ "a": [1] })) {
        expected["NEW"]["deep"] = json!({ "a": [1] });
        assert_eq!(jsonc::parse(&changed).expect("what was added can be read"), expected);
    }
    if let Ok(changed) = jsonc::push(text, &["LIST"], &json!({ "b": 2 })) {
        let there = jsonc::parse(&changed).expect("what was added can be read");
        assert_eq!(there["LIST"].as_array().and_then(|list| list.last()), Some(&json!({ "b": 2 })));
    }
});
