//! The command channel of a worker, its wake-up, and the events that it reports.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use dataplane::Reason;
use dataplane::egress::SubscriberReport;
use dataplane::fast_path::Pause;
use dataplane::flow::{FlowId, SteeringTable};
use dataplane::meter::{MeterState, MeteredEnds};
use dataplane::nat::Endpoint;
use dataplane::port_mapping::{
    Holder, PortMappingNews, PortMappingRemoval, PortMappingUpdate, PortRefusal, PortRequest,
};
use dataplane::ppp::News;
use dataplane::reload::{Applied, ReloadPlan};
use dataplane::sa::{RetiredSa, SaChange, SaEvent, SaRefused};
use dataplane::set::{Element, SetChange, TakenElements};
use dataplane::state::{Cursor, ElementRecord, FlowRecord, Item, RemovalRecord};
use dataplane::sync::{CopySweep, EndedFlow, Taken};
use dataplane::tables::{Address, MulticastRoutes, Tables};
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;
use wire::PortError;
use wire::ethernet::Mac;

use crate::about::About;
use crate::capture::Tap;
use crate::drops::FoundDrops;
use crate::flows::{FlowQuery, FlowView, NotKnown};
use crate::peer::PeerLink;
use crate::port_mapping::Granted;
use crate::request::SetTrouble;
use crate::set::{Elements, SetChanged};

use super::link::Attachment;
use super::port_mapping::{AskedMappings, PortMappingsChanged, TookInPortMappings};
use super::report::Report;
use super::set::{SetsChanged, SetsSwept, TookInSets};
use super::state::{Changed, Exported, Imported, TookIn};

/// Reply channel. The receiver may have gone.
pub type Reply<T> = oneshot::Sender<T>;

