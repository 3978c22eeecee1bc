//! Filter of live state by one packet, for explaining what the pipeline would do with that packet.

use std::net::IpAddr;

use dataplane::flow::Ends;
use dataplane::nat::Endpoint;
use dataplane::state::{FlowRecord, Item, MappingRecord, Subject};
use serde::{Deserialize, Serialize};

/// Both ends of a packet, in either direction; of an ICMP error, the ends of the packet that it quotes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// One end.
    pub one: IpAddr,
    /// Its port, or the number in the port's place ([`dataplane::flow::Key::query_ports`]).
    pub one_port: u16,
    /// The other end.
    pub other: IpAddr,
    /// Port of the other end, likewise.
    pub other_port: u16,
    /// The transport protocol, as in the IP header.
    pub protocol: u8,
    /// Sender of the packet: its other flows count where connections per source are limited or an outside address is
    /// shared.
    pub from: IpAddr,
}

impl About {
    /// True if an item bears on the packet: its flow, flows with the same mapping, flows of the same sender, token
    /// debts under rates of rules, and token debts of the sender.
    pub fn admits(&self, item: &Item) -> bool {
        match item {
            Item::Flow(flow) => self.is_of(flow) || flow.original.source == self.from,
            Item::Debt(debt) => debt.source.is_none_or(|source| source == self.from),
            Item::Own(_) => true,
            Item::Sa(_) => false,
            Item::Element(element) => {
                [self.one, self.other, self.from].iter().any(|address| element.prefix.has(*address))
            }
            Item::PortMapping(record) => self.is_at(&record.mapping),
            Item::Meter(record) => match record.subject {
                Subject::All => true,
                // An address alone, where nothing is tracked.
                Subject::Flow { ends, .. } => {
                    self.ends().contains(&(ends.source, ends.sport)) || ends.source == self.from
                }
                Subject::Source(prefix) | Subject::Destination(prefix) => {
                    [self.one, self.other, self.from].iter().any(|address| prefix.has(*address))
                }
            },
        }
    }

    /// True if an end of the packet is one of a mapping.
    fn is_at(&self, mapping: &MappingRecord) -> bool {
        [mapping.inside, mapping.outside].iter().any(|end| self.ends().contains(&(end.ip(), end.port)))
    }

    /// True if the flow is the packet's, or has a mapping that the packet may match.
    pub fn is_of(&self, flow: &FlowRecord) -> bool {
        let at = |end: &Endpoint| self.ends().contains(&(end.ip(), end.port));
        let mapped =
            [flow.mapping, flow.inward].iter().flatten().any(|own| at(&own.inside) || at(&own.outside));
        self.is_between(flow) || (mapped && flow.original.protocol == self.protocol)
    }

    /// True if packets of the flow, in one direction or the other, have these ends.
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use dataplane::flow::{Ends, FlowId, State};
    use dataplane::nat::Endpoint;
    use dataplane::state::{DebtRecord, FlowRecord, Item, MappingRecord, Standing, Through};
    use wire::{Nanos, PortId};

    use super::About;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn ends(source: &str, sport: u16, destination: &str, dport: u16) -> Ends {
        Ends { source: ip(source), destination: ip(destination), sport, dport, protocol: 17 }
    }

    /// 192.168.1.10:4000 to 198.51.100.7:53, seen as 203.0.113.2:20000.
    fn flow() -> FlowRecord {
        let end = |address: &str, port| Endpoint::new(ip(address), port, 17);
        FlowRecord {
            id: FlowId(0),
            original: ends("192.168.1.10", 4000, "198.51.100.7", 53),
            reply: ends("198.51.100.7", 53, "203.0.113.2", 20000),
            ingress: Some(PortId(0)),
            state: State::Udp,
            windows: dataplane::flow::Windows::default(),
            idle: Nanos(0),
            age: Nanos(0),
            standing: Standing::Validated,
            rule: None,
            destination: Through::None,
            source: Through::Nat(0),
            mapping: Some(MappingRecord {
                nat: Some(0),
                inside: end("192.168.1.10", 4000),
                outside: end("203.0.113.2", 20000),
            }),
            inward: None,
            kind: 0,
            ds_field: 0,
            tcp_flags: 0,
            wan: None,
            mac: None,
            handshake: dataplane::flow::Handshake::Direct,
        }
    }

    fn about(one: (&str, u16), other: (&str, u16), protocol: u8) -> About {
        About {
            one: ip(one.0),
            one_port: one.1,
            other: ip(other.0),
            other_port: other.1,
            protocol,
            from: ip(one.0),
        }
    }

    #[test]
    fn a_packet_is_of_its_flow_either_way_and_on_either_side() {
        let (inside, outside, far) = (("192.168.1.10", 4000), ("203.0.113.2", 20000), ("198.51.100.7", 53));
        for (one, other) in [(inside, far), (far, inside), (outside, far), (far, outside)] {
            assert!(about(one, other, 17).is_between(&flow()), "{one:?} {other:?}");
            assert!(!about(one, other, 6).is_of(&flow()), "another protocol");
        }
    }

    #[test]
    fn who_shares_the_mapping_bears_on_it_and_others_do_not() {
        let other = ("198.51.100.66", 99);
        for mapped in [("192.168.1.10", 4000), ("203.0.113.2", 20000)] {
            let about = about(other, mapped, 17);
            assert!(about.is_of(&flow()) && !about.is_between(&flow()), "{mapped:?}");
        }
        let strange = about(other, ("203.0.113.2", 20001), 17);
        assert!(!strange.admits(&Item::Flow(flow())));
        // Of the sender all is told: it may be bounded.
        let own = about(("192.168.1.10", 1), other, 17);
        assert!(own.admits(&Item::Flow(flow())) && !own.is_of(&flow()));
    }

    #[test]
    fn what_others_owe_is_left_out() {
        let own = about(("192.168.1.10", 1), ("198.51.100.7", 53), 17);
        let debt = |source| Item::Debt(DebtRecord { rule: 0, source, debt: Nanos(1) });
        assert!(own.admits(&debt(None)) && own.admits(&debt(Some(ip("192.168.1.10")))));
        assert!(!own.admits(&debt(Some(ip("192.168.1.11")))));
    }
}
