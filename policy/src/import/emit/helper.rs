//! Protocol helpers: nftables assigns them by statements of their own, and here the rule that accepts a connection names its helper.

use super::Emit;
use crate::import::chain::{Entry, Verdict, What};
use crate::import::cond::Cond;
use crate::import::note::Why;
use crate::model::{Action, Helper};

/// Assignment of a helper.
pub(super) struct Assignment {
    cond: Cond,
    helper: Helper,
    rule: Option<usize>,
    /// True once a rule names the helper by it.
    is_used: bool,
}

impl Assignment {
    pub(super) fn new(entry: &Entry, helper: Helper) -> Assignment {
        Assignment { cond: entry.cond.clone(), helper, rule: entry.rule, is_used: false }
    }
}

impl Emit {
    /// Has rules of their own accept those packets of an accepting entry that are assigned a helper. Returns true if these are all of its packets.
    pub(super) fn assign(&mut self, entry: &Entry, to_self: bool, assignments: &mut [Assignment]) -> bool {
        for assignment in assignments {
            let Some(cond) = entry.cond.and(&assignment.cond) else { continue };
            let is_all = entry.cond.is_within(&assignment.cond);
            if to_self {
                // Connections of the gateway itself have no helper here.
                if is_all {
                    self.miss(assignment.rule, unlike());
                }
                continue;
            }
            // Two rules would have a limit each.
            if entry.limit.is_some() && !is_all {
                self.miss(assignment.rule, Why::Limit);
                continue;
            }
            assignment.is_used = true;
            let helped = Entry { cond, helper: Some(assignment.helper), ..entry.clone() };
            self.rule(&helped, Action::Accept, false);
            if is_all {
                return true;
            }
        }
        false
    }

    /// Accounts for assignments behind the last rule: of connections that the chain's policy accepts, and of those that nothing does.
    pub(super) fn close_assignments(&mut self, assignments: Vec<Assignment>, drops: bool) {
        for Assignment { cond, helper, rule, is_used } in assignments {
            if !drops {
                let what = What::Do(Verdict::Accept);
                let helper = Some(helper);
                let entry = Entry { cond, what, limit: None, log: false, settled: false, rule, helper };
                self.rule(&entry, Action::Accept, false);
            } else if !is_used {
                self.miss(rule, unlike());
            } else if let Some(fate) = rule.and_then(|rule| self.fates.get_mut(rule)) {
                fate.translated = true;
            }
        }
    }
}

fn unlike() -> Why {
    Why::Feature("ct helper for other connections than forwarded ones that a rule accepts".to_owned())
}
