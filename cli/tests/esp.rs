//! Tunnels of `wirerate replay` beside other implementations: scapy's IPsec layer opens what leaves and seals what comes in, and
//! tshark dissects what leaves. All suites, IPv4 and IPv6 inside and outside.
#![allow(clippy::unwrap_used)]

#[path = "../../esp/tests/peer/mod.rs"]
mod peer;
mod run;
mod tunnel;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use run::{Room, root, wirerate};
use tunnel::{hex, link, one_hop_on, play, skip};
use wire::esp::{HEADER_LEN, Header, SUITES, Suite};
use wire::ethernet;
use wire::header::Protocol;

/// Port that all packets go to.
const DPORT: u16 = 52_000;

/// A tunnel of one suite, by its number among all.
struct Tunnel {
    number: u8,
    suite: &'static Suite,
    has_esn: bool,
    is_outer_v4: bool,
}

/// Direction of a security association, as the gateway has it.
#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

fn tunnels() -> Vec<Tunnel> {
    let mut tunnels = Vec::new();
    for suite in &SUITES {
        for turn in 0..4_u8 {
            let number = tunnels.len() as u8 + 1;
            tunnels.push(Tunnel { number, suite, has_esn: turn & 1 != 0, is_outer_v4: turn & 2 == 0 });
        }
    }
    tunnels
}

impl Tunnel {
    fn spi(&self, way: Way) -> u32 {
        match way {
            Way::Out => 0x1000 + u32::from(self.number),
            Way::In => 0x2000 + u32::from(self.number),
        }
    }

    /// Key of the cipher and of the integrity algorithm, in hexadecimal digits.
    fn keys(&self, way: Way) -> [String; 2] {
        let Suite { key, salt, auth_key, .. } = *self.suite;
        let step: u8 = match way {
            Way::Out => 37,
            Way::In => 41,
        };
        let of = |len: u8, step: u8| -> Vec<u8> {
            (1..=len).map(|at| at.wrapping_mul(step) ^ self.number).collect()
        };
        [hex(&of(key + salt, step)), hex(&of(auth_key, step + 22))]
    }

    fn peer(&self) -> String {
        let number = self.number;
        if self.is_outer_v4 { format!("198.51.100.{number}") } else { format!("2001:db8:99::{number:x}") }
    }

    /// Host behind the peer, of both IP versions.
    fn far(&self) -> (Ipv4Addr, Ipv6Addr) {
        let number = self.number;
        (
            Ipv4Addr::new(10, number, 0, 9),
            format!("2001:db8:{:x}::9", 0x100 + u32::from(number)).parse().unwrap(),
        )
    }

    fn toml(&self) -> String {
        let (number, peer, name) = (self.number, self.peer(), self.suite.name());
        let local = if self.is_outer_v4 { "192.0.2.1" } else { "2001:db8:ff::1" };
        let (four, six) = self.far();
        let mut text = format!(
            "[interface.t{number}]\nzone = \"vpn\"\n[interface.t{number}.esp]\nlocal = \"{local}\"\nremote = \"{peer}\"\nlegacy = true\n"
        );
        for (way, word) in [(Way::Out, "out"), (Way::In, "in")] {
            let [key, auth_key] = self.keys(way);
            let spi = self.spi(way);
            let _ = write!(
                text,
                "[[interface.t{number}.esp.sa]]\ndirection = \"{word}\"\nspi = {spi}\nalgorithm = \"{}\"\nesn = {}\n",
                name.algorithm(),
                self.has_esn
            );
            for (key, value) in
                [("auth", name.auth().unwrap_or_default()), ("key", &key), ("auth-key", &auth_key)]
            {
                if !value.is_empty() {
                    let _ = writeln!(text, "{key} = \"{value}\"");
                }
            }
        }
        let _ = write!(
            text,
            "[[route]]\nto = \"{four}\"\ninterface = \"t{number}\"\n[[route]]\nto = \"{six}\"\ninterface = \"t{number}\"\n"
        );
        text
    }

