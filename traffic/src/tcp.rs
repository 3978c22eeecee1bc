//! One end of a TCP connection, reduced to realistic traffic: handshake, messages in segments, acknowledgements,
//! go-back-N, FIN and RST. The same for clients and servers.
//!
//! A message begins with its own length and that of the answer wanted, four bytes each, so that a server needs no other
//! state.

use std::net::IpAddr;

use wire::tcp::{Flags, Segment, TcpOption};
use wire::unit::Nanos;

use super::Side;

/// Addresses and ports of a connection, as seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) side: Side,
    pub(super) local: IpAddr,
    pub(super) lport: u16,
    pub(super) remote: IpAddr,
    pub(super) rport: u16,
}

/// A segment to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) flags: Flags,
    pub(super) seq: u32,
    pub(super) ack: u32,
    /// The first bytes of the data, if a message begins here.
    pub(super) header: Option<[u8; 8]>,
    /// Length of the data, in bytes.
    pub(super) len: usize,
}

/// Request of a client: bytes that it sends, at least 8, and bytes that it wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) send: u32,
    pub(super) want: u32,
}

const FULL_WINDOW: u32 = 40;
const MAX_RETRIES: u32 = 4;
const IDLE: Nanos = Nanos::from_secs(10);
const RETRANSMISSION: Nanos = Nanos::from_millis(400);

/// One end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    state: State,
    /// The first sequence number not acknowledged, the next to be sent, and the one behind all data.
    una: u32,
    nxt: u32,
    end: u32,
    /// Highest sequence number sent: the most that `nxt` has been.
    sent: u32,
    /// Sequence number at which the message being sent begins, and its header, if it is a request.
    message: Option<(u32, [u8; 8])>,
    /// The next sequence number expected.
    rcv: u32,
    fin: Fin,
    peer_fin: bool,
    mss: u32,
    /// Send window, in segments.
    window: u32,
    /// Segments received since the last acknowledgement.
    pending: u32,
    retries: u32,
    role: Role,
    /// Time of the next timeout.
    pub(super) deadline: Nanos,
    /// Time of the one valid timer.
    pub(super) timer: Nanos,
    /// Time at which the last segment will have left.
    pub(super) busy_until: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SynSent,
    SynReceived,
    Open,
    Gone,
}

/// Our own FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    Unwanted,
    Wanted,
    Sent,
    Acknowledged,
}

#[derive(Clone, Debug)]
enum Role {
    /// Exchanges to come, last one first, and number of bytes still missing of the answer.
    Client { exchanges: Vec<Exchange>, missing: u32 },
    /// Number of bytes missing of the request, and length of its answer.
    Server { missing: u32, answer: u32 },
}

impl Endpoint {
    /// An end that opens a connection for `exchanges`, of which the last comes first.
    pub(super) fn client(initial: u32, exchanges: Vec<Exchange>) -> Endpoint {
        let role = Role::Client { exchanges, missing: 0 };
        Endpoint { state: State::SynSent, ..Endpoint::new(initial, role) }
    }

    /// An end that waits for a SYN.
    pub(super) fn server(initial: u32) -> Endpoint {
        Endpoint::new(initial, Role::Server { missing: 0, answer: 0 })
    }

    fn new(initial: u32, role: Role) -> Endpoint {
        Endpoint {
            state: State::SynReceived,
            una: initial,
            nxt: initial,
            end: initial.wrapping_add(1),
            sent: initial,
            message: None,
            rcv: 0,
            fin: Fin::Unwanted,
            peer_fin: false,
            mss: 1220,
            window: 10,
            pending: 0,
            retries: 0,
            role,
            deadline: Nanos(0),
            timer: Nanos::MAX,
            busy_until: Nanos(0),
        }
    }

    /// Sends the SYN.
    pub(super) fn open(&mut self, now: Nanos, out: &mut Vec<Outgoing>) {
        self.send_first(out);
        self.wind_up(now);
    }

