//! Linux's own XFRM as the source of associations and policies: where daemons give them to Linux, and Linux leaves ESP to the gateway.
//!
//! The thread lists what there is, follows every event, and lists anew when events were lost. An association that a tunnel of the
//! policy is for is carried by the data plane; all others are Linux's own, and left alone. In return Linux is told what it must
//! know for its daemons: use, bounds that are reached, packets that need an association.
//!
//! No number is used twice under a key: before the data plane sends by an association, Linux can do so no more ([`mirror`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tracing::{info, warn};

use super::server::{News, Server};
use super::state::Limits;
use crate::linux::socket::wait;
use crate::linux::{Error, Operation};
use kernel::{Netlink, Transport};
use mirror::{Mirror, Plane};

pub mod kernel;
pub mod mirror;

/// Interval at which bounds are looked at, and use is written back.
const TICK: Duration = Duration::from_secs(1);

/// Running follower, which stops when dropped.
pub struct Follower {
    news: Sender<News>,
    wake_up: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins to follow Linux in the network namespace of the calling thread, on a thread of its own.
    ///
    /// # Errors
    /// A Linux without XFRM, no permission, or no thread.
    pub fn start(limits: Limits, plane: Box<dyn Plane + Send>) -> Result<Follower, Error> {
        let kernel = Netlink::open()?;
        let failed = |error| Error::new(Operation::Open, error);
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake_up = Arc::new(wake_up.map_err(|error| failed(error.into()))?);
        let (news, told) = channel();
        let thread =
            Thread { wake_up: Arc::clone(&wake_up), news: told, mirror: Mirror::new(limits, kernel, plane) };
        let spawned = thread::Builder::new().name("xfrm".to_owned()).spawn(move || thread.run());
        let thread = Some(spawned.map_err(failed)?);
        info!("SAs of IKE daemons are taken from Linux's XFRM");
        Ok(Follower { news, wake_up, thread })
    }

    /// Tells the thread what daemons wait for. Returns at once.
    pub fn tell(&self, news: News) {
        // A thread that has ended has said so.
        if self.news.send(news).is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        // It fails only where the counter is at its end, and the thread awake.
        let _ = rustix::io::write(&*self.wake_up, &1_u64.to_ne_bytes());
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The channel's end is what the thread stops by.
        drop(std::mem::replace(&mut self.news, channel().0));
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by then.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Thread<K> {
    wake_up: Arc<OwnedFd>,
    news: Receiver<News>,
    mirror: Mirror<K>,
}

impl<K: Transport> Thread<K> {
    fn run(mut self) {
        let mut ticked = Instant::now();
        loop {
            // Linux is asked again each second where a request failed.
            self.mirror.follow();
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.mirror.tick();
            }
            let descriptors = [self.wake_up.as_fd(), self.mirror.descriptor()];
            if let Err(error) = wait(&descriptors, Some(TICK)) {
                warn!("waiting for Linux's XFRM failed, no SA is taken any more: {error}");
                return;
            }
            let mut count = [0; 8];
            // There may have been nothing to wake up for.
            let _ = rustix::io::read(&*self.wake_up, &mut count);
            loop {
                match self.news.try_recv() {
                    Ok(news) => self.mirror.hear(news),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
    }
}

/// Source of associations, running.
pub enum Source {
    /// Socket of the gateway.
    Socket(Server),
    /// Linux's XFRM.
    Linux(Follower),
}

impl Source {
    /// Tells what daemons wait for. Returns at once.
    pub fn tell(&self, news: News) {
        match self {
            Source::Socket(server) => server.tell(news),
            Source::Linux(follower) => follower.tell(news),
        }
    }
}
