//! Script of a thread for one frame: a task's acts with their places looked up, as moves.

use super::list::Link;
use super::memory::Purpose;
use crate::clock::Cycles;
use crate::description::{Chip, EngineKind, UnitWork};
use crate::kernel::{Ticks, Timebase};
use crate::mapping::{Extra, Mapping, Place};
use crate::trace::{Access, Act, Referral, Wait};
use std::collections::{HashSet, VecDeque};

use foldhash::fast::FixedState;

use tally::{Address, Offload, Region};

/// One move of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Occupies the engine.
    Busy(Busy),
    /// Issues a reference to a shared memory.
    Refer(Command, Wait),
    /// Waits for the reference of that ticket.
    Await(u32),
    /// Waits for all writes that nobody has waited for.
    Settle,
    /// Passes a key or text of `bytes` bytes to a unit, and waits.
    Hand { unit: u16, bytes: u32 },
    /// Passes a header of `bytes` bytes to a unit, and goes on.
    Give { unit: u16, bytes: u32 },
    /// Links a segment of the frame, of that number in it, into the ring's lists or out of them.
    Link { ring: u16, link: Link, number: u32 },
    /// Gets the thread's entry from the ring.
    Get(u16),
    /// Releases the element of the receive buffer.
    Release,
    /// Ends the script, but where the thread had the last element of its frame to be received: then it goes on with the frame.
    Gather,
    /// Claims an element of the transmit buffer.
    Claim,
    /// Passes the element to the port.
    Send,
    /// Sleeps for the latency of a pipelined unit.
    Sleep(Ticks),
    /// Puts the frame into a ring.
    Put(u16),
    /// Ends the frame, which goes no further.
    End,
}

/// A command to a shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) memory: u16,
    pub(super) access: Access,
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) purpose: Purpose,
}

/// Time on an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) instructions: u32,
    /// Time that instructions take, and waits that no other thread can use.
    pub(super) executing: Ticks,
    /// Time lost by branches.
    pub(super) aborted: Ticks,
}

/// Places of regions as one kind of engine sees them, and the cost of its instructions.
#[derive(Clone, Debug)]
pub(super) struct View {
    places: Vec<Vec<Span>>,
    instruction: Ticks,
    /// Thousandths of a tick that instructions take beyond whole ticks.
    instruction_rest: u64,
    branch: Ticks,
    wait: Ticks,
    local: Ticks,
    cam: Option<(u32, Ticks)>,
    hash_unit: Option<usize>,
    crypto_unit: Option<usize>,
    modify_unit: Option<usize>,
    crc_unit: Option<usize>,
    hash_instructions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    end: u64,
    place: Place,
    base: u64,
}

/// State of an engine's CAM and registers after its references.
#[derive(Clone, Debug, Default)]
pub(super) struct Remembered {
    /// Lines in local memory, the one used last at the end.
    lines: Vec<(u16, u64)>,
    /// Tickets of references to shared memories, in the script that is being written.
    issued: HashSet<u32, FixedState>,
    /// Entries that the script has read or written last.
    held: VecDeque<Entry>,
}

/// Entry of a table: its region, offset and bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    region: Region,
    at: u64,
    bytes: u32,
}

impl Entry {
    fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }

    fn covers(&self, other: &Entry) -> bool {
        self.region == other.region && self.at <= other.at && other.end() <= self.end()
    }

    fn meets(&self, other: &Entry) -> bool {
        self.region == other.region && self.at < other.end() && other.at < self.end()
    }
}

/// Entries of tables that a thread has in its registers.
const HELD: usize = 8;

/// Bytes of a frame that `parse` reads.
const HEADER: u32 = 64;

/// Bytes of a frame's buffer.
const BUFFER: u64 = 2_048;

/// Bytes of a frame's descriptor and metadata.
const DESCRIPTOR: u64 = 64;

/// Regions begin at the beginning of a line, of that many bytes.
const LINE: u64 = 64;

/// Addresses between the beginnings of regions in a memory, beside their channels. Addresses only decide on channel and
/// bank; whether regions fit is checked beforehand.
const APART: u64 = 1 << 40;

impl Remembered {
    /// Forgets the tickets of the script before.
    pub(super) fn begin_script(&mut self) {
        self.issued.clear();
        self.held.clear();
    }
}

