//! Plays the project's cases with the command that operators have, and holds them to cover every Reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dataplane::Reason;

/// Reasons that no packet of a case meets, and why.
const WITHOUT_CASE: &[(Reason, &str)] = &[
    (Reason::NeighbourWaits, "only a live host asks for neighbours"),
    (Reason::NeighbourQueueFull, "only a live host asks for neighbours"),
    (Reason::HandedOff, "a replay has one worker"),
    (Reason::HandoffFull, "a replay has one worker"),
    (Reason::PeerOwns, "a replay has no second gateway: dataplane/tests/pair.rs"),
    (Reason::PeerLinkFull, "a replay has no second gateway: dataplane/tests/pair.rs"),
    (
        Reason::EspSequence,
        "a security association has 2^32 numbers: unit test of dataplane/src/sa/sequence.rs",
    ),
    (Reason::MulticastCopy, "a replay has slots for all copies: dataplane/tests/multicast.rs"),
    (Reason::FramePoolEmpty, "more than 65,536 frames have to wait: dataplane/tests/departure.rs"),
];

#[test]
fn every_case_passes() {
    let output = test(&[&cases()]);
    assert!(output.status.success(), "\n{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn every_reason_has_a_case() {
    let mut expected = BTreeSet::new();
    for path in files(&cases(), "case") {
        let case = fs::read_to_string(&path).expect("a case can be read");
        for line in case.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let Some((_, fate)) = line.split_once("=>") else { continue };
            expected.extend(fate.split_whitespace().nth(1).and_then(Reason::of_name));
        }
    }
    for (reason, why) in WITHOUT_CASE {
        assert!(expected.insert(*reason), "a case expects {reason}, which has none: {why}");
    }
    let missing: Vec<_> = Reason::ALL.iter().filter(|entry| !expected.contains(&entry.reason)).collect();
    let names: Vec<_> = missing.iter().map(|entry| entry.name).collect();
    assert!(missing.is_empty(), "no case in tests/cases expects {names:?}");
}

/// A case that is wrong must fail: each of these is wrong in one word.
#[test]
fn what_is_wrong_is_told_with_its_line() {
    let right = "title: t\npolicy: edge.toml\nin lan udp 192.168.1.10:1 > 198.51.100.7:2 len 9 => forwarded\n\
                 out wan udp 192.168.1.10:1 > 198.51.100.7:2 len 9 ttl 63\nexpect forwarded 1\n";
    assert_eq!(verdict(right), (0, "1 passed, 0 failed\n".to_owned()));
    for (word, other, line, told) in [
        ("=> forwarded", "=> delivered", 3, "expected delivered, got forwarded"),
        ("ttl 63", "ttl 64", 4, "ttl: expected 64, got 63"),
        ("out wan", "out dmz", 4, "interface: expected dmz, got wan"),
        ("198.51.100.7:2 len 9 ttl", "198.51.100.7:3 len 9 ttl", 4, "destination port: expected 3, got 2"),
        ("len 9 ttl", "len 8 ttl", 4, "len: expected 8, got 9"),
        ("len 9 ttl", "checksum bad ttl", 4, "checksum: expected bad, got right"),
        ("forwarded 1", "forwarded 2", 5, "forwarded: expected 2, got 1"),
        ("forwarded 1", "forwarding 1", 5, "there is no counter `forwarding`"),
        ("in lan", "in lane", 3, "the policy has no interface `lane`"),
        ("len 9 =>", "lenn 9 =>", 3, "`lenn` means nothing here"),
        ("len 9 =>", "length 9 =>", 3, "a packet of 9 bytes cannot be: its headers take 28"),
        ("len 9 ttl", "length 38 ttl", 4, "total-length: expected 38, got 37"),
        ("ttl 63", "ttl 256", 4, "`256` is not a number from 0 to 255"),
        ("198.51.100.7:2 len 9 =>", "198.51.100.7 len 9 =>", 3, "`198.51.100.7` has no port"),
        ("ttl 63", "\nout wan any", 5, "this packet did not come out"),
        ("out wan", "#", 3, "nothing more was to come out"),
        ("=> forwarded", "", 3, "`=>` and what becomes of the packet is missing"),
    ] {
        let wrong = right.replacen(word, other, 1);
        assert_ne!(wrong, right, "{word} is not in the case");
        let (code, report) = verdict(&wrong);
        assert_eq!(code, 1, "{wrong}\n{report}");
        assert!(report.contains(&format!("wrong.case:{line}: ")), "{told}: line {line}\n{report}");
        assert!(report.contains(told), "{told}\n{report}");
    }
}

