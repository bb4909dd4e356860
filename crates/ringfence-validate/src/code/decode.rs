//! Decoding of literals. What is not decoded by these few rules is not known.

/// Base64, either alphabet, spaces left out, with or without padding.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for letter in text.bytes().filter(|letter| !letter.is_ascii_whitespace()) {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => break,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// Base32.
pub(super) fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a',
            b'2'..=b'7' => letter - b'2' + 26,
            b'=' => break,
            _ => return None,
        };
        held = (held << 5) | u32::from(value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

/// Base85, in the alphabet of `base64.b85decode`.
pub(super) fn base85(text: &str) -> Option<Vec<u8>> {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let digits: Vec<u32> = text
        .bytes()
        .map(|letter| LETTERS.iter().position(|known| *known == letter).map(|at| at as u32))
        .collect::<Option<_>>()?;
    let mut bytes = Vec::new();
    for group in digits.chunks(5) {
        let mut padded = [84_u32; 5];
        padded[..group.len()].copy_from_slice(group);
        let number = padded.iter().try_fold(0_u32, |number, digit| number.checked_mul(85)?.checked_add(*digit))?;
        bytes.extend(&number.to_be_bytes()[..group.len().saturating_sub(1)]);
    }
    Some(bytes)
}

/// Pairs of hexadecimal digits, spaces between them left out.
pub(super) fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|letter| !letter.is_ascii_whitespace())
        .map(|letter| letter.to_digit(16))
        .collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair.iter().fold(0_u8, |byte, digit| (byte << 4) | *digit as u8)).collect())
}

/// Letters turned by thirteen.
pub(super) fn rot13(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            'a'..='z' => (((letter as u8 - b'a') + 13) % 26 + b'a') as char,
            'A'..='Z' => (((letter as u8 - b'A') + 13) % 26 + b'A') as char,
            _ => letter,
        })
        .collect()
}

/// `%41` for letters.
pub(super) fn percent(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                match (digit(high), digit(low)) {
                    (Some(high), Some(low)) => {
                        bytes.push((high * 16 + low) as u8);
                        rest = after;
                    }
                    _ => return None,
                }
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// `\x41`, `\u0041`, `\101` for letters.
pub(super) fn escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        let digits = match letters.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('n') => {
                plain.push('\n');
                continue;
            }
            Some('t') => {
                plain.push('\t');
                continue;
            }
            Some(digit) if digit.is_digit(8) => {
                let mut number = digit.to_digit(8).unwrap_or_default();
                while let Some(digit) = letters.peek().and_then(|next| next.to_digit(8)) {
                    number = (number * 8 + digit) & 0xff;
                    letters.next();
                }
                plain.extend(char::from_u32(number));
                continue;
            }
            Some(other) => {
                plain.push(other);
                continue;
            }
            None => continue,
        };
        let mut number = 0_u32;
        for _ in 0..digits {
            let Some(digit) = letters.peek().and_then(|next| next.to_digit(16)) else { break };
            number = number.wrapping_mul(16).wrapping_add(digit);
            letters.next();
        }
        plain.extend(char::from_u32(number));
    }
    plain
}

/// Whether a literal, as written, has escapes for letters that need none.
pub(crate) fn is_obscured(source: &str) -> bool {
    if !source.contains('\\') {
        return false;
    }
    let mut letters = 0;
    let mut rest = source;
    while let Some(at) = rest.find('\\') {
        let after = &rest[at + 1..];
        let digits = |skip: usize, count: usize, base: u32| {
            after
                .get(skip..skip + count)
                .and_then(|digits| u32::from_str_radix(digits, base).ok())
                .and_then(char::from_u32)
        };
        let letter = match after.as_bytes() {
            [b'x', ..] => digits(1, 2, 16),
            [b'u', b'{', ..] => after
                .get(2..)
                .and_then(|code| u32::from_str_radix(code.split('}').next()?, 16).ok())
                .and_then(char::from_u32),
            [b'u', ..] => digits(1, 4, 16),
            [b'U', ..] => digits(1, 8, 16),
            [b'0'..=b'7', ..] => digits(0, 3, 8),
            _ => None,
        };
        letters += usize::from(letter.is_some_and(|letter| letter.is_ascii_alphanumeric()));
        let mut next = after.chars();
        next.next();
        rest = next.as_str();
    }
    letters > 1
}

/// Bytes as a text: as UTF-8, or letter by letter where they are not.
pub(super) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| error.into_bytes().iter().map(|byte| char::from(*byte)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_writing_a_word_unreadably_is_read() {
        for decoded in [
            base64("b3Muc3lzdGVt").map(text_of),
            base64("b3Muc3lzdGVt====").map(text_of),
            base32("N5ZS443ZON2GK3I=").map(text_of),
            base85("Z*wkld2@7SZ2").map(text_of),
            hex("6f732e 73797374656d").map(text_of),
            Some(rot13("bf.flfgrz")),
            percent("os%2esyste%6D"),
            Some(escapes(r"\x6f\163.\u0073ystem")),
        ] {
            assert_eq!(decoded.as_deref(), Some("os.system"));
        }
    }

    #[test]
    fn what_is_not_in_its_code_is_not_decoded() {
        assert_eq!((base64("not base64!"), hex("abc"), hex("zz"), percent("%zz")), (None, None, None, None));
    }
}
