//! The chip as a host of the pipeline: each frame that the machine takes in goes through the replay host's pipeline at
//! its own timestamp, and what that cost is what the machine plays out.

use dataplane::pipeline::{STAGES, Watch};
use dataplane::replay::Witness;
use dataplane::stage::{Cx, parse};
use dataplane::{Replay, Verdict};
use wire::{Frame, Nanos, PortId};

use crate::kernel::Timebase;
use crate::load::{Arrival, Job, Load, Output, Standing};
use crate::trace::Recorder;

/// Frames to come.
pub trait Traffic {
    /// Writes the next frame into `bytes`, which is empty; `None` when there are no more.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry>;
}

/// When and where a frame comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its timestamp: when its first bit is there, and the time that the pipeline goes by.
    pub at: Nanos,
    /// The interface, by its place in the policy.
    pub ingress: PortId,
}

/// A pipeline on a machine.
pub struct Host<'a, W> {
    replay: Replay,
    traffic: &'a mut dyn Traffic,
    witness: &'a mut W,
    time: Timebase,
    start: Nanos,
    entry: Option<Entry>,
    bytes: Vec<u8>,
    number: u32,
    /// What was executed, by kind.
    pub recorder: Recorder,
    stages: [&'static str; STAGES],
}

impl<'a, W: Witness> Host<'a, W> {
    /// A pipeline that `traffic` goes through; `witness` is told what happens to its frames, in the order in which they
    /// came in.
    pub fn new(
        mut replay: Replay,
        traffic: &'a mut dyn Traffic,
        witness: &'a mut W,
        start: Nanos,
        time: Timebase,
    ) -> Host<'a, W> {
        replay.flush(witness);
        let mut pipeline = dataplane::Pipeline::default();
        let stages = pipeline.stages::<Recorder>().map(|(name, _)| name);
        Host {
            replay,
            traffic,
            witness,
            time,
            start,
            entry: None,
            bytes: Vec::new(),
            number: 0,
            recorder: Recorder::default(),
            stages,
        }
    }

    /// The pipeline, when all is done.
    pub fn into_replay(self) -> Replay {
        self.replay
    }
}

impl<W: Witness> Load for Host<'_, W> {
    fn next(&mut self) -> Option<Arrival> {
        self.bytes.clear();
        self.entry = self.traffic.next(&mut self.bytes);
        let entry = self.entry?;
        // Interfaces without a port of their own, such as VLANs, have their frames by the port that carries them.
        let interface = self.replay.tables.interface(entry.ingress);
        let port = interface.map_or(entry.ingress, |interface| interface.root);
        Some(Arrival {
            at: self.time.of_nanos(entry.at.since(self.start).0),
            port: port.0,
            bytes: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
        })
    }

    fn accept(&mut self, job: &mut Job) {
        let Some(entry) = self.entry else { return };
        self.recorder.renew(std::mem::take(&mut job.acts));
        let mut outcome = Outcome { witness: &mut *self.witness, outputs: &mut job.outputs };
        self.replay.receive(entry.ingress, entry.at, self.number, &self.bytes, &mut outcome);
        self.number = self.number.wrapping_add(1);
        let mut marker =
            Marker { marks: &mut job.marks, stages: &self.stages, last: 0, standing: Standing::New };
        self.replay.flush_watched(&mut outcome, &mut self.recorder, &mut marker);
        let Marker { last, standing, .. } = marker;
        job.acts = self.recorder.renew(Vec::new());
        job.marks.resize(STAGES + 1, job.acts.len() as u32);
        (job.ends_at, job.standing) = (last, standing);
    }
}

/// Marks where the acts of each stage begin.
struct Marker<'a> {
    marks: &'a mut Vec<u32>,
    stages: &'a [&'static str; STAGES],
    last: usize,
    standing: Standing,
}

impl Watch<Recorder> for Marker<'_> {
    fn before(&mut self, stage: &'static str, _: &Frame, cx: &mut Cx<'_, Recorder>) {
        let place = self.stages.iter().position(|name| *name == stage).unwrap_or(0);
        // What stages that were left out did not do begins where this one's begins.
        self.marks.resize(place + 1, cx.tally.mark());
        self.last = place;
    }

    fn after(&mut self, _: &'static str, frame: &Frame, _: &mut Cx<'_, Recorder>) {
        if parse::flag::HIT & frame.meta.flags != 0 {
            self.standing = Standing::Known;
        }
    }
}

/// Notes what leaves, and passes all of it on.
struct Outcome<'a, W> {
    witness: &'a mut W,
    outputs: &'a mut Vec<Output>,
}

impl<W: Witness> Witness for Outcome<'_, W> {
    fn sent(&mut self, port: PortId, frame: &Frame, verdict: Option<Verdict>) {
        self.outputs.push(Output { port: port.0, bytes: frame.bytes().len() as u32 });
        self.witness.sent(port, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.witness.ended(frame, verdict);
    }
}
