//! Counters by verdict, reason, rule, translation and traffic class. Every frame is counted once.
//!
//! Across a reload the counters of a rule or a translation stay with its name; counters of names that are gone are kept
//! in sums. A name that comes back begins at zero.

use wire::segment::Segments;
use wire::{Frame, Meta};

use crate::fast_path::Account;
use crate::tables::Tables;
use crate::verdict::{Reason, Verdict};

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of frames.
    pub frames: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Traffic {
    /// Counts one frame.
    #[inline(always)]
    pub fn count(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// One frame, with the bytes of its IP packet.
    #[inline(always)]
    fn of_packet(frame: &Frame) -> Traffic {
        // What is dropped while it is parsed may have no end yet.
        Traffic { frames: 1, bytes: frame.meta.end.saturating_sub(frame.meta.network).into() }
    }

    /// Adds what others have counted.
    #[inline]
    pub fn add(&mut self, other: &Traffic) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    /// Counts frames as they are.
    #[inline(always)]
    pub fn count_all(&mut self, frames: &[Frame]) {
        self.frames += frames.len() as u64;
        self.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    }
}

/// The counters of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// All that was received; bytes from the link-layer header on.
    pub received: Traffic,
    /// Frames forwarded that have departed.
    forwarded: u64,
    /// Frames delivered.
    delivered: u64,
    /// Answered frames by reason.
    answered: [u64; Reason::COUNT],
    /// Dropped frames by reason.
    dropped: [u64; Reason::COUNT],
    /// Frames held now.
    pub held: u64,
    /// Frames that are copies of packets to multicast groups, beyond those received.
    pub copied: u64,
    /// Frames ever queued before a port, without further fragments.
    entered: u64,
    /// Frames of `entered` that have left the queue without being forwarded: answers sent, and drops from a queue.
    entered_otherwise: u64,
    /// Frames handed off to other workers.
    pub given: u64,
    /// Frames handed off by other workers, which received them.
    pub taken: u64,
    /// Frames handed over to the second gateway.
    pub handed_over: u64,
    /// Frames that a rule decided, and those of flows that it let in; bytes of IP packets.
    pub rules: Vec<Traffic>,
    /// Frames translated, by pair of translations ([`crate::tables::NatTables::pair`]); bytes of IP packets.
    pub nats: Vec<Traffic>,
    /// Packets of each traffic class.
    pub classes: Vec<ClassTraffic>,
    /// Frames sent beyond those received: further fragments of packets, segments of proxied handshakes, keepalives of tunnels, control
    /// packets of PPP sessions.
    pub parts_sent: u64,
    /// Such frames that found the queue full.
    pub parts_lost: u64,
    /// Flows ended to make room for others.
    pub evicted: u64,
    /// Flows refused or packets dropped for want of ports, by source translation.
    pub nat_refused: Vec<u64>,
    /// Flows ended because other tables do not let them in, or do not translate them as they were.
    pub revoked: u64,
    /// Datagrams of connections with a helper that passed as they were, because they were not understood, in fragments, or would have become
    /// too long.
    pub helper_unread: u64,
    /// Sums of the counters of names that the tables no longer have.
    pub gone: Gone,
}

/// Packets of a traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTraffic {
    /// All that was classified; bytes of IP packets.
    pub traffic: Traffic,
    /// Packets that were metered, by colour.
    pub colours: [u64; 3],
}

impl ClassTraffic {
    /// Adds what others have counted.
    pub fn add(&mut self, other: &ClassTraffic) {
        self.traffic.add(&other.traffic);
        for (sum, count) in self.colours.iter_mut().zip(other.colours) {
            *sum += count;
        }
    }
}

/// Counters of rules, translations and traffic classes that the tables no longer have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// [`Counters::rules`].
    pub rules: Traffic,
    /// [`Counters::nats`]: frames of pairs of which neither translation is left.
    pub nats: Traffic,
    /// [`Counters::nat_refused`].
    pub nat_refused: u64,
    /// [`Counters::classes`].
    pub classes: ClassTraffic,
}

impl Counters {
    /// All zero.
    pub fn new(tables: &Tables) -> Counters {
        Counters {
            received: Traffic::default(),
            forwarded: 0,
            delivered: 0,
            answered: [0; Reason::COUNT],
            dropped: [0; Reason::COUNT],
            held: 0,
            entered: 0,
            entered_otherwise: 0,
            given: 0,
            taken: 0,
            handed_over: 0,
            copied: 0,
            rules: vec![Traffic::default(); tables.filter.rules.len()],
            nats: vec![Traffic::default(); tables.nat.pairs()],
            classes: vec![ClassTraffic::default(); tables.classes.list.len()],
            parts_sent: 0,
            parts_lost: 0,
            evicted: 0,
            nat_refused: vec![0; tables.nat.sources.len()],
            revoked: 0,
            helper_unread: 0,
            gone: Gone::default(),
        }
    }

