//! `wirerate chip search`, `sweep` and `trace`: what comes out, and what is said of what is wrong.
#![allow(clippy::unwrap_used)]

mod run;

use std::fs;

use run::{Room, wirerate};
use serde_json::Value;

/// Two networks, and a firewall between them that is small enough for the chip's SRAM.
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
"#;

fn chip(what: &str, words: &[&str]) -> run::Run {
    // By the test that asks, since tests run side by side.
    let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    let policy = Room::new(&format!("seek-{test}")).write("policy.toml", POLICY);
    let mut all = vec!["chip", what, "--chip", "ixp2400", "--mapping", "firewall", &policy];
    all.extend(words);
    wirerate(&all)
}

const STREAM: &str = "lan>wan,frames=2000,flows=50,established,both";

#[test]
fn a_search_ends_between_what_is_carried_and_what_is_not() {
    let losses = |words: &[&str]| {
        let json = chip("search", &[&[STREAM, "--json"], words].concat()).exits(0).json();
        let trials = json["trials"].as_array().unwrap().len();
        assert!(trials > 1 && trials < 60, "{trials}");
        let goals = json["goals"].as_array().unwrap().clone();
        for goal in &goals {
            let load = |bound: &str| goal[bound]["load"].as_f64().unwrap();
            assert!(load("lower") < load("upper"));
            assert!((load("upper") - load("lower")) / load("upper") <= 0.005, "{goal}");
        }
        assert!(!json["bottleneck"]["relief"].as_array().unwrap().is_empty());
        goals
    };
    let goals = losses(&[]);
    let lower = |goal: &Value| goal["lower"]["load"].as_f64().unwrap();
    assert_eq!(goals.len(), 2);
    assert!(lower(&goals[0]) <= lower(&goals[1]));
    // The other method comes to the same, and `chip run` agrees with both.
    let halved = losses(&["--rfc2544"]);
    assert!((lower(&halved[0]) / lower(&goals[0]) - 1.0).abs() < 0.02, "{halved:?} {goals:?}");
    let lost = |load: f64| {
        let stream = format!("{STREAM},rate={}%", load * 100.0);
        chip("run", &[&stream, "--json"]).exits(0).json()["lost"].as_u64().unwrap()
    };
    assert_eq!(lost(lower(&halved[0])), 0);
    assert!(lost(halved[0]["upper"]["load"].as_f64().unwrap()) > 0);
    // The same again is the same.
    assert_eq!(goals, losses(&[]));
}

#[test]
fn what_is_carried_in_full_has_no_upper_bound() {
    let run = chip("search", &["lan>wan,frames=200,rate=1%"]).exits(0);
    assert!(run.out.contains("nothing: it carries all that is offered"), "{}", run.out);
    let json = chip("search", &["lan>wan,frames=200,rate=1%", "--json"]).exits(0).json();
    assert_eq!(json["goals"][0]["upper"], Value::Null);
    assert_eq!(json["goals"][0]["lower"]["load"], 1.0);
}

#[test]
fn a_sweep_has_a_row_for_each_combination_and_says_what_cannot_be() {
    let room = Room::new("seek-sweep");
    let csv = room.path("rows.csv");
    let words = [
        "lan>wan,frames=300,flows=each",
        "--vary",
        "pool.firewall.threads=1,8,9",
        "--vary",
        "rules=0..64:32",
    ];
    let json = chip("sweep", &[&words[..], &["--json", "--csv", &csv]].concat()).exits(0).json();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 9);
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(row["pool.firewall.threads"], ["1", "8", "9"][place / 3]);
        assert_eq!(row["rules"], ["0", "32", "64"][place % 3]);
        assert_eq!(row.get("error").is_some(), place >= 6, "{row}");
        assert_eq!(row.get("delivered_mpps").is_some(), place < 6, "{row}");
    }
    // Four engines of eight threads beside the firewall's three; what the chip draws is not known.
    assert_eq!((&rows[0]["engines"], &rows[0]["threads"]), (&7.0.into(), &35.0.into()));
    assert_eq!(rows[0]["watts"], Value::Null);
    let told = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert!(told(0, "p50_ns") < told(2, "p50_ns"), "rules take time");
    assert!(told(5, "delivered_mpps") > told(2, "delivered_mpps"), "threads bring something");
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 10);
    assert!(csv.starts_with("pool.firewall.threads,rules,offered_mpps,"), "{csv}");
    let table = chip("sweep", &words).exits(0);
    assert!(table.out.contains("busiest engine") && table.out.contains("9, 64"), "{}", table.out);
}

