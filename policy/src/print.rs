//! Canonical text of a policy, which reads back as the same policy.
//!
//! Default values are left out.

use std::fmt::{self, Display, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::quantity::bit_rate_text;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use wire::{Dscp, Nanos};

use crate::model::{
    AddressItem, AddressRange, Addresses, ConnectionLimit, Driver, FamilyMatch, FragmentLimits, Gateway,
    Hairpin, IcmpMatch, Interface, Limits, LinkKind, Logging, Macs, Mode, MssClamp, Nat, NatAction, NextHop,
    Offload, OnExit, Policy, PortChoice, PortRange, PortUse, Protocol, Rate, Route, RouteTarget, Rule, Scope,
    Search, SearchAlgorithm, SourceCheck, SynAnswer, TcpFlagsMatch, Timeouts,
};
use crate::parse::value::UNITS;
use crate::word::{self, Words, word_for};

/// Longest line, in characters; a longer list is broken into one item a line.
const WIDTH: usize = 100;

impl Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Printer { text: String::new() };
        out.policy(self);
        f.write_str(out.text.trim_start())
    }
}

/// The text so far. Writing to a string cannot fail.
struct Printer {
    text: String,
}

impl Printer {
    fn policy(&mut self, policy: &Policy) {
        if policy.mode != Mode::Stateful {
            self.word("mode", word::MODE, policy.mode);
        }
        self.search(&policy.search);
        policy.interfaces.iter().for_each(|interface| self.interface(interface));
        if !policy.sets.is_empty() {
            self.header("[set]");
            for set in &policy.sets {
                let items: Vec<String> = set.items.iter().map(|item| quoted(&range(*item))).collect();
                self.list(&key(&set.name), &items);
            }
        }
        if !policy.defaults.is_empty() {
            self.header("[default]");
            for default in &policy.defaults {
                let pair = quoted(&format!("{} > {}", default.from, default.to));
                self.word(&pair, word::ACTION, default.action);
            }
        }
        policy.routes.iter().for_each(|route| self.route(route));
        for neighbour in &policy.neighbours {
            self.header("[[neighbour]]");
            self.string("interface", &neighbour.interface);
            self.string("address", &neighbour.address.to_string());
            self.string("mac", &neighbour.mac.to_string());
        }
        policy.nats.iter().for_each(|nat| self.nat(nat));
        policy.rules.iter().for_each(|rule| self.rule(rule));
        self.limits(&policy.limits);
        self.timeouts(&policy.timeouts);
        self.gateway(&policy.gateway);
    }

    fn gateway(&mut self, gateway: &Gateway) {
        if *gateway == Gateway::default() {
            return;
        }
        self.header("[gateway]");
        if let Some(workers) = gateway.workers {
            self.line("workers", &workers.to_string());
        }
        if gateway.driver != Driver::default() {
            self.word("driver", word::DRIVER, gateway.driver);
        }
        if gateway.offload != Offload::default() {
            self.word("offload", word::OFFLOAD, gateway.offload);
        }
        if let Some(metrics) = gateway.metrics {
            self.string("metrics", &metrics.to_string());
        }
        let access = &gateway.metrics_access;
        for (key, path) in [
            ("metrics-certificate", &access.certificate),
            ("metrics-key", &access.key),
            ("metrics-token", &access.token),
        ] {
            if let Some(path) = path {
                self.string(key, &path.to_string_lossy());
            }
        }
        let log = &gateway.log;
        self.one_or_list("log", log.outputs.iter().map(|output| quoted(&output.to_string())));
        if let Some(events) = &log.events {
            let words: Vec<String> =
                events.iter().map(|event| quoted(word_or_empty(word::LOG_EVENT, *event))).collect();
            self.list("log-events", &words);
        }
        for (key, rate) in [("log-rate", log.rate), ("log-rate-total", log.total)] {
            if let Some(rate) = rate {
                self.string(key, &rate_text(rate));
            }
        }
        if gateway.on_exit != OnExit::default() {
            self.word("on-exit", word::ON_EXIT, gateway.on_exit);
        }
        if !gateway.drivers.is_empty() {
            self.header("[gateway.drivers]");
            for own in &gateway.drivers {
                self.word(&key(&own.interface), word::DRIVER, own.driver);
            }
        }
    }

