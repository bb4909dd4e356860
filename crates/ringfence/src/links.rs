//! Where the paths of a request lead on this machine, through links.
//!
//! Only names and links are looked at, each by a descriptor that opens nothing (`O_PATH`) and by a lookup that goes through no link: no
//! pipe is waited for, and a link that is put in the way meanwhile is met, not followed. Other file systems are entered only where they
//! are local, so that one whose server is gone holds nobody up. What is seen may be another a moment later: this is for the second
//! fence, and the wall is what holds.

mod mounts;

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_policy::{Mount, ResolvedPolicy};
use ringfence_validate::{Analysis, HOLE, Last, Leads, Surroundings, fits};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use mounts::Mounts;

/// Links on one path, at most; the kernel goes through no more.
const MOST_LINKS: usize = 40;
/// Names that are looked at for one request, at most.
const MOST_LOOKS: usize = 65_536;
/// For so long, at most.
const LONGEST: Duration = Duration::from_secs(1);
/// Places to which one path leads, at most: a pattern may mean many links.
const MOST_PLACES: usize = 1_024;
/// The kernel opens no longer path.
const LONGEST_PATH: usize = 4_096;
/// Names of a folder are read in pieces of this size.
const PIECE: usize = 16 * 1024;

/// Folders of the system are not looked into. Only who manages the machine makes links there, those of the kernel lead to whoever asks, and
/// behind a wall they may be an image's.
const OF_THE_SYSTEM: [&str; 15] = [
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "nix", "proc", "run", "sbin", "snap", "sys", "usr",
];

/// Adds to `analysis` where its paths lead. `workspace` is the host's folder of the workspace.
pub(crate) fn follow(analysis: &mut Analysis, surroundings: &Surroundings, workspace: &Path, policy: &ResolvedPolicy) {
    let mut looking = Looking::new(surroundings, workspace, policy);
    ringfence_validate::follow(analysis, surroundings, &mut |path, last| looking.look(path, last));
}

/// A folder of the host and its name in requests.
#[derive(Debug)]
struct Shown {
    at: Vec<String>,
    host: PathBuf,
    opened: OnceCell<Result<OwnedFd, Errno>>,
}

impl Shown {
    fn new(at: &str, host: PathBuf) -> Self {
        Self { at: plain_parts(at), host, opened: OnceCell::new() }
    }

    fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.opened.get_or_init(|| rustix::fs::open(&self.host, flags, Mode::empty()));
        opened.as_ref().map(AsFd::as_fd).map_err(|errno| *errno)
    }
}

/// What stands at a name.
#[derive(Debug)]
enum Found {
    /// Something that is no link.
    Plain,
    /// A link to this.
    Link(String),
    Missing,
    /// It may not be looked at, or it lies on a file system that is not waited for.
    Closed,
    /// We could not tell.
    Unclear,
}

/// A part of a path on the way.
#[derive(Debug, Clone)]
enum Part {
    /// As the request has it: perhaps a pattern, or not known.
    Given(String),
    /// A name that was found on the disk.
    Name(String),
}

/// A path that is gone along.
#[derive(Debug)]
struct Way {
    at: Vec<String>,
    rest: VecDeque<Part>,
    last: Last,
    links: usize,
    names: Names,
}

/// Whose names a path is gone along by. A relative link that leaves the workspace leads elsewhere behind a wall than without one, and we do
/// not know yet which it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Those of the host, where what is not there is not there.
    Hosts,
    /// Those inside, of which we see only what the host shows there.
    Inside,
}

#[derive(Debug)]
struct Looking<'l> {
    surroundings: &'l Surroundings,
    /// The last is the host's root.
    shown: Vec<Shown>,
    known: HashMap<(String, Last), Vec<Leads>>,
    mounts: OnceCell<Mounts>,
    looks: usize,
    until: Instant,
}

impl<'l> Looking<'l> {
    fn new(surroundings: &'l Surroundings, workspace: &Path, policy: &ResolvedPolicy) -> Self {
        let workspaces = surroundings.workspaces.iter().map(|at| Shown::new(at, workspace.to_owned()));
        let mounts = policy.fs.mounts.iter().filter_map(|mount| match &mount.value {
            Mount::Host { host, at, .. } => Some((at.as_str(), workspace.join(host.as_path()))),
            Mount::Tmpfs { .. } => None,
        });
        let mounts = mounts.flat_map(|(at, host)| {
            let outside = host.to_str().map(|name| Shown::new(name, host.clone()));
            std::iter::once(Shown::new(at, host.clone())).chain(outside)
        });
        let mut shown: Vec<Shown> = workspaces.chain(mounts).collect();
        // The innermost is the one that a program sees.
        shown.sort_by_key(|shown| std::cmp::Reverse(shown.at.len()));
        shown.push(Shown::new("/", PathBuf::from("/")));
        let until = Instant::now() + LONGEST;
        Self { surroundings, shown, known: HashMap::new(), mounts: OnceCell::new(), looks: 0, until }
    }

