//! Timelines of small runs, read back: their figures must be those of the report.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use serde_json::Value;
use wire::Nanos;

use super::{Part, Timeline, Written};
use crate::builtin::{CHIPS, MAPPINGS, named};
use crate::description::{self, Chip};
use crate::host::Wiring;
use crate::mapping::{self, Mapping};
use crate::report::Report;
use crate::run::{Setup, Source, SourceError};
use crate::traffic::{Generator, Lines, Stream};

mod format;

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
flows = 1000
[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"
"#;

fn described(mapping_name: &str) -> (Chip, Mapping) {
    let text = named(MAPPINGS, mapping_name).unwrap();
    let name = mapping::chip_of(text).unwrap();
    let chip = description::parse(named(CHIPS, &name).unwrap(), "chip").chip.unwrap();
    let mapping = mapping::parse(text, "mapping", &chip).mapping.unwrap();
    (chip, mapping)
}

fn trace(mapping: &str, stream: &str, part: Part, out: impl Write) -> (Report, io::Result<Written>) {
    let (chip, mapping) = described(mapping);
    let policy = policy::check(POLICY, "policy").policy.unwrap();
    let stream: Stream = stream.parse().unwrap();
    let start = Nanos::from_secs(1);
    let source = || -> Result<Source, SourceError> {
        let tables = Tables::compile(&policy, 1)?;
        let wiring = Wiring::new(&tables, &[]);
        let traffic = Box::new(Generator::new(
            &stream,
            &tables,
            Lines { ports: &chip.ports, wiring: &wiring },
            start,
            1,
        )?);
        Ok(Source { replay: Replay::new(tables, start, Way::Step)?, traffic, start, wiring })
    };
    let setup = Setup { chip: &chip, mapping: &mapping, source: &source, warm: 0 };
    let mut timeline = Timeline::new(out, &chip, &mapping, part);
    let report = setup.trace(&mut timeline).unwrap();
    (report, timeline.finish())
}

fn events(mapping: &str, stream: &str, part: Part) -> (Report, Written, Vec<Value>) {
    let mut bytes = Vec::new();
    let (report, written) = trace(mapping, stream, part, &mut bytes);
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(format::faults(&json), [""; 0]);
    let events = json["traceEvents"].as_array_mut().map(std::mem::take).unwrap();
    assert_eq!(events.len() as u64, written.as_ref().unwrap().events);
    (report, written.unwrap(), events)
}

const ALL: Part = Part { from: Nanos(0), frames: u64::MAX };

fn time(event: &Value, name: &str) -> f64 {
    event[name].as_f64().unwrap_or_else(|| panic!("no {name} in {event}"))
}

/// A picosecond and the rounding of microseconds.
const CLOSE: f64 = 1e-5;

/// Slice of an engine's time for a thread.
struct Slice {
    pid: u64,
    name: String,
    begin: f64,
    end: f64,
}

/// The slices of engines, each of which lies within its task's; looks and timers have no task.
fn slices(events: &[Value]) -> Vec<Slice> {
    let mut open: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    let is_taskless = |event: &&Value| {
        let name = event["args"]["name"].as_str().unwrap_or_default();
        event["name"] == "thread_name" && (name == "looks" || name.starts_with("clock "))
    };
    let track = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let taskless: BTreeSet<(u64, u64)> = events.iter().filter(is_taskless).map(track).collect();
    let mut slices = Vec::new();
    for event in events {
        let Some(phase @ ("B" | "E")) = event["ph"].as_str() else { continue };
        let pid = event["pid"].as_u64().unwrap();
        let of = open.entry((pid, event["tid"].as_u64().unwrap())).or_default();
        if phase == "B" {
            let without_task = of.is_empty() && taskless.contains(&(pid, event["tid"].as_u64().unwrap()));
            let cat = if without_task { "engine" } else { ["task", "engine"][of.len()] };
            assert_eq!(event["cat"], cat, "{event}");
            of.push(event);
            continue;
        }
        let begun = of.pop().unwrap();
        if begun["cat"] == "engine" {
            let name = begun["name"].as_str().unwrap().to_owned();
            slices.push(Slice { pid, name, begin: time(begun, "ts"), end: time(event, "ts") });
        }
    }
    slices
}

/// On every engine, no two threads have it at once.
fn check_engines(slices: &[Slice]) {
    let mut engines: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for slice in slices {
        assert!(slice.end > slice.begin);
        engines.entry(slice.pid).or_default().push((slice.begin, slice.end));
    }
    assert!(!engines.is_empty());
    for slices in engines.values_mut() {
        slices.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0 + CLOSE));
    }
}

