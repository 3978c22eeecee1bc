//! Wait of an explained packet: what waits before it, for how long it waits, and whether it is dropped.

use std::ops::ControlFlow;

use dataplane::egress::{Placement, TreeReport, TreeSide, ip_length};
use dataplane::explain::Account;
use dataplane::replay::Witness;
use dataplane::tables::NodeKind;
use dataplane::tunnel::is_copy;
use dataplane::{Reason, Replay, Tables, Verdict};
use policy::{Policy, dropper_name};
use replay::Captures;
use replay::number::{bytes, count, number};
use serde_json::{Value, json};
use wire::{Frame, Nanos, PortId};

use super::Packet;
use super::rendering::{LeafAt, leaves};

/// Packets that wait in a replay at one moment.
pub(super) struct Backlogs {
    trees: Vec<TreeReport>,
    /// Packets whose queue has not been told of them yet, or that wait for a port without a tree; and their bytes.
    others: Vec<(LeafAt, u64)>,
}

/// Queue that the packet waits in, with what waits there before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    interface: String,
    side: TreeSide,
    /// Name of a leaf; `None` for the one queue of a port without a tree.
    name: Option<String>,
    packets: u64,
    bytes: u64,
    /// Most packets.
    limit: u64,
    /// Most bytes; `u64::MAX` where these have no bound.
    limit_bytes: u64,
    dropper: &'static str,
}

/// End of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its transmission begins so long after its arrival.
    Departs(Nanos),
    /// Dropped so long after its arrival.
    Lost(Nanos, Reason),
}

impl Backlogs {
    /// Backlog when all that came before is in its queue.
    pub(super) fn of(replay: &Replay) -> Backlogs {
        let (egress, queues) = (&replay.shard.egress, &replay.tables.queues);
        let mut others = Vec::new();
        let ports = egress.ports();
        for place in 0..egress.arriving().count() {
            for frame in egress.queued_behind(place, 0) {
                let placement = Placement::of(frame, queues);
                let (port, side, leaf) = match place.checked_sub(ports) {
                    None => (place, TreeSide::On, placement.on),
                    Some(place) => (place, TreeSide::From, placement.from),
                };
                let at = LeafAt { port: PortId(port as u16), side, leaf: leaf.map(|at| at.leaf) };
                others.push((at, ip_length(frame).into()));
            }
        }
        Backlogs { trees: egress.trees().collect(), others }
    }

    /// The queues that the packet waits in, in their order; none if it was not queued.
    pub(super) fn before(&self, account: &Account, tables: &Tables, received: &[u8]) -> Vec<Wait> {
        if account.verdict != Verdict::Forwarded {
            return Vec::new();
        }
        let waits = queued(account, tables, received);
        waits.into_iter().filter_map(|at| self.wait(at, tables)).collect()
    }

    fn wait(&self, at: LeafAt, tables: &Tables) -> Option<Wait> {
        let others = self.others.iter().filter(|(other, _)| *other == at);
        let (mut packets, mut bytes) =
            others.fold((0, 0), |(packets, bytes), (_, length)| (packets + 1, bytes + length));
        let interface = tables.interface(at.port)?.name.clone();
        let Some(leaf) = at.leaf else {
            let limit = tables.limits.queue.into();
            return Some(Wait {
                interface,
                side: at.side,
                name: None,
                packets,
                bytes,
                limit,
                limit_bytes: u64::MAX,
                dropper: "tail",
            });
        };
        let tree = self.trees.iter().find(|tree| tree.port == at.port && tree.side == at.side)?;
        let (node, counts) = (tree.settings.nodes.get(leaf as usize)?, tree.counts.get(leaf as usize)?);
        let NodeKind::Leaf(settings) = &node.kind else { return None };
        packets += counts.packets;
        bytes += counts.bytes;
        Some(Wait {
            interface,
            side: at.side,
            name: Some(node.name.clone()),
            packets,
            bytes,
            limit: settings.limit.into(),
            limit_bytes: settings.limit_bytes,
            dropper: dropper_name(settings.drop),
        })
    }
}

/// Advice on a packet that one of these queues had no room for; `None` where it is that of a port without a tree, of which the reason's
/// own advice speaks. The packet has passed those before the one that is full.
pub(super) fn advice(waits: &[Wait], policy: &Policy) -> Option<String> {
    let full = waits.iter().find(|wait| wait.is_full()).or(waits.last())?;
    let name = full.name.as_deref()?;
    // What fills a queue by bytes leaves room for packets.
    let key = if full.packets < full.limit && full.limit_bytes < u64::MAX { "limit-bytes" } else { "limit" };
    let remedy = match policy.queues.iter().any(|queue| queue.name == name) {
        true => format!("a higher `{key}` of the [[queue]] \"{name}\" only adds delay"),
        // Of a shape or a template, whose leaves have no keys in the file.
        false => "a higher `rate` helps where the link has more".to_owned(),
    };
    Some(format!("More comes for the queue \"{name}\" than its rate lets go; {remedy}."))
}

