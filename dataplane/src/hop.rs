//! Next hops: link-layer headers in front of packets.
//!
//! Neighbours are state, not policy: static ones come with the tables, the host updates the shard with others. A host
//! without a link to resolve on (replay, chip) has addresses assumed, so that the same frames always make the same
//! bytes. With a live host packets are pending until their neighbour is resolved ([`Resolve::ByHost`]; `neighbour.rs`
//! has the updates).
//!
//! A link without Ethernet has one hop for all of its packets, always resolved: they need no link-layer address.
//!
//! Flows keep numbers of hops. A number means the same neighbour as long as the tables are the same: a neighbour whose
//! address is lost keeps its number, until so many have come and gone that numbers run out; before numbers are reused,
//! no flow has them, and no tunnel.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use policy::model::PriorityTag;
use wire::ethernet::{EtherType, Mac};
use wire::link_kind::FAR;
use wire::vlan::Tag;
use wire::{Family, LinkKind, Meta, PortId, ipv6};

use crate::flow::FlowTable;
use crate::ppp::Link;
use crate::tables::{Address, Carrier, Tables};
use crate::tunnel;

mod waiting;

use lookup::memory::MemoryError;
pub(crate) use waiting::Waiting;
pub use waiting::{MOST_ASKED, MOST_EACH, MOST_WAITING, PATIENCE, Wanted};

/// Hop of packets for the gateway itself.
pub const LOCAL_HOP: u32 = u32::MAX;

/// Hop of packets that the gateway itself sends and that concern one link only: the host sends them unchanged.
pub const LINK_HOP: u32 = u32::MAX - 2;

/// Hop of packets pending for a neighbour that has no number yet.
pub const ASKED_HOP: u32 = u32::MAX - 3;

/// Hop of ATM cells that leave as cells, which have their verdict before `route`: no routed packet has it.
pub const CELL_HOP: u32 = u32::MAX - 4;

/// Flag in the number of an unresolved hop, for which a packet is pending.
pub const WAITING: u32 = 1 << 31;

/// Number before a hop is chosen.
pub const NO_HOP: u32 = Meta::NO_HOP;

/// True if a routed packet leaves by that hop; else it is pending, or delivered by [`LOCAL_HOP`] or [`LINK_HOP`].
#[inline(always)]
pub const fn leaves(hop: u32) -> bool {
    hop < WAITING
}

/// True if a routed packet is pending for a neighbour.
pub const fn waits(hop: u32) -> bool {
    hop >= WAITING && hop <= ASKED_HOP
}

/// Destination of a delivered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// To the gateway itself.
    Itself,
    /// Out, as it is, by the interface where the gateway itself would have sent it: it only concerns that link.
    Link,
}

impl Delivery {
    /// Returns the destination of a delivered frame.
    pub fn of(meta: &Meta) -> Delivery {
        if meta.hop == LINK_HOP { Delivery::Link } else { Delivery::Itself }
    }
}

/// A next hop: half a cache line, so that none lies across two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Hop {
    /// The link-layer header up to the Ethernet type, which depends on the packet.
    header: [u8; 20],
    header_len: u8,
    known: Known,
    /// Largest IP packet that the link carries, in bytes. 0 while the neighbour is unresolved, so that no packet passes
    /// unchecked.
    pub mtu: u16,
    /// The interface whose link the hop is on.
    pub interface: PortId,
    /// [`tunnel::OUT`] where that is a tunnel, else 0.
    pub tunnel: u8,
    /// IP versions that a PPP session carries: 1 for IPv4, 2 for IPv6.
    carries: u8,
    /// PPPoE session identifier; 0 over ATM.
    session: u16,
}

/// Header of a PPP session behind that of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionHeader {
    /// PPP over Ethernet, with the session identifier.
    Ethernet(u16),
    /// PPP over ATM.
    Atm,
}

impl Hop {
    /// MTU that senders are told of. A tunnel carries whole what each link of IPv6 must, however narrow its way is (RFC 2473, section 7.1).
    #[inline(always)]
    pub(crate) fn told_mtu(&self, family: Family) -> u16 {
        if self.tunnel != 0 && family == Family::V6 { self.mtu.max(ipv6::LEAST_MTU) } else { self.mtu }
    }
}

