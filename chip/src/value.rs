//! Values of chip and mapping files: numbers with units, names, and words.

use config::quantity::{self, Quantity, exact};
use config::{did_you_mean, value, wrong_type};
use toml::de::DeValue;
use wire::link::MOST_RATE;
use wire::{BitRate, Bytes};

use crate::clock::{Cycles, Hertz};
use crate::description::bound;
use crate::diagnostic::Code;

pub(crate) use config::value::{flag, one_of, owned, text};

pub(crate) type Complaint = config::Complaint<Code>;
pub(crate) type Table<'s, 't, 'i> = config::Table<'s, 't, 'i, Code>;
pub(crate) type Sink = config::Sink<Code>;
pub(crate) type Read<T> = Result<T, Complaint>;

/// Names that people give to things, at most.
const LONGEST_NAME: usize = 32;

const FREQUENCY: Quantity = Quantity {
    what: "a frequency",
    example: "600 MHz",
    units: &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)],
    most: bound::HERTZ,
};

/// Sizes are those of memories: a KB has 1,024 bytes, whether it is written KB or KiB.
const SIZE: Quantity = Quantity {
    what: "a size",
    example: "8 MB",
    units: &[
        ("B", 1),
        ("KB", 1 << 10),
        ("KiB", 1 << 10),
        ("MB", 1 << 20),
        ("MiB", 1 << 20),
        ("GB", 1 << 30),
        ("GiB", 1 << 30),
        ("TB", 1 << 40),
        ("TiB", 1 << 40),
    ],
    most: bound::BYTES,
};

/// A frequency, not zero.
pub(crate) fn hertz(value: &DeValue<'_>) -> Read<Hertz> {
    quantity::read(value, &FREQUENCY, 1).map(Hertz)
}

/// A size, not zero.
pub(crate) fn bytes(value: &DeValue<'_>) -> Read<Bytes> {
    quantity::read(value, &SIZE, 1).map(Bytes)
}

/// A size or an offset, which may be zero.
pub(crate) fn offset(value: &DeValue<'_>) -> Read<u64> {
    match value {
        DeValue::Integer(_) => number(value, 0, bound::BYTES),
        _ => quantity::read(value, &SIZE, 0),
    }
}

/// A rate, not zero.
pub(crate) fn rate(value: &DeValue<'_>) -> Read<BitRate> {
    quantity::bit_rate(value, MOST_RATE.0).map(BitRate)
}

/// An integer from `least` to `most`.
pub(crate) fn number(value: &DeValue<'_>, least: u64, most: u64) -> Read<u64> {
    value::number(value, least, most)
}

/// An integer of 32 bits from `least` to `most`.
pub(crate) fn number32(value: &DeValue<'_>, least: u32, most: u32) -> Read<u32> {
    number(value, least.into(), most.into()).map(|number| number as u32)
}

/// A number of cycles, which may be zero.
pub(crate) fn cycles(value: &DeValue<'_>) -> Read<Cycles> {
    number(value, 0, bound::CYCLES).map(Cycles)
}

/// A number with up to three decimals, from `least` to `most`, in thousandths.
pub(crate) fn thousandths(value: &DeValue<'_>, least: u32, most: u32) -> Read<u32> {
    let text = match value {
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        other => return Err(wrong_type("a number", other)),
    };
    match exact(&text, 1_000) {
        Some(Ok(number)) if (least.into()..=most.into()).contains(&number) => Ok(number as u32),
        _ => {
            let (least, most) = (f64::from(least) / 1e3, f64::from(most) / 1e3);
            let complaint = Complaint::new(config::Code::BadNumber, format!("{text} is out of range"));
            Err(complaint.hint(format!("from {least} to {most}, with three decimals at most")))
        }
    }
}

/// A number that is not negative and not absurd.
pub(crate) fn float(value: &DeValue<'_>, most: f64) -> Read<f64> {
    let text = match value {
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        other => return Err(wrong_type("a number", other)),
    };
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= most => Ok(number),
        _ => Err(Complaint::new(config::Code::BadNumber, format!("{text} is out of range"))
            .hint(format!("above 0, up to {most}"))),
    }
}

/// Reads a name and returns its place in `names`. Error: `code`, if no `what` has that name.
pub(crate) fn place_of(value: &DeValue<'_>, names: &[&str], what: &str, code: Code) -> Read<usize> {
    find(text(value)?, names, what, code)
}

/// Returns the place of `name` in `names`. Error: `code`, if no `what` has that name.
pub(crate) fn find(name: &str, names: &[&str], what: &str, code: Code) -> Read<usize> {
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let hint = did_you_mean(name, names.iter().copied(), || match names.is_empty() {
            true => format!("there is no {what} at all"),
            false => format!("one of: {}", names.join(", ")),
        });
        Complaint::new(code, format!("no {what} is called \"{name}\"")).hint(hint)
    })
}

/// Complains of a name that someone gives to a thing, if it is none.
pub(crate) fn check_name(name: &str) -> Read<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits) {
        return Ok(());
    }
    let complaint = Complaint::new(config::Code::BadName, format!("\"{name}\" is no name"));
    Err(complaint.hint(format!("1 to {LONGEST_NAME} small letters, digits and hyphens")))
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;
    use wire::{BitRate, Bytes};

    use super::{bytes, hertz, rate, thousandths};
    use crate::clock::Hertz;

    fn value(text: &str) -> DeValue<'_> {
        DeValue::parse(text).unwrap().into_inner()
    }

    #[test]
    fn quantities_are_exact() {
        assert_eq!(hertz(&value("\"1.4 GHz\"")), Ok(Hertz(1_400_000_000)));
        assert_eq!(hertz(&value("\"66.67mhz\"")), Ok(Hertz(66_670_000)));
        assert_eq!(bytes(&value("\"8 MB\"")), Ok(Bytes(8 << 20)));
        assert_eq!(bytes(&value("\"0.5 KiB\"")), Ok(Bytes(512)));
        assert_eq!(rate(&value("\"2.5 Gbit/s\"")), Ok(BitRate(2_500_000_000)));
        assert_eq!(thousandths(&value("1.25"), 0, 2_000), Ok(1_250));
        assert_eq!(thousandths(&value("2"), 0, 2_000), Ok(2_000));
    }

    #[test]
    fn what_is_not_a_quantity_is_told_why() {
        for (text, why) in [
            ("\"600\"", "no unit"),
            ("\"600 MHx\"", "unknown unit"),
            ("\"six MHz\"", "unknown unit"),
            ("\"1.2.3 MHz\"", "not one"),
            ("\"0.5 Hz\"", "whole"),
            ("\"MHz\"", "not one"),
            ("\"-1 MHz\"", "out of range"),
            ("\"0 MHz\"", "out of range"),
            ("\"101 GHz\"", "out of range"),
            ("\"99999999999999999999 GHz\"", "out of range"),
            ("600", "expected a frequency"),
        ] {
            let complaint = hertz(&value(text)).unwrap_err();
            assert!(complaint.message.contains(why), "{text}: {}", complaint.message);
            assert!(complaint.hint.is_some(), "{text}");
        }
    }
}
