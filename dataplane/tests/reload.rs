//! Tables are swapped while packets pass: run still equals step, frames are conserved, nothing is handed out twice and
//! nothing is lost, whatever policies follow one another; and what is revalidated is decided as a first packet would be.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use dataplane::egress::Next;
use dataplane::hop::{MOST_WAITING, Resolve};
use dataplane::reload::{PlanError, ReloadPlan};
use dataplane::replay::Way;
use dataplane::{Reason, Tables, Verdict};
use proptest::prelude::*;
use wire::ethernet::Mac;
use wire::header::Fragment;
use wire::random::Random;
use wire::{Nanos, PortId, build};

use crate::scene::link::{self, Link};
use crate::scene::packet::Packets;
use crate::scene::policy::{Scene, Translation};
use crate::scene::{Arrival, Gateway, Out, START, check, packet, policy};

/// The next policy: some of its bytes differ.
#[derive(Clone, Debug)]
struct Turn {
    /// Bytes of the policy to replace: place and new value.
    changes: Vec<(u8, u8)>,
    /// Names, order and addresses.
    shape: u8,
    /// Packets received before the reload.
    packets: Vec<[u8; packet::BYTES]>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let changes = prop::collection::vec(any::<(u8, u8)>(), 0..3);
    let packets = prop::collection::vec(any::<[u8; packet::BYTES]>().prop_map(quick), 0..40);
    let shape = prop_oneof![3 => Just(0), 2 => any::<u8>()];
    (changes, shape, packets).prop_map(|(changes, shape, packets)| Turn { changes, shape, packets })
}

/// Packets of which most have to do with those before, and few come so late that all flows are over.
fn quick(mut bytes: [u8; packet::BYTES]) -> [u8; packet::BYTES] {
    if bytes[12] & 3 != 0 {
        bytes[12] = bytes[12] & 3 | 0x40;
    }
    if bytes[16] & 1 != 0 {
        bytes[0] = [5, 10, 11, 11][usize::from(bytes[16] >> 1 & 3)];
    }
    bytes
}

/// The interfaces of scenes, in their order there.
const INTERFACES: [&str; 4] = ["lan", "guest", "wan", "wan2"];

/// A scene with other names, interfaces in another order or fewer, or another outer address.
fn shaped(scene: &Scene, shape: u8) -> String {
    let text = &scene.text;
    let starts: Vec<usize> =
        INTERFACES.iter().map(|name| text.find(&format!("[interface.{name}]")).unwrap()).collect();
    let end = text.find("[default]").unwrap();
    let blocks = starts.iter().zip(starts[1..].iter().chain([&end])).map(|(from, to)| &text[*from..*to]);
    let mut blocks: Vec<&str> = blocks.collect();
    let needs_second = text.contains("198.51.100.1\"");
    if shape & 1 != 0 && !needs_second {
        blocks.pop();
    }
    let turn = usize::from(shape >> 1 & 3) % blocks.len();
    blocks.rotate_left(turn);
    let mut text = [&text[..starts[0]], &blocks.concat(), &text[end..]].concat();
    for (bit, from, to) in [
        (3, "name = \"out\"", "name = \"away\""),
        (4, "name = \"web-out\"", "name = \"surfing\""),
        (5, "[interface.guest]", "[interface.visitor]"),
        (5, "\"guest threshold", "\"visitor threshold"),
        (6, "[\"203.0.113.2/24\"", "[\"203.0.113.3/24\""),
        (6, "local = \"203.0.113.2\"", "local = \"203.0.113.3\""),
        (6, "local-net = \"203.0.113.2\"", "local-net = \"203.0.113.3\""),
        (7, "name = \"one\"", "name = \"same\""),
    ] {
        if shape >> bit & 1 != 0 {
            text = text.replace(from, to);
        }
    }
    text
}

/// The port of a scene's interface in the present tables.
fn port(gateway: &Gateway, port: PortId) -> Option<PortId> {
    let Some(name) = INTERFACES.get(usize::from(port.0)) else { return Some(port) };
    gateway.tables.interface_named(name)
}

