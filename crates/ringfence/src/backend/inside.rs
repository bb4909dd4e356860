//! What is the same inside every wall that has a view of its own: where things are, and what is executed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringfence_guest::protocol::ProgramNumber;
use ringfence_guest::{InputFile, Start};
use ringfence_linux::wall::{self, Program};
use ringfence_policy::ResolvedPolicy;

use super::guest::Proofs;
use super::{StartError, WallError};
use crate::guarantee::Guarantee;
use crate::plan::Plan;
use crate::request::{Work, WorkspaceAt};

/// Where the workspace is, unless the request says otherwise.
const WORKSPACE: &str = "/workspace";
/// Where code and files of the request are.
pub(super) const CODE: &str = "/run/code";
/// Where programs are looked for when neither policy nor image says it.
pub(super) const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What decides what is shown inside: of a plan, or before there is one.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend) struct Scene<'a> {
    pub(in crate::backend) policy: &'a ResolvedPolicy,
    /// On the host.
    pub(in crate::backend) workspace: &'a Path,
    /// Where that is inside.
    pub(in crate::backend) at: &'a Path,
    /// Where programs are looked for.
    pub(in crate::backend) search_path: &'a OsStr,
}

impl<'a> Scene<'a> {
    /// What `plan` shows, with its workspace at `at`.
    pub(in crate::backend) fn of(plan: &'a Plan, at: &'a Path) -> Self {
        Self { policy: plan.policy(), workspace: plan.workspace(), at, search_path: search_path(plan.env()) }
    }
}

/// Where the workspace is inside.
pub(super) fn workspace_at(plan: &Plan) -> Result<PathBuf, StartError> {
    place_of(plan.workspace_at(), plan.workspace())
}

/// Where `workspace` is inside, when it is wanted there.
pub(super) fn place_of(wanted: &WorkspaceAt, workspace: &Path) -> Result<PathBuf, StartError> {
    let at = match wanted {
        WorkspaceAt::Default => PathBuf::from(WORKSPACE),
        WorkspaceAt::Same => workspace.to_owned(),
        WorkspaceAt::Path(path) => path.clone(),
    };
    check_place(&at)?;
    Ok(at)
}

/// A workspace that covers what programs need, or hides in it, would only end in riddles.
fn check_place(at: &Path) -> Result<(), StartError> {
    let needed =
        ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc", "/sys", "/run"];
    let covers = ["/tmp", "/var", wall::HOME].iter().any(|other| Path::new(other).starts_with(at));
    let plain =
        at.components().all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
    let taken = |other: &&str| at.starts_with(other) || Path::new(*other).starts_with(at);
    if covers || !plain || needed.iter().any(taken) {
        return Err(StartError::Wall(WallError(format!(
            "the workspace cannot appear at {}: the sandbox has its own there; choose another place with --at, such as {WORKSPACE}",
            at.display()
        ))));
    }
    Ok(())
}

/// Where a program with this environment looks for others.
pub(super) fn search_path(env: &[(OsString, OsString)]) -> &OsStr {
    env.iter().find(|(name, _)| name == "PATH").map_or(OsStr::new(""), |(_, value)| value)
}

/// The environment where an image stands inside: the host's own path leads nowhere there.
pub(super) fn env_with_image(plan: &Plan, path_of_image: Option<&str>) -> Vec<(OsString, OsString)> {
    let mut env = plan.env().to_vec();
    if !plan.policy().proc.env.set.iter().any(|(name, _)| name == "PATH") {
        env.retain(|(name, _)| name != "PATH");
        env.push(("PATH".into(), path_of_image.unwrap_or(SEARCH_PATH).into()));
    }
    env
}

/// What was seen of a place when it was made, with what its guest sees in the own process of each program that it starts; it
/// executes none otherwise (`wall/guest.rs`).
pub(super) fn with_each_start(place: &Proofs) -> Proofs {
    let found = "execve gets the listed strings alone".to_owned();
    place.iter().cloned().chain([(Guarantee::CleanEnvironment.name().to_owned(), found)]).collect()
}

