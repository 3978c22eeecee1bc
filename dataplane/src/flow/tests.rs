//! The table against plain models: a map for keys, a list for timers.

use std::collections::HashMap;

use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use tally::NoTally;
use wire::Nanos;
use wire::tcp::Flags;

use super::tcp::{Midstream, Segment, Settings, WindowCheck};
use super::{Direction, FlowId, FlowTable, Hit, Key, Life, Refusal, State, Tick, Timeouts};

fn timeouts() -> Timeouts {
    Timeouts::new(|life| match life {
        Life::TcpHalfOpen => Nanos::from_secs(30),
        Life::TcpEstablished => Nanos::from_secs(7_440),
        Life::TcpClosing => Nanos::from_secs(60),
        Life::TcpReset => Nanos::from_secs(10),
        Life::Udp => Nanos::from_secs(300),
        Life::UdpUnanswered => Nanos::from_secs(30),
        Life::Icmp => Nanos::from_secs(1),
        Life::Other => Nanos::from_secs(600),
    })
}

fn table(capacity: u32, seed: u64) -> FlowTable {
    FlowTable::new(capacity, [seed, !seed], timeouts(), Nanos(0)).unwrap()
}

fn key(number: u32) -> Key {
    match number % 3 {
        0 => Key::v4(number, 0xc633_6407, 50_000, 443, 6),
        1 => Key::v4(0x0a00_0001, 0xc633_6407, number as u16, (number >> 16) as u16, 17),
        _ => Key::v6(u128::from(number), 1 << 90, 50_000, 443, 6),
    }
}

/// Answers that no original key equals.
fn reply(number: u32) -> Key {
    key(number).reversed()
}

fn find(table: &FlowTable, key: &Key) -> Option<Hit> {
    table.find(key, table.hash(key, &mut NoTally), &mut NoTally)
}

fn set_reply(table: &mut FlowTable, id: FlowId, key: &Key) -> Result<(), Refusal> {
    let hash = table.hash(key, &mut NoTally);
    table.set_reply(id, key, hash, &mut NoTally)
}

fn insert(table: &mut FlowTable, key: &Key, now: Tick) -> Result<FlowId, Refusal> {
    let hash = table.hash(key, &mut NoTally);
    table.insert(key, hash, now, &mut NoTally)
}

#[derive(Clone, Debug)]
enum Action {
    Insert(u32),
    Reply(usize, u32),
    Remove(usize),
    Clear,
}

fn action() -> impl Strategy<Value = Action> {
    // Few numbers, so that keys meet each other.
    prop_oneof![
        8 => (0u32..60).prop_map(Action::Insert),
        6 => (any::<usize>(), 0u32..60).prop_map(|(at, number)| Action::Reply(at, number)),
        5 => any::<usize>().prop_map(Action::Remove),
        1 => Just(Action::Clear),
    ]
}

