//! Letters of other scripts that look like plain ones, in names.

/// Whether `name` cannot be told by eye from a plain name, or mixes plain letters with ones that look like others.
pub(crate) fn looks_alike(name: &str) -> bool {
    if name.is_ascii() || !name.chars().any(is_lookalike) {
        return false;
    }
    // A word of one other script is an ordinary word, also when some of its letters look familiar.
    name.chars().any(|letter| letter.is_ascii_alphabetic())
        || name.chars().all(|letter| letter.is_ascii() || is_lookalike(letter))
}

fn is_lookalike(letter: char) -> bool {
    "аеорсухіјѕԁһԛԝАВЕКМНОРСТХІЅЈονΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıοѵ".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cyrillic_letter_among_plain_ones_is_a_lookalike_and_a_word_of_another_script_is_not() {
        for (name, expected) in [
            ("еval", true),
            ("оѕ", true),
            ("eval", false),
            ("größe", false),
            ("имя", false),
            ("名前", false),
            ("naïve", false),
            ("λ", false),
        ] {
            assert_eq!(looks_alike(name), expected, "{name}");
        }
    }
}
