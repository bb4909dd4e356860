use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ringfence_policy::{Glob, Layer, Origin, Sourced};
use tempfile::TempDir;

use super::super::context::{Context, ContextError, make};
use crate::state::StateFolder;

struct Project {
    home: TempDir,
    state: StateFolder,
}

impl Project {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let project = Self { home, state };
        fs::create_dir_all(project.folder()).unwrap();
        project.write("app/Dockerfile", "FROM rf-base:1\nCOPY . /app\n");
        project
    }

    fn workspace(&self) -> PathBuf {
        self.home.path().join("workspace")
    }

    fn folder(&self) -> PathBuf {
        self.workspace().join("app")
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn context(&self, deny: &[&str]) -> Result<Context, ContextError> {
        let sourced = |text: &&str| Sourced {
            value: text.parse::<Glob>().unwrap(),
            origin: Origin { layer: Layer::Project, place: None },
        };
        let deny: Vec<Sourced<Glob>> = deny.iter().map(sourced).collect();
        make(&self.state, &self.workspace(), Path::new("app"), &deny)
    }
}

/// The members of an archive, with what is in them or where they lead.
fn members(context: &Context) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(fs::File::open(&context.archive).unwrap());
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        assert!(path.is_relative() && !path.to_string_lossy().contains(".."), "{path:?}");
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        assert_eq!(entry.header().mtime().unwrap(), 0);
        let mut content = String::new();
        match entry.link_name().unwrap() {
            Some(target) => content = format!("-> {}", target.display()),
            None => drop(std::io::Read::read_to_string(&mut entry, &mut content).unwrap()),
        }
        found.insert(path.to_string_lossy().trim_end_matches('/').to_owned(), content);
    }
    found
}

#[test]
fn a_context_holds_the_folder_and_the_same_folder_gives_the_same_hash() {
    let project = Project::new();
    project.write("app/src/main.py", "print(1)");
    project.write("outside.txt", "not sent");
    symlink("src/main.py", project.folder().join("link")).unwrap();
    let context = project.context(&[]).unwrap();
    let names: Vec<String> = members(&context).into_keys().collect();
    assert_eq!(names, ["Dockerfile", "link", "src", "src/main.py"]);
    assert_eq!(members(&context)["link"], "-> src/main.py");
    assert_eq!(context.instructions, "FROM rf-base:1\nCOPY . /app\n");
    assert_eq!(project.context(&[]).unwrap().hash, context.hash);
    fs::set_permissions(project.folder().join("src/main.py"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(project.context(&[]).unwrap().hash, context.hash);
    project.write("app/src/main.py", "print(2)");
    assert_ne!(project.context(&[]).unwrap().hash, context.hash);
}

#[test]
fn s01_what_the_policy_denies_never_enters_a_context_under_any_name() {
    let project = Project::new();
    project.write("app/.env", "SECRET=1");
    project.write("app/deep/.env", "SECRET=2");
    project.write("app/keys/id", "SECRET=3");
    project.write("app/plain", "sent");
    project.write("private/token", "SECRET=4");
    fs::hard_link(project.folder().join(".env"), project.folder().join("other-name")).unwrap();
    fs::hard_link(project.workspace().join("private/token"), project.folder().join("from-outside")).unwrap();
    let context = project.context(&["**/.env", "app/keys", "private/**"]).unwrap();
    let found = members(&context);
    assert!(found.values().all(|content| !content.contains("SECRET")), "{found:?}");
    assert_eq!(found["plain"], "sent");
    // The twin: without the rules, all of them are there.
    let all = members(&project.context(&[]).unwrap());
    assert_eq!(all.values().filter(|content| content.contains("SECRET")).count(), 5);
}

#[test]
fn what_a_project_leaves_out_is_not_sent_and_its_instructions_always_are() {
    let project = Project::new();
    project.write("app/.dockerignore", "*\n!src\nsrc/*.log\n");
    project.write("app/src/a.py", "a");
    project.write("app/src/a.log", "a");
    project.write("app/big", "b");
    let found = members(&project.context(&[]).unwrap());
    assert!(found.contains_key("Dockerfile") && found.contains_key("src/a.py"));
    assert!(!found.contains_key("big") && !found.contains_key("src/a.log"), "{found:?}");
    project.write("app/.dockerignore", "a[b]\n");
    assert!(matches!(project.context(&[]), Err(ContextError::Ignored(_))));
}

#[test]
fn f01_a_link_that_leads_out_of_a_context_is_refused_and_one_within_is_sent() {
    for (target, leads_out) in
        [("/etc/passwd", true), ("../../x", true), ("../outside", true), ("a/../../x", true), ("a/../b", false)]
    {
        let project = Project::new();
        symlink(target, project.folder().join("link")).unwrap();
        let made = project.context(&[]);
        assert_eq!(matches!(made, Err(ContextError::LinkOut(_))), leads_out, "{target}: {made:?}");
    }
}

#[test]
fn f02_the_folder_itself_is_found_through_no_link_and_not_above_the_workspace() {
    let project = Project::new();
    symlink(project.folder(), project.workspace().join("by-link")).unwrap();
    for folder in ["by-link", "..", "../workspace/app", "/etc"] {
        let made = make(&project.state, &project.workspace(), Path::new(folder), &[]);
        assert!(matches!(made, Err(ContextError::Outside(_))), "{folder}: {made:?}");
    }
    assert!(make(&project.state, &project.workspace(), Path::new("./app"), &[]).is_ok());
}

#[test]
fn a_folder_without_instructions_or_with_denied_ones_is_refused() {
    let project = Project::new();
    assert!(matches!(project.context(&["**/Dockerfile"]), Err(ContextError::NoInstructions(_))));
    fs::remove_file(project.folder().join("Dockerfile")).unwrap();
    assert!(matches!(project.context(&[]), Err(ContextError::NoInstructions(_))));
    symlink("/etc/hostname", project.folder().join("Dockerfile")).unwrap();
    assert!(project.context(&[]).is_err());
}

#[test]
fn a_context_that_is_too_large_is_refused_and_leaves_nothing() {
    let project = Project::new();
    let file = fs::File::create(project.folder().join("big")).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    assert!(matches!(project.context(&[]), Err(ContextError::Copy(_))));
    let left = fs::read_dir(project.state.path().join("scratch")).unwrap().count();
    assert_eq!(left, 0);
    project.write("app/.dockerignore", "big\n");
    assert!(project.context(&[]).is_ok());
}
