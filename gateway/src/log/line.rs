//! Log records with names in place of numbers, and their formats: text and JSON.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use dataplane::flow::Ends;
use dataplane::log::{Cause, Connection, Mapped, Record, RuleHit};
use dataplane::nat::{BlockChange, PortBlock};
use dataplane::tables::{LOCAL, NO_NUMBER, OTHER, Tables};
use dataplane::verdict::Verdict;
use policy::model::{OTHER_ZONE, SELF_ZONE};
use serde_json::{Map, Value, json};
use wire::{Nanos, PortId};

use super::LeftOut;
use crate::flows::{protocol_name, state_name};

/// Log record.
#[derive(Clone, Debug)]
pub struct Line {
    /// Time of the event.
    pub at: SystemTime,
    /// Name of the event.
    pub event: &'static str,
    /// Severity.
    pub level: Level,
    /// Fields, in order.
    pub fields: Vec<(&'static str, Value)>,
}

/// Severity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal event.
    Info,
    /// Loss or failure.
    Warning,
}

impl Level {
    /// The severity of RFC 5424, section 6.2.1, and of journald's `PRIORITY`.
    pub fn severity(self) -> u8 {
        match self {
            Level::Info => 6,
            Level::Warning => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Info => "INFO",
            Level::Warning => "WARN",
        }
    }
}

impl Line {
    /// Converts a record of the dataplane. `at` is the wall-clock time of `now`, which is on the clock of the record's
    /// times.
    pub fn of(record: &Record, tables: &Tables, at: SystemTime, now: Nanos) -> Line {
        let mut fields = Fields::default();
        let event = match record {
            Record::Rule(hit) => {
                rule_hit(hit, tables, &mut fields);
                "rule"
            }
            Record::Opened(opened) => {
                let rule = tables.filter.rules.get(opened.rule as usize);
                fields.some("rule", rule.map(|rule| rule.name.as_str()));
                fields.interface("in", tables.interface_numbered(opened.connection.ingress), tables);
                fields.interface("out", Some(opened.egress), tables);
                connection(&opened.connection, tables, &mut fields);
                "connection-new"
            }
            Record::Closed(closed) => {
                fields.some("cause", Some(cause_name(closed.cause)));
                fields.some("state", Some(state_name(closed.state)));
                fields.interface("in", tables.interface_numbered(closed.connection.ingress), tables);
                connection(&closed.connection, tables, &mut fields);
                let age = now.since(closed.began);
                fields.put("began", time_text(at.checked_sub(Duration::from_nanos(age.0)).unwrap_or(at)));
                fields.put("duration_seconds", age.as_secs_f64());
                "connection-ended"
            }
            Record::Mapped(mapping) => {
                mapped(mapping, tables, &mut fields);
                "nat-created"
            }
            Record::Unmapped(mapping) => {
                mapped(mapping, tables, &mut fields);
                "nat-deleted"
            }
            Record::Block(event) => {
                port_block(&event.block, tables, &mut fields);
                match event.change {
                    BlockChange::Allocated => "nat-block-allocated",
                    BlockChange::Freed => "nat-block-freed",
                }
            }
        };
        Line { at, event, level: Level::Info, fields: fields.0 }
    }

    /// Record on records not written.
    pub fn left_out(left_out: &LeftOut, tables: &Tables, at: SystemTime) -> Line {
        let mut fields = Fields::default();
        fields.put("of", left_out.of);
        let rule = left_out.rule.and_then(|place| tables.filter.rules.get(place as usize));
        fields.some("rule", rule.map(|rule| rule.name.as_str()));
        fields.put("count", left_out.count);
        Line { at, event: "left-out", level: Level::Warning, fields: fields.0 }
    }

