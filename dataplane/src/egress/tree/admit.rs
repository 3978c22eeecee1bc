//! Arrivals: the leaf of a packet, and its place there.

use tally::{Op, Region, Tally};
use wire::Frame;

use super::super::dropper::Decision;
use super::super::kind::Work;
use super::super::mark;
use super::super::packets::{NONE, Waiting};
use super::super::report::LeafCounts;
use super::{Arrival, DESCRIPTOR, Tree};
use crate::tables::{LeafSettings, NodeKind};
use crate::verdict::Reason;

/// Arrivals of one moment whose queues are asked for before the first of them is queued.
const AHEAD: usize = 32;

impl Tree {
    /// Queues the arrivals of this moment, up to the first that is dropped; one, unless they compete.
    #[inline]
    pub(super) fn admit_due<T: Tally>(&mut self, is_joint: bool, tally: &mut T) {
        if is_joint && self.is_large && self.line.len() > 1 {
            self.prefetch_due();
        }
        while self.line.front().is_some_and(|arrival| arrival.at <= self.now) {
            let Some(arrival) = self.line.pop_front() else { break };
            if let Err(arrival) = self.admit(arrival, tally) {
                self.line.push_front(arrival);
            }
            if self.lost.is_some() || !is_joint {
                break;
            }
        }
        if self.line.is_empty() {
            // Begins again at the front of its memory, which is near.
            self.line.clear();
        }
    }

    /// Asks for the queues of the first arrivals of this moment, all at once, and then for the rings that they are put into.
    #[inline]
    fn prefetch_due(&self) {
        let due = || self.line.iter().take(AHEAD).take_while(|arrival| arrival.at <= self.now);
        let instance = |arrival: &Arrival| {
            let group = self.kinds.get(arrival.leaf as usize).map_or(NONE, |kind| kind.group);
            let instances = self.instances.get(group as usize)?;
            Some((instances.guess(arrival.subscriber.hash), instances.kind))
        };
        for arrival in due() {
            let mut place = arrival.leaf;
            if let Some((first, kind)) = instance(arrival) {
                self.nodes.get(first as usize).into_iter().for_each(wire::prefetch::read);
                place = first + (place - kind);
            }
            self.nodes.get(place as usize).into_iter().for_each(wire::prefetch::read);
        }
        for (first, _) in due().filter_map(instance) {
            let rings = self.nodes.get(first as usize).and_then(|node| self.rings.get(node.inside as usize));
            rings.into_iter().for_each(wire::prefetch::read);
        }
    }

    /// Queues an arrival in its leaf, or drops it.
    ///
    /// # Errors
    /// Another packet was dropped to make room: the arrival is to be queued once more.
    #[inline]
    fn admit<T: Tally>(&mut self, arrival: Arrival, tally: &mut T) -> Result<(), Arrival> {
        let place = self.locate(&arrival, tally);
        let length = u32::from(arrival.length);
        let Some(node) = self.nodes.get_mut(place as usize) else {
            self.lose(arrival.frame, Reason::QueueFull);
            return Ok(());
        };
        let kind = &self.kinds[node.kind as usize];
        // Bounds of packets, bytes and memory, 6; a free entry, its link, the last one's link and the list, 9; branches, 4. The
        // descriptor is read and written; the packet's entry takes 16 bytes, and the last one's link 4.
        tally.instructions(15);
        tally.execute(Op::Branch, 4);
        let at = place as usize * DESCRIPTOR as usize;
        tally.read(Region::Queue, at, DESCRIPTOR);
        tally.write(Region::Queue, at, DESCRIPTOR);
        tally.write(Region::Queue, at, 16);
        tally.write(Region::Queue, at, 4);
        if kind.work != Work::Fifo {
            return self.admit_managed(place, arrival, tally);
        }
        if kind.is_over(node.list.packets, node.list.bytes, length) || self.packets.is_full() {
            self.counts[node.kind as usize].full += 1;
            self.subscriber(place).into_iter().for_each(|counts| counts.full += 1);
            self.lose(arrival.frame, Reason::QueueFull);
            return Ok(());
        }
        let packet = Waiting { frame: arrival.frame, length, since: self.now };
        let pushed = self.packets.push(&mut node.list, packet);
        debug_assert!(pushed.is_ok(), "room was checked");
        self.counts[node.kind as usize].count_queued(length);
        if node.list.packets == 1 {
            self.activate(place, tally);
        }
        Ok(())
    }

