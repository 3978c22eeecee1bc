//! u32: words of a packet from the beginning of its IP header, masked and compared.
//!
//! The header is taken to be one of IPv4 without options, or of IPv6 without extensions, as whoever writes such a filter does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Common, Words};
use crate::import::IpVersion;
use crate::import::cond::{Cond, Place, ports};
use crate::import::note::{NoteKind, Why};
use crate::import::range::{ByteSet, Ranges};
use crate::import::tc::unit::{hex, number};
use crate::import::word;
use crate::model::{AddressRange, Protocol, TcpFlagsMatch};

/// Bytes of a packet that a filter may look at.
const MOST: usize = 64;

/// Bytes of a packet that are compared.
struct Bytes {
    value: [u8; MOST],
    mask: [u8; MOST],
    /// True if no packet can match.
    is_never: bool,
}

/// Reads the words of a filter; `None` for a hash table.
pub(super) fn read(
    words: &mut Words<'_>,
    versions: &[IpVersion],
    common: &mut Common,
    note: &mut dyn FnMut(NoteKind),
) -> Result<Option<Vec<Cond>>, Why> {
    let mut bytes = Bytes { value: [0; MOST], mask: [0; MOST], is_never: false };
    let mut version = None;
    let mut is_selected = false;
    while let Some(word) = words.next() {
        match word {
            "match" => {
                is_selected = true;
                version = selector(words, &mut bytes)?.or(version);
            }
            "terminal" => {
                words.takes("flowid");
                words.takes("???");
            }
            "order" | "bkt" => {
                words.value()?;
            }
            "key" => {
                words.takes("ht");
                table(words.value()?)?;
            }
            "key_ht" => table(words.value()?)?,
            "ht" if words.takes("divisor") => return Ok(None),
            "ht" => table(words.value()?)?,
            "ht_divisor" | "divisor" => return Ok(None),
            "mark" | "fwmark_value" => return Err(Why::Mark),
            word if common.reads(word, words)? => {}
            word => {
                let value = words.peek().map(|value| format!(" {value}")).unwrap_or_default();
                return Err(Why::Feature(format!("{word}{value}")));
            }
        }
    }
    if !is_selected {
        return Err(Why::Feature("u32 without a match".to_owned()));
    }
    let is_compared = bytes.mask.iter().any(|mask| *mask != 0);
    if bytes.is_never {
        return Ok(Some(Vec::new()));
    }
    if !is_compared {
        return Ok(Some(versions.iter().map(|version| Cond::of(*version)).collect()));
    }
    // Of all protocols, the selector says which header it is of; else the version at its beginning, or else IPv4.
    let version = match versions {
        [only] => *only,
        _ => version.unwrap_or(match (bytes.mask[0] & 0xf0, bytes.value[0] & 0xf0) {
            (0xf0, 0x60) => IpVersion::V6,
            _ => IpVersion::V4,
        }),
    };
    let cond = match version {
        IpVersion::V4 => bytes.v4(note)?,
        IpVersion::V6 => bytes.v6(note)?,
    };
    Ok(Some(cond.into_iter().collect()))
}

/// Checks that a filter is in a table that all packets come to: of a listing or a command, those that the kernel makes.
fn table(word: &str) -> Result<(), Why> {
    let number = word.split(':').next().and_then(hex).ok_or_else(|| Why::Value(word.to_owned()))?;
    if number >= 0x800 { Ok(()) } else { Err(Why::Feature(format!("ht {word}"))) }
}

/// Reads a match, and returns the IP version that it names.
fn selector(words: &mut Words<'_>, bytes: &mut Bytes) -> Result<Option<IpVersion>, Why> {
    let kind = words.value()?;
    if let Some((value, mask)) = kind.split_once('/') {
        let (Some(value), Some(mask)) = (hex(value), hex(mask)) else {
            return Err(Why::Value(format!("match {kind}")));
        };
        let at = offset(words, 0)?;
        bytes.key(value, mask, at, 4)?;
        return Ok(None);
    }
    match kind {
        "u32" | "u16" | "u8" => {
            let size = match kind {
                "u32" => 4,
                "u16" => 2,
                _ => 1,
            };
            sized(words, bytes, 0, size)?;
            Ok(None)
        }
        "ip" => ip(words, bytes).map(|()| Some(IpVersion::V4)),
        "ip6" => ip6(words, bytes).map(|()| Some(IpVersion::V6)),
        "mark" => Err(Why::Mark),
        // `tc -pretty` leaves out what it has no words for.
        "IP" | "dport" | "sport" | "IPv6" => Err(Why::NotPrinted("whole filter with -pretty".to_owned())),
        other => Err(Why::Feature(format!("match {other}"))),
    }
}

