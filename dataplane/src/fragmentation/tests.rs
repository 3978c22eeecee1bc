//! Parts are checked by putting them together again, byte by byte, with a reader of headers of its own.

use arrayvec::ArrayVec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use tally::NoTally;
use wire::{Frame, Part, Pool, ipv4};

use super::fragment;
use crate::verdict::Reason;

/// A frame: `network` bytes of link header, an IPv4 header with these options (padded), `payload` bytes, padding.
#[derive(Clone, Debug)]
struct Given {
    network: usize,
    options: Vec<u8>,
    payload: usize,
    field: u16,
    padding: usize,
}

impl Given {
    fn bytes(&self) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let header_len = 20 + options.len();
        let mut bytes: Vec<u8> = (0..self.network).map(|at| 0xa0 + at as u8).collect();
        bytes.extend([0x40 | (header_len / 4) as u8, 0xb8]);
        bytes.extend(((header_len + self.payload) as u16).to_be_bytes());
        bytes.extend([0xbe, 0xef]);
        bytes.extend(self.field.to_be_bytes());
        bytes.extend([63, 17, 0, 0, 10, 0, 0, 1, 198, 51, 100, 7]);
        bytes.extend(options);
        let checksum = !sum(&bytes[self.network..]);
        bytes[self.network + 10..self.network + 12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend((0..self.payload).map(|at| (at * 31 + at / 256) as u8));
        bytes.extend(vec![0xee; self.padding]);
        bytes
    }
}

/// RFC 1071, word by word.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn frame(pool: &mut Pool, bytes: &[u8]) -> Frame {
    let mut frame = pool.take().unwrap();
    assert!(frame.fill(bytes));
    frame
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        Just(vec![148, 4, 0, 0]),
        Just(vec![7, 7, 4, 1, 2, 3, 4]),
        Just(vec![130, 11, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
        Just(vec![68, 8, 5, 0, 9, 9, 9, 9]),
        Just(vec![0]),
        Just(vec![148, 200]),
        Just(vec![200, 2]),
    ];
    prop::collection::vec(option, 0..6).prop_map(|options| {
        let mut bytes: Vec<u8> = Vec::new();
        for option in options {
            if bytes.len() + option.len() <= 40 {
                bytes.extend(option);
            }
        }
        bytes
    })
}

fn given() -> impl Strategy<Value = Given> {
    (
        prop_oneof![Just(14usize), Just(18), Just(0), Just(22)],
        prop_oneof![2 => Just(Vec::new()), 1 => options()],
        prop_oneof![4 => 0usize..4_000, 1 => 0usize..100],
        prop_oneof![3 => Just(0u16), 1 => (0u16..7_000, any::<bool>()).prop_map(|(offset, more)| offset | u16::from(more) << 13)],
        0usize..50,
    )
        .prop_map(|(network, options, payload, field, padding)| {
            // Of a fragment that more follow, the length is a multiple of 8.
            let payload = if field & 0x2000 != 0 { payload & !7 } else { payload };
            Given { network, options, payload, field, padding }
        })
}

/// The options that RFC 791 has in every fragment, padded: walked here once more.
fn copied(mut options: &[u8]) -> Vec<u8> {
    let mut copied = Vec::new();
    while let [kind, rest @ ..] = options {
        match kind {
            0 => break,
            1 => options = rest,
            _ => {
                let len = rest.first().map_or(0, |len| usize::from(*len));
                if len < 2 || len > options.len() {
                    break;
                }
                if kind & 0x80 != 0 {
                    copied.extend(&options[..len]);
                }
                options = &options[len..];
            }
        }
    }
    copied.resize(copied.len().next_multiple_of(4), 0);
    copied
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn parts_put_together_are_the_packet(
        given in given(),
        mtu in prop_oneof![68u16..=1500, Just(68), Just(576), Just(1280), Just(1500)],
    ) {
        let mut pool = Pool::new(600, 8192).unwrap();
        let bytes = given.bytes();
        let network = given.network;
        let whole = bytes[..bytes.len() - given.padding].to_vec();
        let mut frame = frame(&mut pool, &bytes);
        frame.meta.number = 77;
        let mut parts: ArrayVec<Frame, 512> = ArrayVec::new();
        let made = fragment(&mut frame, network, mtu, &mut pool, &mut parts, &mut NoTally).unwrap();
        prop_assert_eq!(made, parts.len());
        prop_assert_eq!(pool.available(), 600 - 1 - made);
        if whole.len() - network <= usize::from(mtu) {
            prop_assert_eq!(made, 0);
            prop_assert_eq!(frame.bytes(), &bytes[..]);
            return Ok(());
        }
        prop_assert!(made > 0);
        let header_len = usize::from(whole[network] & 15) * 4;
        let mut payload = vec![None; whole.len() - network - header_len];
        let base = usize::from(given.field & 0x1fff) * 8;
        for (number, part) in std::iter::once(&frame).chain(&parts).enumerate() {
            let (link, packet) = part.bytes().split_at(network);
            prop_assert_eq!(link, &whole[..network]);
            prop_assert!(packet.len() <= usize::from(mtu));
            let len = usize::from(packet[0] & 15) * 4;
            prop_assert_eq!(packet[0] >> 4, 4);
            prop_assert_eq!(sum(&packet[..len]), 0xffff);
            prop_assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
            let field = u16::from_be_bytes([packet[6], packet[7]]);
            let last = number == made;
            prop_assert_eq!(field & 0xe000, if last { given.field & 0x2000 } else { 0x2000 });
            prop_assert!(last || (packet.len() - len) % 8 == 0);
            prop_assert!(packet.len() > len);
            // What no fragmentation changes: TOS, identification, TTL, protocol, addresses.
            let fixed = &whole[network..network + 20];
            prop_assert_eq!((packet[1], &packet[4..6], &packet[8..10]), (fixed[1], &fixed[4..6], &fixed[8..10]));
            prop_assert_eq!(&packet[12..20], &fixed[12..20]);
            let all = &whole[network + 20..network + header_len];
            prop_assert_eq!(&packet[20..len], &if number == 0 { all.to_vec() } else { copied(all) }[..]);
            let offset = usize::from(field & 0x1fff) * 8 - base;
            for (at, byte) in packet[len..].iter().enumerate() {
                prop_assert!(payload[offset + at].replace(*byte).is_none());
            }
            prop_assert_eq!((usize::from(part.meta.end), part.meta.number), (part.len(), 77));
            if number > 0 {
                prop_assert_eq!(part.meta.part, Part::Later);
                prop_assert_eq!(usize::from(part.meta.transport), network + len);
            }
            prop_assert!(ipv4::parse(packet).is_ok());
        }
        let payload: Option<Vec<u8>> = payload.into_iter().collect();
        prop_assert_eq!(payload.as_deref(), Some(&whole[network + header_len..]));
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        network in 0usize..210,
        mtu in 0u16..200,
        version in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.get_mut(network).filter(|_| version) {
            *first = 0x40 | *first & 15;
        }
        let mut pool = Pool::new(64, 2048).unwrap();
        let mut frame = frame(&mut pool, &bytes);
        let mut parts: ArrayVec<Frame, 64> = ArrayVec::new();
        if fragment(&mut frame, network, mtu, &mut pool, &mut parts, &mut NoTally).is_err() {
            prop_assert_eq!(frame.bytes(), &bytes[..]);
            prop_assert_eq!(pool.available(), 63);
        }
    }
}

