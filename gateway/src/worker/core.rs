//! Which core a worker runs on: one of its own, as long as there are enough.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the thread that asks to one core, the `number`-th of those that it may run on, from 0. Says whether that is a
/// core of its own; where the system refuses, Linux moves it about as any thread.
pub(super) fn keep_to(number: usize) -> bool {
    let Ok(all) = sched_getaffinity(None) else { return true };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let Some(core) = cores.get(number % cores.len().max(1)) else { return true };
    let mut one = CpuSet::new();
    one.set(*core);
    // Refused, it is as fast as it can be.
    let _ = sched_setaffinity(None, &one);
    number < cores.len()
}
