//! The JSON Schema of the policy file, for editors. The parser says more precisely what is wrong.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::command::{Reading, Verdict};
use crate::credential::HMAC_SHA256;
use crate::host::HostPattern;
use crate::name::Named;
use crate::path::{Glob, LiteralPath};
use crate::policy::{
    BackendChoice, BackendKind, CacheKind, Field, Firmness, ImagePull, MountMode, NetMode, NetProtocol, Preset,
    UnknownHosts, WorkspaceMode, WorkspaceSource,
};
use crate::units::{Bytes, Cpus, TimeSpan};

/// The schema of `sandbox.policy.yaml`, version 1.
pub fn json_schema() -> Value {
    let mut generator = SchemaGenerator::default();
    let bytes = generator.subschema_for::<Bytes>();
    let time = generator.subschema_for::<TimeSpan>();
    let cpus = generator.subschema_for::<Cpus>();
    let path = generator.subschema_for::<LiteralPath>();
    let glob = generator.subschema_for::<Glob>();
    let host = generator.subschema_for::<HostPattern>();
    let with = |schema: &schemars::Schema, text: &str| {
        let mut value = schema.as_value().clone();
        if let Some(map) = value.as_object_mut() {
            map.insert("description".to_owned(), json!(text));
        }
        value
    };
    let budget = |description: &str| {
        let many = |description: &str| json!({ "description": description, "type": "integer", "minimum": 1 });
        object(
            description,
            json!({
                "requests": many("HTTP requests; a tunnel that is not looked into is one"),
                "connections": many("Tunnels and connections"),
                "bytes": with(&bytes, "Bytes of bodies and tunnels, both directions together"),
                "rate": {
                    "description": "Requests in each second or minute: `10/s`, `100/min`",
                    "type": "string",
                    "pattern": "^[1-9][0-9]*/(s|min)$"
                }
            }),
            &[],
        )
    };
    let presets: Vec<String> = Preset::ALL.iter().map(|preset| format!("preset:{}", preset.name())).collect();
    let rule = json!({
        "anyOf": [
            { "type": "string", "description": "HOST or HOST:PORT", "minLength": 1 },
            object(
                "Hosts, narrowed to ports, methods and paths",
                json!({
                    "host": host,
                    "ports": list("Ports; 80 and 443 when an allow rule names none", port()),
                    "methods": list("HTTP methods, in capitals", json!({ "type": "string", "pattern": "^[A-Z]{1,20}$" })),
                    "paths": list("URL paths; patterns that start with `/`", glob.as_value().clone()),
                    "inspect": flag("TLS is opened and looked into, so that methods and paths hold on HTTPS"),
                    "protocol": words::<NetProtocol>("What may be spoken where nothing is looked into; `web` when not said"),
                    "credential": text("The name of a credential that the proxy adds; see `credentials`"),
                    "acknowledge": flag("A host that hands what it gets to strangers is meant"),
                    "budget": budget("How much of each of the hosts may be used"),
                    "strip": list("Headers that are not passed on, in either direction; TLS is opened for it", text("A header"))
                }),
                &["host"]
            )
        ]
    });
    let mount = json!({
        "oneOf": [
            object(
                "A folder or file of the host",
                json!({ "host": path, "at": with(&path, "Where it is shown inside"), "mode": words::<MountMode>("Read-only when not said") }),
                &["host", "at"]
            ),
            object(
                "An empty folder in memory",
                json!({ "tmpfs": with(&path, "Where it is shown inside"), "size": bytes }),
                &["tmpfs", "size"]
            )
        ]
    });
    let workspace = json!({
        "description": "The folder that is worked on",
        "anyOf": [
            path,
            object(
                "The folder, and how it is shown inside",
                json!({
                    "path": path,
                    "mode": words::<WorkspaceMode>("review: changes are kept apart until they are applied"),
                    "source": words::<WorkspaceSource>("live: what the host changes is seen; copy: only what was there at the start")
                }),
                &[]
            )
        ]
    });
    let protect = json!({
        "description": "Files that the host would execute or obey later; those protected by default always are",
        "anyOf": [{ "const": "default" }, list("More patterns", glob.as_value().clone())]
    });
    let backend = json!({
        "description": "The wall: `auto` is the strongest that this host has",
        "anyOf": [
            words::<BackendChoice>("One wall"),
            object(
                "A wall, and what may stand in for it",
                json!({
                    "use": words::<BackendChoice>("The wanted wall"),
                    "fallback": list("Tried in this order when the wanted wall is missing", words::<BackendKind>("A wall")),
                    "runtime": {
                        "description": "The OCI runtime that a container engine is to use, such as `runsc`; a name, no path",
                        "type": "string",
                        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
                    }
                }),
                &[]
            )
        ]
    });
    let name = json!({
        "description": "A folder with a root (`./rootfs`), an OCI layout (`oci:PATH`, `oci:PATH:NAME`), or a reference for a container engine",
        "type": "string",
        "pattern": "^[^-*?\\[{~$][^*?\\[{]*$",
        "maxLength": 4096
    });
    let image = {
        let mut map = object(
            "An image by its name or by what it is built from, and whether it may be fetched",
            json!({
                "name": name,
                "pull": words::<ImagePull>("Whether a container engine may fetch an image that is not on this machine"),
                "build": with(&path, "A folder with a Dockerfile, or a Dockerfile, for a container engine")
            }),
            &[],
        );
        if let Some(map) = map.as_object_mut() {
            map.insert("minProperties".to_owned(), json!(1));
            map.insert("not".to_owned(), json!({ "required": ["name", "build"] }));
        }
        json!({ "description": "What stands inside", "anyOf": [name, map] })
    };
    let words_list = |description: &str| {
        json!({
            "description": description, "type": "array", "minItems": 1, "items": { "type": ["string", "number", "boolean"] }
        })
    };
    let command = {
        let mut schema = object(
            "A rule about commands that start with these words",
            json!({
                "allow": words_list("Runs"),
                "ask": words_list("A person is asked first"),
                "deny": words_list("Is refused"),
                "reading": words::<Reading>(
                    "Under `ask`, what becomes of commands that only read: `ask` about them, too, or `allow` them"
                ),
                "why": text("The reason"),
                "instead": text("What to do instead"),
                "matches": list("Commands that must match; checked at load", text("A command")),
                "rejects": list("Commands that must not match; checked at load", text("A command"))
            }),
            &[],
        );
        let verdicts: Vec<Value> = Verdict::ALL.iter().map(|(name, _)| json!({ "required": [name] })).collect();
        if let Some(map) = schema.as_object_mut() {
            map.insert("oneOf".to_owned(), Value::Array(verdicts));
        }
        schema
    };
    let env = object(
        "The environment of the program",
        json!({
            "pass": list("Names passed from the host: `LANG`, `LC_*`", json!({
                "type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*(_\*)?$"
            })),
            "set": {
                "description": "Names with fixed values",
                "type": "object",
                "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                "additionalProperties": { "type": ["string", "number", "boolean"] }
            }
        }),
        &[],
    );
    let credential = object(
        "A secret that programs use and never see",
        json!({
            "from": {
                "description": "Where the secret comes from, right before it is needed",
                "type": "object",
                "properties": {
                    "env": variable("A variable of the person who runs it"),
                    "file": with(&path, "A file, named from the root"),
                    "keyring": text("An entry of the desktop's keyring: `SERVICE/ACCOUNT`"),
                    "command": list("A program and its words; what it prints is the secret", text("A word"))
                },
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false
            },
            "hosts": list("The only hosts that rules may use it for", host.as_value().clone()),
            "header": text("The header that carries it; `Authorization` when not said"),
            "format": {
                "description": "How it stands there, with `{}` for the secret; `Bearer {}` in `Authorization`, otherwise `{}`",
                "type": "string",
                "pattern": "\\{\\}$"
            },
            "env": variable("The variable that holds its placeholder inside"),
            "sign": {
                "description": "The secret is not sent: each request is signed with it, in the header",
                "const": HMAC_SHA256
            }
        }),
        &["from", "hosts"],
    );
    let count = |description: &str| json!({ "description": description, "type": "integer", "minimum": 1, "maximum": 4_194_304 });
    let properties = json!({
        "version": { "description": "The version of the format", "const": 1 },
        "extends": list("Presets below this file", json!({ "enum": presets })),
        "backend": backend,
        "image": image,
        "cache": list("Packages that were fetched by `ringfence cache fill`, shown read-only inside", words::<CacheKind>("A cache")),
        "fs": object("Files", json!({
            "workspace": workspace,
            "mounts": list("What else is shown inside", mount),
            "deny": list("Neither readable nor writable, whenever they come to be", glob.as_value().clone()),
            "protect": protect,
            "size": with(&bytes, "The most that may be written")
        }), &[]),
        "net": object("Network", json!({
            "mode": words::<NetMode>("How far it reaches"),
            "allow": list("Hosts that can be reached under `allowlist`", rule.clone()),
            "deny": list("Hosts that never can be reached", rule),
            "localhost": list("Ports of this machine that can be reached", port()),
            "unix": list("Sockets of this machine that can be reached", path.as_value().clone()),
            "budget": budget("How much may be used, of all hosts together"),
            "unknown": words::<UnknownHosts>("What becomes of hosts that no rule names"),
            "upstream": {
                "description": "The proxy through which everything goes out; only in your own file and the operator's",
                "type": "string",
                "pattern": "^http://[^@/]+:[0-9]+/?$"
            }
        }), &[]),
        "credentials": {
            "description": "Where secrets come from, and to which hosts they may go; only in your own file and the operator's",
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9_-]{1,64}$" },
            "additionalProperties": credential
        },
        "proc": object("User, limits and environment", json!({
            "user": { "description": "User and group, never 0", "type": "string", "pattern": "^[1-9][0-9]*:[1-9][0-9]*$" },
            "cpus": cpus,
            "memory": with(&bytes, "The most memory, of all processes together"),
            "processes": count("The most processes and threads at once"),
            "limits": words::<Firmness>("How firmly `cpus`, `memory` and `processes` must be kept"),
            "timeout": with(&time, "The time limit of a run that asks for none"),
            "max_timeout": with(&time, "The most that a run may ask for"),
            "grace": with(&time, "Between the polite signal and the kill"),
            "output": with(&bytes, "Kept of each of stdout and stderr"),
            "file_size": with(&bytes, "The largest single file"),
            "open_files": count("The most descriptors of one process"),
            "env": env
        }), &[]),
        "validate": crate::validate::schema(),
        "commands": list("Rules about commands; the longest match decides", command),
        "tools": object("Tools that a model may call", json!({
            "allow": list("Their names", json!({ "type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$" }))
        }), &[]),
        "overrides": object("What may be widened from outside", json!({
            "grantable": list("Fields that a grant may widen", words::<Field>("A field"))
        }), &[])
    });
    let mut schema = object("What programs may do in the sandbox", properties, &["version"]);
    if let Some(map) = schema.as_object_mut() {
        map.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("$id".to_owned(), json!("urn:ringfence:sandbox.policy:1"));
        map.insert("title".to_owned(), json!("sandbox.policy.yaml"));
        map.insert("$defs".to_owned(), Value::Object(generator.take_definitions(true)));
    }
    schema
}

