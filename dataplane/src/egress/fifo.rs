//! First-in-first-out queue of frames before a port: a ring of a power of two of places, so that a place is found without a branch.

use wire::{Batch, Frame};

/// Frames in the order in which they depart. Memory for so many as it was made for; more of them (of a reload that shortens the queue) make
/// it grow.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    /// None, or a power of two; each with a frame for the `len` places from `first` on, modulo their number.
    places: Vec<Option<Frame>>,
    first: usize,
    len: usize,
}

impl Fifo {
    /// An empty queue with room for so many frames.
    pub(super) fn with_capacity(frames: usize) -> Fifo {
        let places = if frames == 0 { 0 } else { frames.next_power_of_two() };
        Fifo { places: std::iter::repeat_with(|| None).take(places).collect(), first: 0, len: 0 }
    }

    /// Number of frames.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place of the frame of that number from the front on.
    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        self.first.wrapping_add(number) & self.places.len().wrapping_sub(1)
    }

    /// The frame at the front.
    #[inline(always)]
    pub(super) fn front(&self) -> Option<&Frame> {
        self.places.get(self.place(0))?.as_ref()
    }

    /// Takes the frame at the front.
    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<Frame> {
        let place = self.place(0);
        let frame = self.places.get_mut(place)?.take()?;
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Some(frame)
    }

    /// Moves frames from the front to `out`, as long as there is room and `departs` says so of the next one.
    #[inline(always)]
    pub(super) fn pop_burst(&mut self, out: &mut Batch, mut departs: impl FnMut(&Frame) -> bool) {
        let first = self.place(0);
        let split = first.min(self.places.len());
        let (behind, ahead) = self.places.split_at_mut(split);
        for places in [ahead, behind] {
            let offered = places.len().min(out.room());
            let moved = out.extend(places.iter_mut().take(offered).map_while(|place| {
                if place.as_ref().is_some_and(&mut departs) { place.take() } else { None }
            }));
            self.first = self.first.wrapping_add(moved);
            self.len -= moved;
            if moved < offered {
                break;
            }
        }
    }

    /// Puts a frame behind the others.
    #[inline(always)]
    pub(super) fn push_back(&mut self, frame: Frame) {
        if self.len == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(frame);
            self.len += 1;
        }
    }

    /// Puts a frame behind those of which `is_before` holds, all of which are in front of the others.
    pub(super) fn insert(&mut self, frame: Frame, is_before: impl Fn(&Frame) -> bool) {
        self.push_back(frame);
        let mut number = self.len - 1;
        while number > 0 {
            let (this, before) = (self.place(number), self.place(number - 1));
            if self.places[before].as_ref().is_some_and(&is_before) {
                break;
            }
            self.places.swap(this, before);
            number -= 1;
        }
    }

    /// Takes all frames, first to last.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        std::iter::from_fn(|| self.pop_front())
    }

    /// The frames behind the first `before`, in order.
    pub(super) fn behind(&self, before: usize) -> impl Iterator<Item = &Frame> {
        (before..self.len).filter_map(|number| self.places.get(self.place(number))?.as_ref())
    }

    /// All frames, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        self.places.iter_mut().flatten()
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(self.places.as_slice())
    }

    /// Doubles the number of places.
    #[cold]
    fn grow(&mut self) {
        let mut larger = Fifo::with_capacity((self.places.len() * 2).max(1));
        for (place, frame) in larger.places.iter_mut().zip(self.drain()) {
            *place = Some(frame);
        }
        larger.len = self.places.len();
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use wire::Pool;
    use wire::random::Random;

    use super::*;

    #[test]
    fn it_is_a_queue_whatever_is_done_to_it() {
        let (mut random, mut pool) = (Random::new(1), Pool::new(512, 2_048).unwrap());
        for capacity in [0, 1, 3, 8] {
            let (mut fifo, mut model) = (Fifo::with_capacity(capacity), VecDeque::new());
            for number in 0..5_000 {
                match random.below(8) {
                    0..4 if model.len() < 40 => {
                        let mut frame = pool.take().unwrap();
                        frame.meta.number = number;
                        fifo.push_back(frame);
                        model.push_back(number);
                    }
                    4 if model.len() < 40 => {
                        let (mut frame, before) = (pool.take().unwrap(), random.below(5_000) as u32);
                        frame.meta.number = number;
                        let place = model.iter().rposition(|one| *one < before).map_or(0, |place| place + 1);
                        fifo.insert(frame, |one| one.meta.number < before);
                        model.insert(place, number);
                    }
                    5 => {
                        // Sometimes with little room.
                        let mut out = Batch::new();
                        let before = wire::BATCH - 1 - random.below(wire::BATCH as u64) as usize;
                        out.extend(std::iter::from_fn(|| pool.take()).take(before));
                        let most = random.below(5) as usize;
                        let mut left = most;
                        fifo.pop_burst(&mut out, |_| {
                            left = left.wrapping_sub(1);
                            left < most
                        });
                        assert!(out.len() - before == most.min(model.len()).min(wire::BATCH - before));
                        pool.put_all(out.drain_front(before));
                        for frame in out.drain() {
                            assert_eq!(Some(frame.meta.number), model.pop_front());
                            pool.put(frame);
                        }
                    }
                    6 if !model.is_empty() => {
                        let before = random.below(model.len() as u64) as usize;
                        let behind = fifo.behind(before).map(|frame| frame.meta.number);
                        assert!(behind.eq(model.range(before..).copied()));
                    }
                    6 => {
                        let many = fifo.iter_mut().count();
                        assert_eq!((many, fifo.len()), (model.len(), model.len()));
                    }
                    _ => {
                        assert_eq!(fifo.front().map(|frame| frame.meta.number), model.front().copied());
                        let frame = fifo.pop_front();
                        assert_eq!(frame.as_ref().map(|frame| frame.meta.number), model.pop_front());
                        frame.into_iter().for_each(|frame| pool.put(frame));
                    }
                }
            }
            let all: Vec<Frame> = fifo.drain().collect();
            assert!(all.iter().map(|frame| frame.meta.number).eq(model));
            all.into_iter().for_each(|frame| pool.put(frame));
        }
        assert_eq!(pool.available(), 512);
    }
}
