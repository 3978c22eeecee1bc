//! Translations: possible matches, pools, ports and targets.

use std::net::IpAddr;
use std::sync::Arc;

use super::cover::{Shadow, shadows};
use super::shape::{Extent, Shape, merged};
use super::space::{Family, Space};
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use ipnet::IpNet;

use crate::model::{Balance, FamilyMatch, Nat, Nat64, NatAction, PortRange, SELF_ZONE, ServerState};
use crate::value::address::{address_item_text, server_text};

/// Address that a translation changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    /// Destinations that nothing else translates and no route of IPv4 leads to, wherever in the list a CLAT stands.
    Unrouted,
}

impl<'a> Validator<'a> {
    pub(super) fn nats(&mut self) {
        let policy = self.policy;
        for (index, nat) in policy.nats.iter().enumerate() {
            let item = Item::Nat(index);
            self.known_zones(item, "from", &nat.from);
            self.known_zones(item, "to", &nat.to);
            self.known_sets(item, "source", &nat.source);
            self.known_sets(item, "destination", &nat.destination);
            if self.lines.is_broken(item) {
                continue;
            }
            if self.is_stateless() {
                let message = format!("a stateless policy cannot translate \"{}\"", nat.name);
                let place = self.lines.place(item);
                let hint = "write mode = \"stateful\", or leave the translation out";
                self.report(Diagnostic::new(Code::NeedsStateful, message).hint(hint).at(place));
            }
            self.same_family(item, FamilyMatch::Both, &nat.source, &nat.destination);
            self.gateway_itself(item, nat);
            self.outside_zone(item, nat);
            for (key, ports) in [("sport", &nat.sports), ("dport", &nat.dports)] {
                if !ports.is_empty() {
                    self.ports_have_protocol(item, key, &nat.protocols);
                }
            }
            match &nat.action {
                NatAction::Masquerade { .. } => self.masquerade(item, nat),
                NatAction::Source { pool, .. } => {
                    let pool = Space::of_ranges(pool.iter().copied());
                    self.outside_family(item, nat, &pool, "the pool");
                }
                NatAction::Exempt => {}
                NatAction::Forward { .. } | NatAction::Balance(_) => self.forward(item, nat),
                NatAction::Redirect { ports, to_port } => {
                    for (key, is_given) in [("port", !ports.is_empty()), ("to-port", to_port.is_some())] {
                        if is_given {
                            self.ports_have_protocol(item, key, &nat.protocols);
                        }
                    }
                    self.redirect(item, nat);
                }
                NatAction::Nat64(nat64) => self.nat64(item, nat, nat64),
                NatAction::Clat(clat) => self.clat(item, nat, clat),
                NatAction::OneToOne { outside, inside, .. } => {
                    if outside.addr().is_ipv4() != inside.addr().is_ipv4() {
                        let message = "inside and outside are of different IP versions".to_owned();
                        self.wrong(Code::FamilyMismatch, item, "inside", message, "give both of one version");
                    } else if outside.prefix_len() != inside.prefix_len() {
                        let message = format!("{outside} and {inside} differ in size");
                        let hint = "each inside address needs one outside: give prefixes of equal length";
                        self.wrong(Code::UnequalPrefixes, item, "inside", message, hint);
                    } else {
                        self.target(item, "inside", inside.addr());
                    }
                }
                NatAction::Npt { outside, inside, .. } => self.npt(item, *outside, *inside),
            }
        }
        self.servers_checked();
    }

    /// Reports networks that are not two IPv6 prefixes of one length up to 64 bits (RFC 6296, section 3.2).
    fn npt(&mut self, item: Item, outside: IpNet, inside: IpNet) {
        for (key, net) in [("outside", outside), ("inside", inside)] {
            if net.addr().is_ipv4() {
                let message = format!("{net} is no IPv6 prefix");
                let hint = "npt translates IPv6 prefixes; `one-to-one` is for IPv4";
                return self.wrong(Code::FamilyMismatch, item, key, message, hint);
            }
            if !(1..=64).contains(&net.prefix_len()) {
                let message = format!("{net} is no prefix of 1 to 64 bits");
                let hint = "the interface identifiers behind the prefix have 64 bits: give the prefix of a network or a site";
                return self.wrong(Code::UnequalPrefixes, item, key, message, hint);
            }
        }
        if outside.prefix_len() != inside.prefix_len() {
            let message = format!("{outside} and {inside} differ in size");
            let hint = "give prefixes of equal length: of a longer and a shorter one, the part of the shorter that is as long";
            return self.wrong(Code::UnequalPrefixes, item, "inside", message, hint);
        }
        self.target(item, "inside", inside.addr());
    }

