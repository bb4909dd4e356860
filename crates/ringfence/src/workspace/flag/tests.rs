//! Sets made by hand, as a hostile program would.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::*;
use crate::run_id::RunId;
use crate::workspace::change::{Moment, OtherKind, Stamp, Was};

/// A set, and what its files hold.
#[derive(Default)]
struct Case {
    changes: Vec<Change>,
    contents: HashMap<ObjectId, Vec<u8>>,
    deny: Vec<String>,
    protect: Vec<String>,
}

const MOMENT: Moment = Moment { seconds: 1, nanoseconds: 0 };

fn was(kind: WasKind) -> Before {
    let stamp = Stamp { device: 1, inode: 1, size: 1, modified: MOMENT, changed: MOMENT };
    Before::Was(Was { kind, mode: 0o644, stamp })
}

impl Case {
    fn file(&mut self, text: &str) -> Node {
        let id = ObjectId::of(text.as_bytes());
        self.contents.insert(id, text.as_bytes().to_owned());
        Node::File { content: id, size: text.len() as u64, mode: 0o644, modified: MOMENT }
    }

    fn with(mut self, place: impl Into<std::path::PathBuf>, before: Before, after: Option<Node>) -> Self {
        self.changes.push(Change { place: Place::new(place).unwrap(), before, after });
        self
    }

    fn adds(mut self, place: &str, text: &str) -> Self {
        let node = self.file(text);
        self.with(place, Before::Nothing, Some(node))
    }

    fn links(self, place: &str, target: &str) -> Self {
        self.with(place, Before::Nothing, Some(Node::Link { target: target.into() }))
    }

    fn set(&self) -> ChangeSet {
        ChangeSet {
            run_id: RunId::generate().unwrap(),
            workspace: "/w".into(),
            workspace_is: (1, 1),
            subject: String::new(),
            began: MOMENT,
            ended: MOMENT,
            deny: self.deny.clone(),
            protect: self.protect.clone(),
            own: Vec::new(),
            size: u64::MAX,
            changes: self.changes.clone(),
        }
    }

    fn judge(&self) -> Vec<Judgement> {
        judge_by(&self.set(), &|id| self.contents.get(&id).cloned())
    }

    /// The rules by which each change is flagged.
    fn rules(&self) -> Vec<Vec<&'static str>> {
        let rules = |judgement: &Judgement| match judgement {
            Judgement::Free => Vec::new(),
            Judgement::Flagged(flags) => flags.iter().map(|flag| flag.rule).collect(),
            Judgement::Denied(_) => vec!["denied"],
        };
        self.judge().iter().map(rules).collect()
    }
}

#[track_caller]
fn check(place: &str, text: &str, expected: &[&str]) {
    assert_eq!(Case::default().adds(place, text).rules(), [expected], "{place}");
}

#[test]
fn f07_every_way_to_another_repository_is_flagged() {
    check(".git", "gitdir: /tmp/e\n", &["git.file"]);
    check("sub/.git", "gitdir: /tmp/e\n", &["git.file"]);
    check(".git/commondir", "/tmp/e\n", &["git.config"]);
    check(".git/config.worktree", "[core]\n", &["git.config"]);
    check(".git/modules/x/hooks/post-checkout", "#!/bin/sh\n", &["git.parts"]);
    check(".git/worktrees/w/gitdir", "/tmp/e\n", &["git.parts"]);
    check(".git/objects/info/alternates", "/tmp/e\n", &["git.info"]);
    check(".git/something-new", "", &["git.repository"]);
    check(".gitmodules", "[submodule \"x\"]\n", &["git.modules"]);
    check(".gitattributes", "* filter=evil\n", &["git.attributes"]);
    let link = Case::default().links(".git", "elsewhere");
    assert!(link.rules()[0].contains(&"git.file"), "{:?}", link.rules());
    let twin = Case::default().adds(".git/objects/ab/cdef", "x").adds(".git/index", "x").adds(".git/refs/heads/a", "x");
    assert_eq!(twin.rules(), [[""; 0], [], []], "what commits write is data");
    let link = Case::default().links(".git/objects/ab", "../../x");
    assert_eq!(link.rules(), [["git.repository"]], "links are never data");
}

