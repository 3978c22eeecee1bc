//! Frames and captures of tests of tunnels.

use std::fmt::Write as _;

use serde_json::Value;
use wire::capture::{PcapngWriter, Reader, Record};
use wire::ethernet::Mac;
use wire::{Nanos, build, ethernet};

use super::run::{Room, wirerate};

/// Ethernet in front of a packet from a host.
pub(crate) fn link() -> build::Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]))
}

/// The IP packet of a frame, as it is behind a router: with one hop less.
#[allow(dead_code)] // not every test binary needs it
pub(crate) fn one_hop_on(frame: &[u8]) -> Vec<u8> {
    let mut packet = frame[ethernet::HEADER_LEN..].to_vec();
    if packet[0] >> 4 == 4 {
        packet[8] -= 1;
        wire::ipv4::fill_checksum(&mut packet);
    } else {
        packet[7] -= 1;
    }
    packet
}

/// A capture of frames, a millisecond apart.
pub(crate) fn capture(room: &Room, file: &str, frames: &[Vec<u8>]) -> String {
    capture_from(room, file, Nanos::from_secs(1000), frames)
}

/// The same from a moment on.
pub(crate) fn capture_from(room: &Room, file: &str, start: Nanos, frames: &[Vec<u8>]) -> String {
    let path = room.path(file);
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("eth0").unwrap();
    for (place, frame) in frames.iter().enumerate() {
        let at = start + Nanos::from_millis(place as u64);
        writer.write(&Record::new(at, frame)).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// The IP packets of a capture of Ethernet.
pub(crate) fn packets(path: &str) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push(record.bytes[ethernet::HEADER_LEN..].to_vec());
    }
    packets
}

/// The packets of a capture of raw IP, with their comments.
#[allow(dead_code)] // not every test binary reads raw IP
pub(crate) fn raw(path: &str) -> Vec<(Vec<u8>, String)> {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.bytes.to_vec(), record.comment.unwrap().into_owned()));
    }
    packets
}

/// Plays `frames` that come in by an interface. Returns the IP packets that leave by the other, and the summary.
#[allow(dead_code)] // not every test binary needs it
pub(crate) fn play(
    room: &Room,
    policy: &str,
    from: &str,
    frames: &[Vec<u8>],
    to: &str,
) -> (Vec<Vec<u8>>, Value) {
    let input = format!("{from}={}", capture(room, &format!("in-{from}.pcapng"), frames));
    let out = room.path(&format!("from-{from}"));
    let json = wirerate(&["replay", policy, &input, "--out", &out, "--json"]).exits(0).json();
    (packets(&format!("{out}/{to}.pcapng")), json)
}

/// Says that a test is skipped for want of a program; in CI, where all are, it fails.
#[allow(dead_code)] // not every test binary needs a program
pub(crate) fn skip(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "needs {what}");
    eprintln!("SKIPPED: needs {what}");
}

#[allow(dead_code)] // not every test binary prints bytes
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
