//! Tables: a compiled policy and its routes; immutable, swapped whole, stamped with an epoch. [`compile`](crate::compile) makes them.

use std::sync::Arc;

use policy::model::{
    Action, AddressRange, ConnectionLimit, Helper, Ipfix, Limits, Log, Logging, Mode, MulticastMiss,
    PriorityTag, Rate, SourceCheck, SynAnswer, Timeouts,
};
use tally::{Offload, Op, Region, Tally};
use wire::atm::{Connection, Vc};
use wire::ethernet::Mac;
use wire::rfc2684::Channel;
use wire::vlan::Tags;
use wire::{Family, Link, LinkKind, PortId};

mod class;
mod error;
mod mac;
mod multicast;
mod nat;
mod number;
pub(crate) mod pair;
mod priority;
mod queue;
mod rendezvous;
mod renumbering;
pub(crate) mod selection;
mod selector;
mod session;
pub(crate) mod set;
mod spd;
mod tunnel;
pub(crate) mod vrf;
mod wan;
mod ways;

use crate::flow::tcp::WindowCheck;
pub use class::{ClassEntry, Classes};
pub(crate) use class::{ClassSearch, Kind};
pub use error::CompileError;
use lookup::classify::{self, Choice, Header};
use lookup::fib::{Fib4, Fib6};
pub use mac::{NO_MAC, SourceMacs};
pub use multicast::{MulticastCount, MulticastExit, MulticastRoute, MulticastRoutes};
pub(crate) use nat::is_within;
pub use nat::{
    Asker, Destination, DestinationAction, FirstAddresses, Home, NatRule, NatTables, NewDestination,
    OWN_ACCORD, OtherPorts, Outgoing, OwnAddress, PoolOwner, PortMappingSpec, PortShift, Returning, SSDP,
    Server, Servers, SourceAction, Translator, Xlat,
};
pub(crate) use number::OTHER_NUMBER;
pub use number::{NO_NUMBER, Numbers};
pub use pair::Pair;
pub use priority::Priorities;
pub use queue::{FqSettings, LeafSettings, NO_NODE, NodeKind, QueueNode, QueueTree, QueueTrees};
pub use rendezvous::SLOTS;
pub(crate) use renumbering::Renumbering;
use selection::Selection;
pub use selector::{Ends, Fit, Ports, Selector, Selectors};
pub use session::{Carrier, Session};
pub use set::{AddressMatch, DNAT, SetAddition, SetQuestions, SetSpec, SetUse, SetUses, Side};
pub use spd::{Protection, Spd};
pub use tunnel::{SaSpec, Tunnel, Tunnels};
pub use vrf::{Vrf, VrfId, VrfNumber, Vrfs};
pub(crate) use wan::RouteSearch;
pub use wan::{Asked, Choice as WanChoice, Grounds, Path, PolicyRoute, Wan, WanId, Wans};
pub(crate) use ways::Share;
pub use ways::Ways;

/// The zone of the gateway itself.
pub const SELF: u8 = 0;

/// The most zones there can be, the gateway's own included: a mask of them is 64 bits.
pub(crate) const MAX_ZONES: usize = 64;

/// The gateway itself in the place of a port: egress of packets for it, ingress of packets that it sends.
pub const LOCAL: PortId = PortId(u16::MAX);

/// Ingress of packets that Linux forwards from interfaces that the policy does not name: they come as the gateway's own
/// packets do, but are filtered by the rules.
pub const OTHER: PortId = PortId(u16::MAX - 1);

/// True if packets of this ingress are sent by Linux: the gateway's own, or forwarded from interfaces outside the policy.
#[inline(always)]
pub fn is_linux(id: PortId) -> bool {
    id.0 >= OTHER.0
}

