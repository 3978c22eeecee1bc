//! A packet of many segments in the middle of its segmentation, which may take more than one batch.

use wire::vlan::{TAG_LEN, Tag};
use wire::{Batch, Frame, Nanos, Pool};

use crate::line::Statistics;
use crate::offload::{self, Left, Plan};
use crate::spec::Offload;
use crate::sys::packet::VnetHeader;

/// Buffer for one packet of IP's maximum length, and the state of its segmentation.
pub(crate) struct Pending {
    buffer: Box<[u8]>,
    cutting: Option<Cutting>,
    offload: Offload,
}

/// A packet that is being segmented.
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

    /// True if no segments are left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.cutting.is_none()
    }

    /// Buffer for the next packet, before [`Pending::begin`]. Only while no segments are left.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Begins to segment the packet in the buffer, or puts it into `frame` if it is a single one. `None` if unusable or
    /// refused.
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

    /// Segments into as many frames as `batch` has room for and `pool` slots.
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

/// Outcome for a packet in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Copied to the frame.
    Frame,
    /// Segmentation begun.
    Segments,
}

/// Does the offload work left on a frame that needs no segmentation, and puts its VLAN tag back. `false` if that is
/// impossible.
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

/// Inserts a VLAN tag behind the addresses, as the outer tag.
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
