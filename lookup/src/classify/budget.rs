//! Memory that is left to be taken.

use super::{Bounds, TooLarge};

/// Account of the part of the bounds in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    bounds: Bounds,
    taken: usize,
}

impl Budget {
    pub(super) fn new(bounds: Bounds) -> Budget {
        Budget { bounds, taken: 0 }
    }

    /// Other bounds.
    ///
    /// # Errors
    /// More is taken already; the bounds stay as they are.
    pub(super) fn keep_within(&mut self, bounds: Bounds) -> Result<(), TooLarge> {
        bounds.admit(self.taken)?;
        self.bounds = bounds;
        Ok(())
    }

    /// Returns a budget of the same bounds, with `taken` bytes in use.
    pub(super) fn with(self, taken: usize) -> Budget {
        Budget { taken, ..self }
    }

    pub(super) fn bounds(self) -> Bounds {
        self.bounds
    }

    /// Bytes that are left.
    pub(super) fn left(self) -> usize {
        self.bounds.memory.saturating_sub(self.taken)
    }

    /// Bytes that are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Takes so many bytes more.
    ///
    /// # Errors
    /// Fewer bytes are left; none is taken.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), TooLarge> {
        let needed = self.taken.saturating_add(bytes);
        self.bounds.admit(needed)?;
        self.taken = needed;
        Ok(())
    }

    /// Returns bytes to the budget.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.taken -= bytes;
    }

    /// Makes room for one item more, and, as far as there is memory, for half as many as there are.
    ///
    /// # Errors
    /// There is no memory for a larger list beside the present one.
    pub(super) fn grow<T>(&mut self, list: &mut Vec<T>) -> Result<(), TooLarge> {
        self.make_room(list, 1)
    }

    /// [`Budget::grow`], with room for `more` items.
    ///
    /// # Errors
    /// There is no memory for a larger list beside the present one.
    pub(super) fn make_room<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), TooLarge> {
        let had = list.capacity();
        if list.len() + more <= had {
            return Ok(());
        }
        let least = list.len() + more + had / 64;
        let generous = least.max(had + had / 2 + 8);
        let wanted = if self.take(generous * size_of::<T>()).is_ok() {
            generous
        } else {
            self.take(least * size_of::<T>())?;
            least
        };
        list.reserve_exact(wanted - list.len());
        self.give_back(had * size_of::<T>());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_as_far_as_there_is_memory() {
        let mut budget = Budget::new(Bounds { memory: 1000 });
        let mut list: Vec<u64> = Vec::new();
        while budget.grow(&mut list).is_ok() {
            list.push(0);
            assert_eq!(budget.taken(), 8 * list.capacity());
        }
        // The next list would lie beside this one.
        assert!(list.len() > 50 && list.len() < 125, "{}", list.len());
        assert_eq!(budget.taken(), 8 * list.capacity());
    }
}
