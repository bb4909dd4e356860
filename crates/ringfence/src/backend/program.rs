//! Finding the file to execute on the host's path, for walls behind which the host's files are visible.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use super::StartError;
use crate::plan::Plan;
use crate::request::{InputFile, Work};
use crate::scratch::Scratch;
use crate::state::StateFolder;

/// A file to execute, its arguments, and the scratch folder that holds its code.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: PathBuf,
    pub(super) argv: Vec<OsString>,
    pub(super) scratch: Option<Scratch>,
}

/// Finds the program of `plan`, and puts its code and files in place.
pub(super) fn find(plan: &Plan, state: &StateFolder) -> Result<Program, StartError> {
    let path =
        plan.env().iter().find(|(name, _)| name == "PATH").map_or(OsStr::new(""), |(_, value)| value.as_os_str());
    let needs_scratch = !plan.files().is_empty() || matches!(plan.work(), Work::Code { .. });
    let scratch = needs_scratch.then(|| Scratch::create(state, plan.run_id())).transpose()?;
    if let Some(scratch) = &scratch {
        for file in plan.files() {
            scratch.write(file)?;
        }
    }
    match plan.work() {
        Work::Place => Err(StartError::NotFound { program: String::new() }),
        Work::Argv(argv) => {
            let name = argv.first().map_or(OsStr::new(""), OsString::as_os_str);
            let file = search(name, path, &plan.workspace().join(plan.cwd()))
                .ok_or_else(|| StartError::NotFound { program: name.to_string_lossy().into_owned() })?;
            Ok(Program { file, argv: argv.clone(), scratch })
        }
        Work::Shell(line) => {
            let (file, argv0) = shell(path)?;
            // A line that begins with a dash is a line, too.
            Ok(Program { file, argv: vec![argv0, "-c".into(), "--".into(), line.into()], scratch })
        }
        Work::Code { language, source, name, interpreter: named } => {
            let Some(scratch) = scratch else {
                return Err(StartError::NoInterpreter { language: *language });
            };
            let found = |program: &str| search(OsStr::new(program), path, Path::new("/"));
            let (program, arguments, file) = match named {
                Some(named) => {
                    let missing = || StartError::NotFound { program: named.program().to_owned() };
                    (named.program(), named.arguments(), found(named.program()).ok_or_else(missing)?)
                }
                None => language
                    .interpreters()
                    .iter()
                    .find_map(|known| Some((known.program, known.arguments, found(known.program)?)))
                    .ok_or(StartError::NoInterpreter { language: *language })?,
            };
            plan.is_run_by(program);
            let name = name.as_deref().unwrap_or(language.default_file_name());
            let code = scratch.write(&InputFile { path: name.into(), content: source.clone() })?;
            let mut argv: Vec<OsString> = vec![program.into()];
            argv.extend(arguments.iter().map(OsString::from));
            argv.push(code.into());
            Ok(Program { file, argv, scratch: Some(scratch) })
        }
    }
}

fn shell(path: &OsStr) -> Result<(PathBuf, OsString), StartError> {
    ["bash", "sh"]
        .into_iter()
        .find_map(|name| Some((search(OsStr::new(name), path, Path::new("/"))?, name.into())))
        .ok_or_else(|| StartError::NotFound { program: "sh".to_owned() })
}

/// The file that `name` means: itself when it holds a slash, else the first on `path`. A folder is none.
fn search(name: &OsStr, path: &OsStr, cwd: &Path) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let file = cwd.join(name);
        // Whether it can be executed is for `execve` to say, with its own reason.
        return file.is_file().then_some(file);
    }
    path.as_bytes()
        .split(|byte| *byte == b':')
        .filter(|entry| entry.starts_with(b"/"))
        .map(|entry| Path::new(OsStr::from_bytes(entry)).join(name))
        .find(|file| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok())
}

/// Opens the working directory beneath the workspace; nothing on the way may lead out of it.
pub(super) fn open_cwd(workspace: &Path, cwd: &Path) -> Result<OwnedFd, StartError> {
    let failed =
        |source: rustix::io::Errno| StartError::WorkingDirectory { path: workspace.join(cwd), source: source.into() };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = rustix::fs::open(workspace, flags, Mode::empty()).map_err(failed)?;
    if cwd.as_os_str().is_empty() {
        return Ok(workspace);
    }
    rustix::fs::openat2(
        &workspace,
        cwd,
        flags,
        Mode::empty(),
        rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(failed)
}
