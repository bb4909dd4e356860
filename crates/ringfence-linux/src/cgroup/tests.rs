use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const LIMITS: Limits = Limits { memory: Some(64 << 20), processes: Some(8), cpu_millis: Some(500) };

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    name_for(&format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// The hierarchy of this machine; a loud skip where it has none for us.
fn here() -> Option<Hierarchy> {
    match probe() {
        Ok(hierarchy) => Some(hierarchy),
        Err(Unavailable { reason, fix }) => {
            assert!(!rustix::process::geteuid().is_root() || !fs::exists("/sys/fs/cgroup/memory").unwrap(), "{reason}");
            eprintln!("SKIPPED: no cgroup for this user here: {reason}; {fix}");
            None
        }
    }
}

/// A shell that waits for a line, so that it can be put in place before it does anything.
fn waiting_shell(script: &str) -> Child {
    let script = format!("read go; {script}");
    Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn go(shell: &mut Child) {
    use std::io::Write;
    shell.stdin.take().unwrap().write_all(b"\n").unwrap();
}

fn pid_of(child: &Child) -> i32 {
    child.id().try_into().unwrap()
}

fn assert_gone(folders: &[PathBuf]) {
    for folder in folders {
        assert!(!folder.exists(), "{} is left over", folder.display());
    }
}

fn folders_of(cgroup: &Cgroup) -> Vec<PathBuf> {
    cgroup.folders().map(Path::to_owned).collect()
}

#[test]
fn cgroup_kills_inside_only_when_memory_runs_out_and_the_kernel_counts_it() {
    let Some(hierarchy) = here() else { return };
    let cgroup = hierarchy.create(&unique_name(), &LIMITS).unwrap();
    let folders = folders_of(&cgroup);
    let mut shell = waiting_shell("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}");
    cgroup.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    shell.wait().unwrap();
    let usage = cgroup.usage().unwrap();
    assert!(usage.oom_kills >= 1, "{usage:?}");
    assert!(usage.memory_peak.is_none_or(|peak| peak > 32 << 20 && peak <= 64 << 20), "{usage:?}");
    drop(cgroup);
    assert_gone(&folders);

    // The twin: with room enough nothing is killed.
    let cgroup = hierarchy.create(&unique_name(), &Limits { memory: Some(2 << 30), ..LIMITS }).unwrap();
    let mut shell = waiting_shell("x=$(head -c 2000000 /dev/zero | tr '\\0' x); exit 7");
    cgroup.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    assert_eq!(shell.wait().unwrap().code(), Some(7));
    assert_eq!(cgroup.usage().unwrap().oom_kills, 0);
    cgroup.remove().unwrap();
}

#[test]
fn cgroup_stops_a_fork_bomb_counts_it_and_kills_what_is_left() {
    let Some(hierarchy) = here() else { return };
    let cgroup = hierarchy.create(&unique_name(), &LIMITS).unwrap();
    let folders = folders_of(&cgroup);
    let mut shell = waiting_shell("bomb() { bomb | bomb & }; while :; do bomb; sleep 0.01; done");
    cgroup.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    let start = std::time::Instant::now();
    while cgroup.usage().unwrap().pids_limit_hits == 0 {
        assert!(start.elapsed().as_secs() < 20, "the limit was never reached: {:?}", cgroup.usage());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(cgroup.usage().unwrap().processes_now <= 8);
    cgroup.kill().unwrap();
    shell.wait().unwrap();
    cgroup.remove().unwrap();
    assert_gone(&folders);
}

#[test]
fn cgroup_that_is_dropped_kills_and_leaves_nothing() {
    let Some(hierarchy) = here() else { return };
    let cgroup = hierarchy.create(&unique_name(), &LIMITS).unwrap();
    let folders = folders_of(&cgroup);
    assert!(folders.iter().all(|folder| folder.exists()));
    let mut shell = waiting_shell("sleep 1000 & sleep 1000");
    cgroup.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    drop(cgroup);
    assert!(!shell.wait().unwrap().success());
    assert_gone(&folders);
}

#[test]
fn cgroup_whose_limit_cannot_be_set_is_not_made_and_leaves_nothing() {
    let Some(hierarchy) = here() else { return };
    for limits in [
        Limits { cpu_millis: Some(1), ..LIMITS },
        Limits { memory: Some(0), ..LIMITS },
        Limits { processes: Some(u64::MAX), ..LIMITS },
    ] {
        let name = unique_name();
        hierarchy.create(&name, &limits).expect_err("a limit that the kernel cannot keep");
        let left: Vec<_> = hierarchy.places.iter().map(|place| place.parent().join(&name)).collect();
        assert_gone(&left);
    }
}

#[test]
fn cgroup_is_refused_a_name_that_no_sweep_could_find() {
    let Some(hierarchy) = here() else { return };
    for name in ["", "..", "x", "../rf-1-2-3-x", "rf-1-2-3-a/b", "rf-1-2-3-"] {
        let error = hierarchy.create(name, &LIMITS).expect_err(name);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
    let name = unique_name();
    let first = hierarchy.create(&name, &LIMITS).unwrap();
    assert_eq!(hierarchy.create(&name, &LIMITS).expect_err("taken").kind(), io::ErrorKind::AlreadyExists);
    assert!(first.folders().all(Path::exists), "the second one removed what it had not made");
}

#[test]
fn cgroup_sweep_removes_what_the_dead_left_and_nothing_else() {
    let Some(hierarchy) = here() else { return };
    let us = Supervisor::current().unwrap();
    let dead = Name { supervisor: Supervisor { started: us.started + 1, ..us }, run: "sweep".into() }.to_string();
    let left = hierarchy.create(&dead, &LIMITS).unwrap();
    let left_folders = folders_of(&left);
    let mut shell = waiting_shell("sleep 1000 & sleep 1000");
    left.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    // As after a SIGKILL of its supervisor: nothing is dropped.
    std::mem::forget(left);
    let living = hierarchy.create(&unique_name(), &LIMITS).unwrap();

    // Only what this test made, because others run at the same time.
    let swept = sweep(&hierarchy, |name| name != dead || is_supervisor_alive(name)).unwrap();
    assert_eq!(swept, 1);
    assert_gone(&left_folders);
    assert!(!shell.wait().unwrap().success());
    assert!(living.folders().all(Path::exists));
}

/// The tree of this machine's v2 side has no controllers, but folders, counters and killing are the same.
#[test]
fn cgroup_of_version_two_is_killed_at_once() {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts::find(&mountinfo, &fs::read_to_string("/proc/self/cgroup").unwrap());
    let own = mounts.iter().find(|mount| mount.version == Version::Two).and_then(Mount::own_folder);
    let Some(own) = own.filter(|own| folder::may_write(own).is_ok()) else {
        eprintln!("SKIPPED: no cgroup v2 folder here that this user can write");
        return;
    };
    let hierarchy = Hierarchy { places: vec![Place::V2 { controllers: Vec::new(), parent: v2::Parent::Ready(own) }] };
    let cgroup = hierarchy.create(&unique_name(), &LIMITS).unwrap();
    let folders = folders_of(&cgroup);
    assert!(cgroup.folder_fd().is_some());
    let mut shell = waiting_shell("sleep 1000 & sleep 1000 & wait");
    cgroup.add(pid_of(&shell)).unwrap();
    go(&mut shell);
    cgroup.kill().unwrap();
    assert!(!shell.wait().unwrap().success());
    cgroup.remove().unwrap();
    assert_gone(&folders);
}

/// A tree of files that looks like a machine with cgroup v2, where the process lies in `own`.
struct Fake {
    root: tempfile::TempDir,
}

impl Fake {
    fn new(own: &str) -> Self {
        let fake = Self { root: tempfile::tempdir().unwrap() };
        fake.write("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        fake.write("proc/self/cgroup", &format!("0::{own}\n"));
        fake.write("proc/swaps", "Filename Type Size Used Priority\n");
        fake
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn folder(&self, path: &str, available: &str, enabled: &str) {
        let path = format!("sys/fs/cgroup/{path}");
        self.write(&format!("{path}/cgroup.controllers"), available);
        self.write(&format!("{path}/cgroup.subtree_control"), enabled);
        self.write(&format!("{path}/cgroup.procs"), "");
    }

    fn probe(&self) -> Result<v2::Parent, Unavailable> {
        match probe_below(self.root.path())?.places.as_slice() {
            [Place::V2 { parent, .. }] => Ok(parent.clone()),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&self) -> String {
        self.probe().unwrap_err().reason.replace(self.root.path().to_str().unwrap(), "")
    }
}

const SCOPE: &str = "user.slice/user@1000.service/app.slice/run-1.scope";
const SLICE: &str = "user.slice/user@1000.service/app.slice";

#[test]
fn cgroup_v2_takes_the_delegated_parent_of_our_own_scope() {
    let fake = Fake::new(&format!("/{SCOPE}"));
    fake.folder("", "cpu io memory pids", "cpu io memory pids");
    fake.folder(SLICE, "cpu memory pids", "cpu memory pids\n");
    fake.folder(SCOPE, "cpu memory pids", "");
    assert_eq!(fake.probe(), Ok(v2::Parent::Ready(fake.path(&format!("sys/fs/cgroup/{SLICE}")))));
}

#[test]
fn cgroup_v2_without_a_controller_in_the_parent_goes_to_the_root_or_says_which_is_missing() {
    let fake = Fake::new(&format!("/{SCOPE}"));
    fake.folder("", "cpu io memory pids", "cpu io memory pids");
    fake.folder(SLICE, "memory pids", "memory pids");
    assert_eq!(fake.probe(), Ok(v2::Parent::Group { root: fake.path("sys/fs/cgroup/") }));

    fake.folder("", "memory pids", "memory pids");
    assert_eq!(
        fake.refusal(),
        "/sys/fs/cgroup/user.slice/user@1000.service/app.slice/cgroup.subtree_control does not list cpu; \
         /sys/fs/cgroup/cgroup.controllers does not list cpu"
    );
    assert!(fake.probe().unwrap_err().fix.contains("systemd-run --user --scope -p Delegate=yes"));
}

#[test]
fn cgroup_v2_root_of_a_container_is_not_taken_for_the_true_root() {
    let fake = Fake::new("/");
    fake.folder("", "cpu memory pids", "");
    assert!(fake.probe().is_ok());
    fake.write("sys/fs/cgroup/cgroup.type", "domain\n");
    assert_eq!(
        fake.refusal(),
        "/sys/fs/cgroup/cgroup.subtree_control does not list memory, pids, cpu, and cannot be changed while \
         processes lie beside it"
    );
}

#[test]
fn cgroup_probe_without_any_mount_says_so() {
    let fake = Fake::new("/");
    fake.write("proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n");
    assert_eq!(fake.refusal(), "no cgroup file system is mounted");
}

#[test]
fn cgroup_v1_that_swaps_without_counting_swap_is_refused() {
    let fake = Fake::new("/");
    fake.write("proc/self/mountinfo", "1 1 0:1 / /cg rw - cgroup cgroup rw,memory,pids,cpu,cpuacct\n");
    fake.write("proc/self/cgroup", "1:cpu,cpuacct,memory,pids:/\n");
    fs::create_dir(fake.path("cg")).unwrap();
    assert!(probe_below(fake.root.path()).is_ok());
    fake.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
    assert_eq!(fake.refusal(), "this machine swaps, but /cg has no memory.memsw.limit_in_bytes");
    fake.write("cg/memory.memsw.limit_in_bytes", "0");
    assert!(probe_below(fake.root.path()).is_ok());
}

/// A made folder as the kernel would fill it, which a plain file system does not.
fn fake_part(fake: &Fake, name: &str) -> Part {
    let parent = fake.path("sys/fs/cgroup");
    for (file, text) in [
        ("cgroup.procs", ""),
        ("memory.max", "max\n"),
        ("memory.swap.max", "max\n"),
        ("memory.peak", "4096\n"),
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n"),
        ("pids.max", "max\n"),
        ("pids.current", "3\n"),
        ("pids.events", "max 5\n"),
        ("cpu.max", "max 100000\n"),
        ("cpu.stat", "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"),
    ] {
        fake.write(&format!("sys/fs/cgroup/{name}/{file}"), text);
    }
    let folder = Folder::adopt(&parent, name).unwrap();
    Part { version: Version::Two, controllers: Controller::NEEDED.into(), folder }
}

#[test]
fn cgroup_v2_files_get_the_limits_and_give_the_counters() {
    let fake = Fake::new("/");
    let part = fake_part(&fake, "rf-1-2-3-x");
    part.set(&LIMITS).unwrap();
    let read = |file: &str| fs::read_to_string(fake.path(&format!("sys/fs/cgroup/rf-1-2-3-x/{file}"))).unwrap();
    assert_eq!(read("memory.max"), (64 << 20).to_string());
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("pids.max"), "8");
    assert_eq!(read("cpu.max"), "50000 100000");
    let mut usage = CgroupUsage::default();
    part.count(&mut usage).unwrap();
    let expected = CgroupUsage { memory_peak: Some(4096), oom_kills: 1, pids_limit_hits: 5, processes_now: 3 };
    assert_eq!(usage, expected);

    for broken in ["", "oom_kill\n", "oom_kill many\n", "oom_kills 3\n"] {
        fake.write("sys/fs/cgroup/rf-1-2-3-x/memory.events", broken);
        assert!(part.count(&mut usage).is_err(), "{broken:?} was taken for a counter");
    }
    fs::remove_file(fake.path("sys/fs/cgroup/rf-1-2-3-x/pids.max")).unwrap();
    assert!(part.set(&LIMITS).is_err(), "a limit whose file is missing was passed over");
}