/// Knowledge of a hop's link-layer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Known {
    No,
    Yes,
    /// As `Yes`, and a PPP header follows that of the link.
    InSession,
    /// As `No`, and nobody can be asked: the link is a PPP session that is not open.
    Closed,
}

/// Resolution of a neighbour whose link-layer address is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// The host resolves it, and updates the shard; packets are pending until then.
    ByHost,
    /// An address is made up from the neighbour's IP address.
    Assume,
}

/// Refusal of a neighbour for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more neighbours are known than there is room for")]
pub struct TooMany;

/// All next hops of a shard, with the frames pending. Bounded: past `capacity` neighbours, new ones stay unresolved.
pub struct Hops {
    entries: Vec<Hop>,
    /// Neighbour of each entry.
    owners: Vec<Wanted>,
    index: HashMap<Wanted, u32, RandomState>,
    /// The one hop of each interface whose link has no Ethernet, by the number of the interface; [`NO_HOP`] of others.
    bare: Vec<u32>,
    /// The hop to multicast groups of each interface, by the number of the interface; [`NO_HOP`] of those by which no copies leave.
    groups: Vec<u32>,
    /// Numbers free for reuse.
    free: Vec<u32>,
    /// Number of entries, from the first on, that are the tables' own and keep their numbers.
    own: usize,
    /// Number of the other entries that are unresolved.
    forgotten: usize,
    /// Number of entries beside the tables' own, at most.
    capacity: usize,
    /// Number of entries in all, at most.
    most: usize,
    resolve: Resolve,
    pub(crate) waiting: Waiting,
}

/// Numbers that have become free, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recycled {
    /// Some numbers have become free.
    Some,
    /// No number has become free.
    Nothing,
}

impl Hop {
    /// True if the neighbour's link-layer address is known.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.known, Known::Yes | Known::InSession)
    }

    /// True if the link is a PPP session that is not open.
    pub(crate) fn is_closed(&self) -> bool {
        self.known == Known::Closed
    }

    /// The header of the PPP session that the link is; `None` where it is none, or does not carry the IP version.
    pub(crate) fn session(&self, family: Family) -> Option<SessionHeader> {
        let bit = if family == Family::V4 { 1 } else { 2 };
        if self.known != Known::InSession || self.carries & bit == 0 {
            return None;
        }
        Some(if self.session == 0 { SessionHeader::Atm } else { SessionHeader::Ethernet(self.session) })
    }

    /// True if the link is a PPP session.
    pub(crate) fn is_session(&self) -> bool {
        matches!(self.known, Known::InSession | Known::Closed)
    }

    /// The link-layer header up to the Ethernet type, or `None` while the neighbour is unknown.
    #[inline(always)]
    pub fn header(&self) -> Option<&[u8]> {
        if !self.is_known() {
            return None;
        }
        self.header.get(..usize::from(self.header_len))
    }

    /// The header as 12 bytes, for untagged links: the usual case, free of loops.
    #[inline(always)]
    pub fn plain_header(&self) -> Option<&[u8; 12]> {
        if (self.header_len, self.known) != (12, Known::Yes) {
            return None;
        }
        self.header.first_chunk()
    }
}

impl Hops {
    /// Makes hops for the routers of `tables` in their order, so that a router's number is its hop's, and room for
    /// `capacity` neighbours on the links.
    ///
    /// # Errors
    /// The system has not enough memory to give.
    pub fn new(tables: &Tables, resolve: Resolve, capacity: usize) -> Result<Hops, MemoryError> {
        let (asked, frames) = match resolve {
            Resolve::ByHost => (MOST_ASKED, MOST_WAITING),
            Resolve::Assume => (0, 0),
        };
        let mut hops = Hops {
            entries: Vec::new(),
            owners: Vec::new(),
            index: HashMap::default(),
            bare: Vec::new(),
            groups: Vec::new(),
            free: Vec::new(),
            own: 0,
            forgotten: 0,
            capacity,
            most: 0,
            resolve,
            waiting: Waiting::new(asked, frames)?,
        };
        hops.rebuild(tables);
        Ok(hops)
    }

