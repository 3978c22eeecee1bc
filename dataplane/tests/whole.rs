//! Packets of many segments that go through the stages whole, against their segments one after the other: the same frames leave, the same
//! counters and the same flows are left behind.

use std::collections::BTreeMap;

use dataplane::egress::Next;
use dataplane::replay::Way;
use proptest::prelude::*;
use wire::ethernet::{self, EtherType};
use wire::header::Protocol;
use wire::random::Random;
use wire::{Nanos, PortId, ipv4, ipv6, udp};

use crate::scene::packet::Packets;
use crate::scene::talk::{OFFICE, Side, Talk};
use crate::scene::{Arrival, Gateway, START, packet, policy, segments};

/// Two gateways, of which one takes whole what it can.
struct Pair {
    whole: Gateway,
    cut: Gateway,
    /// Packets of many segments that went whole, and that did not.
    went: [u64; 2],
}

impl Pair {
    fn new(text: &str) -> Pair {
        let [whole, cut] = [(); 2].map(|()| Gateway::new(text, Way::Run));
        Pair { whole, cut, went: [0; 2] }
    }

    /// Both receive a frame, or a packet of many segments of `size`.
    fn receive(&mut self, arrival: &Arrival, size: Option<u16>) {
        let parts = size.and_then(|size| segments(&arrival.bytes, size));
        let parts: Vec<_> = match parts {
            Some(parts) => parts.into_iter().map(|bytes| Arrival { bytes, ..arrival.clone() }).collect(),
            None => vec![arrival.clone()],
        };
        let is_many = parts.len() > 1;
        let goes = is_many && self.whole.receive_whole(arrival, size.unwrap_or_default());
        if is_many {
            self.went[usize::from(!goes)] += 1;
        }
        for batch in parts.chunks(64) {
            self.cut.receive(batch);
            if !goes {
                self.whole.receive(batch);
            }
        }
    }

