//! An interpreter that is started before its code is known, behind a wall that stands: it is given the code of a run that is just
//! like the last one.
//!
//! Its start must not depend on anything that a request, a run or the workspace can change: it comes before any verdict.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_guest::protocol::MOST_AWAITED;
use ringfence_guest::{Guest, Order};
use ringfence_linux::cgroup::{Cgroup, Hierarchy};
use ringfence_linux::launcher::Prepares;
use ringfence_linux::wall::{HOME, Program};
use ringfence_policy::{Mount, MountMode};
use rustix::fs::Stat;

use super::begun::{self, Begun, Wanted};
use super::{Native, StartError, View, program, toolchain, view};
use crate::backend::Sandbox;
use crate::backend::counters::Counters;
use crate::backend::inside::{CODE, Scene};
use crate::backend::pipes::Pipes;
use crate::plan::Plan;
use crate::request::{Stdin, Work};
use crate::run_id::RunId;
use crate::waiting::{Later, afterwards};

/// A little less than it waits by itself: one that is taken must not end just then.
const WAITS: Duration = ringfence_guest::WAITS.saturating_sub(Duration::from_secs(5));

/// Variables that lead an interpreter, its loader or its libraries to files when it starts, or to do something else.
const LEADING: [&str; 8] = ["PYTHON", "NODE", "LD_", "GLIBC_", "MALLOC_", "GCONV_", "LOCPATH", "OPENSSL_"];
/// Those of them that do not.
const HARMLESS: [&str; 6] =
    ["PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONUTF8", "NODE_ENV"];

/// What a run must be like to have an interpreter that waits.
#[derive(Debug, PartialEq, Eq)]
struct Like {
    program: Program,
    /// The name of its code.
    name: OsString,
}

impl Like {
    /// What `plan` is like; nothing where more than its code comes with it, or its interpreter cannot wait.
    fn of(plan: &Plan, at: &Path) -> Option<Self> {
        let Work::Code { .. } = plan.work() else { return None };
        let brings_more = !plan.files().is_empty() || !matches!(plan.stdin(), Stdin::Empty);
        if brings_more || plan.terminal().is_some() || !plan.cwd().as_os_str().is_empty() {
            return None;
        }
        let program = program(plan, at, Path::new(CODE), None).ok()?;
        let name = match &program.argv[..] {
            [interpreter, file] if reads_all_at_once(interpreter) => Path::new(file).file_name()?.to_owned(),
            _ => return None,
        };
        // What is called so is no source text for Python.
        (!name.as_bytes().ends_with(b".pyc")).then_some(Self { program, name })
    }

    fn interpreter(&self) -> Option<&OsString> {
        self.program.argv.first()
    }
}

/// Whether this interpreter opens its file once, and reads it to its end before it does anything of it.
fn reads_all_at_once(interpreter: &OsStr) -> bool {
    ["python3", "python", "node"].iter().any(|known| interpreter == *known)
}

/// Whether `code` means the same when it is read from a pipe. What is not source text is recognised in files alone, and of text in
/// another encoding than UTF-8 the first lines are read twice.
fn can_be_piped(code: &[u8]) -> bool {
    let names_an_encoding = |line: &[u8]| line.windows(6).any(|word| word == b"coding");
    let mut lines = code.split(|byte| matches!(byte, b'\n' | b'\r'));
    code.len() <= MOST_AWAITED && !code.contains(&0) && !lines.by_ref().take(3).any(names_an_encoding)
}

/// The file of an interpreter, as it was.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    path: PathBuf,
    /// Its device, number, size, and when it or what is known of it was changed.
    seen: (u64, u64, i64, (i64, i64)),
}

