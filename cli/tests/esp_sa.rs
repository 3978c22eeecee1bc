//! `wirerate replay --esp-sa`: captures decrypted by a table of Wireshark's, beside tshark with the same table.
#![allow(clippy::unwrap_used)]

mod run;
mod tunnel;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use esp::{Keys, SPARE, format, wireshark};
use run::{Room, root, wirerate};
use serde_json::{Value, json};
use tunnel::{capture, link, raw, skip};
use wire::esp::{Direction, Esn, HEADER_LEN, HeaderMut, Secret, Suite, Tfc};
use wire::header::Protocol;
use wire::ipv4;

const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const OFFICE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// A security association between the peer and the office of `policies/ipsec-gateway.toml`.
struct Sa {
    suite: &'static Suite,
    keys: Keys,
    spi: u32,
    esn: Esn,
}

impl Sa {
    fn new(algorithm: &str, auth: Option<&str>, spi: u32) -> Sa {
        let suite = Suite::named(algorithm, auth).unwrap();
        let bytes = |len: u8, step: u8| Secret::new((1..=len).map(|at| at.wrapping_mul(step)).collect());
        let keys = Keys { cipher: bytes(suite.key + suite.salt, 37), auth: bytes(suite.auth_key, 59) };
        Sa { suite, keys, spi, esn: Esn::Off }
    }

    fn line(&self) -> String {
        let [source, destination] = [PEER, OFFICE].map(|end| Some(end.into()));
        wireshark::line(source, destination, self.spi, self.suite, &self.keys).unwrap().to_string()
    }

    fn seal(&self, number: u64, next: Protocol, payload: &[u8]) -> Vec<u8> {
        let layout = format::layout(payload.len(), self.suite, Tfc::Off, 1_500).unwrap();
        let iv = usize::from(self.suite.iv);
        let mut bytes = vec![0; SPARE + usize::from(layout.total)];
        let text = &mut bytes[SPARE + HEADER_LEN + iv..][..usize::from(layout.text)];
        text[..payload.len()].copy_from_slice(payload);
        format::trailer(text, &layout, next);
        let mut header = HeaderMut::of(&mut bytes[SPARE..]).unwrap();
        header.set_spi(self.spi);
        header.set_sequence(number as u32);
        let transform = esp::expand(self.suite, &self.keys, Direction::Out).unwrap();
        transform.seal(esp::Packet { bytes: &mut bytes, number, esn: self.esn });
        bytes.split_off(SPARE)
    }

    fn frame(&self, number: u64, next: Protocol, payload: &[u8]) -> Vec<u8> {
        let esp = self.seal(number, next, payload);
        link().ipv4(PEER, OFFICE).protocol(Protocol::ESP).payload(&esp).to_vec()
    }
}

/// An inner packet from site B to the office's server.
fn inner(sport: u16) -> Vec<u8> {
    let packet = link().ipv4(Ipv4Addr::new(10, 2, 0, 9), Ipv4Addr::new(10, 1, 0, 20));
    packet.udp(sport, 5_060).payload(b"hello, office").to_vec()[14..].to_vec()
}

fn office() -> String {
    std::fs::read_to_string(root().join("policies/ipsec-gateway.toml")).unwrap()
}

fn replay(room: &Room, policy: &str, input: &str, table: &str) -> Value {
    let words = ["replay", policy, input, "--esp-sa", table, "--json", "--out", &room.path("out")];
    wirerate(&words).exits(0).json()
}

