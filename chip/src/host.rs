//! The chip as a host of the pipeline: each frame that the machine takes in goes through the replay host's pipeline at
//! its own timestamp, and the machine plays back the recorded cost.

use dataplane::pipeline::{self, STAGES, Watch};
use dataplane::replay::Witness;
use dataplane::stage::{About, Cx};
use dataplane::tables::{Circuit, Interface};
use dataplane::{Reason, Replay, Tables, Verdict, flag};
use wire::atm;
use wire::ethernet::{EtherType, HeaderMut, Mac};
use wire::link_kind::{LinkKind, STAND_IN};
use wire::meta::Fields;
use wire::rfc2684::Channel;
use wire::{Family, Frame, Meta, Nanos, PortId};

use crate::kernel::Timebase;
use crate::load::{Arrival, Handling, Job, Length, Load, Output, Standing};
use crate::trace::Recorder;

/// Frames to come.
pub trait Traffic {
    /// Timestamp of the next frame, no earlier than the one before; `None` when there are no more.
    fn peek(&mut self) -> Option<Nanos>;

    /// Writes the next frame into `bytes`, which is empty; `None` when there are no more.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Entry>;

    /// A frame was queued at a port because of the frame given last: a source can now answer it.
    fn left(&mut self, port: PortId, frame: &[u8]) {
        let _ = (port, frame);
    }
}

/// Time and place of a frame's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Timestamp of its first bit, and the time that the pipeline goes by.
    pub at: Nanos,
    /// The interface, by its place in the policy.
    pub ingress: PortId,
    /// Length on the wire, in bytes; more than the frame's own where a capture has only part of it.
    pub original_len: u32,
    /// Link-layer destination that the gateway assumes, where it differs from the frame's own.
    pub receiver: Option<Mac>,
    /// Side of the gateway on which it was seen.
    pub view: View,
}

/// Side of the gateway on which a frame was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// As its sender sent it to the gateway.
    #[default]
    Sent,
    /// Perhaps inside, as an answer that was translated already: then it comes in addressed to the translation.
    Inside,
}

impl Entry {
    /// Makes the entry of a frame of `bytes` bytes, as its sender sent it.
    pub fn new(at: Nanos, ingress: PortId, bytes: usize) -> Entry {
        let original_len = u32::try_from(bytes).unwrap_or(u32::MAX);
        Entry { at, ingress, original_len, receiver: None, view: View::Sent }
    }
}

/// Observer of frames on a chip: the events of every host, and those of a chip alone.
pub trait Onlooker: Witness {
    /// A frame comes in: the one of that number, counted from 0, which may wrap.
    fn came(&mut self, number: u32, entry: &Entry, bytes: &[u8]) {
        let _ = (number, entry, bytes);
    }

    /// The frame was lost: its MAC had no room for its first element.
    fn lost(&mut self, number: u32) {
        let _ = number;
    }
}

/// No observer.
impl Onlooker for () {}

/// A pipeline on a machine.
pub struct Host<'a, W> {
    replay: &'a mut Replay,
    traffic: &'a mut dyn Traffic,
    witness: &'a mut W,
    time: Timebase,
    start: Nanos,
    /// The frame given last, until it is taken in.
    entry: Option<Entry>,
    bytes: Vec<u8>,
    number: u32,
    wiring: Wiring,
    /// Recorder of the stages' acts, and of instructions by kind.
    pub recorder: Recorder,
    /// Recorder of the schedulers' acts, which the engine that queues the next frame does.
    scheduled: Recorder,
    stages: [About; STAGES],
}

impl<'a, W: Onlooker> Host<'a, W> {
    /// Makes a host whose pipeline `traffic` goes through; `witness` receives the events of its frames, in the order of
    /// arrival.
    pub fn new(
        replay: &'a mut Replay,
        traffic: &'a mut dyn Traffic,
        witness: &'a mut W,
        start: Nanos,
        time: Timebase,
    ) -> Host<'a, W> {
        replay.pass(witness);
        Host {
            wiring: Wiring::new(&replay.tables, &[]),
            replay,
            traffic,
            witness,
            time,
            start,
            entry: None,
            bytes: Vec::new(),
            number: 0,
            recorder: Recorder::default(),
            scheduled: Recorder::default(),
            stages: pipeline::abouts(),
        }
    }

    /// Lets interfaces have these ports, not those of their order.
    #[must_use]
    pub fn wired(mut self, wiring: Wiring) -> Host<'a, W> {
        self.wiring = wiring;
        self
    }

    /// Lets all depart that is queued: no further frame comes.
    pub fn finish(&mut self) {
        self.replay.finish(self.witness);
    }

    /// Numbers the frames from `number` on.
    #[must_use]
    pub fn numbered_from(mut self, number: u32) -> Host<'a, W> {
        self.number = number;
        self
    }
}

