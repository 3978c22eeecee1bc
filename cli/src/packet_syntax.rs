//! A packet in words, as `explain` takes it: `lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn ttl 3`.
//!
//! Interface, protocol, source, `>`, destination; then, in any order, what differs from a plain packet. Errors
//! point at the word.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use dataplane::Tables;
use policy::model::{FamilyMatch, IcmpMatch};
use wire::build::{self, Icmp, Packet, Tcp};
use wire::capture::link::NOBODY;
use wire::ethernet::Mac;
use wire::header::{Fragment, Protocol};
use wire::tcp::Flags;
use wire::unit::Dscp;
use wire::vlan::Tag;
use wire::{PortId, icmpv4, icmpv6};

/// Help text on the syntax.
pub(crate) const GRAMMAR: &str = "\
A packet in words:
  IFACE PROTOCOL SOURCE > DESTINATION [WORD...]
    IFACE      an interface of the policy, by which it comes in
    PROTOCOL   tcp udp icmp icmpv6 sctp gre esp ... or a number
    SOURCE     192.0.2.1:50000, [2001:db8::1]:443;
               without a port where the protocol has none
    WORD       syn ack fin rst psh urg, also joined by commas, none
               (TCP; syn if none is named);
               echo-request, echo-reply, port-unreachable ... or
               type N code N (ICMP); id N; seq N; ackno N; ttl N; dscp ef;
               length N (bytes of the IP packet); df; mss N; window N;
               fragment OFFSET[+] (+: more follow); vlan ID[.ID];
               from MAC; to MAC";

/// A packet, and where it comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worded {
    /// The port that it comes in by.
    pub(crate) ingress: PortId,
    /// The Ethernet frame.
    pub(crate) bytes: Vec<u8>,
}

/// Error in a packet in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WordError {
    text: String,
    at: Range<usize>,
    problem: Problem,
}

/// Reason for refusing a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// The words end where this was expected.
    Missing(&'static str),
    /// Not an interface of the policy; holds the names of those.
    Interface(Vec<String>),
    /// Not a protocol.
    Protocol,
    /// Not an address, with a port or without.
    Address,
    /// Neither `>` nor `->`.
    Arrow,
    /// The protocol has ports, and none is given.
    NoPort,
    /// The protocol has no ports, and one is given.
    Port,
    /// Source and destination are of different IP versions, or the protocol is of the other one.
    Version,
    /// Not a word that has a meaning here.
    Unknown,
    /// Not a value for the word before it, which takes this.
    Value(&'static str),
    /// Shorter than its headers, which take so many bytes, or longer than a packet can be.
    Length(usize),
}

/// The words not yet read.
struct Words<'a> {
    text: &'a str,
    rest: std::vec::IntoIter<(usize, &'a str)>,
    /// Place in the text of the word read last, in bytes.
    at: Range<usize>,
}

/// Reads a packet in words.
pub(crate) fn read(text: &str, tables: &Tables) -> Result<Worded, WordError> {
    let mut words = Words::new(text);
    let name = words.next("an interface")?;
    let named = tables.interface_named(name).ok_or_else(|| {
        let known = tables.interfaces.iter().map(|interface| interface.name.clone()).collect();
        words.wrong(Problem::Interface(known))
    })?;
    let protocol: Protocol = words.next("a protocol")?.parse().map_err(|_| words.wrong(Problem::Protocol))?;
    let source = words.end("a source address")?;
    if !matches!(words.next("`>`")?, ">" | "->") {
        return Err(words.wrong(Problem::Arrow));
    }
    let destination = words.end("a destination address")?;
    let (from, to) = (source.address, destination.address);
    let of_version = match protocol {
        Protocol::ICMP => from.is_ipv4(),
        Protocol::ICMPV6 => from.is_ipv6(),
        _ => true,
    };
    if from.is_ipv4() != to.is_ipv4() || !of_version {
        return Err(words.wrong(Problem::Version));
    }
    let mut asked = Asked::default();
    while let Some(word) = words.more() {
        asked.take(word, protocol, from.is_ipv6(), &mut words)?;
    }
    let portless = asked.fragment.is_some_and(|fragment| fragment.offset > 0);
    for end in [&source, &destination] {
        let problem = match end.port {
            None if protocol.has_ports() && !portless => Problem::NoPort,
            Some(_) if !protocol.has_ports() => Problem::Port,
            _ => continue,
        };
        words.at = end.at.clone();
        return Err(words.wrong(problem));
    }
    let ports = [source.port.unwrap_or(0), destination.port.unwrap_or(0)];
    asked.build(named, tables, [from, to], ports, protocol).map_err(|headers| {
        words.at = asked.length_at.clone();
        words.wrong(Problem::Length(headers))
    })
}

/// One end of a packet.
struct End {
    address: IpAddr,
    port: Option<u16>,
    at: Range<usize>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let start = text.as_ptr() as usize;
        let words: Vec<_> =
            text.split_whitespace().map(|word| (word.as_ptr() as usize - start, word)).collect();
        Words { text, rest: words.into_iter(), at: 0..0 }
    }

    fn more(&mut self) -> Option<&'a str> {
        let (start, word) = self.rest.next()?;
        self.at = start..start + word.len();
        Some(word)
    }

    fn next(&mut self, expected: &'static str) -> Result<&'a str, WordError> {
        self.more().ok_or_else(|| {
            let end = self.text.trim_end().len();
            WordError { text: self.text.to_owned(), at: end..end + 1, problem: Problem::Missing(expected) }
        })
    }

    fn end(&mut self, expected: &'static str) -> Result<End, WordError> {
        let word = self.next(expected)?;
        let at = self.at.clone();
        if let Ok(socket) = word.parse::<SocketAddr>() {
            return Ok(End { address: socket.ip(), port: Some(socket.port()), at });
        }
        let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
        let address = bare.parse().map_err(|_| self.wrong(Problem::Address))?;
        Ok(End { address, port: None, at })
    }

    /// The value of the word before, which takes what `takes` says.
    fn value<V: std::str::FromStr>(&mut self, takes: &'static str) -> Result<V, WordError> {
        self.next(takes)?.parse().map_err(|_| self.wrong(Problem::Value(takes)))
    }

    /// The word that was read last is wrong.
    fn wrong(&self, problem: Problem) -> WordError {
        WordError { text: self.text.to_owned(), at: self.at.clone(), problem }
    }
}