    fn interface(&mut self, interface: &Interface) {
        self.header(&format!("[interface.{}]", key(&interface.name)));
        self.string("zone", &interface.zone);
        if let Some(parent) = &interface.parent {
            self.string("parent", parent);
        }
        self.one_or_list("vlan", interface.vlans.iter().map(u16::to_string));
        if !interface.addresses.is_empty() {
            let addresses: Vec<String> =
                interface.addresses.iter().map(|address| quoted(&address.to_string())).collect();
            self.list("addresses", &addresses);
        }
        if interface.link != LinkKind::default() {
            self.word("link", word::LINK, interface.link);
        }
        if interface.mtu != 1500 {
            self.line("mtu", &interface.mtu.to_string());
        }
        if let Some(rate) = interface.rate {
            self.string("rate", &bit_rate_text(rate.0));
        }
        if let Some(overhead) = interface.overhead {
            self.line("overhead", &overhead.to_string());
        }
        if let Some(mac) = interface.mac {
            self.string("mac", &mac.to_string());
        }
        if interface.source_check != SourceCheck::default() {
            self.word("source-check", word::SOURCE_CHECK, interface.source_check);
        }
        match interface.mss {
            MssClamp::Off => {}
            MssClamp::Mtu => self.string("mss", "mtu"),
            MssClamp::Bytes(bytes) => self.line("mss", &bytes.to_string()),
        }
    }

    fn route(&mut self, route: &Route) {
        self.header("[[route]]");
        self.string("to", &prefix(route.destination));
        match &route.target {
            RouteTarget::Blackhole => self.string("kind", "blackhole"),
            RouteTarget::Unreachable => self.string("kind", "unreachable"),
            RouteTarget::Via(hops) => match &hops[..] {
                [NextHop { via, interface, weight: 1 }] => {
                    if let Some(via) = via {
                        self.string("via", &via.to_string());
                    }
                    if let Some(interface) = interface {
                        self.string("interface", interface);
                    }
                }
                hops => self.list("via", &hops.iter().map(next_hop).collect::<Vec<_>>()),
            },
        }
    }

    fn rule(&mut self, rule: &Rule) {
        self.header("[[rule]]");
        self.string("name", &rule.name);
        self.strings("from", &rule.from);
        self.strings("to", &rule.to);
        self.strings("in", &rule.in_interfaces);
        self.strings("out", &rule.out_interfaces);
        if rule.family != FamilyMatch::Both {
            self.word("family", word::FAMILY, rule.family);
        }
        self.macs("source-mac", &rule.source_macs);
        self.addresses("source", &rule.source);
        self.addresses("destination", &rule.destination);
        self.one_or_list("protocol", rule.protocols.iter().map(|protocol| protocol_text(*protocol)));
        self.one_or_list("sport", rule.sports.iter().map(|range| ports(*range)));
        self.one_or_list("dport", rule.dports.iter().map(|range| ports(*range)));
        let words = word::icmp_words(&rule.protocols);
        self.one_or_list("icmp", rule.icmp.iter().map(|icmp| icmp_text(*icmp, words)));
        if let Some(flags) = rule.tcp_flags {
            self.string("tcp-flags", &tcp_flags(flags));
        }
        self.one_or_list("dscp", rule.dscp.iter().map(|dscp| dscp_text(*dscp)));
        self.one_or_list("state", rule.states.iter().map(|state| quoted(word_or_empty(word::STATE, *state))));
        if let Some(rate) = rule.rate {
            self.string("rate", &rate_text(rate));
        }
        if let Some(ConnectionLimit { most, scope }) = rule.connections {
            match scope {
                Scope::Rule => self.line("connections", &most.to_string()),
                Scope::Source => self.string("connections", &format!("{most} per source")),
            }
        }
        if let Some(timeout) = rule.timeout {
            self.string("timeout", &duration(timeout));
        }
        if rule.syn != SynAnswer::Forward {
            self.word("syn", word::SYN, rule.syn);
        }
        if rule.log == Logging::On {
            self.line("log", "true");
        }
        self.word("action", word::ACTION, rule.action);
    }

