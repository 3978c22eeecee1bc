//! Flows that a kernel carries, against the pipeline alone: the same bytes leave, the same counters and the same flows are left behind.
//!
//! There are two kernels: one of the test's own, written from what a [`Carrier`] is asked for, packet by packet, with checksums of its own; and
//! [Linux's](linux), where it lets us.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use dataplane::Verdict;
use dataplane::fast_path::{Account, Carried, Carrier, Pause, Published, Tag, Way};
use dataplane::flow::{Direction, Ends, FlowId, TcpSide};
use dataplane::replay::Way as Batching;
use dataplane::state::{Cursor, Item};
use proptest::prelude::*;
use wire::ethernet::{self, EtherType, Mac};
use wire::random::Random;
use wire::vlan::{Priority, Tag as VlanTag};
use wire::{Dscp, Nanos, PortId};

use self::linux::Programs;
use crate::accounting::{exported_by, exporting, sums};
use crate::scene::packet::Packets;
use crate::scene::talk::{OFFICE, Talk};
use crate::scene::{Arrival, Gateway, Out, START, Sent, packet, policy, tables};

mod linux;

/// Kernel that carries flows, of whichever kind.
trait Kernel: Carrier {
    /// Carries a packet; None if it is not plain, of no flow that is published, or to be the worker's as that `is_behind`.
    fn carry(&mut self, arrival: &Arrival, own: Mac, is_behind: bool) -> Option<Sent>;

    /// Packets carried in all.
    fn carried(&self) -> u64;
}

/// A kernel, for the shard and for the test.
type Shared = Arc<Mutex<dyn Kernel>>;

/// Kernel of the test's own.
#[derive(Default)]
struct Own {
    /// Flow and direction of packets as they arrive, by ends, port and VLAN.
    index: HashMap<(Ends, u16, u16), (FlowId, Direction)>,
    flows: BTreeMap<u32, Pair>,
    remainders: VecDeque<Account>,
    /// Number that the last flow in turn had.
    last: u32,
    /// Packets carried in all.
    carried: u64,
}

struct Pair {
    ways: [Way; 2],
    account: Account,
    is_live: bool,
}

/// The shard's end of a kernel.
struct End(Shared);

impl Carrier for End {
    fn publish(&mut self, id: FlowId, ways: &[Way; 2], tag: Tag) -> Published {
        self.0.lock().unwrap().publish(id, ways, tag)
    }

    fn account(&mut self, id: FlowId) -> Option<Account> {
        self.0.lock().unwrap().account(id)
    }

    fn set_side(&mut self, id: FlowId, direction: Direction, side: TcpSide) {
        self.0.lock().unwrap().set_side(id, direction, side);
    }

    fn take_back(&mut self, id: FlowId) -> Option<Account> {
        self.0.lock().unwrap().take_back(id)
    }

    fn take_all_back(&mut self) {
        self.0.lock().unwrap().take_all_back();
    }

    fn remainder(&mut self, now: Nanos) -> Option<Account> {
        self.0.lock().unwrap().remainder(now)
    }

    fn next(&mut self) -> Option<FlowId> {
        self.0.lock().unwrap().next()
    }

    fn published(&self) -> usize {
        self.0.lock().unwrap().published()
    }
}

impl Carrier for Own {
    fn publish(&mut self, id: FlowId, ways: &[Way; 2], tag: Tag) -> Published {
        let Own { index, flows, .. } = self;
        for (way, of) in ways.iter().zip([Direction::Original, Direction::Reply]) {
            index.insert(key(way), (id, of));
        }
        let sides = ways[0].side.zip(ways[1].side).map(|(a, b)| [a, b]);
        let account = Account { tag, carried: Default::default(), seen: None, sides, is_live: true };
        let before = flows.insert(id.0, Pair { ways: *ways, account, is_live: true });
        assert!(before.is_none(), "published twice");
        Published::Yes
    }

