//! The replay host: what would this policy do to this traffic?
//!
//! Frames come with the moment at which they were captured, and time is theirs: the same frames give the same
//! bytes at the same moments. What is due by the links' rates departs before the next frame comes in, in that virtual time. Neighbours
//! that are not known are assumed, so that every packet that is forwarded can be seen.

use tally::{NoTally, Tally};
use wire::{BATCH, Batch, Frame, Nanos, Pool, PoolError, PortId};

use crate::egress::Next;
use crate::hop::{MOST_WAITING, Resolve};
use crate::nat::Share;
use crate::pipeline::{Pipeline, Watch};
use crate::reload::{OutOfTurn, PlanError, ReloadPlan};
use crate::shard::{Setup, Shard, ShardError};
use crate::stage::Cx;
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

mod readdress;

pub use readdress::{Readdressed, answered_ends};

/// The seed of every replay.
pub const SEED: [u64; 2] = [0x7769_7265_7261_7465, 1];

/// Bytes of a slot: the largest, so that jumbo frames and most offloaded ones fit.
const SLOT: usize = 16_384;

/// Slots beyond those that queues and waiting fragments can hold: of frames under way.
const SLOTS: u32 = 1_024;

/// Slots for what queues hold, at most: a GiB of memory, of which only what was once needed is taken.
const MOST_QUEUED: u32 = 65_536;

/// A gateway in captured time.
pub struct Replay {
    /// What the policy compiled to.
    pub tables: Tables,
    /// All that it remembers.
    pub shard: Shard,
    pipeline: Pipeline,
    pool: Pool,
    batch: Batch,
    ended: Vec<Frame>,
    way: Way,
    setup: Setup,
    /// The moment that it is: when the last frame was received, or as it was told since.
    moment: Nanos,
    /// Frames of that moment, since ports without a rate were last offered opportunities to send.
    since: usize,
    /// Frames that waited before each port when this was last looked at.
    waiting: Vec<usize>,
    /// Frames that a batch may add to a queue.
    growth: usize,
}

/// Which ports are offered opportunities to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    All,
    /// Those without a rate.
    Unlimited,
}

/// Slots for all that can be held, queued or under way.
fn slots(tables: &Tables, resolve: Resolve) -> u32 {
    let waiting = if resolve == Resolve::ByHost { MOST_WAITING } else { 0 };
    let queued = tables.limits.queue.saturating_mul(tables.interfaces.len() as u32).min(MOST_QUEUED);
    SLOTS + tables.limits.fragments.held + waiting + queued
}

/// Frames that a batch may add to a queue.
fn growth(tables: &Tables) -> usize {
    let least = tables.interfaces.iter().map(|interface| interface.mtu).min().unwrap_or(0);
    // What the largest frame is fragmented into behind the longest IPv4 header, in units of eight bytes; an answer, and a segment
    // that goes to the other side with it.
    let part = usize::from(least.saturating_sub(60) / 8 * 8).max(8);
    BATCH * (SLOT.div_ceil(part) + 2)
}

/// How batches go through the pipeline; the outcome is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// As workers do.
    #[default]
    Run,
    /// As chips do.
    Step,
}

/// What happens to frames is told here, in the order in which it happens.
pub trait Witness {
    /// A frame has been queued before a port.
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let _ = (port, frame);
    }

    /// A frame departs by a port; its transmission begins at `at`. `verdict` is `None` for further fragments of a packet.
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>);

    /// A frame ended here: dropped or delivered.
    fn ended(&mut self, frame: &Frame, verdict: Verdict);

    /// The frame of that number was dropped before it was taken in.
    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        let _ = (number, ingress, reason);
    }
}

/// Nobody is told.
impl Witness for () {
    fn sent(&mut self, _: PortId, _: Nanos, _: &Frame, _: Option<Verdict>) {}
    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

/// Why a replay could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The shard could not be made.
    #[error(transparent)]
    Shard(ShardError),
    /// The frame pool could not be made.
    #[error(transparent)]
    Pool(PoolError),
}

/// Why a replay goes on with the tables that it had.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The reload plan could not be prepared.
    #[error(transparent)]
    Plan(PlanError),
    /// It is not for this replay.
    #[error(transparent)]
    OutOfTurn(OutOfTurn),
    /// Frames for longer queues could not be made.
    #[error(transparent)]
    Pool(PoolError),
}

