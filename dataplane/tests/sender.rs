//! Several security associations out of one tunnel, side by side (RFC 9611): each worker sends by the one of its number, else by the one that all have.

use std::collections::BTreeMap;
use std::rc::Rc;

use dataplane::nat::Share;
use dataplane::replay::Way;
use dataplane::sa::{SaEvent, SaId, SaNews, SaRefused, Senders, Standing};
use dataplane::tables::{Address, Ends, Ports, Selector, Tables};
use dataplane::{Reason, Verdict};
use lookup::classify::{AddressSpan, PortSpan};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::build::{self, Icmp};
use wire::esp::Direction;
use wire::ethernet::Mac;
use wire::header::Protocol;
use wire::{Nanos, PortId};

use crate::esp::{LAN, WAN, change, through};
use crate::ike::{HERE, THERE, sent_by, site, udp};
use crate::scene::{self, Arrival, Gateway, START};

const PEER: ([u8; 4], u16) = ([192, 0, 2, 2], 0);

/// Workers of one gateway.
fn workers(count: u16) -> Vec<Gateway> {
    let tables: Rc<Tables> = Rc::new(scene::tables(&site(1, "")));
    let one = |worker| {
        let mut gateway = Gateway::with_slots(Rc::clone(&tables), Way::Run, 200);
        gateway.begin_anew(Share::new(worker, count).unwrap());
        gateway
    };
    (0..count).map(one).collect()
}

/// Name of an outbound one.
fn out(spi: u32) -> SaId {
    let (address, _) = PEER;
    let destination = Address::v4(u32::from_be_bytes(address));
    SaId { direction: Direction::Out, spi, destination }
}

/// DNS alone.
fn dns() -> Selector {
    let net = |b: u8| {
        let first = u128::from(u32::from_be_bytes([10, b, 0, 0]));
        AddressSpan { v6: false, first, last: first | 0xffff }
    };
    Selector {
        local: net(1),
        remote: net(2),
        protocol: Some(Protocol::UDP),
        local_ports: None,
        remote_ports: Some(PortSpan { first: 53, last: 53 }),
    }
}

fn add(workers: &mut [Gateway], senders: Senders, spi: u32, selectors: &[Selector]) {
    let sa = sent_by(senders, &workers[0], Direction::Out, spi, PEER, selectors);
    workers.iter_mut().for_each(|worker| assert_eq!(change(worker, sa.prepare()), Ok(false)));
}

fn delete(workers: &mut [Gateway], spi: u32) {
    for worker in workers {
        assert_eq!(change(worker, dataplane::sa::SaChange::Delete(out(spi))), Ok(true));
    }
}

/// SPI and number that a worker sends a packet by; or why it does not.
fn sent(worker: &mut Gateway, at: Nanos, dport: u16) -> Result<(u32, u32), Reason> {
    worker.receive(&[Arrival { port: PortId(LAN), at, number: 0, bytes: udp(HERE, THERE, dport) }]);
    let out = worker.out(usize::MAX);
    match (&out.sent[..], &out.ended[..]) {
        ([sent], []) => {
            let word = |at: usize| u32::from_be_bytes(sent.bytes[at..at + 4].try_into().unwrap());
            Ok((word(34), word(38)))
        }
        ([], [(_, Verdict::Dropped(reason))]) => Err(*reason),
        other => panic!("{other:?}"),
    }
}

fn spis(workers: &mut [Gateway]) -> Vec<Result<u32, Reason>> {
    workers.iter_mut().map(|worker| sent(worker, START, 53).map(|(spi, _)| spi)).collect()
}

/// A router's message that a packet of the gateway's is too big.
fn too_big(quote: &[u8]) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]));
    let message = Icmp { kind: 3, code: 4, rest: [0, 0, 4, 0xb0] };
    link.ipv4([192, 0, 2, 9].into(), [192, 0, 2, 1].into()).icmpv4(message).payload(quote).to_vec()
}

