//! The root from an image: which folder it is, whether it may be shown, and how.
//!
//! With an image nothing of the host's own system is shown. The image itself is never written: a private layer lies over
//! it, holds the few files that are ours, and is closed before the program runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_linux::wall::{Access, Entry, Identity, Written};
use ringfence_policy::{ImageKind, ResolvedPolicy};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::pinned::Pinned;
use super::{StartError, toolchain, view};
use crate::backend::inside::env_with_image;
use crate::backend::{FoundImage, Settled, Unavailable};
use crate::image::{self, Chosen, Layout, LayoutError, Limits, StoreError};
use crate::plan::Plan;
use crate::state::StateFolder;

/// One of these is in every root.
const OF_A_ROOT: [&str; 3] = ["usr", "bin", "sbin"];
/// What an image may have and a program does not get: the kernel's own, and lists of hashed passwords.
const NEVER: [&str; 6] = ["sys", "boot", "etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-"];
/// In `/dev` everything is ours; these two are covered as they are.
const COVERED_IN_DEV: [&str; 2] = ["pts", "shm"];
const MOST_IN_DEV: usize = 1024;
/// How often a look-up is tried that was disturbed.
const MOST_TRIES: usize = 256;

/// Why an image cannot be the root.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is not there.
    #[error("could not open {path}")]
    Open {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It may not be shown, or is no root.
    #[error("{0}")]
    Unfit(String),
    /// The layout gives no image.
    #[error("{path} gives no image")]
    Layout {
        /// Where.
        path: PathBuf,
        /// Why.
        source: LayoutError,
    },
    /// It could not be unpacked.
    #[error("it could not be unpacked")]
    Store(#[from] StoreError),
}

impl ImageError {
    fn open(path: &Path) -> impl Fn(rustix::io::Errno) -> Self {
        let path = path.to_owned();
        move |errno| Self::Open { path: path.clone(), source: errno.into() }
    }
}

/// Whether this wall can make a root of what the policy names.
pub(super) fn check_kind(policy: &ResolvedPolicy) -> Result<(), Unavailable> {
    // Which runtime confines a program is as much a wish for a wall as the wall's name.
    if let Some(runtime) = &policy.backend.runtime {
        return Err(Unavailable {
            reason: format!("`backend.runtime: {}` is for a container engine ({})", runtime.value, runtime.origin),
            fix: "choose `docker` or `podman`, or take the runtime out of the policy".to_owned(),
        });
    }
    let Some(image) = &policy.image else { return Ok(()) };
    match image.value.kind() {
        ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. } => Ok(()),
        ImageKind::Build(path) => Err(Unavailable {
            reason: format!("`image: {{ build: {path} }}` is for a container engine; this wall builds no images"),
            fix: "choose `docker` or `podman`, or write `image: oci:./image` or `image: ./rootfs`".to_owned(),
        }),
        ImageKind::Reference => Err(Unavailable {
            reason: format!(
                "`image: {0}` is for a container engine; this wall needs an OCI layout, such as from `skopeo copy \
                 docker://{0} oci:image:latest`, then `image: oci:./image`; or a folder with a root, such as from \
                 `mmdebstrap stable rootfs`, then `image: ./rootfs`",
                image.value
            ),
            fix: "write `image: oci:./image` or `image: ./rootfs`, or leave it out to show the host's system"
                .to_owned(),
        }),
    }
}

/// An image that was found and looked at, and not yet unpacked.
#[derive(Debug)]
pub(super) struct Found {
    name: String,
    kind: FoundKind,
}

#[derive(Debug)]
enum FoundKind {
    Folder(Pinned),
    Layout(Layout, Chosen),
}

