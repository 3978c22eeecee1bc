//! Tunnels whose security associations an IKE daemon gives, and changes: where packets go, by which they go, and what is taken of the peer.

use dataplane::replay::Way;
use dataplane::sa::{
    Agreed, Keys, Origin, Peer, SaAddition, SaEvent, SaNews, SaRefused, SaRequest, Senders, Standing,
};
use dataplane::tables::{Address, Ends, Ports, Selector};
use dataplane::{Reason, Verdict};
use lookup::classify::{AddressSpan, PortSpan};
use wire::esp::{Direction, Esn, Secret, Suite, Udp};
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Nanos, PortId, build};

use crate::esp::{LAN, WAN, change, through};
use crate::scene::{Arrival, Gateway, Out, START};

pub(crate) fn site(own: u8, more: &str) -> String {
    let other = 3 - own;
    format!(
        "[gateway]\nxfrm = \"/run/wirerate/xfrm\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"10.{own}.0.1/16\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.{own}/24\"]\n\
         [interface.peer]\nzone = \"vpn\"\n{more}[interface.peer.esp]\nlocal = \"192.0.2.{own}\"\n\
         remote = \"192.0.2.{other}\"\nkeys = \"ike\"\n[default]\n\"any > any\" = \"accept\"\n\
         [[route]]\nto = \"10.{other}.0.0/16\"\ninterface = \"peer\"\n"
    )
}

fn sites() -> [Gateway; 2] {
    [1, 2].map(|own| Gateway::new(&site(own, ""), Way::Run))
}

const SELECTORS: &[Selector] = &[];

/// An association of tunnel `peer` with an end of the peer's; its key is made of its SPI.
pub(crate) fn agreed(
    gateway: &Gateway,
    direction: Direction,
    spi: u32,
    end: ([u8; 4], u16),
    selectors: &[Selector],
) -> SaAddition {
    sent_by(Senders::All, gateway, direction, spi, end, selectors)
}

/// Port that packets leave by: one of each worker's own, as with strongSwan's `per_cpu_sas = encap`.
fn sport_of(senders: Senders, udp: Udp) -> u16 {
    match (udp, senders.only()) {
        (Udp::No, _) => 0,
        (Udp::Yes, None) => 4500,
        (Udp::Yes, Some(worker)) => 60_000 + worker,
    }
}

/// The same of these workers.
pub(crate) fn sent_by(
    senders: Senders,
    gateway: &Gateway,
    direction: Direction,
    spi: u32,
    end: ([u8; 4], u16),
    selectors: &[Selector],
) -> SaAddition {
    let suite = Suite::named("aes128-gcm", None).unwrap();
    let key = spi.to_be_bytes().repeat(5);
    let keys = Keys { cipher: Secret::new(key.into()), auth: Secret::new(Box::default()) };
    let (address, port) = end;
    let peer = Peer { address: Address::v4(u32::from_be_bytes(address)), port };
    let udp = if port == 0 { Udp::No } else { Udp::Yes };
    let sport = sport_of(senders, udp);
    let agreed = Some(Agreed { peer, udp, sport, senders });
    let request =
        SaRequest { tunnel: "peer", direction, spi, esn: Esn::On, suite, keys: &keys, selectors, agreed };
    SaAddition::new(&gateway.tables, &request).unwrap()
}

pub(crate) fn udp(from: [u8; 4], to: [u8; 4], dport: u16) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    link.ipv4(from.into(), to.into()).udp(7, dport).payload(&[1, 2, 3, 4]).to_vec()
}

pub(crate) const HERE: [u8; 4] = [10, 1, 0, 5];
pub(crate) const THERE: [u8; 4] = [10, 2, 0, 9];

/// Destination, protocol, and SPI of an outer packet; with the port where it goes in UDP.
fn outer(frame: &[u8]) -> ([u8; 4], u8, u32, u16) {
    let (protocol, at) = (frame[23], if frame[23] == 17 { 42 } else { 34 });
    let port = if protocol == 17 { u16::from_be_bytes([frame[36], frame[37]]) } else { 0 };
    let spi = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (frame[30..34].try_into().unwrap(), protocol, spi, port)
}

fn leaves(gateway: &mut Gateway, packet: Vec<u8>) -> ([u8; 4], u8, u32, u16) {
    let out = through(gateway, LAN, &[packet]);
    assert_eq!(out.sent.len(), 1, "{:?}", out.ended);
    outer(&out.sent[0].bytes)
}

fn events(gateway: &mut Gateway) -> Vec<SaNews> {
    gateway.shard.sas.take_events().map(|SaEvent { news, .. }| news).collect()
}

