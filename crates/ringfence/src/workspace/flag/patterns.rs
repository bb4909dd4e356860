//! The policy's own patterns, held against places.

use std::path::Path;

use ringfence_policy::Glob;

use crate::workspace::change::Place;

/// Whether a policy's `fs.deny` names a place, or something above it.
pub(crate) struct Denied(Patterns);

impl Denied {
    /// By these patterns. One that means nothing denies every place.
    pub(crate) fn by(patterns: &[String]) -> Self {
        Self(Patterns::of(patterns))
    }

    /// Whether one of them names `place`.
    pub(crate) fn names(&self, place: &Place) -> bool {
        let folded = place.as_path().to_string_lossy().to_lowercase();
        self.0.unreadable.is_some()
            || Patterns::naming(&self.0.exact, place.as_path(), false).is_some()
            || Patterns::naming(&self.0.folded, Path::new(&folded), false).is_some()
    }
}

/// What the built-in `fs.protect` says of an agent's settings. A rule of ours says the same, and knows which copies of the project lie
/// among them.
const SAID_BY_A_RULE: &str = "**/.claude/**";

/// Patterns of a policy, as written and without regard to case.
pub(crate) struct Patterns {
    pub(super) exact: Vec<Glob>,
    pub(super) folded: Vec<Glob>,
    /// One that means nothing: then every place could be meant.
    pub(super) unreadable: Option<String>,
}

impl Patterns {
    pub(crate) fn of(written: &[String]) -> Self {
        let mut patterns = Self { exact: Vec::new(), folded: Vec::new(), unreadable: None };
        for text in written {
            match text.parse() {
                Ok(glob) => patterns.exact.push(glob),
                Err(_) => patterns.unreadable = Some(text.clone()),
            }
            // What cannot be folded is matched as it is written.
            patterns.folded.extend(text.to_lowercase().parse::<Glob>().ok());
        }
        patterns
    }

    /// Those of `fs.protect`, which stand beside our own rules.
    pub(crate) fn of_protect(written: &[String]) -> Self {
        let written: Vec<String> = written.iter().filter(|text| *text != SAID_BY_A_RULE).cloned().collect();
        Self::of(&written)
    }

    /// The pattern that names `path` in any case, something above it, or all below it; all of them where one means nothing.
    pub(crate) fn naming_any(&self, path: &Path, is_folder: bool) -> Option<String> {
        let folded = path.to_string_lossy().to_lowercase();
        let text = |glob: &Glob| glob.as_str().to_owned();
        self.unreadable
            .clone()
            .or_else(|| Self::naming(&self.exact, path, is_folder).map(text))
            .or_else(|| Self::naming(&self.folded, Path::new(&folded), is_folder).map(text))
    }

    /// The pattern that names `path`, something above it, or all below it.
    pub(super) fn naming<'a>(globs: &'a [Glob], path: &Path, is_folder: bool) -> Option<&'a Glob> {
        // From the outermost folder on: where nothing above matched, a rule that cannot end in a name does not match.
        let mut above: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        above.reverse();
        let last = above.len().saturating_sub(1);
        above.iter().enumerate().find_map(|(index, path)| {
            let name = path.file_name()?;
            let mut candidates = globs.iter().filter(|glob| glob.may_end_in(name)).peekable();
            candidates.peek()?;
            let below = (index < last || is_folder).then(|| path.join("x"));
            candidates.find(|glob| glob.matches(path) || below.as_ref().is_some_and(|below| glob.matches(below)))
        })
    }
}
