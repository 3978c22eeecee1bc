//! Discovery of PPP over Ethernet (RFC 2516, section 5): a client finds an access concentrator, a server is one.
//!
//! A server remembers nothing of whom it has made an offer: its cookie, a keyed hash of the client's address, comes back with the request.

use arrayvec::ArrayVec;
use policy::model::{Ppp, PppRole};
use wire::Nanos;
use wire::ethernet::Mac;
use wire::pppoe::{Packet, Tags, code, tag};

use super::authentication::name;
use super::outbox::{Kind, Outbox};
use super::random::Random;
use crate::verdict::Reason;

/// First time until a packet is sent again; it doubles with each (section 8).
const RESTART: Nanos = Nanos::from_secs(1);
/// Most doublings.
const MOST_DOUBLINGS: u8 = 6;
/// Requests to one access concentrator, before another is looked for.
const MOST_REQUESTS: u8 = 4;

/// Longest value of a tag that is returned.
const MOST_TAG: usize = 128;

/// Value of a tag, to be returned.
type Value = ArrayVec<u8, MOST_TAG>;

/// Tags that count, of a discovery packet.
#[derive(Debug, Default)]
struct Found<'a> {
    service: Option<&'a [u8]>,
    has_service: bool,
    ac_name: Option<&'a [u8]>,
    unique: Option<&'a [u8]>,
    cookie: Option<&'a [u8]>,
    relay: Option<&'a [u8]>,
    has_error: bool,
}

impl<'a> Found<'a> {
    /// Reads the tags; `wanted` is the service that counts, if any does.
    fn of(payload: &'a [u8], wanted: &[u8]) -> Result<Found<'a>, Reason> {
        let mut found = Found::default();
        for item in Tags::of(payload) {
            let (kind, value) = item.map_err(|_| Reason::PppMalformed)?;
            match kind {
                tag::SERVICE_NAME => {
                    found.has_service |= wanted.is_empty() || value == wanted;
                    found.service = found.service.or(Some(value));
                }
                tag::AC_NAME => found.ac_name = Some(value),
                tag::HOST_UNIQ => found.unique = Some(value),
                tag::AC_COOKIE => found.cookie = Some(value),
                tag::RELAY_SESSION_ID => found.relay = Some(value),
                tag::SERVICE_NAME_ERROR | tag::AC_SYSTEM_ERROR | tag::GENERIC_ERROR => found.has_error = true,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// State of discovery. A session has one, in place, and nothing may be allocated for what an offer says.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum Discovery {
    /// Nothing is under way: a client begins at that time, a server waits for one.
    Waiting {
        /// Time at which a client begins.
        until: Option<Nanos>,
    },
    /// Access concentrators are asked for offers.
    Initiating {
        /// Packets sent.
        tries: u8,
        /// Time of the next.
        due: Nanos,
    },
    /// An access concentrator is asked for a session.
    Requesting {
        /// Packets sent.
        tries: u8,
        /// Time of the next.
        due: Nanos,
        /// Access concentrator.
        peer: Mac,
        /// Tags that it wants back: cookie, and a relay's.
        back: [Option<Value>; 2],
    },
    /// There is a session.
    Up {
        /// The other end.
        peer: Mac,
        /// Its identifier.
        session: u16,
    },
}

/// The gateway's own side of discovery.
pub(super) struct Own<'a> {
    /// Settings.
    pub(super) ppp: &'a Ppp,
    /// Number that tells a client's own exchange from others.
    pub(super) unique: u64,
    /// Generator of a server's numbers.
    pub(super) random: &'a mut Random,
    /// State of LCP above.
    pub(super) lcp: Layer,
    /// Place of the session.
    pub(super) place: u16,
    /// Time.
    pub(super) now: Nanos,
}

/// State of LCP on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Nothing has been agreed on.
    Fresh,
    /// LCP is open.
    Open,
}

/// Outcome of a discovery packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing more than an answer, if there is one.
    Nothing,
    /// A session has begun.
    Begun,
    /// The session has ended.
    Ended,
}

impl Discovery {
    /// Time of the next packet.
    pub(super) fn due(&self) -> Option<Nanos> {
        match self {
            Discovery::Waiting { until } => *until,
            Discovery::Initiating { due, .. } | Discovery::Requesting { due, .. } => Some(*due),
            Discovery::Up { .. } => None,
        }
    }

    /// The session and its other end.
    pub(super) fn session(&self) -> Option<(Mac, u16)> {
        match self {
            Discovery::Up { peer, session } => Some((*peer, *session)),
            _ => None,
        }
    }

