//! Captures: copies of frames, made as a batch passes the stages one by one and as frames depart, and sent to the readers
//! at the end of either.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dataplane::egress::Egress;
use dataplane::flow::{Ends, Flow, FlowId, FlowTable};
use dataplane::handoff::receiver;
use dataplane::pipeline::{self, Watch};
use dataplane::stage::decap::{Decap, is_for_tunnel};
use dataplane::stage::encap::Encap;
use dataplane::stage::{Cx, Stage};
use dataplane::tunnel;
use dataplane::{Shard, Tables, Verdict};
use tally::Tally;
use wire::{Frame, Nanos};

use crate::capture::{Chunk, Filter, Look, Point, Points, Reader, Seen, Tap, egress};
use crate::flows::NotKnown;

/// Stages of tunnels.
const DECAP: &str = Decap::ABOUT.name;
const ENCAP: &str = Encap::ABOUT.name;

/// Bytes of copies after which a chunk is sent before its batch ends: 256 KiB.
const CHUNK: usize = 256 << 10;

/// Active captures of a worker.
#[derive(Default)]
pub(super) struct Captures {
    active: Vec<Active>,
    /// Number of frames in each queue at the start of the batch.
    queued: Vec<usize>,
    /// Slots of queued frames that other workers handed off, with the marks that they came with.
    pub(super) marks: Vec<(u32, Mark)>,
    at: Nanos,
}

/// Slot of a frame: true for one of packets of many segments, and its number among those of its size.
type Slot = (bool, u32);

/// Captures that mean a frame: a bit for each, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    /// No capture.
    pub(super) const NONE: Mark = Mark(0);

    fn of(id: u64) -> Mark {
        Mark(1 << (id % 64))
    }
}

/// One capture.
struct Active {
    id: u64,
    tap: Tap,
    points: Points,
    /// Filter; none where the tables in force lack one of its names: then no packet matches.
    filter: Option<Filter>,
    /// Epoch of the tables that the filter was compiled for.
    epoch: u16,
    snap: usize,
    /// Copies not yet sent; their bytes follow one another in `bytes`.
    seen: Vec<Seen>,
    bytes: Vec<u8>,
    /// Start of the copies of the current frame: indices into `seen` and `bytes`.
    begin: [usize; 2],
    /// Header fields of the current frame on arrival.
    look: Option<Look>,
    /// True if the current frame matches, by what is known so far.
    is_meant: bool,
    /// Slots of the frames of this batch that match.
    meant: Vec<Slot>,
    /// Slots of queued frames that match: copied when they depart.
    queued: HashSet<Slot>,
}

/// Form in which packets of many segments have to go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Whole, as no capture is to see segments.
    Whole,
    /// Cut, as on a wire.
    Segments,
}

impl Captures {
    /// Form that the captures want.
    pub(super) fn form(&self) -> Form {
        if self.active.iter().all(|active| active.tap.query.whole) { Form::Whole } else { Form::Segments }
    }

    /// True if there are no captures.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// A name in the filter that the tables lack.
    pub(super) fn add(&mut self, id: u64, tap: Tap, tables: &Tables) -> Result<(), NotKnown> {
        let (points, filter) = (tap.query.points()?, tap.query.filter(tables)?);
        self.active.push(Active {
            id,
            points,
            filter: Some(filter),
            epoch: tables.epoch,
            snap: tap.query.snap(),
            tap,
            seen: Vec::new(),
            bytes: Vec::new(),
            begin: [0, 0],
            look: None,
            is_meant: false,
            meant: Vec::new(),
            queued: HashSet::new(),
        });
        Ok(())
    }

    /// Ends a capture, which may have ended by itself.
    pub(super) fn end(&mut self, id: u64) {
        self.active.retain(|active| active.id != id);
    }

    /// Prepares for a batch, or for frames that timers release.
    #[inline(always)]
    pub(super) fn begin(&mut self, tables: &Arc<Tables>, egress: &Egress) {
        if !self.is_empty() {
            self.begin_all(tables, egress);
        }
    }

    #[cold]
    fn begin_all(&mut self, tables: &Arc<Tables>, egress: &Egress) {
        self.at = now();
        self.queued.clear();
        self.queued.extend(egress.arriving());
        for active in &mut self.active {
            if active.epoch != tables.epoch {
                active.filter = active.tap.query.filter(tables).ok();
                active.epoch = tables.epoch;
            }
            active.meant.clear();
            active.renew();
        }
    }

