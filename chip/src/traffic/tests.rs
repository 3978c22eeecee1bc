//! Tests of generated traffic against its description.

use std::collections::BTreeSet;

use dataplane::replay::{Way, Witness};
use dataplane::{Replay, Tables, Verdict};
use wire::tcp::{self, Flags};
use wire::{BitRate, Bytes, Frame, Nanos, PortId, ethernet, ipv4, udp};

use super::address::Ends;
use super::{
    Arrivals, BadStream, Begin, Flows, Generator, KEYS, Lines, Merge, Rate, Size, Stream, TrafficError, Ways,
};
use crate::description::{PortKind, Ports};
use crate::host::{Entry, Plug, Traffic, Wiring};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/24"]
mac = "02:00:00:00:00:01"
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
mac = "02:00:00:00:00:02"
[default]
"lan > wan" = "accept"
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "out"
kind = "masquerade"
from = "lan"
to = "wan"
"#;

/// A port of a gigabit and one of a tenth of it, with 24 bytes beside each frame as captured.
fn ports() -> Ports {
    let kind = |rate| PortKind { name: None, count: 1, rate: BitRate(rate), gap: Bytes(24), fifo: None };
    Ports(vec![kind(1_000_000_000), kind(100_000_000)])
}

fn generate(stream: &Stream, tables: &Tables, seed: u64) -> Result<Generator, TrafficError> {
    let wiring = Wiring::new(tables, &[]);
    let ports = Ports(vec![ports().0.remove(0)]);
    Generator::new(stream, tables, Lines { ports: &ports, wiring: &wiring }, START, seed)
}

const START: Nanos = Nanos::from_secs(1_000);

fn tables() -> Tables {
    let checked = policy::check(POLICY, "test");
    Tables::compile(&checked.policy.unwrap(), 1).unwrap()
}

fn generator(text: &str, seed: u64) -> Generator {
    generate(&text.parse().unwrap(), &tables(), seed).unwrap()
}

fn all(mut generator: Generator) -> Vec<(Entry, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    while let Some(entry) = generator.next(&mut bytes) {
        frames.push((entry, std::mem::take(&mut bytes)));
    }
    frames
}

/// Gaps between frames in nanoseconds.
fn gaps(frames: &[(Entry, Vec<u8>)]) -> Vec<f64> {
    frames.windows(2).map(|pair| pair[1].0.at.since(pair[0].0.at).0 as f64).collect()
}

#[test]
fn text_says_what_is_generated() {
    let stream = |text: &str| text.parse::<Stream>();
    assert_eq!(stream("lan>wan").unwrap(), Stream::new("lan", "wan"));
    let text = "lan > wan, size=imix, rate=2.5mpps, arrivals=on-off:100us/1ms, flows=10k, frames=2m, both, established, \
                protocol=tcp, source=10.1.0.0/16, destination=2001:db8::1, dport=80";
    let asked = stream(text).unwrap();
    assert_eq!((asked.size, asked.rate, asked.frames), (Size::Imix, Rate::Frames(2.5e6), 2_000_000));
    assert_eq!(asked.arrivals, Arrivals::OnOff { on: Nanos(100_000), off: Nanos(1_000_000) });
    assert_eq!((asked.flows, asked.ways, asked.dport), (Flows::Fixed(10_000), Ways::Both, 80));
    assert_eq!(asked.destination.unwrap().to_string(), "2001:db8::1/128");
    assert_eq!(stream("a>b,rate=40%").unwrap().rate, Rate::Line(0.4));
    assert_eq!(stream("a>b,rate=900Mbit").unwrap().rate, Rate::Bits(9e8));
    assert_eq!(stream("a>b,flows=each").unwrap().flows, Flows::Each);
    let asked = stream("a>b,protocol=tcp,both,segments=14,size=normal:88/15:58-117").unwrap();
    assert_eq!(asked.size, Size::Normal { mean: 88, deviation: 15, least: 58, most: 117 });
    assert_eq!((asked.segments, asked.begin), (Some(14), Begin::Fresh));
    assert_eq!(stream("a>b,stray").unwrap().begin, Begin::Stray);
}

