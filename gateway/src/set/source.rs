//! Source of a dynamic set's list, a file or a URL, on a thread of its own: read again when it changes or is due, with the last good list
//! kept on disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use policy::model::{DynamicSet, SetSource};

use super::download::{Fetched, Fetcher, Validators};
use super::list::{List, MOST_BYTES, NoList};
use crate::stamp::Stamp;
use crate::store::{self, StoreError};

/// Interval between two looks at a file.
const LOOK: Duration = Duration::from_secs(1);

/// Pause after the first download that failed; it doubles with each, up to `refresh`.
const RETRY: Duration = Duration::from_secs(30);

/// Places of lists.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    /// Directory of the policy file, which relative paths begin at.
    pub(crate) policy: PathBuf,
    /// Directory of the last good lists; none are kept where absent.
    pub(crate) kept: Option<PathBuf>,
}

/// List of a dynamic set, and the place where its last good one is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    source: Source,
    size: u32,
    kept: Option<PathBuf>,
}

/// Source of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Url { url: String, refresh: Duration },
}

/// Outcome of reading a source.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A list, as it is now.
    Loaded(Loaded),
    /// The source has not changed since the list in force.
    Unchanged(SystemTime),
    /// The source cannot be had, or has no list: the list in force stays.
    Trouble(SourceError),
}

/// A list, with the time at which its source was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The list.
    pub(crate) list: List,
    /// Time of the last modification of a file, of the download of a URL.
    pub(crate) at: SystemTime,
}

/// Reason for which a source yields no list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// File that cannot be read.
    #[error("{path} cannot be read: {error}{}", hint(.error))]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Text that is no list.
    #[error("{source_name} is no list for the set: {error}")]
    NoList {
        /// File or URL.
        source_name: String,
        /// The reason.
        error: NoList,
    },
    /// URL that cannot be had.
    #[error("{url} cannot be downloaded: {error}")]
    Download {
        /// The URL.
        url: String,
        /// The reason, in words.
        error: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; let the gateway's user read it, and restart the gateway if the directory is new to the policy"
        }
        _ => "",
    }
}

impl Plan {
    /// The source of a set that has one.
    pub(super) fn of(set: &DynamicSet, directories: &Directories) -> Option<Plan> {
        let source = match &set.source {
            SetSource::Rules => return None,
            SetSource::File(path) => Source::File(directories.policy.join(path)),
            SetSource::Url { url, refresh } => {
                Source::Url { url: url.clone(), refresh: Duration::from_nanos(refresh.0) }
            }
        };
        // A name may have slashes, and no percent signs.
        let file = format!("{}.list", set.name.replace('/', "%2F"));
        let kept = directories.kept.as_ref().map(|directory| directory.join(file));
        Some(Plan { source, size: set.size, kept })
    }

    /// Reads the list to begin with: that of the file; of a URL, or where the file has none, the last good one.
    pub(super) fn begin(&self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        if let Source::File(path) = &self.source {
            match self.read_file(path) {
                Ok(loaded) => return vec![Outcome::Loaded(loaded)],
                Err(error) => outcomes.push(Outcome::Trouble(error)),
            }
        }
        if let Some(Ok(loaded)) =
            self.kept.as_ref().filter(|kept| kept.exists()).map(|kept| self.read_file(kept))
        {
            outcomes.insert(0, Outcome::Loaded(loaded));
        }
        outcomes
    }

    fn read_file(&self, path: &Path) -> Result<Loaded, SourceError> {
        let failed = |error| SourceError::File { path: path.to_owned(), error };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(failed(io::Error::other("it is no file")));
        }
        if about.len() > MOST_BYTES {
            return Err(failed(io::Error::other(format!("it has more than {} MiB", MOST_BYTES >> 20))));
        }
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).map_err(failed)?;
        let at = about.modified().unwrap_or_else(|_| SystemTime::now());
        Ok(Loaded { list: self.list(&text, &path.display().to_string())?, at })
    }

    fn list(&self, text: &[u8], source_name: &str) -> Result<List, SourceError> {
        let source_name = source_name.to_owned();
        List::read(text, self.size).map_err(|error| SourceError::NoList { source_name, error })
    }

    /// Keeps a list for the next start.
    fn keep(&self, list: &List) {
        let Some(path) = &self.kept else { return };
        if let Err(error) = write_list(path, &list.prefixes) {
            tracing::warn!("{}: the list cannot be kept for the next start: {error}", path.display());
        }
    }
}

