//! What of the live state bears on one packet: enough to say what would become of it, and no more.

use std::net::IpAddr;

use dataplane::nat::Endpoint;
use dataplane::state::{Ends, FlowRecord, Item};
use serde::{Deserialize, Serialize};

/// The ends of a packet, in whichever direction; of an error (ICMP), those of the packet that it quotes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// One end.
    pub one: IpAddr,
    /// Its port, or what stands for it ([`dataplane::flow::Key::query_ports`]).
    pub one_port: u16,
    /// The other end.
    pub other: IpAddr,
    /// Its port likewise.
    pub other_port: u16,
    /// The transport protocol, as in the IP header.
    pub protocol: u8,
    /// The host that sends the packet: what else it has open counts where connections of a source are bounded, or
    /// share an outside address.
    pub from: IpAddr,
}

impl About {
    /// Whether an item bears on the packet: its flow; flows that share a mapping with it; those of its sender; what is
    /// owed under rates of rules, and by its sender.
    pub fn admits(&self, item: &Item) -> bool {
        match item {
            Item::Flow(flow) => self.is_of(flow) || flow.original.source == self.from,
            Item::Owed(owed) => owed.source.is_none_or(|source| source == self.from),
            Item::Own(_) => true,
        }
    }

    /// Whether a flow is the packet's, or has a mapping that may be.
    pub fn is_of(&self, flow: &FlowRecord) -> bool {
        let at = |end: &Endpoint| self.ends().contains(&(end.ip(), end.port));
        let mapped =
            [flow.mapping, flow.inward].iter().flatten().any(|own| at(&own.inside) || at(&own.outside));
        self.is_between(flow) || (mapped && flow.original.protocol == self.protocol)
    }

    /// Whether a flow's packets, of one direction or the other, have these ends.
    pub fn is_between(&self, flow: &FlowRecord) -> bool {
        let [one, other] = self.ends();
        let between = |of: &Ends| {
            let (source, destination) = ((of.source, of.sport), (of.destination, of.dport));
            [source, destination] == [one, other] || [destination, source] == [one, other]
        };
        flow.original.protocol == self.protocol && (between(&flow.original) || between(&flow.reply))
    }

    fn ends(&self) -> [(IpAddr, u16); 2] {
        [(self.one, self.one_port), (self.other, self.other_port)]
    }
}
