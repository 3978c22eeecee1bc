//! Reference state, from the output of `ip -j` in the terms of `linux::State`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use gateway::linux::State;
use gateway::linux::interface::{Condition, LinkIndex};
use gateway::linux::route::{Hop, Member, Object, Target};
use serde_json::Value;

use crate::netns::ip_json;

/// Compares a state with the output of `ip`.
pub(crate) fn differs(state: &State) -> Option<String> {
    let seen = words_of(state);
    let said = words_of_ip();
    let missing: Vec<_> = said.difference(&seen).take(5).collect();
    let wrong: Vec<_> = seen.difference(&said).take(5).collect();
    (!missing.is_empty() || !wrong.is_empty())
        .then(|| format!("ip has, the state lacks: {missing:#?}\nthe state has, ip does not: {wrong:#?}"))
}

fn words_of(state: &State) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let name = |index: LinkIndex| state.links.get(&index).map_or("?", |link| link.name.as_str());
    for (index, link) in state.links.iter() {
        let mac = link.mac.map_or("none".to_owned(), |mac| mac.to_string());
        let master = link.master.map_or("none", name);
        let up = link.condition != Condition::Down;
        let ready = link.condition == Condition::Running;
        words.insert(format!(
            "link {} {} {mac} mtu {} up {up} ready {ready} kind [{}] master {master}",
            index.0, link.name, link.mtu, link.kind
        ));
    }
    for key in state.addresses.keys() {
        let peer = key.peer.map_or(key.net.addr(), |peer| peer);
        words.insert(format!(
            "address {} {}/{} peer {peer}",
            name(key.link),
            key.net.addr(),
            key.net.prefix_len()
        ));
    }
    for (number, object) in state.objects.iter() {
        let is = match object {
            Object::One(hop) => hops(std::slice::from_ref(hop), &name),
            Object::Group(members) => {
                let member = |member: &Member| format!("{} weight {}", member.object, member.weight);
                members.iter().map(member).collect::<Vec<_>>().join(", ")
            }
            Object::Blackhole => "blackhole".to_owned(),
        };
        words.insert(format!("nexthop {number} {is}"));
    }
    for (destination, routes) in state.routes.iter() {
        for route in routes {
            let to = match &route.target {
                Target::One(_) | Target::Many(_) => hops(route.target.hops(), &name),
                Target::Object(number) => format!("nhid {number}"),
                Target::Blackhole => "blackhole".to_owned(),
                Target::Unreachable => "unreachable".to_owned(),
                Target::Prohibit => "prohibit".to_owned(),
                Target::Other(kind) => format!("type {kind}"),
            };
            words.insert(format!(
                "route {destination} metric {} tos {} proto {} {to}",
                route.metric, route.tos, route.protocol
            ));
        }
    }
    for (key, neighbour) in state.neighbours.iter() {
        let mac = neighbour.mac.map_or("none".to_owned(), |mac| mac.to_string());
        // Linux passes between these without a word.
        let is = format!("{:?}", neighbour.reachability).to_uppercase().replace("DELAY", "STALE");
        words.insert(format!(
            "neighbour {} {} {mac} {is} router {}",
            name(key.link),
            key.address,
            neighbour.router
        ));
    }
    words
}

fn hops<'a>(hops: &[Hop], name: &impl Fn(LinkIndex) -> &'a str) -> String {
    let mut words: Vec<String> = hops
        .iter()
        .map(|hop| {
            let via = hop.via.map_or("link".to_owned(), |via| via.to_string());
            let dev = hop.link.map_or("none", name);
            format!("via {via} dev {dev} weight {} onlink {}", hop.weight, hop.onlink)
        })
        .collect();
    words.sort();
    words.join(", ")
}

