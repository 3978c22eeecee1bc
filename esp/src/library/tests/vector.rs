//! Published packets: those of draft-mcgrew-gcm-test-01 (AES-GCM), of RFC 7634, appendix A (ChaCha20-Poly1305), and of RFC 3602,
//! section 4 (AES-CBC, without integrity). Each library opens them.

use super::*;

/// A whole ESP packet, and what is in it.
struct Vector {
    algorithm: &'static str,
    auth: Option<&'static str>,
    key: &'static str,
    auth_key: &'static str,
    /// Upper half of the number, where numbers are extended.
    high: Option<u32>,
    packet: &'static str,
    text: &'static str,
}

fn holds(vector: &Vector) {
    let name = vector.packet;
    let suite = Suite::named(vector.algorithm, vector.auth).unwrap();
    let packet = [&IN_FRONT[..], &hex(vector.packet)].concat();
    let low = u32::from_be_bytes(*packet[SPARE + 4..].first_chunk().unwrap());
    let (number, esn) = match vector.high {
        None => (u64::from(low), Esn::Off),
        Some(high) => (u64::from(high) << 32 | u64::from(low), Esn::On),
    };
    for open in each(suite, &keys(vector.key, vector.auth_key), Direction::In) {
        let mut bytes = packet.clone();
        assert_eq!(open.open(Packet { bytes: &mut bytes, number, esn }), Ok(()), "{name}");
        let text = SPARE + HEADER_LEN + usize::from(suite.iv)..bytes.len() - usize::from(suite.icv);
        assert_eq!(bytes[text], hex(vector.text), "{name}");
        if suite.icv == 0 {
            continue;
        }
        for at in SPARE..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            assert_eq!(open.open(Packet { bytes: &mut changed, number, esn }), Err(Forged), "{name} at {at}");
        }
    }
}

#[test]
fn aead_packets() {
    for vector in [
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "4c80cdefbb5d10da906ac73c3613a6342e443b68",
            auth_key: "",
            high: Some(0x87654321),
            packet: "00004321000000004956ed7e3b244cfefecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ce\
                     ac34cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd973245901814\
                     8f6cbe722fd04796562dfdb4",
            text: "45000048699a000080114db7c0a80102c0a801010a9bf15638d301000001000000000000045f736970045f756470\
                   037369700963796265726369747902646b000021000101020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "feffe9928665731c6d6a8f9467308308cafebabe",
            auth_key: "",
            high: None,
            packet: "0000a5f80000000afacedbaddecaf888deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d\
                     2a5c3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd183b70d3aa8bc6ee4c309e9d8\
                     5a41ad4a",
            text: "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d001000001000000000000037369700963\
                   796265726369747902646b00000100010001",
        },
        Vector {
            algorithm: "aes256-gcm",
            auth: None,
            key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab11223344",
            auth_key: "",
            high: None,
            packet: "4a2cbfe3000000020102030405060708ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5\
                     d763748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c4915956c96",
            text: "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee0000000007002400020bf0000020405b40101\
                   040201020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "0000000000000000000000000000000000000000",
            auth_key: "",
            high: None,
            packet: "000000000000000100000000000000004688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9\
                     a284456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3f821d496eeb096e98ad2b69e\
                     4799c71d",
            text: "4500003c99c500008001cb7a40679318010101010800075c020044006162636465666768696a6b6c6d6e6f707172\
                   737475767761626364656667686901020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "3de09874b388e6491988d0c3607eae1f57690e43",
            auth_key: "",
            high: Some(0x10101010),
            packet: "42f67e3f101010104e280000a2fca1a3fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35\
                     791765acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320ae0d731cc978ecafaeae88f00\
                     e80d6e48",
            text: "4500003c99c300008001cb7c40679318010101010800085c020043006162636465666768696a6b6c6d6e6f707172\
                   737475767761626364656667686901020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "3de09874b388e6491988d0c3607eae1f57690e43",
            auth_key: "",
            high: Some(0x10101010),
            packet: "42f67e3f101010104e280000a2fca1a3fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed369f\
                     071f35e034be95f112e4e7d05d35",
            text: "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "abbccddef00112233445566778899aabdecaf888",
            auth_key: "",
            high: Some(0x00000000),
            packet: "0000010000000001cafedebaceface7418a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec\
                     168f9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7845d68\
                     651f57e65f354f75ff17015769623436",
            text: "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e20001e8c18d75b81dc91ba\
                   a0476b91b924b280389d92c963bac046ec959b6266c04722b14923010101",
        },
        Vector {
            algorithm: "aes256-gcm",
            auth: None,
            key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74",
            auth_key: "",
            high: Some(0x156f3126),
            packet: "17405e67dd0db99b616e640169766563f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9\
                     a57ff4d3a31ce673119e451626c2415771e3b7eebca614c89b35",
            text: "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
        },
        Vector {
            algorithm: "aes256-gcm",
            auth: None,
            key: "abbccddef00112233445566778899aababbccddef00112233445566778899aab73616c74",
            auth_key: "",
            high: Some(0x156f3126),
            packet: "17405e67dd0db99b616e640169766563d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dc\
                     eb18d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8c0cac587\
                     f249e56b11e24f30e44ccc76",
            text: "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686e6f6c6f676965730174\
                   68617477696c6c01646566696e65746f6d6f72726f7701020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "7d773d00c144c525ac619d18c84a3f47d9664267",
            auth_key: "",
            high: None,
            packet: "335467aeffffffff43457e9182443bc6437f866bcb3f699fe9b0822bac961c4504bef270",
            text: "01020201",
        },
        Vector {
            algorithm: "aes128-gcm",
            auth: None,
            key: "abbccddef00112233445566778899aabdecaf888",
            auth_key: "",
            high: Some(0x00000000),
            packet: "0000010000000001cafedebaceface7429c9fc69a197d038ccdd14e2ddfcaa0543332164412503524303ed3c6c5f\
                     283843af8c3e",
            text: "746f016265016f72016e6f7401746f0162650001",
        },
        Vector {
            algorithm: "aes256-gcm",
            auth: None,
            key: "6c6567616c697a656d6172696a75616e61616e64646f69746265666f726569617475726e",
            auth_key: "",
            high: Some(0xffffffff),
            packet: "796b6963ffffffff333021696765746df97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c\
                     3a864cd3d78ca4ae68a32b42458fb57dbe821dcc63b9d0937ba2945f669368661a329fb4c053",
            text: "45000030da3a00008001df3bc0a80005c0a800010800c6cd020007006162636465666768696a6b6c6d6e6f707172\
                   737401020201",
        },
        Vector {
            algorithm: "chacha20-poly1305",
            auth: None,
            key: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3",
            auth_key: "",
            high: None,
            packet: "0102030400000005101112131415161724039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407a\
                     e5c614ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb\
                     94e664da9165b82829f641e076aaa8266b7fb0f7b11b369907e1ad43",
            text: "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f1011\
                   12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363701020204",
        },
    ] {
        holds(&vector);
    }
}

