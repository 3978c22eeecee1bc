//! The program at XDP, in front of the sockets of AF_XDP: decides by the [rules](super::rules), and acts at once. There is one decision and one
//! look at the packet, and so nothing to note.
//!
//! R6 is the packet, R7 the slot, R8 the length of the frame, R9 this CPU's part of the memory.

use std::os::fd::BorrowedFd;

use wire::ethernet::Mac;

use super::super::assembler::{Assembler, If, Label, Op, Width};
use super::super::{
    BPF_REDIRECT, BPF_REDIRECT_MAP, Instruction, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, XDP_DROP,
    XDP_QUEUE, call, exit, set_map,
};
use super::action::{self, IPV4, IPV6, Version};
use super::rules::{self, Ends, Line, Packet, examine, fold, fold_by};
use super::{ETHERNET, Memory, UDP, count};
use crate::fast_path::layout::{Fall, LINE_SHIFT, V6, decision, frame, slot};

/// Port that a program is for.
#[derive(Clone, Copy)]
pub(crate) struct Front<'a> {
    /// Sockets, by queue.
    pub(crate) sockets: BorrowedFd<'a>,
    /// Number of queues.
    pub(crate) queues: u32,
    /// Number of the first queue's line; those of the others follow.
    pub(crate) first_line: usize,
    /// Packets of a queue that the worker has yet to send on, from which on it is far behind.
    pub(crate) backlog: u32,
    /// Link-layer address of the interface.
    pub(crate) mac: Mac,
    /// Checksums of TCP and UDP as they arrive.
    pub(crate) checksums: Checksums,
}

/// State of the checksums of TCP and UDP in received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// Complete: the frames were on a wire.
    Complete,
    /// May be left to a card, with the sum of the pseudo header alone in the field: the frames are another stack's.
    Bare,
}

// Offsets of fields of `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const IFINDEX: i16 = 12;

// Functions of the kernel.
const CHECKSUM_DIFFERENCE: i32 = 28;
const ADJUST_TAIL: i32 = 65;
const FRAME_LENGTH: i32 = 188;
const LOAD_BYTES: i32 = 189;

const XDP_REDIRECT: u32 = 4;

/// Offset of the checksum in a header.
const TCP_FIELD: i32 = 16;
const UDP_FIELD: i32 = 6;

const FRAME: Packet = Packet { copy: LOAD_BYTES, ifindex: IFINDEX, gso_size: None, tagging: None };

// The stack, below what the rules have there.
/// Distance of the queue's line from the first, in bytes: a long word.
const QUEUE: i16 = rules::LOWEST - 8;
/// One's complement sum so far, a long word.
const SUM: i16 = QUEUE - 8;
/// Copy of bytes to be summed, less than [`PIECE`].
const COPY: i16 = SUM - 256;

/// Most bytes of transport header and data whose checksum is completed. Longer frames need more than one buffer.
const MOST_COVERED: u32 = 4095;
/// Bytes that are summed at once: as many as every kernel does.
const PIECE: u32 = 512;

/// The program of a port's interface.
pub(crate) fn xdp(memory: &Memory<'_>, front: &Front<'_>) -> Option<Vec<Instruction>> {
    let line = Line::Behind(front.first_line, QUEUE);
    let mut a = Assembler::default();
    let a = &mut a;
    let ends = Ends::new(a);
    let (lost, drop) = (a.label(), a.label());
    a.copy(R6, R1);
    a.load(Width::Word, R2, R6, XDP_QUEUE);
    a.jump_if(R2, If::Above, front.queues.saturating_sub(1), drop);
    a.shift(R2, LINE_SHIFT as i32);
    a.store(Width::Double, QUEUE, R2);
    memory.find_cpu(a);
    a.copy(R1, R6);
    a.all(&[call(FRAME_LENGTH)]);
    a.copy(R8, R0);
    find(a, ETHERNET, ends.unplain);
    let [b0, b1, b2, b3, b4, b5] = front.mac.0;
    a.load(Width::Word, R1, R2, 0);
    a.jump_if(R1, If::Unequal, u32::from_ne_bytes([b0, b1, b2, b3]), ends.unplain);
    a.load(Width::Half, R1, R2, 4);
    a.jump_if(R1, If::Unequal, u16::from_ne_bytes([b4, b5]).into(), ends.unplain);
    a.load(Width::Half, R2, R2, 12);
    examine(memory, a, FRAME, &ends);
    memory.in_order(a, &ends);
    send_on(a, front.checksums, ends.of_flow);

    a.place(ends.order);
    let order = memory.wait(a, line, front.backlog, lost);
    memory.keep(a, line, Ends { order, ..ends }, |a| {
        a.load(Width::Word, R2, R6, XDP_QUEUE);
        a.all(&set_map(R1, front.sockets));
        a.number(R3, XDP_DROP);
        a.all(&[call(BPF_REDIRECT_MAP)]);
        // Where there is no socket yet.
        a.jump_if(R0, If::Unequal, XDP_REDIRECT, drop);
    });
    a.end(XDP_REDIRECT as i32);
    a.place(lost);
    count(a, Fall::Overload);
    a.place(drop);
    a.end(XDP_DROP);
    std::mem::take(a).finish()
}

