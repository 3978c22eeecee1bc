//! Account of the objects of a source: what became of each.

use std::collections::BTreeSet;

use super::source::{Object, Source, Subject};
use crate::import::note::{Note, NoteKind, Why};
use crate::import::{Count, Import, Untranslated};

/// The objects, and their fates.
pub(super) struct Ledger {
    pub(super) objects: Vec<Object>,
    fates: Vec<Fate>,
    missing: BTreeSet<(usize, Why)>,
    notes: BTreeSet<Note>,
    strange: Vec<Untranslated>,
}

/// Fate of an object, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nobody has looked at the object.
    Open,
    Implied,
    Translated,
}

impl Ledger {
    pub(super) fn new(source: Source) -> Ledger {
        let fates = vec![Fate::Open; source.objects.len()];
        Ledger {
            objects: source.objects,
            fates,
            missing: BTreeSet::new(),
            notes: BTreeSet::new(),
            strange: source.strange,
        }
    }

    /// Records that an object is in the policy.
    pub(super) fn translated(&mut self, index: usize) {
        self.fates[index] = Fate::Translated;
    }

    /// Records that an object needs no counterpart, unless it has one.
    pub(super) fn implied(&mut self, index: usize) {
        if self.fates[index] == Fate::Open {
            self.fates[index] = Fate::Implied;
        }
    }

    /// Records that an object, or a part of it, is missing in the policy.
    pub(super) fn miss(&mut self, index: usize, why: Why) {
        self.missing.insert((index, why));
    }

    /// True if any part of an object is missing.
    pub(super) fn is_missing(&self, index: usize) -> bool {
        self.missing.range((index, Why::Syntax)..).next().is_some_and(|(of, _)| *of == index)
    }

    pub(super) fn note(&mut self, index: Option<usize>, kind: NoteKind) {
        let origin = index.map(|index| self.objects[index].origin);
        self.notes.insert(Note { origin, kind });
    }

    /// Closes the account. An object that nobody has looked at is missing: none goes in silence.
    pub(super) fn close(mut self, import: &mut Import) {
        for index in 0..self.objects.len() {
            if self.fates[index] == Fate::Open && !self.is_missing(index) {
                let object = &self.objects[index];
                let what = match object.subject {
                    Subject::Qdisc => "qdisc",
                    Subject::Class => "class",
                    Subject::Filter => "filter",
                };
                self.miss(index, Why::Feature(format!("{what} {}", object.kind)));
            }
        }
        let mut count = Count { rules: self.objects.len() + self.strange.len(), ..Count::default() };
        for (index, fate) in self.fates.iter().enumerate() {
            match fate {
                _ if self.is_missing(index) => count.untranslated += 1,
                Fate::Translated => count.translated += 1,
                _ => count.implied += 1,
            }
        }
        count.untranslated += self.strange.len();
        import.count = count;
        import.untranslated = self.strange;
        import.untranslated.extend(self.missing.into_iter().map(|(index, why)| {
            let object = &self.objects[index];
            Untranslated { origin: object.origin, text: object.text.clone(), why, before: None }
        }));
        import.untranslated.sort_by_key(|untranslated| untranslated.origin);
        if count.untranslated > 0 {
            self.notes
                .insert(Note { origin: None, kind: NoteKind::NotEquivalent { missing: count.untranslated } });
        }
        import.notes = self.notes.into_iter().collect();
    }
}
