//! Announcements to neighbours of the outside addresses of translations that the gateway answers for on a link: when its port is
//! opened, and when there are others. Routers whose entries name a previous gateway then send here.

use std::collections::BTreeMap;

use dataplane::Tables;
use dataplane::tables::Address;
use ipnet::{IpAdd, IpSub};
use policy::model::AddressRange;
use wire::ethernet::Mac;

use super::port::Ports;
use super::worker::Workers;

/// Addresses of an interface that are announced at once, the lowest: each is a frame to everybody on the link. The
/// others are resolved on request.
const MOST: usize = 1_024;

/// Addresses that have been announced, by interface, and the link-layer address with which.
#[derive(Default)]
pub(super) struct Announcements(BTreeMap<String, (Mac, Vec<AddressRange>)>);

impl Announcements {
    /// Announces new addresses on the links of open ports.
    pub(super) fn announce(&mut self, tables: &Tables, ports: &Ports, workers: &Workers) {
        let mut announced = BTreeMap::new();
        for interface in tables.interfaces.iter().filter(|interface| !interface.answered.is_empty()) {
            let name = &interface.name;
            if !ports.is_up(name) {
                continue;
            }
            let now = (interface.mac, interface.answered.clone());
            if self.0.get(name) != Some(&now) {
                let known = self.0.get(name).filter(|known| known.0 == now.0);
                let known = known.map_or(&[][..], |known| &known.1);
                let addresses: Vec<Address> = fresh(&now.1, known).take(MOST).map(Address::from).collect();
                workers.announce(name, addresses);
            }
            announced.insert(name.clone(), now);
        }
        self.0 = announced;
    }
}

/// The addresses of ranges that are in none of the ranges known.
fn fresh<'a>(
    ranges: &'a [AddressRange],
    known: &'a [AddressRange],
) -> impl Iterator<Item = std::net::IpAddr> + 'a {
    let is_known =
        |address: std::net::IpAddr| known.iter().any(|range| range.first <= address && address <= range.last);
    // An IPv6 prefix has more than anybody could count through.
    ranges.iter().flat_map(first_of).filter(move |address| !is_known(*address))
}

/// The lowest addresses of a range.
fn first_of(range: &AddressRange) -> Vec<std::net::IpAddr> {
    use std::net::IpAddr;
    match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let count = (last.saturating_sub(first) as usize).min(MOST - 1);
            (0..=count as u32).map(|offset| first.saturating_add(offset).into()).collect()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let count = last.saturating_sub(first).min(MOST as u128 - 1);
            (0..=count).map(|offset| first.saturating_add(offset).into()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() }
    }

    #[test]
    fn what_is_new_is_announced_and_no_more_than_so_much() {
        let ranges = [range("203.0.113.8", "203.0.113.11"), range("2001:db8::", "2001:db8::ffff:ffff")];
        let known = [range("203.0.113.7", "203.0.113.9")];
        let found: Vec<String> = fresh(&ranges, &known).take(3).map(|address| address.to_string()).collect();
        assert_eq!(found, ["203.0.113.10", "203.0.113.11", "2001:db8::"]);
        assert_eq!(fresh(&ranges[1..], &[]).count(), MOST);
        assert_eq!(fresh(&ranges[..1], &ranges).count(), 0);
    }
}
