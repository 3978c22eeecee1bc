//! Rules for packets that may go by: which are plain, which flow they are of, whether they lie in its windows and in its order. The same at
//! each hook of the kernel; what differs is how a program gets at a packet ([`Packet`]) and at its line ([`Line`]).
//!
//! R6 is the packet, R7 the slot, R8 the length of the frame, R9 this CPU's part of the memory. The transport header lies
//! at a fixed place of the stack, with the IP header in front of it.

use wire::vlan::TAG_LEN;

use super::super::assembler::{Assembler, If, Label, Op, Width};
use super::super::{MOST_VLAN, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, call};
use super::{ETHERNET, Memory, TCP, UDP, count, kind, order_after};
use crate::fast_path::hash::{MIX, VLAN_SHIFT};
use crate::fast_path::layout::{
    self, BUCKET, ENTRY, Fall, INDEX_BITS, LINE_SHIFT, V4, V6, decision, last, slot,
};

// The stack.
const TRANSPORT: i16 = -24;
const HEADER4: i16 = TRANSPORT - 20;
const HEADER6: i16 = TRANSPORT - 40;
/// Ports and interface, as they lie in a slot.
const ENDS: i16 = -72;
/// Lowest place of the stack that the rules use: below it is a program's own.
pub(super) const LOWEST: i16 = ENDS;

/// Bytes of the transport header that UDP has, and TCP.
const SHORT: i32 = 8;
const WHOLE: i32 = 20;

/// An acknowledgement may be this much behind, however small the window (`dataplane::flow::tcp`).
const LEAST_ACK_RANGE: u32 = 66_000;

/// Packets of a published flow that wait for others while the worker is far behind, before some are dropped, and most packets up to the last
/// that is dropped.
pub(in super::super) const PATIENCE: u32 = 16;
pub(in super::super) const MOST_WAITED: u32 = 4_096;

/// How a program gets at the packet in R6.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    /// Function of the kernel that copies bytes of a packet.
    pub(super) copy: i32,
    /// Offset of the index of the interface among the packet's fields.
    pub(super) ifindex: i16,
    /// Offset of the size of the segments of a packet of many; none where there are no such packets.
    pub(super) gso_size: Option<i16>,
    /// Tag beside the packet's bytes; none where there are no such tags.
    pub(super) tagging: Option<Tagging>,
}

/// Offsets of a VLAN tag among the packet's fields.
#[derive(Clone, Copy)]
pub(super) struct Tagging {
    /// 1 with a tag, else 0.
    pub(super) present: i16,
    /// The tag's control information; 0 without a tag.
    pub(super) tci: i16,
}

/// How a program gets at the line that the packet would be received by.
#[derive(Clone, Copy)]
pub(super) enum Line {
    /// The same for all packets.
    One(usize),
    /// The line with this number, or one behind it: the place of the stack has the distance, a long word.
    Behind(usize, i16),
}

/// Places that end the program.
pub(super) struct Ends {
    /// Kept, no flow being known.
    pub(super) unplain: Label,
    pub(super) unknown: Label,
    /// Kept, of a published flow.
    pub(super) of_flow: Label,
    pub(super) too_big: Label,
    pub(super) window: Label,
    pub(super) order: Label,
}

impl Ends {
    pub(super) fn new(a: &mut Assembler) -> Ends {
        Ends {
            unplain: a.label(),
            unknown: a.label(),
            of_flow: a.label(),
            too_big: a.label(),
            window: a.label(),
            order: a.label(),
        }
    }
}