/// Repeated, a row has the means of the runs that `chip run` makes of the same seeds, and intervals by Student's t; on any number of cores.
#[test]
fn a_sweep_of_several_runs_has_means_with_intervals() {
    let room = Room::new("seek-repeat");
    let csv = room.path("rows.csv");
    // Near the load at which frames are lost, where arrivals matter.
    let stream = "lan>wan,frames=800,arrivals=poisson,rate=70%,flows=each";
    let words = [stream, "--warm", "100", "--seed", "5"];
    let sweep = ["--vary", "memory.sram.latency=90,400", "--repeat", "3"];
    let words_of = |more: &[&'static str]| [&words[..], &sweep, more].concat();
    let json = chip("sweep", &[&words_of(&["--json", "--csv"])[..], &[&csv]].concat()).exits(0).json();
    let runs: Vec<Value> = ["5", "6", "7"]
        .map(|seed| {
            let words =
                [stream, "--warm", "100", "--seed", seed, "--set", "memory.sram.latency=400", "--json"];
            chip("run", &words).exits(0).json()
        })
        .to_vec();
    let values = |name: &str| -> Vec<f64> { runs.iter().map(|run| run[name].as_f64().unwrap()).collect() };
    let row = &json[1];
    for name in ["offered_mpps", "delivered_mpps", "gbps", "lost"] {
        let values = values(name);
        let mean = values.iter().sum::<f64>() / 3.0;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
        // The quantile for two degrees of freedom, by a table.
        let half_width = 4.302_652_73 * deviation / 3.0_f64.sqrt();
        let told = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!((told(name) - mean).abs() <= 1e-9 * mean, "{name}: {mean} {row}");
        let of = told(&format!("{name}_ci95"));
        assert!((of - half_width).abs() <= 1e-6 * half_width, "{name}: {half_width} {row}");
    }
    assert!(row["p99_ns_ci95"].as_f64().unwrap() > 0.0 && row["engine_busy_ci95"].is_f64(), "{row}");
    let csv = fs::read_to_string(csv).unwrap();
    let head = csv.lines().next().unwrap();
    assert!(head.starts_with("memory.sram.latency,offered_mpps,"), "{head}");
    assert!(head.contains(",watts,offered_mpps_ci95,") && head.ends_with(",watts_ci95,error"), "{head}");
    assert!(csv.lines().all(|line| line.split(',').count() == 31), "{csv}");
    let table = chip("sweep", &words_of(&[])).exits(0);
    assert!(table.out.contains("means of 3 runs") && table.out.matches(" ± ").count() == 15, "{}", table.out);
    assert!(!table.err.contains("random"), "{}", table.err);
    // The same on one core.
    let mut one = std::process::Command::new(env!("CARGO_BIN_EXE_wirerate"));
    one.env("RAYON_NUM_THREADS", "1").args(["chip", "sweep", "--chip", "ixp2400", "--mapping", "firewall"]);
    let one = one.arg(room.write("policy.toml", POLICY)).args(words_of(&[])).output().unwrap();
    assert_eq!(String::from_utf8(one.stdout).unwrap(), table.out);
}

/// Without a second run nothing is said of an interval, and where nothing is random that is said.
#[test]
fn what_is_not_random_has_no_interval() {
    let vary = ["--vary", "memory.sram.latency=90,150"];
    let one = chip("sweep", &[&["lan>wan,frames=100"][..], &vary, &["--json"]].concat()).exits(0).json();
    assert!(one[0].as_object().unwrap().keys().all(|key| !key.ends_with("_ci95")), "{one}");
    let same = [&["lan>wan,frames=100,flows=1"][..], &vary, &["--repeat", "2", "--json"]].concat();
    let same = chip("sweep", &same).exits(0);
    assert!(same.err.contains("nothing in this traffic is random"), "{}", same.err);
    assert_eq!(same.json()[0]["delivered_mpps_ci95"], 0.0);
}

/// With a loss, rows have what a search finds.
#[test]
fn a_sweep_has_the_throughput_of_a_search() {
    let words = [STREAM, "--json", "--loss", "0.5%"];
    let goal = chip("search", &words).exits(0).json()["goals"][0].clone();
    let rows =
        chip("sweep", &[&words[..], &["--vary", "memory.sram.latency=90,900"]].concat()).exits(0).json();
    for (of, in_goal) in [("throughput_mpps", "throughput_mpps"), ("throughput_gbps", "throughput_gbps")] {
        assert_eq!(rows[0][of], goal[in_goal]);
    }
    assert_eq!(rows[0]["throughput_share"], goal["lower"]["load"]);
    assert!(rows[1]["throughput_mpps"].as_f64() < rows[0]["throughput_mpps"].as_f64(), "{rows:#}");
    let table = chip("sweep", &[STREAM, "--loss", "0.5%", "--vary", "memory.sram.latency=90,900"]).exits(0);
    assert!(
        table.out.contains("throughput\n") && table.out.matches(" Gbit/s\n").count() == 2,
        "{}",
        table.out
    );
}

#[test]
fn traffic_and_placement_are_varied_too() {
    let words =
        ["lan>wan,frames=300,rate=10%", "--vary", "size=64,1518", "--vary", "region.rule-table=sram,local"];
    let json = chip("sweep", &[&words[..], &["--json"]].concat()).exits(0).json();
    let gbps: Vec<f64> = (0..4).map(|row| json[row]["gbps"].as_f64().unwrap_or(0.0)).collect();
    assert!(gbps[2] > gbps[0], "{json:#}");
    assert_eq!(json[3]["region.rule-table"], "local");
}

#[test]
fn a_trace_is_json_with_what_was_asked_for() {
    let room = Room::new("seek-trace");
    let out = room.path("trace.json");
    let told =
        chip("trace", &[STREAM, "--out", &out, "--from", "100us", "--frames", "5", "--json"]).exits(0).json();
    assert_eq!(told["frames"], 5);
    let json: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.len() as u64, told["events"].as_u64().unwrap());
    for phase in ["M", "B", "E", "b", "e", "C", "s", "f"] {
        assert!(events.iter().any(|event| event["ph"] == phase), "no {phase}");
    }
    let late = chip("trace", &[STREAM, "--out", &out, "--from", "1s"]).exits(0);
    assert!(late.err.contains("no more frames"), "{}", late.err);
}

