#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::layout::{INDEX_BITS, SLOT};
use super::*;

/// A fast path; `None`, with a message, if the kernel does not let us.
fn fast_path() -> Option<Arc<FastPath>> {
    match FastPath::open(1, [1, 2], 3) {
        Ok(path) => Some(Arc::new(path)),
        Err(error) if error.error.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIPPED: no programs may be loaded here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn lines_have_numbers_of_their_own_which_are_used_again() {
    let Some(path) = fast_path() else { return };
    let mut lines: Vec<FastLine> = (0..LINES).map(|_| FastLine::new(&path, 64).unwrap()).collect();
    let error = FastLine::new(&path, 64).err().unwrap();
    assert_eq!(error.to_string(), "could not number one more line of the fast path: out of memory");
    lines.remove(77);
    lines.push(FastLine::new(&path, 64).unwrap());
    assert!(FastLine::new(&path, 64).is_err());
}

fn settle(line: &mut LineCount) -> Settled {
    line.mark();
    line.settle()
}

/// Counts told to the filter rise only with packets taken, and reach those that it has passed.
#[test]
fn a_line_tells_what_has_been_sent_on() {
    let Some(path) = fast_path() else { return };
    let others = cpu::online() as u64 - 1;
    let mut line = numbered(&path, others);
    let told = |path: &FastPath| path.table.taken(0);
    let pass = |packets: u64| path.table.pass(0, packets);
    assert_eq!((settle(&mut line), told(&path)), (Settled::Told, 0));
    pass(100);
    // Of 100, 90 have come; the others are in the ring, or dropped.
    line.take(90);
    assert_eq!((settle(&mut line), told(&path)), (Settled::Short, 90 - others));
    line.take(1);
    let again: Vec<Settled> = (0..8).map(|_| settle(&mut line)).collect();
    assert_eq!(again.iter().filter(|settled| **settled == Settled::Short).count(), 1);
    assert_eq!(told(&path), 91 - others);
    line.take(9);
    assert_eq!((settle(&mut line), told(&path)), (Settled::Told, 100));
    pass(1);
    assert_eq!((settle(&mut line), told(&path)), (Settled::Short, 100));
    // What came behind the mark is not sent on yet.
    pass(20);
    line.take(11);
    line.mark();
    line.take(10);
    assert_eq!((line.settle(), told(&path)), (Settled::Told, 111 - others));
    assert_eq!((settle(&mut line), told(&path)), (Settled::Told, 121));
    // The number goes on where the line before left it.
    drop(line);
    let mut line = numbered(&path, others);
    assert_eq!((settle(&mut line), told(&path)), (Settled::Told, 121));
}

/// Dropped packets come behind those that are in the ring yet.
#[test]
fn dropped_packets_count_when_those_before_them_have_come() {
    let Some(path) = fast_path() else { return };
    for in_flight in [0, 3] {
        let mut line = numbered(&path, in_flight);
        let begin = path.table.passed(0);
        let told = |path: &FastPath| path.table.taken(0) - begin;
        path.table.pass(0, 100);
        // 10 were dropped behind 80 in the ring, of which half have been taken; 10 more follow.
        line.take(40);
        line.drop(10);
        settle(&mut line);
        assert_eq!(told(&path), 40 - in_flight);
        line.take(40);
        settle(&mut line);
        assert_eq!(told(&path), 80 - in_flight);
        path.table.pass(0, 10);
        line.take(20);
        assert_eq!((settle(&mut line), told(&path)), (Settled::Told, 110));
    }
}

fn numbered(path: &Arc<FastPath>, in_flight: u64) -> LineCount {
    LineCount::several(path, 1, in_flight).unwrap().remove(0)
}

#[test]
fn numbers_of_several_lines_follow_one_another() {
    let Some(path) = fast_path() else { return };
    let [first, second, third] = [3, 2, 1].map(|lines| LineCount::several(&path, lines, 0).unwrap());
    let numbers = |lines: &[LineCount]| lines.iter().map(LineCount::number).collect::<Vec<usize>>();
    assert_eq!([numbers(&first), numbers(&second), numbers(&third)], [vec![0, 1, 2], vec![3, 4], vec![5]]);
    drop(second);
    assert_eq!(numbers(&LineCount::several(&path, 3, 0).unwrap()), [6, 7, 8]);
    assert_eq!(numbers(&LineCount::several(&path, 2, 0).unwrap()), [3, 4]);
    assert!(LineCount::several(&path, LINES, 0).is_err());
}

#[test]
fn sizes_are_bounded() {
    let sizes = [0, 1, 2, 1000, u32::MAX].map(|flows| Layout::new(flows, 1).slots());
    assert_eq!(sizes, [4, 4, 7, 3001, (3 << 20) + 1]);
    let largest = Layout::new(u32::MAX, 1 << 14);
    assert!(largest.bytes() < 1 << 30);
    // Each of both addresses, and what a register adds to it, is within the verifier's reach.
    let second = largest.second_part();
    assert!(largest.field(second, 0) <= 1 << 29 && largest.slots() < 1 << INDEX_BITS);
    assert!((largest.slots() - second as usize) * SLOT < 1 << 29);
    assert_eq!([0, u32::MAX].map(|hash| largest.bucket(hash)), [0, largest.buckets() - 1]);
}
