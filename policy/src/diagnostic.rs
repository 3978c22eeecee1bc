//! Diagnostics of policies, with codes of their own.

use std::fmt;

use config::{Kind, Severity};

/// An error or a warning about a policy.
pub type Diagnostic = config::Diagnostic<Code>;

/// Code of a diagnostic. Names are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Error that any TOML file may have: syntax, keys, names, numbers.
    Common(config::Code),

    /// Not an address, prefix or range of addresses.
    BadAddress,
    /// Not an Ethernet address.
    BadMac,
    /// Not a port or range of ports.
    BadPort,
    /// Not a protocol.
    BadProtocol,
    /// Not an ICMP type.
    BadIcmp,
    /// Not a list of TCP flags.
    BadTcpFlags,
    /// Not a DiffServ code point.
    BadDscp,
    /// Not a rate or a bound on connections.
    BadRate,
    /// Not a duration.
    BadDuration,
    /// Not a pair of zones.
    BadZonePair,

    /// A zone without interfaces.
    UnknownZone,
    /// An unknown interface.
    UnknownInterface,
    /// An unknown set.
    UnknownSet,
    /// A dynamic set where addresses are compiled once.
    DynamicSet,
    /// A dynamic set out of its bounds or without a source, or a rule that adds to a set that others fill.
    BadSet,
    /// More of something than a policy may hold.
    TooMany,

    /// Two interfaces with one address.
    DuplicateAddress,
    /// The networks of two interfaces share addresses.
    OverlappingNetworks,
    /// An address that no host can have.
    UnusableAddress,
    /// An MTU out of its range.
    BadMtu,
    /// A rate for an interface without a link of its own, or an overhead without a rate.
    BadLinkRate,
    /// An ATM virtual channel out of its range, twice on a line, on a line that is none, or on an interface that is a VLAN; or a cross-connection that cannot be.
    BadChannel,
    /// A PPP session without carrier or addresses, or with keys that its carrier or side has no use for.
    BadPpp,
    /// A password that crosses the link in clear.
    PasswordInClear,
    /// A VLAN identifier out of its range, too many of them, or one twice on a parent.
    BadVlan,
    /// A priority for frames without the tag that would say it.
    PcpWithoutTag,
    /// An interface that is its own parent, by way of others perhaps.
    ParentCycle,
    /// A maximum segment size out of its range.
    BadMss,
    /// A next hop that is on no interface's link.
    NextHopOffLink,
    /// An Ethernet feature on a link that carries bare IP packets.
    NeedsEthernet,
    /// A neighbour that is not on its interface's link.
    NeighbourOffLink,
    /// Two neighbours with one address.
    DuplicateNeighbour,
    /// Two routes for one prefix.
    DuplicateRoute,
    /// An unknown VRF.
    UnknownVrf,
    /// A zone in two VRFs, a next hop in another VRF than said, or a feature that a VRF beside the default one does not have.
    BadVrf,
    /// An unknown WAN.
    UnknownWan,
    /// WANs that share an interface, several routers of one IP version, or a tunnel as a WAN.
    BadWan,
    /// All WANs out of service.
    NoWanUp,
    /// A WAN whose router only a live gateway learns.
    LearntGateway,

    /// Addresses of the wrong IP version.
    FamilyMismatch,
    /// Ports where a protocol without ports may match.
    PortsWithoutProtocol,
    /// ICMP types without exactly one of the two ICMP protocols.
    IcmpWithoutProtocol,
    /// TCP flags where another protocol may match.
    TcpFlagsWithoutTcp,
    /// A rate or a bound on connections at an action other than accept.
    LimitWithoutAccept,
    /// A SYN proxy where there is no SYN, or for the gateway's own services.
    SynProxy,
    /// A helper on a rule whose connections have none.
    Helper,
    /// A feature of stateful policies in a stateless one.
    NeedsStateful,
    /// Two interfaces whose names make the same number for frames that are handed over to a second gateway.
    SameVni,

    /// A rule that no packet reaches, by its connection state or its zone of origin.
    RuleWithoutEffect,
    /// A rule whose own conditions contradict one another.
    RuleNeverMatches,
    /// A rule hidden by earlier ones. Found by the data plane's analysis, as the next two.
    ShadowedRule,
    /// A redundant rule: without it every packet would have the same verdict.
    RedundantRule,
    /// Two rules with different actions and overlapping matches, neither of which contains the other.
    OverlappingRules,
    /// A default action for a pair of zones that no packet crosses.
    ImpossiblePair,
    /// An address that is not behind the zone of its condition.
    AddressOutsideZone,

    /// A translation that no packet reaches.
    NatNeverMatches,
    /// A translation hidden by an earlier one.
    ShadowedNat,
    /// A forward from an address that is not the gateway's.
    OutsideNotOwn,
    /// A masquerade whose interface has no address of the family yet.
    NoOutsideAddress,
    /// A pool that shares addresses with another pool, a translation or the gateway.
    PoolOverlap,
    /// A prefix that no IPv4 address can be embedded in.
    BadNat64Prefix,
    /// A CLAT towards a prefix that the gateway is the NAT64 of.
    ClatOverlap,
    /// Inside and outside of a one-to-one translation differ in size.
    UnequalPrefixes,
    /// Ports that run past 65535 at the target, or a range that is empty.
    PortOverflow,
    /// Port blocks that exceed the outside addresses, or that cannot be computed.
    BlockMisfit,
    /// A server that a translation names twice.
    DuplicateServer,
    /// A translation all of whose servers are out of service.
    NoServerUp,
    /// A health check that cannot be made: its probe, URL, statuses or times.
    BadCheck,
    /// Outside ports that hosts may ask for without a zone of hosts, or out of their bounds.
    BadPortMapping,
    /// A forward to an address without a route.
    TargetUnreachable,

    /// An unknown meter.
    UnknownMeter,
    /// A meter that cannot meter: rates and bursts missing, too many, or too small.
    BadMeter,
    /// A meter that no class names.
    MeterWithoutClass,
    /// A class that no packet is of: earlier ones hide it, or its conditions exclude one another. Found by the data plane's analysis,
    /// as the next one.
    EmptyClass,
    /// A queue for classes that no packet is of.
    EmptyQueue,
    /// A class that has neither meter nor mark nor queue.
    ClassWithoutUse,

    /// An unknown queue.
    UnknownQueue,
    /// An unknown class.
    UnknownClass,
    /// A queue that is in itself or too deep, on a VLAN, one of two trees, or has instances within instances.
    BadQueueTree,
    /// A queue without room for a packet.
    BadQueue,
    /// Two queues of a tree for the same packets.
    AmbiguousQueue,
    /// Packets for which a tree has no queue.
    NoQueue,
    /// Rates or guarantees that what is above them cannot carry.
    OversubscribedQueue,
    /// Thresholds of RED that a full queue keeps the average below.
    RedAboveLimit,
    /// A shape that leaves out the downloads of its interface's VLANs.
    UnshapedVlans,
    /// Queues of a stateless policy that share by flows or hosts, before a tunnel whose packets are one flow of one host.
    OuterFlows,

    /// Ends of a tunnel that are no address of this gateway, of two IP versions, or nobody else's.
    TunnelEnds,
    /// A route to a tunnel's peer that leads into a tunnel.
    TunnelLoop,
    /// A tunnel's peer that no route leads to.
    TunnelUnrouted,
    /// A tunnel that no route leads into.
    UnusedTunnel,
    /// A tunnel with too little room for what is routed into it.
    TunnelMtu,
    /// Fragmentation of a tunnel's outer packets where no router may do that: across IPv6.
    TunnelFragments,
    /// Networks of a tunnel in transport mode, whose packets go between its ends.
    TransportMode,
    /// Selectors of a tunnel that no packet matches.
    BadSelector,
    /// Selectors of a tunnel that another tunnel's match before, or that own hosts match both ways.
    SelectorOverlap,
    /// A tunnel without a security association each way, or with several out.
    TunnelSas,
    /// Keys that have no meaning for a tunnel whose security associations are an IKE daemon's, or for another one; or two tunnels that a
    /// security association of a daemon would be for.
    TunnelKeys,
    /// A reserved security parameters index, or one of two inbound security associations.
    BadSpi,
    /// A key that is not hexadecimal, or of another length than its algorithm's.
    BadKey,
    /// Two security associations with one key.
    SameKey,
    /// A window against replay out of its range, or none where extended numbers need one.
    BadWindow,
    /// A tunnel that takes packets any number of times.
    WindowOff,
    /// A lifetime without bounds, of nothing, or a soft one past the hard one.
    BadLifetime,
    /// Text in clear that nothing authenticates.
    NoIntegrity,
    /// An algorithm that no longer protects, without the word that allows it.
    LegacyAlgorithm,
    /// An algorithm that no longer protects, in use.
    WeakAlgorithm,

    /// A bound out of its range.
    BadLimit,
    /// An invalid destination for logs.
    BadLogOutput,
    /// An invalid collector of IPFIX records.
    BadCollector,
    /// An invalid peer of state synchronisation.
    BadSyncPeer,
    /// An address reachable from other machines in the place of a loopback one.
    NotLoopback,
    /// A host name that no browser asks by.
    BadHostName,
    /// A driver for a VLAN, whose frames are its parent's.
    DriverOfVlan,
    /// A timeout of zero.
    ZeroTimeout,
    /// A timeout shorter than an RFC requires.
    ShortTimeout,
}

