//! One safe prefetch. Random look-ups in a table larger than the cache cost a miss each; asking for the
//! line a few frames ahead hides it. See `docs/decisions/` for why this one `unsafe` block exists.

/// Asks the processor to bring the cache line of `place` near. Changes nothing that a program can see.
#[inline(always)]
pub fn read<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: a prefetch neither reads nor writes memory as the abstract machine sees it and never
    // faults, whatever the address; SSE is part of the x86-64 baseline.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
