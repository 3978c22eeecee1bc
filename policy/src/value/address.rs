//! Addresses: of hosts, networks and links, and ranges of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use wire::siit::Prefix;

use super::{Complaint, Read, Text};
use crate::diagnostic::Code;
use crate::model::{
    AddressItem, AddressRange, ConnectionEnd, Mac, MacRange, MulticastExit, Server, ServerState, Vc,
};

/// An IP address.
pub(crate) const ADDRESS: Text<IpAddr> = Text { read: address, print: IpAddr::to_string };

/// An IPv4 address.
pub(crate) const ADDRESS4: Text<Ipv4Addr> = Text {
    read: |text| match address(text)? {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => {
            let message = format!("{text} is no IPv4 address");
            Err(Complaint::new(Code::BadAddress, message).hint("for example: \"203.0.113.1\""))
        }
    },
    print: Ipv4Addr::to_string,
};

/// An IP address and a TCP port.
pub(crate) const SOCKET_ADDRESS: Text<SocketAddr> =
    Text { read: socket_address, print: SocketAddr::to_string };

/// An address of the gateway with the prefix length of its network.
pub(crate) const INTERFACE_ADDRESS: Text<IpNet> = Text { read: interface_address, print: IpNet::to_string };

/// A prefix; that of one address without its length.
pub(crate) const PREFIX: Text<IpNet> = Text { read: prefix, print: prefix_text };

/// Prefix of addresses that IPv4 addresses are embedded in (RFC 6052).
pub(crate) const PREFIX6: Text<Prefix> = Text { read: prefix6, print: Prefix::to_string };

/// IP addresses: one, a prefix, or `first-last`.
pub(crate) const RANGE: Text<AddressRange> = Text { read: range, print: range_text };

/// IP addresses or `@set`.
pub(crate) const ADDRESS_ITEM: Text<AddressItem> = Text { read: address_item, print: address_item_text };

/// `@set`.
pub(crate) const SET: Text<String> = Text {
    read: |text| {
        text.strip_prefix('@').map(str::to_owned).ok_or_else(|| {
            let message = format!("\"{text}\" is not the name of a set");
            Complaint::new(Code::BadSet, message).hint(format!("write \"@{text}\""))
        })
    },
    print: |name| format!("@{name}"),
};

/// `address`, `v4:port` or `[v6]:port`.
pub(crate) const TARGET: Text<(IpAddr, Option<u16>)> = Text { read: target, print: target_text };

/// A server: a target, perhaps with `weight N` and `down`.
pub(crate) const SERVER: Text<Server> = Text { read: server, print: server_text };

/// An interface that multicast packets leave by: its name, perhaps with `threshold N`.
pub(crate) const MULTICAST_EXIT: Text<MulticastExit> =
    Text { read: multicast_exit, print: multicast_exit_text };

/// An Ethernet address.
pub(crate) const MAC: Text<Mac> = Text { read: mac, print: Mac::to_string };

/// A virtual channel of ATM: VPI/VCI.
pub(crate) const VC: Text<Vc> = Text {
    read: |text| {
        text.parse().map_err(|_| {
            let message = format!("\"{text}\" is no virtual channel");
            let hint = "write VPI/VCI as \"8/35\": 0 to 255, and 32 to 65535";
            Complaint::new(Code::BadChannel, message).hint(hint)
        })
    },
    print: Vc::to_string,
};

/// An end of a virtual connection: the interface that has the line, and VPI/VCI, or VPI alone.
pub(crate) const CONNECTION_END: Text<ConnectionEnd> = Text {
    read: |text| {
        let end = text.split_once(char::is_whitespace).and_then(|(line, connection)| {
            Some(ConnectionEnd { line: line.to_owned(), connection: connection.trim().parse().ok()? })
        });
        end.ok_or_else(|| {
            let message = format!("\"{text}\" is no end of a virtual connection");
            let hint = "write an interface and VPI/VCI, \"dsl 8/48\", or for a whole path its VPI, \"dsl 8\"";
            Complaint::new(Code::BadChannel, message).hint(hint)
        })
    },
    print: |end| format!("{} {}", end.line, end.connection),
};