impl Interpreter {
    /// What `program` would execute in `scene`, if neither that nor its start depends on what can be written inside, or on the workspace.
    fn of(program: &Program, scene: Scene<'_>) -> Option<Self> {
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
        let path = found(&program.files, &fixed, &others)?.canonicalize().ok().filter(|path| lies_in(path, &fixed))?;
        let mut first = [0; 4];
        File::open(&path).and_then(|mut file| file.read_exact(&mut first)).ok()?;
        // A script would look around for what to execute.
        (first == *b"\x7fELF").then_some(())?;
        let Stat { st_dev, st_ino, st_size, st_mtime, st_ctime, .. } = rustix::fs::stat(&path).ok()?;
        Some(Self { path, seen: (st_dev, st_ino, st_size, (st_mtime, st_ctime)) })
    }
}

/// The first of `files` that is there, which is executed and looks for itself in the same folders; nothing where one of them
/// before it may be another behind a wall.
fn found<'a>(files: &'a [PathBuf], fixed: &[PathBuf], others: &[PathBuf]) -> Option<&'a Path> {
    for file in files {
        let folder = file.parent()?;
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
    let kernels = ["/proc", "/dev"].iter().any(|kernels| folder.starts_with(kernels));
    let last = folder.ancestors().find(|above| above.symlink_metadata().is_ok());
    let is_plain = last.is_some_and(|last| last != folder && last.canonicalize().is_ok_and(|real| real == last));
    is_plain && !kernels && !lies_in(folder, others)
}

/// Whether a variable leads no interpreter anywhere when it starts, such as into the workspace, which is at `workspace`.
fn leads_nowhere(name: &OsStr, value: &OsStr, workspace: &Path) -> bool {
    let (text, workspace) = (name.to_string_lossy(), workspace.as_os_str().as_bytes());
    // Below it lie packages of the user's own, which run at the start.
    let is_other_home = name == "HOME" && value != HOME;
    let leads = LEADING.iter().any(|prefix| text.starts_with(prefix)) && !HARMLESS.contains(&&*text);
    // Of these folders each is looked at by itself.
    let is_inside = name != "PATH" && value.as_bytes().windows(workspace.len()).any(|part| part == workspace);
    !is_other_home && !leads && !is_inside
}

/// An interpreter that waits for code, and all that a run has but that. It is for one run.
#[derive(Debug)]
pub(super) struct Parked {
    /// The wall that it is behind.
    begun: Begun,
    like: Like,
    interpreter: Interpreter,
    since: Instant,
    guest: Guest,
    // After the guest: the group is removed when what it counts is gone.
    group: Option<Cgroup>,
    pipes: Pipes,
}

impl Parked {
    /// What a run shows that is like this, if it shows just what this one does.
    fn shows(&self, like: &Like, scene: Scene<'_>, native: &Native) -> Result<Option<View>, StartError> {
        let is_like = self.since.elapsed() < WAITS && self.like == *like;
        if !is_like || Interpreter::of(&like.program, scene).as_ref() != Some(&self.interpreter) {
            return Ok(None);
        }
        self.begun.shows(scene, &native.state)
    }
}

impl Native {
    /// Raises the wall of the next run, which will likely be like this one, and starts what will then wait for its code.
    pub(super) fn prepare_again(&self, plan: &Plan, at: &Path) -> Option<Later> {
        if self.launcher.prepares() != Prepares::Again || plan.policy().image.is_some() {
            return None;
        }
        let (native, wanted, like) = (self.clone(), Wanted::from(Scene::of(plan, at)), Like::of(plan, at));
        Some(Later::new(move || {
            native.stand(&wanted);
            let Some(like) = like else { return };
            // Without it, the next run only takes a little longer.
            native.park(&wanted, like).ok();
            // For one that is not like it.
            native.stand(&wanted);
        }))
    }

