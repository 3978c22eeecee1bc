//! Report of a run: throughput and latency of the chip, utilisation of its parts, bottleneck.

use hdrhistogram::Histogram;
use serde::Serialize;
use tally::{Op, Region};

use crate::description::Chip;
use crate::kernel::{Ticks, Timebase};
use crate::machine::{CachePlace, CacheSeen, Count, Machine, Traffic, Window};
use crate::mapping::{Mapping, PoolPlace};

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The chip.
    pub chip: String,
    /// Description of the mapping.
    pub mapping: String,
    /// Modelled time that the report covers, in seconds.
    pub seconds: f64,
    /// Frames offered, in millions a second.
    pub offered_mpps: f64,
    /// Frames that left, in millions a second.
    pub delivered_mpps: f64,
    /// Frames among those that left along with another one, in millions a second: fragments, and packets that the gateway sends itself. So
    /// many more than were offered may have left.
    pub further_mpps: f64,
    /// Frames ended by the policy inside the chip, in millions a second.
    pub ended_mpps: f64,
    /// Bits of the frames that left, without the line's overhead, in 10^9 a second.
    pub gbps: f64,
    /// Frames lost to overload: the MAC had no room for their first bytes.
    pub lost: u64,
    /// Frames lost to overload, by port.
    pub lost_by_port: Vec<u64>,
    /// Frames that were kept, of which the MAC had to keep more than it has room for: hardware would have lost them halfway.
    pub overruns: u64,
    /// Reordered frames: those that left by a line after a later one of their flow (RFC 4737, section 3.3), later by the order in which
    /// the policy let them leave. Classes and priorities are no cause of reordering.
    pub reordered: u64,
    /// Latency from a frame's last bit in to its last bit out.
    pub latency_ns: Latency,
    /// Quantiles of latency in finer steps, the shortest first; empty where no frame left.
    pub latency_curve: Vec<Quantile>,
    /// The engines that do something, and the units in their place.
    pub engines: Vec<EngineReport>,
    /// Shared memories.
    pub memories: Vec<MemoryReport>,
    /// Caches: of engines that do something, and of memories.
    pub caches: Vec<CacheReport>,
    /// Rings.
    pub rings: Vec<RingReport>,
    /// Units, buses and lines: the share of time that each was busy.
    pub others: Vec<Share>,
    /// Bottleneck; absent where none was looked for.
    pub bottleneck: Option<Bottleneck>,
    /// Instructions a packet, engines of the control role included.
    pub instructions_per_packet: f64,
    /// Instructions of stages by kind, as shares.
    pub mix: Vec<Share>,
    /// Instructions that the whole run modelled.
    pub simulated_instructions: u64,
    /// Wall-clock time that the modelling took, in seconds.
    pub wall_seconds: f64,
    /// Parameters of the chip that are assumed.
    pub assumed: Vec<String>,
    /// Power of the chip, where known.
    pub power: Option<Draw>,
}

/// Power of a chip, and figures derived from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Draw {
    /// Watts, typically.
    pub typical_watts: f64,
    /// Frames that left for each joule, in millions.
    pub mega_frames_per_joule: f64,
    /// Highest thermal resistance from junction to air, in kelvin per watt, that keeps the chip at its maximal power
    /// below 120 degrees Celsius in air of 50 (Nishida, RENA-CHIP, equation 2).
    pub thermal_resistance: f64,
}

/// Percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// A quantile of latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// Share of frames of at most that latency, from 0 to 1.
    pub share: f64,
    /// Latency, in nanoseconds.
    pub ns: f64,
}

/// Time of an engine by use, in shares of 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// Its kind and number: "me.5".
    pub name: String,
    /// The pools that have threads on it, and timers.
    pub pools: Vec<String>,
    /// Executing instructions.
    pub executing: f64,
    /// Fetching instructions in vain, for branches and switches of threads.
    pub aborted: f64,
    /// Unable to issue a command, for queues were full.
    pub stalled: f64,
    /// Looks of idle threads that poll: no work, and no time that another thread had need of, but for the looks before its turn.
    pub polling: f64,
    /// Idle: no thread was ready, and none polled.
    pub idle: f64,
    /// Number of instructions executed.
    pub instructions: u64,
}

