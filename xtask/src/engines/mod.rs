//! Container engines of our own, for the tests and for work by hand: Docker and Podman, as root and as an ordinary user.
//!
//! Each engine has namespaces for its processes and mounts, and one folder for all that it writes. The engines that a
//! developer's machine may have are neither used nor asked.

mod cgroups;
mod engine;
mod http;
mod image;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) use self::cgroups::hierarchies;
use self::engine::{Engine, Fate, KINDS, Kind, Life, Owner};
use crate::footprint::{Scratch, reachable_by_all};
use crate::ordinary_user::Built;
use crate::step::{Failure, Outcome, Screen, Verbosity, capture};
use crate::test::{BACKENDS_REQUIRED, for_tests, nextest_ended, required_backends};
use crate::tools::{NEXTEST, Packages, debian_packages};
use crate::workspace::{Workspace, current_uid};

/// What the engines consist of, and the Debian package that brings each.
const PACKAGES: Packages = &[
    ("dockerd", "docker.io"),
    ("podman", "podman"),
    ("crun", "crun"),
    ("newuidmap", "uidmap"),
    ("mmdebstrap", "mmdebstrap"),
    ("fuse-overlayfs", "fuse-overlayfs"),
    ("slirp4netns", "slirp4netns"),
    ("rootlesskit", "rootlesskit"),
];

/// gVisor, which not every Debian has for every machine.
const GVISOR: Packages = &[("runsc", "runsc")];

/// The tests that are about engines: root runs all of them.
const ALL: &str = "binary(engines) + (binary(conformance) & test(engine)) + binary(warm) + \
    (package(ringfence) & test(/::container::tests::real::/))";

/// Those that the ordinary user runs: where a wall's way differs for it, what an engine without root may leave open, and the whole conformance
/// suite. All others would ask the same of the same code.
const CHOSEN: &str = "(binary(engines) & test(/^(runs|workspace|applied|sessions|secrets|names|calls::n0[1-3]|processes::n11|files::f1[36]|resources::r03)/)) + \
    (binary(conformance) & test(engine)) + binary(warm)";

/// Those that are run once more in gVisor, whose containers start slower: the whole conformance suite, and what a kernel of its own could do
/// otherwise: calls, files and links, limits, processes, and the way out. What is left out is the host's side alone (the proxy's rules, what an
/// engine does when it fails, containers that wait for a server), or takes very long there (fifty requests, many files).
const IN_GVISOR: &str = "(binary(engines) & test(/^(runs|processes|workspace|secrets|names|inspected|calls::n(0|15)|files::f([02]|1[0-7])|resources::r0[235]|\
    applied::f0[1-6]|sessions::(checkpoints|f|r11|s02)|tools::(n12|s17)|direct::e14|egress::(e01|e12|a_half))/)) + \
    (binary(conformance) & test(engine)) + binary(warm)";
/// What leads tests to gVisor, which is a runtime of an engine.
const GVISOR_HOST: &str = "RINGFENCE_TEST_GVISOR_HOST";
const GVISOR_ENGINE: &str = "docker";

/// Set where nobody looks at what was skipped.
const CI: &str = "CI";

/// Whether somebody started the engines to work with them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByHand {
    Yes,
    No,
}

/// Engines that run, and why others do not.
#[derive(Debug, Default)]
struct Running {
    engines: Vec<Engine>,
    missing: Vec<(Kind, Failure)>,
}

