//! Addresses of a URL's host. A name is resolved by Linux's resolver, once a minute and again where its addresses have not answered; until
//! the resolver does, those that it gave last are used.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Trouble;

/// Time after which a name is resolved again.
const FRESH: Duration = Duration::from_secs(60);

/// Host of a URL, with the addresses of its name.
pub(crate) struct Named {
    host: String,
    port: u16,
    /// One address of each IP version at most.
    known: Vec<SocketAddr>,
    /// Time of the last resolution.
    resolved: Option<Instant>,
    /// Answer of an address since these were used last.
    answer: Answer,
    /// Resolution under way.
    lookup: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
}

/// Answer of an address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// One has answered, or none was asked.
    Had,
    /// None has answered yet.
    Awaited,
}

impl Named {
    /// A host, which is a name or an address.
    pub(crate) fn new(host: &str, port: u16) -> Named {
        let known = host.parse().map(|address: IpAddr| SocketAddr::new(address, port));
        let (host, known) = (host.to_owned(), known.into_iter().collect());
        Named { host, port, known, resolved: None, answer: Answer::Had, lookup: None }
    }

    /// The addresses, one of each IP version at most.
    ///
    /// # Errors
    /// None are known, and none are found.
    pub(crate) async fn addresses(&mut self) -> Result<Vec<SocketAddr>, Trouble> {
        if self.host.parse::<IpAddr>().is_ok() {
            return Ok(self.known.clone());
        }
        let was_answered = self.answer == Answer::Had;
        self.answer = Answer::Awaited;
        let is_fresh = was_answered && self.resolved.is_some_and(|when| when.elapsed() < FRESH);
        if self.lookup.is_none() && !is_fresh {
            self.lookup = Some(tokio::spawn(resolve(self.host.clone(), self.port)));
        }
        if let Some(lookup) = &mut self.lookup {
            if lookup.is_finished() || self.known.is_empty() {
                let found = lookup.await;
                self.lookup = None;
                if let Ok(Ok(found)) = found {
                    (self.known, self.resolved) = (found, Some(Instant::now()));
                }
            }
        }
        match self.known.is_empty() {
            true => Err(Trouble::Name(self.host.clone())),
            false => Ok(self.known.clone()),
        }
    }

    /// Notes that an address has answered.
    pub(crate) fn answered(&mut self) {
        self.answer = Answer::Had;
    }
}

async fn resolve(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    let first = |v4: bool| found.iter().copied().find(|address| address.is_ipv4() == v4);
    Ok([first(true), first(false)].into_iter().flatten().collect())
}
