//! Brace expansion: `{cat,/etc/shadow}` is two words.

use super::word::Part;

/// Words that one word may become, at most; beyond, braces stay as they are.
const MOST: usize = 256;

/// Letters of a word in which braces are looked for, at most: the search is quadratic.
const LONGEST: usize = 1024;

/// A letter without quotes, or something that braces leave alone.
#[derive(Debug, Clone)]
enum Unit {
    Letter(char),
    Part(Part),
}

/// The words that `parts` become.
pub(super) fn expand(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let has_braces = parts.iter().any(|part| matches!(part, Part::Plain(text) if text.contains('{')));
    if !has_braces {
        return vec![parts];
    }
    let mut units = Vec::new();
    for part in &parts {
        match part {
            Part::Plain(text) => units.extend(text.chars().map(Unit::Letter)),
            other => units.push(Unit::Part(other.clone())),
        }
    }
    if units.len() > LONGEST {
        return vec![parts];
    }
    match words(&units, 0) {
        Some(all) if all.len() <= MOST => all.into_iter().map(join).collect(),
        _ => vec![parts],
    }
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
        return Some(vec![units.to_vec()]);
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
                Some(choices) => choices,
                None => {
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

/// `1..5` and `a..e`.
fn sequence(units: &[Unit]) -> Option<Vec<Vec<Unit>>> {
    let text: String = units
        .iter()
        .map(|unit| if let Unit::Letter(letter) = unit { Some(*letter) } else { None })
        .collect::<Option<_>>()?;
    let (start, end) = text.split_once("..")?;
    let letters = |text: String| text.chars().map(Unit::Letter).collect::<Vec<_>>();
    if let (Ok(start), Ok(end)) = (start.parse::<i32>(), end.parse::<i32>()) {
        if usize::try_from(start.abs_diff(end)).ok()? >= MOST {
            return None;
        }
        let numbers: Vec<i32> = if start <= end { (start..=end).collect() } else { (end..=start).rev().collect() };
        return Some(numbers.into_iter().map(|number| letters(number.to_string())).collect());
    }
    let mut ends = (start.chars(), end.chars());
    match (ends.0.next(), ends.0.next(), ends.1.next(), ends.1.next()) {
        (Some(start), None, Some(end), None) if start.is_ascii_alphabetic() && end.is_ascii_alphabetic() => {
            let range: Vec<char> = if start <= end { (start..=end).collect() } else { (end..=start).rev().collect() };
            Some(range.into_iter().map(|letter| vec![Unit::Letter(letter)]).collect())
        }
        _ => None,
    }
}
