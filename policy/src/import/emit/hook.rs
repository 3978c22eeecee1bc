//! Hooks without a place in a policy: filters before and after routing, and the gateway's own packets.

use std::collections::BTreeSet;

use super::{Emit, Translation};
use crate::import::chain::{Base, Entry, Listing, Verdict, What, write_out};
use crate::import::cond::{Cond, Place, ports};
use crate::import::note::{NoteKind, Why};
use crate::import::{IpVersion, Untranslated};
use crate::model::{AddressRange, NatAction};

impl Emit {
    /// Prepends filters before routing to those of input and forward, and appends filters after routing to the latter. Filters
    /// that only accept are left out.
    pub(super) fn around(&mut self) {
        let early: Vec<(Base, Translation)> = std::mem::take(&mut self.found.early);
        let bases: Vec<Base> = early.iter().map(|&(base, _)| base).collect();
        if !is_idle(&write_out(&self.found.program, &bases, None)) {
            let translations = write_out(&self.found.program, &self.found.prerouting, None).entries;
            for &(base, translation) in &early {
                let later = if translation == Translation::Before { &translations[..] } else { &[] };
                self.guard(base, later);
                let reached = self.reached(base.chain);
                self.early.extend(reached);
            }
            self.found.input.splice(0..0, bases.clone());
            self.found.forward.splice(0..0, bases);
        }
        let late: Vec<Base> = std::mem::take(&mut self.found.late);
        let listing = write_out(&self.found.program, &late, None);
        if !is_idle(&listing) {
            let refuses = |entry: &Entry| matches!(entry.what, What::Do(Verdict::Drop | Verdict::Reject(_)));
            if listing.entries.iter().any(refuses) || late.iter().any(|base| base.drops) {
                self.note(None, NoteKind::OwnPackets { hook: "postrouting".to_owned() });
            }
            self.found.forward.extend(late);
        }
    }

    /// Removes what a rule before routing cannot express here: limits, which two lists would have to share, and destinations
    /// that one of `translations` changes afterwards.
    fn guard(&mut self, base: Base, translations: &[Entry]) {
        for rule in self.reached(base.chain) {
            let source = &mut self.found.program.rules[rule];
            let Ok(body) = &source.body else { continue };
            let moved = body
                .ways
                .iter()
                .any(|(cond, _)| cond.is_aimed() && translations.iter().any(|entry| is_moved(cond, entry)));
            let logs = body.ways.iter().all(|(_, verdict)| *verdict == Verdict::Continue);
            if body.limit.is_some() && !logs {
                source.body = Err(Why::Limit);
            } else if moved && (body.log || body.has_effects() || !logs) {
                source.body = Err(Why::Hook("prerouting".to_owned()));
            }
        }
    }

    /// Returns the rules of a chain, and of the chains reached from it.
    fn reached(&self, chain: usize) -> BTreeSet<usize> {
        let program = &self.found.program;
        let (mut chains, mut rules) = (BTreeSet::from([chain]), BTreeSet::new());
        let mut open = vec![chain];
        while let Some(chain) = open.pop() {
            for &rule in program.chains.get(chain).into_iter().flatten() {
                rules.insert(rule);
                let ways = program.rules[rule].body.iter().flat_map(|body| &body.ways);
                for (_, verdict) in ways {
                    if let Verdict::Jump(next) | Verdict::Goto(next) = *verdict {
                        if chains.insert(next) {
                            open.push(next);
                        }
                    }
                }
            }
        }
        rules
    }

    /// Reports the gateway's own packets, which bypass the rules here: if the source refuses or changes any, one line reports all
    /// rules of the hook.
    pub(super) fn own(&mut self) {
        for (hook, bases) in std::mem::take(&mut self.found.own) {
            let mut listing = write_out(&self.found.program, &bases, None);
            // None of these packets came in a frame.
            listing.entries.retain(|entry| entry.cond.source_macs.is_none());
            self.cut |= listing.cut;
            let rules: BTreeSet<usize> = bases.iter().flat_map(|base| self.reached(base.chain)).collect();
            let rules: Vec<usize> = rules.into_iter().filter(|&rule| !self.fates[rule].translated).collect();
            if bases.iter().any(|base| base.drops) {
                self.note(None, NoteKind::OwnPackets { hook: hook.clone() });
            }
            let Some(&first) = rules.first().filter(|_| !is_idle(&listing)) else { continue };
            for &rule in &rules {
                self.fates[rule].missing = true;
            }
            self.import.untranslated.push(Untranslated {
                origin: self.found.program.rules[first].origin,
                text: format!("{} at `{hook}`", counted(rules.len())),
                why: Why::OwnPackets,
                before: None,
            });
        }
    }
}

/// True if a translation may move packets out of a condition's destinations, or into them.
fn is_moved(cond: &Cond, entry: &Entry) -> bool {
    match &entry.what {
        // What is missing translates nothing here.
        What::Hole(_) => false,
        What::Do(Verdict::Translate(NatAction::Forward { target, target_port, ports: inside, .. })) => {
            let dports = match target_port {
                Some(_) if !inside.is_empty() => ports(inside.iter().map(|range| (range.first, range.last))),
                Some(port) => ports([(*port, *port)]),
                None => entry.cond.dports.clone(),
            };
            let target = Place::of(&[AddressRange { first: *target, last: *target }]);
            let after = Cond { destination: target, dports, to_gateway: false, ..entry.cond.clone() };
            cond.meets(&entry.cond) || cond.meets(&after)
        }
        What::Do(verdict) => matches!(verdict, Verdict::Translate(_)),
    }
}

/// True if the hook only accepts.
fn is_idle(listing: &Listing) -> bool {
    let idle = |what: &What| matches!(what, What::Do(Verdict::Accept | Verdict::Continue));
    // A list that decides every packet by accepting it ends in a drop that none comes to.
    let accepted = |version: IpVersion| {
        let accepts = |entry: &Entry| entry.what == What::Do(Verdict::Accept) && entry.limit.is_none();
        listing.entries.iter().any(|entry| accepts(entry) && Cond::of(version).is_within(&entry.cond))
    };
    let falls = listing.drops && !(accepted(IpVersion::V4) && accepted(IpVersion::V6));
    listing.entries.iter().all(|entry| idle(&entry.what) && !entry.log) && !falls
}

fn counted(rules: usize) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}
