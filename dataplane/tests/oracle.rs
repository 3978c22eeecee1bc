//! Sent packets before an independent oracle: Wireshark's dissector computes every checksum anew and finds no fault.

use std::process::Command;

use dataplane::Verdict;
use dataplane::replay::Way;
use traffic::{Host, Intent, Office, Settings, Side};
use wire::capture::{PcapngWriter, Record};
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, Gateway, START};

const CHECKED: [&str; 5] = ["ip", "tcp", "udp", "icmp", "icmpv6"];

/// Counts the packets of a capture that a Wireshark display filter selects.
fn count(file: &std::path::Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output =
        command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields", "-e", "frame.number"]).output();
    let output = output.expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
}

#[test]
fn wireshark_finds_no_fault_in_what_leaves() {
    if !Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: no tshark to look at what leaves");
        return;
    }
    let policy = include_str!("../../policies/home-office.toml").replace("mac = \"02:00:5e:10", "# \"");
    let mut gateway = Gateway::new(&policy, Way::Run);
    let (lan, wan) = (PortId(0), gateway.tables.interface_named("wan").unwrap());
    let mut settings = Settings { duration: Nanos::from_secs(5), start: START, ..Settings::default() };
    settings.wan.v4 = [203, 0, 113, 2].into();
    settings.hosts = Host::successive(12, [192, 168, 1, 20].into(), Some("2001:db8:1::20".parse().unwrap()));
    settings.wan.neighbour = Mac([2, 0, 0x5e, 0x20, 0, 1]);
    let mut office = Office::new(settings);
    // A directory of the build's own, which tests may write to.
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("left.pcapng");
    let mut writer = PcapngWriter::create(&file).unwrap();
    writer.interface("out").unwrap();
    let (mut number, mut written, mut translated) = (0, 0, 0);
    while let Some(packet) = office.next() {
        number += 1;
        let port = if packet.side == Side::Lan { lan } else { wan };
        gateway.receive(&[Arrival { port, at: packet.at, number, bytes: packet.bytes }]);
        for sent in gateway.out(usize::MAX).sent {
            let side = if PortId(sent.port) == wan { Side::Wan } else { Side::Lan };
            office.arrived(side, packet.at, &sent.bytes);
            // What came broken may leave broken; answers are the gateway's own.
            if packet.intent == Intent::Honest || matches!(sent.verdict, Some(Verdict::Answered(_))) {
                writer.write(&Record::new(packet.at, &sent.bytes)).unwrap();
                written += 1;
                translated += u32::from(sent.bytes.get(26..30) == Some(&[203, 0, 113, 2][..]));
            }
        }
    }
    writer.finish().unwrap();
    assert!(written > 1_000 && translated > 200, "{written} written, {translated} translated");
    let status =
        |status: u8| CHECKED.map(|protocol| format!("{protocol}.checksum.status == {status}")).join(" or ");
    assert_eq!(count(&file, &status(0)), 0, "wrong checksums in {}", file.display());
    assert_eq!(count(&file, "_ws.malformed"), 0, "malformed packets in {}", file.display());
    // It did look.
    assert!(count(&file, "ip.checksum.status == 1 and tcp.checksum.status == 1") > 500);
}
