//! Interface of a worker: the worker's queue of the port, and the punt path to Linux's own stack.

use dataplane::Shard;
use dataplane::egress::Next;
use dataplane::stage::parse::vlan;
use dataplane::tables::{LOCAL, Tables};
use ports::{Line, Statistics};
use serde::Serialize;
use wire::vlan::Tags;
use wire::{BATCH, Batch, Frame, Nanos, Pool, PortError, PortId, Received, ethernet};

use super::capture::Captures;

/// Open ends of an interface, for one worker.
#[derive(Default)]
pub struct Attachment {
    /// Port's queue; none for a VLAN, whose frames use the parent's port.
    pub line: Option<Box<dyn Line>>,
    /// Punt path: frames delivered to Linux, and frames that Linux sends.
    pub punt: Option<Box<dyn Line>>,
}

/// State of an interface in a worker.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) ends: Attachment,
    /// Frames that the port did not take yet: a short queue behind the egress, which offers no more until this is empty.
    out: Batch,
    /// True if the device has not taken all frames offered.
    is_blocked: bool,
    /// Frames that Linux did not take yet.
    in_: Batch,
    counts: LinkCounts,
    vlans: Vlans,
    failed: Option<PortError>,
}

/// Counters of a port's VLANs, whose frames have no port of their own.
#[derive(Default)]
struct Vlans {
    /// Outer and inner identifier, and the place in `counts`.
    ids: Vec<(u16, u16, PortId)>,
    counts: Vec<(String, LinkCounts)>,
    /// Places in `counts` and bytes of the frames that are being sent.
    sending: Vec<(Option<usize>, usize)>,
}

/// Counters of one worker for an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Frames received by the port.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Frames sent by the port.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames that were to be sent while there was no port, or that it had not taken when it went away.
    pub unsent: u64,
    /// Times that the device did not take all frames that it was given: the rest waits behind the egress.
    pub backpressure: u64,
    /// Frames given to Linux.
    pub delivered: u64,
    /// Frames that Linux did not take.
    pub undelivered: u64,
    /// Frames that Linux sent.
    pub originated: u64,
}

/// Result of opportunities to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offered {
    /// Frames sent.
    pub(super) sent: usize,
    /// Time at which the link is free for the next queued frame; none where nothing waits for the link.
    pub(super) until: Option<Nanos>,
}

/// An interface in a report.
#[derive(Clone, Debug, Default)]
pub struct LinkReport {
    /// Name of the interface.
    pub name: String,
    /// Counters of frames and bytes.
    pub counts: LinkCounts,
    /// Counters of the port's driver; none without a port.
    pub driver: Option<Statistics>,
}

impl Link {
    pub(super) fn new(name: &str) -> Link {
        Link {
            name: name.to_owned(),
            ends: Attachment::default(),
            out: Batch::new(),
            is_blocked: false,
            in_: Batch::new(),
            counts: LinkCounts::default(),
            vlans: Vlans::default(),
            failed: None,
        }
    }

    pub(super) fn report(&mut self) -> LinkReport {
        let driver = self.ends.line.as_mut().map(|line| line.statistics());
        let mut counts = self.counts;
        if let Some(driver) = &driver {
            counts.received_bytes += driver.received_bytes;
            counts.sent_bytes += driver.sent_bytes;
        }
        LinkReport { name: self.name.clone(), counts, driver }
    }

    /// Returns the counters of the port's VLANs, by name.
    pub(super) fn vlans(&self) -> &[(String, LinkCounts)] {
        &self.vlans.counts
    }