    /// Reports sources and pools of the wrong IP version, and a gateway without an IPv4 address for packets to leave with.
    fn nat64(&mut self, item: Item, nat: &Nat, nat64: &Nat64) {
        let source = self.spaces.of_addresses(&nat.source);
        if !source.is_empty() && !source.has(Family::V6) {
            let message = format!("\"{}\" translates IPv6, and its source has no IPv6 address", nat.name);
            self.wrong(Code::FamilyMismatch, item, "source", message, "give the IPv6 networks of the hosts");
        }
        for (index, range) in nat64.pool.iter().enumerate().filter(|(_, range)| range.first.is_ipv6()) {
            let message = format!("{} is no IPv4 address", range.first);
            let hint = "packets leave as IPv4: give the pool IPv4 addresses";
            self.wrong_in(Code::FamilyMismatch, In { item, key: "pool", index }, message, hint);
        }
        let interfaces = &self.policy.interfaces;
        let is_dynamic = interfaces.iter().any(|interface| interface.addresses.is_empty());
        let mut own = interfaces.iter().flat_map(|interface| &interface.addresses);
        if nat64.pool.is_empty()
            && !is_dynamic
            && !self.lines.any_broken(Item::Interface(0))
            && !own.any(|net| net.addr().is_ipv4())
        {
            let message =
                format!("\"{}\" has no outside address as yet: no interface has one of IPv4", nat.name);
            let hint = "packets are dropped until there is one: add it to `addresses`, or give `pool`";
            self.wrong(Code::NoOutsideAddress, item, "name", message, hint);
        }
    }

    fn gateway_itself(&mut self, item: Item, nat: &Nat) {
        for (key, zones) in [("from", &nat.from), ("to", &nat.to)] {
            for (index, _) in zones.iter().enumerate().filter(|(_, zone)| *zone == SELF_ZONE) {
                let message = format!("\"{}\" does not match packets of the gateway itself", nat.name);
                let hint = "those are not translated: leave \"self\" out";
                self.wrong_in(Code::NatNeverMatches, In { item, key, index }, message, hint);
            }
        }
    }

    /// Reports sources that cannot come from the zones of origin, and destinations outside the zones of destination.
    fn outside_zone(&mut self, item: Item, nat: &Nat) {
        let Some(reach) = &self.reach else { return };
        let from: Vec<Arc<Space>> = nat.from.iter().map(|zone| reach.sources(zone)).collect();
        let to: Vec<Arc<Space>> = nat.to.iter().map(|zone| reach.destinations(zone)).collect();
        let sides = [
            ("source", &nat.source, from, &nat.from, "from"),
            ("destination", &nat.destination, to, &nat.to, "to"),
        ];
        for (key, addresses, spaces, zones, zone_key) in sides {
            let is_dynamic = |zone: &String| {
                let mut of_zone = self.policy.interfaces.iter().filter(|interface| interface.zone == *zone);
                of_zone.any(|interface| interface.addresses.is_empty())
            };
            let known = !zones.is_empty() && zones.iter().all(|zone| self.is_zone(zone) && !is_dynamic(zone));
            let space = self.spaces.of_addresses(addresses);
            if !known || space.is_empty() || spaces.iter().any(|zone| zone.overlaps(&space)) {
                continue;
            }
            let zones = zones.join("\", \"");
            let items: Vec<String> = addresses.items.iter().map(address_item_text).collect();
            let (what, hint) = if items.is_empty() {
                (
                    "nothing is".to_owned(),
                    format!("give an interface of \"{zones}\" its addresses, or add a [[route]]"),
                )
            } else {
                let but = if addresses.except { "all but " } else { "" };
                let what = format!("{but}{} is not", items.join(", "));
                (what, format!("correct `{key}`, `{zone_key}` or the routes"))
            };
            let message = format!("\"{}\" never matches: {what} behind \"{zones}\"", nat.name);
            self.wrong(Code::NatNeverMatches, item, key, message, hint);
        }
    }

