//! Transport mode between two gateways: what one of them sends itself comes to the other as it was, to the byte.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use dataplane::replay::Way;
use dataplane::tables::LOCAL;
use wire::build::{self, Tcp};
use wire::esp::{SUITES, Suite};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::random::Random;
use wire::tcp::Flags;

use crate::esp::{WAN, through};
use crate::scene::Gateway;
use crate::scene::check::is_esp;

/// Version of IP, and encapsulation in UDP.
#[derive(Clone, Copy, Debug)]
struct Outer {
    is_v6: bool,
    udp: &'static str,
}

const OUTERS: [Outer; 4] = [
    Outer { is_v6: false, udp: "no" },
    Outer { is_v6: true, udp: "no" },
    Outer { is_v6: false, udp: "yes" },
    Outer { is_v6: true, udp: "yes" },
];

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, host)
}

fn v6(host: u8) -> Ipv6Addr {
    format!("2001:db8:ff::{host}").parse().unwrap()
}

/// The gateway with that host number, whose peer is the other.
fn gateway(own: u8, other: u8, outer: Outer, suite: &Suite) -> String {
    let end = |host| if outer.is_v6 { v6(host).to_string() } else { v4(host).to_string() };
    let mut text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.{own}.0.1/16\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"{}/24\", \"{}/64\"]\n[default]\n\"any > any\" = \"accept\"\n\
         [interface.peer]\nzone = \"peer\"\n[interface.peer.esp]\nlocal = \"{}\"\nremote = \"{}\"\n\
         mode = \"transport\"\nudp = \"{}\"\nlegacy = true\n",
        v4(own),
        v6(own),
        end(own),
        end(other),
        outer.udp
    );
    for (direction, from) in [("out", own), ("in", other)] {
        let name = suite.name();
        let _ = write!(
            text,
            "[[interface.peer.esp.sa]]\ndirection = \"{direction}\"\nspi = {}\nalgorithm = \"{}\"\n",
            0x1000 + u32::from(from),
            name.algorithm()
        );
        let key = |len: u8, step: u8| -> String {
            (1..=len).map(|at| format!("{:02x}", at.wrapping_mul(step) ^ from)).collect()
        };
        let values = [
            ("auth", name.auth().unwrap_or_default().to_owned()),
            ("key", key(suite.key + suite.salt, 37)),
            ("auth-key", key(suite.auth_key, 59)),
        ];
        for (word, value) in values.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "{word} = \"{value}\"");
        }
    }
    text
}

/// Packets from the first to the second: of several protocols, with options and extension headers.
fn packets(outer: Outer, random: &mut Random) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for kind in 0..8 {
        let data: Vec<u8> = (0..random.below(900)).map(|_| random.next_u64() as u8).collect();
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
        let mut ip = if outer.is_v6 { link.ipv6(v6(1), v6(2)) } else { link.ipv4(v4(1), v4(2)) };
        ip = ip.ttl(3 + kind).ds_field(0xb8).id(7).flow_label(0x1_2345);
        if kind & 1 != 0 {
            ip = ip.dont_fragment();
        }
        if kind & 2 != 0 && !outer.is_v6 {
            ip = ip.ip_options(&[1; 12]);
        }
        if kind & 2 != 0 && outer.is_v6 {
            ip = ip.extension(Protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]);
        }
        if kind & 4 != 0 && outer.is_v6 {
            ip = ip.extension(Protocol::DESTINATION_OPTIONS, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let ip = match random.below(4) {
            0 => ip.tcp(Tcp { sport: 1, dport: 2, flags: Flags::SYN, ..Tcp::default() }),
            1 => ip.udp(1_000, 2_000),
            2 => ip.echo_request(7, 9),
            _ => ip.protocol(Protocol::GRE),
        };
        frames.push(ip.payload(&data).to_vec());
    }
    frames
}

#[test]
fn what_one_gateway_sends_comes_to_the_other_as_it_was() {
    let mut random = Random::new(31);
    for suite in &SUITES {
        for outer in OUTERS {
            for way in [Way::Run, Way::Step] {
                let [mut near, mut far] = [(1, 2), (2, 1)]
                    .map(|(own, other)| Gateway::new(&gateway(own, other, outer, suite), way));
                let frames = packets(outer, &mut random);
                let sealed = through(&mut near, LOCAL.0, &frames);
                let name = format!("{} {outer:?}", suite.name());
                assert_eq!(sealed.sent.len(), frames.len(), "{name}: {:?}", sealed.ended);
                assert!(sealed.sent.iter().all(|sent| sent.port == WAN && is_esp(&sent.bytes)), "{name}");
                let sent: Vec<Vec<u8>> = sealed.sent.into_iter().map(|sent| sent.bytes).collect();
                for (sent, frame) in sent.iter().zip(&frames) {
                    // The header is the packet's own, and all that it has grown by is behind it.
                    assert!(sent.len() > frame.len());
                    let fields = if outer.is_v6 { 14..18 } else { 14..16 };
                    assert_eq!(sent[fields.clone()], frame[fields], "{name}");
                    let hops = if outer.is_v6 { 14 + 7 } else { 14 + 8 };
                    assert_eq!(sent[hops], frame[hops], "{name}");
                }
                let opened = through(&mut far, WAN, &sent);
                let delivered: Vec<&[u8]> = opened.local.iter().map(|local| &local.bytes[14..]).collect();
                let expected: Vec<&[u8]> = frames.iter().map(|frame| &frame[14..]).collect();
                assert_eq!(delivered, expected, "{name}: {:?}", opened.ended);
            }
        }
    }
}
