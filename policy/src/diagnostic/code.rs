//! The kinds of things that can be wrong with a policy.

use std::fmt;

use super::Severity;

/// Which kind of thing is wrong. Names are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The text is not TOML.
    Syntax,
    /// The text is longer than is taken.
    TooLarge,
    /// The text is not UTF-8.
    NotUtf8,
    /// So much is wrong that the rest is not listed.
    TooManyDiagnostics,
    /// No such key here.
    UnknownKey,
    /// A key that has no meaning together with another one's value.
    MisplacedKey,
    /// A key that has to be there is not.
    MissingKey,
    /// A value of another type than the key wants.
    WrongType,
    /// A list without items where it would mean "all".
    EmptyList,
    /// A word that is none of those that the key takes.
    UnknownWord,
    /// A number out of its range.
    BadNumber,
    /// Not a number with a unit.
    BadQuantity,
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

    /// A name that is empty, too long, or has characters that names may not have.
    BadName,
    /// A name that means something else already.
    ReservedName,
    /// Two things of one kind by the same name.
    DuplicateName,
    /// No interface is in that zone.
    UnknownZone,
    /// No such interface.
    UnknownInterface,
    /// No such set.
    UnknownSet,
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
    /// A rate of an interface that has no link of its own, or an overhead without a rate.
    BadLinkRate,
    /// A VLAN identifier out of its range, too many of them, or one twice on a parent.
    BadVlan,
    /// An interface that is its own parent, by way of others perhaps.
    ParentCycle,
    /// A maximum segment size out of its range.
    BadMss,
    /// A next hop that is on no interface's link.
    NextHopOffLink,
    /// Something of Ethernet on a link that carries bare IP packets.
    NeedsEthernet,
    /// A neighbour that is not on its interface's link.
    NeighbourOffLink,
    /// Two neighbours with one address.
    DuplicateNeighbour,
    /// Two routes for one prefix.
    DuplicateRoute,

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
    /// What only a stateful policy can do, in a stateless one.
    NeedsStateful,

    /// A rule that no packet meets, for its state or its zone of origin.
    RuleWithoutEffect,
    /// A rule whose own conditions contradict one another.
    RuleNeverMatches,
    /// A rule that earlier ones hide. Found by the data plane's analysis, as the next two.
    ShadowedRule,
    /// A rule without which every packet would have the same fate.
    RedundantRule,
    /// Two rules that do different things to packets that both match, neither of which matches all that the other does.
    OverlappingRules,
    /// A default action for a pair of zones that no packet has.
    ImpossiblePair,
    /// An address that is not behind the zone it is looked for in.
    AddressOutsideZone,

    /// A translation that no packet meets.
    NatNeverMatches,
    /// A translation that an earlier one hides.
    ShadowedNat,
    /// A forward from an address that is not the gateway's.
    OutsideNotOwn,
    /// A masquerade whose interface has no address of the family as yet.
    NoOutsideAddress,
    /// A pool that shares addresses with something else.
    PoolOverlap,
    /// Inside and outside of a one-to-one translation differ in size.
    UnequalPrefixes,
    /// Ports that run past 65535 at the target, or a range that is empty.
    PortOverflow,
    /// Port blocks that the outside addresses have no room for, or that cannot be computed.
    BlockMisfit,
    /// A forward to where no route leads.
    TargetUnreachable,

    /// A bound out of its range.
    BadLimit,
    /// A place that no log can go to.
    BadLogOutput,
    /// An address that other machines can reach, where only this one is to.
    NotLoopback,
    /// A driver for a VLAN, whose frames are its parent's.
    DriverOfVlan,
    /// A timeout of no time.
    ZeroTimeout,
    /// A timeout shorter than an RFC asks for.
    ShortTimeout,
}

