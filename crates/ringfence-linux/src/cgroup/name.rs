//! The names of cgroups: each says which supervisor made it, so that a later one can tell whether it is left over.

use std::fmt;
use std::io;
use std::str::FromStr;

const PREFIX: &str = "rf";
/// Longer names are nothing that we made.
const LONGEST: usize = 200;

/// A supervising process, told apart from every other that had or will have its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Supervisor {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// The pid namespace that the two numbers belong to.
    pub namespace: u64,
}

impl Supervisor {
    /// The calling process.
    pub fn current() -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self { pid, started: start_time(pid)?, namespace: pid_namespace()? })
    }

    /// Whether it still runs. One of another pid namespace cannot be judged from here and counts as alive: removing the
    /// cgroups of a living one would kill its sandboxes.
    pub fn is_alive(&self) -> io::Result<bool> {
        if self.namespace != pid_namespace()? {
            return Ok(true);
        }
        match start_time(self.pid) {
            Ok(started) => Ok(started == self.started),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // Gone between opening the file and reading it.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// `rf-<pid>-<start time>-<pid namespace>-<run>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Who made the cgroup.
    pub supervisor: Supervisor,
    /// Which of its runs it is for: letters, digits, `-` and `_`.
    pub run: String,
}

/// The text is not a name that we give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cgroup's name of the form `rf-<pid>-<start time>-<pid namespace>-<run>`")]
pub struct NotAName(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Supervisor { pid, started, namespace } = self.supervisor;
        write!(f, "{PREFIX}-{pid}-{started}-{namespace}-{}", self.run)
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let parse = || {
            let mut parts = text.splitn(5, '-');
            if text.len() > LONGEST || parts.next()? != PREFIX {
                return None;
            }
            let supervisor = Supervisor {
                pid: parts.next()?.parse().ok()?,
                started: parts.next()?.parse().ok()?,
                namespace: parts.next()?.parse().ok()?,
            };
            let run = parts.next()?.to_owned();
            let plain = run.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            (plain && !run.is_empty()).then_some(Self { supervisor, run })
        };
        parse().filter(|name| name.to_string() == text).ok_or_else(|| NotAName(text.to_owned()))
    }
}

/// The name for the run `run` of the calling process.
pub fn name_for(run: &str) -> io::Result<String> {
    let name = Name { supervisor: Supervisor::current()?, run: run.to_owned() }.to_string();
    match name.parse::<Name>() {
        Ok(_) => Ok(name),
        Err(refused) => Err(io::Error::new(io::ErrorKind::InvalidInput, refused)),
    }
}

/// Whether the supervisor in `name` still runs; what is not a name of ours, or cannot be judged, counts as alive.
pub fn is_supervisor_alive(name: &str) -> bool {
    match name.parse::<Name>() {
        Ok(name) => name.supervisor.is_alive().unwrap_or(true),
        Err(NotAName(_)) => true,
    }
}

fn pid_namespace() -> io::Result<u64> {
    rustix::fs::stat("/proc/self/ns/pid").map(|stat| stat.st_ino).map_err(io::Error::from)
}

fn start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    if has_ended(&stat) {
        return Err(io::ErrorKind::NotFound.into());
    }
    parse_start_time(&stat)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/<pid>/stat holds no start time"))
}

/// The name in brackets may hold brackets and blanks itself, so the fields are counted after its last bracket.
fn parse_start_time(stat: &str) -> Option<u64> {
    const FIELDS_BEFORE_IT: usize = 19;
    stat.rsplit_once(") ")?.1.split(' ').nth(FIELDS_BEFORE_IT)?.parse().ok()
}

/// Whether the process has ended and only waits for its parent to notice.
fn has_ended(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_names_come_back_as_they_were_and_nothing_else_is_a_name() {
        let name = name_for("7_a-b").unwrap();
        let parsed: Name = name.parse().unwrap();
        assert_eq!(parsed.supervisor, Supervisor::current().unwrap());
        assert_eq!(parsed.run, "7_a-b");
        for hostile in [
            "",
            "rf",
            "rf-1-2-3-",
            "rf-1-2-run",
            "rf-x-2-3-run",
            "rf--2-3-run",
            "rf-+1-2-3-run",
            "rf-01-2-3-run",
            "xrf-1-2-3-run",
            "rf-1-2-3-..",
            "rf-1-2-3-a/b",
            "rf-1-2-3-a.slice",
            "rf-1-2-3-a b",
            "rf-1-2-3-a\n",
            "rf-99999999999-2-3-run",
            "memory.max",
        ] {
            assert_eq!(hostile.parse::<Name>(), Err(NotAName(hostile.to_owned())), "{hostile:?}");
        }
        assert_eq!(name_for("../x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(name_for(&"x".repeat(200)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn cgroup_name_tells_a_living_supervisor_from_a_dead_one_and_from_its_number_used_again() {
        let us = Supervisor::current().unwrap();
        let is_alive = |supervisor| is_supervisor_alive(&Name { supervisor, run: "1".into() }.to_string());
        assert!(is_alive(us));
        assert!(!is_alive(Supervisor { started: us.started + 1, ..us }), "the number was used again");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, started) = (child.id(), start_time(child.id()).unwrap());
        assert!(is_alive(Supervisor { pid, started, ..us }));
        child.kill().unwrap();
        // Without being reaped: it is still in the table.
        while is_alive(Supervisor { pid, started, ..us }) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(Supervisor { pid, started, ..us }));
        assert!(is_alive(Supervisor { pid, started, namespace: us.namespace + 1 }), "not ours to judge");
        assert!(is_supervisor_alive("system.slice"), "not ours at all");
    }

    #[test]
    fn cgroup_name_reads_the_start_time_behind_a_hostile_process_name() {
        let tail = "S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 22 23";
        assert_eq!(parse_start_time(&format!("42 (a) R 1 (b) {tail}")), Some(4711));
        assert_eq!(parse_start_time("42 (a) S 1"), None);
    }
}