    /// Drains and compares both.
    fn compare(&mut self, text: &str) -> crate::scene::Out {
        let (whole, cut) = (self.whole.out(usize::MAX), self.cut.out(usize::MAX));
        assert_eq!(whole, cut, "whole and cut differ under\n{text}");
        assert_eq!(self.whole.shard.counters, self.cut.shard.counters, "under\n{text}");
        assert!(self.whole.shard.counters.are_conserved());
        let flows = |gateway: &Gateway| {
            let flows = gateway.shard.flows.iter().map(|(id, flow)| (id.0, format!("{flow:?}")));
            flows.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(flows(&self.whole), flows(&self.cut), "flows differ under\n{text}");
        cut
    }
}

/// Adds payload to a TCP or UDP packet; `None` for others.
fn grown(frame: &[u8], by: usize) -> Option<Vec<u8>> {
    let layer = ethernet::parse(frame).ok()?;
    let at = layer.payload_at;
    let mut grown = frame.to_vec();
    let (protocol, transport, end) = if layer.ethertype == EtherType::IPV4 {
        let ip = ipv4::parse(layer.payload).ok()?;
        (ip.header.protocol(), at + ip.header.header_len(), at + usize::from(ip.header.total_len()))
    } else {
        let ip = ipv6::parse(layer.payload).ok().filter(|_| layer.ethertype == EtherType::IPV6)?;
        (ip.protocol(), at + ip.payload_at(), at + 40 + usize::from(ip.header.payload_len()))
    };
    if ![Protocol::TCP, Protocol::UDP].contains(&protocol) {
        return None;
    }
    grown.truncate(end);
    grown.extend((0..by).map(|byte| (byte * 7) as u8));
    let packet = grown.get_mut(at..)?;
    let length = packet.len() as u16;
    if layer.ethertype == EtherType::IPV4 {
        ipv4::HeaderMut::of(packet)?.set_total_len(length);
        ipv4::fill_checksum(packet);
    } else {
        ipv6::HeaderMut::of(packet)?.set_payload_len(length - 40);
    }
    if protocol == Protocol::UDP {
        let datagram = grown.get_mut(transport..)?;
        let length = datagram.len() as u16;
        udp::HeaderMut::of(datagram)?.set_length(length);
    }
    Some(grown)
}

/// Packets of any kind under any policy, some of them grown to many segments.
fn play(seed: &[u8; policy::BYTES], packets: &[[u8; packet::BYTES]], growths: &[(u16, u16)]) {
    let scene = policy::of(seed);
    let mut pair = Pair::new(&scene.text);
    let mut world = Packets::of(&scene);
    let mut growths = growths.iter().cycle();
    for bytes in packets {
        let mut arrival = world.next(bytes);
        let mut size = None;
        if let Some((by, of)) = growths.next().filter(|(by, _)| by % 3 > 0) {
            // Not more segments than the gateways have slots.
            let (by, of) = (usize::from(*by) % 20_000, *of % 1400 + 300);
            if let Some(bytes) = grown(&arrival.bytes, by) {
                (arrival.bytes, size) = (bytes, Some(of));
            }
        }
        if size.is_some_and(|size| segments(&arrival.bytes, size).is_none()) {
            continue;
        }
        pair.receive(&arrival, size);
        let out = pair.compare(&scene.text);
        world.learn(&out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whole_equals_cut(
        seed in any::<[u8; policy::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; packet::BYTES]>(), 1..80),
        growths in prop::collection::vec(any::<(u16, u16)>(), 1..8),
    ) {
        play(&seed, &packets, &growths);
    }
}

/// Conversations through masquerade and without, both ways: most of what is long goes whole, and what is not in the window, has its last
/// hop behind it, or says more than data, does as its segments would.
#[test]
fn conversations_go_whole() {
    let mut random = Random::new(11);
    let mut went = [0; 2];
    for round in 0..60_u32 {
        let window = if round % 4 == 3 { "[limit]\ntcp-window = \"off\"\n" } else { "" };
        let text = format!("{OFFICE}{window}");
        let mut pair = Pair::new(&text);
        let mut number = 0;
        let mut now = START;
        let mut step = |pair: &mut Pair, (port, bytes): (PortId, Vec<u8>), size| {
            number += 1;
            now += Nanos(1_000_000);
            pair.receive(&Arrival { port, at: now, number, bytes }, size);
            pair.compare(&text)
        };
        let mut talk = Talk::of_round(round);
        talk.open(|frame| step(&mut pair, frame, None));
        for _ in 0..60 {
            let mut draw = |many: u64| random.next_u64() % many;
            let from = draw(2) as usize;
            let length = 1 + draw(60_000) as usize;
            let size = [1, 200, 536, 1280, 1340, 1448, 20_000][draw(7) as usize].max(length as u16 / 100 + 1);
            let flags = if draw(12) == 0 { draw(256) as u8 & !0x06 } else { 0x10 };
            let ttl = if draw(12) == 0 { 1 } else { 64 };
            let ds_field = [0, 0xb8, 1][draw(3) as usize];
            let before = talk.sides[from];
            match draw(12) {
                0 => talk.sides[from].seq = before.seq.wrapping_sub(draw(200_000) as u32),
                1 => talk.sides[from].seq = before.seq.wrapping_add(draw(200_000) as u32),
                _ => {}
            }
            let frame = talk.frame(from, flags, ds_field, ttl, &vec![7; length]);
            let out = step(&mut pair, frame, Some(size));
            talk.sides[from] = before;
            if out.sent.iter().any(|sent| sent.port != from as u16) && flags == 0x10 && talk.is_tcp {
                talk.sides[from].seq = before.seq.wrapping_add(length as u32);
            }
        }
        went = [went[0] + pair.went[0], went[1] + pair.went[1]];
    }
    assert!(went[0] > 800 && went[1] > 500, "whole and cut: {went:?}");
}

/// Segments have a moment of their own each at a rate of the policy.
#[test]
fn segments_depart_one_by_one_at_a_rate_of_the_policy() {
    let text = OFFICE.replacen("mtu = 1400", "mtu = 1400\nrate = \"10 Mbit/s\"", 1);
    let mut pair = Pair::new(&text);
    let talk =
        Talk { v6: false, is_tcp: false, sport: 4000, outside: 0, sides: [Side { seq: 0, window: 0 }; 2] };
    for (number, length, size) in [(1, 100, None), (2, 20_000, Some(1_000))] {
        let (port, bytes) = talk.frame(0, 0, 0, 64, &vec![number as u8; length]);
        pair.receive(&Arrival { port, at: START + Nanos(u64::from(number)), number, bytes }, size);
    }
    let moments = |gateway: &mut Gateway| {
        let mut moments = Vec::new();
        gateway.depart(Nanos::MAX, |next| {
            if let Next::Frame(frame, at) = next {
                moments.push((*at, frame.bytes().to_vec()));
            }
        });
        moments
    };
    let (whole, cut) = (moments(&mut pair.whole), moments(&mut pair.cut));
    assert_eq!(cut.len(), 21);
    assert_eq!(whole, cut);
    assert!(cut.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= Nanos(80_000)));
}
