//! The first policy file of a project.

use crate::diagnostic::list_words;
use crate::name::Named;
use crate::policy::Preset;

/// A commented `sandbox.policy.yaml` that extends `presets`. It parses, and nothing in it draws a warning.
pub fn starter(presets: &[Preset]) -> String {
    let names: Vec<String> = presets.iter().map(|preset| format!("preset:{}", preset.name())).collect();
    let all = list_words(Preset::ALL.map(Named::name));
    format!(
        r#"# yaml-language-server: $schema=./sandbox.policy.schema.json
# What programs may do in the sandbox. What is not written here has a safe default: `ringfence policy show` prints the
# result with the origin of every line, `ringfence policy schema` writes the schema named above.
version: 1

# Presets to start from: {all}.
extends: [{extends}]

# The wall: the strongest that this host has, or one by name (native, docker, podman, microvm, kubernetes).
# With more detail: `{{ use: docker, fallback: [podman], runtime: runsc }}`.
backend: auto

# What stands inside, for walls that use images; nothing is fetched unless `pull` says `allow`.
#image: {{ name: "python:3.14-slim", pull: never }}

# Packages of the lock files in the workspace, fetched by `ringfence cache fill` and shown read-only: pip, npm, cargo.
cache: []

fs:
  # review: changes are kept apart until they are applied. Or read-only, ephemeral, direct.
  #workspace: {{ path: ., mode: review }}
  # Folders shown inside besides the workspace.
  #mounts: [{{ host: ./deps, at: /deps, mode: read-only }}]
  # Neither readable nor writable, beyond the usual secrets (`.env`, `.ssh`, keys), which always are denied.
  deny: []
  # Flagged when changed, beyond git hooks and settings of agents and editors, which always are protected.
  protect: default

net:
  # none, allowlist or open.
  #mode: allowlist
  # Hosts that can be reached: `pypi.org`, `*.example.org`, `example.org:8443`, or with more detail.
  #allow: [pypi.org, {{ host: api.github.com, methods: [GET], paths: ["/repos/**"], inspect: true }}]
  # Ports of this machine that can be reached.
  localhost: []

proc:
  # Limits. `timeout` holds when a call asks for none, and no call gets more than `max_timeout`.
  #memory: 2GiB
  #cpus: 2
  #timeout: 120s
  #max_timeout: 600s
  env:
    # Variables of the host that are passed on; no secrets.
    pass: [LANG, LC_*]
    set: {{}}

# Rules about commands: `allow`, `ask` or `deny`, with the first words and examples that are checked at load.
commands:
  - deny: [git, push, --force]
    why: "rewrites what others have"
    instead: "push to a branch of your own"
    matches: ["git push --force origin main"]
    rejects: ["git push origin main"]
"#,
        extends = names.join(", "),
    )
}
