//! What a container may be, as typed values, and the one function that makes an engine's options of them.
//!
//! No text of a policy is ever part of an option with a grammar: what is mounted are typed mounts, options of a tmpfs are
//! made of numbers. Podman makes such strings itself from typed mounts, so what its grammar has a meaning for is refused
//! there. [`super::guard`] looks at the finished body again.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountTmpfsOptions, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use ringfence_guest::far;
use serde::Serialize;

use super::address::EngineKind;
use super::cgroup_view::CgroupView;
use super::guard::{self, Violation};
use super::guest_place::GUEST_PLACE;
pub(crate) use super::guest_place::GuestPlace;
use super::labels::Labels;
use super::mounted::{bind, volume};

/// The guest's name in a volume.
pub(crate) const GUEST_NAME: &str = "guest";
/// The kernel ends a sandbox before anything of the host that is as large.
const OOM_SCORE: i64 = 500;
/// The most places that an image declares as volumes.
const MOST_IMAGE_VOLUMES: usize = 64;
/// The most variables of an image that are taken away.
const MOST_VARIABLES: usize = 1024;
/// Where engines and what is below them listen: who may write to one of these is root.
const SOCKETS: [&str; 6] = [
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/systemd/private",
];
/// Podman puts a writable tmpfs without a size at these, when the root is read-only and nothing else is there.
const PODMANS_OWN_TMPFS: [&str; 3] = ["/run", "/tmp", "/var/tmp"];

/// The id of an image or a container's hash: nothing that an engine could take for a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct ImageId(String);

impl ImageId {
    /// `sha256:` and 64 digits; nothing else is an id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_id =
            digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        is_id.then(|| Self(format!("sha256:{digits}")))
    }

    /// With `sha256:` before it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A container to be made.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Spec {
    /// What stands inside, by its id.
    pub(crate) image: ImageId,
    /// The names of the variables that the image sets: they are emptied.
    pub(crate) image_variables: Vec<String>,
    /// The places that the image declares as volumes: they are covered.
    pub(crate) image_volumes: Vec<String>,
    /// Who everything inside is.
    pub(crate) user: User,
    /// What its first process is.
    pub(crate) guest: GuestFrom,
    /// Where that is inside: another place in each container.
    #[serde(skip)]
    pub(crate) guest_at: GuestPlace,
    /// What can be written to.
    pub(crate) tmpfs: Vec<Tmpfs>,
    /// What of the host can be read.
    pub(crate) binds: Vec<ReadOnlyBind>,
    /// What of the engine's own volumes can be read.
    pub(crate) volumes: Vec<ReadOnlyVolume>,
    /// Memory, and no swap beyond it; nothing where the engine cannot keep a limit.
    pub(crate) memory_bytes: Option<u64>,
    /// Billionths of a processor, likewise.
    pub(crate) nano_cpus: Option<u64>,
    /// Processes and threads, the guest among them, likewise.
    pub(crate) processes: Option<u64>,
    /// Open files of each process.
    pub(crate) open_files: u64,
    /// The size of each file.
    pub(crate) file_size: Option<u64>,
    /// The size of `/dev/shm`.
    pub(crate) shared_memory_bytes: u64,
    /// What an engine filters system calls with, when it is not its own filter; JSON. Podman takes none over its API.
    pub(crate) seccomp: Option<String>,
    /// What it shows of cgroups.
    pub(crate) cgroups: CgroupView,
    /// What starts it, when it is not the engine's usual runtime.
    pub(crate) runtime: Option<String>,
    /// What is written on it. Nothing inside depends on it: of two that differ in it alone, one is as good as the other.
    #[serde(skip)]
    pub(crate) labels: Labels,
    /// Its name for itself.
    pub(crate) hostname: String,
    /// The first port of its loopback at which somebody without privileges, as everybody inside is, may listen, where the guest has to
    /// listen at low ones; otherwise it is for the engine to say.
    pub(crate) ports_from: Option<u16>,
    /// Where the engine listens, when that is on this machine: it is never shown inside.
    pub(crate) engine_socket: Option<PathBuf>,
}

/// A user by number: names would be looked up in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct User {
    /// The user, never root.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
}

/// Where the first process comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) enum GuestFrom {
    /// A file of this machine.
    File(PathBuf),
    /// A volume of the engine, with a file `guest` in it.
    Volume(String),
    /// Something of the image, for tests of the walls around it.
    #[cfg(test)]
    Instead(Vec<String>),
}

