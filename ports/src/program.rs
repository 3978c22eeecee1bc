//! BPF programs (RFC 9669) for the kernel, as instructions: a few each, so that they need neither a compiler nor a
//! loader.

use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) mod alone;
mod assembler;
pub(crate) mod fast;

use assembler::{Assembler, If, Width};
use wire::LinkKind;

/// Highest VLAN identifier, and a mask of the identifier's bits in a tag.
pub(crate) const MOST_VLAN: u16 = 0xfff;

/// One BPF instruction of eight bytes, in the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Target in the lower four bits, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// TCX ingress of a guarded interface, its port open or not: passes to Linux only packets that the punt marked, with
/// the mark cleared.
pub(crate) fn only_marked(mark: u32) -> Vec<Instruction> {
    let mut program = pass_marked(mark).to_vec();
    program.extend([set(R0, TCX_DROP), exit()]);
    program
}

/// Passes packets that have the mark, with the mark cleared. Others go on, and the packet stays in R1.
fn pass_marked(mark: u32) -> [Instruction; 6] {
    [
        load_word(R2, R1, SKB_MARK),
        jump_unless_equal(R2, mark, 4),
        set(R2, 0),
        store_word(R1, SKB_MARK, R2),
        set(R0, TCX_NEXT),
        exit(),
    ]
}

/// TCX egress of an interface that packets leave by on the fast path, which have that mark: they pass, and `otherwise` decides about
/// the rest.
pub(crate) fn unless_fast(mark: u32, otherwise: &[Instruction]) -> Vec<Instruction> {
    [&pass_marked(mark), otherwise].concat()
}

/// TCX ingress of the punt: marks packets and redirects them to the interface, as if received by it.
pub(crate) fn deliver(mark: u32, ifindex: u32) -> Vec<Instruction> {
    vec![
        set(R2, mark as i32),
        store_word(R1, SKB_MARK, R2),
        set(R1, ifindex as i32),
        set(R2, BPF_F_INGRESS),
        call(BPF_REDIRECT),
        exit(),
    ]
}

/// TCX egress of an interface whose port is not open: Linux sends nothing.
pub(crate) fn nothing() -> Vec<Instruction> {
    vec![set(R0, TCX_DROP), exit()]
}

/// TCX egress of a port: redirects packets that Linux sends to the punt. Packets that Linux forwards are marked by the
/// group bit of their link-layer source address; without Ethernet by the first bit, which is 1 in no IP version.
pub(crate) fn divert(ifindex: u32, kind: LinkKind) -> Vec<Instruction> {
    let mut program = mark_forwarded(kind);
    program.extend([set(R1, ifindex as i32), set(R2, 0), call(BPF_REDIRECT), exit()]);
    program
}

/// TCX egress of an interface created for Linux: marks as [`divert`] does, without a punt.
pub(crate) fn mark(kind: LinkKind) -> Vec<Instruction> {
    let mut program = mark_forwarded(kind);
    program.extend([set(R0, TCX_NEXT), exit()]);
    program
}

/// Bit of the first byte that marks a packet without Ethernet as forwarded by Linux.
pub(crate) const FORWARDED_BARE: u8 = 0x80;

/// Marks packets that came in by another interface before. A packet that cannot be marked is dropped.
fn mark_forwarded(kind: LinkKind) -> Vec<Instruction> {
    let (place, bit) = match kind {
        LinkKind::Ethernet => (6, 1),
        LinkKind::Ip => (0, FORWARDED_BARE.into()),
    };
    let mut a = Assembler::default();
    let (own, failed) = (a.label(), a.label());
    let marked = a.label();
    a.copy(R6, R1);
    a.load(Width::Word, R2, R1, SKB_INGRESS);
    a.jump_if(R2, If::Equal, 0, own);
    // Onto the stack, with the bit, and back; both functions say 0 when it is done.
    a.number(R2, 0);
    a.store(Width::Double, -8, R2);
    a.number(R2, place);
    a.stack(R3, -8);
    a.number(R4, 1);
    a.all(&[call(BPF_SKB_LOAD_BYTES)]);
    a.jump_if(R0, If::Unequal, 0, failed);
    a.load(Width::Byte, R2, R10, -8);
    a.or(R2, bit);
    a.store(Width::Byte, -8, R2);
    a.copy(R1, R6);
    a.number(R2, place);
    a.stack(R3, -8);
    a.number(R4, 1);
    a.number(R5, 0);
    a.all(&[call(BPF_SKB_STORE_BYTES)]);
    a.jump_if(R0, If::Equal, 0, marked);
    a.place(failed);
    a.end(TCX_DROP);
    a.place(own);
    a.place(marked);
    a.finish().unwrap_or_default()
}

