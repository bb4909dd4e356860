//! Reads `filter.rules` and `tier.rules` while this crate is compiled: a rule that cannot be understood is an error of the compiler, so
//! no rule can be lost at run time.

use super::calls::CALLS;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Refused with `EPERM`.
    NotPermitted,
    /// Refused with `ENOSYS`.
    NotImplemented,
    /// Decided by the call's arguments.
    ByArguments,
}

/// One line of a file of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The system call.
    pub name: &'static str,
    /// Its number on this architecture; none where the architecture has no such call.
    pub number: Option<u32>,
    /// What happens to it.
    pub action: Action,
    /// Why.
    pub reason: &'static str,
}

const TEXT: &str = include_str!("filter.rules");
const TIER_TEXT: &str = include_str!("tier.rules");

/// What holds behind every wall that shares the host's kernel.
pub(super) static RULES: [Rule; count(TEXT)] = parse(TEXT);
/// What holds besides, or instead, where there are no namespaces.
pub(super) static TIER: [Rule; count(TIER_TEXT)] = parse(TIER_TEXT);

const fn count(text: &str) -> usize {
    let mut rest = text.as_bytes();
    let mut rules = 0;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        rest = after;
        if is_rule(line) {
            rules += 1;
        }
    }
    rules
}

const fn parse<const COUNT: usize>(text: &'static str) -> [Rule; COUNT] {
    let mut rules = [Rule { name: "", number: None, action: Action::NotPermitted, reason: "" }; COUNT];
    let mut rest = text.as_bytes();
    let mut filled = 0;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        rest = after;
        if !is_rule(line) {
            continue;
        }
        let (name, line) = split_word(line);
        let (action, reason) = split_word(line);
        assert!(!reason.is_empty(), "a rule has no reason");
        rules[filled] =
            Rule { name: text_of(name), number: number(name), action: parse_action(action), reason: text_of(reason) };
        filled += 1;
    }
    rules
}

const fn parse_action(word: &[u8]) -> Action {
    match word {
        b"eperm" => Action::NotPermitted,
        b"enosys" => Action::NotImplemented,
        b"args" => Action::ByArguments,
        _ => panic!("an action is none of eperm, enosys, args"),
    }
}

const fn number(name: &[u8]) -> Option<u32> {
    let mut index = 0;
    while index < CALLS.len() {
        if is_same(CALLS[index].name.as_bytes(), name) {
            return CALLS[index].number;
        }
        index += 1;
    }
    panic!("a rule names a system call that seccomp/calls.rs does not have")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

const fn is_rule(line: &[u8]) -> bool {
    !line.is_empty() && line[0] != b'#'
}

const fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while end < text.len() && text[end] != b'\n' {
        end += 1;
    }
    let (line, rest) = text.split_at(end);
    (line.trim_ascii(), rest.trim_ascii_start())
}

const fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    while end < line.len() && line[end] != b' ' {
        end += 1;
    }
    let (word, rest) = line.split_at(end);
    (word, rest.trim_ascii_start())
}

const fn text_of(bytes: &'static [u8]) -> &'static str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a rule is not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_reason_and_no_call_has_two() {
        for rules in [&RULES[..], &TIER] {
            let mut names: Vec<_> = rules.iter().map(|rule| rule.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), rules.len());
            assert!(rules.iter().all(|rule| rule.reason.len() > 5));
        }
    }

    #[test]
    fn every_call_in_the_table_of_numbers_has_a_rule() {
        let rules: Vec<_> = RULES.iter().chain(&TIER).map(|rule| rule.name).collect();
        let unused: Vec<_> = CALLS.iter().map(|call| call.name).filter(|name| !rules.contains(name)).collect();
        assert_eq!(unused, Vec::<&str>::new());
    }

    #[test]
    #[should_panic(expected = "does not have")]
    fn an_unknown_name_is_not_passed_over() {
        parse::<1>("mounnt eperm a typing error must not open the wall\n");
    }

    #[test]
    #[should_panic(expected = "none of")]
    fn an_unknown_action_is_not_passed_over() {
        parse::<1>("mount deny a typing error must not open the wall\n");
    }

    #[test]
    #[should_panic(expected = "no reason")]
    fn a_rule_without_a_reason_is_not_accepted() {
        parse::<1>("mount eperm\n");
    }

    #[test]
    fn comments_and_empty_lines_are_no_rules() {
        assert_eq!(count("# a\n\n  \nmount eperm x y\n# b"), 1);
        let [rule] = parse::<1>("# a\n\n  \nmount   eperm \t x y\n# b");
        assert_eq!((rule.name, rule.action), ("mount", Action::NotPermitted));
    }
}
