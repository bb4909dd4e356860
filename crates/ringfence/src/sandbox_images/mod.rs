//! The images of ours that stand behind container walls: what is in each, making them, and looking at those that an engine has.
//!
//! A recipe says what is in an image. Its hash is in the image's name and labels, so an image of an older recipe is seen to
//! be one. An image is made from a registry's base by the engine, or from Debian packages on this machine, where there is
//! no registry. What an engine says of an image is held against what was written down when it was made.
//!
//! **Must not** decide whether something may be fetched: whoever calls says so.

mod build;
mod bundle;
pub mod connect;
mod context;
mod dockerfile;
mod ensure;
mod ignored;
mod layout;
mod listed;
mod packages;
mod plan;
mod project;
mod prune;
mod recipe;
mod record;
#[cfg(test)]
mod tests;
mod verify;

pub use build::{BuildError, Built, build};
pub use bundle::Bundle;
pub use context::ContextError;
pub use dockerfile::{DockerfileError, Steps};
pub use ensure::{Building, EnsureError, ensure};
pub use layout::{LayoutWriteError, write_layout};
pub use listed::{ListError, Listed, Standing, list};
pub use packages::{PackagesError, make_bundle};
pub use plan::{
    BadMirror, Mirror, PackagesPlan, Privileges, Pull, RegistryPlan, Source, Wish, from_packages, from_registry,
};
pub use project::{BuildNetwork, ProjectError, ProjectWish, build_project};
pub use prune::{PruneError, Pruned, Removal, prune, to_prune};
pub use recipe::{Recipe, default_reference, find, image_for, image_for_program, recipes};
pub use verify::{Problem, Verified, VerifyError, verify};

/// Which image of ours it is.
pub const IMAGE_LABEL: &str = "dev.ringfence.image";
/// The hash of the recipe that it was made by.
pub const RECIPE_LABEL: &str = "dev.ringfence.image.recipe";
/// When it was made.
pub const BUILT_LABEL: &str = "dev.ringfence.image.built";
/// The first part of the names of all of them.
pub const REPOSITORY: &str = "ringfence";
/// Where programs are looked for in all of them.
pub const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What long work tells of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A part of the work begins.
    Step(String),
    /// Where it is, to be shown for a moment. May hold what an engine or a tool wrote.
    Detail(String),
}

/// Who hears of progress.
pub type Listener = std::sync::Arc<dyn Fn(Progress) + Send + Sync>;

/// A listener who does not care.
pub fn silent() -> Listener {
    std::sync::Arc::new(|_| {})
}

/// The longest line of an engine or a tool that is passed on.
const MOST_LINE: usize = 400;

/// A line that somebody else wrote, short.
fn cut(text: &str) -> String {
    text.trim_end().chars().take(MOST_LINE).collect()
}