/// Queues that the packet of an explanation is put into.
pub fn queued(account: &Account, tables: &Tables, received: &[u8]) -> Vec<LeafAt> {
    let Some(visit) = account.visits.iter().find(|visit| visit.stage == "queue") else { return Vec::new() };
    let bytes = account.visits.iter().filter_map(|visit| visit.bytes.as_deref()).next_back();
    leaves(tables, &visit.after, bytes.unwrap_or(received))
}

/// Plays what comes after a packet, until the packet has left; `watch` sees the captures, and may end it.
pub(super) fn fate<S>(
    replay: &mut Replay,
    rest: Option<&mut Captures>,
    packet: &Packet,
    watch: &mut dyn FnMut(&Captures) -> ControlFlow<S>,
) -> ControlFlow<S, Option<Fate>> {
    let mut seen = Watch { number: packet.number, fate: None };
    let mut answer = Vec::new();
    if let Some(captures) = rest {
        while let Some(next) = captures.next(&replay.tables) {
            let (bytes, _) = next.as_sent(replay, &mut seen, &mut answer);
            replay.receive(next.ingress, next.at, next.arrival as u32, bytes, &mut seen);
            if seen.fate.is_some() {
                break;
            }
            watch(captures)?;
        }
    }
    if seen.fate.is_none() {
        replay.finish(&mut seen);
    }
    ControlFlow::Continue(seen.fate.map(|fate| match fate {
        Fate::Departs(then) => Fate::Departs(then.since(packet.at)),
        Fate::Lost(then, reason) => Fate::Lost(then.since(packet.at), reason),
    }))
}

/// Witness of the end of one packet's wait, at a moment.
struct Watch {
    number: u32,
    fate: Option<Fate>,
}

impl Witness for Watch {
    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        if frame.meta.number == self.number && !is_copy(&frame.meta) && verdict.is_some() {
            self.fate.get_or_insert(Fate::Departs(at));
        }
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.ended_at(frame.meta.received, frame, verdict);
    }

    fn ended_at(&mut self, at: Nanos, frame: &Frame, verdict: Verdict) {
        let is_own = frame.meta.number == self.number && !is_copy(&frame.meta);
        if let (true, Verdict::Dropped(reason)) = (is_own, verdict) {
            self.fate.get_or_insert(Fate::Lost(at, reason));
        }
    }
}

impl Wait {
    /// True if the queue had no room for any packet.
    fn is_full(&self) -> bool {
        self.packets >= self.limit || self.bytes >= self.limit_bytes
    }

    fn title(&self) -> String {
        let (side, interface) = (self.side.name(), &self.interface);
        match &self.name {
            Some(name) => format!("queue \"{name}\" ({side} {interface})"),
            None => format!("the queue of {interface}"),
        }
    }

    /// The wait, in a sentence.
    pub(super) fn text(&self) -> String {
        let before = match self.packets {
            0 => "finds nothing".to_owned(),
            packets => {
                let packets = count(packets, "packet", "packets");
                format!("finds {packets}, {},", bytes(self.bytes))
            }
        };
        let limit = number(self.limit);
        format!("{before} in {}; limit {limit} packets, drop {}", self.title(), self.dropper)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "interface": self.interface, "side": self.side.name(), "name": self.name, "waiting": self.packets,
            "waiting_bytes": self.bytes, "limit": self.limit, "drop": self.dropper,
        })
    }
}

impl Fate {
    /// The end of the wait, in a sentence.
    pub(super) fn text(self) -> String {
        let millis = |time: Nanos| format!("{:.3} ms", time.0 as f64 / 1e6);
        match self {
            Fate::Departs(Nanos(0)) => "departs at once".to_owned(),
            Fate::Departs(delay) => format!("departs {} after its arrival", millis(delay)),
            Fate::Lost(Nanos(0), reason) => format!("is dropped on arrival: {}", reason.name()),
            Fate::Lost(delay, reason) => {
                format!("is dropped {} after its arrival: {}", millis(delay), reason.name())
            }
        }
    }

    /// Delay until the packet departs, in nanoseconds; none if it does not.
    pub(super) fn delay_ns(self) -> Option<u64> {
        match self {
            Fate::Departs(delay) => Some(delay.0),
            Fate::Lost(..) => None,
        }
    }
}