#[test]
fn what_comes_in_goes_on_through_the_policy_without_its_keys() {
    let room = Room::new("esp-sa-in");
    // The policy of a live gateway: its keys are in files, which are not here.
    let at = |text: &str| text.find("key = \"6c").unwrap();
    let mut text = office();
    for file in ["out", "in"] {
        let begin = at(&text);
        let end = begin + text[begin..].find('\n').unwrap();
        text.replace_range(begin..end, &format!("key-file = \"keys/{file}\""));
    }
    let policy = room.write("policy.toml", text);
    let known = Sa::new("aes128-gcm", None, 0x1002);
    let new = Sa::new("aes256-cbc", Some("hmac-sha256-128"), 0xc0de_0001);
    let stranger = Sa::new("aes128-gcm", None, 0xc0de_0002);
    let frames = [
        known.frame(1, Protocol::IPV4, &inner(40_001)),
        new.frame(1, Protocol::IPV4, &inner(40_002)),
        known.frame(1, Protocol::IPV4, &inner(40_001)),
        stranger.frame(1, Protocol::IPV4, &inner(40_003)),
    ];
    let input = format!("wan={}", capture(&room, "in.pcapng", &frames));
    let table = room.write("esp_sa", format!("# by hand\n{}\n{}\n", known.line(), new.line()));
    // Without the table the policy is refused, as its keys are not read unasked.
    wirerate(&["replay", &policy, &input]).exits(1);
    let json = replay(&room, &policy, &input, &table);
    assert_eq!(json["reasons"], json!({ "replayed": 1, "spi-unknown": 1 }), "{json:#}");
    assert_eq!(json["frames"]["forwarded"], 2, "{json:#}");
    let row = |line: u32, spi: u32, decrypted: u32| json!({ "line": line, "spi": spi, "tunnel": "site-b", "decrypted": decrypted, "icv_wrong": 0, "malformed": 0 });
    assert_eq!(json["esp_sa"], json!([row(2, 0x1002, 2), row(3, 0xc0de_0001, 1)]));
    let sent = tunnel::packets(&room.path("out/lan.pcapng"));
    let ports: Vec<_> = sent.iter().map(|packet| u16::from_be_bytes([packet[20], packet[21]])).collect();
    assert_eq!(ports, [40_001, 40_002]);
    let comment = |number: u32, spi: u32| format!("esp 198.51.100.2 > 203.0.113.2 sa {spi:#x} num {number}");
    let expected = [
        (inner(40_001), comment(1, 0x1002)),
        (inner(40_002), comment(1, 0xc0de_0001)),
        (inner(40_001), comment(1, 0x1002)),
    ];
    assert_eq!(raw(&room.path("out/decrypted.pcapng")), expected);
    // A key is in nothing but the table.
    let key = known.line().split("\"0x").nth(2).unwrap()[..32].to_owned();
    for file in std::fs::read_dir(room.path("out")).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let key = Secret::of_hex(&key).unwrap();
        assert!(!bytes.windows(16).any(|window| window == key.expose()));
    }
    assert!(!json.to_string().contains(&key));
}

/// A capture may begin behind the first 2^32 packets: the table has the upper half of their numbers, for the policy as well.
#[test]
fn the_upper_half_of_numbers_is_the_tunnels_too() {
    let room = Room::new("esp-sa-upper");
    let text = office();
    let begin = text.find("direction = \"in\"").unwrap();
    let begin = begin + text[begin..].find("key = \"").unwrap();
    let end = begin + text[begin..].find('\n').unwrap();
    for (high, esn) in [(0, true), (1, true), (5, true), (0, false)] {
        // The policy's own, whose key is not there, and one that the policy does not know.
        let more = if esn { "\nesn = true" } else { "" };
        let policy = format!("{}key-file = \"keys/in\"{more}{}", &text[..begin], &text[end..]);
        let policy = room.write("policy.toml", policy.replace("\nkey = \"", "\nkey-file = \"keys/"));
        let esn = if esn { Esn::On } else { Esn::Off };
        let sas = [("aes128-gcm", 0x1002), ("aes256-gcm", 0xc0de_0001)]
            .map(|(algorithm, spi)| Sa { esn, ..Sa::new(algorithm, None, spi) });
        let top: u64 = high << 32;
        let numbers = [top + 7, top + 8, top + 6];
        let frames: Vec<Vec<u8>> = sas
            .iter()
            .flat_map(|sa| numbers.map(|number| sa.frame(number, Protocol::IPV4, &inner(40_001))))
            .collect();
        let bits = if esn == Esn::On { 64 } else { 32 };
        let lines = sas.each_ref().map(|sa| format!("{},\"{bits}-bit\",\"{high:#010x}\"\n", sa.line()));
        let input = format!("wan={}", capture(&room, "in.pcapng", &frames));
        let json = replay(&room, &policy, &input, &room.write("esp_sa", lines.concat()));
        assert_eq!(
            (&json["reasons"], &json["frames"]["forwarded"]),
            (&json!({}), &json!(6)),
            "{high}: {json:#}"
        );
        assert!(json["esp_sa"].as_array().unwrap().iter().all(|sa| sa["decrypted"] == 3), "{json:#}");
    }
}