/// Renumbers the ports of the output to those of scenes.
fn by_scene(gateway: &Gateway, mut out: Out) -> Out {
    let interfaces = &gateway.tables.interfaces;
    for sent in &mut out.sent {
        let name = &interfaces[usize::from(sent.port)].name;
        sent.port = INTERFACES.iter().position(|known| known == name).unwrap_or(1) as u16;
    }
    out
}

/// Drops the scene's translation: it may change between packets, so that no check can tell who knows an inside address.
fn open(scene: &Scene) -> Scene {
    Scene { translation: Translation::None, ..scene.clone() }
}

/// Bytes of the link events after each batch; `None`: neighbours are assumed.
type Events<'a> = Option<&'a [[u8; link::BYTES]]>;

/// Plays packets and policies into two gateways, and compares after each batch and each change.
fn play(
    seed: &[u8; policy::BYTES],
    turns: &[Turn],
    sizes: &[u8],
    events: Events<'_>,
    mut see: impl FnMut(&Gateway, &Out),
) {
    let mut seed = *seed;
    let mut scene = policy::of(&seed);
    let tables = || crate::scene::tables(&scene.text);
    // As many slots as any of the policies needs.
    let (resolve, slots) =
        if events.is_some() { (Resolve::ByHost, 400 + MOST_WAITING) } else { (Resolve::Assume, 400) };
    let mut gateways = [Way::Run, Way::Step].map(|way| Gateway::with(tables(), way, slots, resolve));
    let (mut link, mut events) = (Link::default(), events.unwrap_or(&[]).iter().cycle());
    let mut world = Packets::of(&scene);
    let mut arrived = HashMap::new();
    let mut sizes = sizes.iter().cycle();
    for turn in turns {
        let mut rest = &turn.packets[..];
        while !rest.is_empty() {
            let size = sizes.next().map_or(1, |size| usize::from(*size) % 64 + 1).min(rest.len());
            let (now, later) = rest.split_at(size);
            rest = later;
            let [run, step] = &mut gateways;
            let arrivals = now.iter().map(|bytes| world.next(bytes));
            let here = |arrival: Arrival| Some(Arrival { port: port(run, arrival.port)?, ..arrival });
            let arrivals: Vec<_> = arrivals.filter_map(here).collect();
            // Where their interfaces are gone nothing comes, and what has come free waits on.
            let free = if arrivals.is_empty() { check::gateway_at_any_moment } else { check::gateway };
            run.receive(&arrivals);
            step.receive(&arrivals);
            arrived.extend(arrivals.into_iter().map(|arrival| (arrival.number, arrival)));
            let most = if scene.has_room { usize::MAX } else { size.div_ceil(2) };
            let (out, also) = (run.out(most), step.out(most));
            assert_eq!(out, also, "run and step differ under\n{}", scene.text);
            compare(&gateways);
            gateways.iter().for_each(free);
            let out = by_scene(&gateways[0], out);
            for sent in &out.sent {
                check::sent(&open(&scene), &arrived, sent);
            }
            see(&gateways[0], &out);
            world.learn(&out);
            if let Some(event) = events.next() {
                link.happen(event, world.now(), &mut gateways);
                compare(&gateways);
            }
        }
        for (place, value) in &turn.changes {
            seed[usize::from(*place) % policy::BYTES] = *value;
        }
        let had_tunnel = scene.has_tunnel;
        scene = policy::of(&seed);
        // What was encrypted before the reload may still wait for its port.
        scene.has_tunnel |= had_tunnel;
        let text = shaped(&scene, turn.shape);
        let (before, old) = (totals(&gateways[0]), gateways[0].tables.clone());
        let outs = gateways.each_mut().map(|gateway| {
            gateway.reload(&text, world.now());
            gateway.out(0)
        });
        assert_eq!(totals(&gateways[0]), before, "counts are lost under\n{text}");
        assert_eq!(outs[0], outs[1], "the change differs under\n{text}");
        compare(&gateways);
        if resolve == Resolve::ByHost {
            link.swapped(&old, turn.shape % 3 == 0, &mut gateways);
            compare(&gateways);
        }
        let [out, _] = outs;
        see(&gateways[0], &out);
    }
    for mut gateway in gateways {
        gateway.out(usize::MAX);
        for turn in 1..4 {
            gateway.tend(world.now() + Nanos::from_secs(turn * 1_000_000_000));
        }
        assert_eq!((gateway.held(), gateway.shard.counters.held), (0, 0), "something waits for ever");
        assert!(gateway.shard.counters.are_conserved());
        gateway.shard.clear_flows();
        assert!(gateway.shard.flows.is_empty() && gateway.shard.mappings.is_empty(), "mappings are left");
        assert_eq!(gateway.shard.limiter.counted(), 0, "counts are left");
    }
}