/// Command to a worker, carried out and answered between two turns.
pub enum Command {
    /// Attaches a port to an interface, in place of the one attached.
    Attach {
        /// Name of the interface.
        interface: String,
        /// Ends to attach. The previous ends are dropped.
        ends: Attachment,
        /// Dropped on completion; nothing is sent.
        done: Option<Sender<()>>,
    },
    /// Swaps the tables. Retired state goes back to the sender, who frees it.
    Swap {
        /// Swap to carry out.
        swap: Box<Swap>,
        /// Channel for the retired state, on completion.
        done: Sender<Retired>,
    },
    /// Neighbour update: a link-layer address, or the loss of one.
    Neighbour(Known),
    /// Announces addresses of the gateway on the link of an interface.
    Announce {
        /// Name of the interface.
        interface: String,
        /// Addresses to announce.
        addresses: Vec<Address>,
    },
    /// Updates of all known neighbours.
    Neighbours(Arc<[Known]>),
    /// Multicast routes in the place of those before.
    Multicast {
        /// The routes.
        routes: Arc<MulticastRoutes>,
        /// Epoch of the tables that they are for.
        epoch: u16,
        /// Channel for the routes before, if there are any, on completion.
        done: Sender<Option<Arc<MulticastRoutes>>>,
    },
    /// Lists flows, from an entry of the flow table on.
    Flows {
        /// Query that the flows match.
        query: FlowQuery,
        /// Flow table entry to start at.
        first: FlowId,
        /// Maximum number of entries to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<Result<FoundFlows, NotKnown>>,
    },
    /// Ends flows, from an entry on. Replies with their number and the entry to go on from, none at the end.
    Kill {
        /// Query that the flows match.
        query: FlowQuery,
        /// Flow table entry to start at.
        first: FlowId,
        /// Maximum number of entries to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<Result<(u64, Option<FlowId>), NotKnown>>,
    },
    /// Tokens of all meters for packets of these ends, with the tables that they are of.
    Meters {
        /// Ends of the packet.
        ends: MeteredEnds,
        /// Reply channel.
        reply: Reply<(Arc<Tables>, Vec<Option<MeterState>>)>,
    },
    /// Lists subscribers of trees of queues, from a number on.
    Subscribers {
        /// Number to start at.
        first: u32,
        /// Maximum number of instances to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<FoundSubscribers>,
    },
    /// Lists the packets that the drop recorder remembers.
    Drops {
        /// Reasons of the packets.
        reasons: Vec<Reason>,
        /// Reply channel.
        reply: Reply<FoundDrops>,
    },
    /// Exports state items, from a cursor on.
    Export {
        /// Packet that the items bear on; all items where absent.
        about: Option<Arc<About>>,
        /// Cursor to start at.
        from: Cursor,
        /// Maximum number of entries to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<Exported>,
    },
    /// Imports state items.
    Import {
        /// Tables that the indices in the items refer to.
        tables: Arc<Tables>,
        /// Items to import.
        items: Vec<Item>,
        /// Reply channel.
        reply: Reply<Imported>,
    },
    /// Takes flows that have changed, for a second gateway.
    Changes {
        /// Place from which on all flows are taken; those that have changed where absent.
        all: Option<FlowId>,
        /// Number of flows, or of places to visit, at most.
        most: u32,
        /// Memory for the changes, with room.
        into: Taken,
        /// Reply channel.
        reply: Reply<Changed>,
    },
    /// Hands frames over to a second gateway by another link, or by none.
    Peer {
        /// The link.
        link: Option<PeerLink>,
        /// Reply channel, for the moment from which on the link before is not used.
        reply: Reply<()>,
    },
    /// Takes in what a second gateway tells.
    TakeIn {
        /// Tables that the indices in the flows refer to.
        tables: Arc<Tables>,
        /// Flows that are new or have changed there.
        flows: Vec<FlowRecord>,
        /// Flows that have ended there.
        ended: Vec<EndedFlow>,
        /// Round of the second gateway's full synchronisations.
        round: u8,
        /// Reply channel.
        reply: Reply<TookIn>,
    },
    /// Sweeps the copies of a second gateway's flows. Replies with the place to go on from, none at the end.
    SweepCopies {
        /// The sweep.
        sweep: CopySweep,
        /// Place to start at.
        first: FlowId,
        /// Maximum number of places to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<Option<FlowId>>,
    },
    /// Takes changes of dynamic sets, for a second gateway; of the first worker.
    SetChanges {
        /// Place from which on all elements are taken; those that have changed where absent.
        all: Option<u32>,
        /// Number of elements, or of places to visit, at most.
        most: u32,
        /// Memory for the changes.
        into: TakenElements,
        /// Reply channel.
        reply: Reply<SetsChanged>,
    },
    /// Takes in what a second gateway tells of dynamic sets.
    TakeInSets {
        /// Tables that the indices refer to.
        tables: Arc<Tables>,
        /// Removals, before the elements.
        removed: Arc<[RemovalRecord]>,
        /// Elements that are new or have changed there.
        elements: Arc<[ElementRecord]>,
        /// Round of the second gateway's full synchronisations.
        round: u8,
        /// Reply channel.
        reply: Reply<TookInSets>,
    },
    /// Sweeps the copies of a second gateway's elements; of the first worker.
    SweepSetCopies {
        /// The sweep.
        sweep: CopySweep,
        /// Place to start at.
        first: u32,
        /// Maximum number of places to visit.
        most: u32,
        /// Reply channel.
        reply: Reply<SetsSwept>,
    },
    /// Takes changes of port mappings, for a second gateway.
    PortMappingChanges {
        /// All mappings, or those that have changed.
        asked: AskedMappings,
        /// Number of mappings at most.
        most: u32,
        /// Reply channel.
        reply: Reply<PortMappingsChanged>,
    },
    /// Takes in what a second gateway tells of port mappings.
    TakeInPortMappings {
        /// Tables that the indices refer to.
        tables: Arc<Tables>,
        /// Removals, before the mappings.
        removed: Vec<PortMappingRemoval>,
        /// Mappings that are new or have changed there.
        mappings: Vec<PortMappingUpdate>,
        /// Round of the second gateway's full synchronisations.
        round: u8,
        /// Reply channel.
        reply: Reply<TookInPortMappings>,
    },
    /// Sweeps the copies of a second gateway's port mappings. Replies with the number of those ended; fewer than `most`: all have been seen.
    SweepPortMappingCopies {
        /// The sweep.
        sweep: CopySweep,
        /// Maximum number of mappings to end.
        most: u32,
        /// Reply channel.
        reply: Reply<u32>,
    },
    /// Begins a capture, unless the worker's tables lack a name in its filter.
    Capture {
        /// Identifier, for [`Command::EndCapture`].
        id: u64,
        /// Sending end for the copies.
        tap: Box<Tap>,
        /// Reply channel, for the start or its refusal.
        reply: Reply<Result<(), NotKnown>>,
    },
    /// Make a port mapping, or change its end.
    MapPort {
        /// Request.
        request: Box<PortRequest>,
        /// Reply.
        reply: Reply<Result<Granted, PortRefusal>>,
    },
    /// Remove port mappings.
    UnmapPort {
        /// Inside endpoint; with port 0 all of its address and protocol.
        inside: Endpoint,
        /// Holder of the mappings, or an operator.
        holder: Holder,
        /// Reply: the number of mappings removed.
        reply: Reply<Result<u32, PortRefusal>>,
    },
    /// Outside address of a host's port mappings.
    MappedAddress {
        /// Host.
        host: IpAddr,
        /// Reply.
        reply: Reply<Result<IpAddr, PortRefusal>>,
    },
    /// List the port mappings.
    PortMappings {
        /// Host whose mappings are meant; all where there is none.
        host: Option<IpAddr>,
        /// Reply.
        reply: Reply<Vec<Granted>>,
    },
    /// Ends the capture with this identifier.
    EndCapture(u64),
    /// Drains the ports: everything that had arrived by them is processed, or handed off to its owner. A flood defers completion by the frames of
    /// one full ring.
    Drain(
        /// Dropped on completion; nothing is sent.
        Sender<()>,
    ),
    /// Changes a security association. What has retired goes back to the sender, who frees it. Before one that packets come in by is deleted,
    /// everything that other workers have handed off is processed.
    Sa {
        /// Change, with the memory that it needs.
        change: SaChange,
        /// Channel for the outcome.
        done: Sender<Result<Option<RetiredSa>, SaRefused>>,
    },
    /// Makes changes of dynamic sets.
    ChangeSets {
        /// Changes, in their order.
        changes: Arc<[SetChange]>,
        /// Reply channel for the outcome; none where nobody waits for it.
        reply: Option<Reply<Result<SetChanged, SetTrouble>>>,
    },
    /// Gives all elements of dynamic sets to another worker, which has begun anew.
    CopySets(CommandSender),
    /// Lists elements of a dynamic set, from a place on.
    SetElements {
        /// Name of the set.
        set: String,
        /// Place to start at.
        first: u32,
        /// Maximum number of places to visit.
        most: u32,
        /// Reply channel; none without such a set.
        reply: Reply<Option<Elements>>,
    },
    /// Pauses the publication of established flows to the fast path, or goes on with it, as the policy asks for.
    PausePublication(Pause),
    /// Requests a report of the counters.
    Report(Sender<Report>),
    /// Stops the worker.
    Stop,
}

