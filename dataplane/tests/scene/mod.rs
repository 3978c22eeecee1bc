//! A gateway and the packets that try it: what the tests of the whole pipeline, and the fuzz target, have in common.
//!
//! Everything follows from bytes: [`policy`] makes a policy of a few, [`packet::Packets`] makes a packet of each
//! eighteen. So whatever shrinks or mutates bytes shrinks and mutates scenes.
// Not every test needs all of it, and nobody else can use it.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod check;
pub mod link;
pub mod packet;
pub mod pair;
pub mod policy;
pub mod talk;

use std::rc::Rc;

use dataplane::egress::Next;
use dataplane::flow::Member;
use dataplane::handoff::{arrived, receiver};
use dataplane::hop::{MOST_WAITING, Resolve, Wanted};
use dataplane::nat::Share;
use dataplane::peer::{is_handed_over, note_taken};
use dataplane::reload::{Applied, ReloadPlan};
use dataplane::replay::Way;
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::tables::is_linux;
use dataplane::{Delivery, Pipeline, Shard, Tables, Verdict};
use tally::NoTally;
use wire::ethernet::Mac;
use wire::segment::Plan;
use wire::{BATCH, Batch, Frame, Meta, Nanos, Pool, PortId};

/// Start time of every scene.
pub const START: Nanos = Nanos::from_secs(1_700_000_000);

/// Slots for packets of many segments.
const BIG: u32 = 8;

/// A gateway, its queues emptied only when it is told to.
pub struct Gateway {
    pub tables: Rc<Tables>,
    pub shard: Shard,
    pipeline: Pipeline,
    batch: Batch,
    ended: Vec<Frame>,
    way: Way,
    resolve: Resolve,
    share: Share,
    /// Interface by which the gateway's own stack sends its packets.
    pub own_port: PortId,
    /// Last, so that it goes when all frames have come home.
    pub pool: Pool,
}

/// Output of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// Frames sent, by port, in order.
    pub sent: Vec<Sent>,
    /// Numbers and verdicts of the frames that ended here, in order.
    pub ended: Vec<(u32, Verdict)>,
    /// Frames for the host, of those that ended: delivered ones, and answers to the gateway itself.
    pub local: Vec<Local>,
}

/// A frame that ended here, and is not gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub number: u32,
    pub verdict: Verdict,
    pub delivery: Delivery,
    pub bytes: Vec<u8>,
}

/// A frame that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub port: u16,
    pub number: u32,
    /// `None` for further parts of a packet that was cut.
    pub verdict: Option<Verdict>,
    pub bytes: Vec<u8>,
}

/// A frame to be received.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub port: PortId,
    pub at: Nanos,
    pub number: u32,
    pub bytes: Vec<u8>,
}

/// The tables of a policy's text, which must be right.
pub fn tables(text: &str) -> Tables {
    let checked = ::policy::check(text, "scene.toml");
    let errors: Vec<_> = checked.errors().map(|error| (error.line(), error.message.clone())).collect();
    match checked.policy {
        Some(policy) => Tables::compile(&policy, 1).unwrap_or_else(|error| panic!("{error}\n{text}")),
        None => panic!("{errors:?}\n{text}"),
    }
}

/// Setup of the shards of scenes.
pub fn setup(now: Nanos) -> Setup {
    Setup { seed: [7, 11], now, resolve: Resolve::Assume, share: Share::WHOLE }
}

impl Gateway {
    pub fn new(text: &str, way: Way) -> Gateway {
        let tables = tables(text);
        let slots = 160 + tables.limits.fragments.held;
        Gateway::with_slots(tables, way, slots)
    }

    /// A gateway that knows only the neighbours of updates from the host.
    pub fn resolved_by_host(text: &str, way: Way) -> Gateway {
        let tables = tables(text);
        let slots = 160 + tables.limits.fragments.held + MOST_WAITING;
        Gateway::with(tables, way, slots, Resolve::ByHost)
    }

