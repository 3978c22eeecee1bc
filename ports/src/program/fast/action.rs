//! The program at TCX ingress: acts on the filter's decision about the same packet.
//!
//! R6 is the packet, R7 the slot, R8 the packet's protocol, R9 this CPU's part of the memory.

use wire::ethernet::EtherType;

use super::super::assembler::{Assembler, If, Label, Op, Width};
use super::super::{
    BPF_REDIRECT, Instruction, MOST_VLAN, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, SKB_MARK, SKB_VLAN_PRESENT,
    SKB_VLAN_TCI, TCX_DROP, TCX_NEXT, call, exit,
};
use super::{ETHERNET, Memory, UDP, count, fast_mark, order_after};
use crate::fast_path::layout::{Fall, V6, decision, slot};

// Offsets of fields of `struct __sk_buff`.
const SKB_LENGTH: i16 = 0;
const SKB_IFINDEX: i16 = 40;
const SKB_DATA: i16 = 76;
const SKB_DATA_END: i16 = 80;

// Functions of the kernel.
const REPLACE_L4_CHECKSUM: i32 = 11;
pub(super) const PUSH_TAG: i32 = 18;
const POP_TAG: i32 = 19;
const CHANGE_TAIL: i32 = 38;
const PULL_DATA: i32 = 39;
const UPDATE_PACKET_SUM: i32 = 40;
const CHANGE_HEAD: i32 = 43;
const COARSE_NANOSECONDS: i32 = 160;

/// Flags of [`REPLACE_L4_CHECKSUM`]: the difference is the pseudo header's; a checksum of zero stays, and none becomes zero.
const PSEUDO_HEADER: i32 = 1 << 4;
const MANGLED_ZERO: i32 = 1 << 5;

/// Offset of the IP header in the frame.
const IP: i16 = ETHERNET as i16;

/// Places of an IP version's fields in a frame.
pub(super) struct Version {
    ethertype: u16,
    /// Value of the first byte of the header, under the mask.
    first: (u32, i32),
    protocol: i16,
    hops: i16,
    source: i16,
    destination: i16,
    pub(super) transport: i16,
    /// Words of an address.
    address: Width,
    /// Number of such words.
    words: i16,
}

impl Version {
    /// Words of four bytes of an address.
    pub(super) fn address_words(&self) -> i16 {
        (self.destination - self.source) / 4
    }
}

pub(super) const IPV4: Version = Version {
    ethertype: 0x0800,
    first: (0x45, 0xff),
    protocol: IP + 9,
    hops: IP + 8,
    source: IP + 12,
    destination: IP + 16,
    transport: IP + 20,
    address: Width::Word,
    words: 1,
};

pub(super) const IPV6: Version = Version {
    ethertype: 0x86dd,
    first: (0x60, 0xf0),
    protocol: IP + 6,
    hops: IP + 7,
    source: IP + 8,
    destination: IP + 24,
    transport: IP + 40,
    address: Width::Double,
    words: 2,
};

