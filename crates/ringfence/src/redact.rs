//! Takes secrets out of text before it is written down. A help for people who read logs, never a wall.

/// What stands in a secret's place.
const HIDDEN: &str = "[redacted]";
/// Beginnings of well-known tokens, each followed by the secret itself.
const TOKEN_STARTS: &[&str] = &[
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
    "eyJ",
];
/// Words in the name of an option or variable whose value is a secret.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "private_key",
    "credential",
];
const SHORTEST_TOKEN: usize = 12;

/// The arguments with secrets taken out: tokens by their form, and values of options whose name says secret.
pub(crate) fn redact_argv<S: AsRef<str>>(argv: &[S]) -> Vec<String> {
    let mut hide_next = false;
    argv.iter()
        .map(|argument| {
            let argument = argument.as_ref();
            if std::mem::take(&mut hide_next) && !argument.starts_with('-') {
                return HIDDEN.to_owned();
            }
            let is_option = argument.starts_with('-');
            hide_next = is_option && !argument.contains('=') && names_a_secret(argument);
            redact(argument)
        })
        .collect()
}

/// The text with secrets taken out.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hide_next = false;
    for piece in split_keeping(text) {
        if !piece.starts_with(is_part_of_a_word) {
            out.push_str(piece);
            continue;
        }
        if std::mem::take(&mut hide_next) && !piece.eq_ignore_ascii_case("basic") {
            out.push_str(HIDDEN);
            continue;
        }
        hide_next = piece.eq_ignore_ascii_case("bearer") || piece.eq_ignore_ascii_case("basic");
        out.push_str(&redact_word(piece));
    }
    out
}

fn redact_word(word: &str) -> String {
    if let Some((name, value)) = word.split_once(['=', ':'])
        && !value.is_empty()
    {
        if names_a_secret(name) {
            return format!("{}{HIDDEN}", &word[..=name.len()]);
        }
        // A password inside an address: `scheme://user:password@host`.
        if let Some((scheme, rest)) = word.split_once("://")
            && let Some((user, host)) = rest.split_once('@')
            && let Some((user, _)) = user.split_once(':')
        {
            return format!("{scheme}://{user}:{HIDDEN}@{host}");
        }
    }
    let start = TOKEN_STARTS.iter().filter_map(|start| word.find(start)).min();
    match start {
        Some(at) if word.len() - at >= SHORTEST_TOKEN => format!("{}{HIDDEN}", &word[..at]),
        Some(_) | None => word.to_owned(),
    }
}

fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

fn is_part_of_a_word(character: char) -> bool {
    !character.is_whitespace() && !matches!(character, '"' | '\'' | '`' | ';' | '|' | '&' | '(' | ')' | ',' | '{' | '}')
}

/// Words and what stands between them, in turn; together they are the text.
fn split_keeping(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = rest.find(|character| is_part_of_a_word(character) != is_part_of_a_word(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(redact(text), expected);
    }

    #[test]
    fn s04_tokens_and_named_secrets_are_taken_out() {
        check("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: Bearer [redacted]' x");
        check("export API_KEY=hunter2; ls", "export API_KEY=[redacted]; ls");
        check("git clone https://me:pw@host/x", "git clone https://me:[redacted]@host/x");
        check("echo ghp_abcdefghijklmnop", "echo [redacted]");
        check("x=sk-ant-REDACTED", "x=[redacted]");
    }

    #[test]
    fn s04_the_value_after_a_secret_option_is_taken_out() {
        assert_eq!(redact_argv(&["mysql", "--password", "pw", "db"]), ["mysql", "--password", "[redacted]", "db"]);
        assert_eq!(redact_argv(&["x", "--token=abc"]), ["x", "--token=[redacted]"]);
    }

    #[test]
    fn ordinary_text_stays() {
        for text in ["python3 -c 'print(1)'", "make -j2 test", "risk-free", "a=b", "http://host:80/path"] {
            check(text, text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            redact(&text);
            redact_argv(&[&text, &text]);
        }
    }
}
