//! The reorder buffer of a unit: it releases frames to transmission in the order in which they were received.
//!
//! A frame gets a ticket with its first element in the receive buffer: the next number of its context, which the hash of its flow says.
//! The ticket reserves a place in the unit. Who puts the frame into a ring of the unit fills the place, and whoever
//! comes to the end of a frame that goes no further, or leaves by another ring, returns the ticket. Once all before it in its
//! context are released or returned, a frame goes on into its ring, if that has room; each ticket takes the unit for its interval.
//!
//! Nobody waits to fill a place, which has been there since the frame was received; so no frame waits for one behind it. Where all
//! places are reserved, the first elements of further frames stay in their MACs: elements of frames with tickets pass them in the receive
//! buffer, but not in a MAC.

use std::collections::VecDeque;

use super::edge::{Element, UNBOUNDED};
use super::{Event, Ideal, Machine};
use crate::description::{Chip, Tickets};
use crate::mapping::Mapping;

/// Reorder buffer of a unit.
#[derive(Clone, Debug)]
pub(super) struct Reorder {
    /// The unit, by its place in the chip.
    unit: usize,
    /// Number of places.
    entries: usize,
    /// Number of places that are reserved.
    reserved: usize,
    contexts: Vec<Context>,
}

/// Frames that are released in one order.
#[derive(Clone, Debug, Default)]
struct Context {
    /// Number of the first ticket that is out.
    first: u64,
    /// Places of all tickets that are out.
    places: VecDeque<Place>,
    /// True if it is among those that wait for room in a ring.
    waits: bool,
}

/// A frame's place in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    context: u32,
    number: u64,
}

/// State of a place.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The frame is worked on.
    Reserved,
    /// The frame waits for those before it, to go on into a ring.
    Filled { ring: usize, job: u32 },
    /// The frame will not come.
    Returned,
}

impl Reorder {
    /// The reorder buffer that rings of the mapping name; `None` if none does.
    pub(super) fn new(chip: &Chip, mapping: &Mapping, ideal: Ideal) -> Option<Reorder> {
        let unit = mapping.rings.iter().find_map(|ring| ring.order)?;
        let Tickets { entries, contexts } = chip.units.get(unit)?.tickets?;
        let entries = if ideal == Ideal::Unit(unit) { UNBOUNDED } else { entries };
        Some(Reorder {
            unit,
            entries: entries as usize,
            reserved: 0,
            contexts: vec![Context::default(); contexts.max(1) as usize],
        })
    }

    /// Number of frames in it.
    pub(super) fn filled(&self) -> usize {
        let places = self.contexts.iter().flat_map(|context| &context.places);
        places.filter(|place| matches!(place, Place::Filled { .. })).count()
    }

    /// Name of the unit.
    pub(super) fn name<'a>(&self, chip: &'a Chip) -> &'a str {
        chip.units.get(self.unit).map_or("", |unit| unit.name.as_str())
    }

    fn set(&mut self, ticket: Ticket, place: Place) {
        let Some(context) = self.contexts.get_mut(ticket.context as usize) else { return };
        let at = ticket.number - context.first;
        if let Some(of) = context.places.get_mut(at as usize) {
            *of = place;
        }
    }
}

impl Machine<'_> {
    /// True if an element can come into the receive buffer: its frame has a ticket, or can get one, or needs none.
    pub(super) fn is_admitted(&self, element: &Element) -> bool {
        let Some(reorder) = &self.reorder else { return true };
        let has_ticket = self.jobs[element.job as usize].ticket.is_some();
        has_ticket || (element.number == 0 && reorder.reserved < reorder.entries)
    }

    /// Gives a frame its ticket, with its first element.
    pub(super) fn admit(&mut self, element: Element) {
        let Some(reorder) = self.reorder.as_mut().filter(|_| element.number == 0) else { return };
        let job = &mut self.jobs[element.job as usize];
        let number = job.flow as usize % reorder.contexts.len();
        let context = &mut reorder.contexts[number];
        let ticket = Ticket { context: number as u32, number: context.first + context.places.len() as u64 };
        context.places.push_back(Place::Reserved);
        reorder.reserved += 1;
        job.ticket = Some(ticket);
    }

    /// True if the frame goes into the ring by its place in the ring's unit.
    pub(super) fn is_ordered(&self, ring: usize, job: u32) -> bool {
        self.rings[ring].is_ordered && self.jobs[job as usize].ticket.is_some()
    }

    /// A frame waits in its place for those before it.
    pub(super) fn fill_place(&mut self, ring: usize, job: u32) {
        self.settle_ticket(job, Place::Filled { ring, job });
    }

    /// A frame does not go into a ring of the unit any more.
    pub(super) fn return_ticket(&mut self, job: u32) {
        self.settle_ticket(job, Place::Returned);
    }

    fn settle_ticket(&mut self, job: u32, place: Place) {
        let Some(ticket) = self.jobs[job as usize].ticket.take() else { return };
        if let Some(reorder) = &mut self.reorder {
            reorder.set(ticket, place);
        }
        self.advance(ticket.context);
    }

    /// A ring of the unit has room.
    pub(super) fn release_into(&mut self, ring: usize) {
        while self.has_room(ring) {
            let Some(context) = self.rings[ring].waiting.pop_front() else { return };
            if let Some(reorder) = &mut self.reorder {
                reorder.contexts[context as usize].waits = false;
            }
            self.advance(context);
        }
    }

    /// Releases the frames of a context that nobody is before.
    fn advance(&mut self, number: u32) {
        while let Some(reorder) = &mut self.reorder {
            let unit = reorder.unit;
            let context = &mut reorder.contexts[number as usize];
            let place = match context.places.front() {
                None | Some(Place::Reserved) => break,
                Some(_) if context.waits => break,
                Some(place) => *place,
            };
            if let Place::Filled { ring, .. } = place {
                if !self.has_room(ring) {
                    self.rings[ring].waiting.push_back(number);
                    if let Some(reorder) = &mut self.reorder {
                        reorder.contexts[number as usize].waits = true;
                    }
                    break;
                }
                self.reserve(ring);
            }
            let done = self.hand(unit, 0);
            if let Place::Filled { ring, job } = place {
                self.agenda.note(done, Event::Release { ring, job });
            }
            if let Some(reorder) = &mut self.reorder {
                let context = &mut reorder.contexts[number as usize];
                context.places.pop_front();
                context.first += 1;
                reorder.reserved -= 1;
            }
        }
        self.fill_receive_buffer();
    }
}

#[cfg(test)]
impl Machine<'_> {
    /// True if no ticket is out.
    pub(super) fn is_in_order_at_rest(&self) -> bool {
        let is_at_rest = |reorder: &Reorder| {
            reorder.reserved == 0 && reorder.contexts.iter().all(|context| context.places.is_empty())
        };
        self.reorder.as_ref().is_none_or(is_at_rest)
    }
}
