//! TCP (RFC 9293): header, flags, options, and clamping the maximum segment size.

use std::fmt;
use std::str::FromStr;

use crate::checksum::Delta;
use crate::header::{BadOption, Ports, RawOption, RawOptions, be16, be32, put};

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = 20;

/// Reason why a segment is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer than 20 bytes.
    #[error("shorter than a TCP header")]
    TooShort,
    /// The data offset is below 20 bytes.
    #[error("TCP data offset below 20 bytes")]
    DataOffset,
    /// The data offset reaches past the end.
    #[error("TCP data offset past the end")]
    HeaderPastEnd,
}

/// A segment, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The first 20 bytes.
    pub header: Header<'a>,
    /// The options, 0 to 40 bytes.
    pub options: &'a [u8],
    /// The data.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Walks the options.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        Options(RawOptions::new(self.options))
    }

    /// Sequence space of the segment: data bytes, and one each for SYN and FIN.
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        let flags = self.header.flags();
        let data = self.payload.len() as u32; // an IP payload: at most 16 bits
        data + u32::from(flags.intersects(Flags::SYN)) + u32::from(flags.intersects(Flags::FIN))
    }
}

/// Takes a segment apart: `payload` is that of a whole IP packet, without padding.
#[inline]
pub fn parse(payload: &[u8]) -> Result<Segment<'_>, Malformed> {
    let Some(header) = Header::of(payload) else { return Err(Malformed::TooShort) };
    let header_len = header.header_len();
    if header_len < MIN_HEADER_LEN {
        return Err(Malformed::DataOffset);
    }
    let Some((head, payload)) = payload.split_at_checked(header_len) else {
        return Err(Malformed::HeaderPastEnd);
    };
    Ok(Segment { header, options: head.get(MIN_HEADER_LEN..).unwrap_or(&[]), payload })
}

/// The first 20 bytes of a header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(&'a [u8; MIN_HEADER_LEN]);

impl<'a> Header<'a> {
    /// The bytes at the start of `payload`, unchecked, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a [u8]) -> Option<Header<'a>> {
        payload.first_chunk().map(Header)
    }

    /// Source port.
    #[inline]
    pub fn sport(self) -> u16 {
        be16(self.0, 0)
    }

    /// Destination port.
    #[inline]
    pub fn dport(self) -> u16 {
        be16(self.0, 2)
    }

    /// Both ports.
    #[inline]
    pub fn ports(self) -> Ports {
        Ports { sport: self.sport(), dport: self.dport() }
    }

    /// The sequence number of the first byte of data, or of the SYN.
    #[inline]
    pub fn seq(self) -> u32 {
        be32(self.0, 4)
    }

    /// The next sequence number that the sender expects, if [`Flags::ACK`] is set.
    #[inline]
    pub fn ack(self) -> u32 {
        be32(self.0, 8)
    }

    /// Bytes of the header with its options, by its field: 0 to 60, and 20 to 60 once parsed.
    #[inline]
    pub fn header_len(self) -> usize {
        usize::from(self.0[12] >> 4) * 4
    }

    /// The eight flags.
    #[inline]
    pub fn flags(self) -> Flags {
        Flags(self.0[13])
    }

    /// The receive window, before scaling.
    #[inline]
    pub fn window(self) -> u16 {
        be16(self.0, 14)
    }

    /// The checksum.
    #[inline]
    pub fn checksum(self) -> u16 {
        be16(self.0, 16)
    }

    /// Urgent pointer: end of urgent data, if [`Flags::URG`] is set.
    #[inline]
    pub fn urgent(self) -> u16 {
        be16(self.0, 18)
    }
}

/// The first 20 bytes of a header, to change. The checksum is the caller's.
#[derive(Debug)]
pub struct HeaderMut<'a>(&'a mut [u8; MIN_HEADER_LEN]);

impl<'a> HeaderMut<'a> {
    /// The bytes at the start of `payload`, unchecked, or `None` where there are too few.
    #[inline]
    pub fn of(payload: &'a mut [u8]) -> Option<HeaderMut<'a>> {
        payload.first_chunk_mut().map(HeaderMut)
    }

    /// The same header, to read.
    #[inline]
    pub fn view(&self) -> Header<'_> {
        Header(self.0)
    }

    /// Sets the source port.
    #[inline]
    pub fn set_sport(&mut self, sport: u16) {
        put(self.0, 0, sport.to_be_bytes());
    }

    /// Sets the destination port.
    #[inline]
    pub fn set_dport(&mut self, dport: u16) {
        put(self.0, 2, dport.to_be_bytes());
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: u32) {
        put(self.0, 4, seq.to_be_bytes());
    }

    /// Sets the acknowledgement number.
    #[inline]
    pub fn set_ack(&mut self, ack: u32) {
        put(self.0, 8, ack.to_be_bytes());
    }

    /// Sets the header length in bytes, a multiple of 4 up to 60, and clears the reserved bits.
    #[inline]
    pub fn set_header_len(&mut self, bytes: usize) {
        self.0[12] = ((bytes / 4).min(15) as u8) << 4;
    }

    /// Sets the flags.
    #[inline]
    pub fn set_flags(&mut self, flags: Flags) {
        self.0[13] = flags.0;
    }

