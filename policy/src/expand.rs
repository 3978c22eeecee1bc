//! Queues of a policy with its templates and shapes written out: what a data plane builds.

use crate::lines::Item;
use crate::model::{Phb, Policy, Queue, Template};

pub(crate) mod shape;

/// Returns all queues of a policy as plain ones, without templates: those of the file in their order, the nodes of a template
/// behind their root, then those of shapes. A parent may come after its children.
///
/// Of a policy without errors, names are unique, and every queue is a root or in another.
pub fn queues(policy: &Policy) -> Vec<Queue> {
    written(policy).into_iter().map(|written| Queue { template: None, ..written.queue }).collect()
}

/// A queue, and the item of the policy that it comes from.
pub(crate) struct Written {
    pub(crate) queue: Queue,
    pub(crate) item: Item,
    pub(crate) origin: Origin,
}

/// Origin of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file has the queue itself.
    File,
    /// A template has it.
    Template,
    /// A shape has it.
    Shape,
}

/// Returns all queues of a policy, those of templates and shapes too. A shape of an unknown interface has none.
pub(crate) fn written(policy: &Policy) -> Vec<Written> {
    let mut all = Vec::with_capacity(policy.queues.len());
    for (index, queue) in policy.queues.iter().enumerate() {
        let item = Item::Queue(index);
        let nodes =
            queue.template.filter(|_| queue.is_root()).map_or_else(Vec::new, |template| match template {
                Template::Diffserv => diffserv(&queue.name),
            });
        all.push(Written { queue: queue.clone(), item, origin: Origin::File });
        all.extend(nodes.into_iter().map(|queue| Written { queue, item, origin: Origin::Template }));
    }
    for (index, shape) in policy.shapes.iter().enumerate() {
        let interface = policy.interface(&shape.interface);
        let nodes = interface.map_or_else(Vec::new, |interface| shape::trees(shape, interface.mtu));
        let written = |queue| Written { queue, item: Item::Shape(index), origin: Origin::Shape };
        all.extend(nodes.into_iter().map(written));
    }
    all
}

/// Queues of the DiffServ edge router on IXP1200 (Lin and others, "DiffServ over Network Processors"): for each port one of EF,
/// the first to be served, four of AF and one of best effort, by deficit round robin with twice the quantum of the next class.
///
/// The paper does not say which class of AF has most; here it is the first. It has no active queue management either.
fn diffserv(root: &str) -> Vec<Queue> {
    let node = |name: &str, phb: Option<Phb>, priority, weight| Queue {
        parent: Some(root.to_owned()),
        phbs: phb.into_iter().collect(),
        priority,
        weight,
        ..Queue::new(&format!("{root}-{name}"))
    };
    vec![
        node("ef", Some(Phb::Ef), 0, 1),
        node("af1", Some(Phb::Af(1)), 1, 16),
        node("af2", Some(Phb::Af(2)), 1, 8),
        node("af3", Some(Phb::Af(3)), 1, 4),
        node("af4", Some(Phb::Af(4)), 1, 2),
        node("be", None, 1, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::queues;
    use crate::check;

    const POLICY: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n";

    #[test]
    fn a_template_is_what_could_be_written_by_hand() {
        let short = format!("{POLICY}[[queue]]\nname = \"out\"\non = \"lan\"\ntemplate = \"diffserv\"\n");
        let short = check(&short, "short").policy.expect("a sound policy");
        let mut long = format!("{POLICY}[[queue]]\nname = \"out\"\non = \"lan\"\n");
        let nodes = [
            ("ef", "phb = \"ef\""),
            ("af1", "phb = \"af1\"\npriority = 1\nweight = 16"),
            ("af2", "phb = \"af2\"\npriority = 1\nweight = 8"),
            ("af3", "phb = \"af3\"\npriority = 1\nweight = 4"),
            ("af4", "phb = \"af4\"\npriority = 1\nweight = 2"),
            ("be", "priority = 1"),
        ];
        for (name, keys) in nodes {
            long += &format!("[[queue]]\nname = \"out-{name}\"\nin = \"out\"\n{keys}\n");
        }
        let long = check(&long, "long").policy.expect("a sound policy");
        assert_eq!(queues(&short), queues(&long));
        assert_eq!(queues(&long), long.queues);
    }
}
