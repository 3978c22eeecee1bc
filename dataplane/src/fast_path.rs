//! Fast path: established flows that the host's kernel carries without the pipeline.
//!
//! A host with such a kernel gives the shard a [`Carrier`]. After some packets of a flow, the shard *publishes* the flow: both
//! directions, with all that the pipeline has decided (translation, next hop, MTU, TCP windows). From then on the kernel carries the
//! flow's plain packets; all others reach the pipeline as before, which first brings the flow up to date (time of the last packet,
//! windows, counters), so that no decision is made by what was true before.
//!
//! Publication changes nothing but who does the work: same bytes, same counters. What would need the worker is not published: flows
//! whose packets wait in queues, are metered, shaped, encrypted, or go by two VLAN tags, a PPP session or to the gateway itself; connections that
//! are opening or closing. Such a packet that reaches the pipeline takes its flow back where it changes the state of the connection, or the
//! window of the other side; else the kernel is told what it has changed of the sender's window. No packet of a direction is carried
//! while another one of that direction is on its way through the pipeline, so that a sender's window has one writer at a time.
//!
//! Tables, neighbours and ports that change take back all flows at once ([`FastPath::take_all_back`]): the kernel then carries none,
//! and each flow is brought up to date when its next packet, its timeout or [`Shard::sweep_published`] comes by. A change of a dynamic set
//! does so at the next sweep, once a second at most.

use std::ops::Range;

use arrayvec::ArrayVec;
use policy::model::{Colour, Mode};
use wire::ethernet::EtherType;
use wire::vlan::{self, Priority};
use wire::{BATCH, Dscp, DscpSet, Nanos, PortId};

use crate::accounting::Accounting;
use crate::counter::Counters;
use crate::flow::{Direction, Ends, FlowId, State, TcpSide};
use crate::hop::{Hop, leaves};
use crate::shard::Shard;
use crate::tables::{Hearing, Interface, Tables, is_linux};

/// Kernel that carries published flows.
pub trait Carrier: Send {
    /// Publishes both directions of a flow, per [`Direction`]. Returns [`Published::No`] where there is no room.
    fn publish(&mut self, id: FlowId, ways: &[Way; 2], tag: Tag) -> Published;

    /// Accounts for a published flow since the last time. None if the flow is not published.
    fn account(&mut self, id: FlowId) -> Option<Account>;

    /// Sets the TCP window state of the side that sends in a direction, a packet of which went through the pipeline.
    fn set_side(&mut self, id: FlowId, direction: Direction, side: TcpSide);

    /// Takes a flow back: packets that arrive from now on are not carried. None if the flow is not published.
    fn take_back(&mut self, id: FlowId) -> Option<Account>;

    /// Takes all flows back at once. They stay published in name, until each is [taken back](Carrier::take_back).
    fn take_all_back(&mut self);

    /// Accounts for what was carried of a flow while it was taken back: packets that had arrived before. One flow at a time, until None.
    fn remainder(&mut self, now: Nanos) -> Option<Account>;

    /// Next published flow, in turn. None if there is none.
    fn next(&mut self) -> Option<FlowId>;

    /// Number of published flows.
    fn published(&self) -> usize;
}

/// Result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The kernel carries the flow.
    Yes,
    /// There is no room, or the kernel does not serve an interface of the flow.
    No,
}

/// Treatment of the plain packets of one direction of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Addresses and ports as packets arrive.
    pub arrives: Ends,
    /// Addresses and ports as packets leave.
    pub leaves: Ends,
    /// Interface by which packets arrive.
    pub ingress: Via,
    /// Interface by which packets leave.
    pub egress: Via,
    /// Destination and source address of the Ethernet header.
    pub header: [u8; 12],
    /// Largest IP packet that leaves, in bytes.
    pub mtu: u16,
    /// Code points of packets that are of the flow's class.
    pub dscp: DscpSet,
    /// Code point that packets leave with; None for their own.
    pub mark: Option<Dscp>,
    /// TCP window state of the side that sends this way; None for UDP.
    pub side: Option<TcpSide>,
}

