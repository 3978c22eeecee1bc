//! Keywords of the policy file and their values. Reading and printing share these tables.

use wire::Dscp;
use wire::esp::{self, Direction, EcnUse, Udp};

use crate::model::{
    Action, Authentication, Checksum, ColourMode, DfBit, Driver, Dropper, Encapsulation, Excess, Fairness,
    FamilyMatch, FastPath, FragmentWhen, Helper, IcmpMatch, IpfixRecord, Isolation, KeySource, LinkKind,
    LogEvent, MeterKind, Mode, NoInstance, Offload, OnExit, OnFailure, Pickup, PppRole, Protocol, RejectWith,
    RouteTarget, Scheduler, SearchAlgorithm, SourceCheck, State, Sticky, SynAnswer, SyncOwner, TcpWindow,
    Template, TreeWorkers, WanState, WhenDown, WhenFull,
};

/// Keywords with their values. Of several for one value, the first is printed.
pub(crate) type Words<T> = &'static [(&'static str, T)];

pub(crate) const MODE: Words<Mode> = &[("stateful", Mode::Stateful), ("stateless", Mode::Stateless)];

pub(crate) const SEARCH_ALGORITHM: Words<SearchAlgorithm> = &[
    named(SearchAlgorithm::Auto),
    named(SearchAlgorithm::Linear),
    named(SearchAlgorithm::Coded),
    named(SearchAlgorithm::RangeMatch),
    named(SearchAlgorithm::Tuple),
    named(SearchAlgorithm::Tree),
    named(SearchAlgorithm::Bdd),
    // Its former name.
    ("diagram", SearchAlgorithm::Bdd),
];

pub(crate) const DIRECTION: Words<Direction> =
    &[(Direction::In.name(), Direction::In), (Direction::Out.name(), Direction::Out)];

pub(crate) const TUNNEL_MODE: Words<esp::Mode> =
    &[("tunnel", esp::Mode::Tunnel), ("transport", esp::Mode::Transport)];

pub(crate) const FRAGMENT_WHEN: Words<FragmentWhen> =
    &[("before", FragmentWhen::Before), ("after", FragmentWhen::After)];

pub(crate) const UDP: Words<Udp> = &[("no", Udp::No), ("yes", Udp::Yes)];

pub(crate) const KEY_SOURCE: Words<KeySource> = &[("policy", KeySource::Policy), ("ike", KeySource::Ike)];

pub(crate) const DF: Words<DfBit> = &[("copy", DfBit::Copy), ("set", DfBit::Set), ("clear", DfBit::Clear)];

pub(crate) const TUNNEL_ECN: Words<EcnUse> = &[("copy", EcnUse::Copy), ("off", EcnUse::Off)];

pub(crate) const LINK: Words<LinkKind> = &[("ethernet", LinkKind::Ethernet), ("ip", LinkKind::Ip)];

pub(crate) const ENCAPSULATION: Words<Encapsulation> =
    &[("llc", Encapsulation::Llc), ("vc-mux", Encapsulation::VcMux)];

pub(crate) const PPP_ROLE: Words<PppRole> = &[("client", PppRole::Client), ("server", PppRole::Server)];

pub(crate) const AUTHENTICATION: Words<Authentication> =
    &[("none", Authentication::None), ("pap", Authentication::Pap), ("chap", Authentication::Chap)];

pub(crate) const SOURCE_CHECK: Words<SourceCheck> =
    &[("strict", SourceCheck::Strict), ("loose", SourceCheck::Loose), ("off", SourceCheck::Off)];

/// Targets of routes that lead nowhere.
pub(crate) const NOWHERE: Words<RouteTarget> =
    &[("blackhole", RouteTarget::Blackhole), ("unreachable", RouteTarget::Unreachable)];

pub(crate) const FAMILY: Words<FamilyMatch> = &[("ipv4", FamilyMatch::V4), ("ipv6", FamilyMatch::V6)];

pub(crate) const STATE: Words<State> = &[
    ("new", State::New),
    ("established", State::Established),
    ("related", State::Related),
    ("invalid", State::Invalid),
];

pub(crate) const ACTION: Words<Action> = &[
    ("accept", Action::Accept),
    ("drop", Action::Drop),
    ("reject", Action::Reject(RejectWith::Fitting)),
    ("reject tcp-reset", Action::Reject(RejectWith::TcpReset)),
    ("reject port-unreachable", Action::Reject(RejectWith::PortUnreachable)),
    ("reject host-unreachable", Action::Reject(RejectWith::HostUnreachable)),
    ("reject admin-prohibited", Action::Reject(RejectWith::AdminProhibited)),
];

pub(crate) const HELPER: Words<Helper> =
    &[("ftp", Helper::Ftp), ("sip", Helper::Sip), ("pptp", Helper::Pptp)];
pub(crate) const SYN: Words<SynAnswer> = &[("forward", SynAnswer::Forward), ("proxy", SynAnswer::Proxy)];

pub(crate) const EXCESS: Words<Excess> = &[("drop", Excess::Drop), ("next", Excess::Next)];

