//! Tests of the order in which frames of a flow leave.

use super::{chip, line, run};
use crate::kernel::Ticks;
use crate::load::{Arrival, Job, Length, Load, Output};
use crate::machine::{Ideal, Machine, Window};

/// A frame: time since the one before, flow, instructions, and the sizes of the frames that leave because of it.
pub(super) struct Uneven {
    pub(super) after: u64,
    pub(super) flow: u32,
    pub(super) instructions: u32,
    pub(super) outputs: Vec<u32>,
}

/// Frames of uneven work, which leave by the port that they come by.
pub(super) struct Coming<'a> {
    frames: std::slice::Iter<'a, Uneven>,
    at: u64,
    current: Option<&'a Uneven>,
}

impl<'a> Coming<'a> {
    pub(super) fn new(frames: &'a [Uneven]) -> Coming<'a> {
        Coming { frames: frames.iter(), at: 0, current: None }
    }
}

impl Load for Coming<'_> {
    fn next(&mut self) -> Option<Arrival> {
        let frame = self.frames.next()?;
        self.current = Some(frame);
        self.at += frame.after;
        Some(Arrival { at: Ticks(self.at), port: (frame.flow % 2) as u16, length: Length::of(64) })
    }

    fn accept(&mut self, job: &mut Job) {
        let Some(Uneven { flow, instructions, outputs, .. }) = self.current else { return };
        job.acts.push(run(*instructions));
        job.marks.extend([0, 1]);
        let output =
            |bytes: &u32| Output { port: (flow % 2) as u16, length: Length::of(*bytes), flow: *flow };
        job.outputs.extend(outputs.iter().map(output));
        job.flow = *flow;
    }
}

/// Frames by turns of much work and of little, of two flows each.
fn alternating() -> Vec<Uneven> {
    let frame = |number: u32| Uneven {
        after: 150,
        flow: number / 2 % 2,
        instructions: [400, 20][number as usize % 2],
        outputs: vec![64],
    };
    (0..400).map(frame).collect()
}

fn window(frames: &[Uneven], threads: u32) -> Window {
    let mut mapping = line(threads, 64);
    mapping.pools[1].place = crate::mapping::PoolPlace::Engines { kind: 0, numbers: vec![1, 3], threads };
    let mut chip = chip();
    chip.ports.0[0].count = 2;
    Machine::new(&chip, &mapping, Ideal::Nothing).unwrap().run(&mut Coming::new(frames), 0).unwrap()
}

#[test]
fn engines_that_work_side_by_side_reorder_what_is_uneven() {
    let seen = window(&alternating(), 1);
    assert_eq!((seen.lost, seen.delivered.frames), (0, 400));
    assert!(seen.reordered > 50, "{}", seen.reordered);
    // Those of equal work leave as they came.
    let mut even = alternating();
    even.iter_mut().for_each(|frame| frame.instructions = 200);
    let seen = window(&even, 1);
    assert_eq!((seen.delivered.frames, seen.reordered), (400, 0));
}

#[test]
fn frames_of_flows_of_their_own_are_not_reordered() {
    let mut frames = alternating();
    frames.iter_mut().zip(0..).for_each(|(frame, number)| frame.flow = number);
    let seen = window(&frames, 1);
    assert_eq!((seen.delivered.frames, seen.reordered), (400, 0));
}
