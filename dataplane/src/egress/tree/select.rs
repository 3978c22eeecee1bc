//! Selection of the next packet, and what it charges on the way from its leaf to the root.

use tally::{Op, Region, Tally};
use wire::{Frame, Nanos};

use super::super::kind::{Above, Kind, Work};
use super::super::node::{Account, At, NO_RING, Node, PRIORITIES, Rings};
use super::super::packets::{List, NONE};
use super::{DESCRIPTOR, ROOT, Tree};
use crate::tables::NodeKind;
use crate::verdict::Reason;

/// A node's shaper, once it has been charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Charged {
    /// True if the node was within its guarantee.
    is_guaranteed: bool,
    /// True if it was, and is past it now.
    is_past: bool,
}

impl Tree {
    /// Takes the packet whose turn it is out of its leaf. `None` if that was dropped.
    #[inline]
    pub(super) fn send<T: Tally>(&mut self, tally: &mut T) -> Option<Frame> {
        let mut place = self.turn;
        let work = loop {
            let node = &self.nodes[place as usize];
            // The descriptor, by place and bound, 6; work of the node, 4; first priority of either kind, 8; the first child, 6.
            tally.instructions(24);
            tally.execute(Op::Branch, 8);
            tally.read(Region::Queue, self.tallied_node(place), DESCRIPTOR);
            match node.work {
                Work::Drr => {
                    let rings = &self.rings[node.inside as usize];
                    if node.guaranteed != 0 {
                        let shaper = rings.first_guaranteed(node.guaranteed);
                        place = self.shapers[shaper as usize].node;
                        continue;
                    }
                    if node.sharing == 0 {
                        return self.rest();
                    }
                    let child = rings.first(node.sharing);
                    if self.nodes[child as usize].deficit <= 0 {
                        self.top_up(place);
                        continue;
                    }
                    place = child;
                }
                Work::Wfq => match self.tagged[node.inside as usize].first(node.sharing) {
                    Some(child) => place = child,
                    None => return self.rest(),
                },
                work => break work,
            }
        };
        // Head and its link, free list, number and bytes, 24; counters of 64 bits, 22; delay, of 64 bits, its sum, highest and bucket, 44. The
        // entry has 16 bytes, the list that is written 16, and the deficit 4.
        tally.instructions(90);
        tally.read(Region::Queue, self.tallied_node(place), 16);
        tally.write(Region::Queue, self.tallied_node(place), 20);
        if work != Work::Fifo {
            return self.send_managed(place, work, tally);
        }
        let Tree { nodes, packets, counts, .. } = self;
        let node = &mut nodes[place as usize];
        let kind = node.kind;
        let Some(packet) = packets.pop(&mut node.list) else {
            node.list = List::EMPTY;
            self.finish(place, None, tally);
            return None;
        };
        let delay = self.now.since(packet.since);
        let counts = &mut counts[kind as usize];
        counts.count_taken(packet.length);
        counts.count_sent(packet.length, delay);
        let first = self.finish_sent(place, kind, packet.length, delay, tally);
        if self.is_large {
            match first {
                NONE => self.prefetch_next(),
                first => self.look_ahead(place, first),
            }
            // The host reads the packet next.
            packet.frame.bytes().first().into_iter().for_each(wire::prefetch::read);
        }
        Some(packet.frame)
    }

    /// Counts a packet that has left its leaf with its subscriber, and charges it. Returns the first node of the subscriber's instance;
    /// [`NONE`] where there are no instances.
    #[inline(always)]
    fn finish_sent<T: Tally>(
        &mut self,
        place: u32,
        kind: u32,
        length: u32,
        delay: Nanos,
        tally: &mut T,
    ) -> u32 {
        let group = self.kinds[kind as usize].group;
        let instances = self.instances.get_mut(group as usize);
        let first = instances.map_or(NONE, |instances| instances.count_sent(place, length, delay));
        self.finish(place, Some(length), tally);
        first
    }

