//! Programs of a guard for the time in which no process governs it: the machine forwards nothing, and receives only
//! answers to its own packets and packets that rules accept.
//!
//! A packet is passed if its destination is one of the machine's own addresses, or local to the link, and it is
//! - ARP, neighbour discovery or a router advertisement;
//! - an answer of a DHCP server, or a DHCPv6 server;
//! - TCP of a connection that a socket of this machine has: the kernel looks the socket up;
//! - any packet whose inverse the machine has sent within [`ANSWER_SECONDS`], by a table that the egress program fills;
//! - an ICMP error: Linux itself looks up the packet that it quotes;
//! - or accepted by the first rule that matches. Of TCP only segments that may open a connection (SYN) reach the rules,
//!   so that packets of a connection that the gateway translates are not answered with a reset.
//!
//! Fragments and IPv6 extension headers are refused, as their ports cannot be seen.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::assembler::{Assembler, If, Label, Width};
use super::{
    BPF_TAIL_CALL, Instruction, MOST_VLAN, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, SKB_INGRESS, SKB_PROTOCOL,
    SKB_VLAN_PRESENT, SKB_VLAN_TCI, TCX_DROP, TCX_NEXT, call, set_map,
};

/// Rules for the machine while no process governs its guards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alone {
    /// Addresses of the machine.
    pub own: Vec<IpAddr>,
    /// Rules for packets to the machine; the first match decides. A packet without a match is dropped.
    pub rules: Vec<SelfRule>,
    /// VLANs of the interface that have a Linux interface with a guard of its own.
    pub vlans: Vec<u16>,
}

/// A rule for packets to the machine itself. An empty condition matches all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfRule {
    /// Fate of a matching packet.
    pub fate: Fate,
    /// The IP version.
    pub version: Option<Version>,
    /// Source addresses, from first to last.
    pub sources: Vec<(IpAddr, IpAddr)>,
    /// Destination addresses, from first to last.
    pub destinations: Vec<(IpAddr, IpAddr)>,
    /// Protocols, by their numbers.
    pub protocols: Vec<u8>,
    /// Source ports, from first to last.
    pub sports: Vec<(u16, u16)>,
    /// Destination ports, from first to last.
    pub dports: Vec<(u16, u16)>,
    /// ICMP types, with their codes where those matter.
    pub icmp: Vec<(u8, Option<u8>)>,
    /// Limit on the rate of packets. Packets above it are dropped; those within it are accepted, or meet the next rules where the rule drops.
    pub pace: Option<Pace>,
}

/// Least time between two packets that a rule accepts or lets go on: a token bucket that holds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval, in nanoseconds.
    pub interval: u64,
    /// Packets that share the bucket.
    pub scope: Scope,
}

/// Packets that share a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All packets that match the rule.
    Rule,
    /// Packets of one source address.
    Source,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Passed to Linux.
    Accept,
    /// Dropped.
    #[default]
    Drop,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Lifetime of an expected answer, in seconds.
pub const ANSWER_SECONDS: u64 = 120;

/// Bytes of the key of the table of expected answers.
pub(crate) const ANSWER_KEY: u32 = 40;

/// Most instructions of a program, limited by the length of a jump over all of them.
const MOST: usize = 30_000;

// The stack. What is compared with, looked up and handed to the kernel lies at these places.
/// Key of an answer: remote address, local address, remote port, local port, protocol.
const KEY: i16 = -40;
const THEIRS: i16 = KEY;
const OURS: i16 = KEY + 16;
const THEIR_PORT: i16 = KEY + 32;
const OUR_PORT: i16 = KEY + 34;
const KEY_PROTOCOL: i16 = KEY + 36;
/// The IP header.
const HEADER: i16 = -80;
/// The first bytes after the IP header.
const INNER: i16 = -96;
/// Tuple for the kernel's socket look-up.
const TUPLE: i16 = -136;
const MOMENT: i16 = -144;
/// Key of a token bucket: source address, or zero; rule; and a protocol that no answer has.
const PACE_KEY: i16 = -184;
const LOWEST: i16 = PACE_KEY;