/// An Ethernet address, or `first-last`.
pub(crate) const MAC_RANGE: Text<MacRange> = Text { read: mac_range, print: MacRange::to_string };

fn address(text: &str) -> Read<IpAddr> {
    text.parse().map_err(|_| {
        let complaint = Complaint::new(Code::BadAddress, format!("\"{text}\" is not an IP address"));
        complaint.hint(if text.contains('/') {
            "one address is wanted here, without a prefix length"
        } else {
            "write it as 192.0.2.1 or 2001:db8::1"
        })
    })
}

fn socket_address(text: &str) -> Read<SocketAddr> {
    text.parse().map_err(|_| {
        let message = format!("\"{text}\" is not an address with a port");
        Complaint::new(Code::BadAddress, message).hint("write it as 127.0.0.1:9478 or [::1]:9478")
    })
}

fn interface_address(text: &str) -> Read<IpNet> {
    text.parse().map_err(|_| {
        let complaint =
            Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address with a prefix length"));
        match text.parse::<IpAddr>() {
            Ok(address) => {
                let length = if address.is_ipv4() { 24 } else { 64 };
                complaint.hint(format!("add the length of the network's prefix: {address}/{length}"))
            }
            Err(_) => complaint.hint("write it as 192.0.2.1/24 or 2001:db8::1/64"),
        }
    })
}

fn prefix6(text: &str) -> Read<Prefix> {
    let refused = |message: String| {
        let hint = "write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, as \"64:ff9b::/96\" (RFC 6052)";
        Complaint::new(Code::BadNat64Prefix, message).hint(hint)
    };
    match prefix(text)? {
        IpNet::V6(net) => Prefix::new(net.addr(), net.prefix_len())
            .map_err(|problem| refused(format!("\"{text}\" does not do: {problem}"))),
        IpNet::V4(_) => Err(refused(format!("\"{text}\" is not an IPv6 prefix"))),
    }
}

fn prefix(text: &str) -> Read<IpNet> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let net: IpNet = text.parse().map_err(|_| {
        Complaint::new(Code::BadAddress, format!("\"{text}\" is not a prefix"))
            .hint("write it as 192.0.2.0/24 or 2001:db8::/32")
    })?;
    if net.trunc() != net {
        return Err(Complaint::new(
            Code::BadAddress,
            format!("\"{text}\" has bits set beyond its prefix length"),
        )
        .hint(format!(
            "write \"{}\" for the network, or \"{}\" for the host",
            net.trunc(),
            net.addr()
        )));
    }
    Ok(net)
}

fn prefix_text(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

pub(crate) fn range(text: &str) -> Read<AddressRange> {
    if text.starts_with('@') {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\": a set cannot stand here"))
            .hint("write the addresses themselves"));
    }
    let Some((first, last)) = text.split_once('-') else {
        return prefix(text).map(AddressRange::from).map_err(|complaint| match text.contains('/') {
            true => complaint,
            false => Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address"))
                .hint("write an address, a prefix such as 192.0.2.0/24, a range such as 192.0.2.1-192.0.2.9, or @set"),
        });
    };
    let (first, last) = (address(first.trim())?, address(last.trim())?);
    if first.is_ipv4() != last.is_ipv4() {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\" mixes IPv4 and IPv6"))
            .hint("a range is of one family; write two"));
    }
    if first > last {
        return Err(Complaint::new(Code::BadAddress, format!("\"{text}\" runs backwards"))
            .hint(format!("write \"{last}-{first}\"")));
    }
    Ok(AddressRange { first, last })
}

/// Formats a range as one address, as a prefix if it is one, or as `first-last`.
fn range_text(range: &AddressRange) -> String {
    match range.network() {
        Some(net) => prefix_text(&net),
        None => format!("{}-{}", range.first, range.last),
    }
}

fn address_item(text: &str) -> Read<AddressItem> {
    match text.strip_prefix('@') {
        Some(set) => Ok(AddressItem::Set(set.to_owned())),
        None => range(text).map(AddressItem::Range),
    }
}