/// Goes on with packets of published flows that are plain, fit, and lie in the windows; R2 is the Ethernet type in network order.
/// Afterwards this CPU's part of the memory has what is to be counted, and all registers but R6 to R9 are lost.
pub(super) fn examine(memory: &Memory<'_>, a: &mut Assembler, packet: Packet, ends: &Ends) {
    let (v6, found) = (a.label(), a.label());
    a.jump_if(R2, If::Equal, u32::from(0x86dd_u16.to_be()), v6);
    a.jump_if(R2, If::Unequal, u32::from(0x0800_u16.to_be()), ends.unplain);

    read(a, packet.copy, HEADER4, 20, ends.unplain);
    a.load(Width::Byte, R1, R10, HEADER4);
    a.jump_if(R1, If::Unequal, 0x45, ends.unplain);
    // Reserved bit, more fragments, offset: all but "don't fragment".
    a.load(Width::Half, R1, R10, HEADER4 + 6);
    a.jump_if(R1, If::Has, u32::from(0xbfff_u16.to_be()), ends.unplain);
    protocol(a, HEADER4 + 9, V4, ends.unplain);
    vlan(a, packet.tagging);
    memory.find_bucket(a, packet.ifindex, &[[HEADER4 + 12, HEADER4 + 16]]);
    memory.find(a, ends, |a, miss| {
        for (field, own) in [(slot::SOURCE, HEADER4 + 12), (slot::DESTINATION, HEADER4 + 16)] {
            a.load(Width::Word, R0, R7, field);
            a.load(Width::Word, R2, R10, own);
            a.jump_if_to(R0, If::Unequal, R2, miss);
        }
    });
    a.load(Width::Byte, R1, R10, HEADER4 + 8);
    a.jump_if(R1, If::Below, 2, ends.of_flow);
    verify_header(a, ends.of_flow);
    a.load(Width::Byte, R4, R10, HEADER4 + 1);
    a.load_network(Width::Half, R1, HEADER4 + 2);
    a.number(R5, 20);
    a.jump(found);

    a.place(v6);
    read(a, packet.copy, HEADER6, 40, ends.unplain);
    a.load(Width::Byte, R1, R10, HEADER6);
    a.and(R1, 0xf0);
    a.jump_if(R1, If::Unequal, 0x60, ends.unplain);
    protocol(a, HEADER6 + 6, V6, ends.unplain);
    vlan(a, packet.tagging);
    memory.find_bucket(a, packet.ifindex, &[8, 16, 24, 32].map(|at| [HEADER6 + at, HEADER6 + at + 4]));
    memory.find(a, ends, |a, miss| {
        for half in 0..4 {
            a.load(Width::Double, R0, R7, slot::SOURCE + 8 * half);
            a.load(Width::Double, R2, R10, HEADER6 + 8 + 8 * half);
            a.jump_if_long(R0, If::Unequal, R2, miss);
        }
    });
    a.load(Width::Byte, R1, R10, HEADER6 + 7);
    a.jump_if(R1, If::Below, 2, ends.of_flow);
    a.load_network(Width::Half, R4, HEADER6);
    a.shift_down(R4, 4);
    a.and(R4, 0xff);
    a.load_network(Width::Half, R1, HEADER6 + 4);
    a.long_by(Op::Add, R1, 40);
    a.number(R5, 40);

    a.place(found);
    lengths(a, ends.of_flow);
    code_point(a, ends.of_flow);
    sizes(a, packet, ends);
    memory.windows(a, ends.window);
}

/// Copies the headers to the stack. What a short packet lacks of a TCP header is zero.
fn read(a: &mut Assembler, copier: i32, to: i16, network: i32, short: Label) {
    let enough = (ETHERNET + network) as u32;
    a.jump_if(R8, If::Below, enough + SHORT as u32, short);
    a.number(R0, 0);
    a.store(Width::Double, TRANSPORT + 8, R0);
    a.store(Width::Word, TRANSPORT + 16, R0);
    let copy = a.label();
    a.copy(R1, R6);
    a.number(R2, ETHERNET);
    a.stack(R3, to);
    a.number(R4, network + SHORT);
    a.jump_if(R8, If::Below, enough + WHOLE as u32, copy);
    a.number(R4, network + WHOLE);
    a.place(copy);
    a.all(&[call(copier)]);
    a.jump_if(R0, If::Unequal, 0, short);
}

/// R3 = protocol and family as they lie in a slot, R2 = protocol as it is hashed.
fn protocol(a: &mut Assembler, at: i16, family: u8, other: Label) {
    let known = a.label();
    a.load(Width::Byte, R1, R10, at);
    a.word_by(Op::Copy, R3, kind(TCP, family));
    a.word_by(Op::Copy, R2, TCP << 24);
    a.jump_if(R1, If::Equal, TCP, known);
    a.word_by(Op::Copy, R3, kind(UDP, family));
    a.word_by(Op::Copy, R2, UDP << 24);
    a.jump_if(R1, If::Unequal, UDP, other);
    a.place(known);
}

