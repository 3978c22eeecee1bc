//! `wirerate replay` and `generate`: what comes out, and what is said of it.
#![allow(clippy::unwrap_used)]

mod run;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use run::{Room, home_office, root, wirerate};
use serde_json::Value;
use wire::capture::link::LinkType;
use wire::capture::{PcapngWriter, Reader, Record};
use wire::ethernet::{self, Mac};
use wire::header::Protocol;
use wire::tcp::{self, Flags};
use wire::{Nanos, build, ipv4};

/// Two networks behind a gateway of unknown link-layer address.
const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/24"]
[interface.wan]
zone = "wan"
addresses = ["192.0.2.1/24"]
[default]
"lan > wan" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
[[rule]]
name = "no-telnet"
from = "lan"
protocol = "tcp"
dport = 23
action = "drop"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
"#;

/// A frame of TCP from one place to another.
fn tcp(from: &str, to: &str, dport: u16, flags: Flags) -> Vec<u8> {
    let header = build::Tcp { sport: 5000, dport, flags, ..Default::default() };
    let (from, to) = (from.parse().expect("an address"), to.parse().expect("an address"));
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8])).ipv4(from, to).tcp(header).to_vec()
}

/// A capture of these frames, a millisecond apart, on an interface of that name.
fn capture(room: &Room, file: &str, interface: &str, frames: &[Vec<u8>]) -> String {
    let path = room.path(file);
    let mut writer = PcapngWriter::create(&path).expect("a capture");
    writer.interface(interface).expect("an interface");
    for (place, frame) in frames.iter().enumerate() {
        let at = Nanos::from_secs(1000) + Nanos::from_millis(place as u64);
        writer.write(&Record::new(at, frame)).expect("a record");
    }
    writer.finish().expect("a capture");
    path
}

fn outgoing() -> Vec<Vec<u8>> {
    vec![
        tcp("10.0.0.5", "198.51.100.7", 443, Flags::SYN),
        tcp("10.0.0.5", "198.51.100.7", 23, Flags::SYN),
        tcp("10.0.0.6", "198.51.100.7", 443, Flags::SYN),
    ]
}

