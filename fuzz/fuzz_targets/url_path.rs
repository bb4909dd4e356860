//! A path has one normal form or none. The normal form has nothing left that a server could carry out.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::normalise;

fuzz_target!(|path: &str| {
    let Ok(normal) = normalise(path) else { return };
    assert_eq!(normalise(&normal).as_ref(), Ok(&normal));
    assert!(normal.starts_with('/') && !normal.contains("//"));
    assert!(normal.split('/').all(|segment| segment != "." && segment != ".."));
    assert!(normal.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
    let lower = normal.to_ascii_lowercase();
    assert!(["%2e", "%2f", "%5c", "%25", "%00", "%0a", "%0d"].iter().all(|escape| !lower.contains(escape)));
});