    /// The line that the peer of crate `esp` reads: an ESP packet of ours, and an inner packet to be sealed.
    fn line(&self, way: Way, number: u32, inner: &[u8], packet: &[u8]) -> String {
        let word = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let [key, auth_key] = self.keys(way);
        let (name, spi) = (self.suite.name(), self.spi(way));
        let (esn, outer) =
            (if self.has_esn { "on" } else { "off" }, if self.is_outer_v4 { "4" } else { "6" });
        format!(
            "{} {} {} {} {spi} {number} {esn} {outer} no {} {}\n",
            name.algorithm(),
            name.auth().unwrap_or("-"),
            word(&key),
            word(&auth_key),
            hex(inner),
            hex(packet),
        )
    }
}

fn policy(tunnels: &[Tunnel]) -> String {
    let mut text =
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.255.0.1/16\", \"2001:db8:ffff::1/64\"]\n\
                    [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\", \"2001:db8:ff::1/64\"]\n\
                    [default]\n\"lan > vpn\" = \"accept\"\n\"vpn > lan\" = \"accept\"\n\
                    [[route]]\nto = \"198.51.100.0/24\"\nvia = \"192.0.2.254\"\n\
                    [[route]]\nto = \"2001:db8:99::/64\"\nvia = \"2001:db8:ff::fe\"\n"
            .to_owned();
    tunnels.iter().for_each(|tunnel| text.push_str(&tunnel.toml()));
    text
}

/// Frames between the host of the site and that behind a tunnel: one of IPv4 and one of IPv6, of lengths that differ.
fn frames(tunnel: &Tunnel, way: Way) -> [Vec<u8>; 2] {
    let here = (Ipv4Addr::new(10, 255, 0, 5), "2001:db8:ffff::5".parse::<Ipv6Addr>().unwrap());
    let far = tunnel.far();
    let ((four, to_four), (six, to_six)) = match way {
        Way::Out => ((here.0, far.0), (here.1, far.1)),
        Way::In => ((far.0, here.0), (far.1, here.1)),
    };
    let data: Vec<u8> = (0..usize::from(tunnel.number) * 8 % 1_300).map(|at| (at * 7) as u8).collect();
    // None that a dissector of Wireshark takes for its own.
    let ports = (51_000 + u16::from(tunnel.number), DPORT);
    [
        link().ipv4(four, to_four).udp(ports.0, ports.1).payload(&data).to_vec(),
        link().ipv6(six, to_six).udp(ports.0, ports.1).payload(&data[data.len() / 2..]).to_vec(),
    ]
}

#[test]
fn scapy_is_the_other_end_of_every_suite() {
    if !peer::is_there() {
        return skip(peer::NEEDS);
    }
    let room = Room::new("esp-scapy");
    let tunnels = tunnels();
    let policy = room.write("policy.toml", policy(&tunnels));
    let out: Vec<Vec<u8>> = tunnels.iter().flat_map(|tunnel| frames(tunnel, Way::Out)).collect();
    let (sealed, json) = play(&room, &policy, "lan", &out, "wan");
    assert_eq!(sealed.len(), out.len(), "{json:#}");
    let inward: Vec<Vec<u8>> = tunnels.iter().flat_map(|tunnel| frames(tunnel, Way::In)).collect();
    // Two lines for each packet: ours is opened, and one of the other direction sealed, with its own keys.
    let mut lines = String::new();
    for (place, (packet, inner)) in sealed.iter().zip(&inward).enumerate() {
        let (tunnel, number) = (&tunnels[place / 2], place as u32 % 2 + 1);
        let inner = &inner[ethernet::HEADER_LEN..];
        lines += &tunnel.line(Way::Out, number, inner, packet);
        lines += &tunnel.line(Way::In, number, inner, packet);
    }
    let answers = peer::ask(&root().join("esp"), lines);
    assert_eq!(answers.len(), 2 * out.len());
    let mut from_peer = Vec::new();
    for (place, pair) in answers.chunks(2).enumerate() {
        let tunnel = &tunnels[place / 2];
        let name = format!("{} esn {} to {}", tunnel.suite.name(), tunnel.has_esn, tunnel.peer());
        let (opened, _) = pair[0].split_once(' ').unwrap();
        assert_eq!(opened, hex(&one_hop_on(&out[place])), "{name}");
        let (_, esp) = pair[1].split_once(' ').unwrap();
        let esp = bytes(esp);
        from_peer.push(if tunnel.is_outer_v4 {
            let peer = tunnel.peer().parse().unwrap();
            link().ipv4(peer, Ipv4Addr::new(192, 0, 2, 1)).protocol(Protocol::ESP).payload(&esp).to_vec()
        } else {
            let peer = tunnel.peer().parse().unwrap();
            link()
                .ipv6(peer, "2001:db8:ff::1".parse().unwrap())
                .protocol(Protocol::ESP)
                .payload(&esp)
                .to_vec()
        });
    }
    let (opened, json) = play(&room, &policy, "wan", &from_peer, "lan");
    let expected: Vec<Vec<u8>> = inward.iter().map(|frame| one_hop_on(frame)).collect();
    assert_eq!(opened.len(), expected.len(), "{json:#}");
    for (place, (opened, expected)) in opened.iter().zip(&expected).enumerate() {
        assert_eq!(opened, expected, "{}", tunnels[place / 2].suite.name());
    }
    let counted = json["sas"].as_array().unwrap();
    let inbound = counted.iter().filter(|sa| sa["direction"] == "in");
    assert_eq!(inbound.filter(|sa| sa["packets"] == 2).count(), tunnels.len(), "{json:#}");
}

