//! Arithmetic on plain numbers. Names and substitutions make it unknown.

/// The value of `text`, where it is made of numbers, `+ - * / %` and brackets alone.
pub(super) fn fold(text: &str) -> Option<i64> {
    if text.len() > 200 {
        return None;
    }
    let mut folding = Folding { rest: text.trim(), depth: 0 };
    let value = folding.sum()?;
    folding.rest.trim_start().is_empty().then_some(value)
}

/// The names that an arithmetic text may set: all of them where it sets any.
pub(super) fn sets(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let assigns = bytes.iter().enumerate().any(|(at, byte)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied();
        let after = bytes.get(at + 1).copied();
        match byte {
            b'=' if after == Some(b'=') || matches!(before, Some(b'=' | b'!')) => false,
            // `<=` compares and `<<=` sets.
            b'=' if matches!(before, Some(b'<' | b'>')) => at >= 2 && bytes.get(at - 2).copied() == before,
            b'=' => true,
            b'+' | b'-' => after == Some(*byte),
            _ => false,
        }
    });
    if !assigns {
        return Vec::new();
    }
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|name| name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_'))
        .map(str::to_owned)
        .collect()
}

struct Folding<'a> {
    rest: &'a str,
    depth: usize,
}

impl Folding<'_> {
    fn take(&mut self, sign: char) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(sign) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Option<i64> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value = value.checked_add(self.product()?)?;
            } else if self.take('-') {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<i64> {
        let mut value = self.atom()?;
        loop {
            if self.take('*') {
                value = value.checked_mul(self.atom()?)?;
            } else if self.take('/') {
                value = value.checked_div(self.atom()?)?;
            } else if self.take('%') {
                value = value.checked_rem(self.atom()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn atom(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > 32 {
            return None;
        }
        let value = if self.take('(') {
            let value = self.sum()?;
            self.take(')').then_some(value)
        } else if self.take('-') {
            self.atom()?.checked_neg()
        } else {
            let rest = self.rest.trim_start();
            let length = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (digits, after) = rest.split_at(length);
            self.rest = after;
            match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
                Some(hex) => i64::from_str_radix(hex, 16).ok(),
                None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8).ok(),
                None => digits.parse().ok(),
            }
        };
        self.depth -= 1;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_reckoned_and_names_are_not() {
        for (text, value) in [
            ("1+2*3", Some(7)),
            (" ( 4 - 6 ) * 2 ", Some(-4)),
            ("0x10", Some(16)),
            ("x+1", None),
            ("1/0", None),
            ("", None),
        ] {
            assert_eq!(fold(text), value, "{text}");
        }
    }
}
