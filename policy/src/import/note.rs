//! Why a rule is missing, and what was assumed of those that are there.

use std::fmt;

use super::IpVersion;

/// Where a rule stands in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line, from 1.
    Line(u32),
    /// A handle of nftables, which `nft -a list ruleset` shows.
    Handle(u32),
}

impl Origin {
    /// The number of the line or the handle.
    pub fn number(self) -> u32 {
        match self {
            Origin::Line(number) | Origin::Handle(number) => number,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Line(line) => write!(f, "line {line}"),
            Origin::Handle(handle) => write!(f, "handle {handle}"),
        }
    }
}

/// What stood in the way of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The line is not what the format would write.
    Syntax,
    /// A match or target that has no counterpart here, in the source's words.
    Feature(String),
    /// A value that is out of range or unknown, in the source's words.
    Value(String),
    /// A jump to a chain, or a use of a set, that the source does not hold.
    Missing(String),
    /// A set that packets change, or whose items expire.
    DynamicSet(String),
    /// A hook that has no counterpart here: before routing, after it, or the gateway's own packets.
    Hook(String),
    /// The gateway's own packets meet no rules here.
    OwnPackets,
    /// A family of tables other than ip, ip6 and inet.
    Family(String),
    /// A limit whose excess is not dropped, or that several rules would have to share.
    Limit,
    /// A log that no rule follows which decides the same packets.
    Log,
    /// Packets of established connections never meet rules here, and invalid ones never pass.
    State,
    /// A condition that translations do not have here (ports of a source translation, flags, DSCP, source MAC, ...).
    NatCondition,
    /// An exception from destination translation.
    NatException,
    /// A destination translation for addresses that are not the gateway's.
    NatDestination,
    /// A translation to more than one address, to another one for each packet, or to the gateway itself.
    NatTarget,
    /// Jumps nest too deep, or in a circle.
    TooDeep,
    /// Written out, the rules would be more than an import may make.
    TooMany,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Syntax => f.write_str("not understood"),
            Why::Feature(what) => write!(f, "nothing here does what `{what}` does"),
            Why::Value(what) => write!(f, "`{what}` is not known here"),
            Why::Missing(what) => write!(f, "`{what}` is not in the source"),
            Why::DynamicSet(name) => write!(f, "the set `{name}` changes as packets pass or time goes by"),
            Why::Hook(hook) => write!(f, "there are no rules at `{hook}` here"),
            Why::OwnPackets => f.write_str("rules for the gateway's own packets are not a router's"),
            Why::Family(family) => write!(f, "tables of family `{family}` have no counterpart here"),
            Why::Limit => {
                f.write_str("a limit here drops what exceeds it, and this one does not just do that")
            }
            Why::Log => f.write_str("logging is part of a rule here, and no rule decides the same packets"),
            Why::State => f.write_str(
                "rules here see only the first packet of a connection, and packets that fit none never pass",
            ),
            Why::NatCondition => f.write_str("translations have no such condition here"),
            Why::NatException => f.write_str("there are no exceptions from destination translation here"),
            Why::NatDestination => {
                f.write_str("only what is sent to the gateway's own addresses is forwarded here")
            }
            Why::NatTarget => f.write_str("a destination is translated to one inside address here"),
            Why::TooDeep => f.write_str("jumps nest too deep"),
            Why::TooMany => f.write_str("written out, these would be too many rules"),
        }
    }
}

/// Something to know about an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The rule that it is about, where it is about one.
    pub origin: Option<Origin>,
    /// What there is to know.
    pub kind: NoteKind,
}

