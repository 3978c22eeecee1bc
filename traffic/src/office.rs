//! The event loop: events in the order of time, replies to packets that arrived, and assembly of packets.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use wire::arp;
use wire::build::{self, Icmp, Tcp};
use wire::ethernet::{self, EtherType, Mac};
use wire::header::{Fragment, Protocol};
use wire::icmpv6::{self, AdvertisementFlags, Discovery};
use wire::random::Random;
use wire::tcp::Flags;
use wire::unit::{Dscp, Nanos};
use wire::{icmpv4, ipv4, ipv6, tcp};

use super::app::{self, Activity};
use super::hostile;
use super::tcp::{Endpoint, Exchange, Key, Outgoing};
use super::{Family, Intent, Packet, Settings, Side};

/// Most packets and timers that may be queued; beyond it, replies are lost, as in a real queue.
const MAX_QUEUE: usize = 1 << 16;
/// Most data of any packet, in bytes, fragments taken together.
const FILLER: usize = 16384;
/// MSS of 1460 and 1440 bytes, SACK permitted, window scale 7.
const SYN_OPTIONS_V4: [u8; 12] = [2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7];
const SYN_OPTIONS_V6: [u8; 12] = [2, 4, 0x05, 0xa0, 1, 1, 4, 2, 1, 3, 3, 7];
/// Transmission time of a full frame on a link of 1 Gbit/s.
const FRAME_TIME: Nanos = Nanos(12_304);

/// The world around a gateway: an office on one side, the internet on the other.
#[derive(Debug)]
pub struct Office {
    pub(super) settings: Settings,
    pub(super) random: Random,
    queue: BinaryHeap<Timed>,
    sequence: u64,
    /// Time of the last packet sent, and time of the end.
    now: Nanos,
    end: Nanos,
    connections: BTreeMap<Key, Endpoint>,
    /// Filler for data whose content does not matter.
    filler: Vec<u8>,
    id: u16,
}

/// An event at its time.
#[derive(Debug)]
struct Timed {
    at: Nanos,
    sequence: u64,
    task: Task,
}

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

/// Source and destination of a packet, for a reply or a new one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) side: Side,
    pub(super) mac: Mac,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
}

impl Office {
    /// The office that `settings` describe, before its first packet.
    pub fn new(settings: Settings) -> Office {
        let mut random = Random::new(settings.seed);
        // Letters, which no dissector takes for a protocol of its own.
        let filler = (0..FILLER).map(|_| b'a' + random.below(26) as u8).collect();
        let mut office = Office {
            random,
            queue: BinaryHeap::new(),
            sequence: 0,
            now: settings.start,
            end: settings.start + settings.duration,
            connections: BTreeMap::new(),
            filler,
            id: 0,
            settings,
        };
        let start = office.settings.start;
        app::greet(&mut office, start);
        office.schedule(start + Nanos::from_millis(20), Task::Chatter);
        if office.settings.activities_per_second > 0 && !office.settings.hosts.is_empty() {
            office.schedule(start + Nanos::from_millis(50), Task::Begin);
        }
        if office.settings.attacks_per_second > 0 {
            office.schedule(start + Nanos::from_millis(70), Task::Attack);
        }
        office
    }

