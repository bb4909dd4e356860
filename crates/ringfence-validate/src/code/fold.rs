//! What texts become by the methods and functions that programs put them together with. All is done on bounded copies.

use std::rc::Rc;

use super::below::{here, is_itself};
use super::decode;
use super::lists::{list_method, table, translated};
use super::value::{Held, ITEMS, Making, TEXT_BYTES, Value, join};
use crate::text::{Hole, Piece, Text};

/// What `receiver.method(args)` gives, if it is a text or a list that can be told.
pub(super) fn method(receiver: &Value, method: &str, args: &[Held]) -> Option<Value> {
    if let Some(value) = list_method(receiver, method, args) {
        return Some(keep(value, receiver, args));
    }
    if receiver.texts.is_empty() {
        return None;
    }
    let first = args.first().and_then(|arg| arg.as_known());
    let text = receiver.as_known();
    let value = match (method, text) {
        ("join", Some(between)) => joined(args.first()?, between)?,
        ("format", Some(text)) => formatted(text, args),
        ("format_map", Some(text)) => formatted(text, args),
        ("translate", Some(text)) => translated(text, args.first()?)?,
        ("replace" | "replaceAll" | "replace_all", Some(text)) => {
            let (from, to) = (first?, args.get(1)?.as_known()?);
            bounded(text.len(), from, to, text)?
        }
        ("split", Some(text)) => split(text, first, args.is_empty()),
        ("splitlines", Some(text)) => {
            Value::list(text.lines().take(ITEMS + 1).map(|line| Rc::new(Value::known(line))).collect())
        }
        ("decode" | "toString", Some(text)) => match first {
            Some(code) => by_code(code, text).unwrap_or_else(|| receiver.clone()),
            None => receiver.clone(),
        },
        ("lower" | "casefold" | "toLowerCase", Some(text)) => Value::known(text.to_lowercase()),
        ("upper" | "toUpperCase", Some(text)) => Value::known(text.to_uppercase()),
        ("swapcase", Some(text)) => Value::known(swapped(text)),
        ("strip" | "trim", Some(text)) if args.is_empty() => Value::known(text.trim()),
        ("lstrip" | "trimStart", Some(text)) if args.is_empty() => Value::known(text.trim_start()),
        ("rstrip" | "trimEnd", Some(text)) if args.is_empty() => Value::known(text.trim_end()),
        ("strip", Some(text)) => Value::known(text.trim_matches(|letter| first.unwrap_or_default().contains(letter))),
        ("lstrip", Some(text)) => {
            Value::known(text.trim_start_matches(|letter| first.unwrap_or_default().contains(letter)))
        }
        ("rstrip", Some(text)) => {
            Value::known(text.trim_end_matches(|letter| first.unwrap_or_default().contains(letter)))
        }
        ("title" | "capitalize", Some(text)) => Value::known(capitalised(text)),
        ("padStart" | "padEnd" | "rjust" | "ljust" | "zfill", Some(_)) => return None,
        ("removeprefix", Some(text)) => Value::known(text.strip_prefix(first?).unwrap_or(text)),
        ("removesuffix", Some(text)) => Value::known(text.strip_suffix(first?).unwrap_or(text)),
        ("slice" | "substring" | "substr", Some(text)) => {
            let start = args.first().and_then(|arg| arg.number);
            let end = args.get(1).and_then(|arg| arg.number);
            let end = if method == "substr" {
                end.zip(start).map(|(length, start)| start.saturating_add(length))
            } else {
                end
            };
            slice(text, start, end, None)?
        }
        ("charAt" | "at", Some(text)) => Value::known(letter(text, args.first()?.number?)?),
        ("charCodeAt" | "codePointAt", Some(text)) => {
            let number = args.first().and_then(|arg| arg.number).unwrap_or(0);
            Value::number(i64::from(u32::from(letter(text, number)?.chars().next()?)))
        }
        ("concat", Some(_)) => {
            let parts: Vec<Held> = std::iter::once(Rc::new(receiver.clone())).chain(args.iter().cloned()).collect();
            join(&parts, "")
        }
        ("repeat", Some(text)) => repeated(text, args.first()?.number?)?,
        ("hex", Some(text)) => Value::known(text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()),
        (
            "encode" | "format_map" | "expandtabs" | "normalize" | "valueOf" | "toString" | "tobytes" | "join"
            | "format" | "replace" | "replaceAll" | "lower" | "upper" | "strip" | "trim" | "lstrip" | "rstrip"
            | "decode",
            _,
        ) => receiver.clone(),
        ("toWellFormed", _) => receiver.clone(),
        _ => return None,
    };
    Some(keep(value, receiver, args))
}

