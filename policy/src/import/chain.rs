//! Chains that jump to one another, written out as one list: the form that nftables and iptables share.
//!
//! Each rule of a chain that is jumped to takes on the conditions of the jump. Where a packet returns early,
//! what would come next is written out for such packets at that place, so no condition is ever negated. An
//! accept in a chain that others of the same hook follow leads to those. Steps and depth are bounded.

use std::collections::BTreeSet;

use super::MOST_RULES;
use super::cond::Cond;
use super::note::Why;
use crate::model::{ConnectionLimit, NatAction, Rate, RejectWith};

/// The deepest that jumps may nest; the kernel allows 16.
const DEEPEST: usize = 48;

/// The most rules looked at, each as often as it is come by.
const MOST_STEPS: usize = 10 * MOST_RULES;

/// The most ranges of addresses and ports that one list may hold: large sets, written out often.
const MOST_RANGES: usize = 64 * MOST_RULES;

/// Everything that one rule set says.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) chains: Vec<Vec<usize>>,
    pub(super) rules: Vec<SourceRule>,
}

/// A rule as the source has it.
#[derive(Debug)]
pub(super) struct SourceRule {
    /// Line or handle.
    pub(super) line: u32,
    pub(super) text: String,
    /// What to name it by: its comment, or chain and number.
    pub(super) label: String,
    pub(super) body: Result<Body, Why>,
}

/// What a rule does: the first of its ways that matches.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) ways: Vec<(Cond, Verdict)>,
    pub(super) limit: Option<Limit>,
    pub(super) log: bool,
}

/// A limit and what side of it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bound: Bound,
    /// Whether what exceeds it matches, as opposed to what does not.
    pub(super) over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Rate(Rate),
    Connections(ConnectionLimit),
}

/// What a rule does with a packet that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Reject(RejectWith),
    /// To a chain, by its index, and back.
    Jump(usize),
    /// To a chain, and not back.
    Goto(usize),
    Return,
    /// On to the next rule.
    Continue,
    /// Its MSS is clamped; on to the next rule.
    Clamp,
    Translate(NatAction),
}

/// A chain that a hook calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) chain: usize,
    /// Whether what comes to its end is dropped.
    pub(super) drops: bool,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) cond: Cond,
    pub(super) what: What,
    pub(super) limit: Option<Limit>,
    pub(super) log: bool,
    /// The rule it comes from; none where it is a chain's policy.
    pub(super) rule: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Never a jump, goto or return; `Continue` only logs.
    Do(Verdict),
    /// Something is missing here.
    Hole(Why),
}

/// A hook's chains as one list.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    /// Whether what no entry decides is dropped.
    pub(super) drops: bool,
    /// Rules that packets come by and that only lead elsewhere.
    pub(super) leads: BTreeSet<usize>,
    /// Whether the list was cut short.
    pub(super) cut: bool,
}

/// Writes out the chains of a hook, in the order in which it calls them.
pub(super) fn write_out(program: &Program, bases: &[Base]) -> Listing {
    let mut walk = Walk { program, bases, listing: Listing::default(), steps: 0, weight: 0 };
    for (index, base) in bases.iter().enumerate() {
        let ending =
            walk.chain(At { chain: base.chain, from: 0, base: index, depth: 0 }, &Cond::default(), None);
        walk.listing.drops = ending == Ending::Decided || base.drops;
        if walk.listing.drops {
            break;
        }
    }
    walk.listing
}

struct Walk<'a> {
    program: &'a Program,
    bases: &'a [Base],
    listing: Listing,
    steps: usize,
    weight: usize,
}

/// Where in the chains.
#[derive(Clone, Copy)]
struct At {
    chain: usize,
    from: usize,
    base: usize,
    depth: usize,
}

/// Where a packet goes on that returns from a chain.
struct Next<'a> {
    chain: usize,
    from: usize,
    then: Option<&'a Next<'a>>,
}

/// What is left of the packets of a chain at its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Falls,
    Decided,
}

