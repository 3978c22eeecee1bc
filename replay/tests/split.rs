//! Parts of a replay, merged, are the replay of all packets: the same summary, and for each packet the same verdict, bytes and time of departure.
//!
//! Policies and packets are those by which the pipeline is tested, made of random bytes and aimed at corners. Packets go through a gateway while
//! they are made, so that there are answers to what leaves, errors about it, and the rest of connections.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use dataplane::Tables;
use policy::Policy;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use replay::capture::Moment;
use replay::split::{Bound, Inexact, Part, PartResult, merge, obstacles};
use replay::summary::Span;
use replay::{Observer, Player, Summary, Window};
use serde_json::Value;
use wire::build;
use wire::ethernet::Mac;
use wire::{Nanos, PortId};

use crate::scene::packet::BYTES;
use crate::scene::{Arrival, START, policy as policies};
use crate::trial::{Event, Story, Trial, arrivals};

impl Trial {
    fn play(&self, part: Option<Part>) -> (Player, Observer<Story>, Span) {
        let tables = self.tables();
        let captures = self.captures(&tables);
        let mut observer = Observer::new(Story::default(), &tables, captures.start());
        let mut player = match part {
            Some(part) => Player::part(tables, captures, part),
            None => Player::new(tables, captures),
        }
        .expect("memory");
        while player.step(&mut observer, |_, _, _| ()).is_some() {}
        player.finish(&mut observer);
        let span = Span { start: player.start(), end: player.end(), elapsed: Default::default() };
        (player, observer, span)
    }

    fn whole(&self) -> (Value, Story) {
        let (mut player, observer, span) = self.play(None);
        let Player { replay, captures, .. } = &mut player;
        let mut summary = Summary::new(replay, &self.policy, captures, &observer.measured, span).to_json();
        let object = summary.as_object_mut().unwrap();
        object.remove("seconds");
        object.remove("mpps");
        object["flows"]["peak"] = Value::Null;
        (summary, observer.outputs)
    }

    /// Outcomes of so many parts, as they come from other processes, and all their events.
    fn parts(&self, of: u16) -> (Vec<PartResult>, Story) {
        let mut story = Story::default();
        let result = |number| {
            let (mut player, observer, span) = self.play(Part::new(number, of));
            for (number, events) in observer.outputs.0 {
                assert!(story.0.insert(number, events).is_none(), "packet {number} is of two parts");
            }
            let result = PartResult::new(&mut player, &self.policy, &observer.measured, span);
            serde_json::from_str(&serde_json::to_string(&result).unwrap()).unwrap()
        };
        let results = (0..of).map(result).collect();
        (results, story)
    }

    /// Compares the merged parts with the whole, unless they are refused.
    fn compare(&self, of: u16) -> Result<(), Inexact> {
        let (results, story) = self.parts(of);
        let merged = merge(&self.tables(), &results)?;
        let (summary, expected) = self.whole();
        assert_eq!(merged, summary, "{of} parts");
        for (number, events) in &expected.0 {
            assert_eq!(story.0.get(number), Some(events), "packet {number} of {of} parts");
        }
        assert_eq!(story.0.len(), expected.0.len());
        Ok(())
    }
}

/// Bytes of a policy that is rarely without a share of this or that: few of those made of any bytes can be divided.
fn likely(mut seed: [u8; policies::BYTES], how: u8) -> [u8; policies::BYTES] {
    let [mode, nat, flows, sizes, _, _, rules, limits, _, fragments, times, queue, ..] = &mut seed;
    *mode &= !0x18;
    *nat &= !0x03;
    *sizes &= !0x20;
    *rules &= !0x68;
    *limits &= !0x20;
    *fragments &= !0x80;
    *times &= !0x04;
    *queue = *queue % 12 * 20;
    // Room for all, mostly.
    if how & 3 != 0 {
        *flows = *flows & 1 | 12;
        *fragments |= 0x0f;
        *limits &= !0x03;
    }
    seed
}