/// A compiled policy.
pub struct Tables {
    /// Number of the compilation, 1 at least; flows of another epoch are revalidated.
    pub epoch: u16,
    /// Connection tracking: stateful or stateless.
    pub mode: Mode,
    /// Interfaces, in the order of the policy; a [`PortId`] is a place in this list.
    pub interfaces: Vec<Interface>,
    /// Interface at [`LOCAL`], for the gateway itself.
    pub itself: Interface,
    /// Zones of `interfaces`.
    pub(crate) zone_of: Vec<u8>,
    /// Names of zones; [`SELF`] is the first.
    pub zones: Vec<String>,
    /// Interfaces whose links are PPP sessions; a session's place is one in this list.
    pub sessions: Vec<PortId>,
    /// Tunnels.
    pub tunnels: Tunnels,
    /// Longest-prefix match in the default VRF; values are places in `targets`.
    pub fib4: Fib4,
    /// Likewise for IPv6.
    pub fib6: Fib6,
    /// VRFs beside the default one, with routes of their own to the same targets.
    pub vrfs: Vrfs,
    /// Targets of routes.
    pub targets: Vec<Target>,
    /// For each of them the only interface by which packets to it leave, if there is one: what a strict source check asks for.
    pub exits: Vec<Option<PortId>>,
    /// For each of them the hop of the only router, if it is one router; else [`NO_HOP`](crate::hop::NO_HOP).
    pub(crate) only_hops: Vec<u32>,
    /// Places in `gateways`, referred to by [`Target::Gateways`].
    pub ways: Ways,
    /// Routers that routes lead to.
    pub gateways: Vec<Gateway>,
    /// WANs, which share the default routes, and policy routes to them.
    pub wans: Wans,
    /// Multicast routes.
    pub multicast: MulticastRoutes,
    /// Static neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Rules, classifier and default actions.
    pub filter: Filter,
    /// Traffic classes and meters.
    pub classes: Classes,
    /// Trees of queues.
    pub queues: QueueTrees,
    /// Classes of source MAC addresses, which headers have; `None` where no rule asks for any.
    pub source_macs: Option<SourceMacs>,
    /// Dynamic sets, in the order of the policy.
    pub sets: Vec<SetSpec>,
    /// Questions of rules and classes about them.
    pub set_questions: SetQuestions,
    /// Address translations.
    pub nat: NatTables,
    /// Bounds on memory and rates.
    pub limits: Limits,
    /// Timeouts of flows and fragments.
    pub timeouts: Timeouts,
    /// Log settings: outputs, events, rates.
    pub log: Log,
    /// Export of flow records and NAT events.
    pub ipfix: Ipfix,
    /// The host keeps the same flows as a second gateway, which it tells of changes.
    pub synchronises: bool,
    /// Division of flows with that gateway, where both forward packets.
    pub pair: Option<Pair>,
    /// Check of TCP windows.
    pub window: WindowCheck,
    /// Packets that the [drop recorder](crate::recorder) remembers of each reason; 0 for none.
    pub drop_record: u32,
    /// Interface at [`OTHER`], for all interfaces outside the policy. `None` where no rule or default names their zone: then all
    /// packets that Linux forwards from there are dropped.
    pub other: Option<Interface>,
    /// Action for multicast packets that Linux forwards from there: no rule can decide on them.
    pub other_groups: Action,
    /// Timeouts that rules say, by number from 1 ([`FilterRule::idle`]). A number stays with its timeout while tables follow
    /// one another, as long as there are numbers.
    pub idle: Vec<wire::Nanos>,
    /// Numbers by which names are known from one compilation to the next.
    pub numbers: Numbers,
    /// A bit for each of the gateway's own addresses, by a hash of it; others may share it.
    pub own_bits: u64,
    /// The strictest check of sources of all interfaces.
    pub source_check: SourceCheck,
    /// The stages that they need.
    pub stages: Selection,
}

