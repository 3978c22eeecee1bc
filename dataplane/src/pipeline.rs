//! The order of the stages, and how batches go through them.
//!
//! [`Pipeline::step`] takes the frames of a batch through all stages one after the other. [`Pipeline::run`] does so
//! to the same effect, except that some stages take many frames before the next stage begins: `parse`; where
//! nothing is tracked, `route`, `filter` and `classify`; else the part of `track` that follows flows which have been
//! decided. What these read no later stage changes for the frames behind. Every other packet is taken through all
//! stages by itself, after the packets before it and before the next one is looked at.

use policy::model::Mode;
use tally::Tally;
use wire::{Batch, Frame, Nanos};

use crate::stage::answer::Answer;
use crate::stage::classify::Classify;
use crate::stage::dnat::Dnat;
use crate::stage::filter::Filter;
use crate::stage::parse::Parse;
use crate::stage::queue::{ANSWERED, Queue};
use crate::stage::rewrite::Rewrite;
use crate::stage::route::{Route, awaited};
use crate::stage::snat::Snat;
use crate::stage::track::{Track, datagram, pass_time};
use crate::stage::{Cx, Stage, Step};
use crate::verdict::{Reason, Verdict};

/// The stages. One worker has one pipeline.
#[derive(Default)]
pub struct Pipeline {
    parse: Parse,
    track: Track,
    dnat: Dnat,
    route: Route,
    filter: Filter,
    classify: Classify,
    snat: Snat,
    rewrite: Rewrite,
    answer: Answer,
    queue: Queue,
}

/// Sees a frame before and after each stage that takes it.
pub trait Watch<T: Tally> {
    /// The stage of that name is about to take the frame.
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>);

    /// It has.
    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>);
}

/// Nobody watches.
impl<T: Tally> Watch<T> for () {
    #[inline(always)]
    fn before(&mut self, _: &'static str, _: &Frame, _: &mut Cx<'_, T>) {}
    #[inline(always)]
    fn after(&mut self, _: &'static str, _: &Frame, _: &mut Cx<'_, T>) {}
}

/// A stage and its name.
pub type Named<'a, T> = (&'static str, &'a mut dyn Stage<T>);

/// How many stages there are.
pub const STAGES: usize = 10;

