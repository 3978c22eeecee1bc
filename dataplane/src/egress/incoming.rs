//! Trees of what comes by an interface. Their packets come to the tree of the port that they leave by, where flows share and
//! subscribers have queues by the ends that rules have seen: those are kept meanwhile, as translated packets do not have them.

use tally::{Region, Tally};
use wire::{Bytes, Frame, Link, LinkKind, Nanos};

use super::{Ends, Next, Tree};
use crate::stage::queue::ends_on_wire;

/// Tree of what comes by an interface.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) tree: Tree,
    /// A link without a rate: that of the tree's root counts.
    link: Link,
    /// Ends of the packets in the tree; `None` where no tree behind it needs them.
    ends: Option<KeptEnds>,
}

/// Use of a packet's ends behind the tree that it waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndsBehind {
    /// A port's tree shares by them.
    Needed,
    /// None.
    Unused,
}

/// Ends of packets that wait; a packet has the place of its ends in [`Meta::hop`](wire::Meta::hop), which is of no use once a packet is
/// queued.
#[derive(Debug)]
struct KeptEnds {
    entries: Vec<Ends>,
    free: Vec<u32>,
}

impl Incoming {
    /// Creates an empty tree with room for so many packets.
    pub(super) fn new(tree: Tree, most: usize, behind: EndsBehind) -> Incoming {
        let link = Link::new(LinkKind::Ethernet, None, Bytes(0));
        let ends = (behind == EndsBehind::Needed).then(|| KeptEnds::new(most));
        Incoming { tree, link, ends }
    }

    /// Adds a frame that arrives at `at`.
    #[inline]
    pub(super) fn arrive<T: Tally>(&mut self, mut frame: Frame, at: Nanos, ends: &Ends, tally: &mut T) {
        if let Some(kept) = &mut self.ends {
            kept.keep(&mut frame, ends, tally);
        }
        self.tree.arrive(frame, at, ends, tally);
    }

    /// Moment of the next event; `None` where there is none.
    pub(super) fn moment(&self) -> Option<Nanos> {
        self.tree.moment(&self.link)
    }

    /// Answers an opportunity at `now`, with the ends of the frame that departs.
    pub(super) fn next<T: Tally>(&mut self, now: Nanos, tally: &mut T) -> (Next, Ends) {
        let next = self.tree.next(&mut self.link, now, tally);
        let ends = match &next {
            Next::Frame(frame, _) | Next::Dropped(frame, ..) => self.ends_of(frame, tally),
            Next::Wait(_) | Next::Empty => Ends::default(),
        };
        (next, ends)
    }

    /// Goes on with what waits in a tree of the same settings.
    pub(super) fn take_over(&mut self, old: &mut Incoming) {
        std::mem::swap(&mut self.tree, &mut old.tree);
        std::mem::swap(&mut self.ends, &mut old.ends);
        match (&self.ends, old.ends.take()) {
            (Some(_), None) => self.ends = None,
            (None, Some(mut kept)) => {
                for frame in self.tree.frames_mut() {
                    let ends = ends_on_wire(frame);
                    kept.keep(frame, &ends, &mut tally::NoTally);
                }
                self.ends = Some(kept);
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Takes all frames, in the order of their arrival, with their ends, out of a tree that is given up.
    pub(super) fn drain(&mut self) -> Vec<(Frame, Ends)> {
        let frames = self.tree.drain().into_iter();
        frames
            .map(|frame| {
                let ends = self.ends_of(&frame, &mut tally::NoTally);
                (frame, ends)
            })
            .collect()
    }

    /// Ends of a frame that leaves the tree; where none are kept, those on the wire.
    #[inline]
    fn ends_of<T: Tally>(&mut self, frame: &Frame, tally: &mut T) -> Ends {
        match &mut self.ends {
            Some(kept) => kept.take(frame, tally),
            None => ends_on_wire(frame),
        }
    }

    /// Bytes of descriptors in the memory of a chip.
    pub(super) fn tallied_bytes(&self) -> usize {
        self.tree.tallied_bytes() + self.ends.as_ref().map_or(0, |kept| kept.entries.len() * BYTES as usize)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let kept = self.ends.as_ref();
        let kept = kept
            .map_or(0, |kept| size_of_val(kept.entries.as_slice()) + kept.free.capacity() * size_of::<u32>());
        self.tree.memory_bytes() + kept
    }
}

impl KeptEnds {
    fn new(most: usize) -> KeptEnds {
        KeptEnds { entries: vec![Ends::default(); most], free: (0..most as u32).rev().collect() }
    }

    /// Keeps the ends of a frame.
    #[inline]
    fn keep<T: Tally>(&mut self, frame: &mut Frame, ends: &Ends, tally: &mut T) {
        // A free place, 4; both addresses and the ports, 10 words.
        tally.instructions(14);
        let place = self.free.pop().unwrap_or_else(|| self.grow());
        tally.write(Region::Queue, place as usize * BYTES as usize, BYTES);
        frame.meta.hop = place;
        if let Some(entry) = self.entries.get_mut(place as usize) {
            *entry = *ends;
        }
    }

    /// Makes room for one more: after a reload there may be more packets than the limit.
    #[cold]
    fn grow(&mut self) -> u32 {
        self.entries.push(Ends::default());
        (self.entries.len() - 1) as u32
    }

    /// Takes the ends of a frame.
    #[inline]
    fn take<T: Tally>(&mut self, frame: &Frame, tally: &mut T) -> Ends {
        let place = frame.meta.hop;
        tally.instructions(14);
        tally.read(Region::Queue, place as usize * BYTES as usize, BYTES);
        self.free.push(place);
        self.entries.get(place as usize).copied().unwrap_or_default()
    }
}

/// Bytes of the ends of a packet in the memory of a chip.
const BYTES: u32 = 40;