pub(crate) const WHEN_FULL: Words<WhenFull> =
    &[("refuse", WhenFull::Refuse), ("evict-idle", WhenFull::EvictIdle)];

pub(crate) const ON_FAILURE: Words<OnFailure> = &[("kill", OnFailure::Kill), ("keep", OnFailure::Keep)];

pub(crate) const STICKY: Words<Sticky> = &[("connection", Sticky::Connection), ("source", Sticky::Source)];

pub(crate) const WAN_STATE: Words<WanState> = &[("up", WanState::Up), ("down", WanState::Down)];

pub(crate) const WHEN_DOWN: Words<WhenDown> = &[("fall-back", WhenDown::FallBack), ("drop", WhenDown::Drop)];

pub(crate) const TCP_WINDOW: Words<TcpWindow> = &[("strict", TcpWindow::Strict), ("off", TcpWindow::Off)];

pub(crate) const PICKUP: Words<Pickup> = &[("refuse", Pickup::Refuse), ("accept", Pickup::Accept)];

pub(crate) const CHECKSUM: Words<Checksum> = &[("verify", Checksum::Verify), ("ignore", Checksum::Ignore)];

pub(crate) const DRIVER: Words<Driver> =
    &[("auto", Driver::Auto), ("xdp", Driver::Xdp), ("packet", Driver::Packet), ("tap", Driver::Tap)];

pub(crate) const LOG_EVENT: Words<LogEvent> = &[
    ("rule", LogEvent::Rule),
    ("connection", LogEvent::Connection),
    ("nat", LogEvent::Nat),
    ("nat-block", LogEvent::NatBlock),
];

pub(crate) const IPFIX_RECORD: Words<IpfixRecord> =
    &[("flow", IpfixRecord::Flow), ("nat", IpfixRecord::Nat), ("nat-block", IpfixRecord::NatBlock)];

pub(crate) const OFFLOAD: Words<Offload> =
    &[("whole", Offload::Whole), ("segment", Offload::Segment), ("refuse", Offload::Refuse)];

pub(crate) const FAST_PATH: Words<FastPath> =
    &[("auto", FastPath::Auto), ("tc", FastPath::Tc), ("xdp", FastPath::Xdp), ("off", FastPath::Off)];

pub(crate) const ON_EXIT: Words<OnExit> = &[("closed", OnExit::Closed), ("open", OnExit::Open)];

pub(crate) const SYNC_OWNER: Words<SyncOwner> = &[("first", SyncOwner::First), ("hash", SyncOwner::Hash)];

pub(crate) const METER_KIND: Words<MeterKind> = &[
    ("token-bucket", MeterKind::TokenBucket),
    // The same by another account: what the bucket lacks, drained at the rate (ITU-T I.371, annex A).
    ("leaky-bucket", MeterKind::TokenBucket),
    ("srtcm", MeterKind::SingleRate),
    ("trtcm", MeterKind::TwoRate),
    ("rfc4115", MeterKind::Rfc4115),
];

pub(crate) const COLOUR_MODE: Words<ColourMode> =
    &[("blind", ColourMode::Blind), ("aware", ColourMode::Aware), ("dei", ColourMode::DropEligible)];

pub(crate) const NO_INSTANCE: Words<NoInstance> = &[("red", NoInstance::Red), ("share", NoInstance::Share)];

pub(crate) const TEMPLATE: Words<Template> = &[("diffserv", Template::Diffserv)];

pub(crate) const TREE_WORKERS: Words<TreeWorkers> =
    &[("one", TreeWorkers::One), ("divided", TreeWorkers::Divided)];

pub(crate) const SCHEDULER: Words<Scheduler> = &[
    ("fifo", Scheduler::Fifo),
    ("fq", Scheduler::Fq),
    ("strict", Scheduler::Strict),
    ("drr", Scheduler::Drr),
    ("wfq", Scheduler::Wfq),
];

pub(crate) const ISOLATION: Words<Isolation> =
    &[("flow", Isolation::Flow), ("source", Isolation::Source), ("destination", Isolation::Destination)];

pub(crate) const FAIRNESS: Words<Fairness> = &[("host", Fairness::Host), ("flow", Fairness::Flow)];

pub(crate) const DROPPER: Words<Dropper> = &[
    ("tail", Dropper::Tail),
    ("red", Dropper::Red),
    ("codel", Dropper::Codel),
    ("pie", Dropper::Pie),
    ("dualpi2", Dropper::DualPi2),
];

/// TCP flags, from the lowest bit.
pub(crate) const TCP_FLAG: Words<u8> = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

/// DiffServ code points (IANA, "Differentiated Services Field Codepoints").
pub(crate) const DSCP: Words<u8> = &[
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("voice-admit", 44),
    ("va", 44),
    ("le", 1),
    ("lephb", 1),
    ("default", 0),
    ("be", 0),
    ("df", 0),
];

