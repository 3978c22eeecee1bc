//! Bodies of questions and answers that go piece by piece, as they are made: no more of them is in memory than a few
//! pieces.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces that wait for whoever reads. Who does not read lets whoever makes them wait.
const PIECES: usize = 4;

/// The body ends here, but is not whole. Whoever reads sees that it breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it could not be gone on with")]
pub(crate) struct Broken;

/// Where pieces are put in.
pub(crate) type Pieces = Sender<Result<Bytes, Broken>>;

/// A body, and where its pieces are put in. It is whole when the last sender is dropped.
pub(crate) fn stream() -> (Pieces, Stream) {
    let (sender, receiver) = channel(PIECES);
    (sender, Stream { receiver })
}

/// The same for tests, which take the pieces out themselves.
#[cfg(test)]
pub(crate) fn channel_of_pieces() -> (Pieces, Receiver<Result<Bytes, Broken>>) {
    channel(PIECES)
}

/// An answer that is such a body.
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
