//! The table of flows: a row for each connection that was tracked.

use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::types::{Int8Type, Int32Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use dataplane::Tables;
use dataplane::accounting::{End, FlowReport};
use dataplane::flow::{Direction, Ends};

use crate::column::{Addresses, Names, names_field};
use crate::packets::time_type;

/// Causes of the end of a flow, in the order of [`cause`].
const CAUSES: [&str; 5] = ["idle", "closed", "ended", "evicted", "live"];

/// Rows of a batch.
pub(crate) struct Flows {
    schema: SchemaRef,
    flow: PrimitiveBuilder<UInt64Type>,
    first: PrimitiveBuilder<TimestampNanosecondType>,
    last: PrimitiveBuilder<TimestampNanosecondType>,
    ingress: Names<Int32Type>,
    egress: Names<Int32Type>,
    end: Names<Int8Type>,
    dnat: Names<Int32Type>,
    snat: Names<Int32Type>,
    protocol: PrimitiveBuilder<UInt8Type>,
    original: Columns,
    reply: Columns,
}

/// Ends and counts of one direction.
struct Columns {
    source: Addresses,
    destination: Addresses,
    sport: PrimitiveBuilder<UInt16Type>,
    dport: PrimitiveBuilder<UInt16Type>,
    packets: PrimitiveBuilder<UInt64Type>,
    bytes: PrimitiveBuilder<UInt64Type>,
}

/// Columns of the table.
pub(crate) fn schema() -> SchemaRef {
    let mut fields = vec![
        Field::new("flow", DataType::UInt64, false),
        Field::new("first", time_type(), false),
        Field::new("last", time_type(), false),
        names_field("ingress", DataType::Int32, true),
        names_field("egress", DataType::Int32, true),
        names_field("end", DataType::Int8, false),
        names_field("dnat", DataType::Int32, true),
        names_field("snat", DataType::Int32, true),
        Field::new("protocol", DataType::UInt8, false),
    ];
    for prefix in ["", "reply_"] {
        let name = |column: &str| format!("{prefix}{column}");
        fields.extend([
            names_field(&name("source"), DataType::Int32, false),
            names_field(&name("destination"), DataType::Int32, false),
            Field::new(name("sport"), DataType::UInt16, true),
            Field::new(name("dport"), DataType::UInt16, true),
            Field::new(name("packets"), DataType::UInt64, false),
            Field::new(name("bytes"), DataType::UInt64, false),
        ]);
    }
    Arc::new(Schema::new(fields))
}

impl Flows {
    /// No row yet.
    pub(crate) fn new(tables: &Tables) -> Flows {
        let interfaces = || tables.interfaces.iter().map(|interface| interface.name.as_str());
        let time = || PrimitiveBuilder::new().with_data_type(time_type());
        Flows {
            schema: schema(),
            flow: PrimitiveBuilder::new(),
            first: time(),
            last: time(),
            ingress: Names::new(interfaces()),
            egress: Names::new(interfaces()),
            end: Names::new(CAUSES),
            dnat: Names::new(tables.nat.destinations.iter().map(|rule| rule.name.as_str())),
            snat: Names::new(tables.nat.sources.iter().map(|rule| rule.name.as_str())),
            protocol: PrimitiveBuilder::new(),
            original: Columns::new(),
            reply: Columns::new(),
        }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.protocol.values_slice().len()
    }

    /// Adds a row; `flow` is the number of the packet that opened it, `end` the place among [`CAUSES`].
    pub(crate) fn push(&mut self, report: &FlowReport, flow: u64, end: usize, tables: &Tables) {
        self.flow.append_value(flow);
        let FlowReport { connection, egress, counts, .. } = report;
        let both = [Direction::Original, Direction::Reply].map(|direction| counts.of(direction));
        let counted = || both.iter().filter(|count| count.packets > 0);
        let first = counted().map(|count| count.first()).min().unwrap_or_default();
        let last = counted().map(|count| count.last()).max().unwrap_or_default();
        self.first.append_value(first.0 as i64);
        self.last.append_value(last.0 as i64);
        let ingress = tables.interface_numbered(connection.ingress);
        self.ingress.push(ingress.map(|ingress| ingress.0.into()));
        self.egress.push(egress.map(|egress| egress.0.into()));
        self.end.push(Some(end));
        self.dnat.push(tables.destination_numbered(connection.dnat).map(usize::from));
        self.snat.push(tables.source_numbered(connection.snat).map(usize::from));
        self.protocol.append_value(connection.original.protocol);
        let [there, back] = both;
        self.original.push(&connection.original, there.packets, there.bytes);
        self.reply.push(&connection.reply, back.packets, back.bytes);
    }

    /// Takes the rows.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.flow.finish()),
            Arc::new(self.first.finish()),
            Arc::new(self.last.finish()),
            self.ingress.finish()?,
            self.egress.finish()?,
            self.end.finish()?,
            self.dnat.finish()?,
            self.snat.finish()?,
            Arc::new(self.protocol.finish()),
        ];
        columns.extend(self.original.finish()?);
        columns.extend(self.reply.finish()?);
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

impl Columns {
    fn new() -> Columns {
        Columns {
            source: Addresses::new(),
            destination: Addresses::new(),
            sport: PrimitiveBuilder::new(),
            dport: PrimitiveBuilder::new(),
            packets: PrimitiveBuilder::new(),
            bytes: PrimitiveBuilder::new(),
        }
    }

    fn push(&mut self, ends: &Ends, packets: u64, bytes: u64) {
        self.source.push(Some(ends.source));
        self.destination.push(Some(ends.destination));
        let ports = ends.ports();
        self.sport.append_option(ports.map(|_| ends.sport));
        self.dport.append_option(ports.map(|_| ends.dport));
        self.packets.append_value(packets);
        self.bytes.append_value(bytes);
    }

    fn finish(&mut self) -> Result<[ArrayRef; 6], ArrowError> {
        Ok([
            self.source.finish()?,
            self.destination.finish()?,
            Arc::new(self.sport.finish()),
            Arc::new(self.dport.finish()),
            Arc::new(self.packets.finish()),
            Arc::new(self.bytes.finish()),
        ])
    }
}

/// Place of the cause of the end of a flow among its names.
pub(crate) fn cause(end: End) -> usize {
    match end {
        End::Idle => 0,
        End::Closed => 1,
        End::Forced => 2,
        End::Evicted => 3,
        End::Active => LIVE,
    }
}

/// Place of the name of flows that are live at the end.
pub(crate) const LIVE: usize = 4;
