//! Packets for the end of a tunnel that are not the peer's, or are no longer: none is delivered, none moves the window, and what the peer
//! sends afterwards comes in.

use dataplane::replay::Way;
use dataplane::sa::SaNews;
use dataplane::{Reason, Verdict};
use wire::esp::{Direction, Esn, HEADER_LEN, HeaderMut, SUITES, Secret, Suite, Tfc};
use wire::ethernet::{self, Mac};
use wire::header::Protocol;
use wire::random::Random;
use wire::{Nanos, build};

use crate::scene::policy::Association;
use crate::scene::{Arrival, Gateway, START};

const WAN: u16 = 1;
const SPI: u32 = 0x2000;

/// Length of Ethernet and outer header.
const ESP_AT: usize = ethernet::HEADER_LEN + 20;

fn gateway(sa: &Association) -> Gateway {
    let name = sa.suite.name();
    let of = |spi: u32, direction: &str| {
        let [key, auth_key] =
            sa.keys(spi).map(|key| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let mut text = format!(
            "[[interface.peer.esp.sa]]\ndirection = \"{direction}\"\nspi = {spi}\nalgorithm = \"{}\"\nesn = {}\n",
            name.algorithm(),
            sa.esn == Esn::On
        );
        for (word, value) in
            [("auth", name.auth().unwrap_or_default()), ("key", &key), ("auth-key", &auth_key)]
        {
            if !value.is_empty() {
                text += &format!("{word} = \"{value}\"\n");
            }
        }
        text
    };
    let text = format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"10.1.0.1/16\"]\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n\
         [interface.peer]\nzone = \"vpn\"\n[interface.peer.esp]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nlegacy = true\n{}{}\
         [default]\n\"any > any\" = \"accept\"\n[[route]]\nto = \"10.2.0.0/16\"\ninterface = \"peer\"\n",
        of(0x1000, "out"),
        of(SPI, "in"),
    );
    Gateway::new(&text, Way::Run)
}

/// A frame of the peer's, of that number, with a packet of so many bytes for a host of the site.
fn sealed(sa: &Association, number: u64, payload: usize) -> Vec<u8> {
    let suite = sa.suite;
    let [cipher, auth] = sa.keys(SPI).map(|key| Secret::new(key.into()));
    let transform = esp::expand(suite, &esp::Keys { cipher, auth }, Direction::Out).unwrap();
    let data: Vec<u8> = (0..payload).map(|at| at as u8).collect();
    let frame = link().ipv4([10, 2, 0, 9].into(), [10, 1, 0, 5].into()).udp(7, 8).payload(&data).to_vec();
    let inner = &frame[ethernet::HEADER_LEN..];
    let layout = esp::format::layout(inner.len(), suite, Tfc::Off, 1_400).unwrap();
    // Four bytes in front are the sealer's.
    let mut packet = vec![0; 4 + usize::from(layout.total)];
    let at = 4 + HEADER_LEN + usize::from(suite.iv);
    packet[at..at + inner.len()].copy_from_slice(inner);
    esp::format::trailer(&mut packet[at..at + usize::from(layout.text)], &layout, Protocol::IPV4);
    let mut header = HeaderMut::of(&mut packet[4..]).unwrap();
    header.set_spi(SPI);
    header.set_sequence(number as u32);
    transform.seal(esp::Packet { bytes: &mut packet, number, esn: sa.esn });
    outer(&packet[4..])
}

/// ESP from the peer's address.
fn outer(payload: &[u8]) -> Vec<u8> {
    link()
        .ipv4([192, 0, 2, 2].into(), [192, 0, 2, 1].into())
        .protocol(Protocol::ESP)
        .payload(payload)
        .to_vec()
}

fn link() -> build::Packet<'static> {
    build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 10]))
}

