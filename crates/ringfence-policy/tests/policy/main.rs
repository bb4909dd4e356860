//! The policy crate from outside: what it reads, refuses, resolves and shows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod commands;
mod credentials;
mod demands;
mod diagnostics;
mod environment;
mod hosts;
mod layers;
mod order;
mod pages;
mod paths;
mod units;
mod unknown;
mod validate;
mod words;

use ringfence_policy::{Layer, LayerInput, PolicyFile, ResolvedPolicy, parse, resolve};

/// A snapshot without the expression that made it, which only repeats the input.
macro_rules! assert_page {
    ($page:expr) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!($page);
        })
    };
}
pub(crate) use assert_page;

/// A file that must parse; `version: 1` is added.
pub(crate) fn file(text: &str) -> PolicyFile {
    let text = format!("version: 1\n{text}");
    parse("sandbox.policy.yaml", &text).unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"))
}

pub(crate) fn layer(layer: Layer, text: &str) -> LayerInput {
    LayerInput { layer, file: file(text) }
}

/// What layers of these texts resolve to.
pub(crate) fn resolved(layers: &[(Layer, &str)]) -> ResolvedPolicy {
    let inputs: Vec<LayerInput> = layers.iter().map(|(name, text)| layer(name.clone(), text)).collect();
    resolve(&inputs, &[]).expect("resolves")
}

pub(crate) fn project(text: &str) -> ResolvedPolicy {
    resolved(&[(Layer::Project, text)])
}

/// The example of the design.
pub(crate) const DESIGN: &str = r#"version: 1
extends: [preset:python]
backend: auto
fs:
  workspace: { path: ., mode: review }
  mounts:
    - { host: ./deps, at: /deps, mode: read-only }
    - { tmpfs: /tmp, size: 256MiB }
  deny: [ "**/.env", "**/.ssh/**", "**/id_*" ]
  protect: default
  size: 512MiB
net:
  mode: none
  allow:
    - pypi.org
    - { host: api.github.com, methods: [GET], paths: ["/repos/acme/**"], credential: github }
  localhost: []
  unix: []
proc:
  user: "1000:1000"
  cpus: 1
  memory: 512MiB
  processes: 256
  timeout: 120s
  max_timeout: 600s
  output: 1MiB
  env: { pass: [LANG], set: { CI: "1" } }
commands:
  - deny: ["rm", "-rf", "/"]
    why: "removes everything"
    matches: ["rm -rf /"]
    rejects: ["rm -rf build"]
tools: { allow: [sandboxed_code_run] }
"#;