/// Options behind the destination.
#[derive(Debug, Default)]
struct Asked {
    flags: Option<Flags>,
    icmp: Option<IcmpMatch>,
    id: u16,
    seq: u32,
    ackno: u32,
    window: Option<u16>,
    mss: Option<u16>,
    ttl: Option<u8>,
    dscp: Option<Dscp>,
    length: Option<usize>,
    length_at: Range<usize>,
    dont_fragment: DontFragment,
    fragment: Option<Fragment>,
    tags: Vec<u16>,
    link_from: Option<Mac>,
    link_to: Option<Mac>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DontFragment {
    #[default]
    Clear,
    Set,
}

const VLAN: &str = "a VLAN identifier, 1 to 4094, or two with a dot between";
const TYPE: &str = "a number from 0 to 255";
const PORT: &str = "a number from 0 to 65535";
const MAC: &str = "an Ethernet address, as 02:00:5e:10:00:01";

impl Asked {
    fn take(
        &mut self,
        word: &str,
        protocol: Protocol,
        v6: bool,
        words: &mut Words<'_>,
    ) -> Result<(), WordError> {
        match word {
            "ttl" => self.ttl = Some(words.value(TYPE)?),
            "id" => self.id = words.value(PORT)?,
            "seq" => self.seq = words.value("a number of 32 bits")?,
            "ackno" => self.ackno = words.value("a number of 32 bits")?,
            "window" => self.window = Some(words.value(PORT)?),
            "mss" => self.mss = Some(words.value(PORT)?),
            "df" => self.dont_fragment = DontFragment::Set,
            "from" => self.link_from = Some(words.value(MAC)?),
            "to" => self.link_to = Some(words.value(MAC)?),
            "length" => {
                self.length = Some(words.value("a number of bytes")?);
                self.length_at = words.at.clone();
            }
            "dscp" => {
                let takes = "a code point: its name, such as ef, or a number from 0 to 63";
                let value = words.next(takes)?;
                let named = policy::dscp_named(value);
                let point = named.or_else(|| value.parse().ok().and_then(Dscp::new));
                self.dscp = Some(point.ok_or_else(|| words.wrong(Problem::Value(takes)))?);
            }
            "fragment" => {
                let takes = "an offset in bytes, a multiple of 8, and + if more follow";
                let value = words.next(takes)?;
                let (digits, more) = value.strip_suffix('+').map_or((value, false), |digits| (digits, true));
                let offset: Option<u16> = digits.parse().ok().filter(|offset| offset % 8 == 0);
                let offset = offset.ok_or_else(|| words.wrong(Problem::Value(takes)))?;
                self.fragment = Some(Fragment { id: 1, offset, more });
            }
            "vlan" => {
                let value = words.next(VLAN)?;
                let ids: Result<Vec<u16>, _> = value.split('.').map(str::parse).collect();
                let sound = |ids: &Vec<u16>| ids.len() <= 2 && ids.iter().all(|id| (1..=4094).contains(id));
                self.tags = ids.ok().filter(sound).ok_or_else(|| words.wrong(Problem::Value(VLAN)))?;
            }
            _ => return self.take_of(word, protocol, v6, words),
        }
        Ok(())
    }

