//! Policies by number.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use policy::model::Binding;
use wire::esp::Mode;

use super::{Event, Moment, Protected};
use crate::xfrm::association::Association;
use crate::xfrm::message::{
    Address, CPU_ACQUIRE, ESP, Errno, Group, Mark, Policy, PolicyDirection, PolicyId, Selector, Template,
    kind, same_prefix,
};
use crate::xfrm::parse::Refusal;
use crate::xfrm::write;

/// Step of policies' numbers: the direction is in the lower three bits.
const STEP: u32 = 8;

/// Time for which one packet's need of an SA stands for all (`net.core.xfrm_acq_expires`).
const ACQUIRE: Duration = Duration::from_secs(30);

/// Selectors of one association, at most: further policies protect nothing by it.
const SELECTORS: usize = 256;

/// Transport mode (`XFRM_MODE_TRANSPORT`).
const TRANSPORT: u8 = 0;

/// Association that a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protecting {
    template: Template,
    if_id: u32,
    selector: Selector,
}

impl Protecting {
    /// Associations that a policy asks for.
    pub(super) fn of(policy: &Policy) -> Vec<Protecting> {
        let if_id = policy.if_id.unwrap_or(0);
        let of_esp = policy.templates.iter().filter(|template| template.id.protocol == ESP);
        let selector = policy.info.selector;
        of_esp.map(|template| Protecting { template: *template, if_id, selector }).collect()
    }

    /// True if the association is what the policy asks for.
    pub(super) fn is_for(&self, association: &Association) -> bool {
        self.is_for_one_like(association)
            && matches!(self.template.id.spi, spi if spi == 0 || spi == association.spi)
    }

    /// True if the association is what the policy asks for, but for the SPI that it may name.
    pub(super) fn is_for_one_like(&self, association: &Association) -> bool {
        let Template { reqid, .. } = self.template;
        (reqid == 0 || reqid == association.reqid)
            && self.if_id == association.if_id
            && self.is_transport() == (association.mode == Mode::Transport)
            && self.is_between(association.source, association.destination)
    }

    fn is_transport(&self) -> bool {
        self.template.mode == TRANSPORT
    }

    /// True if packets of the policy's are sent between these ends, in ESP. In transport mode these are the packets' own, and the template has no
    /// addresses.
    fn is_between(&self, source: IpAddr, destination: IpAddr) -> bool {
        let Template { id, family, source: near, .. } = self.template;
        let own = &self.selector;
        if self.is_transport() {
            let is_in = |net: Address, len: u8, end: IpAddr| {
                net.ip(own.family).is_none_or(|net| net.is_ipv4() == end.is_ipv4())
                    && same_prefix(net, end.into(), len)
            };
            return is_in(own.source, own.source_len, source)
                && is_in(own.destination, own.destination_len, destination);
        }
        let is_at = |address: Address, end: IpAddr| address.ip(family).is_some_and(|own| own == end);
        is_at(near, source) && is_at(id.destination, destination)
    }

    /// True if associations for the policy are those of the tunnel of this sign.
    fn is_of(&self, binding: &Binding) -> bool {
        match *binding {
            Binding::IfId(own) => self.if_id == own,
            Binding::Reqid(own) => self.template.reqid == own,
            Binding::Ends(local, remote) => {
                self.if_id == 0 && remote.is_some_and(|remote| self.is_between(local, remote))
            }
        }
    }
}

/// Need of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    /// Number of the policy.
    policy: u32,
    /// Processor that it is to be for; `None` for all.
    cpu: Option<u16>,
}

/// Security policies.
#[derive(Debug, Default)]
pub(super) struct Policies {
    by_index: BTreeMap<u32, Policy>,
    last: u32,
    /// Needs that the daemon has been told of, with their time.
    needs: BTreeMap<Need, Duration>,
    told: u32,
}

fn no_such_policy() -> Refusal {
    Refusal::new(Errno::NOENT, "no policy has this selector and direction")
}

/// Event of the policies' group.
fn event(message: write::Datagram) -> Event {
    Event { group: Group::Policy, message }
}

