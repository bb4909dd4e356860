//! An interpreter that may be started before any verdict: neither its file nor its start depends on a request, on a run, or on what
//! can be written behind a wall.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_linux::wall::{HOME, Program};
use ringfence_policy::{Mount, MountMode};
use rustix::fs::Stat;

use super::{toolchain, view};
use crate::backend::inside::Scene;

/// Variables that lead no interpreter, loader or library anywhere when it starts. What nobody here knows may.
const HARMLESS: [&str; 22] = [
    "CI",
    "COLUMNS",
    "FORCE_COLOR",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOGNAME",
    "NODE_ENV",
    "NO_COLOR",
    "NO_UPDATE_NOTIFIER",
    "PATH",
    "PWD",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "SHELL",
    "TERM",
    "TZ",
    "USER",
];
/// Likewise, all that begin so.
const HARMLESS_KIN: [&str; 4] = ["LC_", "NPM_CONFIG_", "PIP_", "RINGFENCE_"];
/// What `setuptools` puts beside its packages, as a line that Python executes: it imports a module that lies there.
const OF_SETUPTOOLS: [&str; 3] = [
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; \
     enabled and __import__('_distutils_hack');",
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == 'local'; \
     enabled and __import__('_distutils_hack').add_shim();",
    "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'stdlib') == 'local'; \
     enabled and __import__('_distutils_hack').add_shim();",
];
/// A list of folders that is longer than this is not read.
const MOST_OF_A_LIST: u64 = 64 * 1024;

/// The file of an interpreter, as it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interpreter {
    /// As it is found and called.
    file: PathBuf,
    /// What that leads to.
    path: PathBuf,
    /// Folders that are shown as they are on the host, and cannot be written.
    fixed: Vec<PathBuf>,
    /// Its device, number, size, and when it or what is known of it was changed.
    seen: (u64, u64, i64, (i64, i64)),
}

impl Interpreter {
    /// What `program` would execute in `scene`, if neither that nor its start depends on what can be written inside, or on the workspace.
    pub(super) fn of(program: &Program, scene: Scene<'_>) -> Option<Self> {
        let mut fixed: Vec<PathBuf> = view::SYSTEM.iter().map(PathBuf::from).collect();
        fixed.extend(toolchain::paths(scene.search_path, scene.workspace));
        let mut others = vec![scene.at.to_owned()];
        for mount in &scene.policy.fs.mounts {
            if matches!(mount.value, Mount::Host { mode: MountMode::ReadWrite, .. }) {
                return None;
            }
            others.push(mount.value.target().as_path().to_owned());
        }
        let home = Path::new(HOME);
        let covers = |other: &PathBuf| {
            let both = |folder: &Path| other.starts_with(folder) || folder.starts_with(other);
            both(home) || fixed.iter().any(|folder| both(folder))
        };
        let mut variables = program.env.iter();
        if others.iter().any(covers) || !variables.all(|(name, value)| leads_nowhere(name, value, scene.at)) {
            return None;
        }
        let file = found(&program.files, &fixed, &others)?.to_owned();
        let path = file.canonicalize().ok().filter(|path| lies_in(path, &fixed))?;
        let mut first = [0; 4];
        File::open(&path).and_then(|mut file| file.read_exact(&mut first)).ok()?;
        // A script would look around for what to execute.
        (first == *b"\x7fELF").then_some(())?;
        let Stat { st_dev, st_ino, st_size, st_mtime, st_ctime, .. } = rustix::fs::stat(&path).ok()?;
        Some(Self { file, path, fixed, seen: (st_dev, st_ino, st_size, (st_mtime, st_ctime)) })
    }

    /// The file that is executed.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether all that it looks for before it reads its code is looked for in what is fixed. Node looks for nothing else; Python
    /// in folders that lists beside its packages name.
    pub(super) fn starts_by_itself(&self) -> bool {
        let is_called = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
        match (is_called(&self.file), is_called(&self.path)) {
            (true, true) => self.lists().is_some_and(|lists| self.lead_nowhere(&lists)),
            (false, false) => true,
            // Another Python, whose packages lie elsewhere.
            (true, false) | (false, true) => false,
        }
    }

