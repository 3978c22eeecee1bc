//! SIP messages in datagrams (RFC 3261), and the addresses that a NAT has to replace in them.
//!
//! Read are the start line, the topmost Via, Contact, From, To, Route and Record-Route, with compact and folded forms, and a session
//! description ([`sdp`](super::sdp)) in the body. Names of hosts stay. A message is taken apart by places in the borrowed bytes, all [`Change`]s
//! are collected, and the new message is written in one go, with its Content-Length.
//!
//! Promises: whatever is not understood gives [`Unread`], and no bytes give a panic. Work is bounded by the length of the message; headers, media
//! and changes are limited in number.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use arrayvec::{ArrayString, ArrayVec};

use super::sdp;

mod address;
mod header;

use address::{HostPort, Uri};
use header::{Header, Headers, Name};

/// Most replaced texts of a message.
const MOST_CHANGES: usize = 64;

/// Lifetime of a registration that names none, in seconds (RFC 3261, section 10.2.1.1).
const DEFAULT_EXPIRES: u32 = 3600;

/// Longest lifetime of a registration that is believed, in seconds.
const LONGEST_EXPIRES: u32 = 86_400;

/// Text that stands for another.
pub(crate) type Text = ArrayString<64>;

/// Method of a request, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Register,
    Invite,
    Bye,
    Cancel,
    Other,
}

impl Method {
    fn of(word: &[u8]) -> Method {
        // Methods are case-sensitive (RFC 3261, section 7.1).
        match word {
            b"REGISTER" => Method::Register,
            b"INVITE" => Method::Invite,
            b"BYE" => Method::Bye,
            b"CANCEL" => Method::Cancel,
            _ => Method::Other,
        }
    }
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Request.
    Request(Method),
    /// Response with its status code, and the method that it answers.
    Response(u16, Method),
}

/// Kind of a message, and its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Kind.
    pub(crate) kind: Kind,
    /// Hash of the Call-ID; 0 without one.
    pub(crate) call: u32,
}

/// Replacement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Place in the message.
    pub(crate) place: Range<usize>,
    /// New text.
    pub(crate) text: Text,
}

/// All changes of a message.
pub(crate) type Changes = ArrayVec<Change, MOST_CHANGES>;

/// Message that is no SIP, is malformed or more than is read: it passes as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread;

/// Reason for not carrying out what a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The message is not understood, and passes as it is.
    Unread,
    /// No port or no memory is left.
    Refused,
}

impl From<Unread> for Fault {
    fn from(_: Unread) -> Fault {
        Fault::Unread
    }
}

/// Translation of what a message says of endpoints, in its direction.
pub(crate) trait Ends {
    /// An endpoint of signalling as the receiver knows it.
    fn endpoint(&mut self, named: SocketAddr) -> SocketAddr;

    /// An address in a description as the receiver knows it.
    fn address(&mut self, named: IpAddr) -> IpAddr;

    /// Takes in a registered contact, in a request or its successful response, and returns it as the receiver knows it. `lifetime` is in
    /// seconds.
    fn registered(&mut self, named: SocketAddr, lifetime: u32) -> Result<SocketAddr, Fault>;

    /// Takes in a medium that a description offers or accepts, and returns it as the receiver knows it.
    fn media(&mut self, media: sdp::Media) -> Result<sdp::Media, Fault>;
}

/// A message taken apart.
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    /// Kind and call.
    pub(crate) about: About,
    /// Request-URI.
    uri: Option<Range<usize>>,
    headers: Headers,
    /// The body, as long as Content-Length says.
    body: Range<usize>,
}

