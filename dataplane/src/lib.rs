//! Processing of frames: stages, flows, NAT, routes, classification, the pipeline.
//!
//! [`Tables`] are a compiled policy, a [`Shard`] is the mutable memory of one worker, and a
//! [`Pipeline`] takes batches of frames through the stages, with both. Nothing here knows a clock, a file or an
//! interface: hosts bring frames and time.
//!
//! A [`Replay`] is a gateway in the time of its frames, for whoever wants to know what becomes of them:
//!
//! ```
//! use dataplane::replay::{Way, Witness};
//! use dataplane::{Reason, Replay, Tables, Verdict};
//! use wire::ethernet::Mac;
//! use wire::{Frame, Nanos, PortId, build};
//!
//! /// Final verdicts of packets, by their numbers.
//! #[derive(Default)]
//! struct Verdicts(Vec<(u32, Verdict)>);
//!
//! impl Witness for Verdicts {
//!     fn sent(&mut self, _: PortId, _: Nanos, frame: &Frame, verdict: Option<Verdict>) {
//!         self.0.extend(verdict.map(|verdict| (frame.meta.number, verdict)));
//!     }
//!
//!     fn ended(&mut self, frame: &Frame, verdict: Verdict) {
//!         self.0.push((frame.meta.number, verdict));
//!     }
//! }
//!
//! let text = r#"
//! [interface.lan]
//! zone = "lan"
//! addresses = ["192.168.1.1/24"]
//! [interface.wan]
//! zone = "wan"
//! addresses = ["203.0.113.2/24"]
//! [default]
//! "lan > wan" = "accept"
//! [[route]]
//! to = "0.0.0.0/0"
//! via = "203.0.113.1"
//! [[rule]]
//! name = "no-chargen"
//! from = "lan"
//! protocol = "udp"
//! dport = 19
//! action = "drop"
//! "#;
//! let policy = policy::check(text, "office.toml").policy.expect("a policy without errors");
//! let tables = Tables::compile(&policy, 1)?;
//! let (now, mut verdicts) = (Nanos::from_secs(1), Verdicts::default());
//! let mut replay = Replay::new(tables, now, Way::Run)?;
//! for (number, dport) in [(0, 53), (1, 19)] {
//!     let link = build::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
//!     let packet = link.ipv4([192, 168, 1, 10].into(), [198, 51, 100, 7].into()).udp(4000, dport).to_vec();
//!     replay.receive(PortId(0), now, number, &packet, &mut verdicts);
//! }
//! replay.finish(&mut verdicts);
//! verdicts.0.sort_by_key(|(number, _)| *number);
//! assert_eq!(verdicts.0, [(0, Verdict::Forwarded), (1, Verdict::Dropped(Reason::RuleDrop))]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Examples: `embed` takes two packets through the parts by hand, `ports` puts the pipeline behind I/O of one's own, `stage` is a stage of one's
//! own (`cargo run -p wirerate-dataplane --example embed`).

pub mod accounting;
pub mod channel;
pub mod client;
pub mod compile;
mod cookie;
pub mod counter;
pub mod describe;
pub mod egress;
pub mod explain;
pub mod extent;
pub mod fast_path;
pub mod flag;
pub mod flow;
pub mod fragment;
pub mod fragmentation;
pub mod handoff;
pub mod helper;
pub mod hop;
pub mod import;
pub mod limiter;
pub mod log;
pub mod meter;
pub mod multicast;
pub mod nat;
pub mod neighbour;
pub mod opening;
pub mod peer;
pub mod pipeline;
pub mod port_mapping;
pub mod ppp;
pub mod recorder;
pub mod reload;
pub mod replay;
pub mod sa;
pub mod set;
pub mod shard;
pub mod stage;
pub mod state;
pub mod sync;
pub mod tables;
pub mod tunnel;
pub mod verdict;

pub use hop::Delivery;
pub use pipeline::Pipeline;
pub use reload::ReloadPlan;
pub use replay::Replay;
pub use shard::Shard;
pub use tables::Tables;
pub use verdict::{Reason, Verdict};
