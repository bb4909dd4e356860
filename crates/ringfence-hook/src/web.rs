//! Pages that an agent's own tools would fetch: by the rules of the network, as a program's requests are judged.

use ringfence::Refusal;
use ringfence::explain::{Question, explain};
use ringfence::layers::Loaded;

use crate::call::Answer;
use crate::files::shown;

/// More addresses in one call are not judged.
const MOST: usize = 32;

/// The addresses in a text.
pub(crate) fn addresses_in(text: &str) -> Vec<String> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')' | ']' | '}' | ',' | '`');
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = text[..at]
            .rfind(|c: char| !c.is_ascii_alphanumeric())
            .map_or(0, |before| before + text[before..].chars().next().map_or(1, char::len_utf8));
        let end = text[at..].find(is_end).map_or(text.len(), |length| at + length);
        found.push(text[start..end].trim_end_matches(['.', ';', ':', '!', '?']).to_owned());
    }
    found
}

pub(crate) fn judge(loaded: &Loaded, addresses: &[String]) -> Option<Answer> {
    let denied = |address: &str, why: &str, hint: Option<String>| {
        let refusal = Refusal::new("net.rules", format!("`{}` may not be fetched", shown(address)), why);
        let refusal = match hint {
            Some(hint) => refusal.hint(format!("For a person: {hint}.")),
            None => refusal,
        };
        Some(Answer::Deny(
            refusal.instead("Do without it, or ask the person to allow the host. Do not fetch it by another way."),
        ))
    };
    if addresses.is_empty() {
        return denied("nothing", "the call names no address that could be judged", None);
    }
    if addresses.len() > MOST {
        return denied("too much", "it names more addresses than are judged in one call", None);
    }
    addresses.iter().find_map(|address| match Question::read(address, Some("GET"), None) {
        Err(error) => denied(address, &error.to_string(), None),
        Ok(question) => {
            let explanation = explain(loaded, &question);
            (!explanation.allowed)
                .then(|| {
                    denied(address, explanation.why.as_deref().unwrap_or("the policy denies it"), explanation.hint)
                })
                .flatten()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_wherever_they_stand_in_a_text() {
        let text = "Read https://a.example/x?y=1, then (http://b.example:80/). Not a word://; ftp://c.example";
        let found = addresses_in(text);
        assert_eq!(found, ["https://a.example/x?y=1", "http://b.example:80/", "word://", "ftp://c.example"]);
        // What stands before it is a part of its scheme, and then it is denied.
        assert_eq!(addresses_in("ühttps://a.example xhttps://b"), ["https://a.example", "xhttps://b"]);
        assert!(addresses_in("no address").is_empty());
    }
}