    /// [`Tree::admit`] for a leaf with queues inside, or with active queue management.
    #[inline(never)]
    fn admit_managed<T: Tally>(
        &mut self,
        place: u32,
        arrival: Arrival,
        tally: &mut T,
    ) -> Result<(), Arrival> {
        let (now, length) = (self.now, u32::from(arrival.length));
        let Tree { settings, kinds, nodes, inners, aqms, packets, counts, random, .. } = self;
        let node = &mut nodes[place as usize];
        let (kind, counts) = (&kinds[node.kind as usize], counts[node.kind as usize].of(&arrival.frame));
        let NodeKind::Leaf(leaf) = &settings.nodes[node.kind as usize].kind else { return Ok(()) };
        let is_over = kind.is_over(node.list.packets, node.list.bytes, length) || packets.is_full();
        if is_over && kind.work == Work::Divided && !kind.is_too_small(length) {
            // The longest flow makes room (RFC 8290, section 4.1).
            tally.instructions(2 * leaf.fq.map_or(0, |fq| fq.flows));
            if let Some(longest) = inners[node.inside as usize].pop_longest(packets) {
                node.list.packets -= 1;
                node.list.bytes -= u64::from(longest.length);
                counts.count_taken(longest.length);
                counts.full += 1;
                self.subscriber(place).into_iter().for_each(|counts| counts.full += 1);
                self.lose(longest.frame, Reason::QueueFull);
                return Err(arrival);
            }
        }
        if is_over {
            counts.full += 1;
            self.subscriber(place).into_iter().for_each(|counts| counts.full += 1);
            self.lose(arrival.frame, Reason::QueueFull);
            return Ok(());
        }
        // The state of the queue's management, 32 bytes; an average or a probability, and a number drawn at random.
        tally.instructions(30);
        tally.read(Region::Queue, place as usize * DESCRIPTOR as usize, 32);
        tally.write(Region::Queue, place as usize * DESCRIPTOR as usize, 32);
        let decision = if kind.work == Work::Divided {
            inners[node.inside as usize].arrives(leaf, arrival.flow, arrival.colour, now, random)
        } else {
            aqms[node.inside as usize].arrives(leaf, &node.list, arrival.colour, now, random)
        };
        let mut frame = arrival.frame;
        if !counts.lets_go(decision, leaf, &mut frame) {
            self.subscriber(place).into_iter().for_each(|counts| counts.early += 1);
            self.lose(frame, Reason::EarlyDrop);
            return Ok(());
        }
        counts.count_queued(length);
        let packet = Waiting { frame, length, since: now };
        let pushed = if kind.work == Work::Divided {
            node.list.packets += 1;
            node.list.bytes += u64::from(length);
            inners[node.inside as usize].push(arrival.flow, packet, packets)
        } else {
            packets.push(&mut node.list, packet)
        };
        debug_assert!(pushed.is_ok(), "room was checked");
        if node.list.packets == 1 {
            self.activate(place, tally);
        }
        Ok(())
    }

    /// Place of the leaf for an arrival: of its subscriber, where there are instances.
    #[inline(always)]
    fn locate<T: Tally>(&mut self, arrival: &Arrival, tally: &mut T) -> u32 {
        let leaf = arrival.leaf;
        let group = self.kinds.get(leaf as usize).map_or(NONE, |kind| kind.group);
        let Tree { instances, nodes, .. } = self;
        let Some(instances) = instances.get_mut(group as usize) else { return leaf };
        // Slot by hash, 3, compared, 4; the subscriber's 16 bytes compared, 5; place of the leaf, 3.
        tally.instructions(15);
        tally.read(Region::Queue, arrival.subscriber.hash as usize % (1 << 16) * 8, 8);
        tally.read(Region::Queue, arrival.subscriber.hash as usize % (1 << 16) * 16, 16);
        let size = instances.size as usize;
        let first = instances.find(&arrival.subscriber, |first| {
            let block = nodes.get(first as usize..first as usize + size).unwrap_or_default();
            block.iter().all(|node| !node.is_active() && !node.is_throttled)
        });
        first + (leaf - instances.kind)
    }
}

impl LeafCounts {
    /// True if a packet goes on after a decision: kept, or marked.
    pub(super) fn lets_go(&mut self, decision: Decision, leaf: &LeafSettings, frame: &mut Frame) -> bool {
        if decision == Decision::Keep {
            return true;
        }
        if decision == Decision::Signal && leaf.ecn && mark::congestion(frame) {
            self.marked += 1;
            return true;
        }
        self.early += 1;
        false
    }
}
