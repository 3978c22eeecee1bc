//! Authentication of a session's client: PAP (RFC 1334) and CHAP with MD5 (RFC 1994), on either side.

use md5::{Digest, Md5};
use policy::model::{Authentication, Ppp, PppRole};
use subtle::ConstantTimeEq;
use wire::Nanos;
use wire::ppp::{Packet, Protocol, chap, counted, pap};

use super::outbox::Outbox;
use super::random::Random;
use crate::verdict::Reason;

/// Time until a request or challenge is sent again.
const RESTART: Nanos = Nanos::from_secs(3);
/// Most times that it is sent.
const MOST_TRIES: u8 = 10;
/// Time that a side waits for the other to begin.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// Bytes of a challenge.
const CHALLENGE: usize = 16;

/// State of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Authentication is under way.
    Pending,
    /// Success, or no authentication.
    Done,
    /// Failure.
    Failed,
}

/// Authentication of one session.
#[derive(Debug)]
pub(super) struct Exchange {
    role: PppRole,
    /// Protocol, if there is one.
    protocol: Option<Protocol>,
    progress: Progress,
    /// Identifier of the last request or challenge, and the challenge.
    id: u8,
    challenge: [u8; CHALLENGE],
    tries: u8,
    due: Option<Nanos>,
    random: Random,
}

