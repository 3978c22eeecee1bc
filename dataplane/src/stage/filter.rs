//! `filter`: may it pass?
//!
//! The first rule that matches decides, else the default action of the zone pair. Only the first packet of a
//! flow comes here, and every packet where the policy is stateless. Packets of the gateway itself may pass; packets that Linux
//! forwards from interfaces outside the policy meet the rules that name their zone. Changes no byte. A router that accepts
//! everything needs no such stage.

use arrayvec::ArrayVec;
use lookup::classify::{self, Header, NO_MATCH};
use policy::model::{Action, Logging, Mode, Rate, RejectWith, Scope, SynAnswer};
use tally::{Op, Region, Tally};
use wire::header::Protocol;
use wire::meta::Fields;
use wire::tcp::Flags;
use wire::{BATCH, Frame, Part};

use super::log::note_hit;
use super::{About, Cx, Packets, Stage, Step, header, helper, take};
use crate::explain::Membership;
use crate::flag;
use crate::hop::LOCAL_HOP;
use crate::limiter;
use crate::opening::Opening;
use crate::port_mapping;
use crate::tables::{Address, FilterRule, LOCAL, OTHER, PatternRule, SetAddition, Tables};
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter;

impl Stage for Filter {
    const ABOUT: About = About {
        name: "filter",
        asks: "May it pass?",
        reads: Fields::SEEN.and(Fields::RECEIVED).and(Fields::OPENING).and(Fields::HOP).and(Fields::EGRESS),
        writes: Fields::RULE.and(Fields::OPENING),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.filter.accepts_all() {
            Packets::None
        } else if tables.mode == Mode::Stateful {
            Packets::First
        } else {
            Packets::Every
        }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        let decided = frame.meta.flags & (flag::HIT | flag::OWN);
        frame.meta.fate == 0 && (decided == 0 || decided == flag::OWN && frame.meta.ingress == OTHER)
    }

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        if cx.tables.filter.has_helpers {
            if let Some(rule) = helper::rule_of(frame, cx) {
                return accept_related(frame, rule, cx);
            }
        }
        if cx.tables.filter.rule_of.is_empty() {
            // Without rules the zones alone decide: two interfaces by place and bound, 10; the action, 5.
            cx.tally.instructions(15);
            cx.tally.execute(Op::Branch, 6);
            let (from, to) = header::zones(frame, cx);
            return by_default(frame, from, to, cx);
        }
        search(frame, cx)
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        // The first packets of flows come one by one: what has been decided of each lies in the shard until it is written
        // down. Without flows all are searched for together.
        // Nor can those behind one that adds to a set be told from what it finds.
        let has_additions = cx.tables.set_questions.has_additions;
        if cx.tables.mode == Mode::Stateful || cx.tables.filter.rule_of.is_empty() || has_additions {
            for frame in frames {
                take::<Filter, T>(frame, cx);
            }
            return;
        }
        for frames in frames.chunks_mut(BATCH) {
            search_together(frames, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        // This stage, 48; limits, 16; the class of a MAC address, a loop, 20; and the search.
        let class = if tables.source_macs.is_some() { 20 } else { 0 };
        let sets = if tables.set_questions.are_watched() { header::SETS } else { 0 };
        // An addition, 90.
        let additions = if tables.set_questions.has_additions { 90 } else { 0 };
        64 + class + sets + additions + tables.filter.search.classifier.program()
    }
}

/// Accepts a connection that a control connection has announced, by the rule of that one.
#[inline(never)]
fn accept_related<T: Tally>(frame: &mut Frame, rule: u32, cx: &mut Cx<'_, T>) -> Step {
    cx.tally.instructions(12);
    cx.tally.atomic(Region::Counter, rule as usize * 16, 16);
    frame.meta.rule = rule;
    Step::Next
}

/// Searches the rules for up to a batch of frames at a time.
fn search_together<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    let mut headers: ArrayVec<Header, BATCH> = ArrayVec::new();
    for frame in frames.iter().filter(|frame| Filter::takes(frame)) {
        let mut seen = header::of(frame, cx);
        header::ask_sets(&mut seen, cx.tables.set_questions.of_rules, frame.meta.received, cx);
        headers.push(seen);
    }
    let mut positions = [NO_MATCH; BATCH];
    cx.tables.filter.search.classifier.classify_bulk(&headers, &mut positions[..headers.len()]);
    let found = headers.iter().zip(positions);
    let taken = frames.iter_mut().filter(|frame| Filter::takes(frame));
    for (frame, (seen, position)) in taken.zip(found) {
        tell_header(cx);
        classify::tell(cx.tables.filter.search.classifier.as_ref(), seen, cx.tally);
        let rule = cx.tables.filter.rule_of.get(position as usize).copied();
        apply(frame, rule, seen, cx).settle(frame);
    }
}

