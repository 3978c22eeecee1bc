//! Real captures, and made-up office traffic, through policies like a home's: nothing panics, frames are conserved, and
//! both ways of going through the stages give the same.
//!
//! Captures are looked for in the directory that `WIRERATE_DATA` names, else in `../shared/data` beside the project.

use std::path::PathBuf;

use dataplane::Reason;
use dataplane::replay::Way;
use traffic::{Host, Office, Settings, Side};
use wire::capture::{Reader, link};
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START, check};

const HOME: &str = include_str!("../../policies/home-office.toml");

/// The project's own policies, and one that lets everything in whatever its addresses: captures come from anywhere.
fn policies() -> Vec<(&'static str, String)> {
    let open = r#"
        [interface.lan]
        zone = "lan"
        addresses = ["192.168.1.1/16", "2001:db8:1::1/64"]
        source-check = "off"
        [interface.wan]
        zone = "wan"
        addresses = ["203.0.113.2/24", "2001:db8:ffff::2/64"]
        source-check = "off"
        [default]
        "lan > wan" = "accept"
        "wan > lan" = "accept"
        "wan > wan" = "accept"
        "lan > lan" = "accept"
        "any > self" = "accept"
        [[route]]
        to = "0.0.0.0/0"
        via = "203.0.113.1"
        [[route]]
        to = "::/0"
        via = "2001:db8:ffff::1"
        [[nat]]
        name = "out"
        kind = "masquerade"
        from = "lan"
        to = "wan"
        [limit]
        pickup = "accept"
        checksum = "ignore"
    "#;
    let routed = open.split("[[nat]]").next().unwrap_or_default();
    let small = "flows = 16\nwhen-full = \"evict-idle\"\nqueue = 3\n";
    vec![
        ("home-office", HOME.replace("mac = \"02:00:5e:10", "# mac = \"02:00:5e:10")),
        ("isp-edge", include_str!("../../policies/isp-edge.toml").to_owned()),
        ("core-stateless", include_str!("../../policies/core-stateless.toml").to_owned()),
        // Nobody is a customer: all are of best effort, but in its queue with their own code points marked off.
        ("diffserv-edge", edge()),
        ("routed", format!("{routed}[limit]\npickup = \"accept\"\n")),
        ("open", open.to_owned()),
        ("open and small", format!("{open}{small}")),
    ]
}

/// The DiffServ edge router, for customers of any address, half of them gold by their addresses, before a slower port: captures are slow.
fn edge() -> String {
    include_str!("../../policies/diffserv-edge.toml")
        .replace("2001:db8:1::1/64\"]\n", "2001:db8:1::1/64\"]\nsource-check = \"off\"\n")
        .replace("[\"192.0.2.32/28\"]", "[\"0.0.0.0/1\", \"::/1\"]")
        .replace("rate = \"100 Mbit/s\"", "rate = \"4 Mbit/s\"")
        .replace("rate = \"20 Mbit/s\"\nlimit", "rate = \"1 Mbit/s\"\nlimit")
}

fn captures() -> Option<Vec<PathBuf>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("WIRERATE_DATA").map_or_else(beside, PathBuf::from);
    let mut files: Vec<PathBuf> = std::fs::read_dir(data.join("captures"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "pcap" || ending == "pcapng"))
        .collect();
    files.sort();
    (!files.is_empty()).then_some(files)
}

#[test]
fn real_captures_go_through() {
    let Some(files) = captures() else {
        eprintln!(
            "SKIPPED: no captures: WIRERATE_DATA names no directory with `captures`, nor is there ../shared/data"
        );
        return;
    };
    for file in files {
        let mut reader = Reader::open(&file).unwrap();
        let (mut arrivals, mut scratch) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next().unwrap() {
            let (at, number) = (record.at, record.number as u32);
            let whole = link::to_ethernet(record, Mac([2, 0, 0, 0, 0, 1]), &mut scratch);
            // No policy knows which side a packet was on; both directions are tried, some wrongly.
            arrivals.push(Arrival { port: side(whole.bytes), at, number, bytes: whole.bytes.to_vec() });
        }
        assert!(!arrivals.is_empty(), "{} is empty", file.display());
        for (name, text) in policies() {
            let forwarded = both_ways(&text, &arrivals, name);
            eprintln!("{}, {name}: {forwarded} of {} forwarded", file.display(), arrivals.len());
        }
    }
}

