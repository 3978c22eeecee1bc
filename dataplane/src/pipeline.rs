//! Stages in their order, and the run of batches and single frames through the stages.
//!
//! [`Stages::INGRESS`] and [`Stages::EGRESS`] are the lists, from which everything that needs the order is derived: the live
//! run of batches, the step of single frames, `wirerate explain`, capture points, mappings onto chips and the sizes of their
//! programs, and `wirerate stages`. A [`Selection`] holds the stages that a policy needs, and is built once for each
//! [`Tables`]: no frame is checked against a stage that its policy cannot need.
//!
//! [`Pipeline::step`] takes the frames of a batch through all stages one after the other. [`Pipeline::run`] does so
//! to the same effect, but stage by stage: those before `track` take the whole batch, and those behind it the packets, in a
//! row, of flows that have been decided. A packet of another flow goes from `track` on by itself, after the packets before it and
//! before the next one is looked at, as what it decides may be about these; first packets in a row wait behind `snat`, and go on
//! together. Where nothing is tracked, all stages take the whole batch.
//! Each frame is queued, or ends, by itself.

use std::marker::PhantomData;

use arrayvec::IntoIter;
use policy::model::Mode;
use tally::{NoTally, Tally};
use wire::{BATCH, Batch, Frame, Nanos};

use crate::flag;
use crate::hop::leaves;
use crate::sa;
use crate::stage::answer::Answer;
use crate::stage::classify::Classify;
use crate::stage::decap::Decap;
use crate::stage::dnat::Dnat;
use crate::stage::encap::{self, Encap};
use crate::stage::filter::Filter;
use crate::stage::fragment::Fragment;
use crate::stage::mark::Mark;
use crate::stage::parse::Parse;
use crate::stage::police::Police;
use crate::stage::queue::{self, ANSWERED, Queue};
use crate::stage::reassemble::Reassemble;
use crate::stage::replicate::Replicate;
use crate::stage::rewrite::Rewrite;
use crate::stage::route::{Route, awaited};
use crate::stage::snat::Snat;
use crate::stage::terminate::{self, Terminate};
use crate::stage::track::{Lookups, Track, datagram, pass_time};
use crate::stage::{About, Cx, Packets, Stage, Step, take};
use crate::tables::selection::ROOM;
pub use crate::tables::selection::Selection;
use crate::tables::{LOCAL, Tables};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

mod whole;

/// Stages of each side, in their order. A new one is a file and a line here (`docs/add/stage.md`).
pub struct Stages<T>(PhantomData<T>);

impl<T: Tally + 'static> Stages<T> {
    /// Ingress: from the receipt of a frame until its egress port and its final bytes are known.
    pub const INGRESS: &'static [Entry<T>] = &[
        Entry::of::<Parse>(),
        Entry::of::<Reassemble>(),
        Entry::of::<Terminate>(),
        Entry::of::<Decap>(),
        Entry::of::<Track>(),
        Entry::of::<Replicate>(),
        Entry::of::<Dnat>(),
        Entry::of::<Route>(),
        Entry::of::<Filter>(),
        Entry::of::<Classify>(),
        Entry::of::<Police>(),
        Entry::of::<Mark>(),
        Entry::of::<Snat>(),
        Entry::of::<Rewrite>(),
        Entry::of::<Answer>(),
        Entry::of::<Encap>(),
    ];

    /// Egress: up to the queue before a port, where the frame waits for an opportunity to send
    /// ([`Shard::next`](crate::Shard::next)). For one frame after the other.
    pub const EGRESS: &'static [Entry<T>] = &[Entry::of::<Fragment>(), Entry::of::<Queue>()];

    /// Both, in their order, and some of the first once more: their number is then a power of two.
    const ALL: [Entry<T>; MOST] = {
        let mut all = [Self::INGRESS[0]; MOST];
        let mut place = 0;
        while place < STAGES {
            let behind = place.wrapping_sub(Self::INGRESS.len());
            all[place] =
                if place < Self::INGRESS.len() { Self::INGRESS[place] } else { Self::EGRESS[behind] };
            place += 1;
        }
        all
    };

    /// The stage at a place, counted through both lists.
    #[inline(always)]
    fn at(place: u8) -> &'static Entry<T> {
        // The remainder is for the compiler, which then has no bound to check: a place is always that of a stage.
        let all: &'static [Entry<T>; MOST] = const { &Self::ALL };
        &all[usize::from(place) % MOST]
    }
}

