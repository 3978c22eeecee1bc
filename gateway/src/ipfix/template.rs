//! Templates: the elements of each kind of record, in their order (RFC 7011, section 3.4).

use super::element::Element::{self, *};

/// A template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// Identifier, from 256 on.
    pub(super) id: u16,
    /// Number of scope fields among the first elements; 0 unless it is an options template.
    pub(super) scopes: u16,
    parts: &'static [&'static [Element]],
}

impl Template {
    /// Elements in their order.
    pub(super) fn elements(&self) -> impl Iterator<Item = Element> {
        self.parts.iter().flat_map(|part| part.iter().copied())
    }

    const fn of(id: u16, parts: &'static [&'static [Element]]) -> Template {
        Template { id, scopes: 0, parts }
    }

    const fn options(id: u16, parts: &'static [&'static [Element]]) -> Template {
        Template { id, scopes: 1, parts }
    }
}

const TIMES: &[Element] = &[FlowStartMilliseconds, FlowEndMilliseconds];
const V4: &[Element] = &[SourceIpv4Address, DestinationIpv4Address];
const V6: &[Element] = &[SourceIpv6Address, DestinationIpv6Address];
const PORTS: &[Element] = &[SourceTransportPort, DestinationTransportPort];
const ICMP: &[Element] = &[IcmpTypeCodeIpv4];
const ICMP6: &[Element] = &[IcmpTypeCodeIpv6];
const FLOW: &[Element] = &[
    ProtocolIdentifier,
    IpClassOfService,
    TcpControlBits,
    FlowEndReason,
    IngressInterface,
    EgressInterface,
    OctetDeltaCount,
    PacketDeltaCount,
];
const NAT_V4: &[Element] = &[PostNatSourceIpv4Address, PostNatDestinationIpv4Address];
const NAT_V6: &[Element] = &[PostNatSourceIpv6Address, PostNatDestinationIpv6Address];
const NAT_PORTS: &[Element] = &[PostNaptSourceTransportPort, PostNaptDestinationTransportPort];
const EVENT: &[Element] = &[ObservationTimeMilliseconds, NatEvent, ProtocolIdentifier];

const BLOCK: &[Element] = &[ObservationTimeMilliseconds, NatEvent, NatPoolId];
const RANGE: &[Element] = &[PortRangeStart, PortRangeEnd, PortRangeStepSize, PortRangeNumPorts];

/// Flows of protocols with ports, or without; of ICMP queries; each as it is, and translated.
pub(super) const FLOW_V4: Template = Template::of(256, &[TIMES, V4, PORTS, FLOW]);
pub(super) const FLOW_V6: Template = Template::of(257, &[TIMES, V6, PORTS, FLOW]);
pub(super) const FLOW_V4_NAT: Template = Template::of(258, &[TIMES, V4, PORTS, FLOW, NAT_V4, NAT_PORTS]);
pub(super) const FLOW_V6_NAT: Template = Template::of(259, &[TIMES, V6, PORTS, FLOW, NAT_V6, NAT_PORTS]);
pub(super) const ICMP_V4: Template = Template::of(260, &[TIMES, V4, ICMP, FLOW]);
pub(super) const ICMP_V6: Template = Template::of(261, &[TIMES, V6, ICMP6, FLOW]);
pub(super) const ICMP_V4_NAT: Template = Template::of(262, &[TIMES, V4, ICMP, FLOW, NAT_V4]);
pub(super) const ICMP_V6_NAT: Template = Template::of(263, &[TIMES, V6, ICMP6, FLOW, NAT_V6]);
/// NAT sessions (RFC 8158, sections 4.3.3 and 4.3.4), with the identifiers of ICMP queries in the place of ports.
pub(super) const SESSION_V4: Template = Template::of(264, &[EVENT, V4, PORTS, NAT_V4, NAT_PORTS]);
pub(super) const SESSION_V6: Template = Template::of(265, &[EVENT, V6, PORTS, NAT_V6, NAT_PORTS]);
/// Flows that leave as packets of the other IP version (NAT64): from IPv6 to IPv4, from IPv4 to IPv6.
pub(super) const FLOW_V6_TO_V4: Template = Template::of(270, &[TIMES, V6, PORTS, FLOW, NAT_V4, NAT_PORTS]);
pub(super) const FLOW_V4_TO_V6: Template = Template::of(271, &[TIMES, V4, PORTS, FLOW, NAT_V6, NAT_PORTS]);
pub(super) const ICMP_V6_TO_V4: Template = Template::of(272, &[TIMES, V6, ICMP6, FLOW, NAT_V4]);
pub(super) const ICMP_V4_TO_V6: Template = Template::of(273, &[TIMES, V4, ICMP, FLOW, NAT_V6]);
/// NAT64 sessions (RFC 8158, section 4.3.4), opened by an IPv6 and by an IPv4 host.
pub(super) const SESSION_V6_TO_V4: Template = Template::of(274, &[EVENT, V6, PORTS, NAT_V4, NAT_PORTS]);
pub(super) const SESSION_V4_TO_V6: Template = Template::of(275, &[EVENT, V4, PORTS, NAT_V6, NAT_PORTS]);
/// Port blocks (RFC 8158, section 4.3.9), of IPv4 and IPv6 hosts with IPv4 and IPv6 addresses outside.
pub(super) const BLOCK_V4: Template =
    Template::of(276, &[BLOCK, &[SourceIpv4Address, PostNatSourceIpv4Address], RANGE]);
pub(super) const BLOCK_V6_TO_V4: Template =
    Template::of(277, &[BLOCK, &[SourceIpv6Address, PostNatSourceIpv4Address], RANGE]);
pub(super) const BLOCK_V6: Template =
    Template::of(278, &[BLOCK, &[SourceIpv6Address, PostNatSourceIpv6Address], RANGE]);
/// Sums of what was exported, and of what was not (RFC 7011, sections 4.1 and 4.3).
pub(super) const STATISTICS: Template = Template::options(
    266,
    &[&[
        ObservationDomainId,
        ExportedOctetTotalCount,
        ExportedMessageTotalCount,
        ExportedFlowRecordTotalCount,
        NotSentFlowTotalCount,
    ]],
);
/// Names of interfaces.
pub(super) const INTERFACE: Template = Template::options(267, &[&[IngressInterface, InterfaceName]]);

/// A source translation without free ports (RFC 8158, section 4.3.11), by its number.
pub(super) const EXHAUSTED: Template =
    Template::of(268, &[&[ObservationTimeMilliseconds, NatEvent, NatPoolId]]);
/// Names of source translations.
pub(super) const POOL: Template = Template::options(269, &[&[NatPoolId, NatPoolName]]);

/// All templates, by identifier.
pub(super) const ALL: [Template; 23] = [
    FLOW_V4,
    FLOW_V6,
    FLOW_V4_NAT,
    FLOW_V6_NAT,
    ICMP_V4,
    ICMP_V6,
    ICMP_V4_NAT,
    ICMP_V6_NAT,
    SESSION_V4,
    SESSION_V6,
    STATISTICS,
    INTERFACE,
    EXHAUSTED,
    POOL,
    FLOW_V6_TO_V4,
    FLOW_V4_TO_V6,
    ICMP_V6_TO_V4,
    ICMP_V4_TO_V6,
    SESSION_V6_TO_V4,
    SESSION_V4_TO_V6,
    BLOCK_V4,
    BLOCK_V6_TO_V4,
    BLOCK_V6,
];
