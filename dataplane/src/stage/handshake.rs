//! Handshakes that the gateway makes for a server (`syn = "proxy"`), as netfilter's SYNPROXY.
//!
//! A SYN is answered with a cookie as initial sequence number and a closed window, and forgotten ([`answer`]). The segment
//! that acknowledges the cookie ([`shown`]) becomes the client's SYN again ([`begin`]) and opens a flow as any SYN does, on
//! its way to the server. The server's SYN-ACK becomes an acknowledgement that opens the client's window, and beside it goes
//! one to the server ([`splice`]). From then on the server's sequence numbers are moved by the difference of its initial
//! number and the cookie, and windows are brought to the scale that their receiver was told. The flow tracks the
//! sequence numbers that the server sees ([`join`]).
//!
//! Promises: nothing is remembered before a cookie was acknowledged; no timer: what is lost on the server's side is sent
//! again when the client or the server repeats itself. Data that the client sends before its window is open is not
//! acknowledged, and comes again. Agreed on are the segment size, window scales and selective acknowledgements; neither
//! timestamps nor ECN.

use arrayvec::ArrayVec;
use tally::Tally;
use wire::checksum::{Delta, Sum};
use wire::header::{Ports, Protocol, RawOptions};
use wire::tcp::{self, Flags, TcpOption};
use wire::vlan::Priority;
use wire::{Dscp, Family, Frame, Part, PortId, ipv4, ipv6};

use super::own::{IpHeader, note, pseudo};
use super::{Cx, Step, header, link};
use crate::cookie::{self, Cookies, Offer, Sack};
use crate::flag;
use crate::flow::tcp::Segment;
use crate::flow::{Direction, FlowId, Handshake, Hit, Key};
use crate::hop::leaves;
use crate::tables::{Address, LOCAL};
use crate::verdict::Reason;

/// The window scale that clients are told to apply to the server's windows: 65,535 << 7 is 8 MiB.
const SCALE: u8 = 7;

/// Bytes of the options of a SYN: segment size, window scale, selective acknowledgements, with padding.
const OPTIONS: usize = 12;

/// A cookie that a segment acknowledges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// The cookie.
    pub(super) cookie: u32,
    /// The client's initial sequence number.
    isn: u32,
    /// Options of the client's SYN.
    offer: Offer,
}

/// A TCP header to be written, without data.
struct Head {
    ports: Ports,
    seq: u32,
    ack: u32,
    flags: Flags,
    window: u16,
    options: ArrayVec<u8, OPTIONS>,
}

/// Turns a SYN into the SYN-ACK that has a cookie. No link-layer header stands before it then.
#[cold]
pub(super) fn answer<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Option<()> {
    let is_v4 = frame.meta.family == Family::V4;
    // The cookie, options of the SYN, 20, and of the answer, 12.
    cx.tally.instructions(32 + if is_v4 { cookie::INSTRUCTIONS4 } else { cookie::INSTRUCTIONS6 });
    let (client, server) = header::addresses(frame);
    let segment = segment(frame)?;
    let offer = offered(&segment, is_v4);
    let (seq, Ports { sport, dport }) = (segment.header.seq(), segment.header.ports());
    let key = cx.shard.openings.of(&frame.meta)?.key;
    let cookie = cx.shard.cookies.make(&key, seq, &offer, frame.meta.received);
    let mine = Offer { mss: largest(frame.meta.ingress, frame.meta.egress, is_v4, cx), ..offer };
    let head = Head {
        ports: Ports { sport: dport, dport: sport },
        seq: cookie,
        ack: seq.wrapping_add(1),
        flags: Flags::SYN_ACK,
        // Until the server has answered, nobody would take the data.
        window: 0,
        options: options(Offer { scale: offer.scale.map(|_| SCALE), ..mine }),
    };
    frame.truncate(0);
    head.send(frame, server, client)
}