/// Room for the stages of both lists.
const MOST: usize = STAGES.next_power_of_two();

/// Number of stages.
pub const STAGES: usize = Stages::<NoTally>::INGRESS.len() + Stages::<NoTally>::EGRESS.len();

/// All stages in their order.
pub fn stages() -> impl ExactSizeIterator<Item = &'static Entry<NoTally>> {
    (0..STAGES as u8).map(Stages::at)
}

/// Stages of ingress.
pub fn ingress() -> &'static [Entry<NoTally>] {
    Stages::INGRESS
}

/// Stages of egress.
pub fn egress() -> &'static [Entry<NoTally>] {
    Stages::EGRESS
}

/// Names of all stages, in their order.
pub fn names() -> [&'static str; STAGES] {
    std::array::from_fn(|place| Stages::<NoTally>::at(place as u8).about.name)
}

/// Descriptions of all stages, in their order.
pub fn abouts() -> [About; STAGES] {
    std::array::from_fn(|place| Stages::<NoTally>::at(place as u8).about)
}

/// Stage in a list: the items of its `Stage` implementation.
pub struct Entry<T> {
    /// Name, question, and the fields that the stage reads and writes.
    pub about: About,
    /// [`Stage::packets`].
    pub packets: fn(&Tables) -> Packets,
    /// [`Stage::program`].
    pub program: fn(&Tables) -> u32,
    /// [`Stage::takes`].
    pub takes: fn(&Frame) -> bool,
    /// Takes a frame through the stage alone, where the stage processes the frame.
    pub take: fn(&mut Frame, &mut Cx<'_, T>),
    run: fn(&mut [Frame], &mut Cx<'_, T>),
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Entry<T> {
        *self
    }
}

impl<T> Copy for Entry<T> {}

impl<T: Tally> Entry<T> {
    const fn of<S: Stage>() -> Entry<T> {
        Entry {
            about: S::ABOUT,
            packets: S::packets,
            program: S::program,
            takes: S::takes,
            take: take::<S, T>,
            run: S::run::<T>,
        }
    }

    /// Takes a frame through the stage alone, with an observer, where the stage processes the frame.
    #[inline(always)]
    fn take_watched(&self, frame: &mut Frame, cx: &mut Cx<'_, T>, watch: &mut impl Watch<T>) {
        if (self.takes)(frame) {
            watch.before(self.about.name, frame, cx);
            (self.take)(frame, cx);
            watch.after(self.about.name, frame, cx);
        }
    }
}

const _: () = assert!(STAGES <= ROOM, "a selection has no room for that many stages");

impl Selection {
    /// Returns the stages that these tables need.
    pub fn of(tables: &Tables) -> Selection {
        let mut selection = Selection::default();
        let track = stages().position(|stage| stage.about.name == Track::ABOUT.name).unwrap_or(0);
        let snat = stages().position(|stage| stage.about.name == Snat::ABOUT.name).unwrap_or(0);
        let answer = stages().position(|stage| stage.about.name == Answer::ABOUT.name).unwrap_or(0);
        let parse = stages().position(|stage| stage.about.name == Parse::ABOUT.name).unwrap_or(0);
        let is_tracked = Track::packets(tables) != Packets::None;
        for (place, stage) in stages().enumerate() {
            let packets = (stage.packets)(tables);
            let number = place as u8;
            if packets == Packets::None {
                continue;
            }
            selection.all.push(number);
            if packets == Packets::Answered || place >= ingress().len() {
                selection.leaving.push(number);
                continue;
            }
            if place > answer {
                // For answers, which are made as frames leave.
                selection.leaving.push(number);
            }
            if place < track || !is_tracked {
                selection.front.push(number);
            }
            if place > parse && place < track {
                selection.taken.push(number);
            }
            if place == track {
                selection.track.push(number);
            }
            if place > track {
                selection.first.push(number);
                if place <= snat { selection.opening.push(number) } else { selection.opened.push(number) }
            }
            if place > track && packets == Packets::Every {
                selection.decided.push(number);
            }
        }
        selection
    }
}

/// Observer of a frame before and after each stage that processes the frame.
pub trait Watch<T: Tally> {
    /// Called before the stage of that name processes the frame.
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>);

    /// Called after the stage of that name has processed the frame.
    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>);
}

