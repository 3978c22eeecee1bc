//! Next hops: what stands in front of a packet that leaves by them.
//!
//! Neighbours are state, not policy: static ones come with the tables, others are told to the shard by its
//! host. A host without a link to ask on (replay, chip) lets addresses be assumed, so that the same frames
//! always make the same bytes.

use std::collections::HashMap;

use wire::ethernet::{EtherType, Mac};
use wire::{Meta, PortId};

use crate::tables::{Address, Tables};

/// The hop of what is for the gateway itself.
pub const LOCAL_HOP: u32 = u32::MAX;

/// The hop of what the gateway itself sends and only concerns a link: its host sends that as it is.
pub const LINK_HOP: u32 = u32::MAX - 2;

/// No hop has been chosen.
pub const NO_HOP: u32 = Meta::NO_HOP;

/// Whether what was routed leaves by a hop's link; else it is delivered, by [`LOCAL_HOP`] or [`LINK_HOP`].
#[inline(always)]
pub const fn leaves(hop: u32) -> bool {
    hop < LINK_HOP
}

/// A next hop: half a cache line, so that none lies across two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub struct Hop {
    /// The link-layer header up to the Ethernet type, which depends on the packet.
    header: [u8; 20],
    header_len: u8,
    known: Known,
    /// Largest IP packet that its link carries.
    pub mtu: u16,
    /// The interface it is on.
    pub interface: PortId,
}

/// Whether a hop's link-layer address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Known {
    No,
    Yes,
}

/// What is done about a neighbour whose link-layer address nobody has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// Packets to it are dropped.
    Told,
    /// An address is made up from its IP address.
    Assume,
}

/// All next hops of a shard. Bounded: past `capacity` neighbours, new ones stay unknown.
#[derive(Debug)]
pub struct Hops {
    entries: Vec<Hop>,
    index: HashMap<(PortId, Address), u32>,
    capacity: usize,
    resolve: Resolve,
}

impl Hop {
    /// The link-layer header up to the Ethernet type, or `None` while the neighbour is unknown.
    #[inline(always)]
    pub fn header(&self) -> Option<&[u8]> {
        if self.known == Known::No {
            return None;
        }
        self.header.get(..usize::from(self.header_len))
    }

    /// The header as 12 bytes, for untagged links: the usual case, free of loops.
    #[inline(always)]
    pub fn plain_header(&self) -> Option<&[u8; 12]> {
        if self.known == Known::No || self.header_len != 12 {
            return None;
        }
        self.header.first_chunk()
    }
}

impl Hops {
    /// The routers of `tables` in their order, so that a way's number is its hop's; then room for
    /// `capacity` neighbours on the links.
    pub fn new(tables: &Tables, resolve: Resolve, capacity: usize) -> Hops {
        let room = tables.gateways.len() + tables.neighbours.len() + capacity;
        let mut hops = Hops {
            entries: Vec::with_capacity(room),
            index: HashMap::with_capacity(room),
            capacity: room,
            resolve,
        };
        for gateway in &tables.gateways {
            let mac = hops.assumed(gateway.address);
            hops.add(tables, gateway.interface, gateway.address, mac);
        }
        for neighbour in &tables.neighbours {
            hops.learn(tables, neighbour.interface, neighbour.address, neighbour.mac);
        }
        hops
    }

    /// The hop of that number.
    #[inline(always)]
    pub fn get(&self, hop: u32) -> Option<&Hop> {
        self.entries.get(hop as usize)
    }

    /// Bytes that as many hops as there can be take on a network processor, 32 each.
    pub fn region_bytes(&self) -> usize {
        self.capacity.saturating_mul(32)
    }

    /// The hop of a neighbour on an interface's link, or `None` if it is unknown and stays so.
    pub fn neighbour(&mut self, tables: &Tables, interface: PortId, address: Address) -> Option<u32> {
        if let Some(hop) = self.index.get(&(interface, address)) {
            return Some(*hop);
        }
        let mac = self.assumed(address)?;
        self.add(tables, interface, address, Some(mac))
    }

    /// Tells the link-layer address of a neighbour.
    pub fn learn(&mut self, tables: &Tables, interface: PortId, address: Address, mac: Mac) {
        match self.index.get(&(interface, address)) {
            Some(hop) => self.entries[*hop as usize] = made(tables, interface, Some(mac)),
            None => {
                self.add(tables, interface, address, Some(mac));
            }
        }
    }

    fn add(&mut self, tables: &Tables, interface: PortId, address: Address, mac: Option<Mac>) -> Option<u32> {
        if self.entries.len() >= self.capacity {
            return None;
        }
        let hop = self.entries.len() as u32;
        self.entries.push(made(tables, interface, mac));
        self.index.insert((interface, address), hop);
        Some(hop)
    }

    /// A locally administered address made from an IP address, where that is wanted.
    fn assumed(&self, address: Address) -> Option<Mac> {
        if self.resolve == Resolve::Told {
            return None;
        }
        let folded = (address.bits ^ address.bits >> 32 ^ address.bits >> 64 ^ address.bits >> 96) as u32;
        let [a, b, c, d] = folded.to_be_bytes();
        Some(Mac([0x02, if address.v6 { 0x06 } else { 0x04 }, a, b, c, d]))
    }
}

fn made(tables: &Tables, interface: PortId, mac: Option<Mac>) -> Hop {
    let mut header = [0; 20];
    let mut header_len = 12;
    let mut mtu = 0;
    if let Some(own) = tables.interface(interface) {
        mtu = own.mtu;
        header[..6].copy_from_slice(&mac.unwrap_or(Mac::ZERO).0);
        header[6..12].copy_from_slice(&own.mac.0);
        for tag in own.tags.as_slice() {
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
    }
}