#[test]
fn all_forms_are_decrypted_whoever_sent_them() {
    let room = Room::new("esp-sa-forms");
    let policy = room.write("policy.toml", office());
    let plain = Sa::new("aes128-cbc", Some("hmac-sha1-96"), 0x9001);
    let extended = Sa { esn: Esn::On, ..Sa::new("aes256-gcm", None, 0x9002) };
    let null = Sa::new("null", Some("hmac-sha256-128"), 0x9003);
    let of_inner = |packet: &[u8]| packet[20..].to_vec();
    // In UDP; transport mode; a dummy packet; padding against traffic analysis; out of the office.
    let in_udp = link()
        .ipv4(PEER, OFFICE)
        .udp(4_500, 4_500)
        .payload(&plain.seal(1, Protocol::IPV4, &inner(1)))
        .to_vec();
    let mut padded = inner(4);
    padded.extend([0; 100]);
    let mut forged = plain.frame(9, Protocol::IPV4, &inner(9));
    *forged.last_mut().unwrap() ^= 1;
    let mut cut = plain.frame(10, Protocol::IPV4, &inner(10));
    cut.truncate(14 + 20 + 30);
    cut[14 + 2..14 + 4].copy_from_slice(&50_u16.to_be_bytes());
    let frames = [
        in_udp,
        plain.frame(2, Protocol::UDP, &of_inner(&inner(2))),
        plain.frame(3, Protocol::NO_NEXT, b"nothing to see"),
        plain.frame(4, Protocol::IPV4, &padded),
        extended.frame(1, Protocol::IPV4, &inner(5)),
        extended.frame(2, Protocol::IPV4, &inner(6)),
        null.frame(1, Protocol::IPV4, &inner(7)),
        forged,
        cut,
        link().ipv4(PEER, OFFICE).udp(4_500, 4_500).payload(b"\0\0\0\0IKE").to_vec(),
    ];
    let input = format!("wan={}", capture(&room, "in.pcapng", &frames));
    let unchecked =
        null.line().replace("HMAC-SHA-256-128 [RFC4868]", "ANY 128 bit authentication [no checking]");
    let table = room.write("esp_sa", [plain.line(), extended.line(), unchecked].join("\n"));
    let json = replay(&room, &policy, &input, &table);
    let counts: Vec<_> = json["esp_sa"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            [&row["decrypted"], &row["icv_wrong"], &row["malformed"]].map(|count| count.as_u64().unwrap())
        })
        .collect();
    assert_eq!(counts, [[4, 1, 1], [2, 0, 0], [1, 0, 0]], "{json:#}");
    let found = raw(&room.path("out/decrypted.pcapng"));
    let packets: Vec<_> = found.iter().map(|(packet, _)| packet.clone()).collect();
    let transport = link().ipv4(PEER, OFFICE).udp(2, 5_060).payload(b"hello, office").to_vec()[14..].to_vec();
    assert_eq!(packets.len(), 6);
    assert_eq!(
        [&packets[0], &packets[2], &packets[3], &packets[4], &packets[5]],
        [1, 4, 5, 6, 7].map(inner).each_ref()
    );
    // Its sum is that of the inner packet: addresses inside were others.
    assert_eq!((&packets[1][..26], &packets[1][28..]), (&transport[..26], &transport[28..]));
}

