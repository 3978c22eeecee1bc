//! Parser of netlink messages: bytes to events.
//!
//! A pure function of any bytes: malformed messages are reported, and never cause a panic. Each attribute of interest
//! is parsed by itself, so an attribute with a new layout in a newer Linux affects no other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_APPEND, NLM_F_CAPPED, NLM_F_DUMP_INTR, NLM_F_REPLACE, NLMSG_DONE, NLMSG_ERROR,
    NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NlasIterator,
};
use wire::ethernet::Mac;

use super::interface::{Condition, Link, LinkIndex, Linkdown, LinkdownKey, Settings, TableId};
use super::multicast::{MulticastEntry, MulticastExit, MulticastKey, MulticastRouter};
use super::route::{Hop, Member, Object, Placing, Route, Target};
use super::state::{Address, AddressKey, Event, Neighbour, NeighbourChange, NeighbourKey, Reachability};

/// Netlink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sequence number of the request that the message answers; 0 for events.
    pub sequence: u32,
    /// True if a dump may be inconsistent, as its objects changed meanwhile (`NLM_F_DUMP_INTR`).
    pub interrupted: bool,
    /// Body of the message.
    pub body: Body,
}

/// Body of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Event on an object that is followed.
    Event(Event),
    /// End of a dump; an error number or 0.
    Done(i32),
    /// Acknowledgement (0) or refusal (a negative error number) of a request, with Linux's explanation, if any.
    Answer(i32, String),
    /// Loss of messages.
    Overrun,
    /// Message about an object that is not followed.
    Other,
    /// Malformed message.
    Malformed,
}

pub(super) const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;

/// Families of the multicast forwarding caches (`RTNL_FAMILY_IPMR`, `RTNL_FAMILY_IP6MR`).
pub(super) const IPMR: u8 = 128;
pub(super) const IP6MR: u8 = 129;

/// Returns the messages of a datagram, in order.
pub fn parse(bytes: &[u8]) -> Messages<'_> {
    Messages { rest: bytes }
}

/// Iterator over the messages of a datagram.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.rest.is_empty() {
            return None;
        }
        let malformed = Message { sequence: 0, interrupted: false, body: Body::Malformed };
        let Ok(message) = NetlinkBuffer::new_checked(self.rest) else {
            self.rest = &[];
            return Some(malformed);
        };
        let length = message.length() as usize;
        let body = self.rest.get(HEADER..length).unwrap_or(&[]);
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Message {
            sequence: message.sequence_number(),
            interrupted: message.flags() & NLM_F_DUMP_INTR != 0,
            body: read(message.message_type(), message.flags(), body),
        })
    }
}

/// Size of a message header, in bytes.
pub(crate) const HEADER: usize = 16;

fn read(kind: u16, flags: u16, body: &[u8]) -> Body {
    let number = || body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match kind {
        NLMSG_NOOP => return Body::Other,
        NLMSG_DONE => return Body::Done(number()),
        NLMSG_ERROR if body.len() >= 4 => return Body::Answer(number(), explanation(flags, body)),
        NLMSG_ERROR => return Body::Malformed,
        NLMSG_OVERRUN => return Body::Overrun,
        _ => {}
    }
    let read = match kind {
        RTM_NEWLINK | RTM_DELLINK => link(kind, body),
        RTM_NEWADDR | RTM_DELADDR => address(kind, body),
        RTM_NEWROUTE | RTM_DELROUTE if matches!(body, [IPMR | IP6MR, ..]) => multicast(kind, body),
        RTM_NEWROUTE | RTM_DELROUTE => route(kind, flags, body),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour(kind, body),
        RTM_NEWNETCONF | RTM_DELNETCONF => configuration(kind, body),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => object(kind, body),
        _ => Ok(None),
    };
    match read {
        Ok(Some(event)) => Body::Event(event),
        Ok(None) => Body::Other,
        Err(Unreadable) => Body::Malformed,
    }
}

/// Linux's explanation of a refusal (`NLMSGERR_ATTR_MSG`), behind the header of the refused request; empty if none.
fn explanation(flags: u16, body: &[u8]) -> String {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    let said = NLM_F_CAPPED | NLM_F_ACK_TLVS;
    let rest = body.get(4 + HEADER..).filter(|_| flags & said == said).unwrap_or(&[]);
    let message = attributes(rest).flatten().find(|attribute| attribute.kind == NLMSGERR_ATTR_MSG);
    message.map_or_else(String::new, |message| text(message.value))
}

/// Error: malformed message of its type.
pub(crate) struct Unreadable;

