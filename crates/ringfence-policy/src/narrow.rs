//! What a call asks for may make the policy narrower, never wider. A grant may widen what the policy lists as grantable.
//!
//! Nothing is clipped in silence: a call that asks for more is told so, field by field.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::budget::NetBudget;
use crate::demand::{hold_demands, unbound};
use crate::diagnostic::Diagnostic;
use crate::grant::Grant;
use crate::host::NetRule;
use crate::name::Named;
use crate::order::{choice_rank, mode_rank};
use crate::overrides::Overrides;
use crate::policy::{BackendChoice, Field, Layer, NetMode, Origin, Place, ResolvedPolicy, Sourced, UnknownHosts};
use crate::variable::{changes_code, covers_pass};

/// One wish that goes beyond the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("`{field}` was asked to be {asked}; the policy allows {allowed} ({origin})")]
pub struct Widening {
    /// What was asked about.
    pub field: Field,
    /// What was asked for.
    pub asked: String,
    /// What there is.
    pub allowed: String,
    /// Who set what there is.
    pub origin: Origin,
}

/// The policy with what `overrides` asks for, or everything in them that would widen it.
pub fn narrow(policy: &ResolvedPolicy, overrides: &Overrides) -> Result<ResolvedPolicy, Vec<Widening>> {
    let mut narrowing = Narrowing { policy, result: policy.clone(), widenings: Vec::new() };
    narrowing.backend(overrides);
    if let Some(asked) = &overrides.cache {
        narrowing.subset(Field::Cache, asked, &policy.cache, |result| &mut result.cache, PartialEq::eq);
    }
    narrowing.fs(overrides);
    narrowing.net(overrides);
    narrowing.proc(overrides);
    narrowing.env(overrides);
    narrowing.validate(overrides);
    if narrowing.widenings.is_empty() { Ok(narrowing.result) } else { Err(narrowing.widenings) }
}

struct Narrowing<'p> {
    policy: &'p ResolvedPolicy,
    result: ResolvedPolicy,
    widenings: Vec<Widening>,
}

fn called<T>(value: T) -> Sourced<T> {
    Sourced { value, origin: Origin { layer: Layer::Call, place: None } }
}