/// What a function that is known by name makes of its arguments, if it can be told.
pub(super) fn function(name: &str, args: &[Held]) -> Option<Value> {
    let first = args.first();
    let text = first.and_then(|arg| arg.as_known());
    let second = args.get(1).and_then(|arg| arg.as_known());
    let value = match name {
        "chr" | "unichr" => Value::decoded(char::from_u32(u32::try_from(first?.number?).ok()?)?),
        "len" => {
            let length = text.map(|text| text.chars().count()).or(first?.items.as_ref().map(|items| items.len()))?;
            return Some(Value::number(i64::try_from(length).ok()?));
        }
        "ord" => return Some(Value::number(i64::from(u32::from(text?.chars().next()?)))),
        "String.fromCharCode" | "String.fromCodePoint" | "bytes" | "bytearray" | "Uint8Array" | "Uint8Array.from"
            if numbers(args).is_some() =>
        {
            let letters: Option<String> =
                numbers(args)?.into_iter().map(|number| char::from_u32(u32::try_from(number).ok()?)).collect();
            Value::decoded(letters?)
        }
        "base64.b64decode"
        | "base64.urlsafe_b64decode"
        | "base64.standard_b64decode"
        | "base64.decodebytes"
        | "base64.decodestring"
        | "binascii.a2b_base64"
        | "atob" => Value::decoded(decode::text_of(decode::base64(text?)?)),
        "base64.b32decode" => Value::decoded(decode::text_of(decode::base32(text?)?)),
        "base64.b85decode" => Value::decoded(decode::text_of(decode::base85(text?)?)),
        "bytes.fromhex" | "bytearray.fromhex" | "binascii.unhexlify" | "binascii.a2b_hex" | "base64.b16decode" => {
            Value::decoded(decode::text_of(decode::hex(text?)?))
        }
        "codecs.decode" | "codecs.encode" => by_code(second.unwrap_or("utf-8"), text?)?,
        "Buffer.from" | "Buffer" => match (text, second) {
            (Some(text), Some(code)) => by_code(code, text)?,
            (Some(_), None) => (**first?).clone(),
            _ => {
                let bytes: Option<Vec<u8>> =
                    numbers(args)?.into_iter().map(|number| u8::try_from(number).ok()).collect();
                Value::decoded(decode::text_of(bytes?))
            }
        },
        "decodeURIComponent" | "decodeURI" | "unescape" | "urllib.parse.unquote" | "urllib.parse.unquote_plus" => {
            let plain = decode::percent(text?)?;
            if Some(plain.as_str()) == text { Value::known(plain) } else { Value::decoded(plain) }
        }
        "textwrap.dedent" | "inspect.cleandoc" | "dedent" => Value::known(super::below::dedent(text?)),
        "reversed" => match text {
            Some(text) if first?.items.is_none() => Value { making: Making::Decoded, ..letters(text.chars().rev()) },
            _ => Value::list(first?.items.as_ref()?.iter().rev().cloned().collect()),
        },
        "list" | "tuple" | "Array.from" | "sorted" => match text {
            Some(text) if first?.items.is_none() => letters(text.chars()),
            _ => (**first?).clone(),
        },
        "str.maketrans" | "string.maketrans" | "bytes.maketrans" => return table(args),
        "TextDecoder().decode"
        | "TextEncoder().encode"
        | "Buffer.concat"
        | "structuredClone"
        | "Promise.all"
        | "Promise.allSettled"
        | "Promise.any"
        | "Promise.race"
        | "asyncio.run"
        | "asyncio.gather"
        | "asyncio.wait_for"
        | "itertools.chain"
        | "itertools.cycle"
        | "itertools.islice"
        | "itertools.chain.from_iterable"
        | "set"
        | "frozenset"
        | "collections.deque"
        | "Set"
        | "types.MappingProxyType"
        | "Object.seal"
        | "os.fsencode"
        | "pathlib.PurePath"
        | "typing.cast" => match (name, args.get(1)) {
            ("typing.cast", Some(second)) => (**second).clone(),
            ("asyncio.gather", _) => Value::list(args.to_vec()),
            ("itertools.chain", _) => Value::list(
                args.iter().flat_map(|arg| arg.items.iter().flat_map(|items| items.iter().cloned())).collect(),
            ),
            ("Buffer.concat", _) => joined(first?, "")?,
            _ => (**first?).clone(),
        },
        "str.join" => joined(args.get(1)?, text?)?,
        "str.format" => formatted(text?, args.get(1..)?),
        "str.lower" | "str.upper" | "str.swapcase" | "str.strip" | "bytes.decode" | "str.encode" => {
            method(first?, name.rsplit('.').next()?, args.get(1..)?)?
        }
        "shlex.split" => match text {
            Some(text) => split(text, None, true),
            None => split_each(&first?.texts)?,
        },
        "shlex.join" => joined(first?, " ")?,
        "os.path.join" | "path.join" | "path.resolve" | "posixpath.join" | "path.posix.join" => {
            return Some(path(args));
        }
        "int" | "parseInt" | "Number" => {
            let base = args.get(1).and_then(|arg| arg.number).and_then(|base| u32::try_from(base).ok()).unwrap_or(10);
            match text {
                Some(text) if (2..=36).contains(&base) => {
                    Value::number(i64::from_str_radix(text.trim().trim_start_matches("0x"), base).ok()?)
                }
                _ => Value::number(first?.number?),
            }
        }
        "path.dirname" if is_itself(first?) => return Some(Value::clone(&here())),
        "URL" | "url.URL" if args.get(1).is_some_and(|base| is_itself(base)) => {
            return Some(path(&[here(), Rc::clone(first?)]));
        }
        "os.path.dirname" | "path.dirname" | "posixpath.dirname" if !first?.texts.is_empty() => {
            let texts: Vec<Text> = first?.texts.iter().map(super::member::parent).collect();
            Value { texts: texts.into(), ..Value::default() }
        }
        "os.path.expandvars" => super::lists::expanded(first?),
        "sqlalchemy.text" | "sqlalchemy.sql.text" | "psycopg2.sql.SQL" | "psycopg.sql.SQL" => (**first?).clone(),
        "vars" | "str" | "String" | "repr" | "os.fspath" | "os.fsdecode" | "shlex.quote" | "pipes.quote"
        | "os.path.expanduser" | "os.path.abspath" | "os.path.realpath" | "os.path.normpath" | "path.normalize"
        | "bytes" | "bytearray" | "memoryview" | "compile" | "JSON.stringify" | "fileURLToPath"
        | "url.fileURLToPath" | "URL" | "url.URL" | "Promise.resolve" | "Object.freeze" | "functools.reduce"
        | "iter" | "staticmethod" | "classmethod" | "String.raw" | "Object" => (**first?).clone(),
        _ => return None,
    };
    let nothing = Value::default();
    Some(keep(value, &nothing, args))
}