proptest! {
    #[test]
    fn the_table_equals_a_map(
        actions in prop::collection::vec(action(), 0..200),
        capacity in 1u32..40,
        seed in any::<u64>(),
    ) {
        let mut table = table(capacity, seed);
        let mut model: HashMap<Key, Hit> = HashMap::new();
        let mut live: Vec<FlowId> = Vec::new();
        let (mut created, mut peak) = (0, 0);
        for action in actions {
            match action {
                Action::Insert(number) => {
                    let expected = match model.get(&key(number)) {
                        Some(hit) => Err(Refusal::Taken(*hit)),
                        None if live.len() == capacity as usize => Err(Refusal::Full),
                        None => Ok(()),
                    };
                    let got = insert(&mut table, &key(number), Tick(0));
                    assert_eq!(got.map(|_| ()), expected);
                    if let Ok(id) = got {
                        assert!(!live.contains(&id));
                        live.push(id);
                        model.insert(key(number), Hit { id, direction: Direction::Original });
                        created += 1;
                    }
                }
                Action::Reply(at, number) if !live.is_empty() => {
                    let id = live[at % live.len()];
                    let mine = Hit { id, direction: Direction::Reply };
                    let expected = match model.get(&reply(number)) {
                        Some(hit) if *hit != mine => Err(Refusal::Taken(*hit)),
                        _ => Ok(()),
                    };
                    assert_eq!(set_reply(&mut table, id, &reply(number)), expected);
                    if expected.is_ok() {
                        model.retain(|_, hit| *hit != mine);
                        model.insert(reply(number), mine);
                    }
                }
                Action::Remove(at) if !live.is_empty() => {
                    let id = live.swap_remove(at % live.len());
                    table.remove(id, &mut NoTally);
                    table.remove(id, &mut NoTally);
                    assert!(table.flow(id).is_none());
                    model.retain(|_, hit| hit.id != id);
                }
                Action::Clear => {
                    table.clear();
                    model.clear();
                    live.clear();
                    assert!(table.is_blank());
                }
                Action::Reply(..) | Action::Remove(_) => {}
            }
            peak = peak.max(live.len());
            for number in 0..60 {
                for key in [key(number), reply(number)] {
                    assert_eq!(find(&table, &key), model.get(&key).copied());
                    let hash = table.hash(&key, &mut NoTally);
                    let wrong = Some(Hit { id: FlowId(number % 50), direction: Direction::Reply });
                    for guess in [table.candidate_hit(hash), wrong, None] {
                        let found = table.find_from(guess, &key, hash, &mut NoTally);
                        assert_eq!(found, model.get(&key).copied());
                    }
                }
            }
            assert_eq!((table.len() as usize, table.peak() as usize), (live.len(), peak));
            assert_eq!((table.created(), table.ended()), (created, created - live.len() as u64));
            let mut listed: Vec<FlowId> = table.iter().map(|(id, _)| id).collect();
            live.sort();
            listed.sort();
            assert_eq!(listed, live);
        }
        for id in live {
            table.remove(id, &mut NoTally);
        }
        assert!(table.is_blank(), "removal leaves something behind");
    }

    /// Against a list of who was seen when: each flow ends when it has been idle for its timeout, never before
    /// and, where every tick is looked at with work to spare, never later.
    #[test]
    fn the_wheel_equals_a_list(
        steps in prop::collection::vec(
            (0u32..16, any::<bool>(), any::<usize>(), 0usize..16, prop_oneof![Just(0u64), 0u64..20, 0u64..9_000]),
            1..150,
        ),
        most in prop_oneof![Just(1u32), Just(3), Just(1_000)],
    ) {
        let timeouts = timeouts();
        let mut table = table(16, 1);
        // Number of the flow's key, when seen, state.
        let mut model: HashMap<FlowId, (u32, State)> = HashMap::new();
        let mut now = 0u64;
        for (number, touch, at, state, pause) in steps {
            now += pause;
            let (tick, nanos) = (Tick(now as u32), Nanos(now * Tick::LENGTH.0 + 7));
            assert_eq!(table.tick(nanos), tick);
            let mut ended = Vec::new();
            let mut rounds = 0;
            while table.is_due(nanos) {
                table.advance(nanos, most, &mut NoTally, |_| None, |id, _, _| ended.push(id));
                rounds += 1;
                assert!(rounds < 200, "the wheel does not come to an end");
            }
            let mut expected: Vec<FlowId> = model
                .iter()
                .filter(|(_, (seen, state))| tick.0 - seen >= timeouts.of(*state))
                .map(|(id, _)| *id)
                .collect();
            ended.sort();
            expected.sort();
            assert_eq!(ended, expected, "at tick {now}");
            for id in ended {
                assert!(table.flow(id).is_none());
                model.remove(&id);
            }
            // Time that goes backwards ends nothing.
            table.advance(Nanos(0), most, &mut NoTally, |_| None, |_, _, _| panic!("ended in the past"));
            let mut live: Vec<FlowId> = model.keys().copied().collect();
            live.sort();
            if touch && !live.is_empty() {
                let (id, state) = (live[at % live.len()], State::ALL[state]);
                if at % 2 == 0 {
                    table.set_state(id, state, tick, &mut NoTally);
                    model.insert(id, (tick.0, state));
                } else {
                    table.flow_mut(id).unwrap().seen = tick.0;
                    model.get_mut(&id).unwrap().0 = tick.0;
                }
            } else if let Ok(id) = insert(&mut table, &key(number), tick) {
                model.insert(id, (tick.0, table.flow(id).unwrap().state()));
            }
            let idlest = table.idlest(16).map(|id| table.flow(id).unwrap().seen);
            let expected = model.values().filter(|(_, state)| !state.is_established()).map(|(seen, _)| *seen).min();
            assert_eq!(idlest, expected);
        }
        table.clear();
        assert!(table.is_blank());
    }
}

