//! Denied files that come into a folder of the host after a wall was raised that shows it.
//!
//! What is denied is taken away when a wall is raised. The folder below stays the host's own, and what comes into it
//! later is seen inside. So it is looked at once more: before a program is started behind a wall that stands already, and
//! when one has ended. Only the host's side is looked at, never what a program sees or made: nothing behind the wall has a
//! part in it, except through what it may write of the host's own. What came and went between two looks is not seen.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ringfence_policy::{Glob, Mount, ResolvedPolicy, Sourced, WorkspaceSource};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::deny::{self, Ground, Memory, Mounted, WalkError};
use super::pace::Pace;
use super::pinned::Pinned;
use crate::event::Violation;
use crate::refusal::Refusal;
use crate::state::StateFolder;

/// How long a look before a start may take.
const BEFORE: Duration = Duration::from_secs(10);
/// Likewise at an end, for which somebody waits.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// What is remembered is read in one go. A larger memory costs more than it saves.
const MOST_REMEMBERED: u64 = 8 * 1024 * 1024;
/// A host at work removes folders while they are looked at. Then it is tried again.
const TRIES: usize = 3;
/// So many are named.
const NAMED: usize = 16;
/// Letters of a name that are told.
const LETTERS: usize = 256;

/// How what comes later is kept from programs, in a receipt.
pub(in crate::backend) const LATER_ONES_ARE_TOLD: &str =
    "files that matched at the start are absent; later ones are told";
/// Likewise where the wall stands for many programs.
pub(in crate::backend) const LATER_ONES_STOP: &str = "files that matched when the session was opened are absent; where \
    one came since, nothing is started, and where one comes later, it is told";

/// Likewise where nothing of the host's own stays live.
const LATER_ONES_ARE_UNSEEN: &str =
    "a copy, made at the start without files that match; what the host makes later is not in it";

/// How what comes later is kept from programs under `policy`.
pub(in crate::backend) fn later_ones(policy: &ResolvedPolicy) -> &'static str {
    let shows_host = |mount: &Sourced<Mount>| matches!(mount.value, Mount::Host { .. });
    match policy.fs.source.value {
        WorkspaceSource::Copy if !policy.fs.mounts.iter().any(shows_host) => LATER_ONES_ARE_UNSEEN,
        WorkspaceSource::Copy | WorkspaceSource::Live => LATER_ONES_ARE_TOLD,
    }
}

/// The stable names of the rules.
const CAME_LATER: &str = "fs.deny.came-later";
const NOT_LOOKED_AT: &str = "fs.deny.not-looked-at";

/// A folder of the host that a wall shows, and that stays the host's own.
#[derive(Debug)]
pub(in crate::backend) struct LiveFolder {
    path: PathBuf,
    root: OwnedFd,
    /// Where it is inside, when it is not the workspace.
    at: Option<PathBuf>,
    /// What was taken away of it and has been there since, sorted.
    absent: Mutex<Vec<PathBuf>>,
    mounted: Mounted,
}

impl LiveFolder {
    /// A folder that is held, without what is `absent` of it, below a layer. It is called by its place inside, or is the
    /// workspace, which nothing was mounted in when the wall was raised.
    pub(super) fn below_a_layer(folder: &Pinned, at: Option<&Path>, mut absent: Vec<PathBuf>) -> io::Result<Self> {
        absent.sort();
        let (path, root) = (folder.path().to_owned(), folder.opened().try_clone()?);
        let mounted = if at.is_some() { Mounted::Entered } else { Mounted::Refused };
        Ok(Self { path, root, at: at.map(Path::to_owned), absent: Mutex::new(absent), mounted })
    }

    /// The workspace at `path`, held by `root`, as the host itself sees it.
    pub(in crate::backend) fn as_it_is(path: &Path, root: OwnedFd, absent: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut absent: Vec<PathBuf> = absent.into_iter().collect();
        absent.sort();
        Self { path: path.to_owned(), root, at: None, absent: Mutex::new(absent), mounted: Mounted::Entered }
    }

    /// What was taken away and is still there. While the host has no such file, a program that makes and removes one of that name takes
    /// the mark away with it, and whatever comes there next is seen: what is gone now is one that comes then.
    fn still_absent(&self) -> Vec<PathBuf> {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What cannot be seen to be there counts as gone.
        absent.retain(|path| rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve).is_ok());
        absent.clone()
    }

    /// A path in it, as a message has it.
    fn name(&self, path: &Path) -> String {
        let whole = self.at.as_ref().map_or_else(|| path.to_owned(), |at| at.join(path));
        // Whoever makes a name must not write lines of ours with it.
        let shown: String = whole.to_string_lossy().escape_debug().take(LETTERS).collect();
        format!("`{shown}`")
    }
}