/// Swap of a worker's tables, with its reload plan.
pub struct Swap {
    /// Tables to switch to.
    pub tables: Arc<Tables>,
    /// Reload plan from the tables in force.
    pub plan: ReloadPlan,
    /// Flow steering table with room for the flows of the new tables; none where the one in use has.
    pub steering: Option<Arc<SteeringTable>>,
}

/// Retired state of a worker.
pub struct Retired {
    pub(super) _tables: Arc<Tables>,
    pub(super) _applied: Option<Applied>,
}

/// Flows that match a query.
#[derive(Debug)]
pub struct FoundFlows {
    /// Matching flows, up to the limit of the query.
    pub flows: Vec<FlowView>,
    /// Entry of the first one beyond the limit, if there is one.
    pub beyond: Option<FlowId>,
    /// Flow table entry to go on from; none at the end.
    pub next: Option<FlowId>,
}

/// Subscribers of trees of queues.
pub struct FoundSubscribers {
    /// Subscribers; interfaces are places of the tables.
    pub subscribers: Vec<SubscriberReport>,
    /// Tables of the worker.
    pub tables: Arc<Tables>,
    /// Number to go on from; none at the end.
    pub next: Option<u32>,
}

/// A neighbour, as Linux knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Name of the neighbour's interface.
    pub interface: String,
    /// Address of the neighbour.
    pub address: Address,
    /// Resolution of the address.
    pub found: Found,
}

