//! Servers that new connections are spread over.
//!
//! A connection's server is that of its slot (`rendezvous.rs`): the slots of a server that is down are shared by the others, and none
//! moves between two that are up. By client, the slot is that of the client's address alone.

use policy::model::{OnFailure, ServerState, Sticky};
use tally::{Op, Region, Tally};

use super::Destination;
use crate::tables::Address;
use crate::tables::rendezvous::{self, Member, SLOTS, hash_of};

/// The servers of a translation.
#[derive(Clone, Debug)]
pub struct Servers {
    /// All of them, in the order of the policy.
    pub list: Vec<Server>,
    /// Connections that keep to one server.
    pub sticky: Sticky,
    /// Treatment of the connections of a server that goes down.
    pub on_failure: OnFailure,
    /// Server of each slot; no slots where no server is up.
    slots: Vec<u8>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address and port, for people and for the hash.
    pub name: String,
    /// Address.
    pub address: Address,
    /// Port of the first outside port; ports stay where absent.
    pub port: Option<u16>,
    /// Share of new connections.
    pub weight: u8,
    /// State.
    pub state: ServerState,
}

impl Servers {
    /// Servers, with their slots.
    pub(crate) fn new(list: Vec<Server>, sticky: Sticky, on_failure: OnFailure) -> Servers {
        let up = (0..).zip(&list).filter(|(_, server)| server.state == ServerState::Up);
        let member = |(place, server): (u8, &Server)| Member {
            place,
            name: hash_of(&server.name),
            weight: server.weight.into(),
        };
        let members: Vec<Member<u8>> = up.map(member).collect();
        let slots = rendezvous::owners(&members, SLOTS).collect();
        Servers { list, sticky, on_failure, slots }
    }

    /// The server of a connection of a client, whose hash is `hash`; `None` where none is up.
    pub fn choose<T: Tally>(&self, client: Address, hash: u32, tally: &mut T) -> Option<&Server> {
        // Both halves of the address, mixed by three multiplications, 24; the slot by a multiplication, place and bound, 8; its server, 6.
        tally.instructions(38);
        tally.execute(Op::Branch, 5);
        let hash = rendezvous::spread(self.sticky, client, hash);
        let slot = rendezvous::slot_of(hash, self.slots.len());
        tally.read(Region::RuleTable, slot, 1);
        self.list.get(usize::from(*self.slots.get(slot)?))
    }

    /// Number of slots of each server.
    pub fn shares(&self) -> Vec<usize> {
        let mut shares = vec![0; self.list.len()];
        for server in &self.slots {
            if let Some(share) = shares.get_mut(usize::from(*server)) {
                *share += 1;
            }
        }
        shares
    }

    /// Bytes of the slots in the memory of a network processor.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.slots.len() as u64
    }
}

impl Server {
    /// Destination of a packet that goes to the server; `offset` is the place of its port among the outside ports.
    pub(super) fn destination(&self, port: u16, offset: Option<u16>) -> Destination {
        let port = match (self.port, offset) {
            (Some(first), Some(offset)) => first.wrapping_add(offset),
            _ => port,
        };
        Destination { address: self.address, port }
    }
}

#[cfg(test)]
mod tests;
