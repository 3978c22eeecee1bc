//! Rendering of an explanation: observations, decisions and actions of each stage, in sentences.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use dataplane::describe::Description;
use dataplane::egress::TreeSide;
use dataplane::explain::{Account, Membership, Visit};
use dataplane::flag;
use dataplane::flow::{Flow, Key, Life};
use dataplane::hop::{LOCAL_HOP, NO_HOP};
use dataplane::meter::{Level, MeterState, Unit};
use dataplane::pipeline;
use dataplane::stage::Packets;
use dataplane::tables::{FilterRule, LOCAL, NewDestination, PatternRule, QueueTree, SELF, Side, Tables};
use dataplane::{Reason, Verdict};
use lookup::classify::Header;
use policy::model::{Action, Colour, Mode, ServerState, SourceCheck, Sticky};
use policy::{Lines, Policy, dscp_name};
use replay::number::{count, number};
use tally::{Count, NoTally, Region};
use wire::header::{Endpoint, Protocol};
use wire::{Dscp, Family, Meta, Nanos, PortId};

mod multicast;
mod tunnel;
mod wan;

/// Tables and texts needed to put names to numbers.
pub struct Renderer<'a> {
    /// Tables that the packet met.
    pub tables: &'a Tables,
    /// Policy that they were compiled from.
    pub policy: &'a Policy,
    /// Lines of its parts, where it has a file.
    pub lines: &'a Lines,
    /// The frame as it was received.
    pub received: &'a [u8],
    /// Parts of the translation that are unknown here.
    pub chosen: Option<Chosen>,
}

/// Parts of a translation that a running gateway chooses only when the packet comes: the values in their place here are
/// never shown.
pub struct Chosen {
    /// The outside address.
    pub address: IpAddr,
    /// The outside port, or what stands for it.
    pub port: u16,
    /// True if the address is known, and only the port is not.
    pub is_address_known: bool,
}

impl Chosen {
    /// The outside end, in words.
    fn text(&self) -> String {
        match self.is_address_known {
            true => format!("{} and a free port", self.address),
            false => "a free address and port".to_owned(),
        }
    }

    /// A frame in words, without what is not known.
    pub(super) fn veil(&self, told: &mut Description) {
        let Chosen { address, port, is_address_known } = *self;
        let is_at =
            |told: &Description, field| told.field(field).is_some_and(|text| text == address.to_string());
        let veiled = if is_address_known { address.to_string() } else { "?".to_owned() };
        let before = Endpoint { address, port: Some(port) }.to_string();
        let after = if address.is_ipv6() { format!("[{veiled}]:?") } else { format!("{veiled}:?") };
        for (at, field) in [("source", "sport"), ("destination", "dport")] {
            if !is_at(told, at) {
                continue;
            }
            told.headline = told.headline.replace(&before, &after);
            let by_port = told.field(field).is_some_and(|text| text == port.to_string());
            let by_id = told.field("id").is_some_and(|text| text == port.to_string());
            if by_id {
                told.headline = told.headline.replace(&format!(" id {port} "), " id ? ");
            }
            for (name, value) in &mut told.fields {
                if (*name == field && by_port)
                    || (*name == "id" && by_id)
                    || (*name == at && !is_address_known)
                {
                    *value = "?".to_owned();
                }
            }
        }
        if !is_address_known {
            told.headline = told.headline.replace(&address.to_string(), "?");
        }
    }
}

/// Explanation of one stage.
pub(super) struct Told<'a> {
    /// Name of the stage.
    pub(super) stage: &'static str,
    /// Sentences on the stage's actions, or on the reason that it was skipped.
    pub(super) says: Vec<String>,
    /// Record of the stage's actions; `None` if it was skipped.
    pub(super) visit: Option<&'a Visit>,
}

/// The fields that a stage has changed, for one of which no more is known here.
fn changed(visit: &Visit) -> String {
    let mut fields: Vec<_> = visit.after.changed(&visit.before).names().collect();
    if visit.bytes.is_some() {
        fields.push("bytes");
    }
    if fields.is_empty() { "changes nothing".to_owned() } else { format!("changes {}", fields.join(", ")) }
}