fn count_of(json: &Value, path: &str) -> u64 {
    json.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {json:#}"))
}

#[track_caller]
fn assert_conserved(json: &Value) {
    let ended: u64 = ["forwarded", "delivered", "answered", "dropped", "held"]
        .iter()
        .map(|name| count_of(json, &format!("/frames/{name}")))
        .sum();
    assert_eq!(count_of(json, "/frames/received"), ended, "{json:#}");
    let reasons: u64 = json["reasons"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    assert_eq!(reasons, count_of(json, "/frames/answered") + count_of(json, "/frames/dropped"), "{json:#}");
}

fn records(path: &str) -> Vec<(Nanos, Vec<u8>, Option<String>)> {
    let mut reader = Reader::open(path).expect(path);
    let mut records = Vec::new();
    while let Some(record) = reader.next().expect("a sound capture") {
        records.push((record.at, record.bytes.to_vec(), record.comment.map(|text| text.into_owned())));
    }
    records
}

/// An interface without Ethernet in the place of the outer one: captures of raw IP, out and in again.
#[test]
fn links_without_ethernet_have_captures_of_raw_ip() {
    let room = Room::new("bare");
    let text = POLICY.replace("zone = \"wan\"\n", "zone = \"wan\"\nlink = \"ip\"\n");
    let policy = room.write("policy.toml", &text);
    let lan = format!("lan={}", capture(&room, "a.pcapng", "eth0", &outgoing()));
    let out = room.path("out");
    let json = wirerate(&["replay", &policy, &lan, "--out", &out, "--json"]).exits(0).json();
    assert_conserved(&json);
    assert_eq!(count_of(&json, "/frames/forwarded"), 2);
    let file = format!("{out}/wan.pcapng");
    let mut reader = Reader::open(&file).expect("what left by wan");
    let mut sent = 0;
    while let Some(record) = reader.next().expect("a sound capture") {
        assert_eq!((record.link, record.bytes[0], record.bytes.len()), (LinkType::RAW, 0x45, 40));
        assert_eq!(record.original_len, 40);
        sent += 1;
    }
    assert_eq!(sent, 2);
    // Of several interfaces, the dropped are of one kind: libpcap reads no other.
    let mut reader = Reader::open(format!("{out}/dropped.pcapng")).expect("what was dropped");
    assert_eq!(reader.next().expect("a sound capture").expect("one").link, LinkType::ETHERNET);
    // What left comes in elsewhere: all there is of it is the packet.
    let json = wirerate(&["replay", &policy, &format!("wan={file}"), "--json"]).exits(0).json();
    assert_eq!(json["reasons"], serde_json::json!({ "source-spoofed": 2 }));
    // With another kind of link in between, the same packets leave by Ethernet.
    let plain = room.write("plain.toml", POLICY);
    let other = room.path("other");
    wirerate(&["replay", &plain, &lan, "--out", &other]).exits(0);
    let (bare, framed) = (records(&file), records(&format!("{other}/wan.pcapng")));
    assert_eq!(bare.len(), framed.len());
    for ((at, packet, _), (then, frame, _)) in bare.iter().zip(&framed) {
        assert_eq!((at, &packet[..]), (then, &frame[14..]));
    }
}

#[test]
fn the_object_is_the_contract() {
    let room = Room::new("contract");
    let policy = room.write("policy.toml", POLICY);
    let lan = format!("lan={}", capture(&room, "a.pcapng", "eth0", &outgoing()));
    let out = room.path("out");
    let json = wirerate(&["replay", &policy, &lan, "--out", &out, "--json"]).exits(0).json();
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json["frames"]), ["received", "forwarded", "delivered", "answered", "dropped", "held"]);
    assert_eq!(keys(&json["flows"]), ["created", "ended", "live", "peak"]);
    assert_conserved(&json);
    assert_eq!(count_of(&json, "/frames/received"), 3);
    assert_eq!(count_of(&json, "/frames/forwarded"), 2);
    assert_eq!(json["reasons"], serde_json::json!({ "rule-drop": 1 }));
    assert_eq!(json["rules"]["no-telnet"], serde_json::json!({ "frames": 1, "bytes": 40 }));
    assert_eq!(json["nats"]["out"], serde_json::json!({ "frames": 2, "bytes": 80 }));
    assert_eq!(json["flows"], serde_json::json!({ "created": 2, "ended": 0, "live": 2, "peak": 2 }));
    assert!(json["seconds"].as_f64().is_some() && json["mpps"].as_f64().is_some());

    let dropped = records(&room.path("out/dropped.pcapng"));
    assert_eq!(dropped.len(), 1);
    let (at, bytes, comment) = &dropped[0];
    assert_eq!(*at, Nanos::from_secs(1000) + Nanos::from_millis(1));
    assert_eq!(bytes, &outgoing()[1], "as it was captured");
    assert_eq!(comment.as_deref(), Some("dropped: rule-drop by rule \"no-telnet\", in by lan"));
    assert_eq!(records(&room.path("out/wan.pcapng")).len(), 2);
    assert_eq!(records(&room.path("out/lan.pcapng")).len(), 0);
}

/// Scripts look for what left by an interface under its name, also where its cable is another's.
#[test]
fn every_interface_has_a_file_of_its_own() {
    let room = Room::new("files");
    let vlan = |name: &str, tags: &str, network: u8| {
        format!(
            "[interface.\"{name}\"]\nzone = \"lan\"\nparent = \"lan\"\nvlan = {tags}\naddresses = [\"10.0.{network}.1/24\"]\n"
        )
    };
    let names = [("guest", "20"), ("queue", "[100, 20]"), ("a/b", "21"), ("a_b", "22"), ("dropped", "23")];
    let more: String =
        names.iter().zip(1..).map(|((name, tags), network)| vlan(name, tags, network)).collect();
    let policy =
        room.write("policy.toml", format!("{more}{POLICY}\n[[rule]]\nname = \"in\"\naction = \"accept\"\n"));
    let frames: Vec<_> =
        (0..=5).map(|net| tcp("10.0.0.5", &format!("10.0.{net}.9"), 80, Flags::SYN)).skip(1).collect();
    let lan = format!("lan={}", capture(&room, "a.pcapng", "eth0", &frames));
    let out = room.path("out");
    wirerate(&["replay", &policy, &lan, "--out", &out]).exits(0);
    let files = ["guest", "queue", "a_b", "a_b_", "dropped_"];
    for (file, tags) in files.iter().zip([&[20][..], &[100, 20], &[21], &[22], &[23]]) {
        let left = records(&room.path(&format!("out/{file}.pcapng")));
        let [(_, bytes, _)] = &left[..] else { panic!("{} frames left by {file}", left.len()) };
        let layer = ethernet::parse(bytes).unwrap();
        let ids: Vec<u16> = layer.tags.as_slice().iter().map(|tag| tag.id()).collect();
        assert_eq!(ids, tags, "{file}");
    }
    for file in ["lan", "wan", "dropped"] {
        assert_eq!(records(&room.path(&format!("out/{file}.pcapng"))).len(), 0, "{file}");
    }
}

