//! What a worker remembers, given and taken in between two turns, little by little.

use std::sync::Arc;

use dataplane::Tables;
use dataplane::state::{Cursor, Item, Refused};

use super::{Memory, Worker};
use crate::about::About;

/// A part of what a worker remembers.
pub struct Exported {
    /// What the places in the items are of.
    pub tables: Arc<Tables>,
    /// The items.
    pub items: Vec<Item>,
    /// Where to go on; none if these were the last.
    pub next: Option<Cursor>,
}

/// What came of items that a worker was to take in.
pub enum Imported {
    /// By item.
    Done(Vec<Result<(), Refused>>),
    /// Nothing: their places are of other tables than the worker goes by now, which are these.
    Outdated(Arc<Tables>),
}

impl Worker {
    /// Gives what is in `most` places from a cursor on, all of it or what bears on a packet.
    pub(super) fn export(&self, about: Option<&About>, from: Cursor, most: u32) -> Exported {
        let mut items = Vec::new();
        let now = self.clock.now();
        let next = self.shard.export(&self.tables, now, from, most, |item| {
            if about.is_none_or(|about| about.admits(&item)) {
                items.push(item);
            }
        });
        Exported { tables: self.tables.clone(), items, next }
    }

    /// Takes in items whose places are those of `tables`. What exists already stays as it is.
    pub(super) fn import(&mut self, tables: &Arc<Tables>, items: &[Item]) -> Imported {
        if !Arc::ptr_eq(tables, &self.tables) {
            return Imported::Outdated(self.tables.clone());
        }
        Imported::Done(items.iter().map(|item| self.remember(item)).collect())
    }

    /// Takes in something that was remembered by another, and says whether it did.
    ///
    /// # Errors
    /// [`Refused`]: it is not possible here.
    pub fn remember(&mut self, item: &Item) -> Result<(), Refused> {
        self.shard.import(&self.tables, item, self.clock.now())
    }

    /// Lets go of the ports, and keeps what is remembered.
    pub(super) fn memory(mut self) -> Memory {
        self.finish_log();
        Memory { tables: self.tables, shard: self.shard, now: self.clock.now() }
    }
}
