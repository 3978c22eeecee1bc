//! Invariants of a gateway and its output, for any input.

use std::collections::{HashMap, HashSet};

use dataplane::{Delivery, Reason, Verdict};
use wire::esp::NAT_PORT;
use wire::ethernet::EtherType;
use wire::header::Protocol;
use wire::{ethernet, icmpv4, ipv4, ipv6, tcp, udp};

use super::policy::{LAN, Scene, Translation, WAN, WAN2};
use dataplane::tables::{LOCAL, is_linux};

use super::{Arrival, Gateway, Local, Out, Sent};

/// Asserts the invariants between batches.
pub fn gateway(gateway: &Gateway) {
    assert!(gateway.shard.released.is_empty(), "frames are left behind");
    gateway_at_any_moment(gateway);
}

/// Asserts the invariants that hold also after an event from the host.
pub fn gateway_at_any_moment(gateway: &Gateway) {
    let Gateway { shard, pool, .. } = gateway;
    let counters = &shard.counters;
    assert!(counters.are_conserved(), "not conserved: {counters:?}");
    assert_eq!(counters.held, gateway.held() as u64, "held frames are miscounted");
    assert!(shard.parts.is_empty(), "frames are left behind");
    assert!(shard.openings.is_empty(), "openings are left behind");
    let out = gateway.held() + gateway.queued() + gateway.ended();
    assert_eq!(pool.available() + out, pool.capacity(), "slots are lost");
    flows(gateway);
}

/// No two flows share a key; every mapping is held by exactly the flows and expectations that use it, and every count is of a flow.
fn flows(gateway: &Gateway) {
    let mut keys = HashSet::new();
    let mut references: HashMap<u32, u32> = HashMap::new();
    let (mut count, mut counted) = (0, 0);
    for (id, flow) in gateway.shard.flows.iter() {
        count += 1;
        assert!(keys.insert(*flow.original()), "{:?} twice", flow.original());
        assert!(keys.insert(*flow.reply()), "{:?} twice", flow.reply());
        let cold = gateway.shard.flows.cold(id).expect("it lives");
        counted += [cold.limit, cold.source].iter().filter(|count| **count != u32::MAX).count() as u64;
        for mapping in [cold.mapping, cold.inward] {
            if mapping != u32::MAX {
                *references.entry(mapping).or_default() += 1;
            }
        }
    }
    for mapping in gateway.shard.expected_mappings() {
        *references.entry(mapping.0).or_default() += 1;
    }
    assert_eq!(count, gateway.shard.flows.len());
    assert_eq!(counted, gateway.shard.limiter.counted(), "connections are miscounted");
    let mut outside = HashSet::new();
    for mapping in gateway.shard.mappings.iter() {
        let used = references.remove(&mapping.id.0).unwrap_or(0);
        assert_eq!(mapping.references, used, "references to {mapping:?}");
        assert!(outside.insert(mapping.outside), "{} handed out twice", mapping.outside);
    }
    assert!(references.is_empty(), "flows hold mappings that are no more: {references:?}");
}

/// True for a frame of ESP, in UDP or not.
pub fn is_esp(frame: &[u8]) -> bool {
    let Ok(layer) = ethernet::parse(frame) else { return false };
    let (protocol, payload) = match layer.ethertype {
        EtherType::IPV4 => match ipv4::parse_prefix(layer.payload) {
            Ok(packet) => (packet.header.protocol(), packet.payload),
            Err(_) => return false,
        },
        _ => match ipv6::parse_prefix(layer.payload) {
            Ok(packet) => (packet.protocol(), packet.payload),
            Err(_) => return false,
        },
    };
    let ports = udp::Header::of(payload).map(|header| (header.sport(), header.dport()));
    let is_nat_port = ports.is_some_and(|(one, other)| one == NAT_PORT || other == NAT_PORT);
    protocol == Protocol::ESP || protocol == Protocol::UDP && is_nat_port
}

/// True for an IPv4 fragment that is not the first of its packet: it may be the last one of ESP in UDP, and has no ports to tell.
fn is_later_part(frame: &[u8]) -> bool {
    let Ok(layer) = ethernet::parse(frame) else { return false };
    layer.ethertype == EtherType::IPV4
        && ipv4::parse_prefix(layer.payload)
            .is_ok_and(|packet| packet.header.flags_and_offset() & 0x1fff != 0)
}

