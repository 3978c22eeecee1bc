//! `route`: by which interface and next hop does it leave?
//!
//! Longest-prefix match for a flow's first packet, and for every packet where the policy is stateless; later
//! packets of a flow remember. Checks that the source is at home behind the interface it came in by (unicast
//! reverse path forwarding, RFC 3704), the time to live, and the size. Changes no byte.

use policy::model::{Mode, SourceCheck};
use tally::{Branch, Op, Region, Tally};
use wire::meta::Fields;
use wire::{BATCH, Family, Frame, PortId, ipv4, ipv6};

use super::{About, Cx, Stage, Step, header, nat64, protect, replicate, take, underlay, vrf, wan};
use crate::flag;
use crate::flow::FlowId;
use crate::hop::{Hop, LINK_HOP, LOCAL_HOP, NO_HOP, WAITING, Wanted, leaves, waits};
use crate::tables::{Address, LOCAL, SSDP, Tables, Target, VrfId, WanChoice, WanId, is_linux};
use crate::tunnel;
use crate::verdict::Reason;

/// The stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Route;

impl Stage for Route {
    const ABOUT: About = About {
        name: "route",
        asks: "By which interface and next hop does it leave?",
        reads: Fields::SEEN
            .and(Fields::EGRESS)
            .and(Fields::OPENING)
            .and(Fields::FLOW)
            .and(Fields::HOP)
            .and(Fields::TUNNEL),
        writes: Fields::HOP.and(Fields::EGRESS).and(Fields::FLAGS).and(Fields::TUNNEL),
    };

    #[inline(always)]
    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        if frame.meta.hop == NO_HOP {
            let ends = if cx.tables.tunnels.spd.is_empty() { ordinary(frame) } else { None };
            let found = match ends {
                Some(ends) => find4(frame, ends, cx),
                None => find(frame, cx),
            };
            if let Err(step) = found {
                return step;
            }
            if ends.is_some() && leaves(frame.meta.hop) {
                return fits(frame, LIVES, cx);
            }
        }
        let ttl = ttl(frame);
        if leaves(frame.meta.hop) {
            fits(frame, ttl, cx)
        } else if has_run_out(frame, ttl) {
            Step::Answer(Reason::TtlExpired)
        } else {
            Step::Next
        }
    }

    fn run<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
        if cx.tables.mode == Mode::Stateful {
            for frame in frames {
                take::<Route, T>(frame, cx);
            }
            return;
        }
        if !cx.tables.tunnels.spd.is_empty() || !cx.tables.vrfs.is_empty() {
            // Selectors ask for more than the destination, and VRFs for the interface.
            for frame in frames {
                take_apart(frame, cx);
            }
            return;
        }
        for frames in frames.chunks_mut(BATCH) {
            look_up_together(frames, cx);
        }
    }

    fn program(tables: &Tables) -> u32 {
        let spd = &tables.tunnels.spd;
        // Security policies: both looks, 76; an error's quote, 60.
        let policies = if spd.is_empty() { 0 } else { 136 + spd.program() };
        // This stage and the tries of both families, 141; targets and groups, 19.
        let sets = if tables.set_questions.of_routes != 0 { header::SETS } else { 0 };
        160 + policies + sets + tables.wans.program()
    }
}