/// Searches the rules.
fn search<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let seen = seen(frame, cx);
    tell_header(cx);
    let rule = cx.tables.filter.find(&seen, cx.tally);
    apply(frame, rule, &seen, cx)
}

/// Header of a packet as rules see it.
#[inline(always)]
fn seen<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Header {
    let mut seen = header::routed(frame, cx);
    header::ask_sets(&mut seen, cx.tables.set_questions.of_rules, frame.meta.received, cx);
    seen
}

/// Applies the rule found: most accept, and that is all.
#[inline(always)]
fn apply<T: Tally>(frame: &mut Frame, rule: Option<PatternRule>, seen: &Header, cx: &mut Cx<'_, T>) -> Step {
    // Whether one was found, 1; its word by place and bound, 4; the place without the bit, and the step, 3.
    cx.tally.instructions(8);
    cx.tally.execute(Op::Branch, 3);
    match rule {
        Some(rule) if rule.is_plain() => {
            frame.meta.rule = rule.place();
            cx.tally.atomic(Region::Counter, rule.place() as usize * 16, 16);
            Step::Next
        }
        other => apply_whole(frame, other.map(PatternRule::place), seen, cx),
    }
}

/// [`apply`] for rules that do not just accept, and where none was found.
#[inline(never)]
fn apply_whole<T: Tally>(frame: &mut Frame, place: Option<u32>, seen: &Header, cx: &mut Cx<'_, T>) -> Step {
    // The rule by place and bound, its action and limits, 12.
    cx.tally.instructions(12);
    cx.tally.execute(Op::Branch, 6);
    let place = behind_rates(frame, place, seen, cx);
    let step = decide(frame, place, seen, cx);
    note_hit(place, seen, step, frame, cx);
    step
}

/// The rule that decides on a packet for which `place` was found: rules whose rate is a condition let it go on to the next rules.
fn behind_rates<T: Tally>(
    frame: &Frame,
    mut place: Option<u32>,
    seen: &Header,
    cx: &mut Cx<'_, T>,
) -> Option<u32> {
    let mut passed = 0;
    loop {
        let rule = cx.tables.filter.rules.get(place? as usize)?;
        let Some(rate) = rule.rate.as_ref().filter(|_| rule.rate_bit != 0) else { return place };
        // What has waited for a neighbour has been admitted before.
        let is_within =
            frame.meta.flags & flag::WAITED != 0 || is_within(place?, rule, rate, seen, frame, cx);
        if is_within == (rule.action == Action::Accept) {
            return place;
        }
        // By the bit this rule is not found again.
        passed |= rule.rate_bit;
        let header = Header { sets: seen.sets | passed, ..*seen };
        place = cx.tables.filter.find(&header, cx.tally).map(PatternRule::place);
    }
}

/// Takes a token of a rule's rate, if there is one.
fn is_within<T: Tally>(
    place: u32,
    rule: &FilterRule,
    rate: &Rate,
    seen: &Header,
    frame: &Frame,
    cx: &mut Cx<'_, T>,
) -> bool {
    let source = Address { bits: seen.source, v6: seen.family == wire::Family::V6 };
    let vrf = cx.tables.vrf_number(cx.tables.vrf_of(frame.meta.ingress));
    cx.tally.atomic(Region::Meter, place as usize * 8, 8);
    let subject = limiter::subject_in(vrf, source, rule.meter);
    let hash = cx.shard.flows.hash(&subject, cx.tally);
    cx.shard.limiter.admits(place, rate, &subject, hash, frame.meta.received)
}

/// Tells what the header took that rules see.
#[inline(always)]
fn tell_header<T: Tally>(cx: &mut Cx<'_, T>) {
    // Opening, family and next hop of the frame, and whether MAC addresses are asked for, 11; the packet by place and bound, and its two
    // addresses, 11; two zones by place and bound, 10; six other fields, 6; the header's words, 20.
    cx.tally.instructions(58);
    cx.tally.execute(Op::Branch, 9);
    if let Some(macs) = &cx.tables.source_macs {
        header::tell_class(macs, cx.tally);
    }
}