/// Parsed event; `None` for a message about an object that is not followed.
type Read = Result<Option<Event>, Unreadable>;

fn link(kind: u16, body: &[u8]) -> Read {
    const UP: u32 = 1;
    const RUNNING: u32 = 1 << 6;
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_LINK: u16 = 5;
    const IFLA_MASTER: u16 = 10;
    const IFLA_WIRELESS: u16 = 11;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    const IFLA_VRF_TABLE: u16 = 1;
    const IFLA_LINK_NETNSID: u16 = 37;

    let header = Header::<16>::of(body)?;
    // What a bridge says of its ports comes as links of its own family: the end of a port is not the end of the link.
    if header.byte(0) != 0 {
        return Ok(None);
    }
    let index = LinkIndex(header.word(4));
    if kind == RTM_DELLINK {
        return Ok(Some(Event::LinkGone(index)));
    }
    let flags = header.word(8);
    let mut link = Link {
        name: String::new(),
        mac: None,
        mtu: 0,
        condition: match flags {
            _ if flags & UP == 0 => Condition::Down,
            _ if flags & RUNNING == 0 => Condition::NoCarrier,
            _ => Condition::Running,
        },
        hardware: header.half(2),
        kind: String::new(),
        parent: None,
        master: None,
        table: None,
    };
    let mut elsewhere = false;
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
            IFLA_MTU => link.mtu = word(value)?,
            IFLA_LINK => link.parent = Some(LinkIndex(word(value)?)).filter(|parent| parent.0 != 0),
            IFLA_LINK_NETNSID => elsewhere = true,
            IFLA_MASTER => link.master = Some(LinkIndex(word(value)?)).filter(|master| master.0 != 0),
            // Only that a wireless driver has news: nothing else is in the message.
            IFLA_WIRELESS => return Ok(None),
            IFLA_LINKINFO => {
                let mut data = None;
                for attribute in attributes(value) {
                    let Attribute { kind, value } = attribute?;
                    match kind {
                        IFLA_INFO_KIND => link.kind = text(value),
                        IFLA_INFO_DATA => data = Some(value),
                        _ => {}
                    }
                }
                for attribute in attributes(data.filter(|_| link.kind == "vrf").unwrap_or(&[])) {
                    let Attribute { kind, value } = attribute?;
                    if kind == IFLA_VRF_TABLE {
                        link.table = Some(TableId(word(value)?));
                    }
                }
            }
            _ => {}
        }
    }
    if link.name.is_empty() {
        return Err(Unreadable);
    }
    if elsewhere {
        link.parent = None;
    }
    Ok(Some(Event::Link(index, link)))
}

/// Parses an interface's settings below /proc/sys/net: those that affect packets of others.
fn configuration(kind: u16, body: &[u8]) -> Read {
    const NETCONFA_IFINDEX: u16 = 1;
    const NETCONFA_MC_FORWARDING: u16 = 4;
    const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;

    let header = Header::<4>::of(body)?;
    let family = header.byte(0);
    let mut link = 0;
    let mut settings = Settings::default();
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            NETCONFA_IFINDEX => link = word(value)?,
            NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => {
                settings.linkdown = Some(if word(value)? != 0 { Linkdown::Ignored } else { Linkdown::Used });
            }
            NETCONFA_MC_FORWARDING => {
                settings.multicast =
                    Some(if word(value)? != 0 { MulticastRouter::On } else { MulticastRouter::Off });
            }
            _ => {}
        }
    }
    // Those of all interfaces, and of new ones, have negative numbers.
    if (family != AF_INET && family != AF_INET6) || link == 0 || link > i32::MAX as u32 {
        return Ok(None);
    }
    let key = LinkdownKey { link: LinkIndex(link), v6: family == AF_INET6 };
    if kind == RTM_DELNETCONF {
        settings = Settings { linkdown: Some(Linkdown::Used), multicast: Some(MulticastRouter::Off) };
    }
    Ok((settings != Settings::default()).then_some(Event::Settings(key, settings)))
}

