use std::fs;
use std::os::unix::fs::symlink;

use ringfence_policy::{Layer, LayerInput, Verdict, resolve};
use tempfile::TempDir;

use super::*;
use crate::analysis::surroundings;
use crate::explain::request::{Foreseen, foresee};
use crate::{Language, Request, Work};

/// A workspace with links, and a home with keys beside it.
struct Ground {
    folder: TempDir,
    policy: ResolvedPolicy,
}

impl Ground {
    fn new() -> Self {
        Self::with_policy(|_| String::new())
    }

    fn with_policy(text: impl Fn(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for made in ["project/src", "home/.ssh", "home/notes", "deps"] {
            fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        for made in ["project/plain", "project/src/a.txt", "home/.ssh/id_rsa", "home/.netrc", "home/notes/a"] {
            fs::write(folder.path().join(made), "x").unwrap();
        }
        let text = format!("version: 1\n{}\n", text(folder.path()));
        let file = ringfence_policy::parse("p.yaml", &text).unwrap();
        let policy = resolve(&[LayerInput { layer: Layer::User, file }], &[]).unwrap();
        Self { folder, policy }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a link of the workspace. `~` in its target is the home.
    fn link(&self, name: &str, target: &str) {
        let home = self.path("home").to_string_lossy().into_owned();
        symlink(target.replace('~', &home), self.path("project").join(name)).unwrap();
    }

    fn foresee(&self, work: Work) -> Foreseen {
        let workspace = self.path("project");
        let around = surroundings(&Request::new(work.clone()), &workspace, Some(&self.path("home")));
        foresee(&work, &self.policy, &around, &workspace)
    }

    #[track_caller]
    fn check(&self, line: &str, verdict: Verdict) {
        let foreseen = self.foresee(Work::Shell(line.to_owned()));
        assert_eq!(foreseen.verdict, verdict, "{line}: {:#?}", foreseen.findings);
    }

    #[track_caller]
    fn check_code(&self, language: Language, source: &str, verdict: Verdict) {
        let foreseen = self.foresee(Work::Code { language, source: source.into(), interpreter: None, name: None });
        assert_eq!(foreseen.verdict, verdict, "{source}: {:#?}", foreseen.findings);
    }
}

#[test]
fn a_link_in_the_workspace_is_judged_by_where_it_leads() {
    let ground = Ground::new();
    ground.link("notes", "~/.ssh/id_rsa");
    ground.link("shadow-of", "/etc/shadow");
    let outside = ground.path("project/notes");
    for line in
        ["cat notes", "head -1 ./notes", "cat < notes", "cat src/../notes", "cat /workspace/notes", "cat shadow-of"]
    {
        ground.check(line, Verdict::Deny);
    }
    ground.check(&format!("cat {}", outside.display()), Verdict::Deny);
    for line in
        ["cat plain", "head -1 ./plain", "cat < plain", "cat src/../plain", "cat /workspace/plain", "cat missing"]
    {
        ground.check(line, Verdict::Allow);
    }
    let python = |name| format!("print(open('{name}').read())");
    ground.check_code(Language::Python, &python("notes"), Verdict::Deny);
    ground.check_code(Language::Python, &python("plain"), Verdict::Allow);
    let javascript = |name| format!("console.log(require('fs').readFileSync('{name}', 'utf8'))");
    ground.check_code(Language::Javascript, &javascript("notes"), Verdict::Deny);
    ground.check_code(Language::Javascript, &javascript("plain"), Verdict::Allow);
}

#[test]
fn links_to_links_and_folders_that_are_links_are_gone_through_as_the_kernel_does() {
    let ground = Ground::new();
    ground.link("last", "~/.ssh/id_rsa");
    ground.link("src/middle", "../last");
    ground.link("first", "src/middle");
    ground.link("keys", "~/.ssh");
    ground.link("src/up", "..");
    ground.link("around", "/proc/self/root~/.ssh/id_rsa");
    for line in [
        "cat first",
        "cat src/middle",
        "cat keys/id_rsa",
        "cat src/up/keys/id_rsa",
        "cd keys && cat id_rsa",
        "cat /proc/self/cwd/first",
        "cat around",
    ] {
        ground.check(line, Verdict::Deny);
    }
    // One step back from the folder that the link leads to, and not from the link: the words alone say a file of the project.
    ground.check("cat keys/../.netrc", Verdict::Deny);
    ground.check("cat src/../.netrc", Verdict::Ask);
    ground.check("cat src/up/plain", Verdict::Allow);
}

#[test]
fn a_loop_leads_nobody_knows_where() {
    let ground = Ground::new();
    ground.link("loop", "loop");
    ground.link("one", "two");
    ground.link("two", "one");
    for index in 0..=MOST_LINKS {
        ground.link(&format!("l{index}"), &format!("l{}", index + 1));
    }
    fs::write(ground.path("project").join(format!("l{}", MOST_LINKS + 1)), "x").unwrap();
    for line in ["cat loop", "cat one", "cat loop/x", "cat l0"] {
        ground.check(line, Verdict::Ask);
    }
    ground.check("cat l1", Verdict::Allow);
    ground.check("rm loop one two", Verdict::Allow);
}

#[test]
fn f19_a_link_to_what_is_not_there_yet_is_judged_by_its_name_and_asked_about_outside() {
    let ground = Ground::new();
    ground.link("key", "~/.ssh/id_later");
    ground.link("later", "~/later");
    ground.link("built", "src/built.txt");
    ground.check("cat key", Verdict::Deny);
    ground.check("cat later", Verdict::Ask);
    ground.check("cat built", Verdict::Allow);
    fs::write(ground.path("home/later"), "x").unwrap();
    ground.check("cat later", Verdict::Allow);
}

#[test]
fn writing_through_a_link_is_writing_there_and_removing_it_is_not() {
    let ground = Ground::new();
    ground.link("settings", "/etc/hosts");
    ground.link("profile", "~/.bashrc");
    ground.link("everything", "~");
    fs::write(ground.path("home/.bashrc"), "").unwrap();
    for line in ["echo x > settings", "echo x >> settings", "cp plain settings", "truncate -s 0 settings"] {
        ground.check(line, Verdict::Deny);
    }
    let written = ground.foresee(Work::Shell("echo x >> profile".to_owned()));
    let plain = ground.foresee(Work::Shell("echo x >> ~/.bashrc".to_owned()));
    assert_eq!((written.verdict, plain.verdict), (plain.verdict, written.verdict));
    assert_ne!(written.verdict, Verdict::Allow);
    for line in ["rm settings", "mv settings old", "rm -rf everything", "echo x > plain", "cp plain other"] {
        ground.check(line, Verdict::Allow);
    }
    // Behind a slash it is the folder.
    ground.check("rm -rf everything/", Verdict::Deny);
    ground.check("rm -rf everything/*", Verdict::Deny);
}

#[test]
fn links_within_the_workspace_and_to_the_system_alarm_nobody() {
    let ground = Ground::new();
    fs::create_dir_all(ground.path("project/releases/1")).unwrap();
    fs::write(ground.path("project/releases/1/app"), "x").unwrap();
    ground.link("current", "releases/1");
    ground.link("python", "/usr/bin/python3");
    ground.link("data", "~/notes");
    for line in
        ["cat current/app", "ls current", "cp current/app plain", "file python", "head data/a", "rm -rf current"]
    {
        let foreseen = ground.foresee(Work::Shell(line.to_owned()));
        assert_eq!(
            (foreseen.verdict, foreseen.findings.len()),
            (Verdict::Allow, 0),
            "{line}: {:#?}",
            foreseen.findings
        );
    }
    ground.check("cat /etc/os-release /usr/bin/env > out; echo x > /dev/stdout", Verdict::Allow);
}

#[test]
fn a_relative_link_out_of_the_workspace_is_judged_by_where_it_leads_with_and_without_a_wall() {
    let ground = Ground::new();
    ground.link("beside", "../home/.ssh/id_rsa");
    ground.link("above", "../etc/shadow");
    ground.link("notes", "../home/notes");
    let told = ground.foresee(Work::Shell("cat beside".to_owned()));
    let home = ground.path("home/.ssh/id_rsa");
    assert!(told.findings.iter().any(|it| it.subject.contains(&*home.to_string_lossy())), "{:#?}", told.findings);
    ground.check("cat beside", Verdict::Deny);
    ground.check("cat above", Verdict::Deny);
    let told = ground.foresee(Work::Shell("cat notes/a plain".to_owned()));
    assert_eq!((told.verdict, told.findings.len()), (Verdict::Allow, 0), "{:#?}", told.findings);
}

#[test]
fn a_pattern_means_the_links_among_its_names() {
    let ground = Ground::new();
    for line in ["cat *", "cat n*", "cat n[o]tes", "cat */id_rsa", "cat src/*.txt"] {
        let before = ground.foresee(Work::Shell(line.to_owned())).verdict;
        assert_ne!(before, Verdict::Deny, "{line}");
    }
    ground.link("notes", "~/.ssh/id_rsa");
    ground.link("keys", "~/.ssh");
    ground.link("src/b.txt", "../notes");
    for line in ["cat *", "cat n*", "cat n[o]tes", "cat */id_rsa", "cat src/*.txt"] {
        ground.check(line, Verdict::Deny);
    }
    ground.check("cat p*", Verdict::Allow);
    // A name with the letters of a pattern is a name, too.
    ground.link("[x]", "~/.ssh/id_rsa");
    ground.check("cat '[x]'", Verdict::Deny);
}

#[test]
fn a_pipe_holds_nobody_up_and_a_mount_is_looked_into_by_its_name_inside() {
    let mounts = |folder: &Path| format!("fs: {{ mounts: [{{ host: {}/deps, at: /deps }}] }}", folder.display());
    let ground = Ground::with_policy(mounts);
    let pipe = ground.path("project/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    ground.link("to-pipe", "pipe");
    ground.check("cat pipe to-pipe", Verdict::Allow);
    symlink(ground.path("home/.ssh/id_rsa"), ground.path("deps/notes")).unwrap();
    fs::write(ground.path("deps/plain"), "x").unwrap();
    ground.check("cat /deps/notes", Verdict::Deny);
    ground.check("cat /deps/plain", Verdict::Allow);
}

#[test]
fn more_than_is_looked_at_is_denied() {
    let ground = Ground::new();
    ground.link("notes", "plain");
    let around = surroundings(&Request::new(Work::Place), &ground.path("project"), None);
    let mut looking = Looking::new(&around, &ground.path("project"), &ground.policy);
    assert_eq!(looking.look("/workspace/notes", Last::Followed), [Leads::To("/workspace/plain".to_owned())]);
    assert_eq!(looking.look("/workspace/plain", Last::Followed), []);
    looking.looks = MOST_LOOKS + 1;
    assert_eq!(looking.look("/workspace/./notes", Last::Followed), [Leads::TooMuch]);
    looking.looks = 0;
    looking.until = Instant::now();
    assert_eq!(looking.look("/workspace/src/../notes", Last::Followed), [Leads::TooMuch]);
}

#[test]
fn a_command_that_reads_through_a_link_still_only_reads() {
    let ground = Ground::with_policy(|_| "commands:\n  - { ask: [cat], reading: allow, matches: [cat x] }".to_owned());
    ground.link("own", "plain");
    ground.link("notes", "~/.ssh/id_rsa");
    ground.link("loop", "loop");
    ground.check("cat own", Verdict::Allow);
    ground.check("cat notes", Verdict::Deny);
    ground.check("cat loop", Verdict::Ask);
}
