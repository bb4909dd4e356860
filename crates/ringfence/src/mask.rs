//! Takes secrets out of what a program or tool gave back, before a model sees it. A help, never a wall.
//!
//! Unlike the ledger's redaction it must leave ordinary text as it is, because a model edits files by what it has read: so only what has
//! the form of a token, and values that are known to be secret, are taken out.

use std::ffi::{OsStr, OsString};

/// What stands in a secret's place.
const HIDDEN: &str = "[redacted]";
/// How well-known tokens begin, and how many of their letters follow at least.
const TOKENS: [(&str, usize); 26] = [
    ("sk-ant-", 24),
    ("sk-proj-", 24),
    ("sk-", 32),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xoxs-", 20),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 40),
    ("hf_", 30),
    ("SG.", 40),
    ("eyJ", 60),
];
const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "PRIVATE KEY-----";
/// Words in the name of a variable whose value is a secret.
const SECRET_NAMES: [&str; 8] =
    ["PASSWORD", "PASSWD", "SECRET", "TOKEN", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"];
/// A shorter value would be found in ordinary text.
const SHORTEST_VALUE: usize = 12;

/// What is to be taken out.
#[derive(Debug, Default)]
pub struct Mask {
    values: Vec<String>,
}

impl Mask {
    /// Tokens by their form, and the values of those variables of `environment` whose name says that it is a secret.
    pub fn of(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let names_secret = |name: &OsStr| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            SECRET_NAMES.iter().any(|word| name.contains(word))
        };
        let values = environment.into_iter().filter(|(name, _)| names_secret(name));
        let values = values.filter_map(|(_, value)| value.into_string().ok());
        // A path to where a secret lies is none.
        let secret =
            |value: &String| value.len() >= SHORTEST_VALUE && !value.starts_with('/') && !value.contains("://");
        let mut values: Vec<String> = values.filter(secret).collect();
        // The longest first: one may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values }
    }

    /// The text without secrets; nothing where there are none.
    pub fn text(&self, text: &str) -> Option<String> {
        let mut masked: Option<String> = None;
        for value in &self.values {
            let now = masked.as_deref().unwrap_or(text);
            if now.contains(value.as_str()) {
                masked = Some(now.replace(value.as_str(), HIDDEN));
            }
        }
        if let Some(without) = without_tokens(masked.as_deref().unwrap_or(text)) {
            masked = Some(without);
        }
        if let Some(without) = without_keys(masked.as_deref().unwrap_or(text)) {
            masked = Some(without);
        }
        masked
    }
}

fn is_token_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn without_tokens(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        // Only where a word begins: `task-…` holds `sk-` and is none.
        let begins = is_token_letter(bytes[at]) && (at == 0 || !is_token_letter(bytes[at - 1]));
        if !begins {
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().take_while(|byte| is_token_letter(**byte)).count();
        let word = &text[at..at + length];
        if is_token(word) {
            out.push_str(&text[copied..at]);
            out.push_str(HIDDEN);
            copied = at + length;
        }
        at += length;
    }
    (copied > 0).then(|| out + &text[copied..])
}

/// Words that people write have no digits, or few letters after such a beginning.
fn is_token(word: &str) -> bool {
    TOKENS.iter().any(|(start, least)| {
        word.strip_prefix(start)
            .is_some_and(|rest| rest.len() >= *least && rest.bytes().any(|byte| byte.is_ascii_digit()))
    })
}

/// Private keys: what stands between the line that begins one and the line that ends it, or the end.
fn without_keys(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(KEY_BEGINS) {
        let head = &rest[at + KEY_BEGINS.len()..];
        let line = head.lines().next().unwrap_or_default();
        let Some(begins) = line.find(KEY_ENDS).map(|end| end + KEY_ENDS.len()) else {
            out.push_str(&rest[..at + KEY_BEGINS.len()]);
            rest = head;
            continue;
        };
        let body = &head[begins..];
        let end = body.find("-----END ").unwrap_or(body.len());
        out.push_str(&rest[..at + KEY_BEGINS.len() + begins]);
        // Code that only speaks of keys stays as it is.
        if body[..end].bytes().filter(u8::is_ascii_alphanumeric).count() < SHORTEST_VALUE {
            out.push_str(&body[..end]);
        } else {
            out.push_str(HIDDEN);
        }
        rest = &body[end..];
    }
    out.push_str(rest);
    (out != text).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Option<&str>) {
        let mask = Mask::of([
            ("MY_TOKEN".into(), "correct-horse-battery".into()),
            ("TOKEN_FILE".into(), "/run/secrets/token".into()),
            ("SHORT_TOKEN".into(), "short".into()),
            ("HOME".into(), "/home/somebody".into()),
        ]);
        assert_eq!(mask.text(text).as_deref(), expected, "{text}");
    }

    #[test]
    fn s04_tokens_keys_and_the_values_of_secret_variables_are_taken_out() {
        check("x ghp_0123456789abcdefghijklmnopqrstuvwxyz y", Some("x [redacted] y"));
        check("AKIA0123456789ABCDEF", Some("[redacted]"));
        check("say correct-horse-battery!", Some("say [redacted]!"));
        check(
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0\n-----END RSA PRIVATE KEY-----\nafter",
            Some("-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----\nafter"),
        );
    }

    #[test]
    fn ordinary_text_and_code_stay_byte_for_byte() {
        for text in [
            "",
            "let token: String = read_token()?;",
            "password = hunter2",
            "task-management-system-for-0123456789-people-and-more",
            "eyJ",
            "npm_config_registry_and_a_long_name_of_a_variable",
            "if text.starts_with(\"-----BEGIN PRIVATE KEY-----\") {",
            "/run/secrets/token and short in /home/somebody",
            "grüße -----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA0\n",
        ] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(-----BEGIN |PRIVATE KEY-----|-----END |sk-|ghp_|[a-z0-9\u{fc}\n ]{0,40}){0,12}") {
            Mask::of([("A_TOKEN".into(), "aaaaaaaaaaaa".into())]).text(&text);
        }
    }
}
