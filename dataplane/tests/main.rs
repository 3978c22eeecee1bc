//! Tests of the data plane as a whole, one file for each subject. `cargo test -p wirerate-dataplane --test pipeline handoff` runs those
//! of handoff.
//!
//! They are one binary, as each would be linked by itself, and compile the scenes anew.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod accounting;
mod across;
mod adverse;
mod atm;
mod bytes;
mod captures;
mod classbench;
mod clat;
mod departure;
mod diffserv;
mod ecmp;
mod esp;
mod esp_hostile;
mod esp_refusal;
mod fast_path;
mod found;
mod handoff;
mod helper;
mod ike;
mod import_tc;
mod itself;
mod l4s;
mod log;
mod multicast;
mod nat64;
mod neighbour;
mod oracle;
mod order;
mod owner;
mod peer;
mod port_mapping;
mod port_mapping_sync;
mod ppp;
mod pptp;
mod program;
mod queues;
mod reload;
mod run_equals_step;
mod scene;
mod schedule;
mod selector;
mod sender;
mod service_curve;
mod set;
mod set_nat;
mod set_sync;
mod sip;
mod stages;
mod syn_proxy;
mod sync;
mod tick;
mod transport;
mod vrf;
mod wan;
mod whole;
