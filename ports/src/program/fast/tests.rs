#![allow(clippy::unwrap_used)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::sample;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use wire::build::{self, Tcp};
use wire::ethernet::EtherType;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::tcp::Flags;
use wire::vlan::{Priority, Tag};
use wire::{Dscp, DscpSet, Nanos};

use super::*;
use crate::fast_path::layout;
use crate::fast_path::{Account, Entry, FallThrough, FastPath, Place, Tuple, Window};
use crate::program::{TCX_DROP, TCX_NEXT, XDP_DROP};
use crate::sys::bpf::tests::{Context, confine, run_loaded, stay_on_this_cpu, verify};
use crate::sys::bpf::{self, Hook};
use crate::sys::socket;
use flow::{both, flows, tuple};
use oracle::{Fate, Oracle, Side};
use trial::tagged;

mod flow;
mod loading;
mod oracle;

const MARK: u32 = 0x7772;
const LINE: usize = 7;
const BACKLOG: u32 = 12;
const TCX_REDIRECT: i32 = 7;
const XDP_REDIRECT: i32 = 4;

/// A fast path; `None`, with a message, if the kernel does not let us.
fn fast_path() -> Option<FastPath> {
    match FastPath::open(16, [3, 4], MARK) {
        Ok(path) => Some(path),
        Err(error) if error.error.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIPPED: no programs may be loaded here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Programs of a kind and what they share, beside the oracle.
struct Bench {
    path: FastPath,
    at: At,
    /// The filter, loaded for a hook at which a test run gives it the frame as a packet socket does; or the program at XDP.
    program: OwnedFd,
    /// The program at TCX.
    action: OwnedFd,
    /// Socket that the program at XDP redirects to.
    socket: Option<OwnedFd>,
    oracle: Oracle,
    places: Vec<Option<Place>>,
}

/// Hook of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Of a socket, and TCX.
    Buffer,
    Xdp(Checksums),
}

const HOOKS: [At; 3] = [At::Buffer, At::Xdp(Checksums::Complete), At::Xdp(Checksums::Bare)];

/// The program at XDP of the loopback interface, and a socket for its queue.
fn front(path: &FastPath, first_line: usize, checksums: Checksums) -> (OwnedFd, OwnedFd) {
    let map = bpf::socket_map(1).unwrap();
    let socket = socket::new(libc::AF_XDP, libc::SOCK_RAW, 0).unwrap();
    socket::set(socket.as_fd(), libc::SOL_XDP, libc::XDP_RX_RING, 64_u32).unwrap();
    bpf::map_socket(map.as_fd(), 0, socket.as_fd()).unwrap();
    let (sockets, mac) = (map.as_fd(), Mac([0; 6]));
    let front = Front { sockets, queues: 1, first_line, backlog: BACKLOG, mac, checksums };
    (bpf::load(Hook::Xdp, &xdp(&path.programs(), &front).unwrap()).unwrap(), socket)
}

impl Bench {
    fn new(at: At) -> Option<Bench> {
        let path = fast_path()?;
        stay_on_this_cpu();
        let load = |program: Vec<_>| bpf::load(Hook::TcxIngress, &tagged(program)).unwrap();
        let action = load(action(&path.programs(), MARK).unwrap());
        let (program, socket) = match at {
            At::Buffer => {
                let limits = Limits { line: LINE, backlog: BACKLOG };
                (load(filter(&path.programs(), limits, MARK).unwrap()), None)
            }
            At::Xdp(checksums) => {
                let (program, socket) = front(&path, LINE, checksums);
                (program, Some(socket))
            }
        };
        let sides: Vec<Side> = flows()
            .into_iter()
            .flatten()
            .map(|entry| Side {
                entry,
                is_published: false,
                last: None,
                window: entry.window,
                account: Account::default(),
                waited: 0,
            })
            .collect();
        let falls = FallThrough::default();
        let places = vec![None; sides.len()];
        let checksums = if let At::Xdp(checksums) = at { checksums } else { Checksums::Complete };
        let has_tags = at == At::Buffer;
        let oracle = Oracle { sides, passed: 0, taken: 0, falls, mark: MARK, checksums, has_tags };
        let mut bench = Bench { path, at, program, action, socket, oracle, places };
        for flow in 0..flows().len() {
            bench.publish(flow);
        }
        Some(bench)
    }

    fn publish(&mut self, flow: usize) {
        self.publish_as(flow, flows()[flow]);
    }

    fn publish_as(&mut self, flow: usize, entries: [Entry; 2]) {
        let (first, second) = (2 * flow, 2 * flow + 1);
        let published = self.path.publish(&entries);
        assert_eq!(published.is_some(), !self.oracle.sides[first].is_published);
        let Some(places) = published else { return };
        for ((at, place), entry) in [(first, places[0]), (second, places[1])].into_iter().zip(entries) {
            if let Some(old) = self.places[at].replace(place) {
                self.path.retract(old);
                self.path.free(old);
            }
            let side = &mut self.oracle.sides[at];
            *side = Side {
                is_published: true,
                last: None,
                window: entry.window,
                account: Account::default(),
                waited: 0,
                entry,
            };
        }
    }

    fn retract(&mut self, flow: usize) {
        for at in [2 * flow, 2 * flow + 1] {
            self.oracle.sides[at].is_published = false;
            if let Some(place) = self.places[at].take() {
                self.path.retract(place);
                self.path.free(place);
            }
        }
    }

    fn publish_anew(&mut self, flow: usize) {
        self.retract(flow);
        self.publish(flow);
    }

    /// The worker has sent on all that it got.
    fn settle(&mut self) {
        self.oracle.taken = self.oracle.passed;
        self.path.table().set_taken(LINE, self.oracle.taken);
    }

    /// Sends a frame through the programs; panics if anything is not as the oracle has it.
    fn packet(&mut self, frame: &[u8], context: Context) -> Fate {
        let before = self.oracle.passed;
        let (fate, found) = match self.at {
            At::Buffer => (self.oracle.packet(frame, context), self.by_two(frame, context)),
            // There are neither marks nor packets of many segments.
            At::Xdp(_) => (self.oracle.packet(frame, Context::default()), self.by_one(frame, before)),
        };
        assert_eq!(found, Some(fate.clone()));
        self.compare();
        fate
    }

    /// Fate by the filter and the program at TCX; none where they contradict each other.
    fn by_two(&self, frame: &[u8], context: Context) -> Option<Fate> {
        let decided = run_loaded(self.program.as_fd(), frame, Some(context))
            .unwrap_or_else(|error| panic!("{error} {} {context:?}", frame.len()));
        let done = run_loaded(self.action.as_fd(), frame, Some(context)).unwrap();
        assert_eq!((&decided.frame[..], decided.mark), (frame, context.mark));
        match (decided.value, done.value) {
            (0, TCX_NEXT) if done.mark == 0 && done.frame == frame => Some(Fate::Delivered),
            (-1, TCX_DROP) if done.mark == context.mark && done.frame == frame => Some(Fate::Kept),
            (0, TCX_DROP) if done.mark == context.mark && done.frame == frame => Some(Fate::Lost),
            (0, TCX_REDIRECT) if done.mark == fast_mark(MARK) => Some(Fate::Gone(done.frame)),
            _ => None,
        }
    }

    /// Fate by the program at XDP, before which so many packets were kept.
    fn by_one(&self, frame: &[u8], before: u64) -> Option<Fate> {
        let done = run_loaded(self.program.as_fd(), frame, None).unwrap();
        match (done.value, self.path.table().passed(LINE) - before) {
            (XDP_REDIRECT, 1) if done.frame == frame => Some(Fate::Kept),
            (XDP_DROP, 0) if done.frame == frame => Some(Fate::Lost),
            (XDP_REDIRECT, 0) => Some(Fate::Gone(done.frame)),
            _ => None,
        }
    }

    fn compare(&self) {
        assert_eq!(self.path.table().passed(LINE), self.oracle.passed);
        assert_eq!(self.path.fall_through(), self.oracle.falls);
        for (side, place) in self.oracle.sides.iter().zip(&self.places) {
            let Some(place) = *place else { continue };
            assert_eq!(self.path.is_live(place), side.is_published);
            let account = self.path.account(place);
            assert_eq!(account.seen == Nanos(0), account.packets == 0);
            assert_eq!(Account { seen: Nanos(0), ..account }, side.account);
            assert_eq!(self.path.window(place), side.window);
            assert_eq!(self.path.table().last(place), side.last.map(|last| (LINE, last)));
        }
    }
}

/// A frame of a flow, and all that may be odd about it.
#[derive(Clone, Debug)]
struct Shot {
    side: usize,
    data: usize,
    ttl: u8,
    ds_field: u8,
    flags: u8,
    /// Distance of the sequence number from the highest sent, and of the acknowledgement from the other side's.
    seq: i32,
    ack: i32,
    window: u16,
    options: usize,
    padding: usize,
    oddity: Oddity,
    gso_size: u32,
    /// Priority in the tag of a VLAN; with an odd number a tag of no VLAN too.
    priority: u8,
}

#[derive(Clone, Debug)]
enum Oddity {
    None,
    /// A byte of the frame is another.
    Byte(usize, u8),
    /// The frame ends early.
    Cut(usize),
    /// A length field says more or less: IPv4's total, IPv6's payload, or UDP's.
    Length(i16),
    UdpLength(i16),
    Fragment(u16),
    IpOptions,
    Other(u16),
    ForAnother,
    Marked(u32),
    WrongChecksum(u16),
    NoChecksum,
    /// The sum of the pseudo header alone.
    BareChecksum,
    Tag(Tag),
}

impl Shot {
    fn frame(&self, oracle: &Oracle) -> (Vec<u8>, Context) {
        let (own, peer) = (&oracle.sides[self.side], &oracle.sides[self.side ^ 1]);
        let Tuple { source, destination, sport, dport } = own.entry.from;
        let data: Vec<u8> = (0..self.data).map(|at| at as u8 ^ self.ttl).collect();
        let mut options = [1_u8; 40];
        options[0] = self.ds_field;
        let packet = build::ethernet(Mac([2; 6]), Mac([0; 6]));
        let packet = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => packet.ipv4(source, destination),
            (IpAddr::V6(source), IpAddr::V6(destination)) => packet.ipv6(source, destination),
            _ => panic!("of two versions"),
        };
        let packet = packet.ttl(self.ttl).ds_field(self.ds_field).id(0x1234).flow_label(0xabcde);
        let packet = match self.oddity {
            Oddity::IpOptions if source.is_ipv4() => packet.ip_options(&[1, 1, 1, 1]),
            _ => packet,
        };
        let number = |window: Option<Window>, offset: i32| {
            window.map_or(0, |window| window.end).wrapping_add_signed(offset)
        };
        let packet = match own.entry.protocol {
            Protocol::TCP => packet.tcp(Tcp {
                sport,
                dport,
                seq: number(own.window, self.seq),
                ack: number(peer.window, self.ack),
                flags: Flags(self.flags),
                window: self.window,
                options: &options[..self.options * 4],
            }),
            _ => packet.udp(sport, dport),
        };
        let mut frame = packet.payload(&data).to_vec();
        let at = if source.is_ipv4() { 34 } else { 54 };
        let checksum = at + if own.entry.protocol == Protocol::TCP { 16 } else { 6 };
        let priority = Priority::all().nth(self.priority.into()).unwrap();
        let is_tagged = own.entry.vlan != 0 || self.priority % 2 != 0;
        let tag = is_tagged.then(|| Tag::customer(own.entry.vlan).with_priority(priority));
        let mut context = Context { mark: 0, gso_size: self.gso_size, tag };
        let mut add = |at: usize, more: i16| {
            let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
            frame[at..at + 2].copy_from_slice(&old.wrapping_add_signed(more).to_be_bytes());
        };
        match self.oddity {
            Oddity::Length(more) if source.is_ipv4() => {
                add(16, more);
                repair(&mut frame);
            }
            Oddity::Length(more) => add(18, more),
            Oddity::UdpLength(more) => add(at + 4, more),
            Oddity::Fragment(bits) if source.is_ipv4() => {
                frame[20..22].copy_from_slice(&bits.to_be_bytes());
                repair(&mut frame);
            }
            Oddity::Other(kind) => frame[12..14].copy_from_slice(&kind.to_be_bytes()),
            Oddity::ForAnother => frame[5] = 1,
            Oddity::Marked(mark) => context.mark = mark,
            Oddity::Tag(tag) => context.tag = Some(tag),
            Oddity::WrongChecksum(by) => add(checksum, by as i16),
            Oddity::NoChecksum => frame[checksum..checksum + 2].fill(0),
            Oddity::BareChecksum => {
                let pseudo = oracle::sum(&own.entry.from, own.entry.protocol, &[]);
                let bare = pseudo.and_word((frame.len() - at) as u16).fold();
                frame[checksum..checksum + 2].copy_from_slice(&bare.to_be_bytes());
            }
            _ => {}
        }
        frame.extend((0..self.padding).map(|at| at as u8 + 0x80));
        match self.oddity {
            Oddity::Byte(at, bits) => {
                let at = at % frame.len();
                frame[at] ^= bits;
            }
            Oddity::Cut(left) => frame.truncate(left),
            _ => {}
        }
        // The kernel runs no test on less than an IP header.
        let least = if frame[12..14] == [0x86, 0xdd] { 54 } else { 34 };
        frame.resize(frame.len().max(least), 0);
        (frame, context)
    }
}

