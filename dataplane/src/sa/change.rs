//! Changes of security associations at run time: a rekey is no reload.
//!
//! Keys are expanded, and memory is allocated, on the thread that prepares a change; a shard carries it out between two batches, and gives
//! back what has retired, which the sender frees and zeroises.

use std::sync::Arc;

use esp::{Fingerprint, KeyError, Keys, Window, expand};
use policy::model::Lifetime;
use wire::Nanos;
use wire::esp::{Direction, Esn, Suite, SuiteName, Udp};

use super::{Followed, Inbound, Known, Origin, Outbound, PathNews, Peer, Sas, Senders, usual_port};
use crate::shard::Shard;
use crate::tables::{Address, SaSpec, Selector, Selectors, Tables, Tunnel};

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
    origin: Origin,
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
    /// Agreement of an IKE daemon with the peer; none of one that the operator adds, which is as the policy has the tunnel.
    pub agreed: Option<Agreed>,
}

/// Agreement of an IKE daemon with its peer on a security association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// End of the peer, with the port of its NAT.
    pub peer: Peer,
    /// UDP encapsulation.
    pub udp: Udp,
    /// UDP port that packets leave by; 0 without UDP.
    pub sport: u16,
    /// Workers that send by it.
    pub senders: Senders,
}

/// Reason why a security association cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaError {
    /// No tunnel of that name.
    #[error("there is no tunnel \"{0}\"")]
    NoTunnel(String),
    /// Algorithms that the tunnel does not permit (RFC 8221).
    #[error("{suite} no longer protects, and the tunnel \"{tunnel}\" does not say legacy = true")]
    Legacy {
        /// Name of the tunnel.
        tunnel: String,
        /// Name of the algorithms.
        suite: SuiteName,
    },
    /// Extended sequence numbers of a tunnel without a window against replay, which tells their upper half.
    #[error("extended sequence numbers need a window, and the tunnel \"{0}\" has none")]
    NoWindow(String),
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
    /// Puts one in the place of that of the same name, whose key is the same: with other selectors, ends or bounds.
    Replace(Box<Prepared>),
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
    origin: Origin,
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
    #[error(
        "there is no room for more security associations; delete some that are in use no more, or raise `sas` of [limit]"
    )]
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
        let SaRequest { tunnel, direction, spi, esn, suite, keys, selectors, agreed } = *request;
        let place = tables.interface_named(tunnel);
        let found = place.and_then(|place| tables.tunnel_at(place));
        let ends = found.ok_or_else(|| SaError::NoTunnel(tunnel.to_owned()))?;
        permit(ends, tunnel, suite, direction, esn)?;
        let transform = Arc::from(expand(suite, keys, direction)?);
        let other = match direction {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        };
        let fingerprints = [direction, other].map(|direction| Fingerprint::of(keys, direction));
        if tables.tunnels.specs().any(|(_, spec)| fingerprints.contains(&spec.fingerprint)) {
            return Err(SaError::SameKey);
        }
        let own = || Agreed {
            peer: Peer::given(ends.remote, ends.local, ends.udp),
            udp: ends.udp,
            sport: usual_port(ends.udp),
            senders: Senders::All,
        };
        let Agreed { peer, udp, sport, senders } = agreed.unwrap_or_else(own);
        let destination = match direction {
            Direction::In => ends.local,
            Direction::Out => peer.address,
        };
        let spec = SaSpec {
            direction,
            spi,
            udp,
            sport,
            peer,
            esn,
            // All of a tunnel have windows of one size.
            window: ends.window,
            selectors: match selectors {
                [] => Arc::clone(&ends.selectors),
                own => Arc::new(Selectors::new(own.to_vec())),
            },
            soft: Lifetime::UNBOUNDED,
            hard: Lifetime::UNBOUNDED,
            senders,
            transform,
            fingerprint: fingerprints[0],
            sequence: tables.tunnels.sequences().of(fingerprints[0], direction),
        };
        Ok(SaAddition {
            id: SaId { direction, spi, destination },
            interface: tables.number_of(ends.interface),
            fingerprints,
            origin: agreed.map_or(Origin::Added, |_| Origin::Ike),
            spec: Arc::new(spec),
        })
    }

    /// The same with a lifetime: bounds at which a new one is due, and at which it ends.
    #[must_use]
    pub fn living(mut self, soft: Lifetime, hard: Lifetime) -> SaAddition {
        // No shard has it yet.
        if let Some(spec) = Arc::get_mut(&mut self.spec) {
            (spec.soft, spec.hard) = (soft, hard);
        }
        self
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

    /// Checks that the association may go on with other tables. One whose tunnel they have not goes with the tunnel.
    ///
    /// # Errors
    /// [`SaError`]
    pub fn check(&self, tables: &Tables) -> Result<(), SaError> {
        let Some(place) = tables.interface_numbered(self.interface) else { return Ok(()) };
        let Some((ends, interface)) = tables.tunnel_at(place).zip(tables.interface(place)) else {
            return Ok(());
        };
        let SaSpec { direction, esn, transform, .. } = &*self.spec;
        permit(ends, &interface.name, transform.suite(), *direction, *esn)?;
        let is_own = |(tunnel, spec): &(&Tunnel, &SaSpec)| self.is(tables.number_of(tunnel.interface), spec);
        let mut with_key =
            tables.tunnels.specs().filter(|(_, spec)| self.fingerprints.contains(&spec.fingerprint));
        if with_key.all(|of| is_own(&of)) { Ok(()) } else { Err(SaError::SameKey) }
    }

    /// True if the policy of these tables has the association itself: its tunnel, name and key.
    pub fn is_in(&self, tables: &Tables) -> bool {
        tables.tunnels.specs().any(|(tunnel, spec)| self.is(tables.number_of(tunnel.interface), spec))
    }

    /// True for the same association of the tunnel with that number.
    fn is(&self, interface: u32, other: &SaSpec) -> bool {
        let SaSpec { direction, spi, fingerprint, .. } = &*self.spec;
        (interface, other.direction, other.spi, other.fingerprint)
            == (self.interface, *direction, *spi, *fingerprint)
    }

    /// Allocates the memory of one shard for one more.
    pub fn prepare(&self) -> SaChange {
        SaChange::Add(Box::new(self.prepared()))
    }

    /// The same for one that takes the place of that of its name.
    pub fn prepare_to_replace(&self) -> SaChange {
        SaChange::Replace(Box::new(self.prepared()))
    }

    fn prepared(&self) -> Prepared {
        let (interface, origin, spec) = (self.interface, self.origin, Arc::clone(&self.spec));
        let window = (spec.direction == Direction::In).then(|| Inbound::window(&spec));
        Prepared { interface, origin, spec, window }
    }
}