/// The cookie that a segment acknowledges, if it is one: also one that tries a closed window, whose number is one lower.
#[cold]
pub(super) fn shown<T: Tally>(frame: &Frame, key: &Key, cx: &mut Cx<'_, T>) -> Option<Shown> {
    let not_own = frame.meta.flags & flag::OWN == 0;
    if frame.meta.protocol != Protocol::TCP.0 || frame.meta.part != Part::Whole || !not_own {
        return None;
    }
    if !acknowledges(Flags(frame.meta.tcp_flags)) {
        return None;
    }
    // At worst two are looked for.
    let instructions = if key.is_v4() { cookie::INSTRUCTIONS4 } else { cookie::INSTRUCTIONS6 };
    cx.tally.instructions(2 * instructions);
    let header = segment(frame)?.header;
    let cookie = header.ack().wrapping_sub(1);
    [header.seq().wrapping_sub(1), header.seq()].into_iter().find_map(|isn| {
        let offer = cx.shard.cookies.open(key, isn, cookie, frame.meta.received)?;
        Some(Shown { cookie, isn, offer })
    })
}

/// True if a segment is one that acknowledges, and neither opens nor resets.
fn acknowledges(flags: Flags) -> bool {
    flags.contains(Flags::ACK) && !flags.intersects(Flags::SYN.and(Flags::RST))
}

/// Turns the segment that shows a cookie into the SYN that was answered with it.
#[cold]
pub(super) fn begin(frame: &mut Frame, shown: &Shown) -> Option<()> {
    let header = segment(frame)?.header;
    let window = u32::from(header.window()) << shown.offer.scale.unwrap_or(0);
    let head = Head {
        ports: header.ports(),
        seq: shown.isn,
        ack: 0,
        flags: Flags::SYN,
        window: window.min(u16::MAX.into()) as u16,
        options: options(shown.offer),
    };
    head.replace(frame)
}

/// Returns a segment of a flow with such a handshake as the server sees the segment. A segment that acknowledges the cookie
/// once more becomes the SYN once more.
///
/// # Errors
/// Step for a segment that the handshake does not admit.
#[cold]
#[inline(never)]
pub(super) fn join<T: Tally>(
    frame: &mut Frame,
    hit: Hit,
    segment: Segment,
    cx: &mut Cx<'_, T>,
) -> Result<Segment, Step> {
    let handshake = cx.shard.flows.handshake(hit.id);
    let Some(flow) = cx.shard.flows.flow(hit.id) else { return Err(Step::Drop(Reason::FlowNotOpen)) };
    match (handshake, hit.direction) {
        (Handshake::Shown(cookie), Direction::Original) => {
            if segment.flags.intersects(Flags::RST) {
                return Ok(segment);
            }
            let isn = flow.windows().end[0].wrapping_sub(1);
            let is_shown = acknowledges(segment.flags)
                && segment.ack == cookie.wrapping_add(1)
                && segment.seq.wrapping_sub(isn) <= 1;
            if !is_shown || frame.meta.part != Part::Whole {
                return Err(Step::Drop(Reason::TcpState));
            }
            let offer = Cookies::read(cookie, flow.original());
            begin(frame, &Shown { cookie, isn, offer }).ok_or(Step::Drop(Reason::SlotTooSmall))?;
            let again = self::segment(frame).ok_or(Step::Drop(Reason::TransportLength))?;
            Ok(Segment::of(&again))
        }
        (Handshake::Shown(cookie), Direction::Reply) => {
            let answers = segment.flags.contains(Flags::ACK) && segment.ack == flow.windows().end[0];
            if !answers && segment.flags.intersects(Flags::RST) {
                return Err(Step::Drop(Reason::TcpWindow));
            }
            // Both open at once: nobody has told the server's side of that client yet.
            if segment.flags.masked(Flags::SYN_ACK) == Flags::SYN {
                return Err(Step::Drop(Reason::TcpState));
            }
            if !answers || !segment.flags.intersects(Flags::SYN.and(Flags::RST)) {
                return Err(Step::Answer(Reason::SynProxied));
            }
            // A reset takes no number: the client shall see it where its SYN-ACK has ended.
            let is_reset = segment.flags.intersects(Flags::RST);
            let first = if is_reset { cookie.wrapping_add(1) } else { cookie };
            let spliced = Handshake::Spliced(segment.seq.wrapping_sub(first));
            let noted = cx.shard.flows.set_handshake(hit.id, spliced);
            cx.shard.changes.note(hit.id);
            noted.map(|()| segment).map_err(|_| Step::Drop(Reason::FlowTableFull))
        }
        (Handshake::Spliced(shift), Direction::Original) => {
            let window = to_server(segment.window, flow.scales());
            Ok(Segment { ack: segment.ack.wrapping_add(shift), window, ..segment })
        }
        (Handshake::Spliced(_), Direction::Reply)
        | (Handshake::Direct | Handshake::Helped(_) | Handshake::Related, _) => Ok(segment),
    }
}

