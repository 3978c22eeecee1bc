use super::*;

const REQUEST: &[u8; 28] = b"\x00\x01\x08\x00\x06\x04\x00\x01\x02\x00\x00\x00\x00\x0a\xc0\x00\x02\x01\
                             \x00\x00\x00\x00\x00\x00\xc0\x00\x02\x02";

#[test]
fn request_reads_and_writes_back() {
    let packet = parse(REQUEST).unwrap();
    let fields = Fields {
        operation: Operation::REQUEST,
        sender_mac: Mac([2, 0, 0, 0, 0, 10]),
        sender_ip: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: Mac::ZERO,
        target_ip: Ipv4Addr::new(192, 0, 2, 2),
    };
    assert_eq!(packet.fields(), fields);
    assert_eq!(fields.to_bytes(), *REQUEST);
}

#[test]
fn each_fault_has_its_name() {
    let with = |at: usize, value: u8| {
        let mut bytes = *REQUEST;
        bytes[at] = value;
        parse(&bytes).map(Packet::operation)
    };
    assert_eq!(parse(&REQUEST[..27]).unwrap_err(), Malformed::TooShort);
    assert_eq!(with(1, 6), Err(Malformed::Hardware));
    assert_eq!(with(4, 8), Err(Malformed::Hardware));
    assert_eq!(with(2, 0x86), Err(Malformed::Protocol));
    assert_eq!(with(5, 16), Err(Malformed::Protocol));
    assert_eq!(with(7, 2), Ok(Operation::REPLY));
}
