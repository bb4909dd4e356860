//! Paths that mean themselves, and globs that match paths. Different types, so that neither is taken for the other.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Component, Path};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use globset::{GlobBuilder, GlobMatcher};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::diagnostic::{Invalid, quote};
use crate::shape::Shape;

const BAD_PATH: &str = "policy::bad-path";
const BAD_GLOB: &str = "policy::bad-glob";
pub(crate) const FORBIDDEN_PATH: &str = "policy::forbidden-path";
const MAX_PATH: usize = 4096;
const MAX_GLOB: usize = 1024;
/// A longer glob, or one with alternatives, is compiled when it loads: it is the kind that may fail to compile.
const PLAIN_GLOB: usize = 128;

/// A path that means exactly itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LiteralPath(Arc<str>);

impl LiteralPath {
    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path as written.
    pub fn as_path(&self) -> &Path {
        Path::new(&*self.0)
    }
}

impl FromStr for LiteralPath {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        check_text(text, BAD_PATH, MAX_PATH)?;
        if text.contains(['*', '?', '[', '{']) {
            return Err(Invalid::new(
                BAD_PATH,
                format!("{} looks like a pattern, but a path here means exactly itself", quote(text)),
                "name one folder or file; patterns belong under `fs.deny` and `fs.protect`",
            ));
        }
        if text.starts_with('~') || text.starts_with('$') {
            return Err(Invalid::new(
                BAD_PATH,
                format!("{} is not expanded: there is no shell here", quote(text)),
                "write the path out, such as `/home/me/deps`, or relative to this file, such as `./deps`",
            ));
        }
        if Path::new(text).components().any(|part| part == Component::ParentDir) {
            return Err(Invalid::new(
                BAD_PATH,
                format!("{} goes up with `..`", quote(text)),
                "write the absolute path",
            ));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for LiteralPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Folders whose contents belong to the kernel or to the machine's services.
const KERNEL_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Whoever reaches one of these controls every container of the machine, and so the machine.
const ENGINE_FOLDERS: [&str; 9] = [
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/buildkit",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
];
const ENGINE_SOCKETS: [&str; 6] =
    ["docker.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock", "cri-dockerd.sock"];

/// Whether `path` may be shown inside a sandbox.
///
/// The planner asks again with the resolved path: a link may lead to what its name does not say.
pub fn check_source(path: &Path) -> Result<(), Invalid> {
    let shown = quote(&path.to_string_lossy());
    let refuse = |what: &str, advice: &str| Err(Invalid::new(FORBIDDEN_PATH, format!("{shown} {what}"), advice));
    if path.has_root() && path.components().count() == 1 {
        return refuse("is the whole host", "name the folder that the program needs");
    }
    if KERNEL_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return refuse("belongs to the host's kernel", "remove it; the sandbox has its own /proc and /dev");
    }
    if path == Path::new("/run") || path == Path::new("/var/run") {
        return refuse("holds the sockets of the host's services", "name the one folder in it that the program needs");
    }
    let unaliased =
        path.strip_prefix("/var/run").map_or(Cow::Borrowed(path), |rest| Path::new("/run").join(rest).into());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if ENGINE_SOCKETS.contains(&name) || ENGINE_FOLDERS.iter().any(|folder| unaliased.starts_with(folder)) {
        return refuse(
            "controls the container engine, and with it the host",
            "remove it; nothing that runs inside may start containers of its own",
        );
    }
    Ok(())
}

/// Where those listen who speak for the machine or for whoever is logged in: buses, service managers, screens, keys.
const AGENT_FOLDERS: [&str; 14] = [
    "/run/dbus",
    "/run/systemd",
    "/run/libvirt",
    "/run/snapd",
    "/run/snapd.socket",
    "/run/lxd",
    "/run/incus",
    "/run/udev",
    "/var/lib/lxd",
    "/var/lib/incus",
    "/run/screen",
    "/run/tmux",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
];
/// Likewise, whatever folder they lie in; each is the beginning of a name.
const AGENT_SOCKETS: [&str; 22] = [
    "S.gpg-agent",
    "S.scdaemon",
    "S.keyboxd",
    "S.dirmngr",
    "agent.",
    "ssh-agent",
    "ssh_auth_sock",
    "system_bus_socket",
    "session_bus_socket",
    "libvirt-sock",
    "wayland-",
    "pipewire-",
    "snapd",
    "io.systemd.",
    "kubelet.sock",
    "sway-ipc.",
    "ipc-socket.",
    ".socket.sock",
    "vscode-",
    "nvim.",
    "kitty",
    "git-fsmonitor",
];
/// And what these folders hold, wherever they are.
const AGENT_PARENTS: [&str; 9] = ["keyring", "gnupg", ".gnupg", "gcr", "pulse", ".ssh", "emacs", "hypr", "i3"];
/// Likewise, where the rest of the folder's name is the number of its user: terminals that run what is typed into them.
const AGENT_PARENTS_BEGIN: [&str; 3] = ["tmux-", "emacs", "screen-"];

/// Whether `path`, a socket of the host, may be shown inside a sandbox.
pub fn check_socket(path: &Path) -> Result<(), Invalid> {
    check_source(path)?;
    let unaliased =
        path.strip_prefix("/var/run").map_or(Cow::Borrowed(path), |rest| Path::new("/run").join(rest).into());
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    let is_in = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
    // What lies directly in the folder of a user's session, under names that are used elsewhere as well.
    let is_session_bus = name == "bus" && unaliased.starts_with("/run/user");
    if AGENT_FOLDERS.iter().any(|folder| unaliased.starts_with(folder))
        || AGENT_SOCKETS.iter().any(|beginning| name.starts_with(beginning))
        || AGENT_PARENTS.iter().any(|folder| is_in(folder))
        || path.parent().into_iter().flat_map(Path::components).any(|part| {
            let part = part.as_os_str().to_string_lossy();
            AGENT_PARENTS_BEGIN.iter().any(|beginning| part.starts_with(beginning))
        })
        || (is_in("systemd") && unaliased.starts_with("/run/user"))
        || is_session_bus
    {
        return Err(Invalid::new(
            FORBIDDEN_PATH,
            format!("{} speaks for the machine or for its user", quote(&path.to_string_lossy())),
            "remove it; whoever reaches it acts with all that its owner may do",
        ));
    }
    Ok(())
}

/// Whether something may be mounted at `path` inside a sandbox.
pub(crate) fn check_target(path: &LiteralPath) -> Result<(), Invalid> {
    let path = path.as_path();
    let shown = quote(&path.to_string_lossy());
    if !path.is_absolute() {
        let message = format!("{shown} is relative, but it names a place inside the sandbox");
        return Err(Invalid::new(BAD_PATH, message, "write it from the root, such as `/deps`"));
    }
    if path.components().count() == 1 {
        let message = format!("nothing may be mounted over the sandbox's {shown}");
        return Err(Invalid::new(FORBIDDEN_PATH, message, "mount below it, such as at `/deps`"));
    }
    if KERNEL_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        let message = format!("nothing may be mounted at {shown}: the sandbox's own stands there");
        return Err(Invalid::new(FORBIDDEN_PATH, message, "mount elsewhere, such as at `/deps`"));
    }
    Ok(())
}

