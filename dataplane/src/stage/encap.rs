//! `encap`: does it leave by a tunnel?
//!
//! Puts a packet that leaves by a tunnel into ESP (RFC 4303), the outer header in front, and sends it on by the interface that leads to the
//! peer. The packet has been translated, and class and flow stay its own. A packet that is too large for the tunnel, and may be fragmented,
//! is fragmented before it is encrypted. Answers are encrypted as packets are.
//!
//! In transport mode the packet's own header stays in front, and what is behind it is encrypted: of whole packets between both ends, and of
//! no others. One that is too large is fragmented behind `encap`.
//!
//! Sequence numbers go in the order of frames. So `run` seals up to the first packet that may take numbers as it leaves (one to be
//! answered or fragmented, or with another beside it), and leaves those behind it for then. It plans several packets, numbers them, makes
//! room around them, has the library seal them together, and completes them.

use esp::format::{self, DontFragment, Layout};
use esp::{Packet, SPARE};
use policy::model::{DfBit, FragmentWhen};
use tally::{Op, Region, Tally};
use wire::esp::{Esn, Front, HEADER_LEN, HeaderMut, Mode, Udp};
use wire::ethernet;
use wire::header::Protocol;
use wire::meta::Fields;
use wire::{Family, Frame, PortId};

use super::queue::ANSWERED;
use super::{About, Cx, Packets, Stage, Step, cipher, fragment, header, link, selector, underlay};
use crate::flag;
use crate::hop::Hop;
use crate::sa::{Outbound, SA_BYTES, Way};
use crate::tables::{Tables, Tunnel};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

mod head;

use head::{Head, Varying};

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encap;

impl Stage for Encap {
    const ABOUT: About = About {
        name: "encap",
        asks: "Does it leave by a tunnel?",
        reads: Fields::SEEN
            .and(Fields::RECEIVED)
            .and(Fields::EGRESS)
            .and(Fields::HOP)
            .and(Fields::PARTS)
            .and(Fields::TUNNEL),
        writes: Fields::PACKET
            .and(Fields::HEADERS)
            .and(Fields::EGRESS)
            .and(Fields::HOP)
            .and(Fields::FLAGS)
            .and(Fields::PARTS)
            .and(Fields::TUNNEL),
    };

    fn packets(tables: &Tables) -> Packets {
        if tables.tunnels.is_empty() { Packets::None } else { Packets::Every }
    }

    #[inline(always)]
    fn takes(frame: &Frame) -> bool {
        match frame.meta.fate {
            0 => frame.meta.tunnel & tunnel::OUT != 0,
            fate => frame.meta.tunnel & tunnel::ANSWER_OUT != 0 && fate >> 8 == ANSWERED,
        }
    }

    #[inline(never)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // Which packet of the two leaves by a tunnel, and by which, 6.
        cx.tally.instructions(6);
        if frame.meta.fate == 0 && is_fragmented_before(frame, cx.tables) {
            return parts(frame, cx);
        }
        match seal(frame, cx) {
            Ok(()) => Step::Next,
            // An answer does not wait, and is not answered.
            Err(_) if frame.meta.fate != 0 => match Verdict::of_fate(frame.meta.fate) {
                Some(Verdict::Answered(reason)) => Step::Drop(reason),
                _ => Step::Next,
            },
            Err(reason) => Step::Drop(reason),
        }
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        let leaves_first = |frame: &Frame| {
            let has_parts = frame.meta.parts > 0 || frame.meta.flags & flag::CUT != 0;
            frame.meta.fate >> 8 == ANSWERED || Encap::takes(frame) && has_parts
        };
        let end = frames.iter().position(leaves_first).unwrap_or(frames.len());
        for group in frames[..end].chunks_mut(GROUP) {
            seal_together(group, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        // What is told, 117; a packet moved within its slot, 11; the sum of UDP across IPv6, 44. Fragments are made by the program of
        // `fragment`.
        172 + cipher::program(tables) + link::program(tables)
    }
}

/// True for a packet that is fragmented before it is encrypted: never in transport mode (RFC 4303, section 3.3.4).
fn is_fragmented_before(frame: &Frame, tables: &Tables) -> bool {
    let is_before = |tunnel: &Tunnel| tunnel.fragment == FragmentWhen::Before && tunnel.mode == Mode::Tunnel;
    frame.meta.flags & flag::CUT != 0 && tables.tunnel_at(frame.meta.egress).is_some_and(is_before)
}

/// Seals a packet that is queued behind another, where it leaves by a tunnel. False if it cannot leave.
pub(crate) fn part<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> bool {
    if frame.meta.tunnel & tunnel::OUT == 0 {
        return true;
    }
    seal(frame, cx).is_ok()
}

/// Fragments a packet for the tunnel, and seals each fragment.
#[cold]
fn parts<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
    let before = cx.shard.parts.len();
    match fragment::Fragment::step(frame, cx) {
        Step::Next => {}
        other => return other,
    }
    if let Err(reason) = seal(frame, cx) {
        return Step::Drop(reason);
    }
    if frame.meta.flags & flag::CUT != 0 {
        // Fragments of fragments are not made.
        return Step::Drop(Reason::PacketTooBig);
    }
    for place in before..cx.shard.parts.len() {
        // A frame is two words: what is moved is not the packet.
        let Some(mut part) = cx.shard.parts.remove(place) else { break };
        let sealed = seal(&mut part, cx);
        cx.shard.parts.insert(place, part);
        if let Err(reason) = sealed {
            return Step::Drop(reason);
        }
    }
    Step::Next
}

