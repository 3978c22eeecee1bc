//! Rule insertions and removals per second, while look-ups go on.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lookup::classify::update::{Edit, Versions};
use lookup::classify::{Classifier, NO_MATCH, Pattern, Position};
use wire::random::Random;

use super::{BATCH, Disagreement, Plan};

/// Duration of a measurement, look-ups included.
const TIME: Duration = Duration::from_millis(200);

/// Comparisons with a pattern that the scan is given afterwards.
const SCANNED: usize = 2_000_000;

/// Rules a second of a search that can be changed in place; `None` of others. A rule is removed at random and inserted
/// elsewhere, again and again, in versions of which one is looked up in meanwhile; what the last one answers is held to
/// the scan. Only the changes count, those of the version behind among them.
pub(crate) fn rate(
    name: &str,
    search: &dyn Classifier,
    plan: &Plan<'_>,
) -> Result<Option<f64>, Disagreement> {
    let Some(updatable) = search.to_updatable(plan.patterns) else { return Ok(None) };
    let mut list: Vec<Pattern> = plan.patterns.to_vec();
    let mut versions = Versions::new(updatable);
    let mut random = Random::new(1);
    let mut positions = [0; BATCH];
    let (mut changes, mut spent) = (0u32, Duration::ZERO);
    let mut headers = plan.headers.chunks(BATCH).cycle();
    let begin = Instant::now();
    // The first version copies all: what it takes is no change's.
    let mut is_first = true;
    while begin.elapsed() < TIME || changes == 0 {
        let from = random.below(list.len() as u64) as usize;
        let to = random.below(list.len() as u64) as usize;
        let pattern = list.remove(from);
        list.insert(to, pattern.clone());
        let edits = vec![Edit::Remove(from as Position), Edit::Insert(to as Position, Box::new(pattern))];
        let started = Instant::now();
        if versions.next(edits).is_err() {
            // There is no memory to change it in place: it would be built anew.
            return Ok(None);
        }
        if !is_first {
            spent += started.elapsed();
            changes += 2;
        }
        is_first = false;
        let version = versions.current();
        if let Some(batch) = headers.next() {
            version.classify_bulk(black_box(batch), &mut positions[..batch.len()]);
            black_box(&positions);
        }
    }
    let last = versions.current();
    let step = (plan.headers.len() * list.len()).div_ceil(SCANNED).max(1);
    for (place, header) in plan.headers.iter().enumerate().step_by(step) {
        let wanted = list.iter().position(|pattern| pattern.matches(header)).map(|at| at as Position);
        last.classify_bulk(std::slice::from_ref(header), &mut positions[..1]);
        let found = Some(positions[0]).filter(|position| *position != NO_MATCH);
        if found != wanted {
            let name = format!("{name}, after {changes} changes,");
            return Err(Disagreement { name, header: Some(place + 1), found, wanted });
        }
    }
    Ok(Some(f64::from(changes) / spent.as_secs_f64().max(1e-9)))
}
