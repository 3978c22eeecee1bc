//! Sequence numbers of a control connection in one direction, where a helper replaces text by text of another length.
//!
//! Positions are those of the sender. Behind each [`Edit`] the receiver counts differently, by the difference of the lengths. As many edits are
//! remembered as may be under way; each is forgotten only when its receiver has acknowledged it, so that a segment that is sent again, cut as
//! it may be, gets the same bytes again: a segment that touches replaced text carries all of the new text.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use super::ftp::{Form, Text};
use std::net::IpAddr;

/// Edits of one direction that may be under way at a time.
pub(crate) const MOST_EDITS: usize = 2;

/// Bytes behind an edit from which on nobody sends or acknowledges what is before it.
const FAR: u32 = 1 << 20;

/// A replaced text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct Edit {
    /// Position of its first byte.
    pub(crate) at: u32,
    /// Port in the new text.
    pub(crate) port: u16,
    /// Length of the old text.
    pub(crate) old: u8,
    /// Length of the new text.
    pub(crate) new: u8,
    /// [`Form`] of both.
    pub(crate) form: u8,
    /// Delimiter between address and port.
    pub(crate) delimiter: u8,
    pub(crate) unused: [u8; 2],
}

/// Text of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable, Serialize, Deserialize)]
#[repr(C)]
pub struct Stream {
    /// Difference between the receiver's numbers and the sender's, before all edits.
    shift: u32,
    /// Position behind the text that has been read without a gap.
    next: u32,
    /// Position at which the line under way begins.
    line: u32,
    /// Position up to which the receiver has acknowledged.
    acked: u32,
    edits: [Edit; MOST_EDITS],
    many: u8,
    /// [`BEGUN`], [`OPAQUE`].
    bits: u8,
    unused: [u8; 2],
}

/// In [`Stream::bits`]: `next` and `line` are known.
const BEGUN: u8 = 1;
/// In [`Stream::bits`]: the text is encrypted from here on.
const OPAQUE: u8 = 2;

/// End of a replaced text that a position within it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Begin,
    End,
}

