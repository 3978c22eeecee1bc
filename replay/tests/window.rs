//! Windows of time: packets outside are not played, and not counted.

use dataplane::Tables;
use proptest::prelude::*;
use replay::capture::{Moment, NoPackets};
use replay::fate::{Fate, Fates};
use replay::{Captures, Named, Observer, Player, Readdress, Window};
use wire::build::{self, Tcp};
use wire::capture::{PcapngWriter, Record};
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::packet::BYTES;
use crate::scene::{Arrival, START, policy as policies};
use crate::trial::{Story, Trial, arrivals};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[default]
"lan > wan" = "accept"
"#;

/// A packet each second, ten of them.
fn trial(name: &str) -> Trial {
    let arrivals: Vec<Arrival> = (0..10)
        .map(|number| Arrival {
            port: PortId(0),
            at: START + Nanos::from_secs(number),
            number: number as u32,
            bytes: build::ethernet(Mac([2, 0, 0, 0, 0, 0x77]), Mac([2, 0, 0, 0, 0, 0x0a]))
                .ipv4([192, 168, 1, 5].into(), [198, 51, 100, 1].into())
                .udp(4_000, 53)
                .payload(&[number as u8])
                .to_vec(),
        })
        .collect();
    Trial::new(POLICY, &arrivals, name)
}

/// Payloads that are played, by seconds behind the first packet, and the time of the first of them.
fn played(trial: &Trial, window: Window) -> Result<(Vec<u64>, Nanos), NoPackets> {
    let tables = trial.tables();
    let mut captures = trial.captures(&tables);
    captures.select(window, &tables)?;
    let mut observer = Observer::new(Story::default(), &tables, captures.start());
    let mut player = Player::new(tables, captures).expect("memory");
    let mut seconds = Vec::new();
    while let Some(at) = player.step(&mut observer, |_, _, _| ()) {
        seconds.push(at.since(START).0 / 1_000_000_000);
    }
    player.finish(&mut observer);
    assert_eq!(observer.outputs.0.len(), seconds.len());
    assert_eq!(player.captures.sources()[0].entered.values().sum::<u64>(), seconds.len() as u64);
    Ok((seconds, player.start()))
}

#[test]
fn packets_outside_are_not_played() {
    let trial = trial("window");
    let after = |seconds| Some(Moment::After(Nanos::from_secs(seconds)));
    let at = |seconds| Some(Moment::At(START + Nanos::from_secs(seconds)));
    let window = |from, to| played(&trial, Window { from, to }).map(|(seconds, _)| seconds);
    let all: Vec<u64> = (0..10).collect();
    assert_eq!(window(None, None), Ok(all.clone()));
    assert_eq!(window(after(0), at(10)), Ok(all.clone()));
    assert_eq!(window(after(3), None), Ok(all[3..].to_vec()));
    assert_eq!(window(None, at(4)), Ok(all[..4].to_vec()));
    assert_eq!(window(at(3), after(4)), Ok(vec![3]));
    assert_eq!(window(Some(Moment::At(Nanos(0))), after(2)), Ok(vec![0, 1]));
    let (_, start) = played(&trial, Window { from: after(3), to: None }).unwrap();
    assert_eq!(start, START + Nanos::from_secs(3));
    let none = Err(NoPackets { first: Moment::At(START) });
    for (from, to) in [(after(10), None), (None, after(0)), (after(5), after(5)), (at(6), at(3))] {
        assert_eq!(window(from, to), none);
    }
    let text = NoPackets { first: Moment::At(START) }.to_string();
    assert_eq!(
        text,
        "no packet of the captures is in that window of time: the first is at 2023-11-14T22:13:20Z"
    );
}

/// Rows of the packets of a window, by their numbers.
fn rows(tables: Tables, mut captures: Captures, window: Window) -> Vec<Fate> {
    captures.select(window, &tables).unwrap();
    let mut observer = Observer::new(Fates::new(&tables), &tables, captures.start());
    let mut player = Player::new(tables, captures).expect("memory");
    let mut rows = Vec::new();
    while player
        .step(&mut observer, |number, packet, fates: &mut Fates| fates.arrives(number, packet))
        .is_some()
    {
        observer.outputs.settle();
        rows.extend(observer.outputs.take());
    }
    player.finish(&mut observer);
    observer.outputs.finish();
    rows.extend(observer.outputs.take());
    rows.sort_by_key(|row| row.number);
    rows
}

#[test]
fn packets_have_the_numbers_and_interfaces_that_they_have_among_all() {
    let host = Mac([2, 0, 0, 0, 0, 0x77]);
    let link = || build::ethernet(host, Mac([2, 0, 0, 0, 0, 0x0a]));
    let lan = |packet: build::Packet<'static>| packet.ipv4([192, 168, 1, 5].into(), [198, 51, 100, 1].into());
    let bytes = [
        // Three segments of what the link carries.
        lan(link()).tcp(Tcp { sport: 4_000, dport: 80, ..Tcp::default() }).payload(&[0; 4_000]).to_vec(),
        // It comes from where its sender's other packets come from.
        link().ipv4([0, 0, 0, 0].into(), [255; 4].into()).udp(68, 67).payload(&[0; 8]).to_vec(),
        lan(link()).udp(4_000, 53).payload(&[0; 8]).to_vec(),
    ];
    let path = std::env::temp_dir().join(format!("wirerate-window-{}.pcapng", std::process::id()));
    let mut writer = PcapngWriter::create(&path).unwrap();
    writer.interface("any").unwrap();
    for (second, bytes) in (0..).zip(&bytes) {
        writer.write(&Record::new(START + Nanos::from_secs(second), bytes)).unwrap();
    }
    writer.finish().unwrap();
    let policy = policy::check(POLICY, "window.toml").policy.unwrap();
    let played = |from| {
        let tables = Tables::compile(&policy, 1).unwrap();
        let named = [Named { interface: None, path: path.clone() }];
        let captures = Captures::open(&named, &tables, Readdress::Inferred).unwrap();
        rows(tables, captures, Window { from: Some(Moment::After(Nanos::from_secs(from))), to: None })
    };
    let all = played(0);
    let numbers: Vec<u64> = all.iter().map(|row| row.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert!(all.iter().all(|row| row.ingress == PortId(0)), "{all:?}");
    assert_eq!(played(1), all[3..]);
    assert_eq!(played(2), all[4..]);
    std::fs::remove_file(path).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Without state, what is before a window makes no difference.
    #[test]
    fn a_window_has_the_rows_of_all_packets_that_are_in_it(
        mut seed in any::<[u8; policies::BYTES]>(),
        packets in prop::collection::vec(any::<[u8; BYTES]>(), 2..60),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        // Stateless, without meters, with queues that are never full, links without a rate, and answers to all that there are.
        (seed[0], seed[3], seed[9], seed[11]) = (0, 0, 0, 0);
        seed[7] &= !0x03;
        let scene = policies::of(&seed);
        let trial = Trial::new(&scene.text, &arrivals(&scene, &packets), "windows");
        let rows = |window| rows(trial.tables(), trial.captures(&trial.tables()), window);
        let all = rows(Window::default());
        let (one, other) = (from.get(&all).at, to.get(&all).at);
        let (from, to) = (one.min(other), one.max(other) + Nanos(1));
        let window = Window { from: Some(Moment::At(from)), to: Some(Moment::At(to)) };
        let expected: Vec<Fate> = all.into_iter().filter(|row| (from..to).contains(&row.at)).collect();
        prop_assert_eq!(rows(window), expected);
    }
}
