//! Segmentation in a worker: packets of many segments that do not go whole are cut into frames, as many at a time as there is room for.

use std::mem::take;

use wire::segment::{Plan, Segments};
use wire::{Batch, Frame, Pool};

/// Frames received and not processed yet, where packets of many segments are among them: these go one by one.
#[derive(Default)]
pub(super) struct Intake {
    waiting: Batch,
    cutting: Option<Cutting>,
}

/// Frames to be processed next.
#[derive(Debug)]
pub(in crate::worker) enum Group {
    /// Frames in the batch.
    Frames,
    /// A packet of many segments.
    Whole(Frame),
    /// None now: nothing waits, or the pool is empty.
    Nothing,
}

impl Intake {
    /// True if nothing waits.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.cutting.is_none()
    }

    /// Takes in what was received. Only while nothing waits.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        self.waiting = take(batch);
    }

    /// Takes the next frames, into an empty batch unless it is a packet of many segments.
    pub(super) fn next(&mut self, batch: &mut Batch, pool: &mut Pool) -> Group {
        if let Some(cutting) = &mut self.cutting {
            if cutting.cut(batch, pool) == Progress::Done {
                self.end_cutting(pool);
            }
            return if batch.is_empty() { Group::Nothing } else { Group::Frames };
        }
        let small = self.waiting.iter().take_while(|frame| !frame.is_big()).count();
        if small == 0 {
            return self.waiting.drain_front(1).next().map_or(Group::Nothing, Group::Whole);
        }
        for frame in self.waiting.drain_front(small) {
            if let Err(frame) = batch.push(frame) {
                pool.put(frame);
            }
        }
        Group::Frames
    }

    /// Has a packet of many segments cut, the next frames then.
    pub(super) fn cut(&mut self, frame: Frame, pool: &mut Pool) {
        match Cutting::new(frame) {
            Ok(cutting) => self.cutting = Some(cutting),
            // A driver keeps none whole that cannot be cut.
            Err(frame) => pool.put(frame),
        }
    }

    /// Gives the slots of all that waits back.
    pub(super) fn discard(&mut self, pool: &mut Pool) {
        self.end_cutting(pool);
        self.waiting.drain().for_each(|frame| pool.put(frame));
    }

    fn end_cutting(&mut self, pool: &mut Pool) {
        if let Some(cutting) = self.cutting.take() {
            pool.put(cutting.frame);
        }
    }
}

/// Frames on their way to a port that takes a packet of many segments whole, or has it cut.
#[derive(Default)]
pub(super) struct Offering {
    cutting: Option<Cutting>,
    /// Frames behind a packet that the port has refused whole.
    behind: Batch,
}

