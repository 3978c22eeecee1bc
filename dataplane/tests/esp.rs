//! Two gateways back to back, with a tunnel between them: packets go into one and come out of the other as they were, but for
//! their time to live.

use std::collections::HashSet;
use std::rc::Rc;

use dataplane::hop::Wanted;
use dataplane::replay::Way;
use dataplane::sa::{Keys, MOST_OUT, SaAddition, SaChange, SaError, SaId, SaNews, SaRefused, SaRequest};
use dataplane::state::{Cursor, Item};
use dataplane::tables::{Address, Selector};
use dataplane::{Reason, Shard, Verdict};
use wire::esp::{Direction, Esn, Secret, Suite};
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{Nanos, PortId, build, ipv4, ipv6};

use crate::scene::check::is_esp;
use crate::scene::{self, Arrival, Gateway, Out, START, Sent, setup};

/// Interfaces of a site, in their order.
pub(crate) const LAN: u16 = 0;
pub(crate) const WAN: u16 = 1;

pub(crate) const KEYS: [&str; 2] =
    ["000102030405060708090a0b0c0d0e0f10111213", "202122232425262728292a2b2c2d2e2f30313233"];

/// Outer packets: IP version, and UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outer {
    V4,
    V6,
    UdpV4,
    UdpV6,
    /// IPv4, in fragments.
    After,
}

/// A site whose own packets come from 10.SITE.0.0/16 and 2001:db8:SITE::/48, and whose peer is the site `other`.
pub(crate) fn site(own: u8, other: u8, outer: Outer, more: &str) -> String {
    let ends = |site: u8| match outer {
        Outer::V4 | Outer::UdpV4 | Outer::After => format!("192.0.2.{site}"),
        Outer::V6 | Outer::UdpV6 => format!("2001:db8:ff::{site}"),
    };
    let udp = if matches!(outer, Outer::UdpV4 | Outer::UdpV6) { "yes" } else { "no" };
    let fragment = if matches!(outer, Outer::After) { "fragment = \"after\"\n" } else { "" };
    let (out, inward) = if own < other { (0, 1) } else { (1, 0) };
    format!(
        "{more}[interface.lan]\nzone = \"lan\"\naddresses = [\"10.{own}.0.1/16\", \"2001:db8:{own}::1/48\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.{own}/24\", \"2001:db8:ff::{own}/64\"]\n\
         [interface.peer]\nzone = \"vpn\"\n[interface.peer.esp]\nlocal = \"{}\"\nremote = \"{}\"\nudp = \"{udp}\"\n{fragment}\
         [[interface.peer.esp.sa]]\ndirection = \"out\"\nspi = {}\nalgorithm = \"aes128-gcm\"\nkey = \"{}\"\n\
         [[interface.peer.esp.sa]]\ndirection = \"in\"\nspi = {}\nalgorithm = \"aes128-gcm\"\nkey = \"{}\"\n\
         [default]\n\"any > any\" = \"accept\"\n\
         [[route]]\nto = \"10.{other}.0.0/16\"\ninterface = \"peer\"\n\
         [[route]]\nto = \"2001:db8:{other}::/48\"\ninterface = \"peer\"\n",
        ends(own),
        ends(other),
        0x1000 + out,
        KEYS[out],
        0x1000 + inward,
        KEYS[inward],
    )
}

/// A packet between hosts of two sites, on the link of the first, of these lengths of payload.
pub(crate) fn packet(from: u8, to: u8, payload: usize, random: &mut Random) -> Vec<u8> {
    let data: Vec<u8> = (0..payload).map(|_| random.next_u64() as u8).collect();
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    let (sport, dport) = (1_000 + random.below(3) as u16, 2_000 + random.below(3) as u16);
    let host = 5 + random.below(3) as u8;
    if random.below(2) == 0 {
        let ip = link.ipv4([10, from, 0, host].into(), [10, to, 0, 7].into());
        ip.udp(sport, dport).payload(&data).to_vec()
    } else {
        let address = |site: u8, host: u8| format!("2001:db8:{site}::{host}").parse().unwrap();
        link.ipv6(address(from, host), address(to, 7)).udp(sport, dport).payload(&data).to_vec()
    }
}

/// The IP packet of a frame, its time to live set to `ttl` and the header's checksum made right.
fn with_ttl(frame: &[u8], ttl: u8) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    if packet[0] >> 4 == 4 {
        packet[8] = ttl;
        packet.truncate(usize::from(ipv4::Header::of(&packet).unwrap().total_len()));
        ipv4::fill_checksum(&mut packet);
    } else {
        packet[7] = ttl;
        packet.truncate(40 + usize::from(ipv6::Header::of(&packet).unwrap().payload_len()));
    }
    packet
}

/// Takes frames into a gateway, in batches of 64 at most.
pub(crate) fn through(gateway: &mut Gateway, port: u16, frames: &[Vec<u8>]) -> Out {
    let arrivals: Vec<Arrival> = frames
        .iter()
        .enumerate()
        .map(|(number, bytes)| Arrival {
            port: PortId(port),
            at: START,
            number: number as u32,
            bytes: bytes.clone(),
        })
        .collect();
    let mut all = Out::default();
    for batch in arrivals.chunks(64) {
        gateway.receive(batch);
        let out = gateway.out(usize::MAX);
        all.sent.extend(out.sent);
        all.ended.extend(out.ended);
        all.local.extend(out.local);
    }
    all
}