/// True for what keeps a binding alive and says nothing (RFC 5626, section 3.5, and what phones send in its place).
pub(crate) fn is_keepalive(bytes: &[u8]) -> bool {
    bytes.len() <= 4 || bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

impl<'a> Message<'a> {
    /// Takes a datagram apart.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Unread> {
        let (line, behind) = header::line(bytes, 0).ok_or(Unread)?;
        let (kind, uri) = start(bytes, line)?;
        let (headers, body_at) = Headers::parse(bytes, behind)?;
        let present = bytes.len() - body_at;
        let body = match headers.first(Name::ContentLength) {
            Some(header) => {
                let length = number(header.value(bytes)).ok_or(Unread)? as usize;
                body_at..body_at + Some(length).filter(|length| *length <= present).ok_or(Unread)?
            }
            // Of a datagram the body may go to its end (RFC 3261, section 18.3).
            None => body_at..bytes.len(),
        };
        let method = || {
            let value = headers.first(Name::CSeq)?.value(bytes);
            let word = value.split(|byte| byte.is_ascii_whitespace()).rfind(|word| !word.is_empty())?;
            Some(Method::of(word))
        };
        let kind = match kind {
            Kind::Response(code, _) => Kind::Response(code, method().ok_or(Unread)?),
            request => request,
        };
        let call = headers.first(Name::CallId).map_or(0, |header| hash(header.value(bytes)));
        Ok(Message { bytes, about: About { kind, call }, uri, headers, body })
    }

    /// Asks `ends` for all that a translation replaces.
    pub(crate) fn translate(&self, ends: &mut impl Ends) -> Result<Changes, Fault> {
        let mut changes = Changes::new();
        if let Some(range) = self.uri.clone() {
            if let Some(uri) = address::uri(self.bytes, range) {
                self.endpoint(&uri, ends, &mut changes)?;
            }
        }
        if let Some(via) = self.headers.first(Name::Via) {
            self.via(via, ends, &mut changes)?;
        }
        for header in self.headers.iter() {
            match header.name {
                Name::Contact => self.contact(header, ends, &mut changes)?,
                Name::From | Name::To | Name::Route | Name::RecordRoute => {
                    for element in address::list(self.bytes, header.range.clone()) {
                        if let Some(uri) = address::named(self.bytes, element).uri {
                            self.endpoint(&uri, ends, &mut changes)?;
                        }
                    }
                }
                _ => {}
            }
        }
        self.description(ends, &mut changes)?;
        changes.sort_unstable_by_key(|change| change.place.start);
        if changes.windows(2).any(|pair| pair[0].place.end > pair[1].place.start) {
            return Err(Fault::Unread);
        }
        Ok(changes)
    }

    fn endpoint(&self, uri: &Uri, ends: &mut impl Ends, changes: &mut Changes) -> Result<(), Fault> {
        let Some(named) = uri.host.endpoint(uri.default_port) else { return Ok(()) };
        let known = ends.endpoint(named);
        self.replace(&uri.host, uri.default_port, (named, known), changes)
    }

    /// Has a host and a port stand for another, in the form that they have.
    fn replace(
        &self,
        host: &HostPort,
        default_port: u16,
        (named, known): (SocketAddr, SocketAddr),
        changes: &mut Changes,
    ) -> Result<(), Fault> {
        if named == known {
            return Ok(());
        }
        let has_port = host.port.is_some() || known.port() != default_port;
        let text = match (known.ip(), has_port) {
            (_, true) => written(format_args!("{known}")),
            (IpAddr::V4(address), false) => written(format_args!("{address}")),
            (IpAddr::V6(address), false) => written(format_args!("[{address}]")),
        };
        push(changes, host.range.clone(), text?)
    }

    /// The topmost Via, with what its receiver has noted there (RFC 3261, section 18.2.1; RFC 3581).
    fn via(&self, header: &Header, ends: &mut impl Ends, changes: &mut Changes) -> Result<(), Fault> {
        let Some(element) = address::list(self.bytes, header.range.clone()).next() else { return Ok(()) };
        let Some((host, behind)) = address::sent_by(self.bytes, element.clone()) else { return Ok(()) };
        let default_port = address::DEFAULT_PORT;
        if let Some(named) = host.endpoint(default_port) {
            let known = ends.endpoint(named);
            self.replace(&host, default_port, (named, known), changes)?;
        }
        if matches!(self.about.kind, Kind::Request(_)) {
            return Ok(());
        }
        let parameter = |name| address::parameter(self.bytes, behind..element.end, name);
        let received =
            parameter("received").and_then(|range| Some((range.clone(), ip(self.bytes.get(range)?)?)));
        let rport = parameter("rport")
            .and_then(|range| Some((range.clone(), u16::try_from(number(self.bytes.get(range)?)?).ok()?)));
        if let Some((range, address)) = received {
            let port = rport.as_ref().map(|(_, port)| *port).or(host.port).unwrap_or(default_port);
            let known = ends.endpoint(SocketAddr::new(address, port));
            let ip = if known.ip() == address { ends.address(address) } else { known.ip() };
            if ip != address {
                push(changes, range, written(format_args!("{ip}"))?)?;
            }
            if let Some((range, _)) = rport.filter(|(_, port)| known.port() != *port) {
                push(changes, range, written(format_args!("{}", known.port()))?)?;
            }
        }
        Ok(())
    }

    fn contact(&self, header: &Header, ends: &mut impl Ends, changes: &mut Changes) -> Result<(), Fault> {
        let registers = match self.about.kind {
            Kind::Request(method) => method == Method::Register,
            Kind::Response(code, method) => method == Method::Register && (200..300).contains(&code),
        };
        let of_all = || self.headers.first(Name::Expires).and_then(|header| number(header.value(self.bytes)));
        for element in address::list(self.bytes, header.range.clone()) {
            let end = element.end;
            let contact = address::named(self.bytes, element);
            let Some(uri) = contact.uri else { continue };
            let Some(named) = uri.host.endpoint(uri.default_port) else { continue };
            let known = if registers {
                let own = address::parameter(self.bytes, contact.parameters..end, "expires");
                let own = own.and_then(|range| number(self.bytes.get(range)?));
                let lifetime = own.or_else(of_all).unwrap_or(DEFAULT_EXPIRES).min(LONGEST_EXPIRES);
                ends.registered(named, lifetime)?
            } else {
                ends.endpoint(named)
            };
            self.replace(&uri.host, uri.default_port, (named, known), changes)?;
        }
        Ok(())
    }

    /// The session description, and Content-Length after it has changed.
    fn description(&self, ends: &mut impl Ends, changes: &mut Changes) -> Result<(), Fault> {
        if !self.headers.first(Name::ContentType).is_some_and(|header| is_sdp(header.value(self.bytes))) {
            return Ok(());
        }
        let first = changes.len();
        sdp::translate(self.bytes, self.body.clone(), ends, changes)?;
        let length = changes[first..].iter().fold(self.body.len(), |length, change| {
            (length + change.text.len()).saturating_sub(change.place.len())
        });
        if length == self.body.len() {
            return Ok(());
        }
        match self.headers.first(Name::ContentLength) {
            Some(header) => push(changes, header.range.clone(), written(format_args!("{length}"))?),
            None => Ok(()),
        }
    }

    /// Writes the message with its changes, and returns its length; `None` if there is no room.
    pub(crate) fn write(&self, changes: &Changes, out: &mut [u8]) -> Option<usize> {
        let (mut len, mut done) = (0, 0);
        let mut put = |bytes: &[u8]| {
            out.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
            len += bytes.len();
            Some(())
        };
        for change in changes {
            put(self.bytes.get(done..change.place.start)?)?;
            put(change.text.as_bytes())?;
            done = change.place.end;
        }
        put(self.bytes.get(done..)?)?;
        Some(len)
    }
}

