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
//! answered or fragmented, or with another beside it), and leaves those behind it for then. Packets of one security association are sealed
//! together, wherever they are in a group of some, and what they have in common is found once.

use arrayvec::ArrayVec;
use policy::model::FragmentWhen;
use tally::Tally;
use wire::Frame;
use wire::esp::Mode;
use wire::meta::Fields;

use super::queue::ANSWERED;
use super::{About, Cx, Packets, Stage, Step, cipher, fragment, link, take};
use crate::flag;
use crate::tables::{Tables, Tunnel};
use crate::tunnel;
use crate::verdict::{Reason, Verdict};

mod head;
mod keepalive;
mod sealer;

pub(crate) use keepalive::keepalive;
use sealer::Sealer;

/// Packets that are sealed together, at most.
const GROUP: usize = 16;

/// Security associations that are known at once, at most.
const SEALERS: usize = 2 * GROUP;

/// Place of no sealer.
const NO_SEALER: u8 = u8::MAX;

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
            .and(Fields::OPENING)
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
        if cx.tally.is_kept() {
            // What is found once for several packets would be told of once.
            frames[..end].iter_mut().for_each(|frame| take::<Encap, T>(frame, cx));
        } else {
            seal_together(&mut frames[..end], cx);
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

/// Encrypts the frame's packet, and puts the outer header and that of the link in front.
fn seal<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Reason> {
    Sealer::of(frame, cx)?.seal(frame, cx)
}

/// Encrypts many frames' packets as [`seal`] would one after another.
fn seal_together<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    let mut sealers = ArrayVec::<Sealer<'_>, SEALERS>::new();
    for group in frames.chunks_mut(GROUP) {
        if sealers.len() + group.len() > sealers.capacity() {
            sealers.clear();
        }
        // Places of the frames' sealers.
        let mut of = [NO_SEALER; GROUP];
        for (frame, of) in group.iter_mut().zip(&mut of).filter(|(frame, _)| Encap::takes(frame)) {
            let known = sealers.iter().rposition(|sealer| sealer.carries(frame, cx));
            let place = known.unwrap_or(sealers.len());
            if known.is_none() {
                match Sealer::of(frame, cx) {
                    Ok(sealer) => sealers.push(sealer),
                    Err(reason) => {
                        Step::Drop(reason).settle(frame);
                        continue;
                    }
                }
            }
            *of = place as u8;
        }
        for (sealer, place) in sealers.iter().zip(0..) {
            let carries = of.map(|of| of == place);
            if carries.contains(&true) {
                sealer.seal_all(group, carries, cx);
            }
        }
    }
}