/// Returns the difference between the sequence number quoted in an ICMP error of this direction and the server's.
pub(super) fn quoted_shift<T>(hit: Hit, cx: &Cx<'_, T>) -> u32 {
    let is_proxied = cx.shard.flows.flow(hit.id).is_some_and(|flow| flow.is_proxied());
    if !is_proxied || hit.direction == Direction::Reply {
        return 0;
    }
    // What was quoted went the other way, to the client.
    match cx.shard.flows.handshake(hit.id) {
        Handshake::Spliced(shift) => shift,
        Handshake::Shown(_) | Handshake::Direct | Handshake::Helped(_) | Handshake::Related => 0,
    }
}

/// Gives a packet whose addresses have been translated the numbers that its receiver knows.
#[cold]
#[inline(never)]
pub(super) fn splice<T: Tally>(frame: &mut Frame, direction: Direction, cx: &mut Cx<'_, T>) {
    // Numbers, windows and checksum, 40; a walk over options, 20.
    cx.tally.instructions(60);
    let id = FlowId(frame.meta.flow);
    let Handshake::Spliced(shift) = cx.shard.flows.handshake(id) else { return };
    let Some(flow) = cx.shard.flows.flow(id) else { return };
    let (scales, onward) = (flow.scales(), flow.hops[Direction::Original as usize]);
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    if frame.meta.flags & flag::RELATED != 0 {
        if direction == Direction::Original {
            if let Some(message) = frame.bytes_mut().get_mut(range) {
                move_quoted(message, |seq| seq.wrapping_add(shift));
            }
        }
        return;
    }
    // A later fragment has no header.
    if frame.meta.part == Part::Later {
        return;
    }
    if direction == Direction::Reply && frame.meta.tcp_flags & Flags::SYN.0 != 0 {
        let _ = complete(frame, shift, scales, onward, cx);
    } else if let Some(segment) = frame.bytes_mut().get_mut(range) {
        let _ = move_numbers(segment, direction, shift, scales);
    }
}

/// Turns the server's SYN-ACK into an acknowledgement that opens the client's window; one to the server goes beside it.
fn complete<T: Tally>(
    frame: &mut Frame,
    shift: u32,
    scales: [Option<u8>; 2],
    onward: u32,
    cx: &mut Cx<'_, T>,
) -> Option<()> {
    let id = FlowId(frame.meta.flow);
    let header = segment(frame)?.header;
    let (seq, ack, window) = (header.seq(), header.ack(), header.window());
    let (ports, plain) = (header.ports(), ArrayVec::new());
    // The window of a SYN is not scaled.
    let window = if scales[0].is_some() { window >> SCALE } else { window };
    let seq = seq.wrapping_add(1);
    let head = Head { ports, seq: seq.wrapping_sub(shift), ack, flags: Flags::ACK, window, options: plain };
    head.replace(frame)?;
    frame.meta.flags &= !flag::CUT;
    let flow = cx.shard.flows.flow(id)?;
    let key = *flow.reply();
    let offers = flow.windows().max_window[0];
    let scale = if scales[1].is_some() { scales[0].unwrap_or(0) } else { 0 };
    let head = Head {
        ports: Ports { sport: key.dport(), dport: key.sport() },
        seq: ack,
        ack: seq,
        flags: Flags::ACK,
        window: (offers >> scale).min(u16::MAX.into()) as u16,
        options: ArrayVec::new(),
    };
    let way = *cx.shard.hops.get(onward).filter(|hop| leaves(onward) && hop.is_known())?;
    if cx.shard.parts.len() == cx.shard.parts.capacity() {
        return None;
    }
    let mut beside = cx.pool.take()?;
    beside.meta = frame.meta.clone();
    (beside.meta.hop, beside.meta.egress, beside.meta.tunnel) = (onward, way.interface, way.tunnel);
    // The gateway's own, which goes the way of the client's packets, as one of their class.
    (beside.meta.ingress, beside.meta.outer_tree) = (LOCAL, 0);
    beside.meta.flags &= !flag::REPLY;
    let kind = cx.tables.classes.kind(Dscp::of_field(0), Priority::DEFAULT);
    let class = cx.shard.flows.classes.get(id).and_then(|of| of.class(Direction::Original, kind));
    (beside.meta.class, beside.meta.colour) = (class.unwrap_or(0), 0);
    let is_sent = head.send(&mut beside, key.destination().into(), key.source().into());
    if is_sent.is_none() || !link::replace(&mut beside, cx) {
        cx.pool.put(beside);
        return None;
    }
    cx.shard.parts.push_back(beside);
    frame.meta.parts = 1;
    Some(())
}

