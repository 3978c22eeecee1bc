//! Reader of TOML tables, key by key, gathering errors and unknown keys.
//!
//! [`document`] comes first, then a [`Table`] for each table. Complaints have the codes of the file's own [`Kind`].

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use crate::code::{Code, Kind};
use crate::diagnostic::{Diagnostic, Place};
use crate::source::Source;
use crate::word;

/// Most diagnostics kept of one file; a last one gives the number left out.
const MOST: usize = 1_000;

/// Longest text, in bytes, of which all syntax errors are listed; of a longer one only the first: a text of another kind
/// would yield one in every line.
const MOST_BYTES_FOR_ALL_ERRORS: usize = 1 << 20;

/// Parses the text of `source` and reads its root table with `read`. `None`, with errors in `sink`, if the text is not TOML.
pub fn document<T, C: Kind>(
    source: &Source,
    sink: &Sink<C>,
    read: impl FnOnce(&DeTable<'_>) -> T,
) -> Option<T> {
    let (table, errors) = toml_table(source.text());
    let is_toml = errors.is_empty();
    for error in errors {
        let complaint = Complaint::new(Code::Syntax, format!("not TOML: {}", error.message()))
            .hint("strings stand in double quotes, lists in square brackets, one key on a line");
        sink.report(complaint, error.span().unwrap_or(0..0));
    }
    is_toml.then(|| read(table.get_ref()))
}

fn toml_table(text: &str) -> (Spanned<DeTable<'_>>, Vec<Error>) {
    if text.len() <= MOST_BYTES_FOR_ALL_ERRORS {
        return DeTable::parse_recoverable(text);
    }
    match DeTable::parse(text) {
        Ok(table) => (table, Vec::new()),
        Err(error) => (Spanned::new(0..0, DeTable::new()), vec![error]),
    }
}

/// Error in one value, before its position is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint<C = Code> {
    /// Code of the diagnostic.
    pub code: C,
    /// Message: one sentence without a full stop.
    pub message: String,
    /// Hint: the remedy.
    pub hint: Option<String>,
}

impl<C: Kind> Complaint<C> {
    /// Returns a complaint without hint.
    pub fn new(code: impl Into<C>, message: impl Into<String>) -> Complaint<C> {
        Complaint { code: code.into(), message: message.into(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Complaint<C> {
        Complaint { hint: Some(hint.into()), ..self }
    }
}

/// Collector of the diagnostics of one file.
#[derive(Debug)]
pub struct Sink<C = Code> {
    source: Arc<Source>,
    diagnostics: RefCell<Vec<Diagnostic<C>>>,
    left_out: std::cell::Cell<usize>,
}

impl<C: Kind> Sink<C> {
    /// Returns an empty collector for `source`.
    pub fn new(source: &Arc<Source>) -> Sink<C> {
        Sink { source: Arc::clone(source), diagnostics: RefCell::default(), left_out: Default::default() }
    }

    /// Adds a complaint about the bytes `span`.
    pub fn report(&self, complaint: Complaint<C>, span: Range<usize>) {
        let diagnostic = Diagnostic::new(complaint.code, complaint.message);
        let hinted = match complaint.hint {
            Some(hint) => diagnostic.hint(hint),
            None => diagnostic,
        };
        self.push(hinted.at(Some(Place::new(Arc::clone(&self.source), span))));
    }

    /// Adds a diagnostic; counts it only, past the bound.
    pub fn push(&self, diagnostic: Diagnostic<C>) {
        let mut diagnostics = self.diagnostics.borrow_mut();
        if diagnostics.len() < MOST {
            diagnostics.push(diagnostic);
        } else {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    /// Returns the diagnostics in order of arrival, up to a bound; the last gives the number left out.
    pub fn into_diagnostics(self) -> Vec<Diagnostic<C>> {
        let mut diagnostics = self.diagnostics.into_inner();
        if self.left_out.get() > 0 {
            let message = format!("{} more diagnostics are not listed", self.left_out.get());
            diagnostics
                .push(Diagnostic::new(Code::TooManyDiagnostics, message).hint("put these right first"));
        }
        diagnostics
    }
}

/// Positions of one item of the file (a rule, say) and of its values, in bytes of the text.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Position of the item: of its name if it has one.
    pub span: Range<usize>,
    /// Positions of the keys' values, and of the elements of lists.
    pub parts: Vec<Part>,
    /// True if something in the item could not be read, and is left out.
    pub broken: bool,
}

impl Entry {
    /// Returns the position of element `index` of the list at `key`; else that of the whole value, else that of the item.
    pub fn span_of(&self, key: &str, index: Option<usize>) -> Range<usize> {
        let part = |index| self.parts.iter().find(|part| part.key == key && part.item == index);
        part(index).or_else(|| part(None)).map_or(&self.span, |part| &part.span).clone()
    }
}

/// Position of the value of a key, or of one element of that value.
#[derive(Clone, Debug)]
pub struct Part {
    /// The key.
    pub key: &'static str,
    /// Index in the value, if that is a list; none for the whole value.
    pub item: Option<usize>,
    /// Position, in bytes of the text.
    pub span: Range<usize>,
}

/// A table being read.
pub struct Table<'s, 't, 'i, C = Code> {
    sink: &'s Sink<C>,
    table: &'t DeTable<'i>,
    /// Name of the table in messages: "a rule".
    what: &'static str,
    known: Vec<&'static str>,
    entry: Entry,
}

impl<'s, 't, 'i, C: Kind> Table<'s, 't, 'i, C> {
    /// Returns a reader of `table`, at the bytes `span`; messages call the table `what`: "a rule".
    pub fn new(
        sink: &'s Sink<C>,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        what: &'static str,
    ) -> Table<'s, 't, 'i, C> {
        Table {
            sink,
            table,
            what,
            known: Vec::new(),
            entry: Entry { span, parts: Vec::new(), broken: false },
        }
    }

    /// Returns a reader of the table `value`; complains of any other type.
    pub fn of(
        sink: &'s Sink<C>,
        value: &'t Spanned<DeValue<'i>>,
        what: &'static str,
    ) -> Option<Table<'s, 't, 'i, C>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(sink, table, value.span(), what)),
            other => {
                let complaint = wrong_type("a table", other);
                let complaint = complaint.hint(format!("{what} has a header of its own, in square brackets"));
                sink.report(complaint, value.span());
                None
            }
        }
    }

