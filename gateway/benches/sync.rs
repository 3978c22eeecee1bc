//! Cost of state synchronisation for each new flow: on the gateway that has it, and on the one that is told.
//!
//! Without connection and threads: the list of changes and records of them, their encoding, and the way back. Printed are
//! nanoseconds a flow, and the share of one core that 50,000 new flows a second take, each with its end.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dataplane::flow::{Ends, FlowId, Handshake, State, Windows};
use dataplane::hop::Resolve;
use dataplane::nat::{Endpoint, Share};
use dataplane::shard::Setup;
use dataplane::state::{FlowRecord, Item, MappingRecord, Standing, Through};
use dataplane::sync::Taken;
use dataplane::{Shard, Tables};
use wire::{Nanos, PortId};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.2/8"]
[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]
virtual-addresses = ["203.0.113.10"]
[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"
[[nat]]
name = "out"
kind = "masquerade"
to = "wan"
[gateway]
sync = "listen:192.0.2.1:9480"
sync-certificate = "crt"
sync-key = "key"
sync-ca = "ca"
[limit]
flows = 200_000
"#;

const NOW: Nanos = Nanos::from_secs(1_700_000_000);

/// Flows of one round: of a second, at the rate that is asked for.
const FLOWS: u32 = 50_000;

fn main() {
    let tables =
        Tables::compile(&policy::check(POLICY, "policy").policy.expect("a policy"), 1).expect("tables");
    let shard = |seed| {
        let setup = Setup { seed: [seed, 2], now: NOW, resolve: Resolve::Assume, share: Share::WHOLE };
        let mut shard = Shard::new(&tables, setup).expect("memory");
        shard.keep_changes(&tables).expect("memory");
        shard
    };
    let (mut one, mut two) = (shard(1), shard(2));
    let mut best = [Duration::MAX; 6];
    for _ in 0..5 {
        for flow in 0..FLOWS {
            one.import(&tables, &Item::Flow(record(flow)), NOW).expect("room");
        }
        let mut taken = Taken::default();
        let took = timed(|| one.take_changes(&tables, NOW, FLOWS as usize, &mut taken));
        assert_eq!(taken.flows.len(), FLOWS as usize);
        let mut bytes = Vec::new();
        let encoded = timed(|| {
            for some in taken.flows.chunks(1024) {
                bytes.push(postcard::to_stdvec(some).expect("plain data"));
            }
        });
        let mut flows: Vec<Item> = Vec::new();
        let decoded = timed(|| {
            for some in &bytes {
                flows.extend(postcard::from_bytes::<Vec<Item>>(some).expect("as encoded"));
            }
        });
        let took_in = timed(|| {
            for item in &flows {
                let Item::Flow(flow) = item else { continue };
                black_box(two.take_in_synced(&tables, flow, NOW, 1)).expect("room");
            }
        });
        let found: Vec<(FlowId, Ends)> =
            one.flows.iter().map(|(id, flow)| (id, Ends::of(flow.original()))).collect();
        // As many as are kept at a time.
        let mut ended = Taken::default();
        let (mut told, mut heard) = (Duration::ZERO, Duration::ZERO);
        for some in found.chunks(10_000) {
            for (id, ends) in some {
                one.end_flow_of(*id, ends);
            }
            ended.ended.clear();
            told += timed(|| one.take_changes(&tables, NOW, FLOWS as usize, &mut ended));
            heard += timed(|| {
                for ended in &ended.ended {
                    two.end_synced(&tables, ended);
                }
            });
        }
        assert_eq!((one.flows.len(), two.flows.len()), (0, 0));
        let all = [took, encoded, decoded, took_in, told, heard];
        best = std::array::from_fn(|at| best[at].min(all[at]));
        println!("{} bytes a flow", bytes.iter().map(Vec::len).sum::<usize>() / FLOWS as usize);
    }
    let names = ["taken", "encoded", "decoded", "taken in", "ends taken", "ends taken in"];
    for (name, took) in names.iter().zip(best) {
        println!("{name:14} {:6.0} ns a flow", took.as_nanos() as f64 / f64::from(FLOWS));
    }
    let share = |of: &[Duration]| 100.0 * of.iter().sum::<Duration>().as_secs_f64();
    println!("50,000 new flows a second, each with its end:");
    println!("  {:.1} % of a core on the gateway that has them", share(&[best[0], best[1], best[4]]));
    println!("  {:.1} % of a core on the gateway that is told", share(&[best[2], best[3], best[5]]));
}

fn timed(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

/// A translated connection of its own host.
fn record(number: u32) -> FlowRecord {
    let inside = [10, 1, (number >> 8) as u8, number as u8];
    let (far, shown): ([u8; 4], [u8; 4]) = ([8, 8, (number >> 8) as u8, number as u8], [203, 0, 113, 10]);
    let (sport, port) = (40_000, 1024 + number as u16);
    let ends = |source: [u8; 4], destination: [u8; 4], sport, dport| Ends {
        source: source.into(),
        destination: destination.into(),
        sport,
        dport,
        protocol: 6,
    };
    let endpoint = |address: [u8; 4], port| Endpoint::v4(u32::from_be_bytes(address), port, 6);
    FlowRecord {
        id: FlowId(0),
        original: ends(inside, far, sport, 443),
        reply: ends(far, shown, 443, port),
        ingress: Some(PortId(0)),
        state: State::Established,
        windows: Windows::default(),
        idle: Nanos(0),
        age: Nanos(0),
        standing: Standing::Waits,
        rule: None,
        destination: Through::None,
        source: Through::Nat(0),
        mapping: Some(MappingRecord {
            nat: Some(0),
            inside: endpoint(inside, sport),
            outside: endpoint(shown, port),
        }),
        inward: None,
        kind: 0,
        ds_field: 0,
        tcp_flags: 2,
        wan: None,
        mac: None,
        handshake: Handshake::Direct,
    }
}
