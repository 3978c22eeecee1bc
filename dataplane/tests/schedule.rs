//! Trees of queues: schedulers, shapers, droppers and marks, by the departures of packets.

use dataplane::replay::Way;
use dataplane::{Reason, Replay, Tables};
use proptest::prelude::*;
use tally::{Count, Region};
use wire::ethernet::Mac;
use wire::{Nanos, PortId, build};

use crate::queues::{
    Packet, SECOND, START, backlog, compiled, departures, play, sent_until, tables, traffic, trees,
};

const THREE: &str = "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"10 Mbit/s\"\noverhead = \"ip\"\n";

#[test]
fn strict_priority_serves_what_comes_first_in_the_file() {
    let queues = format!(
        "{THREE}scheduler = \"strict\"\n\
         [[queue]]\nname = \"ef\"\nin = \"root\"\nphb = \"ef\"\n[[queue]]\nname = \"rest\"\nin = \"root\"\n"
    );
    // Best effort comes first; while its first packet is sent, two of EF come.
    let mut packets: Vec<Packet> = (0..3).map(|_| Packet::of(0, 0, 1_000)).collect();
    packets.extend([Packet::of(100, 46, 500), Packet::of(200_000, 46, 500)]);
    let outcome = departures(&queues, &packets);
    // 1,000 bytes take 800 us, 500 take 400.
    assert_eq!(
        outcome.departed,
        [
            (0, 0, 0, 1_000),
            (3, 800_000, 184, 500),
            (4, 1_200_000, 184, 500),
            (1, 1_600_000, 0, 1_000),
            (2, 2_400_000, 0, 1_000)
        ]
    );
}

/// Weighted schedulers give each backlogged queue its share within 1 %, whatever the sizes of packets.
#[test]
fn weights_hold_within_one_per_cent() {
    for scheduler in ["drr", "wfq"] {
        let mut queues = format!("{THREE}scheduler = \"{scheduler}\"\n");
        let points = [10_u8, 18, 26, 0];
        for (class, weight) in [("af1", 5), ("af2", 3), ("af3", 2)] {
            queues += &format!(
                "[[queue]]\nname = \"{class}\"\nin = \"root\"\nphb = \"{class}\"\nweight = {weight}\nlimit = 5000\n"
            );
        }
        queues += "[[queue]]\nname = \"be\"\nin = \"root\"\nlimit = 5000\n[limit]\nqueue = 16384\n";
        let bytes =
            |n: usize, point: u8| [64, 1_500, 300, 700][(n + usize::from(point)) % 4] - usize::from(point);
        let outcome = departures(&queues, &backlog(&points, 4_000, bytes));
        assert_eq!(outcome.dropped, []);
        // Until the first is empty.
        let total: u64 = (0..4_000).map(|n| bytes(n, 10) as u64).sum();
        let until = total * 8 * 100 * 11 / 5 * 9 / 10;
        let sums = sent_until(&outcome, until);
        let all: u64 = sums.values().sum();
        for (point, weight) in [(10, 5), (18, 3), (26, 2), (0, 1)] {
            let share = sums[&point] as f64 / all as f64;
            let due = f64::from(weight) / 11.0;
            assert!((share / due - 1.0).abs() < 0.01, "{scheduler} {point}: {share} {due}");
        }
    }
}

