//! What changes between two policies, and in which direction.

use std::fmt;

use serde::Serialize;

use crate::order::{choice_rank, meet_mount, mode_rank};
use crate::policy::{NetMode, ResolvedPolicy, Sourced};
use crate::variable::{changes_code, covers_pass};

/// Whether the second policy permits more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The second permits more.
    Wider,
    /// The second permits less.
    Narrower,
    /// Neither within the other.
    Different,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key, such as `proc.memory`.
    pub field: String,
    /// The first policy's value; empty when it has none.
    pub from: String,
    /// The second policy's value; empty when it has none.
    pub to: String,
    /// Whether the second permits more or less.
    pub direction: Direction,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Wider => "wider",
            Direction::Narrower => "narrower",
            Direction::Different => "different",
        };
        match (self.from.as_str(), self.to.as_str()) {
            ("", to) => write!(f, "{direction}: {} + {to}", self.field),
            (from, "") => write!(f, "{direction}: {} - {from}", self.field),
            (from, to) => write!(f, "{direction}: {} {from} -> {to}", self.field),
        }
    }
}

/// Every difference from `a` to `b`, in the order of the file.
pub fn compare(a: &ResolvedPolicy, b: &ResolvedPolicy) -> Vec<Change> {
    let mut changes = Changes(Vec::new());
    let strength = |choice| i16::from(choice_rank(choice)).wrapping_neg();
    changes.ranked("backend", &a.backend.choice, &b.backend.choice, |choice| strength(*choice));
    changes.items("backend.fallback", &a.backend.fallback, &b.backend.fallback, Meaning::Permits, |x, y| x == y);
    let runtime = |policy: &ResolvedPolicy| policy.backend.runtime.as_ref().map(|runtime| runtime.value.clone());
    changes.unordered("backend.runtime", runtime(a).as_ref(), runtime(b).as_ref());
    changes.unordered("image", a.image.as_ref().map(|it| &it.value), b.image.as_ref().map(|it| &it.value));
    changes.ranked("image.pull", &a.image_pull, &b.image_pull, |pull| *pull);
    changes.items("cache", &a.cache, &b.cache, Meaning::Permits, |x, y| x == y);
    changes.unordered("fs.workspace.path", Some(&a.fs.workspace.value), Some(&b.fs.workspace.value));
    changes.ranked("fs.workspace.mode", &a.fs.mode, &b.fs.mode, |mode| mode_rank(*mode));
    changes.ranked("fs.workspace.source", &a.fs.source, &b.fs.source, |source| *source);
    changes.items("fs.mounts", &shown(&a.fs.mounts), &shown(&b.fs.mounts), Meaning::Permits, |x, y| {
        meet_mount(&x.0, &y.0).as_ref() == Some(&y.0)
    });
    changes.items("fs.deny", &a.fs.deny, &b.fs.deny, Meaning::Forbids, |x, y| x == y);
    changes.items("fs.protect", &a.fs.protect, &b.fs.protect, Meaning::Forbids, |x, y| x == y);
    changes.ranked("fs.size", &a.fs.size, &b.fs.size, |size| *size);
    changes.ranked("net.mode", &a.net.mode, &b.net.mode, |mode| *mode);
    if a.net.mode.value != NetMode::Open || b.net.mode.value != NetMode::Open {
        changes.items("net.allow", &a.net.allow, &b.net.allow, Meaning::Permits, |x, y| x.covers(y));
    }
    changes.items("net.deny", &a.net.deny, &b.net.deny, Meaning::Forbids, |x, y| x.covers(y));
    changes.items("net.localhost", &a.net.localhost, &b.net.localhost, Meaning::Permits, |x, y| x == y);
    changes.items("net.unix", &a.net.unix, &b.net.unix, Meaning::Permits, |x, y| x == y);
    changes.ranked("net.budget", &a.net.budget, &b.net.budget, |budget| *budget);
    changes.ranked("net.unknown", &a.net.unknown, &b.net.unknown, |unknown| *unknown);
    let upstream = |policy: &ResolvedPolicy| policy.net.upstream.as_ref().map(|upstream| upstream.value.clone());
    changes.unordered("net.upstream", upstream(a).as_ref(), upstream(b).as_ref());
    let names: std::collections::BTreeSet<&String> = a.credentials.keys().chain(b.credentials.keys()).collect();
    for name in names {
        let credential = |policy: &ResolvedPolicy| policy.credentials.get(name).map(|known| known.value.clone());
        changes.unordered(&format!("credentials.{name}"), credential(a).as_ref(), credential(b).as_ref());
    }
    let (p, q) = (&a.proc, &b.proc);
    changes.unordered("proc.user", Some(&p.user.value), Some(&q.user.value));
    changes.ranked("proc.cpus", &p.cpus, &q.cpus, |it| *it);
    changes.ranked("proc.memory", &p.memory, &q.memory, |it| *it);
    changes.ranked("proc.processes", &p.processes, &q.processes, |it| *it);
    changes.ranked("proc.limits", &p.limits, &q.limits, |it| *it);
    changes.ranked("proc.timeout", &p.timeout, &q.timeout, |it| *it);
    changes.ranked("proc.max_timeout", &p.max_timeout, &q.max_timeout, |it| *it);
    changes.ranked("proc.grace", &p.grace, &q.grace, |it| *it);
    changes.ranked("proc.output", &p.output, &q.output, |it| *it);
    changes.ranked("proc.file_size", &p.file_size, &q.file_size, |it| *it);
    changes.ranked("proc.open_files", &p.open_files, &q.open_files, |it| *it);
    changes.items("proc.env.pass", &p.env.pass, &q.env.pass, Meaning::Permits, |x, y| covers_pass(x, y));
    changes.env_set(a, b);
    changes.ranked("validate.level", &a.validate.level, &b.validate.level, |level| *level);
    let (v, w) = (&a.validate, &b.validate);
    changes.items("validate.commands", &v.commands, &w.commands, Meaning::Permits, |x, y| x == y);
    changes.items("validate.modules", &v.modules, &w.modules, Meaning::Permits, |x, y| x == y);
    changes.commands(a, b);
    changes.items("tools.allow", &a.tools.allow, &b.tools.allow, Meaning::Permits, |x, y| x == y);
    let (g, h) = (&a.overrides.grantable, &b.overrides.grantable);
    changes.items("overrides.grantable", g, h, Meaning::Permits, |x, y| x == y);
    changes.0
}

