//! Whether a rule speaks of what was seen. Lists are alternatives, and what a rule does not mention it does not ask for.

use serde::Deserialize;

use super::Reach;
use crate::analysis::{Change, Contact, Fact, Flow, Privilege, Removal, SystemAct, Trick, Unknown};
use crate::path::{PathClass, Surroundings, classify};
use crate::text::Text;

/// A fact, and what it stands in.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// Nothing for the command itself.
    pub(crate) fact: Option<&'a Fact>,
    /// The words of the nearest command; none in code of a language.
    pub(crate) argv: &'a [Text],
    /// What kinds of place the path of the fact is.
    pub(crate) classes: Vec<PathClass>,
    /// The words that look like paths, of a command of which nothing else is known.
    pub(crate) paths: Vec<(&'a Text, Vec<PathClass>)>,
    /// What kind of place is contacted.
    pub(crate) reach: Option<Reach>,
    pub(crate) surroundings: &'a Surroundings,
}

/// One shape of a fact.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum When {
    Reads(Place),
    Writes(Place),
    Removes(Removes),
    Changes(Changes),
    Contacts(Contacts),
    Executes(Executes),
    Imports(Names),
    Calls(Names),
    Privilege(Vec<Privilege>),
    System(System),
    ReadsEnvironment(Names),
    SetsEnvironment(Sets),
    Tricks(Vec<Trick>),
    Unknown(Vec<UnknownKind>),
    Command(Command),
    /// A path among the words of a command of which nothing else is known.
    Argument(Place),
}

