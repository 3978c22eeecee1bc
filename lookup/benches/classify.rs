//! Measures trees whose rules come and go, on ClassBench's sets: millions of look-ups a second as they are built and as they are
//! changed, the changes that a second has room for, look-ups beside 100,000 changes a second, and after all of these, beside those of trees
//! that are built of the list as it is then.
//!
//! A change is a rule that is removed at random, or inserted at random. `Versions` makes each of them twice, once in either
//! copy, and all of it counts. Headers are looked up 64 at a time, and the best of several rounds counts: what disturbs a
//! round is not the trees'. Versions for which there is no memory are counted as refused.
//!
//! Sets are those of `../shared/data/rules`, or of the folder that `WIRERATE_DATA` names; where there are none, some are made.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lookup::classify::generate::{Like, Locality, rules, trace};
use lookup::classify::update::{Edit, Versions, revised};
use lookup::classify::{
    AddressSpan, Admit, Bounds, Classifier, Header, Pattern, PortSpan, Position, Tree, TypeMatch, Updatable,
};
use wire::random::Random;

const HEADERS: usize = 1 << 16;
const BATCH: usize = 64;
const ROUNDS: usize = 5;
/// Changes a second beside look-ups.
const CHANGES: usize = 100_000;
/// Changes that make a version.
const EDITS: usize = 64;
const ROUND: Duration = Duration::from_millis(200);

fn main() {
    println!(
        "{:<12} {:>7} {:>8} {:>7} {:>9} {:>10} {:>9} {:>10} {:>9} {:>8} {:>7} {:>10} {:>8}",
        "set",
        "rules",
        "build ms",
        "M/s",
        "changing",
        "changes/s",
        "one core",
        "two cores",
        "after all",
        "settled",
        "anew",
        "reload ms",
        "refused"
    );
    let mut sets = sets();
    if let Some(only) = std::env::args().nth(1).filter(|only| !only.starts_with('-')) {
        sets.retain(|(name, _)| name.contains(&only));
    }
    for (name, patterns) in &sets {
        measure(name, patterns);
    }
    if sets.is_empty() {
        println!("SKIPPED: the ClassBench sets of ../shared/data/rules, which are not there");
        for (name, like) in [("acl", Like::Acl), ("fw", Like::Fw), ("ipc", Like::Ipc)] {
            for count in [1_000, 10_000] {
                let patterns: Vec<Pattern> =
                    rules(like, count, 1).iter().map(|rule| rule.pattern()).collect();
                measure(&format!("made {name}"), &patterns);
            }
        }
    }
}

fn measure(name: &str, patterns: &[Pattern]) {
    let headers: Vec<Header> =
        trace(patterns, HEADERS, Locality::LOW, 1).iter().map(|aimed| aimed.header).collect();
    let clock = Clock::start();
    let tree = Tree::new(patterns, Bounds::default()).expect("64 MiB will do");
    let build = clock.elapsed();
    let built = best(|| look_up(&tree, &headers));
    let updatable = tree.to_updatable(patterns).expect("it can be changed");
    let changing = best(|| look_up(&*updatable, &headers));
    let mut versions = Changing { versions: Versions::new(updatable), refused: 0 };
    let mut list = Shuffle::new(patterns);
    let changes = best(|| {
        let edits: Vec<Vec<Edit>> = (0..CHANGES / EDITS / 2).map(|_| list.edits(EDITS)).collect();
        let (clock, count) = (Clock::start(), edits.len() * EDITS);
        for edits in edits {
            versions.next(edits);
        }
        count as f64 / clock.seconds()
    });
    let one_core = best(|| look_up_between(&mut versions, &mut list, &headers));
    let two_cores = best(|| look_up_beside(&mut versions, &mut list, &headers));
    let after = best(|| look_up(&*versions.current(), &headers));
    let settled = versions.current().copy().into_classifier();
    let settled = best(|| look_up(&*settled, &headers));
    let now = versions.current();
    let list: Vec<Pattern> = (0..now.count() as Position).filter_map(|at| now.pattern(at).cloned()).collect();
    let anew = Tree::new(&list, Bounds::default()).map_or(0.0, |tree| best(|| look_up(&tree, &headers)));
    // A reload that changes one rule.
    let mut other = patterns.to_vec();
    other.swap(patterns.len() / 2, patterns.len() / 3);
    let mut reload = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        if revised(&tree, patterns, &other, Bounds::default()).is_some() {
            reload = reload.min(begin.elapsed().as_secs_f64());
        }
    }
    println!(
        "{name:<12} {:>7} {:>8.0} {built:>7.1} {changing:>9.1} {changes:>10.0} {one_core:>9.1} {two_cores:>10.1} {after:>9.1} {settled:>8.1} {anew:>7.1} {:>10.1} {:>8}",
        patterns.len(),
        build.as_secs_f64() * 1e3,
        reload * 1e3,
        versions.refused
    );
}

