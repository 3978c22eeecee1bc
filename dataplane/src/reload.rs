//! Reload: new tables replace those that a shard works with, while it works.
//!
//! Another thread [prepares](ReloadPlan::prepare) a reload plan: it renumbers what both tables name, and allocates the memory that
//! the new ones need. The worker [applies](Shard::apply) it between two batches, once what came out of the last one has been taken
//! away. That takes as long as rules, translations, interfaces, outside addresses and fragments are many, not flows: the
//! flows of before are of an earlier epoch from then on, and each is revalidated at its next packet (`stage/revalidate.rs`).
//!
//! State that survives a reload, by name:
//! - counters of rules and translations; those of names that are gone go into sums ([`Gone`](crate::counter::Gone));
//! - pools of a translation (of a masquerade: for each interface) with their hosts and mappings, whatever else about them
//!   has changed, and outside addresses by their value; a pool with blocks only as it is, as blocks are owned by
//!   arithmetic;
//! - token debts under a rate, if name and rate are the same; counts of connections with the name;
//! - queues and links of ports. Frames that wait for one that is gone are dropped ([`Reason::InterfaceGone`]);
//! - datagrams under way, where the interfaces that they may come by are still the same.
//!
//! Next hops are made anew, with the neighbours that the policy names; a host that knows others updates the plan
//! ([`ReloadPlan::update_neighbours`]), or the shard afterwards ([`Shard::replace_neighbours`]). Frames pending for neighbours are released, as their route may be
//! another: they go through at the next batch or [`Pipeline::tend`](crate::Pipeline::tend).
//!
//! Limits hold at once, but for these:
//! - another number of `flows`, or another `mode`, means other memory: all flows are taken over one by one, while the worker
//!   stands still, for about a second where there are a million (and twice the memory is in use until then). What does
//!   not fit any more is refused as when state is [imported](crate::state), and counted there;
//! - a shorter `timeout` ends flows that are over by it at their next packet, and gives their memory back within 512
//!   seconds;
//! - `queue`: a shorter queue keeps what waits in it;
//! - `flows-per-source` and `connections` are for those that come: flows that exist are counted, not ended.

use std::fmt;

use wire::{Frame, Nanos, PortId};

use crate::counter::CountersPlan;
use crate::egress::{Egress, Links};
use crate::flow::{Numbers, Senders, Timeouts, numbers, senders};
use crate::fragment::{FragmentsPlan, Moved};
use crate::hop::{Hops, MOST_WAITING, TooMany, Wanted};
use crate::limiter::LimiterPlan;
use crate::nat::{ConfigError, Mappings, MappingsPlan, RetiredMappings};
use crate::shard::{NEIGHBOURS, Setup, Shard, ShardError, most_flows, most_mappings, timeouts};
use crate::state::{Cursor, Imports, Item};
use crate::tables::{LOCAL, Neighbour, Tables};
use crate::verdict::{Reason, Verdict};

mod renumbering;

pub(crate) use renumbering::Renumbering;

/// Reload plan for one shard: what was renumbered, and memory for the new tables.
pub struct ReloadPlan {
    from: u16,
    to: u16,
    renumbering: Renumbering,
    timeouts: Timeouts,
    hops: Hops,
    limiter: LimiterPlan,
    counters: CountersPlan,
    mappings: MappingsPlan,
    /// Memory for mappings, where none was needed so far.
    newly_mapped: Option<Box<Mappings>>,
    /// Memory for handshakes, where the gateway has made none so far.
    newly_proxied: Option<Numbers>,
    /// Memory for MAC addresses of flows, where no rule has asked for any so far.
    newly_asked: Option<Senders>,
    fragments: FragmentsPlan,
    egress: Egress,
    /// Where flows need other memory: all of it.
    renewed: Option<Box<Shard>>,
}

/// Result of a reload.
pub struct Applied {
    /// Flows that were taken over into other memory, and those that could not be; none where that was not needed.
    pub carried: Imports,
    /// Retired state: freeing its memory may take longer than all else.
    _retired: Box<Retired>,
}

/// Retired state: what the shard had before.
struct Retired {
    _hops: Hops,
    _limiter: LimiterPlan,
    _counters: CountersPlan,
    _mappings: RetiredMappings,
    _newly_mapped: Option<Box<Mappings>>,
    _newly_proxied: Option<Numbers>,
    _newly_asked: Option<Senders>,
    _fragments: FragmentsPlan,
    _egress: Egress,
    _renewed: Option<Box<Shard>>,
}

/// Why there is no reload plan.
#[derive(Debug)]
pub enum PlanError {
    /// The new tables were not made as those after the old ones ([`Tables::after`]).
    NotNext,
    /// Memory or pools that it would take.
    Shard(ShardError),
}