/// Packets that are sealed together, at most.
const GROUP: usize = 16;

/// Encrypts the frame's packet, and puts the outer header and that of the link in front.
fn seal<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
    let mut job = Job::plan(frame, cx)?;
    job.sequence = cx.shard.sas.admit(job.sa, job.layout.text.into(), frame.meta.received)?;
    job.lay_out(frame, cx)?;
    if let (Some(sa), Some(packet)) = (job.sa(cx), job.packet(frame)) {
        sa.transform.seal(packet);
    }
    job.finish(frame, cx)
}

/// Encrypts many frames' packets as [`seal`] would one after another: numbers of consecutive ones under one key are taken at once, and the
/// library has them all before it.
fn seal_together<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    let mut jobs = [const { None::<Job> }; GROUP];
    for (frame, job) in frames.iter_mut().zip(&mut jobs) {
        if Encap::takes(frame) {
            *job = keep(Job::plan(frame, cx), frame);
        }
    }
    admit(frames, &mut jobs, cx);
    for (frame, job) in frames.iter_mut().zip(&mut jobs) {
        if let Some(planned) = job {
            *job = keep(planned.lay_out(frame, cx), frame).and(*job);
        }
    }
    encrypt(frames, &jobs, cx);
    for (frame, job) in frames.iter_mut().zip(&jobs) {
        if let Some(job) = job {
            keep(job.finish(frame, cx), frame);
        }
    }
}

/// Drops the frame if something is in its way.
#[inline(always)]
fn keep<R>(result: Result<R, Reason>, frame: &mut Frame) -> Option<R> {
    result.map_err(|reason| Step::Drop(reason).settle(frame)).ok()
}

/// Takes packets into account, and gives them numbers in their order: all under one key at once, where none of them can be refused.
fn admit<T: Tally>(frames: &mut [Frame], jobs: &mut [Option<Job>; GROUP], cx: &mut Cx<'_, T>) {
    let sas = &mut cx.shard.sas;
    let mut rest = jobs.as_mut_slice();
    let mut frames = frames;
    while let Some(sa) = rest.iter().flatten().map(|job| job.sa).next() {
        let is_same = |job: &&Option<Job>| job.as_ref().is_none_or(|job| job.sa == sa);
        let end = rest.iter().take_while(is_same).count();
        let (now, later) = rest.split_at_mut(end);
        let (with, without) = frames.split_at_mut(end.min(frames.len()));
        let texts = now.iter().flatten().map(|job| u64::from(job.layout.text));
        if let Some(numbers) = sas.admit_all(sa, texts) {
            now.iter_mut().flatten().zip(numbers).for_each(|(job, number)| job.sequence = number);
        } else {
            for (frame, job) in with.iter_mut().zip(now) {
                if let Some(planned) = job {
                    let admitted = sas.admit(sa, planned.layout.text.into(), frame.meta.received);
                    *job = keep(admitted, frame).map(|sequence| Job { sequence, ..*planned });
                }
            }
        }
        (rest, frames) = (later, without);
    }
}

