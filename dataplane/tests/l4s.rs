//! L4S: a classic sender and a scalable one share a link with DualPI2 (RFC 9332), each in its own way.
//!
//! Senders are models: windows of packets, acknowledged a round trip after their departure. The classic one halves its window, nearly,
//! where a packet is lost or marked (Reno, and Cubic on links as slow as this one, RFC 9438, section 4.3); the scalable one lowers it by
//! half the share of its packets that were marked (DCTCP, RFC 8257).

use std::collections::{HashMap, VecDeque};

use dataplane::replay::{Way, Witness};
use dataplane::{Reason, Replay, Verdict};
use wire::{Frame, Nanos, PortId};

use crate::queues::{Packet, SECOND, START, departures, tables};

/// Round trip without queues.
const ROUND_TRIP: u64 = 20_000_000;

/// Time between events.
const TICK: u64 = 100_000;

const BYTES: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    None,
    Mark,
    Loss,
}

/// A sender, with its window in packets.
#[derive(Debug)]
struct Sender {
    is_scalable: bool,
    /// ECN field of its packets.
    ecn: u8,
    window: f64,
    is_starting: bool,
    in_flight: usize,
    /// Signals under way to the sender, and when they arrive.
    acknowledgements: VecDeque<(u64, Signal)>,
    /// End of the round trip that has lowered the window.
    lowered_until: u64,
    /// Share of packets marked, of the scalable sender; packets and marks of this round trip.
    alpha: f64,
    round: (u64, u32, u32),
    delivered: Vec<(u64, u64)>,
    losses: u32,
}

impl Sender {
    fn new(is_scalable: bool, ecn: u8) -> Sender {
        Sender {
            is_scalable,
            ecn,
            window: 10.0,
            is_starting: true,
            in_flight: 0,
            acknowledgements: VecDeque::new(),
            lowered_until: 0,
            alpha: 1.0,
            round: (0, 0, 0),
            delivered: Vec::new(),
            losses: 0,
        }
    }

    fn acknowledge(&mut self, now: u64) {
        while let Some((_, signal)) = self.acknowledgements.front().copied().filter(|(at, _)| *at <= now) {
            self.acknowledgements.pop_front();
            self.in_flight -= 1;
            let (end, packets, marks) = &mut self.round;
            *packets += 1;
            *marks += u32::from(signal == Signal::Mark);
            if now >= *end {
                let share = f64::from(*marks) / f64::from(*packets);
                self.alpha += (share - self.alpha) / 16.0;
                self.round = (now + ROUND_TRIP, 0, 0);
            }
            self.losses += u32::from(signal == Signal::Loss);
            if signal == Signal::None {
                self.window += if self.is_starting { 1.0 } else { 1.0 / self.window };
                continue;
            }
            if now < self.lowered_until {
                continue;
            }
            self.lowered_until = now + ROUND_TRIP;
            let by = if self.is_scalable && signal == Signal::Mark { self.alpha / 2.0 } else { 0.5 };
            self.window = (self.window * (1.0 - by)).max(2.0);
            self.is_starting = false;
        }
    }
}

/// Departures and drops since the last look: number, moment, marked or lost.
#[derive(Default)]
struct Events(Vec<(u32, u64, Signal)>);

impl Witness for Events {
    fn sent(&mut self, _: PortId, at: Nanos, frame: &Frame, _: Option<Verdict>) {
        let signal = if frame.bytes()[15] & 3 == 3 { Signal::Mark } else { Signal::None };
        self.0.push((frame.meta.number, at.0 - START, signal));
    }

    fn ended(&mut self, frame: &Frame, _: Verdict) {
        self.0.push((frame.meta.number, u64::MAX, Signal::Loss));
    }
}

/// Lets senders share a link of 20 Mbit/s with these queues for a time.
fn share(queues: &str, senders: &mut [Sender], seconds: u64) -> Replay {
    let text = format!(
        "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"20 Mbit/s\"\noverhead = \"ip\"\n{queues}"
    );
    let mut replay = Replay::new(tables(&text), Nanos(START), Way::Run).expect("memory");
    let (mut events, mut next, mut sent) = (Events::default(), 0_u32, HashMap::new());
    for now in (0..seconds * SECOND).step_by(TICK as usize) {
        replay.advance(Nanos(START + now), &mut events);
        for (number, at, signal) in events.0.drain(..) {
            let (place, since): (usize, u64) = sent.remove(&number).expect("it was sent");
            let at = at.min(now);
            let sender: &mut Sender = &mut senders[place];
            if signal != Signal::Loss {
                sender.delivered.push((at, at - since));
            }
            sender.acknowledgements.push_back((at + ROUND_TRIP, signal));
        }
        for (place, sender) in senders.iter_mut().enumerate() {
            sender.acknowledge(now);
            // Paced by acknowledgements, and two at once at most.
            let room = (sender.window as usize).saturating_sub(sender.in_flight).min(2);
            for _ in 0..room {
                let packet = Packet {
                    at: now,
                    host: 10,
                    sport: 1_000 + place as u16,
                    field: sender.ecn,
                    bytes: BYTES,
                };
                replay.receive(PortId(0), Nanos(START + now), next, &packet.frame(), &mut events);
                sent.insert(next, (place, now));
                sender.in_flight += 1;
                next += 1;
            }
        }
    }
    replay
}

/// Rate in Mbit/s, and mean and 99th percentile of the delay in milliseconds, from the tenth second on.
fn measure(sender: &Sender, seconds: u64) -> (f64, f64, f64) {
    let from = 10 * SECOND;
    let mut delays: Vec<u64> =
        sender.delivered.iter().filter(|(at, _)| *at >= from).map(|(_, delay)| *delay).collect();
    delays.sort_unstable();
    let rate = (delays.len() * BYTES * 8) as f64 / (seconds - 10) as f64 / 1e6;
    let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64 / 1e6;
    (rate, mean, delays[delays.len() * 99 / 100] as f64 / 1e6)
}