/// More edits are under way than are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Stream {
    /// A stream of which nothing has been seen.
    pub(crate) const NEW: Stream = Stream {
        shift: 0,
        next: 0,
        line: 0,
        acked: 0,
        edits: [Edit { at: 0, port: 0, old: 0, new: 0, form: 0, delimiter: 0, unused: [0; 2] }; MOST_EDITS],
        many: 0,
        bits: 0,
        unused: [0; 2],
    };

    /// Begins the text at a position.
    pub(crate) fn begin(&mut self, at: u32) {
        (self.next, self.line, self.acked) = (at, at, at);
        self.bits |= BEGUN;
    }

    /// True if it is known where the text goes on.
    pub(crate) fn has_begun(&self) -> bool {
        self.bits & BEGUN != 0
    }

    /// Returns the same stream for another shard: where the text goes on is learnt there from the next segment.
    #[must_use]
    pub(crate) fn taken_up(self) -> Stream {
        Stream { bits: self.bits & !BEGUN, ..self }
    }

    /// Notes that text is encrypted from here on.
    pub(crate) fn close(&mut self) {
        self.bits |= OPAQUE;
    }

    /// True if the text is encrypted.
    pub(crate) fn is_closed(&self) -> bool {
        self.bits & OPAQUE != 0
    }

    /// Position up to which text has been read.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Position at which the line under way begins.
    pub(crate) fn line(&self) -> u32 {
        self.line
    }

    /// Notes the text up to `next` as read, with the line under way.
    pub(crate) fn read_on(&mut self, next: u32, line: u32) {
        (self.next, self.line) = (next, line);
    }

    /// Notes an acknowledgement, and forgets edits that are far behind it.
    pub(crate) fn acknowledge(&mut self, at: u32) {
        if (at.wrapping_sub(self.acked) as i32) > 0 {
            self.acked = at;
        }
        let is_far = |edit: &Edit| {
            let behind = self.acked.wrapping_sub(edit.end());
            (FAR..1 << 31).contains(&behind)
        };
        if self.edits().first().is_some_and(is_far) {
            self.forget_oldest();
        }
    }

    /// Remembers an edit, which lies behind all others.
    ///
    /// # Errors
    /// So many are not acknowledged yet: nothing is remembered.
    pub(crate) fn edit(&mut self, edit: Edit) -> Result<(), TooMany> {
        if self.edits().len() == MOST_EDITS {
            let is_over = |edit: &Edit| self.acked.wrapping_sub(edit.end()) as i32 >= 0;
            if !self.edits().first().is_some_and(is_over) {
                return Err(TooMany);
            }
            self.forget_oldest();
        }
        let place = usize::from(self.many);
        *self.edits.get_mut(place).ok_or(TooMany)? = edit;
        self.many += 1;
        Ok(())
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.edits().first().copied() else { return };
        self.shift = self.shift.wrapping_add(oldest.growth());
        self.edits.rotate_left(1);
        self.many -= 1;
    }

    /// The edits remembered, in the order of the text.
    pub(crate) fn edits(&self) -> &[Edit] {
        &self.edits[..usize::from(self.many).min(MOST_EDITS)]
    }

    /// True if both ends count alike.
    pub(crate) fn is_plain(&self) -> bool {
        self.shift == 0 && self.many == 0
    }

    /// A position as the receiver counts.
    pub(crate) fn outward(&self, at: u32, edge: Edge) -> u32 {
        let mut shift = self.shift;
        for edit in self.edits() {
            let into = at.wrapping_sub(edit.at) as i32;
            if into >= i32::from(edit.old) {
                shift = shift.wrapping_add(edit.growth());
            } else if into > 0 {
                let begin = edit.at.wrapping_add(shift);
                return if edge == Edge::Begin { begin } else { begin.wrapping_add(edit.new.into()) };
            } else {
                break;
            }
        }
        at.wrapping_add(shift)
    }

    /// The position of a number of the receiver.
    pub(crate) fn inward(&self, number: u32, edge: Edge) -> u32 {
        let mut shift = self.shift;
        for edit in self.edits() {
            let into = number.wrapping_sub(edit.at.wrapping_add(shift)) as i32;
            if into >= i32::from(edit.new) {
                shift = shift.wrapping_add(edit.growth());
            } else if into > 0 {
                return if edge == Edge::Begin { edit.at } else { edit.end() };
            } else {
                break;
            }
        }
        number.wrapping_sub(shift)
    }

    /// True if text of this length at a position touches replaced text.
    pub(crate) fn touches(&self, at: u32, len: usize) -> bool {
        self.edits().iter().any(|edit| edit.touches(at, len))
    }

    /// Writes the text at a position as the receiver gets it, with `shown` as the announcer's address, and returns its length; its first byte
    /// has the number [`Stream::outward`] of `at`. `None` if there is no room.
    pub(crate) fn write(&self, at: u32, text: &[u8], shown: IpAddr, out: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            out.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
            len += bytes.len();
            Some(())
        };
        let mut done = 0;
        for edit in self.edits().iter().filter(|edit| edit.touches(at, text.len())) {
            let into = edit.at.wrapping_sub(at) as i32;
            if into > 0 {
                put(text.get(done..into as usize)?)?;
            }
            put(&edit.text(shown)?)?;
            done = (into + i32::from(edit.old)).clamp(0, text.len() as i32) as usize;
        }
        put(text.get(done..)?)?;
        Some(len)
    }
}

impl Edit {
    /// Position behind the old text.
    pub(crate) fn end(&self) -> u32 {
        self.at.wrapping_add(self.old.into())
    }

    fn growth(&self) -> u32 {
        u32::from(self.new).wrapping_sub(self.old.into())
    }

    fn touches(&self, at: u32, len: usize) -> bool {
        let (begins, ends) = (self.at.wrapping_sub(at) as i32, self.end().wrapping_sub(at) as i32);
        len > 0 && begins < len as i32 && ends > 0
    }

    /// The new text; `None` if it is not as long as it was.
    fn text(&self, shown: IpAddr) -> Option<Text> {
        let text = Form::of(self.form)?.text(shown, self.port, self.delimiter)?;
        (text.len() == usize::from(self.new)).then_some(text)
    }
}

#[cfg(test)]
mod tests;