#[test]
fn each_worker_sends_by_its_own_else_by_that_of_all() {
    let mut workers = workers(3);
    add(&mut workers, Senders::One(1), 0x1001, &[]);
    // Another worker's is none: Linux asks for one then, too, and the packet is lost.
    let missing = Err(Reason::SaMissing);
    assert_eq!(spis(&mut workers), [missing, Ok(0x1001), missing]);
    add(&mut workers, Senders::All, 0x1000, &[]);
    add(&mut workers, Senders::One(2), 0x1002, &[]);
    // For a processor that has no worker.
    add(&mut workers, Senders::One(7), 0x1007, &[]);
    assert_eq!(spis(&mut workers), [Ok(0x1000), Ok(0x1001), Ok(0x1002)]);
    // A rekeying replaces the one that it is of, and a newer one of all takes no other's place.
    add(&mut workers, Senders::One(2), 0x2002, &[]);
    add(&mut workers, Senders::All, 0x2000, &[]);
    assert_eq!(spis(&mut workers), [Ok(0x2000), Ok(0x1001), Ok(0x2002)]);
    let standing = |gateway: &Gateway, spi| {
        gateway.shard.sas.views(START).iter().find(|sa| sa.spi == spi).map(|sa| sa.standing)
    };
    let of = |spi| workers.iter().map(|worker| standing(worker, spi).unwrap()).min().unwrap();
    assert_eq!([of(0x1001), of(0x2002), of(0x2000)], [Standing::Active; 3]);
    assert_eq!([of(0x1000), of(0x1002)], [Standing::Superseded; 2]);
    assert_eq!(of(0x1007), Standing::Elsewhere);
    // A reload changes nothing.
    for worker in &mut workers {
        worker.reload(&site(1, "mtu = 1300\n"), START);
    }
    assert_eq!(spis(&mut workers), [Ok(0x2000), Ok(0x1001), Ok(0x2002)]);
    for spi in [0x2002, 0x1002, 0x1001] {
        delete(&mut workers, spi);
    }
    assert_eq!(spis(&mut workers), [Ok(0x2000); 3]);
    // A name is taken by whichever worker's it is.
    let sa = sent_by(Senders::All, &workers[0], Direction::Out, 0x1007, PEER, &[]);
    assert!(workers.iter_mut().all(|worker| change(worker, sa.prepare()) == Err(SaRefused::Taken)));
    delete(&mut workers, 0x1007);
}

/// An ICMP error comes to any worker, whoever has sent what it quotes.
#[test]
fn a_path_mtu_is_learnt_from_what_another_worker_has_sent() {
    let mut workers = workers(2);
    add(&mut workers, Senders::One(1), 0x1001, &[]);
    let quoted = through(&mut workers[1], LAN, &[udp(HERE, THERE, 53)]).sent.remove(0).bytes;
    let error = too_big(&quoted[14..42]);
    let out = through(&mut workers[0], WAN, &[error]);
    assert_eq!(out.ended[0].1, Verdict::Dropped(Reason::TunnelPathMtu));
    workers[0].tend(START + Nanos::from_millis(200));
    let news: Vec<SaNews> = workers[0].shard.sas.take_events().map(|SaEvent { news, .. }| news).collect();
    assert!(matches!(news[..], [SaNews::Path(_)]), "{news:?}");
}

/// In UDP a worker's own has a port of its own, by which the peer's card tells it apart (`per_cpu_sas = encap` of strongSwan 6). Packets to a
/// peer that does so go where its daemon says, not where each of its own comes from.
#[test]
fn in_udp_each_leaves_by_its_own_port_and_a_peers_ports_are_not_followed() {
    let (mut near, mut far) = (workers(2), Gateway::new(&site(2, ""), Way::Run));
    let add = |gateway: &mut Gateway, senders, direction, spi, end| {
        let sa = sent_by(senders, gateway, direction, spi, end, &[]);
        change(gateway, sa.prepare()).unwrap();
    };
    for worker in &mut near {
        add(worker, Senders::All, Direction::Out, 0x1000, ([192, 0, 2, 2], 4500));
        add(worker, Senders::One(1), Direction::Out, 0x1001, ([192, 0, 2, 2], 4500));
    }
    let leaves = |worker: &mut Gateway| through(worker, LAN, &[udp(HERE, THERE, 53)]).sent.remove(0).bytes;
    let of_all = leaves(&mut near[0]);
    assert_eq!([&of_all[34..36], &of_all[36..38]], [4500_u16.to_be_bytes(); 2]);
    let own = leaves(&mut near[1]);
    assert_eq!([&own[34..36], &own[36..38]], [60_001_u16.to_be_bytes(), 4500_u16.to_be_bytes()]);
    // What quotes it is known by that port.
    let mut error = too_big(&own[14..50]);
    let out = through(&mut near[0], WAN, &[error.clone()]);
    assert_eq!(out.ended[0].1, Verdict::Dropped(Reason::TunnelPathMtu));
    error = too_big(&[&own[14..34], &4500_u16.to_be_bytes(), &own[36..50]].concat());
    assert_ne!(through(&mut near[0], WAN, &[error]).ended[0].1, Verdict::Dropped(Reason::TunnelPathMtu));

    add(&mut far, Senders::All, Direction::Out, 0x2000, ([192, 0, 2, 1], 4500));
    add(&mut far, Senders::One(1), Direction::In, 0x1001, ([192, 0, 2, 1], 0));
    assert_eq!(through(&mut far, WAN, &[own]).sent.len(), 1);
    far.tend(START + Nanos::from_millis(200));
    assert_eq!(far.shard.sas.take_events().count(), 0);
    let back = through(&mut far, LAN, &[udp(THERE, HERE, 53)]).sent.remove(0).bytes;
    assert_eq!([&back[34..36], &back[36..38]], [4500_u16.to_be_bytes(); 2]);
}

