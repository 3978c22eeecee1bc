//! Words of a line, with their places: the primitives of the grammar of statements and packets.

use std::fmt::Display;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::fault::{Fault, What};
use super::field::{Slot, Value};

/// A word, and its place in the line, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    start: usize,
    pub(crate) text: &'a str,
}

/// Kinds of values that fields may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Fixed values.
    Fixed,
    /// Variables, values that count up and `*`, too.
    Patterns,
}

/// Words of a line that are still to be read.
pub(crate) struct Words<'a> {
    rest: Peekable<IntoIter<Word<'a>>>,
    /// The word that an error is about: the one read last, or the place of the one that is missing.
    pub(crate) at: Word<'a>,
    /// The value of `length`, which only shows to be wrong once the headers are known.
    pub(crate) length: Word<'a>,
    end: usize,
    pub(crate) values: Values,
}

impl<'a> Words<'a> {
    /// Returns the words of a line, up to a comment. A text in quotes is one word.
    pub(crate) fn of(line: &'a str, values: Values) -> Words<'a> {
        let mut words = Vec::new();
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let start = line.len() - rest.len();
            let (word, behind) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let (text, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
                    (Word { start: start + 1, text }, behind)
                }
                None => {
                    let (text, behind) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                    (Word { start, text }, behind)
                }
            };
            words.push(word);
            rest = behind.trim_start();
        }
        let end = line.trim_end().len();
        let none = Word { start: 0, text: "" };
        Words { rest: words.into_iter().peekable(), at: none, length: none, end, values }
    }

    /// Returns the next word without reading it; `None` at the end and before `=>`.
    pub(crate) fn peek(&mut self) -> Option<&'a str> {
        self.rest.peek().map(|word| word.text).filter(|word| *word != "=>")
    }

    /// True at the end of the line.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.rest.peek().is_none()
    }

    /// Reads the next word of the packet or line if it is one of `wanted`.
    pub(crate) fn next_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.at = self.rest.next_if(|word| wanted(word.text))?;
        Some(self.at.text)
    }

    /// Reads the next word of the packet or line, if there is one.
    pub(crate) fn more(&mut self) -> Option<&'a str> {
        self.next_if(|word| word != "=>")
    }

    /// Reads the next word of the packet or line.
    pub(crate) fn next(&mut self, wanted: impl Display) -> Result<&'a str, What> {
        self.more().ok_or_else(|| {
            self.at = *self.rest.peek().unwrap_or(&Word { start: self.end, text: "" });
            What::Missing(wanted.to_string())
        })
    }

    /// Reads the next word as a value; `read` returns `None` for a word that is none.
    pub(crate) fn value<T>(
        &mut self,
        wanted: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, What> {
        let word = self.next(wanted)?;
        read(word).ok_or_else(|| What::value(word, wanted))
    }

    /// Reads the next word as bytes in hexadecimal digits, with or without colons between them.
    pub(crate) fn hex(&mut self) -> Result<Vec<u8>, What> {
        self.value("hexadecimal digits, two for each byte", |word| {
            let digits: Vec<u8> = word.bytes().filter(|digit| *digit != b':').collect();
            let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
            let byte = |pair: &[u8]| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?);
            digits.chunks(2).map(byte).collect()
        })
    }

    /// Reads `text`, a word or a part of one, as the value of a field: fixed, a variable `$name`, one that counts up
    /// `1++`, or `*`.
    pub(crate) fn slot(
        &self,
        text: &str,
        wanted: impl Display,
        read: impl Fn(&str) -> Option<Value>,
    ) -> Result<Slot, What> {
        let slot = match (self.values, text.strip_prefix('$'), text.strip_suffix("++")) {
            (Values::Fixed, ..) => read(text).map(Slot::Is),
            _ if text == "*" => Some(Slot::Any),
            (_, Some(name), _) => match name.split_once('+') {
                None => Some(Slot::Variable(name.to_owned())),
                Some((name, by)) => by.parse::<u32>().ok().map(|by| Slot::After(name.to_owned(), by.into())),
            },
            (_, _, Some(first)) => read(first).map(Slot::Counts),
            _ => read(text).map(Slot::Is),
        };
        slot.ok_or_else(|| What::value(text, wanted))
    }

    /// Refuses further words.
    pub(crate) fn end(&mut self) -> Result<(), What> {
        self.next_if(|_| true).map_or(Ok(()), |word| Err(What::unknown(word, [])))
    }

    /// Returns the fault of a line at the word that was read last.
    pub(crate) fn fault(&self, line: usize, what: What) -> Fault {
        let Word { start, text } = self.at;
        Fault { line, at: start..start + text.len().max(1), what }
    }
}