/// Paths one after the other; an absolute one begins anew.
pub(super) fn path(args: &[Held]) -> Value {
    let start = args
        .iter()
        .rposition(|arg| arg.texts.first().is_some_and(|text| text.known_start().starts_with('/')))
        .unwrap_or(0);
    let mut parts: Vec<Held> = args[start..].iter().filter(|arg| arg.as_known() != Some("")).cloned().collect();
    if let Some(below) = super::below::from_here(&parts) {
        parts = below;
    }
    if let [root, _, ..] = parts.as_mut_slice()
        && root.as_known() == Some("/")
    {
        // The root is nothing but the sign that comes behind it.
        *root = Rc::new(Value { texts: vec![Text::default()].into(), ..Value::clone(root) });
    }
    let mut value = join(&parts, "/");
    if super::below::is_project(&parts) {
        value.add_name(super::below::PROJECT);
    }
    for text in value.texts.own() {
        if let Some(known) = text.as_known().filter(|known| known.contains("//") && !known.contains("://")) {
            *text = Text::known(known.replace("//", "/"));
        }
    }
    value
}

/// `text[start:end:step]`, counted in letters.
pub(super) fn slice(text: &str, start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Option<Value> {
    let letters: Vec<char> = text.chars().collect();
    let length = i64::try_from(letters.len()).ok()?;
    let place = |at: i64| if at < 0 { at.saturating_add(length).max(-1) } else { at.min(length) };
    let step = step.unwrap_or(1);
    let mut taken = String::new();
    if step > 0 {
        let (mut at, end) = (start.map_or(0, |at| place(at).max(0)), end.map_or(length, |at| place(at).max(0)));
        while at < end {
            taken.push(*letters.get(usize::try_from(at).ok()?)?);
            at = at.saturating_add(step);
        }
    } else if step < 0 {
        let (mut at, end) = (start.map_or(length - 1, |at| place(at).min(length - 1)), end.map_or(-1, place));
        while at > end {
            taken.push(*letters.get(usize::try_from(at).ok()?)?);
            at = at.saturating_add(step);
        }
    }
    let making = if step == 1 { Making::Built } else { Making::Decoded };
    Some(Value { making, ..Value::known(taken) })
}

/// `text % values`.
pub(super) fn percent(text: &str, values: &Value) -> Value {
    let parts: Vec<Held> = match &values.items {
        Some(items) => (**items).clone(),
        None => vec![Rc::new(values.clone())],
    };
    let mut waiting = parts.into_iter();
    let mut pieces: Vec<Held> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        pieces.push(Rc::new(Value::known(&rest[..at])));
        let after = &rest[at + 1..];
        let conversion = after
            .find(|letter: char| letter.is_ascii_alphabetic() || letter == '%' || letter == '(')
            .unwrap_or(after.len());
        let Some(letter) = after[conversion..].chars().next() else {
            rest = "";
            break;
        };
        rest = &after[conversion + letter.len_utf8()..];
        match letter {
            '%' => pieces.push(Rc::new(Value::known("%"))),
            '(' => {
                let Some((name, after)) = rest.split_once(')') else { break };
                pieces.push(values.field(name).unwrap_or_default());
                rest = after.get(1..).unwrap_or_default();
            }
            'c' => {
                let value = waiting.next().unwrap_or_default();
                pieces.push(Rc::new(function("chr", std::slice::from_ref(&value)).unwrap_or_else(|| (*value).clone())));
            }
            _ => pieces.push(waiting.next().unwrap_or_default()),
        }
    }
    pieces.push(Rc::new(Value::known(rest)));
    join(&pieces, "")
}

