//! Changes of security associations at run time: a rekey is no reload.
//!
//! Keys are expanded, and memory is allocated, on the thread that prepares a change; a shard carries it out between two batches, and gives
//! back what has retired, which the sender frees and zeroises.

use std::sync::Arc;

use esp::{Fingerprint, KeyError, Keys, Window, expand};
use policy::model::Lifetime;
use wire::Nanos;
use wire::esp::{Direction, Esn, Suite};

use super::{Inbound, Known, MOST_OUT, Origin, Outbound, PathNews};
use crate::shard::Shard;
use crate::tables::{Address, SaSpec, Selector, Selectors, Tables};

/// Name of a security association (RFC 4301, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaId {
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Outer destination: an end of the gateway, or its peer.
    pub destination: Address,
}

/// Security association to add, with its keys expanded: as often as there are shards to have it, and again for one that has begun anew.
#[derive(Clone)]
pub struct SaAddition {
    /// Its name.
    pub id: SaId,
    /// Number of the tunnel's interface, which stays with its name.
    pub interface: u32,
    /// Fingerprint of the key, and that of the same key in the other direction.
    fingerprints: [Fingerprint; 2],
    spec: Arc<SaSpec>,
}

/// Security association that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct SaRequest<'a> {
    /// Name of the tunnel.
    pub tunnel: &'a str,
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms.
    pub suite: &'static Suite,
    /// Keys.
    pub keys: &'a Keys,
    /// Packets that it may carry, as its peer has agreed to; those of the tunnel's own selectors where there are none.
    pub selectors: &'a [Selector],
}

/// Reason why a security association cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaError {
    /// No tunnel of that name.
    #[error("there is no tunnel \"{0}\"")]
    NoTunnel(String),
    /// A key of another length, or an algorithm that no library has.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A key that another security association has.
    #[error("another security association has the same key: numbers would be used twice under one key")]
    SameKey,
    /// Refusal by a worker.
    #[error(transparent)]
    Refused(#[from] SaRefused),
}

/// Change of a shard's security associations.
pub enum SaChange {
    /// Adds one. That of packets that leave is in use at once, for those that its selectors match.
    Add(Box<Prepared>),
    /// Deletes one.
    Delete(SaId),
    /// Takes in what another shard has learnt of the way to a tunnel's peer.
    Path {
        /// Number of the tunnel's interface, which stays with its name.
        interface: u32,
        /// The news.
        news: PathNews,
        /// Moment from which they hold.
        at: Nanos,
    },
}

/// Security association with the memory of one shard.
pub struct Prepared {
    interface: u32,
    spec: Arc<SaSpec>,
    /// Window of one that packets come in by.
    window: Option<Window>,
}

/// Security association that is in use no more. Its keys are zeroised as soon as no shard has it.
pub struct RetiredSa {
    _in: Option<Inbound>,
    _out: Option<Outbound>,
}

/// Reason for refusing a change. Nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaRefused {
    /// The tunnel is gone.
    #[error("the tunnel is gone")]
    NoTunnel,
    /// Another one has the name.
    #[error("there is a security association of this SPI already")]
    Taken,
    /// There are as many as there is room for.
    #[error("there is no room for more security associations; delete some that are in use no more")]
    Full,
    /// There is none of that name.
    #[error("there is no such security association")]
    Unknown,
}

impl SaAddition {
    /// Expands the keys of a security association. Takes longer than a packet, and allocates.
    ///
    /// # Errors
    /// [`SaError`]
    pub fn new(tables: &Tables, request: &SaRequest<'_>) -> Result<SaAddition, SaError> {
        let SaRequest { tunnel, direction, spi, esn, suite, keys, selectors } = *request;
        let place = tables.interface_named(tunnel);
        let found = place.and_then(|place| tables.tunnel_at(place));
        let ends = found.ok_or_else(|| SaError::NoTunnel(tunnel.to_owned()))?;
        let transform = Arc::from(expand(suite, keys, direction)?);
        let other = match direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let fingerprints = [direction, other].map(|direction| Fingerprint::of(keys, direction));
        let has_key = |spec: &SaSpec| fingerprints.contains(&spec.fingerprint);
        let list = &tables.tunnels.list;
        if list.iter().any(|tunnel| has_key(&tunnel.out) || tunnel.inward.iter().any(has_key)) {
            return Err(SaError::SameKey);
        }
        let destination = ends.destination(direction);
        let spec = SaSpec {
            direction,
            spi,
            esn,
            // All of a tunnel have windows of one size.
            window: ends.out.window,
            selectors: match selectors {
                [] => Arc::clone(&ends.selectors),
                own => Arc::new(Selectors::new(own.to_vec())),
            },
            soft: Lifetime::UNBOUNDED,
            hard: Lifetime::UNBOUNDED,
            transform,
            fingerprint: fingerprints[0],
            sequence: tables.tunnels.sequences().of(fingerprints[0], direction),
        };
        Ok(SaAddition {
            id: SaId { direction, spi, destination },
            interface: tables.number_of(ends.interface),
            fingerprints,
            spec: Arc::new(spec),
        })
    }