/// Translates the packet and sends it by the interface that it leaves by. Nothing is changed where that fails, as with a packet that is to leave with a
/// tag.
fn send_on(a: &mut Assembler, checksums: Checksums, failed: Label) {
    let (v6, send) = (a.label(), a.label());
    a.load(Width::Word, R1, R7, slot::TAG);
    a.jump_if(R1, If::Unequal, 0, failed);
    a.load(Width::Word, R8, R9, decision::BYTES);
    cut_padding(a, failed);
    a.load(Width::Byte, R1, R7, slot::FAMILY);
    a.jump_if(R1, If::Equal, V6.into(), v6);
    translate(a, &IPV4, checksums, failed);
    action::mark_v4(a);
    action::update_header_checksum(a);
    a.jump(send);
    a.place(v6);
    translate(a, &IPV6, checksums, failed);
    action::mark_v6(a);
    a.place(send);
    action::account(a);
    a.load(Width::Double, R1, R9, frame::PENDING);
    a.long_by(Op::Add, R1, 1);
    a.store_to(Width::Double, R9, frame::PENDING, R1);
    a.load(Width::Word, R1, R7, slot::OUT);
    a.number(R2, 0);
    a.all(&[call(BPF_REDIRECT), exit()]);
}

/// Cuts off what is behind the IP packet, whose length is in R8.
fn cut_padding(a: &mut Assembler, failed: Label) {
    let none = a.label();
    a.load(Width::Word, R1, R9, decision::LENGTH);
    a.copy(R2, R8);
    a.long_by(Op::Add, R2, ETHERNET);
    a.subtract(R2, R1);
    a.jump_if(R2, If::Equal, 0, none);
    a.copy(R1, R6);
    a.all(&[call(ADJUST_TAIL)]);
    a.jump_if(R0, If::Unequal, 0, failed);
    a.place(none);
}

/// Updates the checksum of TCP or UDP, then puts new headers into the frame. Afterwards R2 is the frame.
fn translate(a: &mut Assembler, ip: &Version, checksums: Checksums, failed: Label) {
    let transport = i32::from(ip.transport);
    let (udp, loaded, done) = (a.label(), a.label(), a.label());
    let (update, store, of_udp) = (a.label(), a.label(), a.label());
    // R5 = checksum.
    a.load(Width::Byte, R1, R7, slot::PROTOCOL);
    a.jump_if(R1, If::Equal, UDP, udp);
    find(a, transport + TCP_FIELD + 2, failed);
    a.load(Width::Half, R5, R2, (transport + TCP_FIELD) as i16);
    a.jump(loaded);
    a.place(udp);
    find(a, transport + UDP_FIELD + 2, failed);
    a.load(Width::Half, R5, R2, (transport + UDP_FIELD) as i16);
    a.place(loaded);
    if checksums == Checksums::Bare {
        complete(a, ip, failed);
    }

    // RFC 1624, equation 3. A sum that a zero stands for is that of no checksum in UDP, and changes nothing.
    a.load(Width::Word, R1, R7, slot::ADDRESS_SUM);
    a.load(Width::Word, R3, R7, slot::PORT_SUM);
    a.long(Op::Add, R1, R3);
    a.load(Width::Byte, R0, R7, slot::PROTOCOL);
    a.jump_if(R1, If::Equal, 0, store);
    a.jump_if(R0, If::Unequal, UDP, update);
    a.jump_if(R5, If::Equal, 0, store);
    a.place(update);
    a.long_by(Op::Xor, R5, 0xffff);
    a.long(Op::Add, R5, R1);
    for _ in 0..2 {
        fold_by(a, R5, R1, 16);
    }
    a.long_by(Op::Xor, R5, 0xffff);
    a.jump_if(R0, If::Unequal, UDP, store);
    a.jump_if(R5, If::Unequal, 0, store);
    a.number(R5, 0xffff);
    a.place(store);
    a.jump_if(R0, If::Equal, UDP, of_udp);
    find(a, transport + TCP_FIELD + 2, failed);
    a.store_to(Width::Half, R2, (transport + TCP_FIELD) as i16, R5);
    a.jump(done);
    a.place(of_udp);
    find(a, transport + UDP_FIELD + 2, failed);
    a.store_to(Width::Half, R2, (transport + UDP_FIELD) as i16, R5);
    a.place(done);
    action::rewrite(a, ip);
}

