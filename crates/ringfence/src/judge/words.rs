//! Command rules against words that are not all known.

use ringfence_policy::{CommandRule, Layer, Reading, ResolvedPolicy, Sourced, Verdict, decide};
use ringfence_validate::{Piece, Text};

/// Where a program of a plain name usually is: another folder may hold another program of that name.
const USUAL: [&str; 5] = ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"];

/// The rule that decides about a command.
#[derive(Debug, PartialEq)]
pub(super) enum Held<'r> {
    /// None does.
    Not,
    /// This one.
    By(&'r Sourced<CommandRule>),
    /// This one, if the words that are not known turn out to be its words; it is stricter than what holds for certain.
    Perhaps(&'r Sourced<CommandRule>),
}

impl<'r> Held<'r> {
    pub(super) fn rule(&self) -> Option<&'r Sourced<CommandRule>> {
        match self {
            Self::Not => None,
            Self::By(rule) | Self::Perhaps(rule) => Some(rule),
        }
    }
}

/// Holds the rules against a command. A word that is not known may be any word, several, or none.
pub(super) fn hold<'r>(rules: &'r [Sourced<CommandRule>], argv: &[Text]) -> Held<'r> {
    let known: Vec<&str> = argv.iter().map_while(Text::as_known).collect();
    let certain = decide(rules, &known);
    let open = argv.get(known.len());
    let now = certain.map_or((Verdict::Allow, Reading::default()), |rule| rule.value.strictness());
    let perhaps = open.and_then(|open| {
        rules
            .iter()
            .filter(|rule| rule.value.strictness() > now && could_hold(&rule.value, &known, open))
            .max_by_key(|rule| (rule.value.strictness(), rule.value.prefix.len()))
    });
    match (perhaps, certain) {
        (Some(rule), _) => Held::Perhaps(rule),
        (None, Some(rule)) => Held::By(rule),
        (None, None) => Held::Not,
    }
}

/// Whether somebody has allowed this command in so many words, and may: then what would be asked about it is answered.
///
/// Not a preset, which knows nothing of this machine, nor a call. Where the operator says how closely requests are read, only the
/// operator's own rule counts: nobody else takes away from that floor.
pub(super) fn vouches(policy: &ResolvedPolicy, argv: &[Text]) -> bool {
    let word = |text: &Text| {
        let piece = |piece: &Piece| match piece {
            Piece::Known(known) | Piece::Pattern(known) => Some(known.clone()),
            Piece::Hole(_) => None,
        };
        text.pieces().iter().map(piece).collect::<Option<String>>()
    };
    let Some(words) = argv.iter().map(word).collect::<Option<Vec<String>>>() else { return false };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(rule) = decide(&policy.commands, &words).filter(|rule| rule.value.verdict == Verdict::Allow) else {
        return false;
    };
    let floor = policy.validate.level.origin.layer == Layer::Operator;
    let may = match rule.origin.layer {
        Layer::Operator => true,
        Layer::User | Layer::Project | Layer::Environment | Layer::Grant => !floor,
        Layer::Default | Layer::Preset(_) | Layer::Call => false,
    };
    let named = match (words.first(), rule.value.prefix.first()) {
        (Some(program), Some(wanted)) => {
            program == wanted || program.rsplit_once('/').is_some_and(|(folder, _)| USUAL.contains(&folder))
        }
        _ => false,
    };
    may && named
}

/// Whether the rule's words begin with those that are known, and could go on with `open`.
fn could_hold(rule: &CommandRule, known: &[&str], open: &Text) -> bool {
    let Some(next) = rule.prefix.get(known.len()) else { return false };
    let begins = rule.prefix.iter().zip(known).enumerate().all(|(place, (wanted, word))| {
        let name = if place == 0 { word.rsplit('/').next().unwrap_or(word) } else { word };
        wanted == word || wanted == name
    });
    // A folder may stand before a program's name.
    let start =
        if known.is_empty() { open.known_start().rsplit('/').next().unwrap_or_default() } else { open.known_start() };
    begins && next.starts_with(start)
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{Layer, LayerInput, resolve};
    use ringfence_validate::{Hole, Piece};

    use super::*;

    /// `$` in a word is where it is not known.
    fn check(line: &str, expected: &str) {
        let rules = "version: 1\ncommands:\n  - { deny: [git, push, --force], matches: [git push --force] }\n  \
                     - { ask: [git, push], matches: [git push] }\n  - { allow: [git, push, --dry-run], matches: [git push --dry-run] }\n";
        let file = ringfence_policy::parse("p.yaml", rules).unwrap();
        let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
        let word = |word: &str| {
            let mut text = Text::default();
            for (place, part) in word.split('$').enumerate() {
                if place > 0 {
                    text.push(Piece::Hole(Hole::Other));
                }
                text.push(Piece::Known(part.to_owned()));
            }
            text
        };
        let argv: Vec<Text> = line.split(' ').map(word).collect();
        let found = match hold(&policy.commands, &argv) {
            Held::Not => "not".to_owned(),
            Held::By(rule) => format!("by {}", rule.value.prefix.join(" ")),
            Held::Perhaps(rule) => format!("perhaps {}", rule.value.prefix.join(" ")),
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn a_word_that_is_not_known_may_be_what_a_stricter_rule_names() {
        check("git push --force", "by git push --force");
        check("git push $", "perhaps git push --force");
        check("git push --f$", "perhaps git push --force");
        check("git push --x$", "by git push");
        check("git push --dry-run $", "by git push --dry-run");
        check("git $ --force", "perhaps git push --force");
        check("/usr/bin/git $", "perhaps git push --force");
        check("$", "perhaps git push --force");
        check("/usr/bin/g$", "perhaps git push --force");
        check("/usr/bin/m$", "not");
        check("ls $", "not");
        check("git status", "not");
    }
}
