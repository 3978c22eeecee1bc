//! One PPP session: discovery, LCP, authentication, network control protocols, and echoes while it lasts.

use std::sync::Arc;

use policy::model::PppRole;
use wire::ethernet::Mac;
use wire::link_kind::FAR;
use wire::ppp::{Packet, Protocol, code, packet};
use wire::{Nanos, pppoe};

use super::authentication::{Exchange, Progress};
use super::automaton::{Actions, Event, State};
use super::control::{Control, MOST_REJECTED};
use super::discovery::{self, Discovery, Layer, Outcome, Own, later};
use super::lcp::Lcp;
use super::ncp::{Ipcp, Ipv6cp};
use super::outbox::{Kind, Outbox};
use super::random::Random;
use super::{Link, News};
use crate::tables::{Carrier, Session as Settings};
use crate::verdict::Reason;

/// Time without a packet of the peer after which the link is tested.
const ECHO: Nanos = Nanos::from_secs(20);
/// Echo-Requests without an answer until the peer is given up.
const MOST_ECHOES: u8 = 3;

/// State of a session.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Arc<Settings>,
    place: u16,
    random: Random,
    discovery: Discovery,
    /// Number by which a client knows the answers to its own discovery.
    unique: u64,
    lcp: Control<Lcp>,
    exchange: Exchange,
    ipcp: Option<Control<Ipcp>>,
    ipv6cp: Option<Control<Ipv6cp>>,
    /// Time of the next look at whether the peer is there, and Echo-Requests without an answer.
    echo: (Option<Nanos>, u8),
    heard: Nanos,
    /// Attempts since a session was open.
    attempts: u8,
    news: Option<News>,
}

impl Session {
    /// A session that begins at `now`.
    pub(super) fn new(settings: Arc<Settings>, place: u16, seed: [u64; 2], now: Nanos) -> Session {
        // Another stream for each session, and for each begin under one seed.
        let mut random = Random::new(seed, now.0 ^ u64::from(place) << 48);
        let unique = random.number();
        let begins = settings.ppp.role == PppRole::Client || settings.carrier == Carrier::Atm;
        let parts = Parts::new(&settings, &mut random);
        Session {
            place,
            discovery: Discovery::Waiting { until: begins.then_some(now) },
            unique,
            lcp: parts.lcp,
            exchange: parts.exchange,
            ipcp: parts.ipcp,
            ipv6cp: parts.ipv6cp,
            random,
            settings,
            echo: (None, 0),
            heard: now,
            attempts: 0,
            news: None,
        }
    }

    /// Goes on with other tables, whose settings of it are the same.
    pub(super) fn move_to(&mut self, settings: Arc<Settings>, place: u16) {
        (self.settings, self.place) = (settings, place);
    }

    /// The link as the data plane needs it; `None` while no network protocol is open.
    pub(super) fn link(&self) -> Option<Link> {
        let (peer, session) = self.discovery.session()?;
        let (v4, v6) = (
            self.ipcp.as_ref().is_some_and(Control::is_open),
            self.ipv6cp.as_ref().is_some_and(Control::is_open),
        );
        let mtu = self.settings.mtu.min(self.lcp.options.peer_mru);
        Some(Link { peer, session, mtu, v4, v6 })
    }