    fn nat(&mut self, nat: &Nat) {
        self.header("[[nat]]");
        self.string("name", &nat.name);
        let kind = match nat.action {
            NatAction::Masquerade { .. } => "masquerade",
            NatAction::Source { .. } => "source",
            NatAction::Exempt => "exempt",
            NatAction::Forward { .. } => "forward",
            NatAction::OneToOne { .. } => "one-to-one",
        };
        self.string("kind", kind);
        self.strings("from", &nat.from);
        self.strings("to", &nat.to);
        self.addresses("source", &nat.source);
        self.addresses("destination", &nat.destination);
        self.one_or_list("protocol", nat.protocols.iter().map(|protocol| protocol_text(*protocol)));
        self.one_or_list("sport", nat.sports.iter().map(|range| ports(*range)));
        self.one_or_list("dport", nat.dports.iter().map(|range| ports(*range)));
        match &nat.action {
            NatAction::Masquerade { ports } => self.port_use(ports),
            NatAction::Source { pool, ports } => {
                self.list("pool", &pool.iter().map(|item| quoted(&range(*item))).collect::<Vec<_>>());
                self.port_use(ports);
            }
            NatAction::Exempt => {}
            NatAction::Forward { outside, ports: outside_ports, target, target_port, hairpin } => {
                if let Some(outside) = outside {
                    self.string("outside", &outside.to_string());
                }
                self.one_or_list("port", outside_ports.iter().map(|range| ports(*range)));
                let target = match (target, target_port) {
                    (target, None) => target.to_string(),
                    (IpAddr::V4(target), Some(port)) => format!("{target}:{port}"),
                    (IpAddr::V6(target), Some(port)) => format!("[{target}]:{port}"),
                };
                self.string("target", &target);
                self.hairpin(*hairpin);
            }
            NatAction::OneToOne { outside, inside, hairpin } => {
                self.string("outside", &prefix(*outside));
                self.string("inside", &prefix(*inside));
                self.hairpin(*hairpin);
            }
        }
    }

    fn hairpin(&mut self, hairpin: Hairpin) {
        if hairpin == Hairpin::Off {
            self.line("hairpin", "false");
        }
    }

    fn port_use(&mut self, given: &PortUse) {
        if given.ranges != PortUse::default().ranges {
            self.one_or_list("ports", given.ranges.iter().map(|range| ports(*range)));
        }
        if given.choice == PortChoice::Random {
            self.line("random", "true");
        }
        if let Some(quota) = given.quota {
            self.line("quota", &quota.to_string());
        }
        if let Some(block) = given.block {
            self.line("block", &block.to_string());
        }
    }

    fn search(&mut self, search: &Search) {
        if *search == Search::default() {
            return;
        }
        self.header("[classifier]");
        if search.algorithm != SearchAlgorithm::Auto {
            self.word("algorithm", word::SEARCH_ALGORITHM, search.algorithm);
        }
        if let Some(memory) = search.memory {
            self.line("memory", &(memory.0 >> 20).to_string());
        }
    }

