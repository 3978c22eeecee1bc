//! Bytes made by hand, round trips, and files that lie.

use std::io;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::batch::Batch;
use crate::ethernet::Mac;
use crate::link_kind::LinkKind;
use crate::pool::Pool;
use crate::port::{Port, Received};

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    at: u64,
    interface: usize,
    link: u16,
    bytes: Vec<u8>,
    original_len: u32,
    comment: Option<String>,
}

impl Owned {
    fn of(record: &Record<'_>) -> Owned {
        Owned {
            at: record.at.0,
            interface: record.interface,
            link: record.link.0,
            bytes: record.bytes.to_vec(),
            original_len: record.original_len,
            comment: record.comment.as_ref().map(|text| text.to_string()),
        }
    }

    fn record(&self) -> Record<'_> {
        Record {
            interface: self.interface,
            original_len: self.original_len,
            comment: self.comment.as_deref().map(Cow::Borrowed),
            ..Record::new(Nanos(self.at), &self.bytes)
        }
    }
}

fn packet(at: u64, link: u16, bytes: &[u8]) -> Owned {
    let original_len = bytes.len() as u32;
    Owned { at, interface: 0, link, bytes: bytes.to_vec(), original_len, comment: None }
}

fn reader(bytes: &[u8]) -> Result<Reader<&[u8]>, CaptureError> {
    Reader::over("test", bytes)
}

/// All records, and where the file was cut.
fn read_all(bytes: &[u8]) -> (Vec<Owned>, Option<CutShort>) {
    let mut reader = reader(bytes).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push(Owned::of(&record));
        assert_eq!(record.number, records.len() as u64);
    }
    (records, reader.cut_short())
}

/// The first problem met in `bytes`.
fn problem(bytes: &[u8]) -> CaptureError {
    let mut reader = match reader(bytes) {
        Ok(reader) => reader,
        Err(error) => return error,
    };
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("read to the end"),
            Err(error) => return error,
        }
    }
}

/// Integers in either byte order.
#[derive(Clone, Copy)]
struct Bytes {
    big: bool,
}

impl Bytes {
    fn u16(self, value: u16) -> Vec<u8> {
        if self.big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }
    fn u32(self, value: u32) -> Vec<u8> {
        if self.big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }
    fn u64(self, value: u64) -> Vec<u8> {
        if self.big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    fn pcap(self, magic: u32, link: u32) -> Vec<u8> {
        [self.u32(magic), self.u16(2), self.u16(4), self.u32(0), self.u32(0), self.u32(65535), self.u32(link)]
            .concat()
    }

    fn pcap_record(self, seconds: u32, fraction: u32, bytes: &[u8], original: u32) -> Vec<u8> {
        let head = [seconds, fraction, bytes.len() as u32, original].map(|field| self.u32(field));
        [head.concat(), bytes.to_vec()].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = [self.u16(code), self.u16(value.len() as u16), value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    fn block(self, kind: u32, body: &[Vec<u8>]) -> Vec<u8> {
        let mut body = body.concat();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.u32(body.len() as u32 + 12);
        [self.u32(kind), length.clone(), body, length].concat()
    }

    fn section(self) -> Vec<u8> {
        self.block(
            0x0a0d_0d0a,
            &[self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), self.u64(u64::MAX), self.option(3, b"an OS")],
        )
    }

    fn interface(self, link: u16, snaplen: u32, options: &[Vec<u8>]) -> Vec<u8> {
        self.block(1, &[self.u16(link), self.u16(0), self.u32(snaplen), options.concat()])
    }

    fn enhanced(
        self,
        interface: u32,
        time: u64,
        bytes: &[u8],
        original: u32,
        options: &[Vec<u8>],
    ) -> Vec<u8> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0);
        let head = [interface, (time >> 32) as u32, time as u32, bytes.len() as u32, original];
        self.block(6, &[head.map(|field| self.u32(field)).concat(), padded, options.concat()])
    }
}

const ORDERS: [Bytes; 2] = [Bytes { big: false }, Bytes { big: true }];
const BODY: &[u8] = b"seventeen bytes!!";

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for order in ORDERS {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let mut file = order.pcap(magic, 1);
            file.extend(order.pcap_record(1_700_000_000, 123_456, BODY, 1500));
            file.extend(order.pcap_record(1_600_000_000, 0, b"", 0));
            let first =
                Owned { original_len: 1500, ..packet(1_700_000_000_000_000_000 + 123_456 * unit, 1, BODY) };
            assert_eq!(read_all(&file), (vec![first, packet(1_600_000_000_000_000_000, 1, b"")], None));
        }
    }
}