/// All packets, or those from the middle on, or those up to there.
fn window(how: u8, arrivals: &[Arrival]) -> Window {
    // In a capture, clocks that are set back stand still, and none goes on for ever.
    let at = |count: usize| {
        let latest = arrivals[..count].iter().map(|arrival| arrival.at).max();
        latest.unwrap().min(START + Nanos::from_secs(300_000_000))
    };
    let (first, middle) = (at(1), at(arrivals.len() / 2 + 1));
    match how >> 4 & 3 {
        0 => Window { from: Some(Moment::At(middle)), to: None },
        1 if first < middle => Window { from: None, to: Some(Moment::At(middle)) },
        _ => Window::default(),
    }
}

#[test]
fn merged_parts_are_the_whole() {
    let config = Config { failure_persistence: None, max_shrink_time: 60_000, ..Config::default() };
    let cases = config.cases;
    let mut runner = TestRunner::new(config);
    let (exact, refused, shared) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let packets = prop::collection::vec(any::<[u8; BYTES]>(), 1..160);
    let run = runner.run(
        &(any::<[u8; policies::BYTES]>(), any::<u8>(), 2_u16..6, packets),
        |(seed, how, of, packets)| {
            let scene = policies::of(&likely(seed, how));
            let arrivals = arrivals(&scene, &packets);
            let mut trial = Trial::new(&scene.text, &arrivals, "whole");
            trial.window = window(how, &arrivals);
            if !obstacles(&trial.policy, &trial.tables()).is_empty() {
                shared.set(shared.get() + 1);
                return Ok(());
            }
            let count = if trial.compare(of).is_ok() { &exact } else { &refused };
            count.set(count.get() + 1);
            Ok(())
        },
    );
    run.unwrap();
    let (exact, refused, shared) = (exact.get(), refused.get(), shared.get());
    assert!(exact >= cases / 3, "{exact} exact, {refused} refused, {shared} of policies with shared state");
}

const TWO_SIDES: &str = r#"
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
"lan > wan" = "reject"
"#;

/// Packets of one host to so many others, all at one moment.
fn scan(hosts: u8) -> Vec<Arrival> {
    let packet = |host: u8| Arrival {
        port: PortId(0),
        at: START,
        number: host.into(),
        bytes: build::ethernet(Mac([2, 0, 0, 0, 0, 0x77]), Mac([2, 0, 0, 0, 0, 0x0a]))
            .ipv4([192, 168, 1, 5].into(), [198, 51, 100, host].into())
            .udp(4_000, 4_000)
            .payload(&[0; 20])
            .to_vec(),
    };
    (0..hosts).map(packet).collect()
}

#[test]
fn a_bound_that_no_part_has_felt_is_noticed() {
    let text = format!("{TWO_SIDES}[limit]\nerrors-per-second = 12\n");
    let trial = Trial::new(&text, &scan(16), "bound");
    assert!(obstacles(&trial.policy, &trial.tables()).is_empty());
    let (whole, _) = trial.whole();
    assert_eq!((&whole["frames"]["answered"], &whole["frames"]["dropped"]), (&12.into(), &4.into()));
    let (results, story) = trial.parts(4);
    assert_eq!(story.0.values().filter(|events| matches!(events[0], Event::Sent(..))).count(), 16);
    assert_eq!(merge(&trial.tables(), &results).unwrap_err(), Inexact::Bound(Bound::Answers));
    // One fewer than the bound are the whole.
    let trial = Trial::new(&text, &scan(12), "bound-below");
    assert_eq!(trial.compare(4), Ok(()));
}

#[test]
fn a_rate_that_no_part_has_felt_is_noticed() {
    let rule = "[[rule]]\nname = \"some\"\nfrom = \"lan\"\nto = \"wan\"\nrate = \"1/second burst 10\"\naction = \"accept\"\n";
    let text = format!("{TWO_SIDES}{rule}");
    assert_eq!(Trial::new(&text, &scan(10), "rate-below").compare(4), Ok(()));
    assert_eq!(Trial::new(&text, &scan(11), "rate").compare(4), Err(Inexact::Bound(Bound::Rate)));
}

#[test]
fn a_flow_table_that_might_have_been_full_is_noticed() {
    let text = TWO_SIDES.replace("reject", "accept");
    let with = |flows| format!("{text}[limit]\nflows = {flows}\n");
    assert_eq!(Trial::new(&with(64), &scan(40), "flows").compare(3), Ok(()));
    let refused = Trial::new(&with(40), &scan(40), "flows-full").compare(3);
    assert_eq!(refused, Err(Inexact::Flows { used: 40, room: 40 }));
}

