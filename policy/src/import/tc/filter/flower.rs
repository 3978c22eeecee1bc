//! flower: fields of a packet, by name.

use super::selector::{code_points, masked_bytes};
use super::{Common, Words, masked};
use crate::import::IpVersion;
use crate::import::cond::{Cond, MAC_MAX, Place, macs, ports};
use crate::import::note::{NoteKind, Why};
use crate::import::range::{ByteSet, Ranges};
use crate::import::tc::unit::{hex, number};
use crate::import::word;
use crate::model::{Protocol, TcpFlagsMatch};

/// Reads the words of a filter. Of a command, a type of service is hexadecimal.
pub(super) fn read(
    words: &mut Words<'_>,
    versions: &[IpVersion],
    common: &mut Common,
    is_listed: bool,
    note: &mut dyn FnMut(NoteKind),
) -> Result<Vec<Cond>, Why> {
    let mut versions = versions.to_vec();
    let mut cond = Cond::default();
    let mut has_ports = false;
    while let Some(key) = words.next() {
        if common.reads(key, words)? {
            continue;
        }
        let word = words.value()?;
        let unknown = || Why::Value(format!("{key} {word}"));
        // In JSON a mask is a key of its own.
        let mask = words.takes(&format!("{key}_mask")).then(|| words.value()).transpose()?;
        let word = &mask.map_or_else(|| word.to_owned(), |mask| format!("{word}/{mask}"));
        match key {
            "eth_type" => {
                let of = super::versions(Some(word.as_str()))?;
                versions.retain(|version| of.contains(version));
            }
            "ip_proto" => {
                let named = match word.as_str() {
                    "esp" => Some(50),
                    "ah" => Some(51),
                    word => number(word)
                        .and_then(|number| u8::try_from(number).ok())
                        .or_else(|| word::protocol(word)),
                };
                cond.protocols = ByteSet::one(named.ok_or_else(unknown)?);
            }
            "ip_tos" => {
                let is_decimal = is_listed && !word.starts_with("0x");
                let (value, mask) =
                    masked(word, if is_decimal { number } else { hex }).ok_or_else(unknown)?;
                let (value, mask) = (byte(value), byte(mask.unwrap_or(0xff)));
                cond.dscp = code_points(value.ok_or_else(unknown)?, mask.ok_or_else(unknown)?, note)?;
            }
            "src_ip" => cond.source = place(word).ok_or_else(unknown)?,
            "dst_ip" => cond.destination = place(word).ok_or_else(unknown)?,
            "src_port" => {
                cond.sports = port(word).ok_or_else(unknown)?;
                has_ports = true;
            }
            "dst_port" => {
                cond.dports = port(word).ok_or_else(unknown)?;
                has_ports = true;
            }
            "tcp_flags" => {
                let (value, mask) = masked(word, hex).ok_or_else(unknown)?;
                let mask = mask.unwrap_or(0xfff);
                // The four bits above those of the model are reserved, and NS.
                if mask & !0xff & !0xf00 != 0 || value & mask & 0xf00 != 0 {
                    return Err(unknown());
                }
                let mask = (mask & 0xff) as u8;
                cond.flags = Some(TcpFlagsMatch { mask, value: (value & 0xff) as u8 & mask });
            }
            "type" | "code" | "icmp_type" | "icmp_code" => {
                let (value, mask) = masked(word, number).ok_or_else(unknown)?;
                let value = byte(value).ok_or_else(unknown)?;
                let set = masked_bytes(value, byte(mask.unwrap_or(0xff)).ok_or_else(unknown)?);
                match key {
                    "type" | "icmp_type" => cond.icmp_types = set,
                    _ => cond.icmp_codes = set,
                }
            }
            "src_mac" => cond.source_macs = Some(mac(word).ok_or_else(unknown)?),
            _ => return Err(Why::Feature(format!("{key} {word}"))),
        }
    }
    // tc refuses ports and flags without their protocol.
    let ported: ByteSet = (0..=u8::MAX).filter(|number| Protocol(*number).has_ports()).collect();
    if has_ports && !cond.protocols.is_within(ported) {
        return Err(Why::Feature("ports of any protocol".to_owned()));
    }
    Ok(versions.iter().filter_map(|version| cond.and(&Cond::of(*version))).collect())
}

fn byte(number: u32) -> Option<u8> {
    u8::try_from(number).ok()
}

/// Addresses of a prefix, by length or mask.
fn place(word: &str) -> Option<Place> {
    if word.contains('-') {
        return None;
    }
    word::addresses(word).map(|range| Place::of(&[range]))
}

/// Ports: one, a range, or those of a mask.
fn port(word: &str) -> Option<Ranges> {
    let one = |word: &str| number(word).and_then(|number| u16::try_from(number).ok());
    if let Some((first, last)) = word.split_once('-') {
        let (first, last) = (one(first)?, one(last)?);
        return (first <= last).then(|| ports([(first, last)]));
    }
    let (value, mask) = masked(word, number)?;
    let (value, mask) = (u16::try_from(value).ok()?, u16::try_from(mask.unwrap_or(0xffff)).ok()?);
    Ranges::masked(u64::from(u16::MAX), u64::from(mask), u64::from(value & mask))
}

/// Ethernet addresses: one, or those of a mask.
fn mac(word: &str) -> Option<Ranges> {
    let (address, mask) = match word.split_once('/') {
        Some((address, mask)) if mask.contains(':') => (word::mac(address)?, word::mac(mask)?),
        Some((address, length)) => {
            let length: u32 = length.parse().ok().filter(|length| *length <= 48)?;
            (word::mac(address)?, MAC_MAX & !(MAC_MAX.checked_shr(length).unwrap_or(0)))
        }
        None => {
            let address = word::mac(word)?;
            return Some(macs([(address, address)]));
        }
    };
    Ranges::masked(MAC_MAX, mask, address & mask)
}