#[test]
fn f08_a_changed_configuration_is_flagged_with_the_keys_that_execute() {
    let mut case = Case::default();
    let old = ObjectId::of(b"[core]\n");
    case.contents.insert(old, b"[core]\n".to_vec());
    let new = case.file("[core]\n\tfsmonitor = touch /tmp/p\n");
    let case = case.with(".git/config", was(WasKind::File(Some(old))), Some(new));
    let Judgement::Flagged(flags) = &case.judge()[0] else { panic!("not flagged") };
    assert_eq!((flags[0].rule, flags[0].detail.as_deref()), ("git.config", Some("keys: core.fsmonitor")));
    assert!(flags[0].protected);
}

#[test]
fn f09_a_bare_repository_is_found_wherever_it_lies() {
    let bare = Case::default()
        .adds("docs/x/HEAD", "ref: refs/heads/main\n")
        .adds("docs/x/config", "[core]\n\tbare = true\n\tfsmonitor = sh\n")
        .adds("docs/x/hooks/anything", "x")
        .adds("docs/x/objects/ab/cd", "x")
        .adds("docs/x/refs/heads/main", "x")
        .adds("docs/y/readme", "x");
    assert_eq!(bare.rules(), [&["git.bare"][..], &["git.bare"], &["git.bare"], &[], &[], &[]]);
    check("x/HEAD", "ref: refs/heads/main\n", &["git.bare"]);
    check("x/config", "[core]\n\tbare = true\n", &["git.bare"]);
    check("x/config", "[Core]HooksPath=.\n", &["git.bare"]);
    check("x/hooks/post-checkout", "sh\n", &["git.hook-script"]);
    check("x/HEAD", "0123456789012345678901234567890123456789 and more\n", &["git.bare"]);
    check("x/config", "[core]\n\tpager = touch x;cat\n", &["git.bare"]);
    check("x/config", "[include]\n\tpath = other\n", &["git.bare"]);
    check("x/HEAD", "the head of a list\n", &[]);
    check("x/config", "port = 80\n", &[]);
}

#[test]
fn f12_names_that_fold_to_a_flagged_one_are_flagged() {
    check(".GIT/hooks/pre-commit", "x", &["git.hooks"]);
    check(".Mcp.json", "{}", &["agent.settings"]);
    check(".git /hooks/x", "x", &["git.hooks"]);
    check(".g\u{200d}it/hooks/x", "x", &["git.hooks"]);
    check("GIT~1/hooks/x", "x", &["name.short"]);
    check("a\\.git\\hooks\\x", "x", &["git.hooks"]);
    check(".envRC", "x", &["environment.direnv"]);
}

#[test]
fn f21_what_the_host_would_execute_is_flagged_at_any_depth() {
    for (place, rule) in [
        (".venv/bin/python", "python.environment"),
        ("web/node_modules/.bin/tsc", "node.commands"),
        ("lib/Makefile", "make.file"),
        ("web/package.json", "node.package"),
        (".vscode/tasks.json", "editor.settings"),
        ("a/b/.idea/workspace.xml", "editor.settings"),
        (".claude/settings.json", "agent.settings"),
        ("docs/AGENTS.md", "agent.instructions"),
        (".envrc", "environment.direnv"),
        ("home/.bashrc", "shell.start"),
        ("crates/x/build.rs", "build.rust"),
        (".github/workflows/ci.yml", "ci.pipeline"),
        ("site/sitecustomize.py", "python.start"),
    ] {
        check(place, "x", &[rule]);
    }
}

#[test]
fn f21_an_agents_work_trees_are_judged_like_the_project_and_its_settings_are_flagged() {
    for (place, rules) in [
        (".claude/worktrees/x/src/main.rs", &[][..]),
        ("sub/.Claude/worktrees/x/README.md", &[]),
        (".claude/worktrees/x/.claude/settings.json", &["agent.settings"]),
        (".claude/worktrees/x/CLAUDE.md", &["agent.instructions"]),
        (".claude/worktrees/x/Makefile", &["make.file"]),
        (".claude/worktrees/x/.git/hooks/pre-commit", &["git.hooks"]),
        (".claude/worktrees/x", &["agent.settings"]),
        (".claude/worktrees", &["agent.settings"]),
        (".claude/commands/x.md", &["agent.settings"]),
        (".claude/skills/.claude/worktrees/x/y", &["agent.settings"]),
        (".git/hooks/.claude/worktrees/x/y", &["git.hooks"]),
    ] {
        check(place, "x", rules);
    }
}