#[test]
fn what_is_wrong_is_told_with_its_exit_code() {
    // Without a frame there is nothing to find, and nothing to wait for.
    for words in [&["lan>wan,frames=0"][..], &[STREAM, "--warm", "4000"], &["lan>wan,frames=0", "--rfc2544"]]
    {
        assert!(chip("search", words).exits(2).err.contains("no frame"));
    }
    let room = Room::new("seek-wrong");
    let out = room.path("trace.json");
    let exits = |code: i32, what: &str, words: &[&str], part: &str| {
        let run = chip(what, words).exits(code);
        assert!(run.err.contains(part), "no `{part}` in {}", run.err);
    };
    exits(2, "search", &[STREAM, "--loss", "100%"], "0.5%");
    exits(2, "search", &[STREAM, "--loss", "1%", "--rfc2544"], "--rfc2544");
    exits(2, "search", &["lan>dmz"], "the policy has");
    exits(1, "search", &[STREAM, "--set", "memory.sram.latency=-3"], "latency");
    exits(3, "search", &["lan=no-such.pcap"], "no-such.pcap");
    exits(2, "sweep", &[STREAM], "--vary");
    exits(2, "sweep", &[STREAM, "--vary", "memory.sram.latency=9..1"], "no range");
    exits(2, "sweep", &[STREAM, "--vary", "memory.sram.latancy=1"], "latency");
    exits(2, "sweep", &[STREAM, "--vary", "size=1"], "`size`");
    exits(2, "sweep", &[STREAM, "--vary", "rules=1", "--vary", "rules=2"], "twice");
    exits(1, "sweep", &[STREAM, "--vary", "memory.sram.latency=-1,-2"], "none of 2 combinations");
    let rows = chip("sweep", &[STREAM, "--vary", "memory.sram.latency=-1,90", "--json"]).exits(0).json();
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.contains("-1 is out of range: from 0 to "), "{error}");
    let words = ["lan>wan,frames=9", "--warm", "9", "--vary", "rules=1", "--json"];
    let rows = chip("sweep", &words).exits(1).json();
    assert_eq!(rows[0]["error"], "the traffic has no frame that would count");
    exits(3, "sweep", &[STREAM, "--vary", "rules=1", "--csv", "no/such/file.csv"], "no/such/file.csv");
    for runs in ["0", "1001", "many"] {
        exits(2, "sweep", &[STREAM, "--vary", "rules=1", "--repeat", runs], "--repeat");
    }
    let capture = room.path("capture.pcapng");
    wire::capture::PcapngWriter::create(&capture).unwrap().finish().unwrap();
    let capture = format!("lan={capture}");
    exits(2, "sweep", &[&capture, "--vary", "memory.sram.latency=90", "--repeat", "2"], "nothing to repeat");
    exits(2, "sweep", &[STREAM, "--vary", "rules=1", "--loss", "1"], "0.5%");
    let optimise = |words: &[&str], part: &str| exits(2, "optimise", &[&[STREAM], words].concat(), part);
    optimise(&["--objective", "latency"], "--vary");
    optimise(&["--vary", "rules=1"], "--objective");
    let vary = &["--vary", "rules=1..9", "--objective", "engines,latency"];
    optimise(&["--vary", "rules=1..9", "--objective", "latancy"], "did you mean \"latency\"?");
    optimise(&["--vary", "rules=1..9", "--objective", "speed"], "there are throughput, delivered, ");
    optimise(&[&vary[..], &["--objective", "engines"]].concat(), "engines is an objective twice");
    optimise(
        &[&vary[..], &["--require", "throughput>=1W"]].concat(),
        "`W` is no unit of throughput: write Gbit/s",
    );
    optimise(&[&vary[..], &["--require", "engines=4"]].concat(), "write NAME>=VALUE");
    optimise(&[&vary[..], &["--trials", "0"]].concat(), "--trials");
    optimise(&["--vary", "rules=1..9", "--objective", "engines", "--plot", &out], "two objectives");
    optimise(&["--vary", "rules=0..1000000000", "--objective", "engines"], "has 1000000001 values");
    optimise(&["--vary", "memory.nothing=1", "--objective", "engines"], "memory.nothing");
    optimise(&["--vary", "rules=1", "--objective", "power"], "nothing is known of the power of ixp2400");
    exits(2, "trace", &[STREAM, "--out", &out, "--from", "3"], "150us");
    exits(2, "trace", &[STREAM, "--out", &out, "--frames", "0"], "--frames");
    exits(3, "trace", &[STREAM, "--out", "no/such/trace.json"], "no/such/trace.json");
}