    fn limits(&mut self, limits: &Limits) {
        let default = Limits::default();
        if (Limits { fragments: default.fragments, ..*limits }) != default {
            self.header("[limit]");
            self.unless_default("flows", limits.flows, default.flows);
            if limits.when_full != default.when_full {
                self.word("when-full", word::WHEN_FULL, limits.when_full);
            }
            if let Some(most) = limits.flows_per_source {
                self.line("flows-per-source", &most.to_string());
            }
            self.unless_default("errors-per-second", limits.errors_per_second, default.errors_per_second);
            self.unless_default("errors-in-all", limits.errors_in_all, default.errors_in_all);
            self.unless_default("queue", limits.queue, default.queue);
            if limits.tcp_window != default.tcp_window {
                self.word("tcp-window", word::TCP_WINDOW, limits.tcp_window);
            }
            if limits.pickup != default.pickup {
                self.word("pickup", word::PICKUP, limits.pickup);
            }
            if limits.checksum != default.checksum {
                self.word("checksum", word::CHECKSUM, limits.checksum);
            }
        }
        let (fragments, default) = (limits.fragments, FragmentLimits::default());
        if fragments != default {
            self.header("[limit.fragments]");
            self.unless_default("datagrams", fragments.datagrams, default.datagrams);
            self.unless_default("held", fragments.held, default.held);
            self.unless_default("datagram", fragments.datagram.0, default.datagram.0);
        }
    }

    fn timeouts(&mut self, timeouts: &Timeouts) {
        let default = Timeouts::default();
        if *timeouts == default {
            return;
        }
        self.header("[timeout]");
        for (key, given, default) in [
            ("tcp-half-open", timeouts.tcp_half_open, default.tcp_half_open),
            ("tcp-established", timeouts.tcp_established, default.tcp_established),
            ("tcp-closing", timeouts.tcp_closing, default.tcp_closing),
            ("tcp-reset", timeouts.tcp_reset, default.tcp_reset),
            ("udp", timeouts.udp, default.udp),
            ("udp-unanswered", timeouts.udp_unanswered, default.udp_unanswered),
            ("icmp", timeouts.icmp, default.icmp),
            ("other", timeouts.other, default.other),
            ("fragment", timeouts.fragment, default.fragment),
        ] {
            if given != default {
                self.string(key, &duration(given));
            }
        }
    }

    fn addresses(&mut self, key: &str, addresses: &Addresses) {
        let items = addresses.items.iter().map(|item| match item {
            AddressItem::Range(item) => quoted(&range(*item)),
            AddressItem::Set(set) => quoted(&format!("@{set}")),
        });
        self.items(key, items.collect(), addresses.except);
    }

    fn macs(&mut self, key: &str, macs: &Macs) {
        self.items(key, macs.items.iter().map(|item| quoted(&item.to_string())).collect(), macs.except);
    }

    /// Writes the items that match, or the exceptions; nothing for an empty list.
    fn items(&mut self, key: &str, items: Vec<String>, except: bool) {
        if except && !items.is_empty() {
            self.line(key, &format!("{{ except = [{}] }}", items.join(", ")));
        } else {
            self.one_or_list(key, items.into_iter());
        }
    }

    fn strings(&mut self, key: &str, values: &[String]) {
        self.one_or_list(key, values.iter().map(|value| quoted(value)));
    }

    /// Writes one value by itself, several as a list, none not at all.
    fn one_or_list(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: Vec<String> = values.collect();
        match &values[..] {
            [] => {}
            [value] => self.line(key, value),
            values => self.list(key, values),
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        let line = format!("[{}]", values.join(", "));
        if key.len() + line.len() + 3 <= WIDTH {
            self.line(key, &line);
        } else {
            self.line(key, &format!("[\n    {},\n]", values.join(",\n    ")));
        }
    }

    fn unless_default<T: PartialEq + Display>(&mut self, key: &str, value: T, default: T) {
        if value != default {
            self.line(key, &value.to_string());
        }
    }

    fn word<T: PartialEq + Copy>(&mut self, key: &str, words: Words<T>, value: T) {
        self.string(key, word_or_empty(words, value));
    }

    fn string(&mut self, key: &str, value: &str) {
        self.line(key, &quoted(value));
    }

    fn line(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn header(&mut self, header: &str) {
        let _ = writeln!(self.text, "\n{header}");
    }
}

/// Word for `value`, or nothing; a test of the tables holds that every value has one.
fn word_or_empty<T: PartialEq + Copy>(words: Words<T>, value: T) -> &'static str {
    word_for(words, value).unwrap_or_default()
}

/// Formats a key, in quotes where TOML wants them.
fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}