/// No observer.
impl<T: Tally> Watch<T> for () {
    #[inline(always)]
    fn before(&mut self, _: &'static str, _: &Frame, _: &mut Cx<'_, T>) {}
    #[inline(always)]
    fn after(&mut self, _: &'static str, _: &Frame, _: &mut Cx<'_, T>) {}
}

/// Takes frames through the stages. One worker has one.
#[derive(Default)]
pub struct Pipeline {
    lookups: Lookups,
}

impl Pipeline {
    /// Takes a batch through the stages, and empties the batch. Frames to be sent are then queued before their ports, until the
    /// host [offers](crate::Shard::next) the ports opportunities to send. Frames that end here (dropped, delivered, answers to
    /// the gateway itself) are pushed to `ended`, in order, with their verdicts, as are frames to hand off to another worker
    /// ([`handoff`](crate::handoff)).
    pub fn run<T: Tally + 'static>(&mut self, batch: &mut Batch, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        cx.shard.follow_sessions(cx.tables);
        self.resume_before(batch, ended, cx);
        cx.shard.counters.received.count_all(batch);
        self.run_from(Begin::AtFront, batch, ended, cx);
    }

    /// [`Pipeline::run`], for frames that another worker has handed off ([`handoff`](crate::handoff)): that worker has counted
    /// the frames as received, and parsed them. What stands between `parse` and `track` takes those that it has not taken yet.
    pub fn run_taken<T: Tally + 'static>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        cx.shard.follow_sessions(cx.tables);
        self.resume_before(batch, ended, cx);
        cx.shard.counters.taken += batch.len() as u64;
        let last = batch.iter().last().map(|frame| (frame.meta.received, frame.meta.number));
        self.run_from(Begin::AtTrack, batch, ended, cx);
        if let Some((now, number)) = last.filter(|_| cx.shard.sessions.has_outgoing()) {
            queue_sessions(now, number, cx);
        }
    }

    /// Takes a batch through the stages from the first, or from `track` on.
    #[inline(always)]
    fn run_from<T: Tally + 'static>(
        &mut self,
        begin: Begin,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        let stages = &cx.tables.stages;
        if begin == Begin::AtTrack {
            run_stages(&stages.taken, batch, cx);
        }
        let is_spread = is_spread(batch, cx);
        if cx.tables.mode == Mode::Stateful {
            if is_spread && begin == Begin::AtFront {
                return self.run_apart(batch, ended, cx);
            }
            if begin == Begin::AtFront {
                run_stages(&stages.front, batch, cx);
            }
            return self.run_tracked(batch, ended, cx);
        }
        let front = if begin == Begin::AtFront { &stages.front } else { &stages.first };
        // A packet that a rule adds to a set by changes what the next one finds there.
        let has_additions = cx.tables.set_questions.has_additions;
        // The copies of a packet leave before the next packet does.
        let has_copies = !cx.tables.multicast.is_unused();
        if is_spread || has_additions || has_copies || is_due_before_one(batch, cx) {
            for mut frame in batch.drain() {
                let (now, number) = (frame.meta.received, frame.meta.number);
                pass_time(now, cx);
                run_stages(front, std::slice::from_mut(&mut frame), cx);
                leave(frame, ended, cx);
                self.released(now, ended, cx);
                keep_alive(now, number, cx);
            }
        } else {
            run_stages(front, batch, cx);
            leave_all(batch.drain(), ended, cx);
        }
    }

    /// Takes the frames of a batch through all stages one by one.
    #[cold]
    fn run_apart<T: Tally + 'static>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        for mut frame in batch.drain() {
            let (now, number) = (frame.meta.received, frame.meta.number);
            take_through(&cx.tables.stages.front, &mut frame, cx);
            alone(frame, ended, cx);
            self.released(now, ended, cx);
            keep_alive(now, number, cx);
        }
    }

    #[inline(never)]
    fn run_tracked<T: Tally + 'static>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        self.lookups.prepare(batch, cx);
        let mut frames = batch.take();
        let mut first = 0;
        while frames.len() > 0 {
            let decided = self.lookups.follow(first, frames.as_mut_slice(), cx);
            if decided > 0 {
                run_behind(&cx.tables.stages.decided, decided, &mut frames, ended, cx);
            }
            first += decided;
            let opened = self.open(first, frames.as_mut_slice(), cx);
            if opened > 0 {
                run_behind(&cx.tables.stages.opened, opened, &mut frames, ended, cx);
                first += opened;
            } else if let Some(frame) = frames.next() {
                let now = frame.meta.received;
                alone(frame, ended, cx);
                self.released(now, ended, cx);
                first += 1;
            }
        }
    }

    /// Takes consecutive first packets of flows through the stages from `track` to `snat`, one after the other, and returns their
    /// number. The later stages' work on one packet depends on nothing done here for the packets behind it, as no flow ends
    /// meanwhile: all packets come in one tick, and there is room for their flows. Only the last packet may have its verdict, or
    /// not simply be queued.
    fn open<T: Tally + 'static>(&mut self, first: usize, frames: &mut [Frame], cx: &mut Cx<'_, T>) -> usize {
        if !self.lookups.is_absent(first) {
            return 0;
        }
        let many = frames.len();
        let tick = frames.first().map(|frame| cx.shard.flows.tick(frame.meta.received));
        for (place, frame) in frames.iter_mut().enumerate() {
            if place > 0 {
                let is_simultaneous = Some(cx.shard.flows.tick(frame.meta.received)) == tick;
                if !is_simultaneous || !self.lookups.is_next_absent(first + place, frame, cx) {
                    return place;
                }
            }
            self.lookups.take(first + place, frame, cx);
            take_through(&cx.tables.stages.opening, frame, cx);
            let is_queued = frame.meta.fate == 0 && leaves(frame.meta.hop) && !Fragment::takes(frame);
            if !is_queued || cx.tables.filter.has_syn_proxy || !cx.shard.has_room() {
                return place + 1;
            }
        }
        many
    }

    /// Takes the frames of a batch through the stages one by one, to the same effect as [`Pipeline::run`].
    pub fn step<T: Tally + 'static>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        self.step_watched(batch, ended, cx, &mut ());
    }

    /// [`Pipeline::step`] with the observer `watch` on the frames of the batch, but not on frames that the batch releases.
    pub fn step_watched<T: Tally + 'static>(
        &mut self,
        batch: &mut Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
        watch: &mut impl Watch<T>,
    ) {
        self.resume_before(batch, ended, cx);
        cx.shard.counters.received.count_all(batch);
        for mut frame in batch.drain() {
            let (now, number) = (frame.meta.received, frame.meta.number);
            if cx.tables.mode == Mode::Stateless {
                pass_time(now, cx);
            }
            for place in &cx.tables.stages.all {
                Stages::at(*place).take_watched(&mut frame, cx, watch);
            }
            end(frame, ended, cx);
            self.released(now, ended, cx);
            keep_alive(now, number, cx);
        }
    }

    /// Lets time pass without a frame: expires flows, processes pending frames that have timed out or that an update by the
    /// host has released, and sends keepalives of tunnels. To be called now and then while no frame is received.
    pub fn tend<T: Tally + 'static>(&mut self, now: Nanos, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        self.released(now, ended, cx);
        pass_time(now, cx);
        self.released(now, ended, cx);
        keep_alive(now, 0, cx);
    }

    /// Before a batch, takes the frames that the host has released through the stages.
    #[inline(always)]
    fn resume_before<T: Tally + 'static>(
        &mut self,
        batch: &Batch,
        ended: &mut Vec<Frame>,
        cx: &mut Cx<'_, T>,
    ) {
        if cx.shard.released.is_empty() {
            return;
        }
        if let Some(first) = batch.first() {
            self.released(first.meta.received, ended, cx);
        }
    }

    /// Takes frames that another frame or an update by the host has released through the stages from `track` on. Until here
    /// these frames count as held.
    fn released<T: Tally + 'static>(&mut self, now: Nanos, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
        while let Some(mut frame) = cx.shard.released.pop_front() {
            cx.shard.counters.held = cx.shard.counters.held.saturating_sub(1);
            frame.meta.received = now;
            alone(frame, ended, cx);
        }
    }
}

