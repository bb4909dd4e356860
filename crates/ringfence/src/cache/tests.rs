//! Filling, looking at and refusing caches, with a tool that only copies.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::{CacheKind, Layer, LayerInput, ResolvedPolicy, parse, resolve};
use sha2::{Digest, Sha256, Sha512};

use super::*;

const WHEEL: &str = "tiny-1.0-py3-none-any.whl";

/// A workspace with a lock file, a state folder, and a folder with a tool.
struct Place {
    folder: tempfile::TempDir,
    state: StateFolder,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "bin", "wheels"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let state = StateFolder::prepare(folder.path().join("state")).unwrap();
        let place = Self { folder, state };
        fs::write(place.wheel(), "a wheel").unwrap();
        place.lock("a wheel");
        place.tool(&place.path("bin"));
        place
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(below)
    }

    fn wheel(&self) -> PathBuf {
        self.path("wheels").join(WHEEL)
    }

    /// A lock file for a wheel with these contents.
    fn lock(&self, contents: &str) {
        let hash = store::hex(&Sha256::digest(contents));
        fs::write(self.path("work/requirements.txt"), format!("tiny==1.0 --hash=sha256:{hash}\n")).unwrap();
    }

    /// A tool that copies the wheels, and counts its calls.
    fn tool(&self, folder: &Path) {
        let (wheels, count) = (self.path("wheels"), self.path("count"));
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != --dest ]; do shift; done\necho x >> {}\ncp {}/* \"$2\"\n",
            count.display(),
            wheels.display()
        );
        fs::write(folder.join("pip3"), script).unwrap();
        fs::set_permissions(folder.join("pip3"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.path("count")).unwrap_or_default().lines().count()
    }

    fn search_path(&self) -> OsString {
        std::env::join_paths([self.path("bin"), "/usr/bin".into(), "/bin".into()]).unwrap()
    }

    fn fill(&self) -> Result<Filled, CacheError> {
        fill(CacheKind::Pip, &self.path("work"), &self.state, &self.search_path(), &mut |_| ())
    }

    fn mounts(&self) -> Result<Vec<(PathBuf, PathBuf)>, CacheError> {
        mounts(&policy("cache: [pip]"), &self.path("work"), &self.state)
    }

    fn shown(&self) -> PathBuf {
        self.mounts().unwrap().remove(0).0
    }
}

fn policy(text: &str) -> ResolvedPolicy {
    let file = parse("p.yaml", &format!("version: 1\n{text}\n")).unwrap();
    resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap()
}

#[test]
fn what_was_fetched_is_shown_once_it_is_there_and_only_for_the_same_lock_file() {
    let place = Place::new();
    let missing = place.mounts().unwrap_err();
    assert!(matches!(missing, CacheError::Missing { .. }) && missing.to_string().contains("ringfence cache fill"));
    assert_eq!(place.fill().unwrap(), Filled::Fetched(1));
    let mounts = place.mounts().unwrap();
    assert_eq!(mounts[0].1, Path::new("/deps/pip"));
    assert_eq!(fs::read_to_string(mounts[0].0.join(WHEEL)).unwrap(), "a wheel");
    assert_eq!((place.fill().unwrap(), place.calls()), (Filled::Already, 1));
    assert_eq!(list(&place.state).unwrap().len(), 1);
    place.lock("another");
    assert!(matches!(place.mounts(), Err(CacheError::Missing { .. })));
    assert!(mounts_of_none(&place).is_empty());
}

fn mounts_of_none(place: &Place) -> Vec<(PathBuf, PathBuf)> {
    mounts(&policy(""), &place.path("work"), &place.state).unwrap()
}

#[test]
fn a_cache_that_was_changed_in_any_way_is_refused_and_filled_again() {
    let place = Place::new();
    place.fill().unwrap();
    let check = |what: &str, harm: &dyn Fn(&Path)| {
        harm(&place.shown());
        let refused = place.mounts().unwrap_err();
        assert!(matches!(refused, CacheError::Damaged { .. }), "{what}: {refused}");
        assert!(verify(&place.state).unwrap().iter().all(|(_, _, checked)| checked.is_err()), "{what}");
        assert_eq!(place.fill().unwrap(), Filled::Fetched(1), "{what}");
        assert!(place.mounts().is_ok(), "{what}: the twin is shown");
    };
    check("a byte", &|files| fs::write(files.join(WHEEL), "A wheel").unwrap());
    check("a file more", &|files| fs::write(files.join("evil.whl"), "x").unwrap());
    check("a file less", &|files| fs::remove_file(files.join(WHEEL)).unwrap());
    check("another instead", &|files| fs::rename(files.join(WHEEL), files.join("evil.whl")).unwrap());
    check("a link instead", &|files| {
        fs::rename(files.join(WHEEL), place.path("moved")).unwrap();
        symlink(place.path("moved"), files.join(WHEEL)).unwrap();
    });
    check("a link for all", &|files| {
        fs::rename(files, place.path("all")).unwrap();
        symlink(place.path("all"), files).unwrap();
    });
    check("no list", &|files| fs::remove_file(files.with_file_name("manifest.json")).unwrap());
    check("a broken list", &|files| fs::write(files.with_file_name("manifest.json"), "{").unwrap());
    check("open to others", &|files| {
        fs::set_permissions(files.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    });
}

#[test]
fn what_comes_without_the_right_hash_is_not_used_and_leaves_nothing() {
    let place = Place::new();
    fs::write(place.wheel(), "evil").unwrap();
    assert!(matches!(place.fill(), Err(CacheError::Fetched { .. })));
    assert!(list(&place.state).unwrap().is_empty());
    assert_eq!(fs::read_dir(place.path("state/caches/pip")).unwrap().count(), 0);
    fs::write(place.wheel(), "a wheel").unwrap();
    fs::write(place.path("wheels/more.whl"), "more").unwrap();
    assert!(matches!(place.fill(), Err(CacheError::Fetched { .. })), "nothing comes along either");
    fs::remove_file(place.path("wheels/more.whl")).unwrap();
    symlink("/etc/passwd", place.path("work/x")).unwrap();
    assert_eq!(place.fill().unwrap(), Filled::Fetched(1), "the twin is taken");
}

#[test]
fn a_tool_of_the_workspace_is_never_started() {
    let place = Place::new();
    let inside = place.path("work/bin");
    fs::create_dir(&inside).unwrap();
    place.tool(&inside);
    fs::create_dir(place.path("links")).unwrap();
    symlink(inside.join("pip3"), place.path("links/pip3")).unwrap();
    for folder in [inside, place.path("links"), PathBuf::from("work/bin")] {
        let path = folder.into_os_string();
        let filled = fill(CacheKind::Pip, &place.path("work"), &place.state, &path, &mut |_| ());
        assert!(matches!(filled, Err(CacheError::NoTool { .. })), "{path:?}: {filled:?}");
    }
    assert_eq!(place.calls(), 0);
    assert_eq!((place.fill().unwrap(), place.calls()), (Filled::Fetched(1), 1), "the twin is started");
}

/// A tool that answers with settings, notes what it was given, and puts the archive where npm does.
fn npm(place: &Place, archive: &str) {
    let hash = store::hex(&Sha512::digest(archive));
    let (folder, name) = (format!("_cacache/content-v2/sha512/{}/{}", &hash[..2], &hash[2..4]), &hash[4..]);
    let noted = place.path("noted");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in config) echo '{{\"registry\":\"https://r.test/\"}}'; exit;; esac\n\
         echo x >> {count}\nmkdir {noted}\ncp package.json package-lock.json {noted}\nls -A > {noted}/files\n\
         env > {noted}/env\necho \"$*\" > {noted}/arguments\n\
         while [ \"$1\" != --cache ]; do shift; done\nmkdir -p \"$2/{folder}\"\nprintf %s '{archive}' > \"$2/{folder}/{name}\"\n",
        count = place.path("count").display(),
        noted = noted.display(),
    );
    fs::write(place.path("bin/npm"), script).unwrap();
    fs::set_permissions(place.path("bin/npm"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_lock_file_cannot_make_npm_clone_a_repository_or_execute_anything() {
    let place = Place::new();
    npm(&place, "an archive");
    fs::write(place.path("work/.npmrc"), "git=/ws/pwn.sh\n").unwrap();
    let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest("an archive")));
    let lock = |wanted: &str, from: &str| {
        let text = serde_json::json!({ "lockfileVersion": 3, "packages": {
            "": { "dependencies": { "a": wanted }, "scripts": { "install": "evil" } },
            "node_modules/a": { "version": "1.0.0", "resolved": from, "integrity": integrity, "hasInstallScript": true },
        } });
        fs::write(place.path("work/package-lock.json"), text.to_string()).unwrap();
        fill(CacheKind::Npm, &place.path("work"), &place.state, &place.search_path(), &mut |_| ())
    };
    let from = "https://r.test/a/-/a-1.0.0.tgz";
    for (wanted, from) in [
        ("git+file:///ws/evil", from),
        ("^1.0.0", "git+file:///ws/evil"),
        ("^1.0.0", "https://elsewhere.test/what-a-program-knows/a.tgz"),
    ] {
        let filled = lock(wanted, from);
        assert!(matches!(filled, Err(CacheError::Lock { .. })), "{wanted} {from}: {filled:?}");
        assert_eq!(place.calls(), 0, "{wanted} {from}");
    }
    assert_eq!(lock("^1.0.0", from).unwrap(), Filled::Fetched(1), "the twin is fetched");
    let noted = |name: &str| fs::read_to_string(place.path("noted").join(name)).unwrap();
    assert!(!(noted("package.json") + &noted("package-lock.json")).to_lowercase().contains("script"));
    assert!(!noted("files").contains("npmrc"), "no settings lie there");
    assert!(noted("env").lines().any(|line| line == "npm_config_git=/dev/null/no-git"));
    assert!(noted("env").lines().any(|line| line == "npm_config_ignore_scripts=true"));
    assert!(noted("arguments").starts_with("ci --no-workspaces --ignore-scripts "));
}

#[test]
fn nothing_is_fetched_in_a_folder_below_the_settings_of_the_workspace() {
    let place = Place::new();
    fs::copy(place.path("work/requirements.txt"), place.path("requirements.txt")).unwrap();
    let tools = tempfile::tempdir().unwrap();
    place.tool(tools.path());
    let path = std::env::join_paths([tools.path(), "/usr/bin".as_ref(), "/bin".as_ref()]).unwrap();
    let above = fill(CacheKind::Pip, &place.path(""), &place.state, &path, &mut |_| ());
    assert!(matches!(above, Err(CacheError::Within { .. })), "{above:?}");
    assert_eq!(place.calls(), 0);
    assert_eq!(place.fill().unwrap(), Filled::Fetched(1), "the twin is fetched");
}

#[test]
fn f02_a_lock_file_that_is_a_link_or_no_file_or_too_long_is_refused() {
    let place = Place::new();
    let lock = place.path("work/requirements.txt");
    let refused = |what: &str| {
        assert!(matches!(place.fill(), Err(CacheError::Lock { .. })), "{what}");
        assert!(matches!(place.mounts(), Err(CacheError::Lock { .. })), "{what}");
    };
    fs::rename(&lock, place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), &lock).unwrap();
    refused("a link");
    fs::remove_file(&lock).unwrap();
    assert!(matches!(place.fill(), Err(CacheError::NoLock { .. })));
    fs::create_dir(&lock).unwrap();
    refused("a folder");
    fs::remove_dir(&lock).unwrap();
    fs::write(&lock, vec![b'#'; 17 * 1024 * 1024]).unwrap();
    refused("too long");
    fs::write(&lock, [0xff]).unwrap();
    refused("not UTF-8");
    assert_eq!(place.calls(), 0);
    place.lock("a wheel");
    assert_eq!(place.fill().unwrap(), Filled::Fetched(1), "the twin is read");
}

#[test]
fn two_who_fill_at_once_fetch_once_and_what_a_killed_one_left_is_removed() {
    let place = Place::new();
    fs::create_dir_all(place.path("state/caches/pip/unfinished/new/files/old")).unwrap();
    std::thread::scope(|scope| {
        let both = [scope.spawn(|| place.fill()), scope.spawn(|| place.fill())];
        let mut filled: Vec<Filled> = both.into_iter().map(|it| it.join().unwrap().unwrap()).collect();
        filled.sort_by_key(|filled| *filled == Filled::Already);
        assert_eq!(filled, [Filled::Fetched(1), Filled::Already]);
    });
    assert_eq!(place.calls(), 1);
    assert_eq!(fs::read_dir(place.path("state/caches/pip")).unwrap().count(), 1);
}

#[test]
fn a_place_that_a_mount_has_is_not_covered_in_silence() {
    let place = Place::new();
    place.fill().unwrap();
    for at in ["/deps", "/deps/pip", "/deps/pip/more"] {
        let policy = policy(&format!("cache: [pip]\nfs: {{ mounts: [{{ host: ./x, at: {at} }}] }}"));
        let refused = mounts(&policy, &place.path("work"), &place.state);
        assert!(matches!(refused, Err(CacheError::Taken { .. })), "{at}");
    }
    let beside = policy("cache: [pip]\nfs: { mounts: [{ host: ./x, at: /deps/other }] }");
    assert!(mounts(&beside, &place.path("work"), &place.state).is_ok(), "the twin is shown");
}

#[test]
fn caches_that_nobody_uses_are_removed_by_their_age() {
    let place = Place::new();
    place.fill().unwrap();
    assert_eq!(prune(&place.state, std::time::Duration::from_secs(3600)).unwrap(), 0);
    assert!(place.mounts().is_ok());
    assert_eq!(prune(&place.state, std::time::Duration::ZERO).unwrap(), 1);
    assert!(matches!(place.mounts(), Err(CacheError::Missing { .. })));
}