/// Moves the numbers of a segment, and brings its window to the scale that its receiver was told.
fn move_numbers(segment: &mut [u8], direction: Direction, shift: u32, scales: [Option<u8>; 2]) -> Option<()> {
    let header = tcp::Header::of(segment)?;
    let (seq, ack, old) = (header.seq(), header.ack(), header.window());
    let (has_ack, end) = (header.flags().contains(Flags::ACK), header.header_len());
    let mut delta = Delta::NONE;
    let new = match direction {
        Direction::Original => to_server(old, scales),
        Direction::Reply => to_client(old, scales),
    };
    if direction == Direction::Reply {
        put(segment, 4, seq.wrapping_sub(shift), &mut delta)?;
    } else if has_ack {
        put(segment, 8, ack.wrapping_add(shift), &mut delta)?;
        let mut edges: ArrayVec<usize, 8> = ArrayVec::new();
        let options = RawOptions::new(segment.get(tcp::MIN_HEADER_LEN..end).unwrap_or(&[]));
        for option in options.map_while(Result::ok).filter(|option| option.kind == SACK) {
            let first = tcp::MIN_HEADER_LEN + option.at + 2;
            edges.extend((first..).step_by(4).take(option.data.len() / 4).take(edges.remaining_capacity()));
        }
        for at in edges {
            let bytes = segment.get(at..at + 4)?.first_chunk()?;
            put(segment, at, u32::from_be_bytes(*bytes).wrapping_add(shift), &mut delta)?;
        }
    }
    let mut header = tcp::HeaderMut::of(segment)?;
    header.set_window(new);
    header.adjust_checksum(delta.change16(old, new));
    Some(())
}

/// The option of selective acknowledgements (RFC 2018).
pub(super) const SACK: u8 = 5;

/// Gives the segment that an ICMP message quotes the number that its sender knows.
pub(super) fn move_quoted(message: &mut [u8], known: impl Fn(u32) -> u32) -> Option<()> {
    let quoted = message.get(8..)?;
    let at = match quoted.first()? >> 4 {
        4 => ipv4::parse_prefix(quoted).ok()?.header.header_len(),
        _ => ipv6::parse_prefix(quoted).ok()?.payload_at(),
    };
    let segment = message.get_mut(8 + at..)?;
    let seq = u32::from_be_bytes(*segment.get(4..8)?.first_chunk()?);
    let mut delta = Delta::NONE;
    put(segment, 4, known(seq), &mut delta)?;
    // The checksum quoted with it takes up the difference, where it is there; else that of the message does.
    if let Some(mut header) = tcp::HeaderMut::of(segment) {
        header.adjust_checksum(delta);
        return Some(());
    }
    let checksum = message.get_mut(2..4)?.first_chunk_mut::<2>()?;
    *checksum = delta.apply(u16::from_be_bytes(*checksum)).to_be_bytes();
    Some(())
}

/// Writes a number, and notes what that does to the checksum.
pub(super) fn put(bytes: &mut [u8], at: usize, new: u32, delta: &mut Delta) -> Option<()> {
    let field = bytes.get_mut(at..at + 4)?.first_chunk_mut::<4>()?;
    let old = u32::from_be_bytes(*field);
    *delta = if at % 2 == 0 {
        delta.change32(old, new)
    } else {
        let upper = delta.change16_at_odd((old >> 16) as u16, (new >> 16) as u16);
        upper.change16_at_odd(old as u16, new as u16)
    };
    *field = new.to_be_bytes();
    Some(())
}

/// A window of the client as the server reads it: one that has no scales takes the client's as it stands.
fn to_server(window: u16, scales: [Option<u8>; 2]) -> u16 {
    match scales {
        [Some(scale), None] => (u32::from(window) << scale).min(u16::MAX.into()) as u16,
        _ => window,
    }
}