/// All such folders behind one wall, with the rules that hold in them.
#[derive(Debug)]
pub struct Live {
    folders: Vec<LiveFolder>,
    deny: Vec<Sourced<Glob>>,
    state: StateFolder,
}

/// What came.
#[derive(Debug, Default)]
struct Came {
    named: Vec<String>,
    more: usize,
    /// The rule that names the first of it; another name of a denied file has none.
    rule: Option<Sourced<Glob>>,
}

/// Why it is not known.
#[derive(Debug, PartialEq, Eq)]
struct Unknown(String);

impl Live {
    /// Nothing where nothing is denied, or nothing stays live.
    pub(in crate::backend) fn new(
        folders: Vec<LiveFolder>,
        deny: &[Sourced<Glob>],
        state: &StateFolder,
    ) -> Option<Self> {
        let needed = !folders.is_empty() && !deny.is_empty();
        needed.then(|| Self { folders, deny: deny.to_vec(), state: state.clone() })
    }

    /// Why nothing more may be started behind the wall, if so: something denied came, or it is not known. `subject` is what
    /// was to be started.
    pub(crate) async fn refusal(&self, subject: &str) -> Option<Refusal> {
        match self.look(BEFORE).await {
            Ok(came) if came.named.is_empty() => None,
            Ok(came) => {
                let reason = format!("came since the sandbox was made, and can be read in it: {}", came.list());
                let subject = format!("`{subject}` was not started in a sandbox that is older than a denied file");
                let refusal = Refusal::new(CAME_LATER, subject, reason)
                    .hint(
                        "start a new session, in which it is absent (`ringfence session stop`, then `ringfence session \
                         start`), or remove the file from the host's folder",
                    )
                    .do_not_retry(
                        "Nothing can be started in this sandbox any more. Close it and open a new one, or ask the person \
                         you work for to remove the file. Do not look for it.",
                    );
                Some(match &came.rule {
                    Some(rule) => refusal.at(&rule.origin),
                    None => refusal,
                })
            }
            Err(Unknown(why)) => Some(
                Refusal::new(
                    NOT_LOOKED_AT,
                    format!("`{subject}` was not started"),
                    format!("whether a denied file came since the sandbox was made could not be found out: {why}"),
                )
                .hint("try again; if it stays so, start a new session in a smaller folder with --workspace")
                .instead("Try once more. If it is refused again, close this sandbox and open a new one."),
            ),
        }
    }

    /// What has to be told of a program that ended: something denied came that it may have read, or it is not known.
    pub(crate) async fn violation(&self) -> Option<Violation> {
        let (rule, message) = match self.look(AFTERWARDS).await {
            Ok(came) if came.named.is_empty() => return None,
            Ok(came) => {
                let list = came.list();
                (CAME_LATER, format!("what the policy denies came after the start, and may have been read: {list}"))
            }
            Err(Unknown(why)) => (
                NOT_LOOKED_AT,
                format!("whether something that the policy denies came after the start is not known: {why}"),
            ),
        };
        Some(Violation { rule: rule.to_owned(), message })
    }

    /// What came by now.
    async fn look(&self, limit: Duration) -> Result<Came, Unknown> {
        let until = Instant::now() + limit;
        let mut came = Came::default();
        for folder in &self.folders {
            let absent = folder.still_absent();
            // Then what is there now, or in it, is not seen.
            let is_absent = |path: &Path| {
                path.ancestors().any(|above| absent.binary_search_by(|known| known.as_path().cmp(above)).is_ok())
            };
            for path in self.denied_in(folder, &absent, until, limit).await? {
                if is_absent(&path) {
                    continue;
                }
                if came.named.len() == NAMED {
                    came.more += 1;
                    continue;
                }
                let is_named_by =
                    |rule: &&Sourced<Glob>| rule.value.matches(&path) || rule.value.matches(path.join("x"));
                came.rule = came.rule.or_else(|| self.deny.iter().find(is_named_by).cloned());
                came.named.push(folder.name(&path));
            }
        }
        Ok(came)
    }

