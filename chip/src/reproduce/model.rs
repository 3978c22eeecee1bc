//! Model that claims are put to the test on: the shipped chips, as they are or with other values of parameters, and what has been measured
//! on them.

use std::sync::Arc;

use super::{ReproduceError, base, computer, crypto, diffserv, firewall, protocol, shipped};
use crate::builtin::{CHIPS, named};
use crate::description::{self, Chip};

/// A model. Runs that several claims need are made once on it.
#[derive(Default)]
pub struct Model {
    values: Vec<Setting>,
    length: RunLength,
    recorded: Arc<crypto::Recorded>,
    pub(super) base: base::Measured,
    pub(super) computer: computer::Measured,
    pub(super) diffserv: diffserv::Measured,
    pub(super) firewall: firewall::Measured,
    pub(super) crypto: crypto::Measured,
    pub(super) protocol: protocol::Measured,
}

/// Another value of a chip's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the chip.
    pub chip: &'static str,
    /// Path of the parameter: "memory.sram.latency".
    pub path: String,
    /// Value, in TOML.
    pub value: String,
}

/// Number of frames of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunLength {
    /// As many as a claim needs to be exact.
    #[default]
    Full,
    /// One in so many of them.
    OneIn(u64),
}

impl Model {
    /// Returns a model with other values of parameters, on which runs are of that length. Ciphers' code is the same on all models and
    /// recorded once.
    pub(super) fn new(values: Vec<Setting>, length: RunLength, recorded: Arc<crypto::Recorded>) -> Model {
        Model { values, length, recorded, ..Model::default() }
    }

    /// Codes of ciphers that are recorded so far.
    pub(super) fn recorded(&self) -> Arc<crypto::Recorded> {
        Arc::clone(&self.recorded)
    }

    /// Number of frames of a run that has so many on the full model.
    pub(super) fn frames(&self, full: u64) -> u64 {
        match self.length {
            RunLength::Full => full,
            RunLength::OneIn(part) => (full / part.max(1)).max(1),
        }
    }

    /// A chip of the model.
    pub(super) fn chip(&self, name: &str) -> Result<Chip, ReproduceError> {
        self.chip_with(name, &[])
    }

    /// A chip of the model with other values of these parameters still.
    pub(super) fn chip_with(&self, name: &str, values: &[(&str, &str)]) -> Result<Chip, ReproduceError> {
        let mut text = named(CHIPS, name).unwrap_or_default().to_owned();
        let own = self.values.iter().filter(|setting| setting.chip == name);
        let own = own.map(|setting| (setting.path.as_str(), setting.value.as_str()));
        for (path, value) in own.chain(values.iter().copied()) {
            text = description::set(&text, path, value).map_err(|_| shipped::wrong("chip", name))?;
        }
        description::parse(&text, name).chip.ok_or_else(|| shipped::wrong("chip", name))
    }
}
