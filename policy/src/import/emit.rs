//! Translation of hooks, written out as lists, to a policy: rules, defaults, translations, interfaces, and the account of
//! each rule of the source.

use std::collections::BTreeSet;

use super::chain::{Base, Bound, Entry, Listing, Program, Verdict, What, write_out, write_out_for};
use super::cond::{Cond, ESTABLISHED, INVALID, NEW, Place, RELATED, STATES};
use super::conditions::{self, families, of_versions, sound};
use super::member::Side;
use super::name::{Unique, valid};
use super::note::{Note, NoteKind, Origin, Why};
use super::{Count, Import, IpVersion, MOST_RULES, Untranslated};
use crate::model::{
    ANY_ZONE, Action, AddressItem, Addresses, Conditions, Interface, Logging, Mode, MssClamp, OTHER_ZONE,
    Rule, SELF_ZONE, Set, State, SynAnswer, ZoneDefault,
};

mod answer;
mod assignment;
mod dynamic_set;
mod hook;
mod limit;
mod mark;
mod nat;
mod netmap;

use answer::Way;
use assignment::{Assignments, Decision};
pub(super) use dynamic_set::FoundSet;

/// Hooks, interfaces and sets found by an importer, before they are written out.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) program: Program,
    /// Interfaces named by rules, without the loopback.
    pub(super) interfaces: Vec<String>,
    pub(super) sets: Vec<Set>,
    /// Sets whose elements come and go, by their names in the policy.
    pub(super) dynamic_sets: Vec<FoundSet>,
    pub(super) input: Vec<Base>,
    pub(super) forward: Vec<Base>,
    pub(super) prerouting: Vec<Base>,
    pub(super) postrouting: Vec<Base>,
    /// Chains that filter before routing, each before or after destination translation.
    pub(super) early: Vec<(Base, Translation)>,
    /// Chains that filter after routing, before source translation.
    pub(super) late: Vec<Base>,
    /// Hooks of the gateway's own packets.
    pub(super) own: Vec<(String, Vec<Base>)>,
    /// Hooks without a counterpart, with their names.
    pub(super) foreign: Vec<(String, Vec<Base>)>,
    pub(super) notes: BTreeSet<Note>,
    /// True if any rule matches on connection state.
    pub(super) stateful: bool,
    /// IP version that the source does not mention.
    pub(super) silent: Option<IpVersion>,
}

/// Order of a chain and destination translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Translation {
    Before,
    After,
}

/// Converts an importer's findings to a policy.
pub(super) fn emit(found: Found) -> Import {
    let mut emit = Emit::new(found);
    emit.around();
    emit.filter();
    emit.translations();
    emit.foreign();
    emit.own();
    emit.close()
}

struct Emit {
    found: Found,
    import: Import,
    /// Result for each rule of the source.
    fates: Vec<Fate>,
    missing: BTreeSet<(usize, Why)>,
    names: Unique,
    /// Uses of dynamic sets: in conditions on a side, or to add to.
    set_uses: BTreeSet<(String, Option<Side>)>,
    /// Rules whose rate is a condition.
    rates: usize,
    /// Rules that filter before routing.
    early: BTreeSet<usize>,
    /// Budget of comparisons left, weighted by size.
    patience: usize,
    /// True if a listing was truncated.
    cut: bool,
}

#[derive(Clone, Copy, Default)]
struct Fate {
    translated: bool,
    missing: bool,
}

impl Emit {
    fn new(mut found: Found) -> Emit {
        let mut interfaces = Unique::default();
        for name in &mut found.interfaces {
            let valid = valid(name).unwrap_or_else(|| "interface".to_owned());
            let given = interfaces.name(&valid);
            if given != *name {
                let (interface, name) = (given.clone(), name.clone());
                found.notes.insert(Note { origin: None, kind: NoteKind::Renamed { name, interface } });
            }
            *name = given;
        }
        limit::refuse_above_rates(&mut found.program);
        for rule in limit::log_without_limits(&mut found.program) {
            let origin = Some(found.program.rules[rule].origin);
            found.notes.insert(Note { origin, kind: NoteKind::LogUnlimited });
        }
        let fates = vec![Fate::default(); found.program.rules.len()];
        let patience = 64 * MOST_RULES;
        let names = Unique::default();
        Emit {
            found,
            import: Import::default(),
            fates,
            missing: BTreeSet::new(),
            names,
            set_uses: BTreeSet::new(),
            rates: 0,
            early: BTreeSet::new(),
            patience,
            cut: false,
        }
    }

