use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use dataplane::tunnel;
use wire::Meta;
use wire::build;
use wire::capture::Reader as File;
use wire::ethernet::Mac;

use super::*;
use crate::stream::channel_of_pieces;

const POLICY: &str = r#"
    [interface.lan]
    zone = "lan"
    addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]

    [interface.wan]
    zone = "wan"
    addresses = ["203.0.113.2/24"]

    [[nat]]
    name = "house"
    kind = "masquerade"
    from = "lan"
    to = "wan"

    [[rule]]
    name = "no-mail"
    from = "lan"
    to = "wan"
    protocol = "tcp"
    dport = 25
    action = "drop"
"#;

fn tables() -> Arc<Tables> {
    let checked = policy::check(POLICY, "policy");
    Arc::new(Tables::compile(&checked.policy.unwrap(), 1).unwrap())
}

fn frame() -> Vec<u8> {
    let (from, to) = (Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7));
    build::ethernet(Mac([2; 6]), Mac([4; 6])).ipv4(from, to).udp(4000, 53).payload(b"what").to_vec()
}

#[test]
fn each_point_has_a_name_and_a_place_of_its_own() {
    let mut bits = HashSet::new();
    let plain = ["received", "sent", "delivered", "dropped", "held"].map(str::to_owned);
    let before = pipeline::names().map(|stage| format!("before-{stage}"));
    for word in plain.into_iter().chain(before).chain(pipeline::names().map(str::to_owned)) {
        assert!(bits.insert(Point::named(&word).unwrap().bit()), "{word} twice");
    }
    assert_eq!(bits.len(), 5 + 2 * STAGES);
    for word in ["", "before-", "before-received", "Route", "after-route"] {
        assert_eq!(Point::named(word), None, "{word}");
    }
}

#[test]
fn words_that_mean_nothing_are_told() {
    let tables = tables();
    let some = |word: &str| Some(word.to_owned());
    let queries = [
        CaptureQuery { host: some("x"), ..CaptureQuery::default() },
        CaptureQuery { protocol: some("x"), ..CaptureQuery::default() },
        CaptureQuery { interface: some("x"), ..CaptureQuery::default() },
        CaptureQuery { rule: some("x"), ..CaptureQuery::default() },
        CaptureQuery { nat: some("x"), ..CaptureQuery::default() },
        CaptureQuery { verdict: some("x"), ..CaptureQuery::default() },
        CaptureQuery { reason: some("x"), ..CaptureQuery::default() },
    ];
    for query in queries {
        assert_eq!(query.filter(&tables).unwrap_err().word, "x", "{query:?}");
    }
    let query = CaptureQuery { stage: some("sent,x"), ..CaptureQuery::default() };
    assert_eq!(query.points().unwrap_err().word, "x");
}

#[test]
fn stages_that_the_policy_does_not_need_are_told() {
    let stateless =
        "mode = \"stateless\"\n[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n";
    let stateless = Tables::compile(&policy::check(stateless, "policy").policy.unwrap(), 1).unwrap();
    let mut left_out = 0;
    for tables in [&*tables(), &stateless] {
        for stage in pipeline::stages() {
            let name = stage.about.name;
            let told = if (stage.packets)(tables) == Packets::None { Some(name) } else { None };
            left_out += usize::from(told.is_some());
            for words in [format!("received, {name}"), format!("before-{name},sent")] {
                let query = CaptureQuery { stage: Some(words), ..CaptureQuery::default() };
                assert_eq!(query.left_out(tables), told, "{query:?}");
            }
        }
        let query = CaptureQuery { stage: Some("received,sent,held".to_owned()), ..CaptureQuery::default() };
        assert_eq!(query.left_out(tables), None);
    }
    assert!(left_out > 0, "a policy without connections needs all stages");
}

