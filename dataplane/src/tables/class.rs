//! Traffic classes and meters of compiled tables.

use std::sync::Arc;

use lookup::classify::{self, Choice, Header};
use policy::model::{ColourAction, Meter};
use tally::Tally;
use wire::vlan::Priority;
use wire::{Dscp, Pcp};

/// The traffic classes. A class is known by its place in the list, counted from 1; 0 is none.
#[derive(Clone)]
pub struct Classes {
    /// The classes.
    pub list: Vec<ClassEntry>,
    /// Meters, each of one class or more.
    pub meters: Vec<Meter>,
    /// Find the first class whose conditions hold, for each kind of VLAN priority: one, unless a class asks for priorities.
    pub(crate) searches: Vec<ClassSearch>,
    /// For each code point, the number of its kind: no class tells two of a kind apart.
    pub(crate) kinds: [u8; 64],
    /// For each VLAN priority, by its four bits, the number of its kind likewise.
    pub(crate) priority_kinds: [u8; Priority::COUNT],
}

/// Search of the classes that packets of a kind of VLAN priority may be of.
#[derive(Clone)]
pub(crate) struct ClassSearch {
    /// The search among them.
    pub(crate) search: Arc<Choice>,
    /// Numbers of these classes, by their place in the search.
    pub(crate) numbers: Box<[u16]>,
}

/// Kind of packets that no class tells apart by code point or VLAN priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind(u16);

impl Kind {
    /// Number of the kind: [`Kind::NONE`] is that of no packet.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// Number of the search among the classes that packets of the kind may be of.
    #[inline(always)]
    pub(crate) const fn search(self) -> u16 {
        self.0 >> 6
    }

    /// Number of no kind.
    pub(crate) const NONE: u16 = u16::MAX;
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
    /// Priority code point for the VLAN tags of its packets.
    pub mark_pcp: Option<Pcp>,
}

impl Classes {
    /// Bytes of the searches in the rules' memory of a network processor.
    pub fn region_bytes(&self) -> u64 {
        self.searches.iter().map(|of| of.search.classifier.region_bytes()).sum()
    }

    /// True if there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if packets of some class are given code points, or marks of congestion.
    pub(crate) fn has_marks(&self) -> bool {
        let marks = |action: &ColourAction| !matches!(action, ColourAction::Pass | ColourAction::Drop);
        self.list.iter().any(|class| class.mark.is_some())
            || self.meters.iter().any(|meter| meter.actions.iter().any(marks))
    }

    /// The class at a number; `None` for 0.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&ClassEntry> {
        self.list.get(usize::from(number).wrapping_sub(1))
    }

    /// The number of the first class whose conditions a packet meets, or 0. `kind` is the packet's.
    #[inline]
    pub(crate) fn find<T: Tally>(&self, header: &Header, kind: Kind, tally: &mut T) -> u16 {
        let Some(ClassSearch { search, numbers }) = self.searches.get(usize::from(kind.search())) else {
            return 0;
        };
        classify::tell(search.classifier.as_ref(), header, tally);
        let position = search.classifier.classify(header);
        position.and_then(|position| numbers.get(position as usize)).copied().unwrap_or(0)
    }

    /// True if a class asks for VLAN priorities.
    #[inline(always)]
    pub(crate) fn asks_priority(&self) -> bool {
        self.searches.len() > 1
    }

    /// Kind of the packets with a code point and a VLAN priority: below 64 those of the first kind of priority.
    #[inline(always)]
    pub(crate) fn kind(&self, dscp: Dscp, priority: Priority) -> Kind {
        let of_priority = self.priority_kinds[usize::from(priority.bits()) % Priority::COUNT];
        Kind(u16::from(of_priority) << 6 | u16::from(self.kinds[usize::from(dscp.value()) % 64]))
    }

    /// Size of the search in an engine's control store, in instructions: that of the largest, as searches in tables share one
    /// program, and one in code has all its conditions there.
    pub fn program(&self) -> u32 {
        self.searches.iter().map(|one| one.search.classifier.program()).max().unwrap_or(0)
    }
}