    /// Words that only have a meaning for one protocol.
    fn take_of(
        &mut self,
        word: &str,
        protocol: Protocol,
        v6: bool,
        words: &mut Words<'_>,
    ) -> Result<(), WordError> {
        match protocol {
            Protocol::TCP => {
                let flags: Flags = word.parse().map_err(|_| words.wrong(Problem::Unknown))?;
                self.flags = Some(self.flags.unwrap_or_default().and(flags));
            }
            Protocol::ICMP | Protocol::ICMPV6 => {
                let plain = IcmpMatch { kind: 0, code: None };
                match word {
                    "type" => self.icmp = Some(IcmpMatch { kind: words.value(TYPE)?, ..plain }),
                    "code" => {
                        let code = Some(words.value(TYPE)?);
                        self.icmp = Some(IcmpMatch { code, ..self.icmp.unwrap_or(plain) });
                    }
                    name => {
                        let family = if v6 { FamilyMatch::V6 } else { FamilyMatch::V4 };
                        let named = policy::icmp_named(name, family);
                        self.icmp = Some(named.ok_or_else(|| words.wrong(Problem::Unknown))?);
                    }
                }
            }
            _ => return Err(words.wrong(Problem::Unknown)),
        }
        Ok(())
    }

    /// The packet; if its length is impossible, how many bytes its headers take.
    fn build(
        &self,
        named: PortId,
        tables: &Tables,
        [from, to]: [IpAddr; 2],
        ports: [u16; 2],
        protocol: Protocol,
    ) -> Result<Worded, usize> {
        let interface = tables.interface(named);
        let own = interface.map_or(Mac::ZERO, |interface| interface.mac);
        let link_to = self.link_to.unwrap_or_else(|| group(to).unwrap_or(own));
        let mut packet = build::ethernet(self.link_from.unwrap_or(NOBODY), link_to);
        let mut tags: Vec<Tag> = match self.tags.as_slice() {
            [outer, inner] => vec![Tag::service(*outer), Tag::customer(*inner)],
            ids => ids.iter().map(|id| Tag::customer(*id)).collect(),
        };
        if tags.is_empty() {
            tags.extend(interface.into_iter().flat_map(|interface| interface.tags.as_slice()));
        }
        for tag in &tags {
            packet = packet.vlan(*tag);
        }
        let network = 14 + 4 * tags.len();
        packet = match (from, to) {
            (IpAddr::V6(from), IpAddr::V6(to)) => packet.ipv6(from, to),
            (IpAddr::V4(from), IpAddr::V4(to)) => packet.ipv4(from, to),
            // Refused before.
            _ => packet,
        };
        packet = packet.ttl(self.ttl.unwrap_or(64)).dscp(self.dscp.unwrap_or_default());
        if self.dont_fragment == DontFragment::Set {
            packet = packet.dont_fragment();
        }
        if let Some(fragment) = self.fragment {
            packet = packet.fragment(fragment);
        }
        let mss = self.mss.map(|mss| [2, 4, (mss >> 8) as u8, mss as u8]);
        let packet = self.transport(packet, ports, protocol, mss.as_ref().map_or(&[], |mss| mss));
        let headers = packet.wire_len().saturating_sub(network);
        let lead = self.lead(ports, protocol);
        let least = headers + lead.len();
        let length = self.length.unwrap_or(least);
        let Some(payload) = length.checked_sub(headers).filter(|_| length >= least && length <= 65535) else {
            return Err(least);
        };
        let mut data = lead;
        data.resize(payload, 0);
        let bytes = packet.payload(&data).to_vec();
        let ingress = match interface {
            Some(interface) if !tags.is_empty() => interface.root,
            _ => named,
        };
        Ok(Worded { ingress, bytes })
    }

