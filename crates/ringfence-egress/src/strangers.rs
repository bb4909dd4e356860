//! Hosts that are channels to strangers. The list is data; `../data/strangers.hosts` says why each part of it is there.

use std::collections::HashSet;
use std::sync::OnceLock;

const TEXT: &str = include_str!("../data/strangers.hosts");

struct List {
    exact: HashSet<&'static str>,
    below: HashSet<&'static str>,
    /// The most labels of a name in `below`.
    deepest: usize,
}

/// Whether `name`, in canonical form, is a channel to strangers.
pub(crate) fn is_channel(name: &str) -> bool {
    static LIST: OnceLock<List> = OnceLock::new();
    let list = LIST.get_or_init(read);
    list.exact.contains(name) || parents(name, list.deepest).any(|parent| list.below.contains(parent))
}

/// The names above `name` that have at most `deepest` labels, nearest first. What is longer need not be hashed.
pub(crate) fn parents(name: &str, deepest: usize) -> impl Iterator<Item = &str> {
    let first = name.rmatch_indices('.').take(deepest).last().map(|(dot, _)| dot + 1);
    std::iter::successors(first, move |start| {
        let rest = name.get(*start..)?;
        rest.find('.').map(|dot| start + dot + 1)
    })
    .filter_map(move |start| name.get(start..))
}

pub(crate) fn labels(name: &str) -> usize {
    name.bytes().filter(|byte| *byte == b'.').count() + 1
}

fn read() -> List {
    let mut list = List { exact: HashSet::new(), below: HashSet::new(), deepest: 0 };
    for line in patterns() {
        match line.strip_prefix("*.") {
            Some(name) => {
                list.deepest = list.deepest.max(labels(name));
                list.below.insert(name)
            }
            None => list.exact.insert(line),
        };
    }
    list
}

fn patterns() -> impl Iterator<Item = &'static str> {
    TEXT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use ringfence_policy::HostPattern;

    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_pattern_in_canonical_form_and_stands_there_once() {
        let mut seen = HashSet::new();
        for line in patterns() {
            assert_eq!(line.parse::<HostPattern>().unwrap().to_string(), line);
            assert!(seen.insert(line), "{line} is listed twice");
        }
        assert!(seen.len() > 50);
    }

    #[test]
    fn a_channel_is_found_by_its_name_and_below_it_where_the_list_says_so() {
        assert!(is_channel("webhook.site"));
        assert!(is_channel("a.b.webhook.site"));
        assert!(is_channel("x.ngrok.io"));
        assert!(!is_channel("ngrok.io"));
        assert!(!is_channel("notwebhook.site"));
        assert!(!is_channel("pypi.org"));
    }
}
