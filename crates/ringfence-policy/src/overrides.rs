//! What a call may ask for, and a grant may permit, beyond or below the policy. Only the fields listed here can be asked for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

use crate::budget::NetBudget;
use crate::diagnostic::Diagnostic;
use crate::entry::read_allow;
use crate::host::NetRule;
use crate::name::Named;
use crate::path::{Glob, LiteralPath, parse_file_pattern};
use crate::policy::{BackendChoice, CacheKind, Firmness, NetMode, UnknownHosts, WorkspaceMode, WorkspaceSource};
use crate::reader::Reader;
use crate::section::{parse_amount, parse_count, parse_memory, parse_socket, read_cache, read_env, read_ports, values};
use crate::units::{Bytes, Cpus, TimeSpan};
use crate::validate::ValidateLevel;
use crate::yaml::{MAX_TEXT, Node};

pub(crate) const KEYS: [&str; 6] = ["backend", "cache", "fs", "net", "proc", "validate"];
pub(crate) const FS_KEYS: [&str; 4] = ["mode", "source", "deny", "size"];
pub(crate) const NET_KEYS: [&str; 6] = ["mode", "allow", "localhost", "unix", "budget", "unknown"];
pub(crate) const PROC_KEYS: [&str; 7] = ["cpus", "memory", "processes", "limits", "timeout", "output", "env"];

/// Wishes of one call. `None` means that the policy's value is right.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Overrides {
    /// The wall to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendChoice>,
    /// The only caches to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Vec<CacheKind>>,
    /// Files.
    #[serde(skip_serializing_if = "is_default")]
    pub fs: FsOverrides,
    /// Network.
    #[serde(skip_serializing_if = "is_default")]
    pub net: NetOverrides,
    /// Limits and environment.
    #[serde(skip_serializing_if = "is_default")]
    pub proc: ProcOverrides,
    /// How closely it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate: Option<ValidateLevel>,
}

/// Wishes about files.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FsOverrides {
    /// How the workspace is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkspaceMode>,
    /// Of what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<WorkspaceSource>,
    /// More that is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<Glob>>,
    /// The most that may be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
}

/// Wishes about the network.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct NetOverrides {
    /// How far it reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<NetMode>,
    /// The only hosts to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<NetRule>>,
    /// The only ports of this machine to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost: Option<Vec<u16>>,
    /// The only sockets of this machine to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<Vec<LiteralPath>>,
    /// The most to use, of all hosts together; what it leaves out stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<NetBudget>,
    /// What becomes of hosts that no rule names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownHosts>,
}

/// Wishes about limits and environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ProcOverrides {
    /// The share of processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// The most memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The most processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// How firmly they must be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Firmness>,
    /// The time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSpan>,
    /// Kept of each of stdout and stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Bytes>,
    /// The environment.
    #[serde(skip_serializing_if = "is_default")]
    pub env: EnvOverrides,
}

/// Wishes about the environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EnvOverrides {
    /// The only names to pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<Vec<String>>,
    /// Variables to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Overrides {
    /// Reads `{"proc": {"timeout": "5s"}}`. Unknown and repeated keys are refused.
    pub fn parse_json(text: &str) -> Result<Self, Vec<Diagnostic>> {
        if text.len() > MAX_TEXT {
            return Err(vec![Diagnostic::error("overrides::too-large", "the overrides are longer than 1MiB")]);
        }
        let node: Node = serde_json::from_str(text).map_err(|error| {
            vec![
                Diagnostic::error("overrides::syntax", format!("the overrides are not JSON: {error}"))
                    .advise("write an object, such as `{\"proc\": {\"timeout\": \"5s\"}}`"),
            ]
        })?;
        Self::from_node(&node)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        is_default(self)
    }

    fn from_node(node: &Node) -> Result<Self, Vec<Diagnostic>> {
        let file: Arc<str> = "overrides".into();
        let mut reader = Reader::new(&file);
        let overrides = Self::read(&mut reader, node, "overrides");
        reader.finish(overrides)
    }

    pub(crate) fn read(reader: &mut Reader<'_>, node: &Node, path: &str) -> Self {
        let fields = reader.fields(node, path, &KEYS);
        let backend = fields.get("backend").and_then(|node| reader.scalar(node, "backend", BackendChoice::read));
        Self {
            backend: backend.map(|written| written.value),
            cache: fields.get("cache").and_then(|node| read_cache(reader, node)).map(values),
            fs: fields.get("fs").map(|node| read_fs(reader, node)).unwrap_or_default(),
            net: fields.get("net").map(|node| read_net(reader, node)).unwrap_or_default(),
            proc: fields.get("proc").map(|node| read_proc(reader, node)).unwrap_or_default(),
            validate: fields
                .get("validate")
                .and_then(|node| reader.scalar(node, "validate", ValidateLevel::read))
                .map(|it| it.value),
        }
    }
}

fn read_fs(reader: &mut Reader<'_>, node: &Node) -> FsOverrides {
    let fields = reader.fields(node, "fs", &FS_KEYS);
    let mode = fields.get("mode").and_then(|node| reader.scalar(node, "fs.mode", WorkspaceMode::read));
    let source = fields.get("source").and_then(|node| reader.scalar(node, "fs.source", WorkspaceSource::read));
    let deny = fields.get("deny").and_then(|node| {
        reader.list(node, "fs.deny", |reader, node| reader.scalar(node, "fs.deny", parse_file_pattern))
    });
    let size = fields.get("size").and_then(|node| reader.scalar(node, "fs.size", parse_amount));
    FsOverrides {
        mode: mode.map(|it| it.value),
        source: source.map(|it| it.value),
        deny: deny.map(values),
        size: size.map(|it| it.value),
    }
}

