//! Addresses and ports of generated flows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dataplane::Tables;
use dataplane::tables::{Address, VrfId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tally::NoTally;
use wire::PortId;
use wire::ethernet::{self, EtherType};
use wire::header::Ports;
use wire::{ipv4, ipv6};

use super::TrafficError;
use super::stream::{Flows, Stream};

/// Both ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: Ports,
}

impl Ends {
    /// Returns the ends of a frame that carries UDP or TCP.
    pub(super) fn of(frame: &[u8]) -> Option<Ends> {
        let layer = ethernet::parse(frame).ok()?;
        let (source, destination, transport): (IpAddr, IpAddr, _) = match layer.ethertype {
            EtherType::IPV4 => {
                let header = ipv4::Header::of(layer.payload)?;
                (header.src().into(), header.dst().into(), layer.payload.get(header.header_len()..)?)
            }
            EtherType::IPV6 => {
                let header = ipv6::Header::of(layer.payload)?;
                (header.src().into(), header.dst().into(), layer.payload.get(40..)?)
            }
            _ => return None,
        };
        Some(Ends { source, destination, ports: Ports::of(transport)? })
    }

    /// Returns the ends of the answer: source and destination exchanged.
    pub(super) fn turned(self) -> Ends {
        let ports = Ports { sport: self.ports.dport, dport: self.ports.sport };
        Ends { source: self.destination, destination: self.source, ports }
    }
}

/// Addresses and ports of each flow.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    sources: Hosts,
    destinations: Hosts,
    dport: u16,
}

/// Hosts of each side: a prime number, so that a count round both sides meets every pair.
const HOSTS: u64 = 251;

/// The first source port, and how many there are: none that a service has.
const SPORTS: (u16, u64) = (1024, 64_000);

/// Networks without hosts: for benchmarks (RFC 2544, RFC 5180) and documentation (RFC 5737, RFC 3849).
const NOBODY4: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
];
const NOBODY6: [(Ipv6Addr, u8); 2] = [
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 0), 48),
];

impl Addresses {
    /// Chooses the addresses of a stream.
    pub(super) fn choose(
        stream: &Stream,
        from: PortId,
        to: PortId,
        tables: &Tables,
    ) -> Result<Addresses, TrafficError> {
        let wants6 = stream.source.or(stream.destination).map(|net| matches!(net, IpNet::V6(_)));
        let sources = match stream.source {
            Some(net) => Hosts::of(net, tables),
            None => {
                let own = tables.interface(from).map_or(&[][..], |interface| &interface.networks);
                let fits = |net: &&IpNet| wants6.is_none_or(|wants6| matches!(net, IpNet::V6(_)) == wants6);
                // IPv4 first, where nothing says otherwise.
                let mut own: Vec<&IpNet> =
                    own.iter().filter(fits).filter(|net| !is_link_local(net)).collect();
                own.sort_by_key(|net| matches!(net, IpNet::V6(_)));
                own.into_iter().find_map(|net| Hosts::of(*net, tables))
            }
        };
        let sources = sources.ok_or_else(|| TrafficError::NoSource { from: stream.from.clone() })?;
        let destinations = match stream.destination {
            Some(net) if net.prefix_len() == net.max_prefix_len() => {
                Some(Hosts { first: Address::from(net.addr()), count: 1, own: Vec::new() })
            }
            Some(net) => Hosts::of(net, tables),
            None => {
                let v6 = sources.first.v6;
                let nobody4 = NOBODY4.iter().filter_map(|(addr, len)| Ipv4Net::new(*addr, *len).ok());
                let nobody6 = NOBODY6.iter().filter_map(|(addr, len)| Ipv6Net::new(*addr, *len).ok());
                let linked = tables.interface(to).map_or(&[][..], |interface| &interface.networks);
                let linked = linked.iter().copied().filter(|net| !is_link_local(net));
                nobody4
                    .map(IpNet::V4)
                    .chain(nobody6.map(IpNet::V6))
                    .chain(linked)
                    .filter(|net| matches!(net, IpNet::V6(_)) == v6)
                    .filter_map(|net| Hosts::of(net, tables))
                    .find(|hosts| {
                        (0..hosts.count).all(|host| {
                            let target = tables.route(VrfId::DEFAULT, hosts.host(host), &mut NoTally);
                            target.is_some_and(|target| tables.leads_by(target, to))
                        })
                    })
            }
        };
        let destinations =
            destinations.ok_or_else(|| TrafficError::NoDestination { to: stream.to.clone() })?;
        if sources.first.v6 != destinations.first.v6 {
            let net = |hosts: &Hosts| IpNet::from(hosts.host(0).to_ip());
            return Err(TrafficError::Families {
                from: stream.source.unwrap_or_else(|| net(&sources)),
                to: stream.destination.unwrap_or_else(|| net(&destinations)),
            });
        }
        let addresses = Addresses { sources, destinations, dport: stream.dport };
        match stream.flows {
            Flows::Fixed(flows) if u64::from(flows) > addresses.most() => {
                Err(TrafficError::TooManyFlows { flows, most: addresses.most() })
            }
            _ => Ok(addresses),
        }
    }

    /// Number of flows that can be told apart.
    pub(super) fn most(&self) -> u64 {
        self.sources.count * self.destinations.count * SPORTS.1
    }

    /// True if they are of IPv6.
    pub(super) fn are_v6(&self) -> bool {
        self.sources.first.v6
    }

    /// The ends of a flow's first packet. No two flows have the same, of as many as can be told apart.
    pub(super) fn of(&self, flow: u64) -> Ends {
        let (host, round) = (flow % self.sources.count, flow / self.sources.count);
        let (sport, turn) = (round % SPORTS.1, round / SPORTS.1);
        Ends {
            source: self.sources.host(host).to_ip(),
            destination: self.destinations.host((turn + host) % self.destinations.count).to_ip(),
            ports: Ports { sport: SPORTS.0 + sport as u16, dport: self.dport },
        }
    }
}

/// Successive addresses.
#[derive(Clone, Debug)]
struct Hosts {
    first: Address,
    count: u64,
    /// Addresses among them that are the gateway's own, by their distance from the first.
    own: Vec<u64>,
}

impl Hosts {
    /// Hosts of a network, the gateway's own addresses left out; `None` if it has none.
    fn of(net: IpNet, tables: &Tables) -> Option<Hosts> {
        let first = Address::from(net.network());
        let bits = u32::from(net.max_prefix_len() - net.prefix_len());
        let room = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
        // Neither the network's own address nor its broadcast address is a host's, but on point-to-point links.
        let (skip, room) = if room > 2 { (1, room - 2) } else { (0, room) };
        let first = Address { bits: first.bits + skip, v6: first.v6 };
        let mut own: Vec<u64> = tables
            .interfaces
            .iter()
            .flat_map(|interface| &interface.networks)
            .map(|net| Address::from(net.addr()))
            .filter(|own| own.v6 == first.v6 && own.bits >= first.bits)
            .filter_map(|own| u64::try_from(own.bits - first.bits).ok())
            .filter(|distance| *distance < room.min(2 * HOSTS))
            .collect();
        own.sort_unstable();
        own.dedup();
        let count = room.saturating_sub(own.len() as u64).min(HOSTS);
        (count > 0).then_some(Hosts { first, count, own })
    }

    fn host(&self, number: u64) -> Address {
        let mut at = number;
        for own in &self.own {
            at += u64::from(*own <= at);
        }
        Address { bits: self.first.bits + u128::from(at), v6: self.first.v6 }
    }
}

fn is_link_local(net: &IpNet) -> bool {
    match net.addr() {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}
