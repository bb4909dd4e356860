//! Lists and objects that several names hold: what is put into one by one name is found by the others.
//!
//! A container knows the places in the text where it was made, and when it was last looked after. Whoever puts something into it writes
//! down what it holds from then on; whoever reads it later takes that too. What a function puts into a container that it was handed
//! counts for good: when it is called is not known.

use std::rc::Rc;

use super::few::Few;
use super::quick::QuickMap;
use super::scope::joined;
use super::value::{Held, Learned, Value};
use crate::span::Span;

/// Changes of one container that are told apart; at least two, since the earlier ones become part of the next.
const PUTS: usize = 2;
/// Items from which on a list is not looked through.
const LARGE: usize = 32;
/// Places that one container may be made at.
pub(crate) const SITES: usize = 8;

/// Where a container was made, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made {
    pub(crate) sites: Few<usize>,
    /// When it was made first.
    since: usize,
    /// Until when every change is part of it.
    until: usize,
}

impl Made {
    /// It, or another.
    pub(crate) fn or(&mut self, other: &Self) {
        if other.sites.is_empty() {
            return;
        }
        if self.sites.is_empty() {
            self.clone_from(other);
            return;
        }
        let same = self.sites.is_same(&other.sites) || *self.sites == *other.sites;
        self.until = if same { self.until.max(other.until) } else { self.until.min(other.until) };
        self.since = self.since.min(other.since);
        self.sites.add_all(&other.sites, SITES);
    }

    /// Whether both were made at the same places, and changed as long.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.since, self.until) == (other.since, other.until) && *self.sites == *other.sites
    }

    /// Whether the other was made nowhere else.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.sites.is_same(&self.sites)
            || self.sites.len() >= SITES
            || other.sites.iter().all(|site| self.sites.contains(site))
    }
}

/// What happened to the containers of a program.
#[derive(Debug, Default)]
pub(super) struct Heap {
    clock: usize,
    sites: QuickMap<usize, Site>,
    /// When the function that is walked over was entered.
    pub(super) entered: usize,
}

#[derive(Debug, Default)]
struct Site {
    /// What was in it after it was changed, and when that was, the last one last.
    puts: Vec<(usize, Held)>,
    /// What functions put into it that were handed it.
    always: Option<Held>,
    looked_at: bool,
    /// When it was last changed.
    changed: usize,
    /// What was found last time, of what, and when: names are read far more often than anything is put.
    last: Option<(Held, Option<Held>, usize)>,
}

impl Heap {
    /// From the top of the file once more, with what was learned.
    pub(super) fn again(&mut self) {
        self.entered = 0;
        for site in self.sites.values_mut() {
            site.puts.clear();
            site.last = None;
            site.looked_at = false;
        }
    }

    /// The time now, for a function that is entered.
    pub(super) fn now(&mut self) -> usize {
        self.clock += 1;
        self.clock
    }

    /// A container that the expression at `span` makes.
    pub(super) fn make(&mut self, container: &mut Value, span: Span) {
        let now = self.now();
        // No other expression begins and ends where this one does.
        container.made = Made { sites: Few::one(span.start + (span.end << 32)), since: now, until: now };
    }

    /// Whether a container is older than the function that is walked over.
    pub(super) fn was_handed(&self, container: &Value) -> bool {
        container.made.since < self.entered
    }

    /// A container holds this from now on. Whether that is news to somebody who looked at it before.
    pub(super) fn put(&mut self, changed: &mut Value) -> bool {
        if changed.made.sites.is_empty() {
            return false;
        }
        let now = self.now();
        changed.made.until = now;
        let handed = self.was_handed(changed);
        let sites = changed.made.sites.clone();
        let held = Rc::new(changed.clone());
        let mut news = false;
        // What was put into one of several places was mostly put into all of them: then it is joined once for all.
        let (mut always, mut earlier) = (Joins::default(), Joins::default());
        for number in &sites {
            let site = self.sites.entry(*number).or_default();
            site.changed = now;
            if handed {
                news |= add_always(site, &held, &mut always);
            }
            if site.puts.len() >= PUTS {
                let (_, first) = site.puts.remove(0);
                if let Some((_, second)) = site.puts.first_mut() {
                    *second = earlier.of(second, &first, joined);
                }
            }
            site.puts.push((now, Rc::clone(&held)));
        }
        news
    }

    /// What a container holds, with what was put into it elsewhere. Nothing if that changes nothing.
    pub(super) fn found(&mut self, held: &Held) -> Option<Held> {
        let first = held.made.sites.first()?;
        let changed =
            held.made.sites.iter().filter_map(|number| self.sites.get(number)).map(|site| site.changed).max()?;
        if let Some((before, found, when)) = self.sites.get_mut(first).and_then(|site| site.last.as_mut())
            && *when >= changed
            && (Rc::ptr_eq(before, held) || before.is_same(held))
        {
            before.clone_from(held);
            return found.clone();
        }
        let found = self.look(held);
        let when = self.clock;
        if let Some(site) = self.sites.get_mut(first) {
            site.last = Some((Rc::clone(held), found.clone(), when));
        }
        found
    }

    fn look(&mut self, held: &Held) -> Option<Held> {
        let mut now: Option<Held> = None;
        // One that is made at one of several places is changed for all of them at once.
        let mut seen: Vec<*const Value> = Vec::with_capacity(held.made.sites.len() * (PUTS + 1));
        for number in &held.made.sites {
            let Some(site) = self.sites.get_mut(number) else { continue };
            site.looked_at = true;
            let later = site.puts.iter().rev().take_while(|(when, _)| *when > held.made.until).map(|(_, put)| put);
            for put in later.chain(&site.always) {
                if seen.contains(&Rc::as_ptr(put)) {
                    continue;
                }
                seen.push(Rc::as_ptr(put));
                // The newest first: of a word that reads in several ways, the first counts.
                let before = now.as_ref().unwrap_or(held);
                if !Rc::ptr_eq(put, before) && !before.has_all_of(put) {
                    now = Some(Rc::new(Value::clone(put).or(before)));
                }
            }
        }
        now
    }
}

/// Values that were joined already, and what came of it.
#[derive(Debug)]
struct Joins<T>(Vec<(Held, Held, T)>);

impl<T> Default for Joins<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Joins<T> {
    fn of(&mut self, one: &Held, other: &Held, join: impl FnOnce(&Held, &Held) -> T) -> T {
        let known = self.0.iter().find(|(mine, theirs, _)| Rc::ptr_eq(mine, one) && Rc::ptr_eq(theirs, other));
        if let Some((_, _, found)) = known {
            return found.clone();
        }
        let found = join(one, other);
        self.0.push((Rc::clone(one), Rc::clone(other), found.clone()));
        found
    }
}

/// Adds to what a container holds for good. Whether that is news to somebody who looked at it before.
fn add_always(site: &mut Site, held: &Held, joins: &mut Joins<(Held, Learned)>) -> bool {
    let Some(always) = &site.always else {
        site.always = Some(Rc::clone(held));
        return site.looked_at;
    };
    let (always, learned) = joins.of(always, held, |always, held| {
        // One more change makes no difference where it is so large that its items are not told apart.
        let is_large = always.items.as_ref().is_some_and(|items| items.len() > LARGE);
        if is_large && always.flows.covers(&held.flows) {
            return (Rc::clone(always), Learned::Nothing);
        }
        match always.learns(held) {
            Learned::Nothing => (Rc::clone(always), Learned::Nothing),
            learned => (Rc::new(Value::clone(always).or(held)), learned),
        }
    });
    site.always = Some(always);
    learned == Learned::News && site.looked_at
}