    pub fn with_slots(tables: impl Into<Rc<Tables>>, way: Way, slots: u32) -> Gateway {
        Gateway::with(tables, way, slots, Resolve::Assume)
    }

    pub fn with(tables: impl Into<Rc<Tables>>, way: Way, slots: u32, resolve: Resolve) -> Gateway {
        let tables = tables.into();
        let setup = Setup { resolve, ..setup(START) };
        let shard = Shard::new(&tables, setup).expect("memory for a shard");
        Gateway {
            tables,
            shard,
            pool: Pool::new(slots, 4096).and_then(|pool| pool.with_big(BIG)).expect("memory for frames"),
            pipeline: Pipeline::default(),
            batch: Batch::new(),
            ended: Vec::with_capacity(slots as usize),
            way,
            resolve,
            share: Share::WHOLE,
            own_port: PortId(policy::WAN),
        }
    }

    /// One of several that share flows and ports.
    pub fn member(text: &str, member: Member) -> Gateway {
        Gateway::member_of(tables(text), member)
    }

    /// One of several that work by these tables.
    pub fn member_of(tables: impl Into<Rc<Tables>>, member: Member) -> Gateway {
        let (worker, workers) = (member.worker, member.steering.workers());
        let tables = tables.into();
        let slots = 160 + tables.limits.fragments.held;
        let mut gateway = Gateway::with_slots(tables, Way::Run, slots);
        let share = Share::new(worker, workers).expect("a worker");
        gateway.begin_anew(share);
        gateway.shard.join(member);
        gateway
    }

    /// Has the memory of a worker with that share of the work, and nothing of before.
    pub fn begin_anew(&mut self, share: Share) {
        self.share = share;
        self.shard = Shard::new(&self.tables, Setup { share, ..setup(START) }).expect("memory for a shard");
    }

    /// Frames that are to be handed off, each with its receiver, in order. What `is_lost` is dropped here.
    pub fn given(&mut self, mut is_lost: impl FnMut() -> bool) -> Vec<(u16, Meta, Vec<u8>)> {
        let mut given = Vec::new();
        for mut frame in std::mem::take(&mut self.ended) {
            match receiver(&frame.meta) {
                Some(_) if is_lost() => {
                    self.shard.count_not_carried(&mut frame);
                    self.ended.push(frame);
                }
                Some(worker) => {
                    given.push((worker, frame.meta.clone(), frame.bytes().to_vec()));
                    self.pool.put(frame);
                }
                None => self.ended.push(frame),
            }
        }
        given
    }

    /// Frames that are to be handed over to a second gateway, in order, each with the interface that it came by.
    pub fn handed_over(&mut self) -> Vec<(PortId, Vec<u8>)> {
        let (over, ended) =
            std::mem::take(&mut self.ended).into_iter().partition(|frame| is_handed_over(&frame.meta));
        self.ended = ended;
        let over: Vec<Frame> = over;
        let taken = over.into_iter().map(|frame| {
            let taken = (frame.meta.ingress, frame.bytes().to_vec());
            self.pool.put(frame);
            taken
        });
        taken.collect()
    }

    /// The link to a second gateway takes nothing of what is to be handed over.
    pub fn lose_handed_over(&mut self) {
        for frame in self.ended.iter_mut().filter(|frame| is_handed_over(&frame.meta)) {
            self.shard.count_not_handed_over(frame);
        }
    }

