//! Statements of a rule: matches and verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::dynamic::{Dynamic, limits, set_name};
use super::expression::{Field, address, bare, constant, dnat, ends, field, fields, items, source_macs};
use super::limit::{connections, per_source, rate};
use super::mangle::{Change, change};
use super::translation::has_map;
use crate::import::IpVersion;
use crate::import::chain::{Body, Verdict};
use crate::import::cond::{
    Cond, ESTABLISHED, INVALID, MAC_MAX, NEW, Named, Place, RELATED, STATES, macs, ports,
};
use crate::import::interface::Names;
use crate::import::iptables::{flag_ways, reject};
use crate::import::member::{Members, Side};
use crate::import::name;
use crate::import::note::{Note, NoteKind, Origin, Why};
use crate::import::range::{ByteSet, Ranges};
use crate::import::word;
use crate::model::{Helper, Protocol, RejectWith, Set, TcpFlagsMatch};

/// Most alternatives of one rule.
pub(super) const MOST_WAYS: usize = 4096;

/// State of the reading of a rule: its surroundings, and the notes and sets found.
pub(super) struct Context<'a> {
    pub(super) family: &'a str,
    pub(super) origin: Origin,
    pub(super) names: &'a Names,
    pub(super) notes: &'a mut BTreeSet<Note>,
    pub(super) stateful: &'a mut bool,
    pub(super) sets: &'a mut BTreeMap<String, Set>,
    /// True if all packets of the rule's chain are for the gateway.
    pub(super) input: bool,
    pub(super) chain: &'a dyn Fn(&str) -> Option<usize>,
    pub(super) named: &'a dyn Fn(&str) -> Option<&'a Value>,
    /// Named set whose elements come and go.
    pub(super) dynamic: &'a dyn Fn(&str) -> Option<&'a Dynamic>,
    /// True if rules change the map of that name.
    pub(super) changes_map: &'a dyn Fn(&str) -> bool,
    /// True if a dynamic set of the policy has that name.
    pub(super) is_taken: &'a dyn Fn(&str) -> bool,
    /// Helper of an object `ct helper` of that name.
    pub(super) helper: &'a dyn Fn(&str) -> Result<Helper, Why>,
    /// Limit of that name, which no other rule has.
    pub(super) limit: &'a dyn Fn(&str) -> Result<&'a Value, Why>,
}