#[test]
fn pcap_of_the_last_second_of_32_bits() {
    let file = [ORDERS[0].pcap(0xa1b2_c3d4, 1), ORDERS[0].pcap_record(u32::MAX, 999_999, BODY, 17)].concat();
    assert_eq!(read_all(&file).0[0].at, 4_294_967_295_999_999_000);
}

#[test]
fn pcap_with_kuznetsovs_longer_records() {
    let mut file = ORDERS[0].pcap(0xa1b2_cd34, 1);
    let record = ORDERS[0].pcap_record(1, 2, BODY, 17);
    file.extend([&record[..16], b"8 bytes.", &record[16..]].concat());
    file.extend([&record[..16], b"8 bytes.", &record[16..]].concat());
    assert_eq!(read_all(&file).0, vec![packet(1_000_002_000, 1, BODY); 2]);
}

#[test]
fn pcap_whose_link_type_tells_of_a_frame_check_sequence() {
    let file = [ORDERS[0].pcap(0xa1b2_c3d4, 0x2400_0001), ORDERS[0].pcap_record(1, 0, BODY, 17)].concat();
    assert_eq!(read_all(&file).0, vec![packet(1_000_000_000, 1, BODY)]);
}

#[test]
fn pcapng_of_several_sections_interfaces_clocks_and_comments() {
    let mut file = Vec::new();
    for order in ORDERS {
        file.extend(order.section());
        file.extend(order.interface(1, 0, &[order.option(2, b"eth0"), order.option(9, &[9])]));
        // 2^-20 of a second, and an offset of 100 s.
        let offset = order.option(14, &order.u64(100));
        file.extend(order.interface(101, 0, &[order.option(9, &[0x94]), offset]));
        // Statistics, which are passed over, and more options than the end mark allows.
        file.extend(order.block(5, &[order.u32(0), order.u64(0)]));
        file.extend(order.enhanced(0, 1_700_000_000_000_000_001, BODY, 99, &[order.option(1, b"a comment")]));
        let late = [order.option(2, &[0; 4]), order.u32(0), order.option(1, b"past the end")];
        file.extend(order.enhanced(1, 3 << 19, b"E", 1, &late));
    }
    let (records, cut) = read_all(&file);
    let expected = |section: usize| {
        let ether = packet(1_700_000_000_000_000_001, 1, BODY);
        let comment = Some("a comment".to_owned());
        [
            Owned { interface: 2 * section, original_len: 99, comment, ..ether },
            Owned { interface: 2 * section + 1, ..packet(101_500_000_000, 101, b"E") },
        ]
    };
    assert_eq!((records, cut), ([expected(0), expected(1)].concat(), None));
    let mut reader = reader(&file).unwrap();
    while reader.next().unwrap().is_some() {}
    let names: Vec<_> = reader.interfaces().iter().map(|found| found.name.as_deref()).collect();
    assert_eq!(names, [Some("eth0"), None, Some("eth0"), None]);
}

#[test]
fn pcapng_clocks() {
    let at = |resolution: &[u8], offset: i64, time: u64| {
        let order = ORDERS[1];
        let options = [order.option(9, resolution), order.option(14, &order.u64(offset as u64))];
        let file = [order.section(), order.interface(1, 0, &options), order.enhanced(0, time, b"", 0, &[])];
        read_all(&file.concat()).0[0].at
    };
    assert_eq!(at(&[6], 0, 1_000_001), 1_000_001_000);
    assert_eq!(at(&[0], 0, 7), 7_000_000_000);
    assert_eq!(at(&[12], 0, 1_500_000_000_999), 1_500_000_000);
    assert_eq!(at(&[0x80], 0, 7), 7_000_000_000);
    assert_eq!(at(&[0xff], 0, u64::MAX), 0, "2^127 units to the second");
    assert_eq!(at(&[0x7f], 0, u64::MAX), 0, "10^127 units to the second");
    assert_eq!(at(&[6], -2, 1_000_000), 0, "before 1970");
    assert_eq!(at(&[6], -1, 3_000_000), 2_000_000_000);
    assert_eq!(at(&[0], i64::MAX, u64::MAX), u64::MAX);
    assert_eq!(at(&[], 0, 1), 1000, "an empty option changes nothing");
}

