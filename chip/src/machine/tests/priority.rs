//! Tests of rings with priorities.

use super::{chip, line, run};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load, Output, Standing};
use crate::machine::{Ideal, Machine, Reference, Spends, Watch};

/// Frames of a class selector each, which come at once.
struct Marked<'a>(std::iter::Copied<std::slice::Iter<'a, u8>>);

impl Load for Marked<'_> {
    fn next(&mut self) -> Option<Arrival> {
        let arrival = Arrival { at: Ticks(0), port: 0, length: Length::of(64) };
        (self.0.len() > 0).then_some(arrival)
    }

    fn accept(&mut self, job: &mut Job) {
        job.precedence = self.0.next().unwrap_or_default();
        job.acts.push(run(5_000));
        job.marks.extend([0, 1]);
        job.outputs.push(Output { port: 0, length: Length::of(64), flow: 0 });
        job.standing = Standing::Known;
    }
}

/// Frames in the order in which they leave.
#[derive(Default)]
struct Left(Vec<u32>);

impl Watch for Left {
    fn comes(&mut self, _: Ticks, job: Option<u32>) {
        assert!(job.is_some(), "none is lost");
    }
    fn begins(&mut self, _: Ticks, _: usize, _: usize, _: u32) {}
    fn finishes(&mut self, _: Ticks, _: usize) {}
    fn spends(&mut self, _: usize, _: Spends, _: Ticks, _: Ticks) {}
    fn polls(&mut self, _: usize, _: Ticks, _: Ticks) {}
    fn refers(&mut self, _: Ticks, _: &Reference) {}
    fn fills(&mut self, _: Ticks, _: usize, _: usize) {}
    fn sends(&mut self, _: Ticks, _: usize, _: u32) {}
    fn leaves(&mut self, _: Ticks, job: u32) {
        self.0.push(job);
    }
    fn has_enough(&self) -> bool {
        false
    }
}

/// Numbers of frames of those class selectors, in the order in which they leave.
fn order(priorities: u32, marks: &[u8]) -> Vec<u32> {
    let mut chip = chip();
    chip.rings[0].priorities = priorities;
    let mapping = line(1, 64);
    let mut left = Left::default();
    let machine = Machine::new(&chip, &mapping, Ideal::Receive).unwrap();
    let window = machine.watched(&mut left).run(&mut Marked(marks.iter().copied()), 0).unwrap();
    assert_eq!(window.delivered.frames, marks.len() as u64);
    left.0
}

#[test]
fn frames_of_a_higher_priority_overtake_those_that_wait() {
    // The first one is with the thread before another waits.
    let marks = [0, 0, 5, 1, 7, 5, 0];
    assert_eq!(order(1, &marks), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(order(8, &marks), [0, 4, 2, 5, 3, 1, 6]);
    // Two queues: class selectors from 4 on, and those below.
    assert_eq!(order(2, &marks), [0, 2, 4, 5, 1, 3, 6]);
}