#[test]
fn aes_cbc_packets() {
    for vector in [
        Vector {
            algorithm: "aes128-cbc",
            auth: Some("none"),
            key: "90d382b410eeba7ad938c46cec1a82bf",
            auth_key: "",
            high: None,
            packet: "0000432100000001e96e8c08ab465763fd098d45dd3ff893f663c25d325c18c6a9453e194e120849a4870b66cc6b\
                     9965330013b4898dc856a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874aa269add0\
                     47ad2d5913ac19b7cfbad4a6",
            text: "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425\
                   262728292a2b2c2d2e2f30313233343536370102030405060708090a0b0c0d0e0e01",
        },
        Vector {
            algorithm: "aes128-cbc",
            auth: Some("none"),
            key: "90d382b410eeba7ad938c46cec1a82bf",
            auth_key: "",
            high: None,
            packet: "000043210000000869d08df7d203329db093fc4924e5bd80f51995881ec4e0c4488987ce742e8109689bb379d2d7\
                     50c0d915dca346a89f75",
            text: "0800b5e8a80a0500a69c083d0b660e0077777777777777777777777701020201",
        },
        Vector {
            algorithm: "aes128-cbc",
            auth: Some("none"),
            key: "0123456789abcdef0123456789abcdef",
            auth_key: "",
            high: None,
            packet: "0000876500000002f4e765244f6407adf13dc1380f673f37773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a\
                     93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b859243c647752e94a859352b8a4d4d2decd136e5c177f132\
                     ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d",
            text: "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f1011\
                   12131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233343536370102030405060708\
                   090a0a04",
        },
        Vector {
            algorithm: "aes128-cbc",
            auth: Some("none"),
            key: "0123456789abcdef0123456789abcdef",
            auth_key: "",
            high: None,
            packet: "000087650000000585d47224b5f3dd5d2101d4ea8dffab2215b92683819596a8047232cc00f7048fe45318e11f8a\
                     0f62ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3d2726d9b\
                     5ef6affc6d17a0decbb13892",
            text: "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffff\
                   ffffffffffffffffffffffffffffffffffffffffffff0102030405060708090a0a04",
        },
    ] {
        holds(&vector);
    }
}
