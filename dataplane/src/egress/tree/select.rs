//! Selection of the next packet, and what it charges on the way from its leaf to the root.

use std::sync::Arc;

use super::super::node::NO_RING;
use super::super::packets::{List, NONE, Waiting};
use super::super::shaper::counted;
use super::Tree;
use crate::tables::NodeKind;
use crate::verdict::Reason;

impl Tree {
    /// Takes the packet whose turn it is out of its leaf. `None` if that was dropped.
    #[inline]
    pub(super) fn send(&mut self) -> Option<Waiting> {
        let settings = Arc::clone(&self.settings);
        let mut place = 0;
        let leaf = loop {
            let node = self.nodes[place as usize];
            match &settings.nodes[node.kind as usize].kind {
                NodeKind::Leaf(leaf) => break leaf,
                NodeKind::Wfq => match self.tagged[node.inside as usize].first() {
                    Some(child) => place = child,
                    None => return self.rest(),
                },
                NodeKind::Drr => {
                    let rings = &mut self.rings[node.inside as usize];
                    if let Some(shaper) = rings.first_guaranteed() {
                        place = self.shapers[shaper as usize].node;
                        continue;
                    }
                    place = loop {
                        let Some(child) = rings.first() else { return self.rest() };
                        let node = &mut self.nodes[child as usize];
                        if node.deficit > 0 {
                            break child;
                        }
                        node.deficit += settings.nodes[node.kind as usize].quantum as i32;
                        let ring = node.ring;
                        rings.rotate(ring, &self.nodes);
                    };
                }
            }
        };
        let (now, node) = (self.now, &mut self.nodes[place as usize]);
        let popped = if leaf.fq.is_some() {
            let popped = self.flows[node.inside as usize].pop(leaf, now, &mut self.packets);
            if let Some((packet, _)) = &popped {
                node.list.packets -= 1;
                node.list.bytes -= u64::from(packet.length);
            }
            popped
        } else {
            self.packets.pop(&mut node.list).map(|packet| {
                let aqm = &mut self.aqms[node.inside as usize];
                let decision = aqm.departs(leaf, packet.since, &node.list, now);
                (packet, decision)
            })
        };
        let Some((mut packet, decision)) = popped else {
            node.list = List::EMPTY;
            self.finish(place, None);
            return None;
        };
        let counts = &mut self.counts[node.kind as usize];
        counts.packets -= 1;
        counts.bytes -= u64::from(packet.length);
        if !counts.lets_go(decision, leaf, &mut packet.frame) {
            self.finish(place, None);
            self.lost.push_back((packet.frame, Reason::EarlyDrop, now));
            return None;
        }
        counts.count_sent(packet.length, now.since(packet.since));
        self.finish(place, Some(packet.length));
        Some(packet)
    }

    /// Nothing to send after all.
    #[cold]
    fn rest(&mut self) -> Option<Waiting> {
        self.is_ready = false;
        None
    }

    /// Charges the nodes from a leaf up to the root with what the leaf has sent, and ends their turns.
    #[inline]
    fn finish(&mut self, leaf: u32, sent: Option<u32>) {
        let mut place = leaf;
        loop {
            let node = self.nodes[place as usize];
            let settings = &self.settings.nodes[node.kind as usize];
            let bytes = sent.map_or(0, |length| counted(settings.overhead, length));
            let is_guaranteed =
                self.shapers.get(node.shaper as usize).is_some_and(|shaping| shaping.is_guaranteed);
            let mut is_past_guarantee = false;
            if node.shaper != NONE && sent.is_some() {
                is_past_guarantee = self.charge(place, bytes);
            }
            let is_throttled = self.nodes[place as usize].is_throttled;
            // Of a leaf the list has changed since.
            let stays = !is_throttled && self.is_active(&self.nodes[place as usize]);
            let Some(parent) = self.nodes.get(node.parent as usize).copied() else {
                self.is_ready = stays;
                return;
            };
            let settings = &self.settings.nodes[node.kind as usize];
            let priority = settings.priority;
            if self.kind(&parent) == &NodeKind::Wfq {
                let tagged = &mut self.tagged[parent.inside as usize];
                tagged.take(node.ring, bytes, settings.weight, &mut self.nodes);
                if stays {
                    tagged.insert(place, priority, &mut self.nodes);
                }
                place = node.parent;
                continue;
            }
            let rings = &mut self.rings[parent.inside as usize];
            // What is guaranteed takes nothing from the turn among those that share.
            let charged = if is_guaranteed { 0 } else { bytes.min(1 << 24) as i32 };
            let deficit = node.deficit.saturating_sub(charged);
            let is_over = deficit <= 0;
            let quantum = if is_over && stays { settings.quantum as i32 } else { 0 };
            self.nodes[place as usize].deficit = deficit.saturating_add(quantum);
            if !stays {
                rings.remove(place, &mut self.nodes);
                // A debt stays: who comes back does not gain by having been away.
                self.nodes[place as usize].deficit = deficit.min(0);
            } else if is_over && !is_guaranteed {
                rings.rotate(priority, &self.nodes);
            }
            if is_guaranteed && (!stays || is_past_guarantee) {
                rings.remove_guaranteed(node.shaper, priority, &mut self.shapers);
                self.await_guarantee(place);
            } else if is_guaranteed {
                rings.rotate_guaranteed(priority, &self.shapers);
            }
            place = node.parent;
        }
    }

