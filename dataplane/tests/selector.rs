//! Selectors: packets that a security association may carry, and their search, held to RFC 4301's words.

use dataplane::replay::Way;
use dataplane::tables::{Address, Ends, Fit, Ports, Selector, Selectors};
use dataplane::{Reason, Verdict};
use lookup::classify::{AddressSpan, PortSpan};
use tally::NoTally;
use wire::build;
use wire::esp::Direction;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::random::Random;

use crate::esp::{LAN, Outer, WAN, change, selective, site, through};
use crate::scene::{Gateway, Out, START};

fn net(a: u8, b: u8, length: u32) -> AddressSpan {
    let first = u128::from(u32::from_be_bytes([10, a, b, 0]));
    AddressSpan { v6: false, first, last: first | ((1 << (32 - length)) - 1) }
}

fn pair(local: AddressSpan, remote: AddressSpan) -> Selector {
    Selector { local, remote, protocol: None, local_ports: None, remote_ports: None }
}

fn udp(from: [u8; 4], to: [u8; 4], dport: u16) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    link.ipv4(from.into(), to.into()).udp(7, dport).payload(&[1, 2, 3, 4]).to_vec()
}

fn spis(out: &Out) -> Vec<u32> {
    let spi = |frame: &[u8]| u32::from_be_bytes(frame[34..38].try_into().unwrap());
    out.sent.iter().map(|sent| spi(&sent.bytes)).collect()
}

