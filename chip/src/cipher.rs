//! Throughput of one cipher on engines and threads of a chip, and the engines' use of their time.
//!
//! As Yin, Tan et al. measured (Adding Security to Network via Network Processors, section 4.3): each thread works on
//! a flow of its own, message after message, and nothing else runs on the chip. Text is in DRAM; the step of optimisation
//! decides the place of tables ([`ciphers::home`]).

use std::time::Instant;

use ciphers::{About, Cipher, Home, KeyLength, Optimisation};
use serde::Serialize;
use tally::{Op, Region};
use wire::random::Random;

use crate::description::{Chip, UnitWork};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Load};
use crate::machine::{Deadlock, Ideal, Machine, MachineError};
use crate::mapping::{Mapping, Place, Placement, Pool, PoolPlace, ServedPorts, Task, Work};
use crate::report::{EngineReport, MemoryReport, Report, Share};
use crate::trace::{Act, Recorder};

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct CipherRun<'a> {
    /// The chip; its first kind of engine does the work.
    pub chip: &'a Chip,
    /// The cipher.
    pub cipher: &'static Cipher,
    /// Step of optimisation of the code.
    pub optimisation: Optimisation,
    /// Engines, from 1; those with the lowest numbers.
    pub engines: u32,
    /// Threads of each, from 1.
    pub threads: u32,
    /// Bytes of a message, from 1.
    pub message: u32,
    /// Executor of the cipher.
    pub by: By,
}

/// Executor of a cipher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Code on the engines.
    #[default]
    Code,
    /// The chip's crypto unit, which fetches and stores text itself: engines only hand messages to it.
    Unit,
}

/// Results of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CipherReport {
    /// The chip.
    pub chip: String,
    /// The cipher.
    pub cipher: String,
    /// The step of optimisation.
    pub optimisation: String,
    /// Engines.
    pub engine_count: u32,
    /// Threads of each.
    pub thread_count: u32,
    /// Bits of messages done with, in 10^6 a second.
    pub mbps: f64,
    /// Instructions for a byte.
    pub instructions_per_byte: f64,
    /// References to shared memories for a byte.
    pub references_per_byte: f64,
    /// Instructions that the code consists of.
    pub code_size: u32,
    /// Shares of kinds of instructions.
    pub mix: Vec<Share>,
    /// Time of the engines by use.
    pub engines: Vec<EngineReport>,
    /// Shared memories.
    pub memories: Vec<MemoryReport>,
    /// Instructions that were modelled.
    pub simulated_instructions: u64,
    /// Wall-clock time that the modelling took, in seconds.
    pub wall_seconds: f64,
}

/// Failure to measure a cipher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    /// The chip has no memory of that name, which the cipher's text or tables need.
    #[error("the chip has no memory `{0}`, where text or tables would lie")]
    NoMemory(&'static str),
    /// The chip does not have so many engines or threads; how many it has.
    #[error("the chip has {engines} engines of {threads} threads; give 1 at least and no more")]
    TooMany {
        /// Engines of its first kind.
        engines: u32,
        /// Threads of each.
        threads: u32,
    },
    /// The code does not fit the store; both in instructions.
    #[error("the code has {code} instructions, and an engine's store holds {store}")]
    Store {
        /// The code.
        code: u32,
        /// The store.
        store: u32,
    },
    /// The chip has no crypto unit.
    #[error("the chip has no crypto unit; leave the cipher to its engines")]
    NoUnit,
    /// The cipher takes no key of that length.
    #[error(transparent)]
    Key(KeyLength),
    /// The machine could not be made.
    #[error(transparent)]
    Machine(MachineError),
    /// The run came to a deadlock.
    #[error(transparent)]
    Deadlock(Deadlock),
}

/// Messages that each thread works on; the first `WARM` are left out of the measurement.
const MESSAGES: u32 = 12;

/// Messages of each thread that are left out.
const WARM: u32 = 3;

/// Instructions that pass a message to the unit: its place, its length, the key's place, and the operation.
const HAND_OVER: u32 = 4;

/// Number of different messages: the table look-ups depend on the text.
const DIFFERENT: u64 = 5;

