//! Statements that go on to the next rule and that the deciding rule says here: protocol helpers, and additions to dynamic sets.

use super::Emit;
use super::dynamic_set::is_sayable;
use crate::import::chain::{Entry, Verdict};
use crate::import::cond::Cond;
use crate::import::member::{Addition, Again, Members, Side};
use crate::import::note::{NoteKind, Why};
use crate::model::{Action, Helper};

/// Assignments of a hook so far, in order, and what has been decided since.
#[derive(Default)]
pub(super) struct Assignments {
    list: Vec<Assignment>,
    /// Packets that rules with memberships have decided on, whatever the time.
    decided: Vec<Cond>,
    /// True if the budget of comparisons has run out: then packets may lack assignments.
    is_cut: bool,
}

/// Helper of the packets of a condition, or an addition of them.
struct Assignment {
    cond: Cond,
    what: Assigned,
    rule: Option<usize>,
    /// True once a rule says it.
    is_used: bool,
}

#[derive(Clone)]
enum Assigned {
    Helper(Helper),
    Addition(Addition),
}

/// A decision on the packets of an entry.
#[derive(Clone, Copy)]
pub(super) struct Decision {
    pub(super) action: Action,
    /// True if the packets are for the gateway itself.
    pub(super) to_self: bool,
}

impl Assignment {
    /// True if every packet of the assignment matches, as it is after that.
    fn is_within(&self, cond: &Cond) -> bool {
        let Assigned::Addition(addition) = &self.what else { return self.cond.is_within(cond) };
        if cond.members.asks(&addition.set, Side::Source) == Some(false) {
            return false;
        }
        let members = cond.members.without(&addition.set, Side::Source);
        self.cond.is_within(&Cond { members, ..cond.clone() })
    }
}

impl Assignments {
    pub(super) fn help(&mut self, entry: &Entry, helper: Helper) {
        self.push(entry, Assigned::Helper(helper));
    }

    pub(super) fn add(&mut self, entry: &Entry, addition: &Addition) {
        let is_member = entry.cond.members.asks(&addition.set, Side::Source) == Some(true);
        if is_member && addition.again == Again::Keeps {
            // Who is in the set is left as he is.
            return;
        }
        self.push(entry, Assigned::Addition(addition.clone()));
    }

    fn push(&mut self, entry: &Entry, what: Assigned) {
        let cond = entry.cond.clone();
        self.list.push(Assignment { cond, what, rule: entry.rule, is_used: false });
    }
}

/// Packets of an entry that are left after an assignment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Some,
    None,
}

impl Emit {
    /// Makes the rules of a deciding entry: those for packets with an assignment, and one for the rest.
    pub(super) fn decide(&mut self, entry: &Entry, decision: Decision, assignments: &mut Assignments) {
        self.decide_from(0, entry, decision, assignments);
        if entry.limit.is_some() || self.patience == 0 {
            return;
        }
        for assignment in &assignments.list {
            self.tire(&assignment.cond);
        }
        let is_open = |assignment: &Assignment| !assignment.is_within(&entry.cond);
        let (open, closed) = std::mem::take(&mut assignments.list).into_iter().partition(is_open);
        assignments.list = open;
        self.account(closed, decision);
        if !entry.cond.members.is_all() {
            assignments.decided.push(entry.cond.clone());
        }
    }

    /// Accounts for assignments of packets that rules have all decided on.
    fn account(&mut self, closed: Vec<Assignment>, decision: Decision) {
        for Assignment { what, rule, is_used, .. } in closed {
            match what {
                Assigned::Addition(_) => {}
                Assigned::Helper(_) if decision.to_self => {}
                Assigned::Helper(_) if !is_used => self.miss(rule, unlike()),
                Assigned::Helper(_) => {
                    self.translated(rule);
                }
            }
        }
    }

    fn decide_from(&mut self, from: usize, entry: &Entry, decision: Decision, to: &mut Assignments) {
        for index in from..to.list.len() {
            if self.patience == 0 {
                to.is_cut = true;
                break;
            }
            self.tire(&entry.cond);
            let left = match to.list[index].what.clone() {
                Assigned::Helper(helper) => self.assign_helper(index, helper, entry, decision, to),
                Assigned::Addition(addition) => self.assign_addition(index, &addition, entry, decision, to),
            };
            if left == Left::None {
                return;
            }
        }
        self.rule(entry, decision.action, decision.to_self);
    }