/// Cuts an IPv4 frame into fragments of so many bytes of payload.
fn fragments(frame: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let (head, payload) = frame.split_at(14 + 20);
    let last = payload.len().div_ceil(size) - 1;
    let cut = |(place, piece): (usize, &[u8])| {
        let mut fragment = [head, piece].concat();
        let mut header = ipv4::HeaderMut::of(&mut fragment[14..]).unwrap();
        header.set_total_len(20 + piece.len() as u16);
        header.set_id(id);
        let more = if place < last { 0x2000 } else { 0 };
        header.set_flags_and_offset(more | (place * size / 8) as u16);
        ipv4::fill_checksum(&mut fragment[14..]);
        fragment
    };
    payload.chunks(size).enumerate().map(cut).collect()
}

#[test]
fn esp_within_esp_is_decrypted_again_and_fragments_are_put_together() {
    let room = Room::new("esp-sa-nested");
    let policy = room.write("policy.toml", office());
    let sas: Vec<Sa> = (1..=6).map(|of| Sa::new("aes128-gcm", None, 0x9000 + of)).collect();
    let unknown = Sa::new("aes128-gcm", None, 0x9100);
    // The first one is the innermost.
    let nested = |sas: &[&Sa], number: u64, port: u16| {
        let (last, within) = sas.split_last().unwrap();
        let packet = within
            .iter()
            .fold(inner(port), |packet, sa| sa.frame(number, Protocol::IPV4, &packet)[14..].to_vec());
        last.frame(number, Protocol::IPV4, &packet)
    };
    let transport = {
        // ESP of transport mode, in a tunnel: the header of the packet within is the one of its ends.
        let esp = sas[0].frame(9, Protocol::UDP, &inner(4)[20..]);
        sas[1].frame(9, Protocol::IPV4, &esp[14..])
    };
    let many: Vec<&Sa> = sas.iter().collect();
    let mut frames = vec![
        nested(&[&sas[0], &sas[1]], 1, 1),
        nested(&many[..4], 2, 2),
        nested(&many[..5], 3, 3),
        transport,
    ];
    // In any order, some twice; another one's between; one of which a fragment is missing.
    let [cut, other, missing] = [(4, 7), (5, 8), (6, 9)]
        .map(|(number, id)| fragments(&nested(&[&sas[0], &sas[1]], number, number as u16 + 1), 40, id));
    assert!(cut.len() > 3);
    frames.extend(cut.iter().rev().take(cut.len() - 1).cloned());
    frames.push(cut[1].clone());
    frames.extend(other.clone());
    frames.push(cut[0].clone());
    frames.extend(missing.iter().skip(1).cloned());
    // What is within is in fragments of its own: each has come as a packet of the outer tunnel.
    let within = fragments(&sas[0].frame(7, Protocol::IPV4, &inner(8)), 48, 11);
    frames.extend(
        within.iter().zip(7..).map(|(piece, number)| sas[1].frame(number, Protocol::IPV4, &piece[14..])),
    );
    frames.push(nested(&[&unknown, &sas[1]], 20, 9));
    let input = format!("wan={}", capture(&room, "in.pcapng", &frames));
    let lines: Vec<String> = sas.iter().map(Sa::line).collect();
    let json = replay(&room, &policy, &input, &room.write("esp_sa", lines.join("\n")));
    let found = raw(&room.path("out/decrypted.pcapng"));
    let packets: Vec<&[u8]> = found.iter().map(|(packet, _)| &packet[..]).collect();
    let whole = |port: u16| inner(port);
    let deep = sas[0].frame(3, Protocol::IPV4, &inner(3))[14..].to_vec();
    let mut expected = vec![whole(1), whole(2), deep];
    expected.push(link().ipv4(PEER, OFFICE).udp(4, 5_060).payload(b"hello, office").to_vec()[14..].to_vec());
    expected.extend([whole(6), whole(5)]);
    expected.extend(within[..within.len() - 1].iter().map(|piece| piece[14..].to_vec()));
    expected.push(whole(8));
    expected.push(unknown.frame(20, Protocol::IPV4, &inner(9))[14..].to_vec());
    // Of transport mode the sum is that of other addresses.
    let same = |found: &[u8], expected: &[u8], place: usize| match place {
        3 => found[..26] == expected[..26] && found[28..] == expected[28..],
        _ => found == expected,
    };
    assert_eq!(packets.len(), expected.len(), "{json:#}");
    for (place, (found, expected)) in packets.iter().zip(&expected).enumerate() {
        assert!(same(found, expected, place), "{place}: {found:02x?} for {expected:02x?}");
    }
    let of = |spi: u32, number: u32| format!("esp 198.51.100.2 > 203.0.113.2 sa {spi:#x} num {number}");
    assert_eq!(found[0].1, format!("{}, {}", of(0x9002, 1), of(0x9001, 1)));
    assert_eq!(found[2].1, [5, 4, 3, 2].map(|at| of(0x9000 + at, 3)).join(", "));
    let notes = json["notes"].to_string();
    assert!(notes.contains(&format!("{} were fragments without the others", missing.len() - 1)), "{notes}");
}