/// Utilisation of a memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Its name.
    pub name: String,
    /// Share of time that its channels were busy, the mean over them.
    pub utilisation: f64,
    /// Share of time that each channel was busy; where reads and writes have pins of their own, of its reads and of its writes. A
    /// saturated channel limits the regions in it, whatever the mean.
    pub channels: Vec<f64>,
    /// Mean number of commands that waited for service.
    pub queue: f64,
    /// References by region, and those of rings, of linked lists, of extra work and of timers.
    pub regions: Vec<RegionReport>,
}

impl MemoryReport {
    /// Returns the share of time that the busiest of several channels was busy; `None` where there is one only.
    pub fn fullest_channel(&self) -> Option<f64> {
        let fullest = self.channels.iter().copied().fold(0.0, f64::max);
        (self.channels.len() > 1).then_some(fullest)
    }
}

/// References to a region in a memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionReport {
    /// The region; "rings" for puts and gets, "lists" for the pointers of linked lists, "extra" for
    /// work beyond the stages, "timers" for that of timers.
    pub name: String,
    /// Number of them.
    pub references: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Mean time from issue to completion.
    pub mean_ns: f64,
    /// Longest time, in the whole run.
    pub worst_ns: f64,
}

/// Use of a cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheReport {
    /// Engine or memory that it is before: "cpu.0", "dram".
    pub name: String,
    /// Number of lines looked up.
    pub lookups: u64,
    /// Share of them that was there, from 0 to 1.
    pub hit_ratio: f64,
    /// Number of changed lines written to their memory.
    pub written_back: u64,
}

/// Occupancy of a ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RingReport {
    /// Its name.
    pub name: String,
    /// Capacity, in frames.
    pub entries: u32,
    /// Mean number of frames in it after a put.
    pub mean: f64,
    /// Highest number of frames in it, in the whole run.
    pub most: u64,
    /// Number of times that a put blocked for want of room.
    pub blocked: u64,
}

/// A share of 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Name of the part.
    pub name: String,
    /// Share, from 0 to 1.
    pub share: f64,
}

/// Bottleneck of a machine, found by making each resource infinitely fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The resource that brings most when it is infinitely fast; absent where nothing was lost, or nothing alone helps.
    pub name: Option<String>,
    /// Finding, in a sentence.
    pub text: String,
    /// Gain of every resource, the highest first.
    pub relief: Vec<Relief>,
}

/// Gain from making a resource infinitely fast.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relief {
    /// The resource: "memory sram".
    pub name: String,
    /// Frames then delivered or ended by the policy, in millions a second.
    pub mpps: f64,
    /// Ratio of `mpps` to the rate of the unchanged machine.
    pub speed_up: f64,
}

/// Degrees Celsius that a junction may have.
const JUNCTION: f64 = 120.0;

/// Degrees Celsius of the air around.
const AIR: f64 = 50.0;

impl Report {
    /// Makes the report of `window`. `mix` has the instructions that stages executed, by kind.
    pub(crate) fn new(
        chip: &Chip,
        mapping: &Mapping,
        time: Timebase,
        window: &Window,
        mix: &[u64; Op::ALL.len()],
    ) -> Report {
        let seconds = time.to_seconds(window.span);
        let rate = |count: Count| if seconds > 0.0 { count.frames as f64 / seconds / 1e6 } else { 0.0 };
        let dealt = window.delivered.frames + window.ended.frames;
        let instructions: u64 = window.engines.iter().map(|engine| engine.instructions).sum();
        let share = |span: Ticks| if window.span.0 > 0 { span.0 as f64 / window.span.0 as f64 } else { 0.0 };
        let total: u64 = mix.iter().sum();
        Report {
            chip: chip.name.clone(),
            mapping: mapping.about.clone(),
            seconds,
            offered_mpps: rate(window.offered),
            delivered_mpps: rate(window.delivered),
            further_mpps: rate(Count { frames: window.further, bytes: 0 }),
            ended_mpps: rate(window.ended),
            gbps: if seconds > 0.0 { window.delivered.bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 },
            lost: window.lost,
            lost_by_port: window.lost_by_port.clone(),
            overruns: window.overruns,
            reordered: window.reordered,
            latency_ns: Latency::of(window, time),
            latency_curve: curve(window, time),
            engines: engines(chip, mapping, window),
            memories: memories(chip, time, window),
            caches: caches(chip, window),
            rings: rings(mapping, window),
            others: others(chip, window, &share),
            bottleneck: None,
            instructions_per_packet: instructions as f64 / dealt.max(1) as f64,
            mix: Op::ALL
                .into_iter()
                .map(|op| Share {
                    name: op.name().to_owned(),
                    share: mix[op as usize] as f64 / total.max(1) as f64,
                })
                .collect(),
            simulated_instructions: window.instructions,
            wall_seconds: 0.0,
            assumed: chip.assumed().map(|source| source.path.clone()).collect(),
            power: chip.power.map(|power| Draw {
                typical_watts: power.typical,
                mega_frames_per_joule: rate(window.delivered) / power.typical.max(f64::MIN_POSITIVE),
                thermal_resistance: (JUNCTION - AIR) / power.most.max(f64::MIN_POSITIVE),
            }),
        }
    }