impl Policies {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.by_index.values()
    }

    /// Policies with larger numbers than this.
    pub(super) fn after(&self, index: u32) -> impl Iterator<Item = &Policy> {
        self.by_index.range(index.saturating_add(1)..).map(|(_, policy)| policy)
    }

    /// Number of policies in, out, and forward.
    pub(super) fn counts(&self) -> [u32; 3] {
        let count =
            |direction| self.iter().filter(|policy| policy.info.direction == direction).count() as u32;
        [PolicyDirection::In, PolicyDirection::Out, PolicyDirection::Forward].map(count)
    }

    /// Adds a policy.
    pub(super) fn add(
        &mut self,
        policy: Policy,
        now: Moment,
        most: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if self.same(&policy).is_some() {
            return Err(Refusal::new(Errno::EXIST, "a policy has this selector and direction"));
        }
        self.put_new(kind::NEWPOLICY, policy, now, most, events)
    }

    fn put_new(
        &mut self,
        told: u16,
        policy: Policy,
        now: Moment,
        most: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if self.by_index.len() >= most {
            let words = format!("there are {most} policies, as many as there may be");
            return Err(Refusal::new(Errno::NOBUFS, words));
        }
        let index = self.index_for(&policy)?;
        self.put(told, policy, index, now, events);
        Ok(())
    }

    /// Adds a policy, or changes the one of the same selector and direction, whose number stays.
    pub(super) fn update(
        &mut self,
        policy: Policy,
        now: Moment,
        most: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        match self.same(&policy) {
            None => self.put_new(kind::UPDPOLICY, policy, now, most, events),
            Some(index) => {
                self.put(kind::UPDPOLICY, policy, index, now, events);
                Ok(())
            }
        }
    }

    fn put(&mut self, told: u16, mut policy: Policy, index: u32, now: Moment, events: &mut Vec<Event>) {
        policy.info.index = index;
        if policy.info.used.added == 0 {
            policy.info.used.added = now.wall;
        }
        self.forget_needs(index);
        events.push(event(write::policy(&write::event(told), &policy)));
        self.by_index.insert(index, policy);
    }

    /// Removes a policy, and returns it.
    pub(super) fn remove(&mut self, id: &PolicyId, events: &mut Vec<Event>) -> Result<Policy, Refusal> {
        let index = self.find(id)?.info.index;
        self.forget_needs(index);
        let policy = self.by_index.remove(&index).ok_or_else(no_such_policy)?;
        events.push(event(write::removed_policy(&policy)));
        Ok(policy)
    }

    /// Protection by an association: packets of the policies of its direction that ask for it, each selector once. `None` where none asks for
    /// one like it.
    pub(super) fn protected_by(&self, association: &Association) -> Option<Protected> {
        let mut packets: Vec<Selector> = Vec::new();
        let (mut are_like, mut are_own, mut stands_by, mut per_cpu) = (false, false, false, false);
        for policy in self.iter() {
            let protecting = Protecting::of(policy);
            if !protecting.iter().any(|policy| policy.is_for_one_like(association)) {
                continue;
            }
            are_like = true;
            if protecting.iter().any(|policy| policy.is_for(association)) {
                are_own = true;
                per_cpu |= asks_per_cpu(policy);
                if !packets.contains(&policy.info.selector) && packets.len() < SELECTORS {
                    packets.push(policy.info.selector);
                }
            } else {
                // What comes in, comes in by any of them.
                stands_by |= policy.info.direction == PolicyDirection::Out;
            }
        }
        are_like.then_some(Protected { packets, stands_by: stands_by && !are_own, per_cpu })
    }

    /// The outbound policy that a packet for the tunnel of this sign comes under: the first by priority that asks for an association.
    pub(super) fn wanting(&self, binding: &Binding, packet: &Selector) -> Option<u32> {
        let is_own = |policy: &&Policy| {
            policy.info.direction == PolicyDirection::Out
                && !policy.templates.is_empty()
                && policy.info.selector.has(packet)
                && Protecting::of(policy).iter().any(|policy| policy.is_of(binding))
        };
        let first = self.iter().filter(is_own).min_by_key(|policy| (policy.info.priority, policy.info.index));
        first.map(|policy| policy.info.index)
    }

    /// Removes all policies.
    pub(super) fn flush(&mut self, events: &mut Vec<Event>) {
        self.by_index.clear();
        self.needs.clear();
        events.push(event(write::flushed_policies()));
    }

    /// The policy of a number, or else of a selector.
    pub(super) fn find(&self, id: &PolicyId) -> Result<&Policy, Refusal> {
        let found = match id.index {
            0 => self.iter().find(|policy| {
                policy.info.direction == id.direction && is_same(policy, &id.selector, id.mark, id.if_id)
            }),
            index => self.by_index.get(&index).filter(|policy| policy.info.direction == id.direction),
        };
        found.ok_or_else(no_such_policy)
    }

    /// Number of the policy with the same selector, direction, mark and interface.
    fn same(&self, policy: &Policy) -> Option<u32> {
        let same = |other: &&Policy| {
            other.info.direction == policy.info.direction
                && is_same(other, &policy.info.selector, policy.mark, policy.if_id)
        };
        self.iter().find(same).map(|policy| policy.info.index)
    }

    fn index_for(&mut self, policy: &Policy) -> Result<u32, Refusal> {
        let direction = policy.info.direction as u32;
        match policy.info.index {
            0 => {}
            asked if asked % STEP != direction => {
                return Err(Refusal::new(Errno::INVAL, "the number is of another direction"));
            }
            asked if !self.by_index.contains_key(&asked) => return Ok(asked),
            _ => return Err(Refusal::new(Errno::EXIST, "another policy has this number")),
        }
        loop {
            self.last = self.last.wrapping_add(STEP).max(STEP);
            let index = self.last | direction;
            if !self.by_index.contains_key(&index) {
                return Ok(index);
            }
        }
    }

    /// Event that a packet needs the SA of an outbound policy, or one for its processor; `None` where the daemon knows, or the policy asks for
    /// none.
    pub(super) fn acquire(
        &mut self,
        index: u32,
        packet: &Selector,
        cpu: Option<u16>,
        now: Duration,
    ) -> Option<Event> {
        let policy = self.by_index.get(&index).filter(|policy| cpu.is_none() || asks_per_cpu(policy))?;
        let need = Need { policy: index, cpu };
        let template = policy.templates.first()?;
        let told = self.needs.get(&need).is_some_and(|at| now.saturating_sub(*at) < ACQUIRE);
        if told || policy.info.direction != PolicyDirection::Out {
            return None;
        }
        self.told = self.told.wrapping_add(1).max(1);
        let mut template = *template;
        if template.mode == TRANSPORT {
            (template.source, template.id.destination) = (packet.source, packet.destination);
        }
        let message = write::acquire(self.told, &template, packet, policy, cpu);
        self.needs.insert(need, now);
        Some(Event { group: Group::Acquire, message })
    }

    /// Forgets the needs of policies with this number of SAs, as there is one now for that processor, or for all.
    pub(super) fn have_sa(&mut self, reqid: u32, cpu: Option<u32>) {
        let policies = &self.by_index;
        self.needs.retain(|need, _| {
            let asks = |policy: &Policy| policy.templates.iter().any(|template| template.reqid == reqid);
            need.cpu.map(u32::from) != cpu || !policies.get(&need.policy).is_some_and(asks)
        });
    }

    fn forget_needs(&mut self, policy: u32) {
        self.needs.retain(|need, _| need.policy != policy);
    }
}

/// True for an outbound policy that asks for an SA of each processor's own.
fn asks_per_cpu(policy: &Policy) -> bool {
    policy.info.direction == PolicyDirection::Out && policy.info.flags & CPU_ACQUIRE != 0
}

fn is_same(policy: &Policy, selector: &Selector, mark: Option<Mark>, if_id: Option<u32>) -> bool {
    policy.info.selector == *selector
        && policy.mark.unwrap_or_default() == mark.unwrap_or_default()
        && policy.if_id.unwrap_or(0) == if_id.unwrap_or(0)
}