#[test]
fn a_timeline_says_what_the_report_says() {
    for mapping in ["ixp2400-firewall", "ixp2400-pool", "ixp1200-split", "ixp1200-diffserv"] {
        let (report, written, events) = events(mapping, "lan>wan,frames=200,flows=20", ALL);
        assert_eq!((written.frames, written.lost), (200, report.lost));
        let slices = slices(&events);
        check_engines(&slices);
        let names: BTreeMap<u64, &str> = events
            .iter()
            .filter(|event| event["name"] == "process_name")
            .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
            .collect();
        let sum = |engine: &str, what: &[&str]| -> f64 {
            let of = slices.iter().filter(|slice| names[&slice.pid] == engine);
            of.filter(|slice| what.contains(&slice.name.as_str())).map(|slice| slice.end - slice.begin).sum()
        };
        for engine in &report.engines {
            for (share, what) in [
                (engine.executing, &["execute"][..]),
                (engine.aborted, &["abort", "switch"]),
                (engine.stalled, &["stall"]),
                (engine.polling, &["poll"]),
            ] {
                let told = share * report.seconds * 1e6;
                let found = sum(&engine.name, what);
                // Each slice is rounded to the picosecond.
                assert!(
                    (told - found).abs() < 0.02,
                    "{mapping} {}: {what:?} {found} not {told}",
                    engine.name
                );
            }
        }
        assert!(report.engines.iter().any(|engine| engine.executing > 0.0));
        let polls = report.engines.iter().any(|engine| engine.polling > 0.0);
        assert_eq!(polls, mapping == "ixp1200-diffserv");
        // References, by memory.
        for memory in &report.memories {
            let name = format!("memory {}", memory.name);
            let begun = |phase: &str| {
                let of = events.iter().filter(|event| event["ph"] == phase);
                of.filter(|event| names[&event["pid"].as_u64().unwrap()] == name).count() as u64
            };
            let told: u64 = memory.regions.iter().map(|region| region.references).sum();
            assert_eq!((begun("b"), begun("e")), (told, told), "{name}");
        }
        // A timer works for no frame.
        let timers: Vec<&Value> =
            events.iter().filter(|event| event["name"] == "timers write" && event["ph"] == "b").collect();
        assert_eq!(timers.is_empty(), mapping != "ixp1200-diffserv");
        assert!(timers.iter().all(|event| event["args"]["frame"] == 0), "{timers:?}");
        for ring in &report.rings {
            let levels =
                events.iter().filter(|event| event["ph"] == "C" && event["name"] == ring.name.as_str());
            let most = levels.map(|event| event["args"]["frames"].as_u64().unwrap()).max().unwrap_or(0);
            assert_eq!(most, ring.most, "{}", ring.name);
        }
        // Every frame that was taken in has a way, with a beginning and an end.
        let ways = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count() as u64;
        assert_eq!((ways("s"), ways("f")), (200 - report.lost, 200 - report.lost));
    }
}

