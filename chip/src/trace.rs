//! Cost of one frame: the acts of its stages, in order, for playback in modelled time.

use tally::{Address, Branch, Offload, Op, Reference, Region, Tally, Ticket};

/// One act of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Execution of instructions, some of them branches taken.
    Execute {
        /// Instructions, the branches included.
        instructions: u32,
        /// Branches taken.
        taken: u32,
    },
    /// Reference to memory.
    Refer(Referral),
    /// Wait for the reference of that ticket.
    Await(u32),
    /// Hash of a key of that many bytes.
    Hash(u32),
    /// Text of that many bytes passed to a crypto unit.
    Encipher(u32),
    /// Work that a chip may have a unit for: all of it is so many acts that follow.
    Offload {
        /// The work.
        work: Offload,
        /// Number of acts.
        acts: u32,
    },
}

/// A reference to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Region referred to.
    pub region: Region,
    /// Kind of access.
    pub access: Access,
    /// The offset in the region.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u32,
    /// Kind of address: known beforehand or computed.
    pub address: Address,
    /// Wait of the code for the reference.
    pub wait: Wait,
}

/// Kind of access to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// A read.
    #[default]
    Read,
    /// A write.
    Write,
    /// A read, a change and a write, indivisibly.
    Atomic,
}

/// Wait of code for a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At once.
    Now,
    /// Later, by this ticket, or never.
    Later(u32),
}

/// Recorder of the acts of code.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// Acts, in order.
    pub acts: Vec<Act>,
    /// Instructions by kind, in all.
    pub mix: [u64; Op::ALL.len()],
    /// The ticket given last.
    tickets: u32,
    /// Number of acts before the last mark: nothing is added to them.
    over: usize,
    /// Place of the work for a unit that has begun.
    offload: Option<usize>,
}

impl Recorder {
    /// Begins anew, in the memory of `acts`; the mix goes on. Returns the recorded acts.
    pub fn renew(&mut self, mut acts: Vec<Act>) -> Vec<Act> {
        acts.clear();
        (self.over, self.offload) = (0, None);
        std::mem::replace(&mut self.acts, acts)
    }

    /// Marks a boundary: later acts are kept apart from earlier ones. Returns the index of the first later act.
    pub fn mark(&mut self) -> u32 {
        self.over = self.acts.len();
        u32::try_from(self.over).unwrap_or(u32::MAX)
    }

    /// Adds what another one has recorded, which is then empty.
    pub fn go_on_with(&mut self, other: &mut Recorder) {
        self.acts.append(&mut other.acts);
        for (sum, part) in self.mix.iter_mut().zip(std::mem::take(&mut other.mix)) {
            *sum += part;
        }
        other.over = 0;
    }

    fn refer(&mut self, region: Region, access: Access, at: usize, bytes: u32) {
        let (at, address) = (at as u64, Address::Computed);
        self.acts.push(Act::Refer(Referral { region, access, at, bytes, address, wait: Wait::Now }));
    }

    fn add(&mut self, op: Op, count: u32, jumps: u32) {
        self.mix[op as usize] += u64::from(count);
        match self.acts.get_mut(self.over..).and_then(<[Act]>::last_mut) {
            Some(Act::Execute { instructions, taken }) => {
                *instructions += count;
                *taken += jumps;
            }
            _ => self.acts.push(Act::Execute { instructions: count, taken: jumps }),
        }
    }
}

impl Tally for Recorder {
    /// Counts instructions; branches among them are not taken: [`Tally::branch`] counts the taken ones.
    fn execute(&mut self, op: Op, count: u32) {
        self.add(op, count, 0);
    }

    fn branch(&mut self, branch: Branch) {
        self.add(Op::Branch, 1, u32::from(branch != Branch::NotTaken));
    }

    fn issue(&mut self, reference: Reference) -> Ticket {
        let access = match reference.access {
            tally::Access::Read => Access::Read,
            tally::Access::Write => Access::Write,
        };
        // 0 stands for a reference that is done.
        self.tickets = self.tickets.wrapping_add(1).max(1);
        let Reference { region, at, bytes, address, .. } = reference;
        let wait = Wait::Later(self.tickets);
        self.acts.push(Act::Refer(Referral { region, access, at: at as u64, bytes, address, wait }));
        Ticket(self.tickets)
    }

    fn wait(&mut self, ticket: Ticket) {
        self.acts.push(Act::Await(ticket.0));
    }

    fn read(&mut self, region: Region, at: usize, bytes: u32) {
        self.refer(region, Access::Read, at, bytes);
    }

    fn write(&mut self, region: Region, at: usize, bytes: u32) {
        self.refer(region, Access::Write, at, bytes);
    }

    fn atomic(&mut self, region: Region, at: usize, bytes: u32) {
        self.refer(region, Access::Atomic, at, bytes);
    }

    fn hash(&mut self, bytes: u32) {
        self.acts.push(Act::Hash(bytes));
    }

    fn begin_offload(&mut self, work: Offload) {
        self.offload = Some(self.acts.len());
        self.acts.push(Act::Offload { work, acts: 0 });
        self.over = self.acts.len();
    }

    fn end_offload(&mut self) {
        let Some(place) = self.offload.take() else { return };
        let many = self.acts.len() - place - 1;
        if let Some(Act::Offload { acts, .. }) = self.acts.get_mut(place) {
            *acts = u32::try_from(many).unwrap_or(u32::MAX);
        }
        self.over = self.acts.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_gather_up_to_the_next_reference_or_mark() {
        let mut recorder = Recorder::default();
        recorder.instructions(3);
        recorder.branch(Branch::Taken);
        recorder.branch(Branch::NotTaken);
        recorder.read(Region::RuleTable, 32, 8);
        recorder.execute(Op::Shift, 2);
        assert_eq!(recorder.mark(), 3);
        recorder.instructions(4);
        let read = Act::Refer(Referral {
            region: Region::RuleTable,
            access: Access::Read,
            at: 32,
            bytes: 8,
            address: Address::Computed,
            wait: Wait::Now,
        });
        let run = |instructions, taken| Act::Execute { instructions, taken };
        assert_eq!(recorder.acts, [run(5, 1), read, run(2, 0), run(4, 0)]);
        assert_eq!(recorder.mix[Op::Branch as usize], 2);
        assert_eq!(recorder.renew(Vec::new()).len(), 4);
        assert!(recorder.acts.is_empty());
    }

    #[test]
    fn issued_references_have_tickets_of_their_own() {
        let mut recorder = Recorder::default();
        let reference = Reference {
            region: Region::CipherTable,
            at: 0,
            bytes: 4,
            access: tally::Access::Read,
            address: Address::Computed,
        };
        let first = recorder.issue(reference);
        let second = recorder.issue(reference);
        assert!(first != second && first != Ticket::DONE);
        recorder.wait(second);
        assert_eq!(recorder.acts[2], Act::Await(second.0));
    }
}
