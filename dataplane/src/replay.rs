//! The replay host: what would this policy do to this traffic?
//!
//! Frames come with the moment at which they were captured, and time is theirs: the same frames give the same
//! bytes. Neighbours that nobody told are assumed, so that every packet that is forwarded can be seen.

use tally::{NoTally, Tally};
use wire::{BATCH, Batch, Frame, Nanos, Pool, PoolError, PortId};

use crate::change::{Change, ChangeError, OutOfTurn};
use crate::hop::{MOST_WAITING, Resolve};
use crate::nat::Share;
use crate::pipeline::{Pipeline, Watch};
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

/// Slots beyond those that queues and waiting fragments can hold.
const SLOTS: u32 = 1_024;

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
    /// When the last frame was received.
    moment: Nanos,
    /// Frames received since the queues were emptied.
    since: usize,
    /// Length of the queues of these tables, against a batch.
    queues: Queues,
}

/// How long queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    /// A batch may not fit.
    Short,
    /// Whatever a batch comes to fits.
    Long,
}

impl Queues {
    fn of(tables: &Tables) -> Queues {
        let least = tables.interfaces.iter().map(|interface| interface.mtu).min().unwrap_or(0);
        // What the largest frame is cut into behind the longest IPv4 header, in units of eight bytes; an answer, and a segment
        // that goes to the other side with it.
        let part = usize::from(least.saturating_sub(60) / 8 * 8).max(8);
        let most = BATCH * (SLOT.div_ceil(part) + 2);
        if most <= tables.limits.queue as usize { Queues::Long } else { Queues::Short }
    }
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
    /// A frame leaves by a port. `verdict` is `None` for further parts of a packet that was cut.
    fn sent(&mut self, port: PortId, frame: &Frame, verdict: Option<Verdict>);

    /// A frame ended here: dropped or delivered.
    fn ended(&mut self, frame: &Frame, verdict: Verdict);
}

