//! The example policies with tunnels, in `wirerate replay`: frames both ways, encrypted by one end and decrypted by the policy of its peer.
#![allow(clippy::unwrap_used)]

mod run;
mod tunnel;

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use run::{Room, root, wirerate};
use serde_json::Value;
use tunnel::{capture, capture_from, link, one_hop_on, packets, play, raw};
use wire::Nanos;
use wire::build::Tcp;
use wire::capture::Reader;
use wire::esp::Header;

/// Site B, the peer of `policies/ipsec-gateway.toml`. It trusts the head office.
const SITE_B: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.2.0.1/16", "2001:db8:b::1/64"]
[interface.wan]
zone = "wan"
addresses = ["198.51.100.2/24"]
[interface.office]
zone = "vpn"
addresses = ["10.9.0.2/30"]
[interface.office.esp]
local = "198.51.100.2"
remote = "203.0.113.2"
[[interface.office.esp.sa]]
direction = "out"
spi = 0x1002
algorithm = "aes128-gcm"
key = "6c61622d6b65792d622d746f2d612d30325a5a5a"
[[interface.office.esp.sa]]
direction = "in"
spi = 0x1001
algorithm = "aes128-gcm"
key = "6c61622d6b65792d612d746f2d622d30315a5a5a"
[[route]]
to = "0.0.0.0/0"
via = "198.51.100.1"
[[route]]
to = "10.1.0.0/16"
interface = "office"
[[route]]
to = "2001:db8:a::/48"
interface = "office"
[default]
"lan > vpn" = "accept"
"vpn > lan" = "accept"
"#;

/// The centre, the peer of `policies/rena-adapter.toml`: what the adapter sends comes by IPv6, and goes on by IPv4.
const CENTRE: &str = r#"
[interface.core]
zone = "core"
addresses = ["198.51.100.1/24"]
[interface.access]
zone = "access"
addresses = ["2001:db8:2::1/64"]
[interface.adapter]
zone = "adapters"
[interface.adapter.esp]
local = "2001:db8:2::1"
remote = "2001:db8:1::2"
[[interface.adapter.esp.sa]]
direction = "out"
spi = 0x2002
algorithm = "aes128-cbc"
key = "72656e612d6164617074657220696e20"
auth = "hmac-sha1-96"
auth-key = "72656e612d6164617074657220696e202d617574"
[[interface.adapter.esp.sa]]
direction = "in"
spi = 0x2001
algorithm = "aes128-cbc"
key = "72656e612d61646170746572206f7574"
auth = "hmac-sha1-96"
auth-key = "72656e612d61646170746572206f75742d617574"
[[route]]
to = "::/0"
via = "2001:db8:2::fe"
[[route]]
to = "0.0.0.0/0"
via = "198.51.100.254"
[[route]]
to = "192.168.1.0/24"
interface = "adapter"
[default]
"core > adapters" = "accept"
"adapters > core" = "accept"
"#;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 40);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 20);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 9);
const INTERNET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

fn example(name: &str) -> String {
    root().join("policies").join(name).display().to_string()
}

fn syn(source: Ipv4Addr, destination: Ipv4Addr, dport: u16) -> Vec<u8> {
    let tcp = Tcp { sport: 50_000, dport, flags: wire::tcp::Flags::SYN, ..Tcp::default() };
    link().ipv4(source, destination).tcp(tcp).to_vec()
}

/// A packet of ESP for the other end: the link that it comes by is another.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = if packet[0] >> 4 == 4 {
        link().ipv4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED).to_vec()
    } else {
        link().ipv6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED).to_vec()
    };
    frame.truncate(wire::ethernet::HEADER_LEN);
    frame.extend_from_slice(packet);
    frame
}

fn is_esp(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[9] == 50,
        _ => packet[6] == 50,
    }
}