#[test]
fn a_fault_is_marked_with_advice() {
    for (line, marked, advice) in [
        ("at 1ms  in lane udp 192.168.1.10:1 > 198.51.100.7:2 => forwarded", "lane", "the policy has lan, "),
        (
            "in lan udp 192.168.1.10:1 > 198.51.100.7:2 widnow 9 => forwarded",
            "widnow",
            "did you mean `window`?",
        ),
    ] {
        let (code, report) = verdict(&format!("title: t\npolicy: edge.toml\n{line}\n"));
        let mut lines = report.lines().skip_while(|shown| !shown.ends_with(line));
        let (shown, marks, help) = (lines.next(), lines.next(), lines.next());
        let column = shown.and_then(|shown| shown.find(marked)).expect("the word");
        assert_eq!(marks.and_then(|marks| marks.find('^')), Some(column), "{report}");
        assert!(marks.is_some_and(|marks| marks.ends_with(&"^".repeat(marked.len()))), "{report}");
        assert!(help.is_some_and(|help| help.contains(advice)) && code == 1, "{report}");
    }
}

/// A checksum that is wrong only in the datagram as a whole is seen, too.
#[test]
fn fragments_that_come_out_are_put_together() {
    let fragments = |checksum: &str| {
        let part = |span: &str| {
            let packet = "udp 192.168.1.10:1 > 198.51.100.7:2 len 2000 ipid 7";
            format!("in lan {packet} {checksum} part {span} => forwarded\nout wan {packet} part {span}\n")
        };
        verdict(&format!("title: t\npolicy: edge.toml\n{}{}", part("0..1480"), part("1480..2008")))
    };
    assert_eq!(fragments("checksum right"), (0, "1 passed, 0 failed\n".to_owned()));
    let (code, report) = fragments("checksum bad");
    assert_eq!(code, 1);
    assert!(report.contains("completes has a wrong checksum"), "{report}");
}

/// Errors of cases that cannot be made or played are reported with their line, too.
#[test]
fn what_cannot_be_played_is_told() {
    let quotes = "icmp 192.168.1.10 > 198.51.100.7 port-unreachable quoting ".repeat(100_000);
    let line = "udp 192.168.1.10:1 > 198.51.100.7:2 len 60000 => forwarded";
    for (statement, told) in [
        (
            "in lan udp 192.168.1.10:1 > [2001:db8::1]:2 => forwarded".to_owned(),
            "are of different IP versions",
        ),
        (
            "in lan udp [2001:db8:1::10]:2 > 192.168.1.1:1 => forwarded".to_owned(),
            "are of different IP versions",
        ),
        ("in lan udp [2001:db8:1::10]:2 > *:1 => forwarded".to_owned(), "expected forwarded, got dropped"),
        (format!("in lan {quotes}any => forwarded"), "more than 4 packets are quoted"),
        (format!("repeat 1000000 in lan {line}"), "more than 256 MiB of packets come in"),
        (
            format!("repeat 600000 in lan {line}\nrepeat 600000 in lan {line}"),
            "more than 1000000 packets come in",
        ),
        (format!("repeat 3 every 106752d in lan {line}"), "it lasts more than 584 years"),
        ("in lan hex +1+1 => forwarded".to_owned(), "is not hexadecimal digits"),
    ] {
        let (code, report) = verdict(&format!("title: t\npolicy: edge.toml\n{statement}\n"));
        assert_eq!((code, report.contains(told)), (1, true), "{told}: {}", &report[..report.len().min(500)]);
    }
}

#[test]
fn exit_codes_tell_what_is_wrong() {
    assert_eq!(test(&[]).status.code(), Some(2));
    assert_eq!(test(&[Path::new("no-such-file.case")]).status.code(), Some(3));
    let (code, report) = verdict("title: t\npolicy:\n    [interface.lan]\n    zone = 3\n");
    assert_eq!(code, 1);
    // The policy's diagnostics point into the case.
    assert!(report.contains("wrong.case:4:"), "{report}");
}

/// Plays a case that is this text.
fn verdict(case: &str) -> (i32, String) {
    // Beside the project's, so that it finds their policies; each thread has its own.
    let id = std::thread::current().id();
    let directory = std::env::temp_dir().join(format!("wirerate-cases-{}-{id:?}", std::process::id()));
    fs::create_dir_all(&directory).expect("a temporary directory");
    fs::copy(cases().join("edge.toml"), directory.join("edge.toml")).expect("the policy is copied");
    let path = directory.join("wrong.case");
    fs::write(&path, case).expect("the case is written");
    let output = test(&[&path]);
    fs::remove_dir_all(&directory).expect("the directory is removed");
    (output.status.code().expect("it exits"), text(&output.stdout))
}

fn test(paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wirerate")).arg("test").args(paths).output().expect("wirerate runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace is above its crates")
        .join("tests/cases")
}

/// All files under a directory whose names end so.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found
}
