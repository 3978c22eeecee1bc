//! Cases by name from what operators rely on, and conversations made at random.

use bytemuck::Zeroable;
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use wire::tcp::Flags;

use super::{Fault, Midstream, Segment, Settings, WindowCheck, renews, reopens, track};
use crate::flow::Direction::{Original, Reply};
use crate::flow::{Direction, Flow, State};

const STRICT: Settings = Settings { window: WindowCheck::Strict, midstream: Midstream::Refuse };
const LEARN: Settings = Settings { window: WindowCheck::Strict, midstream: Midstream::Learn };
const OFF: Settings = Settings { window: WindowCheck::Off, midstream: Midstream::Refuse };

const SYN: Flags = Flags::SYN;
const SYN_ACK: Flags = Flags::SYN_ACK;
const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags::FIN.and(Flags::ACK);
const RST: Flags = Flags::RST;

/// First sequence numbers of the two sides.
const A: u32 = 1_000;
const B: u32 = u32::MAX - 20;

struct Connection {
    flow: Flow,
    settings: Settings,
}

impl Connection {
    fn new(settings: Settings) -> Connection {
        Connection { flow: Flow { scales: 0xff, ..Flow::zeroed() }, settings }
    }

    /// A connection just established, with windows of 10,000 bytes.
    fn open(settings: Settings) -> Connection {
        let mut connection = Connection::new(settings);
        assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynSent));
        assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::SynReceived));
        assert_eq!(connection.send(Original, ACK, A + 1, B.wrapping_add(1), 0), Ok(State::Established));
        connection
    }

    fn send(
        &mut self,
        direction: Direction,
        flags: Flags,
        seq: u32,
        ack: u32,
        data: u32,
    ) -> Result<State, Fault> {
        self.segment(direction, Segment { seq, ack, window: 10_000, flags, data, scale: None })
    }

    fn segment(&mut self, direction: Direction, segment: Segment) -> Result<State, Fault> {
        let before = self.flow;
        let result = track(&mut self.flow, direction, &segment, self.settings);
        match result {
            Ok(state) => self.flow.state = state as u8,
            Err(_) => assert_eq!(bytemuck::bytes_of(&before), bytemuck::bytes_of(&self.flow)),
        }
        result
    }

    /// Both sides close, the side that opened first.
    fn close(&mut self) {
        let b = B.wrapping_add(1);
        assert_eq!(self.send(Original, FIN, A + 1, b, 0), Ok(State::FinOriginal));
        assert_eq!(self.send(Reply, ACK, b, A + 2, 0), Ok(State::FinOriginal));
        assert_eq!(self.send(Reply, FIN, b, A + 2, 0), Ok(State::LastAck));
        assert_eq!(self.send(Original, ACK, A + 2, b.wrapping_add(1), 0), Ok(State::TimeWait));
    }

    fn state(&self) -> State {
        self.flow.state()
    }
}

#[test]
fn impossible_flags_are_refused_in_every_state() {
    let possible =
        ["syn", "syn,urg", "syn,ack", "rst", "rst,ack", "fin,ack", "fin,ack,urg", "ack", "ack,urg"];
    let possible: Vec<Flags> = possible.iter().map(|text| text.parse().unwrap()).collect();
    for bits in 0..=255u8 {
        let core = Flags(bits).masked(Flags(0x37));
        for mut connection in [Connection::new(STRICT), Connection::open(STRICT), Connection::new(OFF)] {
            let refused =
                connection.send(Original, Flags(bits), A + 1, B.wrapping_add(1), 0) == Err(Fault::Flags);
            assert_eq!(refused, !possible.contains(&core), "{}", Flags(bits));
        }
    }
}

#[test]
fn only_a_syn_opens() {
    for flags in [SYN_ACK, ACK, FIN, RST] {
        assert_eq!(Connection::new(STRICT).send(Original, flags, A, B, 0), Err(Fault::NotOpen));
    }
    assert_eq!(Connection::new(LEARN).send(Original, RST, A, B, 0), Err(Fault::NotOpen));
}

