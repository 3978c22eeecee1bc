//! Reading a TOML table key by key, gathering what is wrong, and noticing the keys that nobody asked for.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Code, Diagnostic, Place};
use crate::lines::{Entry, Part};
use crate::source::Source;
use crate::word;

/// The most diagnostics that are kept of one file; a last one says how many more there were.
const MOST: usize = 1_000;

/// What is wrong with one value, before its place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Complaint {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Complaint {
        Complaint { code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Complaint {
        Complaint { hint: Some(hint.into()), ..self }
    }
}

/// Where diagnostics go.
#[derive(Debug)]
pub(super) struct Sink {
    source: Arc<Source>,
    diagnostics: RefCell<Vec<Diagnostic>>,
    left_out: std::cell::Cell<usize>,
}

impl Sink {
    pub(super) fn new(source: &Arc<Source>) -> Sink {
        Sink { source: Arc::clone(source), diagnostics: RefCell::default(), left_out: Default::default() }
    }

    pub(super) fn report(&self, complaint: Complaint, span: Range<usize>) {
        self.push(
            Diagnostic { hint: complaint.hint, ..Diagnostic::new(complaint.code, complaint.message) }
                .at(Some(Place::new(Arc::clone(&self.source), span))),
        );
    }

    pub(super) fn push(&self, diagnostic: Diagnostic) {
        let mut diagnostics = self.diagnostics.borrow_mut();
        if diagnostics.len() < MOST {
            diagnostics.push(diagnostic);
        } else {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.diagnostics.into_inner();
        if self.left_out.get() > 0 {
            let message = format!("{} more diagnostics are not listed", self.left_out.get());
            diagnostics
                .push(Diagnostic::new(Code::TooManyDiagnostics, message).hint("put these right first"));
        }
        diagnostics
    }
}

/// A table that is being read.
pub(super) struct Table<'s, 't, 'i> {
    sink: &'s Sink,
    table: &'t DeTable<'i>,
    /// What it is, for messages: "a rule".
    what: &'static str,
    known: Vec<&'static str>,
    entry: Entry,
}

impl<'s, 't, 'i> Table<'s, 't, 'i> {
    pub(super) fn new(
        sink: &'s Sink,
        table: &'t DeTable<'i>,
        span: Range<usize>,
        what: &'static str,
    ) -> Table<'s, 't, 'i> {
        Table {
            sink,
            table,
            what,
            known: Vec::new(),
            entry: Entry { span, parts: Vec::new(), broken: false },
        }
    }

    /// The table that `value` is; a complaint where it is something else.
    pub(super) fn of(
        sink: &'s Sink,
        value: &'t Spanned<DeValue<'i>>,
        what: &'static str,
    ) -> Option<Table<'s, 't, 'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Table::new(sink, table, value.span(), what)),
            other => {
                let complaint = wrong_type("a table", other);
                sink.report(
                    complaint.hint("give it a header of its own, such as [interface.lan]"),
                    value.span(),
                );
                None
            }
        }
    }

    /// The value of `key`, if it is there.
    pub(super) fn raw(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.known.push(key);
        let value = self.table.get(key)?;
        self.entry.parts.push(Part { key, item: None, span: value.span() });
        Some(value)
    }

    /// The value of `key` as `read` understands it; `None` if it is absent or wrong.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint>,
    ) -> Option<T> {
        let value = self.raw(key)?;
        self.read(value, read)
    }

    /// The value of `key`, which has to be there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.known.push(key);
            let message = format!("{} needs the key `{key}`", self.what);
            self.complain(
                Complaint::new(Code::MissingKey, message).hint(format!("for example: {key} = {example}")),
            );
            return None;
        }
        self.take(key, read)
    }

    /// The items of the list that is the value of `key`, or the value itself as the only item. Empty if the
    /// key is absent; a list without items is a complaint, for it would match everything.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint>,
    ) -> Vec<T> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        self.list_of(key, value, read)
    }

    /// The same of a value that was found already.
    pub(super) fn list_of<T>(
        &mut self,
        key: &'static str,
        value: &'t Spanned<DeValue<'i>>,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint>,
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

    /// The same where a list may be empty.
    pub(super) fn items<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint>,
    ) -> Vec<T> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        self.items_of(key, value, read)
    }

    fn items_of<T>(
        &mut self,
        key: &'static str,
        value: &'t Spanned<DeValue<'i>>,
        mut read: impl FnMut(&DeValue<'i>) -> Result<T, Complaint>,
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
        read: impl FnOnce(&DeValue<'i>) -> Result<T, Complaint>,
    ) -> Option<T> {
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(complaint) => {
                self.broken(complaint, value.span());
                None
            }
        }
    }

    /// Whether `key` is written.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Complains of `key`, if it is there, as having no meaning here for the reason given.
    pub(super) fn misplaced(&mut self, key: &'static str, why: &str) {
        self.known.push(key);
        if let Some((key, _)) = self.table.get_key_value(key) {
            let message = format!("`{}` has no meaning here", key.get_ref());
            self.broken(Complaint::new(Code::MisplacedKey, message).hint(why), key.span());
        }
    }

    /// Complains of the table as a whole.
    pub(super) fn complain(&mut self, complaint: Complaint) {
        let span = self.entry.span.clone();
        self.broken(complaint, span);
    }

    /// Complains of something in it.
    pub(super) fn broken(&mut self, complaint: Complaint, span: Range<usize>) {
        self.entry.broken = true;
        self.sink.report(complaint, span);
    }

    pub(super) fn sink(&self) -> &'s Sink {
        self.sink
    }

    /// All keys and values, in the order of the text.
    pub(super) fn in_order(&self) -> Vec<Pair<'t, 'i>> {
        in_order(self.table)
    }

    /// Complains of the keys that nobody asked for, and gives where the others stand.
    pub(super) fn finish(mut self) -> Entry {
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
pub(super) type Pair<'t, 'i> = (&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>);

/// All keys and values of a table, in the order of the text.
pub(super) fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Pair<'t, 'i>> {
    let mut pairs: Vec<Pair<'t, 'i>> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    pairs
}

/// The complaint that `found` is not `wanted`.
pub(super) fn wrong_type(wanted: &str, found: &DeValue<'_>) -> Complaint {
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

fn mismatch(wanted: &str, article: &str, found: &DeValue<'_>) -> Complaint {
    Complaint::new(Code::WrongType, format!("expected {wanted}, found {article} {}", found.type_str()))
}
