//! Memory layout of headers, nodes and leaves.
//!
//! A header is a few lanes of 32 bits, two to a word: addresses first, then ports, then the rest. Nodes gather bits of
//! the words; leaves compare lanes, of [`WIDTH`] cuboids at a time.

use std::fmt::Debug;
use std::hash::Hash;

use bytemuck::{Pod, Zeroable};
use wire::Family;

use crate::classify::Header;
use crate::classify::field::{Field, Span};

/// Cuboids that a block of a leaf holds.
pub(super) const WIDTH: usize = 8;

/// Lane of `protocol | flags << 8 | dscp << 16`, counted from the lane of the ports.
pub(super) const MISC: usize = 1;

/// Lane of `from | to << 8 | ingress << 16`, counted from the lane of the ports.
pub(super) const ZONES: usize = 2;

/// Lane of the class of the source MAC address, counted from the lane of the ports. Nodes gather bits of it; it is rare,
/// and leaves do not compare it.
pub(super) const MACS: usize = 3;

/// The lanes of one family's headers.
pub(in crate::classify) trait Shape:
    Copy + Debug + Eq + Hash + Send + Sync + 'static
{
    /// A header's words; their number is a power of two.
    type Key: Copy + Debug + Default + PartialEq + AsRef<[u64]> + AsMut<[u64]>;
    /// An array with one value for each lane.
    type Lanes: Copy + Debug + Default + Ord + Hash + AsRef<[u32]> + AsMut<[u32]>;
    /// Address family.
    const FAMILY: Family;
    /// Address fields of the family.
    const ADDRESSES: [Field; 2];
    /// The lane of the ports, after those of the addresses.
    const PORTS: usize;
    /// Layout of the lanes, by slice.
    const SLICES: &'static [Slice];

    /// The words of a header; without zones, interfaces and MAC addresses, unless these are asked for.
    fn key<const ZONES: bool>(header: &Header) -> Self::Key;

    /// The lanes of two ranges of addresses; where an address has several lanes, they are prefixes.
    fn set_addresses(low: &mut Self::Lanes, span: &mut Self::Lanes, ranges: [Span; 2]);
}

/// A field within a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::classify) struct Slice {
    /// Number of the lane.
    pub lane: usize,
    /// Lowest bit of the slice in the lane.
    pub shift: u32,
    /// Number of bits.
    pub bits: u32,
    /// Form of a cuboid's condition on the slice.
    pub kind: Kind,
}

/// Form of a cuboid's condition on a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::classify) enum Kind {
    /// The lowest value, and the distance to the highest.
    Range,
    /// Mask and value.
    Bits,
}

impl Slice {
    const fn range(lane: usize, shift: u32, bits: u32) -> Slice {
        Slice { lane, shift, bits, kind: Kind::Range }
    }

    const fn bits(lane: usize) -> Slice {
        Slice { lane, shift: 0, bits: 32, kind: Kind::Bits }
    }

    /// The highest value.
    pub(in crate::classify) const fn highest(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// Returns the bits of the field out of a lane.
    pub(in crate::classify) const fn of(&self, lane: u32) -> u32 {
        lane >> self.shift & self.highest()
    }

    /// The word that it is in.
    pub(in crate::classify) const fn word(&self) -> usize {
        self.lane / 2
    }

    /// Returns the lowest bit of the field in its word.
    pub(in crate::classify) const fn shift_in_word(&self) -> u32 {
        self.shift + 32 * (1 - self.lane as u32 % 2)
    }
}

/// Number of lanes that are compared.
#[inline(always)]
pub(in crate::classify) const fn lanes<S: Shape>(zones: bool) -> usize {
    S::PORTS + MISC + 1 + zones as usize
}

/// Octets of a block: two for each lane, and one of positions.
#[inline(always)]
pub(in crate::classify) const fn block_octets<S: Shape>(zones: bool) -> usize {
    2 * lanes::<S>(zones) + 1
}

/// A lane of a key.
#[inline(always)]
pub(in crate::classify) fn lane(key: &[u64], lane: usize) -> u32 {
    (key[lane / 2] >> (32 * (1 - lane % 2))) as u32
}

/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct V4;

/// IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct V6;

/// Ports and what follows from their word on.
#[inline(always)]
fn set_rest<const ZONES: bool>(words: &mut [u64], header: &Header) {
    // In the order in which a header has them, so that one load does it; no cuboid looks at the family.
    words[0] = u64::from(header.protocol)
        | u64::from(header.tcp_flags) << 8
        | u64::from(header.dscp) << 16
        | (header.family as u64) << 24
        | u64::from(header.sport) << 32
        | u64::from(header.dport) << 48;
    if ZONES {
        let zones = u64::from(header.from) | u64::from(header.to) << 8 | u64::from(header.ingress) << 16;
        words[1] = zones << 32 | u64::from(header.source_mac);
    }
}

impl Shape for V4 {
    type Key = [u64; 4];
    type Lanes = [u32; 6];
    const FAMILY: Family = Family::V4;
    const ADDRESSES: [Field; 2] = [Field::Source4, Field::Destination4];
    const PORTS: usize = 2;
    const SLICES: &'static [Slice] = &[
        Slice::range(0, 0, 32),
        Slice::range(1, 0, 32),
        Slice::range(2, 0, 16),
        Slice::range(2, 16, 16),
        Slice::bits(3),
        Slice::bits(4),
        Slice::range(5, 0, 16),
    ];

