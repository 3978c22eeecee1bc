//! Connections of clients, with limits for bad and slow ones.
//!
//! One request per connection. Bounded are the number of connections, the time for the head of a request to arrive and
//! the time for a response to be read. At the limit, the connection idle for longest without a request is closed, so
//! that others are served.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep};

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once, at most.
    pub most: usize,
    /// Time limit for the head of a request.
    pub head: Duration,
    /// Time limit for the client to read at least some of a response.
    pub stall: Duration,
}

impl Bounds {
    /// Limits of the control socket.
    pub const CONTROL: Bounds =
        Bounds { most: 256, head: Duration::from_secs(10), stall: Duration::from_secs(30) };

    /// Limits of the metrics address.
    pub const PUBLIC: Bounds = Bounds { most: 32, ..Bounds::CONTROL };

    /// Limits of the page's address.
    pub const PAGE: Bounds = Bounds { most: 64, ..Bounds::CONTROL };
}

/// Buffer of a connection, in bytes: the head of a request, and unsent parts of a response.
const BUFFER_BYTES: usize = 64 << 10;

/// Open connection.
struct Open {
    /// True once the head of its request has arrived.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Accepts connections without end; `router_for` selects the routes that each may use.
pub async fn serve<L: Listener>(
    mut listener: L,
    bounds: Bounds,
    router_for: impl Fn(&L::Io, &L::Addr) -> Router + Send,
) {
    let mut tasks = JoinSet::new();
    let mut all: VecDeque<Open> = VecDeque::new();
    loop {
        let (stream, from) = listener.accept().await;
        while tasks.try_join_next().is_some() {}
        all.retain(|open| !open.task.is_finished());
        if all.len() >= bounds.most {
            match all.iter().position(|open| !open.asked.load(Ordering::Relaxed)) {
                Some(place) => {
                    if let Some(open) = all.remove(place) {
                        open.task.abort();
                    }
                }
                None => {
                    // All of them are being answered. One of these ends soon, or is stuck and then ended.
                    tasks.join_next().await;
                }
            }
        }
        let asked = Arc::new(AtomicBool::new(false));
        let router = router_for(&stream, &from);
        let task = tasks.spawn(converse(stream, router, bounds, asked.clone()));
        all.push_back(Open { asked, task });
    }
}

/// Serves one request, or closes the connection at a limit.
pub async fn converse<S>(stream: S, router: Router, bounds: Bounds, asked: Arc<AtomicBool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        router.call(request)
    });
    // What goes wrong concerns the other side alone, and has been told to it as far as it goes.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .keep_alive(false)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Impatient::new(stream, bounds.stall)), service)
        .await;
}

/// Stream that fails once the peer has read nothing for too long.
struct Impatient<S> {
    stream: S,
    stall: Duration,
    /// Deadline of a write; runs only while `waiting`.
    over: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> Impatient<S> {
    fn new(stream: S, stall: Duration) -> Impatient<S> {
        Impatient { stream, stall, over: Box::pin(sleep(stall)), waiting: false }
    }

    /// Updates the deadline by the outcome of a write.
    fn written<T>(&mut self, outcome: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = false;
            return outcome;
        }
        if !self.waiting {
            self.waiting = true;
            self.over.as_mut().reset(Instant::now() + self.stall);
        }
        ready!(self.over.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, from);
        self.written(outcome, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