/// Asserts the invariants of a frame that left, beside the one that came in.
pub fn sent(scene: &Scene, arrivals: &HashMap<u32, Arrival>, sent: &Sent) {
    let arrival = arrivals.get(&sent.number);
    let Some(out) = Seen::of(&sent.bytes) else { panic!("what left is no IP packet: {:02x?}", sent.bytes) };
    assert!(out.header_is_right, "IPv4 checksum of {out:?}");
    assert!(out.link_is_right, "padding behind, or a wrong length of {out:?}");
    let arrived = arrival.and_then(|arrival| Seen::of(&arrival.bytes));
    match sent.verdict {
        Some(Verdict::Answered(_)) => {
            assert!(
                arrival.is_none_or(|arrival| !is_linux(arrival.port)),
                "an answer to the gateway itself leaves"
            );
            assert!(out.transport_is_right != Some(false), "an answer with a wrong checksum: {out:?}");
        }
        Some(Verdict::Forwarded) => {
            let arrived = arrived.expect("what is forwarded came in as a packet");
            // In a tunnel, or out of it, it is another packet: `tests/esp.rs` looks into those.
            let may_be_esp = |arrival: &Arrival| is_esp(&arrival.bytes) || is_later_part(&arrival.bytes);
            if scene.has_tunnel && (is_esp(&sent.bytes) || arrival.is_some_and(may_be_esp)) {
                return;
            }
            let is_own = arrival.is_some_and(|arrival| is_linux(arrival.port));
            assert_eq!(out.ttl + u8::from(!is_own), arrived.ttl, "time to live");
            if arrived.transport_is_right == Some(true) && out.is_whole {
                assert_eq!(out.transport_is_right, Some(true), "checksum of {out:?} from {arrived:?}");
            }
            // A header of IPv6 has no sum.
            if arrived.quote_is_right == Some(true) && out.is_whole && out.protocol == Protocol::ICMP {
                assert_eq!(out.quote_is_right, Some(true), "checksum of the header quoted in {out:?}");
            }
            let is_icmp = |protocol| matches!(protocol, Protocol::ICMP | Protocol::ICMPV6);
            let is_across = out.ethertype != arrived.ethertype;
            // Between IP versions (NAT64) ICMP has the other version's number, and a fragment that of the first one, whatever its own
            // Next Header says (RFC 8200, section 4.5).
            if !is_across || !is_icmp(arrived.protocol) && arrived.is_whole {
                assert_eq!(out.protocol, arrived.protocol);
            }
        }
        Some(other) => panic!("{other} and sent"),
        None => {}
    }
    let leaves = sent.port == WAN || sent.port == WAN2;
    let hides = matches!(scene.translation, Translation::Masquerade | Translation::Pool);
    let from_inside = arrival.is_some_and(|arrival| arrival.port.0 == LAN);
    if leaves && hides && from_inside && matches!(sent.verdict, Some(Verdict::Forwarded)) {
        // Whoever was let in to an inside address from outside knows it, and is answered from there.
        let is_known = |inside| {
            let from_outside =
                arrivals.values().filter(|arrival| arrival.port.0 != LAN && !is_linux(arrival.port));
            from_outside.filter_map(|arrival| Seen::of(&arrival.bytes)).any(|seen| seen.destination == inside)
        };
        if is_known(out.source) || out.quoted.is_some_and(|(_, to)| is_known(to)) {
            return;
        }
        assert!(!is_inside(out.source), "an inside address leaks: {out:?}");
        if let Some((_, to)) = out.quoted {
            assert!(!is_inside(to), "an inside address leaks in a quote: {out:?}");
        }
    }
}

/// Asserts the invariants of frames that ended here, beside those that came in.
pub fn ended(arrivals: &HashMap<u32, Arrival>, out: &Out) {
    for (number, verdict) in &out.ended {
        if arrivals.get(number).is_some_and(|arrival| arrival.port == LOCAL) {
            let judged = [
                Reason::RuleDrop,
                Reason::RuleReject,
                Reason::DefaultDrop,
                Reason::DefaultReject,
                Reason::RateLimit,
                Reason::ConnectionLimit,
                Reason::FlowLimit,
                Reason::NatPorts,
                Reason::SourceSpoofed,
                Reason::MulticastUnrouted,
                Reason::LinkBroadcast,
                Reason::TtlExpired,
            ];
            let reason = verdict.reason();
            assert!(
                !reason.is_some_and(|reason| judged.contains(&reason)),
                "{verdict} for the gateway itself"
            );
        }
    }
    for local in &out.local {
        let arrival = arrivals.get(&local.number).expect("it came in");
        to_itself(local, arrival);
    }
}