/// Room for those of other workers is what the policy's limit says, as for any.
#[test]
fn there_is_room_for_as_many_as_the_limit_says() {
    let mut workers = workers(1);
    let most = workers[0].tables.limits.sas;
    for number in 0..most {
        add(&mut workers, Senders::One(1 + number as u16), 0x1000 + number, &[]);
    }
    for senders in [Senders::One(0), Senders::One(9), Senders::All] {
        let sa = sent_by(senders, &workers[0], Direction::Out, 0x1, PEER, &[]);
        assert_eq!(change(&mut workers[0], sa.prepare()), Err(SaRefused::Full));
    }
    delete(&mut workers, 0x1000);
    add(&mut workers, Senders::One(0), 0x1, &[]);
}

/// Inbound ones stay side by side for as long as nobody deletes them, in any order of packets.
#[test]
fn all_that_come_in_are_opened_for_good() {
    let mut near = workers(1);
    let mut far = Gateway::new(&site(2, ""), Way::Run);
    let mut sealed: Vec<Vec<Vec<u8>>> = Vec::new();
    for worker in 0..8 {
        let spi = 0x1000 + u32::from(worker);
        add(&mut near, Senders::All, spi, &[]);
        let inward = sent_by(Senders::One(worker), &far, Direction::In, spi, ([192, 0, 2, 1], 0), &[]);
        change(&mut far, inward.prepare()).unwrap();
        let frames: Vec<_> = (0..4).map(|_| udp(HERE, THERE, 53)).collect();
        sealed.push(through(&mut near[0], LAN, &frames).sent.into_iter().map(|sent| sent.bytes).collect());
    }
    for round in 0..4 {
        let at = START + Nanos::from_secs(3600 * round as u64);
        for (worker, frames) in sealed.iter().enumerate().rev() {
            far.receive(&[Arrival { port: PortId(WAN), at, number: 0, bytes: frames[round].clone() }]);
            assert_eq!(far.out(usize::MAX).sent.len(), 1, "{worker} in {round}");
        }
    }
    let views = far.shard.sas.views(START);
    assert!(views.iter().all(|sa| sa.packets == 4 && sa.standing == Standing::Active), "{views:?}");
}

/// Association of a naive gateway.
#[derive(Clone, Debug)]
struct Known {
    spi: u32,
    senders: Senders,
    is_dns: bool,
    sent: u32,
}

/// The one that a worker sends by: of its own, else of all; of either kind the newest that names the packet, else the newest.
fn choice(all: &mut [Known], worker: u16, dport: u16) -> Option<&mut Known> {
    let is_own = |sa: &Known| sa.senders.only() == Some(worker);
    let may = |sa: &Known| (is_own(sa) || sa.senders.only().is_none()) && (!sa.is_dns || dport == 53);
    let found = all.iter().enumerate().filter(|(_, sa)| may(sa));
    let best = found.max_by_key(|(age, sa)| (is_own(sa), sa.is_dns, *age)).map(|(place, _)| place)?;
    all.get_mut(best)
}

#[derive(Clone, Debug)]
enum Act {
    Add(Senders, bool),
    Delete(prop::sample::Index),
    /// Policies ask for one of each processor's own from now on, or do not.
    Replace(prop::sample::Index),
    Send(u16, bool),
    Reload(u16),
}