/// As HTB's users know it: what a class does not use of its guarantee others borrow, up to their ceilings.
#[test]
fn guarantees_hold_and_ceilings_bound_what_is_borrowed() {
    let queues = format!(
        "{THREE}\
         [[queue]]\nname = \"gold\"\nin = \"root\"\nphb = \"af1\"\nguarantee = \"6 Mbit/s\"\nrate = \"8 Mbit/s\"\nlimit = 5000\n\
         [[queue]]\nname = \"silver\"\nin = \"root\"\nphb = \"af2\"\nguarantee = \"1 Mbit/s\"\nrate = \"3 Mbit/s\"\nlimit = 5000\n\
         [[queue]]\nname = \"be\"\nin = \"root\"\nlimit = 5000\n[limit]\nqueue = 16384\n"
    );
    let share = |points: &[u8]| {
        let outcome = departures(&queues, &backlog(points, 3_000, |_, _| 1_000));
        let sums = sent_until(&outcome, SECOND);
        points.iter().map(|point| sums[point] as f64 * 8.0 / 1e6).collect::<Vec<_>>()
    };
    let near = |all: Vec<f64>, due: &[f64], within: f64| {
        for (found, due) in all.iter().zip(due) {
            assert!((found - due).abs() < within, "{found} {due}, {all:?}");
        }
    };
    // Of the 3 Mbit/s that nobody is guaranteed each has a third.
    near(share(&[10, 18, 0]), &[7.0, 2.0, 1.0], 0.1);
    // A ceiling bounds gold, and silver; the rest is best effort's.
    near(share(&[10, 0]), &[8.0, 2.0], 0.1);
    near(share(&[18, 0]), &[3.0, 7.0], 0.05);
    near(share(&[10]), &[8.0], 0.05);
}

/// RENA-CHIP, section 3.2: a shaper of nanoseconds is exact where one of 1/2048 s is not.
#[test]
fn a_shaped_queue_sends_at_its_rate_to_the_nanosecond() {
    for mbit in [1, 4, 10, 25] {
        let queues = format!(
            "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"{mbit} Mbit/s\"\noverhead = \"ip\"\n"
        );
        let packets: Vec<Packet> = (0..500).map(|_| Packet::of(0, 0, 242)).collect();
        let outcome = departures(&queues, &packets);
        for (number, (_, at, ..)) in (0..).zip(&outcome.departed) {
            let due = number * 242 * 8 * 1_000 / mbit;
            assert!(at.abs_diff(due) <= 1, "{mbit} Mbit/s: {number} at {at}, due {due}");
        }
    }
}

/// FQ-CoDel: eight flows with long queues do not delay one that sends little, and hosts share before their flows.
#[test]
fn fair_queueing_isolates_flows_and_hosts() {
    let queues = |isolate: &str| {
        format!("{THREE}scheduler = \"fq\"\ndrop = \"codel\"\nlimit = 5000\nisolate = \"{isolate}\"\n")
    };
    let mut packets = Vec::new();
    for n in 0..600_u64 {
        packets.extend((0..8).map(|flow| Packet {
            at: n * 1_000_000,
            host: 10,
            sport: 2_000 + flow,
            field: 0,
            bytes: 1_000,
        }));
        packets.push(Packet { at: n * 1_000_000, host: 11, sport: 3_000, field: 4, bytes: 1_000 });
        if n % 20 == 0 {
            packets.push(Packet { at: n * 1_000_000 + 5, host: 12, sport: 5_060, field: 184, bytes: 200 });
        }
    }
    let share = |isolate: &str| {
        let outcome = departures(&queues(isolate), &packets);
        // Packets of the thin flow wait for one packet, or a few, never for a queue.
        let arrivals: Vec<u64> = packets.iter().map(|packet| packet.at).collect();
        // At the very beginning all flows are new.
        let is_thin = |number: u32, field: u8| field == 184 && arrivals[number as usize] > 50_000_000;
        let thin: Vec<u64> = outcome
            .departed
            .iter()
            .filter(|(number, _, field, _)| is_thin(*number, *field))
            .map(|(number, at, ..)| at - arrivals[*number as usize])
            .collect();
        assert_eq!(thin.len(), 27, "none is lost");
        assert!(thin.iter().all(|delay| *delay < 3_000_000), "{thin:?}");
        let sums = outcome.departed.iter().filter(|(_, at, ..)| *at < 600_000_000).fold(
            [0, 0],
            |mut sums, (_, _, field, _)| {
                sums[usize::from(*field == 4)] += 1;
                sums
            },
        );
        f64::from(sums[1]) / f64::from(sums[0] + sums[1])
    };
    let by_flow = share("flow");
    assert!((by_flow - 1.0 / 9.0).abs() < 0.02, "{by_flow}");
    let by_host = share("source");
    assert!((by_host - 0.5).abs() < 0.05, "{by_host}");
}

