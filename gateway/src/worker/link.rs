//! Links: the interfaces of a worker, each with the worker's queue of the port, and the punt path to Linux's own stack.

use std::mem::take;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use dataplane::Shard;
use dataplane::egress::Next;
use dataplane::hop::Delivery;
use dataplane::stage::proxy::announcement;
use dataplane::tables::{Address, LOCAL, Tables, is_linux};
use dataplane::verdict::Verdict;
use ports::{FastPort, Line};
use wire::segment::{Plan, Segments};
use wire::vlan::Tags;
use wire::{BATCH, Batch, Frame, Nanos, Pool, PortError, PortId, Received};

use super::capture::Captures;
use super::fast_path::{FastPorts, Lane};
use super::report::{LinkCounts, LinkReport};

mod segment;
mod vlan;

pub(super) use segment::Group;
use segment::{Intake, Offering, Progress, frames};
use vlan::Vlans;

/// Open ends of an interface, for one worker.
#[derive(Default)]
pub struct Attachment {
    /// Port's queue; none for a VLAN, whose frames use the parent's port.
    pub line: Option<Box<dyn Line>>,
    /// Punt path: frames delivered to Linux, and frames that Linux sends.
    pub punt: Option<Box<dyn Line>>,
    /// Interface whose packets may go by the fast path.
    pub fast: Option<FastPort>,
}

/// Links of all interfaces, in the order of the tables.
pub(super) struct Links(Vec<Link>);

/// State of an interface in a worker.
struct Link {
    name: String,
    ends: Attachment,
    /// Frames that the port did not take yet: a short queue behind the egress, which offers no more until this is empty.
    out: Batch,
    /// Frames in front of those that the egress offers, where a packet of many segments is cut.
    offering: Offering,
    /// True if the device has not taken all frames offered.
    is_blocked: bool,
    /// Frames of the port, and of Linux, that are processed next.
    intakes: [Intake; 2],
    /// Frames that Linux did not take yet.
    in_: Batch,
    counts: LinkCounts,
    vlans: Vlans,
    failed: Option<PortError>,
    /// Number of receive calls left until the port counts as drained, whatever else arrives.
    to_drain: u32,
}

/// Receive calls that take what the largest ring of received frames holds: of AF_PACKET with one worker, 1,024 and 16,384 frames.
const MOST_TO_DRAIN: u32 = (1_024 + 16_384) / BATCH as u32;

/// Origin of frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Its port.
    Port = 0,
    /// Linux's own stack.
    Linux = 1,
}

/// Result of opportunities to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offered {
    /// Frames sent.
    pub(super) sent: usize,
    /// Time at which the link is free for the next queued frame; none where nothing waits for the link.
    pub(super) until: Option<Nanos>,
    /// Room of the devices.
    pub(super) device: Device,
}

/// Room of a device for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// All frames offered have been taken.
    Free,
    /// Frames wait until the device has room.
    Full,
}

impl Offered {
    const NOTHING: Offered = Offered { sent: 0, until: None, device: Device::Free };
}

impl Links {
    /// Creates the links of the interfaces of these tables, without ports.
    pub(super) fn new(tables: &Tables) -> Links {
        let mut links = Links(Vec::new());
        links.0.extend(tables.interfaces.iter().map(|interface| Link::new(&interface.name)));
        links.carry(tables);
        links
    }

    /// Switches to other tables: links stay with their names; those of interfaces that have gone release their ports.
    pub(super) fn follow(&mut self, tables: &Tables, pool: &mut Pool) {
        let mut links = take(&mut self.0);
        let interfaces = tables.interfaces.iter();
        self.0.extend(interfaces.map(|interface| {
            let place = links.iter().position(|link| link.name == interface.name);
            place.map_or_else(|| Link::new(&interface.name), |place| links.swap_remove(place))
        }));
        self.carry(tables);
        for link in &mut links {
            link.attach(Attachment::default(), pool);
            link.intakes.iter_mut().for_each(|intake| intake.discard(pool));
        }
    }

    /// Updates the VLANs of each port.
    fn carry(&mut self, tables: &Tables) {
        for (link, port) in self.0.iter_mut().zip(&tables.interfaces) {
            link.vlans.follow(&port.vlans, tables);
        }
    }

    /// Attaches a port to an interface, in place of the one attached.
    pub(super) fn attach(&mut self, interface: &str, ends: Attachment, pool: &mut Pool) {
        if let Some(link) = self.0.iter_mut().find(|link| link.name == interface) {
            link.attach(ends, pool);
        }
    }

    /// Places of the links.
    pub(super) fn places(&self) -> Range<usize> {
        0..self.0.len()
    }

    /// Receives from the port at `place`.
    pub(super) fn receive(&mut self, place: usize, batch: &mut Batch, pool: &mut Pool) -> usize {
        let link = &mut self.0[place];
        let received = link.receive(batch, pool);
        link.to_drain = if received == 0 { 0 } else { link.to_drain.saturating_sub(1) };
        received
    }

