//! Reassembly of AAL5 PDUs, for each ATM virtual channel that an interface of the policy has.
//!
//! Memory for the longest PDU of each channel is allocated at the start: a PDU that never ends takes no more, and makes no other wait.

use wire::PortId;
use wire::aal5::Reassembly;

use crate::tables::{Interface, Tables};

/// PDUs under way, by interface.
#[derive(Debug, Default)]
pub struct Channels {
    /// At the place of each interface; none where it has no channel.
    reassemblies: Vec<Option<Reassembly>>,
}

impl Channels {
    /// Allocates the memory of the channels of all interfaces.
    pub(crate) fn new(tables: &Tables) -> Channels {
        let has_any = tables.interfaces.iter().any(|interface| interface.channel.is_some());
        let of = |interface: &Interface| interface.channel.map(|_| Reassembly::new(interface.longest_pdu()));
        let reassemblies = if has_any { tables.interfaces.iter().map(of).collect() } else { Vec::new() };
        Channels { reassemblies }
    }

    /// Returns the reassembly of an interface's channel.
    pub(crate) fn of(&mut self, interface: PortId) -> Option<&mut Reassembly> {
        self.reassemblies.get_mut(usize::from(interface.0))?.as_mut()
    }

    /// Bytes of PDUs under way.
    pub fn pending(&self) -> usize {
        self.reassemblies.iter().flatten().map(Reassembly::pending).sum()
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let of_each = size_of::<Option<Reassembly>>() * self.reassemblies.len();
        of_each + self.reassemblies.iter().flatten().map(Reassembly::memory).sum::<usize>()
    }

    /// Takes over the PDUs under way of others' channels; `were` has the place of each interface in the others, where the channel is the
    /// same.
    pub(crate) fn continue_from(&mut self, others: &mut Channels, were: &[Option<u16>]) {
        for (place, was) in were.iter().enumerate() {
            let before = was.and_then(|was| others.reassemblies.get_mut(usize::from(was)));
            if let (Some(now), Some(before)) = (self.reassemblies.get_mut(place), before) {
                std::mem::swap(now, before);
            }
        }
    }
}