/// Puts the VLAN beside protocol and family in R3, and beside the protocol in R2.
fn vlan(a: &mut Assembler, tagging: Option<Tagging>) {
    let Some(Tagging { tci, .. }) = tagging else { return };
    a.load(Width::Word, R1, R6, tci);
    a.and(R1, MOST_VLAN.into());
    a.copy(R4, R1);
    a.shift(R1, VLAN_SHIFT as i32);
    a.long(Op::Xor, R2, R1);
    // The last two bytes of the word.
    a.shift(R4, if cfg!(target_endian = "little") { 16 } else { 0 });
    a.long(Op::Or, R3, R4);
}

impl Memory<'_> {
    /// R5 = bucket of the key, R1 = its tag, R4 = ports and interface; R3 stays. Addresses are given by their pairs of words.
    fn find_bucket(&self, a: &mut Assembler, ifindex_at: i16, addresses: &[[i16; 2]]) {
        a.load(Width::Word, R4, R10, TRANSPORT);
        a.store(Width::Word, ENDS, R4);
        a.load(Width::Word, R5, R6, ifindex_at);
        a.store(Width::Word, ENDS + 4, R5);
        a.word(Op::Xor, R2, R5);
        // The first pair is in R4 and R2.
        let [first, rest @ ..] = &self.hasher.pairs;
        a.constant(R0, first[0]);
        a.long(Op::Add, R0, R4);
        a.constant(R1, first[1]);
        a.long(Op::Add, R1, R2);
        a.long(Op::Multiply, R0, R1);
        for (keys, words) in rest.iter().zip(addresses) {
            a.constant(R1, keys[0]);
            a.load(Width::Word, R2, R10, words[0]);
            a.long(Op::Add, R1, R2);
            a.constant(R2, keys[1]);
            a.load(Width::Word, R4, R10, words[1]);
            a.long(Op::Add, R2, R4);
            a.long(Op::Multiply, R1, R2);
            a.long(Op::Add, R0, R1);
        }
        a.constant(R1, self.hasher.start);
        a.long(Op::Add, R0, R1);
        a.shift_down(R0, 32);
        a.copy(R1, R0);
        a.shift_down(R1, 16);
        a.word(Op::Xor, R0, R1);
        a.word_by(Op::Multiply, R0, MIX);
        a.copy(R1, R0);
        a.shift_down(R1, 15);
        a.word(Op::Xor, R0, R1);
        a.copy(R1, R0);
        a.word_by(Op::Left, R1, INDEX_BITS);
        a.long_by(Op::Multiply, R0, self.layout.buckets() as i32);
        a.shift_down(R0, 32);
        a.long_by(Op::Multiply, R0, (BUCKET * ENTRY) as i32);
        a.address(R5, self.map, self.layout.first_bucket());
        a.long(Op::Add, R5, R0);
        a.load(Width::Double, R4, R10, ENDS);
    }

    /// R7 = slot that the key is published in.
    fn find(&self, a: &mut Assembler, ends: &Ends, compare_addresses: impl Fn(&mut Assembler, Label)) {
        let found = a.label();
        for entry in 0..BUCKET {
            let miss = a.label();
            // Of an entry with this tag the index is left. What an index leads to is loaded after it, as its address depends on it.
            a.load(Width::Word, R0, R5, (entry * ENTRY) as i16);
            a.word(Op::Xor, R0, R1);
            a.jump_if(R0, If::Above, self.last_slot(), miss);
            self.find_slot(a, R7, R0);
            a.load(Width::Double, R0, R7, slot::PORTS);
            a.jump_if_long(R0, If::Unequal, R4, miss);
            compare_addresses(a, miss);
            a.load(Width::Word, R0, R7, slot::PROTOCOL);
            a.jump_if_to(R0, If::Unequal, R3, miss);
            a.address(R2, self.map, layout::GENERATION);
            a.load(Width::Word, R2, R2, 0);
            a.load(Width::Word, R0, R7, slot::GENERATION);
            a.jump_if_to(R0, If::Unequal, R2, miss);
            a.load(Width::Word, R0, R7, slot::VERSION);
            a.jump_if(R0, If::Has, 1, found);
            a.place(miss);
        }
        a.jump(ends.unknown);
        a.place(found);
        order_after(a, R7, R0);
    }
}