impl Replay {
    /// A gateway that has seen nothing yet. `start` is the moment of the first frame.
    pub fn new(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::Assume)
    }

    /// A gateway whose neighbours the caller resolves, as a live one's
    /// ([`Shard::update_neighbour`](crate::Shard::update_neighbour)): packets wait for others.
    pub fn resolved_by_host(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::ByHost)
    }

    fn with(tables: Tables, start: Nanos, way: Way, resolve: Resolve) -> Result<Replay, ReplayError> {
        let setup = Setup { seed: SEED, now: start, resolve, share: Share::WHOLE };
        let shard = Shard::new(&tables, setup).map_err(ReplayError::Shard)?;
        let slots = slots(&tables, resolve);
        Ok(Replay {
            growth: growth(&tables),
            tables,
            shard,
            pipeline: Pipeline::default(),
            pool: Pool::new(slots, SLOT).map_err(ReplayError::Pool)?,
            batch: Batch::new(),
            ended: Vec::with_capacity(slots as usize),
            way,
            setup,
            moment: start,
            since: 0,
            waiting: Vec::new(),
        })
    }

    /// Takes in a frame that was received by the interface `ingress` at `at`. `number` is the caller's, by
    /// which it knows the frame again. What is known by then is told to `witness`.
    ///
    /// Frames of one moment fill queues together; a port without a rate takes what waits after each [`BATCH`] of them, as a device does.
    /// What is due departs when time goes on, before the next frame is taken in: how frames are put into batches makes no
    /// difference. Where time goes back, what waits has waited as long as before.
    pub fn receive(
        &mut self,
        ingress: PortId,
        at: Nanos,
        number: u32,
        bytes: &[u8],
        witness: &mut impl Witness,
    ) {
        if at < self.moment {
            self.flush(witness);
            self.shard.egress.set_back(self.moment.since(at));
        } else if self.batch.is_full() || at > self.moment && self.may_overflow() {
            self.advance(at, witness);
        }
        if at != self.moment {
            self.since = 0;
        } else if self.since == BATCH {
            self.pass(witness);
            self.depart_by(at, Only::Unlimited, witness);
            self.since = 0;
        }
        self.since += 1;
        self.moment = at;
        let Some(mut frame) = self.pool.take() else {
            self.shard.counters.count_refused(bytes.len(), Reason::FramePoolEmpty);
            return witness.refused(number, ingress, Reason::FramePoolEmpty);
        };
        let whole = frame.fill(bytes);
        frame.meta.ingress = ingress;
        frame.meta.received = at;
        frame.meta.number = number;
        if !whole {
            // Too large to be taken in: only its head is shown.
            let room = self.pool.slot_bytes() - wire::HEADROOM;
            let _ = frame.fill(bytes.get(..room).unwrap_or(bytes));
            let verdict = Verdict::Dropped(Reason::SlotTooSmall);
            self.pass(witness);
            self.shard.counters.count_refused(bytes.len(), Reason::SlotTooSmall);
            frame.meta.fate = verdict.to_fate();
            witness.ended(&frame, verdict);
            self.pool.put(frame);
            return;
        }
        if let Err(frame) = self.batch.push(frame) {
            self.pool.put(frame);
        }
    }

    /// Goes on with other tables, as a live gateway does when its policy changes: frames that were received so far go
    /// through before. Flows are revalidated at their next packets; `tables` are numbered as those
    /// [after](Tables::after) the ones of before.
    ///
    /// # Errors
    /// The system has not enough memory, or a pool is wrong; then all is as it was.
    pub fn reload(
        &mut self,
        tables: Tables,
        at: Nanos,
        witness: &mut impl Witness,
    ) -> Result<(), ReloadError> {
        self.pass(witness);
        self.depart(at, witness);
        let next = tables.after(&self.tables);
        let setup = Setup { now: at, ..self.setup };
        let plan = ReloadPlan::prepare(&self.tables, &next, setup).map_err(ReloadError::Plan)?;
        let slots = slots(&next, self.setup.resolve);
        let larger = (slots > self.pool.capacity() as u32).then(|| Pool::new(slots, SLOT));
        let larger = larger.transpose().map_err(ReloadError::Pool)?;
        self.shard.apply(plan, &next, at, &mut self.ended).map_err(ReloadError::OutOfTurn)?;
        self.tables = next;
        // Frames of the other pool outlive it.
        if let Some(larger) = larger {
            self.pool = larger;
        }
        self.waiting.clear();
        self.waiting.extend(self.shard.egress.lengths());
        self.growth = growth(&self.tables);
        // Frames that end or are released by it do so now, not with the next frame.
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.tend(at, &mut self.ended, &mut cx);
        self.tell(witness);
        self.depart(at, witness);
        Ok(())
    }

    /// Addresses an answer as its sender would have, had it been on the far side of this gateway: captures that
    /// were taken inside show answers addressed to the inside host, while the far end knows only the translation
    /// of the flow. Says whether `bytes` were changed. Frames that were received count as passed.
    pub fn readdress(&mut self, bytes: &mut [u8], witness: &mut impl Witness) -> Readdressed {
        self.pass(witness);
        readdress::readdress(&self.tables, &self.shard.flows, bytes)
    }

    /// Takes all frames that were received so far through the pipeline. Those that leave are queued until time goes on.
    pub fn pass(&mut self, witness: &mut impl Witness) {
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        match self.way {
            Way::Run => self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx),
            Way::Step => self.pipeline.step(&mut self.batch, &mut self.ended, &mut cx),
        }
        self.tell(witness);
    }

    /// [`Replay::pass`], with an account of what it costs, frame by frame, before the eyes of `watch`.
    pub fn pass_watched<T: Tally + 'static>(
        &mut self,
        witness: &mut impl Witness,
        tally: &mut T,
        watch: &mut impl Watch<T>,
    ) {
        let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally };
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, watch);
        self.tell(witness);
    }

    /// Takes all frames that were received so far through the pipeline, and lets depart what is due before `at`: that is the moment then.
    pub fn advance(&mut self, at: Nanos, witness: &mut impl Witness) {
        self.pass(witness);
        if let Some(before) = at.0.checked_sub(1) {
            self.depart(Nanos(before), witness);
        }
        if at > self.moment {
            self.moment = at;
            self.since = 0;
        }
    }

    /// Takes all frames that were received so far through the pipeline, and ends the moment: what is due by then departs.
    /// What a link has no time for yet stays queued.
    pub fn flush(&mut self, witness: &mut impl Witness) {
        self.pass(witness);
        self.depart(self.moment, witness);
        self.since = 0;
    }

    /// Takes all frames that were received through the pipeline, and lets all depart that is queued: no further frame comes.
    pub fn finish(&mut self, witness: &mut impl Witness) {
        self.pass(witness);
        self.depart(Nanos::MAX, witness);
    }

    /// [`Replay::finish`] for what sets the stage: links are then free, as if nothing had been sent.
    pub fn drain(&mut self, witness: &mut impl Witness) {
        self.finish(witness);
        self.shard.egress.free_links();
    }

    /// Lets depart what is due by `now`, and takes it back.
    fn depart(&mut self, now: Nanos, witness: &mut impl Witness) {
        self.depart_by(now, Only::All, witness);
    }

    fn depart_by(&mut self, now: Nanos, only: Only, witness: &mut impl Witness) {
        self.waiting.clear();
        for port in (0..self.shard.egress.ports() as u16).map(PortId) {
            if only == Only::Unlimited && self.shard.egress.has_rate(port) {
                continue;
            }
            while let Next::Frame(frame, at) = self.shard.next(port, now) {
                witness.sent(port, at, &frame, Verdict::of_fate(frame.meta.fate));
                self.pool.put(frame);
            }
        }
        self.waiting.extend(self.shard.egress.lengths());
    }

    /// True if a queue may overflow before the batch is full, by frames that would have found room after what was due before them.
    fn may_overflow(&self) -> bool {
        let waiting = self.waiting.iter().max().map_or(0, |most| *most);
        // Of what is held many may be released by one frame.
        self.shard.counters.held > 0 || waiting + self.growth > self.tables.limits.queue as usize
    }

    /// Tells of frames that ended in the pipeline, and takes them back; then of those that were queued.
    fn tell(&mut self, witness: &mut impl Witness) {
        for frame in self.ended.drain(..) {
            if let Some(verdict) = Verdict::of_fate(frame.meta.fate) {
                witness.ended(&frame, verdict);
            }
            self.pool.put(frame);
        }
        self.waiting.resize(self.shard.egress.ports(), 0);
        for (port, before) in (0..).map(PortId).zip(&mut self.waiting) {
            for frame in self.shard.egress.queued_behind(port, *before) {
                witness.queued(port, frame);
                *before += 1;
            }
        }
    }
}
