//! Text of a packet, encrypted in blocks or not at all.

use std::cmp::Reverse;

use arrayvec::ArrayVec;
use cbc::{Decryptor, Encryptor};
use cipher::array::Array;
use cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit,
};

/// A cipher for whole texts, keys expanded. IV and text have the lengths of its suite.
pub(super) trait Text: Send + Sync {
    /// Chooses the IV of the packet of a number.
    fn choose_iv(&self, number: u64, iv: &mut [u8]);
    fn encrypt(&self, iv: &[u8], text: &mut [u8]);
    fn decrypt(&self, iv: &[u8], text: &mut [u8]);

    /// Chooses the IVs of several packets, at most [`ABREAST`], and encrypts them. They may come out in another order.
    fn encrypt_many(&self, packets: &mut [Open<'_>]) {
        for Open { number, iv, text } in packets {
            self.choose_iv(*number, iv);
            self.encrypt(iv, text);
        }
    }
}

/// A packet that is to be encrypted.
pub(super) struct Open<'a> {
    pub(super) number: u64,
    pub(super) iv: &'a mut [u8],
    pub(super) text: &'a mut [u8],
}

/// Packets that are encrypted abreast, at most.
pub(super) const ABREAST: usize = 8;

/// Text in clear (RFC 2410).
pub(super) struct Clear;

impl Text for Clear {
    fn choose_iv(&self, _: u64, _: &mut [u8]) {}

    fn encrypt(&self, _: &[u8], _: &mut [u8]) {}

    fn decrypt(&self, _: &[u8], _: &mut [u8]) {}
}

/// Expands the key of a block cipher, for cipher block chaining.
pub(super) fn chained<C>(key: &[u8]) -> Box<dyn Text>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + KeyInit + Send + Sync + 'static,
{
    Box::new(Chained(C::new_from_slice(key).expect("a key of the suite's length")))
}

struct Chained<C>(C);

impl<C: BlockCipherEncrypt + BlockCipherDecrypt + Send + Sync> Text for Chained<C> {
    /// The number in a block, encrypted: unpredictable without the key, as CBC needs it (NIST SP 800-38A, appendix C).
    fn choose_iv(&self, number: u64, iv: &mut [u8]) {
        let mut block = numbered::<C>(number);
        self.0.encrypt_block(&mut block);
        iv.copy_from_slice(&block);
    }

    fn encrypt(&self, iv: &[u8], text: &mut [u8]) {
        let iv = Block::<C>::try_from(iv).expect("an IV is a block");
        Encryptor::inner_iv_init(&self.0, &iv).encrypt_blocks(Array::slice_as_chunks_mut(text).0);
    }

    fn decrypt(&self, iv: &[u8], text: &mut [u8]) {
        let iv = Block::<C>::try_from(iv).expect("an IV is a block");
        Decryptor::inner_iv_init(&self.0, &iv).decrypt_blocks(Array::slice_as_chunks_mut(text).0);
    }

    /// A block of a packet waits for the one before it; so the processor has a block of each packet at a time.
    fn encrypt_many(&self, packets: &mut [Open<'_>]) {
        // Those that still have blocks are the first ones.
        packets.sort_unstable_by_key(|packet| Reverse(packet.text.len()));
        let mut chains: ArrayVec<Block<C>, ABREAST> =
            packets.iter().map(|packet| numbered::<C>(packet.number)).collect();
        self.0.encrypt_blocks(&mut chains);
        for (packet, chain) in packets.iter_mut().zip(&chains) {
            packet.iv.copy_from_slice(chain);
        }
        let mut going = packets.len();
        for at in 0.. {
            let mut texts: ArrayVec<&mut Block<C>, ABREAST> = packets[..going]
                .iter_mut()
                .map_while(|packet| Array::slice_as_chunks_mut(packet.text).0.get_mut(at))
                .collect();
            going = texts.len();
            if going == 0 {
                return;
            }
            for (chain, text) in chains.iter_mut().zip(&texts) {
                chain.iter_mut().zip(text.iter()).for_each(|(chain, text)| *chain ^= text);
            }
            self.0.encrypt_blocks(&mut chains[..going]);
            texts.iter_mut().zip(&chains).for_each(|(text, chain)| text.clone_from(chain));
        }
    }
}

/// A packet's number at the end of a block of zeros. Blocks have 8 bytes or more.
fn numbered<C: BlockCipherEncrypt>(number: u64) -> Block<C> {
    let mut block = Block::<C>::default();
    if let Some(last) = block.last_chunk_mut() {
        *last = number.to_be_bytes();
    }
    block
}
