//! Hash functions of the MD4 family: 64-byte blocks, padding by a bit and the length.

use crate::machine::{Machine, word_of};
use crate::word::Word;

/// Bytes of a block.
pub const BLOCK: usize = 64;
const WORDS: usize = BLOCK / 4;

/// A hash function with a state of `N` words.
pub trait Hash<const N: usize> {
    /// Initial state.
    const INITIAL: [u32; N];
    /// Order of bytes in words.
    const ORDER: ByteOrder;

    /// The state after one more block, read with the most significant byte of each word first.
    fn compress<M: Machine>(machine: M, state: [M::Word; N], block: [M::Word; 16]) -> [M::Word; N];
}

/// Order of bytes in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The most significant byte first, as on an engine.
    Big,
    /// The least significant byte first.
    Little,
}

/// The state after a whole message and its padding (RFC 1321, 3.1 to 3.4; RFC 3174, 4), in the algorithm's words;
/// [`bytes`] puts them in order.
pub fn digest<const N: usize, H: Hash<N>, M: Machine>(machine: M, message: &[u8]) -> [u32; N] {
    let mut state = machine.constants(H::INITIAL);
    let whole = message.len() / BLOCK;
    let padding = padding::<N, H>(message);
    let mut ahead = None;
    // Padding is made by the engine; only what is of the message is read.
    for number in machine.blocks(0..whole + padding.len() / WORDS) {
        let block = if number < whole {
            let block = match ahead.take() {
                Some(block) => block,
                None => machine.read_text(message, number * BLOCK),
            };
            if machine.reads_ahead() && number + 1 < whole {
                ahead = Some(machine.read_text(message, (number + 1) * BLOCK));
            }
            block
        } else {
            let words = &padding[(number - whole) * WORDS..][..WORDS];
            std::array::from_fn(|word| {
                let at = number * BLOCK + 4 * word;
                if at + 4 <= message.len() {
                    let [word] = machine.read_text::<1>(message, at);
                    word
                } else {
                    machine.constant(words[word])
                }
            })
        };
        state = H::compress(machine, state, block);
    }
    state.map(Word::value)
}

/// The bytes of a digest.
pub fn bytes<const N: usize, H: Hash<N>>(state: [u32; N]) -> Vec<u8> {
    state
        .iter()
        .flat_map(|word| match H::ORDER {
            ByteOrder::Big => word.to_be_bytes(),
            ByteOrder::Little => word.to_le_bytes(),
        })
        .collect()
}

/// The last partial block, padded to one block or two: words, most significant byte first.
fn padding<const N: usize, H: Hash<N>>(message: &[u8]) -> Vec<u32> {
    let rest = message.len() % BLOCK;
    let mut block = message[message.len() - rest..].to_vec();
    block.push(0x80);
    while block.len() % BLOCK != BLOCK - 8 {
        block.push(0);
    }
    let bits = 8 * message.len() as u64;
    block.extend(match H::ORDER {
        ByteOrder::Big => bits.to_be_bytes(),
        ByteOrder::Little => bits.to_le_bytes(),
    });
    (0..block.len()).step_by(4).map(|at| word_of(&block, at)).collect()
}