#[test]
fn the_handshake_is_by_number() {
    let mut connection = Connection::new(STRICT);
    assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynSent));
    assert_eq!(connection.send(Original, ACK, A + 1, B, 0), Err(Fault::State));
    assert_eq!(connection.send(Original, SYN_ACK, A, B, 0), Err(Fault::State));
    // The answer to another SYN passes, for its receiver to reset, and is not learnt from.
    assert_eq!(connection.send(Reply, SYN_ACK, 77, A, 0), Ok(State::SynSent));
    assert_eq!(connection.send(Reply, SYN_ACK, 77, A + 2, 0), Ok(State::SynSent));
    assert_eq!(connection.send(Reply, FIN, B, A + 1, 0), Err(Fault::State));
    assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::SynReceived));
    assert_eq!(connection.send(Original, ACK, A + 1, B.wrapping_add(2), 0), Err(Fault::Window));
    assert_eq!(connection.send(Original, ACK, A + 1, B.wrapping_sub(70_000), 0), Err(Fault::Window));
    assert_eq!(connection.send(Original, ACK, A + 1, B.wrapping_add(1), 5), Ok(State::Established));
}

#[test]
fn a_handshake_survives_loss() {
    let mut connection = Connection::new(STRICT);
    let b = B.wrapping_add(1);
    for _ in 0..3 {
        assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynSent));
    }
    for _ in 0..3 {
        assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::SynReceived));
        assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynReceived));
    }
    assert_eq!(connection.send(Original, ACK, A + 1, b, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 1, b, 100), Ok(State::Established));
    assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, ACK, b, A + 101, 100), Ok(State::Established));
}

#[test]
fn a_port_that_is_closed_answers_with_a_reset() {
    let mut connection = Connection::new(STRICT);
    connection.send(Original, SYN, A, 0, 0).unwrap();
    assert_eq!(connection.send(Reply, RST, 0, 0, 0), Err(Fault::Window));
    assert_eq!(connection.send(Reply, RST.and(ACK), 0, A, 0), Err(Fault::Window));
    assert_eq!(connection.send(Reply, RST.and(ACK), 0, A + 1, 0), Ok(State::Reset));
    assert!(reopens(connection.state(), SYN));
}

#[test]
fn a_reset_closes_and_only_the_syn_of_another_connection_passes() {
    for direction in [Original, Reply] {
        let mut connection = Connection::open(STRICT);
        let b = B.wrapping_add(1);
        let exact = if direction == Original { A + 1 } else { b };
        assert_eq!(connection.send(direction, RST, exact, 0, 0), Ok(State::Reset));
        assert_eq!(connection.send(Original, ACK, A + 1, b, 100), Err(Fault::State));
        assert_eq!(connection.send(Reply, ACK, b, A + 1, 100), Err(Fault::State));
        assert_eq!(connection.send(Original, FIN, A + 1, b, 0), Err(Fault::State));
        assert_eq!(connection.send(Reply, SYN_ACK, b, A + 1, 0), Err(Fault::State));
        assert_eq!(connection.state(), State::Reset);
        for (flags, opens) in [(SYN, true), (SYN_ACK, false), (ACK, false), (FIN, false), (RST, false)] {
            assert_eq!(reopens(connection.state(), flags), opens);
        }
        // Of this connection it is not, whoever sends it.
        assert_eq!(connection.send(Reply, SYN, 5, 0, 0), Err(Fault::State));
        assert_eq!(connection.send(Original, SYN, 77, 0, 0), Err(Fault::State));
    }
}

#[test]
fn a_blind_reset_changes_nothing() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    // Not at the edge: it passes, and the receiver challenges it.
    assert_eq!(connection.send(Reply, RST, b.wrapping_add(100), 0, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, RST, b.wrapping_add(10_001), 0, 0), Err(Fault::Window));
    assert_eq!(connection.send(Reply, RST, b.wrapping_sub(10_001), 0, 0), Err(Fault::Window));
    assert_eq!(connection.send(Reply, RST, b.wrapping_add(1 << 31), 0, 0), Err(Fault::Window));
    assert_eq!(connection.send(Original, ACK, A + 1, b, 100), Ok(State::Established));
}

