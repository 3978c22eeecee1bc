//! Flows for operators: listing, filtering and ending them.

use std::net::IpAddr;

use dataplane::Tables;
use dataplane::flow::{Ends, Handshake, State};
use dataplane::state::{FlowFilter, FlowRecord, Standing, Through};
use dataplane::tables::{LOCAL, OTHER};
use ipnet::IpNet;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::PortId;

/// Filter of flows, by names of the policy and values of packets. An absent field matches every flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowQuery {
    /// Address or prefix of either end, before or after translation.
    pub host: Option<String>,
    /// Port of either end, before or after translation.
    pub port: Option<u16>,
    /// Identifier of ICMP queries, before or after translation.
    pub icmp_id: Option<u16>,
    /// Protocol: `tcp`, `udp`, `icmp`, `icmpv6` or a number.
    pub protocol: Option<String>,
    /// Ingress interface of the original direction.
    pub interface: Option<String>,
    /// Name of the rule that accepted the flow.
    pub rule: Option<String>,
    /// Name of a translation of source or destination.
    pub nat: Option<String>,
    /// State, as in [`FlowView::state`].
    pub state: Option<String>,
    /// Flows listed, at most.
    pub limit: Option<usize>,
    /// Place of a listing to go on from.
    pub after: Option<FlowCursor>,
}

/// Place in a listing of flows: `WORKER.ENTRY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct FlowCursor {
    /// Number of the worker.
    pub worker: usize,
    /// Entry of its flow table.
    pub entry: u32,
}

impl From<FlowCursor> for String {
    fn from(cursor: FlowCursor) -> String {
        format!("{}.{}", cursor.worker, cursor.entry)
    }
}

impl TryFrom<String> for FlowCursor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<FlowCursor, &'static str> {
        let read = |(worker, entry): (&str, &str)| {
            Some(FlowCursor { worker: worker.parse().ok()?, entry: entry.parse().ok()? })
        };
        text.split_once('.').and_then(read).ok_or("`after` is the `next` of another response")
    }
}

/// Unknown name or malformed value in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotKnown {
    /// Kind of value expected.
    pub what: &'static str,
    /// Value given.
    pub word: String,
}

impl NotKnown {
    /// Converts an absent result to [`NotKnown`].
    pub(crate) fn or<T>(what: &'static str, word: &str, found: Option<T>) -> Result<T, NotKnown> {
        found.ok_or_else(|| NotKnown { what, word: word.to_owned() })
    }
}

/// Flow, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowView {
    /// Number of the worker that owns the flow.
    pub worker: usize,
    /// Protocol: `tcp`, `udp`, `icmp`, `icmpv6` or a number.
    pub protocol: String,
    /// State: `established`, `syn-sent` and so on.
    pub state: String,
    /// Ingress interface of the original direction; none if the interface is gone.
    pub interface: Option<String>,
    /// VRF of that interface; none for the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Source address of the original direction.
    pub source: IpAddr,
    /// Source port; none where the protocol has no ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sport: Option<u16>,
    /// Destination address of the original direction.
    pub destination: IpAddr,
    /// Destination port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dport: Option<u16>,
    /// Destination address after translation.
    pub reached: IpAddr,
    /// Destination port after translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_port: Option<u16>,
    /// Source address after translation.
    pub seen_as: IpAddr,
    /// Source port after translation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_port: Option<u16>,
    /// Query of an ICMP flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<QueryView>,
    /// Call IDs of a PPTP call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallView>,
    /// Rule that accepted the flow; none where a default did, or until the policy in force has revalidated the flow.
    pub rule: Option<String>,
    /// Names of its translations.
    pub nat: Vec<String>,
    /// True if a helper reads the flow, a control connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub helped: bool,
    /// True if a control connection has announced the flow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub related: bool,
    /// Seconds since its last packet.
    pub idle_seconds: f64,
    /// Seconds since its first packet.
    pub age_seconds: f64,
    /// True if the policy in force has validated the flow; else its next packet triggers revalidation.
    pub validated: bool,
    /// True if Linux's kernel carries the flow's plain packets.
    #[serde(default)]
    pub fast_path: bool,
}

/// ICMP query and its reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueryView {
    /// Type of the request.
    #[serde(rename = "type")]
    pub kind: u8,
    /// Name of the type, such as `echo-request`; the number where it has no name.
    pub name: String,
    /// Identifier in the request.
    pub id: u16,
    /// Identifier in the request after translation.
    pub seen_id: u16,
}

/// Call IDs of the GRE of a PPTP call, each that of its packets' receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallView {
    /// Call ID of packets of the original direction, as they arrive.
    pub id: u16,
    /// Call ID of replies, as they arrive.
    pub reply_id: u16,
}

impl FlowQuery {
    /// Compiles the query for `tables`. `None` if nothing can match, such as a rule that the tables no longer have.
    ///
    /// # Errors
    /// Unknown name or malformed value.
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
    /// View of a flow of a worker that uses `tables`.
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
            vrf: flow.ingress.and_then(|id| tables.vrf_name(id)).map(str::to_owned),
            source,
            sport: ports.map(|ports| ports.sport),
            destination,
            dport: ports.map(|ports| ports.dport),
            reached: flow.reply.source,
            reached_port: answered.map(|ports| ports.sport),
            seen_as: flow.reply.destination,
            seen_port: answered.map(|ports| ports.dport),
            icmp,
            call: flow.original.call().zip(flow.reply.call()).map(|(id, reply_id)| CallView { id, reply_id }),
            rule: rule.map(|rule| rule.name.clone()),
            nat: destination_nat.into_iter().chain(source_nat).collect(),
            helped: matches!(flow.handshake, Handshake::Helped(_)),
            related: flow.handshake == Handshake::Related,
            idle_seconds: flow.idle.as_secs_f64(),
            age_seconds: flow.age.as_secs_f64(),
            validated: flow.standing == Standing::Validated,
            fast_path: false,
        }
    }
}

/// Parses an address or a prefix.
pub(crate) fn net_of(word: &str) -> Option<IpNet> {
    word.parse().ok().or_else(|| word.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Port of an interface by name: `self` for the gateway itself, `other` for traffic that Linux forwards.
pub(crate) fn interface_of(word: &str, tables: &Tables) -> Option<PortId> {
    match word {
        SELF_ZONE => Some(LOCAL),
        OTHER_ZONE => Some(OTHER),
        _ => tables.interface_named(word),
    }
}

/// Index of a rule.
pub(crate) fn rule_of(word: &str, tables: &Tables) -> Option<u32> {
    tables.filter.rules.iter().position(|rule| rule.name == word).map(|place| place as u32)
}

/// Indices of the destination and source translations of that name; at least one of the two.
pub(crate) fn nats_of(word: &str, tables: &Tables) -> Option<(Option<usize>, Option<usize>)> {
    let destination = tables.nat.destinations.iter().position(|nat| nat.name == word);
    let source = tables.nat.sources.iter().position(|nat| nat.name == word);
    (destination.is_some() || source.is_some()).then_some((destination, source))
}

const PROTOCOLS: [(&str, u8); 5] = [("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("icmpv6", 58)];

pub(crate) fn protocol_number(word: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    known.or_else(|| word.parse().ok())
}

pub(crate) fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Protocol, type and name of ICMP requests, as rules spell them.
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

/// Name of a state, as in other firewalls.
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