/// Runs a search whose `python3` is this script, as if the package were there; without one, there is no Python.
fn search_by(test: &str, script: Option<&str>, words: &[&str]) -> run::Run {
    use std::os::unix::fs::PermissionsExt;

    let room = Room::new(&format!("seek-python-{test}"));
    let policy = room.write("policy.toml", POLICY);
    if let Some(script) = script {
        let path = room.write("python3", format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_wirerate"))
        .args(["chip", "optimise", "--chip", "ixp2400", "--mapping", "firewall", &policy, STREAM])
        .args(["--vary", "rules=0..16380:10", "--vary", "pool.firewall.threads=1..8"])
        .args(words)
        .env(
            "PATH",
            if script.is_some() { format!("{}:/usr/bin:/bin", room.path("")) } else { room.path("") },
        )
        .output()
        .unwrap();
    run::Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Rows of the package, and its errors, as the command shows them.
#[test]
fn a_search_shows_what_the_package_finds_and_says_what_it_lacks() {
    let words = ["--objective", "engines,latency", "--require", "delivered>=1Mbit/s", "--trials", "4"];
    let none = search_by("none", None, &words).exits(1);
    assert!(
        none.err.contains("python3 cannot be run") && none.err.contains("pip install 'wirerate[optimise]'"),
        "{}",
        none.err
    );
    let missing = "echo \"ModuleNotFoundError: No module named 'wirerate'\" >&2; exit 1";
    let none = search_by("missing", Some(missing), &words).exits(1);
    assert!(none.err.contains("no package wirerate with the extra optimise"), "{}", none.err);
    let optuna = "cat >/dev/null; echo \"error: Optuna is not installed: pip install 'wirerate[optimise]'\" >&2; exit 1";
    let none = search_by("optuna", Some(optuna), &words).exits(1);
    assert!(none.err.contains("the search ended: Optuna is not installed"), "{}", none.err);
    for said in [
        "what?",
        "{\"number\": 999999999, \"feasible\": true, \"cells\": null, \"error\": \"x\"}",
        "{\"front\": [3], \"exact\": false}",
    ] {
        let garbled = search_by("garbled", Some(&format!("cat >/dev/null; echo '{said}'")), &words).exits(1);
        assert!(garbled.err.contains("is not understood"), "{}", garbled.err);
    }
    // A front: the numbers of a sweep's columns, with an engine and a memory between them.
    let cells = |engines: u32, p99: u32| {
        format!(
            "[1.0, 1.0, 0.0, 1.0, 0.5, 0.0, 0.0, 500.0, {p99}.0, \"me.5\", 0.5, \"sram\", 0.25, {engines}, 35, 1024, null]"
        )
    };
    let trial = |number: u32, feasible: &str, engines: u32, p99: u32| {
        let cells = cells(engines, p99);
        format!("{{\"number\": {number}, \"feasible\": {feasible}, \"cells\": {cells}, \"error\": null}}")
    };
    let lines = [
        "{\"done\": 2}".to_owned(),
        trial(9, "true", 7, 2_500),
        trial(8, "true", 6, 4_000),
        trial(13_104, "false", 3, 9_000),
        "{\"number\": 1, \"feasible\": false, \"cells\": null, \"error\": \"no room\"}".to_owned(),
        "{\"front\": [8, 9], \"exact\": false}".to_owned(),
    ];
    let script = format!("cat > {{}}; printf '%s\\n' {}", lines.map(|line| format!("'{line}'")).join(" "));
    let room = Room::new("seek-python-request");
    let asked = room.path("asked.json");
    let script = script.replace("{}", &asked);
    let table = search_by("front", Some(&script), &words).exits(0);
    let shown: Vec<Vec<&str>> = table.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(table.out.contains("4 of 13,112 configurations were run, chosen by NSGA-II"), "{}", table.out);
    assert!(
        shown.contains(&vec!["10", "1", "6", "4.00", "us"])
            && shown.contains(&vec!["10", "2", "7", "2.50", "us"]),
        "{}",
        table.out
    );
    assert!(table.out.contains("1 configuration does not meet what is required."), "{}", table.out);
    assert!(table.out.contains("0, 2: no room"), "{}", table.out);
    let asked: Value = serde_json::from_str(&fs::read_to_string(asked).unwrap()).unwrap();
    assert_eq!(asked["objectives"], serde_json::json!(["engines", "latency"]));
    assert_eq!(asked["require"], serde_json::json!(["delivered>=1Mbit/s"]));
    assert_eq!((&asked["trials"], &asked["loss"]), (&4.into(), &Value::Null));
    let json = search_by("json", Some(&script), &[&words[..], &["--json"]].concat()).exits(0).json();
    assert_eq!((&json["combinations"], &json["exact"]), (&13_112.into(), &false.into()));
    assert_eq!((&json["front"][0]["rules"], &json["front"][0]["engines"]), (&"10".into(), &6.0.into()));
    assert_eq!(
        (&json["trials"][3]["error"], &json["trials"][2]["feasible"]),
        (&"no room".into(), &false.into())
    );
    let picture = room.path("front.svg");
    search_by("plot", Some(&script), &[&words[..], &["--plot", &picture]].concat()).exits(0);
    assert_eq!(fs::read_to_string(picture).unwrap().matches("<circle").count(), 5);
}
