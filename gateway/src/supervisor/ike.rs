//! Security associations of IKE daemons, bound to the tunnels that they are for.
//!
//! One that no tunnel is for is kept in reserve, and carried as soon as a reload brings the tunnel; a tunnel that goes leaves its own in reserve. Keys are in memory alone,
//! and zeroised with the last who has the association.

use std::sync::Arc;

use dataplane::sa::{Agreed, Known, Peer, SaAddition, SaError, SaRefused, SaRequest, Senders};
use dataplane::tables::{Ends, Selector};
use policy::Policy;
use policy::model::{Binding, Interface, KeySource, Lifetime, Tunnel};
use tracing::{info, warn};
use wire::Nanos;
use wire::esp::{Direction, Mode, NAT_PORT, Udp};

use super::Supervisor;
use super::sa::warn_of_weakness;
use super::worker::Workers;
use crate::reload::BuildError;
use crate::sa::Spi;
use crate::sa::key_log::Logged;
use crate::xfrm::association::Association;
use crate::xfrm::carried::{Carriage, Change, ChangeKind, Count, Counts, Name, TunnelFor};
use crate::xfrm::message::{Errno, Lifetimes};
use crate::xfrm::parse::Refusal;
use crate::xfrm::selector;
use crate::xfrm::server::News;

/// All associations of IKE daemons.
#[derive(Default)]
pub(super) struct Daemons {
    list: Vec<Held>,
}

/// Association of an IKE daemon.
struct Held {
    carriage: Carriage,
    /// As its tunnel has it; none in reserve.
    bound: Option<Bound>,
}

struct Bound {
    sa: SaAddition,
    tunnel: String,
    binding: Binding,
}

/// Tunnel that an association is for.
struct Fit<'p> {
    interface: &'p Interface,
    tunnel: &'p Tunnel,
    direction: Direction,
}

impl Held {
    fn name(&self) -> Name {
        Name::of(&self.carriage.association)
    }
}

impl Daemons {
    /// Numbers of those that a tunnel has.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> + '_ {
        self.bound().map(|bound| bound.sa.known())
    }

    /// Gives a worker that has begun anew what it had.
    pub(super) fn restore(&self, worker: usize, workers: &Workers) {
        self.bound().for_each(|bound| workers.restore_sa(worker, &bound.sa));
    }

    /// True if one has the key.
    pub(super) fn have_key_of(&self, sa: &SaAddition) -> bool {
        self.bound().any(|bound| sa.has_key_of(&bound.sa))
    }

    /// Name of a tunnel's association.
    pub(super) fn named(&self, tunnel: &str, direction: Direction, spi: u32) -> Option<Name> {
        let is_it = |held: &&Held| {
            let bound = held.bound.as_ref();
            bound.is_some_and(|bound| {
                bound.tunnel == tunnel && (bound.sa.id.direction, bound.sa.id.spi) == (direction, spi)
            })
        };
        self.list.iter().find(is_it).map(Held::name)
    }

    /// The newest association of packets that come in by a tunnel in UDP, from a port that is known.
    fn through_nat(&self, tunnel: &str) -> Option<Name> {
        let is_it = |held: &&Held| {
            let bound = held.bound.as_ref();
            held.carriage.association.udp.is_some_and(|[source, _]| source != 0)
                && bound.is_some_and(|bound| bound.tunnel == tunnel && bound.sa.id.direction == Direction::In)
        };
        self.list.iter().rfind(is_it).map(Held::name)
    }

    /// Names of those that a tunnel has for packets that come in.
    fn bound_inbound(&self) -> impl Iterator<Item = Name> + '_ {
        let is_inbound = |bound: &Bound| bound.sa.id.direction == Direction::In;
        self.list.iter().filter(move |held| held.bound.as_ref().is_some_and(is_inbound)).map(Held::name)
    }

    fn bound(&self) -> impl Iterator<Item = &Bound> {
        self.list.iter().filter_map(|held| held.bound.as_ref())
    }

    fn place(&self, name: Name) -> Option<usize> {
        self.list.iter().position(|held| held.name() == name)
    }
}

