use proptest::prelude::*;

use super::*;

/// RFC 4303, appendix A2.2, in its own words and variables: Th and Tl are the halves of the top, W the window, Seql the number in the
/// packet; arithmetic on halves is modulo 2^32. Returns Seqh.
fn appendix(tl: u32, th: u32, w: u32, seql: u32) -> u32 {
    const MODULUS: u64 = 1 << 32;
    let bottom = ((u64::from(tl) + MODULUS + 1 - u64::from(w)) % MODULUS) as u32;
    if tl >= w - 1 {
        // Case A.
        if seql >= bottom { th } else { th + 1 }
    } else {
        // Case B.
        if seql >= bottom { th - 1 } else { th }
    }
}

proptest! {
    #[test]
    fn equal_to_the_appendix(
        th in 1..u32::MAX,
        tl in prop_oneof![0..200_000_u32, any::<u32>(), u32::MAX - 200_000..=u32::MAX],
        w in prop_oneof![Just(32_u32), Just(64), Just(65_536), 32..65_536_u32],
        at in prop_oneof![Just(None), (-140_000..140_000_i64).prop_map(Some)],
        any in any::<u32>(),
    ) {
        let seql = at.map_or(any, |at| (i64::from(tl) + at) as u32);
        let number = infer(seql, u64::from(th) << 32 | u64::from(tl), w);
        prop_assert_eq!(number, u64::from(appendix(tl, th, w, seql)) << 32 | u64::from(seql));
    }
}

#[test]
fn upper_halves_end_at_both_ends() {
    // Before the first number: the window would begin below 0.
    assert_eq!(infer(u32::MAX, 0, 64), u64::from(u32::MAX));
    assert_eq!(infer(1, 0, 64), 1);
    // Behind the last.
    assert_eq!(infer(0, u64::MAX, 64), u64::from(u32::MAX) << 32);
    assert_eq!(infer(u32::MAX - 63, u64::MAX, 64), u64::MAX - 63);
}
