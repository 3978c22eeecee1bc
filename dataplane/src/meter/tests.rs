//! Meters against the pseudo-code of the RFCs, token by token.

use policy::model::{Colour, ColourMode, Meter as Settings, MeterKind, MeterRate, Overhead};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::{BitRate, Bytes, Nanos};

use super::{Arrival, Buckets, Meter};
use crate::nat::Share;

const KINDS: [MeterKind; 4] =
    [MeterKind::TokenBucket, MeterKind::SingleRate, MeterKind::TwoRate, MeterKind::Rfc4115];

/// The RFCs' algorithms, as written there: counters of whole tokens, each of which is increased by one at its moment.
struct Reference {
    settings: Settings,
    start: Nanos,
    now: Nanos,
    first: u64,
    second: u64,
}

impl Reference {
    fn new(settings: &Settings, start: Nanos) -> Reference {
        let second = settings.peak_burst.or(settings.excess_burst).unwrap_or(0);
        Reference { settings: settings.clone(), start, now: start, first: settings.burst, second }
    }

    /// Tokens of a rate from the start to a moment.
    fn ticks(&self, rate: Option<MeterRate>, at: Nanos) -> u64 {
        let (rate, divisor) = match rate {
            Some(MeterRate::Bits(rate)) => (rate.0, 8_000_000_000),
            Some(MeterRate::Packets(rate)) => (rate, 1_000_000_000),
            None => return 0,
        };
        (u128::from(at.since(self.start).0) * u128::from(rate) / divisor) as u64
    }

    fn advance(&mut self, now: Nanos) {
        let now = self.now.max(now);
        let come = |rate| self.ticks(rate, now) - self.ticks(rate, self.now);
        let Settings { kind, rate, burst, peak_rate, peak_burst, excess_rate, excess_burst, .. } =
            self.settings;
        let first = come(Some(rate));
        let (second_rate, depth) = match kind {
            MeterKind::TwoRate => (peak_rate, peak_burst.unwrap_or(0)),
            _ => (excess_rate, excess_burst.unwrap_or(0)),
        };
        let second = come(second_rate);
        self.now = now;
        for _ in 0..first {
            // RFC 2697: "If Tc is less than CBS, Tc is incremented by one, else if Te is less than EBS, Te is incremented by
            // one, else neither Tc nor Te is incremented."
            if self.first < burst {
                self.first += 1;
            } else if kind == MeterKind::SingleRate && self.second < depth {
                self.second += 1;
            } else {
                break;
            }
        }
        if kind != MeterKind::SingleRate {
            self.second = (self.second + second).min(depth);
        }
    }

