//! Programs whose output follows from their words or their input: echo, printf, base64 and their kin.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow};
use crate::shell::unescape;
use crate::stream::{Argument, Stream};
use crate::text::{Piece, Text};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "echo" => echo,
        "printf" => super::printf::printf,
        "base64" | "gbase64" | "openbase64" => base64,
        "base32" | "basenc" => base_other,
        "xxd" => xxd,
        "rev" => rev,
        "tr" => tr,
        "cat" => cat,
        "gzip" | "bzip2" | "xz" | "zstd" | "pigz" | "lz4" | "brotli" => unpack,
        "zcat" | "gunzip" | "bzcat" | "bunzip2" | "xzcat" | "unxz" | "zstdcat" | "unzstd" => decoder,
        "openssl" => openssl,
        "gpg" | "gpg2" | "age" | "sops" => decrypt,
        "head" | "tail" => head,
        "yes" => yes,
        _ => return None,
    })
}

fn echo(run: &mut Run<'_, '_>, _name: &str) {
    let mut rest = run.rest();
    let mut escapes = false;
    let mut newline = true;
    while let Some(flags) = rest.first().and_then(Argument::known).and_then(|word| word.strip_prefix('-')) {
        if flags.is_empty() || !flags.bytes().all(|byte| b"neE".contains(&byte)) {
            break;
        }
        escapes |= flags.contains('e');
        newline &= !flags.contains('n');
        rest.remove(0);
    }
    let mut stream = Stream::default();
    stream.add(Flow::Literal);
    let mut text = Text::default();
    for (index, word) in rest.iter().enumerate() {
        if index > 0 {
            text.append(Text::known(" "));
        }
        stream.add_all(&word.flows);
        for piece in word.text.pieces() {
            match piece {
                Piece::Known(known) if escapes => {
                    let (plain, disguised) = unescape(known);
                    if disguised {
                        stream.add(Flow::Decoded);
                    }
                    text.push(Piece::Known(plain));
                }
                // Nothing matched: the pattern itself is printed.
                other => text.push(other.clone()),
            }
        }
    }
    if newline {
        text.append(Text::known("\n"));
    }
    stream.text = Some(text);
    run.output = stream;
}

/// The input, or what the operands hold.
fn input_or_files(run: &mut Run<'_, '_>, operands: &[Argument]) -> Stream {
    if operands.is_empty() {
        return run.input.clone();
    }
    let mut all = Stream::default();
    for operand in operands {
        let read = if operand.known() == Some("-") { run.input.clone() } else { run.reads(operand) };
        all.then(read);
    }
    all
}

fn cat(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&[], Style::Usual);
    let plain = words.options.is_empty() || !words.has(&["-n", "-b", "-e", "-E", "-v", "-A", "-t", "-T"]);
    run.output = input_or_files(run, &words.operands);
    if !plain {
        run.output.text = None;
    }
}

/// A part of the input: all of it where it has few lines.
fn head(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "-c", "--lines", "--bytes", "-s", "--pid"], Style::Usual);
    let operands: Vec<Argument> = words
        .operands
        .into_iter()
        .filter(|word| !word.known().is_some_and(|word| word.starts_with(['-', '+']) && word.len() > 1))
        .collect();
    run.output = input_or_files(run, &operands);
    let one_line = run.output.known().is_some_and(|known| known.trim_end().lines().count() <= 1);
    if !one_line || words.options.iter().any(|(option, _)| option == "-c" || option == "--bytes") {
        run.output.text = None;
    }
}

fn decoded(run: &mut Run<'_, '_>, mut stream: Stream, decode: impl Fn(&str) -> Option<Vec<u8>>) {
    let known = stream.known().and_then(decode);
    stream.add(Flow::Decoded);
    stream.text = known.map(|bytes| Text::known(String::from_utf8_lossy(&bytes).into_owned()));
    run.output = stream;
}

fn base64(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-w", "--wrap", "-b"], Style::Usual);
    let stream = input_or_files(run, &words.operands);
    if words.has(&["-d", "-D", "--decode"]) {
        decoded(run, stream, |text| from_base64(text, b'+', b'/'));
    } else {
        run.output = Stream::from(stream.flows);
    }
}

