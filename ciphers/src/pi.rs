//! The digits of pi, which Blowfish's tables begin with.

/// The first `words` words of pi's fraction in base 2³², by Machin's formula: pi/4 = 4 atan(1/5) - atan(1/239).
pub(crate) fn fraction(words: usize) -> Vec<u32> {
    // Each of some 7000 terms is cut off one unit below the true value: two words more than enough.
    let places = words + 3;
    let mut sum = vec![0; places];
    arctangent(&mut sum, 5, 16, false);
    arctangent(&mut sum, 239, 4, true);
    // The first place holds the 3.
    sum[1..=words].to_vec()
}

/// Adds (or subtracts) `times * atan(1/inverse)` = times · Σ (-1)ⁿ / ((2n + 1) · inverse²ⁿ⁺¹). Numbers have their
/// whole part first.
fn arctangent(sum: &mut [u32], inverse: u32, times: u32, negative: bool) {
    let mut power = vec![0; sum.len()];
    power[0] = times;
    divide(&mut power, inverse);
    let mut term = power.clone();
    let (mut odd, mut subtract) = (1, negative);
    while power.iter().any(|&place| place != 0) {
        term.copy_from_slice(&power);
        divide(&mut term, odd);
        accumulate(sum, &term, subtract);
        divide(&mut power, inverse * inverse);
        odd += 2;
        subtract = !subtract;
    }
}

fn divide(number: &mut [u32], by: u32) {
    let mut rest = 0;
    for place in number {
        let value = rest << 32 | u64::from(*place);
        *place = (value / u64::from(by)) as u32;
        rest = value % u64::from(by);
    }
}

fn accumulate(sum: &mut [u32], term: &[u32], subtract: bool) {
    let mut carry = false;
    for (place, &other) in sum.iter_mut().zip(term).rev() {
        let (value, first) =
            if subtract { place.overflowing_sub(other) } else { place.overflowing_add(other) };
        let carried = u32::from(carry);
        let (value, second) =
            if subtract { value.overflowing_sub(carried) } else { value.overflowing_add(carried) };
        *place = value;
        carry = first || second;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn begins_as_everybody_knows() {
        // 3.243f6a88 85a308d3 13198a2e, in base 16.
        assert_eq!(super::fraction(3), [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e]);
    }

    #[test]
    fn more_places_change_none_before() {
        let long = super::fraction(64);
        assert_eq!(super::fraction(40), long[..40]);
    }
}
