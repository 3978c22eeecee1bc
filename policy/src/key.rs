//! Keys of the policy file: the list of each table's, for reading and printing alike.
//!
//! A function lists the keys of one table, each with its form and its place in the model. [`Keys`] says whether the table is
//! read or printed. A new key is one line in the function of its table, at the place where it is to be printed.

use std::sync::Arc;

use config::{Entry, Sink, Source, tables};
use toml::de::DeTable;

use crate::diagnostic::Code;
use crate::print::Printer;
use crate::value::Form;

mod check;
mod class;
mod dynamic_set;
mod gateway;
mod interface;
mod limit;
mod nat;
mod policy;
mod port_mapping;
mod ppp;
mod queue;
mod route;
mod rule;
mod shape;
mod tunnel;
mod wan;

pub(crate) use class::{class, meter};
pub(crate) use limit::times;
pub(crate) use policy::policy;
pub(crate) use queue::queue;

pub(crate) type Table<'t> = config::Table<'t, 't, 't, Code>;

/// Use of the keys of a table.
pub(crate) enum Keys<'k, 't> {
    /// They are read: the values of the model are set.
    Read(&'k mut Table<'t>),
    /// They are printed, except for values that a policy without the key has, too.
    Print(&'k mut Printer),
}

impl Keys<'_, '_> {
    /// A value, with the type's default where the key is absent.
    fn key<T: Default + PartialEq>(&mut self, key: &'static str, form: impl Form<T>, value: &mut T) {
        self.key_or(key, form, value, T::default());
    }

    /// A value, with a default of its own.
    fn key_or<T: PartialEq>(&mut self, key: &'static str, form: impl Form<T>, value: &mut T, default: T) {
        match self {
            Keys::Read(table) => *value = table.take(key, |found| form.read(found)).unwrap_or(default),
            Keys::Print(_) if *value == default => {}
            Keys::Print(out) => out.line(key, &form.print(value)),
        }
    }

    /// A value or none.
    fn optional<T>(&mut self, key: &'static str, form: impl Form<T>, value: &mut Option<T>) {
        match self {
            Keys::Read(table) => *value = table.take(key, |found| form.read(found)),
            Keys::Print(out) => {
                value.iter().for_each(|value| out.line(key, &form.print(value)));
            }
        }
    }

    /// A value that must be there; `example` is one, for the diagnostic. Returns false, and leaves the value as it was, if
    /// it could not be read.
    fn required<T>(&mut self, key: &'static str, example: &str, form: impl Form<T>, value: &mut T) -> bool {
        match self {
            Keys::Read(table) => match table.require(key, example, |found| form.read(found)) {
                Some(found) => *value = found,
                None => return false,
            },
            Keys::Print(out) => out.line(key, &form.print(value)),
        }
        true
    }

    /// Values: one, or a list that is not empty; none where the key is absent.
    fn list<T: PartialEq>(&mut self, key: &'static str, form: impl Form<T>, values: &mut Vec<T>) {
        self.list_or(key, form, values, Vec::new());
    }

    /// Values, with a default of their own: one, or a list that is not empty.
    fn list_or<T: PartialEq>(
        &mut self,
        key: &'static str,
        form: impl Form<T>,
        values: &mut Vec<T>,
        default: Vec<T>,
    ) {
        match self {
            Keys::Read(table) => {
                *values = table.list(key, |found| form.read(found));
                if values.is_empty() {
                    *values = default;
                }
            }
            Keys::Print(_) if *values == default => {}
            Keys::Print(out) => match &texts(&form, values)[..] {
                [value] => out.line(key, value),
                values => out.list(key, values),
            },
        }
    }

    /// Values: a list that may be empty, and is printed as a list.
    fn items<T>(&mut self, key: &'static str, form: impl Form<T>, values: &mut Vec<T>) {
        match self {
            Keys::Read(table) => *values = table.items(key, |found| form.read(found)),
            Keys::Print(_) if values.is_empty() => {}
            Keys::Print(out) => out.list(key, &texts(&form, values)),
        }
    }

    /// Values that must be there, and are printed as a list.
    fn required_list<T>(
        &mut self,
        key: &'static str,
        example: &str,
        form: impl Form<T>,
        values: &mut Vec<T>,
    ) -> bool {
        match self {
            Keys::Read(table) => {
                let _ = table.require(key, example, |_| Ok(()));
                *values = table.list(key, |found| form.read(found));
            }
            Keys::Print(out) => out.list(key, &texts(&form, values)),
        }
        !values.is_empty()
    }

    /// Values or none: a list that may be empty, and is printed as a list.
    fn optional_list<T>(&mut self, key: &'static str, form: impl Form<T>, values: &mut Option<Vec<T>>) {
        match self {
            Keys::Read(table) => {
                let found = table.items(key, |found| form.read(found));
                *values = table.has(key).then_some(found);
            }
            Keys::Print(out) => {
                values.iter().for_each(|values| out.list(key, &texts(&form, values)));
            }
        }
    }

    /// A table, whose header is `header`, with the keys of `keys_of`. Returns its positions, if it is there.
    fn table(&mut self, header: &'static str, keys_of: impl FnOnce(&mut Keys<'_, '_>)) -> Option<Entry> {
        match self {
            Keys::Read(outer) => {
                let path = header.trim_matches(['[', ']']);
                let found = outer.raw(path.rsplit('.').next().unwrap_or(path))?;
                let mut table = Table::of(outer.sink(), found, header)?;
                keys_of(&mut Keys::Read(&mut table));
                Some(table.finish())
            }
            Keys::Print(out) => {
                out.header(header);
                keys_of(&mut Keys::Print(out));
                None
            }
        }
    }

    /// Adds the positions of a table within this one to its own.
    fn absorb(&mut self, inner: Option<Entry>) {
        if let (Keys::Read(table), Some(inner)) = (self, inner) {
            table.absorb(inner);
        }
    }

    /// A list of tables; `new` is an item before it is read, `what` its name in messages. Returns the items' positions,
    /// none of an item that is left out because `keys_of` returned false.
    fn tables<T: Clone>(
        &mut self,
        key: &'static str,
        what: &'static str,
        items: &mut Vec<T>,
        new: &T,
        keys_of: impl Fn(&mut Keys<'_, '_>, &mut T) -> bool,
    ) -> Vec<Option<Entry>> {
        match self {
            Keys::Read(outer) => {
                let read = |mut table: Table<'_>| {
                    let mut item = new.clone();
                    let is_whole = keys_of(&mut Keys::Read(&mut table), &mut item);
                    items.extend(is_whole.then_some(item));
                    Some(table.finish()).filter(|_| is_whole)
                };
                tables(outer, key, what).into_iter().map(read).collect()
            }
            Keys::Print(out) => {
                for item in items {
                    out.header(&format!("[[{key}]]"));
                    keys_of(&mut Keys::Print(out), item);
                }
                Vec::new()
            }
        }
    }
}

/// Returns the keys that `keys_of` lists: those that it asks of an empty table.
fn names(keys_of: impl FnOnce(&mut Keys<'_, '_>)) -> Vec<&'static str> {
    let (sink, empty) = (Sink::new(&Arc::new(Source::new("", ""))), DeTable::new());
    let mut table = Table::new(&sink, &empty, 0..0, "");
    keys_of(&mut Keys::Read(&mut table));
    table.known().to_vec()
}

fn texts<T>(form: &impl Form<T>, values: &[T]) -> Vec<String> {
    values.iter().map(|value| form.print(value)).collect()
}

#[cfg(test)]
mod tests;