    /// [`Tree::send`] from a leaf with queues inside, or with active queue management.
    #[inline(never)]
    fn send_managed<T: Tally>(&mut self, place: u32, work: Work, tally: &mut T) -> Option<Frame> {
        // The state of the queue's management, 32 bytes: delay, target and bounds; of flows a turn, 12.
        tally.instructions(if work == Work::Divided { 32 } else { 20 });
        tally.read(Region::Queue, self.tallied_node(place), 32);
        tally.write(Region::Queue, self.tallied_node(place), 32);
        let now = self.now;
        let Tree { settings, kinds, nodes, inners, aqms, packets, counts, random, .. } = self;
        let node = &mut nodes[place as usize];
        let NodeKind::Leaf(leaf) = &settings.nodes[node.kind as usize].kind else { return None };
        let popped = if work == Work::Divided {
            let popped =
                inners[node.inside as usize].pop(&kinds[node.kind as usize], leaf, now, packets, random);
            if let Some((packet, _)) = &popped {
                node.list.packets -= 1;
                node.list.bytes -= u64::from(packet.length);
            }
            popped
        } else {
            packets.pop(&mut node.list).map(|packet| {
                let decision = aqms[node.inside as usize].departs(leaf, packet.since, &node.list, now);
                (packet, decision)
            })
        };
        let Some((mut packet, decision)) = popped else {
            node.list = List::EMPTY;
            self.finish(place, None, tally);
            return None;
        };
        let counts = counts[node.kind as usize].of(&packet.frame);
        counts.count_taken(packet.length);
        if !counts.lets_go(decision, leaf, &mut packet.frame) {
            self.subscriber(place).into_iter().for_each(|counts| counts.early += 1);
            self.finish(place, None, tally);
            self.lose(packet.frame, Reason::EarlyDrop);
            return None;
        }
        let (kind, delay) = (node.kind, now.since(packet.since));
        counts.count_sent(packet.length, delay);
        self.finish_sent(place, kind, packet.length, delay, tally);
        Some(packet.frame)
    }

    /// Asks for what departures to come need, from a tree without instances: the frame of the next packet, if nothing comes between, and
    /// the entry of the one behind.
    #[inline(never)]
    fn prefetch_next(&self) {
        let Tree { nodes, rings, packets, .. } = self;
        let mut place = self.turn;
        let leaf = loop {
            let node = &nodes[place as usize];
            if node.work != Work::Drr {
                break node;
            }
            if node.sharing == 0 {
                return;
            }
            place = rings[node.inside as usize].first(node.sharing);
        };
        packets.prefetch(&leaf.list);
        if leaf.list.packets > 1 {
            return packets.prefetch_behind(&leaf.list);
        }
        let mut other = behind(place, nodes, rings);
        while let Some(node) = nodes.get(other as usize) {
            if node.work != Work::Drr {
                return packets.prefetch_entry(&node.list);
            }
            if node.sharing == 0 {
                return;
            }
            other = rings[node.inside as usize].first(node.sharing);
        }
    }

    /// Asks for what departures to come need, from a leaf and from the instances whose turns come next; `first` is the first node of the
    /// leaf's. Memory beyond the second cache is further away than one departure takes.
    #[inline(always)]
    fn look_ahead(&mut self, leaf: u32, first: u32) {
        let list = &self.nodes[leaf as usize].list;
        if list.packets != 0 {
            self.packets.prefetch(list);
        }
        if self.ahead != first {
            self.ahead = first;
            self.prefetch_instances(leaf, first);
        }
    }

    /// Asks, when the turn of an instance begins, for the frames of the next one, for the entries of the one behind, and for the nodes of
    /// the third: each is found in what was asked for a turn before.
    #[inline(never)]
    fn prefetch_instances(&self, leaf: u32, first: u32) {
        let Tree { nodes, kinds, rings, instances, packets, .. } = self;
        let group = kinds[nodes[leaf as usize].kind as usize].group;
        let Some(instances) = instances.get(group as usize) else { return };
        let behind = |place: u32| nodes.get(place as usize).map_or(NONE, |node| node.next);
        let inside = |place: u32| nodes.iter().skip(place as usize).take(AHEAD.min(instances.size as usize));
        let one = behind(first);
        let two = behind(one);
        let three = behind(two);
        inside(one).for_each(|node| {
            packets.prefetch(&node.list);
            packets.prefetch_behind(&node.list);
        });
        instances.prefetch_counts(one);
        inside(two).for_each(|node| packets.prefetch_entry(&node.list));
        inside(three).for_each(wire::prefetch::read);
        rings.get(instances.rings_of(three) as usize).into_iter().for_each(wire::prefetch::read);
    }

    /// Nothing to send after all.
    #[cold]
    fn rest(&mut self) -> Option<Frame> {
        self.is_ready = false;
        None
    }

