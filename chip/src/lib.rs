//! Network processors, modelled: the pipeline's own stages run on a described chip, in modelled time.
//!
//! A [`Chip`](description::Chip) describes the parts of a processor, a [`Mapping`](mapping::Mapping) assigns stages to
//! its engines and regions to its memories. A machine made of both processes frames, and reports throughput and
//! bottleneck.

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
