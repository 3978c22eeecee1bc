//! Links of ATM cells: packets come out of their cells as if they had come in by Ethernet or as bare IP, and whatever happens to cells,
//! each has its verdict and no packet is forwarded that was not sent.

use std::collections::BTreeMap;

use dataplane::replay::Way;
use dataplane::{Reason, Verdict};
use proptest::prelude::*;
use wire::aal5::Segmentation;
use wire::atm::{self, CELL_LEN, Vc};
use wire::ethernet::{EtherType, Mac};
use wire::link_kind::{self, LinkKind};
use wire::rfc2684::{Encapsulation, Head};
use wire::vlan::Tag;
use wire::{Nanos, PortId, build};

use crate::scene::{Arrival, Gateway, Out, START, check};

/// Interfaces, in their order.
const LAN: u16 = 0;
const DSL: u16 = 1;
const SECOND: u16 = 2;

const VC: Vc = Vc { vpi: 8, vci: 35 };
const DSL_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x35]);

/// Form in which a channel carries packets.
type Form = (Encapsulation, LinkKind);

const FORMS: [Form; 4] = [
    (Encapsulation::Llc, LinkKind::Ip),
    (Encapsulation::Llc, LinkKind::Ethernet),
    (Encapsulation::VcMux, LinkKind::Ip),
    (Encapsulation::VcMux, LinkKind::Ethernet),
];

fn policy(encapsulation: Encapsulation, link: LinkKind) -> String {
    let kind = if link == LinkKind::Ip { "link = \"ip\"".into() } else { format!("mac = \"{DSL_MAC}\"") };
    format!(
        "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n\
         [interface.dsl]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\n{kind}\n\
         [interface.dsl.atm]\nvc = \"8/35\"\nencapsulation = \"{encapsulation}\"\n\
         [interface.second]\nzone = \"wan\"\naddresses = [\"198.51.100.2/24\"]\nlink = \"ip\"\nmtu = 300\n\
         [interface.second.atm]\nvc = \"0/100\"\nencapsulation = \"vc-mux\"\n\
         [default]\n\"any > any\" = \"accept\"\n"
    )
}

/// A packet from a host beyond the DSL line, with this payload, behind an Ethernet header to the gateway.
fn packet(payload: &[u8]) -> Vec<u8> {
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), DSL_MAC);
    link.ipv4([203, 0, 113, 9].into(), [192, 168, 1, 10].into()).udp(5_000, 53).payload(payload).to_vec()
}

/// Cells of a frame on a channel, each behind its stand-in.
fn cells(vc: Vc, (encapsulation, link): (Encapsulation, LinkKind), frame: &[u8]) -> Vec<Vec<u8>> {
    let packet = if link == LinkKind::Ip { &frame[14..] } else { frame };
    let head = Head::new(encapsulation, link, EtherType::IPV4);
    let cells = Segmentation::new(vc, head.bytes(), packet).unwrap();
    cells.map(|cell| atm::stand_in(&cell).to_vec()).collect()
}

/// A bridged line with a VLAN on it, and packets in cells aimed at corners.
pub(crate) fn corners() -> (String, Vec<Arrival>) {
    let form = FORMS[1];
    let vlan =
        "[interface.iptv]\nzone = \"wan\"\nparent = \"dsl\"\nvlan = 7\naddresses = [\"203.0.114.2/24\"]\n";
    let text = format!("{}{vlan}", policy(form.0, form.1));
    let link = || build::ethernet(Mac([2, 0, 0, 0, 0, 9]), DSL_MAC);
    let tagged = link().vlan(Tag::customer(7)).ipv4([203, 0, 114, 9].into(), [192, 168, 1, 10].into());
    let to_group = [&Mac::BROADCAST.0[..], &packet(&[1; 30])[6..]].concat();
    let v6 = link().ipv6("2001:db8::9".parse().unwrap(), "2001:db8::10".parse().unwrap()).udp(1, 2).to_vec();
    let packets = [packet(&[]), packet(&[1; 500]), tagged.udp(5_000, 53).to_vec(), to_group, v6];
    let mut frames: Vec<Vec<u8>> = packets.iter().flat_map(|packet| cells(VC, form, packet)).collect();
    frames.extend(cells(VC, form, &packet(&[1; 500])).into_iter().skip(1));
    frames.extend(cells(Vc { vpi: 8, vci: 36 }, form, &packet(&[])));
    let text = format!("{text}[[cross-connect]]\nname = \"voice\"\nends = [\"dsl 8/48\", \"second 1/32\"]\n");
    frames.extend(cells(Vc { vpi: 8, vci: 48 }, form, &packet(&[])));
    frames.push(oam(8, 35, 5, &loopback(1, 7)));
    (text, arrivals(&frames, DSL))
}

