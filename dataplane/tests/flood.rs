//! Floods: memory does not grow, and established connections go on.
//!
//! A tenth of the flood that is meant, in a debug build; all of it where `WIRERATE_LONG` is set.

use allocation_counter::measure;
use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use wire::build::Tcp;
use wire::ethernet::Mac;
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::{Nanos, PortId, build, ipv4, tcp, udp};

use crate::scene::{Arrival, Gateway, START, Sent, check, tables};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

fn home(more: &str) -> String {
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/16\", \"2001:db8:1::1/64\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\", \"2001:db8:ffff::2/64\"]\n\
         [default]\n\"lan > wan\" = \"accept\"\n\"wan > lan\" = \"accept\"\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[[route]]\nto = \"::/0\"\nvia = \"2001:db8:ffff::1\"\n{more}"
    )
}

fn masquerade(ports: &str) -> String {
    format!(
        "[[nat]]\nname = \"out\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\nports = \"{ports}\"\n"
    )
}

fn link() -> build::Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]))
}

fn at(port: PortId, at: Nanos, packet: &build::Packet<'_>) -> Arrival {
    Arrival { port, at, number: 0, bytes: packet.to_vec() }
}

/// Verdict of one packet, and the frames sent.
fn pass(gateway: &mut Gateway, arrival: Arrival) -> (Verdict, Option<Sent>) {
    gateway.receive(&[arrival]);
    let out = gateway.out(usize::MAX);
    match (out.sent.into_iter().next(), out.ended.first()) {
        (Some(sent), _) => (sent.verdict.unwrap(), Some(sent)),
        (None, Some((_, verdict))) => (*verdict, None),
        (None, None) => panic!("no fate"),
    }
}

/// An established connection from inside, and the next segments of its sides.
struct Connection {
    client: std::net::Ipv4Addr,
    server: std::net::Ipv4Addr,
    outside: (std::net::Ipv4Addr, u16),
    sport: u16,
    said: [u32; 2],
}

impl Connection {
    fn open(gateway: &mut Gateway, number: u16, now: Nanos) -> Connection {
        let [high, low] = number.to_be_bytes();
        let (client, server) = ([192, 168, 100 + high, low].into(), [198, 51, 100, 7].into());
        let sport = 10_000 + number;
        let syn = Tcp { sport, dport: 443, seq: 100, flags: Flags::SYN, ..Tcp::default() };
        let (verdict, sent) = pass(gateway, at(LAN, now, &link().ipv4(client, server).tcp(syn)));
        assert_eq!(verdict, Verdict::Forwarded);
        let sent = sent.unwrap();
        let packet = ipv4::parse(&sent.bytes[14..]).unwrap();
        let outside = (packet.header.src(), tcp::Header::of(packet.payload).unwrap().sport());
        let mut connection = Connection { client, server, outside, sport, said: [101, 500] };
        let flags = Flags::SYN_ACK;
        let header = Tcp { sport: 443, dport: outside.1, seq: 500, ack: 101, flags, ..Tcp::default() };
        let answer = at(WAN, now, &link().ipv4(server, outside.0).tcp(header));
        assert_eq!(pass(gateway, answer).0, Verdict::Forwarded);
        connection.said[1] = 501;
        assert_eq!(connection.go_on(gateway, now), [Verdict::Forwarded; 2]);
        connection
    }

    /// Sends ten bytes each way, and returns their verdicts.
    fn go_on(&mut self, gateway: &mut Gateway, now: Nanos) -> [Verdict; 2] {
        let [seq, ack] = self.said;
        let header = Tcp { sport: self.sport, dport: 443, seq, ack, flags: Flags::ACK, ..Tcp::default() };
        let there = link().ipv4(self.client, self.server).tcp(header).payload(&[1; 10]);
        let there = pass(gateway, at(LAN, now, &there)).0;
        self.said[0] += 10;
        let header = Tcp {
            sport: 443,
            dport: self.outside.1,
            seq: ack,
            ack: self.said[0],
            flags: Flags::ACK,
            ..Tcp::default()
        };
        let back = link().ipv4(self.server, self.outside.0).tcp(header).payload(&[1; 10]);
        let back = pass(gateway, at(WAN, now, &back)).0;
        self.said[1] += 10;
        [there, back]
    }
}

fn sources() -> u32 {
    if std::env::var_os("WIRERATE_LONG").is_some() { 10_000_000 } else { 1_000_000 }
}

