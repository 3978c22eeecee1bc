//! Information elements (IANA's registry of IPFIX entities), as far as records have them.

/// An information element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    OctetDeltaCount,
    PacketDeltaCount,
    ProtocolIdentifier,
    IpClassOfService,
    TcpControlBits,
    SourceTransportPort,
    SourceIpv4Address,
    IngressInterface,
    DestinationTransportPort,
    DestinationIpv4Address,
    EgressInterface,
    SourceIpv6Address,
    DestinationIpv6Address,
    IcmpTypeCodeIpv4,
    ExportedOctetTotalCount,
    ExportedMessageTotalCount,
    ExportedFlowRecordTotalCount,
    InterfaceName,
    FlowEndReason,
    IcmpTypeCodeIpv6,
    ObservationDomainId,
    FlowStartMilliseconds,
    FlowEndMilliseconds,
    NotSentFlowTotalCount,
    PostNatSourceIpv4Address,
    PostNatDestinationIpv4Address,
    PostNaptSourceTransportPort,
    PostNaptDestinationTransportPort,
    NatEvent,
    NatPoolId,
    NatPoolName,
    PostNatSourceIpv6Address,
    PostNatDestinationIpv6Address,
    ObservationTimeMilliseconds,
    PortRangeStart,
    PortRangeEnd,
    PortRangeStepSize,
    PortRangeNumPorts,
}

/// Length in a template of an element whose length stands in each record (RFC 7011, section 7).
pub(super) const VARIABLE: u16 = u16::MAX;

impl Element {
    /// Number in the registry.
    pub(super) fn id(self) -> u16 {
        self.entry().0
    }

    /// Length in bytes, or [`VARIABLE`].
    pub(super) fn len(self) -> u16 {
        self.entry().1
    }

    const fn entry(self) -> (u16, u16) {
        match self {
            Element::OctetDeltaCount => (1, 8),
            Element::PacketDeltaCount => (2, 8),
            Element::ProtocolIdentifier => (4, 1),
            Element::IpClassOfService => (5, 1),
            // The six bits that there are; RFC 7125 lets them be sent in one byte.
            Element::TcpControlBits => (6, 1),
            Element::SourceTransportPort => (7, 2),
            Element::SourceIpv4Address => (8, 4),
            Element::IngressInterface => (10, 4),
            Element::DestinationTransportPort => (11, 2),
            Element::DestinationIpv4Address => (12, 4),
            Element::EgressInterface => (14, 4),
            Element::SourceIpv6Address => (27, 16),
            Element::DestinationIpv6Address => (28, 16),
            Element::IcmpTypeCodeIpv4 => (32, 2),
            Element::ExportedOctetTotalCount => (40, 8),
            Element::ExportedMessageTotalCount => (41, 8),
            Element::ExportedFlowRecordTotalCount => (42, 8),
            Element::InterfaceName => (82, VARIABLE),
            Element::FlowEndReason => (136, 1),
            Element::IcmpTypeCodeIpv6 => (139, 2),
            Element::ObservationDomainId => (149, 4),
            Element::FlowStartMilliseconds => (152, 8),
            Element::FlowEndMilliseconds => (153, 8),
            Element::NotSentFlowTotalCount => (166, 8),
            Element::PostNatSourceIpv4Address => (225, 4),
            Element::PostNatDestinationIpv4Address => (226, 4),
            Element::PostNaptSourceTransportPort => (227, 2),
            Element::PostNaptDestinationTransportPort => (228, 2),
            Element::NatEvent => (230, 1),
            Element::NatPoolId => (283, 4),
            Element::NatPoolName => (284, VARIABLE),
            Element::PostNatSourceIpv6Address => (281, 16),
            Element::PostNatDestinationIpv6Address => (282, 16),
            Element::ObservationTimeMilliseconds => (323, 8),
            Element::PortRangeStart => (361, 2),
            Element::PortRangeEnd => (362, 2),
            Element::PortRangeStepSize => (363, 2),
            Element::PortRangeNumPorts => (364, 2),
        }
    }
}