    /// Starts anew with these tables: only their own neighbours are resolved, and hops have other numbers. Pending
    /// frames stay pending.
    pub(crate) fn rebuild(&mut self, tables: &Tables) {
        self.entries.clear();
        self.owners.clear();
        self.index.clear();
        self.free.clear();
        self.forgotten = 0;
        let bare = || (0..tables.interfaces.len() as u16).map(PortId).filter(|id| is_bare(tables, *id));
        let groups = if tables.multicast.is_unused() { 0 } else { tables.interfaces.len() };
        let most = tables.gateways.len() + tables.neighbours.len() + bare().count() + groups + self.capacity;
        self.most = most;
        self.entries.reserve(most);
        self.owners.reserve(most);
        self.index.reserve(most);
        self.free.reserve(most);
        for gateway in &tables.gateways {
            let wanted = Wanted { interface: gateway.interface, address: gateway.address };
            let mac =
                if is_bare(tables, gateway.interface) { Some(FAR) } else { self.assumed(gateway.address) };
            self.add(wanted, made(tables, gateway.interface, mac));
        }
        for neighbour in &tables.neighbours {
            let wanted = Wanted { interface: neighbour.interface, address: neighbour.address };
            let hop = made(tables, neighbour.interface, Some(neighbour.mac));
            match self.index.get(&wanted) {
                Some(known) => self.entries[*known as usize] = hop,
                None => {
                    self.add(wanted, hop);
                }
            }
        }
        self.bare.clear();
        self.bare.resize(tables.interfaces.len(), NO_HOP);
        for interface in bare() {
            let hop = self.add(everybody(interface), made(tables, interface, Some(FAR)));
            self.bare[usize::from(interface.0)] = hop.unwrap_or(NO_HOP);
        }
        self.groups.clear();
        self.groups.extend(self.bare.iter().take(groups));
        for place in 0..self.groups.len() {
            if self.groups[place] == NO_HOP {
                // `rewrite` writes the group's address.
                let interface = PortId(place as u16);
                let hop = self.add(everybody(interface), made(tables, interface, Some(Mac::ZERO)));
                self.groups[place] = hop.unwrap_or(NO_HOP);
            }
        }
        self.own = self.entries.len();
        for interface in &tables.sessions {
            self.follow(tables, *interface, None);
        }
    }

    /// Number of neighbours on links beyond those of the tables.
    pub fn learnt(&self) -> usize {
        self.entries.len() - self.own
    }

    /// The hop of that number.
    #[inline(always)]
    pub fn get(&self, hop: u32) -> Option<&Hop> {
        self.entries.get(hop as usize)
    }

    /// Returns the neighbour of a hop, [`WAITING`] or not.
    pub(crate) fn owner(&self, hop: u32) -> Option<Wanted> {
        self.owners.get((hop & !WAITING) as usize).copied()
    }