#[test]
fn a_closed_connection_lets_pass_what_is_sent_again_and_nothing_new() {
    let mut connection = Connection::open(STRICT);
    connection.close();
    let b = B.wrapping_add(1);
    for _ in 0..2 {
        assert_eq!(connection.send(Original, FIN, A + 1, b, 0), Ok(State::TimeWait));
        assert_eq!(connection.send(Reply, FIN, b, A + 2, 0), Ok(State::TimeWait));
        assert_eq!(connection.send(Original, ACK, A + 2, b.wrapping_add(1), 0), Ok(State::TimeWait));
    }
    assert_eq!(connection.send(Original, ACK, A + 2, b.wrapping_add(1), 1), Err(Fault::State));
    assert_eq!(connection.send(Reply, ACK, b.wrapping_add(1), A + 2, 1), Err(Fault::State));
}

#[test]
fn only_a_connection_that_is_over_gives_way_to_another() {
    let over = [State::LastAck, State::TimeWait, State::Reset];
    for state in State::ALL {
        assert_eq!(reopens(state, SYN), over.contains(&state), "{state:?}");
        assert!(!reopens(state, SYN_ACK));
    }
    let mut connection = Connection::open(STRICT);
    connection.close();
    assert!(reopens(connection.state(), SYN));
    for direction in [Original, Reply] {
        assert_eq!(connection.send(direction, SYN, 90_000, 0, 0), Err(Fault::State));
    }
}

#[test]
fn what_need_not_be_of_the_connection_does_not_renew_it() {
    for (before, after, flags, renewed) in [
        (State::Opening, State::SynSent, SYN, true),
        (State::SynSent, State::SynSent, SYN, false),
        (State::SynSent, State::SynSent, SYN_ACK, false),
        (State::SynSent, State::SynSent, ACK, false),
        (State::SynSent, State::SynReceived, SYN_ACK, true),
        (State::Established, State::Established, ACK, true),
        (State::Established, State::Established, SYN, false),
        (State::Established, State::Established, RST, false),
        (State::Established, State::Reset, RST, true),
        (State::Established, State::FinReply, FIN, true),
    ] {
        assert_eq!(renews(before, after, flags), renewed, "{before:?} {after:?} {flags:?}");
    }
}

#[test]
fn a_side_that_has_not_closed_may_go_on() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    assert_eq!(connection.send(Reply, FIN, b, A + 1, 100), Ok(State::FinReply));
    let b = b.wrapping_add(101);
    for at in 0..5 {
        assert_eq!(connection.send(Original, ACK, A + 1 + at * 1_000, b, 1_000), Ok(State::FinReply));
        assert_eq!(connection.send(Reply, ACK, b, A + 1_001 + at * 1_000, 0), Ok(State::FinReply));
    }
    assert_eq!(connection.send(Reply, FIN, b.wrapping_sub(101), A + 1, 100), Ok(State::FinReply));
    assert_eq!(connection.send(Original, FIN, A + 5_001, b, 0), Ok(State::LastAck));
    assert_eq!(connection.send(Reply, ACK, b, A + 5_002, 0), Ok(State::TimeWait));
}

#[test]
fn both_may_open_at_once() {
    let mut connection = Connection::new(STRICT);
    let b = B.wrapping_add(1);
    assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynSent));
    assert_eq!(connection.send(Reply, SYN, B, 0, 0), Ok(State::SynBoth));
    assert_eq!(connection.send(Original, SYN, A, 0, 0), Ok(State::SynBoth));
    assert_eq!(connection.send(Original, SYN_ACK, A, B, 0), Err(Fault::Window));
    assert_eq!(connection.send(Original, SYN_ACK, A, b, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::Established));
    for at in 0..5 {
        assert_eq!(connection.send(Original, ACK, A + 1 + at * 1_000, b, 1_000), Ok(State::Established));
    }
    assert_eq!(connection.send(Reply, ACK, b, A + 5_001, 1_000), Ok(State::Established));
    // The first answer may be a plain acknowledgement; the other side's SYN-ACK then tells its window.
    let mut connection = Connection::new(STRICT);
    connection.send(Original, SYN, A, 0, 0).unwrap();
    connection.send(Reply, SYN, B, 0, 0).unwrap();
    assert_eq!(connection.send(Original, ACK, A + 1, b.wrapping_add(1), 0), Err(Fault::Window));
    assert_eq!(connection.send(Original, ACK, A + 1, b, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, SYN_ACK, B, A + 1, 0), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 5_001, b, 1_000), Ok(State::Established));
}