impl Offering {
    /// True if nothing waits here.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.cutting.is_none() && self.behind.is_empty()
    }

    /// Puts a frame into `out`, which has room, or has it cut if it is a packet of many segments that the port does not take whole.
    #[inline(always)]
    pub(super) fn offer(
        &mut self,
        frame: Frame,
        out: &mut Batch,
        takes_whole: &mut dyn FnMut(&Plan) -> bool,
        pool: &mut Pool,
    ) {
        if frame.is_big() && !Plan::of(&frame).is_some_and(|plan| takes_whole(&plan)) {
            match Cutting::new(frame) {
                Ok(cutting) => self.cutting = Some(cutting),
                Err(frame) => pool.put(frame),
            }
        } else if let Err(frame) = out.push(frame) {
            pool.put(frame);
        }
    }

    /// Fills `out` with what waits here, and says if anything is left.
    pub(super) fn fill(
        &mut self,
        out: &mut Batch,
        takes_whole: &mut dyn FnMut(&Plan) -> bool,
        pool: &mut Pool,
    ) -> Progress {
        while !out.is_full() {
            if let Some(cutting) = &mut self.cutting {
                if cutting.cut(out, pool) == Progress::More {
                    return Progress::More;
                }
                if let Some(cutting) = self.cutting.take() {
                    pool.put(cutting.frame);
                }
                continue;
            }
            let Some(frame) = self.behind.drain_front(1).next() else { return Progress::Done };
            self.offer(frame, out, takes_whole, pool);
        }
        if self.is_empty() { Progress::Done } else { Progress::More }
    }

    /// Takes back what a port has refused, if that begins with a packet of many segments that it does not take whole any more.
    pub(super) fn take_back(
        &mut self,
        out: &mut Batch,
        takes_whole: &mut dyn FnMut(&Plan) -> bool,
        pool: &mut Pool,
    ) {
        let mut is_refused = |frame: &Frame| !Plan::of(frame).is_some_and(|plan| takes_whole(&plan));
        if !self.is_empty() || !out.first().is_some_and(|frame| frame.is_big() && is_refused(frame)) {
            return;
        }
        self.behind = take(out);
        let first = self.behind.drain_front(1).next();
        if let Some(frame) = first {
            self.offer(frame, out, &mut |_| false, pool);
        }
    }

    /// Number of frames that wait here, as segments.
    fn frames(&self) -> u64 {
        frames(&self.behind) + self.cutting.as_ref().map_or(0, Cutting::left)
    }

    /// Gives the slots of all that waits back. Returns the number of frames.
    pub(super) fn discard(&mut self, pool: &mut Pool) -> u64 {
        let frames = self.frames();
        if let Some(cutting) = self.cutting.take() {
            pool.put(cutting.frame);
        }
        self.behind.drain().for_each(|frame| pool.put(frame));
        frames
    }
}

/// Number of frames, packets of many segments as these.
#[inline]
pub(super) fn frames(of: &[Frame]) -> u64 {
    if of.iter().any(Frame::is_big) {
        of.iter().map(|frame| Segments::of(frame).count).sum()
    } else {
        of.len() as u64
    }
}

/// A packet that is being cut.
struct Cutting {
    frame: Frame,
    plan: Plan,
    next: usize,
}

/// Rest of a packet that is being cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is left.
    Done,
    /// Segments are left, for which there was no room.
    More,
}

impl Cutting {
    /// # Errors
    /// The frame: it is no packet of many segments.
    fn new(frame: Frame) -> Result<Cutting, Frame> {
        match Plan::of(&frame) {
            Some(plan) => Ok(Cutting { frame, plan, next: 0 }),
            None => Err(frame),
        }
    }

    fn left(&self) -> u64 {
        (self.plan.count() - self.next) as u64
    }

