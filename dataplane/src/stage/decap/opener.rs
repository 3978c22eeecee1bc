//! Packets that come in under one security association. All that they have in common is found once.

use esp::format::untrail;
use esp::{Forged, Packet, Place, SPARE};
use policy::model::KeySource;
use tally::{Op, Region, Tally};
use wire::esp::{Direction, Esn, HEADER_LEN, Mode, Suite, Udp};
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::link_kind::STAND_IN;
use wire::{Family, Frame, ipv4, ipv6, link_kind};

use super::{Carried, transport};
use crate::sa::{Expired, Peer, SA_BYTES};
use crate::stage::route::is_link_local;
use crate::stage::{Cx, cipher, header, parse, selector};
use crate::tables::{Tables, Tunnel, VrfId};
use crate::tunnel;
use crate::verdict::Reason;

/// One security association, and its tunnel.
pub(super) struct Opener<'t> {
    /// Place of the association.
    pub(super) place: u32,
    /// Number of its tunnel.
    number: u16,
    tunnel: &'t Tunnel,
    spi: u32,
    /// UDP encapsulation, as agreed.
    udp: Udp,
    /// True if the peer is to be followed to where its packets come from.
    is_followed: bool,
    pub(super) esn: Esn,
    suite: &'static Suite,
    /// True if it does not carry all packets of the tunnel.
    is_selective: bool,
    /// True if there is a bound of its use, which any packet may reach.
    pub(super) is_bound: bool,
}

/// A packet that may be opened.
pub(super) struct Job {
    udp: Udp,
    /// Its ESP within the frame.
    start: u16,
    end: u16,
    /// Bytes of its text.
    pub(super) text_len: u16,
    /// Its whole number.
    pub(super) number: u64,
    esn: Esn,
}

impl Job {
    /// The packet as the library takes it.
    #[inline(always)]
    pub(super) fn packet<'f>(&self, frame: &'f mut Frame) -> Option<Packet<'f>> {
        let bytes = frame.bytes_mut().get_mut(usize::from(self.start) - SPARE..usize::from(self.end))?;
        Some(Packet { bytes, number: self.number, esn: self.esn })
    }
}