    fn masquerade(&mut self, item: Item, nat: &Nat) {
        if self.lines.any_broken(Item::Interface(0)) || self.policy.interfaces.is_empty() {
            return;
        }
        let leaves_by = |zone: &String| nat.to.is_empty() || nat.to.contains(zone);
        let interfaces = || self.policy.interfaces.iter().filter(|interface| leaves_by(&interface.zone));
        // Where the policy gives an interface no address, Linux does.
        let is_dynamic = interfaces().any(|interface| interface.addresses.is_empty());
        if is_dynamic || !nat.to.iter().all(|zone| self.is_zone(zone)) {
            return;
        }
        let addresses = interfaces().flat_map(|interface| &interface.addresses).map(|net| net.addr());
        let outside = Space::of_ranges(addresses.map(crate::model::AddressRange::single));
        let source = self.spaces.of_addresses(&nat.source);
        if source.is_empty() || outside.families().any(|family| source.has(family)) {
            return;
        }
        let family = source.families().next().map_or("", Family::name);
        let message = format!(
            "\"{}\" has no outside address as yet: the interface that packets leave by has none of {family}",
            nat.name
        );
        let key = if nat.source.items.is_empty() { "name" } else { "source" };
        let hint = "packets are dropped until Linux gives the interface one: add it to `addresses`, or see to it that Linux does";
        self.wrong(Code::NoOutsideAddress, item, key, message, hint);
    }

    /// Reports a redirect from interfaces without an address that packets could be redirected to.
    fn redirect(&mut self, item: Item, nat: &Nat) {
        if self.lines.any_broken(Item::Interface(0)) || !nat.from.iter().all(|zone| self.is_zone(zone)) {
            return;
        }
        let comes_by = |zone: &String| nat.from.is_empty() || nat.from.contains(zone);
        let interfaces = || self.policy.interfaces.iter().filter(|interface| comes_by(&interface.zone));
        if interfaces().any(|interface| interface.addresses.is_empty()) {
            return;
        }
        let addresses = interfaces().flat_map(|interface| &interface.addresses).map(|net| net.addr());
        let own = Space::of_ranges(addresses.map(crate::model::AddressRange::single));
        let sides = [self.spaces.of_addresses(&nat.source), self.spaces.of_addresses(&nat.destination)];
        let is_asked = |family: &Family| sides.iter().all(|side| side.has(*family));
        let Some(family) = own
            .families()
            .all(|family| !is_asked(&family))
            .then(|| [Family::V4, Family::V6].into_iter().find(is_asked))
        else {
            return;
        };
        let Some(family) = family.map(Family::name) else { return };
        let message = format!(
            "\"{}\" has nowhere to redirect to as yet: the interfaces that packets come in by have no address of {family}",
            nat.name
        );
        let hint = "packets are dropped until Linux gives the interface one: add it to `addresses`, or see to it that Linux does";
        self.wrong(Code::NoOutsideAddress, item, "name", message, hint);
    }

    /// Reports sources of a family without an outside address.
    fn outside_family(&mut self, item: Item, nat: &Nat, outside: &Space, whose: &str) {
        let source = self.spaces.of_addresses(&nat.source);
        let shared = outside.families().any(|family| source.has(family));
        if !shared && !source.is_empty() {
            let family = source.families().next().map_or("", Family::name);
            let message = format!("\"{}\" has no outside address: {whose} has none of {family}", nat.name);
            let key = if nat.source.items.is_empty() { "name" } else { "source" };
            self.wrong(
                Code::FamilyMismatch,
                item,
                key,
                message,
                "give addresses of one version on both sides",
            );
        }
    }