    /// True if the connection is over and this end can be forgotten.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Gone || (self.fin == Fin::Acknowledged && self.peer_fin)
    }

    /// Processes a segment that arrived, and appends the segments to send to `out`.
    pub(super) fn receive(&mut self, now: Nanos, segment: &Segment<'_>, out: &mut Vec<Outgoing>) {
        let (header, flags) = (segment.header, segment.header.flags());
        if flags.contains(Flags::RST) {
            self.state = State::Gone;
            return;
        }
        if flags.contains(Flags::SYN) {
            self.receive_syn(segment, out);
            self.wind_up(now);
            return;
        }
        if self.state == State::SynSent || !flags.contains(Flags::ACK) {
            return;
        }
        self.state = State::Open;
        self.acknowledged(header.ack());
        let in_order = header.seq() == self.rcv;
        if in_order {
            self.rcv = self.rcv.wrapping_add(segment.payload.len() as u32);
            self.take_data(segment.payload);
            if flags.contains(Flags::FIN) {
                self.rcv = self.rcv.wrapping_add(1);
                self.peer_fin = true;
                self.want_fin();
            }
        }
        let told = segment.sequence_len() > 0;
        let before = out.len();
        self.send_more(out);
        if told && out.len() == before {
            // Every second segment, and at once what is out of order or ends something.
            self.pending += 1;
            let ends = flags.intersects(Flags::FIN.and(Flags::PSH));
            if self.pending >= 2 || !in_order || ends {
                self.send(Flags::ACK, 0, out);
            }
        }
        self.wind_up(now);
    }

    /// Handles an expired deadline: retransmits or gives up.
    pub(super) fn time_out(&mut self, now: Nanos, out: &mut Vec<Outgoing>) {
        if self.una == self.nxt || self.retries == MAX_RETRIES {
            self.state = State::Gone;
            return;
        }
        self.retries += 1;
        self.nxt = self.una;
        self.window = 2;
        if self.fin == Fin::Sent {
            self.fin = Fin::Wanted;
        }
        match self.state {
            State::SynSent | State::SynReceived => self.send_first(out),
            State::Open => self.send_more(out),
            State::Gone => {}
        }
        self.wind_up(now);
    }

    fn receive_syn(&mut self, segment: &Segment<'_>, out: &mut Vec<Outgoing>) {
        let header = segment.header;
        for option in segment.options().flatten() {
            if let TcpOption::Mss(mss) = option {
                self.mss = u32::from(mss).clamp(200, 1460);
            }
        }
        let is_answer = header.flags().contains(Flags::ACK);
        match self.state {
            State::SynReceived if !is_answer => {
                self.rcv = header.seq().wrapping_add(1);
                self.nxt = self.una;
                self.send_first(out);
            }
            State::SynSent if is_answer && header.ack() == self.nxt => {
                self.rcv = header.seq().wrapping_add(1);
                self.state = State::Open;
                self.acknowledged(header.ack());
                self.send(Flags::ACK, 0, out);
                self.next_exchange();
                self.send_more(out);
            }
            // A SYN-ACK again: our ACK was lost.
            State::Open if is_answer => self.send(Flags::ACK, 0, out),
            _ => {}
        }
    }

    /// Sends SYN or SYN-ACK.
    fn send_first(&mut self, out: &mut Vec<Outgoing>) {
        let (flags, ack) = match self.state {
            State::SynSent => (Flags::SYN, 0),
            _ => (Flags::SYN_ACK, self.rcv),
        };
        out.push(Outgoing { flags, seq: self.nxt, ack, header: None, len: 0 });
        self.advance(1);
    }

    fn acknowledged(&mut self, ack: u32) {
        let (new, outstanding) = (ack.wrapping_sub(self.una), self.sent.wrapping_sub(self.una));
        if new == 0 || new > outstanding {
            return;
        }
        if self.nxt.wrapping_sub(self.una) < new {
            // For what was sent before we went back.
            self.nxt = ack;
        }
        self.una = ack;
        self.retries = 0;
        self.window = (self.window + 1).min(FULL_WINDOW);
        if self.fin != Fin::Unwanted && ack == self.end.wrapping_add(1) {
            self.fin = Fin::Acknowledged;
        }
    }

    /// Moves on by `len` sequence numbers that have been sent.
    fn advance(&mut self, len: u32) {
        self.nxt = self.nxt.wrapping_add(len);
        if self.nxt.wrapping_sub(self.una) > self.sent.wrapping_sub(self.una) {
            self.sent = self.nxt;
        }
    }

    fn take_data(&mut self, data: &[u8]) {
        let len = data.len() as u32;
        match &mut self.role {
            _ if len == 0 => {}
            Role::Client { missing, .. } => {
                *missing = missing.saturating_sub(len);
                if *missing == 0 {
                    self.next_exchange();
                }
            }
            Role::Server { missing, answer } => {
                if *missing == 0 {
                    let word = |at: usize| {
                        data.get(at..)
                            .and_then(<[u8]>::first_chunk)
                            .map_or(0, |four| u32::from_be_bytes(*four))
                    };
                    (*missing, *answer) = (word(0), word(4));
                }
                *missing = missing.saturating_sub(len);
                if *missing == 0 {
                    // Bounded, since the bytes that say so may come from anywhere.
                    self.end = self.end.wrapping_add((*answer).min(1 << 24));
                    self.message = None;
                }
            }
        }
    }

    /// Begins the client's next exchange, or the end.
    fn next_exchange(&mut self) {
        let Role::Client { exchanges, missing } = &mut self.role else { return };
        match exchanges.pop() {
            Some(Exchange { send, want }) => {
                let ([a, b, c, d], [e, f, g, h]) = (send.to_be_bytes(), want.to_be_bytes());
                self.message = Some((self.end, [a, b, c, d, e, f, g, h]));
                self.end = self.end.wrapping_add(send);
                *missing = want;
            }
            None => self.want_fin(),
        }
    }

    fn want_fin(&mut self) {
        if self.fin == Fin::Unwanted {
            self.fin = Fin::Wanted;
        }
    }

    /// Sends data as far as the window lets, and then the FIN.
    fn send_more(&mut self, out: &mut Vec<Outgoing>) {
        if matches!(self.fin, Fin::Sent | Fin::Acknowledged) {
            return;
        }
        while self.nxt != self.end && self.nxt.wrapping_sub(self.una) < self.window * self.mss {
            let len = self.end.wrapping_sub(self.nxt).min(self.mss);
            let last = self.nxt.wrapping_add(len) == self.end;
            self.send(if last { Flags::ACK.and(Flags::PSH) } else { Flags::ACK }, len, out);
        }
        if self.fin == Fin::Wanted && self.nxt == self.end {
            self.send(Flags::ACK.and(Flags::FIN), 0, out);
            self.advance(1);
            self.fin = Fin::Sent;
        }
    }

    fn send(&mut self, flags: Flags, len: u32, out: &mut Vec<Outgoing>) {
        let header =
            self.message.filter(|(begin, _)| len > 0 && *begin == self.nxt).map(|(_, header)| header);
        out.push(Outgoing { flags, seq: self.nxt, ack: self.rcv, header, len: len as usize });
        self.advance(len);
        self.pending = 0;
    }

    /// Restarts the deadline.
    fn wind_up(&mut self, now: Nanos) {
        let wait = if self.una == self.nxt { IDLE } else { Nanos(RETRANSMISSION.0 << self.retries) };
        self.deadline = now + wait;
    }
}
