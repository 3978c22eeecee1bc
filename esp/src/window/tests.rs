use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Every number ever accepted: what a window has to be equal to.
#[derive(Default)]
struct Naive {
    size: u64,
    received: BTreeSet<u64>,
    /// Numbers up to here count as received.
    floor: u64,
}

impl Naive {
    fn top(&self) -> u64 {
        self.received.last().copied().unwrap_or(0).max(self.floor)
    }

    fn place(&self, number: u64) -> Place {
        if number == 0 || number + self.size <= self.top() {
            Place::Old(number)
        } else if number <= self.floor || self.received.contains(&number) {
            Place::Seen(number)
        } else {
            Place::Fresh(number)
        }
    }

    fn lost(&self) -> u64 {
        let left = self.top().saturating_sub(self.size);
        (self.floor + 1..=left).filter(|number| !self.received.contains(number)).count() as u64
    }

    /// The number with this lower half, that lies nearest to the window and not left of it.
    fn extended(&self, low: u32) -> u64 {
        let top = self.top();
        let left = (top + 1).saturating_sub(self.size);
        let candidates = (0..3).filter_map(|step| ((top >> 32) + step).checked_sub(1));
        let mut candidates = candidates.map(|high| high << 32 | u64::from(low));
        candidates.find(|number| *number >= left).unwrap()
    }
}

fn size() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(32),
        Just(33),
        Just(63),
        Just(64),
        Just(65),
        Just(100),
        Just(128),
        Just(129),
        Just(1000),
        1..300_u32
    ]
}

/// Distance of a number from the top.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -140..5_i64, 2 => -5..300_i64, 1 => -1100..1100_i64]
}

proptest! {
    /// Judgements that were called settled stay the same when the window moves.
    #[test]
    fn what_is_settled_stays(
        size in prop_oneof![size(), Just(0)],
        begin in prop_oneof![0..500_u64, (1 << 32) - 300..(1_u64 << 32) + 300],
        steps in prop::collection::vec(step(), 0..20),
        next in step(),
        top in 0..400_u64,
        esn in prop_oneof![Just(Esn::Off), Just(Esn::On)],
    ) {
        let mut window = Window::closed_at(size, begin);
        for step in steps {
            if let Place::Fresh(number) = window.place(begin.saturating_add_signed(step) as u32, esn) {
                window.accept(number);
            }
        }
        let (low, top) = (window.top().saturating_add_signed(next) as u32, window.top() + top);
        let before = window.place(low, esn);
        let settled = window.settled(low, esn, top);
        if top > window.top() && settled != Some(top) {
            window.accept(top);
        }
        if let Some(number) = settled {
            prop_assert_eq!(window.place(low, esn), before);
            prop_assert!([Place::Fresh(number), Place::Seen(number), Place::Old(number)].contains(&before));
        } else {
            let is_old = matches!(window.place(low, esn), Place::Old(_));
            prop_assert!(is_old || window.place(low, esn) != before || matches!(before, Place::Old(_)));
        }
    }

    #[test]
    fn equal_to_a_set(size in size(), floor in prop_oneof![Just(0), 0..500_u64], steps in prop::collection::vec(step(), 1..400)) {
        let mut naive = Naive { size: u64::from(size), floor, ..Naive::default() };
        let mut window = if floor == 0 { Window::new(size) } else { Window::closed_at(size, floor) };
        for step in steps {
            let number = naive.top().saturating_add_signed(step);
            let place = window.place(number as u32, Esn::Off);
            prop_assert_eq!(place, naive.place(number), "{} of {} at {}", number, size, naive.top());
            if let Place::Fresh(number) = place {
                window.accept(number);
                naive.received.insert(number);
            }
            prop_assert_eq!(window.top(), naive.top());
        }
        prop_assert_eq!(window.lost(), naive.lost());
    }

    /// The same with numbers of 64 bits, around the wraps of their lower halves.
    #[test]
    fn equal_to_a_set_across_a_wrap(
        size in size(),
        wraps in 1..4_u64,
        before in 0..600_u64,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let floor = (wraps << 32) - before;
        let mut naive = Naive { size: u64::from(size), floor, ..Naive::default() };
        let mut window = Window::closed_at(size, floor);
        for step in steps {
            let low = naive.top().saturating_add_signed(step) as u32;
            let number = naive.extended(low);
            let place = window.place(low, Esn::On);
            prop_assert_eq!(place, naive.place(number), "{} of {} at {}", low, size, naive.top());
            // Numbers far ahead would be forged.
            match place {
                Place::Fresh(number) if number < naive.top() + 2000 => {
                    window.accept(number);
                    naive.received.insert(number);
                }
                _ => {}
            }
            prop_assert_eq!(window.top(), naive.top());
        }
    }

    /// Numbers that may not be accepted change nothing.
    #[test]
    fn accepting_twice_changes_nothing(size in size(), steps in prop::collection::vec(step(), 1..100)) {
        let mut window = Window::new(size);
        for step in steps {
            let number = window.top().saturating_add_signed(step);
            window.accept(number.max(1));
            let before = window.clone();
            window.accept(number.max(1));
            window.accept(window.top().saturating_sub(u64::from(size)));
            prop_assert_eq!((before.top, before.accepted, &before.blocks), (window.top, window.accepted, &window.blocks));
        }
    }
}

#[test]
fn the_largest_window_is_exact() {
    let mut window = Window::new(Window::LARGEST);
    assert_eq!(window.place(0, Esn::Off), Place::Old(0));
    for number in (1..=200_000).step_by(2) {
        window.accept(number);
    }
    // The top is 199,999; the window begins at 134,464.
    assert_eq!(window.place(134_463, Esn::Off), Place::Old(134_463));
    assert_eq!(window.place(134_464, Esn::Off), Place::Fresh(134_464));
    assert_eq!(window.place(134_465, Esn::Off), Place::Seen(134_465));
    assert_eq!(window.place(200_000, Esn::Off), Place::Fresh(200_000));
    assert_eq!(window.lost(), 134_463 / 2);
    assert_eq!(Window::new(u32::MAX).size(), Window::LARGEST);
}

#[test]
fn without_a_window_all_numbers_are_fresh() {
    let mut window = Window::new(0);
    for _ in 0..2 {
        assert_eq!(window.place(7, Esn::Off), Place::Fresh(7));
        window.accept(7);
    }
    window.accept(3);
    assert_eq!((window.top(), window.lost()), (7, 0));
    assert_eq!(window.place(0, Esn::Off), Place::Old(0));
}

#[test]
fn the_last_numbers_are_judged() {
    let mut window = Window::closed_at(64, u64::MAX - 100);
    assert_eq!(window.place(u32::MAX, Esn::On), Place::Fresh(u64::MAX));
    window.accept(u64::MAX);
    assert_eq!(window.place(u32::MAX, Esn::On), Place::Seen(u64::MAX));
    assert_eq!(window.place(u32::MAX - 63, Esn::On), Place::Fresh(u64::MAX - 63));
    // There is no number after the last: its lower half is old.
    assert!(matches!(window.place(5, Esn::On), Place::Old(_)));
    assert_eq!(window.lost(), 36);
}