/// Formats a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn next_hop(hop: &NextHop) -> String {
    if let NextHop { via: Some(via), interface: None, weight: 1 } = hop {
        return quoted(&via.to_string());
    }
    let via = hop.via.map(|via| format!("via = {}", quoted(&via.to_string())));
    let interface = hop.interface.as_ref().map(|name| format!("interface = {}", quoted(name)));
    let weight = (hop.weight != 1).then(|| format!("weight = {}", hop.weight));
    let parts: Vec<String> = [via, interface, weight].into_iter().flatten().collect();
    format!("{{ {} }}", parts.join(", "))
}

/// Formats a prefix; that of one address without its length.
fn prefix(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

/// Formats a range as one address, as a prefix if it is one, or as `first-last`.
pub(crate) fn range(range: AddressRange) -> String {
    match prefix_of(range) {
        Some(net) => prefix(net),
        None => format!("{}-{}", range.first, range.last),
    }
}

/// Returns the prefix equal to `range`, if there is one.
fn prefix_of(range: AddressRange) -> Option<IpNet> {
    let net = match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let length = (u32::from(first) ^ u32::from(last)).leading_zeros();
            IpNet::V4(Ipv4Net::new(Ipv4Addr::from(u32::from(first)), length as u8).ok()?)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let length = (u128::from(first) ^ u128::from(last)).leading_zeros();
            IpNet::V6(Ipv6Net::new(Ipv6Addr::from(u128::from(first)), length as u8).ok()?)
        }
        _ => return None,
    };
    (AddressRange::from(net) == range).then_some(net)
}

fn protocol_text(protocol: Protocol) -> String {
    protocol.name().map_or_else(|| protocol.0.to_string(), quoted)
}

fn ports(range: PortRange) -> String {
    if range.first == range.last {
        range.first.to_string()
    } else {
        quoted(&format!("{}-{}", range.first, range.last))
    }
}

fn icmp_text(icmp: IcmpMatch, words: Option<Words<IcmpMatch>>) -> String {
    if let Some(word) = words.and_then(|words| word_for(words, icmp)) {
        return quoted(word);
    }
    match icmp.code {
        Some(code) => quoted(&format!("{}/{code}", icmp.kind)),
        None => icmp.kind.to_string(),
    }
}

fn tcp_flags(flags: TcpFlagsMatch) -> String {
    let looked_at = word::TCP_FLAG.iter().filter(|(_, bit)| flags.mask & bit != 0);
    let words: Vec<String> = looked_at
        .map(|(word, bit)| if flags.value & bit != 0 { (*word).to_owned() } else { format!("!{word}") })
        .collect();
    words.join(",")
}

fn dscp_text(dscp: Dscp) -> String {
    word_for(word::DSCP, dscp.value()).map_or_else(|| dscp.value().to_string(), quoted)
}

fn rate_text(rate: Rate) -> String {
    let per = match rate.per {
        per if per == Nanos::from_secs(1) => "second".to_owned(),
        per if per == Nanos::from_secs(60) => "minute".to_owned(),
        per if per == Nanos::from_secs(3_600) => "hour".to_owned(),
        per if per == Nanos::from_secs(86_400) => "day".to_owned(),
        per => duration(per),
    };
    let burst = if rate.burst == rate.count { String::new() } else { format!(" burst {}", rate.burst) };
    let scope = match rate.scope {
        Scope::Rule => "",
        Scope::Source => " per source",
    };
    format!("{}/{per}{burst}{scope}", rate.count)
}

/// Formats a duration as numbers with units, the longest first.
pub(crate) fn duration(time: Nanos) -> String {
    let mut rest = time.0;
    let mut text = String::new();
    for (unit, nanos) in UNITS {
        if rest >= *nanos {
            let _ = write!(text, "{}{unit}", rest / nanos);
            rest %= nanos;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests;
