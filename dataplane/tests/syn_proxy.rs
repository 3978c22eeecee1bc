//! Connections whose handshake the gateway has made, where its memory changes: they keep their numbers.

use dataplane::Verdict;
use dataplane::flow::Handshake;
use dataplane::hop::Resolve;
use dataplane::import::Refused;
use dataplane::nat::Share;
use dataplane::replay::Way;
use dataplane::shard::Setup;
use dataplane::state::{Cursor, Item};
use dataplane::{Reason, Shard};
use wire::tcp::Flags;
use wire::{PortId, ipv4};

use crate::scene::pair::{Pair, tcp, v4};
use crate::scene::policy::web as policy;
use crate::scene::{Gateway, tables};

const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);
const SERVER: [u8; 4] = [192, 168, 1, 10];
const CLIENT: [u8; 4] = [198, 51, 100, 7];

/// Returns flags, sequence and acknowledgement number of a sent packet.
fn seen(bytes: &[u8]) -> (Flags, u32, u32) {
    let packet = ipv4::parse(&bytes[14..]).unwrap();
    let header = wire::tcp::parse(packet.payload).unwrap().header;
    (header.flags(), header.seq(), header.ack())
}

/// Opens a connection, and returns the next sequence number for the client to acknowledge.
fn open(pair: &mut Pair) -> u32 {
    let out = pair.receive(WAN, &tcp(v4(CLIENT, SERVER), [4_000, 80], 100, 0, Flags::SYN));
    assert_eq!(out.sent[0].verdict, Some(Verdict::Answered(Reason::SynProxied)));
    let (_, cookie, _) = seen(&out.sent[0].bytes);
    let shown = cookie.wrapping_add(1);
    let syn = pair.forwarded(WAN, &tcp(v4(CLIENT, SERVER), [4_000, 80], 101, shown, Flags::ACK));
    assert_eq!(seen(&syn), (Flags::SYN, 100, 0));
    let out = pair.receive(LAN, &tcp(v4(SERVER, CLIENT), [80, 4_000], 9_000, 101, Flags::SYN_ACK));
    assert_eq!(out.sent.len(), 2);
    goes_on(pair, shown);
    shown
}

fn goes_on(pair: &mut Pair, shown: u32) {
    let there = pair.forwarded(WAN, &tcp(v4(CLIENT, SERVER), [4_000, 80], 101, shown, Flags::ACK));
    assert_eq!(seen(&there), (Flags::ACK, 101, 9_001));
    let back = pair.forwarded(LAN, &tcp(v4(SERVER, CLIENT), [80, 4_000], 9_001, 101, Flags::ACK));
    assert_eq!(seen(&back), (Flags::ACK, shown, 101));
}

#[test]
fn numbers_outlive_reloads_into_other_memory() {
    let mut pair = Pair::assumed(&policy("syn = \"proxy\""));
    let shown = open(&mut pair);
    for text in [
        policy(""),
        policy("") + "[limit]\nflows = 3000\n",
        policy("syn = \"proxy\"") + "[limit]\nflows = 3000\n",
        policy("syn = \"proxy\"") + "[limit]\nflows = 4000\n",
        policy("") + "[limit]\nflows = 5000\n",
    ] {
        let at = pair.at();
        pair.do_both(|gateway| {
            gateway.reload(&text, at);
        });
        goes_on(&mut pair, shown);
    }
}

#[test]
fn a_rule_that_a_reload_adds_has_its_memory() {
    let mut pair = Pair::assumed(&policy(""));
    let at = pair.at();
    pair.do_both(|gateway| {
        gateway.reload(&policy("syn = \"proxy\""), at);
    });
    open(&mut pair);
}

#[test]
fn numbers_are_exported_and_imported() {
    let mut pair = Pair::assumed(&policy("syn = \"proxy\""));
    let shown = open(&mut pair);
    let (now, text) = (pair.at(), policy("syn = \"proxy\""));
    let tables = tables(&text);
    let mut items = Vec::new();
    let shard = &mut pair.run().shard;
    shard.export(&tables, now, Cursor::default(), u32::MAX, |item| items.push(item));
    let flow = |item: &Item| matches!(item, Item::Flow(_));
    let record = items.iter().copied().find(flow).unwrap();
    let Item::Flow(flow) = record else { panic!() };
    assert_eq!(flow.handshake, Handshake::Spliced(9_001u32.wrapping_sub(shown)));
    let mut other = Pair::of([Way::Run, Way::Step].map(|way| Gateway::new(&text, way)));
    other.now = pair.now;
    other.do_both(|gateway| {
        let Gateway { shard, tables, .. } = gateway;
        shard.import(tables, &record, now).unwrap();
    });
    goes_on(&mut other, shown);
    // A policy that has the gateway make none has no memory for it.
    let plain = crate::scene::tables(&policy(""));
    let setup = Setup { seed: [5, 6], now, resolve: Resolve::Assume, share: Share::WHOLE };
    let mut shard = Shard::new(&plain, setup).unwrap();
    assert_eq!(shard.import(&plain, &record, now), Err(Refused::NameGone));
    assert_eq!(shard.flows.len(), 0);
}