/// The port of a chip that each interface's frames take; VLANs take that of the interface which carries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring(Vec<Wire>);

/// Line of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wire {
    port: u16,
    link: LinkKind,
    /// ATM virtual channel in whose cells its frames come and go.
    channel: Option<Channel>,
}

/// Type of a frame, also of one that is a stand-in.
fn ethertype(frame: &[u8]) -> EtherType {
    let [high, low] = frame.get(12..14).and_then(|of| of.try_into().ok()).unwrap_or_default();
    EtherType(u16::from_be_bytes([high, low]))
}

/// The interface by whose line an interface's frames come and go: a VLAN's parent, and of an ATM channel the one that has its line.
pub(crate) fn line(tables: &Tables, interface: PortId) -> PortId {
    let root = tables.interface(interface).map_or(interface, |of| of.root);
    let carries =
        |port: &Interface| port.circuits.iter().any(|(_, circuit)| *circuit == Circuit::Interface(root));
    tables.interfaces.iter().position(carries).map_or(root, |place| PortId(place as u16))
}

/// An interface that is to have a certain port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plug {
    /// The interface.
    pub interface: PortId,
    /// The port, counted from 0.
    pub port: u16,
}

impl Wiring {
    /// Wires the interfaces of a policy: those of `plugs` to the ports given there, the others in their order, each to
    /// the first port left. A chip with fewer ports begins again with its first.
    pub fn new(tables: &Tables, plugs: &[Plug]) -> Wiring {
        let root = |interface: PortId| line(tables, interface);
        let mut free = (0..=u16::MAX).filter(|port| plugs.iter().all(|plug| plug.port != *port));
        let mut roots: Vec<Option<u16>> = vec![None; tables.interfaces.len()];
        for (place, interface) in tables.interfaces.iter().enumerate() {
            // A tunnel's packets come and go by other interfaces.
            let own = PortId(place as u16);
            if root(own) == own && interface.tunnel.is_none() {
                let plug = plugs.iter().find(|plug| root(plug.interface) == own);
                roots[place] = plug.map(|plug| plug.port).or_else(|| free.next());
            }
        }
        let port = |of: PortId| roots.get(usize::from(of.0)).copied().flatten().unwrap_or(0);
        let wire = |(id, interface): (u16, &Interface)| {
            // A VLAN goes as its parent does, a channel on another's line as itself.
            let parent = tables.interface(interface.root).filter(|_| interface.channel.is_none());
            let Interface { link, channel, .. } = parent.unwrap_or(interface);
            Wire { port: port(root(PortId(id))), link: *link, channel: *channel }
        };
        Wiring((0..).zip(&tables.interfaces).map(wire).collect())
    }

    /// The port of an interface.
    pub fn port(&self, interface: PortId) -> u16 {
        self.0.get(usize::from(interface.0)).map_or(0, |wire| wire.port)
    }

    /// Length of a frame that comes or goes by an interface: of bare packets without their stand-in; on an ATM channel with its
    /// number of cells, which is 1 of a cell.
    fn length(&self, interface: PortId, frame: &[u8]) -> Length {
        let Wire { link, channel, .. } = self.0.get(usize::from(interface.0)).copied().unwrap_or_default();
        let stand_in = if link == LinkKind::Ip { STAND_IN } else { 0 };
        let cells = channel.map_or(0, |channel| match atm::cell_of(frame) {
            Some(_) => 1,
            None => channel.cells(link, ethertype(frame), frame.len()),
        });
        let bytes = match channel.and(atm::cell_of(frame)) {
            Some(cell) => cell.len(),
            None => frame.len() - stand_in.min(frame.len()),
        };
        let [bytes, cells] = [bytes, cells].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Length { bytes, cells }
    }