/// What there is to know about an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// Rules are missing, so the policy does not do what the source does.
    NotEquivalent {
        /// Number of them.
        missing: usize,
    },
    /// The source knows no zones: each interface became one of its own name.
    Zones,
    /// The interface has no addresses yet.
    FillInAddresses {
        /// Its name.
        interface: String,
    },
    /// The source names no interface.
    NoInterfaces,
    /// An interface that stands for all that no rule names, because rules say "all but".
    OtherInterface {
        /// Its name.
        interface: String,
    },
    /// An interface has another name here, for its own cannot stand in a policy.
    Renamed {
        /// Its name in the source.
        name: String,
        /// Its name here.
        interface: String,
    },
    /// Interfaces of a pattern are those that rules name.
    Pattern {
        /// The pattern.
        pattern: String,
    },
    /// An interface that stands for all of a pattern, because rules name none of it.
    PatternInterface {
        /// The pattern.
        pattern: String,
        /// The interface's name.
        interface: String,
    },
    /// A list of recent sources became a rate.
    RecentRate,
    /// Rules for the gateway itself come first, and a last one repeats the chain's policy.
    InputFirst,
    /// No rule looks at the state of connections: imported as stateless.
    Stateless,
    /// No rule looks at the state of connections, but a translation does: imported as stateful.
    StatefulByNat,
    /// Before a reset nft's listing leaves out the IP version that a rule is of.
    ResetVersion,
    /// Connections that the source leaves untracked are tracked here.
    Tracked,
    /// The source says nothing of an IP version, whose packets are dropped here.
    Silent {
        /// The version.
        version: IpVersion,
    },
    /// A rule that drops or rejects sees packets of established connections there, and only the first here.
    BeforeEstablished,
    /// A rule sees answers there; here connections whose answers it drops are not let begin.
    AnswersRefused,
    /// The source does not accept all packets of established connections; here they pass.
    EstablishedPass,
    /// Answers pass, and what fits no connection is dropped, without a rule.
    StateImplied,
    /// Rules about the loopback interface; no packet of the gateway to itself is filtered here.
    Loopback,
    /// A drop of the gateway's own packets by the policy of a chain.
    OwnPackets {
        /// The hook.
        hook: String,
    },
    /// The answer to a rejected packet is another one than the source's.
    NearestReject {
        /// The source's.
        kind: String,
    },
    /// A port forward without a destination is taken to mean the gateway's own addresses.
    OutsideAssumed,
    /// Logs are not limited here.
    LogUnlimited,
    /// Ports are handed out in an order of their own; the source's choice of order is not kept.
    PortOrder,
    /// Flow tables: all flows take the fast path here.
    FastPath,
    /// MSS is clamped on the interface; the source did it for some packets of its only.
    ClampWidened,
    /// The source matches packets, the policy the first packet of a connection.
    LimitCountsConnections,
    /// ClassBench filters say which, not what: all accept, the rest is dropped.
    NoActions,
    /// The high byte of the last column was read as TCP's flags, or as the type of ICMP.
    FlagsColumn,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = self.origin {
            write!(f, "{origin}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoteKind::NotEquivalent { missing } => {
                write!(f, "{missing} rules are missing or incomplete; order matters, so this policy does not do what the source does")
            }
            NoteKind::Zones => f.write_str("each interface became a zone of its own name"),
            NoteKind::FillInAddresses { interface } => write!(f, "fill in the addresses of interface `{interface}`"),
            NoteKind::NoInterfaces => f.write_str("the source names no interface; add them"),
            NoteKind::OtherInterface { interface } => {
                write!(f, "interface `{interface}` stands for all that no rule names; rename it")
            }
            NoteKind::Renamed { name, interface } => {
                write!(f, "interface `{name}` became `{interface}`, for a policy has no such name")
            }
            NoteKind::Pattern { pattern } => {
                write!(f, "`{pattern}` was taken for the interfaces of that pattern that rules name")
            }
            NoteKind::PatternInterface { pattern, interface } => {
                write!(f, "interface `{interface}` stands for all of `{pattern}`; rename it, or add the others beside it")
            }
            NoteKind::RecentRate => f.write_str(
                "`recent` became a rate for each source: in the seconds given as many pass as there; who goes on trying \
                 is let in again at that rate here, and there only after so long a silence",
            ),
            NoteKind::InputFirst => {
                f.write_str("rules for the gateway itself come first, and `input-policy` ends them")
            }
            NoteKind::Stateless => {
                f.write_str(
                "no rule looks at the state of connections or translates: imported as stateless; \
                 later fragments of a datagram have no ports (Linux takes their data for them)",
            )
            }
            NoteKind::StatefulByNat => f.write_str(
                "no rule looks at the state of connections, but there are translations: imported as stateful, \
                 so the rules see the first packet of a connection only, and its answers pass",
            ),
            NoteKind::ResetVersion => f.write_str(
                "`nft list` leaves out `meta nfproto` before `reject with tcp reset`: such rules were taken for both IP versions",
            ),
            NoteKind::Tracked => f.write_str(
                "what the source leaves untracked is tracked here, and no rule for untracked packets is needed or taken over",
            ),
            NoteKind::Silent { version } => {
                write!(f, "the source says nothing of {version}, which is dropped here; Linux lets pass what no rule is for")
            }
            NoteKind::BeforeEstablished => f.write_str(
                "the rule stands before established connections are accepted: there it drops any packet, here the \
                 first of a connection only, so answers to connections of the gateway itself pass",
            ),
            NoteKind::AnswersRefused => f.write_str(
                "the rule stands before established connections are accepted: connections whose answers it would drop \
                 are not let begin (errors about others pass)",
            ),
            NoteKind::EstablishedPass => f.write_str(
                "the source does not accept all packets of established connections; here they pass",
            ),
            NoteKind::StateImplied => f.write_str(
                "packets of accepted connections pass, and those that fit none are dropped, without a rule: \
                 rules see the first packet of a connection only",
            ),
            NoteKind::Loopback => f.write_str("rules about the loopback interface need no counterpart"),
            NoteKind::OwnPackets { hook } => {
                write!(f, "the policy at `{hook}` drops the gateway's own packets; there is no such rule here")
            }
            NoteKind::NearestReject { kind } => write!(f, "`{kind}` became the nearest answer there is here"),
            NoteKind::OutsideAssumed => {
                f.write_str("a port forward without a destination was taken to mean the gateway's own addresses")
            }
            NoteKind::LogUnlimited => f.write_str("the limit of a log was left out"),
            NoteKind::PortOrder => f.write_str("`random` and `persistent` were left out: ports have an order of their own here, and addresses persist"),
            NoteKind::FastPath => f.write_str("flow tables were left out: all connections take the fast path here"),
            NoteKind::ClampWidened => f.write_str("the MSS is clamped for all connections of the interface"),
            NoteKind::LimitCountsConnections => {
                f.write_str("a limit counts packets there, and the first packets of connections here")
            }
            NoteKind::NoActions => {
                f.write_str("filters say which packets, not what happens: all accept, and what none matches is dropped")
            }
            NoteKind::FlagsColumn => f.write_str(
                "the high byte of the last column was read as TCP flags, or as the ICMP type (low byte: the code)",
            ),
        }
    }
}
