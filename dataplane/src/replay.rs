//! The replay host: the effect of a policy on captured traffic.
//!
//! Frames carry their time of capture, which is the only clock: the same frames give the same bytes at the same times.
//! Frames due by the links' rates depart, in that virtual time, before the next frame comes in. Neighbours without a
//! link-layer address are given an assumed one, so that every forwarded packet can be seen.

use lookup::memory::Paging;
use tally::{NoTally, Tally};
use wire::{BATCH, Batch, Frame, Nanos, Pool, PoolError, PortId};

use crate::egress::Next;
use crate::fragment::Release;
use crate::hop::{MOST_WAITING, Resolve};
use crate::nat::Share;
use crate::pipeline::{Pipeline, Watch};
use crate::ppp::MOST_OUTGOING;
use crate::reload::{OutOfTurn, PlanError, ReloadPlan};
use crate::shard::{Setup, Shard, ShardError};
use crate::stage::Cx;
use crate::tables::{Tables, vrf};
use crate::verdict::{Reason, Verdict};

mod readdress;

pub use readdress::{Readdressed, answered_ends};

/// The seed of every replay.
pub const SEED: [u64; 2] = [0x7769_7265_7261_7465, 1];

/// Bytes of a slot: the largest, so that jumbo frames and most offloaded ones fit.
const SLOT: usize = 16_384;

/// Slots beyond those that queues and waiting fragments can hold: of frames under way.
const SLOTS: u32 = 1_024;

/// Highest number of slots for queued frames: a GiB of memory, allocated on first use.
const MOST_QUEUED: u32 = 65_536;

/// A gateway in captured time.
pub struct Replay {
    /// Tables compiled from the policy.
    pub tables: Tables,
    /// State: flows, mappings, queues.
    pub shard: Shard,
    pipeline: Pipeline,
    pool: Pool,
    batch: Batch,
    ended: Vec<Frame>,
    way: Way,
    setup: Setup,
    /// Current virtual time: that of the last frame received, or the one set since.
    moment: Nanos,
    /// Frames received at that time, since ports without a rate were last offered opportunities to send.
    since: usize,
    /// Frames queued before each port at the last look.
    waiting: Vec<usize>,
    /// Frames that a batch may add to a queue.
    growth: usize,
}

/// Ports that are offered opportunities to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    All,
    /// Ports without a rate.
    Unlimited,
}

/// Returns the number of slots for all frames that can be held, queued or under way.
fn slots(tables: &Tables, resolve: Resolve) -> u32 {
    let waiting = if resolve == Resolve::ByHost { MOST_WAITING } else { 0 };
    let queued = tables.queues.most_waiting(tables.interfaces.len(), tables.limits.queue).min(MOST_QUEUED);
    SLOTS
        + tables.limits.fragments.held
        + waiting
        + queued
        + (BATCH * tables.most_copies()) as u32
        + keepalives(tables) as u32
        + sessions(tables) as u32
}

/// Returns the number of fragments that may be released while a batch goes through the stages.
fn most_released(tables: &Tables) -> usize {
    tables.limits.fragments.held as usize + BATCH
}

/// Returns the number of frames that a batch may add to a queue.
fn growth(tables: &Tables) -> usize {
    let least = tables.interfaces.iter().map(|interface| interface.mtu).min().unwrap_or(0);
    // What the largest frame is fragmented into behind the longest IPv4 header, in units of eight bytes; an answer, and a segment
    // that goes to the other side with it; and keepalives.
    let part = usize::from(least.saturating_sub(60) / 8 * 8).max(8);
    // Of a packet to a group, copies may leave by VLANs of one port.
    let copies = tables.most_copies().max(1);
    BATCH * copies * (SLOT.div_ceil(part) + 2 + keepalives(tables) + sessions(tables))
}

/// Number of packets that PPP sessions may send at a time.
fn sessions(tables: &Tables) -> usize {
    if tables.sessions.is_empty() { 0 } else { MOST_OUTGOING }
}

/// Number of tunnels with keepalives: of each, one may be due at a time.
fn keepalives(tables: &Tables) -> usize {
    tables.tunnels.list.iter().filter(|tunnel| tunnel.keepalive.is_some()).count()
}

/// Mode of execution of the pipeline; the outcome is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Batch run, as in workers.
    #[default]
    Run,
    /// Single step, as on chips.
    Step,
}

/// Flows that are due to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// There may be more.
    More,
    /// There are none.
    Nothing,
}

/// True if no queue of a port without a rate ever overflows, whatever frames come at one moment.
pub fn has_room_for_bursts(tables: &Tables) -> bool {
    growth(tables) <= tables.limits.queue as usize
}

