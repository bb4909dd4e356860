//! F rows: what of the host's files can be read and written.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use ringfence_testkit::canary::{FileCanary, secret};

use crate::stage::Invocation;
use crate::walls::for_each_engine;

#[test]
fn f01_a_link_in_the_workspace_leads_to_nothing_of_the_host() {
    for_each_engine("", |place| {
        let outside = place.outside();
        fs::write(outside.join("file"), "as it was").unwrap();
        let canary = FileCanary::set(&outside).unwrap();
        let path = outside.join("file").to_str().unwrap().to_owned();
        let script =
            "ln -s \"$1\" link; echo x >> link; echo x > \"$1\"; mkdir -p \"$(dirname \"$1\")\"; echo x > \"$1\"; :";
        place.sh(script, &[&path]);
        assert_eq!(canary.change().unwrap(), None);
        place.bare_sh("ln -s \"$1\" link; echo x >> link", &[&path]);
        assert!(canary.change().unwrap().is_some(), "the probe proves nothing");
    });
}

#[test]
fn f06_f12_files_that_the_host_obeys_do_not_come_to_it_by_an_apply_that_looks_at_nothing() {
    for_each_engine("", |place| {
        // The last two are others' names where a file system folds case.
        let names = [
            ".git/hooks/pre-commit",
            ".claude/settings.json",
            ".mcp.json",
            ".vscode/tasks.json",
            ".envrc",
            "sub/.GIT/hooks/pre-commit",
            "sub/.Mcp.Json",
        ];
        let script = names.map(|name| format!("mkdir -p \"$(dirname {name})\"; echo x > {name}")).join("; ");
        place.sh(&format!("{script}; echo x > plain; :"), &[]);
        place.ringfence(&["apply", "--yes"]).run();
        assert_eq!(place.stage.read("plain").as_deref(), Some("x\n"), "the probe proves nothing");
        for name in names {
            assert_eq!(place.stage.read(name), None, "{name}");
        }
    });
}

#[test]
fn f10_a_hard_link_from_what_is_mounted_does_not_make_it_writable() {
    for_each_engine("fs: { mounts: [{ host: deps, at: /deps }] }\n", |place| {
        // Elsewhere nothing can be mounted, which a run says.
        if !place.wall.shows_processes() || !rustix::process::geteuid().is_root() {
            return;
        }
        let script =
            "for folder in /deps \"$1\"; do ln $folder/file linked && echo x >> linked; echo x >> $folder/file; done
            ln note copy; echo x >> copy; cat /deps/file";
        let canary = |stage: &crate::stage::Stage| {
            stage.write("deps/file", "as it was");
            stage.write("note", "as it was");
            FileCanary::set(stage.work()).unwrap()
        };
        let (here, twin) = (canary(&place.stage), canary(place.bare()));
        let ended = place.sh(script, &["/deps"]);
        assert_eq!(here.change().unwrap(), None, "{ended:?}");
        assert_eq!(ended.text(), "as it was", "{}: what is mounted was changed for others", place.wall);
        place.bare_sh(script, &[place.bare().work().join("deps").to_str().unwrap()]);
        assert!(twin.change().unwrap().is_some(), "the probe proves nothing");
    });
}

#[test]
fn f13_the_roots_and_folders_of_processes_are_the_sandboxes_own() {
    for_each_engine("", |place| {
        let secret = secret().unwrap();
        let file = place.outside().join("secret");
        fs::write(&file, &secret).unwrap();
        let script = "for root in /proc/1/root /proc/self/root /proc/*/root /proc/*/cwd ''; do cat \"$root$1\"; done 2> /dev/null; :";
        assert!(!place.sh(script, &[file.to_str().unwrap()]).text().contains(&secret));
        let twin = place.bare_sh(script, &[file.to_str().unwrap()]);
        assert!(twin.text().contains(&secret), "the probe proves nothing");
    });
}

#[test]
fn f14_a_descriptor_that_was_left_open_is_not_inside() {
    for_each_engine("", |place| {
        let secret = secret().unwrap();
        let path = place.outside().join("secret");
        fs::write(&path, &secret).unwrap();
        let leaked = rustix::io::dup(fs::File::open(&path).unwrap()).unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        let number = leaked.as_raw_fd().to_string();
        let script = "cat /proc/self/fd/$1 /proc/1/fd/$1; ls -l /proc/self/fd /proc/1/fd";
        let ended = place.sh(&format!("({script}) 2> /dev/null; :"), &[&number]);
        assert!(!ended.text().contains(&secret) && !ended.text().contains("outside"), "{ended:?}");
        let twin =
            std::process::Command::new("sh").args(["-c", "cat /proc/self/fd/$1", "sh", &number]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&twin.stdout), secret, "the probe proves nothing");
    });
}

