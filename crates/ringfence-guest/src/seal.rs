//! The seal of frames between a host and a far guest.
//!
//! Some kernels let a program open what its guest speaks through. So every frame after the first order ends with a tag that
//! only the two ends can make, over the frame's direction, its number and its body. A program could still write there, or take
//! something away: then a tag is wrong, and each end gives the other up. It can never say anything.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::protocol::{BadFrame, HEADER, header};

/// How long the tag at the end of a sealed frame is.
pub const TAG: usize = 16;

/// What seals the frames of one guest. It is made for it, sent to it before any program runs, and kept nowhere else.
#[derive(Clone, Serialize, Deserialize)]
pub struct FrameKey([u8; blake3::KEY_LEN]);

impl FrameKey {
    /// A new one, from the system's random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut key = [0u8; blake3::KEY_LEN];
        let mut filled = 0;
        while let Some(rest) = key.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Self(key))
    }

    /// One that is known, for tests.
    #[doc(hidden)]
    pub const fn known(key: [u8; blake3::KEY_LEN]) -> Self {
        Self(key)
    }
}

/// It may be printed with what holds it, and says nothing.
impl fmt::Debug for FrameKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FrameKey(..)")
    }
}

/// Which way a frame goes. What one end says cannot be said back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the host.
    Orders,
    /// From the guest.
    Reports,
}

/// Seals the frames of one direction, or opens them, one after the other.
#[derive(Debug)]
pub struct Seal {
    key: FrameKey,
    direction: Direction,
    /// The number of the next frame.
    next: u64,
}

impl Seal {
    /// For the first frame of a direction.
    pub fn new(key: FrameKey, direction: Direction) -> Self {
        Self { key, direction, next: 0 }
    }

    /// Puts the next tag at the end of a whole frame, of which it becomes a part. What is sealed first has to be sent first.
    pub fn close(&mut self, frame: &mut Vec<u8>) -> Result<(), BadFrame> {
        let tag = self.next_tag(frame.get(HEADER..).ok_or(BadFrame::Meaningless)?);
        frame.extend_from_slice(&tag);
        let length = frame.len() - HEADER;
        let word = u32::try_from(length).map_err(|_| BadFrame::TooLong { length, most: HEADER })?;
        frame.get_mut(..HEADER).ok_or(BadFrame::Meaningless)?.copy_from_slice(&header(word));
        Ok(())
    }

    /// The body of a frame without its tag, which has to be the next one. After an error nothing more is to be believed.
    pub fn open<'a>(&mut self, body: &'a [u8]) -> Result<&'a [u8], BadFrame> {
        let (body, tag) = body.split_last_chunk::<TAG>().ok_or(BadFrame::Seal)?;
        let expected = self.next_tag(body);
        // Hashes are compared in a time that says nothing of where they differ.
        if as_hash(&expected) == as_hash(tag) { Ok(body) } else { Err(BadFrame::Seal) }
    }

    fn next_tag(&mut self, body: &[u8]) -> [u8; TAG] {
        let direction = match self.direction {
            Direction::Orders => 1u8,
            Direction::Reports => 2,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.key.0);
        hasher.update(&[direction]).update(&self.next.to_le_bytes()).update(body);
        // It never comes round: a frame a nanosecond would take centuries.
        self.next = self.next.wrapping_add(1);
        let mut tag = [0; TAG];
        hasher.finalize_xof().fill(&mut tag);
        tag
    }
}

