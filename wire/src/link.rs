//! The link behind a port: transmission time of each frame, and time at which the link is free for the next one.
//!
//! Arithmetic is exact: the remainder of a division is carried to the next frame, so that a link of any rate up to 10
//! Tbit/s, where the shortest frame takes 67 ps, carries its rate over any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::atm::{CELL_LEN, PAYLOAD_LEN};
use crate::link_kind::{LinkKind, STAND_IN};
use crate::segment::Segments;
use crate::unit::{BitRate, Bytes, Nanos};

/// Highest rate of a link.
pub const MOST_RATE: BitRate = BitRate(10_000_000_000_000);

/// Bytes that Ethernet carries beside a frame without its check sequence: preamble and start delimiter (8), frame check
/// sequence (4), interpacket gap (12) (IEEE 802.3, clauses 3.1.1 and 4.4.2).
pub const ETHERNET_OVERHEAD: Bytes = Bytes(24);

/// Shortest Ethernet frame without its check sequence; shorter ones are padded.
const ETHERNET_LEAST: usize = 60;

/// Time by which frames are handed to a device ahead of their transmission: long enough for the timer of a worker that sleeps
/// meanwhile, and short beside the delay that a queue is to keep (5 ms in RFC 8289). 25 kB at 1 Gbit/s.
pub const DEVICE_AHEAD: Nanos = Nanos(200_000);

/// Length that stands for one ATM cell on a link [in cells](Link::in_cells), which adds nothing to it.
pub const ONE_CELL: usize = usize::MAX;

const SECOND: u64 = 1_000_000_000;

/// Workers that send by a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    /// One: its time needs no atomic exchange.
    One,
    Several,
}

/// Units in which a link carries bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Units {
    Bytes,
    /// ATM cells, the last of each frame padded.
    Cells,
}

/// Transmission time of a frame of so many bytes.
#[derive(Clone, Copy, Debug)]
struct Span {
    bytes: u64,
    /// Whole nanoseconds.
    whole: u64,
    /// Remainder of the division, in nanoseconds divided by the rate.
    rest: u64,
}

impl Span {
    /// Of no frame.
    const NONE: Span = Span { bytes: u64::MAX - 1, whole: 0, rest: 0 };
}

/// A link, in one direction. A link without a rate is always free.
#[derive(Debug)]
pub struct Link {
    rate: Option<BitRate>,
    overhead: Bytes,
    /// Bytes of a frame's stand-in header, which the link does not carry.
    stand_in: usize,
    least: usize,
    units: Units,
    /// Time at which the last frame has left the link, in whole nanoseconds. Workers that send by one port share it.
    free: Arc<AtomicU64>,
    users: Users,
    /// Transmission time of the last frame.
    span: Span,
    /// Remainder of the last frame's transmission time, in nanoseconds divided by the rate.
    remainder: u64,
    /// Time by which a frame may be taken before its transmission begins.
    ahead: Nanos,
    /// True if the link has a rate, or had one: otherwise it is always free.
    is_paced: bool,
}

impl Link {
    /// Creates a link that is free from the beginning of time on. `overhead` is counted with each frame, whose length
    /// is counted from the Ethernet header on; on a link of bare IP packets, whose header is a stand-in, from the IP
    /// header on.
    pub fn new(kind: LinkKind, rate: Option<BitRate>, overhead: Bytes) -> Link {
        let (stand_in, least) = match kind {
            LinkKind::Ethernet => (0, ETHERNET_LEAST),
            LinkKind::Ip => (STAND_IN, 0),
        };
        let rate = rate.map(|BitRate(rate)| BitRate(rate.clamp(1, MOST_RATE.0)));
        let (free, is_paced) = (Arc::default(), rate.is_some());
        Link {
            rate,
            overhead,
            stand_in,
            least,
            units: Units::Bytes,
            free,
            users: Users::One,
            span: Span::NONE,
            remainder: 0,
            ahead: Nanos(0),
            is_paced,
        }
    }

    /// Creates the link of a device that sends at `rate` by itself, and is given frames [ahead](DEVICE_AHEAD) of that moment: the
    /// others wait where they can still be scheduled.
    pub fn of_device(kind: LinkKind, rate: BitRate, overhead: Bytes) -> Link {
        Link { ahead: DEVICE_AHEAD, ..Link::new(kind, Some(rate), overhead) }
    }

    /// The link, carrying each frame and its overhead in ATM cells of 53 bytes with 48 of payload. Frames are not padded otherwise.
    #[must_use]
    pub fn in_cells(self) -> Link {
        Link { units: Units::Cells, least: 0, ..self }
    }

