//! The table against a plain model with one entry per byte, and against those who would break it.

use std::collections::{HashMap, HashSet};

use policy::model::FragmentLimits;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use tally::{Count, NoTally, Region};
use wire::{Bytes, Family, Frame, Nanos, Pool};

use super::range::{Added, RANGES, Ranges};
use super::{DatagramKey, Fragments, Kept, Later, Span, WAITING};
use crate::verdict::Reason;

const TIMEOUT: Nanos = Nanos::from_secs(30);

fn limits(datagrams: u32, held: u32) -> FragmentLimits {
    FragmentLimits { datagrams, held, datagram: Bytes(65_535) }
}

fn table(datagrams: u32, held: u32) -> Fragments {
    let mut table = Fragments::new(&limits(datagrams, held), TIMEOUT, [3, 5]).unwrap();
    table.shares.lift();
    table
}

fn key(id: u32) -> DatagramKey {
    DatagramKey {
        source: 0x0a00_0001,
        destination: 0xc633_6407,
        id,
        protocol: 17,
        family: Family::V4,
        ct_zone: 0,
    }
}

fn span(offset: u32, len: u32, more: bool) -> Span {
    Span { offset, len, more }
}

fn kept(sport: u16) -> Kept {
    Kept { sport, dport: 53, protocol: 17, tcp_flags: 0, own: 7 }
}

fn frame(pool: &mut Pool, number: u32) -> Frame {
    let mut frame = pool.take().unwrap();
    frame.meta.number = number;
    frame
}

fn first(table: &mut Fragments, id: u32, at: Span, now: Nanos) -> Result<(), Reason> {
    table.first(&key(id), at, kept(id as u16), now, &mut NoTally)
}

fn later(table: &mut Fragments, id: u32, at: Span, now: Nanos) -> Later {
    table.later(&key(id), at, now, &mut NoTally)
}

fn hold(table: &mut Fragments, pool: &mut Pool, id: u32, number: u32) {
    assert!(table.hold(&key(id), frame(pool, number), &mut NoTally).is_ok());
}

fn release(table: &mut Fragments, pool: &mut Pool, id: u32) -> Option<u32> {
    let frame = table.release(&key(id), &mut NoTally)?;
    let number = frame.meta.number;
    pool.put(frame);
    Some(number)
}

fn expire(table: &mut Fragments, pool: &mut Pool, now: Nanos) -> Vec<(u32, Reason)> {
    let mut given = Vec::new();
    while table.is_due(now) {
        table.expire(now, &mut NoTally, |frame, reason| {
            given.push((frame.meta.number, reason));
            pool.put(frame);
        });
    }
    given
}

const OVERLAP: Later = Later::Refuse(Reason::FragmentOverlap);
const NOW: Nanos = Nanos(1_000);

#[test]
fn later_fragments_follow_the_first_until_the_datagram_is_complete() {
    let mut table = table(1, 0);
    assert_eq!(first(&mut table, 1, span(0, 1480, true), NOW), Ok(()));
    assert_eq!(later(&mut table, 1, span(1480, 1480, true), NOW), Later::Kept(kept(1)));
    assert_eq!(later(&mut table, 1, span(2960, 1, false), NOW), Later::Kept(kept(1)));
    assert!(table.shares.is_blank(), "the last piece made room");
}

