//! However frames go through the stages, together or one by one, the same comes of them; and what must hold of every
//! gateway holds. Policies and packets follow from random bytes, aimed at corners.

use std::collections::{BTreeMap, HashMap};

use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Verdict};
use proptest::prelude::*;
use wire::build::{self, Tcp};
use wire::ethernet::Mac;
use wire::random::Random;
use wire::tcp::Flags;
use wire::{Frame, Nanos, PortId};

use crate::scene::link::Link;
use crate::scene::packet::Packets;
use crate::scene::{Arrival, Gateway, START, Sent, check, link, packet, policy, tables};

/// Bytes of the link events after each batch; `None`: neighbours are assumed.
type Events<'a> = Option<&'a [[u8; link::BYTES]]>;

/// Plays packets into two gateways, in batches of these sizes, and compares after each.
fn play(seed: &[u8; policy::BYTES], packets: &[[u8; packet::BYTES]], sizes: &[u8], events: Events<'_>) {
    let scene = policy::of(seed);
    let make = if events.is_some() { Gateway::resolved_by_host } else { Gateway::new };
    let mut gateways = [Way::Run, Way::Step].map(|way| make(&scene.text, way));
    let (mut link, mut events_left) = (Link::default(), events.unwrap_or(&[]).iter().cycle());
    let mut world = Packets::of(&scene);
    let mut arrived = HashMap::new();
    let mut sizes = sizes.iter().cycle();
    let mut rest = packets;
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |size| usize::from(*size) % 64 + 1).min(rest.len());
        let (now, later) = rest.split_at(size);
        rest = later;
        let arrivals: Vec<_> = now.iter().map(|bytes| world.next(bytes)).collect();
        let [run, step] = &mut gateways;
        run.receive(&arrivals);
        step.receive(&arrivals);
        arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
        // Queues that are not emptied fill.
        let most = if scene.has_room { usize::MAX } else { size.div_ceil(2) };
        let (out, also) = (run.out(most), step.out(most));
        assert_eq!(out, also, "run and step differ under\n{}", scene.text);
        assert_eq!(run.shard.counters, step.shard.counters);
        check::gateway(run);
        check::gateway(step);
        for sent in &out.sent {
            check::sent(&scene, &arrived, sent);
            let is_to_group = sent.bytes[0] & 1 == 1;
            let is_known = events.is_none() || !scene.has_room || is_to_group || link.knows(&sent.bytes);
            assert!(is_known, "sent to nobody that is known: {sent:?}");
        }
        check::ended(&arrived, &out);
        world.learn(&out);
        if let Some(event) = events_left.next() {
            link.happen(event, world.now(), &mut gateways);
            gateways.iter().for_each(check::gateway_at_any_moment);
        }
    }
    batches_do_not_matter(&scene, &arrived, events);
    let [mut run, _] = gateways;
    run.out(usize::MAX);
    // All that waits ends: fragments, the neighbours of those that were answered, and those of a tunnel's peer that is elsewhere when
    // what waited for the first goes on.
    for turn in 1..=3 {
        run.tend(world.now() + Nanos::from_secs(1_000_000_000 * turn));
    }
    assert_eq!((run.held(), run.shard.counters.held), (0, 0), "something waits for ever");
    assert!(run.shard.counters.are_conserved());
    run.shard.clear_flows();
    assert!(run.shard.flows.is_empty() && run.shard.mappings.is_empty(), "flows leave mappings behind");
}

/// Batch sizes and ways through the stages make no difference: on the replay host the same frames depart at the same times,
/// and the same frames end, for any lengths of queues and rates of links.
fn batches_do_not_matter(scene: &policy::Scene, arrived: &HashMap<u32, Arrival>, events: Events<'_>) {
    let mut arrivals: Vec<&Arrival> = arrived.values().collect();
    arrivals.sort_by_key(|arrival| arrival.number);
    let begin = if events.is_some() { Replay::resolved_by_host } else { Replay::new };
    let play = |way, size: usize| {
        let mut replay = begin(tables(&scene.text), arrivals.first().map_or(START, |first| first.at), way)
            .expect("memory");
        let mut story = Story::default();
        for batch in arrivals.chunks(size) {
            for arrival in batch {
                replay.receive(arrival.port, arrival.at, arrival.number, &arrival.bytes, &mut story);
            }
            replay.pass(&mut story);
        }
        replay.finish(&mut story);
        assert!(replay.shard.counters.are_conserved());
        (story, replay.shard.counters)
    };
    let first = play(Way::Step, 1);
    for (way, size) in [(Way::Run, 7), (Way::Run, usize::MAX)] {
        assert_eq!(first, play(way, size), "{way:?} in batches of {size} differs under\n{}", scene.text);
    }
}