fn is_forwarded(sent: &Sent, port: u16) -> bool {
    sent.verdict == Some(Verdict::Forwarded) && sent.port == port
}

#[test]
fn what_goes_into_one_gateway_comes_out_of_the_other() {
    for (outer, way, mode) in [
        (Outer::V4, Way::Run, ""),
        (Outer::V6, Way::Run, ""),
        (Outer::UdpV4, Way::Run, ""),
        (Outer::UdpV6, Way::Run, ""),
        (Outer::V4, Way::Step, ""),
        (Outer::V4, Way::Run, "mode = \"stateless\"\n"),
    ] {
        let mut random = Random::new(17);
        let mut sites =
            [site(1, 2, outer, mode), site(2, 1, outer, mode)].map(|text| Gateway::new(&text, way));
        for round in 0..6 {
            let (near, far) = (round % 2, 1 - round % 2);
            let (from, to) = (near as u8 + 1, far as u8 + 1);
            // Up to what fits the tunnel across either version.
            let frames: Vec<Vec<u8>> = (0..150)
                .map(|_| {
                    let payload = random.below(1_418 - 48 + 1) as usize;
                    packet(from, to, payload, &mut random)
                })
                .collect();
            let sealed = through(&mut sites[near], LAN, &frames);
            assert_eq!(sealed.sent.len(), frames.len(), "{outer:?} {:?}", sealed.ended.first());
            assert!(sealed.sent.iter().all(|sent| is_forwarded(sent, WAN) && is_esp(&sent.bytes)));
            for (sent, frame) in sealed.sent.iter().zip(&frames) {
                let text = &frame[frame.len().saturating_sub(16)..];
                let leaks = frame.len() > 80 && sent.bytes.windows(text.len()).any(|window| window == text);
                assert!(!leaks, "an end of a packet is in clear");
            }
            let outer_frames: Vec<Vec<u8>> = sealed.sent.into_iter().map(|sent| sent.bytes).collect();
            let opened = through(&mut sites[far], WAN, &outer_frames);
            let packets: Vec<Vec<u8>> = opened
                .sent
                .iter()
                .filter(|sent| is_forwarded(sent, LAN))
                .map(|sent| sent.bytes[14..].to_vec())
                .collect();
            let expected: Vec<Vec<u8>> = frames.iter().map(|frame| with_ttl(frame, 62)).collect();
            assert_eq!(packets, expected, "{outer:?}");
            // None of them a second time.
            let again = through(&mut sites[far], WAN, &outer_frames);
            assert!(again.sent.is_empty());
            let replayed = Verdict::Dropped(Reason::Replayed);
            assert!(again.ended.iter().all(|(_, verdict)| *verdict == replayed));
        }
    }
}

#[test]
fn what_is_fragmented_outside_is_put_together_by_the_peer() {
    for way in [Way::Run, Way::Step] {
        let mut random = Random::new(23);
        let [mut near, mut far] =
            [site(1, 2, Outer::After, ""), site(2, 1, Outer::After, "")].map(|text| Gateway::new(&text, way));
        let frames: Vec<Vec<u8>> =
            (0..300).map(|_| packet(1, 2, random.below(1_452 + 1) as usize, &mut random)).collect();
        let sealed = through(&mut near, LAN, &frames);
        assert!(sealed.sent.len() > frames.len(), "{:?}", sealed.ended.first());
        let largest = sealed.sent.iter().map(|sent| sent.bytes.len()).max();
        assert_eq!(largest, Some(14 + 1_500));
        let outer: Vec<Vec<u8>> = sealed.sent.into_iter().map(|sent| sent.bytes).collect();
        let opened = through(&mut far, WAN, &outer);
        let packets: Vec<Vec<u8>> = opened.sent.iter().map(|sent| sent.bytes[14..].to_vec()).collect();
        assert_eq!(packets, frames.iter().map(|frame| with_ttl(frame, 62)).collect::<Vec<_>>());
        let kept = Verdict::Dropped(Reason::TunnelReassembly);
        assert!(opened.ended.iter().all(|(_, verdict)| *verdict == kept));
        assert_eq!(opened.ended.len(), outer.len() - frames.len());
    }
}

/// A gateway that knows nobody on its link keeps packets as they came, and seals them once the router is known.
#[test]
fn packets_wait_for_the_neighbour_of_the_peer_and_are_numbered_as_they_leave() {
    let text = site(1, 2, Outer::V4, "");
    let mut near = Gateway::resolved_by_host(&text, Way::Run);
    let mut far = Gateway::new(&site(2, 1, Outer::V4, ""), Way::Run);
    let mut random = Random::new(3);
    let frames: Vec<Vec<u8>> = (0..3).map(|_| packet(1, 2, 40, &mut random)).collect();
    let out = through(&mut near, LAN, &frames);
    assert!(out.sent.is_empty() && out.ended.is_empty(), "{out:?}");
    let wanted = near.shard.hops.wanted().expect("the peer is asked for");
    assert_eq!((wanted.interface, wanted.address.to_ip().to_string()), (PortId(WAN), "192.0.2.2".to_owned()));
    assert_eq!(near.shard.sas.outbound(0).unwrap().sequence.last(), 0);
    near.learn(wanted, Mac([2, 0, 0, 0, 0, 2]));
    near.tend(START);
    let sealed = near.out(usize::MAX);
    assert_eq!(near.shard.sas.outbound(0).unwrap().sequence.last(), 3);
    let outer: Vec<Vec<u8>> = sealed.sent.into_iter().map(|sent| sent.bytes).collect();
    let opened = through(&mut far, WAN, &outer);
    let packets: Vec<Vec<u8>> = opened.sent.iter().map(|sent| sent.bytes[14..].to_vec()).collect();
    assert_eq!(packets, frames.iter().map(|frame| with_ttl(frame, 62)).collect::<Vec<_>>());
}

