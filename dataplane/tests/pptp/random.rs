//! Control connections and calls at random.

use std::collections::{BTreeMap, BTreeSet};

use wire::ipv4;
use wire::random::Random;
use wire::tcp::{self, Flags};

use super::{
    CLIENT, Control, HOME, ISN, LAN, MASQUERADE, OTHER, OUTSIDE, SERVER, WAN, gre_leaves, id_at, masqueraded,
    message, policy, request,
};
use crate::scene::pair::Pair;

/// Whatever is lost, sent twice, cut otherwise or comes too early, the server gets what the client has said but for call IDs, each of which
/// becomes one other.
#[test]
fn a_stream_keeps_all_but_call_ids() {
    let mut random = Random::new(17);
    let (mut dropped, mut changed) = (0, 0);
    for round in 0..if cfg!(debug_assertions) { 40 } else { 200 } {
        let mut pair = Pair::assumed(&masqueraded());
        // Another has chosen the same before.
        let mut other = Control::outward(OTHER, OUTSIDE, 50_001);
        other.open(&mut pair);
        for call in 4_000..4_004 {
            other.call(&mut pair, [call, call]);
        }
        let mut control = Control::outward(CLIENT, OUTSIDE, 50_000);
        control.open(&mut pair);
        let mut said = Vec::new();
        let mut places = BTreeMap::new();
        for _ in 0..14 {
            let call = 4_000 + (random.next_u64() % 6) as u16;
            let text = match random.next_u64() % 6 {
                0 | 1 => request(call),
                2 => message(5, 16, &[call]),
                3 => message(15, 24, &[call]),
                4 => message(1, 156, &[]),
                _ => message(99, 12 + call % 300, &[]),
            };
            if text[9] == 7 {
                places.insert(said.len() + 12, call);
            }
            said.extend(text);
        }
        let (mut una, mut had, mut steps) = (0_usize, 0_usize, 0);
        let mut received: BTreeMap<usize, u8> = BTreeMap::new();
        while una < said.len() {
            steps += 1;
            assert!(steps < 20_000, "round {round}: no progress at {una} of {}", said.len());
            if random.next_u64() % 4 == 0 {
                control.said[0] =
                    if random.next_u64() % 4 == 0 { random.next_u64() as usize % (had + 1) } else { had }
                        as u32;
                let (port, packet) = control.segment(1, 1, Flags::ACK);
                let told = pair.forwarded(port, &packet);
                let told = tcp::parse(ipv4::parse(&told[14..]).unwrap().payload).unwrap().header.ack();
                assert_eq!(told, ISN.wrapping_add(1 + control.said[0]), "lengths stay");
                una = una.max(control.said[0] as usize);
                continue;
            }
            let from = match random.next_u64() % 4 {
                0 => una + random.next_u64() as usize % 60,
                _ => una,
            };
            if from >= said.len() {
                continue;
            }
            let most = if random.next_u64() % 3 == 0 { 20 } else { 1_460 };
            let end = (from + 1 + random.next_u64() as usize % most).min(said.len());
            let (port, packet) = control.segment(0, 1 + from as u32, Flags::ACK);
            let out = pair.receive(port, &packet.payload(&said[from..end]));
            dropped += usize::from(out.sent.is_empty());
            if random.next_u64() % 6 == 0 {
                continue;
            }
            for sent in &out.sent {
                let packet = ipv4::parse(&sent.bytes[14..]).unwrap();
                let segment = tcp::parse(packet.payload).unwrap();
                let at = segment.header.seq().wrapping_sub(ISN.wrapping_add(1)) as usize;
                for (place, byte) in (at..).zip(segment.payload) {
                    let before = received.insert(place, *byte);
                    assert!(
                        before.is_none_or(|before| before == *byte),
                        "round {round}: byte {place} is another"
                    );
                }
            }
            while received.contains_key(&had) {
                had += 1;
            }
        }
        assert_eq!(had, said.len(), "round {round}");
        let got: Vec<u8> = received.into_values().collect();
        let mut become_of = BTreeMap::new();
        let mut wanted = said.clone();
        for (place, call) in places {
            let known = id_at(&got, place);
            wanted[place..place + 2].copy_from_slice(&known.to_be_bytes());
            assert_eq!(*become_of.entry(call).or_insert(known), known, "round {round}");
            changed += usize::from(known != call);
        }
        assert!(got == wanted, "round {round}");
        let all: BTreeSet<u16> = become_of.values().copied().collect();
        assert_eq!(all.len(), become_of.len());
        assert!((4_000..4_004).all(|others| !all.contains(&others)), "those are the other client's");
    }
    assert!(dropped > 50 && changed > 50, "{dropped} dropped, {changed} changed");
}