/// Shares of hosts hold where packets are dropped in the place of marks, too: drops take no turn. One host's fifty flows, and another's one,
/// send four times the rate, of packets without ECN and with it.
#[test]
fn drops_in_the_place_of_marks_are_charged_to_nobody() {
    let queues = format!(
        "{THREE}scheduler = \"fq\"\ndrop = \"codel\"\necn = true\nlimit = 1000\nisolate = \"source\"\n"
    );
    for ecn in [0, 2] {
        let mut packets = Vec::new();
        for n in 0..10_000_u16 {
            let at = u64::from(n) * 400_000;
            let of = |host, sport, field| Packet { at, host, sport, field, bytes: 1_000 };
            packets.extend([of(10, 2_000 + n % 50, ecn), of(11, 3_000, 4 << 2 | ecn)]);
        }
        let outcome = departures(&queues, &packets);
        for second in 1..4 {
            let within = |at: &u64| (second * SECOND..(second + 1) * SECOND).contains(at);
            let (many, one): (Vec<u8>, Vec<u8>) = outcome
                .departed
                .iter()
                .filter(|(_, at, ..)| within(at))
                .map(|(_, _, field, _)| field >> 2)
                .partition(|point| *point == 0);
            assert!(many.len().abs_diff(one.len()) < 10, "second {second}: {} and {}", many.len(), one.len());
        }
    }
}

/// CoDel holds the delay of a persistent queue near its target, by drops, or by marks where packets may be marked.
#[test]
fn codel_signals_until_the_queue_is_gone() {
    for (ecn, field) in [("false", 0_u8), ("true", 2)] {
        let queues = format!("{THREE}drop = \"codel\"\necn = {ecn}\nlimit = 5000\n");
        // 10 % more than the rate, for three seconds.
        let packets: Vec<Packet> =
            (0..4_125).map(|n| Packet { field, ..Packet::of(n * 727_272, 0, 1_000) }).collect();
        let outcome = departures(&queues, &packets);
        let marked = outcome.departed.iter().filter(|(_, _, field, _)| field & 3 == 3).count();
        let early = outcome.dropped.iter().filter(|(_, reason)| *reason == Reason::EarlyDrop).count();
        let signals = if ecn == "true" { marked } else { early };
        assert!(signals > 20, "{ecn}: {signals}");
        assert_eq!(if ecn == "true" { early } else { marked }, 0);
        // No signal in the first interval above the target (RFC 8289, section 5.4).
        let first =
            outcome.departed.iter().find(|(_, _, field, _)| field & 3 == 3).map(|(number, ..)| *number);
        let first = first.or(outcome.dropped.first().map(|(number, _)| *number)).unwrap();
        assert!(first as u64 * 727_272 > 100_000_000, "{first}");
    }
}

/// WRED: of a queue that is over its thresholds for red alone, only red packets are lost.
#[test]
fn red_drops_by_drop_precedence() {
    let queues = format!(
        "{THREE}drop = \"red\"\nred = [\"400-500 10%\", \"200-300 10%\", \"20-100 50%\"]\nlimit = 1000\n"
    );
    let packets: Vec<Packet> =
        (0..4_000).map(|n| Packet::of(n * 700_000, [10, 12, 14][n as usize % 3], 1_000)).collect();
    let outcome = departures(&queues, &packets);
    let lost = |place: u32| outcome.dropped.iter().filter(|(number, _)| number % 3 == place).count();
    assert!(outcome.dropped.iter().all(|(_, reason)| *reason == Reason::EarlyDrop));
    assert_eq!((lost(0), lost(1)), (0, 0));
    assert!(lost(2) > 200, "{}", lost(2));
}

/// PIE brings a persistent overload down to what the link carries.
#[test]
fn pie_drops_about_what_is_too_much() {
    let queues = format!("{THREE}drop = \"pie\"\nlimit = 5000\n");
    let packets: Vec<Packet> = (0..20_000).map(|n| Packet::of(n * 640_000, 0, 1_000)).collect();
    let outcome = departures(&queues, &packets);
    // 25 % more than the rate: one in five is too much.
    let late = outcome.dropped.iter().filter(|(number, _)| *number >= 10_000).count();
    assert!((1_500..2_500).contains(&late), "{late}");
    let delays: Vec<u64> = outcome
        .departed
        .iter()
        .filter(|(number, ..)| *number >= 10_000)
        .map(|(number, at, ..)| at - u64::from(*number) * 640_000)
        .collect();
    let mean = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!(mean < 60_000_000, "{mean}");
}