/// DS field, SPI and sequence number of an outer packet.
fn outer(packet: &[u8]) -> (u8, u32, u32) {
    let (field, at) = match packet[0] >> 4 {
        4 => (packet[1], 20),
        _ => (packet[0] << 4 | packet[1] >> 4, 40),
    };
    let header = Header::of(&packet[at..]).unwrap();
    (field, header.spi(), header.sequence())
}

#[test]
fn an_office_and_its_second_site() {
    let room = Room::new("ipsec-office");
    let office = example("ipsec-gateway.toml");
    let site = room.write("site-b.toml", SITE_B);
    let payload = [7; 1_300];
    let call = link().ipv4(HERE, FAR).udp(30_000, 5_060).payload(b"INVITE").to_vec();
    let large = link().ipv4(HERE, INTERNET).udp(40_000, 9_999).payload(&payload).to_vec();
    let six = link()
        .ipv6("2001:db8:a::40".parse().unwrap(), "2001:db8:b::9".parse().unwrap())
        .udp(30_000, 9_999)
        .payload(b"over IPv4")
        .to_vec();
    // Of no site: private, and not for the provider.
    let nowhere = syn(HERE, Ipv4Addr::new(10, 77, 0, 1), 80);
    let mut frames = vec![large; 8];
    frames.extend([call.clone(), six.clone(), syn(HERE, FAR, 443), nowhere]);
    let (sent, json) = play(&room, &office, "lan", &frames, "wan");
    let (sealed, clear): (Vec<_>, Vec<_>) = sent.iter().cloned().partition(|packet| is_esp(packet));
    assert_eq!((sealed.len(), clear.len()), (3, 8), "{json:#}");
    // To the internet translated, and into the tunnel not; the call outside as EF, the others as they were.
    assert!(clear.iter().all(|packet| packet[12..16] == [203, 0, 113, 2]));
    let found: Vec<_> = sealed.iter().map(|packet| outer(packet)).collect();
    assert_eq!(found, [(46 << 2, 0x1001, 1), (0, 0x1001, 2), (0, 0x1001, 3)]);
    for packet in &sealed {
        assert_eq!((&packet[12..16], &packet[16..20]), (&[203, 0, 113, 2][..], &[198, 51, 100, 2][..]));
        assert!(!packet.windows(6).any(|bytes| bytes == b"INVITE"));
    }
    // What went into the tunnel, in clear, beside what left.
    let inner = raw(&room.path("from-lan/site-b.pcapng"));
    assert_eq!(inner.len(), 3);
    assert_eq!(inner[1], (one_hop_on(&six), "into the tunnel".to_owned()));
    // Each waits in the queue of its class.
    let queue = |name: &str| {
        let queues = json["queues"].as_array().unwrap();
        queues.iter().find(|queue| queue["name"] == name).unwrap()["frames"].clone()
    };
    assert_eq!((queue("voice"), queue("site-b"), queue("rest")), (1.into(), 2.into(), 8.into()));
    assert_eq!(json["reasons"], serde_json::json!({ "route-unreachable": 1 }), "{json:#}");

    // The peer's policy opens them.
    let inward: Vec<_> = sealed.iter().map(|packet| framed(packet)).collect();
    let (opened, json) = play(&room, &site, "wan", &inward, "lan");
    let mut expected: Vec<_> = [&call, &six, &syn(HERE, FAR, 443)].map(|frame| twice_on(frame)).into();
    expected[0][1] = 46 << 2;
    wire::ipv4::fill_checksum(&mut expected[0]);
    assert_eq!(opened, expected, "{json:#}");
}

/// The IP packet of a frame behind two routers.
fn twice_on(frame: &[u8]) -> Vec<u8> {
    one_hop_on(&framed(&one_hop_on(frame)))
}

