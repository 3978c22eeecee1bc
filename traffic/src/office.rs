//! The office and its event loop: events in the order of time, and replies to packets that arrived.

use std::collections::BTreeMap;
use std::net::IpAddr;

use wire::arp;
use wire::build::{self, Icmp, Tcp};
use wire::ethernet::{self, EtherType, Mac};
use wire::header::Protocol;
use wire::icmpv6::{self, AdvertisementFlags, Discovery};
use wire::tcp::Flags;
use wire::unit::Nanos;
use wire::{icmpv4, ipv4, ipv6, tcp};

use super::network::{Arrived, FRAME_TIME, Network, Route, Task, Timed};
use super::tcp::{Endpoint, Exchange, Key, Outgoing};
use super::{Packet, Settings, Side, app, hostile};

/// MSS of 1460 and 1440 bytes, SACK permitted, window scale 7.
const SYN_OPTIONS_V4: [u8; 12] = [2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7];
const SYN_OPTIONS_V6: [u8; 12] = [2, 4, 0x05, 0xa0, 1, 1, 4, 2, 1, 3, 3, 7];

/// The world around a gateway: an office on one side, the internet on the other.
#[derive(Debug)]
pub struct Office {
    network: Network,
    /// Time of the last packet sent, and time of the end.
    now: Nanos,
    end: Nanos,
    connections: BTreeMap<Key, Endpoint>,
}

impl Office {
    /// The office that `settings` describe, before its first packet.
    pub fn new(settings: Settings) -> Office {
        let (start, end) = (settings.start, settings.start + settings.duration);
        let mut network = Network::new(settings);
        app::greet(&mut network, start);
        network.schedule(start + Nanos::from_millis(20), Task::Chatter);
        if network.settings.activities_per_second > 0 && !network.settings.hosts.is_empty() {
            network.schedule(start + Nanos::from_millis(50), Task::Begin);
        }
        if network.settings.attacks_per_second > 0 {
            network.schedule(start + Nanos::from_millis(70), Task::Attack);
        }
        Office { network, now: start, end, connections: BTreeMap::new() }
    }

