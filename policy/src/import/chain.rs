//! Chains that jump to one another, written out as one list: the form that nftables and iptables share.
//!
//! Each rule of a chain that is jumped to takes on the conditions of the jump. For packets that return early, the rules after
//! the return are written out at that place, so no condition is ever negated. An accept leads to the next chain of the same
//! hook, if there is one. Steps and depth are bounded.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::cond::{Cond, Place};
use super::member::Addition;
use super::note::{Origin, Why};
use super::{IpVersion, MOST_RULES};
use crate::model::{ConnectionLimit, Excess, Helper, MssClamp, NatAction, Rate, RejectWith};
use wire::Dscp;

/// Deepest nesting of jumps; the kernel allows 16.
pub(super) const DEEPEST: usize = 48;

/// Most rules visited, each counted as often as it is reached.
const MOST_STEPS: usize = 10 * MOST_RULES;

/// Most ranges of addresses and ports in one list: large sets, written out often.
const MOST_RANGES: usize = 64 * MOST_RULES;

/// A whole rule set.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) chains: Vec<Vec<usize>>,
    pub(super) rules: Vec<SourceRule>,
}

/// A rule of the source.
#[derive(Debug)]
pub(super) struct SourceRule {
    pub(super) origin: Origin,
    pub(super) text: String,
    /// Label to name the rule by: its comment, or chain and number.
    pub(super) label: String,
    pub(super) body: Result<Body, Why>,
}

/// Body of a rule: alternatives, of which the first that matches decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) ways: Vec<(Cond, Verdict)>,
    pub(super) limit: Option<Limit>,
    pub(super) log: bool,
    /// Addition of each packet that matches, whatever the limit, before the verdict.
    pub(super) adds: Option<Addition>,
    /// Code point that each packet that matches is given, before the verdict.
    pub(super) mark: Option<Dscp>,
}

impl Body {
    /// True if packets that match are more than decided on: they are added to a set, or marked.
    pub(super) fn has_effects(&self) -> bool {
        self.adds.is_some() || self.mark.is_some()
    }
}

/// A limit, and the side of it that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bound: Bound,
    /// True if the excess matches, false if the packets within the limit do.
    pub(super) over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Rate(Rate),
    Connections(ConnectionLimit),
}

/// Verdict on a packet that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Reject(RejectWith),
    /// Jump to the chain with this index, with return.
    Jump(usize),
    /// Jump to the chain with this index, without return.
    Goto(usize),
    Return,
    /// On to the next rule.
    Continue,
    /// Clamping of the MSS; on to the next rule.
    Clamp(MssClamp),
    /// Assignment of a protocol helper to the connection; on to the next rule.
    Help(Helper),
    /// Addition of the source to a dynamic set; on to the next rule.
    Add(Addition),
    /// Code point that the packet is given; on to the next rule.
    Mark(Dscp),
    Translate(NatAction),
}

/// A base chain: one that a hook calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) chain: usize,
    /// IP version of the chain's packets; none for both. Each version has its own chains and chain policies.
    pub(super) version: Option<IpVersion>,
    /// True if the chain's policy is to drop.
    pub(super) drops: bool,
}

impl Base {
    /// True if packets of `version` traverse the chain.
    fn sees(&self, version: IpVersion) -> bool {
        self.version.is_none_or(|only| only == version)
    }
}

/// One entry of the list.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) cond: Cond,
    pub(super) what: What,
    pub(super) limit: Option<Limit>,
    /// Fate of what exceeds the limit of an entry that accepts.
    pub(super) excess: Excess,
    pub(super) log: bool,
    /// True if the entry decides packets of established connections, as happens here without a rule.
    pub(super) settled: bool,
    /// Rule of origin; none for a chain's policy.
    pub(super) rule: Option<usize>,
    /// Protocol helper of the connections that the entry accepts.
    pub(super) helper: Option<Helper>,
    /// Addition of the packets that the entry decides on.
    pub(super) adds: Option<Addition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A verdict: never a jump, goto or return; `Continue` only logs.
    Do(Verdict),
    /// A gap: the rule could not be translated.
    Hole(Why),
}

/// The chains of a hook as one list.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    /// True if packets that no entry decides are dropped.
    pub(super) drops: bool,
    /// Rules that packets reach and that only lead to other chains.
    pub(super) leads: BTreeSet<usize>,
    /// True if the list was truncated.
    pub(super) cut: bool,
}