    /// Counts a frame that departs: its verdict is final.
    #[inline(always)]
    pub(crate) fn count_departed(&mut self, frame: &Frame) {
        const FORWARDED: u16 = Verdict::Forwarded.to_fate();
        match frame.meta.fate {
            FORWARDED if frame.is_big() => self.forwarded += Segments::of(frame).count,
            FORWARDED => self.forwarded += 1,
            // A further fragment of a packet has none.
            0 => self.parts_sent += 1,
            fate => {
                self.entered_otherwise += 1;
                self.count_verdict(fate);
            }
        }
    }

    /// Counts a frame that was queued and is dropped instead: that is its fate now.
    pub(crate) fn count_lost(&mut self, frame: &mut Frame, reason: Reason) {
        let fate = std::mem::replace(&mut frame.meta.fate, Verdict::Dropped(reason).to_fate());
        if fate == 0 {
            self.parts_lost += 1;
            return;
        }
        let count = Segments::of(frame).count;
        self.entered_otherwise += count;
        self.dropped[reason as usize] += count;
    }

    /// Counts the decisions on the segments of a packet beside the frame that stands for all; `headers` are the bytes of the IP and
    /// transport headers of each.
    pub(crate) fn count_further_decisions(&mut self, further: u64, headers: usize, whole: &Frame) {
        let more = Traffic { frames: further, bytes: further * headers as u64 };
        self.add_decision(whole, &more);
        self.add_class(whole.meta.class, &more);
    }

    /// Counts the verdicts of the segments of a packet beside the frame that stands for all: queued, or ended with `fate`.
    pub(crate) fn count_further_verdicts(&mut self, further: u64, fate: Option<u16>) {
        match fate.and_then(Verdict::of_fate) {
            None => self.entered += further,
            Some(Verdict::Delivered) => self.delivered += further,
            Some(Verdict::Dropped(reason)) => self.dropped[reason as usize] += further,
            Some(Verdict::Answered(reason)) => self.answered[reason as usize] += further,
            Some(Verdict::Forwarded) => self.forwarded += further,
            Some(Verdict::Held(_)) => self.held += further,
        }
    }

    /// Counts packets that the kernel has carried: received and forwarded. Those of tables before these, whose places are others now,
    /// count in the sums of names that are gone.
    pub(crate) fn count_carried(&mut self, account: &Account, epoch: u16) {
        let tag = &account.tag;
        for (carried, class) in
            account.carried.iter().zip(tag.classes).filter(|(carried, _)| carried.packets > 0)
        {
            self.received.add(&Traffic { frames: carried.packets, bytes: carried.frame_bytes });
            self.entered += carried.packets;
            self.forwarded += carried.packets;
            let packets = Traffic { frames: carried.packets, bytes: carried.packet_bytes };
            if tag.epoch == epoch {
                self.add_rule(tag.rule, tag.nat, &packets);
                self.add_class(class, &packets);
                continue;
            }
            if tag.rule != Meta::NO_RULE {
                self.gone.rules.add(&packets);
            }
            if tag.nat != 0 {
                self.gone.nats.add(&packets);
            }
            if class != 0 {
                self.gone.classes.traffic.add(&packets);
            }
        }
    }

    /// Counts a frame whose handoff to another worker failed: dropped.
    pub(crate) fn count_not_carried(&mut self, frame: &mut Frame) {
        self.given = self.given.saturating_sub(1);
        frame.meta.fate = Verdict::Dropped(Reason::HandoffFull).to_fate();
        self.count(frame);
    }

    /// Counts a frame that the link to the second gateway has not taken: dropped.
    pub(crate) fn count_not_handed_over(&mut self, frame: &mut Frame) {
        self.handed_over = self.handed_over.saturating_sub(1);
        frame.meta.fate = Verdict::Dropped(Reason::PeerLinkFull).to_fate();
        self.count(frame);
    }

    /// Counts a frame that another worker has handed off and that could not be taken in.
    pub(crate) fn count_not_taken(&mut self, reason: Reason) {
        self.taken += 1;
        self.dropped[reason as usize] += 1;
    }

    /// Counts a frame that was queued and has been handed off to the worker that serves its tree, with its verdict to come.
    pub(crate) fn count_queue_given(&mut self, fate: u16) {
        // A further fragment of a packet is none of those received.
        if fate != 0 {
            self.entered_otherwise += 1;
            self.given += 1;
        }
    }

    /// Counts a frame that another worker has decided on, and handed off to be queued here.
    pub(crate) fn count_queue_taken(&mut self, fate: u16) {
        if fate != 0 {
            self.taken += 1;
            self.entered += 1;
        }
    }

    /// Counts the final verdict of a frame that ends here, and its rule and translations.
    #[inline(always)]
    pub fn count(&mut self, frame: &Frame) {
        self.count_verdict(frame.meta.fate);
        self.count_decision(frame);
    }