#[test]
fn the_second_site_may_do_what_rules_say() {
    let room = Room::new("ipsec-site");
    let office = example("ipsec-gateway.toml");
    let site = room.write("site-b.toml", SITE_B);
    let files = syn(FAR, SERVER, 445);
    let forbidden = syn(FAR, HERE, 80);
    let ping = link().ipv4(FAR, Ipv4Addr::new(10, 9, 0, 1)).echo_request(1, 1).to_vec();
    let (sealed, json) = play(&room, &site, "lan", &[files.clone(), forbidden, ping], "wan");
    assert_eq!(sealed.len(), 3, "{json:#}");
    let mut inward: Vec<_> = sealed.iter().map(|packet| framed(packet)).collect();
    // The first once more, and the second with a bit of its text changed, under a number that is still free.
    inward.insert(1, inward[0].clone());
    let mut forged = inward[2].clone();
    *forged.last_mut().unwrap() ^= 1;
    forged[14 + 20 + 7] = 9;
    inward.push(forged);
    // In clear, from an address behind the tunnel: no route leads back by the provider's link.
    inward.push(syn(FAR, SERVER, 445));
    let (opened, json) = play(&room, &office, "wan", &inward, "lan");
    assert_eq!(opened, [twice_on(&files)], "{json:#}");
    let reasons = serde_json::json!({ "icv-wrong": 1, "replayed": 1, "rule-reject": 1, "source-spoofed": 1 });
    assert_eq!(json["reasons"], reasons);
    assert_eq!(json["frames"]["delivered"], 1, "{json:#}");
    // What came out of the tunnel, and the answer that went into it.
    let inner = raw(&room.path("from-wan/site-b.pcapng"));
    let ways: Vec<_> = inner.iter().map(|(_, way)| way.split(' ').next().unwrap()).collect();
    assert_eq!(ways, ["out", "out", "into", "out"]);
    assert_eq!(inner[0].0, one_hop_on(&files));
    // The refusal goes back through the tunnel, and nowhere else.
    let answers = packets(&room.path("from-wan/wan.pcapng"));
    assert_eq!(answers.iter().map(|packet| outer(packet)).collect::<Vec<_>>(), [(0, 0x1001, 1)]);
    let back: Vec<_> = answers.iter().map(|packet| framed(packet)).collect();
    let asked = room.path("asked.pcapng");
    std::fs::copy(room.path("in-lan.pcapng"), &asked).unwrap();
    let back = capture_from(&room, "back.pcapng", Nanos::from_secs(1001), &back);
    let out = room.path("both");
    let inputs = [format!("lan={asked}"), format!("wan={back}")];
    let json = wirerate(&["replay", &site, &inputs[0], &inputs[1], "--out", &out, "--json"]).exits(0).json();
    let told = packets(&format!("{out}/lan.pcapng"));
    let [reset] = &told[..] else { panic!("{json:#}") };
    assert_eq!((&reset[12..16], reset[9], reset[33] & 4), (&HERE.octets()[..], 6, 4));
}

/// Who would answer what a tunnel carries is at its far end: traffic is not generated for it, and what is instead is told.
#[test]
fn traffic_is_not_generated_by_a_tunnel() {
    let room = Room::new("ipsec-generate");
    let (adapter, out) = (example("rena-adapter.toml"), room.path("out"));
    let words = ["generate", "traffic", "--policy", &adapter, "--out", &out];
    let refused = wirerate(&words).exits(1);
    assert!(
        refused.err.contains("\"centre\": it is a tunnel") && refused.err.contains("chip run"),
        "{}",
        refused.err
    );
    let refused = wirerate(&[&words[..], &["--wan", "net"]].concat()).exits(1);
    assert!(refused.err.contains("\"net\": it has no IPv4 address"), "{}", refused.err);
}