/// Asserts the invariants of frames delivered to the gateway itself, or unchanged to a link.
fn to_itself(local: &Local, arrival: &Arrival) {
    if local.delivery == Delivery::Link {
        assert!(is_linux(arrival.port) && local.bytes == arrival.bytes, "it is changed: {local:?}");
    }
    if let Verdict::Answered(_) = local.verdict {
        assert!(is_linux(arrival.port), "an answer that stays here: {local:?}");
        let seen = Seen::of(&local.bytes).expect("an answer is a packet");
        let arrived = Seen::of(&arrival.bytes).expect("a packet is answered");
        assert_eq!((seen.source, seen.destination), (arrived.destination, arrived.source), "{local:?}");
        assert!(seen.header_is_right && seen.link_is_right && seen.transport_is_right == Some(true));
        assert_eq!((&local.bytes[..6], &local.bytes[6..12]), (&arrival.bytes[6..12], &arrival.bytes[..6]));
    }
}

fn is_inside(address: u128) -> bool {
    address >> 16 == 0xc0a8
}

/// A packet, looked at anew: every sum from the bytes.
#[derive(Debug)]
pub struct Seen {
    pub ethertype: EtherType,
    pub source: u128,
    pub destination: u128,
    pub ttl: u8,
    pub protocol: Protocol,
    pub is_whole: bool,
    pub header_is_right: bool,
    pub link_is_right: bool,
    /// `None` where there is none, or it cannot be known.
    pub transport_is_right: Option<bool>,
    pub quote_is_right: Option<bool>,
    pub quoted: Option<(u128, u128)>,
}

impl Seen {
    pub fn of(frame: &[u8]) -> Option<Seen> {
        let layer = ethernet::parse(frame).ok()?;
        match layer.ethertype {
            EtherType::IPV4 => {
                let packet = ipv4::parse_prefix(layer.payload).ok()?;
                let header = packet.header;
                let total = usize::from(header.total_len());
                let payload = layer.payload.get(header.header_len()..total)?;
                let is_whole = !header.is_fragment();
                let pseudo = wire::checksum::Sum::pseudo_v4(
                    header.src(),
                    header.dst(),
                    header.protocol(),
                    payload.len() as u16,
                );
                let mut seen = Seen {
                    ethertype: layer.ethertype,
                    source: u128::from(header.src_bits()),
                    destination: u128::from(header.dst_bits()),
                    ttl: header.ttl(),
                    protocol: header.protocol(),
                    is_whole,
                    header_is_right: packet.checksum_is_right(),
                    link_is_right: total == layer.payload.len(),
                    transport_is_right: None,
                    quote_is_right: None,
                    quoted: None,
                };
                if is_whole {
                    seen.look(header.protocol(), payload, pseudo, Protocol::ICMP);
                }
                Some(seen)
            }
            EtherType::IPV6 => {
                let packet = ipv6::parse(layer.payload).ok()?;
                let is_whole = packet.extensions.fragment.is_none_or(|found| found.fragment.is_atomic());
                let mut seen = Seen {
                    ethertype: layer.ethertype,
                    source: packet.header.src_bits(),
                    destination: packet.header.dst_bits(),
                    ttl: packet.header.hop_limit(),
                    protocol: packet.protocol(),
                    is_whole,
                    header_is_right: true,
                    link_is_right: 40 + usize::from(packet.header.payload_len()) == layer.payload.len(),
                    transport_is_right: None,
                    quote_is_right: None,
                    quoted: None,
                };
                if is_whole {
                    seen.look(packet.protocol(), packet.payload, packet.pseudo_header(), Protocol::ICMPV6);
                }
                Some(seen)
            }
            _ => None,
        }
    }

    fn look(&mut self, protocol: Protocol, payload: &[u8], pseudo: wire::checksum::Sum, icmp: Protocol) {
        self.transport_is_right = match protocol {
            Protocol::TCP => tcp::Header::of(payload).map(|_| pseudo.and(payload).verifies()),
            Protocol::UDP => udp::parse(payload).ok().and_then(|datagram| match datagram.check(pseudo) {
                udp::Check::None => None,
                udp::Check::Right => Some(true),
                udp::Check::Wrong => Some(false),
            }),
            Protocol::ICMP if icmp == protocol => Some(wire::checksum::verifies(payload)),
            Protocol::ICMPV6 if icmp == protocol => Some(pseudo.and(payload).verifies()),
            _ => None,
        };
        if protocol != Protocol::ICMP || icmp != protocol {
            return;
        }
        let is_error =
            icmpv4::Header::of(payload).is_some_and(|header| header.kind().class() == icmpv4::Class::Error);
        if let Some(packet) =
            payload.get(8..).filter(|_| is_error).and_then(|quote| ipv4::parse_prefix(quote).ok())
        {
            self.quote_is_right = Some(packet.checksum_is_right());
            self.quoted = Some((u128::from(packet.header.src_bits()), u128::from(packet.header.dst_bits())));
        }
    }
}
