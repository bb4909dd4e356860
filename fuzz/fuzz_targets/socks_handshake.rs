//! Any bytes are a SOCKS5 message, the beginning of one, or refused; and a host that was read has one form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::Host;
use ringfence_egress::wire::{Read, read_greeting, read_request};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Read::Complete((), length)) = read_greeting(bytes) {
        assert!((0..length).all(|cut| read_greeting(&bytes[..cut]) == Ok(Read::Incomplete)));
        assert_eq!(read_greeting(&bytes[..length]), Ok(Read::Complete((), length)));
    }
    if let Ok(Read::Complete(request, length)) = read_request(bytes) {
        assert!((0..length).all(|cut| read_request(&bytes[..cut]) == Ok(Read::Incomplete)));
        assert_eq!(read_request(&bytes[..length]), Ok(Read::Complete(request.clone(), length)));
        if let Ok(host) = request.host {
            assert_eq!(Host::parse(&host.to_string()).as_ref(), Ok(&host));
        }
    }
});