    /// Ends the batch: copies ended frames, sends all copies, and notes which queued frames match.
    #[inline(always)]
    pub(super) fn finish(&mut self, ended: &[Frame], shard: &Shard, tables: &Arc<Tables>) {
        if !self.is_empty() {
            self.finish_all(ended, shard, tables);
        }
    }

    #[cold]
    fn finish_all(&mut self, ended: &[Frame], shard: &Shard, tables: &Arc<Tables>) {
        for active in &mut self.active {
            active.decide();
            for frame in ended {
                let point = match Verdict::of_fate(frame.meta.fate) {
                    Some(Verdict::Dropped(_)) => Point::Dropped,
                    Some(Verdict::Delivered | Verdict::Answered(_)) => Point::Delivered,
                    _ => continue,
                };
                active.copy_end(point, frame, shard, tables);
            }
            for (place, before) in self.queued.iter().enumerate() {
                for frame in shard.egress.queued_behind(place, *before) {
                    active.note_queued(frame, shard, tables);
                }
            }
            let own = self.marks.iter().filter(|(_, mark)| mark.0 & Mark::of(active.id).0 != 0);
            active.queued.extend(own.map(|(slot, _)| (false, *slot)));
        }
        let at = self.at;
        self.active.retain_mut(|active| active.hand_on(tables, at) == Reader::There);
    }

    /// Returns the captures that mean a frame, which is handed off to be queued by another worker: there it departs.
    #[inline(always)]
    pub(super) fn mark(&mut self, frame: &Frame, flows: &FlowTable, tables: &Tables) -> Mark {
        if self.is_empty() { Mark::NONE } else { self.mark_all(frame, flows, tables) }
    }

    #[cold]
    fn mark_all(&mut self, frame: &Frame, flows: &FlowTable, tables: &Tables) -> Mark {
        let means = |active: &mut Active| {
            active.queued.remove(&slot(frame))
                || active.points.has(Point::Sent) && active.means(frame, flows, tables)
        };
        let marks = self.active.iter_mut().filter_map(|active| means(active).then(|| Mark::of(active.id)));
        Mark(marks.fold(0, |all, mark| all | mark.0))
    }

    /// Copies a frame that departs.
    #[cold]
    pub(super) fn departed(&mut self, frame: &Frame, shard: &Shard) {
        for active in &mut self.active {
            if active.queued.remove(&slot(frame)) {
                active.copy(Point::Sent, frame, shard);
            }
        }
    }

    /// Copies a frame that is dropped from a queue.
    #[cold]
    pub(super) fn lost(&mut self, frame: &Frame, shard: &Shard) {
        for active in &mut self.active {
            if active.queued.remove(&slot(frame)) {
                active.copy(Point::Dropped, frame, shard);
            }
        }
    }

    /// Sends the copies of departed frames.
    #[cold]
    pub(super) fn finish_departed(&mut self, tables: &Arc<Tables>) {
        let at = now();
        self.active.retain_mut(|active| active.hand_on(tables, at) == Reader::There);
    }

    /// Watches the frames of a batch.
    pub(super) fn watch<'a>(&'a mut self, tables: &'a Arc<Tables>) -> Watcher<'a> {
        Watcher { captures: self, tables, stages: pipeline::names() }
    }
}

/// See [`Captures::watch`].
pub(super) struct Watcher<'a> {
    captures: &'a mut Captures,
    tables: &'a Arc<Tables>,
    stages: [&'static str; pipeline::STAGES],
}

impl Watcher<'_> {
    fn place(&self, stage: &str) -> usize {
        self.stages.iter().position(|name| *name == stage).unwrap_or_default()
    }
}

impl<T: Tally> Watch<T> for Watcher<'_> {
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>) {
        let place = self.place(stage);
        let at = self.captures.at;
        for active in &mut self.captures.active {
            if place == 0 {
                active.decide();
                if active.bytes.len() > CHUNK {
                    // Whether anybody reads is found out at the end of the batch.
                    let _ = active.hand_on(self.tables, at);
                }
                active.begin = [active.seen.len(), active.bytes.len()];
                active.look = Look::at(frame.bytes());
                active.copy(Point::Received, frame, cx.shard);
            }
            active.copy(Point::Before(place), frame, cx.shard);
            if stage == ENCAP {
                active.copy(Point::Inner, frame, cx.shard);
            } else if stage == DECAP && is_for_tunnel(frame, cx.tables) {
                active.copy(Point::Outer, frame, cx.shard);
            }
        }
    }

    fn after(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, T>) {
        let place = self.place(stage);
        for active in &mut self.captures.active {
            active.copy(Point::After(place), frame, cx.shard);
            if stage == ENCAP && frame.meta.tunnel & tunnel::OUTER != 0 {
                active.copy(Point::Outer, frame, cx.shard);
            } else if stage == DECAP && frame.meta.tunnel & tunnel::IN != 0 {
                // From here on it is the inner packet, as that of the other direction is from the start.
                active.look = Look::at(frame.bytes());
                active.copy(Point::Inner, frame, cx.shard);
            }
            let is_held = matches!(Verdict::of_fate(frame.meta.fate), Some(Verdict::Held(_)));
            // What is handed to another worker is seen there at the end of its way.
            if is_held && receiver(&frame.meta).is_none() {
                active.copy(Point::Held, frame, cx.shard);
            }
            let before = active.is_meant;
            // Of a packet that has been encrypted the interface is another one.
            active.is_meant = before && frame.meta.tunnel & tunnel::OUTER != 0
                || active.admits(active.look.as_ref(), frame, &cx.shard.flows, self.tables);
            if active.is_meant && !before {
                active.meant.push(slot(frame));
            } else if before && !active.is_meant {
                active.meant.pop();
            }
        }
    }
}

