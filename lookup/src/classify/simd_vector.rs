//! Bit vectors side by side: the first bit that is set in all of them.
//!
//! One plain function does it; on processors with AVX2 the same function, compiled for them, 256 bits at a time. Which of
//! them runs is asked of the processor once, when a search is built.
#![allow(unsafe_code)]

/// Bits of a [`Block`].
pub(super) const BLOCK_BITS: usize = 512;

/// Words of a [`Block`].
const WORDS: usize = BLOCK_BITS / 64;

/// A cache line of bits; bit 0 is the lowest of word 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Block(pub(super) [u64; WORDS]);

/// All vectors lie in `blocks`; `rows` are the first blocks of the vectors to compare, one at least. `summaries` blocks
/// of a vector come first: their bit n is 1 if word n of the vector has a bit set. `lines` blocks follow.
pub(super) type First = fn(blocks: &[Block], rows: &[u32], summaries: usize, lines: usize) -> Option<u32>;

/// Returns the fastest function that this processor runs: for short vectors, which have no summaries, or for long ones.
pub(super) fn first(summaries: usize) -> First {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return if summaries == 0 { short_avx2 } else { long_avx2 };
    }
    if summaries == 0 { short } else { long }
}

/// Returns the first common bit of vectors without summaries: every block up to that of the bit is read.
#[inline(always)]
pub(super) fn short(blocks: &[Block], rows: &[u32], _: usize, lines: usize) -> Option<u32> {
    (0..lines).find_map(|line| {
        let common = common(blocks, rows, line);
        let word = first_word(&common)?;
        Some(bit(line * WORDS + word, common.0[word]))
    })
}

/// Returns the first common bit of vectors with summaries: only words with a bit in all summaries are read.
#[inline(always)]
pub(super) fn long(blocks: &[Block], rows: &[u32], summaries: usize, _: usize) -> Option<u32> {
    (0..summaries).find_map(|summary| {
        let candidates = common(blocks, rows, summary);
        candidates.0.iter().enumerate().find_map(|(place, candidates)| {
            let mut candidates = *candidates;
            while candidates != 0 {
                let word = (summary * WORDS + place) * 64 + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let common = common_word(blocks, rows, summaries, word);
                if common != 0 {
                    return Some(bit(word, common));
                }
            }
            None
        })
    })
}

/// The bits that block `line` of every row has.
#[inline(always)]
fn common(blocks: &[Block], rows: &[u32], line: usize) -> Block {
    let mut common = [u64::MAX; WORDS];
    for row in rows {
        let block = &blocks[*row as usize + line];
        for (common, word) in common.iter_mut().zip(block.0) {
            *common &= word;
        }
    }
    Block(common)
}

/// The bits that word `word` of every row has.
#[inline(always)]
fn common_word(blocks: &[Block], rows: &[u32], summaries: usize, word: usize) -> u64 {
    let (line, place) = (summaries + word / WORDS, word % WORDS);
    let mut common = u64::MAX;
    for row in rows {
        common &= blocks[*row as usize + line].0[place];
        if common == 0 {
            break;
        }
    }
    common
}

#[inline(always)]
fn first_word(block: &Block) -> Option<usize> {
    // Asked of all words together first: of most blocks the answer is no.
    if block.0.iter().fold(0, |any, word| any | word) == 0 {
        return None;
    }
    block.0.iter().position(|word| *word != 0)
}

#[inline(always)]
fn bit(word: usize, bits: u64) -> u32 {
    word as u32 * 64 + bits.trailing_zeros()
}

#[cfg(target_arch = "x86_64")]
fn short_avx2(blocks: &[Block], rows: &[u32], summaries: usize, lines: usize) -> Option<u32> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn compiled(blocks: &[Block], rows: &[u32], summaries: usize, lines: usize) -> Option<u32> {
        short(blocks, rows, summaries, lines)
    }
    // SAFETY: `first`, and it alone, hands this function out, and only where the processor has the instructions.
    unsafe { compiled(blocks, rows, summaries, lines) }
}

#[cfg(target_arch = "x86_64")]
fn long_avx2(blocks: &[Block], rows: &[u32], summaries: usize, lines: usize) -> Option<u32> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn compiled(blocks: &[Block], rows: &[u32], summaries: usize, lines: usize) -> Option<u32> {
        long(blocks, rows, summaries, lines)
    }
    // SAFETY: as in `short_avx2`.
    unsafe { compiled(blocks, rows, summaries, lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of `lines` blocks with summaries before them, from a few bits each.
    fn rows(lines: usize, summaries: usize, bits: &[&[u32]]) -> (Vec<Block>, Vec<u32>) {
        let mut blocks = Vec::new();
        let starts = bits.iter().map(|bits| {
            let begin = blocks.len();
            blocks.resize(begin + summaries + lines, Block([0; WORDS]));
            for bit in bits.iter().map(|bit| *bit as usize) {
                blocks[begin + summaries + bit / 512].0[bit % 512 / 64] |= 1 << (bit % 64);
                if summaries > 0 {
                    let word = bit / 64;
                    blocks[begin + word / 512].0[word % 512 / 64] |= 1 << (word % 64);
                }
            }
            begin as u32
        });
        let starts = starts.collect();
        (blocks, starts)
    }

    #[test]
    fn the_first_bit_of_all_is_found_by_each() {
        let cases: &[(&[&[u32]], Option<u32>)] = &[
            (&[&[0]], Some(0)),
            (&[&[0, 63, 64], &[63, 64]], Some(63)),
            (&[&[511, 512], &[512]], Some(512)),
            (&[&[5, 70, 1_535], &[6, 71, 1_535], &[1_535]], Some(1_535)),
            // One word in common, and no bit of it.
            (&[&[128, 900], &[129, 900], &[130, 900]], Some(900)),
            (&[&[1], &[2]], None),
            (&[&[], &[2]], None),
        ];
        for (bits, wanted) in cases {
            let (blocks, starts) = rows(3, 0, bits);
            assert_eq!(short(&blocks, &starts, 0, 3), *wanted, "{bits:?}");
            assert_eq!(first(0)(&blocks, &starts, 0, 3), *wanted, "{bits:?}");
            let (blocks, starts) = rows(3, 1, bits);
            assert_eq!(long(&blocks, &starts, 1, 3), *wanted, "{bits:?}");
            assert_eq!(first(1)(&blocks, &starts, 1, 3), *wanted, "{bits:?}");
        }
    }

    #[test]
    fn a_summary_may_be_several_blocks() {
        let bits: &[&[u32]] = &[&[32_770, 65_000], &[7, 32_771, 65_000], &[6, 32_768 + 64, 65_000]];
        let (blocks, starts) = rows(128, 2, bits);
        assert_eq!(long(&blocks, &starts, 2, 128), Some(65_000));
        assert_eq!(first(2)(&blocks, &starts, 2, 128), Some(65_000));
        assert_eq!(long(&blocks, &starts[..1], 2, 128), Some(32_770));
    }
}