    /// The highest port that is taken.
    pub fn last(&self) -> Option<u16> {
        self.0.iter().map(|wire| wire.port).max()
    }
}

impl<W: Onlooker> Load for Host<'_, W> {
    fn next(&mut self) -> Option<Arrival> {
        if self.entry.take().is_some() {
            self.witness.lost(self.number.wrapping_sub(1));
        }
        self.bytes.clear();
        let entry = self.traffic.next(&mut self.bytes)?;
        self.witness.came(self.number, &entry, &self.bytes);
        self.number = self.number.wrapping_add(1);
        self.entry = Some(entry);
        Some(Arrival {
            at: self.time.of_nanos(entry.at.since(self.start).0),
            port: self.wiring.port(entry.ingress),
            length: self.wiring.length(entry.ingress, &self.bytes),
        })
    }

    fn accept(&mut self, job: &mut Job) {
        let Some(entry) = self.entry.take() else { return };
        self.recorder.renew(std::mem::take(&mut job.acts));
        let mut outcome = Outcome {
            witness: &mut *self.witness,
            traffic: &mut *self.traffic,
            wiring: &self.wiring,
            outputs: &mut job.outputs,
        };
        if let (Some(receiver), Some(mut header)) = (entry.receiver, HeaderMut::of(&mut self.bytes)) {
            header.set_dst(receiver);
        }
        self.replay.advance_tallied(entry.at, &mut outcome, &mut self.scheduled);
        if entry.view == View::Inside {
            self.replay.readdress(&mut self.bytes, &mut outcome);
        }
        let number = self.number.wrapping_sub(1);
        self.replay.make_way(entry.at, &mut outcome, &mut self.scheduled);
        self.replay.receive(entry.ingress, entry.at, number, &self.bytes, &mut outcome);
        let mut marker = Marker::new(&mut job.marks, &self.stages);
        self.replay.pass_watched(&mut outcome, &mut self.recorder, &mut marker);
        marker.cross(&mut job.crossing);
        let Marker { last, standing, handling, flow, ds_field, .. } = marker;
        if last + 1 == STAGES {
            self.recorder.go_on_with(&mut self.scheduled);
        }
        job.acts = self.recorder.renew(Vec::new());
        job.marks.resize(STAGES + 1, job.acts.len() as u32);
        (job.ends_at, job.standing, job.handling) = (last, standing, handling);
        (job.flow, job.precedence) = (flow, ds_field >> 5);
    }
}

/// Marks where the acts of each stage begin, and notes the fields that the stage writes and reads.
struct Marker<'a> {
    marks: &'a mut Vec<u32>,
    stages: &'a [About; STAGES],
    last: usize,
    standing: Standing,
    handling: Handling,
    flow: u32,
    ds_field: u8,
    before: Meta,
    written: [Fields; STAGES],
    read: [Fields; STAGES],
}

impl<'a> Marker<'a> {
    fn new(marks: &'a mut Vec<u32>, stages: &'a [About; STAGES]) -> Marker<'a> {
        let (written, read) = ([Fields::NONE; STAGES], [Fields::NONE; STAGES]);
        let (standing, handling) = (Standing::New, Handling::Plain);
        let before = Meta::default();
        Marker { marks, stages, last: 0, standing, handling, flow: 0, ds_field: 0, before, written, read }
    }

    /// Writes into `crossing`, for each number of stages passed, the bytes of metadata that those stages have written and later ones read.
    ///
    /// Not among them: the time, which an engine reads from a clock, the host's number of the frame, and a port, which is in the
    /// [descriptor word](crate::machine) along with buffer and length: the egress, once it is known, and the ingress until then.
    fn cross(&self, crossing: &mut Vec<u32>) {
        const ELSEWHERE: Fields = Fields::RECEIVED.and(Fields::NUMBER).and(Fields::EGRESS);
        // Those written before each number of stages passed, then those read behind it.
        let mut written = [Fields::NONE; STAGES];
        for passed in 1..STAGES {
            written[passed] = written[passed - 1].and(self.written[passed - 1]);
        }
        crossing.clear();
        crossing.resize(STAGES + 1, 0);
        let mut read = Fields::NONE;
        for passed in (0..STAGES).rev() {
            read = read.and(self.read[passed]);
            let is_routed = written[passed].within(Fields::EGRESS) != Fields::NONE;
            let known = match is_routed {
                true => written[passed].and(Fields::INGRESS),
                false => written[passed].without(Fields::INGRESS),
            };
            crossing[passed] = known.within(read).without(ELSEWHERE).bytes();
        }
    }
}