    fn transport<'a>(
        &self,
        packet: Packet<'a>,
        [sport, dport]: [u16; 2],
        protocol: Protocol,
        options: &'a [u8],
    ) -> Packet<'a> {
        if self.is_later() {
            return packet.protocol(protocol);
        }
        match protocol {
            Protocol::TCP => packet.tcp(Tcp {
                sport,
                dport,
                seq: self.seq,
                ack: self.ackno,
                flags: self.flags.unwrap_or(Flags::SYN),
                window: self.window.unwrap_or(u16::MAX),
                options,
            }),
            Protocol::UDP => packet.udp(sport, dport),
            Protocol::ICMP | Protocol::ICMPV6 => {
                let request = if protocol == Protocol::ICMP {
                    icmpv4::Type::ECHO_REQUEST.0
                } else {
                    icmpv6::Type::ECHO_REQUEST.0
                };
                let icmp = self.icmp.unwrap_or(IcmpMatch { kind: request, code: None });
                let message =
                    Icmp { code: icmp.code.unwrap_or(0), ..Icmp::echo(icmp.kind, self.id, self.seq as u16) };
                if protocol == Protocol::ICMP { packet.icmpv4(message) } else { packet.icmpv6(message) }
            }
            _ => packet.protocol(protocol),
        }
    }

    fn is_later(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }

    /// Returns the first bytes of a payload for protocols whose header is not built: ports.
    fn lead(&self, [sport, dport]: [u16; 2], protocol: Protocol) -> Vec<u8> {
        let built = matches!(protocol, Protocol::TCP | Protocol::UDP);
        if !protocol.has_ports() || built || self.is_later() {
            return Vec::new();
        }
        let mut lead = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
        // SCTP's common header (RFC 9260, section 3) is the longest that a rule looks into.
        lead.resize(12, 0);
        lead
    }
}

/// The link-layer address of a group, if the destination is one (RFC 1112, RFC 2464).
fn group(to: IpAddr) -> Option<Mac> {
    match to {
        IpAddr::V4(v4) if v4.is_broadcast() => Some(Mac::BROADCAST),
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some(Mac([0x01, 0, 0x5e, b & 0x7f, c, d]))
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let [.., a, b, c, d] = v6.octets();
            Some(Mac([0x33, 0x33, a, b, c, d]))
        }
        _ => None,
    }
}

impl WordError {
    /// Returns advice on the error.
    pub(crate) fn hint(&self) -> String {
        match &self.problem {
            Problem::Interface(known) => format!("the policy has {}", known.join(", ")),
            Problem::NoPort => "write 192.0.2.1:443 or [2001:db8::1]:443".to_owned(),
            Problem::Length(headers) => format!("its headers take {headers} bytes; 65535 is the most"),
            _ => "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn; `wirerate explain --help` has all words"
                .to_owned(),
        }
    }
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.text.get(self.at.clone()).unwrap_or("");
        match &self.problem {
            Problem::Missing(expected) => write!(f, "{expected} is missing")?,
            Problem::Interface(_) => write!(f, "`{word}` is no interface of the policy")?,
            Problem::Protocol => write!(f, "`{word}` is no protocol: a name such as tcp, or a number")?,
            Problem::Address => write!(f, "`{word}` is no address")?,
            Problem::Arrow => write!(f, "`{word}` stands where `>` should")?,
            Problem::NoPort => write!(f, "`{word}` has no port, and the protocol has ports")?,
            Problem::Port => write!(f, "`{word}` has a port, and the protocol has none")?,
            Problem::Version => write!(f, "IPv4 and IPv6 are mixed")?,
            Problem::Unknown => write!(f, "`{word}` means nothing here")?,
            Problem::Value(takes) => write!(f, "`{word}` is not {takes}")?,
            Problem::Length(_) => write!(f, "a packet of {word} bytes cannot be")?,
        }
        let before = self.text.get(..self.at.start).map_or(0, |before| before.chars().count());
        let marks = word.chars().count().max(1);
        write!(f, "\n  {}\n  {:before$}{}", self.text, "", "^".repeat(marks))
    }
}

#[cfg(test)]
mod tests;