#[test]
fn keep_alives_and_probes_of_a_closed_window_pass() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    let shut = Segment { seq: b, ack: A + 1, window: 0, flags: ACK, data: 0, scale: None };
    for data in [0, 1] {
        assert_eq!(connection.send(Original, ACK, A, b, data), Ok(State::Established));
    }
    // All that the window allows; then the window is shut and one byte tried.
    assert_eq!(connection.send(Original, ACK, A + 1, b, 10_000), Ok(State::Established));
    assert_eq!(connection.segment(Reply, Segment { ack: A + 10_001, ..shut }), Ok(State::Established));
    for _ in 0..3 {
        assert_eq!(connection.send(Original, ACK, A + 10_001, b, 1), Ok(State::Established));
        assert_eq!(connection.segment(Reply, Segment { ack: A + 10_001, ..shut }), Ok(State::Established));
    }
    assert_eq!(connection.send(Original, ACK, A + 10_100, b, 1), Err(Fault::Window));
}

#[test]
fn old_data_passes_as_far_back_as_the_largest_window_reaches() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    let small = Segment { seq: b, ack: A + 10_001, window: 50, flags: ACK, data: 0, scale: None };
    assert_eq!(connection.send(Original, ACK, A + 1, b, 10_000), Ok(State::Established));
    assert_eq!(connection.segment(Reply, small), Ok(State::Established));
    // An acknowledgement that was overtaken takes nothing back.
    assert_eq!(connection.segment(Reply, Segment { ack: A + 1, ..small }), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 10_001, b, 50), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 10_051, b, 0), Ok(State::Established));
    // One window of 10,000 behind, and one byte more.
    assert_eq!(connection.send(Original, ACK, A + 1, b, 50), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 1, b, 49), Err(Fault::Window));
}

#[test]
fn windows_are_scaled_only_if_both_sides_say_so() {
    for (a, b, reach) in [(Some(3), Some(2), 40_000), (Some(3), None, 10_000), (None, Some(2), 10_000)] {
        let mut connection = Connection::new(STRICT);
        let syn = Segment { seq: A, ack: 0, window: 10_000, flags: SYN, data: 0, scale: a };
        connection.segment(Original, syn).unwrap();
        let syn_ack = Segment { seq: 5, ack: A + 1, window: 10_000, flags: SYN_ACK, data: 0, scale: b };
        connection.segment(Reply, syn_ack).unwrap();
        connection.send(Original, ACK, A + 1, 6, 0).unwrap();
        connection.send(Reply, ACK, 6, A + 1, 0).unwrap();
        assert_eq!(connection.send(Original, ACK, A + 2 + reach, 6, 1), Err(Fault::Window));
        assert_eq!(connection.send(Original, ACK, A + 1 + reach, 6, 1), Ok(State::Established));
    }
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    assert_eq!(connection.send(Reply, ACK, b, A + 2, 0), Err(Fault::Window));
    assert_eq!(connection.send(Reply, ACK, b, A.wrapping_sub(66_001), 0), Err(Fault::Window));
    connection.settings = OFF;
    assert_eq!(connection.send(Reply, ACK, b, A + 2, 0), Ok(State::Established));
}