impl Narrowing<'_> {
    fn refuse(&mut self, field: Field, asked: impl fmt::Display, allowed: impl fmt::Display, origin: &Origin) {
        let (asked, allowed) = (asked.to_string(), allowed.to_string());
        self.widenings.push(Widening { field, asked, allowed, origin: origin.clone() });
    }

    fn backend(&mut self, overrides: &Overrides) {
        let Some(asked) = overrides.backend else { return };
        let choice = &self.policy.backend.choice;
        let permitted = match (choice.value, asked) {
            (now, asked) if now == asked => true,
            // A wall that was chosen by name is not exchanged for its equal.
            (BackendChoice::Kind(_), asked) => choice_rank(asked) > choice_rank(choice.value),
            (BackendChoice::Auto, asked) => choice_rank(asked) >= choice_rank(choice.value),
        };
        if permitted {
            self.result.backend.choice = called(asked);
        } else {
            self.refuse(Field::Backend, asked, choice.value, &choice.origin);
        }
    }

    fn validate(&mut self, overrides: &Overrides) {
        let Some(asked) = overrides.validate else { return };
        let level = &self.policy.validate.level;
        if asked <= level.value {
            self.result.validate.level = called(asked);
        } else {
            self.refuse(Field::Validate, asked, level.value, &level.origin);
        }
    }

    fn fs(&mut self, overrides: &Overrides) {
        if let Some(asked) = overrides.fs.mode {
            let mode = &self.policy.fs.mode;
            if mode_rank(asked) <= mode_rank(mode.value) {
                self.result.fs.mode = called(asked);
            } else {
                self.refuse(Field::WorkspaceMode, asked, mode.value, &mode.origin);
            }
        }
        let source = &self.policy.fs.source;
        self.lower(Field::WorkspaceSource, overrides.fs.source, source, |result| &mut result.fs.source);
        for glob in overrides.fs.deny.iter().flatten() {
            if !self.result.fs.deny.iter().any(|known| known.value == *glob) {
                self.result.fs.deny.push(called(glob.clone()));
            }
        }
        self.lower(Field::FsSize, overrides.fs.size, &self.policy.fs.size, |result| &mut result.fs.size);
    }

    /// Takes a limit that is at most the policy's.
    fn lower<T: Copy + PartialOrd + fmt::Display>(
        &mut self,
        field: Field,
        asked: Option<T>,
        limit: &Sourced<T>,
        slot: impl FnOnce(&mut ResolvedPolicy) -> &mut Sourced<T>,
    ) {
        match asked {
            Some(asked) if asked <= limit.value => *slot(&mut self.result) = called(asked),
            Some(asked) => self.refuse(field, asked, format_args!("at most {}", limit.value), &limit.origin),
            None => {}
        }
    }

    fn net(&mut self, overrides: &Overrides) {
        let net = &self.policy.net;
        if let Some(asked) = overrides.net.mode {
            if asked <= net.mode.value {
                self.result.net.mode = called(asked);
                // Ports of the host are a part of the network that is taken away.
                if asked == NetMode::None {
                    self.result.net.localhost.clear();
                }
            } else {
                self.refuse(Field::NetMode, asked, net.mode.value, &net.mode.origin);
            }
        }
        if let Some(asked) = &overrides.net.allow {
            for rule in asked {
                let covered = match net.mode.value {
                    NetMode::None => false,
                    // Open is for everything but secrets: those go where a rule of the policy sends them.
                    NetMode::Open if rule.credential.is_none() => true,
                    NetMode::Allowlist | NetMode::Open => net.allow.iter().any(|known| known.value.covers(rule)),
                };
                if !covered {
                    let (allowed, origin) = match net.mode.value {
                        NetMode::None => ("no network".to_owned(), &net.mode.origin),
                        NetMode::Allowlist | NetMode::Open => join(&net.allow, &net.mode.origin),
                    };
                    self.refuse(Field::NetAllow, rule, allowed, origin);
                }
            }
            self.result.net.allow = self.hold(asked);
            // Who lists hosts wants only these.
            if self.result.net.mode.value == NetMode::Open {
                self.result.net.mode = called(NetMode::Allowlist);
            }
        }
        if let Some(asked) = &overrides.net.localhost {
            self.subset(Field::NetLocalhost, asked, &net.localhost, |result| &mut result.net.localhost, u16::eq);
        }
        if let Some(asked) = &overrides.net.unix {
            self.subset(Field::NetUnix, asked, &net.unix, |result| &mut result.net.unix, PartialEq::eq);
        }
        if let Some(asked) = &overrides.net.budget {
            let both = net.budget.value.meet(asked);
            // What was asked for is what comes out, besides what was left out.
            if says(&both, asked) {
                self.result.net.budget = called(both);
            } else {
                self.refuse(Field::NetBudget, asked, net.budget.value, &net.budget.origin);
            }
        }
        // Who lists hosts means only these: nobody is asked for others.
        if overrides.net.allow.is_some() && overrides.net.unknown.is_none() && net.unknown.value > UnknownHosts::Deny {
            self.result.net.unknown = called(UnknownHosts::Deny);
        }
        if let Some(asked) = overrides.net.unknown {
            if asked <= net.unknown.value {
                self.result.net.unknown = called(asked);
            } else {
                self.refuse(Field::NetUnknown, asked, net.unknown.value, &net.unknown.origin);
            }
        }
    }

    /// The rules that were asked for, with what the policy demands of their hosts, also in rules that were left out.
    fn hold(&mut self, asked: &[NetRule]) -> Vec<Sourced<NetRule>> {
        let known = &self.policy.net.allow;
        let asked: Vec<Sourced<NetRule>> = asked.iter().cloned().map(called).collect();
        let mut allow: Vec<Sourced<NetRule>> = Vec::new();
        // Those with credentials come first and in their own order, since the first that fits is the one that is used.
        for left_out in unbound(&asked, known) {
            let bound = left_out.bind().map(|value| Sourced { value, origin: left_out.known.origin.clone() });
            allow.extend(bound.filter(|rule| !allow.iter().any(|other| other.value == rule.value)));
        }
        allow.extend(asked);
        hold_demands(&mut allow, known);
        // With a method or a path that the credential is not for, there is no rule that would keep others' keys out.
        for left_out in unbound(&allow, known) {
            self.refuse(Field::NetAllow, &left_out.rule.value, &left_out.known.value, &left_out.known.origin);
        }
        allow
    }

    /// Takes a list whose every item is covered by the policy's.
    fn subset<T: Clone + fmt::Display>(
        &mut self,
        field: Field,
        asked: &[T],
        permitted: &[Sourced<T>],
        slot: impl FnOnce(&mut ResolvedPolicy) -> &mut Vec<Sourced<T>>,
        covers: impl Fn(&T, &T) -> bool,
    ) {
        for item in asked {
            if !permitted.iter().any(|known| covers(&known.value, item)) {
                let (allowed, origin) = join(permitted, &BUILT_IN);
                self.refuse(field, item, allowed, origin);
            }
        }
        *slot(&mut self.result) = asked.iter().cloned().map(called).collect();
    }

    fn proc(&mut self, overrides: &Overrides) {
        let (asked, proc) = (&overrides.proc, &self.policy.proc);
        self.lower(Field::Cpus, asked.cpus, &proc.cpus, |result| &mut result.proc.cpus);
        self.lower(Field::Memory, asked.memory, &proc.memory, |result| &mut result.proc.memory);
        self.lower(Field::Processes, asked.processes, &proc.processes, |result| &mut result.proc.processes);
        if let Some(asked) = asked.limits {
            if asked <= proc.limits.value {
                self.result.proc.limits = called(asked);
            } else {
                self.refuse(Field::Limits, asked, proc.limits.value, &proc.limits.origin);
            }
        }
        self.lower(Field::Timeout, asked.timeout, &proc.max_timeout, |result| &mut result.proc.timeout);
        self.lower(Field::Output, asked.output, &proc.output, |result| &mut result.proc.output);
    }

    fn env(&mut self, overrides: &Overrides) {
        let (asked, env) = (&overrides.proc.env, &self.policy.proc.env);
        if let Some(pass) = &asked.pass {
            let covers = |mine: &String, theirs: &String| covers_pass(mine, theirs);
            self.subset(Field::EnvPass, pass, &env.pass, |result| &mut result.proc.env.pass, covers);
        }
        for (name, value) in &asked.set {
            match env.set.get(name) {
                Some(known) if known.value == *value => {}
                // Only names: a model reads this, and either value may be a secret.
                Some(known) => {
                    self.refuse(Field::EnvSet, format_args!("another {name}"), "its own value of it", &known.origin);
                }
                None if changes_code(name) => {
                    let allowed = "no variable that changes what code programs load";
                    self.refuse(Field::EnvSet, name, allowed, &BUILT_IN);
                }
                None => {
                    self.result.proc.env.set.insert(name.clone(), called(value.clone()));
                }
            }
        }
    }
}