    /// Bytes of memory, pending frames included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.entries.capacity() * size_of::<Hop>()
            + self.owners.capacity() * size_of::<Wanted>()
            + self.index.capacity() * (size_of::<(Wanted, u32)>() + 1)
            + (self.free.capacity() + self.bare.capacity() + self.groups.capacity()) * size_of::<u32>();
        tables + self.waiting.memory_bytes()
    }

    /// Bytes of the largest number of hops on a network processor, 32 each.
    pub fn region_bytes(&self) -> usize {
        self.most.saturating_mul(32)
    }

    /// Returns the hop of a neighbour on an interface's link: [`ASKED_HOP`] if it is unresolved but can be asked for,
    /// `None` if there is no room for it.
    pub fn neighbour(&mut self, tables: &Tables, interface: PortId, address: Address) -> Option<u32> {
        if let Some(hop) = self.bare.get(usize::from(interface.0)).filter(|hop| **hop != NO_HOP) {
            return Some(*hop);
        }
        let wanted = Wanted { interface, address };
        if let Some(hop) = self.index.get(&wanted) {
            return Some(*hop);
        }
        match self.assumed(address) {
            Some(mac) => self.add(wanted, made(tables, interface, Some(mac))),
            None => Some(ASKED_HOP),
        }
    }

    /// Returns the hop to multicast groups on an interface's link.
    #[inline(always)]
    pub(crate) fn group(&self, interface: PortId) -> Option<u32> {
        self.groups.get(usize::from(interface.0)).copied().filter(|hop| *hop != NO_HOP)
    }

    /// Returns the next neighbour that the host shall resolve, each once. A neighbour without an update within
    /// [`PATIENCE`], if still wanted, comes again.
    pub fn wanted(&mut self) -> Option<Wanted> {
        self.waiting.wanted()
    }

    /// Number of frames pending for neighbours.
    pub fn held(&self) -> u32 {
        self.waiting.count()
    }

    /// Records the link-layer address of a neighbour. A neighbour named by the policy keeps the address that the policy
    /// gives; one on an interface that does not exist, or has no Ethernet, is ignored.
    pub(crate) fn update(&mut self, tables: &Tables, wanted: Wanted, mac: Mac) -> Result<(), TooMany> {
        let is_there = tables.interfaces.get(usize::from(wanted.interface.0)).is_some();
        if !is_there || is_fixed(tables, wanted) {
            return Ok(());
        }
        let hop = made(tables, wanted.interface, Some(mac));
        let Some(place) = self.index.get(&wanted).map(|place| *place as usize) else {
            return self.add(wanted, hop).map(|_| ()).ok_or(TooMany);
        };
        if place >= self.own && self.entries[place].known == Known::No {
            self.forgotten -= 1;
        }
        self.entries[place] = hop;
        Ok(())
    }

    /// Bounds the packets to all neighbours on an interface that has no link-layer addresses, to what the interface carries at most.
    pub(crate) fn bound_mtu(&mut self, tables: &Tables, interface: PortId, mtu: u16) {
        let Some(own) = tables.interface(interface) else { return };
        let entries = self.entries.iter_mut().take(self.own);
        for hop in entries.filter(|hop| hop.interface == interface && hop.is_known()) {
            hop.mtu = own.mtu.min(mtu);
        }
    }

    /// Follows a PPP session: packets to all neighbours on its interface have its header, or wait for none while it is closed.
    pub(crate) fn follow(&mut self, tables: &Tables, interface: PortId, link: Option<Link>) {
        let hop = in_session(tables, interface, link);
        for entry in self.entries.iter_mut().take(self.own).filter(|entry| entry.interface == interface) {
            *entry = hop;
        }
    }

    /// Link-layer header of packets to a neighbour on a link without tags or sessions, if the neighbour's address is known.
    pub(crate) fn header_to(&self, wanted: Wanted) -> Option<[u8; 12]> {
        self.get(*self.index.get(&wanted)?)?.plain_header().copied()
    }

    /// Makes a neighbour unresolved, unless the policy names it or its address is assumed.
    pub(crate) fn remove(&mut self, tables: &Tables, wanted: Wanted) {
        if self.resolve == Resolve::Assume || is_fixed(tables, wanted) {
            return;
        }
        let Some(place) = self.index.get(&wanted).map(|place| *place as usize) else { return };
        if place >= self.own && self.entries[place].known == Known::Yes {
            self.forgotten += 1;
        }
        self.entries[place] = made(tables, wanted.interface, None);
    }

    /// Frees the numbers of unresolved neighbours for reuse: flows forget them. Goes through all flows, but only once as
    /// many neighbours have come and gone as there is room for. Returns [`Recycled::Some`] if there were any.
    pub(crate) fn recycle(&mut self, flows: &mut FlowTable) -> Recycled {
        if self.forgotten == 0 {
            return Recycled::Nothing;
        }
        let Hops { entries, owners, index, free, own, .. } = self;
        let is_gone = |hop: u32| {
            hop as usize >= *own && entries.get(hop as usize).is_some_and(|hop| hop.known == Known::No)
        };
        flows.forget_hops(is_gone);
        for (place, owner) in owners.iter().enumerate().skip(*own) {
            let hop = place as u32;
            // Those that are free already have no place in the index, or their owner has another.
            if is_gone(hop) && index.get(owner) == Some(&hop) {
                index.remove(owner);
                free.push(hop);
            }
        }
        self.forgotten = 0;
        Recycled::Some
    }

    fn add(&mut self, wanted: Wanted, hop: Hop) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = hop;
                self.owners[place as usize] = wanted;
                place
            }
            None if self.entries.len() >= self.most => return None,
            None => {
                self.entries.push(hop);
                self.owners.push(wanted);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(wanted, place);
        Some(place)
    }

    /// Returns a locally administered address made from an IP address, if addresses are assumed.
    fn assumed(&self, address: Address) -> Option<Mac> {
        if self.resolve == Resolve::ByHost {
            return None;
        }
        let folded = (address.bits ^ address.bits >> 32 ^ address.bits >> 64 ^ address.bits >> 96) as u32;
        let [a, b, c, d] = folded.to_be_bytes();
        Some(Mac([0x02, if address.v6 { 0x06 } else { 0x04 }, a, b, c, d]))
    }
}

