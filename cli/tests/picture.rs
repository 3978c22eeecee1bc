//! Pictures of the manual: made anew by the program, from the manual's own policies, and compared.
//!
//! `WIRERATE_PICTURES=write cargo test -p wirerate --test picture` writes those that have changed.
#![allow(clippy::unwrap_used)]

mod run;

use std::fs;

use run::{Room, root, wirerate};
use wire::capture::{PcapngWriter, Record};
use wire::ethernet::Mac;
use wire::{Dscp, Nanos, build};

/// The policies of docs/qos.md, in their order.
fn policies() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/qos.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1).map(|block| block[..block.find("```").unwrap()].to_owned());
    blocks.collect()
}

/// Compares a picture with the one of the manual, and with its text, which has to show it.
#[track_caller]
fn compare(name: &str, drawn: &str) {
    let path = root().join("docs/pictures").join(name);
    if std::env::var_os("WIRERATE_PICTURES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, drawn).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == drawn,
        "docs/pictures/{name} is not what the program draws; WIRERATE_PICTURES=write cargo test -p wirerate --test picture \
         writes it"
    );
    let page = fs::read_to_string(root().join("docs/qos.md")).unwrap();
    assert!(page.contains(&format!("](pictures/{name})")), "docs/qos.md does not show {name}");
}

fn tree(room: &Room, name: &str, policy: &str) {
    let (policy, svg) = (room.write(&format!("{name}.toml"), policy), room.path("tree.svg"));
    wirerate(&["check", &policy, "--draw", &svg]).exits(0);
    compare(&format!("{name}.svg"), &fs::read_to_string(svg).unwrap());
}

fn plot(room: &Room, name: &str, policy: &str, capture: &str) {
    let (policy, svg) = (room.write(&format!("{name}.toml"), policy), room.path("plot.svg"));
    wirerate(&["replay", &policy, &format!("lan={capture}"), "--plot", &svg]).exits(0);
    compare(&format!("{name}.svg"), &fs::read_to_string(svg).unwrap());
}

/// Packets of UDP from a host, so many bytes of IP each, with a code point, at times in microseconds.
struct Stream {
    host: u8,
    length: usize,
    dscp: u8,
    begin: u64,
    end: u64,
    every: u64,
}

/// A capture of streams.
fn capture(room: &Room, file: &str, streams: &[Stream]) -> String {
    let mut packets: Vec<(u64, &Stream)> = streams
        .iter()
        .flat_map(|stream| {
            (stream.begin..stream.end).step_by(stream.every as usize).map(move |at| (at, stream))
        })
        .collect();
    packets.sort_by_key(|(at, stream)| (*at, stream.host));
    let path = room.path(file);
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("lan").unwrap();
    for (at, stream) in packets {
        let payload = vec![0; stream.length - 28];
        let from = format!("192.168.1.{}", stream.host).parse().unwrap();
        let frame = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]))
            .ipv4(from, "203.0.113.9".parse().unwrap())
            .dscp(Dscp::new(stream.dscp).unwrap())
            .udp(4_000, 5_000)
            .payload(&payload)
            .to_vec();
        writer.write(&Record::new(Nanos::from_secs(1_000) + Nanos(at * 1_000), &frame)).unwrap();
    }
    writer.finish().unwrap();
    path
}

const SECOND: u64 = 1_000_000;

/// Voice, 50 packets of 200 bytes a second, and after two seconds an upload of 24 Mbit/s for three.
fn upload(room: &Room) -> String {
    let voice = Stream { host: 10, length: 200, dscp: 46, begin: 0, end: 7 * SECOND, every: 20_000 };
    let upload = Stream { host: 20, length: 1_500, dscp: 0, begin: 2 * SECOND, end: 5 * SECOND, every: 500 };
    capture(room, "upload.pcapng", &[voice, upload])
}

#[test]
fn trees_of_the_manual_are_as_drawn() {
    let room = Room::new("pictures-trees");
    let policies = policies();
    let of = |text: &str| policies.iter().find(|policy| policy.contains(text)).unwrap();
    tree(&room, "shape", of("[shape.wan]"));
    tree(&room, "classes", of("name = \"servers\""));
    tree(&room, "provider", of("per = \"destination\""));
    let edge = fs::read_to_string(root().join("policies/diffserv-edge.toml")).unwrap();
    tree(&room, "diffserv-edge", &edge);
}

#[test]
fn an_upload_before_and_after_a_shape_is_as_drawn() {
    let room = Room::new("pictures-upload");
    let policies = policies();
    let shape = policies.iter().find(|policy| policy.contains("[shape.wan]")).unwrap();
    let allowed = "[default]\n\"lan > wan\" = \"accept\"\n";
    let capture = upload(&room);
    // The modem's own queue: first in, first out, at the rate of the link.
    let head = &shape[..shape.find("[shape.wan]").unwrap()];
    let modem = head.replace("[interface.wan]\n", "[interface.wan]\nrate = \"20 Mbit/s\"\n");
    plot(&room, "bufferbloat-before", &format!("{modem}{allowed}"), &capture);
    plot(&room, "bufferbloat-after", &format!("{shape}{allowed}"), &capture);
}

#[test]
fn shares_by_weight_are_as_drawn() {
    let room = Room::new("pictures-shares");
    let mut policy = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n[interface.wan]\nzone = \"wan\"\naddresses = \
                      [\"203.0.113.2/24\"]\n[default]\n\"lan > wan\" = \"accept\"\n[[queue]]\nname = \"uplink\"\non = \"wan\"\nrate = \
                      \"28 Mbit/s\"\noverhead = \"ip\"\n"
        .to_owned();
    for (weight, class) in [(4, 1), (2, 2), (1, 3)] {
        policy += &format!(
            "[[queue]]\nname = \"weight-{weight}\"\nin = \"uplink\"\nphb = \"af{class}\"\nweight = {weight}\nlimit = 64\n"
        );
    }
    policy += "[[queue]]\nname = \"rest\"\nin = \"uplink\"\n";
    // Each offers 20 Mbit/s, and sizes differ; the first ends before the others.
    let stream = |host, length: usize, dscp, end| Stream {
        host,
        length,
        dscp,
        begin: 0,
        end: end * SECOND / 10,
        every: length as u64 * 8 / 20,
    };
    let streams = [stream(10, 1_500, 10, 20), stream(20, 500, 18, 30), stream(30, 1_000, 26, 40)];
    plot(&room, "shares", &policy, &capture(&room, "overload.pcapng", &streams));
}
