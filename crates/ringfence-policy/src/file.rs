//! The version-1 policy file as it was written: everything optional, every value with its place.

use std::sync::Arc;

use crate::budget::NetBudget;
use crate::command::CommandRule;
use crate::credential::CredentialPolicy;
use crate::diagnostic::Diagnostic;
use crate::host::NetRule;
use crate::image::Image;
use crate::path::{Glob, LiteralPath};
use crate::policy::{
    BackendChoice, BackendKind, CacheKind, Field, Firmness, ImagePull, Mount, NetMode, Preset, UnknownHosts, UserId,
    WorkspaceMode, WorkspaceSource,
};
use crate::reader::Reader;
pub use crate::reader::Written;
use crate::runtime::Runtime;
use crate::section;
use crate::units::{Bytes, Cpus, TimeSpan};
use crate::upstream::Upstream;
use crate::validate::ValidateFile;
use crate::yaml::{Node, parse_yaml};

/// One layer as it was written. `None` means that the layer says nothing about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyFile {
    /// The presets below this layer, in order.
    pub extends: Vec<Written<Preset>>,
    /// The wanted wall.
    pub backend: Option<Written<BackendChoice>>,
    /// What may stand in for it.
    pub fallback: Option<Vec<Written<BackendKind>>>,
    /// The OCI runtime that a container engine is to use.
    pub runtime: Option<Written<Runtime>>,
    /// Weak walls of the layers below are replaced by `auto`; a choice that isolates stays.
    pub require_isolation: Option<Written<()>>,
    /// What stands inside.
    pub image: Option<Written<Image>>,
    /// Whether it may be fetched.
    pub image_pull: Option<Written<ImagePull>>,
    /// Packages that are shown read-only inside.
    pub cache: Option<Vec<Written<CacheKind>>>,
    /// `fs`
    pub fs: FsFile,
    /// `net`
    pub net: NetFile,
    /// `credentials`, in the order of the file.
    pub credentials: Option<Vec<(String, Written<CredentialPolicy>)>>,
    /// `proc`
    pub proc: ProcFile,
    /// `validate`
    pub validate: ValidateFile,
    /// `commands`
    pub commands: Option<Vec<Written<CommandRule>>>,
    /// `tools.allow`
    pub tools: Option<Vec<Written<String>>>,
    /// `overrides.grantable`
    pub grantable: Option<Vec<Written<Field>>>,
}

/// `fs`, as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FsFile {
    /// `workspace.path`
    pub workspace: Option<Written<LiteralPath>>,
    /// `workspace.mode`
    pub mode: Option<Written<WorkspaceMode>>,
    /// `workspace.source`
    pub source: Option<Written<WorkspaceSource>>,
    /// `mounts`
    pub mounts: Option<Vec<Written<Mount>>>,
    /// `deny`
    pub deny: Option<Vec<Written<Glob>>>,
    /// `protect`, beyond what is protected by default.
    pub protect: Option<Vec<Written<Glob>>>,
    /// `size`
    pub size: Option<Written<Bytes>>,
}

/// `net`, as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NetFile {
    /// `mode`
    pub mode: Option<Written<NetMode>>,
    /// `allow`
    pub allow: Option<Vec<Written<NetRule>>>,
    /// `deny`
    pub deny: Option<Vec<Written<NetRule>>>,
    /// `localhost`
    pub localhost: Option<Vec<Written<u16>>>,
    /// `unix`
    pub unix: Option<Vec<Written<LiteralPath>>>,
    /// `budget`
    pub budget: Option<Written<NetBudget>>,
    /// `unknown`
    pub unknown: Option<Written<UnknownHosts>>,
    /// `upstream`
    pub upstream: Option<Written<Upstream>>,
}

/// `proc`, as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcFile {
    /// `user`
    pub user: Option<Written<UserId>>,
    /// `cpus`
    pub cpus: Option<Written<Cpus>>,
    /// `memory`
    pub memory: Option<Written<Bytes>>,
    /// `processes`
    pub processes: Option<Written<u32>>,
    /// `limits`
    pub limits: Option<Written<Firmness>>,
    /// `timeout`
    pub timeout: Option<Written<TimeSpan>>,
    /// `max_timeout`
    pub max_timeout: Option<Written<TimeSpan>>,
    /// `grace`
    pub grace: Option<Written<TimeSpan>>,
    /// `output`
    pub output: Option<Written<Bytes>>,
    /// `file_size`
    pub file_size: Option<Written<Bytes>>,
    /// `open_files`
    pub open_files: Option<Written<u32>>,
    /// `env.pass`
    pub pass: Option<Vec<Written<String>>>,
    /// `env.set`, in the order of the file.
    pub set: Option<Vec<(String, Written<String>)>>,
}

/// Reads a policy file. `file_name` is only used to say where problems are.
///
/// All problems of a kind are reported together: first those of the YAML, then those of its keys and values.
pub fn parse(file_name: &str, text: &str) -> Result<PolicyFile, Vec<Diagnostic>> {
    let file: Arc<str> = file_name.into();
    let tree = parse_yaml(&file, text)?;
    read_tree(&file, &tree)
}

/// Likewise, a built-in text whose tree was read before.
pub(crate) fn parse_prepared(file_name: &str, tree: &Node) -> Result<PolicyFile, Vec<Diagnostic>> {
    read_tree(&file_name.into(), tree)
}

fn read_tree(file: &Arc<str>, tree: &Node) -> Result<PolicyFile, Vec<Diagnostic>> {
    let mut reader = Reader::new(file);
    let policy = section::read_file(&mut reader, tree);
    reader.finish(policy)
}