// Functions of the kernel.
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const NANOSECONDS: i32 = 5;
const LOAD_RELATIVE: i32 = 68;
const SOCKET_RELEASE: i32 = 86;
const FIND_TCP_SOCKET: i32 = 99;

const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMP: u32 = 1;
const ICMP6: u32 = 58;
/// Protocols whose first four bytes are ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u32; 5] = [TCP, UDP, 33, 132, 136];

/// TCX ingress: `array`'s program decides while a process has it open, `alone` afterwards. `None` if the rules exceed
/// the length of a program.
pub(crate) fn ingress(
    array: BorrowedFd<'_>,
    answers: BorrowedFd<'_>,
    alone: &Alone,
) -> Option<Vec<Instruction>> {
    let mut a = Assembler::default();
    let (drop, pass) = begin(&mut a, array);
    // A tagged frame is its VLAN interface's, which has a guard of its own if it is one of these.
    let untagged = a.label();
    a.load(Width::Word, R2, R6, SKB_VLAN_PRESENT);
    a.jump_if(R2, If::Equal, 0, untagged);
    a.load(Width::Word, R2, R6, SKB_VLAN_TCI);
    a.and(R2, MOST_VLAN.into());
    for vlan in &alone.vlans {
        a.jump_if(R2, If::Equal, (*vlan).into(), pass);
    }
    a.jump(drop);
    a.place(untagged);
    a.load(Width::Word, R2, R6, SKB_PROTOCOL);
    a.jump_if(R2, If::Equal, u32::from(0x0806_u16.to_be()), pass);
    parse(&mut a, drop, drop, Way::In);
    own(&mut a, alone, drop, pass);
    answered(&mut a, answers, drop, pass);
    let mut last = Reach::More;
    for (number, rule) in (0..).zip(&alone.rules) {
        if a.len() > MOST {
            return None;
        }
        last = decide(&mut a, answers, number, rule);
        if last == Reach::Nothing {
            break;
        }
    }
    // The kernel takes no program with instructions that nothing can reach.
    if last == Reach::More {
        a.jump(drop);
    }
    a.place(drop);
    a.end(TCX_DROP);
    a.place(pass);
    a.end(TCX_NEXT);
    a.finish()
}

/// TCX egress: `array`'s program decides while a process has it open. Afterwards packets that the machine forwards are
/// dropped, and for packets of its own the expected answer is recorded.
pub(crate) fn egress(array: BorrowedFd<'_>, answers: BorrowedFd<'_>) -> Option<Vec<Instruction>> {
    let mut a = Assembler::default();
    let (drop, pass) = begin(&mut a, array);
    a.load(Width::Word, R2, R6, SKB_INGRESS);
    a.jump_if(R2, If::Unequal, 0, drop);
    // What is no IP packet, or a fragment of one, has no answer that is looked for.
    parse(&mut a, pass, pass, Way::Out);
    a.jump_if(R8, If::Equal, TCP, pass);
    a.all(&[call(NANOSECONDS)]);
    a.store(Width::Double, MOMENT, R0);
    note_moment(&mut a, answers, KEY);
    a.jump(pass);
    a.place(drop);
    a.end(TCX_DROP);
    a.place(pass);
    a.end(TCX_NEXT);
    a.finish()
}

/// Stores the time on the stack in the table, under the key on the stack.
fn note_moment(a: &mut Assembler, answers: BorrowedFd<'_>, key: i16) {
    a.all(&set_map(R1, answers));
    a.stack(R2, key);
    a.stack(R3, MOMENT);
    a.number(R4, 0);
    a.all(&[call(MAP_UPDATE)]);
}