/// An interface, compiled.
#[derive(Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number, which stays with its name.
    pub number: u32,
    /// Its zone, a place in [`Tables::zones`].
    pub zone: u8,
    /// The interface whose port carries its frames: itself, unless it is a VLAN.
    pub root: PortId,
    /// VXLAN network identifier of its frames where they are handed over to a second gateway.
    pub vni: u32,
    /// Tags of its frames.
    pub tags: Tags,
    /// VLANs that its own port carries: outer and inner identifier (0: none), and the VLAN's interface.
    pub vlans: Vec<(u16, u16, PortId)>,
    /// Kind of link: the header of its packets. In the pipeline, all have an Ethernet header ([`wire::link_kind`]).
    pub link: LinkKind,
    /// Its link-layer address.
    pub mac: Mac,
    /// The same as a number of 48 bits, its first byte the lowest: as frames begin with it.
    pub mac_bits: u64,
    /// Reception of unicast frames to other addresses.
    pub hearing: Hearing,
    /// Largest IP packet.
    pub mtu: u16,
    /// Its link outwards. Shards of several workers share it; a shard that is alone has one like it.
    pub egress: Link,
    /// Conntrack zone that its flows are in (netfilter: `ct zone`): interfaces that may stand in for one another
    /// share one.
    pub ct_zone: u16,
    /// Check of source addresses.
    pub source_check: SourceCheck,
    /// Packets to multicast groups without a route that come by it.
    pub multicast_miss: MulticastMiss,
    /// Bound on the MSS of IPv4 connections; `u16::MAX` where there is none.
    pub mss4: u16,
    /// Likewise of IPv6 connections.
    pub mss6: u16,
    /// Its addresses, each with the length of its network's prefix.
    pub networks: Vec<ipnet::IpNet>,
    /// Its first IPv4 address.
    pub address4: Option<u32>,
    /// Its first IPv6 address.
    pub address6: Option<u128>,
    /// Outside addresses of translations on its link, for which the gateway answers as if they were its own: ordered,
    /// disjoint.
    pub answered: Vec<AddressRange>,
    /// Priorities in the VLAN tags of its frames.
    pub priorities: Priorities,
    /// Number of the tunnel that the interface is.
    pub tunnel: Option<u16>,
    /// ATM virtual channel that its packets are carried in.
    pub channel: Option<Channel>,
    /// ATM connections whose cells come by its port, in their order: its own channel, those that share its line, and those that are
    /// cross-connected. A path has the VCI 0.
    pub circuits: Vec<(Vc, Circuit)>,
    /// PPP session that is its link.
    pub ppp: Option<Arc<Session>>,
    /// Places of the PPP sessions whose packets its Ethernet carries.
    pub sessions: Vec<u16>,
}

/// Destination of the cells of an ATM connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// Packets of this interface are in them.
    Interface(PortId),
    /// They leave by another connection.
    Switched {
        /// Interface that has the line.
        port: PortId,
        /// Connection on that line.
        onto: Connection,
    },
}

impl Interface {
    /// Longest payload of a PDU of its virtual channel, in bytes; 0 without one.
    pub(crate) fn longest_pdu(&self) -> usize {
        self.channel.map_or(0, |channel| channel.longest(self.link, self.mtu))
    }

    /// True if frames that leave have VLAN tags.
    pub(crate) fn is_tagged(&self) -> bool {
        self.tags.outer().is_some() || self.priorities.tag == PriorityTag::Yes
    }

    /// True if the gateway answers for an address on this interface's link that Linux does not know.
    pub fn answers_for(&self, address: Address) -> bool {
        let address = address.to_ip();
        let place = self.answered.partition_point(|range| range.last < address);
        self.answered.get(place).is_some_and(|range| range.first <= address)
    }
}

/// Unicast frames that an interface takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// Frames to its own MAC address.
    Own,
    /// All frames: the policy does not give its MAC address.
    All,
}

/// Target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the gateway itself.
    Local,
    /// To everybody on the link of this interface.
    Broadcast(PortId),
    /// To hosts on the link of this interface.
    Link(PortId),
    /// To one of `count` routers, listed in [`Tables::ways`] from `first` on.
    Gateways {
        /// Place of the first router.
        first: u32,
        /// Number of routers, 1 at least.
        count: u32,
    },
    /// By one of the WANs.
    Wans,
    /// Nowhere, in silence.
    Blackhole,
    /// Nowhere, with an answer.
    Unreachable,
}

