//! Items of a shard's state, as plain data.

use std::net::IpAddr;

use esp::Fingerprint;
use serde::{Deserialize, Serialize};
use wire::{Nanos, PortId};

use crate::flow::{Ends, FlowId, Handshake, State, Windows};
use crate::meter::Debts;
use crate::nat::Endpoint;
use crate::port_mapping::Holder;
use crate::tables::Address;

/// An item of a shard's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // nearly all items are flows: a box each would cost more than it saves
pub enum Item {
    /// A flow.
    Flow(FlowRecord),
    /// A token debt under a rate.
    Debt(DebtRecord),
    /// State of the gateway's own packets.
    Own(OwnRecord),
    /// Token debts of an instance of a meter.
    Meter(MeterRecord),
    /// Sequence numbers of a security association.
    Sa(SaRecord),
    /// An element of a dynamic set.
    Element(ElementRecord),
    /// An outside port that a host has asked for.
    PortMapping(PortMappingRecord),
}

impl Item {
    /// Returns the item after a span of time without packets.
    #[must_use]
    pub fn aged(self, by: Nanos) -> Item {
        let later = |span: Nanos| Nanos(span.0.saturating_add(by.0));
        let less = |debt: Nanos| Nanos(debt.0.saturating_sub(by.0));
        match self {
            Item::Flow(flow) => {
                Item::Flow(FlowRecord { idle: later(flow.idle), age: later(flow.age), ..flow })
            }
            Item::Debt(record) => Item::Debt(DebtRecord { debt: less(record.debt), ..record }),
            Item::Own(own) => Item::Own(OwnRecord { errors: less(own.errors), ..own }),
            Item::Sa(record) => Item::Sa(record),
            Item::Element(record) => Item::Element(ElementRecord { left: record.left.map(less), ..record }),
            Item::PortMapping(record) => {
                Item::PortMapping(PortMappingRecord { left: record.left.map(less), ..record })
            }
            Item::Meter(record) => Item::Meter(MeterRecord { debts: record.debts.aged(by), ..record }),
        }
    }
}

/// Sequence numbers of a security association. Nothing of its key can be told from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaRecord {
    /// Fingerprint of the key.
    pub fingerprint: [u8; Fingerprint::LEN],
    /// Use of the numbers.
    pub numbered: Numbered,
    /// Highest number used.
    pub last: u64,
}

/// Packets that sequence numbers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbered {
    /// Packets sent.
    Sent,
    /// Packets received.
    Received,
}

impl SaRecord {
    /// Returns the record for a gateway that takes the place of another one, which may have sent so many packets since.
    #[must_use]
    pub fn ahead(self, packets: u64) -> SaRecord {
        match self.numbered {
            Numbered::Sent => SaRecord { last: self.last.saturating_add(packets), ..self },
            Numbered::Received => self,
        }
    }
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Place in the flow table, until the flow ends.
    pub id: FlowId,
    /// Ends of packets in the first one's direction, as they arrive.
    pub original: Ends,
    /// Ends of packets in the reply direction, as they arrive.
    pub reply: Ends,
    /// The interface that its first packet came in by, [`LOCAL`](crate::tables::LOCAL) for the gateway itself,
    /// [`OTHER`](crate::tables::OTHER) where Linux forwards it; `None` if it is gone.
    pub ingress: Option<PortId>,
    /// Connection state.
    pub state: State,
    /// TCP windows of both sides.
    pub windows: Windows,
    /// Time since the last packet, to an eighth of a second.
    pub idle: Nanos,
    /// Time since the flow was set up, to an eighth of a second.
    pub age: Nanos,
    /// Standing before the tables of the export.
    pub standing: Standing,
    /// Rule that accepts the flow; `None` if a default does, or the flow is not validated.
    pub rule: Option<u32>,
    /// Destination translation, by place from 0.
    pub destination: Through,
    /// Source translation, by place from 0.
    pub source: Through,
    /// Mapping that translates the source.
    pub mapping: Option<MappingRecord>,
    /// Mapping by which the first packet was let in from outside.
    pub inward: Option<MappingRecord>,
    /// ICMP type << 8 | code of the first packet, which rules match.
    pub kind: u16,
    /// DS field of the first packet.
    pub ds_field: u8,
    /// TCP flags of the first packet.
    pub tcp_flags: u8,
    /// The interface that its first packet left by, if that is a WAN's.
    pub wan: Option<PortId>,
    /// Source MAC address of the first packet, if rules match MAC addresses.
    pub mac: Option<[u8; 6]>,
    /// Maker of the TCP handshake: the ends with one another, or the gateway (SYN proxy).
    pub handshake: Handshake,
}

