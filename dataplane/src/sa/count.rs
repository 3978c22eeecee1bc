//! Counters of a security association, and what is shown of it.

use wire::Nanos;
use wire::esp::{Direction, SuiteName, Udp};

use super::{Bound, Inbound, Origin, Outbound, Peer, Sas, Senders};
use crate::tables::Tables;
use crate::verdict::Reason;

/// Packets of a security association that did not come in, or did not leave, by reason, of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaErrors {
    /// Received before, or left of the window.
    pub replayed: u64,
    /// The integrity check failed.
    pub icv_wrong: u64,
    /// Too short, or no multiple of the cipher's block.
    pub length: u64,
    /// Padding, next header or inner packet that cannot be.
    pub trailer: u64,
    /// Inner packets that its selectors do not match.
    pub selector: u64,
    /// Past the hard lifetime; of outbound ones too.
    pub expired: u64,
    /// Numbers used up, or none reserved: of outbound ones alone.
    pub sequence: u64,
}

impl SaErrors {
    /// Number of counters.
    pub const COUNT: usize = 7;

    /// The counters, with their names.
    pub fn named(&self) -> [(&'static str, u64); SaErrors::COUNT] {
        let SaErrors { replayed, icv_wrong, length, trailer, selector, expired, sequence } = *self;
        [
            ("replayed", replayed),
            ("icv-wrong", icv_wrong),
            ("length", length),
            ("trailer", trailer),
            ("selector", selector),
            ("expired", expired),
            ("sequence", sequence),
        ]
    }

    /// The counters, from their numbers in the order of [`SaErrors::named`].
    pub fn of(counts: [u64; SaErrors::COUNT]) -> SaErrors {
        let [replayed, icv_wrong, length, trailer, selector, expired, sequence] = counts;
        SaErrors { replayed, icv_wrong, length, trailer, selector, expired, sequence }
    }

    /// Place of a reason's counter in the order of [`SaErrors::named`].
    pub(super) fn place(reason: Reason) -> Option<usize> {
        Some(match reason {
            Reason::Replayed => 0,
            Reason::IcvWrong => 1,
            Reason::EspLength => 2,
            Reason::EspTrailer => 3,
            Reason::TunnelSelector => 4,
            Reason::SaExpired => 5,
            Reason::EspSequence => 6,
            _ => return None,
        })
    }
}

/// Use of a security association: of several workers', the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Packets go by it.
    Active,
    /// Another one has taken its place: of packets that leave.
    Superseded,
    /// No packet of this worker goes by it: it is another worker's own.
    Elsewhere,
}

/// A security association as it is shown: without keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaView {
    /// Number of its tunnel.
    pub tunnel: u16,
    /// Direction.
    pub direction: Direction,
    /// Security parameters index.
    pub spi: u32,
    /// Cipher and integrity algorithm.
    pub suite: SuiteName,
    /// Source.
    pub origin: Origin,
    /// End of the peer that packets go to; none of packets that come in.
    pub peer: Option<Peer>,
    /// UDP encapsulation.
    pub udp: Udp,
    /// Use by packets.
    pub standing: Standing,
    /// Workers that send by it.
    pub senders: Senders,
    /// Highest sequence number sent, or accepted.
    pub number: u64,
    /// Packets sealed, or opened.
    pub packets: u64,
    /// Bytes encrypted or decrypted: inner packets, padding, trailers.
    pub bytes: u64,
    /// Packets refused.
    pub errors: SaErrors,
    /// Numbers that were not received and have left the window; 0 of outbound ones.
    pub lost: u64,
    /// Highest bound of its lifetime that has been reached.
    pub reached: Option<Bound>,
}

impl SaView {
    /// Name of the tunnel.
    pub fn tunnel_name<'t>(&self, tables: &'t Tables) -> &'t str {
        tables.tunnel_name(self.tunnel)
    }

    /// The counter of that name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters().into_iter().find(|(own, _)| *own == name).map(|(_, count)| count)
    }

    /// The counters, with their names.
    pub fn counters(&self) -> [(&'static str, u64); 11] {
        let [replayed, icv_wrong, length, trailer, selector, expired, sequence] = self.errors.named();
        [
            ("packets", self.packets),
            ("bytes", self.bytes),
            ("number", self.number),
            ("lost", self.lost),
            replayed,
            icv_wrong,
            length,
            trailer,
            selector,
            expired,
            sequence,
        ]
    }
}

impl Sas {
    /// All security associations: for each tunnel that of packets that leave, then those of packets that come in.
    pub fn views(&self, now: Nanos) -> Vec<SaView> {
        let standing = |rest: &[Outbound]| match rest {
            [sa, newer @ ..] if newer.iter().any(|other| other.carries_all_of(sa)) => Standing::Superseded,
            _ => Standing::Active,
        };
        let lists = self.outbound.iter();
        let out = lists.flat_map(|list| (0..list.len()).filter_map(|place| list.get(place..)));
        let out = out.filter_map(|rest| Some(rest.first()?.view(standing(rest), now)));
        let elsewhere = self.elsewhere.iter().map(|sa| sa.view(Standing::Elsewhere, now));
        let inward = self.inbound.iter().map(|sa| sa.view(now));
        let mut all: Vec<SaView> = out.chain(elsewhere).chain(inward).collect();
        all.sort_by_key(|view| view.tunnel);
        all
    }
}

impl Outbound {
    /// True if packets of another one go by this one, which comes behind.
    fn carries_all_of(&self, other: &Outbound) -> bool {
        self.selectors.is_empty() || self.selectors.list() == other.selectors.list()
    }

    fn view(&self, standing: Standing, now: Nanos) -> SaView {
        SaView {
            tunnel: self.tunnel,
            direction: Direction::Out,
            spi: self.spi,
            suite: self.transform.suite().name(),
            origin: self.origin,
            peer: Some(self.peer),
            udp: self.udp,
            standing,
            senders: self.senders,
            number: self.sequence.last(),
            packets: self.sequence.used.packets(),
            bytes: self.sequence.used.bytes(),
            errors: self.sequence.used.errors(),
            lost: 0,
            reached: self.life.reached(&self.sequence.used, now),
        }
    }
}

impl Inbound {
    fn view(&self, now: Nanos) -> SaView {
        SaView {
            tunnel: self.tunnel,
            direction: Direction::In,
            spi: self.spi,
            suite: self.transform.suite().name(),
            origin: self.origin,
            peer: None,
            udp: self.udp,
            standing: Standing::Active,
            senders: self.senders,
            number: self.window.top(),
            packets: self.sequence.used.packets(),
            bytes: self.sequence.used.bytes(),
            errors: self.sequence.used.errors(),
            lost: self.lost_before + self.window.lost(),
            reached: self.life.reached(&self.sequence.used, now),
        }
    }
}
