//! One request to an engine over its socket: enough of HTTP to ask whether it is there and to hand it an image.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// More of an answer than this is not read.
const MOST_ANSWER: u64 = 1 << 20;

/// What goes with a request.
#[derive(Debug)]
pub(super) enum Body<'a> {
    Nothing,
    File(&'a Path),
}

/// Sends one request. The answer's body where the engine was content, else what it said.
pub(super) fn ask(
    socket: &Path,
    method: &str,
    target: &str,
    body: &Body<'_>,
    patience: Duration,
) -> io::Result<Result<String, String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut file = match body {
        Body::Nothing => None,
        Body::File(path) => Some(File::open(path)?),
    };
    let length = file.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: application/x-tar\r\n\
         Content-Length: {length}\r\n\r\n"
    )?;
    if let Some(file) = &mut file {
        io::copy(file, &mut stream)?;
    }
    let mut answer = Vec::new();
    stream.take(MOST_ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, rest) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    // An engine that fails late has said 200 already, and says the rest in the body.
    Ok(if is_success(head) && !rest.contains("\"error\"") {
        Ok(rest.to_owned())
    } else {
        Err(answer.trim().to_owned())
    })
}

fn is_success(head: &str) -> bool {
    head.split_whitespace().nth(1).is_some_and(|code| code.len() == 3 && code.starts_with('2'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_begins_with_two_is_a_success() {
        assert!(is_success("HTTP/1.1 200 OK") && is_success("HTTP/1.1 201 Created"));
        for other in ["HTTP/1.1 404 Not Found", "HTTP/1.1 500 x", "", "HTTP/1.1", "HTTP/1.1 2"] {
            assert!(!is_success(other), "{other}");
        }
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        let nowhere = Path::new("/no/such/socket");
        assert!(ask(nowhere, "GET", "/_ping", &Body::Nothing, Duration::from_secs(1)).is_err());
    }
}