/// A pattern over paths: `*` within one name, `**` over any number of folders, `?`, `[a-z]`, `{a,b}`.
///
/// Matches bytes, so a name that is not UTF-8 or holds a newline is matched like any other.
#[derive(Clone)]
pub struct Glob(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
    shape: Option<Shape>,
    /// For what the shape cannot tell. Made when it is first needed: it costs far more than the shape, and most loads
    /// never match.
    matcher: OnceLock<Option<GlobMatcher>>,
}

impl Glob {
    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether the pattern matches all of `path`.
    pub fn matches(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        if let Some(matched) =
            self.0.shape.as_ref().and_then(|shape| shape.matches(path.as_os_str().as_encoded_bytes()))
        {
            return matched;
        }
        let matcher = self.0.matcher.get_or_init(|| compile(&self.0.text));
        // `None` cannot be: what may fail to compile was compiled at load. If it were, a deny rule must still deny.
        matcher.as_ref().is_none_or(|matcher| matcher.is_match(path))
    }

    /// Whether it could match a path whose last name is `name`, or all below such a folder. Quick, and never wrongly no.
    pub fn may_end_in(&self, name: impl AsRef<OsStr>) -> bool {
        self.0.shape.as_ref().is_none_or(|shape| shape.may_end_in(name.as_ref().as_encoded_bytes()))
    }

