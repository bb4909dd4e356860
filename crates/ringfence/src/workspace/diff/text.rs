//! Compares two texts line by line. Hostile texts must not take more than a bounded effort: what would, is shown as removed
//! and added as a whole, which is just as true.

use std::collections::HashMap;

use diffy::{DiffOptions, Line as Found};

/// Unchanged lines that are shown before and after a difference.
const CONTEXT: usize = 3;
/// What comparing two pieces may cost: the square of their lines.
const MOST_FOR_ONE: u64 = 8_000 * 8_000;
/// How often a piece is parted at lines that stand once in both texts.
const MOST_PARTINGS: usize = 4;

/// What all comparisons of one set may still cost.
#[derive(Debug)]
pub struct Effort {
    left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { left: 12 * MOST_FOR_ONE }
    }
}

impl Effort {
    fn take(&mut self, cost: u64) -> bool {
        if cost > MOST_FOR_ONE || cost > self.left {
            return false;
        }
        self.left -= cost;
        true
    }
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It stayed.
    Same,
    /// It is gone.
    Removed,
    /// It is new.
    Added,
}

/// Lines that differ, with some around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Number of the first line in the old text, from 1; the line before it where there is none.
    pub before_start: usize,
    /// How many lines of the old text.
    pub before_count: usize,
    /// Likewise of the new text.
    pub after_start: usize,
    /// How many lines of the new text.
    pub after_count: usize,
    /// The lines, each with its line end where it has one.
    pub lines: Vec<(Sign, Vec<u8>)>,
}

/// The differences between two texts.
pub(super) fn hunks(before: &[u8], after: &[u8], effort: &mut Effort) -> Vec<Hunk> {
    let old: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
    let new: Vec<&[u8]> = after.split_inclusive(|byte| *byte == b'\n').collect();
    let mut signs = Vec::with_capacity(old.len() + new.len());
    compare(&old, &new, effort, MOST_PARTINGS, &mut signs);
    group(&old, &new, &signs)
}

fn repeat(signs: &mut Vec<Sign>, sign: Sign, times: usize) {
    signs.extend(std::iter::repeat_n(sign, times));
}

fn compare(old: &[&[u8]], new: &[&[u8]], effort: &mut Effort, partings: usize, signs: &mut Vec<Sign>) {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    repeat(signs, Sign::Same, start);
    let (old, new) = (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (old.get(..old.len() - end).unwrap_or_default(), new.get(..new.len() - end).unwrap_or_default());
    compare_differing(old, new, effort, partings, signs);
    repeat(signs, Sign::Same, end);
}

fn compare_differing(old: &[&[u8]], new: &[&[u8]], effort: &mut Effort, partings: usize, signs: &mut Vec<Sign>) {
    let lines = (old.len() + new.len()) as u64;
    let as_a_whole = |signs: &mut Vec<Sign>| {
        repeat(signs, Sign::Removed, old.len());
        repeat(signs, Sign::Added, new.len());
    };
    if old.is_empty() || new.is_empty() {
        return as_a_whole(signs);
    }
    if effort.take(lines.saturating_mul(lines)) {
        match by_diffy(old, new) {
            Some(found) => signs.extend(found),
            None => as_a_whole(signs),
        }
        return;
    }
    let anchors = if partings == 0 { Vec::new() } else { common_anchors(old, new) };
    if anchors.is_empty() {
        return as_a_whole(signs);
    }
    let (mut from_old, mut from_new) = (0, 0);
    for (at_old, at_new) in anchors.into_iter().chain([(old.len(), new.len())]) {
        let piece_old = old.get(from_old..at_old).unwrap_or_default();
        let piece_new = new.get(from_new..at_new).unwrap_or_default();
        compare(piece_old, piece_new, effort, partings - 1, signs);
        if at_old < old.len() {
            signs.push(Sign::Same);
        }
        (from_old, from_new) = (at_old + 1, at_new + 1);
    }
}

/// One sign for each line; nothing when they would not cover both texts.
fn by_diffy(old: &[&[u8]], new: &[&[u8]]) -> Option<Vec<Sign>> {
    let (before, after) = (old.concat(), new.concat());
    let mut options = DiffOptions::new();
    options.set_context_len(old.len() + new.len());
    let patch = options.create_patch_bytes(&before, &after);
    let signs: Vec<Sign> = patch
        .hunks()
        .iter()
        .flat_map(|hunk| hunk.lines())
        .map(|line| match line {
            Found::Context(_) => Sign::Same,
            Found::Delete(_) => Sign::Removed,
            Found::Insert(_) => Sign::Added,
        })
        .collect();
    let count = |without: Sign| signs.iter().filter(|sign| **sign != without).count();
    (count(Sign::Added) == old.len() && count(Sign::Removed) == new.len()).then_some(signs)
}

/// Lines that stand once in both texts, as many as come in the same order.
fn common_anchors(old: &[&[u8]], new: &[&[u8]]) -> Vec<(usize, usize)> {
    #[derive(Default)]
    struct Seen {
        in_old: usize,
        in_new: usize,
        at_new: usize,
    }
    let mut seen: HashMap<&[u8], Seen> = HashMap::new();
    for line in old {
        seen.entry(line).or_default().in_old += 1;
    }
    for (at, line) in new.iter().enumerate() {
        if let Some(seen) = seen.get_mut(line) {
            (seen.in_new, seen.at_new) = (seen.in_new + 1, at);
        }
    }
    let pairs: Vec<(usize, usize)> = old
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, seen.get(line)?)))
        .filter(|(_, seen)| seen.in_old == 1 && seen.in_new == 1)
        .map(|(at, seen)| (at, seen.at_new))
        .collect();
    longest_rising(&pairs)
}

