//! The option negotiation automaton of PPP (RFC 1661, section 4): LCP and each network control protocol are one.

/// State (section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The lower layer is down, and nobody wants the layer up.
    #[default]
    Initial,
    /// The lower layer is down.
    Starting,
    /// The lower layer is up, and nobody wants the layer up.
    Closed,
    /// The peer has closed the layer, or does not answer.
    Stopped,
    /// A Terminate-Request has been sent, and the layer shall stay down.
    Closing,
    /// A Terminate-Request has been sent, and the layer may come up again.
    Stopping,
    /// A Configure-Request has been sent.
    ReqSent,
    /// A Configure-Ack has been received, none sent.
    AckRcvd,
    /// A Configure-Ack has been sent, none received.
    AckSent,
    /// Both requests have been acknowledged.
    Opened,
}

impl State {
    /// True if the restart timer runs.
    pub fn is_timed(self) -> bool {
        matches!(self, State::Closing | State::Stopping | State::ReqSent | State::AckRcvd | State::AckSent)
    }
}

/// Event (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lower layer is up.
    Up,
    /// The lower layer is down.
    Down,
    /// The layer is wanted up.
    Open,
    /// The layer is wanted down.
    Close,
    /// The restart timer has expired, and the counter is above zero (TO+).
    Timeout,
    /// The restart timer has expired for the last time (TO-).
    LastTimeout,
    /// An acceptable Configure-Request (RCR+).
    RequestGood,
    /// A Configure-Request to be refused (RCR-).
    RequestBad,
    /// A Configure-Ack (RCA).
    Ack,
    /// A Configure-Nak or Configure-Reject (RCN).
    Nak,
    /// A Terminate-Request (RTR).
    TerminateRequest,
    /// A Terminate-Ack (RTA).
    TerminateAck,
    /// A packet of an unknown code (RUC).
    UnknownCode,
    /// A Code-Reject or Protocol-Reject that the layer can live with (RXJ+).
    RejectGood,
    /// Likewise, one that it cannot (RXJ-).
    RejectBad,
    /// An Echo-Request, Echo-Reply or Discard-Request (RXR).
    Echo,
}

/// Actions of a transition (section 4.4), in a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions(u16);

impl Actions {
    /// None.
    pub const NONE: Actions = Actions(0);
    /// This-Layer-Up.
    pub const TLU: Actions = Actions(1);
    /// This-Layer-Down.
    pub const TLD: Actions = Actions(1 << 1);
    /// This-Layer-Started.
    pub const TLS: Actions = Actions(1 << 2);
    /// This-Layer-Finished.
    pub const TLF: Actions = Actions(1 << 3);
    /// Initialize-Restart-Count.
    pub const IRC: Actions = Actions(1 << 4);
    /// Zero-Restart-Count.
    pub const ZRC: Actions = Actions(1 << 5);
    /// Send-Configure-Request.
    pub const SCR: Actions = Actions(1 << 6);
    /// Send-Configure-Ack.
    pub const SCA: Actions = Actions(1 << 7);
    /// Send-Configure-Nak or Send-Configure-Reject.
    pub const SCN: Actions = Actions(1 << 8);
    /// Send-Terminate-Request.
    pub const STR: Actions = Actions(1 << 9);
    /// Send-Terminate-Ack.
    pub const STA: Actions = Actions(1 << 10);
    /// Send-Code-Reject.
    pub const SCJ: Actions = Actions(1 << 11);
    /// Send-Echo-Reply, where an Echo-Request has come.
    pub const SER: Actions = Actions(1 << 12);

    /// True if the set has all actions of another one.
    pub const fn has(self, other: Actions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }
}