    fn filter(&mut self) {
        let silent = self.found.silent;
        // Here all packets are for the gateway, and there none.
        let own = Cond { to_gateway: true, ..Cond::default() };
        let mut input = write_out_for(&own, &self.found.program, &self.found.input, silent);
        let mut forward = write_out(&self.found.program, &self.found.forward, silent);
        input.entries.iter_mut().for_each(|entry| entry.cond.to_gateway = false);
        forward.entries.retain(|entry| !entry.cond.to_gateway);
        if let Some(version) = silent {
            self.note(None, NoteKind::Silent { version });
        }
        let nats = !self.found.prerouting.is_empty() || !self.found.postrouting.is_empty();
        let limits = input.entries.iter().chain(&forward.entries);
        let connections =
            limits.filter_map(|e| e.limit).any(|limit| matches!(limit.bound, Bound::Connections(_)));
        if !self.found.stateful && !nats && !connections {
            self.import.policy.mode = Mode::Stateless;
            self.note(None, NoteKind::Stateless);
        } else if !self.found.stateful && nats {
            self.note(None, NoteKind::StatefulByNat);
        }
        self.marks(&input, &mut forward);
        input.entries.retain(|entry| !matches!(entry.what, What::Do(Verdict::Mark(_))));
        let mut answers = Vec::new();
        if self.found.stateful || nats {
            self.established(&input, Way::Inside);
            answers = self.established(&forward, Way::Through);
        }
        let drops = |listing: &Listing| if listing.drops { Action::Drop } else { Action::Accept };
        let (inside, passing) = (drops(&input), drops(&forward));
        self.cut |= input.cut || forward.cut;
        self.lead(&input);
        self.lead(&forward);
        self.rules(&input, true);
        // A forward rule for all interfaces would be for the gateway itself, too.
        let wide = |entry: &Entry| entry.cond.outward.is_none();
        let mut through = forward.entries.iter().chain(&answers);
        if !self.import.policy.rules.is_empty() || through.any(wide) {
            let name = self.names.name("input-policy");
            let to = vec![SELF_ZONE.to_owned()];
            self.import.policy.rules.push(Rule {
                name,
                conditions: Conditions { to, ..Conditions::default() },
                action: inside,
                ..Rule::default()
            });
            self.note(None, NoteKind::InputFirst);
        }
        for entry in &answers {
            let label = format!("{}-answers", self.label(entry, false));
            self.named_rule(entry, Action::Drop, false, &label);
        }
        self.rules(&forward, false);
        let default = |to: &str, action| ZoneDefault { from: "any".to_owned(), to: to.to_owned(), action };
        self.import.policy.defaults = vec![default("any", passing), default(SELF_ZONE, inside)];
    }

    /// Counts jumps as translated: their chains are written out in the policy.
    fn lead(&mut self, listing: &Listing) {
        for &rule in &listing.leads {
            self.fates[rule].translated = true;
        }
    }

    fn rules(&mut self, listing: &Listing, to_self: bool) {
        let mut entries = listing.entries.clone();
        self.settle_states(&mut entries);
        self.settle_limits(&mut entries, listing.drops);
        self.settle_logs(&mut entries, listing.drops);
        let mut assignments = Assignments::default();
        for entry in &entries {
            match &entry.what {
                What::Hole(why) => self.miss(entry.rule, why.clone()),
                What::Do(Verdict::Clamp(mss)) => self.clamp(entry, *mss),
                What::Do(Verdict::Help(helper)) => assignments.help(entry, *helper),
                What::Do(Verdict::Add(addition)) => assignments.add(entry, addition),
                What::Do(verdict) => {
                    let action = match *verdict {
                        Verdict::Accept => Action::Accept,
                        Verdict::Drop => Action::Drop,
                        Verdict::Reject(with) => Action::Reject(with),
                        Verdict::Translate(_) => {
                            self.miss(entry.rule, Why::Feature("nat".to_owned()));
                            continue;
                        }
                        _ => continue,
                    };
                    self.decide(entry, Decision { action, to_self }, &mut assignments);
                }
            }
        }
        let action = if listing.drops { Action::Drop } else { Action::Accept };
        self.close_assignments(assignments, Decision { action, to_self });
    }

