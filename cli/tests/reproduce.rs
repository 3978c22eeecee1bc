//! `wirerate reproduce` and `wirerate chip cipher`: what they print, and that docs/fidelity.md has it.
#![allow(clippy::unwrap_used)]

mod run;

use std::fs;
use std::time::{Duration, Instant};

use run::{root, wirerate};
use serde_json::Value;

#[test]
fn claims_are_printed_as_objects_with_numbers() {
    let json = wirerate(&["reproduce", "F1", "F2", "C3", "--json", "--quick"]).exits(0).json();
    let outcomes = json.as_array().unwrap();
    let keys =
        ["id", "statement", "published", "predicted", "unit", "error", "blind", "range", "verdict", "note"];
    for outcome in outcomes {
        assert_eq!(outcome.as_object().unwrap().keys().collect::<Vec<_>>(), keys);
    }
    assert!(outcomes.iter().all(|outcome| outcome["range"].is_null()));
    let of = |id: &str| outcomes.iter().filter(|outcome| outcome["id"] == id).collect::<Vec<_>>();
    assert_eq!((of("F1").len(), of("F2").len(), of("C3").len()), (2, 1, 10));
    // The study has a misprint; 672 ns a packet are what they are.
    assert_eq!(of("F1")[0]["verdict"], "contradictory");
    assert!((of("F1")[0]["predicted"].as_f64().unwrap() - 1e9 / 672.0).abs() < 1.0);
    assert_eq!((&of("F2")[0]["published"], &of("F2")[0]["blind"]), (&Value::from(80.0), &Value::from(false)));
    let aes =
        of("C3").into_iter().find(|outcome| outcome["statement"].as_str().unwrap().ends_with("aes")).unwrap();
    assert_eq!((&aes["error"], &aes["verdict"]), (&Value::from(0.0), &Value::from("within")));
}

/// A prediction stands between the ends of its range; arithmetic rests on no assumption, and an order has none.
#[test]
fn predicted_numbers_have_ranges_over_what_is_assumed() {
    let json = wirerate(&["reproduce", "C7", "C9", "R9", "--json"]).exits(0).json();
    for outcome in json.as_array().unwrap() {
        let Some(predicted) = outcome["predicted"].as_f64() else {
            assert!(outcome["range"].is_null(), "{outcome}");
            continue;
        };
        let [low, high] = [0, 1].map(|end| outcome["range"][end].as_f64().unwrap());
        assert!(low <= predicted && predicted <= high, "{outcome}");
        assert_eq!(low < high, outcome["id"] == "C7", "{outcome}");
    }
    let told = wirerate(&["reproduce", "C7"]).exits(0).out;
    assert!(
        told.contains("Assumptions that move a blind prediction most") && told.contains("ixp2800 "),
        "{told}"
    );
}

/// The study's sums, those of its numbers that contradict one another among them, and the rates of its shaper.
#[test]
fn what_follows_from_the_study_of_the_adapter_is_not_blind() {
    let json = wirerate(&["reproduce", "rena-chip", "--json", "--quick"]).exits(0).json();
    let of = |id: &str| -> Vec<&Value> {
        json.as_array().unwrap().iter().filter(|outcome| outcome["id"] == id).collect()
    };
    let verdicts = |id: &str| of(id).iter().map(|row| row["verdict"].as_str().unwrap()).collect::<Vec<_>>();
    let close = |row: &Value, expected: f64| {
        let predicted = row["predicted"].as_f64().unwrap();
        assert!((predicted - expected).abs() < 1e-3 * expected, "{row}");
    };
    close(of("R5")[0], 202.74);
    close(of("R6")[0], 1_614.5);
    close(of("R14")[0], 22_651.0);
    close(of("R14")[1], 21_310.0);
    close(of("R15")[0], 125_136.0);
    close(of("R15")[1], 133_010.0);
    close(of("R24")[1], 3.456);
    for id in ["R3", "R4", "R6"] {
        assert_eq!(verdicts(id)[0], "contradictory", "{id}");
    }
    assert_eq!(
        (verdicts("R14"), verdicts("R24")),
        (vec!["within", "contradictory"], vec!["within", "contradictory"])
    );
    assert!(of("R16").iter().all(|row| row["blind"] == false));
    close(of("R17")[0], 3.965);
    assert_eq!(verdicts("R18"), ["within", "within", "qualitative-wrong", "miss", "miss"]);
    let told = wirerate(&["reproduce", "R27"]).exits(0).out;
    assert!(told.contains("R27: Packets and algorithms that the study measured IPsec with"), "{told}");
}

#[test]
fn a_claim_with_nothing_to_test_says_why() {
    let run = wirerate(&["reproduce", "F10"]).exits(0);
    assert!(run.out.contains("F10: Connections are set up by code on the control processor"), "{}", run.out);
    let run = wirerate(&["reproduce", "C14"]).exits(0);
    assert!(run.out.contains("C14: How the study measured"), "{}", run.out);
    assert_eq!(wirerate(&["reproduce", "C14", "--json"]).exits(0).json(), Value::Array(Vec::new()));
}

