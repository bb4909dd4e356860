//! Finds and reads the policy's layers. The files are read once; what they say then is bound for the whole run.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::{
    Diagnostic, Grant, Layer, LayerInput, PolicyFile, ResolvedPolicy, Severity, environment_layer, parse, resolve,
};

/// The project's policy file.
pub const PROJECT_FILE: &str = "sandbox.policy.yaml";
/// The operator's floor on a machine; `RINGFENCE_OPERATOR_POLICY` can add another, and never takes this one away.
pub const OPERATOR_FILE: &str = "/etc/ringfence/policy.yaml";
/// A policy file is at most this long.
const MOST_BYTES: u64 = 1024 * 1024;

/// Where to look for layers.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The user's file; missing is fine.
    pub user: Option<PathBuf>,
    /// The project's file.
    pub project: Project,
    /// The folder that programs work in, when it is known. A file in it, or in its repository, does not say where secrets come
    /// from, whoever a variable says it belongs to.
    pub workspace: Option<PathBuf>,
    /// The operator's files, each a floor; of the first kind missing is fine. None can be taken away by another.
    pub operator: Operators,
    /// `RINGFENCE_*` and aliases.
    pub environment: Vec<(OsString, OsString)>,
    /// The backend that the person who started us named.
    pub chosen_backend: Option<String>,
    /// The OCI runtime that the same person named.
    pub chosen_runtime: Option<String>,
    /// The image that the same person named.
    pub chosen_image: Option<String>,
    /// Permissions from outside.
    pub grants: Vec<Grant>,
}

/// The operator's files.
#[derive(Debug, Clone, Default)]
pub struct Operators {
    /// The one of this machine; missing is fine.
    pub machine: Option<PathBuf>,
    /// Further ones, which must be there.
    pub further: Vec<PathBuf>,
}

/// The project's layer.
#[derive(Debug, Clone, Default)]
pub enum Project {
    /// None.
    #[default]
    None,
    /// Looked for in this folder, and above it up to the root of its repository.
    Search(PathBuf),
    /// This file, which must be there.
    File(PathBuf),
}

/// The layers, read and resolved.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What they resolve to.
    pub policy: ResolvedPolicy,
    /// The layers that were found, with their texts.
    pub files: Vec<LoadedFile>,
    /// The project's file, when there is one.
    pub project_file: Option<PathBuf>,
}