    /// Begins, or sends a client's packet once more.
    pub(super) fn expire(&mut self, ppp: &Ppp, unique: u64, place: u16, now: Nanos, out: &mut Outbox) {
        match self {
            Discovery::Up { .. } => {}
            Discovery::Requesting { tries, due, peer, back } if *tries < MOST_REQUESTS => {
                *due = now + later(*tries);
                *tries += 1;
                out.address(place, *peer, 0);
                request(ppp, unique, back, out);
            }
            Discovery::Initiating { tries, due } => {
                *due = now + later(*tries);
                *tries = tries.saturating_add(1);
                initiate(ppp, unique, place, out);
            }
            Discovery::Waiting { .. } | Discovery::Requesting { .. } => {
                *self = Discovery::Initiating { tries: 1, due: now + later(0) };
                initiate(ppp, unique, place, out);
            }
        }
    }

    /// Takes a discovery packet of `from`.
    ///
    /// # Errors
    /// The packet is malformed, or for nobody here.
    pub(super) fn receive(
        &mut self,
        from: Mac,
        packet: &Packet<'_>,
        own: &mut Own<'_>,
        out: &mut Outbox,
    ) -> Result<Outcome, Reason> {
        let unknown = Err(Reason::PppSessionUnknown);
        if packet.code == code::PADT {
            return match self {
                Discovery::Up { peer, session } if *peer == from && *session == packet.session => {
                    Ok(Outcome::Ended)
                }
                _ => unknown,
            };
        }
        let found = Found::of(packet.payload, own.ppp.service.as_bytes())?;
        match own.ppp.role {
            PppRole::Client if found.unique != Some(&own.unique.to_be_bytes()) => unknown,
            PppRole::Client => self.offered(from, packet, &found, own, out),
            PppRole::Server => self.asked(from, packet, &found, own, out),
        }
    }

    /// Takes the answer of an access concentrator.
    fn offered(
        &mut self,
        from: Mac,
        packet: &Packet<'_>,
        found: &Found<'_>,
        own: &Own<'_>,
        out: &mut Outbox,
    ) -> Result<Outcome, Reason> {
        let Own { ppp, unique, place, now, .. } = *own;
        match (packet.code, &*self) {
            (code::PADO, Discovery::Initiating { .. }) => {
                let is_named = ppp.ac_name.is_empty() || found.ac_name == Some(ppp.ac_name.as_bytes());
                if found.has_error || !found.has_service || !is_named {
                    return Err(Reason::PppSessionUnknown);
                }
                let value = |tag: Option<&[u8]>| tag.map(Value::try_from).transpose();
                let back = [found.cookie, found.relay].map(value);
                let [Ok(cookie), Ok(relay)] = back else { return Err(Reason::PppMalformed) };
                let back = [cookie, relay];
                out.address(place, from, 0);
                request(ppp, unique, &back, out);
                *self = Discovery::Requesting { tries: 1, due: now + later(0), peer: from, back };
                Ok(Outcome::Nothing)
            }
            (code::PADS, Discovery::Requesting { peer, .. }) if *peer == from => {
                if found.has_error || packet.session == 0 {
                    // It has no session to give now. Another one is looked for, after a while.
                    *self = Discovery::Initiating { tries: MOST_DOUBLINGS, due: now + later(MOST_DOUBLINGS) };
                    return Err(Reason::PppSessionUnknown);
                }
                *self = Discovery::Up { peer: from, session: packet.session };
                Ok(Outcome::Begun)
            }
            _ => Err(Reason::PppControl),
        }
    }