fn arrivals(frames: &[Vec<u8>], port: u16) -> Vec<Arrival> {
    let arrival = |(number, bytes): (usize, &Vec<u8>)| Arrival {
        port: PortId(port),
        at: START,
        number: number as u32,
        bytes: bytes.clone(),
    };
    frames.iter().enumerate().map(arrival).collect()
}

fn play(gateway: &mut Gateway, arrivals: &[Arrival]) -> Out {
    let mut all = Out::default();
    for batch in arrivals.chunks(64) {
        gateway.receive(batch);
        let out = gateway.out(usize::MAX);
        all.sent.extend(out.sent);
        all.ended.extend(out.ended);
    }
    check::gateway(gateway);
    assert!(gateway.shard.counters.are_conserved());
    all
}

/// Verdicts of cells that come in by the line, in both modes of execution, which must be the same.
fn verdicts(text: &str, frames: &[Vec<u8>]) -> Vec<Option<Reason>> {
    let [run, step] = [Way::Run, Way::Step].map(|way| {
        let out = play(&mut Gateway::new(text, way), &arrivals(frames, DSL));
        let mut reasons = BTreeMap::new();
        for (number, verdict) in out.ended {
            let Verdict::Dropped(reason) = verdict else { panic!("{verdict}") };
            assert_eq!(reasons.insert(number, reason), None);
        }
        for sent in out.sent {
            assert_eq!((sent.port, sent.verdict), (LAN, Some(Verdict::Forwarded)));
            assert!(!reasons.contains_key(&sent.number));
        }
        (0..frames.len() as u32).map(|number| reasons.get(&number).copied()).collect::<Vec<_>>()
    });
    assert_eq!(run, step);
    run
}

#[test]
fn packets_come_out_of_cells_as_they_would_have_come_in_whole() {
    for form in FORMS {
        for mode in ["", "mode = \"stateless\"\n"] {
            let text = format!("{mode}{}", policy(form.0, form.1));
            for way in [Way::Run, Way::Step] {
                let (mut by_cells, mut whole) = (Gateway::new(&text, way), Gateway::new(&text, way));
                for length in [0, 1, 11, 12, 13, 47, 48, 49, 500, 1_472] {
                    let payload: Vec<u8> = (0..length).map(|place| place as u8).collect();
                    let frame = packet(&payload);
                    let frames = cells(VC, form, &frame);
                    let out = play(&mut by_cells, &arrivals(&frames, DSL));
                    let frame = match form.1 {
                        LinkKind::Ethernet => frame,
                        LinkKind::Ip => {
                            [&link_kind::received(&frame[14..]).unwrap()[..], &frame[14..]].concat()
                        }
                    };
                    let expected = play(&mut whole, &arrivals(&[frame], DSL));
                    let bytes =
                        |out: &Out| out.sent.iter().map(|sent| sent.bytes.clone()).collect::<Vec<_>>();
                    assert_eq!(bytes(&out).len(), 1, "{form:?} {length} {:?}", out.ended);
                    assert_eq!(bytes(&out), bytes(&expected));
                    let kept = Verdict::Dropped(Reason::Aal5Reassembly);
                    assert_eq!(out.ended.len(), frames.len() - 1);
                    assert!(out.ended.iter().all(|(_, verdict)| *verdict == kept));
                }
                assert_eq!(by_cells.shard.channels.pending(), 0);
            }
        }
    }
}

