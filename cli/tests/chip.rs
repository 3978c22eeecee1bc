//! `wirerate chip`: what comes out, and what is said of it.
#![allow(clippy::unwrap_used)]

mod run;

use std::fs;

use run::{Room, home_office, root, wirerate};
use serde_json::Value;
use wire::capture::{PcapngWriter, Reader, Record};
use wire::ethernet::Mac;
use wire::{Nanos, build};

/// Two networks, and a firewall that translates between them.
const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/24"]
[interface.wan]
zone = "wan"
addresses = ["192.0.2.1/24"]
[default]
"lan > wan" = "accept"
[limit]
flows = 10000
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
"#;

/// Frames of UDP of these lengths, at these times, from inside.
fn capture(room: &Room, name: &str, frames: &[(Nanos, usize)]) -> String {
    let path = room.path(name);
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("lan").unwrap();
    for (place, (at, len)) in frames.iter().enumerate() {
        let payload = vec![0; len - 42];
        let frame = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]))
            .ipv4("10.0.0.7".parse().unwrap(), "198.51.100.1".parse().unwrap())
            .udp(5000 + place as u16, 53)
            .payload(&payload)
            .to_vec();
        writer.write(&Record::new(*at, &frame)).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn number(json: &Value, name: &str) -> f64 {
    json[name].as_f64().unwrap_or_else(|| panic!("no {name} in {json:#}"))
}

fn run(policy: &str, words: &[&str]) -> Value {
    let mut all = vec!["chip", "run", "--chip", "ixp2400", policy, "--json"];
    all.extend(words);
    wirerate(&all).exits(0).json()
}

#[test]
fn what_was_asked_for_is_offered_and_what_is_offered_is_accounted_for() {
    let room = Room::new("chip-offered");
    let policy = room.write("policy.toml", POLICY);
    let json = run(&policy, &["lan>wan,rate=50kpps,frames=5000,flows=50,established"]);
    assert!((number(&json, "offered_mpps") / 0.05 - 1.0).abs() < 2e-3, "{json:#}");
    assert_eq!((&json["lost"], &json["reordered"]), (&0.into(), &0.into()));
    assert!((number(&json, "delivered_mpps") - number(&json, "offered_mpps")).abs() < 1e-9);
    for name in ["gbps", "instructions_per_packet", "simulated_instructions", "wall_seconds"] {
        assert!(number(&json, name) > 0.0, "{name}");
    }
    assert!(json["latency_ns"]["p50"].as_f64().unwrap() <= json["latency_ns"]["p99"].as_f64().unwrap());
    for name in ["engines", "memories"] {
        assert!(!json[name].as_array().unwrap().is_empty());
    }
    assert!(json["bottleneck"]["text"].as_str().unwrap().starts_with("nothing"));
    // Far too much for one thread of each engine: what is not delivered is lost, and something is to blame.
    let json =
        run(&policy, &["lan>wan,frames=5000,flows=50,established,both", "--set", "pool.process.threads=1"]);
    let (seconds, lost) = (number(&json, "seconds"), number(&json, "lost"));
    let told = (number(&json, "delivered_mpps") + number(&json, "ended_mpps")) * seconds * 1e6 + lost;
    assert!((told - 10_000.0).abs() < 1e-3, "{told}");
    assert!(lost > 100.0, "{json:#}");
    assert!(json["bottleneck"]["relief"].as_array().unwrap().len() > 5);
}

/// A tunnel's outer packets that are longer than the link leave as two fragments, which are no two packets delivered.
#[test]
fn fragments_deliver_no_more_than_was_offered() {
    let policy = root().join("policies/rena-adapter.toml").to_string_lossy().into_owned();
    let words = ["chip", "run", "--chip", "ixp2400", &policy, "home>centre,size=imix,rate=10%,frames=2000"];
    let text = wirerate(&words).exits(0).out;
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    let delivered = line("delivered");
    assert!(delivered.contains(" 2,000 ") && delivered.contains("100.00 %"), "{text}");
    let json = wirerate(&[&words[..], &["--json"]].concat()).exits(0).json();
    let frames = |name: &str| (number(&json, name) * number(&json, "seconds") * 1e6).round() as u64;
    let further = frames("further_mpps");
    assert!(further > 0 && frames("delivered_mpps") == 2_000 + further, "{json:#}");
    assert!(delivered.contains(&format!("with {further} more than that")), "{text}");
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let room = Room::new("chip-seed");
    let policy = room.write("policy.toml", POLICY);
    let report = |seed: &str| {
        let stream = "lan>wan,size=imix,arrivals=poisson,frames=2000,both";
        let mut json = run(&policy, &[stream, "--seed", seed]);
        json.as_object_mut().unwrap().remove("wall_seconds").unwrap();
        json.to_string()
    };
    assert_eq!(report("1"), report("1"));
    assert_ne!(report("1"), report("2"));
}

