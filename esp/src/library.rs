//! Libraries of ciphers: one file each, and one line in [`LIBRARIES`].

use wire::esp::{Direction, Suite};

use crate::transform::{Keys, Transform};

mod composed;
mod ring;

/// A library, as [`expand`](crate::expand) uses it.
pub(crate) struct Library {
    /// True for the suites that it carries out.
    pub(crate) has: fn(&Suite) -> bool,
    /// Expands keys whose lengths are the suite's.
    pub(crate) expand: fn(&'static Suite, &Keys, Direction) -> Box<dyn Transform>,
}

/// All libraries. The first one that has a suite carries it out.
pub(crate) const LIBRARIES: &[Library] = &[
    Library { has: ring::has, expand: ring::expand },
    Library { has: composed::has, expand: composed::expand },
];

#[cfg(test)]
mod tests;
