//! Questions for names, as DNS carries them: one reader and one writer, pure. Of a message only its head and its one question are looked at;
//! what follows is nobody's business.

use std::net::IpAddr;

/// A, AAAA.
pub(crate) const ADDRESS_4: u16 = 1;
pub(crate) const ADDRESS_6: u16 = 28;
const INTERNET: u16 = 1;
const HEAD: usize = 12;
const LONGEST_LABEL: u8 = 63;
const LONGEST_NAME: usize = 255;
/// For so long an answer may be remembered, in seconds. The name keeps its address as long as the sandbox lives.
const REMEMBERED: u32 = 60;
/// The longest message that is read. A question for one name is much shorter.
pub const LONGEST_MESSAGE: usize = 4096;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name as it was sent, without the dot at its end; empty for the root.
    pub name: Vec<u8>,
    /// The kind of record: 1 is an address, 28 one of IPv6.
    pub kind: u16,
    /// Where the question ends in the message.
    end: usize,
}

/// A message that holds no question that could be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadQuestion {
    /// It is not even a question, and gets no answer.
    Noise,
    /// It is answered with this code.
    Code(Code),
}

/// What an answer without a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Nothing is wrong.
    Fine = 0,
    /// The question cannot be read.
    Malformed = 1,
    /// There could be an answer, but not now.
    Failed = 2,
    /// There is no such name.
    NoSuchName = 3,
    /// That is not done here.
    NotDone = 4,
    /// Nor will it be.
    Refused = 5,
}

/// Reads the question of a message. Its name comes first, so it can refer to nothing before it: a reference is refused.
pub fn read_question(message: &[u8]) -> Result<Question, BadQuestion> {
    let head = message.first_chunk::<HEAD>().ok_or(BadQuestion::Noise)?;
    let (is_answer, purpose) = (head[2] & 0x80 != 0, (head[2] >> 3) & 0x0f);
    if is_answer || message.len() > LONGEST_MESSAGE {
        return Err(BadQuestion::Noise);
    }
    if purpose != 0 {
        return Err(BadQuestion::Code(Code::NotDone));
    }
    let malformed = BadQuestion::Code(Code::Malformed);
    if head[4..6] != [0, 1] {
        return Err(malformed);
    }
    let mut name = Vec::new();
    let mut at = HEAD;
    loop {
        let length = *message.get(at).ok_or(malformed)?;
        at += 1;
        if length == 0 {
            break;
        }
        let label = message.get(at..at + usize::from(length)).ok_or(malformed)?;
        // A dot in a label would read as the end of one.
        if length > LONGEST_LABEL || label.contains(&b'.') {
            return Err(malformed);
        }
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend(label);
        at += usize::from(length);
        if name.len() >= LONGEST_NAME {
            return Err(malformed);
        }
    }
    let rest = message.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(malformed)?;
    if u16::from_be_bytes([rest[2], rest[3]]) != INTERNET {
        return Err(BadQuestion::Code(Code::Refused));
    }
    Ok(Question { name, kind: u16::from_be_bytes([rest[0], rest[1]]), end: at + 4 })
}

/// The answer to the question of `message`: a code, or an address.
pub fn answer(message: &[u8], question: &Question, code: Code, address: Option<IpAddr>) -> Vec<u8> {
    let mut answer = begin(message, code, u16::from(address.is_some()));
    answer[5] = 1;
    answer.extend(message.get(HEAD..question.end).unwrap_or_default());
    if let Some(address) = address {
        // The name of the question.
        answer.extend([0xc0, HEAD as u8]);
        let (kind, bytes) = match address {
            IpAddr::V4(v4) => (ADDRESS_4, v4.octets().to_vec()),
            IpAddr::V6(v6) => (ADDRESS_6, v6.octets().to_vec()),
        };
        answer.extend(kind.to_be_bytes());
        answer.extend(INTERNET.to_be_bytes());
        answer.extend(REMEMBERED.to_be_bytes());
        answer.extend([0, bytes.len() as u8]);
        answer.extend(bytes);
    }
    answer
}

