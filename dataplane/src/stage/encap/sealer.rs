//! Packets that leave under one security association. All that they have in common is found once.

use arrayvec::ArrayVec;
use esp::format::{self, Layout};
use esp::{Packet, SPARE};
use policy::model::{DfBit, FragmentWhen};
use tally::{Op, Region, Tally};
use wire::esp::{Esn, Front, HEADER_LEN, HeaderMut, Mode, Suite};
use wire::header::Protocol;
use wire::{Family, Frame, Nanos, PortId};

use super::GROUP;
use super::head::{self, DontFragment, Head, LINK, Varying};
use crate::flag;
use crate::hop::Hop;
use crate::sa::{Outbound, SA_BYTES, Senders, Way};
use crate::stage::{Cx, Step, cipher, header, link, selector, underlay};
use crate::tables::Tunnel;
use crate::verdict::Reason;

/// One security association, and the way of its packets.
pub(super) struct Sealer<'t> {
    /// Number of its tunnel, and place of the association among those of the tunnel.
    sa: (u16, usize),
    tunnel: &'t Tunnel,
    spi: u32,
    /// Extended sequence numbers.
    esn: Esn,
    suite: &'static Suite,
    /// True if it carries all packets of the tunnel, whatever they are.
    carries_all: bool,
    /// Hop of the outer packets, its interface, and the largest packet that it carries.
    hop: u32,
    interface: PortId,
    mtu: u16,
    /// True if there are tags in the headers of the link.
    is_tagged: bool,
    head: Head,
}