/// Whatever is said in whatever order, nothing is lost of frames, ports and references (`scene/check.rs`), in both ways the same.
#[test]
fn any_order_of_any_messages() {
    let mut random = Random::new(6);
    for _ in 0..if cfg!(debug_assertions) { 16 } else { 80 } {
        let limit = if random.next_u64() % 2 == 0 { "[limit]\nflows = 24\n" } else { "" };
        let mut pair = Pair::assumed(&(masqueraded() + limit));
        let mut controls = [
            Control::outward(CLIENT, OUTSIDE, 50_000),
            Control::outward(OTHER, OUTSIDE, 50_000),
            Control::inward(SERVER),
        ];
        for control in &mut controls {
            control.open(&mut pair);
        }
        for _ in 0..200 {
            let mut pick = |many: u64| random.next_u64() % many;
            let [which, by] = [pick(3) as usize, pick(2) as usize];
            let ids = [4_000 + pick(4) as u16, 4_000 + pick(4) as u16, (pick(2) as u16) << 8];
            let (kind, len) = [
                (7, 168),
                (7, 168),
                (8, 32),
                (8, 32),
                (9, 220),
                (10, 24),
                (11, 28),
                (12, 16),
                (13, 148),
                (14, 40),
                (15, 24),
            ][pick(11) as usize];
            let mut text = message(kind, len, &ids[..2 + usize::from(len > 16)]);
            if pick(6) == 0 {
                let at = pick(text.len() as u64) as usize;
                text[at] = pick(256) as u8;
            }
            text.truncate(if pick(6) == 0 { 1 + pick(40) as usize } else { usize::MAX });
            let control = &mut controls[which];
            let (port, packet) = control.segment(by, 1 + control.said[by], Flags::ACK);
            let out = pair.receive(port, &packet.payload(&text));
            if let [sent] = out.sent.as_slice() {
                // What has passed is acknowledged by what is said next.
                let segment = tcp::parse(ipv4::parse(&sent.bytes[14..]).unwrap().payload).unwrap();
                control.said[by] += segment.payload.len() as u32;
            }
            let (from, ends) = [
                (LAN, [CLIENT, SERVER]),
                (LAN, [OTHER, SERVER]),
                (LAN, [HOME, SERVER]),
                (WAN, [SERVER, OUTSIDE]),
            ][pick(4) as usize];
            let call = 4_000 + pick(4) as u16;
            gre_leaves(&mut pair, from, ends, call);
            let at = pair.at();
            match pick(40) {
                0 => drop(pair.tend([30_000, 200_000, 400_000, 700_000][pick(4) as usize])),
                1 => drop(pair.do_both(|gateway| drop(gateway.reload(&(masqueraded() + limit), at)))),
                2 => drop(pair.do_both(|gateway| drop(gateway.reload(&policy("", MASQUERADE), at)))),
                3 => {
                    // Into other memory.
                    let more = masqueraded() + "[limit]\nflows = 3000\n";
                    drop(pair.do_both(|gateway| drop(gateway.reload(&more, at))));
                }
                _ => {}
            }
        }
        pair.tend(1_000_000_000);
        assert_eq!((pair.shard().flows.len(), pair.shard().mappings.len()), (0, 0));
    }
}