/// The highest of several rounds.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(0.0, f64::max)
}

/// Time that a thread has been given a core for: what else runs on the machine does not count.
struct Clock {
    begin: Duration,
    wall: Instant,
}

impl Clock {
    fn start() -> Clock {
        Clock { begin: Clock::now().unwrap_or_default(), wall: Instant::now() }
    }

    fn now() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
    }

    fn elapsed(&self) -> Duration {
        Clock::now().map_or_else(|| self.wall.elapsed(), |now| now - self.begin)
    }

    fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Millions of look-ups a second.
fn look_up(search: &(impl Classifier + ?Sized), headers: &[Header]) -> f64 {
    let mut positions = [0; BATCH];
    let (clock, mut count) = (Clock::start(), 0);
    while clock.elapsed() < ROUND {
        for batch in headers.chunks(BATCH) {
            search.classify_bulk(black_box(batch), &mut positions[..batch.len()]);
            black_box(&positions);
        }
        count += headers.len();
    }
    count as f64 / clock.seconds() / 1e6
}

/// [`look_up`] on the core that makes the changes; 0 where there is no time for any.
fn look_up_between(versions: &mut Changing, list: &mut Shuffle<'_>, headers: &[Header]) -> f64 {
    let mut positions = [0; BATCH];
    let mut edits = list.edits_of_a_round();
    let (clock, mut count, mut made) = (Clock::start(), 0, 0);
    for group in headers.chunks(BATCH * 16).cycle() {
        for batch in group.chunks(BATCH) {
            versions.current().classify_bulk(black_box(batch), &mut positions[..batch.len()]);
            black_box(&positions);
        }
        count += group.len();
        let elapsed = clock.elapsed();
        while made + EDITS <= due(elapsed) && clock.elapsed() < ROUND {
            versions.next(edits.next().unwrap_or_default());
            made += EDITS;
        }
        if elapsed > ROUND {
            break;
        }
    }
    let is_late = made + 16 * EDITS < due(clock.elapsed());
    if is_late { 0.0 } else { count as f64 / clock.seconds() / 1e6 }
}

/// [`look_up`] while another core makes the changes; 0 where that comes too late.
fn look_up_beside(versions: &mut Changing, list: &mut Shuffle<'_>, headers: &[Header]) -> f64 {
    let newest: Mutex<Arc<dyn Updatable>> = Mutex::new(versions.current());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut positions = [0; BATCH];
            let (begin, mut count) = (Instant::now(), 0);
            while !done.load(Ordering::Relaxed) {
                for group in headers.chunks(BATCH * 16) {
                    let search = newest.lock().expect("nobody panics").clone();
                    for batch in group.chunks(BATCH) {
                        search.classify_bulk(black_box(batch), &mut positions[..batch.len()]);
                        black_box(&positions);
                    }
                    count += group.len();
                }
            }
            count as f64 / begin.elapsed().as_secs_f64() / 1e6
        });
        let mut edits = list.edits_of_a_round();
        let (begin, mut made) = (Instant::now(), 0);
        while begin.elapsed() < ROUND {
            if due(begin.elapsed()) < made + EDITS {
                thread::yield_now();
                continue;
            }
            // The version before is free when the reader has taken the current one.
            while Arc::strong_count(&versions.current()) < 4 && begin.elapsed() < 2 * ROUND {
                thread::yield_now();
            }
            *newest.lock().expect("nobody panics") = versions.next(edits.next().unwrap_or_default());
            made += EDITS;
        }
        let is_late = made + 8 * EDITS < due(begin.elapsed());
        done.store(true, Ordering::Relaxed);
        let rate = looking.join().expect("nobody panics");
        if is_late { 0.0 } else { rate }
    })
}

/// Versions of a search, and the number of those for which there was no memory.
struct Changing {
    versions: Versions,
    refused: u32,
}

impl Changing {
    fn current(&self) -> Arc<dyn Updatable> {
        self.versions.current()
    }

    /// The next version; the current one, where there is no memory for it.
    fn next(&mut self, edits: Vec<Edit>) -> Arc<dyn Updatable> {
        self.versions.next(edits).unwrap_or_else(|_| {
            self.refused += 1;
            self.versions.current()
        })
    }
}