fn act() -> impl Strategy<Value = Act> {
    let senders = prop_oneof![
        2 => Just(Senders::All),
        1 => Just(Senders::Fallback),
        4 => (0..5_u16).prop_map(Senders::One),
    ];
    prop_oneof![
        3 => (senders, any::<bool>()).prop_map(|(senders, is_dns)| Act::Add(senders, is_dns)),
        2 => any::<prop::sample::Index>().prop_map(Act::Delete),
        1 => any::<prop::sample::Index>().prop_map(Act::Replace),
        8 => (0..3_u16, any::<bool>()).prop_map(|(worker, is_dns)| Act::Send(worker, is_dns)),
        1 => (0..3_u16).prop_map(Act::Reload),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn any_worker_sends_as_a_naive_gateway(acts in vec(act(), 1..60)) {
        let mut workers = workers(3);
        let (mut all, mut spi, mut at) = (Vec::<Known>::new(), 0x1000, START);
        let selectors = |is_dns: bool| if is_dns { vec![dns()] } else { Vec::new() };
        let mut mtus = [1300; 3];
        for act in acts {
            // No two events are within the time for which one stands for all.
            at += Nanos::from_secs(2);
            match act {
                Act::Add(senders, is_dns) if all.len() < 16 => {
                    spi += 1;
                    add(&mut workers, senders, spi, &selectors(is_dns));
                    all.push(Known { spi, senders, is_dns, sent: 0 });
                }
                Act::Delete(which) if !all.is_empty() => {
                    let gone = all.remove(which.index(all.len()));
                    delete(&mut workers, gone.spi);
                }
                Act::Replace(which) if !all.is_empty() => {
                    let place = which.index(all.len());
                    let sa = &mut all[place];
                    sa.senders = match sa.senders {
                        Senders::All => Senders::Fallback,
                        Senders::Fallback => Senders::All,
                        one @ Senders::One(_) => one,
                    };
                    let sa = sent_by(sa.senders, &workers[0], Direction::Out, sa.spi, PEER, &selectors(sa.is_dns));
                    for worker in &mut workers {
                        prop_assert_eq!(change(worker, sa.prepare_to_replace()), Ok(true));
                    }
                }
                Act::Reload(worker) => {
                    let mtu = &mut mtus[usize::from(worker)];
                    *mtu += 1;
                    workers[usize::from(worker)].reload(&site(1, &format!("mtu = {mtu}\n")), at);
                }
                Act::Send(worker, is_dns) => {
                    let dport = if is_dns { 53 } else { 54 };
                    let has_any = all.iter().any(|sa| sa.senders.only().is_none_or(|only| only == worker));
                    let expected = match choice(&mut all, worker, dport) {
                        Some(known) => {
                            known.sent += 1;
                            Ok((known.spi, known.sent))
                        }
                        None if has_any => Err(Reason::TunnelSelector),
                        None => Err(Reason::SaMissing),
                    };
                    let own = &mut workers[usize::from(worker)];
                    prop_assert_eq!(sent(own, at, dport), expected);
                    let ends = Ends {
                        local: Address::v4(u32::from_be_bytes(HERE)),
                        remote: Address::v4(u32::from_be_bytes(THERE)),
                        protocol: Protocol::UDP,
                        ports: Some(Ports { local: 7, remote: dport }),
                    };
                    let asks = expected.is_ok_and(|(spi, _)| {
                        all.iter().any(|sa| sa.spi == spi && sa.senders == Senders::Fallback)
                    });
                    let told = match expected {
                        Err(_) => Some(SaNews::Missing(ends)),
                        Ok(_) => asks.then_some(SaNews::Fallback(ends)),
                    };
                    let news = own.shard.sas.take_events().map(|SaEvent { news, .. }| news);
                    prop_assert_eq!(news.collect::<Vec<_>>(), Vec::from_iter(told));
                }
                Act::Add(..) | Act::Delete(_) | Act::Replace(_) => {}
            }
        }
        let counts: BTreeMap<u32, u64> = all.iter().map(|sa| (sa.spi, sa.sent.into())).collect();
        for worker in &workers {
            let views = worker.shard.sas.views(at);
            let own: BTreeMap<u32, u64> = views.iter().map(|sa| (sa.spi, sa.packets)).collect();
            prop_assert_eq!(&own, &counts);
        }
    }
}
