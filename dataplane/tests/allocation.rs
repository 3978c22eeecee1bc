//! Nothing is allocated on the packet path: not for packets of known flows, nor for new ones, dropped ones, answered
//! ones, cut ones or fragments, and not for those that wait for neighbours. From the first packet on: all memory is taken
//! when the gateway is made.

use allocation_counter::measure;
use dataplane::egress::Next;
use dataplane::replay::Way;
use wire::ethernet::Mac;
use wire::random::Random;
use wire::{BATCH, Nanos};

use crate::scene::packet::Packets;
use crate::scene::{Gateway, START, packet, policy, tables};

/// Returns the allocations while these batches pass. Frames are seen and released, not copied.
fn allocated(gateway: &mut Gateway, batches: &[Vec<crate::scene::Arrival>]) -> u64 {
    let (mut seen, mut told) = (0_usize, 0);
    let info = measure(|| {
        for batch in batches {
            gateway.receive(batch);
            gateway.drain(usize::MAX, |_, frame| seen += frame.len());
            // Where neighbours are told: every second one.
            while let Some(wanted) = gateway.shard.hops.wanted() {
                told += 1;
                if told % 2 == 0 {
                    gateway.learn(wanted, Mac([2; 6]));
                } else if told % 5 == 0 {
                    gateway.unreachable(wanted);
                }
            }
        }
    });
    assert!(seen > 0);
    info.count_total
}

/// So many batches of packets made of a seed. What comes out is learnt by another gateway, so that there are answers.
fn batches(scene: &policy::Scene, seed: u64, count: usize) -> Vec<Vec<crate::scene::Arrival>> {
    let (mut teacher, mut world, mut random) =
        (Gateway::new(&scene.text, Way::Run), Packets::of(scene), Random::new(seed));
    let one = |_| {
        let batch: Vec<_> = (0..BATCH)
            .map(|_| {
                let mut bytes = [0; packet::BYTES];
                for part in bytes.chunks_mut(8) {
                    part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
                }
                world.next(&bytes)
            })
            .collect();
        teacher.receive(&batch);
        world.learn(&teacher.out(usize::MAX));
        batch
    };
    (0..count).map(one).collect()
}

#[test]
fn no_packet_makes_anything_allocate() {
    let mut random = Random::new(3);
    for round in 0..40 {
        let mut seed = [0; policy::BYTES];
        for byte in &mut seed {
            *byte = random.next_u64() as u8;
        }
        let scene = policy::of(&seed);
        let batches = batches(&scene, round, 40);
        for way in [Way::Run, Way::Step] {
            for make in [Gateway::new, Gateway::resolved_by_host] {
                // With a log of all there is, too small for it, and a record of drops.
                let log = "[gateway]\nlog-events = [\"rule\", \"connection\", \"nat\"]\n";
                let mut gateway = make(&format!("{}{log}", scene.text), way);
                gateway.shard.log.keep(1_000, &gateway.tables);
                gateway.shard.recorder.keep(&gateway.tables);
                assert_eq!(allocated(&mut gateway, &batches), 0, "{way:?} under\n{}", scene.text);
            }
        }
    }
}

/// As many fragments as may wait come free at once, by time and by their first.
#[test]
fn fragments_that_come_free_at_once_make_nothing_allocate() {
    use wire::header::{Fragment, Protocol};
    // Three quarters of it are for one side.
    let held = 664;
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"lan > wan\" = \"accept\"\n\
         [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[limit.fragments]\nheld = {held}\n"
    );
    let to = "8.8.8.8".parse().unwrap();
    let mut number = 0;
    let mut piece = |id, offset, at| {
        number += 1;
        // Of several hosts, as none may have all of them wait.
        let from = std::net::Ipv4Addr::new(192, 168, 1, 5 + (id % 8) as u8);
        let link = wire::build::ethernet(Mac([2; 6]), Mac([4; 6]));
        let packet = link.ipv4(from, to).fragment(Fragment { id, offset, more: true });
        let bytes = packet.protocol(Protocol::UDP).payload(&[0, 80, 0, 80, 0, 200, 0, 0]).to_vec();
        crate::scene::Arrival { port: wire::PortId(0), at, number, bytes }
    };
    // 31 datagrams of 16 fragments wait, and one more fragment comes when their time is over.
    let mut rounds: Vec<Vec<_>> =
        (0..31).map(|id| (1..=16).map(|n| piece(id, n * 8, START)).collect()).collect();
    rounds.push(vec![piece(99, 8, START + Nanos::from_secs(31))]);
    // Then 62 wait for one first.
    rounds.push((1..=62).map(|n| piece(100, n * 8, START + Nanos::from_secs(31))).collect());
    rounds.push(vec![piece(100, 0, START + Nanos::from_secs(31))]);
    for way in [Way::Run, Way::Step] {
        let mut gateway = Gateway::with_slots(tables(&text), way, 700);
        let mut most = 0;
        let mut ended = 0;
        let info = measure(|| {
            for round in &rounds {
                gateway.receive(round);
                most = most.max(gateway.shard.counters.held);
                gateway.drain(usize::MAX, |_, _| ended += 1);
            }
        });
        assert_eq!(info.count_total, 0, "{way:?}");
        assert_eq!((most, ended), (496, 496 + 63), "{way:?}");
    }
}

