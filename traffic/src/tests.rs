//! The office behind a gateway that only passes packets from one side to the other.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use wire::build;
use wire::capture::{PcapngWriter, Record};
use wire::checksum::Sum;
use wire::ethernet::{self, EtherType, HeaderMut};
use wire::header::Protocol;
use wire::tcp::{self, Flags};
use wire::{arp, icmpv4, icmpv6, ipv4, ipv6, udp};

use super::*;

fn other(side: Side) -> Side {
    match side {
        Side::Lan => Side::Wan,
        Side::Wan => Side::Lan,
    }
}

/// Runs an office whose gateway passes packets addressed to it and to the other side, unchanged; returns all packets
/// that entered it, and the office.
fn run(settings: Settings, mut passes: impl FnMut(u64, &Packet) -> bool) -> (Vec<Packet>, Office) {
    let mut office = Office::new(settings.clone());
    let mut packets = Vec::new();
    while let Some(packet) = office.next() {
        let mut frame = packet.bytes.clone();
        let gateway = settings.link(packet.side).mac;
        let far = other(packet.side);
        let dst = ethernet::Header::of(&frame).map(|header| header.dst());
        if packet.intent == Intent::Honest && dst == Some(gateway) && passes(packets.len() as u64, &packet) {
            let neighbour = match far {
                Side::Wan => settings.wan.neighbour,
                Side::Lan => host_of(&settings, &frame).unwrap_or(Mac::BROADCAST),
            };
            let mut header = HeaderMut::of(&mut frame).unwrap();
            header.set_src(settings.link(far).mac);
            header.set_dst(neighbour);
            office.arrived(far, packet.at + Nanos(10_000), &frame);
        }
        packets.push(packet);
    }
    (packets, office)
}

/// Machine that a frame from the internet is for; frames for the outside address go to the first.
fn host_of(settings: &Settings, frame: &[u8]) -> Option<Mac> {
    let layer = ethernet::parse(frame).ok()?;
    let dst: IpAddr = match layer.ethertype {
        EtherType::IPV4 => ipv4::Header::of(layer.payload)?.dst().into(),
        EtherType::IPV6 => ipv6::Header::of(layer.payload)?.dst().into(),
        _ => return None,
    };
    if dst == settings.wan.v4 {
        return settings.hosts.first().map(|host| host.mac);
    }
    let found = settings.hosts.iter().find(|host| dst == host.v4 || host.v6.is_some_and(|v6| dst == v6));
    found.map(|host| host.mac)
}

fn short() -> Settings {
    Settings { duration: Nanos::from_secs(15), ..Settings::default() }
}

/// True if all lengths and checksums of a frame are right.
fn verifies(frame: &[u8]) -> bool {
    let Ok(layer) = ethernet::parse(frame) else { return false };
    let transport = |protocol: Protocol, payload: &[u8], pseudo: Sum| match protocol {
        Protocol::TCP => tcp::parse(payload).is_ok() && pseudo.and(payload).verifies(),
        Protocol::UDP => {
            udp::parse(payload).is_ok_and(|datagram| datagram.check(pseudo) == udp::Check::Right)
        }
        Protocol::ICMP => icmpv4::parse_verified(payload).is_ok(),
        Protocol::ICMPV6 => icmpv6::parse_verified(payload, pseudo).is_ok(),
        _ => true,
    };
    match layer.ethertype {
        EtherType::ARP => arp::parse(layer.payload).is_ok(),
        EtherType::IPV4 => ipv4::parse(layer.payload).is_ok_and(|packet| {
            packet.checksum_is_right()
                && (packet.header.is_fragment()
                    || transport(packet.header.protocol(), packet.payload, packet.pseudo_header()))
        }),
        EtherType::IPV6 => ipv6::parse(layer.payload)
            .is_ok_and(|packet| transport(packet.protocol(), packet.payload, packet.pseudo_header())),
        _ => false,
    }
}

/// A gateway that hides the office behind its outside address, by translation of TCP and UDP ports.
#[derive(Default)]
struct Translator {
    outside: BTreeMap<(u8, Ipv4Addr, u16), u16>,
    inside: BTreeMap<(u8, u16), (Ipv4Addr, u16)>,
}