/// The tunnel of a policy that an association is for.
fn fit<'p>(policy: &'p Policy, association: &Association) -> Option<Fit<'p>> {
    let tunnels =
        policy.interfaces.iter().filter_map(|interface| Some((interface, interface.esp.as_deref()?)));
    tunnels.filter(|(_, tunnel)| tunnel.keys == KeySource::Ike).find_map(|(interface, tunnel)| {
        let direction = match tunnel.local {
            local if local == association.destination => Direction::In,
            local if local == association.source => Direction::Out,
            _ => return None,
        };
        let peer = match direction {
            Direction::In => association.source,
            Direction::Out => association.destination,
        };
        let is_for = match tunnel.binding() {
            Binding::IfId(number) => number == association.if_id,
            Binding::Reqid(number) => number == association.reqid,
            Binding::Ends(_, remote) => remote == Some(peer) && association.if_id == 0,
        };
        let is_told = association.direction.is_none_or(|told| told == direction);
        (is_for && is_told).then_some(Fit { interface, tunnel, direction })
    })
}

/// Refuses what the data plane has no means for.
fn refuse(association: &Association, fit: &Fit<'_>) -> Result<(), Refusal> {
    let Fit { interface, tunnel, direction } = *fit;
    let name = &interface.name;
    let [source, destination] = association.udp.unwrap_or([NAT_PORT; 2]);
    let words = if association.mode != tunnel.mode {
        let mode = |mode| if mode == Mode::Tunnel { "tunnel" } else { "transport" };
        let (own, asked) = (mode(tunnel.mode), mode(association.mode));
        format!("the tunnel \"{name}\" is of {own} mode, and the SA of {asked} mode")
    } else if direction == Direction::In && destination != NAT_PORT {
        format!("ESP in UDP is at port {NAT_PORT} here, not at {destination}")
    } else if direction == Direction::Out && source == 0 {
        "ESP in UDP needs a port to leave by".to_owned()
    } else {
        return Ok(());
    };
    Err(Refusal::new(Errno::INVAL, words))
}

/// Packets that an association may carry; none where any may be.
fn selectors(carriage: &Carriage, direction: Direction) -> Result<Vec<Selector>, Refusal> {
    let asked = match &carriage.association.selector {
        Some(own) => std::slice::from_ref(own),
        None => &carriage.protected.packets[..],
    };
    let all: Vec<Selector> = asked.iter().filter_map(|one| selector::of(one, direction)).collect();
    if all.len() < asked.len() {
        let spi = carriage.association.spi;
        warn!(
            spi = %Spi(spi),
            "traffic selectors by ICMP types, users or interfaces are left out: their packets are not carried"
        );
    }
    if all.is_empty() && !asked.is_empty() {
        return Err(Refusal::new(Errno::OPNOTSUPP, "none of the traffic selectors can be carried"));
    }
    Ok(all)
}

/// Bounds at which a new association is due, and at which this one ends, as workers watch them. To end it by time is its database's matter.
fn bounds(lifetimes: &Lifetimes) -> (Lifetime, Lifetime) {
    let Lifetimes { bytes, packets, added, .. } = lifetimes;
    let some = |bound: u64| Some(bound).filter(|bound| *bound != u64::MAX);
    // A bound of no seconds is none.
    let time =
        some(added[0]).filter(|seconds| *seconds > 0).and_then(|seconds| seconds.checked_mul(1_000_000_000));
    let [soft, hard] =
        [0, 1].map(|at| Lifetime { bytes: some(bytes[at]), packets: some(packets[at]), time: None });
    (Lifetime { time: time.map(Nanos), ..soft }, hard)
}

fn refusal(error: &SaError) -> Refusal {
    let errno = match error {
        SaError::SameKey | SaError::Refused(SaRefused::Taken) => Errno::EXIST,
        SaError::Refused(SaRefused::Full) => Errno::NOBUFS,
        _ => Errno::INVAL,
    };
    Refusal::new(errno, error.to_string())
}

impl Supervisor {
    /// Carries out what the daemons' databases ask for.
    pub(super) fn change_ike(&mut self, change: Change) {
        let outcome = match change.kind {
            ChangeKind::Add(carriage) => self.take_up(carriage),
            ChangeKind::Change(name, carriage) => self.change_held(name, carriage),
            ChangeKind::Remove(names) => {
                self.let_go(&names);
                Ok(())
            }
        };
        // Whoever asked has gone: so has the need of an answer.
        let _ = change.done.send(outcome);
    }

    /// Answers for which direction of a tunnel an association is.
    pub(super) fn find_tunnel(&self, question: TunnelFor) {
        let TunnelFor { association, found } = question;
        let fit = fit(&self.reload.effective.policy, &association);
        // Whoever asked has gone: so has the need of an answer.
        let _ = found.send(fit.map(|fit| fit.direction));
    }

    fn take_up(&mut self, carriage: Carriage) -> Result<(), Refusal> {
        let bound = self.bind(&carriage)?;
        if bound.is_none() && !carriage.protected.stands_by {
            let Association { spi, source, destination, reqid, if_id, .. } = &*carriage.association;
            warn!(spi = %Spi(*spi), %source, %destination, reqid, if_id, "no tunnel of the policy is for this SA of an IKE daemon: it is kept in reserve");
        }
        self.daemons.list.push(Held { carriage, bound });
        Ok(())
    }

