use dataplane::replay::{Replay, Way};
use wire::capture::Reader;

use super::*;

const POLICY: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
    [[rule]]\nname = \"no-mail\"\nfrom = \"lan\"\nprotocol = \"udp\"\ndport = [25]\naction = \"drop\"\n\
    [gateway]\ndrop-record = 4\n";

/// A worker that has received these: seconds, and the port that a segment is for.
fn worker(segments: &[(u64, u16)]) -> FoundDrops {
    let tables = Tables::compile(&policy::check(POLICY, "test.toml").policy.unwrap(), 1).unwrap();
    let mut replay = Replay::new(tables, Nanos::from_secs(1), Way::Run).unwrap();
    let Replay { tables, shard, .. } = &mut replay;
    shard.recorder.keep(tables);
    for (second, dport) in segments {
        let link = wire::build::ethernet(wire::ethernet::Mac([2; 6]), wire::ethernet::Mac([4; 6]));
        let packet = link.ipv4([192, 168, 1, 20].into(), [198, 51, 100, 7].into());
        let bytes = packet.udp(4000, *dport).payload(&[7; 300]).to_vec();
        let lan = replay.tables.interface_named("lan").unwrap();
        replay.receive(lan, Nanos::from_secs(*second), 0, &bytes, &mut ());
    }
    replay.finish(&mut ());
    let now = Nanos::from_secs(100);
    let packets = replay.shard.recorder.packets(&[Reason::RuleDrop, Reason::DefaultDrop]);
    FoundDrops { packets, tables: Arc::new(replay.tables), now, at: UNIX_EPOCH + Duration::from_secs(1100) }
}

/// Seconds and reasons, the earliest first.
fn told(drops: &Drops) -> Vec<(u64, String)> {
    let views = drops.views();
    let second = |time: &str| {
        humantime::parse_rfc3339(time).unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs() - 1000
    };
    views.iter().rev().map(|view| (second(&view.time), view.reason.clone())).collect()
}

#[test]
fn packets_of_workers_are_merged_by_time() {
    let workers = || {
        let second = worker(&[(20, 25), (40, 25)]);
        vec![(0, worker(&[(10, 25), (30, 80), (31, 25)])), (1, worker(&[])), (2, second)]
    };
    let expected =
        [(10, "rule-drop"), (20, "rule-drop"), (30, "default-drop"), (31, "rule-drop"), (40, "rule-drop")];
    let of = |list: &[(u64, &str)]| {
        list.iter().map(|(at, reason)| (*at, (*reason).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(told(&Drops::merged(workers(), None)), of(&expected));
    assert_eq!(told(&Drops::merged(workers(), Some(2))), of(&expected[2..]));
    assert_eq!(told(&Drops::merged(workers(), Some(0))), []);
    let workers: Vec<usize> = Drops::merged(workers(), None).views().iter().map(|view| view.worker).collect();
    assert_eq!(workers, [2, 0, 0, 2, 0]);
}

#[test]
fn a_view_names_what_there_is() {
    let view = Drops::merged(vec![(0, worker(&[(10, 25)]))], None).views().remove(0);
    assert_eq!(view.packet, "udp 192.168.1.20:4000 > 198.51.100.7:25 ttl 64 length 328");
    assert_eq!(view.rule.as_deref(), Some("no-mail"));
    let interfaces = (view.interface.as_deref(), view.egress.as_deref());
    assert_eq!((interfaces, view.verdict.as_str()), ((Some("lan"), Some("wan")), "dropped"));
    assert_eq!((view.length, view.bytes.len()), (342, 2 * dataplane::recorder::SNAP));
}

#[test]
fn pcapng_has_interface_length_and_comment() {
    let workers = vec![(0, worker(&[(10, 25), (30, 80)])), (1, worker(&[(20, 25)]))];
    let drops = Drops::merged(workers, None);
    let bytes = drops.pcapng(&drops.lists[0].1.tables).unwrap();
    let mut reader = Reader::over("test", bytes.as_slice()).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let at = record.at.0 / 1_000_000_000 - 1000;
        found.push((
            at,
            record.interface,
            record.original_len,
            record.bytes.len(),
            record.comment.unwrap().into_owned(),
        ));
    }
    let mail = "dropped: rule-drop by rule \"no-mail\", in by lan, out by wan";
    let rest = "dropped: default-drop, in by lan, out by wan";
    let lines = [(10, mail), (20, mail), (30, rest)];
    assert_eq!(found, lines.map(|(at, text)| (at, 0, 342, 192, text.to_owned())));
    let names: Vec<_> = reader.interfaces().iter().map(|interface| interface.name.clone()).collect();
    assert_eq!(names, [Some("lan".to_owned()), Some("wan".to_owned())]);
}

#[test]
fn reasons_are_known_by_name() {
    let of = |reason: &str| DropQuery { reason: Some(reason.to_owned()), last: None }.reasons();
    assert_eq!(of("rule-drop").unwrap(), [Reason::RuleDrop]);
    assert_eq!(DropQuery::default().reasons().unwrap().len(), Reason::COUNT);
    assert!(of("rule-dropped").is_err());
}