/// The files that a chip wrote are those that replay wrote.
fn same_as_replay(room: &Room, policy: &str, captures: &[&str]) {
    let (ours, theirs) = (room.path("ours"), room.path("theirs"));
    let mut words = vec!["replay", policy, "--out", &theirs, "--json"];
    words.extend(captures);
    wirerate(&words).exits(0);
    for chip in ["ixp1200", "ixp2400", "ixp2800"] {
        // What this is about is the outcome: there is room for every burst and for the policy's tables.
        let mut words = vec!["chip", "run", "--chip", chip, policy, "--out", &ours, "--json"];
        words.extend(["--set", "receive.elements=65536", "--set", "memory.sram.size=\"2 GB\""]);
        words.extend(captures);
        let json = wirerate(&words).exits(0).json();
        assert_eq!(json["lost"], 0, "{chip}");
        for entry in fs::read_dir(&theirs).unwrap() {
            let name = entry.unwrap().file_name();
            let read = |directory: &str| fs::read(std::path::Path::new(directory).join(&name)).unwrap();
            assert!(read(&ours) == read(&theirs), "{chip}: {name:?} differs");
        }
        fs::remove_dir_all(&ours).unwrap();
    }
}

#[test]
fn where_nothing_is_lost_the_same_leaves_as_in_a_replay() {
    let room = Room::new("chip-replay");
    let office = room.path("office");
    let policy = home_office();
    wirerate(&["generate", "traffic", "--seconds", "5", "--policy", &policy, "--out", &office]).exits(0);
    same_as_replay(&room, &policy, &[&room.path("office/lan.pcapng"), &room.path("office/wan.pcapng")]);
}

#[test]
fn real_captures_leave_the_same_as_in_a_replay() {
    let data = std::env::var_os("WIRERATE_DATA").map_or_else(|| root().join("../shared/data"), Into::into);
    let captures = data.join("captures");
    let Ok(found) = fs::read_dir(&captures) else {
        eprintln!("SKIPPED: no captures in {}", captures.display());
        return;
    };
    let mut paths: Vec<_> = found.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "pcap" || ending == "pcapng"));
    // Large ones take their time, and have nothing that small ones have not.
    paths.retain(|path| path.metadata().is_ok_and(|metadata| metadata.len() < 2_000_000));
    paths.sort();
    let room = Room::new("chip-captures");
    let policy = home_office();
    for path in paths.iter().take(4) {
        let path = path.display().to_string();
        // Those that replay cannot read are its matter.
        if wirerate(&["replay", &policy, &path, "--json"]).code == 0 {
            same_as_replay(&room, &policy, &[&path]);
        }
    }
}

#[test]
fn frames_that_are_lost_are_written_with_the_reason() {
    let room = Room::new("chip-lost");
    let policy = room.write("policy.toml", POLICY);
    let out = room.path("out");
    let json = run(
        &policy,
        &[
            "lan>wan,frames=3000,flows=10,established",
            "wan>lan,frames=3000",
            "--out",
            &out,
            "--set",
            "pool.process.threads=1",
        ],
    );
    let lost = json["lost"].as_u64().unwrap();
    assert!(lost > 0, "{json:#}");
    let mut reader = Reader::open(room.path("out/dropped.pcapng")).unwrap();
    let mut told = 0;
    while let Some(record) = reader.next().unwrap() {
        let comment = record.comment.unwrap();
        if comment.starts_with("lost: overload, in by ") {
            told += 1;
        } else {
            assert!(comment.starts_with("dropped: "), "{comment}");
        }
    }
    assert_eq!(told, lost);
}

