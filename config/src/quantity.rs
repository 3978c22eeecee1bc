//! Numbers with units: data rates, and other quantities that a file describes by a [`Quantity`].

use toml::de::DeValue;

use crate::code::{Code, Kind};
use crate::reader::{Complaint, wrong_type};
use crate::value::Read;
use crate::word::meaning;

/// A physical quantity, with its units.
#[derive(Debug)]
pub struct Quantity {
    /// Name with its article, for messages: "a rate".
    pub what: &'static str,
    /// Example of a value: "1 Gbit/s".
    pub example: &'static str,
    /// Names of the units, each with its factor to the smallest unit.
    pub units: &'static [(&'static str, u64)],
    /// Largest value accepted, in the smallest unit.
    pub most: u64,
}

const RATE: Quantity = Quantity {
    what: "a rate",
    example: "1 Gbit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
    ],
    most: u64::MAX,
};

/// Reads a data rate from 1 to `most` bit/s: `"100 Mbit/s"`.
///
/// # Errors
/// See [`read`].
pub fn bit_rate<C: Kind>(value: &DeValue<'_>, most: u64) -> Read<u64, C> {
    read(value, &Quantity { most, ..RATE }, 1)
}

/// Formats a rate in bit/s for [`bit_rate`], in the largest unit of which the rate is a whole number.
pub fn bit_rate_text(rate: u64) -> String {
    let unit = RATE.units.iter().rev().find(|(_, scale)| rate != 0 && rate % scale == 0);
    let (name, scale) = unit.unwrap_or(&RATE.units[0]);
    format!("{} {name}", rate / scale)
}

/// Reads a quantity of `kind`, at least `least`, in its smallest unit. Decimals are accepted if exact.
///
/// # Errors
/// A complaint that names the error and the form expected.
pub fn read<C: Kind>(value: &DeValue<'_>, kind: &Quantity, least: u64) -> Read<u64, C> {
    let example = || format!("write a number and a unit: \"{}\"", kind.example);
    let DeValue::String(text) = value else {
        return Err(wrong_type(&format!("{} such as \"{}\"", kind.what, kind.example), value).hint(example()));
    };
    let wrong = |why: &str| {
        Complaint::new(Code::BadQuantity, format!("\"{text}\" is not {}: {why}", kind.what)).hint(example())
    };
    let text = text.trim();
    let digits =
        text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+')).unwrap_or(text.len());
    let (digits, unit) = (text[..digits].trim(), text[digits..].trim());
    if unit.is_empty() {
        return Err(wrong("it has no unit"));
    }
    let scale = kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale);
    let Some(scale) = scale else {
        let known: Vec<&str> = kind.units.iter().map(|(name, _)| *name).collect();
        let complaint = wrong(&format!("unknown unit \"{unit}\""));
        return Err(complaint.hint(format!("the units are {}", known.join(", "))));
    };
    match exact(digits, scale) {
        Some(Ok(number)) if (least..=kind.most).contains(&number) => Ok(number),
        Some(_) => {
            let complaint = Complaint::new(Code::BadNumber, format!("\"{text}\" is out of range"));
            Err(complaint.hint(format!("from {least} to {} {}", kind.most, kind.units[0].0)))
        }
        None => Err(wrong("the number is not one, or is no whole number of the smallest unit")),
    }
}

/// Units of time in nanoseconds, the longest first.
pub const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a time as numbers with units, the longest first: `2h4m`, `1.5us`. Returns nanoseconds, a fraction of one cut off;
/// `None` for any other text, and above `u64::MAX`.
pub fn duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut longest = u64::MAX;
    loop {
        let (number, tail) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        longest = meaning(TIME_UNITS, unit).filter(|unit| *unit < longest)?;
        let number = number.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = [whole, fraction].concat();
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let scaled = digits.parse::<u128>().ok()?.checked_mul(longest.into())?;
        let nanos = scaled / 10_u128.checked_pow(fraction.len() as u32)?;
        total = total.checked_add(u64::try_from(nanos).ok()?)?;
        if tail.is_empty() {
            return Some(total);
        }
        rest = tail;
    }
}

/// Product of `digits` and `scale` if whole; `Some(Err)` if negative or too large.
pub fn exact(digits: &str, scale: u64) -> Option<Result<u64, ()>> {
    let (negative, digits) = digits.strip_prefix('-').map_or((false, digits), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !(whole.to_owned() + fraction).bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if negative || whole.len() + fraction.len() > 18 {
        return Some(Err(()));
    }
    let number: u128 = format!("{whole}{fraction}").parse().ok()?;
    let divisor = 10_u128.pow(fraction.len() as u32);
    let product = number * u128::from(scale);
    (product % divisor == 0).then(|| u64::try_from(product / divisor).map_err(|_| ()))
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::{bit_rate, bit_rate_text, duration, exact};
    use crate::Complaint;

    #[test]
    fn products_that_do_not_fit_are_refused() {
        assert_eq!(exact("999999999999999999", 1 << 40), Some(Err(())));
        assert_eq!(exact("0.1", 1), None);
        assert_eq!(exact("", 1), None);
    }

    #[test]
    fn a_duration_names_the_longest_units_first() {
        for (text, nanos) in [
            ("0s", 0),
            ("30s", 30_000_000_000),
            ("2h4m", 7_440_000_000_000),
            ("1s250ms1ns", 1_250_000_001),
            (" 1.5 us ", 1_500),
            ("33.3333us", 33_333),
            ("0.5ns", 0),
            ("213503d23h34m33s709ms551us615ns", u64::MAX),
        ] {
            assert_eq!(duration(text), Some(nanos), "{text}");
        }
        let bad = [
            "",
            "30",
            "s",
            "4m2h",
            "1m1m",
            "-1s",
            "+1s",
            "1.2.3s",
            "1 0s",
            "1x",
            "213503d23h34m33s709ms551us616ns",
        ];
        for text in bad {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_rate_is_written_as_it_is_read() {
        for (rate, text) in [
            (1, "1 bit/s"),
            (64_000, "64 kbit/s"),
            (100_000_000, "100 Mbit/s"),
            (2_500_000_000, "2500 Mbit/s"),
            (10_000_000_000_000, "10 Tbit/s"),
        ] {
            assert_eq!(bit_rate_text(rate), text);
            let written = format!("\"{text}\"");
            let value = DeValue::parse(&written).unwrap().into_inner();
            assert_eq!(bit_rate(&value, rate), Ok::<_, Complaint>(rate));
            assert!(bit_rate::<crate::Code>(&value, rate - 1).is_err());
        }
    }
}
