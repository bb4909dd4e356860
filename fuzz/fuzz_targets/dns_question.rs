//! Whatever a program sends where names are asked for: one question or none, and an answer that repeats it and is never long.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_egress::wire::{Code, LONGEST_MESSAGE, answer, read_question, refuse};

fuzz_target!(|message: &[u8]| {
    match read_question(message) {
        Ok(question) => {
            assert!(message.len() <= LONGEST_MESSAGE && question.name.len() < 255);
            let told = answer(message, &question, Code::Fine, Some([198, 18, 0, 2].into()));
            assert!(told.len() <= 512 && told[..2] == message[..2] && told[2] & 0x80 != 0);
            // What is told can never be taken for a question again.
            assert!(read_question(&told).is_err());
            // The rest of a message changes nothing.
            let alone = &message[..told.len() - 16];
            assert_eq!(read_question(alone).as_ref(), Ok(&question));
        }
        Err(bad) => assert!(refuse(message, bad).is_none_or(|told| told.len() == 12 && told[2] & 0x80 != 0)),
    }
});