/// TCX ingress of a guarded interface whose port is on the fast path: as [`only_marked`](super::super::only_marked), and packets that
/// the filter let go by are sent on.
pub(crate) fn action(memory: &Memory<'_>, mark: u32) -> Option<Vec<Instruction>> {
    let mut a = Assembler::default();
    let a = &mut a;
    let (drop, stale, marked) = (a.label(), a.label(), a.label());
    let (v6, send) = (a.label(), a.label());
    a.copy(R6, R1);
    a.load(Width::Word, R2, R6, SKB_MARK);
    a.jump_if(R2, If::Equal, mark, marked);
    memory.find_cpu(a);
    a.load(Width::Double, R8, R9, decision::PLACE);
    a.jump_if_null(R8, drop);
    a.number(R0, 0);
    a.store_to(Width::Double, R9, decision::PLACE, R0);
    a.load(Width::Word, R1, R9, decision::LENGTH);
    a.load(Width::Word, R2, R6, SKB_LENGTH);
    a.jump_if_to(R1, If::Unequal, R2, stale);
    a.word(Op::Copy, R1, R8);
    a.jump_if(R1, If::Above, memory.last_slot(), stale);
    memory.find_slot(a, R7, R1);
    a.shift_down(R8, 32);
    // A publication that is retracted, but not freed, is as good for this packet.
    a.load(Width::Word, R1, R7, slot::VERSION);
    a.long_by(Op::Or, R1, 1);
    a.jump_if_to(R1, If::Unequal, R8, stale);
    order_after(a, R7, R1);
    a.load(Width::Word, R1, R7, slot::IFINDEX);
    a.load(Width::Word, R2, R6, SKB_IFINDEX);
    a.jump_if_to(R1, If::Unequal, R2, stale);
    a.load(Width::Half, R1, R7, slot::VLAN);
    a.load(Width::Word, R2, R6, SKB_VLAN_TCI);
    a.and(R2, MOST_VLAN.into());
    a.jump_if_to(R1, If::Unequal, R2, stale);
    a.load(Width::Byte, R8, R7, slot::PROTOCOL);
    cut_padding(a, stale);
    own_head(a);
    a.load(Width::Byte, R1, R7, slot::FAMILY);
    a.jump_if(R1, If::Equal, V6.into(), v6);
    translate(a, &IPV4, stale);
    mark_v4(a);
    update_header_checksum(a);
    a.jump(send);
    a.place(v6);
    translate(a, &IPV6, stale);
    mark_v6(a);
    update_packet_sum(a);
    a.place(send);
    retag(a, stale);
    account(a);
    a.word_by(Op::Copy, R1, fast_mark(mark));
    a.store_to(Width::Word, R6, SKB_MARK, R1);
    a.load(Width::Word, R1, R7, slot::OUT);
    a.number(R2, 0);
    a.all(&[call(BPF_REDIRECT), exit()]);

    a.place(marked);
    a.number(R2, 0);
    a.store_to(Width::Word, R6, SKB_MARK, R2);
    a.end(TCX_NEXT);
    a.place(stale);
    count(a, Fall::Stale);
    a.place(drop);
    a.end(TCX_DROP);
    std::mem::take(a).finish()
}

/// Gives the packet the tag that it is to leave with, or none. The tag lies beside the packet's bytes, into which Linux puts it where the device
/// cannot: neither function has anything to allocate.
fn retag(a: &mut Assembler, failed: Label) {
    let (bare, done) = (a.label(), a.label());
    a.load(Width::Word, R1, R7, slot::TAG);
    a.load(Width::Word, R2, R6, SKB_VLAN_PRESENT);
    a.shift(R2, slot::HAS_TAG.ilog2() as i32);
    a.load(Width::Word, R3, R6, SKB_VLAN_TCI);
    a.long(Op::Or, R2, R3);
    a.jump_if_to(R1, If::Equal, R2, done);
    a.jump_if(R2, If::Equal, 0, bare);
    a.copy(R1, R6);
    a.all(&[call(POP_TAG)]);
    a.jump_if(R0, If::Unequal, 0, failed);
    a.place(bare);
    a.load(Width::Word, R3, R7, slot::TAG);
    a.jump_if(R3, If::Equal, 0, done);
    a.and(R3, 0xffff);
    a.copy(R1, R6);
    a.number(R2, EtherType::VLAN.0.to_be().into());
    a.all(&[call(PUSH_TAG)]);
    a.jump_if(R0, If::Unequal, 0, failed);
    a.place(done);
}

/// Counts the packet in its flow; R0 to R5 are lost.
pub(super) fn account(a: &mut Assembler) {
    for (from, to) in [
        (decision::PACKETS, slot::PACKETS),
        (decision::BYTES, slot::BYTES),
        (decision::FRAME_BYTES, slot::FRAME_BYTES),
    ] {
        a.load(Width::Word, R1, R9, from);
        a.add_atomic(R7, to, R1);
    }
    a.all(&[call(COARSE_NANOSECONDS)]);
    a.store_to(Width::Double, R7, slot::SEEN, R0);
}

/// Cuts the link's padding off. A packet of many segments has none, and counts for more bytes than it has.
fn cut_padding(a: &mut Assembler, failed: Label) {
    let (padded, none) = (a.label(), a.label());
    a.load(Width::Word, R1, R9, decision::LENGTH);
    a.load(Width::Word, R2, R9, decision::BYTES);
    a.long_by(Op::Add, R2, ETHERNET);
    a.jump_if_to(R1, If::Above, R2, padded);
    a.jump(none);
    a.place(padded);
    a.copy(R1, R6);
    a.number(R3, 0);
    a.all(&[call(CHANGE_TAIL)]);
    a.jump_if(R0, If::Unequal, 0, failed);
    a.place(none);
}