fn words_of_ip() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for link in ip_json("-d link show") {
        let flags = strings(&link["flags"]);
        let is_ethernet = text(&link["address"]).len() == 17;
        words.insert(format!(
            "link {} {} {} mtu {} up {} ready {} kind [{}] master {}",
            link["ifindex"],
            text(&link["ifname"]),
            if is_ethernet { text(&link["address"]) } else { "none".to_owned() },
            link["mtu"],
            flags.contains("UP"),
            // ip shows no IFF_RUNNING, only its absence with IFF_UP.
            flags.contains("UP") && !flags.contains("NO-CARRIER"),
            link["linkinfo"].get("info_kind").map_or(String::new(), text),
            link.get("master").map_or("none".to_owned(), text),
        ));
    }
    for link in ip_json("-d addr show") {
        for address in link["addr_info"].as_array().into_iter().flatten() {
            if address.as_object().is_none_or(|fields| fields.is_empty()) {
                continue;
            }
            let local = text(&address["local"]);
            let peer = address.get("address").map_or(local.clone(), text);
            words.insert(format!(
                "address {} {local}/{} peer {peer}",
                text(&link["ifname"]),
                address["prefixlen"]
            ));
        }
    }
    let protocols: BTreeMap<&str, u8> =
        [("kernel", 2), ("boot", 3), ("static", 4), ("bird", 12), ("ra", 9), ("dhcp", 16)].into();
    for version in ["-4", "-6"] {
        for route in ip_json(&format!("-d {version} route show table main")) {
            words.insert(route_of_ip(&route, version, &protocols));
        }
    }
    for object in ip_json("nexthop show") {
        let member = |member: &Value| {
            let weight = member.get("weight").map_or(1, |weight| weight.as_u64().unwrap());
            format!("{} weight {weight}", member["id"])
        };
        let is = match object.get("group").and_then(Value::as_array) {
            Some(members) => members.iter().map(member).collect::<Vec<_>>().join(", "),
            None if object.get("blackhole").is_some() => "blackhole".to_owned(),
            None => hop_of_ip(&object),
        };
        words.insert(format!("nexthop {} {is}", object["id"]));
    }
    for neighbour in ip_json("neigh show nud all") {
        let is = strings(&neighbour["state"]).into_iter().next().unwrap_or_default();
        if is == "NOARP" || is == "NONE" {
            continue;
        }
        words.insert(format!(
            "neighbour {} {} {} {} router {}",
            text(&neighbour["dev"]),
            text(&neighbour["dst"]),
            neighbour.get("lladdr").map_or("none".to_owned(), text),
            is.replace("DELAY", "STALE"),
            neighbour.get("router").is_some()
        ));
    }
    words
}

fn route_of_ip(route: &Value, version: &str, protocols: &BTreeMap<&str, u8>) -> String {
    let destination = match text(&route["dst"]).as_str() {
        "default" if version == "-4" => "0.0.0.0/0".to_owned(),
        "default" => "::/0".to_owned(),
        net if net.contains('/') => net.to_owned(),
        host if version == "-4" => format!("{host}/32"),
        host => format!("{host}/128"),
    };
    let protocol = text(&route["protocol"]);
    let protocol = protocols.get(protocol.as_str()).copied().unwrap_or_else(|| protocol.parse().unwrap());
    let to = match (text(&route["type"]).as_str(), route.get("nhid"), route.get("nexthops")) {
        (_, Some(number), _) => format!("nhid {number}"),
        ("unicast", _, Some(several)) => {
            let mut words: Vec<String> = several.as_array().unwrap().iter().map(hop_of_ip).collect();
            words.sort();
            words.join(", ")
        }
        ("unicast", _, None) => hop_of_ip(route),
        (other, _, _) => other.to_owned(),
    };
    format!(
        "route {destination} metric {} tos {} proto {protocol} {to}",
        route.get("metric").map_or(0, |metric| metric.as_u64().unwrap()),
        route.get("tos").map_or(0, tos)
    )
}

/// Next hop from the output of `ip -j`.
fn hop_of_ip(hop: &Value) -> String {
    let via = match (hop.get("gateway"), hop.get("via")) {
        (Some(gateway), _) => text(gateway),
        (_, Some(via)) => text(&via["host"]),
        _ => "link".to_owned(),
    };
    let weight = hop.get("weight").map_or(1, |weight| weight.as_u64().unwrap());
    let onlink = strings(hop.get("flags").unwrap_or(&Value::Null)).contains("onlink");
    let dev = hop.get("dev").map_or("none".to_owned(), text);
    format!("via {via} dev {dev} weight {weight} onlink {onlink}")
}

fn tos(value: &Value) -> u8 {
    let word = text(value);
    word.strip_prefix("0x").map_or_else(|| word.parse().unwrap(), |hex| u8::from_str_radix(hex, 16).unwrap())
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// Parses an address, for tests.
pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
