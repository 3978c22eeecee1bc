//! Ends of a packet, as rules see them: by which flows share a queue fairly, and subscribers have queues of their own.

use policy::model::{Isolation, MeterScope};

use super::dropper::Random;
use super::fq::FlowHash;
use crate::flow::Key;
use crate::limiter;
use crate::tables::Address;

/// Addresses of a packet, before source NAT and after destination NAT; protocol and ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// Source.
    pub source: Address,
    /// Destination.
    pub destination: Address,
    /// Ports and protocol, in any arrangement.
    pub ports: u64,
}

impl Ends {
    /// Ends of which the source alone is known.
    pub fn of_source(source: Address) -> Ends {
        Ends { source, ..Ends::default() }
    }

    /// Hashes of the flow and the host, by a secret key: nobody chooses whom he shares a queue with.
    pub(super) fn hash(&self, isolate: Isolation, seed: u64) -> FlowHash {
        let (source, destination) = (of(self.source, seed), of(self.destination, !seed));
        let flow = mix(source ^ destination.rotate_left(32), self.ports ^ seed);
        let host = match isolate {
            Isolation::Source => source,
            Isolation::Destination => destination,
            Isolation::Flow => 0,
        };
        FlowHash { flow: flow as u32, host: host as u32 }
    }

    /// Key of the subscriber, and its hash.
    pub(super) fn subscriber(&self, per: MeterScope, seed: u64) -> (Key, u64) {
        let by_address =
            |address: Address| (limiter::subject(address, limiter::ALL_RULES), of(address, seed));
        match per {
            MeterScope::Source(v4, v6) => by_address(self.source.prefix(v4, v6)),
            MeterScope::Destination(v4, v6) => by_address(self.destination.prefix(v4, v6)),
            MeterScope::All | MeterScope::Flow => {
                // Two flows of one hash of 96 bits share an instance.
                let low = mix(of(self.source, seed), self.ports);
                let high = mix(of(self.destination, seed), !self.ports);
                let bits = u128::from(low) << 32 | u128::from(high as u32);
                by_address(Address::v6(bits))
            }
        }
    }
}

fn of(address: Address, seed: u64) -> u64 {
    mix(mix(address.bits as u64 ^ seed, (address.bits >> 64) as u64), address.v6.into())
}

fn mix(one: u64, other: u64) -> u64 {
    Random(one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other).next()
}
