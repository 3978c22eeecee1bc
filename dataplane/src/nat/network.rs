//! Translation of the addresses of one network to those of another of the same size, one by one: in order, or as NPTv6 does (RFC 6296), which
//! leaves all checksums as they are.

use ipnet::IpNet;
use lookup::classify::AddressSpan;
use wire::checksum::Delta;

use crate::tables::Address;

/// Two networks of one size, and the assignment of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPair {
    inside: Address,
    outside: Address,
    /// Bits that are host part.
    hosts: u128,
    assignment: Assignment,
}

/// Assignment of the addresses of two networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assignment {
    /// The host parts are the same.
    Same,
    /// One word of 16 bits makes up for the difference of the prefixes.
    Neutral {
        /// Sum of the inside prefix less that of the outside one, in one's complement.
        adjustment: u16,
        /// The word is that of the subnet, bits 48 to 63, and else the first word behind them that is not 0xffff.
        is_of_subnet: bool,
    },
}

impl NetworkPair {
    /// Pairs two networks of one family and one length, the host parts the same.
    pub fn in_order(inside: IpNet, outside: IpNet) -> NetworkPair {
        let width = if outside.addr().is_ipv4() { 32 } else { 128 };
        let hosts = match width - u32::from(outside.prefix_len()) {
            128 => u128::MAX,
            bits => (1 << bits) - 1,
        };
        let (inside, outside) = (inside.network().into(), outside.network().into());
        NetworkPair { inside, outside, hosts, assignment: Assignment::Same }
    }

    /// Pairs two IPv6 networks of one length up to 64 bits, with addresses that have the same sum (RFC 6296, sections 3.1 to 3.5).
    pub fn neutral(inside: IpNet, outside: IpNet) -> NetworkPair {
        let pair = NetworkPair::in_order(inside, outside);
        let adjustment = Delta::NONE.change128(pair.outside.bits, pair.inside.bits).to_bits();
        let is_of_subnet = outside.prefix_len() <= 48;
        NetworkPair { assignment: Assignment::Neutral { adjustment, is_of_subnet }, ..pair }
    }

    /// Outside address of an inside one. `None` where there is none: all words of an interface identifier are 0xffff (RFC 6296,
    /// section 3.5).
    pub fn outward(&self, address: Address) -> Option<Address> {
        let Assignment::Neutral { adjustment, is_of_subnet } = self.assignment else {
            return Some(self.in_network(self.outside, address));
        };
        adjusted(self.in_network(self.outside, address), adjustment, is_of_subnet)
    }

    /// Inside address of an outside one, as [`NetworkPair::outward`].
    pub fn inward(&self, address: Address) -> Option<Address> {
        let Assignment::Neutral { adjustment, is_of_subnet } = self.assignment else {
            return Some(self.in_network(self.inside, address));
        };
        // One's complement: the negative of a number is its complement.
        adjusted(self.in_network(self.inside, address), !adjustment, is_of_subnet)
    }

    /// Addresses of the inside network.
    pub fn inside(&self) -> AddressSpan {
        self.span(self.inside)
    }

    /// Addresses of the outside network.
    pub fn outside(&self) -> AddressSpan {
        self.span(self.outside)
    }

    /// True if `address` is one of the outside network.
    pub fn shows(&self, address: Address) -> bool {
        address.v6 == self.outside.v6 && address.bits & !self.hosts == self.outside.bits
    }

    /// Instructions to translate an address.
    pub(crate) fn instructions(&self) -> u32 {
        match self.assignment {
            // A difference and a sum of two words each; of IPv6 two more of both.
            Assignment::Same => 8,
            // And the word, found and compared, 8; the sum with its carry, 4; the zero that stands for 0xffff, 2.
            Assignment::Neutral { .. } => 22,
        }
    }

    fn span(&self, network: Address) -> AddressSpan {
        AddressSpan { v6: network.v6, first: network.bits, last: network.bits | self.hosts }
    }

    fn in_network(&self, network: Address, address: Address) -> Address {
        Address { bits: network.bits | address.bits & self.hosts, v6: network.v6 }
    }
}

/// Adds `adjustment` to the word of `address` that takes it. The word has no bit of the prefix.
fn adjusted(mut address: Address, adjustment: u16, is_of_subnet: bool) -> Option<Address> {
    let word = |place: u32| (address.bits >> (112 - place * 16)) as u16;
    let place = if is_of_subnet { 3 } else { (4..8).find(|place| word(*place) != 0xffff)? };
    let shift = 112 - place * 16;
    let sum = u32::from(word(place)) + u32::from(adjustment);
    let new = match (sum & 0xffff) + (sum >> 16) {
        0xffff => 0,
        new => new,
    };
    address.bits = address.bits & !(0xffff << shift) | u128::from(new) << shift;
    Some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};
    use wire::checksum::Sum;

    use super::*;

    fn pair(inside: &str, outside: &str) -> NetworkPair {
        NetworkPair::neutral(inside.parse().unwrap(), outside.parse().unwrap())
    }

    fn address(text: &str) -> Address {
        text.parse::<std::net::IpAddr>().unwrap().into()
    }

    /// The examples of RFC 6296, section 3 and appendix B.
    #[test]
    fn rfc_6296_examples() {
        let pair = pair("fd01:203:405::/48", "2001:db8:1::/48");
        let (inside, outside) = (address("fd01:203:405:1::1234"), address("2001:db8:1:d550::1234"));
        assert_eq!((pair.outward(inside), pair.inward(outside)), (Some(outside), Some(inside)));
    }

    #[test]
    fn longer_prefixes_adjust_the_interface_identifier() {
        let pair = pair("fd01:203:405:1::/64", "2001:db8:1:2::/64");
        let inside = address("fd01:203:405:1::1234");
        let outside = pair.outward(inside).unwrap();
        // fd01 + 0203 + 0405 + 0001 less 2001 + 0db8 + 0001 + 0002.
        assert_eq!(outside, address("2001:db8:1:2:d54e::1234"));
        assert_eq!(pair.inward(outside), Some(inside));
        // The first word is left as it is where it is 0xffff, and there is none in this address.
        let skipped = pair.outward(address("fd01:203:405:1:ffff:1::")).unwrap();
        assert_eq!(skipped, address("2001:db8:1:2:ffff:d54f::"));
        assert_eq!(pair.outward(address("fd01:203:405:1:ffff:ffff:ffff:ffff")), None);
    }

    proptest! {
        #[test]
        fn sums_stay_and_addresses_come_back(
            inside in any::<u128>(), outside in any::<u128>(), host in any::<u128>(), length in 1..=64_u8,
        ) {
            let net = |bits: u128| IpNet::new(std::net::Ipv6Addr::from_bits(bits).into(), length).unwrap().trunc();
            let pair = NetworkPair::neutral(net(inside), net(outside));
            let within = Address { bits: pair.inside.bits | host & pair.hosts, v6: true };
            // Two values of the adjusted word are one number in one's complement.
            prop_assume!(length > 48 || (within.bits >> 64) as u16 != 0xffff);
            let Some(shown) = pair.outward(within) else {
                prop_assert_eq!(within.bits as u64, u64::MAX);
                return Ok(());
            };
            let sum = |address: Address| Sum::of(&address.bits.to_be_bytes()).fold();
            prop_assert_eq!(sum(shown) % 0xffff, sum(within) % 0xffff);
            prop_assert!(pair.shows(shown));
            prop_assert_eq!(pair.inward(shown), Some(within));
        }
    }
}
