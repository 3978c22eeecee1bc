//! Selection of flows.

use std::ops::Range;

use ipnet::IpNet;
use wire::{Nanos, PortId};

use super::{FlowRecord, Standing, Through};
use crate::flow::{Ends, FlowId, State};
use crate::shard::Shard;
use crate::tables::Tables;

/// Criteria of flows to select; an absent one matches every flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// Network that an end of either direction is in.
    pub host: Option<IpNet>,
    /// Port of an end of either direction.
    pub port: Option<u16>,
    /// Identifier of ICMP queries, before or after translation.
    pub icmp_id: Option<u16>,
    /// Transport protocol, as in the IP header.
    pub protocol: Option<u8>,
    /// Interface that the first packet came in by.
    pub ingress: Option<PortId>,
    /// Rule that accepts the flow.
    pub rule: Option<u32>,
    /// Destination translation, by place from 0.
    pub destination: Option<u16>,
    /// Source translation, by place from 0.
    pub source: Option<u16>,
    /// Connection state.
    pub state: Option<State>,
    /// Standing before the current tables.
    pub standing: Option<Standing>,
}

impl FlowFilter {
    /// True if a flow matches all criteria.
    pub fn admits(&self, flow: &FlowRecord) -> bool {
        let all = [flow.original, flow.reply];
        let host =
            |net: IpNet| all.iter().any(|ends| net.contains(&ends.source) || net.contains(&ends.destination));
        let port = |port| {
            let mut ports = all.iter().filter_map(Ends::ports);
            ports.any(|ports| ports.sport == port || ports.dport == port)
        };
        // The far end answers to what it sees.
        let icmp_id =
            |id| flow.original.query().is_some_and(|asked| asked.id == id || flow.reply.dport == id);
        self.host.is_none_or(host)
            && self.port.is_none_or(port)
            && self.icmp_id.is_none_or(icmp_id)
            && self.protocol.is_none_or(|protocol| flow.original.protocol == protocol)
            && self.ingress.is_none_or(|ingress| flow.ingress == Some(ingress))
            && self.rule.is_none_or(|rule| flow.rule == Some(rule))
            && self.destination.is_none_or(|place| flow.destination == Through::Nat(place))
            && self.source.is_none_or(|place| flow.source == Through::Nat(place))
            && self.state.is_none_or(|state| flow.state == state)
            && self.standing.is_none_or(|standing| flow.standing == standing)
    }
}

impl Shard {
    /// Gives the flows in a range of places that `filter` admits, and says where to go on; `None` when those were all.
    pub fn list_flows(
        &self,
        tables: &Tables,
        now: Nanos,
        places: Range<u32>,
        filter: &FlowFilter,
        mut give: impl FnMut(FlowRecord),
    ) -> Option<FlowId> {
        let end = places.end.max(places.start.saturating_add(1)).min(self.flows.used());
        let flows = (places.start..end).filter_map(|place| self.flow_record(tables, FlowId(place), now));
        flows.filter(|flow| filter.admits(flow)).for_each(&mut give);
        (end < self.flows.used()).then_some(FlowId(end))
    }
}