/// Whether every limit that was asked for is the one that holds.
fn says(both: &NetBudget, asked: &NetBudget) -> bool {
    (asked.requests.is_none() || asked.requests == both.requests)
        && (asked.connections.is_none() || asked.connections == both.connections)
        && (asked.bytes.is_none() || asked.bytes == both.bytes)
        && (asked.rate.is_none() || asked.rate == both.rate)
}

/// For lists that nobody set: the built-in answer is nothing.
const BUILT_IN: Origin = Origin { layer: Layer::Default, place: None };

/// A list as a person would read it, and who set it last.
fn join<'o, T: fmt::Display>(items: &'o [Sourced<T>], otherwise: &'o Origin) -> (String, &'o Origin) {
    const SHOWN: usize = 8;
    let mut words: Vec<String> = items.iter().take(SHOWN).map(|item| item.value.to_string()).collect();
    if items.len() > SHOWN {
        words.push(format!("{} more", items.len() - SHOWN));
    }
    match items.last() {
        Some(last) => (words.join(", "), &last.origin),
        None => ("nothing".to_owned(), otherwise),
    }
}

/// Widens what is grantable. A part that is not is a problem, and then nothing of the policy may be used.
pub(crate) fn apply_grant(policy: &mut ResolvedPolicy, grant: &Grant, problems: &mut Vec<Diagnostic>) {
    let granted = GrantedFields::of(&grant.widen);
    for field in granted.0.iter().filter(|field| !policy.overrides.grantable.iter().any(|it| it.value == **field)) {
        let message = format!(
            "the grant by {} widens `{field}`, which no layer made grantable",
            crate::diagnostic::quote(&grant.by)
        );
        problems.push(
            Diagnostic::error("grant::not-grantable", message)
                .advise(format!("add `{field}` under `overrides.grantable`, or take it out of the grant"))
                .at(grant.place.clone()),
        );
    }
    if problems.is_empty() {
        Granting { place: grant.place.clone() }.apply(policy, &grant.widen);
    }
}

struct GrantedFields(Vec<Field>);