#[test]
fn f21_what_protects_an_agents_settings_leaves_its_work_trees_and_other_patterns_do_not() {
    let mut case = Case { protect: vec!["**/.claude/**".to_owned(), "deploy/**".to_owned()], ..Case::default() };
    for place in ["src/a.rs", "deploy/a", ".claude/settings.json"] {
        case = case.adds(&format!(".claude/worktrees/x/{place}"), "x");
    }
    // A copy within a copy stands for both.
    let nested = Case { protect: case.protect.clone(), ..Case::default() };
    let nested = nested.adds(".claude/worktrees/x/deploy/.claude/worktrees/y/z", "x");
    assert_eq!(nested.rules(), [vec!["policy.protect"]]);

    case = case.with(".claude/worktrees", Before::Nothing, Some(Node::Folder { mode: 0o755 }));
    case = case.with(".claude/worktrees/x", Before::Nothing, Some(Node::Folder { mode: 0o755 }));
    case = case.links(".claude/worktrees/y", "x").adds(".claude/agents/a.md", "x");
    let rules = case.rules();
    let settings = vec!["agent.settings"];
    assert_eq!(rules[..5], [vec![], vec!["policy.protect"], settings.clone(), vec![], vec![]]);
    assert!(rules[5].contains(&"agent.settings"), "{rules:?}");
    assert_eq!(rules[6], settings);
}

#[test]
fn daily_work_is_free() {
    for place in [
        "src/main.rs",
        "src/lib/mod.rs",
        "tests/it.rs",
        "tests/test_app.py",
        "README.md",
        "docs/guide.md",
        "Cargo.lock",
        "package-lock.json",
        "src/index.ts",
        "src/hooks/useState.ts",
        "public/index.html",
        ".gitignore",
        ".env",
        ".editorconfig",
        "go.mod",
        "main.go",
        "data/x.csv",
        "scripts/run.sh",
        "src/config.rs",
        "tsconfig.json",
        "node_modules/left-pad/index.js",
        ".venv/lib/python3.12/site-packages/x/__init__.py",
        "build/out.o",
        "LICENSE",
        "a file with spaces",
        "migrations/0001.sql",
        "src/Dockerfile.md/x",
        ".github/ISSUE_TEMPLATE/bug.md",
    ] {
        check(place, "text\n", &[]);
    }
    let folder = Some(Node::Folder { mode: 0o755 });
    let folders = ["build", "makefile", "src", "config", "head", ".github"];
    let case = folders.iter().fold(Case::default(), |case, place| case.with(*place, Before::Nothing, folder.clone()));
    assert_eq!(case.rules(), vec![Vec::<&str>::new(); folders.len()], "folders with such names");
}

#[test]
fn what_is_removed_is_flagged_where_its_absence_is_obeyed() {
    let gone = |place: &str| Case::default().with(place, was(WasKind::File(None)), None).rules();
    assert_eq!(gone(".git/hooks/pre-commit"), [["git.hooks"]]);
    assert_eq!(gone("AGENTS.md"), [["agent.instructions"]]);
    assert_eq!(gone(".npmrc"), [["node.settings"]]);
    for place in ["Makefile", "package.json", "src/main.rs", ".venv/bin/python"] {
        assert_eq!(gone(place), [[""; 0]], "{place}");
    }
}

#[test]
fn f01_links_that_lead_out_replace_or_stand_for_a_flagged_folder_are_flagged() {
    let rules = |case: Case| case.rules();
    assert_eq!(rules(Case::default().links("a", "/etc/passwd")), [["link.out"]]);
    assert_eq!(rules(Case::default().links("a/b", "../../x")), [["link.out"]]);
    assert_eq!(rules(Case::default().links("a/b", "../x")), [[""; 0]]);
    assert_eq!(rules(Case::default().links("a", "b/x").links("b", "..")), [["link.out"], ["link.out"]]);
    assert_eq!(rules(Case::default().links("a", "a")), [["link.unclear"]]);
    assert_eq!(rules(Case::default().links("a", ".git/hooks")), [["link.protected"]]);
    assert_eq!(
        rules(Case::default().links(".github", "x")),
        [["agent.settings", "agent.instructions", "ci.pipeline", "agent.further"]]
    );
    for before in [WasKind::Folder, WasKind::File(None)] {
        let case = Case::default().with("a", was(before), Some(Node::Link { target: "b".into() }));
        assert_eq!(case.rules(), [["link.replaces"]]);
    }
    let case = Case::default().with("a", was(WasKind::Link("x".into())), Some(Node::Link { target: "b".into() }));
    assert_eq!(case.rules(), [[""; 0]]);
}