#[test]
fn every_failure_has_its_reason() {
    let form = FORMS[0];
    let text = policy(form.0, form.1);
    let whole = cells(VC, form, &packet(&[7; 150]));
    assert_eq!(whole.len(), 5);
    let kept = Some(Reason::Aal5Reassembly);
    assert_eq!(verdicts(&text, &whole), [kept, kept, kept, kept, None]);
    // After each failure the next PDU comes through.
    let fails = |frames: &[Vec<u8>], expected: &[Reason]| {
        let mut frames = frames.to_vec();
        let count = frames.len();
        frames.extend(whole.iter().cloned());
        let found = verdicts(&text, &frames);
        assert_eq!(found[..count], expected.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(found[count..], [kept, kept, kept, kept, None]);
    };
    let kept = Reason::Aal5Reassembly;
    let with = |place: usize, at: usize, change: u8| {
        let mut frames = whole.clone();
        frames[place][14 + at] ^= change;
        frames
    };
    // A bad header: that cell is lost, and its PDU shows it.
    fails(&with(1, 0, 0x10), &[kept, Reason::AtmHec, kept, kept, Reason::Aal5Length]);
    fails(&with(1, 4, 0x01), &[kept, Reason::AtmHec, kept, kept, Reason::Aal5Length]);
    fails(&[&whole[..2], &whole[3..]].concat(), &[kept, kept, kept, Reason::Aal5Length]);
    fails(&with(2, 20, 0x01), &[kept, kept, kept, kept, Reason::Aal5Crc]);
    // Cells that are nobody's do not disturb the PDU around them.
    let other = |header: [u8; 4]| {
        let mut cell = [0x6a; CELL_LEN];
        cell[..4].copy_from_slice(&header);
        cell[4] = atm::hec(header);
        atm::stand_in(&cell).to_vec()
    };
    let idle = other([0, 0, 0, 1]);
    let oam = other([0x00, 0x80, 0x02, 0x3a]);
    let unknown = other([0x00, 0x80, 0x02, 0x40]);
    let between = [&whole[..1], &[idle, oam, unknown], &whole[1..4]].concat();
    let reasons = [kept, Reason::AtmIdle, Reason::AtmOamCrc, Reason::AtmVcUnknown, kept, kept, kept];
    let mut found = verdicts(&text, &[&between[..], &whole[4..]].concat());
    assert_eq!(found.pop(), Some(None));
    assert_eq!(found, reasons.map(Some));
    // PDUs that are whole, and hold no packet of the channel.
    let pdu = |head: &[u8], payload: &[u8]| -> Vec<Vec<u8>> {
        Segmentation::new(VC, head, payload).unwrap().map(|cell| atm::stand_in(&cell).to_vec()).collect()
    };
    let ppp = [0xfe, 0xfe, 0x03, 0xcf, 0xc0, 0x21];
    fails(&pdu(&ppp, &[1; 10]), &[Reason::AtmEncapsulation]);
    let ipv4 = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    fails(&pdu(&ipv4, &[]), &[Reason::Ipv4Truncated]);
    fails(&pdu(&ipv4, &[0x60; 30]), &[Reason::Ipv4Version]);
    // As long as 32 cells, which the MTU of 1,500 bytes and its headers need, and no longer.
    let long = pdu(&ipv4, &[0; 65_527]);
    let mut expected = vec![kept; 32];
    expected.resize(long.len(), Reason::Aal5TooLong);
    fails(&long, &expected);
    // A cell that is no whole cell.
    fails(&[whole[0][..40].to_vec()], &[Reason::LinkTruncated]);
}

#[test]
fn a_pdu_that_never_ends_takes_no_memory_and_ends_with_the_next_one() {
    let form = FORMS[0];
    let mut gateway = Gateway::new(&policy(form.0, form.1), Way::Run);
    let memory = gateway.shard.memory_bytes();
    let endless = cells(VC, form, &packet(&[7; 150]))[0].clone();
    let out = play(&mut gateway, &arrivals(&vec![endless; 5_000], DSL));
    let count = |reason| out.ended.iter().filter(|(_, verdict)| *verdict == Verdict::Dropped(reason)).count();
    assert_eq!((count(Reason::Aal5Reassembly), count(Reason::Aal5TooLong)), (32, 4_968));
    assert_eq!(gateway.shard.memory_bytes(), memory);
    let whole = cells(VC, form, &packet(&[7; 150]));
    let out = play(&mut gateway, &arrivals(&whole, DSL));
    assert_eq!(out.ended.last(), Some(&(4, Verdict::Dropped(Reason::Aal5TooLong))));
    assert_eq!(play(&mut gateway, &arrivals(&whole, DSL)).sent.len(), 1);
}

#[test]
fn interleaved_channels_do_not_mix() {
    let form = FORMS[1];
    let mut gateway = Gateway::new(&policy(form.0, form.1), Way::Run);
    let second = (Encapsulation::VcMux, LinkKind::Ip);
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), DSL_MAC);
    let other = link.ipv4([198, 51, 100, 9].into(), [192, 168, 1, 10].into()).udp(5_000, 53);
    let one = arrivals(&cells(VC, form, &packet(&[1; 200])), DSL);
    let two = arrivals(&cells(Vc { vpi: 0, vci: 100 }, second, &other.payload(&[2; 200]).to_vec()), SECOND);
    let mixed: Vec<Arrival> =
        one.iter().zip(&two).flat_map(|(one, two)| [one.clone(), two.clone()]).collect();
    let rest = one[two.len().min(one.len())..].to_vec();
    let out = play(&mut gateway, &[mixed, rest].concat());
    let payloads: Vec<u8> = out.sent.iter().map(|sent| sent.bytes[50]).collect();
    assert_eq!(payloads, [2, 1]);
}