impl Running {
    /// Starts all at once, has the image made meanwhile, and gives it to each.
    fn start(workspace: &Workspace, screen: &Screen, parent: &Path, life: Life) -> Result<Self, Failure> {
        let mut running = Self::default();
        let mut started = Vec::new();
        for kind in KINDS {
            if kind.owner == Owner::Ordinary && !reachable_by_all(parent) {
                let why = format!("an ordinary user cannot reach `{}`", parent.display());
                running.missing.push((*kind, Failure::new(why)));
                continue;
            }
            match Engine::start(*kind, parent, life) {
                Ok(engine) => started.push(engine),
                Err(failure) => running.missing.push((*kind, failure)),
            }
        }
        let archive = image::archive(workspace, screen);
        let archive = match archive {
            Ok(archive) => archive,
            Err(failure) => {
                started.iter_mut().for_each(Engine::stop);
                return Err(failure);
            }
        };
        let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let prepare = |engine: &mut Engine| engine.ready().and_then(|()| engine.import(&archive));
            let threads: Vec<_> = started.iter_mut().map(|engine| scope.spawn(move || prepare(engine))).collect();
            let lost = || Err(Failure::new("the thread that prepares an engine panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        for (mut engine, result) in started.into_iter().zip(results) {
            match result {
                Ok(()) => running.engines.push(engine),
                Err(failure) => {
                    engine.stop();
                    running.missing.push((engine.kind, failure));
                }
            }
        }
        Ok(running)
    }

    /// What leads tests to the engines that `user` may use.
    fn variables(&self, parent: &Path, user: Owner, by_hand: ByHand) -> Vec<(String, String)> {
        let mut variables = vec![("RINGFENCE_TEST_IMAGE".to_owned(), image::NAME.to_owned())];
        for engine in self.engines.iter().filter(|engine| may_use(user, engine.kind)) {
            let socket = engine.kind.socket(parent);
            variables.push((engine.kind.variable("HOST"), format!("unix://{}", socket.display())));
            // gVisor is a runtime of the same engine. In the tests it has a turn of its own.
            if engine.kind.name == GVISOR_ENGINE && by_hand == ByHand::Yes {
                variables.push((GVISOR_HOST.to_owned(), format!("unix://{}", socket.display())));
            }
            if let (Fate::Stay, Some(pid)) = (engine.kind.fate, engine.pid()) {
                variables.push((engine.kind.variable("PID"), pid.to_string()));
            }
        }
        variables
    }

    /// Those that `user` may use, by their names.
    fn names(&self, user: Owner) -> String {
        let names: Vec<&str> = self
            .engines
            .iter()
            .map(|engine| engine.kind)
            .filter(|kind| may_use(user, *kind))
            .map(|kind| kind.name)
            .collect();
        names.join(", ")
    }

    /// Those that were wanted and do not run, and why; nothing where all do.
    fn missing(&self) -> Option<String> {
        let each = |(kind, failure): &(Kind, Failure)| format!("{}: {}", kind.name, failure.what);
        (!self.missing.is_empty()).then(|| self.missing.iter().map(each).collect::<Vec<_>>().join("; "))
    }

    /// What was required, and the backends of the engines that run for `user`: none of their tests may be skipped now.
    fn required(&self, user: Owner) -> String {
        let mut names = vec![required_backends()];
        for backend in ["docker", "podman"] {
            if self.engines.iter().any(|engine| may_use(user, engine.kind) && engine.kind.backend() == backend) {
                names.push(backend.to_owned());
            }
        }
        names.join(",")
    }

    fn stop(&mut self) {
        self.engines.iter_mut().for_each(Engine::stop);
        self.engines.clear();
    }
}

/// The ordinary user reaches the engines of its own, and Docker by its group.
fn may_use(user: Owner, kind: Kind) -> bool {
    match user {
        Owner::Root => kind.owner == Owner::Root,
        Owner::Ordinary => kind.owner == Owner::Ordinary || kind.name == "docker",
    }
}

fn is_required(backend: &str) -> bool {
    required_backends().split(',').any(|name| name.trim() == backend)
}

/// Whether an engine that does not start is a failure: of an automatic run nobody reads what was skipped.
fn must_start(kind: Kind) -> bool {
    is_required(kind.backend()) || nobody_looks()
}

fn nobody_looks() -> bool {
    std::env::var_os(CI).is_some_and(|value| !value.is_empty() && value != "false")
}

/// The tests of the engines: all of them as root, and some once more as an ordinary user.
pub(crate) fn test(workspace: &Workspace, scratch: &Scratch, screen: &Screen) -> Result<Outcome, Failure> {
    let skipped = |why: String| {
        if is_required("docker") || is_required("podman") {
            Err(Failure::new(format!("{why}, and {BACKENDS_REQUIRED} names an engine")))
        } else {
            Ok(Outcome::Skipped(why))
        }
    };
    if current_uid()? != 0 {
        return skipped("only root can start engines of its own".to_owned());
    }
    if let Err(failure) = debian_packages(workspace, screen, PACKAGES) {
        return skipped(failure.what);
    }
    let without_gvisor = debian_packages(workspace, screen, GVISOR).err();
    if let Some(failure) = &without_gvisor
        && nobody_looks()
    {
        return Err(Failure::new(format!("there is no gVisor, and {CI} wants it: {}", failure.what)));
    }
    cgroups::remove_abandoned();
    let parent = scratch.subfolder("engines")?;
    let mut running = Running::start(workspace, screen, &parent, Life::WithUs)?;
    let unmet: Vec<&(Kind, Failure)> = running.missing.iter().filter(|(kind, _)| must_start(*kind)).collect();
    if let Some((kind, failure)) = unmet.first() {
        let what = format!("{} did not start, and {BACKENDS_REQUIRED} or {CI} wants it: {}", kind.name, failure.what);
        return Err(Failure { what, output: failure.output.clone() });
    }
    let missing: Vec<String> = running
        .missing()
        .into_iter()
        .chain(without_gvisor.iter().map(|none| format!("gVisor: {}", none.what)))
        .collect();
    let missing = Some(missing.join("; ")).filter(|missing| !missing.is_empty());
    if running.engines.is_empty() {
        return skipped(format!("no engine could be started: {}", missing.unwrap_or_default()));
    }
    let tested = as_root(workspace, scratch, screen, &running, &parent)
        .and_then(|root| match without_gvisor {
            None => Ok(format!("{root}; {}", in_gvisor(workspace, scratch, screen, &running, &parent)?)),
            Some(_) => Ok(root),
        })
        .and_then(|done| Ok(format!("{done}; {}", as_ordinary_user(workspace, scratch, screen, &running, &parent)?)));
    running.stop();
    fs::remove_dir_all(&parent).map_err(|error| Failure::io(format!("remove `{}`", parent.display()), &error))?;
    let done = tested?;
    Ok(match missing {
        None => Outcome::Passed(done),
        Some(missing) => Outcome::PassedInPart { done, missing },
    })
}

/// All tests of engines, on those of root.
fn as_root(
    workspace: &Workspace,
    scratch: &Scratch,
    screen: &Screen,
    running: &Running,
    parent: &Path,
) -> Result<String, Failure> {
    let names = running.names(Owner::Root);
    if names.is_empty() {
        return Ok("root: nothing".to_owned());
    }
    let mut command = workspace.command(NEXTEST.locate(workspace)?);
    command.args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast", "-E", ALL]);
    for_tests(&mut command, scratch);
    command
        .envs(running.variables(parent, Owner::Root, ByHand::No))
        .env(BACKENDS_REQUIRED, running.required(Owner::Root));
    Ok(format!("root on {names}: {}", nextest_ended(capture(screen, command)?)?))
}

/// Tests in gVisor, as root.
fn in_gvisor(
    workspace: &Workspace,
    scratch: &Scratch,
    screen: &Screen,
    running: &Running,
    parent: &Path,
) -> Result<String, Failure> {
    let Some(engine) = running.engines.iter().find(|engine| engine.kind.name == GVISOR_ENGINE) else {
        return Ok("gVisor: nothing".to_owned());
    };
    let mut command = workspace.command(NEXTEST.locate(workspace)?);
    command.args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast", "-E", IN_GVISOR]);
    for_tests(&mut command, scratch);
    command
        .env("RINGFENCE_TEST_IMAGE", image::NAME)
        .env(GVISOR_HOST, format!("unix://{}", engine.kind.socket(parent).display()))
        .env(BACKENDS_REQUIRED, format!("{},{}", required_backends(), engine.kind.backend()));
    Ok(format!("root in gVisor, a choice of tests: {}", nextest_ended(capture(screen, command)?)?))
}

/// The chosen tests, on those that an ordinary user may use.
fn as_ordinary_user(
    workspace: &Workspace,
    scratch: &Scratch,
    screen: &Screen,
    running: &Running,
    parent: &Path,
) -> Result<String, Failure> {
    let names = running.names(Owner::Ordinary);
    if names.is_empty() {
        return Ok("an ordinary user: nothing".to_owned());
    }
    let mut variables = running.variables(parent, Owner::Ordinary, ByHand::No);
    variables.push((BACKENDS_REQUIRED.to_owned(), running.required(Owner::Ordinary)));
    let tests = Built::prepare(workspace, scratch, screen)?.run(screen, CHOSEN, &variables)?;
    Ok(format!("an ordinary user on {names}, a choice of tests: {tests}"))
}

fn live(workspace: &Workspace) -> PathBuf {
    workspace.target.join("engines/live")
}

/// Starts the engines and lets them go on.
pub(crate) fn start(workspace: &Workspace) -> Result<ExitCode, Failure> {
    if current_uid()? != 0 {
        return Err(Failure::new("only root can start engines of its own"));
    }
    let parent = live(workspace);
    if parent.exists() {
        return Err(Failure::new("engines were started already; `cargo xtask engines stop` ends them"));
    }
    let screen = Screen::new(Verbosity::Summary);
    debian_packages(workspace, &screen, PACKAGES)?;
    if let Err(failure) = debian_packages(workspace, &screen, GVISOR) {
        eprintln!("there is no gVisor: {}", failure.what);
    }
    fs::create_dir_all(&parent).map_err(|error| Failure::io(format!("make `{}`", parent.display()), &error))?;
    let running = Running::start(workspace, &screen, &parent, Life::OnItsOwn)?;
    let mut variables = running.variables(&parent, Owner::Root, ByHand::Yes);
    variables.extend(running.variables(&parent, Owner::Ordinary, ByHand::Yes));
    variables.sort();
    variables.dedup();
    let lines: String = variables.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
    let file = parent.join("env");
    fs::write(&file, lines).map_err(|error| Failure::io(format!("write `{}`", file.display()), &error))?;
    for (kind, failure) in &running.missing {
        eprintln!("{} did not start: {}\n{}", kind.name, failure.what, failure.output);
    }
    let started: Vec<&str> = running.engines.iter().map(|engine| engine.kind.name).collect();
    eprintln!("started: {}\nuse them with: eval \"$(cargo xtask engines env)\"", started.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Ends the engines that `start` started, and removes their folder.
pub(crate) fn stop(workspace: &Workspace) -> Result<ExitCode, Failure> {
    let parent = live(workspace);
    for kind in KINDS {
        engine::stop_remembered(*kind, &parent);
    }
    match fs::remove_dir_all(&parent) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io(format!("remove `{}`", parent.display()), &error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Has the tests build these images of ours in the engines that `start` started.
pub(crate) fn images(workspace: &Workspace, names: &[&str]) -> Result<ExitCode, Failure> {
    if names.is_empty() {
        return Err(Failure::new("name images, such as `base python`; each takes a minute or more"));
    }
    let mut command = workspace.command(NEXTEST.locate(workspace)?);
    command.args(["nextest", "run", "--workspace", "--all-features", "--no-capture", "-E"]);
    command.arg("binary(engines) & test(images_of_ours_are_built)");
    command.env("RINGFENCE_TEST_IMAGES", names.join(",")).envs(live_variables(workspace)?);
    let status = command.status().map_err(|error| Failure::io("start nextest", &error))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What leads tests to the engines that `start` started, as it was written down.
fn live_variables(workspace: &Workspace) -> Result<Vec<(String, String)>, Failure> {
    let text = written(workspace)?;
    let pairs = text.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Prints the variables that lead tests to the engines that `start` started.
pub(crate) fn env(workspace: &Workspace) -> Result<ExitCode, Failure> {
    print!("{}", written(workspace)?);
    Ok(ExitCode::SUCCESS)
}

fn written(workspace: &Workspace) -> Result<String, Failure> {
    fs::read_to_string(live(workspace).join("env")).map_err(|error| {
        Failure::new(format!("no engines were started ({error}); `cargo xtask engines start` starts them"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_reaches_its_own_engines_and_docker_by_its_group_and_root_those_of_root() {
        let of = |user| KINDS.iter().filter(|kind| may_use(user, **kind)).map(|kind| kind.name).collect::<Vec<_>>();
        assert_eq!(of(Owner::Root), ["docker", "podman", "docker-victim", "podman-victim"]);
        assert_eq!(of(Owner::Ordinary), ["docker", "podman-rootless", "docker-rootless"]);
    }
}
