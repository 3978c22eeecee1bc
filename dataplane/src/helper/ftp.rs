//! Commands and replies of FTP that announce a data connection: PORT and 227 (RFC 959), EPRT and 229 (RFC 2428).

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::{ArrayString, ArrayVec};

use crate::flow::Direction;

/// Lowest port that may be announced: below are services.
pub(crate) const LOWEST_PORT: u16 = 1024;

/// Bytes of a line from which on it announces nothing.
const LONGEST: usize = 512;

/// Text that stands for another.
pub(crate) type Text = ArrayVec<u8, 64>;

/// Announcement of a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// Address; `None` for that of the announcer.
    pub(crate) address: Option<IpAddr>,
    /// Port.
    pub(crate) port: u16,
    /// Place of the text that a translation replaces, in the line.
    pub(crate) at: usize,
    /// Length of that text.
    pub(crate) len: usize,
    /// Form of that text.
    pub(crate) form: Form,
    /// Delimiter between address and port.
    pub(crate) delimiter: u8,
}

/// Form of an address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    /// Six numbers, of PORT and 227: `192,0,2,1,4,210`.
    Numbers = 1,
    /// Address and port, of EPRT: `192.0.2.1|1234`.
    Pair = 2,
    /// Port alone, of 229.
    Port = 3,
    /// Number of 16 bits in the place of a port: call ID of PPTP.
    Number = 4,
}

impl Form {
    /// The form of that number.
    pub(crate) fn of(number: u8) -> Option<Form> {
        [Form::Numbers, Form::Pair, Form::Port, Form::Number].into_iter().find(|form| *form as u8 == number)
    }

    /// Address and port in this form.
    pub(crate) fn text(self, address: IpAddr, port: u16, delimiter: u8) -> Option<Text> {
        let mut text: ArrayString<64> = ArrayString::new();
        match (self, address) {
            (Form::Numbers, IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                let [high, low] = port.to_be_bytes();
                write!(text, "{a},{b},{c},{d},{high},{low}").ok()?;
            }
            (Form::Numbers, IpAddr::V6(_)) => return None,
            (Form::Pair, address) => write!(text, "{address}{}{port}", char::from(delimiter)).ok()?,
            (Form::Port, _) => write!(text, "{port}").ok()?,
            (Form::Number, _) => return Some(port.to_be_bytes().into_iter().collect()),
        }
        Some(text.bytes().collect())
    }
}

/// Line of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Announcement of a data connection.
    Announces(Announcement),
    /// Reply after which the connection is encrypted (RFC 4217).
    Encrypts,
    /// Any other.
    Other,
}

/// Reads a line, without its end: of the client in the original direction, of the server in the other.
pub(crate) fn read(direction: Direction, line: &[u8]) -> Line {
    if line.len() > LONGEST {
        return Line::Other;
    }
    let found = match direction {
        Direction::Original => behind(line, b"PORT ")
            .and_then(|at| numbers(line, skip(line, at, b' ')))
            .or_else(|| behind(line, b"EPRT ").and_then(|at| pair(line, skip(line, at, b' ')))),
        Direction::Reply if line.starts_with(b"234 ") => return Line::Encrypts,
        Direction::Reply => behind(line, b"227 ")
            .and_then(|at| {
                // Parentheses or none (RFC 1123, section 4.1.2.6).
                let digit = line.get(at..)?.iter().position(u8::is_ascii_digit)?;
                numbers(line, at + digit)
            })
            .or_else(|| behind(line, b"229 ").and_then(|at| port(line, at))),
    };
    found.map_or(Line::Other, Line::Announces)
}

/// True if what there is of a line may be the beginning of an announcement.
pub(crate) fn may_announce(direction: Direction, begun: &[u8]) -> bool {
    let words: [&[u8]; 2] = match direction {
        Direction::Original => [b"PORT ", b"EPRT "],
        Direction::Reply => [b"227 ", b"229 "],
    };
    let is_begun = |word: &&[u8]| {
        let len = word.len().min(begun.len());
        begun[..len].eq_ignore_ascii_case(&word[..len])
    };
    !begun.is_empty() && begun.len() <= LONGEST && words.iter().any(is_begun)
}

