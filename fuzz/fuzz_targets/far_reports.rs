//! Whatever a far guest sends, sealed or not, and however the wire cuts it: reports or an error, the same ones, within the cap.
//! What is not sealed with its key is never a report.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_guest::far::{FarReport, MOST_FAR_REPORT};
use ringfence_guest::protocol::{HEADER, Reader, VERSION, encode};
use ringfence_guest::seal::{Direction, FrameKey, Seal};

const KEY: FrameKey = FrameKey::known([7; 32]);

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<FarReport>, bool) {
    let mut reader = Reader::<FarReport>::default();
    reader.seal(Seal::new(KEY, Direction::Reports));
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
}

fuzz_target!(|input: (u8, Vec<&[u8]>)| {
    let (size, bodies) = input;
    let mut seal = Seal::new(KEY, Direction::Reports);
    let mut frames = Vec::new();
    let mut plain = Vec::new();
    for body in bodies {
        let Ok(length) = u32::try_from(body.len()) else { return };
        let mut frame = vec![b'R', b'F', b'G', VERSION];
        frame.extend(length.to_le_bytes());
        frame.extend(body);
        plain.extend_from_slice(&frame);
        seal.close(&mut frame).expect("a whole frame can be sealed");
        frames.extend(frame);
    }
    let whole = read(std::iter::once(frames.as_slice()));
    let cut = read(frames.chunks(usize::from(size).max(1)));
    assert_eq!(whole, cut);
    for report in &whole.0 {
        let frame = encode(report, MOST_FAR_REPORT).expect("what was read can be said again");
        assert!(frame.len() <= HEADER + MOST_FAR_REPORT);
    }
    // The same without a seal says nothing.
    assert!(read(std::iter::once(plain.as_slice())).0.is_empty());
});
