//! Costs of a configuration, which an architect weighs against its throughput: engines, threads, bytes of memory, and power.
//!
//! Engines, threads and bytes follow from chip, mapping and the sizes of tables. [`watts`] is an estimate by a linear model: no document says what
//! a part of these chips draws, only what the whole does.

use wire::Bytes;

use crate::description::{Chip, EngineKind, Role};
use crate::mapping::{Extent, Mapping, PoolPlace, bytes_placed};
use crate::report::Report;

/// Parts of a chip that a configuration takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Number of engines with threads of a pool, or with a timer.
    pub engines: u32,
    /// Number of threads of pools.
    pub threads: u32,
    /// Bytes of tables, rings and linked lists, those in local memories once for each engine that works on frames; and of the caches of
    /// engines in use and of memories. Frames under way are not counted.
    pub memory: Bytes,
}

impl Cost {
    /// Returns what a mapping takes of a chip, with tables of these sizes.
    pub fn of(chip: &Chip, mapping: &Mapping, extents: &[Extent]) -> Cost {
        let is_used = |kind: usize, number: u32| {
            let has_timer = mapping.timers.iter().any(|timer| timer.engine == kind && timer.number == number);
            has_timer || mapping.pools.iter().any(|pool| pool.place.has(kind, number))
        };
        let (mut engines, mut caches) = (0, 0_u64);
        for (place, kind) in chip.engines.iter().enumerate() {
            let used = (0..kind.count).filter(|number| is_used(place, *number)).count();
            engines += used as u32;
            caches += kind.cache.map_or(0, |cache| cache.bytes.0.saturating_mul(used as u64));
        }
        caches +=
            chip.memories.iter().filter_map(|memory| memory.cache).map(|cache| cache.bytes.0).sum::<u64>();
        let threads = mapping.pools.iter().map(|pool| match &pool.place {
            PoolPlace::Engines { numbers, threads, .. } => numbers.len() as u32 * threads,
            PoolPlace::Unit(_) => 0,
        });
        let placed = bytes_placed(chip, mapping, extents);
        Cost { engines, threads: threads.sum(), memory: Bytes(placed.0.saturating_add(caches)) }
    }
}

/// Returns the power consumption of a run in watts, estimated; `None` where the chip has no [`PowerShares`](crate::description::PowerShares).
///
/// `reference` is the chip whose power is known, `chip` what became of it by changes of parameters. With *m* the maximum of the reference,
/// *e* and *i* its shares, *n* the number of its packet engines and *f* their clock:
///
/// *P* = *m* (1 - *e*) + sum over packet engines in use of (*m e* / *n*) (clock / *f*) (*i* + (1 - *i*) busy)
///
/// An engine is busy while it executes, fetches in vain or polls, and idles while it waits or stalls. Engines that are not in use have no
/// clock. All engines in use and busy, on the chip as it was described, draw the maximum. Voltage is constant, so that power is
/// proportional to the clock; what draws the rest (memories' controllers, buses, units, the control processor) does so whatever the
/// load, and is the same whatever changes in it: more channels or larger caches have no power here.
pub fn watts(reference: &Chip, chip: &Chip, report: &Report) -> Option<f64> {
    let power = reference.power?;
    let shares = power.shares?;
    let packet_engines = |kind: &&EngineKind| kind.role == Role::Packet;
    let number: u32 = reference.engines.iter().filter(packet_engines).map(|kind| kind.count).sum();
    let each = power.most * shares.engines / f64::from(number.max(1));
    let mut watts = power.most * (1.0 - shares.engines);
    for kind in chip.engines.iter().filter(packet_engines) {
        let of_reference = reference.engines.iter().find(|known| known.name == kind.name);
        let clock = of_reference.map_or(1.0, |known| kind.clock.0 as f64 / known.clock.0 as f64);
        let used = report
            .engines
            .iter()
            .filter(|engine| engine.name.rsplit_once('.').is_some_and(|(name, _)| name == kind.name));
        for engine in used {
            let busy = engine.executing + engine.aborted + engine.polling;
            watts += each * clock * (shares.idle + (1.0 - shares.idle) * busy);
        }
    }
    Some(watts)
}
