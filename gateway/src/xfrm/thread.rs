//! The thread that has the databases, and what it is told from outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};

use super::server::News;

/// Running thread, which stops when dropped.
pub struct Thread {
    news: Sender<News>,
    wake_up: Arc<OwnedFd>,
    handle: Option<JoinHandle<()>>,
}

/// The thread's own end.
pub struct Inbox {
    news: Receiver<News>,
    wake_up: Arc<OwnedFd>,
}

impl Thread {
    /// Starts `run`, which is to end once its inbox is [disconnected](Inbox::next).
    ///
    /// # Errors
    /// No thread, or no descriptor.
    pub fn start(run: impl FnOnce(Inbox) + Send + 'static) -> io::Result<Thread> {
        let wake_up = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (news, told) = channel();
        let inbox = Inbox { news: told, wake_up: Arc::clone(&wake_up) };
        let handle = Some(Builder::new().name("xfrm".to_owned()).spawn(move || run(inbox))?);
        Ok(Thread { news, wake_up, handle })
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

impl Drop for Thread {
    fn drop(&mut self) {
        // The channel's end is what the thread stops by.
        drop(std::mem::replace(&mut self.news, channel().0));
        self.wake();
        if let Some(handle) = self.handle.take() {
            // A panic of the thread has been reported by then.
            let _ = handle.join();
        }
    }
}

impl Inbox {
    /// Descriptor that is readable when there is news, until [`Inbox::clear`].
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake_up.as_fd()
    }

    /// Has the descriptor be readable at the next news only. To be called before what there is is read.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // There may have been nothing to wake up for.
        let _ = rustix::io::read(&*self.wake_up, &mut count);
    }

    /// The next piece of news, without waiting.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] where there is none; [`TryRecvError::Disconnected`] where the thread is to end.
    pub fn next(&self) -> Result<News, TryRecvError> {
        self.news.try_recv()
    }
}