/// Inside, where the source is private; else the last port.
fn side(frame: &[u8]) -> PortId {
    let seen = check::Seen::of(frame);
    let is_inside = seen.is_some_and(|seen| matches!(seen.source >> 24, 10 | 172 | 192));
    PortId(if is_inside { 0 } else { 1 })
}

/// Plays the same frames both ways, and returns the number of frames forwarded.
fn both_ways(text: &str, arrivals: &[Arrival], name: &str) -> u64 {
    let mut gateways = [Way::Run, Way::Step].map(|way| Gateway::new(text, way));
    for batch in arrivals.chunks(64) {
        let [run, step] = &mut gateways;
        run.receive(batch);
        step.receive(batch);
        assert_eq!(run.out(48), step.out(48), "{name}");
        check::gateway(run);
        check::gateway(step);
    }
    let [run, step] = &gateways;
    assert_eq!(run.shard.counters, step.shard.counters, "{name}");
    run.shard.counters.forwarded()
}

/// A world that answers what really arrives: most of what it sends must come through, and nothing of it be broken.
#[test]
fn office_traffic_is_understood() {
    let outs = [Way::Run, Way::Step].map(|way| office(way, 20));
    assert_eq!(outs[0].0, outs[1].0);
    let (_, forwarded, received) = outs[0];
    assert!(forwarded * 10 > received * 6, "only {forwarded} of {received} were forwarded");
}

/// Plays so many seconds of office traffic. A sum over all that left, how many were forwarded, how many received.
fn office(way: Way, seconds: u64) -> (u64, u64, u64) {
    let mut settings = Settings { duration: Nanos::from_secs(seconds), start: START, ..Settings::default() };
    settings.lan.mac = Mac([2, 0, 0x5e, 0x10, 0, 1]);
    settings.wan.mac = Mac([2, 0, 0x5e, 0x10, 0, 2]);
    settings.wan.v4 = [203, 0, 113, 2].into();
    settings.hosts = Host::successive(12, [192, 168, 1, 20].into(), Some("2001:db8:1::20".parse().unwrap()));
    let mut office = Office::new(settings);
    let mut gateway = Gateway::new(HOME, way);
    let wan = gateway.tables.interface_named("wan").unwrap();
    let lan = gateway.tables.interface_named("lan").unwrap();
    let scene = crate::scene::policy::Scene {
        has_tunnel: false,
        has_groups: false,
        transport: None,
        inward: crate::scene::policy::Association::default(),
        text: String::new(),
        translation: crate::scene::policy::Translation::None,
        is_stateful: true,
        has_room: true,
    };
    let (mut digest, mut number) = (0_u64, 0);
    let mut arrivals = std::collections::HashMap::new();
    while let Some(packet) = office.next() {
        number += 1;
        let port = if packet.side == Side::Lan { lan } else { wan };
        let arrival = Arrival { port, at: packet.at, number, bytes: packet.bytes };
        arrivals.clear();
        arrivals.insert(number, arrival.clone());
        gateway.receive(&[arrival]);
        for sent in gateway.out(usize::MAX).sent {
            let side = if PortId(sent.port) == wan { Side::Wan } else { Side::Lan };
            if sent.number == number {
                check::sent(&scene, &arrivals, &sent);
            }
            office.arrived(side, packet.at, &sent.bytes);
            for byte in &sent.bytes {
                digest = digest.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte);
            }
        }
    }
    check::gateway(&gateway);
    let counters = &gateway.shard.counters;
    eprintln!("{} received, {} forwarded", counters.received.frames, counters.forwarded());
    for entry in Reason::ALL {
        let dropped = counters.dropped_for(entry.reason);
        if dropped > 0 {
            eprintln!("{}: {dropped}", entry.name);
        }
    }
    (digest, counters.forwarded(), counters.received.frames)
}
