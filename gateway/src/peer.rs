//! Link by which two gateways hand frames over to one another: VXLAN (RFC 7348) over UDP, between the addresses of their synchronisation.
//!
//! All workers send by one socket, the first one receives. A datagram of another sender than the second gateway, without a VXLAN header, or of an
//! interface that is not here, is refused and counted. Nobody waits: what the socket does not take is the worker's to drop. The kernel
//! fragments datagrams that are larger than the link's MTU, and puts them together.
//!
//! Frames are in the clear, and who can send from the second gateway's address on that link can have frames processed as though they had arrived
//! by any interface: the link must be the two gateways' alone.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dataplane::peer::{Handover, note_taken};
use dataplane::stage::parse::vlan;
use dataplane::tables::{Hearing, Tables};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use wire::ethernet::{self, Mac};
use wire::{BATCH, Batch, Frame, LinkKind, Nanos, Pool, PortId, vxlan};

/// Bytes of datagrams that the kernel keeps for the worker, as far as the system allows: a thousand full frames.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Bytes of a datagram, at most.
const LONGEST: usize = 1 << 16;

/// Socket of the link.
#[derive(Debug)]
pub struct PeerSocket(UdpSocket);

/// Link to the second gateway.
#[derive(Clone, Debug)]
pub struct PeerLink {
    socket: Arc<PeerSocket>,
    peer: SocketAddr,
    standing: Arc<Standing>,
}

/// State of handing over, which the synchronisation sets and workers read, and the workers' counts.
#[derive(Debug, Default)]
pub struct Standing {
    handover: AtomicU8,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    handed_over: AtomicU64,
    lost: AtomicU64,
    taken: AtomicU64,
    refused: [AtomicU64; Refused::ALL.len()],
}

/// Reason for refusing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The datagram is not from the second gateway's address.
    Sender,
    /// The datagram has no VXLAN header, or no Ethernet frame behind it.
    Header,
    /// The network identifier is of no Ethernet interface here.
    Interface,
    /// The frame is longer than frames here, or the worker has no free one.
    Room,
}

impl Refused {
    /// All reasons.
    pub const ALL: [Refused; 4] = [Refused::Sender, Refused::Header, Refused::Interface, Refused::Room];

    /// The reason in words.
    pub const fn words(self) -> &'static str {
        match self {
            Refused::Sender => "another sender than the second gateway",
            Refused::Header => "no VXLAN header with a frame",
            Refused::Interface => "no interface of that name here",
            Refused::Room => "no room for the frame",
        }
    }
}

impl Standing {
    /// Packets that workers hand over.
    #[inline]
    pub fn handover(&self) -> Handover {
        match self.handover.load(Ordering::Relaxed) {
            0 => Handover::None,
            1 => Handover::Owned,
            _ => Handover::All,
        }
    }

    /// Sets the packets that workers hand over from their next turn on.
    pub fn set(&self, handover: Handover) {
        self.handover.store(handover as u8, Ordering::Relaxed);
    }

    /// Frames handed over so far.
    pub fn handed_over(&self) -> u64 {
        self.counts.handed_over.load(Ordering::Relaxed)
    }

    /// Frames that the link has not taken so far.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Frames taken from the second gateway so far.
    pub fn taken(&self) -> u64 {
        self.counts.taken.load(Ordering::Relaxed)
    }

    /// Datagrams refused so far, by reason.
    pub fn refused(&self, reason: Refused) -> u64 {
        self.counts.refused[reason as usize].load(Ordering::Relaxed)
    }
}

impl PeerSocket {
    /// Opens the socket at an address of this gateway.
    ///
    /// # Errors
    /// The address is not there, or another program has the port.
    pub fn open(own: IpAddr) -> io::Result<PeerSocket> {
        let socket = UdpSocket::bind((own, vxlan::PORT))?;
        socket.set_nonblocking(true)?;
        // A smaller one loses frames in bursts, no more.
        let _ = set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        Ok(PeerSocket(socket))
    }

    /// Address of this gateway.
    pub fn address(&self) -> io::Result<IpAddr> {
        self.0.local_addr().map(|at| at.ip())
    }
}

impl PeerLink {
    /// Link to the gateway at an address.
    pub fn new(socket: Arc<PeerSocket>, peer: IpAddr, standing: Arc<Standing>) -> PeerLink {
        PeerLink { socket, peer: SocketAddr::new(peer, vxlan::PORT), standing }
    }

