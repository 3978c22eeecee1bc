//! Packets dropped at egress, behind the gateway, as Linux counts them: by devices and by their queueing disciplines.
//!
//! Packets that a program of the fast path redirects, or that a worker hands to a device, may still be dropped there: the link has no carrier, the
//! packet is too long for the other end, a queue is full. No program of the gateway sees that. The sums here go on where a
//! discipline is replaced, or its counter of 32 bits begins anew.

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::NlasIterator;

use super::beside::{RTM_GETQDISC, RTM_NEWQDISC, TCMSG, list, number};
use crate::port::EgressDrops;

const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;

/// Attributes of `<linux/if_link.h>`, `<linux/rtnetlink.h>` and `<linux/gen_stats.h>`.
const IFLA_STATS_LINK_64: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;

/// Bytes of `struct if_stats_msg`, whose last word is the mask of attributes wanted.
const STATS: usize = 12;
/// Offset of `tx_dropped` in `struct rtnl_link_stats64`.
const TX_DROPPED: usize = 7 * 8;
/// Offset of `drops` in `struct gnet_stats_queue`.
const DROPS: usize = 8;
/// Parent of a discipline that has all of an interface's packets, and whose counters include those below.
const ROOT: u32 = 0xffff_ffff;

/// Drops of all interfaces since the first count.
#[derive(Debug, Default)]
pub(crate) struct EgressCounter {
    links: BTreeMap<u32, Counted>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sums: EgressDrops,
    /// Counters when they were last read.
    last: Option<Read>,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Read {
    device: u64,
    qdisc: Option<Discipline>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Discipline {
    handle: u32,
    drops: u32,
}

impl EgressCounter {
    /// Reads the counters, and adds what is new since the last time.
    ///
    /// # Errors
    /// Failed dump.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        let mut found: BTreeMap<u32, Read> = BTreeMap::new();
        let mut wanted = [0; STATS];
        wanted[8..].copy_from_slice(&(1_u32 << (IFLA_STATS_LINK_64 - 1)).to_ne_bytes());
        list(RTM_GETSTATS, &wanted, |kind, body| {
            if let (RTM_NEWSTATS, Some((link, device))) = (kind, device_of(body)) {
                found.insert(link, Read { device, qdisc: None });
            }
        })?;
        list(RTM_GETQDISC, &[0; TCMSG], |kind, body| {
            if let (RTM_NEWQDISC, Some((link, discipline))) = (kind, discipline_of(body)) {
                if let Some(read) = found.get_mut(&link) {
                    read.qdisc = Some(discipline);
                }
            }
        })?;
        self.add(found);
        Ok(())
    }

    /// Drops at an interface of that index.
    pub(crate) fn drops(&self, link: u32) -> EgressDrops {
        self.links.get(&link).map(|counted| counted.sums).unwrap_or_default()
    }

    fn add(&mut self, found: BTreeMap<u32, Read>) {
        self.links.retain(|link, _| found.contains_key(link));
        for (link, now) in found {
            let counted = self.links.entry(link).or_default();
            if let Some(before) = counted.last.replace(now) {
                counted.sums.device += now.device.saturating_sub(before.device);
                counted.sums.qdisc += u64::from(new_drops(before.qdisc, now.qdisc));
            }
        }
    }
}

/// Drops of a discipline since it was last looked at; all of them if another one was there.
fn new_drops(before: Option<Discipline>, now: Option<Discipline>) -> u32 {
    match (before, now) {
        (Some(before), Some(now)) if before.handle == now.handle => now.drops.wrapping_sub(before.drops),
        (_, Some(now)) => now.drops,
        (_, None) => 0,
    }
}

/// Interface of a message, and the packets that its device has dropped.
fn device_of(body: &[u8]) -> Option<(u32, u64)> {
    let link = number(body, 4)?;
    let mut attributes = NlasIterator::new(body.get(STATS..)?).flatten();
    let counters = attributes.find(|attribute| attribute.kind() == IFLA_STATS_LINK_64)?;
    let dropped = counters.value().get(TX_DROPPED..)?.first_chunk()?;
    Some((link, u64::from_ne_bytes(*dropped)))
}

/// Interface of a message, and its discipline at the root.
fn discipline_of(body: &[u8]) -> Option<(u32, Discipline)> {
    let (link, handle) = (number(body, 4)?, number(body, 8)?);
    if number(body, 12)? != ROOT {
        return None;
    }
    let mut attributes = NlasIterator::new(body.get(TCMSG..)?).flatten();
    let counters = attributes.find(|attribute| attribute.kind() == TCA_STATS2)?;
    let mut counters = NlasIterator::new(counters.value()).flatten();
    let queue = counters.find(|attribute| attribute.kind() == TCA_STATS_QUEUE)?;
    Some((link, Discipline { handle, drops: number(queue.value(), DROPS)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: u64, handle: u32, drops: u32) -> Read {
        Read { device, qdisc: Some(Discipline { handle, drops }) }
    }

    #[test]
    fn drops_are_those_since_the_first_count() {
        let mut counter = EgressCounter::default();
        let mut after = |link, now| {
            counter.add(BTreeMap::from([(link, now)]));
            let EgressDrops { device, qdisc } = counter.drops(link);
            (device, qdisc)
        };
        assert_eq!(after(3, read(1_000, 1, 50)), (0, 0));
        assert_eq!(after(3, read(1_004, 1, u32::MAX)), (4, 0xffff_ffcd));
        assert_eq!(after(3, read(1_004, 1, 5)), (4, 0xffff_ffd3));
        // Another discipline has its own counter.
        assert_eq!(after(3, read(1_004, 2, 7)), (4, 0xffff_ffda));
        assert_eq!(after(3, Read { device: 1_005, qdisc: None }), (5, 0xffff_ffda));
        // So has another interface.
        assert_eq!(after(4, read(9, 1, 9)), (0, 0));
        assert_eq!(after(3, read(2_000, 1, 2_000)), (0, 0));
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn counters_are_found_in_messages_and_any_bytes_do_no_harm() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let mut stats = words(&[0, 7, 1]);
        let counters: Vec<u8> = (0..25_u64).flat_map(|number| (100 + number).to_ne_bytes()).collect();
        stats.extend(attribute(IFLA_STATS_LINK_64, &counters));
        assert_eq!(device_of(&stats), Some((7, 107)));
        let queue = attribute(TCA_STATS_QUEUE, &words(&[1, 2, 979, 4, 5]));
        let tbf = |parent| {
            let mut body = words(&[0, 7, 0x8015_0000, parent, 2]);
            body.extend(attribute(1, b"tbf\0"));
            body.extend(attribute(TCA_STATS2, &queue));
            body
        };
        let discipline = Discipline { handle: 0x8015_0000, drops: 979 };
        assert_eq!(discipline_of(&tbf(ROOT)), Some((7, discipline)));
        assert_eq!(discipline_of(&tbf(0x1_0001)), None);
        for end in 0..stats.len() {
            let _ = device_of(&stats[..end]);
        }
        let whole = tbf(ROOT);
        for end in 0..whole.len() {
            let _ = discipline_of(&whole[..end]);
        }
    }
}