    /// Switches to other tables, with this interface at index `place`; counters of VLANs stay with their names.
    pub(super) fn carry(&mut self, tables: &Tables, place: usize) {
        let before = std::mem::take(&mut self.vlans.counts);
        let vlans = tables.interfaces.get(place).map_or(&[][..], |port| &port.vlans);
        self.vlans.ids.clear();
        self.vlans.sending.reserve(BATCH);
        for (outer, inner, id) in vlans {
            let Some(interface) = tables.interface(*id) else { continue };
            let counts = before.iter().find(|(name, _)| *name == interface.name).map(|(_, counts)| *counts);
            self.vlans.ids.push((*outer, *inner, PortId(self.vlans.counts.len() as u16)));
            self.vlans.counts.push((interface.name.clone(), counts.unwrap_or_default()));
        }
    }

    /// Receives from the port. Returns the number of frames.
    pub(super) fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(line) = &mut self.ends.line else { return 0 };
        match line.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.received += count as u64;
                if !self.vlans.ids.is_empty() {
                    self.vlans.receive(batch);
                }
                count
            }
            Ok(Received::Nothing | Received::End) => 0,
            Err(error) => {
                self.lose(error, pool);
                0
            }
        }
    }

    /// Receives frames that Linux sends by the interface. Returns their number.
    pub(super) fn receive_punted(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(punt) = &mut self.ends.punt else { return 0 };
        match punt.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.originated += count as u64;
                count
            }
            Ok(Received::Nothing | Received::End) => 0,
            Err(_) => {
                // It goes with its interface, whose port will say so.
                self.ends.punt = None;
                0
            }
        }
    }

    /// Takes the port's error since the last call, if any.
    pub(super) fn failure(&mut self) -> Option<PortError> {
        self.failed.take()
    }

    /// Punts a frame to Linux as received by this interface, without the tags of its VLAN.
    pub(super) fn punt(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
        let extra = 4 * tags.as_slice().len();
        if extra > 0 && frame.len() >= 12 + extra {
            frame.bytes_mut().copy_within(..12, extra);
            frame.pull_front(extra);
        }
        if self.ends.punt.is_none() {
            self.counts.undelivered += 1;
            return pool.put(frame);
        }
        if self.in_.is_full() {
            self.flush(pool);
        }
        if let Err(frame) = self.in_.push(frame) {
            self.counts.undelivered += 1;
            pool.put(frame);
        }
    }

    /// Sends a frame of Linux unchanged but for the tags of its VLAN, which are added.
    pub(super) fn send_as_is(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
        let extra = 4 * tags.as_slice().len();
        if extra > 0 && frame.push_front(extra).is_some() {
            let bytes = frame.bytes_mut();
            bytes.copy_within(extra..extra + 12, 0);
            for (tag, at) in tags.as_slice().iter().zip((12..).step_by(4)) {
                bytes[at..at + 2].copy_from_slice(&tag.tpid.0.to_be_bytes());
                bytes[at + 2..at + 4].copy_from_slice(&tag.tci.to_be_bytes());
            }
        }
        if self.out.is_full() {
            self.flush(pool);
        }
        if let Err(frame) = self.out.push(frame) {
            self.counts.unsent += 1;
            pool.put(frame);
        }
    }

    /// Offers the egress of the port opportunities to send at `now`, as many as it has frames for and the device takes.
    pub(super) fn send(
        &mut self,
        shard: &mut Shard,
        port: PortId,
        now: Nanos,
        pool: &mut Pool,
        captures: &mut Captures,
    ) -> Offered {
        let mut offered = Offered { sent: 0, until: None };
        let is_captured = !captures.is_empty();
        if self.is_blocked {
            offered.sent = self.transmit(pool);
        }
        if self.is_blocked {
            return offered;
        }
        loop {
            let mut is_over = false;
            while !self.out.is_full() && !is_over {
                match shard.next(port, now) {
                    Next::Frame(frame, _) => {
                        if is_captured {
                            captures.departed(&frame, shard);
                        }
                        if let Err(frame) = self.out.push(frame) {
                            pool.put(frame);
                        }
                    }
                    Next::Wait(until) => (offered.until, is_over) = (Some(until), true),
                    Next::Empty => is_over = true,
                }
            }
            if self.out.is_empty() {
                return offered;
            }
            offered.sent += self.transmit(pool);
            if is_over || self.is_blocked {
                return offered;
            }
        }
    }

    /// Sends frames left over from before, and delivers frames to Linux. Returns the number of frames moved.
    pub(super) fn flush(&mut self, pool: &mut Pool) -> usize {
        let mut moved = self.transmit(pool);
        if let Some(punt) = self.ends.punt.as_mut().filter(|_| !self.in_.is_empty()) {
            let waiting = self.in_.len();
            let _ = punt.transmit(&mut self.in_, pool);
            let taken = waiting - self.in_.len();
            self.counts.delivered += taken as u64;
            moved += taken;
            // Linux's queue is full: what it cannot take now it would have dropped as well.
            self.counts.undelivered += self.in_.len() as u64;
        }
        while let Some(frame) = self.in_.pop() {
            pool.put(frame);
        }
        moved
    }

    fn transmit(&mut self, pool: &mut Pool) -> usize {
        if self.out.is_empty() {
            return 0;
        }
        let waiting = self.out.len();
        if !self.vlans.ids.is_empty() {
            self.vlans.note(&self.out);
        }
        let failed = match &mut self.ends.line {
            Some(line) => line.transmit(&mut self.out, pool).err(),
            None => {
                self.discard(pool);
                return 0;
            }
        };
        let sent = waiting - self.out.len();
        self.counts.sent += sent as u64;
        self.is_blocked = !self.out.is_empty();
        self.counts.backpressure += u64::from(self.is_blocked);
        self.vlans.send(sent);
        if let Some(error) = failed {
            self.lose(error, pool);
        }
        sent
    }

    /// Closes a failed port.
    fn lose(&mut self, error: PortError, pool: &mut Pool) {
        self.close();
        self.failed = Some(error);
        self.discard(pool);
    }

    /// Attaches other ends. Frames that the previous ends did not take are discarded.
    pub(super) fn attach(&mut self, ends: Attachment, pool: &mut Pool) {
        self.close();
        self.ends = ends;
        self.discard(pool);
    }

    /// Closes the line, and keeps its driver's byte counters.
    fn close(&mut self) {
        if let Some(mut line) = self.ends.line.take() {
            let counted = line.statistics();
            self.counts.received_bytes += counted.received_bytes;
            self.counts.sent_bytes += counted.sent_bytes;
        }
    }

    fn discard(&mut self, pool: &mut Pool) {
        self.counts.unsent += self.out.len() as u64;
        self.is_blocked = false;
        while let Some(frame) = self.out.pop() {
            pool.put(frame);
        }
    }
}