fn at(millis: u64, bytes: Vec<u8>) -> [Arrival; 1] {
    [Arrival { port: PortId(LAN), at: START + Nanos::from_millis(millis), number: 0, bytes }]
}

#[test]
fn a_packet_that_nothing_carries_is_told_of_and_a_flood_of_them_seldom() {
    let [mut near, _] = sites();
    let missing = Verdict::Dropped(Reason::SaMissing);
    let ends = Ends {
        local: Address::v4(u32::from_be_bytes(HERE)),
        remote: Address::v4(u32::from_be_bytes(THERE)),
        protocol: Protocol::UDP,
        ports: Some(Ports { local: 7, remote: 53 }),
    };
    let mut told = 0;
    for millis in 0..200 {
        near.receive(&at(millis, udp(HERE, THERE, 53)));
        let out = near.out(usize::MAX);
        assert_eq!(out.ended.iter().map(|ended| ended.1).collect::<Vec<_>>(), [missing]);
        let news = events(&mut near);
        assert!(news.iter().all(|news| *news == SaNews::Missing(ends)), "{news:?}");
        told += news.len();
        assert_eq!(told as u64, 1 + millis / 50);
    }
    // What is there and may not carry it is another reason, and told as well.
    let net = |c: u8| {
        let first = u128::from(u32::from_be_bytes([10, c, 0, 0]));
        AddressSpan { v6: false, first, last: first | 0xff }
    };
    let narrow = Selector {
        local: net(1),
        remote: net(2),
        protocol: Some(Protocol::TCP),
        local_ports: None,
        remote_ports: None,
    };
    let sa = agreed(&near, Direction::Out, 0x1000, ([192, 0, 2, 2], 0), &[narrow]);
    change(&mut near, sa.prepare()).unwrap();
    near.receive(&at(300, udp(HERE, THERE, 53)));
    let out = near.out(usize::MAX);
    assert_eq!(out.ended[0].1, Verdict::Dropped(Reason::TunnelSelector));
    assert_eq!(events(&mut near), [SaNews::Missing(ends)]);
}

#[test]
fn packets_go_to_where_the_daemon_says_or_where_the_peer_was_seen_since() {
    let [mut near, mut far] = sites();
    let nat = ([192, 0, 2, 77], 1024);
    let add = |near: &mut Gateway, direction, spi, end| {
        let sa = agreed(near, direction, spi, end, SELECTORS);
        change(near, sa.prepare()).unwrap();
    };
    add(&mut near, Direction::Out, 0x1000, nat);
    add(&mut near, Direction::In, 0x2000, nat);
    add(&mut far, Direction::Out, 0x2000, ([192, 0, 2, 1], 4500));
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), (nat.0, 17, 0x1000, 1024));
    // The NAT gives it another port.
    let out = through(&mut far, LAN, &[udp(THERE, HERE, 53)]);
    let mut moved = out.sent[0].bytes.clone();
    moved[34..36].copy_from_slice(&2048_u16.to_be_bytes());
    moved[40..42].fill(0);
    assert_eq!(through(&mut near, WAN, &[moved]).sent.len(), 1);
    near.tend(START + Nanos::from_millis(200));
    assert!(matches!(events(&mut near)[..], [SaNews::Path(_)]));
    let seen = ([192, 0, 2, 2], 2048);
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), (seen.0, 17, 0x1000, 2048));
    // A rekeying by a daemon that has not heard of it yet.
    add(&mut near, Direction::Out, 0x1001, nat);
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), (seen.0, 17, 0x1001, 2048));
    // It has, or knows better: all go there.
    let better = ([192, 0, 2, 99], 4096);
    add(&mut near, Direction::Out, 0x1002, better);
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), (better.0, 17, 0x1002, 4096));
    let views = near.shard.sas.views(START);
    let out: Vec<_> = views.iter().filter(|sa| sa.direction == Direction::Out).collect();
    assert!(out.iter().all(|sa| sa.peer.unwrap().port == 4096 && sa.origin == Origin::Ike));
    let standings: Vec<Standing> = out.iter().map(|sa| sa.standing).collect();
    assert_eq!(standings, [Standing::Superseded, Standing::Superseded, Standing::Active]);
    // A reload says nothing new of it.
    near.reload(&site(1, "mtu = 1300\n"), START + Nanos::from_millis(300));
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), (better.0, 17, 0x1002, 4096));
}

