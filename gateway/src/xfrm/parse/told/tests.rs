use std::net::IpAddr;

use proptest::prelude::{any, prop, proptest};

use super::super::tests::{bytes_of, recorded_in};
use super::*;
use crate::xfrm::message::{AF_INET, AF_INET6, Address, Mark, Policy, PolicyDirection, Selector};
use crate::xfrm::write;

/// Meaning of each recorded event, with its command.
fn events() -> Vec<(&'static str, Told)> {
    let all = recorded_in(include_str!("recorded.txt"));
    let one = |bytes: &[u8]| {
        let mut messages = told(bytes);
        let (_, message) = messages.next().unwrap();
        assert!(messages.next().is_none());
        message
    };
    all.into_iter().map(|(command, bytes)| (command, one(&bytes))).collect()
}

fn event(command: &str) -> Request {
    let mut all = events().into_iter().filter(|(what, _)| what.starts_with(command));
    let (_, told) = all.next().expect("it was recorded");
    assert!(all.next().is_none(), "{command} is several");
    match told {
        Told::Change(change) => change,
        other => panic!("{command}: {other:?}"),
    }
}

fn address(text: &str) -> Address {
    Address::from(text.parse::<IpAddr>().unwrap())
}

/// Packets between the networks of the recorded commands.
fn between(source: &str, destination: &str, len: u8) -> Selector {
    Selector {
        source: address(source),
        destination: address(destination),
        source_len: len,
        destination_len: len,
        family: if len == 16 { AF_INET } else { AF_INET6 },
        ..Selector::default()
    }
}

fn policy_of(change: Request) -> Box<Policy> {
    match change {
        Request::UpdatePolicy(policy) => policy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn policies_come_as_linux_tells_them() {
    let net = between("10.1.0.0", "10.2.0.0", 16);
    let new = policy_of(event("ip xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out"));
    assert_eq!((new.info.selector, new.info.direction, new.info.priority), (net, PolicyDirection::Out, 7));
    assert_eq!(
        (new.templates[0].reqid, new.templates[0].mode, new.templates[0].source),
        (7, 1, address("192.0.2.1"))
    );
    let changed = policy_of(event("ip xfrm policy update"));
    assert_eq!((changed.info.priority, changed.templates[0].reqid), (9, 8));
    assert_eq!(changed.info.index, new.info.index);
    let v6 = policy_of(event("ip xfrm policy add src 2001:db8:1::/48"));
    assert_eq!(v6.info.selector, between("2001:db8:1::", "2001:db8:2::", 48));
    assert_eq!((v6.info.index, v6.if_id, v6.mark), (10, Some(0x2a), Some(Mark { value: 5, mask: 7 })));
}

#[test]
fn policies_go_by_selector_whatever_the_request_named() {
    let named = |command| match event(command) {
        Request::DeletePolicy(id) => *id,
        other => panic!("{other:?}"),
    };
    let id = named("ip xfrm policy delete src 10.1.0.0/16");
    assert_eq!(
        (id.selector, id.direction, id.index),
        (between("10.1.0.0", "10.2.0.0", 16), PolicyDirection::Out, 0)
    );
    let id = named("ip xfrm policy delete index 10");
    assert_eq!(
        (id.selector, id.direction, id.index),
        (between("2001:db8:1::", "2001:db8:2::", 48), PolicyDirection::Forward, 0)
    );
    assert_eq!((id.if_id, id.mark), (Some(0x2a), Some(Mark { value: 5, mask: 7 })));
    let id = named("(one second after) ip xfrm policy add");
    assert_eq!((id.selector, id.direction), (between("10.1.0.0", "10.2.0.0", 16), PolicyDirection::In));
    assert_eq!(event("ip xfrm policy flush"), Request::FlushPolicies);
}

#[test]
fn associations_go() {
    let Request::DeleteSa(id) = event("ip xfrm state delete") else { panic!() };
    assert_eq!(
        (id.id.spi, id.id.destination, id.family, id.id.protocol),
        (0x1234, address("192.0.2.2"), AF_INET, 50)
    );
    assert_eq!(event("ip xfrm state flush proto esp"), Request::FlushSas(50));
}

/// The notice of a new association has the body of the request for it.
#[test]
fn associations_come_and_end() {
    let mut bytes = bytes_of("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000");
    bytes[6..8].fill(0);
    let Some((_, Told::Change(Request::NewSa(sa)))) = told(&bytes).next() else { panic!() };
    assert_eq!((sa.info.id.spi, sa.info.reqid, sa.if_id), (0x1000, 7, Some(0x2a)));
    let expired = |bound| {
        let message = write::expire(&write::event(kind::EXPIRE), &sa, bound);
        told(&message).next().unwrap().1
    };
    assert_eq!(expired(Bound::Soft), Told::Other);
    let gone = sa.info.name();
    assert_eq!(expired(Bound::Hard), Told::Change(Request::DeleteSa(gone)));
}

#[test]
fn ends_and_losses_are_told_apart() {
    let header = |kind: u16, flags: u16, number: i32| {
        let mut bytes = Vec::from(20_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(number.to_ne_bytes());
        told(&bytes).next().unwrap()
    };
    assert_eq!(header(NLMSG_DONE, 2, 0), (7, Told::Answer(0)));
    assert_eq!(header(NLMSG_DONE, 2 | NLM_F_DUMP_INTR, 0), (7, Told::Lost));
    assert_eq!(header(NLMSG_ERROR, 0, -3), (7, Told::Answer(-3)));
    assert_eq!(header(NLMSG_OVERRUN, 0, 0), (7, Told::Lost));
    // One that ends before it should.
    assert_eq!(header(kind::NEWSA, 0, 0), (7, Told::Other));
}

proptest! {
    /// Bytes of any kind, and recorded ones with a byte changed, give messages or none, and always an end.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400), at in any::<prop::sample::Index>(), with in any::<u8>()) {
        assert!(told(&bytes).count() <= 400);
        for (_, mut recorded) in recorded_in(include_str!("recorded.txt")) {
            let at = at.index(recorded.len());
            recorded[at] = with;
            assert!(told(&recorded).count() <= recorded.len());
        }
    }
}
