//! Finds which removed file became which added one. Its effort is bounded, whatever a set holds: what is not found is
//! listed as removed and added, which is as true.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::{Contents, Held};
use crate::workspace::change::{Before, ChangeSet, Node, WasKind};
use crate::workspace::objects::ObjectId;

/// Files that are compared with each other, on each side.
const MOST_CANDIDATES: usize = 200;
/// Contents that are read from the host to know files again.
const MOST_READ: u64 = 64 * 1024 * 1024;
/// Lines that are held against each other.
const MOST_STEPS: usize = 20_000_000;
/// Less alike, and it is another file.
const LEAST_SIMILARITY: u8 = 50;

/// For each added change the removed one, and how alike they are in percent.
pub(super) fn find(set: &ChangeSet, contents: &Contents<'_>) -> HashMap<usize, (usize, u8)> {
    let mut found = HashMap::new();
    let added: Vec<(usize, ObjectId)> = set
        .changes
        .iter()
        .enumerate()
        .filter_map(|(index, change)| match (&change.before, &change.after) {
            (Before::Nothing, Some(Node::File { content, size, .. })) if *size > 0 => Some((index, *content)),
            _ => None,
        })
        .collect();
    if added.is_empty() {
        return found;
    }
    let removed = removed(set, contents);
    let mut by_content: HashMap<ObjectId, Vec<usize>> = HashMap::new();
    // Backwards, so that the first removed one is taken first.
    for (index, id, _) in removed.iter().rev() {
        by_content.entry(*id).or_default().push(*index);
    }
    let mut taken = std::collections::HashSet::new();
    for (index, id) in &added {
        if let Some(from) = by_content.get_mut(id).and_then(Vec::pop) {
            taken.insert(from);
            found.insert(*index, (from, 100));
        }
    }
    let hasher = RandomState::new();
    let olds = removed.into_iter().filter(|(index, _, _)| !taken.contains(index)).take(MOST_CANDIDATES);
    let olds: Vec<(usize, Outline)> =
        olds.filter_map(|(index, _, bytes)| Some((index, Outline::of(&bytes?, &hasher)?))).collect();
    if olds.is_empty() {
        return found;
    }
    let news = added.into_iter().filter(|(index, _)| !found.contains_key(index)).take(MOST_CANDIDATES);
    let news: Vec<(usize, Outline)> =
        news.filter_map(|(index, id)| Some((index, Outline::of(&(contents.kept)(id)?, &hasher)?))).collect();
    for (from, to, similarity) in alike(set, &olds, &news) {
        if !taken.contains(&from) && !found.contains_key(&to) {
            taken.insert(from);
            found.insert(to, (from, similarity));
        }
    }
    found
}

/// Removed files with contents, as many as may be read.
fn removed(set: &ChangeSet, contents: &Contents<'_>) -> Vec<(usize, ObjectId, Option<Vec<u8>>)> {
    let mut left = MOST_READ;
    let mut removed = Vec::new();
    for (index, change) in set.changes.iter().enumerate().filter(|(_, change)| change.after.is_none()) {
        let Before::Was(was) = &change.before else { continue };
        let WasKind::File(kept) = &was.kind else { continue };
        if was.stamp.size == 0 || was.stamp.size > left {
            continue;
        }
        left -= was.stamp.size;
        if let Held::Bytes(bytes) = contents.before(change) {
            removed.push((index, kept.unwrap_or_else(|| ObjectId::of(&bytes)), Some(bytes)));
        }
    }
    removed
}

/// Pairs that are alike, the most alike first; among equals those that kept their name.
fn alike(set: &ChangeSet, olds: &[(usize, Outline)], news: &[(usize, Outline)]) -> Vec<(usize, usize, u8)> {
    let mut steps = 0;
    let mut pairs = Vec::new();
    for (from, old) in olds {
        for (to, new) in news {
            let (smaller, larger) = (old.size.min(new.size), old.size.max(new.size));
            if smaller * 100 / larger.max(1) < usize::from(LEAST_SIMILARITY) {
                continue;
            }
            steps += old.lines.len() + new.lines.len();
            if steps > MOST_STEPS {
                return pairs;
            }
            let similarity = old.similarity(new);
            if similarity >= LEAST_SIMILARITY {
                pairs.push((*from, *to, similarity));
            }
        }
    }
    let name = |index: usize| set.changes.get(index).and_then(|change| change.place.as_path().file_name());
    pairs.sort_by_key(|(from, to, similarity)| (std::cmp::Reverse(*similarity), name(*from) != name(*to), *to));
    pairs
}

/// The lines of a text, as hashes in order, with their sizes.
struct Outline {
    lines: Vec<(u64, usize)>,
    size: usize,
}

impl Outline {
    /// Nothing for what is no text.
    fn of(bytes: &[u8], hasher: &RandomState) -> Option<Self> {
        if super::is_binary(bytes) {
            return None;
        }
        let mut lines: Vec<(u64, usize)> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(|line| (hasher.hash_one(line), line.len())).collect();
        lines.sort_unstable();
        Some(Self { lines, size: bytes.len() })
    }

    /// How much of the larger one both have, in percent; less than 100, for equal ones were found before.
    fn similarity(&self, other: &Self) -> u8 {
        let (mut common, mut here, mut there) = (0, 0, 0);
        while let (Some(one), Some(two)) = (self.lines.get(here), other.lines.get(there)) {
            match one.cmp(two) {
                std::cmp::Ordering::Equal => {
                    common += one.1;
                    here += 1;
                    there += 1;
                }
                std::cmp::Ordering::Less => here += 1,
                std::cmp::Ordering::Greater => there += 1,
            }
        }
        let percent = common * 100 / self.size.max(other.size).max(1);
        u8::try_from(percent.min(99)).unwrap_or(99)
    }
}
