//! Health checks of servers and WANs: what is asked, on a thread of its own, and the hysteresis of the answers.
//!
//! Each check is a task with one question under way at most, and a bound on the time of its answer: what hangs, resets or sends without
//! an end delays no other check. Questions come from Linux's own stack.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use policy::model::Pace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) mod echo;
pub(crate) mod http;
mod name;

pub(crate) use name::Named;

/// Most threads that names are resolved on: Linux's resolver blocks them.
const MOST_RESOLVERS: usize = 32;

/// Round trip that none stands for.
const NONE: u64 = u64::MAX;

/// Outcome of a health check's hysteresis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The check is passed.
    Up,
    /// The check has failed.
    Down,
}

/// WANs and servers that have failed their check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// Names of WANs.
    pub wans: BTreeSet<String>,
    /// Servers, each with the reason.
    pub servers: BTreeMap<ServerKey, String>,
}

/// A server of a translation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// Name of the translation.
    pub nat: String,
    /// Address and port of the server, as in the policy.
    pub server: String,
}

/// View of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckView {
    /// Checks made; of a WAN, rounds.
    pub rounds: u64,
    /// Checks, or rounds, without an answer that passes.
    pub lost: u64,
    /// Time that the last answer took, in seconds; none before the first.
    pub round_trip_seconds: Option<f64>,
}

/// Reason that a check fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// Nothing, or half of an answer, in the time for it.
    #[error("no answer in time")]
    Timeout,
    /// No socket to ask by: that says nothing of who is to be asked.
    #[error("not asked: {0}")]
    NotAsked(io::ErrorKind),
    /// Refusal by the system or the other end.
    #[error("{0}")]
    System(io::ErrorKind),
    /// Status of HTTP that does not pass.
    #[error("the status is {0}")]
    Status(u16),
    /// Answer that is not HTTP, or has a header of more than 16 KiB.
    #[error("the answer is no HTTP")]
    NoHttp,
    /// End of the connection before an answer.
    #[error("the connection ends before an answer")]
    Closed,
    /// Failure of TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// Name without an address.
    #[error("the name \"{0}\" is not resolved")]
    Name(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::System(error.kind())
    }
}

/// Hysteresis: the health changes after so many outcomes in a row that contradict it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hysteresis {
    health: Health,
    /// Outcomes in a row that contradict the health.
    against: u8,
    fall: u8,
    rise: u8,
}

impl Hysteresis {
    /// Hysteresis that begins with a health.
    pub(crate) fn new(health: Health, pace: &Pace) -> Hysteresis {
        Hysteresis { health, against: 0, fall: pace.fall.max(1), rise: pace.rise.max(1) }
    }

    /// Notes the outcome of a check. Returns the health if it changes.
    pub(crate) fn note(&mut self, outcome: Health) -> Option<Health> {
        if outcome == self.health {
            self.against = 0;
            return None;
        }
        let most = match self.health {
            Health::Up => self.fall,
            Health::Down => self.rise,
        };
        self.against = self.against.saturating_add(1);
        if self.against < most {
            return None;
        }
        (self.health, self.against) = (outcome, 0);
        Some(outcome)
    }
}

/// Counters of a check.
#[derive(Debug)]
pub(crate) struct Counts {
    rounds: AtomicU64,
    lost: AtomicU64,
    /// Of the last answer, in nanoseconds.
    round_trip: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { rounds: AtomicU64::new(0), lost: AtomicU64::new(0), round_trip: AtomicU64::new(NONE) }
    }
}

impl Counts {
    /// View of the counters.
    pub(crate) fn view(&self) -> CheckView {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        CheckView {
            rounds: self.rounds.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            round_trip_seconds: (nanos != NONE).then(|| Duration::from_nanos(nanos).as_secs_f64()),
        }
    }