impl Code {
    /// Codes of policies alone, with their names and severities.
    pub const ALL: &'static [(Code, &'static str, Severity)] = &[
        (Code::BadAddress, "bad-address", Severity::Error),
        (Code::BadMac, "bad-mac", Severity::Error),
        (Code::BadPort, "bad-port", Severity::Error),
        (Code::BadProtocol, "bad-protocol", Severity::Error),
        (Code::BadIcmp, "bad-icmp", Severity::Error),
        (Code::BadTcpFlags, "bad-tcp-flags", Severity::Error),
        (Code::BadDscp, "bad-dscp", Severity::Error),
        (Code::BadRate, "bad-rate", Severity::Error),
        (Code::BadDuration, "bad-duration", Severity::Error),
        (Code::BadZonePair, "bad-zone-pair", Severity::Error),
        (Code::UnknownZone, "unknown-zone", Severity::Error),
        (Code::UnknownInterface, "unknown-interface", Severity::Error),
        (Code::UnknownSet, "unknown-set", Severity::Error),
        (Code::DynamicSet, "dynamic-set", Severity::Error),
        (Code::BadSet, "bad-set", Severity::Error),
        (Code::TooMany, "too-many", Severity::Error),
        (Code::DuplicateAddress, "duplicate-address", Severity::Error),
        (Code::OverlappingNetworks, "overlapping-networks", Severity::Error),
        (Code::UnusableAddress, "unusable-address", Severity::Error),
        (Code::BadMtu, "bad-mtu", Severity::Error),
        (Code::BadLinkRate, "bad-link-rate", Severity::Error),
        (Code::BadChannel, "bad-channel", Severity::Error),
        (Code::BadPpp, "bad-ppp", Severity::Error),
        (Code::PasswordInClear, "password-in-clear", Severity::Warning),
        (Code::BadVlan, "bad-vlan", Severity::Error),
        (Code::PcpWithoutTag, "pcp-without-tag", Severity::Warning),
        (Code::ParentCycle, "parent-cycle", Severity::Error),
        (Code::BadMss, "bad-mss", Severity::Error),
        (Code::NextHopOffLink, "next-hop-off-link", Severity::Error),
        (Code::NeedsEthernet, "needs-ethernet", Severity::Error),
        (Code::NeighbourOffLink, "neighbour-off-link", Severity::Error),
        (Code::DuplicateNeighbour, "duplicate-neighbour", Severity::Error),
        (Code::DuplicateRoute, "duplicate-route", Severity::Error),
        (Code::UnknownVrf, "unknown-vrf", Severity::Error),
        (Code::BadVrf, "bad-vrf", Severity::Error),
        (Code::UnknownWan, "unknown-wan", Severity::Error),
        (Code::BadWan, "bad-wan", Severity::Error),
        (Code::NoWanUp, "no-wan-up", Severity::Warning),
        (Code::LearntGateway, "learnt-gateway", Severity::Note),
        (Code::FamilyMismatch, "family-mismatch", Severity::Error),
        (Code::PortsWithoutProtocol, "ports-without-protocol", Severity::Error),
        (Code::IcmpWithoutProtocol, "icmp-without-protocol", Severity::Error),
        (Code::TcpFlagsWithoutTcp, "tcp-flags-without-tcp", Severity::Error),
        (Code::LimitWithoutAccept, "limit-without-accept", Severity::Error),
        (Code::SynProxy, "syn-proxy", Severity::Error),
        (Code::Helper, "helper", Severity::Error),
        (Code::NeedsStateful, "needs-stateful", Severity::Error),
        (Code::SameVni, "same-vni", Severity::Error),
        (Code::RuleWithoutEffect, "rule-without-effect", Severity::Warning),
        (Code::RuleNeverMatches, "rule-never-matches", Severity::Warning),
        (Code::ShadowedRule, "shadowed-rule", Severity::Warning),
        (Code::RedundantRule, "redundant-rule", Severity::Warning),
        (Code::OverlappingRules, "overlapping-rules", Severity::Note),
        (Code::ImpossiblePair, "impossible-pair", Severity::Warning),
        (Code::AddressOutsideZone, "address-outside-zone", Severity::Warning),
        (Code::NatNeverMatches, "nat-never-matches", Severity::Warning),
        (Code::ShadowedNat, "shadowed-nat", Severity::Warning),
        (Code::OutsideNotOwn, "outside-not-own", Severity::Warning),
        (Code::NoOutsideAddress, "no-outside-address", Severity::Warning),
        (Code::PoolOverlap, "pool-overlap", Severity::Warning),
        (Code::BadNat64Prefix, "bad-nat64-prefix", Severity::Error),
        (Code::ClatOverlap, "clat-overlap", Severity::Error),
        (Code::UnequalPrefixes, "unequal-prefixes", Severity::Error),
        (Code::PortOverflow, "port-overflow", Severity::Error),
        (Code::BlockMisfit, "block-misfit", Severity::Error),
        (Code::DuplicateServer, "duplicate-server", Severity::Error),
        (Code::NoServerUp, "no-server-up", Severity::Warning),
        (Code::BadCheck, "bad-check", Severity::Error),
        (Code::BadPortMapping, "bad-port-mapping", Severity::Error),
        (Code::TargetUnreachable, "target-unreachable", Severity::Warning),
        (Code::UnknownMeter, "unknown-meter", Severity::Error),
        (Code::BadMeter, "bad-meter", Severity::Error),
        (Code::MeterWithoutClass, "meter-without-class", Severity::Warning),
        (Code::EmptyClass, "empty-class", Severity::Warning),
        (Code::EmptyQueue, "empty-queue", Severity::Warning),
        (Code::ClassWithoutUse, "class-without-use", Severity::Note),
        (Code::UnknownQueue, "unknown-queue", Severity::Error),
        (Code::UnknownClass, "unknown-class", Severity::Error),
        (Code::BadQueueTree, "bad-queue-tree", Severity::Error),
        (Code::BadQueue, "bad-queue", Severity::Error),
        (Code::AmbiguousQueue, "ambiguous-queue", Severity::Error),
        (Code::NoQueue, "no-queue", Severity::Error),
        (Code::OversubscribedQueue, "oversubscribed-queue", Severity::Error),
        (Code::RedAboveLimit, "red-above-limit", Severity::Warning),
        (Code::UnshapedVlans, "unshaped-vlans", Severity::Warning),
        (Code::OuterFlows, "outer-flows", Severity::Warning),
        (Code::TunnelEnds, "tunnel-ends", Severity::Error),
        (Code::TunnelLoop, "tunnel-loop", Severity::Error),
        (Code::TunnelUnrouted, "tunnel-unrouted", Severity::Warning),
        (Code::UnusedTunnel, "unused-tunnel", Severity::Warning),
        (Code::TunnelMtu, "tunnel-mtu", Severity::Error),
        (Code::TunnelFragments, "tunnel-fragments", Severity::Error),
        (Code::TransportMode, "transport-mode", Severity::Error),
        (Code::BadSelector, "bad-selector", Severity::Error),
        (Code::SelectorOverlap, "selector-overlap", Severity::Warning),
        (Code::TunnelSas, "tunnel-sas", Severity::Error),
        (Code::TunnelKeys, "tunnel-keys", Severity::Error),
        (Code::BadSpi, "bad-spi", Severity::Error),
        (Code::BadKey, "bad-key", Severity::Error),
        (Code::SameKey, "same-key", Severity::Error),
        (Code::BadWindow, "bad-window", Severity::Error),
        (Code::WindowOff, "window-off", Severity::Warning),
        (Code::BadLifetime, "bad-lifetime", Severity::Error),
        (Code::NoIntegrity, "no-integrity", Severity::Error),
        (Code::LegacyAlgorithm, "legacy-algorithm", Severity::Error),
        (Code::WeakAlgorithm, "weak-algorithm", Severity::Warning),
        (Code::BadLimit, "bad-limit", Severity::Error),
        (Code::BadLogOutput, "bad-log-output", Severity::Error),
        (Code::BadCollector, "bad-collector", Severity::Error),
        (Code::BadSyncPeer, "bad-sync-peer", Severity::Error),
        (Code::NotLoopback, "not-loopback", Severity::Error),
        (Code::BadHostName, "bad-host-name", Severity::Error),
        (Code::DriverOfVlan, "driver-of-vlan", Severity::Error),
        (Code::ZeroTimeout, "zero-timeout", Severity::Error),
        (Code::ShortTimeout, "short-timeout", Severity::Warning),
    ];
}

impl From<config::Code> for Code {
    fn from(code: config::Code) -> Code {
        Code::Common(code)
    }
}

impl Kind for Code {
    const OWN: &'static [(Code, &'static str, Severity)] = Code::ALL;

    fn common(self) -> Option<config::Code> {
        match self {
            Code::Common(code) => Some(code),
            _ => None,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Severity};

    #[test]
    fn the_table_of_codes_is_in_their_order_and_names_are_kebab_case() {
        for (row, next) in Code::ALL.iter().zip(&Code::ALL[1..]) {
            assert!(row.0 < next.0, "{} comes before {}", row.1, next.1);
        }
        for (code, name, _) in Code::ALL {
            let debug: String = format!("{code:?}").to_lowercase();
            assert_eq!(debug, name.replace('-', ""), "the name is the variant's");
        }
        assert_eq!(*Code::ALL.last().unwrap(), (Code::ShortTimeout, "short-timeout", Severity::Warning));
    }
}
