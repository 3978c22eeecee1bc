//! The command channel of a worker, its wake-up, and the events that it reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use dataplane::flow::{FlowId, SteeringTable};
use dataplane::reload::{Applied, ReloadPlan};
use dataplane::state::{Cursor, Item};
use dataplane::tables::{Address, Tables};
use rustix::event::{EventfdFlags, eventfd};
use wire::PortError;
use wire::ethernet::Mac;

use crate::about::About;
use crate::capture::Tap;
use crate::flows::{FlowQuery, FlowView, NotKnown};
use crate::request::Reply;

use super::link::Attachment;
use super::report::Report;
use super::state::{Exported, Imported};
use super::{Then, Worker};

/// What is asked of a worker. It answers between two turns, so answers are soon there.
pub enum Command {
    /// Hangs a port, or another one, on an interface.
    Attach {
        /// The interface.
        interface: String,
        /// What to hang there. What hung there is dropped.
        ends: Attachment,
        /// Is dropped when that has been done.
        done: Option<Sender<()>>,
    },
    /// Goes on with other tables. What is not needed any more goes back to the sender, who frees it.
    Swap {
        /// What to go on with.
        swap: Box<Swap>,
        /// Is told when it is done.
        done: Sender<Retired>,
    },
    /// A neighbour's link-layer address, or that it is not known any more.
    Neighbour(Known),
    /// Tells everybody on the link of an interface that these addresses are the gateway's.
    Announce {
        /// The interface.
        interface: String,
        /// The addresses.
        addresses: Vec<Address>,
    },
    /// All neighbours that are known.
    Neighbours(Arc<[Known]>),
    /// Asks for flows, from a place on.
    Flows {
        /// Which.
        query: FlowQuery,
        /// The place.
        first: FlowId,
        /// Places to look at.
        most: u32,
        /// Where the answer goes.
        reply: Reply<Result<FoundFlows, NotKnown>>,
    },
    /// Ends flows, from a place on: gives back how many, and where to go on.
    Kill {
        /// Which.
        query: FlowQuery,
        /// The place.
        first: FlowId,
        /// Places to look at.
        most: u32,
        /// Where the answer goes.
        reply: Reply<Result<(u64, Option<FlowId>), NotKnown>>,
    },
    /// Asks for what is remembered, from a cursor on.
    Export {
        /// The packet that it is to bear on; all is asked for where absent.
        about: Option<Arc<About>>,
        /// The cursor.
        from: Cursor,
        /// Places to look at.
        most: u32,
        /// Where the answer goes.
        reply: Reply<Exported>,
    },
    /// Gives what was remembered before.
    Import {
        /// What the places in the items are of.
        tables: Arc<Tables>,
        /// The items.
        items: Vec<Item>,
        /// Where the answer goes.
        reply: Reply<Imported>,
    },
    /// Begins a capture. One whose words mean nothing to the worker's tables never begins.
    Capture {
        /// By which it is ended.
        id: u64,
        /// Where copies go.
        tap: Box<Tap>,
        /// Is told when it has begun.
        reply: Reply<Result<(), NotKnown>>,
    },
    /// Ends a capture.
    EndCapture(u64),
    /// Asks what was counted.
    Report(Sender<Report>),
    /// Ends the worker.
    Stop,
}

/// Other tables for a worker, and what leads to them.
pub struct Swap {
    /// What to go on with.
    pub tables: Arc<Tables>,
    /// The way there.
    pub plan: ReloadPlan,
    /// A steering table that has room for as many flows as there can be now; none where the one in use does.
    pub steering: Option<Arc<SteeringTable>>,
}

/// What a worker no longer needs.
pub struct Retired {
    pub(super) _tables: Arc<Tables>,
    pub(super) _applied: Option<Applied>,
}

/// Flows that were found.
#[derive(Debug)]
pub struct FoundFlows {
    /// They.
    pub flows: Vec<FlowView>,
    /// The place to go on from; none if these were all.
    pub next: Option<FlowId>,
}

/// A neighbour, as Linux knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The interface it is on.
    pub interface: String,
    /// Its address.
    pub address: Address,
    /// Where it is found.
    pub found: Found,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At this link-layer address.
    At(Mac),
    /// Nowhere: it did not answer.
    Nowhere,
    /// Not known any more.
    Forgotten,
}

/// What a worker tells.
#[derive(Debug)]
pub enum WorkerEvent {
    /// Packets wait for a neighbour.
    Wanted {
        /// The interface it is on.
        interface: String,
        /// Its address.
        address: Address,
    },
    /// A port failed, and is not used any more.
    PortFailed {
        /// Its interface.
        interface: String,
        /// How.
        error: PortError,
    },
    /// It shares its core with others, as there are not as many as workers.
    NotAlone {
        /// Its number.
        worker: usize,
    },
    /// The worker panicked, has lost its flows, and goes on.
    Panicked {
        /// Its number.
        worker: usize,
        /// What the panic said.
        message: String,
    },
}

