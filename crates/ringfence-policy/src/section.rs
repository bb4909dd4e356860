//! Reads the sections of a policy file. The key lists here are the format; the JSON Schema is tested against them.

use crate::budget::NetBudget;
use crate::credential::read_credentials;
use crate::diagnostic::{Diagnostic, Invalid, list_words, quote};
use crate::entry::{read_allow, read_command, read_deny, read_mounts};
use crate::file::{FsFile, NetFile, PolicyFile, ProcFile};
use crate::host::parse_port;
use crate::image::Image;
use crate::name::Named;
use crate::path::{Glob, LiteralPath, check_socket, check_source, check_target, parse_file_pattern};
use crate::policy::{
    BackendChoice, BackendKind, CacheKind, Field, Firmness, ImagePull, NetMode, Preset, UnknownHosts, WorkspaceMode,
    WorkspaceSource,
};
use crate::reader::{Fields, Reader, Written};
use crate::runtime::Runtime;
use crate::units::Bytes;
use crate::validate::read_validate;
use crate::variable::{check_name, check_pass, check_value};
use crate::yaml::{Mark, Node, Value};

pub(crate) const FILE_KEYS: [&str; 13] = [
    "version",
    "extends",
    "backend",
    "image",
    "cache",
    "fs",
    "net",
    "credentials",
    "proc",
    "validate",
    "commands",
    "tools",
    "overrides",
];
pub(crate) const BACKEND_KEYS: [&str; 3] = ["use", "fallback", "runtime"];
pub(crate) const IMAGE_KEYS: [&str; 3] = ["name", "pull", "build"];
pub(crate) const FS_KEYS: [&str; 5] = ["workspace", "mounts", "deny", "protect", "size"];
pub(crate) const WORKSPACE_KEYS: [&str; 3] = ["path", "mode", "source"];
pub(crate) const NET_KEYS: [&str; 8] = ["mode", "allow", "deny", "localhost", "unix", "budget", "unknown", "upstream"];
pub(crate) const PROC_KEYS: [&str; 12] = [
    "user",
    "cpus",
    "memory",
    "processes",
    "limits",
    "timeout",
    "max_timeout",
    "grace",
    "output",
    "file_size",
    "open_files",
    "env",
];
pub(crate) const ENV_KEYS: [&str; 2] = ["pass", "set"];
pub(crate) const TOOLS_KEYS: [&str; 1] = ["allow"];
pub(crate) const OVERRIDES_KEYS: [&str; 1] = ["grantable"];

pub(crate) fn read_file(reader: &mut Reader<'_>, node: &Node) -> PolicyFile {
    if node.value == Value::Null {
        reader.report(node.mark, missing_version("the file is empty"));
        return PolicyFile::default();
    }
    let fields = reader.fields(node, "", &FILE_KEYS);
    read_version(reader, node, &fields);
    let (backend, fallback, runtime) = fields.get("backend").map(|node| read_backend(reader, node)).unwrap_or_default();
    let (image, image_pull) = fields.get("image").map(|node| read_image(reader, node)).unwrap_or_default();
    PolicyFile {
        extends: fields.get("extends").and_then(|node| read_extends(reader, node)).unwrap_or_default(),
        backend,
        fallback,
        runtime,
        require_isolation: None,
        image,
        image_pull,
        cache: fields.get("cache").and_then(|node| read_cache(reader, node)),
        fs: fields.get("fs").map(|node| read_fs(reader, node)).unwrap_or_default(),
        net: fields.get("net").map(|node| read_net(reader, node)).unwrap_or_default(),
        credentials: fields.get("credentials").and_then(|node| read_credentials(reader, node)),
        proc: fields.get("proc").map(|node| read_proc(reader, node)).unwrap_or_default(),
        validate: fields.get("validate").map(|node| read_validate(reader, node)).unwrap_or_default(),
        commands: fields.get("commands").and_then(|node| reader.list(node, "commands", read_command)),
        tools: fields.get("tools").and_then(|node| {
            let allow = reader.fields(node, "tools", &TOOLS_KEYS).get("allow")?;
            reader.list(allow, "tools.allow", |reader, node| reader.scalar(node, "tools.allow", parse_tool))
        }),
        grantable: fields.get("overrides").and_then(|node| {
            let grantable = reader.fields(node, "overrides", &OVERRIDES_KEYS).get("grantable")?;
            reader.list(grantable, "overrides.grantable", |reader, node| reader.scalar(node, "grantable", Field::read))
        }),
    }
}

