//! Processing: the pipeline, the shard and frame pool that it works on, and the tables that it works by.
//!
//! A batch is filled, run, and leaves ended frames; those are another's to deliver, before the next batch.

use std::sync::Arc;

use dataplane::fast_path::Pause;
use dataplane::shard::{Setup, ShardError};
use dataplane::stage::Cx;
use dataplane::tables::{LOCAL, NO_NUMBER, OTHER, Tables};
use dataplane::{Pipeline, Shard};
use tally::NoTally;
use wire::{Batch, Frame, Nanos, Pool, PortId};

use super::capture::{Captures, Form};
use super::handoff::{Exchange, Intake};
use super::link::Origin;
use crate::clock::Clock;

/// Most published flows that a sweep brings up to date: 80,000 a second.
const MOST_SWEPT: usize = 1_600;

/// Most flows that a sweep looks at for a second gateway.
const MOST_LISTED: u32 = 20_000;

/// State of processing.
pub(super) struct Processing {
    pub(super) tables: Arc<Tables>,
    /// Seeds and the share of NAT ports.
    pub(super) setup: Setup,
    pub(super) shard: Shard,
    pub(super) pipeline: Pipeline,
    pub(super) pool: Pool,
    /// Frames to run.
    pub(super) batch: Batch,
    /// Frames that have been run, or that timers have ended, with their verdicts.
    pub(super) ended: Vec<Frame>,
    pub(super) captures: Captures,
    /// Pause of publication that the policy asks for.
    pub(super) pause: Pause,
    /// Latest time passed to the shard, whose time does not go backwards from one port to the next.
    latest: Nanos,
}

impl Processing {
    /// Creates an empty shard for these tables.
    ///
    /// # Errors
    /// No memory for the shard.
    pub(super) fn new(tables: Arc<Tables>, setup: Setup, pool: Pool) -> Result<Processing, ShardError> {
        Ok(Processing {
            shard: Shard::new(&tables, setup)?,
            tables,
            setup,
            pipeline: Pipeline::default(),
            ended: Vec::with_capacity(pool.capacity()),
            pool,
            batch: Batch::new(),
            captures: Captures::default(),
            pause: Pause::No,
            latest: Clock::BEGIN,
        })
    }

    /// Runs a batch that came by the interface at `place`.
    pub(super) fn run_from(&mut self, place: usize, origin: Origin, now: Nanos, clock: Clock) {
        match origin {
            Origin::Port => {
                for frame in self.batch.iter_mut() {
                    frame.meta.ingress = PortId(place as u16);
                    self.latest = clock.of_port(frame.meta.received).min(now).max(self.latest);
                    frame.meta.received = self.latest;
                }
            }
            Origin::Linux => {
                let number = self.number(place);
                for frame in self.batch.iter_mut() {
                    frame.meta.ingress = if unmark(frame) { OTHER } else { LOCAL };
                    // Its VRF.
                    frame.meta.egress = PortId(place as u16);
                    // By which it is found again, after other frames, in other tables, by other workers.
                    frame.meta.number = number;
                    frame.meta.received = now;
                }
                self.latest = now;
            }
        }
        self.run();
    }

    /// Runs a packet of many segments that came by the interface at `place` whole.
    ///
    /// # Errors
    /// The frame as it was: it must be cut.
    pub(super) fn run_whole(
        &mut self,
        mut frame: Frame,
        place: usize,
        origin: Origin,
        now: Nanos,
        clock: Clock,
    ) -> Result<(), Frame> {
        if self.captures.form() == Form::Segments {
            return Err(frame);
        }
        let came = frame.meta.clone();
        let mut is_marked = false;
        match origin {
            Origin::Port => {
                self.latest = clock.of_port(frame.meta.received).min(now).max(self.latest);
                (frame.meta.ingress, frame.meta.received) = (PortId(place as u16), self.latest);
            }
            Origin::Linux => {
                self.latest = now;
                is_marked = unmark(&mut frame);
                frame.meta.ingress = if is_marked { OTHER } else { LOCAL };
                frame.meta.egress = PortId(place as u16);
                (frame.meta.number, frame.meta.received) = (self.number(place), now);
            }
        }
        let Processing { tables, shard, pool, pipeline, ended, captures, .. } = self;
        captures.begin(tables, &shard.egress);
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        let taken = match captures.is_empty() {
            true => pipeline.run_whole(frame, ended, &mut cx, &mut ()),
            false => pipeline.run_whole(frame, ended, &mut cx, &mut captures.watch(tables)),
        };
        captures.finish(ended, shard, tables);
        taken.map_err(|mut frame| {
            frame.meta = came;
            if is_marked {
                mark(&mut frame);
            }
            frame
        })
    }

