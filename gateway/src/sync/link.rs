//! The connection: opened to the peer, or taken from it, by TLS with certificates on both sides; and opened again when it breaks.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use policy::model::{Sync, SyncPeer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Shared;
use super::files::{FileError, Files};
use super::owner::Ends;
use super::session::{Met, PeerMemory, SessionError, Times, conduct};
use super::shards::Shards;

/// Pauses between attempts to reach the peer: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Pause between attempts to listen.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Time limits for a TCP connection, and for the handshake of TLS.
const CONNECT: Duration = Duration::from_secs(3);
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Handshakes under way at a time, at most; whoever comes on top of these is turned away.
const HANDSHAKES: usize = 4;

/// Interval of looks at the certificate's expiry.
const LOOK: Duration = Duration::from_secs(60);

/// Side and files of the connection.
pub(super) struct Link {
    peer: SyncPeer,
    files: Arc<Mutex<Files>>,
}

/// Trouble with the connection.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Files(#[from] FileError),
    #[error("the peer at {at} cannot be reached: {error}")]
    Connect { at: SocketAddr, error: io::Error },
    #[error("the gateway cannot listen at {at}: {error}")]
    Listen { at: SocketAddr, error: io::Error },
    #[error("TLS with {at} failed: {error}")]
    Tls { at: SocketAddr, error: io::Error },
    #[error(transparent)]
    Session(SessionError),
}

/// Either side's stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Boxed = Box<dyn Stream>;

/// A connection, with certificates shown on both sides.
struct Connected {
    stream: Boxed,
    ends: Option<Ends>,
}

/// Addresses of a connection, between which frames may be handed over.
fn ends_of(stream: &TcpStream) -> Option<Ends> {
    let [own, peer] = [stream.local_addr(), stream.peer_addr()].map(|at| at.map(|at| at.ip().to_canonical()));
    Some(Ends { own: own.ok()?, peer: peer.ok()? })
}

impl Link {
    /// The connection of a policy; `None` where it names not all that is needed.
    pub(super) fn new(sync: &Sync) -> Option<Link> {
        Some(Link { peer: sync.peer?, files: Arc::new(Mutex::new(Files::of(sync)?)) })
    }
}

/// Keeps a session with the peer up, for ever.
pub(super) async fn work(link: Link, shards: Shards, shared: Arc<Shared>) {
    let Link { peer, files } = link;
    let watched = files.clone();
    tokio::spawn(async move {
        loop {
            watched.lock().await.name_expiry();
            sleep(LOOK).await;
        }
    });
    match peer {
        SyncPeer::Connect(at) => keep_connected(at, &files, &shards, &shared).await,
        SyncPeer::Listen(at) => keep_listening(at, &files, &shards, &shared).await,
    }
}

async fn keep_connected(at: SocketAddr, files: &Mutex<Files>, shards: &Shards, shared: &Shared) {
    let (mut memory, mut pause) = (PeerMemory::default(), FIRST_PAUSE);
    loop {
        let begun = Instant::now();
        let error = match connect(at, files).await {
            Ok(Connected { stream, ends }) => {
                let address = at.to_string();
                let met = Met { address: &address, ends };
                LinkError::Session(conduct(stream, met, shards, shared, &mut memory, Times::LIVE).await)
            }
            Err(error) => error,
        };
        shared.account.failed(&error.to_string());
        pause = if begun.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        sleep(pause).await;
    }
}

async fn connect(at: SocketAddr, files: &Mutex<Files>) -> Result<Connected, LinkError> {
    let configs = files.lock().await.current()?;
    let of_connect = |error| LinkError::Connect { at, error };
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let stream = timeout(CONNECT, TcpStream::connect(at)).await.map_err(|_| of_connect(late()))?;
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)).map_err(of_connect)?;
    let ends = ends_of(&stream);
    let handshake = TlsConnector::from(configs.client).connect(ServerName::from(at.ip()), stream);
    let stream = timeout(HANDSHAKE, handshake).await.unwrap_or_else(|_| Err(late()));
    let stream = stream.map_err(|error| LinkError::Tls { at, error })?;
    Ok(Connected { stream: Box::new(stream), ends })
}

async fn keep_listening(at: SocketAddr, files: &Arc<Mutex<Files>>, shards: &Shards, shared: &Arc<Shared>) {
    let mut memory = PeerMemory::default();
    let listener = loop {
        match TcpListener::bind(at).await {
            Ok(listener) => break listener,
            // The address may come later, with its link.
            Err(error) => shared.account.failed(&LinkError::Listen { at, error }.to_string()),
        }
        sleep(LISTEN_PAUSE).await;
    };
    let (given, mut taken) = mpsc::channel(1);
    tokio::spawn(accept(listener, files.clone(), shared.clone(), given));
    let mut next = taken.recv().await;
    while let Some((Connected { stream, ends }, from)) = next {
        let address = from.to_string();
        let met = Met { address: &address, ends };
        let session = conduct(stream, met, shards, shared, &mut memory, Times::LIVE);
        let (ended, newer) = tokio::select! {
            ended = session => (ended, None),
            newer = taken.recv() => (SessionError::Replaced, newer),
        };
        shared.account.failed(&ended.to_string());
        next = match newer {
            Some(newer) => Some(newer),
            None => taken.recv().await,
        };
    }
}

/// Accepts connections, and gives those on whose certificate the authority has its word.
async fn accept(
    listener: TcpListener,
    files: Arc<Mutex<Files>>,
    shared: Arc<Shared>,
    given: mpsc::Sender<(Connected, SocketAddr)>,
) {
    let permits = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // No file descriptor is left.
            sleep(LISTEN_PAUSE).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let (files, shared, given) = (files.clone(), shared.clone(), given.clone());
        tokio::spawn(async move {
            match shake_hands(stream, from, &files).await {
                // Where the session has ended, so has the gateway.
                Ok(stream) => drop(given.send((stream, from)).await),
                Err(error) => shared.account.refused_beside(&error.to_string()),
            }
            drop(permit);
        });
    }
}

async fn shake_hands(
    stream: TcpStream,
    from: SocketAddr,
    files: &Mutex<Files>,
) -> Result<Connected, LinkError> {
    let configs = files.lock().await.current()?;
    let of_tls = |error| LinkError::Tls { at: from, error };
    stream.set_nodelay(true).map_err(of_tls)?;
    let late = || Err(io::ErrorKind::TimedOut.into());
    let ends = ends_of(&stream);
    let handshake = timeout(HANDSHAKE, TlsAcceptor::from(configs.server).accept(stream)).await;
    let stream = handshake.unwrap_or_else(|_| late()).map_err(of_tls)?;
    Ok(Connected { stream: Box::new(stream), ends })
}
