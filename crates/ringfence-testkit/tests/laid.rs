//! Layers that are laid into mounts which somebody else made, as into a container's.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ringfence_linux::wall::{Access, Entry, LaidOut, Laying, Marker, Source, Written};
use ringfence_testkit::canary::until;

const SOON: std::time::Duration = std::time::Duration::from_secs(15);

/// A shell with mounts of its own, in which the folder has a place for each thing, and our marker.
struct Container(Child);

impl Container {
    fn new(folder: &Path) -> Self {
        let places = format!(
            "for place in place code open open/below twin; do mkdir -p {0}/inside/$place && \
             mount -t tmpfs none {0}/inside/$place || exit 1; done; echo ready && exec {0}/marker 100",
            folder.display()
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-c", &places]).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut ready = [0u8; 6];
        child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        // It says so a moment before it becomes the marker.
        let runs = format!("/proc/{}/exe", child.id());
        let marker = fs::metadata(folder.join("marker")).unwrap().ino();
        assert!(until(SOON, || fs::metadata(&runs).is_ok_and(|found| found.ino() == marker)), "it does not run");
        Self(child)
    }

    /// Runs `line` with the container's mounts, as its user.
    fn run(&self, line: &str) -> String {
        let mounts = format!("--mount=/proc/{}/ns/mnt", self.0.id());
        let line = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", line];
        let output = Command::new("nsenter").arg(mounts).arg("--").args(line).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn launcher() -> ringfence_linux::launcher::Launcher {
    // A test has several threads, and so a process with one is needed.
    let program = Path::new(env!("CARGO_BIN_EXE_ringfence-testkit-launcher"));
    let moved = std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher");
    let program = moved.as_ref().map_or(program, Path::new);
    ringfence_linux::launcher::Launcher::process(program, &[]).unwrap()
}

fn lay(folder: &Path, container: &Container, marker_inode: u64) -> std::io::Result<LaidOut> {
    let lower = folder.join("workspace");
    let laying = Laying {
        process: container.0.id().try_into().unwrap(),
        marker: Marker {
            at: folder.join("marker").into_os_string(),
            device: fs::metadata(folder.join("marker")).unwrap().dev(),
            inode: marker_inode,
        },
        user: (1234, 1234),
        entries: vec![
            Entry::CopyOnWrite {
                source: Source::Host(lower),
                at: folder.join("inside/place"),
                absent: vec!["secret".into()],
                access: Access::ReadWrite,
                written: Written::Kept,
            },
            Entry::Scratch { at: folder.join("inside/code"), mode: 0o700, size: None },
        ],
        read_only: vec![folder.join("inside/open")],
        quota_at: folder.join("inside/code"),
        writable_bytes: 1 << 20,
        writable_files: 100,
    };
    launcher().lay(&laying, &Vec::<OwnedFd>::new())
}

fn prepare(folder: &Path) -> u64 {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["inside/place", "inside/code", "workspace"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::write(folder.join("workspace/file"), "old").unwrap();
    fs::write(folder.join("workspace/secret"), "secret").unwrap();
    for name in ["workspace", "workspace/file", "workspace/secret"] {
        std::os::unix::fs::chown(folder.join(name), Some(1234), Some(1234)).unwrap();
    }
    // What runs in the container is what marks it.
    fs::copy("/bin/sleep", folder.join("marker")).unwrap();
    fs::metadata(folder.join("marker")).unwrap().ino()
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("SKIPPED: only root may join mounts of others");
    }
    is_root
}

#[test]
fn a_layer_that_is_laid_from_outside_takes_what_is_written_and_the_host_keeps_what_it_had() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let marker = prepare(folder.path());
    let container = Container::new(folder.path());
    let laid = lay(folder.path(), &container, marker).unwrap();
    let place = folder.path().join("inside/place");
    let seen = container.run(&format!(
        "cd {0} && cat file && ls && echo new > file && echo made > made && head -c 3000000 /dev/zero > big; ls -l big | cut -d' ' -f5",
        place.display()
    ));
    assert!(seen.starts_with("oldfile\n"), "{seen}");
    assert!(!seen.contains("secret") && seen.contains("No space left"), "{seen}");
    let (upper, _) = laid.kept.unwrap();
    let upper = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&upper));
    assert_eq!(fs::read_to_string(Path::new(&upper).join("file")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(folder.path().join("workspace/file")).unwrap(), "old");
    assert!(!folder.path().join("workspace/made").exists());
    assert!(fs::read_dir(&place).unwrap().next().is_none(), "the host's own mounts are as they were");
}

#[test]
fn what_was_left_open_is_closed_with_all_below_it_and_nothing_else_is() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let marker = prepare(folder.path());
    let container = Container::new(folder.path());
    let written = || {
        let line = "for place in open open/below twin; do echo x > $place/$$ && echo $place; done 2> /dev/null";
        container.run(&format!("cd {}/inside && {line}", folder.path().display()))
    };
    assert_eq!(written(), "open\nopen/below\ntwin\n", "the probe proves nothing");
    lay(folder.path(), &container, marker).unwrap();
    assert_eq!(written(), "twin\n");
}

#[test]
fn mounts_that_do_not_show_our_own_binary_or_are_the_hosts_are_left_alone() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let marker = prepare(folder.path());
    let container = Container::new(folder.path());
    let refused = lay(folder.path(), &container, marker + 1).unwrap_err();
    assert!(refused.to_string().contains("something else runs in it"), "{refused}");
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let host = Container(Command::new(folder.path().join("marker")).arg("100").spawn().unwrap());
    let refused = lay(folder.path(), &host, marker).unwrap_err();
    assert!(refused.to_string().contains("the host's"), "{refused}");
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}
