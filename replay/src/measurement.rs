//! Measurement of a replay: what each queue and each class sent and lost over time, and the delays of their packets.
//!
//! Every packet is measured. A delay is the time in a queue, from arrival to the moment at which transmission begins; of a class, from
//! the arrival of the packet at the gateway. Jitter is inter-packet delay variation (RFC 3393): the difference, without its sign, of
//! the delays of two packets that depart one after the other from the queue, or of the class.

use std::collections::{BTreeMap, HashMap};

use dataplane::egress::{LeafPlace, Placement, TreeSide, ip_length, is_marked};
use dataplane::replay::Witness;
use dataplane::tables::{NO_NODE, QueueTrees};
use dataplane::{Reason, Tables, Verdict};
use hdrhistogram::Histogram;
use wire::{Frame, Nanos, PortId};

/// Steps of time that are kept.
const MOST_STEPS: usize = 480;

/// Length of a step at first, which doubles as time goes on.
const FIRST_STEP: Nanos = Nanos(1_000_000);

/// Queues, or classes, that are measured one by one: the first from which packets depart.
pub(crate) const MOST_MEASURED: usize = 1_024;

/// Figures of a queue or class in one step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that began to wait.
    pub came: u64,
    /// Packets that ended to wait.
    pub went: u64,
    /// Packets lost.
    pub lost: u64,
    /// Longest delay of those sent.
    pub delay: u64,
}

impl Step {
    /// Steps as one.
    pub fn sum<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Step {
        steps.into_iter().fold(Step::default(), |sum, step| Step {
            bytes: sum.bytes + step.bytes,
            came: sum.came + step.came,
            went: sum.went + step.went,
            lost: sum.lost + step.lost,
            delay: sum.delay.max(step.delay),
        })
    }
}

/// Figures of a queue or class.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Packets sent.
    pub sent: u64,
    /// Bytes of IP packets sent.
    pub bytes: u64,
    /// Packets lost, by reason.
    pub lost: BTreeMap<&'static str, u64>,
    /// Of a class, packets marked "congestion experienced".
    pub marked: u64,
    /// Delays, in nanoseconds.
    pub delays: Distribution,
    /// Variation of delays from packet to packet, in nanoseconds.
    pub variation: Distribution,
    last_delay: Option<Nanos>,
    steps: Vec<Step>,
}

/// Distribution of times.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// To 1 %.
    histogram: Histogram<u64>,
    longest: u64,
}

impl Distribution {
    fn new() -> Distribution {
        // Two digits are always valid.
        let histogram = Histogram::new(2).expect("two digits are a precision");
        Distribution { histogram, longest: 0 }
    }

    fn record(&mut self, time: Nanos) {
        // It grows with its values, up to the longest time that there is.
        let _ = self.histogram.record(time.0);
        self.longest = self.longest.max(time.0);
    }

    /// True if there is no time.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The time that so many per cent did not exceed, in nanoseconds; 100 for the longest.
    pub fn percentile(&self, per_cent: f64) -> u64 {
        if per_cent >= 100.0 {
            return self.longest;
        }
        self.histogram.value_at_quantile(per_cent / 100.0).min(self.longest)
    }
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn new() -> Measured {
        Measured {
            sent: 0,
            bytes: 0,
            lost: BTreeMap::new(),
            marked: 0,
            delays: Distribution::new(),
            variation: Distribution::new(),
            last_delay: None,
            steps: Vec::new(),
        }
    }

    fn count_delay(&mut self, delay: Nanos) {
        self.delays.record(delay);
        if let Some(last) = self.last_delay.replace(delay) {
            self.variation.record(Nanos(delay.0.abs_diff(last.0)));
        }
    }

    /// Figures by step.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Doubles the length of steps.
    fn coarsen(&mut self) {
        self.steps = self.steps.chunks(2).map(Step::sum).collect();
    }
}

/// Queue that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// Interface.
    pub port: PortId,
    /// True of packets that come by the interface.
    pub is_from: bool,
    /// Place in the tree; [`NO_NODE`] of a port without a tree.
    pub leaf: u32,
    /// True of DualPI2's queue of low latency.
    pub is_low_latency: bool,
}

impl QueueKey {
    /// Key of the leaf of a tree.
    pub fn of(side: TreeSide, place: LeafPlace) -> QueueKey {
        let LeafPlace { port, leaf, is_low_latency } = place;
        QueueKey { port, is_from: side == TreeSide::From, leaf, is_low_latency }
    }
}

