//! The filter of a socket: decides whether a packet goes by, by the [rules](super::rules), and notes the decision for this CPU.

use wire::ethernet::EtherType;

use super::super::assembler::{Assembler, If, Op, Width};
use super::super::{
    BPF_SKB_LOAD_BYTES, Instruction, R0, R1, R2, R6, R7, R8, R9, SKB_MARK, SKB_PROTOCOL, SKB_VLAN_PRESENT,
    SKB_VLAN_PROTO, SKB_VLAN_TCI,
};
use super::rules::{Ends, Line, Packet, Tagging, examine};
use super::{Memory, count};
use crate::fast_path::layout::{Fall, decision, slot};

// Offsets of fields of `struct __sk_buff`.
const SKB_LENGTH: i16 = 0;
const SKB_KIND: i16 = 4;
const SKB_IFINDEX: i16 = 40;
const SKB_GSO_SIZE: i16 = 176;

const BUFFER: Packet = Packet {
    copy: BPF_SKB_LOAD_BYTES,
    ifindex: SKB_IFINDEX,
    gso_size: Some(SKB_GSO_SIZE),
    tagging: Some(Tagging { present: SKB_VLAN_PRESENT, tci: SKB_VLAN_TCI }),
};

/// Values returned: nothing of the packet is received, or all.
const LEAVE: i32 = 0;
const KEEP: i32 = -1;

/// Line that a program is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of the line.
    pub(crate) line: usize,
    /// Packets that the worker has yet to send on, from which on it is far behind.
    pub(crate) backlog: u32,
}

/// The filter of a line's sockets, which keeps nothing that bears the punt's mark.
pub(crate) fn filter(memory: &Memory<'_>, limits: Limits, mark: u32) -> Option<Vec<Instruction>> {
    let line = Line::One(limits.line);
    let mut a = Assembler::default();
    let a = &mut a;
    let ends = Ends::new(a);
    let (leave, lost, untagged) = (a.label(), a.label(), a.label());
    a.copy(R6, R1);
    a.load(Width::Word, R2, R6, SKB_MARK);
    a.jump_if(R2, If::Equal, mark, leave);
    memory.find_cpu(a);
    // PACKET_HOST
    a.load(Width::Word, R2, R6, SKB_KIND);
    a.jump_if(R2, If::Unequal, 0, ends.unplain);
    // Linux has taken the outer tag out of the frame; behind another one the Ethernet type is that one's.
    a.load(Width::Word, R2, R6, SKB_VLAN_PRESENT);
    a.jump_if(R2, If::Equal, 0, untagged);
    a.load(Width::Word, R2, R6, SKB_VLAN_PROTO);
    a.jump_if(R2, If::Unequal, u32::from(EtherType::VLAN.0.to_be()), ends.unplain);
    a.place(untagged);
    a.load(Width::Word, R8, R6, SKB_LENGTH);
    a.load(Width::Word, R2, R6, SKB_PROTOCOL);
    examine(memory, a, BUFFER, &ends);
    memory.in_order(a, &ends);
    // Of the publication that was found, though it be retracted meanwhile.
    a.load(Width::Word, R1, R7, slot::VERSION);
    a.long_by(Op::Or, R1, 1);
    a.shift(R1, 32);
    a.load(Width::Word, R2, R7, slot::INDEX);
    a.long(Op::Or, R1, R2);
    a.store_to(Width::Double, R9, decision::PLACE, R1);
    a.end(LEAVE);

    a.place(ends.order);
    let order = memory.wait(a, line, limits.backlog, lost);
    memory.keep(a, line, Ends { order, ..ends }, |_| {});
    a.number(R0, 0);
    a.store_to(Width::Double, R9, decision::PLACE, R0);
    a.end(KEEP);
    a.place(lost);
    count(a, Fall::Overload);
    a.number(R0, 0);
    a.store_to(Width::Double, R9, decision::PLACE, R0);
    a.place(leave);
    a.end(LEAVE);
    std::mem::take(a).finish()
}