/// Refuses what a tunnel does not permit, whoever asks for it.
fn permit(ends: &Tunnel, tunnel: &str, suite: &Suite, direction: Direction, esn: Esn) -> Result<(), SaError> {
    if !ends.permits(suite) {
        return Err(SaError::Legacy { tunnel: tunnel.to_owned(), suite: suite.name() });
    }
    if (direction, esn) == (Direction::In, Esn::On) && ends.window == 0 {
        return Err(SaError::NoWindow(tunnel.to_owned()));
    }
    Ok(())
}

impl Shard {
    /// Changes a security association. `tables` are the ones that the shard works with; the lifetime of one whose key was not used before begins
    /// at `now`. Takes as long as a packet.
    ///
    /// # Errors
    /// [`SaRefused`]
    pub fn change_sa(
        &mut self,
        tables: &Tables,
        change: SaChange,
        now: Nanos,
    ) -> Result<Option<RetiredSa>, SaRefused> {
        match change {
            SaChange::Path { interface, news, at } => {
                self.sas.hear(tunnel_of(interface, tables)?, news, at, &mut self.hops, tables);
                Ok(None)
            }
            SaChange::Add(prepared) => self.sas.add(tables, *prepared, now).map(|()| None),
            SaChange::Replace(prepared) => self.sas.replace(tables, *prepared).map(Some),
            SaChange::Delete(id) => self.sas.delete(&id).map(Some).ok_or(SaRefused::Unknown),
        }
    }
}

/// Number of the tunnel whose interface has that number.
fn tunnel_of(interface: u32, tables: &Tables) -> Result<u16, SaRefused> {
    let place = tables.interface_numbered(interface);
    place.and_then(|place| tables.tunnel_of(place)).ok_or(SaRefused::NoTunnel)
}

