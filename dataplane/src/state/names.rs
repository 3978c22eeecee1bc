//! Places of items in other tables, by name.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use wire::PortId;

use super::{
    DebtRecord, ElementRecord, FlowRecord, Item, MappingRecord, MeterRecord, PortMappingRecord, Standing,
    Subject, Through,
};
use crate::tables::{OWN_ACCORD, Tables, is_linux};

/// Names to which items refer, in the order of their places in tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Interfaces.
    pub interfaces: Vec<String>,
    /// Rules.
    pub rules: Vec<String>,
    /// Destination translations.
    pub destinations: Vec<String>,
    /// Source translations.
    pub sources: Vec<String>,
    /// Meters.
    pub meters: Vec<String>,
    /// Dynamic sets.
    pub sets: Vec<String>,
}

/// Translation of places in some tables to places in others, by name.
#[derive(Clone, Debug)]
pub struct Places {
    interfaces: Vec<Option<u16>>,
    rules: Vec<Option<u32>>,
    destinations: Vec<Option<u16>>,
    sources: Vec<Option<u16>>,
    meters: Vec<Option<u16>>,
    sets: Vec<Option<u16>>,
}

impl Names {
    /// Returns the names of tables.
    pub fn of(tables: &Tables) -> Names {
        Names {
            interfaces: tables.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            rules: tables.filter.rules.iter().map(|rule| rule.name.clone()).collect(),
            destinations: tables.nat.destinations.iter().map(|nat| nat.name.clone()).collect(),
            sources: tables.nat.sources.iter().map(|nat| nat.name.clone()).collect(),
            meters: tables.classes.meters.iter().map(|meter| meter.name.clone()).collect(),
            sets: tables.sets.iter().map(|set| set.name.clone()).collect(),
        }
    }

    /// Returns the places of the names in tables.
    pub fn places_in(&self, tables: &Tables) -> Places {
        let there = Names::of(tables);
        Places {
            interfaces: places(&self.interfaces, &there.interfaces),
            rules: places(&self.rules, &there.rules),
            destinations: places(&self.destinations, &there.destinations),
            sources: places(&self.sources, &there.sources),
            meters: places(&self.meters, &there.meters),
            sets: places(&self.sets, &there.sets),
        }
    }
}

/// The place of each name in another list.
fn places<P: TryFrom<usize>>(names: &[String], there: &[String]) -> Vec<Option<P>> {
    let known: HashMap<&str, usize> =
        there.iter().zip(0..).map(|(name, place)| (name.as_str(), place)).collect();
    names.iter().map(|name| P::try_from(*known.get(name.as_str())?).ok()).collect()
}

impl Places {
    /// The same item for those other tables; what they do not have is gone. An item that is all gone is refused when it is
    /// taken in.
    #[must_use]
    pub fn moved(&self, item: &Item) -> Item {
        match item {
            Item::Flow(flow) => Item::Flow(self.moved_flow(flow)),
            Item::Debt(debt) => {
                let rule = self.rules.get(debt.rule as usize).copied().flatten();
                Item::Debt(DebtRecord { rule: rule.unwrap_or(u32::MAX), ..*debt })
            }
            Item::Own(own) => Item::Own(*own),
            Item::Meter(record) => Item::Meter(self.moved_meter(record)),
            Item::Element(record) => {
                Item::Element(ElementRecord { set: self.moved_set(record.set), ..*record })
            }
            Item::PortMapping(record) => {
                let mapping = self.moved_mapping(record.mapping);
                Item::PortMapping(PortMappingRecord { mapping, ..*record })
            }
            // Known by its key, whatever it is called.
            Item::Sa(record) => Item::Sa(*record),
        }
    }

    /// Place of a dynamic set in those other tables.
    #[must_use]
    pub fn moved_set(&self, set: Option<u16>) -> Option<u16> {
        self.sets.get(usize::from(set?)).copied().flatten()
    }

    fn moved_meter(&self, record: &MeterRecord) -> MeterRecord {
        let meter = record.meter.and_then(|meter| self.meters.get(usize::from(meter)).copied().flatten());
        match record.subject {
            Subject::Flow { ends, interface: Some(PortId(id)) } => {
                let interface = self.interfaces.get(usize::from(id)).copied().flatten().map(PortId);
                // What came by an interface that is gone is no packet's any more.
                let meter = meter.filter(|_| interface.is_some());
                MeterRecord { meter, subject: Subject::Flow { ends, interface }, ..*record }
            }
            _ => MeterRecord { meter, ..*record },
        }
    }

    fn moved_mapping(&self, mapping: MappingRecord) -> MappingRecord {
        let nat = mapping.nat.and_then(|nat| match nat {
            OWN_ACCORD => Some(OWN_ACCORD),
            nat => self.sources.get(usize::from(nat)).copied().flatten(),
        });
        MappingRecord { nat, ..mapping }
    }

    fn moved_flow(&self, flow: &FlowRecord) -> FlowRecord {
        let place = |list: &[Option<u16>], place: u16| list.get(usize::from(place)).copied().flatten();
        let through = |list, through| match through {
            Through::Nat(at) => place(list, at).map_or(Through::Gone, Through::Nat),
            other => other,
        };
        let mapping = |mapping| self.moved_mapping(mapping);
        let interface =
            |id: PortId| if is_linux(id) { Some(id) } else { place(&self.interfaces, id.0).map(PortId) };
        FlowRecord {
            ingress: flow.ingress.and_then(interface),
            wan: flow.wan.and_then(interface),
            standing: Standing::Waits,
            rule: flow.rule.and_then(|rule| self.rules.get(rule as usize).copied().flatten()),
            destination: through(&self.destinations, flow.destination),
            source: through(&self.sources, flow.source),
            mapping: flow.mapping.map(mapping),
            inward: flow.inward.map(mapping),
            ..*flow
        }
    }
}