    /// True if the other one has the same key, in either direction.
    pub fn has_key_of(&self, other: &SaAddition) -> bool {
        self.fingerprints.contains(&other.fingerprints[0])
    }

    /// Numbers used under the key.
    pub fn known(&self) -> Known {
        let SaSpec { fingerprint, direction, sequence, .. } = &*self.spec;
        Known { fingerprint: *fingerprint, direction: *direction, sequence: Arc::clone(sequence) }
    }

    /// True if its tunnel is one of these tables'.
    pub fn is_of(&self, tables: &Tables) -> bool {
        tables.interface_numbered(self.interface).and_then(|place| tables.tunnel_of(place)).is_some()
    }

    /// Allocates the memory of one shard.
    pub fn prepare(&self) -> SaChange {
        let (interface, spec) = (self.interface, Arc::clone(&self.spec));
        let window = (spec.direction == Direction::In).then(|| Inbound::window(&spec));
        SaChange::Add(Box::new(Prepared { interface, spec, window }))
    }
}

impl Shard {
    /// Changes a security association. `tables` are the ones that the shard works with. Takes as long as a packet.
    ///
    /// # Errors
    /// [`SaRefused`]
    pub fn change_sa(&mut self, tables: &Tables, change: SaChange) -> Result<Option<RetiredSa>, SaRefused> {
        let sas = &mut self.sas;
        let tunnel_of = |interface| {
            let place = tables.interface_numbered(interface);
            place.and_then(|place| tables.tunnel_of(place)).ok_or(SaRefused::NoTunnel)
        };
        match change {
            SaChange::Path { interface, news, at } => {
                sas.hear(tunnel_of(interface)?, news, at, &mut self.hops, tables);
                Ok(None)
            }
            SaChange::Add(prepared) => {
                let Prepared { interface, spec, window } = *prepared;
                let number = tunnel_of(interface)?;
                let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(SaRefused::NoTunnel)?;
                if let Some(window) = window {
                    if sas.index.contains_key(&(spec.spi, tunnel.local)) {
                        return Err(SaRefused::Taken);
                    }
                    if sas.inbound.len() == sas.inbound.capacity() {
                        return Err(SaRefused::Full);
                    }
                    sas.receive(Inbound {
                        origin: Origin::Added,
                        ..Inbound::new(number, tunnel, &spec, window)
                    });
                    return Ok(None);
                }
                let list = sas.outbound.get_mut(usize::from(number)).ok_or(SaRefused::NoTunnel)?;
                if list.iter().any(|other| other.spi == spec.spi) {
                    return Err(SaRefused::Taken);
                }
                if list.len() >= MOST_OUT {
                    return Err(SaRefused::Full);
                }
                let mut sa = Outbound { origin: Origin::Added, ..Outbound::new(number, tunnel, &spec) };
                if let Some(before) = list.last() {
                    // The peer is where its packets have come from.
                    sa.peer = before.peer;
                }
                list.push(sa);
                Ok(None)
            }
            SaChange::Delete(SaId { direction: Direction::In, spi, destination }) => {
                let sa = sas.cease(spi, destination).ok_or(SaRefused::Unknown)?;
                Ok(Some(RetiredSa { _in: Some(sa), _out: None }))
            }
            SaChange::Delete(SaId { direction: Direction::Out, spi, destination }) => {
                let ends = tables.tunnels.list.iter().map(|tunnel| tunnel.remote);
                for (list, remote) in sas.outbound.iter_mut().zip(ends) {
                    let place = list.iter().position(|sa| sa.spi == spi && remote == destination);
                    if let Some(place) = place {
                        return Ok(Some(RetiredSa { _in: None, _out: Some(list.remove(place)) }));
                    }
                }
                Err(SaRefused::Unknown)
            }
        }
    }
}