/// The image of `plan`; nothing when its policy names none.
pub(super) fn find(plan: &Plan, state: &StateFolder) -> Result<Option<Found>, StartError> {
    let Some(image) = &plan.policy().image else { return Ok(None) };
    let failed = |source| StartError::Image { image: image.value.to_string(), source };
    let (path, name) = match image.value.kind() {
        ImageKind::Folder(path) | ImageKind::Rootfs(path) => (path, None),
        ImageKind::Layout { path, name } => (path, name.as_deref()),
        // `probe` said no.
        ImageKind::Reference | ImageKind::Build(_) => {
            return Err(failed(ImageError::Unfit("it is for a container engine".to_owned())));
        }
    };
    let folder = resolve(path.as_path(), plan.workspace(), state).map_err(failed)?;
    let is_layout = match image.value.kind() {
        ImageKind::Layout { .. } => true,
        ImageKind::Folder(_) => Layout::is_one(&folder),
        ImageKind::Rootfs(_) | ImageKind::Reference | ImageKind::Build(_) => false,
    };
    if is_layout {
        let failed = |source| failed(ImageError::Layout { path: folder.clone(), source });
        let layout = Layout::open(&folder).map_err(failed)?;
        let chosen = layout.choose(name).map_err(failed)?;
        let name = format!("{}@{}", image.value, chosen.digest());
        return Ok(Some(Found { name, kind: FoundKind::Layout(layout, chosen) }));
    }
    let held = Pinned::open(&folder).map_err(|source| failed(ImageError::Open { path: folder.clone(), source }))?;
    check_folder(&held, plan.workspace()).map_err(failed)?;
    Ok(Some(Found { name: format!("rootfs:{}", folder.display()), kind: FoundKind::Folder(held) }))
}

impl Found {
    /// For the ledger and whoever waits.
    pub(super) fn describe(&self, state: &StateFolder) -> FoundImage {
        let preparing = match &self.kind {
            FoundKind::Layout(_, chosen) if image::find(state, chosen.digest()).is_none() => {
                Some(format!("unpacking the image {}, which is done once", self.name))
            }
            FoundKind::Layout(..) | FoundKind::Folder(_) => None,
        };
        FoundImage { name: self.name.clone(), preparing, settled: Settled::Now }
    }

    /// The folder that is the root, unpacked if it has to be.
    pub(super) async fn obtain(self, plan: &Plan, state: &StateFolder) -> Result<Root, StartError> {
        let named = plan.policy().image.as_ref().map(|image| image.value.to_string()).unwrap_or_default();
        let failed = |source| StartError::Image { image: named.clone(), source };
        let (folder, search_path, absent) = match self.kind {
            FoundKind::Folder(folder) => {
                let denied = || failed(ImageError::Unfit("`fs.deny` denies it".to_owned()));
                let absent = view::denied_in(&folder, &plan.policy().fs.deny, plan.workspace())?.ok_or_else(denied)?;
                (folder, None, absent)
            }
            FoundKind::Layout(layout, chosen) => {
                let unpacked = image::obtain(state, &layout, &chosen, Limits::default()).await;
                let folder = unpacked.map_err(|error| failed(error.into()))?.root().canonicalize();
                let folder = folder.and_then(|folder| Pinned::open(&folder));
                let folder =
                    folder.map_err(|source| failed(ImageError::Open { path: state.path().to_owned(), source }))?;
                (folder, chosen.search_path().map(str::to_owned), Vec::new())
            }
        };
        view::no_mounts_below(folder.path(), "the image")?;
        Ok(Root { name: self.name, folder, search_path, absent, named })
    }
}

/// The folder that is meant, wherever links lead. What is named below the workspace lies in it: a link there is the
/// project's, not the policy's.
fn resolve(path: &Path, workspace: &Path, state: &StateFolder) -> Result<PathBuf, ImageError> {
    let unfit = |why: String| Err(ImageError::Unfit(why));
    let named = workspace.join(path);
    let folder = named.canonicalize().map_err(|source| ImageError::Open { path: named, source })?;
    if path.is_relative() && !folder.starts_with(workspace) {
        return unfit(format!("it leads out of the workspace, to {}", folder.display()));
    }
    ringfence_policy::check_root(&folder).map_err(|invalid| ImageError::Unfit(invalid.message))?;
    if !folder.is_dir() {
        return unfit(format!("{} is no folder", folder.display()));
    }
    let state = state.path().canonicalize();
    let state = state.map_err(|source| ImageError::Open { path: folder.clone(), source })?;
    if folder.starts_with(&state) || state.starts_with(&folder) {
        return unfit(format!("{} holds the ledger, or lies beside it", folder.display()));
    }
    Ok(folder)
}

