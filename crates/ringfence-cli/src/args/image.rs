//! What is written after `ringfence image`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use ringfence::sandbox_images::Mirror;

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Make images, in a container engine or as a folder
    Build(ImageBuildArgs),
    /// List the images of ours that the engine has
    List {
        /// The container engine
        #[arg(long, value_name = "ENGINE", default_value = "docker")]
        engine: EngineArg,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold the engine's images against what was made here; exit code 1 when one differs
    Verify {
        /// Which [default: all that the engine has]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// The container engine
        #[arg(long, value_name = "ENGINE", default_value = "docker")]
        engine: EngineArg,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove images of older recipes of ours, and nothing else
    Prune {
        /// The container engine
        #[arg(long, value_name = "ENGINE", default_value = "docker")]
        engine: EngineArg,
        /// Say what would be removed, and remove nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Images: base, python, node, go, rust, java, polyglot.

Examples:
  ringfence image build python
  ringfence image build --from registry --pull base
  ringfence image build --oci ./images base python     then, in a policy: image: oci:./images:python

With SOURCE_DATE_EPOCH set, the same packages give the same image.")]
pub(crate) struct ImageBuildArgs {
    /// Which [default: those that code in a language needs: base, python, node]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The container engine
    #[arg(long, value_name = "ENGINE", default_value = "docker", conflicts_with = "oci")]
    pub(crate) engine: EngineArg,
    /// What to make them from: Debian packages, put together here by mmdebstrap, or a registry's base image
    #[arg(long, value_name = "SOURCE", default_value = "packages")]
    pub(crate) from: SourceArg,
    /// Where packages are, instead of Debian's own address: an address, or a sources file of apt; repeatable
    #[arg(long, value_name = "URL|FILE")]
    pub(crate) mirror: Vec<Mirror>,
    /// Let the engine fetch the base image
    #[arg(long)]
    pub(crate) pull: bool,
    /// Write them to a new folder as an OCI layout, for `image: oci:DIR:NAME`, and use no engine
    #[arg(long, value_name = "DIR")]
    pub(crate) oci: Option<PathBuf>,
    /// Say only what went wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    Docker,
    Podman,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceArg {
    Packages,
    Registry,
}