/// Takes frames through stages.
#[inline(always)]
fn run_stages<T: Tally + 'static>(places: &[u8], frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    for place in places {
        (Stages::<T>::at(*place).run)(frames, cx);
    }
}

/// True if a flow or a datagram expires before any frame of a batch, not only before the last frame: clocks are set back. Without
/// connection tracking, only tables of an earlier epoch can have left flows or datagrams.
#[inline(always)]
fn is_due_before_one<T: Tally>(batch: &Batch, cx: &Cx<'_, T>) -> bool {
    let Some(any) = batch.first().map(|frame| frame.meta.received) else { return false };
    let moments = batch.iter().map(|frame| frame.meta.received);
    let (first, last) = moments.fold((any, any), |(first, last), at| (first.min(at), last.max(at)));
    cx.shard.is_due(first) || cx.shard.is_due(last)
}

/// True if one frame of a batch may bring a tunnel or a PPP session news that hold before another one, or a keepalive or a timer of a session may
/// be due before the last one; or if one may add to a set by which another one's owner is found.
#[inline(always)]
fn is_spread<T: Tally>(batch: &Batch, cx: &Cx<'_, T>) -> bool {
    let questions = &cx.tables.set_questions;
    if cx.tables.pair.is_some() && questions.has_additions && questions.of_destinations != 0 {
        return true;
    }
    let has_sessions = !cx.shard.sessions.is_empty();
    if cx.tables.tunnels.is_empty() && !has_sessions {
        return false;
    }
    let moments = || batch.iter().map(|frame| frame.meta.received);
    let (first, last) = (moments().min().unwrap_or_default(), moments().max().unwrap_or_default());
    if has_sessions {
        let is_due = [first, last].iter().any(|now| cx.shard.sessions.is_due(*now));
        if is_due || batch.iter().any(|frame| terminate::may_be_control(frame.bytes())) {
            return true;
        }
    }
    if cx.tables.tunnels.is_empty() {
        return false;
    }
    last.since(first) >= sa::LAG || [first, last].iter().any(|now| cx.shard.sas.may_keep_alive(*now))
}