    fn forward(&mut self, item: Item, nat: &Nat) {
        let (NatAction::Forward { ports, .. } | NatAction::Balance(Balance { ports, .. })) = &nat.action
        else {
            return;
        };
        if !ports.is_empty() {
            self.ports_have_protocol(item, "port", &nat.protocols);
        }
        match &nat.action {
            NatAction::Forward { outside, ports, target, vrf, target_port, .. } => {
                let at = In { item, key: "target", index: 0 };
                self.forwarded(at, *outside, ports, (*target, *target_port), vrf.as_deref());
            }
            NatAction::Balance(balance) => self.balance(item, nat, balance),
            _ => {}
        }
    }

    fn balance(&mut self, item: Item, nat: &Nat, balance: &Balance) {
        let servers = &balance.servers;
        if servers.len() > Balance::MOST_SERVERS {
            let message = format!("{} servers are more than {}", servers.len(), Balance::MOST_SERVERS);
            self.wrong(Code::TooMany, item, "targets", message, "leave some out");
        }
        for (index, server) in servers.iter().enumerate() {
            let at = In { item, key: "targets", index };
            let earlier = &servers[..index];
            if earlier.iter().any(|other| (other.address, other.port) == (server.address, server.port)) {
                let message = format!("{} is there twice", server_text(server));
                let hint = "write it once, with `weight` if it shall get more";
                self.wrong_in(Code::DuplicateServer, at, message, hint);
            } else if servers[0].address.is_ipv4() != server.address.is_ipv4() {
                let message =
                    format!("{} and {} are of different IP versions", servers[0].address, server.address);
                let hint = "give servers of one version, and those of the other a translation of their own";
                self.wrong_in(Code::FamilyMismatch, at, message, hint);
            } else {
                self.forwarded(at, balance.outside, &balance.ports, (server.address, server.port), None);
            }
        }
        self.server_check(item, nat, balance);
        if servers.iter().all(|server| server.state == ServerState::Down) {
            let message = format!("every server of \"{}\" is down: new connections are refused", nat.name);
            let hint = "leave \"down\" out of one that is in service";
            self.wrong(Code::NoServerUp, item, "targets", message, hint);
        }
    }

    /// Checks a target of a forward, written at a place.
    fn forwarded(
        &mut self,
        at: In<'_>,
        outside: Option<IpAddr>,
        ports: &[PortRange],
        (target, target_port): (IpAddr, Option<u16>),
        vrf: Option<&str>,
    ) {
        let item = at.item;
        if let Some(port) = target_port {
            let count: u32 = merged(ports).iter().map(|range| u32::from(range.last - range.first) + 1).sum();
            let last = u32::from(port) + count.saturating_sub(1);
            if ports.is_empty() {
                let message = format!("the target has the port {port}, and no outside ports are given");
                self.wrong_in(Code::PortOverflow, at, message, format!("add port = {port}"));
            } else if last > 65_535 {
                let message = format!("the last of {count} ports would be {last} at the target");
                let hint =
                    format!("{port} + {count} - 1 = {last} is past 65535: give a lower port, or fewer");
                self.wrong_in(Code::PortOverflow, at, message, hint);
            }
        }
        let own = Arc::clone(&self.own);
        let is_first = at.index == 0;
        match outside {
            Some(outside) if outside.is_ipv4() != target.is_ipv4() => {
                let message = format!("{outside} cannot be forwarded to {target}, of the other IP version");
                self.wrong_in(Code::FamilyMismatch, at, message, "give both of one version");
                return;
            }
            // The gateway answers for an address on the network of one of its interfaces.
            Some(outside)
                if is_first
                    && self.reach.is_some()
                    && !own.contains(outside)
                    && !self.is_on_network(outside) =>
            {
                let message = format!(
                    "{outside} is not an address of the gateway, nor on the network of one of its interfaces"
                );
                let hint = "give one of an interface's addresses, or leave `outside` out for all of them; where others route \
                            the address here, a one-to-one translation takes it";
                self.wrong(Code::OutsideNotOwn, item, "outside", message, hint);
            }
            None if is_first
                && self.reach.is_some()
                && !own.has(Family::of(target))
                && !self.has_dynamic() =>
            {
                let message =
                    format!("the gateway has no {} address to forward from", Family::of(target).name());
                self.wrong_in(Code::FamilyMismatch, at, message, "add one to an interface");
            }
            _ => {}
        }
        if self.reach.as_ref().is_some_and(|reach| !reach.leads_to(vrf, target)) {
            let message = format!("no route leads to {target}");
            let hint = "correct the address, or add a [[route]] to it";
            self.wrong_in(Code::TargetUnreachable, at, message, hint);
        }
    }