impl Context<'_> {
    /// Reads a rule's statements.
    pub(super) fn rule(&mut self, statements: &[Value]) -> Result<Body, Why> {
        let place = match self.family {
            "ip" => Place::v4(),
            "ip6" => Place::v6(),
            _ => Place::all(),
        };
        let first = Cond { source: place.clone(), destination: place, ..Cond::default() };
        let mut ways = vec![(first, Verdict::Continue)];
        let mut limit = None;
        let mut log = false;
        let mut adds = None;
        let mut mark = None;
        for statement in statements {
            let Some((kind, body)) = statement.as_object().and_then(|map| map.iter().next()) else {
                let text = statement.as_str().map(|text| Why::Feature(text.to_owned()));
                return Err(text.unwrap_or_else(|| Why::Value(statement.to_string())));
            };
            let decided = ways.iter().any(|(_, verdict)| *verdict != Verdict::Continue);
            if decided && kind != "counter" {
                return Err(Why::Feature(format!("{kind} after a verdict")));
            }
            let narrows = matches!(kind.as_str(), "match" | "vmap" | "set" | "meter");
            if adds.is_some() && narrows {
                // It adds more packets than it decides.
                return Err(Why::Feature(format!("{kind} after an addition to a set")));
            }
            if mark.is_some() && (narrows || matches!(kind.as_str(), "limit" | "ct count" | "mangle")) {
                // It marks more packets than it decides.
                return Err(Why::Feature(format!("{kind} after a change of the DSCP")));
            }
            if log && matches!(kind.as_str(), "match" | "vmap") {
                // It logs more packets than it decides.
                return Err(Why::Log);
            }
            let verdict = match kind.as_str() {
                "counter" => continue,
                // A limit counts what comes as far as it, so nothing may narrow the rule after it.
                "match" | "vmap" | "dnat" | "snat" if limit.is_some() => return Err(Why::Limit),
                "redirect" | "ct helper" if limit.is_some() && has_map(body) => return Err(Why::Limit),
                "log" => {
                    log = true;
                    continue;
                }
                "match" => {
                    let list = self.found(body)?;
                    ways = narrow(&ways, &list)?;
                    continue;
                }
                "vmap" => {
                    let list = self.map(body)?;
                    ways = narrow(&ways, &list)?;
                    continue;
                }
                "limit" | "ct count" if limit.is_some() => return Err(Why::Limit),
                "limit" => {
                    // The log would be of all packets, and the verdict of some.
                    if log {
                        return Err(Why::Limit);
                    }
                    limit = Some(rate(match body.as_str() {
                        Some(name) => (self.limit)(name)?,
                        None => body,
                    })?);
                    continue;
                }
                "ct count" => {
                    limit = Some(connections(body)?);
                    continue;
                }
                "notrack" => {
                    self.note_all(NoteKind::Tracked);
                    continue;
                }
                "meter" | "set" if limit.is_some() => return Err(Why::Limit),
                "set" if limits(body).next().is_none() => {
                    let name = set_name(body).unwrap_or_default();
                    let set = (self.dynamic)(name).ok_or_else(|| Why::Missing(format!("@{name}")))?;
                    let (addition, version) = set.addition(body)?;
                    ways = narrow(&ways, &[go_on(Cond::of(version))])?;
                    adds = Some(addition);
                    continue;
                }
                "meter" | "set" => {
                    if log {
                        return Err(Why::Limit);
                    }
                    let (bound, version) = per_source(kind, body)?;
                    ways = narrow(&ways, &[go_on(Cond::of(version))])?;
                    limit = Some(bound);
                    continue;
                }
                "flow" => {
                    self.note(NoteKind::FastPath);
                    continue;
                }
                "dnat" | "snat" | "redirect" if has_map(body) => {
                    let list = self.mapped(kind, body)?;
                    ways = narrow(&ways, &list)?;
                    continue;
                }
                "mangle" => match change(body)? {
                    Change::Clamp(mss) => Verdict::Clamp(mss),
                    Change::Mark(..) if limit.is_some() => return Err(Why::Limit),
                    Change::Mark(code_point, version) => {
                        ways = narrow(&ways, &[go_on(Cond::of(version))])?;
                        mark = Some(code_point);
                        continue;
                    }
                },
                "ct helper" if log => return Err(Why::Log),
                "ct helper" => {
                    ways = narrow(&ways, &self.helped(body)?)?;
                    let is_of_ports = |(cond, verdict): &(Cond, Verdict)| match verdict {
                        Verdict::Help(helper) => {
                            cond.protocols == ByteSet::one(helper.protocol().0) && !cond.dports.is_all()
                        }
                        _ => false,
                    };
                    if !ways.iter().all(is_of_ports) {
                        return Err(Why::Feature("ct helper without a port of its protocol".to_owned()));
                    }
                    *self.stateful = true;
                    continue;
                }
                _ => self.verdict(kind, body)?,
            };
            // nft leaves out a match that the verdict implies.
            ways = narrow(&ways, &[(implied(kind, body), verdict)])?;
        }
        for (cond, _) in &ways {
            let ported = cond.protocols.iter().all(|protocol| Protocol(protocol).has_ports());
            if !(ported || cond.sports.is_all() && cond.dports.is_all()) {
                return Err(Why::Feature("ports of any protocol".to_owned()));
            }
        }
        if limit.is_some() && ways.len() > 1 {
            return Err(Why::Limit);
        }
        Ok(Body { ways, limit, log, adds, mark })
    }

    pub(super) fn verdict(&mut self, kind: &str, body: &Value) -> Result<Verdict, Why> {
        let chain = || {
            let target = body.get("target").and_then(Value::as_str).unwrap_or_default();
            (self.chain)(target).ok_or_else(|| Why::Missing(target.to_owned()))
        };
        Ok(match kind {
            "accept" => Verdict::Accept,
            "drop" => Verdict::Drop,
            "continue" => Verdict::Continue,
            "return" => Verdict::Return,
            "jump" => Verdict::Jump(chain()?),
            "goto" => Verdict::Goto(chain()?),
            "reject" => Verdict::Reject(self.reject(body)?),
            "masquerade" | "snat" | "dnat" | "redirect" => Verdict::Translate(self.translation(kind, body)?),
            _ => return Err(Why::Feature(kind.to_owned())),
        })
    }

    fn note_all(&mut self, kind: NoteKind) {
        self.notes.insert(Note { origin: None, kind });
    }

    fn reject(&mut self, body: &Value) -> Result<RejectWith, Why> {
        let word = |name| body.get(name).and_then(Value::as_str);
        if self.family == "inet" && word("type") == Some("tcp reset") {
            self.note_all(NoteKind::ResetVersion);
        }
        let kind = match (word("type"), word("expr")) {
            (Some("tcp reset"), _) => "tcp-reset",
            (_, Some(kind)) => kind,
            (_, None) => "port-unreachable",
        };
        let (origin, notes) = (self.origin, &mut *self.notes);
        reject(kind, &mut |kind| {
            notes.insert(Note { origin: Some(origin), kind });
        })
    }

    pub(super) fn note(&mut self, kind: NoteKind) {
        self.notes.insert(Note { origin: Some(self.origin), kind });
    }

    /// Alternatives of a match.
    fn found(&mut self, body: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let null = Value::Null;
        let part = |name| body.get(name).unwrap_or(&null);
        let (left, right) = (part("left"), part("right"));
        let op = part("op").as_str().unwrap_or("==");
        if let Some(fields) = left.get("concat").and_then(Value::as_array) {
            if !matches!(op, "==" | "in") {
                return Err(Why::Feature(format!("{op} of a concatenation")));
            }
            let fields = fields.iter().map(field).collect::<Result<Vec<_>, _>>()?;
            if let Some((name, set)) = self.dynamic_of(right) {
                return self.by_port(&fields, name, set);
            }
            let set = self.way_items(right)?;
            let ways = set.into_iter().map(|item| self.tuple(&fields, item));
            return Ok(ways.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().map(go_on).collect());
        }
        if let Some(mask) = flag_mask(left)? {
            return self.tcp_flags(mask, op, right);
        }
        let field = field(left)?;
        if let Some((name, set)) = self.dynamic_of(right) {
            let (side, v6) = match field {
                Field::Source { v6 } => (Side::Source, v6),
                Field::Destination { v6 } => (Side::Destination, v6),
                _ => return Err(Why::DynamicSet(name.to_owned())),
            };
            let members = Members::one(set.addresses(name)?, side, op != "!=");
            let version = Cond::of(if v6 { IpVersion::V6 } else { IpVersion::V4 });
            return Ok(vec![go_on(Cond { members, ..version })]);
        }
        match (field, op) {
            (Field::Status, _) => {
                *self.stateful = true;
                Ok(vec![go_on(Cond { dnat: Some(dnat(left, op, right)?), ..Cond::default() })])
            }
            // Packets without a route back come to no rule.
            (Field::ReversePath, "==" | "!=") => {
                let exists = right.as_bool().ok_or_else(|| Why::Value(right.to_string()))? != (op == "!=");
                self.note_all(NoteKind::ReversePath);
                Ok(if exists { vec![go_on(Cond::default())] } else { Vec::new() })
            }
            (Field::Sport(_) | Field::Dport(_), "<" | ">" | "<=" | ">=") => {
                let port: Option<u16> = constant(right)?.parse().ok();
                let range = port.and_then(|port| compared(op, u64::from(port), u64::from(u16::MAX)));
                let (first, last) = range.ok_or_else(|| Why::Value(right.to_string()))?;
                let value = serde_json::json!({ "range": [first, last] });
                Ok(vec![go_on(self.cond(field, &[&value], false)?)])
            }
            (Field::SourceMac { mask: MAC_MAX }, "<" | ">" | "<=" | ">=") => {
                let range = word::mac(&constant(right)?).and_then(|mac| compared(op, mac, MAC_MAX));
                let range = range.ok_or_else(|| Why::Value(right.to_string()))?;
                Ok(vec![go_on(Cond { source_macs: Some(macs([range])), ..Cond::default() })])
            }
            (_, "==" | "!=" | "in") => {
                let negated = op == "!=";
                match self.named_items(right)? {
                    Some((name, list)) => {
                        let mut cond = self.cond(field, &list, negated)?;
                        self.keep_name(field, name, &list, negated, &mut cond)?;
                        Ok(vec![go_on(cond)])
                    }
                    None => Ok(vec![go_on(self.cond(field, &items(right), negated)?)]),
                }
            }
            _ => Err(Why::Feature(op.to_owned())),
        }
    }

    /// Name of a set whose elements come and go, and the set.
    fn dynamic_of<'v>(&self, right: &'v Value) -> Option<(&'v str, &Dynamic)> {
        let name = right.as_str().and_then(|word| word.strip_prefix('@'))?;
        Some((name, (self.dynamic)(name)?))
    }

    /// Alternatives for a source in a set that goes with a port of the packet.
    fn by_port(&self, fields: &[Field], name: &str, set: &Dynamic) -> Result<Vec<(Cond, Verdict)>, Why> {
        let [Field::Source { v6 }, Field::Dport(protocol)] = *fields else {
            return Err(Why::DynamicSet(name.to_owned()));
        };
        let version = Cond::of(if v6 { IpVersion::V6 } else { IpVersion::V4 });
        let way = |(port, set): (&str, &Arc<str>)| {
            let port = port.parse().map_err(|_| Why::Value(port.to_owned()))?;
            let protocols = protocol.map_or(ByteSet::ALL, ByteSet::one);
            let members = Members::one(set, Side::Source, true);
            Ok(go_on(Cond { members, protocols, dports: ports([(port, port)]), ..version.clone() }))
        };
        set.by_port(name)?.map(way).collect()
    }

    /// Elements of a named set, if `right` names one.
    fn named_items<'v>(&self, right: &'v Value) -> Result<Option<(&'v str, Vec<&'v Value>)>, Why>
    where
        Self: 'v,
    {
        let Some(name) = right.as_str().and_then(|word| word.strip_prefix('@')) else { return Ok(None) };
        let set = (self.named)(name).ok_or_else(|| Why::Missing(format!("@{name}")))?;
        let flags = set.get("flags").map_or_else(String::new, Value::to_string);
        // A map with timeouts, or one that rules change.
        let is_timed = flags.contains("timeout") || flags.contains("dynamic");
        if (self.dynamic)(name).is_some() || is_timed || (self.changes_map)(name) {
            let is_map = set.get("map").is_some();
            let name = name.to_owned();
            return Err(if is_map { Why::DynamicMap(name) } else { Why::DynamicSet(name) });
        }
        Ok(Some((name, set.get("elem").map_or_else(Vec::new, items))))
    }

    /// Elements of a set or map, named or not, each of which is an alternative.
    pub(super) fn way_items<'v>(&self, right: &'v Value) -> Result<Vec<&'v Value>, Why>
    where
        Self: 'v,
    {
        let list = self.named_items(right)?.map_or_else(|| items(right), |(_, list)| list);
        if list.len() > MOST_WAYS { Err(Why::TooMany) } else { Ok(list) }
    }

    /// Keeps the name of a set of addresses.
    fn keep_name(
        &mut self,
        field: Field,
        name: &str,
        list: &[&Value],
        except: bool,
        cond: &mut Cond,
    ) -> Result<(), Why> {
        let place = match field {
            Field::Source { .. } => &mut cond.source,
            Field::Destination { .. } => &mut cond.destination,
            _ => return Ok(()),
        };
        let found = list.iter().map(|item| address(item)).collect::<Result<Vec<_>, _>>()?;
        let Some(name) = name::valid(name).filter(|name| !(self.is_taken)(name)) else { return Ok(()) };
        let set = Set { name: name.clone(), items: found };
        // Tables may have sets of the same name; only the first keeps it.
        if !set.items.is_empty() && *self.sets.entry(name.clone()).or_insert_with(|| set.clone()) == set {
            place.name = Some(Named { set: Arc::from(name), except });
        }
        Ok(())
    }

    /// Alternatives of a verdict map.
    fn map(&mut self, body: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let null = Value::Null;
        let (key, data) = (body.get("key").unwrap_or(&null), body.get("data").unwrap_or(&null));
        if let Some(mask) = flag_mask(key)? {
            return self.flag_map(mask, data);
        }
        let fields = fields(key)?;
        let list = self.way_items(data)?;
        let mut ways = Vec::new();
        for item in list {
            let (key, verdict) = self.pair(item)?;
            ways.extend(self.tuple(&fields, key)?.map(|cond| (cond, verdict)));
        }
        Ok(ways)
    }

    /// Condition that the concatenation of `fields` equals an element.
    pub(super) fn tuple(&mut self, fields: &[Field], item: &Value) -> Result<Option<Cond>, Why> {
        let one = [item];
        let parts: Vec<&Value> = match bare(item).get("concat").and_then(Value::as_array) {
            Some(parts) => parts.iter().collect(),
            None => one.to_vec(),
        };
        if parts.len() != fields.len() {
            return Err(Why::Value(item.to_string()));
        }
        let mut cond = Some(Cond::default());
        for (&field, part) in fields.iter().zip(parts) {
            let next = self.cond(field, &[part], false)?;
            cond = cond.and_then(|cond| cond.and(&next));
        }
        Ok(cond)
    }

    /// Condition that a field is, or is not, in `list`.
    fn cond(&mut self, field: Field, list: &[&Value], negated: bool) -> Result<Cond, Why> {
        let mut cond = Cond::default();
        match field {
            Field::Source { v6 } | Field::Destination { v6 } => {
                let ranges = list.iter().map(|item| address(item)).collect::<Result<Vec<_>, _>>()?;
                let all = if v6 { Place::v6() } else { Place::v4() };
                let place = Place::of(&ranges);
                let place = if negated { place.except(&all) } else { place.and(&all) };
                *(if matches!(field, Field::Source { .. }) {
                    &mut cond.source
                } else {
                    &mut cond.destination
                }) = place;
            }
            Field::Sport(protocol) | Field::Dport(protocol) => {
                let number = |word: &str| word.parse::<u16>().map_err(|_| Why::Value(word.to_owned()));
                let pairs = list.iter().map(|item| {
                    let (first, last) = ends(item)?;
                    Ok((number(&first)?, number(&last)?))
                });
                let set = ports(pairs.collect::<Result<Vec<_>, Why>>()?);
                let set = if negated { set.complement() } else { set };
                *(if matches!(field, Field::Sport(_)) { &mut cond.sports } else { &mut cond.dports }) = set;
                if let Some(protocol) = protocol {
                    cond.protocols = ByteSet::one(protocol);
                }
            }
            Field::IcmpType { v6 } => {
                cond.icmp_types = bytes(list, negated, |word| match word::icmp(word, v6) {
                    Some((kind, None)) => Some(kind),
                    _ => None,
                })?;
                icmp_of(&mut cond, v6);
            }
            Field::IcmpCode { v6 } => {
                cond.icmp_codes = bytes(list, negated, |word| word::icmp_code(word, v6))?;
                icmp_of(&mut cond, v6);
            }
            Field::Dscp { v6 } => {
                cond.dscp = bytes(list, negated, word::dscp)?;
                cond.source = if v6 { Place::v6() } else { Place::v4() };
            }
            Field::Protocol => cond.protocols = bytes(list, negated, word::protocol)?,
            Field::HeaderProtocol { v6 } => {
                cond.protocols = bytes(list, negated, word::protocol)?;
                cond.source = if v6 { Place::v6() } else { Place::v4() };
            }
            Field::Version { v6 } => {
                let version = if v6 { "6" } else { "4" };
                let all = list.len() == 1 && constant(list[0])? == version;
                if !all || negated {
                    return Err(Why::Value(list.first().map_or_else(String::new, |item| item.to_string())));
                }
                cond.source = if v6 { Place::v6() } else { Place::v4() };
            }
            Field::SourceMac { mask } => {
                let mut ranges = Vec::with_capacity(list.len());
                for item in list {
                    ranges.extend_from_slice(source_macs(item, mask)?.list());
                    // Under a mask each item may be many.
                    if ranges.len() > list.len() + MOST_WAYS {
                        return Err(Why::TooMany);
                    }
                }
                let set = Ranges::of(u128::from(MAC_MAX), ranges);
                cond.source_macs = Some(if negated { set.complement() } else { set });
            }
            Field::InwardType => {
                let ethernet = list.len() == 1 && matches!(constant(list[0])?.as_str(), "ether" | "1");
                if !ethernet || negated {
                    return Err(Why::Feature("meta iiftype".to_owned()));
                }
                cond.source_macs = Some(macs([(0, MAC_MAX)]));
            }
            Field::Nfproto | Field::EtherType { .. } => {
                if field == (Field::EtherType { framed: true }) {
                    cond.source_macs = Some(macs([(0, MAC_MAX)]));
                }
                let words = list.iter().map(|item| constant(item)).collect::<Result<Vec<_>, _>>()?;
                let has = |names: &[&str]| words.iter().any(|word| names.contains(&word.as_str())) != negated;
                let known = ["ipv4", "ipv6", "ip", "ip6", "2", "10"];
                if let Some(word) = words.iter().find(|word| !known.contains(&word.as_str())) {
                    return Err(Why::Value(word.clone()));
                }
                let none = Place::v4().and(&Place::v6());
                cond.source = match (has(&["ipv4", "ip", "2"]), has(&["ipv6", "ip6", "10"])) {
                    (true, true) => Place::all(),
                    (true, false) => Place::v4(),
                    (false, true) => Place::v6(),
                    (false, false) => none,
                };
            }
            Field::Inward | Field::Outward => {
                let words = list.iter().map(|item| constant(item)).collect::<Result<Vec<_>, _>>()?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let chosen = self.names.select(&words, negated, self.notes)?;
                *(if field == Field::Inward { &mut cond.inward } else { &mut cond.outward }) = chosen;
            }
            Field::State => {
                *self.stateful = true;
                let mut states = 0;
                for item in list {
                    states |= match constant(item)?.as_str() {
                        "new" => NEW,
                        "established" => ESTABLISHED,
                        "related" => RELATED,
                        "invalid" => INVALID,
                        // No packet is untracked here.
                        "untracked" => 0,
                        other => return Err(Why::Value(other.to_owned())),
                    };
                }
                cond.states = if negated { STATES & !states } else { states };
            }
            Field::Status | Field::ReversePath => return Err(Why::Feature("a set of answers".to_owned())),
            Field::TcpFlags => return Err(Why::Feature("tcp flags in a set".to_owned())),
            Field::DestinationType => self.destination_type(list, negated, &mut cond)?,
            // Linux gives no packet from such a source to a rule, nor does the gateway.
            Field::SourceType => {
                for item in list {
                    let word = constant(item)?;
                    if !matches!(word.as_str(), "broadcast" | "multicast" | "local") {
                        return Err(Why::Feature(format!("fib saddr type {word}")));
                    }
                }
                cond.source = if negated { Place::all() } else { Place::of(&[]) };
            }
            Field::PacketType => {
                let mut place = Place::of(&[]);
                for item in list {
                    let word = constant(item)?;
                    let of_type = Place::of_packet_type(&word).ok_or(Why::Value(word))?;
                    place = place.or(&of_type);
                }
                cond.destination = if negated { place.except(&Place::all()) } else { place };
                self.note(NoteKind::PacketType);
            }
        }
        Ok(cond)
    }

    /// Narrows to destinations of some types of address.
    fn destination_type(&mut self, list: &[&Value], negated: bool, cond: &mut Cond) -> Result<(), Why> {
        let words = list.iter().map(|item| constant(item)).collect::<Result<Vec<_>, _>>()?;
        let missing = || Why::Feature("fib daddr type".to_owned());
        if words == ["local"] {
            match (negated, self.input) {
                (false, _) => cond.to_gateway = true,
                (true, true) => cond.states = 0,
                (true, false) => return Err(missing()),
            }
            return Ok(());
        }
        let mut addresses = Vec::new();
        for word in &words {
            match (word.as_str(), word::address_type(word)) {
                (_, Some(ranges)) => addresses.extend(ranges),
                // No address of IPv4 is one.
                ("anycast", None) if self.family == "ip" => {}
                _ => return Err(missing()),
            }
        }
        if words.iter().any(|word| word == "broadcast") {
            self.notes.insert(Note { origin: Some(self.origin), kind: NoteKind::BroadcastOfAll });
        }
        let place = Place::of(&addresses);
        cond.destination = if negated { place.except(&Place::all()) } else { place };
        Ok(())
    }

    /// Alternatives of a comparison of flags with `right`: an element is a value for all bits of `mask`.
    fn tcp_flags(&mut self, mask: u8, op: &str, right: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let listed = self.named_items(right)?.map(|(_, list)| list);
        let set = listed.or_else(|| right.get("set").map(|_| items(right)));
        let values = match &set {
            Some(list) => list.iter().map(|item| flag_bits(bare(item))).collect::<Result<Vec<_>, _>>()?,
            None => vec![flag_bits(right)?],
        };
        let exact = |value: u8| TcpFlagsMatch { mask, value };
        Ok(tcp_ways(match op {
            // Any of them set. A set holds values, and is compared as such.
            "in" if set.is_none() => {
                let bits = values[0] & mask;
                let single = (0..8).map(|bit| 1u8 << bit).filter(|bit| bits & bit != 0);
                single.map(|bit| TcpFlagsMatch { mask: bit, value: bit }).collect()
            }
            // None of them set.
            "!" if set.is_none() => vec![TcpFlagsMatch { mask: values[0] & mask, value: 0 }],
            "==" | "in" => values.into_iter().flat_map(|value| flag_ways(exact(value), false)).collect(),
            // Different from each of them.
            "!=" => {
                values.into_iter().try_fold(vec![TcpFlagsMatch { mask: 0, value: 0 }], |ways, value| {
                    let others = flag_ways(exact(value), true);
                    if ways.len() * others.len() > MOST_WAYS {
                        return Err(Why::TooMany);
                    }
                    let both = |a: &TcpFlagsMatch, b: &TcpFlagsMatch| TcpFlagsMatch {
                        mask: a.mask | b.mask,
                        value: a.value | b.value,
                    };
                    let agree =
                        |a: &TcpFlagsMatch, b: &TcpFlagsMatch| (a.value ^ b.value) & a.mask & b.mask == 0;
                    let mut next: Vec<TcpFlagsMatch> = Vec::new();
                    for way in &ways {
                        for other in others.iter().filter(|other| agree(way, other)) {
                            let way = both(way, other);
                            if !next.contains(&way) {
                                next.push(way);
                            }
                        }
                    }
                    Ok(next)
                })?
            }
            _ => return Err(Why::Feature(op.to_owned())),
        }))
    }

    /// Alternatives of a verdict map with flags as its key.
    fn flag_map(&mut self, mask: u8, data: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let list = self.named_items(data)?.map_or_else(|| items(data), |(_, list)| list);
        let mut ways = Vec::new();
        for item in list {
            let (key, verdict) = self.pair(item)?;
            let flags = flag_ways(TcpFlagsMatch { mask, value: flag_bits(bare(key))? }, false);
            ways.extend(tcp_ways(flags).into_iter().map(|(cond, _)| (cond, verdict.clone())));
        }
        Ok(ways)
    }

    /// Key and verdict of an element of a verdict map.
    fn pair<'v>(&mut self, item: &'v Value) -> Result<(&'v Value, Verdict), Why> {
        let Some([key, verdict]) = item.as_array().map(Vec::as_slice) else {
            return Err(Why::Value(item.to_string()));
        };
        let Some((kind, body)) = verdict.as_object().and_then(|map| map.iter().next()) else {
            return Err(Why::Value(verdict.to_string()));
        };
        Ok((key, self.verdict(kind, body)?))
    }
}