impl Sas {
    fn add(&mut self, tables: &Tables, prepared: Prepared, now: Nanos) -> Result<(), SaRefused> {
        let Prepared { interface, origin, spec, window } = prepared;
        let number = tunnel_of(interface, tables)?;
        let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(SaRefused::NoTunnel)?;
        if let Some(window) = window {
            if self.index.contains_key(&(spec.spi, tunnel.local)) {
                return Err(SaRefused::Taken);
            }
            if self.inbound.len() == self.inbound.capacity() {
                return Err(SaRefused::Full);
            }
            spec.sequence.used.begin(now);
            self.receive(Inbound { origin, ..Inbound::new(number, tunnel, &spec, window) });
            return Ok(());
        }
        // Peers without an address may have chosen the same.
        let is_same = |other: &Outbound| (other.spi, other.destination) == (spec.spi, spec.peer.address);
        if self.all_outbound().any(is_same) {
            return Err(SaRefused::Taken);
        }
        if self.all_outbound().any(|other| (other.tunnel, other.spi) == (number, spec.spi)) {
            return Err(SaRefused::Taken);
        }
        let at_run_time = self.all_outbound().filter(|sa| sa.origin != Origin::Policy).count();
        let mut sa = Outbound { origin, ..Outbound::new(number, tunnel, &spec) };
        let list = self.list_of(&sa).ok_or(SaRefused::NoTunnel)?;
        if list.len() >= list.capacity() || at_run_time >= tables.limits.sas as usize {
            return Err(SaRefused::Full);
        }
        if origin == Origin::Ike {
            self.heed(&mut sa);
        } else if let Some(before) = self.outbound(number) {
            // The peer is where its packets have come from.
            sa.peer = before.peer;
        } else if let Some(seen) = self.followed.get(usize::from(number)).map(Followed::seen) {
            sa.peer = if seen.takes(sa.udp) { seen } else { sa.peer };
        }
        sa.sequence.used.begin(now);
        self.put_out(sa);
        Ok(())
    }

    /// Sends packets of a tunnel to where an IKE daemon says that the peer is.
    fn heed(&mut self, sa: &mut Outbound) {
        let Some(followed) = self.followed.get_mut(usize::from(sa.tunnel)) else { return };
        sa.peer = followed.heed(sa.peer);
        // A tunnel has one peer, wherever the daemon has said that of one association so far.
        for other in self.of_tunnel_mut(sa.tunnel) {
            other.peer.address = sa.peer.address;
            if other.udp == sa.udp {
                other.peer = sa.peer;
            }
        }
    }

    fn replace(&mut self, tables: &Tables, prepared: Prepared) -> Result<RetiredSa, SaRefused> {
        let Prepared { interface, origin, spec, window } = prepared;
        let number = tunnel_of(interface, tables)?;
        let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(SaRefused::NoTunnel)?;
        if let Some(window) = window {
            let place = self.place_of_inbound(spec.spi, tunnel.local).ok_or(SaRefused::Unknown)?;
            let old = self.inbound_at(place).ok_or(SaRefused::Unknown)?;
            let mut sa = Inbound { origin, ..Inbound::new(number, tunnel, &spec, window) };
            sa.go_on(old);
            return Ok(RetiredSa { _in: Some(std::mem::replace(old, sa)), _out: None });
        }
        let mut sa = Outbound { origin, ..Outbound::new(number, tunnel, &spec) };
        self.heed(&mut sa);
        let is_it = |other: &Outbound| (other.tunnel, other.spi) == (number, spec.spi);
        let list = self.list_of(&sa).ok_or(SaRefused::NoTunnel)?;
        if let Some(old) = list.iter_mut().find(|other| is_it(other) && other.rank() == sa.rank()) {
            sa.go_on(old);
            return Ok(RetiredSa { _in: None, _out: Some(std::mem::replace(old, sa)) });
        }
        let mut old = self.take_out(is_it).ok_or(SaRefused::Unknown)?;
        sa.go_on(&mut old);
        self.put_out(sa);
        Ok(RetiredSa { _in: None, _out: Some(old) })
    }

    fn delete(&mut self, id: &SaId) -> Option<RetiredSa> {
        let SaId { direction, spi, destination } = *id;
        if direction == Direction::In {
            return self.cease(spi, destination).map(|sa| RetiredSa { _in: Some(sa), _out: None });
        }
        let out = self.take_out(|sa| (sa.spi, sa.destination) == (spi, destination))?;
        Some(RetiredSa { _in: None, _out: Some(out) })
    }
}