/// True if packets on an interface's link have no link-layer header.
#[inline(always)]
fn is_bare(tables: &Tables, interface: PortId) -> bool {
    tables.interface(interface).is_some_and(|own| own.link == LinkKind::Ip)
}

/// Returns the neighbour that stands for the one hop of a link without Ethernet.
fn everybody(interface: PortId) -> Wanted {
    Wanted { interface, address: Address::default() }
}

/// True if updates of the neighbour are ignored: the policy names it, or its link has no neighbours.
fn is_fixed(tables: &Tables, wanted: Wanted) -> bool {
    let Wanted { interface, address } = wanted;
    if is_bare(tables, interface) {
        return true;
    }
    tables.neighbours.iter().any(|named| named.interface == interface && named.address == address)
}

/// Hop of the interface of a PPP session.
fn in_session(tables: &Tables, interface: PortId, link: Option<Link>) -> Hop {
    let link = link.filter(|link| link.v4 || link.v6);
    let session = tables.interface(interface).and_then(|own| own.ppp.as_ref());
    let (Some(session), Some(link)) = (session, link) else {
        return Hop { known: Known::Closed, mtu: 0, ..made(tables, interface, None) };
    };
    let carrier = match session.carrier {
        Carrier::Ethernet(carrier) => carrier,
        Carrier::Atm => interface,
    };
    Hop {
        known: Known::InSession,
        mtu: link.mtu,
        interface,
        carries: u8::from(link.v4) | u8::from(link.v6) << 1,
        session: link.session,
        ..made(tables, carrier, Some(link.peer))
    }
}

fn made(tables: &Tables, interface: PortId, mac: Option<Mac>) -> Hop {
    let mut header = [0; 20];
    let mut header_len = 12;
    let mut mtu = 0;
    if let Some(own) = tables.interface(interface) {
        mtu = if mac.is_some() { own.mtu } else { 0 };
        header[..6].copy_from_slice(&mac.unwrap_or(Mac::ZERO).0);
        header[6..12].copy_from_slice(&own.mac.0);
        // A tag of VLAN 0 says a priority, and no VLAN.
        let priority_only = (own.priorities.tag == PriorityTag::Yes).then_some(Tag::customer(0));
        for tag in own.tags.as_slice().iter().copied().chain(priority_only) {
            let EtherType(tpid) = tag.tpid;
            header[header_len..header_len + 2].copy_from_slice(&tpid.to_be_bytes());
            header[header_len + 2..header_len + 4].copy_from_slice(&tag.tci.to_be_bytes());
            header_len += 4;
        }
    }
    Hop {
        header,
        header_len: header_len as u8,
        known: if mac.is_some() { Known::Yes } else { Known::No },
        mtu,
        interface,
        tunnel: if tables.tunnel_of(interface).is_some() { tunnel::OUT } else { 0 },
        carries: 0,
        session: 0,
    }
}