    /// The lists of folders for Python; nothing where what it looks for is not known.
    fn lists(&self) -> Option<Vec<PathBuf>> {
        let mut prefixes = vec![PathBuf::from("/usr")];
        for file in [&self.file, &self.path] {
            let folder = file.parent()?;
            let prefix = folder.parent()?;
            // An environment of its own: its packages, and perhaps those of the project.
            let is_own = |at: &Path| at.join("pyvenv.cfg").symlink_metadata().is_ok();
            let is_odd = |name: &OsStr| name == "pybuilddir.txt" || name.as_bytes().ends_with(b"._pth");
            let mut beside = fs::read_dir(folder).ok()?;
            if is_own(folder)
                || is_own(prefix)
                || beside.any(|entry| entry.map_or(true, |entry| is_odd(&entry.file_name())))
            {
                return None;
            }
            prefixes.push(prefix.to_owned());
        }
        let mut lists = Vec::new();
        for prefix in &prefixes {
            for libraries in ["lib", "lib64", "local/lib"].map(|name| prefix.join(name)) {
                for version in names(&libraries)?.iter().filter(|name| name.as_bytes().starts_with(b"python")) {
                    for packages in ["site-packages", "dist-packages"].map(|name| libraries.join(version).join(name)) {
                        let is_list = |name: &&std::ffi::OsString| name.as_bytes().ends_with(b".pth");
                        lists.extend(names(&packages)?.iter().filter(is_list).map(|name| packages.join(name)));
                    }
                }
            }
        }
        Some(lists)
    }

    /// Whether each line of these lists names a folder that is fixed. One that is executed may lead anywhere, unless the machine's
    /// administrator put it there: it is as much a part of the system as the interpreter. But not even then where it is about a project that
    /// is still being worked on.
    fn lead_nowhere(&self, lists: &[PathBuf]) -> bool {
        lists.iter().all(|list| {
            let mut text = String::new();
            let read = File::open(list).and_then(|file| {
                let metadata = file.metadata()?;
                let is_the_systems = metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
                file.take(MOST_OF_A_LIST + 1).read_to_string(&mut text).map(|read| (read as u64, is_the_systems))
            });
            let (Some(folder), Ok((0..=MOST_OF_A_LIST, is_the_systems))) = (list.parent(), read) else { return false };
            // Some versions of Python know more ends of lines than others.
            let is_odd =
                |letter: char| letter.is_control() && !"\n\r\t".contains(letter) || "\u{2028}\u{2029}".contains(letter);
            let is_of_a_project = |text: &str| text.to_ascii_lowercase().contains("editable");
            let may_execute = is_the_systems && !is_of_a_project(&list.to_string_lossy());
            !text.contains(is_odd)
                && text.split(['\n', '\r']).map(str::trim_end).all(|line| {
                    let is_nothing = line.trim().is_empty() || line.starts_with('#');
                    let named = || folder.join(line).canonicalize().is_ok_and(|named| lies_in(&named, &self.fixed));
                    match line.starts_with("import") {
                        true => OF_SETUPTOOLS.contains(&line) || may_execute && !is_of_a_project(line),
                        false => is_nothing || named(),
                    }
                })
        })
    }
}

/// What a folder holds: nothing where there is none. Of one that cannot be read it is not known.
fn names(folder: &Path) -> Option<Vec<std::ffi::OsString>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name()).ok()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Vec::new()),
        Err(_) => None,
    }
}

