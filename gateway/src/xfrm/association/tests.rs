use super::super::message::{AF_INET, Errno, Id, ReplayEsn, Request, SaInfo};
use super::super::parse::tests::asked;
use super::*;

fn of(command: &str) -> Association {
    match asked(command).1 {
        Request::NewSa(sa) | Request::UpdateSa(sa) => Association::of(&sa).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn algorithm(name: &str, key: usize, icv_bits: Option<u32>) -> Option<Algorithm> {
    Some(Algorithm { name: name.to_owned(), key: Secret::new(vec![7; key].into()), icv_bits })
}

fn sa() -> Sa {
    let id = Id { spi: 0x1000, protocol: ESP, ..Id::default() };
    Sa { info: SaInfo { id, family: AF_INET, mode: 1, ..SaInfo::default() }, ..Sa::default() }
}

#[test]
fn recorded_associations() {
    let sa = of("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000");
    assert_eq!((sa.suite.name().to_string().as_str(), sa.spi), ("aes128-gcm", 0x1000));
    assert_eq!((sa.source.to_string(), sa.destination.to_string()), ("192.0.2.1".into(), "192.0.2.2".into()));
    assert_eq!((sa.mode, sa.esn, sa.window, sa.udp), (Mode::Tunnel, Esn::Off, 64, None));
    assert_eq!((sa.reqid, sa.if_id, &sa.selector), (7, 0x2a, &None));
    assert_eq!((sa.keys.cipher.len(), sa.keys.auth.len()), (20, 0));
    let sa = of("ip xfrm state add src 2001:db8::1");
    assert_eq!(sa.suite.name().to_string(), "aes128-cbc, hmac-sha256-128");
    assert_eq!((sa.mode, sa.esn, sa.window, sa.udp), (Mode::Transport, Esn::On, 128, Some([4500, 4501])));
    let sa = of("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x3000");
    assert_eq!(sa.suite.name().to_string(), "3des-cbc, hmac-md5-96");
    assert!(sa.selector.is_some_and(|selector| selector.protocol == 6));
    let sa = of("charon gcm UPDSA");
    assert_eq!(
        (sa.suite.name().to_string().as_str(), sa.window, sa.udp),
        ("aes128-gcm", 32, Some([4500, 4500]))
    );
    let sa = of("charon esn UPDSA 1");
    assert_eq!(sa.suite.name().to_string(), "aes256-cbc, hmac-sha256-128");
    assert_eq!((sa.esn, sa.window, sa.dscp.inwards), (Esn::On, 256, Copied::No));
    let sa = of("charon esn NEWSA 1");
    assert_eq!((sa.esn, sa.window, sa.dscp.outwards), (Esn::On, 1, Copied::No));
    let sa = of("charon esn UPDSA 2");
    assert_eq!((sa.suite.name().to_string().as_str(), sa.mode), ("chacha20-poly1305", Mode::Transport));
}

/// Every suite is reached by Linux's names for its algorithms, with the lengths of its keys and ICV.
#[test]
fn every_suite() {
    for suite in &SUITES {
        let bits = Some(u32::from(suite.icv) * 8);
        let key = usize::from(suite.key) + usize::from(suite.salt);
        let mut asked = sa();
        match COMBINED.iter().find(|(_, cipher)| *cipher == suite.cipher) {
            Some(([name], _)) => asked.aead = algorithm(name, key, bits),
            None => {
                let ([name, short], _) = PLAIN.iter().find(|(_, cipher)| *cipher == suite.cipher).unwrap();
                asked.cipher = algorithm(if key % 16 == 0 { name } else { short }, key, None);
                let ([name, _], _) = HASHES.iter().find(|(_, (hash, _))| *hash == suite.integrity).unwrap();
                asked.auth = algorithm(name, usize::from(suite.auth_key), bits);
            }
        }
        assert_eq!(Association::of(&asked).map(|association| association.suite), Ok(suite));
        // No cipher without integrity for want of a word.
        asked.auth = None;
        let found = Association::of(&asked).map(|association| association.suite.integrity);
        assert!(
            matches!(found, Ok(Integrity::Combined | Integrity::None) | Err(Unsupported::Unprotected)),
            "{found:?}"
        );
    }
}

#[test]
fn what_cannot_be_carried() {
    let gcm = || algorithm("rfc4106(gcm(aes))", 20, Some(128));
    let cases: Vec<(Sa, &str)> = vec![
        (sa(), "neither `aead` nor `enc`"),
        (Sa { auth: algorithm("hmac(sha1)", 20, None), ..sa() }, "neither `aead` nor `enc`"),
        (Sa { aead: gcm(), auth: algorithm("hmac(sha1)", 20, None), ..sa() }, "stands alone"),
        (Sa { aead: algorithm("rfc4309(ccm(aes))", 19, Some(128)), ..sa() }, "rfc4309(ccm(aes))"),
        (Sa { aead: algorithm("rfc4106(gcm(aes))", 16, Some(128)), ..sa() }, "a key of 128 bits"),
        (Sa { aead: algorithm("rfc4106(gcm(aes))", 20, Some(64)), ..sa() }, "an ICV of 64 bits"),
        (
            Sa { cipher: algorithm("aes", 16, None), auth: algorithm("sha256", 32, None), ..sa() },
            "an ICV of 96 bits",
        ),
        (
            Sa { cipher: algorithm("aes", 16, None), auth: algorithm("sha1", 19, Some(96)), ..sa() },
            "a key of 152 bits",
        ),
        (Sa { cipher: algorithm("cipher_null", 0, None), ..sa() }, "neither encryption nor integrity"),
        (
            Sa {
                aead: gcm(),
                encap: Some(Encap { kind: 1, source_port: 1, destination_port: 1, ..Encap::default() }),
                ..sa()
            },
            "espinudp",
        ),
        (
            Sa { aead: gcm(), encap: Some(Encap { kind: 2, ..Encap::default() }), ..sa() },
            "a destination port",
        ),
        (Sa { aead: gcm(), direction: Some(3), ..sa() }, "direction"),
    ];
    for (asked, words) in cases {
        let error = Association::of(&asked).unwrap_err();
        assert!(error.to_string().contains(words), "{error} is not {words}");
    }
    let with = |change: fn(&mut Sa)| {
        let mut asked = Sa { aead: gcm(), ..sa() };
        change(&mut asked);
        Association::of(&asked).unwrap_err()
    };
    assert_eq!(with(|sa| sa.info.id.protocol = 51), Unsupported::Protocol(51));
    assert_eq!(with(|sa| sa.info.id.spi = 255), Unsupported::Spi(255));
    assert_eq!(with(|sa| sa.info.mode = 4), Unsupported::Mode(4));
    assert_eq!(with(|sa| sa.info.flags = ESN), Unsupported::EsnWithoutNumbers);
    let without_window = with(|sa| {
        sa.info.flags = ESN;
        sa.esn = Some(ReplayEsn::default());
    });
    assert_eq!(without_window, Unsupported::EsnWithoutWindow);
    // Of what leaves there is none to have: strongSwan 6.0.6 with Linux 6.10 and later.
    let sent = |direction| {
        let mut asked =
            Sa { aead: gcm(), direction: Some(direction), esn: Some(ReplayEsn::default()), ..sa() };
        asked.info.flags = ESN;
        Association::of(&asked).map(|association| (association.esn, association.window))
    };
    assert_eq!(sent(OUT), Ok((Esn::On, 0)));
    assert_eq!(sent(IN), Err(Unsupported::EsnWithoutWindow));
    let transport = with(|sa| {
        sa.info.mode = 0;
        sa.tfc = Some(1000);
    });
    assert_eq!(transport, Unsupported::TransportTfc);
    assert_eq!(Refusal::from(Unsupported::Algorithm("x".into())).errno, Errno::NOSYS);
    assert_eq!(Refusal::from(Unsupported::Protocol(51)).errno, Errno::PROTONOSUPPORT);
}
