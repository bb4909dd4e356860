//! A temporary place with a workspace, a folder outside it and a state folder, and engines that work there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use ringfence::engine::Setup;
use ringfence::launcher::Launcher;
use ringfence::{Engine, StateFolder};
use ringfence_policy::{Diagnostic, Layer, LayerInput, ResolvedPolicy, parse, resolve};
use tempfile::TempDir;

use crate::Trouble;

/// A place for one test; removed when dropped.
#[derive(Debug)]
pub struct Place {
    root: TempDir,
    launcher: PathBuf,
}

impl Place {
    /// A new place with an empty workspace. `launcher` is the binary of this crate that raises walls for tests.
    pub fn new(launcher: impl Into<PathBuf>) -> Result<Self, Trouble> {
        let root = tempfile::Builder::new()
            .prefix("ringfence-place-")
            .tempdir()
            .map_err(Trouble::io("make a temporary folder"))?;
        let place = Self { root, launcher: launcher.into() };
        for folder in [place.workspace(), place.outside()] {
            fs::create_dir(&folder).map_err(Trouble::io(format!("make {}", folder.display())))?;
        }
        Ok(place)
    }

    /// What the program works in.
    pub fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// A folder of the host that no policy shows.
    pub fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    /// Where ledger and scratch folders are.
    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// Writes a file of the workspace.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Trouble> {
        let path = self.workspace().join(name);
        let failed = || format!("write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Trouble::io(failed()))?;
        }
        fs::write(&path, text).map_err(Trouble::io(failed()))?;
        Ok(path)
    }

    /// An engine for this place under the policy that `text` makes, as a project's file.
    pub fn engine(&self, text: &str, environment: Vec<(OsString, OsString)>) -> Result<Engine, Trouble> {
        self.warm_engine(text, environment, 0)
    }

    /// Likewise, with room for so many containers that wait for runs.
    pub fn warm_engine(
        &self,
        text: &str,
        environment: Vec<(OsString, OsString)>,
        warm: usize,
    ) -> Result<Engine, Trouble> {
        let state = StateFolder::prepare(self.state()).map_err(|error| Trouble::Engine(Box::new(error)))?;
        let workspace = self.workspace().canonicalize().map_err(Trouble::io("find the workspace of the test"))?;
        let launcher = Launcher::process(&self.launcher, &[]).map_err(Trouble::io("start a launcher"))?;
        Engine::new(Setup {
            policy: policy(text)?,
            workspace,
            environment,
            state,
            grants: Vec::new(),
            own: Vec::new(),
            launcher,
            warm,
        })
        .map_err(|error| Trouble::Engine(Box::new(error)))
    }

    /// The root of it all.
    pub fn path(&self) -> &Path {
        self.root.path()
    }
}

/// What a project's file with this text resolves to. Requests are not read unless the text says so: who attacks a wall must get to it.
pub fn policy(text: &str) -> Result<ResolvedPolicy, Trouble> {
    let read = |name: &str, text: &str| parse(name, text).map_err(|found| Trouble::Policy(list(&found)));
    let layers = [
        LayerInput { layer: Layer::User, file: read("unread.yaml", "version: 1\nvalidate: off\n")? },
        LayerInput { layer: Layer::Project, file: read("sandbox.policy.yaml", text)? },
    ];
    resolve(&layers, &[]).map_err(|found| Trouble::Policy(list(&found)))
}

fn list(found: &[Diagnostic]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