impl View {
    pub(super) fn new(
        chip: &Chip,
        mapping: &Mapping,
        kind: &EngineKind,
        time: Timebase,
        ideal: bool,
    ) -> View {
        let cycle = |cycles: Cycles| if ideal { Ticks::ZERO } else { time.cycles(cycles, kind.clock) };
        let mut places = vec![Vec::new(); Region::ALL.len()];
        // What lies in a memory begins in one channel after the other, as one would lay it out by hand.
        let mut laid = vec![0; chip.memories.len()];
        for placement in &mapping.placements {
            let base = match placement.place {
                Place::Shared(memory) | Place::Cached { memory, .. } => {
                    let interleave = chip.memories.get(memory).map_or(0, |memory| memory.interleave.0);
                    let number = laid.get_mut(memory).map_or(0, |laid: &mut u64| {
                        *laid += 1;
                        *laid - 1
                    });
                    number * (APART + interleave.max(LINE))
                }
                Place::Local | Place::Registers | Place::Unit(_) => 0,
            };
            places[placement.region as usize].push(Span {
                first: placement.first,
                end: placement.end,
                place: placement.place,
                base,
            });
        }
        let unit = |work| chip.units.iter().position(|unit| unit.work == work);
        let thousandths =
            if ideal { 0 } else { time.cycle(kind.clock).0.saturating_mul(u64::from(kind.cpi)) };
        View {
            places,
            instruction: Ticks(thousandths / 1000),
            instruction_rest: thousandths % 1000,
            branch: cycle(kind.branch),
            wait: cycle(kind.wait),
            local: kind.local.map_or(Ticks::ZERO, |local| cycle(local.latency)),
            cam: kind.cam.map(|cam| (cam.entries, cycle(cam.latency))),
            hash_unit: unit(UnitWork::Hash),
            crypto_unit: unit(UnitWork::Crypto),
            modify_unit: unit(UnitWork::Modify),
            crc_unit: unit(UnitWork::Crc),
            hash_instructions: kind.hash,
        }
    }

    fn place(&self, region: Region, at: u64) -> (Place, u64) {
        let spans = &self.places[region as usize];
        let span = spans.iter().find(|span| span.first <= at && at < span.end);
        span.map_or((Place::Registers, 0), |span| (span.place, span.base))
    }

    /// The time of a look of so many instructions, after which another thread has its turn.
    pub(super) fn look(&self, instructions: u32) -> Ticks {
        self.busy(instructions, 0).executing + self.wait
    }

    /// The time of `count` instructions, of which `taken` are branches taken.
    pub(super) fn busy(&self, count: u32, taken: u32) -> Busy {
        let rest = self.instruction_rest * u64::from(count) / 1000;
        Busy {
            instructions: count,
            executing: Ticks(self.instruction.0 * u64::from(count) + rest),
            aborted: Ticks(self.branch.0 * u64::from(taken)),
        }
    }
}

/// Ticket of the writes of a packet's task.
pub(super) const WRITES: u32 = u32::MAX;

/// Reuse of what a thread has in its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Metadata of the packet, which [`Writer::take`] has read and [`Writer::pass`] will write, and what it has read of tables: nobody reads an
    /// entry twice, and who writes a part of it has the rest still. Nobody waits for a write before the end of the task, where the thread waits for all at once.
    Packet,
    /// Nothing between references.
    Nothing,
}

/// A script being written.
pub(super) struct Writer<'a> {
    pub(super) moves: &'a mut Vec<Move>,
    pub(super) view: &'a View,
    pub(super) remembered: &'a mut Remembered,
    /// The frame's buffer, a small number.
    pub(super) slot: u32,
    /// Offset of the frame's first segment, where frames are in linked lists.
    pub(super) segment: Option<u64>,
    pub(super) holds: Holds,
}

