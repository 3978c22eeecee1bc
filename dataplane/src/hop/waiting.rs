//! Neighbours under resolution, and the frames pending for each.
//!
//! A shard resolves no address: its host takes the neighbours that are wanted ([`Waiting::wanted`], each once) and
//! updates the shard. Resolution fails without an update within [`PATIENCE`]. All is bounded: [`MOST_ASKED`] neighbours,
//! [`MOST_WAITING`] frames in all and [`MOST_EACH`] for each neighbour. At either of the first two bounds the neighbour
//! that has been asked for longest gives way: on a working link answers take milliseconds, so that neighbour is most
//! likely not there, and a scan of a network delays no other traffic.

use lookup::memory::MemoryError;
use wire::{Frame, Nanos, PortId};

use crate::fragment::held::{Held, List};
use crate::tables::Address;

/// Time for which frames are pending, the same as for a host's own solicitations (RFC 4861, section 10: three times, a
/// second apart).
pub const PATIENCE: Nanos = Nanos::from_secs(3);

/// Highest number of neighbours under resolution at one time.
pub const MOST_ASKED: usize = 256;

/// Highest number of frames pending at one time, and so of slots that they take from the frame pool.
pub const MOST_WAITING: u32 = 1_024;

/// Highest number of frames pending for one neighbour: as many as with Linux (`unres_qlen`).
pub const MOST_EACH: u32 = 101;

/// A neighbour, by its interface and its address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The interface whose link it is on.
    pub interface: PortId,
    /// The neighbour's IP address.
    pub address: Address,
}

/// Neighbours under resolution, those asked for longest first.
pub(crate) struct Waiting {
    asked: Vec<Asked>,
    most: usize,
    held: Held,
    /// Number of neighbours that the host has not taken yet.
    untold: usize,
}

struct Asked {
    wanted: Wanted,
    deadline: Nanos,
    frames: List,
    count: u32,
    host: Host,
}

/// The host's knowledge that a neighbour is wanted.
#[derive(PartialEq, Eq)]
enum Host {
    Knows,
    Untold,
}

impl Waiting {
    /// Makes room for so many neighbours and frames.
    pub(crate) fn new(most: usize, frames: u32) -> Result<Waiting, MemoryError> {
        Ok(Waiting { asked: Vec::with_capacity(most), most, held: Held::new(frames)?, untold: 0 })
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.asked.capacity() * size_of::<Asked>() + self.held.bytes()
    }

    /// Notes that a neighbour is wanted, unless noted already, and if there is room.
    pub(crate) fn ask(&mut self, wanted: Wanted, now: Nanos) {
        if self.place(wanted).is_some() || self.asked.len() == self.most {
            return;
        }
        let deadline = now + PATIENCE;
        self.asked.push(Asked { wanted, deadline, frames: List::EMPTY, count: 0, host: Host::Untold });
        self.untold += 1;
    }

    /// Returns the next neighbour that the host has not taken yet.
    pub(crate) fn wanted(&mut self) -> Option<Wanted> {
        if self.untold == 0 {
            return None;
        }
        let asked = self.asked.iter_mut().find(|asked| asked.host == Host::Untold)?;
        asked.host = Host::Knows;
        self.untold -= 1;
        Some(asked.wanted)
    }

    /// True if another neighbour must [give way](Waiting::give_way) before a frame can be pending for this one.
    pub(crate) fn is_full_for(&self, wanted: Wanted) -> bool {
        self.held.is_full() || self.asked.len() == self.most && self.place(wanted).is_none()
    }

    /// Takes a frame from the neighbour that has been asked for longest, or forgets the neighbour if no frame is pending
    /// for it.
    pub(crate) fn give_way(&mut self) -> Option<Frame> {
        let oldest = self.asked.first_mut()?;
        match self.held.pop(&mut oldest.frames) {
            Some(frame) => {
                oldest.count -= 1;
                Some(frame)
            }
            None => {
                self.remove(0);
                None
            }
        }
    }

    /// Makes a frame pending, or gives it back if too many are.
    pub(crate) fn hold(&mut self, wanted: Wanted, frame: Frame, now: Nanos) -> Result<(), Frame> {
        self.ask(wanted, now);
        let Some(asked) = self.place(wanted).and_then(|place| self.asked.get_mut(place)) else {
            return Err(frame);
        };
        if asked.count == MOST_EACH {
            return Err(frame);
        }
        self.held.push(&mut asked.frames, frame)?;
        asked.count += 1;
        Ok(())
    }

    /// Takes the next frame pending for a neighbour, in the order of arrival; the neighbour is forgotten with the last.
    pub(crate) fn take(&mut self, wanted: Wanted) -> Option<Frame> {
        let place = self.place(wanted)?;
        let asked = &mut self.asked[place];
        match self.held.pop(&mut asked.frames) {
            Some(frame) => {
                asked.count -= 1;
                Some(frame)
            }
            None => {
                self.remove(place);
                None
            }
        }
    }

    /// Returns a neighbour whose resolution has failed.
    pub(crate) fn overdue(&self, now: Nanos) -> Option<Wanted> {
        let oldest = self.asked.first()?;
        let left = oldest.deadline.since(now);
        // Also where the clock was set back: else it would be asked for as long as that.
        let is_over = left == Nanos(0) || left > PATIENCE + PATIENCE;
        is_over.then_some(oldest.wanted)
    }

    /// Returns any neighbour under resolution.
    pub(crate) fn any(&self) -> Option<Wanted> {
        self.asked.first().map(|asked| asked.wanted)
    }

    /// Number of frames pending.
    pub(crate) fn count(&self) -> u32 {
        self.held.count()
    }

    fn place(&self, wanted: Wanted) -> Option<usize> {
        self.asked.iter().position(|asked| asked.wanted == wanted)
    }

    fn remove(&mut self, place: usize) {
        if self.asked.remove(place).host == Host::Untold {
            self.untold -= 1;
        }
    }
}