#[test]
fn an_adapter_and_its_centre() {
    let room = Room::new("ipsec-rena");
    let adapter = example("rena-adapter.toml");
    let centre = room.write("centre.toml", CENTRE);
    let telephone = Ipv4Addr::new(192, 168, 1, 20);
    let data = [1; 1_200];
    let call = link().ipv4(telephone, INTERNET).udp(20_000, 20_002).payload(b"hello").to_vec();
    let film =
        link().ipv4(Ipv4Addr::new(192, 168, 1, 30), INTERNET).udp(5_004, 5_004).payload(&data).to_vec();
    let share = syn(Ipv4Addr::new(192, 168, 1, 30), INTERNET, 445);
    let native = link()
        .ipv6("2001:db8:1:1::5".parse().unwrap(), "2001:db8:77::1".parse().unwrap())
        .udp(40_000, 9_999)
        .to_vec();
    let frames = [film.clone(), call.clone(), share, native.clone()];
    let (sent, json) = play(&room, &adapter, "home", &frames, "net");
    let (sealed, clear): (Vec<_>, Vec<_>) = sent.iter().cloned().partition(|packet| is_esp(packet));
    assert_eq!(clear, [one_hop_on(&native)], "{json:#}");
    let found: Vec<_> = sealed.iter().map(|packet| outer(packet)).collect();
    assert_eq!(found, [(34 << 2, 0x2001, 1), (46 << 2, 0x2001, 2)]);
    assert!(sealed.iter().all(|packet| packet[0] >> 4 == 6), "IPv6 outside");
    assert_eq!(json["reasons"], serde_json::json!({ "rule-drop": 1 }));
    assert_eq!(json["rules"]["no-windows-shares"]["frames"], 1, "{json:#}");

    let inward: Vec<_> = sealed.iter().map(|packet| framed(packet)).collect();
    let (opened, json) = play(&room, &centre, "access", &inward, "core");
    let mut expected = [twice_on(&film), twice_on(&call)];
    for (packet, dscp) in expected.iter_mut().zip([34, 46]) {
        packet[1] = dscp << 2;
        wire::ipv4::fill_checksum(packet);
    }
    assert_eq!(opened, expected, "{json:#}");

    // The other way: a call is let in, a share is not, though both are genuine.
    let ring = link().ipv4(INTERNET, telephone).udp(20_002, 5_060).payload(b"ring").to_vec();
    let (sealed, _) = play(&room, &centre, "core", &[ring.clone(), syn(INTERNET, telephone, 445)], "access");
    let inward: Vec<_> = sealed.iter().map(|packet| framed(packet)).collect();
    let (opened, json) = play(&room, &adapter, "net", &inward, "home");
    let [packet] = &opened[..] else { panic!("{json:#}") };
    assert_eq!((packet[1], &packet[28..]), (0, &b"ring"[..]));
    assert_eq!(json["reasons"], serde_json::json!({ "default-drop": 1 }), "{json:#}");
}

/// Bytes of a packet that routers, classes and `mss` leave as they are; `hops` routers on the way. None of a fragment.
fn lasting(packet: &[u8], hops: u8) -> Option<Vec<u8>> {
    let header =
        wire::ipv4::Header::of(packet).filter(|header| header.version() == 4 && !header.is_fragment())?;
    let (len, head) = (usize::from(header.total_len()), header.header_len());
    let mut own = packet.get(..len)?.to_vec();
    (own[1], own[8]) = (own[1] & 3, own[8].wrapping_add(hops));
    own[10..12].fill(0);
    let is_syn = own[9] == 6 && own.get(head + 13).is_some_and(|flags| flags & 2 != 0);
    own.truncate(if is_syn { head + 12 } else { len });
    Some(own)
}

