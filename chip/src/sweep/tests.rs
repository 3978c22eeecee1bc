//! Axes as text, grids, rows in their order.

use super::{Axis, BadAxis, Figures, Grid, Key, MOST, Row, with_rules};

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
    const { assert!(1000 * 1000 > MOST) };
}

#[test]
fn all_combinations_come_in_order_whatever_becomes_of_them() {
    let grid = Grid::new(vec![axis("a=1..13"), axis("b=x,y,z")]).unwrap();
    let mut rows: Vec<Row> = Vec::new();
    let run = |choices: &[super::Choice<'_>]| -> Result<Figures, String> {
        Err(choices.iter().map(|choice| choice.value).collect::<Vec<_>>().join("-"))
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
