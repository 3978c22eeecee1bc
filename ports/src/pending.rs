//! A packet of many segments on its way into frames, which may take more than one batch.

use wire::vlan::{TAG_LEN, Tag};
use wire::{Batch, Frame, Nanos, Pool};

use crate::line::Statistics;
use crate::offload::{self, Left, Plan};
use crate::open::Offload;
use crate::sys::packet::VnetHeader;

/// Room for one packet as long as IP has them, and what of it is still to be cut.
pub(crate) struct Pending {
    buffer: Box<[u8]>,
    cutting: Option<Cutting>,
    offload: Offload,
}

/// A packet that is being cut.
#[derive(Clone, Copy)]
struct Cutting {
    plan: Plan,
    length: usize,
    tag: Option<Tag>,
    next: usize,
}

/// An IP packet's 64 KiB, and room for link-layer headers.
const LONGEST: usize = (1 << 16) + 128;

impl Pending {
    pub(crate) fn new(offload: Offload) -> Pending {
        Pending { buffer: vec![0; LONGEST].into(), cutting: None, offload }
    }

    /// True if nothing is left to cut.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cutting.is_none()
    }

    /// Where a packet is put before it is begun. Only while nothing is left to cut.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Begins to cut the packet in the buffer, or makes `frame` of it where it is one. `None`: it is unusable, or refused.
    pub(crate) fn begin(
        &mut self,
        length: usize,
        header: &VnetHeader,
        tag: Option<Tag>,
        frame: &mut Frame,
        statistics: &mut Statistics,
    ) -> Option<Begun> {
        let packet = self.buffer.get(..length)?;
        if Left::of(header) == Left::Segments {
            if self.offload == Offload::Refuse {
                return None;
            }
            let plan = Plan::new(packet, header)?;
            self.cutting = Some(Cutting { plan, length, tag, next: 0 });
            statistics.segmented += 1;
            return Some(Begun::Segments);
        }
        let whole = frame.fill(packet) && finish(frame, header, tag, statistics);
        whole.then_some(Begun::Frame)
    }

    /// Cuts as many frames as `batch` has room for and `pool` slots.
    pub(crate) fn cut(
        &mut self,
        batch: &mut Batch,
        pool: &mut Pool,
        now: Nanos,
        statistics: &mut Statistics,
    ) {
        let Some(cutting) = &mut self.cutting else { return };
        let packet = &self.buffer[..cutting.length];
        while cutting.next < cutting.plan.count() {
            let Some(frame) = batch.extend_from(pool) else { return };
            frame.meta.received = now;
            let cut = cutting.plan.cut(packet, cutting.next, frame);
            cutting.next += 1;
            if !cut || !cutting.tag.is_none_or(|tag| insert(frame, tag)) {
                statistics.unusable += 1;
                if let Some(frame) = batch.pop() {
                    pool.put(frame);
                }
            }
        }
        self.cutting = None;
    }
}

/// What became of a packet in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The frame has it.
    Frame,
    /// It is cut from now on.
    Segments,
}

/// Does what is left to do to a frame that is no packet of many segments, and puts its tag back. `false` where that
/// cannot be done.
#[must_use]
pub(crate) fn finish(
    frame: &mut Frame,
    header: &VnetHeader,
    tag: Option<Tag>,
    statistics: &mut Statistics,
) -> bool {
    match Left::of(header) {
        Left::Nothing => {}
        Left::Checksum { start, offset } => {
            if !offload::complete(frame.bytes_mut(), start, offset) {
                return false;
            }
            statistics.completed += 1;
        }
        Left::Segments => return false,
    }
    tag.is_none_or(|tag| insert(frame, tag))
}

/// Puts a tag behind the addresses, where the wire has the outer one.
fn insert(frame: &mut Frame, tag: Tag) -> bool {
    const ADDRESSES: usize = 12;
    if frame.len() < ADDRESSES || frame.push_front(TAG_LEN).is_none() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(TAG_LEN..TAG_LEN + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tag.tpid.0.to_be_bytes());
    bytes[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tag.tci.to_be_bytes());
    true
}