/// The first of `files` that is there, which is executed and looks for itself in the same folders; nothing where one of them
/// before it may be another behind a wall.
fn found<'a>(files: &'a [PathBuf], fixed: &[PathBuf], others: &[PathBuf]) -> Option<&'a Path> {
    for file in files {
        // What is elsewhere for somebody who stands elsewhere, or is another for each process, is not looked for here.
        let folder = file.parent().filter(|folder| folder.is_absolute() && !is_the_kernels(folder))?;
        if is_missing(folder, others) {
            continue;
        }
        let is_fixed = folder.canonicalize().is_ok_and(|real| lies_in(&real, fixed));
        if !is_fixed || lies_in(folder, others) {
            return None;
        }
        if file.symlink_metadata().is_ok() {
            return Some(file);
        }
    }
    None
}

fn lies_in(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// Whether nothing is at `folder`, here or behind a wall with `others`. Where a link is on the way, it may lead somewhere else there.
fn is_missing(folder: &Path, others: &[PathBuf]) -> bool {
    let last = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
    let is_plain = last.is_some_and(|last| last != folder && last.canonicalize().is_ok_and(|real| real == last));
    is_plain && !lies_in(folder, others)
}

/// Whether a folder is the kernel's own.
fn is_the_kernels(folder: &Path) -> bool {
    ["/proc", "/dev", "/sys"].iter().any(|own| folder.starts_with(own))
}

/// Whether a variable leads no interpreter anywhere when it starts, such as into the workspace, which is at `workspace`.
fn leads_nowhere(name: &OsStr, value: &OsStr, workspace: &Path) -> bool {
    let (text, workspace) = (name.to_string_lossy(), workspace.as_os_str().as_bytes());
    let is_known = HARMLESS.contains(&&*text) || HARMLESS_KIN.iter().any(|kin| text.starts_with(kin));
    // Below it lie packages of the user's own, which run at the start.
    let is_other_home = name == "HOME" && value != HOME;
    // Of these folders each is looked at by itself. A zone of time may be a file.
    let is_inside = name != "PATH" && value.as_bytes().windows(workspace.len()).any(|part| part == workspace);
    let is_a_file = name == "TZ" && value.as_bytes().iter().any(|byte| matches!(byte, b':' | b'.'));
    is_known && !is_other_home && !is_inside && !is_a_file
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Whether Python in a folder of its own starts by itself, beside a list of folders that has these permissions.
    fn starts_with(list: &str, name: &str, mode: u32) -> bool {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (prefix, workspace) = (place.join("prefix"), place.join("workspace"));
        let packages = prefix.join("lib/python3.99/site-packages");
        for folder in [&prefix.join("bin"), &packages, &prefix.join("lib/more"), &workspace] {
            fs::create_dir_all(folder).unwrap();
        }
        let list = list.replace("WORKSPACE", workspace.to_str().unwrap()).replace("PREFIX", prefix.to_str().unwrap());
        let at = if name == "pyvenv.cfg" { prefix.join(name) } else { packages.join(name) };
        fs::write(&at, list).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
        let file = prefix.join("bin/python3");
        let fixed = vec![prefix.clone(), PathBuf::from("/usr")];
        Interpreter { path: file.clone(), file, fixed, seen: (0, 0, 0, (0, 0)) }.starts_by_itself()
    }

    #[test]
    fn python_that_looks_into_the_workspace_when_it_starts_is_not_started_early() {
        let check = |list: &str, expected: bool| assert_eq!(starts_with(list, "x.pth", 0o666), expected, "{list}");
        check("", true);
        check("# nothing\n\n../../more\nPREFIX/lib/more\r\n", true);
        check(OF_SETUPTOOLS[0], true);
        check("WORKSPACE\n", false);
        check("../../../../workspace\n", false);
        check("PREFIX/lib/more\rWORKSPACE", false);
        check("# a comment\x0cWORKSPACE\n", false);
        check("# a comment\u{2028}import x\n", false);
        check("PREFIX/lib/missing\n", false);
        check("import os; os.chdir('/')\n", false);
        check(&format!("{}; import x\n", OF_SETUPTOOLS[0]), false);
        check(&"# long\n".repeat(20_000), false);
        assert!(starts_with("WORKSPACE\n", "x.txt", 0o644), "the twin: it is no list");
        assert!(!starts_with("home = /usr/bin\n", "pyvenv.cfg", 0o644));
        // What the administrator put there is the system's own, but for what belongs to a project.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(starts_with("import os; os.chdir('/')\n", "x.pth", 0o644), is_root);
        assert!(!starts_with("import __editable___x_finder\n", "x.pth", 0o644));
        assert!(!starts_with("import x\n", "__editable__.x.pth", 0o644));
        assert!(!starts_with("WORKSPACE\n", "x.pth", 0o644));
    }

    #[test]
    fn another_python_whose_lists_nobody_here_knows_is_not_started_early() {
        let starts = |file: &str, path: &str| {
            let (file, path) = (PathBuf::from(file), PathBuf::from(path));
            Interpreter { file, path, fixed: vec!["/usr".into()], seen: (0, 0, 0, (0, 0)) }.starts_by_itself()
        };
        assert!(!starts("/usr/bin/python3", "/usr/bin/pypy3"));
        assert!(!starts("/usr/bin/node", "/usr/bin/python3"));
        assert!(starts("/usr/bin/node", "/usr/bin/nodejs"), "the twin");
    }

    #[test]
    fn what_stands_in_a_folder_that_differs_from_process_to_process_is_not_found() {
        let fixed = [PathBuf::from("/usr"), "/bin".into()];
        let check = |files: &[&str], expected: Option<&str>| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(found(&files, &fixed, &["/workspace".into()]), expected.map(Path::new), "{files:?}");
        };
        check(&["/usr/bin/sh"], Some("/usr/bin/sh"));
        check(&["/usr/lib/nothing/sh", "/usr/bin/sh"], Some("/usr/bin/sh"));
        check(&["sh", "/usr/bin/sh"], None);
        check(&["./sh", "/usr/bin/sh"], None);
        check(&["/proc/self/cwd/sh", "/usr/bin/sh"], None);
        check(&["/usr/../workspace/sh", "/usr/bin/sh"], None);
        check(&["/workspace/sh", "/usr/bin/sh"], None);
    }

    #[test]
    fn a_variable_that_leads_somewhere_keeps_an_interpreter_from_being_started_early() {
        let check = |name: &str, value: &str, expected: bool| {
            let nowhere = leads_nowhere(OsStr::new(name), OsStr::new(value), Path::new("/workspace"));
            assert_eq!(nowhere, expected, "{name}={value}");
        };
        check("LANG", "C.UTF-8", true);
        check("HOME", HOME, true);
        check("HOME", "/tmp", false);
        check("PYTHONUNBUFFERED", "1", true);
        check("PYTHONPATH", "/opt", false);
        check("PYTHONSTARTUP", "/opt/x.py", false);
        check("PYTHONANYTHING", "", false);
        check("NODE_OPTIONS", "--require=/opt/x.js", false);
        check("LD_PRELOAD", "/opt/x.so", false);
        check("TZ", "Europe/Berlin", true);
        check("TZ", ":/workspace/zone", false);
        check("TZ", "../../tmp/zone", false);
        check("LC_ALL", "../../workspace", false);
        check("CI", "true", true);
        check("ANYTHING", "x", false);
        check("PATH", "/workspace/bin:/usr/bin", true);
    }

    #[test]
    fn a_folder_that_a_link_leads_to_is_not_missing() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/workspace/bin", place.join("link")).unwrap();
        let check = |folder: &Path, expected: bool| {
            assert_eq!(is_missing(folder, &["/workspace".into()]), expected, "{}", folder.display());
        };
        check(&place.join("nothing/bin"), true);
        check(&place, false);
        check(&place.join("link"), false);
        check(&place.join("link/more"), false);
        check(Path::new("/workspace/bin"), false);
    }
}