/// XDP: redirects each frame to the socket of its queue, or drops it: no frame may pass by wirerate to Linux.
pub(crate) fn to_sockets(map: BorrowedFd<'_>) -> Vec<Instruction> {
    let [low, high] = set_map(R1, map);
    vec![load_word(R2, R1, XDP_QUEUE), low, high, set(R3, XDP_DROP), call(BPF_REDIRECT_MAP), exit()]
}

/// Classic program of a socket that must not receive anything yet.
pub(crate) fn keep_nothing() -> [libc::sock_filter; 1] {
    [classic(CLASSIC_RETURN, 0, 0, 0)]
}

/// Classic program of a socket that receives from a port: keeps all packets except those that the punt marked.
pub(crate) fn keep_unmarked(mark: u32) -> [libc::sock_filter; 4] {
    [
        classic(CLASSIC_LOAD_WORD, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32),
        classic(CLASSIC_JUMP_EQUAL, 1, 0, mark),
        classic(CLASSIC_RETURN, 0, 0, u32::MAX),
        classic(CLASSIC_RETURN, 0, 0, 0),
    ]
}

const CLASSIC_LOAD_WORD: u16 = 0x20;
const CLASSIC_JUMP_EQUAL: u16 = 0x15;
const CLASSIC_RETURN: u16 = 0x06;

fn classic(code: u16, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: yes, jf: no, k }
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;
const R7: u8 = 7;
const R8: u8 = 8;
const R9: u8 = 9;
/// The end of the stack.
const R10: u8 = 10;

// Offsets of fields of `struct __sk_buff`, the last of them the interface that a forwarded packet came in by, else 0.
const SKB_PROTOCOL: i16 = 16;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_VLAN_TCI: i16 = 24;
const SKB_VLAN_PROTO: i16 = 28;
const SKB_INGRESS: i16 = 36;
/// Offset of `mark` in `struct __sk_buff`.
const SKB_MARK: i16 = 8;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const XDP_QUEUE: i16 = 16;
const XDP_DROP: i32 = 1;
const BPF_REDIRECT_MAP: i32 = 51;
const BPF_SKB_STORE_BYTES: i32 = 9;
const BPF_SKB_LOAD_BYTES: i32 = 26;
const BPF_TAIL_CALL: i32 = 12;
const BPF_EXIT: u8 = 0x95;
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
const BPF_F_INGRESS: i32 = 1;
const BPF_REDIRECT: i32 = 23;

/// `target = *(u32 *)(source + offset)`
fn load_word(target: u8, source: u8, offset: i16) -> Instruction {
    Instruction { code: 0x61, registers: target | source << 4, offset, immediate: 0 }
}

/// `*(u32 *)(target + offset) = source`
fn store_word(target: u8, offset: i16, source: u8) -> Instruction {
    Instruction { code: 0x63, registers: target | source << 4, offset, immediate: 0 }
}

/// `target = value`, in 32 bits.
fn set(target: u8, value: i32) -> Instruction {
    Instruction { code: 0xb4, registers: target, offset: 0, immediate: value }
}

/// `target = map`, in two instructions; the loader fills in the map's address.
fn set_map(target: u8, map: BorrowedFd<'_>) -> [Instruction; 2] {
    const BPF_PSEUDO_MAP_FD: u8 = 1;
    let registers = target | BPF_PSEUDO_MAP_FD << 4;
    let low = Instruction { code: 0x18, registers, offset: 0, immediate: map.as_raw_fd() };
    [low, Instruction { code: 0, registers: 0, offset: 0, immediate: 0 }]
}

/// Skips `instructions` unless the lower 32 bits of `register` are `value`.
fn jump_unless_equal(register: u8, value: u32, instructions: i16) -> Instruction {
    Instruction { code: 0x56, registers: register, offset: instructions, immediate: value as i32 }
}

/// Calls a function of the kernel, by its number in linux/bpf.h.
fn call(function: i32) -> Instruction {
    Instruction { code: 0x85, registers: 0, offset: 0, immediate: function }
}

fn exit() -> Instruction {
    Instruction { code: BPF_EXIT, registers: 0, offset: 0, immediate: 0 }
}