/// Real traffic of a home through the adapter to its centre, and that of the internet from there to the home: what is let through comes out
/// as it was, and is marked as its class says.
#[test]
fn real_traffic_crosses_the_adapter_and_its_centre() {
    let data = std::env::var_os("WIRERATE_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let captures = data.join("captures");
    let room = Room::new("ipsec-real");
    let (mut crossed, mut calls, mut is_whole) = (0, 0, true);
    for (file, client) in [
        ("iphone.pcap", [192, 168, 2, 17]),
        ("instagram.pcap", [192, 168, 2, 17]),
        ("whatsapp_login_call.pcap", [192, 168, 2, 4]),
        ("1kxun.pcap", [192, 168, 115, 8]),
        ("FAX-Call-t38-CA-TDM-SIP-FB-1.pcap", [10, 35, 60, 100]),
    ] {
        let path = captures.join(file);
        if !path.exists() {
            eprintln!("SKIPPED: no {}; set WIRERATE_DATA", path.display());
            is_whole = false;
            continue;
        }
        // The home's network is the client's, and so are the telephones'. Either direction goes by itself, as if connections were not tracked.
        let [a, b, c, host] = client;
        let net = format!("{a}.{b}.{c}.");
        let stateless = |text: String| format!("mode = \"stateless\"\n{text}");
        let text = std::fs::read_to_string(example("rena-adapter.toml")).unwrap();
        let text = text
            .replace("192.168.1.1/24", &format!("{net}254/24"))
            .replace("192.168.1.16/28", &format!("{net}{}/28", host & 0xf0));
        let adapter = room.write("adapter.toml", stateless(text));
        let text = CENTRE.replace("192.168.1.0/24", &format!("{net}0/24"));
        let centre = room.write("centre.toml", stateless(text));
        let mut reader = Reader::open(&path).unwrap();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next().unwrap() {
            let Some(packet) =
                record.bytes.get(14..).filter(|packet| packet.len() >= 20 && packet[0] >> 4 == 4)
            else {
                continue;
            };
            let is_far = |at: usize| packet[at..at + 3] != client[..3] && packet[at] < 224;
            if packet[12..16] == client && is_far(16) {
                asked.push(framed(packet));
            } else if packet[16..20] == client && is_far(12) {
                answered.push(framed(packet));
            }
        }
        let known = |frames: &[Vec<u8>]| -> HashSet<Vec<u8>> {
            frames.iter().filter_map(|frame| lasting(&frame[14..], 0)).collect()
        };
        for (from, to, frames) in [
            ([&adapter, "home", "net"], [&centre, "access", "core"], asked),
            ([&centre, "core", "access"], [&adapter, "net", "home"], answered),
        ] {
            let [policy, port, out] = from;
            let is_out = port == "home";
            let (sealed, json) = play(&room, policy, port, &frames, out);
            let sealed: Vec<_> =
                sealed.iter().filter(|packet| is_esp(packet)).map(|packet| framed(packet)).collect();
            let [policy, port, out] = to;
            let (opened, told) = play(&room, policy, port, &sealed, out);
            let known = known(&frames);
            for packet in &opened {
                let Some(own) = lasting(packet, 2) else { continue };
                assert!(known.contains(&own), "{file}: {packet:02x?} has never come");
                let head = usize::from(packet[0] & 15) * 4;
                let dport = u16::from_be_bytes([packet[head + 2], packet[head + 3]]);
                let is_udp = packet[9] == 17;
                if is_out {
                    let is_share =
                        matches!(packet[9], 6 | 17) && (matches!(dport, 135..=139) || dport == 445);
                    assert!(!is_share, "{file}: a share of Windows' has crossed");
                    let is_call = is_udp
                        && packet[15] & 0xf0 == host & 0xf0
                        && (dport == 5_060 || (16_384..=32_767).contains(&dport));
                    calls += usize::from(is_call);
                    assert_eq!(packet[1] >> 2 == 46, is_call, "{file}: dscp {}", packet[1] >> 2);
                }
            }
            if is_out {
                let forwarded = json["frames"]["forwarded"].as_u64().unwrap();
                assert!(forwarded as usize * 10 >= frames.len() * 8, "{file}: {json:#}");
                assert!(opened.len() * 10 >= sealed.len() * 9, "{file}: {told:#}");
            }
            crossed += opened.len();
        }
    }
    if is_whole {
        assert!(crossed > 1_000 && calls > 100, "{crossed} packets have crossed, and {calls} of calls");
    }
}

/// The stage of an explanation.
fn stage<'a>(told: &'a Value, name: &str) -> &'a Value {
    told["stages"].as_array().unwrap().iter().find(|stage| stage["stage"] == name).unwrap()
}

