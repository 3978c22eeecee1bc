//! Compilation of tunnels.

use std::sync::Arc;

use esp::Fingerprint;
use policy::Policy;
use policy::model::{self, KeySource, StaticSa};
use wire::esp::{Direction, Mode, SUITES, Suite};
use wire::{Family, PortId};

use super::selector;
use crate::sa::{Peer, Senders, Sequence, usual_port};
use crate::tables::{CompileError, SaSpec, Selectors, Spd, Tunnel, Tunnels};

/// Compiles the tunnels of a policy.
pub(super) fn compile(policy: &Policy) -> Result<Tunnels, CompileError> {
    let mut list = Vec::new();
    let mut policies = Vec::new();
    for (place, interface) in policy.interfaces.iter().enumerate() {
        let Some(tunnel) = &interface.esp else { continue };
        let selectors = Arc::new(Selectors::new(selector::own(tunnel)));
        let number = list.len() as u16;
        policies.extend(selector::policies(tunnel).into_iter().map(|policy| (policy, number)));
        let specs = |direction| {
            let sas = tunnel.sas(direction);
            sas.map(|sa| spec(&interface.name, tunnel, sa, &selectors)).collect::<Result<Vec<_>, _>>()
        };
        let mut out = specs(Direction::Out)?;
        let last = out.pop();
        if !out.is_empty() || last.is_none() && tunnel.keys == KeySource::Policy {
            return Err(CompileError::TunnelSas(interface.name.clone()));
        }
        list.push(Tunnel {
            interface: PortId(place as u16),
            local: tunnel.local.into(),
            remote: tunnel.remote.map(Into::into),
            mode: tunnel.mode,
            keys: tunnel.keys,
            udp: tunnel.room_for(),
            suite: tightest(tunnel).ok_or_else(|| CompileError::TunnelSas(interface.name.clone()))?,
            window: tunnel.window.numbers(),
            keepalive: tunnel.keepalive,
            follow: tunnel.follow,
            fragment: tunnel.fragment,
            df: tunnel.df,
            dscp: tunnel.dscp.fixed(),
            ecn: tunnel.ecn,
            tfc: tunnel.tfc,
            legacy: tunnel.legacy,
            selectors: Arc::clone(&selectors),
            out: last,
            inward: specs(Direction::In)?,
        });
    }
    Ok(Tunnels::new(list, Spd::new(policies)))
}

/// The algorithms that leave inner packets the least room, of those that packets may leave by.
fn tightest(tunnel: &model::Tunnel) -> Option<&'static Suite> {
    let suites = tunnel.suites_out();
    let room = |suite: &&Suite| suite.inner_mtu(1_500, Family::V4, tunnel.room_for(), Mode::Tunnel);
    SUITES.iter().filter(|suite| suites.contains(suite)).min_by_key(room)
}

fn spec(
    name: &str,
    tunnel: &model::Tunnel,
    sa: &StaticSa,
    selectors: &Arc<Selectors>,
) -> Result<SaSpec, CompileError> {
    let wrong = |error| CompileError::Sa { tunnel: name.to_owned(), spi: sa.spi, error };
    let suite = SUITES.iter().find(|suite| **suite == sa.suite);
    let suite = suite.ok_or_else(|| wrong(esp::KeyError::NoLibrary(sa.suite.name())))?;
    let (transform, fingerprint) = if sa.files.are_unread() {
        // For all that is asked of a policy without its keys.
        (Arc::from(esp::locked(suite)), Fingerprint::from_bytes(keyless(sa.direction, sa.spi)))
    } else {
        let keys = esp::Keys { cipher: sa.key.clone(), auth: sa.auth_key.clone() };
        let transform = Arc::from(esp::expand(suite, &keys, sa.direction).map_err(wrong)?);
        (transform, Fingerprint::of(&keys, sa.direction))
    };
    Ok(SaSpec {
        direction: sa.direction,
        spi: sa.spi,
        udp: tunnel.udp,
        sport: usual_port(tunnel.udp),
        peer: Peer::given(tunnel.remote.map(Into::into), tunnel.local.into(), tunnel.udp),
        esn: sa.esn,
        window: tunnel.window.numbers(),
        selectors: Arc::clone(selectors),
        soft: sa.soft,
        hard: sa.hard,
        senders: Senders::All,
        transform,
        fingerprint,
        sequence: Arc::new(Sequence::from(0)),
    })
}

/// Stands in for the fingerprint of a key that is not there.
pub(crate) fn keyless(direction: Direction, spi: u32) -> [u8; Fingerprint::LEN] {
    let mut bytes = [direction as u8; Fingerprint::LEN];
    bytes[..4].copy_from_slice(&spi.to_be_bytes());
    bytes
}
