//! Size of a worker's frame pool.

use dataplane::Tables;
use dataplane::hop::MOST_WAITING;
use wire::HEADROOM;

use crate::worker::handoff;

/// Returns the number of frames of a worker's pool: room for the rings and queues of its interfaces, for pending frames,
/// and for frames in handoff to other workers and back.
pub(super) fn slots(tables: &Tables, workers: usize) -> u32 {
    let ports = tables.interfaces.iter().enumerate().filter(|(place, own)| usize::from(own.root.0) == *place);
    let rings = ports.count() as u32 * RING_FRAMES;
    let queued = tables.queues.most_waiting(tables.interfaces.len(), tables.limits.queue);
    let queues = queued.min((tables.interfaces.len() as u32).saturating_mul(MOST_QUEUED));
    let handed = (workers - 1) * handoff::depth(workers);
    rings + queues + tables.limits.fragments.held + SPARE_FRAMES + handed as u32
}

/// Slots of a worker for packets of many segments, beside those of its frames: 4.25 MiB. Such a packet goes in and out within a turn, or is cut
/// where a slot is missing.
pub(super) const BIG_SLOTS: u32 = 64;

/// Frames that a port's rings can hold.
const RING_FRAMES: u32 = 8_192;

/// Maximum number of frames per interface that the pool is sized for; longer queues share the rest.
const MOST_QUEUED: u32 = 4_096;

/// Frames for batches in progress and for packets pending neighbour resolution.
const SPARE_FRAMES: u32 = 1_024 + MOST_WAITING;

/// Returns the size of a slot, in bytes: the smallest for the longest frame.
pub(super) fn slot_bytes(tables: &Tables) -> usize {
    let longest = tables.interfaces.iter().map(|interface| usize::from(interface.mtu)).max().unwrap_or(1500);
    let tail = if tables.tunnels.is_empty() { 0 } else { TRAILER_BYTES };
    let needed = longest + LINK_BYTES + HEADROOM + tail;
    [2048, 4096, 8192].into_iter().find(|slot| needed <= *slot).unwrap_or(16_384)
}

/// Length of the longest ESP trailer and integrity check value, behind a packet that fits its tunnel: what is in front fits the headroom.
const TRAILER_BYTES: usize = 64;

/// Length of an Ethernet header with two VLAN tags, in bytes.
const LINK_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_room_for_what_a_tunnel_adds() {
        let site = include_str!("../../../tests/cases/esp/site.toml");
        for mtu in [1_500_u16, 1_740, 1_760, 7_900, 9_000] {
            let text = site.replacen("zone = \"wan\"\n", &format!("zone = \"wan\"\nmtu = {mtu}\n"), 1);
            let policy = policy::check(&text, "site.toml").policy.expect("a sound policy");
            let tables = Tables::compile(&policy, 1).expect("sound tables");
            let room = slot_bytes(&tables) - HEADROOM - LINK_BYTES;
            assert!(room >= usize::from(mtu) + TRAILER_BYTES, "{mtu}: {room}");
        }
    }
}