/// One letter of a text, also from its end.
pub(super) fn letter(text: &str, at: i64) -> Option<String> {
    let letter = if at < 0 {
        text.chars().rev().nth(usize::try_from(-(at + 1)).ok()?)
    } else {
        text.chars().nth(usize::try_from(at).ok()?)
    };
    letter.map(String::from)
}

/// A text again and again.
pub(super) fn repeated(text: &str, times: i64) -> Option<Value> {
    let times = usize::try_from(times.max(0)).ok()?;
    (text.len().checked_mul(times)? <= TEXT_BYTES).then(|| Value::known(text.repeat(times)))
}

fn bounded(length: usize, from: &str, to: &str, text: &str) -> Option<Value> {
    let times = if from.is_empty() { length + 1 } else { length / from.len() };
    (length + times.checked_mul(to.len())? <= TEXT_BYTES)
        .then(|| Value { making: Making::Built, ..Value::known(text.replace(from, to)) })
}

/// What is known of a value besides its text stays known of what is made of it.
fn keep(mut value: Value, receiver: &Value, args: &[Held]) -> Value {
    value.flows.add_all(&receiver.flows);
    value.making = value.making.max(receiver.making);
    for arg in args {
        value.flows.add_all(&arg.flows);
        value.making = value.making.max(arg.making);
    }
    value
}

pub(super) fn joined(list: &Value, between: &str) -> Option<Value> {
    if let Some(text) = list.as_known() {
        let parts: Vec<Held> = text.chars().take(ITEMS).map(|letter| Rc::new(Value::known(letter))).collect();
        return Some(Value { making: list.making, ..join(&parts, between) });
    }
    let items = list.items.as_ref()?;
    if items.len() >= ITEMS {
        return Some(Value::text(Text::hole(Hole::Value)));
    }
    let whole = join(items, between);
    // Words and paths are put together every day; one name is not.
    let is_one = items.len() > 1 && matches!(between, "" | "_" | "-");
    Some(if is_one && whole.making == Making::Plain { Value { making: Making::Built, ..whole } } else { whole })
}