/// Places of all stages.
const ALL: [usize; STAGES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Places of the stages that have something to do where nothing is tracked.
const STATELESS: [usize; 7] = [0, 3, 4, 5, 7, 8, 9];

impl Pipeline {
    /// The stages in their order. Never inlined: who goes over them calls functions, which a profile tells apart
    /// (`bench/tally`).
    #[inline(never)]
    pub fn stages<T: Tally>(&mut self) -> [Named<'_, T>; STAGES] {
        [
            ("parse", &mut self.parse),
            ("track", &mut self.track),
            ("dnat", &mut self.dnat),
            ("route", &mut self.route),
            ("filter", &mut self.filter),
            ("classify", &mut self.classify),
            ("snat", &mut self.snat),
            ("rewrite", &mut self.rewrite),
            ("answer", &mut self.answer),
            ("queue", &mut self.queue),
        ]
    }

    /// Places of the stages that a policy of that mode needs.
    pub fn needed(mode: Mode) -> &'static [usize] {
        match mode {
            Mode::Stateful => &ALL,
            Mode::Stateless => &STATELESS,
        }
    }

    /// Takes a batch through the stages. Frames on their way out are then queued before their ports, until the host
    /// [offers](crate::Shard::next) these opportunities to send; those that
    /// ended here (dropped, delivered, answers to the gateway itself) are in `ended`, in order, with their verdict; the
    /// batch is empty. Among those that ended are those that are another worker's ([`handoff`](crate::handoff)).
    pub fn run<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.resume_before(batch, ended, cx);
        cx.shard.counters.received.count_all(batch);
        Stage::<T>::run(&mut self.parse, batch, cx);
        self.run_parsed(batch, ended, cx);
    }

    /// [`Pipeline::run`], for frames that another worker has handed off ([`handoff`](crate::handoff)): they have been counted
    /// and parsed there.
    pub fn run_taken<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.resume_before(batch, ended, cx);
        cx.shard.counters.taken += batch.len() as u64;
        self.run_parsed(batch, ended, cx);
    }

    #[inline(always)]
    fn run_parsed<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        if cx.tables.mode == Mode::Stateless {
            self.run_stateless(batch, ended, cx);
        } else {
            self.run_stateful(batch, ended, cx);
        }
    }

    #[inline(never)]
    fn run_stateless<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.route.prepare(batch, cx);
        for (place, frame) in batch.iter_mut().enumerate() {
            if frame.meta.fate == 0 {
                self.route.take_prepared(place, frame, cx);
            }
        }
        Stage::<T>::run(&mut self.filter, batch, cx);
        Stage::<T>::run(&mut self.classify, batch, cx);
        for frame in batch.drain() {
            let now = frame.meta.received;
            // Fragments are held here only where the tables before these tracked connections.
            if cx.shard.flows.is_due(now) || cx.shard.fragments.is_due(now) {
                self.finish_late(frame, ended, cx);
            } else {
                self.finish(frame, ended, cx);
            }
        }
    }

    /// [`Pipeline::finish`], where something is due before and may come free by it.
    #[cold]
    fn finish_late<T: Tally>(&mut self, frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        let now = frame.meta.received;
        pass_time(now, cx);
        self.finish(frame, ended, cx);
        self.released(now, ended, cx);
    }

    #[inline(never)]
    fn run_stateful<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.track.prepare(batch, cx);
        let mut frames = batch.take();
        let mut first = 0;
        while frames.len() > 0 {
            let decided = self.track.follow_prepared(first, frames.as_mut_slice(), cx);
            for mut frame in frames.by_ref().take(decided) {
                take(&mut self.route, &mut frame, cx);
                self.finish(frame, ended, cx);
            }
            if let Some(frame) = frames.next() {
                self.alone(frame, ended, cx);
            }
            first += decided + 1;
        }
    }

    /// Takes the frames of a batch through the stages one by one, to the same effect as [`Pipeline::run`].
    pub fn step<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.step_watched(batch, ended, cx, &mut ());
    }

    /// [`Pipeline::step`] before the eyes of `watch`, which sees the frames of the batch, not those that come
    /// free by them.
    pub fn step_watched<T: Tally>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
        watch: &mut impl Watch<T>,
    ) {
        self.resume_before(batch, ended, cx);
        cx.shard.counters.received.count_all(batch);
        for mut frame in batch.drain() {
            let now = frame.meta.received;
            if cx.tables.mode == Mode::Stateless {
                pass_time(now, cx);
            }
            for (name, stage) in self.stages() {
                if stage.takes(&frame) {
                    watch.before(name, &frame, cx);
                    stage.step(&mut frame, cx).settle(&mut frame);
                    watch.after(name, &frame, cx);
                }
            }
            end(frame, ended, cx);
            self.released(now, ended, cx);
        }
    }

    /// Lets time pass without a frame: what has waited for too long, or comes free by what the host has told, goes on or ends,
    /// and so do flows. To be called now and then while nothing is received.
    pub fn tend<T: Tally>(&mut self, now: Nanos, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.released(now, ended, cx);
        pass_time(now, cx);
        self.released(now, ended, cx);
    }

    /// Before a batch, takes what the host has let come free through the stages.
    #[inline(always)]
    fn resume_before<T: Tally>(&mut self, batch: &Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        if cx.shard.released.is_empty() {
            return;
        }
        if let Some(first) = batch.first() {
            self.released(first.meta.received, ended, cx);
        }
    }

    /// The stages from `rewrite` on, for a frame of which all has been decided.
    #[inline(always)]
    fn finish<T: Tally>(&mut self, mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        take(&mut self.rewrite, &mut frame, cx);
        if frame.meta.fate != 0 {
            return self.answered(frame, ended, cx);
        }
        take(&mut self.queue, &mut frame, cx);
        lead(frame, ended, cx);
    }

    /// The stages behind `rewrite`, for a frame that it found not to go on.
    #[cold]
    fn answered<T: Tally>(&mut self, mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        take(&mut self.answer, &mut frame, cx);
        take(&mut self.queue, &mut frame, cx);
        end(frame, ended, cx);
    }

    /// The stages from `track` on, for one frame, and then for those that come free by it.
    #[cold]
    fn alone<T: Tally>(&mut self, frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        let now = frame.meta.received;
        self.through(frame, ended, cx);
        self.released(now, ended, cx);
    }

    /// The stages from `track` on, for the frames that came free by another one, or by what the host has told. Until here
    /// they are held.
    fn released<T: Tally>(&mut self, now: Nanos, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        while let Some(mut frame) = cx.shard.released.pop_front() {
            cx.shard.counters.held = cx.shard.counters.held.saturating_sub(1);
            frame.meta.received = now;
            self.through(frame, ended, cx);
        }
    }

    /// The stages from `track` on, for one frame. By name: [`Pipeline::stages`] would call them through a table, which took
    /// a tenth of what a new flow takes.
    fn through<T: Tally>(&mut self, mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        take(&mut self.track, &mut frame, cx);
        take(&mut self.dnat, &mut frame, cx);
        take(&mut self.route, &mut frame, cx);
        take(&mut self.filter, &mut frame, cx);
        take(&mut self.classify, &mut frame, cx);
        take(&mut self.snat, &mut frame, cx);
        take(&mut self.rewrite, &mut frame, cx);
        take(&mut self.answer, &mut frame, cx);
        take(&mut self.queue, &mut frame, cx);
        end(frame, ended, cx);
    }
}