#[test]
fn what_rules_say_to_log_is_written_with_its_fate() {
    let room = Room::new("logged");
    let logging = POLICY.replace("action = \"drop\"", "action = \"drop\"\nlog = true");
    let policy = room.write("policy.toml", logging);
    let lan = format!("lan={}", capture(&room, "a.pcapng", "eth0", &outgoing()));
    let log = room.path("log.json");
    wirerate(&["replay", &policy, &lan, "--out", &room.path("out"), "--log", &log]).exits(0);
    let lines = fs::read_to_string(&log).unwrap();
    let [line] = lines.lines().collect::<Vec<_>>()[..] else { panic!("one record, not {lines}") };
    let record: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&record["rule"], &record["reason"]), (&"no-telnet".into(), &"rule-drop".into()));
    let logged = records(&room.path("out/logged.pcapng"));
    let [(_, bytes, comment)] = &logged[..] else { panic!("{} packets were logged", logged.len()) };
    assert_eq!(bytes, &outgoing()[1], "as it was captured");
    assert_eq!(comment.as_deref(), Some("rule \"no-telnet\": dropped (rule-drop)"));
}

#[test]
fn interfaces_are_inferred_from_names_and_from_addresses() {
    let room = Room::new("inferred");
    let policy = room.write("policy.toml", POLICY);
    let by = |capture: &str| {
        let json = wirerate(&["replay", &policy, capture, "--json"]).exits(0).json();
        assert_conserved(&json);
        let entered = json["inputs"][0]["entered"].as_array().expect("a list").clone();
        let told = entered.iter().map(|entry| {
            format!(
                "{} {} {}",
                entry["interface"].as_str().unwrap(),
                entry["by"].as_str().unwrap(),
                entry["frames"]
            )
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(by(&capture(&room, "x.pcapng", "lan", &outgoing())), ["lan capture-interface 3"]);
    assert_eq!(by(&capture(&room, "lan.pcapng", "eth0", &outgoing())), ["lan file-name 3"]);
    // Both sides in one capture: each packet comes in where its source is at home.
    let mut both = outgoing();
    both.push(tcp("198.51.100.7", "192.0.2.1", 5000, Flags::SYN_ACK));
    both.push(tcp("192.0.2.77", "192.0.2.1", 5000, Flags::SYN));
    let capture = capture(&room, "both.pcapng", "eth0", &both);
    assert_eq!(by(&capture), ["lan source-address 3", "wan source-address 1", "wan default-route 1"]);
    let said = wirerate(&["replay", &policy, &capture]).exits(0).out;
    assert!(said.contains("1 in by wan (only the default route leads to their sources)"), "{said}");
}

#[test]
fn frames_for_other_machines_are_taken_only_where_that_makes_sense() {
    let room = Room::new("any-mac");
    let with_mac = POLICY.replace(
        "addresses = [\"10.0.0.1/24\"]",
        "addresses = [\"10.0.0.1/24\"]\nmac = \"02:00:00:00:00:01\"",
    );
    let policy = room.write("policy.toml", with_mac);
    let path = capture(&room, "x.pcapng", "eth0", &outgoing());
    let given = format!("lan={path}");
    let json = wirerate(&["replay", &policy, &given, "--json"]).exits(0).json();
    assert_eq!(json["reasons"], serde_json::json!({ "other-host": 3 }));
    for words in
        [&["replay", &policy, &given, "--any-mac", "--json"][..], &["replay", &policy, &path, "--json"]]
    {
        let json = wirerate(words).exits(0).json();
        assert_eq!(count_of(&json, "/frames/forwarded"), 2, "{words:?}");
        let notes = json["notes"].as_array().expect("notes");
        assert!(
            notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("link-layer address")))
        );
    }
}

#[test]
fn a_capture_taken_inside_is_played_and_explained_as_both_sides_saw_it() {
    let room = Room::new("inside");
    let policy = room.write("policy.toml", POLICY);
    let header = build::Tcp { sport: 443, dport: 5000, ack: 1, flags: Flags::SYN_ACK, ..Default::default() };
    let (server, host) = ("198.51.100.7".parse().unwrap(), "10.0.0.5".parse().unwrap());
    let answer =
        build::ethernet(Mac([2, 0, 0, 0, 0, 8]), Mac([2, 0, 0, 0, 0, 9])).ipv4(server, host).tcp(header);
    let private = tcp("172.16.5.5", "192.0.2.1", 80, Flags::SYN);
    let path = capture(&room, "x.pcapng", "eth0", &[outgoing()[0].clone(), answer.to_vec(), private]);
    let json = wirerate(&["replay", &policy, &path, "--json"]).exits(0).json();
    assert_eq!(count_of(&json, "/frames/forwarded"), 2, "{json:#}");
    let notes = json["notes"].to_string();
    assert!(notes.contains("1 answer to inside hosts"), "{notes}");
    assert!(notes.contains("1 packet comes from private addresses"), "{notes}");
    // Explained, the answer meets the same flow in the same way.
    let json = wirerate(&["explain", &policy, &format!("{path}:2"), "--json"]).exits(0).json();
    assert_eq!((&json["verdict"], &json["interface"]), (&"forwarded".into(), &"wan".into()), "{json:#}");
    assert_eq!(json["flow"]["state"], "syn-received");
    assert_eq!(json["nats"][0]["name"], "out");
    assert_eq!(json["sent"][0]["packet"]["destination"], "10.0.0.5");
}

#[test]
fn captures_are_merged_by_time_and_time_does_not_go_back() {
    let room = Room::new("merged");
    let policy = room.write("policy.toml", POLICY);
    let path = room.path("lan.pcapng");
    let mut writer = PcapngWriter::create(&path).expect("a capture");
    writer.interface("lan").expect("an interface");
    for (millis, frame) in [5, 3, 9].into_iter().zip(outgoing()) {
        writer.write(&Record::new(Nanos::from_millis(millis), &frame)).expect("a record");
    }
    writer.finish().expect("a capture");
    let out = room.path("out");
    let json = wirerate(&["replay", &policy, &path, "--out", &out, "--json"]).exits(0).json();
    assert_eq!(count_of(&json, "/frames/forwarded"), 2);
    assert!(json["notes"].to_string().contains("1 packet has a time before"), "{json:#}");
    assert_eq!(records(&room.path("out/dropped.pcapng"))[0].0, Nanos::from_millis(5));
}

/// GRO and TSO leave packets in captures that were never on a wire.
#[test]
fn a_coalesced_packet_comes_in_as_segments() {
    let room = Room::new("coalesced");
    let data = |bytes: usize, flags| {
        let header =
            build::Tcp { sport: 5000, dport: 443, seq: 1, flags, window: 60_000, ..Default::default() };
        let frame = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]));
        let frame = frame.ipv4([10, 0, 0, 5].into(), [198, 51, 100, 7].into()).tcp(header);
        frame.payload(&(0..bytes).map(|byte| byte as u8).collect::<Vec<_>>()).to_vec()
    };
    let policy =
        room.write("policy.toml", format!("{POLICY}\n[limit]\npickup = \"accept\"\ntcp-window = \"off\"\n"));
    let all = Flags::ACK.and(Flags::PSH);
    // A whole frame, one of two segments and a bit, and one of forty; the size of segments is that of the link's MTU.
    let frames = [data(1_460, all), data(2_921, all), data(58_400, all)];
    let input = capture(&room, "lan.pcapng", "lan", &frames);
    let out = room.path("out");
    let json = wirerate(&["replay", "--json", "--out", &out, &policy, &input]).exits(0).json();
    assert_eq!(count_of(&json, "/frames/forwarded"), 1 + 3 + 40, "{json:#}");
    assert_conserved(&json);
    let notes = json["notes"].to_string();
    assert!(notes.contains("2 TCP packets were larger than the link carries"), "{notes}");
    let sent = records(&format!("{out}/wan.pcapng"));
    assert!(sent.iter().all(|(_, frame, _)| frame.len() <= 1_514));
    let payload: Vec<u8> = sent[1..4].iter().flat_map(|(_, frame, _)| frame[54..].to_vec()).collect();
    assert_eq!(payload, frames[1][54..]);
    // One of them is explained by the number of the packet in the capture.
    let said = wirerate(&["explain", &policy, &format!("{input}:2")]).exits(0).out;
    assert!(said.contains("forwarded"), "{said}");
}

