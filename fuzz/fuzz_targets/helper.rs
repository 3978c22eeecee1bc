//! Any bytes as messages of control connections that helpers read (FTP, SIP, PPTP), and as packets of what these announce; at a gateway alone, and
//! at two of which each owns half of the flows, with what one hands over to the other, and any bytes as a frame that was handed over.
//!
//! Three bytes in front of each packet choose who says it, how it is sent, and its length. Each end answers what it has heard last, in the
//! numbers of TCP that it knows, so that messages come in order, anew, late and in fragments. Beyond not crashing: stage by stage the same comes out as frame by frame,
//! no frame is handed over twice, and no mapping outlives its flows.
#![no_main]

#[path = "../../dataplane/tests/scene/mod.rs"]
mod scene;

use std::net::Ipv4Addr;
use std::rc::Rc;

use ::policy::model::Half;
use dataplane::Tables;
use dataplane::nat::Share;
use dataplane::peer::Handover;
use dataplane::replay::Way;
use dataplane::shard::{Setup, Shard};
use libfuzzer_sys::fuzz_target;
use scene::{Arrival, Gateway, Out, START, check, setup};
use wire::build::{self, Packet, Tcp};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::tcp::Flags;
use wire::{Nanos, PortId, ipv4, tcp, udp, vxlan};

const LAN: u16 = 0;
const WAN: u16 = 1;
/// Outside address: of both gateways, where there are two.
const SHOWN: [u8; 4] = [203, 0, 113, 10];
const CLIENTS: [[u8; 4]; 2] = [[192, 168, 1, 10], [192, 168, 1, 11]];
const SERVERS: [[u8; 4]; 2] = [[198, 51, 100, 7], [198, 51, 100, 8]];
/// Server inside, for the connections that come from outside.
const HOME: [u8; 4] = [192, 168, 1, 80];
/// Control connections, by port: FTP and PPTP over TCP, SIP over UDP.
const PORTS: [u16; 3] = [21, 1723, 5060];
/// Most packets of a run.
const MOST: usize = 120;

fn policy(own: u8, pair: &str) -> String {
    let rules = [("ftp", "tcp", 21), ("pptp", "tcp", 1723), ("sip", "udp", 5060)].map(|(name, protocol, port)| {
        format!(
            "[[nat]]\nname = \"{name}-home\"\nkind = \"forward\"\nfrom = \"wan\"\noutside = \"203.0.113.10\"\nprotocol = \"{protocol}\"\nport = {port}\n\
             target = \"192.168.1.80\"\n\
             [[rule]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\ndport = {port}\nhelper = \"{name}\"\naction = \"accept\"\n"
        )
    });
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.{own}/24\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"172.16.0.{own}/24\"]\nvirtual-addresses = [\"203.0.113.10\"]\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"172.16.0.254\"\n[[route]]\nto = \"192.168.0.0/16\"\nvia = \"10.0.0.254\"\n\
         [[nat]]\nname = \"out\"\nkind = \"source\"\nto = \"wan\"\nsource = \"192.168.1.0/24\"\npool = [\"203.0.113.10\"]\n\
         {}[default]\n\"lan > wan\" = \"accept\"\n[limit]\nflows = 64\n{pair}",
        rules.concat()
    )
}

fn pair(side: &str) -> String {
    format!(
        "[gateway]\nsync = \"{side}:192.0.2.1:9480\"\nsync-certificate = \"crt\"\nsync-key = \"key\"\nsync-ca = \"ca\"\nsync-owner = \"hash\"\n"
    )
}

thread_local! {
    /// Tables of the gateway alone, and of the two.
    static PREPARED: [Rc<Tables>; 3] = [
        scene::tables(&policy(2, "")),
        scene::tables(&policy(2, &pair("listen"))),
        scene::tables(&policy(3, &pair("connect"))),
    ]
    .map(Rc::new);
}

fuzz_target!(|data: &[u8]| {
    let [first, rest @ ..] = data else { return };
    let mut world = World { talks: Talk::all(), now: START, number: 0 };
    if first & 1 == 0 { alone(rest, &mut world) } else { two(rest, &mut world) }
});

fn alone(mut rest: &[u8], world: &mut World) {
    let tables = PREPARED.with(|[alone, ..]| Rc::clone(alone));
    let mut gateways = [Way::Run, Way::Step].map(|way| Gateway::with_slots(tables.clone(), way, 256));
    for _ in 0..MOST {
        let Some((_, arrival)) = world.next(&mut rest) else { break };
        let [out, also] = gateways.each_mut().map(|gateway| {
            gateway.receive(std::slice::from_ref(&arrival));
            gateway.out(usize::MAX)
        });
        assert_eq!(out, also);
        assert_eq!(gateways[0].shard.counters, gateways[1].shard.counters);
        gateways.iter().for_each(check::gateway);
        world.hear(&out);
    }
    gateways.iter_mut().for_each(end);
}