/// The link is full, each sender has its share but for a factor that their round trips explain (the classic queue is a part of one), the
/// scalable one's packets wait for a millisecond, and none of them is lost.
#[test]
fn classic_and_scalable_senders_share_a_link() {
    for classic_ecn in [0, 2] {
        let mut senders = [Sender::new(false, classic_ecn), Sender::new(true, 1)];
        let replay = share("drop = \"dualpi2\"\nlimit = 1000\n", &mut senders, 60);
        let [classic, scalable] = &senders;
        let (classic_rate, classic_delay, _) = measure(classic, 60);
        let (scalable_rate, scalable_delay, scalable_worst) = measure(scalable, 60);
        println!(
            "ECN {classic_ecn}: classic {classic_rate:.2} Mbit/s, {classic_delay:.2} ms; \
             L4S {scalable_rate:.2} Mbit/s, {scalable_delay:.3} ms, 99 %: {scalable_worst:.3} ms"
        );
        assert!(classic_rate + scalable_rate > 18.5, "{classic_rate} {scalable_rate}");
        let ratio = scalable_rate / classic_rate;
        assert!((0.5..2.5).contains(&ratio), "{ratio}");
        assert!((5.0..25.0).contains(&classic_delay), "{classic_delay}");
        assert!(scalable_delay < 1.5 && scalable_worst < 4.0, "{scalable_delay} {scalable_worst}");
        assert_eq!(scalable.losses, 0);
        assert_eq!(
            classic.losses == 0,
            classic_ecn == 2,
            "a classic sender loses packets that cannot be marked"
        );
        // The two queues are counted by themselves.
        let tree = replay.shard.egress.trees().next().unwrap();
        let rows: Vec<(String, u64, u64, u64)> = tree
            .leaves()
            .map(|(name, counts)| (name.into_owned(), counts.sent, counts.early, counts.marked))
            .collect();
        let [(name, sent, early, marked), (low_name, low_sent, low_early, low_marked)] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!((name.as_str(), low_name.as_str()), ("root", "root/l4s"));
        assert_eq!([*sent, *low_sent], [classic, scalable].map(|sender| sender.delivered.len() as u64));
        assert_eq!((*early == 0, *marked == 0), (classic_ecn == 2, classic_ecn == 0));
        assert!(*low_early == 0 && *low_marked > 100, "{rows:?}");
    }
}

/// In one queue that signals both alike the scalable sender, which halves its window for many marks alone, leaves the classic one next to
/// nothing: the senders of the test above do differ.
#[test]
fn the_simulation_can_tell() {
    let mut senders = [Sender::new(false, 2), Sender::new(true, 1)];
    share("drop = \"codel\"\necn = true\nlimit = 1000\n", &mut senders, 30);
    let [classic, scalable] = senders.map(|sender| sender.delivered.len() as f64);
    assert!(scalable / classic > 3.0, "{scalable} {classic}");
}

/// Each dropper marks packets of capable transports in the place of drops, ECT(0) and ECT(1) alike, leaves CE as it is, and drops what
/// does not know marks; the header's checksum stays right.
#[test]
fn each_dropper_marks_what_can_be_marked() {
    struct Checksums(u32);
    impl Witness for Checksums {
        fn ended(&mut self, _: &Frame, _: Verdict) {}

        fn sent(&mut self, _: PortId, _: Nanos, frame: &Frame, _: Option<Verdict>) {
            let words =
                frame.bytes()[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
            let sum: u32 = words.sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{:x?}", &frame.bytes()[14..34]);
            self.0 += u32::from(frame.bytes()[15] & 3 == 3);
        }
    }
    for drop in
        ["red\"\nred = \"20-2000 50%\"\necn = true", "codel\"\necn = true", "pie\"\necn = true", "dualpi2\""]
    {
        for ecn in 0..4_u8 {
            let queues = format!(
                "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"10 Mbit/s\"\noverhead = \"ip\"\nlimit = 5000\ndrop = \"{drop}\n"
            );
            // Seven per cent more than the rate, for two seconds.
            let packets: Vec<Packet> = (0..2_700)
                .map(|n| Packet { field: 184 | ecn, ..Packet::of(n * 750_000, 0, 1_000) })
                .collect();
            let outcome = departures(&queues, &packets);
            let early = outcome.dropped.iter().filter(|(_, reason)| *reason == Reason::EarlyDrop).count();
            let marked = outcome.departed.iter().filter(|(_, _, field, _)| field & 3 == 3).count();
            assert!(outcome.departed.iter().all(|(_, _, field, _)| field >> 2 == 46), "the code point stays");
            match ecn {
                0 => assert!(early > 5 && marked == 0, "{drop} {early} {marked}"),
                3 => assert!(marked == outcome.departed.len(), "{drop} {early}"),
                // PIE drops from a probability of a tenth on, and DualPI2 where marks have no effect (RFC 9332, section 4.2.3).
                _ => assert!(
                    (early == 0 || drop.starts_with("pie") || drop.starts_with("dualpi2"))
                        && marked > 5
                        && marked < packets.len(),
                    "{drop} {ecn} {early} {marked}"
                ),
            }
            let mut replay = Replay::new(tables(&queues), Nanos(START), Way::Run).expect("memory");
            let mut checksums = Checksums(0);
            for (number, packet) in (0..).zip(&packets) {
                replay.receive(PortId(0), Nanos(START + packet.at), number, &packet.frame(), &mut checksums);
            }
            replay.finish(&mut checksums);
            assert_eq!(checksums.0 as usize, marked);
        }
    }
}