    /// Gives an association to the tunnel that it is for, and workers; returns none where there is no such tunnel, and where it is to stand by.
    fn bind(&mut self, carriage: &Carriage) -> Result<Option<Bound>, Refusal> {
        let policy = Arc::clone(&self.reload.effective);
        let Some(fit) = fit(&policy.policy, &carriage.association) else { return Ok(None) };
        let sa = self.addition(carriage, &fit)?;
        if self.added.have_key_of(&sa) || self.daemons.have_key_of(&sa) {
            return Err(refusal(&SaError::SameKey));
        }
        if carriage.protected.stands_by {
            return Ok(None);
        }
        let known = sa.known();
        let Association { numbers, spi, .. } = &*carriage.association;
        known.sequence.raise(match fit.direction {
            Direction::In => numbers.received,
            Direction::Out => numbers.sent,
        });
        let before = Count::of(&known.sequence);
        let all: Vec<Known> = self.known().chain([known.clone()]).collect();
        let reserved = self.reserve.top_up(&self.reload.tables, &all).map_err(BuildError::Reserve);
        reserved.map_err(|error| Refusal::new(Errno::NOSPC, error.to_string()))?;
        let added = self.workers.change_sa(&sa.id, || sa.prepare()).map_err(SaError::Refused);
        added.map_err(|error| refusal(&error))?;
        let tunnel = fit.interface.name.clone();
        info!(tunnel, direction = fit.direction.name(), spi = %Spi(*spi), "security association of an IKE daemon");
        warn_of_weakness(&tunnel, *spi, carriage.association.suite);
        let (direction, sequence) = (fit.direction, known.sequence);
        // A tunnel that came back goes on with the counts of before.
        let _ = carriage.counts.set(Counts { direction, sequence, before });
        self.log_key_of(&carriage.association, &fit);
        Ok(Some(Bound { sa, tunnel, binding: fit.tunnel.binding() }))
    }

    fn addition(&self, carriage: &Carriage, fit: &Fit<'_>) -> Result<SaAddition, Refusal> {
        let Fit { interface, direction, .. } = *fit;
        let association = &*carriage.association;
        refuse(association, fit)?;
        let [source, destination] = association.udp.unwrap_or_default();
        let (address, port, sport) = match direction {
            Direction::In => (association.source, source, destination),
            Direction::Out => (association.destination, destination, source),
        };
        let (soft, hard) = bounds(&association.lifetimes);
        let agreed = Agreed {
            peer: Peer { address: address.into(), port },
            udp: if association.udp.is_some() { Udp::Yes } else { Udp::No },
            sport,
            senders: match association.cpu {
                Some(cpu) => Senders::One(cpu),
                None if carriage.protected.per_cpu => Senders::Fallback,
                None => Senders::All,
            },
        };
        let request = SaRequest {
            tunnel: &interface.name,
            direction,
            spi: association.spi,
            esn: association.esn,
            suite: association.suite,
            keys: &association.keys,
            selectors: &selectors(carriage, direction)?,
            agreed: Some(agreed),
        };
        let sa = SaAddition::new(&self.reload.tables, &request).map_err(|error| refusal(&error))?;
        Ok(sa.living(soft, hard))
    }

    fn log_key_of(&mut self, association: &Association, fit: &Fit<'_>) {
        let Association { source, destination, spi, suite, keys, .. } = association;
        let (local, remote) = match fit.direction {
            Direction::In => (*destination, *source),
            Direction::Out => (*source, *destination),
        };
        if let Some(log) = &mut self.key_log {
            log.note(&Logged {
                local,
                remote: Some(remote),
                direction: fit.direction,
                spi: *spi,
                suite,
                keys,
            });
        }
    }

