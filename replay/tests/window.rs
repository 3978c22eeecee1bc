//! Windows of time: packets outside are not played, and not counted.

use replay::capture::{Moment, NoPackets};
use replay::{Observer, Player, Window};
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::{Arrival, START};
use crate::trial::{Story, Trial};

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
    captures.select(window)?;
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