fn formatted(text: &str, args: &[Held]) -> Value {
    let mut pieces: Vec<Held> = Vec::new();
    let (mut rest, mut next) = (text, 0);
    while let Some(at) = rest.find(['{', '}']) {
        pieces.push(Rc::new(Value::known(&rest[..at])));
        let after = &rest[at + 1..];
        if after.as_bytes().first() == rest.as_bytes().get(at) {
            pieces.push(Rc::new(Value::known(&after[..1])));
            rest = &after[1..];
            continue;
        }
        let Some((field, after)) = after.split_once('}') else {
            rest = "";
            break;
        };
        rest = after;
        let name = field.split([':', '!', '.', '[']).next().unwrap_or_default();
        let plain = name.len() == field.len();
        let position = if name.is_empty() {
            next += 1;
            Some(next - 1)
        } else {
            name.parse().ok()
        };
        let by_name = args.last().and_then(|named| named.field(name));
        let value = position
            .and_then(|at: usize| args.get(at))
            .cloned()
            .or(by_name)
            .filter(|_| plain || field.contains(':') || field.contains('!'));
        pieces.push(value.unwrap_or_else(|| Rc::new(Value::text(Text::hole(Hole::Variable(name.to_owned()))))));
    }
    pieces.push(Rc::new(Value::known(rest)));
    join(&pieces, "")
}

fn by_code(code: &str, text: &str) -> Option<Value> {
    match code.to_ascii_lowercase().replace('-', "_").as_str() {
        "rot13" | "rot_13" => Some(Value::decoded(decode::rot13(text))),
        "hex" | "hex_codec" => Some(Value::decoded(decode::text_of(decode::hex(text)?))),
        "base64" | "base64_codec" | "base64url" => Some(Value::decoded(decode::text_of(decode::base64(text)?))),
        "unicode_escape" | "raw_unicode_escape" => Some(Value::decoded(decode::escapes(text))),
        "utf8" | "utf_8" | "ascii" | "latin1" | "latin_1" | "binary" | "utf_16" | "utf16le" | "ucs2" | "cp1252" => {
            Some(Value::known(text))
        }
        _ => None,
    }
}

fn split(text: &str, by: Option<&str>, plain: bool) -> Value {
    let words: Vec<Held> = match by {
        Some("") => text.chars().take(ITEMS).map(|letter| Rc::new(Value::known(letter))).collect(),
        Some(by) => text.split(by).take(ITEMS + 1).map(|word| Rc::new(Value::known(word))).collect(),
        None if plain => words(text).into_iter().take(ITEMS + 1).map(|word| Rc::new(Value::known(word))).collect(),
        None => vec![Rc::new(Value::text(Text::hole(Hole::Value)))],
    };
    Value::list(words)
}

/// The words of one of several lines: each word is one of those at its place.
fn split_each(lines: &super::few::Few<Text>) -> Option<Value> {
    let lines: Vec<Vec<String>> = lines.iter().map(|line| line.as_known().map(words)).collect::<Option<_>>()?;
    let longest = lines.iter().map(Vec::len).max()?.min(ITEMS);
    let at = |place: usize| {
        let mut all = lines.iter().filter_map(|line| line.get(place)).map(|word| Value::known(word.as_str()));
        let first = all.next().unwrap_or_default();
        Rc::new(all.fold(first, |either, word| either.or(&word)))
    };
    Some(Value::list((0..longest).map(at).collect()))
}

/// Words by spaces, with quotes understood.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn letters(letters: impl Iterator<Item = char>) -> Value {
    Value::list(letters.take(ITEMS).map(|letter| Rc::new(Value::known(letter))).collect())
}

fn numbers(args: &[Held]) -> Option<Vec<i64>> {
    let list = match args {
        [only] if only.items.is_some() => only.items.as_ref()?.as_slice(),
        args => args,
    };
    (!list.is_empty()).then(|| list.iter().map(|item| item.number).collect::<Option<Vec<i64>>>())?
}

fn swapped(text: &str) -> String {
    let swap = |letter: char| {
        if letter.is_uppercase() { letter.to_lowercase().collect() } else { letter.to_uppercase().collect::<String>() }
    };
    text.chars().map(swap).collect()
}

/// A shell line with a variable where something is not known, so that a shell's reader sees the same hole.
pub(super) fn as_shell_line(text: &Text) -> String {
    text.pieces()
        .iter()
        .map(|piece| match piece {
            Piece::Known(known) | Piece::Pattern(known) => known.clone(),
            Piece::Hole(Hole::Variable(name)) if is_plain(name) || name == "HOME" => format!("${{{name}}}"),
            Piece::Hole(_) => "${value}".to_owned(),
        })
        .collect()
}

fn is_plain(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect(),
        None => String::new(),
    }
}