#[test]
fn the_summary_has_security_associations_and_tells_of_their_lifetimes() {
    let room = Room::new("esp-summary");
    let tunnel = Tunnel { number: 1, suite: &SUITES[0], has_esn: false, is_outer_v4: true };
    let text = policy(std::slice::from_ref(&tunnel));
    let bound = "esn = false\nsoft = { packets = 2 }\nhard = { packets = 3 }\n";
    let policy = room.write("policy.toml", text.replacen("esn = false\n", bound, 1));
    let [four, six] = frames(&tunnel, Way::Out);
    let frames = [four.clone(), six.clone(), four, six];
    let (sealed, json) = play(&room, &policy, "lan", &frames, "wan");
    assert_eq!((sealed.len(), &json["reasons"]), (3, &serde_json::json!({ "sa-expired": 1 })));
    let [out, inward] = &json["sas"].as_array().unwrap()[..] else { panic!("{json:#}") };
    // 8 bytes of data: packets of 36 and, with half of it, 52 bytes, with padding and trailer 40 and 56.
    let expected = serde_json::json!({
        "tunnel": "t1", "direction": "out", "spi": 0x1001, "algorithm": "aes128-gcm", "auth": null, "reached": "hard",
        "packets": 3, "bytes": 40 + 56 + 40, "number": 3, "lost": 0,
        "replayed": 0, "icv_wrong": 0, "length": 0, "trailer": 0, "selector": 0, "expired": 1, "sequence": 0,
    });
    assert_eq!(out, &expected);
    assert_eq!((&inward["direction"], &inward["packets"]), (&"in".into(), &0.into()));
    let notes = json["notes"].to_string();
    for bound in ["soft", "hard"] {
        let note = format!("the {bound} lifetime of the security association 0x1001 (out) was reached");
        assert!(notes.contains(&note), "{notes}");
    }
    assert!(notes.contains("1ms after the start") && notes.contains("2ms after the start"), "{notes}");
    let input = format!("lan={}", room.path("in-lan.pcapng"));
    let told = wirerate(&["replay", &policy, &input]).exits(0).out;
    assert!(told.contains("Security associations") && told.contains("hard lifetime reached"), "{told}");
    // No key is in any of it.
    let [key, _] = tunnel.keys(Way::Out);
    assert!(!told.contains(&key) && !json.to_string().contains(&key));
}

/// Algorithms by Wireshark's names: those that it has.
const WIRESHARK: [(&str, &str); 8] = [
    ("aes128-gcm", "AES-GCM with 16 octet ICV [RFC4106]"),
    ("aes256-gcm", "AES-GCM with 16 octet ICV [RFC4106]"),
    ("aes128-cbc", "AES-CBC [RFC3602]"),
    ("aes192-cbc", "AES-CBC [RFC3602]"),
    ("aes256-cbc", "AES-CBC [RFC3602]"),
    ("3des-cbc", "TripleDES-CBC [RFC2451]"),
    ("des-cbc", "DES-CBC [RFC2405]"),
    ("null", "NULL"),
];

