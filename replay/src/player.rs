//! Captures on their way through a policy, one packet after the other.

use dataplane::replay::{Readdressed, ReplayError, Way, Witness};
use dataplane::{Replay, Tables};
use wire::Nanos;

use crate::capture::{Captures, Packet};
use crate::measurement::Observer;

/// A replay under way.
pub struct Player {
    /// Gateway in captured time.
    pub replay: Replay,
    /// Captures.
    pub captures: Captures,
    number: u32,
    start: Nanos,
    end: Nanos,
    /// Space for a packet with another destination.
    answer: Vec<u8>,
}

impl Player {
    /// A gateway that has seen nothing yet, and all packets of the captures.
    ///
    /// # Errors
    /// The policy asks for more than this machine has.
    pub fn new(tables: Tables, captures: Captures) -> Result<Player, ReplayError> {
        let start = captures.start();
        let replay = Replay::new(tables, start, Way::Run)?;
        Ok(Player { replay, captures, number: 0, start, end: start, answer: Vec::new() })
    }

    /// Plays the next packet, which `arrives` sees before the gateway does, with the number by which it is known, and the witness.
    /// Returns its time of arrival; `None` at the end.
    pub fn step<W: Witness>(
        &mut self,
        observer: &mut Observer<W>,
        arrives: impl FnOnce(u32, &Packet<'_>, &mut W),
    ) -> Option<Nanos> {
        let Player { replay, captures, number, end, answer, .. } = self;
        let packet = captures.next(&replay.tables)?;
        arrives(*number, &packet, &mut observer.outputs);
        observer.comes(*number, packet.at);
        let (bytes, answered) = packet.as_sent(replay, observer, answer);
        let at = packet.at;
        replay.receive(packet.ingress, at, *number, bytes, observer);
        if answered == Readdressed::Yes {
            captures.count_answer();
        }
        *end = at;
        *number = number.wrapping_add(1);
        Some(at)
    }

    /// Plays all that is still queued: no further packet comes.
    pub fn finish(&mut self, witness: &mut impl Witness) {
        self.replay.finish(witness);
    }

    /// Time of the first packet.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Time of receipt of the last packet played.
    pub fn end(&self) -> Nanos {
        self.end
    }
}