/// Captures of tcpdump's own tests, with their keys: pings in ESP, and in ESP within ESP whose inner end is another. What they say is
/// known from there.
#[test]
fn real_captures_are_decrypted_to_the_last_ping() {
    let data = std::env::var_os("WIRERATE_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let captures = data.join("captures");
    let line = |destination: &str, spi: &str, cipher: &str, key: &str| {
        format!(
            "\"IPv4\",\"192.1.2.23\",\"{destination}\",\"{spi}\",\"{cipher}\",\"0x{key}\",\"ANY 96 bit authentication [no checking]\",\"0x\"\n"
        )
    };
    let triple = "TripleDES-CBC [RFC2451]";
    let outer = line("192.1.2.45", "0x12345678", triple, "43434545464649494a4a4c4c4f4f51515252545457575840");
    let inner = line("192.0.1.1", "0xabcdabcd", triple, "434545464649494a4a4c4c4f4f5151525254545757584043");
    let aes = "aaaabbbbccccdddd4043434545464649494a4a4c4c4f4f515152525454575758";
    let single = line("192.1.2.45", "0xd1234567", "AES-CBC [RFC3602]", aes);
    let room = Room::new("esp-sa-real");
    let policy = room.write("policy.toml", office());
    for (file, table, depth) in
        [("08-sunrise-sunset-aes.pcap", single, 1), ("08-sunrise-sunset-esp2.pcap", outer + &inner, 2)]
    {
        let path = captures.join(file);
        if !path.exists() {
            eprintln!("SKIPPED: no {}; set WIRERATE_DATA", path.display());
            continue;
        }
        let input = format!("wan={}", path.display());
        let json = replay(&room, &policy, &input, &room.write("esp_sa", table));
        let found = raw(&room.path("out/decrypted.pcapng"));
        assert_eq!(found.len(), 8, "{file}: {json:#}");
        for (place, (packet, comment)) in (0..).zip(&found) {
            assert_eq!((packet.len(), packet[9], packet[20]), (84, 1, 8), "{file}");
            assert_eq!(packet[12..20], [192, 0, 2, 1, 192, 0, 1, 1], "{file}");
            let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            assert_eq!((word(24), word(26)), (28_416, 1_280 + 256 * place), "{file}");
            assert_eq!(comment.matches("esp 192.1.2.23").count(), depth, "{comment}");
        }
    }
}

#[test]
fn tshark_takes_the_same_lines_and_finds_the_same() {
    let is_there = Command::new("tshark").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        return skip("tshark (Debian: tshark)");
    }
    let room = Room::new("esp-sa-tshark");
    let sas = [
        Sa::new("aes128-gcm", None, 0x9001),
        Sa::new("aes192-cbc", Some("hmac-sha1-96"), 0x9002),
        Sa::new("aes256-cbc", Some("hmac-sha512-256"), 0x9003),
        Sa::new("null", Some("hmac-sha384-192"), 0x9004),
        Sa::new("3des-cbc", Some("hmac-md5-96"), 0x9005),
    ];
    let frames: Vec<_> =
        sas.iter().zip(1..).map(|(sa, port)| sa.frame(1, Protocol::IPV4, &inner(port))).collect();
    let sealed = capture(&room, "in.pcapng", &frames);
    let lines: Vec<String> = sas.iter().map(Sa::line).collect();
    // Wireshark does not read a last line that has no end.
    let table = lines.join("\n") + "\n";
    // The table as a file of a profile.
    let home = room.path("home");
    let profile = format!("{home}/.config/wireshark");
    std::fs::create_dir_all(&profile).unwrap();
    std::fs::write(format!("{profile}/esp_sa"), &table).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.env("HOME", &home).env_remove("XDG_CONFIG_HOME").args([
        "-r",
        &sealed,
        "-n",
        "-T",
        "fields",
        "-e",
        "udp.srcport",
    ]);
    tshark.args(["-o", "esp.enable_encryption_decode:TRUE"]);
    let output = tshark.output().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        theirs.lines().collect::<Vec<_>>(),
        ["1", "2", "3", "4", "5"],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let policy = room.write("policy.toml", office());
    // Once more as strongSwan's save-keys writes AES-GCM, and Wireshark up to 3.
    let older = table.replace("AES-GCM with 16 octet ICV", "AES-GCM").replacen(
        "\"NULL\",\"\"",
        "\"ANY 128 bit authentication [no checking]\",\"0x\"",
        1,
    );
    assert!(older.contains("\"AES-GCM [RFC4106]\"") && older.contains("no checking"), "{older}");
    for table in [older, table] {
        let json = replay(&room, &policy, &format!("wan={sealed}"), &room.write("esp_sa", table));
        assert!(json["esp_sa"].as_array().unwrap().iter().all(|row| row["decrypted"] == 1), "{json:#}");
    }
    let ours = raw(&room.path("out/decrypted.pcapng"));
    assert_eq!(ours.into_iter().map(|(packet, _)| packet).collect::<Vec<_>>(), [1, 2, 3, 4, 5].map(inner));
}