#[test]
fn f17_special_bits_and_special_files_are_flagged() {
    let mut case = Case::default();
    let Node::File { content, size, modified, .. } = case.file("x") else { panic!("no file") };
    let file = |mode| Some(Node::File { content, size, mode, modified });
    let case = case
        .with("a", Before::Nothing, file(0o4755))
        .with("b", Before::Nothing, file(0o2755))
        .with("c", Before::Nothing, file(0o755))
        .with("d", Before::Nothing, Some(Node::Other(OtherKind::Device)))
        .with("e", Before::Nothing, Some(Node::Folder { mode: 0o2775 }));
    assert_eq!(case.rules(), [&["mode.setuid"][..], &["mode.setuid"], &[], &["node.special"], &[]]);
}

#[test]
fn f22_denied_places_are_denied_whatever_their_names_hold() {
    let deny = vec!["**/.env".to_owned(), "secrets/**".to_owned(), "*.key".to_owned()];
    let mut case = Case { deny, ..Case::default() };
    let file = case.file("x");
    for name in [
        &b".env"[..],
        b"a/.env",
        b"a/.env/below",
        b"secrets/a\nb",
        b"secrets/\xff\x1b[31m/x",
        b"secrets/[a]\\",
        b"a\xff\n.key",
    ] {
        case = case.with(std::ffi::OsString::from_vec(name.to_vec()), Before::Nothing, Some(file.clone()));
    }
    let case = case.with("secrets", Before::Nothing, Some(Node::Folder { mode: 0o755 }));
    assert!(case.judge().iter().all(|judgement| matches!(judgement, Judgement::Denied(_))), "{:?}", case.judge());
    let mut twin = Case::default().adds(".ENV", "x").adds("env", "x").adds("secret/x", "x");
    twin.deny = vec!["**/.env".to_owned(), "secrets/**".to_owned()];
    assert_eq!(twin.rules(), [&["policy.deny"][..], &[], &[]]);
    let mut unreadable = Case::default().adds("a", "x");
    unreadable.deny = vec!["[".to_owned()];
    assert_eq!(unreadable.judge(), [Judgement::Denied("[".to_owned())], "fails closed");
}

#[test]
fn f04_a_repository_that_is_removed_is_held_back_as_a_whole() {
    let file = || was(WasKind::File(None));
    let removed = Case::default()
        .with("x/.git", was(WasKind::Folder), None)
        .with("x/.git/HEAD", file(), None)
        .with("x/.git/objects", was(WasKind::Folder), None)
        .with("x/.git/objects/ab", file(), None)
        .with("y/.git/objects/ab", file(), None);
    let whole = ["git.repository"].as_slice();
    assert_eq!(removed.rules(), [whole, whole, whole, whole, &[]], "one that only lost an object is tidied up");
}

#[test]
fn what_the_policy_protects_is_flagged_and_protected() {
    let mut case = Case::default().adds("deploy/x", "x").adds("DEPLOY/y", "x").adds("src/x", "x");
    case.protect = vec!["deploy/**".to_owned()];
    assert_eq!(case.rules(), [&["policy.protect"][..], &["policy.protect"], &[]]);
    assert!(protected_by(&Place::new("a/.git/hooks/x").unwrap()).is_some());
    assert!(protected_by(&Place::new("Makefile").unwrap()).is_none(), "flagged, and still a program's to write");
}

