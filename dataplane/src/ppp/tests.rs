use policy::model::{Authentication, Ppp, PppRole};
use proptest::prelude::*;
use wire::esp::Secret;
use wire::link_kind::FAR;
use wire::ppp::{code, packet};

use super::*;
use crate::tables::Carrier;

const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OWN: u32 = 0xcb00_7102;
const PEER: u32 = 0xcb00_7101;

/// Settings that both sides of a test agree on, or not.
#[derive(Clone)]
struct Sides {
    carrier: Carrier,
    authentication: [Authentication; 2],
    passwords: [&'static str; 2],
    own: u32,
    has_v6: [bool; 2],
}

impl Default for Sides {
    fn default() -> Sides {
        Sides {
            carrier: Carrier::Ethernet(PortId(0)),
            authentication: [Authentication::Chap; 2],
            passwords: ["secret"; 2],
            own: OWN,
            has_v6: [true; 2],
        }
    }
}

/// Packet that has crossed the link, or was lost there: sender, kind, bytes.
type Crossed = (usize, Kind, Vec<u8>);

/// A client and a server, a link between them, and time.
struct Pair {
    sides: [Session; 2],
    outboxes: [Outbox; 2],
    now: Nanos,
    crossed: Vec<Crossed>,
}

impl Pair {
    fn new(sides: &Sides) -> Pair {
        let side = |place: usize| {
            let role = [PppRole::Client, PppRole::Server][place];
            let authentication = sides.authentication[place];
            let mut ppp = Ppp { role, authentication, ..Ppp::new() };
            if authentication != Authentication::None {
                ppp.user = "user@provider".to_owned();
                ppp.password = Secret::new(sides.passwords[place].as_bytes().into());
            }
            ppp.peer = (role == PppRole::Server).then_some(OWN.into());
            let settings = Settings {
                place: 0,
                name: "ppp".to_owned(),
                carrier: sides.carrier,
                carrier_name: "wan".to_owned(),
                mac: [CLIENT, SERVER][place],
                ppp,
                address4: Some([sides.own, PEER][place]),
                has_v6: sides.has_v6[place],
                mtu: 1492,
                published: Arc::default(),
            };
            Session::new(Arc::new(settings), 0, [place as u64, 7], Nanos(0))
        };
        let outboxes = [Outbox::new(), Outbox::new()];
        Pair { sides: [side(0), side(1)], outboxes, now: Nanos(0), crossed: Vec::new() }
    }

    /// Lets time pass until nothing happens any more, or for so long. `loses` says if the last of these packets is lost.
    fn run(&mut self, until: Nanos, mut loses: impl FnMut(&[Crossed]) -> bool) {
        loop {
            for place in 0..2 {
                if self.sides[place].due().is_some_and(|due| is_due(due, self.now)) {
                    self.sides[place].expire(self.now, &mut self.outboxes[place]);
                }
            }
            while self.carry(&mut loses) {}
            let due = self.sides.iter().filter_map(Session::due).min();
            match due.filter(|due| *due <= until) {
                Some(due) => self.now = due.max(self.now + Nanos(1)),
                None => return,
            }
        }
    }

    /// Carries what both sides have to send over the link.
    fn carry(&mut self, loses: &mut impl FnMut(&[Crossed]) -> bool) -> bool {
        let mut has_moved = false;
        for place in 0..2 {
            let mut sent = Vec::new();
            while let Some(packet) = self.outboxes[place].take() {
                sent.push((packet.kind, packet.session, packet.bytes.to_vec()));
            }
            for (kind, session, bytes) in sent {
                has_moved = true;
                self.crossed.push((place, kind, bytes.clone()));
                if loses(&self.crossed) {
                    continue;
                }
                let (to, out) = (&mut self.sides[1 - place], &mut self.outboxes[1 - place]);
                let from = [CLIENT, SERVER][place];
                let _ = match kind {
                    Kind::Discovery(code) => {
                        let packet = pppoe::Packet { code, session, payload: &bytes };
                        to.discover(from, &packet, self.now, out)
                    }
                    Kind::Ppp(protocol) => {
                        let is_of = to.link().is_some_and(|link| {
                            link.session == session && (link.peer == from || link.peer == FAR)
                        });
                        if is_of { to.receive(protocol, &bytes, self.now, out) } else { Ok(()) }
                    }
                };
            }
        }
        has_moved
    }

    fn links(&self) -> [Option<Link>; 2] {
        [self.sides[0].link(), self.sides[1].link()]
    }