fn base_other(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-w", "--wrap"], Style::Usual);
    let stream = input_or_files(run, &words.operands);
    if words.has(&["-d", "--decode"]) {
        if words.has(&["--base16"]) {
            decoded(run, stream, from_hex);
        } else if words.has(&["--base64"]) {
            decoded(run, stream, |text| from_base64(text, b'+', b'/'));
        } else if words.has(&["--base64url"]) {
            decoded(run, stream, |text| from_base64(text, b'-', b'_'));
        } else {
            decoded(run, stream, from_base32);
        }
    } else {
        run.output = Stream::from(stream.flows);
    }
}

fn xxd(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-l", "-s", "-c", "-g", "-o"], Style::Usual);
    let reads: Vec<Argument> = words.operands.iter().take(1).cloned().collect();
    let stream = input_or_files(run, &reads);
    if words.has(&["-r"]) {
        let plain = words.has(&["-p"]);
        decoded(run, stream, |text| if plain { from_hex(text) } else { None });
    } else {
        run.output = Stream::from(stream.flows);
    }
    if let Some(file) = words.operands.get(1) {
        let contents = run.output.clone();
        run.writes(file, contents);
    }
}

fn rev(run: &mut Run<'_, '_>, _name: &str) {
    let operands = run.words(&[], Style::Usual).operands;
    let stream = input_or_files(run, &operands);
    decoded(run, stream, |text| {
        let lines: Vec<String> = text.lines().map(|line| line.chars().rev().collect()).collect();
        Some((lines.join("\n") + "\n").into_bytes())
    });
    if run.output.text.is_none() {
        run.output.flows.retain(|flow| *flow != Flow::Decoded);
    }
}

/// The letters of a set of `tr`.
fn letters(set: &str) -> Option<Vec<char>> {
    let (set, _) = unescape(set);
    let all: Vec<char> = set.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&letter) = all.get(at) {
        if letter == '[' && all.get(at + 1) == Some(&':') {
            let name: String = all.iter().skip(at + 2).take_while(|letter| **letter != ':').collect();
            match name.as_str() {
                "lower" => found.extend('a'..='z'),
                "upper" => found.extend('A'..='Z'),
                "digit" => found.extend('0'..='9'),
                _ => return None,
            }
            at += name.chars().count() + 4;
            continue;
        }
        match (all.get(at + 1), all.get(at + 2)) {
            (Some('-'), Some(&end)) if letter <= end && u32::from(end) - u32::from(letter) < 256 => {
                found.extend(letter..=end);
                at += 3;
            }
            _ => {
                found.push(letter);
                at += 1;
            }
        }
    }
    Some(found)
}

fn tr(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&[], Style::Usual);
    let sets: Vec<Option<Vec<char>>> = words.operands.iter().map(|word| word.known().and_then(letters)).collect();
    let mut stream = run.input.clone();
    let known = stream.known().map(str::to_owned);
    let complement = words.has(&["-c", "-C", "--complement"]);
    let changed = match (known, sets.as_slice(), complement) {
        (Some(known), [Some(gone)], false) if words.has(&["-d", "--delete"]) => {
            Some(known.chars().filter(|letter| !gone.contains(letter)).collect::<String>())
        }
        (Some(known), [Some(from), Some(to)], false)
            if !words.has(&["-d", "-s", "--delete", "--squeeze-repeats"]) && !to.is_empty() =>
        {
            Some(
                known
                    .chars()
                    .map(|letter| match from.iter().position(|from| *from == letter) {
                        Some(index) => to.get(index).or(to.last()).copied().unwrap_or(letter),
                        None => letter,
                    })
                    .collect(),
            )
        }
        _ => None,
    };
    // Rotated letters are a disguise; other replacements are daily work.
    let rotates = sets.first().and_then(Option::as_ref).is_some_and(|set| set.len() >= 26) && sets.len() > 1;
    let cases = words
        .operands
        .iter()
        .all(|word| word.known().is_some_and(|word| word.contains("er:]") || word == "a-z" || word == "A-Z"));
    if rotates && !cases || changed.is_some() && stream.flows == [Flow::Literal] {
        stream.add(Flow::Decoded);
    }
    stream.text = changed.map(Text::known);
    run.output = stream;
}

