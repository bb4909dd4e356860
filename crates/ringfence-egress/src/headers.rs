//! Headers that are for one hop, and those that would say something else than what was judged.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// For the next hop only.
const ONE_HOP: [&str; 12] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-authentication-info",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
];

/// What `Connection` may not declare to be for one hop: without it the request would be another.
const NEVER_ONE_HOP: [&str; 8] =
    ["host", "content-length", "content-type", "content-encoding", "authorization", "cookie", "accept", "origin"];

/// Would have an origin take another method or path than the one that was judged.
const OVERRIDES: [&str; 6] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];

/// A header that has an origin act on something else than what was judged.
pub(crate) fn override_in(headers: &HeaderMap) -> Option<&'static str> {
    OVERRIDES.into_iter().find(|name| headers.keys().any(|key| are_alike(key.as_str(), name)))
}

/// Whether some server could take two names, in small letters, for the same. Some take `_` for `-`.
pub(crate) fn are_alike(one: &str, other: &str) -> bool {
    let bytes = |name: &str| name.bytes().map(|byte| if byte == b'_' { b'-' } else { byte }).collect::<Vec<u8>>();
    one.len() == other.len() && bytes(one) == bytes(other)
}

/// Whether the headers ask for a WebSocket.
pub(crate) fn wants_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    upgrade && connection_words(headers).any(|word| word == "upgrade")
}

/// Takes away what is for one hop; says which header makes that impossible.
pub(crate) fn strip(headers: &mut HeaderMap) -> Result<(), String> {
    let declared: Vec<String> = connection_words(headers).collect();
    for name in &declared {
        if NEVER_ONE_HOP.contains(&name.as_str()) {
            return Err(format!("`Connection` names `{name}`, which is not for one hop"));
        }
    }
    let trailers = headers.get(header::TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in declared.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
        headers.remove(name);
    }
    for name in ONE_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Ok(())
}

/// The same for a response, which is not refused for it. `Alt-Svc` would lead around us.
pub(crate) fn strip_response(headers: &mut HeaderMap) {
    let declared: Vec<String> = connection_words(headers).collect();
    for name in declared.iter().filter(|name| !NEVER_ONE_HOP.contains(&name.as_str())) {
        headers.remove(name.as_str());
    }
    for name in ONE_HOP {
        headers.remove(name);
    }
    headers.remove(header::ALT_SVC);
}

/// Takes away what the policy leaves out, in every spelling.
pub(crate) fn leave_out(headers: &mut HeaderMap, names: &[String]) {
    if names.is_empty() {
        return;
    }
    let found = headers.keys().filter(|name| names.iter().any(|known| are_alike(known, name.as_str())));
    for name in found.cloned().collect::<Vec<HeaderName>>() {
        headers.remove(name);
    }
}

/// Says that the connection becomes a WebSocket.
pub(crate) fn say_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

fn connection_words(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|word| word.trim().to_ascii_lowercase())
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn e18_what_is_for_one_hop_goes_no_further_and_nothing_else_is_declared_to_be() {
        let mut map = headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ]);
        assert_eq!(strip(&mut map), Ok(()));
        assert_eq!(map, headers(&[("accept", "*/*"), ("te", "trailers")]));
        for name in ["Host", "content-length", "Authorization"] {
            let mut map = HeaderMap::new();
            map.insert(header::CONNECTION, HeaderValue::from_str(name).unwrap());
            assert!(strip(&mut map).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_left_out_is_left_out_in_every_spelling() {
        let mut map = headers(&[("x-id", "1"), ("x_id", "2"), ("x-idle", "3"), ("accept", "*/*")]);
        map.append("x-id", HeaderValue::from_static("4"));
        leave_out(&mut map, &["x-id".to_owned()]);
        assert_eq!(map, headers(&[("x-idle", "3"), ("accept", "*/*")]));
    }

    #[test]
    fn what_would_change_the_request_is_found_in_every_spelling() {
        assert_eq!(override_in(&headers(&[("x_http_method-override", "PUT")])), Some("x-http-method-override"));
        assert_eq!(override_in(&headers(&[("x-original-url", "/")])), Some("x-original-url"));
        assert_eq!(override_in(&headers(&[("x-original-urls", "/"), ("x-http-methods", "PUT")])), None);
    }

    #[test]
    fn only_a_websocket_is_an_upgrade() {
        assert!(wants_websocket(&headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")])));
        assert!(!wants_websocket(&headers(&[("connection", "upgrade"), ("upgrade", "h2c")])));
        assert!(!wants_websocket(&headers(&[("upgrade", "websocket")])));
    }
}