    /// Appends a field.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Line {
        self.fields.push((key, value.into()));
        self
    }

    /// Time of the event in UTC, as in RFC 3339.
    pub fn time(&self) -> String {
        time_text(self.at)
    }

    /// Message for people.
    pub fn message(&self) -> String {
        let text = |key| self.field(key).unwrap_or_default();
        let ends = || {
            let port = |key| self.field(key).map_or_else(String::new, |port| format!(" port {port}"));
            let (from, to) = (port("sport"), port("dport"));
            format!("{} {}{from} > {}{to}", text("protocol"), text("source"), text("destination"))
        };
        match self.event {
            "rule" => format!("rule {}: {}, {}", text("rule"), text("verdict"), ends()),
            "connection-new" => format!("connection begun: {}", ends()),
            "connection-ended" => format!("connection ended ({}): {}", text("cause"), ends()),
            "nat-created" | "nat-deleted" => {
                let what = if self.event == "nat-created" { "created" } else { "deleted" };
                let side = |address, port| format!("{} port {}", text(address), text(port));
                let (inside, outside) = (side("inside", "inside_port"), side("outside", "outside_port"));
                format!("NAT mapping {what}: {} {inside} as {outside}", text("protocol"))
            }
            "nat-block-allocated" | "nat-block-freed" => {
                let what = if self.event == "nat-block-allocated" { "allocated" } else { "freed" };
                let ports = format!("{} to {}", text("first_port"), text("last_port"));
                format!("NAT port block {what}: {} as {} ports {ports}", text("inside"), text("outside"))
            }
            _ => match self.field("rule") {
                Some(rule) => format!("{} records of rule {rule} left out", text("count")),
                None => format!("{} {} records left out", text("count"), text("of")),
            },
        }
    }

    /// Renders as one line of JSON, without newline.
    pub fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("timestamp".to_owned(), self.time().into());
        object.insert("level".to_owned(), self.level.name().into());
        object.insert("event".to_owned(), self.event.into());
        for (key, value) in &self.fields {
            object.insert((*key).to_owned(), value.clone());
        }
        object.insert("message".to_owned(), self.message().into());
        Value::Object(object).to_string()
    }

    /// Renders as one line of text, without newline.
    pub fn text(&self) -> String {
        let mut text = format!("{} {:>5} {}", self.time(), self.level.name(), self.message());
        for (key, value) in &self.fields {
            let _ = write!(text, " {key}={value}");
        }
        text
    }

    /// Returns the value of a field, as text.
    pub fn field(&self, key: &str) -> Option<String> {
        self.fields.iter().find(|(known, _)| *known == key).map(|(_, value)| plain(value))
    }
}

/// Renders a value as text: strings without quotes.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Renders a time as UTC, to the microsecond.
pub fn time_text(at: SystemTime) -> String {
    humantime::format_rfc3339_micros(at).to_string()
}

#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push((key, value.into()));
    }

    fn some(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn interface(&mut self, key: &'static str, id: Option<PortId>, tables: &Tables) {
        let name = |id| match id {
            LOCAL => Some(SELF_ZONE),
            OTHER => Some(OTHER_ZONE),
            _ => tables.interface(id).map(|own| own.name.as_str()),
        };
        self.some(key, id.and_then(name));
    }

    fn ends(&mut self, ends: &Ends) {
        self.put("protocol", protocol_name(ends.protocol));
        self.put("source", ends.source.to_string());
        if has_ports(ends.protocol) {
            self.put("sport", ends.sport);
        }
        self.put("destination", ends.destination.to_string());
        if has_ports(ends.protocol) {
            self.put("dport", ends.dport);
        }
    }
}

fn has_ports(protocol: u8) -> bool {
    wire::header::Protocol(protocol).has_ports()
}

fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, 1 | 58)
}

