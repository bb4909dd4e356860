//! What `init` changed, so that it can be taken back byte by byte. Kept in the state folder, one file for each project, newest last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence::StateFolder;
use serde::{Deserialize, Serialize};

/// A longer file is none of those that agents read.
pub(super) const MOST_BYTES: u64 = 1024 * 1024;
/// Of the journal: what it holds is written as text.
const MOST_JOURNAL: u64 = 64 * 1024 * 1024;
/// Older steps are forgotten.
const MOST_STEPS: usize = 20;

/// One file that is changed.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    /// Below the project.
    pub(super) file: PathBuf,
    pub(super) before: Option<String>,
    pub(super) after: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Journal {
    project: PathBuf,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) files: Vec<Changed>,
    /// Folders that were made, the outermost first.
    folders: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Changed {
    pub(super) file: PathBuf,
    before: Option<String>,
    /// The hash of what was written.
    after: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("could not {attempt} {}", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{} leads through a link; change what it leads to by hand", .0.display())]
    Link(PathBuf),
    #[error("{} was changed by somebody else in the meantime; it and what follows are left as they are", .0.display())]
    Differs(PathBuf),
    #[error("{} is longer than 1 MiB", .0.display())]
    TooLong(PathBuf),
    #[error("{} is not UTF-8", .0.display())]
    NotText(PathBuf),
    #[error("what was written down of earlier changes cannot be read")]
    Damaged(#[source] serde_json::Error),
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io { attempt, path, source }
}

/// The text of a file of `project`; nothing where there is none. No link is followed: it could lead to any file of the host.
pub(super) fn read(project: &Path, file: &Path) -> Result<Option<String>, JournalError> {
    let mut path = project.to_owned();
    for part in file.components() {
        path.push(part);
        match path.symlink_metadata() {
            Ok(found) if found.is_symlink() => return Err(JournalError::Link(path)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(JournalError::Io { attempt: "look at", path, source }),
        }
    }
    let mut bytes = Vec::new();
    let opened = File::open(&path).map_err(failed("read", &path))?;
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed("read", &path))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(JournalError::TooLong(path));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| JournalError::NotText(path))
}

/// Puts `text` in place of a file, all of it or nothing, with the permissions that it had.
fn write(path: &Path, text: &[u8]) -> Result<(), JournalError> {
    let mode = path.metadata().map_or(0o644, |found| found.permissions().mode() & 0o777);
    let beside = path.with_file_name(format!(".ringfence-init-{}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).and_then(|mut file| {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        // What is left of it would be in the way of the next try.
        fs::remove_file(&beside).ok();
        failed("write", path)(error)
    })
}

fn hash(text: &[u8]) -> String {
    blake3::hash(text).to_hex().to_string()
}

impl Journal {
    fn path(state: &StateFolder, project: &Path) -> PathBuf {
        let name = hash(project.as_os_str().as_encoded_bytes());
        state.path().join("init").join(format!("{}.json", &name[..32]))
    }

    pub(super) fn load(state: &StateFolder, project: &Path) -> Result<Self, JournalError> {
        let path = Self::path(state, project);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MOST_JOURNAL).read_to_end(&mut text).map_err(failed("read", &path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { project: project.to_owned(), steps: Vec::new() });
            }
            Err(error) => return Err(failed("read", &path)(error)),
        };
        serde_json::from_slice(&text).map_err(JournalError::Damaged)
    }

    fn keep(&self, state: &StateFolder) -> Result<(), JournalError> {
        let path = Self::path(state, &self.project);
        let folder = path.parent().unwrap_or(state.path());
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        write(&path, &serde_json::to_vec(self).map_err(JournalError::Damaged)?)
    }

    /// Makes `edits`. How to take them back is written down first.
    pub(super) fn make(&mut self, state: &StateFolder, edits: &[Edit]) -> Result<(), JournalError> {
        let mut step = Step { files: Vec::new(), folders: Vec::new() };
        for edit in edits {
            let mut missing: Vec<&Path> =
                edit.file.ancestors().skip(1).filter(|one| !one.as_os_str().is_empty()).collect();
            missing.reverse();
            for folder in missing {
                if !self.project.join(folder).exists() && !step.folders.iter().any(|known| known == folder) {
                    step.folders.push(folder.to_owned());
                }
            }
            let before = edit.before.as_ref().map(|text| STANDARD.encode(text));
            step.files.push(Changed { file: edit.file.clone(), before, after: hash(edit.after.as_bytes()) });
        }
        self.steps.push(step);
        let surplus = self.steps.len().saturating_sub(MOST_STEPS);
        self.steps.drain(..surplus);
        self.keep(state)?;
        for (done, edit) in edits.iter().enumerate() {
            // A person may have looked at the question for long.
            if read(&self.project, &edit.file)? != edit.before {
                self.forget_all_but(done);
                self.keep(state)?;
                return Err(JournalError::Differs(edit.file.clone()));
            }
            let path = self.project.join(&edit.file);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed("make", folder))?;
            }
            write(&path, edit.after.as_bytes())?;
        }
        Ok(())
    }

    /// Of the last step only the first files were written.
    fn forget_all_but(&mut self, done: usize) {
        if let Some(step) = self.steps.last_mut() {
            step.files.truncate(done);
        }
        if done == 0 {
            self.steps.pop();
        }
    }

    /// What was done last.
    pub(super) fn last(&self) -> Option<&Step> {
        self.steps.last()
    }

    /// The files of the last step that are not as they were written.
    pub(super) fn changed_since(&self) -> Result<Vec<&Path>, JournalError> {
        let mut changed = Vec::new();
        for one in self.steps.last().into_iter().flat_map(|step| &step.files) {
            if !self.is_as_written(one)? {
                changed.push(one.file.as_path());
            }
        }
        Ok(changed)
    }

    /// Whether a file is as it was written, or as it was before.
    fn is_as_written(&self, one: &Changed) -> Result<bool, JournalError> {
        let now = read(&self.project, &one.file)?;
        Ok(now == one.text()? || now.map(|text| hash(text.as_bytes())) == Some(one.after.clone()))
    }

    /// Takes the last step back. Only for files that are as they were written, or as they were before.
    pub(super) fn take_back(&mut self, state: &StateFolder) -> Result<(), JournalError> {
        let Some(step) = self.steps.pop() else { return Ok(()) };
        for one in &step.files {
            if !self.is_as_written(one)? {
                return Err(JournalError::Differs(one.file.clone()));
            }
            let path = self.project.join(&one.file);
            match one.text()? {
                Some(text) => write(&path, text.as_bytes())?,
                None => match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("remove", &path)(error));
                    }
                    Ok(()) | Err(_) => {}
                },
            }
        }
        // One that somebody put something into stays.
        for folder in step.folders.iter().rev() {
            fs::remove_dir(self.project.join(folder)).ok();
        }
        self.keep(state)
    }
}