/// Verifies the checksum of an IPv4 header.
fn verify_header(a: &mut Assembler, wrong: Label) {
    a.load(Width::Word, R1, R10, HEADER4);
    for at in [4, 8, 12, 16] {
        a.load(Width::Word, R2, R10, HEADER4 + at);
        a.long(Op::Add, R1, R2);
    }
    fold(a, R1, R2);
    a.jump_if(R1, If::Unequal, 0xffff, wrong);
}

/// Folds a one's complement sum of at most 36 bits into 16.
pub(super) fn fold(a: &mut Assembler, sum: u8, spare: u8) {
    // 33 bits, then 18, 17, 16.
    fold_by(a, sum, spare, 32);
    for _ in 0..3 {
        fold_by(a, sum, spare, 16);
    }
}

/// Adds what a sum has beyond so many bits, 16 or 32, to the rest.
pub(super) fn fold_by(a: &mut Assembler, sum: u8, spare: u8, bits: i32) {
    a.copy(spare, sum);
    a.shift_down(spare, bits);
    match bits {
        32 => a.word(Op::Copy, sum, sum),
        _ => a.and(sum, 0xffff),
    }
    a.long(Op::Add, sum, spare);
}

/// From R1, the IP length, and R5, the length of the IP header: R5 = bytes of all headers, R3 = bytes of data. Flags of TCP are
/// checked too.
fn lengths(a: &mut Assembler, bad: Label) {
    let (udp, done) = (a.label(), a.label());
    a.copy(R2, R8);
    a.long_by(Op::Subtract, R2, ETHERNET);
    a.jump_if_to(R1, If::Above, R2, bad);
    a.jump_if_to(R1, If::Below, R5, bad);
    a.copy(R3, R1);
    a.subtract(R3, R5);
    a.load(Width::Byte, R2, R7, slot::PROTOCOL);
    a.jump_if(R2, If::Equal, UDP, udp);
    a.load(Width::Byte, R0, R10, TRANSPORT + 12);
    a.shift_down(R0, 4);
    a.shift(R0, 2);
    a.jump_if(R0, If::Below, WHOLE as u32, bad);
    a.jump_if_to(R0, If::Above, R3, bad);
    // Of all flags but ECE and PSH, ACK alone.
    a.load(Width::Byte, R2, R10, TRANSPORT + 13);
    a.and(R2, 0xb7);
    a.jump_if(R2, If::Unequal, 0x10, bad);
    a.subtract(R3, R0);
    a.long(Op::Add, R5, R0);
    a.jump(done);
    a.place(udp);
    a.load_network(Width::Half, R0, TRANSPORT + 4);
    a.jump_if_to(R0, If::Unequal, R3, bad);
    a.jump_if(R3, If::Below, SHORT as u32, bad);
    a.long_by(Op::Subtract, R3, SHORT);
    a.long_by(Op::Add, R5, SHORT);
    a.place(done);
}

/// Looks for the code point of the DS field, in R4, among those of the flow.
fn code_point(a: &mut Assembler, other: Label) {
    a.shift_down(R4, 2);
    a.number(R2, 1);
    a.long(Op::Left, R2, R4);
    a.load(Width::Double, R0, R7, slot::DSCP);
    a.long(Op::And, R0, R2);
    a.jump_if_null(R0, other);
}