    /// Gives the first children of a node turns until one has made up for its debt.
    #[cold]
    fn top_up(&mut self, parent: u32) {
        let node = &self.nodes[parent as usize];
        let (rings, taken) = (&mut self.rings[node.inside as usize], node.sharing);
        loop {
            let child = &mut self.nodes[rings.first(taken) as usize];
            if child.deficit > 0 {
                return;
            }
            child.deficit = child.deficit.saturating_add(self.kinds[child.kind as usize].quantum as i32);
            let ring = child.ring;
            rings.rotate(ring, &self.nodes);
        }
    }

    /// Charges the nodes from a leaf up to the root with what the leaf has sent, and ends their turns.
    #[inline(always)]
    fn finish<T: Tally>(&mut self, leaf: u32, sent: Option<u32>, tally: &mut T) {
        let (mut place, mut turn) = (leaf, leaf);
        loop {
            let Tree { nodes, kinds, rings, .. } = &mut *self;
            let (nodes, kinds) = (nodes.entries_mut(), kinds.as_slice());
            let account = loop {
                // Node by place and bound, 6; bytes with overhead, 6; deficit, 5; anything left to send, 7. The deficit is written, with the
                // leaf's list there.
                tally.instructions(24);
                tally.execute(Op::Branch, 6);
                let node = &mut nodes[place as usize];
                if place != leaf && node.account != Account::Root {
                    tally.write(Region::Queue, place as usize * DESCRIPTOR as usize, 4);
                }
                if node.account != Account::Deficit {
                    break node.account;
                }
                let kind = &kinds[node.kind as usize];
                // Of 32 bits, as a turn is not begun without any.
                node.deficit -= sent.map_or(0, |length| kind.counted(length)) as i32;
                let (deficit, parent, is_active) = (node.deficit, node.parent, node.is_active());
                if (deficit <= 0) | !is_active {
                    let rings = &mut rings[nodes[parent as usize].inside as usize];
                    end_turn(place, kind, Charged::default(), rings, nodes, tally);
                    turn = parent;
                }
                place = parent;
            };
            let node = &nodes[place as usize];
            let parent = node.parent;
            if account == Account::Root {
                self.is_ready = node.is_active();
                break;
            }
            if !self.finish_shaped(place, sent, tally) {
                break;
            }
            (turn, place) = (parent, parent);
        }
        self.turn = turn;
    }

    /// [`Tree::finish`] for a node that has a shaper, or is served by tags. False for the root.
    #[inline(never)]
    fn finish_shaped<T: Tally>(&mut self, place: u32, sent: Option<u32>, tally: &mut T) -> bool {
        let settings = self.nodes[place as usize].kind;
        let sent = sent.map(|length| self.kinds[settings as usize].counted(length));
        let charged = self.charge(place, sent, tally);
        let bytes = sent.unwrap_or(0);
        let now = self.now;
        let Tree { nodes, kinds, tagged, .. } = self;
        let node = &mut nodes[place as usize];
        let kind = &kinds[node.kind as usize];
        let stays = node.is_active() && !node.is_throttled;
        match kind.above {
            Above::Nothing => {
                self.is_ready = stays;
                return false;
            }
            Above::Drr => {
                // What is guaranteed takes nothing from the turn among those that share.
                if !charged.is_guaranteed {
                    node.deficit = node.deficit.saturating_sub(bytes as i32);
                }
                if !stays || node.deficit <= 0 || charged.is_guaranteed {
                    self.end_turn(place, charged, tally);
                }
            }
            Above::Wfq => {
                // A heap of some children: out and in, with two comparisons each level.
                tally.instructions(40);
                let parent = node.parent;
                let tagged = &mut tagged[nodes[parent as usize].inside as usize];
                tagged.take(kind.priority, bytes, kind.weight, nodes, now);
                if stays {
                    tagged.insert(place, kind.priority, nodes);
                }
            }
        }
        true
    }

    /// Ends the turn of a node with a shaper, which has used it up, or has nothing to send now, or was served within its guarantee.
    #[inline]
    fn end_turn<T: Tally>(&mut self, place: u32, charged: Charged, tally: &mut T) {
        let Tree { nodes, kinds, rings, shapers, .. } = self;
        let Node { parent, shaper, kind, .. } = nodes[place as usize];
        let stays = nodes[place as usize].is_active() && !nodes[place as usize].is_throttled;
        let (kind, inside) = (&kinds[kind as usize], nodes[parent as usize].inside);
        let rings = &mut rings[inside as usize];
        end_turn(place, kind, charged, rings, nodes, tally);
        if charged.is_guaranteed && (!stays || charged.is_past) {
            if rings.remove_guaranteed(shaper, kind.priority, shapers) {
                nodes[parent as usize].guaranteed &= !(1 << kind.priority);
            }
            self.await_guarantee(place, tally);
        } else if charged.is_guaranteed {
            rings.rotate_guaranteed(kind.priority, shapers);
        }
    }