#[test]
fn gaps_of_hours_and_nothing_at_all_are_no_matter() {
    let room = Room::new("chip-gaps");
    let policy = room.write("policy.toml", POLICY);
    let hour = Nanos::from_secs(3_600);
    let gaps =
        capture(&room, "gaps.pcapng", &[(hour, 60), (Nanos(hour.0 * 5), 60), (Nanos(hour.0 * 9_000), 60)]);
    let json = run(&policy, &[&gaps]);
    assert!((number(&json, "seconds") / 3600.0 - 8_999.0).abs() < 0.01, "{json:#}");
    assert_eq!(json["lost"], 0);
    assert!(number(&json, "delivered_mpps") > 0.0);
    let empty = capture(&room, "empty.pcapng", &[]);
    for nothing in [&empty[..], "lan>wan,frames=0"] {
        let json = run(&policy, &[nothing]);
        assert_eq!((&json["lost"], number(&json, "offered_mpps")), (&0.into(), 0.0));
        let room = Room::new("chip-nothing");
        let page = room.path("page.html");
        wirerate(&["chip", "run", "--chip", "ixp2400", &policy, nothing, "--html", &page]).exits(0);
    }
}

/// A clock that was set late makes of a minute a lifetime; the IXP2400's clocks are counted over 70 years.
#[test]
fn a_capture_of_more_time_than_is_modelled_is_played_and_that_is_said() {
    let room = Room::new("chip-long");
    let policy = room.write("policy.toml", POLICY);
    let year = 365 * 86_400;
    let frame = |years: u64| (Nanos::from_secs(1 + years * year), 60);
    let long = capture(&room, "long.pcapng", &[frame(0), frame(20), frame(100), frame(136)]);
    let words = ["chip", "run", "--chip", "ixp2400", &policy, "--json"];
    let run = wirerate(&[&words[..], &[&long]].concat()).exits(0);
    assert!(run.err.contains("warning") && run.err.contains("long.pcapng spans more time"), "{}", run.err);
    assert!(run.err.contains("2 packets that come later"), "{}", run.err);
    let seconds = number(&run.json(), "seconds");
    assert!(seconds > 60.0 * year as f64 && seconds < 136.0 * year as f64, "{seconds}");
    assert_eq!(run.json()["lost"], 0);
    let short = capture(&room, "short.pcapng", &[frame(0), frame(60)]);
    let run = wirerate(&[&words[..], &[&short]].concat()).exits(0);
    assert_eq!(run.err, "");
}

#[test]
fn what_the_policy_ended_is_told_by_reason() {
    let room = Room::new("chip-fates");
    let policy = room.write("policy.toml", POLICY);
    let stream = "wan>lan,frames=50,destination=10.0.0.9";
    assert_eq!(run(&policy, &[stream])["fates"], serde_json::json!({ "default-drop": 50 }));
    let told = wirerate(&["chip", "run", "--chip", "ixp2400", &policy, stream]).exits(0).out;
    assert!(told.contains("Ended by the policy: default-drop 50."), "{told}");
    assert_eq!(run(&policy, &["lan>wan,frames=50"])["fates"], serde_json::json!({}));
}

#[test]
fn a_capture_that_breaks_off_is_played_so_far_and_that_is_said() {
    let room = Room::new("chip-cut");
    let policy = room.write("policy.toml", POLICY);
    let whole = capture(&room, "whole.pcapng", &[(Nanos::from_secs(1), 60), (Nanos::from_secs(2), 60)]);
    let bytes = fs::read(whole).unwrap();
    let cut = room.write("cut.pcapng", &bytes[..bytes.len() - 7]);
    let mut damaged = bytes;
    let last = damaged.len() - 4;
    damaged[last] ^= 0x55;
    let damaged = room.write("damaged.pcapng", damaged);
    for (file, code, part) in [(&cut, 0, "cut short"), (&damaged, 3, "damaged.pcapng")] {
        let run = wirerate(&["chip", "run", "--chip", "ixp2400", &policy, file, "--json"]).exits(code);
        assert!(run.err.contains(part), "{}", run.err);
        assert!(number(&run.json(), "delivered_mpps") > 0.0 || code == 3);
    }
}

