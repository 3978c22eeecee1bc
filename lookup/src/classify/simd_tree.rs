//! Kernel of the search of trees for AVX2 and BMI2.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32,
    _mm256_load_si256, _mm256_min_epu16, _mm256_min_epu32, _mm256_movemask_ps, _mm256_set1_epi32,
    _mm256_sub_epi16, _mm256_sub_epi32, _pext_u64,
};

use super::tree::kernel::Kernel;
use super::tree::layout::{Octet, Shape, lane, lanes};

/// Proof that the processor has AVX2, BMI2 and the extensions that come with them; made by detection alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Returns the token if the processor has the instructions.
    pub(super) fn found() -> Option<Avx2> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        found.then_some(Avx2(()))
    }

    /// Runs `work` with all that is inlined into it compiled for these instructions.
    #[inline]
    pub(super) fn run<R>(self, work: impl FnOnce(Avx2) -> R) -> R {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn compiled<R>(kernel: Avx2, work: impl FnOnce(Avx2) -> R) -> R {
            work(kernel)
        }
        // SAFETY: the processor has the instructions: `found` has asked for each.
        unsafe { compiled(self, work) }
    }
}

#[inline(always)]
fn load(octet: &Octet) -> __m256i {
    // SAFETY: an octet is 32 bytes, and lies at a multiple of 32.
    unsafe { _mm256_load_si256(std::ptr::from_ref(octet).cast()) }
}

impl Kernel for Avx2 {
    #[inline(always)]
    fn gather(self, word: u64, mask: u64) -> u64 {
        // SAFETY: the processor has BMI2.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    fn hits<S: Shape, const ZONES: bool>(self, block: &[Octet], key: &S::Key) -> u32 {
        let (count, key) = (lanes::<S>(ZONES), key.as_ref());
        // SAFETY: the processor has AVX2.
        unsafe {
            let all = _mm256_cmpeq_epi32(_mm256_set1_epi32(0), _mm256_set1_epi32(0));
            let mut holds = all;
            for at in 0..count {
                let (low, span) = (load(&block[2 * at]), load(&block[2 * at + 1]));
                let shown = _mm256_set1_epi32(lane(key, at) as i32);
                // At most as far above the lowest as the span says, without signs.
                let held = if at < S::PORTS {
                    let above = _mm256_sub_epi32(shown, low);
                    _mm256_cmpeq_epi32(_mm256_min_epu32(above, span), above)
                } else if at == S::PORTS {
                    let above = _mm256_sub_epi16(shown, low);
                    _mm256_cmpeq_epi16(_mm256_min_epu16(above, span), above)
                } else {
                    _mm256_cmpeq_epi32(_mm256_and_si256(shown, low), span)
                };
                holds = _mm256_and_si256(holds, held);
            }
            // Both ports of a lane.
            let whole = _mm256_cmpeq_epi32(holds, all);
            _mm256_movemask_ps(_mm256_castsi256_ps(whole)) as u32
        }
    }
}