fn two(mut rest: &[u8], world: &mut World) {
    let tables = PREPARED.with(|[_, one, other]| [one, other].map(Rc::clone));
    let halves = [Half::Listens, Half::Connects].into_iter();
    let mut boxes: Vec<Gateway> = halves
        .zip(tables)
        .map(|(half, tables)| {
            let mut gateway = Gateway::with_slots(tables, Way::Run, 256);
            let share = Share::WHOLE.of_half(Some(half));
            gateway.shard =
                Shard::new(&gateway.tables, Setup { share, ..setup(START) }).expect("memory for a shard");
            gateway.shard.keep_changes(&gateway.tables).expect("memory for changes");
            gateway.shard.handover = Handover::Owned;
            gateway
        })
        .collect();
    for _ in 0..MOST {
        let Some((how, arrival)) = world.next(&mut rest) else { break };
        let to = usize::from(how >> 7);
        // What a peer hands over may be anything, and so may its datagram.
        if how & 0x60 == 0x60 {
            let bytes = match vxlan::parse(&arrival.bytes) {
                Some(packet) if how & 0x10 != 0 => packet.frame.to_vec(),
                _ => arrival.bytes.clone(),
            };
            boxes[to].take_over(&Arrival { bytes, ..arrival });
        } else {
            boxes[to].receive(std::slice::from_ref(&arrival));
            for (port, bytes) in boxes[to].handed_over() {
                assert_eq!(bytes, arrival.bytes, "as it was received");
                boxes[1 - to].take_over(&Arrival { port, bytes, ..arrival.clone() });
            }
        }
        for gateway in &mut boxes {
            assert_eq!(gateway.handed_over(), [], "never twice");
            let out = gateway.out(usize::MAX);
            check::gateway(gateway);
            world.hear(&out);
        }
    }
    boxes.iter_mut().for_each(end);
}

fn end(gateway: &mut Gateway) {
    gateway.shard.clear_flows();
    assert!(gateway.shard.flows.is_empty() && gateway.shard.mappings.is_empty());
}

/// Hosts, and what they have said and heard.
struct World {
    talks: Vec<Talk>,
    now: Nanos,
    number: u32,
}

/// A control connection.
struct Talk {
    client: [u8; 4],
    server: [u8; 4],
    sport: u16,
    dport: u16,
    /// Client, and server.
    sides: [Side; 2],
}

/// An end of a control connection.
#[derive(Default)]
struct Side {
    /// Sequence number of what the end says next.
    next: u32,
    /// Frame that the end has heard last.
    heard: Option<Vec<u8>>,
}

impl Talk {
    fn all() -> Vec<Talk> {
        let outward = CLIENTS.into_iter().zip(SERVERS);
        let ends: Vec<_> = outward.chain([(SERVERS[0], SHOWN)]).collect();
        let mut talks = Vec::new();
        for dport in PORTS {
            for (place, (client, server)) in ends.iter().enumerate() {
                let sides = [1_000, u32::MAX - 60].map(|next| Side { next, heard: None });
                talks.push(Talk {
                    client: *client,
                    server: *server,
                    sport: 30_000 + place as u16,
                    dport,
                    sides,
                });
            }
        }
        talks
    }

    fn is_inward(&self) -> bool {
        self.server == SHOWN
    }

    /// A frame of one of the ends, and the port that it comes by.
    fn say(&mut self, by: usize, how: u8, text: &[u8]) -> (u16, Vec<u8>) {
        let port = if self.is_inward() == (by == 0) { WAN } else { LAN };
        let is_tcp = self.dport != PORTS[2];
        let heard = self.sides[by].heard.as_deref().and_then(Heard::of);
        let side = &mut self.sides[by];
        let (from, to, sport, dport) = match &heard {
            Some(heard) => (heard.to, heard.from, heard.dport, heard.sport),
            None if by == 0 => (self.client, self.server, self.sport, self.dport),
            None => (if self.server == SHOWN { HOME } else { self.server }, SHOWN, self.dport, self.sport),
        };
        let packet = ends(from, to);
        if !is_tcp {
            return (port, packet.udp(sport, dport).payload(text).to_vec());
        }
        let (ack, flags) = match &heard {
            None => (0, Flags::SYN),
            Some(heard) if heard.flags.contains(Flags::SYN) && by == 1 => (heard.end, Flags::SYN_ACK),
            Some(heard) if how & 7 == 7 => {
                (heard.end, [Flags::FIN, Flags::RST][usize::from(how >> 3 & 1)].and(Flags::ACK))
            }
            Some(heard) => (heard.end, Flags::ACK),
        };
        let text = if flags.contains(Flags::SYN) { &[][..] } else { text };
        // Once more, or what is behind something that is lost.
        let seq = match how & 7 {
            5 => side.next.wrapping_sub(text.len() as u32),
            6 => side.next.wrapping_add(3),
            _ => side.next,
        };
        let length = text.len() as u32 + u32::from(flags.contains(Flags::SYN));
        if how & 7 != 5 && !(flags.contains(Flags::SYN) && heard.is_none() && by == 1) {
            side.next = seq.wrapping_add(length);
        }
        let header = Tcp { sport, dport, seq, ack, flags, window: 8_000, ..Tcp::default() };
        (port, packet.tcp(header).payload(text).to_vec())
    }
}