fn object(description: &str, properties: Value, required: &[&str]) -> Value {
    json!({
        "description": description,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}

fn list(description: &str, items: Value) -> Value {
    json!({ "description": description, "type": "array", "items": items })
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": "string" })
}

fn flag(description: &str) -> Value {
    json!({ "description": description, "type": "boolean" })
}

fn variable(description: &str) -> Value {
    json!({ "description": description, "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" })
}

fn port() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 65535 })
}

fn words<T: Named>(description: &str) -> Value {
    let names: Vec<&str> = T::ALL.iter().map(|(name, _)| *name).collect();
    json!({ "description": description, "enum": names })
}

/// The schema of what may come with a call.
pub fn overrides_schema() -> Value {
    crate::overrides::Overrides::json_schema(&mut SchemaGenerator::default()).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{budget, credential, entry, overrides, section, validate};

    fn check(schema: &Value, pointer: &str, keys: &[&str]) {
        let properties = schema.pointer(pointer).and_then(Value::as_object).unwrap_or_else(|| panic!("{pointer}"));
        let mut found: Vec<&str> = properties.keys().map(String::as_str).collect();
        let mut keys = keys.to_vec();
        found.sort_unstable();
        keys.sort_unstable();
        assert_eq!(found, keys, "{pointer}");
    }

    #[test]
    fn the_schema_has_exactly_the_keys_that_the_parser_reads() {
        let schema = json_schema();
        check(&schema, "/properties", &section::FILE_KEYS);
        check(&schema, "/properties/backend/anyOf/1/properties", &section::BACKEND_KEYS);
        check(&schema, "/properties/image/anyOf/1/properties", &section::IMAGE_KEYS);
        check(&schema, "/properties/fs/properties", &section::FS_KEYS);
        check(&schema, "/properties/fs/properties/workspace/anyOf/1/properties", &section::WORKSPACE_KEYS);
        check(&schema, "/properties/net/properties", &section::NET_KEYS);
        check(&schema, "/properties/net/properties/allow/items/anyOf/1/properties", &entry::RULE_KEYS);
        check(&schema, "/properties/net/properties/budget/properties", &budget::KEYS);
        check(&schema, "/properties/credentials/additionalProperties/properties", &credential::KEYS);
        check(
            &schema,
            "/properties/credentials/additionalProperties/properties/from/properties",
            &credential::FROM_KEYS,
        );
        check(&schema, "/properties/proc/properties", &section::PROC_KEYS);
        check(&schema, "/properties/proc/properties/env/properties", &section::ENV_KEYS);
        check(&schema, "/properties/validate/anyOf/1/properties", &validate::VALIDATE_KEYS);
        check(&schema, "/properties/commands/items/properties", &entry::COMMAND_KEYS);
        check(&schema, "/properties/tools/properties", &section::TOOLS_KEYS);
        check(&schema, "/properties/overrides/properties", &section::OVERRIDES_KEYS);
        let mount = schema.pointer("/properties/fs/properties/mounts/items/oneOf").and_then(Value::as_array).unwrap();
        let keys: usize =
            mount.iter().filter_map(|kind| kind["properties"].as_object()).map(serde_json::Map::len).sum();
        assert_eq!(keys, entry::MOUNT_KEYS.len());
    }

    #[test]
    fn the_schema_of_overrides_has_exactly_the_keys_that_are_read() {
        let schema = overrides_schema();
        check(&schema, "/properties", &overrides::KEYS);
        check(&schema, "/properties/fs/properties", &overrides::FS_KEYS);
        check(&schema, "/properties/net/properties", &overrides::NET_KEYS);
        check(&schema, "/properties/net/properties/budget/properties", &budget::KEYS);
        check(&schema, "/properties/proc/properties", &overrides::PROC_KEYS);
    }
}
