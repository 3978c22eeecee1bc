//! Throughput of one cipher on engines and threads of a chip, and the engines' use of their time.
//!
//! As Yin, Tan et al. measured (Adding Security to Network via Network Processors, section 4.3): each thread works on
//! a flow of its own, message after message, and nothing else runs on the chip. Text is in DRAM; the step of optimisation
//! decides the place of tables ([`ciphers::home`]), with those of all threads, and words beyond a thread's registers, in an engine's local
//! memory as far as they fit.

use std::time::Instant;

use ciphers::{About, Cipher, Home, KeyLength, Optimisation, Room};
use serde::Serialize;
use tally::{Op, Region};
use wire::random::Random;

use crate::description::{Chip, EngineKind, UnitWork};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load};
use crate::machine::{Deadlock, Ideal, Machine, MachineError};
use crate::mapping::{Extra, Mapping, Place, Placement, Pool, PoolPlace, Priority, ServedPorts, Task, Work};
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
    /// Step of optimisation whose placement of tables and keys is taken, mostly that of the code.
    pub placement: Optimisation,
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
    /// General registers that the code needs at once, without constants loaded beforehand.
    pub registers: usize,
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
    /// The code needs more registers than a thread has, and local memory has no room for the rest.
    #[error(
        "the code needs {needs} registers, a thread has {has}, and local memory has no room for the rest"
    )]
    Registers {
        /// Registers that the code needs.
        needs: usize,
        /// Registers of a thread.
        has: usize,
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

/// Account of a cipher's code on messages of different text: the same on every chip, engine and thread.
#[derive(Clone, Debug)]
pub struct Recording {
    messages: Vec<Vec<Act>>,
    /// Counts of the last message.
    measured: ciphers::Report,
}

impl<'a> CipherRun<'a> {
    /// Code of one thread of one engine, for messages of so many bytes, whose tables and keys lie where that code has them.
    pub fn of(
        chip: &'a Chip,
        cipher: &'static Cipher,
        optimisation: Optimisation,
        message: u32,
    ) -> CipherRun<'a> {
        CipherRun {
            chip,
            cipher,
            optimisation,
            engines: 1,
            threads: 1,
            message,
            placement: optimisation,
            by: By::Code,
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// The chip lacks what the cipher needs; see [`CipherError`].
    pub fn measure(&self) -> Result<CipherReport, CipherError> {
        self.measure_recorded(&self.record()?)
    }

    /// Measures code that has been recorded: of the run's cipher, step of optimisation and length of messages.
    ///
    /// # Errors
    /// As [`CipherRun::measure`].
    pub fn measure_recorded(&self, recording: &Recording) -> Result<CipherReport, CipherError> {
        let started = Instant::now();
        let kind = self.chip.engines.first().ok_or(CipherError::TooMany { engines: 0, threads: 0 })?;
        if !(1..=kind.count).contains(&self.engines) || !(1..=kind.threads).contains(&self.threads) {
            return Err(CipherError::TooMany { engines: kind.count, threads: kind.threads });
        }
        let about = &self.cipher.about;
        let Recording { messages, measured } = recording;
        let mapping = self.mapping(about, self.room(kind, measured)?)?;
        // A key in local memory is an operand; elsewhere it takes a reference.
        let keys = measured.count.references(Region::CipherKey).reads;
        let is_far = |placement: &Placement| {
            placement.region == Region::CipherKey && matches!(placement.place, Place::Shared(_))
        };
        let keys = if mapping.placements.iter().any(is_far) { keys } else { 0 };
        let (measured_instructions, measured_references) =
            (measured.instructions() + keys, measured.references() + keys);
        let handed;
        let mut messages = messages.as_slice();
        if self.by == By::Unit {
            if self.chip.units.iter().all(|unit| unit.work != UnitWork::Crypto) {
                return Err(CipherError::NoUnit);
            }
            handed = [vec![Act::Execute { instructions: HAND_OVER, taken: 0 }, Act::Encipher(self.message)]];
            messages = &handed;
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
                executed as f64 / measured_instructions.max(1) as f64 * bytes
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
                (measured_instructions, measured_references, measured.code_size, mix)
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
            registers: measured.registers,
            mix,
            engines: report.engines,
            memories: report.memories,
            simulated_instructions: report.simulated_instructions,
            wall_seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Local memory that is left for tables and keys: words that find no general register are operands there, those of each thread, and
    /// constants loaded beforehand, which all have in common.
    fn room(&self, kind: &EngineKind, measured: &ciphers::Report) -> Result<Room, CipherError> {
        const WORD: usize = 4;
        let local = kind.local.map_or(0, |local| local.bytes.0 as usize);
        let threads = self.threads as usize;
        let mut room = Room { local, threads };
        let Some(registers) = kind.registers.filter(|_| self.by == By::Code) else { return Ok(room) };
        let (needs, has) = (measured.registers, (registers / kind.threads.max(1)) as usize);
        let spilled = needs.saturating_sub(has) * WORD * threads;
        if spilled > local {
            return Err(CipherError::Registers { needs, has });
        }
        let constants = measured.preloaded.saturating_sub(has.saturating_sub(needs)) * WORD;
        room.local = local.saturating_sub(spilled + constants);
        Ok(room)
    }

    /// Place of so many bytes: the nearest memory from `home` on that holds them. Where the chip has but one memory, all are there.
    fn shared(&self, home: Home, bytes: usize) -> Result<Place, CipherError> {
        const NEAREST: [&str; 3] = ["scratch", "sram", "dram"];
        if self.chip.memories.len() == 1 {
            return Ok(Place::Shared(0));
        }
        let nearest = match home {
            Home::Local | Home::Scratch => &NEAREST[..],
            Home::Sram => &NEAREST[1..],
            Home::Dram => &NEAREST[2..],
        };
        let holds = |name: &&str| {
            self.chip
                .memories
                .iter()
                .position(|memory| memory.name == **name && memory.bytes.0 >= bytes as u64)
        };
        nearest.iter().find_map(holds).map(Place::Shared).ok_or(CipherError::NoMemory(nearest[0]))
    }

    /// One pool whose threads draw messages, and the regions where the step of optimisation has them.
    fn mapping(&self, about: &About, room: Room) -> Result<Mapping, CipherError> {
        let flows = self.engines as usize * room.threads;
        let mut placements = Vec::new();
        for region in [Region::Frame, Region::CipherTable, Region::CipherKey] {
            let place = match ciphers::home(about, region, self.placement, room) {
                Home::Local if room.local > 0 => Place::Local,
                home => self.shared(home, about.region_bytes(region, self.placement, flows))?,
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
                    extra: Extra::default(),
                    priority: Priority::Normal,
                }],
                poll: None,
            }],
            rings: Vec::new(),
            placements,
            timers: Vec::new(),
            classifier: None,
        })
    }

    /// Records the code, on messages of different text.
    ///
    /// # Errors
    /// The cipher does not take its key's length.
    pub fn record(&self) -> Result<Recording, CipherError> {
        let mut random = Random::new(1);
        let mut bytes = |count: usize| (0..count).map(|_| random.below(256) as u8).collect::<Vec<u8>>();
        let key = bytes(self.cipher.about.key_bytes);
        let mut messages = Vec::new();
        loop {
            let mut recorder = Recorder::default();
            let mut text = bytes(self.message as usize);
            let measured = self
                .cipher
                .measure(self.optimisation, &key, &mut text, &mut recorder)
                .map_err(CipherError::Key)?;
            messages.push(recorder.acts);
            if messages.len() as u64 == DIFFERENT {
                return Ok(Recording { messages, measured });
            }
        }
    }
}

