use super::*;

#[test]
fn protocols_print_and_read_back() {
    for number in 0..=255 {
        let protocol = Protocol(number);
        assert_eq!(protocol.to_string().parse(), Ok(protocol));
        assert_eq!(number.to_string().parse(), Ok(protocol));
    }
    assert_eq!(Protocol::TCP.to_string(), "tcp");
    assert_eq!(Protocol(200).to_string(), "200");
    assert_eq!("TCP".parse(), Ok(Protocol::TCP));
    assert_eq!("ipv6-icmp".parse(), Ok(Protocol::ICMPV6));
    for wrong in ["", "256", "-1", "tcpp", "6 "] {
        assert_eq!(wrong.parse::<Protocol>(), Err(UnknownProtocol), "{wrong}");
    }
}

#[test]
fn options_are_walked() {
    // No-operation, router alert, no-operation, end, and rubbish after the end.
    let bytes = [1, 148, 4, 0, 0, 1, 0, 99];
    let options: Vec<_> = RawOptions::new(&bytes).collect();
    assert_eq!(options, [Ok(RawOption { kind: 148, at: 1, data: &[0, 0] })]);
}

#[test]
fn bad_options_end_the_walk() {
    for (bytes, at) in [
        (&[7][..], 0),             // no length
        (&[7, 0][..], 0),          // shorter than itself
        (&[7, 1, 7, 2][..], 0),    // likewise
        (&[7, 3][..], 0),          // past the end
        (&[1, 7, 2, 7, 9][..], 3), // the second one past the end
    ] {
        let mut walk = RawOptions::new(bytes);
        let bad = walk.by_ref().find_map(Result::err);
        assert_eq!(bad, Some(BadOption { at }), "{bytes:?}");
        assert_eq!(walk.next(), None);
    }
}

#[test]
fn ports_need_four_bytes() {
    assert_eq!(Ports::of(&[0x01, 0xbb, 0xc3, 0x50, 9]), Some(Ports { sport: 443, dport: 50000 }));
    assert_eq!(Ports::of(&[0x01, 0xbb, 0xc3]), None);
}