/// Condition implied by a verdict: the IP version of its answer or of the new address, or TCP for a reset.
pub(super) fn implied(kind: &str, body: &Value) -> Cond {
    let word = |name| body.get(name).and_then(Value::as_str);
    let version = match (kind, word("type")) {
        ("reject", Some("icmp")) => Some(IpVersion::V4),
        ("reject", Some("icmpv6")) => Some(IpVersion::V6),
        ("reject", Some("tcp reset")) => {
            return Cond { protocols: ByteSet::one(Protocol::TCP.0), ..Cond::default() };
        }
        ("dnat" | "snat", _) => match body.get("addr").map(address) {
            Some(Ok(range)) if range.first.is_ipv4() => Some(IpVersion::V4),
            Some(Ok(_)) => Some(IpVersion::V6),
            _ => None,
        },
        _ => None,
    };
    version.map_or_else(Cond::default, Cond::of)
}

/// Mask of TCP flags that `left` compares, if it is on TCP flags; all of them without a mask.
fn flag_mask(left: &Value) -> Result<Option<u8>, Why> {
    match left.get("&").and_then(Value::as_array).map(Vec::as_slice) {
        Some([masked, mask]) if field(masked).is_ok_and(|field| field == Field::TcpFlags) => {
            flag_bits(mask).map(Some)
        }
        Some(_) if field(left).is_err() => Err(Why::Feature(left.to_string())),
        _ => Ok(field(left).is_ok_and(|field| field == Field::TcpFlags).then_some(0xff)),
    }
}

