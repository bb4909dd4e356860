//! Paths as the kernel would take them, looked up step by step, with every name on the way.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// For each reading of `path`, meant from `folder`, every name that it goes by: as it is written, each link on the way, and at last where it
/// leads. What is not there is taken as it is written. Whether `~` is a home or a name is the tool's to say, so both are read.
pub(crate) fn resolve(folder: &Path, path: &str, home: Option<&Path>) -> Result<Vec<Vec<PathBuf>>, &'static str> {
    if path.is_empty() {
        return Err("it is empty");
    }
    if path.contains('\0') {
        return Err("it holds a NUL byte");
    }
    // Some tools take these off before they use it, and then it is another path.
    if path.trim() != path {
        return Err("it begins or ends with white space");
    }
    if path.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:")) {
        return Err("it is an address of a file");
    }
    let mut written = vec![folder.join(path)];
    match (path.strip_prefix("~"), home) {
        (Some(""), Some(home)) => written.push(home.to_owned()),
        (Some(rest), Some(home)) if rest.starts_with('/') => written.push(home.join(rest.trim_start_matches('/'))),
        _ => {}
    }
    written.iter().map(|written| names(written)).collect()
}

/// As many spellings of one path are looked at.
const MOST_SPELLINGS: usize = 64;

/// What stands below `workspace` by the names of `path`, whatever the case of their letters. Nothing where it leads out: that is judged as it
/// is written.
pub(crate) fn spellings(workspace: &Path, path: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let plain = without_dots(path);
    let Ok(below) = plain.strip_prefix(workspace) else { return Ok(Vec::new()) };
    let lower = |name: &std::ffi::OsStr| name.to_string_lossy().to_lowercase();
    let mut found = vec![workspace.to_owned()];
    for wanted in below.iter() {
        let mut next = Vec::new();
        for folder in &found {
            // What cannot be listed by us cannot be searched by the agent, who is the same user.
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let alike = entries.filter(|entry| lower(&entry.file_name()) == lower(wanted)).map(|entry| entry.path());
            next.extend(alike);
            // What is not there yet may be by then.
            next.push(folder.join(wanted));
        }
        next.sort();
        next.dedup();
        if next.len() > MOST_SPELLINGS {
            return Err("too many files differ from it only in the case of letters");
        }
        found = next;
    }
    found.retain(|path| *path != plain);
    Ok(found)
}

fn names(written: &Path) -> Result<Vec<PathBuf>, &'static str> {
    if !written.is_absolute() {
        return Err("nobody knows from where it is meant");
    }
    let mut names = vec![without_dots(written)];
    names.extend(follow(written)?);
    names.dedup();
    Ok(names)
}

/// Without `.` and `..`, as text.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    plain
}

enum Step {
    Up,
    Down(OsString),
}

fn steps(path: &Path) -> Vec<Step> {
    let step = |part: Component<'_>| match part {
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(step).collect()
}

fn follow(path: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let mut left: VecDeque<Step> = steps(path).into();
    let mut names = Vec::new();
    let mut now = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = left.pop_front() {
        let Step::Down(name) = step else {
            now.pop();
            continue;
        };
        now.push(name);
        // What cannot be looked at has no link that we, or the agent as the same user, could follow.
        let Ok(target) = fs::read_link(&now) else { continue };
        links += 1;
        if links > MOST_LINKS {
            return Err("it leads through too many links");
        }
        let rest: PathBuf = left
            .iter()
            .map(|step| match step {
                Step::Up => OsString::from(".."),
                Step::Down(name) => name.clone(),
            })
            .collect();
        names.push(without_dots(&now.join(rest)));
        now.pop();
        if target.is_absolute() {
            now = PathBuf::from("/");
        }
        for step in steps(&target).into_iter().rev() {
            left.push_front(step);
        }
    }
    names.push(now);
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn last(folder: &Path, path: &str) -> PathBuf {
        resolve(folder, path, Some(Path::new("/home/me"))).unwrap().pop().unwrap().pop().unwrap()
    }

    #[test]
    fn a_path_leads_where_the_kernel_would_go() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let work = root.join("work");
        fs::create_dir_all(work.join("deep/er")).unwrap();
        fs::create_dir_all(root.join("out/side")).unwrap();
        symlink("../out", work.join("link")).unwrap();
        symlink("link/side", work.join("nested")).unwrap();
        symlink(work.join("deep/er"), work.join("far")).unwrap();
        assert_eq!(last(&work, "a/./b/../c"), work.join("a/c"));
        assert_eq!(last(&work, "link/x"), root.join("out/x"));
        assert_eq!(last(&work, "nested/x"), root.join("out/side/x"));
        // Up from where a link leads, not from where it stands; what is written is looked at as well.
        assert_eq!(last(&work, "nested/../x"), root.join("out/x"));
        assert!(resolve(&work, "nested/../x", None).unwrap()[0].contains(&work.join("x")));
        assert_eq!(last(&work, "far/../y"), work.join("deep/y"));
        assert_eq!(last(&work, "~/x"), Path::new("/home/me/x"));
        assert_eq!(last(&work, "/../../etc"), Path::new("/etc"));
        // A folder may be called `~`, too.
        let readings = resolve(&work, "~/x", Some(Path::new("/home/me"))).unwrap();
        assert_eq!(readings, [[work.join("~/x")], [PathBuf::from("/home/me/x")]]);
    }

    #[test]
    fn a_link_that_leads_to_itself_is_none_and_its_name_is_among_the_names() {
        let root = tempfile::tempdir().unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        assert!(resolve(root.path(), "loop/x", None).is_err());
        for bad in ["", "a\0b", " a", "a ", "a\n", "\u{a0}a", "file:///etc/x", "FILE:x", "file:a"] {
            assert!(resolve(root.path(), bad, None).is_err(), "{bad:?}");
        }
        for good in ["a b", "file", "files/x", "file.txt", "x/file:y"] {
            assert!(resolve(root.path(), good, None).is_ok(), "{good:?}");
        }
        symlink("nowhere", root.path().join(".env")).unwrap();
        symlink(".env", root.path().join("plain")).unwrap();
        let names = resolve(root.path(), "plain", None).unwrap().remove(0);
        assert!(names.contains(&root.path().join(".env")), "{names:?}");
    }
}
