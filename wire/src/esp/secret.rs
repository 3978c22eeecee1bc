//! Keys in memory: zeroised when dropped, and never printed.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a key. No `Display` and no serde; `Debug` tells the length only.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// Text that is not an even number of hexadecimal digits. The text is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHex {
    /// A digit is missing.
    #[error("an odd number of hexadecimal digits")]
    Odd,
    /// A character is no digit.
    #[error("character {at} is no hexadecimal digit")]
    Digit {
        /// Place of the character, from 1.
        at: usize,
    },
}

impl Secret {
    /// Takes bytes over.
    pub fn new(bytes: Box<[u8]>) -> Secret {
        Secret(bytes)
    }

    /// Reads hexadecimal digits, with or without 0x in front.
    pub fn of_hex(text: &str) -> Result<Secret, BadHex> {
        let (digits, before) = text.strip_prefix("0x").map_or((text, 0), |digits| (digits, 2));
        // Zeroised on errors too. The capacity is exact, so that no copy is left behind by growing or by boxing.
        let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
        let mut upper = None;
        for (at, character) in digits.chars().enumerate() {
            let digit = character.to_digit(16).ok_or(BadHex::Digit { at: at + before + 1 })? as u8;
            match upper.take() {
                None => upper = Some(digit),
                Some(upper) => bytes.push(upper << 4 | digit),
            }
        }
        match upper {
            Some(_) => Err(BadHex::Odd),
            None => Ok(Secret(std::mem::take(&mut *bytes).into_boxed_slice())),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no bytes, as of an algorithm that takes no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes themselves.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Takes the same time whatever the bytes are.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests;
