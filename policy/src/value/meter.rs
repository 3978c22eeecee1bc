//! Meters: rates, overheads, scopes and actions by colour.

use config::word::meaning;
use config::{did_you_mean, wrong_type};
use toml::de::DeValue;
use wire::Bytes;

use super::packet::DSCP;
use super::{BIT_RATE, Complaint, Form, Read, Text, Value, number, quoted};
use crate::diagnostic::Code;
use crate::model::{ColourAction, MeterRate, MeterScope, Overhead};
use crate::word::{Words, word_for};

/// The rate of a meter: `10 Mbit/s`, or `1000 packets/s`.
pub(crate) const RATE: Value<MeterRate> = Value {
    read: rate,
    print: |rate| match rate {
        MeterRate::Bits(rate) => BIT_RATE.print(rate),
        MeterRate::Packets(count) => quoted(&format!("{count} {PACKETS}")),
    },
};

/// Overhead: a word, a number of bytes, `atm N`, or `ptm N`.
pub(crate) const OVERHEAD: Value<Overhead> = Value { read: overhead, print: overhead_text };

/// Scope of a meter or queue: a word, with prefix lengths for addresses.
pub(crate) const SCOPE: Text<MeterScope> = Text { read: scope, print: scope_text };

/// Action on a colour: a word, or the code point that packets are given.
pub(crate) const COLOUR_ACTION: Value<ColourAction> = Value {
    read: |value| {
        if let DeValue::String(word) = value {
            if let Some(action) = meaning(COLOUR_ACTIONS, word) {
                return Ok(action);
            }
        }
        DSCP.read(value).map(ColourAction::Mark).map_err(|complaint| {
            complaint
                .hint("write \"pass\", \"drop\", \"ecn\", \"ecn-or-drop\", or a code point such as \"af12\"")
        })
    },
    print: |action| match action {
        ColourAction::Mark(dscp) => DSCP.print(dscp),
        word => COLOUR_ACTIONS.print(word),
    },
};

const COLOUR_ACTIONS: Words<ColourAction> = &[
    ("pass", ColourAction::Pass),
    ("drop", ColourAction::Drop),
    ("ecn", ColourAction::Ecn),
    ("ecn-or-drop", ColourAction::EcnOrDrop),
];

const PACKETS: &str = "packets/s";

fn rate(value: &DeValue<'_>) -> Read<MeterRate> {
    let DeValue::String(text) = value else { return BIT_RATE.read(value).map(MeterRate::Bits) };
    let Some(count) = text.trim().strip_suffix(PACKETS) else {
        return BIT_RATE.read(value).map(MeterRate::Bits);
    };
    // As many as the shortest frames that a link of the highest rate carries.
    let count: Option<u64> = count.trim().parse().ok().filter(|count| (1..=20_000_000_000).contains(count));
    count.map(MeterRate::Packets).ok_or_else(|| {
        Complaint::new(Code::BadRate, format!("\"{text}\" is not a rate"))
            .hint("write \"1000 packets/s\": 1 at least, and 20,000,000,000 at most")
    })
}

/// Overheads that have names.
const OVERHEADS: Words<Overhead> =
    &[("ip", Overhead::IP), ("layer2", Overhead::LAYER_2), ("ethernet", Overhead::ETHERNET)];

/// Overheads of access lines, by the words of Linux's CAKE (tc-cake(8)), which counts from the IP packet on, too. Those of ADSL are
/// ATM: of the IP packet, protocol, bridging or PPP by RFC 2684 and RFC 2364, and the AAL5 trailer. Those of VDSL2 are PTM: PPPoE and PPP
/// (8 bytes), Ethernet's header and check sequence (18), PTM's start, end and check sequence (4).
const LINES: Words<Overhead> = &[
    ("ipoa-vcmux", Overhead::Atm(Bytes(8))),
    ("ipoa-llcsnap", Overhead::Atm(IP_OVER_ATM)),
    ("bridged-vcmux", Overhead::Atm(Bytes(24))),
    ("bridged-llcsnap", Overhead::Atm(Bytes(32))),
    ("pppoa-vcmux", Overhead::Atm(Bytes(10))),
    ("pppoa-llc", Overhead::Atm(Bytes(14))),
    ("pppoe-vcmux", Overhead::Atm(Bytes(32))),
    ("pppoe-llcsnap", Overhead::Atm(Bytes(40))),
    ("pppoe-ptm", Overhead::Ptm(Bytes(30))),
    ("bridged-ptm", Overhead::Ptm(Bytes(22))),
    ("docsis", Overhead::Fixed(Bytes(18))),
];

/// Encapsulation of routed IP over ATM: LLC and SNAP, 8 bytes (RFC 2684, section 5.2), and the AAL5 trailer, 8.
const IP_OVER_ATM: Bytes = Bytes(16);

fn overhead(value: &DeValue<'_>) -> Read<Overhead> {
    match value {
        DeValue::Integer(_) => number(value, 0, Overhead::MOST.0).map(|bytes| Overhead::Fixed(Bytes(bytes))),
        DeValue::String(text) => overhead_of(text),
        other => Err(wrong_type("an overhead such as \"ethernet\", or a number of bytes", other)),
    }
}

