//! Reports on policies, for the command and for the Python package: [`check`](check::Check) says what is wrong with one policy,
//! [`diff`](diff::Diff) which packets two treat differently, and [`explain`](explain::Explanation) what happens to a packet and why.
//!
//! A report is data. `to_json` returns the object that the command prints with `--json`, and `text` the words that people read, in
//! [tones](text::Tone) that each host shows in its own way. Nothing here prints, exits or asks a running gateway.

pub mod check;
pub mod diff;
pub mod explain;
pub mod packet_syntax;
mod region;
pub mod text;
mod trial;