#[test]
fn cells_on_a_link_without_them_are_refused() {
    let form = FORMS[0];
    let mut gateway = Gateway::new(&policy(form.0, form.1), Way::Run);
    let out = play(&mut gateway, &arrivals(&cells(VC, form, &packet(&[])), LAN));
    assert!(out.ended.iter().all(|(_, verdict)| *verdict == Verdict::Dropped(Reason::EthertypeUnsupported)));
    // Nor does a bridged frame pretend to be a cell.
    let form = FORMS[1];
    let mut gateway = Gateway::new(&policy(form.0, form.1), Way::Run);
    let inner = cells(VC, form, &packet(&[]))[0].clone();
    let out = play(&mut gateway, &arrivals(&cells(VC, form, &inner), DSL));
    assert_eq!(out.ended.last(), Some(&(1, Verdict::Dropped(Reason::EthertypeUnsupported))));
}

#[test]
fn a_pdu_under_way_survives_a_reload_that_keeps_its_channel() {
    let form = FORMS[0];
    let text = policy(form.0, form.1);
    let whole = arrivals(&cells(VC, form, &packet(&[7; 150])), DSL);
    let moved = format!("[interface.first]\nzone = \"dmz\"\naddresses = [\"10.9.0.1/24\"]\n{text}");
    for (new, port, expected) in [
        (text.clone(), DSL, Verdict::Forwarded),
        (moved, DSL + 1, Verdict::Forwarded),
        (text.replace("8/35", "8/36"), DSL, Verdict::Dropped(Reason::AtmVcUnknown)),
        (
            text.replace(
                "link = \"ip\"\n[interface.dsl.atm]",
                "link = \"ip\"\nmtu = 1400\n[interface.dsl.atm]",
            ),
            DSL,
            Verdict::Dropped(Reason::Aal5Length),
        ),
    ] {
        let mut gateway = Gateway::new(&text, Way::Run);
        play(&mut gateway, &whole[..2]);
        gateway.reload(&new, START);
        let rest: Vec<_> =
            whole[2..].iter().cloned().map(|cell| Arrival { port: PortId(port), ..cell }).collect();
        let out = play(&mut gateway, &rest);
        let last =
            out.sent.last().map(|sent| sent.verdict).unwrap_or(out.ended.last().map(|(_, verdict)| *verdict));
        assert_eq!(last, Some(expected), "{new}");
    }
}

/// A link's rate counts cells: 40 bytes of IP over VC multiplexing are one, 41 are two.
#[test]
fn a_rate_counts_cells() {
    use dataplane::Replay;
    use dataplane::replay::Witness;
    use wire::Frame;

    #[derive(Default)]
    struct Times(Vec<Nanos>);
    impl Witness for Times {
        fn sent(&mut self, _: PortId, at: Nanos, _: &Frame, _: Option<Verdict>) {
            self.0.push(at);
        }
        fn ended(&mut self, _: &Frame, verdict: Verdict) {
            panic!("{verdict}");
        }
    }
    // 53 bytes take 424 us at 1 Mbit/s.
    for (form, payload, cells) in [
        (FORMS[2], 12, 1),
        (FORMS[2], 13, 2),
        (FORMS[0], 4, 1),
        (FORMS[0], 5, 2),
        (FORMS[3], 44, 2),
        (FORMS[1], 36, 2),
        (FORMS[1], 37, 3),
    ] {
        let text =
            policy(form.0, form.1).replace("[interface.dsl.atm]", "rate = \"1 Mbit/s\"\n[interface.dsl.atm]");
        let mut replay = Replay::new(crate::scene::tables(&text), START, Way::Run).unwrap();
        let mut times = Times::default();
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0x57, 0x52, 0, 0, 0]));
        let out = link.ipv4([192, 168, 1, 10].into(), [203, 0, 113, 9].into()).udp(53, 5_000);
        let frame = out.payload(&vec![0; payload]).to_vec();
        for number in 0..2 {
            replay.receive(PortId(LAN), START, number, &frame, &mut times);
        }
        replay.finish(&mut times);
        assert_eq!(times.0[1].since(times.0[0]), Nanos(424_000 * cells), "{form:?} {payload}");
    }
    // A cell that is switched is one, whatever encapsulation adds to packets.
    let text = switching().replace("[interface.dsl.atm]", "rate = \"1 Mbit/s\"\n[interface.dsl.atm]");
    let mut replay = Replay::new(crate::scene::tables(&text), START, Way::Run).unwrap();
    let mut times = Times::default();
    for number in 0..3 {
        replay.receive(PortId(SECOND), START, number, &cell(1, 32, 0, 1), &mut times);
    }
    replay.finish(&mut times);
    assert_eq!(times.0.iter().map(|at| at.since(START).0).collect::<Vec<_>>(), [0, 424_000, 848_000]);
}

/// Lines of [`policy`] with cross-connections: a channel, and a path.
fn switching() -> String {
    format!(
        "{}[[cross-connect]]\nname = \"voice\"\nends = [\"dsl 8/48\", \"second 1/32\"]\n\
         [[cross-connect]]\nname = \"all\"\nends = [\"dsl 9\", \"second 255\"]\n",
        policy(Encapsulation::Llc, LinkKind::Ip)
    )
}

