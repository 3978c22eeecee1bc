//! Interfaces of this machine, and the SSH session that the command is typed in.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use gateway::linux::interface::{Condition, Link, LinkIndex};
use gateway::linux::route::{Hop, Object, Target};
use gateway::linux::{Error, State, snapshot};
use ipnet::IpNet;
use policy::model::LinkKind;

/// Hardware types of Linux (`ARPHRD_*`): Ethernet and the loopback.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

/// Flag of an address without a lifetime (`IFA_F_PERMANENT`); those of DHCP and router advertisements have one.
const PERMANENT: u32 = 0x80;

/// Kinds of links that other programs keep for themselves, unless they lead to the internet.
const OF_PROGRAMS: [&str; 8] = ["wireguard", "dummy", "ifb", "vxlan", "tun", "ipip", "gre", "sit"];

/// Beginnings of names of interfaces that other programs keep for themselves.
const NAMES_OF_PROGRAMS: [&str; 12] = [
    "docker",
    "br-",
    "virbr",
    "vnet",
    "veth",
    "cni",
    "flannel",
    "cali",
    "lxcbr",
    "lxdbr",
    "podman",
    "tailscale",
];

/// Machine, as far as a first policy depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Interfaces other than the loopback, by name.
    pub(crate) interfaces: Vec<Interface>,
    /// SSH session of the caller, if the command was typed in one.
    pub(crate) session: Option<Session>,
}

/// Interface of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Name.
    pub(crate) name: String,
    /// First header of its packets.
    pub(crate) link: LinkKind,
    /// Kind of virtual link, such as `vlan` or `bridge`; empty for hardware.
    pub(crate) kind: String,
    /// VLAN, if the interface is one and Linux says of what.
    pub(crate) vlan: Option<Vlan>,
    /// Bridge or bond that the interface is a port of.
    pub(crate) master: Option<String>,
    /// State.
    pub(crate) condition: Condition,
    /// Addresses beyond the link's own scope.
    pub(crate) addresses: Vec<Address>,
    /// Default routes by the interface.
    pub(crate) defaults: Vec<DefaultRoute>,
}

/// Address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Address, with the prefix length of its network.
    pub(crate) net: IpNet,
    /// Origin.
    pub(crate) origin: Origin,
}

/// Origin of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Configured.
    Static,
    /// Learnt for a while, by DHCP or router advertisements.
    Learnt,
}

/// Default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DefaultRoute {
    /// IPv6 rather than IPv4.
    pub(crate) version: Version,
    /// Metric: the lower is preferred.
    pub(crate) metric: u32,
    /// Router; none on links without any.
    pub(crate) via: Option<IpAddr>,
}

/// IP version of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// VLAN of a parent interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vlan {
    /// Parent interface.
    pub(crate) parent: String,
    /// Identifier, 1 to 4094.
    pub(crate) id: u16,
}

/// SSH session: the client's address, and the port that the server was reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// Address of the client.
    pub(crate) client: IpAddr,
    /// Port of the server.
    pub(crate) port: u16,
}

impl Machine {
    /// Reads this machine.
    ///
    /// # Errors
    /// Linux does not list its interfaces.
    pub(crate) fn read() -> Result<Machine, Error> {
        let vlans = fs::read_to_string("/proc/net/vlan/config").unwrap_or_default();
        Ok(Machine { interfaces: interfaces(&snapshot()?, &self::vlans(&vlans)), session: session() })
    }

    /// Returns the interface named `name`.
    pub(crate) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}

impl Interface {
    /// True if another program made the interface for its own purposes.
    pub(crate) fn is_of_a_program(&self) -> bool {
        OF_PROGRAMS.contains(&self.kind.as_str())
            || NAMES_OF_PROGRAMS.iter().any(|begin| self.name.starts_with(begin))
    }

    /// True if an address is on a network of the interface.
    pub(crate) fn has_on_link(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.net.contains(&address))
    }

    /// Preference as the way to the internet: the greatest is first. IPv4 comes before IPv6, then the lowest metric counts.
    pub(crate) fn preference(&self) -> Option<Reverse<DefaultRoute>> {
        self.defaults.iter().min().copied().map(Reverse)
    }
}

