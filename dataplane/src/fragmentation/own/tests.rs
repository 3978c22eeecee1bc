//! Fragments are put together again, byte by byte, with a reader of headers of its own.

use arrayvec::ArrayVec;
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tally::NoTally;
use wire::{Frame, Part, Pool};

use super::fragment_own;
use crate::verdict::Reason;

/// A link header, and a packet of ESP.
fn packet(network: usize, payload: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..network).map(|at| 0xa0 + at as u8).collect();
    bytes.extend([0x6b, 0x80, 0x12, 0x34]);
    bytes.extend((payload as u16).to_be_bytes());
    bytes.extend([50, 63]);
    bytes.extend(0x20..0x40u8);
    bytes.extend((0..payload).map(|at| (at * 31 + at / 256) as u8));
    bytes
}

fn frame(pool: &mut Pool, bytes: &[u8]) -> Frame {
    let mut frame = pool.take().unwrap();
    assert!(frame.fill(bytes));
    (frame.meta.part, frame.meta.end) = (Part::Whole, bytes.len() as u16);
    frame
}

proptest! {
    #[test]
    fn fragments_put_together_are_the_packet(
        network in prop_oneof![Just(14usize), Just(18), Just(0)],
        payload in 0usize..6_000,
        mtu in prop_oneof![56u16..=1_500, Just(1_280)],
        padding in 0usize..50,
        identification in any::<u32>(),
    ) {
        let mut pool = Pool::new(900, 8192).unwrap();
        let whole = packet(network, payload);
        let mut bytes = whole.clone();
        bytes.extend(vec![0xee; padding]);
        let mut frame = frame(&mut pool, &bytes);
        frame.meta.transport = (network + 40) as u16;
        let mut further: ArrayVec<Frame, 800> = ArrayVec::new();
        let made = fragment_own(&mut frame, network, mtu, identification, &mut pool, &mut further, &mut NoTally).unwrap();
        prop_assert_eq!((made, pool.available()), (further.len(), 900 - 1 - made));
        if 40 + payload <= usize::from(mtu) {
            prop_assert_eq!((made, frame.bytes()), (0, &bytes[..]));
            return Ok(());
        }
        prop_assert!(made > 0);
        let mut together = vec![None; payload];
        for (number, fragment) in std::iter::once(&frame).chain(&further).enumerate() {
            let (link, packet) = fragment.bytes().split_at(network);
            prop_assert_eq!(link, &whole[..network]);
            prop_assert!(packet.len() <= usize::from(mtu) && packet.len() > 48);
            // Version, class, flow label; hop limit and addresses.
            prop_assert_eq!((&packet[..4], &packet[7..40]), (&whole[network..network + 4], &whole[network + 7..network + 40]));
            prop_assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
            prop_assert_eq!((packet[6], packet[40], packet[41]), (44, 50, 0));
            let field = u16::from_be_bytes([packet[42], packet[43]]);
            let is_last = number == made;
            prop_assert_eq!(field & 7, u16::from(!is_last));
            prop_assert!(is_last || packet.len() % 8 == 0);
            prop_assert_eq!(&packet[44..48], &identification.to_be_bytes());
            for (at, byte) in packet[48..].iter().enumerate() {
                prop_assert!(together[usize::from(field & !7) + at].replace(*byte).is_none());
            }
            let part = if number == 0 { Part::First } else { Part::Later };
            prop_assert_eq!((usize::from(fragment.meta.end), fragment.meta.part), (fragment.len(), part));
            prop_assert_eq!(usize::from(fragment.meta.transport), network + 48);
        }
        let together: Option<Vec<u8>> = together.into_iter().collect();
        prop_assert_eq!(together.as_deref(), Some(&whole[network + 40..]));
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        network in 0usize..210,
        mtu in 0u16..200,
    ) {
        let mut pool = Pool::new(64, 2048).unwrap();
        let mut frame = frame(&mut pool, &bytes);
        let mut further: ArrayVec<Frame, 64> = ArrayVec::new();
        if fragment_own(&mut frame, network, mtu, 1, &mut pool, &mut further, &mut NoTally).is_err() {
            prop_assert_eq!((frame.bytes(), pool.available()), (&bytes[..], 63));
        }
    }
}

/// Reason for which it is refused, with so many slots beside that of the frame.
fn refused(payload: usize, mtu: u16, slots: u32, slot_bytes: usize) -> Reason {
    let mut big = Pool::new(1, 8192).unwrap();
    let mut pool = Pool::new(slots, slot_bytes).unwrap();
    let bytes = packet(14, payload);
    let mut frame = frame(&mut big, &bytes);
    let mut further: ArrayVec<Frame, 4> = ArrayVec::new();
    let reason = fragment_own(&mut frame, 14, mtu, 1, &mut pool, &mut further, &mut NoTally).unwrap_err();
    assert_eq!((frame.bytes(), frame.meta.part), (&bytes[..], Part::Whole));
    assert_eq!((further.len(), pool.available()), (0, slots as usize));
    reason
}

#[test]
fn where_it_fails_everything_is_as_before() {
    // Two slots for three further fragments, four places for five, slots that are too short.
    assert_eq!(refused(4_500, 1_280, 2, 2048), Reason::SlotTooSmall);
    assert_eq!(refused(2_900, 576, 9, 2048), Reason::SlotTooSmall);
    assert_eq!(refused(6_000, 3_000, 9, 2048), Reason::SlotTooSmall);
    // No room for eight bytes of payload.
    assert_eq!(refused(500, 55, 9, 2048), Reason::PacketTooBig);
}
