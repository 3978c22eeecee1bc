//! `wirerate generate traffic`: traffic to try a policy on.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dataplane::replay::{Way, Witness};
use dataplane::{Replay, Tables, Verdict};
use ipnet::{IpNet, Ipv4Net};
use policy::Policy;
use policy::model::{AddressItem, Balance, Interface, NatAction, NextHop, Protocol, RouteTarget};
use replay::capture::default_route;
use traffic::{Host, Link, Office, Settings, Side};
use wire::capture::{PcapngWriter, Record};
use wire::ethernet::Mac;
use wire::{Frame, LinkKind, Nanos, PortId};

use crate::failure::{Exit, Failure, OutputError, PolicyError, UsageError};
use crate::output::file_name;
use crate::policy_file::{self, Loaded};
use crate::progress::{Progress, Unit};
use crate::{screen, with_exit_codes};

/// Make captures of traffic as it would enter the gateway
///
/// Hosts and servers answer what really reaches them through the policy: replies go where its NAT wants them,
/// refused connections stay refused. The same policy, seed and length give the same bytes.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate generate traffic --seconds 60 --out out \\
    --policy policies/home-office.toml
  wirerate replay policies/home-office.toml out/lan.pcapng out/wan.pcapng

DIR/IFACE.pcapng holds what enters by the inside and by the outside interface."))]
pub(super) struct Traffic {
    /// What kind of traffic
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    like: Like,

    /// How long it lasts
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,

    /// What everything random follows from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// The policy of the gateway that it passes
    #[arg(long, value_name = "POLICY")]
    policy: PathBuf,

    /// The inside interface; otherwise the first one whose traffic is masqueraded, or whose network has room for machines
    #[arg(long, value_name = "IFACE")]
    lan: Option<String>,

    /// The outside interface; otherwise that of the default route, or without one the last that a route leads by
    #[arg(long, value_name = "IFACE")]
    wan: Option<String>,

    /// The directory to write to
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Kinds of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Like {
    /// A dozen machines: name look-ups, web, mail, calls, transfers, printers, and attacks from outside
    #[default]
    Office,
}

impl Traffic {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Loaded { file, policy, tables, .. } = policy_file::load(&self.policy)?;
        let sides = self.sides(&policy, &tables)?;
        let settings = match self.like {
            Like::Office => self.office(&policy, &tables, sides)?,
        };
        fs::create_dir_all(&self.out)
            .map_err(|error| OutputError::Write { path: self.out.clone(), error })?;
        let name = |port: PortId| tables.interface(port).map_or("", |interface| &interface.name);
        let create = |port: PortId| -> Result<PcapngWriter, Failure> {
            let mut writer = PcapngWriter::create(self.out.join(file_name(name(port))))?;
            let kind = tables.interface(port).map_or(LinkKind::Ethernet, |interface| interface.link);
            writer.interface_of(name(port), kind)?;
            Ok(writer)
        };
        let (mut lan, mut wan) = (create(sides.lan)?, create(sides.wan)?);
        let (start, duration) = (settings.start, settings.duration);
        let mut world = World { office: Office::new(settings), sides };
        let names = [name(sides.lan).to_owned(), name(sides.wan).to_owned()];
        let mut replay =
            Replay::new(tables, start, Way::Run).map_err(|error| PolicyError::Setup { file, error })?;
        let mut progress = Progress::new("generate", Unit::Packet, duration.0);
        let mut entered = [0u64; 2];
        let mut number: u32 = 0;
        while let Some(packet) = world.office.next() {
            let (writer, port) = match packet.side {
                Side::Lan => (&mut lan, sides.lan),
                Side::Wan => (&mut wan, sides.wan),
            };
            entered[packet.side as usize] += 1;
            writer.write(&Record::new(packet.at, &packet.bytes))?;
            replay.receive(port, packet.at, number, &packet.bytes, &mut world);
            // One by one: what goes out may be answered before the next packet comes.
            replay.flush(&mut world);
            number = number.wrapping_add(1);
            progress.step(packet.at.since(start).0);
        }
        lan.finish()?;
        wan.finish()?;
        progress.finish();
        let mut out = screen::out();
        for (name, packets) in names.iter().zip(entered) {
            let path = self.out.join(file_name(name));
            writeln!(out, "{}: {}", path.display(), screen::count(packets, "packet", "packets"))?;
        }
        Ok(Exit::Done)
    }

