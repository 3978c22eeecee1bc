//! Fragments are put together again, byte by byte, with a reader of headers of its own.

use arrayvec::ArrayVec;
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tally::NoTally;
use wire::{Frame, Part, Pool};

use super::fragment_own;
use crate::verdict::Reason;

/// A link header, and a packet of ESP with headers of options in front, each of so many bytes.
fn packet(network: usize, options: &[usize], payload: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..network).map(|at| 0xa0 + at as u8).collect();
    let len = options.iter().sum::<usize>() + payload;
    bytes.extend([0x6b, 0x80, 0x12, 0x34]);
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend([if options.is_empty() { 50 } else { 60 }, 63]);
    bytes.extend(0x20..0x40u8);
    for (number, option) in options.iter().enumerate() {
        let next = if number + 1 == options.len() { 50 } else { 60 };
        bytes.extend([next, (option / 8 - 1) as u8]);
        // PadN.
        bytes.extend([1, (option - 4) as u8]);
        bytes.extend(vec![0; option - 4]);
    }
    bytes.extend((0..payload).map(|at| (at * 31 + at / 256) as u8));
    bytes
}

fn frame(pool: &mut Pool, bytes: &[u8], network: usize, transport: usize) -> Frame {
    let mut frame = pool.take().unwrap();
    assert!(frame.fill(bytes));
    (frame.meta.part, frame.meta.end) = (Part::Whole, bytes.len() as u16);
    (frame.meta.network, frame.meta.transport) = (network as u16, transport as u16);
    frame
}

proptest! {
    #[test]
    fn fragments_put_together_are_the_packet(
        network in prop_oneof![Just(14usize), Just(18), Just(0)],
        options in prop_oneof![3 => Just(vec![]), 1 => Just(vec![8]), 1 => Just(vec![24, 8])],
        payload in 0usize..6_000,
        mtu in prop_oneof![88u16..=1_500, Just(1_280)],
        padding in 0usize..50,
        identification in any::<u32>(),
    ) {
        let mut pool = Pool::new(900, 8192).unwrap();
        let whole = packet(network, &options, payload);
        let mut bytes = whole.clone();
        bytes.extend(vec![0xee; padding]);
        let headers = 40 + options.iter().sum::<usize>();
        let mut frame = frame(&mut pool, &bytes, network, network + headers);
        let mut further: ArrayVec<Frame, 800> = ArrayVec::new();
        let made = fragment_own(&mut frame, mtu, identification, &mut pool, &mut further, &mut NoTally).unwrap();
        prop_assert_eq!((made, pool.available()), (further.len(), 900 - 1 - made));
        if headers + payload <= usize::from(mtu) {
            prop_assert_eq!((made, frame.bytes()), (0, &bytes[..]));
            return Ok(());
        }
        prop_assert!(made > 0);
        let mut together = vec![None; payload];
        for (number, fragment) in std::iter::once(&frame).chain(&further).enumerate() {
            let (link, packet) = fragment.bytes().split_at(network);
            prop_assert_eq!(link, &whole[..network]);
            prop_assert!(packet.len() <= usize::from(mtu) && packet.len() > headers + 8);
            prop_assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
            // The last of the headers in front leads to the fragment header; nothing else but the length is changed.
            let leads = if options.is_empty() { 6 } else { headers - options[options.len() - 1] };
            prop_assert_eq!((packet[leads], packet[headers], packet[headers + 1]), (44, 50, 0));
            let unchanged = |at: &usize| ![4, 5, leads].contains(at);
            for at in (0..headers).filter(unchanged) {
                prop_assert_eq!(packet[at], whole[network + at], "byte {}", at);
            }
            let field = u16::from_be_bytes([packet[headers + 2], packet[headers + 3]]);
            let is_last = number == made;
            prop_assert_eq!(field & 7, u16::from(!is_last));
            prop_assert!(is_last || (packet.len() - headers) % 8 == 0);
            prop_assert_eq!(&packet[headers + 4..headers + 8], &identification.to_be_bytes());
            for (at, byte) in packet[headers + 8..].iter().enumerate() {
                prop_assert!(together[usize::from(field & !7) + at].replace(*byte).is_none());
            }
            let part = if number == 0 { Part::First } else { Part::Later };
            prop_assert_eq!((usize::from(fragment.meta.end), fragment.meta.part), (fragment.len(), part));
            prop_assert_eq!(usize::from(fragment.meta.transport), network + headers + 8);
        }
        let together: Option<Vec<u8>> = together.into_iter().collect();
        prop_assert_eq!(together.as_deref(), Some(&whole[network + headers..]));
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        network in 0usize..210,
        mtu in 0u16..200,
        transport in 0usize..300,
        is_v6 in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.get_mut(network).filter(|_| is_v6) {
            *first = 0x60 | *first & 15;
        }
        let mut pool = Pool::new(64, 2048).unwrap();
        let mut frame = frame(&mut pool, &bytes, network, transport);
        let mut further: ArrayVec<Frame, 64> = ArrayVec::new();
        if fragment_own(&mut frame, mtu, 1, &mut pool, &mut further, &mut NoTally).is_err() {
            prop_assert_eq!((frame.bytes(), pool.available()), (&bytes[..], 63));
        }
    }
}

/// Reason for which it is refused, with so many slots beside that of the frame.
fn refused(payload: usize, mtu: u16, slots: u32, slot_bytes: usize) -> Reason {
    let mut big = Pool::new(1, 8192).unwrap();
    let mut pool = Pool::new(slots, slot_bytes).unwrap();
    let bytes = packet(14, &[], payload);
    let mut frame = frame(&mut big, &bytes, 14, 14 + 40);
    let mut further: ArrayVec<Frame, 4> = ArrayVec::new();
    let reason = fragment_own(&mut frame, mtu, 1, &mut pool, &mut further, &mut NoTally).unwrap_err();
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
