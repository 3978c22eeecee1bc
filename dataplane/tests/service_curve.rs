//! The service of each scheduler beside a fluid one, within the bound that is proven of it.
//!
//! The reference is generalised processor sharing (GPS) with all classes backlogged, the least that it gives a class: its weight's share
//! of the link, as if it had a link of its own. A packet ends no later than there, plus a latency that depends on the scheduler alone:
//!
//! - Deficit round robin: 3F - 2f, of a frame F of all turns and its own f (Stiliadis and Varma 1998, after Shreedhar and Varghese
//!   1996); here a turn may run into debt by less than a packet, and a turn is no shorter than a packet.
//! - Start-time fair queueing: a packet of each other class and its own, less what its own takes at its share (Goyal, Vin and Cheng
//!   1997, theorem 4).
//! - Strict priority: a packet of a lower class, against a fluid link for the class and those above it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::queues::{Outcome, Packet, departures};

/// Bits a second of the link.
const RATE: u64 = 10_000_000;

/// Longest packet, in bytes.
const LONGEST: u64 = 1_500;

/// Bytes of a turn of weight 1.
const QUANTUM: u64 = 1_514;

/// Code points of the classes.
const POINTS: [u8; 5] = [10, 18, 26, 34, 0];

/// Time of bytes on the link, in nanoseconds.
fn on_link(bytes: u64) -> f64 {
    bytes as f64 * 8e9 / RATE as f64
}

fn tree(scheduler: &str, weights: &[u64], quantum: u64, room: u32) -> String {
    let quantum = if scheduler == "drr" { format!("quantum = {quantum}\n") } else { String::new() };
    let mut text = format!(
        "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"{RATE} bit/s\"\noverhead = \"ip\"\nscheduler = \"{scheduler}\"\n{quantum}"
    );
    for (place, weight) in weights.iter().enumerate() {
        let phb =
            if place + 1 < weights.len() { format!("phb = \"af{}\"\n", place + 1) } else { String::new() };
        let weight = if scheduler == "strict" { String::new() } else { format!("weight = {weight}\n") };
        text += &format!("[[queue]]\nname = \"q{place}\"\nin = \"root\"\n{phb}{weight}limit = {room}\n");
    }
    text + &format!("[limit]\nqueue = {room}\n")
}

/// Code points of as many classes, the last of which is the rest.
fn points(classes: usize) -> Vec<u8> {
    let mut points = POINTS[..classes - 1].to_vec();
    points.push(0);
    points
}

/// Classes' weights, and packets of bursts, pauses and steady times: some classes flood, others send a packet now and then.
fn scene() -> impl Strategy<Value = (Vec<u64>, Vec<Packet>)> {
    let burst =
        (0_usize..5, 1_usize..60, 28_u64..=LONGEST, 28_u64..=LONGEST, 0_u64..20_000_000, 0_u64..3_000_000);
    (prop::collection::vec(1_u64..9, 2..=5), prop::collection::vec(burst, 1..40)).prop_map(
        |(weights, bursts)| {
            let (mut packets, mut now) = (Vec::new(), 0);
            let points = points(weights.len());
            for (class, count, bytes, others, pause, gap) in bursts {
                now += pause;
                for n in 0..count as u64 {
                    let bytes = if n % 3 == 2 { others } else { bytes };
                    packets.push(Packet::of(now + n * gap, points[class % weights.len()], bytes as usize));
                }
            }
            packets.sort_by_key(|packet| packet.at);
            (weights, packets)
        },
    )
}

/// Ends of the packets of each class on a link, by their numbers.
fn ends(outcome: &Outcome) -> BTreeMap<u32, f64> {
    let end = |(number, at, _, bytes): &(u32, u64, u8, usize)| (*number, *at as f64 + on_link(*bytes as u64));
    outcome.departed.iter().map(end).collect()
}

/// Asserts that each packet of a class ends by its end on a fluid link of `rate`, and `latency` later at most.
fn lags_by_no_more(
    packets: &[Packet],
    ends: &BTreeMap<u32, f64>,
    point: u8,
    rate: f64,
    latency: impl Fn(u64) -> f64,
) -> Result<(), TestCaseError> {
    let mut fluid = 0.0_f64;
    for (number, packet) in (0..).zip(packets).filter(|(_, packet)| packet.field >> 2 == point) {
        fluid = fluid.max(packet.at as f64) + packet.bytes as f64 * 8e9 / rate;
        let due = fluid + latency(packet.bytes as u64);
        // Moments are whole nanoseconds.
        prop_assert!(ends[&number] <= due + 2.0, "packet {number} ends at {}, due {due}", ends[&number]);
    }
    Ok(())
}