/// The answer to a message whose question cannot be answered; nothing to one that is none.
pub fn refuse(message: &[u8], bad: BadQuestion) -> Option<Vec<u8>> {
    match bad {
        BadQuestion::Noise => None,
        BadQuestion::Code(code) => Some(begin(message, code, 0)),
    }
}

fn begin(message: &[u8], code: Code, records: u16) -> Vec<u8> {
    let head = message.first_chunk::<HEAD>().copied().unwrap_or_default();
    let mut answer = Vec::with_capacity(512);
    // An answer to the same purpose; whoever asked wanted recursion or not, and it is to be had.
    answer.extend([head[0], head[1], 0x80 | (head[2] & 0x79), 0x80 | code as u8, 0, 0]);
    answer.extend(records.to_be_bytes());
    answer.extend([0; 4]);
    answer
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn a_question_is_read_and_its_answer_repeats_it() {
        let mut message = asked("pyPI.org", ADDRESS_4);
        let whole = message.len();
        // As a program that knows extensions sends it.
        message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        message[11] = 1;
        let question = read_question(&message).unwrap();
        assert_eq!((question.name.as_slice(), question.kind), (b"pyPI.org".as_slice(), ADDRESS_4));
        let told = answer(&message, &question, Code::Fine, Some([198, 18, 0, 2].into()));
        assert_eq!(told[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(told[12..whole], message[12..whole]);
        assert_eq!(told[whole..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 2]);
        let none = answer(&message, &question, Code::NoSuchName, None);
        assert_eq!((none[3], &none[4..12]), (0x83, [0, 1, 0, 0, 0, 0, 0, 0].as_slice()));
        assert_eq!(read_question(&asked("", 2)).unwrap().name, b"", "the root");
    }

    #[test]
    fn what_refers_to_something_or_ends_early_or_is_something_else_is_no_question() {
        let check = |message: &[u8], expected: BadQuestion| assert_eq!(read_question(message), Err(expected));
        let malformed = BadQuestion::Code(Code::Malformed);
        let good = asked("a.test", ADDRESS_4);
        for length in 0..HEAD {
            check(&good[..length], BadQuestion::Noise);
        }
        for length in HEAD..good.len() {
            check(&good[..length], malformed);
        }
        let changed = |at: usize, to: u8| {
            let mut message = good.clone();
            message[at] = to;
            message
        };
        check(&changed(2, 0x81), BadQuestion::Noise);
        check(&changed(2, 0x28), BadQuestion::Code(Code::NotDone));
        check(&changed(5, 0), malformed);
        check(&changed(5, 2), malformed);
        check(&changed(13, b'.'), malformed);
        check(&changed(good.len() - 1, 3), BadQuestion::Code(Code::Refused));
        // A name that refers to itself, to what follows, and far away.
        for reference in [[0xc0, 12], [0xc0, 14], [0xff, 0xff]] {
            let mut message = good[..HEAD].to_vec();
            message.extend(reference);
            message.extend([0, 1, 0, 1]);
            check(&message, malformed);
        }
        check(&asked(&["a"; 200].join("."), 1), malformed);
        let mut huge = good.clone();
        huge.resize(LONGEST_MESSAGE + 1, 0);
        check(&huge, BadQuestion::Noise);
        huge.truncate(LONGEST_MESSAGE);
        assert!(read_question(&huge).is_ok(), "what follows is not looked at");
        assert_eq!(refuse(&good, BadQuestion::Noise), None, "two of us would talk for ever");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_question_or_refused(message in prop::collection::vec(any::<u8>(), 0..600)) {
            match read_question(&message) {
                Ok(question) => {
                    let told = answer(&message, &question, Code::Fine, Some([198, 18, 0, 2].into()));
                    prop_assert!(told.len() <= 512 && told[2] & 0x80 != 0);
                    prop_assert!(question.name.len() < LONGEST_NAME);
                }
                Err(bad) => prop_assert!(refuse(&message, bad).is_none_or(|told| told.len() == HEAD)),
            }
        }
    }
}