impl Writer<'_> {
    pub(super) fn execute(&mut self, count: u32, taken: u32) {
        let busy = self.view.busy(count, taken);
        self.occupy(busy);
    }

    pub(super) fn occupy(&mut self, busy: Busy) {
        if let Some(Move::Busy(last)) = self.moves.last_mut() {
            last.instructions += busy.instructions;
            last.executing += busy.executing;
            last.aborted += busy.aborted;
        } else {
            self.moves.push(Move::Busy(busy));
        }
    }

    pub(super) fn acts(&mut self, acts: &[Act]) {
        let mut acts = acts.iter();
        while let Some(act) = acts.next() {
            match *act {
                Act::Offload { work, acts: many } => {
                    if self.offloads(work) {
                        acts = acts.as_slice().get(many as usize..).unwrap_or(&[]).iter();
                    }
                }
                Act::Execute { instructions, taken } => self.execute(instructions, taken),
                Act::Refer(referral) => self.refer_to(referral),
                // Who has no such unit does not ask for it.
                Act::Encipher(bytes) => {
                    self.view.crypto_unit.into_iter().for_each(|unit| self.hand(unit, bytes))
                }
                // What lies in the engine itself is there.
                Act::Await(ticket) => {
                    if self.remembered.issued.contains(&ticket) {
                        self.wait();
                        self.moves.push(Move::Await(ticket));
                    }
                }
                Act::Hash(bytes) => match self.view.hash_unit {
                    Some(unit) => self.hand(unit, bytes),
                    None => self.execute(self.view.hash_instructions.saturating_mul(bytes.div_ceil(4)), 0),
                },
            }
        }
    }

    /// Work beyond the stages: of a task, on state of the frame's own, or of a timer.
    pub(super) fn extra(&mut self, extra: Extra, purpose: Purpose) {
        self.execute(extra.instructions, 0);
        let state = u64::from(self.slot) * u64::from(extra.references) * u64::from(extra.bytes);
        for number in 0..extra.references {
            let command = Command {
                memory: extra.memory as u16,
                access: extra.access,
                address: state + u64::from(number) * u64::from(extra.bytes),
                bytes: extra.bytes,
                purpose,
            };
            self.shared(command, Wait::Now);
        }
    }

    /// The frame's header is in the registers of the thread.
    pub(super) fn hold_header(&mut self) {
        self.remembered.held.push_back(Entry { region: Region::Frame, at: 0, bytes: HEADER });
    }

    /// A reference of a task's own code, which waits for it.
    pub(super) fn refer(&mut self, region: Region, access: Access, at: u64, bytes: u32) {
        self.refer_for(Referral { region, access, at, bytes, address: Address::Computed, wait: Wait::Now });
    }

    /// A write of a task's own code, which nobody waits for before [`Writer::settle`].
    pub(super) fn write_later(&mut self, region: Region, at: u64, bytes: u32) {
        let (address, wait) = (Address::Computed, Wait::Later(WRITES));
        self.refer_for(Referral { region, access: Access::Write, at, bytes, address, wait });
    }

    fn refer_to(&mut self, referral: Referral) {
        let Referral { region, access, at, bytes, .. } = referral;
        if self.holds == Holds::Packet {
            let entry = Entry { region, at, bytes };
            let held = &mut self.remembered.held;
            if access == Access::Read && held.iter().any(|held| held.covers(&entry)) {
                return;
            }
            if access == Access::Atomic {
                // The memory has changed it.
                held.retain(|held| !held.meets(&entry));
            } else {
                if held.len() == HELD {
                    held.pop_front();
                }
                held.push_back(entry);
            }
        }
        match (region, access) {
            _ if self.holds == Holds::Nothing => self.refer_for(referral),
            (Region::Meta, _) => {}
            // Nobody needs what a counter was.
            (_, Access::Write) | (Region::Counter, Access::Atomic) => {
                self.refer_for(Referral { wait: Wait::Later(WRITES), ..referral });
            }
            _ => self.refer_for(referral),
        }
    }

    fn refer_for(&mut self, referral: Referral) {
        let Referral { region, access, at, bytes, address, wait } = referral;
        let (place, located) = self.locate(region, at);
        let command = |memory: usize| Command {
            memory: memory as u16,
            access,
            address: located,
            bytes,
            purpose: Purpose::Region(region),
        };
        match place {
            Place::Registers => {}
            Place::Unit(unit) => self.hand(unit, bytes),
            // An offset that is known is an operand of the instruction that uses it.
            Place::Local if address == Address::Known => {}
            Place::Local => self.local(),
            Place::Shared(memory) => self.shared(command(memory), wait),
            Place::Cached { memory, line } => self.cached(command(memory), line),
        }
    }

    /// Place of a byte of a region, and its address there.
    fn locate(&self, region: Region, at: u64) -> (Place, u64) {
        let (place, base) = self.view.place(region, at);
        let offset = match region {
            Region::Frame => self.segment.unwrap_or(u64::from(self.slot) * BUFFER) + at,
            Region::Meta => u64::from(self.slot) * DESCRIPTOR + at,
            _ => at,
        };
        (place, base + offset)
    }

    /// Bytes of a region that a unit reads or writes: no instructions.
    pub(super) fn transfer(&mut self, region: Region, access: Access, at: u64, bytes: u32, wait: Wait) {
        let (place, address) = self.locate(region, at);
        if let Place::Shared(memory) | Place::Cached { memory, .. } = place {
            let (memory, purpose) = (memory as u16, Purpose::Transfer(region));
            self.moves.push(Move::Refer(Command { memory, access, address, bytes, purpose }, wait));
        }
    }

    /// Passes work to a unit that does it, if there is one.
    pub(super) fn offloads(&mut self, work: Offload) -> bool {
        match work {
            Offload::Search { region, bytes } => {
                let (Place::Unit(unit), _) = self.view.place(region, 0) else { return false };
                self.hand(unit, bytes);
            }
            Offload::Modify { bytes } | Offload::Crc { bytes } => {
                let is_crc = matches!(work, Offload::Crc { .. });
                let unit = if is_crc { self.view.crc_unit } else { self.view.modify_unit };
                let Some(unit) = unit else { return false };
                self.execute(1, 0);
                self.moves.push(Move::Give { unit: unit as u16, bytes });
            }
        }
        true
    }

    /// Adds the instruction that passes work to a unit; the thread waits for the result.
    fn hand(&mut self, unit: usize, bytes: u32) {
        self.execute(1, 0);
        self.wait();
        self.moves.push(Move::Hand { unit: unit as u16, bytes });
    }

    /// The instruction that sets the address, and its latency.
    fn local(&mut self) {
        self.execute(1, 0);
        let wait = self.view.local;
        self.occupy(Busy { instructions: 0, executing: wait, aborted: Ticks::ZERO });
    }

    fn shared(&mut self, command: Command, wait: Wait) {
        self.execute(1, 0);
        match wait {
            Wait::Now => self.wait(),
            Wait::Later(ticket) => {
                self.remembered.issued.insert(ticket);
            }
        }
        self.moves.push(Move::Refer(command, wait));
    }

    /// Adds a wait for all writes before, if there are any to a shared memory.
    pub(super) fn settle(&mut self) {
        if self.remembered.issued.contains(&WRITES) {
            self.wait();
            self.moves.push(Move::Settle);
        }
    }

    /// Cost to the engine of a wait that begins now.
    pub(super) fn wait(&mut self) {
        self.occupy(Busy { instructions: 0, executing: self.view.wait, aborted: Ticks::ZERO });
    }

    /// Adds a reference cached by the CAM: reads fetch whole lines and keep them, writes go through to the memory.
    fn cached(&mut self, command: Command, line: u32) {
        let Some((entries, latency)) = self.view.cam else {
            return self.shared(command, Wait::Now);
        };
        let bytes = line.max(1);
        let line = u64::from(bytes);
        let last = (command.address + u64::from(command.bytes.max(1)) - 1) / line;
        for number in command.address / line..=last {
            self.execute(1, 0);
            self.occupy(Busy { instructions: 0, executing: latency, aborted: Ticks::ZERO });
            let key = (command.memory, number);
            let held = self.remembered.lines.iter().position(|held| *held == key);
            if let Some(held) = held {
                self.remembered.lines.remove(held);
            } else if self.remembered.lines.len() >= entries as usize {
                self.remembered.lines.remove(0);
            }
            self.remembered.lines.push(key);
            if held.is_some() {
                self.local();
            } else {
                let fetch = Command { access: Access::Read, address: number * line, bytes, ..command };
                self.shared(fetch, Wait::Now);
            }
        }
        if command.access != Access::Read {
            self.shared(command, Wait::Now);
        }
    }
}
