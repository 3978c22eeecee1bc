//! The DS field across a tunnel: code points copied or set outwards (RFC 2983), congestion notification both ways (RFC 6040).
//!
//! The code point of an inner packet is never changed by the outer one: an outer code point says how networks between treated the tunnel.

use wire::Dscp;
use wire::esp::EcnUse;

/// The two bits of congestion notification in a DS field (RFC 3168, section 5).
const MASK: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const ECT_1: u8 = 0b01;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// The DS field of an outer packet, for an inner packet with `inner`: its code point is `dscp`, or the inner one.
#[inline]
pub fn outer(inner: u8, dscp: Option<Dscp>, ecn: EcnUse) -> u8 {
    let code_point = dscp.map_or(inner & !MASK, |dscp| dscp.value() << 2);
    match ecn {
        EcnUse::Copy => code_point | (inner & MASK),
        EcnUse::Off => code_point | NOT_ECT,
    }
}

/// The DS field with which an inner packet goes on that came in an outer one (RFC 6040, figure 4). `None` if it must be dropped: congestion
/// was marked outside, and the inner transport would not understand the mark.
#[inline]
pub fn inner(inner: u8, outer: u8, ecn: EcnUse) -> Option<u8> {
    if ecn == EcnUse::Off {
        return Some(inner);
    }
    match (inner & MASK, outer & MASK) {
        (NOT_ECT, CE) => None,
        (ECT_0 | ECT_1, CE) => Some(inner | CE),
        (ECT_0, ECT_1) => Some(inner & !MASK | ECT_1),
        _ => Some(inner),
    }
}

#[cfg(test)]
mod tests;
