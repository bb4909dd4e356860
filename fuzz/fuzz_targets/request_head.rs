//! Any bytes are the head of a request, the beginning of one, or refused; and what is a head is the same one to the parser
//! that reads every later request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::wire::{HeadLimits, read_head};

const LIMITS: HeadLimits = HeadLimits { bytes: 4096, headers: 32 };

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(head)) = read_head(bytes, LIMITS) else { return };
    assert!(head.length <= bytes.len());
    assert_eq!(read_head(&bytes[..head.length], LIMITS), Ok(Some(head.clone())), "what follows decides nothing");
    for cut in 0..head.length {
        assert_eq!(read_head(&bytes[..cut], LIMITS), Ok(None), "it may come in pieces");
    }

    let mut headers = [httparse::EMPTY_HEADER; 33];
    let mut other = httparse::Request::new(&mut headers);
    // What the other refuses is refused later: only two readings of one head would be a hole.
    if let Ok(httparse::Status::Complete(length)) = other.parse(bytes) {
        assert_eq!(length, head.length);
        assert_eq!((other.method, other.path), (Some(head.method.as_str()), Some(head.target.as_str())));
        let mut hosts = other.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        assert_eq!(hosts.next().map(|header| header.value), head.host.as_deref().map(str::as_bytes));
        assert!(hosts.next().is_none());
    }
});
