//! Lines of a trace: headers for classifiers.
//!
//! A trace is text, a header a line, as ClassBench's trace generator writes it: source, destination, source port,
//! destination port, protocol, flags, and the number of the rule that it was made for; decimal, apart by tabs or spaces.
//! Flags are the 16 bits that the last column of a filter set looks at: TCP's flags in the upper eight, or ICMP's type
//! and code. Lines of five or six columns have none: the sixth is then the rule. What comes after the flags is not read.

use std::fmt;

use lookup::classify::Header;
use wire::Family;

/// Reads a line of a trace.
pub(super) fn header(line: &str) -> Result<Header, BadHeader> {
    fn number<T: std::str::FromStr>(word: Option<&str>, column: &'static str) -> Result<T, BadHeader> {
        word.ok_or(BadHeader::Short)?.parse().map_err(|_| BadHeader::Value(column))
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let word = |at: usize| words.get(at).copied();
    let source: u32 = number(word(0), "source")?;
    let destination: u32 = number(word(1), "destination")?;
    let (sport, dport): (u16, u16) = (number(word(2), "source port")?, number(word(3), "destination port")?);
    let protocol: u8 = number(word(4), "protocol")?;
    // With six columns, the last is the rule.
    let flags: u16 = if words.len() > 6 { number(word(5), "flags")? } else { 0 };
    let [high, _] = flags.to_be_bytes();
    Ok(Header {
        source: source.into(),
        destination: destination.into(),
        sport,
        dport: if protocol == ICMP { flags } else { dport },
        protocol,
        tcp_flags: if protocol == TCP { high } else { 0 },
        family: Family::V4,
        from: 1,
        to: 2,
        egress: 1,
        ..Header::default()
    })
}

/// A line of a trace, without its end.
pub(crate) fn line(header: &Header, rule: usize) -> String {
    let flags = match header.protocol {
        ICMP => header.dport,
        _ => u16::from_be_bytes([header.tcp_flags, 0]),
    };
    let dport = if header.protocol == ICMP { 0 } else { header.dport };
    let Header { source, destination, sport, protocol, .. } = header;
    format!("{source}\t{destination}\t{sport}\t{dport}\t{protocol}\t{flags}\t{rule}")
}

/// Reason for refusing a line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// The trace has no line.
    None,
    /// The line has fewer than five columns.
    Short,
    /// A column is not a number, or too large a one.
    Value(&'static str),
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHeader::None => f.write_str("there is no header"),
            BadHeader::Short => f.write_str("fewer than five columns"),
            BadHeader::Value(column) => write!(f, "the {column} is no number that it can be"),
        }
    }
}

/// Protocol numbers (IANA).
pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
