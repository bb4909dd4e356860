//! F rows: what of the host's files can be read and changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_testkit::canary::{FileCanary, LeakedDescriptor, secret, until};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::left_for_the_host::names_that_the_host_obeys_stay_inside;
use crate::probe::{Wall, is_root, outside, python, run, sh, text, walled, walled_with, walled_with_deps};
use crate::stage::{SOON, Stage};

/// Runs `script` with the folder beside the workspace as its argument: behind the wall nothing there changes, and
/// without it something does.
fn changes_nothing_outside(stage: &Stage, script: &str) {
    let folder = outside(stage);
    let canary = FileCanary::set(&folder).unwrap();
    sh(stage, Wall::Native, script, &[text(&folder)]);
    assert_eq!(canary.change().unwrap(), None);
    sh(stage, Wall::Bare, script, &[text(&folder)]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing: it fails without a wall too");
}

/// Runs `script`: behind the wall `secret` does not come out, and without it it does.
fn tells_nothing(stage: &Stage, script: &str, arguments: &[&str], secret: &str) {
    let ended = sh(stage, Wall::Native, script, arguments);
    assert!(!ended.text().contains(secret), "{ended:?}");
    let twin = sh(stage, Wall::Bare, script, arguments);
    assert!(twin.text().contains(secret), "the probe proves nothing: it fails without a wall too: {twin:?}");
}

#[test]
fn f01_writing_through_a_link_in_the_workspace_leaves_the_host_file_alone() {
    let Some(stage) = walled() else { return };
    fs::write(outside(&stage).join("file"), "as it was").unwrap();
    symlink(outside(&stage).join("file"), stage.work().join("made-before")).unwrap();
    changes_nothing_outside(&stage, r#"echo x >> made-before; ln -s "$1/file" made-inside; echo x >> made-inside"#);
}

#[test]
fn f03_measured_a_folder_and_a_link_that_are_swapped_during_launches_lead_no_write_outside() {
    let Some(stage) = walled_with("fs: { mounts: [{ host: deps, at: /workspace/swapped/deps/in }] }\n") else { return };
    stage.write("deps/file", "a dependency");
    stage.write("swapped/deps/file", "inside");
    fs::create_dir(outside(&stage).join("deps")).unwrap();
    symlink(outside(&stage), stage.work().join("other")).unwrap();
    let canary = FileCanary::set(outside(&stage)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (work, stopped) = (stage.work(), Arc::clone(&stop));
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0u32;
        while !stopped.load(Ordering::Relaxed) {
            renameat_with(CWD, work.join("swapped"), CWD, work.join("other"), RenameFlags::EXCHANGE).unwrap();
            swaps += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        swaps
    });
    let script = "echo x > swapped/deps/new; echo x > other/deps/new; echo ran";
    let mut ran = 0;
    for round in 0..300 {
        let flags: &[&str] = if round % 2 == 0 { &["--cwd", "swapped/.."] } else { &[] };
        let flags = if round % 4 == 0 { &["--at", "same"] } else { flags };
        ran += u32::from(run(&stage, Wall::Native, flags, &["sh", "-c", script]).run().text().contains("ran"));
    }
    assert_eq!(canary.change().unwrap(), None);
    let twin = until(SOON, || {
        sh(&stage, Wall::Bare, script, &[]);
        canary.change().unwrap().is_some()
    });
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 1000);
    assert!(ran > 0, "no launch got through, so nothing was raced");
    assert!(twin, "the probe proves nothing: it fails without a wall too");
}

#[test]
fn f06_f07_names_that_the_host_obeys_can_be_made_inside_and_never_reach_the_host() {
    let Some(stage) = walled() else { return };
    let sh = |script: &str, arguments: &[&str]| sh(&stage, Wall::Native, script, arguments);
    names_that_the_host_obeys_stay_inside(&stage, &sh);
}

#[test]
fn f10_a_hard_link_from_a_read_only_tree_does_not_make_it_writable() {
    let Some(stage) = walled_with_deps() else { return };
    fs::write(outside(&stage).join("file"), "as it was").unwrap();
    stage.write("note", "a note");
    let note = FileCanary::set(stage.work()).unwrap();
    let script = r#"for folder in /deps "$1"; do ln $folder/file linked && echo x >> linked; echo x >> $folder/file; done
        ln note copy; echo x >> copy"#;
    changes_nothing_outside(&stage, script);
    assert!(note.change().unwrap().is_some(), "the twin writes through the link of a note");
    stage.write("note", "a note");
    fs::remove_file(stage.work().join("copy")).unwrap();
    fs::remove_file(stage.work().join("linked")).ok();
    sh(&stage, Wall::Native, script, &["/deps"]);
    assert_eq!(stage.read("note").unwrap(), "a note");
}

#[test]
fn f13_the_view_of_proc_is_the_sandboxes_own() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    fs::write(outside(&stage).join("file"), &secret).unwrap();
    let script = r#"for root in /proc/1/root /proc/self/root /proc/thread-self/root /proc/$PPID/root; do cat "$root$1/file"; done
        for cwd in /proc/[0-9]*/cwd; do cat "$cwd/../outside/file" "$cwd/outside/file"; done
        for fd in /proc/[0-9]*/fd/*; do cat "$fd/../outside/file"; done 2>/dev/null"#;
    tells_nothing(&stage, script, &[text(&outside(&stage))], &secret);
    let passwd = "cat /proc/self/root/etc/passwd /proc/1/root/etc/passwd";
    assert!(sh(&stage, Wall::Native, passwd, &[]).text().contains("agent:x:1000"), "its own view is there");
}

#[test]
fn f14_a_descriptor_that_the_caller_left_open_is_not_there() {
    let Some(stage) = walled() else { return };
    let leaked = LeakedDescriptor::open().unwrap();
    let probe =
        format!("ls -l /proc/self/fd /proc/1/fd /proc/$$/fd >&2; cat /proc/self/fd/{0}; cat <&{0}", leaked.number());
    let ended = sh(&stage, Wall::Native, &probe, &[]);
    assert!(!ended.text().contains(leaked.secret()), "{ended:?}");
    let twin = Command::new("sh").args(["-c", &probe]).output().unwrap();
    assert!(String::from_utf8_lossy(&twin.stdout).contains(leaked.secret()), "the probe proves nothing");
}

#[test]
fn f15_a_working_directory_that_is_a_descriptor_is_refused() {
    let Some(stage) = walled() else { return };
    let leaked = fs::File::open(outside(&stage)).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&leaked);
    let folder = format!("/proc/self/fd/{number}");
    fs::write(outside(&stage).join("here"), "").unwrap();
    symlink(&folder, stage.work().join("link")).unwrap();
    for cwd in [folder.as_str(), "link", "link/.", "/proc/self/cwd", "../outside", "a/../../outside"] {
        let ended = run(&stage, Wall::Native, &["--cwd", cwd], &["ls"]).run();
        assert!(ended.code == 125 || ended.code == 2, "{cwd}: {ended:?}");
        assert!(!ended.text().contains("here"), "{cwd}: {ended:?}");
    }
    let twin = Command::new("ls").current_dir(&folder).output().unwrap();
    assert_eq!(twin.stdout, b"here\n", "the probe proves nothing: the descriptor leads nowhere");
}

#[test]
fn f16_neither_the_guest_nor_the_supervisor_can_be_overwritten() {
    let Some(stage) = walled() else { return };
    let binary = outside(&stage).join("ringfence");
    fs::copy(crate::stage::binary(), &binary).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o777)).unwrap();
    let script = r#"for exe in /proc/1/exe /proc/self/exe /proc/$PPID/exe "$1"; do
            echo x >> $exe; cp /bin/true $exe
        done
        cp /bin/true "$1.new" && mv "$1.new" "$1""#;
    let attack = |backend: &str| {
        let mut command = Command::new(&binary);
        command.env("RINGFENCE_VALIDATE", "off");
        command.args(["run", "-q", "--backend", backend, "--", "sh", "-c", script, "sh", text(&binary)]);
        command.env("HOME", stage.path().join("home")).current_dir(stage.work()).output().unwrap()
    };
    let canary = FileCanary::set(outside(&stage)).unwrap();
    attack("native");
    assert_eq!(canary.change().unwrap(), None);
    attack("spawn");
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing: it fails without a wall too");
}

#[test]
fn f17_devices_cannot_be_made_and_pipes_and_setuid_copies_stay_inside() {
    let Some(stage) = walled() else { return };
    let canary = FileCanary::set(stage.work()).unwrap();
    let script = "mknod null c 1 3 && echo device; mknod disk b 254 0 && echo device; mknod $1/x c 0 0 && echo device
        mkfifo pipe && echo pipe; cp /bin/sh shell && chmod 6755 shell && ./shell -p -c 'id -u; grep CapEff /proc/self/status'";
    let ended = sh(&stage, Wall::Native, script, &["/tmp"]);
    assert_eq!(ended.text(), "pipe\n1000\nCapEff:\t0000000000000000\n", "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    let twin = sh(&stage, Wall::Bare, script, &[text(&outside(&stage))]);
    assert!(twin.text().contains("pipe") && canary.change().unwrap().is_some(), "{twin:?}");
    if is_root() {
        assert!(twin.text().contains("device"), "the probe proves nothing: {twin:?}");
    } else {
        eprintln!("SKIPPED: the twin of making devices, which needs root");
    }
}

#[test]
fn f18_a_working_directory_never_widens_what_is_shown_or_written() {
    let Some(stage) = walled() else { return };
    stage.write("sub/file", "in the workspace");
    fs::write(outside(&stage).join("file"), "outside").unwrap();
    symlink(outside(&stage), stage.work().join("link")).unwrap();
    let [work, beside] = [stage.work(), outside(&stage)].map(|folder| FileCanary::set(folder).unwrap());
    let home = stage.path().join("home");
    for cwd in ["/", "..", "../..", text(&home), text(&outside(&stage)), "link", "sub/../link", "~"] {
        let ended = run(&stage, Wall::Native, &["--cwd", cwd], &["sh", "-c", "cat file; echo x > new; pwd"]).run();
        assert!(ended.code == 125 || ended.code == 2, "{cwd}: {ended:?}");
        assert!(ended.text().is_empty(), "{cwd}: {ended:?}");
    }
    assert_eq!((work.change().unwrap(), beside.change().unwrap()), (None, None));
    let twin = Command::new("sh").args(["-c", "echo x > new"]).current_dir(stage.work().join("link")).status().unwrap();
    assert!(twin.success() && beside.change().unwrap().is_some(), "the probe proves nothing: the link leads nowhere");
    let ended = run(&stage, Wall::Native, &["--cwd", "sub"], &["sh", "-c", "cat file; pwd"]).run().expect(0, &[]);
    assert_eq!(ended.text(), "in the workspace/workspace/sub\n");
    let work = stage.work();
    let here = ["run", "-q", "--workspace", text(&work), "--", "pwd"];
    let ended = stage.ringfence(here).cwd(stage.work().join("sub")).run().expect(0, &[]);
    assert_eq!(ended.text(), "/workspace/sub\n", "where we are, when that lies in the workspace");
}

#[test]
fn f19_a_link_whose_target_appears_during_the_run_leads_nowhere() {
    let Some(stage) = walled() else { return };
    let target = outside(&stage).join("later");
    symlink(&target, stage.work().join("link")).unwrap();
    let attack = |wall| {
        fs::remove_file(&target).ok();
        let script = "echo ready; sleep 1; cat link; echo changed > link";
        let mut child = run(&stage, wall, &[], &["sh", "-c", script]).start();
        let mut first = [0u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        fs::write(&target, "as it was").unwrap();
        child.wait_with_output().unwrap();
        fs::read_to_string(&target).unwrap()
    };
    assert_eq!(attack(Wall::Native), "as it was");
    assert_eq!(attack(Wall::Bare), "changed\n", "the probe proves nothing: it fails without a wall too");
}

#[test]
fn f24_no_file_is_opened_by_its_handle() {
    let Some(stage) = walled() else { return };
    let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(136)
ctypes.memmove(handle, (128).to_bytes(4, 'little'), 4)
mount = ctypes.c_int()
def call(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return ctypes.get_errno()
to, by = (303, 304) if os.uname().machine == 'x86_64' else (264, 265)
print('to', call(to, -100, b'/', handle, ctypes.byref(mount), 0))
print('by', call(by, -100, handle, 0))
";
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    assert_eq!(ended.text(), "to 1\nby 1\n", "EPERM, before any argument is read: {ended:?}");
    let twin = python(&stage, Wall::Bare, code, &[]).unwrap();
    assert!(twin.text().contains("to 0\n"), "the probe proves nothing: {twin:?}");
}

#[test]
fn f25_temporary_folders_are_private_and_nothing_prepared_on_the_host_is_in_them() {
    let Some(stage) = walled() else { return };
    let planted = tempfile::Builder::new().prefix("ringfence-planted-").tempfile_in("/tmp").unwrap();
    let secret = secret().unwrap();
    fs::write(planted.path(), &secret).unwrap();
    fs::set_permissions(planted.path(), fs::Permissions::from_mode(0o666)).unwrap();
    tells_nothing(&stage, r#"cat "$1"; echo changed > "$1""#, &[text(planted.path())], &secret);
    let script = "find /tmp /var/tmp/ /dev/shm /home/agent -mindepth 1; for f in /tmp /dev/shm ~; do echo x > $f/mine && cat $f/mine; done";
    assert_eq!(sh(&stage, Wall::Native, script, &[]).text(), "x\nx\nx\n");
    let next = sh(&stage, Wall::Native, "find /tmp /dev/shm ~ -name mine", &[]);
    assert_eq!(next.text(), "", "what one run left, the next one found");
    assert_eq!(fs::read_dir(stage.path().join("tmp")).unwrap().count(), 0, "we left something in TMPDIR");
}

#[test]
fn n08_a_setuid_file_gives_nothing() {
    let Some(stage) = walled_with_deps() else { return };
    if !is_root() {
        eprintln!("SKIPPED: only root can make a file that gives root");
        return;
    }
    let tool = outside(&stage).join("id");
    fs::copy("/usr/bin/id", &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6755)).unwrap();
    let ended = sh(&stage, Wall::Native, "/deps/id -u; /deps/id -g", &[]);
    assert_eq!(ended.text(), "1000\n1000\n", "{ended:?}");
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let twin = Command::new(&tool).arg("-u").uid(1000).gid(1000).output().unwrap();
    assert_eq!(twin.stdout, b"0\n", "the probe proves nothing: the file gives nothing at all");
}

#[test]
fn s07_a_mount_shows_neither_the_ledger_nor_the_workspace_a_second_time() {
    let Some(stage) = walled() else { return };
    fs::write(crate::probe::outside(&stage).join("free"), "free\n").unwrap();
    stage.write("conf/prod.txt", "denied by its place\n");
    let mount = |host: &str| format!("{{ host: {host}, at: /all, mode: read-only }}");
    let policy = |host: &str| format!("version: 1\nfs: {{ deny: [\"conf/prod.txt\"], mounts: [{}] }}\n", mount(host));
    stage.write("sandbox.policy.yaml", policy(stage.path().to_str().unwrap()));
    let look =
        "cat /all/outside/free; cat /all/work/conf/prod.txt conf/prod.txt; cat /all/home/.local/state/ringfence/*; :";
    let ended = crate::probe::sh(&stage, crate::probe::Wall::Native, look, &[]);
    assert_eq!((ended.code, &*ended.text()), (0, "free\n"), "{ended:?}");
    // A part of the workspace is shown by its own rules, as the whole is.
    stage.write("sandbox.policy.yaml", policy("./conf"));
    stage.write("conf/other.txt", "shown\n");
    let ended = crate::probe::sh(&stage, crate::probe::Wall::Native, "cat /all/*", &[]);
    assert_eq!(ended.text(), "shown\n", "{ended:?}");
}