/// Has the library seal all packets, those under one key at once.
fn encrypt<T: Tally>(frames: &mut [Frame], jobs: &[Option<Job>; GROUP], cx: &Cx<'_, T>) {
    let mut packets: [Packet<'_>; GROUP] = std::array::from_fn(|_| Packet::default());
    let (mut count, mut of) = (0, None::<&Job>);
    let seal = |of: Option<&Job>, packets: &mut [Packet<'_>]| {
        if let Some(sa) = of.and_then(|job| job.sa(cx)) {
            sa.transform.seal_many(packets);
        }
    };
    for (frame, job) in frames.iter_mut().zip(jobs) {
        let Some(job) = job else { continue };
        if of.is_none_or(|of| of.sa != job.sa) {
            seal(of, &mut packets[..count]);
            (count, of) = (0, Some(job));
        }
        if let Some(packet) = job.packet(frame) {
            packets[count] = packet;
            count += 1;
        }
    }
    seal(of, &mut packets[..count]);
}

/// Packet that is about to be sealed.
#[derive(Clone, Copy)]
struct Job {
    /// Number of its tunnel, and place of its security association among those of the tunnel.
    sa: (u16, usize),
    /// Extended sequence numbers.
    esn: Esn,
    /// Hop of the outer packet.
    hop: u32,
    /// Headers of the packet that stay in front of ESP, in transport mode.
    kept: Option<Front>,
    layout: Layout,
    /// Place of the ESP header in the frame.
    esp_at: u16,
    /// DS field of the outer packet.
    ds_field: u8,
    /// True if the outer packet goes in fragments, those of IPv4 made by whoever has to.
    way_is_narrow: bool,
    /// Its number, once it has one.
    sequence: u64,
}

impl Job {
    /// Plans the outer packet. One that cannot be made stays as it is.
    fn plan<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Result<Job, Reason> {
        // Tunnel and security association, 6; lengths and padding, 14; number, 3; lifetime, 8; the outer header and its sum, 40.
        cx.tally.instructions(71);
        cx.tally.execute(Op::Branch, 14);
        let tables = cx.tables;
        let egress = frame.meta.egress;
        let number = tables.tunnel_of(egress).ok_or(Reason::RouteMissing)?;
        let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(Reason::RouteMissing)?;
        let place = selector::carrier(frame, number, cx)?;
        let hop = hop(egress, frame, cx)?;
        let sa = cx.shard.sas.outbounds(number).get(place).ok_or(Reason::SaMissing)?;
        let kept = head::kept(frame, tunnel, cx.tally)?;
        let ds_field = match kept {
            Some(_) => header::ds_field(frame),
            None => esp::ecn::outer(header::ds_field(frame), tunnel.dscp, tunnel.ecn),
        };
        let mtu = cx.shard.hops.get(frame.meta.hop).map_or(0, |own| own.mtu);
        let whole = usize::from(frame.meta.end.saturating_sub(frame.meta.network));
        let inner = whole - kept_len(kept);
        let layout =
            format::layout(inner, sa.transform.suite(), tunnel.tfc, mtu).ok_or(Reason::SlotTooSmall)?;
        let esp_at = (ethernet::HEADER_LEN + Head::of(tunnel, sa, kept).len()) as u16;
        // `route` lets pass what is larger where it is of IPv6, and each link of IPv6 must carry it.
        let way_is_narrow = frame.meta.family == Family::V6 && whole > usize::from(mtu);
        let esn = sa.esn;
        Ok(Job { sa: (number, place), esn, hop, kept, layout, esp_at, ds_field, way_is_narrow, sequence: 0 })
    }

    /// Makes room around the inner packet, and writes the trailer and the ESP header.
    fn lay_out<T: Tally>(&self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
        let sa = cx.shard.sas.outbounds(self.sa.0).get(self.sa.1).ok_or(Reason::SaMissing)?;
        let suite = sa.transform.suite();
        let (esp_at, text_len) = (usize::from(self.esp_at), usize::from(self.layout.text));
        let text_at = esp_at + HEADER_LEN + usize::from(suite.iv);
        let kept = kept_len(self.kept);
        let inner = usize::from(frame.meta.end.saturating_sub(frame.meta.network)) - kept;
        frame.truncate(usize::from(frame.meta.end));
        frame.pull_front(usize::from(frame.meta.network));
        make_room(frame, text_at - kept, text_len - inner + usize::from(suite.icv))?;
        cipher::tell(suite, sa.spi, text_len, esp_at, cx.tally);
        cx.tally.atomic(Region::CipherKey, sa.spi as usize % 64 * SA_BYTES, 8);
        cx.tally.write(Region::Frame, 0, text_at as u32);
        let mut next = if frame.meta.family == Family::V4 { Protocol::IPV4 } else { Protocol::IPV6 };
        let bytes = frame.bytes_mut();
        if let Some(front) = self.kept {
            bytes.copy_within(text_at - kept..text_at, ethernet::HEADER_LEN);
            let own = bytes.get(ethernet::HEADER_LEN..).unwrap_or_default();
            next = front.protocol(own).ok_or(Reason::SlotTooSmall)?;
        }
        if let Some(text) = bytes.get_mut(text_at..text_at + text_len) {
            format::trailer(text, &self.layout, next);
        }
        if let Some(mut header) = bytes.get_mut(esp_at..).and_then(HeaderMut::of) {
            header.set_spi(sa.spi);
            header.set_sequence(self.sequence as u32);
        }
        Ok(())
    }

    /// Its security association.
    fn sa<'s, T: Tally>(&self, cx: &'s Cx<'_, T>) -> Option<&'s Outbound> {
        let (tunnel, place) = self.sa;
        cx.shard.sas.outbounds(tunnel).get(place)
    }

    /// The packet as the library takes it.
    fn packet<'f>(&self, frame: &'f mut Frame) -> Option<Packet<'f>> {
        let bytes = frame.bytes_mut().get_mut(usize::from(self.esp_at) - SPARE..)?;
        Some(Packet { bytes, number: self.sequence, esn: self.esn })
    }

    /// Puts the outer header and that of the link in front.
    fn finish<T: Tally>(&self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
        let Job { hop, ds_field, way_is_narrow, sequence, .. } = *self;
        let Hop { interface, mtu, .. } = *cx.shard.hops.get(hop).ok_or(Reason::NeighbourUnknown)?;
        let tunnel = cx.tables.tunnels.list.get(usize::from(self.sa.0)).ok_or(Reason::RouteMissing)?;
        let sa = self.sa(cx).ok_or(Reason::SaMissing)?;
        let is_set = frame.meta.flags & flag::DONT_FRAGMENT != 0;
        let df = match tunnel.df {
            // That of the packet, whose header it is.
            _ if self.kept.is_some() => {
                if is_set {
                    DontFragment::Set
                } else {
                    DontFragment::Clear
                }
            }
            _ if tunnel.fragment == FragmentWhen::After || way_is_narrow => DontFragment::Clear,
            DfBit::Copy if !is_set => DontFragment::Clear,
            DfBit::Copy | DfBit::Set => DontFragment::Set,
            DfBit::Clear => DontFragment::Clear,
        };
        let payload_len = self.layout.total;
        let fields = Varying {
            ds_field,
            df,
            // Unique for as long as one may be under way, where routers may fragment it (RFC 6864).
            id: if df == DontFragment::Clear { (sequence as u32 ^ sa.spi) as u16 } else { 0 },
            payload_len,
        };
        let head = Head::of(tunnel, sa, self.kept);
        head.write(frame.bytes_mut(), &fields);
        if sa.udp == Udp::Yes && tunnel.local.v6 {
            // Across IPv6 there must be a checksum (RFC 8200, section 8.1): an add for every four bytes, and a fold.
            cx.tally.instructions(u32::from(payload_len) / 4 + 24);
            cx.tally.read(Region::Frame, self.esp_at.into(), payload_len.into());
        }
        head.describe(frame, ds_field);
        if way_is_narrow && tunnel.local.v6 {
            frame.meta.flags |= flag::CUT;
        } else if frame.meta.end - frame.meta.network > mtu {
            // The way leads by a smaller link than it did when the tunnel's MTU was made known.
            if tunnel.local.v6 || df == DontFragment::Set {
                return Err(Reason::PacketTooBig);
            }
            frame.meta.flags |= flag::CUT;
        }
        (frame.meta.egress, frame.meta.hop) = (interface, hop);
        if link::replace(frame, cx) { Ok(()) } else { Err(Reason::NeighbourUnknown) }
    }
}