#[test]
fn a_connection_under_way_is_picked_up_where_that_is_asked_for() {
    let mut connection = Connection::new(LEARN);
    // More in flight than has been heard of, acknowledged only now; and a keep-alive as the first segment.
    assert_eq!(connection.send(Original, ACK, A, B, 1_000), Ok(State::Established));
    assert_eq!(
        connection.send(Original, ACK, A + 90_000, B.wrapping_add(500), 1_000),
        Ok(State::Established)
    );
    assert_eq!(connection.send(Reply, ACK, B.wrapping_add(800), A + 91_000, 1_000), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 91_000, B.wrapping_add(1_800), 0), Ok(State::Established));
    // A segment went another way, in either direction.
    assert_eq!(connection.send(Reply, ACK, B.wrapping_add(1_800), A + 92_000, 0), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 92_000, B.wrapping_add(2_800), 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, ACK, B.wrapping_add(2_800), A + (1 << 30), 0), Err(Fault::Window));
    let mut connection = Connection::new(LEARN);
    assert_eq!(connection.send(Original, ACK, A - 1, B, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, ACK, B, A, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, ACK, B.wrapping_add(1 << 31), A, 0), Err(Fault::Window));
    assert_eq!(Connection::new(LEARN).send(Original, FIN, A, B, 0), Ok(State::FinOriginal));
}

#[test]
fn a_host_that_restarted_opens_again_by_way_of_a_challenge() {
    let mut connection = Connection::open(STRICT);
    let b = B.wrapping_add(1);
    assert_eq!(connection.send(Original, SYN, 400_000, 0, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, ACK, b, A + 1, 0), Ok(State::Established));
    assert_eq!(connection.send(Original, RST, A + 1, 0, 0), Ok(State::Reset));
    assert!(reopens(connection.state(), SYN));
    // Likewise the other side.
    let mut connection = Connection::open(STRICT);
    assert_eq!(connection.send(Reply, SYN, 400_000, 0, 0), Ok(State::Established));
    assert_eq!(connection.send(Original, ACK, A + 1, b, 0), Ok(State::Established));
    assert_eq!(connection.send(Reply, RST, b, 0, 0), Ok(State::Reset));
}

/// One side of a TCP that follows the rules: sends within the window it was given, acknowledges what it has.
struct Host {
    first: u32,
    scale: Option<u8>,
    window: u16,
    /// All data to send, and how much of it was put on the wire and acknowledged; offsets from `first + 1`.
    total: u32,
    sent: u32,
    acknowledged: u32,
    /// Right edge that the other side allows.
    edge: u32,
    /// Bytes received in order from the other side.
    received: u32,
    /// Pieces that came early: offset and end.
    early: Vec<(u32, u32)>,
    fin_sent: bool,
    fin_received: bool,
}

impl Host {
    fn new(first: u32, scale: Option<u8>, window: u16, total: u32) -> Host {
        let (sent, acknowledged, edge, received) = (0, 0, 0, 0);
        let (early, fin_sent, fin_received) = (Vec::new(), false, false);
        Host {
            first,
            scale,
            window,
            total,
            sent,
            acknowledged,
            edge,
            received,
            early,
            fin_sent,
            fin_received,
        }
    }

    fn shift(&self, scaled: bool) -> u32 {
        if scaled { u32::from(self.scale.unwrap_or(0)) } else { 0 }
    }

    /// A segment of `data` bytes from offset `at`, with FIN where that is the end of all.
    fn make(&self, other: &Host, at: u32, data: u32, fin: bool) -> Segment {
        let seq = self.first.wrapping_add(1).wrapping_add(at);
        let ack = other.first.wrapping_add(1).wrapping_add(self.received);
        let flags = if fin { FIN } else { ACK };
        Segment { seq, ack, window: self.window, flags, data, scale: None }
    }