fn overhead_of(text: &str) -> Read<Overhead> {
    let named = || meaning(OVERHEADS, text).or_else(|| meaning(LINES, text));
    let bytes = |bytes: &str| bytes.trim().parse().ok().filter(|bytes| *bytes <= Overhead::MOST.0).map(Bytes);
    let coded = || match text.split_once(' ').unwrap_or((text, "")) {
        ("atm", "") => Some(Overhead::Atm(IP_OVER_ATM)),
        ("atm", number) => bytes(number).map(Overhead::Atm),
        ("ptm", number) => bytes(number).map(Overhead::Ptm),
        _ => None,
    };
    named().or_else(coded).ok_or_else(|| {
        let complaint = Complaint::new(config::Code::BadNumber, format!("\"{text}\" is not an overhead"));
        let words = OVERHEADS.iter().chain(LINES).map(|(word, _)| *word);
        complaint.hint(did_you_mean(text, words, || {
            "write \"ip\", \"layer2\", \"ethernet\", \"docsis\", \"atm\", \"atm 40\" (bytes before the cells), \
             \"ptm 30\" (bytes before the coding of VDSL2), or a number of bytes, 256 at most"
                .to_owned()
        }))
    })
}

fn overhead_text(overhead: &Overhead) -> String {
    match (word_for(OVERHEADS, overhead), overhead) {
        (Some(word), _) => quoted(word),
        (None, Overhead::Fixed(bytes) | Overhead::Ethernet(bytes)) => bytes.0.to_string(),
        (None, Overhead::Atm(IP_OVER_ATM)) => quoted("atm"),
        (None, Overhead::Atm(bytes)) => quoted(&format!("atm {}", bytes.0)),
        (None, Overhead::Ptm(bytes)) => quoted(&format!("ptm {}", bytes.0)),
    }
}

fn scope(text: &str) -> Read<MeterScope> {
    let bad = || {
        Complaint::new(Code::BadRate, format!("\"{text}\" is not a scope")).hint(
            "write \"all\", \"flow\", \"source\", \"destination\", or \"source/24/56\" with prefix lengths of IPv4 and IPv6",
        )
    };
    let mut parts = text.split('/');
    let (word, lengths) = (parts.next().unwrap_or_default(), [parts.next(), parts.next()]);
    let length = |text: Option<&str>, most: u8| match text {
        None => Ok(most),
        Some(text) => text.parse().ok().filter(|bits| *bits <= most).ok_or_else(bad),
    };
    let (v4, v6) = (length(lengths[0], 32)?, length(lengths[1], 128)?);
    match (word, lengths[0], parts.next()) {
        ("all", None, None) => Ok(MeterScope::All),
        ("flow", None, None) => Ok(MeterScope::Flow),
        ("source", _, None) => Ok(MeterScope::Source(v4, v6)),
        ("destination", _, None) => Ok(MeterScope::Destination(v4, v6)),
        _ => Err(bad()),
    }
}

fn scope_text(scope: &MeterScope) -> String {
    let (word, lengths) = match scope {
        MeterScope::All => return "all".to_owned(),
        MeterScope::Flow => return "flow".to_owned(),
        MeterScope::Source(v4, v6) => ("source", (v4, v6)),
        MeterScope::Destination(v4, v6) => ("destination", (v4, v6)),
    };
    match lengths {
        (32, 128) => word.to_owned(),
        (v4, 128) => format!("{word}/{v4}"),
        (v4, v6) => format!("{word}/{v4}/{v6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{overhead_of, overhead_text};

    /// The arithmetic of `cake_calc_overhead` in Linux's `sch_cake.c`; `mode` as it numbers them: 0 none, 1 ATM, 2 PTM.
    fn of_cake(length: u64, overhead: u64, mode: u8) -> u64 {
        let mut length = length + overhead;
        if mode == 1 {
            length += 47;
            length /= 48;
            length *= 53;
        } else if mode == 2 {
            length += length.div_ceil(64);
        }
        length
    }

    #[test]
    fn lines_count_as_in_cake() {
        // Names, overheads and modes as tc-cake(8) has them.
        for (word, overhead, mode) in [
            ("ipoa-vcmux", 8, 1),
            ("ipoa-llcsnap", 16, 1),
            ("bridged-vcmux", 24, 1),
            ("bridged-llcsnap", 32, 1),
            ("pppoa-vcmux", 10, 1),
            ("pppoa-llc", 14, 1),
            ("pppoe-vcmux", 32, 1),
            ("pppoe-llcsnap", 40, 1),
            ("pppoe-ptm", 30, 2),
            ("bridged-ptm", 22, 2),
            ("docsis", 18, 0),
            ("atm 48", 48, 1),
            ("ptm 0", 0, 2),
            ("ptm 256", 256, 2),
        ] {
            let read = overhead_of(word).ok().unwrap();
            for length in 0..=9_000 {
                assert_eq!(read.count(length), of_cake(length, overhead, mode), "{word}, {length} bytes");
            }
            let printed = overhead_text(&read);
            assert!(overhead_of(printed.trim_matches('"')).ok() == Some(read) || mode == 0, "{printed}");
        }
        for text in ["ptm", "ptm 257", "ptm -1", "ptm30", "ptm 30 40", "PTM 30"] {
            assert!(overhead_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_codeword_has_a_byte_more_for_64() {
        let ptm = overhead_of("ptm 0").ok().unwrap();
        assert_eq!(
            [0, 1, 63, 64, 65, 128, 129].map(|length| ptm.count(length)),
            [0, 2, 64, 65, 67, 130, 132]
        );
    }
}
