//! Fast path: a worker's flows that Linux's kernel carries, in the table that all workers share.
//!
//! The shard publishes and takes back flows by [`Kernel`]; [`FastPorts`] knows which interfaces the programs of the kernel serve, and counts what
//! they have carried by interface. A slot of the table is free again a second after its flow was taken back: until then a program may still act
//! on what it has found before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::fast_path::{Account, Carried, Carrier, Published, Tag, Via, Way};
use dataplane::flow::{Direction, Ends, FlowId, TcpSide};
use ports::{Entry, FastEgress, FastHook, FastPath, FastPort, Place, Tuple, Window};
use wire::header::Protocol;
use wire::{Nanos, ethernet, vlan};

use super::report::LinkCounts;
use crate::clock::Clock;

/// Interfaces that the fast path serves, for one worker, which outlive its shard.
#[derive(Clone)]
pub(super) struct FastPorts(Arc<Mutex<Ports>>);

struct Ports {
    /// Interfaces that the fast path serves, in the order of the tables.
    served: Vec<Option<FastPort>>,
    /// VLANs of these interfaces, by name.
    vlans: HashMap<Lane, String>,
    /// Flows of frames at XDP.
    frames: Frames,
    /// Counters of interfaces, and of their VLANs.
    counts: HashMap<Lane, LinkCounts>,
    /// Flows taken back whose slots are not free yet, in order.
    retired: VecDeque<(Nanos, Flow)>,
}

/// Frames of an interface of Linux, or those of a VLAN among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// Index of the interface.
    pub(super) index: u32,
    /// VLAN; 0 for all frames of the interface.
    pub(super) vlan: u16,
}

/// Path of a flow's packets through interfaces of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Path {
    ingress: Lane,
    egress: Lane,
    /// Bytes of the Ethernet header that packets leave with.
    header: u64,
}

/// Flows of frames at XDP, between interfaces whose devices should take each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frames {
    /// They are published.
    Published,
    /// A device has refused frames: none is published until interfaces come, go or change.
    Refused,
}

/// The kernel, as the carrier of a shard's flows.
pub(super) struct Kernel {
    path: Arc<FastPath>,
    ports: FastPorts,
    clock: Clock,
    flows: HashMap<FlowId, Flow>,
    /// Published flows, to be accounted for in turn.
    order: Vec<FlowId>,
    turn: usize,
    /// Frames that devices have refused so far.
    refused: u64,
}

/// A published flow.
struct Flow {
    places: [Place; 2],
    /// Per direction.
    paths: [Path; 2],
    tag: Tag,
    /// Account so far, per direction.
    before: [Carried; 2],
    /// Place among the flows that are accounted for in turn.
    place: usize,
}

/// Time after which no program acts any more on a flow that was taken back: 1 s.
const GRACE: Nanos = Nanos::from_secs(1);

impl FastPorts {
    /// No interface is served.
    pub(super) fn new() -> FastPorts {
        let (served, vlans) = (Vec::new(), HashMap::new());
        let (frames, counts, retired) = (Frames::Published, HashMap::new(), VecDeque::new());
        FastPorts(Arc::new(Mutex::new(Ports { served, vlans, frames, counts, retired })))
    }

    /// Serves these interfaces, in the order of the tables, and their VLANs, by name. Counters stay with the names.
    pub(super) fn serve(
        &self,
        served: impl Iterator<Item = Option<FastPort>>,
        vlans: impl Iterator<Item = (Lane, String)>,
    ) {
        let ports = &mut *self.lock();
        ports.served.clear();
        ports.served.extend(served);
        ports.frames = Frames::Published;
        let before = std::mem::replace(&mut ports.vlans, vlans.collect());
        let Ports { served, vlans, counts, .. } = ports;
        counts.retain(|lane, _| {
            let is_served = served.iter().flatten().any(|port| port.ifindex == lane.index);
            is_served && (lane.vlan == 0 || before.get(lane) == vlans.get(lane))
        });
    }