#[test]
fn text_that_is_wrong_is_told_where_and_what_would_do() {
    let wrong = |text: &str| text.parse::<Stream>().unwrap_err();
    for text in ["", "lan", "lan>", ">wan", "lan>lan", "size=64"] {
        assert!(matches!(wrong(text), BadStream::NoInterfaces { .. }), "{text}");
    }
    assert_eq!(
        wrong("a>b,szie=64").to_string(),
        "`szie` is no key of generated traffic; did you mean `size`?"
    );
    let every = wrong("a>b,quux").to_string();
    for (key, _) in KEYS {
        assert!(every.contains(key.split('=').next().unwrap()), "{key} in {every}");
    }
    assert_eq!(wrong("a>b,both,both"), BadStream::Twice { key: "both" });
    for text in [
        "size=63",
        "size=normal:63/1",
        "size=normal:100",
        "size=normal:100/101",
        "size=normal:100/10:45-200",
        "size=normal:100/10:110-200",
        "size=normal:100/10:58-9001",
        "size=normal:100/10:58",
        "segments=0",
        "stray=1",
        "stray,established",
        "size=9001",
        "size=",
        "size",
        "rate=0%",
        "rate=101%",
        "rate=5",
        "rate=-1mpps",
        "rate=nan%",
        "rate=infmbit",
        "arrivals=on-off",
        "arrivals=on-off:1/2",
        "arrivals=on-off:0ns/1ms",
        "flows=0",
        "flows=10000001",
        "frames=-1",
        "both=yes",
        "established=1",
        "protocol=icmp",
        "source=lan",
        "dport=65536",
    ] {
        assert!(matches!(wrong(&format!("a>b,{text}")), BadStream::BadValue { .. }), "{text}");
    }
    assert!(wrong("a>b,size=1").to_string().contains("64..9000|imix"));
}

#[test]
fn what_cannot_be_generated_is_told() {
    let wrong = |text: &str| match generate(&text.parse().unwrap(), &tables(), 1) {
        Err(error) => error,
        Ok(_) => panic!("{text} can be generated"),
    };
    assert!(matches!(wrong("dmz>wan"), TrafficError::NoInterface { name, .. } if name == "dmz"));
    assert!(matches!(wrong("lan>wan,protocol=tcp"), TrafficError::OneWayTcp));
    for text in ["established", "stray,both", "both,flows=each"] {
        let error = wrong(&format!("lan>wan,protocol=tcp,segments=3,{text}"));
        assert!(matches!(error, TrafficError::NeverClosed), "{text}: {error}");
    }
    assert!(matches!(wrong("lan>wan,both,segments=3"), TrafficError::OnlyTcp { key: "segments" }));
    assert!(matches!(wrong("lan>wan,stray"), TrafficError::OnlyTcp { key: "stray" }));
    let text = "lan>wan,protocol=tcp,established,size=normal:88/15:57-117";
    assert!(matches!(wrong(text), TrafficError::TooSmall { size: 57, least: 58 }));
    assert!(matches!(wrong("lan>wan,destination=2001:db8::1"), TrafficError::NoSource { .. }));
    assert!(matches!(
        wrong("lan>wan,source=10.0.0.0/24,destination=2001:db8::1"),
        TrafficError::Families { .. }
    ));
    let text = "lan>wan,source=2001:db8::/64,destination=2001:db8:1::1,protocol=tcp,both";
    assert!(matches!(wrong(text), TrafficError::TooSmall { size: 64, least: 78 }));
    let text = "lan>wan,source=10.0.0.9/32,destination=192.0.2.1,flows=64001";
    assert!(matches!(wrong(text), TrafficError::TooManyFlows { most: 64_000, .. }));
}

#[test]
fn no_flow_has_the_ends_of_another() {
    let frames = all(generator("lan>wan,flows=each,frames=70000", 1));
    let ends: BTreeSet<String> =
        frames.iter().map(|(_, bytes)| format!("{:?}", Ends::of(bytes).unwrap())).collect();
    assert_eq!(ends.len(), frames.len());
    // Nobody is the gateway, a network or its broadcast address.
    for (_, bytes) in &frames {
        let Ends { source, .. } = Ends::of(bytes).unwrap();
        assert!(!["10.0.0.0", "10.0.0.1", "10.0.0.255"].contains(&source.to_string().as_str()));
    }
    // Fewer hosts take more ports, and then more destinations.
    let few = "lan>wan,source=10.0.0.9/32,destination=192.0.2.0/29,flows=each,frames=130000";
    let frames = all(generator(few, 1));
    let ends: BTreeSet<String> =
        frames.iter().map(|(_, bytes)| format!("{:?}", Ends::of(bytes).unwrap())).collect();
    assert_eq!(ends.len(), frames.len());
}