#[test]
fn a_million_flows_fit_both_ways_in_200_megabytes() {
    let count = 1_000_000;
    let mut table = table(count, 3);
    assert!(table.memory_bytes() <= 200_000_000, "{} bytes", table.memory_bytes());
    for number in 0..count {
        let id = insert(&mut table, &key(number), Tick(0)).unwrap();
        set_reply(&mut table, id, &reply(number)).unwrap();
    }
    assert_eq!(insert(&mut table, &key(count), Tick(0)), Err(Refusal::Full));
    for number in 0..count {
        let there = find(&table, &key(number)).unwrap();
        let back = find(&table, &reply(number)).unwrap();
        assert_eq!(
            (there.id, there.direction, back.direction),
            (back.id, Direction::Original, Direction::Reply)
        );
        assert_eq!(table.flow(there.id).unwrap().original(), &key(number));
    }
    // Few look-ups go past the first bucket even when the table is full.
    let mut count_reads = tally::Count::default();
    for number in 0..count {
        table.find(&key(number), table.hash(&key(number), &mut NoTally), &mut count_reads);
    }
    let reads = count_reads.references(tally::Region::FlowIndex).reads;
    assert!(reads < u64::from(count) * 115 / 100, "{reads} buckets read for {count} look-ups");
    for id in 0..count {
        table.remove(FlowId(id), &mut NoTally);
    }
    assert!(table.is_blank());
    assert_eq!((table.len(), table.peak(), table.ended()), (0, count, u64::from(count)));
}

#[test]
fn a_flow_long_gone_costs_no_walk_over_every_tick() {
    let mut table = table(4, 4);
    let id = insert(&mut table, &key(1), Tick(0)).unwrap();
    let mut ended = Vec::new();
    table.advance(Nanos::from_secs(10 * 365 * 86_400), 8, &mut NoTally, |_| None, |id, _, _| ended.push(id));
    assert_eq!(ended, [id]);
    // Past the last tick time stands still, and nothing panics.
    let last = table.tick(Nanos::MAX);
    let id = insert(&mut table, &key(1), last).unwrap();
    table.advance(Nanos::MAX, 8, &mut NoTally, |_| None, |_, _, _| panic!("it has just begun"));
    table.remove(id, &mut NoTally);
    assert!(table.is_blank());
}

#[test]
fn a_flow_that_is_its_own_answer_is_refused_its_second_key() {
    let mut table = table(4, 5);
    let itself = Key::v4(1, 1, 9, 9, 6);
    let id = insert(&mut table, &itself, Tick(0)).unwrap();
    let hit = Hit { id, direction: Direction::Original };
    assert_eq!(set_reply(&mut table, id, &itself.reversed()), Err(Refusal::Taken(hit)));
}

