//! Stand-ins for security associations of a running gateway, by its own account of them: without keys, so that nothing is encrypted or
//! decrypted by them.

use std::sync::Arc;

use esp::Fingerprint;
use policy::model::Lifetime;
use wire::esp::{Direction, Esn, Suite, Udp};

use super::{Inbound, Outbound, Peer, Senders, Sequence, usual_port};
use crate::compile::keyless;
use crate::shard::Shard;
use crate::tables::{Address, SaSpec, Tables};

/// Security association to stand in for.
#[derive(Clone, Copy, Debug)]
pub struct SaStandIn<'a> {
    /// Name of its tunnel.
    pub tunnel: &'a str,
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Address of the peer; the policy's where there is none.
    pub remote: Option<Address>,
    /// UDP encapsulation.
    pub udp: Udp,
    /// Algorithms.
    pub suite: &'static Suite,
    /// Highest number sent, or accepted.
    pub number: u64,
    /// Workers that send by it.
    pub senders: Senders,
}

impl Shard {
    /// Puts stand-ins in the place of all security associations, those of packets that leave with the one in use last. Allocates. One of a
    /// tunnel that the tables have not is left out.
    pub fn stand_in_for_sas(&mut self, tables: &Tables, sas: &[SaStandIn<'_>]) {
        let own = &mut self.sas;
        own.inbound.clear();
        own.index.clear();
        own.outbound.iter_mut().for_each(Vec::clear);
        own.elsewhere.clear();
        for SaStandIn { tunnel, direction, spi, remote, udp, suite, number, senders } in sas.iter().copied() {
            let place = tables.interface_named(tunnel).and_then(|place| tables.tunnel_of(place));
            let Some(place) = place else { continue };
            let Some(tunnel) = tables.tunnels.list.get(usize::from(place)) else { continue };
            let spec = SaSpec {
                direction,
                spi,
                udp,
                sport: usual_port(udp),
                peer: Peer::given(remote.or(tunnel.remote), tunnel.local, udp),
                esn: Esn::Off,
                window: tunnel.window,
                selectors: Arc::clone(&tunnel.selectors),
                soft: Lifetime::UNBOUNDED,
                hard: Lifetime::UNBOUNDED,
                senders,
                transform: Arc::from(esp::locked(suite)),
                fingerprint: Fingerprint::from_bytes(keyless(direction, spi)),
                sequence: Arc::new(Sequence::from(number)),
            };
            match direction {
                Direction::In => own.receive(Inbound::new(place, tunnel, &spec, Inbound::window(&spec))),
                Direction::Out => {
                    let sa = Outbound::new(place, tunnel, &spec);
                    if let Some(list) = own.list_of(&sa) {
                        list.push(sa);
                    }
                }
            }
        }
    }
}