/// Of several security associations of one tunnel the newest that may carry a packet does so, and the other end takes nothing else from it.
#[test]
fn associations_added_at_run_time_carry_what_their_selectors_match() {
    let texts = [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")];
    let [mut near, mut far] = texts.each_ref().map(|text| Gateway::new(text, Way::Run));
    let dns = Selector {
        protocol: Some(Protocol::UDP),
        remote_ports: Some(PortSpan { first: 53, last: 53 }),
        ..pair(net(1, 0, 16), net(2, 0, 16))
    };
    let subnet = pair(net(1, 0, 16), net(2, 7, 24));
    for (spi, key, selectors) in [(0x3000, 7, &dns), (0x4000, 8, &subnet)] {
        let out = selective(&near, Direction::Out, spi, key, std::slice::from_ref(selectors));
        assert_eq!(change(&mut near, out.prepare()), Ok(false));
    }
    let host = [10, 1, 0, 5];
    let frames = [
        udp(host, [10, 2, 0, 9], 53),
        udp(host, [10, 2, 0, 9], 54),
        udp(host, [10, 2, 7, 9], 54),
        // Both match: the newest.
        udp(host, [10, 2, 7, 9], 53),
    ];
    let out = through(&mut near, LAN, &frames);
    assert_eq!(spis(&out), [0x3000, 0x1000, 0x4000, 0x4000]);
    // At the other end the sides are turned around; and there the one for a subnet is for another.
    let turned = |of: &Selector| Selector {
        local: of.remote,
        remote: of.local,
        local_ports: of.remote_ports,
        remote_ports: of.local_ports,
        ..of.clone()
    };
    let other = Selector { local: net(2, 8, 24), ..turned(&subnet) };
    for (spi, key, selectors) in [(0x3000, 7, turned(&dns)), (0x4000, 8, other)] {
        let inward = selective(&far, Direction::In, spi, key, &[selectors]);
        assert_eq!(change(&mut far, inward.prepare()), Ok(false));
    }
    let sealed: Vec<Vec<u8>> = out.sent.iter().map(|sent| sent.bytes.clone()).collect();
    let out = through(&mut far, WAN, &sealed);
    assert_eq!(out.sent.len(), 2);
    let refused = Verdict::Dropped(Reason::TunnelSelector);
    assert_eq!(out.ended.iter().filter(|ended| ended.1 == refused).count(), 2);
    let views = far.shard.sas.views(START);
    let view = views.iter().find(|sa| sa.spi == 0x4000).expect("it is there");
    assert_eq!((view.packets, view.errors.selector), (2, 2));
}

/// The selectors of a policy, one after the other, by RFC 4301's words (section 4.4.1.1): "a list of ranges" of addresses for each side,
/// "next layer protocol", and, if this has ports, ranges of them; OPAQUE where a fragment hides them, which only ANY matches.
fn by_the_words(list: &[Selector], ends: &Ends) -> Fit {
    for (place, of) in list.iter().enumerate() {
        let in_range = |span: &AddressSpan, address: Address| {
            address.v6 == span.v6 && address.bits >= span.first && address.bits <= span.last
        };
        if !in_range(&of.local, ends.local) || !in_range(&of.remote, ends.remote) {
            continue;
        }
        if of.protocol.is_some() && of.protocol != Some(ends.protocol) {
            continue;
        }
        let (local, remote) = (of.local_ports, of.remote_ports);
        let Some(ports) = ends.ports else {
            if local.is_some() || remote.is_some() {
                return Fit::Unknown;
            }
            return Fit::At(place);
        };
        if local.is_some_and(|span| ports.local < span.first || ports.local > span.last) {
            continue;
        }
        if remote.is_some_and(|span| ports.remote < span.first || ports.remote > span.last) {
            continue;
        }
        return Fit::At(place);
    }
    Fit::None
}

fn some_span(random: &mut Random, v6: bool) -> AddressSpan {
    let width = if v6 { 128 } else { 32 };
    let length = [0, 8, 15, 16, 24, 31, width][random.below(7) as usize];
    let bits = some_bits(random, v6);
    let rest = if length == 0 {
        if v6 { u128::MAX } else { u32::MAX.into() }
    } else {
        (1_u128 << (width - length)) - 1
    };
    AddressSpan { v6, first: bits & !rest, last: bits | rest }
}

fn some_bits(random: &mut Random, v6: bool) -> u128 {
    let low = u128::from(0x0a00_0000 | (random.next_u64() as u32 & 0x0103_8103));
    if v6 { low << 96 | low } else { low }
}

fn some_selector(random: &mut Random) -> Selector {
    let v6 = random.below(3) == 0;
    let (local, remote) = (some_span(random, v6), some_span(random, v6));
    let protocol = [None, None, Some(Protocol::UDP), Some(Protocol::TCP)][random.below(4) as usize];
    let mut ports = || {
        let first = random.below(4) as u16;
        let is_asked = protocol.is_some() && random.below(2) == 0;
        is_asked.then(|| PortSpan { first, last: first + random.below(3) as u16 })
    };
    Selector { local, remote, protocol, local_ports: ports(), remote_ports: ports() }
}

#[test]
fn the_search_finds_what_the_first_of_the_selectors_matches() {
    let mut random = Random::new(4301);
    let mut found = [0; 3];
    for size in [0, 1, 3, 30, 64, 65, 66, 200, 700] {
        let list: Vec<Selector> = (0..size).map(|_| some_selector(&mut random)).collect();
        let selectors = Selectors::new(list.clone());
        for _ in 0..2_000 {
            let v6 = random.below(3) == 0;
            let address = |random: &mut Random| Address { bits: some_bits(random, v6), v6 };
            let ends = Ends {
                local: address(&mut random),
                remote: address(&mut random),
                protocol: [Protocol::UDP, Protocol::TCP, Protocol::ICMP][random.below(3) as usize],
                ports: (random.below(4) > 0)
                    .then(|| Ports { local: random.below(7) as u16, remote: random.below(7) as u16 }),
            };
            let fit = by_the_words(&list, &ends);
            assert_eq!(selectors.find(&ends, &mut NoTally), fit, "{ends:?} among {size}");
            found[match fit {
                Fit::At(_) => 0,
                Fit::Unknown => 1,
                Fit::None => 2,
            }] += 1;
        }
    }
    assert!(found.iter().all(|count| *count > 300), "{found:?}");
}
