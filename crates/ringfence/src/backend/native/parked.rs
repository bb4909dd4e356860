//! An interpreter that is started before its code is known, behind a wall that stands: it is given the code of a run that is just
//! like the last one.
//!
//! Its start must not depend on anything that a request, a run or the workspace can change: it comes before any verdict.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_guest::protocol::MOST_AWAITED;
use ringfence_guest::{Guest, Order};
use ringfence_linux::cgroup::{Cgroup, Hierarchy};
use ringfence_linux::launcher::Prepares;
use ringfence_linux::wall::{Processors, Program};

use super::begun::{self, Begun, Wanted};
use super::interpreter::Interpreter;
use super::{Native, StartError, View, program};
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
            // With so much to do, what is made ahead would be made instead of something.
            if native.load.processors() == Processors::Busy {
                return;
            }
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
        let Some(interpreter) = Interpreter::of(&like.program, scene).filter(Interpreter::starts_by_itself) else {
            return Ok(());
        };
        let Some(begun) = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let Some(view) = begun.shows(scene, &self.state)? else { return Ok(()) };
        let failed = |source| StartError::Io { attempt: "start an interpreter that waits", source };
        let id = RunId::generate().map_err(|error| failed(std::io::Error::other(error)))?;
        let pipes = Pipes::new(&Stdin::Empty)?;
        let view = View { awaits: Some(like.name.clone()), ..view };
        // The one that was looked at, and no other of the same name after it.
        let only = Some(Program { files: vec![interpreter.file().to_owned()], ..like.program.clone() });
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
        if plan.begins_anew() || self.waiting().is_none() {
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
}
