//! Reserve of sequence numbers on disk: no number is used under a key before a file says that it may have been.
//!
//! Workers take numbers up to a ceiling. The file beside the state file has the ceiling of each key, by the key's fingerprint; it is written,
//! and synced, before the ceiling is raised. So numbers of a gateway that was killed go on behind all that it may have sent. One that ends in
//! good order leaves the last number itself. Of packets received, the file has the highest number: what came before it is not taken again.
//! Beside the numbers stands what the key has been used for, so that counters and lifetimes go on. The file has no key.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dataplane::Tables;
use dataplane::sa::{Fingerprint, Known, Numbering, SaErrors, Sequence, Sequences, Usage, Used};
use wire::Nanos;
use wire::esp::Direction;

use crate::clock::Clock;
use crate::store::{self, StoreError};

/// Name of the file.
const NAME: &str = "sa-numbers";

/// Header line, with the version of the format.
const HEAD: &str = "wirerate sequence numbers 2";

/// Header line of the format without the use of keys.
const HEAD_OF_NUMBERS: &str = "wirerate sequence numbers 1";

/// First word of the line with the time of writing.
const WRITTEN: &str = "written";

/// Numbers reserved at once, at least. Each unclean end costs an association as many.
pub(crate) const STEP: u64 = 1 << 20;

/// Time between two looks at the numbers in use.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Time after which the numbers of packets received, and counters, are written, where nothing else is.
const RECEIVED: Duration = Duration::from_secs(60);

/// Reserve of sequence numbers.
pub(crate) struct Reserve {
    /// File; none where the gateway keeps no state.
    path: Option<PathBuf>,
    clock: Clock,
    /// Numbers at the last look, by key, to reserve as many as the rate asks for.
    seen: HashMap<Fingerprint, u64>,
    written: Instant,
    /// True if a failure to write is in the log already.
    pub(crate) is_logged: bool,
}

/// Reason why no sequence numbers can be reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// A tunnel, and no state file.
    #[error(
        "a gateway with tunnels needs a state file, beside which it keeps its sequence numbers: leave --no-state out, or the tunnels"
    )]
    NoState,
    /// The file cannot be read.
    #[error("{}: could not read the sequence numbers: {error}", .path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error("{}: could not reserve sequence numbers: {error}", .path.display())]
    Write {
        /// File.
        path: PathBuf,
        /// Error.
        error: StoreError,
    },
    /// The file has been changed or cut.
    #[error(
        "{}, line {line}: damaged; numbers that were used cannot be told from others. Give all tunnels new keys and remove the file",
        .path.display()
    )]
    Damaged {
        /// File.
        path: PathBuf,
        /// Line.
        line: usize,
    },
}

impl Reserve {
    /// Opens the reserve beside a state file, and returns the numbers that earlier gateways have used or reserved.
    ///
    /// # Errors
    /// Unreadable or damaged file.
    pub(crate) fn open(state: Option<&Path>, clock: Clock) -> Result<(Reserve, Sequences), ReserveError> {
        let path = state.map(|state| state.with_file_name(NAME));
        let known = match &path {
            Some(path) => read(path, &Moment::now(clock))?,
            None => Vec::new(),
        };
        let (seen, written, is_logged) = (HashMap::new(), Instant::now(), false);
        Ok((Reserve { path, clock, seen, written, is_logged }, Sequences::new(known, Numbering::Reserved)))
    }