#[test]
fn a_frame_larger_than_the_receive_buffer_passes() {
    let room = Room::new("chip-large");
    let policy = room.write("policy.toml", POLICY);
    let second = Nanos::from_secs(1);
    let capture =
        capture(&room, "large.pcapng", &[(second, 60), (second + second, 9_000), (Nanos(second.0 * 3), 60)]);
    let json = run(&policy, &[&capture, "--set", "receive.elements=64"]);
    assert_eq!((&json["lost"], &json["overruns"]), (&0.into(), &0.into()), "{json:#}");
}

#[test]
fn interfaces_beyond_the_last_port_share_ports_and_that_is_said() {
    let room = Room::new("chip-ports");
    let mut policy = POLICY.to_owned();
    for place in 3..7 {
        policy +=
            &format!("[interface.if{place}]\nzone = \"z{place}\"\naddresses = [\"10.{place}.0.1/24\"]\n");
    }
    let policy = room.write("policy.toml", policy);
    let run = wirerate(&["chip", "run", "--chip", "ixp2400", &policy, "lan>wan,frames=100,rate=1%"]).exits(0);
    assert!(run.err.contains("6 interfaces and the chip 3 ports"), "{}", run.err);
}

/// The IXP1200 has eight ports of 100 Mbit/s and one of a gigabit.
#[test]
fn interfaces_have_the_rates_of_their_ports() {
    let run = |words: &[&str]| {
        let all = [
            "chip",
            "run",
            "--chip",
            "ixp1200",
            "--json",
            &home_office(),
            "lan>wan,frames=5000,established,flows=10",
        ];
        wirerate(&[&all[..], &["--warm", "1000"], words].concat()).exits(0).json()
    };
    let line = |mbit: f64| mbit / (84.0 * 8.0);
    let close = |json: &Value, told: f64| {
        let offered = number(json, "offered_mpps");
        assert!((offered / told - 1.0).abs() < 0.01, "{offered} not {told}");
    };
    close(&run(&[]), line(100.0));
    // What comes in ten times as fast as it can leave waits in the transmit buffer, and is lost behind it.
    let json = run(&["--port", "lan=gigabit"]);
    close(&json, line(1_000.0));
    assert!(number(&json, "delivered_mpps") < line(100.0) * 1.2, "{json:#}");
    let lost: Vec<u64> =
        json["lost_by_port"].as_array().unwrap().iter().map(|of| of.as_u64().unwrap()).collect();
    assert_eq!((lost.len(), lost[8]), (9, json["lost"].as_u64().unwrap()), "all at the gigabit port");
    assert!((3_000..4_000).contains(&lost[8]), "{lost:?}");
    let busy: Vec<&str> =
        json["others"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert!(
        busy.contains(&"line out of port 0, fast") && busy.contains(&"line out of port 8, gigabit"),
        "{busy:?}"
    );
    // The other way all fits.
    assert_eq!(run(&["--port", "wan=8"])["lost"], 0);
    for (words, part) in [
        ("lan=9", "0 to 8, fast, gigabit"),
        ("lan=slow", "0 to 8, fast, gigabit"),
        ("dmz=1", "lan, guest, wan"),
        ("lan", "IFACE=PORT"),
    ] {
        let words = ["chip", "run", "--chip", "ixp1200", &home_office(), "lan>wan", "--port", words];
        let run = wirerate(&words).exits(2);
        assert!(run.err.contains(part), "{}", run.err);
    }
}

/// A round trip of PCI Express takes twice 1,600 cycles of 4 GHz, and six elements make a frame.
#[test]
fn credits_bound_what_reaches_a_host_behind_pci_express() {
    let room = Room::new("chip-host");
    let policy = room.write("policy.toml", POLICY);
    let gbps = |credits: u32| {
        let credits = format!("bus.to-host.credits={credits}");
        let chip = ["chip", "run", "--chip", "bluefield3-dpa", "--port", "wan=host", "--set", &credits];
        let stream = "lan>wan,rate=80gbit,size=1500,frames=1500,flows=50,established";
        number(
            &wirerate(&[&chip[..], &[&policy, stream, "--warm", "500", "--json"]].concat()).exits(0).json(),
            "gbps",
        )
    };
    let frame = 1496.0 * 8.0;
    let bound = 8.0 / 6.0 * frame / 800.0;
    assert!((gbps(8) / bound - 1.0).abs() < 0.03, "{} for {bound}", gbps(8));
    assert!((gbps(256) / 80.0 - 1.0).abs() < 0.03, "{}", gbps(256));
}

#[test]
fn what_is_wrong_is_told_with_its_exit_code() {
    let room = Room::new("chip-wrong");
    let policy = room.write("policy.toml", POLICY);
    let exits = |code: i32, words: &[&str], part: &str| {
        let mut all = vec!["chip", "run"];
        all.extend(words);
        let run = wirerate(&all).exits(code);
        assert!(run.err.contains(part), "no `{part}` in {}", run.err);
    };
    fn on<'a>(words: &[&'a str]) -> Vec<&'a str> {
        [&["--chip", "ixp2400"], words].concat()
    }
    let stream = "lan>wan,frames=10";
    exits(2, &["--chip", "ixp9999", &policy, stream], "ixp2400");
    exits(2, &["--chip", "ixp240x", &policy, stream], "did you mean ixp2400?");
    exits(2, &on(&["--mapping", "firewal", &policy, stream]), "did you mean firewall?");
    exits(1, &on(&["--mapping", "ixp2800-pool", &policy, stream]), "not for \"ixp2400\"");
    exits(3, &["--chip", "no/such.toml", &policy, stream], "no/such.toml");
    // What is wrong with a chip comes before what there is no mapping for.
    let empty = room.write("empty.toml", "");
    exits(1, &["--chip", &empty, &policy, stream], "missing-key");
    let binary = room.write("binary.toml", b"\xff\xfe\x00");
    exits(1, &["--chip", &binary, &policy, stream], "not-utf8");
    exits(1, &on(&["--mapping", &binary, &policy, stream]), "not-utf8");
    // A chip under its own name has the mapping of that name, in whatever file it is; under a new one it has none.
    let ixp2400 = wirerate(&["chip", "list", "ixp2400"]).exits(0).out;
    let renamed = room.write("new.toml", ixp2400.replace("name = \"ixp2400\"", "name = \"mine\""));
    exits(2, &["--chip", &renamed, &policy, stream], "--mapping FILE");
    let copied = room.write("copied.toml", ixp2400);
    wirerate(&["chip", "run", "--chip", &copied, &policy, stream]).exits(0);
    exits(2, &[&on(&["--mapping", "nothing"])[..], &[&policy, stream]].concat(), "ixp2400-pool");
    exits(2, &[&on(&[])[..], &[&policy, "lan>wan,sise=64"]].concat(), "`size`");
    exits(2, &[&on(&[])[..], &[&policy, "lan>dmz"]].concat(), "the policy has lan, wan");
    exits(2, &[&on(&["--set", "memory.sram.latancy=3"])[..], &[&policy, stream]].concat(), "latency");
    exits(1, &[&on(&["--set", "memory.sram.latency=-3"])[..], &[&policy, stream]].concat(), "latency");
    exits(1, &[&on(&["--set", "engine.me.count=0"])[..], &[&policy, stream]].concat(), "count");
    exits(3, &[&on(&[])[..], &[&policy, "lan=no-such.pcap"]].concat(), "no-such.pcap");
    exits(3, &[&on(&[])[..], &["no-such.toml", stream]].concat(), "no-such.toml");
    exits(1, &[&on(&[])[..], &[&policy, "wan>lan,established"]].concat(), "default-drop");
    // Tables that no memory of the chip holds.
    let large = room.write("large.toml", POLICY.replace("flows = 10000", "flows = 4000000"));
    exits(1, &[&on(&[])[..], &[&large, stream]].concat(), "flow-table");
    // All frames are left out.
    exits(
        2,
        &[&on(&["--warm", "10"])[..], &[&policy, stream]].concat(),
        "more frames than --warm leaves out",
    );
}

