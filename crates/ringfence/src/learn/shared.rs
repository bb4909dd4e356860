//! Names below which hosts are given out one by one. The list is data.

const TEXT: &str = include_str!("shared.suffixes");

/// Whether a pattern for all below `parent` would be one for hosts of many owners.
pub(super) fn is_shared(parent: &str) -> bool {
    suffixes().any(|suffix| match suffix.strip_prefix("*.") {
        Some(suffix) => parent == suffix || is_below(parent, suffix) || is_below(suffix, parent),
        None => parent == suffix || is_below(suffix, parent),
    })
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
}

fn suffixes() -> impl Iterator<Item = &'static str> {
    TEXT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfence_policy::HostPattern;

    use super::*;

    #[test]
    fn every_line_is_a_pattern_in_canonical_form_and_stands_there_once() {
        let mut seen = BTreeSet::new();
        for line in suffixes() {
            assert_eq!(line.parse::<HostPattern>().unwrap().to_string(), line);
            assert!(seen.insert(line.trim_start_matches("*.")), "{line} is listed twice");
        }
    }

    #[test]
    fn what_is_shared_is_found_there_above_it_and_below_it_where_the_list_says_so() {
        for shared in ["github.io", "vercel.app", "s3.amazonaws.com", "s3.eu-west-1.amazonaws.com", "amazonaws.com"] {
            assert!(is_shared(shared), "{shared}");
        }
        assert!(is_shared("googleapis.com"), "buckets lie below it");
        for owned in ["example.org", "me.github.io", "notgithub.io", "pypi.org"] {
            assert!(!is_shared(owned), "{owned}");
        }
    }
}