    /// The next packet that enters the gateway, later than the one before; `None` at the end.
    // Not an `Iterator`, since what comes next depends on what arrives in between.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Packet> {
        loop {
            let Timed { at, task, .. } = self.network.pop()?;
            if at >= self.end {
                self.network.clear();
                return None;
            }
            match task {
                Task::Send(side, intent, bytes) => {
                    // Never two at one time, so that captures of both sides merge in one way only.
                    self.now = at.max(self.now + Nanos(1));
                    return Some(Packet { at: self.now, side, bytes, intent });
                }
                Task::Begin => {
                    app::begin(&mut self.network, at);
                    let wait = self.every(self.network.settings.activities_per_second);
                    self.network.schedule(at + wait, Task::Begin);
                }
                Task::Attack => {
                    hostile::attack(&mut self.network, at);
                    let wait = self.every(self.network.settings.attacks_per_second);
                    self.network.schedule(at + wait, Task::Attack);
                }
                Task::Chatter => {
                    app::chatter(&mut self.network, at);
                    let wait = self.every(4);
                    self.network.schedule(at + wait, Task::Chatter);
                }
                Task::Continue(activity) => app::go_on(&mut self.network, at, activity),
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

    fn every(&mut self, per_second: u32) -> Nanos {
        let mean = Nanos(1_000_000_000 / u64::from(per_second.max(1)));
        self.network.random.exponential(mean)
    }

    fn answer(&mut self, at: Nanos, ip: Arrived<'_>, protocol: Protocol, payload: &[u8], fragment: bool) {
        let route = ip.route;
        let later = at + self.network.round_trip(route.side, route.src);
        match (protocol, route.src) {
            (Protocol::TCP, _) if !fragment => self.answer_tcp(at, later, route, payload),
            (Protocol::UDP, _) => app::answer_udp(&mut self.network, later, &ip, payload, fragment),
            (Protocol::ICMP, IpAddr::V4(_)) => {
                let Ok(message) = icmpv4::parse_verified(payload) else { return };
                if message.header.kind() == icmpv4::Type::ECHO_REQUEST {
                    let (id, seq) = (message.header.id(), message.header.seq());
                    let packet = self.network.packet(route).echo_reply(id, seq).payload(message.body);
                    self.network.send(later, route.side, &packet);
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
        let Some(mac) = self.network.owner(side, packet.target_ip().into()) else { return };
        let fields = arp::Fields {
            operation: arp::Operation::REPLY,
            sender_mac: mac,
            sender_ip: packet.target_ip(),
            target_mac: packet.sender_mac(),
            target_ip: packet.sender_ip(),
        };
        let reply = build::ethernet(mac, packet.sender_mac()).arp(fields);
        self.network.send(at + Nanos(100_000), side, &reply);
    }

    fn answer_icmpv6(&mut self, at: Nanos, ip: &Arrived<'_>, payload: &[u8]) {
        let (side, IpAddr::V6(asker)) = (ip.route.side, ip.route.dst) else { return };
        let Ok(message) = icmpv6::parse(payload) else { return };
        if message.header.kind() == icmpv6::Type::ECHO_REQUEST {
            let (id, seq) = (message.header.id(), message.header.seq());
            let packet = self.network.packet(ip.route).echo_reply(id, seq).payload(message.body);
            self.network.send(at, side, &packet);
        }
        if let Some(Ok(Discovery::NeighborSolicitation { target, .. })) = message.discovery() {
            let Some(mac) = self.network.owner(side, target.into()) else { return };
            let flags = AdvertisementFlags::SOLICITED.and(AdvertisementFlags::OVERRIDE);
            let mut body = target.octets().to_vec();
            body.extend([2, 1]);
            body.extend(mac.0);
            let kind = icmpv6::Type::NEIGHBOR_ADVERTISEMENT.0;
            let advertisement = Icmp { kind, code: 0, rest: [flags.0, 0, 0, 0] };
            let route = Route { side, mac, src: target.into(), dst: asker.into() };
            let packet = self.network.packet(route).ttl(255).icmpv6(advertisement).payload(&body);
            self.network.send(at, side, &packet);
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
                Side::Wan => self.network.settings.is_server(local) && matches!(ports.dport, 80 | 443 | 993),
            };
            if !listens || self.connections.len() >= self.network.settings.max_connections {
                let ack = segment.header.seq().wrapping_add(1);
                let flags = Flags::RST.and(Flags::ACK);
                let refusal = Tcp { sport: ports.dport, dport: ports.sport, ack, flags, ..Tcp::default() };
                let packet = self.network.packet(route).tcp(refusal);
                self.network.send(later, side, &packet);
                return;
            }
            let initial = self.network.random.next_u64() as u32;
            self.connections.insert(key, Endpoint::server(initial));
        }
        let Some(endpoint) = self.connections.get_mut(&key) else { return };
        let mut out = Vec::new();
        endpoint.receive(at, &segment, &mut out);
        self.follow_up(later, key, route.mac, out);
    }

    /// Opens a connection, up to the limit.
    fn connect(&mut self, at: Nanos, key: Key, exchanges: Vec<Exchange>) {
        if self.connections.len() >= self.network.settings.max_connections
            || self.connections.contains_key(&key)
        {
            return;
        }
        let mac = match key.side {
            Side::Wan => self.network.settings.wan.neighbour,
            Side::Lan => self.network.owner(Side::Lan, key.local).unwrap_or(Mac::ZERO),
        };
        let mut endpoint = Endpoint::client(self.network.random.next_u64() as u32, exchanges);
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
            Side::Wan => self.network.settings.wan.neighbour,
            Side::Lan => self.network.owner(Side::Lan, key.local).unwrap_or(Mac::ZERO),
        };
        self.follow_up(at, key, mac, out);
    }

    /// Sends the segments of an end, sets its timer, and removes it when it is over.
    fn follow_up(&mut self, at: Nanos, key: Key, mac: Mac, out: Vec<Outgoing>) {
        let route = Route { side: key.side, mac, src: key.local, dst: key.remote };
        let free = self.connections.get(&key).map_or(at, |endpoint| endpoint.busy_until);
        let mut at_link = at.max(free);
        for segment in out {
            let data =
                self.network.data(segment.header.as_ref().map_or(&[], |header| &header[..]), segment.len);
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
            let packet = self.network.packet(route).dont_fragment().tcp(header).payload(&data);
            self.network.send(at_link, key.side, &packet);
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
            self.network.schedule(timer, Task::Timer(key));
        }
    }

    /// Number of live connections, for tests.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }
}
