//! Libraries of ciphers: one file each, and one line in [`LIBRARIES`].

use wire::esp::{Direction, Suite};

use crate::transform::{Keys, Transform};

mod abreast;
mod by_count;
mod by_length;
mod composed;
#[cfg(not(target_arch = "riscv32"))]
mod gmac;
#[cfg(feature = "ipsec-mb")]
mod ipsec_mb;
#[cfg(not(target_arch = "riscv32"))]
mod ring;

use by_count::ByCount;
use by_length::ByLength;

/// A library, as [`expand`](crate::expand) uses it.
pub(crate) struct Library {
    /// Name, with its version where it has one; `None` on a processor that it cannot use.
    pub(crate) name: fn() -> Option<String>,
    /// True for the suites that it carries out.
    pub(crate) has: fn(&Suite) -> bool,
    /// Bytes of the longest text that it is taken for, as far as another library has the suite, too. Each carries out texts of any length.
    pub(crate) longest: fn(&Suite) -> usize,
    /// Packets together from which on it is taken, as far as another library has the suite, too. Each carries out any number.
    pub(crate) least: fn(&Suite) -> usize,
    /// Expands keys whose lengths are the suite's.
    pub(crate) expand: fn(&'static Suite, &Keys, Direction) -> Box<dyn Transform>,
}

/// All libraries. The first one that has a suite, and is taken for texts of that length and for so many packets, carries it out.
///
/// Nanoseconds that a packet takes to be sealed and to be opened, of 16 together within the first cache, the least of many rounds in one run of
/// `cargo bench -p wirerate-esp --bench libraries --features ipsec-mb` on a core of a Xeon with AVX-512, VAES and SHA extensions (Emerald
/// Rapids, ipsec-mb 1.3.0):
///
/// | suite | bytes of text | ipsec-mb | abreast | ring | composed |
/// |---|---|---|---|---|---|
/// | AES-128-GCM | 48 | 32, 29 | 54, 55 | 90, 94 | |
/// | | 136 | 40, 36 | 78, 80 | 131, 114 | |
/// | | 244 | 48, 41 | 117, 118 | 144, 130 | |
/// | | 500 | 61, 59 | 192, 200 | 175, 149 | |
/// | | 1,408 | 116, 128 | 466, 487 | 224, 203 | |
/// | AES-128-GMAC | 48 | 37, 31 | | 83, 89 | |
/// | | 500 | 46, 41 | | 333, 315 | |
/// | | 1,408 | 71, 77 | | 743, 742 | |
/// | ChaCha20-Poly1305 | 48 | 143, 153 | | 200, 209 | |
/// | | 500 | 336, 334 | | 448, 444 | |
/// | | 1,408 | 527, 541 | | 960, 881 | |
/// | AES-128-CBC, HMAC-SHA1-96 | 48 | 150, 132 | | | 237, 219 |
/// | | 512 | 254, 219 | | | 742, 754 |
/// | | 1,408 | 456, 435 | | | 1,838, 1,265 |
/// | AES-128-CBC, HMAC-SHA256-128 | 48 | 186, 175 | | | 261, 225 |
/// | | 512 | 354, 316 | | | 1,021, 660 |
/// | | 1,408 | 666, 650 | | | 1,863, 1,537 |
/// | AES-256-CBC, HMAC-SHA512-256 | 48 | 296, 196 | | | 680, 643 |
/// | | 1,408 | 851, 883 | | | 4,218, 3,758 |
///
/// One packet alone of AES-128-CBC with HMAC-SHA1-96 takes ipsec-mb 742, 648 (48 bytes) and 5,543, 4,020 (1,408), composed 326, 225 and 3,129,
/// 1,310: hence the least number together. On a core of Zen 3, where ipsec-mb has 128 bits at a time, ring passes it beyond 768 bytes of
/// AES-GCM.
pub(crate) const LIBRARIES: &[Library] = &[
    #[cfg(feature = "ipsec-mb")]
    Library {
        name: ipsec_mb::name,
        has: ipsec_mb::has,
        longest: ipsec_mb::longest,
        least: ipsec_mb::least,
        expand: ipsec_mb::expand,
    },
    Library {
        name: || Some(abreast::NAME.to_owned()),
        has: abreast::has,
        longest: |_| abreast::LONGEST,
        least: |_| 1,
        expand: abreast::expand,
    },
    #[cfg(not(target_arch = "riscv32"))]
    Library {
        name: || Some(ring::name()),
        has: ring::has,
        longest: |_| usize::MAX,
        least: |_| 1,
        expand: ring::expand,
    },
    Library {
        name: || Some(composed::NAME.to_owned()),
        has: composed::has,
        longest: |_| usize::MAX,
        least: |_| 1,
        expand: composed::expand,
    },
];

/// Names of the libraries that this build has and this processor can use, the preferred one first, each once.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for name in LIBRARIES.iter().filter_map(|library| (library.name)()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

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
    let later = |than| from(rest, than, suite, keys, direction);
    if !(first.has)(suite) || (first.longest)(suite) <= than {
        return later(than);
    }
    let (longest, least) = ((first.longest)(suite), (first.least)(suite));
    let mut best = (first.expand)(suite, keys, direction);
    if let Some(few) = (least > 1).then(|| later(than)).flatten() {
        best = Box::new(ByCount { few, least, many: best });
    }
    if let Some(long) = (longest < usize::MAX).then(|| later(longest)).flatten() {
        best = Box::new(ByLength { short: best, longest, long });
    }
    Some(best)
}

#[cfg(test)]
mod tests;
