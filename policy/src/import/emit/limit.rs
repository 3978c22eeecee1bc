//! Limits: rates and numbers of connections that rules accept, and rates above which they refuse.

use std::collections::{BTreeMap, HashMap};

use super::Emit;
use crate::import::chain::{Bound, DEEPEST, Entry, Limit, Program, Verdict, What};
use crate::import::note::{NoteKind, Why};
use crate::model::{DynamicSet, Excess, Mode};

/// Rewrites rules that let packets return from a chain up to a rate, in front of one that refuses the same packets, as flood protection is
/// written: the refusing rule refuses what exceeds the rate, and the rest returns.
pub(super) fn refuse_above_rates(program: &mut Program) {
    for chain in &program.chains {
        for pair in chain.windows(2) {
            let &[returning, refusing] = pair else { continue };
            let (Some(one), Some(other)) = (program.rules.get(returning), program.rules.get(refusing)) else {
                continue;
            };
            let (Ok(one), Ok(other)) = (&one.body, &other.body) else { continue };
            let ([(cond, Verdict::Return)], [(refused, Verdict::Drop | Verdict::Reject(_))]) =
                (one.ways.as_slice(), other.ways.as_slice())
            else {
                continue;
            };
            let Some(limit @ Limit { bound: Bound::Rate(_), over: false }) = one.limit else { continue };
            let is_plain = !one.log && other.limit.is_none() && !one.has_effects() && !other.has_effects();
            if !is_plain || cond != refused {
                continue;
            }
            program.rules.swap(returning, refusing);
            if let Ok(body) = &mut program.rules[returning].body {
                body.limit = Some(Limit { over: true, ..limit });
            }
            if let Ok(body) = &mut program.rules[refusing].body {
                body.limit = None;
            }
        }
    }
}

/// Leaves out limits that decide on logs alone: those of jumps to chains that only log, and of returns from such chains. Returns the rules
/// that had them.
pub(super) fn log_without_limits(program: &mut Program) -> Vec<usize> {
    let only_log = chains_that_only_log(program);
    let mut changed = Vec::new();
    for (chain, rules) in program.chains.iter().enumerate() {
        for &rule in rules {
            let Ok(body) = &mut program.rules[rule].body else { continue };
            let is_of_logs = body.ways.iter().all(|(_, verdict)| match verdict {
                Verdict::Jump(to) => only_log.get(*to) == Some(&true),
                Verdict::Return => only_log[chain],
                _ => false,
            });
            if body.limit.is_none() || !is_of_logs {
                continue;
            }
            body.limit = None;
            // What a return has the chain not log is logged.
            let returns = body.ways.iter_mut().filter(|(_, verdict)| *verdict == Verdict::Return);
            returns.for_each(|(_, verdict)| *verdict = Verdict::Continue);
            changed.push(rule);
        }
    }
    changed
}

/// Returns for each chain whether all that it does is to log.
fn chains_that_only_log(program: &Program) -> Vec<bool> {
    let mut only_log = vec![false; program.chains.len()];
    // Chains behind others first: after as many passes as chains are nested, nothing changes.
    for _ in 0..DEEPEST {
        let logs = |rule: &usize| {
            let body = program.rules[*rule].body.as_ref().ok().filter(|body| !body.has_effects());
            body.is_some_and(|body| {
                body.ways.iter().all(|(_, verdict)| match verdict {
                    Verdict::Jump(to) | Verdict::Goto(to) => only_log.get(*to) == Some(&true),
                    Verdict::Continue | Verdict::Return => true,
                    _ => false,
                })
            })
        };
        let now: Vec<bool> = program.chains.iter().map(|rules| rules.iter().all(logs)).collect();
        if now == only_log {
            break;
        }
        only_log = now;
    }
    only_log
}

/// Fate of all that exceeds a limit, by later rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Accepted,
    /// With a log where `logged`, of a part at least.
    Dropped {
        logged: bool,
    },
}

impl Fate {
    /// Returns the fate of two parts together; `None` where they differ.
    fn and(self, other: Fate) -> Option<Fate> {
        match (self, other) {
            (Fate::Accepted, Fate::Accepted) => Some(Fate::Accepted),
            (Fate::Dropped { logged: one }, Fate::Dropped { logged: two }) => {
                Some(Fate::Dropped { logged: one || two })
            }
            _ => None,
        }
    }
}