/// A router that routes lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The interface it is on.
    pub interface: PortId,
    /// Its address.
    pub address: Address,
}

/// A static neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface it is on.
    pub interface: PortId,
    /// Its address.
    pub address: Address,
    /// Its link-layer address.
    pub mac: Mac,
}

/// An IP address of either family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The bits; IPv4 in the low 32.
    pub bits: u128,
    /// IPv6; else IPv4.
    pub v6: bool,
}

/// The rules: classifier, actions and bounds.
pub struct Filter {
    /// Finds the first pattern that matches. Tables that search for the same have it in common.
    pub search: Arc<Choice>,
    /// The rule of each pattern; patterns and rules stand in the same order.
    pub rule_of: Vec<PatternRule>,
    /// Actions and bounds, by rule.
    pub rules: Vec<FilterRule>,
    /// The action where no rule decides, by zone of origin and destination: `from * zones + to`.
    pub defaults: Vec<Action>,
    /// Number of zones.
    pub zones: usize,
    /// True if the gateway answers SYNs of any rule.
    pub(crate) has_syn_proxy: bool,
    /// True if a rule names a helper.
    pub(crate) has_helpers: bool,
    /// True if packets of PPTP calls may have flows of their own.
    pub(crate) has_calls: bool,
}

/// Rule of a pattern, in a word: its place, and a bit that says whether to accept is all that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternRule(u32);

impl PatternRule {
    const PLAIN: u32 = 1 << 31;

    /// Makes the word of the rule at a place, which is below 2^31.
    pub(crate) fn new(place: u32, rule: &FilterRule) -> PatternRule {
        let is_plain = rule.action == Action::Accept
            && rule.rate.is_none()
            && rule.connections.is_none()
            && rule.syn == SynAnswer::Forward
            && rule.adds.is_none()
            && rule.log == Logging::Off;
        PatternRule(if is_plain { place | PatternRule::PLAIN } else { place })
    }

    /// Returns the place of the rule in [`Filter::rules`].
    #[inline(always)]
    pub fn place(self) -> u32 {
        self.0 & !PatternRule::PLAIN
    }

    /// True if the rule accepts, and neither bounds nor answers nor adds nor logs.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & PatternRule::PLAIN != 0
    }
}

/// Action and bounds of a rule.
#[derive(Clone, Debug)]
pub struct FilterRule {
    /// Its name.
    pub name: String,
    /// Its number, which stays with its name.
    pub number: u32,
    /// The number of its buckets, which stays with name and rate.
    pub meter: u32,
    /// Action on matching packets.
    pub action: Action,
    /// Bound on the rate of matches.
    pub rate: Option<Rate>,
    /// Bit of headers whose packets the rule has let go on to the next rules; 0 where the rate is no condition.
    pub rate_bit: u32,
    /// Bound on concurrent connections.
    pub connections: Option<ConnectionLimit>,
    /// Idle timeout of connections that the rule accepts; `None` for the default.
    pub timeout: Option<wire::Nanos>,
    /// Number of that timeout in [`Tables::idle`], from 1; 0 for none.
    pub idle: u8,
    /// Responder to SYNs that the rule accepts: the server, or the gateway (SYN proxy).
    pub syn: SynAnswer,
    /// Helper that reads the connections that the rule accepts.
    pub helper: Option<Helper>,
    /// Addition of the source to a dynamic set.
    pub adds: Option<SetAddition>,
    /// Logging of matches.
    pub log: Logging,
}

impl Filter {
    /// The rule that decides, or `None` for the default action.
    #[inline]
    pub fn find<T: Tally>(&self, header: &Header, tally: &mut T) -> Option<PatternRule> {
        classify::tell(self.search.classifier.as_ref(), header, tally);
        let position = self.search.classifier.classify(header)?;
        self.rule_of.get(position as usize).copied()
    }