/// First and last of the numbers up to `max` less or greater than `than`, by `op`; `None` if there are none.
fn compared(op: &str, than: u64, max: u64) -> Option<(u64, u64)> {
    match op {
        "<" => Some((0, than.checked_sub(1)?)),
        "<=" => Some((0, than)),
        ">=" => Some((than, max)),
        _ => Some((than + 1, max)).filter(|_| than < max),
    }
}

fn go_on(cond: Cond) -> (Cond, Verdict) {
    (cond, Verdict::Continue)
}

fn tcp_ways(flags: Vec<TcpFlagsMatch>) -> Vec<(Cond, Verdict)> {
    let tcp = ByteSet::one(Protocol::TCP.0);
    flags
        .into_iter()
        .map(|flags| go_on(Cond { protocols: tcp, flags: Some(flags), ..Cond::default() }))
        .collect()
}

/// Product of `ways` and `list`.
fn narrow(ways: &[(Cond, Verdict)], list: &[(Cond, Verdict)]) -> Result<Vec<(Cond, Verdict)>, Why> {
    if ways.len().saturating_mul(list.len()) > MOST_WAYS {
        return Err(Why::TooMany);
    }
    let pairs = ways.iter().flat_map(|(a, _)| list.iter().map(move |(b, verdict)| (a.and(b), verdict)));
    Ok(pairs.filter_map(|(cond, verdict)| cond.map(|cond| (cond, verdict.clone()))).collect())
}

