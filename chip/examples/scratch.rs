//! A chip from scratch: described in code, with a mapping, a policy and generated traffic, and run with one to eight engines. Each run prints
//! throughput and the part that bounds it. `cargo run --release -p wirerate-chip --example scratch`.
//!
//! A description is TOML, whether it comes from a file or is written here; docs/add/chip.md says what each key is.

use std::error::Error;

use chip::machine::Ideal;
use chip::plan::texts::{Text, Texts};
use chip::plan::{Order, Problems, Variant};
use chip::run::Setup;
use dataplane::Tables;

/// A chip with so many engines, of which the first receives and the last transmits, before one memory.
fn chip(engines: u32) -> String {
    format!(
        r#"
name = "scratch"
about = "A row of engines before one memory"
clock = "500 MHz"

[engine.core]
count = {engines}
threads = 4
switch = 1
branch = 2
hash = 8
commands = 64

[memory.dram]
size = "64 MB"
channels = 2
interleave = "64 B"
banks = 4
clock = "200 MHz"
width = "8 B"
latency = 60
write-latency = 50
burst = "64 B"
overhead = 1
recovery = 4
queue = 16

[ring.dram]
count = 4
entries = 512
memory = "dram"
entry = "8 B"

[bus.line]
clock = "200 MHz"
width = "8 B"
overhead = 1
carries = "both"

[receive]
elements = 64
element = "64 B"

[transmit]
elements = 64
element = "64 B"

[ports]
count = 2
rate = "1 Gbit/s"
gap = "24 B"
fifo = "512 B"

[source]
clock = {{ assumed = "an example" }}
"engine.core" = {{ assumed = "an example" }}
"memory.dram" = {{ assumed = "an example" }}
ring = {{ assumed = "an example" }}
bus = {{ assumed = "an example" }}
receive = {{ assumed = "an example" }}
transmit = {{ assumed = "an example" }}
ports = {{ assumed = "an example" }}
"ports.gap" = "IEEE 802.3: preamble 8, check sequence 4, gap 12"
"#
    )
}

/// Run to completion on all engines but the first and the last.
fn mapping(engines: u32) -> String {
    let last = engines - 1;
    format!(
        r#"
chip = "scratch"
about = "Run to completion"

[ring]
received = {{ kind = "dram" }}
sent = {{ kind = "dram" }}

[pool.receive]
at = 0
work = "receive"
to = "received"

[pool.process]
at = "1-{before}"
stages = "parse..queue"
from = "received"
to = "sent"

[pool.transmit]
at = {last}
work = "transmit"
from = "sent"

[region]
default = "dram"
"#,
        before = last - 1
    )
}

const POLICY: &str = r#"
[interface.lan]
zone = "lan"
addresses = ["10.0.0.1/24"]
mac = "02:00:5e:20:00:01"

[interface.wan]
zone = "wan"
addresses = ["192.0.2.1/24"]
mac = "02:00:5e:20:00:02"

[default]
"lan > wan" = "accept"

[[route]]
to = "0.0.0.0/0"
via = "192.0.2.254"

[[rule]]
name = "no-mail"
from = "lan"
to = "wan"
protocol = "tcp"
dport = 25
action = "drop"

[limit]
flows = 8192
"#;

/// Packets of the least size as fast as the line carries them, their answers the other way.
const TRAFFIC: &str = "lan>wan,both,frames=2000";

fn main() -> Result<(), Box<dyn Error>> {
    let mut rates = Vec::new();
    for workers in [1, 2, 4, 8] {
        let text = |file: &str, text| Text { file: file.to_owned(), text };
        let texts = Texts {
            chip: text("scratch.toml", chip(workers + 2)),
            mapping: text("scratch-pool.toml", mapping(workers + 2)),
        };
        let described = texts.read()?;
        let order = Order {
            chip: "scratch".to_owned(),
            mapping: Some("scratch-pool".to_owned()),
            settings: Vec::new(),
            wishes: Vec::new(),
            traffic: vec![TRAFFIC.parse()?],
            seed: 1,
        };
        let policy = policy::check(POLICY, "scratch-policy.toml").policy.ok_or("the policy has faults")?;
        let tables = Tables::compile(&policy, 1)?;
        let fitted = order.fit(order.prepare(texts, described, policy, &tables)?, "scratch-policy.toml")?;
        for misfit in &fitted.found {
            println!("{}", misfit.message);
        }
        let (prepared, problems) = (&fitted.prepared, Problems::default());
        let source = || prepared.plan.source(Variant::WHOLE, &problems);
        let chip = &prepared.described.chip;
        let setup = Setup { chip, mapping: &prepared.described.mapping, source: &source, warm: 200 };
        let mut report = setup.run(Ideal::Nothing, &mut ())?;
        setup.relieve(&mut report)?;
        let bottleneck = report.bottleneck.as_ref().map_or("", |bottleneck| &bottleneck.text);
        println!(
            "{workers} engines: {:.2} of {:.2} Mpps: {bottleneck}",
            report.delivered_mpps, report.offered_mpps
        );
        rates.push(report.delivered_mpps);
    }
    if rates.windows(2).any(|two| two[1] < two[0] * 0.99) {
        return Err("more engines carry less".into());
    }
    Ok(())
}

#[test]
fn it_runs() {
    main().expect("four runs");
}