/// One file that was read.
#[derive(Debug, Clone)]
pub struct LoadedFile {
    /// Which layer.
    pub layer: Layer,
    /// Where it is.
    pub path: PathBuf,
    /// Its name in diagnostics.
    pub name: Arc<str>,
    /// What it says.
    pub text: String,
    /// The same, parsed; nothing when that failed.
    pub parsed: Option<PolicyFile>,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("could not read the policy {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that others can change, or that is too long, is not read.
    #[error("the policy {path} {problem}")]
    Unfit {
        /// Which.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The layers say something wrong.
    #[error("the policy is not valid")]
    Invalid {
        /// What is wrong, each with its place.
        diagnostics: Vec<Diagnostic>,
        /// The texts that the places point into.
        files: Vec<LoadedFile>,
    },
}

/// The real paths of `files`: those of links, and of what they lead to.
pub fn own_files<'a>(files: impl Iterator<Item = &'a Path>) -> io::Result<Vec<PathBuf>> {
    let mut own = Vec::new();
    for file in files {
        let file = std::path::absolute(file)?;
        own.push(file.canonicalize()?);
        if let (Some(folder), Some(name)) = (file.parent(), file.file_name()) {
            own.push(folder.canonicalize()?.join(name));
        }
    }
    own.sort();
    own.dedup();
    Ok(own)
}

/// Reads all layers of `sources` and resolves them.
pub fn load(sources: &Sources) -> Result<Loaded, LoadError> {
    let mut files = Vec::new();
    let mut diagnostics = Vec::new();
    if let Some(path) = &sources.user
        && let Some(text) = read_if_there(path)?
    {
        files.push(parse_layer(Layer::User, path, text, &mut diagnostics));
    }
    let project_file = match &sources.project {
        Project::None => None,
        Project::File(path) => Some(path.clone()),
        Project::Search(folder) => find_project_file(folder),
    };
    if let Some(path) = &project_file {
        files.push(parse_layer(Layer::Project, path, read(path)?, &mut diagnostics));
    }
    if let Some(path) = &sources.operator.machine
        && let Some(text) = read_if_there(path)?
    {
        files.push(parse_layer(Layer::Operator, path, text, &mut diagnostics));
    }
    for path in &sources.operator.further {
        files.push(parse_layer(Layer::Operator, path, read(path)?, &mut diagnostics));
    }
    let mut inputs: Vec<LayerInput> = files
        .iter()
        .filter_map(|file| Some(LayerInput { layer: file.layer.clone(), file: file.parsed.clone()? }))
        .collect();
    match environment_input(sources) {
        Ok(input) => inputs.extend(input),
        Err(found) => diagnostics.extend(found),
    }
    diagnostics.extend(misplaced(sources, &files, home_of_this_user));
    if !diagnostics.is_empty() {
        return Err(LoadError::Invalid { diagnostics, files });
    }
    match resolve(&inputs, &sources.grants) {
        Ok(policy) => Ok(Loaded { policy, files, project_file }),
        Err(diagnostics) => Err(LoadError::Invalid { diagnostics, files }),
    }
}

/// Whoever wrote a repository can also have a variable point to a file in it, such as by the file of a tool that sets variables
/// for each folder. So what only the user and the operator may say is not said there.
fn misplaced(sources: &Sources, files: &[LoadedFile], home: impl Fn() -> Option<PathBuf>) -> Vec<Diagnostic> {
    let Some(workspace) = sources.workspace.as_ref().and_then(|folder| folder.canonicalize().ok()) else {
        return Vec::new();
    };
    let says = |file: &PolicyFile| file.credentials.is_some() || file.net.upstream.is_some();
    if !files.iter().filter_map(|file| file.parsed.as_ref()).any(says) {
        return Vec::new();
    }
    let home = home().and_then(|home| home.canonicalize().ok());
    // Who works in the home folder itself has the own file below it.
    let has_home = |folder: &Path| home.as_ref().is_some_and(|home| home.starts_with(folder));
    let root = repository_root(&workspace);
    let root = if has_home(root) { workspace.as_path() } else { root };
    if has_home(root) {
        return Vec::new();
    }
    let machine = sources.operator.machine.as_deref();
    let lies_inside = |path: &Path| {
        own_files(std::iter::once(path)).map_or(true, |real| real.iter().any(|path| path.starts_with(root)))
    };
    let said_by_others = |file: &&LoadedFile| {
        matches!(file.layer, Layer::User | Layer::Operator) && Some(file.path.as_path()) != machine
    };
    let mut found = Vec::new();
    for file in files.iter().filter(said_by_others).filter(|file| lies_inside(&file.path)) {
        let Some(parsed) = &file.parsed else { continue };
        let credentials = parsed.credentials.iter().flatten();
        let credentials = credentials.map(|(name, it)| (format!("the credential `{name}`"), &it.place, &it.span));
        let upstream = parsed.net.upstream.iter().map(|it| ("`net.upstream`".to_owned(), &it.place, &it.span));
        for (what, place, span) in credentials.chain(upstream) {
            found.push(Diagnostic {
                code: "policy::misplaced-file",
                message: format!(
                    "{what} is set in a file inside the workspace, which whoever wrote the code can change"
                ),
                place: Some(place.clone()),
                span: Some(span.clone()),
                advice: Some(format!("move the file out of {}, and name its new place", root.display())),
                severity: Severity::Error,
            });
        }
    }
    found
}

/// What the environment says, with what was named by the person who started us.
fn environment_input(sources: &Sources) -> Result<Option<LayerInput>, Vec<Diagnostic>> {
    let mut replaced = Vec::new();
    let mut chosen: Vec<(OsString, OsString)> = Vec::new();
    if let Some(backend) = &sources.chosen_backend {
        // Naming a backend replaces the whole choice, its fallback included. A runtime stays: without it the same engine
        // would raise another wall than the policy wants.
        replaced.extend(["RINGFENCE_BACKEND", "RINGFENCE_FALLBACK", "SECURITY_ENABLE_SANDBOX"]);
        chosen.push(("RINGFENCE_BACKEND".into(), backend.into()));
        chosen.push(("RINGFENCE_FALLBACK".into(), OsString::new()));
    }
    if let Some(runtime) = &sources.chosen_runtime {
        replaced.push("RINGFENCE_RUNTIME");
        chosen.push(("RINGFENCE_RUNTIME".into(), runtime.into()));
    }
    if let Some(image) = &sources.chosen_image {
        replaced.extend(["RINGFENCE_IMAGE", "SECURITY_DOCKER_IMAGE"]);
        chosen.push(("RINGFENCE_IMAGE".into(), image.into()));
    }
    let others = sources.environment.iter().filter(|(name, _)| !replaced.iter().any(|replaced| name == replaced));
    environment_layer(others.cloned().chain(chosen))
}

fn parse_layer(layer: Layer, path: &Path, text: String, diagnostics: &mut Vec<Diagnostic>) -> LoadedFile {
    let name = path.to_string_lossy();
    let parsed = match parse(&name, &text) {
        Ok(parsed) => Some(parsed),
        Err(found) => {
            diagnostics.extend(found);
            None
        }
    };
    LoadedFile { layer, path: path.to_owned(), name: name.into(), text, parsed }
}

/// As the machine says it, not as a variable does: those are what is not believed here.
fn home_of_this_user() -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let us = rustix::process::geteuid().as_raw().to_string();
    let home = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            [_, _, uid, _, _, home, ..] if *uid == us => Some(PathBuf::from(home)),
            _ => None,
        }
    };
    users.lines().find_map(home).filter(|home| home.is_absolute())
}

