//! UPnP-IGD: an Internet gateway device at each address of an interface whose hosts may ask, by UPnP Device Architecture 1.1.
//!
//! Discovery goes by UDP, the rest by HTTP, both at port 1900. All sockets are bound to the interface: nobody else is heard, and nothing
//! is sent elsewhere. Hosts are found in the interface's own network alone.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use ipnet::Ipv4Net;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::join;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::limit::{Admitted, Limit};
use super::server::End;
use crate::event::Event;
use crate::server::connection::{self, Bounds};

mod action;
mod device;
mod http;
mod listener;
mod service;
mod soap;
mod ssdp;
mod xml;

use device::Device;
use http::Site;
use listener::Fair;
pub(super) use ssdp::PORT;
use ssdp::{GROUP, Place, Search};

/// Bounds of connections.
const BOUNDS: Bounds = Bounds { most: 64, head: Duration::from_secs(5), stall: Duration::from_secs(10) };

/// Connections that wait to be accepted, at most.
const BACKLOG: i32 = 64;

/// Routers that an announcement may cross (section 1.2.2).
const TTL: u32 = 2;

/// Searches whose answers are under way, at most.
const MOST_SEARCHES: usize = 64;

/// Longest time that answers are spread over: programs wait for two seconds, and there is one gateway.
const SPREAD: Duration = Duration::from_millis(500);

/// Time between the first announcement and its repetition, as one may be lost.
const REPEAT: Duration = Duration::from_millis(300);

/// Devices at an address of an interface.
pub(super) struct Gateway {
    announcer: Arc<Announcer>,
    group: UdpSocket,
    listener: TcpListener,
}

/// Sender of announcements.
pub(super) struct Announcer {
    network: Ipv4Net,
    devices: [Device; 2],
    boot: u32,
    socket: UdpSocket,
}

impl Gateway {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Refusal by the system: another program has the port.
    pub(super) fn open(end: &End) -> io::Result<Gateway> {
        let address = end.network.addr();
        let group = socket(end, Type::DGRAM, Protocol::UDP)?;
        // Every address of the interface has one.
        group.set_reuse_address(true)?;
        group.bind(&SocketAddr::V4(SocketAddrV4::new(GROUP, PORT)).into())?;
        group.join_multicast_v4_n(&GROUP, &InterfaceIndexOrAddress::Index(end.link))?;
        let own = socket(end, Type::DGRAM, Protocol::UDP)?;
        own.set_multicast_ttl_v4(TTL)?;
        own.set_multicast_loop_v4(false)?;
        own.bind(&SocketAddr::V4(SocketAddrV4::new(address, PORT)).into())?;
        let listener = socket(end, Type::STREAM, Protocol::TCP)?;
        listener.set_reuse_address(true)?;
        listener.bind(&SocketAddr::V4(SocketAddrV4::new(address, PORT)).into())?;
        listener.listen(BACKLOG)?;
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let announcer = Announcer {
            network: end.network,
            devices: Device::of(end),
            // Of 31 bits.
            boot: seconds.map_or(1, |since| since.as_secs() as u32 & 0x7fff_ffff),
            socket: UdpSocket::from_std(own.into())?,
        };
        Ok(Gateway {
            announcer: Arc::new(announcer),
            group: UdpSocket::from_std(group.into())?,
            listener: TcpListener::from_std(listener.into())?,
        })
    }

    /// Sender of announcements, to take leave by.
    pub(super) fn announcer(&self) -> Arc<Announcer> {
        Arc::clone(&self.announcer)
    }

    /// Serves hosts without end.
    pub(super) async fn serve(self, events: Sender<Event>) {
        let Gateway { announcer, group, listener } = self;
        let address = announcer.network.addr();
        let site =
            Arc::new(Site { address, devices: announcer.devices.clone(), events, patience: http::PATIENCE });
        join!(
            announcer.announce(),
            announcer.hear(&group),
            announcer.hear(&announcer.socket),
            connection::serve(Fair::new(listener), BOUNDS, move |_, host| http::router(
                Arc::clone(&site),
                *host
            )),
        );
    }
}

fn socket(end: &End, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(end.interface.as_bytes()))?;
    // The address may come to Linux a moment later.
    socket.set_freebind_v4(true)?;
    Ok(socket)
}

impl Announcer {
    /// Announces the devices, again and again before the last announcement is out of date.
    async fn announce(&self) {
        self.notify(|place, name| place.alive(name)).await;
        sleep(REPEAT + jitter(REPEAT)).await;
        loop {
            self.notify(|place, name| place.alive(name)).await;
            // In less than half of its time (section 1.2.2).
            sleep(ssdp::MAX_AGE / 4 + jitter(ssdp::MAX_AGE / 8)).await;
        }
    }

    /// Announces that the devices are gone.
    pub(super) async fn take_leave(&self) {
        self.notify(|place, name| place.gone(name)).await;
    }

    async fn notify(&self, text: impl Fn(&Place<'_>, &ssdp::Name) -> String) {
        for device in &self.devices {
            for name in ssdp::names(device) {
                let text = text(&self.place(device), &name);
                // A carrier that is down hears nothing.
                let _ = self.socket.send_to(text.as_bytes(), (GROUP, PORT)).await;
            }
        }
    }

    fn place<'a>(&self, device: &'a Device) -> Place<'a> {
        Place { device, address: self.network.addr(), boot: self.boot }
    }

    /// Answers searches.
    async fn hear(self: &Arc<Self>, socket: &UdpSocket) {
        let mut bytes = [0; ssdp::LONGEST];
        let mut limit = Limit::new(Instant::now());
        let mut under_way = JoinSet::new();
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
            let is_near = self.network.contains(&host) && host != self.network.addr();
            if !is_near || limit.admit(host, Instant::now()) == Admitted::No {
                continue;
            }
            while under_way.try_join_next().is_some() {}
            let Some(search) = Search::parse(&bytes[..len]) else { continue };
            if under_way.len() < MOST_SEARCHES {
                under_way.spawn(Arc::clone(self).answer(search, from));
            }
        }
    }

    async fn answer(self: Arc<Self>, search: Search, to: SocketAddr) {
        let devices = self.devices.iter();
        let found = devices.map(|device| (device, ssdp::found(device, &search)));
        let found: Vec<_> = found.filter(|(_, names)| !names.is_empty()).collect();
        if found.is_empty() {
            return;
        }
        sleep(jitter(search.wait.min(SPREAD))).await;
        for (device, names) in found {
            for name in names {
                let _ = self.socket.send_to(self.place(device).answer(&name).as_bytes(), to).await;
            }
        }
    }
}

/// A time below a bound, by chance: so that not all devices answer at once. No secret hangs on it.
fn jitter(bound: Duration) -> Duration {
    bound.mul_f64(RandomState::new().hash_one(0) as u32 as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_by_chance_are_within_their_bound_and_differ() {
        let times: Vec<Duration> = (0..100).map(|_| jitter(SPREAD)).collect();
        assert!(times.iter().all(|time| *time <= SPREAD));
        assert!(times.iter().any(|time| *time != times[0]));
    }
}
