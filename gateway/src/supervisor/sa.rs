//! Security associations added, deleted and shown at run time, and news of tunnels, passed on. The supervisor keeps what it has added, for
//! workers that begin anew; keys are in memory alone.

use dataplane::Tables;
use dataplane::sa::{
    Keys, Known, PathNews, SaAddition, SaChange, SaError, SaEvent, SaId, SaNews, SaRefused, SaRequest,
};
use dataplane::tables::Address;
use policy::model::Lifetime;
use tracing::{info, warn};
use wire::Nanos;
use wire::esp::{Direction, Esn, Secret, Standing, Suite};

use super::Supervisor;
use super::worker::Workers;
use crate::reload::BuildError;
use crate::sa::Spi;
use crate::sa::key_log::Logged;
use crate::xfrm::server::News;

/// Security association that is asked for.
pub struct SaAsked {
    /// Tunnel.
    pub tunnel: String,
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms.
    pub suite: &'static Suite,
    /// Key of the cipher.
    pub key: Secret,
    /// Key of the integrity algorithm.
    pub auth_key: Secret,
    /// Bounds at which a new one is due.
    pub soft: Lifetime,
    /// Bounds at which it ends.
    pub hard: Lifetime,
}

/// Reason why a security association is not changed.
#[derive(Debug, thiserror::Error)]
pub enum SaTrouble {
    /// Refusal to add or to delete.
    #[error(transparent)]
    Sa(#[from] SaError),
    /// No numbers for it.
    #[error(transparent)]
    Numbers(#[from] BuildError),
}

/// What workers have that begin anew: security associations added at run time, and the latest news of the ways to peers.
#[derive(Default)]
pub(super) struct Associations {
    list: Vec<SaAddition>,
    paths: Vec<Path>,
}

/// News of the way to a tunnel's peer.
struct Path {
    /// Number of the tunnel's interface.
    interface: u32,
    news: PathNews,
    at: Nanos,
}

impl Associations {
    /// Numbers of those that were added.
    pub(super) fn known(&self) -> Vec<Known> {
        self.list.iter().map(SaAddition::known).collect()
    }

    /// True if one has the key.
    pub(super) fn have_key_of(&self, sa: &SaAddition) -> bool {
        self.list.iter().any(|other| sa.has_key_of(other))
    }

    /// Refuses tables that one of them cannot go on with.
    pub(super) fn check(&self, tables: &Tables) -> Result<(), BuildError> {
        let refused = |sa: &SaAddition| Some(refused(sa, tables, sa.check(tables).err()?));
        self.list.iter().find_map(refused).map_or(Ok(()), Err)
    }

    /// Forgets those whose tunnel is gone, and those that the policy has itself now. Deletes those that cannot go on, as after a rollback,
    /// which nothing refuses.
    pub(super) fn follow(&mut self, tables: &Tables, workers: &Workers) {
        self.list.retain(|sa| {
            let outcome = sa.check(tables);
            if let Err(error) = &outcome {
                warn!("{}: deleted", refused(sa, tables, error.clone()));
                workers.delete_sa(&sa.id);
            }
            outcome.is_ok() && sa.is_of(tables) && !sa.is_in(tables)
        });
        self.paths.retain(|path| tables.interface_numbered(path.interface).is_some());
    }

    /// Gives a worker that has begun anew what it had.
    pub(super) fn restore(&self, worker: usize, workers: &Workers) {
        for sa in &self.list {
            workers.restore_sa(worker, sa);
        }
        for path in &self.paths {
            workers.send_sa_to_one(worker, || path.change());
        }
    }

    /// Keeps news of the way to a peer in place of earlier ones.
    fn learn(&mut self, news: Path) {
        let is_kind = |path: &Path| std::mem::discriminant(&path.news) == std::mem::discriminant(&news.news);
        self.paths.retain(|path| path.interface != news.interface || !is_kind(path));
        self.paths.push(news);
    }
}

/// Error of an association that cannot go on with tables.
fn refused(sa: &SaAddition, tables: &Tables, error: SaError) -> BuildError {
    let interface = tables.interface_numbered(sa.interface).and_then(|place| tables.interface(place));
    let tunnel = interface.map_or_else(String::new, |interface| interface.name.clone());
    BuildError::Added { tunnel, direction: sa.id.direction.name(), spi: Spi(sa.id.spi), error }
}

impl Path {
    fn change(&self) -> SaChange {
        SaChange::Path { interface: self.interface, news: self.news, at: self.at }
    }
}

impl Supervisor {
    /// Logs the news of a tunnel. What a worker has learnt of the way to a peer, all others are told, for all of them send there.
    pub(super) fn tunnel_tells(&mut self, worker: usize, interface: u32, event: SaEvent) {
        let tables = &self.reload.tables;
        let named = tables.interface_numbered(interface).and_then(|place| tables.interface(place));
        // A reload may have taken the tunnel away meanwhile.
        let Some(tunnel) = named.map(|interface| interface.name.as_str()) else { return };
        match event.news {
            SaNews::Bound { direction, spi, bound } => {
                let (direction, bound) = (direction.name(), bound.name());
                warn!(tunnel, direction, spi = %Spi(spi), "{bound} lifetime of a security association reached");
            }
            SaNews::Replayed { spi, packets } => warn!(
                tunnel,
                spi = %Spi(spi),
                packets,
                "packets dropped: their sequence numbers had been received, or had left the window"
            ),
            SaNews::Missing(ends) => self.packet_misses(tunnel, &ends, None),
            SaNews::Fallback(ends) => self.packet_misses(tunnel, &ends, Some(worker)),
            SaNews::Path(news) => {
                if let PathNews::Peer { peer, .. } = news {
                    self.peer_moved(tunnel, peer);
                }
                match news {
                    PathNews::Peer { peer, .. } => info!(tunnel, "peer is at {peer} now"),
                    PathNews::Mtu(mtu) => info!(tunnel, mtu, "path MTU learnt from an ICMP error"),
                }
                let path = Path { interface, news, at: event.at };
                self.workers.send_sa_to_others(worker, || path.change());
                self.added.learn(path);
            }
        }
    }

    /// Adds a security association: for all workers, or for its owner.
    pub(super) fn add_sa(&mut self, asked: SaAsked) -> Result<(), SaTrouble> {
        let SaAsked { tunnel, direction, spi, esn, suite, key, auth_key, soft, hard } = asked;
        let keys = Keys { cipher: key, auth: auth_key };
        let tables = self.reload.tables.clone();
        let sa = SaAddition::new(
            &tables,
            &SaRequest {
                tunnel: &tunnel,
                direction,
                spi,
                esn,
                suite,
                keys: &keys,
                selectors: &[],
                agreed: None,
            },
        )?
        .living(soft, hard);
        if self.added.have_key_of(&sa) || self.daemons.have_key_of(&sa) {
            return Err(SaError::SameKey.into());
        }
        let known: Vec<Known> = self.known().chain([sa.known()]).collect();
        self.reserve.top_up(&tables, &known).map_err(BuildError::Reserve)?;
        self.workers.change_sa(&sa.id, || sa.prepare()).map_err(SaError::Refused)?;
        self.log_key(&tunnel, direction, spi, suite, &keys);
        info!(tunnel, direction = direction.name(), spi = %Spi(spi), "security association added");
        warn_of_weakness(&tunnel, spi, suite);
        self.added.list.push(sa);
        Ok(())
    }

    /// Writes the keys of the policy in force to the key log, if there is one.
    pub(super) fn log_keys(&mut self) {
        if let Some(log) = &mut self.key_log {
            log.note_policy(&self.reload.effective.policy, self.reload.directory());
        }
    }

    /// Writes the keys of a security association to the key log, if there is one.
    pub(super) fn log_key(
        &mut self,
        tunnel: &str,
        direction: Direction,
        spi: u32,
        suite: &Suite,
        keys: &Keys,
    ) {
        let tables = &self.reload.tables;
        let ends = tables.interface_named(tunnel).and_then(|place| tables.tunnel_at(place));
        if let (Some(log), Some(ends)) = (&mut self.key_log, ends) {
            let (local, remote) = (ends.local.to_ip(), ends.remote.map(Address::to_ip));
            log.note(&Logged { local, remote, direction, spi, suite, keys });
        }
    }

    /// Deletes a security association of a tunnel, once packets that have arrived under it have been processed.
    pub(super) fn delete_sa(
        &mut self,
        tunnel: &str,
        direction: Direction,
        spi: u32,
    ) -> Result<(), SaTrouble> {
        self.workers.drain_for(direction);
        self.delete_sa_at_once(tunnel, direction, spi)
    }

    fn delete_sa_at_once(&mut self, tunnel: &str, direction: Direction, spi: u32) -> Result<(), SaTrouble> {
        let tables = &self.reload.tables;
        let found = tables.interface_named(tunnel).and_then(|place| tables.tunnel_at(place));
        let found = found.ok_or_else(|| SaError::NoTunnel(tunnel.to_owned()))?;
        if let Some(name) = self.daemons.named(tunnel, direction, spi) {
            // The daemon hears that its lifetime has ended.
            self.tell_ike(News::End(name));
            info!(
                tunnel,
                direction = direction.name(),
                spi = %Spi(spi),
                "security association of an IKE daemon ended by request"
            );
            return Ok(());
        }
        let id = SaId { direction, spi, destination: found.destination(direction) };
        let deleted = self.workers.delete_sa(&id);
        self.added.list.retain(|sa| sa.id != id);
        if deleted {
            info!(tunnel, direction = direction.name(), spi = %Spi(spi), "security association deleted");
            Ok(())
        } else {
            Err(SaError::Refused(SaRefused::Unknown).into())
        }
    }

    /// Deletes all security associations, or those of a tunnel. Returns their number.
    pub(super) fn flush_sas(&mut self, tunnel: Option<&str>) -> Result<usize, SaTrouble> {
        let tables = &self.reload.tables;
        let is_tunnel =
            |name: &&str| tables.interface_named(name).is_some_and(|place| tables.tunnel_at(place).is_some());
        if let Some(unknown) = tunnel.filter(|name| !is_tunnel(name)) {
            return Err(SaError::NoTunnel(unknown.to_owned()).into());
        }
        let all = self.overview().associations();
        let of = all.iter().filter(|sa| tunnel.is_none_or(|tunnel| sa.tunnel == tunnel));
        let named = of.filter_map(|sa| Some((sa.tunnel.clone(), Direction::named(&sa.direction)?, sa.spi)));
        let named: Vec<_> = named.collect();
        self.workers.drain();
        let is_deleted = |(tunnel, direction, spi): &&(String, Direction, u32)| {
            self.delete_sa_at_once(tunnel, *direction, *spi).is_ok()
        };
        Ok(named.iter().filter(is_deleted).count())
    }
}

/// Warns of algorithms that no longer protect (RFC 8221), as `check` does of those in a policy.
pub(super) fn warn_of_weakness(tunnel: &str, spi: u32, suite: &Suite) {
    if suite.standing != Standing::Current {
        warn!(tunnel, spi = %Spi(spi), "{} no longer protects", suite.name());
    }
}

impl Workers {
    /// Changes a security association at the workers that have it, and waits until it is done. Where one refuses, it is undone.
    pub(super) fn change_sa(&self, id: &SaId, change: impl Fn() -> SaChange) -> Result<(), SaRefused> {
        let outcomes = self.send_sa(id, change);
        match outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
            None => Ok(()),
            Some(SaRefused::Taken) => Err(SaRefused::Taken),
            Some(refused) => {
                self.send_sa(id, || SaChange::Delete(*id));
                Err(*refused)
            }
        }
    }

    /// Puts a security association in the place of that of the same name, at the workers that have it.
    pub(super) fn replace_sa(&self, id: &SaId, change: impl Fn() -> SaChange) -> Result<(), SaRefused> {
        self.send_sa(id, change).into_iter().collect()
    }

    /// Drains the ports before a security association of that direction is deleted. Peers send by one until they hear of its deletion, and packets
    /// that arrived before that may still be in the ring of a worker that was not scheduled.
    pub(super) fn drain_for(&self, direction: Direction) {
        if direction == Direction::In {
            self.drain();
        }
    }

    /// Deletes a security association at all workers. Returns true if there was one.
    pub(super) fn delete_sa(&self, id: &SaId) -> bool {
        self.send_sa_to_all(|| SaChange::Delete(*id)).iter().any(Result::is_ok)
    }
}
