//! Connection tracking: a flow table of fixed capacity, in which either direction finds its flow by one look-up.
//!
//! A [`Flow`] has two [`Key`]s, one for each direction of its packets as they arrive, a state with a timeout, and the
//! decisions of the stages, which later packets reuse. [`FlowTable`] takes all its memory when it is made. Promises: no
//! allocation later; nobody can aim packets at one bucket without knowing the seed; bounded work per call. Refusals,
//! each a typed [`Refusal`]: a flow past the capacity, and a key in use. Policy is the caller's: admission of flows, and
//! eviction from a full table.
//!
//! For many packets at once, go over the batch once per step, so that memory is fetched ahead:
//! [`FlowTable::hash`] and [`FlowTable::prefetch_bucket`]; [`FlowTable::candidate_hit`] and
//! [`FlowTable::prefetch_flow`]; [`FlowTable::find_from`].

mod beside;
mod class;
mod ends;
mod evictable;
mod handshake;
pub(crate) mod hash;
mod index;
mod key;
mod sender;
pub(crate) mod steering;
mod table;
pub mod tcp;
mod wheel;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use wire::Nanos;
use wire::header::Protocol;

use crate::fast_path::Progress;
pub(crate) use beside::{Beside, records};
pub(crate) use class::Classified;
pub use ends::{Ends, IcmpQuery};
pub use handshake::Handshake;
pub(crate) use handshake::NoRoom;
pub use key::Key;
pub use steering::{SteeringError, SteeringTable, owner_of_sa};
pub use table::{FlowTable, Former, Hit, Member, Refusal, Windows};
pub use tcp::TcpSide;
use wheel::NONE;
pub use wheel::Tick;

/// A flow by its place in the table. Some time after the flow has ended, another flow takes the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowId(pub u32);

/// Direction of a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Direction of the flow's first packet.
    Original = 0,
    /// Direction of the replies.
    Reply = 1,
}

impl Direction {
    /// Returns the opposite direction.
    #[inline(always)]
    pub fn turned(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}

/// Connection tracking entry: two cache lines. A packet of the original direction needs only the first where nothing is
/// translated and no window is tracked.
///
/// Keys and state change only through the [`FlowTable`], which must keep its index and timers true. The other
/// fields are the stages' own; the table zeroes them when the flow begins.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Flow {
    original: Key,
    /// The next hop of packets, per [`Direction`]: `route` writes it.
    pub hops: [u32; 2],
    /// Time of the last packet, in [`Tick`]s: `track` writes it.
    pub seen: u32,
    /// The rule that let the flow in: `filter` writes it.
    pub rule: u32,
    /// Translations of the flow, as their stage encodes them.
    pub nat: u16,
    /// The epoch of the tables that `hops`, `rule` and `nat` come from; [`STALE`] for tables long gone.
    pub epoch: u16,
    /// The [`State`] in the low four bits; above it, how TCP windows are known, and the parties to the handshake
    /// ([`FlowTable::handshake`]).
    pub(crate) state: u8,
    /// TCP window scales: the original side's in the low four bits, the reply side's in the high four.
    scales: u8,
    /// Lowest bit: packets are translated. Above it: number of the flow's own timeout, 0 for none
    /// ([`FlowTable::set_idle`]).
    flags: u8,
    /// Progress towards publication ([`fast_path`](crate::fast_path)).
    pub(crate) progress: Progress,
    reply: Key,
    /// TCP window state of each side, per [`Direction`].
    sides: [Side; 2],
}

const _: () = assert!(size_of::<Flow>() == 128);

/// The epoch of flows decided by tables long gone; no tables have it.
pub const STALE: u16 = 0;

/// In [`Flow::flags`].
const TRANSLATED: u8 = 1;

/// In [`Flow::state`]: the gateway has answered the SYN, and opens the connection to the server.
const PROXIED: u8 = 0x80;
/// In [`Flow::state`]: the handshake with the server is complete too, and the offset between the server's sequence
/// numbers and those that the client sees is known.
const SPLICED: u8 = 0x40;

/// In [`Flow::state`], where the gateway has answered no SYN: a [helper](crate::helper) reads the connection.
pub(crate) const HELPED: u8 = SPLICED;
/// In [`Flow::state`]: where [`HELPED`] stands.
pub(crate) const HELPED_BITS: u8 = PROXIED | SPLICED;

/// In [`Flow::state`]: the TCP windows are not known here; the next segment begins them.
const UNHEARD: u8 = 0x20;
/// In [`Flow::state`]: the TCP windows have been learnt in the middle of the connection.
const MIDWAY: u8 = 0x10;
/// In [`Flow::state`]: the [`State`].
const STATE: u8 = 0x0f;

/// Translation of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Translated {
    /// Packets keep their addresses and ports.
    No = 0,
    /// Packets are translated.
    Yes = TRANSLATED,
}

