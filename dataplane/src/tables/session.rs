//! PPP sessions, compiled.

use std::sync::Arc;

use policy::model::Ppp;
use wire::PortId;
use wire::ethernet::Mac;

use crate::ppp::Published;

/// PPP session that is an interface's link.
#[derive(Debug)]
pub struct Session {
    /// Place in [`Tables::sessions`](super::Tables::sessions).
    pub place: u16,
    /// Name of the interface.
    pub name: String,
    /// Carrier of its packets.
    pub carrier: Carrier,
    /// Name of the interface that carries them.
    pub carrier_name: String,
    /// Link-layer address of the gateway on the carrier.
    pub mac: Mac,
    /// Settings of the policy.
    pub ppp: Ppp,
    /// The gateway's own IPv4 address, if the session carries IPv4.
    pub address4: Option<u32>,
    /// The session carries IPv6.
    pub has_v6: bool,
    /// Largest IP packet that the gateway takes.
    pub mtu: u16,
    /// State that workers share.
    pub published: Arc<Published>,
}

/// Carrier of a PPP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ethernet of that interface: PPP over Ethernet.
    Ethernet(PortId),
    /// The ATM channel of the interface itself.
    Atm,
}

impl Session {
    /// True if a session of the other settings goes on with these.
    pub(crate) fn is_same(&self, other: &Session) -> bool {
        let parts = |of: &Session| {
            let is_atm = of.carrier == Carrier::Atm;
            (of.name.clone(), of.carrier_name.clone(), is_atm, of.mac, of.address4, of.has_v6, of.mtu)
        };
        parts(self) == parts(other) && self.ppp == other.ppp
    }
}
