//! Queues under adverse input: clocks that stand, jump and differ, extreme rates, and floods of subscribers.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Tables, Verdict};
use wire::build;
use wire::ethernet::Mac;
use wire::{Frame, Nanos, PortId};

use crate::queues::{Outcome, Packet, SECOND, START, departures, play, tables};

const HOUR: u64 = 3_600 * SECOND;

/// Trees with one of everything that has a clock of its own.
fn clocked() -> Vec<String> {
    let mut all = Vec::new();
    for drop in ["tail", "red\"\nred = \"10-200 10%", "codel", "pie", "dualpi2"] {
        for fair in ["", "scheduler = \"fq\"\n"] {
            if fair.is_empty() || drop != "dualpi2" {
                all.push(format!(
                    "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"10 Mbit/s\"\noverhead = \"ip\"\n\
                     [[queue]]\nname = \"a\"\nin = \"root\"\nphb = \"ef\"\nrate = \"2 Mbit/s\"\nguarantee = \"1 Mbit/s\"\nlimit = 400\n\
                     [[queue]]\nname = \"b\"\nin = \"root\"\ndrop = \"{drop}\"\n{fair}limit = 400\n"
                ));
            }
        }
    }
    all
}

/// Packets of 1,000 bytes: `count` of them, `gap` apart, every fourth one of EF, from a moment on.
fn steady(from: u64, count: u64, gap: u64) -> impl Iterator<Item = Packet> {
    (0..count).map(move |n| Packet::of(from + n * gap, if n % 4 == 0 { 46 } else { 0 }, 1_000))
}

/// All packets of one moment: what there is room for departs at the rate, the rest is dropped, and time that stands costs nothing.
#[test]
fn time_that_stands() {
    for queues in clocked() {
        let packets: Vec<Packet> = steady(7, 1_000, 0).collect();
        let outcome = departures(&queues, &packets);
        // Of 750 there is room for 400, or fewer.
        assert!((350..700).contains(&outcome.dropped.len()), "{}", outcome.dropped.len());
        // 2 Mbit/s of EF end last.
        let last = outcome.departed.last().unwrap().1;
        assert!(last < 2 * SECOND, "{last}");
    }
}

/// An hour without packets, with some that wait, or none: what comes then finds all as new, at once.
#[test]
fn time_that_jumps_an_hour_ahead() {
    for queues in clocked() {
        // Some have to wait when the hour begins: by the time that it ends they are gone.
        let first: Vec<Packet> = steady(0, 600, 500_000).collect();
        let packets: Vec<Packet> = first.iter().copied().chain(steady(HOUR, 40, 1_000_000)).collect();
        let began = Instant::now();
        let outcome = departures(&queues, &packets);
        assert!(began.elapsed() < Duration::from_secs(10), "the hour was waited for");
        let late: Vec<&(u32, u64, u8, usize)> =
            outcome.departed.iter().filter(|(number, ..)| *number >= 600).collect();
        assert_eq!(late.len(), 40, "{queues}");
        assert!(late.iter().all(|(number, at, ..)| at - packets[*number as usize].at < 5_000_000));
        // The hour before made no difference to what went before it.
        let alone = departures(&queues, &first);
        assert_eq!(outcome.departed[..alone.departed.len()], alone.departed[..]);
    }
}

/// A host that does not ask for an hour gets what departed in the meantime, and asks on.
#[test]
fn a_host_that_sleeps_for_an_hour() {
    for queues in clocked() {
        let packets: Vec<Packet> = steady(0, 600, 500_000).collect();
        let (asked, _) = play(tables(&queues), Way::Run, &packets, &[]);
        let (slept, _) = play(tables(&queues), Way::Run, &packets, &[3, HOUR]);
        assert_eq!(asked, slept);
    }
}

/// Packets of two captures whose clocks differ come by turns: time goes back with every other one. All are accounted for, in bounded
/// time, and those that wait do not wait for an hour.
#[test]
fn clocks_that_differ() {
    for queues in clocked() {
        let mut replay = Replay::new(tables(&queues), Nanos(START + HOUR), Way::Run).expect("memory");
        let mut outcome = Outcome::default();
        let began = Instant::now();
        for (number, packet) in (0_u32..).zip(steady(0, 1_000, 500_000)) {
            let ahead = if number % 2 == 0 { HOUR } else { HOUR - 250 * 1_000_000 };
            let at = Nanos(START + ahead + packet.at);
            replay.receive(PortId(0), at, number, &packet.frame(), &mut outcome);
        }
        replay.finish(&mut outcome);
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(outcome.departed.len() + outcome.dropped.len(), 1_000);
        let counters = &replay.shard.counters;
        assert!(counters.are_conserved() && counters.queued() == 0, "{counters:?}");
    }
}

