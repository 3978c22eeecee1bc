//! Translations.

use super::Emit;
use crate::import::chain::{Entry, Verdict, What, write_out};
use crate::import::cond::{Cond, Place, STATES};
use crate::import::conditions::{port_ranges, protocols, sound};
use crate::import::member::Side;
use crate::import::note::{NoteKind, Why};
use crate::model::{AddressItem, Addresses, Balance, Hairpin, Nat, NatAction, PortRange};

/// Most translations made of one rule with one inside port for many outside ports.
const MOST_PORTS: usize = 256;

impl Emit {
    pub(super) fn translations(&mut self) {
        let post = write_out(&self.found.program, &self.found.postrouting, None);
        let pre = write_out(&self.found.program, &self.found.prerouting, None);
        self.cut |= post.cut || pre.cut;
        self.lead(&post);
        self.lead(&pre);
        let (post, pre) = (post.entries, pre.entries);
        // Interfaces that a source translation leads out by are outside ones.
        let outside: Vec<u16> = post
            .iter()
            .filter(|entry| matches!(entry.what, What::Do(Verdict::Translate(_))))
            .filter_map(|entry| entry.cond.outward.clone())
            .flatten()
            .collect();
        for index in 0..pre.len() {
            if let Err(why) = self.forward(&pre, index, &outside) {
                self.miss(pre[index].rule, why);
            }
        }
        for index in 0..post.len() {
            if let Err(why) = self.masquerade(&post, index) {
                self.miss(post[index].rule, why);
            }
        }
    }

    fn forward(&mut self, entries: &[Entry], index: usize, outside: &[u16]) -> Result<(), Why> {
        let entry = &entries[index];
        let action = match &entry.what {
            What::Hole(why) => return Err(why.clone()),
            What::Do(Verdict::Translate(action)) => action,
            What::Do(Verdict::Accept) if self.is_exception(entries, index) => return Err(Why::NatException),
            What::Do(Verdict::Accept | Verdict::Continue) if !entry.log => return Ok(()),
            What::Do(Verdict::Add(_)) => {
                return Err(Why::Feature("an addition to a set in a nat chain".to_owned()));
            }
            What::Do(_) if entry.log => return Err(Why::Log),
            What::Do(_) => return Err(Why::Feature("drop in a nat chain".to_owned())),
        };
        sound(&entry.cond)?;
        if let NatAction::OneToOne { inside, .. } = *action {
            return self.one_to_one(entry, Side::Destination, inside);
        }
        if !matches!(action, NatAction::Forward { .. } | NatAction::Redirect { .. } | NatAction::Balance(_)) {
            return Err(Why::Hook("prerouting".to_owned()));
        }
        if entry.limit.is_some() {
            return Err(Why::Limit);
        }
        let cond = &entry.cond;
        let plain = Cond {
            inward: None,
            source: cond.source.clone(),
            destination: cond.destination.clone(),
            members: cond.members.clone(),
            protocols: cond.protocols,
            dports: cond.dports.clone(),
            to_gateway: cond.to_gateway,
            ..Cond::default()
        };
        if (Cond { inward: None, states: STATES, ..cond.clone() }) != plain {
            return Err(Why::NatCondition);
        }
        if let NatAction::Redirect { to_port, .. } = *action {
            return self.redirect(entry, to_port);
        }
        let (has_port, inside): (bool, &[PortRange]) = match action {
            NatAction::Forward { target_port, ports, .. } => (target_port.is_some(), ports),
            NatAction::Balance(balance) => (balance.servers.iter().any(|server| server.port.is_some()), &[]),
            _ => return Err(Why::NatTarget),
        };
        let to = cond.destination.ranges();
        let single = match to.as_slice() {
            [one] if one.first == one.last => Some(one.first),
            _ => None,
        };
        let outside_in = cond.inward.as_ref().is_some_and(|list| list.iter().all(|i| outside.contains(i)));
        let to_own = cond.to_gateway && cond.destination.is_whole();
        let is_to_members = cond.members.of(Side::Destination).next().is_some();
        if single.is_none() && !to_own {
            if is_to_members || !(cond.destination.is_whole() && outside_in) {
                return Err(Why::NatDestination);
            }
            self.note(self.origin(entry), NoteKind::OutsideAssumed);
        }
        let ports = port_ranges(&cond.dports);
        let hairpin = if cond.inward.is_some() { Hairpin::Off } else { Hairpin::On };
        // The source picks any port of its inside range, but keeps one that lies in it.
        let has_port = has_port && inside.is_empty();
        if !inside.is_empty() && *inside != *ports {
            return Err(Why::NatTarget);
        }
        let one = matches!(ports.as_slice(), [range] if range.first == range.last);
        let each: Vec<Vec<PortRange>> = if !has_port || one {
            vec![ports]
        } else if ports.is_empty() {
            return Err(Why::NatTarget);
        } else {
            // All lead to the one port: a translation for each, as the ports of one would count upwards.
            let all = ports.iter().map(|range| usize::from(range.last - range.first) + 1).sum::<usize>();
            if all > MOST_PORTS {
                return Err(Why::TooMany);
            }
            ports.iter().flat_map(|r| (r.first..=r.last).map(|p| vec![PortRange::single(p)])).collect()
        };
        let (v4, v6) = cond.families();
        let source = self.end(&cond.source, cond, Side::Source, v4, v6)?;
        let destination = match is_to_members {
            true => self.end(&Place::all(), cond, Side::Destination, v4, v6)?,
            false => Addresses::default(),
        };
        for ports in each {
            let action = match action {
                NatAction::Balance(balance) => {
                    NatAction::Balance(Balance { outside: single, ports, hairpin, ..balance.clone() })
                }
                NatAction::Forward { target, target_port, .. } => {
                    let target_port = target_port.filter(|_| has_port);
                    NatAction::Forward {
                        outside: single,
                        ports,
                        target: *target,
                        vrf: None,
                        target_port,
                        hairpin,
                    }
                }
                _ => return Err(Why::NatTarget),
            };
            self.nat(entry, action, source.clone(), destination.clone());
        }
        Ok(())
    }