impl Renderer<'_> {
    /// All stages, also those that had nothing to do.
    pub(super) fn tell<'a>(&self, account: &'a Account) -> Vec<Told<'a>> {
        let mut told: Vec<Told<'a>> = Vec::with_capacity(pipeline::STAGES);
        let mut bytes = self.received;
        for stage in pipeline::names() {
            let Some(visit) = account.visits.iter().find(|visit| visit.stage == stage) else {
                let says = vec![self.passed_by(stage, account)];
                told.push(Told { stage, says, visit: None });
                continue;
            };
            let mut says = self.visit(visit, bytes);
            if let Some(verdict) = Verdict::of_fate(visit.after.fate) {
                if visit.after.fate != visit.before.fate {
                    says.push(verdict_text(verdict));
                }
            }
            bytes = visit.bytes.as_deref().unwrap_or(bytes);
            told.push(Told { stage, says, visit: Some(visit) });
        }
        told
    }

    /// Returns the reason that a stage had nothing to do.
    fn passed_by(&self, stage: &str, account: &Account) -> String {
        let last = account.visits.last();
        let decided = last.is_some_and(|visit| visit.after.flags & flag::HIT != 0);
        let place = |name: &str| pipeline::names().iter().position(|stage| *stage == name);
        let is_behind = |name: &str| last.is_some_and(|visit| place(visit.stage) > place(name));
        let entry = pipeline::stages().find(|entry| entry.about.name == stage);
        match entry.map_or(Packets::None, |entry| (entry.packets)(self.tables)) {
            Packets::None => "not in the pipeline: the policy has no use for it",
            Packets::Answered => "nothing to answer",
            Packets::First if decided => "not asked: the flow has been decided",
            // A later stage has taken it.
            Packets::First | Packets::Every if is_behind(stage) => "nothing to do",
            Packets::First | Packets::Every => "not reached",
        }
        .to_owned()
    }

    fn visit(&self, visit: &Visit, bytes: &[u8]) -> Vec<String> {
        let mut says = Vec::new();
        match visit.stage {
            "parse" => self.parse(visit, bytes, &mut says),
            "decap" => self.decap(visit, &mut says),
            "encap" => self.encap(visit, &mut says),
            "track" => self.track(visit, &mut says),
            "replicate" => self.replicate(visit, bytes, &mut says),
            "dnat" => self.dnat(visit, &mut says),
            "route" => self.route(visit, bytes, &mut says),
            "filter" => self.filter(visit, &mut says),
            "classify" => {
                self.sets(visit, &mut says);
                says.push(match self.tables.classes.get(visit.after.class) {
                    Some(class) => format!("traffic class \"{}\"", class.name),
                    None => "no traffic class".to_owned(),
                });
            }
            "police" => self.police(visit, &mut says),
            "mark" => self.mark(visit, &mut says),
            "snat" => self.snat(visit, &mut says),
            "rewrite" => self.changes(visit, bytes, &mut says),
            "answer" => {
                if let Some(answer) = &visit.bytes {
                    says.push(format!("becomes its answer: {}", self.describe(answer).headline));
                }
            }
            "queue" => {
                if let Some(interface) = self.tables.interface(visit.after.egress) {
                    let root = self.interface(interface.root);
                    says.push(format!("there is room in the queue of {root}"));
                }
                says.extend(self.queues(visit, bytes));
            }
            _ => says.push(changed(visit)),
        }
        says
    }

    /// Queues of trees that the packet waits in: of what comes by its interface, and of what leaves by its port.
    fn queues(&self, visit: &Visit, bytes: &[u8]) -> Vec<String> {
        let queues = &self.tables.queues;
        let leaf = |LeafAt { port, side, leaf }| {
            let tree = if side == TreeSide::From { queues.from(port) } else { queues.on(port) };
            let leaf = tree?.nodes.get(leaf? as usize)?;
            Some(format!("waits in queue \"{}\" of {}", leaf.name, self.interface(port)))
        };
        leaves(self.tables, &visit.after, bytes).into_iter().filter_map(leaf).collect()
    }

    fn parse(&self, visit: &Visit, bytes: &[u8], says: &mut Vec<String>) {
        says.push(format!("sees {}", Description::of(bytes).headline));
        let (port, ingress) = (visit.before.ingress, visit.after.ingress);
        if let Some(interface) = self.tables.interface(ingress) {
            let zone = self.zone(interface.zone);
            let by =
                if port == ingress { String::new() } else { format!(", a VLAN of {}", self.interface(port)) };
            let vrf = self.tables.vrf_name(ingress).map_or_else(String::new, |vrf| format!(", VRF {vrf}"));
            says.push(format!("in by {}{by}, zone {zone}{vrf}", interface.name));
        }
    }

    fn track(&self, visit: &Visit, says: &mut Vec<String>) {
        let after = &visit.after;
        if self.policy.mode == Mode::Stateless {
            says.push("the policy is stateless: no connection is tracked".to_owned());
        } else if let Some(flow) = &visit.flow {
            let about = if after.flags & flag::RELATED != 0 { "is an error about" } else { "belongs to" };
            says.push(format!("{about} the flow {}, now {}", key(flow.original()), state(flow)));
            let way =
                if after.flags & flag::REPLY != 0 { "comes back" } else { "goes as its first packet did" };
            let mut decided = format!("it {way}; what was decided for the flow holds");
            if let Some(rule) = self.rule(after.rule) {
                decided.push_str(&format!(": {rule}"));
            }
            for name in self.tables.nat.names(after.nat) {
                decided.push_str(&format!(", {}", self.nat(name)));
            }
            says.push(decided);
            if flow.is_proxied() {
                let made = "the gateway has made the handshake with the client; sequence numbers of the server are translated";
                says.push(made.to_owned());
            }
            if flow.is_call() {
                says.push("a control connection of PPTP has announced it (related); its call ID is translated where the other end knows another".to_owned());
            } else if flow.is_helped() {
                says.push(
                    "a helper reads the connection, and translates the addresses that it announces"
                        .to_owned(),
                );
            }
        } else if after.flags & flag::OPENS != 0
            && visit.opening.is_some_and(|opening| opening.expected.is_some())
        {
            says.push("no flow has this packet; a control connection has announced it (related)".to_owned());
        } else if after.flags & flag::OPENS != 0
            && visit.opening.is_some_and(|opening| opening.cookie.is_some())
        {
            says.push(
                "no flow has this packet; it acknowledges a cookie, and becomes the SYN of its client"
                    .to_owned(),
            );
        } else if after.flags & flag::OPENS != 0 {
            says.push("no flow has this packet; it may open one".to_owned());
        } else if after.fate == 0 {
            says.push("no flow, and none is opened".to_owned());
        } else {
            says.push("finds no flow that it fits".to_owned());
        }
        let ended = visit.flows[0].saturating_sub(visit.flows[1]);
        if ended > 0 {
            says.push(format!(
                "{} had been idle for too long, and ended",
                count(ended.into(), "flow", "flows")
            ));
        }
    }

    fn police(&self, visit: &Visit, says: &mut Vec<String>) {
        let class = self.tables.classes.get(visit.after.class);
        let meter = class.and_then(|class| self.tables.classes.meters.get(usize::from(class.meter?)));
        let colour = Colour::ALL.into_iter().find(|colour| *colour as u8 == visit.after.colour);
        match (meter, colour) {
            (Some(meter), Some(colour)) => {
                says.push(format!("{} by the meter \"{}\"", colour.name(), meter.name));
                says.extend(visit.meter.as_ref().map(tokens));
            }
            _ => says.push("its class has no meter".to_owned()),
        }
    }

    fn mark(&self, visit: &Visit, says: &mut Vec<String>) {
        let [before, after] = [&visit.before, &visit.after].map(|meta| Dscp::of_field(meta.ds_field));
        let named = |dscp: Dscp| dscp_name(dscp).map_or_else(|| dscp.value().to_string(), str::to_owned);
        says.push(if before == after {
            format!("keeps its code point, {}", named(before))
        } else {
            format!("code point {} in the place of {}", named(after), named(before))
        });
        if visit.before.ds_field & 3 != visit.after.ds_field & 3 {
            says.push("marked: congestion experienced (ECN)".to_owned());
        }
    }

    fn dnat(&self, visit: &Visit, says: &mut Vec<String>) {
        let Some(opening) = &visit.opening else { return };
        self.sets(visit, says);
        let (address, port) = (opening.destination().to_ip(), port_of(visit, opening.dport));
        let to = Endpoint { address, port };
        let place = usize::from(opening.dnat);
        let rule = place.checked_sub(1).and_then(|place| self.tables.nat.destinations.get(place));
        match (rule, opening.inward) {
            (Some(rule), _) => {
                says.push(format!("{}: the destination becomes {to}", self.nat(&rule.name)));
                if let NewDestination::Servers(servers) = &rule.action.to {
                    let up = servers.list.iter().filter(|server| server.state == ServerState::Up).count();
                    let of = match servers.sticky {
                        Sticky::Connection => "connection",
                        Sticky::Source => "client's address",
                    };
                    says.push(format!(
                        "chosen by hash of the {of}, of {up} servers that are up, of {} in all",
                        servers.list.len()
                    ));
                    let down = servers.list.iter().filter(|server| server.state == ServerState::Down);
                    let down: Vec<&str> = down.map(|server| server.name.as_str()).collect();
                    if !down.is_empty() {
                        says.push(format!("down: {}", down.join(", ")));
                    }
                }
            }
            (None, Some(_)) => {
                says.push(format!(
                    "the outside port is mapped to an inside host: the destination becomes {to}"
                ));
            }
            (None, None) => {
                // Between IP versions not all that matches is translated.
                let seen = self.with_sets(opening.seen, visit);
                let found = self.tables.nat.destination(&seen, &mut NoTally);
                let found = found.map(|(_, rule)| rule).filter(|rule| rule.action.translator().is_some());
                says.push(match found {
                    Some(rule) if visit.after.fate == 0 => {
                        format!("{}: what IPv4 has a route for goes as it is", self.nat(&rule.name))
                    }
                    Some(rule) => format!("{} does not lead there", self.nat(&rule.name)),
                    None => "no destination translation matches".to_owned(),
                });
            }
        }
        if let Some(turned) = opening.turned {
            let outside = self.interface(turned);
            says.push(format!("turned back inside, as if it came from {outside} (hairpin)"));
        }
    }

    fn route(&self, visit: &Visit, bytes: &[u8], says: &mut Vec<String>) {
        let after = &visit.after;
        let hit = after.flags & flag::HIT != 0;
        let description = Description::of(bytes);
        let address = |field| description.field(field).and_then(|text| text.parse::<IpAddr>().ok());
        let source_check = self.tables.interface(after.ingress).map(|interface| interface.source_check);
        let spoofed = after.fate == Verdict::Dropped(Reason::SourceSpoofed).to_fate();
        if let (Some(source), false) = (address("source"), hit) {
            let vrf = self.tables.vrf_name(after.ingress);
            let home = self.best_route(vrf, source).unwrap_or_else(|| "no route".to_owned());
            match source_check {
                Some(SourceCheck::Off) | None => {}
                Some(_) if spoofed => says.push(format!("{home} leads to the source {source}, not this way")),
                Some(_) => says.push(format!("the source {source} may come this way: {home} leads back")),
            }
        }
        if spoofed {
            return;
        }
        let mut destination = address("destination");
        if let Some(opening) = &visit.opening {
            destination = Some(opening.destination().to_ip());
        }
        let required = after.fate == Verdict::Dropped(Reason::TunnelRequired).to_fate();
        if required {
            says.push("it came in clear, and selectors say that it must come through a tunnel".to_owned());
            return;
        }
        let tunnel = self.tables.tunnel_at(after.egress).filter(|tunnel| !tunnel.selectors.is_empty());
        if let Some(tunnel) = tunnel.filter(|_| !hit && after.tunnel & dataplane::tunnel::OUT != 0) {
            let name = self.interface(tunnel.interface);
            says.push(format!(
                "selectors of the tunnel {name} match: it goes into the tunnel, wherever routes lead"
            ));
            destination = None;
        }
        if visit.before.hop != NO_HOP && after.flags & flag::TO_GROUP != 0 {
            says.push(format!("leaves by {} to the group on its link", self.interface(after.egress)));
            return;
        }
        if let (Some(destination), false) = (destination, hit) {
            let vrf = self.tables.vrfs.get(visit.vrf).map(|vrf| vrf.name.as_str());
            if let Some(vrf) = vrf {
                says.push(format!("its way is looked for in the VRF {vrf}"));
            }
            match self.best_route(vrf, destination) {
                Some(route) => says.push(format!("{route} is the best for {destination}")),
                None => says.push(format!("no route leads to {destination}")),
            }
        }
        self.wan(visit, says);
        if after.hop == LOCAL_HOP || after.egress == LOCAL {
            says.push("the destination is the gateway itself".to_owned());
        } else if let Some(gateway) = self.tables.gateways.get(after.hop as usize) {
            let router = gateway.address.to_ip();
            says.push(format!("leaves by {} to the router {router}", self.interface(gateway.interface)));
        } else if let Some(tunnel) = self.tables.tunnel_at(after.egress).filter(|_| after.fate == 0) {
            let name = self.interface(after.egress);
            let peer = tunnel.remote.map_or_else(String::new, |remote| format!(" {}", remote.to_ip()));
            says.push(format!("leaves by the tunnel {name}, to its peer{peer}"));
        } else if let Some(interface) = self.tables.interface(after.egress).filter(|_| after.fate == 0) {
            says.push(format!("leaves by {} to a host on its link", interface.name));
        }
        if after.flags & flag::CUT != 0 {
            says.push("it is larger than its way out carries, and will be cut".to_owned());
        }
    }

    /// Dynamic sets that the packet's addresses are in.
    fn sets(&self, visit: &Visit, says: &mut Vec<String>) {
        for Membership { set, side } in &visit.sets {
            let Some(set) = self.tables.sets.get(usize::from(*set)) else { continue };
            let end = match side {
                Side::Source => "source",
                Side::Destination => "destination",
            };
            says.push(format!("the {end} is in the set `{}`{}", set.name, line(self.lines.set(&set.name))));
        }
    }

    /// A header with the memberships that a stage has found.
    fn with_sets(&self, seen: Header, visit: &Visit) -> Header {
        let bits = visit.sets.iter().map(|one| self.tables.set_questions.bit(one.set, one.side));
        Header { sets: bits.fold(seen.sets, |sets, bit| sets | bit), ..seen }
    }

    fn filter(&self, visit: &Visit, says: &mut Vec<String>) {
        self.sets(visit, says);
        let after = &visit.after;
        let (from, to) = (self.zone_of(after.ingress), self.zone_of(after.egress));
        let is_expected = visit.opening.is_some_and(|opening| opening.expected.is_some());
        if !is_expected {
            self.rates(visit, says);
        }
        if let Some(rule) = self.rule(after.rule).filter(|_| is_expected) {
            says.push(format!(
                "its control connection, which {rule} accepts, has announced it: accept, as related"
            ));
        } else if let Some(rule) = self.rule(after.rule) {
            let found = self.tables.filter.rules.get(after.rule as usize);
            let rate = match found {
                Some(FilterRule { rate_bit: 0, .. }) | None => "",
                Some(rule) if rule.action == Action::Accept => ", within its rate",
                Some(_) => ", as its rate is exceeded",
            };
            let action = found.map_or("drop", |rule| action(rule.action));
            says.push(format!("{rule} is the first that matches: {action}{rate}"));
            if after.fate == Verdict::Answered(Reason::SynProxied).to_fate() {
                let answered = "the gateway answers the SYN for the server, with a cookie; no flow is written down until that is acknowledged";
                says.push(answered.to_owned());
            }
        } else {
            let default = self.policy.default_action(from, to);
            let mut text =
                format!("no rule matches; the default for \"{from} > {to}\" is {}", action(default));
            if let Some(mapped) = visit.mapped.filter(|_| default != Action::Accept) {
                let port = mapped.outside.port;
                let _ = write!(text, ", but the host has asked for outside port {port}: accept");
            }
            says.push(text);
        }
    }

    /// Rules in front of the one that decides whose rate has let the packet go on.
    fn rates(&self, visit: &Visit, says: &mut Vec<String>) {
        let Some(opening) = &visit.opening else { return };
        let mut seen = self.with_sets(opening.seen, visit);
        seen.egress = visit.after.egress.0;
        seen.to = if visit.after.hop == LOCAL_HOP { SELF } else { self.tables.zone(visit.after.egress) };
        let filter = &self.tables.filter;
        while let Some(place) = filter.find(&seen, &mut NoTally).map(PatternRule::place) {
            let found = filter.rules.get(place as usize).filter(|_| place != visit.after.rule);
            let Some(rule) = found.filter(|rule| rule.rate_bit != 0) else { return };
            let name = self.rule(place).unwrap_or_default();
            says.push(match rule.action {
                Action::Accept => format!("{name} accepts at a rate that is exceeded: on to the next"),
                _ => format!("{name} refuses what exceeds a rate, which is not exceeded: on to the next"),
            });
            seen.sets |= rule.rate_bit;
        }
    }

    fn snat(&self, visit: &Visit, says: &mut Vec<String>) {
        if let Some(flow) = &visit.flow {
            self.sets(visit, says);
            let translated = self.tables.nat.places(visit.after.nat).1;
            let rule = translated.and_then(|place| self.tables.nat.sources.get(place));
            match rule {
                Some(rule) if self.chosen.is_some() => {
                    let to = self.chosen.as_ref().map(Chosen::text).unwrap_or_default();
                    says.push(format!("{}: the source becomes {to}", self.nat(&rule.name)));
                }
                Some(rule) => {
                    let reply = flow.reply();
                    let port = has_ports(reply).then_some(reply.dport());
                    let to = Endpoint { address: reply.destination(), port };
                    says.push(format!("{}: the source becomes {to}", self.nat(&rule.name)));
                }
                None => says.push("no source translation matches".to_owned()),
            }
            says.push(format!("the flow is written down: {}; it is {}", key(flow.original()), state(flow)));
            if self.chosen.is_none() {
                says.push(format!("packets that come back are {}", key(flow.reply())));
            }
            says.push(format!("it ends when it has been idle for {}", self.timeout(flow)));
        } else {
            says.push("no flow is written down".to_owned());
        }
    }

    /// A frame in words, without what is not known.
    pub(super) fn describe(&self, frame: &[u8]) -> Description {
        let mut told = Description::of(frame);
        if let Some(chosen) = &self.chosen {
            chosen.veil(&mut told);
        }
        told
    }

    /// Appends the changes made by `rewrite`.
    fn changes(&self, visit: &Visit, bytes: &[u8], says: &mut Vec<String>) {
        let Some(after) = &visit.bytes else {
            return says.push("changes nothing".to_owned());
        };
        for change in Description::of(bytes).changes(&self.describe(after)) {
            let text = |value: Option<String>| match value.as_deref() {
                None => "none".to_owned(),
                Some("?") => "what is chosen when it comes".to_owned(),
                Some(value) => value.to_owned(),
            };
            says.push(format!("{}: {} becomes {}", change.field, text(change.before), text(change.after)));
        }
        if visit.after.parts > 0 {
            says.push(format!("cut: {} more", count(visit.after.parts.into(), "part", "parts")));
        }
    }

    fn timeout(&self, flow: &Flow) -> Nanos {
        let rule = self.tables.filter.rules.get(flow.rule as usize).filter(|_| flow.state().is_running());
        if let Some(timeout) = rule.and_then(|rule| rule.timeout) {
            return timeout;
        }
        let spans = &self.tables.timeouts;
        match flow.state().life() {
            Life::TcpHalfOpen => spans.tcp_half_open,
            Life::TcpEstablished => spans.tcp_established,
            Life::TcpClosing => spans.tcp_closing,
            Life::TcpReset => spans.tcp_reset,
            Life::Udp => spans.udp,
            Life::UdpUnanswered => spans.udp_unanswered.min(spans.udp),
            Life::Icmp => spans.icmp,
            Life::Other => spans.other,
        }
    }

    /// The rule at a place, with its line.
    pub(super) fn rule(&self, place: u32) -> Option<String> {
        let name = &self.tables.filter.rules.get(place as usize)?.name;
        Some(format!("rule `{name}`{}", line(self.lines.rule(name))))
    }

    fn nat(&self, name: &str) -> String {
        format!("translation `{name}`{}", line(self.lines.nat(name)))
    }

    /// The longest prefix of the policy's routes and networks in a VRF that an address lies in.
    fn best_route(&self, vrf: Option<&str>, address: IpAddr) -> Option<String> {
        let interfaces = self.policy.interfaces.iter().filter(|interface| interface.vrf.as_deref() == vrf);
        let linked = interfaces.flat_map(|interface| {
            interface.addresses.iter().filter(|network| network.contains(&address)).map(|network| {
                let text = if network.addr() == address {
                    format!("the gateway's own address on {}", interface.name)
                } else {
                    format!("the network {} of {}", network.trunc(), interface.name)
                };
                let length = if network.addr() == address { 129 } else { network.prefix_len() };
                (length, format!("{text}{}", line(self.lines.interface(&interface.name))))
            })
        });
        let routes = self.policy.routes.iter().enumerate();
        let routed = routes
            .filter(|(_, route)| route.vrf.as_deref() == vrf && route.destination.contains(&address))
            .map(|(place, route)| {
                let text = format!("the route to {}{}", route.destination, line(self.lines.route(place)));
                (route.destination.prefix_len(), text)
            });
        let shared = (vrf.is_none() && !self.policy.wans.is_empty())
            .then(|| (0, "the default route of the WANs".to_owned()));
        linked.chain(routed).chain(shared).max_by_key(|(length, _)| *length).map(|(_, text)| text)
    }

    fn interface(&self, id: PortId) -> &str {
        self.tables.interface(id).map_or("?", |interface| &interface.name)
    }

    fn zone(&self, zone: u8) -> &str {
        self.tables.zones.get(usize::from(zone)).map_or("?", String::as_str)
    }

    fn zone_of(&self, interface: PortId) -> &str {
        self.zone(self.tables.interface(interface).map_or(SELF, |interface| interface.zone))
    }
}

