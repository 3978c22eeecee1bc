use super::{Interface, NOWHERE, Recorded, Recorder, RecorderPlan, SNAP};
use crate::hop::Resolve;
use crate::nat::Share;
use crate::shard::{Setup, Shard};
use crate::tables::{LOCAL, OTHER, Renumbering, Tables};
use crate::verdict::{Reason, Verdict};
use wire::{Meta, Nanos, PortId};

fn tables(interfaces: &[&str], rules: &[&str], record: u32) -> Tables {
    let mut text = format!("[gateway]\ndrop-record = {record}\n");
    for (place, name) in interfaces.iter().enumerate() {
        text += &format!("[interface.{name}]\nzone = \"z\"\naddresses = [\"10.0.{place}.1/24\"]\n");
    }
    for name in rules {
        text += &format!("[[rule]]\nname = \"{name}\"\ndport = [7]\nprotocol = \"tcp\"\naction = \"drop\"\n");
    }
    let checked = policy::check(&text, "test.toml");
    let wrong: Vec<String> = checked.errors().map(|error| error.message.clone()).collect();
    Tables::compile(&checked.policy.unwrap_or_else(|| panic!("{wrong:?}")), 1).unwrap()
}

fn all_reasons() -> Vec<Reason> {
    Reason::ALL.iter().map(|entry| entry.reason).collect()
}

fn shard(tables: &Tables) -> Shard {
    let setup = Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::ByHost, share: Share::WHOLE };
    let mut shard = Shard::new(tables, setup).unwrap();
    shard.recorder.keep(tables);
    shard
}

fn reload(shard: &mut Shard, old: &Tables, new: Tables) -> Tables {
    let new = new.after(old);
    let renumbering = Renumbering::new(old, &new);
    RecorderPlan::new(old, &new, &renumbering).apply(shard, &renumbering);
    new
}

fn dropped(reason: Reason) -> Meta {
    Meta { fate: Verdict::Dropped(reason).to_fate(), ..Meta::default() }
}

/// Times of the packets recorded for a reason, in the order in which they were recorded.
fn times(recorder: &Recorder, reason: Reason) -> Vec<u64> {
    let mut packets = recorder.packets(&[reason]);
    packets.sort_by_key(|packet| packet.sequence);
    packets.iter().map(|packet| packet.at.0).collect()
}

#[test]
fn each_reason_has_its_last_packets() {
    let tables = tables(&["a"], &[], 3);
    let recorder = &mut shard(&tables).recorder;
    recorder.note(&dropped(Reason::TtlExpired), &[1], Nanos(1));
    for at in 2..=9 {
        recorder.note(&dropped(Reason::RuleDrop), &[2], Nanos(at));
    }
    assert_eq!(times(recorder, Reason::RuleDrop), [7, 8, 9]);
    assert_eq!(times(recorder, Reason::TtlExpired), [1]);
    assert_eq!(times(recorder, Reason::QueueFull), [0; 0]);
    assert_eq!(recorder.packets(&all_reasons()).len(), 4);
    // The last reason of all has room, too.
    let last = Reason::ALL.last().unwrap().reason;
    (0..5).for_each(|at| recorder.note(&dropped(last), &[3], Nanos(at)));
    assert_eq!(times(recorder, last), [2, 3, 4]);
    assert_eq!(times(recorder, Reason::RuleDrop), [7, 8, 9]);
}

#[test]
fn of_a_long_packet_there_is_the_beginning() {
    let tables = tables(&["a"], &[], 2);
    let recorder = &mut shard(&tables).recorder;
    let bytes: Vec<u8> = (0..=255).cycle().take(1500).collect();
    for (length, at) in [(1500, 1), (0, 2), (SNAP, 3), (SNAP + 1, 4)] {
        recorder.note(&dropped(Reason::RuleDrop), &bytes[..length], Nanos(at));
        let all = recorder.packets(&all_reasons());
        let packet = all.iter().max_by_key(|packet| packet.sequence).unwrap();
        assert_eq!((packet.length, packet.bytes()), (length as u32, &bytes[..length.min(SNAP)]));
    }
}

