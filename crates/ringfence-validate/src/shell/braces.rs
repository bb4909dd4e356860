//! Brace expansion: `{cat,/etc/shadow}` is two words.

use super::word::Part;

/// Words that one word may become, at most.
const MOST: usize = 256;

/// Letters of a word in which braces are looked for, at most: the search is quadratic.
const LONGEST: usize = 1024;

/// A letter without quotes, or something that braces leave alone.
#[derive(Debug, Clone)]
enum Unit {
    Letter(char),
    Part(Part),
}

/// The words that `parts` become; nothing where they are too many to know.
pub(super) fn expand(parts: &[Part]) -> Option<Vec<Vec<Part>>> {
    let has_braces = parts.iter().any(|part| matches!(part, Part::Plain(text) if text.contains('{')));
    if !has_braces {
        return Some(vec![parts.to_vec()]);
    }
    let mut units = Vec::new();
    for part in parts {
        match part {
            Part::Plain(text) => units.extend(text.chars().map(Unit::Letter)),
            other => units.push(Unit::Part(other.clone())),
        }
    }
    if units.len() > LONGEST {
        return None;
    }
    let all = words(&units, 0)?;
    (all.len() <= MOST).then(|| all.into_iter().map(join).collect())
}

fn join(units: Vec<Unit>) -> Vec<Part> {
    let mut parts = Vec::new();
    for unit in units {
        match (unit, parts.last_mut()) {
            (Unit::Letter(letter), Some(Part::Plain(text))) => text.push(letter),
            (Unit::Letter(letter), _) => parts.push(Part::Plain(letter.to_string())),
            (Unit::Part(part), _) => parts.push(part),
        }
    }
    parts
}

/// All words of `units`; nothing if there are too many.
fn words(units: &[Unit], depth: usize) -> Option<Vec<Vec<Unit>>> {
    if depth > 8 {
        return None;
    }
    let mut from = 0;
    while let Some(open) =
        units.iter().skip(from).position(|unit| matches!(unit, Unit::Letter('{'))).map(|at| at + from)
    {
        let Some((close, commas)) = closing(units, open) else {
            from = open + 1;
            continue;
        };
        let inner = units.get(open + 1..close)?;
        let choices: Vec<Vec<Unit>> = if commas.is_empty() {
            match sequence(inner) {
                Sequence::Words(choices) => choices,
                Sequence::Unknown => return None,
                Sequence::None => {
                    from = open + 1;
                    continue;
                }
            }
        } else {
            let mut choices = Vec::new();
            let mut start = open + 1;
            for end in commas.into_iter().chain([close]) {
                choices.extend(words(units.get(start..end)?, depth + 1)?);
                start = end + 1;
            }
            choices
        };
        let tails = words(units.get(close + 1..)?, depth + 1)?;
        if choices.len().saturating_mul(tails.len()) > MOST {
            return None;
        }
        let head = units.get(..open)?;
        let mut all = Vec::new();
        for choice in &choices {
            for tail in &tails {
                all.push([head, choice, tail].concat());
            }
        }
        return Some(all);
    }
    Some(vec![units.to_vec()])
}

/// The matching brace and the commas between.
fn closing(units: &[Unit], open: usize) -> Option<(usize, Vec<usize>)> {
    let mut depth = 0_usize;
    let mut commas = Vec::new();
    for (index, unit) in units.iter().enumerate().skip(open) {
        match unit {
            Unit::Letter('{') => depth += 1,
            Unit::Letter('}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((index, commas));
                }
            }
            Unit::Letter(',') if depth == 1 => commas.push(index),
            Unit::Letter(_) | Unit::Part(_) => {}
        }
    }
    None
}

/// What stands between braces without a comma.
enum Sequence {
    Words(Vec<Vec<Unit>>),
    /// It is one, of too many words or of a form that is not followed.
    Unknown,
    /// The braces stand for themselves.
    None,
}

/// `1..5` and `a..e`.
fn sequence(units: &[Unit]) -> Sequence {
    let letters: Option<String> =
        units.iter().map(|unit| if let Unit::Letter(letter) = unit { Some(*letter) } else { None }).collect();
    let Some(text) = letters else { return Sequence::None };
    let parts: Vec<&str> = text.split("..").collect();
    let is_number = |text: &str| text.parse::<i64>().is_ok();
    let is_letter = |text: &str| text.len() == 1 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    let (start, end) = match parts.as_slice() {
        [start, end] => (*start, *end),
        [start, end, _] if is_number(start) && is_number(end) || is_letter(start) && is_letter(end) => {
            return Sequence::Unknown;
        }
        _ => return Sequence::None,
    };
    if is_number(start) && is_number(end) {
        let padded = |text: &str| {
            text.trim_start_matches(['-', '+']).len() > 1 && text.trim_start_matches(['-', '+']).starts_with('0')
        };
        let (Ok(start_number), Ok(end_number)) = (start.parse::<i32>(), end.parse::<i32>()) else {
            return Sequence::Unknown;
        };
        let many = usize::try_from(start_number.abs_diff(end_number)).is_ok_and(|count| count >= MOST);
        if many || padded(start) || padded(end) {
            return Sequence::Unknown;
        }
        let numbers: Vec<i32> = if start_number <= end_number {
            (start_number..=end_number).collect()
        } else {
            (end_number..=start_number).rev().collect()
        };
        let words = numbers.into_iter().map(|number| number.to_string().chars().map(Unit::Letter).collect());
        return Sequence::Words(words.collect());
    }
    match (start.chars().next(), end.chars().next()) {
        (Some(first), Some(last)) if is_letter(start) && is_letter(end) => {
            let range: Vec<char> =
                if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() };
            Sequence::Words(range.into_iter().map(|letter| vec![Unit::Letter(letter)]).collect())
        }
        _ => Sequence::None,
    }
}
