//! One container engine of our own: started in namespaces and folders of its own, ended with everything that it started.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroups;
use super::http::{Body, ask};
use super::image;
use crate::footprint::{keep_apart, open_to_all};
use crate::ordinary_user::ORDINARY;
use crate::step::Failure;

const ENTER: &str = include_str!("enter.sh");
/// The first of the numbers that an ordinary user's containers have on the host, and how many.
const SUBORDINATE: &str = "200000:65536";
/// gVisor of Debian 12 knows no cgroups of this kind, and its network is off as that of every test.
const DAEMON: &str = r#"{"runtimes":{"runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--ignore-cgroups","--network=none","--platform=ptrace"]}}}"#;
/// How long an engine may take until it answers.
const UNTIL_READY: Duration = Duration::from_secs(40);
/// How long it may take to take an image.
const UNTIL_IMPORTED: Duration = Duration::from_secs(120);
/// How long it may take to end by itself; it has no containers then.
const UNTIL_ENDED: Duration = Duration::from_secs(4);
/// How much of its own words a failure shows.
const SHOWN_OF_LOG: u64 = 4000;

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Docker,
    Podman,
}

/// Whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Root,
    /// The user of the step `ordinary-user`, whom the engine's own namespace gives subordinate numbers.
    Ordinary,
}

/// What becomes of its containers' processes when the engine itself ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    EndWithIt,
    /// A test kills it, and looks what it leaves.
    Stay,
}

/// A kind of engine that tests ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) program: Program,
    pub(super) owner: Owner,
    pub(super) fate: Fate,
}

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "docker", program: Program::Docker, owner: Owner::Root, fate: Fate::EndWithIt },
    Kind { name: "podman", program: Program::Podman, owner: Owner::Root, fate: Fate::EndWithIt },
    Kind { name: "podman-rootless", program: Program::Podman, owner: Owner::Ordinary, fate: Fate::EndWithIt },
    Kind { name: "docker-rootless", program: Program::Docker, owner: Owner::Ordinary, fate: Fate::EndWithIt },
    Kind { name: "docker-victim", program: Program::Docker, owner: Owner::Root, fate: Fate::Stay },
    Kind { name: "podman-victim", program: Program::Podman, owner: Owner::Root, fate: Fate::Stay },
];

/// Whether it ends when we do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    WithUs,
    /// Until somebody stops it.
    OnItsOwn,
}

impl Kind {
    /// What the tests know it by, such as `RINGFENCE_TEST_PODMAN_ROOTLESS_HOST`.
    pub(super) fn variable(&self, what: &str) -> String {
        format!("RINGFENCE_TEST_{}_{what}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The backend that `RINGFENCE_TEST_REQUIRE` would name.
    pub(super) fn backend(&self) -> &'static str {
        match self.program {
            Program::Docker => "docker",
            Program::Podman => "podman",
        }
    }

    pub(super) fn socket(&self, parent: &Path) -> PathBuf {
        parent.join(self.name).join("s")
    }

    /// The number of the process that makes its namespaces, as the folder remembers it.
    fn pid_file(&self, parent: &Path) -> PathBuf {
        parent.join(self.name).join("ringfence.pid")
    }

    fn log(&self, parent: &Path) -> PathBuf {
        parent.join(self.name).join("log")
    }
}

/// An engine that was started; ended when dropped, unless it lives on its own.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) kind: Kind,
    parent: PathBuf,
    life: Life,
    child: Child,
    cgroup: String,
}