#[test]
fn a_record_that_is_taken_back_leaves_the_others() {
    let tables = tables(&["a"], &[], 2);
    let recorder = &mut shard(&tables).recorder;
    for at in 1..=4 {
        let meta = Meta { fate: Verdict::Answered(Reason::RuleReject).to_fate(), ..Meta::default() };
        let before = recorder.recorded();
        recorder.note(&meta, &[1], Nanos(at));
        if at % 2 == 0 {
            recorder.retract(Reason::RuleReject, before);
            recorder.retract(Reason::TtlExpired, recorder.recorded());
            recorder.note(&dropped(Reason::RuleReject), &[1], Nanos(at));
        }
    }
    assert_eq!(times(recorder, Reason::RuleReject), [3, 4]);
    let verdicts = recorder.packets(&all_reasons());
    assert_eq!(verdicts.iter().filter(|packet| packet.verdict.name() == "dropped").count(), 1);
}

#[test]
fn nothing_is_kept_where_nobody_wants_it() {
    let off = tables(&["a"], &[], 0);
    let shard = shard(&off);
    assert!(shard.recorder.slots.is_empty() && shard.recorder.each == 0);
    let own = Recorder::default();
    assert!(own.memory_bytes() == size_of::<Recorder>());
    // A host that wants none has none after a reload to tables with a record, either.
    let old = tables(&["a"], &[], 3);
    let setup = Setup { seed: [1, 2], now: Nanos(0), resolve: Resolve::ByHost, share: Share::WHOLE };
    let mut without = Shard::new(&old, setup).unwrap();
    reload(&mut without, &old, tables(&["a"], &[], 5));
    assert_eq!(without.recorder.each, 0);
}

#[test]
fn a_reload_keeps_packets_with_the_names_that_they_had() {
    fn names<'a>(packet: &'a Recorded, tables: &'a Tables) -> [Option<&'a str>; 3] {
        let name = |interface| match interface {
            Some(Interface::Named(name)) => Some(name),
            Some(Interface::Itself) => Some("self"),
            Some(Interface::Other) => Some("other"),
            None => None,
        };
        [packet.rule(tables), name(packet.ingress(tables)), name(packet.egress(tables))]
    }
    let mut now = tables(&["a", "b"], &["one", "two"], 4);
    let mut shard = shard(&now);
    let meta = |rule, ingress, egress, hop| Meta { rule, ingress, egress, hop, ..dropped(Reason::RuleDrop) };
    let no_hop = Meta::NO_HOP;
    for (meta, at) in [
        (meta(0, PortId(0), PortId(1), 5), 1),
        (meta(1, PortId(1), PortId(0), no_hop), 2),
        (meta(u32::MAX, LOCAL, LOCAL, 5), 3),
        (meta(u32::MAX, OTHER, NOWHERE, 5), 4),
    ] {
        shard.recorder.note(&meta, &[1], Nanos(at));
    }
    let told = |shard: &Shard, tables: &Tables| {
        let mut packets = shard.recorder.packets(&all_reasons());
        packets.sort_by_key(|packet| packet.sequence);
        let all = packets.iter().map(|packet| names(packet, tables).map(|name| name.map(str::to_owned)));
        all.collect::<Vec<_>>()
    };
    let all = told(&shard, &now);
    let owned = |names: [Option<&str>; 3]| names.map(|name| name.map(str::to_owned));
    let expected = [
        [Some("one"), Some("a"), Some("b")],
        [Some("two"), Some("b"), None],
        [None, Some("self"), Some("self")],
        [None, Some("other"), None],
    ];
    assert_eq!(all, expected.map(owned));
    // Moved, gone, back again as others, and as at first.
    for (interfaces, rules) in [
        (&["c", "b", "a"][..], &["two", "zero", "one"][..]),
        (&["b", "c"], &["zero", "two"]),
        (&["c"], &["zero"]),
        (&["d", "b"], &["three", "four", "two"]),
        (&["a", "b"], &["one", "two"]),
    ] {
        now = reload(&mut shard, &now, tables(interfaces, rules, 4));
        assert_eq!(told(&shard, &now), all, "{interfaces:?} {rules:?}");
    }
    // A packet in the place of an old one has nothing of its names.
    shard.recorder.note(&meta(1, PortId(1), PortId(1), no_hop), &[1], Nanos(5));
    let packets = shard.recorder.packets(&all_reasons());
    let latest = packets.iter().max_by_key(|packet| packet.sequence).unwrap();
    assert_eq!(names(latest, &now), [Some("two"), Some("b"), None]);
    // Another number begins anew.
    now = reload(&mut shard, &now, tables(&["a"], &[], 5));
    assert!(told(&shard, &now).is_empty());
    shard.recorder.note(&meta(u32::MAX, PortId(0), PortId(0), no_hop), &[1], Nanos(6));
    assert_eq!(told(&shard, &now).len(), 1);
}