/// A frame's number, its moment of departure, verdict and bytes.
type Departed = (u32, Nanos, Option<Verdict>, Vec<u8>);

/// Output of a replay: departures by port, and frames that ended.
#[derive(Debug, Default, PartialEq)]
struct Story {
    sent: BTreeMap<PortId, Vec<Departed>>,
    ended: Vec<(u32, Verdict, Vec<u8>)>,
}

impl Witness for Story {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        let sent = (frame.meta.number, at, verdict, frame.bytes().to_vec());
        self.sent.entry(port).or_default().push(sent);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.ended.push((frame.meta.number, verdict, frame.bytes().to_vec()));
    }
}

/// The bytes lead to what they are meant to try: else these tests would hold nothing.
#[test]
fn scenes_reach_the_corners() {
    let mut random = Random::new(5);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..1_400 {
        let mut bytes = || random.next_u64().to_le_bytes();
        let mut seed = [0; policy::BYTES];
        seed[..8].copy_from_slice(&bytes());
        seed[8..].copy_from_slice(&bytes()[..policy::BYTES - 8]);
        if round % 8 == 1 {
            // Masquerade with a quota of two ports, which is met only where flows stay.
            (seed[0], seed[1], seed[2]) = (1, seed[1] & 0xf0 | 9, seed[2] | 8);
        }
        let scene = policy::of(&seed);
        let is_told = round % 4 == 0;
        let make = if is_told { Gateway::resolved_by_host } else { Gateway::new };
        let (mut gateway, mut world, mut link) =
            ([make(&scene.text, Way::Run)], Packets::of(&scene), Link::default());
        for _ in 0..20 {
            let arrivals: Vec<_> = (0..8)
                .map(|_| {
                    let mut packet = [0; packet::BYTES];
                    packet[..8].copy_from_slice(&bytes());
                    packet[8..16].copy_from_slice(&bytes());
                    packet[16..].copy_from_slice(&bytes()[..2]);
                    if round % 8 == 1 {
                        // Time hardly passes.
                        packet[12] = packet[12] & 0x3f | 0x40;
                    }
                    world.next(&packet)
                })
                .collect();
            if is_told {
                link.happen(&[bytes()[0], bytes()[0]], world.now(), &mut gateway);
            }
            let gateway = &mut gateway[0];
            gateway.receive(&arrivals);
            let out = gateway.out(if scene.has_room { usize::MAX } else { 4 });
            for verdict in
                out.sent.iter().map(|sent| sent.verdict).chain(out.ended.iter().map(|end| Some(end.1)))
            {
                *met.entry(verdict.map_or("part".to_owned(), |verdict| verdict.to_string())).or_default() +=
                    1;
            }
            if scene.transport.is_some() {
                let mut count =
                    |what: &str, seen: usize| *met.entry(what.to_owned()).or_default() += seen as u64;
                let is_forwarded = |sent: &&Sent| sent.verdict == Some(Verdict::Forwarded);
                let sealed = out.sent.iter().filter(is_forwarded).filter(|sent| check::is_esp(&sent.bytes));
                count("out in transport mode", sealed.count());
                let came = |number: u32| arrivals.iter().find(|arrival| arrival.number == number);
                let opened = out.ended.iter().filter(|(number, verdict)| {
                    *verdict == Verdict::Delivered
                        && came(*number).is_some_and(|came| check::is_esp(&came.bytes))
                });
                count("in in transport mode", opened.count());
            }
            world.learn(&out);
        }
        let shard = &gateway[0].shard;
        *met.entry("evicted".to_owned()).or_default() += shard.counters.evicted;
        *met.entry("held".to_owned()).or_default() += u64::from(shard.fragments.held());
        *met.entry("waits".to_owned()).or_default() += u64::from(shard.hops.held());
    }
    // Slots are enough, also for what waits, nothing waits for ever, in small tables flows are full first, tables are not
    // swapped here (`reload.rs`), nobody asks for outside addresses (`tests/cases/nat/on-link.case`), and no rule has the
    // gateway answer SYNs (`syn_proxy.rs`, `tests/cases/syn-proxy`), ports have no trees of queues (`schedule.rs`), and a tunnel has numbers
    // for years, and a security association of the policy's (`ike.rs`), copies have slots (`multicast.rs`), no link has cells (`atm.rs`) or PPP sessions (`ppp.rs`), and default
    // routes are routes (`wan.rs`).
    let unmet = [
        Reason::SlotTooSmall,
        Reason::AtmHec,
        Reason::AtmIdle,
        Reason::AtmManagement,
        Reason::AtmLoopback,
        Reason::AtmOamCrc,
        Reason::AtmVcUnknown,
        Reason::Aal5Reassembly,
        Reason::Aal5TooLong,
        Reason::Aal5Length,
        Reason::Aal5Crc,
        Reason::Aal5Aborted,
        Reason::AtmEncapsulation,
        Reason::AtmBridgedFcs,
        Reason::PppControl,
        Reason::PppMalformed,
        Reason::PppSessionUnknown,
        Reason::PppNotOpen,
        Reason::PppAuthentication,
        Reason::PppAddress,
        Reason::FragmentWaits,
        Reason::NeighbourWaits,
        Reason::NeighbourQueueFull,
        Reason::NeighbourProxied,
        Reason::NatNoAddress,
        Reason::HandedOff,
        Reason::HandoffFull,
        Reason::PeerOwns,
        Reason::PeerLinkFull,
        Reason::FramePoolEmpty,
        Reason::MulticastCopy,
        Reason::NatTableFull,
        Reason::FlowRevoked,
        Reason::FlowTranslation,
        Reason::WanDown,
        Reason::HelperIncomplete,
        Reason::HelperRefused,
        Reason::NoServer,
        Reason::ServerDown,
        Reason::InterfaceGone,
        Reason::EarlyDrop,
        Reason::EspSequence,
        Reason::SaMissing,
    ];
    let missing: Vec<&str> = Reason::ALL
        .iter()
        .filter(|entry| !unmet.contains(&entry.reason))
        .map(|entry| entry.name)
        .filter(|name| !met.keys().any(|key| key.contains(&format!("({name})"))))
        .collect();
    assert_eq!(missing, [""; 0], "{met:#?}");
    for what in [
        "forwarded",
        "delivered",
        "part",
        "evicted",
        "held",
        "waits",
        "out in transport mode",
        "in in transport mode",
    ] {
        assert!(met.get(what).is_some_and(|count| *count > 20), "{what}: {met:#?}");
    }
}