/// The IXP1200's stores hold no more than 1,024 instructions.
#[test]
fn programs_too_long_for_one_engine_are_spread_over_several() {
    let asked = ["chip", "run", "--chip", "ixp1200", "--json", &home_office(), "lan>wan,frames=500,both"];
    let run = wirerate(&asked).exits(0);
    assert!(run.err.contains("as ixp1200-split spreads them"), "{}", run.err);
    let json = run.json();
    assert!(number(&json, "delivered_mpps") > 0.0 && json["lost"] == 0, "{json:#}");
    // Its ends have both ends of the way on the same threads: far too much must not lock them up.
    let words =
        ["chip", "run", "--chip", "ixp1200", "--json", "--set", "port.fast.rate=1 Gbit/s", &home_office()];
    for stream in ["lan>wan,size=64,frames=3000,flows=each", "lan>wan,size=64,frames=3000,both,established"] {
        let json = wirerate(&[&words[..], &[stream]].concat()).exits(0).json();
        assert!(json["lost"].as_u64().unwrap() > 1_000, "{json:#}");
    }
    // Asked for by name, the other one is refused, and says what would do.
    let run = wirerate(&[&asked[..], &["--mapping", "pool"]].concat()).exits(1);
    for part in
        ["store-full", "parse to replicate 901, dnat to snat", "rewrite to queue 554", "another --mapping"]
    {
        // The screen breaks lines, and draws before them.
        let flat: Vec<&str> = run.err.split_whitespace().filter(|word| *word != "│").collect();
        assert!(flat.join(" ").contains(part), "no `{part}` in {}", run.err);
    }
    assert!(!run.err.contains("terminate"), "a stage without a program: {}", run.err);
    // What tracks nothing, and has no rules, runs to completion.
    let room = Room::new("chip-plain");
    let plain = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n\
        [interface.north]\nzone = \"north\"\naddresses = [\"10.0.0.1/24\"]\n\
        [interface.south]\nzone = \"south\"\naddresses = [\"10.0.1.1/24\"]\n";
    let plain = room.write("plain.toml", plain);
    let run =
        wirerate(&["chip", "run", "--chip", "ixp1200", "--json", &plain, "north>south,frames=100"]).exits(0);
    assert!(!run.err.contains("spreads"), "{}", run.err);
    // A sweep goes the same way.
    let sweep = ["chip", "sweep", "--chip", "ixp1200", "--json", &home_office(), "lan>wan,frames=50"];
    wirerate(&[&sweep[..], &["--vary", "pool.decide.threads=2,4"]].concat()).exits(0);
}