    /// Begins to drain the ports.
    pub(super) fn drain(&mut self) {
        self.0.iter_mut().for_each(|link| link.to_drain = MOST_TO_DRAIN);
    }

    /// True once everything that had arrived by the ports before [`Links::drain`] has been processed: each has been found empty, or has given as
    /// many frames as its ring holds.
    pub(super) fn are_drained(&self) -> bool {
        self.0.iter().all(|link| link.to_drain == 0 && link.intakes[Origin::Port as usize].is_empty())
    }

    /// Frames of an interface that are processed next.
    #[inline(always)]
    fn intake(&mut self, place: usize, origin: Origin) -> &mut Intake {
        &mut self.0[place].intakes[origin as usize]
    }

    /// True if frames of the interface at `place` have been received that are not processed yet.
    #[inline(always)]
    pub(super) fn has_waiting(&self, place: usize, origin: Origin) -> bool {
        !self.0[place].intakes[origin as usize].is_empty()
    }

    /// Keeps what was received for [`Links::next_waiting`], where packets of many segments are among it.
    pub(super) fn keep(&mut self, place: usize, origin: Origin, batch: &mut Batch) {
        self.intake(place, origin).fill(batch);
    }

    /// Takes the frames of an interface that are processed next.
    pub(super) fn next_waiting(
        &mut self,
        place: usize,
        origin: Origin,
        batch: &mut Batch,
        pool: &mut Pool,
    ) -> Group {
        self.intake(place, origin).next(batch, pool)
    }

    /// Has a packet of many segments cut that [`Links::next_waiting`] has given: its segments are processed next.
    pub(super) fn cut(&mut self, place: usize, origin: Origin, frame: Frame, pool: &mut Pool) {
        self.intake(place, origin).cut(frame, pool);
    }

    /// Takes the error of the port at `place` since the last call, if any, with the name of its interface.
    pub(super) fn failure(&mut self, place: usize) -> Option<(String, PortError)> {
        let link = &mut self.0[place];
        link.failed.take().map(|error| (link.name.clone(), error))
    }

    /// Receives frames that Linux sends by the interface at `place`. Returns their number.
    pub(super) fn receive_punted(&mut self, place: usize, batch: &mut Batch, pool: &mut Pool) -> usize {
        self.0[place].receive_punted(batch, pool)
    }

    /// Delivers an ended frame to Linux, or returns it to the pool. Frames of Linux that concern a link alone are sent unchanged by
    /// the interface by which Linux sent them.
    pub(super) fn deliver(&mut self, frame: Frame, tables: &Tables, pool: &mut Pool) {
        let is_for_linux = match Verdict::of_fate(frame.meta.fate) {
            Some(Verdict::Delivered) => true,
            // The answer to what Linux itself has sent.
            Some(Verdict::Answered(_)) => frame.meta.egress == LOCAL,
            _ => false,
        };
        let ingress = usize::from(frame.meta.ingress.0);
        let place = if is_linux(frame.meta.ingress) {
            tables.interface_numbered(frame.meta.number).map(|id| usize::from(id.0))
        } else {
            Some(ingress)
        };
        let interface = place.and_then(|place| tables.interfaces.get(place));
        let (Some(place), Some(interface), true) = (place, interface, is_for_linux) else {
            return pool.put(frame);
        };
        match Delivery::of(&frame.meta) {
            Delivery::Itself => self.0[place].punt(frame, &interface.tags, pool),
            // Nobody on a link of PPP listens to groups.
            Delivery::Link if interface.ppp.is_some() => {
                self.0[place].counts.unsent += 1;
                pool.put(frame);
            }
            Delivery::Link => {
                let root = usize::from(interface.root.0);
                self.0[root].send_as_is(frame, &interface.tags, pool);
            }
        }
    }

    /// Announces addresses of the gateway on the link of an interface, as long as the pool has frames.
    pub(super) fn announce(
        &mut self,
        interface: &str,
        addresses: &[Address],
        tables: &Tables,
        pool: &mut Pool,
    ) {
        let found = tables.interface_named(interface).and_then(|id| tables.interface(id));
        let Some(interface) = found else { return };
        let root = usize::from(interface.root.0);
        for address in addresses {
            let Some(mut frame) = pool.take() else { return };
            if frame.fill(&announcement(*address, interface.mac)) {
                self.0[root].send_as_is(frame, &interface.tags, pool);
            } else {
                pool.put(frame);
            }
        }
    }