    /// Packets that are handed over now.
    #[inline]
    pub(crate) fn handover(&self) -> Handover {
        self.standing.handover()
    }

    /// File descriptor that is readable when frames have come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }

    /// Sends a frame, which is as it was before afterwards.
    ///
    /// # Errors
    /// The link does not take the frame now.
    pub(crate) fn send(&self, frame: &mut Frame, tables: &Tables) -> io::Result<()> {
        let sent = self.try_send(frame, tables);
        let count = if sent.is_ok() { &self.standing.counts.handed_over } else { &self.standing.counts.lost };
        count.fetch_add(1, Ordering::Relaxed);
        sent
    }

    fn try_send(&self, frame: &mut Frame, tables: &Tables) -> io::Result<()> {
        let interface = tables.interface(frame.meta.ingress).map(|interface| interface.root);
        let root = interface.and_then(|root| tables.interface(root)).ok_or(ErrorKind::NotFound)?;
        let header = frame.push_front(vxlan::HEADER_LEN).ok_or(ErrorKind::OutOfMemory)?;
        header.copy_from_slice(&vxlan::header(root.vni));
        let sent = self.socket.0.send_to(frame.bytes(), self.peer);
        frame.pull_front(vxlan::HEADER_LEN);
        sent.map(|_| ())
    }

    /// Puts frames that have come into a batch, as many as fit. Returns the number of datagrams.
    pub(crate) fn receive(&self, intake: &mut Intake<'_>) -> usize {
        let mut found = 0;
        while found < BATCH && !intake.batch.is_full() {
            let (len, from) = match self.socket.0.recv_from(intake.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            found += 1;
            let counts = &self.standing.counts;
            let taken = if from.ip() == self.peer.ip() { intake.take(len) } else { Err(Refused::Sender) };
            let count = match taken {
                Ok(()) => &counts.taken,
                Err(reason) => &counts.refused[reason as usize],
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        found
    }
}

/// Memory that a worker receives datagrams with.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer(vec![0; LONGEST].into())
    }
}

/// Destination of frames that the second gateway hands over.
pub(crate) struct Intake<'a> {
    batch: &'a mut Batch,
    pool: &'a mut Pool,
    tables: &'a Tables,
    buffer: &'a mut [u8],
    now: Nanos,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(
        batch: &'a mut Batch,
        pool: &'a mut Pool,
        tables: &'a Tables,
        buffer: &'a mut Buffer,
        now: Nanos,
    ) -> Intake<'a> {
        Intake { batch, pool, tables, buffer: &mut buffer.0, now }
    }

    /// Takes the datagram of so many bytes in the buffer.
    fn take(&mut self, len: usize) -> Result<(), Refused> {
        let payload = self.buffer.get(..len).unwrap_or_default();
        let packet = vxlan::parse(payload).ok_or(Refused::Header)?;
        let layer = ethernet::parse(packet.frame).map_err(|_| Refused::Header)?;
        let mut places = (0..).map(PortId).zip(&self.tables.interfaces);
        // Where the header is of no Ethernet, the frame cannot have come so.
        let (place, root) = places
            .find(|(place, own)| own.vni == packet.vni && own.root == *place)
            .filter(|(_, own)| own.link == LinkKind::Ethernet && own.tunnel.is_none() && own.ppp.is_none())
            .ok_or(Refused::Interface)?;
        let interface = vlan(place, &root.vlans, &layer.tags).and_then(|id| self.tables.interface(id));
        let mut frame = self.pool.take().ok_or(Refused::Room)?;
        if !frame.fill(packet.frame) {
            self.pool.put(frame);
            return Err(Refused::Room);
        }
        // It was sent to the second gateway's card.
        if let Some(own) = interface.filter(|own| own.hearing == Hearing::Own) {
            set_destination(&mut frame, own.mac);
        }
        (frame.meta.ingress, frame.meta.received) = (place, self.now);
        note_taken(&mut frame.meta);
        self.batch.push(frame).map_err(|frame| {
            self.pool.put(frame);
            Refused::Room
        })
    }
}

fn set_destination(frame: &mut Frame, mac: Mac) {
    if let Some(bytes) = frame.bytes_mut().get_mut(..6) {
        bytes.copy_from_slice(&mac.0);
    }
}

#[cfg(test)]
mod tests;