const WIRESHARK_AUTH: [(&str, &str); 5] = [
    ("hmac-sha1-96", "HMAC-SHA-1-96 [RFC2404]"),
    ("hmac-sha256-128", "HMAC-SHA-256-128 [RFC4868]"),
    ("hmac-sha384-192", "HMAC-SHA-384-192 [RFC4868]"),
    ("hmac-sha512-256", "HMAC-SHA-512-256 [RFC4868]"),
    ("hmac-md5-96", "HMAC-MD5-96 [RFC2403]"),
];

#[test]
fn tshark_shows_the_inner_packets_of_what_leaves() {
    let is_there = Command::new("tshark").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return skip("tshark (Debian: tshark)");
    }
    let room = Room::new("esp-tshark");
    let word = |list: &[(&str, &'static str)], word: &str| {
        list.iter().find(|(own, _)| *own == word).map(|(_, name)| *name)
    };
    let mut tunnels = tunnels();
    // Wireshark does not know extended numbers, and takes an HMAC over what is sent alone.
    tunnels.retain(|tunnel| !tunnel.has_esn && word(&WIRESHARK, tunnel.suite.name().algorithm()).is_some());
    let policy = room.write("policy.toml", policy(&tunnels));
    let out: Vec<Vec<u8>> = tunnels.iter().flat_map(|tunnel| frames(tunnel, Way::Out)).collect();
    let (sealed, json) = play(&room, &policy, "lan", &out, "wan");
    assert_eq!(sealed.len(), out.len(), "{json:#}");
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", &room.path("from-lan/wan.pcapng"), "-o", "esp.enable_encryption_decode:TRUE"]);
    tshark.args(["-o", "esp.enable_authentication_check:TRUE", "-n", "-T", "fields"]);
    for field in ["esp.spi", "esp.icv_good", "udp.dstport", "udp.length"] {
        tshark.args(["-e", field]);
    }
    for tunnel in &tunnels {
        let name = tunnel.suite.name();
        let [key, auth_key] =
            tunnel.keys(Way::Out).map(|key| if key.is_empty() { key } else { format!("0x{key}") });
        let cipher = word(&WIRESHARK, name.algorithm()).unwrap();
        let auth = name.auth().and_then(|auth| word(&WIRESHARK_AUTH, auth)).unwrap_or("NULL");
        let version = if tunnel.is_outer_v4 { "IPv4" } else { "IPv6" };
        let spi = tunnel.spi(Way::Out);
        let sa = format!(r#""{version}","*","*","{spi:#x}","{cipher}","{key}","{auth}","{auth_key}""#);
        tshark.args(["-o", &format!("uat:esp_sa:{sa}")]);
    }
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), out.len(), "{text}");
    for (place, line) in text.lines().enumerate() {
        let tunnel = &tunnels[place / 2];
        let fields: Vec<&str> = line.split('\t').collect();
        let len = frame_udp_len(&out[place]);
        let is_signed = tunnel.suite.name().auth() != Some("none");
        let good = if is_signed { "1" } else { "" };
        let expected =
            [format!("{:#010x}", tunnel.spi(Way::Out)), good.to_owned(), DPORT.to_string(), len.to_string()];
        assert_eq!(fields, expected, "{} to {}", tunnel.suite.name(), tunnel.peer());
        // Nor is it a matter of the dissector only: the number is the second of its SA at most.
        let at = if tunnel.is_outer_v4 { 20 } else { 40 };
        let header = Header::of(&sealed[place][at..at + HEADER_LEN]).unwrap();
        assert_eq!(header.sequence(), place as u32 % 2 + 1);
    }
}

fn frame_udp_len(frame: &[u8]) -> u16 {
    let at = ethernet::HEADER_LEN + if frame[ethernet::HEADER_LEN] >> 4 == 4 { 20 } else { 40 };
    u16::from_be_bytes([frame[at + 4], frame[at + 5]])
}

fn bytes(digits: &str) -> Vec<u8> {
    wire::esp::Secret::of_hex(digits).unwrap().expose().to_vec()
}