/// Has the head of a packet of many segments copied where the sender's TCP, on this machine, shares it to send it again. The head may be written
/// anyway; but the receiver's TCP, on this machine too, joins no packets whose heads are shared. Linux copies the head of each packet that it forwards.
fn own_head(a: &mut Assembler) {
    let done = a.label();
    a.load(Width::Word, R1, R9, decision::PACKETS);
    a.jump_if(R1, If::Below, 2, done);
    a.copy(R1, R6);
    a.number(R2, 0);
    a.number(R3, 0);
    // Without memory for a copy, the packet goes as it is.
    a.all(&[call(CHANGE_HEAD)]);
    a.place(done);
}

/// Checks that the packet is the flow's, then translates it and puts the next hop's link-layer header in front. Afterwards R2 is the frame.
fn translate(a: &mut Assembler, ip: &Version, stale: Label) {
    // As far as any packet of TCP or UDP reaches.
    let reach = i32::from(ip.transport) + 8;
    let (pull, have) = (a.label(), a.label());
    find(a, reach, pull);
    a.jump(have);
    a.place(pull);
    a.copy(R1, R6);
    a.number(R2, reach);
    a.all(&[call(PULL_DATA)]);
    a.jump_if(R0, If::Unequal, 0, stale);
    find(a, reach, stale);
    a.place(have);

    a.load(Width::Half, R1, R2, IP - 2);
    a.jump_if(R1, If::Unequal, ip.ethertype.to_be().into(), stale);
    a.load(Width::Byte, R1, R2, IP);
    a.and(R1, ip.first.1);
    a.jump_if(R1, If::Unequal, ip.first.0, stale);
    a.load(Width::Byte, R1, R2, ip.hops);
    a.jump_if(R1, If::Below, 2, stale);
    a.load(Width::Byte, R1, R2, ip.protocol);
    a.jump_if_to(R1, If::Unequal, R8, stale);
    for (field, at) in [(slot::SOURCE, ip.source), (slot::DESTINATION, ip.destination)] {
        for word in 0..ip.words {
            a.load(ip.address, R1, R7, field + 8 * word);
            a.load(ip.address, R3, R2, at + 8 * word);
            a.jump_if_long(R1, If::Unequal, R3, stale);
        }
    }
    a.load(Width::Word, R1, R7, slot::PORTS);
    a.load(Width::Word, R3, R2, ip.transport);
    a.jump_if_to(R1, If::Unequal, R3, stale);

    for (field, flags) in [(slot::ADDRESS_SUM, PSEUDO_HEADER), (slot::PORT_SUM, 0)] {
        let (unchanged, tcp) = (a.label(), a.label());
        a.load(Width::Word, R4, R7, field);
        a.jump_if(R4, If::Equal, 0, unchanged);
        a.copy(R1, R6);
        a.number(R2, i32::from(ip.transport) + 16);
        a.number(R3, 0);
        a.number(R5, flags);
        a.jump_if(R8, If::Unequal, UDP, tcp);
        a.number(R2, i32::from(ip.transport) + 6);
        a.number(R5, flags | MANGLED_ZERO);
        a.place(tcp);
        a.all(&[call(REPLACE_L4_CHECKSUM)]);
        a.jump_if(R0, If::Unequal, 0, stale);
        a.place(unchanged);
    }

    // The packet may have moved.
    find(a, reach, stale);
    rewrite(a, ip);
}

/// Puts the next hop's link-layer header, the new addresses and ports into the frame in R2, and counts the hop.
pub(super) fn rewrite(a: &mut Assembler, ip: &Version) {
    for at in [0, 4, 8] {
        a.load(Width::Word, R1, R7, slot::LINK + at);
        a.store_to(Width::Word, R2, at, R1);
    }
    for (field, at) in [(slot::NEW_SOURCE, ip.source), (slot::NEW_DESTINATION, ip.destination)] {
        for word in 0..ip.words {
            a.load(ip.address, R1, R7, field + 8 * word);
            a.store_to(ip.address, R2, at + 8 * word, R1);
        }
    }
    a.load(Width::Word, R1, R7, slot::NEW_PORTS);
    a.store_to(Width::Word, R2, ip.transport, R1);
    a.load(Width::Byte, R1, R2, ip.hops);
    a.long_by(Op::Subtract, R1, 1);
    a.store_to(Width::Byte, R2, ip.hops, R1);
}

