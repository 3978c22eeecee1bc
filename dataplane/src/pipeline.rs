//! The order of the stages, and how batches go through them.
//!
//! [`Pipeline::step`] takes one frame through all stages; [`Pipeline::run`] takes a batch, stage by stage, to
//! the same effect. That they agree rests on two facts. Packets of flows that have been decided only read
//! what later stages share, so that their stages may be interleaved; and every other packet is taken
//! through all stages by itself, after the packets before it and before the next one is looked at.

use std::mem;

use policy::model::Mode;
use tally::Tally;
use wire::{Batch, Frame};

use crate::stage::answer::Answer;
use crate::stage::classify::Classify;
use crate::stage::dnat::Dnat;
use crate::stage::filter::Filter;
use crate::stage::parse::Parse;
use crate::stage::queue::{ANSWERED, Queue};
use crate::stage::rewrite::Rewrite;
use crate::stage::route::Route;
use crate::stage::snat::Snat;
use crate::stage::track::{Track, datagram};
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

/// Places of the stages that have something to do for packets of flows that have been decided; the others
/// would let each of them pass.
const DECIDED: [usize; 4] = [3, 7, 8, 9];

/// Places of the stages that have something to do where nothing is tracked.
const STATELESS: [usize; 7] = [0, 3, 4, 5, 7, 8, 9];

/// Places of all stages.
const ALL: [usize; STAGES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

impl Pipeline {
    /// The stages in their order.
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

    /// Takes a batch through the stages. Frames on their way out are then in the shard's queues; those that
    /// ended here (dropped, delivered) are in `ended`, in order, with their verdict; the batch is empty.
    pub fn run<T: Tally>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        for frame in batch.iter() {
            cx.shard.counters.received.count(frame.len());
        }
        if cx.tables.mode == Mode::Stateless {
            let stages = self.stages();
            for place in STATELESS {
                stages[place].1.run(batch, cx);
            }
        } else {
            self.run_stateful(batch, cx);
        }
        collect(batch, ended, cx);
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
        for place in 0..batch.len() {
            cx.shard.counters.received.count(batch[place].len());
            self.alone(&mut batch[place], 0, cx, watch);
            self.free(place, cx);
        }
        collect(batch, ended, cx);
    }

    fn run_stateful<T: Tally>(&mut self, frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        Stage::<T>::run(&mut self.parse, frames, cx);
        self.track.prepare(frames, cx);
        let mut first = 0;
        for place in 0..frames.len() {
            let frame = &mut frames[place];
            if frame.meta.fate != 0 || self.track.follow_prepared(place, frame, cx) {
                continue;
            }
            self.together(&mut frames[first..place], cx);
            self.alone(&mut frames[place], 1, cx, &mut ());
            self.free(place, cx);
            first = place + 1;
        }
        self.together(&mut frames[first..], cx);
    }

    /// The stages after `track`, for frames whose flow has been decided.
    fn together<T: Tally>(&mut self, frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        if frames.is_empty() {
            return;
        }
        let stages = self.stages();
        for place in DECIDED {
            stages[place].1.run(frames, cx);
        }
    }

    /// The stages from the one at `first` on, for one frame.
    fn alone<T: Tally>(
        &mut self,
        frame: &mut Frame,
        first: usize,
        cx: &mut Cx<'_, T>,
        watch: &mut impl Watch<T>,
    ) {
        for (name, stage) in self.stages().into_iter().skip(first) {
            if stage.takes(frame) {
                watch.before(name, frame, cx);
                stage.step(frame, cx).settle(frame);
                watch.after(name, frame, cx);
            }
        }
        if frame.meta.fate == Verdict::Held(Reason::FragmentWaits).to_fate() {
            hold(frame, cx);
        }
        // A flow that did not come to be gives back what it holds.
        if frame.meta.flow == u32::MAX {
            cx.shard.abandon();
        }
    }

    /// Takes the frames that came free at the frame at `place` through the stages from `track` on.
    fn free<T: Tally>(&mut self, place: usize, cx: &mut Cx<'_, T>) {
        while let Some(mut frame) = cx.shard.released.pop_front() {
            self.alone(&mut frame, 1, cx, &mut ());
            cx.shard.freed.push_back((place, frame));
        }
    }
}

/// Counts the verdicts, and moves the frames to where they lead.
fn collect<T: Tally>(batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    for (place, frame) in batch.drain().enumerate() {
        lead(frame, ended, cx);
        while cx.shard.freed.front().is_some_and(|(behind, _)| *behind == place) {
            if let Some((_, frame)) = cx.shard.freed.pop_front() {
                lead(frame, ended, cx);
            }
        }
    }
}

/// In place of a frame that was moved elsewhere: not a verdict.
const HUSK: u16 = 0x600;

/// Moves a frame that has to wait out of the batch.
fn hold<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    let refused = Step::Drop(Reason::FragmentTableFull);
    let (Some((key, _)), Some(mut husk)) = (datagram(frame, cx), cx.pool.take()) else {
        return refused.settle(frame);
    };
    husk.meta.fate = HUSK;
    let waiting = mem::replace(frame, husk);
    match cx.shard.fragments.hold(&key, waiting, cx.tally) {
        Ok(()) => cx.shard.counters.held += 1,
        Err(back) => {
            let husk = mem::replace(frame, back);
            cx.pool.put(husk);
            refused.settle(frame);
        }
    }
}

/// Moves one frame to where its verdict leads.
#[inline(always)]
fn lead<T: Tally>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    if frame.meta.fate == HUSK {
        return cx.pool.put(frame);
    }
    cx.shard.counters.count(&frame);
    let goes_out = frame.meta.fate == Verdict::Forwarded.to_fate() || frame.meta.fate >> 8 == ANSWERED;
    if !goes_out {
        for _ in 0..frame.meta.parts {
            if let Some(part) = cx.shard.parts.pop_front() {
                cx.pool.put(part);
            }
        }
        ended.push(frame);
        return;
    }
    let (place, further) = (usize::from(frame.meta.egress.0), frame.meta.parts);
    match cx.shard.queues.get_mut(place) {
        Some(queue) => queue.push(frame),
        None => return ended.push(frame),
    }
    for _ in 0..further {
        send_part(place, cx);
    }
}

/// Sends a further part of the packet that has just been sent.
fn send_part<T: Tally>(place: usize, cx: &mut Cx<'_, T>) {
    let Some(part) = cx.shard.parts.pop_front() else { return };
    let queue = &mut cx.shard.queues[place];
    if queue.admit() {
        queue.push(part);
        cx.shard.counters.parts_sent += 1;
    } else {
        cx.pool.put(part);
        cx.shard.counters.parts_lost += 1;
    }
}
