//! Any bytes are a ClientHello, the beginning of one, or refused; and a server that reads the same bytes finds the same name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::Host;
use ringfence_egress::wire::read_hello;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(hello)) = read_hello(bytes) else { return };
    if let Some(name) = &hello.name {
        assert!(matches!(name, Host::Name(_)), "a name, and no address");
    }
    let mut acceptor = rustls::server::Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                // A name that it does not take for one is no other name.
                if let Some(theirs) = accepted.client_hello().server_name() {
                    let ours = hello.name.as_ref().map(Host::to_string).unwrap_or_default();
                    assert_eq!(theirs.trim_end_matches('.').to_ascii_lowercase(), ours);
                }
                return;
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
});
