use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, prop_assume, proptest};

use super::*;
use crate::random::Random;

/// RFC 1071, section 1, to the letter: add 16-bit words, then the carries until there are none.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

#[test]
fn rfc_1071_section_3_example() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
    assert_eq!(of(&bytes), 0x220d);
}

#[test]
fn rfc_1624_section_4_example() {
    // Where RFC 1141 arrives at 0xffff.
    assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn both_zeros() {
    assert_eq!(of(&[]), 0xffff);
    assert_eq!(of(&[0; 6]), 0xffff);
    assert_eq!(of(&[0xff; 6]), 0);
    assert!(!verifies(&[0; 6]), "all zeros bear no checksum");
    assert!(verifies(&[0xff; 6]));
}

#[test]
fn carries_of_the_longest_packet() {
    for len in [65534, 65535] {
        let bytes = vec![0xff; len];
        assert_eq!(Sum::of(&bytes).fold(), naive(&bytes));
    }
}

#[test]
fn no_change_is_the_identity() {
    let there_and_back = Delta::NONE.change32(1, 7).change32(7, 1);
    assert_eq!(there_and_back, Delta::NONE);
    for checksum in 0..=0xffff {
        assert_eq!(Delta::NONE.change16(checksum, checksum), Delta::NONE);
        assert_eq!(Delta::NONE.apply(checksum), checksum);
        assert_eq!(Delta::NONE.apply_udp(checksum), checksum);
    }
}

#[test]
fn udp_zero_stays_and_none_becomes_zero() {
    for bits in 0..=0xfffe {
        let delta = Delta::from_bits(bits);
        assert_eq!(delta.apply_udp(0), 0);
        assert_ne!(delta.apply_udp(0x1234), 0);
        assert_ne!(delta.apply_udp(0xffff), 0);
    }
    let delta = Delta::NONE.change16(0x5555, 0x3285);
    assert_eq!(delta.apply_udp(0xdd2f), 0xffff);
}

proptest! {
    #[test]
    fn sum_is_the_naive_sum(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(Sum::of(&bytes).fold(), naive(&bytes));
    }

    #[test]
    fn parts_sum_to_the_whole(parts in vec(vec(any::<u8>(), 0..40), 0..8)) {
        let sum = parts.iter().fold(Sum::ZERO, |sum, part| sum.and(part));
        prop_assert_eq!(sum.fold(), naive(&parts.concat()));
    }

    #[test]
    fn twenty_bytes_verify_as_any(mut bytes in any::<[u8; 20]>(), right in any::<bool>()) {
        if right {
            bytes[10..12].fill(0);
            let checksum = !naive(&bytes);
            bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        prop_assert_eq!(verifies_20(&bytes), naive(&bytes) == 0xffff);
        prop_assert!(!right || verifies_20(&bytes));
    }

    #[test]
    fn words_and_longs_are_bytes(word in any::<u16>(), long in any::<u32>()) {
        let bytes = [&word.to_be_bytes()[..], &long.to_be_bytes()].concat();
        prop_assert_eq!(Sum::ZERO.and_word(word).and_long(long).fold(), naive(&bytes));
    }

    #[test]
    fn pseudo_headers_are_their_bytes(src in any::<u32>(), dst in any::<u32>(), protocol in any::<u8>(),
                                      length in any::<u16>(), wide in any::<[u128; 2]>(), long in any::<u32>()) {
        let mut v4 = [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0, protocol]].concat();
        v4.extend(length.to_be_bytes());
        let sum = Sum::pseudo_v4(src.into(), dst.into(), Protocol(protocol), length);
        prop_assert_eq!(sum.fold(), naive(&v4));

        let mut v6 = [wide[0].to_be_bytes(), wide[1].to_be_bytes()].concat();
        v6.extend(long.to_be_bytes());
        v6.extend([0, 0, 0, protocol]);
        let sum = Sum::pseudo_v6(wide[0].into(), wide[1].into(), Protocol(protocol), long);
        prop_assert_eq!(sum.fold(), naive(&v6));
    }

    /// A message of a checksum, a word, a long, an address and an odd tail: each field changed, each
    /// adjustment equal to computing anew, bit by bit.
    #[test]
    fn adjusting_is_computing_anew(old in message(), new in message(), tail in vec(any::<u8>(), 0..5)) {
        let (before, after) = (old.bytes(&tail), new.bytes(&tail));
        // All zeros is the one case where the two zeros differ, and no packet with an address has it.
        prop_assume!(before.iter().any(|byte| *byte != 0) && after.iter().any(|byte| *byte != 0));
        let delta = Delta::NONE
            .change16(old.word, new.word)
            .change32(old.long, new.long)
            .change128(old.address, new.address)
            .change16_at_odd(old.straddling, new.straddling);
        let checksum = !naive(&before);
        prop_assert_eq!(delta.apply(checksum), !naive(&after));
        prop_assert_eq!(Delta::from_bits(delta.to_bits()), delta);
        prop_assert_eq!(delta.inverse().apply(!naive(&after)), checksum);
        prop_assert_eq!(delta.and(delta.inverse()), Delta::NONE);

        let one_by_one = update16(checksum, old.word, new.word);
        let one_by_one = update32(one_by_one, old.long, new.long);
        let one_by_one = update128(one_by_one, old.address, new.address);
        let one_by_one = Delta::NONE.change16_at_odd(old.straddling, new.straddling).apply(one_by_one);
        prop_assert_eq!(one_by_one, !naive(&after));

        let udp = |sum: u16| if !sum == 0 { 0xffff } else { !sum };
        prop_assert_eq!(delta.apply_udp(udp(naive(&before))), udp(naive(&after)));
    }

    /// A wrong checksum stays wrong by the same difference, and a checksum that verified by either zero still verifies.
    #[test]
    fn adjusting_keeps_right_and_wrong(old in message(), new in message(), checksum in any::<u16>()) {
        prop_assume!(new.bytes(&[]).iter().any(|byte| *byte != 0));
        let delta = Delta::NONE
            .change16(old.word, new.word)
            .change32(old.long, new.long)
            .change128(old.address, new.address)
            .change16_at_odd(old.straddling, new.straddling);
        for checksum in [checksum, !naive(&old.bytes(&[])), naive(&old.bytes(&[]))] {
            let whole = |message: &Fields, checksum: u16| message.bytes(&checksum.to_be_bytes());
            let before = naive(&whole(&old, checksum));
            let after = naive(&whole(&new, delta.apply(checksum)));
            prop_assert_eq!(before % 0xffff, after % 0xffff);
            prop_assert!(before != 0xffff || after == 0xffff);
        }
    }
}

#[derive(Clone, Debug)]
struct Fields {
    word: u16,
    long: u32,
    address: u128,
    straddling: u16,
}

impl Fields {
    fn bytes(&self, tail: &[u8]) -> Vec<u8> {
        let mut bytes = self.word.to_be_bytes().to_vec();
        bytes.extend(self.long.to_be_bytes());
        bytes.extend(self.address.to_be_bytes());
        bytes.push(0);
        bytes.extend(self.straddling.to_be_bytes());
        bytes.push(0);
        bytes.extend(tail);
        bytes
    }
}

/// Values at the edges of one's complement as often as others.
fn message() -> impl proptest::strategy::Strategy<Value = Fields> {
    use proptest::prelude::{Just, Strategy};
    use proptest::prop_oneof;
    let word = prop_oneof![Just(0), Just(0xffff), Just(1), Just(0xfffe), any::<u16>()];
    let long = prop_oneof![Just(0), Just(u32::MAX), Just(0xffff), any::<u32>()];
    let address = prop_oneof![Just(0), Just(u128::MAX), any::<u128>()];
    (word.clone(), long, address, word).prop_map(|(word, long, address, straddling)| Fields {
        word,
        long,
        address,
        straddling,
    })
}

/// RFC 1071, section 4.1: half words are added, and then what is carried.
#[test]
fn a_header_verifies_exactly_where_its_half_words_add_up_to_all_ones() {
    let halves = |words: [u64; 3]| {
        words.iter().flat_map(|word| [0, 16, 32, 48].map(|at| word >> at & 0xffff)).sum::<u64>()
    };
    let folded = |words| {
        let mut sum = halves(words);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    assert!(!words_verify([0; 3]) && words_verify([u64::MAX; 3]) && words_verify([0xffff << 48, 0, 0xffff]));
    let mut random = Random::new(3);
    for number in 0..100_000 {
        let ends = [0, u64::MAX, 0xffff, 0xffff << 48, u64::from(u32::MAX)];
        let mut words: [u64; 3] = std::array::from_fn(|_| match random.below(8) {
            place @ 0..5 => ends[place as usize],
            _ => random.next_u64(),
        });
        if number % 2 == 0 {
            words[2] &= u64::MAX << 16;
            words[2] |= folded(words) ^ 0xffff;
            assert!(words_verify(words) || words == [0; 3], "{words:x?}");
        }
        assert_eq!(words_verify(words), folded(words) == 0xffff, "{words:x?}");
        assert_eq!(words_verify(words), words_verify(words.map(u64::swap_bytes)), "{words:x?}");
    }
}
