//! Server of PCP and NAT-PMP: a socket for each address of an interface whose hosts may ask, bound to that interface, so that it hears
//! nobody else.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use wire::pcp;

use super::answer::answer;
use super::limit::{Admitted, Limit};
use super::{Ending, Mapper};
use crate::event::Event;

/// Address at which hosts ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// Interface.
    pub(crate) interface: String,
    /// Number of the interface in Linux: another one of the same name takes another socket.
    pub(crate) link: u32,
    /// Address.
    pub(crate) address: Ipv4Addr,
}

/// Time after which a socket that could not be opened is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Running server; none until hosts may ask for the first time.
#[derive(Default)]
pub(crate) struct Server {
    ends: Option<watch::Sender<Vec<End>>>,
}

impl Server {
    /// Has the server listen at these addresses, and at no others.
    pub(crate) fn follow(&mut self, ends: Vec<End>, events: &Sender<Event>) {
        if let Some(known) = &self.ends {
            known.send_if_modified(|known| {
                let is_other = *known != ends;
                *known = ends;
                is_other
            });
            return;
        }
        if ends.is_empty() {
            return;
        }
        let (sender, receiver) = watch::channel(ends);
        let events = events.clone();
        let serve = move || -> io::Result<()> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve(receiver, events));
            Ok(())
        };
        let name = "port mapping".to_owned();
        let started = thread::Builder::new().name(name).spawn(move || {
            if let Err(error) = serve() {
                warn!("hosts cannot ask for port mappings: {error}");
            }
        });
        match started {
            Ok(_) => self.ends = Some(sender),
            Err(error) => warn!("hosts cannot ask for port mappings: {error}"),
        }
    }
}

/// Opens and closes sockets as the addresses change, until the supervisor has gone.
async fn serve(mut ends: watch::Receiver<Vec<End>>, events: Sender<Event>) {
    let mut open: HashMap<End, JoinHandle<()>> = HashMap::new();
    let mut told: Option<String> = None;
    loop {
        let wanted = ends.borrow_and_update().clone();
        open.retain(|end, task| {
            let stays = wanted.contains(end) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        let mut trouble = None;
        for end in wanted {
            if open.contains_key(&end) {
                continue;
            }
            match bind(&end) {
                Ok(socket) => {
                    info!(
                        interface = end.interface,
                        "port mapping: hosts may ask at {}:{}",
                        end.address,
                        pcp::PORT
                    );
                    let task = tokio::spawn(listen(socket, events.clone()));
                    open.insert(end, task);
                }
                Err(error) => {
                    trouble = Some(format!("{}:{} on {}: {error}", end.address, pcp::PORT, end.interface));
                }
            }
        }
        if let Some(trouble) = trouble.as_ref().filter(|trouble| told.as_ref() != Some(trouble)) {
            warn!("hosts cannot ask for port mappings at {trouble}; tried again");
        }
        told = trouble;
        let changed = match told {
            Some(_) => timeout(AGAIN, ends.changed()).await.unwrap_or(Ok(())),
            None => ends.changed().await,
        };
        if changed.is_err() {
            return;
        }
    }
}

fn bind(end: &End) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(end.interface.as_bytes()))?;
    // The address may come to Linux a moment later.
    socket.set_freebind_v4(true)?;
    socket.bind(&SocketAddr::V4(SocketAddrV4::new(end.address, pcp::PORT)).into())?;
    UdpSocket::from_std(socket.into())
}

/// Answers requests, one after the other.
async fn listen(socket: UdpSocket, events: Sender<Event>) {
    let mut bytes = [0; pcp::LONGEST + 4];
    let mut limit = Limit::new(Instant::now());
    loop {
        let (len, from) = match socket.recv_from(&mut bytes).await {
            Ok(received) => received,
            // A port unreachable of an answer before, or no memory.
            Err(_) => {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let IpAddr::V4(host) = from.ip() else { continue };
        if limit.admit(host, Instant::now()) == Admitted::No {
            continue;
        }
        let answered = match Mapper::ask(&events).await {
            Ok(mapper) => answer(&bytes[..len], host, &mapper).await,
            Err(Ending) => return,
        };
        // A worker that has ended has another in its place: the host asks again.
        if let Ok(Some(response)) = answered {
            let _ = socket.send_to(&response, from).await;
        }
    }
}
