//! Bounds on what is remembered, and for how long.

use wire::{Bytes, Nanos};

use super::seconds;

/// Bounds on memory and rates. All memory is allocated at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows that can exist at one time, 1 to 16,777,216.
    pub flows: u32,
    /// What happens when there are that many.
    pub when_full: WhenFull,
    /// The most flows that one source address may have open at one time; no bound where absent.
    pub flows_per_source: Option<u32>,
    /// Fragments.
    pub fragments: FragmentLimits,
    /// ICMP errors and resets that the gateway sends to one receiver, a second (RFC 1812, section 4.3.2.8; RFC 4443,
    /// 2.4 f): of each kind (packet too big; no way; refused) so many.
    pub errors_per_second: u32,
    /// Those that it sends to all receivers together, a second, of each kind.
    pub errors_in_all: u32,
    /// Frames that wait for an interface; those past it are dropped from the tail.
    pub queue: u32,
    /// Window check: must TCP sequence numbers lie in the window?
    pub tcp_window: TcpWindow,
    /// Pickup of TCP flows in their middle.
    pub pickup: Pickup,
    /// Verification of transport checksums where a packet opens or closes a flow.
    pub checksum: Checksum,
}

/// Bounds on virtual reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Datagrams of which fragments may be under way at one time.
    pub datagrams: u32,
    /// Fragments that may wait for their first fragment, all datagrams together.
    pub held: u32,
    /// The largest datagram that fragments may make up.
    pub datagram: Bytes,
}

/// What a full flow table does with a new flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The new flow is refused; those that exist are unharmed.
    Refuse,
    /// A flow that both sides have not confirmed makes room, of the oldest of these the one that has been idle longest; the
    /// new one is refused where there is none. So those who send from addresses that are not theirs crowd out one another.
    #[default]
    EvictIdle,
}

/// Check of TCP sequence numbers against the window (van Rooij, Real Stateful TCP Packet Filtering).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpWindow {
    /// Segments out of the window are dropped.
    #[default]
    Strict,
    /// They pass.
    Off,
}

/// Pickup of TCP flows whose handshake was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pickup {
    /// Only a SYN opens a flow.
    #[default]
    Refuse,
    /// Any segment but RST does, if a rule accepts it; the window is learnt from it.
    Accept,
}

/// Check of TCP, UDP and ICMP checksums of packets that would open or close a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Wrong ones are dropped.
    #[default]
    Verify,
    /// Not looked at, as for captures taken on the sending machine before its card filled them in.
    Ignore,
}

/// How long an idle flow is remembered, by protocol and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, handshake under way (RFC 5382, REQ-5: 4 minutes at least).
    pub tcp_half_open: Nanos,
    /// TCP, established (RFC 5382, REQ-5: 2 hours 4 minutes at least).
    pub tcp_established: Nanos,
    /// TCP, one or both ends have closed.
    pub tcp_closing: Nanos,
    /// TCP, reset.
    pub tcp_reset: Nanos,
    /// UDP that has been answered (RFC 4787, REQ-5: 2 minutes at least, 5 recommended).
    pub udp: Nanos,
    /// UDP that nobody has answered: 30 seconds, as in Linux. [`Timeouts::udp`] holds where that is shorter.
    pub udp_unanswered: Nanos,
    /// ICMP echo (RFC 5508, REQ-2: 60 seconds at least).
    pub icmp: Nanos,
    /// All other protocols.
    pub other: Nanos,
    /// Fragments of a datagram that is not complete (RFC 8200, section 4.5: 60 seconds; RFC 791: 15).
    pub fragment: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            flows: 65_536,
            when_full: WhenFull::EvictIdle,
            flows_per_source: None,
            fragments: FragmentLimits::default(),
            errors_per_second: 100,
            errors_in_all: 10_000,
            queue: 1_024,
            tcp_window: TcpWindow::Strict,
            pickup: Pickup::Refuse,
            checksum: Checksum::Verify,
        }
    }
}

impl Default for FragmentLimits {
    fn default() -> FragmentLimits {
        FragmentLimits { datagrams: 1_024, held: 256, datagram: Bytes(65_535) }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            tcp_half_open: seconds(240),
            tcp_established: seconds(7_440),
            tcp_closing: seconds(240),
            tcp_reset: seconds(10),
            udp: seconds(300),
            udp_unanswered: seconds(30),
            icmp: seconds(60),
            other: seconds(600),
            fragment: seconds(30),
        }
    }
}