/// With tunnels they are longer still.
#[test]
fn programs_too_long_for_the_split_mapping_are_spread_further() {
    let office = root().join("policies/ipsec-gateway.toml").display().to_string();
    let run =
        wirerate(&["chip", "run", "--chip", "ixp1200", "--json", &office, "lan>wan,frames=500,rate=5%"]);
    let run = run.exits(0);
    assert!(run.err.contains("as ixp1200-tunnel spreads them"), "{}", run.err);
    let json = run.json();
    assert!(number(&json, "delivered_mpps") > 0.0 && json["lost"] == 0, "{json:#}");
}

/// Two engines that work for each other in turn, over rings of one entry.
const CIRCLE: &str = r#"
chip = "ixp2400"
about = "two engines that wait for each other"
[ring]
received = { kind = "scratch", entries = 1 }
there = { kind = "scratch", entries = 1 }
back = { kind = "scratch", entries = 1 }
sent = { kind = "scratch", entries = 1 }
[pool.receive]
at = 0
work = "receive"
to = "received"
[pool.a]
at = 1
threads = 1
[[pool.a.task]]
stages = "filter..queue"
from = "back"
to = "sent"
[[pool.a.task]]
stages = "parse..track"
from = "received"
to = "there"
[pool.b]
at = 2
threads = 1
stages = "replicate..route"
from = "there"
to = "back"
[pool.transmit]
at = 3
work = "transmit"
from = "sent"
[region]
default = "sram"
frame = "dram"
"#;

#[test]
fn a_mapping_that_deadlocks_is_explained() {
    let room = Room::new("chip-deadlock");
    let (policy, mapping) = (room.write("policy.toml", POLICY), room.write("circle.toml", CIRCLE));
    let stream = "lan>wan,frames=2000";
    let run =
        wirerate(&["chip", "run", "--chip", "ixp2400", "--mapping", &mapping, &policy, stream]).exits(1);
    for part in [
        "1 thread of `a` waits for room in the ring `there`, which `b` should empty",
        "1 thread of `b` waits for room in the ring `back`, which `a` should empty",
        "help: ",
    ] {
        assert!(run.err.contains(part), "{}", run.err);
    }
}

