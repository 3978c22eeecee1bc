//! The data plane in a program of one's own: a policy becomes tables, a shard has the state of one worker, and a pipeline takes
//! two packets through both. `cargo run -p wirerate-dataplane --example embed` prints what becomes of them.

use std::error::Error;
use std::net::Ipv4Addr;

use dataplane::egress::Next;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use dataplane::stage::Cx;
use dataplane::{Pipeline, Shard, Tables, Verdict};
use tally::NoTally;
use wire::ethernet::Mac;
use wire::{Batch, Nanos, Pool, PortId, build, ipv4};

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["192.168.1.1/24"]

[interface.wan]
zone = "wan"
addresses = ["203.0.113.2/24"]

[default]
"lan > wan" = "accept"

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.1"

[[nat]]
name = "house"
kind = "masquerade"
from = "lan"
to = "wan"

[[rule]]
name = "no-chargen"
from = "lan"
to = "wan"
protocol = "udp"
dport = 19
action = "drop"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = policy::check(POLICY, "embed.toml").policy.ok_or("the policy has faults")?;
    let tables = Tables::compile(&policy, 1)?;
    // A host brings time, randomness and link-layer addresses. Here they are fixed, so each run does the same.
    let now = Nanos::from_secs(1);
    let setup = Setup { seed: [1, 2], now, resolve: Resolve::Assume, share: Share::WHOLE };
    let mut shard = Shard::new(&tables, setup)?;
    let mut pool = Pool::new(64, 2048)?;
    let mut pipeline = Pipeline::default();

    let [host, server] = [Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7)];
    let ethernet = || build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).ipv4(host, server);
    let packets = [ethernet().udp(4000, 53).payload(b"query").to_vec(), ethernet().udp(4001, 19).to_vec()];

    let mut batch = Batch::new();
    for (number, packet) in (1..).zip(&packets) {
        let frame = batch.extend_from(&mut pool).ok_or("no slot is free")?;
        if !frame.fill(packet) {
            return Err("the packet is longer than a slot".into());
        }
        (frame.meta.number, frame.meta.ingress, frame.meta.received) = (number, PortId(0), now);
    }
    let mut ended = Vec::new();
    let mut cx = Cx { tables: &tables, shard: &mut shard, pool: &mut pool, tally: &mut NoTally };
    pipeline.run(&mut batch, &mut ended, &mut cx);

    for frame in ended {
        println!("packet {}: {:?}", frame.meta.number, Verdict::of_fate(frame.meta.fate));
        pool.put(frame);
    }
    for (port, interface) in (0..).map(PortId).zip(&tables.interfaces) {
        while let Next::Frame(frame, at) = shard.next(port, now) {
            let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or_default();
            let source = ipv4::Header::of(packet).map(|header| Ipv4Addr::from_bits(header.src_bits()));
            println!("packet {}: sent by {} at {at:?} from {source:?}", frame.meta.number, interface.name);
            pool.put(frame);
        }
    }
    println!("{} flow; conserved: {}", shard.flows.len(), shard.counters.are_conserved());
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("two packets");
}
