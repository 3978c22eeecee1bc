//! Reader of the words of one rule.

use std::collections::{BTreeSet, HashMap};

use super::recent::Recent;
use super::set::{Asked, Sets};
use super::target;
use crate::import::IpVersion;
use crate::import::chain::{Body, Bound, Limit, Verdict};
use crate::import::cond::{
    Cond, ESTABLISHED, INVALID, NEW, Place, RELATED, STATES, all_ports, and_macs, macs, ports,
};
use crate::import::interface::Names;
use crate::import::member::{Addition, Again, Members, Side};
use crate::import::note::{Note, NoteKind, Origin, Why};
use crate::import::range::{ByteSet, Ranges};
use crate::import::word;
use crate::model::{ConnectionLimit, DnatStatus, Rate, Scope, TcpFlagsMatch};

/// Match modules with options that [`Reader`] supports.
const MODULES: &[&str] = &[
    "tcp",
    "udp",
    "udplite",
    "sctp",
    "dccp",
    "icmp",
    "icmp6",
    "conntrack",
    "state",
    "multiport",
    "iprange",
    "limit",
    "hashlimit",
    "connlimit",
    "comment",
    "dscp",
    "addrtype",
    "pkttype",
    "tcpmss",
    "mac",
    "rpfilter",
    "set",
];

/// Options that narrow a rule from their position among its matches on, unlike addresses, interfaces and protocol.
const NARROWING: &[&str] = &[
    "--src-range",
    "--dst-range",
    "--sport",
    "--source-port",
    "--sports",
    "--source-ports",
    "--dport",
    "--destination-port",
    "--dports",
    "--destination-ports",
    "--ports",
    "--syn",
    "--tcp-flags",
    "--icmp-type",
    "--icmpv6-type",
    "--state",
    "--ctstate",
    "--ctproto",
    "--dscp",
    "--dscp-class",
    "--dst-type",
    "--src-type",
    "--pkt-type",
    "--mac-source",
    "--match-set",
];

