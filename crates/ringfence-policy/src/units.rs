//! Quantities as people write them: `512MiB`, `120s`, `1.5` cpus.
//!
//! Every type prints what it reads: `text.parse::<T>()?.to_string()` parses to the same value again.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::diagnostic::{Invalid, quote};

/// A quantity that cannot be read, and how to write it.
pub type UnitError = Invalid;

const BAD_UNIT: &str = "policy::bad-unit";
const OUT_OF_RANGE: &str = "policy::out-of-range";

/// A number of bytes, written `512MiB`. A number without a unit means bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A length of time above zero and at most a week, written `120s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(Duration);

/// A share of processors in thousandths, written `1.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus {
    millis: u32,
}

/// Largest first within each family, so that the first exact one is the shortest to print.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl Bytes {
    /// Exactly `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const HOW: &str = "write a number and a unit, such as `512MiB` (B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)";
        let (number, unit) = split_unit(text);
        let decimal = Decimal::parse(number)
            .ok_or_else(|| Invalid::new(BAD_UNIT, format!("{} is not an amount of bytes", quote(text)), HOW))?;
        let size = match unit {
            "" => 1,
            _ => match BYTE_UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, size)) => *size,
                None => return Err(unknown_byte_unit(text, number, unit, HOW)),
            },
        };
        decimal.times(size).map(Self).map_err(|problem| match problem {
            Inexact::TooLarge => Invalid::new(OUT_OF_RANGE, format!("{} is too much", quote(text)), HOW),
            Inexact::Fraction => Invalid::new(BAD_UNIT, format!("{} is not a whole number of bytes", quote(text)), HOW),
        })
    }
}

/// `512m` and `512Mb` are read as different sizes by different programs, so they are read by none here.
fn unknown_byte_unit(text: &str, number: &str, unit: &str, how: &str) -> Invalid {
    let meant = match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "ki" | "kib" => Some("KiB"),
        "m" | "mb" | "mi" | "mib" => Some("MiB"),
        "g" | "gb" | "gi" | "gib" => Some("GiB"),
        "t" | "tb" | "ti" | "tib" => Some("TiB"),
        "b" | "byte" | "bytes" => Some("B"),
        _ => None,
    };
    match meant {
        Some(meant) => Invalid::new(
            BAD_UNIT,
            format!("the unit of {} can be read in two ways", quote(text)),
            format!("write `{number}{meant}`"),
        ),
        None => Invalid::new(BAD_UNIT, format!("{} has no unit that we know", quote(text)), how),
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        match BYTE_UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size)) {
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl TimeSpan {
    /// The longest that can be written.
    pub const MAX: Self = Self(Duration::from_secs(7 * 24 * 60 * 60));

    /// A span that is above zero and at most [`TimeSpan::MAX`].
    pub fn new(duration: Duration) -> Result<Self, UnitError> {
        const HOW: &str = "write a time above zero and at most `168h`, such as `120s`";
        if duration.is_zero() {
            return Err(Invalid::new(OUT_OF_RANGE, "a time of zero would end every run before it starts", HOW));
        }
        if duration > Self::MAX.0 {
            return Err(Invalid::new(OUT_OF_RANGE, "the time is longer than a week", HOW));
        }
        Ok(Self(duration))
    }

    /// The length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const HOW: &str = "write a number and a unit, such as `120s` (ms, s, m, h)";
        let (number, unit) = split_unit(text);
        let decimal = Decimal::parse(number)
            .ok_or_else(|| Invalid::new(BAD_UNIT, format!("{} is not a length of time", quote(text)), HOW))?;
        let nanos_per_unit = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => {
                // Zero, or more than a week of seconds, is wrong with a unit as well; say that first.
                format!("{number}s").parse::<Self>()?;
                let how = format!("write `{number}s` for seconds (or ms, m, h)");
                return Err(Invalid::new(BAD_UNIT, format!("{} has no unit", quote(text)), how));
            }
            _ => return Err(Invalid::new(BAD_UNIT, format!("{} has no unit that we know", quote(text)), HOW)),
        };
        let nanos = decimal.times(nanos_per_unit).map_err(|problem| match problem {
            Inexact::TooLarge => Invalid::new(OUT_OF_RANGE, format!("{} is longer than a week", quote(text)), HOW),
            Inexact::Fraction => Invalid::new(BAD_UNIT, format!("{} is finer than a nanosecond", quote(text)), HOW),
        })?;
        Self::new(Duration::from_nanos(nanos))
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if nanos == 0 {
            write!(f, "{seconds}s")
        } else if seconds == 0 && nanos.is_multiple_of(1_000_000) {
            write!(f, "{}ms", nanos / 1_000_000)
        } else {
            let fraction = format!("{nanos:09}");
            write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
        }
    }
}