    fn is_open(&self) -> bool {
        self.links().iter().all(|link| link.is_some_and(|link| link.v4))
    }

    /// True if a password has crossed the link in clear.
    fn has_told(&self, password: &str) -> bool {
        let is_in = |bytes: &[u8]| bytes.windows(password.len()).any(|part| part == password.as_bytes());
        self.crossed.iter().any(|(_, _, bytes)| is_in(bytes))
    }
}

fn never(_: &[Crossed]) -> bool {
    false
}

#[test]
fn a_session_opens_over_each_carrier_by_each_protocol() {
    use Authentication::{Chap, None, Pap};
    for carrier in [Carrier::Ethernet(PortId(0)), Carrier::Atm] {
        // A client that may send its password in clear answers challenges, too.
        for authentication in [[None, None], [Pap, Pap], [Chap, Chap], [Pap, Chap]] {
            let sides = Sides { carrier, authentication, ..Sides::default() };
            let mut pair = Pair::new(&sides);
            pair.run(Nanos::from_secs(1), never);
            let [client, server] = pair.links();
            let (client, server) = (client.unwrap(), server.unwrap());
            assert!(client.v4 && client.v6 && server.v4 && server.v6, "{carrier:?} {authentication:?}");
            assert_eq!((client.session, client.mtu), (server.session, 1492));
            assert_eq!(client.session == 0, carrier == Carrier::Atm);
            assert_eq!(pair.has_told("secret"), authentication == [Pap, Pap]);
            assert_eq!(pair.sides[0].news(), Some(News::Opened));
        }
    }
}

#[test]
fn a_wrong_password_or_none_opens_nothing() {
    use Authentication::{Chap, None, Pap};
    for authentication in [Pap, Chap] {
        let sides = Sides {
            authentication: [authentication; 2],
            passwords: ["secret", "Secret"],
            ..Sides::default()
        };
        let mut pair = Pair::new(&sides);
        pair.run(Nanos::from_secs(600), |_| false);
        assert!(!pair.is_open() && pair.crossed.len() < 400, "{}", pair.crossed.len());
        assert!(pair.sides[1].news().is_some());
    }
    // No common protocol; a client never falls back to a password in clear.
    for authentication in [[None, Chap], [Chap, Pap], [None, Pap]] {
        let mut pair = Pair::new(&Sides { authentication, ..Sides::default() });
        pair.run(Nanos::from_secs(600), never);
        assert!(!pair.is_open() && !pair.has_told("secret"), "{authentication:?}");
    }
}

#[test]
fn another_address_than_the_policys_opens_nothing_and_is_told() {
    let mut pair = Pair::new(&Sides { own: OWN + 4, has_v6: [false; 2], ..Sides::default() });
    let mut told = None;
    for second in 1..60 {
        pair.run(Nanos::from_secs(second), never);
        told = told.or(pair.sides[0].news().filter(|news| *news != News::Closed));
        assert!(!pair.is_open());
    }
    assert_eq!(told, Some(News::AddressRefused(Some(OWN))));
}

#[test]
fn a_protocol_that_one_side_has_not_is_rejected_and_the_other_opens() {
    for has_v6 in [[true, false], [false, true]] {
        let mut pair = Pair::new(&Sides { has_v6, ..Sides::default() });
        pair.run(Nanos::from_secs(100), never);
        assert!(pair.is_open());
        assert!(pair.links().iter().flatten().all(|link| !link.v6));
        // Nobody goes on asking for it.
        let before = pair.crossed.len();
        pair.run(Nanos::from_secs(119), never);
        let echoes = pair.crossed[before..].iter().filter(|(_, kind, bytes)| {
            *kind == Kind::Ppp(Protocol::LCP) && matches!(packet(bytes).unwrap().code, 9 | 10)
        });
        assert_eq!(echoes.count(), pair.crossed.len() - before);
    }
}

#[test]
fn a_peer_that_falls_silent_is_given_up_and_found_again() {
    for carrier in [Carrier::Ethernet(PortId(0)), Carrier::Atm] {
        let mut pair = Pair::new(&Sides { carrier, ..Sides::default() });
        pair.run(Nanos::from_secs(30), never);
        assert!(pair.is_open());
        pair.run(Nanos::from_secs(150), |_| true);
        assert!(!pair.is_open(), "{:?}", pair.links());
        pair.run(Nanos::from_secs(400), never);
        assert!(pair.is_open());
    }
}

/// The server has IPv4 open, the client has heard of none of its acknowledgements and has given up, and IPv6 keeps the link.
#[test]
fn a_network_protocol_that_one_side_alone_has_open_is_negotiated_again() {
    let mut pair = Pair::new(&Sides { carrier: Carrier::Atm, ..Sides::default() });
    pair.run(Nanos::from_secs(40), |crossed| match crossed.last().unwrap() {
        (1, Kind::Ppp(Protocol::IPCP), bytes) => packet(bytes).unwrap().code == code::CONFIGURE_ACK,
        _ => false,
    });
    assert_eq!(
        pair.links().map(|link| link.map(|link| (link.v4, link.v6))),
        [Some((false, true)), Some((true, true))]
    );
    pair.run(Nanos::from_secs(100), never);
    assert!(pair.is_open(), "{:?}", pair.links());
}

#[test]
fn a_client_that_begins_anew_has_its_session_at_once() {
    let mut pair = Pair::new(&Sides::default());
    pair.run(Nanos::from_secs(1), never);
    let before = pair.links()[1].unwrap().session;
    let other = Pair::new(&Sides::default());
    let [client, _] = other.sides;
    pair.sides[0] = client;
    pair.run(Nanos::from_secs(2), never);
    assert!(pair.is_open());
    assert_ne!(pair.links()[1].unwrap().session, before);
}

#[test]
fn another_client_gets_no_offer_while_a_session_is_open() {
    let mut pair = Pair::new(&Sides::default());
    pair.run(Nanos::from_secs(1), never);
    let payload = [0x01, 0x01, 0, 0];
    let packet = pppoe::Packet { code: pppoe::code::PADI, session: 0, payload: &payload };
    assert!(pair.sides[1].may_answer(CLIENT, &packet));
    assert!(!pair.sides[1].may_answer(Mac([2, 0, 0, 0, 0, 9]), &packet));
}

/// A request without the cookie of an offer, or with another's, begins nothing.
#[test]
fn a_server_wants_its_cookie() {
    let mut pair = Pair::new(&Sides::default());
    let cookies: [&[u8]; 2] =
        [&[0x01, 0x01, 0, 0], &[0x01, 0x01, 0, 0, 0x01, 0x04, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]];
    for payload in cookies {
        let packet = pppoe::Packet { code: pppoe::code::PADR, session: 0, payload };
        let taken = pair.sides[1].discover(CLIENT, &packet, Nanos(0), &mut pair.outboxes[1]);
        assert_eq!(taken, Err(Reason::PppSessionUnknown));
        assert!(pair.outboxes[1].is_empty() && pair.sides[1].link().is_none());
    }
}

proptest! {
    /// Whatever is lost at first, the session opens in the end, on both sides alike.
    #[test]
    fn losses_are_made_good(lost in prop::collection::vec(any::<bool>(), 0..60), is_atm: bool) {
        let carrier = if is_atm { Carrier::Atm } else { Carrier::Ethernet(PortId(0)) };
        let mut pair = Pair::new(&Sides { carrier, ..Sides::default() });
        // A client that nobody answers asks once in 64 s, so that 60 losses may take longer than an hour.
        let is_lost = |crossed: &[Crossed]| lost.get(crossed.len() - 1).copied().unwrap_or(false);
        pair.run(Nanos::from_secs(6_000), is_lost);
        prop_assert!(pair.is_open(), "{:?}", pair.links());
        prop_assert_eq!(pair.links()[0].unwrap().session, pair.links()[1].unwrap().session);
    }

    /// No packet of an open session's protocols makes anything panic, and each makes few packets.
    #[test]
    fn no_packets_are_too_odd(
        packets in prop::collection::vec((0..9_usize, prop::collection::vec(any::<u8>(), 0..40), 0..2_usize), 0..40),
    ) {
        let protocols = [0xc021, 0xc021, 0xc021, 0x8021, 0x8057, 0xc223, 0xc023, 0x80fd, 0x0029];
        let mut pair = Pair::new(&Sides::default());
        pair.run(Nanos::from_secs(1), never);
        for (protocol, mut bytes, side) in packets {
            if let [_, _, high, low, ..] = &mut bytes[..] {
                (*high, *low) = (0, (*low).min(40));
            }
            let (to, out) = (&mut pair.sides[side], &mut pair.outboxes[side]);
            let _ = to.receive(Protocol(protocols[protocol]), &bytes, pair.now, out);
            let mut many = 0;
            while out.take().is_some() {
                many += 1;
            }
            prop_assert!(many <= 6);
        }
        pair.run(Nanos::from_secs(1_200), never);
        prop_assert!(pair.is_open());
    }
}