/// Takes the first `many` of the frames through `stages`, and lets them leave.
#[inline(always)]
fn run_behind<T: Tally + 'static>(
    stages: &[u8],
    many: usize,
    frames: &mut IntoIter<Frame, BATCH>,
    ended: &mut Vec<Frame>,
    cx: &mut Cx<'_, T>,
) {
    run_stages(stages, frames.as_mut_slice().get_mut(..many).unwrap_or_default(), cx);
    leave_all(frames.by_ref().take(many), ended, cx);
}

/// First stages for a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    AtFront,
    AtTrack,
}

/// Takes one frame through the stages from `track` on.
fn alone<T: Tally + 'static>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    let stages = &cx.tables.stages;
    take_through(&stages.track, &mut frame, cx);
    let behind = if frame.meta.flags & flag::HIT == 0 { &stages.first } else { &stages.decided };
    take_through(behind, &mut frame, cx);
    leave(frame, ended, cx);
}

/// Takes a frame through stages.
#[inline(always)]
fn take_through<T: Tally + 'static>(places: &[u8], frame: &mut Frame, cx: &mut Cx<'_, T>) {
    for place in places {
        (Stages::<T>::at(*place).take)(frame, cx);
    }
}

/// True if egress has no stage for every packet but `queue`. A further one takes frames through the list, by its pointers.
const IS_QUEUED_AT_ONCE: bool = Stages::<NoTally>::EGRESS.len() == 2;

/// [`leave`] for one frame after the other.
#[inline(always)]
fn leave_all<T: Tally + 'static>(
    frames: impl Iterator<Item = Frame>,
    ended: &mut Vec<Frame>,
    cx: &mut Cx<'_, T>,
) {
    if !IS_QUEUED_AT_ONCE || cx.tables.queues.has_any || cx.tally.is_kept() {
        frames.for_each(|frame| leave(frame, ended, cx));
        return;
    }
    for frame in frames {
        if let Err(frame) = enqueue(frame, cx) {
            leave_apart(frame, ended, cx);
        }
    }
}