/// Wakes a sleeping worker.
#[derive(Clone, Debug)]
pub struct WakeUp {
    event: Arc<OwnedFd>,
}

impl WakeUp {
    /// One that nobody has used yet.
    ///
    /// # Errors
    /// The system refuses one more file descriptor.
    pub fn new() -> io::Result<WakeUp> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(WakeUp { event: Arc::new(event) })
    }

    /// Wakes the worker, or keeps it from falling asleep once.
    pub fn wake(&self) {
        // It can only fail where it was called 2^64 times since the last sleep.
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }

    /// Takes note: the worker is awake.
    pub(super) fn clear(&self) {
        let mut count = [0; 8];
        // Where nobody has woken the worker there is nothing to read.
        let _ = rustix::io::read(&*self.event, &mut count);
    }
}

impl AsFd for WakeUp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Sends commands to one worker, and wakes it.
#[derive(Clone)]
pub struct CommandSender {
    sender: Sender<Command>,
    wake_up: WakeUp,
}

impl CommandSender {
    /// Sends, and wakes. `false` if the worker has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.sender.send(command).is_ok();
        self.wake_up.wake();
        sent
    }
}

/// Both ends of the command channel of a worker.
///
/// # Errors
/// The system refuses one more file descriptor.
pub fn command_channel() -> io::Result<(CommandSender, Receiver<Command>, WakeUp)> {
    let (sender, receiver) = channel();
    let wake_up = WakeUp::new()?;
    Ok((CommandSender { sender, wake_up: wake_up.clone() }, receiver, wake_up))
}

impl Worker {
    /// Does what is asked.
    pub(super) fn run_commands(&mut self) -> Then {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Attach { interface, ends, done } => {
                    if let Some(link) = self.links.iter_mut().find(|link| link.name == interface) {
                        link.attach(ends, &mut self.pool);
                    }
                    drop(done);
                }
                Command::Swap { swap, done } => {
                    let spent = self.swap(*swap);
                    // Who asked may have gone; then it is freed here.
                    let _ = done.send(spent);
                }
                Command::Neighbour(known) => self.update_neighbour(&known),
                Command::Announce { interface, addresses } => self.announce(&interface, &addresses),
                Command::Neighbours(all) => all.iter().for_each(|known| self.update_neighbour(known)),
                Command::Flows { query, first, most, reply } => {
                    let _ = reply.send(self.flows(&query, first, most));
                }
                Command::Kill { query, first, most, reply } => {
                    let _ = reply.send(self.kill(&query, first, most));
                }
                Command::Export { about, from, most, reply } => {
                    let _ = reply.send(self.export(about.as_deref(), from, most));
                }
                Command::Import { tables, items, reply } => {
                    let _ = reply.send(self.import(&tables, &items));
                }
                Command::Capture { id, tap, reply } => {
                    let _ = reply.send(self.begin_capture(id, *tap));
                }
                Command::EndCapture(id) => self.captures.end(id),
                Command::Report(to) => {
                    let _ = to.send(self.report());
                }
                Command::Stop => return Then::Stop,
            }
        }
        Then::Continue
    }
}

impl Worker {
    fn flows(&self, query: &FlowQuery, first: FlowId, most: u32) -> Result<FoundFlows, NotKnown> {
        let filter = query.filter(&self.tables)?;
        let mut flows = Vec::new();
        let (now, places) = (self.clock.now(), first.0..first.0.saturating_add(most));
        let next = self.shard.list_flows(&self.tables, now, places, &filter, |flow| {
            flows.push(FlowView::of(self.number, &flow, &self.tables));
        });
        Ok(FoundFlows { flows, next })
    }

    fn kill(
        &mut self,
        query: &FlowQuery,
        first: FlowId,
        most: u32,
    ) -> Result<(u64, Option<FlowId>), NotKnown> {
        let filter = query.filter(&self.tables)?;
        let mut found = Vec::new();
        let (now, places) = (self.clock.now(), first.0..first.0.saturating_add(most));
        let next = self.shard.list_flows(&self.tables, now, places, &filter, |flow| {
            found.push((flow.id, flow.original));
        });
        for (id, original) in &found {
            self.shard.end_flow_of(*id, original);
            if self.shard.log.is_half_full() {
                self.send_records();
            }
        }
        self.send_records();
        Ok((found.len() as u64, next))
    }
}
