//! Rules of mixed shape for the pipeline, and packets that meet them.
//!
//! A third each is like those of an access list, a firewall and a Linux router; all accept. In a stateless policy each packet
//! meets them, so packets are made for them: TCP and UDP between addresses that hosts have.

use std::net::Ipv4Addr;

use lookup::classify::generate::{self, Filter, Like, Locality};
use lookup::classify::{Header, Pattern};
use policy::Policy;
use policy::import;
use wire::PortId;
use wire::build::{self, Tcp};
use wire::ethernet::Mac;

use super::{BenchError, LEN, Load};

/// The seed of rules and packets.
const SEED: u64 = 1;

/// Rules of three kinds, the most specific of all first.
fn filters(count: u32) -> Vec<Filter> {
    let kinds = [Like::Acl, Like::Fw, Like::Ipc];
    let share = |place: u32| (count as usize + 2 - place as usize) / kinds.len();
    let mut all: Vec<Filter> =
        (0..).zip(kinds).flat_map(|(place, like)| generate::rules(like, share(place), SEED)).collect();
    // Each of a kind is in this order already.
    all.sort_by_key(|filter| std::cmp::Reverse(filter.specificity()));
    all
}

/// Puts `count` rules before those of the policy.
pub(super) fn add(policy: &mut Policy, count: u32) -> Result<(), BenchError> {
    let text: String = filters(count).iter().map(|filter| format!("{filter}\n")).collect();
    let imported =
        import::find("classbench").and_then(|importer| importer.import(text.as_bytes(), None).ok());
    let rules =
        imported.ok_or_else(|| BenchError::Policy("rules cannot be imported".to_owned()))?.policy.rules;
    policy.rules.splice(0..0, rules);
    Ok(())
}

/// `count` packets for so many rules; fewer where rules are so few that hardly any is about TCP or UDP.
pub(super) fn packets(rules: u32, count: u32) -> Vec<Load> {
    let patterns: Vec<Pattern> = filters(rules).iter().map(Filter::pattern).collect();
    let mut all = Vec::with_capacity(count as usize);
    for seed in SEED..SEED + MOST_TRACES {
        let aimed = generate::trace(&patterns, count as usize, Locality::NONE, seed);
        all.extend(aimed.iter().filter_map(|aimed| packet(&aimed.header)));
        if all.len() >= count as usize {
            break;
        }
    }
    all.truncate(count as usize);
    all
}

/// Number of traces that are drawn for packets.
const MOST_TRACES: u64 = 20;

/// The packet that shows this, where a router would forward it.
fn packet(header: &Header) -> Option<Load> {
    let (source, destination) = (host(header.source)?, host(header.destination)?);
    if source == destination {
        // Nobody writes to himself by way of a router; the policy's check of sources says so.
        return None;
    }
    let (udp, tcp) = ([0x5a; LEN - 42], [0x5a; LEN - 54]);
    let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1])).ipv4(source, destination);
    let packet = match header.protocol {
        17 => packet.udp(header.sport, header.dport).payload(&udp),
        6 => packet
            .tcp(Tcp {
                sport: header.sport,
                dport: header.dport,
                flags: wire::tcp::Flags(header.tcp_flags),
                ..Tcp::default()
            })
            .payload(&tcp),
        _ => return None,
    };
    let mut bytes = [0; LEN];
    packet.write(&mut bytes).ok()?;
    Some(Load { bytes, ingress: PortId(0) })
}

/// An address that a host on the internet can have.
fn host(address: u128) -> Option<Ipv4Addr> {
    let address = Ipv4Addr::from_bits(address as u32);
    let [first, second, ..] = address.octets();
    let is_ours = first == 10 || (first, second) == (203, 0);
    let is_none = first == 0 || first >= 224 || address.is_loopback() || address.is_link_local();
    (!is_ours && !is_none).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_asked_for() {
        for count in [1, 2, 3, 100, 1_000] {
            assert_eq!(filters(count).len(), count as usize);
        }
        // The one rule may be about ICMP.
        assert!(packets(1, 10).len() <= 10);
        let load = packets(100, 500);
        assert_eq!(load.len(), 500);
        let mut different: Vec<_> = load.iter().map(|load| load.bytes).collect();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 400, "{} packets differ", different.len());
    }
}