/// Neighbours come and go until their numbers are given to others; and a reload gives all of them anew.
#[test]
fn packets_follow_the_peer_whatever_becomes_of_the_numbers_of_neighbours() {
    let text = site(1, 2, Outer::V4, "");
    let mut near = Gateway::resolved_by_host(&text, Way::Run);
    let mut random = Random::new(4);
    let frame = [packet(1, 2, 40, &mut random)];
    through(&mut near, LAN, &frame);
    let peer = near.shard.hops.wanted().expect("the peer is asked for");
    let on_link = |last: u8| Mac([2, 0, 0, 0, 0, last]);
    let destinations = |out: &Out| out.sent.iter().map(|sent| sent.bytes[5]).collect::<Vec<_>>();
    near.learn(peer, on_link(2));
    near.tend(START);
    assert_eq!(destinations(&near.out(usize::MAX)), [2]);
    assert_eq!(destinations(&through(&mut near, LAN, &frame)), [2]);
    near.forget(peer);
    let another = |host: u32| Wanted {
        interface: PortId(WAN),
        address: Address::v6((0x2001_0db8_00ff << 80) | (u128::from(host) + 9)),
    };
    for host in 0..70_000 {
        near.learn(another(host), on_link(7));
        near.forget(another(host));
    }
    (0..65_000).for_each(|host| near.learn(another(host), on_link(8)));
    let out = through(&mut near, LAN, &frame);
    assert!(
        out.sent.is_empty() && out.ended.is_empty(),
        "sent to a neighbour that has the number now: {out:?}"
    );
    near.learn(peer, on_link(3));
    near.tend(START);
    assert_eq!(destinations(&near.out(usize::MAX)), [3]);
    // An association that was added at run time stays, and its way does not.
    let out = addition(&near, Direction::Out, 0x3000, 7);
    change(&mut near, out.prepare()).unwrap();
    assert_eq!(destinations(&through(&mut near, LAN, &frame)), [3]);
    let more = "[interface.aaa]\nzone = \"lan\"\naddresses = [\"10.9.0.1/16\"]\n";
    near.reload(&(text + more), START);
    (0..1_000).for_each(|host| near.learn(another(host), on_link(6)));
    let out = through(&mut near, LAN, &frame);
    assert!(out.sent.is_empty() && out.ended.is_empty(), "sent by the number of before the reload: {out:?}");
}

/// Packets that are out of order, twice, forged, beyond a window or a lifetime, and of two security associations by turns, in batches of
/// all sizes.
#[test]
fn what_is_sealed_and_opened_together_is_as_one_after_another() {
    let mut random = Random::new(31);
    let mut met = HashSet::new();
    for round in 0..72 {
        let (esn, window) = [(true, "32"), (true, "70"), (false, "32"), (false, "\"off\"")][round % 4];
        let hard = round % 5 == 0;
        let more = |text: String| {
            let sa = format!("esn = {esn}\n{}", if hard { "hard = { packets = 40 }\n" } else { "" });
            text.replace("udp = \"no\"\n", &format!("udp = \"no\"\nwindow = {window}\n"))
                .replace("algorithm = \"aes128-gcm\"\n", &format!("algorithm = \"aes128-gcm\"\n{sa}"))
        };
        let sites = [(1, 2), (2, 1)].map(|(own, other)| more(site(own, other, Outer::V4, "")));
        // Two security associations, each with numbers of its own.
        let mut frames = Vec::new();
        for is_added in [false, true] {
            let mut nears = [Way::Run, Way::Step].map(|way| Gateway::new(&sites[0], way));
            for near in &mut nears {
                if is_added {
                    let out = addition(near, Direction::Out, 0x3000, 7);
                    change(near, out.prepare()).unwrap();
                }
                let begin = if esn && !is_added { u64::from(u32::MAX) - 30 } else { 0 };
                near.shard.sas.outbound(0).unwrap().sequence.raise(begin);
            }
            for _ in 0..12 {
                let clear: Vec<Vec<u8>> = (0..random.below(20))
                    .map(|_| packet(1, 2, random.below(200) as usize, &mut random))
                    .collect();
                let [run, step] = nears.each_mut().map(|near| through(near, LAN, &clear));
                assert_eq!(run, step);
                frames.extend(run.sent.into_iter().map(|sent| sent.bytes));
                let jump = [0, 0, 3, 31, 70, 1_000][random.below(6) as usize];
                for near in &nears {
                    let sequence = &near.shard.sas.outbound(0).unwrap().sequence;
                    sequence.raise(sequence.last() + jump);
                }
            }
            let [run, step] = nears.each_ref().map(|near| near.shard.sas.views(START));
            assert_eq!(run, step);
        }
        let mut fars = [Way::Run, Way::Step].map(|way| Gateway::new(&sites[1], way));
        for far in &mut fars {
            let inward = addition(far, Direction::In, 0x3000, 7);
            change(far, inward.prepare()).unwrap();
        }
        let half = frames.len() / 2;
        for at in 0..60 {
            let batch: Vec<Vec<u8>> = (0..random.below(64) + 1)
                .map(|number| {
                    let near_by = (at * half / 60 + (number + random.below(9)) as usize / 3) % half;
                    let mut frame = frames[near_by + half * random.below(2) as usize].clone();
                    match random.below(16) {
                        0 => {
                            let place = 34 + random.below(frame.len() as u64 - 34) as usize;
                            frame[place] ^= 1 << random.below(8);
                        }
                        1 => frame = packet(2, 1, 20, &mut random),
                        _ => {}
                    }
                    frame
                })
                .collect();
            let [run, step] = fars.each_mut().map(|far| through(far, WAN, &batch));
            assert_eq!(run, step, "window {window}, esn {esn}");
            met.extend(run.ended.into_iter().map(|(_, verdict)| verdict.to_string()));
        }
        assert_eq!(fars[0].shard.counters, fars[1].shard.counters);
        let [run, step] = fars.each_ref().map(|far| far.shard.sas.views(START));
        assert_eq!(run, step);
    }
    for reason in [Reason::Replayed, Reason::IcvWrong, Reason::SaExpired] {
        assert!(met.contains(&Verdict::Dropped(reason).to_string()), "{met:?}");
    }
}