#[test]
fn a_packet_is_meant_only_where_all_holds() {
    let tables = tables();
    let frame = frame();
    let look = Look::at(&frame);
    let meta = Meta {
        ingress: PortId(0),
        rule: 0,
        fate: Verdict::Dropped(Reason::RuleDrop).to_fate(),
        ..Meta::default()
    };
    let some = |word: &str| Some(word.to_owned());
    let right = CaptureQuery {
        whole: true,
        stage: None,
        host: some("198.51.100.0/24"),
        port: Some(53),
        protocol: some("udp"),
        interface: some("lan"),
        rule: some("no-mail"),
        nat: None,
        verdict: some("dropped"),
        reason: some("rule-drop"),
        snap: None,
    };
    let admits =
        |query: &CaptureQuery| query.filter(&tables).unwrap().admits(look.as_ref(), &meta, None, &tables);
    assert!(admits(&right) && admits(&CaptureQuery::default()));
    for wrong in [
        CaptureQuery { host: some("198.51.101.0/24"), ..right.clone() },
        CaptureQuery { port: Some(54), ..right.clone() },
        CaptureQuery { protocol: some("tcp"), ..right.clone() },
        // It would be the place 0 of an egress that has not been decided.
        CaptureQuery { interface: some("wan"), ..right.clone() },
        CaptureQuery { nat: some("house"), ..right.clone() },
        CaptureQuery { verdict: some("forwarded"), ..right.clone() },
        CaptureQuery { reason: some("default-drop"), ..right.clone() },
    ] {
        assert!(!admits(&wrong), "{wrong:?}");
    }
    let undecided = Meta { ingress: PortId(1), egress: PortId(0), ..Meta::default() };
    let by_lan = CaptureQuery { interface: some("lan"), ..CaptureQuery::default() };
    assert!(!by_lan.filter(&tables).unwrap().admits(look.as_ref(), &undecided, None, &tables));
}

#[test]
fn ports_are_looked_for_in_first_fragments_only() {
    use wire::header::Fragment;
    let (from, to) = (Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7));
    let later = build::ethernet(Mac([2; 6]), Mac([4; 6]))
        .ipv4(from, to)
        .fragment(Fragment { id: 1, offset: 8, more: false })
        .protocol(wire::header::Protocol::UDP)
        .payload(&[0, 53, 0, 53])
        .to_vec();
    let look = Look::at(&later).unwrap();
    assert_eq!((look.protocol, look.ports.is_none()), (17, true));
    let v6 = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let six = build::ethernet(Mac([2; 6]), Mac([4; 6])).ipv6(v6.0, v6.1).udp(7, 9).payload(b"").to_vec();
    assert_eq!(Look::at(&six).unwrap().ports.map(|ports| (ports.sport, ports.dport)), Some((7, 9)));
    assert!(Look::at(&[0; 14]).is_none() && Look::at(&[]).is_none());
}

fn seen(point: Point, fate: u16, copied: usize, length: usize) -> Seen {
    Seen {
        point,
        ingress: PortId(0),
        egress: Some(PortId(1)),
        fate,
        rule: 0,
        nat: 1,
        tunnel: 0,
        part: Part::Whole,
        flow: None,
        copied: copied as u32,
        length: length as u32,
    }
}

#[test]
fn what_is_written_can_be_read() {
    let tables = tables();
    let (tap, recorder) = record::capture(CaptureQuery::default());
    let (pieces, mut body) = channel_of_pieces();
    let (told, ended) = std::sync::mpsc::channel();
    recorder.start(&tables, pieces, move || told.send(()).unwrap()).unwrap();
    let frame = frame();
    let mut bytes = frame.clone();
    bytes.extend_from_slice(&frame[..20]);
    let chunk = Chunk {
        tables: tables.clone(),
        at: Nanos(1_700_000_000_123_456_789),
        seen: vec![
            seen(Point::Sent, Verdict::Forwarded.to_fate(), frame.len(), frame.len()),
            seen(Point::Dropped, Verdict::Dropped(Reason::RuleDrop).to_fate(), 20, frame.len()),
        ],
        bytes,
    };
    assert_eq!(tap.put(chunk), Reader::There);
    drop(tap);
    ended.recv().unwrap();
    let mut file = Vec::new();
    while let Some(piece) = body.blocking_recv() {
        file.extend_from_slice(&piece.unwrap());
    }
    let mut reader = File::over("live", file.as_slice()).unwrap();
    let first = reader.next().unwrap().unwrap();
    assert_eq!((first.bytes, first.at, first.interface), (&frame[..], Nanos(1_700_000_000_123_456_789), 1));
    let comment = "forwarded by rule \"no-mail\", in by lan, out by wan, translation \"house\"";
    assert_eq!(first.comment.as_deref(), Some(comment));
    let second = reader.next().unwrap().unwrap();
    assert_eq!((second.bytes, second.original_len, second.interface), (&frame[..20], frame.len() as u32, 0));
    assert!(second.comment.unwrap().starts_with("dropped: rule-drop by rule \"no-mail\", in by lan"));
    assert!(reader.next().unwrap().is_none() && reader.cut_short().is_none());
    let names: Vec<_> =
        reader.interfaces().iter().filter_map(|interface| interface.name.as_deref()).collect();
    assert_eq!(names, ["lan", "wan"]);
}

