//! Bounds on state, and timeouts.

use wire::{Bytes, Nanos};

use super::seconds;

/// Bounds on memory and rates. All memory is allocated at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most flows at one time, 1 to 16,777,216.
    pub flows: u32,
    /// Reaction to a new flow when the table is full.
    pub when_full: WhenFull,
    /// Most flows of one source address at one time; unbounded if absent.
    pub flows_per_source: Option<u32>,
    /// Bounds on virtual reassembly.
    pub fragments: FragmentLimits,
    /// Most ICMP errors and resets that the gateway sends to one receiver, per second (RFC 1812, section 4.3.2.8; RFC 4443,
    /// 2.4 f), of each kind (packet too big; unreachable; refused).
    pub errors_per_second: u32,
    /// Most ICMP errors and resets to all receivers together, per second, of each kind.
    pub errors_in_all: u32,
    /// Length of an interface's transmit queue, in frames; frames past it are dropped from the tail.
    pub queue: u32,
    /// Most security associations of each direction that are added at run time to those of the policy, 1 to 65,536.
    pub sas: u32,
    /// Check of TCP sequence numbers against the window.
    pub tcp_window: TcpWindow,
    /// Pickup of TCP flows in mid-stream.
    pub pickup: Pickup,
    /// Verification of transport checksums of packets that open or close a flow.
    pub checksum: Checksum,
}

/// Bounds on virtual reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Most datagrams with fragments under way at one time.
    pub datagrams: u32,
    /// Most fragments parked until their first fragment arrives, all datagrams together.
    pub held: u32,
    /// Largest datagram, in bytes.
    pub datagram: Bytes,
}

/// Reaction of a full flow table to a new flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The new flow is refused; existing flows are unharmed.
    Refuse,
    /// The longest idle of the oldest flows that both sides have not confirmed is evicted; without any, the new flow is refused.
    /// Senders with spoofed addresses so crowd out one another.
    #[default]
    EvictIdle,
}

/// Check of TCP sequence numbers against the window (van Rooij, Real Stateful TCP Packet Filtering).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpWindow {
    /// Segments out of the window are dropped.
    #[default]
    Strict,
    /// Segments out of the window pass.
    Off,
}

/// Pickup of TCP flows without a handshake seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pickup {
    /// Only a SYN opens a flow.
    #[default]
    Refuse,
    /// Any segment but RST opens a flow, if a rule accepts it; the window starts from that segment.
    Accept,
}

/// Check of TCP, UDP and ICMP checksums of packets that would open or close a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Packets with a wrong checksum are dropped.
    #[default]
    Verify,
    /// Checksums are ignored, as for captures taken on the sender before its card filled them in.
    Ignore,
}

/// Lifetimes of idle flows, by protocol and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, handshake incomplete (RFC 5382, REQ-5: 4 minutes at least).
    pub tcp_half_open: Nanos,
    /// TCP, established (RFC 5382, REQ-5: 2 hours 4 minutes at least).
    pub tcp_established: Nanos,
    /// TCP, one or both ends have closed.
    pub tcp_closing: Nanos,
    /// TCP, reset.
    pub tcp_reset: Nanos,
    /// UDP that has been answered (RFC 4787, REQ-5: 2 minutes at least, 5 recommended).
    pub udp: Nanos,
    /// UDP without an answer: 30 seconds, as in Linux. [`Timeouts::udp`] applies if shorter.
    pub udp_unanswered: Nanos,
    /// ICMP echo (RFC 5508, REQ-2: 60 seconds at least).
    pub icmp: Nanos,
    /// All other protocols.
    pub other: Nanos,
    /// Fragments of an incomplete datagram (RFC 8200, section 4.5: 60 seconds; RFC 791: 15).
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
            sas: 1_024,
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
