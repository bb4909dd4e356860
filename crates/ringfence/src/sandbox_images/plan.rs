//! From a recipe to what is to be done: pure, so that it can be looked at before it is done.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::recipe::Recipe;
use super::{BUILT_LABEL, IMAGE_LABEL, RECIPE_LABEL};

/// Left out of every image: nobody reads them there, and they are a third of a small one. The folders of manual pages stay:
/// packages put links there when they are set up, and fail without them.
const LEFT_OUT: [&str; 4] = ["/usr/share/man/*/?*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"];
/// What the licences of packages ask for.
const KEPT: &str = "/usr/share/doc/*/copyright";
/// What the host wrote there, about itself.
const FORGET_THE_HOST: &str = r#"rm -f "$1/etc/resolv.conf" "$1/etc/hostname""#;

/// Where an image's contents come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A base image of a registry; the engine builds.
    Registry,
    /// Debian packages; this machine puts them together.
    Packages,
}

/// Whether an engine may fetch what it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// It may.
    Allowed,
    /// It may not.
    Forbidden,
}

/// How an image is to be made.
#[derive(Debug, Clone)]
pub struct Wish {
    /// From what.
    pub source: Source,
    /// Whether a base may be fetched.
    pub pull: Pull,
    /// Where packages come from, instead of where `mmdebstrap` looks by itself.
    pub mirrors: Vec<Mirror>,
    /// The time that the image says it was made at, in seconds; files are not newer.
    pub built_at: u64,
}

impl Wish {
    pub(super) fn may_pull(&self) -> bool {
        self.pull == Pull::Allowed
    }
}

/// Where packages come from: an address, or a file as apt reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror(String);

/// A text that is no mirror.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMirror {
    /// Something else.
    #[error("`{0}` is neither an address such as `https://HOST/debian` nor the absolute path of a sources file")]
    Form(String),
    /// It would be written into the image.
    #[error(
        "the address of a mirror is written into the image, so it may hold no user and no password; put them into /etc/apt/auth.conf"
    )]
    Credentials,
}

impl FromStr for Mirror {
    type Err = BadMirror;

    fn from_str(text: &str) -> Result<Self, BadMirror> {
        let form = || BadMirror::Form(super::cut(text));
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) || text.len() > 1000 {
            return Err(form());
        }
        match text.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() => {
                let host = rest.split('/').next().unwrap_or_default();
                if host.contains('@') { Err(BadMirror::Credentials) } else { Ok(Self(text.to_owned())) }
            }
            None if Path::new(text).is_absolute() => Ok(Self(text.to_owned())),
            Some(_) | None => Err(form()),
        }
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who puts packages together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Root.
    Root,
    /// An ordinary user, who is root in a namespace of his own.
    User,
}

impl Privileges {
    /// Those of this process.
    pub fn ours() -> Self {
        if rustix::process::geteuid().is_root() { Self::Root } else { Self::User }
    }
}

/// A root that is put together from packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackagesPlan {
    /// What `mmdebstrap` is called with; the archive goes to its standard output.
    pub arguments: Vec<OsString>,
    /// What the environment says besides.
    pub environment: Vec<(&'static str, String)>,
}

/// How a root is put together for `recipe`.
pub fn from_packages(recipe: &Recipe, wish: &Wish, privileges: Privileges) -> PackagesPlan {
    let mode = match privileges {
        Privileges::Root => "root",
        Privileges::User => "unshare",
    };
    let mut arguments = vec![
        format!("--mode={mode}"),
        "--variant=apt".to_owned(),
        "--format=tar".to_owned(),
        r#"--aptopt=APT::Install-Recommends "false""#.to_owned(),
    ];
    arguments.extend(LEFT_OUT.iter().map(|path| format!("--dpkgopt=path-exclude={path}")));
    arguments.push(format!("--dpkgopt=path-include={KEPT}"));
    arguments.push(format!("--include={}", recipe.packages().join(",")));
    arguments.push(format!("--customize-hook={FORGET_THE_HOST}"));
    // What follows is never an option.
    arguments.extend(["--".to_owned(), recipe.suite().to_owned(), "-".to_owned()]);
    arguments.extend(wish.mirrors.iter().map(ToString::to_string));
    PackagesPlan {
        arguments: arguments.into_iter().map(OsString::from).collect(),
        environment: vec![("LC_ALL", "C.UTF-8".to_owned()), ("SOURCE_DATE_EPOCH", wish.built_at.to_string())],
    }
}

/// An image that an engine builds on a base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlan {
    /// The instructions.
    pub dockerfile: String,
    /// The image to go on from.
    pub from: String,
    /// What the image says of itself.
    pub labels: Vec<(&'static str, String)>,
}

/// How an engine builds `recipe` on a base that it has or fetches.
pub fn from_registry(recipe: &Recipe, wish: &Wish) -> RegistryPlan {
    RegistryPlan {
        dockerfile: dockerfile(recipe),
        from: registry_base(recipe),
        labels: labels(recipe.name(), recipe.hash(), wish.built_at),
    }
}

/// What an image of ours says of itself.
pub(super) fn labels(name: &str, recipe: &str, built_at: u64) -> Vec<(&'static str, String)> {
    vec![(IMAGE_LABEL, name.to_owned()), (RECIPE_LABEL, recipe.to_owned()), (BUILT_LABEL, time(built_at))]
}

/// A time as images write it.
pub(super) fn time(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    moment.unwrap_or_default().to_string()
}

fn registry_base(recipe: &Recipe) -> String {
    match recipe.base() {
        Some(base) => base.reference(),
        None => format!("debian:{}-slim", recipe.suite()),
    }
}

/// The instructions that lie beside the recipe, too: for people who build by hand.
pub(super) fn dockerfile(recipe: &Recipe) -> String {
    let from = match recipe.base() {
        Some(base) => format!("{}:latest", base.repository()),
        None => registry_base(recipe),
    };
    let mut text = format!("# {}.\nARG FROM={from}\nFROM ${{FROM}}\n", recipe.description());
    // Small bases leave out the folder as well, and packages that put a link there fail.
    text.push_str(
        "RUN mkdir -p /usr/share/man/man1 \\\n && apt-get update \\\n && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \\\n",
    );
    for package in recipe.own_packages() {
        text.push_str(&format!("      {package} \\\n"));
    }
    text.push_str(" && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*\n");
    for file in recipe.own_files() {
        text.push_str(&format!("COPY files/{} {}\nRUN chmod {:o} {}\n", file.from, file.to, file.mode, file.to));
    }
    text.push_str("CMD [\"bash\"]\n");
    text
}