/// Writes a list in place of that of a file.
fn write_list(path: &Path, prefixes: &[IpNet]) -> Result<(), StoreError> {
    let failed = |error| StoreError::System { operation: "write", error };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let mut text = String::with_capacity(prefixes.len() * 20);
    for prefix in prefixes {
        text.push_str(&prefix.to_string());
        text.push('\n');
    }
    store::replace(path, |file| file.write_all(text.as_bytes()).map_err(failed))
}

/// Follows the source from what [`Plan::begin`] has read on, until the sender of `ended` is dropped.
///
/// # Errors
/// No thread.
pub(super) fn follow(
    plan: Plan,
    ended: Receiver<()>,
    told: impl Fn(Outcome) + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("set".to_owned());
    thread.spawn(move || match &plan.source {
        Source::File(path) => follow_file(&plan, path, &ended, told),
        Source::Url { url, refresh } => follow_url(&plan, url, *refresh, &ended, told),
    })?;
    Ok(())
}

/// True once nobody waits for the source any more; else after a pause.
fn is_over(ended: &Receiver<()>, pause: Duration) -> bool {
    ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
}

/// Reads a file when it has changed and is at rest: one that is being written is not read half.
fn follow_file(plan: &Plan, path: &Path, ended: &Receiver<()>, told: impl Fn(Outcome)) {
    let mut read = Stamp::of(path);
    let mut seen = read;
    // It may have changed since the beginning was read, and the stamp may be as coarse as the clock tick.
    let mut is_first = true;
    while !is_over(ended, LOOK) {
        let now = Stamp::of(path);
        let is_at_rest = now == seen;
        seen = now;
        if !is_at_rest || (now == read && !is_first) {
            continue;
        }
        (read, is_first) = (now, false);
        match plan.read_file(path) {
            Ok(loaded) => {
                plan.keep(&loaded.list);
                told(Outcome::Loaded(loaded));
            }
            Err(error) => told(Outcome::Trouble(error)),
        }
    }
}

/// Downloads a URL at each `refresh`, sooner after a failure.
fn follow_url(plan: &Plan, url: &str, refresh: Duration, ended: &Receiver<()>, told: impl Fn(Outcome)) {
    let (mut validators, mut retry) = (Validators::default(), RETRY.min(refresh));
    let mut fetcher = None;
    loop {
        let fetched = match &mut fetcher {
            Some(fetcher) => Ok(fetcher),
            None => Fetcher::new().map(|made| fetcher.insert(made)),
        };
        let failed = |error| SourceError::Download { url: url.to_owned(), error };
        let outcome = match fetched.and_then(|fetcher| fetcher.fetch(url, &validators)).map_err(failed) {
            Ok(Fetched::Unchanged) => Outcome::Unchanged(SystemTime::now()),
            Ok(Fetched::Text { text, validators: newer }) => match plan.list(&text, url) {
                Ok(list) => {
                    plan.keep(&list);
                    validators = newer;
                    Outcome::Loaded(Loaded { list, at: SystemTime::now() })
                }
                Err(error) => Outcome::Trouble(error),
            },
            Err(error) => Outcome::Trouble(error),
        };
        let pause = if matches!(outcome, Outcome::Trouble(_)) {
            let pause = retry;
            retry = (2 * retry).min(refresh);
            pause
        } else {
            retry = RETRY.min(refresh);
            refresh
        };
        told(outcome);
        if is_over(ended, pause) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