fn read_net(reader: &mut Reader<'_>, node: &Node) -> NetOverrides {
    let fields = reader.fields(node, "net", &NET_KEYS);
    let mode = fields.get("mode").and_then(|node| reader.scalar(node, "net.mode", NetMode::read));
    let allow = fields.get("allow").and_then(|node| reader.list(node, "net.allow", read_allow));
    let localhost = fields.get("localhost").and_then(|node| read_ports(reader, node, "net.localhost"));
    let unix = fields
        .get("unix")
        .and_then(|node| reader.list(node, "net.unix", |reader, node| reader.scalar(node, "net.unix", parse_socket)));
    NetOverrides {
        mode: mode.map(|it| it.value),
        allow: allow.map(values),
        localhost: localhost.map(values),
        unix: unix.map(values),
        budget: fields.get("budget").map(|node| NetBudget::read(reader, node, "net.budget")),
        unknown: fields
            .get("unknown")
            .and_then(|node| reader.scalar(node, "net.unknown", UnknownHosts::read))
            .map(|it| it.value),
    }
}

fn read_proc(reader: &mut Reader<'_>, node: &Node) -> ProcOverrides {
    let fields = reader.fields(node, "proc", &PROC_KEYS);
    let cpus = fields.get("cpus").and_then(|node| reader.scalar(node, "proc.cpus", str::parse));
    let memory = fields.get("memory").and_then(|node| reader.scalar(node, "proc.memory", parse_memory));
    let processes = fields.get("processes").and_then(|node| reader.scalar(node, "proc.processes", parse_count));
    let limits = fields.get("limits").and_then(|node| reader.scalar(node, "proc.limits", Firmness::read));
    let timeout = fields.get("timeout").and_then(|node| reader.scalar(node, "proc.timeout", str::parse));
    let output = fields.get("output").and_then(|node| reader.scalar(node, "proc.output", parse_amount));
    let (pass, set) = fields.get("env").map(|node| read_env(reader, node, "proc.env")).unwrap_or_default();
    ProcOverrides {
        cpus: cpus.map(|it| it.value),
        memory: memory.map(|it| it.value),
        processes: processes.map(|it| it.value),
        limits: limits.map(|it| it.value),
        timeout: timeout.map(|it| it.value),
        output: output.map(|it| it.value),
        env: EnvOverrides {
            pass: pass.map(values),
            set: set.unwrap_or_default().into_iter().map(|(name, value)| (name, value.value)).collect(),
        },
    }
}

impl<'de> Deserialize<'de> for Overrides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        Self::from_node(&node).map_err(|problems| {
            let texts: Vec<String> = problems
                .into_iter()
                .map(|problem| match problem.advice {
                    Some(advice) => format!("{}; {advice}", problem.message),
                    None => problem.message,
                })
                .collect();
            de::Error::custom(texts.join(". "))
        })
    }
}

impl Serialize for BackendChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl JsonSchema for Overrides {
    fn schema_name() -> Cow<'static, str> {
        "Overrides".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = |names: Vec<&'static str>| serde_json::json!({ "type": "string", "enum": names });
        let strings = serde_json::json!({ "type": "array", "items": { "type": "string" } });
        let amount = serde_json::json!({ "type": ["string", "integer"], "description": "such as `512MiB`" });
        json_schema!({
            "description": "What a call asks for; it can only narrow the policy",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "backend": words(BackendChoice::ALL.iter().map(|(name, _)| *name).collect()),
                "cache": {
                    "type": "array",
                    "items": words(CacheKind::ALL.iter().map(|(name, _)| *name).collect())
                },
                "fs": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "mode": words(WorkspaceMode::ALL.iter().map(|(name, _)| *name).collect()),
                        "source": words(WorkspaceSource::ALL.iter().map(|(name, _)| *name).collect()),
                        "deny": strings,
                        "size": amount
                    }
                },
                "net": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "mode": words(NetMode::ALL.iter().map(|(name, _)| *name).collect()),
                        "allow": { "type": "array", "items": { "type": ["string", "object"] } },
                        "localhost": { "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 65535 } },
                        "unix": strings,
                        "budget": {
                            "type": "object",
                            "additionalProperties": false,
                            "properties": {
                                "requests": { "type": "integer", "minimum": 1 },
                                "connections": { "type": "integer", "minimum": 1 },
                                "bytes": amount,
                                "rate": { "type": "string", "description": "such as `10/s` or `100/min`" }
                            }
                        },
                        "unknown": words(UnknownHosts::ALL.iter().map(|(name, _)| *name).collect())
                    }
                },
                "validate": words(ValidateLevel::ALL.iter().map(|(name, _)| *name).collect()),
                "proc": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "cpus": { "type": "number", "exclusiveMinimum": 0 },
                        "memory": amount,
                        "processes": { "type": "integer", "minimum": 1 },
                        "limits": words(Firmness::ALL.iter().map(|(name, _)| *name).collect()),
                        "timeout": { "type": "string", "description": "such as `5s`" },
                        "output": amount,
                        "env": {
                            "type": "object",
                            "additionalProperties": false,
                            "properties": {
                                "pass": strings,
                                "set": { "type": "object", "additionalProperties": { "type": "string" } }
                            }
                        }
                    }
                }
            }
        })
    }
}
