//! Workload of a claim: a policy and generated streams, to be run on a chip.

use dataplane::replay::Way;
use dataplane::{Replay, Tables};
use lookup::classify::Algorithm;
use policy::Policy;
use wire::Nanos;

use crate::description::Chip;
use crate::host::{Onlooker, Traffic, Wiring};
use crate::machine::Ideal;
use crate::mapping::Mapping;
use crate::report::Report;
use crate::run::{RunError, Setup, Source, SourceError};
use crate::traffic::{Begin, Generator, Lines, Merge, Stream, in_cells};

/// A policy and the streams that it is carried out on.
pub(super) struct Workload<'a> {
    /// The chip.
    pub(super) chip: &'a Chip,
    /// The mapping.
    pub(super) mapping: &'a Mapping,
    /// The policy.
    pub(super) policy: &'a Policy,
    /// Classifier in the place of the one that the policy asks for.
    pub(super) algorithm: Option<&'static Algorithm>,
    /// Streams, and the time after the start at which each begins.
    pub(super) streams: &'a [(Stream, Nanos)],
    /// Number of arrivals before the reported ones.
    pub(super) warm: u64,
}

/// Modelled time at which streams begin; connections that are established have been opened before.
const START: Nanos = Nanos::from_secs(1);

/// Tables of a policy, with a classifier in the place of the one that the policy asks for.
pub(super) fn tables(policy: &Policy, algorithm: Option<&'static Algorithm>) -> Result<Tables, SourceError> {
    Ok(match algorithm {
        Some(algorithm) => Tables::compile_for(policy, 1, algorithm)?,
        None => Tables::compile(policy, 1)?,
    })
}

impl Workload<'_> {
    /// Runs it, with the resource `ideal` infinitely fast.
    pub(super) fn run(&self, ideal: Ideal) -> Result<Report, RunError> {
        self.play(|setup| setup.run(ideal, &mut ()))
    }

    /// Runs it, watched by an observer.
    pub(super) fn watch(&self, witness: &mut impl Onlooker) -> Result<Report, RunError> {
        self.play(|setup| setup.run(Ideal::Nothing, witness))
    }

    /// Runs it and looks for its bottleneck.
    pub(super) fn explain(&self) -> Result<Report, RunError> {
        self.play(|setup| setup.explain(&mut ()))
    }

    fn play(&self, runs: impl FnOnce(&Setup<'_>) -> Result<Report, RunError>) -> Result<Report, RunError> {
        let source = || self.source();
        runs(&Setup { chip: self.chip, mapping: self.mapping, source: &source, warm: self.warm })
    }

    fn source(&self) -> Result<Source, SourceError> {
        let tables = tables(self.policy, self.algorithm)?;
        let wiring = Wiring::new(&tables, &[]);
        let lines = Lines { ports: &self.chip.ports, wiring: &wiring };
        let generators = (1..)
            .zip(self.streams)
            .map(|(seed, (stream, begin))| Generator::new(stream, &tables, lines, START + *begin, seed));
        let generators = generators.collect::<Result<Vec<_>, _>>()?;
        let mut replay = Replay::new(tables, Nanos(0), Way::Step)?;
        let mut traffic: Vec<Box<dyn Traffic>> = Vec::new();
        for ((stream, _), mut generator) in self.streams.iter().zip(generators) {
            if stream.begin == Begin::Established {
                generator.establish(&mut replay, stream, Nanos(0))?;
            }
            traffic.push(Box::new(generator));
        }
        let traffic = in_cells(Box::new(Merge::new(traffic)), &replay.tables, lines);
        Ok(Source { replay, traffic, start: START, wiring })
    }
}
