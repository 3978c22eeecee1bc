//! Elements of a set by the moment at which they are over: a binary heap, of which each element knows its place.

use bytemuck::{Pod, Zeroable};
use lookup::memory::{MemoryError, Paging, Slab};

use super::store::{NONE, Node};

/// Element with its moment.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Timer {
    until: u64,
    node: u32,
    unused: u32,
}

/// Elements that will be over, the first of them first.
pub(super) struct Expiry {
    timers: Option<Slab<Timer>>,
    len: usize,
}

impl Expiry {
    /// Takes memory for so many elements; for none, nothing is kept.
    pub(super) fn new(most: u32, paging: Paging) -> Result<Expiry, MemoryError> {
        let timers = if most == 0 { None } else { Some(Slab::paged(most as usize, paging)?) };
        Ok(Expiry { timers, len: 0 })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.timers.as_ref().map_or(0, Slab::bytes)
    }

    /// The element that is over first, with its moment.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        let timer = self.timers.as_ref()?.get(..self.len)?.first()?;
        Some((timer.until, timer.node))
    }

    /// Forgets all. Elements keep places that mean nothing.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Sets the moment of an element, which may have had another one.
    pub(super) fn set(&mut self, node: u32, until: u64, nodes: &mut [Node]) {
        let Some(timers) = self.timers.as_deref_mut() else { return };
        let mut place = nodes[node as usize].timer as usize;
        if nodes[node as usize].timer == NONE {
            if self.len >= timers.len() {
                return;
            }
            place = self.len;
            self.len += 1;
        }
        timers[place] = Timer { until, node, unused: 0 };
        let place = up(timers, place, nodes);
        down(&mut timers[..self.len], place, nodes);
    }

    /// Removes an element.
    pub(super) fn remove(&mut self, node: u32, nodes: &mut [Node]) {
        let place = nodes[node as usize].timer as usize;
        nodes[node as usize].timer = NONE;
        let Some(timers) = self.timers.as_deref_mut().filter(|_| place < self.len) else { return };
        self.len -= 1;
        if place < self.len {
            timers[place] = timers[self.len];
            let place = up(timers, place, nodes);
            down(&mut timers[..self.len], place, nodes);
        }
    }
}

/// Moves a timer towards the first, as far as it belongs; returns its place.
fn up(timers: &mut [Timer], mut place: usize, nodes: &mut [Node]) -> usize {
    let timer = timers[place];
    while place > 0 {
        let parent = (place - 1) / 2;
        if timers[parent].until <= timer.until {
            break;
        }
        timers[place] = timers[parent];
        nodes[timers[place].node as usize].timer = place as u32;
        place = parent;
    }
    timers[place] = timer;
    nodes[timer.node as usize].timer = place as u32;
    place
}

/// Moves a timer away from the first, as far as it belongs.
fn down(timers: &mut [Timer], mut place: usize, nodes: &mut [Node]) {
    let timer = timers[place];
    loop {
        let mut child = 2 * place + 1;
        if child + 1 < timers.len() && timers[child + 1].until < timers[child].until {
            child += 1;
        }
        if child >= timers.len() || timers[child].until >= timer.until {
            break;
        }
        timers[place] = timers[child];
        nodes[timers[place].node as usize].timer = place as u32;
        place = child;
    }
    timers[place] = timer;
    nodes[timer.node as usize].timer = place as u32;
}