/// Remainder of a header by the generator of I.432.1, x^8 + x^2 + x + 1, with 0x55 added: by long division of bits.
fn check_of(header: u32) -> u8 {
    let mut rest = u64::from(header) << 8;
    for place in (8..40).rev() {
        if rest >> place & 1 == 1 {
            rest ^= 0b1_0000_0111 << (place - 8);
        }
    }
    rest as u8 ^ 0b0101_0101
}

/// A cell, behind its stand-in: VPI, VCI, and the four bits of payload type and loss priority.
fn cell(vpi: u8, vci: u16, rest: u8, payload: u8) -> Vec<u8> {
    let header = u32::from(vpi) << 20 | u32::from(vci) << 4 | u32::from(rest);
    let mut cell = [payload; CELL_LEN];
    cell[..4].copy_from_slice(&header.to_be_bytes());
    cell[4] = check_of(header);
    atm::stand_in(&cell).to_vec()
}

#[test]
fn a_switched_cell_leaves_by_the_other_end_with_its_identifiers() {
    let text = switching();
    let ends = [
        ((DSL, 8, 48), (SECOND, 1, 32)),
        ((DSL, 9, 700), (SECOND, 255, 700)),
        ((DSL, 9, 3), (SECOND, 255, 3)),
    ];
    for (one, other) in ends.into_iter().flat_map(|(one, other)| [(one, other), (other, one)]) {
        // All payload types, user data or not, and both loss priorities.
        for rest in 0..16 {
            let arrival = arrivals(&[cell(one.1, one.2, rest, 0xa0 + rest)], one.0);
            let [run, step] = [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrival));
            assert_eq!(run, step);
            let [sent] = &run.sent[..] else { panic!("{run:?}") };
            assert_eq!((sent.port, sent.verdict), (other.0, Some(Verdict::Forwarded)));
            assert_eq!(sent.bytes, cell(other.1, other.2, rest, 0xa0 + rest));
            assert!(run.ended.is_empty());
        }
    }
}

#[test]
fn generic_flow_control_ends_with_its_line() {
    let mut frame = cell(8, 48, 0, 1);
    let header = u32::from_be_bytes(frame[14..18].try_into().unwrap()) | 0x7000_0000;
    frame[14..18].copy_from_slice(&header.to_be_bytes());
    frame[18] = check_of(header);
    let out = play(&mut Gateway::new(&switching(), Way::Run), &arrivals(&[frame], DSL));
    assert_eq!(out.sent[0].bytes, cell(1, 32, 0, 1));
}

#[test]
fn bad_idle_and_unknown_cells_are_not_switched() {
    let mut bad = cell(8, 48, 0, 1);
    bad[18] ^= 4;
    let idle = cell(0, 0, 1, 0x6a);
    let frames = [bad, idle, cell(8, 49, 0, 1), cell(10, 48, 0, 1), cell(1, 32, 0, 1)];
    let unknown = Some(Reason::AtmVcUnknown);
    let expected = [Some(Reason::AtmHec), Some(Reason::AtmIdle), unknown, unknown, unknown];
    assert_eq!(verdicts(&switching(), &frames), expected);
}

#[test]
fn switched_cells_and_packets_share_the_queue_of_a_line() {
    let text = format!("{}[limit]\nqueue = 8\n", switching());
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), DSL_MAC);
    let packet = link.ipv4([198, 51, 100, 9].into(), [192, 168, 1, 10].into()).udp(5_000, 53).to_vec();
    let packet = cells(Vc { vpi: 0, vci: 100 }, FORMS[2], &packet);
    let frames: Vec<Vec<u8>> = (0..12).map(|number| cell(8, 48, 0, number)).collect();
    let [run, step] = [Way::Run, Way::Step].map(|way| {
        let mut gateway = Gateway::new(&text, way);
        gateway.receive(&arrivals(&frames, DSL));
        gateway.receive(&arrivals(&packet, SECOND));
        let out = gateway.out(usize::MAX);
        assert!(gateway.shard.counters.are_conserved());
        out
    });
    assert_eq!(run, step);
    let by_second: Vec<u8> =
        run.sent.iter().filter(|sent| sent.port == SECOND).map(|sent| sent.bytes[20]).collect();
    assert_eq!(by_second, (0..8).collect::<Vec<u8>>());
    let full = (8..12).map(|number| (number, Verdict::Dropped(Reason::QueueFull)));
    assert_eq!(run.ended, full.collect::<Vec<_>>());
    assert_eq!(run.sent.iter().filter(|sent| sent.port == LAN).count(), 1);
}

