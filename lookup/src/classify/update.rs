//! Insertion and removal of patterns while look-ups go on.
//!
//! An [`Updatable`] search takes patterns in, and lets them go, one by one. Positions stay what they are everywhere: places
//! in the list as it is now. To insert at a position moves those from there on by one, as in a list.
//!
//! Whoever looks up holds a version, which never changes, and takes another between two batches: [`Versions`] makes them.
//! It has two copies and changes them in turn, each once for what the other has seen before (as Left-Right does: Ramalhete
//! and Correia, Brief Announcement: Left-Right - A Concurrency Control Technique with Wait-Free Population Oblivious
//! Reads, 2015), so that look-ups meet no lock, and a change costs as much as there is to change. What the other copy wrote for a change may
//! be copied instead ([`Updatable::follow`]).

use std::any::Any;
use std::sync::Arc;

use self::difference::{Step, steps};
use super::{Bounds, Classifier, Pattern, Position, TooLarge};

mod difference;

/// A search whose patterns can come and go.
pub trait Updatable: Classifier {
    /// Number of patterns.
    fn count(&self) -> usize;

    /// The pattern at a position.
    fn pattern(&self, position: Position) -> Option<&Pattern>;

    /// Keeps within other bounds from now on.
    ///
    /// # Errors
    /// More memory is in use already; the bounds stay as they are.
    fn keep_within(&mut self, bounds: Bounds) -> Result<(), TooLarge>;

    /// Inserts before what is at `position`; at the end, where nothing is.
    ///
    /// # Errors
    /// There is no memory for the pattern within the bounds of the search, which answers as before.
    fn insert(&mut self, position: Position, pattern: &Pattern) -> Result<(), TooLarge>;

    /// Removes what is at `position`, if anything.
    fn remove(&mut self, position: Position);

    /// Makes the edits that have made `newer` of what this one is. Where it finds there what they come to, it need not look for it again.
    ///
    /// # Errors
    /// There is no memory for that within the bounds; some of the edits may be made.
    fn follow(&mut self, newer: &dyn Updatable, edits: &[Edit]) -> Result<(), TooLarge> {
        let _ = newer;
        edits.iter().try_for_each(|edit| edit.apply(self))
    }

    /// Returns itself, where [`Updatable::follow`] is to know the type of `newer`.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Returns an independent copy.
    fn copy(&self) -> Box<dyn Updatable>;

    /// True if its searches have come to take much longer than those of one that is built of the same patterns would.
    fn is_worn(&self) -> bool {
        false
    }

    /// Converts to a classifier that is only searched.
    fn into_classifier(self: Box<Self>) -> Box<dyn Classifier>;
}

/// A change of a list of patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// [`Updatable::insert`].
    Insert(Position, Box<Pattern>),
    /// [`Updatable::remove`].
    Remove(Position),
}

impl Edit {
    pub(super) fn apply(&self, search: &mut (impl Updatable + ?Sized)) -> Result<(), TooLarge> {
        match self {
            Edit::Insert(position, pattern) => search.insert(*position, pattern),
            Edit::Remove(position) => {
                search.remove(*position);
                Ok(())
            }
        }
    }
}

/// The most edits that [`revised`] makes: comparing lists takes as many steps for each pattern.
const MOST_EDITS: usize = 256;

/// A search of `after`, made from one of `before`, of which few have to come or go. `None` where that one cannot be changed, where
/// too many would have to, where it does not keep within `bounds`, or where its searches would take much longer than those of
/// one that is built: then it has to be.
pub fn revised(
    search: &dyn Classifier,
    before: &[Pattern],
    after: &[Pattern],
    bounds: Bounds,
) -> Option<Box<dyn Classifier>> {
    let steps = steps(before, after, MOST_EDITS)?;
    let mut copy = search.to_updatable(before)?;
    copy.keep_within(bounds).ok()?;
    let mut position = 0;
    for step in steps {
        match step {
            Step::Keep => position += 1,
            Step::Remove => copy.remove(position),
            Step::Insert => {
                copy.insert(position, after.get(position as usize)?).ok()?;
                position += 1;
            }
        }
    }
    (!copy.is_worn()).then(|| copy.into_classifier())
}

/// Makes versions of a search, each from the one before.
pub struct Versions {
    current: Arc<dyn Updatable>,
    /// The version before, until nobody holds it and it can be changed.
    before: Option<Arc<dyn Updatable>>,
    /// Edits from that version to the current one.
    behind: Vec<Edit>,
}

impl Versions {
    /// Begins with this one.
    pub fn new(search: Box<dyn Updatable>) -> Versions {
        Versions { current: Arc::from(search), before: None, behind: Vec::new() }
    }

    /// Returns the current version.
    pub fn current(&self) -> Arc<dyn Updatable> {
        self.current.clone()
    }

    /// Makes the next version. Where somebody still holds the version before the current one, all is copied.
    ///
    /// # Errors
    /// There is no memory for the next version; the current one stays.
    pub fn next(&mut self, edits: Vec<Edit>) -> Result<Arc<dyn Updatable>, TooLarge> {
        let behind = std::mem::take(&mut self.behind);
        let mut next = match self.before.take() {
            Some(mut before) => match Arc::get_mut(&mut before) {
                Some(search) => {
                    search.follow(&*self.current, &behind)?;
                    before
                }
                None => Arc::from(self.current.copy()),
            },
            None => Arc::from(self.current.copy()),
        };
        // Nobody else has it yet.
        if let Some(search) = Arc::get_mut(&mut next) {
            edits.iter().try_for_each(|edit| edit.apply(search))?;
        }
        self.before = Some(std::mem::replace(&mut self.current, next));
        self.behind = edits;
        Ok(self.current())
    }
}

#[cfg(test)]
mod tests;
