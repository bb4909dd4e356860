//! Many paths become few patterns, none of them wider than it has to be.

use std::collections::BTreeSet;

use ringfence_egress::{UrlPath, normalise};
use ringfence_policy::Glob;

use crate::explain::exact_path;

/// The most patterns of one rule.
const MOST: usize = 8;
/// What a path ends with that was too long to be written down whole.
const CUT: &str = "...";

/// Patterns that cover all of `paths`, at most [`MOST`]. Empty means that every path is meant.
pub(super) fn collapse(paths: &[&UrlPath]) -> Vec<String> {
    let Some(forms) = paths.iter().map(|path| Form::of(path)).collect::<Option<BTreeSet<_>>>() else {
        return Vec::new();
    };
    let deepest = forms.iter().map(Form::depth).max().unwrap_or_default();
    (1..=deepest.max(1)).rev().find_map(|depth| patterns(&forms, depth)).unwrap_or_default()
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// This path.
    Exact(String),
    /// All below this folder, whose name has no `/` at its end.
    Below(String),
}

impl Form {
    /// Nothing where the path has two readings, and so no rule may look at it.
    fn of(path: &UrlPath) -> Option<Self> {
        let raw = path.raw();
        // Where something was left out, or replaced by a mark, the folder before it is known.
        let unknown = raw.find('?').or_else(|| raw.strip_suffix(CUT).map(str::len));
        let Some(end) = unknown else { return path.normal().ok().map(|normal| Self::Exact(normal.to_owned())) };
        let (folder, _) = raw.get(..end)?.rsplit_once('/')?;
        let folder = normalise(folder).ok().filter(|folder| folder != "/")?;
        Some(Self::Below(folder.trim_end_matches('/').to_owned()))
    }

    fn depth(&self) -> usize {
        match self {
            Self::Exact(path) | Self::Below(path) => path.matches('/').count(),
        }
    }

    fn at_depth(&self, depth: usize) -> Self {
        let (Self::Exact(path) | Self::Below(path)) = self;
        if self.depth() <= depth && matches!(self, Self::Exact(_)) {
            return self.clone();
        }
        let end = path.match_indices('/').nth(depth).map_or(path.len(), |(at, _)| at);
        Self::Below(path.get(..end).unwrap_or(path).to_owned())
    }

    fn pattern(&self) -> Option<String> {
        match self {
            Self::Exact(path) => exact_path(path).map(|glob| glob.as_str().to_owned()),
            Self::Below(folder) => {
                let text = format!("{}/**", exact_path(folder)?.as_str());
                text.parse::<Glob>().ok().map(|_| text)
            }
        }
    }
}

/// Every path cut at `depth` folders, when that makes few enough and covers all.
fn patterns(forms: &BTreeSet<Form>, depth: usize) -> Option<Vec<String>> {
    let cut: BTreeSet<Form> = forms.iter().map(|form| form.at_depth(depth)).collect();
    // What lies below a folder that is listed needs no pattern of its own.
    let is_covered = |form: &Form| {
        cut.iter().any(|other| match (other, form) {
            (Form::Below(folder), Form::Exact(path)) => is_below(path, folder),
            (Form::Below(folder), Form::Below(inner)) => is_below(inner, folder),
            (Form::Exact(_), _) => false,
        })
    };
    let patterns = cut.iter().filter(|form| !is_covered(form)).map(Form::pattern).collect::<Option<Vec<_>>>()?;
    if patterns.len() > MOST || patterns.iter().any(|pattern| pattern == "/**") {
        return None;
    }
    let globs: Vec<Glob> = patterns.iter().filter_map(|pattern| pattern.parse().ok()).collect();
    let covers = |form: &Form| match form {
        Form::Exact(path) => globs.iter().any(|glob| glob.matches(path)),
        Form::Below(folder) => globs.iter().any(|glob| glob.matches(format!("{folder}/x"))),
    };
    forms.iter().all(covers).then_some(patterns)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], expected: &[&str]) {
        let paths: Vec<UrlPath> = paths.iter().map(|path| UrlPath::new(path)).collect();
        let found = collapse(&paths.iter().collect::<Vec<_>>());
        assert_eq!(found, expected);
        // Whatever was seen is covered.
        let globs: Vec<Glob> = found.iter().map(|text| text.parse().unwrap()).collect();
        for path in paths.iter().filter(|path| !path.raw().contains('?') && !path.raw().ends_with(CUT)) {
            let normal = path.normal().unwrap_or("/");
            assert!(globs.is_empty() || globs.iter().any(|glob| glob.matches(normal)), "{normal}");
        }
    }

    #[test]
    fn few_paths_stay_exact_and_many_become_their_folders() {
        check(&["/a", "/b/c"], &["/a", "/b/c"]);
        check(&["/"], &["/"]);
        check(&["/a*[b]"], &["/a\\*\\[b\\]"]);
        let many: Vec<String> = (0..20).map(|number| format!("/simple/p{number}/x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&many, &["/simple/**"]);
        check(&[&many[..], &["/other"]].concat(), &["/other", "/simple/**"]);
        check(&[&many[..], &["/simple/"]].concat(), &["/simple/**"]);
        let flat: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
        check(&flat.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    }

    #[test]
    fn what_was_not_seen_whole_is_known_by_its_folder_and_two_readings_by_nothing() {
        check(&["/a/b?c"], &["/a/**"]);
        check(&["/a/bbbb..."], &["/a/**"]);
        check(&["/x..."], &[]);
        check(&["/a%2fb", "/c"], &[]);
    }
}