#[test]
fn fragments_that_wait_are_released_in_order_of_arrival() {
    let mut pool = Pool::new(4, 2048).unwrap();
    let mut table = table(1, 4);
    for (number, at) in [(1, span(1600, 5, false)), (2, span(800, 400, true)), (3, span(1200, 400, true))] {
        assert_eq!(later(&mut table, 1, at, NOW), Later::Wait);
        hold(&mut table, &mut pool, 1, number);
        assert_eq!(release(&mut table, &mut pool, 1), None);
    }
    assert_eq!(table.held(), 3);
    assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
    // All has come, but the datagram stays until they have been released.
    assert_eq!(std::iter::from_fn(|| release(&mut table, &mut pool, 1)).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(table.held(), 0);
    assert_eq!(first(&mut table, 2, span(0, 800, true), NOW), Ok(()));
}

#[test]
fn a_datagram_in_which_fragments_overlap_is_refused_until_it_times_out() {
    // Over the end (teardrop), the exact gap, an end before what has come, a second first that is longer, over the
    // beginning.
    let attacks = [
        span(792, 800, true),
        span(808, 800, true),
        span(808, 16, false),
        span(0, 1600, true),
        span(2000, 400, true),
        span(1600, 800, true),
        span(1600, 424, false),
    ];
    for attack in attacks {
        let mut table = table(2, 0);
        assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
        assert_eq!(later(&mut table, 1, span(1608, 400, true), NOW), Later::Kept(kept(1)));
        let answer = match attack.offset {
            0 => first(&mut table, 1, attack, NOW).map_or_else(Later::Refuse, |()| Later::Wait),
            _ => later(&mut table, 1, attack, NOW),
        };
        if attack == span(808, 800, true) {
            // The one that fits the gap exactly is no attack.
            assert_eq!(answer, Later::Kept(kept(1)));
            continue;
        }
        assert_eq!(answer, OVERLAP, "{attack:?}");
        assert_eq!(later(&mut table, 1, span(4000, 400, true), NOW), OVERLAP, "{attack:?}");
        assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Err(Reason::FragmentOverlap));
        let over = NOW + TIMEOUT;
        assert_eq!(later(&mut table, 1, span(4000, 400, true), Nanos(over.0 - 1)), OVERLAP);
        assert_eq!(first(&mut table, 1, span(0, 800, true), over), Ok(()));
    }
}

#[test]
fn a_fragment_that_comes_twice_is_refused_alone() {
    let mut table = table(1, 0);
    assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
    assert_eq!(
        table.first(&key(1), span(0, 800, true), kept(99), NOW, &mut NoTally),
        Err(Reason::FragmentOverlap)
    );
    assert_eq!(later(&mut table, 1, span(1600, 800, false), NOW), Later::Kept(kept(1)));
    assert_eq!(later(&mut table, 1, span(1600, 800, false), NOW), OVERLAP);
    // Nor did the second first change what the others follow.
    assert_eq!(later(&mut table, 1, span(800, 800, true), NOW), Later::Kept(kept(1)));
}

#[test]
fn two_ends_or_bytes_past_the_end_refuse_the_datagram() {
    for lie in [span(1600, 792, false), span(2400, 8, false), span(2400, 8, true), span(1600, 800, true)] {
        let mut table = table(1, 0);
        assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
        assert_eq!(later(&mut table, 1, span(1600, 800, false), NOW), Later::Kept(kept(1)));
        assert_eq!(later(&mut table, 1, lie, NOW), OVERLAP, "{lie:?}");
        assert_eq!(later(&mut table, 1, span(800, 800, true), NOW), OVERLAP, "{lie:?}");
    }
}

#[test]
fn what_waits_for_a_datagram_that_is_refused_is_given_back_at_once() {
    let mut pool = Pool::new(4, 2048).unwrap();
    let mut table = table(2, 4);
    assert_eq!(later(&mut table, 1, span(800, 800, true), NOW), Later::Wait);
    hold(&mut table, &mut pool, 1, 1);
    assert!(!table.is_due(NOW));
    assert_eq!(later(&mut table, 1, span(808, 800, true), NOW), OVERLAP);
    assert!(table.is_due(NOW));
    assert_eq!(expire(&mut table, &mut pool, NOW), [(1, Reason::FragmentOverlap)]);
    assert_eq!(table.held(), 0);
    assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Err(Reason::FragmentOverlap));
    let refused = table.hold(&key(1), frame(&mut pool, 2), &mut NoTally);
    assert_eq!(refused.unwrap_err().meta.number, 2);
}

#[test]
fn what_waits_in_vain_is_given_back_when_its_time_is_over() {
    let mut pool = Pool::new(4, 2048).unwrap();
    let mut table = table(2, 4);
    for (id, now) in [(1, Nanos(0)), (2, Nanos(500))] {
        assert_eq!(later(&mut table, id, span(800, 800, true), now), Later::Wait);
        hold(&mut table, &mut pool, id, id);
    }
    assert_eq!(expire(&mut table, &mut pool, Nanos(TIMEOUT.0 - 1)), []);
    assert_eq!(expire(&mut table, &mut pool, TIMEOUT), [(1, Reason::FragmentTimeout)]);
    // Found by its own successor before anybody called: the old one's frames do not become the new one's.
    let now = Nanos(TIMEOUT.0 + 500);
    assert_eq!(later(&mut table, 2, span(1600, 8, true), now), Later::Wait);
    hold(&mut table, &mut pool, 2, 3);
    assert_eq!(expire(&mut table, &mut pool, now), [(2, Reason::FragmentTimeout)]);
    assert_eq!(first(&mut table, 2, span(0, 8, true), now), Ok(()));
    assert_eq!(release(&mut table, &mut pool, 2), Some(3));
}