fn kept_len(kept: Option<Front>) -> usize {
    kept.map_or(0, |front| usize::from(front.len))
}

/// Hop of the outer packet. The way has been looked up before a packet was changed, and is the same now; that of an answer is looked up
/// for the first time.
fn hop<T: Tally>(egress: PortId, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<u32, Reason> {
    let hop = match underlay::way(egress, cx) {
        Ok(Way { hop, .. }) => hop,
        Err(Step::Drop(reason)) => return Err(reason),
        Err(_) => return Err(Reason::RouteMissing),
    };
    if cx.shard.hops.get(hop).is_some_and(|hop| hop.is_known()) {
        return Ok(hop);
    }
    // Nor does an answer wait; but the next one shall find its way.
    if let Some(wanted) = underlay::awaited(egress, cx) {
        cx.shard.hops.waiting.ask(wanted, frame.meta.received);
    }
    Err(Reason::NeighbourUnknown)
}

/// Makes the frame longer at both ends. What is too long behind is moved to the front: the room of a slot is the same wherever its packet
/// lies.
fn make_room(frame: &mut Frame, front: usize, behind: usize) -> Result<(), Reason> {
    let missing = behind.saturating_sub(frame.tailroom());
    if frame.headroom() < front + missing {
        return Err(Reason::SlotTooSmall);
    }
    if missing > 0 {
        let len = frame.len();
        frame.push_front(missing).ok_or(Reason::SlotTooSmall)?;
        frame.bytes_mut().copy_within(missing.., 0);
        frame.truncate(len);
    }
    frame.push_back(behind).ok_or(Reason::SlotTooSmall)?;
    frame.push_front(front).ok_or(Reason::SlotTooSmall)?;
    Ok(())
}
