//! The network around the gateway: packets and timers on their way, in the order of time, and assembly of packets.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use wire::build;
use wire::ethernet::{EtherType, Mac};
use wire::header::{Fragment, Protocol};
use wire::ipv4;
use wire::random::Random;
use wire::unit::Nanos;

use super::tcp::{Exchange, Key};
use super::{Family, Intent, Settings, Side};

/// Most packets and timers that may be queued; beyond it, replies are lost, as in a real queue.
const MAX_QUEUE: usize = 1 << 16;
/// Most data of any packet, in bytes, fragments taken together.
const FILLER: usize = 16384;
/// Transmission time of a full frame on a link of 1 Gbit/s.
pub(super) const FRAME_TIME: Nanos = Nanos(12_304);

/// The network on both sides of the gateway. Whoever sends on it shares its randomness and its events.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) settings: Settings,
    pub(super) random: Random,
    queue: BinaryHeap<Timed>,
    sequence: u64,
    /// Filler for data whose content does not matter.
    filler: Vec<u8>,
    id: u16,
}

/// An event at its time.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) at: Nanos,
    sequence: u64,
    pub(super) task: Task,
}

/// Task of an event.
#[derive(Debug)]
pub(super) enum Task {
    /// A packet enters the gateway.
    Send(Side, Intent, Vec<u8>),
    /// A user in the office begins an activity.
    Begin,
    /// A host on the internet attacks, or a machine in the office makes noise.
    Attack,
    Chatter,
    /// An activity goes on.
    Continue(Activity),
    /// Opens a connection for these exchanges, last one first.
    Connect(Key, Vec<Exchange>),
    /// A connection's timer.
    Timer(Key),
}

/// An activity of several packets from one sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    pub(super) kind: ActivityKind,
    pub(super) route: Route,
    /// The local port, or the identifier of a ping.
    pub(super) lport: u16,
    /// Packets sent so far, and in all.
    pub(super) sent: u16,
    pub(super) total: u16,
}

/// Application of an activity.
#[derive(Clone, Copy, Debug)]
pub(super) enum ActivityKind {
    Quic,
    Call,
    Ping,
    Trace,
}

/// Source and destination of a packet, for a reply or a new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) side: Side,
    pub(super) mac: Mac,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
}

/// An IP packet that arrived, and the route of its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    /// Route of a reply: from its destination to its source.
    pub(super) route: Route,
    /// The packet, from its IP header on, link-layer padding included.
    pub(super) packet: &'a [u8],
    /// TTL or hop limit of the packet.
    pub(super) hops: u8,
}

impl Network {
    /// The network that `settings` describe, without an event.
    pub(super) fn new(settings: Settings) -> Network {
        let mut random = Random::new(settings.seed);
        // Letters, which no dissector takes for a protocol of its own.
        let filler = (0..FILLER).map(|_| b'a' + random.below(26) as u8).collect();
        Network { settings, random, queue: BinaryHeap::new(), sequence: 0, filler, id: 0 }
    }

    /// Schedules `task` for `at`.
    pub(super) fn schedule(&mut self, at: Nanos, task: Task) {
        if self.queue.len() >= MAX_QUEUE {
            return;
        }
        self.sequence += 1;
        self.queue.push(Timed { at, sequence: self.sequence, task });
    }

    /// Takes the earliest event.
    pub(super) fn pop(&mut self) -> Option<Timed> {
        self.queue.pop()
    }

    /// Drops all events to come.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Sends a packet with nothing wrong in it.
    pub(super) fn send(&mut self, at: Nanos, side: Side, packet: &build::Packet<'_>) {
        self.schedule(at, Task::Send(side, Intent::Honest, packet.clone().pad_to(60).to_vec()));
    }

    /// Starts a packet along `route`.
    pub(super) fn packet<'a>(&mut self, route: Route) -> build::Packet<'a> {
        let link = build::ethernet(route.mac, self.settings.link(route.side).mac);
        self.id = self.id.wrapping_add(1);
        match (route.src, route.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => link.ipv4(src, dst).id(self.id),
            (IpAddr::V6(src), IpAddr::V6(dst)) => link.ipv6(src, dst),
            // No caller mixes versions; a frame of no protocol is what such a packet would be.
            _ => link.ethertype(EtherType(0xffff)),
        }
    }

    /// `len` bytes of data, at most [`FILLER`], that begin with `head`.
    pub(super) fn data(&mut self, head: &[u8], len: usize) -> Vec<u8> {
        let len = len.min(FILLER);
        let from = self.random.below((FILLER - len) as u64 + 1) as usize;
        let mut data = self.filler.get(from..from + len).unwrap_or_default().to_vec();
        for (byte, value) in data.iter_mut().zip(head) {
            *byte = *value;
        }
        data
    }

    /// A datagram of any size as IPv4 fragments that fit Ethernet.
    pub(super) fn send_in_fragments(&mut self, at: Nanos, route: Route, ports: (u16, u16), data: &[u8]) {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (route.src, route.dst) else { return };
        let whole = build::ipv4(src, dst).udp(ports.0, ports.1).payload(data).to_vec();
        let datagram = whole.get(ipv4::MIN_HEADER_LEN..).unwrap_or_default();
        self.id = self.id.wrapping_add(1);
        for (n, piece) in datagram.chunks(1480).enumerate() {
            let more = (n + 1) * 1480 < datagram.len();
            let fragment = Fragment { id: u32::from(self.id), offset: (n * 1480) as u16, more };
            let packet = self.packet(route).fragment(fragment).protocol(Protocol::UDP).payload(piece);
            self.send(at + Nanos(n as u64 * FRAME_TIME.0), route.side, &packet);
        }
    }

    /// Round-trip time from the gateway to `address`.
    pub(super) fn round_trip(&self, side: Side, address: IpAddr) -> Nanos {
        match (side, address) {
            (Side::Lan, _) => Nanos(250_000),
            // 4 to 40 ms, the same for one address always.
            (Side::Wan, IpAddr::V4(address)) => {
                Nanos(4_000_000 + u64::from(address.octets()[3] % 37) * 1_000_003)
            }
            (Side::Wan, IpAddr::V6(address)) => {
                Nanos(4_000_000 + u64::from(address.octets()[15] % 37) * 1_000_003)
            }
        }
    }

    /// Selects the IP version of a new connection: IPv6 for `percent` in a hundred, if the office has any.
    pub(super) fn family(&mut self, percent: u64) -> Family {
        let settings = &self.settings;
        let v6 = settings.lan.v6.is_some() && settings.wan.v6.is_some();
        if v6 && self.random.chance(percent) { Family::V6 } else { Family::V4 }
    }

    /// Hardware address that an address on a side resolves to: on the outside the provider's router answers for
    /// everybody but the gateway.
    pub(super) fn owner(&self, side: Side, address: IpAddr) -> Option<Mac> {
        let wan = self.settings.wan;
        match side {
            Side::Wan if address == IpAddr::V4(wan.v4) || Some(address) == wan.v6.map(IpAddr::V6) => None,
            Side::Wan => Some(wan.neighbour),
            Side::Lan => {
                let host =
                    self.settings.hosts.iter().find(|host| {
                        IpAddr::V4(host.v4) == address || host.v6.map(IpAddr::V6) == Some(address)
                    });
                host.map(|host| host.mac)
            }
        }
    }
}

impl Ord for Timed {
    /// The earliest event is the greatest, since the heap pops that first; of two at one time, the one scheduled first.
    fn cmp(&self, other: &Timed) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}
