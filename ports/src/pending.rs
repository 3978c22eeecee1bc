//! Packets of many segments: kept whole where the pool has slots for them; else segmented, which may take more than one batch.

use wire::segment::Plan;
use wire::vlan::{TAG_LEN, Tag};
use wire::{Batch, Frame, Nanos, Pool};

use crate::line::Statistics;
use crate::offload::{self, Left};
use crate::spec::Offload;
use crate::sys::packet::VnetHeader;

/// Buffer for one packet of IP's maximum length, and the state of its segmentation.
pub(crate) struct Pending {
    buffer: Box<[u8]>,
    cutting: Option<Cutting>,
    offload: Offload,
}

/// Offload work that Linux has left in a packet, and the VLAN tag that it took out.
#[derive(Clone, Copy)]
pub(crate) struct Undone {
    /// Offload work.
    pub(crate) header: VnetHeader,
    /// VLAN tag to be put back.
    pub(crate) tag: Option<Tag>,
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

    /// Puts a packet into the buffer, before [`Pending::begin`].
    pub(crate) fn fill(&mut self, packet: &[u8]) {
        if let Some(buffer) = self.buffer.get_mut(..packet.len()) {
            buffer.copy_from_slice(packet);
        }
    }

    /// Buffer for the next packet, before [`Pending::begin`]. Only while no segments are left.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Takes a frame for a packet of `length` bytes that may be one of many segments, for [`Pending::keep`]; `None` where there is none.
    pub(crate) fn take_big(&self, length: usize, pool: &mut Pool) -> Option<Frame> {
        if self.offload != Offload::Whole {
            return None;
        }
        let mut frame = pool.take_big(0)?;
        if frame.prepare(length).is_none() {
            pool.put(frame);
            return None;
        }
        Some(frame)
    }

    /// Keeps the packet in a frame of [`Pending::take_big`] whole.
    ///
    /// # Errors
    /// The frame, as the packet is no whole one of many segments.
    pub(crate) fn keep(
        &self,
        mut frame: Frame,
        undone: &Undone,
        statistics: &mut Statistics,
    ) -> Result<Begun, Frame> {
        let Undone { header, tag } = undone;
        let plan = match Left::of(header) {
            Left::Segments => offload::plan(frame.bytes(), header),
            _ => None,
        };
        // Bytes behind the IP packet would become data where the device cuts it.
        let is_whole = plan.is_some_and(|plan| {
            plan.count() > 1 && !plan.is_unsummed() && plan.transport_range().end == frame.len()
        });
        if !is_whole || !tag.is_none_or(|tag| insert(&mut frame, tag)) {
            return Err(frame);
        }
        frame.set_segment_size(header.gso_size);
        statistics.whole += 1;
        Ok(Begun::Whole(frame))
    }

    /// Begins on the packet in the buffer: keeps one of many segments whole, in a frame of its own, or begins to segment it; puts a
    /// single one into `frame`. `None` if unusable or refused.
    pub(crate) fn begin(
        &mut self,
        length: usize,
        undone: &Undone,
        frame: &mut Frame,
        pool: &mut Pool,
        statistics: &mut Statistics,
    ) -> Option<Begun> {
        let Undone { header, tag } = *undone;
        let header = &header;
        let packet = self.buffer.get(..length)?;
        if Left::of(header) == Left::Segments {
            if self.offload == Offload::Refuse {
                return None;
            }
            if let Some(mut big) = self.take_big(length, pool) {
                big.bytes_mut().copy_from_slice(packet);
                match self.keep(big, undone, statistics) {
                    Ok(begun) => return Some(begun),
                    Err(big) => pool.put(big),
                }
            }
            let plan = offload::plan(packet, header)?;
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

/// Outcome for a packet.
#[derive(Debug)]
pub(crate) enum Begun {
    /// Copied to the frame.
    Frame,
    /// A packet of many segments, in a frame of its own.
    Whole(Frame),
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
