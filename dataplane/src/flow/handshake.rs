//! Handshakes that the gateway makes for servers: sequence numbers kept beside the flow.
//!
//! A number for each flow, in memory that is taken only where the policy has the gateway make handshakes. Packets of other
//! flows do not come here: two bits of a flow's state say so.

use lookup::memory::{MemoryError, Slab};
use serde::{Deserialize, Serialize};

use super::{FlowId, FlowTable, PROXIED, SPLICED};

/// Parties to the handshake of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handshake {
    /// Both ends with one another.
    #[default]
    Direct,
    /// Gateway and client, which has been sent this initial sequence number; the server has not answered yet.
    Shown(u32),
    /// Gateway and client, then gateway and server: the server's sequence numbers are larger by this much than those
    /// that the client sees.
    Spliced(u32),
}

/// There is no memory for handshakes: the policy asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Memory for the numbers of handshakes.
pub(crate) type Numbers = Slab<u32>;

/// Takes memory for as many handshakes as there may be flows.
///
/// # Errors
/// The system has not that much memory to give.
pub(crate) fn numbers(flows: u32) -> Result<Numbers, MemoryError> {
    Slab::new(flows as usize)
}

impl FlowTable {
    /// Has the table remember handshakes from now on, unless it does already; gives back memory that is not needed.
    pub(crate) fn remember_handshakes(&mut self, numbers: Numbers) -> Option<Numbers> {
        if self.numbers.is_some() {
            return Some(numbers);
        }
        self.numbers = Some(numbers);
        None
    }

    /// True if the table remembers handshakes.
    pub(crate) fn remembers_handshakes(&self) -> bool {
        self.numbers.is_some()
    }

    /// Returns the parties to the handshake of a flow.
    pub fn handshake(&self, id: FlowId) -> Handshake {
        let number = || self.numbers.as_ref()?.entries().get(id.0 as usize).copied();
        match self.flow(id).map_or(0, |flow| flow.state & (PROXIED | SPLICED)) {
            0 => Handshake::Direct,
            PROXIED => number().map_or(Handshake::Direct, Handshake::Shown),
            _ => number().map_or(Handshake::Direct, Handshake::Spliced),
        }
    }

    /// Notes the parties to the handshake of a flow.
    ///
    /// # Errors
    /// There is no memory for the number; nothing is noted.
    pub(crate) fn set_handshake(&mut self, id: FlowId, handshake: Handshake) -> Result<(), NoRoom> {
        let (bits, number) = match handshake {
            Handshake::Direct => (0, None),
            Handshake::Shown(number) => (PROXIED, Some(number)),
            Handshake::Spliced(number) => (PROXIED | SPLICED, Some(number)),
        };
        if let Some(number) = number {
            let numbers = self.numbers.as_mut().ok_or(NoRoom)?;
            *numbers.entries_mut().get_mut(id.0 as usize).ok_or(NoRoom)? = number;
        }
        if let Some(flow) = self.flow_mut(id) {
            flow.state = flow.state & !(PROXIED | SPLICED) | bits;
        }
        Ok(())
    }
}