    /// Charges a node's shaper. True if the node was within its guarantee, and is past it now.
    #[inline(never)]
    fn charge(&mut self, place: u32, bytes: u64) -> bool {
        let now = self.now;
        let node = &mut self.nodes[place as usize];
        let paces = self.paces[node.kind as usize];
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return false };
        if let Some(pace) = paces.ceiling {
            pace.charge(&mut shaping.ceiling, now, bytes);
            let ready = pace.ready(&shaping.ceiling);
            if ready > now && !node.is_throttled {
                node.is_throttled = true;
                self.wheel.set(node.shaper * 2, ready);
            }
        }
        match paces.guarantee {
            // What is borrowed is not charged.
            Some(pace) if shaping.is_guaranteed => {
                pace.charge(&mut shaping.guarantee, now, bytes);
                pace.ready(&shaping.guarantee) > now
            }
            _ => false,
        }
    }

    /// Sets the timer for a node's guarantee, where the node is past it.
    fn await_guarantee(&mut self, place: u32) {
        let node = self.nodes[place as usize];
        let Some(pace) = self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get_mut(node.shaper as usize) else { return };
        let ready = pace.ready(&shaping.guarantee);
        if ready > self.now && !shaping.is_guarantee_awaited {
            shaping.is_guarantee_awaited = true;
            self.wheel.set(node.shaper * 2 + 1, ready);
        }
    }

    /// Offers a node, which has something to send now, to its parent, and so on.
    #[inline]
    pub(super) fn activate(&mut self, leaf: u32) {
        let mut place = leaf;
        loop {
            let node = self.nodes[place as usize];
            if node.is_throttled || node.ring != NO_RING {
                return;
            }
            let Some(parent) = self.nodes.get(node.parent as usize).copied() else {
                self.is_ready = true;
                return;
            };
            let was_active = self.is_active(&parent);
            let settings = &self.settings.nodes[node.kind as usize];
            let (priority, quantum) = (settings.priority, settings.quantum as i32);
            if self.kind(&parent) == &NodeKind::Wfq {
                self.tagged[parent.inside as usize].insert(place, priority, &mut self.nodes);
            } else {
                self.nodes[place as usize].deficit = node.deficit.min(0).saturating_add(quantum);
                self.rings[parent.inside as usize].insert(place, priority, &mut self.nodes);
                self.offer_guarantee(place);
            }
            if was_active {
                return;
            }
            place = node.parent;
        }
    }

    /// Puts a node that has something to send among those within their guarantees, now or later.
    fn offer_guarantee(&mut self, place: u32) {
        let node = self.nodes[place as usize];
        let Some(pace) = self.paces[node.kind as usize].guarantee else { return };
        let Some(shaping) = self.shapers.get(node.shaper as usize) else { return };
        if pace.ready(&shaping.guarantee) > self.now {
            return self.await_guarantee(place);
        }
        let Some(parent) = self.nodes.get(node.parent as usize) else { return };
        let rings = &mut self.rings[parent.inside as usize];
        rings.insert_guaranteed(node.shaper, node.ring, &mut self.shapers);
    }

    /// Takes the effects of all timers that are due.
    pub(super) fn pass_timers(&mut self) {
        while let Some(timer) = self.wheel.take(self.now) {
            let Some(shaping) = self.shapers.get_mut((timer / 2) as usize) else { continue };
            let place = shaping.node;
            let node = self.nodes[place as usize];
            if timer % 2 == 0 {
                self.nodes[place as usize].is_throttled = false;
                if self.is_active(&node) {
                    self.activate(place);
                }
                continue;
            }
            shaping.is_guarantee_awaited = false;
            if node.ring != NO_RING && !shaping.is_guaranteed {
                self.offer_guarantee(place);
            }
        }
    }
}