/// A path, and who touches it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Place {
    path: Vec<PathClass>,
    /// All of these, too.
    also: Vec<PathClass>,
    /// None of these.
    unless: Vec<PathClass>,
    /// As written, with `*` for anything.
    name: Vec<String>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Removes {
    removal: Vec<Removal>,
    path: Vec<PathClass>,
    unless: Vec<PathClass>,
    name: Vec<String>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Changes {
    change: Vec<ChangeKind>,
    path: Vec<PathClass>,
    unless: Vec<PathClass>,
    mode: Vec<String>,
    to: Vec<PathClass>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChangeKind {
    Mode,
    ModeTree,
    Owner,
    OwnerTree,
    Attributes,
    Link,
    Times,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contacts {
    contact: Vec<Contact>,
    reach: Vec<Reach>,
    /// As written.
    place: Vec<String>,
    unless_place: Vec<String>,
    sends: Vec<FlowKind>,
    /// The contents of a file of this kind are sent.
    sends_path: Vec<PathClass>,
    /// The contents of a file that is called so are sent.
    sends_name: Vec<String>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Executes {
    from: Vec<FlowKind>,
    from_path: Vec<PathClass>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Names {
    name: Vec<String>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sets {
    name: Vec<String>,
    value: Vec<String>,
    unless_value: Vec<String>,
    unless_program: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct System {
    act: Vec<SystemAct>,
    about: Vec<String>,
    unless_about: Vec<String>,
    /// No word.
    without: Vec<String>,
    program: Vec<String>,
    unless_program: Vec<String>,
}

/// A command by its words, for what no fact tells.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Command {
    pub(super) program: Vec<String>,
    /// The first word that is no option.
    verb: Vec<String>,
    /// Any word.
    with: Vec<String>,
    /// Any other word.
    and: Vec<String>,
    /// No word.
    without: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FlowKind {
    Network,
    Decoded,
    File,
    Environment,
    Input,
    Literal,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnknownKind {
    Unreadable,
    Disagreement,
    TooMuch,
    Program,
    Language,
    Script,
    Link,
}

impl When {
    pub(crate) fn covers(&self, seen: &Seen<'_>) -> bool {
        let Some(fact) = seen.fact else {
            return match self {
                Self::Command(command) => command.covers(seen.argv),
                Self::Argument(place) => seen.paths.iter().any(|(path, classes)| place.covers(path, classes, seen)),
                _ => false,
            };
        };
        match (self, fact) {
            (Self::Reads(place), Fact::Reads { path }) | (Self::Writes(place), Fact::Writes { path }) => {
                place.covers(path, &seen.classes, seen)
            }
            (Self::Removes(wanted), Fact::Removes { path, removal }) => {
                listed(&wanted.removal, removal)
                    && wanted.covers(path, seen)
                    && by(&wanted.program, &wanted.unless_program, seen)
            }
            (Self::Changes(wanted), Fact::Changes { change, .. }) => wanted.covers(change, seen),
            (Self::Contacts(wanted), Fact::Contacts { place, contact, sends }) => {
                wanted.covers(place, *contact, sends, seen)
            }
            (Self::Executes(wanted), Fact::Executes { from }) => wanted.covers(from, seen),
            (Self::Imports(wanted), Fact::Imports { module: name })
            | (Self::Calls(wanted), Fact::Calls { name })
            | (Self::ReadsEnvironment(wanted), Fact::ReadsEnvironment { name: Some(name) }) => {
                wanted.covers(name, seen)
            }
            (Self::ReadsEnvironment(wanted), Fact::ReadsEnvironment { name: None }) => {
                wanted.covers(&Text::known("*"), seen)
            }
            (Self::Privilege(wanted), Fact::Privilege { privilege }) => {
                // Asked nothing, `mount` only lists.
                let lists = matches!(seen.argv, [program] if program.as_known() == Some("mount"));
                wanted.contains(privilege) && !lists
            }
            (Self::System(wanted), Fact::System { act, about }) => {
                listed(&wanted.act, act)
                    && (wanted.about.is_empty() || any_glob(&wanted.about, about))
                    && !seen.argv.iter().any(|word| any_glob(&wanted.without, word))
                    && !any_glob(&wanted.unless_about, about)
                    && by(&wanted.program, &wanted.unless_program, seen)
            }
            (Self::SetsEnvironment(wanted), Fact::SetsEnvironment { name, value }) => {
                any_glob(&wanted.name, name)
                    && (wanted.value.is_empty() || any_glob(&wanted.value, value))
                    && !any_glob(&wanted.unless_value, value)
                    && !named(as_text(&wanted.unless_program), seen.argv.first())
            }
            (Self::Argument(place), Fact::Leads { does: None, .. }) => {
                seen.paths.iter().any(|(path, classes)| place.covers(path, classes, seen))
            }
            (Self::Tricks(wanted), Fact::Tricks { trick }) => wanted.contains(trick),
            (Self::Unknown(wanted), Fact::Unknown { unknown }) => wanted.contains(&kind_of(unknown)),
            _ => false,
        }
    }
}

impl Place {
    fn covers(&self, path: &Text, classes: &[PathClass], seen: &Seen<'_>) -> bool {
        (self.path.is_empty() || self.path.iter().any(|class| classes.contains(class)))
            && self.also.iter().all(|class| classes.contains(class))
            && !self.unless.iter().any(|class| classes.contains(class))
            && (self.name.is_empty() || any_glob(&self.name, path))
            && by(&self.program, &self.unless_program, seen)
    }
}

impl Removes {
    fn covers(&self, path: &Text, seen: &Seen<'_>) -> bool {
        (self.path.is_empty() || self.path.iter().any(|class| seen.classes.contains(class)))
            && !self.unless.iter().any(|class| seen.classes.contains(class))
            && (self.name.is_empty() || any_glob(&self.name, path))
    }
}

impl Changes {
    fn covers(&self, change: &Change, seen: &Seen<'_>) -> bool {
        let kind = match change {
            Change::Mode { tree: false, .. } => ChangeKind::Mode,
            Change::Mode { tree: true, .. } => ChangeKind::ModeTree,
            Change::Owner { tree: false } => ChangeKind::Owner,
            Change::Owner { tree: true } => ChangeKind::OwnerTree,
            Change::Attributes => ChangeKind::Attributes,
            Change::Link { .. } => ChangeKind::Link,
            Change::Times => ChangeKind::Times,
        };
        let mode = match change {
            Change::Mode { mode, .. } => self.mode.is_empty() || any_glob(&self.mode, mode),
            Change::Owner { .. } | Change::Attributes | Change::Link { .. } | Change::Times => self.mode.is_empty(),
        };
        let to = match change {
            Change::Link { to } if !self.to.is_empty() => {
                let classes = classify(to, seen.surroundings);
                self.to.iter().any(|class| classes.contains(class))
            }
            Change::Link { .. } | Change::Mode { .. } | Change::Owner { .. } | Change::Attributes | Change::Times => {
                self.to.is_empty()
            }
        };
        listed(&self.change, &kind)
            && mode
            && to
            && (self.path.is_empty() || self.path.iter().any(|class| seen.classes.contains(class)))
            && !self.unless.iter().any(|class| seen.classes.contains(class))
    }
}

impl Contacts {
    fn covers(&self, place: &Text, contact: Contact, sends: &[Flow], seen: &Seen<'_>) -> bool {
        listed(&self.contact, &contact)
            && (self.reach.is_empty() || seen.reach.is_some_and(|reach| self.reach.contains(&reach)))
            && (self.place.is_empty() || any_glob(&self.place, place))
            && !any_glob(&self.unless_place, place)
            && (self.sends.is_empty() && self.sends_path.is_empty() && self.sends_name.is_empty()
                || sends.iter().any(|flow| self.sends.contains(&flow_kind(flow)))
                || any_file(&self.sends_path, sends, seen.surroundings)
                || sends.iter().any(|flow| matches!(flow, Flow::File { path } if any_name(&self.sends_name, path))))
            && by(&self.program, &self.unless_program, seen)
    }
}

impl Executes {
    fn covers(&self, from: &[Flow], seen: &Seen<'_>) -> bool {
        (self.from.is_empty() && self.from_path.is_empty()
            || from.iter().any(|flow| self.from.contains(&flow_kind(flow)))
            || any_file(&self.from_path, from, seen.surroundings))
            && by(&self.program, &self.unless_program, seen)
    }
}

impl Names {
    fn covers(&self, name: &Text, seen: &Seen<'_>) -> bool {
        any_glob(&self.name, name) && by(&self.program, &self.unless_program, seen)
    }
}

impl Command {
    fn covers(&self, argv: &[Text]) -> bool {
        let Some((_, words)) = argv.split_first() else { return false };
        let has = |globs: &[String]| words.iter().any(|word| any_glob(globs, word));
        let verb = |globs: &[String]| {
            // What belongs to an option before it is no verb; where it may be one, both are.
            let is_value = |at: usize| {
                at.checked_sub(1)
                    .and_then(|before| words.get(before)?.as_known())
                    .is_some_and(|before| TAKES_A_WORD.contains(&before))
            };
            let plain = || words.iter().enumerate().filter(|(_, word)| !word.known_start().starts_with('-'));
            let first = plain().next();
            let behind = plain().find(|(at, _)| !is_value(*at));
            first.into_iter().chain(behind).any(|(_, word)| any_glob(globs, word))
        };
        named(as_text(&self.program), argv.first())
            && (self.verb.is_empty() || verb(&self.verb))
            && (self.with.is_empty() || has(&self.with))
            && (self.and.is_empty() || has(&self.and))
            && !has(&self.without)
    }
}

/// Options of programs with subcommands that stand before the subcommand, with a word of their own.
const TAKES_A_WORD: &[&str] = &[
    "--context",
    "--kube-context",
    "--namespace",
    "--kubeconfig",
    "--cluster",
    "--as",
    "--request-timeout",
    "--git-dir",
    "--work-tree",
    "--profile",
    "--region",
    "--project",
    "--endpoint-url",
    "--output",
    "--subscription",
    "--log-level",
    "--loglevel",
    "--prefix",
    "--cwd",
    "--filter",
    "--dir",
    "--repo",
    "--server",
    "--stack",
    "-n",
    "-C",
    "-R",
    "--registry",
    "--workspace",
    "--vhost",
];

/// Whether a name is one of these.
fn any_name(globs: &[String], name: &str) -> bool {
    globs.iter().any(|wanted| glob(wanted, name))
}

fn any_file(wanted: &[PathClass], flows: &[Flow], surroundings: &Surroundings) -> bool {
    !wanted.is_empty()
        && flows.iter().any(|flow| match flow {
            Flow::File { path } => {
                let classes = classify(&Text::known(path.as_str()), surroundings);
                wanted.iter().any(|class| classes.contains(class))
            }
            Flow::Network | Flow::Decoded | Flow::Environment | Flow::Input | Flow::Literal | Flow::Unknown => false,
        })
}

fn flow_kind(flow: &Flow) -> FlowKind {
    match flow {
        Flow::Network => FlowKind::Network,
        Flow::Decoded => FlowKind::Decoded,
        Flow::File { .. } => FlowKind::File,
        Flow::Environment => FlowKind::Environment,
        Flow::Input => FlowKind::Input,
        Flow::Literal => FlowKind::Literal,
        Flow::Unknown => FlowKind::Unknown,
    }
}

fn kind_of(unknown: &Unknown) -> UnknownKind {
    match unknown {
        Unknown::Unreadable { .. } => UnknownKind::Unreadable,
        Unknown::Disagreement => UnknownKind::Disagreement,
        Unknown::TooMuch { .. } => UnknownKind::TooMuch,
        Unknown::Program => UnknownKind::Program,
        Unknown::Language => UnknownKind::Language,
        Unknown::Script { .. } => UnknownKind::Script,
        Unknown::Link { .. } => UnknownKind::Link,
    }
}

/// An empty list asks for nothing.
fn listed<T: PartialEq>(list: &[T], item: &T) -> bool {
    list.is_empty() || list.contains(item)
}

fn by(program: &[String], unless: &[String], seen: &Seen<'_>) -> bool {
    (program.is_empty() || named(as_text(program), seen.argv.first())) && !named(as_text(unless), seen.argv.first())
}

/// Whether the program is one of these, in whatever folder it is.
pub(super) fn named<'p>(mut programs: impl Iterator<Item = &'p str>, program: Option<&Text>) -> bool {
    let Some(name) = program.and_then(Text::as_known) else { return false };
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_suffix(".exe").or_else(|| name.strip_suffix(".EXE")).unwrap_or(name);
    programs.any(|wanted| glob(wanted, name))
}

fn as_text(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(String::as_str)
}

fn any_glob(globs: &[String], text: &Text) -> bool {
    if globs.is_empty() {
        return false;
    }
    let text = text.to_string();
    globs.iter().any(|wanted| glob(wanted, &text))
}

/// `*` is anything; everything else is itself.
fn glob(wanted: &str, text: &str) -> bool {
    // Most differ in their first letter.
    let first = wanted.as_bytes().first();
    if first != Some(&b'*') && first != text.as_bytes().first() {
        return false;
    }
    let mut parts = wanted.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_anything_and_the_ends_are_held() {
        for (wanted, text, is) in [
            ("rm", "rm", true),
            ("rm", "rmdir", false),
            ("*.git*", "/workspace/.git", true),
            ("LD_*", "LD_PRELOAD", true),
            ("LD_*", "XLD_", false),
            ("*", "", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("-*e*", "-ne", true),
        ] {
            assert_eq!(glob(wanted, text), is, "{wanted} {text}");
        }
    }
}
