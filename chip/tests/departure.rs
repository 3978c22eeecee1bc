//! Departures of random trees of queues on modelled chips: for the frames that a chip does not lose to overload they are those of the
//! replay host, to the nanosecond, and so are bytes and drops.

#![allow(clippy::unwrap_used)]

#[path = "../../dataplane/tests/queues/mod.rs"]
mod queues;

use std::collections::BTreeSet;

use chip::builtin::{CHIPS, MAPPINGS, named};
use chip::description::{self, Chip};
use chip::host::{Entry, Onlooker, Traffic, Wiring};
use chip::machine::Ideal;
use chip::mapping::{self, Mapping};
use chip::run::{Setup, Source};
use dataplane::replay::{Way, Witness};
use dataplane::{Replay, Tables, Verdict};
use proptest::prelude::*;
use wire::{Frame, Nanos, PortId};

use queues::{Outcome, Packet, START, play, traffic, trees};

/// The shipped chips, each with its first mapping.
fn chips() -> Vec<(Chip, Mapping)> {
    let of = |name: &str, text: &str| {
        let chip = description::parse(text, name).chip.unwrap();
        let mapping = named(MAPPINGS, &format!("{name}-pool")).unwrap();
        let mapping = mapping::parse(mapping, name, &chip).mapping.unwrap();
        (chip, mapping)
    };
    CHIPS.iter().map(|shipped| of(shipped.name, shipped.text)).collect()
}

/// Packets as the traffic of a chip.
struct Arrivals(Vec<Packet>, usize);

impl Traffic for Arrivals {
    fn peek(&mut self) -> Option<Nanos> {
        self.0.get(self.1).map(|packet| Nanos(START + packet.at))
    }

    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry> {
        let packet = self.0.get(self.1)?;
        self.1 += 1;
        bytes.extend(packet.frame());
        Some(Entry::new(Nanos(START + packet.at), PortId(0), bytes.len()))
    }
}

/// Departures and drops, and the frames that the chip lost.
#[derive(Default)]
struct Seen(Outcome, BTreeSet<u32>);

impl Witness for Seen {
    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.0.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.0.ended(frame, verdict);
    }
}

impl Onlooker for Seen {
    fn lost(&mut self, number: u32) {
        self.1.insert(number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn departures_on_chips_are_those_of_a_replay(
        queues in trees(),
        rate in 500_u64..1_000_000,
        // Faster than chips are: some of them lose packets.
        hurry in prop::sample::select(vec![1_u64, 1, 200]),
        packets in traffic(),
    ) {
        let text = format!(
            "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
             [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nrate = \"{rate} kbit/s\"\n\
             [default]\n\"lan > wan\" = \"accept\"\n[limit]\nqueue = 512\n{queues}"
        );
        let policy = policy::check(&text, "tree.toml").policy;
        // Some random trees ask for more than their port carries.
        prop_assume!(policy.is_some());
        let policy = policy.unwrap();
        let compiled = || Tables::compile(&policy, 1).expect("tables");
        let packets: Vec<Packet> =
            packets.iter().map(|packet| Packet { at: packet.at / hurry, ..*packet }).collect();
        for (chip, mapping) in chips() {
            let source = || {
                let tables = compiled();
                let wiring = Wiring::new(&tables, &[]);
                let start = Nanos(START);
                let replay = Replay::new(tables, start, Way::Step)?;
                Ok(Source { replay, traffic: Box::new(Arrivals(packets.clone(), 0)), start, wiring })
            };
            let setup = Setup { chip: &chip, mapping: &mapping, source: &source, warm: 0 };
            let mut seen = Seen::default();
            setup.run(Ideal::Nothing, &mut seen).unwrap();
            let Seen(found, lost) = seen;
            let numbers: Vec<u32> = (0..packets.len() as u32).filter(|number| !lost.contains(number)).collect();
            let kept: Vec<Packet> = numbers.iter().map(|number| packets[*number as usize]).collect();
            let (mut due, _) = play(compiled(), Way::Run, &kept, &[]);
            // Numbers of those that were kept, as the chip counts.
            due.departed.iter_mut().for_each(|departed| departed.0 = numbers[departed.0 as usize]);
            due.dropped.iter_mut().for_each(|dropped| dropped.0 = numbers[dropped.0 as usize]);
            prop_assert_eq!(found, due, "{}, {} lost", chip.name, lost.len());
        }
    }
}
