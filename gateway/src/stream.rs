//! Streamed bodies of requests and responses, with no more than a few chunks in memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Chunks queued for the reader; a full queue makes the writer wait.
const PIECES: usize = 4;

/// Error: the body ends here, incomplete. The reader sees a truncated body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it could not be gone on with")]
pub(crate) struct Broken;

/// Sending end of a body.
pub(crate) type Pieces = Sender<Result<Bytes, Broken>>;

/// Creates a body and its sending end. The body is complete when the last sender is dropped.
pub(crate) fn stream() -> (Pieces, Stream) {
    let (sender, receiver) = channel(PIECES);
    (sender, Stream { receiver })
}

/// Creates the channel alone, for tests, which receive the chunks themselves.
#[cfg(test)]
pub(crate) fn channel_of_pieces() -> (Pieces, Receiver<Result<Bytes, Broken>>) {
    channel(PIECES)
}

/// Response with such a body.
pub(crate) fn respond(content_type: &'static str) -> (Pieces, Response) {
    let (sender, stream) = stream();
    (sender, ([("content-type", content_type)], Body::new(stream)).into_response())
}

/// See [`stream`].
pub(crate) struct Stream {
    receiver: Receiver<Result<Bytes, Broken>>,
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.receiver.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
