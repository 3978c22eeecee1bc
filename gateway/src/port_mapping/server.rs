//! Server of the protocols by which hosts ask: for each address of an interface whose hosts may, sockets that are bound to that interface,
//! so that they hear nobody else.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use wire::ethernet::Mac;
use wire::pcp;

use super::answer::answer;
use super::limit::{Admitted, Limit};
use super::upnp::{self, Announcer, Gateway};
use super::{Ending, Mapper};
use crate::event::Event;

/// Address at which hosts ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// Interface.
    pub(crate) interface: String,
    /// Number of the interface in Linux: another one of the same name takes another socket.
    pub(crate) link: u32,
    /// Address, with the network of its hosts.
    pub(crate) network: Ipv4Net,
    /// Link-layer address of the interface.
    pub(crate) mac: Option<Mac>,
    /// Protocols.
    pub(crate) service: Service,
}

/// Protocols of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// PCP and NAT-PMP.
    Pcp,
    /// UPnP-IGD.
    Upnp,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Pcp => "PCP and NAT-PMP",
            Service::Upnp => "UPnP",
        }
    }

    fn port(self) -> u16 {
        match self {
            Service::Pcp => pcp::PORT,
            Service::Upnp => upnp::PORT,
        }
    }
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

/// Sockets of an address, and who takes leave when they are closed.
struct Open {
    task: JoinHandle<()>,
    announcer: Option<Arc<Announcer>>,
}

/// Opens and closes sockets as the addresses change, until the supervisor has gone.
async fn serve(mut ends: watch::Receiver<Vec<End>>, events: Sender<Event>) {
    let mut open: HashMap<End, Open> = HashMap::new();
    let mut told: Option<String> = None;
    loop {
        let wanted = ends.borrow_and_update().clone();
        let stays = |end: &End, open: &Open| wanted.contains(end) && !open.task.is_finished();
        let (staying, leaving) = open.drain().partition(|(end, open)| stays(end, open));
        open = staying;
        close(leaving).await;
        let mut trouble = None;
        for end in wanted {
            if open.contains_key(&end) {
                continue;
            }
            let (service, address) = (end.service.name(), end.network.addr());
            let port = end.service.port();
            match begin(&end, &events) {
                Ok(begun) => {
                    info!(
                        interface = end.interface,
                        "port mapping: hosts may ask by {service} at {address}:{port}"
                    );
                    open.insert(end, begun);
                }
                Err(error) => {
                    trouble = Some(format!("{address}:{port} on {}, by {service}: {error}", end.interface));
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

/// Closes sockets.
async fn close(leaving: HashMap<End, Open>) {
    for Open { task, announcer } in leaving.into_values() {
        task.abort();
        // Its sockets are closed when it has ended.
        let _ = task.await;
        if let Some(announcer) = announcer {
            announcer.take_leave().await;
        }
    }
}

fn begin(end: &End, events: &Sender<Event>) -> io::Result<Open> {
    let events = events.clone();
    match end.service {
        Service::Pcp => Ok(Open { task: tokio::spawn(listen(bind(end)?, events)), announcer: None }),
        Service::Upnp => {
            let gateway = Gateway::open(end)?;
            let announcer = Some(gateway.announcer());
            Ok(Open { task: tokio::spawn(gateway.serve(events)), announcer })
        }
    }
}

fn bind(end: &End) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(end.interface.as_bytes()))?;
    // The address may come to Linux a moment later.
    socket.set_freebind_v4(true)?;
    socket.bind(&SocketAddr::V4(SocketAddrV4::new(end.network.addr(), pcp::PORT)).into())?;
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