/// Returns the actions and the next state (section 4.1). An event that cannot be in a state changes nothing.
pub fn next(state: State, event: Event) -> (Actions, State) {
    use Actions as A;
    use State::{AckRcvd, AckSent, Closed, Closing, Initial, Opened, ReqSent, Starting, Stopped, Stopping};
    let restart = A::IRC.and(A::SCR);
    match (event, state) {
        (Event::Up, Initial) => (A::NONE, Closed),
        (Event::Up, Starting) => (restart, ReqSent),

        (Event::Down, Closed | Closing) => (A::NONE, Initial),
        (Event::Down, Stopped) => (A::TLS, Starting),
        (Event::Down, Stopping | ReqSent | AckRcvd | AckSent) => (A::NONE, Starting),
        (Event::Down, Opened) => (A::TLD, Starting),

        (Event::Open, Initial) => (A::TLS, Starting),
        (Event::Open, Closed) => (restart, ReqSent),
        (Event::Open, Closing) => (A::NONE, Stopping),

        (Event::Close, Starting) => (A::TLF, Initial),
        (Event::Close, Stopped) => (A::NONE, Closed),
        (Event::Close, Stopping) => (A::NONE, Closing),
        (Event::Close, ReqSent | AckRcvd | AckSent) => (A::IRC.and(A::STR), Closing),
        (Event::Close, Opened) => (A::TLD.and(A::IRC).and(A::STR), Closing),

        (Event::Timeout, Closing | Stopping) => (A::STR, state),
        (Event::Timeout, ReqSent | AckRcvd) => (A::SCR, ReqSent),
        (Event::Timeout, AckSent) => (A::SCR, AckSent),
        (Event::LastTimeout, Closing) => (A::TLF, Closed),
        (Event::LastTimeout, Stopping | ReqSent | AckRcvd | AckSent) => (A::TLF, Stopped),

        // In Closed, whatever comes is answered that the layer is closed.
        (Event::RequestGood | Event::RequestBad | Event::Ack | Event::Nak, Closed) => (A::STA, Closed),
        (Event::RequestGood, Stopped) => (restart.and(A::SCA), AckSent),
        (Event::RequestGood, ReqSent | AckSent) => (A::SCA, AckSent),
        (Event::RequestGood, AckRcvd) => (A::SCA.and(A::TLU), Opened),
        (Event::RequestGood, Opened) => (A::TLD.and(A::SCR).and(A::SCA), AckSent),
        (Event::RequestBad, Stopped) => (restart.and(A::SCN), ReqSent),
        (Event::RequestBad, ReqSent | AckSent) => (A::SCN, ReqSent),
        (Event::RequestBad, AckRcvd) => (A::SCN, AckRcvd),
        (Event::RequestBad, Opened) => (A::TLD.and(A::SCR).and(A::SCN), ReqSent),

        (Event::Ack | Event::Nak, Stopped) => (A::STA, Stopped),
        (Event::Ack, ReqSent) => (A::IRC, AckRcvd),
        (Event::Ack | Event::Nak, AckRcvd) => (A::SCR, ReqSent),
        (Event::Ack, AckSent) => (A::IRC.and(A::TLU), Opened),
        (Event::Ack | Event::Nak, Opened) => (A::TLD.and(A::SCR), ReqSent),
        (Event::Nak, ReqSent) => (restart, ReqSent),
        (Event::Nak, AckSent) => (restart, AckSent),

        (Event::TerminateRequest, Closed | Stopped | Closing | Stopping) => (A::STA, state),
        (Event::TerminateRequest, ReqSent | AckRcvd | AckSent) => (A::STA, ReqSent),
        (Event::TerminateRequest, Opened) => (A::TLD.and(A::ZRC).and(A::STA), Stopping),

        (Event::TerminateAck, Closing) => (A::TLF, Closed),
        (Event::TerminateAck, Stopping) => (A::TLF, Stopped),
        (Event::TerminateAck, AckRcvd) => (A::NONE, ReqSent),
        (Event::TerminateAck, Opened) => (A::TLD.and(A::SCR), ReqSent),

        (Event::UnknownCode, Initial | Starting) => (A::NONE, state),
        (Event::UnknownCode, _) => (A::SCJ, state),

        (Event::RejectGood, AckRcvd) => (A::NONE, ReqSent),
        (Event::RejectBad, Closed | Closing) => (A::TLF, Closed),
        (Event::RejectBad, Stopped | Stopping | ReqSent | AckRcvd | AckSent) => (A::TLF, Stopped),
        (Event::RejectBad, Opened) => (A::TLD.and(A::IRC).and(A::STR), Stopping),

        (Event::Echo, Opened) => (A::SER, Opened),
        _ => (A::NONE, state),
    }
}

#[cfg(test)]
mod tests;
