//! VLAN tags: IEEE 802.1Q (0x8100) and 802.1ad, "QinQ" (0x88a8). [`crate::ethernet::parse`] finds them.

use crate::ethertype::EtherType;
use crate::unit::Pcp;

/// Bytes that a tag puts before the type that it hides.
pub const TAG_LEN: usize = 4;

/// One tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The type that announced it: [`EtherType::VLAN`] or [`EtherType::QINQ`].
    pub tpid: EtherType,
    /// Priority, drop eligibility and VLAN in 16 bits.
    pub tci: u16,
}

impl Tag {
    /// A customer tag of VLAN `id` (its lower 12 bits), priority 0.
    pub const fn customer(id: u16) -> Tag {
        Tag { tpid: EtherType::VLAN, tci: id & 0x0fff }
    }

    /// A service tag of VLAN `id` (its lower 12 bits), priority 0.
    pub const fn service(id: u16) -> Tag {
        Tag { tpid: EtherType::QINQ, tci: id & 0x0fff }
    }

    /// The VLAN, 0 to 4095. 0 tags priority only; 4095 is reserved.
    #[inline]
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }

    /// Priority of the frame.
    #[inline]
    pub const fn priority(self) -> Priority {
        Priority((self.tci >> 12) as u8)
    }

    /// This tag with another priority.
    #[inline]
    #[must_use]
    pub const fn with_priority(self, priority: Priority) -> Tag {
        Tag { tci: self.tci & 0x0fff | (priority.0 as u16) << 12, ..self }
    }
}

/// Priority of a frame: priority code point and drop eligible indicator (IEEE 802.1Q, 9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

/// Drop eligible indicator: the frame is dropped first under congestion, or as others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropEligible {
    /// As others are.
    #[default]
    No,
    /// Before others.
    Yes,
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 16;

    /// All priorities, by their four bits.
    pub fn all() -> impl Iterator<Item = Priority> {
        (0..Priority::COUNT as u8).map(Priority)
    }

    /// Code point 0, not eligible: also that of a frame without a tag, as the default priority of a port is 0.
    pub const DEFAULT: Priority = Priority(0);

    /// A priority of that code point and indicator.
    #[inline]
    pub const fn new(code_point: Pcp, eligible: DropEligible) -> Priority {
        Priority(code_point.value() << 1 | eligible as u8)
    }

    /// Priority of a frame: that of its outer tag, or the default.
    #[inline]
    pub fn of_frame(bytes: &[u8]) -> Priority {
        match bytes.get(12..15) {
            Some([high, low, tci]) if EtherType(u16::from_be_bytes([*high, *low])).is_vlan() => {
                Priority(tci >> 4)
            }
            _ => Priority::DEFAULT,
        }
    }

    /// The priority code point.
    #[inline]
    pub const fn code_point(self) -> Pcp {
        Pcp::of_tci((self.0 as u16) << 12)
    }

    /// The drop eligible indicator.
    #[inline]
    pub const fn eligible(self) -> DropEligible {
        if self.0 & 1 == 0 { DropEligible::No } else { DropEligible::Yes }
    }

    /// Code point and indicator in four bits, 0 to 15, as in a tag.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// The tags of a frame: none, one or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags {
    tags: [Tag; 2],
    len: u8,
}

impl Tags {
    /// No tag.
    pub const NONE: Tags = Tags { tags: [Tag { tpid: EtherType(0), tci: 0 }; 2], len: 0 };

    /// The tags, the outer one first.
    #[inline]
    pub fn as_slice(&self) -> &[Tag] {
        match self.len {
            0 => &[],
            1 => &self.tags[..1],
            _ => &self.tags,
        }
    }

    /// The outer tag.
    #[inline]
    pub fn outer(&self) -> Option<Tag> {
        self.as_slice().first().copied()
    }

    /// The tag next to the payload.
    #[inline]
    pub fn inner(&self) -> Option<Tag> {
        self.as_slice().last().copied()
    }

    /// These and an inner tag; a third one is not taken.
    #[inline]
    #[must_use]
    pub const fn with(self, tag: Tag) -> Tags {
        match self.len {
            0 => Tags { tags: [tag, self.tags[1]], len: 1 },
            1 => Tags { tags: [self.tags[0], tag], len: 2 },
            _ => self,
        }
    }
}