/// Looks up IPv4 destinations that are no group's together, and settles their packets; the others one by one. For packets that
/// no flow remembers anything of; `frames` are at most [`BATCH`].
#[inline(never)]
fn look_up_together<T: Tally>(frames: &mut [Frame], cx: &mut Cx<'_, T>) {
    let mut sources = [0; BATCH];
    let mut destinations = [0; BATCH];
    let mut values = [0; BATCH];
    let mut origins = [0; BATCH];
    let mut looked_up = 0_u64;
    for (place, frame) in frames.iter().enumerate() {
        if let Some(ends) = ordinary(frame) {
            sources[place % BATCH] = ends.source;
            destinations[place % BATCH] = ends.destination;
            looked_up |= 1 << (place % BATCH);
        }
    }
    let count = frames.len().min(BATCH);
    cx.tables.fib4.lookup_bulk(&destinations[..count], &mut values[..count]);
    // A tally is told of each by itself, as by a step.
    let is_together = !cx.tally.is_kept();
    let check = cx.tables.source_check;
    if is_together && check == SourceCheck::Strict {
        cx.tables.fib4.lookup_bulk(&sources[..count], &mut origins[..count]);
    }
    for (place, frame) in frames.iter_mut().enumerate() {
        let place = place % BATCH;
        if looked_up >> place & 1 == 0 {
            take_apart(frame, cx);
            continue;
        }
        let source = Address::v4(sources[place]);
        let is_at_home = is_together
            && match check {
                SourceCheck::Off => !cx.tables.may_be_own(source),
                SourceCheck::Strict => cx.tables.is_exit(origins[place], frame.meta.ingress),
                SourceCheck::Loose => false,
            };
        let hop = cx.tables.only_hops.get(values[place] as usize).copied().unwrap_or(NO_HOP);
        // What was decided is settled where it is decided: then nothing is left to ask of what goes on.
        if is_at_home && leaves(hop) && !is_link_local4(sources[place]) {
            frame.meta.hop = hop;
            fits(frame, LIVES, cx).settle(frame);
        } else {
            let ends = Ends4 { source: sources[place], destination: destinations[place] };
            let checked = if is_at_home { Checked::Yes } else { Checked::NotYet };
            settle_apart(frame, ends, checked, values[place], cx);
        }
    }
}

/// Progress of the check of a packet's source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    /// The source is at home behind the packet's ingress.
    Yes,
    NotYet,
}

/// Settles a packet whose destination has been looked up.
#[inline(never)]
fn settle_apart<T: Tally>(frame: &mut Frame, ends: Ends4, checked: Checked, value: u32, cx: &mut Cx<'_, T>) {
    if cx.tally.is_kept() {
        tell_find4(cx);
        let _ = cx.tables.route(VrfId::DEFAULT, Address::v4(ends.destination), cx.tally);
    }
    let source = Address::v4(ends.source);
    let target = cx.tables.targets.get(value as usize);
    let checked = match checked {
        Checked::Yes => Ok(()),
        Checked::NotYet => check_source(frame.meta.ingress, source, cx),
    };
    match checked.and_then(|()| lead(frame, source, target, 0, cx)) {
        Ok(()) if leaves(frame.meta.hop) => fits(frame, LIVES, cx).settle(frame),
        Ok(()) => {}
        Err(step) => step.settle(frame),
    }
}

/// The step, as a function of its own.
#[inline(never)]
fn take_apart<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) {
    take::<Route, T>(frame, cx);
}

/// A time to live with which a packet goes on: [`ordinary`] has asked for it.
const LIVES: u8 = u8::MAX;

/// Source and destination of a packet of IPv4.
#[derive(Clone, Copy)]
struct Ends4 {
    source: u32,
    destination: u32,
}

/// Ends of a packet whose destination is an ordinary IPv4 address: no group's, not link-local; and whose time to live lets it go on.
#[inline(always)]
fn ordinary(frame: &Frame) -> Option<Ends4> {
    let special = flag::TO_GROUP | flag::GROUP | flag::OWN;
    if frame.meta.family != Family::V4 || frame.meta.flags & special != 0 || frame.meta.fate != 0 {
        return None;
    }
    let header = ipv4::Header::of(frame.bytes().get(usize::from(frame.meta.network)..)?)?;
    let ends = Ends4 { source: header.src_bits(), destination: header.dst_bits() };
    (!is_link_local4(ends.destination) && header.ttl() > 1).then_some(ends)
}

