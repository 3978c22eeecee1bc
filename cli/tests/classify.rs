//! `wirerate bench classify`, `generate rules` and `generate trace`: what comes out, and what is said of bad input.
#![allow(clippy::unwrap_used)]

mod run;

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};

use lookup::classify::ALGORITHMS;
use run::{Room, home_office, root, wirerate};
use serde_json::Value;

/// Measures for as short as may be. How fast anything is does not matter here.
fn bench(words: &[&str]) -> run::Run {
    wirerate(&[&["bench", "classify", "--seconds", "0.01", "--headers", "500"], words].concat())
}

/// Algorithms, in the order of the rows.
fn algorithms(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["algorithm"].as_str().unwrap()).collect()
}

/// Standard output and error are closed early, as `wirerate bench … 2>&1 | head -1` does.
#[test]
fn nobody_has_to_read_what_is_said() {
    for words in [
        &["classify", "policies/home-office.toml", "--seconds", "0.01", "--headers", "100"][..],
        &["forward", "--flows", "1", "--packets", "1000"],
        &["routes", "--v4", "100", "--v6", "100"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wirerate"));
        command.current_dir(root()).arg("bench").args(words).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{words:?}");
    }
}

#[test]
fn every_algorithm_has_a_row() {
    let room = Room::new("classify-rows");
    let rules = room.path("acl.rules");
    wirerate(&["generate", "rules", "--like", "acl", "--count", "200", "--out", &rules]).exits(0);
    let rows = bench(&[&rules, "--json"]).exits(0).json();
    let names: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
    let found = algorithms(&rows);
    // Where DPDK is installed, it comes last.
    assert_eq!(found.strip_suffix(&["rte_acl"]).unwrap_or(&found), names);
    for row in rows.as_array().unwrap() {
        assert_eq!(row["rules"], 200, "{row}");
        for key in ["mlookups", "memory_bytes", "build_seconds", "updates_per_second"] {
            assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {row}");
        }
        assert!(row["gave_way"].is_null(), "{row}");
    }
    assert!(rows[0]["worst_instructions"].as_u64().is_some_and(|most| most > 200), "{}", rows[0]);
    let text = bench(&[&rules]).exits(0).out;
    assert!(names.iter().all(|name| text.contains(name)) && text.contains("200 rules"), "{text}");
}

#[test]
fn one_algorithm_is_measured_alone() {
    let room = Room::new("classify-one");
    let rules = room.write("one.rules", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    let rows = bench(&[&rules, "--json", "--algorithm", "linear"]).exits(0).json();
    assert_eq!((algorithms(&rows), &rows[0]["rules"]), (vec!["linear"], &1.into()));
    let run = bench(&[&rules, "--algorithm", "lineal"]).exits(2);
    assert!(run.err.contains("linear") && run.err.contains("rte_acl"), "{}", run.err);
}

#[test]
fn policies_are_measured_too() {
    let rows = bench(&[&home_office(), "--json"]).exits(0).json();
    assert_eq!(algorithms(&rows).len(), ALGORITHMS.len(), "rte_acl knows no zones: {rows}");
    let run = bench(&[&home_office(), "--algorithm", "rte_acl"]).exits(0);
    assert!(run.err.contains("rte_acl is left out"), "{}", run.err);
}

#[test]
fn ipv6_sets_are_measured_too() {
    let room = Room::new("classify-v6");
    let line = "@2001:db8::/32\t::/0\t0 : 65535\t443 : 443\t0x06/0xFF\n";
    let rules = room.write("v6.rules", line.repeat(2));
    let run = bench(&[&rules, "--json"]).exits(0);
    assert_eq!(algorithms(&run.json()).len(), ALGORITHMS.len(), "rte_acl is given IPv4 alone");
    assert_eq!(run.json()[0]["rules"], 2);
    // Traces are of IPv4 alone.
    let trace = wirerate(&["generate", "trace", "--rules", &rules, "--count", "10"]).exits(0);
    assert!(trace.err.contains("no rule is about IPv4") && trace.out.lines().count() == 10, "{}", trace.err);
}

#[test]
fn what_needs_more_memory_gives_way() {
    let room = Room::new("classify-memory");
    let rules = room.path("fw.rules");
    wirerate(&["generate", "rules", "--like", "fw", "--count", "3000", "--out", &rules]).exits(0);
    let rows = bench(&[&rules, "--json", "--memory", "1", "--patience", "0.01"]).exits(0).json();
    assert_eq!(rows[0]["algorithm"], "linear");
    assert!(rows[0]["gave_way"].is_null() && rows[0]["mlookups"].as_f64().is_some());
    for row in rows.as_array().unwrap() {
        let fits = row["memory_bytes"].as_u64().is_some_and(|bytes| bytes <= 1 << 20);
        let may_be_larger = ["linear", "coded", "rte_acl"].contains(&row["algorithm"].as_str().unwrap());
        assert!(fits || may_be_larger || row["gave_way"].is_string(), "{row}");
    }
}

#[test]
fn rules_that_cannot_be_searched_are_told() {
    let room = Room::new("classify-bad");
    let told = |name: &str, text: &str, code| {
        let file = room.write(name, text);
        let run = bench(&[&file]).exits(code);
        assert!(run.err.contains(name) && run.err.contains("error"), "{}", run.err);
    };
    told("empty.rules", "", 1);
    told("comment.rules", "# nothing\n", 1);
    told("garbage.rules", "\u{1}\u{2}garbage\n", 1);
    told("at.rules", "@garbage\n", 3);
    bench(&["no/such.rules"]).exits(3);
    // Of bad lines among good ones the good are measured.
    let line = "@1.2.3.4/32\t5.6.7.0/24\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\n";
    let mixed = room.write("mixed.rules", format!("{line}@bad\n{line}{line}"));
    let run = bench(&[&mixed, "--json", "--algorithm", "linear"]).exits(0);
    assert!(run.err.contains("1 rule") && run.err.contains("left out"), "{}", run.err);
    assert_eq!(run.json()[0]["rules"], 3, "duplicates stay");
}

#[test]
fn traces_are_read() {
    let room = Room::new("classify-trace");
    let rules = room.path("ipc.rules");
    let trace = room.path("ipc.trace");
    wirerate(&["generate", "rules", "--like", "ipc", "--count", "50", "--out", &rules]).exits(0);
    wirerate(&["generate", "trace", "--rules", &rules, "--count", "300", "--out", &trace]).exits(0);
    let timed = |words: &[&str]| {
        wirerate(
            &[&["bench", "classify", "--seconds", "0.01", &rules, "--algorithm", "linear"], words].concat(),
        )
    };
    timed(&["--trace", &trace]).exits(0);
    timed(&["--trace", &trace, "--seed", "3"]).exits(2);
    // As ClassBench writes them, without flags, and with nothing but what is needed.
    let short = room.write("short.trace", "16909060\t84281096\t1024\t80\t6\t12\n1 2 3 4 17\n");
    timed(&["--trace", &short]).exits(0);
    for (text, what) in [
        ("", "no header"),
        ("1 2 3 4\n", "short.trace:1: fewer than five"),
        ("1 2 3 4 6\n1 2 3 4 256\n", "short.trace:2: the protocol"),
        ("1 2 65536 4 6\n", "the source port"),
        ("a b c d e\n", "the source"),
    ] {
        let bad = room.write("short.trace", text);
        let run = timed(&["--trace", &bad]).exits(3);
        assert!(run.err.contains(what), "{}", run.err);
    }
}

#[test]
fn the_seed_decides_what_is_generated() {
    let rules = |seed| {
        wirerate(&["generate", "rules", "--like", "fw", "--count", "500", "--seed", seed]).exits(0).out
    };
    assert_eq!(rules("1"), rules("1"));
    assert_ne!(rules("1"), rules("2"));
    let lines = rules("1");
    assert_eq!(lines.lines().collect::<HashSet<_>>().len(), 500);
    let trace =
        |words: &[&str]| wirerate(&[&["generate", "trace", "--count", "200"], words].concat()).exits(0).out;
    assert_eq!(trace(&["--like", "ipc"]), trace(&["--like", "ipc"]));
    assert_ne!(trace(&["--like", "ipc"]), trace(&["--like", "ipc", "--seed", "2"]));
    // The rules of the same seed are those that it is made for.
    let room = Room::new("classify-seed");
    let file = room.path("acl.rules");
    wirerate(&["generate", "rules", "--like", "acl", "--count", "1000", "--out", &file]).exits(0);
    assert_eq!(trace(&["--rules", &file]), trace(&["--like", "acl"]));
    let columns = trace(&["--rules", &file]);
    assert!(columns.lines().all(|line| line.split('\t').count() == 7), "{columns}");
    for words in [
        &["generate", "rules"][..],
        &["generate", "rules", "--like", "acl", "--count", "0"],
        &["generate", "rules", "--like", "acl", "--count", "1000001"],
        &["generate", "trace", "--like", "acl", "--rules", &file],
    ] {
        wirerate(words).exits(2);
    }
    wirerate(&["generate", "rules", "--like", "acl", "--out", "no/such/directory"]).exits(3);
}

#[test]
fn generated_rules_can_be_imported() {
    let room = Room::new("classify-import");
    for like in ["acl", "fw", "ipc"] {
        let file = room.path("rules");
        wirerate(&["generate", "rules", "--like", like, "--count", "2000", "--out", &file]).exits(0);
        let policy = wirerate(&["import", "classbench", &file]).exits(0).out;
        assert_eq!(policy.matches("[[rule]]").count(), 2_000, "{like}");
    }
}

/// The peer's answers are compared with ours inside the command, which fails where they differ.
#[test]
fn rte_acl_finds_the_same() {
    let room = Room::new("classify-peer");
    let rules = room.path("fw.rules");
    wirerate(&["generate", "rules", "--like", "fw", "--count", "300", "--out", &rules]).exits(0);
    let run = bench(&[&rules, "--json", "--algorithm", "linear", "--algorithm", "rte_acl"]).exits(0);
    let rows = run.json();
    if run.err.contains("left out") {
        eprintln!("SKIPPED: {}", run.err);
        return;
    }
    assert_eq!(algorithms(&rows), ["linear", "rte_acl"]);
    assert_eq!(rows[1]["settings"].as_array().map(Vec::len), Some(2), "{rows}");
}

/// Another program in the peer's place gives other answers.
#[test]
fn a_peer_that_finds_something_else_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new("classify-liar");
    let rules = room.write("one.rules", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    let built = r#"{"build_seconds": 0.1, "memory_bytes": 1, "matches": 1, "checksum": 1}"#;
    let liar = room.write("liar", format!("#!/bin/sh\necho 'EAL: talk'\necho '{built}'\ncat > /dev/null\n"));
    fs::set_permissions(&liar, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |program: &str| {
        Command::new(env!("CARGO_BIN_EXE_wirerate"))
            .args(["bench", "classify", "--seconds", "0.01", "--headers", "100", &rules])
            .env("WIRERATE_RTE_ACL", program)
            .output()
            .unwrap()
    };
    let output = run(&liar);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("rte_acl finds other rules"), "{said}");
    // One that is not there is left out.
    let output = run("no/such/program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("cannot be run"), "{said}");
}

/// Six sets that others made, where they are.
#[test]
fn real_sets_are_read_whole() {
    let directory = std::env::var_os("WIRERATE_DATA")
        .map_or_else(|| root().join("../shared/data"), Into::into)
        .join("rules");
    let Ok(files) = fs::read_dir(&directory) else {
        eprintln!("SKIPPED: no filter sets in {}", directory.display());
        return;
    };
    for file in files {
        let path = file.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        let run = bench(&[path.to_str().unwrap(), "--json", "--algorithm", "linear"]).exits(0);
        assert!(!run.err.contains("left out"), "{}", run.err);
        assert_eq!(run.json()[0]["rules"], lines, "{}", path.display());
    }
}