    fn colour(&mut self, length: u64, before: Colour, now: Nanos) -> Colour {
        self.advance(now);
        let size = match self.settings.rate {
            MeterRate::Bits(_) => self.settings.overhead.count(length),
            MeterRate::Packets(_) => 1,
        };
        let is_aware = self.settings.colours == ColourMode::Aware;
        match (self.settings.kind, is_aware) {
            (MeterKind::TokenBucket, _) => match before {
                Colour::Red if is_aware => Colour::Red,
                _ if self.first < size => Colour::Red,
                before => {
                    self.first -= size;
                    if is_aware { before } else { Colour::Green }
                }
            },
            // RFC 2697, section 3: "If Tc(t)-B >= 0, the packet is green [...]; else if Te(t)-B >= 0, the packet is yellow".
            (MeterKind::SingleRate | MeterKind::Rfc4115, false) => {
                if self.first >= size {
                    self.first -= size;
                    Colour::Green
                } else if self.second >= size {
                    self.second -= size;
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
            (MeterKind::SingleRate | MeterKind::Rfc4115, true) => {
                if before == Colour::Green && self.first >= size {
                    self.first -= size;
                    Colour::Green
                } else if before != Colour::Red && self.second >= size {
                    self.second -= size;
                    Colour::Yellow
                } else {
                    Colour::Red
                }
            }
            // RFC 2698, section 3.
            (MeterKind::TwoRate, is_aware) => {
                let (is_red, is_yellow) = (before == Colour::Red, before == Colour::Yellow);
                if is_aware && is_red || self.second < size {
                    Colour::Red
                } else if is_aware && is_yellow || self.first < size {
                    self.second -= size;
                    Colour::Yellow
                } else {
                    self.first -= size;
                    self.second -= size;
                    Colour::Green
                }
            }
        }
    }
}

fn rate(packets: bool) -> BoxedStrategy<MeterRate> {
    if packets {
        (1..100_000_u64).prop_map(MeterRate::Packets).boxed()
    } else {
        prop_oneof![1..1_000_u64, 1..1_000_000_000_u64]
            .prop_map(|rate| MeterRate::Bits(BitRate(rate)))
            .boxed()
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let kinds = (0..KINDS.len(), any::<bool>(), any::<bool>());
    let overhead = prop_oneof![
        Just(Overhead::IP),
        Just(Overhead::ETHERNET),
        (0..64_u64).prop_map(|bytes| Overhead::Atm(Bytes(bytes))),
        (0..64_u64).prop_map(|bytes| Overhead::Ptm(Bytes(bytes))),
    ];
    (kinds, overhead).prop_flat_map(|((kind, aware, packets), overhead)| {
        let burst = || if packets { 0..20_u64 } else { 0..20_000_u64 };
        let bursts = (burst(), burst());
        (rate(packets), rate(packets), bursts).prop_map(move |(rate, second, bursts)| {
            let kind = KINDS[kind];
            let (peak, excess) = (kind == MeterKind::TwoRate, kind == MeterKind::Rfc4115);
            Settings {
                kind,
                rate,
                burst: bursts.0,
                peak_rate: peak.then_some(second),
                peak_burst: peak.then_some(bursts.1),
                excess_rate: excess.then_some(second),
                excess_burst: (excess || kind == MeterKind::SingleRate).then_some(bursts.1),
                colours: if aware { ColourMode::Aware } else { ColourMode::Blind },
                overhead,
                ..Settings::new("m")
            }
        })
    })
}

/// Gaps between packets, most of them short; some backward, some of an hour.
fn gaps() -> impl Strategy<Value = Vec<(i64, u64, Colour)>> {
    let gap = prop_oneof![
        5 => 0..100_000_i64,
        5 => 0..50_000_000_i64,
        1 => Just(0),
        1 => -1_000_000..0_i64,
        1 => Just(3_600_000_000_000),
    ];
    let colour = (0..3_usize).prop_map(|place| Colour::ALL[place]);
    vec((gap, 20..1_600_u64, colour), 1..200)
}

proptest! {
    #[test]
    fn meters_are_the_pseudo_code_of_the_rfcs(settings in settings(), packets in gaps()) {
        let start = Nanos::from_secs(10_000);
        let meter = Meter::new(&settings, Share::WHOLE, Bytes(1_500));
        let mut buckets = meter.full(start);
        let mut reference = Reference::new(&settings, start);
        let mut now = start.0 as i64;
        for (place, (gap, length, before)) in packets.into_iter().enumerate() {
            now = (now + gap).max(start.0 as i64);
            let at = Nanos(now as u64);
            let wanted = reference.colour(length, before, at);
            prop_assert_eq!(meter.colour(&mut buckets, Arrival { length, before, at }), wanted, "packet {}", place);
            let depth = settings.peak_burst.or(settings.excess_burst).unwrap_or(0);
            let is_full = reference.first == settings.burst && reference.second == depth;
            prop_assert_eq!(meter.is_full(&buckets, reference.now), is_full);
        }
    }

    /// No less than the rate passes of what is offered without a pause, and no more than the burst beside it.
    #[test]
    fn a_token_bucket_passes_its_rate(rate in 1_000_000..10_000_000_000_000_u64, length in 64..1_500_u64) {
        let settings = Settings { rate: MeterRate::Bits(BitRate(rate)), burst: 3_000, ..Settings::new("m") };
        let meter = Meter::new(&settings, Share::WHOLE, Bytes(1_500));
        let start = Nanos::from_secs(1);
        let mut buckets = meter.full(start);
        // Twice as fast as may be, for the time of a thousand packets.
        let step = length as f64 * 8e9 / rate as f64 / 2.0;
        let mut passed = 0;
        let mut last = start;
        for n in 0..2_000_u32 {
            last = Nanos(start.0 + (f64::from(n) * step) as u64);
            passed += u64::from(meter.colour(&mut buckets, Arrival { length, before: Colour::Green, at: last }) == Colour::Green) * length;
        }
        let fair = last.since(start).0 as f64 * rate as f64 / 8e9;
        prop_assert!(passed as f64 <= fair + 3_000.0 + 1.0, "{passed} of {fair}");
        prop_assert!(passed as f64 >= fair - length as f64 - 1.0, "{passed} of {fair}");
    }
}

#[test]
fn workers_pass_together_what_one_would() {
    let settings =
        Settings { rate: MeterRate::Bits(BitRate(8_000_000)), burst: 15_000, ..Settings::new("m") };
    let start = Nanos::from_secs(1);
    let passed = |workers: u16| -> u64 {
        (0..workers)
            .map(|worker| {
                let meter = Meter::new(&settings, Share::new(worker, workers).unwrap(), Bytes(1_500));
                let mut buckets = meter.full(start);
                let moments = (0..20_000_u64).map(|n| start + Nanos(n * 50_000));
                let green = moments.filter(|at| {
                    meter.colour(&mut buckets, Arrival { length: 1_000, before: Colour::Green, at: *at })
                        == Colour::Green
                });
                green.count() as u64 * 1_000
            })
            .sum()
    };
    // A second at a million bytes, and the burst.
    assert_eq!(passed(1), 1_014_000);
    for workers in [2, 3, 8] {
        assert!((1_000_000..=1_016_000).contains(&passed(workers)), "{workers}: {}", passed(workers));
    }
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let settings = Settings { rate: MeterRate::Packets(10), burst: 2, ..Settings::new("m") };
    let meter = Meter::new(&settings, Share::WHOLE, Bytes(1_500));
    let start = Nanos::from_secs(10_000);
    let mut buckets = meter.full(start);
    let mut passes =
        |at| meter.colour(&mut buckets, Arrival { length: 100, before: Colour::Green, at }) == Colour::Green;
    assert_eq!([passes(start), passes(start), passes(start)], [true, true, false]);
    let back = start - Nanos::from_secs(3_600);
    assert_eq!(
        [passes(back), passes(back + Nanos::from_millis(99)), passes(back + Nanos::from_millis(100))],
        [false, false, true]
    );
    // Jumps ahead fill the buckets, and no more.
    let ahead = start + Nanos::from_secs(3_600);
    assert_eq!([passes(ahead), passes(ahead), passes(ahead)], [true, true, false]);
    // A packet that was overtaken brings no time of its own.
    assert_eq!(
        [passes(ahead - Nanos::from_millis(500)), passes(ahead), passes(ahead + Nanos::from_millis(100))],
        [false, false, true]
    );
}

#[test]
fn buckets_are_small() {
    assert!(size_of::<Buckets>() <= 40);
}
