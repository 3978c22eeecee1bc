//! Addresses in headers: lists, `"Bob" <sip:bob@192.0.2.4:5060;lr>;tag=1`, and what a Via was sent by.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::header::trimmed;
use super::{ip, number};

/// Port of SIP where none is named (RFC 3261, section 19.1.2).
pub(super) const DEFAULT_PORT: u16 = 5060;
/// The same of SIP over TLS.
const SECURE_PORT: u16 = 5061;

/// Host and port as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    /// Place of both.
    pub(super) range: Range<usize>,
    /// Address of the host; `None` for a name.
    address: Option<IpAddr>,
    /// Port, if one is written.
    pub(super) port: Option<u16>,
}

impl HostPort {
    /// Address and port, with the port that holds where none is written.
    pub(super) fn endpoint(&self, default_port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address?, self.port.unwrap_or(default_port)))
    }
}

/// A SIP URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uri {
    /// Host and port.
    pub(super) host: HostPort,
    /// Port where none is written.
    pub(super) default_port: u16,
}

/// Element of a list: an address, with or without a name before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The URI, if it is one of SIP.
    pub(super) uri: Option<Uri>,
    /// Place from which on parameters of the header may stand.
    pub(super) parameters: usize,
}

/// Places of a list's elements, which commas divide outside of quotes and brackets.
pub(super) fn list(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut rest = Some(range);
    std::iter::from_fn(move || {
        let range = rest.take()?;
        let end = outside(bytes, range.clone(), |byte| byte == b',').unwrap_or(range.end);
        if end < range.end {
            rest = Some(end + 1..range.end);
        }
        Some(trimmed(bytes, range.start..end))
    })
}

/// Takes an element apart.
pub(super) fn named(bytes: &[u8], range: Range<usize>) -> Named {
    match outside(bytes, range.clone(), |byte| byte == b'<') {
        Some(open) => {
            let rest = open + 1..range.end;
            let close = bytes[rest.clone()].iter().position(|byte| *byte == b'>').map(|at| rest.start + at);
            match close {
                Some(close) => Named { uri: uri(bytes, rest.start..close), parameters: close + 1 },
                None => Named { uri: None, parameters: range.end },
            }
        }
        // Without brackets, parameters are the header's (RFC 3261, section 20).
        None => {
            let end = bytes[range.clone()].iter().position(|byte| *byte == b';').map(|at| range.start + at);
            let end = end.unwrap_or(range.end);
            Named { uri: uri(bytes, trimmed(bytes, range.start..end)), parameters: end }
        }
    }
}

/// A URI of SIP; `None` for another.
pub(super) fn uri(bytes: &[u8], range: Range<usize>) -> Option<Uri> {
    let text = bytes.get(range.clone())?;
    let scheme = text.iter().position(|byte| *byte == b':')?;
    let default_port = match &text[..scheme] {
        word if word.eq_ignore_ascii_case(b"sip") => DEFAULT_PORT,
        word if word.eq_ignore_ascii_case(b"sips") => SECURE_PORT,
        _ => return None,
    };
    let rest = range.start + scheme + 1;
    let user = bytes[rest..range.end].iter().position(|byte| *byte == b'@');
    let host = user.map_or(rest, |at| rest + at + 1);
    Some(Uri { host: host_port(bytes, host..range.end)?, default_port })
}

/// Host and port of a Via (`sent-by`), and the place behind them: `SIP/2.0/UDP 192.0.2.4:5060;branch=...`.
pub(super) fn sent_by(bytes: &[u8], element: Range<usize>) -> Option<(HostPort, usize)> {
    let text = bytes.get(element.clone())?;
    let mut slashes = text.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let version = slashes.nth(1)?;
    let transport = trimmed(bytes, element.start + version + 1..element.end);
    let len = bytes[transport.clone()].iter().position(u8::is_ascii_whitespace)?;
    let host = host_port(bytes, trimmed(bytes, transport.start + len..element.end))?;
    let behind = host.range.end;
    Some((host, behind))
}

/// Place of a parameter's value, `;name=value`, between a place and the end of an element.
pub(super) fn parameter(bytes: &[u8], range: Range<usize>, name: &str) -> Option<Range<usize>> {
    let mut rest = range;
    while rest.start < rest.end {
        let begin =
            bytes.get(rest.clone())?.iter().position(|byte| *byte == b';').map(|at| rest.start + at + 1)?;
        let end = outside(bytes, begin..rest.end, |byte| byte == b';').unwrap_or(rest.end);
        let own = begin..end;
        if let Some(equals) = bytes[own.clone()].iter().position(|byte| *byte == b'=') {
            let key = trimmed(bytes, begin..begin + equals);
            if bytes[key].eq_ignore_ascii_case(name.as_bytes()) {
                return Some(trimmed(bytes, begin + equals + 1..end));
            }
        }
        rest.start = end;
    }
    None
}

/// Host and port at the beginning of a place.
fn host_port(bytes: &[u8], range: Range<usize>) -> Option<HostPort> {
    let text = bytes.get(range.clone())?;
    let host_len = match text.first()? {
        b'[' => text.iter().position(|byte| *byte == b']')? + 1,
        _ => text.iter().position(|byte| !is_of_host(*byte)).unwrap_or(text.len()),
    };
    let address = ip(&text[..host_len]);
    let digits = match text.get(host_len) {
        Some(b':') => text[host_len + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count(),
        _ => 0,
    };
    let port = match digits {
        0 => None,
        digits => Some(u16::try_from(number(&text[host_len + 1..][..digits])?).ok()?),
    };
    let len = if digits > 0 { host_len + 1 + digits } else { host_len };
    (host_len > 0).then_some(HostPort { range: range.start..range.start + len, address, port })
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// The first place of a byte outside of quoted strings and of angle brackets that have begun before it.
fn outside(bytes: &[u8], range: Range<usize>, is_it: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut is_quoted, mut is_escaped, mut is_bracketed) = (false, false, false);
    for (at, byte) in (range.start..).zip(bytes.get(range)?) {
        if is_escaped {
            is_escaped = false;
        } else if is_quoted {
            is_escaped = *byte == b'\\';
            is_quoted = *byte != b'"';
        } else if !is_bracketed && is_it(*byte) {
            return Some(at);
        } else {
            match byte {
                b'"' if !is_bracketed => is_quoted = true,
                b'<' => is_bracketed = true,
                b'>' => is_bracketed = false,
                _ => {}
            }
        }
    }
    None
}