#[test]
fn pcapng_simple_and_obsolete_packet_blocks() {
    for order in ORDERS {
        let mut padded = BODY.to_vec();
        padded.resize(20, 0);
        let obsolete = [order.u16(0), order.u16(9), order.u32(0), order.u32(5), order.u32(17), order.u32(50)];
        let file = [
            order.section(),
            order.interface(1, 10, &[]),
            order.enhanced(0, 4, b"", 0, &[]),
            order.block(3, &[order.u32(17), padded[..12].to_vec()]),
            order.block(2, &[obsolete.concat(), padded]),
        ]
        .concat();
        let expected = vec![
            packet(4000, 1, b""),
            Owned { original_len: 17, ..packet(4000, 1, &BODY[..10]) },
            Owned { original_len: 50, ..packet(5000, 1, BODY) },
        ];
        assert_eq!(read_all(&file), (expected, None));
    }
}

#[test]
fn a_cut_file_gives_what_is_whole_and_says_where_it_was_cut() {
    let order = ORDERS[0];
    let head = [order.section(), order.interface(1, 0, &[])].concat();
    let block = order.enhanced(0, 1000, BODY, 17, &[]);
    let pcap = order.pcap(0xa1b2_c3d4, 1);
    let record = order.pcap_record(0, 1000, BODY, 17);
    for (head, record) in [(head, block), (pcap, record)] {
        for kept in 0..record.len() {
            let file = [&head[..], &record, &record[..kept]].concat();
            let (records, cut) = read_all(&file);
            assert_eq!(records, [packet(1_000_000, 1, BODY)]);
            let begin = (head.len() + record.len()) as u64;
            let expected = (kept > 0).then_some(CutShort { offset: begin, present: kept as u64 });
            assert_eq!(cut, expected);
        }
        for kept in 0..24 {
            assert!(matches!(problem(&head[..kept]).problem, Problem::HeaderCut));
        }
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let order = ORDERS[0];
    let said = |file: &[u8]| problem(file).to_string();
    assert_eq!(
        said(&order.pcap(0xa1b2_c3d4, 105)),
        "test: packets of link type 105 (IEEE 802.11) cannot be read; Ethernet, raw IP, Linux cooked, \
         loopback and ATM (RFC 1483, SunATM, ERF) can"
    );
    assert!(said(&order.pcap(0xa1b2_c3d4, 147 + 10)).contains("link type 157 cannot be read"));
    assert!(said(b"\x1f\x8b\x08\x00 and so on").contains("unpack it first"));
    assert!(said(b"PK\x03\x04").contains("50 4b 03 04"));
    let long = [order.pcap(0xa1b2_c3d4, 1), [0, 0, 262_145, 0].map(|field| order.u32(field)).concat()];
    let error = problem(&long.concat());
    assert!(matches!(error.problem, Problem::Oversize { length: 262_145, limit: 262_144 }));
    assert_eq!(error.offset, 24);
    let huge = [order.section(), order.u32(6), order.u32(0xffff_fffc)].concat();
    assert!(matches!(problem(&huge).problem, Problem::Oversize { length: 0xffff_fffc, .. }));
    let odd = [order.section(), order.u32(6), order.u32(33), vec![0; 40]].concat();
    assert!(matches!(problem(&odd).problem, Problem::Malformed(_)));
    let stray = [order.section(), order.enhanced(0, 0, BODY, 17, &[])].concat();
    assert!(matches!(problem(&stray).problem, Problem::NoInterface(0)));
    let mut torn = [order.section(), order.interface(1, 0, &[])].concat();
    torn.pop();
    torn.push(9);
    assert!(matches!(problem(&torn).problem, Problem::Malformed("interface description block")));
    let many = [order.section(), order.interface(1, 0, &[]).repeat(5000)].concat();
    assert!(matches!(problem(&many).problem, Problem::TooManyInterfaces(4096)));
    assert!(matches!(Reader::open("no/such/file").unwrap_err().problem, Problem::Input(_)));
}

#[test]
fn an_unsupported_interface_does_not_hide_the_others() {
    let order = ORDERS[0];
    let file = [
        order.section(),
        order.interface(105, 0, &[]),
        order.interface(1, 0, &[]),
        order.enhanced(0, 1, b"radio", 5, &[]),
        order.enhanced(1, 1, b"wire", 4, &[]),
    ]
    .concat();
    let mut reader = reader(&file).unwrap();
    assert!(matches!(reader.next().unwrap_err().problem, Problem::UnsupportedLink(LinkType(105))));
    assert_eq!(reader.next().unwrap().unwrap().bytes, b"wire");
    assert!(reader.next().unwrap().is_none());
}

/// Fails after so many bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let bytes = into.len().min(self.0);
        into[..bytes].copy_from_slice(&ORDERS[0].pcap(0xa1b2_c3d4, 1).repeat(2)[..bytes]);
        self.0 -= bytes;
        Ok(bytes)
    }
}