fn repository_root(folder: &Path) -> &Path {
    folder.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(folder)
}

/// The nearest project file, from `folder` up to the root of its repository; only in `folder` where there is none.
pub fn find_project_file(folder: &Path) -> Option<PathBuf> {
    let root = repository_root(folder);
    folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .map(|folder| folder.join(PROJECT_FILE))
        // A broken link is found too, so that reading it fails loudly.
        .find(|file| file.symlink_metadata().is_ok())
}

/// The user's file: `RINGFENCE_CONFIG_DIR`, `XDG_CONFIG_HOME` or `HOME`, in this order.
pub fn user_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("RINGFENCE_CONFIG_DIR")
        .or_else(|| absolute("XDG_CONFIG_HOME").map(|path| path.join("ringfence")))
        .or_else(|| absolute("HOME").map(|path| path.join(".config/ringfence")))?;
    Some(folder.join("policy.yaml"))
}

fn read_if_there(path: &Path) -> Result<Option<String>, LoadError> {
    match path.symlink_metadata() {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        _ => read(path).map(Some),
    }
}

/// Reads a policy file, with its length, its owner and who may write it checked on the open file.
pub fn read(path: &Path) -> Result<String, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let unfit = |problem: String| LoadError::Unfit { path: path.to_owned(), problem };
    // Without waiting: the name may be a pipe's.
    let file = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    )
    .map_err(|errno| failed(errno.into()))?;
    let file = File::from(file);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(unfit("is not a file; name a file that holds a policy".to_owned()));
    }
    if metadata.len() > MOST_BYTES {
        return Err(unfit(format!("is {} bytes long; a policy has at most 1 MiB", metadata.len())));
    }
    if let Some(problem) = unsafe_to_follow(&metadata, path) {
        return Err(unfit(problem));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        unfit(format!("is not UTF-8 in line {line}; save it as UTF-8"))
    })
}

