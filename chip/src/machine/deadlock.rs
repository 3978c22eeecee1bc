//! Deadlocks: runs that do not end, with the waits of their threads.

use std::fmt;

use super::{Machine, Waits, program};

/// Deadlock of a run: frames are under way, and no event is left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Deadlock {
    /// Waiting threads and what each waits for, a line each.
    pub waits: Vec<String>,
    /// Frames that are stuck.
    pub frames: usize,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the mapping deadlocks with {} frames under way", self.frames)?;
        self.waits.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Machine<'_> {
    /// Returns the waits of all threads, once no event is left.
    pub(super) fn deadlock(&self) -> Deadlock {
        let mut waits = Vec::new();
        for (pool, of) in self.mapping.pools.iter().enumerate() {
            let mut seen: Vec<(Waits, usize)> = Vec::new();
            for thread in
                self.threads.iter().filter(|thread| thread.pool == pool && thread.waits != Waits::Frames)
            {
                match seen.iter_mut().find(|(waits, _)| *waits == thread.waits) {
                    Some((_, count)) => *count += 1,
                    None => seen.push((thread.waits, 1)),
                }
            }
            let name = &of.name;
            for (what, count) in seen {
                let (threads, wait) = if count == 1 { ("thread", "waits") } else { ("threads", "wait") };
                waits.push(match what {
                    Waits::Room(ring) => {
                        let takers: Vec<&str> = program::tasks(self.mapping)
                            .filter(|(_, task)| task.from == Some(ring))
                            .map(|(taker, _)| self.mapping.pools[taker].name.as_str())
                            .collect();
                        format!(
                            "{count} {threads} of `{name}` {wait} for room in the ring `{}`, which `{}` should empty",
                            self.mapping.rings[ring].name,
                            takers.join("`, `")
                        )
                    }
                    Waits::Elements => format!("{count} {threads} of `{name}` {wait} for elements of the transmit buffer"),
                    Waits::Frames | Waits::Engine | Waits::Memory => {
                        format!("{count} {threads} of `{name}` {wait} for their engine")
                    }
                });
            }
        }
        if let Some((reorder, filled)) =
            self.reorder.as_ref().map(|of| (of, of.filled())).filter(|(_, filled)| *filled > 0)
        {
            let (frames, wait) = if filled == 1 { ("frame", "waits") } else { ("frames", "wait") };
            let name = reorder.name(self.chip);
            waits.push(format!("{filled} {frames} in the unit `{name}` {wait} for one received before"));
        }
        Deadlock { waits, frames: self.seen.under_way }
    }
}