/// Calls the program of the array, which does not return. Afterwards R6 is the packet, and the stack is zero.
fn begin(a: &mut Assembler, array: BorrowedFd<'_>) -> (Label, Label) {
    let (drop, pass) = (a.label(), a.label());
    a.copy(R6, R1);
    a.all(&set_map(R2, array));
    a.number(R3, 0);
    a.all(&[call(BPF_TAIL_CALL)]);
    a.number(R0, 0);
    for at in (LOWEST..0).step_by(8) {
        a.store(Width::Double, at, R0);
    }
    (drop, pass)
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Reads headers: afterwards R9 is the IP version, R8 the protocol, R7 the offset of the transport header, and the key
/// is that of the connection, seen from this machine. Jumps to `other` if the packet is not IP, to `odd` if its ports
/// cannot be seen.
fn parse(a: &mut Assembler, other: Label, odd: Label, way: Way) {
    let (v6, inner, done) = (a.label(), a.label(), a.label());
    let (source, destination) = match way {
        Way::In => (THEIRS, OURS),
        Way::Out => (OURS, THEIRS),
    };
    a.load(Width::Word, R2, R6, SKB_PROTOCOL);
    a.jump_if(R2, If::Equal, u32::from(0x86dd_u16.to_be()), v6);
    a.jump_if(R2, If::Unequal, u32::from(0x0800_u16.to_be()), other);
    load_header(a, None, HEADER, 20, odd);
    a.number(R9, 4);
    a.load_network(Width::Half, R2, HEADER + 6);
    a.jump_if(R2, If::Has, 0x3fff, odd);
    a.load(Width::Byte, R7, super::R10, HEADER);
    a.and(R7, 0x0f);
    a.shift(R7, 2);
    a.load(Width::Byte, R8, super::R10, HEADER + 9);
    for (from, to) in [(HEADER + 12, source), (HEADER + 16, destination)] {
        a.load(Width::Word, R2, super::R10, from);
        a.store(Width::Word, to, R2);
    }
    a.jump(inner);
    a.place(v6);
    load_header(a, None, HEADER, 40, odd);
    a.number(R9, 6);
    a.number(R7, 40);
    a.load(Width::Byte, R8, super::R10, HEADER + 6);
    for (from, to) in [(HEADER + 8, source), (HEADER + 24, destination)] {
        for half in [0, 8] {
            a.load(Width::Double, R2, super::R10, from + half);
            a.store(Width::Double, to + half, R2);
        }
    }
    a.place(inner);
    a.store(Width::Byte, KEY_PROTOCOL, R8);
    let ports = a.label();
    for protocol in WITH_PORTS {
        a.jump_if(R8, If::Equal, protocol, ports);
    }
    let icmp = a.label();
    a.jump_if(R8, If::Equal, ICMP, icmp);
    a.jump_if(R8, If::Unequal, ICMP6, done);
    a.place(icmp);
    load_header(a, Some(R7), INNER, 8, odd);
    // An echo and its answer have the same identifier.
    a.load(Width::Half, R2, super::R10, INNER + 4);
    a.store(Width::Half, OUR_PORT, R2);
    a.jump(done);
    a.place(ports);
    let tcp = a.label();
    a.jump_if(R8, If::Equal, TCP, tcp);
    load_header(a, Some(R7), INNER, 4, odd);
    let read = a.label();
    a.jump(read);
    a.place(tcp);
    load_header(a, Some(R7), INNER, 16, odd);
    a.place(read);
    let (sport, dport) = match way {
        Way::In => (THEIR_PORT, OUR_PORT),
        Way::Out => (OUR_PORT, THEIR_PORT),
    };
    for (from, to) in [(INNER, sport), (INNER + 2, dport)] {
        a.load(Width::Half, R2, super::R10, from);
        a.store(Width::Half, to, R2);
    }
    a.place(done);
}

/// Copies bytes to the stack, relative to the IP header.
fn load_header(a: &mut Assembler, from: Option<u8>, to: i16, bytes: i32, short: Label) {
    a.copy(R1, R6);
    match from {
        Some(register) => a.copy(R2, register),
        None => a.number(R2, 0),
    }
    a.stack(R3, to);
    a.number(R4, bytes);
    // From the network header on (BPF_HDR_START_NET).
    a.number(R5, 1);
    a.all(&[call(LOAD_RELATIVE)]);
    a.jump_if(R0, If::Unequal, 0, short);
}

/// Continues only with packets for this machine or local to its link, which Linux therefore does not forward.
fn own(a: &mut Assembler, alone: &Alone, drop: Label, pass: Label) {
    let (v6, is_own) = (a.label(), a.label());
    a.jump_if(R9, If::Equal, 6, v6);
    a.load_network(Width::Word, R2, OURS);
    let broadcast = a.label();
    a.jump_if(R2, If::Equal, u32::MAX, broadcast);
    for address in &alone.own {
        if let IpAddr::V4(address) = address {
            a.jump_if(R2, If::Equal, (*address).into(), is_own);
        }
    }
    // 224.0.0.0/24
    a.shift_down(R2, 8);
    a.jump_if(R2, If::Unequal, 0x00e0_0000, drop);
    a.jump(is_own);
    a.place(broadcast);
    dhcp(a, [67, 68], pass);
    a.jump(is_own);
    a.place(v6);
    a.load_network(Width::Half, R2, OURS);
    // ff01::/16 and ff02::/16, whatever their flags.
    a.and(R2, 0xff0f);
    a.jump_if(R2, If::Equal, 0xff02, is_own);
    a.jump_if(R2, If::Equal, 0xff01, is_own);
    for address in &alone.own {
        if let IpAddr::V6(address) = address {
            let next = a.label();
            for (place, word) in address.octets().chunks_exact(4).enumerate() {
                a.load_network(Width::Word, R2, OURS + 4 * place as i16);
                a.jump_if(
                    R2,
                    If::Unequal,
                    word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
                    next,
                );
            }
            a.jump(is_own);
            a.place(next);
        }
    }
    a.jump(drop);
    a.place(is_own);
    dhcp(a, [67, 68], pass);
    dhcp(a, [547, 546], pass);
}

/// Passes packets of a DHCP server to a client.
fn dhcp(a: &mut Assembler, [server, client]: [u32; 2], pass: Label) {
    let other = a.label();
    a.jump_if(R8, If::Unequal, UDP, other);
    a.load_network(Width::Half, R2, THEIR_PORT);
    a.jump_if(R2, If::Unequal, server, other);
    a.load_network(Width::Half, R2, OUR_PORT);
    a.jump_if(R2, If::Equal, client, pass);
    a.place(other);
}

/// Passes packets that need no rule: answers, and packets of existing connections.
fn answered(a: &mut Assembler, answers: BorrowedFd<'_>, drop: Label, pass: Label) {
    let (rules, tcp, table, icmp, icmp6) = (a.label(), a.label(), a.label(), a.label(), a.label());
    a.jump_if(R8, If::Equal, TCP, tcp);
    a.jump_if(R8, If::Equal, ICMP, icmp);
    a.jump_if(R8, If::Equal, ICMP6, icmp6);
    a.jump(table);
    a.place(icmp);
    a.load(Width::Byte, R2, super::R10, INNER);
    // Destination unreachable, time exceeded, parameter problem.
    for kind in [3, 11, 12] {
        a.jump_if(R2, If::Equal, kind, pass);
    }
    // Of the rest, an echo reply may be an answer.
    a.jump_if(R2, If::Unequal, 0, rules);
    a.jump(table);
    a.place(icmp6);
    a.load(Width::Byte, R2, super::R10, INNER);
    // Errors; then router and neighbour solicitations and advertisements, which come from the link itself (RFC 4861, 6.1, 7.1).
    a.jump_if(R2, If::Below, 5, pass);
    let other = a.label();
    a.jump_if(R2, If::Below, 133, other);
    a.jump_if(R2, If::Above, 136, other);
    a.load(Width::Byte, R3, super::R10, HEADER + 7);
    a.jump_if(R3, If::Equal, 255, pass);
    a.jump(drop);
    a.place(other);
    a.jump_if(R2, If::Unequal, 129, rules);
    a.place(table);
    a.all(&set_map(R1, answers));
    a.stack(R2, KEY);
    a.all(&[call(MAP_LOOKUP)]);
    a.jump_if_null(R0, rules);
    a.load(Width::Double, R7, R0, 0);
    a.all(&[call(NANOSECONDS)]);
    a.subtract(R0, R7);
    // In units of 2^30 ns, so that it is a number of 32 bits.
    a.shift_down(R0, 30);
    a.jump_if(R0, If::Below, ANSWER_SECONDS as u32, pass);
    a.jump(rules);
    a.place(tcp);
    // struct bpf_sock_tuple: source, destination, their ports.
    let (v6, ask) = (a.label(), a.label());
    a.jump_if(R9, If::Equal, 6, v6);
    for (from, to) in [(THEIRS, 0), (OURS, 4), (THEIR_PORT, 8)] {
        a.load(Width::Word, R2, super::R10, from);
        a.store(Width::Word, TUPLE + to, R2);
    }
    a.number(R3, 12);
    ask_for_socket(a);
    a.jump(ask);
    a.place(v6);
    for (from, to) in [(THEIRS, 0), (THEIRS + 8, 8), (OURS, 16), (OURS + 8, 24)] {
        for half in [0, 4] {
            a.load(Width::Word, R2, super::R10, from + half);
            a.store(Width::Word, TUPLE + to + half, R2);
        }
    }
    a.load(Width::Word, R2, super::R10, THEIR_PORT);
    a.store(Width::Word, TUPLE + 32, R2);
    a.number(R3, 36);
    ask_for_socket(a);
    a.place(ask);
    // What has a socket of its own passes; of what has none, or one that listens, only a SYN goes on.
    a.jump_if(R7, If::Equal, HAS_SOCKET, pass);
    a.load(Width::Byte, R2, super::R10, INNER + 13);
    a.and(R2, 0x17);
    a.jump_if(R2, If::Unequal, 0x02, drop);
    a.place(rules);
}

const HAS_SOCKET: u32 = 1;

/// Looks up the socket of the tuple, whose length is in R3: R7 is non-zero if the connection has a socket of its own.
fn ask_for_socket(a: &mut Assembler) {
    /// `TCP_LISTEN`, the value of the state field in `struct bpf_sock`.
    const LISTENING: u32 = 10;
    const STATE: i16 = 72;
    let (none, listens) = (a.label(), a.label());
    a.copy(R1, R6);
    a.stack(R2, TUPLE);
    // This network namespace (BPF_F_CURRENT_NETNS).
    a.number(R4, -1);
    a.number(R5, 0);
    a.all(&[call(FIND_TCP_SOCKET)]);
    a.number(R7, 0);
    a.jump_if_null(R0, none);
    a.load(Width::Word, R2, R0, STATE);
    a.jump_if(R2, If::Equal, LISTENING, listens);
    a.number(R7, HAS_SOCKET as i32);
    a.place(listens);
    a.copy(R1, R0);
    a.all(&[call(SOCKET_RELEASE)]);
    a.place(none);
}

/// Ends with a rule's fate if the rule matches. Each rule has ends of its own, so that no jump is longer than the rule.
fn decide(a: &mut Assembler, answers: BorrowedFd<'_>, number: i32, rule: &SelfRule) -> Reach {
    let next = a.label();
    let begin = a.len();
    if let Some(version) = rule.version {
        a.jump_if(R9, If::Unequal, if version == Version::V4 { 4 } else { 6 }, next);
    }
    any_of(a, &rule.protocols, next, |a, protocol, yes| {
        a.jump_if(R8, If::Equal, (*protocol).into(), yes);
    });
    if !rule.sports.is_empty() || !rule.dports.is_empty() {
        any_of(a, &WITH_PORTS, next, |a, protocol, yes| a.jump_if(R8, If::Equal, *protocol, yes));
    }
    for (ranges, at) in [(&rule.sports, THEIR_PORT), (&rule.dports, OUR_PORT)] {
        if !ranges.is_empty() {
            a.load_network(Width::Half, R2, at);
        }
        any_of(a, ranges, next, |a, (first, last), yes| {
            let no = a.label();
            a.jump_if(R2, If::Below, (*first).into(), no);
            a.jump_if(R2, If::Above, (*last).into(), no);
            a.jump(yes);
            a.place(no);
        });
    }
    if !rule.icmp.is_empty() {
        any_of(a, &[ICMP, ICMP6], next, |a, protocol, yes| a.jump_if(R8, If::Equal, *protocol, yes));
        a.load(Width::Byte, R2, super::R10, INNER);
        a.load(Width::Byte, R3, super::R10, INNER + 1);
    }
    any_of(a, &rule.icmp, next, |a, (kind, code), yes| {
        let no = a.label();
        a.jump_if(R2, If::Unequal, (*kind).into(), no);
        if let Some(code) = code {
            a.jump_if(R3, If::Unequal, (*code).into(), no);
        }
        a.jump(yes);
        a.place(no);
    });
    for (ranges, at) in [(&rule.sources, THEIRS), (&rule.destinations, OURS)] {
        any_of(a, ranges, next, |a, (first, last), yes| lies_in(a, at, *first, *last, yes));
    }
    let reach = if a.len() == begin { Reach::Nothing } else { Reach::More };
    if let Some(pace) = rule.pace {
        let (due, late) = (a.label(), a.label());
        for (half, source) in [(0, THEIRS), (8, THEIRS + 8)] {
            match pace.scope {
                Scope::Source => a.load(Width::Double, R2, super::R10, source),
                Scope::Rule => a.number(R2, 0),
            }
            a.store(Width::Double, PACE_KEY + half, R2);
        }
        a.number(R2, number);
        a.store(Width::Word, PACE_KEY + 32, R2);
        a.number(R2, 0xff);
        a.store(Width::Byte, PACE_KEY + 36, R2);
        a.all(&[call(NANOSECONDS)]);
        a.store(Width::Double, MOMENT, R0);
        a.all(&set_map(R1, answers));
        a.stack(R2, PACE_KEY);
        a.all(&[call(MAP_LOOKUP)]);
        a.jump_if_null(R0, due);
        a.load(Width::Double, R3, R0, 0);
        a.load(Width::Double, R2, super::R10, MOMENT);
        a.subtract(R2, R3);
        // In units of 2^20 ns, about a millisecond, so that it is a number of 32 bits.
        a.shift_down(R2, 20);
        a.jump_if(R2, If::Above, u32::try_from(pace.interval >> 20).unwrap_or(u32::MAX), due);
        a.jump(late);
        a.place(due);
        note_moment(a, answers, PACE_KEY);
        match rule.fate {
            Fate::Accept => a.end(TCX_NEXT),
            Fate::Drop => a.jump(next),
        }
        a.place(late);
        a.end(TCX_DROP);
        a.place(next);
        return if rule.fate == Fate::Drop { Reach::More } else { reach };
    }
    a.end(match rule.fate {
        Fate::Accept => TCX_NEXT,
        Fate::Drop => TCX_DROP,
    });
    a.place(next);
    reach
}

/// Packets that a rule leaves for the rules after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    More,
    Nothing,
}

