//! Measures parsing and resolving a policy file of 100 lines. `cargo bench -p ringfence-policy --bench load`.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_policy::{Diagnostic, Layer, LayerInput, parse, resolve};

const ROUNDS: usize = 2000;

fn main() -> Result<(), Vec<Diagnostic>> {
    let text = hundred_lines();
    // The first load parses the built-in files; a command line program pays that once.
    let first = load(&text)?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(load(&text)?);
    }
    times.sort_unstable();
    let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
    println!("policy_load_resolve_us {:.1} us", micros(median));
    println!("policy_first_load_resolve_us {:.1} us", micros(first));
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn load(text: &str) -> Result<Duration, Vec<Diagnostic>> {
    let start = Instant::now();
    let file = parse("sandbox.policy.yaml", black_box(text))?;
    let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[])?;
    black_box(&policy);
    Ok(start.elapsed())
}

/// A file with some of everything.
fn hundred_lines() -> String {
    let mut lines: Vec<String> = [
        "version: 1",
        "extends: [preset:python]",
        "backend: { use: auto, fallback: [native] }",
        "fs:",
        "  workspace: { path: ., mode: review }",
        "  mounts:",
        "    - { host: ./deps, at: /deps, mode: read-only }",
        "    - { tmpfs: /tmp, size: 256MiB }",
        "  size: 512MiB",
        "  protect: default",
        "  deny:",
    ]
    .map(str::to_owned)
    .into();
    lines.extend((0..20).map(|index| format!("    - \"**/secret-{index}/**\"")));
    lines.extend(["net:", "  mode: allowlist", "  allow:"].map(str::to_owned));
    lines.extend((0..20).map(|index| format!("    - host-{index}.example.org")));
    lines.extend(["proc:", "  cpus: 1.5", "  memory: 512MiB", "  timeout: 120s"].map(str::to_owned));
    lines.extend(["  env: { pass: [LANG], set: { CI: \"1\" } }", "commands:"].map(str::to_owned));
    for index in 0..10 {
        lines.push(format!("  - deny: [tool-{index}, --force]"));
        lines.push("    why: \"it cannot be undone\"".to_owned());
        lines.push(format!("    matches: [\"tool-{index} --force now\"]"));
        lines.push(format!("    rejects: [\"tool-{index} now\"]"));
    }
    debug_assert_eq!(lines.len(), 100);
    lines.join("\n")
}