fn as_hash(tag: &[u8; TAG]) -> blake3::Hash {
    let mut bytes = [0; blake3::OUT_LEN];
    for (to, from) in bytes.iter_mut().zip(tag) {
        *to = *from;
    }
    blake3::Hash::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::{Begin, FarOrder, FarReport, FarWorkspace, MOST_FAR_REPORT};
    use crate::protocol::{Reader, encode};
    use crate::{Order, Report};
    use ringfence_linux::wall::{Contained, Kernel};

    const KEY: FrameKey = FrameKey::known([7; 32]);

    fn said(number: u32) -> FarReport {
        FarReport::Report(Report::Started { program: number, terminal: false })
    }

    /// Three frames, sealed with `key` for `direction`.
    fn frames(key: FrameKey, direction: Direction) -> Vec<Vec<u8>> {
        let mut seal = Seal::new(key, direction);
        let close = |number| {
            let mut frame = encode(&said(number), MOST_FAR_REPORT).unwrap();
            seal.close(&mut frame).unwrap();
            frame
        };
        [1, 2, 3].map(close).to_vec()
    }

    /// What is read of these frames, and whether all of them were believed.
    fn read(frames: &[&[u8]]) -> (Vec<FarReport>, Result<(), BadFrame>) {
        let mut reader = Reader::<FarReport>::default();
        reader.seal(Seal::new(KEY, Direction::Reports));
        let mut seen = Vec::new();
        for frame in frames {
            reader.push(frame);
            loop {
                match reader.next_message() {
                    Ok(Some(report)) => seen.push(report),
                    Ok(None) => break,
                    Err(error) => return (seen, Err(error)),
                }
            }
        }
        (seen, Ok(()))
    }

    #[test]
    fn sealed_frames_are_believed_in_their_order_and_only_once() {
        let frames = frames(KEY, Direction::Reports);
        let [first, second, third] = &frames[..] else { panic!() };
        assert_eq!(read(&[first, second, third]), (vec![said(1), said(2), said(3)], Ok(())));
        assert_eq!(read(&[first, first]), (vec![said(1)], Err(BadFrame::Seal)), "said again");
        assert_eq!(read(&[first, third]), (vec![said(1)], Err(BadFrame::Seal)), "one is missing");
        assert_eq!(read(&[second, first, third]), (vec![], Err(BadFrame::Seal)), "in another order");
    }

    #[test]
    fn a_frame_that_somebody_else_made_or_changed_is_refused() {
        let good = frames(KEY, Direction::Reports).remove(0);
        assert_eq!(read(&[&good]), (vec![said(1)], Ok(())));
        for at in HEADER..good.len() {
            for bit in [1, 0x80] {
                let mut changed = good.clone();
                changed[at] ^= bit;
                assert_eq!(read(&[&changed]), (vec![], Err(BadFrame::Seal)), "byte {at}");
            }
        }
        let plain = encode(&said(1), MOST_FAR_REPORT).unwrap();
        let of_another_key = frames(FrameKey::known([8; 32]), Direction::Reports).remove(0);
        let said_back = frames(KEY, Direction::Orders).remove(0);
        let empty = header(0).to_vec();
        for forged in [plain, of_another_key, said_back, empty] {
            assert_eq!(read(&[&forged]), (vec![], Err(BadFrame::Seal)), "{forged:?}");
        }
    }

    #[test]
    fn the_longest_report_still_fits_when_it_is_sealed() {
        let longest = |length: usize| {
            let mut frame = header(u32::try_from(length).unwrap()).to_vec();
            frame.resize(HEADER + length, 0);
            read(&[&frame]).1
        };
        assert_eq!(longest(MOST_FAR_REPORT + TAG), Err(BadFrame::Seal), "it was read whole");
        assert!(matches!(longest(MOST_FAR_REPORT + TAG + 1), Err(BadFrame::TooLong { .. })));
    }

    #[test]
    fn a_key_is_another_every_time_and_is_never_printed() {
        let (one, two) = (FrameKey::generate().unwrap(), FrameKey::generate().unwrap());
        assert!(one.0 != two.0 && one.0 != [0; 32]);
        let contained = Contained {
            uid: 1,
            gid: 1,
            kernel: Kernel::Own,
            workspace: "/".into(),
            writable: Vec::new(),
            rlimits: Vec::new(),
            paths: Vec::new(),
            memory: None,
            processes: None,
            processors: None,
        };
        let begin = Box::new(Begin { contained, workspace: FarWorkspace::AsItIs, door: None });
        let key = FrameKey::known(*b"the letters that are not printed");
        let seal = Seal::new(key.clone(), Direction::Orders);
        let order = FarOrder::Begin { begin, key: key.clone() };
        let mut reader = Reader::<FarOrder>::default();
        reader.push(&encode(&order, MOST_FAR_REPORT).unwrap());
        reader.seal(Seal::new(key.clone(), Direction::Orders));
        let printed = format!("{key:?} {seal:?} {reader:#?} {:?}", order);
        assert!(printed.contains("FrameKey(..)") && printed.contains("AsItIs"), "{printed}");
        for part in ["letters", "116, 104, 101", "116,\n"] {
            assert!(!printed.contains(part), "{printed}");
        }
        // The twin: what is not hidden would be found so.
        assert!(format!("{:?}", b"the letters").contains("116, 104, 101"));
        assert!(format!("{:?}", FarOrder::Order(Order::Measure)).contains("Measure"));
    }
}