/// Whether a folder is fit to be shown as a root: all in it will be seen.
fn check_folder(held: &Pinned, workspace: &Path) -> Result<(), ImageError> {
    let folder = held.path();
    let unfit = |why: &str| Err(ImageError::Unfit(format!("{} {why}", folder.display())));
    if workspace.starts_with(folder) {
        return unfit("holds the workspace, which would be shown a second time with what is denied in it");
    }
    if toolchain::is_home(folder) {
        return unfit("is somebody's home, or holds one");
    }
    if !OF_A_ROOT
        .iter()
        .any(|name| rustix::fs::statat(held.opened(), *name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok())
    {
        return unfit("is no root: it has neither `usr` nor `bin`");
    }
    Ok(())
}

/// A folder that becomes the root of a view.
#[derive(Debug)]
pub(super) struct Root {
    name: String,
    /// As the policy has it.
    named: String,
    folder: Pinned,
    search_path: Option<String>,
    absent: Vec<PathBuf>,
}

/// What an image has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Nothing,
    Folder,
    Link,
    File,
}

impl Root {
    /// For the outcome.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The program's variables: those of the plan, but programs are looked for where the image has them. Nothing else
    /// of an image's own variables is taken.
    pub(super) fn env(&self, plan: &Plan) -> Vec<(OsString, OsString)> {
        env_with_image(plan, self.search_path.as_deref())
    }

    /// Whether there is a file at `path`, to which no link leads.
    pub(super) fn has_plain_file(&self, path: &Path) -> bool {
        matches!(self.look(&plain(path)), Ok(At::File))
    }