impl Active {
    /// Ends the current frame: its copies stay if it matches.
    fn decide(&mut self) {
        let [seen, bytes] = self.begin;
        if !self.is_meant {
            self.seen.truncate(seen);
            self.bytes.truncate(bytes);
        }
        self.is_meant = false;
        self.begin = [self.seen.len(), self.bytes.len()];
    }

    fn admits(&self, look: Option<&Look>, frame: &Frame, flows: &FlowTable, tables: &Tables) -> bool {
        let flow = flow(frame, flows);
        self.filter.as_ref().is_some_and(|filter| filter.admits(look, &frame.meta, flow, tables))
    }

    /// Copies a frame with its final verdict, if it matches.
    fn copy_end(&mut self, point: Point, frame: &Frame, shard: &Shard, tables: &Tables) {
        if self.points.has(point) && self.means(frame, &shard.flows, tables) {
            self.copy(point, frame, shard);
        }
    }

    /// Notes if a queued frame matches. Its slot may have belonged to another frame before.
    fn note_queued(&mut self, frame: &Frame, shard: &Shard, tables: &Tables) {
        if !self.points.has(Point::Sent) {
            return;
        }
        if self.means(frame, &shard.flows, tables) {
            self.queued.insert(slot(frame));
        } else {
            self.queued.remove(&slot(frame));
        }
    }

    /// True if a frame that has passed the stages matches.
    fn means(&self, frame: &Frame, flows: &FlowTable, tables: &Tables) -> bool {
        self.meant.contains(&slot(frame))
            || self.admits(Look::at(frame.bytes()).as_ref(), frame, flows, tables)
    }

    /// Copies a frame, if this point is captured.
    fn copy(&mut self, point: Point, frame: &Frame, shard: &Shard) {
        if !self.points.has(point) {
            return;
        }
        let copied = frame.len().min(self.snap);
        self.bytes.extend_from_slice(frame.bytes().get(..copied).unwrap_or_default());
        let meta = &frame.meta;
        self.seen.push(Seen {
            point,
            ingress: meta.ingress,
            egress: egress(meta),
            fate: meta.fate,
            rule: meta.rule,
            nat: meta.nat,
            tunnel: meta.tunnel,
            part: meta.part,
            flow: flow(frame, &shard.flows).map(|flow| (Ends::of(flow.original()), flow.state())),
            copied: copied as u32,
            length: frame.len() as u32,
        });
    }

    /// Sends the copies.
    fn hand_on(&mut self, tables: &Arc<Tables>, at: Nanos) -> Reader {
        if self.seen.is_empty() {
            return Reader::There;
        }
        self.begin = [0, 0];
        let (seen, bytes) = (mem::take(&mut self.seen), mem::take(&mut self.bytes));
        self.tap.put(Chunk { tables: tables.clone(), at, seen, bytes })
    }

    /// Resets the state for another batch.
    fn renew(&mut self) {
        self.is_meant = false;
        self.begin = [0, 0];
        // Of a batch that a panic ended there may be some.
        self.seen.clear();
        self.bytes.clear();
    }
}

/// Returns the wall-clock time since the Unix epoch, for captures.
fn now() -> Nanos {
    Nanos::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Slot of a frame, of either size.
fn slot(frame: &Frame) -> Slot {
    (frame.is_big(), frame.slot())
}

/// The flow that a frame belongs to.
fn flow<'a>(frame: &Frame, flows: &'a FlowTable) -> Option<&'a Flow> {
    flows.flow(FlowId(frame.meta.flow))
}