#[test]
fn a_capture_that_breaks_off_is_played_up_to_there() {
    let room = Room::new("cut");
    let policy = room.write("policy.toml", POLICY);
    let whole = fs::read(capture(&room, "whole.pcapng", "lan", &outgoing())).expect("the capture");
    let cut = room.write("cut.pcapng", &whole[..whole.len() - 10]);
    let run = wirerate(&["replay", &policy, &cut]).exits(0);
    assert!(run.out.contains("cut short") && run.err.contains("cut.pcapng is cut short"), "{}", run.err);
    let json = wirerate(&["replay", &policy, &cut, "--json"]).exits(0).json();
    assert_eq!(count_of(&json, "/frames/received"), 2);
}

#[test]
fn a_window_of_time_is_played_alone() {
    let room = Room::new("window");
    let policy = room.write("policy.toml", POLICY);
    let lan = capture(&room, "lan.pcapng", "lan", &outgoing());
    // Three packets, a millisecond apart, from 00:16:40 on.
    let received = |options: &[&str]| {
        let words = [&["replay", &policy, &lan, "--json"], options].concat();
        count_of(&wirerate(&words).exits(0).json(), "/frames/received")
    };
    assert_eq!(received(&[]), 3);
    assert_eq!(received(&["--from", "0.001"]), 2);
    assert_eq!(received(&["--to", "1ms"]), 1);
    assert_eq!(received(&["--from", "1970-01-01T00:16:40.001Z", "--to", "0.002"]), 1);
    let run = wirerate(&["replay", &policy, &lan, "--from", "5"]).exits(2);
    assert!(
        run.err.contains("the first is at 1970-01-01T00:16:40Z") && run.err.contains("help:"),
        "{}",
        run.err
    );
    let run = wirerate(&["replay", &policy, &lan, "--to", "soon"]).exits(2);
    assert!(run.err.contains("\"soon\" is no moment"), "{}", run.err);
}

