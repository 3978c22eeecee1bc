//! Check of one WAN: rounds of echo requests on a thread of its own, with hysteresis.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use policy::model::{Pace, Wan};
use tracing::debug;

use crate::health::echo::{Echo, EchoSocket};
use crate::health::{Counts, Health, Hysteresis};

/// Longest time that one of several sockets is listened to.
const PATIENCE: Duration = Duration::from_secs(2);

/// Check of a WAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Interface that the requests leave by.
    interface: String,
    /// Hosts asked, of which one must answer.
    hosts: Vec<IpAddr>,
    /// Interval and hysteresis.
    pace: Pace,
}

impl Plan {
    /// The check of a WAN, if it is by echo requests and there is somebody to ask.
    pub(super) fn of(wan: &Wan) -> Option<Plan> {
        let check = wan.check.as_ref().filter(|check| check.urls.is_empty())?;
        let hosts = if check.ping.is_empty() { &wan.gateways } else { &check.ping };
        (!hosts.is_empty()).then(|| Plan {
            interface: wan.interface.clone(),
            hosts: hosts.clone(),
            pace: check.pace,
        })
    }
}

/// Starts a check, which begins with `health` and calls `tell` when that changes, until the sender of `ended` is dropped.
///
/// # Errors
/// No thread.
pub(super) fn start(
    plan: Plan,
    health: Health,
    counts: Arc<Counts>,
    ended: Receiver<()>,
    tell: impl Fn(Health) + Send + 'static,
) -> io::Result<()> {
    let hysteresis = Hysteresis::new(health, &plan.pace);
    let check = move || run(&plan, hysteresis, &counts, &ended, tell);
    thread::Builder::new().name("wan".to_owned()).spawn(check).map(|_| ())
}

fn run(
    plan: &Plan,
    mut hysteresis: Hysteresis,
    counts: &Counts,
    ended: &Receiver<()>,
    tell: impl Fn(Health),
) {
    let every = Duration::from_nanos(plan.pace.every.0);
    let mut sockets: [Option<EchoSocket>; 2] = [None, None];
    let mut echo = Echo::new();
    loop {
        let begin = Instant::now();
        let answer = round(plan, &mut sockets, echo, begin);
        counts.note(answer);
        let health = if answer.is_some() { Health::Up } else { Health::Down };
        if let Some(health) = hysteresis.note(health) {
            tell(health);
        }
        echo = echo.next();
        match ended.recv_timeout((begin + every).saturating_duration_since(Instant::now())) {
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
    let until = begin + Duration::from_nanos(plan.pace.patience().0);
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
    use policy::model::{CheckUrl, WanCheck};

    use super::*;

    #[test]
    fn a_check_without_hosts_is_none() {
        let mut wan = Wan::new("fibre", "fib0");
        assert_eq!(Plan::of(&wan), None);
        wan.check = Some(WanCheck::default());
        assert_eq!(Plan::of(&wan), None, "no router is known yet");
        wan.gateways = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(Plan::of(&wan).map(|plan| plan.hosts), Some(wan.gateways.clone()));
        let urls = CheckUrl::of("http://192.0.2.7/").into_iter().collect();
        wan.check = Some(WanCheck { urls, ..WanCheck::default() });
        assert_eq!(Plan::of(&wan), None, "it is by a URL");
    }
}
