//! Code points that rules give packets, as traffic classes. There a packet has that of the last such rule that it meets; here it is of the first
//! class. There each packet meets the rules; here the first one of a connection meets the classes, so that rules for its answers are for connections the
//! other way, too.

use std::collections::BTreeSet;

use wire::Dscp;

use super::Emit;
use crate::import::chain::{Entry, Listing, Verdict, What};
use crate::import::cond::{Cond, ESTABLISHED, STATES};
use crate::import::conditions::sound;
use crate::import::note::{NoteKind, Why};
use crate::import::range::ByteSet;
use crate::import::{MOST_RULES, name::Unique};
use crate::model::{Class, Mode};

/// Reason for which a mark has no class: classes do not change what rules see.
const ASKED: &str = "a change of the DSCP in front of a rule that asks for it";

/// True if rules behind an entry ask for code points of its packets.
fn is_asked_for(entry: &Entry, later: &[Entry]) -> bool {
    let asks = |entry: &Entry| !ByteSet::CODE_POINTS.is_within(entry.cond.dscp);
    later.iter().any(|later| asks(later) && later.cond.meets(&entry.cond))
}

/// Packets of a list, and the code point that the rest of the list gives them: none where they are decided first.
struct Part {
    cond: Cond,
    mark: Option<Dscp>,
    rule: Option<usize>,
}

impl Part {
    /// Connections whose answers are of the part; `None` where those are the same, or answers are not told by such conditions.
    fn of_answers(&self) -> Option<Part> {
        let Cond { inward, outward, source, destination, sports, dports, .. } = self.cond.clone();
        let cond = Cond {
            inward: outward,
            outward: inward,
            source: destination,
            destination: source,
            sports: dports,
            dports: sports,
            ..self.cond.clone()
        };
        let is_told =
            self.cond.members.is_all() && self.cond.source_macs.is_none() && self.cond.icmp_types.is_all();
        (is_told && cond != self.cond).then_some(Part { cond, ..*self })
    }

    /// True if packets have the same code points without the part, in front of `later` and behind `earlier` ones: a later one marks them alike.
    fn is_idle(&self, earlier: &[Part], later: &[Part]) -> bool {
        let covered = |cond: &Cond| earlier.iter().any(|part| cond.is_within(&part.cond));
        for part in later {
            if part.mark == self.mark && self.cond.is_within(&part.cond) {
                return true;
            }
            let both = self.cond.and(&part.cond).filter(|_| part.mark != self.mark);
            if both.is_some_and(|both| !covered(&both)) {
                return false;
            }
        }
        // At the end of the list packets have no mark.
        self.mark.is_none()
    }
}

impl Emit {
    /// Takes marks out of the list of what is forwarded, and makes classes of them. Packets for the gateway, of `input`, keep their code points.
    pub(super) fn marks(&mut self, input: &Listing, forward: &mut Listing) {
        let marks = |entry: &&Entry| matches!(entry.what, What::Do(Verdict::Mark(_)));
        let forwarded: BTreeSet<usize> =
            forward.entries.iter().filter(marks).filter_map(|entry| entry.rule).collect();
        // What is marked before routing is in both lists.
        let mut asked = BTreeSet::new();
        for (index, entry) in input.entries.iter().enumerate().filter(|(_, entry)| marks(entry)) {
            self.tire_by(&entry.cond, input.entries.len() - index);
            if self.patience == 0 || is_asked_for(entry, &input.entries[index + 1..]) {
                asked.extend(entry.rule);
                self.miss(entry.rule, Why::Feature(ASKED.to_owned()));
            } else if entry.rule.is_some_and(|rule| !forwarded.contains(&rule)) {
                self.miss(entry.rule, Why::Hook("input".to_owned()));
            }
        }
        if forwarded.is_empty() {
            return;
        }
        // Of a connection all packets but the first are established: what becomes of those is what becomes of it.
        let by_connection = self.import.policy.mode == Mode::Stateful;
        let counts = |entry: &Entry| !by_connection || entry.cond.states & ESTABLISHED != 0;
        let established: BTreeSet<usize> = forward
            .entries
            .iter()
            .filter(marks)
            .filter(|entry| counts(entry))
            .filter_map(|entry| entry.rule)
            .collect();
        for &rule in forwarded.difference(&established) {
            self.miss(Some(rule), Why::State);
        }
        let mut parts = Vec::new();
        for (index, entry) in forward.entries.iter().enumerate().rev().filter(|(_, entry)| counts(entry)) {
            match &entry.what {
                What::Do(Verdict::Mark(_)) if entry.rule.is_some_and(|rule| asked.contains(&rule)) => {}
                What::Do(Verdict::Mark(code_point)) => {
                    match self.without_class(entry, &forward.entries[index + 1..], &parts) {
                        Some(why) => self.miss(entry.rule, why),
                        None => self.mark(entry, *code_point, &mut parts),
                    }
                }
                What::Do(Verdict::Accept) => self.accept(entry, &mut parts),
                _ => {}
            }
        }
        forward.entries.retain(|entry| !matches!(entry.what, What::Do(Verdict::Mark(_))));
        self.join_repeated(&mut forward.entries);
        if by_connection {
            parts = self.with_answers(parts);
        }
        self.classes(parts);
    }