    /// Cuts as many segments as `batch` has room for and `pool` slots, each with the metadata of the whole.
    fn cut(&mut self, batch: &mut Batch, pool: &mut Pool) -> Progress {
        while self.next < self.plan.count() {
            let Some(frame) = batch.extend_from(pool) else { return Progress::More };
            frame.meta = self.frame.meta.clone();
            let fits = self.plan.cut(self.frame.bytes(), self.next, frame);
            self.next += 1;
            if !fits {
                // A sender's segments are no longer than its link, which slots have room for; longer ones go nowhere.
                if let Some(frame) = batch.pop() {
                    pool.put(frame);
                }
            }
        }
        Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use wire::build::{self, Tcp};
    use wire::ethernet::Mac;
    use wire::tcp::Flags;

    use super::*;

    const SIZE: u16 = 100;

    /// A segment with so many bytes of data, which begin at sequence number `seq`.
    fn packet(seq: u32, bytes: usize) -> Vec<u8> {
        let (options, flags) = (&[][..], Flags::ACK);
        build::ethernet(Mac([2; 6]), Mac([4; 6]))
            .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
            .tcp(Tcp { sport: 1, dport: 2, seq, ack: 0, flags, window: 9, options })
            .payload(&vec![seq as u8; bytes])
            .to_vec()
    }

    fn frame(pool: &mut Pool, seq: u32, segments: usize) -> Frame {
        let packet = packet(seq, segments * usize::from(SIZE));
        let frame = if segments > 1 { pool.take_big(SIZE) } else { pool.take() };
        let mut frame = frame.unwrap();
        assert!(frame.fill(&packet));
        frame
    }

    fn pool() -> Pool {
        Pool::new(4, 2048).unwrap().with_big(4).unwrap()
    }

    /// Sequence numbers of frames, whose slots go back.
    fn drained(batch: &mut Batch, pool: &mut Pool) -> Vec<u32> {
        let mut seqs = Vec::new();
        for frame in batch.drain() {
            seqs.push(u32::from_be_bytes(*frame.bytes()[38..].first_chunk().unwrap()));
            pool.put(frame);
        }
        seqs
    }

    #[test]
    fn what_was_received_is_processed_in_order_and_cut_where_asked() {
        let (mut pool, mut batch, mut intake) = (pool(), Batch::new(), Intake::default());
        for (seq, segments) in [(1_000, 1), (2_000, 3), (3_000, 6), (4_000, 1)] {
            batch.push(frame(&mut pool, seq, segments)).unwrap();
        }
        intake.fill(&mut batch);
        assert!(matches!(intake.next(&mut batch, &mut pool), Group::Frames));
        assert_eq!(drained(&mut batch, &mut pool), [1_000]);
        let Group::Whole(whole) = intake.next(&mut batch, &mut pool) else { panic!("the second is whole") };
        assert_eq!(whole.segment_size(), Some(SIZE));
        pool.put(whole);
        let Group::Whole(refused) = intake.next(&mut batch, &mut pool) else { panic!("so is the third") };
        intake.cut(refused, &mut pool);
        // The pool has three slots left, as one waits: the rest comes when there is room.
        assert!(matches!(intake.next(&mut batch, &mut pool), Group::Frames) && !intake.is_empty());
        assert!(matches!(intake.next(&mut Batch::new(), &mut pool), Group::Nothing));
        assert_eq!(drained(&mut batch, &mut pool), [3_000, 3_100, 3_200]);
        assert!(matches!(intake.next(&mut batch, &mut pool), Group::Frames));
        assert_eq!(drained(&mut batch, &mut pool), [3_300, 3_400, 3_500]);
        assert!(matches!(intake.next(&mut batch, &mut pool), Group::Frames));
        assert_eq!(drained(&mut batch, &mut pool), [4_000]);
        assert!(matches!(intake.next(&mut batch, &mut pool), Group::Nothing) && intake.is_empty());
        assert_eq!(pool.available(), 4);
    }

    #[test]
    fn a_port_gets_segments_of_what_it_does_not_take_whole() {
        let (mut pool, mut out, mut offering) = (pool(), Batch::new(), Offering::default());
        let whole = frame(&mut pool, 1_000, 3);
        offering.offer(whole, &mut out, &mut |_| true, &mut pool);
        assert_eq!((out.len(), frames(&out), offering.is_empty()), (1, 3, true));
        let next = frame(&mut pool, 2_000, 1);
        offering.offer(next, &mut out, &mut |_| true, &mut pool);
        // The device refuses it; it may take it yet, and then not.
        offering.take_back(&mut out, &mut |_| true, &mut pool);
        assert_eq!(out.len(), 2);
        offering.take_back(&mut out, &mut |_| false, &mut pool);
        assert!(out.is_empty());
        assert_eq!(offering.fill(&mut out, &mut |_| false, &mut pool), Progress::Done);
        assert_eq!(drained(&mut out, &mut pool), [1_000, 1_100, 1_200, 2_000]);
        let other = frame(&mut pool, 5_000, 6);
        offering.offer(other, &mut out, &mut |_| false, &mut pool);
        assert_eq!(offering.fill(&mut out, &mut |_| false, &mut pool), Progress::More);
        assert_eq!((out.len(), offering.discard(&mut pool), offering.is_empty()), (4, 2, true));
        assert_eq!(drained(&mut out, &mut pool), [5_000, 5_100, 5_200, 5_300]);
        assert_eq!(pool.available(), 4);
    }
}
