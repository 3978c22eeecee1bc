//! Check of one WAN: rounds of echo requests on a thread of its own, with hysteresis.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use policy::model::{Wan, WanState};
use tracing::debug;

use super::CheckView;
use super::echo::{Echo, EchoSocket};

/// Longest time that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Round trip that none stands for.
const NONE: u64 = u64::MAX;

/// Check of a WAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Interface that the requests leave by.
    interface: String,
    /// Hosts asked, of which one must answer.
    hosts: Vec<IpAddr>,
    /// Interval between two rounds.
    every: Duration,
    /// Rounds in a row without an answer from which on the WAN is down.
    lost: u8,
    /// Rounds in a row with an answer from which on it is up again.
    back: u8,
}

/// Counters of a check.
#[derive(Debug)]
pub(super) struct Counts {
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
    pub(super) fn view(&self) -> CheckView {
        let nanos = self.round_trip.load(Ordering::Relaxed);
        CheckView {
            rounds: self.rounds.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            round_trip_seconds: (nanos != NONE).then(|| Duration::from_nanos(nanos).as_secs_f64()),
        }
    }

    fn note(&self, answer: Option<Duration>) {
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

impl Plan {
    /// The check of a WAN, if it has one and there is somebody to ask.
    pub(super) fn of(wan: &Wan) -> Option<Plan> {
        let check = wan.check.as_ref()?;
        let hosts = if check.ping.is_empty() { &wan.gateways } else { &check.ping };
        (!hosts.is_empty()).then(|| Plan {
            interface: wan.interface.clone(),
            hosts: hosts.clone(),
            every: Duration::from_nanos(check.every.0),
            lost: check.lost,
            back: check.back,
        })
    }
}

/// Hysteresis: the state changes after so many outcomes in a row that contradict it.
#[derive(Clone, Copy, Debug)]
struct Hysteresis {
    state: WanState,
    /// Outcomes in a row that contradict the state.
    against: u8,
    lost: u8,
    back: u8,
}

impl Hysteresis {
    /// Notes whether a round was answered. Returns the state if it changes.
    fn note(&mut self, is_answered: bool) -> Option<WanState> {
        let (other, most) = match self.state {
            WanState::Up => (WanState::Down, self.lost),
            WanState::Down => (WanState::Up, self.back),
        };
        if is_answered == (self.state == WanState::Up) {
            self.against = 0;
            return None;
        }
        self.against = self.against.saturating_add(1);
        if self.against < most {
            return None;
        }
        (self.state, self.against) = (other, 0);
        Some(other)
    }
}

/// Starts a check, which begins with `state` and calls `tell` when that changes, until the sender of `ended` is dropped.
///
/// # Errors
/// No thread.
pub(super) fn start(
    plan: Plan,
    state: WanState,
    counts: Arc<Counts>,
    ended: Receiver<()>,
    tell: impl Fn(WanState) + Send + 'static,
) -> io::Result<()> {
    let hysteresis = Hysteresis { state, against: 0, lost: plan.lost.max(1), back: plan.back.max(1) };
    let check = move || run(&plan, hysteresis, &counts, &ended, tell);
    thread::Builder::new().name("wan".to_owned()).spawn(check).map(|_| ())
}

fn run(
    plan: &Plan,
    mut hysteresis: Hysteresis,
    counts: &Counts,
    ended: &Receiver<()>,
    tell: impl Fn(WanState),
) {
    let mut sockets: [Option<EchoSocket>; 2] = [None, None];
    let mut echo = Echo::new();
    loop {
        let begin = Instant::now();
        let answer = round(plan, &mut sockets, echo, begin);
        counts.note(answer);
        if let Some(state) = hysteresis.note(answer.is_some()) {
            tell(state);
        }
        echo = echo.next();
        match ended.recv_timeout((begin + plan.every).saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Asks all hosts, and returns the time that the first answer took; `None` if there is none in time.
fn round(plan: &Plan, sockets: &mut [Option<EchoSocket>; 2], echo: Echo, begin: Instant) -> Option<Duration> {
    for host in &plan.hosts {
        let socket = &mut sockets[usize::from(host.is_ipv6())];
        if let Err(error) = ask(socket, plan, echo, *host) {
            debug!(interface = plan.interface, "echo request to {host} not sent: {error}");
            // Bound to an interface that may have been made anew.
            *socket = None;
        }
    }
    let until = begin + plan.every.min(PATIENCE);
    // Of two sockets each is listened to by turns, or one would be heard late.
    let both = sockets.iter().flatten().count();
    let turn = if both > 1 { Duration::from_millis(10) } else { PATIENCE };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || both == 0 {
            return None;
        }
        for socket in sockets.iter_mut().flatten() {
            match socket.hear(left.min(turn)) {
                Ok(Some(answer)) if answer.echo == echo && plan.hosts.contains(&answer.from) => {
                    return Some(begin.elapsed());
                }
                Ok(_) => {}
                Err(error) => debug!(interface = plan.interface, "echo answers not heard: {error}"),
            }
        }
    }
}

fn ask(socket: &mut Option<EchoSocket>, plan: &Plan, echo: Echo, host: IpAddr) -> io::Result<()> {
    let open = match socket.take() {
        Some(open) => open,
        None => EchoSocket::open(&plan.interface, host)?,
    };
    socket.insert(open).ask(echo, host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lost: u8, back: u8, rounds: &str) -> String {
        let mut hysteresis = Hysteresis { state: WanState::Up, against: 0, lost, back };
        let told = rounds.chars().map(|round| match hysteresis.note(round == '+') {
            None => '.',
            Some(WanState::Up) => 'U',
            Some(WanState::Down) => 'D',
        });
        told.collect()
    }

    #[test]
    fn only_so_many_in_a_row_change_the_state() {
        assert_eq!(told(3, 2, "+--+--+---"), ".........D");
        assert_eq!(told(3, 2, "---+-+-++-"), "..D.....U.");
        assert_eq!(told(1, 1, "-+-+"), "DUDU");
        assert_eq!(told(255, 1, &"-".repeat(255)).find('D'), Some(254));
    }

    #[test]
    fn a_check_without_hosts_is_none() {
        let mut wan = Wan::new("fibre", "fib0");
        assert_eq!(Plan::of(&wan), None);
        wan.check = Some(policy::model::WanCheck::default());
        assert_eq!(Plan::of(&wan), None, "no router is known yet");
        wan.gateways = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(Plan::of(&wan).map(|plan| plan.hosts), Some(wan.gateways.clone()));
    }
}
