//! Handshakes that the gateway makes for servers: sequence numbers kept beside the flow.
//!
//! A number for each flow, in memory that is taken only where the policy has the gateway make handshakes. Packets of other
//! flows do not come here: two bits of a flow's state say so.

use serde::{Deserialize, Serialize};

use super::{Flow, FlowId, FlowTable, HELPED, PROXIED, SPLICED};
use crate::helper::Stream;
use crate::tables::NO_NUMBER;

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
    /// Both ends with one another; a helper reads the connection, and may translate what they say.
    Helped([Stream; 2]),
    /// Both ends with one another, because a control connection has announced the connection.
    Related,
}

/// There is no memory for handshakes: the policy asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl FlowTable {
    /// Returns the parties to the handshake of a flow.
    pub fn handshake(&self, id: FlowId) -> Handshake {
        let number = || self.numbers.get(id).copied();
        let flow = self.flow(id);
        match flow.map_or(0, |flow| flow.state & (PROXIED | SPLICED)) {
            HELPED if flow.is_some_and(Flow::is_call) => Handshake::Related,
            0 if self.is_related(id) => Handshake::Related,
            0 => Handshake::Direct,
            HELPED => {
                let streams = self.helped.get(id).map(|helped| helped.streams);
                streams.map_or(Handshake::Direct, Handshake::Helped)
            }
            PROXIED => number().map_or(Handshake::Direct, Handshake::Shown),
            _ => number().map_or(Handshake::Direct, Handshake::Spliced),
        }
    }

    /// Notes the parties to the handshake of a flow. Its helper's rule, or that by which it is related, is noted apart.
    ///
    /// # Errors
    /// There is no memory for the number; nothing is noted.
    pub(crate) fn set_handshake(&mut self, id: FlowId, handshake: Handshake) -> Result<(), NoRoom> {
        let (bits, number) = match handshake {
            Handshake::Direct => {
                self.set_related(id, NO_NUMBER);
                (0, None)
            }
            Handshake::Related if self.flow(id).is_some_and(Flow::is_call) => {
                self.helped.get(id).ok_or(NoRoom)?;
                (HELPED, None)
            }
            Handshake::Related => (0, None),
            Handshake::Helped(streams) => {
                let rule = self.helped.get(id).map_or(NO_NUMBER, |helped| helped.rule);
                return self.set_helped(id, streams.map(Stream::taken_up), rule);
            }
            Handshake::Shown(number) => (PROXIED, Some(number)),
            Handshake::Spliced(number) => (PROXIED | SPLICED, Some(number)),
        };
        if let Some(number) = number {
            *self.numbers.get_mut(id).ok_or(NoRoom)? = number;
        }
        if let Some(flow) = self.flow_mut(id) {
            flow.state = flow.state & !(PROXIED | SPLICED) | bits;
        }
        Ok(())
    }
}