/// Completes the checksum in R5 if it is the sum of the pseudo header alone, as [`crate::offload`] does. The IP packet has R8 bytes.
fn complete(a: &mut Assembler, ip: &Version, failed: Label) {
    let network = i32::from(ip.transport) - ETHERNET;
    let (bare, done) = (a.label(), a.label());
    // R0 = sum of the pseudo header, R1 = bytes of transport header and data.
    a.copy(R1, R8);
    a.long_by(Op::Subtract, R1, network);
    a.copy(R0, R1);
    a.network_order(R0);
    a.load(Width::Byte, R3, R7, slot::PROTOCOL);
    a.network_order(R3);
    a.long(Op::Add, R0, R3);
    // The addresses are the flow's.
    for field in [slot::SOURCE, slot::DESTINATION] {
        for word in 0..ip.address_words() {
            a.load(Width::Word, R3, R7, field + 4 * word);
            a.long(Op::Add, R0, R3);
        }
    }
    fold(a, R0, R3);
    a.jump_if_to(R0, If::Equal, R5, bare);
    a.jump(done);
    a.place(bare);
    a.jump_if(R1, If::Above, MOST_COVERED, failed);
    a.number(R5, 0);
    a.store(Width::Double, SUM, R5);
    // First as many whole pieces as there are, where they lie. The verifier allows this process constant distances in a packet alone.
    let rest = a.label();
    for piece in 0..MOST_COVERED / PIECE {
        let from = i32::from(ip.transport) + (piece * PIECE) as i32;
        covered(a, R1, network);
        a.jump_if(R1, If::Below, (piece + 1) * PIECE, rest);
        find(a, from + PIECE as i32, failed);
        a.copy(R3, R2);
        a.long_by(Op::Add, R3, from);
        add_sum(a, PIECE);
    }
    a.place(rest);
    // Then by the bits of the length, the highest first: each piece begins behind those of higher bits.
    for bit in (0..PIECE.ilog2()).rev() {
        let (has, next) = (a.label(), a.label());
        let bytes = 1 << bit;
        covered(a, R2, network);
        a.jump_if(R2, If::Has, bytes, has);
        a.jump(next);
        a.place(has);
        a.and(R2, (MOST_COVERED & !(2 * bytes - 1)) as i32);
        a.long_by(Op::Add, R2, i32::from(ip.transport));
        a.copy(R1, R6);
        a.stack(R3, COPY);
        a.number(R4, bytes as i32);
        a.all(&[call(LOAD_BYTES)]);
        a.jump_if(R0, If::Unequal, 0, failed);
        if bytes < 4 {
            a.load(if bytes == 2 { Width::Half } else { Width::Byte }, R0, R10, COPY);
            if bytes == 1 && cfg!(target_endian = "big") {
                a.shift(R0, 8);
            }
            a.load(Width::Double, R5, R10, SUM);
            a.long(Op::Add, R0, R5);
            a.store(Width::Double, SUM, R0);
        } else {
            a.stack(R3, COPY);
            add_sum(a, bytes);
        }
        a.place(next);
    }
    a.load(Width::Double, R5, R10, SUM);
    fold(a, R5, R3);
    // As Linux does it: a zero, which to UDP would mean that there is none, is written as its other form.
    a.long_by(Op::Xor, R5, 0xffff);
    a.jump_if(R5, If::Unequal, 0, done);
    a.number(R5, 0xffff);
    a.place(done);
}

/// Adds so many bytes at R3 to the sum.
fn add_sum(a: &mut Assembler, bytes: u32) {
    a.number(R1, 0);
    a.number(R2, 0);
    a.number(R4, bytes as i32);
    a.load(Width::Double, R5, R10, SUM);
    a.all(&[call(CHECKSUM_DIFFERENCE)]);
    a.store(Width::Double, SUM, R0);
}

/// `target` = bytes of transport header and data. From memory each time: of a register the verifier would learn each bit that is looked at, and
/// follow each length by itself.
fn covered(a: &mut Assembler, target: u8, network: i32) {
    a.load(Width::Word, target, R9, decision::BYTES);
    a.long_by(Op::Subtract, target, network);
}

/// R2 = the frame, of which so many bytes are at hand.
fn find(a: &mut Assembler, bytes: i32, short: Label) {
    a.load(Width::Word, R2, R6, DATA);
    a.load(Width::Word, R3, R6, DATA_END);
    a.copy(R4, R2);
    a.long_by(Op::Add, R4, bytes);
    a.jump_if_long(R4, If::Above, R3, short);
}