#[test]
fn bounds_are_where_they_are_said_to_be() {
    let mut table = table(8, 8);
    let oversize = Later::Refuse(Reason::FragmentOversize);
    // 65,535 bytes with a header of 20 in IPv4, without one in IPv6.
    assert_eq!(later(&mut table, 1, span(65_504, 11, false), NOW), Later::Wait);
    assert_eq!(later(&mut table, 2, span(65_504, 12, false), NOW), oversize);
    let v6 = DatagramKey { family: Family::V6, ..key(3) };
    assert_eq!(table.later(&v6, span(65_528, 7, false), NOW, &mut NoTally), Later::Wait);
    assert_eq!(table.later(&v6, span(65_528, 8, false), NOW, &mut NoTally), oversize);
    assert_eq!(later(&mut table, 4, span(u32::MAX - 7, u32::MAX, true), NOW), oversize);
    assert_eq!(later(&mut table, 4, span(8, 0, false), NOW), Later::Refuse(Reason::FragmentTiny));
    assert_eq!(later(&mut table, 4, span(8, 9, true), NOW), OVERLAP);
    assert_eq!(later(&mut table, 4, span(9, 8, true), NOW), OVERLAP);
    assert_eq!(first(&mut table, 4, span(0, 0, true), NOW), Err(Reason::FragmentTiny));
    // None of these has begun a datagram, or spoilt it.
    assert_eq!(later(&mut table, 4, span(8, 9, false), NOW), Later::Wait);

    let small = FragmentLimits { datagram: Bytes(1_000), ..limits(1, 1) };
    let mut small = Fragments::new(&small, TIMEOUT, [0; 2]).unwrap();
    assert_eq!(later(&mut small, 1, span(976, 5, false), NOW), oversize);
    assert_eq!(later(&mut small, 1, span(976, 4, false), NOW), Later::Wait);
}

#[test]
fn all_parts_of_the_key_tell_datagrams_apart() {
    let mut table = table(16, 16);
    let base = key(1);
    assert_eq!(table.first(&base, span(0, 8, true), kept(1), NOW, &mut NoTally), Ok(()));
    for other in [
        DatagramKey { source: base.source | 1 << 100, ..base },
        DatagramKey { destination: base.destination + 1, ..base },
        DatagramKey { id: base.id | 1 << 31, ..base },
        DatagramKey { protocol: 6, ..base },
        DatagramKey { family: Family::V6, ..base },
        DatagramKey { ct_zone: 1, ..base },
    ] {
        assert_eq!(table.later(&other, span(8, 8, true), NOW, &mut NoTally), Later::Wait, "{other:?}");
    }
    assert_eq!(table.later(&base, span(8, 8, true), NOW, &mut NoTally), Later::Kept(kept(1)));
}

#[test]
fn a_datagram_in_one_fragment_passes_beside_others_of_its_key() {
    let mut table = table(1, 0);
    assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
    assert_eq!(first(&mut table, 1, span(0, 800, false), NOW), Ok(()));
    assert_eq!(first(&mut table, 2, span(0, 800, false), NOW), Ok(()));
    assert_eq!(later(&mut table, 1, span(800, 8, false), NOW), Later::Kept(kept(1)));
}

#[test]
fn no_more_frames_wait_than_there_is_room_for() {
    let mut pool = Pool::new(200, 2048).unwrap();
    let full = Later::Refuse(Reason::FragmentTableFull);
    let mut table = table(4, 100);
    for number in 0..u32::from(WAITING) {
        assert_eq!(later(&mut table, 1, span(8 + number * 8, 8, true), NOW), Later::Wait);
        hold(&mut table, &mut pool, 1, number);
    }
    assert_eq!(later(&mut table, 1, span(8_000, 8, true), NOW), full);
    for number in 0..100 - u32::from(WAITING) {
        assert_eq!(later(&mut table, 2, span(8 + number * 8, 8, true), NOW), Later::Wait);
        hold(&mut table, &mut pool, 2, 100 + number);
    }
    assert_eq!(later(&mut table, 2, span(8_000, 8, true), NOW), full);
    assert_eq!(later(&mut table, 3, span(8_000, 8, true), NOW), full);
    assert!(table.hold(&key(2), frame(&mut pool, 0), &mut NoTally).is_err());
    assert_eq!(table.held(), 100);
    // Those who need not wait are unharmed, and what was refused has not been noted as come.
    assert_eq!(first(&mut table, 4, span(0, 8, true), NOW), Ok(()));
    assert_eq!(first(&mut table, 1, span(0, 8, true), NOW), Ok(()));
    assert_eq!(std::iter::from_fn(|| release(&mut table, &mut pool, 1)).count(), usize::from(WAITING));
    assert_eq!(later(&mut table, 1, span(8_000, 8, true), NOW), Later::Kept(kept(1)));
}