impl CipherRun<'_> {
    /// Measures.
    pub fn measure(&self) -> Result<CipherReport, CipherError> {
        let started = Instant::now();
        let kind = self.chip.engines.first().ok_or(CipherError::TooMany { engines: 0, threads: 0 })?;
        if !(1..=kind.count).contains(&self.engines) || !(1..=kind.threads).contains(&self.threads) {
            return Err(CipherError::TooMany { engines: kind.count, threads: kind.threads });
        }
        let about = &self.cipher.about;
        let mapping = self.mapping(about)?;
        let (mut messages, measured) = self.messages(about)?;
        if self.by == By::Unit {
            if self.chip.units.iter().all(|unit| unit.work != UnitWork::Crypto) {
                return Err(CipherError::NoUnit);
            }
            messages =
                vec![vec![Act::Execute { instructions: HAND_OVER, taken: 0 }, Act::Encipher(self.message)]];
        }
        let in_store = self.by == By::Code;
        if let Some(store) = kind.store.filter(|store| in_store && measured.code_size > *store) {
            return Err(CipherError::Store { code: measured.code_size, store });
        }
        let mut machine = Machine::new(self.chip, &mapping, Ideal::Nothing).map_err(CipherError::Machine)?;
        let flows = self.engines * self.threads;
        let mut load = Messages { messages, bytes: self.message, given: 0, left: flows * MESSAGES };
        let window = machine.run(&mut load, u64::from(flows * WARM)).map_err(CipherError::Deadlock)?;
        let time = machine.timebase();
        let report = Report::new(self.chip, &mapping, time, &window, &[0; Op::ALL.len()]);
        let bytes = f64::from(self.message);
        let done = match self.by {
            // Threads in the middle of a message when the window opens have done part of it before, and those in the
            // middle when it closes have not ended it: with threads in step, and few messages each, that does not even
            // out. So what counts is how much was executed, in messages.
            By::Code => {
                let executed: u64 = report.engines.iter().map(|engine| engine.instructions).sum();
                executed as f64 / measured.instructions().max(1) as f64 * bytes
            }
            By::Unit => window.ended.bytes as f64,
        };
        let share = |name: &str, share: f64| Share { name: name.to_owned(), share };
        let (instructions, references, code_size, mix) = match self.by {
            By::Code => {
                let mix = measured.mix();
                let mix = vec![
                    share("alu", mix.alu),
                    share("multiply", mix.multiply),
                    share("immediate", mix.immediate),
                    share("branch", mix.branch),
                    share("memory", mix.memory),
                ];
                (measured.instructions(), measured.references(), measured.code_size, mix)
            }
            // And the one that hands over.
            By::Unit => (u64::from(HAND_OVER) + 1, 0, HAND_OVER + 1, vec![share("alu", 1.0)]),
        };
        Ok(CipherReport {
            chip: self.chip.name.clone(),
            cipher: about.name.to_owned(),
            optimisation: match self.by {
                By::Code => self.optimisation.name().to_owned(),
                By::Unit => "unit".to_owned(),
            },
            engine_count: self.engines,
            thread_count: self.threads,
            mbps: done * 8.0 / time.to_seconds(window.span).max(f64::MIN_POSITIVE) / 1e6,
            instructions_per_byte: instructions as f64 / bytes,
            references_per_byte: references as f64 / bytes,
            code_size,
            mix,
            engines: report.engines,
            memories: report.memories,
            simulated_instructions: report.simulated_instructions,
            wall_seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// One pool whose threads draw messages, and the regions where the step of optimisation has them. Where the chip has but one memory,
    /// all are there.
    fn mapping(&self, about: &About) -> Result<Mapping, CipherError> {
        let mut placements = Vec::new();
        for region in [Region::Frame, Region::CipherTable, Region::CipherKey] {
            let named = |name: &'static str| {
                let found = self.chip.memories.iter().position(|memory| memory.name == name);
                found.map(Place::Shared).ok_or(CipherError::NoMemory(name))
            };
            let only = self.chip.memories.len() == 1;
            let place = match ciphers::home(about, region, self.optimisation) {
                _ if only => Place::Shared(0),
                Home::Local => Place::Local,
                Home::Scratch => named("scratch")?,
                Home::Sram => named("sram")?,
                Home::Dram => named("dram")?,
            };
            placements.push(Placement { region, first: 0, end: u64::MAX, place });
        }
        Ok(Mapping {
            chip: self.chip.name.clone(),
            about: format!("{} on {} engines of {} threads", about.name, self.engines, self.threads),
            pools: vec![Pool {
                name: about.name.to_owned(),
                place: PoolPlace::Engines {
                    kind: 0,
                    numbers: (0..self.engines).collect(),
                    threads: self.threads,
                },
                tasks: vec![Task {
                    work: Work::Stages(0..1),
                    from: None,
                    to: Vec::new(),
                    ports: ServedPorts::default(),
                }],
            }],
            rings: Vec::new(),
            placements,
            classifier: None,
        })
    }

    /// Records the acts for messages of different text; returns them with the counts of the last.
    fn messages(&self, about: &About) -> Result<(Vec<Vec<Act>>, ciphers::Report), CipherError> {
        let mut random = Random::new(1);
        let mut bytes = |count: usize| (0..count).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
        let key = bytes(about.key_bytes);
        let mut messages = Vec::new();
        loop {
            let mut recorder = Recorder::default();
            let mut text = bytes(self.message as usize);
            let report = self
                .cipher
                .measure(self.optimisation, &key, &mut text, &mut recorder)
                .map_err(CipherError::Key)?;
            messages.push(recorder.acts);
            if messages.len() as u64 == DIFFERENT {
                return Ok((messages, report));
            }
        }
    }
}

/// Messages in turn.
struct Messages {
    messages: Vec<Vec<Act>>,
    bytes: u32,
    given: usize,
    left: u32,
}

impl Load for Messages {
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        Some(Arrival { at: Ticks::ZERO, port: 0, bytes: self.bytes })
    }

    fn accept(&mut self, job: &mut Job) {
        let acts = &self.messages[self.given % self.messages.len()];
        self.given += 1;
        job.acts.extend_from_slice(acts);
        job.marks.extend([0, acts.len() as u32]);
    }
}

#[cfg(test)]
mod tests {
    use ciphers::{ALL, Optimisation};

    use super::{By, CipherRun};
    use crate::builtin::{CHIPS, named};
    use crate::description;

    #[test]
    fn no_throughput_takes_more_instructions_than_engines_have_cycles() {
        let chip = description::parse(named(CHIPS, "ixp2800").unwrap(), "ixp2800").chip.unwrap();
        let cycles = |engines: u32| f64::from(engines) * 1.4e9;
        for cipher in ALL {
            for (engines, threads) in [(1, 1), (1, 8), (3, 5), (8, 8)] {
                let optimisation = Optimisation::Overlap;
                let run = CipherRun {
                    chip: &chip,
                    cipher,
                    optimisation,
                    engines,
                    threads,
                    message: 1_024,
                    by: By::Code,
                };
                let report = run.measure().unwrap();
                let needed = report.mbps * 1e6 / 8.0 * report.instructions_per_byte;
                assert!(
                    needed <= cycles(engines) * 1.0001,
                    "{} on {engines} engines of {threads} threads: {needed} of {}",
                    cipher.about.name,
                    cycles(engines)
                );
            }
        }
    }
}