/// Interface that packets arrive or leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// The interface.
    pub interface: PortId,
    /// The interface whose port has its frames: itself, unless it is a VLAN.
    pub port: PortId,
    /// VLAN tag of its frames, with the priority of frames that leave; frames that arrive may have any.
    pub tag: Option<vlan::Tag>,
}

impl Via {
    /// VLAN of frames that arrive; 0 for the port's own, which may have a tag that says a priority alone.
    pub fn vlan(&self) -> u16 {
        self.tag.map_or(0, vlan::Tag::id)
    }
}

/// Counters that the packets of a published flow belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// [`Meta::rule`](wire::Meta).
    pub rule: u32,
    /// [`Meta::nat`](wire::Meta).
    pub nat: u16,
    /// Traffic class, per [`Direction`]; 0 for none.
    pub classes: [u16; 2],
    /// Epoch of the tables that these are places in.
    pub epoch: u16,
}

/// Packets carried, as if cut to segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub packet_bytes: u64,
    /// Bytes of frames as received.
    pub frame_bytes: u64,
}

/// Account of a published flow.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Counters of the flow.
    pub tag: Tag,
    /// Packets carried since the last account, per [`Direction`].
    pub carried: [Carried; 2],
    /// Time of the last packet carried; None if there was none.
    pub seen: Option<Nanos>,
    /// TCP window state of both sides, per [`Direction`]; None for UDP.
    pub sides: Option<[TcpSide; 2]>,
    /// True if the kernel still carries the flow.
    pub is_live: bool,
}

/// Publication of a shard's flows.
#[derive(Default)]
pub struct FastPath {
    carrier: Option<Box<dyn Carrier>>,
    /// True while flows may be published.
    is_open: bool,
    /// Flows that have had enough packets since the last publication.
    candidates: ArrayVec<Candidate, BATCH>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: FlowId,
    direction: Direction,
    ingress: PortId,
}

/// Progress of a flow towards publication: one byte of the [`Flow`](crate::flow::Flow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Progress(u8);

impl Progress {
    /// Packets of a new flow before it is published: what ends sooner is not worth it.
    const ENOUGH: u8 = 6;
    /// Start and end of the count after a publication that was of little use, or that had no room.
    const AGAIN: u8 = 64;
    const ENOUGH_AGAIN: u8 = 127;
    const PUBLISHED: Progress = Progress(128);
    /// The flow as these tables have decided it cannot be published.
    const REFUSED: Progress = Progress(129);
    /// Packets carried from which on a publication was of use.
    const OF_USE: u64 = 100;

    /// True if the flow is published.
    #[inline(always)]
    pub(crate) fn is_published(self) -> bool {
        self == Progress::PUBLISHED
    }

    /// Counts a packet. True if it is enough for a publication.
    #[inline(always)]
    fn count(&mut self) -> bool {
        if self.0 >= Progress::PUBLISHED.0 {
            return false;
        }
        self.0 = if self.0 == Progress::ENOUGH_AGAIN { Progress::AGAIN } else { self.0 + 1 };
        matches!(self.0, Progress::ENOUGH | Progress::ENOUGH_AGAIN)
    }

    /// Uncounts the packet that was enough, as there is no room for the flow before the next publication: its next packet is enough again.
    fn take_back_one(&mut self) {
        self.0 -= 1;
    }
}

impl FastPath {
    /// Notes a packet of a flow that has simply been followed.
    #[inline(always)]
    pub(crate) fn note(
        &mut self,
        id: FlowId,
        direction: Direction,
        progress: &mut Progress,
        ingress: PortId,
    ) {
        if self.is_open && progress.count() {
            self.add(Candidate { id, direction, ingress }, progress);
        }
    }