/// A file system in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Tmpfs {
    /// Where.
    pub(crate) at: PathBuf,
    /// How much it holds.
    pub(crate) bytes: u64,
    /// How many files it holds, where the engine can say so.
    pub(crate) files: u64,
    /// Who may write to it.
    pub(crate) whose: TmpfsOwner,
}

/// Who may write to a tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum TmpfsOwner {
    /// The container's user alone; on Podman, which cannot say so, everybody.
    User,
    /// Everybody, each their own files.
    Everybody,
}

/// A folder or a file of the host that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReadOnlyBind {
    /// On the host, resolved: no link is in it.
    pub(crate) host: PathBuf,
    /// Inside.
    pub(crate) at: PathBuf,
}

/// A volume of ours that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReadOnlyVolume {
    /// What the engine calls it.
    pub(crate) name: String,
    /// Inside.
    pub(crate) at: PathBuf,
}

/// Why a container is not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpecError {
    /// A path cannot be handed to the engine as it is.
    #[error("{path:?} cannot be mounted: {why}")]
    Path {
        /// As it is.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// Root would be root of the engine's machine after the first mistake.
    #[error("a container's user is not root: set `proc.user` to another number")]
    Root,
    /// The engine would hear something else.
    #[error("{what} is not usable for a container: {why}")]
    Value {
        /// Which.
        what: &'static str,
        /// What is wrong, and what to do.
        why: &'static str,
    },
    /// The finished options are not those that we make: a bug, and nothing is started.
    #[error("the options for the engine are not those of a wall")]
    Guard(#[from] Violation),
}

impl Spec {
    /// The engine's options. The only place that makes them.
    pub(crate) fn body(&self, kind: EngineKind) -> Result<ContainerCreateBody, SpecError> {
        let value = |what, why| Err(SpecError::Value { what, why });
        if self.user.uid == 0 || self.user.gid == 0 {
            return Err(SpecError::Root);
        }
        let is_word = |text: &str, others: &str, most: usize| {
            (1..=most).contains(&text.len())
                && text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
        };
        if !is_word(&self.hostname, "-", 63) {
            return value("the host name", "use letters, digits and `-`, 63 at most");
        }
        if self.runtime.as_ref().is_some_and(|runtime| !is_word(runtime, "._-", 64)) {
            return value("the runtime", "name one that the engine knows, such as `runsc`");
        }
        if self.seccomp.is_some() && kind == EngineKind::Podman {
            return value(
                "a filter of system calls",
                "Podman takes none over its API; leave its own, the guest adds ours",
            );
        }
        if self.seccomp.as_ref().is_some_and(|json| serde_json::from_str::<serde_json::Map<_, _>>(json).is_err()) {
            return value("the filter of system calls", "it is a JSON object");
        }
        let mounts = self.mounts(kind)?;
        let (entrypoint, command) = match &self.guest {
            GuestFrom::File(_) => (self.guest_at.as_str().to_owned(), vec![far::ARGUMENT.to_owned()]),
            GuestFrom::Volume(_) => {
                (format!("{}/{GUEST_NAME}", self.guest_at.as_str()), vec![far::ARGUMENT.to_owned()])
            }
            #[cfg(test)]
            GuestFrom::Instead(words) => (words[0].clone(), words[1..].to_vec()),
        };
        let mut security = vec!["no-new-privileges".to_owned()];
        security.extend(self.seccomp.iter().map(|json| format!("seccomp={json}")));
        security.extend(self.cgroups.security_options(kind));
        let host_config = HostConfig {
            network_mode: Some("none".to_owned()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(security),
            masked_paths: self.cgroups.masked_paths(kind),
            readonly_rootfs: Some(true),
            privileged: Some(false),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            // Empty is a namespace of its own; there is no word for it that both engines know.
            pid_mode: Some(String::new()),
            uts_mode: Some(String::new()),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
            auto_remove: Some(true),
            // The guest is process 1, and reaps.
            init: Some(false),
            memory: given(self.memory_bytes, "the memory")?,
            // Memory and swap together: so there is no swap.
            memory_swap: given(self.memory_bytes, "the memory")?,
            nano_cpus: given(self.nano_cpus, "the number of processors")?,
            pids_limit: given(self.processes, "the number of processes")?,
            oom_score_adj: Some(OOM_SCORE),
            shm_size: Some(number(self.shared_memory_bytes, "the size of shared memory")?),
            ulimits: Some(self.ulimits(kind)?),
            tmpfs: Some(self.tmpfs_options(kind)?),
            mounts: Some(mounts),
            sysctls: self.ports_from.map(|port| HashMap::from([(guard::PORTS_FROM.to_owned(), port.to_string())])),
            runtime: self.runtime.clone(),
            ..HostConfig::default()
        };
        let body = ContainerCreateBody {
            image: Some(self.image.as_str().to_owned()),
            user: Some(format!("{}:{}", self.user.uid, self.user.gid)),
            hostname: Some(self.hostname.clone()),
            env: Some(self.environment()?),
            entrypoint: Some(vec![entrypoint]),
            cmd: Some(command),
            working_dir: Some("/".to_owned()),
            labels: Some(self.labels.as_map()),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            // Who was attached is gone, so is the input: the guest ends when we are killed.
            stdin_once: Some(true),
            tty: Some(false),
            network_disabled: Some(true),
            healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
            stop_signal: Some("SIGKILL".to_owned()),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        guard::check(&body)?;
        Ok(body)
    }

    /// An engine adds the image's variables to what it is told, and cannot be told to leave one out: `NAME` alone would be
    /// the engine's own value on Podman.
    fn environment(&self) -> Result<Vec<String>, SpecError> {
        let is_name = |name: &String| {
            !name.is_empty() && name.len() <= 256 && !name.contains(|c: char| c == '=' || c.is_control())
        };
        if self.image_variables.len() > MOST_VARIABLES || !self.image_variables.iter().all(is_name) {
            let why = "it sets variables that have no usable name, or too many; use another image";
            return Err(SpecError::Value { what: "the image", why });
        }
        Ok(self.image_variables.iter().map(|name| format!("{name}=")).collect())
    }

    fn ulimits(&self, kind: EngineKind) -> Result<Vec<ResourcesUlimits>, SpecError> {
        let limit = |name: &str, value: i64| ResourcesUlimits {
            name: Some(name.to_owned()),
            soft: Some(value),
            hard: Some(value),
        };
        let mut limits = vec![limit("core", 1), limit("nofile", number(self.open_files, "the number of open files")?)];
        if let Some(bytes) = self.file_size {
            limits.push(limit("fsize", number(bytes, "the size of a file")?));
        }
        if kind == EngineKind::Podman {
            // Unless it is told otherwise, Podman asks for more than its own machine may permit. It counts all processes of
            // the user on that machine; what holds is the limit above.
            limits.push(limit("nproc", number(self.processes.unwrap_or(0).max(4096), "the number of processes")?));
        }
        Ok(limits)
    }

    fn tmpfs_options(&self, kind: EngineKind) -> Result<HashMap<String, String>, SpecError> {
        let mut all = HashMap::new();
        for tmpfs in &self.tmpfs {
            let at = place(&tmpfs.at, kind)?;
            let refuse = |why| Err(SpecError::Path { path: tmpfs.at.clone(), why });
            // Both engines have a short form `PATH:OPTIONS`.
            if at.contains(':') {
                return refuse("a tmpfs cannot be at a path with `:`; choose another");
            }
            if tmpfs.bytes == 0 || tmpfs.files == 0 {
                return refuse("a tmpfs without a size has no limit; give it one");
            }
            let common = format!("rw,nosuid,nodev,exec,size={}", tmpfs.bytes);
            let options = match (kind, tmpfs.whose) {
                (EngineKind::Docker, TmpfsOwner::User) => {
                    let User { uid, gid } = self.user;
                    format!("{common},nr_inodes={},mode=0700,uid={uid},gid={gid}", tmpfs.files)
                }
                (EngineKind::Docker, TmpfsOwner::Everybody) => format!("{common},nr_inodes={},mode=1777", tmpfs.files),
                (EngineKind::Podman, _) => format!("{common},mode=1777,notmpcopyup"),
            };
            if all.insert(at, options).is_some() {
                return refuse("two things cannot be in one place; leave one out");
            }
        }
        if kind == EngineKind::Podman {
            for at in PODMANS_OWN_TMPFS {
                // One page, and nothing for anybody but root, who is not here.
                let options = || "rw,nosuid,nodev,noexec,size=4096,mode=0755,notmpcopyup".to_owned();
                if !self.binds.iter().any(|bind| bind.at == Path::new(at)) {
                    all.entry(at.to_owned()).or_insert_with(options);
                }
            }
        }
        Ok(all)
    }

    fn mounts(&self, kind: EngineKind) -> Result<Vec<Mount>, SpecError> {
        let mut taken: HashSet<PathBuf> = self.tmpfs.iter().map(|tmpfs| tmpfs.at.clone()).collect();
        let mut mounts = Vec::new();
        match &self.guest {
            GuestFrom::File(path) => {
                mounts.push(bind(written(path, kind)?, self.guest_at.as_str().to_owned()));
            }
            GuestFrom::Volume(name) => mounts.push(volume(name, self.guest_at.as_str().to_owned())?),
            #[cfg(test)]
            GuestFrom::Instead(_) => {}
        }
        for wanted in &self.binds {
            self.check_source(&wanted.host)?;
            let at = place(&wanted.at, kind)?;
            if !taken.insert(wanted.at.clone()) {
                let why = "two things cannot be in one place; leave one out";
                return Err(SpecError::Path { path: wanted.at.clone(), why });
            }
            mounts.push(bind(written(&wanted.host, kind)?, at));
        }
        for wanted in &self.volumes {
            let at = place(&wanted.at, kind)?;
            if !taken.insert(wanted.at.clone()) {
                let why = "two things cannot be in one place; leave one out";
                return Err(SpecError::Path { path: wanted.at.clone(), why });
            }
            mounts.push(volume(&wanted.name, at)?);
        }
        // What an image declares as a volume would be a writable folder on the engine's disk, without a limit.
        if self.image_volumes.len() > MOST_IMAGE_VOLUMES {
            return Err(SpecError::Value { what: "the image", why: "it declares too many volumes; use another image" });
        }
        for volume in &self.image_volumes {
            let path = PathBuf::from(volume);
            let at = place(&path, kind)?;
            if taken.insert(path) {
                mounts.push(Mount {
                    typ: Some(MountType::TMPFS),
                    target: Some(at),
                    read_only: Some(true),
                    tmpfs_options: Some(MountTmpfsOptions { size_bytes: Some(4096), mode: Some(0o555), options: None }),
                    ..Mount::default()
                });
            }
        }
        Ok(mounts)
    }

    /// The way to an engine is never shown, nor a folder above it.
    fn check_source(&self, host: &Path) -> Result<(), SpecError> {
        let resolved = match host.strip_prefix("/var/run") {
            Ok(rest) => Path::new("/run").join(rest),
            Err(_) => host.to_owned(),
        };
        let mut sockets = SOCKETS.iter().map(Path::new).chain(self.engine_socket.as_deref());
        let is_socket =
            |name: &std::ffi::OsStr| name == "docker.sock" || name == "podman.sock" || name == "containerd.sock";
        let leads_there = sockets.any(|socket| socket.starts_with(&resolved) || socket.starts_with(host));
        if leads_there || host.file_name().is_some_and(is_socket) || host == Path::new("/var") {
            let why = "it leads to the container engine, and who can talk to that is root; mount a folder below it";
            return Err(SpecError::Path { path: host.to_owned(), why });
        }
        Ok(())
    }
}

/// A limit, where the engine keeps one.
fn given(value: Option<u64>, what: &'static str) -> Result<Option<i64>, SpecError> {
    value.map(|value| number(value, what)).transpose()
}

fn number(value: u64, what: &'static str) -> Result<i64, SpecError> {
    // Zero means "no limit" to an engine.
    match i64::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(SpecError::Value { what, why: "it is at least 1, and not beyond all measure" }),
    }
}

/// A path as an engine of `kind` can be told it.
fn written(path: &Path, kind: EngineKind) -> Result<String, SpecError> {
    let refuse = |why| SpecError::Path { path: path.to_owned(), why };
    let text =
        path.to_str().ok_or_else(|| refuse("its name is no UTF-8, and engines are spoken to in JSON; rename it"))?;
    if text.len() > 4096 || text.contains(char::is_control) {
        return Err(refuse("it is too long, or holds control characters; rename it"));
    }
    // Component by component it must be what it was: `//`, `.` and a slash at the end are engine's to interpret.
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    if !plain {
        return Err(refuse("it is not a plain path from `/` on; write it without `.`, `..` and doubled slashes"));
    }
    if kind == EngineKind::Podman && text.contains([',', '"', '\\', '\'']) {
        return Err(refuse("Podman would take `,`, quotes and `\\` in it for options; rename it, or use docker"));
    }
    Ok(text.to_owned())
}

/// A place inside, where something may be mounted.
fn place(path: &Path, kind: EngineKind) -> Result<String, SpecError> {
    let text = written(path, kind)?;
    let refuse = |why| Err(SpecError::Path { path: path.to_owned(), why });
    let at = |folder: &str| path.starts_with(folder);
    if path == Path::new("/") {
        return refuse("nothing can be mounted over everything; name a folder");
    }
    if at("/proc") || at("/sys") || at("/dev") {
        return refuse("what the kernel shows cannot be covered; choose another place");
    }
    if text.starts_with(GUEST_PLACE) {
        return refuse("the guest may be there; choose another place");
    }
    Ok(text)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
pub(super) mod tests;
