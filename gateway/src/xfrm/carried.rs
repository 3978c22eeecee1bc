//! Data plane of a live gateway behind the databases: the supervisor is asked, and uses are counted from what workers share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dataplane::sa::Sequence;
use wire::esp::Direction;

use super::association::{Association, Numbers};
use super::linux::mirror::Plane;
use super::message::{AF_INET, AF_INET6, ESP, Errno, Id, SaId};
use super::parse::Refusal;
use super::state::{Carrier, Protected, Usage};
use crate::event::Event;

/// Time for which the supervisor is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Name of an association: its SPI, and the destination of its outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Security parameters index.
    pub spi: u32,
    /// Destination of outer packets.
    pub destination: IpAddr,
}

impl Name {
    /// The name of an association.
    pub fn of(association: &Association) -> Name {
        Name { spi: association.spi, destination: association.destination }
    }
}

impl From<Name> for SaId {
    fn from(name: Name) -> SaId {
        let Name { spi, destination } = name;
        let family = if destination.is_ipv4() { AF_INET } else { AF_INET6 };
        SaId { id: Id { destination: destination.into(), spi, protocol: ESP }, family }
    }
}

/// Change of the associations that the data plane carries.
pub struct Change {
    /// The change.
    pub kind: ChangeKind,
    /// Channel for the outcome.
    pub done: SyncSender<Result<(), Refusal>>,
}

/// Kinds of changes.
pub enum ChangeKind {
    /// Another association.
    Add(Carriage),
    /// Other ends, bounds or packets of the association of that name.
    Change(Name, Carriage),
    /// The end of these.
    Remove(Vec<Name>),
}

/// Question for the direction in which a tunnel has use for an association.
pub struct TunnelFor {
    /// The association.
    pub association: Association,
    /// Channel for the answer.
    pub found: SyncSender<Option<Direction>>,
}

/// Association as the data plane is to carry it.
#[derive(Clone)]
pub struct Carriage {
    /// The association.
    pub association: Arc<Association>,
    /// Protection by it, as policies say.
    pub protected: Protected,
    /// Use by workers, once a tunnel has it.
    pub counts: Arc<OnceLock<Counts>>,
}

/// Use of an association by workers.
#[derive(Debug)]
pub struct Counts {
    /// Direction.
    pub direction: Direction,
    /// Counters of its key, which all workers share.
    pub sequence: Arc<Sequence>,
    /// Counts of before the association.
    pub before: Count,
}

/// Packets, their bytes, and those refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    packets: u64,
    bytes: u64,
    replayed: u64,
    forged: u64,
}

impl Count {
    /// Counts under a key.
    pub fn of(sequence: &Sequence) -> Count {
        let used = &sequence.used;
        let errors = used.errors();
        Count {
            packets: used.packets(),
            bytes: used.bytes(),
            replayed: errors.replayed,
            forged: errors.icv_wrong,
        }
    }
}

/// See the module.
pub struct Carried {
    supervisor: Sender<Event>,
    uses: BTreeMap<Name, Use>,
}

/// Use of an association, as far as it has been looked at.
struct Use {
    counts: Arc<OnceLock<Counts>>,
    packets: u64,
    /// Looks that found the first packet, and the latest so far.
    looks: Option<[Instant; 2]>,
}

impl Carried {
    /// The data plane of the gateway whose supervisor takes these events.
    pub fn new(supervisor: Sender<Event>) -> Carried {
        Carried { supervisor, uses: BTreeMap::new() }
    }

    fn ask(&self, kind: ChangeKind) -> Result<(), Refusal> {
        let (done, outcome) = sync_channel(1);
        let gone = || Refusal::new(Errno::CONNRESET, "the gateway is stopping");
        self.supervisor.send(Event::Ike(Change { kind, done })).map_err(|_| gone())?;
        match outcome.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                Err(Refusal::new(Errno::BUSY, "the gateway does not answer in time"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

impl Carrier for Carried {
    fn add(&mut self, association: &Arc<Association>, protected: &Protected) -> Result<(), Refusal> {
        let name = Name::of(association);
        let counts = Arc::<OnceLock<Counts>>::default();
        let (association, protected) = (Arc::clone(association), protected.clone());
        let carriage = Carriage { association, protected, counts: Arc::clone(&counts) };
        if let Err(refusal) = self.ask(ChangeKind::Add(carriage)) {
            if refusal.errno == Errno::BUSY {
                // It may come to it yet, and the daemon takes it for refused.
                let (done, _) = sync_channel(1);
                let kind = ChangeKind::Remove(vec![name]);
                let _ = self.supervisor.send(Event::Ike(Change { kind, done }));
            }
            return Err(refusal);
        }
        self.uses.insert(name, Use { counts, packets: 0, looks: None });
        Ok(())
    }

    fn change(
        &mut self,
        old: &Association,
        new: &Arc<Association>,
        protected: &Protected,
    ) -> Result<(), Refusal> {
        let name = Name::of(old);
        let counts = self.uses.get(&name).map(|used| Arc::clone(&used.counts)).unwrap_or_default();
        let carriage = Carriage { association: Arc::clone(new), protected: protected.clone(), counts };
        self.ask(ChangeKind::Change(name, carriage))
    }

    fn remove(&mut self, associations: &[&Association]) {
        let names: Vec<Name> = associations.iter().map(|association| Name::of(association)).collect();
        for name in &names {
            self.uses.remove(name);
        }
        // Nothing else can be done where the gateway is stopping.
        let _ = self.ask(ChangeKind::Remove(names));
    }

    fn usage(&mut self, association: &Association) -> Usage {
        let used = self.uses.get_mut(&Name::of(association));
        used.map_or_else(Usage::default, |used| used.look(Instant::now()))
    }
}

impl Plane for Carried {
    fn tunnel_for(&mut self, association: &Association) -> Option<Direction> {
        let (found, answer) = sync_channel(1);
        let question = TunnelFor { association: association.clone(), found };
        self.supervisor.send(Event::TunnelFor(question)).ok()?;
        answer.recv_timeout(PATIENCE).ok().flatten()
    }

    fn as_carrier(&mut self) -> &mut dyn Carrier {
        self
    }
}

impl Use {
    /// Use up to now. Times are those of looks, of which there is one each second at least.
    fn look(&mut self, now: Instant) -> Usage {
        let Some(Counts { direction, sequence, before }) = self.counts.get() else { return Usage::default() };
        let count = Count::of(sequence);
        let packets = count.packets.saturating_sub(before.packets);
        if packets > self.packets {
            self.looks = Some(self.looks.map_or([now; 2], |[first, _]| [first, now]));
        }
        self.packets = packets;
        let since = |which: usize| self.looks.map(|looks| now.saturating_duration_since(looks[which]));
        let last = sequence.last();
        Usage {
            bytes: count.bytes.saturating_sub(before.bytes),
            packets,
            since_first: since(0),
            since_last: since(1),
            numbers: match direction {
                Direction::In => Numbers { sent: 0, received: last },
                Direction::Out => Numbers { sent: last, received: 0 },
            },
            // Counters of 32 bits, as Linux has them.
            failures: [
                0,
                count.replayed.wrapping_sub(before.replayed) as u32,
                count.forged.wrapping_sub(before.forged) as u32,
            ],
        }
    }
}

#[cfg(test)]
mod tests;