/// Reads `at OFFSET`.
fn offset(words: &mut Words<'_>, default: usize) -> Result<usize, Why> {
    if !words.takes("at") {
        return Ok(default);
    }
    let word = words.value()?;
    let at = number(word).and_then(|at| usize::try_from(at).ok());
    at.ok_or_else(|| Why::Feature(format!("at {word}")))
}

/// Reads a value, a mask and perhaps an offset.
fn sized(words: &mut Words<'_>, bytes: &mut Bytes, at: usize, size: usize) -> Result<(), Why> {
    let (value, mask) = (words.value()?, words.value()?);
    let (Some(key), Some(bits)) = (number(value), hex(mask)) else {
        return Err(Why::Value(format!("{value} {mask}")));
    };
    let at = offset(words, at)?;
    bytes.key(key, bits, at, size)
}

fn ip(words: &mut Words<'_>, bytes: &mut Bytes) -> Result<(), Why> {
    let field = words.value()?;
    match field {
        "src" => address(words, bytes, 12, IpVersion::V4),
        "dst" => address(words, bytes, 16, IpVersion::V4),
        "tos" | "dsfield" | "precedence" => sized(words, bytes, 1, 1),
        "ihl" => sized(words, bytes, 0, 1),
        "protocol" => sized(words, bytes, 9, 1),
        "sport" => sized(words, bytes, 20, 2),
        "dport" => sized(words, bytes, 22, 2),
        "icmp_type" => sized(words, bytes, 20, 1),
        "icmp_code" => sized(words, bytes, 21, 1),
        other => Err(Why::Feature(format!("match ip {other}"))),
    }
}

fn ip6(words: &mut Words<'_>, bytes: &mut Bytes) -> Result<(), Why> {
    let field = words.value()?;
    match field {
        "src" => address(words, bytes, 8, IpVersion::V6),
        "dst" => address(words, bytes, 24, IpVersion::V6),
        "priority" => {
            let (value, mask) = (words.value()?, words.value()?);
            let (Some(key), Some(bits)) = (number(value), hex(mask)) else {
                return Err(Why::Value(format!("{value} {mask}")));
            };
            if key > 0xff || bits > 0xff {
                return Err(Why::Value(format!("{value} {mask}")));
            }
            let at = offset(words, 0)?;
            bytes.key(key << 20, bits << 20, at, 4)
        }
        "protocol" => sized(words, bytes, 6, 1),
        "sport" => sized(words, bytes, 40, 2),
        "dport" => sized(words, bytes, 42, 2),
        "icmp_type" => sized(words, bytes, 40, 1),
        "icmp_code" => sized(words, bytes, 41, 1),
        other => Err(Why::Feature(format!("match ip6 {other}"))),
    }
}

fn address(words: &mut Words<'_>, bytes: &mut Bytes, at: usize, version: IpVersion) -> Result<(), Why> {
    let word = words.value()?;
    let unknown = || Why::Value(word.to_owned());
    let at = offset(words, at)?;
    if matches!(word, "any" | "all" | "default" | "0/0" | "::/0") {
        return Ok(());
    }
    let range = word::addresses(word).filter(|_| !word.contains('-')).ok_or_else(unknown)?;
    let key = |bytes: &mut Bytes, first: &[u8], last: &[u8]| -> Result<(), Why> {
        for (index, (first, last)) in first.iter().zip(last).enumerate() {
            // Of a prefix, the bits that all addresses share are those of the mask.
            bytes.key(u32::from(*first), u32::from(!(first ^ last)), at + index, 1)?;
        }
        Ok(())
    };
    match (range.first, range.last, version) {
        (IpAddr::V4(first), IpAddr::V4(last), IpVersion::V4) => key(bytes, &first.octets(), &last.octets()),
        (IpAddr::V6(first), IpAddr::V6(last), IpVersion::V6) => key(bytes, &first.octets(), &last.octets()),
        _ => Err(unknown()),
    }
}

