//! Dynamic sets.

use config::{Entry, section};

use super::{Keys, Table};
use crate::model::{DynamicSet, SetSource};
use crate::value::time::DURATION;
use crate::value::{NUMBER32, STRING, key};

/// Keys of `[dynamic-set.NAME]`.
pub(super) fn dynamic_set(keys: &mut Keys<'_, '_>, set: &mut DynamicSet) {
    keys.key_or("size", NUMBER32, &mut set.size, DynamicSet::SIZE);
    keys.optional("timeout", DURATION, &mut set.timeout);
    let (mut file, mut url, mut every) = match &set.source {
        SetSource::Rules => (None, None, None),
        SetSource::File(file) => (Some(file.clone()), None, None),
        SetSource::Url { url, refresh } => {
            (None, Some(url.clone()), Some(*refresh).filter(|every| *every != DynamicSet::REFRESH))
        }
    };
    keys.optional("file", STRING, &mut file);
    if file.is_some() {
        keys.misplaced(&["url", "refresh"], "the set is filled from a file already: leave one of them out");
    } else {
        keys.optional("url", STRING, &mut url);
    }
    if url.is_some() {
        keys.optional("refresh", DURATION, &mut every);
    } else if file.is_none() {
        keys.misplaced(&["refresh"], "only a set that is filled from a URL has it: add `url`");
    }
    set.source = match (file, url) {
        (Some(file), _) => SetSource::File(file),
        (None, Some(url)) => SetSource::Url { url, refresh: every.unwrap_or(DynamicSet::REFRESH) },
        (None, None) => SetSource::Rules,
    };
}

/// `[dynamic-set]`: the tables of all dynamic sets.
pub(super) fn dynamic_sets(keys: &mut Keys<'_, '_>, sets: &mut Vec<DynamicSet>) -> Vec<Option<Entry>> {
    match keys {
        Keys::Read(top) => section(top, "dynamic-set")
            .into_iter()
            .map(|(name, value)| {
                let mut read = DynamicSet::new(name.get_ref());
                let entry = match Table::of(top.sink(), value, "a dynamic set") {
                    Some(mut table) => {
                        dynamic_set(&mut Keys::Read(&mut table), &mut read);
                        table.finish()
                    }
                    None => Entry { broken: true, ..Entry::default() },
                };
                sets.push(read);
                Some(Entry { span: name.span(), ..entry })
            })
            .collect(),
        Keys::Print(out) => {
            for set in sets {
                // A set without keys is printed, too.
                out.open(&format!("[dynamic-set.{}]", key(&set.name)));
                dynamic_set(&mut Keys::Print(out), set);
            }
            Vec::new()
        }
    }
}