#[test]
fn a_flood_of_half_open_flows_makes_room_for_itself_not_of_others() {
    let mut table = table(1_000, 6);
    let mut established = Vec::new();
    for number in 0..500 {
        let id = insert(&mut table, &key(number * 3), Tick(number)).unwrap();
        table.set_state(id, State::Established, Tick(number), &mut NoTally);
        established.push(id);
    }
    for number in 500..20_000 {
        if table.len() == table.capacity() {
            let id = table.idlest(8).unwrap();
            assert!(!table.flow(id).unwrap().state().is_established());
            table.remove(id, &mut NoTally);
        }
        insert(&mut table, &key(number * 3), Tick(500)).unwrap();
    }
    for (number, id) in established.into_iter().enumerate() {
        assert_eq!(find(&table, &key(number as u32 * 3)).map(|hit| hit.id), Some(id));
    }
}

/// Half-open by the short timer, established by the long one, closing by a short one again; reset by the shortest.
#[test]
fn a_connection_ends_by_the_timeout_of_its_state() {
    let (syn, syn_ack, ack) = (Flags::SYN, Flags::SYN_ACK, Flags::ACK);
    let (fin, rst) = (Flags::FIN.and(Flags::ACK), Flags::RST);
    let there = Direction::Original;
    let back = Direction::Reply;
    let handshake = [(there, syn, 0, 0), (back, syn_ack, 100, 1), (there, ack, 1, 101)];
    let closing = [(there, fin, 1, 101), (back, fin, 101, 2), (there, ack, 2, 102)];
    let reset = [(back, rst, 101, 0)];
    let lives: [(Vec<_>, u64); 4] = [
        (handshake[..2].to_vec(), 30),
        (handshake.to_vec(), 7_440),
        ([handshake, closing].concat(), 60),
        ([&handshake[..], &reset[..]].concat(), 10),
    ];
    for (segments, seconds) in lives {
        let mut table = table(4, 7);
        let id = insert(&mut table, &key(0), Tick(0)).unwrap();
        set_reply(&mut table, id, &reply(0)).unwrap();
        let settings = Settings { window: WindowCheck::Strict, midstream: Midstream::Refuse };
        for (direction, flags, seq, ack) in segments {
            let segment = Segment { seq, ack, window: 1_000, flags, data: 0, scale: None };
            let hit = Hit { id, direction };
            table.track_tcp(hit, &segment, settings, Tick(8), &mut NoTally).unwrap();
        }
        let end = Nanos::from_secs(1 + seconds);
        let before = Nanos(end.0 - 1);
        table.advance(before, 100, &mut NoTally, |_| None, |_, _, _| panic!("too early"));
        assert!(!table.is_expired(table.flow(id).unwrap(), table.tick(before)));
        assert!(table.is_expired(table.flow(id).unwrap(), table.tick(end)));
        table.advance(end, 100, &mut NoTally, |_| None, |_, _, _| {});
        assert!(table.is_empty(), "after {seconds} s");
    }
}

#[test]
fn a_key_of_no_packet_and_a_place_without_flow_are_harmless() {
    let mut table = table(4, 8);
    let nothing = Key::default();
    assert_eq!(insert(&mut table, &nothing, Tick(0)), Err(Refusal::NoKey));
    assert_eq!(insert(&mut table, &nothing.in_ct_zone(3), Tick(0)), Err(Refusal::NoKey));
    let hash = table.hash(&nothing, &mut NoTally);
    for direction in [Direction::Original, Direction::Reply] {
        for id in [FlowId(0), FlowId(u32::MAX)] {
            let guess = Some(Hit { id, direction });
            assert_eq!(table.find_from(guess, &nothing, hash, &mut NoTally), None);
        }
    }
    for id in [FlowId(0), FlowId(4), FlowId(u32::MAX)] {
        assert_eq!(set_reply(&mut table, id, &reply(1)), Ok(()));
        assert_eq!(set_reply(&mut table, id, &nothing), Err(Refusal::NoKey));
        table.set_state(id, State::Reset, Tick(0), &mut NoTally);
        table.remove(id, &mut NoTally);
        table.prefetch_flow(id);
        assert!(table.flow(id).is_none() && table.cold(id).is_none());
    }
    assert!(table.is_blank());
}