/// Observer of frames, called in the order of events.
pub trait Witness {
    /// A frame has been queued before a port.
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let _ = (port, frame);
    }

    /// A frame departs by a port; its transmission begins at `at`. `verdict` is `None` for further fragments of a packet.
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>);

    /// A frame ended here: dropped or delivered.
    fn ended(&mut self, frame: &Frame, verdict: Verdict);

    /// A frame was dropped from a queue at `at`, by its scheduler.
    fn ended_at(&mut self, at: Nanos, frame: &Frame, verdict: Verdict) {
        let _ = at;
        self.ended(frame, verdict);
    }

    /// A fragment that was held for the first one of its datagram goes through the stages behind that one; both by their numbers. Told
    /// before what becomes of either.
    fn released(&mut self, number: u32, first: u32) {
        let _ = (number, first);
    }

    /// The frame of that number was dropped before it was taken in.
    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        let _ = (number, ingress, reason);
    }
}

/// Observer that ignores all events.
impl Witness for () {
    fn sent(&mut self, _: PortId, _: Nanos, _: &Frame, _: Option<Verdict>) {}
    fn ended(&mut self, _: &Frame, _: Verdict) {}
}

/// Reason for refusing to begin a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The shard could not be made.
    #[error(transparent)]
    Shard(ShardError),
    /// The frame pool could not be made.
    #[error(transparent)]
    Pool(PoolError),
}

/// Reason for a reload to fail; the replay goes on with its present tables.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The reload plan could not be prepared.
    #[error(transparent)]
    Plan(PlanError),
    /// The plan is not for this replay.
    #[error(transparent)]
    OutOfTurn(OutOfTurn),
    /// Frames for longer queues could not be made.
    #[error(transparent)]
    Pool(PoolError),
}

impl Replay {
    /// A gateway that has seen nothing yet. `start` is the moment of the first frame. Its tables have their pages of memory on demand.
    pub fn new(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::paged(tables, start, way, Paging::OnDemand)
    }