/// Compares the packet, or each of its segments, with the MTU, and notes what is to be counted.
fn sizes(a: &mut Assembler, packet: Packet, ends: &Ends) {
    let (single, counted) = (a.label(), a.label());
    // R2 = bytes of the tag.
    let load_tag = |a: &mut Assembler| match packet.tagging {
        Some(Tagging { present, .. }) => {
            a.load(Width::Word, R2, R6, present);
            a.shift(R2, TAG_LEN.ilog2() as i32);
        }
        None => a.number(R2, 0),
    };
    a.load(Width::Half, R4, R7, slot::MTU);
    if let Some(at) = packet.gso_size {
        a.load(Width::Word, R2, R6, at);
        a.jump_if(R2, If::Equal, 0, single);
        a.copy(R0, R2);
        a.long(Op::Add, R0, R5);
        a.jump_if_to(R0, If::Above, R4, ends.too_big);
        let several = a.label();
        a.jump_if_to(R3, If::Above, R2, several);
        a.jump(ends.of_flow);
        a.place(several);
        a.copy(R0, R1);
        a.long_by(Op::Add, R0, ETHERNET);
        a.jump_if_to(R0, If::Unequal, R8, ends.of_flow);
        // R0 = segments, R4 = data and as many headers, R2 = that and as many Ethernet headers with their tags.
        a.copy(R0, R3);
        a.long(Op::Add, R0, R2);
        a.long_by(Op::Subtract, R0, 1);
        a.word(Op::Divide, R0, R2);
        a.copy(R4, R0);
        a.long(Op::Multiply, R4, R5);
        a.long(Op::Add, R4, R3);
        load_tag(a);
        a.long_by(Op::Add, R2, ETHERNET);
        a.long(Op::Multiply, R2, R0);
        a.long(Op::Add, R2, R4);
        a.jump(counted);
    }
    a.place(single);
    a.jump_if_to(R1, If::Above, R4, ends.too_big);
    a.number(R0, 1);
    a.copy(R4, R1);
    load_tag(a);
    a.long(Op::Add, R2, R8);
    a.place(counted);
    for (field, value) in
        [(decision::PACKETS, R0), (decision::BYTES, R4), (decision::FRAME_BYTES, R2), (decision::LENGTH, R8)]
    {
        a.store_to(Width::Word, R9, field, value);
    }
}