/// The tokens that a packet found, in words.
fn tokens(MeterState { unit, committed, second }: &MeterState) -> String {
    let unit = match unit {
        Unit::Bytes => "bytes",
        Unit::Packets => "packets",
    };
    let level = |level: &Level| format!("{} of {} {unit}", number(level.tokens), number(level.depth));
    match second {
        None => format!("it found tokens for {}", level(committed)),
        Some(second) => format!(
            "it found tokens for {} at the committed rate, and for {} beyond",
            level(committed),
            level(second)
        ),
    }
}

/// Queue of an interface: leaf of a tree, or the one queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafAt {
    /// Interface.
    pub port: PortId,
    /// Direction.
    pub side: TreeSide,
    /// Place in the tree; `None` where there is none.
    pub leaf: Option<u32>,
}

/// Queues that a packet waits in: of the tree of what comes by its interface, if there is one, and of the port that it leaves by.
/// `bytes` are the frame's, as it is queued.
pub(super) fn leaves(tables: &Tables, meta: &Meta, bytes: &[u8]) -> Vec<LeafAt> {
    let Meta { egress, class, network, family, .. } = *meta;
    let ingress = tables.queues.ingress(meta);
    let field = match (family, bytes.get(usize::from(network)..).unwrap_or_default()) {
        (Family::V4, [_, field, ..]) => *field,
        (Family::V6, [first, second, ..]) => first << 4 | second >> 4,
        _ => 0,
    };
    // Of a VLAN's packets it is the port that counts.
    let egress = tables.interface(egress).map_or(egress, |interface| interface.root);
    let leaf = |tree: &Arc<QueueTree>| tree.leaf(class, Dscp::of_field(field));
    let from = tables.queues.from(ingress).map(leaf);
    let from = from.map(|leaf| LeafAt { port: ingress, side: TreeSide::From, leaf: Some(leaf) });
    let on = LeafAt { port: egress, side: TreeSide::On, leaf: tables.queues.on(egress).map(leaf) };
    from.into_iter().chain([on]).collect()
}