/// Resolution of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Resolved to this link-layer address.
    At(Mac),
    /// Unreachable: no answer from the neighbour.
    Nowhere,
    /// Removed from the neighbour table of Linux.
    Forgotten,
}

/// Event reported by a worker.
#[derive(Debug)]
pub enum WorkerEvent {
    /// Packets pending the resolution of a neighbour.
    Wanted {
        /// Name of the neighbour's interface.
        interface: String,
        /// Address of the neighbour.
        address: Address,
    },
    /// News of a tunnel.
    Tunnel {
        /// Number of the worker.
        worker: usize,
        /// Number of the tunnel's interface, which stays with its name.
        interface: u32,
        /// The news.
        event: SaEvent,
    },
    /// Port mappings made and ended.
    PortMappings(Vec<PortMappingNews>),
    /// News of a PPP session.
    Session {
        /// Name of the session's interface.
        interface: String,
        /// The news.
        news: News,
    },
    /// Elements that rules have added to dynamic sets.
    SetAdditions {
        /// Number of the worker.
        worker: usize,
        /// Elements, by the name of their set.
        elements: BTreeMap<String, Vec<Element>>,
    },
    /// Failure of a port, which is no longer used.
    PortFailed {
        /// Name of the port's interface.
        interface: String,
        /// Error of the port.
        error: PortError,
    },
    /// Worker that shares its core, for want of as many cores as workers.
    NotAlone {
        /// Number of the worker.
        worker: usize,
    },
    /// Panic of a worker, which has lost its flows and goes on.
    Panicked {
        /// Number of the worker.
        worker: usize,
        /// Message of the panic.
        message: String,
    },
}

/// Wakes a sleeping worker.
#[derive(Clone, Debug)]
pub struct WakeUp {
    event: Arc<OwnedFd>,
}

impl WakeUp {
    /// Creates a wake-up.
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

    /// Clears pending wake-ups, once the worker is awake.
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
    /// Sends a command and wakes the worker. Returns `false` if the worker has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.sender.send(command).is_ok();
        self.wake_up.wake();
        sent
    }
}

/// Receives the commands to one worker, and is its wake-up.
pub struct CommandReceiver {
    receiver: Receiver<Command>,
    wake_up: WakeUp,
}

impl CommandReceiver {
    /// Takes the next pending command, if any.
    pub(super) fn next(&self) -> Option<Command> {
        self.receiver.try_recv().ok()
    }

    /// Wake-up of the worker.
    pub fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }
}

/// Creates the command channel of a worker.
///
/// # Errors
/// The system refuses one more file descriptor.
pub fn command_channel() -> io::Result<(CommandSender, CommandReceiver)> {
    let (sender, receiver) = channel();
    let wake_up = WakeUp::new()?;
    Ok((CommandSender { sender, wake_up: wake_up.clone() }, CommandReceiver { receiver, wake_up }))
}