/// All claims, with their ranges, would take minutes.
#[test]
fn a_page_that_cannot_be_written_is_told_before_the_work() {
    let began = Instant::now();
    let run = wirerate(&["reproduce", "--html", "/nowhere/at/all/page.html"]).exits(3);
    assert!(run.out.is_empty() && run.err.contains("/nowhere/at/all/page.html"), "{}", run.err);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn unknown_claims_are_refused_with_the_nearest() {
    for (name, nearest) in
        [("F55", "did you mean F5?"), ("ixp2400-firewal", "did you mean ixp2400-firewall?")]
    {
        let run = wirerate(&["reproduce", "F1", name]).exits(2);
        assert!(run.out.is_empty());
        assert!(
            run.err.contains(name) && run.err.contains(nearest) && run.err.contains("C13"),
            "{}",
            run.err
        );
    }
}

/// `./check fidelity` compares the whole page, which takes a minute.
#[test]
fn the_page_on_fidelity_has_every_claim_and_those_that_take_no_time_as_printed() {
    let page = fs::read_to_string(root().join("docs/fidelity.md")).unwrap();
    let fast = "R4 R6 R9 R14 R15 R16 R17 R18 R19 R20 R24 R26 P1 P3 P5 P6 P7 F1 F2 F3 F11 F12 C1 C2 C3";
    let fast: Vec<&str> = fast.split(' ').collect();
    let printed = wirerate(&[&["reproduce", "--markdown", "--quick"], &fast[..]].concat()).exits(0).out;
    let is_row = |line: &&str| ["| R", "| P", "| F", "| C"].iter().any(|begin| line.starts_with(begin));
    let rows: Vec<&str> = printed.lines().filter(is_row).collect();
    assert_eq!(rows.len(), 27 + 10 + 30);
    for row in rows {
        assert!(
            page.contains(row),
            "not in docs/fidelity.md, which `wirerate reproduce --markdown` renews:\n{row}"
        );
    }
    let untested = [7, 8, 10, 27];
    let adapter = (1..=27).filter(|claim| !untested.contains(claim)).map(|claim| format!("| R{claim} |"));
    let firewall = (1..=14).filter(|claim| *claim != 10).map(|claim| format!("| F{claim} |"));
    for id in adapter.chain(firewall).chain((1..=13).map(|claim| format!("| C{claim} |"))) {
        assert!(page.contains(&id), "docs/fidelity.md has no {id}");
    }
}

#[test]
fn ciphers_are_measured_by_step() {
    let words = ["chip", "cipher", "md5", "--message", "256", "--json"];
    let json = wirerate(&words).exits(0).json();
    let reports = json.as_array().unwrap();
    let steps: Vec<&Value> = reports.iter().map(|report| &report["optimisation"]).collect();
    assert_eq!(steps, ["raw", "generic", "memory", "overlap"]);
    let mbps: Vec<f64> = reports.iter().map(|report| report["mbps"].as_f64().unwrap()).collect();
    assert!(mbps.iter().all(|mbps| *mbps > 0.0) && mbps[3] > mbps[0], "{mbps:?}");
    // More engines, in proportion: the engine is what limits it.
    let more = wirerate(&["chip", "cipher", "md5", "--optimisation", "overlap", "--engines", "2", "--json"])
        .exits(0)
        .json();
    let one = wirerate(&["chip", "cipher", "md5", "--optimisation", "overlap", "--json"]).exits(0).json();
    let times = more[0]["mbps"].as_f64().unwrap() / one[0]["mbps"].as_f64().unwrap();
    assert!((1.8..=2.2).contains(&times), "{times}");
    let table = wirerate(&["chip", "cipher", "rc4", "--optimisation", "raw"]).exits(0).out;
    assert!(table.contains("rc4") && table.contains("executing") && table.contains("dram"), "{table}");
}

#[test]
fn what_a_chip_does_not_have_is_refused() {
    let run = wirerate(&["chip", "cipher", "aes", "--chip", "rena"]).exits(1);
    assert!(run.err.contains("no memory `dram`") && run.err.contains("as the ixp2800"), "{}", run.err);
    assert!(wirerate(&["chip", "cipher", "aess"]).exits(2).err.contains("did you mean aes?"));
    assert!(wirerate(&["chip", "cipher", "aes", "--engines", "17"]).exits(2).err.contains("16 engines"));
    wirerate(&["chip", "cipher", "aes", "--threads", "0"]).exits(2);
    wirerate(&["chip", "cipher", "aes", "--message", "0"]).exits(2);
    wirerate(&["chip", "cipher", "aes", "--chip", "no-such"]).exits(2);
}