impl Bytes {
    /// Adds a comparison of `size` bytes.
    fn key(&mut self, value: u32, mask: u32, at: usize, size: usize) -> Result<(), Why> {
        let most = u32::MAX >> (32 - 8 * size);
        if value > most || mask > most {
            return Err(Why::Value(format!("{value:x}/{mask:x}")));
        }
        if mask == 0 {
            return Ok(());
        }
        if at > MOST - size {
            return Err(Why::Feature(format!("match {value:x}/{mask:x} at {at}")));
        }
        let bytes = value.to_be_bytes().into_iter().zip(mask.to_be_bytes()).skip(4 - size);
        for (index, (value, mask)) in bytes.enumerate() {
            let at = at + index;
            // Bits of the value outside its mask never match; tc clears them.
            let value = value & mask;
            self.is_never |= (self.value[at] ^ value) & self.mask[at] & mask != 0;
            self.value[at] |= value;
            self.mask[at] |= mask;
        }
        Ok(())
    }

    /// Takes a byte: value and mask.
    fn take(&mut self, at: usize) -> (u8, u8) {
        let mask = std::mem::take(&mut self.mask[at]);
        (self.value[at], mask)
    }

    /// Takes a number of two bytes.
    fn take16(&mut self, at: usize) -> (u16, u16) {
        let ((high, high_mask), (low, low_mask)) = (self.take(at), self.take(at + 1));
        (u16::from_be_bytes([high, low]), u16::from_be_bytes([high_mask, low_mask]))
    }

    /// Takes an address of that many bytes: the prefix that is compared.
    fn prefix(&mut self, at: usize, size: usize) -> Result<Option<(u128, u128)>, Why> {
        let (mut value, mut mask) = (0_u128, 0_u128);
        for index in at..at + size {
            let (byte, bits) = self.take(index);
            value = value << 8 | u128::from(byte);
            mask = mask << 8 | u128::from(bits);
        }
        let all = u128::MAX >> (128 - 8 * size);
        let free = all & !mask;
        // The free bits are the lowest.
        if free & free.wrapping_add(1) != 0 {
            return Err(Why::Feature(format!("match {value:x}/{mask:x} at {at}")));
        }
        Ok((mask != 0).then_some((value, value | free)))
    }

