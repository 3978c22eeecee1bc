//! What is remembered of connections: a table of fixed capacity, found from either direction by one look-up.
//!
//! A [`Flow`] has two [`Key`]s, one for each direction of its packets as they arrive, a state with a timeout, and
//! what the stages decided for it, so that later packets need not ask again. [`FlowTable`] takes all its memory
//! when it is made. It promises: no allocation later; nobody can aim packets at one bucket without knowing the
//! seed; work per call is bounded. It refuses, with a typed [`Refusal`], a flow too many and a key that is
//! taken. It knows no policy: who may open a flow, and what makes room in a full table, the caller decides.
//!
//! For many packets at once, go over the batch once per step, so that memory is fetched ahead:
//! [`FlowTable::hash`] and [`FlowTable::prefetch_bucket`]; [`FlowTable::candidate_hit`] and
//! [`FlowTable::prefetch_flow`]; [`FlowTable::find_from`].

mod evictable;
mod handshake;
pub(crate) mod hash;
mod index;
mod key;
mod sender;
mod steering;
mod table;
pub mod tcp;
mod wheel;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use wire::Nanos;

pub use handshake::Handshake;
pub(crate) use handshake::{Numbers, numbers};
pub use key::Key;
pub(crate) use sender::{Senders, senders};
pub use steering::{SteeringError, SteeringTable};
pub use table::{FlowTable, Former, Hit, Member, Refusal, Windows};
use wheel::NONE;
pub use wheel::Tick;

/// A flow by its place in the table. It is taken by another flow some time after this one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowId(pub u32);

/// Which way a packet of a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the first packet of the flow.
    Original = 0,
    /// The other way.
    Reply = 1,
}

impl Direction {
    /// The other way.
    #[inline(always)]
    pub fn turned(self) -> Direction {
        match self {
            Direction::Original => Direction::Reply,
            Direction::Reply => Direction::Original,
        }
    }
}

/// What is remembered of a connection: two cache lines. The first is all that a packet of the original
/// direction needs where nothing is translated and no window is tracked.
///
/// Keys and state change only through the [`FlowTable`], which must keep its index and timers true. The other
/// fields are the stages' own; the table zeroes them when the flow begins.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Flow {
    original: Key,
    /// The next hop of packets, per [`Direction`]: `route` writes it.
    pub hops: [u32; 2],
    /// When the last packet was seen, in [`Tick`]s: `track` writes it.
    pub seen: u32,
    /// The rule that let the flow in: `filter` writes it.
    pub rule: u32,
    /// Which translations apply, as their stage encodes them.
    pub nat: u16,
    /// The epoch of the tables that `hops`, `rule`, `nat` and `class` come from; [`STALE`] where those are long gone.
    pub epoch: u16,
    /// The [`State`] in the low four bits; above it, who has made the handshake ([`Flow::handshake`]).
    state: u8,
    /// TCP window scales: the original side's in the low four bits, the reply side's in the high four.
    scales: u8,
    /// Whether anything is translated, in the lowest bit; above it, which timeout of its own it has ([`FlowTable::set_idle`]).
    flags: u8,
    /// The traffic class: `classify` writes it.
    pub class: u8,
    reply: Key,
    /// What each side of a TCP connection may send, per [`Direction`].
    sides: [Side; 2],
}

const _: () = assert!(size_of::<Flow>() == 128);

/// The epoch of flows that none of the last tables has decided: none has it.
pub const STALE: u16 = 0;

/// In [`Flow::flags`].
const TRANSLATED: u8 = 1;

/// In [`Flow::state`]: the gateway has answered the SYN, and opens the connection to the server.
const PROXIED: u8 = 0x80;
/// In [`Flow::state`]: so it has, and knows by how much the server's sequence numbers differ from those that the client sees.
const SPLICED: u8 = 0x40;

