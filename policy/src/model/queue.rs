//! Queues before interfaces: the trees that schedulers serve, and shapes, which stand for trees.

use wire::{BitRate, Bytes, Dscp, Nanos};

use super::{MeterScope, Overhead};

/// A queue of packets before an interface, or a node of a tree of such queues: scheduler, shaper, dropper and bounds.
///
/// The root of a tree is `on` interfaces, or `from` interfaces; any other node is in its parent. A node without children is a leaf,
/// where packets wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name in counters and traces, unique among queues.
    pub name: String,
    /// Of a root: interfaces whose outgoing packets wait here, each in a tree of its own.
    pub on: Vec<String>,
    /// Of a root: interfaces whose incoming packets wait here, after all decisions and before the queue of the interface that they
    /// leave by; each in a tree of its own.
    pub from: Vec<String>,
    /// Of any other node: name of the queue that this one is in.
    pub parent: Option<String>,
    /// Nodes that the root of a tree has in addition.
    pub template: Option<Template>,
    /// Of a root: workers of a live gateway that serve the tree.
    pub workers: TreeWorkers,
    /// Of a leaf: traffic classes whose packets wait here.
    pub classes: Vec<String>,
    /// Of a leaf: per-hop behaviours, by the code point that a packet leaves with, of packets whose class has no queue in the tree.
    /// A leaf with neither classes nor behaviours has all other packets.
    pub phbs: Vec<Phb>,
    /// Instances of the node and all that is in it: one for all packets, or one for each flow, address or prefix (a subscriber).
    pub per: MeterScope,
    /// Most instances at one time.
    pub instances: u32,
    /// Scheduler of the children, or of the flows of a leaf. `None`: [`Scheduler::Fifo`] of a leaf, else [`Scheduler::Drr`].
    pub scheduler: Option<Scheduler>,
    /// Bytes that a child, or a flow, of weight 1 may send in its turn. `None`: 1,514, a full frame of Ethernet.
    pub quantum: Option<Bytes>,
    /// Of a leaf with [`Scheduler::Fq`]: number of queues for flows, a power of two.
    pub flows: u32,
    /// Of a leaf with [`Scheduler::Fq`]: hosts that share evenly before their flows do.
    pub isolate: Isolation,
    /// Priority among the children of the parent, from 0, the first.
    pub priority: u8,
    /// Share of what the children of one priority have, 1 at least.
    pub weight: u32,
    /// Rate that the node has before others of its parent may borrow.
    pub guarantee: Option<BitRate>,
    /// Highest rate (ceiling): the shaper's.
    pub rate: Option<BitRate>,
    /// Bytes that may be sent at once after a pause: a packet of the largest MTU at least. `None`: one packet.
    pub burst: Option<Bytes>,
    /// Overhead counted with each packet. `None`: that of its parent; of a root, [`Overhead::ETHERNET`].
    pub overhead: Option<Overhead>,
    /// Of a leaf: most packets that wait. `None`: the policy's limit.
    pub limit: Option<u32>,
    /// Of a leaf: most bytes that wait.
    pub limit_bytes: Option<Bytes>,
    /// Of a leaf: active queue management.
    pub drop: Dropper,
    /// Of a leaf with RED: thresholds of each drop precedence, or of all.
    pub red: Vec<RedThreshold>,
    /// Of a leaf with CoDel, PIE or DualPI2: delay that a standing queue may have. `None`: 5 ms (RFC 8289), 15 ms (RFC 8033, RFC 9332).
    pub target: Option<Nanos>,
    /// Of a leaf with CoDel: time in which the delay must fall below the target once (RFC 8289, section 4.2). With DualPI2: longest
    /// round trip time that is expected (RFC 9332, appendix A.1). `None`: 100 ms.
    pub interval: Option<Nanos>,
    /// Of a leaf with DualPI2: delay from which all packets of its queue of low latency are marked. `None`: 1 ms (RFC 9332).
    pub step: Option<Nanos>,
    /// Of a leaf with DualPI2: ratio of the probability for packets of low latency to the root of that for classic packets.
    pub coupling: u32,
    /// Of a leaf: mark packets of ECN-capable transports (RFC 3168) in the place of drops by active queue management.
    pub ecn: bool,
}

/// Nodes that the root of a tree has without being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Queues of a DiffServ edge router, as on IXP1200: one of EF, served first, four of AF, one of best effort.
    Diffserv,
}

/// Workers of a live gateway that serve a tree of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeWorkers {
    /// One has the tree; the others hand their packets off to it.
    #[default]
    One,
    /// Each has a tree of its own, with its part of the rates.
    Divided,
}

/// Scheduler: selection of the child, or flow, that sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Of a leaf: first in, first out.
    Fifo,
    /// Of a leaf: fair queueing by flow, new flows first (RFC 8290).
    Fq,
    /// Of children: strict priority, in the order in which they are written.
    Strict,
    /// Of children: deficit round robin by weight (Shreedhar and Varghese 1995), within each priority.
    Drr,
    /// Of children: weighted fair queueing, by start-time fair queueing (Goyal, Vin and Cheng 1996), within each priority.
    Wfq,
}

/// Hosts that share a leaf evenly before their flows do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// None: flows share.
    #[default]
    Flow,
    /// Hosts of source addresses, before source NAT.
    Source,
    /// Hosts of destination addresses, after destination NAT.
    Destination,
}

/// Per-hop behaviour: one or more DiffServ code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phb {
    /// Expedited forwarding (RFC 3246).
    Ef,
    /// Assured forwarding, class 1 to 4 with its three drop precedences (RFC 2597).
    Af(u8),
    /// Class selector 0 to 7 (RFC 2474).
    Cs(u8),
    /// Lower effort (RFC 8622).
    Le,
    /// Any other code point.
    Dscp(Dscp),
}