/// The plan is for a shard that works with other tables, or leads to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfTurn;

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NotNext => f.write_str("the new tables do not follow the old ones"),
            PlanError::Shard(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl fmt::Display for OutOfTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reload plan is not from the tables that the shard works with to those given")
    }
}

impl std::error::Error for OutOfTurn {}

impl From<Vec<ConfigError>> for PlanError {
    fn from(errors: Vec<ConfigError>) -> PlanError {
        PlanError::Shard(ShardError::Nat(errors))
    }
}

impl From<ShardError> for PlanError {
    fn from(error: ShardError) -> PlanError {
        PlanError::Shard(error)
    }
}

impl ReloadPlan {
    /// Prepares what leads from `old`, with which a shard works, to `new`, made by [`Tables::after`]. `setup` is what the
    /// shard was made with, but for the moment, which is that of today.
    ///
    /// # Errors
    /// The tables are not those, or the system has not enough memory.
    pub fn prepare(old: &Tables, new: &Tables, setup: Setup) -> Result<ReloadPlan, PlanError> {
        if !new.follows(old) {
            return Err(PlanError::NotNext);
        }
        let renumbering = Renumbering::new(old, new);
        let share = setup.share;
        let newly_mapped = if old.nat.pools.is_empty() && !new.nat.pools.is_empty() {
            let mappings = Mappings::new(most_mappings(new), &[], setup.seed, share)?;
            Some(Box::new(mappings))
        } else {
            None
        };
        let renewed =
            if most_flows(old) == most_flows(new) { None } else { Some(Box::new(Shard::new(new, setup)?)) };
        let memory = |error| PlanError::Shard(ShardError::Memory(error));
        // Whether connections have handshakes from tables before the old ones is not known here.
        let may_need = renewed.is_some() || !old.filter.has_syn_proxy && new.filter.has_syn_proxy;
        let newly_proxied = if may_need { Some(numbers(most_flows(new)).map_err(memory)?) } else { None };
        let may_ask = renewed.is_some() || old.source_macs.is_none() && new.source_macs.is_some();
        let newly_asked = if may_ask { Some(senders(most_flows(new)).map_err(memory)?) } else { None };
        let moved = if renumbering.ct_zones.is_empty() { Moved::None } else { Moved::Some };
        Ok(ReloadPlan {
            from: old.epoch,
            to: new.epoch,
            timeouts: timeouts(new),
            hops: Hops::new(new, setup.resolve, NEIGHBOURS).map_err(memory)?,
            limiter: LimiterPlan::prepare(old, new, &renumbering.rules_were),
            counters: CountersPlan::prepare(old, new, &renumbering),
            mappings: MappingsPlan::prepare(
                &old.nat.pools,
                &new.nat.pools,
                renumbering.pools_were.clone(),
                share,
            )?,
            newly_mapped,
            newly_proxied,
            newly_asked,
            fragments: FragmentsPlan::prepare(old, new, setup.seed, moved).map_err(memory)?,
            egress: Egress::new(new, Links::of(share)),
            renewed,
            renumbering,
        })
    }

    /// Updates neighbours, while there is time. `tables` are the new ones.
    ///
    /// # Errors
    /// Some stay unknown: there are more than there is room for.
    pub fn update_neighbours(&mut self, tables: &Tables, neighbours: &[Neighbour]) -> Result<(), TooMany> {
        neighbours.iter().try_for_each(|neighbour| {
            self.hops.update(
                tables,
                Wanted { interface: neighbour.interface, address: neighbour.address },
                neighbour.mac,
            )
        })
    }
}