    /// What is denied in a folder now.
    async fn denied_in(
        &self,
        folder: &LiveFolder,
        hidden: &[PathBuf],
        until: Instant,
        limit: Duration,
    ) -> Result<Vec<PathBuf>, Unknown> {
        let (path, root) = (&folder.path, &folder.root);
        let ground = Ground { path, root, mounted: folder.mounted, hidden };
        let memory = Memory { state: &self.state, most_bytes: MOST_REMEMBERED };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let mut pace = Pace::within(until.saturating_duration_since(Instant::now()));
            let walked = deny::walk(ground, &self.deny, Some(memory), SystemTime::now(), &mut pace).await;
            let why = match walked {
                Ok(found) => return Ok(found),
                Err(WalkError::Folder(_, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) if tries > 0 => continue,
                Err(WalkError::TooMany(what)) => format!("the folder has {what}"),
                Err(WalkError::TooLong) => format!("it took longer than {} seconds", limit.as_secs()),
                Err(WalkError::Folder(path, Errno::XDEV)) => {
                    format!("something was mounted at {}", folder.name(&path))
                }
                Err(WalkError::Folder(path, errno)) => {
                    format!("{} could not be read: {}", folder.name(&path), io::Error::from(errno))
                }
            };
            return Err(Unknown(why));
        }
    }
}

impl Came {
    fn list(&self) -> String {
        let mut list = self.named.join(", ");
        if self.more > 0 {
            list.push_str(&format!(" and {} more", self.more));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Layer, Origin};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    /// A workspace with `.env` taken away, and two folders.
    struct Scene {
        _home: tempfile::TempDir,
        workspace: PathBuf,
        live: Live,
    }

    fn rules() -> Vec<Sourced<Glob>> {
        let rule = |pattern: &str| Sourced {
            value: pattern.parse().unwrap(),
            origin: Origin { layer: Layer::Project, place: None },
        };
        vec![rule("**/.env"), rule("**/.ssh/**")]
    }

    fn scene(at: Option<&str>) -> Scene {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().canonicalize().unwrap().join("workspace");
        fs::create_dir_all(workspace.join("one")).unwrap();
        fs::create_dir_all(workspace.join("two")).unwrap();
        fs::write(workspace.join(".env"), "").unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let (held, deny) = (Pinned::open(&workspace).unwrap(), rules());
        let absent = deny::find(&workspace, &deny, None).unwrap();
        assert_eq!(absent, [Path::new(".env")]);
        let folder = LiveFolder::below_a_layer(&held, at.map(Path::new), absent).unwrap();
        Scene { _home: home, workspace, live: Live::new(vec![folder], &deny, &state).unwrap() }
    }

    async fn named(scene: &Scene) -> Vec<String> {
        let mut named = scene.live.look(LONG).await.unwrap().named;
        named.sort();
        named
    }

    #[tokio::test]
    async fn s02_what_came_is_found_and_what_was_taken_away_is_not() {
        let scene = scene(None);
        let path = |name: &str| scene.workspace.join(name);
        assert_eq!(named(&scene).await, [] as [&str; 0]);
        fs::write(path(".env"), "another").unwrap();
        fs::write(path("one/plain"), "").unwrap();
        assert_eq!(named(&scene).await, [] as [&str; 0]);
        fs::write(path("one/.env"), "").unwrap();
        fs::create_dir(path("two/.ssh")).unwrap();
        assert_eq!(named(&scene).await, ["`one/.env`", "`two/.ssh`"]);
        fs::remove_file(path("one/.env")).unwrap();
        fs::remove_dir(path("two/.ssh")).unwrap();
        assert_eq!(named(&scene).await, [] as [&str; 0]);
        fs::hard_link(path(".env"), path("two/other")).unwrap();
        assert_eq!(named(&scene).await, ["`two/other`"]);
        fs::remove_file(path("two/other")).unwrap();
        // A folder at the place of a file that was taken away is taken away as well.
        fs::remove_file(path(".env")).unwrap();
        fs::create_dir_all(path(".env/inner")).unwrap();
        fs::write(path(".env/inner/.env"), "").unwrap();
        assert_eq!(named(&scene).await, [] as [&str; 0]);
    }

    #[tokio::test]
    async fn a_folder_that_was_taken_away_without_a_rule_is_not_looked_into() {
        let mut scene = scene(None);
        let path = |name: &str| scene.workspace.join(name);
        fs::create_dir_all(path("state/runs")).unwrap();
        fs::write(path("state/runs/.env"), "").unwrap();
        // Another name of what was taken away, where nobody sees it.
        fs::hard_link(path(".env"), path("state/other")).unwrap();
        assert_eq!(named(&scene).await.len(), 2, "the twin");
        scene.live.folders[0].absent.get_mut().unwrap().push("state".into());
        assert_eq!(named(&scene).await, [] as [&str; 0]);
    }

    #[tokio::test]
    async fn f01_no_link_is_followed_out_of_the_folder_that_is_held() {
        let scene = scene(None);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join(".env"), "").unwrap();
        fs::remove_dir(scene.workspace.join("one")).unwrap();
        symlink(outside.path(), scene.workspace.join("one")).unwrap();
        assert_eq!(named(&scene).await, [] as [&str; 0]);
        // The folder that is shown is the one that is looked at, also when another has its name.
        let moved = scene.workspace.with_file_name("moved");
        fs::rename(&scene.workspace, &moved).unwrap();
        fs::create_dir(&scene.workspace).unwrap();
        assert_eq!(named(&scene).await, [] as [&str; 0]);
        fs::write(moved.join("two/.env"), "").unwrap();
        assert_eq!(named(&scene).await, ["`two/.env`"]);
    }