#[test]
fn what_cannot_be_read_is_named() {
    let room = Room::new("unreadable");
    let policy = room.write("policy.toml", POLICY);
    let run = wirerate(&["replay", &policy, "no-such.pcap"]).exits(3);
    assert!(run.err.contains("no-such.pcap") && run.err.contains("help:"), "{}", run.err);
    let run = wirerate(&["replay", &policy, &policy]).exits(3);
    assert!(run.err.contains("not a pcap or pcapng file"), "{}", run.err);
    // Classic pcap, little endian, of IEEE 802.11 (105), with one record of four bytes.
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    bytes.extend([0; 8]);
    bytes.extend(65535u32.to_le_bytes());
    bytes.extend(105u32.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend([4, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4]);
    let path = room.write("air.pcap", bytes);
    let run = wirerate(&["replay", &policy, &path]).exits(3);
    assert!(run.err.contains("air.pcap") && run.err.contains("link type 105 (IEEE 802.11)"), "{}", run.err);
    assert!(run.out.is_empty());
    let path = capture(&room, "lan.pcapng", "lan", &outgoing());
    let run = wirerate(&["replay", &policy, &format!("dmz={path}")]).exits(2);
    assert!(run.err.contains("`dmz`") && run.err.contains("lan, wan"), "{}", run.err);
    wirerate(&["replay", &path, &path]).exits(1);
    // Writing over what is read would empty it first.
    let before = fs::read(&path).expect("the capture");
    wirerate(&["replay", &policy, &path, "--out", &room.path("")]).exits(2);
    assert_eq!(fs::read(&path).expect("the capture"), before);
}

#[test]
fn a_wrong_policy_plays_nothing() {
    let room = Room::new("wrong-policy");
    let policy = room.write("policy.toml", POLICY.replace("action = \"drop\"", "action = \"dorp\""));
    let path = capture(&room, "lan.pcapng", "lan", &outgoing());
    let run = wirerate(&["replay", &policy, &path, "--json"]).exits(1);
    assert!(run.out.is_empty() && run.err.contains("dorp"), "{}", run.err);
}

/// Ten seconds of office traffic, made for the home office.
fn office(room: &Room) -> [String; 2] {
    let out = room.path("office");
    wirerate(&[
        "generate",
        "traffic",
        "--like",
        "office",
        "--seconds",
        "10",
        "--policy",
        &home_office(),
        "--out",
        &out,
    ])
    .exits(0);
    [room.path("office/lan.pcapng"), room.path("office/wan.pcapng")]
}

/// The router of the study has a route behind each port, and none to all the rest.
#[test]
fn servers_are_where_routes_lead_without_a_default_route() {
    let room = Room::new("generate-routed");
    let policy = root().join("policies/ixp1200-diffserv.toml").display().to_string();
    let out = room.path("out");
    wirerate(&["generate", "traffic", "--seconds", "10", "--policy", &policy, "--out", &out]).exits(0);
    let [inside, outside] = ["p0", "p8"].map(|name| room.path(&format!("out/{name}.pcapng")));
    let json = wirerate(&["replay", &policy, &inside, &outside, "--json"]).exits(0).json();
    let frames = |what: &str| json["frames"][what].as_u64().unwrap();
    assert!(frames("forwarded") * 10 > frames("received") * 9 && frames("received") > 1_000, "{json}");
}

/// A core router's links have no room for machines, and the network of its customers has.
#[test]
fn machines_are_where_there_is_room_for_them() {
    let room = Room::new("generate-room");
    let policy = root().join("policies/core-stateless.toml").display().to_string();
    let out = room.path("out");
    let words = ["generate", "traffic", "--seconds", "5", "--policy", &policy, "--out", &out];
    wirerate(&words).exits(0);
    let [inside, outside] =
        ["edge", "north"].map(|name| format!("{name}={}", room.path(&format!("out/{name}.pcapng"))));
    let json = wirerate(&["replay", &policy, &inside, &outside, "--json"]).exits(0).json();
    let frames = |what: &str| json["frames"][what].as_u64().unwrap();
    assert!(frames("forwarded") * 2 > frames("received") && frames("received") > 500, "{json}");
    let told = wirerate(&[&words[..], &["--lan", "south"]].concat()).exits(1);
    assert!(
        told.err.contains("no traffic can be generated by \"south\"") && told.err.contains("--lan"),
        "{}",
        told.err
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let room = Room::new("deterministic");
    let [lan, wan] = office(&room);
    let mut seen = BTreeSet::new();
    for turn in ["first", "second"] {
        let again = room.path(&format!("office-{turn}"));
        wirerate(&["generate", "traffic", "--seconds", "10", "--policy", &home_office(), "--out", &again])
            .exits(0);
        let out = room.path(turn);
        wirerate(&["replay", &home_office(), &lan, &wan, "--out", &out]).exits(0);
        let files: Vec<Vec<u8>> = ["lan", "wan", "dropped"]
            .iter()
            .map(|name| PathBuf::from(&out).join(format!("{name}.pcapng")))
            .chain(["lan", "wan"].iter().map(|name| PathBuf::from(&again).join(format!("{name}.pcapng"))))
            .map(|path| fs::read(&path).expect("an output"))
            .collect();
        assert!(files.iter().all(|file| file.len() > 1000));
        seen.insert(files);
    }
    assert_eq!(seen.len(), 1);
}

#[test]
fn office_traffic_passes_and_every_packet_is_accounted_for() {
    let room = Room::new("office");
    let [lan, wan] = office(&room);
    let out = room.path("out");
    let json = wirerate(&["replay", &home_office(), &lan, &wan, "--out", &out, "--json"]).exits(0).json();
    assert_conserved(&json);
    let (received, forwarded) = (count_of(&json, "/frames/received"), count_of(&json, "/frames/forwarded"));
    assert!(forwarded * 10 > received * 8, "most of it is honest: {json:#}");
    assert!(count_of(&json, "/nats/house/frames") > 1000, "{json:#}");
    let dropped = records(&room.path("out/dropped.pcapng"));
    assert_eq!(dropped.len() as u64, count_of(&json, "/frames/dropped"));
    for (_, _, comment) in &dropped {
        let comment = comment.as_deref().expect("a comment on each");
        let reason = comment.strip_prefix("dropped: ").expect(comment);
        let name = reason.split([' ', ',']).next().expect("a name");
        assert!(json["reasons"][name].is_u64(), "{comment}");
    }
    // The packet that is explained meets the state that the replay had.
    let number = 2000;
    let wan = format!("{wan}:{number}");
    let json = wirerate(&["explain", &home_office(), &wan, "--with", &lan, "--json"]).exits(0).json();
    assert_eq!(json["interface"], "wan");
    assert!(json["stages"][1]["took"].as_bool().is_some());
}

#[test]
fn wireshark_finds_no_fault_in_what_was_forwarded() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no tshark; install it to check what was forwarded");
        return;
    }
    let room = Room::new("tshark");
    let [lan, wan] = office(&room);
    let out = room.path("out");
    wirerate(&["replay", &home_office(), &lan, &wan, "--out", &out]).exits(0);
    for name in ["lan", "wan"] {
        let found = faults(&room.path(&format!("out/{name}.pcapng")));
        assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
    }
}