/// Standing of a flow before tables: validated by them, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// The tables accept the flow.
    Validated,
    /// Earlier tables, or another shard's, accepted the flow; its next packet revalidates it.
    Waits,
}

/// A translation that a flow may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Through {
    /// No translation.
    None,
    /// The translation at a place, from 0.
    Nat(u16),
    /// A translation that the tables have no more.
    Gone,
}

/// A mapping of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingRecord {
    /// The source translation whose pool it is from, by place from 0, or [`OWN_ACCORD`](crate::tables::OWN_ACCORD); `None` if that, or its outside
    /// address, is gone.
    pub nat: Option<u16>,
    /// The inside end.
    pub inside: Endpoint,
    /// The outside end.
    pub outside: Endpoint,
}

/// An outside port that a host, or an operator for it, has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMappingRecord {
    /// The mapping.
    pub mapping: MappingRecord,
    /// Time until it is over; `None`: never.
    pub left: Option<Nanos>,
    /// Holder.
    pub holder: Holder,
}

/// The token debt under the rate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebtRecord {
    /// The rule, by place.
    pub rule: u32,
    /// The source that it is bounded for; `None` where that is the rule as a whole.
    pub source: Option<IpAddr>,
    /// Time until the bucket is full: as many may pass as the rate ever lets pass at once.
    pub debt: Nanos,
}

/// Token debts of an instance of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterRecord {
    /// The meter, by place; `None` if it is gone.
    pub meter: Option<u16>,
    /// Packets that the instance meters.
    pub subject: Subject,
    /// Debts.
    pub debts: Debts,
}

/// Packets of an instance of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subject {
    /// All, or those for which there is no other instance.
    All,
    /// Those of a flow.
    Flow {
        /// Ends of the flow, in its first packet's direction.
        ends: Ends,
        /// An interface of its conntrack zone; `None` where it has none.
        interface: Option<PortId>,
    },
    /// Those from a prefix.
    Source(Prefix),
    /// Those to a prefix.
    Destination(Prefix),
}

/// Addresses that are metered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The first of them.
    pub first: IpAddr,
    /// Number of bits that they have in common.
    pub bits: u8,
}

impl Prefix {
    /// True if the address is one of them.
    pub fn has(&self, address: IpAddr) -> bool {
        let masked = Address::from(address).prefix(self.bits, self.bits);
        address.is_ipv4() == self.first.is_ipv4() && masked == Address::from(self.first)
    }

    /// The address, where the prefix has no other.
    pub fn alone(&self) -> Option<IpAddr> {
        (self.bits == if self.first.is_ipv4() { 32 } else { 128 }).then_some(self.first)
    }
}

/// An element of a dynamic set that rules or requests have added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementRecord {
    /// The set, by place; `None` if it is gone.
    pub set: Option<u16>,
    /// Addresses of the element.
    pub prefix: Prefix,
    /// Time until the element is over; `None`: never.
    pub left: Option<Nanos>,
}

/// Removal of elements of a dynamic set by a request, for a second gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalRecord {
    /// The set, by place; `None` if it is gone.
    pub set: Option<u16>,
    /// Addresses of the element; `None`: all elements.
    pub prefix: Option<Prefix>,
}

/// State of the gateway's own packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnRecord {
    /// Identification of the next packet.
    pub next_id: u16,
    /// Token debt of errors and resets, as in [`DebtRecord::debt`].
    pub errors: Nanos,
}
