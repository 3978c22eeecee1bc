use super::*;

#[test]
fn spi_and_sequence() {
    let mut bytes = [0x12, 0x34, 0x56, 0x78, 0, 0, 1, 0, 0xee];
    let header = Header::of(&bytes).unwrap();
    assert_eq!((header.spi(), header.sequence()), (0x1234_5678, 256));
    let mut header = HeaderMut::of(&mut bytes).unwrap();
    header.set_spi(1);
    header.set_sequence(2);
    assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 2, 0xee]);
    assert!(Header::of(&bytes[..7]).is_none());
}