    fn number(&self, place: usize) -> u32 {
        self.tables.interfaces.get(place).map_or(NO_NUMBER, |interface| interface.number)
    }

    /// Takes what other workers handed off: packets are queued, other frames fill the batch. Returns their number.
    pub(super) fn take_handed_off(&mut self, exchange: &mut Exchange, now: Nanos) -> usize {
        let Processing { tables, shard, pool, batch, captures, .. } = self;
        exchange.collect(pool);
        captures.begin(tables, &shard.egress);
        let marks = &mut captures.marks;
        let found = exchange.take(Intake { batch, pool, tables, shard, marks, now });
        captures.finish(&[], shard, tables);
        captures.marks.clear();
        found
    }

    /// Hands packets off to the workers that serve their queues. Returns the number of those that could not be handed off yet.
    pub(super) fn hand_off(&mut self, exchange: &mut Exchange) -> usize {
        let Processing { tables, shard, captures, .. } = self;
        shard.hand_off(|packet, flows| {
            let mark = captures.mark(&packet.frame, flows, tables);
            exchange.give_to_queue(packet, tables, mark)
        })
    }

    /// Runs a batch that other workers handed off.
    pub(super) fn run_handed_off(&mut self, now: Nanos) {
        let Processing { tables, shard, pool, batch, ended, captures, .. } = self;
        self.latest = now;
        captures.begin(tables, &shard.egress);
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        self.pipeline.run_taken(batch, ended, &mut cx);
        captures.finish(ended, shard, tables);
    }

    /// Runs a batch that the second gateway has handed over, as one that came by the interfaces that its frames name.
    pub(super) fn run_handed_over(&mut self, now: Nanos) {
        self.latest = now;
        self.run();
    }

    /// Publishes flows of the last batches to the kernel.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.shard.publish(&self.tables);
    }

    /// Brings some of the published flows up to date, each 20 ms: all of them within a second, or as many as take well below a tenth of the worker's
    /// time, as each is several cache misses.
    pub(super) fn sweep_published(&mut self, now: Nanos) {
        let most = (self.shard.fast_path.published() / 40).clamp(64, MOST_SWEPT);
        self.shard.sweep_published(most, now);
    }

    /// Lists flows of which a second gateway has not heard for long, where there is one: all are looked at within a second, in turns of 20 ms,
    /// or as many as take well below a tenth of the worker's time.
    pub(super) fn list_refreshes(&mut self, now: Nanos) {
        if self.shard.changes.is_on() {
            let most = (self.shard.flows.used() / 50).clamp(64, MOST_LISTED);
            self.shard.list_refreshes(most, now);
        }
    }

    /// Publishes no flows while there are captures, which are to see all packets.
    pub(super) fn pause_publication(&mut self) {
        let pause = if self.captures.is_empty() { self.pause } else { Pause::Yes };
        self.shard.pause_publication(pause);
    }

    /// Runs timers, and frames that neighbour updates release.
    pub(super) fn tend(&mut self, now: Nanos) {
        let Processing { tables, shard, pool, ended, captures, .. } = self;
        self.latest = now;
        captures.begin(tables, &shard.egress);
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        self.pipeline.tend(now, ended, &mut cx);
        captures.finish(ended, shard, tables);
    }

    fn run(&mut self) {
        if !self.captures.is_empty() {
            return self.run_watched();
        }
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx);
    }

    /// Runs the batch frame by frame, for captures.
    #[cold]
    fn run_watched(&mut self) {
        let Processing { tables, shard, pool, batch, ended, captures, .. } = self;
        captures.begin(tables, &shard.egress);
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        let mut watch = captures.watch(tables);
        self.pipeline.step_watched(batch, ended, &mut cx, &mut watch);
        captures.finish(ended, shard, tables);
    }
}

/// Sets the mark that [`unmark`] clears.
fn mark(frame: &mut Frame) {
    if let Some(byte) = frame.bytes_mut().get_mut(6) {
        *byte |= 1;
    }
}

/// Clears the mark of a frame that Linux forwards rather than originates: the group bit of the link-layer source, which no
/// address of a card has (IEEE 802, 8.2.2). Returns true if the mark was set.
fn unmark(frame: &mut Frame) -> bool {
    let Some(byte) = frame.bytes_mut().get_mut(6) else { return false };
    let is_marked = *byte & 1 != 0;
    *byte &= !1;
    is_marked
}
