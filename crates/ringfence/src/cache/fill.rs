//! Fetching: the tool of each kind does it, from a folder in which only what was understood of the lock file lies.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence_policy::CacheKind;

use super::failure::{CacheError, failed};
use super::registry::Registries;
use super::store::{Held, Presence, Unfinished};
use super::{cargo, lock, npm, pip};
use crate::state::StateFolder;

const MOST_SAID: u64 = 4 * 1024;
const MOST_ANSWER: u64 = 256 * 1024;

/// What a fill came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filled {
    /// It was there, and whole.
    Already,
    /// So many packages were fetched.
    Fetched(usize),
}

/// What a lock file names.
enum Wanted {
    Pip(Vec<pip::Requirement>),
    Npm(npm::Packages),
    Cargo(Vec<cargo::Crate>),
}

/// Fetches what the lock file of `kind` in `workspace` names, unless it is there and whole. The tool is looked for in
/// `search_path` and never in the workspace, where a program could have put one. `say` is told what happens.
pub fn fill(
    kind: CacheKind,
    workspace: &Path,
    state: &StateFolder,
    search_path: &OsStr,
    say: &mut dyn FnMut(&str),
) -> Result<Filled, CacheError> {
    let lock = lock::find(kind, workspace)?;
    let parsed = match kind {
        CacheKind::Pip => pip::parse(&lock.text).map(Wanted::Pip),
        CacheKind::Npm => npm::parse(&lock.text).map(Wanted::Npm),
        CacheKind::Cargo => cargo::parse(&lock.text).map(Wanted::Cargo),
    };
    let wanted = parsed.map_err(|problem| lock.refuse(problem))?;
    let held = Held::take(state, kind)?;
    match held.look(kind, &lock)? {
        Presence::Whole => return Ok(Filled::Already),
        Presence::Missing => {}
        Presence::Damaged(problem) => {
            say(&format!("{kind}: the cache is not what was fetched ({problem}); it is fetched again"));
        }
    }
    let tool = Tool::find(kind, search_path, workspace)?;
    say(&format!("{kind}: fetching what {} names, with `{}`", lock.path.display(), tool.path.display()));
    let unfinished = held.begin()?;
    // The tools look for settings, and cargo's for a whole toolchain, in every folder above the one they work in.
    let real = |path: &Path| path.canonicalize().map_err(failed("look at", path));
    if real(&unfinished.work)?.starts_with(real(workspace)?) {
        return Err(CacheError::Within { kind, workspace: workspace.to_owned() });
    }
    let packages = match &wanted {
        Wanted::Pip(requirements) => {
            tool.run(&unfinished, |command| pip::command(command, requirements, &unfinished.work, &unfinished.files))?;
            pip::check(requirements, &unfinished.files)?
        }
        Wanted::Npm(packages) => {
            npm::write(packages, &unfinished.work)?;
            let registries = Registries::read(&tool.ask(&unfinished, &npm::QUESTION)?);
            npm::judge(packages, &registries).map_err(|problem| lock.refuse(problem))?;
            tool.run(&unfinished, |command| {
                npm::command(command, &unfinished.files);
                Ok(())
            })?;
            npm::check(packages, &unfinished.files, &registries.default.unwrap_or_default())?
        }
        Wanted::Cargo(crates) => {
            let settings = cargo_home();
            tool.run(&unfinished, |command| {
                cargo::command(command, crates, &unfinished.work, &unfinished.files, settings.as_deref())
            })?;
            cargo::check(crates, &unfinished.work, &unfinished.files)?
        }
    };
    say(&format!("{kind}: {packages} packages are what the lock file says"));
    held.finish(&unfinished, kind, &lock, packages)?;
    Ok(Filled::Fetched(packages))
}

/// Where the user's settings of cargo are.
fn cargo_home() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("CARGO_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cargo")))
}

struct Tool {
    name: &'static str,
    path: PathBuf,
}

impl Tool {
    fn find(kind: CacheKind, search_path: &OsStr, workspace: &Path) -> Result<Self, CacheError> {
        let names: &[&'static str] = match kind {
            CacheKind::Pip => &["pip3", "pip"],
            CacheKind::Npm => &["npm"],
            CacheKind::Cargo => &["cargo"],
        };
        let name = names.first().copied().unwrap_or("pip3");
        for folder in std::env::split_paths(search_path).filter(|folder| folder.is_absolute()) {
            for name in names {
                let path = folder.join(name);
                // The name may be a link, and the workspace be reached by one.
                let Ok(real) = path.canonicalize() else { continue };
                let outside = !real.starts_with(workspace) && !path.starts_with(workspace);
                let runs = real.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
                if outside && runs {
                    return Ok(Self { name, path });
                }
            }
        }
        Err(CacheError::NoTool { kind, tool: name })
    }

    fn command(&self, unfinished: &Unfinished) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&unfinished.work).envs(npm::ENVIRONMENT).stdin(Stdio::null());
        command
    }

    /// Runs it to its end. What it says goes to a file: it may say a lot, and only its end is of interest.
    fn run(
        &self,
        unfinished: &Unfinished,
        prepare: impl FnOnce(&mut Command) -> Result<(), CacheError>,
    ) -> Result<(), CacheError> {
        let mut command = self.command(unfinished);
        prepare(&mut command)?;
        let path = unfinished.work.join("said");
        let mut said =
            File::options().read(true).write(true).create_new(true).open(&path).map_err(failed("make", &path))?;
        let to = || said.try_clone().map_err(failed("share", &path));
        let status = command.stdout(to()?).stderr(to()?).status().map_err(failed("start", &self.path))?;
        if status.success() {
            return Ok(());
        }
        let length = said.metadata().map_err(failed("look at", &path))?.len();
        let mut end = Vec::new();
        said.seek(SeekFrom::Start(length.saturating_sub(MOST_SAID)))
            .and_then(|_| said.take(MOST_SAID).read_to_end(&mut end))
            .map_err(failed("read", &path))?;
        let said = crate::redact::redact(&String::from_utf8_lossy(&end));
        Err(CacheError::Tool { tool: self.name, ended: status.to_string(), said: said.trim().to_owned() })
    }

    /// What it answers to a question, with a cap.
    fn ask(&self, unfinished: &Unfinished, question: &[&str]) -> Result<String, CacheError> {
        let mut command = self.command(unfinished);
        let output = command.args(question).stderr(Stdio::null()).output().map_err(failed("start", &self.path))?;
        let mut answer = String::from_utf8_lossy(&output.stdout).into_owned();
        answer.truncate(answer.floor_char_boundary(usize::try_from(MOST_ANSWER).unwrap_or_default()));
        Ok(answer)
    }
}
