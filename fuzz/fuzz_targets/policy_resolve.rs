//! Layers split from one text resolve, overrides never widen, and the operator's floor only narrows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_policy::{Layer, LayerInput, Overrides, PolicyFile, narrow, parse, resolve};

/// The parts of the input: user, project, operator, overrides.
const SEPARATOR: &str = "\n%%\n";

fuzz_target!(|text: &str| {
    let mut parts = text.split(SEPARATOR);
    let mut file = || -> PolicyFile {
        let text = format!("version: 1\n{}", parts.next().unwrap_or_default());
        parse("fuzz.yaml", &text).unwrap_or_default()
    };
    let lower = [LayerInput { layer: Layer::User, file: file() }, LayerInput { layer: Layer::Project, file: file() }];
    let operator = file();
    let without = resolve(&lower, &[]).expect("layers that parse resolve");
    assert!(without.is_within(&without));
    assert!(without.proc.timeout.value <= without.proc.max_timeout.value);

    let [user, project] = lower;
    let floor = LayerInput { layer: Layer::Operator, file: operator.clone() };
    let with = resolve(&[floor, project, user], &[]).expect("layers that parse resolve");
    // What the operator fixes, rather than limits, is no matter of more or less.
    let fixes = operator.fs.workspace.is_some()
        || operator.proc.user.is_some()
        || operator.proc.set.is_some()
        || operator.runtime.is_some();
    let allows = operator.commands.iter().flatten().any(|rule| rule.value.verdict == ringfence_policy::Verdict::Allow);
    let preset_fixes = !operator.extends.is_empty();
    if !fixes && !allows && !preset_fixes {
        assert!(with.is_within(&without), "the operator widened");
    }

    if let Ok(overrides) = Overrides::parse_json(parts.next().unwrap_or_default())
        && let Ok(narrowed) = narrow(&with, &overrides)
    {
        assert!(narrowed.is_within(&with), "a call widened");
    }
});