impl Watch<Recorder> for Marker<'_> {
    fn before(&mut self, stage: &'static str, frame: &Frame, cx: &mut Cx<'_, Recorder>) {
        let place = self.stages.iter().position(|about| about.name == stage).unwrap_or(0);
        // What stages that were left out did not do begins where this one's begins.
        self.marks.resize(place + 1, cx.tally.mark());
        self.last = place;
        self.read[place] = self.stages[place].reads;
        self.before.clone_from(&frame.meta);
    }

    fn after(&mut self, _: &'static str, frame: &Frame, _: &mut Cx<'_, Recorder>) {
        if flag::HIT & frame.meta.flags != 0 {
            self.standing = Standing::Known;
        }
        self.ds_field = frame.meta.ds_field;
        self.flow = match frame.meta.flow {
            u32::MAX if self.last == 0 => ends(frame),
            u32::MAX => self.flow,
            flow => flow,
        };
        let verdict = Verdict::of_fate(frame.meta.fate);
        if let Some(Verdict::Answered(_) | Verdict::Delivered | Verdict::Held(_)) = verdict {
            self.handling = Handling::Exception;
        }
        let opens = [&self.before, &frame.meta].iter().any(|meta| meta.opening != Meta::NO_OPENING);
        let opening =
            if opens { self.stages[self.last].writes.within(Fields::OPENING) } else { Fields::NONE };
        self.written[self.last] = frame.meta.changed(&self.before).and(opening);
    }
}

/// Number of the flow and direction that a packet belongs to as it leaves.
fn leaving(frame: &Frame) -> u32 {
    match frame.meta.flow {
        u32::MAX => ends(frame),
        flow => flow << 1 | u32::from(frame.meta.flags & flag::REPLY != 0),
    }
}

/// Hash of a packet's addresses and ports, which stands for its flow where none is tracked.
fn ends(frame: &Frame) -> u32 {
    let Meta { network, family, sport, dport, .. } = frame.meta;
    let addresses = match family {
        Family::V4 => 12..20,
        Family::V6 => 8..40,
        Family::Other => 0..0,
    };
    let bytes =
        frame.bytes().get(usize::from(network)..).and_then(|header| header.get(addresses)).unwrap_or(&[]);
    let ports = [sport, dport].map(u16::to_be_bytes);
    // FNV-1a.
    let all = bytes.iter().chain(ports.as_flattened());
    all.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Witness that records the frames that leave, and forwards all events.
struct Outcome<'a, W> {
    witness: &'a mut W,
    traffic: &'a mut dyn Traffic,
    wiring: &'a Wiring,
    outputs: &'a mut Vec<Output>,
}

impl<W: Witness> Witness for Outcome<'_, W> {
    /// Records the output: engines work for a frame until it is queued; choice of port and time is no work of engines.
    fn queued(&mut self, port: PortId, frame: &Frame) {
        let length = self.wiring.length(port, frame.bytes());
        self.outputs.push(Output { port: self.wiring.port(port), length, flow: leaving(frame) });
        self.traffic.left(port, frame.bytes());
        self.witness.queued(port, frame);
    }

    fn sent(&mut self, port: PortId, at: Nanos, frame: &Frame, verdict: Option<Verdict>) {
        self.witness.sent(port, at, frame, verdict);
    }

    fn ended(&mut self, frame: &Frame, verdict: Verdict) {
        self.witness.ended(frame, verdict);
    }

    fn released(&mut self, number: u32, first: u32) {
        self.witness.released(number, first);
    }

    fn refused(&mut self, number: u32, ingress: PortId, reason: Reason) {
        self.witness.refused(number, ingress, reason);
    }
}
