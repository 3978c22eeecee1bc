//! Security associations of a live gateway: those of its policy, and those added at run time, as they are asked for, shown and counted.

use std::fmt;

use dataplane::flow::owner_of_sa;
use dataplane::sa::{Bound, Origin, SaErrors, SaView, Standing};
use dataplane::tables::Tables;
use policy::model::Lifetime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::Nanos;
use wire::esp::{Direction, Suite, Udp};
use zeroize::Zeroize;

use crate::request::Overview;

pub(crate) mod key_log;
pub(crate) mod reserve;
pub(crate) mod total;

pub use key_log::KeyLogError;
pub use reserve::ReserveError;
pub use total::{DirectionStatus, TunnelStatus};

/// Security parameters index, as logs and errors write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spi(pub u32);

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Security association for operators. Nothing of its key is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssociationView {
    /// Tunnel.
    pub tunnel: String,
    /// Direction: `in` or `out`.
    pub direction: String,
    /// Security parameters index.
    pub spi: u32,
    /// Outer address of the gateway.
    pub local: String,
    /// Outer address of the peer; `any` of one without a fixed address, which is not known yet or sends by this one.
    pub remote: String,
    /// True where ESP goes in UDP (RFC 3948).
    #[serde(default)]
    pub udp: bool,
    /// Encryption algorithm.
    pub algorithm: String,
    /// Integrity algorithm; none where the encryption authenticates.
    pub auth: Option<String>,
    /// `policy`; `added` at run time; or `ike`, an IKE daemon's.
    pub origin: String,
    /// `active`; `expired` behind its hard lifetime; or, of packets that leave, `superseded` where another one has taken its place, and `unused`
    /// where it is for a processor that has no worker.
    pub state: String,
    /// Highest sequence number: sent, or accepted.
    pub number: u64,
    /// Packets sealed, or opened.
    pub packets: u64,
    /// Their bytes, padding and trailers included.
    pub bytes: u64,
    /// Bound of the lifetime that has been reached: `soft` or `hard`.
    pub reached: Option<String>,
    /// Packets refused: their numbers had been received, or are left of the window.
    pub replayed: u64,
    /// Packets refused: integrity check failed.
    pub icv_wrong: u64,
    /// Packets refused: too short, or no multiple of the cipher's block.
    pub length: u64,
    /// Packets refused: padding, next header or inner packet that cannot be.
    pub trailer: u64,
    /// Packets refused: not of those that its selectors let it carry.
    #[serde(default)]
    pub selector: u64,
    /// Packets refused: past the hard lifetime.
    pub expired: u64,
    /// Packets not sent: sequence numbers used up, or none reserved.
    #[serde(default)]
    pub sequence: u64,
    /// Numbers received for which a packet never came.
    pub lost: u64,
    /// Worker that takes its packets in, or alone sends by it; none where all workers send, or none does.
    pub worker: Option<u16>,
    /// Processor that the IKE daemon has it for (RFC 9611); none for all.
    #[serde(default)]
    pub cpu: Option<u16>,
}

/// Security association to add, over the control API.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssociationRequest {
    /// Tunnel.
    pub tunnel: String,
    /// Direction: `in` or `out`.
    pub direction: String,
    /// Security parameters index.
    pub spi: u32,
    /// Encryption algorithm.
    pub algorithm: String,
    /// Integrity algorithm; none where the encryption authenticates.
    #[serde(default)]
    pub auth: Option<String>,
    /// Key, in hexadecimal digits.
    #[serde(default)]
    pub key: String,
    /// Key of the integrity algorithm.
    #[serde(default)]
    pub auth_key: String,
    /// True with extended sequence numbers.
    #[serde(default)]
    pub esn: bool,
    /// Bounds at which a new one is due.
    #[serde(default)]
    pub soft: Bounds,
    /// Bounds at which it ends.
    #[serde(default)]
    pub hard: Bounds,
}

/// Bounds of a lifetime, over the control API: whichever is reached first; none that is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Bytes that are encrypted, with padding.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Packets.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Nanoseconds since the association was added.
    #[serde(default)]
    pub nanoseconds: Option<u64>,
}