/// The hub of three sites: packets for both others by turns, one of whose associations ends by its use; some are too large.
#[test]
fn packets_for_several_peers_are_sealed_together_as_one_after_another() {
    let mut random = Random::new(37);
    let mut met = HashSet::new();
    for (suite, len) in [("aes128-gcm", 20), ("aes128-cbc+hmac-sha1-96", 16)] {
        let (algorithm, auth) = suite.split_once('+').unwrap_or((suite, ""));
        let sa = |direction: &str, spi: u32, first: u8| {
            let key = |len: u8| (first..first + len).map(|byte| format!("{byte:02x}")).collect::<String>();
            let auth = match auth {
                "" => String::new(),
                auth => format!("auth = \"{auth}\"\nauth-key = \"{}\"\n", key(20)),
            };
            format!(
                "[[interface.third.esp.sa]]\ndirection = \"{direction}\"\nspi = {spi}\n\
                 algorithm = \"{algorithm}\"\nkey = \"{}\"\n{auth}",
                key(len)
            )
        };
        let more = format!(
            "[interface.third]\nzone = \"vpn\"\n[interface.third.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.3\"\n\
             {}{}hard = {{ packets = 200 }}\n\
             [[route]]\nto = \"10.3.0.0/16\"\ninterface = \"third\"\n\
             [[route]]\nto = \"2001:db8:3::/48\"\ninterface = \"third\"\n",
            sa("in", 0x2001, 0x80),
            sa("out", 0x2000, 0xa0)
        );
        let hub = site(1, 2, Outer::V4, "") + &more;
        let mut hubs = [Way::Run, Way::Step].map(|way| Gateway::new(&hub, way));
        for _ in 0..30 {
            let clear: Vec<Vec<u8>> = (0..random.below(64) + 1)
                .map(|_| {
                    let to = 2 + random.below(2) as u8;
                    let least = if random.below(20) == 0 { 1_150 } else { 0 };
                    packet(1, to, least + random.below(300) as usize, &mut random)
                })
                .collect();
            let [run, step] = hubs.each_mut().map(|hub| through(hub, LAN, &clear));
            assert_eq!(run, step);
            met.extend(run.ended.into_iter().map(|(_, verdict)| verdict.to_string()));
            met.extend(run.sent.into_iter().filter_map(|sent| Some(sent.verdict?.to_string())));
        }
        let [run, step] = hubs.each_ref().map(|hub| hub.shard.sas.views(START));
        assert_eq!(run, step);
    }
    for verdict in
        [Verdict::Dropped(Reason::SaExpired), Verdict::Answered(Reason::PacketTooBig), Verdict::Forwarded]
    {
        assert!(met.contains(&verdict.to_string()), "{met:?}");
    }
}