/// Only packets that were received have a verdict: what else is sent has a name of its own.
#[test]
fn packets_without_a_verdict_are_told_apart() {
    let tables = tables();
    let (tap, recorder) = record::capture(CaptureQuery::default());
    let (pieces, mut body) = channel_of_pieces();
    recorder.start(&tables, pieces, || {}).unwrap();
    let frame = frame();
    let sent = |tunnel: u8, part: Part| Seen {
        tunnel,
        part,
        rule: Meta::NO_RULE,
        nat: 0,
        ..seen(Point::Sent, 0, frame.len(), frame.len())
    };
    let kinds = [
        (
            tunnel::KEEPALIVE | tunnel::OUTER,
            Part::Whole,
            "sent by the gateway itself: NAT keepalive of a tunnel, in by lan",
        ),
        (tunnel::OUTER, Part::Whole, "forwarded: a further fragment of a packet, in by lan"),
        (0, Part::Later, "forwarded: a further fragment of a packet, in by lan"),
        (0, Part::Whole, "sent by the gateway itself: its SYN proxy's answer to a server, in by lan"),
    ];
    let seen = kinds.iter().map(|(tunnel, part, _)| sent(*tunnel, *part)).collect();
    let bytes = frame.repeat(kinds.len());
    assert_eq!(tap.put(Chunk { tables: tables.clone(), at: Nanos(1), seen, bytes }), Reader::There);
    drop(tap);
    let mut file = Vec::new();
    while let Some(piece) = body.blocking_recv() {
        file.extend_from_slice(&piece.unwrap());
    }
    let mut reader = File::over("live", file.as_slice()).unwrap();
    for (_, _, expected) in kinds {
        let comment = reader.next().unwrap().unwrap().comment.unwrap();
        assert!(comment.starts_with(expected), "{comment}");
    }
}

#[test]
fn who_does_not_read_loses_and_does_not_fill_the_memory() {
    let tables = tables();
    // Nobody takes anything out.
    let (tap, recorder) = record::capture(CaptureQuery::default());
    let (mut put, mut weight) = (0, 0);
    for _ in 0..2 * MOST_CHUNKS {
        let chunk = Chunk {
            tables: tables.clone(),
            at: Nanos(1),
            seen: vec![seen(Point::Sent, 0x100, 10_000, 10_000)],
            bytes: vec![0; 10_000],
        };
        weight += chunk.weight();
        put += 1;
        assert_eq!(tap.put(chunk), Reader::There);
    }
    let lost = tap.account.lost.load(Ordering::Relaxed);
    let waiting = tap.account.waiting.load(Ordering::Relaxed);
    assert!(waiting <= MOST_WAITING && lost > 0 && lost < put, "{waiting} {lost}");
    assert_eq!(waiting as u64, (put - lost) * (weight as u64 / put));
    drop(recorder);
    let chunk = Chunk { tables, at: Nanos(1), seen: vec![seen(Point::Sent, 0x100, 0, 0)], bytes: Vec::new() };
    // What waited is gone with its reader.
    tap.account.waiting.store(0, Ordering::Relaxed);
    assert_eq!(tap.put(chunk), Reader::Gone);
}
