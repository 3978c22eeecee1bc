use proptest::prelude::*;
use wire::esp::SUITES;

use super::*;

fn suite(algorithm: &str, auth: Option<&str>) -> &'static Suite {
    Suite::named(algorithm, auth).unwrap()
}

fn tfc() -> impl Strategy<Value = Tfc> {
    prop_oneof![Just(Tfc::Off), (0..2000_u16).prop_map(Tfc::Multiple), Just(Tfc::Mtu)]
}

proptest! {
    /// Every layout is the shortest that RFC 4303 allows, and the trailer that it writes is read back.
    #[test]
    fn a_text_is_read_back(
        suite in prop::sample::select(&SUITES[..]),
        inner in prop::collection::vec(any::<u8>(), 0..1600),
        tfc in tfc(),
        most in 0..1600_u16,
        next in any::<u8>(),
    ) {
        let made = layout(inner.len(), &suite, tfc, most).unwrap();
        let (text_len, total) = (usize::from(made.text), usize::from(made.total));
        prop_assert_eq!(text_len, inner.len() + usize::from(made.tfc) + usize::from(made.pad) + 2);
        prop_assert_eq!(text_len % usize::from(suite.align), 0);
        prop_assert!(made.pad < suite.align);
        prop_assert_eq!(total, 8 + usize::from(suite.iv) + text_len + usize::from(suite.icv));

        let carried = inner.len() + usize::from(made.tfc);
        match tfc {
            Tfc::Off => prop_assert_eq!(made.tfc, 0),
            Tfc::Mtu => prop_assert_eq!(carried, inner.len().max(usize::from(most))),
            Tfc::Multiple(of) => {
                let right = of < 2 || carried % usize::from(of) == 0 || carried == usize::from(most) || made.tfc == 0;
                prop_assert!(right && usize::from(made.tfc) < usize::from(of.max(1)));
                prop_assert!(made.tfc == 0 || carried <= usize::from(most));
            }
        }

        let mut text = inner.clone();
        text.resize(text_len, 0xee);
        trailer(&mut text, &made, Protocol(next));
        prop_assert_eq!(&text[..inner.len()], &inner[..]);
        prop_assert!(text[inner.len()..carried].iter().all(|byte| *byte == 0));
        prop_assert_eq!(untrail(&text), Ok(Trailer { before: carried, next: Protocol(next) }));
    }

    /// No text panics, and what is taken for padding is padding.
    #[test]
    fn any_text_is_read(text in prop::collection::vec(0..4_u8, 0..12)) {
        match untrail(&text) {
            Ok(Trailer { before, next }) => {
                let pad = usize::from(text[text.len() - 2]);
                prop_assert_eq!(before + pad + 2, text.len());
                prop_assert_eq!(Some(&next.0), text.last());
                prop_assert_eq!(&text[before..before + pad], &[1, 2, 3][..pad]);
            }
            Err(BadTrailer) => {
                let pad = text.len().checked_sub(2).map(|at| (at, usize::from(text[at])));
                let right = pad.is_some_and(|(end, pad)| pad <= end && text[end - pad..end] == [1, 2, 3][..pad]);
                prop_assert!(!right);
            }
        }
    }
}

#[test]
fn layouts_of_known_packets() {
    let gcm = suite("aes128-gcm", None);
    assert_eq!(layout(60, gcm, Tfc::Off, 1446), Some(Layout { pad: 2, tfc: 0, text: 64, total: 96 }));
    assert_eq!(layout(62, gcm, Tfc::Off, 1446), Some(Layout { pad: 0, tfc: 0, text: 64, total: 96 }));
    let cbc = suite("aes128-cbc", Some("hmac-sha1-96"));
    assert_eq!(layout(1438, cbc, Tfc::Off, 1438), Some(Layout { pad: 0, tfc: 0, text: 1440, total: 1476 }));
    assert_eq!(
        layout(60, cbc, Tfc::Multiple(128), 1438),
        Some(Layout { pad: 14, tfc: 68, text: 144, total: 180 })
    );
    assert_eq!(layout(100, cbc, Tfc::Mtu, 50), layout(100, cbc, Tfc::Off, 50));
    // Padding never makes more than fits: neither where a multiple is above the MTU, nor where it is above 16 bits.
    assert_eq!(layout(100, gcm, Tfc::Multiple(1000), 700).map(|made| made.tfc), Some(600));
    assert_eq!(layout(60_001, gcm, Tfc::Multiple(60_000), 65_000).map(|made| made.tfc), Some(4999));
}

#[test]
fn what_fits_no_ip_packet_is_refused() {
    let gcm = suite("aes128-gcm", None);
    let longest = (0..70_000).rev().find(|&inner| layout(inner, gcm, Tfc::Off, 1446).is_some()).unwrap();
    let total = layout(longest, gcm, Tfc::Off, 1446).unwrap().total;
    assert!(usize::from(total) + 28 <= 65_535 && usize::from(total) + 28 + 4 > 65_535, "{total}");
    assert_eq!(layout(longest + 1, gcm, Tfc::Off, 1446), None);
    assert_eq!(layout(usize::MAX, gcm, Tfc::Mtu, u16::MAX), None);
    assert_eq!(layout(20, gcm, Tfc::Mtu, u16::MAX), None);
}

#[test]
fn an_ipv4_header_is_whole() {
    let mut bytes = [0xff; 20];
    let outer = Outer {
        local: Ipv4Addr::new(192, 0, 2, 1),
        remote: Ipv4Addr::new(198, 51, 100, 1),
        ds_field: 0xb9,
        df: DontFragment::Set,
        id: 0x1234,
        protocol: Protocol::ESP,
        payload_len: 96,
    };
    outer_v4(&mut bytes, &outer);
    assert_eq!(
        bytes,
        [
            0x45, 0xb9, 0, 116, 0x12, 0x34, 0x40, 0, 64, 50, bytes[10], bytes[11], 192, 0, 2, 1, 198, 51,
            100, 1
        ]
    );
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff);
    outer_v4(&mut bytes, &Outer { df: DontFragment::Clear, ..outer });
    assert_eq!(bytes[6..8], [0, 0]);
}

#[test]
fn an_ipv6_header_is_whole() {
    let mut bytes = [0xff; 40];
    let outer = Outer {
        local: "2001:db8:1::2".parse().unwrap(),
        remote: "2001:db8:1::1".parse().unwrap(),
        ds_field: 0xb9,
        df: DontFragment::Clear,
        id: 7,
        protocol: Protocol::UDP,
        payload_len: 300,
    };
    outer_v6(&mut bytes, &outer);
    assert_eq!(bytes[..8], [0x6b, 0x90, 0, 0, 1, 44, 17, 64]);
    assert_eq!(bytes[8..24], [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(bytes[24..], [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}
