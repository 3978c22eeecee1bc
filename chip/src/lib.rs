//! Network processors, modelled: the pipeline's own stages run on a described chip, in modelled time.
//!
//! A [`Chip`](description::Chip) describes the parts of a processor, a [`Mapping`](mapping::Mapping) assigns stages to
//! its engines and regions to its memories. A machine made of both processes frames, and reports throughput and
//! bottleneck.
//!
//! ```
//! use chip::machine::Ideal;
//! use chip::plan::{Order, Problems, Variant};
//! use chip::run::Setup;
//! use dataplane::Tables;
//!
//! let text = r#"
//! [interface.lan]
//! zone = "lan"
//! addresses = ["10.0.0.1/24"]
//! mac = "02:00:5e:20:00:01"
//! [interface.wan]
//! zone = "wan"
//! addresses = ["192.0.2.1/24"]
//! mac = "02:00:5e:20:00:02"
//! [default]
//! "lan > wan" = "accept"
//! [[route]]
//! to = "0.0.0.0/0"
//! via = "192.0.2.254"
//! [limit]
//! flows = 1024
//! "#;
//! let policy = policy::check(text, "firewall.toml").policy.expect("a policy without errors");
//! let tables = Tables::compile(&policy, 1)?;
//! // A chip and a mapping that come with the crate, or files, or texts.
//! let order = Order {
//!     chip: "ixp2400".to_owned(),
//!     mapping: None,
//!     settings: Vec::new(),
//!     wishes: Vec::new(),
//!     traffic: vec!["lan>wan,both,frames=200".parse()?],
//!     seed: 1,
//! };
//! let texts = order.texts()?;
//! let described = texts.read()?;
//! let fitted = order.fit(order.prepare(texts, described, policy, &tables)?, "firewall.toml")?;
//! assert_eq!(fitted.errors(), 0);
//! let (prepared, problems) = (&fitted.prepared, Problems::default());
//! let source = || prepared.plan.source(Variant::WHOLE, &problems);
//! let setup =
//!     Setup { chip: &prepared.described.chip, mapping: &prepared.described.mapping, source: &source, warm: 0 };
//! let report = setup.run(Ideal::Nothing, &mut ())?;
//! assert!(report.delivered_mpps > 0.0 && report.delivered_mpps <= report.offered_mpps);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run --release -p wirerate-chip --example scratch` describes a chip of its own, and asks how many engines it needs.

pub mod agenda;
pub mod builtin;
pub mod cipher;
pub mod clock;
pub mod cost;
pub mod description;
pub mod diagnostic;
pub mod estimate;
pub mod host;
pub mod kernel;
pub mod load;
pub mod machine;
pub mod mapping;
pub mod plan;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod search;
pub mod setting;
pub mod sweep;
pub mod timeline;
pub mod trace;
pub mod traffic;
mod value;