/// Reader of one rule.
pub(super) struct Reader<'a> {
    pub(super) version: IpVersion,
    names: &'a Names,
    origin: Origin,
    notes: &'a mut BTreeSet<Note>,
    /// True if all packets of the rule's chain are for the gateway.
    pub(super) input: bool,
    pub(super) stateful: bool,
    pub(super) comment: Option<String>,
    ways: Vec<Cond>,
    rate: Option<Rate>,
    over: bool,
    /// True if the rule is for some values of the MSS.
    asks_mss: bool,
    /// Key of the buckets of `hashlimit`: source, destination, ports.
    hashed: Option<String>,
    /// Translations of the rule's uses of lists of recent sources; none if there is none for one of them.
    pub(super) recent: Option<std::vec::IntoIter<Recent>>,
    adds: Option<Addition>,
    sets: &'a mut Sets,
    /// Number of rules that share each table of `hashlimit`.
    shared: &'a HashMap<&'a str, usize>,
    /// True if the limit has counted other packets, too: conditions follow it, or other rules share it.
    late: bool,
    connections: Option<ConnectionLimit>,
    target: target::Target,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        version: IpVersion,
        names: &'a Names,
        origin: Origin,
        notes: &'a mut BTreeSet<Note>,
        shared: &'a HashMap<&'a str, usize>,
        sets: &'a mut Sets,
    ) -> Reader<'a> {
        let all = match version {
            IpVersion::V4 => Place::v4(),
            IpVersion::V6 => Place::v6(),
        };
        let cond = Cond { source: all.clone(), destination: all, ..Cond::default() };
        Reader {
            version,
            names,
            origin,
            notes,
            input: false,
            stateful: false,
            comment: None,
            ways: vec![cond],
            rate: None,
            over: false,
            asks_mss: false,
            hashed: None,
            recent: None,
            adds: None,
            sets,
            shared,
            late: false,
            connections: None,
            target: target::Target::default(),
        }
    }

    /// Reads the rule; `chain` finds the chains of its table.
    pub(super) fn read(
        &mut self,
        words: &[String],
        chain: impl Fn(&str) -> Option<usize>,
    ) -> Result<Body, Why> {
        let mut words = words.iter().map(String::as_str).peekable();
        let mut first = None;
        // Read to the end even if a word is unknown, for the comment is the rule's name.
        while let Some(word) = words.next() {
            let negated = word == "!";
            let option = if negated { words.next().unwrap_or_default() } else { word };
            // Old rules have the `!` after the option: `-d ! 10.0.0.0/8`.
            let mut rest = words.clone();
            let after = rest.next() == Some("!") && rest.next().is_some_and(|word| !word.starts_with('-'));
            let negated = negated ^ (after && words.next().is_some());
            let mut arguments = Vec::new();
            if matches!(option, "--comment" | "--log-prefix" | "--nflog-prefix") {
                // Free text, which may begin like an option.
                arguments.extend(words.next());
            }
            while let Some(argument) = words.next_if(|word| !word.starts_with('-') && *word != "!") {
                arguments.push(argument);
            }
            if let Err(why) = self.option(option, negated, &arguments, &chain) {
                first.get_or_insert(why);
            }
        }
        if let Some(why) = first {
            return Err(why);
        }
        let limit = self.limit()?;
        let logs = matches!(self.target.name(), None | Some("LOG" | "NFLOG"));
        if self.late && limit.is_some() && !logs {
            return Err(Why::Limit);
        }
        let v6 = self.version == IpVersion::V6;
        let (verdict, log) = self.target.verdict(v6, &mut |kind| {
            self.notes.insert(Note { origin: Some(self.origin), kind });
        })?;
        if matches!(verdict, Verdict::Clamp(_)) && self.ways.iter().any(|way| !way.protocols.contains(6)) {
            return Err(Why::Feature("TCPMSS".to_owned()));
        }
        if self.asks_mss && !matches!(verdict, Verdict::Clamp(_)) {
            return Err(Why::Feature("-m tcpmss".to_owned()));
        }
        if let Verdict::Help(helper) = verdict {
            let is_of_ports =
                |cond: &Cond| cond.protocols == ByteSet::one(helper.protocol().0) && !cond.dports.is_all();
            if !self.ways.iter().all(is_of_ports) {
                return Err(Why::Feature("--helper without a port of its protocol".to_owned()));
            }
            self.stateful = true;
        }
        let adds = match self.target.addition()? {
            Some(addition) if self.adds.is_none() => Some(self.set_target(addition)?),
            Some(_) => return Err(Why::Feature("a second addition of one packet".to_owned())),
            None => self.adds.take(),
        };
        // It adds what the limit lets through.
        if adds.is_some() && limit.is_some() {
            return Err(Why::Limit);
        }
        let mark = self.target.mark();
        if mark.is_some() && limit.is_some() {
            return Err(Why::Limit);
        }
        let ways = self.ways.iter().map(|way| (way.clone(), verdict.clone())).collect();
        Ok(Body { ways, limit, log, adds, mark })
    }

    fn limit(&self) -> Result<Option<Limit>, Why> {
        let bound = match (self.rate, self.connections) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(Why::Limit),
            (Some(rate), None) => {
                if let Some(mode) = self.hashed.as_deref() {
                    self.hash_mode(mode)?;
                }
                let per_source = self.hashed.iter().any(|mode| mode.split(',').any(|word| word == "srcip"));
                let scope = if per_source { Scope::Source } else { Scope::Rule };
                Bound::Rate(Rate { scope, ..rate })
            }
            (None, Some(most)) => Bound::Connections(most),
        };
        Ok(Some(Limit { bound, over: self.over }))
    }

    fn option(
        &mut self,
        option: &str,
        negated: bool,
        arguments: &[&str],
        chain: &impl Fn(&str) -> Option<usize>,
    ) -> Result<(), Why> {
        let one = || match arguments {
            [one] => Ok(*one),
            _ => Err(Why::Value(arguments.join(" "))),
        };
        let bad = || Why::Value(arguments.join(" "));
        self.late |= NARROWING.contains(&option) && (self.rate.is_some() || self.connections.is_some());
        match option {
            "-m" | "--match" => {
                let module = one()?;
                let known = MODULES.contains(&module) || module == "recent" && self.recent.is_some();
                if matches!(module, "mark" | "connmark") {
                    return Err(Why::Mark);
                }
                if !known {
                    return Err(Why::Feature(format!("-m {module}")));
                }
                if module == "rpfilter" {
                    self.notes.insert(Note { origin: None, kind: NoteKind::ReversePath });
                }
                if module == "recent" {
                    return self.recent();
                }
            }
            "-s" | "--source" | "-d" | "--destination" | "--src-range" | "--dst-range" => {
                let ranges: Option<Vec<_>> = one()?.split(',').map(word::addresses).collect();
                let place = Place::of(&ranges.ok_or_else(bad)?);
                let place = if negated { place.except(&self.all()) } else { place };
                let source = matches!(option, "-s" | "--source" | "--src-range");
                self.each(|cond| {
                    let side = if source { &mut cond.source } else { &mut cond.destination };
                    *side = side.and(&place);
                });
            }
            "-i" | "--in-interface" | "-o" | "--out-interface" => {
                let chosen = self.names.select(&[one()?], negated, self.notes)?;
                let inward = matches!(option, "-i" | "--in-interface");
                self.each(|cond| {
                    *(if inward { &mut cond.inward } else { &mut cond.outward }) = chosen.clone();
                });
            }
            "-p" | "--protocol" | "--ctproto" => {
                let word = one()?;
                if !matches!(word, "all" | "0") {
                    let set = ByteSet::one(word::protocol(word).ok_or_else(bad)?);
                    let set = if negated { set.complement() } else { set };
                    self.each(|cond| cond.protocols = cond.protocols.and(set));
                }
            }
            "--sport" | "--source-port" | "--sports" | "--source-ports" => {
                let set = port_set(one()?, negated)?;
                self.each(|cond| cond.sports = cond.sports.and(&set));
            }
            "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
                let set = port_set(one()?, negated)?;
                self.each(|cond| cond.dports = cond.dports.and(&set));
            }
            "--ports" => {
                let set = port_set(one()?, negated)?;
                if negated {
                    self.each(|cond| {
                        cond.sports = cond.sports.and(&set);
                        cond.dports = cond.dports.and(&set);
                    });
                } else {
                    let mut ways = self.ways.clone();
                    self.each(|cond| cond.sports = cond.sports.and(&set));
                    ways.iter_mut().for_each(|cond| cond.dports = cond.dports.and(&set));
                    self.ways.append(&mut ways);
                }
            }
            "--syn" => self.flags(TcpFlagsMatch { mask: 0x17, value: 2 }, negated)?,
            "--tcp-flags" => {
                let [mask, value] = arguments else { return Err(bad()) };
                let bits =
                    |list: &str| list.split(',').try_fold(0, |all, flag| Some(all | word::tcp_flag(flag)?));
                let (mask, value) = (bits(mask).ok_or_else(bad)?, bits(value).ok_or_else(bad)?);
                self.flags(TcpFlagsMatch { mask, value }, negated)?;
            }
            "--icmp-type" | "--icmpv6-type" => self.icmp(one()?, negated)?,
            "--state" | "--ctstate" => self.states(one()?, negated)?,
            "--dscp" | "--dscp-class" => {
                let set = word::dscp_set(one()?).ok_or_else(bad)?;
                let set = if negated { set.complement() } else { set };
                self.each(|cond| cond.dscp = cond.dscp.and(set));
            }
            "--mac-source" => {
                let mac = word::mac(one()?).ok_or_else(bad)?;
                let set = macs([(mac, mac)]);
                let set = Some(if negated { set.complement() } else { set });
                self.each(|cond| cond.source_macs = and_macs(&cond.source_macs, &set));
            }
            "--dst-type" => self.destination_type(one()?, negated)?,
            // Linux gives no packet from such a source to a rule, nor does the gateway.
            "--src-type" => match (one()?, negated) {
                ("BROADCAST" | "MULTICAST" | "LOCAL", false) => self.ways.clear(),
                ("BROADCAST" | "MULTICAST" | "LOCAL", true) => {}
                (other, _) => return Err(Why::Feature(format!("--src-type {other}"))),
            },
            "--pkt-type" => {
                let place = Place::of_packet_type(one()?).ok_or_else(bad)?;
                let place = if negated { place.except(&self.all()) } else { place };
                self.each(|cond| cond.destination = cond.destination.and(&place));
                self.notes.insert(Note { origin: Some(self.origin), kind: NoteKind::PacketType });
            }
            // Of `tcpmss`, in front of a clamp, which lowers an MSS and never raises one.
            "--mss" if !negated => self.asks_mss = true,
            // Of `rpfilter`: what has no route back comes to no rule.
            "--invert" => self.ways.clear(),
            "--loose" | "--validmark" | "--accept-local" => {}
            "--limit" | "--hashlimit-upto" | "--hashlimit" | "--hashlimit-above" => {
                let (count, unit) = one()?.split_once('/').ok_or_else(bad)?;
                let count = count.parse().ok().filter(|&count| count > 0).ok_or_else(bad)?;
                let per = word::unit(unit).ok_or_else(bad)?;
                let burst = self.rate.map_or(5, |rate| rate.burst);
                self.rate = Some(Rate { count, per, burst, scope: Scope::Rule });
                self.over = (option == "--hashlimit-above") != negated;
            }
            "--limit-burst" | "--hashlimit-burst" => {
                let burst = one()?.parse().ok().filter(|&burst| burst > 0).ok_or_else(bad)?;
                let rate = self.rate.as_mut().ok_or_else(|| Why::Feature(option.to_owned()))?;
                rate.burst = burst;
            }
            "--hashlimit-mode" => self.hashed = Some(one()?.to_owned()),
            "--set" | "--update" | "--rcheck" | "--rsource" | "--reap" | "--seconds" | "--hitcount"
            | "--name" | "--mask"
                if self.recent.is_some() => {}
            "--match-set" => {
                let [name, side] = arguments else { return Err(bad()) };
                let side = match *side {
                    "src" => Side::Source,
                    "dst" => Side::Destination,
                    _ => return Err(Why::Feature(format!("--match-set {name} {side}"))),
                };
                self.match_set(name, side, negated)?;
            }
            // Its buckets have counted packets of other rules, too.
            "--hashlimit-name" if self.shared.get(one()?).is_some_and(|&uses| uses > 1) => self.late = true,
            "--hashlimit-srcmask" => self.whole_mask(one()?)?,
            "--hashlimit-name"
            | "--hashlimit-htable-expire"
            | "--hashlimit-htable-size"
            | "--hashlimit-htable-max"
            | "--hashlimit-htable-gcinterval" => {}
            "--connlimit-above" | "--connlimit-upto" => {
                let most = one()?.parse().ok().filter(|&most| most > 0).ok_or_else(bad)?;
                self.connections = Some(ConnectionLimit { most, scope: Scope::Source });
                self.over = (option == "--connlimit-above") != negated;
            }
            "--connlimit-mask" => {
                if one()? != "0" {
                    return self.whole_mask(one()?);
                }
                if let Some(connections) = &mut self.connections {
                    connections.scope = Scope::Rule;
                }
            }
            "--connlimit-saddr" => {}
            // Of `CT` and `NOTRACK`, which leave connections untracked.
            "--notrack" => {}
            "--comment" => self.comment = Some(one()?.to_owned()),
            "-j" | "--jump" | "-g" | "--goto" => {
                let goto = matches!(option, "-g" | "--goto");
                self.target.set(one()?, goto, chain(one()?));
            }
            _ if negated => return Err(Why::Feature(format!("! {option}"))),
            _ => return self.target.option(option, arguments),
        }
        Ok(())
    }

    /// Checks that the buckets of `mode` are one for each source, or one in all: a destination or port fixed by the rule makes no
    /// difference.
    fn hash_mode(&self, mode: &str) -> Result<(), Why> {
        let one = |ranges: &Ranges| matches!(ranges.list(), [(first, last)] if first == last);
        let fixed = |word: &str| match word {
            "srcip" => true,
            "dstport" => self.ways.iter().all(|way| one(&way.dports)),
            "srcport" => self.ways.iter().all(|way| one(&way.sports)),
            "dstip" => self.ways.iter().all(|way| match self.version {
                IpVersion::V4 => one(&way.destination.v4),
                IpVersion::V6 => one(&way.destination.v6),
            }),
            _ => false,
        };
        if mode.split(',').all(fixed) {
            Ok(())
        } else {
            Err(Why::Feature(format!("--hashlimit-mode {mode}")))
        }
    }

    /// Uses the next list of recent sources.
    fn recent(&mut self) -> Result<(), Why> {
        match self.recent.as_mut().and_then(Iterator::next) {
            Some(Recent::Set) => {}
            Some(Recent::Rate(rate)) => {
                self.rate = Some(rate);
                self.hashed = Some("srcip".to_owned());
                self.over = true;
                self.notes.insert(Note { origin: Some(self.origin), kind: NoteKind::RecentRate });
            }
            Some(Recent::Member(members, adds)) => {
                self.member(&members);
                if adds.is_some() && self.adds.is_some() {
                    return Err(Why::Feature("a second addition of one packet".to_owned()));
                }
                self.adds = self.adds.take().or(adds);
            }
            None => return Err(Why::Feature("-m recent".to_owned())),
        }
        Ok(())
    }

    fn member(&mut self, members: &Members) {
        self.narrow(&[Cond { members: members.clone(), ..Cond::default() }]);
    }

    /// Intersects each alternative with each of these conditions.
    fn narrow(&mut self, asked: &[Cond]) {
        self.ways =
            self.ways.iter().flat_map(|way| asked.iter().filter_map(|asked| way.and(asked))).collect();
    }

    fn match_set(&mut self, name: &str, side: Side, negated: bool) -> Result<(), Why> {
        match self.sets.ask(name)? {
            Asked::Dynamic(set) => self.member(&Members::one(&set, side, !negated)),
            Asked::Fixed(place) => {
                let place = if negated { place.except(&self.all()) } else { place };
                self.each(|cond| {
                    let end = if side == Side::Source { &mut cond.source } else { &mut cond.destination };
                    *end = end.and(&place);
                });
            }
        }
        Ok(())
    }

    /// Addition by a target `SET`.
    fn set_target(&mut self, addition: target::SetTarget) -> Result<Addition, Why> {
        let Asked::Dynamic(set) = self.sets.ask(&addition.set)? else {
            return Err(Why::Missing(addition.set));
        };
        let again = if addition.renews { Again::Renews } else { Again::Keeps };
        Ok(Addition { set, lasts: addition.lasts, again })
    }

    fn each(&mut self, change: impl Fn(&mut Cond)) {
        self.ways.iter_mut().for_each(change);
    }

    fn all(&self) -> Place {
        match self.version {
            IpVersion::V4 => Place::v4(),
            IpVersion::V6 => Place::v6(),
        }
    }

    /// Checks that a mask keeps the whole address; other masks have no counterpart.
    fn whole_mask(&self, mask: &str) -> Result<(), Why> {
        let whole = if self.version == IpVersion::V6 { "128" } else { "32" };
        if mask == whole { Ok(()) } else { Err(Why::Value(format!("mask {mask}"))) }
    }

    fn flags(&mut self, flags: TcpFlagsMatch, negated: bool) -> Result<(), Why> {
        let wanted = flag_ways(flags, negated).into_iter();
        let wanted: Vec<Cond> = wanted.map(|flags| Cond { flags: Some(flags), ..Cond::default() }).collect();
        self.narrow(&wanted);
        Ok(())
    }

    fn icmp(&mut self, word: &str, negated: bool) -> Result<(), Why> {
        if word == "any" || word == "255/0" {
            return if negated { Err(Why::Value("! any".to_owned())) } else { Ok(()) };
        }
        let v6 = self.version == IpVersion::V6;
        let (kind, code) = word::icmp(word, v6).ok_or_else(|| Why::Value(word.to_owned()))?;
        let kinds = ByteSet::one(kind);
        match (negated, code) {
            (false, code) => {
                let codes = code.map_or(ByteSet::ALL, ByteSet::one);
                self.each(|cond| {
                    cond.icmp_types = cond.icmp_types.and(kinds);
                    cond.icmp_codes = cond.icmp_codes.and(codes);
                });
            }
            (true, None) => self.each(|cond| cond.icmp_types = cond.icmp_types.and(kinds.complement())),
            (true, Some(code)) => {
                let mut ways = self.ways.clone();
                self.each(|cond| cond.icmp_types = cond.icmp_types.and(kinds.complement()));
                for cond in &mut ways {
                    cond.icmp_types = cond.icmp_types.and(kinds);
                    cond.icmp_codes = cond.icmp_codes.and(ByteSet::one(code).complement());
                }
                self.ways.append(&mut ways);
            }
        }
        Ok(())
    }

    fn states(&mut self, list: &str, negated: bool) -> Result<(), Why> {
        self.stateful = true;
        let mut states = 0;
        let mut dnat = None;
        for word in list.split(',') {
            states |= match word {
                "NEW" => NEW,
                "ESTABLISHED" => ESTABLISHED,
                "RELATED" => RELATED,
                "INVALID" => INVALID,
                // No packet is untracked here.
                "UNTRACKED" => 0,
                // A state here, which a connection has beside its others.
                "DNAT" => {
                    dnat = Some(DnatStatus::Translated);
                    0
                }
                other => return Err(Why::Feature(format!("--ctstate {other}"))),
            };
        }
        let states = if negated { STATES & !states } else { states };
        let of_states = Cond { states, ..Cond::default() };
        self.narrow(&match (dnat, negated) {
            (None, _) => vec![of_states],
            (Some(_), true) => vec![Cond { dnat: Some(DnatStatus::Untranslated), ..of_states }],
            (dnat, false) => vec![of_states, Cond { dnat, ..Cond::default() }],
        });
        Ok(())
    }

    fn destination_type(&mut self, list: &str, negated: bool) -> Result<(), Why> {
        match (list, negated, self.input) {
            ("LOCAL", false, _) => self.each(|cond| cond.to_gateway = true),
            // What comes to INPUT for one host alone is for the gateway.
            ("LOCAL", true, true) => self.ways.clear(),
            // No address of IPv4 is one.
            ("ANYCAST", _, _) if self.version == IpVersion::V4 => {
                if !negated {
                    self.ways.clear();
                }
            }
            ("BROADCAST" | "MULTICAST", _, _) => {
                if (list, self.version) == ("BROADCAST", IpVersion::V4) {
                    let kind = NoteKind::BroadcastOfAll;
                    self.notes.insert(Note { origin: Some(self.origin), kind });
                }
                let ranges = word::address_type(&list.to_ascii_lowercase()).unwrap_or_default();
                let place = Place::of(&ranges);
                let place = if negated { place.except(&self.all()) } else { place };
                self.each(|cond| cond.destination = cond.destination.and(&place));
            }
            _ => return Err(Why::Feature(format!("--dst-type {list}"))),
        }
        Ok(())
    }
}