/// Sums of the counters by name, of present and gone names.
fn totals(gateway: &Gateway) -> [u64; 5] {
    let counters = &gateway.shard.counters;
    let (rules, nats) = (counters.rules.iter(), counters.nats.iter());
    let (mut by_rule, mut by_nat) = (counters.gone.rules, counters.gone.nats);
    rules.for_each(|traffic| by_rule.add(traffic));
    nats.for_each(|traffic| by_nat.add(traffic));
    let refused = counters.nat_refused.iter().sum::<u64>() + counters.gone.nat_refused;
    [by_rule.frames, by_rule.bytes, by_nat.frames, by_nat.bytes, refused]
}

fn compare([run, step]: &[Gateway; 2]) {
    assert_eq!(run.shard.counters, step.shard.counters);
    for gateway in [run, step] {
        check::gateway_at_any_moment(gateway);
        assert_eq!(gateway.shard.flows.epoch(), gateway.tables.epoch);
        assert_eq!(gateway.shard.egress.ports(), gateway.tables.interfaces.len());
        assert_eq!(gateway.shard.counters.rules.len(), gateway.tables.filter.rules.len());
    }
}

/// Outcome of the only frame: its verdict, the name of the rule, and port and bytes if it left.
type Fate = (Verdict, Option<String>, Option<(u16, Vec<u8>)>);

/// Returns the frame's outcome; `None` if it waits for its first fragment.
fn fate(gateway: &mut Gateway, arrival: &Arrival) -> Option<Fate> {
    gateway.receive(std::slice::from_ref(arrival));
    let tables = gateway.tables.clone();
    let mut fates = Vec::new();
    gateway.drain(usize::MAX, |port, frame| {
        let rule = tables.filter.rules.get(frame.meta.rule as usize).map(|rule| rule.name.clone());
        let sent = port.map(|port| (port.0, frame.bytes().to_vec()));
        fates.extend(Verdict::of_fate(frame.meta.fate).map(|verdict| (verdict, rule, sent)));
    });
    assert_eq!(fates.len() as u64 + gateway.shard.counters.held, 1, "one frame, one fate");
    fates.pop()
}

