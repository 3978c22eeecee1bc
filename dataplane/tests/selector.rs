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

/// Protocol and ports that a selector asks for.
type Asked = Option<(u8, u16, u16)>;

/// Policy of a tunnel, as its text says it: prefixes as address and length, with protocol number and ports.
struct Written {
    local: Vec<(u32, u32)>,
    remote: Vec<(u32, u32, Asked)>,
    direct: Vec<(u32, u32)>,
}

fn is_in(address: u32, (net, length): (u32, u32)) -> bool {
    length == 0 || address >> (32 - length) == net >> (32 - length)
}

fn some_net(random: &mut Random) -> (u32, u32) {
    let length = [8, 14, 15, 16, 24, 32][random.below(6) as usize];
    let address = 0x0a00_0000 | (random.next_u64() as u32 & 0x0003_0103);
    (address >> (32 - length) << (32 - length), length)
}

fn toml((address, length): (u32, u32)) -> String {
    format!("{}/{length}", std::net::Ipv4Addr::from(address))
}

impl Written {
    fn some(random: &mut Random, most: u64) -> Written {
        let ports = |random: &mut Random| {
            let first = random.below(4) as u16;
            [None, None, Some(([6, 17][random.below(2) as usize], first, first + 1))]
                [random.below(3) as usize]
        };
        let count = |random: &mut Random| 1 + random.below(most);
        Written {
            local: (0..count(random)).map(|_| some_net(random)).collect(),
            remote: (0..count(random))
                .map(|_| {
                    let (address, length) = some_net(random);
                    (address, length, ports(random))
                })
                .collect(),
            direct: (0..random.below(3)).map(|_| some_net(random)).collect(),
        }
    }

    fn text(&self, number: usize) -> String {
        let listed = |items: Vec<String>| format!("[{}]", items.join(", "));
        let plain = |net: &(u32, u32)| format!("\"{}\"", toml(*net));
        let remote = self.remote.iter().map(|(address, length, of)| match of {
            None => plain(&(*address, *length)),
            Some((protocol, first, last)) => format!(
                "{{ net = \"{}\", protocol = {protocol}, port = \"{first}-{last}\" }}",
                toml((*address, *length))
            ),
        });
        let direct = match self.direct.is_empty() {
            true => String::new(),
            false => format!("direct = {}\n", listed(self.direct.iter().map(plain).collect())),
        };
        let mut text = format!(
            "[interface.t{number}]\nzone = \"vpn\"\n[interface.t{number}.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.9\"\n\
             local-net = {}\nremote-net = {}\n{direct}",
            listed(self.local.iter().map(plain).collect()),
            listed(remote.collect()),
        );
        for (direction, spi) in [("out", 0x1000 + number), ("in", 0x2000 + number)] {
            text += &format!(
                "[[interface.t{number}.esp.sa]]\ndirection = \"{direction}\"\nspi = {spi}\nalgorithm = \"aes128-gcm\"\nkey = \"{spi:040x}\"\n"
            );
        }
        text
    }

    /// True if a packet of this protocol is to be protected, going from `local` to `remote`.
    fn matches(&self, local: u32, remote: u32, protocol: u8, port: u16) -> bool {
        !self.direct.iter().any(|net| is_in(remote, *net))
            && self.local.iter().any(|net| is_in(local, *net))
            && self.remote.iter().any(|(address, length, of)| {
                is_in(remote, (*address, *length))
                    && of.is_none_or(|(of, first, last)| protocol == of && (first..=last).contains(&port))
            })
    }
}

/// A gateway does with packets what its policy says, tunnel after tunnel and prefix after prefix.
#[test]
fn packets_go_where_the_policy_read_aloud_says() {
    let mut random = Random::new(521);
    let mut seen = [0; 3];
    for round in 0..24 {
        // Of many selectors the search is another one.
        let most = if round % 2 == 0 { 3 } else { 14 };
        let tunnels: Vec<Written> = (0..3).map(|_| Written::some(&mut random, most)).collect();
        let mut text = String::from(if round % 3 == 0 { "mode = \"stateless\"\n" } else { "" });
        text += "[interface.lan]\nzone = \"lan\"\naddresses = [\"172.16.0.1/24\"]\nsource-check = \"off\"\n\
                 [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
                 [default]\n\"any > any\" = \"accept\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.2\"\n";
        for (number, tunnel) in tunnels.iter().enumerate() {
            text += &tunnel.text(number);
        }
        let mut gateway = Gateway::new(&text, if round % 4 < 2 { Way::Run } else { Way::Step });
        for number in 0..300_u16 {
            let address = |random: &mut Random| 0x0a00_0000 | (random.next_u64() as u32 & 0x0003_0103);
            let (source, destination) = (address(&mut random), address(&mut random));
            if source == destination {
                continue;
            }
            let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
            let (sport, dport) = (1_000 + number, random.below(5) as u16);
            let packet =
                link.ipv4(source.into(), destination.into()).udp(sport, dport).payload(&[7]).to_vec();
            let required = tunnels.iter().any(|of| of.matches(destination, source, 17, sport));
            let by = tunnels.iter().position(|of| of.matches(source, destination, 17, dport));
            let out = through(&mut gateway, LAN, &[packet]);
            let expected = if required { None } else { Some(by.map(|number| 0x1000 + number as u32)) };
            let found = out.sent.first().map(|sent| {
                let is_esp = sent.bytes[23] == Protocol::ESP.0;
                is_esp.then(|| u32::from_be_bytes(sent.bytes[34..38].try_into().unwrap()))
            });
            let packet = [source, destination].map(std::net::Ipv4Addr::from);
            assert_eq!(found, expected, "{packet:?} {sport} > {dport}, {:?}\n{text}", out.ended);
            if required {
                assert_eq!(out.ended[0].1, Verdict::Dropped(Reason::TunnelRequired));
            }
            seen[if required { 0 } else { 1 + usize::from(by.is_some()) }] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 300), "{seen:?}");
}