#[test]
fn parts_of_two_replays_are_not_merged() {
    let text = TWO_SIDES.replace("reject", "accept");
    let (mut these, _) = Trial::new(&text, &scan(9), "these").parts(2);
    let (others, _) = Trial::new(&text, &scan(8), "others").parts(2);
    let trial = Trial::new(&text, &[], "none");
    these[1] = others[1].clone();
    assert_eq!(merge(&trial.tables(), &these).unwrap_err(), Inexact::Differ);
    assert_eq!(merge(&trial.tables(), &[]).unwrap_err(), Inexact::Differ);
}

#[test]
fn what_flows_share_is_named() {
    let nat = "[[nat]]\nname = \"out\"\nkind = \"masquerade\"\nto = \"wan\"\n";
    let rule = |line: &str| {
        format!(
            "[[rule]]\nname = \"web\"\nfrom = \"lan\"\nto = \"wan\"\nprotocol = \"tcp\"\n{line}\naction = \"accept\"\n"
        )
    };
    let cases: [(String, &str); 11] = [
        (nat.to_owned(), "translation \"out\" shares addresses and ports among flows"),
        (rule("rate = \"5/second per source\""), "rule \"web\" has a rate for each source"),
        (rule("connections = 3"), "rule \"web\" counts connections"),
        (rule("syn = \"proxy\""), "rule \"web\" is a SYN proxy"),
        (rule("dport = 21\nhelper = \"ftp\""), "rule \"web\" lets in connections that FTP announces"),
        (
            rule("add-source = \"@seen\"") + "[dynamic-set.seen]\n",
            "rule \"web\" adds to the set @seen",
        ),
        ("[limit]\nflows-per-source = 9\n".to_owned(), "[limit] flows-per-source counts the flows of a source"),
        ("[limit]\nqueue = 20\n".to_owned(), "[limit] queue = 20 may overflow by packets that come at one moment"),
        (
            "[[multicast-route]]\ngroup = \"239.1.0.0/16\"\nfrom = \"wan\"\nto = [\"lan\"]\n".to_owned(),
            "packets to multicast groups are copied",
        ),
        (
            "[[meter]]\nname = \"slow\"\nkind = \"token-bucket\"\nrate = \"1 Mbit/s\"\nburst = 10000\nred = \"drop\"\n\
             [[class]]\nname = \"all\"\nmeter = \"slow\"\n"
                .to_owned(),
            "meter \"slow\" counts packets of several flows",
        ),
        (
            "[interface.dsl]\nzone = \"wan\"\naddresses = [\"198.51.100.2/24\"]\nrate = \"10 Mbit/s\"\n".to_owned(),
            "interface \"dsl\" has a rate, at which packets wait for one another",
        ),
    ];
    for (more, expected) in cases {
        let text = format!("{TWO_SIDES}{more}");
        let checked = policy::check(&text, "shared.toml");
        let errors: Vec<_> = checked.errors().map(|error| error.message.clone()).collect();
        let policy = checked.policy.unwrap_or_else(|| panic!("{errors:?}\n{more}"));
        let found: Vec<String> = named(&policy);
        assert_eq!(found, [expected], "{more}");
    }
    assert!(named(&policy::check(TWO_SIDES, "none.toml").policy.unwrap()).is_empty());
}

fn named(policy: &Policy) -> Vec<String> {
    let tables = Tables::compile(policy, 1).unwrap();
    obstacles(policy, &tables).iter().map(ToString::to_string).collect()
}

#[test]
fn the_policies_that_can_be_divided_are_those() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let mut divisible = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let Some(policy) = policy::load(&path).unwrap().policy else { panic!("{}", path.display()) };
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let found = named(&policy);
        if found.is_empty() {
            divisible.push(name);
        } else if !policy.nats.is_empty() {
            assert!(found[0].starts_with("translation "), "{name}: {found:?}");
        }
    }
    divisible.sort();
    assert_eq!(divisible, ["core-stateless", "firewall"]);
}