impl Changed {
    fn text(&self) -> Result<Option<String>, JournalError> {
        let Some(before) = &self.before else { return Ok(None) };
        let damaged = || JournalError::Damaged(serde::de::Error::custom("a file's text is not what was written"));
        let bytes = STANDARD.decode(before).map_err(|_| damaged())?;
        String::from_utf8(bytes).map(Some).map_err(|_| damaged())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_somebody_changed_in_the_meantime_is_neither_written_nor_taken_back() {
        let root = tempfile::tempdir().unwrap();
        let project = root.path().join("work");
        fs::create_dir(&project).unwrap();
        let state = StateFolder::prepare(root.path().join("state")).unwrap();
        let edit = |file: &str, before: Option<&str>| Edit {
            file: file.into(),
            before: before.map(str::to_owned),
            after: "ours".to_owned(),
        };
        fs::write(project.join("b"), "theirs").unwrap();
        let mut journal = Journal::load(&state, &project).unwrap();
        let made = journal.make(&state, &[edit("a", None), edit("b", Some("seen")), edit("c", None)]);
        assert!(matches!(made, Err(JournalError::Differs(_))), "{made:?}");
        let text = |file: &str| fs::read_to_string(project.join(file)).ok();
        assert_eq!((text("a").as_deref(), text("b").as_deref(), text("c")), (Some("ours"), Some("theirs"), None));
        // What was written can be taken back, unless somebody changed that.
        let mut journal = Journal::load(&state, &project).unwrap();
        fs::write(project.join("a"), "changed").unwrap();
        assert!(matches!(journal.take_back(&state), Err(JournalError::Differs(_))));
        assert_eq!(text("a").as_deref(), Some("changed"));
        fs::write(project.join("a"), "ours").unwrap();
        let mut journal = Journal::load(&state, &project).unwrap();
        assert!(journal.changed_since().unwrap().is_empty());
        journal.take_back(&state).unwrap();
        assert_eq!((text("a"), text("b").as_deref()), (None, Some("theirs")));
        assert!(Journal::load(&state, &project).unwrap().last().is_none());
    }
}