/// Figures of a replay.
#[derive(Debug)]
pub struct Measurements {
    /// By queue; ports without a tree have one where a rate bounds them.
    pub queues: HashMap<QueueKey, Measured>,
    /// By class, from 1; 0 for packets of no class.
    pub classes: HashMap<u16, Measured>,
    /// First arrival.
    pub begin: Nanos,
    /// Last departure or loss.
    pub end: Nanos,
    /// Length of a step.
    pub step: Nanos,
}

impl Measurements {
    /// Time from the first arrival to the last departure.
    pub fn seconds(&self) -> f64 {
        self.end.since(self.begin).as_secs_f64()
    }

    /// Mean rate over that time, in bits per second, of IP packets.
    pub fn rate(&self, measured: &Measured) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { measured.bytes as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// Figures of a queue in the step of a moment.
    fn queue(&mut self, key: QueueKey, at: Nanos) -> Option<(&mut Measured, usize)> {
        let place = self.reach(at);
        if self.queues.len() >= MOST_MEASURED && !self.queues.contains_key(&key) {
            return None;
        }
        Some((self.queues.entry(key).or_insert_with(Measured::new), place))
    }

    fn class(&mut self, class: u16, at: Nanos) -> Option<(&mut Measured, usize)> {
        let place = self.reach(at);
        if self.classes.len() >= MOST_MEASURED && !self.classes.contains_key(&class) {
            return None;
        }
        Some((self.classes.entry(class).or_insert_with(Measured::new), place))
    }

    /// Step of a moment; steps grow until there is room for it.
    fn reach(&mut self, at: Nanos) -> usize {
        self.end = self.end.max(at);
        loop {
            let place = (at.since(self.begin).0 / self.step.0) as usize;
            if place < MOST_STEPS {
                return place;
            }
            self.step = Nanos(self.step.0.saturating_mul(2));
            self.queues.values_mut().chain(self.classes.values_mut()).for_each(Measured::coarsen);
        }
    }
}

fn step(measured: &mut Measured, place: usize) -> &mut Step {
    if measured.steps.len() <= place {
        measured.steps.resize(place + 1, Step::default());
    }
    &mut measured.steps[place]
}

/// Witness of a replay that measures, and tells another witness all that it is told.
pub struct Observer<W> {
    /// The other witness.
    pub outputs: W,
    trees: QueueTrees,
    /// Ports without a tree whose rate is bounded, by place.
    has_rate: Vec<bool>,
    /// Figures so far.
    pub measured: Measurements,
    /// Arrivals of packets under way, by number.
    arrivals: HashMap<u32, Nanos>,
    /// True if the policy has queues, rates or classes to measure.
    is_needed: bool,
}

impl<W: Witness> Observer<W> {
    /// An observer from `begin` on.
    pub fn new(outputs: W, tables: &Tables, begin: Nanos) -> Observer<W> {
        let has_rate: Vec<bool> =
            tables.interfaces.iter().map(|interface| interface.egress.rate().is_some()).collect();
        let has_queues = has_rate.contains(&true) || !tables.queues.is_empty();
        Observer {
            outputs,
            trees: tables.queues.clone(),
            is_needed: has_queues || !tables.classes.list.is_empty(),
            has_rate,
            measured: Measurements {
                queues: HashMap::new(),
                classes: HashMap::new(),
                begin,
                end: begin,
                step: FIRST_STEP,
            },
            arrivals: HashMap::new(),
        }
    }

    /// Notes the arrival of the packet of that number.
    pub fn comes(&mut self, number: u32, at: Nanos) {
        if self.is_needed {
            self.arrivals.insert(number, at);
            self.measured.end = self.measured.end.max(at);
        }
    }

    /// Leaves that a frame waits in; a port whose rate is bounded has one without a tree, too.
    fn placement(&self, frame: &Frame) -> (Option<QueueKey>, Option<QueueKey>) {
        let Placement { from, on } = Placement::of(frame, &self.trees);
        let port = frame.meta.egress;
        let is_bounded = self.has_rate.get(usize::from(port.0)).is_some_and(|has_rate| *has_rate);
        let queue =
            is_bounded.then_some(QueueKey { port, is_from: false, leaf: NO_NODE, is_low_latency: false });
        let key = |side| move |place| QueueKey::of(side, place);
        (from.map(key(TreeSide::From)), on.map(key(TreeSide::On)).or(queue))
    }

