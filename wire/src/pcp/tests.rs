use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A MAP for TCP port 8080 of 192.168.1.20, by the tables of RFC 6887, sections 7.1 and 11.1.
const MAP_8080: &str = "02 01 0000 00000e10 00000000000000000000ffffc0a80114 \
                        0102030405060708090a0b0c 06 000000 1f90 2328 00000000000000000000ffff00000000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn map_8080() -> Map {
    Map {
        nonce: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        protocol: 6,
        internal_port: 8080,
        external_port: 9000,
        external: Ipv4Addr::UNSPECIFIED.into(),
        otherwise: Otherwise::Another,
    }
}

#[test]
fn a_map_is_read_by_the_tables_of_the_rfc() {
    let client = "192.168.1.20".parse::<IpAddr>().unwrap();
    let expected = Request { client, lifetime: 3600, body: Body::Map(map_8080()) };
    assert_eq!(parse(&bytes(MAP_8080)), Ok(expected));
    let announce = bytes("02 00 0000 00000000 20010db8000000000000000000000007");
    let client = "2001:db8::7".parse().unwrap();
    assert_eq!(parse(&announce), Ok(Request { client, lifetime: 0, body: Body::Announce }));
}

#[test]
fn responses_have_the_bytes_of_the_rfc() {
    let external = Ipv4Addr::new(203, 0, 113, 2).into();
    let response = mapped(&map_8080(), 1800, 0x0102_0304, external, 9001);
    assert_eq!(
        response,
        bytes(
            "02 81 00 00 00000708 01020304 000000000000000000000000 \
             0102030405060708090a0b0c 06 000000 1f90 2329 00000000000000000000ffffcb007102"
        )
    );
    let refused = error(&bytes(MAP_8080), ResultCode::QuotaExceeded, 30, 7);
    assert_eq!(refused[..24], bytes("02 81 00 0a 0000001e 00000007 000000000000000000000000"));
    assert_eq!(refused[24..], bytes(MAP_8080)[24..]);
    let announced = announced(&bytes("02 00 0000 00000000 20010db8000000000000000000000007"), 9);
    assert_eq!(announced, bytes("02 80 00 00 00000000 00000009 000000000000000000000000"));
}

#[test]
fn options_are_processed_refused_or_left_aside() {
    let with = |option: &str| parse(&[bytes(MAP_8080), bytes(option)].concat());
    let Ok(Request { body: Body::Map(map), .. }) = with("02 00 0000") else { panic!("refused") };
    assert_eq!(map.otherwise, Otherwise::Failure);
    assert!(mapped(&map, 1, 1, Ipv6Addr::LOCALHOST.into(), 1).ends_with(&[2, 0, 0, 0]));
    assert!(with("80 00 0003 01020300").is_ok(), "optional to process");
    let refused = |option| with(option).unwrap_err();
    // THIRD_PARTY, FILTER, one that nobody knows.
    for option in [
        "01 00 0010 00000000000000000000ffffc0a80115",
        "03 00 0014 00000000000000000000000000000000 00000000",
        "7f 00 0000",
    ] {
        assert_eq!(refused(option), Fault::Answer(ResultCode::UnsupportedOption), "{option}");
    }
    for option in ["02 00 0004 00000000", "02 00 0000 02 00 0000", "02 00 0400", "80 00 ffff 00000000"] {
        assert_eq!(refused(option), Fault::Answer(ResultCode::MalformedOption), "{option}");
    }
}

#[test]
fn what_is_no_request_of_this_version_is_answered_or_dropped() {
    let map = bytes(MAP_8080);
    let fault = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = map.clone();
        change(&mut changed);
        parse(&changed).unwrap_err()
    };
    assert_eq!(fault(&|bytes| bytes[0] = 1), Fault::Answer(ResultCode::UnsupportedVersion));
    assert_eq!(fault(&|bytes| bytes[0] = 3), Fault::Answer(ResultCode::UnsupportedVersion));
    assert_eq!(fault(&|bytes| bytes[1] = 2), Fault::Answer(ResultCode::UnsupportedOpcode));
    assert_eq!(fault(&|bytes| bytes[1] |= RESPONSE), Fault::Silence);
    assert_eq!(fault(&|bytes| bytes.truncate(23)), Fault::Silence);
    assert_eq!(fault(&|bytes| bytes.truncate(56)), Fault::Answer(ResultCode::MalformedRequest));
    assert_eq!(fault(&|bytes| bytes.push(0)), Fault::Answer(ResultCode::MalformedRequest));
    assert_eq!(fault(&|bytes| bytes.resize(1104, 0)), Fault::Answer(ResultCode::MalformedRequest));
    assert_eq!(fault(&|bytes| bytes[36] = 0), Fault::Answer(ResultCode::MalformedRequest));
}

proptest! {
    #[test]
    fn any_bytes_are_read_and_answered_without_a_panic(
        head in vec(0_u8..4, 2..3), tail in vec(any::<u8>(), 0..1200), lifetime: u32, epoch: u32,
    ) {
        let request = [head, tail].concat();
        let answer = match parse(&request) {
            Err(Fault::Silence) => return Ok(()),
            Err(Fault::Answer(code)) => error(&request, code, lifetime, epoch),
            Ok(Request { body: Body::Announce, .. }) => announced(&request, epoch),
            Ok(Request { body: Body::Map(map), .. }) => mapped(&map, lifetime, epoch, map.external, map.external_port),
        };
        // No amplification, and no response that a server would take for a request.
        prop_assert!(answer.len() <= request.len().next_multiple_of(4) && answer.len() <= LONGEST);
        prop_assert!(answer.len() % 4 == 0 && answer.len() >= HEADER);
        prop_assert_eq!(parse(&answer), Err(Fault::Silence));
    }
}
