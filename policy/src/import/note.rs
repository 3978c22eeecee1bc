//! Reasons for gaps in an import, and assumptions about the imported rules.

use std::fmt;

use super::IpVersion;

/// Position of a rule in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line, from 1.
    Line(u32),
    /// A handle of nftables, which `nft -a list ruleset` shows.
    Handle(u32),
}

impl Origin {
    /// Number of the line or the handle.
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

/// Reason why a rule could not be translated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A line that the format would not contain.
    Syntax,
    /// A match or target without a counterpart, in the source's words.
    Feature(String),
    /// A value out of range or unknown, in the source's words.
    Value(String),
    /// A jump to a chain, or a use of a set, that the source lacks.
    Missing(String),
    /// A set that packets change, or whose elements expire, used as none is here.
    DynamicSet(String),
    /// A map that packets change, or whose elements expire.
    DynamicMap(String),
    /// A condition on several sets, or on a set and addresses, that one address must be in.
    Memberships,
    /// A hook without a counterpart: before routing, after it, or for the gateway's own packets.
    Hook(String),
    /// Rules for the gateway's own packets, which bypass the rules here.
    OwnPackets,
    /// A family of tables other than ip, ip6 and inet.
    Family(String),
    /// A limit that neither an accepting nor a refusing rule has, or that several rules would have to share.
    Limit,
    /// A log without a later rule that decides the same packets.
    Log,
    /// A state condition: here packets of established connections bypass the rules, and invalid ones never pass.
    State,
    /// A condition that translations lack here (ports of a source translation, flags, DSCP, source MAC, ...).
    NatCondition,
    /// An exception from destination translation.
    NatException,
    /// A destination translation for addresses other than the gateway's.
    NatDestination,
    /// A translation to more than one address, to a different one for each packet, or to the gateway itself.
    NatTarget,
    /// Jumps nested too deep, or in a loop.
    TooDeep,
    /// More rules, written out, than an import may make.
    TooMany,
    /// A command with a loop, a condition, a substitution or a variable of a shell.
    Script,
    /// A mark of packets or connections, asked for or set.
    Mark,
    /// An object of one of several devices, and the source does not say which.
    Device,
    /// A value that tc does not print.
    NotPrinted(String),
    /// A class whose children are guaranteed more than it has.
    Oversubscribed,
    /// A class or band that no translated filter leads to.
    NoFilter,
    /// A device whose packets no filter redirects to it.
    NoRedirect(String),
    /// Deeper nesting than a tree of queues has.
    Levels,
    /// A command that the kernel would refuse, in the source's words.
    Refused(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Syntax => f.write_str("not understood"),
            Why::Feature(what) => write!(f, "nothing here does what `{what}` does"),
            Why::Value(what) => write!(f, "`{what}` is not known here"),
            Why::Missing(what) => write!(f, "`{what}` is not in the source"),
            Why::DynamicSet(name) => {
                write!(f, "the set `{name}` changes as packets pass or time goes by, and is not used as one of addresses here can be")
            }
            Why::DynamicMap(name) => {
                write!(f, "the map `{name}` changes as packets pass or time goes by, and what it holds now would stand here for good")
            }
            Why::Memberships => f.write_str(
                "a rule here asks for one list of addresses and sets, or for all but those of a list, on either side",
            ),
            Why::Hook(hook) => write!(f, "there are no rules at `{hook}` here"),
            Why::OwnPackets => f.write_str("rules for the gateway's own packets are not a router's"),
            Why::Family(family) => write!(f, "tables of family `{family}` have no counterpart here"),
            Why::Limit => {
                f.write_str("a rule here accepts up to a limit, or refuses what exceeds a rate; this one does neither, or shares its limit with others")
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
            Why::NatTarget => f.write_str("a destination is translated to one inside address, to servers among which all numbers are shared out, or to one port of the gateway, here"),
            Why::TooDeep => f.write_str("jumps nest too deep"),
            Why::TooMany => f.write_str("written out, these would be too many rules"),
            Why::Script => f.write_str("only a shell can say what this does"),
            Why::Mark => f.write_str("packets have no marks here: write the conditions that the mark stood for"),
            Why::Device => f.write_str(
                "several devices may be meant: put the command that printed it before it, `tc class show dev NAME`",
            ),
            Why::NotPrinted(what) => {
                write!(f, "`tc -j` does not print the {what}: import what `tc` prints without -j")
            }
            Why::Oversubscribed => f.write_str(
                "those in it are promised more than it has, which here is a bound: their guarantees were lowered in proportion",
            ),
            Why::NoFilter => f.write_str(
                "no filter that could be translated leads to it: fill in the conditions of the class that was made for it",
            ),
            Why::NoRedirect(device) => write!(
                f,
                "nothing redirects packets to `{device}`; `tc filter show dev NAME ingress` says whose they are"
            ),
            Why::Levels => f.write_str("trees of queues have eight levels at most: its packets wait in the last of them"),
            Why::Refused(what) => write!(f, "the kernel would refuse it: {what}"),
        }
    }
}