/// The reader of the format finds the fault of each event here.
#[test]
fn what_is_not_of_the_format_is_found() {
    let named = r#"{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"p"}},
        {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"t"}}"#;
    let begun = r#"{"ph":"B","name":"x","pid":1,"tid":1,"ts":2}"#;
    for (events, why) in [
        (r#"{"name":"x","pid":1,"tid":1,"ts":1}"#, "no phase"),
        (r#"{"ph":"B","name":"x","pid":2,"tid":1,"ts":1}"#, "a process without"),
        (r#"{"ph":"B","name":"x","pid":1,"tid":2,"ts":1}"#, "a thread without"),
        (r#"{"ph":"B","name":"x","pid":1,"tid":1}"#, "no time"),
        (r#"{"ph":"B","pid":1,"tid":1,"ts":1}"#, "no name"),
        (begun, "does not end"),
        (r#"{"ph":"E","pid":1,"tid":1,"ts":1}"#, "an end without"),
        (
            r#"{"ph":"B","name":"x","pid":1,"tid":1,"ts":1},{"ph":"E","name":"y","pid":1,"tid":1,"ts":1}"#,
            "the end of another",
        ),
        (r#"{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":-1}"#, "no duration"),
        (
            r#"{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":2},{"ph":"X","name":"x","pid":1,"tid":1,"ts":2,"dur":1}"#,
            "it overlaps",
        ),
        (
            r#"{"ph":"X","name":"x","pid":1,"tid":1,"ts":0.0015,"dur":0.0015},{"ph":"X","name":"x","pid":1,"tid":1,"ts":0.003,"dur":1}"#,
            "rounded",
        ),
        (r#"{"ph":"b","cat":"c","name":"x","id":1,"pid":1,"tid":0,"ts":1}"#, "does not end"),
        (r#"{"ph":"e","cat":"c","name":"x","id":1,"pid":1,"tid":0,"ts":1}"#, "an end without"),
        (r#"{"ph":"s","cat":"c","name":"x","id":1,"pid":1,"tid":1,"ts":1}"#, "outside of a slice"),
        (r#"{"ph":"C","name":"x","pid":1,"ts":1,"args":{"n":"1"}}"#, "no number"),
        (r#"{"ph":"i","name":"x","pid":1,"tid":0,"ts":1}"#, "no scope"),
        (r#"{"ph":"Q","name":"x","pid":1,"tid":0,"ts":1}"#, "unknown phase"),
    ] {
        let file: Value = serde_json::from_str(&format!("{{\"traceEvents\":[{named},{events}]}}")).unwrap();
        let faults = format::faults(&file);
        assert!(faults.iter().any(|fault| fault.contains(why)), "{events}: {faults:?} without {why}");
    }
    let flow = |phase: &str, ts: u32| {
        format!(r#",{{"ph":"{phase}","cat":"c","name":"x","id":1,"pid":1,"tid":1,"ts":{ts},"bp":"e"}}"#)
    };
    let end = r#",{"ph":"E","pid":1,"tid":1,"ts":9}"#;
    for (flows, faults) in [
        (flow("s", 2) + &flow("t", 3) + &flow("f", 4), 0),
        (flow("t", 3), 1),
        (flow("s", 3) + &flow("f", 2), 1),
        (flow("s", 3) + &flow("f", 4) + &flow("t", 5), 1),
    ] {
        let text = format!("{{\"traceEvents\":[{named},{begun}{flows}{end}]}}");
        let found = format::faults(&serde_json::from_str(&text).unwrap());
        assert_eq!(found.len(), faults, "{flows}: {found:?}");
    }
}

#[test]
fn only_a_window_is_written() {
    let part = Part { from: Nanos(100_000), frames: 10 };
    let (report, written, events) = events("ixp2400-firewall", "lan>wan,frames=5000,flows=20", part);
    assert_eq!(written.frames, 10);
    check_engines(&slices(&events));
    let times: Vec<f64> =
        events.iter().filter(|event| event["ph"] != "M").map(|event| time(event, "ts")).collect();
    let (first, last) =
        (times.iter().copied().fold(f64::MAX, f64::min), times.iter().copied().fold(0.0, f64::max));
    assert!(first >= 100.0 && last < 400.0, "{first} to {last}");
    // And the run does not go on for long.
    assert!(report.seconds < 1e-3, "{}", report.seconds);
    // Frames are numbered as they came in.
    let begun = events.iter().find(|event| event["ph"] == "s").unwrap();
    assert!(begun["id"].as_u64().unwrap() > 100, "{begun}");
}

/// An engine whose receivers get nothing polls from the beginning of the window to its end.
#[test]
fn looks_are_those_of_the_window() {
    let part = Part { from: Nanos(100_000), frames: 10 };
    let (_, _, events) = events("ixp1200-diffserv", "lan>wan,frames=100,flows=2", part);
    let process = |event: &&Value| event["ph"] == "M" && event["args"]["name"] == "me.1";
    let idle = events.iter().find(process).and_then(|event| event["pid"].as_u64()).unwrap();
    let slices = slices(&events);
    check_engines(&slices);
    let polls: Vec<&Slice> = slices.iter().filter(|slice| slice.pid == idle).collect();
    assert_eq!(
        polls.iter().map(|slice| (slice.name.as_str(), slice.begin)).collect::<Vec<_>>(),
        [("poll", 100.0)]
    );
    let last = slices.iter().map(|slice| slice.end).fold(0.0, f64::max);
    // Time that an engine has spent when the window is closed may end a little later.
    assert!((last - polls[0].end).abs() < 1.0 && last < 400.0, "{} {last}", polls[0].end);
}

#[test]
fn frames_that_are_lost_are_there_too() {
    let (report, written, events) = events("ixp2400-firewall", "lan>wan,frames=3000,flows=20,both", ALL);
    assert!(report.lost > 0 && written.lost == report.lost);
    assert_eq!(events.iter().filter(|event| event["ph"] == "i").count() as u64, report.lost);
    check_engines(&slices(&events));
}

#[test]
fn nothing_at_all_is_a_file_too() {
    let (_, written, events) = events("ixp2400-pool", "lan>wan,frames=0", ALL);
    assert_eq!(written.frames, 0);
    assert!(events.iter().all(|event| event["ph"] == "M"));
}

#[test]
fn a_full_disk_is_told() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (_, written) = trace("ixp2400-pool", "lan>wan,frames=10", ALL, Full);
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
}
