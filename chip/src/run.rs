//! Runs of a policy and traffic on a chip, and the search for the bottleneck.

use std::io::Write;
use std::time::Instant;

use dataplane::replay::ReplayError;
use dataplane::tables::CompileError;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use wire::Nanos;

use crate::description::Chip;
use crate::host::{Host, Onlooker, Traffic, Wiring};
use crate::machine::{Deadlock, Ideal, Machine, MachineError};
use crate::mapping::Mapping;
use crate::report::{Bottleneck, Relief, Report};
use crate::timeline::Timeline;
use crate::traffic::TrafficError;

/// Inputs of a run, reusable for any number of runs: chip, mapping, pipeline and traffic.
pub struct Setup<'a> {
    /// The chip.
    pub chip: &'a Chip,
    /// The mapping.
    pub mapping: &'a Mapping,
    /// Makes a pipeline and its traffic, from the beginning, the same each time.
    pub source: &'a (dyn Fn() -> Result<Source, SourceError> + Sync),
    /// Number of arrivals before the reported ones, while the machine fills.
    pub warm: u64,
}

/// A pipeline and its traffic.
pub struct Source {
    /// The pipeline, with its state so far.
    pub replay: dataplane::Replay,
    /// The frames to come.
    pub traffic: Box<dyn Traffic>,
    /// The moment that modelled time begins with.
    pub start: Nanos,
    /// Port of each interface.
    pub wiring: Wiring,
}

/// Failure to make a pipeline or its traffic.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The pipeline could not be made.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The traffic could not be made.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The policy could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// Failure of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The machine could not be made.
    #[error(transparent)]
    Machine(MachineError),
    /// The pipeline or its traffic could not be made.
    #[error(transparent)]
    Source(SourceError),
    /// The mapping deadlocks.
    #[error(transparent)]
    Deadlock(Deadlock),
}

impl Setup<'_> {
    /// Makes one run, with the resource `ideal` infinitely fast. `witness` receives the fates of frames, in the order of
    /// arrival.
    pub fn run(&self, ideal: Ideal, witness: &mut impl Onlooker) -> Result<Report, RunError> {
        let started = Instant::now();
        let mut machine = Machine::new(self.chip, self.mapping, ideal).map_err(RunError::Machine)?;
        let mut source = (self.source)().map_err(RunError::Source)?;
        let time = machine.timebase();
        let mut host = Host::new(&mut source.replay, &mut *source.traffic, witness, source.start, time)
            .wired(source.wiring);
        let window = machine.run(&mut host, self.warm).map_err(RunError::Deadlock)?;
        host.finish();
        let mut report = Report::new(self.chip, self.mapping, time, &window, &host.recorder.mix);
        report.wall_seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Makes one run, of which `timeline` writes its part; the run ends when the timeline has enough.
    pub fn trace<W: Write>(&self, timeline: &mut Timeline<'_, W>) -> Result<Report, RunError> {
        let started = Instant::now();
        let machine = Machine::new(self.chip, self.mapping, Ideal::Nothing).map_err(RunError::Machine)?;
        let mut source = (self.source)().map_err(RunError::Source)?;
        let time = machine.timebase();
        timeline.open(time, &machine.tracks());
        let mut nobody = ();
        let mut host = Host::new(&mut source.replay, &mut *source.traffic, &mut nobody, source.start, time)
            .wired(source.wiring);
        let window = machine.watched(timeline).run(&mut host, self.warm).map_err(RunError::Deadlock)?;
        let mut report = Report::new(self.chip, self.mapping, time, &window, &host.recorder.mix);
        report.wall_seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Makes one run, and looks for its bottleneck.
    pub fn explain(&self, witness: &mut impl Onlooker) -> Result<Report, RunError> {
        let mut report = self.run(Ideal::Nothing, witness)?;
        self.relieve(&mut report)?;
        Ok(report)
    }

    /// Adds the bottleneck to `report`, of a run with nothing made infinitely fast: makes one more run for each resource,
    /// with that resource infinitely fast, on all cores. Where nothing was lost there is no bottleneck, and no run.
    pub fn relieve(&self, report: &mut Report) -> Result<(), RunError> {
        let resources = if report.lost == 0 { Vec::new() } else { self.resources() };
        let now = report.dealt_mpps();
        let relieve = |(name, ideal): (String, Ideal)| {
            let mpps = self.run(ideal, &mut ())?.dealt_mpps();
            Ok(Relief { name, mpps, speed_up: if now > 0.0 { mpps / now } else { 1.0 } })
        };
        let mut relief: Vec<Relief> =
            resources.into_par_iter().map(relieve).collect::<Result<_, RunError>>()?;
        relief.sort_by(|one, other| other.speed_up.total_cmp(&one.speed_up));
        report.bottleneck = Some(Bottleneck::new(relief, report.lost));
        Ok(())
    }

    /// Returns the resources that can be made infinitely fast, with their names in reports.
    fn resources(&self) -> Vec<(String, Ideal)> {
        let pools = self.mapping.pools.iter().enumerate();
        let pools = pools.map(|(place, pool)| (format!("engines of {}", pool.name), Ideal::Pool(place)));
        let memories = self.chip.memories.iter().enumerate();
        let memories =
            memories.map(|(place, memory)| (format!("memory {}", memory.name), Ideal::Memory(place)));
        let rings = self.mapping.rings.iter().enumerate();
        let rings = rings.map(|(place, ring)| (format!("ring {}", ring.name), Ideal::Ring(place)));
        let units = self.chip.units.iter().enumerate();
        let units = units.map(|(place, unit)| (format!("unit {}", unit.name), Ideal::Unit(place)));
        let buses = self.chip.buses.iter().enumerate();
        let buses = buses.map(|(place, bus)| (format!("bus {}", bus.name), Ideal::Bus(place)));
        let rest = [
            ("receive buffer".to_owned(), Ideal::Receive),
            ("transmit buffer".to_owned(), Ideal::Transmit),
            ("lines".to_owned(), Ideal::Ports),
        ];
        pools.chain(memories).chain(rings).chain(units).chain(buses).chain(rest).collect()
    }
}

/// Runs all of `traffic` through `replay` on a chip whose receive buffer is never full, so that no frame is lost: the
/// fates of frames must be the same as on every other host. The first frame has the number `first`.
pub fn play(
    chip: &Chip,
    mapping: &Mapping,
    replay: &mut dataplane::Replay,
    traffic: &mut dyn Traffic,
    first: u32,
    witness: &mut impl Onlooker,
) -> Result<(), RunError> {
    let mut machine = Machine::new(chip, mapping, Ideal::Receive).map_err(RunError::Machine)?;
    let start = traffic.peek().unwrap_or_default();
    let time = machine.timebase();
    let mut host = Host::new(replay, traffic, witness, start, time).numbered_from(first);
    machine.run(&mut host, 0).map_err(RunError::Deadlock)?;
    Ok(())
}

/// Least speed-up of a bottleneck; a resource that gains less is none.
const WORTH: f64 = 1.02;

impl Bottleneck {
    fn new(relief: Vec<Relief>, lost: u64) -> Bottleneck {
        let best = relief.first().filter(|best| best.speed_up >= WORTH);
        let text = match best {
            _ if lost == 0 => "nothing: it carries all that is offered".to_owned(),
            Some(best) => {
                format!("{}: infinitely fast, it would bring {:.2} times as much", best.name, best.speed_up)
            }
            None => "no single resource: each alone, infinitely fast, would bring less than 2 %".to_owned(),
        };
        Bottleneck { name: best.map(|best| best.name.clone()), text, relief }
    }
}
