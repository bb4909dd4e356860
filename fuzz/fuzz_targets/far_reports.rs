//! Whatever a far guest sends, and however the wire cuts it: reports or an error, the same ones, within the cap.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_guest::far::{FarReport, MOST_FAR_REPORT};
use ringfence_guest::protocol::{HEADER, Reader, encode};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut reader = Reader::<FarReport>::default();
        let mut reports = Vec::new();
        for piece in pieces {
            reader.push(piece);
            loop {
                match reader.next_message() {
                    Ok(Some(report)) => reports.push(report),
                    Ok(None) => break,
                    Err(_) => return (reports, false),
                }
            }
        }
        (reports, true)
    };
    let whole: (Vec<FarReport>, bool) = read(&mut std::iter::once(bytes));
    let cut = read(&mut bytes.chunks(usize::from(size).max(1)));
    assert_eq!(whole, cut);
    for report in &whole.0 {
        let frame = encode(report, MOST_FAR_REPORT).expect("what was read can be said again");
        assert!(frame.len() <= HEADER + MOST_FAR_REPORT);
    }
});