    fn redirect(&mut self, entry: &Entry, to_port: Option<u16>) -> Result<(), Why> {
        let cond = &entry.cond;
        // Of a destination that is the gateway's own nothing else says which addresses those are.
        if cond.to_gateway {
            return Err(Why::NatDestination);
        }
        let (v4, v6) = cond.families();
        let source = self.end(&cond.source, cond, Side::Source, v4, v6)?;
        let destination = self.end(&cond.destination, cond, Side::Destination, v4, v6)?;
        let action = NatAction::Redirect { ports: port_ranges(&cond.dports), to_port };
        self.nat(entry, action, source, destination);
        Ok(())
    }

    fn is_exception(&mut self, entries: &[Entry], index: usize) -> bool {
        let cond = &entries[index].cond;
        entries[index + 1..].iter().any(|later| {
            self.tire(&later.cond);
            let translates = matches!(later.what, What::Do(Verdict::Translate(_)));
            translates && (self.patience == 0 || cond.meets(&later.cond))
        })
    }

    fn masquerade(&mut self, entries: &[Entry], index: usize) -> Result<(), Why> {
        let entry = &entries[index];
        let action = match &entry.what {
            What::Hole(why) => return Err(why.clone()),
            What::Do(Verdict::Accept) if !self.is_exception(entries, index) => return Ok(()),
            What::Do(Verdict::Accept) => NatAction::Exempt,
            What::Do(Verdict::Translate(
                NatAction::Forward { .. } | NatAction::Redirect { .. } | NatAction::Balance(_),
            )) => {
                return Err(Why::Hook("postrouting".to_owned()));
            }
            What::Do(Verdict::Translate(NatAction::OneToOne { outside, .. })) => {
                return self.one_to_one(entry, Side::Source, *outside);
            }
            What::Do(Verdict::Translate(action)) => action.clone(),
            What::Do(Verdict::Clamp(mss)) => {
                self.clamp(entry, *mss);
                return Ok(());
            }
            What::Do(Verdict::Add(_)) => {
                return Err(Why::Feature("an addition to a set in a nat chain".to_owned()));
            }
            What::Do(Verdict::Mark(_)) => {
                return Err(Why::Feature("a change of the DSCP in a nat chain".to_owned()));
            }
            What::Do(_) if entry.log => return Err(Why::Log),
            What::Do(Verdict::Continue) => return Ok(()),
            What::Do(_) => return Err(Why::Feature("drop in a nat chain".to_owned())),
        };
        if entry.limit.is_some() {
            return Err(Why::Limit);
        }
        let cond = &entry.cond;
        let plain = Cond {
            inward: cond.inward.clone(),
            outward: cond.outward.clone(),
            source: cond.source.clone(),
            destination: cond.destination.clone(),
            members: cond.members.clone(),
            protocols: cond.protocols,
            ..Cond::default()
        };
        if (Cond { states: STATES, ..cond.clone() }) != plain {
            return Err(Why::NatCondition);
        }
        let (v4, v6) = cond.families();
        let source = self.end(&cond.source, cond, Side::Source, v4, v6)?;
        let destination = self.end(&cond.destination, cond, Side::Destination, v4, v6)?;
        self.nat(entry, action, source, destination);
        Ok(())
    }

    fn nat(&mut self, entry: &Entry, action: NatAction, mut source: Addresses, destination: Addresses) {
        let cond = &entry.cond;
        let (v4, v6) = cond.families();
        let label = entry.rule.map_or("nat-policy", |rule| &self.found.program.rules[rule].label).to_owned();
        // A translation has no condition on the IP version: all addresses of that version say it, and so do those of the other one among
        // exceptions; those that are members of a set are of its version. A masquerade is of IPv6 only where it names sources of it.
        let masquerades6 = v6 && matches!(action, NatAction::Masquerade { .. });
        let excepts_members =
            |side, addresses: &Addresses| addresses.except && cond.members.of(side).next().is_some();
        if excepts_members(Side::Source, &source) && v4 != v6 {
            let other = if v4 { Place::v6() } else { Place::v4() };
            source.items.extend(other.ranges().into_iter().map(AddressItem::Range));
        }
        let is_open = destination.items.is_empty() || excepts_members(Side::Destination, &destination);
        if source.items.is_empty() && is_open && v4 != v6 || source.items.is_empty() && masquerades6 {
            let all = match (v4, v6) {
                (true, true) => Place::all(),
                (true, false) => Place::v4(),
                _ => Place::v6(),
            };
            source.items = all.ranges().into_iter().map(AddressItem::Range).collect();
        }
        let nat = Nat {
            name: self.names.name(&label),
            from: self.zones(&cond.inward),
            to: self.zones(&cond.outward),
            source,
            destination,
            protocols: protocols(cond),
            sports: Vec::new(),
            dports: Vec::new(),
            action,
        };
        self.import.policy.nats.push(nat);
        self.translated(entry.rule);
    }
}
