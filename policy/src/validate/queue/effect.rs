//! Queues that are sound, and yet do less than they seem to.

use std::collections::HashSet;

use super::{Node, Trees};
use crate::diagnostic::Code;
use crate::expand::Origin;
use crate::lines::Item;
use crate::model::{Dropper, Interface, Isolation, MeterScope, Scheduler};
use crate::tunnel::interfaces_to;
use crate::validate::Validator;

impl Validator<'_> {
    /// Reports thresholds of RED that a leaf's limit keeps the average below.
    pub(super) fn thresholds(&mut self, trees: &Trees) {
        for node in trees.of_file().filter(|node| node.is_leaf() && node.queue.drop == Dropper::Red) {
            let own = node.queue.limit;
            let limit = own.unwrap_or(self.policy.limits.queue);
            let over = node.queue.red.iter().find(|threshold| threshold.max > limit);
            let Some(over) = over.filter(|_| !self.lines.is_broken(node.item)) else { continue };
            let of = if own.is_some() { "its limit" } else { "`queue` under [limit]" };
            let message = format!(
                "the queue is full at {limit} packets, {of}, before RED's average reaches {}",
                over.max
            );
            let most = node.queue.red.iter().map(|threshold| threshold.max).max().unwrap_or(over.max);
            let hint = format!("write limit = {most} at least, twice that for bursts, or lower thresholds");
            self.wrong(Code::RedAboveLimit, node.item, "red", message, hint);
        }
    }

    /// Reports shapes whose download leaves out what comes by the VLANs of their interface.
    pub(super) fn vlans_of_shapes(&mut self, trees: &Trees) {
        let roots = trees.nodes.iter().flat_map(|node| &node.queue.from);
        let shaped: HashSet<&str> = roots.map(String::as_str).collect();
        for (index, shape) in self.policy.shapes.iter().enumerate().filter(|(_, shape)| shape.down.is_some())
        {
            let is_left_out = |vlan: &&Interface| {
                self.port_of(&vlan.name) == Some(&shape.interface) && !shaped.contains(vlan.name.as_str())
            };
            let vlans: Vec<&str> =
                self.policy.interfaces.iter().filter(is_left_out).map(|vlan| vlan.name.as_str()).collect();
            let Some(first) = vlans.first().filter(|_| !self.lines.any_broken(Item::Interface(0))) else {
                continue;
            };
            let message = format!(
                "downloads by the VLAN{} \"{}\" are not shaped: a VLAN's are its own",
                if vlans.len() == 1 { "" } else { "s" },
                vlans.join("\", \"")
            );
            let hint =
                format!("add [shape.{first}] with a rate of download alone: \"20 Mbit/s / unlimited\"");
            self.wrong(Code::UnshapedVlans, Item::Shape(index), "rate", message, hint);
        }
    }

    /// Reports trees that share by flows or hosts, and see one flow of one host in the place of all that a tunnel carries.
    pub(super) fn flows_of_tunnels(&mut self, trees: &Trees) {
        if !self.is_stateless() || self.lines.any_broken(Item::Interface(0)) {
            return;
        }
        let mut told = HashSet::new();
        for node in trees.ordered() {
            let Some(key) = shares_by(node) else { continue };
            let root = &trees.nodes[node.root].queue;
            let Some(tunnel) = self.tunnel_through(&root.on, &root.from) else { continue };
            if !told.insert(node.root) {
                continue;
            }
            // What a shape stands for is known by the name of its root.
            let (key, name) = match node.origin {
                Origin::File => (key, &node.queue.name),
                Origin::Template | Origin::Shape => ("name", &root.name),
            };
            let message = format!(
                "\"{name}\" sees all that leaves by the tunnel \"{tunnel}\" as one flow of one host: the policy is stateless"
            );
            let hint = "leave `mode = \"stateless\"` out, or give the tunnel's packets a queue of their own";
            self.wrong(Code::OuterFlows, node.item, key, message, hint);
        }
    }

    /// Name of the first tunnel whose outer packets pass a tree on or from these interfaces.
    fn tunnel_through(&self, on: &[String], from: &[String]) -> Option<&str> {
        let policy = self.policy;
        let tunnels = policy.interfaces.iter().filter_map(|own| Some((own.name.as_str(), own.esp.as_ref()?)));
        let ports = |index: usize| {
            let name = policy.interfaces[index].name.as_str();
            self.port_of(name).unwrap_or(name)
        };
        let mut tunnels = tunnels.filter(|(name, tunnel)| {
            let ways = tunnel.remote.map_or_else(Vec::new, |remote| interfaces_to(policy, remote));
            // Without a route in the policy, by whichever the running system has.
            let may_leave =
                ways.is_empty() || ways.into_iter().any(|way| on.iter().any(|own| own == ports(way)));
            let comes = from.iter().any(|own| own != name);
            comes || !on.is_empty() && may_leave
        });
        tunnels.next().map(|(name, _)| name)
    }
}

/// Key by which a queue shares by the flows or the hosts of packets.
fn shares_by(node: &Node) -> Option<&'static str> {
    if node.queue.per != MeterScope::All {
        return Some("per");
    }
    let is_fair = node.is_leaf() && node.queue.scheduler == Some(Scheduler::Fq);
    let key = if node.queue.isolate == Isolation::Flow { "scheduler" } else { "isolate" };
    is_fair.then_some(key)
}
