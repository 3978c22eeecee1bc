//! Queues of the library, in which it works on several packets abreast. One thread uses them at a time.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::functions::{Functions, Table};

/// Sets of queues, at most: of some 200 kB each.
const MOST: usize = 64;

/// A set of the library's queues, until dropped this thread's alone. Empty between calls.
///
/// Sets are made when the first key that needs them is expanded, one for each processor; so claiming one allocates nothing and waits for
/// nobody.
pub struct Queues {
    set: &'static Set,
}

/// A call that the library did not finish; which of the packets it did is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished;

/// Direction of a call.
#[derive(Clone, Copy)]
#[repr(u32)] // As glue.c takes it.
pub(crate) enum Way {
    Encrypt = 0,
    Decrypt = 1,
}

/// A set of queues, a cache line away from the next one's.
#[repr(align(128))]
struct Set {
    table: Table,
    is_claimed: AtomicBool,
}

static SETS: OnceLock<Box<[Set]>> = OnceLock::new();

thread_local! {
    /// Place of the set that this thread claimed last, which is in its cache.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

impl Queues {
    /// Makes the sets, where they are not there yet. `None` where the library cannot be used.
    pub(crate) fn prepare() -> Option<()> {
        let sets = SETS.get_or_init(|| {
            let count = thread::available_parallelism().map_or(1, usize::from).min(MOST);
            let tables = (0..count).map_while(|_| Table::new());
            tables.map(|table| Set { table, is_claimed: AtomicBool::new(false) }).collect()
        });
        (!sets.is_empty()).then_some(())
    }

    /// Claims a set of queues. `None` where all are claimed, by more threads than there are processors, and before the first key that
    /// needs queues.
    #[inline]
    pub fn claim() -> Option<Queues> {
        let sets = SETS.get()?;
        let last = LAST.get();
        let (place, set) = (0..sets.len()).map(|step| (last + step) % sets.len()).find_map(|place| {
            let set = &sets[place];
            let claimed = set.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            claimed.is_ok().then_some((place, set))
        })?;
        LAST.set(place);
        Some(Queues { set })
    }

    /// The table whose queues these are, for a call that finishes all that it begins.
    pub(crate) fn table(&mut self) -> *mut Functions {
        self.set.table.as_ptr()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.set.is_claimed.store(false, Ordering::Release);
    }
}

/// The outcome of a call that finished so many of these packets.
#[inline]
pub(crate) fn finished<P>(done: usize, packets: &[P]) -> Result<(), Unfinished> {
    if done == packets.len() { Ok(()) } else { Err(Unfinished) }
}