    /// Notes that the table may have `key`, which may be asked for more than once.
    fn know(&mut self, key: &'static str) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    /// Returns the value of `key`, if present.
    pub fn raw(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.know(key);
        let value = self.table.get(key)?;
        self.entry.parts.push(Part { key, item: None, span: value.span() });
        Some(value)
    }

    /// Reads the value of `key` with `read`; `None` if absent or wrong.
    pub fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Option<T> {
        let value = self.raw(key)?;
        self.read(value, read)
    }

    /// Reads the value of `key`; complains if absent.
    pub fn require<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.know(key);
            let message = format!("{} needs the key `{key}`", self.what);
            self.complain(
                Complaint::new(Code::MissingKey, message).hint(format!("for example: {key} = {example}")),
            );
            return None;
        }
        self.take(key, read)
    }

    /// Reads the elements of the list at `key`, or a single value as the only element. Empty if the key is absent; an empty
    /// list is a complaint, for it would match everything.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Vec<T> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        self.list_of(key, value, read)
    }

    /// Reads the elements of `value`, the value of `key`, as `list` does.
    pub fn list_of<T>(
        &mut self,
        key: &'static str,
        value: &'t Spanned<DeValue<'i>>,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Vec<T> {
        if let DeValue::Array(items) = value.get_ref() {
            if items.is_empty() {
                self.broken(
                    Complaint::new(Code::EmptyList, format!("`{key}` is an empty list"))
                        .hint("leave the key out where everything is meant"),
                    value.span(),
                );
            }
        }
        self.items_of(key, value, read)
    }

    /// Reads the elements of the list at `key`, which may be empty.
    pub fn items<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Vec<T> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        self.items_of(key, value, read)
    }

    /// Reads the elements of `value`, the value of `key`, as `items` does.
    pub fn items_of<T>(
        &mut self,
        key: &'static str,
        value: &'t Spanned<DeValue<'i>>,
        mut read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Vec<T> {
        let items = match value.get_ref() {
            DeValue::Array(items) => &items[..],
            _ => std::slice::from_ref(value),
        };
        let mut taken = Vec::with_capacity(items.len());
        for item in items {
            if let Some(value) = self.read(item, &mut read) {
                self.entry.parts.push(Part { key, item: Some(taken.len()), span: item.span() });
                taken.push(value);
            }
        }
        taken
    }

    fn read<T>(
        &mut self,
        value: &Spanned<DeValue<'i>>,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint<C>>,
    ) -> Option<T> {
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(complaint) => {
                self.broken(complaint, value.span());
                None
            }
        }
    }

    /// True if `key` is present.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Complains of `key`, if present, as having no meaning here; `why` is the reason.
    pub fn misplaced(&mut self, key: &'static str, why: &str) {
        self.know(key);
        if let Some((key, _)) = self.table.get_key_value(key) {
            let message = format!("`{}` has no meaning here", key.get_ref());
            self.broken(Complaint::new(Code::MisplacedKey, message).hint(why), key.span());
        }
    }

    /// Complains of the whole table.
    pub fn complain(&mut self, complaint: Complaint<C>) {
        let span = self.entry.span.clone();
        self.broken(complaint, span);
    }

    /// Complains of a part of the table, at the bytes `span`, and marks the table as broken.
    pub fn broken(&mut self, complaint: Complaint<C>, span: Range<usize>) {
        self.entry.broken = true;
        self.sink.report(complaint, span);
    }

    /// Adds the positions of a table within this one to its own, and marks it as broken if that is.
    pub fn absorb(&mut self, inner: Entry) {
        self.note(inner.broken);
        self.entry.parts.extend(inner.parts);
    }

    /// Marks the table as broken if a table within it is.
    pub fn note(&mut self, broken: bool) {
        self.entry.broken |= broken;
    }

    /// Keys that the table may have, as far as they have been asked for.
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Collector of the table's diagnostics.
    pub fn sink(&self) -> &'s Sink<C> {
        self.sink
    }

    /// Returns all keys and values, in the order of the text.
    pub fn in_order(&self) -> Vec<Pair<'t, 'i>> {
        in_order(self.table)
    }

    /// Complains of unknown keys, and returns the positions of the known ones.
    pub fn finish(mut self) -> Entry {
        for (key, _) in self.in_order() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let complaint = Complaint::new(Code::UnknownKey, format!("{} has no key `{name}`", self.what));
            let hint = match word::nearest(name, self.known.iter().copied()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("its keys are: {}", self.known.join(", ")),
            };
            self.broken(complaint.hint(hint), key.span());
        }
        if let Some(name) = self.entry.parts.iter().find(|part| part.key == "name") {
            self.entry.span = name.span.clone();
        }
        self.entry
    }
}

