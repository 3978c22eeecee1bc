//! A line of ATM cells over UDP: each datagram has one cell of 53 bytes or more, end to end, with their headers as on any line.
//!
//! Cells are received as frames, each behind its stand-in ([`wire::atm::stand_in`]); the pipeline puts them together, or switches them.
//! Packets to send are put into cells here; cells that were switched leave as they are. Cells of one virtual channel must stay in order, so that one worker receives all, and each sends by itself: cells of
//! one packet leave together, in as few datagrams as [`MOST_CELLS`] allows.
//!
//! Channels of one line share its socket: the interface whose line it is receives for all, and each sends for itself.
//!
//! A datagram that is lost is as many cells lost, which the pipeline notices. An error that the other end's machine reports, such as nobody
//! listening there, is no error of the line.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use wire::aal5::Segmentation;
use wire::atm::{CELL_LEN, cell_of, stand_in};
use wire::rfc2684::Channel;
use wire::{Batch, Frame, LinkKind, Pool, Port, PortError, Received};

use crate::line::{Line, Statistics, is_busy};
use crate::refusal::{Cause, OpenError};
use crate::spec::Driver;
use crate::sys::clock;

/// Most cells of a datagram: with the headers of IPv6 and UDP they fit an Ethernet frame of 1500 bytes.
pub const MOST_CELLS: usize = 27;

/// Socket of a line of cells.
#[derive(Clone, Debug)]
pub struct CellSocket(Arc<UdpSocket>);

impl CellSocket {
    /// Opens the socket of the line of the interface `name`, between its own address and port and those of the other end, the only one
    /// that cells are taken from.
    ///
    /// # Errors
    /// The address is not the machine's own, or in use.
    pub fn open(name: &str, local: SocketAddr, remote: SocketAddr) -> Result<CellSocket, OpenError> {
        let open = || {
            let socket = UdpSocket::bind(local).map_err(Cause::step("bind the socket of the cells"))?;
            socket.connect(remote).map_err(Cause::step("connect the socket of the cells"))?;
            socket.set_nonblocking(true).map_err(Cause::step("set up the socket of the cells"))?;
            Ok(CellSocket(Arc::new(socket)))
        };
        open().map_err(|cause| OpenError::of(Driver::Cells, name, cause))
    }
}

/// Cells that an interface receives from the socket of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellsIn {
    /// Cells of all channels: the line is its own.
    All,
    /// None: another interface receives them for it.
    None,
}

/// Specification of an interface on a line of cells.
#[derive(Clone, Debug)]
pub struct CellSpec {
    /// Name of the interface.
    pub name: String,
    /// Cells received.
    pub receives: CellsIn,
    /// Virtual channel, and encapsulation of packets sent.
    pub channel: Channel,
    /// Link kind of the interface: IP routed, Ethernet bridged.
    pub kind: LinkKind,
}

/// One worker's end of a line of cells.
#[derive(Debug)]
pub struct CellLine {
    name: String,
    channel: Channel,
    kind: LinkKind,
    socket: Arc<UdpSocket>,
    /// Of an end that receives no cells: a descriptor that is never readable.
    idle: Option<UnixDatagram>,
    /// A datagram, and how much of it has been taken.
    datagram: Box<[u8]>,
    taken: usize,
    filled: usize,
    statistics: Statistics,
}

impl CellSpec {
    /// Opens ends of the line for each of `workers`, of which the first receives.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn open(&self, socket: &CellSocket, workers: usize) -> Result<Vec<CellLine>, OpenError> {
        let line = |place: usize| {
            let receives = place == 0 && self.receives == CellsIn::All;
            Ok(CellLine {
                name: self.name.clone(),
                channel: self.channel,
                kind: self.kind,
                socket: Arc::clone(&socket.0),
                idle: if receives { None } else { Some(UnixDatagram::unbound()?) },
                datagram: vec![0; if receives { LONGEST } else { 0 }].into(),
                taken: 0,
                filled: 0,
                statistics: Statistics::default(),
            })
        };
        let lines: io::Result<_> = (0..workers).map(line).collect();
        let cause = Cause::step("share the socket of the cells");
        lines.map_err(|error| OpenError::of(Driver::Cells, &self.name, cause(error)))
    }
}

/// Longest datagram of UDP.
const LONGEST: usize = 65_535;