impl Cpus {
    /// More than any machine has.
    const MAX_MILLIS: u32 = 4_096_000;

    /// `millis` thousandths of a processor: above zero, at most 4096 whole ones.
    pub fn from_millis(millis: u32) -> Result<Self, UnitError> {
        if millis == 0 || millis > Self::MAX_MILLIS {
            return Err(Invalid::new(
                OUT_OF_RANGE,
                "the number of processors must be above 0 and at most 4096",
                "write it as a number, such as `1.5`",
            ));
        }
        Ok(Self { millis })
    }

    /// Thousandths of a processor.
    pub const fn millis(self) -> u32 {
        self.millis
    }
}

impl FromStr for Cpus {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const HOW: &str = "write a number above 0 with at most three decimals, such as `1.5`";
        let decimal = Decimal::parse(text)
            .ok_or_else(|| Invalid::new(BAD_UNIT, format!("{} is not a number of processors", quote(text)), HOW))?;
        let millis = decimal.times(1000).map_err(|problem| match problem {
            Inexact::TooLarge => Invalid::new(OUT_OF_RANGE, format!("{} is too many processors", quote(text)), HOW),
            Inexact::Fraction => Invalid::new(BAD_UNIT, format!("{} is finer than a thousandth", quote(text)), HOW),
        })?;
        Self::from_millis(u32::try_from(millis).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.millis / 1000, self.millis % 1000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            let fraction = format!("{rest:03}");
            write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
        }
    }
}

/// The number at the front and the rest, which is the unit.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.strip_prefix(' ').unwrap_or(unit))
}

/// A decimal number without sign or exponent. No float is involved, so there is no NaN, infinity or rounding.
struct Decimal {
    digits: u128,
    decimals: u32,
}

enum Inexact {
    TooLarge,
    Fraction,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        // As many as `u128` holds together; a `u64` has at most 20.
        if !digits(whole) || !digits(fraction) || whole.len() > 20 || fraction.len() > 18 {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, decimals: u32::try_from(fraction.len()).ok()? })
    }

    fn times(&self, unit: u64) -> Result<u64, Inexact> {
        let scaled = self.digits.checked_mul(u128::from(unit)).ok_or(Inexact::TooLarge)?;
        let divisor = 10_u128.checked_pow(self.decimals).ok_or(Inexact::Fraction)?;
        if !scaled.is_multiple_of(divisor) {
            return Err(Inexact::Fraction);
        }
        u64::try_from(scaled / divisor).map_err(|_| Inexact::TooLarge)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.millis.is_multiple_of(1000) {
            serializer.serialize_u32(self.millis / 1000)
        } else {
            serializer.serialize_f64(f64::from(self.millis) / 1000.0)
        }
    }
}

/// Reads a string, or a number by its text.
struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = UnitError>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }
}

macro_rules! deserialize_from_text {
    ($($unit:ty),*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(TextVisitor(std::marker::PhantomData))
            }
        }
    )*};
}
deserialize_from_text!(Bytes, TimeSpan, Cpus);

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of bytes, such as `512MiB`; a bare number means bytes",
            "anyOf": [
                { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|KB|MB|GB|TB)?$" },
                { "type": "integer", "minimum": 0 }
            ],
            "examples": ["512MiB", "2GiB"]
        })
    }
}

impl JsonSchema for TimeSpan {
    fn schema_name() -> Cow<'static, str> {
        "TimeSpan".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time above zero and at most a week, such as `120s`",
            "type": "string",
            "pattern": r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h)$",
            "examples": ["120s", "1.5s", "10m"]
        })
    }
}

impl JsonSchema for Cpus {
    fn schema_name() -> Cow<'static, str> {
        "Cpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of processors, such as `1.5`",
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 4096
        })
    }
}