/// Asserts that the link is never idle while a packet waits.
fn conserves_work(packets: &[Packet], outcome: &Outcome) -> Result<(), TestCaseError> {
    let mut arrivals: Vec<u64> = packets.iter().map(|packet| packet.at).collect();
    arrivals.sort_unstable();
    let mut free = 0.0_f64;
    for (count, (_, at, _, bytes)) in outcome.departed.iter().enumerate() {
        let at = *at as f64;
        if at > free + 2.0 {
            // All that had come by then was gone: the next arrival begins it.
            prop_assert_eq!(at, arrivals[count] as f64, "idle from {}", free);
        }
        free = at + on_link(*bytes as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn deficit_round_robin_lags_by_its_frame((weights, packets) in scene()) {
        let outcome = departures(&tree("drr", &weights, QUANTUM, 4_096), &packets);
        conserves_work(&packets, &outcome)?;
        let ends = ends(&outcome);
        let sum: u64 = weights.iter().sum();
        for (weight, point) in weights.iter().zip(points(weights.len())) {
            let rate = RATE as f64 * *weight as f64 / sum as f64;
            let latency = on_link(3 * sum * QUANTUM - 2 * weight * QUANTUM);
            lags_by_no_more(&packets, &ends, point, rate, |_| latency)?;
        }
    }

    #[test]
    fn start_time_fair_queueing_lags_by_a_packet_of_each((weights, packets) in scene()) {
        let outcome = departures(&tree("wfq", &weights, QUANTUM, 4_096), &packets);
        conserves_work(&packets, &outcome)?;
        let ends = ends(&outcome);
        let sum: u64 = weights.iter().sum();
        let longest = |point: u8| {
            let of = packets.iter().filter(|packet| packet.field >> 2 == point);
            of.map(|packet| packet.bytes as u64).max().unwrap_or(0)
        };
        let points = points(weights.len());
        for (weight, point) in weights.iter().zip(&points) {
            let rate = RATE as f64 * *weight as f64 / sum as f64;
            let others: u64 = points.iter().filter(|other| *other != point).map(|other| longest(*other)).sum();
            let own = |bytes: u64| on_link(bytes) - bytes as f64 * 8e9 / rate;
            // Tags are of 2^-16 bytes; each packet's may be that much early.
            lags_by_no_more(&packets, &ends, *point, rate, |bytes| on_link(others) + own(bytes) + 100.0)?;
        }
    }

    #[test]
    fn strict_priority_lags_by_one_packet((weights, packets) in scene()) {
        let outcome = departures(&tree("strict", &weights, QUANTUM, 4_096), &packets);
        conserves_work(&packets, &outcome)?;
        let points = points(weights.len());
        for last in 0..points.len() {
            // A class and those above it have the link for themselves, but for the packet that is on it.
            let above = &points[..=last];
            let is_above = |field: u8| above.contains(&(field >> 2));
            let (mut fluid, mut due) = (0.0_f64, Vec::new());
            for packet in packets.iter().filter(|packet| is_above(packet.field)) {
                fluid = fluid.max(packet.at as f64) + on_link(packet.bytes as u64);
                due.push((packet.bytes as u64, fluid));
            }
            // The curve of the fluid service: bytes by a moment.
            let total = |moment: f64| -> f64 {
                let at = |(bytes, end): &(u64, f64)| (1.0 - (end - moment) / on_link(*bytes)).clamp(0.0, 1.0) * *bytes as f64;
                due.iter().map(at).sum()
            };
            let mut served = 0_u64;
            for (_, at, field, bytes) in &outcome.departed {
                if is_above(*field) {
                    let lag = total(*at as f64) - served as f64;
                    prop_assert!(lag <= LONGEST as f64 + 1.0, "{lag} bytes behind at {at}");
                    served += *bytes as u64;
                }
            }
        }
    }

    /// Backlogged classes of deficit round robin have sent their weights' shares within 1 % after 10,000 packets, whatever the sizes;
    /// those of start-time fair queueing, too.
    #[test]
    fn weights_hold_over_ten_thousand_packets(
        weights in prop::collection::vec(1_u64..5, 2..=4),
        sizes in prop::collection::vec((28_u64..=LONGEST, 28_u64..=LONGEST), 5),
        scheduler in prop::sample::select(vec!["drr", "wfq"]),
    ) {
        let points = points(weights.len());
        let mut packets = Vec::new();
        let sum: u64 = weights.iter().sum();
        // Enough of each for its share of the bytes, were all others' packets as long as possible.
        for ((weight, point), (short, long)) in weights.iter().zip(&points).zip(&sizes) {
            let average = (short + long) / 2;
            let longest = sizes.iter().map(|(short, long)| (short + long) / 2).max().unwrap();
            let count = (10_000 * longest * weight / sum / average).clamp(10, 19_000);
            packets.extend((0..count).map(|n| {
                Packet::of(0, *point, if n * n % 7 < 3 { *short } else { *long } as usize)
            }));
        }
        // A turn of about a packet: small packets in large turns share by turns, and 10,000 of those are few.
        let turn = sizes.iter().map(|(short, long)| short.max(long)).max().unwrap().max(&64);
        let outcome = departures(&tree(scheduler, &weights, *turn / 4 + 64, 65_536), &packets);
        let mut left: BTreeMap<u8, usize> = BTreeMap::new();
        packets.iter().for_each(|packet| *left.entry(packet.field >> 2).or_default() += 1);
        let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
        for (_, _, field, bytes) in outcome.departed.iter().take(10_000) {
            let left = left.get_mut(&(field >> 2)).unwrap();
            *left -= 1;
            if *left == 0 {
                break;
            }
            *sums.entry(field >> 2).or_default() += *bytes as u64;
        }
        let all: u64 = sums.values().sum();
        for (weight, point) in weights.iter().zip(&points) {
            let due = all as f64 * *weight as f64 / sum as f64;
            let found = sums.get(point).copied().unwrap_or(0) as f64;
            // Where the packets of one class were used up early there are too few for one per cent.
            let tolerance = (0.01 * due).max(2.0 * LONGEST as f64);
            prop_assert!((found - due).abs() <= tolerance, "{scheduler} {point}: {found}, due {due}");
        }
    }

    /// Flows of a leaf with fair queueing that are backlogged have sent the same, within a turn and a packet of each of two, and the
    /// link is never idle.
    #[test]
    fn fair_queueing_serves_backlogged_flows_alike(
        flows in 2_u16..20,
        sizes in prop::collection::vec(28_usize..=1_500, 20),
        extra in prop::collection::vec((0_u64..2_000_000_000, 28_usize..=1_500), 0..60),
    ) {
        let mut packets: Vec<Packet> = (0..200_u16)
            .flat_map(|_| 0..flows)
            .map(|flow| Packet { sport: 1_000 + flow, ..Packet::of(0, 0, sizes[usize::from(flow)]) })
            .collect();
        packets.extend(extra.iter().map(|(at, bytes)| Packet { sport: 9, ..Packet::of(*at, 0, *bytes) }));
        packets.sort_by_key(|packet| packet.at);
        let queues = format!(
            "[[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"{RATE} bit/s\"\noverhead = \"ip\"\nscheduler = \"fq\"\nlimit = 8192\n[limit]\nqueue = 8192\n"
        );
        let outcome = departures(&queues, &packets);
        conserves_work(&packets, &outcome)?;
        let mut sums = vec![(0_u64, 0_usize); usize::from(flows)];
        for (number, _, _, bytes) in &outcome.departed {
            let flow = packets[*number as usize].sport.wrapping_sub(1_000);
            let Some((sum, count)) = sums.get_mut(usize::from(flow)) else { continue };
            *sum += *bytes as u64;
            *count += 1;
            let last = *count;
            let [least, most] = [sums.iter().map(|(sum, _)| *sum).min(), sums.iter().map(|(sum, _)| *sum).max()];
            prop_assert!(most.unwrap() - least.unwrap() <= 2 * (QUANTUM + LONGEST), "{sums:?}");
            if last == 200 {
                break;
            }
        }
    }
}
