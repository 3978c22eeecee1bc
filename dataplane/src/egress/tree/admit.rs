//! Arrivals: the leaf of a packet, and its place there.

use std::sync::Arc;

use super::super::dropper::Decision;
use super::super::ends::Ends;
use super::super::fq::FlowHash;
use super::super::packets::{NONE, Waiting};
use super::{Arrival, Tree};
use crate::stage::header;
use crate::tables::NodeKind;
use crate::verdict::Reason;

impl Tree {
    /// Queues an arrival in its leaf, or drops it.
    pub(super) fn admit(&mut self, arrival: Arrival) {
        let Arrival { mut frame, at: _, leaf, colour, ends } = arrival;
        let now = self.now;
        let place = self.locate(leaf, &ends);
        let length = header::ip_length(&frame);
        let settings = Arc::clone(&self.settings);
        let Some((node, NodeKind::Leaf(leaf))) =
            self.nodes.get_mut(place as usize).map(|node| (node, &settings.nodes[leaf as usize].kind))
        else {
            return self.lost.push_back((frame, Reason::QueueFull, now));
        };
        let hash = leaf.fq.map_or(FlowHash::default(), |fq| ends.hash(fq.isolate, self.seed));
        let counts = &mut self.counts[node.kind as usize];
        let mut over =
            node.list.packets >= leaf.limit || node.list.bytes + u64::from(length) > leaf.limit_bytes;
        if leaf.fq.is_some() {
            let flows = &mut self.flows[node.inside as usize];
            while over || self.packets.is_full() {
                // The longest flow makes room (RFC 8290, section 4.1).
                let Some(longest) = flows.pop_longest(&mut self.packets) else { break };
                node.list.packets -= 1;
                node.list.bytes -= u64::from(longest.length);
                counts.full += 1;
                self.lost.push_back((longest.frame, Reason::QueueFull, now));
                over = node.list.packets >= leaf.limit
                    || node.list.packets > 0 && node.list.bytes + u64::from(length) > leaf.limit_bytes;
            }
        }
        if over || self.packets.is_full() {
            counts.full += 1;
            return self.lost.push_back((frame, Reason::QueueFull, now));
        }
        let decision = if leaf.fq.is_some() {
            let flow = self.flows[node.inside as usize].of(hash);
            flow.map_or(Decision::Keep, |(aqm, list)| aqm.arrives(leaf, list, colour, now, &mut self.random))
        } else {
            self.aqms[node.inside as usize].arrives(leaf, &node.list, colour, now, &mut self.random)
        };
        if !counts.lets_go(decision, leaf, &mut frame) {
            return self.lost.push_back((frame, Reason::EarlyDrop, now));
        }
        let was_empty = node.list.packets == 0;
        let packet = Waiting { frame, length, since: now };
        let pushed = if leaf.fq.is_some() {
            let pushed = self.flows[node.inside as usize].push(leaf, hash, packet, &mut self.packets);
            node.list.packets += 1;
            node.list.bytes += u64::from(length);
            pushed
        } else {
            self.packets.push(&mut node.list, packet)
        };
        debug_assert!(pushed.is_ok(), "room was checked");
        counts.packets += 1;
        counts.bytes += u64::from(length);
        if was_empty {
            self.activate(place);
        }
    }

    /// Place of the leaf for an arrival: of its subscriber, where there are instances.
    #[inline]
    fn locate(&mut self, leaf: u32, ends: &Ends) -> u32 {
        let Some(within) = self.settings.nodes.get(leaf as usize).map(|node| node.within) else {
            return NONE;
        };
        let Some(per) = self.settings.nodes.get(within as usize).map(|node| node.per) else { return leaf };
        let Tree { instances, nodes, seed, .. } = self;
        let Some(instances) = instances.iter_mut().find(|instances| instances.kind == within) else {
            return leaf;
        };
        let size = instances.size as usize;
        let (key, hash) = ends.subscriber(per, *seed);
        let first = instances.find(&key, hash, |first| {
            let block = nodes.get(first as usize..first as usize + size).unwrap_or_default();
            block.iter().all(|node| node.list.packets == 0 && !node.is_throttled)
        });
        first + (leaf - within)
    }
}