    #[inline(always)]
    fn key<const ZONES: bool>(header: &Header) -> [u64; 4] {
        let mut words = [0; 4];
        words[0] = u64::from(header.source as u32) << 32 | u64::from(header.destination as u32);
        set_rest::<ZONES>(&mut words[1..], header);
        words
    }

    fn set_addresses(low: &mut [u32; 6], span: &mut [u32; 6], ranges: [Span; 2]) {
        for (at, Span { first, last }) in ranges.into_iter().enumerate() {
            (low[at], span[at]) = (first as u32, (last - first) as u32);
        }
    }
}

impl Shape for V6 {
    type Key = [u64; 8];
    type Lanes = [u32; 12];
    const FAMILY: Family = Family::V6;
    const ADDRESSES: [Field; 2] = [Field::Source6, Field::Destination6];
    const PORTS: usize = 8;
    const SLICES: &'static [Slice] = &[
        Slice::range(0, 0, 32),
        Slice::range(1, 0, 32),
        Slice::range(2, 0, 32),
        Slice::range(3, 0, 32),
        Slice::range(4, 0, 32),
        Slice::range(5, 0, 32),
        Slice::range(6, 0, 32),
        Slice::range(7, 0, 32),
        Slice::range(8, 0, 16),
        Slice::range(8, 16, 16),
        Slice::bits(9),
        Slice::bits(10),
        Slice::range(11, 0, 16),
    ];

    #[inline(always)]
    fn key<const ZONES: bool>(header: &Header) -> [u64; 8] {
        let mut words = [0; 8];
        words[0] = (header.source >> 64) as u64;
        words[1] = header.source as u64;
        words[2] = (header.destination >> 64) as u64;
        words[3] = header.destination as u64;
        set_rest::<ZONES>(&mut words[4..], header);
        words
    }

    fn set_addresses(low: &mut [u32; 12], span: &mut [u32; 12], ranges: [Span; 2]) {
        for (at, Span { first, last }) in ranges.into_iter().enumerate() {
            for word in 0..4 {
                let of = |address: u128| (address >> (96 - 32 * word)) as u32;
                let lane = 4 * at + word;
                (low[lane], span[lane]) = (of(first), of(last) - of(first));
            }
        }
    }
}

/// Eight values of one lane.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(32))]
pub(in crate::classify) struct Octet(pub [u32; WIDTH]);

/// Target of a branch: the octet of a node, or the first octet of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Branch(u32);

impl Branch {
    /// Branch to no pattern at all.
    pub(super) const NOWHERE: Branch = Branch(0);
    const NODE: u32 = 1 << 31;

    /// Returns a branch to a node.
    pub(super) fn node(octet: u32) -> Branch {
        Branch(Branch::NODE | octet)
    }

    /// Returns a branch to a leaf.
    pub(super) fn leaf(octet: u32) -> Branch {
        Branch(octet)
    }

    /// True if it leads to a node.
    #[inline(always)]
    pub(super) fn is_node(self) -> bool {
        self.0 & Branch::NODE != 0
    }

    /// The number of the octet.
    #[inline(always)]
    pub(super) fn octet(self) -> usize {
        (self.0 & !Branch::NODE) as usize
    }
}

/// Gathers bits of two words of a header, which make the number of a branch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    /// Bits of each of the two words.
    pub masks: [u64; 2],
    /// Index of the first branch.
    pub first: u32,
    /// Numbers of the words in the header's key.
    pub words: [u8; 2],
    /// Number of bits that are gathered from the first of them.
    pub shift: u8,
}

impl Node {
    /// Encodes the node for memory.
    pub(super) fn to_octet(self) -> Octet {
        let [low, high] = self.masks;
        let rest = u32::from_le_bytes([self.words[0], self.words[1], self.shift, 0]);
        Octet([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32, self.first, rest, 0, 0])
    }

    /// Decodes a node from memory.
    #[inline(always)]
    pub(super) fn of(octet: &Octet) -> Node {
        let [a, b, c, d, first, rest, ..] = octet.0;
        let masks = [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32];
        let [one, other, shift, _] = rest.to_le_bytes();
        Node { masks, first, words: [one, other], shift }
    }
}

/// Flags beside the numbers of rules in a block: in the entry of the first cuboid that matches, its pattern is to be
/// asked, too.
pub(super) const ASK: u32 = 1 << 31;
/// In the last entry, the next block belongs to the same leaf.
pub(super) const MORE: u32 = 1 << 30;
/// The bits of a rule's number: its position in the list, where nothing has changed since the trees were grown.
pub(super) const NUMBER: u32 = MORE - 1;
