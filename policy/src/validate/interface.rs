//! Interfaces: their addresses, MTU, VLANs.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use wire::ipv6;
use wire::vlan::DropEligible;

use super::space::interval;
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{Interface, LinkKind, MssClamp, PcpMap, PriorityTag};

impl Validator<'_> {
    pub(super) fn interfaces(&mut self) {
        let policy = self.policy;
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let item = Item::Interface(index);
            self.addresses(item, interface);
            self.sizes(item, interface);
            self.vlans(item, interface);
            self.link(item, interface);
            self.link_rate(item, interface);
            self.channel(item, interface);
            self.session(item, interface);
            self.priority(item, interface);
            if interface.mac.is_some_and(|mac| !mac.is_unicast()) {
                let message = "a group's Ethernet address is no interface's".to_owned();
                self.wrong(
                    Code::BadMac,
                    item,
                    "mac",
                    message,
                    "the first byte of a station's address is even",
                );
            }
        }
        self.networks();
        self.same_vlans();
        self.same_channels();
        self.same_carriers();
    }

    fn addresses(&mut self, item: Item, interface: &Interface) {
        for (index, net) in interface.addresses.iter().enumerate() {
            if let Some(why) = unusable(*net) {
                let message = format!("{} cannot be an interface's address: it is {why}", net.addr());
                let at = In { item, key: "addresses", index };
                self.wrong_in(Code::UnusableAddress, at, message, "give a host's address");
            }
        }
        for (index, address) in interface.virtual_addresses.iter().enumerate() {
            let at = In { item, key: "virtual-addresses", index };
            if let Some(why) = unusable(IpNet::from(*address)) {
                let message = format!("{address} cannot be an interface's address: it is {why}");
                self.wrong_in(Code::UnusableAddress, at, message, "give a host's address");
            } else if interface.addresses.iter().any(|net| net.addr() == *address) {
                let message = format!("{address} is the interface's own address, and virtual, too");
                let hint = "a virtual address is the active gateway's alone: leave it to keepalived, and out of `addresses`";
                self.wrong_in(Code::UnusableAddress, at, message, hint);
            }
        }
    }

    fn sizes(&mut self, item: Item, interface: &Interface) {
        let has_v6 = interface.addresses.iter().any(|net| net.addr().is_ipv6());
        let (least, why) = if has_v6 {
            (ipv6::LEAST_MTU, "1280 where there is IPv6 (RFC 8200, section 5)")
        } else {
            (68, "68")
        };
        if interface.mtu < least || interface.mtu > 16_000 {
            let message = format!("an MTU of {} bytes is out of range", interface.mtu);
            self.wrong(Code::BadMtu, item, "mtu", message, format!("from {why} to 16000"));
        }
        let parent = interface.parent.as_deref().and_then(|parent| self.policy.interface(parent));
        let is_vlan = interface.ppp.is_none();
        if let Some(parent) =
            parent.filter(|parent| is_vlan && parent.mtu >= 68 && parent.mtu < interface.mtu)
        {
            let message = format!(
                "an MTU of {} bytes is more than {} of \"{}\"",
                interface.mtu, parent.mtu, parent.name
            );
            let hint =
                "a VLAN carries what its parent carries at most: lower this one, or raise the parent's";
            self.wrong(Code::BadMtu, item, "mtu", message, hint);
        }
        if let MssClamp::Bytes(bytes) = interface.mss {
            if !MssClamp::RANGE.contains(&bytes) {
                let message = format!("a maximum segment size of {bytes} bytes is out of range");
                self.wrong(Code::BadMss, item, "mss", message, "from 536 to 15960, or \"mtu\" for what fits");
            }
        }
    }

    /// Reports Ethernet settings on a link without Ethernet.
    fn link(&mut self, item: Item, interface: &Interface) {
        if interface.link == LinkKind::Ip {
            if interface.mac.is_some() {
                let message = format!("\"{}\" has no link-layer address", interface.name);
                self.wrong(Code::NeedsEthernet, item, "mac", message, WITHOUT_ETHERNET);
            }
            if interface.parent.is_some() && interface.ppp.is_none() {
                let message = format!("\"{}\" cannot be a VLAN", interface.name);
                self.wrong(Code::NeedsEthernet, item, "parent", message, WITHOUT_ETHERNET);
            }
        } else if let Some(parent) = interface.parent.as_deref().filter(|parent| self.is_bare(parent)) {
            let message = format!("\"{parent}\" carries no VLANs");
            let hint = "its packets have no Ethernet header: name another parent";
            self.wrong(Code::NeedsEthernet, item, "parent", message, hint);
        }
    }

    /// Reports priorities of frames that have no tag for them.
    fn priority(&mut self, item: Item, interface: &Interface) {
        let name = &interface.name;
        let is_bare = interface.link == LinkKind::Ip;
        if interface.priority_tag == PriorityTag::Yes && (is_bare || !interface.vlans.is_empty()) {
            let (code, message, hint) = match is_bare {
                true => (Code::NeedsEthernet, format!("\"{name}\" has no VLAN tags"), WITHOUT_ETHERNET),
                false => (
                    Code::BadVlan,
                    format!("the tag of \"{name}\" says the priority already"),
                    "leave the key out",
                ),
            };
            self.wrong(code, item, "priority-tag", message, hint);
        }
        let keys = [("pcp", interface.pcp != PcpMap::None), ("dei", interface.dei == DropEligible::Yes)];
        for (key, is_given) in keys {
            if !is_given || interface.is_tagged() {
                continue;
            }
            if is_bare {
                let message = format!("\"{name}\" has no VLAN tags");
                self.wrong(Code::NeedsEthernet, item, key, message, WITHOUT_ETHERNET);
            } else {
                let message = format!("frames of \"{name}\" have no VLAN tag, and so no priority");
                let hint = "write priority-tag = true for tags of VLAN 0, or give the key to the VLANs";
                self.wrong(Code::PcpWithoutTag, item, key, message, hint);
            }
        }
    }

    fn link_rate(&mut self, item: Item, interface: &Interface) {
        match (&interface.parent, interface.rate, interface.overhead) {
            (Some(parent), Some(_), _) => {
                let message = format!("\"{}\" has no link of its own", interface.name);
                let hint = format!("its frames take that of \"{parent}\": give that a rate");
                self.wrong(Code::BadLinkRate, item, "rate", message, hint);
            }
            (_, None, Some(_)) => {
                let message = "an overhead counts against a rate".to_owned();
                self.wrong(Code::BadLinkRate, item, "overhead", message, "add rate = \"100 Mbit/s\"");
            }
            _ => {}
        }
    }

    /// True if the interface's packets have no Ethernet header.
    pub(super) fn is_bare(&self, name: &str) -> bool {
        self.policy.interface(name).is_some_and(|interface| interface.link == LinkKind::Ip)
    }

    fn vlans(&mut self, item: Item, interface: &Interface) {
        for (index, vlan) in interface.vlans.iter().enumerate() {
            if !(1..=4_094).contains(vlan) {
                let at = In { item, key: "vlan", index };
                self.wrong_in(Code::BadVlan, at, format!("there is no VLAN {vlan}"), "from 1 to 4094");
            }
        }
        if interface.vlans.len() > 2 {
            let message = format!("{} VLAN tags are more than 2", interface.vlans.len());
            self.wrong(
                Code::BadVlan,
                item,
                "vlan",
                message,
                "one (802.1Q) or two (QinQ), the outer one first",
            );
        }
        let Some(parent) = &interface.parent else {
            if !interface.vlans.is_empty() {
                let message = "a VLAN needs a parent that carries it".to_owned();
                self.wrong(Code::BadVlan, item, "vlan", message, "add parent = \"eth0\"");
            }
            return;
        };
        if interface.vlans.is_empty() && interface.ppp.is_none() && !self.lines.is_broken(item) {
            let message = "an interface with a parent needs a VLAN".to_owned();
            self.wrong(Code::BadVlan, item, "parent", message, "add vlan = 20");
        }
        if !self.known_interface(In { item, key: "parent", index: 0 }, parent) {
            return;
        }
        let mut seen = HashSet::from([interface.name.as_str()]);
        let mut next = Some(parent.as_str());
        while let Some(name) = next {
            if !seen.insert(name) {
                if name == interface.name {
                    let message = format!("\"{name}\" is its own parent");
                    self.wrong(
                        Code::ParentCycle,
                        item,
                        "parent",
                        message,
                        "the last parent is a port of its own",
                    );
                }
                return;
            }
            next = self.policy.interface(name).and_then(|parent| parent.parent.as_deref());
        }
    }

    /// Reports addresses and networks shared by two interfaces. Link-local ones belong to each link alone.
    fn networks(&mut self) {
        let policy = self.policy;
        let mut all: Vec<(IpNet, usize, usize)> = Vec::new();
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let nets = interface.addresses.iter().enumerate();
            all.extend(nets.filter(|(_, net)| !is_link_local(net.addr())).map(|(at, net)| (*net, index, at)));
        }
        let vrf = |index: usize| policy.interfaces[index].vrf.as_deref();
        let mut owners: HashMap<(Option<&str>, IpAddr), Item> = HashMap::new();
        let mut twice = HashSet::new();
        for (net, index, at) in &all {
            let item = Item::Interface(*index);
            if let Some(first) = owners.insert((vrf(*index), net.addr()), item) {
                twice.insert((*index, *at));
                let place = self.lines.place_in(item, "addresses", *at);
                let diagnostic =
                    Diagnostic::new(Code::DuplicateAddress, format!("{} is there twice", net.addr()))
                        .hint("give each interface an address of its own")
                        .at(place)
                        .and("the first", self.lines.place(first));
                self.report(diagnostic);
            }
        }
        // Prefixes nest or are disjoint: in this order, one that overlaps an earlier one of its VRF lies within it.
        all.sort_by_key(|(net, index, _)| {
            let interval = interval((*net).into());
            (vrf(*index), net.addr().is_ipv6(), interval.first, std::cmp::Reverse(interval.last), *index)
        });
        let mut outer: Vec<(IpNet, usize)> = Vec::new();
        for (net, index, at) in all {
            outer.retain(|(other, at)| vrf(*at) == vrf(index) && other.trunc().contains(&net.trunc()));
            let other = outer.iter().find(|(_, owner)| *owner != index).copied();
            outer.push((net, index));
            let Some((other, owner)) = other.filter(|_| !twice.contains(&(index, at))) else { continue };
            let names = (&policy.interfaces[index].name, &policy.interfaces[owner].name);
            let message = format!(
                "the network {} of \"{}\" overlaps {} of \"{}\"",
                net.trunc(),
                names.0,
                other.trunc(),
                names.1
            );
            let place = self.lines.place_in(Item::Interface(index), "addresses", at);
            let diagnostic = Diagnostic::new(Code::OverlappingNetworks, message)
                .hint("an address can be on one link only: change a network, or its prefix length")
                .at(place)
                .and("the other", self.lines.place_of(Item::Interface(owner), "addresses"));
            self.report(diagnostic);
        }
    }

    fn same_vlans(&mut self) {
        let mut seen: HashMap<(&str, &[u16]), usize> = HashMap::new();
        for (index, interface) in self.policy.interfaces.iter().enumerate() {
            let Some(parent) = interface.parent.as_deref().filter(|_| !interface.vlans.is_empty()) else {
                continue;
            };
            if let Some(first) = seen.insert((parent, &interface.vlans), index) {
                let diagnostic =
                    Diagnostic::new(Code::BadVlan, format!("the VLAN is there twice on \"{parent}\""))
                        .hint("give each interface a VLAN of its own")
                        .at(self.lines.place_of(Item::Interface(index), "vlan"))
                        .and("the first", self.lines.place_of(Item::Interface(first), "vlan"));
                self.report(diagnostic);
            }
        }
    }
}

/// Hint for an Ethernet setting on a link without Ethernet.
const WITHOUT_ETHERNET: &str = "its packets have no Ethernet header: leave the key out, or `link = \"ip\"`";

/// Reason why no host can have the address; `None` for a host address.
pub(super) fn unusable(net: IpNet) -> Option<&'static str> {
    let address = net.addr();
    let hosts = net.max_prefix_len() - net.prefix_len();
    match address {
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_multicast() => Some("a multicast address"),
        _ if address.is_loopback() => Some("a loopback address"),
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(_) if hosts > 1 && address == net.network() => Some("its network's own address"),
        IpAddr::V4(_) if hosts > 1 && address == net.broadcast() => Some("its network's broadcast address"),
        _ => None,
    }
}

/// True if the address is link-local (RFC 4291, section 2.5.6).
pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}
