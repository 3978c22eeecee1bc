//! Session descriptions (SDP, RFC 8866): the addresses and ports that media are received at.
//!
//! Read are the origin, connection data of the session and of media, ports of media over UDP, and where RTCP goes (RFC 3605). One medium
//! takes a port for RTP and the next one for RTCP, unless `a=rtcp` names another.

use std::net::IpAddr;
use std::ops::Range;

use arrayvec::ArrayVec;

use super::sip::{Changes, Ends, Fault, ip, number, push, written};

/// Most media of a description.
const MOST_MEDIA: usize = 8;

/// Ends that a medium is received at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Media {
    /// Address.
    pub(crate) address: IpAddr,
    /// Port of RTP.
    pub(crate) rtp: u16,
    /// Port of RTCP.
    pub(crate) rtcp: u16,
}

/// A text that is read, with its place.
#[derive(Clone, Debug)]
struct Read<T> {
    place: Range<usize>,
    value: T,
}

/// A medium of a description.
#[derive(Clone, Debug)]
struct Section {
    port: Read<u16>,
    connection: Option<Read<IpAddr>>,
    rtcp: Option<Read<u16>>,
    rtcp_address: Option<Read<IpAddr>>,
    /// Its media are carried by UDP, on one pair of ports.
    is_read: bool,
    /// Place behind its last line.
    end: usize,
}

/// A description.
#[derive(Default)]
struct Description {
    origin: Option<Read<IpAddr>>,
    connection: Option<Read<IpAddr>>,
    sections: ArrayVec<Section, MOST_MEDIA>,
}

/// Asks `ends` for all that a translation replaces in the description at `body`.
pub(crate) fn translate(
    bytes: &[u8],
    body: Range<usize>,
    ends: &mut impl Ends,
    changes: &mut Changes,
) -> Result<(), Fault> {
    let description = read(bytes, body)?;
    if let Some(origin) = &description.origin {
        let known = ends.address(origin.value);
        address(origin, known, changes)?;
    }
    // Address of the session's connection data, as its media turn out.
    let mut session: Option<IpAddr> = None;
    for section in &description.sections {
        let Some(connection) = section.connection.as_ref().or(description.connection.as_ref()) else {
            continue;
        };
        // A port of 0 is no medium (RFC 3264, section 6).
        let known = if section.is_read && section.port.value != 0 {
            let rtp = section.port.value;
            let rtcp = section.rtcp.as_ref().map_or(rtp.saturating_add(1), |rtcp| rtcp.value);
            let known = ends.media(Media { address: connection.value, rtp, rtcp })?;
            medium(bytes, section, known, changes)?;
            known.address
        } else if section.connection.is_some() {
            ends.address(connection.value)
        } else {
            continue;
        };
        match &section.connection {
            Some(own) => address(own, known, changes)?,
            // One address stands for several media.
            None if session.is_some_and(|session| session != known) => return Err(Fault::Unread),
            None => session = Some(known),
        }
        if let Some(own) = &section.rtcp_address {
            let known = if own.value == connection.value { known } else { ends.address(own.value) };
            address(own, known, changes)?;
        }
    }
    if let Some(connection) = &description.connection {
        let known = session.unwrap_or_else(|| ends.address(connection.value));
        address(connection, known, changes)?;
    }
    Ok(())
}

/// Ports of a medium as they are known to the receiver.
fn medium(bytes: &[u8], section: &Section, known: Media, changes: &mut Changes) -> Result<(), Fault> {
    if known.rtp != section.port.value {
        push(changes, section.port.place.clone(), written(format_args!("{}", known.rtp))?)?;
    }
    match &section.rtcp {
        Some(rtcp) if rtcp.value != known.rtcp => {
            push(changes, rtcp.place.clone(), written(format_args!("{}", known.rtcp))?)
        }
        None if known.rtcp != known.rtp.saturating_add(1) => {
            let has_end = bytes.get(..section.end).is_some_and(|before| before.ends_with(b"\n"));
            let text = match has_end {
                true => written(format_args!("a=rtcp:{}\r\n", known.rtcp)),
                false => written(format_args!("\r\na=rtcp:{}", known.rtcp)),
            };
            push(changes, section.end..section.end, text?)
        }
        _ => Ok(()),
    }
}

fn address(read: &Read<IpAddr>, known: IpAddr, changes: &mut Changes) -> Result<(), Fault> {
    if read.value == known {
        return Ok(());
    }
    push(changes, read.place.clone(), written(format_args!("{known}"))?)
}

