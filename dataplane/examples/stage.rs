//! A stage of one's own, outside the crate: it has the contract of all stages, and a host takes frames through it behind the pipeline. One that
//! shall be in the pipeline itself, on all hosts and chips, is a file and a line there: docs/add/stage.md.
//!
//! `cargo run -p wirerate-dataplane --example stage` sends two marked packets, prints what became of their marks, and what the stage cost.

use std::error::Error;
use std::net::Ipv4Addr;

use dataplane::egress::Next;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::shard::Setup;
use dataplane::stage::{About, Cx, Stage, Step};
use dataplane::{Pipeline, Shard, Tables};
use tally::{Count, NoTally, Region, Tally};
use wire::ethernet::Mac;
use wire::meta::Fields;
use wire::{Batch, Dscp, Family, Frame, Nanos, Pool, PortId, build, ipv4, ipv6};

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
"#;

/// `bleach`: clears the DiffServ code point (RFC 2474), and leaves congestion notification as it is.
struct Bleach;

impl Stage for Bleach {
    const ABOUT: About = About {
        name: "bleach",
        asks: "May others see its code point?",
        reads: Fields::PACKET.and(Fields::HEADERS),
        writes: Fields::PACKET,
    };

    /// All that leaves has its verdict.
    fn takes(_: &Frame) -> bool {
        true
    }

    fn step<T: Tally>(frame: &mut Frame, cx: &mut Cx<'_, T>) -> Step {
        // The family, 2; the field, 3; the checksum, 5; both put back, 2.
        cx.tally.instructions(12);
        cx.tally.write(Region::Frame, 16, 16);
        let (network, family) = (usize::from(frame.meta.network), frame.meta.family);
        let packet = frame.bytes_mut().get_mut(network..).unwrap_or_default();
        if family == Family::V4 {
            if let Some(mut header) = ipv4::HeaderMut::of(packet) {
                header.mark(Dscp::of_field(0));
            }
        } else if let Some(mut header) = ipv6::HeaderMut::of(packet) {
            header.mark(Dscp::of_field(0));
        }
        Step::Next
    }

    fn program(_: &Tables) -> u32 {
        13
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let policy = policy::check(POLICY, "stage.toml").policy.ok_or("the policy has faults")?;
    let tables = Tables::compile(&policy, 1)?;
    let now = Nanos::from_secs(1);
    let setup = Setup { seed: [1, 2], now, resolve: Resolve::Assume, share: Share::WHOLE };
    let (mut shard, mut pool) = (Shard::new(&tables, setup)?, Pool::new(64, 2048)?);
    let (mut pipeline, mut batch, mut ended) = (Pipeline::default(), Batch::new(), Vec::new());

    let [host, server] = [Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7)];
    for ds_field in [46 << 2, 10 << 2 | 2] {
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let packet = link.ipv4(host, server).ds_field(ds_field).udp(4000, 53).to_vec();
        let frame = batch.extend_from(&mut pool).ok_or("no slot is free")?;
        if !frame.fill(&packet) {
            return Err("the packet is longer than a slot".into());
        }
        (frame.meta.ingress, frame.meta.received) = (PortId(0), now);
    }
    let mut cx = Cx { tables: &tables, shard: &mut shard, pool: &mut pool, tally: &mut NoTally };
    pipeline.run(&mut batch, &mut ended, &mut cx);
    ended.drain(..).for_each(|frame| pool.put(frame));

    let mut count = Count::default();
    let mut marks = Vec::new();
    while let Next::Frame(mut frame, _) = shard.next(PortId(1), now) {
        let mut cx = Cx { tables: &tables, shard: &mut shard, pool: &mut pool, tally: &mut count };
        Bleach::run(std::slice::from_mut(&mut frame), &mut cx);
        let packet = frame.bytes().get(usize::from(frame.meta.network)..).unwrap_or_default();
        let parsed = ipv4::parse(packet).map_err(|_| "the packet is no longer one")?;
        marks.push(parsed.header.ds_field());
        println!("leaves with DS field {:#04x}", parsed.header.ds_field());
        pool.put(frame);
    }
    println!("{} instructions", count.executed_total());
    if marks != [0, 2] {
        return Err("a mark was not cleared, or more than that".into());
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("two packets without marks");
}