    /// The rule that decides where no rate is exceeded: one that refuses what exceeds a rate refuses nothing.
    pub(crate) fn find_within_rates<T: Tally>(&self, header: &Header, tally: &mut T) -> Option<PatternRule> {
        let mut header = *header;
        loop {
            let found = self.find(&header, tally)?;
            match self.rules.get(found.place() as usize) {
                // The bit is none that the header has: by it the rule would not have been found.
                Some(rule) if rule.rate_bit != 0 && rule.action != Action::Accept => {
                    header.sets |= rule.rate_bit
                }
                _ => return Some(found),
            }
        }
    }

    /// True if there are no rules, and every default accepts.
    pub(crate) fn accepts_all(&self) -> bool {
        self.rule_of.is_empty() && self.defaults.iter().all(|action| *action == Action::Accept)
    }

    /// The action where no rule decides.
    #[inline]
    pub fn default_action(&self, from: u8, to: u8) -> Action {
        let place = usize::from(from) * self.zones + usize::from(to);
        self.defaults.get(place).copied().unwrap_or(Action::Drop)
    }
}

impl Tables {
    /// The interface at a place; every id that the tables or `parse` hand out is one, and so is [`LOCAL`].
    #[inline(always)]
    pub fn interface(&self, id: PortId) -> Option<&Interface> {
        match self.interfaces.get(usize::from(id.0)) {
            None if id == LOCAL => Some(&self.itself),
            None if id == OTHER => self.other.as_ref(),
            found => found,
        }
    }

    /// Returns the zone of an interface: that of the gateway itself where there is no such interface.
    #[inline(always)]
    pub fn zone(&self, id: PortId) -> u8 {
        match self.zone_of.get(usize::from(id.0)) {
            Some(zone) => *zone,
            None => self.zone_beyond(id),
        }
    }

    #[cold]
    fn zone_beyond(&self, id: PortId) -> u8 {
        self.interface(id).map_or(SELF, |interface| interface.zone)
    }

    /// The interface of that name.
    pub fn interface_named(&self, name: &str) -> Option<PortId> {
        let place = self.interfaces.iter().position(|interface| interface.name == name)?;
        u16::try_from(place).ok().map(PortId)
    }

    /// True if an address is one of the gateway's own in a VRF. Looks through all of them where it may be.
    #[inline(always)]
    pub fn is_own(&self, vrf: VrfId, address: Address) -> bool {
        self.may_be_own(address) && self.has_address(vrf, address)
    }

    /// True of the gateway's own addresses, and of some others.
    #[inline(always)]
    pub(crate) fn may_be_own(&self, address: Address) -> bool {
        self.own_bits >> address.own_bit() & 1 != 0
    }

    #[cold]
    fn has_address(&self, vrf: VrfId, address: Address) -> bool {
        let interfaces = (0..).map(PortId).zip(&self.interfaces);
        let of_vrf = interfaces.filter(|(id, _)| self.vrf_of(*id) == vrf);
        let mut networks = of_vrf.flat_map(|(_, interface)| &interface.networks);
        networks.any(|network| Address::from(network.addr()) == address)
    }

    /// Returns the target of the longest-prefix match for `address` in a VRF.
    #[inline(always)]
    pub fn route<T: Tally>(&self, vrf: VrfId, address: Address, tally: &mut T) -> Option<&Target> {
        let value = self.route_number(vrf, address, tally)?;
        tally.read(Region::RouteTable, value as usize * size_of::<Target>(), 8);
        self.targets.get(value as usize)
    }