impl Bounds {
    /// The lifetime with these bounds.
    pub(crate) fn lifetime(self) -> Lifetime {
        let Bounds { bytes, packets, nanoseconds } = self;
        Lifetime { bytes, packets, time: nanoseconds.map(Nanos) }
    }

    /// Each bound by its name.
    pub(crate) fn each(self) -> [(&'static str, Option<u64>); 3] {
        [("bytes", self.bytes), ("packets", self.packets), ("time", self.nanoseconds)]
    }
}

impl Drop for AssociationRequest {
    fn drop(&mut self) {
        self.key.zeroize();
        self.auth_key.zeroize();
    }
}

/// Name of a security association, over the control API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationName {
    /// Tunnel.
    pub tunnel: String,
    /// Direction: `in` or `out`.
    pub direction: String,
    /// Security parameters index.
    pub spi: u32,
}

/// Security associations that are meant: those of one tunnel, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssociationQuery {
    /// Tunnel; all where absent.
    pub tunnel: Option<String>,
}

/// Number of security associations deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// Number.
    pub deleted: usize,
}

/// Suite of these algorithms.
pub(crate) fn suite(request: &AssociationRequest) -> Option<&'static Suite> {
    Suite::named(&request.algorithm, request.auth.as_deref())
}

impl Overview {
    /// Security associations, by tunnel, those of packets that come in first.
    pub fn associations(&self) -> Vec<AssociationView> {
        let workers = self.reports.len() as u16;
        let mut all: Vec<SaView> = Vec::new();
        for report in &self.reports {
            for sa in &report.sas {
                let owner = owner_of_sa(sa.spi, workers.max(1));
                if sa.direction == Direction::In && usize::from(owner) != report.worker {
                    continue;
                }
                let same = |known: &&mut SaView| {
                    (known.tunnel, known.direction, known.spi) == (sa.tunnel, sa.direction, sa.spi)
                };
                // All workers count together what leaves.
                match all.iter_mut().find(same) {
                    Some(known) => known.standing = known.standing.min(sa.standing),
                    None => all.push(sa.clone()),
                }
            }
        }
        all.sort_by_key(|sa| (sa.tunnel, sa.direction == Direction::Out));
        all.iter().filter_map(|sa| view(sa, workers, &self.tables)).collect()
    }
}

/// Stands for the address of a peer that has none.
const ANY: &str = "any";

fn view(sa: &SaView, workers: u16, tables: &Tables) -> Option<AssociationView> {
    let tunnel = tables.tunnels.list.get(usize::from(sa.tunnel))?;
    let SaErrors { replayed, icv_wrong, length, trailer, selector, expired, sequence } = sa.errors;
    Some(AssociationView {
        tunnel: tables.interface(tunnel.interface)?.name.clone(),
        direction: sa.direction.name().to_owned(),
        spi: sa.spi,
        local: tunnel.local.to_ip().to_string(),
        remote: match sa.peer.filter(|peer| peer.is_known()).map(|peer| peer.address).or(tunnel.remote) {
            Some(remote) => remote.to_ip().to_string(),
            None => ANY.to_owned(),
        },
        algorithm: sa.suite.algorithm().to_owned(),
        auth: sa.suite.auth().map(str::to_owned),
        origin: match sa.origin {
            Origin::Policy => "policy",
            Origin::Added => "added",
            Origin::Ike => "ike",
        }
        .to_owned(),
        state: match (sa.reached, sa.standing) {
            (Some(Bound::Hard), _) => "expired",
            (_, Standing::Active) => "active",
            (_, Standing::Superseded) => "superseded",
            (_, Standing::Elsewhere) => "unused",
        }
        .to_owned(),
        udp: sa.udp == Udp::Yes,
        number: sa.number,
        packets: sa.packets,
        bytes: sa.bytes,
        reached: sa.reached.map(|bound| bound.name().to_owned()),
        replayed,
        icv_wrong,
        length,
        trailer,
        selector,
        expired,
        sequence,
        lost: sa.lost,
        worker: match sa.direction {
            Direction::In => Some(owner_of_sa(sa.spi, workers.max(1))),
            Direction::Out => sa.senders.only().filter(|worker| *worker < workers),
        },
        cpu: sa.senders.only(),
    })
}
