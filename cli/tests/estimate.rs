//! `wirerate estimate`: what it prints, and what it refuses.
#![allow(clippy::unwrap_used)]

mod run;

use run::{Room, wirerate};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Numbers of the study: 22,650 DMIPS for 64-byte frames without a filter, 125,000 for 2.8 million packets and 256 rules; 202,000
/// packets a second of the CN3120.
#[test]
fn the_studys_numbers_come_out() {
    let json = wirerate(&["estimate", "--json"]).exits(0).json();
    assert_eq!((&json["source"], &json["unit"]), (&"published".into(), &"us x DMIPS".into()));
    assert!((number(&json["needed"][0]["value"]) - 22_650.0).abs() < 5.0, "{json:#}");
    assert_eq!(
        (&json["needed"][0]["low"], &json["c0"]["low"], &json["r_squared"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let octeon = json["processors"].as_array().unwrap().iter().find(|of| of["dmips"] == 1_543.0).unwrap();
    assert!((number(&octeon["carries"][0]["packets_per_second"]) - 202_740.0).abs() < 10.0);
    let json = wirerate(&["estimate", "--packets", "2.8e6", "--rules", "256", "--json"]).exits(0).json();
    assert!((number(&json["needed"][0]["value"]) - 125_136.0).abs() < 1.0, "{json:#}");
    let out = wirerate(&["estimate", "--dmips", "1000"]).exits(0).out;
    for part in ["7610.9", "22,651", "202,736", "x 14.68", "yours"] {
        assert!(out.contains(part), "no {part} in\n{out}");
    }
}

#[test]
fn points_have_intervals_and_residuals() {
    let room = Room::new("estimate-points");
    // 10 ns and 1 ns a rule, with residuals of +1, -2 and +1: the standard deviation is the root of 6.
    let points = "[[point]]\nrules = 0\nmicroseconds = 0.011\n[[point]]\nrules = 10\nmicroseconds = 0.018\n\
                  [[point]]\nrules = 20\nmicroseconds = 0.031\n";
    let file = room.write("points.toml", points);
    let run = wirerate(&["estimate", &file, "--packets", "1e6", "--rules", "10", "--rules", "30", "--json"])
        .exits(0);
    let json = run.json();
    assert_eq!((&json["unit"], &json["needed_unit"]), (&"ns".into(), &"processors".into()));
    let close = |value: &Value, expected: f64| {
        assert!((number(value) - expected).abs() < 1e-3 * expected.abs(), "{value}, not {expected}");
    };
    close(&json["c0"]["value"], 10.0);
    close(&json["c1"]["value"], 1.0);
    close(&json["deviation"], 6.0_f64.sqrt());
    close(&json["points"][1]["residual"], -2.0);
    // t of 0.975 with one degree of freedom is 12.706; at the mean of the places the error is s sqrt(1 + 1/3).
    let half = 12.706 * 6.0_f64.sqrt() * (4.0_f64 / 3.0).sqrt() / 1e3;
    close(&json["needed"][0]["value"], 0.020);
    close(&json["needed"][0]["high"], 0.020 + half);
    assert_eq!(json["needed"][0]["low"], 0.0, "no packet takes less than no time");
    assert!(run.err.contains("30 rules are extrapolated"), "{}", run.err);
    assert!(json["processors"].as_array().unwrap().is_empty());
    let out = wirerate(&["estimate", &file]).exits(0).out;
    assert!(out.contains("95 %:") && out.contains("residual") && out.contains("R^2 0.97"), "{out}");
    let run = wirerate(&["estimate", &file, "--dmips", "9"]).exits(2);
    assert!(run.err.contains("--dmips"), "{}", run.err);
}

#[test]
fn points_that_fit_no_equation_are_refused_with_what_to_do() {
    let room = Room::new("estimate-refused");
    let point = |rules: u32, micros: f64| format!("[[point]]\nrules = {rules}\nmicroseconds = {micros}\n");
    for (name, text, part, hint) in [
        ("two", point(0, 1.0) + &point(64, 2.0), "2 points are too few", "three points"),
        (
            "one",
            point(64, 1.0) + &point(64, 2.0) + &point(64, 3.0),
            "the same number of rules, 64",
            "two numbers of rules",
        ),
        ("falling", point(0, 3.0) + &point(64, 2.0) + &point(128, 1.0), "falls by 0.0156 us", "residuals"),
        (
            "steep",
            point(10, 1.0) + &point(20, 11.0) + &point(30, 21.0),
            "no time with 0 rules",
            "was measured",
        ),
        ("none", String::new(), "0 points are too few", "three points"),
    ] {
        let file = room.write(name, text);
        let run = wirerate(&["estimate", &file]).exits(1);
        assert!(run.out.is_empty() && run.err.contains(&file), "{}", run.err);
        assert!(run.err.contains(part) && run.err.contains(hint), "{}", run.err);
    }
    let file = room.write("zero.toml", "[[point]]\nrules = 0\nmicroseconds = 1\ndmips = 0\n");
    let run = wirerate(&["estimate", &file]).exits(1);
    assert!(run.err.contains("zero.toml:4:") && run.err.contains("out of range"), "{}", run.err);
    assert!(wirerate(&["estimate", "no/such.toml"]).exits(3).err.contains("no/such.toml"));
}

#[test]
fn command_lines_without_sense_are_refused() {
    for words in [
        &["--rate", "3"][..],
        &["--rate", "0 bit/s"],
        &["--bytes", "63"],
        &["--packets", "0"],
        &["--packets", "nan"],
        &["--packets", "inf"],
        &["--packets", "-1"],
        &["--packets", "1", "--bytes", "64"],
        &["--dmips", "0"],
        &["--watts", "0"],
        &["--watts", "1", "--junction", "20"],
        &["--junction", "100"],
        &["--measure", "points.toml"],
    ] {
        let run = wirerate(&[&["estimate"], words].concat()).exits(2);
        assert!(run.out.is_empty() && !run.err.is_empty(), "{words:?}");
    }
}

#[test]
fn packages_are_held_to_the_limit() {
    let heat = |watts| wirerate(&["estimate", "--watts", watts, "--json"]).exits(0).json()["heat"].clone();
    let verdicts = |watts| -> Vec<String> {
        heat(watts)["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|of| of["verdict"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!((number(&heat("7")["limit"]) - 10.0).abs() < 1e-9);
    assert!(verdicts("2").iter().all(|verdict| verdict == "meets it"));
    assert!(verdicts("9.5").iter().all(|verdict| verdict == "needs a heat sink"));
    assert!(verdicts("7").contains(&"meets it with a large die".to_owned()));
}