    /// Leaves out what a rule decides on packets that it decides on alike further down: they were told apart for a mark between the two.
    fn join_repeated(&mut self, entries: &mut Vec<Entry>) {
        let mut index = 0;
        while index < entries.len() {
            let (entry, later) = (&entries[index], &entries[index + 1..]);
            let mut is_repeated = false;
            for other in later {
                if self.patience == 0 {
                    return;
                }
                self.tire(&other.cond);
                let is_same = (&other.what, other.rule, other.log) == (&entry.what, entry.rule, entry.log);
                let is_plain = entry.limit.is_none() && other.limit.is_none();
                if is_same && is_plain && entry.cond.is_within(&other.cond) {
                    is_repeated = true;
                    break;
                }
                if matches!(other.what, What::Hole(_)) || other.cond.meets(&entry.cond) {
                    break;
                }
            }
            match is_repeated {
                true => drop(entries.remove(index)),
                false => index += 1,
            }
        }
    }

    /// Reason for which no class marks what an entry marks; none if one can.
    fn without_class(&mut self, entry: &Entry, later: &[Entry], parts: &[Part]) -> Option<Why> {
        let by_connection = self.import.policy.mode == Mode::Stateful;
        self.tire_by(&entry.cond, later.len());
        if entry.cond.dnat.is_some() {
            Some(Why::Feature("a change of the DSCP by `ct status dnat`".to_owned()))
        } else if by_connection && entry.cond.flags.is_some_and(|flags| flags.mask != 0) {
            // Those of the first packet would decide on the whole connection.
            Some(Why::Feature("a change of the DSCP by TCP flags".to_owned()))
        } else if parts.len() >= MOST_RULES || self.patience == 0 {
            Some(Why::TooMany)
        } else if is_asked_for(entry, later) {
            Some(Why::Feature(ASKED.to_owned()))
        } else {
            sound(&entry.cond).err()
        }
    }

    /// Puts packets that a rule marks in front of the parts of the list behind it, which mark some of them again.
    fn mark(&mut self, entry: &Entry, code_point: Dscp, parts: &mut Vec<Part>) {
        let cond = Cond { states: STATES, ..entry.cond.clone() };
        let mut all = Vec::with_capacity(parts.len() + 1);
        for part in parts.drain(..) {
            self.tire(&part.cond);
            if part.mark.is_none() {
                let both = cond.and(&part.cond);
                all.extend(both.map(|cond| Part { cond, mark: Some(code_point), rule: entry.rule }));
            }
            all.push(part);
        }
        all.push(Part { cond, mark: Some(code_point), rule: entry.rule });
        *parts = all;
        self.translated(entry.rule);
    }