fn missing_version(message: &str) -> Diagnostic {
    Diagnostic::error("policy::version", message).advise("add `version: 1` as its first line")
}

pub(crate) fn read_version(reader: &mut Reader<'_>, node: &Node, fields: &Fields<'_>) {
    match fields.get("version") {
        Some(version) => {
            reader.scalar(version, "version", |text| match text {
                "1" => Ok(()),
                _ => Err(Invalid::new(
                    "policy::version",
                    format!("version {} is not known", quote(text)),
                    "write `version: 1`, the only one that this program reads",
                )),
            });
        }
        None if matches!(node.value, Value::Map(_)) => {
            // The whole file would be underlined; its first byte says enough.
            let mark = Mark { end: node.mark.start, ..node.mark };
            reader.report(mark, missing_version("the file does not say which version of the format it uses"));
        }
        None => {}
    }
}

fn read_extends(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<Written<Preset>>> {
    reader.list(node, "extends", |reader, node| {
        reader.scalar(node, "extends", |text| match text.strip_prefix("preset:") {
            Some(name) => Preset::read(name),
            None if Preset::read(text).is_ok() => Err(Invalid::new(
                "policy::extends",
                format!("{} does not say that it is a preset", quote(text)),
                format!("write `preset:{text}`"),
            )),
            None => Err(Invalid::new(
                "policy::extends",
                format!("{} cannot be extended: only presets can", quote(text)),
                format!("write `preset:NAME`; the presets are {}", list_words(Preset::ALL.map(Named::name))),
            )),
        })
    })
}

type Backend = (Option<Written<BackendChoice>>, Option<Vec<Written<BackendKind>>>, Option<Written<Runtime>>);

fn read_backend(reader: &mut Reader<'_>, node: &Node) -> Backend {
    match &node.value {
        Value::Map(_) => {
            let fields = reader.fields(node, "backend", &BACKEND_KEYS);
            let choice = fields.get("use").and_then(|node| reader.scalar(node, "backend.use", BackendChoice::read));
            let fallback = fields.get("fallback").and_then(|node| {
                reader.list(node, "backend.fallback", |reader, node| {
                    reader.scalar(node, "backend.fallback", BackendKind::read)
                })
            });
            let runtime = fields.get("runtime").and_then(|node| reader.scalar(node, "backend.runtime", str::parse));
            (choice, fallback, runtime)
        }
        _ => (reader.scalar(node, "backend", BackendChoice::read), None, None),
    }
}

type ImageParts = (Option<Written<Image>>, Option<Written<ImagePull>>);

/// A text, or a map. A map with `pull` alone says nothing about which image: so an operator forbids fetching for them all.
fn read_image(reader: &mut Reader<'_>, node: &Node) -> ImageParts {
    if !matches!(node.value, Value::Map(_)) {
        return (reader.scalar(node, "image", str::parse), None);
    }
    let fields = reader.fields(node, "image", &IMAGE_KEYS);
    let pull = fields.get("pull").and_then(|node| reader.scalar(node, "image.pull", ImagePull::read));
    let image = match (fields.get("name"), fields.get("build")) {
        (Some(name), None) => reader.scalar(name, "image.name", str::parse),
        (None, Some(build)) => reader.scalar(build, "image.build", Image::build),
        (None, None) if fields.get("pull").is_some() => None,
        (both, _) => {
            let message = match both {
                Some(_) => "`image` has both a `name` and something to `build`",
                None => "`image` names nothing",
            };
            let advice = "write one of `{ name: \"python:3.14-slim\" }` and `{ build: ./docker }`";
            reader.report(node.mark, Diagnostic::error("policy::image", message).advise(advice));
            None
        }
    };
    (image, pull)
}

pub(crate) fn read_cache(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<Written<CacheKind>>> {
    reader.list(node, "cache", |reader, node| reader.scalar(node, "cache", CacheKind::read))
}

fn parse_tool(text: &str) -> Result<String, Invalid> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(word) {
        let message = format!("{} is not the name of a tool", quote(text));
        return Err(Invalid::new(
            "policy::bad-tool",
            message,
            "use letters, digits, `_`, `-` and `.`; one entry per tool",
        ));
    }
    Ok(text.to_owned())
}

fn read_fs(reader: &mut Reader<'_>, node: &Node) -> FsFile {
    let fields = reader.fields(node, "fs", &FS_KEYS);
    let (workspace, mode, source) = match fields.get("workspace") {
        Some(node) if matches!(node.value, Value::Map(_)) => {
            let fields = reader.fields(node, "fs.workspace", &WORKSPACE_KEYS);
            (
                fields.get("path").and_then(|node| reader.scalar(node, "fs.workspace.path", parse_source)),
                fields.get("mode").and_then(|node| reader.scalar(node, "fs.workspace.mode", WorkspaceMode::read)),
                fields.get("source").and_then(|node| reader.scalar(node, "fs.workspace.source", WorkspaceSource::read)),
            )
        }
        Some(node) => (reader.scalar(node, "fs.workspace", parse_source), None, None),
        None => (None, None, None),
    };
    FsFile {
        workspace,
        mode,
        source,
        mounts: fields.get("mounts").and_then(|node| read_mounts(reader, node)),
        deny: fields.get("deny").and_then(|node| read_globs(reader, node, "fs.deny")),
        protect: fields.get("protect").and_then(|node| read_protect(reader, node)),
        size: fields.get("size").and_then(|node| reader.scalar(node, "fs.size", parse_amount)),
    }
}

fn read_globs(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Vec<Written<Glob>>> {
    reader.list(node, path, |reader, node| reader.scalar(node, path, parse_file_pattern))
}

/// `default` adds nothing: what is protected by default always is.
fn read_protect(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<Written<Glob>>> {
    match &node.value {
        Value::Scalar(text, _) if text == "default" => Some(Vec::new()),
        Value::List(_) => {
            let written = reader.list(node, "fs.protect", |reader, node| {
                reader.scalar(node, "fs.protect", |text| match text {
                    "default" => Ok(None),
                    _ => parse_file_pattern(text).map(Some),
                })
            })?;
            let keep = |entry: Written<Option<Glob>>| {
                let Written { value, place, span } = entry;
                value.map(|value| Written { value, place, span })
            };
            Some(written.into_iter().filter_map(keep).collect())
        }
        _ => {
            reader.wrong_type(
                node,
                "fs.protect",
                "`default` or a list",
                "write `protect: default`, or a list of patterns to add",
            );
            None
        }
    }
}

pub(crate) fn parse_source(text: &str) -> Result<LiteralPath, Invalid> {
    let path: LiteralPath = text.parse()?;
    check_source(path.as_path())?;
    Ok(path)
}

pub(crate) fn parse_target(text: &str) -> Result<LiteralPath, Invalid> {
    let path: LiteralPath = text.parse()?;
    check_target(&path)?;
    Ok(path)
}

pub(crate) fn parse_socket(text: &str) -> Result<LiteralPath, Invalid> {
    let path: LiteralPath = text.parse()?;
    check_socket(path.as_path())?;
    if !path.as_path().is_absolute() {
        let message = format!("{} is relative, but a socket is named from the root", quote(text));
        return Err(Invalid::new("policy::bad-path", message, "write it such as `/run/postgresql/.s.PGSQL.5432`"));
    }
    Ok(path)
}

/// An amount that leaves something to work with.
pub(crate) fn parse_amount(text: &str) -> Result<Bytes, Invalid> {
    match text.parse::<Bytes>()? {
        bytes if bytes.get() == 0 => {
            Err(Invalid::new("policy::out-of-range", "an amount of zero leaves nothing", "write it such as `512MiB`"))
        }
        bytes => Ok(bytes),
    }
}

/// `memory: 512` means 512 bytes, in which nothing runs: the unit was forgotten.
pub(crate) fn parse_memory(text: &str) -> Result<Bytes, Invalid> {
    match parse_amount(text)? {
        bytes if bytes.get() < 1 << 20 => {
            let message = format!("{bytes} of memory is too little to run anything");
            let meant = text.bytes().all(|b| b.is_ascii_digit()).then(|| format!("did you mean `{text}MiB`?"));
            let advice = meant.unwrap_or_else(|| "write at least `1MiB`, such as `512MiB`".to_owned());
            Err(Invalid::new("policy::out-of-range", message, advice))
        }
        bytes => Ok(bytes),
    }
}

pub(crate) fn parse_count(text: &str) -> Result<u32, Invalid> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<u32>().ok().filter(|count| digits && (1..=4_194_304).contains(count)).ok_or_else(|| {
        Invalid::new(
            "policy::out-of-range",
            format!("{} is not a count", quote(text)),
            "write a whole number from 1 to 4194304, such as `256`",
        )
    })
}

fn read_net(reader: &mut Reader<'_>, node: &Node) -> NetFile {
    let fields = reader.fields(node, "net", &NET_KEYS);
    NetFile {
        mode: fields.get("mode").and_then(|node| reader.scalar(node, "net.mode", NetMode::read)),
        allow: fields.get("allow").and_then(|node| reader.list(node, "net.allow", read_allow)),
        deny: fields.get("deny").and_then(|node| reader.list(node, "net.deny", read_deny)),
        localhost: fields.get("localhost").and_then(|node| read_ports(reader, node, "net.localhost")),
        unix: fields.get("unix").and_then(|node| {
            reader.list(node, "net.unix", |reader, node| reader.scalar(node, "net.unix", parse_socket))
        }),
        budget: fields.get("budget").map(|node| {
            let budget = NetBudget::read(reader, node, "net.budget");
            reader.written(node.mark, budget)
        }),
        unknown: fields.get("unknown").and_then(|node| reader.scalar(node, "net.unknown", UnknownHosts::read)),
        upstream: fields.get("upstream").and_then(|node| reader.scalar(node, "net.upstream", str::parse)),
    }
}

pub(crate) fn read_ports(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Vec<Written<u16>>> {
    reader.list(node, path, |reader, node| reader.scalar(node, path, parse_port))
}

pub(crate) fn values<T>(written: Vec<Written<T>>) -> Vec<T> {
    written.into_iter().map(|entry| entry.value).collect()
}

fn read_proc(reader: &mut Reader<'_>, node: &Node) -> ProcFile {
    let fields = reader.fields(node, "proc", &PROC_KEYS);
    let (pass, set) = fields.get("env").map(|node| read_env(reader, node, "proc.env")).unwrap_or_default();
    let mut time = |key: &str, path: &str| fields.get(key).and_then(|node| reader.scalar(node, path, str::parse));
    let timeout = time("timeout", "proc.timeout");
    let max_timeout = time("max_timeout", "proc.max_timeout");
    let grace = time("grace", "proc.grace");
    if let (Some(timeout), Some(max)) = (&timeout, &max_timeout)
        && timeout.value > max.value
        && let Some(node) = fields.get("timeout")
    {
        let message = format!("`timeout` is {}, above `max_timeout`, which is {}", timeout.value, max.value);
        reader.report(
            node.mark,
            Diagnostic::error("policy::timeout-above-max", message)
                .advise(format!("write at most `timeout: {}`, or raise `max_timeout`", max.value)),
        );
    }
    ProcFile {
        user: fields.get("user").and_then(|node| reader.scalar(node, "proc.user", str::parse)),
        cpus: fields.get("cpus").and_then(|node| reader.scalar(node, "proc.cpus", str::parse)),
        memory: fields.get("memory").and_then(|node| reader.scalar(node, "proc.memory", parse_memory)),
        processes: fields.get("processes").and_then(|node| reader.scalar(node, "proc.processes", parse_count)),
        limits: fields.get("limits").and_then(|node| reader.scalar(node, "proc.limits", Firmness::read)),
        timeout,
        max_timeout,
        grace,
        output: fields.get("output").and_then(|node| reader.scalar(node, "proc.output", parse_amount)),
        file_size: fields.get("file_size").and_then(|node| reader.scalar(node, "proc.file_size", parse_amount)),
        open_files: fields.get("open_files").and_then(|node| reader.scalar(node, "proc.open_files", parse_count)),
        pass,
        set,
    }
}

type Env = (Option<Vec<Written<String>>>, Option<Vec<(String, Written<String>)>>);

pub(crate) fn read_env(reader: &mut Reader<'_>, node: &Node, path: &str) -> Env {
    let fields = reader.fields(node, path, &ENV_KEYS);
    let pass = fields.get("pass").and_then(|node| {
        reader.list(node, "proc.env.pass", |reader, node| reader.scalar(node, "proc.env.pass", check_pass))
    });
    let set = fields.get("set").and_then(|node| {
        let Value::Map(entries) = &node.value else {
            reader.wrong_type(node, "proc.env.set", "a map", "write names and values, such as `set: { CI: \"1\" }`");
            return None;
        };
        let read = |(key, node): &(crate::yaml::Key, Node)| match check_name(&key.text) {
            Ok(name) => reader.scalar(node, &format!("proc.env.set.{name}"), check_value).map(|value| (name, value)),
            Err(problem) => {
                reader.report(key.mark, problem);
                None
            }
        };
        Some(entries.iter().filter_map(read).collect())
    });
    (pass, set)
}
