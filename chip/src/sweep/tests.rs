//! Axes as text, grids, rows in their order.

use wire::Bytes;
use wire::random::Random;

use super::{Axis, BadAxis, Cell, Figures, Grid, Key, MOST, Mean, Row, Throughput, with_classes, with_rules};
use crate::cost::Cost;

fn axis(text: &str) -> Axis {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn lists_and_ranges_are_read() {
    let cases = [
        ("memory.sram.latency=50,90", Key::Parameter("memory.sram.latency".into()), vec!["50", "90"]),
        ("pool.firewall.threads=1..3", Key::Parameter("pool.firewall.threads".into()), vec!["1", "2", "3"]),
        ("rules=1..20:8,64", Key::Rules, vec!["1", "9", "17", "64"]),
        ("size=64,imix", Key::Traffic("size"), vec!["64", "imix"]),
        ("region.rule-table=sram, local", Key::Parameter("region.rule-table".into()), vec!["sram", "local"]),
        ("pool.a.stages=parse..dnat", Key::Parameter("pool.a.stages".into()), vec!["parse..dnat"]),
        (
            "region.rule-table=sram, { memory = \"sram\", cache = \"64 B\" },[\"sram\", \"dram\"],'a,b'",
            Key::Parameter("region.rule-table".into()),
            vec!["sram", "{ memory = \"sram\", cache = \"64 B\" }", "[\"sram\", \"dram\"]", "'a,b'"],
        ),
        ("classes=0,511", Key::Classes, vec!["0", "511"]),
        ("pool.a.at=5,5-7", Key::Parameter("pool.a.at".into()), vec!["5", "5-7"]),
        (
            "a=18446744073709551614..18446744073709551615:9",
            Key::Parameter("a".into()),
            vec!["18446744073709551614"],
        ),
    ];
    for (text, key, values) in cases {
        let found = axis(text);
        assert_eq!(
            (found.key, found.values),
            (key, values.iter().map(|&value| value.to_owned()).collect()),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_axis_is_told() {
    let cases = [
        ("latency", "PATH=VALUES"),
        ("=1", "PATH=VALUES"),
        ("a=", "PATH=VALUES"),
        ("a=1,,2", "is empty"),
        ("a=8..1", "no range"),
        ("a=1..8:0", "no range"),
        ("a=1..x", "no range"),
        ("rules=many", "no number of rules"),
        ("rules=99999", "no number of rules"),
        ("classes=x", "no number of rules or classes"),
        ("a=0..99999999999", "more than"),
    ];
    for (text, part) in cases {
        let told = text.parse::<Axis>().unwrap_err().to_string();
        assert!(told.contains(part), "{text}: {told}");
    }
    let twice = Grid::new(vec![axis("a=1"), axis("a=2")]);
    assert_eq!(twice, Err(BadAxis::Twice { name: "a".into() }));
    let many = Grid::new(vec![axis("a=1..1000"), axis("b=1..1000")]);
    assert_eq!(many, Err(BadAxis::TooMany));
    // A search may have them, and their numbers lead to them.
    let axes: Vec<Axis> = (0..9).map(|place| axis(&format!("a{place}=0..9"))).collect();
    let vast = Grid::vast(axes).unwrap();
    assert_eq!(vast.combinations(), 1_000_000_000);
    let digits: String = vast.combination(123_456_789).iter().map(|choice| choice.value).collect();
    assert_eq!(digits, "123456789");
    let long = Axis::new("a", vec!["1".to_owned(); MOST + 1]).unwrap();
    assert_eq!(
        Grid::vast(vec![long]),
        Err(BadAxis::TooManyValues { range: "a".into(), values: MOST as u64 + 1 })
    );
    let endless: Vec<Axis> = (0..16).map(|place| axis(&format!("a{place}=0..99999"))).collect();
    assert_eq!(Grid::vast(endless), Err(BadAxis::TooMany));
    const { assert!(1000 * 1000 > MOST) };
}

#[test]
fn all_combinations_come_in_order_whatever_becomes_of_them() {
    let grid = Grid::new(vec![axis("a=1..13"), axis("b=x,y,z")]).unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let run = |number: usize| {
        let choices = grid.combination(number);
        let values: Vec<String> = choices.iter().map(|choice| choice.value.to_owned()).collect();
        Row { outcome: Err(values.join("-")), values }
    };
    grid.run(run, |row| {
        rows.push(row);
        Ok::<_, ()>(())
    })
    .unwrap();
    let mut expected = Vec::new();
    for a in 1..=13 {
        for b in ["x", "y", "z"] {
            expected.push(vec![a.to_string(), b.to_owned()]);
        }
    }
    assert_eq!(rows.len(), grid.combinations());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!((&row.values, row.outcome.as_ref().unwrap_err()), (expected, &expected.join("-")));
    }
    // Whoever takes them can end it.
    let mut taken = 0;
    let ended = grid.run(run, |_| {
        taken += 1;
        Err("enough")
    });
    assert_eq!((ended, taken), (Err("enough"), 1));
}

#[test]
fn rules_that_match_nothing_come_before_the_others() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/24\"]\n\
                [[rule]]\nname = \"mine\"\naction = \"accept\"\n";
    let policy = policy::check(text, "policy").policy.unwrap();
    let many = with_rules(&policy, "300").unwrap();
    assert_eq!(many.rules.len(), 301);
    assert_eq!(many.rules[300], policy.rules[0]);
    assert_eq!(
        policy::validate(&many, &policy::Lines::default()).iter().filter(|found| found.is_error()).count(),
        0
    );
    assert_eq!(with_rules(&policy, "0").unwrap(), policy);
}

#[test]
fn classes_that_match_nothing_come_before_the_others() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/24\"]\n\
                [[class]]\nname = \"mine\"\nmark = \"ef\"\n";
    let policy = policy::check(text, "policy").policy.unwrap();
    let many = with_classes(&policy, "511").unwrap();
    assert_eq!((many.classes.len(), &many.classes[511]), (512, &policy.classes[0]));
    assert_eq!(
        policy::validate(&many, &policy::Lines::default()).iter().filter(|found| found.is_error()).count(),
        0
    );
    assert_eq!(with_classes(&policy, "0").unwrap(), policy);
}

/// Means and half-widths by SciPy 1.17: `values.mean()` and `stats.t.ppf(0.975, n - 1) * stats.sem(values)`.
#[test]
fn intervals_are_those_of_scipy() {
    let large = [
        1e9 + 1.0,
        1e9 + 2.0,
        1e9 + 4.0,
        1e9 + 7.0,
        1e9 + 9.0,
        1e9 + 11.0,
        1e9 + 3.0,
        1e9 + 8.0,
        1e9 + 5.0,
        1e9 + 6.0,
    ];
    let cases: [(&[f64], f64, f64); 4] = [
        (&[3.0, 5.0, 4.0, 7.0], 4.75, 2.717530883796015),
        (&[0.1, 0.3], 0.2, 1.2706204736174693),
        (&large, 1_000_000_005.6, 2.29212081487383),
        (&[2.5; 7], 2.5, 0.0),
    ];
    for (values, value, half_width) in cases {
        let mean = Mean::of(values);
        let found = mean.half_width.unwrap();
        assert!((mean.value / value - 1.0).abs() < 1e-15, "{mean:?} {value}");
        assert!((found - half_width).abs() <= 1e-9 * half_width, "{mean:?} {half_width}");
    }
    assert_eq!(Mean::of(&[7.25]), Mean { value: 7.25, half_width: None });
    // Whatever the value, runs that are the same have no interval.
    assert_eq!(Mean::of(&[0.1; 10]), Mean { value: 0.1, half_width: Some(0.0) });
}

/// Of 95 % intervals of normal values, 95 % have the true mean in them: of 4,000, 3,742 to 3,858 with four standard deviations.
#[test]
fn intervals_cover_the_true_mean_as_often_as_they_promise() {
    let mut random = Random::new(7);
    let mut normal = || (0..12).map(|_| random.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0;
    for runs in [2, 5, 10] {
        let covered = (0..4_000).filter(|_| {
            let values: Vec<f64> = (0..runs).map(|_| 100.0 + 3.0 * normal()).collect();
            let mean = Mean::of(&values);
            (mean.value - 100.0).abs() <= mean.half_width.unwrap()
        });
        let covered = covered.count();
        assert!((3_742..=3_858).contains(&covered), "{covered} of 4,000 with {runs} runs");
    }
}

#[test]
fn the_first_run_that_fails_is_told() {
    let cost = Cost { engines: 1, threads: 1, memory: Bytes(0) };
    let failed = Figures::over(cost, 50, |run| if run == 0 { Err(run) } else { Err(run + 1) });
    assert_eq!(failed, Err(0));
    assert_eq!(Figures::columns(1, None).len() + 12, Figures::columns(2, None).len());
    assert_eq!(Figures::columns(1, Some(0.0)).len() + 15, Figures::columns(2, Some(0.0)).len());
}

#[test]
fn figures_are_taken_from_their_cells() {
    let mean = |value: f64, runs: u32| Mean { value, half_width: (runs > 1).then_some(value / 8.0) };
    let cost = Cost { engines: 3, threads: 24, memory: Bytes(1 << 40) };
    for (runs, loss, has_power) in
        [(1, None, true), (5, Some(0.0), true), (1, Some(0.01), false), (5, None, false)]
    {
        let figures = Figures {
            offered_mpps: mean(1.0, runs),
            delivered_mpps: mean(2.0, runs),
            ended_mpps: mean(3.0, runs),
            dealt_mpps: mean(4.0, runs),
            gbps: mean(5.0, runs),
            lost: mean(6.0, runs),
            reordered: mean(7.0, runs),
            p50_ns: mean(8.0, runs),
            p99_ns: mean(9.0, runs),
            engine: "me.0".to_owned(),
            engine_busy: mean(10.0, runs),
            memory: String::new(),
            memory_busy: mean(11.0, runs),
            cost,
            watts: has_power.then(|| mean(12.0, runs)),
            throughput: loss.map(|_| Throughput {
                mpps: mean(13.0, runs),
                gbps: mean(14.0, runs),
                share: mean(15.0, runs),
            }),
        };
        let mut cells = figures.cells();
        let written = serde_json::to_string(&cells).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Cell>>(&written).unwrap(), cells);
        assert_eq!(Figures::from_cells(&cells, runs, loss), Some(figures));
        assert_eq!(Figures::from_cells(&cells, 6 - runs, loss), None);
        let other = if loss.is_some() { None } else { Some(0.0) };
        assert_eq!(Figures::from_cells(&cells, runs, other), None);
        cells.swap(0, 9);
        assert_eq!(Figures::from_cells(&cells, runs, loss), None);
    }
}