    /// Charges a node's shaper with what was sent.
    #[inline(never)]
    fn charge<T: Tally>(&mut self, place: u32, sent: Option<u32>, tally: &mut T) -> Charged {
        let now = self.now;
        let node = &mut self.nodes[place as usize];
        let paces = &self.paces[node.kind as usize];
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return Charged::default() };
        let is_guaranteed = shaping.is_guaranteed;
        let Some(bytes) = sent else { return Charged { is_guaranteed, is_past: false } };
        // Each rate, of 64 bits: idle or not, 10; two products, 16 and 16; sums with their carries, 20; tolerance and comparison, 18.
        // 16 bytes of state.
        tally.instructions(64);
        tally.execute(Op::Multiply, 16);
        tally.read(Region::Queue, node.shaper as usize * 64, 32);
        tally.write(Region::Queue, node.shaper as usize * 64, 16);
        if let Some(pace) = &paces.ceiling {
            pace.charge(&mut shaping.ceiling, now, bytes);
            let ready = pace.ready(&shaping.ceiling);
            if ready > now && !node.is_throttled {
                node.is_throttled = true;
                tally.instructions(TIMER);
                tally.write(Region::Timer, node.shaper as usize * 32, 16);
                self.wheel.set(node.shaper * 2, ready);
            }
        }
        let is_past = match &paces.guarantee {
            // What is borrowed is not charged.
            Some(pace) if is_guaranteed => {
                pace.charge(&mut shaping.guarantee, now, bytes);
                pace.ready(&shaping.guarantee) > now
            }
            _ => false,
        };
        Charged { is_guaranteed, is_past }
    }

    /// Sets the timer for a node's guarantee, where the node is past it.
    fn await_guarantee<T: Tally>(&mut self, place: u32, tally: &mut T) {
        let node = &self.nodes[place as usize];
        let Some(pace) = &self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return };
        let ready = pace.ready(&shaping.guarantee);
        if ready > self.now && !shaping.is_guarantee_awaited {
            shaping.is_guarantee_awaited = true;
            tally.instructions(TIMER);
            tally.write(Region::Timer, node.shaper as usize * 32, 16);
            self.wheel.set(node.shaper * 2 + 1, ready);
        }
    }

    /// Offers a node, which has something to send now, to its parent, and so on.
    #[inline]
    pub(super) fn activate<T: Tally>(&mut self, leaf: u32, tally: &mut T) {
        let mut place = leaf;
        loop {
            let node = &mut self.nodes[place as usize];
            // Node and parent by place and bound, 10; in a ring or held back, 6; deficit, 6; the parent's ring and its neighbours, 18.
            tally.instructions(40);
            if node.is_throttled || node.ring != NO_RING {
                return;
            }
            let (kind, parent) = (&self.kinds[node.kind as usize], node.parent);
            if kind.above == Above::Nothing {
                self.is_ready = true;
                return;
            }
            self.turn = ROOT;
            // Who was held back by a ceiling has what was left of a turn, at its place.
            let at = if node.deficit > 0 { At::Former } else { At::End };
            if at == At::End {
                node.deficit = node.deficit.saturating_add(kind.quantum as i32);
            }
            let above = &self.nodes[parent as usize];
            let (was_active, inside) = (above.is_active(), above.inside);
            // The parent's bits and the head of a ring are written, and of the node its place in the ring, its deficit and bits.
            tally.read(Region::Queue, parent as usize * DESCRIPTOR as usize, DESCRIPTOR);
            tally.write(Region::Queue, parent as usize * DESCRIPTOR as usize, 8);
            tally.write(Region::Queue, place as usize * DESCRIPTOR as usize, 16);
            if above.sharing >> (kind.priority % PRIORITIES as u8) & 1 == 1 {
                tell_neighbours(&self.nodes[place as usize], tally);
            }
            if kind.above == Above::Wfq {
                let Tree { tagged, nodes, service, now, .. } = self;
                tagged[inside as usize].offer(place, kind.priority, nodes, service, *now);
            } else {
                self.rings[inside as usize].insert(place, kind.priority, at, &mut self.nodes);
                if self.nodes[place as usize].shaper != NONE {
                    self.offer_guarantee(place, tally);
                }
            }
            if was_active {
                return;
            }
            place = parent;
        }
    }

    /// Puts a node that has something to send among those within their guarantees, now or later.
    fn offer_guarantee<T: Tally>(&mut self, place: u32, tally: &mut T) {
        let node = &self.nodes[place as usize];
        let Some(pace) = &self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get(node.shaper as usize) else { return };
        if pace.ready(&shaping.guarantee) > self.now {
            return self.await_guarantee(place, tally);
        }
        let (shaper, ring, parent) = (node.shaper, node.ring, node.parent);
        let Some(above) = self.nodes.get_mut(parent as usize) else { return };
        self.turn = ROOT;
        above.guaranteed |= 1 << ring;
        self.rings[above.inside as usize].insert_guaranteed(shaper, ring, &mut self.shapers);
    }

    /// Takes the effects of all timers that are due.
    pub(super) fn pass_timers<T: Tally>(&mut self, tally: &mut T) {
        while let Some(timer) = self.wheel.take(self.now) {
            tally.instructions(TIMER);
            tally.read(Region::Timer, timer as usize * 16, 16);
            let Some(shaping) = self.shapers.get_mut((timer / 2) as usize) else { continue };
            let place = shaping.node;
            let node = &mut self.nodes[place as usize];
            if timer % 2 == 0 {
                node.is_throttled = false;
                if node.is_active() {
                    self.activate(place, tally);
                } else {
                    node.deficit = node.deficit.min(0);
                }
                continue;
            }
            shaping.is_guarantee_awaited = false;
            if node.ring != NO_RING && !shaping.is_guaranteed {
                self.offer_guarantee(place, tally);
            }
        }
    }
}