/// A window of the server in the scale that the client was told; rounded down.
fn to_client(window: u16, [client, server]: [Option<u8>; 2]) -> u16 {
    if client.is_none() {
        return window;
    }
    let window = u32::from(window) << server.unwrap_or(0);
    (window >> SCALE).min(u16::MAX.into()) as u16
}

/// Returns the options that a SYN offers, or their defaults.
fn offered(segment: &tcp::Segment<'_>, is_v4: bool) -> Offer {
    // RFC 9293, section 3.7.1: what holds where nothing is said.
    let mut offer = Offer { mss: if is_v4 { 536 } else { 1220 }, scale: None, sack: Sack::Unknown };
    for option in segment.options().map_while(Result::ok) {
        match option {
            TcpOption::Mss(mss) => offer.mss = mss,
            TcpOption::WindowScale(scale) => offer.scale = Some(scale),
            TcpOption::SackPermitted => offer.sack = Sack::Permitted,
            _ => {}
        }
    }
    offer
}

/// The options of a SYN that offers this.
fn options(offer: Offer) -> ArrayVec<u8, OPTIONS> {
    let [high, low] = offer.mss.to_be_bytes();
    let mut options = ArrayVec::new();
    options.extend([2, 4, high, low]);
    if offer.sack == Sack::Permitted {
        options.extend([1, 1, 4, 2]);
    }
    if let Some(scale) = offer.scale {
        options.extend([1, 3, 3, scale]);
    }
    options
}

/// The largest segment that both links carry.
fn largest<T>(ingress: PortId, egress: PortId, is_v4: bool, cx: &Cx<'_, T>) -> u16 {
    let of = |id| {
        cx.tables.interface(id).map_or(u16::MAX, |own| {
            let (headers, clamp) = if is_v4 { (40, own.mss4) } else { (60, own.mss6) };
            clamp.min(own.mtu.saturating_sub(headers))
        })
    };
    of(ingress).min(of(egress))
}

/// The TCP segment of a packet.
fn segment(frame: &Frame) -> Option<tcp::Segment<'_>> {
    let range = usize::from(frame.meta.transport)..usize::from(frame.meta.end);
    tcp::parse(frame.bytes().get(range)?).ok()
}

impl Head {
    fn len(&self) -> usize {
        tcp::MIN_HEADER_LEN + self.options.len()
    }

    /// Writes the header, with its checksum.
    fn write(&self, bytes: &mut [u8], from: Address, to: Address) -> Option<()> {
        bytes.get_mut(..tcp::MIN_HEADER_LEN)?.fill(0);
        let mut out = tcp::HeaderMut::of(bytes)?;
        out.set_sport(self.ports.sport);
        out.set_dport(self.ports.dport);
        out.set_seq(self.seq);
        out.set_ack(self.ack);
        out.set_header_len(self.len());
        out.set_flags(self.flags);
        out.set_window(self.window);
        bytes.get_mut(tcp::MIN_HEADER_LEN..self.len())?.copy_from_slice(&self.options);
        let sum = pseudo(from, to, Protocol::TCP, self.len()).and(bytes.get(..self.len())?).checksum();
        tcp::HeaderMut::of(bytes)?.set_checksum(sum);
        Some(())
    }

    /// Makes an empty frame a packet of the gateway with this header. No link-layer header stands before it.
    fn send(&self, frame: &mut Frame, from: Address, to: Address) -> Option<()> {
        let header_len = if from.v6 { 40 } else { 20 };
        let bytes = frame.push_back(header_len + self.len())?;
        bytes.fill(0);
        IpHeader { from, to, protocol: Protocol::TCP, payload_len: self.len(), ds_field: 0, id: 0 }
            .write(bytes)?;
        self.write(bytes.get_mut(header_len..)?, from, to)?;
        note(frame, header_len);
        Some(())
    }