/// Formats addresses as written in the policy.
pub(crate) fn address_item_text(item: &AddressItem) -> String {
    match item {
        AddressItem::Range(range) => range_text(range),
        AddressItem::Set(set) => format!("@{set}"),
    }
}

fn target(text: &str) -> Read<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse() {
        return Ok((address, None));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok((socket.ip(), Some(socket.port())));
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Some(Ok(address)) = inner.map(str::parse::<Ipv6Addr>) {
        return Ok((address.into(), None));
    }
    Err(Complaint::new(Code::BadAddress, format!("\"{text}\" is not an address with or without a port"))
        .hint("write it as 192.0.2.1, 192.0.2.1:8443, 2001:db8::1 or [2001:db8::1]:8443"))
}

fn target_text((address, port): &(IpAddr, Option<u16>)) -> String {
    port.map_or_else(|| address.to_string(), |port| SocketAddr::new(*address, port).to_string())
}

fn multicast_exit(text: &str) -> Read<MulticastExit> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (interface, threshold) = match words[..] {
        [interface] => (interface, Some(MulticastExit::THRESHOLD)),
        [interface, "threshold", number] => (interface, number.parse().ok().filter(|number| *number > 0)),
        _ => ("", None),
    };
    let threshold = threshold.ok_or_else(|| {
        let message = format!("\"{text}\" is no interface with a TTL threshold");
        Complaint::new(config::Code::BadNumber, message)
            .hint("write \"lan\", or \"lan threshold 16\" with a number from 1 to 255")
    })?;
    Ok(MulticastExit { interface: interface.to_owned(), threshold })
}

fn multicast_exit_text(exit: &MulticastExit) -> String {
    match exit.threshold {
        MulticastExit::THRESHOLD => exit.interface.clone(),
        threshold => format!("{} threshold {threshold}", exit.interface),
    }
}

fn server(text: &str) -> Read<Server> {
    let wrong = || {
        Complaint::new(Code::BadAddress, format!("\"{text}\" is no server"))
            .hint("write \"192.168.1.20:8080\", \"192.168.1.20:8080 weight 2\" (1 to 255), or with \"down\" at the end")
    };
    let mut words = text.split_whitespace();
    let (address, port) = target(words.next().unwrap_or_default())?;
    let mut server = Server { address, port, weight: 1, state: ServerState::Up };
    let mut next = words.next();
    if next == Some("weight") {
        let weight = words.next().and_then(|word| word.parse().ok()).filter(|weight| *weight > 0);
        server.weight = weight.ok_or_else(wrong)?;
        next = words.next();
    }
    if next == Some("down") {
        server.state = ServerState::Down;
        next = words.next();
    }
    if next.is_some() { Err(wrong()) } else { Ok(server) }
}

pub(crate) fn server_text(server: &Server) -> String {
    let mut text = server.target();
    if server.weight != 1 {
        text.push_str(&format!(" weight {}", server.weight));
    }
    if server.state == ServerState::Down {
        text.push_str(" down");
    }
    text
}

fn mac(text: &str) -> Read<Mac> {
    text.parse().map_err(|_| {
        Complaint::new(Code::BadMac, format!("\"{text}\" is not an Ethernet address"))
            .hint("write it as 02:00:5e:10:00:01")
    })
}

/// Reads an address or a range. An address may have dashes between its bytes, too: a range then has eleven.
fn mac_range(text: &str) -> Read<MacRange> {
    if let Ok(mac) = text.parse() {
        return Ok(MacRange::single(mac));
    }
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let Some(middle) = dashes.get(dashes.len() / 2).copied().filter(|_| dashes.len() % 2 == 1) else {
        return mac(text).map(MacRange::single);
    };
    let range = MacRange { first: mac(text[..middle].trim())?, last: mac(text[middle + 1..].trim())? };
    if range.first > range.last {
        return Err(Complaint::new(Code::BadMac, format!("\"{text}\" runs backwards"))
            .hint(format!("write \"{}-{}\"", range.last, range.first)));
    }
    Ok(range)
}
