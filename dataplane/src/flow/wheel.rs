//! The timer wheel: finds flows that may have expired without a look at the others.
//!
//! Time goes in ticks of an eighth of a second. The wheel has one list per tick for the next 512 seconds; a
//! deadline further off waits in the furthest list and is then put on again. It is lazy: a packet does not
//! move its flow, it only notes when it was seen, and the flow is put on again when its turn comes. So each
//! flow is touched at most once in 512 seconds, or in the length of its timeout where that is shorter.
//! The lists run through the flows' cold records; the wheel itself is small and owns nothing of them.

use wire::Nanos;

use super::Cold;

/// Lists of the wheel, one per tick.
const SLOTS: u32 = 4096;
/// End of a list.
pub(super) const NONE: u32 = u32::MAX;
/// In `previous`: the flow is the first of the list whose number is in the other bits.
const FIRST: u32 = 1 << 31;

/// A moment in eighths of a second since the table was made; it lasts for 17 years and then stands still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u32);

impl Tick {
    /// The length of a tick.
    pub const LENGTH: Nanos = Nanos::from_millis(125);

    /// `LENGTH` is this power of two, times an odd number.
    const TWOS: u32 = Tick::LENGTH.0.trailing_zeros();
    /// Bits that `RECIPROCAL` has beyond 64: as many as make the quotient right for every span (Granlund and Montgomery, "Division by
    /// invariant integers using multiplication", PLDI 1994, theorem 4.2).
    const REST: u32 = 15;
    /// 2^(64 + `REST`) over that odd number, rounded up.
    const RECIPROCAL: u64 = ((1 << (64 + Tick::REST)) / (Tick::LENGTH.0 >> Tick::TWOS) as u128 + 1) as u64;

    /// The whole ticks in a span of time.
    #[inline(always)]
    pub fn within(span: Nanos) -> Tick {
        // Divided by a multiplication, as a compiler for 64 bits divides by a constant; one for 32 bits calls a function.
        let ticks = (u128::from(span.0 >> Tick::TWOS) * u128::from(Tick::RECIPROCAL)) >> 64;
        Tick(u32::try_from(ticks as u64 >> Tick::REST).unwrap_or(u32::MAX))
    }

    /// Ticks from `earlier` to here, 0 if time went backwards.
    #[inline(always)]
    pub fn since(self, earlier: Tick) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The lists.
pub(super) struct Wheel {
    first: Box<[u32]>,
    /// The tick whose list is being worked on; all earlier ones are done.
    cursor: u32,
}

impl Wheel {
    /// Length of a turn in ticks: any flow on a list comes up within it.
    pub(super) const TURN: u32 = SLOTS;

    /// A wheel that begins at a tick.
    pub(super) fn new(now: Tick) -> Wheel {
        Wheel { first: vec![NONE; SLOTS as usize].into(), cursor: now.0 }
    }

    /// The tick whose list is being worked on.
    pub(super) fn cursor(&self) -> Tick {
        Tick(self.cursor)
    }

    /// Puts the flow on the list of its deadline, or the furthest one. It must be on no list.
    pub(super) fn link(&mut self, cold: &mut [Cold], flow: u32, deadline: Tick) {
        // A deadline that is past comes up next, and never in the list that is being emptied.
        let at = deadline.0.clamp(self.cursor.saturating_add(1), self.cursor.saturating_add(SLOTS - 1));
        let slot = at % SLOTS;
        let first = std::mem::replace(&mut self.first[slot as usize], flow);
        cold[flow as usize].next = first;
        cold[flow as usize].previous = FIRST | slot;
        if first != NONE {
            cold[first as usize].previous = flow;
        }
    }

    /// Takes the flow off its list.
    pub(super) fn unlink(&mut self, cold: &mut [Cold], flow: u32) {
        let Cold { next, previous, .. } = cold[flow as usize];
        if previous & FIRST != 0 {
            self.first[(previous & !FIRST) as usize] = next;
        } else {
            cold[previous as usize].next = next;
        }
        if next != NONE {
            cold[next as usize].previous = previous;
        }
    }

    /// The first flow whose turn has come by `now`, if any; it stays on its list. Walks over at most one turn of
    /// the wheel, however long the gap was.
    pub(super) fn due(&mut self, now: Tick) -> Option<u32> {
        // Lists further back than one turn are the same lists again.
        self.cursor = self.cursor.max(now.0.saturating_sub(SLOTS - 1));
        while self.cursor <= now.0 {
            let first = self.first[(self.cursor % SLOTS) as usize];
            if first != NONE {
                return Some(first);
            }
            if self.cursor == now.0 {
                return None;
            }
            self.cursor += 1;
        }
        None
    }

    /// True if [`Wheel::due`] has no flow until `now`, and has walked up to there; at the last tick, behind which there is no later one to put
    /// flows off to, in any case.
    pub(super) fn is_swept(&self, now: Tick) -> bool {
        let is_last = self.cursor == u32::MAX;
        is_last || self.cursor >= now.0 && self.first[(self.cursor % SLOTS) as usize] == NONE
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.first.fill(NONE);
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn divided(span: u64) -> u32 {
        u32::try_from(span / Tick::LENGTH.0).unwrap_or(u32::MAX)
    }

    #[test]
    fn ticks_of_spans_beside_a_multiple_are_those_of_a_division() {
        let length = Tick::LENGTH.0;
        for ticks in
            [0, 1, 2, 3, 1953124, 1953125, u64::from(u32::MAX) - 1, u64::from(u32::MAX), u64::MAX / length]
        {
            for span in [ticks * length, (ticks * length).wrapping_sub(1), ticks * length + 1] {
                assert_eq!(Tick::within(Nanos(span)).0, divided(span), "{span}");
            }
        }
        assert_eq!(Tick::within(Nanos(u64::MAX)).0, divided(u64::MAX));
    }

    proptest! {
        #[test]
        fn ticks_are_those_of_a_division(span in any::<u64>(), shift in 0..64_u32) {
            prop_assert_eq!(Tick::within(Nanos(span >> shift)).0, divided(span >> shift));
        }
    }
}
