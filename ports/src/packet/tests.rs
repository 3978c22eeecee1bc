use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, proptest};
use proptest::prop_oneof;
use wire::ethernet;

use super::*;
use crate::spec::Offload;
use crate::sys::Plain;
use crate::sys::mapping::Mapping;

const SLOT: usize = 2048;
const SLOTS: usize = 8;
/// Offset of a frame in its slot, in bytes, with an offload header in front.
const AT: usize = 96;

/// A line over a ring that the test fills in the kernel's place, without real sockets.
fn line() -> (PacketLine, Mapping) {
    line_of(LinkKind::Ethernet)
}

fn line_of(kind: LinkKind) -> (PacketLine, Mapping) {
    let [map, kernel] = Mapping::twice(SLOT * SLOTS);
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let line = PacketLine {
        identity: Identity { name: "test".to_owned(), ifindex: 0 },
        inlets: vec![Inlet { socket: file(), ring: Ring::over(map, SLOTS, SLOT) }],
        pending: Pending::new(Offload::Segment),
        arrived: Nanos(0),
        outlet: Outlet {
            socket: file(),
            whole: None,
            cuts: Cuts::NONE,
            refusals: 0,
            paused: 0,
            uncut: 0,
            kind,
            to: [packet::address(0, 0); 2],
        },
        idle: 0,
        statistics: Statistics::default(),
        fast: None,
    };
    (line, kernel)
}

/// Puts a frame into a slot, as the kernel does.
fn put(kernel: &Mapping, slot: usize, header: libc::tpacket2_hdr, undone: VnetHeader, frame: &[u8]) {
    let at = slot * SLOT;
    for (number, byte) in frame.iter().take(SLOT - AT).enumerate() {
        kernel.write(at + AT + number, *byte);
    }
    if let Some(offset) = usize::from(header.tp_mac).checked_sub(VnetHeader::LEN) {
        if offset + VnetHeader::LEN <= SLOT {
            kernel.write(at + offset, undone);
        }
    }
    kernel.write(at, header);
}

fn whole(frame: &[u8]) -> libc::tpacket2_hdr {
    let mut header = libc::tpacket2_hdr::zeroed();
    header.tp_status = libc::TP_STATUS_USER;
    header.tp_len = frame.len() as u32;
    header.tp_snaplen = frame.len() as u32;
    header.tp_mac = AT as u16;
    header
}

#[test]
fn a_bare_packet_gets_a_stand_in_and_its_checksum_from_where_it_lies() {
    let (mut line, kernel) = line_of(LinkKind::Ip);
    let frame = wire::build::ethernet(ethernet::Mac([2; 6]), ethernet::Mac([4; 6]))
        .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
        .udp(1, 2)
        .payload(b"bare")
        .to_vec();
    let packet = &frame[14..];
    // The pseudo header's sum in the place of the checksum, as Linux leaves it.
    let mut left = packet.to_vec();
    let pseudo = wire::ipv4::parse(packet).unwrap().pseudo_header();
    let bare = pseudo.fold();
    left[26..28].copy_from_slice(&bare.to_be_bytes());
    let undone = VnetHeader { flags: 1, csum_start: 20, csum_offset: 6, ..VnetHeader::default() };
    put(&kernel, 0, whole(&left), undone, &left);
    // What is no IP packet is counted, and goes no further.
    put(&kernel, 1, whole(&[0; 40]), VnetHeader::default(), &[0; 40]);
    let mut pool = Pool::new(8, 2048).unwrap();
    let mut batch = Batch::new();
    line.receive(&mut batch, &mut pool).unwrap();
    assert_eq!((batch.len(), line.statistics.unusable, line.statistics.completed), (1, 1, 1));
    let expected = [&link_kind::received(packet).unwrap()[..], packet].concat();
    assert_eq!(batch[0].bytes(), expected);
}