    /// The inside and the outside interface.
    fn sides(&self, policy: &Policy, tables: &Tables) -> Result<Sides, Failure> {
        let named = |name: &String| {
            tables.interface_named(name).ok_or_else(|| UsageError::NoInterface {
                name: name.clone(),
                known: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            })
        };
        let wan = match &self.wan {
            Some(name) => named(name)?,
            None => default_route(tables, false)
                .or_else(|| default_route(tables, true))
                .or_else(|| last_routed(policy))
                .ok_or(PolicyError::Lacks {
                    what: "route to an outside",
                    hint: "name the outside interface with --wan",
                })?,
        };
        let lan = match &self.lan {
            Some(name) => named(name)?,
            None => {
                let inside = |(place, interface): &(usize, &Interface)| {
                    *place != usize::from(wan.0) && v4_of(interface).is_some()
                };
                let masqueraded = |(_, interface): &(usize, &Interface)| is_masqueraded(interface, policy);
                let roomy = |(_, interface): &(usize, &Interface)| {
                    v4_of(interface).is_some_and(|own| !hosts(own, None, interface).is_empty())
                };
                let candidates = || policy.interfaces.iter().enumerate().filter(inside);
                let chosen = candidates().find(masqueraded).or_else(|| candidates().find(roomy));
                let (place, _) = chosen.or_else(|| candidates().next()).ok_or(PolicyError::Lacks {
                    what: "second interface with an IPv4 address",
                    hint: "add an interface for the inside",
                })?;
                PortId(place as u16)
            }
        };
        Ok(Sides { lan, wan })
    }

    /// An office behind the policy's gateway.
    fn office(&self, policy: &Policy, tables: &Tables, sides: Sides) -> Result<Settings, Failure> {
        let standard = Settings::default();
        let link = |port: PortId, neighbour| -> Result<Link, Failure> {
            let own = policy.interfaces.get(usize::from(port.0));
            let refused = |why, hint| PolicyError::NoTraffic {
                interface: own.map_or_else(String::new, |own| own.name.clone()),
                why,
                hint,
            };
            if own.is_some_and(|own| own.esp.is_some()) {
                return Err(refused(
                    "it is a tunnel, whose far end alone can answer what leaves encrypted",
                    "choose other interfaces with --lan and --wan; `wirerate chip run` makes streams for tunnels: 'lan>TUNNEL,size=imix'",
                )
                .into());
            }
            let hint = "add one, or choose other interfaces with --lan and --wan; `wirerate chip run` makes streams without one: 'lan>wan,size=imix'";
            let v4 = own.and_then(v4_of).ok_or_else(|| refused("it has no IPv4 address", hint))?;
            let mac = tables.interface(port).map_or(Mac::ZERO, |interface| interface.mac);
            Ok(Link { mac, v4, v6: own.and_then(v6_of), neighbour })
        };
        let router = tables
            .neighbours
            .iter()
            .find(|neighbour| neighbour.interface == sides.wan)
            .map_or(standard.wan.neighbour, |neighbour| neighbour.mac);
        let (lan, wan) = (link(sides.lan, Mac::ZERO)?, link(sides.wan, router)?);
        let v6 = lan.v6.and(wan.v6);
        let outside = if default_route(tables, false).is_some() { None } else { beyond(policy, sides.wan) };
        let inside = &policy.interfaces[usize::from(sides.lan.0)];
        let hosts = hosts(lan.v4, lan.v6.filter(|_| v6.is_some()), inside);
        if hosts.is_empty() {
            return Err(PolicyError::NoTraffic {
                interface: inside.name.clone(),
                why: "its network has no address for a machine beside the gateway",
                hint: "choose another inside with --lan, or give it a wider network; `wirerate chip run` makes streams without machines: 'lan>wan,size=imix'",
            }
            .into());
        }
        Ok(Settings {
            seed: self.seed,
            duration: Nanos::from_secs(u64::from(self.seconds)),
            lan,
            wan,
            hosts,
            published: published(policy),
            servers_v4: outside.unwrap_or_else(|| apart(policy, sides.wan, standard.servers_v4)),
            ..standard
        })
    }
}

/// Inside and outside interfaces.
#[derive(Clone, Copy)]
struct Sides {
    lan: PortId,
    wan: PortId,
}

/// The world around the gateway, which answers what comes out.
struct World {
    office: Office,
    sides: Sides,
}

impl Witness for World {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        let side = if port == self.sides.lan {
            Side::Lan
        } else if port == self.sides.wan {
            Side::Wan
        } else {
            return;
        };
        self.office.arrived(side, at, frame.bytes());
    }

    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

fn v4_of(interface: &Interface) -> Option<Ipv4Addr> {
    interface.addresses.iter().find_map(|network| match network.addr() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    })
}

fn v6_of(interface: &Interface) -> Option<Ipv6Addr> {
    interface.addresses.iter().find_map(|network| match network.addr() {
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 != 0xfe80 => Some(v6),
        _ => None,
    })
}