/// A mount that can be printed.
#[derive(Clone, PartialEq)]
struct Shown(crate::policy::Mount);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::show::write_mount(f, &self.0)
    }
}

fn shown(mounts: &[Sourced<crate::policy::Mount>]) -> Vec<Sourced<Shown>> {
    mounts.iter().map(|mount| mount.map(|mount| Shown(mount.clone()))).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    Permits,
    Forbids,
}

struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, field: &str, from: String, to: String, direction: Direction) {
        self.0.push(Change { field: field.to_owned(), from, to, direction });
    }

    fn ranked<T: PartialEq + fmt::Display, R: PartialOrd>(
        &mut self,
        field: &str,
        a: &Sourced<T>,
        b: &Sourced<T>,
        rank: impl Fn(&T) -> R,
    ) {
        if a.value == b.value {
            return;
        }
        let direction = match rank(&b.value).partial_cmp(&rank(&a.value)) {
            Some(std::cmp::Ordering::Greater) => Direction::Wider,
            Some(std::cmp::Ordering::Less) => Direction::Narrower,
            Some(std::cmp::Ordering::Equal) | None => Direction::Different,
        };
        self.push(field, a.value.to_string(), b.value.to_string(), direction);
    }

    fn unordered<T: PartialEq + fmt::Display>(&mut self, field: &str, a: Option<&T>, b: Option<&T>) {
        if a != b {
            let text = |value: Option<&T>| value.map(T::to_string).unwrap_or_default();
            self.push(field, text(a), text(b), Direction::Different);
        }
    }

    /// One change per item that only one side has. An item that the other side covers anyway changes nothing much.
    fn items<T: PartialEq + fmt::Display>(
        &mut self,
        field: &str,
        a: &[Sourced<T>],
        b: &[Sourced<T>],
        meaning: Meaning,
        covers: impl Fn(&T, &T) -> bool,
    ) {
        let missing = |item: &Sourced<T>, list: &[Sourced<T>]| !list.iter().any(|other| other.value == item.value);
        let covered =
            |item: &Sourced<T>, list: &[Sourced<T>]| list.iter().any(|other| covers(&other.value, &item.value));
        let direction = |covered: bool, grows: bool| match (covered, grows == (meaning == Meaning::Permits)) {
            (true, _) => Direction::Different,
            (false, true) => Direction::Wider,
            (false, false) => Direction::Narrower,
        };
        for item in a.iter().filter(|item| missing(item, b)) {
            self.push(field, item.value.to_string(), String::new(), direction(covered(item, b), false));
        }
        for item in b.iter().filter(|item| missing(item, a)) {
            self.push(field, String::new(), item.value.to_string(), direction(covered(item, a), true));
        }
    }

    fn env_set(&mut self, a: &ResolvedPolicy, b: &ResolvedPolicy) {
        let (a, b) = (&a.proc.env.set, &b.proc.env.set);
        for (name, from) in a {
            let to = b.get(name).map(|to| to.value.clone());
            if to.as_ref() != Some(&from.value) {
                let field = format!("proc.env.set.{name}");
                self.push(&field, from.value.clone(), to.unwrap_or_default(), Direction::Different);
            }
        }
        for (name, to) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
            let direction = if changes_code(name) { Direction::Wider } else { Direction::Different };
            self.push(&format!("proc.env.set.{name}"), String::new(), to.value.clone(), direction);
        }
    }

    fn commands(&mut self, a: &ResolvedPolicy, b: &ResolvedPolicy) {
        use crate::command::{CommandRule, Reading, Verdict};
        let holds = |list: &[Sourced<CommandRule>], rule: &CommandRule| {
            list.iter().any(|other| other.value.strictness() == rule.strictness() && other.value.prefix == rule.prefix)
        };
        let text = |rule: &CommandRule| {
            let reading = if rule.reading == Reading::default() { "" } else { " (reading: allow)" };
            format!("{} {}{reading}", rule.verdict, rule.prefix.join(" "))
        };
        for rule in a.commands.iter().filter(|rule| !holds(&b.commands, &rule.value)) {
            let narrows = rule.value.verdict == Verdict::Allow;
            let direction = if narrows { Direction::Narrower } else { Direction::Wider };
            self.push("commands", text(&rule.value), String::new(), direction);
        }
        for rule in b.commands.iter().filter(|rule| !holds(&a.commands, &rule.value)) {
            let widens = rule.value.verdict == Verdict::Allow;
            let direction = if widens { Direction::Wider } else { Direction::Narrower };
            self.push("commands", String::new(), text(&rule.value), direction);
        }
    }
}