    #[cold]
    fn add(&mut self, candidate: Candidate, progress: &mut Progress) {
        if !is_linux(candidate.ingress) && self.candidates.try_push(candidate).is_err() {
            progress.take_back_one();
        }
    }

    /// Takes back all flows at once: the kernel carries none from now on. For changes of neighbours, ports and tables.
    pub fn take_all_back(&mut self) {
        if let Some(carrier) = &mut self.carrier {
            carrier.take_all_back();
        }
    }

    /// Counts what was carried of a published flow, and returns when the last packet was.
    #[cold]
    pub(crate) fn last_carried(
        &mut self,
        id: FlowId,
        counters: &mut Counters,
        accounting: &mut Accounting,
        epoch: u16,
    ) -> Option<Nanos> {
        let account = self.carrier.as_mut()?.account(id)?;
        counters.count_carried(&account, epoch);
        accounting.count_carried(id, &account);
        account.seen
    }

    /// Takes back a flow that ends, and counts what was carried of it.
    #[cold]
    pub(crate) fn end(
        &mut self,
        id: FlowId,
        counters: &mut Counters,
        accounting: &mut Accounting,
        epoch: u16,
    ) {
        if let Some(account) = self.carrier.as_mut().and_then(|carrier| carrier.take_back(id)) {
            counters.count_carried(&account, epoch);
            accounting.count_carried(id, &account);
        }
    }

    /// Number of published flows.
    pub fn published(&self) -> usize {
        self.carrier.as_ref().map_or(0, |carrier| carrier.published())
    }
}

/// Most flows that are brought up to date at once where all are to be.
const AT_ONCE: usize = 16_384;

impl Shard {
    /// Publishes flows by a carrier from now on. Flows of a former carrier are taken back.
    pub fn publish_by(&mut self, carrier: Option<Box<dyn Carrier>>) {
        self.take_each_back();
        self.fast_path = FastPath { is_open: carrier.is_some(), carrier, candidates: ArrayVec::new() };
    }

    /// Pauses publication, and takes back all flows; or goes on with it.
    pub fn pause_publication(&mut self, pause: Pause) {
        let is_open = pause == Pause::No && self.fast_path.carrier.is_some();
        if self.fast_path.is_open && !is_open {
            self.fast_path.take_all_back();
            self.fast_path.candidates.clear();
        }
        self.fast_path.is_open = is_open;
    }

    /// True if a flow is published, and the kernel carries it unless all flows have been taken back.
    pub fn is_published(&self, id: FlowId) -> bool {
        self.flows.flow(id).is_some_and(|flow| flow.progress.is_published())
    }

    /// Publishes the flows of the last batches that have had enough packets.
    #[inline(always)]
    pub fn publish(&mut self, tables: &Tables) {
        if !self.fast_path.candidates.is_empty() {
            self.publish_candidates(tables);
        }
    }

    #[inline(never)]
    fn publish_candidates(&mut self, tables: &Tables) {
        for candidate in std::mem::take(&mut self.fast_path.candidates) {
            let Some(flow) = self.flows.flow(candidate.id) else { continue };
            if flow.progress.is_published() || flow.epoch != tables.epoch {
                continue;
            }
            let progress = match self.ways(candidate, tables) {
                Ok((ways, tag)) => {
                    let carrier = self.fast_path.carrier.as_mut();
                    let published =
                        carrier.map_or(Published::No, |carrier| carrier.publish(candidate.id, &ways, tag));
                    match published {
                        Published::Yes => Progress::PUBLISHED,
                        Published::No => Progress(Progress::AGAIN),
                    }
                }
                Err(Unpublished::Yet) => Progress(Progress::AGAIN),
                Err(Unpublished::Ever) => Progress::REFUSED,
            };
            if let Some(flow) = self.flows.flow_mut(candidate.id) {
                flow.progress = progress;
            }
        }
    }