/// [`leave`], as a function of its own.
#[inline(never)]
fn leave_apart<T: Tally + 'static>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    leave(frame, ended, cx);
}

/// The usual case of [`leave`], in fewer steps and to the same effect: a packet that goes on as one frame, where no port has a tree of
/// queues and nobody keeps a tally. Gives the frame back if it is another case.
#[inline(always)]
fn enqueue<T: Tally>(mut frame: Frame, cx: &mut Cx<'_, T>) -> Result<(), Frame> {
    let meta = &mut frame.meta;
    if meta.fate != 0 || meta.flags & flag::CUT != 0 || meta.tunnel & tunnel::OUT != 0 || meta.parts != 0 {
        return Err(frame);
    }
    let root = cx.tables.interfaces.get(usize::from(meta.egress.0)).map_or(meta.egress, |own| own.root);
    let Some(queue) = cx.shard.egress.port(root).filter(|queue| !queue.is_full()) else { return Err(frame) };
    (meta.egress, meta.fate) = (root, Verdict::Forwarded.to_fate());
    cx.shard.counters.count_queued(&frame);
    queue.push(frame);
    Ok(())
}

/// Queues a frame as it is, or answers, fragments or ends the frame, after all decisions.
#[inline(always)]
fn leave<T: Tally + 'static>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    let waits_for_encap = frame.meta.tunnel & tunnel::OUT != 0;
    if frame.meta.fate != 0 || Fragment::takes(&frame) || waits_for_encap || !IS_QUEUED_AT_ONCE {
        return leave_otherwise(frame, ended, cx);
    }
    take::<Queue, T>(&mut frame, cx);
    lead(frame, ended, cx);
}

#[cold]
fn leave_otherwise<T: Tally + 'static>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    take_through(&cx.tables.stages.leaving, &mut frame, cx);
    end(frame, ended, cx);
}

/// Ends a frame's way through the stages.
fn end<T: Tally>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    // A flow that did not come to be gives back what it holds.
    cx.shard.abandon_opening(&mut frame);
    const FRAGMENT: u16 = Verdict::Held(Reason::FragmentWaits).to_fate();
    const NEIGHBOUR: u16 = Verdict::Held(Reason::NeighbourWaits).to_fate();
    const OTHERS: u16 = Verdict::Held(Reason::HandedOff).to_fate();
    const PEER: u16 = Verdict::Held(Reason::PeerOwns).to_fate();
    match frame.meta.fate {
        FRAGMENT => hold(frame, ended, cx),
        OTHERS => {
            cx.shard.counters.given += 1;
            ended.push(frame);
        }
        PEER => {
            cx.shard.counters.handed_over += 1;
            ended.push(frame);
        }
        NEIGHBOUR => wait(frame, ended, cx),
        _ => lead(frame, ended, cx),
    }
}

/// Moves a fragment to the fragments pending for the first one of their datagram; drops the fragment if the table is full.
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

/// Moves a frame to the frames pending for a neighbour; drops the oldest ones where there is no room.
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

/// Drops a frame for which the queue of a neighbour has no room.
fn crowded_out<T: Tally>(mut frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    Step::Drop(Reason::NeighbourQueueFull).settle(&mut frame);
    lead(frame, ended, cx);
}