/// A policy decides what may be run, so nobody but us, root and the owner of its folder may have written it.
fn unsafe_to_follow(metadata: &Metadata, path: &Path) -> Option<String> {
    if metadata.mode() & 0o002 != 0 {
        return Some("can be written by everybody; take that away with `chmod o-w`".to_owned());
    }
    let owner = metadata.uid();
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let folder_owner = folder.metadata().map(|metadata| metadata.uid());
    let trusted = owner == 0
        || owner == rustix::process::geteuid().as_raw()
        || folder_owner.is_ok_and(|folder_owner| folder_owner == owner);
    (!trusted).then(|| format!("belongs to another user (uid {owner}); copy it, or have its owner changed"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const SECRETS: &str = "version: 1\nnet: { upstream: \"http://evil.test:1\" }\n\
                           credentials: { k: { from: { command: [evil] }, hosts: [a.test] } }\n";

    fn codes(sources: &Sources) -> Vec<&'static str> {
        match load(sources) {
            Ok(_) => Vec::new(),
            Err(LoadError::Invalid { diagnostics, .. }) => diagnostics.iter().map(|it| it.code).collect(),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn as_user(file: &Path, workspace: &Path) -> Sources {
        Sources { user: Some(file.to_owned()), workspace: Some(workspace.to_owned()), ..Sources::default() }
    }

    fn as_operator(file: &Path, workspace: &Path) -> Sources {
        let operator = Operators { machine: None, further: vec![file.to_owned()] };
        Sources { operator, workspace: Some(workspace.to_owned()), ..Sources::default() }
    }

    #[test]
    fn a_file_inside_the_repository_says_neither_where_secrets_come_from_nor_which_proxy_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let (repository, elsewhere) = (folder.path().join("repository"), folder.path().join("elsewhere"));
        let workspace = repository.join("below");
        for made in [&repository.join(".git"), &workspace, &elsewhere] {
            std::fs::create_dir_all(made).unwrap();
        }
        let write = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).unwrap();
            path
        };
        let inside = write(repository.join("evil.yaml"), SECRETS);
        let outside = write(elsewhere.join("mine.yaml"), SECRETS);
        let (link_out, link_in) = (repository.join("link.yaml"), elsewhere.join("link.yaml"));
        std::os::unix::fs::symlink(&outside, &link_out).unwrap();
        std::os::unix::fs::symlink(&inside, &link_in).unwrap();
        for sources in [as_user, as_operator] {
            for file in [&inside, &link_out, &link_in] {
                let found = codes(&sources(file, &workspace));
                assert_eq!(found, ["policy::misplaced-file"; 2], "{}", file.display());
            }
            assert_eq!(codes(&sources(&outside, &workspace)), Vec::<&str>::new());
            // What makes things narrower may lie anywhere.
            let floor = write(repository.join("floor.yaml"), "version: 1\nnet: { mode: none }\n");
            assert_eq!(codes(&sources(&floor, &workspace)), Vec::<&str>::new());
        }
    }

    #[test]
    fn an_image_that_the_person_names_is_used_instead_of_the_projects_and_an_operators_instead_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, image: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("version: 1\nimage: {image}\n")).unwrap();
            path
        };
        let project = Project::File(write("project.yaml", "of-the-project:1"));
        let image = |sources: &Sources| load(sources).unwrap().policy.image.unwrap().value.as_str().to_owned();
        let environment = vec![("SECURITY_DOCKER_IMAGE".into(), "of-a-variable:1".into())];
        let mut sources = Sources { project, environment, ..Sources::default() };
        assert_eq!(image(&sources), "of-a-variable:1");
        sources.chosen_image = Some("of-the-person:1".to_owned());
        assert_eq!(image(&sources), "of-the-person:1");
        sources.operator.further.push(write("operator.yaml", "of-the-operator:1"));
        assert_eq!(image(&sources), "of-the-operator:1");
        // What is no name is refused, as in a file.
        sources.chosen_image = Some("-x".to_owned());
        assert!(load(&sources).is_err());
    }

    #[test]
    fn who_works_in_the_home_folder_keeps_the_own_file_below_it() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let (config, project) = (home.join(".config/ringfence"), home.join("project"));
        for made in [&config, &project, &home.join(".git")] {
            std::fs::create_dir_all(made).unwrap();
        }
        let file = config.join("policy.yaml");
        std::fs::write(&file, SECRETS).unwrap();
        let evil = project.join("evil.yaml");
        std::fs::write(&evil, SECRETS).unwrap();
        let found = |file: &Path, workspace: &Path| {
            let sources = as_user(file, workspace);
            let files = [parse_layer(Layer::User, file, read(file).unwrap(), &mut Vec::new())];
            misplaced(&sources, &files, || Some(home.clone())).len()
        };
        for workspace in [&home, &project] {
            assert_eq!(found(&file, workspace), 0);
        }
        assert_eq!(found(&evil, &project), 2);
        let sources = as_user(&file, &home);
        assert_eq!(codes(&sources), ["policy::misplaced-file"; 2], "it is nobody's home to the machine");
        let claimed = Sources { environment: vec![("HOME".into(), home.clone().into())], ..sources };
        assert_eq!(codes(&claimed), ["policy::misplaced-file"; 2], "whatever a variable says");
    }
}
