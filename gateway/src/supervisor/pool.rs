//! How large a worker's frame pool is.

use dataplane::Tables;
use dataplane::hop::MOST_WAITING;
use wire::HEADROOM;

use crate::worker::handoff;

/// Frames of a worker's pool: what rings and queues of its interfaces can hold, what can wait, and what can be on its way to
/// other workers and back.
pub(super) fn slots(tables: &Tables, workers: usize) -> u32 {
    let ports = tables.interfaces.iter().enumerate().filter(|(place, own)| usize::from(own.root.0) == *place);
    let rings = ports.count() as u32 * RING_FRAMES;
    let queues = tables.interfaces.len() as u32 * tables.limits.queue.min(MOST_QUEUED);
    let handed = (workers - 1) * handoff::depth(workers);
    rings + queues + tables.limits.fragments.held + SPARE_FRAMES + handed as u32
}

/// Frames that a port's rings can hold.
const RING_FRAMES: u32 = 8_192;

/// Frames of a queue that the pool is made for; longer queues share what there is.
const MOST_QUEUED: u32 = 4_096;

/// Frames for batches under way and for neighbours that are waited for.
const SPARE_FRAMES: u32 = 1_024 + MOST_WAITING;

/// Bytes of a slot: the smallest that takes the longest frame.
pub(super) fn slot_bytes(tables: &Tables) -> usize {
    let longest = tables.interfaces.iter().map(|interface| usize::from(interface.mtu)).max().unwrap_or(1500);
    let needed = longest + LINK_BYTES + HEADROOM;
    [2048, 4096, 8192].into_iter().find(|slot| needed <= *slot).unwrap_or(16_384)
}

/// Ethernet, and two VLAN tags.
const LINK_BYTES: usize = 22;