impl Engine {
    /// Starts it in a folder below `parent` and does not wait.
    pub(super) fn start(kind: Kind, parent: &Path, life: Life) -> Result<Self, Failure> {
        let folder = parent.join(kind.name);
        let failed = |attempt: &str| {
            let attempt = format!("{attempt} for {} in `{}`", kind.name, folder.display());
            move |error: std::io::Error| Failure::io(attempt, &error)
        };
        // Longer names fit into no address of a socket.
        if kind.socket(parent).as_os_str().len() > 100 {
            return Err(Failure::new(format!("`{}` is too long for a socket", folder.display())));
        }
        fs::create_dir(&folder).map_err(failed("make a folder"))?;
        open_to_all(&folder)?;
        for name in ["data", "home", "tmp"] {
            let own = folder.join(name);
            fs::create_dir(&own)
                .and_then(|()| fs::set_permissions(&own, Permissions::from_mode(0o700)))
                .map_err(failed("make folders"))?;
            if kind.owner == Owner::Ordinary {
                chown(&own, Some(ORDINARY), Some(ORDINARY)).map_err(failed("give folders away"))?;
            }
        }
        if kind.owner == Owner::Ordinary {
            // Its socket lies beside them.
            chown(&folder, Some(ORDINARY), Some(ORDINARY)).map_err(failed("give the folder away"))?;
        }
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        for (name, text) in [
            ("enter.sh", ENTER.to_owned()),
            ("daemon.json", DAEMON.to_owned()),
            ("containers.conf", containers_conf(&folder)),
            ("passwd", with_one_more(&known)),
            ("subid", format!("ringfence-test:{SUBORDINATE}\n")),
        ] {
            let file = folder.join(name);
            fs::write(&file, text)
                .and_then(|()| fs::set_permissions(&file, Permissions::from_mode(0o644)))
                .map_err(failed("write its settings"))?;
        }
        let log = File::create(kind.log(parent)).map_err(failed("make its log"))?;
        let also = log.try_clone().map_err(failed("make its log"))?;
        let cgroup = cgroups::name(kind.name, life);
        let mut command = command(kind, &folder, life, &cgroup);
        let child =
            command.stdin(Stdio::null()).stdout(log).stderr(also).spawn().map_err(failed("start namespaces"))?;
        let engine = Self { kind, parent: parent.to_owned(), life, child, cgroup };
        fs::write(kind.pid_file(parent), engine.child.id().to_string()).map_err(failed("remember its number"))?;
        Ok(engine)
    }