/// Continues if one of the conditions holds, or there is none; jumps to `no` otherwise.
fn any_of<T>(a: &mut Assembler, items: &[T], no: Label, mut test: impl FnMut(&mut Assembler, &T, Label)) {
    if items.is_empty() {
        return;
    }
    let yes = a.label();
    for item in items {
        test(a, item, yes);
    }
    a.jump(no);
    a.place(yes);
}

/// Jumps to `yes` if the address on the stack lies between `first` and `last`.
fn lies_in(a: &mut Assembler, at: i16, first: IpAddr, last: IpAddr, yes: Label) {
    let no = a.label();
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            a.jump_if(R9, If::Unequal, 4, no);
            a.load_network(Width::Word, R2, at);
            a.jump_if(R2, If::Below, first.into(), no);
            a.jump_if(R2, If::Above, last.into(), no);
            a.jump(yes);
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            a.jump_if(R9, If::Unequal, 6, no);
            let words = |address: std::net::Ipv6Addr| {
                let bits = u128::from(address);
                [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
            };
            for (bound, beyond, within) in
                [(words(first), If::Below, If::Above), (words(last), If::Above, If::Below)]
            {
                let holds = a.label();
                for (place, word) in bound.iter().enumerate() {
                    a.load_network(Width::Word, R2, at + 4 * place as i16);
                    a.jump_if(R2, beyond, *word, no);
                    a.jump_if(R2, within, *word, holds);
                }
                a.place(holds);
            }
            a.jump(yes);
        }
        _ => {}
    }
    a.place(no);
}

#[cfg(test)]
mod tests;