#[test]
fn an_explanation_has_the_association_and_both_headers() {
    let room = Room::new("ipsec-explain");
    let office = example("ipsec-gateway.toml");
    let packet = "lan udp 10.1.0.40:30000 > 10.2.0.9:5060 len 20";
    let json = wirerate(&["explain", &office, packet, "--json"]).exits(0).json();
    let sa = &stage(&json, "encap")["sa"];
    // 48 bytes and a trailer of 2, padded by 2; around that 20 of IP, 8 of ESP, 8 of the IV, 16 of the ICV.
    let expected = serde_json::json!({
        "direction": "out", "tunnel": "site-b", "mode": "tunnel", "spi": 0x1001, "algorithm": "aes128-gcm", "auth": null,
        "number": 1, "mtu": 1446, "overhead": 56,
        "outer": {
            "words": "esp 203.0.113.2 > 198.51.100.2 sa 0x1001 num 1 dscp ef ttl 64 length 104",
            "link-source": sa["outer"]["link-source"], "link-destination": sa["outer"]["link-destination"],
            "source": "203.0.113.2", "destination": "198.51.100.2", "protocol": "esp", "ttl": "64", "dscp": "ef",
            "length": "104", "spi": "0x1001", "number": "1",
        },
    });
    assert_eq!(sa, &expected);
    let text = wirerate(&["explain", &office, packet]).exits(0).out;
    for words in [
        "0x1001 of site-b (aes128-gcm), as its number 1",
        "56 bytes longer",
        "MTU is 1446",
        "router 203.0.113.1",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("6c61622d") && !json.to_string().contains("6c61622d"), "no key is told");

    // Of what comes in, the window: the second packet is new, then seen; one of no association is unknown.
    let site = room.write("site-b.toml", SITE_B);
    let calls: Vec<_> = (0..2_u16)
        .map(|turn| link().ipv4(FAR, SERVER).udp(40_000 + turn, 5_060).payload(b"hello").to_vec())
        .collect();
    let (sealed, _) = play(&room, &site, "lan", &calls, "wan");
    let mut frames: Vec<_> = [0, 1, 1].map(|place: usize| framed(&sealed[place])).into();
    let mut unknown = frames[0].clone();
    unknown[14 + 20 + 3] = 0x99;
    frames.push(unknown);
    let inward = capture(&room, "inward.pcapng", &frames);
    let explain = |number: u32| {
        let numbered = format!("wan={inward}:{number}");
        wirerate(&["explain", &office, &numbered, "--json"]).exits(0).json()
    };
    let fresh = explain(2);
    let sa = &stage(&fresh, "decap")["sa"];
    assert_eq!((&sa["tunnel"], &sa["spi"], &sa["number"]), (&"site-b".into(), &0x1002.into(), &2.into()));
    assert_eq!(sa["window"], serde_json::json!({ "place": "new", "highest": 1, "size": 1024 }));
    assert_eq!(sa["inner"]["words"], "udp 10.2.0.9:40001 > 10.1.0.20:5060 ttl 63 length 33");
    let seen = explain(3);
    let sa = &stage(&seen, "decap")["sa"];
    assert_eq!(sa["window"], serde_json::json!({ "place": "received", "highest": 2, "size": 1024 }));
    assert_eq!((&sa["inner"], &seen["reason"]["name"]), (&Value::Null, &"replayed".into()));
    let unknown = explain(4);
    assert_eq!(stage(&unknown, "decap")["sa"]["spi"], 0x1099);
    assert_eq!(unknown["reason"]["name"], "spi-unknown");
}

#[test]
fn example_policies_have_neither_errors_nor_warnings() {
    for name in ["ipsec-gateway.toml", "rena-adapter.toml"] {
        let json = wirerate(&["check", &example(name), "--json"]).exits(0).json();
        assert_eq!((&json["errors"], &json["warnings"]), (&0.into(), &0.into()), "{name}: {json:#}");
    }
}