fn large(field: u16) -> Given {
    Given { network: 14, options: Vec::new(), payload: 3_000, field, padding: 0 }
}

/// Cuts with `slots` beside that of the frame; the frame's bytes and the slots left must be as before.
fn refused(given: &Given, mtu: u16, slots: u32, slot_bytes: usize) -> Reason {
    let mut big = Pool::new(1, 8192).unwrap();
    let mut pool = Pool::new(slots.max(1), slot_bytes).unwrap();
    let taken = if slots == 0 { pool.take() } else { None };
    let bytes = given.bytes();
    let mut frame = frame(&mut big, &bytes);
    frame.meta.part = Part::Whole;
    let mut parts: ArrayVec<Frame, 4> = ArrayVec::new();
    let reason = fragment(&mut frame, given.network, mtu, &mut pool, &mut parts, &mut NoTally).unwrap_err();
    assert_eq!(frame.bytes(), bytes);
    assert_eq!((frame.meta.part, parts.len(), pool.available()), (Part::Whole, 0, slots as usize));
    drop(taken);
    reason
}

#[test]
fn where_it_fails_everything_is_as_before() {
    assert_eq!(refused(&large(0), 576, 0, 2048), Reason::SlotTooSmall);
    assert_eq!(refused(&large(0), 576, 4, 2048), Reason::SlotTooSmall);
    // Five further parts, of which `parts` has room for four.
    assert_eq!(refused(&large(0), 576, 9, 2048), Reason::SlotTooSmall);
    let long = Given { payload: 6_000, ..large(0) };
    assert_eq!(refused(&long, 3_000, 9, 2048), Reason::SlotTooSmall);
    assert_eq!(refused(&large(0x4000), 576, 9, 2048), Reason::PacketTooBig);
    assert_eq!(refused(&large(0), 27, 9, 2048), Reason::PacketTooBig);
    // Offset 65,000 and 3,000 bytes.
    assert_eq!(refused(&large(8_125), 1500, 9, 2048), Reason::FragmentOversize);
}

#[test]
fn the_smallest_mtu_carries_the_longest_header_and_eight_bytes() {
    let given = Given { options: vec![148; 40], payload: 30, ..large(0) };
    let mut pool = Pool::new(9, 2048).unwrap();
    let mut frame = frame(&mut pool, &given.bytes());
    let mut parts: ArrayVec<Frame, 8> = ArrayVec::new();
    // The options are broken (148 is no length), so no further part has them, and it has room for 48 bytes.
    assert_eq!(fragment(&mut frame, 14, 68, &mut pool, &mut parts, &mut NoTally), Ok(1));
    assert_eq!((frame.len(), parts[0].len()), (14 + 68, 14 + 20 + 22));
    assert_eq!(frame.meta.part, Part::First);
}

#[test]
fn parts_that_are_there_already_stay() {
    let mut pool = Pool::new(9, 8192).unwrap();
    let mut parts: ArrayVec<Frame, 9> = ArrayVec::new();
    for expected in [3, 6] {
        let mut frame = frame(&mut pool, &large(0).bytes());
        let made = fragment(&mut frame, 14, 1000, &mut pool, &mut parts, &mut NoTally);
        assert_eq!((made, parts.len()), (Ok(3), expected));
        pool.put(frame);
    }
    let mut third = frame(&mut pool, &large(0).bytes());
    assert_eq!(
        fragment(&mut third, 14, 1000, &mut pool, &mut parts, &mut NoTally),
        Err(Reason::SlotTooSmall)
    );
    assert_eq!((parts.len(), pool.available()), (6, 2));
}