    /// Another link of the same rate and overhead, free from the beginning of time on.
    #[must_use]
    pub fn another(&self) -> Link {
        Link { free: Arc::default(), users: Users::One, ..self.shared() }
    }

    /// The same link for another worker.
    #[must_use]
    pub fn shared(&self) -> Link {
        let Link { rate, overhead, stand_in, least, units, ref free, ahead, span, is_paced, .. } = *self;
        let (free, users) = (Arc::clone(free), Users::Several);
        Link { rate, overhead, stand_in, least, units, free, users, span, remainder: 0, ahead, is_paced }
    }

    /// True if frames are held back to a rate that nobody else keeps: no device's own.
    pub fn holds_back(&self) -> bool {
        self.rate.is_some() && self.ahead == Nanos(0)
    }

    /// Length that stands for frames that are given to the link as one, for [`Link::take`]: each has its overhead.
    pub fn length_of(&self, frames: Segments) -> usize {
        (frames.bytes + frames.count.saturating_sub(1) * self.overhead.0) as usize
    }

    /// Continues as `other`: shares its free time, and keeps its own rate and overhead.
    pub fn continue_from(&mut self, other: &Link) {
        self.free = Arc::clone(&other.free);
        if other.users == Users::Several {
            self.users = Users::Several;
        }
        self.remainder = if self.rate == other.rate { other.remainder } else { 0 };
        self.is_paced |= other.is_paced;
    }

    /// Rate, where the link has one.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// True if the link has a rate, or had one: transmissions may have to wait for one another.
    #[inline(always)]
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Moment of the next opportunity to send.
    #[inline(always)]
    pub fn opportunity(&self) -> Nanos {
        if !self.is_paced {
            return Nanos(0);
        }
        Nanos(self.free.load(Ordering::Relaxed).saturating_sub(self.ahead.0))
    }

    /// Takes the next opportunity to send a frame of that many bytes, ready since `ready`, and returns the moment at
    /// which its transmission begins: by `now`, or on the link of a device up to [`DEVICE_AHEAD`] later.
    ///
    /// # Errors
    /// The moment of the next opportunity, if later than `now`.
    #[inline(always)]
    pub fn take(&mut self, ready: Nanos, now: Nanos, bytes: usize) -> Result<Nanos, Nanos> {
        if self.is_paced {
            return self.take_paced(ready, now, bytes);
        }
        if ready <= now { Ok(ready) } else { Err(ready) }
    }

    /// Takes the opportunity to send a frame of that many bytes that has come at `at`, and returns the moment at which its transmission
    /// begins.
    #[inline(always)]
    pub fn begin(&mut self, at: Nanos, bytes: usize) -> Nanos {
        if !self.is_paced {
            return at;
        }
        match self.occupy(at, Nanos::MAX, bytes) {
            Ok(start) | Err(start) => start,
        }
    }

    #[inline(never)]
    fn take_paced(&mut self, ready: Nanos, now: Nanos, bytes: usize) -> Result<Nanos, Nanos> {
        self.occupy(ready, now, bytes)
    }

