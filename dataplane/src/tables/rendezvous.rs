//! Slots, each of which belongs to a member by weighted rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
//! increase hit rates"): a member that goes takes only its own slots with it, and one that comes takes slots from the others in
//! proportion. Slots depend on names and weights alone, so that every host, worker and restart has the same.

use policy::model::Sticky;

use super::Address;

/// Number of slots that WANs, or the servers of a port forward, share.
pub const SLOTS: usize = 8192;

/// A member that slots may belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<P> {
    /// Its place.
    pub(super) place: P,
    /// Hash of its name.
    pub(super) name: u64,
    /// Its share.
    pub(super) weight: u32,
}

/// The owners of so many slots, by place; none without members. Each slot belongs to the member with the lowest number, drawn from
/// an exponential distribution whose rate is the weight.
pub(super) fn owners<P: Copy + Ord>(members: &[Member<P>], slots: usize) -> impl Iterator<Item = P> + '_ {
    let drawn = |slot: u64, member: &Member<P>| {
        (exponential(mix(member.name ^ slot)) << 32) / u64::from(member.weight.max(1))
    };
    (0..slots as u64).filter_map(move |slot| {
        let all = members.iter().map(|member| (drawn(slot, member), member.name, member.place));
        all.min().map(|(_, _, place)| place)
    })
}

/// The slot of a hash among a number of slots.
pub(super) fn slot_of(hash: u32, slots: usize) -> usize {
    // A multiplication maps the hash without a division.
    ((u64::from(hash) * slots as u64) >> 32) as usize
}

/// Hash that the member of a connection is found by: the connection's own, or that of its source alone.
#[inline]
pub(super) fn spread(sticky: Sticky, source: Address, hash: u32) -> u32 {
    match sticky {
        Sticky::Connection => hash,
        Sticky::Source => (mix(source.bits as u64 ^ mix((source.bits >> 64) as u64)) >> 32) as u32,
    }
}

/// Number of the exponential distribution that a uniform one of 64 bits gives: minus its binary logarithm, as a fraction of 2^64,
/// with 24 bits behind the point. Integers alone: the same on every machine.
fn exponential(uniform: u64) -> u64 {
    const POINT: u32 = 24;
    let uniform = uniform | 1;
    let leading = uniform.leading_zeros();
    // From 1 to 2, with 63 bits behind the point.
    let mut mantissa = uniform << leading;
    let mut logarithm = 0;
    for bit in (0..POINT).rev() {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let is_above = square >> 64 != 0;
        mantissa = (if is_above { square >> 1 } else { square }) as u64;
        logarithm |= u64::from(is_above) << bit;
    }
    (u64::from(leading + 1) << POINT) - logarithm
}

/// FNV-1a, mixed.
pub(super) fn hash_of(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

/// Finaliser of SplitMix64.
pub(super) fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}
