//! VLAN tags: IEEE 802.1Q (0x8100) and 802.1ad, "QinQ" (0x88a8). [`crate::ethernet::parse`] finds them.

use crate::ethertype::EtherType;

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

    /// The priority code point, 0 to 7.
    #[inline]
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// True if it may be dropped first under congestion.
    #[inline]
    pub const fn drop_eligible(self) -> bool {
        self.tci & 0x1000 != 0
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