impl Vlans {
    /// The VLAN of a frame, as a place in the counts.
    fn of(&self, frame: &Frame) -> Option<usize> {
        let tags = ethernet::parse(frame.bytes()).ok()?.tags;
        if tags.as_slice().is_empty() {
            return None;
        }
        vlan(LOCAL, &self.ids, &tags).filter(|id| *id != LOCAL).map(|id| usize::from(id.0))
    }

    /// Notes frames that are about to be sent.
    fn note(&mut self, frames: &[Frame]) {
        self.sending.clear();
        for frame in frames {
            let noted = (self.of(frame), frame.len());
            self.sending.push(noted);
        }
    }

    /// Counts frames received.
    fn receive(&mut self, frames: &[Frame]) {
        for frame in frames {
            if let Some((_, counts)) = self.of(frame).and_then(|place| self.counts.get_mut(place)) {
                counts.received += 1;
                counts.received_bytes += frame.len() as u64;
            }
        }
    }

    /// Counts the first `sent` of the frames that were noted.
    fn send(&mut self, sent: usize) {
        for (place, bytes) in self.sending.drain(..).take(sent) {
            if let Some((_, counts)) = place.and_then(|place| self.counts.get_mut(place)) {
                counts.sent += 1;
                counts.sent_bytes += bytes as u64;
            }
        }
    }
}