fn address(kind: u16, body: &[u8]) -> Read {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_FLAGS: u16 = 8;
    const IFA_PROTO: u16 = 11;

    let header = Header::<8>::of(body)?;
    let family = header.byte(0);
    if family != AF_INET && family != AF_INET6 {
        return Ok(None);
    }
    let mut given = None;
    let mut local = None;
    let mut address = Address { protocol: 0, scope: header.byte(3), flags: u32::from(header.byte(2)) };
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            IFA_ADDRESS => given = Some(ip(family, value)?),
            IFA_LOCAL => local = Some(ip(family, value)?),
            IFA_FLAGS => address.flags = word(value)?,
            IFA_PROTO => address.protocol = *value.first().ok_or(Unreadable)?,
            _ => {}
        }
    }
    let own = local.or(given).ok_or(Unreadable)?;
    let net = IpNet::new(own, header.byte(1)).map_err(|_| Unreadable)?;
    let peer = given.filter(|given| *given != own);
    let key = AddressKey { link: LinkIndex(header.word(4)), net, peer };
    Ok(Some(if kind == RTM_NEWADDR { Event::Address(key, address) } else { Event::AddressGone(key) }))
}

fn route(kind: u16, flags: u16, body: &[u8]) -> Read {
    const RTM_F_CLONED: u32 = 0x200;
    const ONLINK: u32 = 4;
    const RTN_UNICAST: u8 = 1;
    /// `RTN_LOCAL`, `RTN_BROADCAST`, `RTN_ANYCAST`, `RTN_MULTICAST`: made by Linux for addresses, in the table of a VRF beside other routes.
    const OF_ADDRESSES: std::ops::RangeInclusive<u8> = 2..=5;
    const RTN_BLACKHOLE: u8 = 6;
    const RTN_UNREACHABLE: u8 = 7;
    const RTN_PROHIBIT: u8 = 8;
    const RTA_DST: u16 = 1;
    const RTA_PRIORITY: u16 = 6;
    const RTA_MULTIPATH: u16 = 9;
    const RTA_TABLE: u16 = 15;
    const RTA_NH_ID: u16 = 30;

    let header = Header::<12>::of(body)?;
    let family = header.byte(0);
    let route_flags = header.word(8);
    // A route by source, or one that a cache made, is not for everybody.
    let by_source = header.byte(2) != 0;
    if (family != AF_INET && family != AF_INET6) || by_source || route_flags & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let mut table = u32::from(header.byte(4));
    let mut destination = None;
    let mut metric = 0;
    let mut hop =
        Hop { link: None, via: None, weight: 1, onlink: route_flags & ONLINK != 0, encapsulated: false };
    let mut several = None;
    let mut object = None;
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            RTA_TABLE => table = word(value)?,
            RTA_DST => destination = Some(ip(family, value)?),
            RTA_PRIORITY => metric = word(value)?,
            RTA_MULTIPATH => several = Some(hops(family, value)?),
            RTA_NH_ID => object = Some(word(value)?),
            _ => hop_attribute(family, kind, value, &mut hop)?,
        }
    }
    let table = TableId(table);
    if table != TableId::MAIN && OF_ADDRESSES.contains(&header.byte(7)) {
        return Ok(None);
    }
    let nowhere = if family == AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let net = IpNet::new(destination.unwrap_or(nowhere), header.byte(1)).map_err(|_| Unreadable)?;
    let target = match header.byte(7) {
        // A blackhole object makes its routes blackholes.
        RTN_UNICAST | RTN_BLACKHOLE if object.is_some() => Target::Object(object.unwrap_or(0)),
        RTN_UNICAST => Target::of(several.unwrap_or_else(|| vec![hop])).ok_or(Unreadable)?,
        RTN_BLACKHOLE => Target::Blackhole,
        RTN_UNREACHABLE => Target::Unreachable,
        RTN_PROHIBIT => Target::Prohibit,
        other => Target::Other(other),
    };
    let route = Route { metric, tos: header.byte(3), protocol: header.byte(5), target };
    let placing = match flags {
        _ if flags & NLM_F_REPLACE != 0 => Placing::Instead,
        _ if flags & NLM_F_APPEND != 0 => Placing::Last,
        _ => Placing::First,
    };
    Ok(Some(match kind {
        RTM_NEWROUTE => Event::Route(table, net.trunc(), route, placing),
        _ => Event::RouteGone(table, net.trunc(), route),
    }))
}