    /// Changes ends, bounds or packets of an association, which stays as it is where that is refused.
    fn change_held(&mut self, name: Name, carriage: Carriage) -> Result<(), Refusal> {
        let place = self.daemons.place(name);
        let place = place.ok_or_else(|| Refusal::new(Errno::SRCH, "the SA is not known any more"))?;
        let policy = Arc::clone(&self.reload.effective);
        let fit = fit(&policy.policy, &carriage.association);
        let before = self.daemons.list.get(place).and_then(|held| held.bound.as_ref());
        let same = fit.filter(|fit| before.is_some_and(|bound| bound.tunnel == fit.interface.name));
        let same = same.filter(|_| !carriage.protected.stands_by);
        let bound = match same {
            Some(fit) => {
                let sa = self.addition(&carriage, &fit)?;
                if fit.direction == Direction::Out {
                    sa.known().sequence.raise(carriage.association.numbers.sent);
                }
                let changed = self.workers.replace_sa(&sa.id, || sa.prepare_to_replace());
                changed.map_err(|error| refusal(&SaError::Refused(error)))?;
                Some(Bound { sa, tunnel: fit.interface.name.clone(), binding: fit.tunnel.binding() })
            }
            None => {
                self.drain_for(&[name]);
                self.unbind(place);
                self.bind(&carriage)?
            }
        };
        if let Some(held) = self.daemons.list.get_mut(place) {
            *held = Held { carriage, bound };
        }
        Ok(())
    }

    fn let_go(&mut self, names: &[Name]) {
        self.drain_for(names);
        for name in names {
            if let Some(place) = self.daemons.place(*name) {
                self.unbind(place);
                self.daemons.list.remove(place);
            }
        }
    }

    /// Drains the ports before associations are taken from their tunnels, if packets come in by one of them.
    fn drain_for(&self, names: &[Name]) {
        if self.daemons.bound_inbound().any(|name| names.contains(&name)) {
            self.workers.drain();
        }
    }

    /// Takes an association from its tunnel: it is in reserve then.
    fn unbind(&mut self, place: usize) {
        let Some(bound) = self.daemons.list.get_mut(place).and_then(|held| held.bound.take()) else { return };
        self.workers.delete_sa(&bound.sa.id);
        let (tunnel, spi) = (bound.tunnel, bound.sa.id.spi);
        info!(
            tunnel,
            direction = bound.sa.id.direction.name(),
            spi = %Spi(spi),
            "security association of an IKE daemon deleted"
        );
    }

    /// Binds associations to the tunnels of the tables that have just come into force.
    pub(super) fn bind_anew(&mut self) {
        let policy = Arc::clone(&self.reload.effective);
        for place in 0..self.daemons.list.len() {
            let Some(held) = self.daemons.list.get_mut(place) else { continue };
            let carriage = held.carriage.clone();
            let fit = fit(&policy.policy, &carriage.association);
            let fits = |bound: &Bound| {
                fit.as_ref().is_some_and(|fit| {
                    fit.interface.name == bound.tunnel && fit.tunnel.binding() == bound.binding
                })
            };
            let tables = &self.reload.tables;
            match &held.bound {
                Some(bound) if fits(bound) && bound.sa.is_of(tables) && bound.sa.check(tables).is_ok() => {
                    continue;
                }
                // Workers have none of a tunnel that is gone.
                Some(bound) if !bound.sa.is_of(tables) => held.bound = None,
                Some(_) => self.unbind(place),
                None => {}
            }
            let spi = carriage.association.spi;
            match self.bind(&carriage) {
                Ok(bound) => {
                    if let Some(held) = self.daemons.list.get_mut(place) {
                        held.bound = bound;
                    }
                }
                Err(refusal) => warn!(spi = %Spi(spi), "an SA of an IKE daemon stays in reserve: {refusal}"),
            }
        }
    }

    /// Tells the daemons' databases what they have asked to be told.
    pub(super) fn tell_ike(&self, news: News) {
        if let Some(xfrm) = &self.process.xfrm {
            xfrm.tell(news);
        }
    }

    /// Tells of a packet that no association of a tunnel carries, or, of a worker, none of the worker's own. A worker is the processor of its number.
    pub(super) fn packet_misses(&self, tunnel: &str, ends: &Ends, worker: Option<usize>) {
        let found = self.reload.effective.policy.interface(tunnel).and_then(|own| own.esp.as_ref());
        if let Some(found) = found {
            let cpu = worker.and_then(|worker| u16::try_from(worker).ok());
            self.tell_ike(News::Needed { tunnel: found.binding(), packet: selector::of_packet(ends), cpu });
        }
    }

    /// Tells of a peer that has moved, if a daemon has given the tunnel's associations.
    pub(super) fn peer_moved(&self, tunnel: &str, peer: Peer) {
        if let Some(name) = self.daemons.through_nat(tunnel).filter(|_| peer.port != 0) {
            self.tell_ike(News::Moved { name, source: peer.address.to_ip(), port: peer.port });
        }
    }

    /// Numbers of all associations that were added.
    pub(super) fn known(&self) -> impl Iterator<Item = Known> + '_ {
        self.added.known().into_iter().chain(self.daemons.known())
    }
}

#[cfg(test)]
mod tests;
