//! F22 and F23: files that the policy denies, under odd names, in odd and in huge trees.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use ringfence_testkit::canary::secret;

use crate::probe::{Wall, python, run, sh, text, walled, walled_with};
use crate::stage::Stage;

/// Everything that can be read below the working directory.
const READ_ALL: &str = "
import os
for folder, folders, files in os.walk(b'.'):
    for name in files:
        try: os.write(1, open(os.path.join(folder, name), 'rb').read() + b'\\n')
        except OSError: pass
";

fn write(stage: &Stage, name: &[u8], text: &str) {
    let path = stage.work().join(OsStr::from_bytes(name));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn f22_a_denied_file_is_absent_whatever_its_name_and_its_folders_names() {
    let Some(stage) = walled_with("fs: { deny: [\"**/*.key\", \"exact[[]1].txt\"] }\n") else { return };
    let secret = secret().unwrap();
    let denied: [&[u8]; 14] = [
        b".env",
        b"sub/.env",
        b"a/b/c/d/.env",
        b"new\nline/.env",
        b"[a-z]/.env",
        b"back\\slash/.env",
        b"\xff\xfe/.env",
        b"esc\x1b[31m/.env",
        b"* ?/.env",
        b"\xff.key",
        b"a\nb.key",
        b"[x].key",
        b" .key",
        b"exact[1].txt",
    ];
    for name in denied {
        write(&stage, name, &secret);
    }
    write(&stage, b"exact1.txt", "the twin of a bracket");
    write(&stage, b"\xff\xfe/plain", "a neighbour");
    let Some(ended) = python(&stage, Wall::Native, READ_ALL, &[]) else { return };
    assert_eq!(ended.text().matches(secret.as_str()).count(), 0, "{ended:?}");
    assert!(ended.text().contains("the twin of a bracket") && ended.text().contains("a neighbour"), "{ended:?}");
    let twin = python(&stage, Wall::Bare, READ_ALL, &[]).unwrap();
    assert_eq!(twin.text().matches(secret.as_str()).count(), denied.len(), "the probe proves nothing");
}

#[test]
fn f22_a_denied_file_does_not_come_back_by_links_renames_or_the_private_layer() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write("sub/.env", &secret);
    stage.write("sub/plain", "");
    symlink("sub/.env", stage.work().join("link")).unwrap();
    symlink("sub", stage.work().join("folder")).unwrap();
    let script = "cat sub/.env link folder/.env; mv sub moved; cat moved/.env; cp -a sub copy; cat copy/.env
        ln sub/.env hard; cat hard; rm -f sub/.env; : > sub/.env; rm sub/.env; cat sub/.env; rm -rf sub; mkdir sub; cat sub/.env
        mknod sub/x c 0 0; setfattr -x user.overlay.whiteout sub/.env; find . -name .env -exec cat {} +";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert!(!ended.text().contains(&secret), "{ended:?}");
    assert_eq!(stage.read("sub/.env").unwrap(), secret, "the host's own file is as it was");
    let twin = sh(&stage, Wall::Bare, script, &[]);
    assert!(twin.text().contains(&secret), "the probe proves nothing: {twin:?}");
}