    /// True if the address is on the network of an interface.
    fn is_on_network(&self, address: IpAddr) -> bool {
        super::reach::interface_of(self.policy, None, address).is_some()
    }

    /// True if an interface has no address in the policy: Linux assigns some.
    fn has_dynamic(&self) -> bool {
        self.policy.interfaces.iter().any(|interface| interface.addresses.is_empty())
    }

    /// Reports a target without a route.
    fn target(&mut self, item: Item, key: &str, target: IpAddr) {
        if self.reach.as_ref().is_some_and(|reach| !reach.leads_to(None, target)) {
            let message = format!("no route leads to {target}");
            let hint = "correct the address, or add a [[route]] to it";
            self.wrong(Code::TargetUnreachable, item, key, message, hint);
        }
    }

    pub(super) fn shadowed_nats(&mut self) {
        let policy = self.policy;
        for side in [Side::Source, Side::Destination, Side::Unrouted] {
            let shapes: Vec<Option<Shape<'a>>> = policy
                .nats
                .iter()
                .enumerate()
                .map(|(index, nat)| {
                    let whole = !self.lines.is_broken(Item::Nat(index));
                    whole.then(|| self.nat_shape(nat, side)).flatten()
                })
                .collect();
            for Shadow { hidden, by } in shadows(&shapes) {
                let (nat, earlier) = (&policy.nats[hidden], &policy.nats[by]);
                let line = self.lines.place(Item::Nat(by)).map(|place| format!(", line {}", place.line()));
                let message = format!(
                    "\"{}\" never matches: \"{}\"{} matches all that it does",
                    nat.name,
                    earlier.name,
                    line.unwrap_or_default()
                );
                let diagnostic = Diagnostic::new(Code::ShadowedNat, message)
                    .hint("move it before the other, or leave it out")
                    .at(self.lines.place(Item::Nat(hidden)))
                    .and("matches all of it", self.lines.place(Item::Nat(by)));
                self.report(diagnostic);
            }
        }
    }

    /// Match of a translation; `None` if it does not translate the address of `side`.
    fn nat_shape(&self, nat: &'a Nat, side: Side) -> Option<Shape<'a>> {
        let destination = self.spaces.of_addresses(&nat.destination);
        let (destination, ports): (Arc<Space>, &[PortRange]) = match &nat.action {
            NatAction::Masquerade { .. } | NatAction::Source { .. } | NatAction::Exempt
                if side == Side::Source =>
            {
                (destination, &[])
            }
            NatAction::Forward { outside, ports, .. }
            | NatAction::Balance(Balance { outside, ports, .. })
                if side == Side::Destination =>
            {
                let outside =
                    outside.map_or_else(|| Arc::clone(&self.own), |outside| Arc::new(Space::of(outside)));
                (Arc::new(destination.intersection(&outside)), ports)
            }
            NatAction::Redirect { ports, .. } if side == Side::Destination => (destination, ports),
            NatAction::Nat64(nat64) if side == Side::Destination => {
                (Arc::new(Space::of_net(nat64.net().into())), &[])
            }
            NatAction::Clat(_) if side == Side::Unrouted => (destination, &[]),
            NatAction::OneToOne { outside, .. } | NatAction::Npt { outside, .. }
                if side == Side::Destination =>
            {
                (Arc::new(destination.intersection(&Space::of_net(*outside))), &[])
            }
            _ => return None,
        };
        Some(Shape {
            from: &nat.from,
            to: &nat.to,
            in_interfaces: &[],
            out_interfaces: &[],
            source: self.spaces.of_addresses(&nat.source),
            destination,
            protocols: &nat.protocols,
            sports: merged(&nat.sports),
            dports: if side == Side::Source { merged(&nat.dports) } else { merged(ports) },
            icmp: &[],
            tcp_flags: None,
            dscp: u64::MAX,
            extent: if self.names_dynamic(&nat.source) || self.names_dynamic(&nat.destination) {
                Extent::AtMost
            } else {
                Extent::Exact
            },
        })
    }
}
