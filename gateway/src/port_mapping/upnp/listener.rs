//! Connections of hosts: so many of each at once, and so many in a second.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::port_mapping::limit::{Admitted, Limit};

/// Connections of one host at once, at most.
const OF_ONE: u32 = 8;

/// Listener that closes what is more than a host's share.
pub(super) struct Fair {
    listener: TcpListener,
    limit: Limit,
    open: Open,
}

/// Connections that are open, by host.
type Open = Arc<Mutex<HashMap<Ipv4Addr, u32>>>;

/// A host's connection.
pub(super) struct Connection {
    stream: TcpStream,
    _place: Place,
}

/// One of a host's connections, until it is dropped.
struct Place {
    host: Ipv4Addr,
    open: Open,
}

impl Fair {
    pub(super) fn new(listener: TcpListener) -> Fair {
        Fair { listener, limit: Limit::new(Instant::now()), open: Open::default() }
    }
}

impl Listener for Fair {
    type Io = Connection;
    type Addr = Ipv4Addr;

    async fn accept(&mut self) -> (Connection, Ipv4Addr) {
        loop {
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // No descriptors, or a connection that has gone meanwhile.
                Err(_) => {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let IpAddr::V4(host) = from.ip() else { continue };
            if self.limit.admit(host, Instant::now()) == Admitted::No {
                continue;
            }
            if let Some(place) = Place::take(host, &self.open) {
                return (Connection { stream, _place: place }, host);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Ipv4Addr> {
        match self.listener.local_addr()? {
            SocketAddr::V4(own) => Ok(*own.ip()),
            SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }
}

impl Place {
    fn take(host: Ipv4Addr, open: &Open) -> Option<Place> {
        let mut all = open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.entry(host).or_default();
        if *own >= OF_ONE {
            return None;
        }
        *own += 1;
        Some(Place { host, open: Arc::clone(open) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get_mut(&self.host) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.host);
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_share_and_gets_it_back() {
        let (one, other) = (Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(192, 168, 1, 20));
        let open = Open::default();
        let mut places: Vec<Place> = (0..OF_ONE).filter_map(|_| Place::take(one, &open)).collect();
        assert_eq!(places.len(), OF_ONE as usize);
        assert!(Place::take(one, &open).is_none());
        let _another = Place::take(other, &open).unwrap();
        places.pop();
        assert!(Place::take(one, &open).is_some());
        drop(places);
        assert_eq!(open.lock().unwrap().len(), 1, "nobody is remembered");
    }
}
