use super::*;

#[test]
fn hex_is_read() {
    assert_eq!(Secret::of_hex("00fFa1").unwrap().expose(), [0, 0xff, 0xa1]);
    assert_eq!(Secret::of_hex("0x0102").unwrap().expose(), [1, 2]);
    assert!(Secret::of_hex("").unwrap().is_empty());
    assert_eq!(Secret::of_hex("012"), Err(BadHex::Odd));
    assert_eq!(Secret::of_hex("01 2"), Err(BadHex::Digit { at: 3 }));
    assert_eq!(Secret::of_hex("0x0g"), Err(BadHex::Digit { at: 4 }));
    assert_eq!(Secret::of_hex("0ü"), Err(BadHex::Digit { at: 2 }));
}

#[test]
fn debug_tells_the_length_only() {
    let secret = Secret::of_hex("c0ffee").unwrap();
    assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(3 bytes) Secret(3 bytes)");
    assert_eq!(secret.len(), 3);
}

#[test]
fn equal_by_bytes() {
    let secret = Secret::new(Box::new([1, 2]));
    assert_eq!(secret, Secret::of_hex("0102").unwrap());
    assert_ne!(secret, Secret::of_hex("0103").unwrap());
    assert_ne!(secret, Secret::of_hex("010200").unwrap());
}
