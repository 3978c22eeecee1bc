//! Text of a packet, encrypted in blocks or not at all.

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
}

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
        let mut block = Block::<C>::default();
        // Blocks have 8 bytes or more.
        if let Some(last) = block.last_chunk_mut() {
            *last = number.to_be_bytes();
        }
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
}