    /// Counters of an interface, or of a VLAN of it.
    pub(super) fn counts(&self, lane: Lane) -> LinkCounts {
        self.lock().counts.get(&lane).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Ports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ports {
    /// Path of a flow's packets; None if the fast path does not serve the interfaces.
    fn path(&self, way: &Way) -> Option<Path> {
        let port = |via: &Via| *self.served.get(usize::from(via.port.0))?;
        let (ingress, egress) = (port(&way.ingress)?, port(&way.egress)?);
        // The program at XDP has no function for tags.
        let has_tag = way.ingress.vlan() != 0 || way.egress.tag.is_some();
        let takes = match ingress.hook {
            FastHook::Tc => true,
            FastHook::Xdp => egress.egress == FastEgress::All && self.frames == Frames::Published && !has_tag,
        };
        let tag_len = if way.egress.tag.is_some() { vlan::TAG_LEN } else { 0 };
        takes.then_some(Path {
            ingress: Lane { index: ingress.ifindex, vlan: way.ingress.vlan() },
            egress: Lane { index: egress.ifindex, vlan: way.egress.vlan() },
            header: (ethernet::HEADER_LEN + tag_len) as u64,
        })
    }

    /// Counts frames of the interfaces, and those of VLANs for the VLANs too.
    fn count(&mut self, path: &Path, carried: &Carried) {
        for lane in path.ingress.counted() {
            let into = self.counts.entry(lane).or_default();
            into.received += carried.packets;
            into.received_bytes += carried.frame_bytes;
        }
        for lane in path.egress.counted() {
            let out = self.counts.entry(lane).or_default();
            out.sent += carried.packets;
            out.sent_bytes += carried.packet_bytes + carried.packets * path.header;
        }
    }
}

impl Lane {
    /// Lanes that a frame counts for: the interface's, and the VLAN's.
    fn counted(self) -> impl Iterator<Item = Lane> {
        let of_interface = Lane { vlan: 0, ..self };
        [of_interface].into_iter().chain((self != of_interface).then_some(self))
    }
}

impl Kernel {
    /// Publishes up to `most` flows in a table.
    pub(super) fn new(path: Arc<FastPath>, ports: FastPorts, clock: Clock, most: usize) -> Kernel {
        let most = most.min(path.capacity() as usize / 2);
        let (flows, order) = (HashMap::with_capacity(most), Vec::with_capacity(most));
        let refused = path.refused();
        Kernel { path, ports, clock, flows, order, turn: 0, refused }
    }

    /// Takes all flows back once a device has refused frames: those between ports at XDP stay with their workers from then on. The count is a sum
    /// over all CPUs, so that once in a sweep is often enough.
    fn notice_refusals(&mut self) {
        let refused = self.path.refused();
        if std::mem::replace(&mut self.refused, refused) != refused {
            self.ports.lock().frames = Frames::Refused;
            self.take_all_back();
        }
    }

    /// Accounts for a flow since the last time.
    fn account_for(path: &FastPath, ports: &mut Ports, clock: Clock, flow: &mut Flow) -> Account {
        let mut carried = [Carried::default(); 2];
        let mut seen = Nanos(0);
        for direction in [0, 1] {
            let all = path.account(flow.places[direction]);
            let now =
                Carried { packets: all.packets, packet_bytes: all.bytes.0, frame_bytes: all.frame_bytes.0 };
            let before = std::mem::replace(&mut flow.before[direction], now);
            carried[direction] = Carried {
                packets: now.packets.saturating_sub(before.packets),
                packet_bytes: now.packet_bytes.saturating_sub(before.packet_bytes),
                frame_bytes: now.frame_bytes.saturating_sub(before.frame_bytes),
            };
            if carried[direction].packets > 0 {
                ports.count(&flow.paths[direction], &carried[direction]);
            }
            seen = seen.max(all.seen);
        }
        let sides = flow.places.map(|place| path.window(place).map(side));
        Account {
            tag: flow.tag,
            carried,
            seen: (seen != Nanos(0)).then(|| clock.of_port(seen)),
            sides: sides[0].zip(sides[1]).map(|(original, reply)| [original, reply]),
            is_live: flow.places.iter().all(|place| path.is_live(*place)),
        }
    }
}

impl Carrier for Kernel {
    fn publish(&mut self, id: FlowId, ways: &[Way; 2], tag: Tag) -> Published {
        if self.order.len() == self.order.capacity() || self.flows.contains_key(&id) {
            return Published::No;
        }
        let ports = self.ports.lock();
        let [Some(there), Some(back)] = ways.each_ref().map(|way| ports.path(way)) else {
            return Published::No;
        };
        let paths = [there, back];
        let entries = [0, 1].map(|direction| entry(&ways[direction], &paths[direction]));
        let Some(places) = self.path.publish(&entries) else { return Published::No };
        let place = self.order.len();
        self.order.push(id);
        self.flows.insert(id, Flow { places, paths, tag, before: [Carried::default(); 2], place });
        Published::Yes
    }

    fn account(&mut self, id: FlowId) -> Option<Account> {
        let flow = self.flows.get_mut(&id)?;
        Some(Kernel::account_for(&self.path, &mut self.ports.lock(), self.clock, flow))
    }

    fn set_side(&mut self, id: FlowId, direction: Direction, side: TcpSide) {
        if let Some(flow) = self.flows.get(&id) {
            self.path.set_window(flow.places[direction as usize], window(&side));
        }
    }

    fn take_back(&mut self, id: FlowId) -> Option<Account> {
        let mut flow = self.flows.remove(&id)?;
        self.order.swap_remove(flow.place);
        if let Some(moved) = self.order.get(flow.place).and_then(|id| self.flows.get_mut(id)) {
            moved.place = flow.place;
        }
        flow.places.iter().for_each(|place| self.path.retract(*place));
        let ports = &mut *self.ports.lock();
        let account = Kernel::account_for(&self.path, ports, self.clock, &mut flow);
        ports.retired.push_back((self.clock.now(), flow));
        Some(account)
    }

    fn take_all_back(&mut self) {
        if !self.flows.is_empty() {
            self.path.advance_generation();
        }
    }

    fn remainder(&mut self, now: Nanos) -> Option<Account> {
        let retired = {
            let ports = &mut *self.ports.lock();
            let is_over = ports.retired.front().is_some_and(|(since, _)| now.since(*since) >= GRACE);
            let front = if is_over { ports.retired.pop_front() } else { None };
            front.map(|(_, mut flow)| {
                let account = Kernel::account_for(&self.path, ports, self.clock, &mut flow);
                flow.places.iter().for_each(|place| self.path.free(*place));
                account
            })
        };
        if retired.is_none() {
            self.notice_refusals();
        }
        retired
    }

    fn next(&mut self) -> Option<FlowId> {
        self.turn = if self.turn < self.order.len() { self.turn } else { 0 };
        let id = self.order.get(self.turn).copied()?;
        self.turn += 1;
        Some(id)
    }

    fn published(&self) -> usize {
        self.order.len()
    }
}

impl Drop for Kernel {
    /// Takes back what is still published: the flows have gone with their shard.
    fn drop(&mut self) {
        let now = self.clock.now();
        let ports = &mut *self.ports.lock();
        for (_, flow) in self.flows.drain() {
            flow.places.iter().for_each(|place| self.path.retract(*place));
            ports.retired.push_back((now, flow));
        }
    }
}

/// A flow's direction in the table of the fast path.
fn entry(way: &Way, path: &Path) -> Entry {
    let tuple = |ends: &Ends| Tuple {
        source: ends.source,
        destination: ends.destination,
        sport: ends.sport,
        dport: ends.dport,
    };
    Entry {
        from: tuple(&way.arrives),
        protocol: Protocol(way.arrives.protocol),
        ifindex: path.ingress.index,
        vlan: way.ingress.vlan(),
        to: tuple(&way.leaves),
        link: way.header,
        tag: way.egress.tag,
        mtu: way.mtu,
        out: path.egress.index,
        dscp: way.dscp,
        mark: way.mark,
        window: way.side.as_ref().map(window),
    }
}

/// TCP window state as the table has it.
fn window(side: &TcpSide) -> Window {
    let TcpSide { end, max_window, allows, scale } = *side;
    Window { end, max_window, grants: allows, scale }
}

/// TCP window state as connection tracking has it.
fn side(window: Window) -> TcpSide {
    let Window { end, max_window, grants, scale } = window;
    TcpSide { end, max_window, allows: grants, scale }
}