    /// Takes a client's packet.
    fn asked(
        &mut self,
        from: Mac,
        packet: &Packet<'_>,
        found: &Found<'_>,
        own: &mut Own<'_>,
        out: &mut Outbox,
    ) -> Result<Outcome, Reason> {
        let Own { ppp, place, .. } = *own;
        let service = found.service.ok_or(Reason::PppMalformed)?;
        // An empty one asks for any.
        let is_offered = found.has_service || service.is_empty();
        let cookie = own.random.hash(&[from.to_bits()]).to_be_bytes();
        match packet.code {
            code::PADI if is_offered => {
                out.address(place, from, 0);
                answer(code::PADO, ppp, service, Some(&cookie), found, out);
                Ok(Outcome::Nothing)
            }
            code::PADR if found.cookie == Some(&cookie) => {
                if !is_offered {
                    out.address(place, from, 0);
                    let mut tags = Tagged::default();
                    tags.put(tag::SERVICE_NAME, service);
                    tags.put(tag::SERVICE_NAME_ERROR, &[]);
                    tags.returned(found);
                    out.push(Kind::Discovery(code::PADS), &[&tags.0]);
                    return Err(Reason::PppSessionUnknown);
                }
                let session = match *self {
                    // The client has not heard the confirmation.
                    Discovery::Up { peer, session } if peer == from && own.lcp == Layer::Fresh => session,
                    _ => own.random.session(),
                };
                *self = Discovery::Up { peer: from, session };
                out.address(place, from, session);
                answer(code::PADS, ppp, service, None, found, out);
                Ok(Outcome::Begun)
            }
            _ => Err(Reason::PppSessionUnknown),
        }
    }
}

/// True if a server may answer a client: it has no other's session, and offers the service that the packet asks for.
pub(super) fn may_answer(discovery: &Discovery, ppp: &Ppp, from: Mac, packet: &Packet<'_>) -> bool {
    let wanted = ppp.service.as_bytes();
    let mut services = Tags::of(packet.payload).flatten().filter(|(kind, _)| *kind == tag::SERVICE_NAME);
    let is_free = discovery.session().is_none_or(|(peer, _)| peer == from);
    is_free
        && ppp.role == PppRole::Server
        && services.any(|(_, value)| value.is_empty() || wanted.is_empty() || value == wanted)
}

/// Tags of a packet that is sent.
#[derive(Default)]
struct Tagged(ArrayVec<u8, 1024>);

impl Tagged {
    /// Adds a tag. One for which there is no room is left out: names are of 255 bytes at most, and values of 128.
    fn put(&mut self, kind: u16, value: &[u8]) {
        if self.0.remaining_capacity() >= 4 + value.len() {
            let lengths = [kind.to_be_bytes(), (value.len() as u16).to_be_bytes()];
            let _ = self.0.try_extend_from_slice(lengths.as_flattened());
            let _ = self.0.try_extend_from_slice(value);
        }
    }

    /// Adds the tags that are returned as they came.
    fn returned(&mut self, found: &Found<'_>) {
        for (kind, value) in [(tag::HOST_UNIQ, found.unique), (tag::RELAY_SESSION_ID, found.relay)] {
            if let Some(value) = value {
                self.put(kind, value);
            }
        }
    }
}

fn initiate(ppp: &Ppp, unique: u64, place: u16, out: &mut Outbox) {
    let mut tags = Tagged::default();
    tags.put(tag::SERVICE_NAME, ppp.service.as_bytes());
    tags.put(tag::HOST_UNIQ, &unique.to_be_bytes());
    out.address(place, Mac::BROADCAST, 0);
    out.push(Kind::Discovery(code::PADI), &[&tags.0]);
}

fn request(ppp: &Ppp, unique: u64, back: &[Option<Value>; 2], out: &mut Outbox) {
    let mut tags = Tagged::default();
    tags.put(tag::SERVICE_NAME, ppp.service.as_bytes());
    tags.put(tag::HOST_UNIQ, &unique.to_be_bytes());
    for (kind, value) in [tag::AC_COOKIE, tag::RELAY_SESSION_ID].into_iter().zip(back) {
        if let Some(value) = value {
            tags.put(kind, value);
        }
    }
    out.push(Kind::Discovery(code::PADR), &[&tags.0]);
}

/// An access concentrator's answer.
fn answer(code: u8, ppp: &Ppp, service: &[u8], cookie: Option<&[u8]>, found: &Found<'_>, out: &mut Outbox) {
    let mut tags = Tagged::default();
    tags.put(tag::SERVICE_NAME, service);
    if code == code::PADO {
        tags.put(tag::AC_NAME, name(ppp).as_bytes());
        // What is offered beside what was asked for (section 5.2).
        if !ppp.service.is_empty() && service != ppp.service.as_bytes() {
            tags.put(tag::SERVICE_NAME, ppp.service.as_bytes());
        }
    }
    if let Some(cookie) = cookie {
        tags.put(tag::AC_COOKIE, cookie);
    }
    tags.returned(found);
    out.push(Kind::Discovery(code), &[&tags.0]);
}

/// Time until the next packet, by the number of those before.
pub(super) fn later(tries: u8) -> Nanos {
    Nanos(RESTART.0 << tries.min(MOST_DOUBLINGS))
}