    #[tokio::test]
    async fn names_are_escaped_counted_and_those_of_a_mount_begin_inside() {
        let scene = scene(Some("/deps"));
        for number in 0..NAMED + 4 {
            fs::create_dir(scene.workspace.join(format!("{number:02}\n\u{202e}"))).unwrap();
            fs::write(scene.workspace.join(format!("{number:02}\n\u{202e}/.env")), "secret").unwrap();
        }
        let violation = scene.live.violation().await.unwrap();
        assert_eq!(violation.rule, CAME_LATER);
        assert!(violation.message.contains("`/deps/0"), "{violation:?}");
        assert!(violation.message.contains("\\n\\u{202e}/.env`") && violation.message.ends_with("and 4 more"));
        assert!(!violation.message.contains(['\n', '\u{202e}']), "{violation:?}");
        let refusal = scene.live.refusal("make").await.unwrap();
        assert_eq!((refusal.rule.as_str(), refusal.retryable), (CAME_LATER, false));
        assert!(refusal.subject.starts_with("`make` was not started"));
        assert!(!format!("{refusal:?}{violation:?}").contains("secret"));
    }

    #[tokio::test]
    async fn what_could_not_be_looked_at_is_refused_and_told() {
        let scene = scene(None);
        assert!(scene.live.refusal("make").await.is_none() && scene.live.violation().await.is_none(), "the twin");
        assert_eq!(
            scene.live.look(Duration::ZERO).await.unwrap_err(),
            Unknown("it took longer than 0 seconds".to_owned())
        );
        // Longer than the kernel takes a path.
        let mut held = Pinned::open(&scene.workspace.join("two")).unwrap().into_opened();
        for _ in 0..30 {
            let name = "x".repeat(200);
            rustix::fs::mkdirat(&held, name.as_str(), rustix::fs::Mode::RWXU).unwrap();
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
            held = rustix::fs::openat(&held, name.as_str(), flags, rustix::fs::Mode::empty()).unwrap();
        }
        let refusal = scene.live.refusal("make").await.unwrap();
        assert_eq!((refusal.rule.as_str(), refusal.subject.as_str()), (NOT_LOOKED_AT, "`make` was not started"));
        let violation = scene.live.violation().await.unwrap();
        assert!(violation.rule == NOT_LOOKED_AT && violation.message.contains("could not be read"), "{violation:?}");
    }

    #[tokio::test]
    async fn r09_a_look_at_many_names_lets_others_on_the_same_thread_work() {
        let scene = scene(None);
        for number in 0..20_000 {
            fs::File::create(scene.workspace.join(format!("two/{number}"))).unwrap();
        }
        let turns = AtomicU32::new(0);
        let other = async {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            came = scene.live.look(LONG) => assert_eq!(came.unwrap().named, [] as [&str; 0]),
            () = other => {}
        }
        assert!(turns.load(Ordering::Relaxed) > 2, "{turns:?}");
    }

    #[test]
    fn where_nothing_is_denied_or_stays_live_nothing_is_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let folder = || {
            let folder = Pinned::open(&home.path().canonicalize().unwrap()).unwrap();
            LiveFolder::below_a_layer(&folder, None, Vec::new()).unwrap()
        };
        assert!(Live::new(vec![folder()], &[], &state).is_none());
        assert!(Live::new(Vec::new(), &rules(), &state).is_none());
        assert!(Live::new(vec![folder()], &rules(), &state).is_some());
    }
}
