//! Held frames: a fixed number of places, and lists through them in the order of arrival.

use lookup::memory::MemoryError;
use wire::Frame;

use super::NONE;
use crate::verdict::Reason;

/// All places.
pub(crate) struct Held {
    places: Vec<Place>,
    /// First of the free places, linked through `next`.
    free: u32,
    /// Frames that are to be given back.
    doomed: List,
    count: u32,
}

/// Room for a frame.
struct Place {
    frame: Option<Frame>,
    next: u32,
    /// Reason for dropping the frame, once it is to be given back.
    reason: Reason,
}

/// Frames by their places, in the order of their arrival.
#[derive(Clone, Copy)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

impl Held {
    pub(crate) fn new(places: u32) -> Result<Held, MemoryError> {
        let free = |next| Place { frame: None, next, reason: Reason::FragmentTimeout };
        Ok(Held {
            places: filled(places, free)?,
            free: if places == 0 { NONE } else { 0 },
            doomed: List::EMPTY,
            count: 0,
        })
    }

    /// Puts a frame at the end of `list`, or gives it back where there is no place.
    pub(crate) fn push(&mut self, list: &mut List, frame: Frame) -> Result<(), Frame> {
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else { return Err(frame) };
        self.free = place.next;
        place.frame = Some(frame);
        self.count += 1;
        self.append(list, List { first: at, last: at });
        Ok(())
    }

    /// Takes the first frame off `list`.
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<Frame> {
        self.take(list).map(|(frame, _)| frame)
    }

    /// Marks the frames of `list`, and empties it; [`Held::give`] has them from now on.
    pub(crate) fn doom(&mut self, list: &mut List, reason: Reason) {
        let frames = std::mem::replace(list, List::EMPTY);
        let mut at = frames.first;
        while let Some(place) = self.places.get_mut(at as usize) {
            place.reason = reason;
            at = place.next;
        }
        let mut doomed = self.doomed;
        self.append(&mut doomed, frames);
        self.doomed = doomed;
    }

    /// Takes the next of the frames that are to be given back.
    pub(crate) fn give(&mut self) -> Option<(Frame, Reason)> {
        let mut doomed = self.doomed;
        let given = self.take(&mut doomed);
        self.doomed = doomed;
        given
    }

    /// True if a frame is to be given back.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// True if there is no place.
    pub(crate) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Frames in places.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    fn take(&mut self, list: &mut List) -> Option<(Frame, Reason)> {
        let at = list.first;
        let place = self.places.get_mut(at as usize)?;
        list.first = std::mem::replace(&mut place.next, self.free);
        if list.first == NONE {
            list.last = NONE;
        }
        self.free = at;
        self.count -= 1;
        let reason = place.reason;
        place.frame.take().map(|frame| (frame, reason))
    }

    /// Puts `list` behind `to`.
    fn append(&mut self, to: &mut List, list: List) {
        let Some(last) = self.places.get_mut(list.last as usize) else { return };
        last.next = NONE;
        match self.places.get_mut(to.last as usize) {
            Some(last) => last.next = list.first,
            None => to.first = list.first,
        }
        to.last = list.last;
    }
}

/// `count` entries, each made with the place of the next one, the last with [`NONE`]; they will never be more.
pub(super) fn filled<T>(count: u32, entry: impl Fn(u32) -> T) -> Result<Vec<T>, MemoryError> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(count as usize).map_err(|_| MemoryError {
        bytes: (count as usize).saturating_mul(size_of::<T>()),
        source: std::io::ErrorKind::OutOfMemory.into(),
    })?;
    entries.extend((1..=count).map(|next| entry(if next < count { next } else { NONE })));
    Ok(entries)
}