    fn receive(&mut self, segment: &Segment, other_first: u32, scaled_window: u32) {
        let at = segment.seq.wrapping_sub(other_first.wrapping_add(1));
        let fin = segment.flags.intersects(Flags::FIN);
        self.early.push((at, at + segment.data + u32::from(fin)));
        while let Some(&(_, end)) =
            self.early.iter().find(|(at, end)| *at <= self.received && *end > self.received)
        {
            self.received = end;
        }
        let acknowledged = segment.ack.wrapping_sub(self.first.wrapping_add(1));
        if acknowledged >= self.acknowledged && acknowledged < 1 << 31 {
            self.acknowledged = acknowledged;
            self.edge = self.edge.max(acknowledged + scaled_window);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A side sends new data, up to so many bytes.
    Send(bool, u32),
    /// A side sends again from what is not acknowledged.
    Again(bool, u32),
    /// A side only acknowledges.
    Acknowledge(bool),
    /// A segment on the way to the gateway, or beyond, is lost.
    LoseBefore(usize),
    LoseAfter(usize),
    /// A segment on the way reaches the gateway, or the other side; not always the oldest.
    Pass(usize),
    Arrive(usize),
}

fn event() -> impl Strategy<Value = Event> {
    // Mostly in order, now and then not.
    let which = || prop_oneof![6 => Just(0usize), 1 => 0usize..4];
    prop_oneof![
        6 => (any::<bool>(), 1u32..3_000).prop_map(|(side, bytes)| Event::Send(side, bytes)),
        2 => (any::<bool>(), 1u32..3_000).prop_map(|(side, bytes)| Event::Again(side, bytes)),
        3 => any::<bool>().prop_map(Event::Acknowledge),
        1 => which().prop_map(Event::LoseBefore),
        1 => which().prop_map(Event::LoseAfter),
        12 => which().prop_map(Event::Pass),
        12 => which().prop_map(Event::Arrive),
    ]
}

proptest! {
    /// Whatever two correct hosts send passes, however the network treats it, and ends with both sides closed.
    #[test]
    fn a_correct_conversation_passes(
        firsts in (any::<u32>(), any::<u32>()),
        scales in (prop::option::of(0u8..=14), prop::option::of(0u8..=14)),
        windows in (200u16.., 200u16..),
        totals in (0u32..60_000, 0u32..60_000),
        events in prop::collection::vec(event(), 0..400),
    ) {
        let mut hosts =
            [Host::new(firsts.0, scales.0, windows.0, totals.0), Host::new(firsts.1, scales.1, windows.1, totals.1)];
        let scaled = scales.0.is_some() && scales.1.is_some();
        let mut connection = Connection::new(STRICT);
        let syn = |host: &Host, flags, ack| Segment {
            seq: host.first, ack, window: host.window, flags, data: 0, scale: host.scale,
        };
        let (a1, b1) = (firsts.0.wrapping_add(1), firsts.1.wrapping_add(1));
        connection.segment(Original, syn(&hosts[0], SYN, 0)).unwrap();
        connection.segment(Reply, syn(&hosts[1], SYN_ACK, a1)).unwrap();
        connection.segment(Original, hosts[0].make(&hosts[1], 0, 0, false)).unwrap();
        assert_eq!(connection.state(), State::Established);
        (hosts[0].edge, hosts[1].edge) = (u32::from(windows.1), u32::from(windows.0));
        assert_eq!(connection.flow.sides[1].end, b1);

        let mut before: Vec<(usize, Segment, u32)> = Vec::new();
        let mut after: Vec<(usize, Segment)> = Vec::new();
        // Segments made so far, and per side the last of them that has passed.
        let (mut made, mut passed) = (0, [0; 2]);
        // After the random events, rounds of everything until all has arrived.
        let mut finish = Vec::new();
        for _ in 0..1_500 {
            for side in [false, true] {
                finish.extend([Event::Again(side, 3_000), Event::Send(side, 3_000)]);
                finish.extend([Event::Pass(0); 4]);
                finish.extend([Event::Arrive(0); 4]);
            }
        }
        for event in events.into_iter().chain(finish) {
            match event {
                Event::Send(side, bytes) | Event::Again(side, bytes) => {
                    let (me, other) = (&hosts[usize::from(side)], &hosts[usize::from(!side)]);
                    let again = matches!(event, Event::Again(..));
                    let at = if again { me.acknowledged } else { me.sent };
                    let data = bytes.min(me.total.saturating_sub(at)).min(me.edge.saturating_sub(at));
                    let all = at + data == me.total;
                    let fin = all && at <= me.total && me.edge > me.total;
                    let segment = me.make(other, at, data, fin);
                    let me = &mut hosts[usize::from(side)];
                    me.sent = me.sent.max(at + data + u32::from(fin));
                    me.fin_sent |= fin;
                    made += 1;
                    before.push((usize::from(side), segment, made));
                }
                Event::Acknowledge(side) => {
                    let (me, other) = (&hosts[usize::from(side)], &hosts[usize::from(!side)]);
                    made += 1;
                    before.push((usize::from(side), me.make(other, me.sent, 0, false), made));
                }
                Event::LoseBefore(at) if at < before.len() => { before.remove(at); }
                Event::LoseAfter(at) if at < after.len() => { after.remove(at); }
                Event::Pass(at) if at < before.len() => {
                    let (side, segment, number) = before.remove(at);
                    let direction = if side == 0 { Original } else { Reply };
                    let result = connection.segment(direction, segment);
                    // What was overtaken by more than a window may be refused: the receiver is past it.
                    let end = segment.end().wrapping_sub(hosts[side].first.wrapping_add(1));
                    if number < passed[side] && end < hosts[1 - side].received && result == Err(Fault::Window) {
                        continue;
                    }
                    assert!(result.is_ok(), "{segment:?} of {direction:?}: {result:?}, {:?}", connection.flow);
                    passed[side] = number.max(passed[side]);
                    after.push((side, segment));
                }
                Event::Arrive(at) if at < after.len() => {
                    let (side, segment) = after.remove(at);
                    let window = u32::from(segment.window) << hosts[side].shift(scaled);
                    let first = hosts[side].first;
                    hosts[1 - side].receive(&segment, first, window);
                    hosts[1 - side].fin_received = hosts[1 - side].received == hosts[side].total + 1;
                }
                _ => {}
            }
            let done = |host: &Host| host.fin_received && host.acknowledged == host.total + 1;
            if hosts.iter().all(done) && connection.state() == State::TimeWait {
                break;
            }
        }
        assert_eq!(connection.state(), State::TimeWait);
    }

    /// A sender who does not see the numbers gets nothing in: neither data nor a reset nor a SYN-ACK changes anything,
    /// and only segments that fall into the window by chance pass.
    #[test]
    fn blind_segments_change_nothing(
        seq in any::<u32>(),
        ack in any::<u32>(),
        data in 0u32..1_400,
        reply in any::<bool>(),
        flags in prop_oneof![Just(ACK), Just(FIN), Just(RST), Just(RST.and(ACK)), Just(SYN_ACK), Just(SYN)],
    ) {
        let mut connection = Connection::open(STRICT);
        let direction = if reply { Reply } else { Original };
        let (mine, theirs) = if reply { (B.wrapping_add(1), A + 1) } else { (A + 1, B.wrapping_add(1)) };
        // What is right by chance is not blind.
        let near = |a: u32, b: u32, reach: u32| a.wrapping_sub(b).wrapping_add(reach) <= 2 * reach;
        let by_chance = near(seq, mine, 12_000)
            && (near(ack, theirs, 67_000) || flags.intersects(RST));
        let result = connection.send(direction, flags, seq, ack, data);
        if !by_chance {
            let challenged = flags == SYN;
            assert_eq!(result.is_ok(), challenged, "{result:?}");
            assert_eq!(connection.state(), State::Established);
        }
        if flags.intersects(RST) && seq != mine {
            assert_eq!(connection.state(), State::Established);
        }
    }

    /// No numbers make it panic, whatever the state.
    #[test]
    fn any_segments_in_any_order(
        segments in prop::collection::vec((any::<bool>(), any::<[u32; 3]>(), any::<u16>(), any::<u8>()), 0..60),
        scale in prop::option::of(any::<u8>()),
        settings in prop_oneof![Just(STRICT), Just(LEARN), Just(OFF)],
    ) {
        let mut connection = Connection::new(settings);
        for (reply, [seq, ack, data], window, flags) in segments {
            let segment = Segment { seq, ack, window, flags: Flags(flags), data: data % 65_536, scale };
            let _ = connection.segment(if reply { Reply } else { Original }, segment);
        }
    }
}