impl Walk<'_> {
    fn chain(&mut self, at: At, cond: &Cond, next: Option<&Next<'_>>) -> Ending {
        let program = self.program;
        let Some(rules) = program.chains.get(at.chain) else { return Ending::Falls };
        for (index, &rule) in rules.iter().enumerate().skip(at.from) {
            self.steps += 1;
            if self.steps > MOST_STEPS
                || self.weight > MOST_RANGES
                || self.listing.entries.len() >= MOST_RULES
            {
                self.listing.cut = true;
                self.hole(rule, Why::TooMany);
                return Ending::Decided;
            }
            let body = match &program.rules[rule].body {
                Ok(body) => body,
                Err(why) => {
                    self.hole(rule, why.clone());
                    continue;
                }
            };
            for (way, verdict) in &body.ways {
                let Some(both) = cond.and(way) else { continue };
                let covers = body.limit.is_none() && cond.is_within(way);
                let stays = !covers && index + 1 < rules.len();
                let step = Step { rule, body, verdict, stays };
                let after = Next { chain: at.chain, from: index + 1, then: next };
                let ending = self.step(at, &step, &both, &after);
                if self.listing.cut {
                    return Ending::Decided;
                }
                if covers {
                    match ending {
                        After::On => {}
                        After::Out => return Ending::Falls,
                        After::Decided => return Ending::Decided,
                    }
                }
            }
        }
        Ending::Falls
    }

    fn step(&mut self, at: At, step: &Step<'_>, cond: &Cond, after: &Next<'_>) -> After {
        let Step { rule, body, verdict, stays } = *step;
        let jumps = matches!(verdict, Verdict::Jump(_) | Verdict::Goto(_) | Verdict::Return);
        let passes_on = *verdict == Verdict::Accept && at.base + 1 < self.bases.len();
        if body.limit.is_some() && (jumps || passes_on) {
            self.hole(rule, Why::Limit);
            return After::On;
        }
        if jumps || passes_on {
            self.listing.leads.insert(rule);
        }
        if body.log && (jumps || passes_on) {
            self.entry(cond, &Verdict::Continue, step);
        }
        match *verdict {
            Verdict::Jump(_) | Verdict::Goto(_) if at.depth >= DEEPEST => {
                self.hole(rule, Why::TooDeep);
                After::On
            }
            Verdict::Jump(chain) => {
                let inner = At { chain, from: 0, base: at.base, depth: at.depth + 1 };
                match self.chain(inner, cond, Some(after)) {
                    Ending::Falls => After::On,
                    Ending::Decided => After::Decided,
                }
            }
            Verdict::Goto(chain) => {
                let inner = At { chain, from: 0, base: at.base, depth: at.depth + 1 };
                match self.chain(inner, cond, after.then) {
                    Ending::Decided => After::Decided,
                    Ending::Falls => self.leave(at, cond, after, stays),
                }
            }
            Verdict::Return => self.leave(at, cond, after, stays),
            Verdict::Accept if passes_on => {
                self.base(at.base + 1, at.depth + 1, cond);
                After::Decided
            }
            Verdict::Continue if !body.log => After::On,
            Verdict::Continue | Verdict::Clamp => {
                self.entry(cond, verdict, step);
                After::On
            }
            Verdict::Accept | Verdict::Drop | Verdict::Reject(_) | Verdict::Translate(_) => {
                self.entry(cond, verdict, step);
                After::Decided
            }
        }
    }

    /// Packets that leave the chain here: where others stay, what comes next is written out for these.
    fn leave(&mut self, at: At, cond: &Cond, after: &Next<'_>, stays: bool) -> After {
        if stays {
            self.carry_on(at.base, at.depth + 1, cond, after.then);
        }
        After::Out
    }

    fn carry_on(&mut self, base: usize, depth: usize, cond: &Cond, next: Option<&Next<'_>>) {
        if depth > 2 * DEEPEST {
            self.listing.cut = true;
            return;
        }
        match next {
            None => self.policy(base, depth, cond),
            Some(next) => {
                let at = At { chain: next.chain, from: next.from, base, depth };
                if self.chain(at, cond, next.then) == Ending::Falls {
                    self.carry_on(base, depth + 1, cond, next.then);
                }
            }
        }
    }

    fn base(&mut self, base: usize, depth: usize, cond: &Cond) {
        let at = At { chain: self.bases[base].chain, from: 0, base, depth };
        if self.chain(at, cond, None) == Ending::Falls {
            self.policy(base, depth, cond);
        }
    }

    fn policy(&mut self, base: usize, depth: usize, cond: &Cond) {
        let verdict = if self.bases[base].drops {
            Verdict::Drop
        } else if base + 1 < self.bases.len() {
            return self.base(base + 1, depth + 1, cond);
        } else {
            Verdict::Accept
        };
        let what = What::Do(verdict);
        self.listing.entries.push(Entry { cond: cond.clone(), what, limit: None, log: false, rule: None });
    }

    fn entry(&mut self, cond: &Cond, verdict: &Verdict, step: &Step<'_>) {
        self.weight += cond.weight();
        self.listing.entries.push(Entry {
            cond: cond.clone(),
            what: What::Do(verdict.clone()),
            limit: step.body.limit,
            log: step.body.log,
            rule: Some(step.rule),
        });
    }

    fn hole(&mut self, rule: usize, why: Why) {
        let entry =
            Entry { cond: Cond::default(), what: What::Hole(why), limit: None, log: false, rule: Some(rule) };
        self.listing.entries.push(entry);
    }
}

/// One rule, one of its ways.
struct Step<'a> {
    rule: usize,
    body: &'a Body,
    verdict: &'a Verdict,
    /// Whether other packets go on to further rules of the chain.
    stays: bool,
}

/// What became of the packets of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// They go on to the next rule of the chain.
    On,
    /// They have left the chain.
    Out,
    /// They are decided.
    Decided,
}
