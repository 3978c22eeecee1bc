//! A control protocol of PPP: the automaton of RFC 1661 with its timer, and the packets that it exchanges.

use arrayvec::ArrayVec;
use wire::Nanos;
use wire::ppp::{Options, Packet, Protocol, code};

use super::automaton::{Actions, Event, State, next};
use super::outbox::Outbox;
use crate::verdict::Reason;

/// Restart timer (RFC 1661, section 4.6).
const RESTART: Nanos = Nanos::from_secs(3);
/// Pause before a layer whose peer has not answered asks again, while the link lasts: longer than ten restarts, so that
/// two layers that nobody answers are seen to have ended both.
const PAUSE: Nanos = Nanos::from_secs(60);
/// Most Configure-Requests in a row.
const MAX_CONFIGURE: u8 = 10;
/// Most Terminate-Requests in a row.
const MAX_TERMINATE: u8 = 2;
/// Most Configure-Naks in a row; then options are rejected.
const MAX_FAILURE: u8 = 5;

/// Options of a request: longer ones than any that are known.
pub(super) const MOST_OPTIONS: usize = 256;

/// Options, one behind the other.
pub(super) type OptionBytes = ArrayVec<u8, MOST_OPTIONS>;

/// Answer to one option of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The value is accepted.
    Ack,
    /// This value would be.
    Nak(ArrayVec<u8, 16>),
    /// No value is.
    Reject,
}

/// Options of a control protocol, and what they mean.
pub(super) trait Negotiation {
    /// Its protocol number.
    const PROTOCOL: Protocol;

    /// The options of the next Configure-Request.
    fn request(&mut self, options: &mut OptionBytes);

    /// Begins to look at a Configure-Request of the peer.
    fn begin(&mut self);

    /// Answers an option of the peer's request.
    fn answer(&mut self, kind: u8, value: &[u8]) -> Answer;

    /// An option that the request lacks, and must have.
    fn missing(&self) -> Option<ArrayVec<u8, 16>> {
        None
    }

    /// The peer proposes another value of an option. False if there is no other.
    fn nak(&mut self, kind: u8, value: &[u8]) -> bool;

    /// The peer knows nothing of an option. False if the layer cannot do without.
    fn reject(&mut self, kind: u8) -> bool;
}

/// One control protocol.
#[derive(Debug)]
pub(super) struct Control<N> {
    pub(super) options: N,
    state: State,
    /// Transmissions left.
    restarts: u8,
    failures: u8,
    /// Identifier of the last packet.
    id: u8,
    /// Options of the last Configure-Request, and its identifier.
    requested: (u8, OptionBytes),
    due: Option<Nanos>,
    was_open: bool,
}

impl<N: Negotiation> Control<N> {
    pub(super) fn new(options: N) -> Control<N> {
        Control {
            options,
            state: State::Initial,
            restarts: 0,
            failures: 0,
            id: 0,
            requested: (0, OptionBytes::new()),
            due: None,
            was_open: false,
        }
    }