/// TCP window state of one side: data sent, and data that the other side allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Side {
    /// Highest sequence number sent, plus one.
    end: u32,
    /// Highest sequence number that the other side allows, plus one.
    max_end: u32,
    /// Largest window offered, scaled.
    max_window: u32,
}

impl Flow {
    /// The key of packets that go as the first one did, before translation.
    #[inline(always)]
    pub fn original(&self) -> &Key {
        &self.original
    }

    /// The key of packets that come back, before they are translated back; zeroed until it is set.
    #[inline(always)]
    pub fn reply(&self) -> &Key {
        &self.reply
    }

    /// The key of packets of one direction, as they arrive.
    #[inline(always)]
    pub fn key(&self, direction: Direction) -> &Key {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }

    /// Returns the state of the connection.
    #[inline(always)]
    pub fn state(&self) -> State {
        State::ALL[usize::from(self.state & STATE)]
    }

    /// True if the gateway has made the handshake with the client.
    #[inline(always)]
    pub fn is_proxied(&self) -> bool {
        self.state & PROXIED != 0
    }

    /// True if a [helper](crate::helper) reads the connection, or changes its packets.
    #[inline(always)]
    pub fn is_helped(&self) -> bool {
        self.state & HELPED_BITS == HELPED
    }

    /// True if the flow has the GRE packets of a PPTP call: each key has the call ID of the direction's packets in the place of the destination
    /// port, and [`Key::CALL`] in that of the source port. Its packets leave with a call ID that may be another, so that it is
    /// [helped](Flow::is_helped), too.
    #[inline(always)]
    pub fn is_call(&self) -> bool {
        self.original.protocol() == Protocol::GRE.0 && self.original.sport() == Key::CALL
    }

    /// Window scales of the original side and of the other, where they have any.
    pub(crate) fn scales(&self) -> [Option<u8>; 2] {
        [self.scales & 15, self.scales >> 4].map(|scale| (scale != tcp::NO_SCALE).then_some(scale))
    }

    /// True if its packets are translated.
    #[inline(always)]
    pub fn is_translated(&self) -> bool {
        self.flags & TRANSLATED != 0
    }

    /// True if packets leave as those of the other IP version (NAT64).
    #[inline(always)]
    pub fn is_across(&self) -> bool {
        self.original.is_v4() != self.reply.is_v4()
    }

    /// Notes translation of the flow's packets.
    pub fn set_translated(&mut self, translated: Translated) {
        self.flags = self.flags & !TRANSLATED | translated as u8;
    }

    /// Returns the number of the flow's own timeout, 0 for none.
    #[inline(always)]
    fn idle_number(&self) -> u8 {
        self.flags >> 1
    }
}

/// Rarely needed fields of a flow, apart from [`Flow`] so that packets do not drag them through the cache.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Cold {
    /// The timer wheel's list; of a free place, the next free one.
    next: u32,
    previous: u32,
    /// The queue of flows that may make room.
    older: u32,
    younger: u32,
    /// Start of the flow, in [`Tick`]s.
    pub created: u32,
    /// The NAT mapping in use, as its stage numbers mappings; `u32::MAX` at first.
    pub mapping: u32,
    /// The connection limit that the flow counts against; `u32::MAX` at first.
    pub limit: u32,
    /// The source that the flow counts against; `u32::MAX` at first.
    pub source: u32,
    /// The NAT mapping that let the first packet in from outside; `u32::MAX` at first.
    pub inward: u32,
    /// The interface that the first packet came in by, by its number, which stays across a reload.
    pub ingress: u32,
    /// The destination translation, by such a number; 0 for none.
    pub dnat: u32,
    /// The source translation, by such a number; 0 for none.
    pub snat: u32,
    /// ICMP type << 8 | code of the first packet, for revalidation by other tables.
    pub kind: u16,
    /// DS field of the first packet.
    pub ds_field: u8,
    /// TCP flags of the first packet.
    pub tcp_flags: u8,
}

const _: () = assert!(size_of::<Cold>() == 52);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum State {
    /// TCP: nothing has been tracked yet.
    Opening,
    /// TCP: one side has sent a SYN.
    SynSent,
    /// TCP: both sides have sent a SYN, neither has acknowledged (simultaneous open).
    SynBoth,
    /// TCP: a SYN has been answered by SYN-ACK.
    SynReceived,
    /// TCP: the handshake is complete.
    Established,
    /// TCP: the side that opened has sent FIN, the other may go on.
    FinOriginal,
    /// TCP: the side that answered has sent FIN, the other may go on.
    FinReply,
    /// TCP: both sides have sent FIN.
    LastAck,
    /// TCP: both sides have sent FIN, and the last one is acknowledged.
    TimeWait,
    /// TCP: reset.
    Reset,
    /// UDP: no packet has come back.
    Udp,
    /// UDP: a packet has come back, possibly to a forged source that never asked.
    UdpAnswered,
    /// ICMP query.
    Icmp,
    /// Another protocol: no packet has come back.
    Other,
    /// Another protocol: a packet has come back.
    OtherAnswered,
    /// UDP: a packet has come back, and the originator has sent again.
    UdpConfirmed,
}