/// The files of which one runs the code of `plan`, when it has code.
pub(super) fn interpreters(plan: &Plan, env: &[(OsString, OsString)]) -> Vec<PathBuf> {
    // Whether one that is named is there, who executes it finds out.
    let Work::Code { language, interpreter: None, .. } = plan.work() else { return Vec::new() };
    let path = search_path(env);
    language.interpreters().iter().flat_map(|interpreter| on_path(path, Path::new(interpreter.program))).collect()
}

/// The program of `plan`, whose code is in the folder `code` inside. `is_there` tells of files inside.
pub(super) fn program(
    plan: &Plan,
    env: Vec<(OsString, OsString)>,
    workspace: &Path,
    code: &Path,
    is_there: impl Fn(&Path) -> bool,
) -> Result<Program, StartError> {
    let cwd = workspace.join(plan.cwd());
    let (files, argv) = programs(plan, search_path(&env), &cwd, code, is_there)?;
    Ok(Program { files, argv, env, cwd: cwd.into_os_string() })
}

fn on_path(path: &OsStr, name: &Path) -> Vec<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).collect()
}

/// The files to try to execute inside, and the arguments.
fn programs(
    plan: &Plan,
    path: &OsStr,
    cwd: &Path,
    code: &Path,
    is_there: impl Fn(&Path) -> bool,
) -> Result<(Vec<PathBuf>, Vec<OsString>), StartError> {
    match plan.work() {
        Work::Place => Err(StartError::NotFound { program: String::new() }),
        Work::Argv(argv) => {
            let name = argv.first().map(PathBuf::from).unwrap_or_default();
            let has_folder = name.components().count() > 1 || name.is_absolute();
            let programs = if has_folder { vec![cwd.join(&name)] } else { on_path(path, &name) };
            Ok((programs, argv.clone()))
        }
        Work::Code { language, name, interpreter: Some(named), .. } => {
            let file = code.join(name.as_deref().unwrap_or(language.default_file_name()));
            let program = Path::new(named.program());
            let programs = if program.is_absolute() { vec![program.to_owned()] } else { on_path(path, program) };
            plan.is_run_by(named.program());
            let before = [named.program()].into_iter().chain(named.arguments().iter().copied());
            Ok((programs, before.map(OsString::from).chain([file.into_os_string()]).collect()))
        }
        Work::Shell(line) => {
            let shells = ["/bin/bash", "/usr/bin/bash", "/bin/sh"].map(PathBuf::from).to_vec();
            // A line that begins with a dash is a line, too.
            Ok((shells, ["sh", "-c", "--", line.as_str()].map(OsString::from).to_vec()))
        }
        Work::Code { language, name, interpreter: None, .. } => {
            let found = language
                .interpreters()
                .iter()
                .find(|interpreter| on_path(path, Path::new(interpreter.program)).iter().any(|file| is_there(file)));
            let interpreter = found.ok_or(StartError::NoInterpreter { language: *language })?;
            let file = code.join(name.as_deref().unwrap_or(language.default_file_name()));
            let mut argv: Vec<OsString> = vec![interpreter.program.into()];
            argv.extend(interpreter.arguments.iter().map(OsString::from));
            argv.push(file.into());
            plan.is_run_by(interpreter.program);
            Ok((on_path(path, Path::new(interpreter.program)), argv))
        }
    }
}

/// The order by which a guest that is kept starts the program of `plan`. Its code and files go to a folder of its own.
pub(super) fn start(
    plan: &Plan,
    number: ProgramNumber,
    program: impl FnOnce(&Path) -> Result<Program, StartError>,
) -> Result<Start, StartError> {
    // Not a number that a program could have guessed and taken.
    let folder = Path::new(CODE).join(plan.run_id().as_str());
    let mut files: Vec<InputFile> = plan
        .files()
        .iter()
        .map(|file| InputFile { path: file.path.clone().into_os_string(), content: file.content.clone() })
        .collect();
    if let Work::Code { language, source, name, .. } = plan.work() {
        let name = name.as_deref().unwrap_or(language.default_file_name());
        files.push(InputFile { path: name.into(), content: source.clone() });
    }
    let program = program(&folder)?;
    Ok(Start { number, program, folder: folder.into_os_string(), files, terminal: plan.terminal() })
}