    /// True if both requests have been acknowledged.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Opened
    }

    /// State.
    pub(super) fn state(&self) -> State {
        self.state
    }

    /// True if the protocol has ended: both sides have had it and one has closed it, or the peer knows nothing of it.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Stopped | State::Closed)
    }

    /// True if both requests have ever been acknowledged.
    pub(super) fn was_open(&self) -> bool {
        self.was_open
    }

    /// Time of the next transmission; `None` while nothing is awaited.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// An event without a packet.
    pub(super) fn event(&mut self, event: Event, now: Nanos, out: &mut Outbox) -> Actions {
        self.take(event, now, None, out)
    }

    /// Lets the restart timer expire, or the pause behind its last time end.
    pub(super) fn expire(&mut self, now: Nanos, out: &mut Outbox) -> Actions {
        if self.state == State::Stopped {
            self.event(Event::Down, now, out);
            return self.event(Event::Up, now, out);
        }
        let event = if self.restarts > 0 { Event::Timeout } else { Event::LastTimeout };
        self.take(event, now, None, out)
    }

    /// Identifier of a further packet.
    pub(super) fn next_id(&mut self) -> u8 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    /// Takes a packet whose code all control protocols have, or that is unknown.
    ///
    /// # Errors
    /// The packet is malformed, or nobody has asked for it; or the peer insists on what cannot be.
    pub(super) fn receive(
        &mut self,
        packet: &Packet<'_>,
        now: Nanos,
        out: &mut Outbox,
    ) -> Result<Actions, Reason> {
        if matches!(self.state, State::Initial | State::Starting) {
            return Err(Reason::PppNotOpen);
        }
        let (own, requested) = (self.requested.0, &self.requested.1);
        match packet.code {
            code::CONFIGURE_REQUEST => self.configure(packet, now, out),
            code::CONFIGURE_ACK if packet.id == own && packet.data == requested.as_slice() => {
                self.failures = 0;
                Ok(self.take(Event::Ack, now, None, out))
            }
            code::CONFIGURE_NAK | code::CONFIGURE_REJECT if packet.id == own => {
                let mut is_left = true;
                for option in Options::of(packet.data) {
                    let option = option.map_err(|_| Reason::PppMalformed)?;
                    is_left &= match packet.code {
                        code::CONFIGURE_NAK => self.options.nak(option.kind, option.value),
                        _ => self.options.reject(option.kind),
                    };
                }
                if !is_left {
                    return Err(Reason::PppAddress);
                }
                Ok(self.take(Event::Nak, now, None, out))
            }
            code::CONFIGURE_ACK | code::CONFIGURE_NAK | code::CONFIGURE_REJECT => Err(Reason::PppControl),
            code::TERMINATE_REQUEST => Ok(self.take(Event::TerminateRequest, now, Some((packet, &[])), out)),
            code::TERMINATE_ACK => Ok(self.take(Event::TerminateAck, now, None, out)),
            // Of codes that are sent here none can be done without.
            code::CODE_REJECT => {
                let is_needed = packet.data.first().is_some_and(|code| *code <= code::CODE_REJECT);
                let event = if is_needed { Event::RejectBad } else { Event::RejectGood };
                Ok(self.take(event, now, None, out))
            }
            _ => Ok(self.take(Event::UnknownCode, now, Some((packet, &[])), out)),
        }
    }

    /// Answers a Configure-Request.
    fn configure(&mut self, packet: &Packet<'_>, now: Nanos, out: &mut Outbox) -> Result<Actions, Reason> {
        if packet.data.len() > MOST_OPTIONS || Options::of(packet.data).any(|option| option.is_err()) {
            return Err(Reason::PppMalformed);
        }
        let (mut naks, mut rejects) = (OptionBytes::new(), OptionBytes::new());
        self.options.begin();
        for option in Options::of(packet.data).flatten() {
            let too_often = self.failures >= MAX_FAILURE;
            match self.options.answer(option.kind, option.value) {
                Answer::Ack => {}
                Answer::Nak(value) if !too_often => {
                    let _ = naks.try_extend_from_slice(&value);
                }
                Answer::Nak(_) | Answer::Reject => {
                    let _ = rejects.try_extend_from_slice(option.bytes);
                }
            }
        }
        if let Some(missing) = self.options.missing() {
            let _ = naks.try_extend_from_slice(&missing);
        }
        let (code, bytes) = match (rejects.is_empty(), naks.is_empty()) {
            (true, true) => (code::CONFIGURE_ACK, packet.data),
            (true, false) => (code::CONFIGURE_NAK, naks.as_slice()),
            (false, _) => (code::CONFIGURE_REJECT, rejects.as_slice()),
        };
        let event = match code {
            code::CONFIGURE_ACK => Event::RequestGood,
            code::CONFIGURE_NAK => {
                self.failures = self.failures.saturating_add(1);
                Event::RequestBad
            }
            _ => Event::RequestBad,
        };
        let answer = Packet { code, ..*packet };
        Ok(self.take(event, now, Some((&answer, bytes)), out))
    }

    /// Makes a transition. `answer` is the packet that is answered, or rejected, and the options of the answer.
    fn take(
        &mut self,
        event: Event,
        now: Nanos,
        answer: Option<(&Packet<'_>, &[u8])>,
        out: &mut Outbox,
    ) -> Actions {
        let (actions, state) = next(self.state, event);
        if actions.has(Actions::IRC) {
            self.restarts = if actions.has(Actions::STR) { MAX_TERMINATE } else { MAX_CONFIGURE };
        }
        if actions.has(Actions::ZRC) {
            self.restarts = 0;
        }
        self.state = state;
        self.was_open |= state == State::Opened;
        if actions.has(Actions::SCR) {
            self.requested.1.clear();
            self.options.request(&mut self.requested.1);
            self.requested.0 = self.next_id();
            self.restarts = self.restarts.saturating_sub(1);
            out.control(N::PROTOCOL, code::CONFIGURE_REQUEST, self.requested.0, &[&self.requested.1]);
        }
        if actions.has(Actions::STR) {
            self.restarts = self.restarts.saturating_sub(1);
            let id = self.next_id();
            out.control(N::PROTOCOL, code::TERMINATE_REQUEST, id, &[]);
        }
        if let Some((packet, bytes)) = answer {
            if actions.has(Actions::SCA) || actions.has(Actions::SCN) {
                out.control(N::PROTOCOL, packet.code, packet.id, &[bytes]);
            }
            if actions.has(Actions::SCJ) {
                let header = wire::ppp::header(packet.code, packet.id, packet.data.len());
                let data = packet.data.get(..MOST_REJECTED).unwrap_or(packet.data);
                let id = self.next_id();
                out.control(N::PROTOCOL, code::CODE_REJECT, id, &[&header, data]);
            }
        }
        if actions.has(Actions::STA) {
            let id = answer.map_or(0, |(packet, _)| packet.id);
            out.control(N::PROTOCOL, code::TERMINATE_ACK, id, &[]);
        }
        let is_sent = actions.has(Actions::SCR) || actions.has(Actions::STR) || actions.has(Actions::ZRC);
        if event == Event::LastTimeout && state == State::Stopped {
            // Its peer may have it open: then nothing else would ever tell that this side has not.
            self.due = Some(now + PAUSE);
        } else if !state.is_timed() {
            self.due = None;
        } else if is_sent || self.due.is_none() || actions.has(Actions::IRC) {
            self.due = Some(now + RESTART);
        }
        actions
    }
}

/// Bytes of a rejected packet that are returned.
pub(super) const MOST_REJECTED: usize = 128;