    /// Frames that left or were ended by the policy, in millions a second.
    pub fn dealt_mpps(&self) -> f64 {
        self.delivered_mpps + self.ended_mpps
    }
}

impl Latency {
    fn of(window: &Window, time: Timebase) -> Latency {
        let of = |ticks: u64| time.to_nanos(Ticks(ticks));
        if window.latency.is_empty() {
            return Latency::default();
        }
        let at = |quantile: f64| of(window.latency.value_at_quantile(quantile));
        Latency {
            min: of(window.latency.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: of(window.latency.max()),
        }
    }
}

/// Returns the values of `Histogram::value_at_quantile` of ascending shares, by one pass over what is recorded.
fn quantiles(histogram: &Histogram<u64>, shares: &[f64]) -> Vec<u64> {
    let mut recorded = histogram.iter_recorded();
    let (mut passed, mut at) = (0, 0);
    let value = |share: &f64| {
        let wanted = ((share * histogram.len() as f64).ceil() as u64).max(1);
        while passed < wanted {
            let Some(next) = recorded.next() else { break };
            passed += next.count_at_value();
            at = next.value_iterated_to();
        }
        if *share == 0.0 { histogram.lowest_equivalent(at) } else { at }
    };
    shares.iter().map(value).collect()
}

/// Steps of the curve of latency.
const STEPS: u32 = 200;

fn curve(window: &Window, time: Timebase) -> Vec<Quantile> {
    if window.latency.is_empty() {
        return Vec::new();
    }
    let mut shares: Vec<f64> =
        (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS)).chain([0.999]).collect();
    shares.sort_by(f64::total_cmp);
    let of = |(share, value)| Quantile { share, ns: time.to_nanos(Ticks(value)) };
    shares.iter().copied().zip(quantiles(&window.latency, &shares)).map(of).collect()
}

fn engines(chip: &Chip, mapping: &Mapping, window: &Window) -> Vec<EngineReport> {
    let mut reports = Vec::new();
    let mut push = |name: String, pools: Vec<String>, place: usize| {
        let Some(seen) = window.engines.get(place).filter(|_| !pools.is_empty()) else { return };
        let span = window.span.0.max(1) as f64;
        let [executing, aborted, stalled, polling] =
            [seen.executing, seen.aborted, seen.stalled, seen.polling]
                .map(|ticks| (ticks.0 as f64 / span).min(1.0));
        reports.push(EngineReport {
            name,
            pools,
            executing,
            aborted,
            stalled,
            polling,
            idle: (1.0 - executing - aborted - stalled - polling).max(0.0),
            instructions: seen.instructions,
        });
    };
    for (kind, of) in chip.engines.iter().enumerate() {
        for number in 0..of.count {
            let pools =
                mapping.pools.iter().filter(|pool| pool.place.has(kind, number)).map(|pool| &pool.name);
            let timers = mapping.timers.iter().filter(|timer| timer.engine == kind && timer.number == number);
            let pools = pools.chain(timers.map(|timer| &timer.name)).cloned().collect();
            push(format!("{}.{number}", of.name), pools, Machine::engine_of(chip, kind, number));
        }
    }
    let mut next = chip.engines.iter().map(|kind| kind.count as usize).sum();
    for pool in &mapping.pools {
        let PoolPlace::Unit(unit) = pool.place else { continue };
        let Some(unit) = chip.units.get(unit) else { continue };
        for number in 0..unit.count.max(1) {
            push(format!("{}.{number}", unit.name), vec![pool.name.clone()], next);
            next += 1;
        }
    }
    reports
}

