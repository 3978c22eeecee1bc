use std::net::IpAddr;

use wire::esp::{Direction, Esn, SUITES, Secret};

use super::{BadLine, Check, End, line, parse};
use crate::{Fingerprint, Keys};

/// As strongSwan writes it, and as Wireshark 4 does, with comments, CRLF and spaces.
const TABLE: &str = "# written by hand\r\n\
\r\n\
\"IPv4\",\"192.0.2.1\",\"198.51.100.1\",\"0x00001000\",\"AES-GCM [RFC4106]\",\"0x000102030405060708090a0b0c0d0e0f10111213\",\"ANY 128 bit authentication [no checking]\",\"0x\"\r\n\
\"IPv6\", \"*\", \"2001:db8::/32\", \"4097\", \"AES-CBC [RFC3602]\", \"0x000102030405060708090a0b0c0d0e0f\", \"HMAC-SHA-1-96 [RFC2404]\", \"0x000102030405060708090a0b0c0d0e0f10111213\", \"64-bit\", \"0x00000002\"\n\
\"IPv4\",\"*\",\"*\",\"0x1002\",\"AES-CBC [RFC3602]\",\"0x000102030405060708090a0b0c0d0e0f\",\"ANY 96 bit authentication [no checking]\",\"\"\n";

fn fields(change: usize, to: &str) -> BadLine {
    let mut fields = [
        "IPv4",
        "192.0.2.1",
        "*",
        "0x1000",
        "AES-CBC [RFC3602]",
        "0x000102030405060708090a0b0c0d0e0f",
        "HMAC-SHA-1-96 [RFC2404]",
        "0x000102030405060708090a0b0c0d0e0f10111213",
    ]
    .map(str::to_owned);
    fields[change] = to.to_owned();
    let text = format!("\n{}", fields.map(|field| format!("\"{field}\"")).join(","));
    let (sas, bad) = parse(&text);
    assert!(sas.is_empty(), "{text}");
    let [(2, error)] = &bad[..] else { panic!("{bad:?}") };
    assert!(!error.to_string().contains("0102"), "{error} has a key");
    error.clone()
}

#[test]
fn tables_of_wireshark_and_of_strongswan_are_read() {
    let (sas, bad) = parse(TABLE);
    assert_eq!(bad, []);
    let [gcm, cbc, unchecked] = &sas[..] else { panic!("{sas:?}") };
    let Check::Suite(suite) = gcm.check else { panic!("{gcm:?}") };
    assert_eq!((gcm.line, gcm.spi, suite.name().algorithm()), (3, 0x1000, "aes128-gcm"));
    assert_eq!((gcm.keys.cipher.len(), gcm.keys.auth.len(), gcm.esn), (20, 0, None));
    let Check::Suite(suite) = cbc.check else { panic!("{cbc:?}") };
    assert_eq!((cbc.spi, suite.name().to_string().as_str()), (4097, "aes128-cbc, hmac-sha1-96"));
    assert_eq!((cbc.source, cbc.esn), (End::Any, Some((Esn::On, 2))));
    assert!(cbc.destination.has("2001:db8:77::1".parse().unwrap()));
    assert!(!cbc.destination.has("2001:db9::1".parse().unwrap()));
    assert!(!cbc.destination.has("192.0.2.1".parse().unwrap()));
    assert!(matches!(unchecked.check, Check::Unchecked(Some(suite), 12) if suite.icv == 0));
}

#[test]
fn each_fault_has_its_words() {
    assert!(matches!(parse("\"IPv4\",\"*\"").1[..], [(1, BadLine::Fields(2))]));
    assert!(matches!(parse("\"IPv4\",\"*").1[..], [(1, BadLine::Quote(2))]));
    assert!(matches!(parse("IPv4,*").1[..], [(1, BadLine::Quote(1))]));
    assert!(matches!(parse("\"IPv4\"x,\"*\"").1[..], [(1, BadLine::Quote(1))]));
    assert!(matches!(fields(0, "IPv5"), BadLine::Version(_)));
    for address in ["2001:db8::1", "192.0.2", "192.0.2.0/33", "", "192.0.2.*"] {
        assert!(matches!(fields(1, address), BadLine::Address(..)), "{address}");
    }
    for spi in ["*", "0", "0x100000000", "-1", ""] {
        assert!(matches!(fields(3, spi), BadLine::Spi(_)), "{spi}");
    }
    assert!(matches!(fields(4, "AES-CTR [RFC3686]"), BadLine::Algorithm("cipher", _)));
    assert!(matches!(fields(4, "AES-GCM with 8 octet ICV [RFC4106]"), BadLine::Algorithm("cipher", _)));
    assert!(matches!(fields(4, "AES-GCM [RFC4106]"), BadLine::Together(..)));
    assert!(matches!(fields(5, "0x0001020304"), BadLine::KeyLength(_, 5)));
    assert!(matches!(fields(5, "0x010"), BadLine::Key(..)));
    assert!(matches!(fields(5, "0123456789abcdef"), BadLine::NoHex(_)));
    assert!(matches!(fields(6, "MAC-RIPEMD-160-96 [RFC2857]"), BadLine::Algorithm("integrity algorithm", _)));
    // A key in the wrong column is not repeated.
    for column in [0, 1, 3, 4, 6] {
        fields(column, "0x0102030405060708090a0b0c0d0e0f");
    }
    assert!(matches!(fields(7, "0x00"), BadLine::KeyLength(_, 1)));
}

#[test]
fn what_is_written_is_read() {
    let (source, destination): (IpAddr, IpAddr) =
        ("192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
    let mut without = Vec::new();
    for suite in &SUITES {
        let bytes = |len: u8| Secret::new((1..=len).collect());
        let keys = Keys { cipher: bytes(suite.key + suite.salt), auth: bytes(suite.auth_key) };
        let Some(text) = line(Some(source), Some(destination), 0x1000, suite, &keys) else {
            without.push(suite.name().algorithm());
            continue;
        };
        let (sas, bad) = parse(&text);
        assert_eq!(bad, [], "{}", suite.name());
        let [sa] = &sas[..] else { panic!("{}", suite.name()) };
        assert_eq!(sa.check, Check::Suite(suite));
        let same = |keys: &Keys| Fingerprint::of(keys, Direction::In);
        assert_eq!(same(&sa.keys), same(&keys));
        assert!(sa.source.has(source) && sa.destination.has(destination) && !sa.source.has(destination));
        // A peer without an address may have any, of the version of the other end.
        let of_any = line(None, Some(destination), 0x1000, suite, &keys).unwrap();
        let (sas, bad) = parse(&of_any);
        assert_eq!((sas[0].source, sas[0].destination), (End::Any, sa.destination));
        assert!(bad.is_empty() && of_any.starts_with("\"IPv4\",\"*\","));
    }
    assert_eq!(without, ["aes128-gmac", "aes256-gmac"]);
}

#[test]
fn no_text_is_a_panic() {
    for end in 0..TABLE.len() {
        if let Some(text) = TABLE.get(..end) {
            let _ = parse(text);
        }
        if let Some(text) = TABLE.get(end..) {
            let _ = parse(text);
        }
    }
}