/// Ends the turn of a node among those that share: it has used the turn up, or does not stay, as it has nothing to send now.
#[inline(always)]
fn end_turn<T: Tally>(
    place: u32,
    kind: &Kind,
    charged: Charged,
    rings: &mut Rings,
    nodes: &mut [Node],
    tally: &mut T,
) {
    // Nodes by place and bound, 12; quantum, head of the ring and neighbours, 14. The parent's bits and the head are written.
    tally.instructions(26);
    let node = &mut nodes[place as usize];
    let is_active = node.is_active();
    tally.write(Region::Queue, node.parent as usize * DESCRIPTOR as usize, 8);
    if !is_active || node.is_throttled {
        if !is_active {
            // A debt stays: who comes back does not gain by having been away.
            node.deficit = node.deficit.min(0);
        }
        if node.next != place {
            tell_neighbours(node, tally);
        }
        rings.remove(place, nodes);
    } else if node.deficit <= 0 && !charged.is_guaranteed {
        // What is guaranteed is no turn among those that share.
        node.deficit = node.deficit.saturating_add(kind.quantum as i32);
        rings.rotate(kind.priority, nodes);
    }
}

/// Tells of the links of a node's neighbours in its ring, which are written.
#[inline(always)]
fn tell_neighbours<T: Tally>(node: &Node, tally: &mut T) {
    tally.write(Region::Queue, node.next as usize * DESCRIPTOR as usize, 4);
    tally.write(Region::Queue, node.previous as usize * DESCRIPTOR as usize, 4);
}

/// Node whose turn most likely comes after that of a leaf with one packet: its neighbour, the first of a later priority, or its parent's
/// neighbour.
#[inline(always)]
fn behind(leaf: u32, nodes: &[Node], rings: &[Rings]) -> u32 {
    let node = &nodes[leaf as usize];
    if node.next != leaf {
        return node.next;
    }
    let Some(parent) = nodes.get(node.parent as usize).filter(|parent| parent.work == Work::Drr) else {
        return NONE;
    };
    let later = parent.sharing & (parent.sharing - 1);
    if later == 0 { parent.next } else { rings[parent.inside as usize].first(later) }
}

/// Nodes of an instance that are asked for ahead.
const AHEAD: usize = 32;

/// Setting of a timer, or its going off: time to a slot's number, of 64 bits, 20; level and slot, 16; its list and the slot's bit, 24; the next
/// slot that is set, 24; its node by place and bound, 16.
const TIMER: u32 = 100;