fn memories(chip: &Chip, time: Timebase, window: &Window) -> Vec<MemoryReport> {
    let span = window.span.0.max(1) as f64;
    let of = |name: &str, traffic: &Traffic| RegionReport {
        name: name.to_owned(),
        references: traffic.references,
        bytes: traffic.bytes,
        mean_ns: time.to_nanos(Ticks(1)) * traffic.latency as f64 / traffic.references.max(1) as f64,
        worst_ns: time.to_nanos(traffic.worst),
    };
    chip.memories
        .iter()
        .zip(&window.memories)
        .map(|(memory, seen)| MemoryReport {
            name: memory.name.clone(),
            utilisation: seen.busy.iter().map(|busy| busy.0).sum::<u64>() as f64
                / span
                / seen.busy.len().max(1) as f64,
            channels: seen.busy.iter().map(|busy| busy.0 as f64 / span).collect(),
            queue: seen.waited as f64 / span,
            regions: Region::ALL
                .into_iter()
                .map(|region| of(region.name(), &seen.regions[region as usize]))
                .chain([
                    of("rings", &seen.rings),
                    of("lists", &seen.lists),
                    of("extra", &seen.extra),
                    of("timers", &seen.timers),
                ])
                .filter(|region| region.references > 0)
                .collect(),
        })
        .collect()
}

fn caches(chip: &Chip, window: &Window) -> Vec<CacheReport> {
    let name = |place| match place {
        CachePlace::Engine(place) => {
            let engines =
                chip.engines.iter().flat_map(|kind| (0..kind.count).map(move |number| (kind, number)));
            engines.map(|(kind, number)| format!("{}.{number}", kind.name)).nth(place)
        }
        CachePlace::Memory(place) => chip.memories.get(place).map(|memory| memory.name.clone()),
    };
    let report = |(place, seen): &(CachePlace, CacheSeen)| CacheReport {
        name: name(*place).unwrap_or_default(),
        lookups: seen.lookups,
        hit_ratio: (seen.lookups - seen.misses) as f64 / seen.lookups.max(1) as f64,
        written_back: seen.written,
    };
    window.caches.iter().map(report).collect()
}

fn rings(mapping: &Mapping, window: &Window) -> Vec<RingReport> {
    mapping
        .rings
        .iter()
        .zip(&window.rings)
        .map(|(ring, seen)| RingReport {
            name: ring.name.clone(),
            entries: ring.entries,
            mean: seen.filled as f64 / seen.puts.max(1) as f64,
            most: seen.most,
            blocked: seen.blocked,
        })
        .collect()
}

fn others(chip: &Chip, window: &Window, share: &dyn Fn(Ticks) -> f64) -> Vec<Share> {
    let units = chip.units.iter().zip(&window.units).map(|(unit, busy)| Share {
        name: format!("unit {}", unit.name),
        share: share(*busy) / f64::from(unit.count.max(1)),
    });
    let buses = chip
        .buses
        .iter()
        .zip(&window.buses)
        .map(|(bus, busy)| Share { name: format!("bus {}", bus.name), share: share(*busy) });
    let lines = window.lines.iter().zip(chip.ports.each()).enumerate().map(|(port, (busy, kind))| {
        let of = kind.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        Share { name: format!("line out of port {port}{of}"), share: share(*busy) }
    });
    units.chain(buses).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::quantiles;

    proptest! {
        /// One pass gives what a pass for each quantile gives.
        #[test]
        fn quantiles_are_those_of_the_histogram(
            values in proptest::collection::vec(0u64..1 << 40, 1..300),
            mut shares in proptest::collection::vec(prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64], 1..50),
        ) {
            let mut histogram = Histogram::new(3).unwrap();
            values.iter().for_each(|value| histogram.record(*value).unwrap());
            shares.sort_by(f64::total_cmp);
            let each: Vec<u64> = shares.iter().map(|share| histogram.value_at_quantile(*share)).collect();
            prop_assert_eq!(quantiles(&histogram, &shares), each);
        }
    }
}
