//! Traffic classes and meters of compiled tables.

use std::sync::Arc;

use lookup::classify::{self, Choice, Header};
use policy::model::{ColourAction, Meter};
use tally::Tally;
use wire::Dscp;

/// The traffic classes. A class is known by its place in the list, counted from 1; 0 is none.
#[derive(Clone)]
pub struct Classes {
    /// The classes.
    pub list: Vec<ClassEntry>,
    /// Meters, each of one class or more.
    pub meters: Vec<Meter>,
    /// Finds the first class whose conditions hold.
    pub search: Arc<Choice>,
    /// For each code point, the number of its kind: no class tells two of a kind apart.
    pub(crate) kinds: [u8; 64],
}

/// A traffic class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassEntry {
    /// Name.
    pub name: String,
    /// Place of its meter.
    pub meter: Option<u16>,
    /// Code point for its packets.
    pub mark: Option<Dscp>,
}

impl Classes {
    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if packets of some class are given code points.
    pub(crate) fn has_marks(&self) -> bool {
        let marks = |action: &ColourAction| matches!(action, ColourAction::Mark(_));
        self.list.iter().any(|class| class.mark.is_some())
            || self.meters.iter().any(|meter| meter.actions.iter().any(marks))
    }

    /// The class at a number; `None` for 0.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&ClassEntry> {
        self.list.get(usize::from(number).wrapping_sub(1))
    }

    /// The number of the first class whose conditions a packet meets, or 0.
    #[inline]
    pub fn find<T: Tally>(&self, header: &Header, tally: &mut T) -> u16 {
        classify::tell(self.search.classifier.as_ref(), header, tally);
        self.search.classifier.classify(header).map_or(0, |position| position as u16 + 1)
    }

    /// The kind of a code point.
    #[inline(always)]
    pub(crate) fn kind(&self, dscp: Dscp) -> u8 {
        self.kinds[usize::from(dscp.value()) % 64]
    }
}
