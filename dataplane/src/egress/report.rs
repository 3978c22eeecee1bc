//! Counters of a leaf, and the delays of its packets.

use wire::{Frame, Nanos};

use crate::stage::header;
use crate::tables::QueueNode;

/// Counters of the leaf of one name, of all its instances together; with DualPI2, of its classic queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafCounts {
    /// Packets that wait.
    pub packets: u64,
    /// Bytes of IP packets that wait.
    pub bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
    /// Packets dropped for want of room.
    pub full: u64,
    /// Packets dropped by active queue management.
    pub early: u64,
    /// Packets marked (ECN) in the place of a drop.
    pub marked: u64,
    /// Delays of packets sent.
    pub delays: Delays,
    /// Counters of DualPI2's queue of low latency.
    pub low_latency: Option<Box<LeafCounts>>,
}

/// Distribution of delays: number of packets by the logarithm of their delay, in eighths of an octave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Number of packets, by bucket.
    counts: Box<[u64]>,
}

/// Nodes of a tree whose delays are counted: 4 KB each.
const MOST_WITH_DELAYS: usize = 4_096;

/// Buckets of an octave, as a power of two.
const BITS: u32 = 3;

/// Buckets of all 64 bits of time.
const BUCKETS: usize = (64 - BITS as usize + 1) << BITS;

impl LeafCounts {
    /// All zero, with room for delays if the tree has few nodes.
    pub(super) fn new(node: &QueueNode, nodes: usize) -> LeafCounts {
        let has_delays = nodes <= MOST_WITH_DELAYS;
        let zero = || LeafCounts {
            delays: if has_delays { Delays::new() } else { Delays::default() },
            ..LeafCounts::default()
        };
        LeafCounts { low_latency: node.is_dual().then(|| Box::new(zero())), ..zero() }
    }

    /// Counters of the queue of a frame, by its bytes before a mark.
    #[inline(always)]
    pub(super) fn of(&mut self, frame: &Frame) -> &mut LeafCounts {
        if self.low_latency.is_none() || !header::is_low_latency(frame) {
            return self;
        }
        self.low_latency.as_deref_mut().expect("it was there a line before")
    }

    /// Goes on from the counters of a leaf of the same name, without what waits there.
    pub(super) fn continue_from(&mut self, before: &LeafCounts) {
        let low_latency = self.low_latency.take();
        *self = LeafCounts { packets: 0, bytes: 0, low_latency, ..before.clone() };
        if let (Some(low), Some(before)) = (&mut self.low_latency, &before.low_latency) {
            low.continue_from(before);
        }
    }

    /// Counts a packet that waits from now on. The sum over all instances is kept packet by packet: there may be millions of them.
    #[inline(always)]
    pub(super) fn count_queued(&mut self, length: u32) {
        self.packets += 1;
        self.bytes += u64::from(length);
    }

    /// Counts a packet that has waited, and is sent or dropped now.
    #[inline(always)]
    pub(super) fn count_taken(&mut self, length: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(length);
    }

    /// Counts a packet that departs after that delay.
    #[inline]
    pub(super) fn count_sent(&mut self, length: u32, delay: Nanos) {
        self.sent += 1;
        self.sent_bytes += u64::from(length);
        self.delays.count(delay);
    }

    /// Adds what others have counted.
    pub fn add(&mut self, other: &LeafCounts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.full += other.full;
        self.early += other.early;
        self.marked += other.marked;
        self.delays.add(&other.delays);
    }
}

impl Delays {
    /// Of no packets.
    pub(super) fn new() -> Delays {
        Delays { counts: vec![0; BUCKETS].into() }
    }

    #[inline]
    fn count(&mut self, delay: Nanos) {
        if let Some(count) = self.counts.get_mut(bucket(delay.0)) {
            *count += 1;
        }
    }

    fn add(&mut self, other: &Delays) {
        if self.counts.is_empty() {
            self.counts = other.counts.clone();
            return;
        }
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    /// Number of packets by their longest delay, of buckets that have any.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(place, count)| (Nanos(upper(place)), *count))
    }

    /// The delay that so many thousandths of the packets did not exceed, to an eighth; `None` without packets.
    pub fn percentile(&self, per_mille: u64) -> Option<Nanos> {
        percentile(self.counts.iter().copied(), per_mille).map(|place| Nanos(upper(place)))
    }
}

/// Bucket of the packet that so many thousandths of all do not exceed; `None` without packets.
pub(super) fn percentile(mut counts: impl Iterator<Item = u64> + Clone, per_mille: u64) -> Option<usize> {
    let total: u64 = counts.clone().sum();
    if total == 0 {
        return None;
    }
    let rank = (u128::from(total) * u128::from(per_mille)).div_ceil(1_000).max(1) as u64;
    let mut seen = 0;
    counts.position(|count| {
        seen += count;
        seen >= rank
    })
}

/// Bucket of a delay.
#[inline]
fn bucket(delay: u64) -> usize {
    if delay < 1 << BITS {
        return delay as usize;
    }
    let octave = 63 - delay.leading_zeros() - BITS;
    ((octave as usize + 1) << BITS) + ((delay >> octave) as usize - (1 << BITS))
}

/// Longest delay of a bucket.
fn upper(bucket: usize) -> u64 {
    let (octave, place) = (bucket >> BITS, bucket & ((1 << BITS) - 1));
    if octave == 0 {
        return place as u64;
    }
    let shift = octave as u32 - 1;
    let first = ((1 << BITS) + place as u64) << shift;
    first + ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_delays_to_an_eighth() {
        for delay in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let upper = upper(bucket(delay));
            assert!(upper >= delay && upper - delay <= delay / 8, "{delay} {upper}");
        }
        let mut delays = Delays::new();
        assert_eq!(delays.percentile(500), None);
        (1..=1_000).for_each(|delay| delays.count(Nanos(delay * 1_000)));
        let within = |per_mille, exact: u64| {
            let found = delays.percentile(per_mille).unwrap().0;
            assert!(found >= exact && found <= exact + exact / 8, "{per_mille}: {found}");
        };
        within(500, 500_000);
        within(990, 990_000);
        within(1_000, 1_000_000);
        assert_eq!(delays.buckets().map(|(_, count)| count).sum::<u64>(), 1_000);
        assert!(delays.buckets().all(|(longest, _)| longest.0 >= 1_000 && longest.0 <= 1_125_000));
    }
}