#[test]
fn frames_come_at_the_rate_that_was_asked_for() {
    // 64 bytes with 20 more on a gigabit line: 672 ns each (RFC 2544).
    let frames = all(generator("lan>wan,frames=10001", 1));
    assert_eq!(frames.len(), 10_001);
    assert_eq!(frames[10_000].0.at.since(START), Nanos(6_720_000));
    let last = |text: &str| {
        let frames = all(generator(text, 1));
        (frames.len() as f64 - 1.0) / frames[frames.len() - 1].0.at.since(START).as_secs_f64()
    };
    let near = |got: f64, asked: f64| assert!((got / asked - 1.0).abs() < 1e-5, "{got} for {asked}");
    near(last("lan>wan,rate=10%"), 1e9 / 672.0 / 10.0);
    near(last("lan>wan,rate=1.3mpps"), 1.3e6);
    near(last("lan>wan,rate=3kpps"), 3e3);
    // 60 bytes are a frame without its check sequence.
    near(last("lan>wan,rate=100mbit"), 1e8 / 480.0);
    near(last("lan>wan,rate=1gbit,size=1518"), 1e9 / (1514.0 * 8.0));
}

#[test]
fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential_distribution() {
    let gaps = gaps(&all(generator("lan>wan,rate=1mpps,arrivals=poisson,frames=200000", 3)));
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
    // Four standard errors: of the mean 1/sqrt(n), of the variance sqrt(8/n).
    assert!((mean / 1e3 - 1.0).abs() < 4.0 / count.sqrt(), "mean {mean}");
    assert!((variance / 1e6 - 1.0).abs() < 4.0 * (8.0 / count).sqrt(), "variance {variance}");
    let longer = gaps.iter().filter(|gap| **gap > 2e3).count() as f64 / count;
    assert!((longer - 0.1353).abs() < 0.004, "e^-2 is 0.1353: {longer}");
}

#[test]
fn bursts_come_at_the_rate_and_pauses_take_their_share() {
    let frames = all(generator("lan>wan,rate=1mpps,arrivals=on-off:100us/300us,frames=400000", 5));
    let gaps = gaps(&frames);
    let within = gaps.iter().filter(|gap| **gap == 1e3).count() as f64 / gaps.len() as f64;
    // A burst has a hundred frames on average.
    assert!((within - 0.99).abs() < 0.001, "{within}");
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    // On a quarter of the time; some 4000 bursts, so within 6 %.
    assert!((mean / 4e3 - 1.0).abs() < 0.06, "{mean}");
}

#[test]
fn the_mix_is_seven_to_four_to_one() {
    let frames = all(generator("lan>wan,size=imix,frames=120000", 2));
    let share = |len: usize| frames.iter().filter(|(_, bytes)| bytes.len() == len).count() as f64 / 1e4;
    for (len, of) in [(60, 7.0), (590, 4.0), (1514, 1.0)] {
        assert!((share(len) - of).abs() < 0.07, "{len}: {}", share(len));
    }
}

#[test]
fn normal_sizes_have_mean_and_deviation_and_stay_within_the_bounds() {
    let moments = |text: &str| {
        let sizes: Vec<f64> =
            all(generator(text, 3)).iter().map(|(_, frame)| frame.len() as f64 + 4.0).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        (mean, variance.sqrt(), sizes.iter().copied().fold(f64::MAX, f64::min))
    };
    let (mean, deviation, _) = moments("lan>wan,size=normal:600/80,frames=20000");
    assert!((mean - 600.0).abs() < 2.0 && (deviation - 80.0).abs() < 2.0, "{mean} {deviation}");
    // Half of a normal distribution: its mean is 0.798 deviations above the bound, and its deviation 0.603.
    let (mean, deviation, least) = moments("lan>wan,size=normal:64/50,frames=20000");
    assert_eq!(least, 64.0);
    assert!(
        (mean - 64.0 - 0.798 * 50.0).abs() < 1.5 && (deviation - 0.603 * 50.0).abs() < 1.5,
        "{mean} {deviation}"
    );
}