/// Packet that is about to be sealed.
struct Job {
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

impl<'t> Sealer<'t> {
    /// The security association that carries the frame's packet.
    ///
    /// # Errors
    /// There is none, or no way to the peer.
    pub(super) fn of<T: Tally>(frame: &Frame, cx: &mut Cx<'t, T>) -> Result<Sealer<'t>, Reason> {
        let tables = cx.tables;
        let egress = frame.meta.egress;
        let number = tables.tunnel_of(egress).ok_or(Reason::RouteMissing)?;
        let tunnel = tables.tunnels.list.get(usize::from(number)).ok_or(Reason::RouteMissing)?;
        let place = selector::carrier(frame, number, cx)?;
        let hop = hop(egress, frame, cx)?;
        if cx.shard.sas.outbounds(number).get(place).is_some_and(|sa| sa.senders == Senders::Fallback) {
            selector::falls_back(frame, number, cx);
        }
        let list = cx.shard.sas.outbounds(number);
        let sa = list.get(place).ok_or(Reason::SaMissing)?;
        let next = cx.shard.hops.get(hop).ok_or(Reason::NeighbourUnknown)?;
        let Hop { interface, mtu, .. } = *next;
        let link = next.plain_header();
        Ok(Sealer {
            sa: (number, place),
            tunnel,
            spi: sa.spi,
            esn: sa.esn,
            suite: sa.transform.suite(),
            carries_all: place + 1 == list.len() && sa.selectors.is_empty(),
            hop,
            interface,
            mtu,
            is_tagged: link.is_none(),
            head: Head::new(link, tunnel, sa),
        })
    }

    /// True if the association carries the frame's packet, too.
    #[inline(always)]
    pub(super) fn carries<T: Tally>(&self, frame: &Frame, cx: &mut Cx<'_, T>) -> bool {
        frame.meta.egress == self.tunnel.interface
            && (self.carries_all || selector::place(frame, self.sa.0, cx) == Ok(self.sa.1))
    }

    /// Encrypts a packet, and puts the outer header and that of the link in front.
    pub(super) fn seal<T: Tally>(&self, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
        let mut job = self.plan(frame, cx)?;
        job.sequence = cx.shard.sas.admit(self.sa, job.layout.text.into(), frame.meta.received)?;
        self.lay_out(&job, frame, cx.tally)?;
        if let (Some(sa), Some(packet)) = (self.association(cx), self.packet(&job, frame)) {
            sa.transform.seal(packet);
        }
        self.finish(&job, frame, cx)
    }

    /// The same for those of a group's frames that it carries; those that cannot leave are dropped.
    pub(super) fn seal_all<T: Tally>(
        &self,
        frames: &mut [Frame],
        carries: [bool; GROUP],
        cx: &mut Cx<'_, T>,
    ) {
        let mut jobs = [const { None::<Job> }; GROUP];
        for ((frame, job), carries) in frames.iter_mut().zip(&mut jobs).zip(carries) {
            if carries {
                *job = keep(self.plan(frame, cx), frame);
            }
        }
        self.admit(frames, &mut jobs, cx);
        for (frame, job) in frames.iter_mut().zip(&mut jobs) {
            let Some(planned) = job else { continue };
            if keep(self.lay_out(planned, frame, cx.tally), frame).is_none() {
                *job = None;
            }
        }
        if let Some(sa) = self.association(cx) {
            let sealed = frames.iter_mut().zip(&jobs);
            let packets = sealed.filter_map(|(frame, job)| self.packet(job.as_ref()?, frame));
            sa.transform.seal_many(&mut packets.collect::<ArrayVec<_, GROUP>>());
        }
        for (frame, job) in frames.iter_mut().zip(&jobs) {
            if let Some(job) = job {
                keep(self.finish(job, frame, cx), frame);
            }
        }
    }

    /// Takes packets into account, and gives them numbers in their order: to all at once, where none of them can be refused.
    #[inline(always)]
    fn admit<T: Tally>(&self, frames: &mut [Frame], jobs: &mut [Option<Job>; GROUP], cx: &mut Cx<'_, T>) {
        let sas = &mut cx.shard.sas;
        let Some(last) = jobs.iter().rposition(Option::is_some) else { return };
        let texts = jobs.iter().flatten().map(|job| u64::from(job.layout.text));
        let moment = frames.get(last).map_or(Nanos(0), |frame| frame.meta.received);
        if let Some(numbers) = sas.admit_all(self.sa, texts, moment) {
            jobs.iter_mut().flatten().zip(numbers).for_each(|(job, number)| job.sequence = number);
            return;
        }
        for (frame, job) in frames.iter_mut().zip(jobs) {
            let Some(planned) = job else { continue };
            let admitted = sas.admit(self.sa, planned.layout.text.into(), frame.meta.received);
            match keep(admitted, frame) {
                Some(number) => planned.sequence = number,
                None => *job = None,
            }
        }
    }

    /// Plans the outer packet. One that cannot be made stays as it is.
    #[inline(always)]
    fn plan<T: Tally>(&self, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<Job, Reason> {
        // Tunnel and security association, 6; lengths and padding, 14; number, 3; lifetime, 8; the outer header and its sum, 40.
        cx.tally.instructions(71);
        cx.tally.execute(Op::Branch, 14);
        let tunnel = self.tunnel;
        let kept = match tunnel.mode {
            Mode::Tunnel => None,
            Mode::Transport => Some(head::kept(frame, tunnel, cx.tally)?),
        };
        let ds_field = match kept {
            Some(_) => header::ds_field(frame),
            None => esp::ecn::outer(header::ds_field(frame), tunnel.dscp, tunnel.ecn),
        };
        let mtu = cx.shard.hops.get(frame.meta.hop).map_or(0, |own| own.mtu);
        let whole = frame.meta.end.saturating_sub(frame.meta.network);
        let inner = usize::from(whole) - kept_len(kept);
        let layout = format::layout(inner, self.suite, tunnel.tfc, mtu).ok_or(Reason::SlotTooSmall)?;
        // `route` lets pass what is larger where it is of IPv6, and each link of IPv6 must carry it.
        let way_is_narrow = frame.meta.family == Family::V6 && whole > mtu;
        let esp_at = self.head.len(kept) as u16;
        Ok(Job { kept, layout, esp_at, ds_field, way_is_narrow, sequence: 0 })
    }

    /// Makes room around the inner packet, and writes the trailer and the ESP header.
    #[inline(always)]
    fn lay_out<T: Tally>(&self, job: &Job, frame: &mut Frame, tally: &mut T) -> Result<(), Reason> {
        let suite = self.suite;
        let (esp_at, text_len) = (usize::from(job.esp_at), usize::from(job.layout.text));
        let text_at = esp_at + HEADER_LEN + usize::from(suite.iv);
        let kept = kept_len(job.kept);
        let inner = usize::from(frame.meta.end.saturating_sub(frame.meta.network)) - kept;
        frame.truncate(usize::from(frame.meta.end));
        frame.pull_front(usize::from(frame.meta.network));
        make_room(frame, text_at - kept, text_len - inner + usize::from(suite.icv))?;
        cipher::tell(suite, self.spi, text_len, esp_at, tally);
        tally.atomic(Region::CipherKey, self.spi as usize % 64 * SA_BYTES, 8);
        tally.write(Region::Frame, 0, text_at as u32);
        let mut next = if frame.meta.family == Family::V4 { Protocol::IPV4 } else { Protocol::IPV6 };
        let bytes = frame.bytes_mut();
        if let Some(front) = job.kept {
            bytes.copy_within(text_at - kept..text_at, LINK);
            let own = bytes.get(LINK..).unwrap_or_default();
            next = front.protocol(own).ok_or(Reason::SlotTooSmall)?;
        }
        if let Some(text) = bytes.get_mut(text_at..text_at + text_len) {
            format::trailer(text, &job.layout, next);
        }
        if let Some(mut header) = bytes.get_mut(esp_at..).and_then(HeaderMut::of) {
            header.set_spi(self.spi);
            header.set_sequence(job.sequence as u32);
        }
        Ok(())
    }

    /// The security association.
    fn association<'s, T: Tally>(&self, cx: &'s Cx<'_, T>) -> Option<&'s Outbound> {
        let (tunnel, place) = self.sa;
        cx.shard.sas.outbounds(tunnel).get(place)
    }

    /// The packet as the library takes it.
    #[inline(always)]
    fn packet<'f>(&self, job: &Job, frame: &'f mut Frame) -> Option<Packet<'f>> {
        let bytes = frame.bytes_mut().get_mut(usize::from(job.esp_at) - SPARE..)?;
        Some(Packet { bytes, number: job.sequence, esn: self.esn })
    }