/// Shape of an interface: its packets leave and arrive at rates a little below those of the link behind it, so that they
/// wait in queues of ours and not in a modem's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Name of the interface.
    pub interface: String,
    /// Rate of incoming packets (download). `None`: they are not shaped.
    pub down: Option<BitRate>,
    /// Rate of outgoing packets (upload). `None`: they are not shaped.
    pub up: Option<BitRate>,
    /// Parties that share the rates evenly.
    pub per: Fairness,
    /// Overhead counted with each packet. `None`: [`Overhead::ETHERNET`].
    pub overhead: Option<Overhead>,
    /// Workers of a live gateway that serve the shape.
    pub workers: TreeWorkers,
}

/// Parties that share a shape evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// Hosts on the inside, and then the flows of each.
    #[default]
    Host,
    /// Flows.
    Flow,
}

impl Phb {
    /// The behaviour of one code point, by its name where it has one.
    pub const fn of(dscp: Dscp) -> Phb {
        match dscp.value() {
            46 => Phb::Ef,
            1 => Phb::Le,
            value if value % 8 == 0 => Phb::Cs(value / 8),
            _ => Phb::Dscp(dscp),
        }
    }

    /// Returns the code points, as a set of bits.
    pub const fn code_points(self) -> u64 {
        match self {
            Phb::Ef => 1 << 46,
            Phb::Af(class) => (1 << 2 | 1 << 4 | 1 << 6) << (8 * class),
            Phb::Cs(class) => 1 << (8 * class),
            Phb::Le => 1 << 1,
            Phb::Dscp(dscp) => 1 << dscp.value(),
        }
    }
}

/// Active queue management of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropper {
    /// Only the bounds on packets and bytes.
    #[default]
    Tail,
    /// Random early detection (Floyd and Jacobson 1993), by drop precedence (WRED).
    Red,
    /// Controlled delay (RFC 8289).
    Codel,
    /// Proportional integral controller enhanced (RFC 8033).
    Pie,
    /// Two queues with coupled proportional integral control: L4S and classic (RFC 9332).
    DualPi2,
}

/// Thresholds of RED on the average number of packets that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedThreshold {
    /// Average from which packets are dropped at random.
    pub min: u32,
    /// Average from which all are dropped; above `min`.
    pub max: u32,
    /// Probability just below `max`, in thousandths: 1 to 1,000.
    pub per_mille: u16,
}

impl Queue {
    /// Instances, where a policy does not say how many.
    pub const INSTANCES: u32 = 4_096;

    /// Most instances that a node may have.
    pub const MOST_INSTANCES: u32 = 1 << 20;

    /// Most nodes of all trees together, instances counted.
    pub const MOST_NODES: u64 = 1 << 22;

    /// Most queues for flows of all trees together, instances counted: some 1.9 GB.
    pub const MOST_FLOW_QUEUES: u64 = 1 << 24;

    /// Most interfaces with a tree of what comes from them, where there are tunnels: a packet out of one keeps the number of the tree in a
    /// byte.
    pub const MOST_FROM_BESIDE_TUNNELS: usize = u8::MAX as usize;

    /// Most nodes from the root to a leaf.
    pub const MOST_LEVELS: usize = 8;

    /// Priorities of a parent.
    pub const PRIORITIES: u8 = 8;

    /// Largest weight.
    pub const MOST_WEIGHT: u32 = 65_535;

    /// Queues for flows, where a policy does not say how many.
    pub const FLOWS: u32 = 1_024;

    /// Most queues for flows.
    pub const MOST_FLOWS: u32 = 65_536;

    /// Smallest quantum of weight 1: a turn of fewer bytes than the shortest frame sends nothing.
    pub const LEAST_QUANTUM: Bytes = Bytes(64);

    /// Largest quantum of weight 1.
    pub const MOST_QUANTUM: Bytes = Bytes(1 << 20);

    /// Most packets that a leaf may hold.
    pub const MOST_LIMIT: u32 = 1 << 20;

    /// Longest target or interval of a dropper.
    pub const MOST_DELAY: Nanos = Nanos::from_secs(10);

    /// Coupling of DualPI2, where a policy does not say it (RFC 9332, section 2.1).
    pub const COUPLING: u32 = 2;

    /// Largest coupling of DualPI2.
    pub const MOST_COUPLING: u32 = 16;

    /// True for the root of a tree.
    pub fn is_root(&self) -> bool {
        !self.on.is_empty() || !self.from.is_empty()
    }

    /// A first-in-first-out queue with that name, of no tree yet.
    pub fn new(name: &str) -> Queue {
        Queue {
            name: name.to_owned(),
            on: Vec::new(),
            from: Vec::new(),
            parent: None,
            template: None,
            workers: TreeWorkers::default(),
            classes: Vec::new(),
            phbs: Vec::new(),
            per: MeterScope::All,
            instances: Queue::INSTANCES,
            scheduler: None,
            quantum: None,
            flows: Queue::FLOWS,
            isolate: Isolation::Flow,
            priority: 0,
            weight: 1,
            guarantee: None,
            rate: None,
            burst: None,
            overhead: None,
            limit: None,
            limit_bytes: None,
            drop: Dropper::Tail,
            red: Vec::new(),
            target: None,
            interval: None,
            step: None,
            coupling: Queue::COUPLING,
            ecn: false,
        }
    }
}

impl Shape {
    /// A shape of an interface, with no rates yet.
    pub fn new(interface: &str) -> Shape {
        Shape {
            interface: interface.to_owned(),
            down: None,
            up: None,
            per: Fairness::default(),
            overhead: None,
            workers: TreeWorkers::default(),
        }
    }
}