/// The most pairs whose second numbers rise, too.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length the pair with the smallest end, and for each pair the one before it.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, (_, value)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs.get(*end).is_some_and(|(_, other)| other < value));
        previous.push(length.checked_sub(1).and_then(|length| ends.get(length).copied()));
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut rising = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(index) = at {
        rising.extend(pairs.get(index).copied());
        at = previous.get(index).copied().flatten();
    }
    rising.reverse();
    rising
}

/// Puts differences that are near each other into one hunk.
fn group(old: &[&[u8]], new: &[&[u8]], signs: &[Sign]) -> Vec<Hunk> {
    let mut hunks = Vec::new();
    let mut open: Option<Hunk> = None;
    // Lines that stayed, since the last difference.
    let mut quiet = 0;
    let (mut at_old, mut at_new) = (0, 0);
    for sign in signs {
        let line = match sign {
            Sign::Added => new.get(at_new),
            Sign::Same | Sign::Removed => old.get(at_old),
        };
        let line = line.copied().unwrap_or_default();
        if *sign == Sign::Same {
            quiet += 1;
        } else {
            let hunk = open.get_or_insert_with(|| begin(old, at_old, at_new));
            hunk.lines.push((*sign, line.to_owned()));
            quiet = 0;
        }
        if let Some(hunk) = open.as_mut().filter(|_| *sign == Sign::Same) {
            hunk.lines.push((Sign::Same, line.to_owned()));
            if quiet > 2 * CONTEXT {
                hunks.extend(open.take().map(|hunk| finish(hunk, quiet)));
            }
        }
        at_old += usize::from(*sign != Sign::Added);
        at_new += usize::from(*sign != Sign::Removed);
    }
    hunks.extend(open.map(|hunk| finish(hunk, quiet)));
    hunks
}

/// A hunk before its first difference, with the lines above.
fn begin(old: &[&[u8]], at_old: usize, at_new: usize) -> Hunk {
    let above = CONTEXT.min(at_old).min(at_new);
    let lines = old.get(at_old - above..at_old).unwrap_or_default();
    Hunk {
        before_start: at_old - above,
        before_count: 0,
        after_start: at_new - above,
        after_count: 0,
        lines: lines.iter().map(|line| (Sign::Same, (*line).to_owned())).collect(),
    }
}