/// Checks time to live and size against the hop, and names the interface.
#[inline(always)]
fn fits<T: Tally>(frame: &mut Frame, ttl: u8, cx: &mut Cx<'_, T>) -> Step {
    // Time to live, 4; the hop's place and bound, 3; sizes, 4; interface, 2; tunnel, 2; whether a hop was chosen, and which, 3.
    cx.tally.instructions(18);
    cx.tally.execute(Op::Branch, 7);
    cx.tally.branch(Branch::Taken);
    cx.tally.read(Region::HopTable, frame.meta.hop as usize * 32, 32);
    let is_across = nat64::is_across(frame, cx);
    let Some(hop) = cx.shard.hops.get(frame.meta.hop) else { return Step::Drop(Reason::NeighbourUnknown) };
    frame.meta.egress = hop.interface;
    frame.meta.tunnel |= hop.tunnel;
    // Nobody has lowered that of what the gateway itself sends.
    if ttl <= 1 && frame.meta.flags & flag::OWN == 0 {
        return Step::Answer(Reason::TtlExpired);
    }
    if is_across {
        return nat64::fits(frame, cx);
    }
    if frame.meta.end - frame.meta.network > hop.mtu {
        return exceed(frame, hop);
    }
    Step::Next
}

/// Decides on a packet that exceeds the MTU of its hop, which is 0 while the neighbour is unresolved.
#[inline(never)]
fn exceed(frame: &mut Frame, hop: &Hop) -> Step {
    if hop.is_closed() {
        return Step::Drop(Reason::PppNotOpen);
    }
    if hop.mtu == 0 {
        frame.meta.hop |= WAITING;
        return Step::Next;
    }
    if frame.is_big() {
        // Its segments fit, or it would have been cut before (`pipeline/whole.rs`).
        return Step::Next;
    }
    if frame.meta.end - frame.meta.network <= hop.told_mtu(frame.meta.family) {
        // `encap` has fragments go outside.
        return Step::Next;
    }
    if frame.meta.flags & flag::DONT_FRAGMENT != 0 {
        return Step::Answer(Reason::PacketTooBig);
    }
    frame.meta.flags |= flag::CUT;
    Step::Next
}

/// True if the time to live has run out of a packet that shall leave to a neighbour without a number yet. Packets delivered
/// to the gateway itself are not checked.
#[cold]
#[inline(never)]
fn has_run_out(frame: &Frame, ttl: u8) -> bool {
    ttl <= 1 && frame.meta.flags & flag::OWN == 0 && waits(frame.meta.hop)
}

/// The time to live, or hop limit.
#[inline(always)]
pub(super) fn ttl(frame: &Frame) -> u8 {
    let Some(packet) = frame.bytes().get(usize::from(frame.meta.network)..) else { return 0 };
    if frame.meta.family == Family::V4 {
        ipv4::Header::of(packet).map_or(0, ipv4::Header::ttl)
    } else {
        ipv6::Header::of(packet).map_or(0, ipv6::Header::hop_limit)
    }
}

/// Tells what it took to find a hop, beside the search among routes.
#[inline(always)]
fn tell_find<T: Tally>(cx: &mut Cx<'_, T>) {
    // Addresses, out of the header or of what `dnat` has decided, 16; who opens, 6; the destination's kind and its target, 20; the path with
    // its hop, 14. Each by its branches.
    cx.tally.instructions(56);
    cx.tally.execute(Op::Branch, 26);
    cx.tally.branch(Branch::Taken);
}

/// The same of an ordinary packet of IPv4: with addresses of one word, and without groups.
#[inline(always)]
fn tell_find4<T: Tally>(cx: &mut Cx<'_, T>) {
    // Family and flags, 4; both addresses and the time to live across words, with their place and bound, 12; who opens, 2; kinds of both, 4;
    // the destination's target by place and bound, 7; the path with its hop, 8.
    cx.tally.instructions(37);
    cx.tally.execute(Op::Branch, 15);
    cx.tally.branch(Branch::Taken);
}

/// [`find`] for an [`ordinary`] packet where there are no security policies.
#[inline(always)]
fn find4<T: Tally>(frame: &mut Frame, ends: Ends4, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    tell_find4(cx);
    let source = Address::v4(ends.source);
    check_source(frame.meta.ingress, source, cx)?;
    let (mut destination, mut hash) = (ends.destination, 0);
    if let Some(opening) = cx.shard.openings.of(&frame.meta) {
        if opening.is_across() {
            return find(frame, cx);
        }
        (destination, hash) = (opening.destination().bits as u32, (opening.hash >> 32) as u32);
        if is_link_local4(destination) {
            to_self(frame);
            return Ok(());
        }
    }
    let (tables, vrf) = (cx.tables, vrf::of_packet(frame, cx));
    lead(frame, source, tables.route(vrf, Address::v4(destination), cx.tally), hash, cx)
}