impl GrantedFields {
    fn of(widen: &Overrides) -> Self {
        let Overrides { backend, cache, fs, net, proc, validate } = widen;
        let fields = [
            (Field::Backend, backend.is_some()),
            (Field::Cache, cache.is_some()),
            (Field::WorkspaceMode, fs.mode.is_some()),
            (Field::WorkspaceSource, fs.source.is_some()),
            (Field::FsSize, fs.size.is_some()),
            (Field::NetMode, net.mode.is_some()),
            (Field::NetAllow, net.allow.is_some()),
            (Field::NetLocalhost, net.localhost.is_some()),
            (Field::NetUnix, net.unix.is_some()),
            (Field::NetBudget, net.budget.is_some()),
            (Field::NetUnknown, net.unknown.is_some()),
            (Field::Cpus, proc.cpus.is_some()),
            (Field::Memory, proc.memory.is_some()),
            (Field::Processes, proc.processes.is_some()),
            (Field::Limits, proc.limits.is_some()),
            (Field::Timeout, proc.timeout.is_some()),
            (Field::Output, proc.output.is_some()),
            (Field::EnvPass, proc.env.pass.is_some()),
            (Field::EnvSet, !proc.env.set.is_empty()),
            (Field::Validate, validate.is_some()),
        ];
        Self(fields.into_iter().filter(|(_, asked)| *asked).map(|(field, _)| field).collect())
    }
}

struct Granting {
    place: Option<Place>,
}

impl Granting {
    fn granted<T>(&self, value: T) -> Sourced<T> {
        Sourced { value, origin: Origin { layer: Layer::Grant, place: self.place.clone() } }
    }

    /// A grant only widens: a value below the policy's changes nothing.
    fn raise<T: PartialOrd>(&self, slot: &mut Sourced<T>, value: Option<T>) {
        if let Some(value) = value
            && value > slot.value
        {
            *slot = self.granted(value);
        }
    }

    /// Each limit that is named is raised by itself; what is not named stays.
    fn raise_budget(&self, slot: &mut Sourced<NetBudget>, granted: Option<NetBudget>) {
        fn raised<T: Copy>(now: Option<T>, granted: Option<T>, is_more: impl Fn(T, T) -> bool) -> Option<T> {
            match (now, granted) {
                (Some(now), Some(granted)) if is_more(granted, now) => Some(granted),
                (now, _) => now,
            }
        }
        let Some(granted) = granted else { return };
        let now = slot.value;
        let value = NetBudget {
            requests: raised(now.requests, granted.requests, |granted, now| granted > now),
            connections: raised(now.connections, granted.connections, |granted, now| granted > now),
            bytes: raised(now.bytes, granted.bytes, |granted, now| granted > now),
            rate: raised(now.rate, granted.rate, crate::budget::Rate::covers),
        };
        if value != now {
            *slot = self.granted(value);
        }
    }

    fn add<T: Clone + PartialEq>(&self, slot: &mut Vec<Sourced<T>>, values: Option<&Vec<T>>) {
        for value in values.into_iter().flatten() {
            if !slot.iter().any(|known| known.value == *value) {
                slot.push(self.granted(value.clone()));
            }
        }
    }

    fn apply(&self, policy: &mut ResolvedPolicy, widen: &Overrides) {
        if let Some(backend) = widen.backend {
            policy.backend.choice = self.granted(backend);
        }
        self.add(&mut policy.cache, widen.cache.as_ref());
        if let Some(mode) = widen.fs.mode
            && mode_rank(mode) > mode_rank(policy.fs.mode.value)
        {
            policy.fs.mode = self.granted(mode);
        }
        self.raise(&mut policy.fs.source, widen.fs.source);
        self.add(&mut policy.fs.deny, widen.fs.deny.as_ref());
        self.raise(&mut policy.fs.size, widen.fs.size);
        self.raise(&mut policy.net.mode, widen.net.mode);
        self.add(&mut policy.net.allow, widen.net.allow.as_ref());
        self.add(&mut policy.net.localhost, widen.net.localhost.as_ref());
        self.add(&mut policy.net.unix, widen.net.unix.as_ref());
        self.raise_budget(&mut policy.net.budget, widen.net.budget);
        self.raise(&mut policy.net.unknown, widen.net.unknown);
        self.raise(&mut policy.validate.level, widen.validate);
        let proc = &mut policy.proc;
        self.raise(&mut proc.cpus, widen.proc.cpus);
        self.raise(&mut proc.memory, widen.proc.memory);
        self.raise(&mut proc.processes, widen.proc.processes);
        self.raise(&mut proc.limits, widen.proc.limits);
        self.raise(&mut proc.timeout, widen.proc.timeout);
        self.raise(&mut proc.max_timeout, widen.proc.timeout);
        self.raise(&mut proc.output, widen.proc.output);
        self.add(&mut proc.env.pass, widen.proc.env.pass.as_ref());
        let set: &BTreeMap<String, String> = &widen.proc.env.set;
        for (name, value) in set {
            proc.env.set.insert(name.clone(), self.granted(value.clone()));
        }
    }
}

impl Field {
    /// Every field, in the order of the file.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as Named>::ALL.iter().map(|(_, field)| *field)
    }
}