/// Ends a frame's way through the stages.
fn end<T: Tally>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    // A flow that did not come to be gives back what it holds.
    if frame.meta.flow == u32::MAX {
        cx.shard.abandon();
    }
    const FRAGMENT: u16 = Verdict::Held(Reason::FragmentWaits).to_fate();
    const NEIGHBOUR: u16 = Verdict::Held(Reason::NeighbourWaits).to_fate();
    const OTHERS: u16 = Verdict::Held(Reason::HandedOff).to_fate();
    match frame.meta.fate {
        FRAGMENT => hold(frame, ended, cx),
        OTHERS => {
            cx.shard.counters.given += 1;
            ended.push(frame);
        }
        NEIGHBOUR => wait(frame, ended, cx),
        _ => lead(frame, ended, cx),
    }
}

/// Takes a frame through a stage.
#[inline(always)]
fn take<T: Tally>(stage: &mut impl Stage<T>, frame: &mut Frame, cx: &mut Cx<'_, T>) {
    if stage.takes(frame) {
        stage.step(frame, cx).settle(frame);
    }
}

/// Moves a fragment that has to wait to where it waits.
fn hold<T: Tally>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    if let Some((key, _)) = datagram(&frame, cx) {
        match cx.shard.fragments.hold(&key, frame, cx.tally) {
            Ok(()) => {
                cx.shard.counters.held += 1;
                return;
            }
            Err(back) => frame = back,
        }
    }
    Step::Drop(Reason::FragmentTableFull).settle(&mut frame);
    lead(frame, ended, cx);
}

/// Moves a frame that has to wait for a neighbour to where it waits.
fn wait<T: Tally>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    let (wanted, now) = (awaited(&frame, cx), frame.meta.received);
    while cx.shard.hops.waiting.is_full_for(wanted) && cx.shard.hops.waiting.any().is_some() {
        if let Some(oldest) = cx.shard.hops.waiting.give_way() {
            cx.shard.counters.held = cx.shard.counters.held.saturating_sub(1);
            crowded_out(oldest, ended, cx);
        }
    }
    match cx.shard.hops.waiting.hold(wanted, frame, now) {
        Ok(()) => cx.shard.counters.held += 1,
        Err(frame) => crowded_out(frame, ended, cx),
    }
}

/// Ends a frame that cannot wait for a neighbour.
fn crowded_out<T: Tally>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    Step::Drop(Reason::NeighbourQueueFull).settle(&mut frame);
    lead(frame, ended, cx);
}

/// Counts a frame, and moves it to where its verdict leads.
#[inline(always)]
fn lead<T: Tally>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    let goes_out = frame.meta.fate == Verdict::Forwarded.to_fate() || frame.meta.fate >> 8 == ANSWERED;
    let (port, further) = (frame.meta.egress, frame.meta.parts);
    let queue = if goes_out { cx.shard.egress.port(port) } else { None };
    let Some(queue) = queue else {
        cx.shard.counters.count(&frame);
        ended.push(frame);
        // What is answered to the gateway itself has a port no more than what is dropped.
        for _ in 0..further {
            if let Some(part) = cx.shard.parts.pop_front() {
                cx.pool.put(part);
            }
        }
        return;
    };
    cx.shard.counters.count_queued(&frame);
    queue.push(frame);
    for _ in 0..further {
        queue_part(cx);
    }
}

/// Queues a further fragment of the packet that has just been queued, or what goes to the other side with it.
fn queue_part<T: Tally>(cx: &mut Cx<'_, T>) {
    let Some(part) = cx.shard.parts.pop_front() else { return };
    match cx.shard.egress.port(part.meta.egress).filter(|queue| !queue.is_full()) {
        Some(queue) => queue.push(part),
        None => {
            cx.pool.put(part);
            cx.shard.counters.parts_lost += 1;
        }
    }
}