#[test]
fn bad_tables_are_refused_with_all_their_lines() {
    let room = Room::new("esp-sa-bad");
    let policy = room.write("policy.toml", office());
    let sa = Sa::new("aes128-gcm", None, 0x9001);
    let input = format!("wan={}", capture(&room, "in.pcapng", &[sa.frame(1, Protocol::IPV4, &inner(1))]));
    let good = sa.line();
    let key = good.split("\"0x").nth(2).unwrap()[..32].to_owned();
    let cut = &good[..good.len() - 9];
    let unknown = good.replace("AES-GCM with 16 octet ICV [RFC4106]", "AES-CTR [RFC3686]");
    let short = good.replace(&key, &key[..8]);
    let table = room.write("esp_sa", format!("{good}\n\n{cut}\n# {good}\n{unknown}\n{short}\n"));
    let refused = wirerate(&["replay", &policy, &input, "--esp-sa", &table]).exits(3);
    for line in ["esp_sa:3: ", "esp_sa:5: ", "esp_sa:6: "] {
        assert!(refused.err.contains(line), "{line}: {}", refused.err);
    }
    assert!(refused.err.contains("AES-CTR") && refused.err.contains("3 lines"), "{}", refused.err);
    assert!(!refused.err.contains("esp_sa:1: ") && !refused.err.contains(&key[8..]), "{}", refused.err);
    let empty = room.write("empty", "# none\n");
    let refused = wirerate(&["replay", &policy, &input, "--esp-sa", &empty]).exits(3);
    assert!(refused.err.contains("no security association"), "{}", refused.err);
    wirerate(&["replay", &policy, &input, "--esp-sa", &room.path("nowhere")]).exits(3);
    let wrong: IpAddr = PEER.into();
    assert!(wireshark::parse(&good).0[0].source.has(wrong));
}