impl Exchange {
    pub(super) fn new(random: Random) -> Exchange {
        Exchange {
            role: PppRole::Client,
            protocol: None,
            progress: Progress::Pending,
            id: 0,
            challenge: [0; CHALLENGE],
            tries: 0,
            due: None,
            random,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Begins, once LCP is open: `demanded` is the protocol that the peer wants of a client.
    pub(super) fn begin(&mut self, ppp: &Ppp, demanded: Option<Protocol>, now: Nanos, out: &mut Outbox) {
        self.role = ppp.role;
        self.protocol = match (ppp.role, ppp.authentication) {
            (PppRole::Client, _) => demanded,
            (PppRole::Server, Authentication::None) => None,
            (PppRole::Server, Authentication::Pap) => Some(Protocol::PAP),
            (PppRole::Server, Authentication::Chap) => Some(Protocol::CHAP),
        };
        self.progress = if self.protocol.is_none() { Progress::Done } else { Progress::Pending };
        self.tries = 0;
        self.due = match (self.role, self.protocol) {
            (_, None) => None,
            (PppRole::Client, Some(Protocol::PAP)) | (PppRole::Server, Some(Protocol::CHAP)) => {
                self.send(ppp, now, out);
                self.due
            }
            _ => Some(now + PATIENCE),
        };
    }

    /// Forgets all: the link is down.
    pub(super) fn reset(&mut self) {
        (self.progress, self.protocol, self.due) = (Progress::Pending, None, None);
    }

    /// Sends a request, or a challenge, once more, or gives up.
    pub(super) fn expire(&mut self, ppp: &Ppp, now: Nanos, out: &mut Outbox) {
        let sends = matches!(
            (self.role, self.protocol),
            (PppRole::Client, Some(Protocol::PAP)) | (PppRole::Server, Some(Protocol::CHAP))
        );
        if sends && self.tries < MOST_TRIES {
            return self.send(ppp, now, out);
        }
        (self.progress, self.due) = (Progress::Failed, None);
    }

    fn send(&mut self, ppp: &Ppp, now: Nanos, out: &mut Outbox) {
        self.tries += 1;
        self.id = self.id.wrapping_add(1);
        self.due = Some(now + RESTART);
        if self.role == PppRole::Client {
            let (user, password) = (ppp.user.as_bytes(), ppp.password.expose());
            let lengths = [user.len() as u8, password.len() as u8];
            let parts: [&[u8]; 4] = [&lengths[..1], user, &lengths[1..], password];
            return out.control(Protocol::PAP, pap::REQUEST, self.id, &parts);
        }
        let (first, second) = self.challenge.split_at_mut(CHALLENGE / 2);
        first.copy_from_slice(&self.random.number().to_be_bytes());
        second.copy_from_slice(&self.random.number().to_be_bytes());
        let parts: [&[u8]; 3] = [&[CHALLENGE as u8], &self.challenge, name(ppp).as_bytes()];
        out.control(Protocol::CHAP, chap::CHALLENGE, self.id, &parts);
    }

    /// Takes a packet of PAP or CHAP.
    ///
    /// # Errors
    /// The packet is malformed, or of another protocol than agreed on; nobody has asked for it; or it is a wrong password.
    pub(super) fn receive(
        &mut self,
        ppp: &Ppp,
        protocol: Protocol,
        packet: &Packet<'_>,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        if self.protocol != Some(protocol) {
            return Err(Reason::PppNotOpen);
        }
        match (self.role, protocol, packet.code) {
            (PppRole::Client, Protocol::CHAP, chap::CHALLENGE) => {
                let (challenge, _) = counted(packet.data).ok_or(Reason::PppMalformed)?;
                let value = response(packet.id, ppp.password.expose(), challenge);
                self.id = packet.id;
                let parts: [&[u8]; 3] = [&[value.len() as u8], &value, ppp.user.as_bytes()];
                out.control(Protocol::CHAP, chap::RESPONSE, packet.id, &parts);
                Ok(())
            }
            (PppRole::Client, Protocol::CHAP, chap::SUCCESS) | (PppRole::Client, Protocol::PAP, pap::ACK)
                if packet.id == self.id =>
            {
                (self.progress, self.due) = (Progress::Done, None);
                Ok(())
            }
            (PppRole::Client, Protocol::CHAP, chap::FAILURE) | (PppRole::Client, Protocol::PAP, pap::NAK)
                if packet.id == self.id =>
            {
                (self.progress, self.due) = (Progress::Failed, None);
                Err(Reason::PppAuthentication)
            }
            (PppRole::Server, Protocol::CHAP, chap::RESPONSE) if packet.id == self.id => {
                let (value, user) = counted(packet.data).ok_or(Reason::PppMalformed)?;
                let own = response(packet.id, ppp.password.expose(), &self.challenge);
                self.conclude(compared(ppp, &own, value, user), protocol, packet.id, out)
            }
            (PppRole::Server, Protocol::PAP, pap::REQUEST) => {
                let (user, rest) = counted(packet.data).ok_or(Reason::PppMalformed)?;
                let (password, _) = counted(rest).ok_or(Reason::PppMalformed)?;
                let outcome = compared(ppp, ppp.password.expose(), password, user);
                self.conclude(outcome, protocol, packet.id, out)
            }
            _ => Err(Reason::PppControl),
        }
    }

    /// Tells the client of the outcome. Of one that asks again a failure stays.
    fn conclude(
        &mut self,
        outcome: Progress,
        protocol: Protocol,
        id: u8,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let is_right = outcome == Progress::Done && self.progress != Progress::Failed;
        let code = match (protocol, is_right) {
            (Protocol::PAP, true) => pap::ACK,
            (Protocol::PAP, false) => pap::NAK,
            (_, true) => chap::SUCCESS,
            (_, false) => chap::FAILURE,
        };
        // PAP has a message with its length in front, CHAP one to the end of the packet.
        let message: &[u8] = if protocol == Protocol::PAP { &[0] } else { &[] };
        out.control(protocol, code, id, &[message]);
        self.due = None;
        if is_right {
            self.progress = Progress::Done;
            return Ok(());
        }
        self.progress = Progress::Failed;
        Err(Reason::PppAuthentication)
    }
}

/// Compares what a client has sent with what it is to know. A password whose file has not been read is nobody's.
fn compared(ppp: &Ppp, own: &[u8], value: &[u8], user: &[u8]) -> Progress {
    let is_right = bool::from(own.ct_eq(value)) && user == ppp.user.as_bytes();
    if is_right && !ppp.password.is_empty() { Progress::Done } else { Progress::Failed }
}

/// Name of a server.
pub(super) fn name(ppp: &Ppp) -> &str {
    if ppp.ac_name.is_empty() { "wirerate" } else { &ppp.ac_name }
}

/// Response to a challenge (RFC 1994, section 4.1).
fn response(id: u8, secret: &[u8], challenge: &[u8]) -> [u8; 16] {
    Md5::new().chain_update([id]).chain_update(secret).chain_update(challenge).finalize().into()
}
