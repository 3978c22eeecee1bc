//! Subscribers of a tree: counters of instances, and what is reported of them.

use std::sync::Arc;

use wire::{Nanos, PortId};

use super::TreeSide;
use super::report::percentile;
use crate::tables::{Address, QueueTree};

/// Counters of an instance, since its subscriber has had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCounts {
    /// Packets sent.
    pub sent: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
    /// Packets dropped for want of room.
    pub full: u32,
    /// Packets dropped by active queue management.
    pub early: u32,
    /// Delay of packets sent: a mean in which the last counts one eighth.
    pub delay: Nanos,
}

/// Distribution of the delays of one packet in sixteen, of the last: numbers by the logarithm of the delay, in octaves. All of them are
/// halved when one reaches 1,024, so that what is long ago counts ever less.
///
/// They lie apart from the counters: one departure after the other is another subscriber's, so that every cache line costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentDelays([u16; RecentDelays::BUCKETS]);

impl SubscriberCounts {
    /// Counts a packet that departs after that delay.
    #[inline]
    pub(super) fn count_sent(&mut self, length: u32, delay: Nanos) {
        let last = if self.sent == 0 { delay.0 } else { self.delay.0 };
        self.sent += 1;
        self.sent_bytes += u64::from(length);
        self.delay = Nanos(last - last / 8 + delay.0 / 8);
    }

    /// True if the packet that was sent last is one whose delay counts: one in sixteen, the first among them, by multiples of the golden
    /// ratio, which no period of the traffic follows.
    #[inline(always)]
    pub(super) fn is_sample(&self) -> bool {
        (self.sent as u32).wrapping_sub(1).wrapping_mul(0x9e37_79b9) >> 28 == 0
    }

    /// Adds those of the same subscriber at another worker.
    pub fn add(&mut self, other: &SubscriberCounts) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.full = self.full.saturating_add(other.full);
        self.early = self.early.saturating_add(other.early);
        self.delay = self.delay.max(other.delay);
    }
}

impl RecentDelays {
    /// Numbers of packets that are kept.
    const BUCKETS: usize = 16;
    /// Delays of the first bucket are shorter than 2 to the power of that, in nanoseconds: 131 us.
    const FIRST: u32 = 17;
    /// Packets of one bucket that halve all.
    const MOST: u16 = 1_024;

    /// Counts a packet that departs after that delay.
    #[inline(never)]
    pub(super) fn count(&mut self, delay: Nanos) {
        let octave = (u64::BITS - (delay.0 >> Self::FIRST).leading_zeros()) as usize;
        let count = &mut self.0[octave.min(Self::BUCKETS - 1)];
        *count += 1;
        if *count >= Self::MOST {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        self.0.iter_mut().for_each(|count| *count /= 2);
    }

    /// Adds those of the same subscriber at another worker.
    pub fn add(&mut self, other: &RecentDelays) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(count);
        }
    }

    /// The delay that so many thousandths of the packets did not exceed, rounded up to a power of two of 131 us at least, and of 4.3 s
    /// at most; `None` without packets.
    pub fn percentile(&self, per_mille: u64) -> Option<Nanos> {
        let place = percentile(self.0.iter().map(|count| u64::from(*count)), per_mille)?;
        Some(Nanos(1 << (Self::FIRST + place as u32)))
    }
}

/// A subscriber that has queues of its own now.
#[derive(Clone, Debug)]
pub struct SubscriberReport {
    /// Interface that the packets leave by, or come by.
    pub port: PortId,
    /// Direction.
    pub side: TreeSide,
    /// Settings of the tree.
    pub settings: Arc<QueueTree>,
    /// Place of the settings of the node with instances.
    pub node: u32,
    /// Number of the instance.
    pub number: u32,
    /// Address, or first address of a prefix; `None` of a flow, and of what all share for whom there is no instance left.
    pub address: Option<Address>,
    /// Packets that wait, and bytes of IP packets.
    pub packets: u64,
    /// Bytes of IP packets that wait.
    pub bytes: u64,
    /// Counters.
    pub counts: SubscriberCounts,
    /// Delays of the last packets sent.
    pub delays: RecentDelays,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_an_octave() {
        let mut recent = RecentDelays::default();
        assert_eq!(recent.percentile(500), None);
        // 200 us to 200 ms, in an order of no account.
        let delays: Vec<u64> = (0..1_000).map(|n| (n * 7 % 1_000 + 1) * 200_000).collect();
        delays.iter().for_each(|delay| recent.count(Nanos(*delay)));
        let mut sorted = delays;
        sorted.sort_unstable();
        for per_mille in [1, 10, 100, 500, 900, 990, 1_000] {
            let exact = sorted[per_mille as usize - 1];
            let found = recent.percentile(per_mille).unwrap().0;
            assert!(found > exact && found <= 2 * exact, "{per_mille}: {found} of {exact}");
        }
        for (delay, bound) in
            [(0, 1 << 17), ((1 << 17) - 1, 1 << 17), (1 << 17, 1 << 18), (u64::MAX, 1 << 32)]
        {
            let mut one = RecentDelays::default();
            one.count(Nanos(delay));
            assert_eq!(one.percentile(990), Some(Nanos(bound)));
        }
    }

    #[test]
    fn what_is_long_ago_counts_ever_less() {
        let mut recent = RecentDelays::default();
        (0..1_000_000).for_each(|_| recent.count(Nanos(1_000_000_000)));
        (0..20_000).for_each(|_| recent.count(Nanos(1_000_000)));
        assert_eq!(recent.percentile(990), Some(Nanos(1 << 20)));
        let (mut sum, one) = (recent, recent);
        (0..100).for_each(|_| sum.add(&one));
        assert_eq!(sum.percentile(990), Some(Nanos(1 << 20)), "of many workers");
    }

    /// Samples are one in sixteen of all packets, and of those at each place of a period.
    #[test]
    fn samples_follow_no_period() {
        let mut counts = SubscriberCounts::default();
        let samples: Vec<u64> = (0..160_000)
            .filter(|_| {
                counts.count_sent(100, Nanos(1));
                counts.is_sample()
            })
            .collect();
        assert_eq!(samples.first(), Some(&0));
        assert!(samples.len().abs_diff(10_000) < 20, "{}", samples.len());
        for period in [2, 3, 5, 8, 16, 32, 100] {
            for place in 0..period {
                let there = samples.iter().filter(|sample| *sample % period == place).count();
                let due = samples.len() / period as usize;
                assert!(there.abs_diff(due) * 10 <= due, "{there} of {due} at {place} of {period}");
            }
        }
    }
}