    /// Treatment of both directions of a flow.
    fn ways(&self, candidate: Candidate, tables: &Tables) -> Result<([Way; 2], Tag), Unpublished> {
        let Candidate { id, direction, ingress } = candidate;
        let flow = self.flows.flow(id).ok_or(Unpublished::Yet)?;
        if tables.mode != Mode::Stateful
            || flow.is_proxied()
            || flow.is_helped()
            || flow.is_across()
            || !are_classes_of_flows(tables)
        {
            return Err(Unpublished::Ever);
        }
        if !matches!(flow.state(), State::Established | State::UdpConfirmed) {
            return Err(Unpublished::Yet);
        }
        // Where windows are not checked they are followed all the same: other tables may check them. What is outside them the worker follows.
        let is_tcp = flow.state() == State::Established;
        let sides = if is_tcp { Some(flow.tcp_sides().ok_or(Unpublished::Yet)?) } else { None };
        let [there, back] = [Direction::Original, Direction::Reply].map(|of| {
            let hop = flow.hops[of as usize];
            self.hops.get(hop).filter(|_| leaves(hop)).ok_or(Unpublished::Yet)
        });
        let hops = [there?, back?];
        let way = |of: Direction| {
            let (hop, other) = (hops[of as usize], hops[of.turned() as usize]);
            // Answers come by the interface that packets to those who give them leave by, as far as is known.
            let ingress = if of == direction { ingress } else { other.interface };
            let path = path(hop, ingress, tables)?;
            let (arrives, turned) = (Ends::of(flow.key(of)), Ends::of(flow.key(of.turned())));
            let leaves = Ends {
                source: turned.destination,
                destination: turned.source,
                sport: turned.dport,
                dport: turned.sport,
                protocol: arrives.protocol,
            };
            let side = sides.map(|sides| sides[of as usize]);
            let class = self.class_of_flow(id, of, tables).ok_or(Unpublished::Yet)?;
            let Class { number, dscp } = class;
            let mark = tables.classes.get(number).and_then(|class| class.mark);
            let Path { ingress, header, .. } = path;
            let egress = with_priority(path.egress, &class, tables)?;
            Ok((Way { arrives, leaves, ingress, egress, header, mtu: hop.mtu, dscp, mark, side }, number))
        };
        let [(there, first), (back, second)] = [way(Direction::Original)?, way(Direction::Reply)?];
        let tag = Tag { rule: flow.rule, nat: flow.nat, classes: [first, second], epoch: flow.epoch };
        Ok(([there, back], tag))
    }

    /// Class of a flow's packets in a direction, that of the last one; None while it has not been looked for.
    fn class_of_flow(&self, id: FlowId, direction: Direction, tables: &Tables) -> Option<Class> {
        let classes = &tables.classes;
        if classes.is_empty() {
            return Some(Class { number: 0, dscp: DscpSet::ALL });
        }
        let (number, kind) = self.flows.classes.get(id)?.any_class(direction)?;
        // No class asks for the priority of a tag.
        let is_of_kind = |dscp: &Dscp| classes.kind(*dscp, Priority::DEFAULT).number() == kind;
        Some(Class { number, dscp: Dscp::all().filter(is_of_kind).collect() })
    }