impl Translator {
    /// Translates `frame`, received on `side`; `None` if it cannot go on.
    fn translate(&mut self, settings: &Settings, side: Side, frame: &mut [u8]) -> Option<()> {
        let header = ipv4::Header::of(&frame[14..])?;
        let protocol = header.protocol();
        if header.is_fragment() || !matches!(protocol, Protocol::TCP | Protocol::UDP) {
            return None;
        }
        let ports = wire::header::Ports::of(&frame[34..])?;
        // The address and the port behind it, at 12 and 0 bytes or at 16 and 2, into the headers.
        let (address, port, place) = match side {
            // What is published answers by its own port.
            Side::Lan if settings.published.contains(&ports.sport) => {
                (settings.wan.v4, ports.sport, (26, 34))
            }
            Side::Lan => {
                let next = 20_000 + self.outside.len() as u16;
                let key = (protocol.0, header.src(), ports.sport);
                let port = *self.outside.entry(key).or_insert(next);
                self.inside.insert((protocol.0, port), (key.1, key.2));
                (settings.wan.v4, port, (26, 34))
            }
            Side::Wan => {
                assert_eq!(header.dst(), settings.wan.v4, "the internet knows the outside address alone");
                let published = settings.published.contains(&ports.dport);
                let published = published.then_some((settings.hosts[0].v4, ports.dport));
                let (address, port) = self.inside.get(&(protocol.0, ports.dport)).copied().or(published)?;
                (address, port, (30, 36))
            }
        };
        frame[place.0..place.0 + 4].copy_from_slice(&address.octets());
        frame[place.1..place.1 + 2].copy_from_slice(&port.to_be_bytes());
        let end = 14 + usize::from(ipv4::Header::of(&frame[14..])?.total_len());
        let checksum = if protocol == Protocol::TCP { 34 + 16 } else { 34 + 6 };
        frame[checksum..checksum + 2].fill(0);
        let packet = ipv4::Header::of(&frame[14..])?;
        let pseudo = Sum::pseudo_v4(packet.src(), packet.dst(), protocol, (end - 34) as u16);
        let sum = pseudo.and(&frame[34..end]).checksum();
        frame[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        ipv4::fill_checksum(&mut frame[14..]);
        Some(())
    }
}

#[test]
fn answers_follow_address_translation() {
    let settings = Settings { attacks_per_second: 0, ..short() };
    let mut translator = Translator::default();
    let mut office = Office::new(settings.clone());
    let mut packets = Vec::new();
    while let Some(mut packet) = office.next() {
        let layer = ethernet::parse(&packet.bytes).unwrap();
        let for_gateway = layer.header.dst() == settings.link(packet.side).mac;
        if layer.ethertype != EtherType::IPV4 || !for_gateway {
            continue;
        }
        let mut frame = packet.bytes.clone();
        if translator.translate(&settings, packet.side, &mut frame).is_none() {
            continue;
        }
        let far = other(packet.side);
        let neighbour = match far {
            Side::Wan => settings.wan.neighbour,
            Side::Lan => host_of(&settings, &frame).unwrap(),
        };
        HeaderMut::of(&mut frame).unwrap().set_dst(neighbour);
        assert!(verifies(&frame));
        office.arrived(far, packet.at, &frame);
        // As seen from outside.
        if packet.side == Side::Lan {
            packet.bytes = frame;
        }
        packets.push(packet);
    }
    let limit = settings.start + Nanos::from_secs(8);
    let early: Vec<Packet> = packets.iter().filter(|packet| packet.at < limit).cloned().collect();
    let (begun, all) = (connections(&early), connections(&packets));
    let visits = begun.keys().filter(|ends| ends.contains(&(settings.wan.v4.into(), 443))).count();
    assert!(begun.len() > 20 && visits > 2, "{} with {visits} visits", begun.len());
    for (ends, [syns, fins, rsts, _]) in begun.keys().map(|ends| (ends, all[ends])) {
        assert_eq!((syns, fins, rsts), (2, 2, 0), "{ends:?}");
    }
}

/// Per connection: SYNs, FINs, RSTs, bytes of data.
fn connections(packets: &[Packet]) -> BTreeMap<Vec<(IpAddr, u16)>, [u64; 4]> {
    let mut found: BTreeMap<_, [u64; 4]> = BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.intent == Intent::Honest) {
        let layer = ethernet::parse(&packet.bytes).unwrap();
        let (src, dst, payload): (IpAddr, IpAddr, &[u8]) = match layer.ethertype {
            EtherType::IPV4 => {
                let packet = ipv4::parse(layer.payload).unwrap();
                if packet.header.protocol() != Protocol::TCP {
                    continue;
                }
                (packet.header.src().into(), packet.header.dst().into(), packet.payload)
            }
            EtherType::IPV6 => {
                let packet = ipv6::parse(layer.payload).unwrap();
                if packet.protocol() != Protocol::TCP {
                    continue;
                }
                (packet.header.src().into(), packet.header.dst().into(), packet.payload)
            }
            _ => continue,
        };
        let segment = tcp::parse(payload).unwrap();
        let mut key = vec![(src, segment.header.sport()), (dst, segment.header.dport())];
        key.sort();
        let counts = found.entry(key).or_default();
        let flags = segment.header.flags();
        counts[0] += u64::from(flags.intersects(Flags::SYN));
        counts[1] += u64::from(flags.intersects(Flags::FIN));
        counts[2] += u64::from(flags.intersects(Flags::RST));
        counts[3] += segment.payload.len() as u64;
    }
    found
}