/// The lowest and the highest rates that a policy may say.
#[test]
fn extreme_rates() {
    let root = |rate: &str, burst: &str| {
        format!("[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"{rate}\"\n{burst}overhead = \"ip\"\n")
    };
    // A packet of 1,000 bytes takes 0.8 ns.
    let packets: Vec<Packet> = steady(0, 64, 0).collect();
    let outcome = departures(&root("10 Tbit/s", ""), &packets);
    for (number, (_, at, ..)) in (0_u64..).zip(&outcome.departed) {
        assert!(at.abs_diff(number * 8 / 10) <= 1, "{number} at {at}");
    }
    // One takes 8,000 seconds; the moments stay exact over days.
    let outcome = departures(&root("1 bit/s", ""), &packets[..20]);
    for (number, (_, at, ..)) in (0_u64..).zip(&outcome.departed) {
        assert_eq!(*at, number * 8_000 * SECOND);
    }
    // All that waits fits the largest burst.
    let outcome = departures(&root("1 bit/s", "burst = 1000000000\n"), &packets);
    assert!(outcome.departed.iter().all(|(_, at, ..)| *at == 0));
}

/// Each packet is of another address: instances that are at rest make room, and where none is, strangers share one; memory is that of
/// the beginning, and counters are right.
fn flood(addresses: u32) {
    #[derive(Default)]
    struct Count {
        sent: u64,
        dropped: u64,
        worst: u64,
    }
    impl Witness for Count {
        fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
            self.sent += 1;
            self.worst = self.worst.max(at.since(frame.meta.received).0);
        }

        fn ended(&mut self, _: &Frame, verdict: Verdict) {
            assert_eq!(verdict, Verdict::Dropped(Reason::QueueFull));
            self.dropped += 1;
        }
    }
    let text = "mode = \"stateless\"\n[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/8\"]\n\
        [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"lan > wan\" = \"accept\"\n\
        [[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"100 Mbit/s\"\noverhead = \"ip\"\n\
        [[queue]]\nname = \"subscriber\"\nin = \"root\"\nper = \"source\"\ninstances = 4096\nrate = \"10 Mbit/s\"\n\
        [[queue]]\nname = \"voice\"\nin = \"subscriber\"\nphb = \"ef\"\nlimit = 16\n\
        [[queue]]\nname = \"data\"\nin = \"subscriber\"\npriority = 1\nlimit = 64\n";
    let policy = policy::check(text, "flood.toml").policy.expect("a sound policy");
    let tables = Tables::compile(&policy, 1).expect("tables");
    let mut replay = Replay::new(tables, Nanos(START), Way::Run).expect("memory");
    let before = replay.shard.memory_bytes();
    let mut count = Count::default();
    for number in 0..addresses {
        // 2.5 times as much as the link carries.
        let bytes = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]))
            .ipv4(Ipv4Addr::from(0x0a00_0002 + number), [203, 0, 113, 9].into())
            .udp(1, 2)
            .payload(&[0; 72])
            .to_vec();
        replay.receive(PortId(0), Nanos(START + u64::from(number) * 3_200), number, &bytes, &mut count);
    }
    replay.finish(&mut count);
    let counters = &replay.shard.counters;
    assert!(counters.are_conserved() && counters.queued() == 0, "{counters:?}");
    assert_eq!(count.sent + count.dropped, u64::from(addresses));
    assert_eq!(replay.shard.memory_bytes(), before, "allocated at the start");
    let tree = replay.shard.egress.trees().next().unwrap();
    assert_eq!(tree.subscribers, 4_096);
    let leaves = tree.leaves().fold((0, 0), |(sent, full), (_, leaf)| (sent + leaf.sent, full + leaf.full));
    assert_eq!(leaves, (count.sent, count.dropped));
    assert!(count.dropped > u64::from(addresses) / 2, "{}", count.dropped);
    // Each of 4,096 instances has a packet, of 8 us; those who share one wait in its queue of 64, of which a turn takes 15.
    assert!(count.worst < 6 * 4_096 * 8_000, "{}", count.worst);
}

/// Ten million addresses where `WIRERATE_LONG` is set, which takes minutes in a debug build.
#[test]
fn a_flood_of_subscribers() {
    flood(if std::env::var_os("WIRERATE_LONG").is_some() { 10_000_000 } else { 400_000 });
}