/// Sizes of PRO3's study: packets of 40 bytes to less than 100, behind Ethernet headers.
#[test]
fn sizes_are_cut_off_where_it_is_said() {
    let frames = all(generator("lan>wan,size=normal:88/15:58-117,frames=20000", 3));
    let sizes: Vec<usize> = frames.iter().map(|(_, frame)| frame.len() + 4).collect();
    assert!(sizes.iter().all(|size| (58..=117).contains(size)));
    assert!([58, 117].iter().all(|end| sizes.contains(end)), "both ends are met");
    // Cut off at two deviations, about: the mean stays, and the deviation is 0.88 of what it was.
    let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
    let variance = sizes.iter().map(|size| (*size as f64 - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
    assert!((mean - 87.9).abs() < 0.4 && (variance.sqrt() / 15.0 - 0.88).abs() < 0.02, "{mean} {variance}");
    for (_, frame) in &frames {
        let packet = ipv4::parse(ethernet::parse(frame).unwrap().payload).unwrap();
        assert_eq!(udp::parse(packet.payload).unwrap().check(packet.pseudo_header()), udp::Check::Right);
    }
}

#[test]
fn the_same_seed_gives_the_same_frames_and_another_gives_others() {
    let text = "lan>wan,size=imix,arrivals=poisson,both,frames=1000";
    assert_eq!(all(generator(text, 7)), all(generator(text, 7)));
    assert_ne!(all(generator(text, 7)), all(generator(text, 8)));
}

#[test]
fn every_frame_is_whole() {
    for text in [
        "lan>wan,size=imix,frames=500",
        "lan>wan,size=9000,frames=2",
        "lan>wan,protocol=tcp,flows=each,frames=9",
    ] {
        for (entry, bytes) in all(generator(text, 1)) {
            assert_eq!((entry.ingress, entry.original_len as usize), (PortId(0), bytes.len()));
            let layer = ethernet::parse(&bytes).unwrap();
            let packet = ipv4::parse(layer.payload).unwrap();
            assert!(packet.checksum_is_right());
            if text.contains("tcp") {
                assert_eq!(tcp::parse(packet.payload).unwrap().header.flags(), Flags::SYN);
            } else {
                let datagram = udp::parse(packet.payload).unwrap();
                assert_eq!(datagram.check(packet.pseudo_header()), udp::Check::Right);
            }
        }
    }
}

/// A gateway that all frames pass; the generator receives those that leave.
struct Through<'a> {
    generator: &'a mut dyn Traffic,
    sent: [u64; 2],
    dropped: u64,
}

impl Witness for Through<'_> {
    fn sent(&mut self, port: PortId, _: Nanos, frame: &Frame, _: Option<Verdict>) {
        self.sent[usize::from(port.0)] += 1;
        self.generator.left(port, frame.bytes());
    }

    fn ended(&mut self, _: &Frame, _: Verdict) {
        self.dropped += 1;
    }
}

fn through(text: &str) -> (Replay, [u64; 2], u64) {
    let mut replay = Replay::new(tables(), START, Way::Step).unwrap();
    let stream: Stream = text.parse().unwrap();
    let mut generator = generate(&stream, &replay.tables, 1).unwrap();
    if text.contains("established") {
        generator.establish(&mut replay, &stream, START).unwrap();
    }
    let (mut sent, mut dropped) = ([0, 0], 0);
    let mut bytes = Vec::new();
    while let Some(entry) = generator.next(&mut bytes) {
        let mut seen = Through { generator: &mut generator, sent, dropped };
        replay.receive(entry.ingress, entry.at, 0, &bytes, &mut seen);
        replay.flush(&mut seen);
        (sent, dropped) = (seen.sent, seen.dropped);
        bytes.clear();
    }
    (replay, sent, dropped)
}

#[test]
fn answers_find_their_way_back_through_a_translation() {
    for protocol in ["udp", "tcp"] {
        for begin in ["", ",established"] {
            let (replay, sent, dropped) =
                through(&format!("lan>wan,both,flows=50,frames=3000,protocol={protocol}{begin}"));
            assert_eq!((sent, dropped), ([3_000, 3_000], 0), "{protocol}{begin}");
            assert_eq!(replay.shard.flows.created(), 50);
        }
    }
}

/// Segments of a connection: those that open and close it, and the others.
#[test]
fn connections_are_opened_closed_and_begun_again() {
    let text = "lan>wan,both,protocol=tcp,segments=10,flows=100,frames=20000,size=200";
    let mut replay = Replay::new(tables(), START, Way::Step).unwrap();
    let mut generator = generate(&text.parse().unwrap(), &replay.tables, 1).unwrap();
    let (mut counts, mut bytes) = ([0_u32; 4], Vec::new());
    let (mut sent, mut dropped) = ([0, 0], 0);
    while let Some(entry) = generator.next(&mut bytes) {
        let segment =
            tcp::parse(ipv4::parse(ethernet::parse(&bytes).unwrap().payload).unwrap().payload).unwrap();
        let flags = segment.header.flags();
        let kind = match () {
            () if flags.intersects(Flags::SYN) => 0,
            () if flags.intersects(Flags::FIN) => 1,
            () if segment.payload.is_empty() => 2,
            () => 3,
        };
        counts[kind] += 1;
        let mut seen = Through { generator: &mut generator, sent, dropped };
        replay.receive(entry.ingress, entry.at, 0, &bytes, &mut seen);
        replay.flush(&mut seen);
        (sent, dropped) = (seen.sent, seen.dropped);
        bytes.clear();
    }
    // Sequence numbers and states are right throughout, behind a translation.
    assert_eq!((sent, dropped), ([20_000, 20_000], 0));
    let [opening, closing, empty, data] = counts.map(f64::from);
    let connections = f64::from(replay.shard.flows.created() as u32);
    assert!(connections > 1_300.0, "{connections}");
    let each = |count: f64| count / connections;
    // Two of each in a connection, a few of them again; the acknowledgements of both, and ten segments with data each way, about.
    assert!((1.9..2.4).contains(&each(opening)) && (1.8..2.4).contains(&each(closing)), "{counts:?}");
    assert!((1.7..2.6).contains(&each(empty)) && (16.0..22.0).contains(&each(data)), "{counts:?}");
}