/// Parses an entry of a multicast forwarding cache. One that the daemon has not resolved yet has no interfaces, and is none.
fn multicast(kind: u16, body: &[u8]) -> Read {
    const DEFAULT: u32 = 253;
    const RTA_DST: u16 = 1;
    const RTA_SRC: u16 = 2;
    const RTA_IIF: u16 = 3;
    const RTA_MULTIPATH: u16 = 9;
    const RTA_TABLE: u16 = 15;

    let header = Header::<12>::of(body)?;
    // The tables that daemons use unless told otherwise.
    let (family, usual) =
        if header.byte(0) == IPMR { (AF_INET, DEFAULT) } else { (AF_INET6, TableId::MAIN.0) };
    let nobody = if family == AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let mut key = MulticastKey { group: nobody, source: nobody };
    let mut table = u32::from(header.byte(4));
    let mut from = None;
    let mut to: Vec<MulticastExit> = Vec::new();
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            RTA_TABLE => table = word(value)?,
            RTA_DST => key.group = ip(family, value)?,
            RTA_SRC => key.source = ip(family, value)?,
            RTA_IIF => from = Some(LinkIndex(word(value)?)),
            RTA_MULTIPATH => {
                // Where next hops have a weight, interfaces have a threshold, from 1.
                let exit = |hop: Hop| {
                    let threshold = u8::try_from(hop.weight - 1).unwrap_or(u8::MAX);
                    hop.link.map(|link| MulticastExit { link, threshold })
                };
                to = hops(family, value)?.into_iter().filter_map(exit).collect();
            }
            _ => {}
        }
    }
    if table != usual {
        return Ok(None);
    }
    Ok(match from {
        _ if kind == RTM_DELROUTE => Some(Event::MulticastGone(key)),
        Some(from) => Some(Event::Multicast(key, MulticastEntry { from, to: to.into() })),
        None => None,
    })
}

/// Parses the next hops of a multipath route.
fn hops(family: u8, mut bytes: &[u8]) -> Result<Vec<Hop>, Unreadable> {
    const HEAD: usize = 8;
    const ONLINK: u8 = 4;
    let mut hops = Vec::new();
    while !bytes.is_empty() {
        let head: &[u8; HEAD] = bytes.first_chunk().ok_or(Unreadable)?;
        let [l0, l1, flags, weight, i0, i1, i2, i3] = *head;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let body = bytes.get(HEAD..length).ok_or(Unreadable)?;
        let link = u32::from_ne_bytes([i0, i1, i2, i3]);
        let mut hop = Hop {
            link: Some(LinkIndex(link)).filter(|link| link.0 != 0),
            via: None,
            weight: u16::from(weight) + 1,
            onlink: flags & ONLINK != 0,
            encapsulated: false,
        };
        for attribute in attributes(body) {
            let Attribute { kind, value } = attribute?;
            hop_attribute(family, kind, value, &mut hop)?;
        }
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(hops)
}

/// Parses an attribute common to a route and to each next hop of a multipath route.
fn hop_attribute(family: u8, kind: u16, value: &[u8], hop: &mut Hop) -> Result<(), Unreadable> {
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    const RTA_VIA: u16 = 18;
    const RTA_ENCAP: u16 = 22;
    match kind {
        RTA_OIF => hop.link = Some(LinkIndex(word(value)?)),
        RTA_GATEWAY => hop.via = Some(ip(family, value)?),
        RTA_VIA => {
            let (family, address) = value.split_first_chunk().ok_or(Unreadable)?;
            let family = u8::try_from(u16::from_ne_bytes(*family)).map_err(|_| Unreadable)?;
            hop.via = Some(ip(family, address)?);
        }
        RTA_ENCAP => hop.encapsulated = true,
        _ => {}
    }
    Ok(())
}

fn neighbour(kind: u16, body: &[u8]) -> Read {
    const NTF_PROXY: u8 = 1 << 3;
    const NTF_ROUTER: u8 = 1 << 7;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;

    let header = Header::<12>::of(body)?;
    let family = header.byte(0);
    let flags = header.byte(10);
    // The bridges' tables of stations come as neighbours, too.
    if (family != AF_INET && family != AF_INET6) || flags & NTF_PROXY != 0 {
        return Ok(None);
    }
    let mut address = None;
    let mut mac = None;
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            NDA_DST => address = Some(ip(family, value)?),
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    let address = address.ok_or(Unreadable)?;
    let key = NeighbourKey { link: LinkIndex(header.word(4)), address };
    let reachability = match header.half(8) {
        0x01 => Some(Reachability::Incomplete),
        0x02 => Some(Reachability::Reachable),
        0x04 => Some(Reachability::Stale),
        0x08 => Some(Reachability::Delay),
        0x10 => Some(Reachability::Probe),
        0x20 => Some(Reachability::Failed),
        // Groups and the like, which Linux makes up itself and does not tell of.
        0x40 => mac.filter(|mac| mac.is_unicast() && *mac != Mac::ZERO).map(|_| Reachability::NoArp),
        0x80 => Some(Reachability::Permanent),
        _ => None,
    };
    let now = reachability.filter(|_| kind == RTM_NEWNEIGH).map(|reachability| Neighbour {
        mac,
        reachability,
        router: flags & NTF_ROUTER != 0,
    });
    Ok(Some(Event::Neighbour(NeighbourChange { key, now })))
}

fn object(kind: u16, body: &[u8]) -> Read {
    const NHA_ID: u16 = 1;
    const NHA_GROUP: u16 = 2;
    const NHA_BLACKHOLE: u16 = 4;
    const NHA_OIF: u16 = 5;
    const NHA_GATEWAY: u16 = 6;
    const NHA_ENCAP: u16 = 8;
    const NHA_FDB: u16 = 11;
    const ONLINK: u32 = 4;

    let header = Header::<8>::of(body)?;
    let family = header.byte(0);
    let mut number = None;
    let mut hop =
        Hop { link: None, via: None, weight: 1, onlink: header.word(4) & ONLINK != 0, encapsulated: false };
    let mut other = None;
    for attribute in header.attributes() {
        let Attribute { kind, value } = attribute?;
        match kind {
            NHA_ID => number = Some(word(value)?),
            NHA_GROUP => other = Some(Object::Group(members(value)?.into())),
            NHA_BLACKHOLE => other = Some(Object::Blackhole),
            NHA_OIF => hop.link = Some(LinkIndex(word(value)?)),
            NHA_GATEWAY => hop.via = Some(ip(family, value)?),
            NHA_ENCAP => hop.encapsulated = true,
            // For bridges' tables of stations, not for routes.
            NHA_FDB => return Ok(None),
            _ => {}
        }
    }
    let number = number.ok_or(Unreadable)?;
    Ok(Some(if kind == RTM_NEWNEXTHOP {
        Event::Object(number, other.unwrap_or(Object::One(hop)))
    } else {
        Event::ObjectGone(number)
    }))
}

/// Parses `struct nexthop_grp`: weight less one in a low byte and, since Linux 6.12, a high byte.
fn members(bytes: &[u8]) -> Result<Vec<Member>, Unreadable> {
    if bytes.len() % 8 != 0 {
        return Err(Unreadable);
    }
    let member = |entry: &[u8]| {
        let [a, b, c, d, low, high, ..] = *entry.first_chunk::<8>().ok_or(Unreadable)?;
        let weight = u16::from_le_bytes([low, high]).saturating_add(1);
        Ok(Member { object: u32::from_ne_bytes([a, b, c, d]), weight })
    };
    bytes.chunks_exact(8).map(member).collect()
}

/// Fixed part of a message, `N` bytes, and the attributes behind it.
struct Header<'a, const N: usize> {
    fixed: &'a [u8; N],
    rest: &'a [u8],
}