    /// Puts the outer header and that of the link in front.
    #[inline(always)]
    fn finish<T: Tally>(&self, job: &Job, frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
        let df = self.df(job, frame);
        let payload_len = job.layout.total;
        let fields = Varying {
            ds_field: job.ds_field,
            df,
            // Unique for as long as one may be under way, where routers may fragment it (RFC 6864).
            id: if df == DontFragment::Clear { (job.sequence as u32 ^ self.spi) as u16 } else { 0 },
            payload_len,
            kept: job.kept,
        };
        self.head.write(frame.bytes_mut(), &fields);
        let is_v6 = self.tunnel.local.v6;
        if self.head.has_sum() {
            // An add for every four bytes, and a fold.
            cx.tally.instructions(u32::from(payload_len) / 4 + 24);
            cx.tally.read(Region::Frame, job.esp_at.into(), payload_len.into());
        }
        self.head.describe(frame, &fields);
        if job.way_is_narrow && is_v6 {
            frame.meta.flags |= flag::CUT;
        } else if frame.meta.end - frame.meta.network > self.mtu {
            // The way leads by a smaller link than it did when the tunnel's MTU was made known.
            if is_v6 || df == DontFragment::Set {
                return Err(Reason::PacketTooBig);
            }
            frame.meta.flags |= flag::CUT;
        }
        (frame.meta.egress, frame.meta.hop) = (self.interface, self.hop);
        if self.is_tagged && !link::replace(frame, cx) {
            return Err(Reason::NeighbourUnknown);
        }
        Ok(())
    }

    /// "Don't fragment" of the outer packet.
    #[inline(always)]
    fn df(&self, job: &Job, frame: &Frame) -> DontFragment {
        let copied = match frame.meta.flags & flag::DONT_FRAGMENT {
            0 => DontFragment::Clear,
            _ => DontFragment::Set,
        };
        match self.tunnel.df {
            // That of the packet, whose header it is.
            _ if job.kept.is_some() => copied,
            _ if self.tunnel.fragment == FragmentWhen::After || job.way_is_narrow => DontFragment::Clear,
            DfBit::Copy => copied,
            DfBit::Set => DontFragment::Set,
            DfBit::Clear => DontFragment::Clear,
        }
    }
}

/// Drops the frame if something is in its way.
#[inline(always)]
fn keep<R>(result: Result<R, Reason>, frame: &mut Frame) -> Option<R> {
    result.map_err(|reason| Step::Drop(reason).settle(frame)).ok()
}

fn kept_len(kept: Option<Front>) -> usize {
    kept.map_or(0, |front| usize::from(front.len))
}

/// Hop of the outer packet. The way has been looked up before a packet was changed, and is the same now; that of an answer is looked up
/// for the first time.
pub(super) fn hop<T: Tally>(egress: PortId, frame: &Frame, cx: &mut Cx<'_, T>) -> Result<u32, Reason> {
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