/// A frame as an end hears it.
struct Heard {
    from: [u8; 4],
    to: [u8; 4],
    sport: u16,
    dport: u16,
    flags: Flags,
    /// Sequence number behind it.
    end: u32,
}

impl Heard {
    fn of(frame: &[u8]) -> Option<Heard> {
        let packet = ipv4::parse(frame.get(14..)?).ok()?;
        let (from, to) = (packet.header.src().octets(), packet.header.dst().octets());
        match packet.header.protocol() {
            Protocol::TCP => {
                let segment = tcp::parse(packet.payload).ok()?;
                let header = segment.header;
                let end = header.seq().wrapping_add(segment.sequence_len());
                Some(Heard {
                    from,
                    to,
                    sport: header.sport(),
                    dport: header.dport(),
                    flags: header.flags(),
                    end,
                })
            }
            Protocol::UDP => {
                let header = udp::Header::of(packet.payload)?;
                let (sport, dport) = (header.sport(), header.dport());
                Some(Heard { from, to, sport, dport, flags: Flags(0), end: 0 })
            }
            _ => None,
        }
    }
}

impl World {
    /// The next packet, and the byte that says to which gateway it comes.
    fn next(&mut self, rest: &mut &[u8]) -> Option<(u8, Arrival)> {
        let [who, how, length, more @ ..] = *rest else { return None };
        let (who, how) = (*who, *how);
        let (text, more) = more.split_at(usize::from(*length).min(more.len()));
        *rest = more;
        let many = self.talks.len();
        let (port, bytes) = match who >> 5 {
            // What is announced: data connections, media, calls. From outside, or from inside.
            0 => self.beside(who, text),
            1 => (u16::from(who & 1), text.to_vec()),
            _ => self.talks[usize::from(who >> 1) % many].say(usize::from(who & 1), how & 0x1f, text),
        };
        self.now += Nanos::from_millis(if how & 0x1f == 0x1f { 200_000 } else { 1 });
        self.number += 1;
        Some((how, Arrival { port: PortId(port), at: self.now, number: self.number, bytes }))
    }

    /// A packet between the hosts that is none of a control connection; the text has its ports, or its call ID.
    fn beside(&self, who: u8, text: &[u8]) -> (u16, Vec<u8>) {
        let at = |place: usize| {
            u16::from_be_bytes([0, 1].map(|next| text.get(place + next).copied().unwrap_or(0)))
        };
        let (inside, outside) = (CLIENTS[usize::from(who & 1)], SERVERS[usize::from(who & 1)]);
        let (port, packet) = match who >> 1 & 3 {
            0 => (LAN, ends(inside, outside)),
            1 => (LAN, ends(HOME, outside)),
            _ => (WAN, ends(outside, SHOWN)),
        };
        let rest = text.get(4..).unwrap_or(&[]);
        let frame = match who >> 3 & 3 {
            0 => {
                let header =
                    Tcp { sport: at(0), dport: at(2), flags: Flags::SYN, window: 8_000, ..Tcp::default() };
                packet.tcp(header).to_vec()
            }
            1 => packet.udp(at(0), at(2)).payload(rest).to_vec(),
            // Enhanced GRE (RFC 2637, section 4.1): a key of length and call ID, and a sequence number.
            _ => {
                let [call, number] = [at(0), at(2)].map(u16::to_be_bytes);
                let head =
                    [0x30, 1, 0x88, 0x0b, 0, rest.len() as u8, call[0], call[1], 0, 0, number[0], number[1]];
                packet.protocol(Protocol::GRE).payload(&[&head, rest].concat()).to_vec()
            }
        };
        (port, frame)
    }

    /// Has the hosts hear what has left.
    fn hear(&mut self, out: &Out) {
        for sent in &out.sent {
            let Some(heard) = Heard::of(&sent.bytes) else { continue };
            for talk in &mut self.talks {
                let (is_inward, inside) =
                    (talk.is_inward(), if talk.is_inward() { HOME } else { talk.client });
                let outside = if is_inward { talk.client } else { talk.server };
                let to_inside = sent.port == LAN && heard.to == inside && heard.from == outside;
                let to_outside = sent.port == WAN && heard.to == outside;
                let by_client = heard.dport == talk.dport;
                if !by_client && heard.sport != talk.dport || !(to_inside || to_outside) {
                    continue;
                }
                // The client's words go to the server.
                if to_inside == is_inward && by_client {
                    talk.sides[1].heard = Some(sent.bytes.clone());
                } else if to_inside != is_inward && !by_client {
                    talk.sides[0].heard = Some(sent.bytes.clone());
                }
            }
        }
    }
}

fn ends(from: [u8; 4], to: [u8; 4]) -> Packet<'static> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    link.ipv4(Ipv4Addr::from(from), Ipv4Addr::from(to))
}
