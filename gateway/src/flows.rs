//! Flows as operators see them: listed, found, ended.

use std::net::IpAddr;

use dataplane::Tables;
use dataplane::flow::State;
use dataplane::state::{Ends, FlowFilter, FlowRecord, Standing, Through};
use dataplane::tables::{LOCAL, OTHER};
use ipnet::IpNet;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use serde::{Deserialize, Serialize};
use wire::PortId;

/// Which flows are meant, in words of the policy and of packets. What is absent is of no account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowQuery {
    /// An address or prefix that either end is in, before or after translation.
    pub host: Option<String>,
    /// A port of either end, before or after translation.
    pub port: Option<u16>,
    /// The identifier of ICMP queries, before or after translation.
    pub icmp_id: Option<u16>,
    /// `tcp`, `udp`, `icmp`, `icmpv6` or a number.
    pub protocol: Option<String>,
    /// The interface by which it began.
    pub interface: Option<String>,
    /// The rule that lets it in.
    pub rule: Option<String>,
    /// A translation of its source or destination.
    pub nat: Option<String>,
    /// Where it stands, as [`FlowView::state`] says it.
    pub state: Option<String>,
    /// At most so many are listed.
    pub limit: Option<usize>,
}

/// What in a question means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKnown {
    /// What it is to be.
    pub what: &'static str,
    /// The word.
    pub word: String,
}

impl NotKnown {
    /// What was found for a word; that it means nothing where there is none.
    pub(crate) fn or<T>(what: &'static str, word: &str, found: Option<T>) -> Result<T, NotKnown> {
        found.ok_or_else(|| NotKnown { what, word: word.to_owned() })
    }
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowView {
    /// The worker whose it is.
    pub worker: usize,
    /// `tcp`, `udp`, `icmp`, `icmpv6` or a number.
    pub protocol: String,
    /// `established`, `syn-sent` and so on.
    pub state: String,
    /// The interface by which it began; none if that is gone.
    pub interface: Option<String>,
    /// Who began it.
    pub source: IpAddr,
    /// Its port; none where the protocol has no ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Whom it called.
    pub destination: IpAddr,
    /// The port that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Whom it reaches, after translation.
    pub reached: IpAddr,
    /// The port that it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_port: Option<u16>,
    /// Who it seems to be, after translation.
    pub seen_as: IpAddr,
    /// The port that it seems to come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_port: Option<u16>,
    /// What it asks, where it is of ICMP queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<QueryView>,
    /// The rule that let it in; none where a default did, or where it has yet to be revalidated by the policy in force.
    pub rule: Option<String>,
    /// Its translations.
    pub nat: Vec<String>,
    /// Since its last packet.
    pub idle_seconds: f64,
    /// Since its first.
    pub age_seconds: f64,
    /// True if the policy in force has validated it; else its next packet brings it before that.
    pub validated: bool,
}

/// ICMP queries and their answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryView {
    /// Type of the request.
    #[serde(rename = "type")]
    pub kind: u8,
    /// What it is called, `echo-request` for one; its number where it has no name.
    pub name: String,
    /// Identifier that the one who asks sends.
    pub id: u16,
    /// Identifier that the one who answers sees, after translation.
    pub seen_id: u16,
}

impl FlowQuery {
    /// The same in the places of `tables`. `None` if nothing can be meant: the tables do not have the rule, say, any more.
    ///
    /// # Errors
    /// A word means nothing.
    pub fn filter(&self, tables: &Tables) -> Result<FlowFilter, NotKnown> {
        let mut filter = FlowFilter { port: self.port, icmp_id: self.icmp_id, ..FlowFilter::default() };
        if let Some(word) = &self.host {
            filter.host = Some(NotKnown::or("address or prefix", word, net_of(word))?);
        }
        if let Some(word) = &self.protocol {
            filter.protocol = Some(NotKnown::or("protocol", word, protocol_number(word))?);
        }
        if let Some(word) = &self.interface {
            filter.ingress = Some(NotKnown::or("interface", word, interface_of(word, tables))?);
        }
        if let Some(word) = &self.rule {
            filter.rule = Some(NotKnown::or("rule", word, rule_of(word, tables))?);
        }
        if let Some(word) = &self.nat {
            match NotKnown::or("translation", word, nats_of(word, tables))? {
                (_, Some(place)) => filter.source = Some(place as u16),
                (destination, None) => filter.destination = destination.map(|place| place as u16),
            }
        }
        if let Some(word) = &self.state {
            let state = State::ALL.into_iter().find(|state| state_name(*state) == word);
            filter.state = Some(NotKnown::or("state", word, state)?);
        }
        Ok(filter)
    }
}