    /// Compiles now, so that a pattern which cannot be compiled is refused.
    pub(crate) fn compiled(self) -> Result<Self, Invalid> {
        match self.0.matcher.get_or_init(|| compile(&self.0.text)) {
            Some(_) => Ok(self),
            None => Err(Invalid::new(BAD_GLOB, format!("{} is too complex", quote(&self.0.text)), "split it in two")),
        }
    }
}

fn parse(text: &str) -> Result<globset::Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}

fn compile(text: &str) -> Option<GlobMatcher> {
    let glob = parse(text).ok()?;
    // `compile_matcher` panics on a pattern that the regex engine refuses; a set reports it.
    let set = globset::GlobSetBuilder::new().add(glob.clone()).build();
    set.is_ok().then(|| glob.compile_matcher())
}

/// A pattern for files. It is held against paths below the workspace: one that is written otherwise would match nothing, and
/// deny nothing.
pub(crate) fn parse_file_pattern(text: &str) -> Result<Glob, Invalid> {
    let (problem, instead) = if text.starts_with('/') {
        ("begins with `/`", "write it from the workspace on, such as `secrets/key`, or `**/key` for any depth")
    } else if text.starts_with('~') {
        ("begins with `~`", "write it from the workspace on; a home outside of it is never shown")
    } else if text.ends_with('/') {
        ("ends with `/`", "write the folder's name alone: what is in it is meant, too")
    } else if !text.is_empty() && text.split('/').any(|part| matches!(part, "." | ".." | "")) {
        ("has a part `.` or `..`, or an empty one", "write plain names, such as `secrets/key`")
    } else {
        return text.parse();
    };
    Err(Invalid::new(BAD_GLOB, format!("{} {problem}, so it would match nothing", quote(text)), instead))
}

impl FromStr for Glob {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        check_text(text, BAD_GLOB, MAX_GLOB)?;
        let shape = Shape::of(text);
        // What has a shape is made of plain names and stars, and is a pattern.
        if shape.is_none() {
            parse(text).map_err(|error| {
                let message = format!("{} is not a pattern: {}", quote(text), error.kind());
                Invalid::new(BAD_GLOB, message, "write it such as `**/.env` or `secrets/*.key`")
            })?;
        }
        let glob = Self(Arc::new(Compiled { text: text.into(), shape, matcher: OnceLock::new() }));
        if text.len() > PLAIN_GLOB || text.contains('{') { glob.compiled() } else { Ok(glob) }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Glob").field(&self.0.text).finish()
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Glob {}

impl Hash for Glob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.text)
    }
}

fn check_text(text: &str, code: &'static str, longest: usize) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(code, "the path is empty", "name a folder or a file"));
    }
    if text.len() > longest {
        return Err(Invalid::new(
            code,
            format!("the path has {} bytes", text.len()),
            format!("at most {longest} are read"),
        ));
    }
    if let Some(c) = text.chars().find(|c| c.is_control()) {
        let message = format!("{} holds the control character {:?}", quote(text), c);
        return Err(Invalid::new(code, message, "a pattern may match such names with `?`"));
    }
    Ok(())
}

impl JsonSchema for LiteralPath {
    fn schema_name() -> Cow<'static, str> {
        "LiteralPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A path that means exactly itself; no patterns, no `..`, no `~`",
            "type": "string",
            "minLength": 1,
            "pattern": r"^[^*?\[{~$][^*?\[{]*$"
        })
    }
}

impl JsonSchema for Glob {
    fn schema_name() -> Cow<'static, str> {
        "Glob".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A pattern over paths: `*` within one name, `**` over folders, `?`, `[a-z]`, `{a,b}`",
            "type": "string",
            "minLength": 1
        })
    }
}