/// Gives the IPv4 packet of the frame in R2 the flow's code point, if it has one, and leaves congestion notification as it is. R5 = difference of
/// the header's one's complement sum, in memory order and not folded.
pub(super) fn mark_v4(a: &mut Assembler) {
    /// The field is the second byte of its word.
    const SHIFT: i32 = if cfg!(target_endian = "little") { 8 } else { 0 };
    let (has, done) = (a.label(), a.label());
    a.number(R5, 0);
    a.load(Width::Word, R1, R7, slot::FLAGS);
    a.jump_if(R1, If::Has, slot::HAS_MARK, has);
    a.jump(done);
    a.place(has);
    a.load(Width::Byte, R3, R2, IP + 1);
    a.copy(R5, R3);
    a.and(R5, 3);
    a.load(Width::Byte, R1, R7, slot::MARK + 1);
    a.long(Op::Or, R5, R1);
    a.store_to(Width::Byte, R2, IP + 1, R5);
    a.shift(R5, SHIFT);
    a.shift(R3, SHIFT);
    a.long_by(Op::Xor, R3, 0xffff);
    a.long(Op::Add, R5, R3);
    a.place(done);
}

/// As [`mark_v4`], of IPv6.
pub(super) fn mark_v6(a: &mut Assembler) {
    let (has, done) = (a.label(), a.label());
    a.number(R5, 0);
    a.load(Width::Word, R1, R7, slot::FLAGS);
    a.jump_if(R1, If::Has, slot::HAS_MARK, has);
    a.jump(done);
    a.place(has);
    a.load(Width::Half, R3, R2, IP);
    a.load(Width::Byte, R1, R7, slot::MARK);
    a.store_to(Width::Byte, R2, IP, R1);
    a.load(Width::Byte, R1, R2, IP + 1);
    a.and(R1, 0x3f);
    a.load(Width::Byte, R4, R7, slot::MARK + 1);
    a.long(Op::Or, R1, R4);
    a.store_to(Width::Byte, R2, IP + 1, R1);
    a.load(Width::Half, R5, R2, IP);
    a.long_by(Op::Xor, R3, 0xffff);
    a.long(Op::Add, R5, R3);
    a.place(done);
}

/// Corrects the sum that a card may have made of an IPv6 packet (CHECKSUM_COMPLETE). The change of the checksum field is added to it
/// already, that of the addresses and of the hop limit is not: the kernel takes all pseudo headers for IPv4's, whose addresses the
/// header's own checksum makes up for. Without such a sum the function does nothing. R5 is the difference that a mark makes.
fn update_packet_sum(a: &mut Assembler) {
    a.copy(R1, R6);
    a.load(Width::Half, R2, R7, slot::HEADER_SUM);
    a.long(Op::Add, R2, R5);
    a.all(&[call(UPDATE_PACKET_SUM)]);
}

/// R2 = the frame, of which so many bytes are at hand.
fn find(a: &mut Assembler, bytes: i32, short: Label) {
    a.load(Width::Word, R2, R6, SKB_DATA);
    a.load(Width::Word, R3, R6, SKB_DATA_END);
    a.copy(R4, R2);
    a.long_by(Op::Add, R4, bytes);
    a.jump_if_long(R4, If::Above, R3, short);
}

/// Updates the checksum of the IPv4 header of the frame in R2 (RFC 1624, equation 3), with the difference that a mark makes, in R5.
pub(super) fn update_header_checksum(a: &mut Assembler) {
    a.load(Width::Half, R1, R2, IP + 10);
    a.long_by(Op::Xor, R1, 0xffff);
    a.load(Width::Half, R3, R7, slot::HEADER_SUM);
    a.long(Op::Add, R1, R3);
    a.long(Op::Add, R1, R5);
    // 18 bits, then 17, then 16.
    for _ in 0..2 {
        a.copy(R3, R1);
        a.shift_down(R3, 16);
        a.and(R1, 0xffff);
        a.long(Op::Add, R1, R3);
    }
    a.long_by(Op::Xor, R1, 0xffff);
    a.store_to(Width::Half, R2, IP + 10, R1);
}