#[test]
fn f22_what_lies_in_a_folder_that_cannot_be_listed_is_denied_too() {
    for mode in [0o000, 0o111, 0o311] {
        let Some(stage) = walled() else { return };
        let secret = secret().unwrap();
        stage.write("closed/.env", &secret);
        let closed = stage.work().join("closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        let script = "cat closed/.env; chmod 755 closed; cat closed/.env; mv closed open; cat open/.env";
        let ended = sh(&stage, Wall::Native, script, &[]);
        assert!(!ended.text().contains(&secret), "mode {mode:o}: {ended:?}");
        let twin = sh(&stage, Wall::Bare, script, &[]);
        assert!(twin.text().contains(&secret), "the probe proves nothing: {twin:?}");
    }
}

#[test]
fn f22_a_folder_on_the_path_does_not_show_the_workspace_or_a_home_a_second_time() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write(".env", &secret);
    stage.write("bin/.env", &secret);
    let home = stage.path().join("home");
    fs::create_dir(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_rsa"), &secret).unwrap();
    symlink(&home, stage.path().join("tools")).unwrap();
    let (work, root) = (stage.work(), stage.path().to_owned());
    let folders = [work.clone(), work.join("bin"), home.clone(), root.join("tools"), root.clone(), work.join("bin/..")];
    let script = r#"cat "$1/.env" "$1/bin/.env" "$2/.ssh/id_rsa" "$3/tools/.ssh/id_rsa""#;
    let arguments = [text(&work), text(&home), text(&root)];
    for folder in folders {
        let path = format!("/usr/bin:/bin:{}", folder.display());
        let argv = [&["sh", "-c", script, "sh"], &arguments[..]].concat();
        let ended = run(&stage, Wall::Native, &[], &argv).env("PATH", &path).run();
        assert!(!ended.text().contains(&secret), "{path}: {ended:?}");
    }
    let twin = sh(&stage, Wall::Bare, script, &arguments);
    assert_eq!(twin.text().matches(&secret).count(), 4, "the probe proves nothing: {twin:?}");
}

#[test]
fn f22_a_workspace_below_a_folder_that_is_shown_anyway_is_shown_once() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let manager = stage.path().join("home/.pyenv");
    let project = manager.join("project");
    for (folder, file) in [(project.join("sub"), ".env"), (manager.join("shims"), "tool")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), &secret).unwrap();
    }
    let path = format!("/usr/bin:/bin:{}", manager.join("shims").display());
    let look = |wall, flags: &[&str]| {
        let flags = [&["--workspace", text(&project)], flags].concat();
        let script = r#"cat "$1/sub/.env" sub/.env; [ -e "$2/shims/tool" ] && echo shown; echo x > new; pwd"#;
        run(&stage, wall, &flags, &["sh", "-c", script, "sh", text(&project), text(&manager)])
            .env("PATH", &path)
            .run()
            .text()
    };
    assert_eq!(look(Wall::Native, &[]), "shown\n/workspace\n");
    let real = project.canonicalize().unwrap();
    assert_eq!(look(Wall::Native, &["--at", "same"]), format!("shown\n{}\n", real.display()));
    assert_eq!(look(Wall::Bare, &[]).matches(&secret).count(), 2, "the probe proves nothing");
}

#[test]
fn f23_measured_a_tree_too_large_to_look_through_is_refused_in_bounded_time() {
    let Some(stage) = walled() else { return };
    let names = |folder: usize| stage.work().join(format!("folder{folder}"));
    for folder in 0..201 {
        fs::create_dir(names(folder)).unwrap();
        // A further name of a file is an entry like any other, and quickly made and removed.
        let first = names(folder).join("0");
        fs::write(&first, "").unwrap();
        for file in 1..1000 {
            fs::hard_link(&first, names(folder).join(file.to_string())).unwrap();
        }
    }
    let begin = Instant::now();
    let ended = run(&stage, Wall::Native, &["--json"], &["echo", "ran"]).run();
    assert!(begin.elapsed() < Duration::from_secs(20), "it took {:?}", begin.elapsed());
    let outcome = ended.json();
    assert_eq!((ended.code, outcome["status"].as_str()), (125, Some("couldNotRun")), "{outcome:#}");
    assert!(outcome["error"].to_string().contains("more than 200,000 entries"), "{outcome:#}");
    assert_eq!(outcome["stdout"], "");
    for folder in 0..3 {
        fs::remove_dir_all(names(folder)).unwrap();
    }
    let twin = run(&stage, Wall::Native, &[], &["echo", "ran"]).run().expect(0, &[]);
    assert_eq!(twin.text(), "ran\n", "a tree just below the cap is looked through");
}

#[test]
fn f23_a_tree_that_refers_to_itself_is_walked_once() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write("a/b/.env", &secret);
    for (target, name) in [(".", "loop"), ("..", "a/up"), ("../a", "a/b/again"), ("self", "self"), ("/", "a/root")] {
        symlink(target, stage.work().join(name)).unwrap();
    }
    let script =
        "cat loop/loop/a/b/.env a/up/a/b/.env a/b/again/b/again/b/.env a/root/workspace/a/b/.env a/root$PWD/a/b/.env";
    let begin = Instant::now();
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!ended.text().contains(&secret), "{ended:?}");
    let twin = sh(&stage, Wall::Bare, script, &[]);
    assert!(twin.text().contains(&secret), "the probe proves nothing: {twin:?}");
}