/// Cuts what stayed at the end, and counts.
fn finish(mut hunk: Hunk, quiet: usize) -> Hunk {
    hunk.lines.truncate(hunk.lines.len() - quiet.saturating_sub(CONTEXT));
    let count = |without: Sign| hunk.lines.iter().filter(|(sign, _)| *sign != without).count();
    (hunk.before_count, hunk.after_count) = (count(Sign::Added), count(Sign::Removed));
    hunk.before_start += usize::from(hunk.before_count > 0);
    hunk.after_start += usize::from(hunk.after_count > 0);
    hunk
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(before: &str, after: &str) -> String {
        let mut text = String::new();
        for hunk in hunks(before.as_bytes(), after.as_bytes(), &mut Effort::default()) {
            text.push_str(&format!(
                "@@ -{},{} +{},{} @@\n",
                hunk.before_start, hunk.before_count, hunk.after_start, hunk.after_count
            ));
            for (sign, line) in &hunk.lines {
                let sign = match sign {
                    Sign::Same => ' ',
                    Sign::Removed => '-',
                    Sign::Added => '+',
                };
                text.push_str(&format!("{sign}{}", String::from_utf8_lossy(line)));
            }
        }
        text
    }

    #[test]
    fn differences_are_shown_with_lines_around_them() {
        assert_eq!(shown("a\nb\nc\n", "a\nB\nc\n"), "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        assert_eq!(shown("", "a\n"), "@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(shown("a\n", ""), "@@ -1,1 +0,0 @@\n-a\n");
        assert_eq!(shown("a\n", "a\n"), "");
        let lines = |from: usize, to: usize| (from..to).map(|line| format!("{line}\n")).collect::<String>();
        let text = shown(&lines(0, 20), &format!("x\n{}y\n", lines(0, 20)));
        assert_eq!(text, "@@ -1,3 +1,4 @@\n+x\n 0\n 1\n 2\n@@ -18,3 +19,4 @@\n 17\n 18\n 19\n+y\n");
    }

    #[test]
    fn f23_hostile_texts_take_bounded_time_and_still_show_every_line() {
        let mut effort = Effort::default();
        let began = std::time::Instant::now();
        for round in 0..40 {
            let old: String = (0..40_000).map(|line| format!("{}\n", line * 7 % 11 + round)).collect();
            let new: String = (0..40_000).map(|line| format!("{}\n", line * 5 % 13 + round)).collect();
            check_whole(old.as_bytes(), new.as_bytes(), &mut effort);
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    }

    #[test]
    fn two_small_differences_far_apart_stay_small() {
        let text: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
        let changed = text.replace("line 5\n", "LINE 5\n").replace("line 39990\n", "LINE 39990\n");
        let found = hunks(text.as_bytes(), changed.as_bytes(), &mut Effort::default());
        let lines: usize = found.iter().map(|hunk| hunk.lines.len()).sum();
        assert_eq!((found.len(), lines), (2, 16));
    }

    /// Puts the old text and the hunks together to the new one.
    fn check_whole(before: &[u8], after: &[u8], effort: &mut Effort) {
        let old: Vec<&[u8]> = before.split_inclusive(|byte| *byte == b'\n').collect();
        let mut at = 0;
        let mut made: Vec<u8> = Vec::new();
        for hunk in hunks(before, after, effort) {
            let start = hunk.before_start - usize::from(hunk.before_count > 0);
            made.extend(old[at..start].concat());
            at = start;
            for (sign, line) in &hunk.lines {
                if *sign != Sign::Added {
                    assert_eq!(old[at], line.as_slice());
                    at += 1;
                }
                if *sign != Sign::Removed {
                    made.extend(line);
                }
            }
        }
        made.extend(old[at..].concat());
        assert!(made == after);
    }

    proptest! {
        #[test]
        fn the_hunks_lead_from_one_text_to_the_other(
            before in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\n'), Just(0xff)], 0..80),
            after in proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'\n'), Just(0xff)], 0..80),
            left in prop_oneof![Just(0u64), Just(100), Just(MOST_FOR_ONE)]
        ) {
            check_whole(&before, &after, &mut Effort { left });
        }
    }
}
