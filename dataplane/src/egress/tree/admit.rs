//! Arrivals: the leaf of a packet, and its place there.

use tally::{Op, Region, Tally};
use wire::Frame;

use super::super::dropper::Decision;
use super::super::instance::{Guess, Instances};
use super::super::kind::Work;
use super::super::mark;
use super::super::node::Node;
use super::super::packets::{NONE, Waiting};
use super::super::report::LeafCounts;
use super::{Arrival, DESCRIPTOR, Tree};
use crate::stage::header;
use crate::tables::{LeafSettings, NodeKind};
use crate::verdict::Reason;

impl Tree {
    /// Queues the arrivals of this moment, up to the first that is dropped; one, unless they compete.
    #[inline]
    pub(super) fn admit_due<T: Tally>(&mut self, is_joint: bool, tally: &mut T) {
        while self.admit(tally) && is_joint {}
        if self.line.is_empty() {
            // Begins again at the front of its memory, which is near.
            self.line.clear();
        }
    }

    /// Asks for what an arrival will be queued in: the nodes of its subscriber's instance, whose first one is most likely at `first`,
    /// and of its leaf, and the rings that they are put into.
    #[inline(always)]
    pub(super) fn prefetch_queue(&self, instances: &Instances, hash: u32, leaf: u32) {
        let Guess { first, rings } = instances.guess(hash);
        let nodes = [first, first + (leaf - instances.kind)];
        nodes.iter().filter_map(|place| self.nodes.get(*place as usize)).for_each(wire::prefetch::read);
        self.rings.get(rings as usize).into_iter().for_each(wire::prefetch::read);
    }

    /// Queues the first arrival of this moment in its leaf, or drops it. It stays in the line where another packet is dropped to make
    /// room. False if there is none, or a packet was dropped.
    #[inline(always)]
    fn admit<T: Tally>(&mut self, tally: &mut T) -> bool {
        let Tree { line, kinds, instances, nodes, packets, counts, .. } = self;
        let Some(arrival) = line.front().filter(|arrival| arrival.at <= self.now) else { return false };
        let (leaf, length) = (arrival.leaf, u32::from(arrival.length));
        let Some(kind) = kinds.get(leaf as usize) else { return self.refuse(NONE) };
        let place = match instances.get_mut(kind.group as usize) {
            Some(instances) => locate(instances, nodes, arrival, tally),
            None => leaf,
        };
        let Some(node) = nodes.get_mut(place as usize) else { return self.refuse(NONE) };
        // Leaf by place and bound, 6; bounds of packets, bytes and memory, of 64 bits two, 18; a free entry, its link, the last one's link and
        // the list, 20; number and bytes, with their highest, 16. The descriptor is read, and its list written, 16 bytes; the packet's entry
        // takes 16 bytes, and the link to it 4.
        tally.instructions(60);
        tally.execute(Op::Branch, 16);
        let at = place as usize * DESCRIPTOR as usize;
        tally.read(Region::Queue, at, DESCRIPTOR);
        tally.write(Region::Queue, at, 16);
        tally.write(Region::Queue, at, 16);
        if node.list.packets != 0 {
            tally.write(Region::Queue, at, 4);
        }
        if kind.work != Work::Fifo {
            self.admit_managed(place, tally);
            return self.lost.is_none();
        }
        if kind.is_over(node.list.packets, node.list.bytes, length) || packets.is_full() {
            return self.refuse(place);
        }
        let Some(Arrival { frame, .. }) = line.pop_front() else { return false };
        let pushed = packets.push(&mut node.list, Waiting { frame, length, since: self.now });
        debug_assert!(pushed.is_ok(), "room was checked");
        counts[leaf as usize].count_queued(length);
        if node.list.packets == 1 {
            self.activate(place, tally);
        }
        true
    }

    /// Drops the first arrival for want of room in the leaf at `place`, or of a leaf. Always false.
    #[cold]
    fn refuse(&mut self, place: u32) -> bool {
        let Some(Arrival { frame, .. }) = self.line.pop_front() else { return false };
        if let Some(node) = self.nodes.get(place as usize) {
            self.counts[node.kind as usize].full += 1;
        }
        self.subscriber(place).into_iter().for_each(|counts| counts.full += 1);
        self.lose(frame, Reason::QueueFull);
        false
    }

    /// [`Tree::admit`] for a leaf with queues inside, or with active queue management.
    #[inline(never)]
    fn admit_managed<T: Tally>(&mut self, place: u32, tally: &mut T) {
        let Some(arrival) = self.line.pop_front() else { return };
        let (now, length) = (self.now, u32::from(arrival.length));
        let Tree { settings, kinds, nodes, inners, aqms, packets, counts, random, .. } = self;
        let node = &mut nodes[place as usize];
        let (kind, counts) = (&kinds[node.kind as usize], counts[node.kind as usize].of(&arrival.frame));
        let NodeKind::Leaf(leaf) = &settings.nodes[node.kind as usize].kind else { return };
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
                self.line.push_front(arrival);
                return self.lose(longest.frame, Reason::QueueFull);
            }
        }
        if is_over {
            counts.full += 1;
            self.subscriber(place).into_iter().for_each(|counts| counts.full += 1);
            return self.lose(arrival.frame, Reason::QueueFull);
        }
        // The state of the queue's management, 32 bytes; an average or a probability, and a number drawn at random.
        tally.instructions(30);
        tally.read(Region::Queue, place as usize * DESCRIPTOR as usize, 32);
        tally.write(Region::Queue, place as usize * DESCRIPTOR as usize, 32);
        let colour = header::drop_precedence(&arrival.frame);
        let decision = if kind.work == Work::Divided {
            inners[node.inside as usize].arrives(leaf, arrival.flow, colour, now, random)
        } else {
            aqms[node.inside as usize].arrives(leaf, &node.list, colour, now, random)
        };
        let mut frame = arrival.frame;
        if !counts.lets_go(decision, leaf, &mut frame) {
            self.subscriber(place).into_iter().for_each(|counts| counts.early += 1);
            return self.lose(frame, Reason::EarlyDrop);
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
    }
}

/// Place of the leaf for an arrival: of its subscriber.
#[inline(always)]
fn locate<T: Tally>(instances: &mut Instances, nodes: &[Node], arrival: &Arrival, tally: &mut T) -> u32 {
    // Subscriber's address by direction and prefix, 18; slot by hash, 6, compared, 6; the subscriber's 16 bytes compared, 16; time of use, 4;
    // place of the leaf, 6.
    tally.instructions(56);
    tally.read(Region::Queue, arrival.subscriber.hash as usize % (1 << 16) * 8, 8);
    tally.read(Region::Queue, arrival.subscriber.hash as usize % (1 << 16) * 16, 16);
    let size = instances.size as usize;
    let first = instances.find(&arrival.subscriber, |first| {
        let block = nodes.get(first as usize..first as usize + size).unwrap_or_default();
        block.iter().all(|node| !node.is_active() && !node.is_throttled)
    });
    first + (arrival.leaf - instances.kind)
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