/// Nobody is told.
impl Witness for () {
    fn sent(&mut self, _: PortId, _: &Frame, _: Option<Verdict>) {}
    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

/// Why a replay could not begin.
#[derive(Debug)]
pub enum ReplayError {
    /// The shard could not be made.
    Shard(ShardError),
    /// The frame pool could not be made.
    Pool(PoolError),
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Shard(error) => error.fmt(f),
            ReplayError::Pool(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Why a replay goes on with the tables that it had.
#[derive(Debug)]
pub enum ReloadError {
    /// The change could not be prepared.
    Change(ChangeError),
    /// It is not for this replay.
    OutOfTurn(OutOfTurn),
}

impl std::fmt::Display for ReloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReloadError::Change(error) => error.fmt(f),
            ReloadError::OutOfTurn(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReloadError {}

impl Replay {
    /// A gateway that has seen nothing yet. `start` is the moment of the first frame.
    pub fn new(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::Assume)
    }

    /// A gateway that knows only the neighbours that it is told of, as a live one does
    /// ([`Shard::learn`](crate::Shard::learn)): packets wait for others.
    pub fn told(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::Told)
    }

    fn with(tables: Tables, start: Nanos, way: Way, resolve: Resolve) -> Result<Replay, ReplayError> {
        let setup = Setup { seed: SEED, now: start, resolve, share: Share::WHOLE };
        let shard = Shard::new(&tables, setup).map_err(ReplayError::Shard)?;
        let waiting = if resolve == Resolve::Told { MOST_WAITING } else { 0 };
        let slots = SLOTS + tables.limits.fragments.held + waiting;
        let queues = Queues::of(&tables);
        Ok(Replay {
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
            queues,
        })
    }

    /// Takes in a frame that was received by the interface `ingress` at `at`. `number` is the caller's, by
    /// which it knows the frame again. What is known by then is told to `witness`.
    ///
    /// Frames of one moment, up to a batch of them, fill queues together. When time goes on they leave: how frames are put into
    /// batches makes no difference.
    pub fn receive(
        &mut self,
        ingress: PortId,
        at: Nanos,
        number: u32,
        bytes: &[u8],
        witness: &mut impl Witness,
    ) {
        // Of what waits many may come free with one frame.
        let fills = self.queues == Queues::Short || self.shard.counters.held > 0;
        if self.since >= BATCH || fills && at != self.moment {
            self.flush(witness);
        }
        self.moment = at;
        self.since += 1;
        let Some(mut frame) = self.pool.take() else {
            self.shard.counters.count_refused(bytes.len(), Reason::SlotTooSmall);
            return;
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
    /// through before. Flows are judged again at their next packets; `tables` are numbered as those
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
        self.flush(witness);
        let next = tables.after(&self.tables);
        let setup = Setup { now: at, ..self.setup };
        let change = Change::prepare(&self.tables, &next, setup).map_err(ReloadError::Change)?;
        self.shard.apply(change, &next, at, &mut self.ended).map_err(ReloadError::OutOfTurn)?;
        self.tables = next;
        self.queues = Queues::of(&self.tables);
        // What ends or comes free by it does so now, not with the next frame.
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.tend(at, &mut self.ended, &mut cx);
        self.tell(witness);
        Ok(())
    }

    /// Addresses an answer as its sender would have, had it been on the far side of this gateway: captures that
    /// were taken inside show answers addressed to the inside host, while the far end knows only the translation
    /// of the flow. Says whether `bytes` were changed. Frames that were received count as passed.
    pub fn readdress(&mut self, bytes: &mut [u8], witness: &mut impl Witness) -> Readdressed {
        self.pass(witness);
        readdress::readdress(&self.tables, &self.shard.flows, bytes)
    }

    /// Takes all frames that were received so far through the pipeline. Those that leave are in queues until time goes on, or
    /// [`Replay::flush`].
    pub fn pass(&mut self, witness: &mut impl Witness) {
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        match self.way {
            Way::Run => self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx),
            Way::Step => self.pipeline.step(&mut self.batch, &mut self.ended, &mut cx),
        }
        self.tell_ended(witness);
    }

    /// Takes all frames that were received so far through the pipeline, and out.
    pub fn flush(&mut self, witness: &mut impl Witness) {
        self.flush_tallied(witness, &mut NoTally);
    }

    /// [`Replay::flush`], with an account of what it costs.
    pub fn flush_tallied<T: Tally>(&mut self, witness: &mut impl Witness, tally: &mut T) {
        let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally };
        match self.way {
            Way::Run => self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx),
            Way::Step => self.pipeline.step(&mut self.batch, &mut self.ended, &mut cx),
        }
        self.tell(witness);
    }

    /// [`Replay::flush_tallied`], frame by frame, before the eyes of `watch`.
    pub fn flush_watched<T: Tally>(
        &mut self,
        witness: &mut impl Witness,
        tally: &mut T,
        watch: &mut impl Watch<T>,
    ) {
        let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally };
        self.pipeline.step_watched(&mut self.batch, &mut self.ended, &mut cx, watch);
        self.tell(witness);
    }

    /// Tells of all frames that came out of the pipeline, and takes them back.
    fn tell(&mut self, witness: &mut impl Witness) {
        self.tell_ended(witness);
        for (place, queue) in self.shard.queues.iter_mut().enumerate() {
            while let Some(frame) = queue.pop() {
                // Further parts of a packet that was cut carry no verdict of their own.
                witness.sent(PortId(place as u16), &frame, Verdict::of_fate(frame.meta.fate));
                self.pool.put(frame);
            }
        }
        self.since = 0;
    }

    /// Tells of frames that ended in the pipeline, and takes them back.
    fn tell_ended(&mut self, witness: &mut impl Witness) {
        for frame in self.ended.drain(..) {
            if let Some(verdict) = Verdict::of_fate(frame.meta.fate) {
                witness.ended(&frame, verdict);
            }
            self.pool.put(frame);
        }
    }
}