/// A packet that revalidates its flow has the verdict that it has as the first packet of a gateway with the new policy
/// alone; if that gateway refuses the packet by rule or default, the flow is revoked by the same.
#[test]
fn a_flow_is_revalidated_as_a_first_packet_is() {
    let mut random = Random::new(7);
    let (mut kept, mut revoked, mut lost) = (0, 0, 0);
    for round in 0..4_000 {
        let mut byte = || random.next_u64() as u8;
        let mut seed: [u8; policy::BYTES] = std::array::from_fn(|_| byte());
        // Stateful, nothing translated, flows enough.
        (seed[0], seed[1], seed[2]) = (1, 0, 0x0c);
        let mut bytes: [u8; packet::BYTES] = std::array::from_fn(|_| byte());
        // Fresh, whole, unspoilt, at once.
        (bytes[0], bytes[9], bytes[12], bytes[17]) = (0, 0, 0x40, 255);
        let before = policy::of(&seed).text;
        for place in [3, 6, 6, 8] {
            if byte() % 2 == 0 {
                seed[place] = byte();
            }
        }
        let after = policy::of(&seed).text;
        let arrival = Packets::new().next(&bytes);
        let mut gateway = Gateway::new(&before, Way::Run);
        let _ = fate(&mut gateway, &arrival);
        let Some((id, flow)) = gateway.shard.flows.iter().map(|(id, flow)| (id, *flow)).next() else {
            continue;
        };
        gateway.reload(&after, arrival.at);
        let again = fate(&mut gateway, &arrival).unwrap();
        let first = fate(&mut Gateway::new(&after, Way::Run), &arrival).unwrap();
        let context = || format!("round {round}: {arrival:?} of {:?} under\n{after}", flow.original());
        let by_policy = [Reason::RuleDrop, Reason::RuleReject, Reason::DefaultDrop, Reason::DefaultReject];
        match first.0 {
            Verdict::Dropped(reason) | Verdict::Answered(reason) if by_policy.contains(&reason) => {
                let expected = match first.0 {
                    Verdict::Answered(_) => Verdict::Answered(Reason::FlowRevoked),
                    _ => Verdict::Dropped(Reason::FlowRevoked),
                };
                assert_eq!((again.0, again.1, again.2), (expected, first.1, first.2), "{}", context());
                assert!(gateway.shard.flows.is_empty());
                revoked += 1;
            }
            Verdict::Forwarded | Verdict::Delivered => {
                assert_eq!(again, first, "{}", context());
                assert_eq!(
                    gateway.shard.flows.flow(id).unwrap().original().source(),
                    flow.original().source()
                );
                kept += 1;
            }
            _ => {
                // No way, for this packet or for all: the flow waits. Rules come later, for a first packet.
                assert_eq!((again.0, again.2), (first.0, first.2), "{}", context());
                assert_eq!(gateway.shard.flows.len(), 1);
                lost += 1;
            }
        }
    }
    assert!(kept > 800 && revoked > 40 && lost > 10, "{kept} kept, {revoked} revoked, {lost} without a way");
}

/// Frames that have left a port's queue to make room for those of a tree of incoming packets depart where the next tables have no such
/// tree.
#[test]
fn what_made_room_departs_without_the_tree() {
    let plain = r#"
        mode = "stateless"
        [interface.lan]
        zone = "lan"
        addresses = ["192.168.1.1/24"]
        [interface.wan]
        zone = "wan"
        addresses = ["203.0.113.2/24"]
        [default]
        "any > any" = "accept"
        [limit]
        queue = 1
    "#;
    let tree = "[[queue]]\nname = \"down\"\nfrom = \"lan\"\nrate = \"8 Mbit/s\"\nlimit = 4\n";
    let mut gateway = Gateway::new(&format!("{plain}{tree}"), Way::Run);
    let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), gateway.tables.interfaces[0].mac)
        .ipv4([192, 168, 1, 5].into(), [203, 0, 113, 9].into())
        .udp(1, 2)
        .payload(&[0; 900])
        .to_vec();
    for number in 0..3 {
        // One by one, as the queue has room for one.
        let at = Nanos(START.0 + u64::from(number));
        gateway.receive(&[Arrival { port: PortId(0), at, number, bytes: packet.clone() }]);
        assert!(matches!(gateway.shard.next(PortId(0), at), Next::Empty | Next::Wait(_)));
    }
    // Another port's opportunity lets the tree's packets come to their port.
    let later = Nanos(START.0 + 10_000_000);
    assert!(matches!(gateway.shard.next(PortId(0), later), Next::Empty | Next::Wait(_)));
    gateway.reload(plain, later);
    let numbers: Vec<u32> = gateway.out(usize::MAX).sent.iter().map(|sent| sent.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(gateway.shard.counters.queued(), 0);
}

const TWO_WAYS: &str = r#"
    [interface.lan]
    zone = "lan"
    addresses = ["192.168.1.1/24"]
    [interface.one]
    zone = "wan"
    addresses = ["203.0.113.2/24"]
    [interface.two]
    zone = "wan"
    addresses = ["198.51.100.2/24"]
    [default]
    "lan > wan" = "accept"
    [[route]]
    to = "10.1.0.0/16"
    via = "203.0.113.1"
    [[route]]
    to = "10.2.0.0/16"
    via = "198.51.100.1"