    /// [`Replay::new`], with pages of memory at the moment that `paging` says: many packets are played faster from huge pages.
    pub fn paged(tables: Tables, start: Nanos, way: Way, paging: Paging) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::Assume, paging)
    }

    /// Makes a gateway whose neighbours the caller resolves, as a live one's
    /// ([`Shard::update_neighbour`](crate::Shard::update_neighbour)): packets to others are pending.
    pub fn resolved_by_host(tables: Tables, start: Nanos, way: Way) -> Result<Replay, ReplayError> {
        Replay::with(tables, start, way, Resolve::ByHost, Paging::OnDemand)
    }

    fn with(
        tables: Tables,
        start: Nanos,
        way: Way,
        resolve: Resolve,
        paging: Paging,
    ) -> Result<Replay, ReplayError> {
        let setup = Setup { seed: SEED, now: start, resolve, share: Share::WHOLE };
        let mut shard = Shard::paged(&tables, setup, paging).map_err(ReplayError::Shard)?;
        shard.sas.count_alone(start);
        shard.releases.keep(most_released(&tables));
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

    /// Takes in a frame that was received by the interface `ingress` at `at`. `number` is the caller's own, to recognise
    /// the frame. Events up to then are reported to `witness`.
    ///
    /// Frames of one moment fill queues together; a port without a rate drains its queue after each [`BATCH`] of them,
    /// as a device does. Frames that are due depart when time goes on, before the next frame is taken in: the division
    /// into batches makes no difference. Where time goes back, frames have waited as long as before.
    pub fn receive(
        &mut self,
        ingress: PortId,
        at: Nanos,
        number: u32,
        bytes: &[u8],
        witness: &mut impl Witness,
    ) {
        self.make_way(at, witness, &mut NoTally);
        self.since += 1;
        let Some(mut frame) = self.pool.take() else {
            self.shard.count_refused(bytes, ingress, at, Reason::FramePoolEmpty);
            return witness.refused(number, ingress, Reason::FramePoolEmpty);
        };
        let whole = frame.fill(bytes);
        frame.meta.ingress = ingress;
        frame.meta.received = at;
        frame.meta.number = number;
        vrf::note_sender(&self.tables, &mut frame);
        if !whole {
            // Too large to be taken in: only its head is shown.
            let room = self.pool.slot_bytes() - wire::HEADROOM;
            let _ = frame.fill(bytes.get(..room).unwrap_or(bytes));
            let verdict = Verdict::Dropped(Reason::SlotTooSmall);
            self.pass(witness);
            self.shard.count_refused(bytes, ingress, at, Reason::SlotTooSmall);
            frame.meta.fate = verdict.to_fate();
            witness.ended(&frame, verdict);
            self.pool.put(frame);
            return;
        }
        if let Err(frame) = self.batch.push(frame) {
            self.pool.put(frame);
        }
    }

    /// Sends what departs before a frame that is received at `at`, with a tally of what the schedulers' departures cost.
    /// [`Replay::receive`] then has nothing left to send.
    pub fn make_way<T: Tally>(&mut self, at: Nanos, witness: &mut impl Witness, tally: &mut T) {
        if at < self.moment {
            self.flush(witness);
            self.shard.egress.set_back(self.moment.since(at));
        } else if self.batch.is_full() || at > self.moment && self.may_overflow() {
            self.advance_tallied(at, witness, tally);
        }
        if at != self.moment {
            self.since = 0;
        } else if self.since == BATCH {
            self.pass(witness);
            self.depart_by(at, Only::Unlimited, witness, tally);
            self.since = 0;
        }
        self.moment = at;
    }

    /// Reloads with other tables, as a live gateway does when its policy changes; frames received so far go through
    /// before. Flows are revalidated at their next packets; `tables` are numbered as those [after](Tables::after) the
    /// present ones.
    ///
    /// # Errors
    /// The system has not enough memory, or a pool is wrong; nothing is changed.
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
        self.waiting.extend(self.shard.egress.arriving());
        self.growth = growth(&self.tables);
        self.shard.releases.keep(most_released(&self.tables));
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

    /// [`Replay::pass`] with tallies of the cost, frame by frame, reported to `watch`.
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

    /// Takes all frames received so far through the pipeline, and sends all that is due before `at`, the time from then
    /// on.
    pub fn advance(&mut self, at: Nanos, witness: &mut impl Witness) {
        self.advance_tallied(at, witness, &mut NoTally);
    }

    /// [`Replay::advance`] with a tally of what the schedulers' departures cost.
    pub fn advance_tallied<T: Tally>(&mut self, at: Nanos, witness: &mut impl Witness, tally: &mut T) {
        self.pass(witness);
        if let Some(before) = at.0.checked_sub(1) {
            self.depart_by(Nanos(before), Only::All, witness, tally);
        }
        if at > self.moment {
            self.moment = at;
            self.since = 0;
        }
    }

    /// Takes all frames received so far through the pipeline, sends all that is due by the current time, and ends that
    /// moment. Frames that a link has no time for yet stay queued.
    pub fn flush(&mut self, witness: &mut impl Witness) {
        self.pass(witness);
        self.depart(self.moment, witness);
        self.since = 0;
    }

    /// Takes all frames received through the pipeline, and sends all queued frames: no further frame comes.
    pub fn finish(&mut self, witness: &mut impl Witness) {
        self.pass(witness);
        self.depart(Nanos::MAX, witness);
    }

    /// [`Replay::finish`] for frames that prepare a replay: links are then free, as if nothing had been sent.
    pub fn drain(&mut self, witness: &mut impl Witness) {
        self.finish(witness);
        self.shard.egress.free_links();
    }

    /// Takes all frames received so far through the pipeline, and ends what is due by `at`, the time from then on: flows idle for too long, up to
    /// a bounded number, and fragments for which the first of their datagram has not come.
    pub fn expire(&mut self, at: Nanos, witness: &mut impl Witness) -> Due {
        self.advance(at, witness);
        let mut cx =
            Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally: &mut NoTally };
        self.pipeline.tend(at, &mut self.ended, &mut cx);
        self.tell(witness);
        if self.shard.flows.is_swept(at) { Due::Nothing } else { Due::More }
    }

    /// Sends the frames due by `now`, and takes them back.
    fn depart(&mut self, now: Nanos, witness: &mut impl Witness) {
        self.depart_by(now, Only::All, witness, &mut NoTally);
    }

    fn depart_by<T: Tally>(&mut self, now: Nanos, only: Only, witness: &mut impl Witness, tally: &mut T) {
        self.waiting.clear();
        for port in (0..self.shard.egress.ports() as u16).map(PortId) {
            if only == Only::Unlimited && self.shard.egress.has_rate(port) {
                continue;
            }
            loop {
                match self.shard.next_tallied(port, now, tally) {
                    Next::Frame(frame, at) => {
                        witness.sent(port, at, &frame, Verdict::of_fate(frame.meta.fate));
                        self.pool.put(frame);
                    }
                    Next::Dropped(frame, _, at) => {
                        // A further fragment has no verdict of its own.
                        if let Some(verdict) = Verdict::of_fate(frame.meta.fate) {
                            witness.ended_at(at, &frame, verdict);
                        }
                        self.pool.put(frame);
                    }
                    Next::Wait(_) | Next::Empty => break,
                }
            }
        }
        self.waiting.extend(self.shard.egress.arriving());
    }

    /// True if a queue may overflow before the batch is full, by frames that would have found room after earlier
    /// departures.
    fn may_overflow(&self) -> bool {
        let waiting = self.waiting.iter().max().map_or(0, |most| *most);
        // Of what is held many may be released by one frame.
        self.shard.counters.held > 0 || waiting + self.growth > self.tables.limits.queue as usize
    }

    /// Reports frames that ended in the pipeline, and takes them back; then reports those that were queued.
    fn tell(&mut self, witness: &mut impl Witness) {
        for Release { number, first } in self.shard.releases.take() {
            witness.released(number, first);
        }
        for frame in self.ended.drain(..) {
            if let Some(verdict) = Verdict::of_fate(frame.meta.fate) {
                witness.ended(&frame, verdict);
            }
            self.pool.put(frame);
        }
        self.waiting.resize(self.shard.egress.arriving().count(), 0);
        for (place, before) in self.waiting.iter_mut().enumerate() {
            for frame in self.shard.egress.queued_behind(place, *before) {
                witness.queued(frame.meta.egress, frame);
                *before += 1;
            }
        }
    }
}