/// Takes frames in from outside, and returns how many left again, and why the others were dropped.
fn receive(gateway: &mut Gateway, frames: &[Vec<u8>]) -> (usize, Vec<Option<Reason>>) {
    let (mut sent, mut reasons) = (0, Vec::new());
    for batch in frames.chunks(64) {
        let arrivals: Vec<Arrival> = batch
            .iter()
            .map(|bytes| Arrival { port: wire::PortId(WAN), at: START, number: 0, bytes: bytes.clone() })
            .collect();
        gateway.receive(&arrivals);
        let out = gateway.out(usize::MAX);
        assert!(out.sent.iter().all(|sent| sent.verdict == Some(Verdict::Forwarded)), "nothing is answered");
        sent += out.sent.len();
        assert!(out.local.is_empty(), "nothing is delivered: {:?}", out.local);
        reasons.extend(out.ended.iter().map(|(_, verdict)| verdict.reason()));
    }
    (sent, reasons)
}

/// All suites that authenticate, with and without extended numbers.
fn associations() -> impl Iterator<Item = Association> {
    let suites = SUITES.iter().filter(|suite| suite.icv > 0);
    suites.flat_map(|suite| [Esn::Off, Esn::On].map(|esn| Association { suite, esn }))
}

fn top(gateway: &Gateway) -> u64 {
    let views = gateway.shard.sas.views(START);
    views.iter().find(|view| view.direction == Direction::In).unwrap().number
}

#[test]
fn what_is_cut_or_changed_by_a_bit_does_not_come_in() {
    for sa in associations() {
        let (mut gateway, name) = (gateway(&sa), format!("{} {:?}", sa.suite.name(), sa.esn));
        assert_eq!(receive(&mut gateway, &[sealed(&sa, 5, 30)]).0, 1, "{name}");
        let whole = sealed(&sa, 9, 30);
        let esp = &whole[ESP_AT..];
        // Cut, with an outer header that says so; the last one is whole.
        let cut: Vec<Vec<u8>> = (0..esp.len()).map(|len| outer(&esp[..len])).collect();
        let (sent, reasons) = receive(&mut gateway, &cut);
        let is_expected = |reason: &Option<Reason>| {
            matches!(reason, Some(Reason::EspLength | Reason::IcvWrong | Reason::SpiUnknown))
        };
        assert!(
            sent == 0 && reasons.len() == cut.len() && reasons.iter().all(is_expected),
            "{name}: {reasons:?}"
        );
        let flipped: Vec<Vec<u8>> = (0..esp.len() * 8)
            .map(|bit| {
                let mut frame = whole.clone();
                frame[ESP_AT + bit / 8] ^= 1 << (bit % 8);
                frame
            })
            .collect();
        let (sent, reasons) = receive(&mut gateway, &flipped);
        // Another number may be one that has left the window, or has been.
        let is_expected = |reason: &Option<Reason>| {
            matches!(reason, Some(Reason::IcvWrong | Reason::SpiUnknown | Reason::Replayed))
        };
        assert!(
            sent == 0 && reasons.len() == flipped.len() && reasons.iter().all(is_expected),
            "{name}: {reasons:?}"
        );
        assert_eq!(top(&gateway), 5, "{name}: the window has moved");
        // Not even the peer's own numbers have been used up.
        assert_eq!(receive(&mut gateway, &[whole.clone(), sealed(&sa, 4, 30)]).0, 2, "{name}");
        assert_eq!(receive(&mut gateway, &[whole]), (0, vec![Some(Reason::Replayed)]), "{name}");
    }
}