impl Shard {
    /// Works with `tables` from now on, as `plan` has prepared. Frames that end by it are put behind `ended`, as
    /// [`Pipeline::run`](crate::Pipeline::run) does; those of them that were held end with the next batch, or when the shard
    /// is next tended.
    ///
    /// # Errors
    /// [`OutOfTurn`]: it is not for this; nothing is changed.
    pub fn apply(
        &mut self,
        plan: ReloadPlan,
        tables: &Tables,
        now: Nanos,
        ended: &mut Vec<Frame>,
    ) -> Result<Applied, OutOfTurn> {
        if plan.from != self.flows.epoch() || plan.to != tables.epoch {
            return Err(OutOfTurn);
        }
        let ReloadPlan {
            renumbering,
            mut hops,
            mut newly_mapped,
            mut newly_proxied,
            mut newly_asked,
            mut renewed,
            ..
        } = plan;
        if let Some(fresh) = newly_mapped.as_deref_mut() {
            if self.mappings.is_empty() && self.mappings.capacity() < fresh.capacity() {
                std::mem::swap(&mut self.mappings, fresh);
            }
        }
        // What is to be moved needs a place for its handshakes and MAC addresses, whatever the new tables ask for.
        let keeps = |remembers| renewed.is_none() || remembers;
        let handshakes = keeps(self.flows.remembers_handshakes());
        let macs = keeps(self.flows.remembers_senders());
        let flows = renewed.as_deref_mut().map_or(&mut self.flows, |fresh| &mut fresh.flows);
        if handshakes {
            newly_proxied = newly_proxied.and_then(|numbers| flows.remember_handshakes(numbers));
        }
        if macs {
            newly_asked = newly_asked.and_then(|senders| flows.remember_senders(senders));
        }
        if !self.mappings.has_places_for(&plan.mappings) {
            self.clear_flows();
        }
        self.flows.begin_epoch(plan.to, plan.timeouts);
        let mappings = self.mappings.apply(plan.mappings);
        let limiter = self.limiter.apply(plan.limiter);
        let counters = self.counters.apply(plan.counters);
        self.resume_all();
        std::mem::swap(&mut self.hops, &mut hops);
        self.apply_released(&renumbering, tables);
        let egress = self.apply_egress(plan.egress, &renumbering, tables, ended);
        let fragments = self.apply_fragments(plan.fragments, &renumbering);
        let carried = match renewed.as_deref_mut() {
            Some(fresh) => self.move_into(fresh, tables, now),
            None => Imports::default(),
        };
        Ok(Applied {
            carried,
            _retired: Box::new(Retired {
                _hops: hops,
                _limiter: limiter,
                _counters: counters,
                _mappings: mappings,
                _newly_mapped: newly_mapped,
                _newly_proxied: newly_proxied,
                _newly_asked: newly_asked,
                _fragments: fragments,
                _egress: egress,
                _renewed: renewed,
            }),
        })
    }

    fn apply_egress(
        &mut self,
        mut egress: Egress,
        renumbering: &Renumbering,
        tables: &Tables,
        ended: &mut Vec<Frame>,
    ) -> Egress {
        // What was a port and is a VLAN of another now has a queue no more.
        let is_port = |place| tables.interface(place).is_some_and(|interface| interface.root == place);
        let was = |place: PortId| renumbering.interfaces_were.get(usize::from(place.0)).copied().flatten();
        egress.continue_from(
            &mut self.egress,
            |place| was(place).filter(|_| is_port(place)).map(PortId),
            |frame, place| renumbering.send_on(&mut frame.meta, place),
        );
        std::mem::swap(&mut self.egress, &mut egress);
        for mut frame in egress.drain() {
            self.counters.count_lost(&mut frame, Reason::InterfaceGone);
            renumbering.send_on(&mut frame.meta, LOCAL);
            ended.push(frame);
        }
        egress
    }

    /// What is about to go through comes from interfaces that may have other places now, or none.
    fn apply_released(&mut self, renumbering: &Renumbering, tables: &Tables) {
        let room = (tables.limits.fragments.held + MOST_WAITING) as usize + 1;
        self.released.reserve(room.saturating_sub(self.released.len()));
        for frame in &mut self.released {
            if let Err(reason) = renumbering.carry(&mut frame.meta) {
                frame.meta.fate = Verdict::Dropped(reason).to_fate();
            }
        }
    }

    fn apply_fragments(&mut self, plan: FragmentsPlan, renumbering: &Renumbering) -> FragmentsPlan {
        let Shard { fragments, released, .. } = self;
        let give = |mut frame: Frame, reason| {
            frame.meta.fate = Verdict::Dropped(reason).to_fate();
            released.push_back(frame);
        };
        let keep = |frame: &mut Frame| renumbering.carry(&mut frame.meta);
        fragments.apply(plan, keep, |ct_zone| renumbering.ct_zone(ct_zone), give)
    }

    /// Moves flows, and what goes with them, into other memory, and takes that.
    fn move_into(&mut self, fresh: &mut Shard, tables: &Tables, now: Nanos) -> Imports {
        if let Some(member) = self.flows.member() {
            fresh.join(member.clone());
        }
        let mut carried = Imports::default();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = self.export(tables, now, from, u32::MAX, |item| {
                let outcome = fresh.import(tables, &item, now);
                if matches!(item, Item::Flow(_)) {
                    carried.count(outcome);
                }
            });
        }
        fresh.flows.go_on_from(&self.flows);
        fresh.mappings.go_on_from(&mut self.mappings);
        std::mem::swap(&mut self.flows, &mut fresh.flows);
        std::mem::swap(&mut self.mappings, &mut fresh.mappings);
        std::mem::swap(&mut self.limiter, &mut fresh.limiter);
        carried
    }
}