    fn look(&mut self, path: &str, last: Last) -> Vec<Leads> {
        // Behind a slash there is a folder, whatever is done with it.
        let last = if path.ends_with('/') || path.ends_with("/.") { Last::Followed } else { last };
        let key = (path.to_owned(), last);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut places = Vec::new();
        self.go(path, last, &mut places);
        self.known.insert(key, places.clone());
        places
    }

    fn go(&mut self, path: &str, last: Last, places: &mut Vec<Leads>) {
        if path.contains('\0') {
            return; // Nobody opens that.
        }
        if self.is_over(places) {
            return add(places, Leads::TooMuch);
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let is_plain = !parts.iter().any(|part| *part == ".." || is_open(part));
        if path.len() > LONGEST_PATH {
            places.extend((!is_plain).then_some(Leads::Unknown));
            return;
        }
        // Nearly every path has no link, and one look says so.
        if is_plain && parts.first() != Some(&"proc") {
            let whole: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            if !self.is_looked_into(&whole) {
                return;
            }
            match self.look_at(&whole) {
                Found::Plain | Found::Missing => return,
                Found::Link(_) if last == Last::Itself => return,
                // Some folder on the way is a link, or more has to be looked at.
                Found::Link(_) | Found::Closed | Found::Unclear => {}
            }
        }
        let shown = self.shown.iter().find(|shown| {
            let folder: Vec<&str> = shown.at.iter().map(String::as_str).collect();
            parts.starts_with(&folder)
        });
        let Some(Shown { at, host, .. }) = shown else { return };
        let rest: VecDeque<Part> = parts.iter().skip(at.len()).map(|part| Part::Given((*part).to_owned())).collect();
        let at = at.clone();
        let outside = host.to_str().map(plain_parts).filter(|outside| *outside != at);
        let names = if outside.is_some() { Names::Inside } else { Names::Hosts };
        self.walk(Way { at, rest: rest.clone(), last, links: 0, names }, Through::Nothing, places);
        if let Some(at) = outside {
            self.walk(Way { at, rest, last, links: 0, names: Names::Hosts }, Through::Nothing, places);
        }
    }

    /// A place by the name that it has inside, where it has one.
    fn named_inside(&self, place: &[String]) -> String {
        let inside = self.shown.iter().filter(|shown| !shown.at.is_empty()).find_map(|shown| {
            let outside = plain_parts(shown.host.to_str()?);
            let below = place.strip_prefix(outside.as_slice()).filter(|_| outside != shown.at)?;
            Some([shown.at.as_slice(), below].concat())
        });
        format!("/{}", inside.as_deref().unwrap_or(place).join("/"))
    }

    fn is_over(&self, places: &[Leads]) -> bool {
        self.looks > MOST_LOOKS || places.len() > MOST_PLACES || Instant::now() > self.until
    }

    /// Goes along a path part by part, and says where it ends if that is through a link.
    fn walk(&mut self, mut way: Way, through: Through, places: &mut Vec<Leads>) {
        let mut through = through;
        let mut end = End::Seen;
        while let Some(part) = way.rest.pop_front() {
            if self.is_over(places) {
                return add(places, Leads::TooMuch);
            }
            let (part, is_given) = match part {
                Part::Given(part) => (part, true),
                Part::Name(part) => (part, false),
            };
            if part == ".." {
                way.at.pop();
                continue;
            }
            if end != End::Seen || is_given && part.contains(HOLE) {
                end = if end == End::Seen { End::Open } else { end };
                way.at.push(part);
                continue;
            }
            // The kernel's own ways around: where they lead is what the words say.
            match (way.at.as_slice(), part.as_str()) {
                ([proc, _], "root") if proc == "proc" => {
                    way.at.clear();
                    continue;
                }
                ([proc, _], "cwd") if proc == "proc" => {
                    way.at = plain_parts(&self.surroundings.directory);
                    continue;
                }
                _ => {}
            }
            way.at.push(part);
            if !self.is_looked_into(&way.at) {
                continue;
            }
            if is_given && way.at.last().is_some_and(|part| is_open(part)) {
                self.spread(&way, places);
                end = End::Open;
                continue;
            }
            match self.look_at(&way.at) {
                Found::Plain => {}
                Found::Link(_) if way.rest.is_empty() && way.last == Last::Itself => {}
                Found::Link(target) => {
                    way.links += 1;
                    if way.links > MOST_LINKS {
                        return add(places, Leads::Unknown);
                    }
                    through = Through::Link;
                    way.at.pop();
                    if target.starts_with('/') {
                        way.at.clear();
                    }
                    let parts = target.split('/').filter(|part| !part.is_empty() && *part != ".");
                    parts.rev().for_each(|part| way.rest.push_front(Part::Name(part.to_owned())));
                }
                Found::Missing | Found::Closed => end = End::Hidden,
                Found::Unclear => return add(places, Leads::Unknown),
            }
        }
        if through == Through::Link {
            // What is not there yet may be a link itself when it comes. In what is the request's own anything may, with or without.
            let is_own = self.shown.iter().any(|shown| !shown.at.is_empty() && way.at.starts_with(&shown.at));
            add(places, Leads::To(self.named_inside(&way.at)));
            if end == End::Hidden && way.names == Names::Hosts && !is_own {
                add(places, Leads::Unknown);
            }
        }
    }

    /// Goes along each path that a pattern at the end of `way` means, as far as a link may be on it.
    fn spread(&mut self, way: &Way, places: &mut Vec<Leads>) {
        let Some((pattern, folder)) = way.at.split_last() else { return };
        let names = match self.names(folder, pattern, way.rest.is_empty()) {
            Ok(names) => names,
            Err(leads) => return add(places, leads),
        };
        for name in names {
            let mut rest = way.rest.clone();
            rest.push_front(Part::Name(name));
            let way = Way { at: folder.to_vec(), rest, last: way.last, links: way.links, names: way.names };
            self.walk(way, Through::Nothing, places);
        }
    }

    /// The names that a pattern means, of links and of folders with more behind them.
    fn names(&mut self, folder: &[String], pattern: &str, is_last: bool) -> Result<Vec<String>, Leads> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let opened = match self.open(folder, flags) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::XDEV) => return Ok(Vec::new()),
            Err(_) => return Err(Leads::Unknown),
        };
        let mut names = Vec::new();
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut entries = RawDir::new(opened, &mut piece);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return Err(Leads::Unknown) };
            self.looks += 1;
            if self.looks > MOST_LOOKS {
                return Err(Leads::TooMuch);
            }
            let matters = match entry.file_type() {
                FileType::Symlink | FileType::Unknown => true,
                FileType::Directory => !is_last,
                _ => false,
            };
            let name = entry.file_name().to_string_lossy();
            if matters && name != "." && name != ".." && (fits(pattern, &name) || name == pattern) {
                // A name that is no text is none of ours to go along.
                names.push(entry.file_name().to_str().map_err(|_| Leads::Unknown)?.to_owned());
            }
        }
        Ok(names)
    }

    fn look_at(&mut self, path: &[String]) -> Found {
        self.looks += 1;
        let opened = match self.open(path, OFlags::PATH) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => return Found::Missing,
            Err(Errno::ACCESS | Errno::XDEV) => return Found::Closed,
            Err(_) => return Found::Unclear,
        };
        match rustix::fs::fstat(&opened).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Symlink) => {
                let target = rustix::fs::readlinkat(&opened, "", Vec::new()).map(|target| target.into_string());
                match target {
                    Ok(Ok(target)) if !target.is_empty() => Found::Link(target),
                    Ok(_) | Err(_) => Found::Unclear,
                }
            }
            Ok(_) => Found::Plain,
            Err(_) => Found::Unclear,
        }
    }

    /// Opens what stands at `path`, which has neither links nor steps back. `EXDEV` where that lies on a file system that is not waited
    /// for.
    fn open(&self, path: &[String], flags: OFlags) -> Result<OwnedFd, Errno> {
        let Some(shown) = self.shown.iter().find(|shown| path.starts_with(&shown.at)) else { return Err(Errno::NOENT) };
        let below: PathBuf = path.iter().skip(shown.at.len()).collect();
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { &below };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(shown.root()?, below, flags, Mode::empty(), strict | ResolveFlags::NO_XDEV);
        match opened {
            Err(Errno::XDEV)
                if self.mounts.get_or_init(Mounts::read).are_local(&shown.host, &shown.host.join(below)) =>
            {
                rustix::fs::openat2(shown.root()?, below, flags, Mode::empty(), strict)
            }
            opened => opened,
        }
    }

    fn is_looked_into(&self, path: &[String]) -> bool {
        let is_shown = self.shown.iter().any(|shown| !shown.at.is_empty() && path.starts_with(&shown.at));
        is_shown || !path.first().is_some_and(|first| OF_THE_SYSTEM.contains(&first.as_str()))
    }
}

/// Whether a link was on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    Nothing,
    Link,
}

/// How far a path was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// To its end.
    Seen,
    /// To a part that is only known when it runs.
    Open,
    /// To something that is not there, or is closed to us.
    Hidden,
}

/// Whether a part may mean several names, or is not known.
fn is_open(part: &str) -> bool {
    part.contains(['*', '?', '[', HOLE])
}

fn plain_parts(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
}

fn add(places: &mut Vec<Leads>, leads: Leads) {
    if !places.contains(&leads) {
        places.push(leads);
    }
}

#[cfg(test)]
mod tests;