impl<'t> Opener<'t> {
    /// The security association of that place.
    pub(super) fn of<T: Tally>(place: u32, cx: &mut Cx<'t, T>) -> Result<Opener<'t>, Reason> {
        let sa = cx.shard.sas.inbound_at(place).ok_or(Reason::SpiUnknown)?;
        let number = sa.tunnel;
        let tunnel = cx.tables.tunnels.list.get(usize::from(number)).ok_or(Reason::SpiUnknown)?;
        Ok(Opener {
            place,
            number,
            tunnel,
            spi: sa.spi,
            udp: sa.udp,
            is_followed: sa.is_followed,
            esn: sa.esn,
            suite: sa.suite,
            is_selective: !sa.selectors.is_empty(),
            is_bound: sa.is_bound(),
        })
    }

    /// Verifies and decrypts a packet, and lets what is in it come in.
    pub(super) fn open<T: Tally>(
        &self,
        frame: &mut Frame,
        carried: &Carried,
        cx: &mut Cx<'_, T>,
    ) -> Result<(), Reason> {
        let job = self.judge(frame, carried, cx)?;
        let now = frame.meta.received;
        let sa = cx.shard.sas.inbound_at(self.place).ok_or(Reason::SpiUnknown)?;
        let packet = job.packet(frame).ok_or(Reason::IcvWrong)?;
        sa.transform.open(packet).map_err(|Forged| Reason::IcvWrong)?;
        let spent = sa.spend(job.text_len.into(), now);
        let is_latest = sa.accept(job.number);
        sa.note_accepted();
        let news = sa.news(now);
        cx.shard.sas.note_bound(news);
        if is_latest {
            self.follow(&job, frame, cx);
        }
        spent.map_err(|Expired| Reason::SaExpired)?;
        self.enter(&job, frame, cx)
    }

    /// Judges a packet by all that is known before its integrity check.
    #[inline(always)]
    pub(super) fn judge<T: Tally>(
        &self,
        frame: &Frame,
        carried: &Carried,
        cx: &mut Cx<'_, T>,
    ) -> Result<Job, Reason> {
        // Lengths, 8; window, 12; lifetime, 8; trailer and padding, 10; the inner packet's bounds, 6.
        cx.tally.instructions(44);
        cx.tally.execute(Op::Branch, 13);
        let Carried { udp, start, end, number, .. } = *carried;
        cx.tally.hash(8);
        cx.tally.read(Region::CipherKey, self.spi as usize % 64 * SA_BYTES, 64);
        // A peer of IKE may send either way (RFC 7296, section 2.23).
        if udp != self.udp && self.tunnel.keys == KeySource::Policy {
            return Err(Reason::TunnelEncapsulation);
        }
        let (suite, esn) = (self.suite, self.esn);
        let around = HEADER_LEN as u16 + u16::from(suite.iv) + u16::from(suite.icv);
        let text_len = (end - start).saturating_sub(around);
        if text_len == 0 || !suite.is_whole(text_len.into()) {
            return Err(Reason::EspLength);
        }
        let sa = cx.shard.sas.inbound_at(self.place).ok_or(Reason::SpiUnknown)?;
        sa.check(frame.meta.received).map_err(|Expired| Reason::SaExpired)?;
        let Place::Fresh(number) = sa.window.place(number, esn) else { return Err(Reason::Replayed) };
        cipher::tell(suite, self.spi, text_len.into(), start.into(), cx.tally);
        if usize::from(end) > frame.len() {
            return Err(Reason::EspLength);
        }
        Ok(Job { udp, start, end, text_len, number, esn })
    }

    /// Follows the peer to the source of the latest packet that is genuine. What is late, or was delayed by somebody, does not tell where
    /// the peer is (RFC 7296, section 2.23).
    #[inline(always)]
    pub(super) fn follow<T: Tally>(&self, job: &Job, frame: &Frame, cx: &mut Cx<'_, T>) {
        let source = Peer {
            address: header::addresses(frame).0,
            port: if job.udp == Udp::Yes { frame.meta.sport } else { 0 },
        };
        let tunnel = self.tunnel;
        let may_move = tunnel.mode == Mode::Tunnel || tunnel.remote == Some(source.address);
        let is_followed = may_move && source.takes(self.udp) && self.is_followed;
        if is_followed && cx.shard.sas.is_elsewhere(self.number, source) && is_end(source, cx.tables) {
            cx.shard.sas.follow(self.number, source, frame.meta.received);
        }
    }

    /// Lets what is in a packet come in by the interface of the tunnel.
    #[inline(always)]
    pub(super) fn enter<T: Tally>(
        &self,
        job: &Job,
        frame: &mut Frame,
        cx: &mut Cx<'_, T>,
    ) -> Result<(), Reason> {
        cx.tally.write(Region::CipherKey, self.spi as usize % 64 * SA_BYTES, 16);
        let text = usize::from(job.start) + HEADER_LEN + usize::from(self.suite.iv);
        let inner = frame.bytes().get(text..text + usize::from(job.text_len)).unwrap_or_default();
        let trailer = untrail(inner).map_err(|_| Reason::EspTrailer)?;
        // RFC 4303, section 2.6.
        if trailer.next == Protocol::NO_NEXT {
            return Err(Reason::TunnelDummy);
        }
        let tunnel = self.tunnel;
        let ds_field = header::ds_field(frame);
        // The outer headers and the padding off, a link-layer header in front, congestion, 24. The frame's start is another one.
        cx.tally.instructions(24);
        cx.tally.execute(Op::Branch, 6);
        cx.tally.write(Region::Frame, 0, 32);
        cx.tally.write(Region::Meta, 0, 32);
        frame.truncate(text + trailer.before);
        let family = match (tunnel.mode, trailer.next) {
            (Mode::Transport, next) => {
                transport::join(frame, text, next, cx.tally)?;
                frame.meta.family
            }
            (Mode::Tunnel, next) => {
                frame.pull_front(text);
                match next {
                    Protocol::IPV4 => Family::V4,
                    Protocol::IPV6 => Family::V6,
                    _ => return Err(Reason::EspTrailer),
                }
            }
        };
        let link = link_kind::received(frame.bytes()).filter(|link| family_of(link) == family);
        let link = link.ok_or(Reason::EspTrailer)?;
        let header = frame.push_front(link.len()).ok_or(Reason::SlotTooSmall)?;
        header.copy_from_slice(&link);
        frame.meta.outer_tree = cx.tables.queues.number(frame.meta.ingress);
        parse::packet(frame, tunnel.interface, family, cx.tables)?;
        if tunnel.mode == Mode::Transport {
            transport::check(frame, tunnel, cx.tally)?;
        }
        // What is behind the inner packet is padding against traffic analysis (RFC 4303, section 2.7).
        frame.truncate(usize::from(frame.meta.end));
        frame.meta.tunnel = tunnel::IN;
        if frame.meta.protocol == Protocol::ESP.0 && cx.tables.tunnels.is_local(header::addresses(frame).1) {
            return Err(Reason::TunnelNested);
        }
        if self.is_selective {
            // RFC 4301, section 5.2, step 4.
            let sa = cx.shard.sas.inbound_at(self.place).ok_or(Reason::SpiUnknown)?;
            if !selector::admits(&sa.selectors, frame, Direction::In, cx.tables.mode, cx.tally) {
                return Err(Reason::TunnelSelector);
            }
        }
        match tunnel.mode {
            Mode::Tunnel => congestion(frame, esp::ecn::inner(frame.meta.ds_field, ds_field, tunnel.ecn)),
            // Its header is the one that was marked.
            Mode::Transport => Ok(()),
        }
    }
}

/// IP version of the packet behind a stand-in.
#[inline(always)]
fn family_of(stand_in: &[u8; STAND_IN]) -> Family {
    let [.., high, low] = *stand_in;
    if EtherType(u16::from_be_bytes([high, low])) == EtherType::IPV4 { Family::V4 } else { Family::V6 }
}

/// True for an end that packets can be sent to.
#[cold]
fn is_end(peer: Peer, tables: &Tables) -> bool {
    !tables.is_own(VrfId::DEFAULT, peer.address) && !is_link_local(peer.address)
}

/// Carries a mark of congestion from the outer header to the inner one (RFC 6040). A sender that knows no marks is told by a loss.
#[inline(always)]
fn congestion(frame: &mut Frame, marked: Option<u8>) -> Result<(), Reason> {
    let marked = marked.ok_or(Reason::TunnelCongestion)?;
    if marked == frame.meta.ds_field {
        return Ok(());
    }
    frame.meta.ds_field = marked;
    let (network, family) = (usize::from(frame.meta.network), frame.meta.family);
    let packet = frame.bytes_mut().get_mut(network..).unwrap_or_default();
    if family == Family::V4 {
        if let Some(mut header) = ipv4::HeaderMut::of(packet) {
            header.set_congestion(marked);
        }
    } else if let Some(mut header) = ipv6::HeaderMut::of(packet) {
        header.set_congestion(marked);
    }
    Ok(())
}
