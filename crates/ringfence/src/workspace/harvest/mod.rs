//! Finds what a program changed: walks a private layer beside the workspace that it lies over, or that it is a copy of.
//!
//! The layer was written by an untrusted program, through overlay: names, links, permissions and contents are its own. Nothing
//! here follows a link or leaves the two folders, no path is looked up that is not below one of them, and whatever is not
//! understood ends the harvest: a list that leaves something out is worse than none.

mod before;
mod copied;
mod error;
mod file;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;

use self::before::Contents;
pub use self::error::HarvestError;
use self::error::{LONGEST, MOST_ENTRIES, MOST_LETTERS, at, io_at};
pub use self::file::Remembered;
use super::change::{Before, Change, Moment, Node, Place};
use super::copy::Manifest;
use super::layer::{Life, Lower, PrivateLayer};
use super::node::{hold, is_closed_inside, kind_of, link_target, open_file, open_folder, open_up, other_kind, stat_of};
use super::objects::{ObjectId, Objects};
use super::overlay::Marks;

/// What a harvest may cost, and from when on a change on the host counts.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// When the program began: what the host changed since then, the program may or may not have seen.
    pub began: Moment,
    /// Bytes of contents that are read.
    pub most_bytes: u64,
}

/// All that differs between `layer` and the workspace below it, sorted by place. Contents go to `objects`.
pub fn harvest(layer: &PrivateLayer, bounds: Bounds, objects: &Objects) -> Result<Vec<Change>, HarvestError> {
    harvest_again(layer, bounds, objects, &Remembered::default()).map(|(changes, _)| changes)
}

/// Likewise, after an earlier look at the same layer: files that are as they were then are not read again. Their contents must
/// still be in `objects`. What comes out is remembered only if nobody wrote to the layer meanwhile.
pub fn harvest_again(
    layer: &PrivateLayer,
    bounds: Bounds,
    objects: &Objects,
    known: &Remembered,
) -> Result<(Vec<Change>, Remembered), HarvestError> {
    let mut harvest = Harvest {
        layer,
        lower: layer.lower(),
        copied: layer.copied(),
        bounds,
        objects,
        left: VecDeque::from([Folder { place: None, upper: Upper::Here, lower: Beneath::Beside }]),
        changes: Vec::new(),
        made: Vec::new(),
        linked: HashMap::new(),
        known,
        seen: Remembered::begin(),
        opened: RefCell::default(),
        entries: 0,
        letters: 0,
        read: 0,
        bases: 0,
    };
    let looked = harvest.look_through_all();
    // Also after an error: it is looked at again.
    harvest.close_again()?;
    looked?;
    harvest.list_made();
    let mut changes = harvest.changes;
    changes.sort_by(|one, other| one.place.cmp(&other.place));
    Ok((changes, harvest.seen))
}

/// A folder that is still to be looked through.
#[derive(Debug)]
struct Folder {
    /// Nothing for the workspace itself.
    place: Option<Place>,
    upper: Upper,
    lower: Beneath,
}

/// Whether a folder is in the private layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upper {
    Here,
    /// It is, in a folder that was made anew: of what the workspace has in its place, nothing is seen in it.
    Anew,
    /// It was removed, or became something else: all that was in it is gone.
    Gone,
}

/// What the workspace has in the place of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beneath {
    /// No folder.
    Nothing,
    /// A folder that the program saw.
    Beside,
    /// Something that the program did not see.
    Hidden,
    /// No folder any more: the host removed it while the program ran.
    Lost,
}

/// What the workspace has in the place of a file.
struct Old {
    stat: Option<Stat>,
    /// The program did not see it.
    hidden: bool,
    /// The host removed it while the program ran.
    lost: bool,
}

struct Harvest<'a> {
    layer: &'a PrivateLayer,
    lower: &'a Lower,
    /// What was copied, when the layer is a copy: it has everything that is seen, and no marks.
    copied: Option<&'a Manifest>,
    bounds: Bounds,
    objects: &'a Objects,
    left: VecDeque<Folder>,
    changes: Vec<Change>,
    /// Folders that the wall made on the way to something of its own; listed only if the program put something into them.
    made: Vec<Change>,
    /// Contents of files that have several names.
    linked: HashMap<(u64, u64), (ObjectId, u64)>,
    /// What an earlier look found, and what this one did.
    known: &'a Remembered,
    seen: Remembered,
    /// Folders of a layer that rests, which were closed and are open for us.
    opened: RefCell<Vec<(PathBuf, Mode)>>,
    entries: usize,
    letters: usize,
    read: u64,
    bases: u64,
}