fn icmp_of(cond: &mut Cond, v6: bool) {
    cond.protocols = ByteSet::one(if v6 { Protocol::ICMPV6.0 } else { Protocol::ICMP.0 });
    cond.source = if v6 { Place::v6() } else { Place::v4() };
}

/// Set of small numbers, given as numbers and ranges.
fn bytes(list: &[&Value], negated: bool, read: impl Fn(&str) -> Option<u8>) -> Result<ByteSet, Why> {
    let mut set = ByteSet::NONE;
    for item in list {
        let (first, last) = ends(item)?;
        let number = |word: &str| read(word).ok_or_else(|| Why::Value(word.to_owned()));
        for value in number(&first)?..=number(&last)? {
            set.insert(value);
        }
    }
    Ok(if negated { set.complement() } else { set })
}

/// Parses flags: one or several names, a number, or several joined by `|`.
fn flag_bits(value: &Value) -> Result<u8, Why> {
    let bad = || Why::Value(value.to_string());
    match value {
        Value::String(word) => word::tcp_flag(word).ok_or_else(bad),
        Value::Number(number) => number.as_u64().and_then(|bits| u8::try_from(bits).ok()).ok_or_else(bad),
        Value::Array(list) => list.iter().try_fold(0, |bits, flag| Ok(bits | flag_bits(flag)?)),
        Value::Object(map) => flag_bits(map.get("|").or_else(|| map.get("set")).ok_or_else(bad)?),
        _ => Err(bad()),
    }
}
