//! What a machine is given to do.

use crate::kernel::Ticks;
use crate::trace::Act;

/// Where frames come from, and who says what each costs.
pub trait Load {
    /// The next frame that will come in, no earlier than the one before; `None` when there are no more.
    fn next(&mut self) -> Option<Arrival>;

    /// The frame that [`Load::next`] gave last has been taken in: runs it, and writes into `job` what that costs and
    /// what comes of it. It is not called for frames that are lost.
    fn accept(&mut self, job: &mut Job);
}

/// A frame that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its first bit is there; later, if its port is still taken by the frame before.
    pub at: Ticks,
    /// By which port.
    pub port: u16,
    /// Its length in bytes, without what only the line has.
    pub bytes: u32,
}

/// A frame under way in a machine.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// What its stages did, one stage after the other.
    pub acts: Vec<Act>,
    /// Where the acts of each stage begin, and where those of the last end: one entry more than there are stages.
    pub marks: Vec<u32>,
    /// The stage behind which it goes no further, if nothing leaves because of it.
    pub ends_at: usize,
    /// What leaves because of it.
    pub outputs: Vec<Output>,
    /// Standing of its flow.
    pub standing: Standing,
    pub(crate) bytes: u32,
    pub(crate) arrived: Ticks,
    pub(crate) unsent: u32,
}

/// A frame that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// By which port.
    pub port: u16,
    /// Its length in bytes.
    pub bytes: u32,
}

/// Standing of a frame: of a flow that has been decided, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It opens one, or is judged for itself.
    #[default]
    New,
    /// It does.
    Known,
}

impl Job {
    pub(crate) fn renew(&mut self, arrival: &Arrival, arrived: Ticks) {
        self.acts.clear();
        self.marks.clear();
        self.outputs.clear();
        self.ends_at = 0;
        self.standing = Standing::New;
        self.bytes = arrival.bytes;
        self.arrived = arrived;
        self.unsent = 0;
    }

    /// The acts of the stages in `stages`.
    pub(crate) fn acts_of(&self, stages: &std::ops::Range<usize>) -> &[Act] {
        let mark =
            |stage: usize| self.marks.get(stage).or(self.marks.last()).map_or(0, |mark| *mark as usize);
        self.acts.get(mark(stages.start)..mark(stages.end)).unwrap_or(&[])
    }
}