    /// The next packet that enters the gateway, later than the one before; `None` at the end.
    // Not an `Iterator`, since what comes next depends on what arrives in between.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Packet> {
        loop {
            let Timed { at, task, .. } = self.queue.pop()?;
            if at >= self.end {
                self.queue.clear();
                return None;
            }
            match task {
                Task::Send(side, intent, bytes) => {
                    // Never two at one time, so that captures of both sides merge in one way only.
                    self.now = at.max(self.now + Nanos(1));
                    return Some(Packet { at: self.now, side, bytes, intent });
                }
                Task::Begin => {
                    app::begin(self, at);
                    let wait = self.every(self.settings.activities_per_second);
                    self.schedule(at + wait, Task::Begin);
                }
                Task::Attack => {
                    hostile::attack(self, at);
                    let wait = self.every(self.settings.attacks_per_second);
                    self.schedule(at + wait, Task::Attack);
                }
                Task::Chatter => {
                    app::chatter(self, at);
                    let wait = self.every(4);
                    self.schedule(at + wait, Task::Chatter);
                }
                Task::Continue(activity) => app::go_on(self, at, activity),
                Task::Connect(key, exchanges) => self.connect(at, key, exchanges),
                Task::Timer(key) => self.timer(at, key),
            }
        }
    }

    /// Reports that `frame` left the gateway on `side` at `at`. A time before the last packet of [`next`](Office::next)
    /// counts as that packet's time.
    pub fn arrived(&mut self, side: Side, at: Nanos, frame: &[u8]) {
        let at = at.max(self.now);
        let Ok(layer) = ethernet::parse(frame) else { return };
        // An answer comes from whoever the frame was for.
        let mac = layer.header.dst();
        match layer.ethertype {
            EtherType::ARP => self.answer_arp(side, at, layer.payload),
            EtherType::IPV4 => {
                let Ok(packet) = ipv4::parse(layer.payload) else { return };
                let header = packet.header;
                let route = Route { side, mac, src: header.dst().into(), dst: header.src().into() };
                if header.fragment().is_some_and(|fragment| !fragment.is_first()) {
                    return;
                }
                let ip = Arrived { route, packet: layer.payload, hops: header.ttl() };
                self.answer(at, ip, header.protocol(), packet.payload, header.is_fragment());
            }
            EtherType::IPV6 => {
                let Ok(packet) = ipv6::parse(layer.payload) else { return };
                let header = packet.header;
                let route = Route { side, mac, src: header.dst().into(), dst: header.src().into() };
                let ip = Arrived { route, packet: layer.payload, hops: header.hop_limit() };
                self.answer(at, ip, packet.protocol(), packet.payload, false);
            }
            _ => {}
        }
    }

    /// Schedules `task` for `at`.
    pub(super) fn schedule(&mut self, at: Nanos, task: Task) {
        if self.queue.len() >= MAX_QUEUE {
            return;
        }
        self.sequence += 1;
        self.queue.push(Timed { at, sequence: self.sequence, task });
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

    fn every(&mut self, per_second: u32) -> Nanos {
        let mean = Nanos(1_000_000_000 / u64::from(per_second.max(1)));
        self.random.exponential(mean)
    }

    fn answer(&mut self, at: Nanos, ip: Arrived<'_>, protocol: Protocol, payload: &[u8], fragment: bool) {
        let route = ip.route;
        let later = at + self.round_trip(route.side, route.src);
        match (protocol, route.src) {
            (Protocol::TCP, _) if !fragment => self.answer_tcp(at, later, route, payload),
            (Protocol::UDP, _) => app::answer_udp(self, later, &ip, payload, fragment),
            (Protocol::ICMP, IpAddr::V4(_)) => {
                let Ok(message) = icmpv4::parse_verified(payload) else { return };
                if message.header.kind() == icmpv4::Type::ECHO_REQUEST {
                    let (id, seq) = (message.header.id(), message.header.seq());
                    let packet = self.packet(route).echo_reply(id, seq).payload(message.body);
                    self.send(later, route.side, &packet);
                }
            }
            (Protocol::ICMPV6, IpAddr::V6(_)) => self.answer_icmpv6(later, &ip, payload),
            _ => {}
        }
    }

    fn answer_arp(&mut self, side: Side, at: Nanos, payload: &[u8]) {
        let Ok(packet) = arp::parse(payload) else { return };
        if packet.operation() != arp::Operation::REQUEST {
            return;
        }
        let Some(mac) = self.owner(side, packet.target_ip().into()) else { return };
        let fields = arp::Fields {
            operation: arp::Operation::REPLY,
            sender_mac: mac,
            sender_ip: packet.target_ip(),
            target_mac: packet.sender_mac(),
            target_ip: packet.sender_ip(),
        };
        let reply = build::ethernet(mac, packet.sender_mac()).arp(fields);
        self.send(at + Nanos(100_000), side, &reply);
    }

    fn answer_icmpv6(&mut self, at: Nanos, ip: &Arrived<'_>, payload: &[u8]) {
        let (side, IpAddr::V6(asker)) = (ip.route.side, ip.route.dst) else { return };
        let Ok(message) = icmpv6::parse(payload) else { return };
        if message.header.kind() == icmpv6::Type::ECHO_REQUEST {
            let (id, seq) = (message.header.id(), message.header.seq());
            let packet = self.packet(ip.route).echo_reply(id, seq).payload(message.body);
            self.send(at, side, &packet);
        }
        if let Some(Ok(Discovery::NeighborSolicitation { target, .. })) = message.discovery() {
            let Some(mac) = self.owner(side, target.into()) else { return };
            let flags = AdvertisementFlags::SOLICITED.and(AdvertisementFlags::OVERRIDE);
            let mut body = target.octets().to_vec();
            body.extend([2, 1]);
            body.extend(mac.0);
            let kind = icmpv6::Type::NEIGHBOR_ADVERTISEMENT.0;
            let advertisement = Icmp { kind, code: 0, rest: [flags.0, 0, 0, 0] };
            let route = Route { side, mac, src: target.into(), dst: asker.into() };
            let packet = self.packet(route).ttl(255).icmpv6(advertisement).payload(&body);
            self.send(at, side, &packet);
        }
    }

    /// Hardware address that an address on a side resolves to: on the outside the provider's router answers for
    /// everybody but the gateway.
    fn owner(&self, side: Side, address: IpAddr) -> Option<Mac> {
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

    fn answer_tcp(&mut self, at: Nanos, later: Nanos, route: Route, payload: &[u8]) {
        let Ok(segment) = tcp::parse(payload) else { return };
        let (flags, ports) = (segment.header.flags(), segment.header.ports());
        let Route { side, src: local, dst: remote, .. } = route;
        let key = Key { side, local, lport: ports.dport, remote, rport: ports.sport };
        if !self.connections.contains_key(&key) {
            if flags.masked(Flags::SYN_ACK.and(Flags::RST)) != Flags::SYN {
                return;
            }
            let listens = match side {
                Side::Lan => true,
                Side::Wan => self.settings.is_server(local) && matches!(ports.dport, 80 | 443 | 993),
            };
            if !listens || self.connections.len() >= self.settings.max_connections {
                let ack = segment.header.seq().wrapping_add(1);
                let flags = Flags::RST.and(Flags::ACK);
                let refusal = Tcp { sport: ports.dport, dport: ports.sport, ack, flags, ..Tcp::default() };
                let packet = self.packet(route).tcp(refusal);
                self.send(later, side, &packet);
                return;
            }
            let initial = self.random.next_u64() as u32;
            self.connections.insert(key, Endpoint::server(initial));
        }
        let Some(endpoint) = self.connections.get_mut(&key) else { return };
        let mut out = Vec::new();
        endpoint.receive(at, &segment, &mut out);
        self.follow_up(later, key, route.mac, out);
    }

    /// Opens a connection, up to the limit.
    fn connect(&mut self, at: Nanos, key: Key, exchanges: Vec<Exchange>) {
        if self.connections.len() >= self.settings.max_connections || self.connections.contains_key(&key) {
            return;
        }
        let mac = match key.side {
            Side::Wan => self.settings.wan.neighbour,
            Side::Lan => self.owner(Side::Lan, key.local).unwrap_or(Mac::ZERO),
        };
        let mut endpoint = Endpoint::client(self.random.next_u64() as u32, exchanges);
        let mut out = Vec::new();
        endpoint.open(at, &mut out);
        self.connections.insert(key, endpoint);
        self.follow_up(at, key, mac, out);
    }

    fn timer(&mut self, at: Nanos, key: Key) {
        let Some(endpoint) = self.connections.get_mut(&key) else { return };
        if endpoint.timer != at {
            return;
        }
        endpoint.timer = Nanos::MAX;
        let mut out = Vec::new();
        if endpoint.deadline <= at {
            endpoint.time_out(at, &mut out);
        }
        let mac = match key.side {
            Side::Wan => self.settings.wan.neighbour,
            Side::Lan => self.owner(Side::Lan, key.local).unwrap_or(Mac::ZERO),
        };
        self.follow_up(at, key, mac, out);
    }

    /// Sends the segments of an end, sets its timer, and removes it when it is over.
    fn follow_up(&mut self, at: Nanos, key: Key, mac: Mac, out: Vec<Outgoing>) {
        let route = Route { side: key.side, mac, src: key.local, dst: key.remote };
        let free = self.connections.get(&key).map_or(at, |endpoint| endpoint.busy_until);
        let mut at_link = at.max(free);
        for segment in out {
            let data = self.data(segment.header.as_ref().map_or(&[], |header| &header[..]), segment.len);
            let options: &[u8] = match (segment.flags.contains(Flags::SYN), key.local) {
                (false, _) => &[],
                (true, IpAddr::V4(_)) => &SYN_OPTIONS_V4,
                (true, IpAddr::V6(_)) => &SYN_OPTIONS_V6,
            };
            let header = Tcp {
                sport: key.lport,
                dport: key.rport,
                seq: segment.seq,
                ack: segment.ack,
                flags: segment.flags,
                options,
                ..Tcp::default()
            };
            let packet = self.packet(route).dont_fragment().tcp(header).payload(&data);
            self.send(at_link, key.side, &packet);
            at_link += FRAME_TIME;
        }
        let Some(endpoint) = self.connections.get_mut(&key) else { return };
        // What comes later stays behind what is still on its way.
        endpoint.busy_until = at_link;
        if endpoint.is_over() {
            self.connections.remove(&key);
        } else if endpoint.timer > endpoint.deadline {
            let timer = endpoint.deadline.max(at);
            endpoint.timer = timer;
            self.schedule(timer, Task::Timer(key));
        }
    }

    /// Number of live connections, for tests.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Selects the IP version of a new connection: IPv6 for `percent` in a hundred, if the office has any.
    pub(super) fn family(&mut self, percent: u64) -> Family {
        let settings = &self.settings;
        let v6 = settings.lan.v6.is_some() && settings.wan.v6.is_some();
        if v6 && self.random.chance(percent) { Family::V6 } else { Family::V4 }
    }

    /// The code point of voice.
    pub(super) const VOICE: Option<Dscp> = Dscp::new(46);
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
