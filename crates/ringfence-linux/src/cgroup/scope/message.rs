//! The few D-Bus messages that a scope needs: two calls are written, answers are read as far as they matter.
//!
//! Everything is little-endian, which every bus understands, and aligned as the format wants: each value begins at a multiple of its
//! own size, counted from the beginning of the message.

/// The part of every message whose length is known.
pub(super) const START: usize = 16;
/// The answers that we ask for have a few hundred bytes.
pub(super) const MOST_MESSAGE: usize = 64 * 1024;

const LITTLE_ENDIAN: u8 = b'l';
const VERSION: u8 = 1;
const CALL: u8 = 1;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// A method that is called.
pub(super) struct Call<'a> {
    destination: &'a str,
    path: &'a str,
    interface: &'a str,
    member: &'a str,
    signature: &'a str,
    body: Vec<u8>,
}

impl Call<'_> {
    /// What everybody says first.
    pub(super) fn hello() -> Self {
        Self {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
            body: Vec::new(),
        }
    }

    /// Asks for the scope `name` with process `pid` in it, whose cgroup is then ours. It goes away with its last process.
    pub(super) fn start_scope(name: &str, pid: u32) -> Self {
        let mut body = Writer::default();
        body.text(name);
        body.text("fail");
        body.array(8, |properties| {
            properties.property("Description", "s", |value| value.text("sandboxes of Ringfence"));
            properties.property("Delegate", "b", |value| value.number(1));
            properties.property("CollectMode", "s", |value| value.text("inactive-or-failed"));
            properties.property("PIDs", "au", |value| value.array(4, |pids| pids.number(pid)));
        });
        body.array(8, |_no_other_units| {});
        Self {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member: "StartTransientUnit",
            signature: "ssa(sv)a(sa(sv))",
            body: body.bytes,
        }
    }

    /// The whole message.
    pub(super) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut message = Writer { bytes: vec![LITTLE_ENDIAN, CALL, 0, VERSION] };
        message.number(u32::try_from(self.body.len()).unwrap_or(u32::MAX));
        message.number(serial);
        message.array(8, |fields| {
            fields.field(PATH, "o", self.path);
            fields.field(INTERFACE, "s", self.interface);
            fields.field(MEMBER, "s", self.member);
            fields.field(DESTINATION, "s", self.destination);
            if !self.signature.is_empty() {
                fields.align(8);
                fields.bytes.push(SIGNATURE);
                fields.signature("g");
                fields.signature(self.signature);
            }
        });
        message.align(8);
        message.bytes.extend(&self.body);
        message.bytes
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.bytes.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.bytes.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.bytes.extend(signature.as_bytes());
        self.bytes.push(0);
    }

    /// Its length in bytes stands before it and does not count what aligns its first item.
    fn array(&mut self, item: usize, items: impl FnOnce(&mut Self)) {
        self.number(0);
        let length = self.bytes.len() - 4;
        self.align(item);
        let begin = self.bytes.len();
        items(self);
        let bytes = u32::try_from(self.bytes.len() - begin).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(place) = self.bytes.get_mut(length..length + 4) {
            place.copy_from_slice(&bytes);
        }
    }

    fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Self)) {
        self.align(8);
        self.text(name);
        self.signature(signature);
        value(self);
    }

    fn field(&mut self, field: u8, signature: &str, text: &str) {
        self.align(8);
        self.bytes.push(field);
        self.signature(signature);
        self.text(text);
    }
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Answer,
    Error,
    Other,
}

/// A message that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) kind: Kind,
    /// The call that it answers.
    pub(super) answers: Option<u32>,
    error: Option<String>,
    /// The first text of the body, where there is one.
    text: Option<String>,
}

/// How many bytes follow the first ones.
pub(super) fn length_after(start: &[u8; START]) -> Option<usize> {
    let number = |at: usize| start.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if start[0] != LITTLE_ENDIAN || start[3] != VERSION {
        return None;
    }
    let (body, fields) = (usize::try_from(number(4)?).ok()?, usize::try_from(number(12)?).ok()?);
    START.checked_add(fields)?.checked_next_multiple_of(8)?.checked_sub(START)?.checked_add(body)
}

impl Arrived {
    /// Nothing for what is not a message as we know them.
    pub(super) fn decode(start: &[u8; START], rest: &[u8]) -> Option<Self> {
        let whole = [start.as_slice(), rest].concat();
        let mut reader = Reader { bytes: &whole, at: 12 };
        let fields_end = usize::try_from(reader.number()?).ok()?.checked_add(START)?;
        let mut arrived = Self {
            kind: match start[1] {
                2 => Kind::Answer,
                3 => Kind::Error,
                _ => Kind::Other,
            },
            answers: None,
            error: None,
            text: None,
        };
        let mut of_body = String::new();
        while reader.at < fields_end {
            reader.align(8)?;
            let field = reader.byte()?;
            match (field, reader.signature()?.as_str()) {
                (REPLY_SERIAL, "u") => arrived.answers = Some(reader.number()?),
                (ERROR_NAME, "s") => arrived.error = Some(reader.text()?),
                (SIGNATURE, "g") => of_body = reader.signature()?,
                (_, "s" | "o") => drop(reader.text()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u") => drop(reader.number()?),
                _ => return None,
            }
        }
        reader.align(8)?;
        if of_body.starts_with('s') {
            arrived.text = Some(reader.text()?);
        }
        Some(arrived)
    }

    /// What went wrong, in the words of who says so.
    pub(super) fn complaint(&self) -> String {
        match (&self.text, &self.error) {
            (Some(text), _) => text.clone(),
            (None, Some(name)) => name.clone(),
            (None, None) => "without a reason".to_owned(),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) -> Option<()> {
        self.at = self.at.checked_next_multiple_of(to)?;
        Some(())
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.align(4)?;
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        self.ended(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::from(self.byte()?);
        self.ended(length)
    }

    /// So many bytes of text and a zero.
    fn ended(&mut self, length: usize) -> Option<String> {
        let text = std::str::from_utf8(self.take(length)?).ok()?.to_owned();
        (self.byte()? == 0).then_some(text)
    }
}