    /// [`Link::take`] on a link that has a rate, or had one.
    #[inline(always)]
    fn occupy(&mut self, ready: Nanos, now: Nanos, bytes: usize) -> Result<Nanos, Nanos> {
        let Some(rate) = self.rate else {
            // There was a rate before.
            let start = Nanos(ready.0.max(self.free.load(Ordering::Relaxed)));
            return if start <= now { Ok(start) } else { Err(start) };
        };
        let bytes = match bytes {
            ONE_CELL => ONE_CELL as u64,
            bytes => bytes.saturating_sub(self.stand_in).max(self.least) as u64,
        };
        if bytes != self.span.bytes {
            self.measure(bytes, rate);
        }
        let Span { whole, rest, .. } = self.span;
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let start = ready.0.max(free);
            let opportunity = start.saturating_sub(self.ahead.0);
            if opportunity.max(ready.0) > now.0 {
                return Err(Nanos(opportunity).max(ready));
            }
            // Of a link that has been idle since nothing is left over.
            let mut left = rest + if ready.0 > free { 0 } else { self.remainder };
            let mut next = start.saturating_add(whole);
            if left >= rate.0 {
                left -= rate.0;
                next = next.saturating_add(1);
            }
            match self.set_free(free, next) {
                Ok(_) => {
                    self.remainder = left;
                    return Ok(Nanos(start));
                }
                Err(now_free) => free = now_free,
            }
        }
    }

    /// Finds the transmission time of frames of one length, which come in a row: it is divided once.
    #[inline(never)]
    fn measure(&mut self, bytes: u64, rate: BitRate) {
        let carried = bytes.saturating_add(self.overhead.0);
        let carried = match self.units {
            Units::Cells if bytes == ONE_CELL as u64 => CELL_LEN as u64,
            Units::Bytes => carried,
            Units::Cells => carried.div_ceil(PAYLOAD_LEN as u64).saturating_mul(CELL_LEN as u64),
        };
        let bits = carried.saturating_mul(8);
        let total = bits.saturating_mul(SECOND);
        self.span = Span { bytes, whole: total / rate.0, rest: total % rate.0 };
    }

    /// Sets the time at which the link is free, which was `before`.
    ///
    /// # Errors
    /// The time that another worker has set meanwhile.
    #[inline(always)]
    fn set_free(&self, before: u64, next: u64) -> Result<u64, u64> {
        match self.users {
            Users::One => {
                self.free.store(next, Ordering::Relaxed);
                Ok(before)
            }
            Users::Several => {
                self.free.compare_exchange_weak(before, next, Ordering::Relaxed, Ordering::Relaxed)
            }
        }
    }

    /// Follows a clock that was set back by `span`.
    pub fn set_back(&mut self, span: Nanos) {
        let free = self.free.load(Ordering::Relaxed);
        self.free.store(free.saturating_sub(span.0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(rate: u64) -> Link {
        Link::new(LinkKind::Ethernet, Some(BitRate(rate)), ETHERNET_OVERHEAD)
    }

    /// Sends frames that are all ready at once, and returns the moment at which the last begins.
    fn burst(link: &mut Link, frames: u64, bytes: usize) -> Nanos {
        let mut last = Nanos(0);
        for _ in 0..frames {
            last = link.take(Nanos(1_000), Nanos::MAX, bytes).unwrap();
        }
        last
    }

    #[test]
    fn a_link_without_a_rate_is_always_free() {
        let mut link = Link::new(LinkKind::Ethernet, None, ETHERNET_OVERHEAD);
        assert_eq!(burst(&mut link, 1_000, 1_514), Nanos(1_000));
        assert_eq!(link.take(Nanos(7), Nanos(6), 60), Err(Nanos(7)));
        assert_eq!(link.take(Nanos(7), Nanos(7), 60), Ok(Nanos(7)));
    }

    /// 14,880,952 frames of 64 bytes a second on 10 Gbit/s, as in every data sheet; 81,274 of 1,518 bytes on 1 Gbit/s.
    #[test]
    fn ethernet_carries_the_published_numbers_of_frames() {
        for (rate, bytes, frames) in [
            (10_000_000_000, 60, 14_880_952),
            (1_000_000_000, 1_514, 81_274),
            (100_000_000, 42, 148_809),
            (10_000_000_000_000, 60, 14_880_952_380),
        ] {
            let mut link = ethernet(rate);
            // A hundredth of a second, or as many frames as that lasts in a test.
            let share = if frames > 1_000_000_000 { 10_000 } else { 100 };
            let sent = burst(&mut link, frames / share + 1, bytes);
            let expected = SECOND / share;
            assert!(sent.0 - 1_000 <= expected, "{rate} {bytes}: {sent}");
            assert!(link.take(Nanos(0), Nanos::MAX, bytes).unwrap().0 - 1_000 > expected - 10_000, "{rate}");
        }
    }

    #[test]
    fn remainders_are_carried_as_long_as_the_link_is_busy() {
        // 24 + 60 bytes at 7 bit/s: 96 s to the frame.
        let mut link = ethernet(7);
        assert_eq!(link.take(Nanos(0), Nanos(0), 60), Ok(Nanos(0)));
        assert_eq!(link.take(Nanos(0), Nanos(0), 60), Err(Nanos(96 * SECOND)));
        // Three frames of 61 bytes take 97 1/7 s each: 291 3/7 s, not three times 97.142857142.
        let mut link = ethernet(7);
        for expected in [0, 97_142_857_142, 194_285_714_285, 291_428_571_428, 388_571_428_571] {
            assert_eq!(link.take(Nanos(0), Nanos::MAX, 61), Ok(Nanos(expected)));
        }
        // One that has been idle begins with nothing left over.
        let idle = Nanos(1_000 * SECOND);
        assert_eq!(link.take(idle, Nanos::MAX, 61), Ok(idle));
        assert_eq!(link.take(idle, Nanos::MAX, 61), Ok(Nanos(idle.0 + 97_142_857_142)));
    }

    #[test]
    fn workers_that_share_a_link_share_its_rate() {
        let mut one = ethernet(8_000_000_000);
        let mut two = one.shared();
        let mut apart = one.another();
        assert_eq!(one.take(Nanos(0), Nanos::MAX, 976), Ok(Nanos(0)));
        assert_eq!(two.take(Nanos(0), Nanos(999), 976), Err(Nanos(1_000)));
        assert_eq!(two.take(Nanos(0), Nanos(1_000), 976), Ok(Nanos(1_000)));
        assert_eq!(one.take(Nanos(0), Nanos::MAX, 976), Ok(Nanos(2_000)));
        assert_eq!(apart.take(Nanos(0), Nanos::MAX, 976), Ok(Nanos(0)));
    }

    /// Threads that send at the same time by one link: no transmissions overlap, none leaves a gap, and all together take the time of
    /// their bits at the link's rate, but for what is left over at each thread, less than a nanosecond.
    #[test]
    fn workers_that_send_at_once_keep_the_rate_to_the_nanosecond() {
        const WORKERS: u64 = 4;
        let rate = 7_654_321_987;
        let link = ethernet(rate);
        let barrier = std::sync::Barrier::new(WORKERS as usize);
        let send = |mut link: Link, worker: u64| {
            let mut sent = Vec::new();
            barrier.wait();
            for n in 0..5_000 {
                let bytes = 60 + ((n * 7 + worker * 13) % 1_400) as usize;
                let start = link.take(Nanos(1_000), Nanos::MAX, bytes).unwrap();
                sent.push((start.0, (bytes as u64 + ETHERNET_OVERHEAD.0) * 8 * SECOND));
            }
            sent
        };
        let mut sent: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let (link, send) = (&link, &send);
            let threads: Vec<_> =
                (0..WORKERS).map(|worker| scope.spawn(move || send(link.shared(), worker))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        sent.sort_unstable();
        assert_eq!(sent[0].0, 1_000);
        for pair in sent.windows(2) {
            let time = pair[1].0 - pair[0].0;
            assert!((0..=1).contains(&(time - pair[0].1 / rate)), "{pair:?}");
        }
        let total: u128 = sent.iter().map(|(_, bits)| u128::from(*bits)).sum();
        let due = 1_000 + (total / u128::from(rate)) as u64;
        let free = link.opportunity().0;
        assert!(free <= due && due - free < WORKERS, "{free} {due}");
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_what_is_still_to_send() {
        let mut link = ethernet(8_000_000_000);
        let _ = link.take(Nanos(5_000), Nanos::MAX, 976);
        link.set_back(Nanos(5_500));
        assert_eq!(link.take(Nanos(0), Nanos::MAX, 976), Ok(Nanos(500)));
    }

    #[test]
    fn a_device_is_given_frames_ahead_of_their_transmission() {
        let mut link = Link::of_device(LinkKind::Ethernet, BitRate(8_000_000_000), ETHERNET_OVERHEAD);
        let now = Nanos(1_000_000);
        // A microsecond each: the first at once, and 200 ahead.
        for sent in 0..=200 {
            assert_eq!(link.take(now, now, 976), Ok(Nanos(now.0 + sent * 1_000)));
        }
        assert_eq!(link.take(now, now, 976), Err(Nanos(1_001_000)));
        assert_eq!(link.take(now, Nanos(1_001_000), 976), Ok(Nanos(1_201_000)));
        // None before it is ready.
        let later = Nanos(9_000_000);
        assert_eq!(link.take(later, Nanos(later.0 - 1), 976), Err(later));
    }

    #[test]
    fn a_cell_has_53_bytes_whatever_packets_have_beside_them() {
        let rate = Some(BitRate(8_000_000_000));
        for kind in [LinkKind::Ip, LinkKind::Ethernet] {
            let mut link = Link::new(kind, rate, Bytes(16)).in_cells();
            let _ = link.take(Nanos(0), Nanos::MAX, ONE_CELL);
            assert_eq!(link.take(Nanos(0), Nanos::MAX, 100), Ok(Nanos(53)));
        }
    }

    #[test]
    fn bare_packets_are_not_padded() {
        let mut link = Link::new(LinkKind::Ip, Some(BitRate(8_000_000_000)), Bytes(0));
        let _ = link.take(Nanos(0), Nanos::MAX, STAND_IN + 34);
        assert_eq!(link.take(Nanos(0), Nanos::MAX, 60), Ok(Nanos(34)));
    }
}
