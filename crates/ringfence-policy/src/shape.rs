//! Common forms of patterns, matched without a regular expression: compiling one costs more than a whole start.

/// What a pattern of the form `**/NAME/…/NAME` or `**/NAME/…/NAME/**` comes to; in each name one `*` is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    names: Vec<Name>,
    reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// What the names end at.
    Itself,
    /// Everything below that.
    Below,
}

/// One name of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Literal(Box<[u8]>),
    /// What stands before and after a `*`.
    Around(Box<[u8]>, Box<[u8]>),
}

impl Shape {
    /// The shape of a pattern, if it has one of these forms.
    pub(crate) fn of(pattern: &str) -> Option<Self> {
        let rest = pattern.strip_prefix("**/")?;
        let (rest, reach) = match rest.strip_suffix("/**") {
            Some(rest) => (rest, Reach::Below),
            None => (rest, Reach::Itself),
        };
        Some(Self { names: rest.split('/').map(Name::of).collect::<Option<_>>()?, reach })
    }

    /// Whether it matches `path`; nothing where that is not plain names with one slash between them, which is left to
    /// the general matcher.
    pub(crate) fn matches(&self, path: &[u8]) -> Option<bool> {
        let plain = !path.is_empty()
            && !path.starts_with(b"/")
            && !path.ends_with(b"/")
            && !path.windows(2).any(|two| two == b"//");
        plain.then(|| match self.reach {
            Reach::Itself => self.ends(path),
            Reach::Below => {
                let mut above = path;
                while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
                    above = &above[..slash];
                    if self.ends(above) {
                        return true;
                    }
                }
                false
            }
        })
    }

    /// Whether the last of its names is this one.
    pub(crate) fn may_end_in(&self, name: &[u8]) -> bool {
        self.names.last().is_none_or(|last| last.matches(name))
    }

    /// Whether the last names of `path` are these.
    fn ends(&self, path: &[u8]) -> bool {
        let mut parts = path.rsplit(|byte| *byte == b'/');
        self.names.iter().rev().all(|name| parts.next().is_some_and(|part| name.matches(part)))
    }
}

impl Name {
    fn of(text: &str) -> Option<Self> {
        match text.split_once('*') {
            None => is_literal(text).then(|| Self::Literal(text.as_bytes().into())),
            // A name of only a star would match the empty one before a slash: left to the general matcher.
            Some((start, end)) if (is_literal(start) || start.is_empty()) && (is_literal(end) || end.is_empty()) => {
                (text.len() > 1).then(|| Self::Around(start.as_bytes().into(), end.as_bytes().into()))
            }
            Some(_) => None,
        }
    }

    fn matches(&self, part: &[u8]) -> bool {
        match self {
            Self::Literal(name) => part == &**name,
            Self::Around(start, end) => {
                part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
            }
        }
    }
}

/// Whether a pattern's part means just itself.
fn is_literal(text: &str) -> bool {
    !text.is_empty()
        && text != "."
        && text != ".."
        && !text.bytes().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b'\\' | b','))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_common_forms_are_known_and_others_are_not() {
        for known in ["**/.env", "**/id_rsa*", "**/*key.pem", "**/.env.*.local", "**/.ssh/**", "**/.config/gcloud/**"] {
            assert!(Shape::of(known).is_some(), "{known}");
        }
        for other in ["a/*", "**", "**/*", "**/a?b", "*.pem", "**/[ab]", "**/{a,b}", "**/a\\*", "**//a", "**/a**b"] {
            assert_eq!(Shape::of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_form_matches_just_what_the_general_matcher_does(
            pattern in prop_oneof![
                "\\*\\*/[ab.]{0,2}\\*?[ab.]{1,2}",
                "\\*\\*/[ab.]{1,3}\\*?[ab.]{0,2}/\\*\\*",
                "\\*\\*/[ab.]{1,3}\\*?[ab.]{0,2}/[ab.]{1,3}\\*?(/\\*\\*)?",
            ],
            path in "[ab./]{0,9}",
        ) {
            let general = globset::GlobBuilder::new(&pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .unwrap()
                .compile_matcher();
            if let Some(matched) = Shape::of(&pattern).and_then(|shape| shape.matches(path.as_bytes())) {
                prop_assert_eq!(matched, general.is_match(&path), "{} / {}", pattern, path);
            }
        }
    }
}