/// A key and its value.
pub type Pair<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

/// Returns the named tables of the section `key`, in the order of the text; complains if the section is no table.
pub fn section<'t, 'i, C: Kind>(top: &mut Table<'_, 't, 'i, C>, key: &'static str) -> Vec<Pair<'t, 'i>> {
    let Some(value) = top.raw(key) else { return Vec::new() };
    match value.get_ref() {
        DeValue::Table(table) => in_order(table),
        other => {
            let complaint = wrong_type("a table", other).hint(match key {
                "interface" => "write [interface.lan], and what belongs to it on lines below".to_owned(),
                _ => format!("write [{key}], and what belongs to it on lines below"),
            });
            top.broken(complaint, value.span());
            Vec::new()
        }
    }
}

/// Returns readers of the tables of the list `[[key]]`.
pub fn tables<'s, 't, 'i, C: Kind>(
    top: &mut Table<'s, 't, 'i, C>,
    key: &'static str,
    what: &'static str,
) -> Vec<Table<'s, 't, 'i, C>> {
    let Some(value) = top.raw(key) else { return Vec::new() };
    let sink = top.sink();
    match value.get_ref() {
        DeValue::Array(items) => items.iter().filter_map(|item| Table::of(sink, item, what)).collect(),
        other => {
            let complaint = wrong_type("a list of tables", other);
            top.broken(complaint.hint(format!("write [[{key}]], with two brackets")), value.span());
            Vec::new()
        }
    }
}

/// Returns all keys and values of a table, in the order of the text.
pub fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Pair<'t, 'i>> {
    let mut pairs: Vec<Pair<'t, 'i>> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
}

/// Returns the complaint about a value of type `found` in the place of `wanted`.
pub fn wrong_type<C: Kind>(wanted: &str, found: &DeValue<'_>) -> Complaint<C> {
    let article = if matches!(found, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
    let hint = match found {
        DeValue::Array(_) => "give one value, without square brackets",
        DeValue::Table(_) => "give a value, without a table",
        DeValue::String(_) if wanted.contains("integer") || wanted.contains("true") => "leave the quotes out",
        _ if wanted.contains("string") => "write it in double quotes",
        _ => return mismatch(wanted, article, found).hint(format!("write {wanted}")),
    };
    mismatch(wanted, article, found).hint(hint)
}

fn mismatch<C: Kind>(wanted: &str, article: &str, found: &DeValue<'_>) -> Complaint<C> {
    Complaint::new(Code::WrongType, format!("expected {wanted}, found {article} {}", found.type_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key may be asked for twice: by its reader, and by who says that it has no meaning there.
    #[test]
    fn each_key_of_a_table_is_listed_once() {
        let source = Arc::new(Source::new("a file", "wibble = 1"));
        let sink: Sink = Sink::new(&source);
        let parsed = DeTable::parse("wibble = 1").unwrap();
        let mut table = Table::new(&sink, parsed.get_ref(), 0..0, "a timer");
        assert!(table.raw("every").is_none());
        table.misplaced("bytes", "there are no references");
        assert!(table.raw("bytes").is_none());
        table.finish();
        let found = sink.into_diagnostics();
        assert_eq!(found[0].hint.as_deref(), Some("its keys are: every, bytes"));
    }
}