    fn assign_helper(
        &mut self,
        index: usize,
        helper: Helper,
        entry: &Entry,
        decision: Decision,
        to: &mut Assignments,
    ) -> Left {
        let assignment = &mut to.list[index];
        if decision.action != Action::Accept || entry.helper.is_some() {
            return Left::Some;
        }
        let Some(cond) = entry.cond.and(&assignment.cond) else { return Left::Some };
        let is_all = entry.cond.is_within(&assignment.cond);
        if decision.to_self {
            // Connections of the gateway itself have no helper here.
            if is_all {
                self.miss(assignment.rule, unlike());
            }
            return Left::Some;
        }
        // Two rules would have a limit each.
        if entry.limit.is_some() && !is_all {
            self.miss(assignment.rule, Why::Limit);
            return Left::Some;
        }
        assignment.is_used = true;
        let helped = Entry { cond, helper: Some(helper), ..entry.clone() };
        self.decide_from(index + 1, &helped, decision, to);
        if is_all { Left::None } else { Left::Some }
    }

    fn assign_addition(
        &mut self,
        index: usize,
        addition: &Addition,
        entry: &Entry,
        decision: Decision,
        to: &mut Assignments,
    ) -> Left {
        let assignment = &mut to.list[index];
        let (set, rule) = (&*addition.set, assignment.rule);
        let is_all = entry.cond.is_within(&assignment.cond);
        let left = if is_all { Left::None } else { Left::Some };
        // The packets have been added, and are members from here on.
        let asked = entry.cond.members.asks(set, Side::Source);
        let members = entry.cond.members.without(set, Side::Source);
        let Some(cond) = (Cond { members, ..entry.cond.clone() }).and(&assignment.cond) else {
            return Left::Some;
        };
        if asked == Some(false) {
            if !is_all {
                // Here a packet is no member yet as the rules look.
                self.miss(entry.rule, Why::DynamicSet(set.to_owned()));
            }
            return left;
        }
        if entry.limit.is_some() && !is_all {
            self.miss(rule, Why::Limit);
            return Left::Some;
        }
        if !is_sayable(&cond) && is_sayable(&entry.cond) {
            self.miss(rule, Why::Memberships);
            return Left::Some;
        }
        match &entry.adds {
            Some(other) if other == addition => return Left::Some,
            Some(_) => {
                self.miss(rule, Why::Feature("a second addition of one packet".to_owned()));
                return Left::Some;
            }
            None => {}
        }
        assignment.is_used = true;
        self.translated(rule);
        let added = Entry { cond, adds: Some(addition.clone()), ..entry.clone() };
        let asks = added.cond.members.asks(set, Side::Source);
        if addition.again == Again::Keeps && self.expires(addition) && asks.is_none() {
            self.keep(index, set, &added, decision, to);
        }
        self.decide_from(index + 1, &added, decision, to);
        left
    }

    /// Has a rule of its own decide on those who are in the set already, as the rule that adds would renew their time.
    fn keep(&mut self, index: usize, set: &str, added: &Entry, decision: Decision, to: &mut Assignments) {
        let Some(addition) = &added.adds else { return };
        let member = Members::one(&addition.set, Side::Source, true);
        let Some(members) = added.cond.members.and(&member) else { return };
        let cond = Cond { members, ..added.cond.clone() };
        if to.decided.iter().any(|decided| cond.is_within(decided)) {
            return;
        }
        // Two rules would have a limit each.
        if is_sayable(&cond) && added.limit.is_none() {
            self.decide_from(index + 1, &Entry { cond, adds: None, ..added.clone() }, decision, to);
        } else {
            self.note(self.origin(added), NoteKind::AddingRenews { set: set.to_owned() });
        }
    }

    /// True if the elements that an addition makes end.
    fn expires(&self, addition: &Addition) -> bool {
        let set = self.found.dynamic_sets.iter().find(|found| found.set.name == *addition.set);
        addition.lasts.is_some() || set.is_some_and(|found| found.set.timeout.is_some())
    }

    /// Makes rules for assignments of packets that the chain's policy decides on, behind the last rule.
    pub(super) fn close_assignments(&mut self, mut assignments: Assignments, decision: Decision) {
        let verdict = if decision.action == Action::Accept { Verdict::Accept } else { Verdict::Drop };
        for index in 0..assignments.list.len() {
            let Assignment { cond, what, rule, .. } = &assignments.list[index];
            let mut entry = Entry::deciding(cond.clone(), verdict.clone(), *rule);
            match what.clone() {
                Assigned::Helper(helper) if decision.action == Action::Accept && !decision.to_self => {
                    entry.helper = Some(helper);
                    self.decide_from(index + 1, &entry, decision, &mut assignments);
                    assignments.list[index].is_used = true;
                }
                Assigned::Helper(_) => {}
                Assigned::Addition(addition) => {
                    self.assign_addition(index, &addition, &entry, decision, &mut assignments);
                }
            }
        }
        if assignments.is_cut {
            assignments.list.iter().for_each(|assignment| self.miss(assignment.rule, Why::TooMany));
        }
        self.account(assignments.list, decision);
    }
}

fn unlike() -> Why {
    Why::Feature("ct helper for other connections than forwarded ones that a rule accepts".to_owned())
}