    fn account(&mut self, id: FlowId) -> Option<Account> {
        let pair = self.flows.get_mut(&id.0)?;
        let account = Account { is_live: pair.is_live, ..pair.account };
        pair.account.carried = Default::default();
        Some(account)
    }

    fn set_side(&mut self, id: FlowId, direction: Direction, side: TcpSide) {
        let sides = self.flows.get_mut(&id.0).and_then(|pair| pair.account.sides.as_mut());
        sides.expect("TCP that is published")[direction as usize] = side;
    }

    fn take_back(&mut self, id: FlowId) -> Option<Account> {
        let account = self.account(id)?;
        let pair = self.flows.remove(&id.0)?;
        for way in pair.ways {
            self.index.remove(&key(&way));
        }
        // Half of what has been carried since the last account is known a little later.
        let [mut now, mut later] = [account; 2];
        for (now, later) in now.carried.iter_mut().zip(&mut later.carried) {
            *later = if now.packets % 2 == 1 { *now } else { Carried::default() };
            if now.packets % 2 == 1 {
                *now = Carried::default();
            }
        }
        self.remainders.push_back(later);
        Some(now)
    }

    fn take_all_back(&mut self) {
        self.flows.values_mut().for_each(|pair| pair.is_live = false);
    }

    fn remainder(&mut self, _: Nanos) -> Option<Account> {
        self.remainders.pop_front()
    }

    fn next(&mut self) -> Option<FlowId> {
        in_turn(&self.flows, &mut self.last)
    }

    fn published(&self) -> usize {
        self.flows.len()
    }
}

/// Ends, port and VLAN of packets that arrive.
fn key(way: &Way) -> (Ends, u16, u16) {
    (way.arrives, way.ingress.port.0, way.ingress.vlan())
}

/// A frame without its tag, and its VLAN, 0 for none; `None` with two tags, or one that is not of 802.1Q.
fn untagged(frame: &[u8]) -> Option<(Vec<u8>, u16)> {
    let layer = ethernet::parse(frame).ok()?;
    let vlan = match layer.tags.as_slice() {
        [] => 0,
        [tag] if tag.tpid == EtherType::VLAN => tag.id(),
        _ => return None,
    };
    Some(([&frame[..12], &frame[layer.payload_at - 2..]].concat(), vlan))
}