/// Place behind a word at the beginning of a line.
fn behind(line: &[u8], word: &[u8]) -> Option<usize> {
    line.get(..word.len())?.eq_ignore_ascii_case(word).then_some(word.len())
}

fn skip(line: &[u8], mut at: usize, byte: u8) -> usize {
    while line.get(at) == Some(&byte) {
        at += 1;
    }
    at
}

/// Six numbers with commas between, and no further digit or comma.
fn numbers(line: &[u8], at: usize) -> Option<Announcement> {
    let mut found = [0; 6];
    let mut end = at;
    for (place, number) in found.iter_mut().enumerate() {
        if place > 0 {
            end += usize::from(*line.get(end)? == b',');
        }
        let (value, behind) = number_at(line, end, 3)?;
        (*number, end) = (u8::try_from(value).ok()?, behind);
    }
    if line.get(end).is_some_and(|byte| byte.is_ascii_digit() || *byte == b',') {
        return None;
    }
    let [a, b, c, d, high, low] = found;
    Some(Announcement {
        address: Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        port: u16::from_be_bytes([high, low]),
        at,
        len: end - at,
        form: Form::Numbers,
        delimiter: b',',
    })
}

/// `|1|192.0.2.1|1234|`, with any character as delimiter.
fn pair(line: &[u8], at: usize) -> Option<Announcement> {
    let delimiter = delimiter(line, at)?;
    let is_v4 = match line.get(at + 1)? {
        b'1' => true,
        b'2' => false,
        _ => return None,
    };
    if *line.get(at + 2)? != delimiter {
        return None;
    }
    let begin = at + 3;
    let len = line.get(begin..)?.iter().take(46).position(|byte| *byte == delimiter)?;
    let text = std::str::from_utf8(line.get(begin..begin + len)?).ok()?;
    let address = match is_v4 {
        true => IpAddr::V4(text.parse::<Ipv4Addr>().ok()?),
        false => IpAddr::V6(text.parse::<Ipv6Addr>().ok()?),
    };
    let (port, end) = number_at(line, begin + len + 1, 5)?;
    if *line.get(end)? != delimiter {
        return None;
    }
    let port = u16::try_from(port).ok()?;
    Some(Announcement {
        address: Some(address),
        port,
        at: begin,
        len: end - begin,
        form: Form::Pair,
        delimiter,
    })
}

/// `(|||1234|)`, with any character as delimiter.
fn port(line: &[u8], at: usize) -> Option<Announcement> {
    let begin = at + line.get(at..)?.iter().position(|byte| *byte == b'(')? + 1;
    let delimiter = delimiter(line, begin)?;
    if line.get(begin..begin + 3)? != [delimiter; 3] {
        return None;
    }
    let (port, end) = number_at(line, begin + 3, 5)?;
    if line.get(end..end + 2)? != [delimiter, b')'] {
        return None;
    }
    let port = u16::try_from(port).ok()?;
    Some(Announcement {
        address: None,
        port,
        at: begin + 3,
        len: end - begin - 3,
        form: Form::Port,
        delimiter,
    })
}

/// A delimiter: a printable character that is no digit.
fn delimiter(line: &[u8], at: usize) -> Option<u8> {
    line.get(at).copied().filter(|byte| byte.is_ascii_graphic() && !byte.is_ascii_digit())
}

/// A number of at most so many digits, and the place behind it.
fn number_at(line: &[u8], at: usize, most: usize) -> Option<(u32, usize)> {
    let digits = line.get(at..)?.iter().take(most).take_while(|byte| byte.is_ascii_digit());
    let (value, count) =
        digits.fold((0, 0), |(value, count), digit| (value * 10 + u32::from(digit - b'0'), count + 1));
    (count > 0).then_some((value, at + count))
}

#[cfg(test)]
mod tests;
