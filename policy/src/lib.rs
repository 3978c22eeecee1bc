//! What an operator asked for: the model, its TOML form, its validation, and importers from other firewalls.

pub mod import;
pub mod model;

pub use model::Policy;
