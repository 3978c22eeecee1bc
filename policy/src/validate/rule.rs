//! Checks of each rule by itself.

use std::sync::Arc;

use wire::Nanos;

use super::space::{Family, Space};
use super::{In, Validator};
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{
    Action, AddressItem, Addresses, Balance, Conditions, Excess, FamilyMatch, Helper, Interface, LinkKind,
    MacRange, NatAction, OTHER_ZONE, Protocol, Rule, SELF_ZONE, State, SynAnswer,
};
use crate::value::address::address_item_text;

/// SYN flag of TCP.
const SYN: u8 = 0x02;

/// Most different timeouts of rules.
const MOST_TIMEOUTS: usize = 127;

impl Validator<'_> {
    pub(super) fn rules(&mut self) {
        let policy = self.policy;
        for (index, rule) in policy.rules.iter().enumerate() {
            let item = Item::Rule(index);
            self.known_conditions(item, &rule.conditions);
            if self.lines.is_broken(item) {
                continue;
            }
            self.limited(item, rule);
            self.syn_proxy(item, rule);
            self.helper(item, rule);
            self.adds_source(item, rule);
            self.states(item, rule);
            self.dnat(item, rule);
            self.origin(item, rule);
            self.conditions(item, &rule.conditions);
        }
    }

    /// Reports zones, interfaces and sets that there are none of.
    pub(super) fn known_conditions(&mut self, item: Item, conditions: &Conditions) {
        self.known_zones(item, "from", &conditions.from);
        self.known_zones(item, "to", &conditions.to);
        self.known_interfaces(item, "in", &conditions.in_interfaces);
        self.known_interfaces(item, "out", &conditions.out_interfaces);
        self.known_sets(item, "source", &conditions.source);
        self.known_sets(item, "destination", &conditions.destination);
    }

    /// Reports conditions that contradict one another, or that no packet meets by the routes.
    pub(super) fn conditions(&mut self, item: Item, conditions: &Conditions) {
        self.transport(item, conditions);
        self.source_macs(item, conditions);
        self.families(item, conditions);
        self.interfaces_in_zones(item, conditions);
        let Some(reach) = self.reach.as_ref() else { return };
        let from: Vec<Arc<Space>> = conditions.from.iter().map(|zone| reach.sources(zone)).collect();
        let to: Vec<Arc<Space>> = conditions.to.iter().map(|zone| reach.destinations(zone)).collect();
        let at = |key| In { item, key, index: 0 };
        self.behind(at("source"), &conditions.source, &from, &conditions.from);
        self.behind(at("destination"), &conditions.destination, &to, &conditions.to);
    }

    /// Reports ports, ICMP types and TCP flags without their protocols.
    fn transport(&mut self, item: Item, conditions: &Conditions) {
        for (key, ports) in [("sport", &conditions.sports), ("dport", &conditions.dports)] {
            if !ports.is_empty() {
                self.ports_have_protocol(item, key, &conditions.protocols);
            }
        }
        let icmp = conditions.protocols.len() == 1
            && matches!(conditions.protocols[0], Protocol::ICMP | Protocol::ICMPV6);
        if !conditions.icmp.is_empty() && !icmp {
            let message =
                "ICMP types need ICMP as the only protocol, for the numbers of the two differ".to_owned();
            let hint = "write protocol = \"icmp\" or \"icmpv6\"; two rules for both";
            self.wrong(Code::IcmpWithoutProtocol, item, "icmp", message, hint);
        }
        if let Some(flags) = conditions.tcp_flags {
            if conditions.protocols != [Protocol::TCP] {
                let message = "TCP flags need TCP as the only protocol".to_owned();
                self.wrong(Code::TcpFlagsWithoutTcp, item, "tcp-flags", message, "write protocol = \"tcp\"");
            }
            if flags.value & !flags.mask != 0 {
                let message = "a TCP flag must be set that is not looked at".to_owned();
                self.wrong(Code::RuleNeverMatches, item, "tcp-flags", message, "leave it out");
            }
        }
    }

    /// Reports ports unless protocols are listed and all of them have ports.
    pub(super) fn ports_have_protocol(&mut self, item: Item, key: &str, protocols: &[Protocol]) {
        let without = protocols.iter().find(|protocol| !protocol.has_ports());
        let message = match without {
            Some(protocol) => format!("the protocol {protocol} has no ports"),
            None if protocols.is_empty() => "ports need a protocol that has them".to_owned(),
            None => return,
        };
        let hint = "write protocol = \"tcp\", \"udp\", \"sctp\", \"dccp\", \"udplite\", or a list of these";
        self.wrong(Code::PortsWithoutProtocol, item, key, message, hint);
    }

    fn limited(&mut self, item: Item, rule: &Rule) {
        if rule.connections.is_some() && rule.action != Action::Accept {
            let message = "`connections` is only for rules that accept".to_owned();
            let hint = "what is past the limit is dropped: accept here, or leave the limit out";
            self.wrong(Code::LimitWithoutAccept, item, "connections", message, hint);
        }
        self.excess(item, rule);
        if rule.connections.is_some() && self.is_stateless() {
            let message = "a stateless policy does not count connections".to_owned();
            self.wrong(
                Code::NeedsStateful,
                item,
                "connections",
                message,
                "write mode = \"stateful\", or use `rate`",
            );
        }
        let Some(timeout) = rule.timeout else { return };
        if rule.action != Action::Accept {
            let message = "`timeout` is only for rules that accept".to_owned();
            self.wrong(Code::LimitWithoutAccept, item, "timeout", message, "leave it out");
        }
        if self.is_stateless() {
            let message = "a stateless policy remembers no connections".to_owned();
            let hint = "write mode = \"stateful\", or leave `timeout` out";
            self.wrong(Code::NeedsStateful, item, "timeout", message, hint);
        }
        if timeout == Nanos(0) {
            let message = "with `timeout` = 0 nothing would be remembered".to_owned();
            self.wrong(Code::ZeroTimeout, item, "timeout", message, "leave the key out for the default");
        }
    }

    /// Reports a SYN proxy on a rule that accepts no new TCP connection, or none that the gateway may answer.
    fn syn_proxy(&mut self, item: Item, rule: &Rule) {
        if rule.syn == SynAnswer::Forward {
            return;
        }
        if rule.action != Action::Accept {
            let message = "`syn = \"proxy\"` is only for rules that accept".to_owned();
            self.wrong(Code::LimitWithoutAccept, item, "syn", message, "leave it out");
        }
        if self.is_stateless() {
            let message =
                "a stateless policy remembers no connections to translate sequence numbers of".to_owned();
            let hint = "write mode = \"stateful\", or leave `syn` out";
            self.wrong(Code::NeedsStateful, item, "syn", message, hint);
        }
        if !rule.conditions.protocols.is_empty() && !rule.conditions.protocols.contains(&Protocol::TCP) {
            let message = "`syn = \"proxy\"` needs a rule that TCP can match".to_owned();
            self.wrong(Code::SynProxy, item, "syn", message, "write protocol = \"tcp\", or leave `syn` out");
        }
        if rule
            .conditions
            .tcp_flags
            .is_some_and(|flags| flags.value & flags.mask & SYN == 0 && flags.mask & SYN != 0)
        {
            let message = "`syn = \"proxy\"` where `tcp-flags` let no SYN match".to_owned();
            self.wrong(Code::SynProxy, item, "syn", message, "write tcp-flags = \"syn\", or leave `syn` out");
        }
        if rule.conditions.from.iter().any(|zone| zone == OTHER_ZONE) {
            let message = "the gateway does not answer what Linux forwards (zone `other`)".to_owned();
            self.wrong(Code::SynProxy, item, "syn", message, "leave `syn` out, or \"other\" out of `from`");
        }
        if rule.conditions.to.iter().any(|zone| zone == SELF_ZONE) {
            let message = "the gateway does not answer for its own services".to_owned();
            let hint =
                "leave `syn` out: Linux's own SYN cookies (net.ipv4.tcp_syncookies) do that for zone `self`";
            self.wrong(Code::SynProxy, item, "syn", message, hint);
        }
    }

    /// Reports a helper on a rule that accepts no new connection of its protocol, or whose connections have none.
    fn helper(&mut self, item: Item, rule: &Rule) {
        let Some(helper) = rule.helper else { return };
        if rule.action != Action::Accept {
            let message = "`helper` is only for rules that accept".to_owned();
            self.wrong(Code::LimitWithoutAccept, item, "helper", message, "leave it out");
        }
        if self.is_stateless() {
            let message = "a stateless policy remembers no connections".to_owned();
            let hint = "write mode = \"stateful\", or leave `helper` out";
            self.wrong(Code::NeedsStateful, item, "helper", message, hint);
        }
        if rule.conditions.protocols != [helper.protocol()] || rule.conditions.dports.is_empty() {
            let message =
                "`helper` needs the protocol and the port of the connections that it reads".to_owned();
            let hint = match helper {
                Helper::Ftp => "write protocol = \"tcp\" and dport = 21, in a rule of its own",
                Helper::Sip => "write protocol = \"udp\" and dport = 5060, in a rule of its own",
                Helper::Pptp => "write protocol = \"tcp\" and dport = 1723, in a rule of its own",
            };
            self.wrong(Code::Helper, item, "helper", message, hint);
        }
        if rule.syn == SynAnswer::Proxy {
            let message = "a connection whose SYN the gateway answers has no helper".to_owned();
            self.wrong(Code::Helper, item, "helper", message, "leave `syn` or `helper` out");
        }
        if rule.conditions.from.iter().any(|zone| zone == OTHER_ZONE) {
            let message =
                "a connection from the zone \"other\", which Linux forwards, has no helper".to_owned();
            let hint = match helper {
                Helper::Ftp => {
                    "leave `helper` out, or \"other\" out of `from`; Linux has its own (nf_conntrack_ftp)"
                }
                Helper::Sip => {
                    "leave `helper` out, or \"other\" out of `from`; Linux has its own (nf_conntrack_sip)"
                }
                Helper::Pptp => {
                    "leave `helper` out, or \"other\" out of `from`; Linux has its own (nf_conntrack_pptp)"
                }
            };
            self.wrong(Code::Helper, item, "helper", message, hint);
        }
    }

    /// Reports rules past 127 different timeouts: a flow keeps the index of its timeout in seven bits.
    pub(super) fn rule_timeouts(&mut self) {
        let mut known = std::collections::BTreeSet::new();
        for (place, rule) in self.policy.rules.iter().enumerate() {
            let Some(timeout) = rule.timeout else { continue };
            known.insert(timeout);
            if known.len() > MOST_TIMEOUTS {
                let message = format!("more than {MOST_TIMEOUTS} different timeouts");
                self.wrong(
                    Code::BadLimit,
                    Item::Rule(place),
                    "timeout",
                    message,
                    "give several rules the same",
                );
                return;
            }
        }
    }

    /// Reports an excess that goes on where the rule leaves none, or none can be told from the rest.
    fn excess(&mut self, item: Item, rule: &Rule) {
        if rule.excess == Excess::Drop {
            return;
        }
        if rule.action != Action::Accept {
            let message = "`excess` is only for rules that accept".to_owned();
            let hint =
                "of a rule that refuses, what does not exceed the rate meets the next rules: leave it out";
            self.wrong(Code::LimitWithoutAccept, item, "excess", message, hint);
        } else if rule.rate.is_none() {
            let message = "without `rate` nothing is in excess".to_owned();
            self.wrong(
                Code::RuleWithoutEffect,
                item,
                "excess",
                message,
                "write rate = \"10/second burst 20\"",
            );
        } else if rule.syn == SynAnswer::Proxy {
            let message =
                "with syn = \"proxy\" no excess goes on: a SYN is answered before it is counted".to_owned();
            self.wrong(Code::RuleWithoutEffect, item, "excess", message, "leave `excess` or `syn` out");
        }
    }

    fn dnat(&mut self, item: Item, rule: &Rule) {
        if rule.dnat.is_some() && self.is_stateless() {
            let message = "a stateless policy translates no destinations".to_owned();
            let hint = "leave `dnat` out, or write mode = \"stateful\"";
            self.wrong(Code::NeedsStateful, item, "dnat", message, hint);
        }
    }

    fn states(&mut self, item: Item, rule: &Rule) {
        if rule.states.is_empty() {
            return;
        }
        if self.is_stateless() {
            let message = "a stateless policy knows no connections".to_owned();
            let hint = "leave `state` out, or write mode = \"stateful\"; tcp-flags = \"ack\" comes near to established";
            self.wrong(Code::NeedsStateful, item, "state", message, hint);
        } else if !rule.states.contains(&State::New) {
            let message =
                format!("the rule \"{}\" has no effect: only new connections meet the rules", rule.name);
            let hint =
                "what belongs to an accepted connection passes, and what is invalid never does: leave it out";
            self.wrong(Code::RuleWithoutEffect, item, "state", message, hint);
        }
    }

    fn origin(&mut self, item: Item, rule: &Rule) {
        for (index, _) in rule.conditions.from.iter().enumerate().filter(|(_, zone)| *zone == SELF_ZONE) {
            let message = "no packet is judged that comes from the gateway itself".to_owned();
            let hint = "what the gateway sends passes: leave \"self\" out";
            self.wrong_in(Code::RuleWithoutEffect, In { item, key: "from", index }, message, hint);
        }
        let is = |zones: &[String], zone| zones.len() == 1 && zones[0] == zone;
        if is(&rule.conditions.from, OTHER_ZONE) && is(&rule.conditions.to, SELF_ZONE) {
            let message = "no packet goes from the zone \"other\" to the gateway itself".to_owned();
            let hint = "Linux receives it by an interface that the policy does not name: leave the rule out";
            self.wrong(Code::RuleWithoutEffect, item, "from", message, hint);
        }
    }

    /// Reports Ethernet addresses that no frame has as its source, and conditions on packets without an Ethernet header.
    fn source_macs(&mut self, item: Item, conditions: &Conditions) {
        let key = "source-mac";
        let is_group = |range: &MacRange| range.first == range.last && !range.first.is_unicast();
        for (index, range) in
            conditions.source_macs.items.iter().enumerate().filter(|(_, range)| is_group(range))
        {
            let message = format!("no frame has the source {}", range.first);
            let hint = "it is the address of a group, or of nobody: leave it out";
            self.wrong_in(Code::RuleNeverMatches, In { item, key, index }, message, hint);
        }
        if conditions.source_macs.items.is_empty() {
            return;
        }
        let is_origin = |interface: &&Interface| {
            (conditions.from.is_empty() || conditions.from.contains(&interface.zone))
                && (conditions.in_interfaces.is_empty() || conditions.in_interfaces.contains(&interface.name))
        };
        let mut origins = self.policy.interfaces.iter().filter(is_origin).peekable();
        let is_known = origins.peek().is_some() || conditions.names_other();
        if is_known && origins.all(|interface| interface.link == LinkKind::Ip) {
            let message = "packets from there come without an Ethernet header".to_owned();
            let hint = "leave `source-mac` out, or name an Ethernet interface or its zone";
            self.wrong(Code::RuleNeverMatches, item, key, message, hint);
        }
    }

    /// Reports addresses, protocols and `family` that exclude one another's IP version.
    fn families(&mut self, item: Item, conditions: &Conditions) {
        let protocol_family = match conditions.protocols[..] {
            [Protocol::ICMP] => FamilyMatch::V4,
            [Protocol::ICMPV6] => FamilyMatch::V6,
            _ => FamilyMatch::Both,
        };
        let wanted = match (conditions.family, protocol_family) {
            (FamilyMatch::Both, other) => other,
            (family, FamilyMatch::Both) => family,
            (family, other) if family == other => family,
            _ => {
                let message = format!("{} is not of that family", conditions.protocols[0]);
                let hint = "icmp goes with ipv4, and icmpv6 with ipv6";
                return self.wrong(Code::FamilyMismatch, item, "protocol", message, hint);
            }
        };
        self.same_family(item, wanted, &conditions.source, &conditions.destination);
    }

    /// Reports addresses of another family than wanted, and sources and destinations without a common family.
    pub(super) fn same_family(
        &mut self,
        item: Item,
        wanted: FamilyMatch,
        source: &Addresses,
        destination: &Addresses,
    ) {
        let mut fine = true;
        for (key, addresses) in [("source", source), ("destination", destination)] {
            for (index, address) in addresses.items.iter().enumerate() {
                let space = self.spaces.of_item(address);
                if !space.is_empty() && Space::clone(&space).only(wanted).is_empty() {
                    fine = false;
                    let message =
                        format!("{} has no address of the rule's IP version", address_item_text(address));
                    let hint = "the family comes from `family` or the ICMP protocol: leave one of them out";
                    self.wrong_in(Code::FamilyMismatch, In { item, key, index }, message, hint);
                }
            }
        }
        let (from, to) = (self.spaces.of_addresses(source), self.spaces.of_addresses(destination));
        let sets_known = [source, destination].iter().all(|addresses| {
            addresses.items.iter().all(|item| match item {
                AddressItem::Set(name) => {
                    self.policy.dynamic_set(name).is_some()
                        || self.policy.set(name).is_some_and(|_| !self.lines.any_broken(Item::Set(0)))
                }
                AddressItem::Range(_) => true,
            })
        });
        if !fine || !sets_known {
            return;
        }
        for (key, space) in [("source", &from), ("destination", &to)] {
            if space.is_empty() {
                let message = format!("no packet matches: `{key}` leaves no address");
                return self.wrong(
                    Code::RuleNeverMatches,
                    item,
                    key,
                    message,
                    "fill the set, or leave the rule out",
                );
            }
        }
        let shared = Family::BOTH.iter().any(|family| from.has(*family) && to.has(*family));
        if !shared {
            let family = from.families().next().map_or("", Family::name);
            let message = format!("the source is {family}, and the destination is not");
            self.wrong(
                Code::FamilyMismatch,
                item,
                "destination",
                message,
                "a packet has both of one version",
            );
        }
    }

    fn interfaces_in_zones(&mut self, item: Item, conditions: &Conditions) {
        let sides = [
            ("in", &conditions.in_interfaces, "from", &conditions.from),
            ("out", &conditions.out_interfaces, "to", &conditions.to),
        ];
        for (key, interfaces, zone_key, zones) in sides {
            if interfaces.is_empty() || zones.is_empty() {
                continue;
            }
            let known: Vec<_> = interfaces.iter().filter_map(|name| self.policy.interface(name)).collect();
            if known.len() == interfaces.len()
                && known.iter().all(|interface| !zones.contains(&interface.zone))
            {
                let message =
                    format!("no packet matches: no interface of `{key}` is in a zone of `{zone_key}`");
                let hint = format!("leave `{key}` out, or name \"{}\" in `{zone_key}`", known[0].zone);
                self.wrong(Code::RuleNeverMatches, item, key, message, hint);
            }
        }
    }

    /// True if `space` lies among the outside addresses of a forward or a one-to-one translation.
    fn is_outside(&self, space: &Space) -> bool {
        self.policy.nats.iter().any(|nat| match &nat.action {
            NatAction::Forward { outside: Some(outside), .. }
            | NatAction::Balance(Balance { outside: Some(outside), .. }) => space.contains(*outside),
            NatAction::Forward { outside: None, .. } | NatAction::Balance(Balance { outside: None, .. }) => {
                space.overlaps(&self.own)
            }
            NatAction::OneToOne { outside, .. } | NatAction::Npt { outside, .. } => {
                space.overlaps(&Space::of_net(*outside))
            }
            _ => false,
        })
    }

    /// Reports addresses behind none of the zones.
    fn behind(&mut self, at: In<'_>, addresses: &Addresses, behind: &[Arc<Space>], zones: &[String]) {
        if addresses.except
            || zones.is_empty()
            || !zones.iter().all(|zone| zone == SELF_ZONE || self.is_zone(zone))
        {
            return;
        }
        for (index, address) in addresses.items.iter().enumerate() {
            let space = self.spaces.of_item(address);
            // An IPv4 host under a prefix is wherever routes of IPv4 lead.
            // By a CLAT any IPv4 host is where no route of IPv4 leads.
            let is_ipv4_host = self.policy.nats.iter().any(|nat| match &nat.action {
                NatAction::Nat64(nat64) => space.overlaps(&Space::of_net(nat64.net().into())),
                NatAction::Clat(_) => {
                    space.has(Family::V4)
                        && self.reach.as_ref().is_none_or(|reach| reach.zones_of(&space).is_empty())
                }
                _ => false,
            });
            if space.is_empty() || is_ipv4_host || behind.iter().any(|zone| zone.overlaps(&space)) {
                continue;
            }
            let mut found = self.reach.as_ref().map(|reach| reach.zones_of(&space)).unwrap_or_default();
            if space.families().all(|family| self.own.covers(&space, family)) {
                found = vec![SELF_ZONE];
            }
            let hint = if at.key == "destination" && self.is_outside(&space) {
                "rules see the destination after translation: write the inside address".to_owned()
            } else if found.is_empty() {
                "no route leads there: add a [[route]], or correct the address".to_owned()
            } else {
                format!(
                    "by the routes it is behind \"{}\": correct the address, the zone or the routes",
                    found.join("\", \"")
                )
            };
            let message = format!(
                "{} is not behind \"{}\", so it never matches",
                address_item_text(address),
                zones.join("\", \"")
            );
            let place = self.lines.place_in(at.item, at.key, index);
            self.report(Diagnostic::new(Code::AddressOutsideZone, message).hint(hint).at(place));
        }
    }
}