/// Changes that should have been made since.
fn due(elapsed: Duration) -> usize {
    (elapsed.as_secs_f64() * CHANGES as f64) as usize
}

/// Rules that are removed and inserted at random.
struct Shuffle<'a> {
    list: Vec<&'a Pattern>,
    random: Random,
}

impl<'a> Shuffle<'a> {
    fn new(patterns: &'a [Pattern]) -> Shuffle<'a> {
        Shuffle { list: patterns.iter().collect(), random: Random::new(1) }
    }

    /// Half of them take a rule out, the others put it in elsewhere.
    fn edits(&mut self, count: usize) -> Vec<Edit> {
        let mut edits = Vec::with_capacity(count);
        for _ in 0..count / 2 {
            let from = self.random.below(self.list.len() as u64) as usize;
            let to = self.random.below(self.list.len() as u64) as usize;
            let pattern = self.list.remove(from);
            self.list.insert(to, pattern);
            edits.push(Edit::Remove(from as Position));
            edits.push(Edit::Insert(to as Position, Box::new(pattern.clone())));
        }
        edits
    }

    /// As many as a round has time for.
    fn edits_of_a_round(&mut self) -> impl Iterator<Item = Vec<Edit>> + use<> {
        let versions = (ROUND.as_secs_f64() * 1.1 * CHANGES as f64) as usize / EDITS;
        let edits: Vec<Vec<Edit>> = (0..versions).map(|_| self.edits(EDITS)).collect();
        edits.into_iter()
    }
}

/// Filter sets, by name.
fn sets() -> Vec<(String, Vec<Pattern>)> {
    let data = std::env::var_os("WIRERATE_DATA").map(PathBuf::from);
    let data =
        data.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")));
    let Ok(files) = std::fs::read_dir(data.join("rules")) else { return Vec::new() };
    let mut sets: Vec<(String, Vec<Pattern>)> = files
        .flatten()
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?.strip_suffix(".classbench")?.to_owned();
            let text = std::fs::read_to_string(file.path()).ok()?;
            Some((name, text.lines().filter_map(filter).collect()))
        })
        .collect();
    sets.sort_by_key(|(name, patterns)| (patterns.len() > 2_000, name.clone()));
    sets
}

/// A line of a filter set: `@source destination sport : sport dport : dport protocol/mask flags/mask`.
fn filter(line: &str) -> Option<Pattern> {
    let words: Vec<&str> = line.strip_prefix('@')?.split_ascii_whitespace().collect();
    let net = |word: &str| {
        let (address, length) = word.split_once('/')?;
        let (address, length): (std::net::Ipv4Addr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let host = u32::MAX.checked_shr(length).unwrap_or(0);
        let first = address.to_bits() & !host;
        let span = AddressSpan { v6: false, first: first.into(), last: (first | host).into() };
        Some((length > 0).then(|| vec![span]))
    };
    let ports = |first: &str, last: &str| {
        let span = PortSpan { first: first.parse().ok()?, last: last.parse().ok()? };
        let is_any = span.first == 0 && span.last == u16::MAX;
        Some(if is_any { Vec::new() } else { vec![span] })
    };
    let masked = |word: &str| {
        let (value, mask) = word.split_once('/')?;
        let number = |word: &str| u16::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        Some((number(value)?, number(mask)?))
    };
    let (protocol, mask) = masked(words.get(8)?)?;
    let mut pattern = Pattern {
        source: net(words.first()?)?,
        destination: net(words.get(1)?)?,
        sports: ports(words.get(2)?, words.get(4)?)?,
        dports: ports(words.get(5)?, words.get(7)?)?,
        protocols: if mask == 0 { Vec::new() } else { vec![protocol as u8] },
        v6: Admit::No,
        ..Pattern::default()
    };
    match (words.get(9).and_then(|word| masked(word)), pattern.protocols.as_slice()) {
        (Some((flags, mask)), [6]) => {
            (pattern.tcp_value, pattern.tcp_mask) =
                ((flags >> 8) as u8 & (mask >> 8) as u8, (mask >> 8) as u8);
        }
        (Some((message, mask)), [1]) if mask >> 8 == 0xff => {
            let [kind, code] = message.to_be_bytes();
            pattern.icmp = vec![TypeMatch { kind, code: (mask & 0xff == 0xff).then_some(code) }];
        }
        _ => {}
    }
    Some(pattern)
}
