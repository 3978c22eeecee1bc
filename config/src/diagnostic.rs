//! Diagnostics of a file for its author: error, position and hint.
//!
//! A [`Diagnostic`] of severity [`Severity::Error`] makes the file wrong; a warning or a note does not. A diagnostic renders
//! with a snippet of the source by `miette`, and as JSON by `serde`. Each sort of file has codes of its own: see [`Kind`].

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{LabeledSpan, SourceCode};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::code::{Code, Kind};
use crate::secret;
use crate::source::Source;

/// An error, a warning or a note.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Diagnostic<C = Code> {
    /// Code of the diagnostic.
    pub code: C,
    /// Severity: an error makes the file wrong.
    pub severity: Severity,
    /// Message: one sentence without a full stop. A long run of hexadecimal digits is masked, as it may be a key.
    pub message: String,
    /// Hint: the remedy; the same.
    pub hint: Option<String>,
    /// Position in the text; none for a file that came from no text.
    pub place: Option<Place>,
    /// Other positions that the diagnostic concerns.
    pub related: Vec<Related>,
}

/// Severity of a diagnostic: an error makes the file wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file is wrong.
    Error,
    /// The file is valid, but something in it is without effect or unwise.
    Warning,
    /// The file is valid, and may well be meant so.
    Note,
}

/// Position of a stretch of text: source, bytes, line and column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    source: Arc<Source>,
    span: Range<usize>,
    line: u32,
    column: u32,
}

/// Another position, and its relation to the diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Label of the position, in a few words.
    pub label: String,
    /// Position in the text.
    pub place: Place,
}

impl<C: Kind> Diagnostic<C> {
    /// Returns an error or a warning, by the severity of `code`, without hint and position.
    pub fn new(code: impl Into<C>, message: impl Into<String>) -> Diagnostic<C> {
        let code = code.into();
        Diagnostic {
            code,
            severity: code.severity(),
            message: secret::masked_message(message.into()),
            hint: None,
            place: None,
            related: Vec::new(),
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic<C> {
        self.hint = Some(secret::masked_message(hint.into()));
        self
    }

    /// Sets the position, if there is one.
    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Diagnostic<C> {
        self.place = place;
        self
    }

    /// Adds a related position, if there is one.
    #[must_use]
    pub fn and(mut self, label: impl Into<String>, place: Option<Place>) -> Diagnostic<C> {
        self.related.extend(place.map(|place| Related { label: label.into(), place }));
        self
    }

    /// True if the diagnostic makes the file wrong.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Line of the position, from 1.
    pub fn line(&self) -> Option<u32> {
        self.place.as_ref().map(Place::line)
    }

    /// Sorts diagnostics by position in the text; at one position errors first.
    pub fn sort(diagnostics: &mut [Diagnostic<C>]) {
        diagnostics.sort_by_key(|diagnostic| {
            let start = diagnostic.place.as_ref().map_or(usize::MAX, |place| place.span.start);
            (start, diagnostic.severity, diagnostic.code)
        });
    }
}

impl Place {
    /// Position of the bytes `span` of `source`.
    pub fn new(source: Arc<Source>, span: Range<usize>) -> Place {
        let (line, column) = (source.line(span.start), source.column(span.start));
        Place { source, span, line, column }
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        self.source.name()
    }

    /// Line of the first byte, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Column of the first byte, from 1, in characters.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// Range of the bytes in the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        })
    }
}

/// Writes `file:line:column`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file(), self.line, self.column)
    }
}

/// Renders the message alone, as `miette` wants it.
impl<C: Kind> miette::Diagnostic for Diagnostic<C> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Note => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.hint.as_ref().map(|hint| Box::new(hint) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| place as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.place.as_ref()?;
        let here = LabeledSpan::new_primary_with_span(Some("here".to_owned()), place.shown());
        let others =
            self.related.iter().filter(|related| Arc::ptr_eq(&related.place.source, &place.source)).map(
                |related| LabeledSpan::new_with_span(Some(related.label.clone()), related.place.shown()),
            );
        Some(Box::new(std::iter::once(here).chain(others)))
    }
}

/// Text around the position, under the name of its file.
impl SourceCode for Place {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let text = self.source.shown();
        let found = text.read_span(span, lines_before, lines_after)?;
        let mut shown = found.span().offset()..found.span().offset() + found.data().len();
        if found.data().split(|byte| *byte == b'\n').any(|line| line.len() > LONG_LINE) {
            // The drawing takes a width of 65,535 columns at the most, and nobody reads a line of that length.
            let before = if lines_before == 0 { 0 } else { BESIDE };
            let own = self.source.line(span.offset());
            let start = self.source.span_of_line(own).map_or(span.offset(), |own| own.start);
            shown.start = boundary(text, span.offset().saturating_sub(before)).max(start);
            // To the end of a line, or into it.
            let end = boundary(text, span.offset() + span.len() + BESIDE);
            let rest = text.get(span.offset() + span.len()..end).unwrap_or_default();
            shown.end = rest.find('\n').map_or(end, |at| span.offset() + span.len() + at);
        }
        // In characters, as elsewhere: miette's own count is of bytes.
        let (line, column) =
            (self.source.line(shown.start) as usize - 1, self.source.column(shown.start) as usize - 1);
        let data = text.get(shown.clone()).unwrap_or_default().as_bytes();
        // Of a text, miette counts the lines from its beginning on, and would show all between two places.
        let lines = data.iter().filter(|byte| **byte == b'\n').count();
        Ok(Box::new(miette::MietteSpanContents::new_named(
            self.file().to_owned(),
            data,
            shown.into(),
            line,
            column,
            lines,
        )))
    }
}

/// Longest line shown as a whole, in bytes.
const LONG_LINE: usize = 1000;

/// Context shown before and behind a position in a longer line, in bytes.
const BESIDE: usize = 60;

/// Most bytes marked of one position.
const MOST_MARKED: usize = 200;

impl Place {
    /// Range of the bytes marked in the snippet: not all of a long position.
    fn shown(&self) -> Range<usize> {
        let end = self.span.end.min(boundary(self.source.text(), self.span.start + MOST_MARKED));
        self.span.start..end.max(self.span.start)
    }
}

/// Last character boundary at or before byte `at`.
fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

impl<C: Kind> Serialize for Diagnostic<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.place.as_ref();
        let mut object = serializer.serialize_struct("Diagnostic", 8)?;
        object.serialize_field("code", &self.code.to_string())?;
        object.serialize_field("severity", &self.severity.to_string())?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("hint", &self.hint)?;
        object.serialize_field("file", &place.map(Place::file))?;
        object.serialize_field("line", &place.map(Place::line))?;
        object.serialize_field("column", &place.map(Place::column))?;
        object.serialize_field("related", &self.related)?;
        object.end()
    }
}

impl Serialize for Related {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Related", 4)?;
        object.serialize_field("label", &self.label)?;
        object.serialize_field("file", self.place.file())?;
        object.serialize_field("line", &self.place.line())?;
        object.serialize_field("column", &self.place.column())?;
        object.end()
    }
}

#[cfg(test)]
mod tests;