#[test]
fn a_peer_without_a_nat_is_moved_by_the_daemon_alone_and_may_send_in_udp_all_the_same() {
    let [mut near, mut far] = sites();
    let add = |gateway: &mut Gateway, direction, spi, end| {
        let sa = agreed(gateway, direction, spi, end, SELECTORS);
        change(gateway, sa.prepare()).unwrap();
    };
    add(&mut near, Direction::Out, 0x1000, ([192, 0, 2, 2], 0));
    add(&mut near, Direction::In, 0x2000, ([192, 0, 2, 2], 0));
    add(&mut far, Direction::Out, 0x2000, ([192, 0, 2, 1], 4500));
    let out = through(&mut far, LAN, &[udp(THERE, HERE, 53)]);
    let mut elsewhere = out.sent[0].bytes.clone();
    assert_eq!(outer(&elsewhere), ([192, 0, 2, 1], 17, 0x2000, 4500));
    elsewhere[29] = 88;
    wire::ipv4::fill_checksum(&mut elsewhere[14..]);
    assert_eq!(through(&mut near, WAN, &[elsewhere]).sent.len(), 1);
    near.tend(START + Nanos::from_millis(200));
    assert_eq!(events(&mut near), []);
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)), ([192, 0, 2, 2], 50, 0x1000, 0));
}

#[test]
fn what_is_replaced_keeps_numbers_window_and_place() {
    let [mut near, mut far] = sites();
    let peer = ([192, 0, 2, 2], 0);
    let net = |b: u8| {
        let first = u128::from(u32::from_be_bytes([10, b, 0, 0]));
        AddressSpan { v6: false, first, last: first | 0xffff }
    };
    let dns = PortSpan { first: 53, last: 53 };
    let some = Selector {
        local: net(1),
        remote: net(2),
        protocol: Some(Protocol::UDP),
        local_ports: None,
        remote_ports: Some(dns),
    };
    let (first, second) = (
        agreed(&near, Direction::Out, 0x1000, peer, std::slice::from_ref(&some)),
        agreed(&near, Direction::Out, 0x1001, peer, SELECTORS),
    );
    change(&mut near, first.prepare()).unwrap();
    // One for any packet carries those that no other does, though it is newer.
    change(&mut near, second.prepare()).unwrap();
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)).2, 0x1000);
    let other = udp(HERE, THERE, 54);
    assert_eq!(leaves(&mut near, other.clone()).2, 0x1001);
    // The daemon's policies say what that is: it is the newest then.
    let named = agreed(&near, Direction::Out, 0x1001, peer, std::slice::from_ref(&some));
    assert_eq!(change(&mut near, named.prepare_to_replace()), Ok(true));
    assert_eq!(leaves(&mut near, udp(HERE, THERE, 53)).2, 0x1001);
    assert_eq!(through(&mut near, LAN, &[other]).ended[0].1, Verdict::Dropped(Reason::TunnelSelector));
    let number = |gateway: &Gateway, spi| {
        let views = gateway.shard.sas.views(START);
        views.iter().find(|sa| sa.spi == spi).map(|sa| (sa.number, sa.packets))
    };
    assert_eq!(number(&near, 0x1001), Some((2, 2)));

    let inward = agreed(&far, Direction::In, 0x1001, ([192, 0, 2, 1], 0), SELECTORS);
    change(&mut far, inward.prepare()).unwrap();
    let sealed: Vec<Vec<u8>> =
        (0..5).map(|_| through(&mut near, LAN, &[udp(HERE, THERE, 53)]).sent.remove(0).bytes).collect();
    assert_eq!(through(&mut far, WAN, &sealed[..3]).sent.len(), 3);
    let turned = Selector {
        local: net(2),
        remote: net(1),
        local_ports: Some(dns),
        remote_ports: None,
        ..some.clone()
    };
    let narrower = agreed(&far, Direction::In, 0x1001, ([192, 0, 2, 1], 0), &[turned]);
    assert_eq!(change(&mut far, narrower.prepare_to_replace()), Ok(true));
    let Out { sent, ended, .. } = through(&mut far, WAN, &sealed);
    assert_eq!((sent.len(), ended.len()), (2, 3));
    assert!(ended.iter().all(|ended| ended.1 == Verdict::Dropped(Reason::Replayed)));
    assert_eq!(number(&far, 0x1001), Some((7, 5)));
    // What is not there is not replaced.
    let absent = agreed(&far, Direction::In, 0x9999, ([192, 0, 2, 1], 0), SELECTORS);
    assert_eq!(change(&mut far, absent.prepare_to_replace()), Err(SaRefused::Unknown));
    let absent = agreed(&near, Direction::Out, 0x9999, peer, SELECTORS);
    assert_eq!(change(&mut near, absent.prepare_to_replace()), Err(SaRefused::Unknown));
}