"#;

/// Without the interface `one`, and with the other two the other way round.
fn one_way() -> String {
    let text = TWO_WAYS.replace("    [[route]]\n    to = \"10.1.0.0/16\"\n    via = \"203.0.113.1\"\n", "");
    let [lan, one, two] =
        ["lan", "one", "two"].map(|name| text.find(&format!("    [interface.{name}]")).unwrap());
    let rest = text.find("    [default]").unwrap();
    [&text[two..rest], &text[lan..one], &text[rest..]].concat()
}

/// Frames that wait in queues go on waiting for the interface of that name; where it is gone they are dropped, and are
/// conserved.
#[test]
fn frames_in_queues_go_by_the_name_of_their_interface() {
    let mut gateway = Gateway::new(TWO_WAYS, Way::Run);
    let frames: Vec<Arrival> = (0..10_u8)
        .map(|number| {
            let link = build::ethernet(Mac([2; 6]), Mac([4; 6]));
            let to = Ipv4Addr::new(10, 1 + number % 2, 0, number);
            let bytes = link.ipv4([192, 168, 1, 5].into(), to).udp(1, 2).to_vec();
            Arrival { port: PortId(0), at: START, number: number.into(), bytes }
        })
        .collect();
    gateway.receive(&frames);
    let counters = &gateway.shard.counters;
    assert_eq!((gateway.queued(), counters.queued(), counters.forwarded()), (10, 10, 0));
    gateway.reload(&one_way(), START);
    let out = gateway.out(0);
    let lost: Vec<(u32, Verdict)> =
        (0..10).step_by(2).map(|number| (number, Verdict::Dropped(Reason::InterfaceGone))).collect();
    assert_eq!(out.ended, lost);
    let counters = &gateway.shard.counters;
    assert_eq!((counters.queued(), counters.dropped_for(Reason::InterfaceGone)), (5, 5));
    check::gateway(&gateway);
    let sent = gateway.out(usize::MAX).sent;
    assert_eq!(sent.iter().map(|sent| sent.number).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    assert_eq!((gateway.shard.counters.queued(), gateway.shard.counters.forwarded()), (0, 5));
    assert!(sent.iter().all(|sent| gateway.tables.interfaces[usize::from(sent.port)].name == "two"));
    check::gateway(&gateway);
}

/// A change is for one shard at one moment.
#[test]
fn a_change_out_of_turn_changes_nothing() {
    let mut gateway = Gateway::new(TWO_WAYS, Way::Run);
    let (one, two) = (gateway.tables.clone(), crate::scene::tables(&one_way()).after(&gateway.tables));
    let three = crate::scene::tables(TWO_WAYS).after(&two);
    let prepare = |old: &Tables, new: &Tables| ReloadPlan::prepare(old, new, crate::scene::setup(START));
    assert!(matches!(prepare(&one, &three), Err(PlanError::NotNext)));
    assert!(matches!(prepare(&one, &crate::scene::tables(TWO_WAYS)), Err(PlanError::NotNext)));
    let mut apply =
        |change: ReloadPlan, tables: &Tables| gateway.shard.apply(change, tables, START, &mut Vec::new());
    assert!(apply(prepare(&two, &three).unwrap(), &three).is_err());
    assert!(apply(prepare(&one, &two).unwrap(), &three).is_err());
    assert!(apply(prepare(&one, &two).unwrap(), &two).is_ok());
    assert!(apply(prepare(&one, &two).unwrap(), &two).is_err());
    assert!(apply(prepare(&two, &three).unwrap(), &three).is_ok());
}

/// Another thread prepares what a worker applies.
#[test]
fn changes_go_from_thread_to_thread() {
    fn goes<T: Send>() {}
    goes::<ReloadPlan>();
    goes::<dataplane::reload::Applied>();
}

/// The bytes lead to what they are meant to try: else the property would hold nothing.
#[test]
fn swaps_reach_the_corners() {
    let mut random = Random::new(6);
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..400 {
        let seed: [u8; policy::BYTES] = std::array::from_fn(|_| random.next_u64() as u8);
        let mut kept = 0;
        let turns: Vec<Turn> = (0..6)
            .map(|_| {
                let mut byte = || random.next_u64() as u8;
                // Rules, translations and routes, mostly.
                let changes =
                    (0..1 + byte() % 2).map(|_| ([6, 6, 1, 8, byte()][usize::from(byte() % 5)], byte()));
                let changes = changes.collect();
                let shape = if byte() % 2 == 0 { 0 } else { byte() };
                let packets = (0..24).map(|_| quick(std::array::from_fn(|_| byte()))).collect();
                Turn { changes, shape, packets }
            })
            .collect();
        play(&seed, &turns, &[8], None, |gateway, out| {
            for verdict in
                out.sent.iter().map(|sent| sent.verdict).chain(out.ended.iter().map(|end| Some(end.1)))
            {
                *met.entry(verdict.map_or("part".to_owned(), |verdict| verdict.to_string())).or_default() +=
                    1;
            }
            let (old, flows) = (gateway.tables.epoch.saturating_sub(1), &gateway.shard.flows);
            let again = flows.iter().filter(|(id, flow)| {
                let cold = flows.cold(*id).unwrap();
                old > 0 && !flows.is_stale(flow) && cold.created < flow.seen
            });
            kept += again.count() as u64;
        });
        *met.entry("kept".to_owned()).or_default() += kept;
    }
    for what in ["(flow-revoked)", "(flow-translation)", "(interface-gone)", "kept"] {
        let count: u64 = met.iter().filter(|(key, _)| key.contains(what)).map(|(_, count)| *count).sum();
        assert!(count > 20, "{what}: {met:#?}");
    }
    assert!(met.contains_key("answered (flow-revoked)"), "{met:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(600),
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn run_equals_step_while_tables_are_swapped(
        seed in any::<[u8; policy::BYTES]>(),
        turns in prop::collection::vec(turn(), 1..8),
        sizes in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        play(&seed, &turns, &sizes, None, |_, _| ());
    }

    #[test]
    fn run_equals_step_while_tables_are_swapped_and_neighbours_are_asked_for(
        seed in any::<[u8; policy::BYTES]>(),
        turns in prop::collection::vec(turn(), 1..8),
        sizes in prop::collection::vec(any::<u8>(), 1..8),
        events in prop::collection::vec(any::<[u8; link::BYTES]>(), 1..20),
    ) {
        play(&seed, &turns, &sizes, Some(&events), |_, _| ());
    }
}

/// A fragment that waits since tables before these tracked connections ends with the frame before which its time is over: that of a
/// clock which was set back, too, though the batch ends later.
#[test]
fn a_fragment_that_waits_ends_in_its_place_in_a_batch() {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    let packet = link.ipv4([192, 168, 1, 5].into(), [10, 1, 0, 8].into()).udp(1, 2).payload(&[90; 64]);
    let fragment = packet.clone().fragment(Fragment { id: 7, offset: 64, more: true }).to_vec();
    let arrival = |number, seconds, bytes: &Vec<u8>| Arrival {
        port: PortId(0),
        at: START + Nanos::from_secs(seconds),
        number,
        bytes: bytes.clone(),
    };
    let outs = [Way::Run, Way::Step].map(|way| {
        let mut gateway = Gateway::new(TWO_WAYS, way);
        gateway.receive(&[arrival(0, 1_000, &fragment)]);
        assert_eq!(gateway.held(), 1);
        gateway.reload(&format!("mode = \"stateless\"\n{TWO_WAYS}"), START + Nanos::from_secs(1_000));
        gateway.receive(&[arrival(1, 10, &packet.to_vec()), arrival(2, 1_000, &packet.to_vec())]);
        gateway.out(usize::MAX)
    });
    assert_eq!(outs[0], outs[1]);
    assert!(outs[0].ended.contains(&(0, Verdict::Dropped(Reason::FragmentTimeout))), "{outs:?}");
}