/// Messages in turn.
struct Messages<'a> {
    messages: &'a [Vec<Act>],
    bytes: u32,
    given: usize,
    left: u32,
}

impl Load for Messages<'_> {
    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        Some(Arrival { at: Ticks::ZERO, port: 0, length: Length::of(self.bytes) })
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

    use super::{CipherError, CipherRun};
    use crate::builtin::{CHIPS, named};
    use crate::description::{self, Chip};

    #[test]
    fn no_throughput_takes_more_instructions_than_engines_have_cycles() {
        let chip = description::parse(named(CHIPS, "ixp2800").unwrap(), "ixp2800").chip.unwrap();
        let cycles = |engines: u32| f64::from(engines) * 1.4e9;
        for cipher in ALL {
            for (engines, threads) in [(1, 1), (1, 8), (3, 5), (8, 8)] {
                let one = CipherRun::of(&chip, cipher, Optimisation::Overlap, 1_024);
                let run = CipherRun { engines, threads, ..one };
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

    /// RC4's permutations of eight threads are 8 KB: more than local memory has, and of eight engines more than scratch has.
    #[test]
    fn tables_lie_in_the_nearest_memory_that_holds_those_of_all_threads() {
        let chip = description::parse(named(CHIPS, "ixp2800").unwrap(), "ixp2800").chip.unwrap();
        let memories = |chip: &Chip, name: &str, engines, threads| -> Vec<String> {
            let cipher = ALL.into_iter().find(|cipher| cipher.about.name == name).unwrap();
            let one = CipherRun::of(chip, cipher, Optimisation::Overlap, 256);
            let report = CipherRun { engines, threads, ..one }.measure().unwrap();
            let used = report.memories.into_iter().filter(|memory| !memory.regions.is_empty());
            used.map(|memory| memory.name).collect()
        };
        assert_eq!(memories(&chip, "rc4", 1, 1), ["dram"]);
        assert_eq!(memories(&chip, "rc4", 1, 2), ["dram"]);
        assert_eq!(memories(&chip, "rc4", 1, 3), ["scratch", "dram"]);
        assert_eq!(memories(&chip, "rc4", 8, 8), ["sram", "dram"]);
        // S-boxes of DES are the same for all, and its keys are not.
        assert_eq!(memories(&chip, "des", 1, 1), ["dram"]);
        assert_eq!(memories(&chip, "des", 1, 8), ["scratch", "dram"]);
        // Engines without local memory have nothing there.
        let mut bare = chip;
        bare.engines[0].local = None;
        bare.engines[0].cam = None;
        assert_eq!(memories(&bare, "des", 1, 1), ["scratch", "dram"]);
    }

    /// Keys in a memory that engines share take a reference and an instruction each, which are part of the work on a byte.
    #[test]
    fn keys_outside_of_local_memory_are_read() {
        let cipher = ALL.into_iter().find(|cipher| cipher.about.name == "aes").unwrap();
        let report = |name: &str| {
            let chip = description::parse(named(CHIPS, name).unwrap(), name).chip.unwrap();
            CipherRun::of(&chip, cipher, Optimisation::Generic, 1_024).measure().unwrap()
        };
        let (local, shared) = (report("ixp2800"), report("pc4"));
        // 44 words of the schedule for each block of 16 bytes.
        let keys = shared.references_per_byte - local.references_per_byte;
        assert!((keys - 44.0 / 16.0).abs() < 1e-9, "{keys}");
        assert!((shared.instructions_per_byte - local.instructions_per_byte - keys).abs() < 1e-9);
    }

    #[test]
    fn words_beyond_the_registers_of_a_thread_need_local_memory() {
        let mut chip = description::parse(named(CHIPS, "ixp2800").unwrap(), "ixp2800").chip.unwrap();
        let cipher = ALL.into_iter().find(|cipher| cipher.about.name == "sha1").unwrap();
        let measure = |chip: &Chip| {
            let one = CipherRun::of(chip, cipher, Optimisation::Overlap, 256);
            CipherRun { threads: 8, ..one }.measure()
        };
        let needs = measure(&chip).unwrap().registers;
        // Its schedule of 80 words, its state, and what is under way.
        assert!((80..100).contains(&needs), "{needs}");
        chip.engines[0].registers = Some(128);
        measure(&chip).unwrap();
        chip.engines[0].local = None;
        assert_eq!(measure(&chip), Err(CipherError::Registers { needs, has: 16 }));
        chip.engines[0].registers = None;
        measure(&chip).unwrap();
    }
}