impl Memory<'_> {
    /// Checks a segment with R3 bytes of data against the windows, and updates those of its sender. The packet may still
    /// have to wait for others of its flow; the worker then finds it in the windows too.
    fn windows(&self, a: &mut Assembler, outside: Label) {
        let (check, done) = (a.label(), a.label());
        a.load(Width::Word, R0, R7, slot::FLAGS);
        a.jump_if(R0, If::Has, slot::HAS_WINDOW, check);
        a.jump(done);
        a.place(check);
        // R5 = slot of the other direction, R1 = sequence number, R2 = end of the segment.
        a.load(Width::Word, R1, R7, slot::PEER);
        a.jump_if(R1, If::Above, self.last_slot(), outside);
        self.find_slot(a, R5, R1);
        a.load(Width::Word, R0, R5, slot::VERSION);
        a.load(Width::Word, R1, R7, slot::PEER_VERSION);
        a.jump_if_to(R0, If::Unequal, R1, outside);
        order_after(a, R5, R0);
        a.load_network(Width::Word, R1, TRANSPORT + 4);
        a.copy(R2, R1);
        a.word(Op::Add, R2, R3);
        a.load(Width::Word, R0, R5, slot::GRANTS);
        a.word(Op::Subtract, R0, R2);
        a.jump_if(R0, If::SignedBelow, 0, outside);
        a.load(Width::Word, R0, R7, slot::END);
        a.load(Width::Word, R4, R5, slot::MAX_WINDOW);
        a.word(Op::Subtract, R0, R4);
        a.word(Op::Subtract, R1, R0);
        a.jump_if(R1, If::SignedBelow, 0, outside);
        // R1 = acknowledgement, R4 = how much it is behind, R5 = own largest window.
        a.load_network(Width::Word, R1, TRANSPORT + 8);
        a.load(Width::Word, R4, R5, slot::END);
        a.word(Op::Subtract, R4, R1);
        a.jump_if(R4, If::SignedBelow, 0, outside);
        let (wide, new) = (a.label(), a.label());
        a.load(Width::Word, R5, R7, slot::MAX_WINDOW);
        a.copy(R0, R5);
        a.jump_if(R0, If::Above, LEAST_ACK_RANGE, wide);
        a.word_by(Op::Copy, R0, LEAST_ACK_RANGE);
        a.place(wide);
        a.jump_if_to(R4, If::Above, R0, outside);
        // With a closed window one byte may be tried.
        a.load_network(Width::Half, R0, TRANSPORT + 14);
        a.load(Width::Word, R4, R7, slot::SCALE);
        a.word(Op::Left, R0, R4);
        a.jump_if(R0, If::Unequal, 0, new);
        a.number(R0, 1);
        a.place(new);
        let largest = a.label();
        a.jump_if_to(R5, If::Above, R0, largest);
        a.store_to(Width::Word, R7, slot::MAX_WINDOW, R0);
        a.place(largest);
        a.word(Op::Add, R1, R0);
        later(a, slot::END, R2);
        later(a, slot::GRANTS, R1);
        a.place(done);
    }

    /// Goes on unless earlier packets of the flow are still with the worker.
    pub(super) fn in_order(&self, a: &mut Assembler, ends: &Ends) {
        // Of the line that the last one came by, which may be another one.
        a.load(Width::Double, R2, R7, slot::LAST);
        a.copy(R1, R2);
        a.and(R1, layout::LINES as i32 - 1);
        a.shift(R1, LINE_SHIFT as i32);
        a.address(R3, self.map, layout::taken(0));
        a.long(Op::Add, R3, R1);
        a.load(Width::Double, R1, R3, 0);
        a.shift_down(R2, last::SHIFT as i32);
        a.jump_if_long(R1, If::Below, R2, ends.order);
    }

    /// Goes to the place that is returned for a packet that the worker gets behind others of its flow, or to `lost` where the worker is
    /// far behind.
    pub(super) fn wait(&self, a: &mut Assembler, line: Line, backlog: u32, lost: Label) -> Label {
        let order = a.label();
        self.find_line(a, R2, line);
        a.load(Width::Double, R1, R2, 0);
        a.load(Width::Double, R2, R2, layout::TAKEN);
        a.long(Op::Subtract, R1, R2);
        a.jump_if(R1, If::Below, backlog, order);
        a.load(Width::Word, R1, R7, slot::WAITED);
        a.jump_if(R1, If::Above, MOST_WAITED, order);
        a.long_by(Op::Add, R1, 1);
        a.store_to(Width::Word, R7, slot::WAITED, R1);
        a.jump_if(R1, If::Below, PATIENCE + 1, order);
        a.jump(lost);
        order
    }

    /// Ends for packets that the worker gets, behind each of which the program goes on: counted by reason, then received (a program may end there
    /// where that fails), then counted as passed, and their number noted in the flow.
    pub(super) fn keep(&self, a: &mut Assembler, line: Line, ends: Ends, receive: impl Fn(&mut Assembler)) {
        let (keep, keep_of_flow) = (a.label(), a.label());
        for (place, reason, to) in [
            (ends.too_big, Fall::TooBig, keep_of_flow),
            (ends.window, Fall::Window, keep_of_flow),
            (ends.order, Fall::Order, keep_of_flow),
            (ends.unplain, Fall::Unplain, keep),
            (ends.unknown, Fall::Unknown, keep),
        ] {
            a.place(place);
            count(a, reason);
            a.jump(to);
        }
        a.place(ends.of_flow);
        count(a, Fall::Unplain);
        a.place(keep_of_flow);
        receive(a);
        self.find_line(a, R2, line);
        a.number(R1, 1);
        a.fetch_add(R2, 0, R1);
        a.long_by(Op::Add, R1, 1);
        a.shift(R1, last::SHIFT as i32);
        match line {
            Line::One(number) => a.or(R1, number as i32),
            Line::Behind(first, at) => {
                a.load(Width::Double, R2, R10, at);
                a.shift_down(R2, LINE_SHIFT as i32);
                a.long_by(Op::Add, R2, first as i32);
                a.long(Op::Or, R1, R2);
            }
        }
        a.store_to(Width::Double, R7, slot::LAST, R1);
        let end = a.label();
        a.jump(end);
        a.place(keep);
        receive(a);
        self.find_line(a, R2, line);
        a.number(R1, 1);
        a.add_atomic(R2, 0, R1);
        a.place(end);
    }

    /// `target` = address of the line's counters; R3 is lost.
    fn find_line(&self, a: &mut Assembler, target: u8, line: Line) {
        match line {
            Line::One(number) => a.address(target, self.map, layout::passed(number)),
            Line::Behind(first, at) => {
                a.address(target, self.map, layout::passed(first));
                a.load(Width::Double, R3, R10, at);
                a.long(Op::Add, target, R3);
            }
        }
    }
}

/// Sets a field of the slot to a number that is later, modulo 2^32; R4 and R5 are lost.
fn later(a: &mut Assembler, field: i16, number: u8) {
    let not = a.label();
    let is_later = a.label();
    a.load(Width::Word, R4, R7, field);
    a.copy(R5, number);
    a.word(Op::Subtract, R5, R4);
    a.jump_if(R5, If::SignedAbove, 0, is_later);
    a.jump(not);
    a.place(is_later);
    a.store_to(Width::Word, R7, field, number);
    a.place(not);
}