    fn stand(&self, wanted: &Wanted) {
        begun::begin(&self.launcher, &self.begun, wanted.scene().policy);
        begun::stand(&self.launcher, &self.begun, &self.state, wanted.clone(), self.groups());
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Parked>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the interpreter of `like` behind the wall that stands, unless there is one.
    fn park(&self, wanted: &Wanted, like: Like) -> Result<(), StartError> {
        let is_like = |parked: &Parked| parked.like == like && parked.since.elapsed() < WAITS;
        // Whoever is born in a group cannot be behind a wall that stood before.
        if self.waiting().as_ref().is_some_and(is_like) || self.hierarchy().is_ok_and(Hierarchy::is_unified) {
            return Ok(());
        }
        let scene = wanted.scene();
        let Some(interpreter) = Interpreter::of(&like.program, scene) else { return Ok(()) };
        let Some(begun) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let Some(view) = begun.shows(scene, &self.state)? else { return Ok(()) };
        let failed = |source| StartError::Io { attempt: "start an interpreter that waits", source };
        let id = RunId::generate().map_err(|error| failed(std::io::Error::other(error)))?;
        let pipes = Pipes::new(&Stdin::Empty)?;
        let (view, only) = (View { awaits: Some(like.name.clone()), ..view }, Some(like.program.clone()));
        let raised = self.raise_wall((&id, scene.policy), view, only, pipes.program_ends(&Stdin::Empty)?)?;
        let Some((guest, group)) = raised else { return Ok(()) };
        // It is not known what for: its own process proves everything first, as always.
        guest.send(&Order::Release, &[]).map_err(failed)?;
        let parked = Parked { begun, like, interpreter, since: Instant::now(), guest, group, pipes };
        let before = self.waiting().replace(parked);
        drop(before);
        Ok(())
    }

    /// The sandbox of an interpreter that waits for the code of `plan`, if there is one.
    pub(super) async fn take_parked(&self, plan: &Plan, at: &Path) -> Result<Option<Sandbox>, StartError> {
        if self.waiting().is_none() {
            return Ok(None);
        }
        let (Work::Code { source, .. }, Some(like)) = (plan.work(), Like::of(plan, at)) else { return Ok(None) };
        let is_of_its_kind = |parked: &mut Parked| parked.like.interpreter() == like.interpreter();
        if !can_be_piped(source) {
            return Ok(None);
        }
        let Some(parked) = self.waiting().take_if(is_of_its_kind) else { return Ok(None) };
        let Some(View { lower, live, .. }) = parked.shows(&like, Scene::of(plan, at), self)? else {
            afterwards(move || drop(parked));
            return Ok(None);
        };
        let mut sandbox = parked.pipes.behind(parked.guest)?;
        sandbox.counters = parked.group.map(|group| Counters::Cgroup(Arc::new(group)));
        (sandbox.lower, sandbox.live) = (lower, live);
        // One that was killed meanwhile, or could not be started.
        if sandbox.proven(plan, None, false).await.is_err() {
            return Ok(None);
        }
        sandbox.code = Some(source.clone());
        sandbox.afterwards = self.prepare_again(plan, at);
        Ok(Some(sandbox))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_means_something_else_in_a_pipe_does_not_come_through_one() {
        let check = |code: &[u8], expected: bool| {
            assert_eq!(can_be_piped(code), expected, "{}", String::from_utf8_lossy(&code[..code.len().min(40)]));
        };
        check(b"print(1)", true);
        check(b"", true);
        check(&[b'#'; MOST_AWAITED], true);
        check(&[b'#'; MOST_AWAITED + 1], false);
        check(b"PK\x05\x06\0\0", false);
        check(b"# -*- coding: latin-1 -*-\n", false);
        check(b"#!/usr/bin/python3\r# vim: fileencoding=latin-1\r", false);
        check(b"#!/usr/bin/python3\r\n# coding=latin-1\r\n", false);
        check(b"import encodings\n\n\n\n# coding: latin-1\n", false);
        check(b"x = 1\ny = 2\nz = 3\n\n# coding: latin-1\n", true);
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
        check("ANYTHING", "x=../../workspace", false);
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
        check(Path::new("/proc/self/cwd/bin"), false);
        check(Path::new("/proc/3/cwd/bin"), false);
    }
}