/// More neighbours than may be asked for at one time, and more packets than may wait; then time passes.
#[test]
fn a_scan_makes_nothing_allocate() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\n\
                [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"wan > lan\" = \"accept\"\n\
                [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[limit.fragments]\nheld = 1\n";
    let packet = |n: u32| {
        let link = wire::build::ethernet(Mac([2; 6]), Mac([4; 6]));
        let to = std::net::Ipv4Addr::from_bits(0x0a00_1000 + n / 7);
        let bytes = link.ipv4([8, 8, 8, 8].into(), to).udp(n as u16, 9).to_vec();
        crate::scene::Arrival { port: wire::PortId(1), at: START, number: n, bytes }
    };
    let batches: Vec<Vec<_>> = (0..60).map(|n| (n * 64..n * 64 + 64).map(packet).collect()).collect();
    for way in [Way::Run, Way::Step] {
        let mut gateway = Gateway::resolved_by_host(text, way);
        let mut ended = 0;
        let info = measure(|| {
            for batch in &batches {
                gateway.receive(batch);
                while gateway.shard.hops.wanted().is_some() {}
                gateway.drain(usize::MAX, |_, _| ended += 1);
            }
            gateway.tend(START + Nanos::from_secs(4));
            gateway.drain(usize::MAX, |_, _| ended += 1);
        });
        assert_eq!((info.count_total, ended), (0, 60 * 64), "{way:?}");
    }
}

