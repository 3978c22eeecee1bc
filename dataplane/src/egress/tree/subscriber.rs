//! Subscribers of a tree: whose instances its nodes are, and what is told of them.

use std::ops::Range;
use std::sync::Arc;

use policy::model::MeterScope;
use wire::PortId;

use super::super::TreeSide;
use super::super::instance::Instances;
use super::super::subscriber::{SubscriberCounts, SubscriberReport};
use super::Tree;

impl Tree {
    /// Counters of the subscriber that a node belongs to.
    #[inline]
    pub(super) fn subscriber(&mut self, place: u32) -> Option<&mut SubscriberCounts> {
        self.instances_of(place)?.counts_of(place)
    }

    /// Instances that a node is in.
    #[inline(always)]
    pub(super) fn instances_of(&mut self, place: u32) -> Option<&mut Instances> {
        let kind = self.nodes.get(place as usize)?.kind;
        let group = self.kinds.get(kind as usize)?.group;
        self.instances.get_mut(group as usize)
    }

    /// Number of instances that have been made, and of those that are shared.
    pub(crate) fn made(&self) -> u32 {
        self.instances.iter().map(|instances| instances.made() as u32 + 1).sum()
    }

    /// Reports the instances of those numbers, over all nodes that have instances. One that had no packet is left out.
    pub(crate) fn subscribers_among(
        &self,
        numbers: Range<u32>,
        port: PortId,
        side: TreeSide,
        tell: &mut impl FnMut(SubscriberReport),
    ) {
        let mut before = 0;
        for instances in &self.instances {
            let made = instances.made() as u32;
            let per = self.settings.nodes.get(instances.kind as usize).map(|node| node.per);
            let is_address = matches!(per, Some(MeterScope::Source(..) | MeterScope::Destination(..)));
            let here = numbers.start.max(before)..numbers.end.min(before + made + 1);
            for number in here.map(|number| number - before) {
                // The shared one is behind all that there can be.
                let number = if number == made { instances.most } else { number };
                let nodes = self.nodes.iter().skip(instances.place(number) as usize);
                let nodes = nodes.take(instances.size as usize);
                let (packets, bytes) = nodes.fold((0, 0), |(packets, bytes), node| {
                    (packets + u64::from(node.list.packets), bytes + node.list.bytes)
                });
                let counts = instances.counts(number);
                if packets + counts.sent + u64::from(counts.full) + u64::from(counts.early) == 0 {
                    continue;
                }
                tell(SubscriberReport {
                    port,
                    side,
                    settings: Arc::clone(&self.settings),
                    node: instances.kind,
                    number,
                    address: instances.address(number).filter(|_| is_address),
                    packets,
                    bytes,
                    counts,
                    delays: instances.delays(number),
                });
            }
            before += made + 1;
        }
    }
}