#[test]
fn a_failing_source_is_not_a_cut() {
    let mut reader = Reader::over("test", Failing(30)).unwrap();
    assert!(matches!(reader.next().unwrap_err().problem, Problem::Input(_)));
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.cut_short(), None);
}

#[test]
fn losses_are_told_beside_the_packets() {
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    writer.interface("lan").unwrap();
    writer.flush().unwrap();
    let head = std::mem::take(writer.get_mut());
    writer.lost(0, Nanos(0x0102_0304_0506_0708), 7, "too slow").unwrap();
    assert!(matches!(writer.lost(1, Nanos(0), 7, "").unwrap_err().problem, Problem::NoInterface(1)));
    let order = ORDERS[0];
    let block = order.block(
        5,
        &[
            order.u32(0),
            order.u32(0x0102_0304),
            order.u32(0x0506_0708),
            order.option(1, b"too slow"),
            order.option(5, &7u64.to_le_bytes()),
            order.u32(0),
        ],
    );
    writer.flush().unwrap();
    assert_eq!(*writer.get_mut(), block);
    writer.write(&Record::new(Nanos(1), b"12345")).unwrap();
    let whole = [head, writer.finish().unwrap()].concat();
    let (records, cut) = read_all(&whole);
    assert_eq!((records.len(), cut), (1, None));
}

#[test]
fn the_writer_is_deterministic_and_exact() {
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    let wan = writer.interface("wan").unwrap();
    let record = Record {
        interface: wan,
        comment: Some("why".into()),
        ..Record::new(Nanos(0x0102_0304_0506_0708), b"12345")
    };
    writer.write(&record).unwrap();
    let order = ORDERS[0];
    let expected = [
        order.block(
            0x0a0d_0d0a,
            &[
                order.u32(0x1a2b_3c4d),
                order.u16(1),
                order.u16(0),
                order.u64(u64::MAX),
                order.option(4, b"wirerate"),
                order.u32(0),
            ],
        ),
        order.interface(1, 0, &[order.option(2, b"wan"), order.option(9, &[9]), order.u32(0)]),
        order.enhanced(0, 0x0102_0304_0506_0708, b"12345", 5, &[order.option(1, b"why"), order.u32(0)]),
    ];
    assert_eq!(writer.finish().unwrap(), expected.concat());
}

#[test]
fn packets_of_a_link_without_ethernet_are_written_bare() {
    let packet = [0x45, 0, 0, 20, 1, 2, 3, 4];
    let stand_in = crate::link_kind::received(&packet).unwrap();
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    let lan = writer.interface("lan").unwrap();
    let tun = writer.interface_of("tun", LinkKind::Ip).unwrap();
    let frame = [&stand_in[..], &packet].concat();
    for interface in [lan, tun] {
        let record = Record { interface, original_len: 34, ..Record::new(Nanos(1), &frame) };
        writer.write(&record).unwrap();
    }
    // Too short to have a packet, and with a tag.
    writer.write(&Record { interface: tun, ..Record::new(Nanos(2), &frame[..9]) }).unwrap();
    let tagged = [&frame[..12], &[0x81, 0, 0, 20, 0x08, 0], &packet].concat();
    writer.write(&Record { interface: tun, ..Record::new(Nanos(3), &tagged) }).unwrap();
    let file = writer.finish().unwrap();
    let mut reader = Reader::over("in", &file[..]).unwrap();
    let mut next = || {
        let record = reader.next().unwrap().unwrap();
        (record.link, record.bytes.to_vec(), record.original_len)
    };
    assert_eq!(next(), (LinkType::ETHERNET, frame.clone(), 34));
    assert_eq!(next(), (LinkType::RAW, packet.to_vec(), 20));
    assert_eq!(next(), (LinkType::RAW, Vec::new(), 0));
    assert_eq!(next(), (LinkType::RAW, packet.to_vec(), packet.len() as u32));
    // What is read again is what was written.
    let bare = Record { link: LinkType::RAW, ..Record::new(Nanos(1), &packet) };
    let mut scratch = Vec::new();
    assert_eq!(link::to_ethernet(bare, crate::link_kind::NEAR, &mut scratch).bytes, frame);
}