    /// True if packets to `address` leave, by the routes of the interface's VRF, by this interface and no other.
    #[inline(always)]
    pub fn leaves_only_by<T: Tally>(&self, interface: PortId, address: Address, tally: &mut T) -> bool {
        // Place and bound, comparison, 5.
        tally.instructions(5);
        tally.execute(Op::Branch, 3);
        let Some(value) = self.route_number(self.vrf_of(interface), address, tally) else { return false };
        tally.read(Region::RouteTable, value as usize * size_of::<Option<PortId>>(), 4);
        self.is_exit(value, interface)
    }

    /// True if packets to the target of that number, as of a look-up in the FIB, leave by this interface and no other.
    #[inline(always)]
    pub(crate) fn is_exit(&self, number: u32, interface: PortId) -> bool {
        self.exits.get(number as usize).is_some_and(|exit| *exit == Some(interface))
    }

    /// Place in `targets` of the longest-prefix match.
    #[inline(always)]
    fn route_number<T: Tally>(&self, vrf: VrfId, address: Address, tally: &mut T) -> Option<u32> {
        let (fib4, fib6) = match self.vrfs.get(vrf) {
            None => (&self.fib4, &self.fib6),
            Some(vrf) => (&vrf.fib4, &vrf.fib6),
        };
        let bytes = if address.v6 { 16 } else { 4 };
        tally.begin_offload(Offload::Search { region: Region::RouteTable, bytes });
        let value = if address.v6 {
            fib6.lookup(address.bits, tally)
        } else {
            fib4.lookup(address.bits as u32, tally)
        };
        tally.end_offload();
        value
    }

    /// True if packets to the target may leave by `interface`.
    pub fn leads_by(&self, target: &Target, interface: PortId) -> bool {
        match *target {
            Target::Link(link) | Target::Broadcast(link) => link == interface,
            Target::Gateways { first, count } => {
                let ways = self.ways.of(first, count);
                let mut gateways = ways.iter().filter_map(|way| self.gateways.get(*way as usize));
                gateways.any(|gateway| gateway.interface == interface)
            }
            Target::Wans => self.wans.at(interface).is_some(),
            Target::Local | Target::Blackhole | Target::Unreachable => false,
        }
    }

    /// The router of a flow among a target's, by the hash of the flow.
    #[inline]
    pub fn way<T: Tally>(&self, first: u32, count: u32, hash: u32, tally: &mut T) -> Option<u32> {
        self.ways.choose(first, count, hash, tally)
    }
}

impl Address {
    /// An IPv4 address.
    pub const fn v4(bits: u32) -> Address {
        Address { bits: bits as u128, v6: false }
    }

    /// An IPv6 address.
    pub const fn v6(bits: u128) -> Address {
        Address { bits, v6: true }
    }

    /// Its prefix of so many bits: of IPv4, of IPv6.
    #[must_use]
    pub(crate) const fn prefix(self, v4: u8, v6: u8) -> Address {
        let (width, length) = if self.v6 { (128, v6 as u32) } else { (32, v4 as u32) };
        if length == 0 {
            return Address { bits: 0, ..self };
        }
        let rest = width - if length > width { width } else { length };
        Address { bits: self.bits >> rest << rest, ..self }
    }

    /// Place of its bit in [`Tables::own_bits`].
    #[inline(always)]
    pub(crate) const fn own_bit(self) -> u32 {
        let low = self.bits as u32;
        (low ^ low >> 8 ^ low >> 16) & 63
    }

    /// IPv4 or IPv6.
    pub const fn family(self) -> Family {
        if self.v6 { Family::V6 } else { Family::V4 }
    }

    /// Returns the standard library's form.
    pub fn to_ip(self) -> std::net::IpAddr {
        if self.v6 {
            std::net::IpAddr::V6(self.bits.into())
        } else {
            std::net::IpAddr::V4((self.bits as u32).into())
        }
    }
}

impl From<std::net::IpAddr> for Address {
    fn from(address: std::net::IpAddr) -> Address {
        match address {
            std::net::IpAddr::V4(v4) => Address::v4(v4.to_bits()),
            std::net::IpAddr::V6(v6) => Address::v6(v6.to_bits()),
        }
    }
}