    /// Reserves numbers for the associations of these tables, and for those added since, where fewer than half as many as are to be reserved are left. To be called before the
    /// tables are in force, and often while they are.
    ///
    /// # Errors
    /// No state file, or a failure to write it: no ceiling is raised then.
    pub(crate) fn top_up(&mut self, tables: &Tables, added: &[Known]) -> Result<(), ReserveError> {
        let mut raised: Vec<(Fingerprint, Arc<Sequence>, u64)> = Vec::new();
        let given = tables.tunnels.list.iter().filter_map(|tunnel| tunnel.out.as_ref());
        let given = given.map(|out| (out.fingerprint, &out.sequence));
        let added = added.iter().filter(|known| known.direction == Direction::Out);
        for (fingerprint, sequence) in given.chain(added.map(|known| (known.fingerprint, &known.sequence))) {
            let (last, ceiling) = (sequence.last(), sequence.ceiling());
            let used = last - self.seen.insert(fingerprint, last).unwrap_or(last).min(last);
            let step = STEP.max(used.saturating_mul(8));
            if ceiling.saturating_sub(last) < step / 2 {
                raised.push((fingerprint, Arc::clone(sequence), last.saturating_add(step)));
            }
        }
        let is_old = !tables.tunnels.is_empty() && self.written.elapsed() >= RECEIVED;
        if raised.is_empty() && !is_old { Ok(()) } else { self.raise(tables, raised) }
    }

    /// Reserves numbers behind those that another gateway may have used under keys that are known here. To be called before the numbers
    /// go on behind them, so that no packet waits for the next look.
    ///
    /// # Errors
    /// Failure to write the file: no ceiling is raised then.
    pub(crate) fn go_on_behind(
        &mut self,
        tables: &Tables,
        used: &HashMap<Fingerprint, u64>,
    ) -> Result<(), ReserveError> {
        let known = tables.tunnels.sequences().all().into_iter();
        let raised = known.filter(|known| known.direction == Direction::Out).filter_map(|known| {
            let ceiling = used.get(&known.fingerprint)?.saturating_add(STEP);
            (known.sequence.ceiling() < ceiling).then_some((known.fingerprint, known.sequence, ceiling))
        });
        let raised: Vec<_> = raised.collect();
        if raised.is_empty() { Ok(()) } else { self.raise(tables, raised) }
    }

    /// Writes ceilings, and raises them.
    fn raise(
        &mut self,
        tables: &Tables,
        raised: Vec<(Fingerprint, Arc<Sequence>, u64)>,
    ) -> Result<(), ReserveError> {
        let ceilings: HashMap<Fingerprint, u64> =
            raised.iter().map(|(fingerprint, _, ceiling)| (*fingerprint, *ceiling)).collect();
        self.write(tables, |known| match known.direction {
            Direction::In => known.sequence.last(),
            Direction::Out => {
                let now = known.sequence.ceiling();
                ceilings.get(&known.fingerprint).copied().unwrap_or(now).max(now)
            }
        })?;
        for (_, sequence, ceiling) in raised {
            sequence.reserve(ceiling);
        }
        Ok(())
    }

    /// Writes the last numbers, once no worker uses further ones.
    ///
    /// # Errors
    /// Failure to write: the file has the ceilings.
    pub(crate) fn finish(&mut self, tables: &Tables) -> Result<(), ReserveError> {
        if self.path.is_none() || tables.tunnels.sequences().all().is_empty() {
            return Ok(());
        }
        self.write(tables, |known| known.sequence.last())
    }

    fn write(&mut self, tables: &Tables, number: impl Fn(&Known) -> u64) -> Result<(), ReserveError> {
        let path = self.path.as_ref().ok_or(ReserveError::NoState)?;
        let text = text(&tables.tunnels.sequences().all(), number, &Moment::now(self.clock));
        let system = |error| StoreError::System { operation: "write", error };
        store::replace(path, |file| file.write_all(text.as_bytes()).map_err(system))
            .map_err(|error| ReserveError::Write { path: path.clone(), error })?;
        self.written = Instant::now();
        Ok(())
    }
}

/// A moment by both clocks.
struct Moment {
    /// By the gateway's clock.
    now: Nanos,
    /// Milliseconds since 1970, by the wall clock: the only one that outlives the machine.
    wall: u64,
}

impl Moment {
    fn now(clock: Clock) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { now: clock.now(), wall: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }
}