#[test]
fn f23_hostile_depth_and_numbers_take_bounded_time() {
    let deny = vec!["**/.env".to_owned(), "a/**/b".to_owned()];
    let mut case = Case { deny, ..Case::default() };
    let file = case.file("x");
    for index in 0..500 {
        let deep = format!("{}{index}", "refs/".repeat(700));
        case = case.with(deep, Before::Nothing, Some(file.clone()));
        case = case.links(&format!("l{index}"), &"refs/".repeat(60));
    }
    let began = std::time::Instant::now();
    assert_eq!(case.judge().len(), 1000);
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

fn any_place() -> impl Strategy<Value = Place> {
    let name = prop_oneof![
        Just(b".git".to_vec()),
        Just(b"HEAD".to_vec()),
        Just(b"config".to_vec()),
        Just(b"hooks".to_vec()),
        Just(b"package.json".to_vec()),
        Just(b"refs".to_vec()),
        Just(b"objects".to_vec()),
        Just(b"a".to_vec()),
        proptest::collection::vec(any::<u8>(), 1..6)
    ];
    proptest::collection::vec(name, 1..5).prop_filter_map("no place", |names| {
        let path = std::ffi::OsString::from_vec(names.join(&b'/'));
        Place::new(path).ok().filter(|place| !place.as_path().as_os_str().as_encoded_bytes().contains(&0))
    })
}

proptest! {
    #[test]
    fn any_set_gets_one_judgement_for_each_change(
        changes in proptest::collection::vec((any_place(), 0u8..4, 0u8..5, proptest::collection::vec(any::<u8>(), 0..40)), 0..12)
    ) {
        let mut case = Case::default();
        for (place, before, after, bytes) in changes {
            let id = ObjectId::of(&bytes);
            case.contents.insert(id, bytes.clone());
            let before = match before {
                0 => Before::Nothing,
                1 => Before::Unknown,
                2 => was(WasKind::Folder),
                _ => was(WasKind::File(Some(id))),
            };
            let after = match after {
                0 => None,
                1 => Some(Node::Folder { mode: 0o7777 }),
                2 => Some(Node::Link { target: std::ffi::OsString::from_vec(bytes) }),
                3 => Some(Node::Other(OtherKind::Pipe)),
                _ => Some(Node::File { content: id, size: 1, mode: 0o644, modified: MOMENT }),
            };
            case = case.with(place.as_path(), before, after);
        }
        let judgements = case.judge();
        prop_assert_eq!(judgements.len(), case.changes.len());
        for (change, judgement) in case.changes.iter().zip(&judgements) {
            if let Some(Node::Other(_)) = change.after {
                prop_assert!(*judgement != Judgement::Free);
            }
            if let Judgement::Flagged(flags) = judgement {
                prop_assert!(!flags.is_empty());
            }
        }
    }
}

#[test]
fn f23_one_content_with_many_names_is_not_read_for_ever() {
    let text = format!("{{\"name\":\"{}\"}}", "x".repeat(900_000));
    let mut case = Case::default();
    let node = case.file(&text);
    for number in 0..300 {
        case = case.with(format!("{number}/package.json"), Before::Nothing, Some(node.clone()));
    }
    let read = Cell::new(0);
    let judged = judge_by(&case.set(), &|id| {
        read.set(read.get() + 1);
        case.contents.get(&id).cloned()
    });
    assert!(read.get() < 100, "it was read {} times", read.get());
    assert!(judged.last() != Some(&Judgement::Free), "what was not read is not free");
}

#[test]
fn an_executable_named_as_a_shell_is_held_back_and_a_text_of_that_name_is_not() {
    let mut case = Case::default();
    let plain = case.file("x");
    let executable = match plain.clone() {
        Node::File { content, size, modified, .. } => Node::File { content, size, mode: 0o755, modified },
        other => other,
    };
    for place in ["bash", "tools/sh", "Pwsh.exe", "cmd.exe"] {
        case = case.with(place, Before::Nothing, Some(executable.clone()));
    }
    assert_eq!(case.rules(), [["shell.named"]; 4]);
    let mut harmless = Case::default();
    let text = harmless.file("x");
    let harmless = harmless
        .with("src/cmd.rs", Before::Nothing, Some(text.clone()))
        .with("sh", Before::Nothing, Some(text))
        .with("cmd", Before::Nothing, Some(Node::Folder { mode: 0o755 }))
        .with("run.sh", Before::Nothing, Some(executable));
    assert!(harmless.rules().iter().all(Vec::is_empty), "{:?}", harmless.rules());
    assert_eq!(Case::default().links("bash", "x").rules(), [["shell.named"]]);
}