#[test]
fn a_flood_of_datagrams_that_never_end_keeps_memory_and_work_flat() {
    let mut pool = Pool::new(300, 2048).unwrap();
    let mut table = table(1_000, 256);
    let bytes = table.bytes();
    // An honest datagram begins before the flood, ends within it.
    assert_eq!(first(&mut table, 1, span(0, 800, true), NOW), Ok(()));
    let (mut refused, mut given, mut honest) = (0, 0, 0);
    for number in 0..500_000u32 {
        let now = Nanos(NOW.0 + u64::from(number) * 100_000);
        let id = 10 + number;
        if number % 2 == 0 {
            refused += u32::from(first(&mut table, id, span(0, 8, true), now).is_err());
        } else {
            match later(&mut table, id, span(8, 8, true), now) {
                Later::Wait => hold(&mut table, &mut pool, id, number),
                Later::Refuse(Reason::FragmentTableFull) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        if number == 400 {
            assert_eq!(later(&mut table, 1, span(800, 800, true), now), Later::Kept(kept(1)));
        }
        // And one in the midst of it, whose fragments come one behind the other but for fifty of the flood.
        if number % 1_000 == 900 {
            assert_eq!(first(&mut table, 2, span(0, 800, true), now), Ok(()));
        }
        if number % 1_000 == 950 {
            assert_eq!(later(&mut table, 2, span(800, 8, false), now), Later::Kept(kept(2)));
            honest += 1;
        }
        given += expire(&mut table, &mut pool, now).len();
    }
    assert_eq!(table.bytes(), bytes);
    assert!(refused > 0 && given > 0 && table.held() <= 256, "{refused} {given} {}", table.held());
    assert_eq!(honest, 500);
    // When it is over, all is as before.
    let later_on = Nanos(NOW.0 + 100 * 1_000_000_000);
    expire(&mut table, &mut pool, later_on);
    assert_eq!((table.held(), pool.available()), (0, 300));
    for id in 0..1_000 {
        assert_eq!(first(&mut table, id, span(0, 8, true), later_on), Ok(()));
    }
    assert_eq!(table.table.places().count(), 1_000);
}

#[test]
fn in_a_full_table_the_oldest_makes_room() {
    let mut pool = Pool::new(2, 2048).unwrap();
    let mut table = table(2, 1);
    assert_eq!(later(&mut table, 1, span(8, 8, true), Nanos(0)), Later::Wait);
    hold(&mut table, &mut pool, 1, 77);
    assert_eq!(first(&mut table, 2, span(0, 8, true), Nanos(1)), Ok(()));
    assert_eq!(first(&mut table, 3, span(0, 8, true), Nanos(2)), Ok(()));
    assert_eq!(later(&mut table, 2, span(8, 8, true), Nanos(3)), Later::Kept(kept(2)));
    // What waited for the one that was forgotten is given back.
    let mut given = Vec::new();
    table.expire(Nanos(3), &mut NoTally, |frame, reason| {
        given.push((frame.meta.number, reason));
        pool.put(frame);
    });
    assert_eq!(given, [(77, Reason::FragmentTableFull)]);
}

#[test]
fn one_call_does_a_bounded_part_of_the_work() {
    let mut table = table(1_000, 0);
    for id in 0..1_000 {
        assert_eq!(first(&mut table, id, span(0, 8, true), NOW), Ok(()));
    }
    let mut calls = 0;
    while table.is_due(Nanos::MAX) {
        table.expire(Nanos::MAX, &mut NoTally, |_, _| unreachable!());
        calls += 1;
    }
    assert_eq!(calls, 1_000u32.div_ceil(super::STEPS));
}

#[test]
fn time_that_goes_backwards_loses_no_datagram_and_keeps_none_for_ever() {
    let mut table = table(2, 0);
    let far = Nanos::from_secs(1_000_000);
    assert_eq!(first(&mut table, 1, span(0, 8, true), far), Ok(()));
    // A little, as between two interfaces of one capture.
    assert_eq!(later(&mut table, 1, span(8, 8, true), Nanos(far.0 - 1_000)), Later::Kept(kept(1)));
    assert!(!table.is_due(Nanos(far.0 - 1_000)));
    // A lot: that clock was wrong.
    assert!(table.is_due(NOW));
    assert_eq!(first(&mut table, 2, span(0, 8, true), NOW), Ok(()));
    assert_eq!(first(&mut table, 3, span(0, 8, true), NOW), Ok(()));
    // At the end of time nothing overflows.
    assert_eq!(first(&mut table, 4, span(0, 8, true), Nanos::MAX), Ok(()));
}

#[test]
fn every_order_of_the_largest_datagram_on_ethernet_is_taken() {
    for step in 1..45u32 {
        let mut table = table(1, 0);
        assert_eq!(first(&mut table, 1, span(0, 1480, true), NOW), Ok(()));
        let mut seen: HashSet<u32> = HashSet::from([0]);
        for number in (0..step).flat_map(|start| (start..45).step_by(step as usize)) {
            if seen.insert(number) {
                let last = number == 44;
                let at = span(number * 1480, if last { 65_515 - 44 * 1480 } else { 1480 }, !last);
                assert_eq!(later(&mut table, 1, at, NOW), Later::Kept(kept(1)), "step {step}, {number}");
            }
        }
        assert_eq!(first(&mut table, 2, span(0, 8, true), NOW), Ok(()));
    }
}

#[test]
fn more_ranges_than_there_is_room_for_are_refused_and_do_no_harm() {
    let mut table = table(1, 0);
    assert_eq!(first(&mut table, 1, span(0, 8, true), NOW), Ok(()));
    for number in 1..RANGES as u32 {
        assert_eq!(later(&mut table, 1, span(number * 16, 8, true), NOW), Later::Kept(kept(1)));
    }
    let full = Later::Refuse(Reason::FragmentTableFull);
    assert_eq!(later(&mut table, 1, span(16_000, 8, true), NOW), full);
    assert_eq!(later(&mut table, 1, span(8, 8, true), NOW), Later::Kept(kept(1)));
    assert_eq!(later(&mut table, 1, span(16_000, 8, true), NOW), Later::Kept(kept(1)));
}

#[test]
fn the_cost_is_told() {
    let mut table = table(4, 4);
    let mut count = Count::default();
    assert_eq!(table.first(&key(1), span(0, 8, true), kept(1), NOW, &mut count), Ok(()));
    assert_eq!(count.hashes(), 1);
    assert!(count.executed_total() > 0 && count.references(Region::FragmentTable).writes > 0);
}

#[test]
fn no_seed_puts_ids_that_count_up_into_one_chain() {
    for seed in (0..200).flat_map(|seed| [[seed, 0], [0, seed], [!seed, seed << 32]]) {
        let hasher = super::hash::Hasher::new(seed);
        let heads: HashSet<u32> = (0..1_024).map(|id| hasher.hash(&key(id)) % 2_048).collect();
        // Of 1,024 thrown at random into 2,048, 806 places are expected to be hit, give or take 11.
        assert!(heads.len() > 700, "{seed:?}: {}", heads.len());
    }
}

proptest! {
    #[test]
    fn ranges_are_sets_of_units(spans in prop::collection::vec((0u16..60, 1u16..9), 1..60)) {
        let mut ranges = Ranges::default();
        let mut units = HashSet::new();
        for (begin, len) in spans {
            let new: HashSet<u16> = (begin..begin + len).collect();
            let expected = if new.is_subset(&units) {
                Added::Again
            } else if new.is_disjoint(&units) {
                units.extend(&new);
                Added::New
            } else {
                Added::Overlap
            };
            // 60 units are never in more than 30 ranges, of which there is room for 24.
            let added = ranges.add(begin, begin + len);
            if added == Added::Full {
                prop_assert_eq!(expected, Added::New);
                break;
            }
            prop_assert_eq!(added, expected);
            prop_assert_eq!(ranges.furthest(), units.iter().max().map_or(0, |last| last + 1));
            for end in 1..70 {
                prop_assert_eq!(ranges.reach(end), (0..end).all(|unit| units.contains(&unit)) && units.len() == usize::from(end));
            }
        }
    }
}

/// A datagram as anybody would write it down.
#[derive(Default)]
struct Model {
    bytes: HashMap<u32, bool>,
    end: Option<u32>,
    first: Option<Kept>,
    poisoned: bool,
    born: u64,
    held: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Action {
    Fragment { id: u32, offset: u32, len: u32, more: bool },
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let fragment = |len: prop::strategy::BoxedStrategy<u32>| {
        (0u32..3, 0u32..6, len, prop::bool::weighted(0.7)).prop_map(|(id, offset, len, more)| {
            // Mostly aligned to each other, so that datagrams get complete.
            Action::Fragment { id, offset: offset * 16, len, more }
        })
    };
    prop_oneof![
        12 => fragment(Just(16).boxed()),
        3 => fragment((0u32..40).boxed()),
        2 => (0u64..20).prop_map(Action::Wait),
    ]
}

impl Model {
    /// Returns the documented reason for refusing a fragment of a known datagram; `None` if the fragment may be noted.
    fn refusal(&mut self, at: Span) -> Option<Reason> {
        let end = at.offset + at.len;
        let furthest = self.bytes.keys().max().map_or(0, |last| last + 1);
        if self.poisoned {
            return Some(Reason::FragmentOverlap);
        }
        let known = (at.offset..end).filter(|byte| self.bytes.contains_key(byte)).count() as u32;
        let lies = match (at.more, self.end) {
            (true, Some(total)) => end >= total,
            (true, None) => false,
            (false, Some(total)) => end != total,
            (false, None) => furthest >= end,
        };
        if lies || known > 0 && known < at.len {
            self.poisoned = true;
            return Some(Reason::FragmentOverlap);
        }
        (known == at.len).then_some(Reason::FragmentOverlap)
    }

    fn note(&mut self, at: Span) {
        self.bytes.extend((at.offset..at.offset + at.len).map(|byte| (byte, true)));
        if !at.more {
            self.end = Some(at.offset + at.len);
        }
    }

    fn is_complete(&self) -> bool {
        self.end == Some(self.bytes.len() as u32) && self.first.is_some()
    }
}

proptest! {
    #[test]
    fn behaves_as_the_model(
        actions in prop::collection::vec(action(), 1..120),
        seed in any::<[u64; 2]>(),
    ) {
        let mut pool = Pool::new(128, 2048).unwrap();
        let mut table = Fragments::new(&limits(8, 128), Nanos(30), seed).unwrap();
        let mut model: HashMap<u32, Model> = HashMap::new();
        let mut now = 0;
        for (number, action) in actions.into_iter().enumerate() {
            let number = number as u32;
            let (id, at) = match action {
                Action::Wait(span) => {
                    now += span;
                    let mut over: Vec<_> = model.extract_over(now);
                    let mut given = expire(&mut table, &mut pool, Nanos(now));
                    over.sort_unstable();
                    given.sort_unstable();
                    prop_assert_eq!(given, over);
                    continue;
                }
                Action::Fragment { id, offset, len, more } => (id, span(offset, len, more)),
            };
            let malformed = if at.len == 0 {
                Some(Reason::FragmentTiny)
            } else {
                (at.more && at.len % 8 != 0).then_some(Reason::FragmentOverlap)
            };
            let atomic = at.offset == 0 && !at.more;
            let refusal = malformed.or_else(|| {
                if atomic {
                    return None;
                }
                let born = now;
                model.entry(id).or_insert_with(|| Model { born, ..Model::default() }).refusal(at)
            });
            let mut expected = Vec::new();
            if at.offset == 0 {
                let answer = first(&mut table, id, at, Nanos(now));
                prop_assert_eq!(answer, refusal.map_or(Ok(()), Err));
            } else {
                let first_said = model.get(&id).and_then(|entry| entry.first);
                let answer = later(&mut table, id, at, Nanos(now));
                prop_assert_eq!(answer, match (refusal, first_said) {
                    (Some(reason), _) => Later::Refuse(reason),
                    (None, Some(said)) => Later::Kept(said),
                    (None, None) => Later::Wait,
                });
                if answer == Later::Wait {
                    hold(&mut table, &mut pool, id, number);
                    model.get_mut(&id).unwrap().held.push(number);
                }
            }
            if let Some(entry) = model.get_mut(&id).filter(|_| !atomic && malformed.is_none()) {
                if refusal.is_none() {
                    entry.note(at);
                    if at.offset == 0 {
                        entry.first = Some(kept(id as u16));
                        expected = std::mem::take(&mut entry.held);
                    }
                }
                let given = expire(&mut table, &mut pool, Nanos(now));
                if entry.poisoned {
                    let refused: Vec<_> =
                        entry.held.drain(..).map(|number| (number, Reason::FragmentOverlap)).collect();
                    prop_assert_eq!(given, refused);
                } else {
                    prop_assert_eq!(given, []);
                }
                let released: Vec<u32> = std::iter::from_fn(|| release(&mut table, &mut pool, id)).collect();
                prop_assert_eq!(released, expected);
                if entry.is_complete() && !entry.poisoned {
                    model.remove(&id);
                }
            }
            let held: usize = model.values().map(|entry| entry.held.len()).sum();
            prop_assert_eq!(table.held() as usize, held);
            prop_assert_eq!(pool.available(), 128 - held);
        }
    }
}

trait Over {
    /// Takes out the datagrams whose time is over; the frames that waited for them.
    fn extract_over(&mut self, now: u64) -> Vec<(u32, Reason)>;
}

impl Over for HashMap<u32, Model> {
    fn extract_over(&mut self, now: u64) -> Vec<(u32, Reason)> {
        let mut frames = Vec::new();
        self.retain(|_, entry| {
            let over = now >= entry.born + 30;
            if over {
                frames.extend(entry.held.iter().map(|number| (*number, Reason::FragmentTimeout)));
            }
            !over
        });
        frames
    }
}

fn key_of(source: u128, ct_zone: u16, id: u32) -> DatagramKey {
    DatagramKey { source, ct_zone, ..key(id) }
}

#[test]
fn one_source_and_one_side_have_no_more_than_their_share() {
    let mut table = Fragments::new(&limits(1_024, 256), TIMEOUT, [3, 5]).unwrap();
    let begin = |table: &mut Fragments, source, ct_zone, id| {
        table.first(&key_of(source, ct_zone, id), span(0, 8, true), kept(1), NOW, &mut NoTally)
    };
    let taken = (0..1_000).filter(|id| begin(&mut table, 1, 1, *id).is_ok()).count();
    assert_eq!(taken, 64, "of one source");
    // From many sources of one side: they make room for one another, and leave alone what is another's.
    let of = |table: &Fragments, ct_zone| {
        table.table.places().filter(|at| table.table.key(*at).ct_zone == ct_zone).count()
    };
    for id in 0..200 {
        assert_eq!(begin(&mut table, u128::from(id) + 100, 2, id), Ok(()));
    }
    let taken = (0..10_000).filter(|id| begin(&mut table, u128::from(*id) + 100, 1, *id).is_ok()).count();
    assert_eq!((of(&table, 1), of(&table, 2)), (768, 200));
    assert!(taken > 9_000, "{taken} of one side");
    // Time gives it back.
    let later_on = NOW + TIMEOUT;
    while table.is_due(later_on) {
        table.expire(later_on, &mut NoTally, |_, _| panic!("nothing waits"));
    }
    assert!(table.shares.is_blank());
}

#[test]
fn frames_that_wait_are_shared_out_and_given_back() {
    let mut pool = Pool::new(300, 2_048).unwrap();
    let mut table = Fragments::new(&limits(1_024, 256), TIMEOUT, [3, 5]).unwrap();
    let mut waiting = 0;
    for id in 0..200 {
        let key = key_of(1, 1, id);
        match table.later(&key, span(8, 8, true), NOW, &mut NoTally) {
            Later::Wait => {
                let frame = frame(&mut pool, id);
                assert!(table.hold(&key, frame, &mut NoTally).is_ok());
                waiting += 1;
            }
            other => assert_eq!(other, Later::Refuse(Reason::FragmentTableFull)),
        }
    }
    assert_eq!(waiting, 64);
    // Another host's may.
    assert_eq!(table.later(&key_of(2, 1, 1), span(8, 8, true), NOW, &mut NoTally), Later::Wait);
    assert_eq!(expire(&mut table, &mut pool, NOW + TIMEOUT).len(), 64);
    assert!(table.shares.is_blank());
}