/// Makes the checksum of an IPv4 header right.
fn repair(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = wire::checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

#[derive(Clone, Debug)]
enum Step {
    Shot(Shot),
    Settle,
    Publish(usize),
    Retract(usize),
    Advance,
}

fn shot() -> impl Strategy<Value = Shot> {
    let sides = 2 * flows().len();
    let oddity = prop_oneof![
        12 => Just(Oddity::None),
        2 => (any::<usize>(), 1..=255_u8).prop_map(|(at, bits)| Oddity::Byte(at, bits)),
        1 => (34..100_usize).prop_map(Oddity::Cut),
        1 => prop_oneof![-60..60_i16, any::<i16>()].prop_map(Oddity::Length),
        1 => (-20..20_i16).prop_map(Oddity::UdpLength),
        1 => prop_oneof![Just(0x4000), Just(0x2000), Just(0x8000), any::<u16>()].prop_map(Oddity::Fragment),
        1 => Just(Oddity::IpOptions),
        1 => prop_oneof![Just(0x8100), Just(0x86dd), Just(0x0800), Just(0x0806)].prop_map(Oddity::Other),
        1 => Just(Oddity::ForAnother),
        1 => prop_oneof![Just(MARK), Just(fast_mark(MARK)), any::<u32>()].prop_map(Oddity::Marked),
        1 => (1..=u16::MAX).prop_map(Oddity::WrongChecksum),
        1 => Just(Oddity::NoChecksum),
        3 => Just(Oddity::BareChecksum),
        1 => (sample::select(vec![EtherType::VLAN, EtherType::QINQ]), sample::select(vec![0, 20, 21, 0x3014]))
            .prop_map(|(tpid, tci)| Oddity::Tag(Tag { tpid, tci })),
    ];
    let tcp = (
        prop_oneof![4 => sample::select(vec![0x10_u8, 0x18, 0x50]), 1 => any::<u8>()],
        prop_oneof![4 => Just(0), 3 => -1500..300_i32, 1 => any::<i32>()],
        prop_oneof![4 => Just(0), 3 => -70_000..100_i32, 1 => any::<i32>()],
        prop_oneof![3 => any::<u16>(), 1 => Just(0), 1 => Just(64)],
        0..=10_usize,
    );
    let ip = (
        prop_oneof![8 => 2..=255_u8, 1 => 0..4_u8],
        prop_oneof![3 => 40..44_u8, 1 => any::<u8>()],
        prop_oneof![2 => Just(0), 1 => 1..30_usize],
        prop_oneof![4 => Just(0), 1 => 1..400_u32],
        prop_oneof![3 => 0..100_usize, 2 => 100..400_usize, 1 => 400..1400_usize],
        prop_oneof![4 => Just(0), 1 => 0..16_u8],
    );
    (0..sides, tcp, ip, oddity).prop_map(|(side, tcp, ip, oddity)| {
        let (flags, seq, ack, window, options) = tcp;
        let (ttl, ds_field, padding, gso_size, data, priority) = ip;
        let of_tcp = Shot { side, flags, seq, ack, window, options, ..plain_shot() };
        Shot { data, ttl, ds_field, padding, oddity, gso_size, priority, ..of_tcp }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let flows = flows().len();
    prop_oneof![
        40 => shot().prop_map(Step::Shot),
        20 => Just(Step::Settle),
        1 => (0..flows).prop_map(Step::Publish),
        1 => (0..flows).prop_map(Step::Retract),
        1 => Just(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_200))]

    #[test]
    fn the_programs_do_as_the_oracle_with_all_packets(at in sample::select(&HOOKS[..]), steps in vec(any_step(), 1..60)) {
        let Some(mut bench) = Bench::new(at) else { return Ok(()) };
        for step in steps {
            match step {
                Step::Shot(shot) => {
                    let (frame, context) = shot.frame(&bench.oracle);
                    bench.packet(&frame, context);
                }
                Step::Settle => bench.settle(),
                Step::Publish(flow) => bench.publish(flow),
                Step::Retract(flow) => bench.retract(flow),
                Step::Advance => {
                    bench.path.advance_generation();
                    bench.oracle.sides.iter_mut().for_each(|side| side.is_published = false);
                }
            }
        }
        let falls = bench.path.fall_through();
        prop_assert_eq!(falls.stale, 0);
    }
}

/// The generator reaches everything that the property is about.
#[test]
fn generated_packets_go_by_in_all_flows_and_fall_through_for_all_reasons() {
    for at in HOOKS {
        let Some(mut bench) = Bench::new(at) else { return };
        let mut runner = TestRunner::deterministic();
        let mut gone = vec![0; bench.oracle.sides.len()];
        let (mut odd, mut padded, mut segmented, mut bare) = (0, 0, 0, 0);
        for turn in 0..6_000 {
            let shot = shot().new_tree(&mut runner).unwrap().current();
            let (frame, context) = shot.frame(&bench.oracle);
            match bench.packet(&frame, context) {
                Fate::Gone(bytes) => {
                    gone[shot.side] += 1;
                    odd += usize::from(!matches!(shot.oddity, Oddity::None));
                    padded += usize::from(bytes.len() < frame.len());
                    segmented += usize::from(context.gso_size > 0);
                    bare += usize::from(matches!(shot.oddity, Oddity::BareChecksum));
                }
                Fate::Kept | Fate::Delivered | Fate::Lost => bench.settle(),
            }
            if turn % 200 == 199 {
                // Windows that were shot out of reach begin anew.
                let flow = turn / 200 % flows().len();
                bench.retract(flow);
                bench.publish(flow);
            }
        }
        let falls = bench.path.fall_through();
        println!(
            "{at:?}: {gone:?} of {odd} odd, {padded} padded, {segmented} segmented, {bare} bare; {falls:?}"
        );
        let (elsewhere, here) = gone.split_last_chunk::<2>().map(|(rest, last)| (last, rest)).unwrap();
        assert_eq!(elsewhere, &[0; 2]);
        // At XDP packets have no tags, and are of the flows of no VLAN that have the same addresses and ports.
        let is_tagged = |side: &Side| side.entry.vlan != 0 || side.entry.tag.is_some();
        let here =
            bench.oracle.sides.iter().zip(here).filter(|(side, _)| at == At::Buffer || !is_tagged(side));
        let here: Vec<usize> = here.map(|(_, gone)| *gone).collect();
        assert!(here.iter().chain([&odd, &padded, &segmented, &bare]).all(|count| *count >= 20));
        let FallThrough { unplain, unknown, too_big, window, order, stale, overload: _, unsent: _ } = falls;
        assert!([unplain, unknown, too_big, window, order].iter().all(|count| *count >= 20));
        assert_eq!(stale, 0);
    }
}

/// A packet of the first flow, which goes by once the worker has sent on all that it got.
fn plain(bench: &Bench) -> Vec<u8> {
    plain_shot().frame(&bench.oracle).0
}

fn plain_shot() -> Shot {
    Shot {
        side: 0,
        data: 10,
        ttl: 64,
        ds_field: 0,
        flags: Flags::ACK.0,
        seq: 0,
        ack: 0,
        window: 100,
        options: 0,
        padding: 0,
        oddity: Oddity::None,
        gso_size: 0,
        priority: 0,
    }
}

#[test]
fn the_first_packet_after_publication_goes_to_the_worker_and_the_rest_once_it_is_settled() {
    for at in HOOKS {
        let Some(mut bench) = Bench::new(at) else { return };
        let frame = plain(&bench);
        let context = Context::default();
        assert_eq!(bench.packet(&frame, context), Fate::Kept);
        assert_eq!(bench.packet(&frame, context), Fate::Kept);
        bench.settle();
        assert!(matches!(bench.packet(&frame, context), Fate::Gone(_)));
        assert!(matches!(bench.packet(&frame, context), Fate::Gone(_)));
        let falls = bench.path.fall_through();
        assert_eq!(falls, FallThrough { order: 2, ..FallThrough::default() });
    }
}

/// A flow without pauses comes to go by: a worker that is far behind gets some of its packets, then none until it has sent these on.
#[test]
fn a_worker_far_behind_is_spared() {
    for at in HOOKS {
        let Some(mut bench) = Bench::new(at) else { return };
        let frame = plain(&bench);
        let context = Context::default();
        let kept = BACKLOG + rules::PATIENCE;
        for _ in 0..kept {
            assert_eq!(bench.packet(&frame, context), Fate::Kept);
        }
        // Up to the flow's last packet there are some with the worker yet.
        bench.oracle.taken = bench.oracle.passed - u64::from(BACKLOG) - 1;
        bench.path.table().set_taken(LINE, bench.oracle.taken);
        for _ in 0..50 {
            assert_eq!(bench.packet(&frame, context), Fate::Lost);
        }
        bench.settle();
        assert!(matches!(bench.packet(&frame, context), Fate::Gone(_)));
        let expected = FallThrough { order: kept.into(), overload: 50, ..FallThrough::default() };
        assert_eq!(bench.path.fall_through(), expected);
        // It does not last: a worker that says nothing any more gets the flow back.
        bench.publish_anew(0);
        let fates: Vec<Fate> = (0..6_000).map(|_| bench.packet(&frame, context)).collect();
        let lost = fates.iter().filter(|fate| **fate == Fate::Lost).count();
        assert_eq!(lost as u32, rules::MOST_WAITED + 1 - rules::PATIENCE);
        assert_eq!(fates.last(), Some(&Fate::Kept));
    }
}

/// A flow that comes by another queue waits for its packets of the one before.
#[test]
fn a_packet_waits_for_those_of_its_flow_that_came_by_another_line() {
    let Some(mut bench) = Bench::new(At::Xdp(Checksums::Complete)) else { return };
    let (other, _socket) = front(&bench.path, LINE + 1, Checksums::Complete);
    let frame = plain(&bench);
    assert_eq!(bench.packet(&frame, Context::default()), Fate::Kept);
    let table = bench.path.table();
    let is_kept = || {
        let before = table.passed(LINE + 1);
        assert_eq!(run_loaded(other.as_fd(), &frame, None).unwrap().value, XDP_REDIRECT);
        table.passed(LINE + 1) > before
    };
    table.set_taken(LINE + 1, 100);
    assert!(is_kept());
    // The last one is by the other line now.
    table.set_taken(LINE, 100);
    table.set_taken(LINE + 1, 0);
    assert!(is_kept());
    table.set_taken(LINE + 1, 2);
    assert!(!is_kept());
}

/// All values of a checksum are updated and completed, zero among them.
#[test]
fn all_checksums_come_out_right() {
    for (checksums, at) in [(Checksums::Complete, 40), (Checksums::Bare, 42)] {
        let Some(mut bench) = Bench::new(At::Xdp(checksums)) else { return };
        let oddity = if checksums == Checksums::Bare { Oddity::BareChecksum } else { Oddity::None };
        let shot = Shot { side: 2, oddity, ..plain_shot() };
        let (mut frame, context) = shot.frame(&bench.oracle);
        bench.packet(&frame, context);
        bench.settle();
        for value in 0..=u16::MAX {
            // The field, or data.
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
            assert!(matches!(bench.packet(&frame, context), Fate::Gone(_)));
        }
    }
}

/// A frame for which there is no socket is no packet that the worker is to have.
#[test]
fn frames_without_a_socket_are_not_counted() {
    let Some(mut bench) = Bench::new(At::Xdp(Checksums::Complete)) else { return };
    let frame = plain(&bench);
    // The queue leaves the map with its socket.
    bench.socket = None;
    let run = run_loaded(bench.program.as_fd(), &frame, None).unwrap();
    assert_eq!((run.value, bench.path.table().passed(LINE)), (XDP_DROP, 0));
}

/// Lengths of all kinds are summed, up to the longest that fits a buffer.
#[test]
fn checksums_of_all_lengths_are_completed() {
    let Some(mut bench) = Bench::new(At::Xdp(Checksums::Bare)) else { return };
    for flow in [1, 4, 2] {
        bench.retract(flow);
        let mut entries = flows()[flow];
        entries.iter_mut().for_each(|entry| (entry.mtu, entry.window) = (4_000, None));
        bench.publish_as(flow, entries);
        let mut gone = 0;
        for data in (0..300).chain(480..560).chain([1_000, 1_023, 1_448, 2_047, 2_048, 2_500, 3_071, 3_300]) {
            let shot = Shot { side: 2 * flow, data, oddity: Oddity::BareChecksum, ..plain_shot() };
            let (frame, context) = shot.frame(&bench.oracle);
            gone += usize::from(matches!(bench.packet(&frame, context), Fate::Gone(_)));
            bench.settle();
        }
        assert_eq!(gone, 387);
    }
}

#[test]
fn a_decision_is_for_one_packet_and_for_no_other() {
    let Some(mut bench) = Bench::new(At::Buffer) else { return };
    let frame = plain(&bench);
    let context = Some(Context::default());
    bench.packet(&frame, Context::default());
    bench.settle();
    let decide = |bench: &Bench| {
        assert_eq!(run_loaded(bench.program.as_fd(), &frame, context).unwrap().value, 0);
    };
    let act = |bench: &Bench, frame: &[u8]| {
        let value = run_loaded(bench.path.action(), frame, context).unwrap().value;
        (value, bench.path.fall_through().stale)
    };
    let renew = |bench: &mut Bench| {
        bench.oracle.falls.stale = bench.path.fall_through().stale;
        bench.publish(0);
        bench.packet(&frame, Context::default());
        bench.settle();
    };
    assert_eq!(act(&bench, &frame), (TCX_DROP, 0));
    // Of another length, and of other addresses, ports, protocol or TTL.
    decide(&bench);
    assert_eq!(act(&bench, &frame[..frame.len() - 1]), (TCX_DROP, 1));
    assert_eq!(act(&bench, &frame), (TCX_DROP, 1));
    for (count, at) in (2..).zip([12, 14, 22, 23, 26, 33, 34, 37]) {
        let mut other = frame.clone();
        // A TTL of 1, and another value of the rest.
        other[at] = if at == 22 { 1 } else { other[at] ^ 4 };
        decide(&bench);
        assert_eq!(act(&bench, &other), (TCX_DROP, count), "byte {at}");
    }
    // A publication taken back in between is as good; one whose slot is another's is not.
    decide(&bench);
    bench.places[..2].iter().flatten().for_each(|place| bench.path.retract(*place));
    assert_eq!(act(&bench, &frame), (TCX_REDIRECT, 9));
    bench.retract(0);
    renew(&mut bench);
    decide(&bench);
    bench.retract(0);
    assert_eq!(act(&bench, &frame), (TCX_DROP, 10));
    renew(&mut bench);
    decide(&bench);
    bench.retract(0);
    bench.publish(0);
    assert_eq!(act(&bench, &frame), (TCX_DROP, 11));
}

/// Tags lie beside the bytes, and belong to the packet as they do.
#[test]
fn a_decision_is_for_a_packet_of_one_vlan() {
    let Some(mut bench) = Bench::new(At::Buffer) else { return };
    let side = 2 * flows().iter().position(|flow| flow[0].vlan == 20).unwrap();
    let (frame, context) = Shot { side, ..plain_shot() }.frame(&bench.oracle);
    bench.packet(&frame, context);
    bench.settle();
    let tag = |id| Some(Tag::customer(id));
    for (count, tag) in [None, tag(0), tag(21), tag(20)].into_iter().enumerate() {
        let decided = run_loaded(bench.program.as_fd(), &frame, Some(context)).unwrap();
        let done = run_loaded(bench.action.as_fd(), &frame, Some(Context { tag, ..context })).unwrap();
        let stale = bench.path.fall_through().stale;
        let expected = if count < 3 { (TCX_DROP, count as u64 + 1) } else { (TCX_REDIRECT, 3) };
        assert_eq!((decided.value, (done.value, stale)), (0, expected), "{tag:?}");
    }
}

#[test]
fn packets_of_the_fast_path_pass_the_guard_where_they_leave() {
    let Some(bench) = Bench::new(At::Buffer) else { return };
    let mark = bench.path.fast_mark();
    let guard = crate::program::unless_fast(mark, &crate::program::nothing());
    let guard = bpf::load(Hook::TcxEgress, &guard).unwrap();
    for (own, value, left) in [(mark, TCX_NEXT, 0), (MARK, TCX_DROP, MARK), (0, TCX_DROP, 0)] {
        let context = Context { mark: own, ..Context::default() };
        let run = run_loaded(guard.as_fd(), &plain(&bench), Some(context)).unwrap();
        assert_eq!((run.value, run.mark), (value, left));
    }
    for mark in [0, 1, MARK, fast_mark(0), u32::MAX] {
        assert!(![0, mark].contains(&fast_mark(mark)));
    }
}
