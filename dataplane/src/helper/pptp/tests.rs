use proptest::prelude::{any, prop, proptest};

use super::{Act, CallId, HEAD, Message, Read, read};

/// A message of this type and length, whose first call ID is 0x0102, whose second 0x0304, and whose result is `result`.
fn message(kind: u8, len: u16, result: u8) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(len)];
    bytes[..2].copy_from_slice(&len.to_be_bytes());
    bytes[2..12].copy_from_slice(&[0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0]);
    for (at, byte) in (12..).zip([1, 2, 3, 4, result]) {
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
    }
    bytes
}

const FIRST: Option<CallId> = Some(CallId { at: 12, id: 0x0102 });
const SECOND: Option<CallId> = Some(CallId { at: 14, id: 0x0304 });

/// A message: name, type, length, result, its effect, and the call IDs of its sender and of its receiver.
type Case = (&'static str, u8, u16, u8, Act, [Option<CallId>; 2]);

#[test]
fn each_type_names_calls_as_rfc_2637_says() {
    let cases: [Case; 20] = [
        ("Start-Control-Connection-Request", 1, 156, 0, Act::None, [None, None]),
        ("Start-Control-Connection-Reply", 2, 156, 1, Act::None, [None, None]),
        ("Stop-Control-Connection-Request", 3, 16, 0, Act::None, [None, None]),
        ("Stop-Control-Connection-Reply", 4, 16, 0, Act::None, [None, None]),
        ("Echo-Request", 5, 16, 0, Act::None, [None, None]),
        ("Echo-Reply", 6, 20, 1, Act::None, [None, None]),
        ("Outgoing-Call-Request", 7, 168, 0, Act::Requests, [FIRST, None]),
        ("Outgoing-Call-Reply", 8, 32, 1, Act::Connects, [FIRST, SECOND]),
        ("Outgoing-Call-Reply, general error", 8, 32, 2, Act::Refuses, [FIRST, SECOND]),
        ("Incoming-Call-Request", 9, 220, 0, Act::Requests, [FIRST, None]),
        ("Incoming-Call-Reply", 10, 24, 1, Act::Connects, [FIRST, SECOND]),
        ("Incoming-Call-Reply, do not accept", 10, 24, 3, Act::Refuses, [FIRST, SECOND]),
        ("Incoming-Call-Connected", 11, 28, 0, Act::Names, [None, FIRST]),
        ("Call-Clear-Request", 12, 16, 0, Act::Names, [FIRST, None]),
        ("Call-Disconnect-Notify", 13, 148, 1, Act::Ends, [FIRST, None]),
        ("WAN-Error-Notify", 14, 40, 0, Act::Names, [None, FIRST]),
        ("Set-Link-Info", 15, 24, 0, Act::Names, [None, FIRST]),
        ("of no known type", 16, 20, 1, Act::None, [None, None]),
        ("too short for its type", 8, 31, 1, Act::None, [None, None]),
        ("without content", 12, 12, 0, Act::None, [None, None]),
    ];
    for (name, kind, len, result, act, [own, peer]) in cases {
        let bytes = message(kind, len, result);
        let wanted = Read::Message(Message { len: usize::from(len), act, own, peer });
        assert_eq!(read(&bytes), wanted, "{name}");
        let more = [bytes.as_slice(), &[0; 30]].concat();
        assert_eq!(read(&more), wanted, "{name}, and another behind it");
        for cut in 0..bytes.len() {
            let found = read(&bytes[..cut]);
            let is_whole = cut >= bytes.len().min(HEAD);
            assert_eq!(found, if is_whole { wanted } else { Read::Incomplete }, "{name}: {cut} bytes");
        }
    }
}

#[test]
fn what_is_no_control_message_is_told_from_one_that_has_begun() {
    let bytes = message(7, 168, 0);
    for at in 2..8 {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert_eq!(read(&other), Read::Other, "byte {at}");
        assert_eq!(read(&other[..=at]), Read::Other, "byte {at}");
        assert_eq!(read(&other[..at]), Read::Incomplete, "byte {at}");
    }
    let mut short = bytes;
    short[..2].copy_from_slice(&[0, 11]);
    assert_eq!(read(&short), Read::Other);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(
        kind in any::<u8>(),
        len in any::<u16>(),
        rest in prop::collection::vec(any::<u8>(), 0..40),
        plain in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        read(&plain);
        let head = [len.to_be_bytes().as_slice(), &[0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind], &rest].concat();
        if let Read::Message(found) = read(&head) {
            assert_eq!(found.len, usize::from(len));
            for of in [found.own, found.peer].into_iter().flatten() {
                assert!(of.at + 2 <= found.len.min(HEAD));
            }
        }
    }
}
