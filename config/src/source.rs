//! Text of a file with its line index, for diagnostics.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use crate::secret;

/// A named text. `Debug` tells its length only: secrets may be in it.
#[derive(Clone, Default)]
pub struct Source {
    name: String,
    text: String,
    /// Offset of each line, in bytes.
    starts: Vec<usize>,
    /// Keys of the file whose values are secrets.
    secrets: &'static [&'static str],
    /// The text with the secrets masked, once it has been asked for.
    shown: OnceLock<String>,
}

impl Source {
    /// Returns the source `text` of the file `name`.
    pub fn new(name: &str, text: &str) -> Source {
        let after_break = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(after_break).collect();
        Source { name: name.to_owned(), text: text.to_owned(), starts, ..Source::default() }
    }

    /// The same, where the values of these keys of the file are secrets, in hexadecimal digits: no diagnostic shows them.
    #[must_use]
    pub fn with_secrets(self, secrets: &'static [&'static str]) -> Source {
        Source { secrets, ..self }
    }

    /// Name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as it may be shown: secrets are masked, byte by byte, so that all else stays where it is.
    pub(crate) fn shown(&self) -> &str {
        match self.secrets {
            [] => &self.text,
            keys => self.shown.get_or_init(|| secret::masked(&self.text, keys)),
        }
    }

    /// Line of the byte at `at`, from 1.
    pub fn line(&self, at: usize) -> u32 {
        let line = self.starts.partition_point(|start| *start <= at).max(1);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    /// Column of the byte at `at`, from 1, in characters.
    pub fn column(&self, at: usize) -> u32 {
        let start = self.starts.get(self.line(at) as usize - 1).copied().unwrap_or(0);
        let before = self.text.get(start..at).map_or(0, |before| before.chars().count());
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    /// Range of the bytes of line `line`, counted from 1, without its line break.
    pub fn span_of_line(&self, line: u32) -> Option<Range<usize>> {
        let index = (line as usize).checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(start..end)?;
        Some(start..start + line.trim_end_matches('\r').len())
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        (&self.name, &self.text, self.secrets) == (&other.name, &other.text, other.secrets)
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({}, {} bytes)", self.name, self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let source = Source::new("p.toml", "a\nüber x\n\nz");
        assert_eq!((source.line(0), source.column(0)), (1, 1));
        let x = source.text().find('x').unwrap();
        assert_eq!((source.line(x), source.column(x)), (2, 6));
        let z = source.text().len() - 1;
        assert_eq!((source.line(z), source.column(z)), (4, 1));
        assert_eq!(source.line(source.text().len()), 4);
    }

    #[test]
    fn spans_of_lines_leave_out_the_break() {
        let source = Source::new("p.toml", "ab\r\ncd\n");
        assert_eq!(source.span_of_line(1), Some(0..2));
        assert_eq!(source.span_of_line(2), Some(4..6));
        assert_eq!(source.span_of_line(3), Some(7..7));
        assert_eq!(source.span_of_line(4), None);
        assert_eq!(source.span_of_line(0), None);
    }
}