/// Decides on a packet as the stage would, where that takes no token and no count, makes no record and answers nobody; else `None`. Changes
/// nothing but the frame's metadata.
pub(crate) fn foresee<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<Step> {
    if !Filter::takes(frame) {
        return Some(Step::Next);
    }
    let filter = &cx.tables.filter;
    let seen = seen(frame, cx);
    let found = if filter.rule_of.is_empty() { None } else { filter.find(&seen, cx.tally) };
    let place = found.map(PatternRule::place);
    if let Some(rule) = place.and_then(|place| filter.rules.get(place as usize)) {
        let is_counted = rule.rate.is_some() || rule.connections.is_some() || rule.adds.is_some();
        let is_logged = rule.log == Logging::On && cx.shard.log.wants_rules();
        if is_counted || is_logged || rule.syn == SynAnswer::Proxy {
            return None;
        }
    }
    let step = decide(frame, place, &seen, cx);
    matches!(step, Step::Next | Step::Drop(_)).then_some(step)
}

/// The dynamic sets that a packet's addresses are in, of those that rules ask for; none where no rule is asked.
pub(crate) fn memberships<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Vec<Membership> {
    if !Filter::takes(frame) {
        return Vec::new();
    }
    header::memberships(header::routed(frame, cx), cx.tables.set_questions.of_rules, frame.meta.received, cx)
}

/// True if the rules, or the default of the zone pair, accept a packet, rates and limits apart. Counts nothing.
#[cold]
pub(super) fn accepts<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
    let seen = seen(frame, cx);
    let filter = &cx.tables.filter;
    let place = if filter.rule_of.is_empty() { None } else { filter.find_within_rates(&seen, cx.tally) };
    match place.and_then(|place| filter.rules.get(place.place() as usize)) {
        Some(rule) => rule.action == Action::Accept,
        None => filter.default_action(seen.from, seen.to) == Action::Accept,
    }
}

/// Applies the rule found, with its rate and connection limits, or the default action if there is none.
fn decide<T: Tally>(frame: &mut Frame, place: Option<u32>, seen: &Header, cx: &mut Cx<'_, T>) -> Step {
    let Some(place) = place else { return by_default(frame, seen.from, seen.to, cx) };
    frame.meta.rule = place;
    let Some(rule) = cx.tables.filter.rules.get(place as usize) else {
        return Step::Drop(Reason::RuleDrop);
    };
    cx.tally.atomic(Region::Counter, place as usize * 16, 16);
    let is_across = cx.shard.openings.of(&frame.meta).is_some_and(Opening::is_across);
    if rule.action == Action::Accept && rule.syn == SynAnswer::Proxy && !is_across {
        if let Some(step) = by_proxy(frame, cx) {
            return step;
        }
    }
    if let Some(adds) = rule.adds {
        add_source(adds, seen, frame, cx);
    }
    match rule.action {
        Action::Accept => {}
        Action::Drop => return Step::Drop(Reason::RuleDrop),
        Action::Reject(with) => return reject(frame, with, Reason::RuleReject),
    }
    if rule.rate.is_none() && rule.connections.is_none() {
        return Step::Next;
    }
    // What has waited for a neighbour has been admitted before, as has what a rate that is a condition has not let go on.
    let has_token = frame.meta.flags & flag::WAITED != 0 || rule.rate_bit != 0;
    if let Some(rate) = rule.rate.as_ref().filter(|_| !has_token) {
        if !is_within(place, rule, rate, seen, frame, cx) {
            return Step::Drop(Reason::RateLimit);
        }
    }
    if let Some(limit) = rule.connections {
        // A datagram's other fragments open nothing; nor does what is not tracked.
        if frame.meta.flags & flag::OPENS == 0 || frame.meta.part == Part::Later {
            return Step::Next;
        }
        cx.tally.atomic(Region::Meter, place as usize * 8, 8);
        let source = Address { bits: seen.source, v6: seen.family == wire::Family::V6 };
        let vrf = cx.tables.vrf_number(cx.tables.vrf_of(frame.meta.ingress));
        let subject = limiter::subject_in(vrf, source, rule.number);
        let hash = cx.shard.flows.hash(&subject, cx.tally);
        match cx.shard.limiter.count(place, limit.scope, limit.most, &subject, hash) {
            Some(count) => match cx.shard.openings.of_mut(&frame.meta) {
                Some(opening) => opening.count = Some(count),
                None => cx.shard.limiter.uncount(count),
            },
            None => return Step::Drop(Reason::ConnectionLimit),
        }
    }
    Step::Next
}

