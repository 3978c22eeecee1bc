use std::collections::BTreeSet;

use serde_json::json;

use super::known::Known;
use super::{Model, Outcome, Score, Study, Summary, TOLERANCE, Value, Verdict, claims, reproduce};

fn number(published: f64, predicted: f64) -> Outcome {
    Outcome::number("X1", "a number", published, predicted, "units")
}

fn quality(holds: bool) -> Outcome {
    Outcome::quality("X2", "an order", "a > b", "b > a".to_owned(), holds)
}

#[test]
fn numbers_are_within_up_to_the_tolerance_on_either_side() {
    let verdicts = [100.0, 115.0, 85.0, 115.1, 84.9, 0.0, f64::NAN, f64::INFINITY]
        .map(|predicted| number(100.0, predicted).verdict);
    let (within, miss) = (Verdict::Within, Verdict::Miss);
    assert_eq!(verdicts, [within, within, within, miss, miss, miss, miss, miss]);
    assert_eq!(number(200.0, 150.0).error, Some(-0.25));
    assert!(number(100.0, f64::NAN).error.is_none());
    assert!((TOLERANCE - 0.15).abs() < 1e-12);
}

#[test]
fn of_nothing_there_must_be_nothing() {
    assert_eq!((number(0.0, 0.0).error, number(0.0, 0.0).verdict), (Some(0.0), Verdict::Within));
    assert_eq!((number(0.0, 1.0).error, number(0.0, 1.0).verdict), (None, Verdict::Miss));
}

#[test]
fn what_is_not_blind_or_contradictory_is_apart() {
    let outcomes = [
        number(1.0, 1.0),
        number(1.0, 2.0),
        number(1.0, 1.0).not_blind(),
        number(1.0, 3.0).not_blind(),
        number(1.0, 1.0).contradictory(),
        number(1.0, 1.0).not_blind().contradictory(),
        quality(true),
        quality(true),
        quality(false),
        quality(true).not_blind(),
        Outcome { id: "B1", ..number(1.0, 1.2) }.within(0.2),
        Outcome { id: "B2", ..number(1.0, 1.21) }.within(0.2),
        Outcome { id: "B3", ..number(1.0, 1.0) }.not_blind(),
    ];
    let expected = Summary {
        base: Score { good: 2, of: 3 },
        numbers: Score { good: 1, of: 2 },
        qualities: Score { good: 2, of: 3 },
        not_blind: Score { good: 2, of: 3 },
        contradictory: 2,
    };
    assert_eq!(Summary::of(&outcomes), expected);
    assert_eq!(Summary::of(&[]), Summary::default());
}

#[test]
fn outcomes_are_written_with_numbers_where_they_are_numbers() {
    let expected = json!({
        "id": "X1", "statement": "a number", "published": 2.0, "predicted": 3.0, "unit": "units", "error": 0.5,
        "blind": true, "range": null, "verdict": "miss", "note": "why",
    });
    assert_eq!(serde_json::to_value(number(2.0, 3.0).note("why")).unwrap(), expected);
    let words = serde_json::to_value(quality(false)).unwrap();
    assert_eq!((&words["published"], &words["error"]), (&json!("a > b"), &json!(null)));
    assert_eq!(words["verdict"], "qualitative-wrong");
    for verdict in [
        Verdict::Within,
        Verdict::Miss,
        Verdict::QualitativeRight,
        Verdict::QualitativeWrong,
        Verdict::Contradictory,
    ] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
    }
    let read = [1_488_095.2, 403.2, 40.25, 4.384, 14.0].map(|number| Value::Number(number).to_string());
    assert_eq!(read, ["1488095", "403", "40.2", "4.38", "14"]);
}

#[test]
fn claims_have_identifiers_of_their_own_and_outcomes_bear_them() {
    let all = claims();
    let ids: BTreeSet<&str> = all.iter().map(|claim| claim.id).collect();
    assert_eq!(ids.len(), all.len());
    for study in Study::ALL {
        assert!(all.iter().any(|claim| claim.study == study), "{}", study.name());
    }
    // Those that take no time.
    let fast: Vec<_> = all
        .into_iter()
        .filter(|claim| ["B7", "F1", "F3", "F11", "F12", "C1", "C2", "C3"].contains(&claim.id))
        .collect();
    let outcomes = reproduce(&Model::default(), &fast, &|_| ()).unwrap();
    let found: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.id).collect();
    assert_eq!(found, fast.iter().map(|claim| claim.id).collect());
    // Inputs of the model can not be predicted blind.
    assert!(outcomes.iter().all(|outcome| !outcome.blind));
}

#[test]
fn the_row_of_block_and_stream_ciphers_has_no_hash_functions() {
    let claims: Vec<_> = claims().into_iter().filter(|claim| claim.id == "C4").collect();
    let outcomes = reproduce(&Model::default(), &claims, &|_| ()).unwrap();
    let row = outcomes.iter().find(|outcome| outcome.statement.contains("block and stream")).unwrap();
    let predicted = row.predicted.to_string();
    assert!(predicted.contains("seal") && predicted.contains("des"), "{predicted}");
    assert!(!predicted.contains("md5") && !predicted.contains("sha1"), "{predicted}");
}

#[test]
fn what_is_known_is_not_made_again_and_what_failed_is() {
    let known: Known<&str, u32> = Known::default();
    assert_eq!(known.get("a", || Err("no")), Err("no"));
    assert_eq!(known.get("a", || Ok::<_, ()>(1)), Ok(1));
    assert_eq!(known.get("a", || Err("never asked")), Ok(1));
    assert_eq!(known.get("b", || Ok::<_, ()>(2)), Ok(2));
}