/// The flow behind the last one in turn.
fn in_turn<T>(flows: &BTreeMap<u32, T>, last: &mut u32) -> Option<FlowId> {
    let mut behind = flows.range(*last + 1..);
    *last = behind.next().or_else(|| flows.iter().next()).map(|(id, _)| *id)?;
    Some(FlowId(*last))
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Sum in ones' complement (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let mut sum: u32 =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Updates a checksum where bytes have been replaced (RFC 1624, equation 3).
fn update(check: u16, old: &[u8], new: &[u8]) -> u16 {
    let mut all = u32::from(!check) + (0xffff - sum(old)) + sum(new);
    while all > 0xffff {
        all = (all & 0xffff) + (all >> 16);
    }
    !(all as u16)
}

fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl Kernel for Own {
    fn carried(&self) -> u64 {
        self.carried
    }

    fn carry(&mut self, arrival: &Arrival, own: Mac, is_behind: bool) -> Option<Sent> {
        if is_behind {
            return None;
        }
        let (bytes, vlan) = &untagged(&arrival.bytes)?;
        let layer = ethernet::parse(bytes).ok()?;
        if bytes[..6] != own.0 {
            return None;
        }
        let ip = &bytes[14..];
        let (v4, header, length) = match layer.ethertype {
            EtherType::IPV4 if ip.len() >= 20 && ip[0] == 0x45 => {
                let is_whole = word(ip, 6) & 0xbfff == 0 && sum(&ip[..20]) == 0xffff;
                (is_whole && ip[8] > 1).then_some((true, 20, usize::from(word(ip, 2))))?
            }
            EtherType::IPV6 if ip.len() >= 40 && ip[0] >> 4 == 6 => {
                (ip[7] > 1).then_some((false, 40, 40 + usize::from(word(ip, 4))))?
            }
            _ => return None,
        };
        let protocol = if v4 { ip[9] } else { ip[6] };
        let ip = ip.get(..length)?;
        let transport = ip.get(header..).filter(|transport| transport.len() >= 8)?;
        let data = match protocol {
            6 if transport.len() >= 20 => {
                let offset = usize::from(transport[12] >> 4) * 4;
                let is_plain = transport[13] & 0xb7 == 0x10 && offset >= 20 && offset <= transport.len();
                is_plain.then(|| (transport.len() - offset) as u32)?
            }
            17 => (usize::from(word(transport, 4)) == transport.len()).then_some(0)?,
            _ => return None,
        };
        let address = |at: usize| -> std::net::IpAddr {
            if v4 {
                <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into()
            } else {
                <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into()
            }
        };
        let places = if v4 { [12, 16] } else { [8, 24] };
        let [source, destination] = places.map(address);
        let ends =
            Ends { source, destination, sport: word(transport, 0), dport: word(transport, 2), protocol };
        let (id, of) = *self.index.get(&(ends, arrival.port.0, *vlan))?;
        let pair = self.flows.get_mut(&id.0).filter(|pair| pair.is_live)?;
        let way = pair.ways[of as usize];
        let ds_field = if v4 { ip[1] } else { ip[0] << 4 | ip[1] >> 4 };
        if length > usize::from(way.mtu) || !way.dscp.has(Dscp::of_field(ds_field)) {
            return None;
        }
        if let (6, Some(sides)) = (protocol, &mut pair.account.sides) {
            let (own, peer) = (sides[of as usize], sides[1 - of as usize]);
            let (seq, ack) = (long(transport, 4), long(transport, 8));
            let end = seq.wrapping_add(data);
            let oldest = peer.end.wrapping_sub(own.max_window.max(66_000));
            let is_inside = !is_after(end, peer.allows)
                && !is_after(own.end.wrapping_sub(peer.max_window), seq)
                && !is_after(oldest, ack)
                && !is_after(ack, peer.end);
            if !is_inside {
                return None;
            }
            let offered = (u32::from(word(transport, 14)) << own.scale).max(1);
            let later = |a: u32, b: u32| if is_after(a, b) { a } else { b };
            sides[of as usize] = TcpSide {
                end: later(own.end, end),
                max_window: own.max_window.max(offered),
                allows: later(own.allows, ack.wrapping_add(offered)),
                scale: own.scale,
            };
        }
        let mut sent = bytes[..14 + length].to_vec();
        sent[..12].copy_from_slice(&way.header);
        let after = way.leaves;
        let mut addresses = Vec::new();
        for address in [after.source, after.destination] {
            match address {
                std::net::IpAddr::V4(address) => addresses.extend(address.octets()),
                std::net::IpAddr::V6(address) => addresses.extend(address.octets()),
            }
        }
        let at = 14 + places[0];
        let old = sent[at..at + addresses.len()].to_vec();
        sent[at..at + addresses.len()].copy_from_slice(&addresses);
        if let Some(mark) = way.mark {
            let ds_field = ds_field & 3 | mark.value() << 2;
            if v4 {
                let check = update(word(&sent, 24), &sent[14..16], &[0x45, ds_field]);
                sent[15] = ds_field;
                sent[24..26].copy_from_slice(&check.to_be_bytes());
            } else {
                sent[14] = 0x60 | ds_field >> 4;
                sent[15] = sent[15] & 0x0f | ds_field << 4;
            }
        }
        if v4 {
            let check = update(word(&sent, 24), &old, &addresses);
            let before = [sent[22], sent[23]];
            sent[22] -= 1;
            let check = update(check, &before, &[sent[22], sent[23]]);
            sent[24..26].copy_from_slice(&check.to_be_bytes());
        } else {
            sent[21] -= 1;
        }
        let ports = 14 + header..18 + header;
        let before = sent[ports.clone()].to_vec();
        let new = [after.sport.to_be_bytes(), after.dport.to_be_bytes()].concat();
        sent[ports].copy_from_slice(&new);
        let place = 14 + header + if protocol == 6 { 16 } else { 6 };
        let check = word(&sent, place);
        // Without a checksum it stays (RFC 768).
        if (protocol == 6 || check != 0) && (old != addresses || before != new) {
            let check = update(update(check, &old, &addresses), &before, &new);
            let check = if protocol == 17 && check == 0 { 0xffff } else { check };
            sent[place..place + 2].copy_from_slice(&check.to_be_bytes());
        }
        if let Some(tag) = way.egress.tag {
            sent.splice(12..12, [tag.tpid.0.to_be_bytes(), tag.tci.to_be_bytes()].concat());
        }
        let carried = &mut pair.account.carried[of as usize];
        carried.packets += 1;
        carried.packet_bytes += length as u64;
        carried.frame_bytes += arrival.bytes.len() as u64;
        pair.account.seen = Some(arrival.at);
        self.carried += 1;
        let (port, verdict) = (way.egress.port.0, Some(Verdict::Forwarded));
        Some(Sent { port, number: arrival.number, verdict, bytes: sent })
    }
}

/// Two gateways, of which one has a kernel.
struct Two {
    kernel: Shared,
    fast: Gateway,
    slow: Gateway,
    text: String,
    now: Nanos,
    number: u32,
}

impl Two {
    fn new(text: &str, kernel: Shared) -> Two {
        let [mut fast, slow] = [(); 2].map(|()| {
            let mut gateway = Gateway::new(text, Batching::Run);
            exporting(&mut gateway, 10_000);
            gateway
        });
        fast.shard.publish_by(Some(Box::new(End(kernel.clone()))));
        Two { kernel, fast, slow, text: text.to_owned(), now: START, number: 0 }
    }

    /// Both receive a frame so long after the last one.
    fn receive(&mut self, port: PortId, bytes: Vec<u8>, span: Nanos) -> Out {
        (self.now, self.number) = (self.now + span, self.number + 1);
        let arrival = &Arrival { port, at: self.now, number: self.number, bytes };
        // As a host does in each turn.
        self.fast.tend(arrival.at);
        self.slow.tend(arrival.at);
        let own = self.fast.tables.interface(port).map_or(Mac::ZERO, |interface| interface.mac);
        // Now and then a packet goes to the worker for no other reason than that another one is there.
        let is_behind = self.number % 7 == 0;
        let carried = self.kernel.lock().unwrap().carry(arrival, own, is_behind);
        if carried.is_none() {
            self.fast.receive(std::slice::from_ref(arrival));
        }
        self.slow.receive(std::slice::from_ref(arrival));
        let (mut fast, slow) = (self.fast.out(usize::MAX), self.slow.out(usize::MAX));
        fast.sent.extend(carried);
        assert_eq!(fast, slow, "fast and slow differ under\n{}", self.text);
        let Gateway { shard, tables, .. } = &mut self.fast;
        shard.publish(tables);
        slow
    }

    fn compare(&mut self) {
        // A state that is saved has what the kernel has carried, without a sweep.
        assert_eq!(
            exported(&mut self.fast, self.now),
            exported(&mut self.slow, self.now),
            "under\n{}",
            self.text
        );
        // Once more for what is left of flows that the first one takes back.
        self.fast.shard.sweep_all_published(self.now);
        self.fast.shard.sweep_all_published(self.now);
        assert_eq!(self.fast.shard.counters, self.slow.shard.counters, "under\n{}", self.text);
        assert!(self.fast.shard.counters.are_conserved());
        assert_eq!(sums(&mut self.fast), sums(&mut self.slow), "counts of flows differ under\n{}", self.text);
        let flows = |gateway: &Gateway| {
            let flows = gateway.shard.flows.iter().map(|(id, flow)| {
                let flow = format!("{flow:?}");
                let (before, behind) = flow.split_once("Progress(").expect("a flow has progress");
                (id.0, format!("{before}{}", behind.split_once(')').expect("a number").1))
            });
            flows.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(flows(&self.fast), flows(&self.slow), "flows differ under\n{}", self.text);
    }

    fn reload(&mut self) {
        for gateway in [&mut self.fast, &mut self.slow] {
            gateway.change(exported_by(tables(&self.text)), self.now);
        }
    }
}

/// Flows as they are exported, a few places at a time.
fn exported(gateway: &mut Gateway, now: Nanos) -> Vec<String> {
    const MOST: u32 = 3;
    let (mut flows, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        gateway.shard.update_before_export(&gateway.tables, from, MOST);
        next = gateway.shard.export(&gateway.tables, now, from, MOST, |item| {
            if let Item::Flow(flow) = item {
                flows.push(format!("{flow:?}"));
            }
        });
    }
    flows
}

fn own() -> Shared {
    Arc::new(Mutex::new(Own::default()))
}

/// Cables of an office.
struct Cables {
    /// VLANs of the hosts inside and of those outside; 0 for none.
    vlans: [u16; 2],
    /// Ports of their cables.
    ports: [u16; 2],
}

impl Cables {
    /// An office on other cables: VLANs inside, outside, or both, on one cable or two, with priorities in their tags or without.
    fn lay(which: u32, office: &str) -> (Cables, String) {
        let macs = ["mac = \"02:00:00:00:00:01\"\n", "mac = \"02:00:00:00:00:02\"\n"];
        let trunk = |number: usize| format!("[interface.trunk{number}]\nzone = \"trunk\"\n{}", macs[number]);
        let on =
            |trunk: usize, vlan: u16, more: &str| format!("parent = \"trunk{trunk}\"\nvlan = {vlan}\n{more}");
        let (inside, outside) = (macs[0], macs[1]);
        let (vlans, ports, text) = match which {
            0 => ([0, 0], [0, 1], office.to_owned()),
            1 => ([20, 0], [2, 1], office.replace(inside, &on(0, 20, "")) + &trunk(0)),
            2 => {
                let office = office.replace(inside, &format!("{inside}priority-tag = true\n"));
                ([0, 0xffe], [0, 2], office.replace(outside, &on(1, 0xffe, "")) + &trunk(1))
            }
            3 => {
                let office = office.replace(inside, &on(0, 20, ""));
                let office = office.replace(outside, &on(1, 20, "pcp = \"dscp\"\ndei = true\n"));
                ([20, 20], [2, 3], office + &trunk(0) + &trunk(1))
            }
            _ => {
                let office = office.replace(inside, &on(0, 20, "pcp = { ef = 6 }\n"));
                let office = office.replace("name = \"bulk\"", "name = \"bulk\"\nmark-pcp = 5");
                ([20, 30], [2, 2], office.replace(outside, &on(0, 30, "")) + &trunk(0))
            }
        };
        (Cables { vlans, ports }, text)
    }

    /// A frame of a side as it is on its cable, with a priority. One that is of no VLAN has a tag with an odd priority.
    fn carry(&self, from: usize, mut frame: Vec<u8>, priority: Priority) -> (PortId, Vec<u8>) {
        let (vlan, port) = (self.vlans[from], self.ports[from]);
        if self.ports == [2, 2] {
            frame[5] = 1;
        }
        if vlan != 0 || priority.bits() % 2 != 0 {
            let tag = VlanTag::customer(vlan).with_priority(priority);
            let at = frame.len().min(12);
            frame.splice(at..at, [tag.tpid.0.to_be_bytes(), tag.tci.to_be_bytes()].concat());
        }
        (PortId(port), frame)
    }
}

#[test]
fn conversations_go_fast() {
    converse(own);
}

#[test]
fn conversations_go_fast_by_the_programs_of_linux() {
    if let Some(programs) = Programs::load() {
        converse(|| programs.kernel());
    }
}

/// Conversations with packets of every kind between plain ones, reloads and pauses meanwhile.
fn converse(kernel: impl Fn() -> Shared) {
    let mut random = Random::new(23);
    let (mut carried, mut all) = ([0; 5], [0; 5]);
    for round in 0..180_u32 {
        let window = if round % 4 == 3 { "[limit]\ntcp-window = \"off\"\n" } else { "" };
        let office = match round / 6 % 3 {
            // Packets of some code points get another, of a protocol or of all others too.
            0 => OFFICE.to_owned(),
            1 => OFFICE.replace("name = \"bulk\"\nprotocol = \"tcp\"", "name = \"bulk\"\nmark = \"cs1\""),
            _ => OFFICE.replace("dscp = \"ef\"\nmark = \"af11\"", "protocol = \"udp\""),
        };
        let which = round / 18 % 5;
        let (cables, text) = Cables::lay(which, &format!("{office}{window}"));
        let mut two = Two::new(&text, kernel());
        let mut talk = Talk::of_round(round);
        talk.open(|(from, bytes)| {
            let (port, bytes) = cables.carry(usize::from(from.0), bytes, Priority::DEFAULT);
            two.receive(port, bytes, Nanos::from_millis(1))
        });
        for _ in 0..200 {
            let mut draw = |many: u64| random.next_u64() % many;
            let from = draw(2) as usize;
            let odd = draw(90);
            let length = if odd == 0 { draw(1_500) } else { draw(1_300) } as usize;
            let flags = if odd == 1 { draw(256) as u8 & !0x06 } else { 0x10 | (draw(2) as u8) << 3 };
            let ttl = if odd == 2 { draw(3) as u8 } else { 64 };
            let ds_field = [0, 0xb8, 1][draw(3) as usize];
            let before = talk.sides[from];
            match odd {
                3 => talk.sides[from].seq = before.seq.wrapping_sub(draw(200_000) as u32),
                4 => talk.sides[from].seq = before.seq.wrapping_add(draw(200_000) as u32),
                _ => {}
            }
            let (_, bytes) = talk.frame(from, flags, ds_field, ttl, &vec![7; length]);
            let priority = if draw(3) == 0 { draw(16) as usize } else { 0 };
            let (port, mut bytes) = cables.carry(from, bytes, Priority::all().nth(priority).unwrap());
            match odd {
                5 => {
                    let at = draw(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << draw(8);
                }
                6 => bytes.extend([0; 6]),
                7 => bytes.truncate(draw(bytes.len() as u64) as usize),
                13 => bytes[12] ^= 0x09,
                14 => drop(bytes.splice(12..12, [0x88, 0xa8, 0, [0, 20][draw(2) as usize]])),
                15 => drop(bytes.splice(12..12, [0x81, 0, 0, [0, 20, 21][draw(3) as usize]])),
                8 => two.reload(),
                9 => two.fast.shard.pause_publication(if draw(2) == 0 { Pause::Yes } else { Pause::No }),
                10 => two.fast.shard.fast_path.take_all_back(),
                _ => {}
            }
            let span = match odd {
                11 => 20_000_000_000,
                12 => 400_000_000_000,
                _ => draw(200_000_000),
            };
            let out = two.receive(port, bytes, Nanos(span));
            if odd % 3 == 0 {
                two.compare();
            }
            talk.sides[from] = before;
            let is_forwarded = |sent: &Sent| sent.verdict == Some(Verdict::Forwarded);
            if out.sent.iter().any(is_forwarded) && odd > 8 && talk.is_tcp {
                talk.sides[from].seq = before.seq.wrapping_add(length as u32);
            }
            all[which as usize] += 1;
        }
        two.compare();
        carried[which as usize] += two.kernel.lock().unwrap().carried();
    }
    let enough = |(carried, all): (&u64, &u64)| carried * 16 > *all;
    assert!(carried.iter().zip(&all).all(enough), "{carried:?} of {all:?} packets were carried");
}

/// As soon as a new one: what took them back was nothing of their own.
#[test]
fn flows_taken_back_with_all_others_are_published_again() {
    let mut two = Two::new(&OFFICE.replace("dscp = \"ef\"\nmark = \"af11\"", "protocol = \"udp\""), own());
    let mut talk = Talk::of_round(2);
    talk.open(|(port, bytes)| two.receive(port, bytes, Nanos::from_millis(1)));
    let mut carried = 0;
    for _ in 0..3 {
        for _ in 0..10 {
            let (port, bytes) = talk.frame(0, 0, 0, 64, &[7; 9]);
            two.receive(port, bytes, Nanos::from_millis(1));
        }
        let now = two.kernel.lock().unwrap().carried();
        assert!(now > carried, "{now} packets carried");
        carried = now;
        two.fast.shard.fast_path.take_all_back();
    }
    two.compare();
}

/// More flows have had enough packets between two publications than there is room for.
#[test]
fn flows_for_which_there_was_no_room_come_again_with_their_next_packets() {
    const MANY: u16 = 200;
    let mut two = Two::new(OFFICE, own());
    let mut talks = Vec::new();
    for number in 0..MANY {
        let mut talk = Talk { sport: 4_000 + number, ..Talk::of_round(2) };
        talk.open(|(port, bytes)| two.receive(port, bytes, Nanos::from_millis(1)));
        talks.push(talk);
    }
    for _ in 0..12 {
        two.now += Nanos::from_millis(1);
        let arrival = |talk: &Talk| {
            let (port, bytes) = talk.frame(0, 0, 0, 64, &[7; 9]);
            Arrival { port, at: two.now, number: 0, bytes }
        };
        let arrivals: Vec<Arrival> = talks.iter().map(arrival).collect();
        for batch in arrivals.chunks(50) {
            two.fast.receive(batch);
            two.slow.receive(batch);
            assert_eq!(two.fast.out(usize::MAX), two.slow.out(usize::MAX));
        }
        let Gateway { shard, tables, .. } = &mut two.fast;
        shard.publish(tables);
    }
    assert_eq!(two.kernel.lock().unwrap().published(), usize::from(MANY));
    two.compare();
}

/// Packets of any kind under any policy, some of them the first of a conversation.
#[test]
fn fast_equals_slow() {
    any_packets(own);
}

#[test]
fn the_programs_of_linux_equal_slow() {
    if let Some(programs) = Programs::load() {
        any_packets(|| programs.kernel());
    }
}

fn any_packets(kernel: impl Fn() -> Shared) {
    let config = ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(500),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let packets = prop::collection::vec(any::<[u8; packet::BYTES]>(), 1..60);
    let turns = prop::collection::vec(0..20_u8, 1..9);
    proptest!(config, |(seed in any::<[u8; policy::BYTES]>(), packets in packets, turns in turns)| {
        let scene = policy::of(&seed);
        let mut two = Two::new(&scene.text, kernel());
        let mut world = Packets::of(&scene);
        let mut turns = turns.iter().cycle();
        for bytes in &packets {
            let arrival = world.next(bytes);
            // A machine's clock is not set back.
            let span = arrival.at.since(two.now);
            let mut out = two.receive(arrival.port, arrival.bytes.clone(), span);
            world.learn(&out);
            let asked = arrival.bytes;
            for _ in 0..*turns.next().unwrap() {
                let Some((port, answer)) = out.sent.first().and_then(answered) else { break };
                world.learn(&two.receive(port, answer, Nanos(1_000)));
                out = two.receive(arrival.port, asked.clone(), Nanos(1_000));
            }
        }
        two.compare();
    });
}

/// The answer to a UDP packet that has left.
fn answered(sent: &Sent) -> Option<(PortId, Vec<u8>)> {
    let layer = ethernet::parse(&sent.bytes).ok()?;
    let at = layer.payload_at;
    let (addresses, length, transport) = match layer.ethertype {
        EtherType::IPV4 if layer.payload[9] == 17 => {
            (at + 12, 4, at + usize::from(layer.payload[0] & 15) * 4)
        }
        EtherType::IPV6 if layer.payload[6] == 17 => (at + 8, 16, at + 40),
        _ => return None,
    };
    let mut answer = sent.bytes.clone();
    let mut swap = |at: usize, length: usize| -> Option<()> {
        let two = answer.get_mut(at..at + 2 * length)?;
        two.rotate_left(length);
        Some(())
    };
    swap(0, 6)?;
    swap(addresses, length)?;
    swap(transport, 2)?;
    Some((PortId(sent.port), answer))
}

/// A change of a set takes flows back at the next sweep, and no more than once a second; those that it is not about go fast again.
#[test]
fn flows_that_go_fast_notice_changes_of_sets() {
    use dataplane::Reason;
    use dataplane::set::{Element, SetChange};
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\nmac = \"02:00:00:00:00:01\"\n\
                [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nmac = \"02:00:00:00:00:02\"\n\
                [dynamic-set.banned]\n[[rule]]\nname = \"banned\"\ndestination = \"@banned\"\naction = \"drop\"\n\
                [[rule]]\nname = \"rest\"\nfrom = \"lan\"\naction = \"accept\"\n";
    let (inside, outside) = ([192, 168, 1, 9], [203, 0, 113, 9]);
    let kernel = Arc::new(Mutex::new(Own::default()));
    let is_idle = || kernel.lock().unwrap().flows.values().all(|pair| !pair.is_live);
    let mut two = Two::new(text, kernel.clone());
    let datagram = |to: usize, from: [u8; 4], dst: [u8; 4], ports: (u16, u16)| {
        let link = wire::build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, to as u8]));
        link.ipv4(from.into(), dst.into()).udp(ports.0, ports.1).payload(&[5; 9]).to_vec()
    };
    let there = datagram(1, inside, outside, (1000, 2000));
    let back = datagram(2, outside, inside, (2000, 1000));
    let span = Nanos::from_millis(1);
    let talk = |two: &mut Two| {
        let before = two.kernel.lock().unwrap().carried();
        for _ in 0..200 {
            two.receive(PortId(0), there.clone(), span);
            two.receive(PortId(1), back.clone(), span);
        }
        two.kernel.lock().unwrap().carried() - before
    };
    let add = |two: &mut Two, prefix: &str| {
        let change = SetChange::Add(Element { set: 0, prefix: prefix.parse().unwrap(), until: None });
        for gateway in [&mut two.fast, &mut two.slow] {
            gateway.shard.change_set(&gateway.tables, &change, two.now);
        }
    };
    assert!(talk(&mut two) > 300);
    add(&mut two, "203.0.113.10/32");
    two.fast.shard.sweep_published(1, two.now);
    assert!(is_idle(), "all are taken back");
    assert!(talk(&mut two) > 200, "and published again");
    two.compare();
    // Within a second of the last time the kernel goes on; the worker notices with the first packet that comes to it.
    add(&mut two, "203.0.113.9/32");
    two.fast.shard.sweep_published(1, two.now);
    assert!(!is_idle());
    two.now += Nanos::from_secs(1);
    two.fast.shard.sweep_published(1, two.now);
    assert!(is_idle());
    let out = two.receive(PortId(1), back, span);
    assert_eq!(out.ended, [(two.number, Verdict::Dropped(Reason::FlowRevoked))]);
    two.compare();
}