    /// Waits until it answers.
    pub(super) fn ready(&mut self) -> Result<(), Failure> {
        let begin = Instant::now();
        let socket = self.kind.socket(&self.parent);
        loop {
            if matches!(ask(&socket, "GET", "/_ping", &Body::Nothing, UNTIL_ENDED), Ok(Ok(_))) {
                break;
            }
            let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || begin.elapsed() > UNTIL_READY {
                let how = if ended { "ended" } else { "does not answer" };
                return Err(self.failed(&format!("{} {how}", self.kind.name)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.kind.owner == Owner::Root && self.kind.program == Program::Docker {
            // As the group `docker` of a usual installation.
            chown(&socket, None, Some(ORDINARY))
                .and_then(|()| fs::set_permissions(&socket, Permissions::from_mode(0o660)))
                .map_err(|error| Failure::io("open the socket of docker to a group", &error))?;
        }
        Ok(())
    }

    /// Gives it the image of the tests.
    pub(super) fn import(&self, archive: &Path) -> Result<(), Failure> {
        let (repository, tag) = image::NAME.split_once(':').unwrap_or((image::NAME, "latest"));
        let target = match self.kind.program {
            Program::Docker => format!("/v1.40/images/create?fromSrc=-&repo={repository}&tag={tag}"),
            // In Docker's own words it would not hear the tag.
            Program::Podman => format!("/v4.0.0/libpod/images/import?reference={}", image::NAME),
        };
        let socket = self.kind.socket(&self.parent);
        match ask(&socket, "POST", &target, &Body::File(archive), UNTIL_IMPORTED) {
            Ok(Ok(_)) => {}
            Ok(Err(answer)) => return Err(self.failed(&format!("{} took no image: {answer}", self.kind.name))),
            Err(error) => return Err(self.failed(&format!("{} took no image: {error}", self.kind.name))),
        }
        let target = format!("/v1.40/images/{}/json", image::NAME);
        match ask(&socket, "GET", &target, &Body::Nothing, UNTIL_ENDED) {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.failed(&format!("{} does not know the image that it was given", self.kind.name))),
        }
    }

    /// The engine's own number on the host, which a test may kill.
    pub(super) fn pid(&self) -> Option<u32> {
        // `unshare`, the shell that is process 1 inside, the engine.
        first_child(first_child(self.child.id())?)
    }

    fn failed(&self, what: &str) -> Failure {
        Failure { what: what.to_owned(), output: end_of(&self.kind.log(&self.parent)) }
    }

    /// Ends it and everything that it started.
    pub(super) fn stop(&mut self) {
        end(self.child.id(), || self.child.try_wait().is_ok_and(|status| status.is_some()));
        // It is dead or dying; nobody else would take leave of it.
        drop(self.child.kill());
        drop(self.child.wait());
        clean(self.kind, &self.parent, &self.cgroup);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.life == Life::WithUs {
            self.stop();
        }
    }
}

/// Ends an engine that an earlier command started, if it still runs.
pub(super) fn stop_remembered(kind: Kind, parent: &Path) {
    let text = fs::read_to_string(kind.pid_file(parent)).unwrap_or_default();
    let Ok(pid) = text.trim().parse::<u32>() else { return };
    let own = parent.join(kind.name).join("enter.sh");
    let is_ours = || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == own.as_os_str().as_encoded_bytes())
    };
    if is_ours() {
        end(pid, || !is_ours());
    }
    clean(kind, parent, &cgroups::name(kind.name, Life::OnItsOwn));
}

/// Asks politely first, so that the engine puts its own things away.
fn end(unshare: u32, is_over: impl FnMut() -> bool) {
    let mut is_over = is_over;
    let Some(first) = first_child(unshare) else { return };
    signal("TERM", first);
    let begin = Instant::now();
    while !is_over() {
        if begin.elapsed() > UNTIL_ENDED {
            // The kernel ends all others of the namespace with its first.
            signal("KILL", first);
            while !is_over() && begin.elapsed() < UNTIL_ENDED * 2 {
                std::thread::sleep(Duration::from_millis(20));
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(name: &str, pid: u32) {
    // One that is gone already is what we want.
    drop(Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status());
}

fn first_child(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Removes the cgroups of its containers, which no namespace takes along.
fn clean(kind: Kind, parent: &Path, cgroup: &str) {
    cgroups::remove(cgroup);
    if kind.program == Program::Podman && kind.owner == Owner::Root {
        let containers = fs::read_dir(parent.join(kind.name).join("data/overlay-containers"));
        let ids =
            containers.into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        cgroups::remove_podmans(&ids.collect::<Vec<_>>());
    }
}

/// The whole command: what ends it with us, its namespaces, its user, itself.
fn command(kind: Kind, folder: &Path, life: Life, cgroup: &str) -> Command {
    let mut command = match life {
        Life::WithUs => {
            let mut command = Command::new("setpriv");
            // The kernel ends it when we are killed, and with it its namespace.
            command.args(["--pdeathsig", "KILL", "--", "unshare"]);
            command
        }
        Life::OnItsOwn => {
            let mut command = Command::new("unshare");
            command.process_group(0);
            command
        }
    };
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--", "sh"]);
    command.arg(folder.join("enter.sh"));
    command.arg(match kind.fate {
        Fate::EndWithIt => "with-engine",
        Fate::Stay => "kept",
    });
    match kind.owner {
        Owner::Root => command.arg("root"),
        Owner::Ordinary => {
            let number = ORDINARY.to_string();
            command.arg(folder);
            command.args(["setpriv", "--reuid", &number, "--regid", &number, "--clear-groups", "--"])
        }
    };
    let socket = format!("unix://{}", folder.join("s").display());
    match (kind.program, kind.owner) {
        (Program::Docker, Owner::Root) => {
            command.arg("dockerd").args(docker_words(folder, &socket));
            command.args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent"]).arg(format!("/{cgroup}"));
        }
        (Program::Docker, Owner::Ordinary) => {
            command.arg("rootlesskit").args(["--state-dir", "/run/engine/kit"]);
            // Its containers have no network, so it needs none to give them.
            command.args(["--net=host", "--copy-up=/etc", "--copy-up=/run", "sh", "-c"]);
            command.arg("rm -f /run/docker /run/containerd /run/xtables.lock; exec dockerd --rootless \"$@\"");
            command.arg("dockerd").args(docker_words(folder, &socket));
        }
        (Program::Podman, _) => {
            command.args(["podman", "--storage-driver", "overlay"]);
            command.args(["--runroot", "/run/engine/podman", "--tmpdir", "/run/engine/libpod", "--root"]);
            command.arg(folder.join("data")).args(["system", "service", "--time=0"]).arg(&socket);
        }
    }
    command.env_clear().current_dir("/");
    keep_apart(&mut command, &folder.join("tmp"), &folder.join("home"));
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("HOME", folder.join("home")).env("XDG_RUNTIME_DIR", "/run/engine");
    command.env("CONTAINERS_CONF", folder.join("containers.conf"));
    command
}

fn docker_words(folder: &Path, socket: &str) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    let words = ["--config-file", &at("daemon.json"), "--data-root", &at("data"), "--exec-root", "/run/engine/docker"];
    // Without a bridge nothing is forwarded. An engine that would change the machine for it ends where it may not, and does so where it may.
    let network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"];
    let more = ["-H", socket, "--pidfile", "/run/engine/docker.pid"].into_iter().chain(network);
    words.into_iter().chain(more).map(str::to_owned).collect()
}

/// Limits that a root without all capabilities may give, and nothing that needs a system around it.
fn containers_conf(folder: &Path) -> String {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let ulimits: Vec<String> = [("nofile", "Max open files"), ("nproc", "Max processes")]
        .into_iter()
        .filter_map(|(name, title)| hard_limit(&limits, title).map(|most| format!("\"{name}={most}:{most}\"")))
        .collect();
    format!(
        "[containers]\ndefault_ulimits = [{}]\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"crun\"\nstatic_dir = \"{}\"\n\
         [engine.runtimes]\nrunsc = [\"/usr/bin/runsc\"]\n",
        ulimits.join(", "),
        folder.join("data/libpod").display()
    )
}

/// The number in the third column; nothing where there is no limit.
fn hard_limit(limits: &str, title: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(title))?.split_whitespace().nth(1)?.parse().ok()
}

/// The host's users, and one of ours with the ordinary number: those who hand out subordinate numbers ask for its name.
fn with_one_more(passwd: &str) -> String {
    let number = ORDINARY.to_string();
    let others = passwd.lines().filter(|line| line.split(':').nth(2) != Some(&number));
    let mut text: String = others.map(|line| format!("{line}\n")).collect();
    text.push_str(&format!("ringfence-test:x:{ORDINARY}:{ORDINARY}::/nonexistent:/bin/sh\n"));
    text
}

fn end_of(log: &Path) -> String {
    let read = || {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_OF_LOG)))?;
        let mut bytes = Vec::new();
        file.take(SHOWN_OF_LOG).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("its log cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinary_number_has_one_name_and_the_others_keep_theirs() {
        let text = with_one_more("root:x:0:0::/root:/bin/sh\nsomebody:x:1000:1000::/home/x:/bin/sh\n");
        assert_eq!(text, "root:x:0:0::/root:/bin/sh\nringfence-test:x:1000:1000::/nonexistent:/bin/sh\n");
    }

    #[test]
    fn a_hard_limit_is_a_number_or_none() {
        let limits = "Max processes             96349                96350                processes \nMax cpu time    unlimited    unlimited   seconds\n";
        assert_eq!(hard_limit(limits, "Max processes"), Some(96350));
        assert_eq!(hard_limit(limits, "Max cpu time"), None);
        assert_eq!(hard_limit(limits, "Max open files"), None);
    }

    #[test]
    fn every_engine_has_a_name_and_a_variable_of_its_own() {
        let mut names: Vec<String> = KINDS.iter().map(|kind| kind.variable("HOST")).collect();
        assert!(names.contains(&"RINGFENCE_TEST_PODMAN_ROOTLESS_HOST".to_owned()));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn every_engine_has_namespaces_of_its_own_and_ends_with_us_unless_it_is_told_otherwise() {
        for kind in KINDS {
            for (life, program) in [(Life::WithUs, "setpriv"), (Life::OnItsOwn, "unshare")] {
                let command = command(*kind, Path::new("/f"), life, "c");
                assert_eq!(command.get_program(), program);
                let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
                assert!(
                    words.iter().any(|word| word == "--pid") && words.iter().any(|word| word == "--kill-child=KILL")
                );
                assert!(words.iter().any(|word| word == "unix:///f/s"), "{words:?}");
            }
        }
    }
}
