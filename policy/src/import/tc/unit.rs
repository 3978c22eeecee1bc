//! Units of tc: rates, sizes, times, handles (tc(8), sections "Units" and "Handles").

use std::fmt;

use wire::Nanos;

/// Parses a rate to bits per second: a number of bits without a unit; of `kbps` and the like, bytes. As in tc, what remains of a
/// byte per second is cut off.
pub(super) fn rate(word: &str) -> Option<u64> {
    let (number, unit) = split(word)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" => 1.0,
        "kibit" => 1024.0,
        "kbit" => 1e3,
        "mibit" => 1024.0 * 1024.0,
        "mbit" => 1e6,
        "gibit" => 1024.0 * 1024.0 * 1024.0,
        "gbit" => 1e9,
        "tibit" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "tbit" => 1e12,
        "bps" => 8.0,
        "kibps" => 8.0 * 1024.0,
        "kbps" => 8e3,
        "mibps" => 8.0 * 1024.0 * 1024.0,
        "mbps" => 8e6,
        "gibps" => 8.0 * 1024.0 * 1024.0 * 1024.0,
        "gbps" => 8e9,
        "tibps" => 8.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "tbps" => 8e12,
        _ => return None,
    };
    whole(number * scale / 8.0)?.checked_mul(8)
}

/// Parses a size to bytes. Kilobytes are of 1024; a cell, as in `15Kb/8`, and the `p` of a number of packets are ignored.
pub(super) fn size(word: &str) -> Option<u64> {
    let word = word.split('/').next()?;
    let (number, unit) = split(word)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "p" => 1.0,
        "k" | "kb" => 1024.0,
        "m" | "mb" => 1024.0 * 1024.0,
        "g" | "gb" => 1024.0 * 1024.0 * 1024.0,
        "kbit" => 128.0,
        "mbit" => 128.0 * 1024.0,
        "gbit" => 128.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    whole(number * scale)
}

/// Parses a time: microseconds without a unit.
pub(super) fn time(word: &str) -> Option<Nanos> {
    let (number, unit) = split(word)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "s" | "sec" | "secs" => 1e9,
        "ms" | "msec" | "msecs" => 1e6,
        "" | "us" | "usec" | "usecs" => 1e3,
        "ns" | "nsec" | "nsecs" => 1.0,
        _ => return None,
    };
    whole((number * scale).round()).map(Nanos)
}

/// Parses a number as C does: `0x` hexadecimal, `0` octal, else decimal.
pub(super) fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => hex(digits),
        None if word.len() > 1 && word.starts_with('0') => u32::from_str_radix(word, 8).ok(),
        None if word.starts_with('+') => None,
        None => word.parse().ok(),
    }
}

/// Parses a hexadecimal number, with `0x` or without.
pub(super) fn hex(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
    u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
}

/// Splits a number, as tc reads it (strtod: `.5`, `+2`, `1e6`), from its unit.
fn split(word: &str) -> Option<(f64, &str)> {
    let unsigned = word.strip_prefix('+').unwrap_or(word);
    let length = |text: &str, is_part: fn(char) -> bool| text.find(|c| !is_part(c)).unwrap_or(text.len());
    let mut end = length(unsigned, |c| c.is_ascii_digit() || c == '.');
    // Of `1e6bit` the exponent has digits; of `1eb` it is the unit.
    if let Some(exponent) = unsigned[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        match length(digits, |c| c.is_ascii_digit()) {
            0 => {}
            count => end = unsigned.len() - digits.len() + count,
        }
    }
    let (number, unit) = unsigned.split_at(end);
    Some((number.parse().ok()?, unit))
}

fn whole(number: f64) -> Option<u64> {
    // Every float below 2^63 is in range, and the fraction is what is cut off.
    (0.0..9.2e18).contains(&number).then_some(number as u64)
}

/// Handle of a qdisc, `1:`, or of a class, `1:10`, both parts hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Handle {
    pub(super) major: u16,
    pub(super) minor: u16,
}

impl Handle {
    /// Handle of the qdisc that filters incoming packets.
    pub(super) const INGRESS: Handle = Handle { major: 0xffff, minor: 0 };

    /// Parses `1:10`, `1:`, `:10`, or `1`, a major number. A name before `#` is skipped.
    pub(super) fn parse(word: &str) -> Option<Handle> {
        let word = word.rsplit('#').next()?;
        let part = |digits: &str| match digits {
            "" => Some(0),
            digits => hex(digits).and_then(|number| u16::try_from(number).ok()),
        };
        match word.split_once(':') {
            Some((major, minor)) => Some(Handle { major: part(major)?, minor: part(minor)? }),
            None if word.is_empty() => None,
            None => Some(Handle { major: part(word)?, minor: 0 }),
        }
    }

    /// Handle of the qdisc that the class is of.
    pub(super) fn qdisc(self) -> Handle {
        Handle { minor: 0, ..self }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            0 => write!(f, "{:x}:", self.major),
            minor => write!(f, "{:x}:{minor:x}", self.major),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_tc() {
        let rates = [
            ("5Mbit", 5_000_000),
            ("5mbit", 5_000_000),
            ("1.5mbit", 1_500_000),
            ("7500bps", 60_000),
            ("1KBps", 8_000),
            ("1kibit", 1_024),
            ("100", 96),
            ("5Gbit", 5_000_000_000),
            ("400gbit", 400_000_000_000),
            ("1e6bit", 1_000_000),
            ("1.5E+3kbit", 1_500_000),
            ("1e-3gbit", 1_000_000),
            ("+2mbit", 2_000_000),
            (".5mbit", 500_000),
            ("1e9", 1_000_000_000),
        ];
        for (word, bits) in rates {
            assert_eq!(rate(word), Some(bits), "{word}");
        }
        for word in [
            "",
            "mbit",
            "-1mbit",
            "5 mbit",
            "5xbit",
            "10%",
            "99999999999tbit",
            "nan",
            "1e",
            "1e+bit",
            "1e6e",
            "++1",
        ] {
            assert_eq!(rate(word), None, "{word}");
        }
        assert_eq!(
            [size("15Kb"), size("1600b"), size("10Kb/1"), size("100p"), size("2mb")].map(Option::unwrap),
            [15_360, 1_600, 10_240, 100, 2_097_152]
        );
        assert_eq!((size("1kbit"), size("1e5")), (Some(128), Some(100_000)));
        assert_eq!(time("5ms"), Some(Nanos(5_000_000)));
        assert_eq!(time("4999"), Some(Nanos(4_999_000)));
        assert_eq!(
            [number("0x10"), number("010"), number("10"), number("08")],
            [Some(16), Some(8), Some(10), None]
        );
    }

    #[test]
    fn handles_are_hexadecimal() {
        let handle = |major, minor| Some(Handle { major, minor });
        assert_eq!(Handle::parse("1:10"), handle(1, 16));
        assert_eq!(Handle::parse("abc:"), handle(0xabc, 0));
        assert_eq!(Handle::parse("1:0x10"), handle(1, 16));
        assert_eq!(Handle::parse(":fff1"), handle(0, 0xfff1));
        assert_eq!(Handle::parse("web#1:2"), handle(1, 2));
        assert_eq!([Handle::parse("1:g"), Handle::parse("12345:1"), Handle::parse("")], [None; 3]);
        assert_eq!(Handle { major: 0xabc, minor: 0x1f }.to_string(), "abc:1f");
    }
}