fn unpack(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-S", "--suffix", "-o", "--output", "-T"], Style::Usual);
    let unpacks = words.has(&["-d", "--decompress", "--uncompress"]);
    // `-9` is how hard it tries.
    let level = |word: &Argument| word.known().is_some_and(super::options::number);
    let operands: Vec<Argument> = words.operands.iter().filter(|word| !level(word)).cloned().collect();
    let mut stream = input_or_files(run, &operands);
    stream.text = None;
    if unpacks {
        stream.add(Flow::Decoded);
    }
    if let Some(file) = words.value(&["-o", "--output"]).cloned() {
        run.writes(&file, stream.clone());
    } else if !operands.is_empty() && !words.has(&["-c", "--stdout", "--to-stdout"]) {
        for operand in &operands {
            let mut target = operand.clone();
            if let Some(known) = operand.known() {
                let name = if unpacks {
                    known.rsplit_once('.').map_or(known, |(name, _)| name).to_owned()
                } else {
                    format!("{known}.gz")
                };
                target.text = Text::known(name);
            }
            run.writes(&target, stream.clone());
        }
    }
    run.output = stream;
}

fn decoder(run: &mut Run<'_, '_>, _name: &str) {
    let operands = run.words(&["-S"], Style::Usual).operands;
    let mut stream = input_or_files(run, &operands);
    stream.text = None;
    stream.add(Flow::Decoded);
    run.output = stream;
}

fn openssl(run: &mut Run<'_, '_>, name: &str) {
    let first = run.rest().first().and_then(|word| word.known().map(str::to_owned)).unwrap_or_default();
    let decodes = matches!(first.as_str(), "enc" | "base64" | "aes-256-cbc" | "smime" | "cms" | "rsautl" | "pkeyutl");
    if decodes {
        let words = run.words(&["-in", "-out", "-k", "-K", "-iv", "-pass", "-md", "-inkey"], Style::LongWords);
        let stream = match words.value(&["-in"]).cloned() {
            Some(file) => run.reads(&file),
            None => run.input.clone(),
        };
        if words.has(&["-d", "-decrypt"]) {
            let base64 = first == "base64" || words.has(&["-base64"]);
            decoded(run, stream, |text| if base64 { from_base64(text, b'+', b'/') } else { None });
        } else {
            run.output = Stream::from(stream.flows);
        }
        if let Some(file) = words.value(&["-out"]).cloned() {
            let contents = run.output.clone();
            run.writes(&file, contents);
        }
        return;
    }
    if let Some(entry) = super::book().subcommand(name, &first) {
        run.by_the_book(entry);
    }
}

fn decrypt(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &["-r", "-u", "-o", "--output", "--recipient", "--passphrase", "--passphrase-file", "-i", "--homedir"],
        Style::Usual,
    );
    if words.has(&["--export-secret-keys", "--export-secret-subkeys"]) {
        let span = run.span;
        run.fact(span, Fact::Reads { path: Text::known("~/.gnupg/private-keys-v1.d") });
        run.output = Stream::from(vec![Flow::File { path: "~/.gnupg/private-keys-v1.d".to_owned() }]);
        return;
    }
    if words.has(&["--recv-keys", "--keyserver", "--send-keys", "--search-keys", "--refresh-keys"]) {
        let span = run.span;
        run.contacts(Text::known("keyserver"), span, crate::Contact::Fetch, Vec::new());
    }
    let mut stream = input_or_files(run, &words.operands);
    stream.text = None;
    if words.has(&["-d", "--decrypt"]) {
        stream.add(Flow::Decoded);
    }
    if let Some(file) = words.value(&["-o", "--output"]).cloned() {
        run.writes(&file, stream.clone());
    }
    run.output = stream;
}

fn yes(run: &mut Run<'_, '_>, _name: &str) {
    run.output = Stream::from(vec![Flow::Literal]);
}

/// Bytes that base64 stands for; nothing if it is none.
fn from_base64(text: &str, plus: u8, slash: u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            byte if byte == plus => 62,
            byte if byte == slash => 63,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or(0));
        }
    }
    Some(bytes)
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            b'=' => break,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or(0));
        }
    }
    Some(bytes)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|letter| !letter.is_whitespace()).map(|letter| letter.to_digit(16)).collect();
    digits?
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(high * 16 + low).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_what_is_not_is_refused() {
        assert_eq!(from_base64("Y2F0IC9ldGMvc2hhZG93", b'+', b'/').as_deref(), Some(&b"cat /etc/shadow"[..]));
        assert_eq!(from_base64("Y2F0*", b'+', b'/'), None);
        assert_eq!(from_base32("MNQXI===").as_deref(), Some(&b"cat"[..]));
        assert_eq!(from_hex("63 61 74").as_deref(), Some(&b"cat"[..]));
        assert_eq!(from_hex("6"), None);
    }
}
