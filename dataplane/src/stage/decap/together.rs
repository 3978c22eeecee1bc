//! Opening of several packets together, as one after another.
//!
//! All of them are judged before the first one is opened. So what one of them changes must not matter to another: a packet whose judgement
//! might be another one behind those before it, as its number is among theirs, waits until they have been opened. The packets of one
//! security association are opened together, wherever they are in the group.

use arrayvec::ArrayVec;
use esp::{Forged, Packet};
use tally::Tally;
use wire::{Frame, Part};

use super::opener::{Job, Opener};
use super::{Carried, Decap, claim, refuse};
use crate::flag;
use crate::stage::{Cx, Stage, take};
use crate::verdict::Reason;

/// Packets that are opened together, at most.
const GROUP: usize = 16;

/// Takes frames through the stage.
pub(super) fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    let mut met = None;
    for group in frames.chunks_mut(GROUP) {
        let mut pending = Pending::default();
        for place in 0..group.len() {
            let (before, rest) = group.split_at_mut(place);
            let Some(frame) = rest.first_mut().filter(|frame| Decap::takes(frame)) else { continue };
            // Fragments and errors have to do with packets before.
            if frame.meta.part != Part::Whole || frame.meta.flags & flag::ERROR != 0 {
                pending.open(before, cx);
                take::<Decap, T>(frame, cx);
                continue;
            }
            let carried = match claim(frame, &mut met, cx) {
                Ok(carried) => carried,
                Err(step) => {
                    step.settle(frame);
                    continue;
                }
            };
            let judged = pending.list_of(&carried, cx).and_then(|list| {
                if !pending.is_apart(list, &carried, cx) {
                    pending.open(before, cx);
                }
                pending.add(place, list, frame, &carried, cx)
            });
            if let Err(reason) = judged {
                refuse(carried.sa, reason, frame, cx).settle(frame);
            }
        }
        pending.open(group, cx);
    }
}

/// Packets of a group that have been judged, and not been opened.
#[derive(Default)]
struct Pending<'t> {
    /// Security associations of the group.
    lists: ArrayVec<List<'t>, GROUP>,
    /// By their places in the group.
    jobs: [Option<Listed>; GROUP],
}

/// Security association with packets that may be pending.
struct List<'t> {
    opener: Opener<'t>,
    /// Highest number of the packets; 0 if there is none.
    top: u64,
}

/// Packet with the place of its list.
struct Listed {
    list: usize,
    job: Job,
}

impl<'t> Pending<'t> {
    /// Place of a packet's list.
    #[inline(always)]
    fn list_of<T: Tally>(&mut self, carried: &Carried, cx: &mut Cx<'t, T>) -> Result<usize, Reason> {
        if let Some(list) = self.lists.iter().rposition(|list| list.opener.place == carried.sa) {
            return Ok(list);
        }
        self.lists.push(List { opener: Opener::of(carried.sa, cx)?, top: 0 });
        Ok(self.lists.len() - 1)
    }

    /// True if those that are pending do not matter to a packet of a list.
    #[inline(always)]
    fn is_apart<T: Tally>(&self, list: usize, carried: &Carried, cx: &mut Cx<'_, T>) -> bool {
        let List { opener, top } = &self.lists[list];
        if *top == 0 {
            return true;
        }
        let Some(sa) = cx.shard.sas.inbound_at(opener.place) else { return true };
        match sa.window.settled(carried.number, opener.esn, *top) {
            None => false,
            Some(number) if number > *top => true,
            Some(number) => {
                self.jobs.iter().flatten().all(|other| other.list != list || other.job.number != number)
            }
        }
    }

    /// Judges a packet of a list, and keeps it until it is opened: for no others, where it may reach a bound of the association's use.
    #[inline(always)]
    fn add<T: Tally>(
        &mut self,
        place: usize,
        list: usize,
        frame: &mut Frame,
        carried: &Carried,
        cx: &mut Cx<'t, T>,
    ) -> Result<(), Reason> {
        let List { opener, top } = &mut self.lists[list];
        if opener.is_bound {
            return opener.open(frame, carried, cx);
        }
        let job = opener.judge(frame, carried, cx)?;
        *top = job.number.max(*top);
        self.jobs[place] = Some(Listed { list, job });
        Ok(())
    }

    /// Opens all of them, which are among these frames of their group.
    fn open<T: Tally>(&mut self, frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        for (number, list) in self.lists.iter_mut().enumerate() {
            if list.top > 0 {
                list.top = 0;
                open_all(&list.opener, number, frames, &mut self.jobs, cx);
            }
        }
    }
}

/// Opens the packets of a list, and lets what is in them come in.
fn open_all<T: Tally>(
    opener: &Opener<'_>,
    list: usize,
    frames: &mut [Frame],
    jobs: &mut [Option<Listed>; GROUP],
    cx: &mut Cx<'_, T>,
) {
    let Some(sa) = cx.shard.sas.inbound_at(opener.place) else { return };
    let mut packets = ArrayVec::<Packet<'_>, GROUP>::new();
    for (frame, listed) in frames.iter_mut().zip(&*jobs) {
        if let Some(Listed { job, .. }) = listed.as_ref().filter(|listed| listed.list == list) {
            // A frame without a packet is a packet of no bytes, which is forged.
            packets.push(job.packet(frame).unwrap_or_default());
        }
    }
    let mut opened = [Err(Forged); GROUP];
    sa.transform.open_many(&mut packets, &mut opened);
    drop(packets);
    let own = jobs.iter().flatten().filter(|listed| listed.list == list);
    let mut is_latest = [false; GROUP];
    let (mut packets, mut bytes) = (0, 0);
    for ((Listed { job, .. }, opened), is_latest) in own.zip(opened).zip(&mut is_latest) {
        if opened.is_ok() {
            *is_latest = sa.accept(job.number);
            (packets, bytes) = (packets + 1, bytes + u64::from(job.text_len));
        }
    }
    sa.note_accepted();
    sa.spend_all(packets, bytes);
    let own = frames.iter_mut().zip(jobs).filter_map(|(frame, listed)| {
        let Listed { job, .. } = listed.take_if(|listed| listed.list == list)?;
        Some((frame, job))
    });
    for (((frame, job), opened), is_latest) in own.zip(opened).zip(is_latest) {
        if is_latest {
            opener.follow(&job, frame, cx);
        }
        let entered = opened.map_err(|Forged| Reason::IcvWrong).and_then(|()| opener.enter(&job, frame, cx));
        if let Err(reason) = entered {
            refuse(opener.place, reason, frame, cx).settle(frame);
        }
    }
}