fn text(sequences: &[Known], number: impl Fn(&Known) -> u64, moment: &Moment) -> String {
    let mut text = format!("{HEAD}\n{WRITTEN} {}\n", moment.wall);
    for known in sequences {
        let _ = write!(text, "{} ", known.direction.name());
        for byte in known.fingerprint.to_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, " {}", number(known));
        let usage = known.sequence.used.usage(moment.now);
        let _ = match usage.age {
            Some(age) => write!(text, " {}", age.0 / NANOS_OF_MILLI),
            None => write!(text, " {UNUSED}"),
        };
        let _ = write!(text, " {} {}", usage.packets, usage.bytes);
        for (_, count) in usage.errors.named() {
            let _ = write!(text, " {count}");
        }
        text.push('\n');
    }
    let sum = crc32fast::hash(text.as_bytes());
    let _ = writeln!(text, "end {sum:08x}");
    text
}

fn read(path: &Path, moment: &Moment) -> Result<Vec<Known>, ReserveError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ReserveError::Read { path: path.to_owned(), error }),
    };
    parse(&text, moment).map_err(|line| ReserveError::Damaged { path: path.to_owned(), line })
}

/// Reads the text of a file.
///
/// # Errors
/// The number of a damaged line.
fn parse(text: &str, moment: &Moment) -> Result<Vec<Known>, usize> {
    let lines = text.lines().count().max(1);
    let body = text.trim_end_matches('\n').rfind('\n').map_or("", |end| &text[..=end]);
    let end = format!("end {:08x}\n", crc32fast::hash(body.as_bytes()));
    if text.strip_prefix(body) != Some(end.as_str()) {
        return Err(lines);
    }
    let mut body = body.lines().zip(1..);
    // Time since the file was written; none where the wall clock has been set back.
    let since = match body.next() {
        Some((HEAD, _)) => {
            let (line, number) = body.next().ok_or(lines)?;
            let written = line.strip_prefix(WRITTEN).and_then(|wall| wall.trim_start().parse().ok());
            Some(Nanos::from_millis(moment.wall.saturating_sub(written.ok_or(number)?)))
        }
        Some((HEAD_OF_NUMBERS, _)) => None,
        _ => return Err(lines),
    };
    body.map(|(line, number)| known(line, since, moment.now).ok_or(number)).collect()
}

/// Reads the line of a key. `since`: time since the line was written; `None` in the format without the use of keys.
fn known(line: &str, since: Option<Nanos>, now: Nanos) -> Option<Known> {
    let mut words = line.split(' ');
    let direction = Direction::named(words.next()?)?;
    let digits = words.next().filter(|digits| digits.len() == 2 * Fingerprint::LEN && digits.is_ascii())?;
    let mut bytes = [0; Fingerprint::LEN];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok()?;
    }
    let number = words.next()?.parse().ok()?;
    let usage = match since {
        Some(since) => usage(&mut words, since)?,
        None => Usage::default(),
    };
    let ceiling = match direction {
        Direction::In => u64::MAX,
        Direction::Out => number,
    };
    let sequence = Arc::new(Sequence::going_on(number, ceiling, Used::going_on(&usage, now)));
    let fingerprint = Fingerprint::from_bytes(bytes);
    words.next().is_none().then_some(Known { fingerprint, direction, sequence })
}

/// Reads the use of a key, whose time has gone on.
fn usage<'a>(words: &mut impl Iterator<Item = &'a str>, since: Nanos) -> Option<Usage> {
    let age = match words.next()? {
        UNUSED => None,
        millis => {
            let age = Nanos(millis.parse::<u64>().ok()?.saturating_mul(NANOS_OF_MILLI));
            Some(Nanos(age.0.saturating_add(since.0)))
        }
    };
    let mut count = || words.next()?.parse().ok();
    let (packets, bytes) = (count()?, count()?);
    let mut errors = [0; SaErrors::COUNT];
    for error in &mut errors {
        *error = count()?;
    }
    Some(Usage { packets, bytes, errors: SaErrors::of(errors), age })
}

/// Nanoseconds of a millisecond.
const NANOS_OF_MILLI: u64 = 1_000_000;

/// Age of a key that has not been used.
const UNUSED: &str = "-";

#[cfg(test)]
mod tests;
