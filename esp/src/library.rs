//! Libraries of ciphers: one file each, and one line in [`LIBRARIES`].

use wire::esp::{Direction, Suite};

use crate::transform::{Keys, Transform};

mod abreast;
mod by_length;
mod composed;
#[cfg(feature = "ipsec-mb")]
mod ipsec_mb;
mod ring;

use by_length::ByLength;

/// A library, as [`expand`](crate::expand) uses it.
pub(crate) struct Library {
    /// True for the suites that it carries out.
    pub(crate) has: fn(&Suite) -> bool,
    /// Bytes of the longest text that it is taken for, as far as another library has the suite, too. Each carries out texts of any length.
    pub(crate) longest: fn() -> usize,
    /// Expands keys whose lengths are the suite's.
    pub(crate) expand: fn(&'static Suite, &Keys, Direction) -> Box<dyn Transform>,
}

/// All libraries. The first one that has a suite, and is taken for texts of that length, carries it out.
///
/// Nanoseconds that a packet of AES-128-GCM takes to be sealed, of 16 together within the first cache, the least of many rounds on a core of
/// Zen 3 beside other work (`cargo bench -p wirerate-esp`; ipsec-mb by a program of its own):
///
/// | bytes of text | ipsec-mb | abreast | ring |
/// |---|---|---|---|
/// | 52 | 42 | 67 | 127 |
/// | 136 | | 92 | 143 |
/// | 500 | 145 | 447 | 189 |
/// | 1,408 | 351 | 707 | 256 |
pub(crate) const LIBRARIES: &[Library] = &[
    #[cfg(feature = "ipsec-mb")]
    Library { has: ipsec_mb::has, longest: ipsec_mb::longest, expand: ipsec_mb::expand },
    Library { has: abreast::has, longest: || abreast::LONGEST, expand: abreast::expand },
    Library { has: ring::has, longest: || usize::MAX, expand: ring::expand },
    Library { has: composed::has, longest: || usize::MAX, expand: composed::expand },
];

/// Expands keys by the libraries that are the best for each length; `None` if none has the suite.
pub(crate) fn expand(suite: &'static Suite, keys: &Keys, direction: Direction) -> Option<Box<dyn Transform>> {
    from(LIBRARIES, 0, suite, keys, direction)
}

/// Expands keys by each library that has the suite, by itself: for all lengths of text, whichever it is the best for.
pub(crate) fn each(suite: &'static Suite, keys: &Keys, direction: Direction) -> Vec<Box<dyn Transform>> {
    let having = LIBRARIES.iter().filter(|library| (library.has)(suite));
    having.map(|library| (library.expand)(suite, keys, direction)).collect()
}

/// Expands keys by the first of the libraries that has the suite for texts of more than `than` bytes, and by later ones for longer texts.
fn from(
    libraries: &[Library],
    than: usize,
    suite: &'static Suite,
    keys: &Keys,
    direction: Direction,
) -> Option<Box<dyn Transform>> {
    let (first, rest) = libraries.split_first()?;
    let longest = (first.longest)();
    if longest <= than || !(first.has)(suite) {
        return from(rest, than, suite, keys, direction);
    }
    let expanded = (first.expand)(suite, keys, direction);
    if longest == usize::MAX {
        return Some(expanded);
    }
    Some(match from(rest, longest, suite, keys, direction) {
        Some(long) => Box::new(ByLength { short: expanded, longest, long }),
        None => expanded,
    })
}

#[cfg(test)]
mod tests;