    /// Sets the window.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        put(self.0, 14, window.to_be_bytes());
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.0, 16, checksum.to_be_bytes());
    }

    /// Sets the urgent pointer.
    #[inline]
    pub fn set_urgent(&mut self, urgent: u16) {
        put(self.0, 18, urgent.to_be_bytes());
    }

    /// Adjusts the checksum for fields that changed.
    #[inline]
    pub fn adjust_checksum(&mut self, delta: Delta) {
        let checksum = delta.apply(self.view().checksum());
        self.set_checksum(checksum);
    }
}

/// A set of TCP flags.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);
    /// The second segment of a connection.
    pub const SYN_ACK: Flags = Flags::SYN.and(Flags::ACK);

    const NAMES: [(Flags, &'static str); 8] = [
        (Flags::SYN, "syn"),
        (Flags::ACK, "ack"),
        (Flags::FIN, "fin"),
        (Flags::RST, "rst"),
        (Flags::PSH, "psh"),
        (Flags::URG, "urg"),
        (Flags::ECE, "ece"),
        (Flags::CWR, "cwr"),
    ];

    /// The union of both sets.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags that are also in `mask`.
    #[inline]
    #[must_use]
    pub const fn masked(self, mask: Flags) -> Flags {
        Flags(self.0 & mask.0)
    }

    /// The flags that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// True if all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in Flags::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Not a list of TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a TCP flag: syn, ack, fin, rst, psh, urg, ece, cwr or none")]
pub struct UnknownFlag;

impl FromStr for Flags {
    type Err = UnknownFlag;

    /// Reads names in any case between commas, or `none`.
    fn from_str(text: &str) -> Result<Flags, UnknownFlag> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Flags::NONE);
        }
        text.split(',').try_fold(Flags::NONE, |flags, word| {
            let known = Flags::NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(word.trim()));
            known.map(|(flag, _)| flags.and(*flag)).ok_or(UnknownFlag)
        })
    }
}

/// An option (IANA, "TCP Option Kind Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size in bytes (RFC 9293, section 3.2).
    Mss(u16),
    /// Window scale: left shift, of which more than 14 count as 14 (RFC 7323, section 2).
    WindowScale(u8),
    /// Selective acknowledgement may be used (RFC 2018).
    SackPermitted,
    /// Selective acknowledgement: pairs of 32-bit sequence numbers (RFC 2018).
    Sack(&'a [u8]),
    /// Timestamps (RFC 7323, section 3).
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The other side's clock, echoed.
        echo: u32,
    },
    /// Another option, or one of the above with a wrong length.
    Other(RawOption<'a>),
}

/// Walks a segment's options. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Options<'a>(RawOptions<'a>);

impl<'a> Options<'a> {
    /// Starts a walk over the bytes between the fixed header and the data.
    #[inline]
    pub const fn new(options: &'a [u8]) -> Options<'a> {
        Options(RawOptions::new(options))
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, BadOption>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let raw = match self.0.next()? {
            Ok(raw) => raw,
            Err(bad) => return Some(Err(bad)),
        };
        Some(Ok(match (raw.kind, raw.data) {
            (2, &[a, b]) => TcpOption::Mss(u16::from_be_bytes([a, b])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, []) => TcpOption::SackPermitted,
            (5, blocks) => TcpOption::Sack(blocks),
            (8, data) => match data.first_chunk::<8>() {
                Some(clocks) if data.len() == 8 => {
                    TcpOption::Timestamps { value: be32(clocks, 0), echo: be32(clocks, 4) }
                }
                _ => TcpOption::Other(raw),
            },
            _ => TcpOption::Other(raw),
        }))
    }
}

/// Result of [`clamp_mss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clamped {
    /// Not a SYN, no MSS option in it, or malformed.
    NoOption,
    /// The option was within the limit.
    Within,
    /// The option was lowered from this value.
    From(u16),
}

/// Lowers the maximum segment size that a SYN announces to `limit` bytes, and adjusts the checksum. A SYN
/// without the option stays as it is: its sender gets 536 (IPv4) or 1220 (IPv6) anyway.
pub fn clamp_mss(segment: &mut [u8], limit: u16) -> Clamped {
    let Ok(parsed) = parse(segment) else { return Clamped::NoOption };
    if !parsed.header.flags().intersects(Flags::SYN) {
        return Clamped::NoOption;
    }
    let mut options = RawOptions::new(parsed.options).map_while(Result::ok);
    let Some(mss) = options.find(|option| option.kind == 2 && option.data.len() == 2) else {
        return Clamped::NoOption;
    };
    let old = u16::from_be_bytes([mss.data[0], mss.data[1]]);
    if old <= limit {
        return Clamped::Within;
    }
    let at = MIN_HEADER_LEN + mss.at + 2;
    let delta =
        if at % 2 == 0 { Delta::NONE.change16(old, limit) } else { Delta::NONE.change16_at_odd(old, limit) };
    segment[at..at + 2].copy_from_slice(&limit.to_be_bytes());
    if let Some(mut header) = HeaderMut::of(segment) {
        header.adjust_checksum(delta);
    }
    Clamped::From(old)
}

#[cfg(test)]
mod tests;