    fn departs(&mut self, key: QueueKey, entered: Nanos, left: Nanos, length: u32) {
        if let Some((measured, place)) = self.measured.queue(key, entered) {
            step(measured, place).came += 1;
        }
        if let Some((measured, place)) = self.measured.queue(key, left) {
            count(measured, place, left.since(entered), length);
        }
    }
}

/// Counts a packet that departs.
fn count(measured: &mut Measured, place: usize, delay: Nanos, length: u32) {
    measured.sent += 1;
    measured.bytes += u64::from(length);
    measured.count_delay(delay);
    let step = step(measured, place);
    step.bytes += u64::from(length);
    step.went += 1;
    step.delay = step.delay.max(delay.0);
}

impl<W: Witness> Witness for Observer<W> {
    fn released(&mut self, number: u32, first: u32) {
        self.outputs.released(number, first);
    }

    fn queued(&mut self, port: PortId, frame: &Frame) {
        self.outputs.queued(port, frame);
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.outputs.sent(port, at, frame, verdict);
        if !self.is_needed {
            return;
        }
        let length = ip_length(frame);
        let queued = frame.meta.received;
        // A further fragment comes out of a packet that is accounted for.
        let arrival = verdict.and_then(|_| self.arrivals.remove(&frame.meta.number));
        let (from, on) = self.placement(frame);
        if let Some(from) = from {
            self.departs(from, arrival.unwrap_or(queued), queued, length);
        }
        if let Some(on) = on {
            self.departs(on, queued, at, length);
        }
        if verdict != Some(Verdict::Forwarded) {
            return;
        }
        let (class, entered) = (frame.meta.class, arrival.unwrap_or(queued));
        if let Some((measured, place)) = self.measured.class(class, entered) {
            step(measured, place).came += 1;
        }
        if let Some((measured, place)) = self.measured.class(class, at) {
            count(measured, place, at.since(entered), length);
            measured.marked += u64::from(is_marked(frame));
        }
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.outputs.ended(frame, verdict);
        let arrival = self.arrivals.remove(&frame.meta.number);
        let Verdict::Dropped(reason) = verdict else { return };
        if !self.is_needed {
            return;
        }
        let at = arrival.unwrap_or(frame.meta.received);
        let (from, on) = self.placement(frame);
        let is_of_queue = reason == Reason::QueueFull;
        if let (true, Some(key)) = (is_of_queue, from.or(on)) {
            self.loses(key, at, at, reason);
        }
        self.loses_of_class(frame.meta.class, at, at, reason);
    }

    fn ended_at(&mut self, at: Nanos, frame: &Frame, verdict: Verdict) {
        self.outputs.ended_at(at, frame, verdict);
        let queued = frame.meta.received;
        let arrival = self.arrivals.remove(&frame.meta.number).unwrap_or(queued);
        let Verdict::Dropped(reason) = verdict else { return };
        let (from, on) = self.placement(frame);
        // A frame that has come to its port's tree at once cannot be told from one that never left the first tree.
        let key = if queued > arrival { on } else { from.or(on) };
        if let Some(key) = key {
            self.loses(key, queued, at, reason);
        }
        self.loses_of_class(frame.meta.class, arrival, at, reason);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        self.outputs.refused(number, ingress, reason);
        self.arrivals.remove(&number);
    }
}

impl<W> Observer<W> {
    fn loses(&mut self, key: QueueKey, entered: Nanos, at: Nanos, reason: Reason) {
        if let Some((measured, place)) = self.measured.queue(key, entered) {
            step(measured, place).came += 1;
        }
        if let Some((measured, place)) = self.measured.queue(key, at) {
            lose(measured, place, reason);
        }
    }

    fn loses_of_class(&mut self, class: u16, entered: Nanos, at: Nanos, reason: Reason) {
        if let Some((measured, place)) = self.measured.class(class, entered) {
            step(measured, place).came += 1;
        }
        if let Some((measured, place)) = self.measured.class(class, at) {
            lose(measured, place, reason);
        }
    }
}

/// Counts a packet that is lost.
fn lose(measured: &mut Measured, place: usize, reason: Reason) {
    *measured.lost.entry(reason.name()).or_default() += 1;
    let step = step(measured, place);
    step.lost += 1;
    step.went += 1;
}