#[test]
fn a_segment_that_belongs_to_no_connection_opens_none() {
    let (replay, sent, dropped) = through("lan>wan,protocol=tcp,stray,flows=20,frames=500");
    assert_eq!((replay.shard.flows.created(), sent, dropped), (0, [0, 0], 500));
}

#[test]
fn flows_that_are_set_up_beforehand_are_there() {
    let (replay, sent, _) = through("lan>wan,established,flows=200,frames=0");
    assert_eq!((replay.shard.flows.len(), sent), (200, [0, 0]));
    // One way, without answers, a connection goes on, too.
    let (_, sent, dropped) = through("lan>wan,established,protocol=tcp,flows=20,frames=500");
    assert_eq!((sent, dropped), ([0, 500], 0));
}

#[test]
fn every_frame_may_open_a_flow() {
    let (replay, sent, dropped) = through("lan>wan,flows=each,frames=5000,both");
    assert_eq!((replay.shard.flows.created(), dropped), (5_000, 0));
    assert_eq!(sent[1], 5_000);
    assert!(sent[0] > 4_900, "almost all are answered: {}", sent[0]);
}

#[test]
fn a_flow_that_the_policy_refuses_is_not_set_up() {
    let mut replay = Replay::new(tables(), START, Way::Step).unwrap();
    let stream: Stream = "wan>lan,established".parse().unwrap();
    let mut generator = generate(&stream, &replay.tables, 1).unwrap();
    let error = generator.establish(&mut replay, &stream, START).unwrap_err();
    assert!(error.to_string().contains("default-drop"), "{error}");
}

#[test]
fn sources_are_merged_by_time() {
    let one = generator("lan>wan,rate=1mpps,frames=1000", 1);
    let other = generator("wan>lan,rate=300kpps,frames=300", 2);
    let mut merge = Merge::new(vec![Box::new(one), Box::new(other)]);
    let (mut last, mut counts, mut bytes) = (START, [0, 0], Vec::new());
    while let Some(at) = merge.peek() {
        let entry = merge.next(&mut bytes).unwrap();
        assert!(entry.at == at && at >= last);
        last = at;
        counts[usize::from(entry.ingress.0)] += 1;
        bytes.clear();
    }
    assert_eq!(counts, [1_000, 300]);
    assert_eq!(merge.next(&mut bytes), None);
}

#[test]
fn each_way_comes_at_the_rate_of_its_own_port() {
    let tables = tables();
    let stream: Stream = "lan>wan,size=64,frames=100,both,established".parse().unwrap();
    let wan = tables.interface_named("wan").unwrap();
    for (plugs, rates) in [(vec![], [1_000, 100]), (vec![Plug { interface: wan, port: 0 }], [100, 1_000])] {
        let wiring = Wiring::new(&tables, &plugs);
        let lines = Lines { ports: &ports(), wiring: &wiring };
        let mut replay = Replay::new(self::tables(), START, Way::Step).unwrap();
        let mut generator = Generator::new(&stream, &tables, lines, START, 1).unwrap();
        generator.establish(&mut replay, &stream, START).unwrap();
        let mut last = [START; 2];
        let mut bytes = Vec::new();
        while let Some(entry) = {
            bytes.clear();
            generator.next(&mut bytes)
        } {
            last[usize::from(entry.ingress == wan)] = entry.at;
        }
        for (last, mbit) in last.into_iter().zip(rates) {
            // 60 bytes and 24 beside them, 99 times.
            let told = 99 * 84 * 8 * 1_000 / mbit;
            assert!(last.since(START).0.abs_diff(told) <= 1, "{plugs:?}: {} not {told}", last.since(START).0);
        }
    }
}
