//! Kernel of a search: the two steps that some processors have instructions for, gathering the bits of a word and
//! comparing a header with eight cuboids. [`Plain`] needs none of these instructions; `simd_tree` has AVX2 and BMI2.

use super::layout::{Octet, Shape, WIDTH, lane, lanes};

/// Implementation of these steps for one instruction set.
pub(in crate::classify) trait Kernel: Copy {
    /// Gathers the bits of `word` that `mask` has into the lowest bits.
    fn gather(self, word: u64, mask: u64) -> u64;

    /// Returns a bit mask of the cuboids of a block that contain a header.
    fn hits<S: Shape, const ZONES: bool>(self, block: &[Octet], key: &S::Key) -> u32;
}

/// Runs on every processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

impl Kernel for Plain {
    #[inline(always)]
    fn gather(self, word: u64, mask: u64) -> u64 {
        gather(word, mask)
    }

    #[inline(always)]
    fn hits<S: Shape, const ZONES: bool>(self, block: &[Octet], key: &S::Key) -> u32 {
        let (mut hits, key) = (0, key.as_ref());
        for place in 0..WIDTH {
            let holds = (0..lanes::<S>(ZONES)).all(|at| {
                let (shown, low, span) = (lane(key, at), block[2 * at].0[place], block[2 * at + 1].0[place]);
                if at < S::PORTS {
                    shown.wrapping_sub(low) <= span
                } else if at == S::PORTS {
                    let halves = [0, 16].map(|shift| [shown, low, span].map(|lane| (lane >> shift) as u16));
                    halves.into_iter().all(|[shown, low, span]| shown.wrapping_sub(low) <= span)
                } else {
                    shown & low == span
                }
            });
            hits |= u32::from(holds) << place;
        }
        hits
    }
}

/// Gathers the bits of `word` that `mask` has into the lowest bits.
#[inline]
fn gather(word: u64, mask: u64) -> u64 {
    let (mut gathered, mut place, mut rest) = (0, 0, mask);
    while rest != 0 {
        let bit = rest.trailing_zeros();
        rest &= rest - 1;
        gathered |= (word >> bit & 1) << place;
        place += 1;
    }
    gathered
}
