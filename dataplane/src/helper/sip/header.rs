//! Lines of a message, and the headers of interest among them.

use std::ops::Range;

use arrayvec::ArrayVec;

use super::Unread;

/// Most headers of interest.
const MOST_HEADERS: usize = 48;

/// Name of a header of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Via,
    Contact,
    From,
    To,
    Route,
    RecordRoute,
    CallId,
    CSeq,
    Expires,
    ContentType,
    ContentLength,
}

/// Names of headers, with their compact forms (RFC 3261, section 7.3.3).
const NAMES: &[(&str, Name)] = &[
    ("via", Name::Via),
    ("v", Name::Via),
    ("contact", Name::Contact),
    ("m", Name::Contact),
    ("from", Name::From),
    ("f", Name::From),
    ("to", Name::To),
    ("t", Name::To),
    ("route", Name::Route),
    ("record-route", Name::RecordRoute),
    ("call-id", Name::CallId),
    ("i", Name::CallId),
    ("cseq", Name::CSeq),
    ("expires", Name::Expires),
    ("content-type", Name::ContentType),
    ("c", Name::ContentType),
    ("content-length", Name::ContentLength),
    ("l", Name::ContentLength),
];

/// A header of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Name.
    pub(super) name: Name,
    /// Place of its value, without white space around; folded lines are part of it.
    pub(super) range: Range<usize>,
}

impl Header {
    /// The value.
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

/// Headers of interest of a message, in order.
pub(super) struct Headers(ArrayVec<Header, MOST_HEADERS>);

impl Headers {
    /// Reads the headers from a place on, up to the empty line. Returns the place behind that line, too.
    pub(super) fn parse(bytes: &[u8], mut at: usize) -> Result<(Headers, usize), Unread> {
        let mut headers = Headers(ArrayVec::new());
        loop {
            let (mut text, mut next) = line(bytes, at).ok_or(Unread)?;
            if text.is_empty() {
                return Ok((headers, next));
            }
            // What begins with white space goes on with the line before.
            while bytes.get(next).is_some_and(|byte| is_blank(*byte)) {
                let (more, behind) = line(bytes, next).ok_or(Unread)?;
                (text.end, next) = (more.end, behind);
            }
            let line = &bytes[text.clone()];
            let colon = line.iter().position(|byte| *byte == b':').ok_or(Unread)?;
            let name = line[..colon].trim_ascii();
            let found = NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
            if let Some((_, name)) = found {
                let range = trimmed(bytes, text.start + colon + 1..text.end);
                headers.0.try_push(Header { name: *name, range }).map_err(|_| Unread)?;
            }
            at = next;
        }
    }

    /// The first header of a name.
    pub(super) fn first(&self, name: Name) -> Option<&Header> {
        self.0.iter().find(|header| header.name == name)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Header> {
        self.0.iter()
    }
}

/// The line that begins at a place, without its end (LF, with or without CR), and the place behind it.
pub(super) fn line(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let len = bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
    let end = at + len;
    let has_return = len > 0 && bytes[end - 1] == b'\r';
    Some((at..end - usize::from(has_return), end + 1))
}

/// A place without the white space around it.
pub(super) fn trimmed(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let is_space = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_whitespace);
    while range.start < range.end && is_space(range.start) {
        range.start += 1;
    }
    while range.start < range.end && is_space(range.end - 1) {
        range.end -= 1;
    }
    range
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
