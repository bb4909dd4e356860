//! Tokens of clients over HTTP. Each belongs to one client, which has its own sandboxes, questions and limits.

use std::sync::Arc;

use crate::call::hex;
use crate::client::Client;
use crate::limits::Limits;
use crate::server::random;

const FEWEST_LETTERS: usize = 32;
const MOST_LETTERS: usize = 512;
const MOST_TOKENS: usize = 16;

/// Why there are no tokens.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// None in the text.
    #[error("there is no token; write one on a line of its own")]
    None,
    /// One of them can be guessed, or sent by no client.
    #[error("line {0} is no token: write {FEWEST_LETTERS} to {MOST_LETTERS} letters, digits and marks without spaces")]
    Bad(usize),
    /// Too many.
    #[error("there are more than {MOST_TOKENS} tokens")]
    TooMany,
    /// One of them twice.
    #[error("line {0} is the same token once more")]
    Twice(usize),
    /// The kernel gave no random numbers.
    #[error("there are no random numbers to be had")]
    NoRandomness,
}

/// Who may ask.
#[derive(Debug)]
pub struct Tokens(Vec<blake3::Hash>);

impl Tokens {
    /// One that nobody knows yet, and the token itself, to be shown once.
    pub fn generate() -> Result<(Self, String), TokenError> {
        let token = hex(&random::<32>().map_err(|_| TokenError::NoRandomness)?);
        Ok((Self(vec![blake3::hash(token.as_bytes())]), token))
    }

    /// Those in a text, one a line. Each stands for one client.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        let mut tokens: Vec<blake3::Hash> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() {
                continue;
            }
            let fits = (FEWEST_LETTERS..=MOST_LETTERS).contains(&token.len());
            if !fits || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokenError::Bad(index + 1));
            }
            let hash = blake3::hash(token.as_bytes());
            if tokens.contains(&hash) {
                return Err(TokenError::Twice(index + 1));
            }
            tokens.push(hash);
        }
        match tokens.len() {
            0 => Err(TokenError::None),
            count if count > MOST_TOKENS => Err(TokenError::TooMany),
            _ => Ok(Self(tokens)),
        }
    }

    pub(crate) fn into_clients(self, limits: Limits) -> Clients {
        Clients(self.0.into_iter().map(|token| (token, Arc::new(Client::new(limits)))).collect())
    }
}

/// A client for each token.
pub(crate) struct Clients(Vec<(blake3::Hash, Arc<Client>)>);

impl Clients {
    /// Whose token this is. Hashes are compared, in the same time wherever they differ, and all of them each time.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Arc<Client>> {
        if token.len() > MOST_LETTERS {
            return None;
        }
        let hash = blake3::hash(token);
        let mut found = None;
        for (known, client) in &self.0 {
            if *known == hash {
                found = Some(Arc::clone(client));
            }
        }
        found
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.0.iter().map(|(_, client)| client)
    }

    pub(crate) async fn end(&self) {
        let mut ending = tokio::task::JoinSet::new();
        for (_, client) in &self.0 {
            let client = Arc::clone(client);
            ending.spawn(async move { client.end().await });
        }
        ending.join_all().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    #[test]
    fn a_token_is_long_plain_and_stands_for_one_client() {
        let (one, two) = ("a".repeat(32), "b".repeat(40));
        let clients = Tokens::read(&format!("{one}\n\n {two} \n")).unwrap().into_clients(Limits::default());
        let (first, second) = (clients.find(one.as_bytes()).unwrap(), clients.find(two.as_bytes()).unwrap());
        assert!(!Arc::ptr_eq(&first, &second));
        for bad in ["", "a", &one[1..], &format!("{one}a"), &one.to_uppercase()] {
            assert!(clients.find(bad.as_bytes()).is_none(), "{bad}");
        }
        let (tokens, token) = Tokens::generate().unwrap();
        assert!(tokens.into_clients(Limits::default()).find(token.as_bytes()).is_some());
    }

    #[test]
    fn what_can_be_guessed_is_no_token() {
        let long = "a".repeat(32);
        assert_eq!(Tokens::read("\n").unwrap_err(), TokenError::None);
        assert_eq!(Tokens::read("short").unwrap_err(), TokenError::Bad(1));
        assert_eq!(Tokens::read(&format!("{long}\n{long} x")).unwrap_err(), TokenError::Bad(2));
        assert_eq!(Tokens::read(&format!("{long}\n{long}")).unwrap_err(), TokenError::Twice(2));
        let many: String = (0..17).map(|number| format!("{number:032}\n")).collect();
        assert_eq!(Tokens::read(&many).unwrap_err(), TokenError::TooMany);
    }
}