    /// Brings a published flow up to date, before a packet of the flow is looked at; takes the flow back if the kernel carries it no
    /// longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn bring_up_to_date(&mut self, id: FlowId) {
        let account = self.fast_path.carrier.as_mut().and_then(|carrier| carrier.account(id));
        if let Some(account) = &account {
            self.enter(id, account);
        }
        if !account.is_some_and(|account| account.is_live) {
            self.take_back(id);
            // With all others: that says nothing about the use of publishing this one.
            if let Some(flow) = self.flows.flow_mut(id) {
                flow.progress = Progress::default();
            }
        }
    }

    /// Goes on with a published flow behind a packet that went through the pipeline, when the windows were `before`: the kernel follows, or
    /// the flow is taken back.
    #[cold]
    #[inline(never)]
    pub(crate) fn follow_published(
        &mut self,
        id: FlowId,
        direction: Direction,
        before: Option<[TcpSide; 2]>,
    ) {
        let Some(flow) = self.flows.flow(id) else { return };
        let (state, now) = (flow.state(), flow.tcp_sides());
        match (state, before, now) {
            (State::UdpConfirmed, ..) => {}
            (State::Established, Some(before), Some(now))
                if before[direction.turned() as usize] == now[direction.turned() as usize] =>
            {
                if let Some(carrier) = &mut self.fast_path.carrier {
                    carrier.set_side(id, direction, now[direction as usize]);
                }
            }
            _ => self.take_back(id),
        }
    }

    /// Takes a published flow back, with its account.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_back(&mut self, id: FlowId) {
        let account = self.fast_path.carrier.as_mut().and_then(|carrier| carrier.take_back(id));
        if let Some(account) = &account {
            self.enter(id, account);
        }
        if let Some(flow) = self.flows.flow_mut(id) {
            let of_use = account.is_some_and(|account| {
                account.carried.iter().map(|carried| carried.packets).sum::<u64>() >= Progress::OF_USE
            });
            flow.progress = Progress(if of_use { 0 } else { Progress::AGAIN });
        }
    }

    /// Enters the account of a flow into the flow and the counters.
    fn enter(&mut self, id: FlowId, account: &Account) {
        self.counters.count_carried(account, self.flows.epoch());
        self.accounting.count_carried(id, account);
        let seen = account.seen.map(|seen| self.flows.tick(seen).0);
        if let Some(flow) = self.flows.flow_mut(id) {
            flow.seen = flow.seen.max(seen.unwrap_or(0));
            if let Some(sides) = account.sides {
                flow.merge_tcp_sides(sides);
            }
        }
    }

    /// Brings the published ones of the flows in these places up to date.
    pub fn update_published(&mut self, places: Range<u32>) {
        for id in places.map(FlowId) {
            if self.is_published(id) {
                self.bring_up_to_date(id);
            }
        }
    }

    /// Takes published flows back where a dynamic set that rules or classes ask for has changed since the last time, once a second at most:
    /// their next packets notice what the change means for them.
    fn follow_sets(&mut self, now: Nanos) {
        if self.fast_path.published() > 0 && self.sets.stamps.is_to_follow(now) {
            self.fast_path.take_all_back();
        }
    }

    /// Brings some published flows up to date, in turn: `most` of them. A change of a dynamic set takes all back.
    pub fn sweep_published(&mut self, most: usize, now: Nanos) {
        self.follow_sets(now);
        while let Some(account) = self.fast_path.carrier.as_mut().and_then(|carrier| carrier.remainder(now)) {
            self.counters.count_carried(&account, self.flows.epoch());
        }
        for _ in 0..most.min(self.fast_path.published()) {
            let Some(id) = self.fast_path.carrier.as_mut().and_then(|carrier| carrier.next()) else { return };
            self.bring_up_to_date(id);
        }
    }

    /// Brings all published flows up to date, or as many as do not take long: 16,384.
    pub fn sweep_all_published(&mut self, now: Nanos) {
        self.sweep_published(AT_ONCE, now);
    }

    /// Takes back all published flows, each with its account. Takes as long as they are many.
    pub(crate) fn take_each_back(&mut self) {
        while let Some(id) = self.fast_path.carrier.as_mut().and_then(|carrier| carrier.next()) {
            self.take_back(id);
        }
    }
}

/// Pause of publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Flows are not published.
    Yes,
    /// Flows are published.
    No,
}

/// Reason for not publishing a flow.
enum Unpublished {
    /// Something about the flow is not known yet.
    Yet,
    /// These tables do not allow it.
    Ever,
}

