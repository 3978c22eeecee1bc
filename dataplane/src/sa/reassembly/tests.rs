//! Reassembly beside a naive one: a map of bytes.

use std::collections::BTreeMap;

use policy::model::Timeouts;
use wire::header::Protocol;
use wire::random::Random;
use wire::{Family, Nanos};

use super::{Congestion, DATAGRAMS, Fragment, LONGEST, OF_A_SOURCE, Reassembly, Unusable};
use crate::fragment::{DatagramKey, Span};

fn key(source: u128, id: u32) -> DatagramKey {
    DatagramKey { source, destination: 9, id, protocol: 50, family: Family::V4, ct_zone: 1 }
}

/// Adds bytes `begin..end` of a packet whose byte at place n is n, and returns the whole if it is complete.
fn add(
    table: &mut Reassembly,
    key: DatagramKey,
    (begin, end): (usize, usize),
    more: bool,
    now: Nanos,
) -> Result<Option<Vec<u8>>, Unusable> {
    let payload: Vec<u8> = (begin..end).map(|place| place as u8).collect();
    let span = Span { offset: begin as u32, len: (end - begin) as u32, more };
    let header = &[69; 20][..];
    let (protocol, congestion) = (Protocol::ESP, Congestion::None);
    let fragment = Fragment { key, span, header, protocol, payload: &payload, congestion };
    let whole = table.add(&fragment, now)?;
    assert!(whole.as_ref().is_none_or(|whole| whole.header == [69; 20]));
    Ok(whole.map(|whole| whole.payload.to_vec()))
}

fn table() -> Reassembly {
    Reassembly::new(&Timeouts::default())
}

#[test]
fn fragments_in_any_order_make_the_packet() {
    let mut random = Random::new(4);
    let mut table = table();
    for id in 0..500 {
        let total = 9 + random.below(LONGEST as u64 - 9) as usize;
        let mut cuts = vec![0];
        while cuts.len() < 20 && total - cuts[cuts.len() - 1] > 8 {
            let left = (total - cuts[cuts.len() - 1] - 1) / 8;
            cuts.push(cuts[cuts.len() - 1] + 8 * (1 + random.below(left as u64) as usize));
        }
        cuts.push(total);
        let mut spans: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for place in (1..spans.len()).rev() {
            spans.swap(place, random.below(place as u64 + 1) as usize);
        }
        let (last, others) = spans.split_last().unwrap();
        for span in others {
            assert_eq!(add(&mut table, key(1, id), *span, span.1 < total, Nanos(1)), Ok(None));
            // A repeated one changes nothing.
            assert_eq!(add(&mut table, key(1, id), *span, span.1 < total, Nanos(1)), Err(Unusable));
        }
        let whole = add(&mut table, key(1, id), *last, last.1 < total, Nanos(1)).unwrap().unwrap();
        assert_eq!(whole, (0..total).map(|place| place as u8).collect::<Vec<_>>());
    }
}

/// A datagram put together has each byte from exactly one fragment, or nothing is.
#[test]
fn no_byte_comes_from_two_fragments() {
    let mut random = Random::new(5);
    for round in 0..3_000 {
        let mut table = table();
        let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
        for _ in 0..8 {
            let begin = 8 * random.below(6) as usize;
            let end = begin + 8 * (1 + random.below(3) as usize);
            let more = random.below(3) > 0;
            let outcome = add(&mut table, key(1, round), (begin, end), more, Nanos(1));
            if outcome != Err(Unusable) {
                (begin..end).for_each(|place| *seen.entry(place).or_default() += 1);
            }
            if let Ok(Some(whole)) = outcome {
                assert_eq!(seen.values().filter(|count| **count == 1).count(), whole.len());
                assert_eq!(seen.keys().next_back(), Some(&(whole.len() - 1)));
                break;
            }
        }
    }
}

#[test]
fn an_overlap_refuses_the_datagram_until_its_time_is_over() {
    let (mut table, timeout) = (table(), Timeouts::default().fragment);
    for (first, second) in [((0, 16), (8, 24)), ((8, 24), (0, 16)), ((0, 24), (16, 32))] {
        let key = key(1, first.0 as u32 + first.1 as u32);
        assert_eq!(add(&mut table, key, first, true, Nanos(1)), Ok(None));
        assert_eq!(add(&mut table, key, second, true, Nanos(1)), Err(Unusable));
        let last = (32, 40);
        assert_eq!(add(&mut table, key, last, false, Nanos(2)), Err(Unusable));
        assert_eq!(add(&mut table, key, last, false, Nanos(1) + timeout), Ok(None));
    }
    // A second end, or bytes behind the end.
    for wrong in
        [((8, 16), false, (0, 8), false), ((8, 16), false, (16, 24), true), ((16, 24), true, (8, 16), false)]
    {
        let key = key(2, wrong.2.0 as u32 + 7 * wrong.2.1 as u32);
        assert_eq!(add(&mut table, key, wrong.0, wrong.1, Nanos(1)), Ok(None));
        assert_eq!(add(&mut table, key, wrong.2, wrong.3, Nanos(1)), Err(Unusable), "{wrong:?}");
    }
    for odd in [(0, 12), (4, 12), (8, 8), (LONGEST - 8, LONGEST + 8)] {
        assert_eq!(add(&mut table, key(3, 0), odd, true, Nanos(1)), Err(Unusable), "{odd:?}");
    }
}

#[test]
fn a_source_has_its_share_and_the_oldest_gives_way() {
    let mut table = table();
    let first = |table: &mut Reassembly, source, id, at| add(table, key(source, id), (0, 8), true, Nanos(at));
    let last = |table: &mut Reassembly, source, id| add(table, key(source, id), (8, 16), false, Nanos(1_000));
    assert_eq!(first(&mut table, 1, 0, 1), Ok(None));
    for id in 0..2 * OF_A_SOURCE as u32 {
        assert_eq!(first(&mut table, 2, id, 2 + u64::from(id)), Ok(None));
    }
    assert!(matches!(last(&mut table, 1, 0), Ok(Some(_))), "a flood of another source");
    assert_eq!(last(&mut table, 2, 0), Ok(None), "its own oldest has given way");
    assert!(matches!(last(&mut table, 2, 2 * OF_A_SOURCE as u32 - 1), Ok(Some(_))));
    for source in 0..2 * DATAGRAMS as u128 {
        assert_eq!(first(&mut table, 100 + source, 0, 2_000 + source as u64), Ok(None));
    }
    assert!(table.list.len() == DATAGRAMS && table.knows(&key(99 + 2 * DATAGRAMS as u128, 0), Nanos(3_000)));
    assert!(!table.knows(&key(100, 0), Nanos(3_000)));
}