/// Each subscriber has queues of his own: who floods hurts himself alone. Those beyond the bound share.
#[test]
fn subscribers_have_queues_of_their_own() {
    let queues = format!(
        "{THREE}[[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = 100\nrate = \"2 Mbit/s\"\n\
         [[queue]]\nname = \"voice\"\nin = \"subscriber\"\nphb = \"ef\"\npriority = 0\nlimit = 1000\n\
         [[queue]]\nname = \"data\"\nin = \"subscriber\"\npriority = 1\nlimit = 1000\n"
    );
    let mut packets = Vec::new();
    for n in 0..200_u64 {
        for host in 0..10 {
            let count = if host == 0 { 10 } else { 1 };
            packets.extend((0..count).map(|_| Packet {
                at: n * 4_000_000,
                host: 100 + host,
                sport: 1,
                field: host,
                bytes: 500,
            }));
        }
    }
    let outcome = departures(&queues, &packets);
    // Nine subscribers of 1 Mbit/s each; the one who sends ten has what is left.
    for host in 1..10 {
        let late =
            outcome.departed.iter().filter(|(number, ..)| packets[*number as usize].host == 100 + host);
        let worst = late.map(|(number, at, ..)| at - packets[*number as usize].at).max().unwrap();
        // The turns of all ten, of 1,514 bytes each.
        assert!(worst < 10 * 1_514 * 800, "{host}: {worst}");
    }
}

/// Trees of packets that come by an interface hold them before the port that they leave by.
#[test]
fn incoming_packets_are_shaped_before_their_port() {
    let queues =
        "[[queue]]\nname = \"down\"\nfrom = \"lan\"\nrate = \"8 Mbit/s\"\noverhead = \"ip\"\nlimit = 4\n";
    let packets: Vec<Packet> = (0..6).map(|_| Packet::of(0, 0, 1_000)).collect();
    let outcome = departures(queues, &packets);
    let moments: Vec<u64> = outcome.departed.iter().map(|(_, at, ..)| *at).collect();
    assert_eq!(moments, [0, 1_000_000, 2_000_000, 3_000_000]);
    assert_eq!(outcome.dropped.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4, 5]);
}

/// A queue served alone before a pause owes nothing behind it, whatever the weights.
#[test]
fn a_pause_lets_all_of_wfq_begin_anew() {
    let queues = format!(
        "{THREE}scheduler = \"wfq\"\n\
         [[queue]]\nname = \"gold\"\nin = \"root\"\nphb = \"af1\"\nweight = 100\n\
         [[queue]]\nname = \"be\"\nin = \"root\"\n"
    );
    let mut packets = vec![Packet::of(0, 0, 1_400)];
    packets.extend((0..200).map(|_| Packet::of(SECOND, 10, 1_000)));
    packets.push(Packet::of(SECOND, 0, 1_000));
    let outcome = departures(&queues, &packets);
    let late = outcome.departed.iter().find(|(number, ..)| *number == 201).unwrap();
    // Behind one packet of gold at most.
    assert!(late.1 <= SECOND + 800_000, "{late:?}");
}

/// As long as there are as many instances as subscribers, each has its own: no packet finds the queue of another.
#[test]
fn as_many_subscribers_as_instances_share_none() {
    for (first, count) in [(2, 128), (120, 128), (2, 64), (66, 64), (130, 64), (2, 16), (18, 16), (2, 5)] {
        let queues = format!(
            "{THREE}[[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = {count}\nlimit = 2\n"
        );
        let of = |host: u8| (0..2).map(move |_| Packet { host: first + host, ..Packet::of(0, 0, 100) });
        let packets: Vec<Packet> = (0..count).flat_map(of).collect();
        let outcome = departures(&queues, &packets);
        assert_eq!(outcome.dropped, [], "{count} from {first}");
    }
}