#[test]
fn tags_that_the_kernel_took_out_are_put_back() {
    let (mut line, kernel) = line();
    let frame = wire::build::ethernet(ethernet::Mac([2; 6]), ethernet::Mac([4; 6]))
        .ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
        .udp(1, 2)
        .payload(b"tagged")
        .to_vec();
    let status = libc::TP_STATUS_USER | libc::TP_STATUS_VLAN_VALID;
    let service = EtherType::QINQ.0;
    let headers = [
        libc::tpacket2_hdr { tp_status: status, tp_vlan_tci: 0x6005, tp_vlan_tpid: service, ..whole(&frame) },
        libc::tpacket2_hdr {
            tp_status: status | libc::TP_STATUS_VLAN_TPID_VALID,
            tp_vlan_tci: 0x6005,
            tp_vlan_tpid: service,
            ..whole(&frame)
        },
        libc::tpacket2_hdr { tp_vlan_tci: 0x6005, tp_vlan_tpid: service, ..whole(&frame) },
    ];
    for (slot, header) in headers.into_iter().enumerate() {
        put(&kernel, slot, header, VnetHeader::default(), &frame);
    }
    let mut pool = Pool::new(8, 2048).unwrap();
    let mut batch = Batch::new();
    assert_eq!(line.receive(&mut batch, &mut pool).unwrap(), Received::Frames(3));
    let tag = |tpid| Some(Tag { tpid, tci: 0x6005 });
    let expected = [tag(EtherType::VLAN), tag(EtherType::QINQ), None];
    for (received, expected) in batch.iter().zip(expected) {
        let layer = ethernet::parse(received.bytes()).unwrap();
        assert_eq!(layer.tags.outer(), expected);
        assert_eq!((layer.header.dst(), layer.header.src()), (ethernet::Mac([4; 6]), ethernet::Mac([2; 6])));
        assert_eq!((layer.ethertype, layer.payload), (EtherType::IPV4, &frame[14..]));
    }
    for slot in 0..3 {
        assert_eq!(
            kernel.read::<u32>(slot * SLOT),
            Some(libc::TP_STATUS_KERNEL),
            "slot {slot} is the kernel's again"
        );
    }
    batch.drain().for_each(|frame| pool.put(frame));
}

#[test]
fn frames_come_as_the_pool_and_the_batch_have_room_and_none_twice() {
    let (mut line, kernel) = line();
    let mut pool = Pool::new(3, 2048).unwrap();
    for slot in 0..SLOTS {
        put(&kernel, slot, whole(&[slot as u8; 60]), VnetHeader::default(), &[slot as u8; 60]);
    }
    let mut seen = Vec::new();
    let mut batch = Batch::new();
    while let Received::Frames(frames) = line.receive(&mut batch, &mut pool).unwrap() {
        assert!(frames <= 3);
        for frame in batch.drain() {
            seen.push(frame.bytes()[0]);
            pool.put(frame);
        }
    }
    assert_eq!(seen, (0..SLOTS as u8).collect::<Vec<_>>());
    assert_eq!(line.statistics.received, SLOTS as u64);
}

proptest! {
    #[test]
    fn no_slot_panics_whatever_it_says(
        slots in vec(
            (
                prop_oneof![Just(libc::TP_STATUS_USER), any::<u32>()],
                (option::of(any::<u32>()), option::of(any::<u32>())),
                prop_oneof![Just(AT as u16), any::<u16>()],
                any::<[u8; 10]>(),
                vec(any::<u8>(), 0..2000),
            ),
            0..=SLOTS,
        )
    ) {
        let (mut line, kernel) = line();
        let mut told = 0;
        for (slot, (status, (len, snaplen), mac, undone, frame)) in slots.iter().enumerate() {
            let header = libc::tpacket2_hdr {
                tp_status: *status,
                tp_len: len.unwrap_or(frame.len() as u32),
                tp_snaplen: snaplen.unwrap_or(frame.len() as u32),
                tp_mac: *mac,
                ..whole(frame)
            };
            if told == slot && status & libc::TP_STATUS_USER != 0 {
                told += 1;
            }
            put(&kernel, slot, header, VnetHeader::from_bytes(*undone), frame);
        }
        let mut pool = Pool::new(16, 2048).unwrap();
        let mut batch = Batch::new();
        let mut frames = 0;
        while let Received::Frames(more) = line.receive(&mut batch, &mut pool).unwrap() {
            frames += more as u64;
            for frame in batch.drain() {
                prop_assert!(frame.len() <= SLOT);
                pool.put(frame);
            }
        }
        let counted = line.statistics;
        prop_assert_eq!(counted.received, frames);
        prop_assert!(frames + counted.unusable + counted.lost >= told as u64, "each is accounted for");
        prop_assert_eq!(pool.available(), 16);
    }
}