fn rule_hit(hit: &RuleHit, tables: &Tables, fields: &mut Fields) {
    fields.some("rule", tables.filter.rules.get(hit.rule as usize).map(|rule| rule.name.as_str()));
    let verdict = Verdict::of_fate(hit.fate);
    fields.put(
        "verdict",
        match verdict {
            Some(Verdict::Dropped(_)) => "dropped",
            Some(Verdict::Answered(_)) => "rejected",
            _ => "accepted",
        },
    );
    fields.some("reason", verdict.and_then(Verdict::reason).map(|reason| reason.name()));
    fields.interface("in", Some(hit.ingress), tables);
    fields.interface("out", Some(hit.egress), tables);
    let zone = |place: u8| tables.zones.get(usize::from(place)).map(String::as_str);
    fields.some("from", zone(hit.zones[0]));
    fields.some("to", zone(hit.zones[1]));
    fields.ends(&hit.ends);
    if is_icmp(hit.ends.protocol) {
        fields.put("icmp_type", hit.ends.dport >> 8);
        fields.put("icmp_code", hit.ends.dport & 0xff);
    }
    if hit.ends.protocol == 6 {
        fields.put("tcp_flags", tcp_flags(hit.tcp_flags));
    }
    fields.put("bytes", hit.bytes);
}

fn tcp_flags(bits: u8) -> String {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let set = NAMES.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn connection(of: &Connection, tables: &Tables, fields: &mut Fields) {
    fields.ends(&of.original);
    let protocol = of.original.protocol;
    if is_icmp(protocol) {
        fields.put("icmp_id", of.original.sport);
    }
    if let (Some(call), Some(reply)) = (of.original.call(), of.reply.call()) {
        fields.put("call_id", call);
        fields.put("reply_call_id", reply);
    }
    let is_call = of.original.call().is_some();
    // Of connections that are not translated it is the same again.
    if of.reply.source != of.original.destination || !is_call && of.reply.sport != of.original.dport {
        fields.put("reached", of.reply.source.to_string());
        if has_ports(protocol) {
            fields.put("reached_port", of.reply.sport);
        }
    }
    if of.reply.destination != of.original.source || !is_call && of.reply.dport != of.original.sport {
        fields.put("seen_as", of.reply.destination.to_string());
        let key = if is_icmp(protocol) { "seen_id" } else { "seen_port" };
        if !is_call {
            fields.put(key, of.reply.dport);
        }
    }
    let name =
        |number, found: Option<&str>| (number != NO_NUMBER).then(|| found.unwrap_or("gone").to_owned());
    let (dnat, snat) = (tables.destination_numbered(of.dnat), tables.source_numbered(of.snat));
    let dnat = dnat.and_then(|place| tables.nat.destinations.get(usize::from(place)));
    let snat = snat.and_then(|place| tables.nat.sources.get(usize::from(place)));
    let names: Vec<String> =
        [name(of.dnat, dnat.map(|nat| nat.name.as_str())), name(of.snat, snat.map(|nat| nat.name.as_str()))]
            .into_iter()
            .flatten()
            .collect();
    if !names.is_empty() {
        fields.put("nat", json!(names));
    }
}

fn mapped(mapping: &Mapped, tables: &Tables, fields: &mut Fields) {
    source_nat(mapping.pool, tables, fields);
    fields.put("protocol", protocol_name(mapping.inside.protocol));
    fields.put("inside", mapping.inside.ip().to_string());
    fields.put("inside_port", mapping.inside.port);
    fields.put("outside", mapping.outside.ip().to_string());
    fields.put("outside_port", mapping.outside.port);
}

fn port_block(block: &PortBlock, tables: &Tables, fields: &mut Fields) {
    source_nat(block.pool.map(|pool| pool.0), tables, fields);
    fields.put("inside", block.inside.to_string());
    fields.put("outside", block.outside.to_string());
    fields.put("first_port", block.ports.first);
    fields.put("last_port", block.ports.last);
}

/// Name of the source translation that a pool is of.
fn source_nat(pool: Option<u16>, tables: &Tables, fields: &mut Fields) {
    let owner = pool.and_then(|pool| tables.nat.owners.get(usize::from(pool)));
    let nat = owner.and_then(|owner| tables.nat.sources.get(usize::from(owner.source)));
    fields.some("nat", nat.map(|nat| nat.name.as_str()));
}

fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Timeout => "timeout",
        Cause::Killed => "killed",
        Cause::Evicted => "evicted",
        Cause::Revoked => "revoked",
    }
}
