//! Descriptions of port mappings, of bounded length.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Description of a port mapping: up to 32 bytes of UTF-8 without control characters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label([u8; Label::LEN]);

impl Label {
    /// Longest description, in bytes.
    pub const LEN: usize = 32;

    /// Returns a description of the beginning of a text; control characters are left out.
    pub fn of(text: &str) -> Label {
        let (mut bytes, mut len) = ([0; Label::LEN], 0);
        for char in text.chars().filter(|char| !char.is_control()) {
            let end = len + char.len_utf8();
            if end > Label::LEN {
                break;
            }
            char.encode_utf8(&mut bytes[len..end]);
            len = end;
        }
        Label(bytes)
    }

    /// The text; of bytes that are none, as a damaged file may have them, what is.
    pub fn text(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(Label::LEN);
        match std::str::from_utf8(&self.0[..len]) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&self.0[..error.valid_up_to()]).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(Label::of("game of friday").text(), "game of friday");
        assert_eq!(Label::of("").text(), "");
        assert_eq!(Label::of("two\nlines\u{7f}").text(), "twolines");
        assert_eq!(Label::of(&"x".repeat(40)).text().len(), 32);
        // Of 33 bytes, the last two are one character.
        assert_eq!(Label::of(&format!("{}\u{e9}", "x".repeat(31))).text().len(), 31);
        let damaged = Label(*b"good\xff\xfe\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(damaged.text(), "good");
    }
}
