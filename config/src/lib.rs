//! Reader for TOML files written by people, common to policies, chips and mappings.
//!
//! A [`Source`] is the text of a file. [`document`] parses the text, a [`Table`] reads one table key by key, and the readers
//! of [`value`] and [`quantity`] read values. Each reader reports an error as a [`Complaint`], which becomes, with its
//! position in the text, a [`Diagnostic`]. All errors of a file are gathered, not only the first, each with a hint; unknown
//! keys are among them.
//!
//! A sort of file has an enum of its diagnostic codes, which implements [`Kind`] and has a variant for the [`Code`]s of
//! this crate. Here, the file has no codes of its own:
//!
//! ```
//! use std::sync::Arc;
//!
//! use config::{Code, Sink, Source, Table, document, value};
//!
//! let source = Arc::new(Source::new("lamp.toml", "name = \"desk\"\ncolor = 3\nwatts = 900\n"));
//! let sink: Sink<Code> = Sink::new(&source);
//! let lamp = document(&source, &sink, |top| {
//!     let mut table = Table::new(&sink, top, 0..0, "a lamp");
//!     let name = table.require("name", "\"desk\"", value::owned);
//!     let colour = table.take("colour", |value| value::number(value, 0, 255));
//!     let watts = table.take("watts", |value| value::number(value, 1, 60));
//!     table.finish();
//!     (name, colour, watts)
//! });
//! assert_eq!(lamp, Some((Some("desk".to_owned()), None, None)));
//!
//! let wrong: Vec<String> = sink
//!     .into_diagnostics()
//!     .iter()
//!     .map(|found| format!("{}: {found} ({})", found.place.as_ref().unwrap(), found.hint.as_ref().unwrap()))
//!     .collect();
//! assert_eq!(
//!     wrong,
//!     [
//!         "lamp.toml:3:9: 900 is out of range (from 1 to 60)",
//!         "lamp.toml:2:1: a lamp has no key `color` (did you mean `colour`?)",
//!     ]
//! );
//! ```

mod code;
mod diagnostic;
pub mod file;
pub mod quantity;
mod reader;
mod secret;
mod source;
pub mod value;
pub mod word;

pub use code::{Code, Kind};
pub use diagnostic::{Diagnostic, Place, Related, Severity};
pub use file::LoadError;
pub use reader::{
    Complaint, Entry, Pair, Part, Sink, Table, document, in_order, section, tables, wrong_type,
};
pub use secret::masked_message;
pub use source::Source;
pub use word::{did_you_mean, nearest};