    /// Puts this header in the place of the packet's, and of its data; the IP header stays, but for its length.
    fn replace(&self, frame: &mut Frame) -> Option<()> {
        let (from, to) = header::addresses(frame);
        let (network, transport) = (usize::from(frame.meta.network), usize::from(frame.meta.transport));
        frame.truncate(transport);
        self.write(frame.push_back(self.len())?, from, to)?;
        frame.meta.end = frame.len() as u16;
        frame.meta.tcp_flags = self.flags.0;
        let len = frame.len() - network;
        let packet = frame.bytes_mut().get_mut(network..)?;
        if from.v6 {
            ipv6::HeaderMut::of(packet)?.set_payload_len((len - ipv6::HEADER_LEN) as u16);
        } else {
            let header_len = transport - network;
            let mut header = ipv4::HeaderMut::of(packet)?;
            header.set_total_len(len as u16);
            header.set_checksum(0);
            let checksum = Sum::of(packet.get(..header_len)?).checksum();
            ipv4::HeaderMut::of(packet)?.set_checksum(checksum);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
    use wire::checksum::Sum;
    use wire::tcp;

    use super::{move_numbers, to_client, to_server};
    use crate::flow::Direction;

    /// A header with two blocks that are acknowledged selectively, behind so many bytes of padding.
    fn segment(numbers: [u32; 6], window: u16, padding: usize) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        let mut options = vec![1; padding];
        options.extend([5, 18]);
        options.extend(numbers[2..].iter().flat_map(|number| number.to_be_bytes()));
        options.resize(options.len().next_multiple_of(4), 0);
        bytes.extend(&options);
        bytes.extend(b"data");
        let mut header = tcp::HeaderMut::of(&mut bytes).unwrap();
        header.set_seq(numbers[0]);
        header.set_ack(numbers[1]);
        header.set_flags(tcp::Flags::ACK);
        header.set_header_len(20 + options.len());
        header.set_window(window);
        let checksum = Sum::of(&bytes).checksum();
        tcp::HeaderMut::of(&mut bytes).unwrap().set_checksum(checksum);
        bytes
    }

    /// Sequence and acknowledgement number, and the edges of the blocks.
    fn numbers(bytes: &[u8]) -> [u32; 6] {
        let segment = tcp::parse(bytes).unwrap();
        let mut found = [segment.header.seq(), segment.header.ack(), 0, 0, 0, 0];
        for option in segment.options().map_while(Result::ok) {
            if let tcp::TcpOption::Sack(blocks) = option {
                for (number, edge) in found[2..].iter_mut().zip(blocks.chunks(4)) {
                    *number = u32::from_be_bytes(edge.try_into().unwrap());
                }
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

        #[test]
        fn numbers_move_by_the_shift_and_back(
            (before, shift, window) in any::<([u32; 6], u32, u16)>(),
            padding in 0..4usize,
        ) {
            let [seq, ack, a, b, c, d] = before;
            let by = |number: u32| number.wrapping_add(shift);
            let cases = [
                (Direction::Original, [seq, by(ack), by(a), by(b), by(c), by(d)]),
                (Direction::Reply, [seq.wrapping_sub(shift), ack, a, b, c, d]),
            ];
            for (direction, after) in cases {
                let first = segment(before, window, padding);
                let mut bytes = first.clone();
                move_numbers(&mut bytes, direction, shift, [None, None]).unwrap();
                prop_assert_eq!(numbers(&bytes), after);
                prop_assert!(Sum::of(&bytes).verifies(), "the checksum follows");
                move_numbers(&mut bytes, direction, shift.wrapping_neg(), [None, None]).unwrap();
                prop_assert_eq!(&bytes[..16], &first[..16]);
                prop_assert_eq!(&bytes[18..], &first[18..]);
                prop_assert!(Sum::of(&bytes).verifies());
            }
        }

        #[test]
        fn a_window_is_never_larger_for_its_receiver_than_its_sender_offers(
            (window, client, server) in (any::<u16>(), 0..15u8, proptest::option::of(0..15u8)),
        ) {
            let scales = [Some(client), server];
            // The client reads it by the scale that it was told, the server by the client's if it has one itself.
            let offered = u64::from(window) << server.unwrap_or(0);
            let read = u64::from(to_client(window, scales)) << super::SCALE;
            prop_assert!(read <= offered && (offered - read < 128 || to_client(window, scales) == u16::MAX));
            let offered = u64::from(window) << client;
            let read = u64::from(to_server(window, scales)) << if server.is_some() { client } else { 0 };
            prop_assert!(read == offered || server.is_none() && read == offered.min(65_535));
        }
    }
}