fn flow(table: &mut FlowTable, number: u32, ct_zone: u16, epoch: u16) -> FlowId {
    let id = insert(table, &key(number).in_ct_zone(ct_zone), Tick(0)).unwrap();
    set_reply(table, id, &reply(number).in_ct_zone(ct_zone)).unwrap();
    table.flow_mut(id).unwrap().epoch = epoch;
    id
}

fn find_stale(table: &FlowTable, key: &Key, but: &[FlowId]) -> Option<Hit> {
    table.find_stale(key, table.hash(key, &mut NoTally), but, &mut NoTally)
}

#[test]
fn flows_of_earlier_epochs_are_found_in_every_ct_zone_and_move_to_theirs() {
    let mut table = table(10, 9);
    table.begin_epoch(1, timeouts());
    let (a, b) = (flow(&mut table, 1, 5, 1), flow(&mut table, 1, 6, 1));
    assert!(!table.may_be_stale());
    assert_eq!(find_stale(&table, &key(1).in_ct_zone(7), &[]), None);
    table.begin_epoch(2, timeouts());
    assert!(table.may_be_stale() && table.is_stale(table.flow(a).unwrap()));
    let found = find_stale(&table, &key(1).in_ct_zone(7), &[]).unwrap();
    let other = find_stale(&table, &key(1).in_ct_zone(7), &[found.id]).unwrap();
    assert_eq!([found.id, other.id].iter().max(), [a, b].iter().max());
    assert_eq!(find_stale(&table, &key(1).in_ct_zone(7), &[a, b]), None);
    assert_eq!(find_stale(&table, &key(4).in_ct_zone(5), &[]), None);
    // Where one is, the other cannot go.
    let taken = Refusal::Taken(Hit { id: b, direction: Direction::Original });
    assert_eq!(table.move_to(a, [6, 5], &mut NoTally), Err(taken));
    assert_eq!(table.flow(a).unwrap().original(), &key(1).in_ct_zone(5));
    assert_eq!(table.move_to(a, [7, 8], &mut NoTally), Ok(()));
    let hit = |id, direction| Some(Hit { id, direction });
    assert_eq!(find(&table, &key(1).in_ct_zone(7)), hit(a, Direction::Original));
    assert_eq!(find(&table, &reply(1).in_ct_zone(8)), hit(a, Direction::Reply));
    assert_eq!(find(&table, &key(1).in_ct_zone(5)), None);
    // Who has been validated is found only where it is.
    table.flow_mut(a).unwrap().epoch = 2;
    assert_eq!(find_stale(&table, &reply(1).in_ct_zone(7), &[]), hit(b, Direction::Reply));
    for id in [a, b] {
        table.remove(id, &mut NoTally);
    }
    assert!(table.is_blank());
}

/// 65,535 epochs later the number is the same, and the flow still is not of it: whether the timer has come by meanwhile,
/// or nobody has ever looked.
#[test]
fn a_flow_is_never_taken_for_one_of_the_present_when_epochs_come_again() {
    for looks in [false, true] {
        let mut table = table(10, 10);
        table.begin_epoch(7, timeouts());
        let id = flow(&mut table, 1, 5, 7);
        let mut now = Nanos(0);
        for step in 0..140_000_u32 {
            let epoch = ((7 + step) % 65_535 + 1) as u16;
            if looks && step % 1_000 == 0 {
                // Faster than any host: a hundred thousand in a few turns of the wheel.
                now += Nanos::from_secs(60);
                table.flow_mut(id).unwrap().seen = table.tick(now).0;
                table.advance(now, 100, &mut NoTally, |_| None, |_, _, _| panic!("it is in use"));
            }
            table.begin_epoch(epoch, timeouts());
            assert!(table.is_stale(table.flow(id).unwrap()), "epoch {epoch} after {step}");
        }
    }
}