/// Finds the hop, and checks the source.
#[inline(never)]
fn find<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Result<(), Step> {
    let (source, _) = header::addresses(frame);
    let destination = destination(frame, cx);
    let hash = cx.shard.openings.of(&frame.meta).map_or(0, |opening| (opening.hash >> 32) as u32);
    tell_find(cx);
    if frame.meta.flags & flag::TO_GROUP != 0 {
        if replicate::may_be_routed(frame, destination, cx.tables) {
            return Err(Step::Drop(Reason::MulticastUnrouted));
        }
        to_self(frame);
        return check_source(frame.meta.ingress, source, cx);
    }
    check_source(frame.meta.ingress, source, cx)?;
    if is_link_local(destination) {
        if frame.meta.flags & flag::OWN != 0 {
            frame.meta.hop = LINK_HOP;
            return Ok(());
        }
        // Link-local addresses are not in the policy; on its own link the gateway is who is meant.
        to_self(frame);
        return Ok(());
    }
    let vrf = vrf::of_packet(frame, cx);
    let mut target = cx.tables.route(vrf, destination, cx.tally).copied();
    if vrf == VrfId::DEFAULT && !cx.tables.tunnels.spd.is_empty() {
        target = protect::target(frame, target, cx)?;
    }
    lead(frame, source, target.as_ref(), hash, cx)
}

/// Takes the way that the best route leads. `hash` is the flow's, 0 where none is tracked.
#[inline(always)]
fn lead<T: Tally>(
    frame: &mut Frame,
    source: Address,
    target: Option<&Target>,
    hash: u32,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let target = target.ok_or(Step::Answer(Reason::RouteMissing))?;
    let group = frame.meta.flags & flag::GROUP != 0;
    if group && !matches!(target, Target::Broadcast(_)) {
        return Err(Step::Drop(Reason::LinkBroadcast));
    }
    // The usual target first, or it becomes one of the places of a jump table.
    let hop = if let Target::Gateways { first, count: 1 } = *target {
        cx.tables.way(first, 1, 0, cx.tally)
    } else {
        match other_way(frame, source, target, hash, cx)? {
            Some(LOCAL_HOP) => return Ok(()),
            hop => hop,
        }
    };
    if is_link_local(source) {
        return Err(Step::Drop(Reason::LinkLocal));
    }
    frame.meta.hop = hop.ok_or(Step::Drop(Reason::NeighbourUnknown))?;
    Ok(())
}

/// The hop of a target that is not one router, [`LOCAL_HOP`] where the packet is for the gateway; `None` where there is no
/// such hop.
fn other_way<T: Tally>(
    frame: &mut Frame,
    source: Address,
    target: &Target,
    hash: u32,
    cx: &mut Cx<'_, T>,
) -> Result<Option<u32>, Step> {
    match *target {
        Target::Gateways { first, count } => {
            let hash = if hash == 0 { spread(frame) } else { hash };
            Ok(cx.tables.way(first, count, hash, cx.tally))
        }
        Target::Wans => {
            let hash = if hash == 0 { spread(frame) } else { hash };
            let id = wan::choose(frame, source, hash, cx)?;
            let destination = destination(frame, cx);
            Ok(wan::exit(id, destination, cx).map(|exit| {
                frame.meta.egress = exit.interface;
                exit.hop
            }))
        }
        Target::Link(link) => {
            let destination = destination(frame, cx);
            frame.meta.egress = link;
            Ok(cx.shard.hops.neighbour(cx.tables, link, destination))
        }
        Target::Local => {
            to_self(frame);
            Ok(Some(LOCAL_HOP))
        }
        Target::Broadcast(_) if frame.meta.flags & flag::OWN != 0 => {
            frame.meta.flags |= flag::TO_GROUP;
            Ok(Some(LINK_HOP))
        }
        Target::Broadcast(link) if link == frame.meta.ingress => {
            frame.meta.flags |= flag::TO_GROUP;
            to_self(frame);
            Ok(Some(LOCAL_HOP))
        }
        Target::Broadcast(_) => Err(Step::Drop(Reason::BroadcastDirected)),
        Target::Blackhole => Err(Step::Drop(Reason::RouteBlackhole)),
        Target::Unreachable => Err(Step::Answer(Reason::RouteUnreachable)),
    }
}