#[test]
fn cells_are_written_as_records_that_hold_them() {
    let mut cell: [u8; 53] = std::array::from_fn(|place| place as u8);
    cell[4] = crate::atm::hec([0, 1, 2, 3]);
    let frame = crate::atm::stand_in(&cell);
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    let trunk = writer.interface_of_cells("trunk").unwrap();
    let at = Nanos(1_700_000_000_250_000_000);
    writer.write(&Record { interface: trunk, ..Record::new(at, &frame) }).unwrap();
    let file = writer.finish().unwrap();
    let mut reader = Reader::over("in", &file[..]).unwrap();
    let record = reader.next().unwrap().unwrap();
    assert_eq!((record.link, record.at, record.original_len), (LinkType::ERF, at, 68));
    // Time in seconds and a quarter, a cell in a record of any length, 68 bytes, none lost, 52 on the wire.
    let header = [0, 0, 0, 0x40, 0x00, 0xf1, 0x53, 0x65, 3, 4, 0, 68, 0, 0, 0, 52];
    assert_eq!(record.bytes, [&header, &cell[..4], &cell[5..]].concat());
    let mut scratch = Vec::new();
    assert_eq!(link::to_ethernet(record, crate::link_kind::NEAR, &mut scratch).bytes, frame);
}

#[test]
fn the_writer_refuses_what_no_reader_would_take() {
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    let stray = writer.write(&Record::new(Nanos(0), b"")).unwrap_err();
    assert!(matches!(stray.problem, Problem::NoInterface(0)));
    writer.interface("lan").unwrap();
    let long = vec![0; MAX_CAPTURED + 1];
    let error = writer.write(&Record::new(Nanos(0), &long)).unwrap_err();
    assert!(matches!(error.problem, Problem::Oversize { .. }));
    writer.write(&Record::new(Nanos(0), &long[1..])).unwrap();
    let comment = "ä".repeat(40_000);
    writer.write(&Record { comment: Some(comment.into()), ..Record::new(Nanos(0), b"") }).unwrap();
    let (records, _) = read_all(&writer.finish().unwrap());
    assert_eq!(records[0].bytes.len(), MAX_CAPTURED);
    assert_eq!(records[1].comment.as_ref().unwrap().len(), 65_534);
}

#[test]
fn a_port_gives_what_its_capture_holds_and_keeps_what_it_sends() {
    let order = ORDERS[1];
    let mut file = order.pcap(0xa1b2_3c4d, 101);
    for n in 0..100 {
        file.extend(order.pcap_record(n, n, &[0x45, n as u8], 2));
    }
    file.extend(order.pcap_record(100, 100, &[0x60; 9000], 9000));
    file.extend(b"cut");
    let mut pool = Pool::new(8, 2048).unwrap();
    let writer = PcapngWriter::over("out", Vec::new()).unwrap();
    let mut port = CapturePort::new("lan", Mac([9; 6]), Some(reader(&file).unwrap()), Some(writer)).unwrap();
    let mut batch = Batch::new();
    let mut frames = 0;
    while port.receive(&mut batch, &mut pool).unwrap() != Received::End {
        frames += batch.len();
        port.transmit(&mut batch, &mut pool).unwrap();
    }
    assert_eq!((frames, pool.available(), port.name()), (101, 8, "lan"));
    assert_eq!(port.cut_short().map(|cut| cut.present), Some(3));
    let (records, _) = read_all(&port.finish().unwrap().unwrap());
    let header = [9, 9, 9, 9, 9, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    for (n, record) in records[..100].iter().enumerate() {
        let n = n as u64;
        assert_eq!(*record, packet(n * 1_000_000_001, 1, &[&header[..], &[0x45, n as u8]].concat()));
    }
    assert_eq!(records[100].bytes.len(), 2048 - 256, "what fits a slot");
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => vec(any::<u8>(), 0..200), 1 => vec(any::<u8>(), 1400..1600)]
}