/// The widest IPv4 network that a route leads to by an interface, where servers have room.
fn routed_by(policy: &Policy, place: usize) -> Option<Ipv4Net> {
    let interface = policy.interfaces.get(place)?;
    let is_by = |hop: &NextHop| match (&hop.interface, hop.via) {
        (Some(name), _) => *name == interface.name,
        (None, via) => via.is_some_and(|via| interface.addresses.iter().any(|own| own.contains(&via))),
    };
    let networks = policy.routes.iter().filter_map(|route| match (route.destination, &route.target) {
        (IpNet::V4(network), RouteTarget::Via(hops)) if hops.iter().any(is_by) => Some(network),
        _ => None,
    });
    let is_wan = policy.wans.iter().any(|wan| wan.interface == interface.name);
    let shared = is_wan.then(Ipv4Net::default);
    networks.chain(shared).filter(|network| network.prefix_len() <= 24).min_by_key(Ipv4Net::prefix_len)
}

/// The last interface with an IPv4 address that a route leads by.
fn last_routed(policy: &Policy) -> Option<PortId> {
    let routed = |place: &usize| {
        routed_by(policy, *place).is_some()
            && policy.interfaces.get(*place).is_some_and(|of| v4_of(of).is_some())
    };
    (0..policy.interfaces.len()).rev().find(routed).map(|place| PortId(place as u16))
}

/// The first address of servers behind the routes of an interface.
fn beyond(policy: &Policy, wan: PortId) -> Option<Ipv4Addr> {
    let network = routed_by(policy, usize::from(wan.0))?;
    Some(Ipv4Addr::from_bits(network.network().to_bits() | 1))
}

/// The usual first address of servers, or another one where that is in a network behind the gateway.
fn apart(policy: &Policy, wan: PortId, usual: Ipv4Addr) -> Ipv4Addr {
    let others = [Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(198, 18, 0, 1)];
    let behind = |first: &Ipv4Addr| {
        let interfaces =
            policy.interfaces.iter().enumerate().filter(|(place, _)| *place != usize::from(wan.0));
        interfaces.flat_map(|(_, of)| &of.addresses).any(|network| network.contains(&IpAddr::V4(*first)))
    };
    [usual].into_iter().chain(others).find(|first| !behind(first)).unwrap_or(usual)
}

/// True if a translation hides what comes in by an interface.
fn is_masqueraded(interface: &Interface, policy: &Policy) -> bool {
    policy.nats.iter().any(|nat| {
        let hides = matches!(nat.action, NatAction::Masquerade { .. } | NatAction::Source { .. });
        let from = nat.from.is_empty() || nat.from.contains(&interface.zone);
        let source = nat.source.items.is_empty()
            || nat.source.items.iter().any(|item| match item {
                AddressItem::Range(range) => {
                    interface.addresses.iter().any(|network| range.contains(network.addr()))
                }
                AddressItem::Set(_) => true,
            });
        hides && from && source
    })
}

/// A dozen machines on the inside network, from its tenth address on where it is large enough.
fn hosts(own: Ipv4Addr, own6: Option<Ipv6Addr>, interface: &Interface) -> Vec<Host> {
    let network = interface.addresses.iter().find(|network| network.addr() == IpAddr::V4(own));
    let room = network
        .map_or(0, |network| 1u32.checked_shl(32 - u32::from(network.prefix_len())).unwrap_or(u32::MAX));
    let base = match network.map(IpNet::network) {
        Some(IpAddr::V4(base)) => base.to_bits(),
        _ => own.to_bits(),
    };
    let first = if room >= 32 { 10 } else { 1 };
    // Neither the network's own address nor its broadcast address is a host's.
    let count = room.saturating_sub(first + 1).min(12) as u16;
    let first6 = own6.map(|v6| Ipv6Addr::from_bits(v6.to_bits() & !0xffff | 0x10));
    let mut hosts = Host::successive(count, Ipv4Addr::from_bits(base.wrapping_add(first)), first6);
    hosts.retain(|host| host.v4 != own && host.v6.is_none_or(|v6| Some(v6) != own6));
    hosts
}

/// TCP ports that the policy forwards.
fn published(policy: &Policy) -> Vec<u16> {
    let mut ports = Vec::new();
    for nat in &policy.nats {
        let tcp = nat.protocols.is_empty() || nat.protocols.contains(&Protocol::TCP);
        let forwarded = match &nat.action {
            NatAction::Forward { ports, target: IpAddr::V4(_), .. } => ports,
            NatAction::Balance(Balance { ports, servers, .. })
                if servers.iter().any(|server| server.address.is_ipv4()) =>
            {
                ports
            }
            _ => continue,
        };
        if tcp {
            ports.extend(forwarded.iter().map(|range| range.first));
        }
    }
    ports
}