impl State {
    /// Every state, in the order of the enum.
    pub const ALL: [State; 16] = [
        State::Opening,
        State::SynSent,
        State::SynBoth,
        State::SynReceived,
        State::Established,
        State::FinOriginal,
        State::FinReply,
        State::LastAck,
        State::TimeWait,
        State::Reset,
        State::Udp,
        State::UdpAnswered,
        State::Icmp,
        State::Other,
        State::OtherAnswered,
        State::UdpConfirmed,
    ];

    /// The state in which a flow of this transport protocol begins.
    pub const fn first(protocol: u8) -> State {
        match protocol {
            6 => State::Opening,
            17 => State::Udp,
            1 | 58 => State::Icmp,
            _ => State::Other,
        }
    }

    /// Returns the kind of timeout in this state.
    pub const fn life(self) -> Life {
        match self {
            State::Opening | State::SynSent | State::SynBoth | State::SynReceived => Life::TcpHalfOpen,
            State::Established => Life::TcpEstablished,
            State::FinOriginal | State::FinReply | State::LastAck | State::TimeWait => Life::TcpClosing,
            State::Reset => Life::TcpReset,
            State::Udp => Life::UdpUnanswered,
            State::UdpAnswered | State::UdpConfirmed => Life::Udp,
            State::Icmp => Life::Icmp,
            State::Other | State::OtherAnswered => Life::Other,
        }
    }

    /// True if both sides have taken part, the originator again after the answer, and may go on to send. Such a flow
    /// never makes room for another. An answer alone does not count: it goes to the address that a forged source names.
    pub const fn is_established(self) -> bool {
        use State::{Established, FinOriginal, FinReply, OtherAnswered, UdpConfirmed};
        matches!(self, Established | FinOriginal | FinReply | UdpConfirmed | OtherAnswered)
    }

    /// True if the timeout of the rule that accepted the flow holds: TCP is neither opening nor closing.
    #[inline(always)]
    pub const fn is_running(self) -> bool {
        use State::{Established, Icmp, Other, OtherAnswered, Udp, UdpAnswered, UdpConfirmed};
        matches!(self, Established | Udp | UdpAnswered | UdpConfirmed | Icmp | Other | OtherAnswered)
    }
}

/// Kind of timeout, each configured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// TCP, handshake under way.
    TcpHalfOpen,
    /// TCP, established.
    TcpEstablished,
    /// TCP, one or both sides have closed.
    TcpClosing,
    /// TCP, reset.
    TcpReset,
    /// UDP that has been answered.
    Udp,
    /// UDP that has not been answered.
    UdpUnanswered,
    /// ICMP queries.
    Icmp,
    /// All other protocols.
    Other,
}

/// Timeouts of idle flows, by state, in ticks of 125 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    ticks: [u32; State::ALL.len()],
    /// Timeouts of rules, by number; 0 for none.
    own: [u32; MOST_OWN + 1],
}

/// Highest number of different timeouts that rules can have: a flow keeps the number of its own in seven bits.
pub(crate) const MOST_OWN: usize = 127;

impl Timeouts {
    /// Takes the timeouts that `span` gives, rounded down to whole ticks, at least one.
    pub fn new(span: impl Fn(Life) -> Nanos) -> Timeouts {
        let ticks = State::ALL.map(|state| Tick::within(span(state.life())).0.max(1));
        Timeouts { ticks, own: [0; MOST_OWN + 1] }
    }

    /// Returns the same timeouts with those of rules, by number from 1.
    pub fn with_own(mut self, spans: &[Nanos]) -> Timeouts {
        for (own, span) in self.own[1..].iter_mut().zip(spans) {
            *own = Tick::within(*span).0.max(1);
        }
        self
    }

    /// The longest of all.
    fn longest(&self) -> u32 {
        self.ticks.into_iter().chain(self.own).max().unwrap_or(0)
    }

    /// The timeout of a flow.
    #[inline(always)]
    fn of_flow(&self, flow: &Flow) -> u32 {
        let own = self.own[usize::from(flow.idle_number())];
        if own != 0 && flow.state().is_running() { own } else { self.of(flow.state()) }
    }

    /// The timeout of a state.
    #[inline(always)]
    pub fn of(&self, state: State) -> u32 {
        self.ticks[state as usize]
    }
}

#[cfg(test)]
mod tests;
