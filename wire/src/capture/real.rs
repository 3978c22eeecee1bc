//! Every real capture at hand, against `tshark`. Both are optional: a missing one is reported.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// The captures, in the folder that `WIRERATE_DATA` names or beside the workspace.
fn captures() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = env::var_os("WIRERATE_DATA").map_or(beside, PathBuf::from);
    let mut found: Vec<PathBuf> = match fs::read_dir(data.join("captures")) {
        Ok(entries) => entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect(),
        Err(_) => Vec::new(),
    };
    found.retain(|path| path.extension().is_some_and(|kind| kind == "pcap" || kind == "pcapng"));
    found.sort();
    if found.is_empty() {
        eprintln!("SKIPPED: no captures in {}; set WIRERATE_DATA", data.display());
    }
    found
}

/// Packets as `tshark` reports them: time, length on the wire, captured length, comment.
fn tshark(path: &Path) -> Option<Vec<[String; 4]>> {
    let fields = ["frame.time_epoch", "frame.len", "frame.cap_len", "frame.comment"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-r"]).arg(path);
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: tshark is not installed; the reader is not judged on {}", path.display());
        return None;
    };
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        [(); 4].map(|()| fields.next().unwrap_or_default())
    };
    Some(text.lines().map(row).collect())
}

fn described(record: &Record<'_>) -> [String; 4] {
    let (seconds, nanos) = (record.at.0 / 1_000_000_000, record.at.0 % 1_000_000_000);
    [
        format!("{seconds}.{nanos:09}"),
        record.original_len.to_string(),
        record.bytes.len().to_string(),
        record.comment.as_deref().unwrap_or_default().to_owned(),
    ]
}

fn packets(path: &Path) -> Vec<[String; 4]> {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push(described(&record));
    }
    assert_eq!(reader.cut_short(), None, "{}", path.display());
    packets
}

#[test]
fn tshark_sees_the_same_packets_in_every_real_capture() {
    for path in captures() {
        let Some(expected) = tshark(&path) else { return };
        assert!(!expected.is_empty());
        let found = packets(&path);
        assert_eq!(found.len(), expected.len(), "{}", path.display());
        for (n, (found, mut expected)) in found.into_iter().zip(expected).enumerate() {
            if expected[0].is_empty() {
                // A simple packet block has no time, and ours is our own choice.
                expected[0].clone_from(&found[0]);
            }
            assert_eq!(found, expected, "packet {} of {}", n + 1, path.display());
        }
    }
}

#[test]
fn tshark_sees_the_same_packets_in_what_is_written() {
    let folder = env::temp_dir().join(format!("wirerate-capture-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for path in captures() {
        let copy = folder.join("copy.pcapng");
        let mut writer = PcapngWriter::create(&copy).unwrap();
        writer.interface("lan").unwrap();
        let wan = writer.interface("wan").unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let mut expected = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            let comment =
                (record.number % 3 == 0).then(|| format!("packet {}: größer", record.number).into());
            let at = record.at + Nanos(record.number % 1000);
            let record = Record { at, comment, interface: wan, ..record };
            writer.write(&record).unwrap();
            expected.push(described(&record));
        }
        writer.finish().unwrap();
        assert!(packets(&copy) == expected, "{}: not what was written", path.display());
        let Some(seen) = tshark(&copy) else { break };
        assert!(seen == expected, "{}: tshark sees something else in the copy", path.display());
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_real_capture_may_be_cut_anywhere() {
    for path in captures() {
        let whole = fs::read(&path).unwrap();
        if !whole.starts_with(&0xa1b2_c3d4u32.to_le_bytes()) {
            continue;
        }
        let all = packets(&path);
        for cut in (24..whole.len()).step_by(whole.len() / 50 + 1) {
            let mut reader = Reader::over("cut", &whole[..cut]).unwrap();
            let (mut packets, mut end) = (0, 24);
            while let Some(record) = reader.next().unwrap() {
                assert_eq!(described(&record), all[packets]);
                packets += 1;
                end += 16 + record.bytes.len();
            }
            assert!(packets < all.len());
            let expected = CutShort { offset: end as u64, present: (cut - end) as u64 };
            assert_eq!(reader.cut_short(), (cut > end).then_some(expected), "{}", path.display());
        }
    }
}
