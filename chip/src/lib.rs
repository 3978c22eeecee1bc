//! Network processors, modelled: the pipeline's own stages run on a described chip, in modelled time.
//!
//! A [`Chip`](description::Chip) says what a processor is made of, a [`Mapping`](mapping::Mapping) which of its
//! engines run which stages and which of its memories hold what. A machine made of both takes frames, and tells
//! how fast it was and what held it up.

pub mod builtin;
pub mod cipher;
pub mod description;
pub mod diagnostic;
pub mod host;
pub mod kernel;
pub mod load;
pub mod machine;
pub mod mapping;
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
