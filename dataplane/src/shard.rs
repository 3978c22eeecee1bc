//! The mutable memory of one worker: flows, mappings, hops, limits, fragments, queues, counters.
//!
//! All memory is allocated when the shard is created, to the limits that the tables state; nothing grows later.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use lookup::memory::{MemoryError, Paging};
use policy::model::{Mode, Scope};
use tally::{NoTally, Tally};
use wire::{BATCH, Batch, Frame, Meta, Nanos, PortId};

use crate::accounting::Accounting;
use crate::channel::Channels;
use crate::client::Clients;
use crate::cookie::Cookies;
use crate::counter::Counters;
use crate::egress::{Egress, Ends, Handoff, Next, Order};
use crate::fast_path::FastPath;
use crate::flow::{self, Cold, Flow, FlowId, FlowTable, Life, Member, Timeouts};
use crate::fragment::{Fragments, Releases};
use crate::fragmentation::MOST_PARTS;
use crate::helper::Expectations;
use crate::hop::{Hops, MOST_WAITING, Resolve};
use crate::import::Imports;
use crate::limiter::{self, CountId, Limiter};
use crate::log::{Cause, Log};
use crate::meter::Meters;
use crate::multicast::Misses;
use crate::nat::{BlockEvent, Capacity, ConfigError, MappingId, Mappings, PoolId, Share};
use crate::opening::{Opening, Openings};
use crate::peer::Handover;
use crate::port_mapping::PortMappings;
use crate::ppp::Sessions;
use crate::recorder::Recorder;
use crate::sa::Sas;
use crate::set::Sets;
use crate::sync::Changes;
use crate::tables::{Address, LOCAL, MulticastRoutes, Tables, is_linux};
use crate::verdict::{Reason, Verdict};

/// Neighbours on links, beyond those that the policy names.
pub const NEIGHBOURS: usize = 65_536;

/// The mutable memory of one worker.
pub struct Shard {
    /// Flows.
    pub flows: FlowTable,
    /// Translations that source NAT has chosen.
    pub mappings: Mappings,
    /// Security associations of tunnels.
    pub sas: Sas,
    /// Next hops.
    pub hops: Hops,
    /// Buckets and counts.
    pub limiter: Limiter,
    /// Traffic meters.
    pub meters: Meters,
    /// Fragments of datagrams that are not complete.
    pub fragments: Fragments,
    /// Fragments that the first one of their datagram has released, where a host has them kept.
    pub releases: Releases,
    /// AAL5 PDUs of ATM virtual channels that are not complete.
    pub channels: Channels,
    /// PPP sessions.
    pub sessions: Sessions,
    /// Makes and opens cookies of SYNs that the gateway answers: the same for all workers.
    pub(crate) cookies: Cookies,
    /// DHCP clients on the gateway itself; workers share it.
    pub clients: Arc<Clients>,
    /// Queue and link of each port.
    pub egress: Egress,
    /// Packet and event counters.
    pub counters: Counters,
    /// Records for a host that writes a log.
    pub log: Log,
    /// Flow records and NAT events for a host that exports them.
    pub accounting: Accounting,
    /// Flows that a second gateway is to be told of, where a host synchronises.
    pub changes: Changes,
    /// Packets that are handed over to that gateway.
    pub handover: Handover,
    /// Last packets dropped and answered, by reason, where a host has them kept.
    pub recorder: Recorder,
    /// Numbers of imported items, accepted and refused.
    pub imports: Imports,
    /// Decisions on flows that frames under way open.
    pub openings: Openings,
    /// Flows that the kernel carries.
    pub fast_path: FastPath,
    /// Elements of dynamic sets.
    pub sets: Sets,
    /// Connections that helpers expect.
    pub(crate) expectations: Expectations,
    /// Packets to groups without a route that have been given to Linux.
    pub(crate) misses: Misses,
    /// Multicast routes newer than those of the tables; none where these are the newest.
    pub(crate) multicast: Option<Arc<MulticastRoutes>>,
    /// Outside ports that hosts have asked for.
    pub port_mappings: PortMappings,
    /// Frames no longer pending, because of a timeout or because the fragment or neighbour has come: next to be processed.
    pub released: VecDeque<Frame>,
    /// Further fragments of the packet under way.
    pub parts: VecDeque<Frame>,
    /// The next identification of a packet that the gateway itself sends.
    pub next_id: u16,
}