    /// Name of the phase (RFC 1661, section 3.2).
    pub(super) fn phase(&self) -> &'static str {
        match (&self.discovery, self.lcp.state()) {
            (Discovery::Waiting { .. }, _) => "dead",
            (Discovery::Initiating { .. } | Discovery::Requesting { .. }, _) => "discovery",
            (_, State::Closing | State::Stopping) => "terminate",
            (_, State::Opened) if self.exchange.progress() != Progress::Done => "authenticate",
            (_, State::Opened) => "network",
            _ => "establish",
        }
    }

    /// True if there is news.
    pub(super) fn has_news(&self) -> bool {
        self.news.is_some()
    }

    /// News since the last call.
    pub(super) fn news(&mut self) -> Option<News> {
        self.news.take()
    }

    /// Time of the next timer; `None` while none runs.
    pub(super) fn due(&self) -> Option<Nanos> {
        let controls = [
            self.discovery.due(),
            self.lcp.due(),
            self.exchange.due(),
            self.ipcp.as_ref().and_then(Control::due),
            self.ipv6cp.as_ref().and_then(Control::due),
            self.echo.0,
        ];
        controls.into_iter().flatten().min()
    }

    /// Notes that a packet of the peer has come.
    pub(super) fn hear(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// True if the session may answer a client's discovery packet.
    pub(super) fn may_answer(&self, from: Mac, packet: &pppoe::Packet<'_>) -> bool {
        discovery::may_answer(&self.discovery, &self.settings.ppp, from, packet)
    }

    /// True if the session is with this peer.
    pub(super) fn is_with(&self, from: Mac) -> bool {
        self.discovery.session().is_some_and(|(peer, _)| peer == from)
    }

    /// Runs the timers that are due.
    pub(super) fn expire(&mut self, now: Nanos, out: &mut Outbox) {
        let is_due = |due: Option<Nanos>| due.is_some_and(|due| is_due(due, now));
        let settings = Arc::clone(&self.settings);
        if is_due(self.discovery.due()) {
            if settings.carrier == Carrier::Atm {
                self.discovery = Discovery::Up { peer: FAR, session: 0 };
                self.begin(now, out);
            } else {
                self.discovery.expire(&settings.ppp, self.unique, self.place, now, out);
            }
        }
        self.address(out);
        if is_due(self.lcp.due()) {
            let actions = self.lcp.expire(now, out);
            self.act(actions, now, out);
        }
        if is_due(self.exchange.due()) {
            self.exchange.expire(&settings.ppp, now, out);
            self.authenticated(now, out);
        }
        if let Some(ipcp) = self.ipcp.as_mut().filter(|ipcp| is_due(ipcp.due())) {
            ipcp.expire(now, out);
        }
        if let Some(ipv6cp) = self.ipv6cp.as_mut().filter(|ipv6cp| is_due(ipv6cp.due())) {
            ipv6cp.expire(now, out);
        }
        self.end_without_network(now, out);
        if is_due(self.echo.0) {
            self.test(now, out);
        }
    }

    /// Takes a discovery packet.
    ///
    /// # Errors
    /// The packet is malformed, or for nobody here.
    pub(super) fn discover(
        &mut self,
        from: Mac,
        packet: &pppoe::Packet<'_>,
        now: Nanos,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let settings = Arc::clone(&self.settings);
        let lcp = if self.lcp.is_open() { Layer::Open } else { Layer::Fresh };
        let Session { discovery, unique, random, place, .. } = self;
        let mut own = Own { ppp: &settings.ppp, unique: *unique, random, lcp, place: *place, now };
        match discovery.receive(from, packet, &mut own, out)? {
            Outcome::Nothing => {}
            Outcome::Begun => self.begin(now, out),
            Outcome::Ended => self.end(now),
        }
        Ok(())
    }

    /// Takes a PPP packet of the session other than IP, from behind its protocol field on.
    ///
    /// # Errors
    /// The packet is malformed, or out of its phase; nobody has asked for it; or it ends the session's hopes.
    pub(super) fn receive(
        &mut self,
        protocol: Protocol,
        bytes: &[u8],
        now: Nanos,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        self.heard = now;
        self.echo.1 = 0;
        self.address(out);
        if protocol == Protocol::LCP {
            return self.control(&packet(bytes).map_err(|_| Reason::PppMalformed)?, now, out);
        }
        if !self.lcp.is_open() {
            return Err(Reason::PppNotOpen);
        }
        match protocol {
            Protocol::PAP | Protocol::CHAP => {
                let packet = packet(bytes).map_err(|_| Reason::PppMalformed)?;
                let settings = Arc::clone(&self.settings);
                let before = self.exchange.progress();
                let taken = self.exchange.receive(&settings.ppp, protocol, &packet, out);
                if self.exchange.progress() != before {
                    self.authenticated(now, out);
                }
                return taken;
            }
            _ if self.exchange.progress() != Progress::Done => return Err(Reason::PppNotOpen),
            _ => {}
        }
        let taken = match (protocol, &mut self.ipcp, &mut self.ipv6cp) {
            (Protocol::IPCP, Some(ipcp), _) => {
                let packet = packet(bytes).map_err(|_| Reason::PppMalformed)?;
                ipcp.receive(&packet, now, out)
            }
            (Protocol::IPV6CP, _, Some(ipv6cp)) => {
                let packet = packet(bytes).map_err(|_| Reason::PppMalformed)?;
                ipv6cp.receive(&packet, now, out)
            }
            _ => {
                let rejected = bytes.get(..MOST_REJECTED).unwrap_or(bytes);
                let id = self.lcp.next_id();
                let parts: [&[u8]; 2] = [&protocol.0.to_be_bytes(), rejected];
                out.control(Protocol::LCP, code::PROTOCOL_REJECT, id, &parts);
                return Ok(());
            }
        };
        self.end_without_network(now, out);
        match taken {
            Err(Reason::PppAddress) => {
                let refused = self.ipcp.as_ref().and_then(|ipcp| ipcp.options.refused);
                self.news = Some(News::AddressRefused(refused));
                self.close(now, out);
                Err(Reason::PppAddress)
            }
            Ok(actions) => {
                if actions.has(Actions::TLU) {
                    self.attempts = 0;
                    self.news = Some(News::Opened);
                }
                Ok(())
            }
            Err(reason) => Err(reason),
        }
    }

    /// Takes a packet of LCP.
    fn control(&mut self, packet: &Packet<'_>, now: Nanos, out: &mut Outbox) -> Result<(), Reason> {
        let is_open = self.lcp.is_open();
        match packet.code {
            code::ECHO_REQUEST if is_open => {
                let (theirs, data) = packet.data.split_first_chunk::<4>().ok_or(Reason::PppMalformed)?;
                let own = self.lcp.options.magic();
                if own != 0 && u32::from_be_bytes(*theirs) == own {
                    // The gateway's own, from a link that is looped back.
                    return Err(Reason::PppControl);
                }
                out.control(Protocol::LCP, code::ECHO_REPLY, packet.id, &[&own.to_be_bytes(), data]);
            }
            code::ECHO_REQUEST | code::ECHO_REPLY | code::DISCARD_REQUEST => {}
            code::PROTOCOL_REJECT if is_open => {
                let protocol = packet.data.first_chunk().ok_or(Reason::PppMalformed)?;
                match (Protocol(u16::from_be_bytes(*protocol)), &mut self.ipcp, &mut self.ipv6cp) {
                    (Protocol::IPCP, Some(ipcp), _) => {
                        ipcp.event(Event::RejectBad, now, out);
                    }
                    (Protocol::IPV6CP, _, Some(ipv6cp)) => {
                        ipv6cp.event(Event::RejectBad, now, out);
                    }
                    (Protocol::PAP | Protocol::CHAP, ..) => self.close(now, out),
                    _ => {}
                }
                self.end_without_network(now, out);
            }
            code::PROTOCOL_REJECT => {}
            _ => match self.lcp.receive(packet, now, out) {
                Ok(actions) => self.act(actions, now, out),
                // No authentication that both sides can do.
                Err(Reason::PppAddress) => {
                    self.close(now, out);
                    return Err(Reason::PppAuthentication);
                }
                Err(reason) => return Err(reason),
            },
        }
        Ok(())
    }

    /// Says whom packets are for.
    fn address(&self, out: &mut Outbox) {
        let (peer, session) = self.discovery.session().unwrap_or((Mac::ZERO, 0));
        out.address(self.place, peer, session);
    }

    /// The carrier is up: LCP begins.
    fn begin(&mut self, now: Nanos, out: &mut Outbox) {
        let Parts { lcp, exchange, ipcp, ipv6cp } = Parts::new(&self.settings, &mut self.random);
        (self.lcp, self.exchange, self.ipcp, self.ipv6cp) = (lcp, exchange, ipcp, ipv6cp);
        (self.echo, self.heard) = ((None, 0), now);
        self.address(out);
        self.lcp.event(Event::Open, now, out);
        self.lcp.event(Event::Up, now, out);
    }

    /// Carries out what LCP's transition means for the session.
    fn act(&mut self, actions: Actions, now: Nanos, out: &mut Outbox) {
        if actions.has(Actions::TLD) {
            self.exchange.reset();
            self.echo.0 = None;
            self.lower(Event::Down, now, out);
        }
        if actions.has(Actions::TLU) {
            let settings = Arc::clone(&self.settings);
            self.exchange.begin(&settings.ppp, self.lcp.options.demanded, now, out);
            self.echo = (Some(now + ECHO), 0);
            self.authenticated(now, out);
        }
        if actions.has(Actions::TLF) {
            self.hang_up(now, out);
        }
    }

    /// Goes on behind authentication, if that is over.
    fn authenticated(&mut self, now: Nanos, out: &mut Outbox) {
        match self.exchange.progress() {
            Progress::Pending => {}
            Progress::Done => {
                self.lower(Event::Open, now, out);
                self.lower(Event::Up, now, out);
            }
            Progress::Failed => {
                self.news = Some(News::AuthenticationFailed);
                self.close(now, out);
            }
        }
    }

    /// An event of the network control protocols.
    fn lower(&mut self, event: Event, now: Nanos, out: &mut Outbox) {
        if let Some(ipcp) = &mut self.ipcp {
            ipcp.event(event, now, out);
        }
        if let Some(ipv6cp) = &mut self.ipv6cp {
            ipv6cp.event(event, now, out);
        }
    }

    /// Takes the link down where a network protocol that was open has ended, so that a client may begin anew, or where none is left.
    fn end_without_network(&mut self, now: Nanos, out: &mut Outbox) {
        let of4 = self.ipcp.as_ref().map(|of| (of.has_ended(), of.was_open()));
        let of6 = self.ipv6cp.as_ref().map(|of| (of.has_ended(), of.was_open()));
        let all = || [of4, of6].into_iter().flatten();
        if self.lcp.is_open() && (all().any(|(has, was)| has && was) || all().all(|(has, _)| has)) {
            self.close(now, out);
        }
    }

    /// Takes the link down in an orderly way.
    fn close(&mut self, now: Nanos, out: &mut Outbox) {
        let actions = self.lcp.event(Event::Close, now, out);
        self.act(actions, now, out);
    }

    /// Tests whether the peer is there, unless it has just been heard.
    fn test(&mut self, now: Nanos, out: &mut Outbox) {
        let quiet = now.since(self.heard);
        if quiet < ECHO {
            self.echo = (Some(self.heard + ECHO), 0);
        } else if self.echo.1 >= MOST_ECHOES {
            self.hang_up(now, out);
        } else {
            let id = self.lcp.next_id();
            let magic = self.lcp.options.magic().to_be_bytes();
            out.control(Protocol::LCP, code::ECHO_REQUEST, id, &[&magic]);
            self.echo = (Some(now + ECHO), self.echo.1 + 1);
        }
    }

    /// Takes the carrier down, and tells the other end.
    fn hang_up(&mut self, now: Nanos, out: &mut Outbox) {
        if let (Some(_), Carrier::Ethernet(_)) = (self.discovery.session(), self.settings.carrier) {
            self.address(out);
            out.push(Kind::Discovery(pppoe::code::PADT), &[]);
        }
        self.end(now);
    }

    /// The carrier is down.
    fn end(&mut self, now: Nanos) {
        let begins = self.settings.ppp.role == PppRole::Client || self.settings.carrier == Carrier::Atm;
        // A server has to be there when its client comes.
        let before = if self.settings.ppp.role == PppRole::Server { 0 } else { self.attempts };
        let until = begins.then(|| now + later(before));
        self.attempts = self.attempts.saturating_add(1);
        self.discovery = Discovery::Waiting { until };
        self.unique = self.random.number();
        let Parts { lcp, exchange, ipcp, ipv6cp } = Parts::new(&self.settings, &mut self.random);
        (self.lcp, self.exchange, self.ipcp, self.ipv6cp) = (lcp, exchange, ipcp, ipv6cp);
        self.echo = (None, 0);
        if self.news.is_none() {
            self.news = Some(News::Closed);
        }
    }
}

/// Protocols of a session, before anything has been exchanged.
struct Parts {
    lcp: Control<Lcp>,
    exchange: Exchange,
    ipcp: Option<Control<Ipcp>>,
    ipv6cp: Option<Control<Ipv6cp>>,
}

impl Parts {
    fn new(settings: &Settings, random: &mut Random) -> Parts {
        let ppp = &settings.ppp;
        let peer = ppp.peer.map(|peer| peer.to_bits());
        Parts {
            lcp: Control::new(Lcp::new(ppp.role, ppp.authentication, settings.mtu, random.split())),
            exchange: Exchange::new(random.split()),
            ipcp: settings.address4.map(|own| Control::new(Ipcp::new(ppp.role, own, peer))),
            ipv6cp: settings.has_v6.then(|| Control::new(Ipv6cp::new(random.split()))),
        }
    }
}

/// True if a time has come; also one that a clock which was set back has moved far away.
pub(super) fn is_due(due: Nanos, now: Nanos) -> bool {
    due <= now || due.since(now) > Nanos::from_secs(256)
}