/// A tree of every scheduler and dropper, with rates, guarantees and subscribers, and one of what comes in before it: overloaded, idle
/// and overloaded again.
#[test]
fn no_tree_of_queues_makes_anything_allocate() {
    let text = "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\n\
                [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n[default]\n\"lan > wan\" = \"accept\"\n\
                [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n[limit]\nqueue = 256\n\
                [[queue]]\nname = \"in\"\nfrom = \"lan\"\nrate = \"40 Mbit/s\"\nscheduler = \"fq\"\nlimit = 300\n\
                [[queue]]\nname = \"root\"\non = \"wan\"\nrate = \"20 Mbit/s\"\nscheduler = \"strict\"\n\
                [[queue]]\nname = \"ef\"\nin = \"root\"\nphb = \"ef\"\nrate = \"2 Mbit/s\"\nlimit = 20\n\
                [[queue]]\nname = \"inner\"\nin = \"root\"\n\
                [[queue]]\nname = \"red\"\nin = \"inner\"\nphb = \"af1\"\nguarantee = \"1 Mbit/s\"\ndrop = \"red\"\nred = [\"5-20 10%\"]\nlimit = 30\n\
                [[queue]]\nname = \"pie\"\nin = \"inner\"\nphb = \"af2\"\ndrop = \"pie\"\nlimit = 50\n\
                [[queue]]\nname = \"shares\"\nin = \"inner\"\nscheduler = \"wfq\"\n\
                [[queue]]\nname = \"subscriber\"\nin = \"shares\"\nper = \"source\"\ninstances = 60\nrate = \"1 Mbit/s\"\nscheduler = \"wfq\"\n\
                [[queue]]\nname = \"codel\"\nin = \"subscriber\"\nphb = \"af3\"\ndrop = \"codel\"\nlimit = 50\n\
                [[queue]]\nname = \"fq\"\nin = \"subscriber\"\nscheduler = \"fq\"\nflows = 16\ndrop = \"codel\"\necn = true\nlimit = 50\n\
                [[queue]]\nname = \"rest\"\nin = \"root\"\nphb = [\"le\", \"cs1\"]\nlimit = 20\n";
    let mut random = Random::new(11);
    let mut now = START;
    let mut number = 0;
    let mut packet = |now| {
        number += 1;
        let drawn = random.next_u64();
        let (host, port) = (10 + drawn % 100, (drawn >> 8) % 4);
        let field = [184, 40, 72, 104, 0, 1, 4, 32][(drawn >> 16) as usize % 8];
        let link = wire::build::ethernet(Mac([2; 6]), Mac([4; 6]));
        let packet = link.ipv4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + host as u32), [8, 8, 8, 8].into());
        let payload = [0; 1_400];
        let length = (drawn >> 24) as usize % payload.len();
        let bytes = packet.ds_field(field).udp(1_000 + port as u16, 53).payload(&payload[..length]).to_vec();
        crate::scene::Arrival { port: wire::PortId(0), at: now, number, bytes }
    };
    let rounds: Vec<Vec<crate::scene::Arrival>> = (0..600)
        .map(|round| {
            now += Nanos::from_millis(if round % 200 == 199 { 5_000 } else { 1 + round % 13 });
            (0..BATCH as u64 * u64::from(round % 200 < 150) / (1 + round % 3)).map(|_| packet(now)).collect()
        })
        .collect();
    for way in [Way::Run, Way::Step] {
        let mut gateway = Gateway::with_slots(tables(text), way, 4_000);
        let (mut now, mut sent, mut dropped) = (START, 0, 0);
        let mut play = |rounds: &[Vec<crate::scene::Arrival>]| {
            for round in rounds {
                gateway.receive(round);
                now = round.first().map_or(now + Nanos::from_millis(1), |first| first.at);
                gateway.depart(now, |next| match next {
                    Next::Dropped(..) => dropped += 1,
                    _ => sent += 1,
                });
            }
        };
        let info = measure(|| play(&rounds));
        assert_eq!(info.count_total, 0, "{way:?}");
        assert!(sent > 3_000 && dropped > 3_000, "{way:?}: {sent} {dropped}");
    }
}

/// Elements that rules add, refresh and find no room for, and that are over, with flows that notice.
#[test]
fn sets_that_change_make_nothing_allocate() {
    let text = |mode: &str| {
        format!(
            "mode = \"{mode}\"\n[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
             [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n\
             [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n\
             [dynamic-set.known]\nsize = 500\ntimeout = \"1s\"\n[dynamic-set.banned]\nsize = 100\n\
             [[rule]]\nname = \"banned\"\nsource = \"@banned\"\naction = \"drop\"\n\
             [[rule]]\nname = \"known\"\nsource = \"@known\"\nprotocol = \"udp\"\ndport = 7\nadd-source = \"@banned\"\nfor = \"3s\"\naction = \"drop\"\n\
             [[rule]]\nname = \"learn\"\nfrom = \"wan\"\nadd-source = \"@known\"\naction = \"accept\"\n"
        )
    };
    let mut random = Random::new(9);
    let mut packet = |n: u32| {
        let link = wire::build::ethernet(Mac([2; 6]), Mac([4; 6]));
        let from = std::net::Ipv4Addr::from_bits(0x0b00_0000 + random.below(2_000) as u32);
        let bytes = link.ipv4(from, [192, 168, 1, 9].into()).udp(9, 7 + random.below(3) as u16).to_vec();
        let at = START + Nanos::from_millis(u64::from(n));
        crate::scene::Arrival { port: wire::PortId(1), at, number: n, bytes }
    };
    let batches: Vec<Vec<_>> = (0..200).map(|n| (n * 50..n * 50 + 50).map(&mut packet).collect()).collect();
    for mode in ["stateful", "stateless"] {
        for way in [Way::Run, Way::Step] {
            let mut gateway = Gateway::new(&text(mode), way);
            assert_eq!(allocated(&mut gateway, &batches), 0, "{mode}, {way:?}");
            let [known, banned] = [0, 1].map(|set| gateway.shard.set_report(set));
            assert!(known.refused > 0 && known.expired > 500 && banned.expired > 0, "{known:?} {banned:?}");
        }
    }
}