    /// Receives a frame that a second gateway has handed over.
    pub fn take_over(&mut self, arrival: &Arrival) {
        let mut frame = self.pool.take().expect("a slot");
        assert!(frame.fill(&arrival.bytes));
        (frame.meta.ingress, frame.meta.received) = (arrival.port, arrival.at);
        frame.meta.number = arrival.number;
        note_taken(&mut frame.meta);
        self.batch.push(frame).expect("the batch is empty");
        let Gateway { tables, shard, pool, .. } = self;
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        match self.way {
            Way::Run => self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx),
            Way::Step => self.pipeline.step(&mut self.batch, &mut self.ended, &mut cx),
        }
    }

    /// Takes in a frame that another one has given.
    pub fn take(&mut self, given: &Meta, bytes: &[u8]) {
        let mut frame = self.pool.take().expect("a slot");
        assert!(frame.fill(bytes));
        frame.meta = arrived(given, given.ingress, given.received);
        self.batch.push(frame).expect("the batch is empty");
        let Gateway { tables, shard, pool, .. } = self;
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        self.pipeline.run_taken(&mut self.batch, &mut self.ended, &mut cx);
    }

    /// Takes a batch of at most 64 frames through. Frames for which there is no slot are not received.
    pub fn receive(&mut self, arrivals: &[Arrival]) {
        for arrival in arrivals {
            let Some(mut frame) = self.pool.take() else { continue };
            if !frame.fill(&arrival.bytes) {
                self.pool.put(frame);
                continue;
            }
            frame.meta.ingress = arrival.port;
            frame.meta.received = arrival.at;
            frame.meta.number = arrival.number;
            if is_linux(arrival.port) {
                frame.meta.egress = self.own_port;
            }
            if let Err(frame) = self.batch.push(frame) {
                self.pool.put(frame);
            }
        }
        let mut tally = NoTally;
        let Gateway { tables, shard, pool, .. } = self;
        let mut cx = Cx { tables, shard, pool, tally: &mut tally };
        match self.way {
            Way::Run => self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx),
            Way::Step => self.pipeline.step(&mut self.batch, &mut self.ended, &mut cx),
        }
    }

    /// Takes a packet of many segments through whole, if the gateway does so and has a slot; else says no, and nothing has happened.
    pub fn receive_whole(&mut self, arrival: &Arrival, size: u16) -> bool {
        let Some(mut frame) = self.pool.take_big(size) else { return false };
        assert!(frame.fill(&arrival.bytes));
        frame.meta.ingress = arrival.port;
        frame.meta.received = arrival.at;
        frame.meta.number = arrival.number;
        if is_linux(arrival.port) {
            frame.meta.egress = self.own_port;
        }
        let Gateway { tables, shard, pool, .. } = self;
        let mut cx = Cx { tables, shard, pool, tally: &mut NoTally };
        match self.pipeline.run_whole(frame, &mut self.ended, &mut cx, &mut ()) {
            Ok(()) => true,
            Err(frame) => {
                assert_eq!(frame.bytes(), arrival.bytes, "a frame that is refused is as it was");
                self.pool.put(frame);
                false
            }
        }
    }

    /// Goes on with the tables of another policy.
    pub fn reload(&mut self, text: &str, at: Nanos) -> Applied {
        self.change(tables(text), at)
    }

    /// Goes on with other tables.
    pub fn change(&mut self, new: Tables, at: Nanos) -> Applied {
        let new = new.after(&self.tables);
        let setup = Setup { resolve: self.resolve, share: self.share, ..setup(at) };
        let change = ReloadPlan::prepare(&self.tables, &new, setup).expect("memory for a change");
        let applied = self.shard.apply(change, &new, at, &mut self.ended).expect("it is its turn");
        self.tables = new.into();
        applied
    }

    /// Lets time pass.
    pub fn tend(&mut self, now: Nanos) {
        let mut tally = NoTally;
        let Gateway { tables, shard, pool, .. } = self;
        let mut cx = Cx { tables, shard, pool, tally: &mut tally };
        self.pipeline.tend(now, &mut self.ended, &mut cx);
    }

    pub fn learn(&mut self, wanted: Wanted, mac: Mac) {
        self.shard
            .update_neighbour(&self.tables, wanted.interface, wanted.address, mac)
            .expect("there is room");
    }

    pub fn forget(&mut self, wanted: Wanted) {
        self.shard.remove_neighbour(&self.tables, wanted.interface, wanted.address);
    }

    pub fn unreachable(&mut self, wanted: Wanted) {
        self.shard.neighbour_unreachable(&self.tables, wanted.interface, wanted.address);
    }

    /// Number of pending frames.
    pub fn held(&self) -> usize {
        self.shard.fragments.held() as usize + self.shard.hops.held() as usize + self.shard.released.len()
    }

    /// Gives what ended, and at most `most` frames of each queue, to `see`, and their slots back.
    pub fn drain(&mut self, most: usize, mut see: impl FnMut(Option<PortId>, &Frame)) {
        for frame in self.ended.drain(..) {
            see(None, &frame);
            self.pool.put(frame);
        }
        for port in (0..self.shard.egress.ports() as u16).map(PortId) {
            let mut left = most;
            // As a worker does: bursts first, and whatever else departs one by one.
            while matches!(self.way, Way::Run) && left >= BATCH {
                self.shard.dequeue_burst(port, Nanos::MAX, &mut self.batch);
                if self.batch.is_empty() {
                    break;
                }
                left -= self.batch.len();
                for frame in self.batch.drain() {
                    see(Some(port), &frame);
                    self.pool.put(frame);
                }
            }
            for _ in 0..left {
                match self.shard.next(port, Nanos::MAX) {
                    Next::Frame(frame, _) => {
                        see(Some(port), &frame);
                        self.pool.put(frame);
                    }
                    Next::Dropped(frame, ..) => self.pool.put(frame),
                    Next::Wait(_) | Next::Empty => break,
                }
            }
        }
    }

    /// Gives what departs or is dropped by `now` to `see`, and the slots back.
    pub fn depart(&mut self, now: Nanos, mut see: impl FnMut(&Next)) {
        for frame in self.ended.drain(..) {
            self.pool.put(frame);
        }
        for port in (0..self.shard.egress.ports() as u16).map(PortId) {
            loop {
                let next = self.shard.next(port, now);
                match next {
                    Next::Frame(..) | Next::Dropped(..) => see(&next),
                    Next::Wait(_) | Next::Empty => break,
                }
                if let Next::Frame(frame, _) | Next::Dropped(frame, ..) = next {
                    self.pool.put(frame);
                }
            }
        }
    }

    /// Drains the output, at most `most` frames of each queue, packets of many segments as these.
    pub fn out(&mut self, most: usize) -> Out {
        let mut out = Out::default();
        self.drain(most, |port, frame| {
            let (number, verdict) = (frame.meta.number, Verdict::of_fate(frame.meta.fate));
            let frames = match frame.segment_size() {
                Some(size) => segments(frame.bytes(), size).expect("it has segments"),
                None => vec![frame.bytes().to_vec()],
            };
            for bytes in frames {
                match port {
                    Some(port) => out.sent.push(Sent { port: port.0, number, verdict, bytes }),
                    None => {
                        let verdict = verdict.expect("what ended has a verdict");
                        out.ended.push((number, verdict));
                        if matches!(verdict, Verdict::Delivered | Verdict::Answered(_)) {
                            out.local.push(Local {
                                number,
                                verdict,
                                delivery: Delivery::of(&frame.meta),
                                bytes,
                            });
                        }
                    }
                }
            }
        });
        out
    }

    /// Frames that have ended, and whose slots have not been given back.
    pub fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Frames that wait in queues.
    pub fn queued(&self) -> usize {
        self.shard.egress.lengths().sum()
    }
}

/// The segments of a packet of many, as a card cuts them; `None` if it is no such packet.
pub fn segments(packet: &[u8], size: u16) -> Option<Vec<Vec<u8>>> {
    let plan = Plan::new(packet, size)?;
    (0..plan.count()).map(|index| plan.segment(packet, index)).collect()
}
