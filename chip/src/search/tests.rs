//! Searches over chips that are a formula, and the specification's own examples.

use proptest::prelude::{Strategy, prop_assert, proptest};

use super::{Bound, Found, Goal, Request, Trial, binary, classify, mlrsearch};

fn trial(load: f64, frames: u64, lost: u64) -> Trial {
    Trial { load, frames, lost, mpps: load, gbps: load }
}

/// A chip that forwards `capacity` of the maximal load, behind a buffer of so many frames.
fn buffered(capacity: f64, buffer: u64, request: Request) -> Trial {
    let Request { load, frames, .. } = request;
    let excess = (frames as f64 * (1.0 - capacity / load)).max(0.0) as u64;
    trial(load, frames, excess.saturating_sub(buffer))
}

const FRAMES: u64 = 100_000;

fn goal(loss_ratio: f64) -> Goal {
    Goal { loss_ratio, exceed_ratio: 0.0, width: 0.005, initial: FRAMES / 64, last: FRAMES, sum: FRAMES }
}

/// The highest load that satisfies a loss ratio at full length, by solving for it.
fn limit(capacity: f64, buffer: u64, loss_ratio: f64) -> f64 {
    let tolerated = loss_ratio + buffer as f64 / FRAMES as f64;
    if tolerated >= 1.0 { 1.0 } else { (capacity / (1.0 - tolerated)).min(1.0) }
}

fn search(capacity: f64, buffer: u64, losses: &[f64]) -> Found {
    let measure = |request| Ok::<_, ()>(buffered(capacity, buffer, request));
    let first = buffered(capacity, buffer, Request { load: 1.0, frames: FRAMES, repeat: 0 });
    let goals: Vec<Goal> = losses.iter().map(|loss| goal(*loss)).collect();
    mlrsearch(first, &goals, measure).unwrap()
}

#[test]
fn without_a_frame_nothing_is_found() {
    let none = trial(1.0, 0, 0);
    let measure = |request: Request| -> Result<Trial, ()> { panic!("{request:?} would show nothing") };
    for found in [mlrsearch(none, &[goal(0.0), goal(0.01)], measure), binary(none, 0.005, measure)] {
        let found = found.unwrap();
        assert_eq!(found.trials, [none]);
        assert!(found.goals.iter().all(|goal| goal.lower.is_none() && goal.upper.is_none()), "{found:?}");
    }
}

proptest! {
    #[test]
    fn bounds_enclose_the_limit_as_closely_as_asked_for(
        capacity in 0.001..1.2_f64,
        buffer in 0_u64..2000,
        losses in proptest::collection::vec((0_u32..20).prop_map(|permille| f64::from(permille) / 1e3), 1..4),
    ) {
        let found = search(capacity, buffer, &losses);
        // A frame that is lost or not is what a limit is blurred by.
        let blur = 3.0 / FRAMES as f64;
        for result in &found.goals {
            let limit = limit(capacity, buffer, result.loss_ratio);
            let lower = result.lower.unwrap();
            prop_assert!(lower.load <= limit * (1.0 + blur), "{lower:?} above {limit}");
            prop_assert!(lower.frames == FRAMES, "a short trial is no lower bound");
            match result.upper {
                Some(upper) => {
                    prop_assert!(upper.load >= limit * (1.0 - blur), "{upper:?} below {limit}");
                    prop_assert!(upper.load - lower.load <= 0.005 * upper.load);
                }
                None => prop_assert!(lower.load == 1.0),
            }
            let forwarded = lower.mpps * (1.0 - lower.loss_ratio());
            prop_assert!((result.throughput_mpps.unwrap() - forwarded).abs() < 1e-12);
        }
    }

    #[test]
    fn halving_finds_the_same(capacity in 0.001..1.2_f64, buffer in 0_u64..2000, precision in 1e-4..0.1_f64) {
        let first = buffered(capacity, buffer, Request { load: 1.0, frames: FRAMES, repeat: 0 });
        let found = binary(first, precision, |request| Ok::<_, ()>(buffered(capacity, buffer, request))).unwrap();
        let limit = limit(capacity, buffer, 0.0);
        let result = found.goals[0];
        prop_assert!(result.lower.unwrap().load <= limit * 1.0001);
        prop_assert!(result.lower.unwrap().lost == 0);
        if let Some(upper) = result.upper {
            prop_assert!(upper.lost > 0 && upper.load >= limit * 0.9999);
            prop_assert!(upper.load - result.lower.unwrap().load <= precision * upper.load);
        }
        prop_assert!(found.trials.iter().all(|trial| trial.frames == FRAMES));
    }
}

