//! Regressions found by properties and fuzzing, each in the smallest scene that shows it.

use dataplane::Verdict;
use dataplane::replay::Way;
use wire::ethernet::Mac;
use wire::{PortId, build, ipv4, udp};

use crate::scene::{Arrival, Gateway, START, check};

const HOME: &str = r#"
    [interface.lan]
    zone = "lan"
    addresses = ["192.168.1.1/24"]
    [interface.wan]
    zone = "wan"
    addresses = ["203.0.113.2/24"]
    [default]
    "lan > wan" = "accept"
    "wan > lan" = "accept"
    [[route]]
    to = "0.0.0.0/0"
    via = "203.0.113.1"
    [[nat]]
    name = "out"
    kind = "masquerade"
    from = "lan"
    to = "wan"
"#;
const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

fn link() -> build::Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 8]))
}

fn at(port: PortId, number: u32, packet: &build::Packet<'_>) -> Arrival {
    Arrival { port, at: START, number, bytes: packet.to_vec() }
}

/// A packet from outside that is let in by a mapping may take the place of the flow that holds the mapping.
#[test]
fn the_mapping_that_lets_a_packet_in_outlives_the_flow_that_makes_room() {
    for way in [Way::Run, Way::Step] {
        let policy = format!("{HOME}[limit]\nflows = 1\nwhen-full = \"evict-idle\"\n");
        let mut gateway = Gateway::new(&policy, way);
        let (inside, server) = ("192.168.1.5".parse().unwrap(), "198.51.100.1".parse().unwrap());
        gateway.receive(&[at(LAN, 1, &link().ipv4(inside, server).udp(5_000, 53))]);
        let out = gateway.out(9);
        let packet = ipv4::parse(&out.sent[0].bytes[14..]).unwrap();
        let (outside, port) = (packet.header.src(), udp::Header::of(packet.payload).unwrap().sport());
        check::gateway(&gateway);

        let other = "198.51.100.2".parse().unwrap();
        gateway.receive(&[at(WAN, 2, &link().ipv4(other, outside).udp(77, port))]);
        let out = gateway.out(9);
        assert_eq!(out.sent[0].verdict, Some(Verdict::Forwarded));
        let packet = ipv4::parse(&out.sent[0].bytes[14..]).unwrap();
        assert_eq!((packet.header.dst(), udp::Header::of(packet.payload).unwrap().dport()), (inside, 5_000));
        assert_eq!((gateway.shard.flows.len(), gateway.shard.mappings.len()), (1, 1));
        check::gateway(&gateway);
        gateway.shard.clear_flows();
        assert!(gateway.shard.mappings.is_empty());
    }
}
