//! Shapes: rates of download and upload.

use config::quantity::{self, Quantity, bit_rate_text};
use toml::de::DeValue;
use wire::BitRate;
use wire::link::MOST_RATE;

use super::{Complaint, Read, Text};

/// Rates of download and upload, of which one may be unlimited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) down: Option<BitRate>,
    pub(crate) up: Option<BitRate>,
}

/// Rates as a provider has them: `100 Mbit/s / 20 Mbit/s`, or one for both; also as in tc, `100mbit/20mbit`.
pub(crate) const RATES: Text<Rates> = Text { read: rates, print: rates_text };

/// Rate of a direction that is not shaped.
const UNLIMITED: &str = "unlimited";

/// Rate of one direction, with the units of a link or those of tc.
const SIDE: Quantity = Quantity {
    what: "a rate",
    example: "20 Mbit/s",
    units: &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
        ("bit", 1),
        ("kbit", 1_000),
        ("Mbit", 1_000_000),
        ("Gbit", 1_000_000_000),
        ("Tbit", 1_000_000_000_000),
    ],
    most: MOST_RATE.0,
};

fn rates(text: &str) -> Read<Rates> {
    // The slash of a unit is followed by its second.
    let sides: Vec<&str> = text.split('/').map(str::trim).filter(|part| *part != "s").collect();
    let (down, up) = match sides[..] {
        [both] => (both, both),
        [down, up] => (down, up),
        _ => return Err(bad(text, "there are more than two")),
    };
    let rates = Rates { down: side(down)?, up: side(up)? };
    if rates.down.or(rates.up).is_none() {
        return Err(bad(text, "nothing is limited"));
    }
    Ok(rates)
}

fn bad(text: &str, why: &str) -> Complaint {
    let message = format!("\"{text}\" is not a rate of download and one of upload: {why}");
    Complaint::new(config::Code::BadQuantity, message)
        .hint("write \"100 Mbit/s / 20 Mbit/s\", \"unlimited / 20 Mbit/s\", or one rate for both")
}

fn side(text: &str) -> Read<Option<BitRate>> {
    if text == UNLIMITED {
        return Ok(None);
    }
    quantity::read(&DeValue::String(text.into()), &SIDE, 1).map(BitRate).map(Some)
}

fn rates_text(rates: &Rates) -> String {
    let side = |rate: Option<BitRate>| rate.map_or(UNLIMITED.to_owned(), |rate| bit_rate_text(rate.0));
    if rates.down == rates.up {
        return side(rates.down);
    }
    format!("{} / {}", side(rates.down), side(rates.up))
}

#[cfg(test)]
mod tests {
    use super::{rates, rates_text};

    #[test]
    fn rates_are_read_as_a_provider_or_tc_has_them() {
        for (text, printed) in [
            ("100mbit/20mbit", "100 Mbit/s / 20 Mbit/s"),
            ("100 Mbit/s / 20 Mbit/s", "100 Mbit/s / 20 Mbit/s"),
            ("100Mbit/s/20Mbit/s", "100 Mbit/s / 20 Mbit/s"),
            ("2.5gbit / 512 kbit/s", "2500 Mbit/s / 512 kbit/s"),
            ("50mbit", "50 Mbit/s"),
            ("50 Mbit/s", "50 Mbit/s"),
            ("50mbit/50 Mbit/s", "50 Mbit/s"),
            ("unlimited/20mbit", "unlimited / 20 Mbit/s"),
            ("1tbit / unlimited", "1 Tbit/s / unlimited"),
        ] {
            assert_eq!(rates(text).ok().map(|rates| rates_text(&rates)).as_deref(), Some(printed), "{text}");
        }
        for text in [
            "",
            "/",
            "s",
            "100",
            "100/20mbit",
            "100mbit/",
            "100mbps",
            "0mbit",
            "1mbit/0mbit",
            "11 Tbit/s",
            "unlimited",
            "unlimited/unlimited",
            "1mbit/1mbit/1mbit",
            "-1mbit/1mbit",
            "100mbit-20mbit",
        ] {
            assert!(rates(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_quoted_as_it_is_written() {
        let message = |text| rates(text).err().expect("a mistake").message;
        assert_eq!(message("5Mbps/5mbit"), "\"5Mbps\" is not a rate: unknown unit \"Mbps\"");
        assert_eq!(message("5mbit/s / 5 mbps"), "\"5 mbps\" is not a rate: unknown unit \"mbps\"");
        assert_eq!(message("11tbit/1mbit"), "\"11tbit\" is out of range");
    }
}
