//! CPU affinity of a worker: a core of its own, as long as there are enough.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to one core, the `number`-th, from 0, of those that it may run on. Returns true if the core is
/// the thread's own; where the system refuses, Linux schedules the thread on any core.
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