/// A note about an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Rule concerned, if it is one rule.
    pub origin: Option<Origin>,
    /// Content of the note.
    pub kind: NoteKind,
}

/// Content of a note about an import.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// Rules are missing, so the policy is not equivalent to the source.
    NotEquivalent {
        /// Number of missing rules.
        missing: usize,
    },
    /// The source has no zones: each interface became a zone of its own name.
    Zones,
    /// The interface has no addresses yet.
    FillInAddresses {
        /// Name of the interface.
        interface: String,
    },
    /// The source names no interface.
    NoInterfaces,
    /// An interface stands for all those that no rule names, because rules say "all but".
    OtherInterface {
        /// Name of the interface.
        interface: String,
    },
    /// An interface was renamed, because its own name is not valid in a policy.
    Renamed {
        /// Name in the source.
        name: String,
        /// Name in the policy.
        interface: String,
    },
    /// A pattern stands for the interfaces that rules name.
    Pattern {
        /// The pattern.
        pattern: String,
    },
    /// An interface stands for all of a pattern, because rules name none that match.
    PatternInterface {
        /// The pattern.
        pattern: String,
        /// Name of the interface.
        interface: String,
    },
    /// A list of recent sources was converted to a rate.
    RecentRate,
    /// Rules for the gateway itself come first, and a last one repeats the chain's policy.
    InputFirst,
    /// No rule matches on connection state: imported as stateless.
    Stateless,
    /// No rule matches on connection state, but a translation needs it: imported as stateful.
    StatefulByNat,
    /// The listing of nft omits the IP version of a rule before a reset.
    ResetVersion,
    /// Connections that the source leaves untracked are tracked here.
    Tracked,
    /// The source does not mention an IP version; here its packets are dropped.
    Silent {
        /// IP version not mentioned.
        version: IpVersion,
    },
    /// A rule drops or rejects packets of established connections in the source, but only first packets here.
    BeforeEstablished,
    /// A rule drops answers in the source; here the connections of such answers are refused.
    AnswersRefused,
    /// The source drops some packets of established connections; here they pass.
    EstablishedPass,
    /// Answers pass, and packets of no connection are dropped, without a rule.
    StateImplied,
    /// Packets that fail a reverse path filter of the source are dropped by the interfaces' source check here.
    ReversePath,
    /// Rules are about the loopback interface; here packets of the gateway to itself are not filtered.
    Loopback,
    /// The policy of a chain drops the gateway's own packets.
    OwnPackets {
        /// Name of the hook.
        hook: String,
    },
    /// The answer to a rejected packet differs from the source's.
    NearestReject {
        /// Answer of the source.
        kind: String,
    },
    /// A port forward without a destination is assumed to be for the gateway's own addresses.
    OutsideAssumed,
    /// Logs are not rate limited here.
    LogUnlimited,
    /// Excess of a limit, dropped without the log that it has in the source.
    ExcessUnlogged,
    /// A rule for broadcasts is one for 255.255.255.255; the interfaces' networks, whose highest addresses are broadcasts, too, are not known.
    BroadcastOfAll,
    /// Types of packets (`pkttype`) are told by destinations here; the interfaces' networks, whose highest addresses are broadcasts, too, are not known.
    PacketType,
    /// Ports are allocated in an order of wirerate's own; the source's order is not kept.
    PortOrder,
    /// Flow tables: all flows take the fast path here.
    FastPath,
    /// A table is dormant, and none of its rules are in force.
    Dormant {
        /// Family and name of the table.
        table: String,
    },
    /// A table has flags, and the source does not say which.
    TableFlags {
        /// Family and name of the table.
        table: String,
    },
    /// Translations of networks work both ways.
    BothWays,
    /// Checksums that Linux has left to a card are completed where they have to be.
    ChecksumFill,
    /// MSS is clamped on the interface; the source clamps only some of its packets.
    ClampWidened,
    /// Packets of a connection have its code point in both directions, and so have those of the gateway itself.
    MarksWidened,
    /// A limit counts packets in the source, but first packets of connections in the policy.
    LimitCountsConnections,
    /// A rule adds to a set without renewing the time of who is in it already; here it renews it.
    AddingRenews {
        /// Name of the set.
        set: String,
    },
    /// Each packet adds to a set in the source, and the first packets of connections in the policy.
    ConnectionsAdd,
    /// A change of a set has established connections decided anew in the policy.
    SetsDecideAnew,
    /// Elements of a set that expire were left out.
    PassingElements {
        /// Name of the set.
        set: String,
        /// Number of the elements.
        count: usize,
    },
    /// The source names a set that it does not define.
    SetAssumed {
        /// Name of the set.
        set: String,
    },
    /// ClassBench filters have no actions: all accept, the rest is dropped.
    NoActions,
    /// The high byte of the last column was read as TCP flags, or as the ICMP type.
    FlagsColumn,
    /// Filters of tc match each packet by itself: imported as stateless.
    EachPacket,
    /// The source does not name its device.
    Unnamed {
        /// Name in the policy.
        interface: String,
    },
    /// The source has queues only, and no rules.
    QueuesOnly,
    /// Packets that no filter classifies pass unshaped, before all others.
    Direct,
    /// The ceiling of a class without parent has no effect: it has nobody to borrow from.
    NothingToBorrow,
    /// A class holds classes of several priorities; it has the first of theirs among its siblings.
    MixedPriorities,
    /// `burst` and `cburst` differ, and a queue has one.
    OneBurst,
    /// Ports are read at a fixed offset in the source.
    PortsAtOffset,
    /// ECN bits of a match were left out.
    EcnBits,
    /// The mapping of priorities to bands is by the code point, for IPv6, too.
    Priomap,
    /// Queues that Linux gives to every device have no counterpart.
    DefaultQueues {
        /// Name of the device.
        device: String,
    },
    /// Thresholds of RED in packets, from bytes.
    RedPackets {
        /// Bytes of a packet that were assumed.
        average: u64,
    },
    /// The nearest scheduler there is.
    NearestScheduler {
        /// Words of the source.
        what: String,
    },
    /// Tins of CAKE became queues with the same shares.
    Tins,
    /// Dropped packets do not count against a rate.
    DropsDoNotCount,
    /// A value was bounded to what a policy may have.
    Bounded {
        /// The value, in the source's words.
        given: String,
        /// Value that the policy has.
        becomes: String,
    },
    /// Quanta of classes were computed from their rates: the source does not print them.
    Quanta {
        /// Name of the device.
        device: String,
    },
    /// The queues of several hardware queues became one.
    OneQueue {
        /// Name of the device.
        device: String,
    },
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
            NoteKind::ReversePath => f.write_str(
                "the reverse path filter needs no rule: each interface has `source-check`, \"strict\" unless the policy says otherwise",
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
            NoteKind::ExcessUnlogged => f.write_str("what exceeds this limit is dropped without a log"),
            NoteKind::BroadcastOfAll => f.write_str(
                "`BROADCAST` became 255.255.255.255; add the broadcast addresses of your networks, which are not in the source",
            ),
            NoteKind::PacketType => f.write_str(
                "`pkttype` became addresses: 224.0.0.0/4, ff00::/8 and 255.255.255.255; add the broadcast addresses of your networks, which are not in the source",
            ),
            NoteKind::PortOrder => f.write_str("`random` and `persistent` were left out: ports have an order of their own here, and addresses persist"),
            NoteKind::FastPath => f.write_str("flow tables were left out: all connections take the fast path here"),
            NoteKind::Dormant { table } => {
                write!(f, "the table `{table}` is dormant: its rules were left out, as they are not in force")
            }
            NoteKind::TableFlags { table } => write!(
                f,
                "this nft does not print the flags of the table `{table}`, whose rules were taken to be in force: if it is dormant, delete it before"
            ),
            NoteKind::BothWays => f.write_str(
                "a network translated to another one is so both ways here: outside addresses lead to the inside ones, which leave by them",
            ),
            NoteKind::ChecksumFill => {
                f.write_str("filling in checksums needs no counterpart: packets leave with theirs, and Linux goes on sending its own")
            }
            NoteKind::MarksWidened => f.write_str(
                "the code point is given to all packets of a connection, in both directions, and to packets of the gateway itself",
            ),
            NoteKind::ClampWidened => f.write_str("the MSS is clamped for all connections of the interface"),
            NoteKind::LimitCountsConnections => {
                f.write_str("a limit counts packets there, and the first packets of connections here")
            }
            NoteKind::AddingRenews { set } => write!(
                f,
                "adding to `{set}` leaves the time of who is in it already as it is; here it begins anew"
            ),
            NoteKind::ConnectionsAdd => f.write_str(
                "each packet that comes to a rule adds to its set there, and the first packets of connections do here",
            ),
            NoteKind::SetsDecideAnew => f.write_str(
                "a change of a dynamic set ends connections that are there already, where the rules refuse them now",
            ),
            NoteKind::PassingElements { set, count } => write!(
                f,
                "{count} elements of `{set}` that expire were left out: `wirerate set add {set}` adds them to a running gateway"
            ),
            NoteKind::SetAssumed { set } => write!(
                f,
                "the source does not define `{set}`: it became a dynamic set without elements (put the output of `ipset save` before that of iptables-save)"
            ),
            NoteKind::NoActions => {
                f.write_str("filters say which packets, not what happens: all accept, and what none matches is dropped")
            }
            NoteKind::FlagsColumn => f.write_str(
                "the high byte of the last column was read as TCP flags, or as the ICMP type (low byte: the code)",
            ),
            NoteKind::EachPacket => f.write_str(
                "filters look at each packet by itself: imported as stateless; in a stateful policy the first packet of a \
                 connection gives both directions their class, so turn round the conditions on answers",
            ),
            NoteKind::Unnamed { interface } => {
                write!(f, "the source does not name the device: `{interface}` stands for it; rename it")
            }
            NoteKind::QueuesOnly => f.write_str(
                "tc says nothing of what may pass, and here nothing does: add rules, or take the queues over into a policy that has them",
            ),
            NoteKind::Direct => f.write_str(
                "packets that no filter sends to a class pass before all others and without a rate, as there",
            ),
            NoteKind::NothingToBorrow => f.write_str(
                "a class without a parent has nobody to borrow from: its `ceil` is without effect, and was left out",
            ),
            NoteKind::MixedPriorities => f.write_str(
                "classes of several priorities are in it: among its siblings it has the first of theirs, where HTB \
                 takes all the same from those of the others first",
            ),
            NoteKind::OneBurst => f.write_str("`burst` and `cburst` differ; a queue has one, which is that of `ceil`"),
            NoteKind::PortsAtOffset => f.write_str(
                "u32 takes for ports what lies 20 bytes (of IPv6: 40) behind the beginning; here they are the ports, \
                 also behind options, and of later fragments there are none",
            ),
            NoteKind::EcnBits => {
                f.write_str("the type of service was matched with its ECN bits; here they do not count")
            }
            NoteKind::Priomap => f.write_str(
                "priorities are those that Linux gives to forwarded packets by their type of service; IPv6 packets have them here, too",
            ),
            NoteKind::DefaultQueues { device } => {
                write!(f, "the queues of `{device}` are those that Linux gives to every device: there is one here")
            }
            NoteKind::RedPackets { average } => {
                write!(f, "thresholds of RED are in packets here; {average} bytes were taken for one")
            }
            NoteKind::NearestScheduler { what } => write!(f, "`{what}` became the nearest scheduler that there is here"),
            NoteKind::Tins => f.write_str(
                "tins became queues with their shares; those that a rate bounds within CAKE have it as their guarantee, where these add up",
            ),
            NoteKind::DropsDoNotCount => f.write_str("`ingress`: what is dropped does not count against the rate here"),
            NoteKind::Bounded { given, becomes } => {
                write!(f, "`{given}` is out of the range that there is here, and became {becomes}")
            }
            NoteKind::Quanta { device } => write!(
                f,
                "`quantum` of the classes of `{device}` is not in the source (`tc -d class show` prints it): it was computed from \
                 `rate` and `r2q`, as Linux does where none is given"
            ),
            NoteKind::OneQueue { device } => {
                write!(f, "`{device}` has a queue for each of its hardware queues there, and one in all here")
            }
        }
    }
}