    /// Reports what is compared and has not been taken.
    fn left(&self) -> Result<(), Why> {
        let Some(at) = self.mask.iter().position(|mask| *mask != 0) else { return Ok(()) };
        let at = at & !3;
        let word = |bytes: &[u8; MOST]| {
            bytes[at..at + 4].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        Err(Why::Feature(format!("match {}/{} at {at}", word(&self.value), word(&self.mask))))
    }

    fn v4(mut self, note: &mut dyn FnMut(NoteKind)) -> Result<Option<Cond>, Why> {
        let (first, mask) = self.take(0);
        if (first ^ 0x40) & mask & 0xf0 != 0 {
            return Ok(None);
        }
        if mask & 0x0f != 0 {
            // "Without options": what the ports of such a filter need.
            if (first ^ 0x05) & mask & 0x0f != 0 {
                return Err(Why::Feature(format!("match {first:02x}/{mask:02x} at 0")));
            }
            note(NoteKind::PortsAtOffset);
        }
        let (tos, mask) = self.take(1);
        let mut cond = Cond::of(IpVersion::V4);
        cond.dscp = code_points(tos, mask, note)?;
        let (protocol, mask) = self.take(9);
        cond.protocols = masked_bytes(protocol, mask);
        let place = |range: Option<(u128, u128)>| {
            range.map_or_else(Place::v4, |(first, last)| {
                let address = |number: u128| IpAddr::V4(Ipv4Addr::from(number as u32));
                Place::of(&[AddressRange { first: address(first), last: address(last) }])
            })
        };
        cond.source = place(self.prefix(12, 4)?);
        cond.destination = place(self.prefix(16, 4)?);
        self.transport(20, Protocol::ICMP, &mut cond, note)?;
        self.left()?;
        Ok(Some(cond))
    }

    fn v6(mut self, note: &mut dyn FnMut(NoteKind)) -> Result<Option<Cond>, Why> {
        let (first, mask) = self.take(0);
        if (first ^ 0x60) & mask & 0xf0 != 0 {
            return Ok(None);
        }
        let (second, second_mask) = (self.value[1], self.mask[1]);
        self.mask[1] &= 0x0f;
        let mut cond = Cond::of(IpVersion::V6);
        cond.dscp = code_points(first << 4 | second >> 4, mask << 4 | second_mask >> 4, note)?;
        let (protocol, mask) = self.take(6);
        cond.protocols = masked_bytes(protocol, mask);
        let place = |range: Option<(u128, u128)>| {
            range.map_or_else(Place::v6, |(first, last)| {
                let address = |number: u128| IpAddr::V6(Ipv6Addr::from(number));
                Place::of(&[AddressRange { first: address(first), last: address(last) }])
            })
        };
        cond.source = place(self.prefix(8, 16)?);
        cond.destination = place(self.prefix(24, 16)?);
        self.transport(40, Protocol::ICMPV6, &mut cond, note)?;
        self.left()?;
        Ok(Some(cond))
    }

    /// Takes what is compared of a transport header that begins at `at`.
    fn transport(
        &mut self,
        at: usize,
        icmp: Protocol,
        cond: &mut Cond,
        note: &mut dyn FnMut(NoteKind),
    ) -> Result<(), Why> {
        let is_compared = self.mask[at..at + 4].iter().any(|mask| *mask != 0);
        if !is_compared && self.mask[at + 13] == 0 {
            return Ok(());
        }
        note(NoteKind::PortsAtOffset);
        if cond.protocols == ByteSet::one(icmp.0) {
            let ((kind, mask), (code, code_mask)) = (self.take(at), self.take(at + 1));
            cond.icmp_types = masked_bytes(kind, mask);
            cond.icmp_codes = masked_bytes(code, code_mask);
            return Ok(());
        }
        let ported: ByteSet = (0..=u8::MAX).filter(|number| Protocol(*number).has_ports()).collect();
        if cond.protocols.is_all() {
            cond.protocols = ported;
        } else if !cond.protocols.is_within(ported) {
            // What the bytes are of other protocols, nobody says.
            return Ok(());
        }
        cond.sports = self.ports(at)?;
        cond.dports = self.ports(at + 2)?;
        let (flags, mask) = (self.value[at + 13], self.mask[at + 13]);
        if mask != 0 && cond.protocols == ByteSet::one(Protocol::TCP.0) {
            self.mask[at + 13] = 0;
            cond.flags = Some(TcpFlagsMatch { mask, value: flags & mask });
        }
        Ok(())
    }

    fn ports(&mut self, at: usize) -> Result<Ranges, Why> {
        let (value, mask) = self.take16(at);
        let found = Ranges::masked(u64::from(u16::MAX), u64::from(mask), u64::from(value));
        match (mask, found) {
            (0, _) => Ok(ports([(0, u16::MAX)])),
            (_, Some(ranges)) => Ok(ranges),
            (_, None) => Err(Why::Feature(format!("match {value:x}/{mask:x} at {at}"))),
        }
    }
}

/// Numbers whose bits of `mask` are those of `value`.
pub(super) fn masked_bytes(value: u8, mask: u8) -> ByteSet {
    if mask == 0 {
        return ByteSet::ALL;
    }
    (0..=u8::MAX).filter(|number| (number ^ value) & mask == 0).collect()
}

/// Code points of a type of service.
pub(super) fn code_points(value: u8, mask: u8, note: &mut dyn FnMut(NoteKind)) -> Result<ByteSet, Why> {
    let of_ecn = mask & 0x03;
    if value & of_ecn != 0 {
        return Err(Why::Feature(format!("tos {value:#04x}/{mask:#04x}")));
    }
    if of_ecn != 0 {
        note(NoteKind::EcnBits);
    }
    if mask & 0xfc == 0 {
        return Ok(ByteSet::ALL);
    }
    Ok((0..64_u8).filter(|point| (point << 2 ^ value) & mask & 0xfc == 0).collect())
}