/// Counts a frame, and moves the frame to the egress queue or to `ended`, by its verdict.
#[inline(always)]
fn lead<T: Tally>(frame: Frame, ended: &mut Vec<Frame>, cx: &mut Cx<'_, T>) {
    let goes_out = frame.meta.fate == Verdict::Forwarded.to_fate() || frame.meta.fate >> 8 == ANSWERED;
    let (port, further) = (frame.meta.egress, frame.meta.parts);
    let room = if goes_out { cx.shard.egress.port(port) } else { None };
    let Some(room) = room else {
        cx.shard.counters.count(&frame);
        cx.shard.recorder.note_dropped(&frame, frame.meta.received);
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
    if cx.tables.queues.has_any {
        return enter(frame, further, cx);
    }
    room.push(frame);
    for _ in 0..further {
        queue_part(cx);
    }
}

/// Queues a frame and its further fragments where a port has a tree of queues.
#[inline(never)]
fn enter<T: Tally>(frame: Frame, further: u8, cx: &mut Cx<'_, T>) {
    let (mut ends, mut ingress) = (queue::ends(&frame, cx), queue::ingress(&frame, &cx.tables.queues));
    cx.shard.egress.enter(frame, ingress, &ends, cx.tally);
    for _ in 0..further {
        let Some((part, is_ready)) = next_part(cx) else { return };
        if part.meta.ingress == LOCAL && ingress != LOCAL {
            // What completes a handshake on the other side is no part of this packet, but the gateway's own.
            (ends, ingress) = (queue::ends(&part, cx), LOCAL);
        }
        if !is_ready || cx.shard.egress.refusal(ingress, part.meta.egress).is_some() {
            lose_part(part, cx);
        } else {
            cx.shard.egress.enter(part, ingress, &ends, cx.tally);
        }
    }
}

/// Queues the keepalives of tunnels by which nothing has been sent for a while; `number` is that of the frame that `now` is the moment of.
#[inline(always)]
fn keep_alive<T: Tally>(now: Nanos, number: u32, cx: &mut Cx<'_, T>) {
    if cx.shard.sas.may_keep_alive(now) {
        queue_keepalives(now, number, cx);
    }
    if cx.shard.sessions.is_due(now) {
        queue_sessions(now, number, cx);
    }
}

/// Runs the timers of PPP sessions that are due, and queues what the sessions send.
#[cold]
fn queue_sessions<T: Tally>(now: Nanos, number: u32, cx: &mut Cx<'_, T>) {
    cx.shard.sessions.expire(now);
    cx.shard.follow_sessions(cx.tables);
    while let Some(frame) = terminate::next(now, number, cx) {
        queue_own(frame, cx);
    }
}

/// Queues a frame that the gateway sends by itself.
fn queue_own<T: Tally>(mut frame: Frame, cx: &mut Cx<'_, T>) {
    frame.meta.egress = cx.tables.interface(frame.meta.egress).map_or(frame.meta.egress, |own| own.root);
    if !cx.tables.queues.has_any {
        push_part(frame, cx);
    } else if cx.shard.egress.refusal(LOCAL, frame.meta.egress).is_some() {
        lose_part(frame, cx);
    } else {
        let ends = queue::ends(&frame, cx);
        cx.shard.egress.enter(frame, LOCAL, &ends, cx.tally);
    }
}

#[cold]
fn queue_keepalives<T: Tally>(now: Nanos, number: u32, cx: &mut Cx<'_, T>) {
    while let Some(tunnel) = cx.shard.sas.next_keepalive(now) {
        let Some(frame) = encap::keepalive(tunnel, now, number, cx) else { continue };
        cx.shard.sas.note_keepalive(tunnel, now);
        queue_own(frame, cx);
    }
}

/// Queues a further fragment of the packet just queued, or a packet sent to the other side along with it.
fn queue_part<T: Tally>(cx: &mut Cx<'_, T>) {
    match next_part(cx) {
        Some((part, true)) => push_part(part, cx),
        Some((part, false)) => lose_part(part, cx),
        None => {}
    }
}

/// Queues a frame that was not received, where no port has a tree of queues.
fn push_part<T: Tally>(part: Frame, cx: &mut Cx<'_, T>) {
    match cx.shard.egress.port(part.meta.egress).filter(|queue| !queue.is_full()) {
        Some(queue) => queue.push(part),
        None => lose_part(part, cx),
    }
}

/// Counts a frame that was not received, and cannot leave.
fn lose_part<T: Tally>(part: Frame, cx: &mut Cx<'_, T>) {
    cx.pool.put(part);
    cx.shard.counters.parts_lost += 1;
}

/// Takes the next packet that is queued behind another, at its port as that one is, not at one of the port's VLANs; and says if it can
/// leave. It is encrypted here if it leaves by a tunnel.
fn next_part<T: Tally>(cx: &mut Cx<'_, T>) -> Option<(Frame, bool)> {
    let mut part = cx.shard.parts.pop_front()?;
    let is_ready = encap::part(&mut part, cx);
    part.meta.egress = cx.tables.interface(part.meta.egress).map_or(part.meta.egress, |own| own.root);
    Some((part, is_ready))
}