/// Returns packets that Wireshark's dissector finds malformed, or with a wrong checksum: a line for each packet.
fn faults(capture: &str) -> Vec<String> {
    let bad = |protocol: &str| format!("{protocol}.checksum.status == 0");
    let filter = ["ip", "tcp", "udp", "icmp", "icmpv6"].map(bad).join(" or ");
    let run = Command::new("tshark")
        .args([
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
        ])
        .args(["-r", capture, "-Y", &format!("_ws.malformed or {filter}")])
        .output()
        .expect("tshark");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).lines().map(str::to_owned).collect()
}

/// Number of frames that a captured packet was on a link of 1,500 bytes: of one of TCP that is larger, its segments.
fn segments(record: &Record<'_>) -> u64 {
    let mtu = 1_500;
    let Ok(layer) = ethernet::parse(record.bytes) else { return 1 };
    let Ok(ip) = ipv4::parse(layer.payload) else { return 1 };
    let total = usize::from(ip.header.total_len());
    let is_whole = total <= layer.payload.len() && !ip.header.is_fragment();
    if record.link != LinkType::ETHERNET || !is_whole || ip.header.protocol() != Protocol::TCP || total <= mtu
    {
        return 1;
    }
    let Ok(segment) = tcp::parse(ip.payload) else { return 1 };
    let headers = total - segment.payload.len();
    segment.payload.len().div_ceil(mtu - headers) as u64
}

