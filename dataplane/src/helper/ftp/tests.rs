use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

fn found(direction: Direction, line: &str) -> Option<(Option<IpAddr>, u16, &str, Form)> {
    match read(direction, line.as_bytes()) {
        Line::Announces(found) => {
            Some((found.address, found.port, &line[found.at..found.at + found.len], found.form))
        }
        _ => None,
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn commands_announce() {
    use Direction::Original;
    let expected = Some((ip("192.168.1.10"), 51_201, "192,168,1,10,200,1", Form::Numbers));
    for line in ["PORT 192,168,1,10,200,1", "port   192,168,1,10,200,1 ", "Port 192,168,1,10,200,1"] {
        assert_eq!(found(Original, line), expected, "{line}");
    }
    // The examples of RFC 2428, section 2.
    let v4 = Some((ip("132.235.1.2"), 6_275, "132.235.1.2|6275", Form::Pair));
    assert_eq!(found(Original, "EPRT |1|132.235.1.2|6275|"), v4);
    let v6 = Some((ip("1080::8:800:200c:417a"), 5_282, "1080::8:800:200C:417A|5282", Form::Pair));
    assert_eq!(found(Original, "EPRT |2|1080::8:800:200C:417A|5282|"), v6);
    let other = Some((ip("192.0.2.1"), 2_000, "192.0.2.1!2000", Form::Pair));
    assert_eq!(found(Original, "eprt !1!192.0.2.1!2000!"), other);
}

#[test]
fn replies_announce() {
    use Direction::Reply;
    let expected = Some((ip("203.0.113.2"), 1_024, "203,0,113,2,4,0", Form::Numbers));
    // With and without parentheses (RFC 1123, section 4.1.2.6).
    for line in [
        "227 Entering Passive Mode (203,0,113,2,4,0).",
        "227 Entering Passive Mode 203,0,113,2,4,0",
        "227 =203,0,113,2,4,0",
    ] {
        assert_eq!(found(Reply, line), expected, "{line}");
    }
    let extended = Some((None, 6_446, "6446", Form::Port));
    assert_eq!(found(Reply, "229 Entering Extended Passive Mode (|||6446|)"), extended);
    assert_eq!(read(Reply, b"234 Proceed with negotiation."), Line::Encrypts);
}

#[test]
fn other_lines_announce_nothing() {
    for line in [
        "",
        "P",
        "PORT",
        "PORT ",
        "PORT 1,2,3,4,5",
        "PORT 1,2,3,4,5,256",
        "PORT 1,2,3,4,5,6,7",
        "PORT 1,2,3,4,5,0006",
        "PORT 1, 2,3,4,5,6",
        "PORT256,1,1,1,4,4",
        " PORT 1,2,3,4,5,6",
        "XPORT 1,2,3,4,5,6",
        "EPRT |1|1.2.3.4|65536|",
        "EPRT |1|1.2.3|80|",
        "EPRT |2|1.2.3.4|80|",
        "EPRT |3|::1|80|",
        "EPRT |1|1.2.3.4|80",
        "EPRT 111.2.3.41801",
        "EPRT |1!1.2.3.4|80|",
        "227 Entering Passive Mode",
        "RETR PORT 1,2,3,4,5,6",
    ] {
        assert_eq!(found(Direction::Original, line), None, "{line}");
    }
    for line in [
        "227",
        "227 none",
        "227 (1,2,3,4,5)",
        "227-1,2,3,4,5,6",
        "229 (|||80)",
        "229 (||80|)",
        "229 |||80|",
        "229 (|1|1.2.3.4|80|)",
        "229 (|||70000|)",
        "2277 1,2,3,4,5,6",
        "PORT 1,2,3,4,5,6",
        "234-more",
    ] {
        assert_eq!(found(Direction::Reply, line), None, "{line}");
    }
    let long = format!("227 {}1,2,3,4,5,6", "x".repeat(LONGEST));
    assert_eq!(found(Direction::Reply, &long), None);
}

#[test]
fn what_may_go_on_to_announce() {
    use Direction::{Original, Reply};
    for begun in ["P", "po", "PORT", "PORT ", "PORT 192,168", "E", "EPRT |2|"] {
        assert!(may_announce(Original, begun.as_bytes()), "{begun}");
    }
    for begun in ["", "PA", "PASV", "PORTS", "227 ", "U"] {
        assert!(!may_announce(Original, begun.as_bytes()), "{begun}");
    }
    assert!(may_announce(Reply, b"22") && may_announce(Reply, b"229 Entering"));
    assert!(!may_announce(Reply, b"220 ") && !may_announce(Reply, b"PORT ") && !may_announce(Reply, b"227-"));
    assert!(!may_announce(Original, &[b"PORT ".as_slice(), &[b'1'; LONGEST]].concat()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read(
        line in proptest::collection::vec(any::<u8>(), 0..80),
        near in "(PORT|EPRT|227|229|port|2) ?[|!(]{0,4}[0-9a-f:.,|()]{0,40}",
        is_reply in any::<bool>(),
    ) {
        let direction = if is_reply { Direction::Reply } else { Direction::Original };
        for line in [line.as_slice(), near.as_bytes()] {
            if let Line::Announces(found) = read(direction, line) {
                prop_assert!(found.len > 0 && line.get(found.at..found.at + found.len).is_some());
                // Every beginning of it might have become one.
                for len in 1..line.len() {
                    prop_assert!(may_announce(direction, &line[..len]), "{len} of {line:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read(bits in any::<u128>(), port in any::<u16>(), is_v4 in any::<bool>()) {
        let address = if is_v4 { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
        let kind = if is_v4 { 1 } else { 2 };
        let text = |form: Form| String::from_utf8(form.text(address, port, b'|').unwrap().to_vec()).unwrap();
        let pair = format!("EPRT |{kind}|{}|", text(Form::Pair));
        let pair = found(Direction::Original, &pair).unwrap();
        prop_assert_eq!((pair.0, pair.1), (Some(address), port));
        let alone = format!("229 (|||{}|)", text(Form::Port));
        prop_assert_eq!(found(Direction::Reply, &alone).unwrap().1, port);
        if is_v4 {
            let numbers = format!("PORT {}", text(Form::Numbers));
            let numbers = found(Direction::Original, &numbers).unwrap();
            prop_assert_eq!((numbers.0, numbers.1), (Some(address), port));
        } else {
            prop_assert_eq!(Form::Numbers.text(address, port, b','), None);
        }
    }
}
