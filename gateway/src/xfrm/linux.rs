//! Linux's own XFRM as the source of associations and policies: where daemons give them to Linux, and Linux leaves ESP to the gateway.
//!
//! The thread lists what there is, follows every event, and lists anew when events were lost. An association that a tunnel of the
//! policy is for is carried by the data plane; all others are Linux's own, and left alone. In return Linux is told what it must
//! know for its daemons: use, bounds that are reached, packets that need an association.
//!
//! No number is used twice under a key: before the data plane sends by an association, Linux can do so no more ([`mirror`]).

use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::server::{News, Server};
use super::state::Limits;
use super::thread::{Inbox, Thread};
use crate::linux::socket::wait;
use crate::linux::{Error, Operation};
use kernel::{Netlink, Transport};
use mirror::{Mirror, Plane};

pub mod kernel;
pub mod mirror;

/// Interval at which bounds are looked at, and use is written back.
const TICK: Duration = Duration::from_secs(1);

/// Begins to follow Linux in the network namespace of the calling thread, on a thread of its own.
///
/// # Errors
/// A Linux without XFRM, no permission, or no thread.
pub fn follow(limits: Limits, plane: Box<dyn Plane + Send>) -> Result<Thread, Error> {
    let mirror = Mirror::new(limits, Netlink::open()?, plane);
    let thread = Thread::start(move |inbox| run(mirror, &inbox));
    let thread = thread.map_err(|error| Error::new(Operation::Open, error))?;
    info!("SAs of IKE daemons are taken from Linux's XFRM");
    Ok(thread)
}

fn run<K: Transport>(mut mirror: Mirror<K>, inbox: &Inbox) {
    let mut ticked = Instant::now();
    loop {
        // Linux is asked again each second where a request failed.
        mirror.follow();
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            mirror.tick();
        }
        if let Err(error) = wait(&[inbox.descriptor(), mirror.descriptor()], Some(TICK)) {
            warn!("waiting for Linux's XFRM failed, no SA is taken any more: {error}");
            return;
        }
        inbox.clear();
        loop {
            match inbox.next() {
                Ok(news) => mirror.hear(news),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// Source of associations, running.
pub enum Source {
    /// Socket of the gateway.
    Socket(Server),
    /// Linux's XFRM.
    Linux(Thread),
}

impl Source {
    /// Tells what daemons wait for. Returns at once.
    pub fn tell(&self, news: News) {
        match self {
            Source::Socket(server) => server.tell(news),
            Source::Linux(thread) => thread.tell(news),
        }
    }
}