/// Neither a program on the gateway nor a bridged frame makes a cell of the line.
#[test]
fn a_frame_of_linux_that_looks_like_a_cell_does_not_leave_by_a_line() {
    use dataplane::tables::LOCAL;
    let ethernet = "[interface.lan]\nzone = \"lan\"\n[interface.wan]\nzone = \"wan\"\n".to_owned();
    // Linux sends by the second interface.
    for (text, expected) in
        [(switching(), Verdict::Dropped(Reason::EthertypeUnsupported)), (ethernet, Verdict::Delivered)]
    {
        let mut gateway = Gateway::new(&text, Way::Run);
        gateway.receive(&[Arrival { port: LOCAL, at: START, number: 1, bytes: cell(8, 48, 0, 1) }]);
        assert_eq!(gateway.out(usize::MAX).ended, [(1, expected)]);
    }
}

/// An OAM cell, behind its stand-in, with a CRC-10 by long division of bits: x^10 + x^9 + x^5 + x^4 + x + 1.
fn oam(vpi: u8, vci: u16, pti: u8, payload: &[u8; 46]) -> Vec<u8> {
    let mut frame = cell(vpi, vci, pti << 1, 0);
    frame[19..65].copy_from_slice(payload);
    let mut bits: Vec<u8> =
        payload.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    // Six reserved bits, and the check's ten.
    bits.resize(384, 0);
    for place in 0..374 {
        if bits[place] == 1 {
            for (bit, tap) in bits[place..].iter_mut().zip([1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1]) {
                *bit ^= tap;
            }
        }
    }
    let check = bits[374..].iter().fold(0_u16, |check, bit| check << 1 | u16::from(*bit));
    frame[65..].copy_from_slice(&check.to_be_bytes());
    frame
}

/// Payload of a loopback cell for the end of its connection.
fn loopback(indication: u8, tag: u8) -> [u8; 46] {
    let mut payload = [0x6a; 46];
    payload[..6].copy_from_slice(&[0x18, indication, tag, 2, 3, 4]);
    payload[6..22].fill(0xff);
    payload
}

#[test]
fn a_loopback_for_this_end_is_answered_by_its_connection() {
    let (text, _) = line();
    let text = format!(
        "{text}[[cross-connect]]\nname = \"path\"\nends = [\"dsl 9\", \"second 255\"]\n\
         [[cross-connect]]\nname = \"voice\"\nends = [\"dsl 8/48\", \"second 1/32\"]\n"
    );
    let voice = SECOND + 1;
    // Segment and end to end: of two channels, one of which shares the line, and of their path.
    for (vci, pti, by) in
        [(35, 4, DSL), (35, 5, DSL), (36, 4, voice), (36, 5, voice), (3, 0, DSL), (4, 0, DSL)]
    {
        let arrival = arrivals(&[oam(8, vci, pti, &loopback(1, 7))], DSL);
        let [run, step] = [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrival));
        assert_eq!(run, step);
        let [sent] = &run.sent[..] else { panic!("{vci} {run:?}") };
        assert_eq!((sent.port, sent.verdict), (by, Some(Verdict::Answered(Reason::AtmLoopback))));
        assert_eq!(sent.bytes, oam(8, vci, pti, &loopback(0, 7)));
    }
    // Answers, other locations and functions, and other management.
    let elsewhere = [&loopback(1, 7)[..6], &[1; 16], &loopback(1, 7)[22..]].concat().try_into().unwrap();
    let mut continuity = loopback(1, 7);
    continuity[0] = 0x14;
    let mut wrong = oam(8, 35, 5, &loopback(1, 7));
    wrong[30] ^= 1;
    let frames = [
        oam(8, 35, 5, &loopback(0, 7)),
        oam(8, 35, 5, &elsewhere),
        oam(8, 35, 4, &continuity),
        oam(8, 35, 6, &loopback(1, 7)),
        wrong,
        oam(7, 4, 0, &loopback(1, 7)),
    ];
    let other = Some(Reason::AtmManagement);
    let expected = [other, other, other, other, Some(Reason::AtmOamCrc), Some(Reason::AtmVcUnknown)];
    assert_eq!(verdicts(&text, &frames), expected);
    // Those of connections that end elsewhere go on.
    for (arrived, left) in [
        (oam(9, 4, 0, &loopback(1, 7)), oam(255, 4, 0, &loopback(1, 7))),
        (oam(8, 48, 5, &loopback(1, 7)), oam(1, 32, 5, &loopback(1, 7))),
    ] {
        let out = play(&mut Gateway::new(&text, Way::Run), &arrivals(&[arrived], DSL));
        assert_eq!((out.sent[0].port, &out.sent[0].bytes), (SECOND, &left));
    }
}