/// Parameters that a host sets for a shard.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Key of the hashes and of the selection of ports: random and secret in a live host, fixed in a replay.
    pub seed: [u64; 2],
    /// Time at the host's start.
    pub now: Nanos,
    /// Resolution of unknown neighbours. With resolution by the host, pending frames take up to [`MOST_WAITING`] further slots.
    pub resolve: Resolve,
    /// Share of the NAT pools' ports that this shard allocates.
    pub share: Share,
}

/// Failure to create a shard.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The system refused memory.
    #[error("flow table and sets: {0}")]
    Memory(MemoryError),
    /// Errors in the configuration of the NAT pools.
    #[error("address translation: {}", joined(.0))]
    Nat(Vec<ConfigError>),
}

impl Shard {
    /// Allocates all memory, to the limits that the tables state.
    pub fn new(tables: &Tables, setup: Setup) -> Result<Shard, ShardError> {
        Shard::paged(tables, setup, Paging::Prefault)
    }

    /// [`Shard::new`], with pages of the large tables at the moment that `paging` says. What a reload adds is there at once.
    pub fn paged(tables: &Tables, setup: Setup, paging: Paging) -> Result<Shard, ShardError> {
        let timeouts = timeouts(tables);
        let mut flows = FlowTable::paged(most_flows(tables), setup.seed, timeouts, setup.now, paging)
            .map_err(ShardError::Memory)?;
        flows.begin_epoch(tables.epoch, timeouts);
        let most = most_flows(tables);
        if tables.filter.has_syn_proxy {
            flows.numbers.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        if tables.source_macs.is_some() {
            flows.senders.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        if remembers_classes(tables) {
            flows.classes.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        if watches_sets(tables) {
            flows.watches.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        if remembers_wans(tables) {
            flows.wans.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        if tables.filter.has_helpers {
            flows.helped.keep(flow::records(most, paging).map_err(ShardError::Memory)?);
        }
        let sessions = Sessions::new(tables, &setup);
        sessions.begin();
        let mut sas = Sas::new(tables, setup.share);
        sas.begin(setup.now);
        Ok(Shard {
            flows,
            mappings: Mappings::paged(
                most_mappings(tables),
                &tables.nat.pools,
                setup.seed,
                setup.share,
                paging,
            )
            .map_err(ShardError::Nat)?,
            sas,
            hops: Hops::new(tables, setup.resolve, NEIGHBOURS).map_err(ShardError::Memory)?,
            limiter: Limiter::new(tables, setup.share, paging).map_err(ShardError::Memory)?,
            meters: Meters::new(tables, setup.share, setup.now, paging).map_err(ShardError::Memory)?,
            fragments: Fragments::new(&tables.limits.fragments, tables.timeouts.fragment, setup.seed)
                .map_err(ShardError::Memory)?,
            releases: Releases::default(),
            channels: Channels::new(tables),
            sessions,
            cookies: Cookies::new(setup.seed),
            clients: Arc::default(),
            egress: Egress::new(tables, setup.share, setup.seed).map_err(ShardError::Memory)?,
            counters: Counters::new(tables),
            log: Log::default(),
            accounting: Accounting::default(),
            changes: Changes::default(),
            handover: Handover::None,
            recorder: Recorder::default(),
            imports: Imports::default(),
            openings: Openings::default(),
            fast_path: FastPath::default(),
            sets: Sets::new(tables, setup.seed, paging).map_err(ShardError::Memory)?,
            expectations: Expectations::new(tables),
            misses: Misses::default(),
            multicast: None,
            port_mappings: PortMappings::new(tables, setup.seed[0]),
            released: VecDeque::with_capacity(most_released(tables)),
            parts: VecDeque::with_capacity(MOST_PARTS + BATCH),
            next_id: 1,
        })
    }

    /// Shares the work with other workers' shards, whose seed is the same and whose shares of ports are others: what belongs to
    /// a flow of theirs is handed off ([`handoff`](crate::handoff)) from now on.
    pub fn join(&mut self, member: Member) {
        self.flows.join(member);
    }

    /// Answers an opportunity to send by a port at `now`, and counts the final verdict of the frame that takes it or is dropped.
    #[inline(always)]
    pub fn next(&mut self, port: PortId, now: Nanos) -> Next {
        self.next_tallied(port, now, &mut NoTally)
    }

    /// Moves the frames that [`Shard::next`] would give at `now` into `out`, in order and as long as there is room, and counts their final
    /// verdicts: those of a port whose queue has neither a tree nor a rate. What comes next, and what departs of other ports, says
    /// [`Shard::next`].
    #[inline(always)]
    pub fn dequeue_burst(&mut self, port: PortId, now: Nanos, out: &mut Batch) {
        let Shard { egress, counters, .. } = self;
        egress.dequeue_burst(port, now, out, |frame| counters.count_departed(frame));
    }

    /// [`Shard::next`] of a port whose interface has gone from the system: the frame whose turn it is is dropped, and counts so.
    #[cold]
    pub fn next_in_vain(&mut self, port: PortId, now: Nanos) -> Next {
        let next = self.egress.next(port, now, &mut NoTally);
        self.counted(match next {
            Next::Frame(frame, at) => Next::Dropped(frame, Reason::InterfaceGone, at),
            other => other,
        })
    }

    /// [`Shard::next`] with a tally of what scheduling and shaping cost.
    #[inline(always)]
    pub fn next_tallied<T: Tally>(&mut self, port: PortId, now: Nanos, tally: &mut T) -> Next {
        let next = self.egress.next(port, now, tally);
        self.counted(next)
    }

    /// Counts the final verdict of the frame that an opportunity was for.
    #[inline(always)]
    fn counted(&mut self, mut next: Next) -> Next {
        match &mut next {
            Next::Frame(frame, _) => self.counters.count_departed(frame),
            Next::Dropped(frame, reason, at) => {
                let is_part = frame.meta.fate == 0;
                self.counters.count_lost(frame, *reason);
                // A further fragment has no verdict of its own.
                if is_part {
                    frame.meta.fate = 0;
                }
                self.recorder.note_dropped(frame, *at);
            }
            Next::Wait(_) | Next::Empty => {}
        }
        next
    }

    /// Offers `give` the packets whose trees other workers serve, in order. Those that it refuses stay, and are offered again.
    /// Returns the number of those that stay.
    #[inline(always)]
    pub fn hand_off(&mut self, mut give: impl FnMut(Handoff, &FlowTable) -> Result<(), Handoff>) -> usize {
        match self.egress.handoffs() {
            Some(waiting) => hand_off(waiting, &mut self.counters, |packet| give(packet, &self.flows)),
            None => 0,
        }
    }

    /// Queues a frame that another worker has handed off to be queued here, decided by tables of that epoch; ports are those of
    /// this worker's tables.
    ///
    /// # Errors
    /// There is no room: the frame comes back, dropped and counted.
    pub fn take_handed_off(
        &mut self,
        mut frame: Frame,
        ingress: PortId,
        ends: Ends,
        epoch: u16,
    ) -> Result<(), Frame> {
        let order = match self.flows.epoch().wrapping_sub(epoch) {
            0 => Order::Same,
            1..=0x7fff => Order::Previous,
            _ => Order::Next,
        };
        if order != Order::Same {
            // Places in other tables. The code point is left to find the queue by.
            (frame.meta.rule, frame.meta.nat, frame.meta.class) = (Meta::NO_RULE, 0, 0);
        }
        self.counters.count_queue_taken(frame.meta.fate);
        if let Some(reason) = self.egress.refusal(ingress, frame.meta.egress) {
            self.lose(&mut frame, reason);
            return Err(frame);
        }
        self.egress.take(frame, ingress, ends, order);
        Ok(())
    }

    /// Counts a packet that another worker has handed off to be queued here, and that could not be taken in. Places in its metadata are
    /// those of this worker's tables.
    pub fn count_handoff_lost(&mut self, frame: &mut Frame, reason: Reason) {
        self.counters.count_queue_taken(frame.meta.fate);
        self.lose(frame, reason);
    }

    /// Counts and records a frame that is dropped instead of being queued.
    fn lose(&mut self, frame: &mut Frame, reason: Reason) {
        let is_part = frame.meta.fate == 0;
        self.counters.count_lost(frame, reason);
        if !is_part {
            self.recorder.note_dropped(frame, frame.meta.received);
        }
    }

    /// Counts a frame whose handoff to another worker failed: dropped.
    pub fn count_not_carried(&mut self, frame: &mut Frame) {
        self.counters.count_not_carried(frame);
        self.recorder.note_dropped(frame, frame.meta.received);
    }

    /// Counts a frame that was to be [handed over](crate::peer) and that the link to the second gateway has not taken: dropped.
    pub fn count_not_handed_over(&mut self, frame: &mut Frame) {
        self.counters.count_not_handed_over(frame);
        self.recorder.note_dropped(frame, frame.meta.received);
    }

    /// Counts a frame that another worker has handed off and that could not be taken in. Places in its metadata are those of this
    /// worker's tables.
    pub fn count_not_taken(&mut self, frame: &mut Frame, reason: Reason) {
        self.counters.count_not_taken(reason);
        frame.meta.fate = Verdict::Dropped(reason).to_fate();
        self.recorder.note_dropped(frame, frame.meta.received);
    }

    /// Counts a frame dropped before it was taken in.
    pub(crate) fn count_refused(&mut self, bytes: &[u8], ingress: PortId, at: Nanos, reason: Reason) {
        self.counters.count_refused(bytes.len(), reason);
        self.recorder.note_refused(bytes, ingress, at, reason);
    }

    /// Queues a frame whose verdict and egress port are in its metadata before that port, which has a tree of queues; the scheduler
    /// drops it where there is no room. The pipeline queues frames by itself.
    #[inline]
    pub fn enqueue<T: Tally>(&mut self, frame: Frame, ends: &Ends, tally: &mut T) {
        self.counters.count_queued(&frame);
        self.egress.enter(frame, LOCAL, ends, tally);
    }

    /// True if another flow can be created, with a mapping, and none has to make room for it.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.flows.len() < self.flows.capacity() && self.mappings.has_room()
    }

    /// Ends a flow at once, one that was idle for its timeout: its mappings and counts are given back.
    pub fn end_flow<T: Tally>(&mut self, id: FlowId, tally: &mut T) {
        self.end_flow_for(id, Cause::Timeout, tally);
    }

    /// Ends a flow at once, for another reason.
    pub(crate) fn end_flow_for<T: Tally>(&mut self, id: FlowId, cause: Cause, tally: &mut T) {
        if self.flows.flow(id).is_some_and(|flow| flow.progress.is_published()) {
            self.take_back(id);
        }
        if self.flows.flow(id).is_some_and(Flow::is_helped) {
            self.end_expectations_of(id);
        }
        if let (Some(flow), Some(cold)) = (self.flows.flow(id), self.flows.cold(id)) {
            self.log.note_closed(flow, cold, cause, self.flows.start());
            self.accounting.note_ended(id, flow, cold, cause, &self.hops);
            self.changes.note_ended(id, flow, cold, cause, &self.mappings);
            give_back(&mut self.mappings, &mut self.limiter, &mut self.log, &mut self.accounting, cold);
        }
        self.flows.remove(id, tally);
    }

    /// Has the next hops follow the PPP sessions that have changed.
    #[inline(always)]
    pub(crate) fn follow_sessions(&mut self, tables: &Tables) {
        if !self.sessions.is_empty() {
            let Shard { sessions, hops, .. } = self;
            sessions.follow(|interface, link| hops.follow(tables, interface, link));
        }
    }

    /// True if a flow, a pending fragment, news of a tunnel, an element of a set or an expectation is due.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.flows.is_due(now)
            || self.fragments.is_due(now)
            || self.sas.is_due(now)
            || self.sets.is_due(now)
            || self.expectations.is_due(now)
            || self.port_mappings.is_due(now)
    }

    /// Ends flows that have been idle for too long, up to a bounded number at once, and gives up neighbours that have been
    /// asked for too long.
    pub fn expire<T: Tally>(&mut self, now: Nanos, tally: &mut T) {
        let Shard { flows, mappings, limiter, log, accounting, changes, hops, fast_path, counters, .. } =
            self;
        let (start, epoch) = (flows.start(), flows.epoch());
        let mut has_ended = false;
        let fast_path = RefCell::new((fast_path, counters, accounting));
        let last_carried = |id| {
            let (fast_path, counters, accounting) = &mut *fast_path.borrow_mut();
            fast_path.last_carried(id, counters, accounting, epoch)
        };
        flows.advance(now, EXPIRED_AT_ONCE, tally, last_carried, |id, flow, cold| {
            let (fast_path, counters, accounting) = &mut *fast_path.borrow_mut();
            if flow.progress.is_published() {
                fast_path.end(id, counters, accounting, epoch);
            }
            log.note_closed(flow, cold, Cause::Timeout, start);
            accounting.note_ended(id, flow, cold, Cause::Timeout, hops);
            changes.note_ended(id, flow, cold, Cause::Timeout, mappings);
            give_back(mappings, limiter, log, accounting, cold);
            has_ended |= flow.is_helped();
        });
        if has_ended {
            self.end_orphaned_expectations();
        }
        self.sas.note_bounds_of_time(now);
        self.give_up_overdue(now);
    }

    /// Takes newer multicast routes, made for the tables of an epoch ([`Tables::with_multicast_routes`]), unless the shard has other tables by now.
    /// Returns the routes that are needed no more, for a thread that has time to free them.
    pub fn route_multicast(
        &mut self,
        routes: Arc<MulticastRoutes>,
        epoch: u16,
    ) -> Option<Arc<MulticastRoutes>> {
        if self.flows.epoch() == epoch { self.multicast.replace(routes) } else { Some(routes) }
    }

    /// Ends all flows at once.
    pub fn clear_flows(&mut self) {
        let all: Vec<FlowId> = self.flows.iter().map(|(id, _)| id).collect();
        for id in all {
            self.end_flow_for(id, Cause::Revoked, &mut NoTally);
        }
    }

    /// Releases up to two counts; `NOTHING` stands for none.
    pub(crate) fn uncount(&mut self, counts: [u32; 2]) {
        for count in counts.into_iter().filter(|count| *count != NOTHING) {
            self.limiter.uncount(CountId(count));
        }
    }

    /// Counts a flow that exists against the bounds of the rule that lets it in and of its source, however many there are
    /// already, and says where; `ingress` is where it began.
    pub(crate) fn count_anyway(
        &mut self,
        tables: &Tables,
        source: Address,
        ingress: PortId,
        rule: Option<u32>,
    ) -> [u32; 2] {
        let vrf = tables.vrf_number(tables.vrf_of(ingress));
        let mut count = |number: u32, rule: u32, scope| {
            let subject = limiter::subject_in(vrf, source, number);
            let hash = self.flows.hash(&subject, &mut NoTally);
            self.limiter.count(rule, scope, u32::MAX, &subject, hash).map_or(NOTHING, |count| count.0)
        };
        let found = rule.and_then(|place| Some((place, tables.filter.rules.get(place as usize)?)));
        let limit = found.and_then(|(place, rule)| Some((place, rule.number, rule.connections?.scope)));
        let by_rule = limit.map_or(NOTHING, |(place, number, scope)| count(number, place, scope));
        let is_bounded = tables.limits.flows_per_source.is_some() && !is_linux(ingress);
        let all = limiter::ALL_RULES;
        [by_rule, if is_bounded { count(all, all, Scope::Source) } else { NOTHING }]
    }

    /// Releases the mappings and counts of the opening of a frame whose flow will not be created.
    #[inline(always)]
    pub(crate) fn abandon_opening(&mut self, frame: &mut Frame) {
        if let Some(opening) = self.openings.take(&mut frame.meta) {
            self.abandon(&opening);
        }
    }

    /// Number of blocks of ports that hosts have, by source translation, in the order of the tables.
    pub fn blocks_of_sources(&self, tables: &Tables) -> Vec<u32> {
        let mut counts = vec![0; tables.nat.sources.len()];
        for (pool, owner) in (0..).zip(&tables.nat.owners) {
            if let Some(count) = counts.get_mut(usize::from(owner.source)) {
                *count += self.mappings.usage(PoolId(pool)).map_or(0, |usage| usage.blocks);
            }
        }
        counts
    }

    /// Notes a block of ports that a host has taken or given back.
    pub(crate) fn note_block(&mut self, event: BlockEvent) {
        self.log.note_block(event);
        self.accounting.note_block(event);
    }

    /// Notes the blocks of ports that a mapping, or the end of one, has led to.
    #[inline(always)]
    pub(crate) fn note_blocks(&mut self) {
        note_blocks(&mut self.mappings, &mut self.log, &mut self.accounting);
    }

    /// Releases a mapping, and notes what ends with it.
    pub(crate) fn release_mapping(&mut self, mapping: MappingId) {
        release(&mut self.mappings, &mut self.log, &mut self.accounting, mapping);
    }

    /// Releases the mappings and counts of an opening that has been taken from its frame.
    pub(crate) fn abandon(&mut self, opening: &Opening) {
        for mapping in [opening.mapping, opening.inward].into_iter().flatten() {
            self.release_mapping(mapping);
        }
        for count in [opening.count, opening.source_count].into_iter().flatten() {
            self.limiter.uncount(count);
        }
    }
}

/// [`Shard::hand_off`], where packets wait.
#[inline(never)]
fn hand_off(
    waiting: &mut VecDeque<Handoff>,
    counters: &mut Counters,
    mut give: impl FnMut(Handoff) -> Result<(), Handoff>,
) -> usize {
    for _ in 0..waiting.len() {
        let Some(handoff) = waiting.pop_front() else { break };
        let fate = handoff.frame.meta.fate;
        match give(handoff) {
            Ok(()) => counters.count_queue_given(fate),
            Err(back) => waiting.push_back(back),
        }
    }
    waiting.len()
}

/// Returns the idle timeouts of flows, by state and protocol.
pub(crate) fn timeouts(tables: &Tables) -> Timeouts {
    let spans = tables.timeouts;
    Timeouts::new(|life| match life {
        Life::TcpHalfOpen => spans.tcp_half_open,
        Life::TcpEstablished => spans.tcp_established,
        Life::TcpClosing => spans.tcp_closing,
        Life::TcpReset => spans.tcp_reset,
        Life::Udp => spans.udp,
        // Never longer than where there is an answer.
        Life::UdpUnanswered => spans.udp_unanswered.min(spans.udp),
        Life::Icmp => spans.icmp,
        Life::Other => spans.other,
    })
    .with_own(&tables.idle)
}

/// True if flows have traffic classes.
pub(crate) fn remembers_classes(tables: &Tables) -> bool {
    tables.mode == Mode::Stateful && !tables.classes.is_empty()
}

/// True if flows notice changes of dynamic sets.
pub(crate) fn watches_sets(tables: &Tables) -> bool {
    tables.mode == Mode::Stateful && tables.set_questions.are_watched()
}

/// True if flows have WANs.
pub(crate) fn remembers_wans(tables: &Tables) -> bool {
    tables.mode == Mode::Stateful && !tables.wans.is_empty()
}

/// Returns the number of frames that may be released and not be processed yet: those pending, and copies of a packet.
pub(crate) fn most_released(tables: &Tables) -> usize {
    (tables.limits.fragments.held + MOST_WAITING) as usize + 1 + tables.most_copies()
}

/// Returns the number of flows to allocate memory for; 1 without connection tracking.
pub(crate) fn most_flows(tables: &Tables) -> u32 {
    match tables.mode {
        Mode::Stateful => tables.limits.flows,
        Mode::Stateless => 1,
    }
}

/// Returns the numbers of mappings, and of inside hosts with mappings, to allocate memory for.
pub(crate) fn most_mappings(tables: &Tables) -> Capacity {
    // One more than there can be flows, each of another host at worst: what is full is then the flow table,
    // which knows who makes room.
    let asked: u32 = tables.nat.port_mappings.iter().map(|spec| spec.size).fold(1, u32::saturating_add);
    let mappings = if tables.nat.pools.is_empty() { 1 } else { most_flows(tables).saturating_add(asked) };
    // Where flows are many, not each of them is another host's: 1,000,000 then take 250 MB in all.
    let hosts = if mappings > 1 << 16 { mappings - mappings / 4 } else { mappings };
    Capacity { mappings, hosts }
}

/// Flows looked at when the timer is due: few enough not to delay the packet that brought the time.
const EXPIRED_AT_ONCE: u32 = 256;

/// Value for none in a flow's numbers of mappings and counts.
pub(crate) const NOTHING: u32 = u32::MAX;

/// Returns the texts of errors, separated by semicolons.
fn joined(errors: &[ConfigError]) -> String {
    errors.iter().map(ConfigError::to_string).collect::<Vec<_>>().join("; ")
}

#[inline(always)]
fn note_blocks(mappings: &mut Mappings, log: &mut Log, accounting: &mut Accounting) {
    while let Some(event) = mappings.take_block_event() {
        log.note_block(event);
        accounting.note_block(event);
    }
}

/// Releases a mapping, and notes what ends with it. Not tallied: whoever ended what held it has been charged for that.
#[inline(always)]
pub(crate) fn release(
    mappings: &mut Mappings,
    log: &mut Log,
    accounting: &mut Accounting,
    mapping: MappingId,
) {
    log.note_released(mappings, mapping);
    mappings.release(mapping, &mut NoTally);
    note_blocks(mappings, log, accounting);
}

fn give_back(
    mappings: &mut Mappings,
    limiter: &mut Limiter,
    log: &mut Log,
    accounting: &mut Accounting,
    cold: &Cold,
) {
    for mapping in [cold.mapping, cold.inward] {
        if mapping != NOTHING {
            release(mappings, log, accounting, MappingId(mapping));
        }
    }
    for count in [cold.limit, cold.source] {
        if count != NOTHING {
            limiter.uncount(CountId(count));
        }
    }
}
