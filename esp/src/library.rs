//! Libraries of ciphers: one file each, and one line in [`LIBRARIES`].

use wire::esp::{Direction, Suite};

use crate::transform::{Keys, Transform};

mod abreast;
mod by_length;
mod composed;
mod ring;

use by_length::ByLength;

/// A library, as [`expand`](crate::expand) uses it.
pub(crate) struct Library {
    /// True for the suites that it carries out.
    pub(crate) has: fn(&Suite) -> bool,
    /// Bytes of the longest text that it is taken for, as far as another library has the suite, too. Each carries out texts of any length.
    pub(crate) longest: usize,
    /// Expands keys whose lengths are the suite's.
    pub(crate) expand: fn(&'static Suite, &Keys, Direction) -> Box<dyn Transform>,
}

/// All libraries. The first one that has a suite, and is taken for texts of that length, carries it out.
///
/// Nanoseconds that a packet of AES-128-GCM takes to be sealed, of 16 together within the first cache, the least of many rounds on a core of
/// Zen 3 (`cargo bench -p wirerate-esp`):
///
/// | bytes of text | abreast | ring |
/// |---|---|---|
/// | 52 | 67 | 138 |
/// | 88 | 73 | 141 |
/// | 136 | 92 | 143 |
/// | 244 | 272 | 171 |
/// | 1,408 | 707 | 275 |
pub(crate) const LIBRARIES: &[Library] = &[
    Library { has: abreast::has, longest: abreast::LONGEST, expand: abreast::expand },
    Library { has: ring::has, longest: usize::MAX, expand: ring::expand },
    Library { has: composed::has, longest: usize::MAX, expand: composed::expand },
];

/// Expands keys by the libraries that are the best for each length; `None` if none has the suite.
pub(crate) fn expand(suite: &'static Suite, keys: &Keys, direction: Direction) -> Option<Box<dyn Transform>> {
    from(LIBRARIES, suite, keys, direction)
}

/// Expands keys by each library that has the suite, by itself: for all lengths of text, whichever it is the best for.
pub(crate) fn each(suite: &'static Suite, keys: &Keys, direction: Direction) -> Vec<Box<dyn Transform>> {
    let having = LIBRARIES.iter().filter(|library| (library.has)(suite));
    having.map(|library| (library.expand)(suite, keys, direction)).collect()
}

/// Expands keys by the first of the libraries that has the suite, and by later ones for longer texts.
fn from(
    libraries: &[Library],
    suite: &'static Suite,
    keys: &Keys,
    direction: Direction,
) -> Option<Box<dyn Transform>> {
    let (first, rest) = libraries.split_first()?;
    if !(first.has)(suite) {
        return from(rest, suite, keys, direction);
    }
    let expanded = (first.expand)(suite, keys, direction);
    if first.longest == usize::MAX {
        return Some(expanded);
    }
    Some(match from(rest, suite, keys, direction) {
        Some(long) => Box::new(ByLength { short: expanded, longest: first.longest, long }),
        None => expanded,
    })
}

#[cfg(test)]
mod tests;
