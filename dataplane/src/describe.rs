//! A frame in words, as far as its bytes tell: for people, and by field for scripts and for comparison.

use std::net::IpAddr;

use policy::model::FamilyMatch;
use serde::ser::{Serialize, SerializeMap, Serializer};
use wire::esp::{self, NAT_PORT};
use wire::ethernet::{self, EtherType};
use wire::header::{Endpoint, Ports, Protocol};
use wire::tcp::TcpOption;
use wire::unit::Dscp;
use wire::vlan::DropEligible;
use wire::{arp, icmpv4, ipv4, ipv6, tcp, udp};

/// Header fields of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Fields and their values, in the order of the bytes.
    pub fields: Vec<(&'static str, String)>,
    /// Summary of one line.
    pub headline: String,
}

/// A field that two frames have different values of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name of the field.
    pub field: &'static str,
    /// Value in the one frame; none where it lacks the field.
    pub before: Option<String>,
    /// Value in the other frame; none where it lacks the field.
    pub after: Option<String>,
}

impl Description {
    /// Describes the Ethernet frame `frame`.
    pub fn of(frame: &[u8]) -> Description {
        let mut told = Description::default();
        let Ok(layer) = ethernet::parse(frame) else {
            told.headline = match frame.len() {
                1 => "a frame of 1 byte".to_owned(),
                many => format!("a frame of {many} bytes"),
            };
            return told;
        };
        told.say("link-source", layer.header.src());
        told.say("link-destination", layer.header.dst());
        let tags = layer.tags.as_slice();
        if !tags.is_empty() {
            let ids: Vec<String> = tags.iter().map(|tag| tag.id().to_string()).collect();
            told.say("vlan", ids.join("."));
            let mut points: Vec<String> =
                tags.iter().map(|tag| tag.priority().code_point().value().to_string()).collect();
            points.dedup();
            told.say("pcp", points.join("."));
            if tags.iter().any(|tag| tag.priority().eligible() == DropEligible::Yes) {
                told.say("dei", "yes");
            }
        }
        match layer.ethertype {
            EtherType::IPV4 => told.ipv4(layer.payload),
            EtherType::IPV6 => told.ipv6(layer.payload),
            EtherType::ARP => told.arp(layer.payload),
            other => {
                told.say("ethertype", other);
                told.headline = format!("a frame of type {other}");
            }
        }
        told
    }

    /// Returns the fields in which `after` differs.
    pub fn changes(&self, after: &Description) -> Vec<Change> {
        let of = |list: &Description, field: &str| list.field(field).map(str::to_owned);
        let mut names: Vec<&'static str> = self.fields.iter().map(|(name, _)| *name).collect();
        names.extend(after.fields.iter().map(|(name, _)| *name).filter(|name| self.field(name).is_none()));
        names
            .into_iter()
            .map(|field| Change { field, before: of(self, field), after: of(after, field) })
            .filter(|change| change.before != change.after)
            .collect()
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }

    fn say(&mut self, field: &'static str, value: impl ToString) {
        self.fields.push((field, value.to_string()));
    }

    fn arp(&mut self, payload: &[u8]) {
        let Ok(packet) = arp::parse(payload) else {
            self.headline = "arp, malformed".to_owned();
            return;
        };
        self.say("protocol", "arp");
        self.say("source", packet.sender_ip());
        self.say("destination", packet.target_ip());
        self.headline = format!("arp {} asks or tells {}", packet.sender_ip(), packet.target_ip());
    }

    fn ipv4(&mut self, bytes: &[u8]) {
        let Some(header) = ipv4::Header::of(bytes) else {
            self.headline = "ipv4, cut short".to_owned();
            return;
        };
        let ends = [header.src().into(), header.dst().into()];
        let fragment = header.fragment().map(|fragment| (fragment.offset, fragment.more));
        // Of one that is wrong, or of which not all is there, as far as it goes.
        let rest = || bytes.get(header.header_len()..).unwrap_or_default();
        let payload = ipv4::parse(bytes).map_or_else(|_| rest(), |packet| packet.payload);
        let rest = Rest {
            protocol: header.protocol(),
            ttl: header.ttl(),
            dscp: header.dscp(),
            length: usize::from(header.total_len()),
            fragment,
            dont_fragment: header.dont_fragment(),
        };
        self.ip(ends, payload, rest);
    }