/// The firewall's rules lie in one of the two channels that SRAM has, each with pins for reading and for writing: half full on average may
/// mean that one is full.
#[test]
fn the_fullest_channel_of_a_memory_is_shown() {
    let room = Room::new("chip-channel");
    let page = room.path("page.html");
    let policy = root().join("policies/firewall.toml").display().to_string();
    let stream = "lan>wan,size=64,both,established,frames=3000";
    let words = ["--mapping", "firewall", "--set", "region.default=sram", stream];
    let json = run(&policy, &words);
    let memory = |name: &str| {
        let memories = json["memories"].as_array().unwrap();
        memories.iter().find(|memory| memory["name"] == name).unwrap().clone()
    };
    let shares = |memory: &Value| -> Vec<f64> {
        memory["channels"].as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).collect()
    };
    let (sram, dram) = (memory("sram"), memory("dram"));
    let channels = shares(&sram);
    assert_eq!((channels.len(), shares(&dram).len()), (4, 1), "{json:#}");
    assert!((number(&sram, "utilisation") - channels.iter().sum::<f64>() / 4.0).abs() < 1e-9, "{sram:#}");
    assert!((number(&dram, "utilisation") - shares(&dram)[0]).abs() < 1e-9, "{dram:#}");
    let fullest = channels.iter().copied().fold(0.0, f64::max);
    assert!(fullest > number(&sram, "utilisation") + 0.02 && fullest < 1.0 + 1e-9, "{sram:#}");
    let mut all = vec!["chip", "run", "--chip", "ixp2400", &policy, "--html", &page];
    all.extend(words);
    let told = wirerate(&all).exits(0).out;
    let shown = format!("{:.1} %", fullest * 100.0);
    let line = told.lines().find(|line| line.starts_with("  sram ")).unwrap();
    assert!(told.contains("fullest channel") && line.contains(&shown), "{told}");
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains(&format!("{shown} in the fullest channel")), "not on the page");
    assert_eq!(html.matches("in the fullest channel").count(), 1, "scratch and DRAM have but one");
}

#[test]
fn chips_and_mappings_are_listed_and_can_be_taken_from() {
    let list = wirerate(&["chip", "list"]).exits(0);
    for part in [
        "ixp1200",
        "ixp1240-atm",
        "ixp2400",
        "ixp2800",
        "pro3",
        "tetra",
        "ixp2400-firewall",
        "pc1",
        "cn3120-pool",
    ] {
        assert!(list.out.contains(part), "{}", list.out);
    }
    let chips = wirerate(&["chip", "list", "--json"]).exits(0).json()["chips"].as_array().unwrap().len();
    assert_eq!(chips, 17);
    // What is printed can be used, and does the same.
    let room = Room::new("chip-list");
    let policy = room.write("policy.toml", POLICY);
    let chip = room.write("mine.toml", wirerate(&["chip", "list", "ixp2400"]).exits(0).out);
    let mapping = room.write("pool.toml", wirerate(&["chip", "list", "ixp2400-pool"]).exits(0).out);
    let stream = "lan>wan,frames=1000";
    let words = ["chip", "run", "--chip", &chip, "--mapping", &mapping, &policy, stream, "--json"];
    let mine = wirerate(&words).exits(0).json();
    assert_eq!(mine["latency_ns"], run(&policy, &[stream])["latency_ns"]);
    wirerate(&["chip", "list", "ixp"]).exits(2);
}

#[test]
fn people_get_tables_and_a_page() {
    let room = Room::new("chip-page");
    let policy = room.write("policy.toml", POLICY);
    let page = room.path("page.html");
    let stream = "lan>wan,frames=3000,flows=100,established,both";
    let run =
        wirerate(&["chip", "run", "--chip", "ixp2400", &policy, stream, "--html", &page, "-v"]).exits(0);
    for part in [
        "Bottleneck",
        "Engines",
        "Memories",
        "Rings",
        "Latency",
        "Assumed",
        "lost to overload",
        "reordered",
        "me.0",
    ] {
        assert!(run.out.contains(part), "no {part} in {}", run.out);
    }
    let html = fs::read_to_string(page).unwrap();
    assert!(
        html.contains("lan&gt;wan,frames=3000,flows=100,established,both"),
        "what was offered is not told"
    );
    assert!(html.contains("<svg") && html.contains("polyline") && html.ends_with("</html>\n"));
    // It needs nothing else.
    assert!(!html.contains("src=") && !html.contains("<script") && !html.contains("@import"));
}
