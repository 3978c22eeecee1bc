//! Opening of several packets together, as one after another.
//!
//! All of them are judged before the first one is opened. So what one of them changes must not matter to another: a packet whose judgement
//! might be another one behind those before it, as its number is among theirs, waits until they have been opened.

use esp::{Forged, Packet};
use tally::Tally;
use wire::{Frame, Part};

use super::{Carried, Decap, Sealed, claim, enter, find, finish, open, refuse};
use crate::flag;
use crate::stage::{Cx, Stage, Step, take};

/// Packets that are opened together, at most.
const GROUP: usize = 16;

/// Takes frames through the stage.
pub(super) fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
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
            let carried = match claim(frame, cx) {
                Ok(carried) => carried,
                Err(step) => {
                    step.settle(frame);
                    continue;
                }
            };
            if !pending.is_apart(&carried, cx) {
                pending.open(before, cx);
            }
            if carried.sa.is_some_and(|sa| cx.shard.sas.inbound_at(sa).is_some_and(|sa| sa.is_bound())) {
                pending.open(before, cx);
                open(frame, &carried, cx).settle(frame);
                continue;
            }
            match find(frame, &carried, cx) {
                Ok(sealed) => pending.add(place, sealed),
                Err(reason) => refuse(&carried, reason, cx).settle(frame),
            }
        }
        pending.open(group, cx);
    }
}

/// Packets of a group that have been judged, and not been opened.
struct Pending {
    /// By their places in the group.
    jobs: [Option<Sealed>; GROUP],
    /// Place of the first one, and behind the last one.
    first: usize,
    end: usize,
    /// Association of the last one, and the highest number of its packets here.
    top: Option<(u32, u64)>,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { jobs: [const { None }; GROUP], first: 0, end: 0, top: None }
    }
}

impl Pending {
    fn jobs(&self) -> impl Iterator<Item = &Sealed> {
        self.jobs[self.first..self.end].iter().flatten()
    }

    /// True if those that are pending do not matter to a packet.
    fn is_apart<T: Tally>(&self, carried: &Carried, cx: &mut Cx<'_, T>) -> bool {
        let Some((place, low)) = carried.sa.zip(carried.number) else { return true };
        let top = match self.top {
            None => return true,
            Some((of, top)) if of == place => Some(top),
            Some(_) => self.jobs().filter(|job| job.place == place).map(|job| job.number).max(),
        };
        let (Some(top), Some(sa)) = (top, cx.shard.sas.inbound_at(place)) else { return true };
        match sa.window.settled(low, sa.esn, top) {
            None => false,
            Some(number) if number > top => true,
            Some(number) => self.jobs().all(|job| job.place != place || job.number != number),
        }
    }

    fn add(&mut self, place: usize, job: Sealed) {
        let top = match self.top {
            Some((of, top)) if of == job.place => top.max(job.number),
            Some(_) => {
                let others = self.jobs().filter(|other| other.place == job.place);
                others.map(|other| other.number).fold(job.number, u64::max)
            }
            None => {
                self.first = place;
                job.number
            }
        };
        self.top = Some((job.place, top));
        self.end = place + 1;
        self.jobs[place] = Some(job);
    }

    /// Opens all of them, which are among these frames of their group.
    fn open<T: Tally>(&mut self, frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        if self.top.take().is_none() {
            return;
        }
        let own = self.first..self.end;
        (self.first, self.end) = (0, 0);
        let (Some(frames), jobs) = (frames.get_mut(own.clone()), &mut self.jobs[own]) else { return };
        let mut opened = [Err(Forged); GROUP];
        let mut begin = 0;
        while let Some(place) = jobs[begin..].iter().flatten().map(|job| job.place).next() {
            let is_same = |job: &&Option<Sealed>| job.as_ref().is_none_or(|job| job.place == place);
            let end = begin + jobs[begin..].iter().take_while(is_same).count();
            decrypt(&mut frames[begin..end], &jobs[begin..end], &mut opened[begin..end], cx);
            let own = jobs[begin..end]
                .iter()
                .zip(&opened[begin..end])
                .filter_map(|(job, opened)| opened.ok().and(job.as_ref()));
            let (packets, bytes) =
                own.fold((0, 0), |(packets, bytes), job| (packets + 1, bytes + u64::from(job.text_len)));
            if let Some(sa) = cx.shard.sas.inbound_at(place) {
                sa.spend_all(packets, bytes);
            }
            begin = end;
        }
        for ((frame, job), opened) in frames.iter_mut().zip(jobs).zip(opened) {
            let Some(job) = job.take() else { continue };
            let entered = finish(frame, &job, opened, Ok(()), cx).and_then(|opened| enter(frame, opened, cx));
            if let Err(reason) = entered {
                if let Some(sa) = cx.shard.sas.inbound_at(job.place) {
                    sa.note(reason);
                }
                Step::Drop(reason).settle(frame);
            }
        }
    }
}

/// Has the library verify and decrypt packets of one association.
fn decrypt<T: Tally>(
    frames: &mut [Frame],
    jobs: &[Option<Sealed>],
    opened: &mut [Result<(), Forged>],
    cx: &mut Cx<'_, T>,
) {
    let Some(sa) = jobs.iter().flatten().next().and_then(|job| cx.shard.sas.inbound_at(job.place)) else {
        return;
    };
    let mut packets: [Packet<'_>; GROUP] = std::array::from_fn(|_| Packet::default());
    for ((frame, job), packet) in frames.iter_mut().zip(jobs).zip(&mut packets) {
        if let Some(own) = job.as_ref().and_then(|job| job.packet(frame)) {
            *packet = own;
        }
    }
    // A frame without a packet is a packet of no bytes, which is forged.
    sa.transform.open_many(&mut packets[..jobs.len()], opened);
}
