//! Rates of queues, and sizes that packets must fit in.

use config::quantity::bit_rate_text;

use super::{Node, Trees};
use crate::diagnostic::Code;
use crate::model::{Meter, MeterScope, Overhead};
use crate::validate::Validator;

/// Rate that the packets of a node share at most.
#[derive(Clone)]
struct Ceiling {
    rate: u64,
    /// Owner of the rate: a queue, or the interface.
    of: String,
}

impl Validator<'_> {
    /// Reports rates and guarantees that what is above them cannot carry.
    pub(super) fn rates_of_queues(&mut self, trees: &Trees) {
        let mut ceilings: Vec<Option<Ceiling>> = vec![None; trees.nodes.len()];
        for index in trees.order.iter().copied() {
            let node = &trees.nodes[index];
            let above = match node.parent {
                Some(parent) => ceilings[parent].clone(),
                None => self.link_of(node),
            };
            let own = node.queue.rate.map(|rate| Ceiling { rate: rate.0, of: node.queue.name.clone() });
            self.within(node, "rate", own.as_ref().map(|own| own.rate), above.as_ref());
            let lowest = match (own, above) {
                (Some(own), Some(above)) if own.rate > above.rate => Some(above),
                (own, above) => own.or(above),
            };
            let guarantee = node.queue.guarantee.map(|guarantee| guarantee.0);
            self.within(node, "guarantee", guarantee, lowest.as_ref());
            self.guarantees_in(trees, node, lowest.as_ref());
            ceilings[index] = lowest;
        }
    }

    /// Rate of the slowest interface that the root of a tree is on.
    fn link_of(&self, root: &Node) -> Option<Ceiling> {
        let links = root.queue.on.iter().filter_map(|name| {
            let rate = self.policy.interface(name)?.rate?.0;
            Some(Ceiling { rate, of: name.clone() })
        });
        links.min_by_key(|link| link.rate)
    }

    fn within(&mut self, node: &Node, key: &str, rate: Option<u64>, ceiling: Option<&Ceiling>) {
        let (Some(rate), Some(ceiling)) = (rate, ceiling) else { return };
        if rate > ceiling.rate {
            let most = bit_rate_text(ceiling.rate);
            let message = format!(
                "{} is a rate that \"{}\" cannot carry: it has {most}",
                bit_rate_text(rate),
                ceiling.of
            );
            let hint = format!("write {most} at most");
            self.wrong(Code::OversubscribedQueue, node.item, key, message, hint);
        }
    }

    /// Reports children of a node whose guarantees, each by itself possible, are too much together.
    fn guarantees_in(&mut self, trees: &Trees, node: &Node, ceiling: Option<&Ceiling>) {
        let own = node.queue.guarantee.map(|rate| Ceiling { rate: rate.0, of: node.queue.name.clone() });
        let Some(most) = own.as_ref().or(ceiling) else { return };
        // Nobody knows how many instances there will be.
        let children = node.children.iter().map(|child| &trees.nodes[*child].queue);
        let guarantees: Vec<u64> = children
            .filter(|child| child.per == MeterScope::All)
            .filter_map(|child| child.guarantee.map(|rate| rate.0))
            .collect();
        let sum = guarantees.iter().fold(0, |sum: u64, rate| sum.saturating_add(*rate));
        // A guarantee above the ceiling is reported at its own place.
        let is_alone = guarantees.iter().any(|rate| ceiling.is_some_and(|ceiling| *rate > ceiling.rate));
        if sum > most.rate && !is_alone {
            let message = format!(
                "oversubscribed guarantees: those in \"{}\" are {} together, and \"{}\" has {}",
                node.queue.name,
                bit_rate_text(sum),
                most.of,
                bit_rate_text(most.rate)
            );
            let hint = format!("lower them to {} together", bit_rate_text(most.rate));
            self.wrong(Code::OversubscribedQueue, node.item, "name", message, hint);
        }
    }

    /// Reports bursts and bounds without room for a packet.
    pub(super) fn sizes_of_queues(&mut self, trees: &Trees) {
        let mtus = self.policy.interfaces.iter().map(|interface| interface.mtu);
        let mtu = u64::from(mtus.max().unwrap_or(0));
        let mut overheads = vec![Overhead::ETHERNET; trees.nodes.len()];
        for index in trees.order.iter().copied() {
            let node = &trees.nodes[index];
            let above = node.parent.map_or(Overhead::ETHERNET, |parent| overheads[parent]);
            overheads[index] = node.queue.overhead.unwrap_or(above);
            let longest = overheads[index].count(mtu);
            for (key, what, size) in
                [("burst", "a burst", node.queue.burst), ("limit-bytes", "a limit", node.queue.limit_bytes)]
            {
                let Some(size) = size.map(|size| size.0) else { continue };
                if size < longest {
                    let message = format!("{what} of {size} bytes has no room for a packet of {longest}");
                    let hint = format!(
                        "write {longest} at least: the largest MTU, with the overhead that is counted"
                    );
                    self.wrong(Code::BadQueue, node.item, key, message, hint);
                } else if size > Meter::MOST_BURST {
                    let message = format!("{what} of {size} bytes is more than {}", Meter::MOST_BURST);
                    self.wrong(Code::BadQueue, node.item, key, message, "write a smaller one");
                }
            }
        }
    }
}