    /// Counts a check, with the time that its answer took.
    pub(crate) fn note(&self, answer: Option<Duration>) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        match answer {
            Some(time) => {
                self.round_trip.store(time.as_nanos().min(u128::from(NONE - 1)) as u64, Ordering::Relaxed)
            }
            None => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Question of a check.
pub(crate) trait Ask: Send + 'static {
    /// Asks once. The future is dropped when the time for an answer is over.
    fn ask(&mut self) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Check that begins.
pub(crate) struct Check<A> {
    /// Its question.
    pub(crate) ask: A,
    /// Interval and hysteresis.
    pub(crate) pace: Pace,
    /// Time until the first question: checks that begin together ask one after the other.
    pub(crate) first: Duration,
    /// Health that it begins with.
    pub(crate) health: Health,
    /// Counters.
    pub(crate) counts: Arc<Counts>,
}

/// Thread that checks are made on, once there are any; it ends, and they with it, when this is dropped.
#[derive(Default)]
pub(crate) struct Checker(Option<Running>);

struct Running {
    runtime: Handle,
    _until: oneshot::Sender<()>,
}

/// A check under way; it ends when this is dropped.
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Checker {
    /// Begins a check, which tells of changes of health, with the reason of a failure.
    ///
    /// # Errors
    /// No thread.
    pub(crate) fn spawn<A: Ask>(
        &mut self,
        check: Check<A>,
        tell: impl Fn(Health, Option<Trouble>) + Send + 'static,
    ) -> io::Result<Task> {
        let running = match self.0.take() {
            Some(running) => running,
            None => Running::start()?,
        };
        let running = self.0.insert(running);
        Ok(Task(running.runtime.spawn(run(check, tell)).abort_handle()))
    }
}

impl Running {
    fn start() -> io::Result<Running> {
        let made = Builder::new_current_thread().enable_all().max_blocking_threads(MOST_RESOLVERS).build()?;
        let runtime = made.handle().clone();
        let (until, ended) = oneshot::channel();
        thread::Builder::new().name("health".to_owned()).spawn(move || {
            // The sender is dropped, and never used.
            let _ = made.block_on(ended);
            // A name may still be under resolution.
            made.shutdown_background();
        })?;
        Ok(Running { runtime, _until: until })
    }
}

async fn run<A: Ask>(mut check: Check<A>, tell: impl Fn(Health, Option<Trouble>)) {
    let every = Duration::from_nanos(check.pace.every.0);
    let patience = Duration::from_nanos(check.pace.patience().0);
    let mut hysteresis = Hysteresis::new(check.health, &check.pace);
    let mut due = Instant::now() + check.first;
    loop {
        sleep_until(due).await;
        let begin = Instant::now();
        let outcome = timeout(patience, check.ask.ask()).await.unwrap_or(Err(Trouble::Timeout));
        due = (due + every).max(Instant::now());
        if matches!(outcome, Err(Trouble::NotAsked(_))) {
            continue;
        }
        check.counts.note(outcome.is_ok().then(|| begin.elapsed()));
        let health = if outcome.is_ok() { Health::Up } else { Health::Down };
        if let Some(health) = hysteresis.note(health) {
            tell(health, outcome.err());
        }
    }
}

/// Waits until one of several questions is passed, or all have failed: then for the trouble of the last.
pub(crate) async fn first_passed<F>(questions: impl Iterator<Item = F>) -> Result<(), Trouble>
where
    F: Future<Output = Result<(), Trouble>>,
{
    let mut open: Vec<_> = questions.map(Box::pin).collect();
    let mut last = Trouble::Closed;
    poll_fn(move |context| {
        let mut place = 0;
        while let Some(question) = open.get_mut(place) {
            match question.as_mut().poll(context) {
                Poll::Pending => place += 1,
                Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(trouble)) => {
                    last = trouble;
                    drop(open.swap_remove(place));
                }
            }
        }
        if open.is_empty() { Poll::Ready(Err(last.clone())) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests;
