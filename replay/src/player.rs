//! Captures on their way through a policy, one packet after the other.

use dataplane::replay::{Due, Readdressed, ReplayError, Way, Witness};
use dataplane::{Replay, Tables};
use lookup::memory::Paging;
use wire::Nanos;

use crate::capture::{Captures, Packet};
use crate::measurement::Observer;
use crate::split::{Assigned, Part};

/// Requests for tokens of buckets that all flows share, at most, that a part keeps.
const MOST_ASKS: usize = 1 << 20;

/// Bytes of captures that are worth having all of the tables' memory at once.
const LARGE: u64 = 16 << 20;

/// A replay under way.
pub struct Player {
    /// Gateway in captured time.
    pub replay: Replay,
    /// Captures.
    pub captures: Captures,
    /// Number behind that of the packet read last.
    number: u64,
    start: Nanos,
    end: Nanos,
    /// Space for a packet with another destination.
    answer: Vec<u8>,
    /// Packets that are played; none stands for all.
    part: Option<Part>,
    /// Packets that no part may have.
    nowhere: u64,
}

impl Player {
    /// A gateway that has seen nothing yet, and all packets of the captures.
    ///
    /// # Errors
    /// The policy asks for more than this machine has.
    pub fn new(tables: Tables, captures: Captures) -> Result<Player, ReplayError> {
        let start = captures.start();
        let paging = if captures.size() < LARGE { Paging::OnDemand } else { Paging::Prefault };
        let replay = Replay::paged(tables, start, Way::Run, paging)?;
        Ok(Player {
            replay,
            captures,
            number: 0,
            start,
            end: start,
            answer: Vec::new(),
            part: None,
            nowhere: 0,
        })
    }

    /// As [`Player::new`], for one part of the packets ([`split`](crate::split)).
    ///
    /// # Errors
    /// The policy asks for more than this machine has.
    pub fn part(tables: Tables, captures: Captures, part: Part) -> Result<Player, ReplayError> {
        let mut player = Player::new(tables, captures)?;
        player.replay.shard.limiter.asks.keep(MOST_ASKS);
        player.part = Some(part);
        Ok(player)
    }

    /// Plays the next packet, which `arrives` sees before the gateway does, with the number by which it is known, and the witness. A
    /// packet of another part is only read. Returns its time of arrival; `None` at the end.
    pub fn step<W: Witness>(
        &mut self,
        observer: &mut Observer<W>,
        arrives: impl FnOnce(u32, &Packet<'_>, &mut W),
    ) -> Option<Nanos> {
        let Player { replay, captures, number, end, answer, part, nowhere, .. } = self;
        let packet = captures.next(&replay.tables)?;
        let (at, this) = (packet.at, packet.arrival as u32);
        *end = at;
        *number = packet.arrival + 1;
        match part.map_or(Assigned::Here, |part| part.assign(packet.bytes)) {
            Assigned::Here => {}
            Assigned::Elsewhere => return Some(at),
            Assigned::Nowhere => {
                *nowhere += 1;
                return Some(at);
            }
        }
        arrives(this, &packet, &mut observer.outputs);
        observer.comes(this, at);
        let (bytes, answered) = packet.as_sent(replay, observer, answer);
        replay.receive(packet.ingress, at, this, bytes, observer);
        if answered == Readdressed::Yes {
            captures.count_answer();
        }
        Some(at)
    }

    /// Ends what is due at the time of the last packet: some flows, and fragments in wait of their first. To be called behind the last packet as
    /// long as more is due.
    pub fn expire(&mut self, witness: &mut impl Witness) -> Due {
        self.replay.expire(self.end, witness)
    }

    /// Ends what is due, and plays all that is still queued: no further packet comes.
    pub fn finish(&mut self, witness: &mut impl Witness) {
        while self.expire(witness) == Due::More {}
        self.replay.finish(witness);
    }

    /// Number of packets read that no part may have.
    pub(crate) fn nowhere(&self) -> u64 {
        self.nowhere
    }

    /// Number of the packet, among all that were read, that was played last under a number of 32 bits.
    pub fn unwrapped(&self, number: u32) -> u64 {
        let last = self.number.saturating_sub(1);
        last.saturating_sub((last as u32).wrapping_sub(number).into())
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