#[test]
fn a_chip_that_carries_nothing_has_no_lower_bound() {
    let nothing = |request: Request| Ok::<_, ()>(trial(request.load, request.frames, request.frames));
    let first = trial(1.0, FRAMES, FRAMES);
    for found in [mlrsearch(first, &[goal(0.0), goal(0.005)], nothing), binary(first, 0.01, nothing)] {
        let found = found.unwrap();
        assert!(found.goals.iter().all(|goal| goal.lower.is_none() && goal.upper.is_some()));
        assert!(found.trials.len() < 80, "{}", found.trials.len());
    }
}

#[test]
fn errors_end_the_search() {
    assert_eq!(mlrsearch(trial(1.0, FRAMES, 1), &[goal(0.0)], |_| Err("no")), Err("no"));
    assert_eq!(binary(trial(1.0, FRAMES, 1), 0.1, |_| Err("no")), Err("no"));
}

#[test]
fn short_trials_spare_long_ones() {
    let frames = |found: &Found| found.trials.iter().map(|trial| trial.frames).sum::<u64>();
    let both = search(0.4321, 10, &[0.0, 0.005]);
    let first = trial(1.0, FRAMES, 1);
    let halving = binary(first, 0.005, |request| Ok::<_, ()>(buffered(0.4321, 10, request))).unwrap();
    assert!(
        frames(&both) < frames(&halving) * 2,
        "{} for two goals, {} for one",
        frames(&both),
        frames(&halving)
    );
}

#[test]
fn trials_that_differ_are_repeated_as_often_as_the_goal_says() {
    // Every second trial is bad above half of the load.
    let measure = |request: Request| {
        let lost = if request.load > 0.5 && request.repeat % 2 == 1 { request.frames } else { 0 };
        Ok::<_, ()>(trial(request.load, request.frames, lost))
    };
    let tolerant = Goal { exceed_ratio: 0.5, sum: FRAMES * 4, initial: FRAMES, ..goal(0.0) };
    let strict = Goal { exceed_ratio: 0.0, ..tolerant };
    let of = |goal| mlrsearch(trial(1.0, FRAMES, 0), &[goal], measure).unwrap().goals[0];
    assert_eq!(of(tolerant).lower.unwrap().load, 1.0);
    let strict = of(strict);
    assert!(strict.lower.unwrap().load <= 0.5 && strict.upper.unwrap().load <= 0.5 * 1.01, "{strict:?}");
}

/// RFC 9971, appendix C: four goals, and the classification of one load for each as trials come in.
#[test]
fn loads_are_classified_as_in_the_specification() {
    let goal = |last, sum, loss_ratio, exceed_ratio| Goal {
        loss_ratio,
        exceed_ratio,
        width: 0.01,
        initial: 1,
        last,
        sum,
    };
    // In thousandths of a second.
    let goals = [
        goal(60_000, 60_000, 0.0, 0.0),
        goal(60_000, 120_000, 0.0, 0.5),
        goal(1_000, 120_000, 0.005, 0.5),
        goal(60_000, 60_000, 0.005, 0.2),
    ];
    let (short_good, short_bad) = (trial(1.0, 1_000, 0), trial(1.0, 1_000, 10));
    let (long_bad, long_good) = (trial(1.0, 60_000, 60), trial(1.0, 60_000, 0));
    use Bound::{Lower, Undecided, Upper};
    let mut trials = Vec::new();
    let points = [
        (59, short_good, [Undecided, Undecided, Undecided, Undecided]),
        (1, short_bad, [Upper, Undecided, Undecided, Undecided]),
        (59, short_bad, [Upper, Undecided, Undecided, Upper]),
        (1, short_good, [Upper, Undecided, Lower, Upper]),
        // To the fourth goal the text says "Lower Bound" here, beside exceed ratios of 42.857 and 27.273 %, which are
        // above the 20 % that it allows: the numbers are those of the code, and count.
        (1, long_bad, [Upper, Undecided, Lower, Upper]),
        (1, long_good, [Upper, Lower, Lower, Upper]),
    ];
    for (place, (times, trial, expected)) in points.into_iter().enumerate() {
        trials.extend(std::iter::repeat_n(trial, times));
        let found = goals.map(|goal| classify(&goal, trials.iter()));
        assert_eq!(found, expected, "point {}", place + 1);
    }
    // And what is forwarded, by appendix C.4: the worst of the better half for the second goal.
    assert_eq!(goals[1].quantile_loss(trials.iter()), 0.0);
    assert_eq!(goals[3].quantile_loss(trials.iter()), 0.001);
}
