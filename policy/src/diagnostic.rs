//! What is wrong with a policy, for the operator who has to put it right: what, where, and what to do.
//!
//! A [`Diagnostic`] of severity [`Severity::Error`] makes the policy wrong; a warning does not. It renders with
//! a snippet of the source by `miette`, and as JSON by `serde`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{LabeledSpan, SourceCode};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::source::Source;

mod code;

pub use code::Code;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which kind of thing.
    pub code: Code,
    /// Whether it makes the policy wrong.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// Where; absent for a policy that came from no text.
    pub place: Option<Place>,
    /// Other places that have to do with it.
    pub related: Vec<Related>,
}

/// Whether a diagnostic makes the policy wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It does.
    Error,
    /// It does not, but something in it is without effect or unwise.
    Warning,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    source: Arc<Source>,
    span: Range<usize>,
    line: u32,
    column: u32,
}

/// Another place, and what it has to do with the diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// What is there, in a few words.
    pub label: String,
    /// Where.
    pub place: Place,
}

impl Diagnostic {
    /// An error or a warning, as `code` has it, without hint and place.
    pub fn new(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: code.severity(),
            message: message.into(),
            hint: None,
            place: None,
            related: Vec::new(),
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }

    /// The same with a place, if there is one.
    #[must_use]
    pub fn at(mut self, place: Option<Place>) -> Diagnostic {
        self.place = place;
        self
    }

    /// The same with another place, if there is one.
    #[must_use]
    pub fn and(mut self, label: impl Into<String>, place: Option<Place>) -> Diagnostic {
        self.related.extend(place.map(|place| Related { label: label.into(), place }));
        self
    }

    /// Whether it makes the policy wrong.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The line it is on, from 1.
    pub fn line(&self) -> Option<u32> {
        self.place.as_ref().map(Place::line)
    }
}

impl Place {
    /// The bytes `span` of `source`.
    pub fn new(source: Arc<Source>, span: Range<usize>) -> Place {
        let (line, column) = (source.line(span.start), source.column(span.start));
        Place { source, span, line, column }
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        self.source.name()
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The column, from 1, in characters.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// The bytes of the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// `file:line:column`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file(), self.line, self.column)
    }
}

/// The message alone, as `miette` wants it.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
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
        let here = LabeledSpan::new_primary_with_span(Some("here".to_owned()), place.span());
        let others = self
            .related
            .iter()
            .filter(|related| Arc::ptr_eq(&related.place.source, &place.source))
            .map(|related| LabeledSpan::new_with_span(Some(related.label.clone()), related.place.span()));
        Some(Box::new(std::iter::once(here).chain(others)))
    }
}

/// The text that the place is in, under its name.
impl SourceCode for Place {
    fn read_span<'a>(
        &'a self,
        span: &miette::SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let found = self.source.text().read_span(span, lines_before, lines_after)?;
        Ok(Box::new(miette::MietteSpanContents::new_named(
            self.file().to_owned(),
            found.data(),
            *found.span(),
            found.line(),
            found.column(),
            found.line_count(),
        )))
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.place.as_ref();
        let mut object = serializer.serialize_struct("Diagnostic", 8)?;
        object.serialize_field("code", self.code.name())?;
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