/// Class of a flow's packets in a direction.
struct Class {
    number: u16,
    /// Code points of the packets that are of that class.
    dscp: DscpSet,
}

/// True if a packet's class depends on nothing but its flow and its code point, and has no effect on its time.
fn are_classes_of_flows(tables: &Tables) -> bool {
    tables.classes.meters.is_empty() && !tables.classes.asks_priority()
}

/// Path of packets from an interface to a hop.
struct Path {
    ingress: Via,
    /// With a tag as the hop has it, whatever its priority.
    egress: Via,
    /// Ethernet addresses of frames that leave.
    header: [u8; 12],
}

/// Path of packets that come in by an interface and leave by a hop, if nothing but the hop decides on their way out.
fn path(hop: &Hop, ingress: PortId, tables: &Tables) -> Result<Path, Unpublished> {
    let (Some((from, _)), Some((to, port))) = (plain(ingress, tables), plain(hop.interface, tables)) else {
        return Err(Unpublished::Ever);
    };
    let queues = &tables.queues;
    let has_tree = queues.on(to.root).is_some()
        || [ingress, from.root].iter().any(|interface| queues.from(*interface).is_some());
    let holds_back = to.egress.holds_back() || port.egress.holds_back();
    if hop.tunnel != 0 || has_tree || holds_back || hop.is_session() {
        return Err(Unpublished::Ever);
    }
    let (header, tag) = hop.header().and_then(<[u8]>::split_first_chunk::<12>).ok_or(Unpublished::Yet)?;
    let tag = match *tag {
        [] => None,
        [a, b, c, d] => {
            Some(vlan::Tag { tpid: EtherType(u16::from_be_bytes([a, b])), tci: u16::from_be_bytes([c, d]) })
        }
        _ => return Err(Unpublished::Ever),
    };
    if tag.is_some_and(|tag| tag.tpid != EtherType::VLAN) {
        return Err(Unpublished::Ever);
    }
    Ok(Path {
        ingress: Via { interface: ingress, port: from.root, tag: from.tags.outer() },
        egress: Via { interface: hop.interface, port: to.root, tag },
        header: *header,
    })
}

/// An interface, and the one whose port has its frames, if these have nothing but an Ethernet header with at most one tag, and one address.
fn plain(id: PortId, tables: &Tables) -> Option<(&Interface, &Interface)> {
    let interface = tables.interface(id)?;
    let port = tables.interface(interface.root)?;
    let has_session = [interface, port].iter().any(|own| own.ppp.is_some() || own.channel.is_some());
    // The kernel tells the port's address from others.
    let is_port = interface.hearing == Hearing::All || interface.mac == port.mac;
    (!has_session && is_port && interface.tags.as_slice().len() < 2).then_some((interface, port))
}

/// The egress of packets of a class, with the priority of their tag. None is published of which it depends on more than the class.
fn with_priority(egress: Via, class: &Class, tables: &Tables) -> Result<Via, Unpublished> {
    let Some(tag) = egress.tag else { return Ok(egress) };
    let interface = tables.interface(egress.interface).ok_or(Unpublished::Ever)?;
    let marks = tables.classes.get(class.number);
    let priority = |arrived: Dscp| {
        let dscp = marks.and_then(|class| class.mark).unwrap_or(arrived);
        interface.priorities.of_packet(dscp, Colour::of(dscp), marks.and_then(|class| class.mark_pcp))
    };
    let mut priorities = Dscp::all().filter(|dscp| class.dscp.has(*dscp)).map(priority);
    let first = priorities.next().ok_or(Unpublished::Yet)?;
    if priorities.any(|priority| priority != first) {
        // A packet of another class may come.
        return Err(if tables.classes.is_empty() { Unpublished::Ever } else { Unpublished::Yet });
    }
    Ok(Via { tag: Some(tag.with_priority(first)), ..egress })
}