#[test]
fn f16_the_guest_and_our_binary_cannot_be_written() {
    for_each_engine("", |place| {
        let binary = crate::stage::binary();
        let before = fs::metadata(&binary).map(|it| (it.len(), it.mtime(), it.ino())).unwrap();
        let code = "
import os
wrote = []
[guest] = ['/' + name for name in os.listdir('/') if name.startswith('.ringfence-')]
for path in ['/proc/1/exe', '/proc/self/exe', guest, '/proc/1/mem']:
    for flags in [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC]:
        try: os.close(os.open(path, flags)); wrote.append(path)
        except OSError: pass
for act in [lambda: os.unlink(guest), lambda: os.rename(guest, '/tmp/x')]:
    try: act(); wrote.append('moved')
    except OSError: pass
print(wrote)
";
        let ended = place.python(code, &[]).expect(0, &[]);
        assert_eq!(ended.text(), "[]\n");
        assert_eq!(fs::metadata(&binary).map(|it| (it.len(), it.mtime(), it.ino())).unwrap(), before);
        let own =
            place.bare_python("import os; os.close(os.open('own', os.O_CREAT | os.O_WRONLY)); print('opened')", &[]);
        assert_eq!(own.text(), "opened\n", "the probe proves nothing");
    });
}

#[test]
fn f17_devices_and_set_id_copies_are_refused_or_inert() {
    for_each_engine("", |place| {
        let script = "mknod disk b 8 0 2> /dev/null && cat disk > /dev/null 2>&1 && echo read; \
            cp /bin/sh s; chmod 6755 s; ./s -p -c 'id -u'; ls -A /dev | sort | tr '\\n' ' '";
        let text = place.sh(script, &[]).text();
        assert!(!text.contains("read") && !text.contains("\n0\n") && !text.starts_with("0\n"), "{text}");
        for device in ["sda", "vda", "mem", "kmsg", "fuse", "kvm"] {
            assert!(!text.split_whitespace().any(|name| name == device), "{text}");
        }
        // What it made and the host should never have is not applied as what it was.
        place.ringfence(&["apply", "--yes"]).run();
        let applied = place.stage.work().join("s");
        if let Ok(metadata) = fs::metadata(&applied) {
            assert_eq!(metadata.mode() & 0o6000, 0, "a set-id copy came to the host");
        }
    });
}

#[test]
fn f19_f25_a_link_whose_target_appears_later_and_what_lies_in_temporary_folders_lead_nowhere() {
    let script = "echo ready; sleep 1; find /tmp /var/tmp/ /dev/shm ~ -mindepth 1; cat link; echo changed > link
        cat \"$1\"; echo changed > \"$1\"; for f in /tmp /dev/shm ~; do echo x > $f/mine && cat $f/mine; done";
    for_each_engine("", |place| {
        let target = place.outside().join("later");
        let planted = tempfile::Builder::new().prefix("ringfence-planted-").tempfile_in("/tmp").unwrap();
        fs::set_permissions(planted.path(), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let name = planted.path().to_str().unwrap();
        let attack = |stage: &crate::stage::Stage, invocation: Invocation<'_>| {
            std::os::unix::fs::symlink(&target, stage.work().join("link")).unwrap();
            fs::remove_file(&target).ok();
            fs::write(planted.path(), "as it was").unwrap();
            let mut child = invocation.start();
            let mut ready = [0u8; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            fs::write(&target, "as it was").unwrap();
            let said = child.wait_with_output().unwrap().stdout;
            let left = [fs::read_to_string(&target).unwrap(), fs::read_to_string(planted.path()).unwrap()];
            (String::from_utf8_lossy(&said).into_owned(), left)
        };
        let (said, left) = attack(&place.stage, place.run(&[], &["sh", "-c", script, "sh", name]));
        assert_eq!(left, ["as it was", "as it was"], "{}", place.wall);
        assert_eq!(said, "x\nx\nx\n", "{}: something was there before", place.wall);
        let argv = ["run", "-q", "--backend", "spawn", "--", "sh", "-c", script, "sh", name];
        let (said, left) = attack(place.bare(), place.bare().ringfence(argv));
        assert_eq!(left, ["changed\n", "changed\n"], "the probe proves nothing: {said}");
        assert!(said.contains("as it was"), "the probe proves nothing: {said}");
    });
}

#[test]
fn f24_files_cannot_be_opened_by_handles() {
    let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def ask(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return ctypes.get_errno() if result < 0 else 0
handle = ctypes.create_string_buffer((128).to_bytes(4, 'little') + bytes(132))
mount = ctypes.c_int()
print(ask(303, -100, b'/', handle, ctypes.byref(mount), 0), ask(304, -1, ctypes.c_long(-1), 0))
";
    for_each_engine("", |place| {
        let answers = place.python(code, &[]).expect(0, &[]).text();
        assert!(answers.split_whitespace().all(|errno| ["1", "38"].contains(&errno)), "{answers}");
        let twin = place.bare_python(code, &[]).text();
        assert!(!twin.starts_with("1 ") && !twin.starts_with("38 "), "the probe proves nothing: {twin}");
    });
}