#[test]
fn loopbacks_are_answered_within_the_bounds_on_answers() {
    let text = format!("{}[limit]\nerrors-per-second = 3\n", line().0);
    let of = |vci| (0..5).map(move |tag| oam(8, vci, 5, &loopback(1, tag)));
    let frames: Vec<_> = of(35).chain(of(36)).collect();
    let [run, step] =
        [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrivals(&frames, DSL)));
    assert_eq!(run, step);
    // Each connection has its own.
    assert_eq!(run.sent.len(), 6);
    assert_eq!(run.ended, [3, 4, 8, 9].map(|number| (number, Verdict::Dropped(Reason::AtmLoopback))));
}

/// Accident of one cell.
#[derive(Clone, Copy, Debug)]
enum Accident {
    None,
    Lost,
    Twice,
    /// One byte of the cell is another.
    Wrong(u8, u8),
    /// Changes places with the cell behind.
    Swapped,
}

fn accident() -> impl Strategy<Value = Accident> {
    prop_oneof![
        20 => Just(Accident::None),
        1 => Just(Accident::Lost),
        1 => Just(Accident::Twice),
        1 => (0..CELL_LEN as u8, 1..=255_u8).prop_map(|(at, change)| Accident::Wrong(at, change)),
        1 => Just(Accident::Swapped),
    ]
}

/// The line of "dsl" with further channels, and the form of each channel's packets.
fn line() -> (String, [(Vc, Form); 3]) {
    let text = format!(
        "{}[interface.voice]\nzone = \"wan\"\naddresses = [\"198.18.0.2/24\"]\nlink = \"ip\"\n\
         [interface.voice.atm]\nvc = \"8/36\"\nencapsulation = \"vc-mux\"\nline = \"dsl\"\n\
         [interface.iptv]\nzone = \"wan\"\naddresses = [\"198.18.1.2/24\"]\nmac = \"{DSL_MAC}\"\n\
         [interface.iptv.atm]\nvc = \"0/100\"\nline = \"dsl\"\n",
        policy(Encapsulation::Llc, LinkKind::Ip)
    );
    let channels = [
        (VC, (Encapsulation::Llc, LinkKind::Ip)),
        (Vc { vpi: 8, vci: 36 }, (Encapsulation::VcMux, LinkKind::Ip)),
        (Vc { vpi: 0, vci: 100 }, (Encapsulation::Llc, LinkKind::Ethernet)),
    ];
    (text, channels)
}

/// A packet from beyond a channel of that line.
fn packet_of(channel: usize, payload: &[u8]) -> Vec<u8> {
    let source = [[203, 0, 113, 9], [198, 18, 0, 9], [198, 18, 1, 9]][channel];
    let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), DSL_MAC);
    link.ipv4(source.into(), [192, 168, 1, 10].into()).udp(5_000, 53).payload(payload).to_vec()
}