fn digest(packets: &[Packet]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for packet in packets {
        (packet.at, packet.side, &packet.bytes).hash(&mut hasher);
    }
    hasher.finish()
}

#[test]
fn same_seed_same_packets_in_order_of_time() {
    let (first, _) = run(short(), |_, _| true);
    let (second, _) = run(short(), |_, _| true);
    assert!(first == second);
    assert!(first.is_sorted_by(|a, b| a.at < b.at), "no two at one time");
    let (other, _) = run(Settings { seed: 2, ..short() }, |_, _| true);
    assert_ne!(digest(&first), digest(&other));
    assert!(first.iter().all(|packet| packet.at >= short().start));
    assert!(first.iter().all(|packet| packet.at < short().start + short().duration));
}

#[test]
fn a_minute_is_of_the_size_promised_and_mixed() {
    let (packets, office) = run(Settings::default(), |_, _| true);
    eprintln!("{} packets, {} connections live at the end", packets.len(), office.connections());
    assert!((50_000..150_000).contains(&packets.len()), "{} packets", packets.len());
    assert!(office.connections() < 500);
    let count = |what: &dyn Fn(&Packet) -> bool| packets.iter().filter(|packet| what(packet)).count();
    let ethertype = |packet: &Packet| ethernet::Header::of(&packet.bytes).unwrap().ethertype();
    assert!(count(&|packet| packet.side == Side::Lan) > 20_000);
    assert!(count(&|packet| packet.side == Side::Wan) > 20_000);
    assert!(count(&|packet| ethertype(packet) == EtherType::IPV6) > 10_000);
    assert!(count(&|packet| ethertype(packet) == EtherType::ARP) > 50);
    assert!(count(&|packet| packet.intent == Intent::Hostile) > 500);
    let protocol = |wanted: u8| {
        count(&|packet| {
            let layer = ethernet::parse(&packet.bytes).unwrap();
            layer.ethertype == EtherType::IPV4
                && ipv4::Header::of(layer.payload).is_some_and(|header| header.protocol().0 == wanted)
        })
    };
    assert!(protocol(6) > 20_000 && protocol(17) > 5_000 && protocol(1) > 50);
    let fragments = count(&|packet| {
        let layer = ethernet::parse(&packet.bytes).unwrap();
        layer.ethertype == EtherType::IPV4
            && ipv4::Header::of(layer.payload).is_some_and(|header| header.is_fragment())
    });
    assert!(fragments > 100, "{fragments}");
}

#[test]
fn what_is_honest_verifies_and_fits_ethernet() {
    let (packets, _) = run(short(), |_, _| true);
    for packet in &packets {
        assert!(packet.bytes.len() <= 1514);
        assert!(packet.intent == Intent::Hostile || verifies(&packet.bytes), "{:02x?}", packet.bytes);
    }
    assert!(packets.iter().any(|packet| packet.intent == Intent::Hostile && !verifies(&packet.bytes)));
}

#[test]
fn connections_complete_through_a_gateway_that_passes_everything() {
    let (packets, _) = run(short(), |_, _| true);
    let limit = short().start + Nanos::from_secs(8);
    let early: Vec<Packet> = packets.iter().filter(|packet| packet.at < limit).cloned().collect();
    let begun = connections(&early);
    let all = connections(&packets);
    let whole = begun.keys().filter(|key| {
        let [syns, fins, rsts, bytes] = all[*key];
        (syns, fins, rsts) == (2, 2, 0) && bytes > 500
    });
    let whole = whole.count();
    for (key, counts) in begun.keys().map(|key| (key, all[key])).filter(|(_, [a, b, ..])| (*a, *b) != (2, 2))
    {
        eprintln!("{key:?}: {counts:?}");
    }
    eprintln!("{whole} of {} connections complete", begun.len());
    assert!(begun.len() > 40);
    assert_eq!(whole, begun.len());
}