/// Ten million sources, each with a SYN, at a table for a hundred thousand flows.
fn syn_flood(when_full: &str, way: Way) {
    let limit = format!("[limit]\nflows = 100000\nwhen-full = \"{when_full}\"\n");
    let mut gateway = Gateway::new(&home(&format!("{}{limit}", masquerade("1024-65535"))), way);
    let mut now = START;
    let mut good: Vec<Connection> = (0..500).map(|n| Connection::open(&mut gateway, n, now)).collect();
    let template = link().ipv4([9, 9, 9, 9].into(), [192, 168, 1, 7].into());
    let syn = Tcp { sport: 1_000, dport: 80, seq: 5, flags: Flags::SYN, ..Tcp::default() };
    let frame = template.tcp(syn).to_vec();
    let mut batch: Vec<Arrival> =
        (0..64).map(|_| Arrival { port: WAN, at: now, number: 0, bytes: frame.clone() }).collect();
    let memory = gateway.shard.memory_bytes();
    let rounds = sources() / 64;
    let info = measure(|| {
        for round in 0..rounds {
            now += Nanos(64 * 1_000);
            for (place, arrival) in (0..).zip(&mut batch) {
                arrival.at = now;
                renumber(&mut arrival.bytes, 0x1000_0000 + (round * 64 + place) * 7);
            }
            gateway.receive(&batch);
            gateway.drain(usize::MAX, |_, _| {});
        }
    });
    assert_eq!(info.count_total, 0, "the flood made the gateway allocate");
    assert_eq!(gateway.shard.memory_bytes(), memory);
    let counters = &gateway.shard.counters;
    assert!(gateway.shard.flows.len() <= 100_000);
    let overflow = u64::from(rounds) * 64 - (100_000 - 500);
    match when_full {
        "refuse" => assert_eq!(counters.dropped_for(Reason::FlowTableFull), overflow),
        _ => assert_eq!((counters.evicted, counters.dropped_for(Reason::FlowTableFull)), (overflow, 0)),
    }
    for connection in &mut good {
        assert_eq!(
            connection.go_on(&mut gateway, now),
            [Verdict::Forwarded; 2],
            "an established flow suffers"
        );
    }
    check::gateway(&gateway);
    // When the flood is over and its flows have timed out, there is room again.
    now += Nanos::from_secs(300);
    for _ in 0..1_000 {
        gateway.shard.expire(now, &mut tally::NoTally);
    }
    let _ = Connection::open(&mut gateway, 9_000, now);
    assert_eq!(gateway.shard.flows.len(), 501);
}

/// Writes another source into a packet without options, by hand: the flood is to be cheap to make.
fn renumber(frame: &mut [u8], source: u32) {
    let old = u32::from_be_bytes(frame[26..30].try_into().unwrap());
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    for at in [24, 50] {
        let sum = u16::from_be_bytes(frame[at..at + 2].try_into().unwrap());
        frame[at..at + 2].copy_from_slice(&wire::checksum::update32(sum, old, source).to_be_bytes());
    }
}

#[test]
fn a_flood_of_syns_is_refused_and_harms_no_established_flow() {
    syn_flood("refuse", Way::Run);
}

#[test]
fn a_flood_of_syns_evicts_itself_and_harms_no_established_flow() {
    syn_flood("evict-idle", Way::Run);
}

#[test]
fn ports_that_are_exhausted_touch_no_other_flow() {
    let policy = home(&masquerade("4000-4063"));
    let mut gateway = Gateway::new(&policy, Way::Run);
    let mut good: Vec<Connection> = (0..60).map(|n| Connection::open(&mut gateway, n, START)).collect();
    let mut refused = 0;
    for n in 0..10_000_u16 {
        let syn = Tcp { sport: 20_000 + n, dport: 80, flags: Flags::SYN, ..Tcp::default() };
        let packet = link().ipv4([192, 168, 1, 9].into(), [198, 51, 100, 8].into()).tcp(syn);
        let (verdict, _) = pass(&mut gateway, at(LAN, START, &packet));
        refused += u32::from(verdict == Verdict::Dropped(Reason::NatPorts));
    }
    // Another protocol has ports of its own, and what comes in from outside needs none.
    assert_eq!((refused, gateway.shard.mappings.len()), (10_000 - 4, 64));
    let dns = link().ipv4([192, 168, 1, 9].into(), [198, 51, 100, 8].into()).udp(5_353, 53);
    assert_eq!(pass(&mut gateway, at(LAN, START, &dns)).0, Verdict::Forwarded);
    for connection in &mut good {
        assert_eq!(connection.go_on(&mut gateway, START), [Verdict::Forwarded; 2]);
    }
    let outside: std::collections::HashSet<_> = good.iter().map(|connection| connection.outside).collect();
    assert_eq!(outside.len(), good.len(), "a port was handed out twice");
    check::gateway(&gateway);
}