/// Returns the verdict and its reason.
pub(super) fn verdict_text(verdict: Verdict) -> String {
    match verdict.reason() {
        Some(reason) => format!("{}: {}: {}", verdict.name(), reason.name(), reason.entry().cause),
        None => verdict.name().to_owned(),
    }
}

/// Returns the cost, in one line.
pub(super) fn cost_text(cost: &Count) -> String {
    let mut text = count(cost.executed_total(), "instruction", "instructions");
    if cost.hashes() > 0 {
        text.push_str(&format!(", {}", count(cost.hashes(), "hash", "hashes")));
    }
    for region in Region::ALL {
        let seen = cost.references(region);
        let references = seen.reads + seen.writes + seen.atomics;
        if references > 0 {
            text.push_str(&format!("; {} {}x {} B", region.name(), number(references), number(seen.bytes)));
        }
    }
    text
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Accept => "accept",
        Action::Drop => "drop",
        Action::Reject(_) => "reject",
    }
}

fn line(line: Option<u32>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

fn has_ports(key: &Key) -> bool {
    Protocol(key.protocol()).has_ports()
}

fn port_of(visit: &Visit, port: u16) -> Option<u16> {
    Protocol(visit.after.protocol).has_ports().then_some(port)
}

/// A flow's packets of one direction, as they arrive.
pub fn key(key: &Key) -> String {
    let protocol = Protocol(key.protocol());
    let end = |address, port| Endpoint { address, port: has_ports(key).then_some(port) };
    let (from, to) = (end(key.source(), key.sport()), end(key.destination(), key.dport()));
    match protocol {
        Protocol::ICMP | Protocol::ICMPV6 => format!("{protocol} {from} > {to} id {}", key.sport()),
        Protocol::GRE if key.sport() == Key::CALL => format!("{protocol} {from} > {to} call {}", key.dport()),
        _ => format!("{protocol} {from} > {to}"),
    }
}

/// Returns the state of a flow, in words.
pub(super) fn state(flow: &Flow) -> &'static str {
    use dataplane::flow::State;
    match flow.state() {
        State::Opening => "opening",
        State::SynSent => "syn-sent",
        State::SynBoth => "syn-sent on both sides",
        State::SynReceived => "syn-received",
        State::Established => "established",
        State::FinOriginal => "closed by the side that opened it",
        State::FinReply => "closed by the side that answered",
        State::LastAck => "closed by both sides",
        State::TimeWait => "closed",
        State::Reset => "reset",
        State::Udp | State::Other => "not answered yet",
        State::UdpAnswered | State::OtherAnswered => "answered",
        State::Icmp => "a query",
        State::UdpConfirmed => "answered, and gone on",
    }
}