/// A number used twice under one key would give the key's stream away.
#[test]
fn numbers_and_windows_outlive_a_reload_as_long_as_the_key_stays() {
    let [mut near, mut far] =
        [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")].map(|text| Gateway::new(&text, Way::Run));
    let mut random = Random::new(5);
    let frames: Vec<Vec<u8>> = (0..5).map(|_| packet(1, 2, 40, &mut random)).collect();
    let first = through(&mut near, LAN, &frames);
    let outer: Vec<Vec<u8>> = first.sent.iter().map(|sent| sent.bytes.clone()).collect();
    assert_eq!(through(&mut far, WAN, &outer).sent.len(), 5);
    let more = "[interface.aaa]\nzone = \"lan\"\naddresses = [\"10.9.0.1/16\"]\n";
    near.reload(&(site(1, 2, Outer::V4, "") + more), START);
    far.reload(&(site(2, 1, Outer::V4, "") + more), START);
    assert_eq!(near.shard.sas.outbound(0).unwrap().sequence.last(), 5);
    let again = through(&mut far, WAN, &outer);
    assert!(again.sent.is_empty(), "a reload opens the window again");
    let second = through(&mut near, LAN, &frames);
    let outer: Vec<Vec<u8>> = second.sent.iter().map(|sent| sent.bytes.clone()).collect();
    assert_eq!(through(&mut far, WAN, &outer).sent.len(), 5);
    // Another key begins its own numbers, and the first one goes on where it was when it comes back.
    let (text, other) = (site(1, 2, Outer::V4, ""), "303132333435363738393a3b3c3d3e3f40414243");
    let last = |gateway: &Gateway| gateway.shard.sas.outbound(0).unwrap().sequence.last();
    near.reload(&text.replace(KEYS[0], other), START);
    assert_eq!(last(&near), 0);
    near.reload(PLAIN, START);
    near.reload(&text, START);
    assert_eq!(last(&near), 10);
    // Nor does the peer take again what it took before its key was gone.
    far.reload(PLAIN, START);
    far.reload(&site(2, 1, Outer::V4, ""), START);
    assert!(through(&mut far, WAN, &outer).sent.is_empty(), "a key that comes back opens the window again");
    let third = through(&mut near, LAN, &frames);
    let outer: Vec<Vec<u8>> = third.sent.iter().map(|sent| sent.bytes.clone()).collect();
    assert_eq!(through(&mut far, WAN, &outer).sent.len(), 5);
}

/// A policy without a tunnel.
const PLAIN: &str = "[interface.lan]\nzone = \"lan\"\n[interface.wan]\nzone = \"wan\"\n[default]\n\"any > any\" = \"accept\"\n";

/// A worker that has lost its shard by a panic begins anew, and its peer must not see a number twice, nor it take a packet twice.
#[test]
fn a_shard_that_begins_anew_goes_on_with_numbers_and_takes_nothing_twice() {
    let [mut near, mut far] =
        [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")].map(|text| Gateway::new(&text, Way::Run));
    let mut random = Random::new(6);
    let frames: Vec<Vec<u8>> = (0..5).map(|_| packet(1, 2, 40, &mut random)).collect();
    let outer = |out: &Out| out.sent.iter().map(|sent| sent.bytes.clone()).collect::<Vec<_>>();
    let first = outer(&through(&mut near, LAN, &frames));
    assert_eq!(through(&mut far, WAN, &first).sent.len(), 5);
    for gateway in [&mut near, &mut far] {
        gateway.shard = Shard::new(&gateway.tables, setup(START)).unwrap();
    }
    assert!(through(&mut far, WAN, &first).sent.is_empty());
    let second = outer(&through(&mut near, LAN, &frames));
    assert_eq!(through(&mut far, WAN, &second).sent.len(), 5);
}

/// Two workers' shards seal with one key.
#[test]
fn shards_of_the_same_tables_count_together() {
    let tables = Rc::new(scene::tables(&site(1, 2, Outer::V4, "")));
    let mut workers = [0, 1].map(|_| Gateway::with_slots(Rc::clone(&tables), Way::Run, 200));
    let mut far = Gateway::new(&site(2, 1, Outer::V4, ""), Way::Run);
    let mut random = Random::new(7);
    let mut sent = Vec::new();
    for round in 0..20 {
        let frame = packet(1, 2, 40, &mut random);
        let out = through(&mut workers[round % 2], LAN, std::slice::from_ref(&frame));
        sent.extend(out.sent.into_iter().map(|sent| sent.bytes));
    }
    assert_eq!(through(&mut far, WAN, &sent).sent.len(), 20);
    assert_eq!(workers[0].shard.sas.outbound(0).unwrap().sequence.last(), 20);
}

/// Packets of the peer come in at one worker, and packets to it leave by all: what one has learnt of the way, the others are told.
#[test]
fn workers_tell_one_another_where_the_peer_is() {
    let site = |remote: &str| site(1, 2, Outer::UdpV4, "").replace("192.0.2.2", remote);
    let tables = Rc::new(scene::tables(&site("192.0.2.2")));
    let mut workers = [0, 1].map(|_| Gateway::with_slots(Rc::clone(&tables), Way::Run, 200));
    let mut far = Gateway::new(&self::site(2, 1, Outer::UdpV4, ""), Way::Run);
    let mut random = Random::new(12);
    let mut inward = |at: Nanos, source: [u8; 4]| {
        let mut frame = through(&mut far, LAN, &[packet(2, 1, 40, &mut random)]).sent.remove(0).bytes;
        frame[26..30].copy_from_slice(&source);
        ipv4::fill_checksum(&mut frame[14..]);
        Arrival { port: PortId(WAN), at, number: 0, bytes: frame }
    };
    let mut random = Random::new(13);
    let mut leaves_for = |worker: &mut Gateway, at: Nanos| {
        let bytes = packet(1, 2, 40, &mut random);
        worker.receive(&[Arrival { port: PortId(LAN), at, number: 0, bytes }]);
        <[u8; 4]>::try_from(&worker.out(usize::MAX).sent.remove(0).bytes[30..34]).unwrap()
    };
    let interface = tables.number_of(tables.tunnels.list[0].interface);
    let told = |worker: &mut Gateway| {
        let event = worker.shard.sas.take_events().next()?;
        let SaNews::Path(news) = event.news else { panic!("{event:?}") };
        Some(move || SaChange::Path { interface, news, at: event.at })
    };
    let after = |millis| START + Nanos::from_millis(millis);
    let [one, two] = &mut workers;
    one.receive(&[inward(after(0), [192, 0, 2, 77])]);
    assert_eq!(one.out(usize::MAX).sent.len(), 1);
    assert!(told(one).is_none(), "it does not hold yet");
    one.tend(after(200));
    let moved = told(one).expect("news");
    assert_eq!(leaves_for(one, after(200)), [192, 0, 2, 77]);
    assert_eq!(leaves_for(two, after(200)), [192, 0, 2, 2]);
    change(two, moved()).unwrap();
    assert_eq!(leaves_for(two, after(200)), [192, 0, 2, 77]);
    // It is no news to the other one, neither then nor when packets come in there.
    two.receive(&[inward(after(400), [192, 0, 2, 77])]);
    two.tend(after(600));
    assert!(told(two).is_none());
    // But when the peer is back where it was at first, it is, at whichever.
    two.receive(&[inward(after(800), [192, 0, 2, 2])]);
    two.tend(after(1_000));
    change(one, told(two).expect("news")()).unwrap();
    assert_eq!(leaves_for(one, after(1_000)), [192, 0, 2, 2]);
    // What was learnt of a peer that the policy now says is elsewhere is no news, nor is that of a tunnel that is gone.
    one.reload(&site("192.0.2.55"), after(1_200));
    change(one, moved()).unwrap();
    assert_eq!(leaves_for(one, after(1_200)), [192, 0, 2, 55]);
    one.reload(PLAIN, after(1_400));
    assert_eq!(change(one, moved()), Err(SaRefused::NoTunnel));
}

/// A peer without a fixed address is where its first genuine packet came from, for all workers and over reloads; until then nothing leaves.
#[test]
fn a_peer_without_an_address_is_found_by_its_first_packet() {
    let text = |outer| site(1, 2, outer, "").replace("remote = \"192.0.2.2\"", "remote = \"any\"");
    for (outer, way) in [(Outer::UdpV4, Way::Run), (Outer::V4, Way::Run), (Outer::V4, Way::Step)] {
        let tables = Rc::new(scene::tables(&text(outer)));
        let mut workers = [0, 1].map(|_| Gateway::with_slots(Rc::clone(&tables), way, 200));
        let mut far = Gateway::new(&site(2, 1, outer, ""), way);
        let mut random = Random::new(31);
        let mut inward = |at: Nanos| {
            let bytes = through(&mut far, LAN, &[packet(2, 1, 40, &mut random)]).sent.remove(0).bytes;
            Arrival { port: PortId(WAN), at, number: 0, bytes }
        };
        let mut random = Random::new(32);
        // Where a packet leaves for, or the reason why it does not.
        let mut leaves_for = |worker: &mut Gateway, at: Nanos| {
            let bytes = packet(1, 2, 40, &mut random);
            worker.receive(&[Arrival { port: PortId(LAN), at, number: 0, bytes }]);
            let out = worker.out(usize::MAX);
            let sent = out.sent.first().map(|sent| <[u8; 4]>::try_from(&sent.bytes[30..34]).unwrap());
            sent.ok_or_else(|| out.ended[0].1)
        };
        let unknown = Err(Verdict::Dropped(Reason::TunnelPeerUnknown));
        let after = |millis| START + Nanos::from_millis(millis);
        let [one, two] = &mut workers;
        assert_eq!(leaves_for(one, after(0)), unknown);
        // Forged, it tells nothing.
        let mut forged = inward(after(0));
        *forged.bytes.last_mut().unwrap() ^= 1;
        one.receive(&[forged]);
        assert_eq!(one.out(usize::MAX).ended[0].1, Verdict::Dropped(Reason::IcvWrong));
        one.tend(after(200));
        assert_eq!(leaves_for(one, after(200)), unknown);
        one.receive(&[inward(after(300))]);
        assert!(is_forwarded(&one.out(usize::MAX).sent[0], LAN));
        assert_eq!(leaves_for(one, after(300)), unknown, "it does not hold yet");
        one.tend(after(500));
        assert_eq!((leaves_for(one, after(500)), leaves_for(two, after(500))), (Ok([192, 0, 2, 2]), unknown));
        let event = one.shard.sas.take_events().next().expect("news");
        let SaNews::Path(news) = event.news else { panic!("{event:?}") };
        let interface = tables.number_of(tables.tunnels.list[0].interface);
        change(two, SaChange::Path { interface, news, at: event.at }).unwrap();
        assert_eq!(leaves_for(two, after(500)), Ok([192, 0, 2, 2]));
        let more = "[interface.aaa]\nzone = \"lan\"\naddresses = [\"10.9.0.1/16\"]\n";
        one.reload(&(text(outer) + more), after(600));
        assert_eq!(leaves_for(one, after(600)), Ok([192, 0, 2, 2]));
        // One that is added sends there, too, even as the only one; it is named without an address.
        let nowhere = Address { bits: 0, v6: false };
        let id = |spi| SaId { direction: Direction::Out, spi, destination: nowhere };
        assert_eq!(change(one, SaChange::Delete(id(0x1000))), Ok(true));
        let added = addition(one, Direction::Out, 0x3000, 7);
        assert_eq!(added.id, id(0x3000));
        change(one, added.prepare()).unwrap();
        assert_eq!(leaves_for(one, after(700)), Ok([192, 0, 2, 2]));
    }
}

/// Associations out of tunnels to any peer have no address to be told apart by.
#[test]
fn associations_out_to_any_peer_have_spis_of_their_own() {
    let text = site(1, 2, Outer::V4, "");
    let other = "[interface.other]\nzone = \"vpn\"\n[interface.other.esp]\nlocal = \"192.0.2.1\"\nremote = \"any\"\n\
        [[interface.other.esp.sa]]\ndirection = \"out\"\nspi = 0x3000\nalgorithm = \"aes128-gcm\"\nkey = \"404142434445464748494a4b4c4d4e4f50515253\"\n\
        [[interface.other.esp.sa]]\ndirection = \"in\"\nspi = 0x3000\nalgorithm = \"aes128-gcm\"\nkey = \"606162636465666768696a6b6c6d6e6f70717273\"\n";
    let fixed = text.clone() + other;
    let any = text.replace("remote = \"192.0.2.2\"", "remote = \"any\"") + other;
    let mut gateways = [fixed, any].map(|text| Gateway::new(&text, Way::Run));
    let outcomes = gateways.each_mut().map(|gateway| {
        let added = addition(gateway, Direction::Out, 0x3000, 7);
        change(gateway, added.prepare())
    });
    assert_eq!(outcomes, [Ok(false), Err(SaRefused::Taken)]);
}

/// A security association of tunnel `peer`, whose key is made of this byte.
pub(crate) fn addition(gateway: &Gateway, direction: Direction, spi: u32, key: u8) -> SaAddition {
    selective(gateway, direction, spi, key, &[])
}

/// The same for packets that these selectors match.
pub(crate) fn selective(
    gateway: &Gateway,
    direction: Direction,
    spi: u32,
    key: u8,
    selectors: &[Selector],
) -> SaAddition {
    let suite = Suite::named("aes256-gcm", None).unwrap();
    let keys = Keys { cipher: Secret::new(vec![key; 36].into()), auth: Secret::new(Box::default()) };
    SaAddition::new(
        &gateway.tables,
        &SaRequest {
            tunnel: "peer",
            direction,
            spi,
            esn: Esn::Off,
            suite,
            keys: &keys,
            selectors,
            agreed: None,
        },
    )
    .unwrap()
}

pub(crate) fn change(gateway: &mut Gateway, change: SaChange) -> Result<bool, SaRefused> {
    let tables = Rc::clone(&gateway.tables);
    gateway.shard.change_sa(&tables, change, START).map(|retired| retired.is_some())
}

/// A rekey while packets are under way loses none, and takes none twice; what was added outlives a reload.
#[test]
fn associations_are_added_used_and_deleted_at_run_time() {
    let texts = [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")];
    let [mut near, mut far] = texts.each_ref().map(|text| Gateway::new(text, Way::Run));
    let mut random = Random::new(8);
    let frames: Vec<Vec<u8>> = (0..5).map(|_| packet(1, 2, 40, &mut random)).collect();
    let outer = |out: &Out| out.sent.iter().map(|sent| sent.bytes.clone()).collect::<Vec<_>>();
    let spi = |frame: &Vec<u8>| u32::from_be_bytes(frame[34..38].try_into().unwrap());
    let before = outer(&through(&mut near, LAN, &frames));
    assert!(before.iter().all(|frame| spi(frame) == 0x1000));
    let (inward, out) =
        (addition(&far, Direction::In, 0x3000, 7), addition(&near, Direction::Out, 0x3000, 7));
    assert_eq!(change(&mut far, inward.prepare()), Ok(false));
    assert_eq!(change(&mut far, inward.prepare()), Err(SaRefused::Taken));
    assert_eq!(change(&mut near, out.prepare()), Ok(false));
    assert_eq!(change(&mut near, out.prepare()), Err(SaRefused::Taken));
    let after = outer(&through(&mut near, LAN, &frames));
    assert!(after.iter().all(|frame| spi(frame) == 0x3000));
    // Packets under the old key come behind those under the new one.
    assert_eq!(through(&mut far, WAN, &after).sent.len(), 5);
    assert_eq!(through(&mut far, WAN, &before).sent.len(), 5);
    // A reload keeps what was added, its window too, and the one that was added last stays in use.
    let more = "[interface.aaa]\nzone = \"lan\"\naddresses = [\"10.9.0.1/16\"]\n";
    near.reload(&(site(1, 2, Outer::V4, "") + more), START);
    far.reload(&(site(2, 1, Outer::V4, "") + more), START);
    assert!(through(&mut far, WAN, &after).sent.is_empty(), "a reload opens the window again");
    let later = outer(&through(&mut near, LAN, &frames));
    assert!(later.iter().all(|frame| spi(frame) == 0x3000));
    assert_eq!(through(&mut far, WAN, &later).sent.len(), 5);
    // The old ones go, and what they sealed is not taken any more.
    let old = outer(&through(&mut Gateway::new(&texts[0], Way::Run), LAN, &frames));
    let ends = &far.tables.tunnels.list[0];
    let id = SaId { direction: Direction::In, spi: 0x1000, destination: ends.local };
    assert_eq!(change(&mut far, SaChange::Delete(id)), Ok(true));
    assert_eq!(change(&mut far, SaChange::Delete(id)), Err(SaRefused::Unknown));
    let unknown = through(&mut far, WAN, &old);
    assert!(unknown.ended.iter().all(|(_, verdict)| *verdict == Verdict::Dropped(Reason::SpiUnknown)));
    // The one out that is left is in use again.
    let id = SaId {
        direction: Direction::Out,
        spi: 0x3000,
        destination: near.tables.tunnels.list[0].destination(Direction::Out),
    };
    assert_eq!(change(&mut near, SaChange::Delete(id)), Ok(true));
    let last = outer(&through(&mut near, LAN, &frames));
    assert!(last.iter().all(|frame| spi(frame) == 0x1000));
    // The same key a second time goes on with its numbers, and a tunnel that goes takes its own with it.
    let again = addition(&near, Direction::Out, 0x4000, 7);
    assert_eq!(again.known().sequence.last(), 10);
    change(&mut near, again.prepare()).unwrap();
    near.reload(PLAIN, START);
    assert_eq!(near.shard.sas.views(START).len(), 0);
    assert!(!again.is_of(&near.tables));
    assert_eq!(change(&mut near, again.prepare()), Err(SaRefused::NoTunnel));
}

/// There is no key that two associations have, nor room without end.
#[test]
fn keys_that_are_in_use_and_associations_without_end_are_refused() {
    let mut near = Gateway::new(&site(1, 2, Outer::V4, ""), Way::Run);
    let suite = Suite::named("aes128-gcm", None).unwrap();
    for direction in [Direction::In, Direction::Out] {
        for key in KEYS {
            let keys = Keys { cipher: Secret::of_hex(key).unwrap(), auth: Secret::new(Box::default()) };
            let request = SaRequest {
                tunnel: "peer",
                direction,
                spi: 0x5000,
                esn: Esn::Off,
                suite,
                keys: &keys,
                selectors: &[],
                agreed: None,
            };
            let refused = SaAddition::new(&near.tables, &request);
            assert_eq!(refused.map(|_| ()), Err(SaError::SameKey));
        }
    }
    // What was added may come into the policy as it is, but its key may not come for another one.
    let later = addition(&near, Direction::Out, 0x1000, 9);
    let text = site(1, 2, Outer::V4, "");
    let with = |text: &str| {
        scene::tables(&text.replace(KEYS[0], &"09".repeat(36)).replacen("aes128-gcm", "aes256-gcm", 1))
    };
    for (policy, outcome, is_in) in [
        (with(&text), Ok(()), true),
        (scene::tables(&text), Ok(()), false),
        (with(&text.replace("spi = 4096", "spi = 4098")), Err(SaError::SameKey), false),
        (
            with(&text.replace("\"out\"", "\"x\"").replace("\"in\"", "\"out\"").replace("\"x\"", "\"in\"")),
            Err(SaError::SameKey),
            false,
        ),
        (scene::tables(PLAIN), Ok(()), false),
    ] {
        assert_eq!((later.check(&policy), later.is_in(&policy)), (outcome, is_in));
    }
    let (one, other) = (addition(&near, Direction::In, 1, 9), addition(&near, Direction::Out, 1, 9));
    assert!(one.has_key_of(&other) && other.has_key_of(&one));
    assert!(!one.has_key_of(&addition(&near, Direction::In, 1, 10)));
    let mut outcomes = (0..20).map(|number| {
        let sa = addition(&near, Direction::Out, 0x6000 + number, 20 + number as u8);
        change(&mut near, sa.prepare())
    });
    assert!(outcomes.by_ref().take(MOST_OUT - 1).all(|outcome| outcome == Ok(false)));
    assert!(outcomes.all(|outcome| outcome == Err(SaRefused::Full)));
    for number in 0..near.tables.limits.sas {
        let keys = Keys {
            cipher: Secret::new([&number.to_be_bytes()[..], &[1; 16]].concat().into()),
            auth: Secret::new(Box::default()),
        };
        let (direction, spi, esn) = (Direction::In, 0x10000 + number, Esn::Off);
        let request = SaRequest {
            tunnel: "peer",
            direction,
            spi,
            esn,
            suite,
            keys: &keys,
            selectors: &[],
            agreed: None,
        };
        let sa = SaAddition::new(&near.tables, &request).unwrap();
        assert_eq!(change(&mut near, sa.prepare()), Ok(false), "{number}");
    }
    let one_more = addition(&near, Direction::In, 0x20000, 99);
    assert_eq!(change(&mut near, one_more.prepare()), Err(SaRefused::Full));
}

/// Another process goes on behind the numbers that this one has used; what it is given holds no key.
#[test]
fn numbers_and_windows_go_from_process_to_process() {
    let texts = [site(1, 2, Outer::V4, ""), site(2, 1, Outer::V4, "")];
    let [mut near, mut far] = texts.each_ref().map(|text| Gateway::new(text, Way::Run));
    let mut random = Random::new(9);
    let frames: Vec<Vec<u8>> = (0..5).map(|_| packet(1, 2, 40, &mut random)).collect();
    let outer = |out: &Out| out.sent.iter().map(|sent| sent.bytes.clone()).collect::<Vec<_>>();
    let sealed = outer(&through(&mut near, LAN, &frames));
    assert_eq!(through(&mut far, WAN, &sealed).sent.len(), 5);
    let [mut near_after, mut far_after] = texts.each_ref().map(|text| Gateway::new(text, Way::Run));
    for (before, after) in [(&near, &mut near_after), (&far, &mut far_after)] {
        let mut items = Vec::new();
        let mut next = Some(Cursor::default());
        while let Some(cursor) = next {
            next = before.shard.export(&before.tables, START, cursor, 1, |item| items.push(item));
        }
        let numbers: Vec<&Item> = items.iter().filter(|item| matches!(item, Item::Sa(_))).collect();
        assert_eq!(numbers.len(), 2);
        let text = format!("{items:?}");
        assert!(KEYS.iter().all(|key| !text.contains(key)), "{text}");
        for item in numbers {
            let tables = Rc::clone(&after.tables);
            after.shard.import(&tables, item, START).unwrap();
        }
    }
    assert!(through(&mut far_after, WAN, &sealed).sent.is_empty(), "a packet is taken twice");
    let more = outer(&through(&mut near_after, LAN, &frames));
    assert_eq!(through(&mut far_after, WAN, &more).sent.len(), 5);
    assert_eq!(near_after.shard.sas.outbound(0).unwrap().sequence.last(), 10);
}