#[test]
fn the_timer_marks_what_is_of_an_earlier_epoch() {
    let mut table = table(10, 11);
    table.begin_epoch(1, timeouts());
    let (old, new) = (flow(&mut table, 1, 5, 1), flow(&mut table, 4, 5, 2));
    table.begin_epoch(2, timeouts());
    // Longer than UDP's timeout, which is when the wheel comes by.
    for second in [200, 400, 600] {
        for id in [old, new] {
            table.flow_mut(id).unwrap().seen = table.tick(Nanos::from_secs(second)).0;
        }
        table.advance(
            Nanos::from_secs(second),
            100,
            &mut NoTally,
            |_| None,
            |_, _, _| panic!("it is in use"),
        );
    }
    assert_eq!([old, new].map(|id| table.flow(id).unwrap().epoch), [super::STALE, 2]);
}

#[test]
fn what_another_table_has_had_goes_on_where_it_was() {
    let (mut from, mut to) =
        (table(10, 12), FlowTable::new(10, [3, 4], timeouts(), Nanos::from_secs(900_000)).unwrap());
    let id = flow(&mut from, 3, 5, 1);
    let segment = |flags, seq, ack| Segment { seq, ack, window: 100, flags, data: 0, scale: None };
    let settings = Settings { window: WindowCheck::Strict, midstream: Midstream::Refuse };
    let hit = |id, direction| Hit { id, direction };
    let steps = [
        (Direction::Original, segment(Flags::SYN, 10, 0)),
        (Direction::Reply, segment(Flags::SYN_ACK, 20, 11)),
        (Direction::Original, segment(Flags::ACK, 11, 21)),
    ];
    for (direction, step) in steps {
        from.track_tcp(hit(id, direction), &step, settings, Tick(8), &mut NoTally).unwrap();
    }
    let flow = *from.flow(id).unwrap();
    let (keys, windows) = ([flow.original(), flow.reply()], &flow.windows());
    let former = super::Former { keys, state: flow.state(), windows, idle: 80, age: 900 };
    let now = to.tick(Nanos::from_secs(900_000));
    let there = to.restore(&former, now).unwrap();
    let other = *to.flow(there).unwrap();
    assert_eq!((other.state(), other.windows(), other.seen), (State::Established, *windows, now.0 - 80));
    assert_eq!(to.cold(there).unwrap().created, now.0 - 900);
    assert!(to.is_stale(&other) || to.epoch() == super::STALE);
    // It is over when it would have been, to a tick.
    let left = timeouts().of(State::Established) - 80;
    assert!(!to.is_expired(&other, Tick(now.0 + left - 1)) && to.is_expired(&other, Tick(now.0 + left)));
    assert_eq!(to.restore(&former, now), Err(Refusal::Taken(hit(there, Direction::Reply))));
    // Windows go on: what was out of them is still.
    let late = segment(Flags::ACK, 5_000_000, 21);
    let tracked = to.track_tcp(hit(there, Direction::Original), &late, settings, now, &mut NoTally);
    assert!(tracked.is_err());
    to.remove(there, &mut NoTally);
    assert!(to.is_blank());
}

proptest! {
    /// Whatever the clock does, and whenever it is looked at.
    #[test]
    fn a_tick_is_a_quotient(
        start in prop_oneof![Just(0), any::<u64>()],
        moments in prop::collection::vec((any::<bool>(), prop_oneof![0..Tick::LENGTH.0 * 3, any::<u64>()]), 1..40),
    ) {
        let mut table = FlowTable::new(4, [1, 2], timeouts(), Nanos(start)).unwrap();
        for (is_advanced, after) in moments {
            let now = Nanos(start.wrapping_add(after));
            if is_advanced {
                table.advance(now, 8, &mut NoTally, |_| None, |_, _, _| {});
            }
            let ticks = now.0.saturating_sub(table.start().0) / Tick::LENGTH.0;
            assert_eq!(table.tick(now), Tick(ticks.min(u32::MAX.into()) as u32));
        }
    }
}
