//! Security association, window and both headers of a packet of a tunnel. No key is known here.

use dataplane::explain::{SaBrief, SaMet, Visit};
use dataplane::tables::Tunnel;
use esp::Place;
use replay::number::count;
use serde_json::{Value, json};
use wire::Meta;
use wire::esp::{Mode, Udp};

use super::Renderer;

impl Renderer<'_> {
    /// Appends what `decap` found: the association, what its window says, and the inner packet.
    pub(super) fn decap(&self, visit: &Visit, says: &mut Vec<String>) {
        match &visit.sa {
            Some(SaMet::Unknown { spi }) => {
                says.push(format!("no security association has the SPI {spi:#x} and this destination"));
            }
            Some(SaMet::In { sa, place, top, window }) => {
                says.push(format!("comes by {}", self.sa(sa)));
                says.push(place_text(*place, *top, *window));
            }
            Some(SaMet::Out { .. }) | None => {}
        }
        if let Some(inner) = visit.bytes.as_ref().filter(|_| visit.after.ingress != visit.before.ingress) {
            let tunnel = self.interface(visit.after.ingress);
            says.push(format!("out of the tunnel {tunnel}: {}", self.describe(inner).headline));
        }
    }

    /// Appends what `encap` did: the association, what it adds, the outer header, and the way of the outer packet.
    pub(super) fn encap(&self, visit: &Visit, says: &mut Vec<String>) {
        if let Some(SaMet::Out { sa, last, mtu }) = &visit.sa {
            let number = last.saturating_add(1);
            says.push(format!("leaves by {}, as its number {number}", self.sa(sa)));
            let mtu = match *mtu {
                0 => String::new(),
                mtu => format!("; the tunnel's MTU is {mtu}"),
            };
            match overhead(visit) {
                Some(bytes) => {
                    says.push(format!("{} longer outside{mtu}", count(bytes.into(), "byte", "bytes")))
                }
                None => says.extend(mtu.strip_prefix("; ").map(str::to_owned)),
            }
        }
        let Some(outer) = &visit.bytes else { return };
        let tunnel = self.interface(visit.before.egress);
        says.push(format!("into the tunnel {tunnel}: {}", self.describe(outer).headline));
        says.push(match self.tables.gateways.get(visit.after.hop as usize) {
            Some(gateway) => {
                let router = gateway.address.to_ip();
                format!("outside it leaves by {} to the router {router}", self.interface(visit.after.egress))
            }
            None => {
                format!("outside it leaves by {} to a host on its link", self.interface(visit.after.egress))
            }
        });
    }

    /// The association and both headers of a visit, for scripts.
    pub(in crate::explain) fn sa_json(&self, visit: &Visit) -> Option<Value> {
        let met = visit.sa.as_ref()?;
        let Some(sa) = met.sa() else {
            let SaMet::Unknown { spi } = met else { return None };
            return Some(json!({ "direction": met.direction().name(), "spi": spi, "tunnel": null }));
        };
        let mut object = json!({
            "direction": met.direction().name(),
            "tunnel": self.interface(sa.interface),
            "mode": self.tunnel(sa).map(|tunnel| mode_name(tunnel.mode)),
            "spi": sa.spi,
            "algorithm": sa.suite.algorithm(),
            "auth": sa.suite.auth(),
        });
        let fields = object.as_object_mut()?;
        let after = visit.bytes.as_deref().map(|bytes| json!(self.describe(bytes)));
        match met {
            SaMet::In { place, top, window, .. } => {
                let (number, found) = placed(*place);
                fields.insert("number".to_owned(), number.into());
                fields.insert("window".to_owned(), json!({ "place": found, "highest": top, "size": window }));
                let inner = after.filter(|_| visit.after.ingress != visit.before.ingress);
                fields.insert("inner".to_owned(), inner.into());
            }
            SaMet::Out { last, mtu, .. } => {
                fields.insert("number".to_owned(), last.saturating_add(1).into());
                fields.insert("mtu".to_owned(), (*mtu > 0).then_some(*mtu).into());
                fields.insert("overhead".to_owned(), overhead(visit).into());
                fields.insert("outer".to_owned(), after.into());
            }
            SaMet::Unknown { .. } => {}
        }
        Some(object)
    }

    fn sa(&self, sa: &SaBrief) -> String {
        let mode = match self.tunnel(sa).map(|tunnel| tunnel.mode) {
            Some(Mode::Transport) => ", transport mode",
            _ => "",
        };
        let within = match sa.udp {
            Udp::Yes => ", in UDP",
            Udp::No => "",
        };
        format!(
            "the security association {:#x} of {} ({}{mode}{within})",
            sa.spi,
            self.interface(sa.interface),
            sa.suite
        )
    }

    fn tunnel(&self, sa: &SaBrief) -> Option<&Tunnel> {
        self.tables.tunnel_at(sa.interface)
    }
}

/// The policy's word for a mode.
fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Tunnel => "tunnel",
        Mode::Transport => "transport",
    }
}

/// Bytes that the outer packet is longer than the inner one, padding included.
fn overhead(visit: &Visit) -> Option<u16> {
    let length = |meta: &Meta| meta.end.saturating_sub(meta.network);
    visit.bytes.as_ref()?;
    length(&visit.after).checked_sub(length(&visit.before))
}

/// Number, and its place, as a word.
fn placed(place: Place) -> (u64, &'static str) {
    match place {
        Place::Fresh(number) => (number, "new"),
        Place::Seen(number) => (number, "received"),
        Place::Old(number) => (number, "left"),
    }
}

fn place_text(place: Place, top: u64, window: u32) -> String {
    let of = match (window, top) {
        (0, _) => "numbers are not checked".to_owned(),
        (_, 0) => format!("no packet has come yet (window of {window})"),
        (_, top) => format!("the highest received is {top} (window of {window})"),
    };
    match place {
        Place::Fresh(number) => format!("its number {number} is new; {of}"),
        Place::Seen(number) => format!("its number {number} was received before; {of}"),
        Place::Old(number) => format!("its number {number} is left of the window; {of}"),
    }
}
