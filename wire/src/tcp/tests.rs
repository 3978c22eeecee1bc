use std::net::Ipv4Addr;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::build::{self, Tcp};
use crate::ipv4;

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[test]
fn walks_the_options_of_a_usual_syn() {
    // MSS 1460, SACK permitted, timestamps 1 and 0, no-operation, window scale 7.
    let options = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let walked: Vec<_> = Options::new(&options).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        walked,
        [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 1, echo: 0 },
            TcpOption::WindowScale(7),
        ]
    );
}

#[test]
fn options_of_wrong_length_are_others() {
    let options = [2, 3, 5, 3, 2, 8, 4, 0, 0, 4, 3, 0, 5, 3, 9, 28, 4, 0, 0];
    let kinds: Vec<_> = Options::new(&options).map(Result::unwrap).collect();
    assert!(matches!(kinds[0], TcpOption::Other(RawOption { kind: 2, .. })));
    assert!(matches!(kinds[1], TcpOption::Other(RawOption { kind: 3, .. })));
    assert!(matches!(kinds[2], TcpOption::Other(RawOption { kind: 8, .. })));
    assert!(matches!(kinds[3], TcpOption::Other(RawOption { kind: 4, .. })));
    assert_eq!(kinds[4], TcpOption::Sack(&[9]));
    assert!(matches!(kinds[5], TcpOption::Other(RawOption { kind: 28, at: 15, .. })));
    assert!(Options::new(&[2, 9, 0]).next().unwrap().is_err());
}

#[test]
fn each_fault_has_its_name() {
    let mut bytes = [0; 24];
    bytes[12] = 0x40;
    assert_eq!(parse(&bytes).unwrap_err(), Malformed::DataOffset);
    bytes[12] = 0x70;
    assert_eq!(parse(&bytes).unwrap_err(), Malformed::HeaderPastEnd);
    assert_eq!(parse(&bytes[..19]).unwrap_err(), Malformed::TooShort);
    bytes[12] = 0x60;
    let segment = parse(&bytes).unwrap();
    assert_eq!((segment.options.len(), segment.payload.len()), (4, 0));
}

#[test]
fn flags_print_and_read_back() {
    for bits in 0..=255 {
        assert_eq!(Flags(bits).to_string().parse(), Ok(Flags(bits)));
    }
    assert_eq!(Flags::SYN_ACK.to_string(), "syn,ack");
    assert_eq!("SYN, ack".parse(), Ok(Flags::SYN_ACK));
    assert_eq!("syn,".parse::<Flags>(), Err(UnknownFlag));
    assert!(Flags::SYN_ACK.contains(Flags::SYN) && !Flags::SYN.contains(Flags::SYN_ACK));
    assert_eq!(Flags(0xff).masked(Flags::SYN), Flags::SYN);
}

#[test]
fn syn_and_fin_take_sequence_space() {
    let of = |flags, payload: &[u8]| {
        let bytes = build::ipv4(A, B).tcp(Tcp { flags, ..Tcp::default() }).payload(payload).to_vec();
        parse(&bytes[20..]).unwrap().sequence_len()
    };
    assert_eq!(of(Flags::ACK, b"abc"), 3);
    assert_eq!(of(Flags::SYN, b""), 1);
    assert_eq!(of(Flags::SYN.and(Flags::FIN), b"abc"), 5);
}

#[test]
fn clamps_only_what_is_above_the_limit_and_in_a_syn() {
    let clamp = |flags, options: &[u8], limit| {
        let bytes = build::ipv4(A, B).tcp(Tcp { flags, options, ..Tcp::default() }).to_vec();
        let mut segment = bytes[20..].to_vec();
        let clamped = clamp_mss(&mut segment, limit);
        assert_eq!(segment != bytes[20..], matches!(clamped, Clamped::From(_)));
        clamped
    };
    let mss = [2, 4, 0x05, 0xb4];
    assert_eq!(clamp(Flags::SYN, &mss, 1452), Clamped::From(1460));
    assert_eq!(clamp(Flags::SYN_ACK, &mss, 1452), Clamped::From(1460));
    assert_eq!(clamp(Flags::SYN, &mss, 1460), Clamped::Within);
    assert_eq!(clamp(Flags::ACK, &mss, 1452), Clamped::NoOption);
    assert_eq!(clamp(Flags::SYN, &[3, 3, 7], 1452), Clamped::NoOption);
    assert_eq!(clamp(Flags::SYN, &[2, 3, 7], 1), Clamped::NoOption);
    assert_eq!(clamp(Flags::SYN, &[3, 9, 7, 2, 4, 5, 6], 1), Clamped::NoOption);
    assert_eq!(clamp_mss(&mut [0; 19], 1), Clamped::NoOption);
}

proptest! {
    /// At even and odd places alike.
    #[test]
    fn clamping_keeps_the_checksum_right(pad in 0usize..9, mss in any::<u16>(), limit in any::<u16>(), seq in any::<u32>()) {
        let mut options = vec![1; pad];
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
        let tcp = Tcp { flags: Flags::SYN, seq, options: &options, ..Tcp::default() };
        let mut bytes = build::ipv4(A, B).tcp(tcp).to_vec();
        clamp_mss(&mut bytes[20..], limit);
        let mut clamped = options.clone();
        clamped[pad + 2..].copy_from_slice(&mss.min(limit).to_be_bytes());
        let tcp = Tcp { options: &clamped, ..tcp };
        prop_assert_eq!(&bytes, &build::ipv4(A, B).tcp(tcp).to_vec());
        let packet = ipv4::parse(&bytes).unwrap();
        prop_assert!(packet.pseudo_header().and(packet.payload).verifies());
    }

    #[test]
    fn setters_set_what_getters_get(mut bytes in any::<[u8; 20]>(), ports in any::<(u16, u16)>(), numbers in any::<(u32, u32)>(),
                                    len in 5usize..16, flags in any::<u8>(), words in any::<(u16, u16, u16)>()) {
        let mut header = HeaderMut::of(&mut bytes).unwrap();
        header.set_sport(ports.0);
        header.set_dport(ports.1);
        header.set_seq(numbers.0);
        header.set_ack(numbers.1);
        header.set_header_len(len * 4);
        header.set_flags(Flags(flags));
        header.set_window(words.0);
        header.set_checksum(words.1);
        header.set_urgent(words.2);
        let view = header.view();
        prop_assert_eq!(view.ports(), Ports { sport: ports.0, dport: ports.1 });
        prop_assert_eq!((view.seq(), view.ack()), numbers);
        prop_assert_eq!((view.header_len(), view.flags().0), (len * 4, flags));
        prop_assert_eq!((view.window(), view.checksum(), view.urgent()), words);
        prop_assert_eq!(Ports::of(&bytes), Some(Ports { sport: ports.0, dport: ports.1 }));
    }
}
