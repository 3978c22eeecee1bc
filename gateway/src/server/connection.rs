//! Connections of those who ask, whoever they are and however they behave.
//!
//! One question a connection. It is bounded how many there are, how long a head may take to come and how long an answer may
//! wait to be taken. Where there are as many as there may be, the one that has waited longest without asking makes room, so
//! that others are answered meanwhile.

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

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many there may be at once.
    pub most: usize,
    /// Until the head of a question is there.
    pub head: Duration,
    /// In which the other side must take at least something of an answer.
    pub stall: Duration,
}

impl Bounds {
    /// For the socket of commands.
    pub const CONTROL: Bounds =
        Bounds { most: 256, head: Duration::from_secs(10), stall: Duration::from_secs(30) };

    /// For metrics.
    pub const PUBLIC: Bounds = Bounds { most: 32, ..Bounds::CONTROL };
}

/// Bytes of a connection that are kept in memory: the head of a question, and of an answer what has not yet gone.
const BUFFER_BYTES: usize = 64 << 10;

/// A connection.
struct Open {
    /// Whether it has asked: the head of its question was there.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Takes connections without end, and lets `router_for` say what each may ask.
pub async fn serve<L: Listener>(
    mut listener: L,
    bounds: Bounds,
    router_for: impl Fn(&L::Io) -> Router + Send,
) {
    let mut tasks = JoinSet::new();
    let mut all: VecDeque<Open> = VecDeque::new();
    loop {
        let (stream, _) = listener.accept().await;
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
        let router = router_for(&stream);
        let task = tasks.spawn(converse(stream, router, bounds, asked.clone()));
        all.push_back(Open { asked, task });
    }
}

/// Answers one question, or gives the connection up.
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

/// A stream that is given up where the other side takes nothing for too long.
struct Impatient<S> {
    stream: S,
    stall: Duration,
    /// When it is over; runs only while `waiting`.
    over: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> Impatient<S> {
    fn new(stream: S, stall: Duration) -> Impatient<S> {
        Impatient { stream, stall, over: Box::pin(sleep(stall)), waiting: false }
    }

    /// What became of an attempt to write.
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