impl FlowView {
    /// A flow of a worker that goes by `tables`.
    pub fn of(worker: usize, flow: &FlowRecord, tables: &Tables) -> FlowView {
        let Ends { source, destination, protocol, .. } = flow.original;
        let (ports, answered) = (flow.original.ports(), flow.reply.ports());
        let icmp = flow.original.query().map(|asked| QueryView {
            kind: asked.kind,
            name: query_name(protocol, asked.kind),
            id: asked.id,
            seen_id: flow.reply.dport,
        });
        let interface = flow.ingress.and_then(|id| tables.interface(id)).map(|own| own.name.clone());
        let nat = |through, names: &mut dyn Iterator<Item = &str>| match through {
            Through::Nat(place) => names.nth(usize::from(place)).map(str::to_owned),
            Through::None | Through::Gone => None,
        };
        let destination_nat =
            nat(flow.destination, &mut tables.nat.destinations.iter().map(|nat| nat.name.as_str()));
        let source_nat = nat(flow.source, &mut tables.nat.sources.iter().map(|nat| nat.name.as_str()));
        let rule = flow.rule.and_then(|place| tables.filter.rules.get(place as usize));
        FlowView {
            worker,
            protocol: protocol_name(protocol),
            state: state_name(flow.state).to_owned(),
            interface,
            source,
            sport: ports.map(|ports| ports.sport),
            destination,
            dport: ports.map(|ports| ports.dport),
            reached: flow.reply.source,
            reached_port: answered.map(|ports| ports.sport),
            seen_as: flow.reply.destination,
            seen_port: answered.map(|ports| ports.dport),
            icmp,
            rule: rule.map(|rule| rule.name.clone()),
            nat: destination_nat.into_iter().chain(source_nat).collect(),
            idle_seconds: flow.idle.as_secs_f64(),
            age_seconds: flow.age.as_secs_f64(),
            validated: flow.standing == Standing::Validated,
        }
    }
}

/// An address or a prefix.
pub(crate) fn net_of(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from))
}

/// An interface by its name; `self` is the gateway itself, `other` what Linux forwards.
pub(crate) fn interface_of(word: &str, tables: &Tables) -> Option<PortId> {
    match word {
        SELF_ZONE => Some(LOCAL),
        OTHER_ZONE => Some(OTHER),
        _ => tables.interface_named(word),
    }
}

/// The place of a rule.
pub(crate) fn rule_of(word: &str, tables: &Tables) -> Option<u32> {
    tables.filter.rules.iter().position(|rule| rule.name == word).map(|place| place as u32)
}

/// The places of the translations of that name, of destinations and of sources: of one of them at least.
pub(crate) fn nats_of(word: &str, tables: &Tables) -> Option<(Option<usize>, Option<usize>)> {
    let destination = tables.nat.destinations.iter().position(|nat| nat.name == word);
    let source = tables.nat.sources.iter().position(|nat| nat.name == word);
    (destination.is_some() || source.is_some()).then_some((destination, source))
}

const PROTOCOLS: [(&str, u8); 4] = [("icmp", 1), ("tcp", 6), ("udp", 17), ("icmpv6", 58)];

pub(crate) fn protocol_number(word: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    known.or_else(|| word.parse().ok())
}

pub(crate) fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// The names of ICMP requests, as rules have them.
const QUERIES: [(u8, u8, &str); 5] = [
    (1, 8, "echo-request"),
    (1, 13, "timestamp-request"),
    (1, 15, "information-request"),
    (1, 17, "address-mask-request"),
    (58, 128, "echo-request"),
];

pub(crate) fn query_name(protocol: u8, kind: u8) -> String {
    let known = QUERIES.iter().find(|(of, known, _)| (*of, *known) == (protocol, kind));
    known.map_or_else(|| kind.to_string(), |(.., name)| (*name).to_owned())
}

/// The names of states, as operators of other firewalls know them.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Opening => "opening",
        State::SynSent => "syn-sent",
        State::SynBoth => "syn-both",
        State::SynReceived => "syn-received",
        State::Established => "established",
        State::FinOriginal => "fin-original",
        State::FinReply => "fin-reply",
        State::LastAck => "last-ack",
        State::TimeWait => "time-wait",
        State::Reset => "reset",
        State::Udp | State::Other => "unanswered",
        State::UdpAnswered | State::OtherAnswered => "answered",
        State::Icmp => "query",
        State::UdpConfirmed => "confirmed",
    }
}