/// Translation of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Translated {
    /// They go on as they are.
    No = 0,
    /// They are.
    Yes = TRANSLATED,
}

/// What one side of a TCP connection has sent and may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Side {
    /// The highest sequence number that it has sent, plus one.
    end: u32,
    /// The highest sequence number that the other side allows it to send, plus one.
    max_end: u32,
    /// The largest window that it has offered, scaled.
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

    /// Where the connection stands.
    #[inline(always)]
    pub fn state(&self) -> State {
        State::ALL[usize::from(self.state) % State::ALL.len()]
    }

    /// True if the gateway has made the handshake with the client.
    #[inline(always)]
    pub fn is_proxied(&self) -> bool {
        self.state & PROXIED != 0
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

    /// Notes whether its packets are translated.
    pub fn set_translated(&mut self, translated: Translated) {
        self.flags = self.flags & !TRANSLATED | translated as u8;
    }

    /// Which timeout of its own it has, 0 for none.
    #[inline(always)]
    fn idle_number(&self) -> u8 {
        self.flags >> 1
    }
}

/// What is rarely needed of a flow; it lies apart so that packets do not drag it through the cache.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Cold {
    /// The timer wheel's list; of a free place, the next free one.
    next: u32,
    previous: u32,
    /// The queue of flows that may make room.
    older: u32,
    younger: u32,
    /// When the flow began, in [`Tick`]s.
    pub created: u32,
    /// The NAT mapping that it uses, as its stage numbers them; `u32::MAX` at first.
    pub mapping: u32,
    /// The connection limit that it counts against; `u32::MAX` at first.
    pub limit: u32,
    /// The source that it counts against; `u32::MAX` at first.
    pub source: u32,
    /// The NAT mapping that its first packet was let in by, from outside; `u32::MAX` at first.
    pub inward: u32,
    /// By number, which stays when tables are swapped: the interface that its first packet came in by.
    pub ingress: u32,
    /// Likewise the destination translation, 0 for none.
    pub dnat: u32,
    /// Likewise the source translation, 0 for none.
    pub snat: u32,
    /// What other tables have to know of the first packet to revalidate it: of ICMP, type << 8 | code.
    pub kind: u16,
    /// Its DS field.
    pub ds_field: u8,
    /// Its TCP flags.
    pub tcp_flags: u8,
}

const _: () = assert!(size_of::<Cold>() == 52);

/// Where a connection stands.
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
    /// UDP: nothing has come back.
    Udp,
    /// UDP: something has come back, for which a source that is forged has not asked.
    UdpAnswered,
    /// ICMP query.
    Icmp,
    /// Another protocol: nothing has come back.
    Other,
    /// Another protocol: something has come back.
    OtherAnswered,
    /// UDP: something has come back, and whoever began has gone on.
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

    /// Which timeout holds.
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

    /// True if both sides have taken part, the one that began after it was answered, and may go on to send. Such a flow never
    /// makes room for another. An answer alone does not count: it goes to whoever a forged source names.
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

/// What a timeout is configured for.
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
    /// UDP that has not.
    UdpUnanswered,
    /// ICMP queries.
    Icmp,
    /// All other protocols.
    Other,
}

/// How long an idle flow is remembered, by state, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    ticks: [u32; State::ALL.len()],
    /// Those that rules say, by number; 0 where there is none.
    own: [u32; MOST_OWN + 1],
}

/// How many different timeouts rules can have: a flow keeps the number of its own in seven bits.
pub(crate) const MOST_OWN: usize = 127;

impl Timeouts {
    /// Takes the spans that `span` gives. They are rounded down to whole ticks, of which there is one at least.
    pub fn new(span: impl Fn(Life) -> Nanos) -> Timeouts {
        let ticks = State::ALL.map(|state| Tick::within(span(state.life())).0.max(1));
        Timeouts { ticks, own: [0; MOST_OWN + 1] }
    }

    /// The same, with those that rules say, by number from 1.
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
