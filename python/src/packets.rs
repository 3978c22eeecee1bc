//! The table of packets: a row for each packet received.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{PrimitiveBuilder, StringBuilder};
use arrow_array::types::{
    DurationNanosecondType, Int8Type, Int16Type, Int32Type, TimestampNanosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use dataplane::tables::NatTables;
use dataplane::{Reason, Tables, Verdict};
use replay::fate::{Fate, PacketEnds};
use wire::header::Ports;

use crate::column::{Addresses, Names, names_field};

/// Names of verdicts; held packets have none of their own.
const VERDICTS: [&str; 5] = ["forwarded", "delivered", "answered", "dropped", "held"];

/// Rows of a batch.
pub(crate) struct Packets {
    schema: SchemaRef,
    number: PrimitiveBuilder<UInt64Type>,
    time: PrimitiveBuilder<TimestampNanosecondType>,
    ingress: Names<Int32Type>,
    egress: Names<Int32Type>,
    verdict: Names<Int8Type>,
    reason: Names<Int16Type>,
    rule: Names<Int32Type>,
    nat: Nats,
    class: Names<Int32Type>,
    family: PrimitiveBuilder<UInt8Type>,
    source: Addresses,
    destination: Addresses,
    protocol: PrimitiveBuilder<UInt8Type>,
    sport: PrimitiveBuilder<UInt16Type>,
    dport: PrimitiveBuilder<UInt16Type>,
    length: PrimitiveBuilder<UInt32Type>,
    flow: PrimitiveBuilder<UInt64Type>,
    departure: PrimitiveBuilder<TimestampNanosecondType>,
    delay: PrimitiveBuilder<DurationNanosecondType>,
}

/// Type of times: nanoseconds since 1970, in UTC.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// Columns of the table.
pub(crate) fn schema() -> SchemaRef {
    let plain = |name: &str, of, nullable| Field::new(name, of, nullable);
    Arc::new(Schema::new(vec![
        plain("number", DataType::UInt64, false),
        plain("time", time_type(), false),
        names_field("ingress", DataType::Int32, true),
        names_field("egress", DataType::Int32, true),
        names_field("verdict", DataType::Int8, false),
        names_field("reason", DataType::Int16, true),
        names_field("rule", DataType::Int32, true),
        names_field("nat", DataType::Int32, true),
        names_field("class", DataType::Int32, true),
        plain("family", DataType::UInt8, true),
        names_field("source", DataType::Int32, true),
        names_field("destination", DataType::Int32, true),
        plain("protocol", DataType::UInt8, true),
        plain("sport", DataType::UInt16, true),
        plain("dport", DataType::UInt16, true),
        plain("length", DataType::UInt32, false),
        plain("flow", DataType::UInt64, true),
        plain("departure", time_type(), true),
        plain("delay", DataType::Duration(TimeUnit::Nanosecond), true),
    ]))
}

impl Packets {
    /// No row yet.
    pub(crate) fn new(tables: &Tables) -> Packets {
        let interfaces = || tables.interfaces.iter().map(|interface| interface.name.as_str());
        let time = || PrimitiveBuilder::new().with_data_type(time_type());
        Packets {
            schema: schema(),
            number: PrimitiveBuilder::new(),
            time: time(),
            ingress: Names::new(interfaces()),
            egress: Names::new(interfaces()),
            verdict: Names::new(VERDICTS),
            reason: Names::new(Reason::ALL.iter().map(|entry| entry.name)),
            rule: Names::new(tables.filter.rules.iter().map(|rule| rule.name.as_str())),
            nat: Nats::new(),
            class: Names::new(tables.classes.list.iter().map(|class| class.name.as_str())),
            family: PrimitiveBuilder::new(),
            source: Addresses::new(),
            destination: Addresses::new(),
            protocol: PrimitiveBuilder::new(),
            sport: PrimitiveBuilder::new(),
            dport: PrimitiveBuilder::new(),
            length: PrimitiveBuilder::new(),
            flow: PrimitiveBuilder::new(),
            departure: time(),
            delay: PrimitiveBuilder::new(),
        }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.number.values_slice().len()
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, fate: &Fate, nat: &NatTables) {
        // Times in a capture are of this century.
        let nanos = |time: wire::Nanos| time.0 as i64;
        self.number.append_value(fate.number);
        self.time.append_value(nanos(fate.at));
        self.ingress.push(Some(fate.ingress.0.into()));
        self.egress.push(fate.egress.map(|egress| egress.0.into()));
        let verdict = match fate.verdict {
            Some(Verdict::Forwarded) => 0,
            Some(Verdict::Delivered) => 1,
            Some(Verdict::Answered(_)) => 2,
            Some(Verdict::Dropped(_)) => 3,
            Some(Verdict::Held(_)) | None => 4,
        };
        self.verdict.push(Some(verdict));
        self.reason.push(fate.verdict.and_then(Verdict::reason).map(|reason| reason as usize));
        self.rule.push(fate.rule.map(|rule| rule as usize));
        self.nat.push(fate.nat, nat);
        self.class.push(usize::from(fate.class).checked_sub(1));
        let ends = fate.ends;
        self.family.append_option(ends.map(|ends| if ends.source.is_ipv4() { 4 } else { 6 }));
        self.source.push(ends.map(|ends| ends.source));
        self.destination.push(ends.map(|ends| ends.destination));
        self.protocol.append_option(ends.map(|ends| ends.protocol.0));
        let ports = ends.and_then(|PacketEnds { ports, .. }| ports);
        self.sport.append_option(ports.map(|Ports { sport, .. }| sport));
        self.dport.append_option(ports.map(|Ports { dport, .. }| dport));
        self.length.append_value(fate.length);
        self.flow.append_option(fate.flow);
        self.departure.append_option(fate.departure.map(nanos));
        self.delay.append_option(fate.departure.map(|departure| nanos(departure) - nanos(fate.at)));
    }

    /// Takes the rows.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.number.finish()),
            Arc::new(self.time.finish()),
            self.ingress.finish()?,
            self.egress.finish()?,
            self.verdict.finish()?,
            self.reason.finish()?,
            self.rule.finish()?,
            self.nat.finish()?,
            self.class.finish()?,
            Arc::new(self.family.finish()),
            self.source.finish()?,
            self.destination.finish()?,
            Arc::new(self.protocol.finish()),
            Arc::new(self.sport.finish()),
            Arc::new(self.dport.finish()),
            Arc::new(self.length.finish()),
            Arc::new(self.flow.finish()),
            Arc::new(self.departure.finish()),
            Arc::new(self.delay.finish()),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

/// Column of translations: their names, joined by a comma where a packet has two.
struct Nats {
    keys: PrimitiveBuilder<Int32Type>,
    /// Keys by pair of translations, as far as there have been any.
    places: HashMap<u16, Option<i32>>,
    names: Vec<String>,
}

impl Nats {
    fn new() -> Nats {
        Nats { keys: PrimitiveBuilder::new(), places: HashMap::new(), names: Vec::new() }
    }

    fn push(&mut self, pair: u16, nat: &NatTables) {
        let Nats { keys, places, names } = self;
        if pair == 0 {
            return keys.append_null();
        }
        let place = places.entry(pair).or_insert_with(|| {
            let mut of_pair: Vec<&str> = nat.names(pair).collect();
            // A one-to-one translation turned back on itself is in a pair twice, and translates once.
            of_pair.dedup();
            (!of_pair.is_empty()).then(|| {
                names.push(of_pair.join(", "));
                names.len() as i32 - 1
            })
        });
        keys.append_option(*place);
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let mut names = StringBuilder::new();
        self.names.iter().for_each(|name| names.append_value(name));
        let names: Arc<dyn Array> = Arc::new(names.finish());
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(self.keys.finish(), names)?))
    }
}
