//! Link events alone, for code that must act before a packet arrives: each event is delivered at once, in order, on the
//! thread that reads it. [`watch`](super::watch()) coalesces events and lists routes meanwhile.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::thread;

use super::interface::{Link, LinkIndex};
use super::list;
use super::message::{Body, parse};
use super::socket::{Error, Operation, Received, Socket, wait};
use super::state::Event;

/// Link event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// All interfaces present; any other is gone.
    All(BTreeMap<LinkIndex, Link>),
    /// Interface added or changed.
    There(LinkIndex, Link),
    /// Interface removed.
    Gone(LinkIndex),
    /// Failed request to Linux, to be retried.
    Trouble(String),
}

/// Decision of a receiver to go on or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Go on.
    More,
    /// Stop.
    Enough,
}

/// `RTNLGRP_LINK`
const GROUP: u32 = 1;

/// Receive buffer for events, in bytes.
const BUFFER: usize = 16 << 20;

/// Passes all interfaces to `take` before it returns, and each later event, on a thread of its own.
///
/// # Errors
/// No netlink socket, failed dump of interfaces, or no thread.
pub fn follow(mut take: impl FnMut(LinkEvent) -> Heard + Send + 'static) -> Result<(), Error> {
    let mut events = begin(&mut take)?;
    let thread = thread::Builder::new().name("guards".to_owned()).spawn(move || {
        loop {
            match read(&mut events, &mut take) {
                Ok(Heard::More) => {}
                Ok(Heard::Enough) => return,
                // What was lost is made good by a list.
                Err(Lost) => match begin(&mut take) {
                    Ok(fresh) => events = fresh,
                    Err(error) => {
                        if take(LinkEvent::Trouble(error.to_string())) == Heard::Enough {
                            return;
                        }
                        thread::sleep(AFTER_TROUBLE);
                    }
                },
            }
        }
    });
    thread.map(drop).map_err(|source| Error::new(Operation::Open, source))
}

/// Pause after a failed request to Linux.
const AFTER_TROUBLE: std::time::Duration = std::time::Duration::from_secs(1);

/// Overrun of the receive buffer.
struct Lost;

/// Subscribes before listing, so that no event is missed.
fn begin(take: &mut impl FnMut(LinkEvent) -> Heard) -> Result<Socket, Error> {
    let mut events = Socket::open()?;
    events.subscribe(&[GROUP], BUFFER)?;
    let links = list::links(&mut Socket::open()?)?;
    take(LinkEvent::All(links));
    Ok(events)
}

fn read(events: &mut Socket, take: &mut impl FnMut(LinkEvent) -> Heard) -> Result<Heard, Lost> {
    wait(&[events.as_fd()], None).map_err(|_| Lost)?;
    match events.receive() {
        Ok(Received::Nothing) => Ok(Heard::More),
        Ok(Received::Lost) | Err(_) => Err(Lost),
        Ok(Received::Datagram(bytes)) => {
            for message in parse(bytes) {
                let event = match message.body {
                    Body::Event(Event::Link(index, link)) => LinkEvent::There(index, link),
                    Body::Event(Event::LinkGone(index)) => LinkEvent::Gone(index),
                    Body::Overrun | Body::Malformed => return Err(Lost),
                    _ => continue,
                };
                if take(event) == Heard::Enough {
                    return Ok(Heard::Enough);
                }
            }
            Ok(Heard::More)
        }
    }
}