    /// Offers each port opportunities to send, and delivers frames to Linux.
    pub(super) fn send(
        &mut self,
        shard: &mut Shard,
        now: Nanos,
        pool: &mut Pool,
        captures: &mut Captures,
    ) -> Offered {
        let mut all = Offered::NOTHING;
        // A VLAN's frames wait before its parent's port.
        for (port, link) in (0..).map(PortId).zip(&mut self.0) {
            let offered = link.send(shard, port, now, pool, captures);
            all.sent += offered.sent;
            all.until = all.until.into_iter().chain(offered.until).min();
        }
        for link in &mut self.0 {
            all.sent += link.flush(pool);
            if link.is_blocked {
                all.device = Device::Full;
            }
        }
        all
    }

    /// Interfaces whose packets may go by the fast path, in the order of the tables.
    pub(super) fn fast(&self) -> impl Iterator<Item = Option<FastPort>> {
        self.0.iter().map(|link| link.ends.fast)
    }

    /// VLANs of these interfaces, by name.
    pub(super) fn fast_vlans(&self) -> impl Iterator<Item = (Lane, &str)> {
        self.0.iter().filter_map(|link| Some((link, link.ends.fast?.ifindex))).flat_map(|(link, index)| {
            link.vlans.single().map(move |(vlan, name)| (Lane { index, vlan }, name))
        })
    }

    /// True if something that was received is not decided on yet, or waits for a device.
    pub(super) fn has_unsent(&self) -> bool {
        let waits = |link: &Link| {
            let is_cut = !link.offering.is_empty() || link.intakes.iter().any(|intake| !intake.is_empty());
            let is_in_kernel = link.ends.line.as_ref().is_some_and(|line| line.unsent() > 0);
            link.is_blocked || is_cut || !link.out.is_empty() || is_in_kernel
        };
        self.0.iter().any(waits)
    }

    /// Marks what was received so far, for [`Links::settled`].
    pub(super) fn mark(&mut self) {
        self.0.iter_mut().filter_map(|link| link.ends.line.as_mut()).for_each(|line| line.mark());
    }

    /// Tells the fast path that what was received before the last mark has been sent on.
    pub(super) fn settled(&mut self) {
        self.0.iter_mut().filter_map(|link| link.ends.line.as_mut()).for_each(|line| line.settled());
    }

    /// File descriptors that are readable when a frame arrives.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(|link| link.ends.line.iter().chain(&link.ends.punt)).map(|line| line.fd())
    }

    /// Reports all interfaces. The frames of a VLAN count with the VLAN's name, though they use its parent's port.
    pub(super) fn report(&mut self, fast: Option<&FastPorts>) -> Vec<LinkReport> {
        let mut reports: Vec<LinkReport> = self.0.iter_mut().map(|link| link.report(fast)).collect();
        let mut add = |name: &str, counts: &LinkCounts| {
            if let Some(report) = reports.iter_mut().find(|report| report.name == name) {
                report.counts.add_traffic(counts);
            }
        };
        for (name, counts) in self.0.iter().flat_map(|link| link.vlans.counts()) {
            add(name, counts);
        }
        if let Some(fast) = fast {
            // What the kernel carried by a VLAN is in the report of its parent as such.
            self.fast_vlans().for_each(|(lane, name)| add(name, &fast.counts(lane)));
        }
        reports
    }
}

impl Link {
    fn new(name: &str) -> Link {
        Link {
            name: name.to_owned(),
            ends: Attachment::default(),
            out: Batch::new(),
            offering: Offering::default(),
            is_blocked: false,
            intakes: Default::default(),
            in_: Batch::new(),
            counts: LinkCounts::default(),
            vlans: Vlans::default(),
            failed: None,
            to_drain: 0,
        }
    }

    fn report(&mut self, fast: Option<&FastPorts>) -> LinkReport {
        let driver = self.ends.line.as_mut().map(|line| line.statistics());
        let mut counts = self.counts;
        if let Some(driver) = &driver {
            counts.received_bytes += driver.received_bytes;
            counts.sent_bytes += driver.sent_bytes;
        }
        let whole = |fast: FastPort| Lane { index: fast.ifindex, vlan: 0 };
        let fast =
            fast.zip(self.ends.fast).map(|(ports, fast)| ports.counts(whole(fast))).unwrap_or_default();
        counts.add_traffic(&fast);
        LinkReport { name: self.name.clone(), counts, fast, driver }
    }