/// Interfaces of a state of Linux, by name; `vlans` are the VLANs among them.
pub(crate) fn interfaces(state: &State, vlans: &BTreeMap<String, Vlan>) -> Vec<Interface> {
    let routes = default_routes(state);
    let named = |index: LinkIndex| state.links.get(&index).map(|link| link.name.clone());
    let mut interfaces: Vec<Interface> = state
        .links
        .iter()
        .filter(|(_, link)| link.hardware != LOOPBACK)
        .map(|(&index, link)| Interface {
            name: link.name.clone(),
            link: if link.hardware == ETHERNET { LinkKind::Ethernet } else { LinkKind::Ip },
            kind: link.kind.clone(),
            vlan: vlans.get(&link.name).filter(|vlan| is_vlan_of(link, vlan, named)).cloned(),
            master: link.master.and_then(named),
            condition: link.condition,
            addresses: state
                .addresses
                .iter()
                .filter(|(key, _)| key.link == index && !is_link_local(key.net.addr()))
                .map(|(key, address)| Address {
                    net: key.net,
                    origin: if address.flags & PERMANENT != 0 { Origin::Static } else { Origin::Learnt },
                })
                .collect(),
            defaults: routes.get(&index).cloned().unwrap_or_default(),
        })
        .collect();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    interfaces
}

fn is_vlan_of(link: &Link, vlan: &Vlan, named: impl Fn(LinkIndex) -> Option<String>) -> bool {
    link.kind == "vlan" && link.parent.and_then(named).as_ref() == Some(&vlan.parent)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Default routes of the main table, by interface.
fn default_routes(state: &State) -> BTreeMap<LinkIndex, Vec<DefaultRoute>> {
    let mut routes: BTreeMap<LinkIndex, Vec<DefaultRoute>> = BTreeMap::new();
    for (destination, list) in state.routes.iter().filter(|(destination, _)| destination.prefix_len() == 0) {
        let version = if destination.addr().is_ipv4() { Version::V4 } else { Version::V6 };
        for route in list {
            for hop in hops(state, &route.target) {
                if let Some(link) = hop.link {
                    let metric = route.metric;
                    routes.entry(link).or_default().push(DefaultRoute { version, metric, via: hop.via });
                }
            }
        }
    }
    routes
}

/// Next hops of a route, those of next-hop objects too.
fn hops(state: &State, target: &Target) -> Vec<Hop> {
    let object = |number: &u32| match state.objects.get(number) {
        Some(Object::One(hop)) => Some(*hop),
        _ => None,
    };
    match target {
        Target::One(hop) => vec![*hop],
        Target::Many(hops) => hops.to_vec(),
        Target::Object(number) => match state.objects.get(number) {
            Some(Object::Group(members)) => {
                members.iter().filter_map(|member| object(&member.object)).collect()
            }
            _ => object(number).into_iter().collect(),
        },
        _ => Vec::new(),
    }
}

/// VLANs of `/proc/net/vlan/config`: lines of name, identifier and parent, behind two of headings.
pub(crate) fn vlans(text: &str) -> BTreeMap<String, Vlan> {
    let mut vlans = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [name, id, parent] = words[..] {
            if let Ok(id) = id.parse() {
                vlans.insert(name.to_owned(), Vlan { parent: parent.to_owned(), id });
            }
        }
    }
    vlans
}

/// Session of this process or of one that it was started by: `sudo` takes `SSH_CONNECTION` out of the environment.
fn session() -> Option<Session> {
    if let Ok(text) = std::env::var("SSH_CONNECTION") {
        return parse_session(&text);
    }
    let mut process = std::os::unix::process::parent_id();
    // Processes do not nest deeper than this between a login and its shell.
    for _ in 0..32 {
        if process <= 1 {
            return None;
        }
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let found = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(b"SSH_CONNECTION="))
            .and_then(|value| parse_session(&String::from_utf8_lossy(value)));
        if found.is_some() {
            return found;
        }
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name, in parentheses, may have anything in it; state and parent are behind it.
        process = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

/// `SSH_CONNECTION`: address and port of the client, address and port of the server.
pub(crate) fn parse_session(text: &str) -> Option<Session> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [client, _, _, port] = words[..] else { return None };
    let client: IpAddr = client.split('%').next()?.parse().ok()?;
    Some(Session { client: client.to_canonical(), port: port.parse().ok()? })
}
