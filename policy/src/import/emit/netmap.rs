//! Networks translated to others of their size, address by address (`NETMAP`).

use ipnet::IpNet;

use super::Emit;
use crate::import::chain::Entry;
use crate::import::cond::{Cond, STATES};
use crate::import::member::Side;
use crate::import::note::{NoteKind, Why};
use crate::model::{Addresses, Hairpin, Nat, NatAction};

impl Emit {
    /// Makes a one-to-one translation of a rule that puts the network `to` in the place of another one, at either end of packets. Rules for both
    /// directions become one.
    pub(super) fn one_to_one(&mut self, entry: &Entry, side: Side, to: IpNet) -> Result<(), Why> {
        let cond = &entry.cond;
        let (place, other, interfaces) = match side {
            Side::Source => (&cond.source, &cond.destination, &cond.outward),
            Side::Destination => (&cond.destination, &cond.source, &cond.inward),
        };
        let (source, destination) = (cond.source.clone(), cond.destination.clone());
        let plain = match side {
            Side::Source => Cond { outward: cond.outward.clone(), source, destination, ..Cond::default() },
            Side::Destination => Cond { inward: cond.inward.clone(), source, destination, ..Cond::default() },
        };
        let is_plain = (Cond { states: STATES, ..cond.clone() }) == plain && other.is_whole();
        if !is_plain || entry.limit.is_some() || entry.log {
            return Err(Why::NatCondition);
        }
        let network = match place.ranges().as_slice() {
            [range] => range.network().filter(|network| network.prefix_len() == to.prefix_len()),
            _ => None,
        };
        let network = network.ok_or(Why::NatTarget)?;
        let (outside, inside) = match side {
            Side::Source => (to, network),
            Side::Destination => (network, to),
        };
        let (action, from) =
            (NatAction::OneToOne { outside, inside, hairpin: Hairpin::Off }, self.zones(interfaces));
        self.note(None, NoteKind::BothWays);
        if !self.import.policy.nats.iter().any(|nat| nat.action == action && nat.from == from) {
            let label =
                entry.rule.map_or("nat-policy", |rule| &self.found.program.rules[rule].label).to_owned();
            self.import.policy.nats.push(Nat {
                name: self.names.name(&label),
                from,
                to: Vec::new(),
                source: Addresses::default(),
                destination: Addresses::default(),
                protocols: Vec::new(),
                sports: Vec::new(),
                dports: Vec::new(),
                action,
            });
        }
        self.translated(entry.rule);
        Ok(())
    }
}
