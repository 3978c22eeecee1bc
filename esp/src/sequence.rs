//! Sequence numbers (RFC 4303, section 2.2 and appendix A).

/// Infers the whole number of a packet from the lower half that it carries, given the highest number accepted (`top`) and the size
/// of the window (RFC 4303, appendix A2.2): the number nearest to the window that is not left of it.
///
/// Numbers before the first and behind the last do not exist: there the upper half stays.
#[inline]
pub fn infer(low: u32, top: u64, window: u32) -> u64 {
    let (top_high, top_low) = ((top >> 32) as u32, top as u32);
    let bottom = top_low.wrapping_sub(window.saturating_sub(1));
    let high = match (top_low >= window.saturating_sub(1), low >= bottom) {
        // The window lies in one half-space of 2^32 numbers: a lower half left of it is one of the next.
        (true, true) => top_high,
        (true, false) => top_high.saturating_add(1),
        // The window begins in the one before.
        (false, true) => top_high.saturating_sub(1),
        (false, false) => top_high,
    };
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests;