fn record() -> impl Strategy<Value = Owned> {
    let comment = prop::option::of("\\PC{0,40}");
    (any::<u64>(), 0usize..3, bytes(), any::<u32>(), comment).prop_map(
        |(at, interface, bytes, original_len, comment)| Owned {
            at,
            interface,
            link: 1,
            bytes,
            original_len,
            comment,
        },
    )
}

fn write(records: &[Owned]) -> Vec<u8> {
    let mut writer = PcapngWriter::over("out", Vec::new()).unwrap();
    for name in ["lan", "wan", "dmz"] {
        writer.interface(name).unwrap();
    }
    for record in records {
        writer.write(&record.record()).unwrap();
    }
    writer.finish().unwrap()
}

/// Files that are nearly right: bytes of a sound one changed, taken out or put in.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let sound = prop_oneof![
        vec(record(), 0..6).prop_map(|records| write(&records)),
        (any::<bool>(), vec(bytes(), 0..6)).prop_map(|(big, packets)| {
            let order = Bytes { big };
            let records = packets.iter().map(|bytes| order.pcap_record(1, 2, bytes, 3));
            [order.pcap(0xa1b2_c3d4, 113), records.collect::<Vec<_>>().concat()].concat()
        }),
        (any::<bool>(), vec(bytes(), 0..6)).prop_map(|(big, packets)| {
            let order = Bytes { big };
            let simple = packets.iter().map(|bytes| order.block(3, &[order.u32(9), bytes.clone()]));
            let head = [order.section(), order.interface(1, 8, &[order.option(9, &[0x8a])])].concat();
            [head, simple.collect::<Vec<_>>().concat()].concat()
        }),
    ];
    let change = (any::<prop::sample::Index>(), 0u8..3, prop_oneof![any::<u8>(), Just(0), Just(255)]);
    (sound, vec(change, 1..12)).prop_map(|(mut file, changes)| {
        for (place, what, byte) in changes {
            let place = place.index(file.len());
            match what {
                0 => file[place] = byte,
                1 => file.insert(place, byte),
                _ if file.len() > 1 => drop(file.remove(place)),
                _ => {}
            }
        }
        file
    })
}

/// Reads all that can be read and past every error; the number of calls is bounded by the file's length.
fn survives(file: &[u8]) -> Result<(), proptest::test_runner::TestCaseError> {
    let Ok(mut reader) = reader(file) else { return Ok(()) };
    let mut scratch = Vec::new();
    for _ in 0..=file.len() {
        match reader.next() {
            Ok(Some(record)) => {
                prop_assert!(record.bytes.len() <= MAX_CAPTURED.min(file.len()));
                let frame = link::to_ethernet(record, Mac([9; 6]), &mut scratch);
                prop_assert_eq!(frame.link, LinkType::ETHERNET);
            }
            Ok(None) => return Ok(()),
            Err(error) => prop_assert!(error.offset <= file.len() as u64, "{}", error),
        }
    }
    prop_assert!(false, "no end");
    Ok(())
}

proptest! {
    #[test]
    fn written_and_read_is_the_same(records in vec(record(), 0..20)) {
        prop_assert_eq!(read_all(&write(&records)), (records, None));
    }

    #[test]
    fn any_bytes_are_survived(magic in 0usize..4, bytes in vec(any::<u8>(), 0..400)) {
        let heads =
            [vec![], ORDERS[0].pcap(0xa1b2_c3d4, 0), ORDERS[1].section(), ORDERS[0].section()];
        survives(&[heads[magic].clone(), bytes].concat())?;
    }

    #[test]
    fn damaged_files_are_survived(file in damaged()) {
        survives(&file)?;
    }

    #[test]
    fn any_packet_of_any_link_type_becomes_a_frame(link: u16, bytes in vec(any::<u8>(), 0..80)) {
        let mut scratch = Vec::new();
        let record = Record { link: LinkType(link), ..Record::new(Nanos(1), &bytes) };
        let frame = link::to_ethernet(record, Mac([9; 6]), &mut scratch);
        prop_assert!(frame.bytes.len() <= bytes.len() + 14);
    }
}