/// Notes a change.
pub(crate) fn push(changes: &mut Changes, place: Range<usize>, text: Text) -> Result<(), Fault> {
    changes.try_push(Change { place, text }).map_err(|_| Fault::Unread)
}

/// Text of its words.
pub(crate) fn written(words: std::fmt::Arguments<'_>) -> Result<Text, Fault> {
    let mut text = Text::new();
    text.write_fmt(words).map_err(|_| Fault::Unread)?;
    Ok(text)
}

/// The start line: `INVITE sip:bob@192.0.2.4 SIP/2.0`, or `SIP/2.0 200 OK`.
fn start(bytes: &[u8], line: Range<usize>) -> Result<(Kind, Option<Range<usize>>), Unread> {
    const VERSION: &[u8] = b"SIP/2.0";
    let text = bytes.get(line.clone()).ok_or(Unread)?;
    if let Some(rest) = text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(b" ")) {
        let code = rest.get(..3).and_then(number).ok_or(Unread)?;
        return Ok((Kind::Response(code as u16, Method::Other), None));
    }
    let first = text.iter().position(|byte| *byte == b' ').ok_or(Unread)?;
    let last = text.iter().rposition(|byte| *byte == b' ').ok_or(Unread)?;
    let is_method = first > 0 && text[..first].iter().all(u8::is_ascii_alphanumeric);
    if !is_method || last <= first || !text[last + 1..].eq_ignore_ascii_case(VERSION) {
        return Err(Unread);
    }
    let uri = line.start + first + 1..line.start + last;
    Ok((Kind::Request(Method::of(&text[..first])), Some(uri)))
}

/// True for the media type of session descriptions.
fn is_sdp(value: &[u8]) -> bool {
    const SDP: &[u8] = b"application/sdp";
    let Some((kind, rest)) = value.split_at_checked(SDP.len()) else { return false };
    kind.eq_ignore_ascii_case(SDP) && rest.first().is_none_or(|byte| matches!(byte, b';' | b' ' | b'\t'))
}

/// A number of up to nine digits, and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}

/// Hash by which calls are told apart (FNV-1a): who finds another text with the same ends what the control connection has announced, no more.
fn hash(text: &[u8]) -> u32 {
    let hash =
        text.iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// An IPv4 address, or an IPv6 address with brackets or without.
pub(crate) fn ip(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 47)?;
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(IpAddr::V4(address));
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

#[cfg(test)]
mod tests;