/// A flow's count against a bound on connections is released, once, however the flow ended.
#[test]
fn connections_are_counted_and_counted_back() {
    let mut random = Random::new(8);
    let mut refused = 0;
    for _ in 0..300 {
        let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        // No meter, which drops some: a packet that opens nothing is not counted.
        seed[9] &= 0x7f;
        // Stateful, all ports, flows enough or not, three connections by rule, no other bound; SYNs make connections at once.
        seed[10] &= !4;
        // A default route of IPv6, by which a CLAT leads.
        seed[8] &= !2;
        (seed[0], seed[1], seed[4], seed[11]) = (1, seed[1] & !0x0c, 0, 0);
        (seed[2], seed[6], seed[7]) = ((3 + seed[2] % 4) << 1 | seed[3] & 1, 64 | seed[6] & 7, seed[7] & !32);
        let scene = policy::of(&seed);
        let (mut gateway, mut world) = (Gateway::new(&scene.text, Way::Run), Packets::of(&scene));
        for _ in 0..60 {
            let batch: Vec<_> = (0..4)
                .map(|n| {
                    let mut bytes: [u8; packet::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
                    if n % 2 == 0 {
                        // To the web, by TCP or UDP, by either version.
                        (bytes[0], bytes[1], bytes[11]) = (0, bytes[1] & 4, bytes[11] % 9);
                    }
                    world.next(&bytes)
                })
                .collect();
            gateway.receive(&batch);
            world.learn(&gateway.out(usize::MAX));
        }
        refused += gateway.shard.counters.dropped_for(Reason::ConnectionLimit);
        gateway.shard.clear_flows();
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
        let fates: Vec<Option<Reason>> = (0..4)
            .map(|n| {
                let packet = link.clone().ipv4([192, 168, 1, 5].into(), [8, 8, 8, 8].into());
                let syn = Tcp { sport: 60_000 + n, dport: 443, flags: Flags::SYN, ..Tcp::default() };
                let bytes = packet.tcp(syn).to_vec();
                gateway.receive(&[Arrival { port: PortId(0), at: world.now(), number: 0, bytes }]);
                let ended = gateway.out(usize::MAX).ended;
                // Fragments whose time is over may end, too.
                ended.iter().find(|(number, _)| *number == 0).and_then(|(_, verdict)| verdict.reason())
            })
            .collect();
        let limit = Some(Reason::ConnectionLimit);
        assert_eq!(fates, [None, None, None, limit], "under\n{}", scene.text);
    }
    assert!(refused > 20, "the bound was met but {refused} times");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn run_equals_step(
        seed in any::<[u8; policy::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; packet::BYTES]>(), 1..120),
        sizes in prop::collection::vec(any::<u8>(), 1..8),
        events in prop::option::of(prop::collection::vec(any::<[u8; link::BYTES]>(), 1..16)),
    ) {
        play(&seed, &packets, &sizes, events.as_deref());
    }
}
