//! The way on from a task: the ring that a frame leaves by, or its end.

use super::list::Link;
use super::script::{Move, Writer};
use super::{Ring, Unit};
use crate::description::FrameAccess;
use crate::load::Job;
use crate::mapping::{Task, Who};

/// Writes the end of a task: the frame goes on by a ring, or no further.
pub(super) fn go_on(writer: &mut Writer<'_>, task: &Task, job: &Job, rings: &[Ring], unit: Option<&Unit>) {
    let exit = ring(task, job).map(|ring| (ring as u16, &rings[ring]));
    if let Some((number, ring)) = exit {
        writer.link_frame(number, ring, job, Link::Enqueue, access(unit));
    }
    match exit {
        Some((number, _)) if unit.is_some() => writer.moves.push(Move::Put(number)),
        Some((number, ring)) => writer.pass(number, ring, job),
        None if unit.is_some() || is_closed(task) => writer.moves.push(Move::End),
        None => writer.drop(),
    }
}

/// Access to frames of who works on them: those that an engine has stay in memory.
pub(super) fn access(unit: Option<&Unit>) -> FrameAccess {
    unit.map_or(FrameAccess::Memory, |unit| unit.frames)
}

/// True if frames are drawn as fast as they are done with.
pub(super) fn is_closed(task: &Task) -> bool {
    task.from.is_none() && !task.receives()
}

/// The ring by which the frame goes on behind the task: none if nothing leaves because of it, and its last stage was there. What is
/// delivered or held goes to who handles exceptions all the same.
fn ring(task: &Task, job: &Job) -> Option<usize> {
    let exit = task.to.iter().find(|exit| exit.who.takes(job.standing, job.handling))?;
    let stages = task.stages();
    let is_handled = exit.who == Who::Exception && job.ends_at >= stages.start;
    let goes_on = stages.is_empty() || !job.outputs.is_empty() || job.ends_at >= stages.end || is_handled;
    goes_on.then_some(exit.ring)
}