/// ICMP types and codes (IANA, "ICMP Type Numbers").
pub(crate) const ICMP: Words<IcmpMatch> = &[
    ("echo-reply", kind(0)),
    ("destination-unreachable", kind(3)),
    ("net-unreachable", code(3, 0)),
    ("host-unreachable", code(3, 1)),
    ("protocol-unreachable", code(3, 2)),
    ("port-unreachable", code(3, 3)),
    ("fragmentation-needed", code(3, 4)),
    ("admin-prohibited", code(3, 13)),
    ("source-quench", kind(4)),
    ("redirect", kind(5)),
    ("echo-request", kind(8)),
    ("router-advertisement", kind(9)),
    ("router-solicitation", kind(10)),
    ("time-exceeded", kind(11)),
    ("parameter-problem", kind(12)),
    ("timestamp-request", kind(13)),
    ("timestamp-reply", kind(14)),
];

/// ICMPv6 types and codes (IANA, "ICMPv6 type Numbers").
pub(crate) const ICMPV6: Words<IcmpMatch> = &[
    ("destination-unreachable", kind(1)),
    ("no-route", code(1, 0)),
    ("admin-prohibited", code(1, 1)),
    ("address-unreachable", code(1, 3)),
    ("port-unreachable", code(1, 4)),
    ("reject-route", code(1, 6)),
    ("packet-too-big", kind(2)),
    ("time-exceeded", kind(3)),
    ("parameter-problem", kind(4)),
    ("echo-request", kind(128)),
    ("echo-reply", kind(129)),
    ("mld-query", kind(130)),
    ("mld-report", kind(131)),
    ("mld-done", kind(132)),
    ("router-solicitation", kind(133)),
    ("router-advertisement", kind(134)),
    ("neighbour-solicitation", kind(135)),
    ("neighbor-solicitation", kind(135)),
    ("neighbour-advertisement", kind(136)),
    ("neighbor-advertisement", kind(136)),
    ("redirect", kind(137)),
    ("mld2-report", kind(143)),
    ("listener-report", kind(143)),
];

/// Returns the ICMP type named `name`, with the code if the name has one.
pub fn icmp_named(name: &str, family: FamilyMatch) -> Option<IcmpMatch> {
    icmp_words_of(family).iter().find(|(word, _)| *word == name).map(|(_, means)| *means)
}

/// Returns the name of an ICMP type with its code; the name of the type alone if the code has none.
pub fn icmp_name(kind: u8, code: u8, family: FamilyMatch) -> Option<&'static str> {
    let words = icmp_words_of(family);
    let named = |code| word_for(words, &IcmpMatch { kind, code });
    named(Some(code)).or_else(|| named(None))
}

fn icmp_words_of(family: FamilyMatch) -> Words<IcmpMatch> {
    if family == FamilyMatch::V6 { ICMPV6 } else { ICMP }
}

/// Returns the DiffServ code point named `name`.
pub fn dscp_named(name: &str) -> Option<Dscp> {
    DSCP.iter().find(|(word, _)| *word == name).and_then(|(_, value)| Dscp::new(*value))
}

/// Returns the name of a DiffServ code point.
pub fn dscp_name(dscp: Dscp) -> Option<&'static str> {
    DSCP.iter().find(|(_, value)| *value == dscp.value()).map(|(word, _)| *word)
}

/// Returns the name of a dropper.
pub fn dropper_name(dropper: Dropper) -> &'static str {
    word_for(DROPPER, &dropper).unwrap_or("tail")
}

/// Service names that operators write for ports; only for hints.
pub(crate) const SERVICE: Words<u16> = &[
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("dhcp", 67),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("smtps", 465),
    ("submission", 587),
    ("imaps", 993),
    ("pop3s", 995),
    ("openvpn", 1194),
    ("rdp", 3389),
    ("sip", 5060),
    ("wireguard", 51820),
];

/// Returns the type names of the ICMP protocol in `protocols`; `None` unless exactly one of the two is listed.
pub(crate) fn icmp_words(protocols: &[Protocol]) -> Option<Words<IcmpMatch>> {
    match (protocols.contains(&Protocol::ICMP), protocols.contains(&Protocol::ICMPV6)) {
        (true, false) => Some(ICMP),
        (false, true) => Some(ICMPV6),
        _ => None,
    }
}

/// Returns the first word for `value`.
pub(crate) fn word_for<T: PartialEq>(words: Words<T>, value: &T) -> Option<&'static str> {
    words.iter().find(|(_, meaning)| meaning == value).map(|(word, _)| *word)
}

const fn named(algorithm: SearchAlgorithm) -> (&'static str, SearchAlgorithm) {
    (algorithm.name(), algorithm)
}

const fn kind(kind: u8) -> IcmpMatch {
    IcmpMatch { kind, code: None }
}

const fn code(kind: u8, code: u8) -> IcmpMatch {
    IcmpMatch { kind, code: Some(code) }
}

#[cfg(test)]
mod tests {
    use config::word::meaning;

    use super::{ICMP, word_for};

    #[test]
    fn words_and_meanings_are_inverse() {
        for (word, value) in ICMP {
            assert_eq!(meaning(ICMP, word), Some(*value));
            assert_eq!(word_for(ICMP, value), Some(*word));
        }
    }
}
