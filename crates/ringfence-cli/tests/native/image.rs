//! Roots from images: folders and OCI layouts, honest ones and those that somebody made to get out.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence_testkit::canary::{FileCanary, secret, until};
use ringfence_testkit::oci::{self, LayoutFolder, Packing, archive, file, hard_link, link, program};
use serde_json::Value;

use crate::probe::{Wall, interpreter, outside, run, sh, text, walled};
use crate::stage::{Ended, SOON, Stage};

const PROGRAMS: [&str; 7] = ["sh", "cat", "ls", "id", "touch", "rm", "chmod"];

/// Programs of this host with what they need to run, by their path in a root.
fn of_this_host() -> Vec<(PathBuf, PathBuf)> {
    let mut files = Vec::new();
    for name in PROGRAMS {
        let program = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
        let program = program.into_iter().find(|path| path.is_file()).unwrap();
        files.extend(libraries(&program));
        files.push((Path::new("bin").join(name), program));
    }
    files.sort();
    files.dedup();
    files
}

fn libraries(program: &Path) -> Vec<(PathBuf, PathBuf)> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(|path| (PathBuf::from(path.trim_start_matches('/')), PathBuf::from(path))).collect()
}

fn put(root: &Path, files: Vec<(PathBuf, PathBuf)>) {
    for (at, from) in files {
        let to = root.join(at);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
}

/// A root in a folder.
fn make_root(root: &Path) {
    put(root, of_this_host());
    for folder in ["etc", "usr", "dev", "proc", "sys", "tmp", "root"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("etc/shadow"), "root:hash").unwrap();
    fs::write(root.join("etc/release"), "the image's own\n").unwrap();
    fs::write(root.join("dev/odd"), "not a device\n").unwrap();
    fs::write(root.join("root/private"), "of the owner alone\n").unwrap();
    fs::set_permissions(root.join("root"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("/run/resolve/resolv.conf", root.join("etc/resolv.conf")).unwrap();
}

/// The members of a layer with a root.
fn root_members() -> Vec<Vec<u8>> {
    of_this_host().iter().map(|(at, from)| program(text(at), fs::read(from).unwrap())).collect()
}

/// A stage whose policy says `image`.
fn staged(image: &str) -> Option<Stage> {
    let stage = walled()?;
    set_image(&stage, image, "");
    Some(stage)
}

fn set_image(stage: &Stage, image: &str, more: &str) {
    stage.write("sandbox.policy.yaml", format!("version: 1\nimage: {image}\n{more}"));
}

/// Likewise, with a root in its workspace.
fn with_root() -> Option<Stage> {
    let stage = staged("./rootfs")?;
    make_root(&stage.work().join("rootfs"));
    Some(stage)
}

/// A layout in the workspace, at `image`, with these layers.
fn make_layout(stage: &Stage, layers: &[(Vec<u8>, Packing)], env: &[&str]) -> LayoutFolder {
    let mut layout = LayoutFolder::make(stage.work().join("image")).unwrap();
    let layers: Vec<Value> = layers.iter().map(|(bytes, packing)| layout.layer(bytes, *packing).unwrap()).collect();
    let image = layout.image(&layers, env).unwrap();
    layout.add(image, Some("latest")).unwrap();
    layout
}

/// Nothing ran, and the message says why.
#[track_caller]
fn refused(stage: &Stage, why: &str) -> Ended {
    let ended = sh(stage, Wall::Native, "echo ran", &[]).expect(125, &[why]);
    assert_eq!(ended.text(), "", "{ended:?}");
    ended
}

#[track_caller]
fn runs(stage: &Stage) {
    assert_eq!(sh(stage, Wall::Native, "echo ran", &[]).expect(0, &[]).text(), "ran\n");
}

fn store(stage: &Stage) -> Vec<String> {
    let Ok(entries) = fs::read_dir(stage.state().join("images")) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_program_of_a_root_folder_runs_and_nothing_of_the_hosts_system_is_there() {
    let Some(stage) = with_root() else { return };
    let script = "ls /usr/share /usr/lib/os-release /usr/bin/env /opt; echo $PATH";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!(ended.text(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", "{ended:?}");
    let ended = sh(&stage, Wall::Native, "cat /etc/release /root/private /etc/passwd; ls /etc /dev; id -u", &[]);
    for part in ["the image's own", "of the owner alone", "agent:x:1000", "resolv.conf", "urandom", "\n1000\n"] {
        assert!(ended.text().contains(part), "{part}: {ended:?}");
    }
    for part in ["shadow", "odd"] {
        assert!(!ended.text().contains(part), "{part}: {ended:?}");
    }
    stage.write("sandbox.policy.yaml", "version: 1\n");
    let twin = sh(&stage, Wall::Native, script, &[]);
    assert!(twin.text().contains("/usr/bin/env"), "the probe proves nothing: {twin:?}");
}

#[test]
fn an_image_cannot_be_changed_and_is_as_it_was_after_a_run() {
    let Some(stage) = with_root() else { return };
    let root = stage.work().join("rootfs");
    let canary = FileCanary::set(&root).unwrap();
    let script = r#"touch "$1/new" "$1/usr/new" "$1/etc/new" "$1/root/new"; echo x >> "$1/etc/release"; chmod 777 "$1/etc/release"
        rm -f "$1/etc/release" "$1/root/private"; touch /tmp/fine && echo fine"#;
    let ended = sh(&stage, Wall::Native, script, &[""]);
    assert_eq!(ended.text(), "fine\n", "{ended:?}");
    let ended = sh(&stage, Wall::Native, "cat /etc/release; ls /new /usr/new /etc/new /root/new", &[]);
    assert_eq!(ended.text(), "the image's own\n", "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    sh(&stage, Wall::Bare, script, &[text(&root)]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing: it fails without a wall too");
}

#[test]
fn f13_nothing_of_the_host_lies_over_or_above_the_root_of_an_image() {
    let Some(stage) = with_root() else { return };
    let secret = secret().unwrap();
    fs::write(outside(&stage).join("file"), &secret).unwrap();
    let script =
        r#"cat "$1/file" "/..$1/file" "/../../..$1/file" "/proc/1/root$1/file" "/dev/..$1/file"; ls -di / /.. /dev/.."#;
    let path = outside(&stage);
    let ended = sh(&stage, Wall::Native, script, &[text(&path)]);
    assert!(!ended.text().contains(&secret), "{ended:?}");
    let numbers: Vec<String> =
        ended.text().lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(numbers.len() == 3 && numbers.iter().all(|number| *number == numbers[0]), "{ended:?}");
    assert!(sh(&stage, Wall::Bare, script, &[text(&path)]).text().contains(&secret), "the probe proves nothing");
    let ended = run(&stage, Wall::Native, &[], &["cat", "/proc/self/mountinfo"]).run().expect(0, &[]);
    let roots = ended.text().lines().filter(|line| line.split(' ').nth(4) == Some("/")).count();
    assert_eq!(roots, 1, "{}", ended.text());
}

#[test]
fn n16_a_socket_in_a_root_folder_does_not_answer() {
    let Some(stage) = with_root() else { return };
    let Some(python) = interpreter() else { return };
    let root = stage.work().join("rootfs");
    let listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    fs::set_permissions(root.join("socket"), fs::Permissions::from_mode(0o777)).unwrap();
    let code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
    // All of a Python in the image would be large: what it loads is mounted into it.
    let place = Command::new(&python).args(["-c", "import os; print(os.path.dirname(os.__file__), end='')"]).output();
    let place = String::from_utf8(place.unwrap().stdout).unwrap();
    set_image(&stage, "./rootfs", &format!("fs: {{ mounts: [{{ host: {place}, at: {place} }}] }}\n"));
    put(&root, libraries(&python));
    put(&root, vec![(python.strip_prefix("/").unwrap().to_owned(), python.clone())]);
    let python = text(&python).to_owned();
    let ended = run(&stage, Wall::Native, &[], &[&python, "-c", "print(6 * 7)"]).run();
    if ended.text() != "42\n" {
        eprintln!("SKIPPED: the host's Python does not run in an image: {ended:?}");
        return;
    }
    let ended = run(&stage, Wall::Native, &[], &[&python, "-c", code, "/socket"]).run();
    assert!(ended.code != 0 && listener.accept().is_err(), "{ended:?}");
    run(&stage, Wall::Bare, &[], &[&python, "-c", code, text(&root.join("socket"))]).run().expect(0, &[]);
    assert!(listener.accept().is_ok(), "the probe proves nothing");
}

#[test]
fn what_the_policy_denies_is_absent_from_a_root_folder_too() {
    let Some(stage) = with_root() else { return };
    let root = stage.work().join("rootfs");
    fs::create_dir(root.join("srv")).unwrap();
    for name in [".env", "by-name", "by-place", "open"] {
        fs::write(root.join("srv").join(name), format!("{name}\n")).unwrap();
    }
    let script = "cat /srv/open /srv/.env /srv/by-name /srv/by-place; ls -a /srv";
    set_image(&stage, "./rootfs", "fs: { deny: [srv/by-name, rootfs/srv/by-place] }\n");
    assert_eq!(sh(&stage, Wall::Native, script, &[]).text(), "open\n.\n..\nopen\n");
    set_image(&stage, "./rootfs", "");
    let twin = sh(&stage, Wall::Native, script, &[]);
    assert!(twin.text().contains("by-name") && twin.text().contains("by-place"), "{twin:?}");
    set_image(&stage, "./rootfs", "fs: { deny: [\"rootfs/**\"] }\n");
    refused(&stage, "`fs.deny` denies it");
}

#[test]
fn f18_an_image_never_shows_a_home_the_workspace_or_what_a_link_leads_to() {
    let Some(stage) = with_root() else { return };
    runs(&stage);
    let elsewhere = stage.path().join("elsewhere");
    make_root(&elsewhere);
    symlink(&elsewhere, stage.work().join("link")).unwrap();
    symlink(stage.path().join("home"), stage.work().join("to-home")).unwrap();
    fs::create_dir_all(stage.path().join("home/bin")).unwrap();
    fs::create_dir_all(stage.path().join("somebody/.ssh")).unwrap();
    fs::create_dir_all(stage.path().join("somebody/bin")).unwrap();
    fs::create_dir_all(stage.work().join("empty")).unwrap();
    fs::create_dir_all(stage.work().join("usr")).unwrap();
    let path = |name: &str| text(&stage.path().join(name)).to_owned();
    for (image, why) in [
        ("./link".to_owned(), "it leads out of the workspace"),
        ("./to-home".to_owned(), "it leads out of the workspace"),
        (path("home"), "holds the ledger"),
        (path("home/.local/state/ringfence"), "holds the ledger"),
        (path("somebody"), "is somebody's home"),
        (path("work"), "holds the workspace"),
        (".".to_owned(), "holds the workspace"),
        ("./empty".to_owned(), "is no root"),
        ("./missing".to_owned(), "could not open"),
        ("./sandbox.policy.yaml".to_owned(), "is no folder"),
        ("oci:./rootfs".to_owned(), "could not read oci-layout"),
    ] {
        set_image(&stage, &image, "");
        refused(&stage, why);
        let dry = stage.ringfence(["run", "--dry-run", "--", "true"]).run();
        assert_eq!(dry.code, 125, "{image}: {dry:?}");
    }
    // Named by its own path, it is meant.
    set_image(&stage, &path("elsewhere"), "");
    runs(&stage);
    for image in ["/", "/home", "/etc", "/root", "/usr", "/home/me"] {
        set_image(&stage, image, "");
        let ended = sh(&stage, Wall::Native, "echo ran", &[]).expect(125, &["policy::forbidden-path"]);
        assert_eq!(ended.text(), "");
    }
}

#[test]
fn an_image_with_a_link_where_the_sandbox_has_its_own_is_refused() {
    let Some(stage) = with_root() else { return };
    let root = stage.work().join("rootfs");
    let canary = FileCanary::set(outside(&stage)).unwrap();
    for (at, what) in [("tmp", "/tmp"), ("home", "/home/agent"), ("workspace", "/workspace"), ("etc", "/etc/")] {
        let kept = stage.work().join("kept");
        let was_there = fs::rename(root.join(at), &kept).is_ok();
        symlink(outside(&stage), root.join(at)).unwrap();
        let ended = refused(&stage, "where the sandbox puts its own");
        assert!(ended.stderr.contains(what), "{at}: {ended:?}");
        fs::remove_file(root.join(at)).unwrap();
        if was_there {
            fs::rename(&kept, root.join(at)).unwrap();
        }
        runs(&stage);
    }
    assert_eq!(canary.change().unwrap(), None);
}

#[test]
fn code_is_run_by_an_interpreter_of_the_image() {
    let Some(stage) = with_root() else { return };
    let bash = |stage: &Stage| stage.ringfence(["run", "-q", "--lang", "bash", "--code", "echo $0"]).run();
    assert_eq!(bash(&stage).expect(0, &[]).text(), "/run/code/main.sh\n");
    let python = |stage: &Stage| stage.ringfence(["run", "-q", "--lang", "python", "--code", "print(1)"]).run();
    python(&stage).expect(127, &["no interpreter for python"]);
    // A link is followed as it is inside, and never to the host.
    let root = stage.work().join("rootfs");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    for target in ["/usr/bin/python3", text(&outside(&stage).join("python3"))] {
        fs::write(outside(&stage).join("python3"), "").unwrap();
        fs::remove_file(root.join("bin/python3")).ok();
        symlink(target, root.join("bin/python3")).unwrap();
        python(&stage).expect(127, &["no interpreter for python"]);
    }
    fs::remove_file(root.join("bin/python3")).unwrap();
    symlink("/usr/../bin/cat", root.join("bin/python3")).unwrap();
    assert_eq!(python(&stage).expect(0, &[]).text(), "print(1)");
    stage.write("sandbox.policy.yaml", "version: 1\n");
    if interpreter().is_some() {
        assert_eq!(python(&stage).expect(0, &[]).text(), "1\n", "the host has one");
    }
}

#[test]
fn an_oci_image_is_unpacked_once_and_named_in_outcome_and_ledger() {
    let Some(stage) = staged("oci:./image") else { return };
    let mut first = root_members();
    first.extend([file("etc/old", "old\n"), file("etc/kept", "one\n")]);
    let second = vec![file("etc/.wh.old", ""), file("etc/kept", "two\n"), link("bin/again", "cat")];
    let layers = [(archive(&first), Packing::Gzip), (archive(&second), Packing::Zstd)];
    let layout = make_layout(&stage, &layers, &["PATH=/bin:/opt/tool", "SECRET=of-the-image", "LD_PRELOAD=/x"]);
    let script = "again /etc/kept; ls /etc; echo $PATH $SECRET $LD_PRELOAD";
    let start = || stage.ringfence(["run", "--json", "--", "sh", "-c", script]).run();
    let ended = start().expect(0, &["unpacking the image oci:./image@sha256:"]);
    let outcome = ended.json();
    let stdout = outcome["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("two\n") && stdout.ends_with("\n/bin:/opt/tool\n"), "{outcome:#}");
    assert!(stdout.contains("kept") && !stdout.contains("old"), "{outcome:#}");
    let index: Value = serde_json::from_slice(&fs::read(layout.path().join("index.json")).unwrap()).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let name = format!("oci:./image@{digest}");
    assert_eq!(outcome["image"], name);
    let shown = outcome["enforced"].as_array().unwrap().iter().find(|it| it["guarantee"] == "fs.confined").unwrap();
    assert!(shown["evidence"].as_str().unwrap().contains(&name), "{shown}");
    let ledger = fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.lines().any(|line| line.contains("\"planned\"") && line.contains(&name)), "{ledger}");

    let hex = digest.strip_prefix("sha256:").unwrap();
    assert_eq!(store(&stage), [hex]);
    let unpacked = stage.state().join("images").join(hex).join("rootfs/etc/kept");
    let before = (fs::metadata(&unpacked).unwrap().ino(), fs::metadata(&unpacked).unwrap().ctime_nsec());
    let ended = start().expect(0, &[]);
    assert!(!ended.stderr.contains("unpacking"), "{ended:?}");
    assert_eq!((fs::metadata(&unpacked).unwrap().ino(), fs::metadata(&unpacked).unwrap().ctime_nsec()), before);
    for image in ["oci:./image:latest", "./image"] {
        set_image(&stage, image, "proc: { env: { set: { PATH: /nowhere:/bin } } }\n");
        assert!(start().expect(0, &[]).json()["stdout"].as_str().unwrap().ends_with("/nowhere:/bin\n"));
    }
    set_image(&stage, "oci:./image:other", "");
    refused(&stage, "no image that is called `other`; it has latest");
}

#[test]
fn a_program_that_waits_hears_that_an_image_is_being_unpacked() {
    let Some(stage) = staged("./image") else { return };
    make_layout(&stage, &[(archive(&root_members()), Packing::Plain)], &[]);
    let ended = stage.ringfence(["run", "--events", "--", "sh", "-c", "echo ran"]).run().expect(0, &[]);
    let first: Value = serde_json::from_str(ended.text().lines().next().unwrap()).unwrap();
    assert_eq!(first["event"], "preparing", "{first}");
    assert!(first["what"].as_str().unwrap().starts_with("unpacking the image ./image@sha256:"), "{first}");
    assert!(ended.text().contains("ran"));
}

#[test]
fn f20_a_layout_made_to_get_out_is_refused_whole() {
    let Some(stage) = staged("oci:./image") else { return };
    let canary = FileCanary::set(outside(&stage)).unwrap();
    let members = root_members();
    let escape = text(&outside(&stage)).to_owned();
    for (hostile, why) in [
        (vec![file("../../../../evil", "x")], "goes up with `..`"),
        (vec![file(format!("{escape}/evil"), "x")], "is an absolute name"),
        (vec![link("out", &escape), file("out/evil", "x")], "leads through a link"),
        (vec![link("out", &escape), file("out/.wh..wh..opq", "")], "leads through a link"),
        (vec![hard_link("mine", "../../../ledger.jsonl")], "goes up with `..`"),
        (vec![file(".wh...", "")], "names nothing"),
        (vec![oci::member(b'S', "sparse", "", 0o644, "")], "sparse"),
    ] {
        fs::remove_dir_all(stage.work().join("image")).ok();
        make_layout(&stage, &[(archive(&[&members[..], &hostile].concat()), Packing::Gzip)], &[]);
        let ended = refused(&stage, why);
        assert!(ended.stderr.contains("layer 1 of the image is refused"), "{ended:?}");
        assert_eq!(store(&stage), [""; 0]);
    }
    fs::remove_dir_all(stage.work().join("image")).unwrap();
    let layout = make_layout(&stage, &[(archive(&members), Packing::Gzip)], &[]);
    runs(&stage);
    assert_eq!(canary.change().unwrap(), None);
    // A blob that was changed after it was named.
    fs::remove_dir_all(stage.state().join("images")).unwrap();
    for blob in fs::read_dir(layout.path().join("blobs/sha256")).unwrap() {
        let path = blob.unwrap().path();
        let before = fs::read(&path).unwrap();
        let mut changed = before.clone();
        changed[before.len() / 2] ^= 1;
        fs::write(&path, changed).unwrap();
        refused(&stage, "is not what its digest says");
        assert_eq!(store(&stage), [""; 0]);
        fs::write(&path, before).unwrap();
    }
    runs(&stage);
}

#[test]
fn r11_killing_us_while_an_image_is_unpacked_leaves_nothing_that_the_next_start_keeps() {
    let Some(stage) = staged("oci:./image") else { return };
    let mut members = root_members();
    members.extend((0..64).map(|number| file(format!("large/{number}"), vec![b'x'; 1 << 20])));
    make_layout(&stage, &[(archive(&members), Packing::Gzip)], &[]);
    let unfinished = stage.state().join("images/unfinished");
    let mut child = stage.ringfence(["run", "-q", "--", "sh", "-c", "echo ran"]).stderr(Stdio::null()).start();
    assert!(until(SOON, || unfinished.join("rootfs/large").exists()), "it was not caught at work");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(store(&stage), ["unfinished"]);
    stage.ringfence(["doctor"]).run();
    runs(&stage);
    assert_eq!(store(&stage).len(), 1);
    assert!(!unfinished.exists());
}

#[test]
fn a_reference_for_a_container_engine_is_told_how_to_become_a_root() {
    let Some(stage) = staged("python:3.12") else { return };
    let ended = refused(&stage, "`image: python:3.12` is for a container engine");
    for part in ["skopeo copy docker://python:3.12 oci:image", "mmdebstrap", "image: ./rootfs"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    stage.ringfence(["policy", "show"]).run().expect(0, &[]);
    set_image(&stage, "./rootfs", "");
    let shown = stage.ringfence(["policy", "show"]).run().expect(0, &[]);
    assert!(shown.text().contains("name: ./rootfs"), "{}", shown.text());
    stage.ringfence(["doctor"]).run().expect(0, &[]);
}

#[test]
fn f03_measured_a_root_folder_that_is_swapped_for_a_link_while_runs_begin_is_never_followed() {
    let Some(stage) = walled() else { return };
    let place = outside(&stage);
    make_root(&place.join("root"));
    // What the link leads to is a root as well, with something in it that no policy shows.
    let hidden = stage.path().join("hidden");
    make_root(&hidden);
    let word = secret().unwrap();
    fs::write(hidden.join("etc/release"), &word).unwrap();
    symlink(&hidden, place.join("link")).unwrap();
    set_image(&stage, &format!("rootfs:{}", text(&place.join("root"))), "");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, place.join("root"), CWD, place.join("link"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..40 {
            let ended = sh(&stage, Wall::Native, "cat /etc/release", &[]);
            // Either it was seen as a folder all the time, or nothing ran. One that is a link when it is first looked at is
            // named by what it leads to, and judged as that.
            let shown = ended.text().contains(&word) && !ended.stderr.contains("image");
            let named = ended.code == 0 && shown && !was_named(&stage, &hidden);
            assert!(!named, "{ended:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Whether the last run says that its root was this folder.
fn was_named(stage: &Stage, folder: &Path) -> bool {
    let log = fs::read_to_string(stage.ledger()).unwrap();
    let planned = log.lines().rfind(|line| line.contains("\"kind\":\"planned\"")).unwrap_or_default();
    planned.contains(text(folder))
}