#[test]
fn real_captures_go_through_and_are_conserved() {
    let data = std::env::var_os("WIRERATE_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let Ok(directory) = fs::read_dir(data.join("captures")) else {
        eprintln!("SKIPPED: no captures in {}; set WIRERATE_DATA", data.display());
        return;
    };
    let has_tshark = Command::new("tshark").arg("--version").output().is_ok();
    if !has_tshark {
        eprintln!("SKIPPED: no tshark; install it to check what was forwarded");
    }
    let room = Room::new("real");
    let (mut played, mut sending) = (0, 0);
    for entry in directory {
        let path = entry.expect("an entry").path();
        if !path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            continue;
        }
        let out = room.path("out");
        let path = path.display().to_string();
        let json = wirerate(&["replay", &home_office(), &path, "--out", &out, "--json"]).exits(0).json();
        assert_conserved(&json);
        let packets = {
            let mut reader = Reader::open(&path).expect("a capture");
            let mut packets = 0;
            while let Some(record) = reader.next().expect("a record") {
                packets += segments(&record);
            }
            packets
        };
        assert_eq!(count_of(&json, "/frames/received"), packets, "{path}");
        assert_eq!(
            records(&room.path("out/dropped.pcapng")).len() as u64,
            count_of(&json, "/frames/dropped"),
            "{path}"
        );
        played += 1;
        sending += u32::from(count_of(&json, "/frames/forwarded") > 0);
        if has_tshark {
            // What an inside host sent malformed leaves malformed, but nothing else does.
            let sent = ["lan", "wan"].map(|name| faults(&room.path(&format!("out/{name}.pcapng"))).len());
            let before = faults(&path).len();
            assert!(sent.iter().sum::<usize>() <= before, "{path}: {sent:?} faults, {before} before");
        }
    }
    assert!(played > 0, "no capture in {}", data.display());
    assert!(sending >= 5, "of {played} captures only {sending} had anything to forward");
}
