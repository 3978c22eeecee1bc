use std::net::IpAddr;

use crate::xfrm::message::{self, Request};
use crate::xfrm::parse::tests::asked;
use crate::xfrm::state::Protected;

use super::*;

fn policy(tunnel: &str) -> Policy {
    let text = format!(
        "[gateway]\nxfrm = \"/run/wirerate/xfrm\"\n[interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
         [interface.site]\nzone = \"vpn\"\naddresses = [\"10.9.0.1/30\"]\n[interface.site.esp]\nlocal = \"192.0.2.1\"\n\
         remote = \"192.0.2.2\"\nkeys = \"ike\"\n{tunnel}"
    );
    let checked = policy::parse(&text, "policy.toml");
    checked.policy.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
}

/// The association of a recorded request: from 192.0.2.1 to 192.0.2.2, of `reqid` 7 and `if_id` 42.
fn association(change: impl FnOnce(&mut message::Sa)) -> Association {
    let (_, request) = asked("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000");
    let Request::NewSa(mut sa) = request else { panic!() };
    change(&mut sa);
    Association::of(&sa).unwrap()
}

fn turn(sa: &mut message::Sa) {
    (sa.info.source, sa.info.id.destination) = (sa.info.id.destination, sa.info.source);
}

fn address(last: u8) -> message::Address {
    IpAddr::from([192, 0, 2, last]).into()
}

#[test]
fn an_association_is_a_tunnels_by_interface_number_or_ends() {
    let direction =
        |tunnel: &str, association: &Association| fit(&policy(tunnel), association).map(|fit| fit.direction);
    let out = association(|_| ());
    let inward = association(turn);
    for by in ["if-id = 42\n", "reqid = 7\n", "if-id = 42\nreqid = 9\n"] {
        assert_eq!(direction(by, &out), Some(Direction::Out), "{by}");
        assert_eq!(direction(by, &inward), Some(Direction::In), "{by}");
        // The peer may be anywhere, but this end must be the tunnel's.
        let moved = association(|sa| sa.info.id.destination = address(77));
        assert_eq!(direction(by, &moved), Some(Direction::Out), "{by}");
        let foreign = association(|sa| sa.info.source = address(78));
        assert_eq!(direction(by, &foreign), None, "{by}");
        let wrong = association(|sa| sa.direction = Some(1));
        assert_eq!(direction(by, &wrong), None, "{by}");
    }
    for by in ["if-id = 7\n", "reqid = 42\n", "if-id = 43\nreqid = 7\n", ""] {
        assert_eq!(direction(by, &out), None, "{by}");
    }
    let plain = association(|sa| sa.if_id = None);
    assert_eq!(direction("", &plain), Some(Direction::Out));
    assert_eq!(direction("if-id = 42\n", &plain), None);
    let elsewhere = association(|sa| (sa.if_id, sa.info.id.destination) = (None, address(77)));
    assert_eq!(direction("", &elsewhere), None);
}

#[test]
fn what_the_data_plane_has_no_means_for_is_refused_in_words() {
    let refused = |tunnel: &str, association: &Association| {
        let policy = policy(&format!("if-id = 42\n{tunnel}"));
        refuse(association, &fit(&policy, association).unwrap()).map_err(|refusal| refusal.words)
    };
    assert_eq!(refused("", &association(|_| ())), Ok(()));
    let transport = association(|sa| sa.info.mode = 0);
    assert!(refused("", &transport).unwrap_err().contains("of tunnel mode, and the SA of transport mode"));
    assert_eq!(refused("mode = \"transport\"\n", &transport), Ok(()));
    let mut port = association(|_| ());
    // By any port, to any: strongSwan 6 sends by one of each processor's.
    for ports in [[4500, 4500], [4500, 61_000], [61_001, 4500]] {
        port.udp = Some(ports);
        assert_eq!(refused("", &port), Ok(()));
    }
    port.udp = Some([0, 4500]);
    assert!(refused("", &port).unwrap_err().contains("a port to leave by"));
    // From any port, known or not, to the one.
    std::mem::swap(&mut port.source, &mut port.destination);
    assert_eq!(refused("", &port), Ok(()));
    port.udp = Some([4500, 4501]);
    assert!(refused("", &port).unwrap_err().contains("4500 here, not at 4501"));
}

#[test]
fn an_association_carries_what_it_says_itself_or_else_what_policies_say() {
    let carriage = |association: Association, protected: &[message::Selector]| Carriage {
        association: Arc::new(association),
        protected: Protected { packets: protected.to_vec(), ..Protected::default() },
        counts: Arc::default(),
    };
    let net = |last: u8| message::Selector {
        destination: address(last),
        destination_len: 32,
        family: 2,
        ..message::Selector::default()
    };
    let remotes = |carriage: &Carriage| {
        let all = selectors(carriage, Direction::Out).map_err(|refusal| refusal.errno)?;
        Ok(all.iter().map(|selector| selector.remote.first as u8).collect::<Vec<_>>())
    };
    let plain = || association(|_| ());
    assert_eq!(remotes(&carriage(plain(), &[])), Ok(vec![]));
    assert_eq!(remotes(&carriage(plain(), &[net(5), net(6)])), Ok(vec![5, 6]));
    let own = association(|sa| sa.info.selector = net(9));
    assert_eq!(remotes(&carriage(own, &[net(5)])), Ok(vec![9]));
    // What there are no words for is left out, but never so that all packets would be carried.
    let odd = message::Selector { protocol: 1, source_port: [8, 0xffff], ..net(7) };
    assert_eq!(remotes(&carriage(plain(), &[net(5), odd])), Ok(vec![5]));
    assert_eq!(remotes(&carriage(plain(), &[odd])), Err(Errno::OPNOTSUPP));
}

/// Workers tell of soft bounds, and of bounds of use; an association is ended by time by the database alone.
#[test]
fn workers_watch_soft_bounds_and_bounds_of_use() {
    let lifetimes =
        Lifetimes { bytes: [1_000, 2_000], packets: [u64::MAX, 9], added: [60, 90], used: [1, 2] };
    let soft = Lifetime { bytes: Some(1_000), packets: None, time: Some(Nanos::from_secs(60)) };
    let hard = Lifetime { bytes: Some(2_000), packets: Some(9), time: None };
    assert_eq!(bounds(&lifetimes), (soft, hard));
    let none = (Lifetime::UNBOUNDED, Lifetime::UNBOUNDED);
    for seconds in [0, u64::MAX, u64::MAX - 1] {
        assert_eq!(bounds(&Lifetimes { added: [seconds; 2], ..Lifetimes::default() }), none);
    }
}