    /// Whether a program will find a file at `path`. Links are followed as they will be inside.
    pub(super) fn has_file(&self, path: &Path) -> bool {
        let open = || {
            rustix::fs::openat2(
                self.folder.opened(),
                path,
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            )
        };
        // While something is mounted or renamed anywhere, the kernel may not be able to tell where `..` in a link leads.
        let mut tries = (0..MOST_TRIES).map(|_| open()).skip_while(|opened| matches!(opened, Err(Errno::AGAIN)));
        let stat = tries.next().unwrap_or(Err(Errno::AGAIN)).and_then(|file| rustix::fs::fstat(&file));
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    /// What is ours in every view, put into this one.
    pub(super) fn system(&self, identity: Identity) -> Result<Vec<Entry>, StartError> {
        let mut entries = view::own(identity);
        if self.look(Path::new("usr")).map_err(|source| self.failed(source))? == At::Nothing {
            // The proofs of the wall try to write there.
            entries.push(Entry::Folder { at: "/usr".into() });
        }
        let at = PathBuf::from("/var/tmp");
        match self.look(Path::new("var/tmp")).map_err(|source| self.failed(source))? {
            At::Nothing => entries.push(Entry::Link { at, target: "/tmp".into() }),
            At::Folder => entries.push(Entry::Scratch { at, mode: 0o1777, size: None }),
            At::Link | At::File => {}
        }
        Ok(entries)
    }

    /// The entry for the root itself, on which `entries` are put together.
    pub(super) fn ground(
        &self,
        entries: &[Entry],
        identity: Identity,
        trees: &mut view::Trees,
    ) -> Result<Entry, StartError> {
        let mut absent = self.absent.clone();
        let mut take_away = |path: PathBuf| {
            if !absent.iter().any(|known| path.starts_with(known)) {
                absent.push(path);
            }
        };
        let failed = |source| self.failed(source);
        for path in NEVER.map(Path::new) {
            if self.look(path).map_err(failed)? != At::Nothing {
                take_away(path.to_owned());
            }
        }
        for path in self.in_dev().map_err(failed)? {
            take_away(path);
        }
        for entry in entries {
            if let Some(path) = self.make_room(entry).map_err(failed)? {
                take_away(path);
            }
        }
        let source = view::source(&self.folder, identity, trees)?;
        Ok(Entry::CopyOnWrite { source, at: "/".into(), absent, access: Access::ReadOnly, written: Written::Forgotten })
    }

    /// What has to go for `entry` to have its place. Folders stay, and links are never followed: where the image has a link
    /// on the way, nothing is shown at all.
    fn make_room(&self, entry: &Entry) -> Result<Option<PathBuf>, ImageError> {
        let (at, wants_folder) = match entry {
            Entry::File { at, .. } | Entry::Link { at, .. } => (at.clone(), false),
            Entry::Device { name } => (Path::new("/dev").join(name), false),
            Entry::Scratch { at, .. } | Entry::CopyOnWrite { at, .. } | Entry::Folder { at } => (at.clone(), true),
            Entry::Proc => ("/proc".into(), true),
            Entry::Terminals => ("/dev/pts".into(), true),
            // What is covered may be a folder or a file, as what covers it.
            Entry::Bind { at, .. } => (at.clone(), self.look(&plain(at))? == At::Folder),
            Entry::Masked { .. } | Entry::Again { .. } => return Ok(None),
        };
        let path = plain(&at);
        match (self.look(&path)?, wants_folder) {
            (At::Nothing, _) | (At::Folder, true) => Ok(None),
            (At::File | At::Link, false) => Ok(Some(path)),
            (At::Folder, false) => Err(self.in_the_way("a folder", &at)),
            (At::File, true) => Err(self.in_the_way("a file", &at)),
            (At::Link, true) => Err(self.in_the_way("a link", &at)),
        }
    }

    /// What the image has at `path`, to which no link leads.
    fn look(&self, path: &Path) -> Result<At, ImageError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(self.folder.opened(), path, flags, Mode::empty(), resolve) {
            Ok(found) => {
                let stat = rustix::fs::fstat(&found).map_err(ImageError::open(path))?;
                Ok(match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => At::Folder,
                    FileType::Symlink => At::Link,
                    _ => At::File,
                })
            }
            Err(rustix::io::Errno::NOENT) => Ok(At::Nothing),
            Err(rustix::io::Errno::LOOP) => Err(self.in_the_way("a link on the way to", path)),
            Err(rustix::io::Errno::NOTDIR) => Err(self.in_the_way("a file on the way to", path)),
            Err(errno) => Err(ImageError::open(path)(errno)),
        }
    }

    fn in_the_way(&self, what: &str, at: &Path) -> ImageError {
        ImageError::Unfit(format!("it has {what} /{}, where the sandbox puts its own", plain(at).display()))
    }

    /// What the image has in `/dev`.
    fn in_dev(&self) -> Result<Vec<PathBuf>, ImageError> {
        let dev = Path::new("dev");
        if self.look(dev)? != At::Folder {
            return Ok(Vec::new());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(
            self.folder.opened().as_fd(),
            dev,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )
        .map_err(ImageError::open(dev))?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::new(opened).map_err(ImageError::open(dev))? {
            let entry = entry.map_err(ImageError::open(dev))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let covered = COVERED_IN_DEV.iter().any(|covered| name == *covered);
            if name == "." || name == ".." || (covered && self.look(&dev.join(name))? == At::Folder) {
                continue;
            }
            found.push(dev.join(name));
            if found.len() > MOST_IN_DEV {
                return Err(ImageError::Unfit("it has more than 1,024 entries in /dev".to_owned()));
            }
        }
        Ok(found)
    }

    fn failed(&self, source: ImageError) -> StartError {
        StartError::Image { image: self.named.clone(), source }
    }
}

/// A path inside, relative to the root.
fn plain(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}