    /// Counts a frame that is queued, its rule and translations: nothing later changes them. Its verdict is counted at
    /// departure.
    #[inline(always)]
    pub(crate) fn count_queued(&mut self, frame: &Frame) {
        self.entered += 1;
        self.count_decision(frame);
    }

    #[inline(always)]
    fn count_verdict(&mut self, fate: u16) {
        let by_reason = match fate >> 8 {
            1 => return self.forwarded += 1,
            2 => return self.delivered += 1,
            3 => &mut self.answered,
            4 => &mut self.dropped,
            _ => return,
        };
        if let Some(count) = by_reason.get_mut(usize::from(fate & 0xff)) {
            *count += 1;
        }
    }

    #[inline(always)]
    fn count_decision(&mut self, frame: &Frame) {
        // Where nothing was decided, nothing is to be counted.
        if frame.meta.rule != Meta::NO_RULE || frame.meta.nat != 0 {
            self.add_decision(frame, &Traffic::of_packet(frame));
        }
    }

    /// Adds traffic to the rule and the translations of a frame.
    #[inline(always)]
    fn add_decision(&mut self, frame: &Frame, traffic: &Traffic) {
        self.add_rule(frame.meta.rule, frame.meta.nat, traffic);
    }

    /// Adds traffic to a rule and a pair of translations, 0 for none.
    #[inline(always)]
    fn add_rule(&mut self, rule: u32, nat: u16, traffic: &Traffic) {
        if let Some(rule) = self.rules.get_mut(rule as usize) {
            rule.add(traffic);
        }
        if nat != 0 {
            if let Some(nat) = self.nats.get_mut(usize::from(nat)) {
                nat.add(traffic);
            }
        }
    }

    /// Counts a packet that was given a class, 0 for none.
    #[inline(always)]
    pub(crate) fn count_class(&mut self, frame: &Frame) {
        self.add_class(frame.meta.class, &Traffic::of_packet(frame));
    }

    /// Adds traffic to a class, 0 for none.
    #[inline(always)]
    fn add_class(&mut self, class: u16, traffic: &Traffic) {
        if let Some(class) = self.classes.get_mut(usize::from(class).wrapping_sub(1)) {
            class.traffic.add(traffic);
        }
    }

    /// Counts a packet that was given a colour.
    #[inline(always)]
    pub(crate) fn count_colour(&mut self, frame: &Frame) {
        if let Some(class) = self.classes.get_mut(usize::from(frame.meta.class).wrapping_sub(1)) {
            class.colours[usize::from(frame.meta.colour) % 3] += 1;
        }
    }

    /// Counts a frame dropped before it was taken in.
    pub(crate) fn count_refused(&mut self, bytes: usize, reason: Reason) {
        self.received.count(bytes);
        self.dropped[reason as usize] += 1;
    }

    /// Frames forwarded.
    pub fn forwarded(&self) -> u64 {
        self.forwarded
    }

    /// Frames queued now, without further fragments: decided, and not yet sent.
    pub fn queued(&self) -> u64 {
        self.entered - self.forwarded - self.entered_otherwise
    }

    /// Frames delivered to the gateway itself.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Frames answered, for all reasons.
    pub fn answered(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Frames dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Frames answered for a reason.
    pub fn answered_for(&self, reason: Reason) -> u64 {
        self.answered[reason as usize]
    }

    /// Frames dropped for a reason.
    pub fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Counts a copy for which there is no slot.
    #[cold]
    pub(crate) fn count_copy_lost(&mut self) {
        self.dropped[Reason::MulticastCopy as usize] += 1;
    }

    /// True if received + taken + copied = forwarded + delivered + answered + dropped + queued + held + given + handed over.
    pub fn are_conserved(&self) -> bool {
        let ended = self.forwarded() + self.delivered() + self.answered() + self.dropped();
        let elsewhere = self.given + self.handed_over;
        self.received.frames + self.taken + self.copied == ended + self.queued() + self.held + elsewhere
    }

    /// Traffic of each translation.
    pub fn nats(&self, tables: &Tables) -> NatTraffic {
        let mut sums = NatTraffic {
            destinations: vec![Traffic::default(); tables.nat.destinations.len()],
            sources: vec![Traffic::default(); tables.nat.sources.len()],
        };
        for (pair, traffic) in (0..=u16::MAX).zip(&self.nats).filter(|(_, traffic)| traffic.frames > 0) {
            let (destination, source) = tables.nat.places(pair);
            // Between IP versions one translation translates both, and counts a packet once.
            let source = source.filter(|_| {
                destination
                    .and_then(|place| tables.nat.destinations.get(place))
                    .is_none_or(|rule| rule.action.translator().is_none())
            });
            for (sums, place) in [(&mut sums.destinations, destination), (&mut sums.sources, source)] {
                if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
                    sum.add(traffic);
                }
            }
        }
        sums
    }
}

/// Traffic of each translation, by its place in its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatTraffic {
    /// Of destination translations.
    pub destinations: Vec<Traffic>,
    /// Of source translations.
    pub sources: Vec<Traffic>,
}