impl CellLine {
    /// The next cell; `None` if there is none now.
    fn next(&mut self) -> io::Result<Option<[u8; CELL_LEN]>> {
        loop {
            let rest = self.datagram.get(self.taken..self.filled).unwrap_or_default();
            if let Some(cell) = rest.first_chunk() {
                self.taken += CELL_LEN;
                return Ok(Some(*cell));
            }
            if !rest.is_empty() {
                // No whole number of cells.
                self.statistics.unusable += 1;
            }
            (self.taken, self.filled) = (0, 0);
            match self.socket.recv(&mut self.datagram) {
                Ok(filled) => self.filled = filled,
                Err(error) if error.kind() == io::ErrorKind::Interrupted || is_of_peer(&error) => {}
                Err(error) if is_busy(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a frame's packet in its cells, or the cell that it is.
    fn send(&mut self, frame: &Frame) -> io::Result<()> {
        if let Some(cell) = cell_of(frame.bytes()) {
            return self.socket.send(cell).map(drop);
        }
        let Some((head, packet)) = self.channel.pdu(self.kind, frame.bytes()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let Some(mut cells) = Segmentation::new(self.channel.vc, head.bytes(), packet) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut datagram = [0; MOST_CELLS * CELL_LEN];
        while cells.len() > 0 {
            let mut filled = 0;
            for (place, cell) in datagram.chunks_exact_mut(CELL_LEN).zip(cells.by_ref()) {
                place.copy_from_slice(&cell);
                filled += CELL_LEN;
            }
            self.socket.send(datagram.get(..filled).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// True for what the machine of the other end has answered to an earlier datagram.
fn is_of_peer(error: &io::Error) -> bool {
    let answers = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EPROTO,
        libc::EMSGSIZE,
    ];
    error.raw_os_error().is_some_and(|error| answers.contains(&error))
}

impl CellLine {
    fn failed(&self, operation: &'static str, error: io::Error) -> PortError {
        PortError { port: self.name.clone(), operation, cause: Box::new(error) }
    }
}

impl Port for CellLine {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<Received, PortError> {
        if self.idle.is_some() {
            return Ok(Received::Nothing);
        }
        let (now, before) = (clock::now(), batch.len());
        while !batch.is_full() {
            let Some(mut frame) = pool.take() else { break };
            let cell = match self.next() {
                Ok(Some(cell)) => cell,
                Ok(None) => {
                    pool.put(frame);
                    break;
                }
                Err(error) => {
                    pool.put(frame);
                    return Err(self.failed("receive", error));
                }
            };
            frame.meta.received = now;
            let back = if frame.fill(&stand_in(&cell)) { batch.push(frame).err() } else { Some(frame) };
            if let Some(frame) = back {
                pool.put(frame);
            }
        }
        self.statistics.receive(&batch[before..]);
        match batch.len() - before {
            0 => Ok(Received::Nothing),
            frames => Ok(Received::Frames(frames)),
        }
    }

    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) -> Result<(), PortError> {
        while let Some(frame) = batch.first() {
            match self.send(frame) {
                Ok(()) => {
                    self.statistics.sent += 1;
                    self.statistics.sent_bytes += frame.len() as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.statistics.unsendable += 1,
                Err(error) if is_busy(&error) => {
                    self.statistics.refused += 1;
                    return Ok(());
                }
                Err(error) if is_of_peer(&error) => self.statistics.dropped += 1,
                Err(error) => return Err(self.failed("send", error)),
            }
            batch.drain_front(1).for_each(|frame| pool.put(frame));
        }
        Ok(())
    }
}

impl Line for CellLine {
    fn fd(&self) -> BorrowedFd<'_> {
        match &self.idle {
            Some(idle) => idle.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    fn reclaim(&mut self, _: &mut Pool) {}
}

#[cfg(test)]
mod tests {
    use wire::aal5::Reassembly;
    use wire::atm::{Cell, PayloadType};
    use wire::ethernet::{EtherType, Mac};
    use wire::rfc2684::Encapsulation;
    use wire::{Nanos, build};

    use super::*;

    const CHANNEL: &str = "8/35";

    /// Two lines of a worker each to one another, and a second worker of the first.
    fn lines(kind: LinkKind) -> (Vec<CellLine>, CellLine) {
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (here, there) = (any(), any());
        let open = |local, remote, workers| {
            let socket = CellSocket::open("dsl", local, remote).unwrap();
            spec(CHANNEL, CellsIn::All, kind).open(&socket, workers).unwrap()
        };
        (open(here, there, 2), open(there, here, 1).remove(0))
    }

    fn spec(vc: &str, receives: CellsIn, kind: LinkKind) -> CellSpec {
        let channel = Channel { vc: vc.parse().unwrap(), encapsulation: Encapsulation::Llc };
        CellSpec { name: "dsl".into(), receives, channel, kind }
    }

    fn sent(from: &mut CellLine, frame: &[u8]) {
        let (mut pool, mut batch) = (Pool::new(8, 4_096).unwrap(), Batch::new());
        assert!(batch.extend_from(&mut pool).unwrap().fill(frame));
        from.transmit(&mut batch, &mut pool).unwrap();
        assert!(batch.is_empty());
    }

    fn received(by: &mut CellLine) -> Vec<[u8; CELL_LEN]> {
        let (mut pool, mut batch, mut cells) = (Pool::new(256, 2_048).unwrap(), Batch::new(), Vec::new());
        while let Received::Frames(_) = by.receive(&mut batch, &mut pool).unwrap() {
            for frame in batch.drain() {
                assert!(frame.meta.received > Nanos(0));
                cells.push(*cell_of(frame.bytes()).unwrap());
                pool.put(frame);
            }
        }
        cells
    }

    #[test]
    fn a_packet_comes_out_of_its_cells_at_the_other_end() {
        for kind in [LinkKind::Ip, LinkKind::Ethernet] {
            let (mut here, mut there) = lines(kind);
            let link = || build::ethernet(Mac([2; 6]), Mac([4; 6]));
            for length in [0, 100, 3_000] {
                let packet = link().ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2);
                let frame = packet.payload(&vec![7; length]).to_vec();
                for line in &mut here {
                    sent(line, &frame);
                    let cells = received(&mut there);
                    let mut reassembly = Reassembly::new(4_000);
                    let mut pdus = Vec::new();
                    for cell in &cells {
                        let cell = Cell::of(cell).unwrap();
                        assert_eq!(cell.vc(), CHANNEL.parse().unwrap());
                        let PayloadType::User(last) = cell.payload_type() else { panic!() };
                        pdus.extend(reassembly.push(cell.payload(), last).unwrap().map(<[u8]>::to_vec));
                    }
                    assert_eq!(pdus.len(), 1);
                    let head = if kind == LinkKind::Ip { 14 } else { 0 };
                    assert!(pdus[0].ends_with(&frame[head..]));
                }
                // Only the first worker receives, and all of it.
                sent(&mut there, &frame);
                assert!(received(&mut here[1]).is_empty());
                assert!(!received(&mut here[0]).is_empty());
            }
        }
    }

    #[test]
    fn channels_of_a_line_share_its_socket_and_one_receives() {
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (here, there) = (any(), any());
        let socket = CellSocket::open("dsl", here, there).unwrap();
        let mut first = spec("8/35", CellsIn::All, LinkKind::Ip).open(&socket, 1).unwrap().remove(0);
        let mut second = spec("8/36", CellsIn::None, LinkKind::Ip).open(&socket, 1).unwrap().remove(0);
        assert!(CellSocket::open("other", here, there).is_err(), "one socket for each line");
        let socket = CellSocket::open("far", there, here).unwrap();
        let mut far = spec("8/36", CellsIn::All, LinkKind::Ip).open(&socket, 1).unwrap().remove(0);
        let packet =
            build::ethernet(Mac([2; 6]), Mac([4; 6])).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let frame = packet.udp(1, 2).to_vec();
        for (line, vci) in [(&mut second, 36), (&mut first, 35)] {
            sent(line, &frame);
            let cells = received(&mut far);
            assert_eq!(
                cells.iter().map(|cell| Cell::of(cell).unwrap().vc().vci).collect::<Vec<_>>(),
                [vci; 1]
            );
        }
        sent(&mut far, &frame);
        assert!(received(&mut second).is_empty());
        assert_eq!(received(&mut first).len(), 1);
    }

    #[test]
    fn a_cell_leaves_as_it_is() {
        let (mut here, mut there) = lines(LinkKind::Ip);
        let cell: [u8; CELL_LEN] = std::array::from_fn(|place| place as u8);
        for line in &mut here {
            sent(line, &stand_in(&cell));
            assert_eq!(received(&mut there), [cell]);
        }
    }

    #[test]
    fn datagrams_of_several_cells_and_of_no_whole_number() {
        let (mut here, there) = lines(LinkKind::Ip);
        there.socket.send(&[1; 3 * CELL_LEN + 20]).unwrap();
        there.socket.send(&[]).unwrap();
        there.socket.send(&[2; CELL_LEN]).unwrap();
        let cells = received(&mut here[0]);
        assert_eq!(cells.iter().map(|cell| cell[0]).collect::<Vec<_>>(), [1, 1, 1, 2]);
        assert_eq!((here[0].statistics().received, here[0].statistics().unusable), (4, 1));
    }

    #[test]
    fn nobody_at_the_other_end_is_no_error() {
        let (mut here, there) = lines(LinkKind::Ip);
        drop(there);
        let frame =
            build::ethernet(Mac([2; 6]), Mac([4; 6])).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let frame = frame.udp(1, 2).to_vec();
        for _ in 0..3 {
            sent(&mut here[0], &frame);
        }
        let counted = here[0].statistics();
        assert_eq!(counted.sent + counted.dropped, 3);
        assert!(received(&mut here[0]).is_empty());
    }

    #[test]
    fn what_is_no_ip_does_not_leave_by_a_routed_channel() {
        let (mut here, mut there) = lines(LinkKind::Ip);
        let mut arp = [0; 42];
        arp[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        sent(&mut here[0], &arp);
        assert_eq!(here[0].statistics().unsendable, 1);
        assert!(received(&mut there).is_empty());
    }
}
