//! The operator's policy: model, TOML form, validation, and importers from other firewalls.
//!
//! [`check()`] is the front door: it reads a text and returns a [`Policy`] with its diagnostics. A policy's
//! [`Display`](std::fmt::Display) is its canonical text.
//!
//! ```
//! let text = r#"
//! [interface.lan]
//! zone = "lan"
//! addresses = ["192.168.1.1/24"]
//!
//! [interface.wan]
//! zone = "wan"
//! addresses = ["203.0.113.2/24"]
//!
//! [[rule]]
//! name = "no-mail"
//! from = "lan"
//! to = "wan"
//! protocol = "tcp"
//! dport = 25
//! action = "drop"
//! "#;
//! let policy = policy::check(text, "office.toml").policy.expect("a policy without errors");
//! assert_eq!(policy.rules[0].name, "no-mail");
//! // What is printed reads as the same policy.
//! assert_eq!(policy::check(&policy.to_string(), "again.toml").policy, Some(policy));
//!
//! // All that is wrong is said at once, each with its place.
//! let checked = policy::check(&text.replace("zone = \"wan\"", "zone = 7"), "office.toml");
//! assert!(checked.policy.is_none());
//! assert_eq!(checked.errors().next().and_then(|error| error.line()), Some(7));
//! ```

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

pub use check::{Checked, Sound, check, load};
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
