use proptest::prelude::{any, prop, proptest};

use super::super::message::ESN;
use super::super::write::{self, KeyUse, Writer};
use super::*;

/// Recorded messages, each with the command that it came of.
pub(crate) fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    recorded_in(include_str!("recorded.txt"))
}

/// Messages of a file, each with the command that it came of.
pub(crate) fn recorded_in(text: &'static str) -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<(&str, String)> = Vec::new();
    for line in text.lines().skip(1) {
        if line.contains(' ') {
            all.push((line, String::new()));
        } else if let Some((_, hex)) = all.last_mut() {
            hex.push_str(line);
        }
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    all.into_iter().map(|(what, hex)| (what, hex.as_bytes().chunks(2).map(byte).collect())).collect()
}

/// Bytes of the one recorded message whose command begins so.
pub(crate) fn bytes_of(command: &str) -> Vec<u8> {
    let mut all = recorded().into_iter().filter(|(what, _)| what.starts_with(command));
    let (_, bytes) = all.next().expect("it was recorded");
    assert_eq!(all.next(), None, "{command} is several");
    bytes
}

/// The one request of a recorded command.
pub(crate) fn asked(command: &str) -> (Header, Request) {
    let bytes = bytes_of(command);
    let mut requests = parse(&bytes);
    let (header, request) = requests.next().expect("a request");
    assert!(requests.next().is_none());
    (header, request.expect("it is right"))
}

const GCM: &str = "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000";

fn sa_of(command: &str) -> Sa {
    match asked(command).1 {
        Request::NewSa(sa) | Request::UpdateSa(sa) => *sa,
        other => panic!("{other:?}"),
    }
}

fn v4(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn bytes_to(last: u8) -> Secret {
    Secret::new((0..=last).collect())
}

#[test]
fn associations_of_ip() {
    let sa = sa_of(GCM);
    assert_eq!(sa.info.id, Id { destination: v4("192.0.2.2"), spi: 0x1000, protocol: 50 });
    assert_eq!((sa.info.source, sa.info.family), (v4("192.0.2.1"), AF_INET));
    assert_eq!((sa.info.reqid, sa.info.mode, sa.if_id), (7, 1, Some(0x2a)));
    let aead = sa.aead.as_ref().unwrap();
    assert_eq!((aead.name.as_str(), aead.icv_bits), ("rfc4106(gcm(aes))", Some(128)));
    assert_eq!(aead.key, bytes_to(0x13));
    assert_eq!(sa.esn.as_ref().unwrap().window, 64);
    assert_eq!(sa.info.lifetimes.bytes, [u64::MAX; 2]);

    let sa = sa_of("ip xfrm state add src 2001:db8::1");
    assert_eq!((sa.info.family, sa.info.mode, sa.info.flags), (AF_INET6, 0, ESN));
    let cipher = sa.cipher.unwrap();
    assert_eq!((cipher.name.as_str(), cipher.key), ("cbc(aes)", bytes_to(15)));
    let auth = sa.auth.unwrap();
    assert_eq!((auth.name.as_str(), auth.icv_bits, auth.key), ("hmac(sha256)", Some(128), bytes_to(31)));
    let encap = sa.encap.unwrap();
    assert_eq!((encap.kind, encap.source_port, encap.destination_port), (2, 4500, 4501));
    assert_eq!((sa.info.lifetimes.bytes, sa.info.lifetimes.added), ([1000, 2000], [100, 0]));
    assert_eq!(sa.esn.unwrap().bitmap.len(), 4);

    let sa = sa_of("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x3000");
    let selector = sa.info.selector;
    assert_eq!((selector.source, selector.source_len), (v4("10.1.0.0"), 16));
    assert_eq!((selector.destination, selector.destination_len), (v4("10.2.0.0"), 16));
    assert_eq!((selector.source_port, selector.destination_port), ([5, 0xffff], [443, 0xffff]));
    assert_eq!((selector.protocol, sa.auth.unwrap().icv_bits), (6, None));
}

#[test]
fn associations_of_charon() {
    let (_, request) = asked("charon gcm ALLOCSPI");
    let Request::AllocSpi(asked) = request else { panic!("{request:?}") };
    assert_eq!((asked.min, asked.max), (0xc000_0000, 0xcfff_ffff));
    assert_eq!((asked.sa.info.id.destination, asked.sa.info.source), (v4("192.0.2.1"), v4("192.0.2.2")));
    let sa = sa_of("charon gcm UPDSA");
    assert_eq!((sa.info.window, sa.info.reqid), (32, 1));
    let encap = sa.encap.unwrap();
    assert_eq!((encap.kind, encap.source_port, encap.destination_port), (2, 4500, 4500));
    let sa = sa_of("charon esn UPDSA 1");
    assert_eq!((sa.info.flags & ESN, sa.esn.unwrap().window, sa.info.window), (ESN, 256, 0));
    // `if_id_in`, limits by bytes and time, and, of packets that leave, `copy_dscp = no`.
    assert_eq!((sa.extra_flags, sa.if_id), (None, Some(7)));
    assert_eq!(sa_of("charon esn NEWSA 1").extra_flags, Some(1));
    assert!(sa.info.lifetimes.bytes[0] <= 500_000_000 && sa.info.lifetimes.bytes[1] > 500_000_000);
    assert!(sa.info.lifetimes.added[0] <= 3600 && sa.info.lifetimes.added[1] >= 3600);
    let sa = sa_of("charon esn UPDSA 2");
    assert_eq!((sa.info.mode, sa.aead.unwrap().name.as_str()), (0, "rfc7539esp(chacha20,poly1305)"));
}

#[test]
fn policies() {
    let Request::NewPolicy(policy) = asked("ip xfrm policy add").1 else { panic!() };
    assert_eq!((policy.info.direction, policy.info.priority), (PolicyDirection::Out, 100));
    assert_eq!((policy.info.selector.destination_port, policy.if_id), ([443, 0xffff], Some(0x2a)));
    let [template] = policy.templates[..] else { panic!("{policy:?}") };
    assert_eq!((template.source, template.id.destination), (v4("192.0.2.1"), v4("192.0.2.2")));
    assert_eq!((template.reqid, template.mode, template.id.protocol), (7, 1, 50));
    let Request::UpdatePolicy(policy) = asked("ip xfrm policy update").1 else { panic!() };
    assert_eq!((policy.info.action, policy.info.direction), (1, PolicyDirection::In));
    let Request::DeletePolicy(id) = asked("ip xfrm policy delete index 9").1 else { panic!() };
    assert_eq!((id.index, id.direction), (9, PolicyDirection::Out));
    let Request::NewPolicy(policy) = asked("charon esn NEWPOLICY 1").1 else { panic!() };
    assert_eq!((policy.mark, policy.if_id), (Some(Mark { value: 5, mask: u32::MAX }), Some(7)));
    assert_eq!(policy.info.selector.protocol, 6);
}

#[test]
fn questions() {
    let id = |spi| SaId { id: Id { destination: v4("192.0.2.2"), spi, protocol: 50 }, family: AF_INET };
    assert_eq!(asked("ip xfrm state get").1, Request::GetSa(id(0x1000)));
    assert_eq!(asked("ip xfrm state delete").1, Request::DeleteSa(id(0x1000)));
    assert_eq!(asked("ip xfrm state flush").1, Request::FlushSas(50));
    assert_eq!(asked("ip xfrm policy flush").1, Request::FlushPolicies);
    assert_eq!(asked("ip xfrm state count").1, Request::GetSadInfo);
    assert_eq!(asked("ip xfrm policy count").1, Request::GetSpdInfo);
    let wanted = Thresholds { v4: Some([16, 24]), v6: Some([64, 96]) };
    assert_eq!(asked("ip xfrm policy set").1, Request::SetThresholds(wanted));
    assert_eq!(
        asked("ip xfrm state list").1,
        Request::ListSas(SaFilter { protocol: 0, ends: Some(EndFilter::default()) })
    );
    assert_eq!(asked("ip xfrm policy list").1, Request::ListPolicies);
}

#[test]
fn keys_are_not_in_debug() {
    let text = format!("{:?}", asked(GCM)) + &format!("{:?}", asked("charon esn UPDSA 1"));
    assert!(text.contains("Secret(20 bytes)") && text.contains("Secret(32 bytes)"), "{text}");
    assert!(!text.contains("14, 15, 16, 17"), "{text}");
}

#[test]
fn what_is_wrong_is_refused_in_words() {
    let refusal = |bytes: &[u8]| parse(bytes).next().unwrap().1.unwrap_err();
    let mut bytes = bytes_of(GCM);
    // Family of the outer addresses.
    let family = 16 + 56 + 24 + 16 + 64 + 32 + 12 + 8;
    bytes[family] = 3;
    assert_eq!(refusal(&bytes).errno, Errno::INVAL);
    assert!(refusal(&bytes).words.contains("family"), "{:?}", refusal(&bytes));
    let mut bytes = bytes_of("ip xfrm policy add");
    bytes[16 + 160] = 7;
    assert!(refusal(&bytes).words.contains("direction"), "{:?}", refusal(&bytes));
    let mut bytes = bytes_of("ip xfrm policy add");
    bytes[16 + 42] = 33;
    assert!(refusal(&bytes).words.contains("longer than an address"), "{:?}", refusal(&bytes));
    // The name of the algorithm: without its end, and no text.
    for (filling, count) in [(b'a', 64), (0xff, 8)] {
        let mut bytes = bytes_of(GCM);
        bytes[16 + 224 + 4..][..count].fill(filling);
        assert!(refusal(&bytes).words.contains("no text"), "{:?}", refusal(&bytes));
    }
    let mut bytes = bytes_of("ip xfrm state flush");
    bytes[4..6].copy_from_slice(&33_u16.to_ne_bytes());
    assert_eq!(refusal(&bytes).errno, Errno::NOPROTOOPT);
    bytes[4..6].copy_from_slice(&77_u16.to_ne_bytes());
    assert_eq!(refusal(&bytes).errno, Errno::INVAL);
    // No request, and half of one.
    bytes[6] &= !1;
    assert!(parse(&bytes).next().is_none());
    assert!(parse(&bytes_of(GCM)[..300]).next().is_none());
}

#[test]
fn several_messages_of_a_datagram() {
    let all = [bytes_of("ip xfrm state flush"), vec![0; 3], bytes_of("ip xfrm policy flush")].concat();
    let kinds: Vec<u16> = parse(&all).map(|(header, _)| header.kind).collect();
    assert_eq!(kinds, [kind::FLUSHSA, kind::FLUSHPOLICY]);
}

/// An SA or policy that was read is written so that it is read the same again.
#[test]
fn written_is_read() {
    for (what, bytes) in recorded() {
        for (header, request) in parse(&bytes) {
            let request = request.unwrap();
            let written = match &request {
                Request::NewSa(sa) | Request::UpdateSa(sa) => write::sa(&header, sa, KeyUse::Shown),
                Request::NewPolicy(policy) | Request::UpdatePolicy(policy) => write::policy(&header, policy),
                _ => continue,
            };
            let again: Vec<_> = parse(&written).collect();
            assert_eq!(again, [(header, Ok(request))], "{what}");
        }
    }
}

/// Linux 6.13 and later: the processor of an association, in the messages that may have it.
#[test]
fn processors_of_associations() {
    // Type 35, of 32 bits in the machine's order (`XFRMA_SA_PCPU` of `linux/xfrm.h`).
    let attribute = [&[8, 0, 35, 0][..], &6_u32.to_ne_bytes()].concat();
    for (command, is_ae) in [
        (GCM, false),
        ("charon gcm ALLOCSPI", false),
        ("charon gcm UPDSA", false),
        ("ip xfrm state get", true),
    ] {
        let mut bytes = bytes_of(command);
        if is_ae {
            bytes[4..6].copy_from_slice(&kind::GETAE.to_ne_bytes());
            // The name, and what is behind it in `xfrm_aevent_id`.
            bytes.truncate(16 + 24);
            bytes.extend([0; 24]);
        }
        bytes.extend(&attribute);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        let cpu = match parse(&bytes).next().unwrap().1.unwrap() {
            Request::NewSa(sa) | Request::UpdateSa(sa) => sa.cpu,
            Request::AllocSpi(asked) => asked.sa.cpu,
            Request::GetAe(ae) => ae.cpu,
            other => panic!("{other:?}"),
        };
        assert_eq!(cpu, Some(6), "{command}");
    }
    let (header, request) = asked(GCM);
    let Request::NewSa(mut sa) = request else { panic!() };
    sa.cpu = Some(6);
    let written = write::sa(&header, &sa, KeyUse::Shown);
    assert!(written.windows(8).any(|bytes| bytes == attribute));
    assert_eq!(parse(&written).next(), Some((header, Ok(Request::NewSa(sa)))));
}

#[test]
fn zeros_stand_for_keys() {
    let (header, request) = asked(GCM);
    let Request::NewSa(sa) = request else { panic!() };
    let shown = write::sa(&header, &sa, KeyUse::Shown);
    let hidden = write::sa(&header, &sa, KeyUse::Zeros);
    let key = bytes_to(0x13);
    let has_key = |bytes: &[u8]| bytes.windows(8).any(|part| part == &key.expose()[4..12]);
    assert!(has_key(&shown) && !has_key(&hidden) && shown.len() == hidden.len());
    let mut writer = Writer::default();
    (0..40).for_each(|_| writer.sa(&header, &sa, KeyUse::Shown));
    assert!(writer.is_full());
    assert_eq!(parse(&writer.finish()).filter(|(_, request)| request.is_ok()).count(), 40);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        assert!(parse(&bytes).count() <= bytes.len() / 16 + 1);
    }

    /// Recorded messages with any byte changed and cut anywhere: read or refused, and what is read is written.
    #[test]
    fn damaged(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let all = recorded();
        let (_, mut bytes) = all[which.index(all.len())].clone();
        let at = at.index(bytes.len());
        bytes[at] = to;
        for (header, request) in parse(&bytes).chain(parse(&bytes[..cut.index(bytes.len())])) {
            if let Ok(Request::NewSa(sa) | Request::UpdateSa(sa)) = request {
                let header = Header { flags: header.flags | 1, kind: kind::NEWSA, ..header };
                let written = write::sa(&header, &sa, KeyUse::Shown);
                assert_eq!(parse(&written).next(), Some((header, Ok(Request::NewSa(sa)))));
            }
        }
    }
}
