use std::net::{IpAddr, Ipv4Addr};

use traffic::{Office, Settings, Side};
use wire::build::{self, Icmp};
use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

use crate::counter::Counters;
use crate::flow::Ends;
use crate::replay::{Replay, Way, Witness, answered_ends};
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.10/24", "2001:db8:ffff::2/64"]
[default]
"lan > wan" = "accept"
"lan > self" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[route]]
to = "::/0"
via = "2001:db8:ffff::1"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
source = "192.168.1.0/24"
"#;

/// All that is told, and the world that answers what leaves.
struct World {
    office: Office,
    told: Vec<(Option<PortId>, Option<Verdict>, Vec<u8>)>,
}

impl Witness for World {
    /// Its links have no rate: what is queued leaves at once.
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let side = if port == PortId(0) { Side::Lan } else { Side::Wan };
        self.office.arrived(side, frame.meta.received, frame.bytes());
        self.told.push((Some(port), Verdict::of_fate(frame.meta.fate), frame.bytes().to_vec()));
    }

    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        assert_eq!(at, frame.meta.received);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.told.push((None, Some(verdict), frame.bytes().to_vec()));
    }
}

/// A few seconds of an office behind the gateway. `take` takes in one packet and may look at it.
fn play(mut take: impl FnMut(&mut Replay, PortId, u32, &traffic::Packet, &mut World)) -> (World, Counters) {
    let checked = policy::check(POLICY, "test.toml");
    let tables = Tables::compile(&checked.policy.expect("a sound policy"), 1).expect("tables");
    let settings = Settings { duration: Nanos::from_secs(3), ..Settings::default() };
    let mut replay = Replay::new(tables, settings.start, Way::Run).expect("memory");
    let mut world = World { office: Office::new(settings), told: Vec::new() };
    let mut number = 0;
    while let Some(packet) = world.office.next() {
        let port = PortId(if packet.side == Side::Lan { 0 } else { 1 });
        take(&mut replay, port, number, &packet, &mut world);
        number += 1;
    }
    replay.finish(&mut world);
    assert!(number > 1000, "{number} packets are too few to say much");
    (world, replay.shard.counters)
}

#[test]
fn what_is_explained_is_what_happens() {
    let (plain, counted) = play(|replay, port, number, packet, world| {
        replay.receive(port, packet.at, number, &packet.bytes, world);
        replay.pass(world);
    });
    let (explained, counted_too) = play(|replay, port, number, packet, world| {
        let before = world.told.len();
        let account = replay.explain(port, packet.at, number, &packet.bytes, world);
        let last = account.visits.last().expect("it was taken in");
        // A frame that waits has left the stages; all others have their fate from the last stage.
        assert_eq!(Verdict::of_fate(last.after.fate), Some(account.verdict));
        assert_eq!(account.visits[0].stage, "parse");
        assert!(account.visits[0].cost.executed_total() > 0);
        let sent = world.told[before..].iter().filter(|(port, ..)| port.is_some()).count();
        assert_eq!(account.sent.len(), sent);
    });
    assert_eq!(plain.told.len(), explained.told.len());
    for (place, (one, other)) in plain.told.iter().zip(&explained.told).enumerate() {
        assert!(one == other, "frame {place} differs");
    }
    assert_eq!(format!("{counted:?}"), format!("{counted_too:?}"));
}

const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn datagram() -> Vec<u8> {
    build::ethernet(Mac([2; 6]), Mac([4; 6])).ipv4(INSIDE, FAR).udp(4000, 53).payload(b"what").to_vec()
}

#[test]
fn who_is_told_of_neighbours_waits_for_others() {
    let checked = policy::check(POLICY, "test.toml");
    let tables = Tables::compile(&checked.policy.expect("a sound policy"), 1).expect("tables");
    let at = Nanos::from_secs(5);
    let mut replay = Replay::resolved_by_host(tables, at, Way::Run).expect("memory");
    let account = replay.explain(PortId(0), at, 0, &datagram(), &mut ());
    assert_eq!(account.verdict, Verdict::Held(Reason::NeighbourWaits));
    assert!(account.sent.is_empty());
    let router = IpAddr::from(ROUTER).into();
    replay.shard.update_neighbour(&replay.tables, PortId(1), router, Mac([6; 6])).expect("room");
    let account = replay.explain(PortId(0), at, 1, &datagram(), &mut ());
    assert_eq!(account.verdict, Verdict::Forwarded);
    // The one that waited goes first.
    let links: Vec<&[u8]> = account.sent.iter().map(|sent| &sent.bytes[..6]).collect();
    assert_eq!(links.last(), Some(&&[6; 6][..]));
}

#[test]
fn the_ends_of_an_error_are_those_of_what_it_quotes() {
    let ends = |source: Ipv4Addr, sport, destination: Ipv4Addr, dport| Ends {
        source: source.into(),
        destination: destination.into(),
        sport,
        dport,
        protocol: 17,
    };
    assert_eq!(answered_ends(&datagram()), Some(ends(FAR, 53, INSIDE, 4000)));
    let quote = &datagram()[14..];
    let error = |quote: &[u8]| {
        let unreachable = Icmp { kind: 3, code: 3, rest: [0; 4] };
        build::ethernet(Mac([2; 6]), Mac([4; 6]))
            .ipv4(ROUTER, INSIDE)
            .icmpv4(unreachable)
            .payload(quote)
            .to_vec()
    };
    assert_eq!(answered_ends(&error(quote)), Some(ends(INSIDE, 4000, FAR, 53)));
    assert_eq!(answered_ends(&error(&quote[..19])), None);
    assert_eq!(answered_ends(&[0; 60]), None);
}