/// Adds the source of a packet to the set that its rule names. A source that has not acknowledged a cookie where one is asked for may be
/// forged, and does not come here.
#[inline(never)]
fn add_source<T: Tally>(adds: SetAddition, seen: &Header, frame: &Frame, cx: &mut Cx<'_, T>) {
    // What has waited for a neighbour has met its rule before.
    if frame.meta.ingress == LOCAL || frame.meta.flags & flag::WAITED != 0 {
        return;
    }
    // The prefix, its hash and place, 40; the element, its list and its moment, 50.
    cx.tally.instructions(90);
    cx.tally.execute(Op::Branch, 16);
    cx.tally.read(Region::SetTable, 0, 32);
    cx.tally.write(Region::SetTable, 0, 48);
    let source = Address { bits: seen.source, v6: seen.family == wire::Family::V6 };
    cx.shard.sets.add_source(adds.set, source, adds.lasts, frame.meta.received);
}

/// Returns the step for a first TCP packet without a cookie, under a rule with SYN proxy; `None` for all other packets. The
/// gateway's own TCP answers SYNs to the gateway itself; SYNs from Linux get no answer.
#[cold]
fn by_proxy<T>(frame: &Frame, cx: &Cx<'_, T>) -> Option<Step> {
    let is_tcp = frame.meta.protocol == Protocol::TCP.0;
    let opens = frame.meta.flags & (flag::OPENS | flag::OWN) == flag::OPENS;
    if !is_tcp || !opens || frame.meta.hop == LOCAL_HOP {
        return None;
    }
    if cx.shard.openings.of(&frame.meta).is_some_and(|opening| opening.cookie.is_some()) {
        return None;
    }
    let is_syn = Flags(frame.meta.tcp_flags).masked(Flags::SYN_ACK) == Flags::SYN;
    // One in fragments, of which no host's TCP makes any, has no options that could be relied on.
    let is_whole = frame.meta.part == Part::Whole;
    Some(if is_syn && is_whole { Step::Answer(Reason::SynProxied) } else { Step::Drop(Reason::FlowNotOpen) })
}

/// The default action of the zone pair.
#[inline(always)]
fn by_default<T: Tally>(frame: &Frame, from: u8, to: u8, cx: &mut Cx<'_, T>) -> Step {
    let action = cx.tables.filter.default_action(from, to);
    // Asked first, or it becomes one of the places of a jump table.
    if action == Action::Accept || is_mapped(frame, cx) {
        return Step::Next;
    }
    match action {
        Action::Accept => Step::Next,
        Action::Drop if frame.meta.ingress == OTHER => Step::Drop(Reason::OtherDrop),
        Action::Drop => Step::Drop(Reason::DefaultDrop),
        Action::Reject(with) => reject(frame, with, Reason::DefaultReject),
    }
}

/// True if a packet is for an outside port that its host has asked for.
#[inline(never)]
fn is_mapped<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
    if cx.tables.nat.port_mappings.is_empty() {
        return false;
    }
    // The opening by its place, 4; a hash, the end by the mapping's number, two words compared, 24.
    cx.tally.instructions(28);
    cx.tally.execute(Op::Branch, 6);
    port_mapping::open_for(frame, cx).is_some()
}

/// Answers a rejected packet, where that kind of packet is answered at all.
pub(super) fn reject(frame: &Frame, with: RejectWith, reason: Reason) -> Step {
    if with == RejectWith::TcpReset && frame.meta.protocol != Protocol::TCP.0 {
        return Step::Drop(reason);
    }
    Step::Answer(reason)
}

/// Counts a flow against its source, where the policy bounds that.
pub(super) fn count_source<T: Tally>(
    frame: &Frame,
    opening: &mut Opening,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let Some(most) = cx.tables.limits.flows_per_source else { return Ok(()) };
    if frame.meta.flags & flag::OWN != 0 {
        return Ok(());
    }
    let vrf = cx.tables.vrf_number(cx.tables.vrf_of(frame.meta.ingress));
    let subject = limiter::subject_in(vrf, opening.source, limiter::ALL_RULES);
    let hash = cx.shard.flows.hash(&subject, cx.tally);
    let count = cx.shard.limiter.count(limiter::ALL_RULES, Scope::Source, most, &subject, hash);
    opening.source_count = Some(count.ok_or(Step::Drop(Reason::FlowLimit))?);
    Ok(())
}