impl Code {
    /// All of them.
    pub const ALL: &'static [(Code, &'static str, Severity)] = &[
        (Code::Syntax, "syntax", Severity::Error),
        (Code::TooLarge, "too-large", Severity::Error),
        (Code::NotUtf8, "not-utf8", Severity::Error),
        (Code::TooManyDiagnostics, "too-many-diagnostics", Severity::Error),
        (Code::UnknownKey, "unknown-key", Severity::Error),
        (Code::MisplacedKey, "misplaced-key", Severity::Error),
        (Code::MissingKey, "missing-key", Severity::Error),
        (Code::WrongType, "wrong-type", Severity::Error),
        (Code::EmptyList, "empty-list", Severity::Error),
        (Code::UnknownWord, "unknown-word", Severity::Error),
        (Code::BadNumber, "bad-number", Severity::Error),
        (Code::BadQuantity, "bad-quantity", Severity::Error),
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
        (Code::BadName, "bad-name", Severity::Error),
        (Code::ReservedName, "reserved-name", Severity::Error),
        (Code::DuplicateName, "duplicate-name", Severity::Error),
        (Code::UnknownZone, "unknown-zone", Severity::Error),
        (Code::UnknownInterface, "unknown-interface", Severity::Error),
        (Code::UnknownSet, "unknown-set", Severity::Error),
        (Code::TooMany, "too-many", Severity::Error),
        (Code::DuplicateAddress, "duplicate-address", Severity::Error),
        (Code::OverlappingNetworks, "overlapping-networks", Severity::Error),
        (Code::UnusableAddress, "unusable-address", Severity::Error),
        (Code::BadMtu, "bad-mtu", Severity::Error),
        (Code::BadLinkRate, "bad-link-rate", Severity::Error),
        (Code::BadVlan, "bad-vlan", Severity::Error),
        (Code::ParentCycle, "parent-cycle", Severity::Error),
        (Code::BadMss, "bad-mss", Severity::Error),
        (Code::NextHopOffLink, "next-hop-off-link", Severity::Error),
        (Code::NeedsEthernet, "needs-ethernet", Severity::Error),
        (Code::NeighbourOffLink, "neighbour-off-link", Severity::Error),
        (Code::DuplicateNeighbour, "duplicate-neighbour", Severity::Error),
        (Code::DuplicateRoute, "duplicate-route", Severity::Error),
        (Code::FamilyMismatch, "family-mismatch", Severity::Error),
        (Code::PortsWithoutProtocol, "ports-without-protocol", Severity::Error),
        (Code::IcmpWithoutProtocol, "icmp-without-protocol", Severity::Error),
        (Code::TcpFlagsWithoutTcp, "tcp-flags-without-tcp", Severity::Error),
        (Code::LimitWithoutAccept, "limit-without-accept", Severity::Error),
        (Code::SynProxy, "syn-proxy", Severity::Error),
        (Code::NeedsStateful, "needs-stateful", Severity::Error),
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
        (Code::UnequalPrefixes, "unequal-prefixes", Severity::Error),
        (Code::PortOverflow, "port-overflow", Severity::Error),
        (Code::BlockMisfit, "block-misfit", Severity::Error),
        (Code::TargetUnreachable, "target-unreachable", Severity::Warning),
        (Code::BadLimit, "bad-limit", Severity::Error),
        (Code::BadLogOutput, "bad-log-output", Severity::Error),
        (Code::NotLoopback, "not-loopback", Severity::Error),
        (Code::DriverOfVlan, "driver-of-vlan", Severity::Error),
        (Code::ZeroTimeout, "zero-timeout", Severity::Error),
        (Code::ShortTimeout, "short-timeout", Severity::Warning),
    ];

    /// Its name, in kebab case.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Severity: an error makes a policy wrong.
    pub fn severity(self) -> Severity {
        self.row().2
    }

    fn row(self) -> &'static (Code, &'static str, Severity) {
        // In the order of the variants, which a test holds.
        &Code::ALL[self as usize]
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