    fn ipv6(&mut self, bytes: &[u8]) {
        let Some(header) = ipv6::Header::of(bytes) else {
            self.headline = "ipv6, cut short".to_owned();
            return;
        };
        let ends = [header.src().into(), header.dst().into()];
        let parsed = ipv6::parse(bytes).ok();
        let fragment = parsed
            .as_ref()
            .and_then(|packet| packet.extensions.fragment)
            .map(|found| (found.fragment.offset, found.fragment.more));
        let rest = Rest {
            protocol: parsed.as_ref().map_or(header.next_header(), |packet| packet.protocol()),
            ttl: header.hop_limit(),
            dscp: header.dscp(),
            length: ipv6::HEADER_LEN + usize::from(header.payload_len()),
            fragment,
            dont_fragment: false,
        };
        let beyond = || bytes.get(ipv6::HEADER_LEN..).unwrap_or_default();
        self.ip(ends, parsed.map_or_else(beyond, |packet| packet.payload), rest);
    }

    fn ip(&mut self, [source, destination]: [IpAddr; 2], payload: &[u8], rest: Rest) {
        let first = rest.fragment.is_none_or(|(offset, _)| offset == 0);
        self.say("source", source);
        self.say("destination", destination);
        self.say("protocol", rest.protocol);
        let mut ports = None;
        let mut detail = String::new();
        match rest.protocol {
            Protocol::ICMP | Protocol::ICMPV6 if first => {
                if let Some(header) = icmpv4::Header::of(payload) {
                    let family =
                        if rest.protocol == Protocol::ICMP { FamilyMatch::V4 } else { FamilyMatch::V6 };
                    let (kind, code) = (header.kind().0, header.code());
                    let name = policy::icmp_name(kind, code, family)
                        .map_or_else(|| format!("type {kind} code {code}"), str::to_owned);
                    self.say("icmp", &name);
                    detail.push_str(&format!(" {name}"));
                    if name.starts_with("echo") {
                        self.say("id", header.id());
                        self.say("seq", header.seq());
                        detail.push_str(&format!(" id {} seq {}", header.id(), header.seq()));
                    }
                }
            }
            protocol if protocol.has_ports() && first => ports = Ports::of(payload),
            _ => {}
        }
        if let Some(ports) = ports {
            self.say("sport", ports.sport);
            self.say("dport", ports.dport);
        }
        if first {
            let esp = match (rest.protocol, ports) {
                (Protocol::ESP, _) => Some(payload),
                (Protocol::UDP, Some(ports)) if [ports.sport, ports.dport].contains(&NAT_PORT) => {
                    payload.get(udp::HEADER_LEN..)
                }
                _ => None,
            };
            // Of IKE the first four bytes are zero (RFC 3948, section 2.2).
            if let Some(header) = esp.and_then(esp::Header::of).filter(|header| header.spi() != 0) {
                self.say("spi", format!("{:#x}", header.spi()));
                self.say("number", header.sequence());
                let within = if rest.protocol == Protocol::UDP { " esp" } else { "" };
                detail.push_str(&format!("{within} sa {:#x} num {}", header.spi(), header.sequence()));
            }
        }
        if rest.protocol == Protocol::TCP && first {
            if let Ok(segment) = tcp::parse(payload) {
                let header = segment.header;
                self.say("flags", header.flags());
                self.say("seq", header.seq());
                self.say("ack", header.ack());
                detail.push_str(&format!(" {}", header.flags()));
                let mss = segment.options().flatten().find_map(|option| match option {
                    TcpOption::Mss(mss) => Some(mss),
                    _ => None,
                });
                if let Some(mss) = mss {
                    self.say("mss", mss);
                }
            }
        }
        self.say("ttl", rest.ttl);
        self.say("dscp", dscp(rest.dscp));
        self.say("length", rest.length);
        if let Some((offset, more)) = rest.fragment {
            let text = format!("{offset}{}", if more { "+" } else { "" });
            self.say("fragment", &text);
            detail.push_str(&format!(" fragment {text}"));
        }
        if rest.dont_fragment {
            self.say("df", "set");
            detail.push_str(" df");
        }
        if rest.dscp.value() != 0 {
            detail.push_str(&format!(" dscp {}", dscp(rest.dscp)));
        }
        self.headline = format!(
            "{} {} > {}{detail} ttl {} length {}",
            rest.protocol,
            Endpoint { address: source, port: ports.map(|ports| ports.sport) },
            Endpoint { address: destination, port: ports.map(|ports| ports.dport) },
            rest.ttl,
            rest.length
        );
    }
}

/// The summary as `words`, and the fields.
impl Serialize for Description {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(1 + self.fields.len()))?;
        object.serialize_entry("words", &self.headline)?;
        for (name, value) in &self.fields {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

/// Header fields common to IPv4 and IPv6.
struct Rest {
    protocol: Protocol,
    ttl: u8,
    dscp: Dscp,
    length: usize,
    fragment: Option<(u16, bool)>,
    dont_fragment: bool,
}

/// A code point, by name where it has one.
fn dscp(dscp: Dscp) -> String {
    policy::dscp_name(dscp).map_or_else(|| dscp.value().to_string(), str::to_owned)
}
