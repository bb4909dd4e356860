//! The resolved values without their origins, in one stable form: what is hashed and what an outcome shows.

use serde_json::{Map, Value, json};

use crate::credential::SecretSource;
use crate::policy::{BackendPolicy, ResolvedPolicy, Sourced, ToolsPolicy};

impl ResolvedPolicy {
    /// Every value, keys in alphabetical order, lists in the order of the layers.
    pub fn canonical_json(&self) -> Value {
        let Self {
            backend,
            image,
            image_pull,
            cache,
            fs,
            net,
            credentials,
            proc,
            validate,
            commands,
            tools,
            overrides,
        } = self;
        let credentials: Map<String, Value> =
            credentials.iter().map(|(name, credential)| (name.clone(), json!(credential.value))).collect();
        let set: Map<String, Value> = proc.env.set.iter().map(|(name, set)| (name.clone(), json!(set.value))).collect();
        json!({
            "backend": canonical_backend(backend),
            "cache": list(cache),
            "commands": list(commands),
            "credentials": credentials,
            "fs": {
                "deny": list(&fs.deny),
                "mounts": list(&fs.mounts),
                "protect": list(&fs.protect),
                "size": fs.size.value,
                "workspace": { "mode": fs.mode.value, "path": fs.workspace.value, "source": fs.source.value },
            },
            "image": image.as_ref().map(|image| &image.value),
            "image_pull": image_pull.value,
            "net": {
                "allow": list(&net.allow),
                "budget": net.budget.value,
                "deny": list(&net.deny),
                "localhost": list(&net.localhost),
                "mode": net.mode.value,
                "unix": list(&net.unix),
                "unknown": net.unknown.value,
                "upstream": net.upstream.as_ref().map(|upstream| &upstream.value),
            },
            "overrides": { "grantable": list(&overrides.grantable) },
            "proc": {
                "cpus": proc.cpus.value,
                "env": { "pass": list(&proc.env.pass), "set": set },
                "file_size": proc.file_size.value,
                "grace": proc.grace.value,
                "limits": proc.limits.value,
                "max_timeout": proc.max_timeout.value,
                "memory": proc.memory.value,
                "open_files": proc.open_files.value,
                "output": proc.output.value,
                "processes": proc.processes.value,
                "timeout": proc.timeout.value,
                "user": proc.user.value.to_string(),
            },
            "tools": canonical_tools(tools),
            "validate": validate.canonical(),
            "version": 1,
        })
    }

    /// The text to hash: equal policies have equal texts, whoever set their values.
    pub fn hash_input(&self) -> String {
        let mut value = self.canonical_json();
        // An outcome shows of a command only its program; a hash tells nobody the words after it.
        for (name, credential) in &self.credentials {
            if let SecretSource::Command(words) = &credential.value.from
                && let Some(from) = value.pointer_mut(&format!("/credentials/{name}/from"))
            {
                *from = json!({ "command": words });
            }
        }
        value.to_string()
    }
}

/// The limit of our own tools is there only where somebody wrote one: a policy that says nothing of tools keeps its hash.
fn canonical_tools(tools: &ToolsPolicy) -> Value {
    match &tools.own {
        None => json!({ "allow": list(&tools.allow) }),
        Some(own) => json!({ "allow": list(&tools.allow), "own": list(own) }),
    }
}

fn canonical_backend(backend: &BackendPolicy) -> Value {
    json!({
        "fallback": list(&backend.fallback),
        "runtime": backend.runtime.as_ref().map(|runtime| &runtime.value),
        "use": backend.choice.value,
    })
}

fn list<T: serde::Serialize>(items: &[Sourced<T>]) -> Value {
    Value::Array(items.iter().map(|item| json!(item.value)).collect())
}