#[test]
fn fragments_that_are_never_completed_are_bounded_and_go_away() {
    let mut gateway = Gateway::with_slots(tables(&home("")), Way::Run, 400);
    let memory = gateway.shard.memory_bytes();
    let mut now = START;
    for n in 0..100_000_u32 {
        now += Nanos(1_000);
        let source = std::net::Ipv4Addr::from(0x0909_0000 + n % 5_000);
        let offset = if n % 3 == 0 { 0 } else { 1_480 };
        let packet = link().ipv4(source, [192, 168, 1, 7].into());
        let packet = packet.fragment(Fragment { id: n, offset, more: true });
        let bytes = [0, 80, 0, 80, 5, 220, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        gateway.receive(&[at(WAN, now, &packet.protocol(Protocol::UDP).payload(&bytes))]);
        gateway.drain(usize::MAX, |_, _| {});
    }
    check::gateway(&gateway);
    assert_eq!(gateway.shard.memory_bytes(), memory);
    // All come in by one interface, whose share is three quarters.
    assert_eq!(gateway.shard.counters.held, u64::from(gateway.tables.limits.fragments.held) * 3 / 4);
    // Later, fragments pass again, and nothing is held.
    now += Nanos::from_secs(60);
    let parts = [(0, true), (1_480, false)].map(|(offset, more)| {
        let packet = link().ipv4([9, 9, 9, 9].into(), [192, 168, 1, 7].into());
        let packet = packet.fragment(Fragment { id: 7, offset, more }).protocol(Protocol::UDP);
        let mut bytes = [7; 1_480];
        bytes[..8].copy_from_slice(&[0, 80, 0, 80, 11, 144, 0, 0]);
        at(WAN, now, &packet.payload(&bytes))
    });
    gateway.receive(&parts);
    let out = gateway.out(usize::MAX);
    assert_eq!(out.sent.iter().filter(|sent| sent.verdict == Some(Verdict::Forwarded)).count(), 2);
    assert_eq!(gateway.shard.counters.held, 0);
    check::gateway(&gateway);
}

#[test]
fn extension_headers_without_end_are_dropped() {
    let mut gateway = Gateway::new(&home(""), Way::Run);
    let (from, to) = ("2001:db8:beef::1".parse().unwrap(), "2001:db8:1::5".parse().unwrap());
    for kind in [Protocol::DESTINATION_OPTIONS, Protocol::ROUTING, Protocol::FRAGMENT, Protocol::HOP_BY_HOP] {
        for count in 1..180_usize {
            // By hand, as the builder stops at twelve.
            let mut chain = vec![0_u8; count * 8];
            for header in chain.chunks_mut(8) {
                header[0] = kind.0;
                // A routing header that is no source route.
                header[2] = if kind == Protocol::ROUTING { 2 } else { 0 };
            }
            chain[(count - 1) * 8] = Protocol::UDP.0;
            chain.extend_from_slice(&[0, 80, 0, 80, 0, 8, 0, 0]);
            let packet = link().ipv6(from, to).protocol(kind).payload(&chain);
            let (verdict, _) = pass(&mut gateway, at(WAN, START, &packet));
            let many = count > 20;
            assert!(
                !many || verdict == Verdict::Dropped(Reason::Ipv6HeaderChain),
                "{count} of {kind}: {verdict}"
            );
        }
    }
    check::gateway(&gateway);
}

/// Return traffic passes while a flow lives, not after; a busy flow keeps no idle neighbour alive.
#[test]
fn idle_flows_end_each_by_its_own_time() {
    // How long until there is an answer, and from then on.
    for (kind, first, seconds) in [("udp", 30, 300), ("icmp", 60, 60), ("gre", 600, 600)] {
        let mut gateway = Gateway::new(&home("").replace("\"wan > lan\" = \"accept\"\n", ""), Way::Run);
        let (host, server): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
            ([192, 168, 1, 9].into(), [198, 51, 100, 8].into());
        let there = |port| match kind {
            "udp" => link().ipv4(host, server).udp(port, 53),
            "icmp" => link().ipv4(host, server).echo_request(port, 1),
            _ => link().ipv4([192, 168, 1, port as u8].into(), server).protocol(Protocol::GRE),
        };
        let back = |port| match kind {
            "udp" => link().ipv4(server, host).udp(53, port),
            "icmp" => link().ipv4(server, host).echo_reply(port, 1),
            _ => link().ipv4(server, [192, 168, 1, port as u8].into()).protocol(Protocol::GRE),
        };
        let mut now = START;
        for port in [9, 10] {
            assert_eq!(pass(&mut gateway, at(LAN, now, &there(port))).0, Verdict::Forwarded);
        }
        // Just within its time, and so on: only the one that speaks stays.
        let mut span = first;
        for _ in 0..3 {
            now += Nanos::from_secs(span - 1);
            span = seconds;
            assert_eq!(pass(&mut gateway, at(WAN, now, &back(9))).0, Verdict::Forwarded, "{kind}");
        }
        let late = pass(&mut gateway, at(WAN, now, &back(10))).0;
        assert!(matches!(late, Verdict::Dropped(_)), "{kind}: {late}");
        now += Nanos::from_secs(seconds + 1);
        let late = pass(&mut gateway, at(WAN, now, &back(9))).0;
        assert!(matches!(late, Verdict::Dropped(_)), "{kind}: {late}");
        let packet = link().ipv4(server, host).udp(1, udp::HEADER_LEN as u16);
        let _ = pass(&mut gateway, at(WAN, now, &packet));
        check::gateway(&gateway);
    }
}