    /// Puts packets that a rule accepts in front of the marks behind it, if those would mark any of them.
    fn accept(&mut self, entry: &Entry, parts: &mut Vec<Part>) {
        let cond = Cond { states: STATES, ..entry.cond.clone() };
        let mut is_marked = false;
        for part in parts.iter().filter(|part| part.mark.is_some()) {
            self.tire(&part.cond);
            is_marked |= part.cond.meets(&cond);
        }
        if is_marked && entry.limit.is_some() {
            // Up to the limit they are accepted, and above it they are marked.
            parts.retain(|part| !part.cond.meets(&cond) || part.mark.is_none());
            self.miss(entry.rule, Why::Limit);
        } else if is_marked {
            parts.insert(0, Part { cond, mark: None, rule: entry.rule });
        }
    }

    /// Adds the connections whose answers are marked: in front of parts for more than those, as rules for all packets come first and are made
    /// exceptions of, and behind all others, by which the packets of their first direction are marked.
    fn with_answers(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut answers: Vec<(usize, Part)> = Vec::new();
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| part.mark.is_some()) {
            let Some(answer) = part.of_answers() else { continue };
            let wider =
                |other: &Part| answer.cond.is_within(&other.cond) && !other.cond.is_within(&answer.cond);
            let later = &parts[index + 1..];
            self.tire_by(&answer.cond, later.len());
            let place = later.iter().position(wider).filter(|_| self.patience > 0);
            answers.push((place.map_or(parts.len(), |place| index + 1 + place), answer));
        }
        answers.sort_by_key(|(place, _)| *place);
        let mut answers = answers.into_iter().peekable();
        let mut all = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            while let Some((_, answer)) = answers.next_if(|(place, _)| *place <= index) {
                all.push(answer);
            }
            all.push(part);
        }
        all.extend(answers.map(|(_, answer)| answer));
        all
    }

    /// Leaves out parts whose packets are all of an earlier one. A rule whose packets are all accepted before it marks them is missing where it marks the
    /// first packets of connections, which are not accepted there.
    fn effective(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut effective: Vec<Part> = Vec::new();
        let mut lost = BTreeSet::new();
        for part in parts {
            self.tire_by(&part.cond, effective.len());
            let cover = effective.iter().find(|other| part.cond.is_within(&other.cond));
            match cover.filter(|_| self.patience > 0) {
                Some(cover) if cover.mark.is_none() && part.mark.is_some() => lost.extend(part.rule),
                Some(_) => {}
                None => effective.push(part),
            }
        }
        for rule in lost {
            let marks = |part: &Part| part.mark.is_some() && part.rule == Some(rule);
            if self.import.policy.mode == Mode::Stateful && !effective.iter().any(marks) {
                self.miss(Some(rule), Why::State);
            }
        }
        effective
    }

    /// Makes classes of parts, but for those that change nothing.
    fn classes(&mut self, parts: Vec<Part>) {
        let mut names = Unique::default();
        let parts = self.effective(parts);
        for (index, part) in parts.iter().enumerate() {
            let (earlier, later) = (&parts[..index], &parts[index + 1..]);
            self.tire_by(&part.cond, parts.len());
            // Where two conditions meet there may be the ICMP of the other IP version alone, which no packet has.
            if sound(&part.cond).is_err() || self.patience > 0 && part.is_idle(earlier, later) {
                continue;
            }
            let conditions = match self.conditions(&part.cond, self.zones(&part.cond.outward)) {
                Ok(conditions) => conditions,
                Err(why) => {
                    self.miss(part.rule, why);
                    continue;
                }
            };
            let label = part.rule.map_or("unmarked", |rule| &self.found.program.rules[rule].label);
            let name = names.name(label);
            if let Some(rule) = part.rule.filter(|_| part.mark.is_some()) {
                self.note(Some(self.found.program.rules[rule].origin), NoteKind::MarksWidened);
            }
            self.import.policy.classes.push(Class { name, conditions, mark: part.mark, ..Class::default() });
        }
    }
}