#[test]
fn connections_complete_in_spite_of_loss() {
    let (packets, office) = run(short(), |n, _| n % 50 != 0);
    let all = connections(&packets);
    let closed = all.values().filter(|[_, fins, ..]| *fins >= 2).count();
    eprintln!("{closed} of {} connections closed", all.len());
    assert!(closed * 10 > all.len() * 7);
    assert!(office.connections() < 200);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut seen = std::collections::BTreeSet::new();
    let (packets, _) = run(short(), |_, packet| {
        let ends = connections(std::slice::from_ref(packet)).pop_first();
        // The first FIN of each side of each connection is lost.
        !ends.is_some_and(|(ends, [_, fins, ..])| fins > 0 && seen.insert((packet.side, ends)))
    });
    let limit = short().start + Nanos::from_secs(6);
    let early: Vec<Packet> = packets.iter().filter(|packet| packet.at < limit).cloned().collect();
    let all = connections(&packets);
    for ends in connections(&early).keys() {
        assert!(all[ends][1] >= 4, "{ends:?}: {:?}", all[ends]);
    }
}

#[test]
fn a_gateway_that_drops_everything_leaves_nothing_behind() {
    let (packets, office) = run(Settings { duration: Nanos::from_secs(60), ..short() }, |_, _| false);
    assert!(packets.len() < 20_000, "{}", packets.len());
    // A SYN is given up after some twelve seconds.
    assert!(office.connections() < 150, "{}", office.connections());
}

#[test]
fn connections_are_bounded() {
    let settings = Settings { max_connections: 3, ..short() };
    let mut office = Office::new(settings);
    while office.next().is_some() {
        assert!(office.connections() <= 3);
    }
}

#[test]
fn any_frame_may_arrive() {
    let mut random = wire::random::Random::new(3);
    let (packets, mut office) = run(Settings { duration: Nanos::from_secs(2), ..short() }, |_, _| true);
    for packet in packets {
        let mut frame = packet.bytes;
        for _ in 0..random.below(4) {
            let place = random.below(frame.len() as u64) as usize;
            frame[place] = random.next_u64() as u8;
        }
        frame.truncate(random.between(0, frame.len() as u64) as usize);
        office.arrived(packet.side, packet.at, &frame);
    }
}

#[test]
fn without_ipv6_there_is_none() {
    let mut settings = short();
    settings.wan.v6 = None;
    settings.lan.v6 = None;
    settings.hosts = Host::successive(3, Ipv4Addr::new(192, 168, 1, 10), None);
    settings.published.clear();
    let (packets, _) = run(settings, |_, _| true);
    assert!(packets.len() > 1000);
    let v6 = |packet: &&Packet| ethernet::Header::of(&packet.bytes).unwrap().ethertype() == EtherType::IPV6;
    assert_eq!(packets.iter().filter(v6).count(), 0);
}

#[test]
fn answers_who_has() {
    let settings = Settings::default();
    let mut office =
        Office::new(Settings { activities_per_second: 0, attacks_per_second: 0, ..settings.clone() });
    let fields = arp::Fields {
        operation: arp::Operation::REQUEST,
        sender_mac: settings.lan.mac,
        sender_ip: settings.lan.v4,
        target_mac: Mac::ZERO,
        target_ip: settings.hosts[3].v4,
    };
    let query = build::ethernet(settings.lan.mac, Mac::BROADCAST).arp(fields).to_vec();
    office.arrived(Side::Lan, settings.start, &query);
    let replies: Vec<Packet> = std::iter::from_fn(|| office.next())
        .filter(|packet| {
            let layer = ethernet::parse(&packet.bytes).unwrap();
            layer.ethertype == EtherType::ARP
                && arp::parse(layer.payload).unwrap().operation() == arp::Operation::REPLY
        })
        .collect();
    assert_eq!(replies.len(), 1);
    let header = ethernet::Header::of(&replies[0].bytes).unwrap();
    assert_eq!((header.src(), header.dst()), (settings.hosts[3].mac, settings.lan.mac));
}

/// Wireshark's dissectors find nothing wrong with honest packets, checksums included.
#[test]
fn tshark_finds_no_fault_in_what_is_honest() {
    let (packets, _) = run(short(), |_, _| true);
    let path = std::env::temp_dir().join(format!("wirerate-office-{}.pcapng", std::process::id()));
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("lan").unwrap();
    for packet in packets.iter().filter(|packet| packet.intent == Intent::Honest) {
        writer.write(&Record::new(packet.at, &packet.bytes)).unwrap();
    }
    writer.finish().unwrap();
    let checks = ["ip.check_checksum", "tcp.check_checksum", "udp.check_checksum"];
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(&path);
    for check in checks {
        command.arg("-o").arg(format!("{check}:TRUE"));
    }
    // Faults are of severity "error"; retransmissions and the like are warnings at most.
    command.args(["-Y", "_ws.malformed || _ws.expert.severity == 8388608 || tcp.analysis.retransmission"]);
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: tshark is not installed; the traffic is not judged by it");
        return;
    };
    fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().take(10).collect::<Vec<_>>(), [""; 0]);
}
