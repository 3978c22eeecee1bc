//! Keys of queues that have no meaning where they stand.

use super::{Node, Trees};
use crate::lines::Item;
use crate::model::{Dropper, Isolation, MeterScope, Queue, Scheduler, TreeWorkers};
use crate::validate::Validator;

/// A key, and its state in a queue.
struct Given(&'static str, bool);

impl Validator<'_> {
    pub(super) fn keys(&mut self, trees: &Trees) {
        for node in trees.of_file().filter(|node| node.level <= Queue::MOST_LEVELS) {
            if self.lines.is_broken(node.item) {
                continue;
            }
            if node.is_leaf() {
                self.keys_of_leaf(node);
            } else {
                self.keys_of_parent(node);
            }
            self.keys_of_place(node, node.parent.map(|parent| &trees.nodes[parent].queue));
            let queue = &node.queue;
            if queue.per == MeterScope::All {
                let given = [Given("instances", queue.instances != Queue::INSTANCES)];
                self.without_meaning(node.item, &given, "without `per`", "add per = \"source\"");
            }
            if queue.rate.is_none() && (queue.guarantee.is_none() || queue.is_root()) {
                let given = [Given("burst", queue.burst.is_some())];
                self.without_meaning(node.item, &given, "without `rate`", "add rate = \"10 Mbit/s\"");
            }
        }
    }

    /// Keys of schedulers and droppers of a leaf.
    fn keys_of_leaf(&mut self, node: &Node) {
        let (queue, item) = (&node.queue, node.item);
        let of_parents = [Scheduler::Strict, Scheduler::Drr, Scheduler::Wfq];
        let among_children = queue.scheduler.is_some_and(|scheduler| of_parents.contains(&scheduler));
        // Its children may be among what could not be read.
        if among_children && !self.lines.any_broken(Item::Queue(0)) {
            let hint = format!("write \"fifo\" or \"fq\", or add a [[queue]] with in = \"{}\"", queue.name);
            let given = [Given("scheduler", true)];
            let place = "with this value for a queue that no other is in";
            self.without_meaning(item, &given, place, &hint);
        }
        if queue.scheduler != Some(Scheduler::Fq) && !among_children {
            let given = [
                Given("quantum", queue.quantum.is_some()),
                Given("flows", queue.flows != Queue::FLOWS),
                Given("isolate", queue.isolate != Isolation::Flow),
            ];
            self.without_meaning(item, &given, "for a queue without flows", "add scheduler = \"fq\"");
        }
        let drop = queue.drop;
        if drop != Dropper::Red {
            let given = [Given("red", !queue.red.is_empty())];
            self.without_meaning(item, &given, "without RED", "add drop = \"red\"");
        } else if ![1, 3].contains(&queue.red.len()) {
            let message = match queue.red.len() {
                0 => "drop = \"red\" needs thresholds".to_owned(),
                count => {
                    format!("{count} thresholds are neither one for all packets nor one for each colour")
                }
            };
            let code = if queue.red.is_empty() { config::Code::MissingKey } else { config::Code::BadNumber };
            let key = if queue.red.is_empty() { "drop" } else { "red" };
            let hint = "write red = \"20-60 10%\", or three, for green, yellow and red packets";
            self.wrong(code, item, key, message, hint);
        }
        if ![Dropper::Codel, Dropper::Pie, Dropper::DualPi2].contains(&drop) {
            let given = [Given("target", queue.target.is_some())];
            self.without_meaning(item, &given, "without CoDel, PIE or DualPI2", "add drop = \"codel\"");
        }
        if ![Dropper::Codel, Dropper::DualPi2].contains(&drop) {
            let given = [Given("interval", queue.interval.is_some())];
            self.without_meaning(item, &given, "without CoDel or DualPI2", "add drop = \"codel\"");
        }
        if drop != Dropper::DualPi2 {
            let given =
                [Given("step", queue.step.is_some()), Given("coupling", queue.coupling != Queue::COUPLING)];
            self.without_meaning(item, &given, "without DualPI2", "add drop = \"dualpi2\"");
        } else {
            let hint = "leave it out: what can be marked is marked, packets of L4S always";
            self.without_meaning(item, &[Given("ecn", queue.ecn)], "with drop = \"dualpi2\"", hint);
            let given = [Given("scheduler", queue.scheduler == Some(Scheduler::Fq))];
            let hint = "leave it out, or write drop = \"codel\": DualPI2 has two queues of its own, and needs none for each flow";
            self.without_meaning(item, &given, "with drop = \"dualpi2\"", hint);
        }
        if drop == Dropper::Tail {
            let hint = "add drop = \"codel\", \"pie\" or \"red\": a full queue marks nothing";
            self.without_meaning(item, &[Given("ecn", queue.ecn)], "with drop = \"tail\"", hint);
        }
    }

    /// Keys of leaves, in a queue that has others in it.
    fn keys_of_parent(&mut self, node: &Node) {
        let (queue, item) = (&node.queue, node.item);
        let of_flows = matches!(queue.scheduler, Some(Scheduler::Fifo | Scheduler::Fq));
        let given = [
            Given("class", !queue.classes.is_empty()),
            Given("phb", !queue.phbs.is_empty()),
            Given("flows", queue.flows != Queue::FLOWS),
            Given("isolate", queue.isolate != Isolation::Flow),
            Given("limit", queue.limit.is_some()),
            Given("limit-bytes", queue.limit_bytes.is_some()),
            Given("drop", queue.drop != Dropper::Tail),
            Given("red", !queue.red.is_empty()),
            Given("target", queue.target.is_some()),
            Given("interval", queue.interval.is_some()),
            Given("step", queue.step.is_some()),
            Given("coupling", queue.coupling != Queue::COUPLING),
            Given("ecn", queue.ecn),
        ];
        let hint = "packets wait in the leaves of a tree: write it in those";
        self.without_meaning(item, &given, "for a queue that others are in", hint);
        if of_flows {
            let given = [Given("scheduler", true)];
            let place = "with this value for a queue that others are in";
            self.without_meaning(item, &given, place, "write \"drr\", \"strict\" or \"wfq\"");
        }
        if matches!(queue.scheduler, Some(Scheduler::Strict | Scheduler::Wfq)) {
            let given = [Given("quantum", queue.quantum.is_some())];
            self.without_meaning(item, &given, "without turns", "write scheduler = \"drr\", or leave it out");
        }
    }

    /// Keys of roots in other queues, and keys of other queues in roots.
    fn keys_of_place(&mut self, node: &Node, parent: Option<&Queue>) {
        let (queue, item) = (&node.queue, node.item);
        if queue.is_root() {
            let given = [
                Given("priority", queue.priority != 0),
                Given("weight", queue.weight != 1),
                Given("guarantee", queue.guarantee.is_some()),
            ];
            let hint = "the root of a tree shares its interface with no other: leave it out";
            self.without_meaning(item, &given, "for the root of a tree", hint);
        } else {
            let given = [
                Given("template", queue.template.is_some()),
                Given("workers", queue.workers != TreeWorkers::One),
            ];
            let hint = "write it in the queue that is `on` or `from` interfaces";
            self.without_meaning(item, &given, "but for the root of a tree", hint);
        }
        match parent.and_then(|parent| parent.scheduler) {
            Some(Scheduler::Strict) => {
                let given = [Given("priority", queue.priority != 0), Given("weight", queue.weight != 1)];
                let hint = "the queues in it are served in the order in which they are written: leave it out, or write \"drr\" there";
                self.without_meaning(item, &given, "in a queue with scheduler = \"strict\"", hint);
            }
            Some(Scheduler::Wfq) => {
                let given = [Given("guarantee", queue.guarantee.is_some())];
                let hint = "write `weight`: shares of wfq are guarantees, and what is left is shared in the same way";
                self.without_meaning(item, &given, "in a queue with scheduler = \"wfq\"", hint);
            }
            _ => {}
        }
    }

    /// Reports the keys that are given; `place` says where they have no meaning.
    fn without_meaning(&mut self, item: Item, keys: &[Given], place: &str, hint: &str) {
        for Given(key, _) in keys.iter().filter(|Given(_, given)| *given) {
            let message = format!("`{key}` has no meaning {place}");
            self.wrong(config::Code::MisplacedKey, item, key, message, hint);
        }
    }
}