#[test]
fn a_cell_of_no_channel_of_the_line_is_dropped_and_a_channel_alone_takes_its_own() {
    let (text, channels) = line();
    let (voice, form) = channels[1];
    let frames = cells(voice, form, &packet_of(1, &[3; 60]));
    let unknown = cells(Vc { vpi: 8, vci: 37 }, form, &packet_of(1, &[]));
    assert_eq!(
        verdicts(&text, &[&frames[..1], &unknown, &frames[1..]].concat()),
        [Some(Reason::Aal5Reassembly), Some(Reason::AtmVcUnknown), None]
    );
    // What comes by the interface of a channel alone: its place is behind those of `policy`.
    let mut gateway = Gateway::new(&text, Way::Run);
    assert_eq!(play(&mut gateway, &arrivals(&frames, SECOND + 1)).sent.len(), 1);
    let out = play(&mut gateway, &arrivals(&cells(VC, channels[0].1, &packet_of(0, &[])), SECOND + 1));
    assert!(out.ended.iter().all(|(_, verdict)| *verdict == Verdict::Dropped(Reason::AtmVcUnknown)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Cells of several channels of a line, in any order among them: every packet comes through, by the interface of its channel.
    #[test]
    fn channels_of_a_line_take_no_notice_of_one_another(
        lengths in prop::collection::vec((0..3_usize, 0..400_usize), 1..30),
        turns in prop::collection::vec(0..3_usize, 1..300),
    ) {
        let (text, channels) = line();
        let mut queues: [std::collections::VecDeque<Vec<u8>>; 3] = Default::default();
        for (number, (channel, length)) in lengths.iter().enumerate() {
            let payload: Vec<u8> = (0..*length).map(|place| (place * 7 + number) as u8).collect();
            let (vc, form) = channels[*channel];
            queues[*channel].extend(cells(vc, form, &packet_of(*channel, &payload)));
        }
        let mut frames = Vec::new();
        let mut turns = turns.iter().cycle();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let turn = turns.next().unwrap();
            // Whose turn it is may have none.
            let next = (0..3).map(|step| (turn + step) % 3).find(|place| !queues[*place].is_empty());
            frames.extend(queues[next.unwrap()].pop_front());
        }
        let arrivals = arrivals(&frames, DSL);
        let [run, step] = [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrivals));
        prop_assert_eq!(&run, &step);
        prop_assert_eq!(run.sent.len() + run.ended.len(), frames.len());
        prop_assert_eq!(run.sent.len(), lengths.len());
        for channel in 0..3 {
            let of = |bytes: &[u8]| bytes[26..30] == packet_of(channel, &[])[26..30];
            let seen: Vec<&[u8]> = run.sent.iter().map(|sent| &sent.bytes[..]).filter(|sent| of(sent)).collect();
            let sent: Vec<usize> = lengths.iter().filter(|(own, _)| *own == channel).map(|(_, length)| *length).collect();
            prop_assert_eq!(seen.iter().map(|sent| sent.len() - 42).collect::<Vec<_>>(), sent);
        }
    }

    /// Cells of packets and cells that are switched, in any order and batches: both modes of execution agree, every cell has one verdict, and
    /// neither disturbs the other.
    #[test]
    fn switched_cells_and_packets_do_not_disturb_each_other(
        kinds in prop::collection::vec((0..4_usize, any::<u8>()), 1..300),
        lengths in prop::collection::vec(0..400_usize, 1..10),
    ) {
        let text = switching();
        let mut pdus = Vec::new();
        for length in &lengths {
            pdus.extend(cells(VC, FORMS[0], &packet(&vec![*length as u8; *length])));
        }
        let mut pdus = pdus.into_iter();
        let mut frames = Vec::new();
        let mut expected = Vec::new();
        for (kind, byte) in kinds {
            let frame = match kind {
                0 => cell(8, 48, byte & 0xf, byte),
                1 => cell(9, 32 + u16::from(byte), byte & 0xf, byte),
                _ => match pdus.next() {
                    Some(frame) => frame,
                    None => continue,
                },
            };
            match kind {
                0 => expected.push(cell(1, 32, byte & 0xf, byte)),
                1 => expected.push(cell(255, 32 + u16::from(byte), byte & 0xf, byte)),
                _ => {}
            }
            frames.push(frame);
        }
        frames.extend(pdus);
        let arrivals = arrivals(&frames, DSL);
        let [run, step] = [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrivals));
        prop_assert_eq!(&run, &step);
        prop_assert_eq!(run.sent.len() + run.ended.len(), frames.len());
        let by = |port| run.sent.iter().filter(move |sent| sent.port == port);
        prop_assert_eq!(by(SECOND).map(|sent| sent.bytes.clone()).collect::<Vec<_>>(), expected);
        prop_assert_eq!(by(LAN).map(|sent| sent.bytes.len() - 42).collect::<Vec<_>>(), lengths);
    }

    /// Whatever becomes of cells: both modes of execution agree, each cell has one verdict, and what is forwarded was sent.
    #[test]
    fn no_packet_is_forwarded_that_was_not_sent(
        form in prop::sample::select(&FORMS[..]),
        lengths in prop::collection::vec(0..400_usize, 1..30),
        accidents in prop::collection::vec(accident(), 1..300),
    ) {
        let text = policy(form.0, form.1);
        let packets: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(number, length)| packet(&(0..*length).map(|place| (place * 7 + number) as u8).collect::<Vec<_>>()))
            .collect();
        let mut frames = Vec::new();
        let mut accidents = accidents.iter().cycle();
        for cell in packets.iter().flat_map(|packet| cells(VC, form, packet)) {
            match accidents.next().unwrap() {
                Accident::None => frames.push(cell),
                Accident::Lost => {}
                Accident::Twice => frames.extend([cell.clone(), cell]),
                Accident::Wrong(at, change) => {
                    let mut cell = cell;
                    cell[14 + usize::from(*at)] ^= change;
                    frames.push(cell);
                }
                Accident::Swapped => {
                    frames.push(cell);
                    let last = frames.len() - 1;
                    if last > 0 {
                        frames.swap(last - 1, last);
                    }
                }
            }
        }
        let arrivals = arrivals(&frames, DSL);
        let [run, step] = [Way::Run, Way::Step].map(|way| play(&mut Gateway::new(&text, way), &arrivals));
        prop_assert_eq!(&run, &step);
        prop_assert_eq!(run.sent.len() + run.ended.len(), frames.len());
        let sent: Vec<&[u8]> = packets.iter().map(|packet| &packet[34..]).collect();
        for frame in &run.sent {
            prop_assert!(sent.iter().any(|sent| frame.bytes[34..].starts_with(sent)), "{frame:?}");
        }
    }
}
