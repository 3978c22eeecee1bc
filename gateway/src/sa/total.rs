//! Counters by tunnel, for metrics and status: associations come and go with each rekey, and what they have counted stays.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AssociationView;

/// Security associations of a tunnel, and what they, and those before them, have carried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelStatus {
    /// Tunnel.
    pub tunnel: String,
    /// Of packets that come in.
    pub inward: DirectionStatus,
    /// Of packets that leave.
    pub outward: DirectionStatus,
}

/// Associations of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectionStatus {
    /// Associations that there are.
    pub sas: u64,
    /// Packets encrypted, or decrypted.
    pub packets: u64,
    /// Their bytes, padding and trailers included.
    pub bytes: u64,
    /// Packets refused: received before, or left of the window.
    pub replayed: u64,
    /// Packets refused: integrity check failed.
    pub icv_wrong: u64,
    /// Packets refused: too short, or no multiple of the cipher's block.
    pub length: u64,
    /// Packets refused: padding, next header or inner packet that cannot be.
    pub trailer: u64,
    /// Packets refused: not of those that the selectors let it carry.
    pub selector: u64,
    /// Packets refused: past the hard lifetime.
    pub expired: u64,
    /// Packets not sent: sequence numbers used up, or none reserved.
    #[serde(default)]
    pub sequence: u64,
}

/// Tunnel, and direction: `in` or `out`.
type Way = (String, String);

/// Counters of all associations since the start.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// As last seen.
    seen: BTreeMap<(Way, u32), DirectionStatus>,
    /// Of those that are gone.
    gone: BTreeMap<Way, DirectionStatus>,
}

impl Totals {
    /// Takes in the associations that there are, and returns all counters by tunnel. `tunnels` are all that the policy has.
    pub(crate) fn update<'a>(
        &mut self,
        tunnels: impl Iterator<Item = &'a str>,
        views: &[AssociationView],
    ) -> Vec<TunnelStatus> {
        let before = std::mem::take(&mut self.seen);
        for view in views {
            let way = (view.tunnel.clone(), view.direction.clone());
            self.seen.insert((way, view.spi), counts(view));
        }
        for (name, last) in before {
            // One of the same index that has counted less is another one.
            if self.seen.get(&name).is_none_or(|now| now.packets < last.packets) {
                self.gone.entry(name.0).or_default().add(&last);
            }
        }
        tunnels.map(|tunnel| self.of(tunnel)).collect()
    }

    fn of(&self, tunnel: &str) -> TunnelStatus {
        let direction = |word: &str| {
            let way = (tunnel.to_owned(), word.to_owned());
            let mut sum = self.gone.get(&way).copied().unwrap_or_default();
            sum.sas = 0;
            for (_, counts) in self.seen.iter().filter(|((own, _), _)| *own == way) {
                sum.add(counts);
            }
            sum
        };
        TunnelStatus { tunnel: tunnel.to_owned(), inward: direction("in"), outward: direction("out") }
    }
}

impl DirectionStatus {
    /// Packets refused, with the names of what was wrong.
    pub fn errors(&self) -> [(&'static str, u64); 7] {
        [
            ("replayed", self.replayed),
            ("icv-wrong", self.icv_wrong),
            ("length", self.length),
            ("trailer", self.trailer),
            ("selector", self.selector),
            ("expired", self.expired),
            ("sequence", self.sequence),
        ]
    }

    fn add(&mut self, other: &DirectionStatus) {
        let DirectionStatus {
            sas,
            packets,
            bytes,
            replayed,
            icv_wrong,
            length,
            trailer,
            selector,
            expired,
            sequence,
        } = *other;
        self.sas += sas;
        self.packets += packets;
        self.bytes += bytes;
        self.replayed += replayed;
        self.icv_wrong += icv_wrong;
        self.length += length;
        self.trailer += trailer;
        self.selector += selector;
        self.expired += expired;
        self.sequence += sequence;
    }
}

fn counts(view: &AssociationView) -> DirectionStatus {
    let AssociationView {
        packets,
        bytes,
        replayed,
        icv_wrong,
        length,
        trailer,
        selector,
        expired,
        sequence,
        ..
    } = *view;
    DirectionStatus {
        sas: 1,
        packets,
        bytes,
        replayed,
        icv_wrong,
        length,
        trailer,
        selector,
        expired,
        sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(spi: u32, packets: u64) -> AssociationView {
        AssociationView {
            tunnel: "site".to_owned(),
            direction: "in".to_owned(),
            spi,
            local: String::new(),
            remote: String::new(),
            udp: false,
            algorithm: String::new(),
            auth: None,
            origin: String::new(),
            state: String::new(),
            number: packets,
            packets,
            bytes: packets * 100,
            reached: None,
            replayed: packets / 10,
            icv_wrong: 0,
            length: 0,
            trailer: 0,
            selector: 0,
            expired: 0,
            sequence: 0,
            lost: 0,
            worker: None,
            cpu: None,
        }
    }

    #[test]
    fn counters_never_fall_whatever_comes_and_goes() {
        let mut totals = Totals::default();
        let mut packets = |views: &[AssociationView]| {
            let [status] = &totals.update(["site"].into_iter(), views)[..] else { panic!("one tunnel") };
            assert_eq!(status.inward.bytes, status.inward.packets * 100);
            assert_eq!(status.outward, DirectionStatus::default());
            (status.inward.sas, status.inward.packets, status.inward.replayed)
        };
        assert_eq!(packets(&[]), (0, 0, 0));
        assert_eq!(packets(&[view(1, 40)]), (1, 40, 4));
        // A rekey: the old one goes while the new one counts.
        assert_eq!(packets(&[view(1, 50), view(2, 3)]), (2, 53, 5));
        assert_eq!(packets(&[view(2, 10)]), (1, 60, 6));
        // The same index again, under another key.
        assert_eq!(packets(&[view(2, 1)]), (1, 61, 6));
        assert_eq!(packets(&[]), (0, 61, 6));
        assert_eq!(packets(&[view(1, 5)]), (1, 66, 6));
    }
}
