//! Following interfaces alone, for those who must act before a packet comes: each event is told as soon as it is there, in
//! order, on the thread that reads it. [`watch`](super::watch()) gathers events and lists routes meanwhile.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::thread;

use super::list;
use super::message::{Body, Event, parse};
use super::socket::{Error, Operation, Received, Socket, wait};
use super::state::{Link, LinkIndex};

/// An event of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// All interfaces there are; those that are not among them are gone.
    All(BTreeMap<LinkIndex, Link>),
    /// An interface is there, or has changed.
    There(LinkIndex, Link),
    /// An interface is gone.
    Gone(LinkIndex),
    /// Linux could not be asked; it is tried again.
    Trouble(String),
}

/// Continuation: more is wanted, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is.
    More,
    /// Nobody wants it any more.
    Enough,
}

/// `RTNLGRP_LINK`
const GROUP: u32 = 1;

/// Bytes of events that may wait.
const BUFFER: usize = 16 << 20;

/// Tells `take` all interfaces before it returns, and each event of one from then on, on a thread of its own.
///
/// # Errors
/// Where no netlink socket can be had, or interfaces cannot be listed, or no thread can be started.
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

/// The pause where Linux could not be asked.
const AFTER_TROUBLE: std::time::Duration = std::time::Duration::from_secs(1);

/// Events were lost.
struct Lost;

/// Subscribes before it lists, so that nothing falls between.
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