impl Harvest<'_> {
    fn look_through_all(&mut self) -> Result<(), HarvestError> {
        while let Some(folder) = self.left.pop_front() {
            self.look_through(&folder)?;
        }
        Ok(())
    }

    fn look_through(&mut self, folder: &Folder) -> Result<(), HarvestError> {
        let path = folder.place.as_ref().map_or(Path::new("."), Place::as_path);
        let failed = |attempt: &'static str| at(attempt, path);
        let upper = match folder.upper {
            Upper::Here | Upper::Anew => Some(self.open_upper_folder(path)?),
            Upper::Gone => None,
        };
        // Something that was taken away because nobody here may look into it: what is there is not known.
        let mut closed = false;
        let lower = match folder.lower {
            Beneath::Nothing | Beneath::Lost => None,
            // Held, and not opened: what is below may be looked at where it may not be read.
            Beneath::Beside | Beneath::Hidden => match hold(self.lower.shown(), path) {
                Ok(lower) => {
                    closed = folder.lower == Beneath::Hidden && stat_of(&lower, OsStr::new(".")).is_err();
                    (!closed).then_some(lower)
                }
                Err(Errno::ACCESS) if folder.lower == Beneath::Hidden => {
                    closed = true;
                    None
                }
                // The host has removed it meanwhile, or put something else there.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
                Err(errno) => return Err(failed("open the workspace's folder")(errno)),
            },
        };
        let marks = match &upper {
            Some(upper) => self.marks_of(upper, path)?,
            None => Marks::default(),
        };
        // Overlay marks the outermost folder that was made anew, and none below it.
        let opaque = marks.opaque || folder.upper != Upper::Here;
        let inner = if opaque { Upper::Anew } else { Upper::Here };
        let mut names = BTreeSet::new();
        let first = self.changes.len();
        if let Some(upper) = &upper {
            for name in self.names_in(upper, path)? {
                let place = self.place(folder, &name)?;
                self.look_at_upper(folder, (upper, lower.as_ref()), &name, place, inner)?;
                names.insert(name);
            }
        }
        if closed {
            for change in self.changes.iter_mut().skip(first) {
                change.before = Before::Unknown;
            }
        }
        let Some(lower) = lower.filter(|_| opaque && folder.lower == Beneath::Beside) else { return Ok(()) };
        let readable = match open_folder(&lower, Path::new(".")) {
            // The host has put something else there.
            Err(Errno::NOTDIR) => return Ok(()),
            readable => readable.map_err(failed("read the workspace's folder"))?,
        };
        for name in self.names_in(&readable, path)? {
            if !names.contains(&name) {
                let place = self.place(folder, &name)?;
                self.remove(&lower, &name, place)?;
            }
        }
        Ok(())
    }

    /// One name of the private layer. A folder of this name is `inner`.
    fn look_at_upper(
        &mut self,
        folder: &Folder,
        (upper, lower): (&OwnedFd, Option<&OwnedFd>),
        name: &OsStr,
        place: Place,
        inner: Upper,
    ) -> Result<(), HarvestError> {
        let path = place.as_path();
        let stat = rustix::fs::statat(upper, name, AtFlags::SYMLINK_NOFOLLOW).map_err(at("look at", path))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 && self.copied.is_none() {
            return self.take_whiteout(folder, lower, name, place);
        }
        let below = match lower {
            Some(lower) => stat_of(lower, name).map_err(at("look at", path))?,
            None => None,
        };
        if self.is_untouched(path, &stat, below.as_ref()) {
            return Ok(());
        }
        let was_whole = below.as_ref().is_some_and(|below| self.is_taken_away_whole(below, path));
        let hidden = folder.lower == Beneath::Hidden
            || self.lower.is_in_absent(path)
            // A folder there is ours, made to take something away in it, unless overlay says that it is new.
            || (was_whole && (kind != FileType::Directory || self.marks_of(self.open_upper_folder(path)?, path)?.opaque));
        let mode = stat.st_mode & 0o7777;
        match kind {
            FileType::Directory => {
                let was_folder = below.as_ref().is_some_and(|below| kind_of(below) == FileType::Directory);
                let same = was_folder && !hidden && below.as_ref().is_some_and(|it| self.old_mode(path, it) == mode);
                // Overlay moves no folder that it has copied, so the host has removed this one.
                let lost = self.is_lost_folder(path, below.as_ref())
                    || below.is_none() && self.marks_of(self.open_upper_folder(path)?, path)?.copied_up;
                if !same {
                    let before = match lost {
                        true => Before::Unknown,
                        false => self.before(lower, name, below.as_ref(), Contents::Left, path)?,
                    };
                    let change = Change { place: place.clone(), before, after: Some(Node::Folder { mode }) };
                    if self.copied.is_some() && lost || below.is_none() && self.lower.is_on_our_way(path) {
                        self.made.push(change);
                    } else {
                        self.changes.push(change);
                    }
                }
                let beneath = match (hidden, was_folder) {
                    (true, _) => Beneath::Hidden,
                    (false, true) => Beneath::Beside,
                    (false, false) if lost => Beneath::Lost,
                    (false, false) => Beneath::Nothing,
                };
                self.left.push_back(Folder { place: Some(place), upper: inner, lower: beneath });
                return Ok(());
            }
            FileType::RegularFile => {
                let file = self.open_upper_file(upper, name, &stat, path)?;
                let marks = self.marks_of(&file, path)?;
                if marks.whiteout {
                    return self.take_whiteout(folder, lower, name, place);
                }
                if below.is_none() && self.lower.is_made(path) && stat.st_size == 0 {
                    // Nothing of it was seen: something of the wall's own lies over it.
                    return Ok(());
                }
                // One that was copied may have been moved here; or the host has removed what was here.
                let lost = below.is_none()
                    && (self.copied.is_some_and(|copied| copied.has(path))
                        || marks.copied_up
                            && (folder.lower == Beneath::Lost
                                || lower.is_some_and(|lower| self.is_changed_since(lower))));
                let old = Old { stat: below, hidden, lost };
                self.take_file(lower, name, file, &old, place.clone())?;
            }
            FileType::Symlink => {
                let target = link_target(upper, name).map_err(at("read the link", path))?;
                self.count_letters(target.len())?;
                let is_link = |below: &Stat| kind_of(below) == FileType::Symlink;
                let old = match lower.filter(|_| below.as_ref().is_some_and(is_link)) {
                    Some(lower) => Some(link_target(lower, name).map_err(at("read the link", path))?),
                    None => None,
                };
                if hidden || old.as_ref() != Some(&target) {
                    let before = self.before(lower, name, below.as_ref(), Contents::Left, path)?;
                    self.changes.push(Change { place: place.clone(), before, after: Some(Node::Link { target }) });
                }
            }
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => {
                let other = other_kind(kind);
                let same = below.as_ref().is_some_and(|below| below.st_mode == stat.st_mode) && !hidden;
                if !same {
                    let before = self.before(lower, name, below.as_ref(), Contents::Left, path)?;
                    self.changes.push(Change { place: place.clone(), before, after: Some(Node::Other(other)) });
                }
            }
            FileType::Unknown => return Err(HarvestError::NotUnderstood { place: path.to_owned(), mark: "its type" }),
        }
        // Where a folder was is none any more, and all that was in it is gone.
        if below.is_some_and(|below| kind_of(&below) == FileType::Directory) && !hidden {
            self.left.push_back(Folder { place: Some(place), upper: Upper::Gone, lower: Beneath::Beside });
        }
        Ok(())
    }

    /// The mark that something was removed, by the program or by us.
    fn take_whiteout(
        &mut self,
        folder: &Folder,
        lower: Option<&OwnedFd>,
        name: &OsStr,
        place: Place,
    ) -> Result<(), HarvestError> {
        // Of what the program did not see there is nothing to remove, and without something below, nothing differs.
        let Some(lower) = lower.filter(|_| folder.lower == Beneath::Beside) else { return Ok(()) };
        self.remove(lower, name, place)
    }

    /// Whether a folder with something denied in it cannot be entered behind the wall: it was taken away as a whole, and nobody
    /// there could have removed it.
    fn is_taken_away_whole(&self, below: &Stat, path: &Path) -> bool {
        self.lower.copied().is_none()
            && self.lower.holds_absent(path)
            && kind_of(below) == FileType::Directory
            && is_closed_inside(below, self.lower.owner())
    }

    /// What the workspace has, and is no more. What a program never saw, it has not removed.
    fn remove(&mut self, lower: &OwnedFd, name: &OsStr, place: Place) -> Result<(), HarvestError> {
        if self.lower.is_absent(place.as_path()) || !self.was_seen(place.as_path()) {
            return Ok(());
        }
        let below = stat_of(lower, name).map_err(at("look at", place.as_path()))?;
        let Some(below) = below.filter(|below| !self.is_taken_away_whole(below, place.as_path())) else {
            return Ok(());
        };
        let before = self.before(Some(lower), name, Some(&below), Contents::Left, place.as_path())?;
        self.changes.push(Change { place: place.clone(), before, after: None });
        if kind_of(&below) == FileType::Directory {
            self.left.push_back(Folder { place: Some(place), upper: Upper::Gone, lower: Beneath::Beside });
        }
        Ok(())
    }

    fn count_read(&mut self, size: u64) -> Result<(), HarvestError> {
        self.read = self.read.saturating_add(size);
        let most = self.bounds.most_bytes;
        if self.read > most { Err(HarvestError::TooMuch { most }) } else { Ok(()) }
    }

    /// Lists those folders of the wall's own that now hold something of the program's.
    fn list_made(&mut self) {
        if self.made.is_empty() {
            return;
        }
        let places: BTreeSet<&Place> = self.changes.iter().map(|change| &change.place).collect();
        // What is in a folder comes next after it.
        let is_used = |made: &Change| {
            let after = places.range::<&Place, _>((Bound::Excluded(&made.place), Bound::Unbounded)).next();
            after.is_some_and(|place| place.as_path().starts_with(made.place.as_path()))
        };
        let made: Vec<Change> = self.made.iter().filter(|made| is_used(made)).cloned().collect();
        self.changes.extend(made);
    }

    fn place(&mut self, folder: &Folder, name: &OsStr) -> Result<Place, HarvestError> {
        let path = folder.place.as_ref().map_or_else(|| PathBuf::from(name), |place| place.as_path().join(name));
        let length = path.as_os_str().len();
        if length > LONGEST {
            return Err(HarvestError::LongPath { begin: path.to_string_lossy().chars().take(64).collect() });
        }
        if !self.is_known(&path) {
            self.count_letters(length)?;
        }
        // A name from the kernel is plain: no separator, never empty, and neither of the two that are left out.
        Place::new(path).map_err(|_| HarvestError::NotUnderstood { place: PathBuf::from(name), mark: "its name" })
    }

    fn count_letters(&mut self, letters: usize) -> Result<(), HarvestError> {
        self.letters = self.letters.saturating_add(letters);
        if self.letters > MOST_LETTERS { Err(HarvestError::TooLong) } else { Ok(()) }
    }

    fn names_in(&mut self, folder: &OwnedFd, path: &Path) -> Result<Vec<OsString>, HarvestError> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(at("read the folder", path))? {
            let entry = entry.map_err(at("read the folder", path))?;
            let name: &CStr = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let name = OsStr::from_bytes(name.to_bytes());
            if self.copied.is_none() || !self.is_known(&path.join(name)) {
                self.entries += 1;
            }
            if self.entries > MOST_ENTRIES {
                return Err(HarvestError::TooMany);
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Opens a folder of the private layer, so that what is in it can be looked at. Its owner is who we are, or we are root: one
    /// that is closed can be opened up. Its permissions were taken down before.
    fn open_upper_folder(&self, path: &Path) -> Result<OwnedFd, HarvestError> {
        let failed = || at("open the folder", path);
        let is_still = match self.layer.life() {
            Life::Over | Life::Rests => true,
            Life::GoesOn => false,
        };
        if is_still && !rustix::process::geteuid().is_root() {
            let held = hold(self.layer.upper(), path).map_err(failed())?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&held).map_err(failed())?.st_mode & 0o7777);
            if !mode.contains(Mode::RWXU) {
                open_up(&held, mode | Mode::RWXU).map_err(failed())?;
                self.opened.borrow_mut().push((path.to_owned(), mode));
            }
        }
        open_folder(self.layer.upper(), path).map_err(failed())
    }

    /// Gives folders of a layer that rests their permissions back, the innermost first.
    fn close_again(&self) -> Result<(), HarvestError> {
        if self.layer.life() != Life::Rests {
            return Ok(());
        }
        for (path, mode) in self.opened.take().into_iter().rev() {
            let failed = || at("close the folder", &path);
            let held = hold(self.layer.upper(), &path).map_err(failed())?;
            open_up(&held, mode).map_err(failed())?;
        }
        Ok(())
    }

    /// Opens a file of the private layer. Its owner is who we are, or we are root: one that is closed can be opened up.
    fn open_upper_file(&self, folder: &OwnedFd, name: &OsStr, stat: &Stat, path: &Path) -> Result<File, HarvestError> {
        let file = match open_file(folder, name) {
            Err(Errno::ACCESS) if self.layer.life() != Life::GoesOn => {
                let closed = hold(folder, name).map_err(at("open", path))?;
                let now = rustix::fs::fstat(&closed).map_err(at("look at", path))?;
                if kind_of(&now) != FileType::RegularFile {
                    return Err(HarvestError::Moving { place: path.to_owned() });
                }
                let mode = Mode::from_raw_mode(now.st_mode & 0o7777);
                open_up(&closed, mode | Mode::RUSR).map_err(at("open", path))?;
                let opened = open_file(folder, name);
                // The list says what it was.
                open_up(&closed, mode).map_err(at("open", path))?;
                opened
            }
            opened => opened,
        };
        let file = file.map_err(at("open", path))?;
        let now = rustix::fs::fstat(&file).map_err(at("look at", path))?;
        if kind_of(&now) != FileType::RegularFile || (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(HarvestError::Moving { place: path.to_owned() });
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests;
