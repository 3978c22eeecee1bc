//! Order of frames within their flows, as they leave: which ones a later frame has overtaken.
//!
//! A frame is reordered if a later one of its flow has left before it (RFC 4737, section 3.3: its sequence number is smaller than
//! the greatest that has left), by the same line. Sequence is that in which the data plane queued the frames before their port. Frames
//! of different class selectors are not compared: their order is the policy's, or that of a ring's priorities.
//!
//! A later frame that left first did so while the earlier one was under way, so that only frames under way are remembered.

/// Flow of a frame that leaves, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) flow: u32,
    pub(super) line: u32,
    pub(super) precedence: u8,
}

/// Frames under way that are to leave, in lists by the hash of their course, each in the order of the data plane.
#[derive(Clone, Debug)]
pub(super) struct Order {
    lists: Vec<List>,
    frames: Vec<Frame>,
    /// First of the places without a frame, linked by `later`.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    course: Course,
    earlier: u32,
    later: u32,
    /// True once a later frame of the course has left.
    is_overtaken: bool,
}

/// No frame.
const NONE: u32 = u32::MAX;

/// Binary logarithm of the number of lists.
const LISTS: u32 = 12;

impl Default for Order {
    fn default() -> Order {
        Order { lists: vec![List { first: NONE, last: NONE }; 1 << LISTS], frames: Vec::new(), free: NONE }
    }
}

impl Course {
    /// Fibonacci hashing: tracked flows have consecutive numbers.
    fn list(self) -> usize {
        let word = self.flow ^ self.line.rotate_left(16) ^ u32::from(self.precedence).rotate_left(29);
        (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - LISTS)) as usize
    }
}

impl Order {
    /// Adds a frame behind all others, and returns its place.
    pub(super) fn enter(&mut self, course: Course) -> u32 {
        let list = course.list();
        let frame = Frame { course, earlier: self.lists[list].last, later: NONE, is_overtaken: false };
        let place = match self.free {
            NONE => {
                self.frames.push(frame);
                self.frames.len() as u32 - 1
            }
            free => {
                self.free = self.frames[free as usize].later;
                self.frames[free as usize] = frame;
                free
            }
        };
        match frame.earlier {
            NONE => self.lists[list].first = place,
            earlier => self.frames[earlier as usize].later = place,
        }
        self.lists[list].last = place;
        place
    }

    /// Lets the frame at that place leave. Returns true if it is reordered.
    pub(super) fn leave(&mut self, place: u32) -> bool {
        let Frame { course, is_overtaken, .. } = self.frames[place as usize];
        let mut earlier = self.frames[place as usize].earlier;
        while let Some(frame) = self.frames.get_mut(earlier as usize) {
            frame.is_overtaken |= frame.course == course;
            earlier = frame.earlier;
        }
        self.remove(place);
        is_overtaken
    }

    /// Removes a frame that does not leave after all.
    pub(super) fn remove(&mut self, place: u32) {
        let Frame { course, earlier, later, .. } = self.frames[place as usize];
        let list = course.list();
        match earlier {
            NONE => self.lists[list].first = later,
            earlier => self.frames[earlier as usize].later = later,
        }
        match later {
            NONE => self.lists[list].last = earlier,
            later => self.frames[later as usize].earlier = earlier,
        }
        self.frames[place as usize].later = self.free;
        self.free = place;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{Course, Order};

    fn course(flow: u32) -> Course {
        Course { flow, line: 0, precedence: 0 }
    }

    #[test]
    fn a_frame_that_a_later_one_of_its_flow_has_overtaken_is_reordered() {
        let mut order = Order::default();
        let [first, other, second, third] = [1, 2, 1, 1].map(|flow| order.enter(course(flow)));
        assert!(!order.leave(second), "it is earlier than it should be, and not reordered");
        assert!(order.leave(first));
        assert!(!order.leave(third));
        assert!(!order.leave(other), "of another flow");
    }

    #[test]
    fn lines_and_class_selectors_are_not_compared() {
        let mut order = Order::default();
        let first = order.enter(course(1));
        let line = order.enter(Course { line: 1, ..course(1) });
        let class = order.enter(Course { precedence: 5, ..course(1) });
        let [line, class, first] = [line, class, first].map(|place| order.leave(place));
        assert_eq!([line, class, first], [false; 3]);
    }

    proptest! {
        /// RFC 4737, section 3.3, by sequence numbers: a frame is reordered if its number is smaller than the greatest of its flow so far.
        #[test]
        fn reordered_frames_are_those_of_the_rfc(
            moves in prop::collection::vec((0_u32..4, 0_usize..8, prop::bool::weighted(0.2)), 1..200),
        ) {
            let mut order = Order::default();
            let mut under_way: Vec<(u32, u64, u32)> = Vec::new();
            let mut greatest: HashMap<u32, u64> = HashMap::new();
            for (number, (flow, pick, is_dropped)) in (1_u64..).zip(moves) {
                // Flows of the same list, too.
                let flow = flow << 20;
                under_way.push((flow, number, order.enter(course(flow))));
                if under_way.len() > pick {
                    let (flow, number, place) = under_way.remove(pick);
                    if is_dropped {
                        order.remove(place);
                        continue;
                    }
                    let greatest = greatest.entry(flow).or_default();
                    prop_assert_eq!(order.leave(place), number < *greatest);
                    *greatest = number.max(*greatest);
                }
            }
            prop_assert!(order.frames.len() <= 200);
        }
    }
}