/// Parses a list of ports and ranges.
fn port_set(list: &str, negated: bool) -> Result<Ranges, Why> {
    let mut ranges = Vec::new();
    for item in list.split(',') {
        let (first, last) = item.split_once(':').unwrap_or((item, item));
        let bad = |_| Why::Value(list.to_owned());
        let first: u16 = if first.is_empty() { 0 } else { first.parse().map_err(bad)? };
        let last: u16 = if last.is_empty() { u16::MAX } else { last.parse().map_err(bad)? };
        ranges.push((first, last));
    }
    let set = ports(ranges);
    if set.is_empty() || set == all_ports() && negated {
        return Err(Why::Value(list.to_owned()));
    }
    Ok(if negated { set.complement() } else { set })
}

/// Alternatives for a match on flags; negated, one for each flag with the opposite value.
pub(in crate::import) fn flag_ways(flags: TcpFlagsMatch, negated: bool) -> Vec<TcpFlagsMatch> {
    let possible = flags.value & !flags.mask == 0;
    match (negated, possible) {
        (false, true) => vec![flags],
        (false, false) => Vec::new(),
        (true, false) => vec![TcpFlagsMatch { mask: 0, value: 0 }],
        (true, true) => (0..8)
            .map(|bit| 1 << bit)
            .filter(|bit| flags.mask & bit != 0)
            .map(|bit: u8| TcpFlagsMatch { mask: bit, value: !flags.value & bit })
            .collect(),
    }
}
