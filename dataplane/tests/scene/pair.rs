//! One gateway, the two ways that frames go through it, which must not differ; and packets to try it with.

use dataplane::hop::Wanted;
use dataplane::replay::Way;
use dataplane::tables::LOCAL;
use dataplane::{Shard, Verdict};
use wire::build::{self, Packet, Tcp};
use wire::ethernet::Mac;
use wire::tcp::Flags;
use wire::{Nanos, PortId};

use super::{Arrival, Gateway, Out, START, check};

/// Gateways of both ways, and the clock, in milliseconds.
pub struct Pair {
    ways: [Gateway; 2],
    pub now: u64,
    number: u32,
}

impl Pair {
    /// Neighbours are assumed.
    pub fn assumed(text: &str) -> Pair {
        Pair::of([Way::Run, Way::Step].map(|way| Gateway::new(text, way)))
    }

    /// Gateways get neighbour updates.
    pub fn resolved_by_host(text: &str) -> Pair {
        Pair::of([Way::Run, Way::Step].map(|way| Gateway::resolved_by_host(text, way)))
    }

    pub fn of(ways: [Gateway; 2]) -> Pair {
        Pair { ways, now: 0, number: 0 }
    }

    pub fn run(&mut self) -> &mut Gateway {
        &mut self.ways[0]
    }

    pub fn shard(&self) -> &Shard {
        &self.ways[0].shard
    }

    pub fn at(&self) -> Nanos {
        START + Nanos::from_millis(self.now)
    }

    /// Receives a packet, a millisecond after the previous one, and returns the output.
    pub fn receive(&mut self, port: PortId, packet: &Packet<'_>) -> Out {
        self.receive_all(&[(port, packet.clone())])
    }

    /// Receives packets that arrive together, and returns the output.
    pub fn receive_all(&mut self, packets: &[(PortId, Packet<'_>)]) -> Out {
        self.now += 1;
        let at = self.at();
        let arrival = |(port, packet): &(PortId, Packet<'_>)| {
            self.number += 1;
            Arrival { port: *port, at, number: self.number, bytes: packet.to_vec() }
        };
        let arrivals: Vec<Arrival> = packets.iter().map(arrival).collect();
        self.do_both(|gateway| gateway.receive(&arrivals))
    }

    /// Does the same to both, and returns the output since.
    pub fn do_both(&mut self, act: impl FnMut(&mut Gateway)) -> Out {
        self.ways.iter_mut().for_each(act);
        self.ways.iter().for_each(check::gateway_at_any_moment);
        let [out, also] = self.ways.each_mut().map(|gateway| gateway.out(usize::MAX));
        assert_eq!(out, also);
        out
    }

    /// Returns the neighbours wanted since the last call.
    pub fn wanted(&mut self) -> Vec<Wanted> {
        let of = |gateway: &mut Gateway| std::iter::from_fn(|| gateway.shard.hops.wanted()).collect();
        let [wanted, also]: [Vec<Wanted>; 2] = self.ways.each_mut().map(of);
        assert_eq!(wanted, also);
        wanted
    }

    /// Updates a neighbour, and releases the frames pending for it.
    pub fn learn(&mut self, wanted: Wanted, mac: Mac) -> Out {
        self.do_both(|gateway| gateway.learn(wanted, mac));
        self.tend(0)
    }

    /// So many milliseconds pass.
    pub fn tend(&mut self, millis: u64) -> Out {
        self.now += millis;
        let at = self.at();
        let out = self.do_both(|gateway| gateway.tend(at));
        self.ways.iter().for_each(check::gateway);
        out
    }

    /// Returns the bytes of the forwarded packet.
    pub fn forwarded(&mut self, port: PortId, packet: &Packet<'_>) -> Vec<u8> {
        let out = self.receive(port, packet);
        let [sent] = out.sent.as_slice() else { panic!("{out:?}") };
        assert_eq!(sent.verdict, Some(Verdict::Forwarded));
        sent.bytes.clone()
    }

    /// The fate of a packet that ends.
    pub fn fate(&mut self, port: PortId, packet: &Packet<'_>) -> Verdict {
        let out = self.receive(port, packet);
        let [(_, fate)] = out.ended.as_slice() else { panic!("{out:?}") };
        *fate
    }

    /// Sends a packet of the gateway itself by the interface of that number, and returns the output.
    pub fn originate(&mut self, interface: u32, packet: &Packet<'_>) -> Out {
        self.number = interface - 1;
        self.receive(LOCAL, packet)
    }

    /// Receives a packet that has to wait.
    pub fn waits(&mut self, port: PortId, packet: &Packet<'_>) {
        let before = self.shard().hops.held();
        let out = self.receive(port, packet);
        assert_eq!(out, Out::default());
        assert_eq!(self.shard().hops.held(), before + 1);
    }
}

pub fn link() -> Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))
}

pub fn v4(from: [u8; 4], to: [u8; 4]) -> Packet<'static> {
    link().ipv4(from.into(), to.into())
}

pub fn v6(from: &str, to: &str) -> Packet<'static> {
    link().ipv6(from.parse().unwrap(), to.parse().unwrap())
}

pub fn tcp(packet: Packet<'static>, ports: [u16; 2], seq: u32, ack: u32, flags: Flags) -> Packet<'static> {
    packet.tcp(Tcp { sport: ports[0], dport: ports[1], seq, ack, flags, window: 1_000, ..Tcp::default() })
}
