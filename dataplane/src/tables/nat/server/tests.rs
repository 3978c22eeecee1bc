use tally::NoTally;

use super::*;

fn server(number: u8, weight: u8, state: ServerState) -> Server {
    let name = format!("192.168.1.{number}:80");
    Server { name, address: Address::v4(0xc0a8_0100 | u32::from(number)), port: Some(80), weight, state }
}

fn servers(list: &[Server], sticky: Sticky) -> Servers {
    Servers::new(list.to_vec(), sticky, OnFailure::Kill)
}

fn chosen(servers: &Servers, client: u32, hash: u32) -> &str {
    &servers.choose(Address::v4(client), hash, &mut NoTally).expect("one is up").name
}

#[test]
fn shares_are_as_the_weights() {
    let weights = [1, 2, 5];
    let list: Vec<Server> =
        (20..).zip(weights).map(|(number, weight)| server(number, weight, ServerState::Up)).collect();
    for (share, weight) in servers(&list, Sticky::Connection).shares().into_iter().zip(weights) {
        let expected = SLOTS * usize::from(weight) / 8;
        assert!(share.abs_diff(expected) < SLOTS / 40, "{share}, not {expected}");
    }
}

#[test]
fn a_server_that_goes_moves_its_own_connections_alone() {
    let mut list: Vec<Server> = (20..25).map(|number| server(number, 1, ServerState::Up)).collect();
    let before = servers(&list, Sticky::Connection);
    list[2].state = ServerState::Down;
    let after = servers(&list, Sticky::Connection);
    let gone = &list[2].name;
    let (mut moved, mut to) = (0, std::collections::BTreeSet::new());
    for hash in (0..u32::MAX).step_by(65_537) {
        let (one, other) = (chosen(&before, 0, hash), chosen(&after, 0, hash));
        assert_ne!(other, gone);
        if one == gone {
            moved += 1;
            to.insert(other.to_owned());
        } else {
            assert_eq!(one, other);
        }
    }
    assert!(moved > 10_000 && to.len() == 4, "{moved} to {to:?}");
}

#[test]
fn a_client_keeps_its_server_whatever_its_ports() {
    let list: Vec<Server> = (20..24).map(|number| server(number, 1, ServerState::Up)).collect();
    let sticky = servers(&list, Sticky::Source);
    let mut counts = std::collections::BTreeMap::new();
    for client in 0..4_000 {
        let one = chosen(&sticky, 0x0a00_0000 + client, 0);
        assert_eq!(one, chosen(&sticky, 0x0a00_0000 + client, u32::MAX));
        *counts.entry(one.to_owned()).or_insert(0) += 1;
    }
    assert!(counts.len() == 4 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn without_a_server_that_is_up_there_is_none() {
    let servers = servers(&[server(20, 1, ServerState::Down)], Sticky::Source);
    assert_eq!(servers.choose(Address::v4(1), 7, &mut NoTally), None);
    assert_eq!(servers.shares(), [0]);
}