fn read(bytes: &[u8], body: Range<usize>) -> Result<Description, Fault> {
    let mut description = Description::default();
    let mut at = body.start;
    while at < body.end {
        let rest = bytes.get(at..body.end).ok_or(Fault::Unread)?;
        let (len, next) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(len) => (len, at + len + 1),
            None => (rest.len(), body.end),
        };
        let text = &rest[..len];
        let line = at..at + text.strip_suffix(b"\r").unwrap_or(text).len();
        // A description begins with its version.
        if at == body.start && !text.starts_with(b"v=") {
            return Err(Fault::Unread);
        }
        description.line(bytes, line)?;
        // What is inserted goes behind a line that has an end.
        if let Some(section) = description.sections.last_mut().filter(|_| text.len() < rest.len()) {
            section.end = next;
        }
        at = next;
    }
    Ok(description)
}

impl Description {
    fn line(&mut self, bytes: &[u8], line: Range<usize>) -> Result<(), Fault> {
        let text = &bytes[line.clone()];
        let Some((kind, value)) = text.split_at_checked(2) else { return Ok(()) };
        let begin = line.start + 2;
        match kind {
            b"o=" => {
                // Name, session, version, then where it comes from.
                if let Some(place) = word(value, 3).map(|word| begin + word.start..line.end) {
                    self.origin = connection(bytes, place);
                }
            }
            b"c=" => {
                let found = connection(bytes, begin..line.end);
                match self.sections.last_mut() {
                    Some(section) => section.connection = section.connection.take().or(found),
                    None => self.connection = self.connection.take().or(found),
                }
            }
            b"m=" => {
                let section = section(bytes, begin..line.end).ok_or(Fault::Unread)?;
                self.sections.try_push(section).map_err(|_| Fault::Unread)?;
            }
            b"a=" if value.starts_with(b"rtcp:") => {
                let begin = begin + b"rtcp:".len();
                let value = &bytes[begin..line.end];
                let Some(section) = self.sections.last_mut() else { return Ok(()) };
                section.rtcp =
                    word(value, 0).and_then(|word| port(bytes, begin + word.start..begin + word.end));
                section.rtcp_address =
                    word(value, 1).and_then(|word| connection(bytes, begin + word.start..line.end));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The medium of `audio 49170 RTP/AVP 0`.
fn section(bytes: &[u8], place: Range<usize>) -> Option<Section> {
    let value = &bytes[place.clone()];
    let [ports, protocol] = [word(value, 1)?, word(value, 2)?];
    let digits = value[ports.clone()].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let begin = place.start + ports.start;
    let port = port(bytes, begin..begin + digits)?;
    let protocol = &value[protocol];
    let is_udp =
        protocol.starts_with(b"RTP/") || protocol.starts_with(b"UDP") || protocol.starts_with(b"udp");
    let is_read = is_udp && digits == ports.len();
    let end = place.end;
    Some(Section { port, connection: None, rtcp: None, rtcp_address: None, is_read, end })
}

/// The address of `IN IP4 192.0.2.4`, which of a group has a TTL behind it.
fn connection(bytes: &[u8], place: Range<usize>) -> Option<Read<IpAddr>> {
    let value = bytes.get(place.clone())?;
    let [network, version, address] = [word(value, 0)?, word(value, 1)?, word(value, 2)?];
    let text = value[address.clone()].split(|byte| *byte == b'/').next()?;
    let found = ip(text)?;
    let is_it = match &value[version] {
        b"IP4" => found.is_ipv4(),
        b"IP6" => found.is_ipv6() && !text.starts_with(b"["),
        _ => false,
    };
    let begin = place.start + address.start;
    (is_it && &value[network] == b"IN").then_some(Read { place: begin..begin + text.len(), value: found })
}

fn port(bytes: &[u8], place: Range<usize>) -> Option<Read<u16>> {
    let value = u16::try_from(number(bytes.get(place.clone())?)?).ok()?;
    Some(Read { place, value })
}

/// Place of a word, counted from 0, of those that spaces divide.
fn word(text: &[u8], number: usize) -> Option<Range<usize>> {
    let mut at = 0;
    let mut left = number;
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte != b' ')?;
        let len = text[at..].iter().position(|byte| *byte == b' ').unwrap_or(text.len() - at);
        if left == 0 {
            return Some(at..at + len);
        }
        (at, left) = (at + len, left - 1);
    }
}

#[cfg(test)]
mod tests;