/// Packets in the queues of 100,000 subscribers are counted by leaf.
#[test]
fn what_waits_is_counted_over_all_instances() {
    let queues = format!(
        "{THREE}[[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = 100000\n\
         [[queue]]\nname = \"voice\"\nin = \"subscriber\"\nphb = \"ef\"\n\
         [[queue]]\nname = \"data\"\nin = \"subscriber\"\ndrop = \"codel\"\n\
         [[queue]]\nname = \"l4s\"\nin = \"subscriber\"\nphb = \"af1\"\ndrop = \"dualpi2\"\n"
    );
    let of = |host: u8| {
        let packet = |field: u8, bytes| Packet { host, field, ..Packet::of(0, 0, bytes) };
        [packet(46 << 2, 200), packet(0, 1_000), packet(10 << 2, 300), packet(10 << 2 | 1, 400)]
    };
    let mut replay = Replay::new(tables(&queues), Nanos(START), Way::Run).expect("memory");
    for (number, packet) in (0..).zip((10..210).flat_map(of)) {
        replay.receive(PortId(0), Nanos(START), number, &packet.frame(), &mut ());
    }
    // In 100 ms 125,000 bytes are sent: of 200 subscribers not all have had one turn.
    replay.advance(Nanos(START + SECOND / 10), &mut ());
    let trees: Vec<_> = replay.shard.egress.trees().collect();
    let mut left = 200 * 1_900;
    for (name, counts) in trees[0].leaves() {
        let bytes = match &*name {
            "voice" => 200,
            "data" => 1_000,
            "l4s" => 300,
            "l4s/l4s" => 400,
            _ => panic!("{name}"),
        };
        assert_eq!(counts.packets + counts.sent, 200, "{name}");
        assert_eq!(
            (counts.bytes, counts.sent_bytes),
            (counts.packets * bytes, counts.sent * bytes),
            "{name}"
        );
        left -= counts.sent_bytes;
    }
    assert!((200 * 1_900 - 125_000_u64).abs_diff(left) <= 1_000, "{left}");
}

/// A class that is held at its ceiling makes up for the turn that it missed meanwhile, but for what it may not be ahead of its rate.
#[test]
fn a_ceiling_costs_little_of_what_may_be_borrowed() {
    for (weight, ceiling, due) in [(1, 5_000, 5.0), (2, 6_500, 6.5), (3, 7_400, 7.4), (1, 4_000, 4.0)] {
        let queues = format!(
            "{THREE}\
             [[queue]]\nname = \"gold\"\nin = \"root\"\nphb = \"af1\"\nrate = \"{ceiling} kbit/s\"\nweight = {weight}\nlimit = 5000\n\
             [[queue]]\nname = \"be\"\nin = \"root\"\nlimit = 5000\n[limit]\nqueue = 16384\n"
        );
        for bytes in [1_000, 700, 300] {
            let outcome = departures(&queues, &backlog(&[10, 0], 2_000_000 / bytes, |_, _| bytes));
            let gold = sent_until(&outcome, SECOND)[&10] as f64 * 8.0 / 1e6;
            assert!((gold / due - 1.0).abs() < 0.025, "{bytes}: {gold} of {due}");
        }
    }
}