/// The WAN that will be chosen for a packet, if its best route is the WANs'.
pub(crate) fn wan<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Option<WanChoice> {
    if frame.meta.hop != NO_HOP || frame.meta.flags & flag::TO_GROUP != 0 {
        return None;
    }
    let destination = destination(frame, cx);
    if cx.tables.route(vrf::of_packet(frame, cx), destination, cx.tally) != Some(&Target::Wans) {
        return None;
    }
    let hash = cx.shard.openings.of(&frame.meta).map_or(0, |opening| (opening.hash >> 32) as u32);
    let hash = if hash == 0 { spread(frame) } else { hash };
    wan::choice(frame, header::addresses(frame).0, hash, cx).ok()
}

/// The destination, after translation where one has been chosen.
#[inline(always)]
fn destination<T: Tally>(frame: &Frame, cx: &Cx<'_, T>) -> Address {
    match cx.shard.openings.of(&frame.meta) {
        Some(opening) => opening.destination(),
        None => header::addresses(frame).1,
    }
}

/// The hop that the packets of a flow which come back leave by, by the routes of a VRF: found at the first of them. `wan` is the flow's, if it has one;
/// `protected` gives the target in the place of
/// the route's where there are security policies.
pub(super) fn back<T: Tally>(
    frame: &mut Frame,
    towards: vrf::Towards,
    hash: u64,
    wan: Option<WanId>,
    protected: impl FnOnce(Option<Target>, &mut Cx<'_, T>) -> Result<Option<Target>, Reason>,
    cx: &mut Cx<'_, T>,
) -> Result<u32, Reason> {
    let vrf::Towards { vrf, address: destination } = towards;
    let mut target = cx.tables.route(vrf, destination, cx.tally).copied();
    if vrf == VrfId::DEFAULT && !cx.tables.tunnels.spd.is_empty() {
        target = protected(target, cx)?;
    }
    match target {
        Some(Target::Link(link)) => {
            frame.meta.egress = link;
            cx.shard.hops.neighbour(cx.tables, link, destination).ok_or(Reason::NeighbourUnknown)
        }
        Some(Target::Gateways { first, count }) => {
            cx.tables.way(first, count, (hash >> 32) as u32, cx.tally).ok_or(Reason::RouteMissing)
        }
        Some(Target::Wans) => {
            let id = match wan {
                Some(id) => id,
                None => {
                    let share = cx.tables.wans.share(destination.family(), (hash >> 32) as u32, cx.tally);
                    share.ok_or(Reason::RouteMissing)?
                }
            };
            let exit = wan::exit(id, destination, cx).ok_or(Reason::RouteMissing)?;
            frame.meta.egress = exit.interface;
            Ok(exit.hop)
        }
        Some(Target::Local) => {
            to_self(frame);
            Ok(LOCAL_HOP)
        }
        _ => Err(Reason::RouteMissing),
    }
}

/// The neighbour that a packet waits for.
pub(crate) fn awaited<T: Tally>(frame: &Frame, cx: &mut Cx<'_, T>) -> Wanted {
    if frame.meta.tunnel & tunnel::OUT != 0 {
        if let Some(wanted) = underlay::awaited(frame.meta.egress, cx) {
            return wanted;
        }
    }
    if let Some(owner) = cx.shard.hops.owner(frame.meta.hop) {
        return owner;
    }
    let address = match cx.shard.flows.flow(FlowId(frame.meta.flow)) {
        Some(flow) => {
            let direction = flag::direction(frame.meta.flags);
            flow.key(direction.turned()).source().into()
        }
        None => header::addresses(frame).1,
    };
    Wanted { interface: frame.meta.egress, address }
}

fn to_self(frame: &mut Frame) {
    frame.meta.hop = LOCAL_HOP;
    frame.meta.egress = LOCAL;
}

/// Source check: is the source at home behind the interface that the packet came in by?
#[inline(always)]
pub(super) fn check_source<T: Tally>(
    ingress: PortId,
    source: Address,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    let mut check = cx.tables.source_check;
    cx.tally.execute(Op::Branch, 1);
    if check != SourceCheck::Off {
        // The interface by place and bound, its check, 9.
        cx.tally.instructions(9);
        cx.tally.execute(Op::Branch, 3);
        let Some(interface) = cx.tables.interface(ingress) else { return Ok(()) };
        check = interface.source_check;
    }
    if check == SourceCheck::Off {
        // The bit of the address among 64, in two words, 8.
        cx.tally.instructions(8);
        cx.tally.execute(Op::Branch, 2);
        // Its own addresses nobody else has, wherever others are at home.
        let is_forged = !is_linux(ingress) && cx.tables.is_own(cx.tables.vrf_of(ingress), source);
        return if is_forged { Err(Step::Drop(Reason::SourceMartian)) } else { Ok(()) };
    }
    if check == SourceCheck::Strict && cx.tables.leaves_only_by(ingress, source, cx.tally) {
        return Ok(());
    }
    look_back(ingress, source, check, cx)
}

/// Unicast reverse path forwarding (RFC 3704): does the route to the source lead where the packet came from?
#[inline(never)]
fn look_back<T: Tally>(
    ingress: PortId,
    source: Address,
    check: SourceCheck,
    cx: &mut Cx<'_, T>,
) -> Result<(), Step> {
    // Kinds of addresses, 10; the target by place and bound, and the links that it leads to, likewise, 32.
    cx.tally.instructions(42);
    cx.tally.execute(Op::Branch, 16);
    if source.bits == 0 || is_link_local(source) {
        return Ok(());
    }
    let spoofed = Err(Step::Drop(Reason::SourceSpoofed));
    match cx.tables.route(cx.tables.vrf_of(ingress), source, cx.tally) {
        // The gateway's own address, or a network's broadcast address, as source.
        Some(Target::Local | Target::Broadcast(_)) => spoofed,
        Some(target) if check == SourceCheck::Strict => {
            if cx.tables.leads_by(target, ingress) {
                Ok(())
            } else {
                spoofed
            }
        }
        Some(Target::Blackhole | Target::Unreachable) | None => spoofed,
        Some(_) => Ok(()),
    }
}

/// Link-local groups, and what is sent to everybody on the link.
pub(super) fn is_ours(group: Address) -> bool {
    if group.v6 {
        // RFC 4291, section 2.7: scopes 1 and 2, interface and link.
        matches!(group.bits >> 112 & 0xf, 1 | 2)
    } else {
        let bits = group.bits as u32;
        // RFC 5771, section 4: 224.0.0.0/24 is never routed.
        bits == u32::MAX || bits >> 8 == 0x00e0_0000
    }
}

/// Group of searches for UPnP devices, where hosts of the zone may ask for outside ports by UPnP.
#[cold]
pub(super) fn is_search(ingress: PortId, group: Address, tables: &Tables) -> bool {
    group == SSDP && tables.nat.upnp_zones & (1 << tables.zone(ingress)) != 0
}

/// 169.254.0.0/16 (RFC 3927) or fe80::/10 (RFC 4291).
#[inline(always)]
pub(crate) fn is_link_local(address: Address) -> bool {
    if address.v6 {
        (address.bits >> 112) as u16 & 0xffc0 == LINK_LOCAL6
    } else {
        is_link_local4(address.bits as u32)
    }
}

#[inline(always)]
fn is_link_local4(address: u32) -> bool {
    address >> 16 == 0xa9fe
}

/// The upper 16 bits of fe80::/10.
const LINK_LOCAL6: u16 = 0xfe80;

/// Spreads flows over next hops where no flow is tracked: both ends mixed, so that packets of one flow take
/// one way.
fn spread(frame: &Frame) -> u32 {
    let (source, destination) = header::addresses(frame);
    let fold = |bits: u128| (bits as u64) ^ (bits >> 64) as u64;
    let ports = u64::from(frame.meta.sport) << 16 | u64::from(frame.meta.dport);
    let mixed = (fold(source.bits) ^ ports.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ fold(destination.bits).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}
