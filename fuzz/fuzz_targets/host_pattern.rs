//! A host that a policy names has one form, covers itself, and never covers more than true subdomains.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::Host;
use ringfence_policy::HostPattern;

fuzz_target!(|text: &str| {
    if let Ok(host) = Host::parse(text) {
        assert_eq!(Host::parse(&host.to_string()), Ok(host), "one form");
    }
    let Ok(pattern) = text.parse::<HostPattern>() else { return };
    assert_eq!(pattern.to_string().parse::<HostPattern>().as_ref(), Ok(&pattern), "one form");
    assert!(pattern.covers(&pattern));
    match &pattern {
        HostPattern::Name(name) => {
            assert!(pattern.covers_name(name));
            assert!(!pattern.covers_name(&format!("a.{name}")));
            assert!(!pattern.covers_name(&format!("a{name}")));
            assert_eq!(Host::parse(text).as_ref(), Ok(&Host::Name(name.clone())), "the same to whoever asks for it");
        }
        HostPattern::Subdomains(name) => {
            assert!(!pattern.covers_name(name));
            assert!(!pattern.covers_name(&format!("a{name}")));
            assert!(!pattern.covers_name(&format!("a.{name}0")));
            assert!(pattern.covers_name(&format!("a.{name}")));
            assert!(name.contains('.'), "never a whole top-level domain");
        }
        HostPattern::Address(_) => assert!(!pattern.covers_name("a.example.com")),
    }
});