/// Writes out the chains of a hook, in calling order.
///
/// IPv4 and IPv6 with different chains are written out one by one, and rules common to both are joined again. The packets of
/// `silent`, a version that the source does not mention, are dropped.
pub(super) fn write_out(program: &Program, bases: &[Base], silent: Option<IpVersion>) -> Listing {
    write_out_for(&Cond::default(), program, bases, silent)
}

/// [`write_out`], where all packets of the hook are known to meet a condition.
pub(super) fn write_out_for(
    packets: &Cond,
    program: &Program,
    bases: &[Base],
    silent: Option<IpVersion>,
) -> Listing {
    if silent.is_none() && bases.iter().all(|base| base.version.is_none()) {
        return walk(program, bases, packets);
    }
    let [v4, v6] = [IpVersion::V4, IpVersion::V6].map(|version| {
        let packets = packets.and(&Cond::of(version)).filter(|_| silent != Some(version));
        let Some(packets) = packets else { return Listing { drops: true, ..Listing::default() } };
        let seen: Vec<Base> = bases.iter().filter(|base| base.sees(version)).copied().collect();
        walk(program, &seen, &packets)
    });
    let mut joined = join(v4, v6);
    // A rule for both versions is for the ICMP of one of them: where that leads elsewhere than the other version does, nothing is left to say.
    let says_so = |rule: usize| {
        let body = program.rules.get(rule).and_then(|rule| rule.body.as_ref().ok());
        body.is_some_and(|body| body.ways.iter().any(|(way, _)| way.is_of_other_icmp()))
    };
    joined.entries.retain(|entry| !entry.cond.is_of_other_icmp() || entry.rule.is_some_and(says_so));
    joined
}

fn walk(program: &Program, bases: &[Base], cond: &Cond) -> Listing {
    let mut walk = Walk { program, bases, listing: Listing::default(), steps: 0, weight: 0 };
    for (index, base) in bases.iter().enumerate() {
        let ending = walk.chain(At { chain: base.chain, from: 0, base: index, depth: 0 }, cond, None);
        walk.listing.drops = ending == Ending::Decided || base.drops;
        if walk.listing.drops {
            break;
        }
    }
    walk.listing
}

/// Joins the lists of both IP versions, keeping the order of each. Entries of one rule that differ in the version alone become
/// one.
fn join(v4: Listing, v6: Listing) -> Listing {
    let mut joined = Listing {
        entries: Vec::with_capacity(v4.entries.len() + v6.entries.len()),
        drops: v4.drops || v6.drops,
        leads: v4.leads.union(&v6.leads).copied().collect(),
        cut: v4.cut || v6.cut,
    };
    let mut places: HashMap<usize, VecDeque<usize>> = HashMap::new();
    for (at, entry) in v6.entries.iter().enumerate() {
        if let Some(rule) = entry.rule {
            places.entry(rule).or_default().push_back(at);
        }
    }
    let mut next = 0;
    for entry in v4.entries {
        let twin = entry.rule.and_then(|rule| {
            let list = places.get_mut(&rule)?;
            while list.front().is_some_and(|&at| at < next) {
                list.pop_front();
            }
            let at = *list.front()?;
            Some((at, entry.twin(&v6.entries[at])?))
        });
        match twin {
            Some((at, twin)) => {
                joined.entries.extend_from_slice(&v6.entries[next..at]);
                joined.entries.push(twin);
                next = at + 1;
            }
            None => joined.entries.push(entry),
        }
    }
    joined.entries.extend_from_slice(&v6.entries[next..]);
    if v4.drops != v6.drops {
        // What one version accepts at its end stands as an entry of its own; the other's drop is the default.
        let version = if v4.drops { IpVersion::V6 } else { IpVersion::V4 };
        joined.entries.push(Entry::deciding(Cond::of(version), Verdict::Accept, None));
    }
    joined
}

impl Entry {
    /// Returns an entry without a limit or a log.
    pub(super) fn deciding(cond: Cond, verdict: Verdict, rule: Option<usize>) -> Entry {
        let what = What::Do(verdict);
        Entry {
            cond,
            what,
            limit: None,
            excess: Excess::Drop,
            log: false,
            settled: false,
            rule,
            helper: None,
            adds: None,
        }
    }