#[test]
fn what_is_reordered_beyond_the_window_does_not_come_in() {
    for sa in associations() {
        let mut gateway = gateway(&sa);
        // 200 packets in blocks of 10, from the last block to the first: 64 numbers are told apart.
        let order: Vec<u64> = (0..20).rev().flat_map(|block| block * 10 + 1..=block * 10 + 10).collect();
        let frames: Vec<Vec<u8>> = order.iter().map(|number| sealed(&sa, *number, 9)).collect();
        let (sent, reasons) = receive(&mut gateway, &frames);
        assert_eq!(sent, 64, "{}", sa.suite.name());
        let late = match sa.esn {
            Esn::Off => Reason::Replayed,
            // It looks like one of the next 2^32.
            Esn::On => Reason::IcvWrong,
        };
        assert_eq!(reasons, vec![Some(late); 136]);
        let (sent, reasons) = receive(&mut gateway, &frames);
        assert!(sent == 0 && reasons.len() == 200, "twice");
        assert_eq!(top(&gateway), 200);
    }
}

#[test]
fn noise_with_a_valid_index_does_not_come_in() {
    let mut random = Random::new(8);
    let suites =
        ["aes128-gcm", "chacha20-poly1305", "aes256-gmac"].map(|name| Suite::named(name, None).unwrap());
    let composed = [("aes128-cbc", "hmac-sha1-96"), ("null", "hmac-sha256-128")]
        .map(|(name, auth)| Suite::named(name, Some(auth)).unwrap());
    for (round, suite) in suites.into_iter().chain(composed).enumerate() {
        let sa = Association { suite, esn: [Esn::Off, Esn::On][round % 2] };
        let mut gateway = gateway(&sa);
        let noise: Vec<Vec<u8>> = (0..20_000)
            .map(|_| {
                let mut esp: Vec<u8> = (0..8 + random.below(120)).map(|_| random.next_u64() as u8).collect();
                // One in eight has the index of nobody, or the one that is never sent.
                let spi = match random.below(16) {
                    0 => 0,
                    1 => random.next_u64() as u32,
                    _ => SPI,
                };
                esp[..4].copy_from_slice(&spi.to_be_bytes());
                outer(&esp)
            })
            .collect();
        let (sent, reasons) = receive(&mut gateway, &noise);
        assert!(sent == 0 && reasons.len() == noise.len());
        for reason in [Reason::SpiUnknown, Reason::EspLength, Reason::IcvWrong] {
            assert!(reasons.contains(&Some(reason)), "{reason} of {}", suite.name());
        }
        assert_eq!(top(&gateway), 0);
        assert_eq!(receive(&mut gateway, &[sealed(&sa, 1, 30)]).0, 1);
        let views = gateway.shard.sas.views(START);
        let inbound = views.iter().find(|view| view.direction == Direction::In).unwrap();
        let count = |reason| reasons.iter().filter(|own| **own == Some(reason)).count() as u64;
        assert_eq!(inbound.errors.icv_wrong, count(Reason::IcvWrong));
        assert_eq!(inbound.errors.length, count(Reason::EspLength));
        assert_eq!((inbound.packets, inbound.lost), (1, 0));
    }
}

#[test]
fn replays_are_told_once_a_second_and_all_of_them() {
    let sa = associations().next().unwrap();
    let mut gateway = gateway(&sa);
    let whole = sealed(&sa, 1, 30);
    assert_eq!(receive(&mut gateway, std::slice::from_ref(&whole)).0, 1);
    let mut told = Vec::new();
    // Ten a second for five seconds, then time alone.
    for turn in 0..70 {
        let at = START + Nanos::from_millis(100 * turn);
        if turn < 50 {
            gateway.receive(&[Arrival { port: wire::PortId(WAN), at, number: 0, bytes: whole.clone() }]);
            gateway.out(usize::MAX);
        }
        gateway.tend(at);
        let events: Vec<_> = gateway.shard.sas.take_events().collect();
        told.extend(events.into_iter().map(|event| match event.news {
            SaNews::Replayed { spi: SPI, packets } => (event.at, packets),
            other => panic!("{other:?}"),
        }));
    }
    assert!(told.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= Nanos::from_secs(1)), "{told:?}");
    assert!((5..=6).contains(&told.len()), "{told:?}");
    assert_eq!(told.iter().map(|(_, packets)| packets).sum::<u64>(), 50);
}