/// Queues, schedulers and shapers have a cost, which depends on levels and shapers and not on the number of queues; a queue without a
/// tree has none of that.
#[test]
fn scheduling_is_tallied_by_levels() {
    let cost = |queues: &str| {
        let mut replay = Replay::new(tables(queues), Nanos(START), Way::Step).expect("memory");
        let mut count = Count::default();
        for n in 0..100_u64 {
            let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
                .ipv4([192, 168, 1, 10 + (n % 50) as u8].into(), [203, 0, 113, 9].into())
                .udp(1_000, 4_000)
                .payload(&[0; 972])
                .to_vec();
            let at = Nanos(START + n * 10_000_000);
            replay.advance_tallied(at, &mut (), &mut count);
            replay.receive(PortId(0), at, n as u32, &bytes, &mut ());
        }
        replay.advance_tallied(Nanos(START + 2 * SECOND), &mut (), &mut count);
        assert_eq!(replay.shard.counters.forwarded(), 100);
        (
            count.executed_total(),
            count.references(Region::Queue).bytes,
            count.references(Region::Timer).writes,
        )
    };
    assert_eq!(cost(""), (0, 0, 0));
    let root = "[[queue]]\nname = \"root\"\non = \"wan\"\n";
    let shaped = format!("{root}rate = \"10 Mbit/s\"\n");
    let leaf =
        |name: &str, parent: &str| format!("[[queue]]\nname = \"{name}\"\nin = \"{parent}\"\nweight = 2\n");
    let two = format!("{root}{}", leaf("a", "root"));
    let three = format!("{root}{}{}", leaf("a", "root"), leaf("b", "a"));
    let (one, with_shaper) = (cost(root), cost(&shaped));
    let (two, three) = (cost(&two), cost(&three));
    assert!(one.0 > 100 * 20 && one.1 > 0 && one.2 == 0, "{one:?}");
    assert!(with_shaper.0 > one.0 && with_shaper.2 == 100, "a timer for each packet: {with_shaper:?}");
    assert!(one.0 < two.0 && two.0 < three.0, "{one:?} {two:?} {three:?}");
    // Each level costs the same.
    assert!((three.0 - two.0).abs_diff(two.0 - one.0) <= 100, "{one:?} {two:?} {three:?}");
    let subscribers = |instances: u32| {
        cost(&format!("{shaped}{}per = \"source\"\ninstances = {instances}\n", leaf("a", "root")))
    };
    assert_eq!(subscribers(50).0, subscribers(2_000).0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Departures, drops and moments depend on nothing but packets and time: neither on batches nor on when the host asks. All
    /// packets are accounted for.
    #[test]
    fn departures_do_not_depend_on_the_host(
        queues in trees(),
        rate in prop::option::of(500_u64..100_000),
        packets in traffic(),
        mut breaks in prop::collection::vec(0_u64..400_000_000, 0..30),
    ) {
        let rate = rate.map_or(String::new(), |rate| format!("[interface.wan]\nrate = \"{rate} kbit/s\"\n"));
        breaks.sort_unstable();
        let text = queues;
        let compiled = || {
            let text = format!(
                "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n{}zone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
                 [default]\n\"lan > wan\" = \"accept\"\n[limit]\nqueue = 512\n{text}",
                if rate.is_empty() { "[interface.wan]\n" } else { &rate }
            );
            policy::check(&text, "tree.toml").policy.map(|policy| Tables::compile(&policy, 1).expect("tables"))
        };
        // Some random trees ask for more than their port carries.
        prop_assume!(compiled().is_some());
        let (run, _) = play(compiled().unwrap(), Way::Run, &packets, &[]);
        let (step, _) = play(compiled().unwrap(), Way::Step, &packets, &[]);
        prop_assert_eq!(&run, &step);
        let (broken, _) = play(compiled().unwrap(), Way::Run, &packets, &breaks);
        prop_assert_eq!(&run, &broken);
        let mut last = 0;
        for (_, at, ..) in &run.departed {
            prop_assert!(*at >= last);
            last = *at;
        }
    }

    /// A tree of incoming packets that holds nothing back changes nothing about the tree behind it, which still tells hosts and flows
    /// behind a masquerade apart.
    #[test]
    fn a_tree_behind_another_shares_by_ends_inside(queues in trees(), packets in traffic()) {
        prop_assume!(queues.contains("on = \"wan\""));
        let queues = queues.replace("scheduler = \"fq\"\n", "scheduler = \"fq\"\nisolate = \"source\"\n");
        let queues = format!(
            "[[nat]]\nname = \"office\"\nkind = \"masquerade\"\nfrom = \"lan\"\nto = \"wan\"\n{queues}"
        );
        let before = "[[queue]]\nname = \"inside\"\nfrom = \"lan\"\n";
        // Some random trees ask for more than they carry.
        prop_assume!(compiled(&queues).is_ok());
        let outcome = departures(&queues, &packets);
        prop_assert_eq!(outcome, departures(&format!("{queues}{before}"), &packets));
    }
}