impl<'a, const N: usize> Header<'a, N> {
    fn of(body: &'a [u8]) -> Result<Header<'a, N>, Unreadable> {
        let (fixed, rest) = body.split_first_chunk().ok_or(Unreadable)?;
        Ok(Header { fixed, rest })
    }

    fn attributes(&self) -> impl Iterator<Item = Result<Attribute<'a>, Unreadable>> + use<'a, N> {
        attributes(self.rest)
    }

    fn byte(&self, at: usize) -> u8 {
        self.fixed.get(at).copied().unwrap_or(0)
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.byte(at), self.byte(at + 1), self.byte(at + 2), self.byte(at + 3)])
    }
}

/// Attribute of a message.
pub(crate) struct Attribute<'a> {
    /// Type, without flags.
    pub(crate) kind: u16,
    /// Value.
    pub(crate) value: &'a [u8],
}

/// Returns the attributes of a message, in order.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Unreadable>> {
    NlasIterator::new(bytes).map(|attribute| {
        let attribute = attribute.map_err(|_| Unreadable)?;
        let whole = attribute.into_inner();
        let value = whole.get(4..usize::from(attribute.length())).ok_or(Unreadable)?;
        Ok(Attribute { kind: attribute.kind(), value })
    })
}

fn word(value: &[u8]) -> Result<u32, Unreadable> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Unreadable)
}

fn ip(family: u8, value: &[u8]) -> Result<IpAddr, Unreadable> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).map(IpAddr::from).map_err(|_| Unreadable),
        AF_INET6 => <[u8; 16]>::try_from(value).map(IpAddr::from).map_err(|_| Unreadable),
        _ => Err(Unreadable),
    }
}

/// Returns a text that ends with its first zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or(&[])).into_owned()
}

#[cfg(test)]
mod tests;
