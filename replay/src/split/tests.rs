use wire::build::{self, Icmp, Packet, Tcp};
use wire::ethernet::Mac;
use wire::header::{Fragment, Protocol};
use wire::vlan::Tag;

use super::*;

const HOST: [u8; 4] = [10, 0, 0, 5];
const SERVER: [u8; 4] = [192, 0, 2, 9];
const ROUTER: [u8; 4] = [203, 0, 113, 7];

fn link() -> Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]))
}

fn between(from: [u8; 4], to: [u8; 4]) -> Packet<'static> {
    link().ipv4(from.into(), to.into())
}

/// The part of sixteen that a frame is assigned to.
fn part_of(frame: &[u8]) -> Option<u16> {
    (0..16).find(|number| Part::new(*number, 16).unwrap().assign(frame) == Assigned::Here)
}

#[test]
fn a_flow_is_in_one_part() {
    let first = between(HOST, SERVER).tcp(Tcp { sport: 4_000, dport: 80, ..Tcp::default() }).to_vec();
    let part = part_of(&first).unwrap();
    let back = between(SERVER, HOST).tcp(Tcp { sport: 80, dport: 4_000, ..Tcp::default() }).to_vec();
    assert_eq!(part_of(&back), Some(part));
    let tagged = link().vlan(Tag::customer(20)).ipv4(SERVER.into(), HOST.into()).udp(1, 2).to_vec();
    assert_eq!(part_of(&tagged), Some(part));
    // The rest of a datagram has no ports.
    let fragment = Fragment { id: 7, offset: 8, more: false };
    let rest = between(HOST, SERVER).fragment(fragment).protocol(Protocol::UDP).payload(&[0; 8]).to_vec();
    assert_eq!(part_of(&rest), Some(part));
    // A router's error about it comes from elsewhere.
    let error = between(ROUTER, HOST).icmpv4(Icmp { kind: 3, code: 1, rest: [0; 4] });
    let quoted = error.clone().payload(&first[14..42]).to_vec();
    assert_eq!(part_of(&quoted), Some(part));
    let quotes_nothing = error.payload(&[0; 4]).to_vec();
    assert_eq!(part_of(&quotes_nothing), part_of(&between(ROUTER, HOST).udp(1, 2).to_vec()));
    // Errors are in one piece.
    let first = Fragment { id: 7, offset: 0, more: true };
    let piece =
        between(ROUTER, HOST).fragment(first).protocol(Protocol::ICMP).payload(&[3, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Part::new(3, 4).unwrap().assign(&piece.to_vec()), Assigned::Nowhere);
    let echo =
        between(ROUTER, HOST).fragment(first).protocol(Protocol::ICMP).payload(&[8, 0, 0, 0, 0, 0, 0, 0]);
    assert!(part_of(&echo.to_vec()).is_some());
}

#[test]
fn flows_are_spread_over_all_parts() {
    let mut counts = [0; 16];
    for host in 0..=255 {
        for server in [1, 2, 3, 4] {
            let frame = between([10, 0, 0, host], [192, 0, 2, server]).udp(1, 2).to_vec();
            counts[usize::from(part_of(&frame).unwrap())] += 1;
        }
    }
    assert!(counts.iter().all(|count| (32..=96).contains(count)), "{counts:?}");
    // What is no IP packet is the first part's, malformed frames too.
    assert_eq!((part_of(&[]), part_of(&[0; 64])), (Some(0), Some(0)));
}

#[test]
fn there_is_no_part_beyond_the_last() {
    assert_eq!((Part::new(2, 2), Part::new(0, 0)), (None, None));
}