    /// Receives from the port. Returns the number of frames.
    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(line) = &mut self.ends.line else { return 0 };
        match line.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.received += frames(batch);
                if !self.vlans.is_empty() {
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
    fn receive_punted(&mut self, batch: &mut Batch, pool: &mut Pool) -> usize {
        let Some(punt) = &mut self.ends.punt else { return 0 };
        match punt.receive(batch, pool) {
            Ok(Received::Frames(count)) => {
                self.counts.originated += frames(batch);
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

    /// Punts a frame to Linux as received by this interface, without the tags of its VLAN.
    fn punt(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
        let extra = 4 * tags.as_slice().len();
        if extra > 0 && frame.len() >= 12 + extra {
            frame.bytes_mut().copy_within(..12, extra);
            frame.pull_front(extra);
        }
        let count = Segments::of(&frame).count;
        if self.ends.punt.is_none() {
            self.counts.undelivered += count;
            return pool.put(frame);
        }
        if self.in_.is_full() {
            self.flush(pool);
        }
        if let Err(frame) = self.in_.push(frame) {
            self.counts.undelivered += count;
            pool.put(frame);
        }
    }

    /// Sends a frame of Linux unchanged but for the tags of its VLAN, which are added.
    fn send_as_is(&mut self, mut frame: Frame, tags: &Tags, pool: &mut Pool) {
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
    fn send(
        &mut self,
        shard: &mut Shard,
        port: PortId,
        now: Nanos,
        pool: &mut Pool,
        captures: &mut Captures,
    ) -> Offered {
        let mut offered = Offered::NOTHING;
        let is_captured = !captures.is_empty();
        if self.is_blocked {
            self.take_back(pool);
            offered.sent = self.transmit(pool);
        }
        if self.is_blocked {
            return offered;
        }
        loop {
            let mut is_over = false;
            let has_port = self.ends.line.is_some();
            if has_port && !is_captured && self.offering.is_empty() {
                shard.dequeue_burst(port, now, &mut self.out);
            }
            while !self.out.is_full() && !is_over {
                if !self.offering.is_empty() && self.fill_out(pool) == Progress::More {
                    // There is no room in the batch, or no slot: those of frames that are sent now come back.
                    if self.out.is_empty() {
                        offered.until = Some(now);
                    }
                    is_over = !self.out.is_full();
                    continue;
                }
                // Without a port nothing departs: what waits for it is lost, and is not to count as forwarded.
                let next = if has_port { shard.next(port, now) } else { shard.next_in_vain(port, now) };
                match next {
                    Next::Frame(frame, _) => {
                        if is_captured {
                            captures.departed(&frame, shard);
                        }
                        if frame.is_big() {
                            self.offer_whole(frame, pool);
                        } else if let Err(frame) = self.out.push(frame) {
                            pool.put(frame);
                        }
                    }
                    Next::Dropped(frame, ..) => {
                        if is_captured {
                            captures.lost(&frame, shard);
                        }
                        pool.put(frame);
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
                if !self.offering.is_empty() && !self.is_blocked {
                    offered.until = Some(now);
                }
                return offered;
            }
        }
    }

    /// Offers the port a packet of many segments.
    #[cold]
    fn offer_whole(&mut self, frame: Frame, pool: &mut Pool) {
        let line = &mut self.ends.line;
        let mut takes = |plan: &Plan| line.as_mut().is_some_and(|line| line.takes_whole(plan));
        self.offering.offer(frame, &mut self.out, &mut takes, pool);
    }

    /// Fills the short queue with segments of a packet that is cut, and what is behind it.
    #[cold]
    fn fill_out(&mut self, pool: &mut Pool) -> Progress {
        let line = &mut self.ends.line;
        let mut takes = |plan: &Plan| line.as_mut().is_some_and(|line| line.takes_whole(plan));
        self.offering.fill(&mut self.out, &mut takes, pool)
    }

    /// Has the packet at the front of the short queue cut, if the port takes it whole no more.
    fn take_back(&mut self, pool: &mut Pool) {
        if !self.out.first().is_some_and(Frame::is_big) {
            return;
        }
        let line = &mut self.ends.line;
        let mut takes = |plan: &Plan| line.as_mut().is_some_and(|line| line.takes_whole(plan));
        self.offering.take_back(&mut self.out, &mut takes, pool);
        let _ = self.fill_out(pool);
    }

    /// Sends frames left over from before, and delivers frames to Linux. Returns the number of frames moved.
    fn flush(&mut self, pool: &mut Pool) -> usize {
        let mut moved = self.transmit(pool);
        if let Some(punt) = self.ends.punt.as_mut().filter(|_| !self.in_.is_empty()) {
            let waiting = frames(&self.in_);
            let _ = punt.transmit(&mut self.in_, pool);
            let left = frames(&self.in_);
            self.counts.delivered += waiting - left;
            moved += (waiting - left) as usize;
            // Linux's queue is full: what it cannot take now it would have dropped as well.
            self.counts.undelivered += left;
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
        let (waiting, all) = (self.out.len(), frames(&self.out));
        if !self.vlans.is_empty() {
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
        self.counts.sent += all - frames(&self.out);
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
    fn attach(&mut self, ends: Attachment, pool: &mut Pool) {
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
        self.counts.unsent += frames(&self.out) + self.offering.discard(pool);
        self.is_blocked = false;
        while let Some(frame) = self.out.pop() {
            pool.put(frame);
        }
    }
}