    /// Removes entries that connection tracking implies.
    fn settle_states(&mut self, entries: &mut Vec<Entry>) {
        let mut implied = false;
        for index in 0..entries.len() {
            self.undecided(entries, index);
            let entry = &mut entries[index];
            let What::Do(verdict) = &entry.what else { continue };
            let states = entry.cond.states;
            if states == 0 {
                continue;
            }
            if states & NEW != 0 {
                let refuses = matches!(verdict, Verdict::Drop | Verdict::Continue);
                let is_implied =
                    self.import.policy.mode == Mode::Stateful && refuses && entry.cond.opens_nothing();
                entry.cond.states = if is_implied { 0 } else { STATES };
                implied |= is_implied;
                continue;
            }
            let as_here = match verdict {
                Verdict::Accept => states & INVALID == 0,
                Verdict::Drop => states & (ESTABLISHED | RELATED) == 0,
                Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_) => true,
                _ => false,
            };
            // Established packets add nothing here, and invalid ones meet no rule.
            if matches!(verdict, Verdict::Add(_)) {
                entry.what = What::Hole(Why::State);
                continue;
            }
            implied = true;
            let goes_on = matches!(verdict, Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_));
            entry.settled = as_here && !goes_on;
            // Of packets that meet no rule here, nothing is logged, at whatever rate.
            entry.what = if as_here && (goes_on || entry.limit.is_none()) {
                What::Do(Verdict::Continue)
            } else {
                What::Hole(Why::State)
            };
        }
        for entry in entries.iter_mut().filter(|entry| entry.cond.states & NEW == 0) {
            entry.cond.states = 0;
        }
        entries.retain(|entry| entry.cond.states != 0 || matches!(entry.what, What::Hole(_)));
        if implied {
            self.note(None, NoteKind::StateImplied);
        }
    }

    /// Removes from an entry for established packets the states that earlier entries have decided: one base chain that passes
    /// established packets to the next leaves none to its own further rules.
    fn undecided(&mut self, entries: &mut [Entry], index: usize) {
        let (before, rest) = entries.split_at_mut(index);
        let Some(entry) = rest.first_mut().filter(|entry| entry.cond.states & NEW == 0) else { return };
        for earlier in before.iter() {
            let decides =
                matches!(earlier.what, What::Do(Verdict::Accept | Verdict::Drop | Verdict::Reject(_)))
                    || earlier.settled;
            let overlap = entry.cond.states & earlier.cond.states;
            if !decides || overlap == 0 || earlier.limit.is_some() || self.patience == 0 {
                continue;
            }
            self.tire(&earlier.cond);
            let part = Cond { states: overlap, ..entry.cond.clone() };
            if part.is_within(&earlier.cond) {
                entry.cond.states &= !overlap;
            }
        }
    }

    /// Charges a comparison to the budget, by the size of the condition.
    fn tire(&mut self, cond: &Cond) {
        self.tire_by(cond, 1);
    }

    /// Charges so many comparisons.
    fn tire_by(&mut self, cond: &Cond, times: usize) {
        self.patience = self.patience.saturating_sub(times.saturating_mul(1 + cond.weight()));
    }

    /// Merges rules that only log into the rule that decides the same packets.
    fn settle_logs(&mut self, entries: &mut [Entry], drops: bool) {
        for index in 0..entries.len() {
            if entries[index].what != What::Do(Verdict::Continue) {
                continue;
            }
            let cond = entries[index].cond.clone();
            let default = if drops { Verdict::Drop } else { Verdict::Accept };
            let mut what = What::Do(default);
            let mut later = index;
            while later + 1 < entries.len() {
                later += 1;
                if self.patience == 0 {
                    what = What::Hole(Why::Log);
                    break;
                }
                self.tire(&entries[later].cond);
                let entry = &entries[later];
                match &entry.what {
                    What::Hole(Why::Log)
                    | What::Do(Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_) | Verdict::Add(_)) => {
                        continue;
                    }
                    What::Do(_) if !cond.meets(&entry.cond) => continue,
                    What::Do(_) if cond == entry.cond => {
                        entries[later].log = true;
                        // Decided by the later rule, which logs now.
                        what = What::Do(Verdict::Return);
                    }
                    What::Do(verdict) if entry.limit.is_none() && cond.is_within(&entry.cond) => {
                        what = What::Do(verdict.clone());
                    }
                    _ => what = What::Hole(Why::Log),
                }
                break;
            }
            entries[index].what = what;
            entries[index].log = true;
        }
        for entry in entries.iter_mut().filter(|entry| entry.what == What::Do(Verdict::Return)) {
            self.translated(entry.rule);
            entry.what = What::Do(Verdict::Continue);
        }
    }

    fn rule(&mut self, entry: &Entry, action: Action, to_self: bool) {
        let label = self.label(entry, to_self);
        self.named_rule(entry, action, to_self, &label);
    }

    /// Label to name a rule by.
    fn label(&self, entry: &Entry, to_self: bool) -> String {
        match entry.rule {
            Some(rule) => self.found.program.rules[rule].label.clone(),
            None => if to_self { "input-policy" } else { "forward-policy" }.to_owned(),
        }
    }

    fn named_rule(&mut self, entry: &Entry, action: Action, to_self: bool, label: &str) {
        if let Err(why) = sound(&entry.cond) {
            return self.miss(entry.rule, why);
        }
        if self.import.policy.rules.len() >= MOST_RULES {
            return self.miss(entry.rule, Why::TooMany);
        }
        let cond = &entry.cond;
        let to = if to_self { vec![SELF_ZONE.to_owned()] } else { self.zones(&cond.outward) };
        if to_self && cond.outward.is_some() {
            return;
        }
        let conditions = match self.conditions(cond, to) {
            Ok(conditions) => conditions,
            Err(why) => return self.miss(entry.rule, why),
        };
        let (add_source, add_for) = match self.addition(entry) {
            Ok(addition) => addition,
            Err(why) => return self.miss(entry.rule, why),
        };
        let (rate, connections) = match entry.limit.map(|limit| limit.bound) {
            Some(Bound::Rate(rate)) => (Some(rate), None),
            Some(Bound::Connections(most)) => (None, Some(most)),
            None => (None, None),
        };
        let rule = Rule {
            name: self.names.name(label),
            conditions,
            states: Vec::<State>::new(),
            dnat: cond.dnat,
            rate,
            excess: entry.excess,
            connections,
            timeout: None,
            add_source,
            add_for,
            syn: SynAnswer::Forward,
            helper: entry.helper,
            log: if entry.log { Logging::On } else { Logging::Off },
            action,
        };
        self.translated(entry.rule);
        self.import.policy.rules.push(rule);
    }

    /// Returns the policy's words for a condition on packets to zones.
    fn conditions(&mut self, cond: &Cond, to: Vec<String>) -> Result<Conditions, Why> {
        let (v4, v6) = families(cond);
        let (source, destination) = self.ends(cond, v4, v6)?;
        let from = self.zones(&cond.inward);
        Ok(Conditions { from, to, ..conditions::conditions(cond, source, destination) })
    }

    /// Returns the addresses of `place` that are of the IP versions wanted, by the name of a set if they have one.
    fn addresses(&mut self, place: &Place, v4: bool, v6: bool) -> Addresses {
        let place = of_versions(place, v4, v6);
        let Some(named) = place.name.as_ref().filter(|_| !place.is_whole()) else {
            return conditions::addresses(&place, v4, v6);
        };
        let name = named.set.to_string();
        if self.import.policy.set(&name).is_none() {
            if let Some(set) = self.found.sets.iter().find(|set| set.name == name) {
                self.import.policy.sets.push(set.clone());
            }
        }
        Addresses { items: vec![AddressItem::Set(name)], except: named.except }
    }

    fn zones(&self, interfaces: &Option<Vec<u16>>) -> Vec<String> {
        let names = interfaces.iter().flatten();
        names
            .filter_map(|&index| self.found.interfaces.get(usize::from(index)))
            .map(|name| zone(name))
            .collect()
    }

    fn clamp(&mut self, entry: &Entry, mss: MssClamp) {
        self.note(self.origin(entry), NoteKind::ClampWidened);
        self.translated(entry.rule);
        let interfaces = match (&entry.cond.outward, &entry.cond.inward) {
            (None, None) => self.found.interfaces.clone(),
            (Some(_), _) => self.zones(&entry.cond.outward),
            (None, Some(_)) => self.zones(&entry.cond.inward),
        };
        self.make_interfaces();
        for interface in &mut self.import.policy.interfaces {
            if interfaces.contains(&interface.name) {
                // Of two clamps to numbers the smaller one holds, as where one follows the other.
                interface.mss = match (interface.mss, mss) {
                    (MssClamp::Bytes(one), MssClamp::Bytes(other)) => MssClamp::Bytes(one.min(other)),
                    (one @ MssClamp::Bytes(_), MssClamp::Mtu) => one,
                    (_, mss) => mss,
                };
            }
        }
    }

    fn make_interfaces(&mut self) {
        if !self.import.policy.interfaces.is_empty() {
            return;
        }
        for name in &self.found.interfaces {
            self.import.policy.interfaces.push(Interface::new(name, &zone(name)));
        }
    }

    /// Reports hooks without a counterpart, unless all their rules accept.
    fn foreign(&mut self) {
        for (hook, bases) in std::mem::take(&mut self.found.foreign) {
            let listing = write_out(&self.found.program, &bases, None);
            self.cut |= listing.cut;
            let idle = |entry: &Entry| entry.what == What::Do(Verdict::Accept);
            if listing.drops && bases.iter().any(|base| base.drops) {
                self.note(None, NoteKind::OwnPackets { hook: hook.clone() });
            }
            if !listing.drops && listing.entries.iter().all(idle) {
                continue;
            }
            for base in &bases {
                for rule in self.found.program.chains[base.chain].clone() {
                    let clamps = self.fates[rule].translated || hook == "postrouting";
                    if !clamps {
                        self.miss(Some(rule), Why::Hook(hook.clone()));
                    }
                }
            }
            for entry in &listing.entries {
                // A chain that another hook shares is whole there; what leads to it here is missing.
                let shared = entry.rule.is_some_and(|rule| self.fates[rule].translated);
                match &entry.what {
                    _ if shared => {}
                    What::Hole(why) => self.miss(entry.rule, why.clone()),
                    // A clamp on the way out is as good as one on the way through.
                    What::Do(Verdict::Clamp(mss)) if hook == "postrouting" => self.clamp(entry, *mss),
                    What::Do(_) => self.miss(entry.rule, Why::Hook(hook.clone())),
                }
            }
        }
    }

    fn close(mut self) -> Import {
        self.make_interfaces();
        if self.found.interfaces.is_empty() {
            self.note(None, NoteKind::NoInterfaces);
        } else {
            self.note(None, NoteKind::Zones);
        }
        for interface in self.found.interfaces.clone() {
            self.note(None, NoteKind::FillInAddresses { interface });
        }
        // Rules that no hook comes by: those that cannot be read are listed all the same.
        for rule in 0..self.found.program.rules.len() {
            if let Err(why) = &self.found.program.rules[rule].body {
                if !self.fates[rule].missing {
                    self.miss(Some(rule), why.clone());
                }
            }
        }
        for rule in 0..self.fates.len() {
            if self.cut && !self.fates[rule].translated && !self.fates[rule].missing {
                self.miss(Some(rule), Why::TooMany);
            }
        }
        self.import.count = Count { rules: self.fates.len(), ..Count::default() };
        for fate in &self.fates {
            match fate {
                Fate { missing: true, .. } => self.import.count.untranslated += 1,
                Fate { translated: true, .. } => self.import.count.translated += 1,
                _ => self.import.count.implied += 1,
            }
        }
        let missing = self.import.count.untranslated;
        if missing > 0 {
            self.note(None, NoteKind::NotEquivalent { missing });
        }
        let rules = &self.import.policy.rules;
        for untranslated in &mut self.import.untranslated {
            // While they were collected, the text held the place.
            if let Some(place) = untranslated.before.take() {
                let place: Option<usize> = place.parse().ok();
                untranslated.before = place.and_then(|at| rules.get(at)).map(|rule| rule.name.clone());
            }
        }
        self.import.untranslated.sort_by_key(|untranslated| untranslated.origin);
        self.import.notes = std::mem::take(&mut self.found.notes).into_iter().collect();
        self.import
    }

    fn miss(&mut self, rule: Option<usize>, why: Why) {
        let Some(rule) = rule else { return };
        self.fates[rule].missing = true;
        if !self.missing.insert((rule, why.clone())) {
            return;
        }
        let source = &self.found.program.rules[rule];
        self.import.untranslated.push(Untranslated {
            origin: source.origin,
            text: source.text.clone(),
            why,
            before: Some(self.import.policy.rules.len().to_string()),
        });
    }

    fn note(&mut self, origin: Option<Origin>, kind: NoteKind) {
        self.found.notes.insert(Note { origin, kind });
    }

    /// Notes that the policy does what a rule of the source does.
    fn translated(&mut self, rule: Option<usize>) {
        if let Some(fate) = rule.and_then(|rule| self.fates.get_mut(rule)) {
            fate.translated = true;
        }
    }

    /// Position in the source of an entry's rule.
    fn origin(&self, entry: &Entry) -> Option<Origin> {
        entry.rule.map(|rule| self.found.program.rules[rule].origin)
    }
}

/// Zone of an interface: its name, unless reserved.
pub(super) fn zone(interface: &str) -> String {
    match interface {
        SELF_ZONE | ANY_ZONE | OTHER_ZONE => format!("{interface}-zone"),
        name => name.to_owned(),
    }
}