impl Emit {
    /// Converts limits to those of accepting rules, and rates above which rules refuse; the others are missing.
    pub(super) fn settle_limits(&mut self, entries: &mut Vec<Entry>, drops: bool) {
        let mut uses: HashMap<usize, usize> = HashMap::new();
        // Entries that reject up to a rate, and whether what they leave is logged.
        let mut rejects = BTreeMap::new();
        for rule in entries.iter().filter(|e| e.limit.is_some()).filter_map(|e| e.rule) {
            *uses.entry(rule).or_default() += 1;
        }
        for index in 0..entries.len() {
            let Some(limit) = entries[index].limit else { continue };
            if matches!(entries[index].what, What::Do(Verdict::Continue)) {
                if entries[index].log {
                    self.note(self.origin(&entries[index]), NoteKind::LogUnlimited);
                }
                entries[index].limit = None;
                continue;
            }
            let alone = entries[index].rule.is_some_and(|rule| uses.get(&rule) == Some(&1));
            let is_rate = matches!(limit.bound, Bound::Rate(_));
            let sound = match &entries[index].what {
                _ if !alone => false,
                What::Do(Verdict::Accept) if !limit.over => {
                    match self.fate_of_excess(entries, index, drops) {
                        Some(Fate::Accepted) => {
                            entries[index].limit = None;
                            true
                        }
                        Some(Fate::Dropped { logged: false }) => true,
                        // Without a place, or with a number of connections, the log is left out.
                        Some(Fate::Dropped { logged: true }) => {
                            if is_rate && self.take_rate() {
                                entries[index].excess = Excess::Next;
                            } else {
                                self.note(self.origin(&entries[index]), NoteKind::ExcessUnlogged);
                            }
                            true
                        }
                        None if is_rate => {
                            entries[index].excess = Excess::Next;
                            self.take_rate()
                        }
                        None => false,
                    }
                }
                What::Do(Verdict::Drop | Verdict::Reject(_)) if limit.over && is_rate => self.take_rate(),
                // The excess is dropped, too.
                What::Do(Verdict::Drop) if !limit.over && !entries[index].log => {
                    entries[index].limit = None;
                    self.fate_of_excess(entries, index, drops) == Some(Fate::Dropped { logged: false })
                }
                What::Do(Verdict::Reject(_)) if !limit.over && is_rate => {
                    match self.fate_of_excess(entries, index, drops) {
                        Some(Fate::Dropped { logged }) => {
                            rejects.insert(index, logged);
                            self.take_rate()
                        }
                        _ => false,
                    }
                }
                What::Do(Verdict::Drop) if limit.over && !entries[index].log => {
                    self.hand_on(entries, index, drops)
                }
                // The excess is refused in silence here.
                What::Do(Verdict::Reject(_)) if limit.over && !entries[index].log => {
                    entries[index].what = What::Do(Verdict::Drop);
                    self.note(
                        self.origin(&entries[index]),
                        NoteKind::NearestReject { kind: "reject".to_owned() },
                    );
                    self.hand_on(entries, index, drops)
                }
                _ => false,
            };
            if !sound {
                entries[index].what = What::Hole(Why::Limit);
                entries[index].limit = None;
            } else if entries[index].limit.is_some() && self.import.policy.mode == Mode::Stateful {
                self.note(None, NoteKind::LimitCountsConnections);
            }
        }
        for (index, logged) in rejects.into_iter().rev() {
            // A rule drops what is above the rate, and the next one rejects the rest.
            let Some(limit) = entries[index].limit.take() else { continue };
            let (what, limit) = (What::Do(Verdict::Drop), Some(Limit { over: true, ..limit }));
            let drops = Entry { what, limit, log: logged, ..entries[index].clone() };
            entries.insert(index, drops);
        }
    }

    /// Takes one of the places that rates as conditions share with uses of dynamic sets; false if none is left.
    fn take_rate(&mut self) -> bool {
        let uses = self.set_uses.iter().filter(|(_, side)| side.is_some()).count();
        let is_free = self.rates + uses < DynamicSet::MOST_USES;
        self.rates += usize::from(is_free);
        is_free
    }

    /// Fate by later rules of all that exceeds a rule's limit; `None` where it has several, or one that says more.
    fn fate_of_excess(&mut self, entries: &[Entry], index: usize, drops: bool) -> Option<Fate> {
        let cond = &entries[index].cond;
        let mut one: Option<Fate> = None;
        let mut logged = false;
        for later in &entries[index + 1..] {
            if self.patience == 0 {
                return None;
            }
            self.tire(&later.cond);
            let meets = cond.meets(&later.cond);
            logged |= later.log && meets;
            match &later.what {
                What::Hole(Why::Log) | What::Do(Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_)) => {
                }
                What::Hole(_) => return None,
                What::Do(verdict) if meets => {
                    let fate = match verdict {
                        Verdict::Accept if !logged => Fate::Accepted,
                        Verdict::Drop => Fate::Dropped { logged },
                        // A rule that adds would add what exceeds its limit, too.
                        _ => return None,
                    };
                    one = Some(one.map_or(Some(fate), |one| one.and(fate))?);
                    if later.limit.is_some() {
                        return None;
                    }
                    if cond.is_within(&later.cond) {
                        return one;
                    }
                }
                What::Do(_) => {}
            }
        }
        let last = match drops {
            true => Fate::Dropped { logged },
            false if logged => return None,
            false => Fate::Accepted,
        };
        one.map_or(Some(last), |one| one.and(last))
    }

    /// Turns a rule that drops the connections above a limit into one that accepts the rest, if the rule that decides on the rest
    /// accepts all of it.
    fn hand_on(&mut self, entries: &mut [Entry], index: usize, drops: bool) -> bool {
        let limit = entries[index].limit;
        let cond = entries[index].cond.clone();
        let bound = limit.map(|limit| Limit { over: false, ..limit });
        for later in index + 1..entries.len() {
            if self.patience == 0 {
                return false;
            }
            self.tire(&entries[later].cond);
            match &entries[later].what {
                What::Hole(Why::Log) | What::Do(Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_)) => {
                }
                // A rule would add what exceeds its limit, too.
                What::Do(Verdict::Add(_)) if cond.meets(&entries[later].cond) => return false,
                What::Do(verdict) if cond.meets(&entries[later].cond) => {
                    if entries[later].limit.is_some() || !cond.is_within(&entries[later].cond) {
                        return false;
                    }
                    match verdict {
                        Verdict::Accept => {
                            entries[index].what = What::Do(Verdict::Accept);
                            entries[index].limit = bound;
                            entries[index].log = entries[later].log;
                        }
                        // What does not exceed the limit is dropped, too: the limit is of no account.
                        Verdict::Drop => entries[index].limit = None,
                        _ => return false,
                    }
                    return true;
                }
                What::Hole(_) => return false,
                What::Do(_) => {}
            }
        }
        if drops {
            entries[index].limit = None;
        } else {
            entries[index].what = What::Do(Verdict::Accept);
            entries[index].limit = bound;
        }
        true
    }
}
