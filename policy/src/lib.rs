//! The operator's policy: model, TOML form, validation, and importers from other firewalls.
//!
//! [`check()`] is the front door: it reads a text and returns a [`Policy`] with its diagnostics. A policy's
//! [`Display`](std::fmt::Display) is its canonical text.

pub mod check;
pub mod diagnostic;
pub mod expand;
pub mod import;
mod key;
pub mod keys;
pub mod lines;
pub mod model;
pub mod nat;
pub mod parse;
pub mod plan;
pub mod print;
pub mod tunnel;
pub mod validate;
mod value;
mod word;

pub use check::{Checked, check, load};
pub use config::{LoadError, Place, Severity};
pub use diagnostic::{Code, Diagnostic};
pub use lines::{Item, Lines};
pub use model::Policy;
pub use parse::{Parsed, parse};
pub use plan::plan;
pub use print::{Setting, Settings};
pub use validate::validate;
pub use value::key as toml_key;
pub use word::{dropper_name, dscp_name, dscp_named, icmp_name, icmp_named};