    /// Returns the common entry for this one, of IPv4, and `other`, of IPv6, if only the version differs.
    fn twin(&self, other: &Entry) -> Option<Entry> {
        let same = self.what == other.what
            && self.limit == other.limit
            && self.log == other.log
            && self.rule == other.rule;
        let place = |v4: &Place, v6: &Place| Place {
            v4: v4.v4.clone(),
            v6: v6.v6.clone(),
            name: v4.name.clone().filter(|_| v4.name == v6.name),
        };
        let (mine, theirs) = (&self.cond, &other.cond);
        let (source, destination) =
            (place(&mine.source, &theirs.source), place(&mine.destination, &theirs.destination));
        let erased =
            |cond: &Cond| Cond { source: source.clone(), destination: destination.clone(), ..cond.clone() };
        (same && erased(mine) == erased(theirs)).then(|| Entry { cond: erased(mine), ..self.clone() })
    }
}

struct Walk<'a> {
    program: &'a Program,
    bases: &'a [Base],
    listing: Listing,
    steps: usize,
    weight: usize,
}

/// Position in the chains.
#[derive(Clone, Copy)]
struct At {
    chain: usize,
    from: usize,
    base: usize,
    depth: usize,
}

/// Position at which a packet resumes after a return from a chain.
struct Next<'a> {
    chain: usize,
    from: usize,
    then: Option<&'a Next<'a>>,
}

/// Fate of a chain's packets at its end: falling through, or all decided.
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
        let first = body.adds.clone().map(Verdict::Add).into_iter().chain(body.mark.map(Verdict::Mark));
        for verdict in first {
            self.entry(cond, &verdict, &Step { body: &Body::default(), ..*step });
        }
        let jumps = matches!(verdict, Verdict::Jump(_) | Verdict::Goto(_) | Verdict::Return);
        let passes_on = *verdict == Verdict::Accept && at.base + 1 < self.bases.len();
        if body.limit.is_some() && (jumps || passes_on) {
            let refusal = match *verdict {
                Verdict::Jump(chain) | Verdict::Goto(chain) => self.refusal(chain, cond),
                _ => None,
            };
            match refusal {
                Some(refusal) => self.entry(cond, &refusal, step),
                None => self.hole(rule, Why::Limit),
            }
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
            Verdict::Continue | Verdict::Clamp(_) | Verdict::Help(_) | Verdict::Add(_) | Verdict::Mark(_) => {
                self.entry(cond, verdict, step);
                After::On
            }
            Verdict::Accept | Verdict::Drop | Verdict::Reject(_) | Verdict::Translate(_) => {
                self.entry(cond, verdict, step);
                After::Decided
            }
        }
    }

    /// Verdict of a chain that only refuses packets of `cond`, after logging perhaps.
    fn refusal(&mut self, chain: usize, cond: &Cond) -> Option<Verdict> {
        let program = self.program;
        let mut logs = Vec::new();
        for &rule in program.chains.get(chain)? {
            let body = program.rules[rule].body.as_ref().ok().filter(|body| !body.has_effects())?;
            if body.ways.iter().all(|(_, verdict)| *verdict == Verdict::Continue) {
                logs.extend(body.log.then_some(rule));
                continue;
            }
            let [(way, verdict @ (Verdict::Drop | Verdict::Reject(_)))] = body.ways.as_slice() else {
                return None;
            };
            if body.limit.is_some() || body.log || !cond.is_within(way) {
                return None;
            }
            self.listing.leads.insert(rule);
            for rule in logs {
                self.hole(rule, Why::Log);
            }
            return Some(verdict.clone());
        }
        None
    }

    /// Lets packets leave the chain here: if others stay, the rules that follow are written out for the leaving ones.
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
        self.listing.entries.push(Entry::deciding(cond.clone(), verdict, None));
    }

    fn entry(&mut self, cond: &Cond, verdict: &Verdict, step: &Step<'_>) {
        self.weight += cond.weight();
        let entry = Entry::deciding(cond.clone(), verdict.clone(), Some(step.rule));
        self.listing.entries.push(Entry { limit: step.body.limit, log: step.body.log, ..entry });
    }

    fn hole(&mut self, rule: usize, why: Why) {
        let entry = Entry::deciding(Cond::default(), Verdict::Continue, Some(rule));
        self.listing.entries.push(Entry { what: What::Hole(why), ..entry });
    }
}

/// One alternative of a rule.
struct Step<'a> {
    rule: usize,
    body: &'a Body,
    verdict: &'a Verdict,
    /// True if other packets go on to further rules of the chain.
    stays: bool,
}

/// Fate of the packets of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// On to the next rule of the chain.
    On,
    /// Out of the chain.
    Out,
    /// Decided.
    Decided,
}
