//! Packets of ours opened by scapy's IPsec layer, and packets of scapy's opened by us: every suite, both IP versions inside and outside,
//! with and without UDP encapsulation and extended numbers.
#![allow(clippy::unwrap_used)]

mod peer;

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use esp::format::{self, DontFragment, Outer};
use esp::{Keys, Packet, SPARE, Transform, expand};
use wire::esp::{Direction, Esn, HEADER_LEN, HeaderMut, NAT_PORT, SUITES, Secret, Suite, Tfc};
use wire::header::Protocol;

/// A packet to make, in each of the ways.
struct Trial {
    suite: &'static Suite,
    keys: Keys,
    spi: u32,
    number: u64,
    esn: Esn,
    is_outer_v4: bool,
    has_udp: bool,
    tfc: Tfc,
    inner: Vec<u8>,
}

#[test]
fn scapy_and_we_open_each_others_packets() {
    if !peer::is_there() {
        assert!(std::env::var_os("CI").is_none(), "needs {}", peer::NEEDS);
        eprintln!("SKIPPED: needs {}", peer::NEEDS);
        return;
    }
    let trials = trials();
    let answers = peer::ask(Path::new(env!("CARGO_MANIFEST_DIR")), trials.iter().map(Trial::line).collect());
    assert_eq!(answers.len(), trials.len());
    for (trial, answer) in trials.iter().zip(&answers) {
        let (opened, sealed) = answer.split_once(' ').unwrap();
        let name = format!("{} {:?} {} bytes", trial.suite.name(), trial.esn, trial.inner.len());
        // TFC padding stays behind the inner packet, whose own length ends it.
        let opened = Secret::of_hex(opened).unwrap_or_else(|_| panic!("{name}: {opened}"));
        assert!(opened.expose().starts_with(&trial.inner), "{name}: {:?}", opened.expose());
        assert_eq!(trial.open(&hex(sealed)), Some(trial.inner.clone()), "{name}: {sealed}");
    }
}

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (seed, suite) in (0_u8..).zip(&SUITES) {
        for turn in 0..16_u8 {
            let is_on = |bit: u8| turn & bit != 0;
            let key =
                |len: u8, step: u8| Secret::new((0..len).map(|at| at.wrapping_mul(step) ^ seed).collect());
            let len = 21 + usize::from(turn) * 93 + usize::from(seed % 17);
            trials.push(Trial {
                suite,
                keys: Keys { cipher: key(suite.key + suite.salt, 37), auth: key(suite.auth_key, 59) },
                spi: 0x1000 + u32::from(seed),
                number: if is_on(1) { 0x1_0203_0400 + u64::from(turn) } else { 7 + u64::from(turn) },
                esn: if is_on(1) { Esn::On } else { Esn::Off },
                is_outer_v4: is_on(2),
                has_udp: is_on(4),
                tfc: if turn % 5 == 4 { Tfc::Multiple(256) } else { Tfc::Off },
                inner: inner(is_on(8), len),
            });
        }
    }
    trials
}

/// An IP packet of a protocol that nobody looks into.
fn inner(is_v4: bool, payload: usize) -> Vec<u8> {
    let (mut v4, mut v6) = ([0; 20], [0; 40]);
    let protocol = Protocol(253);
    let payload_len = payload as u16;
    let mut packet = if is_v4 {
        let (local, remote) = (Ipv4Addr::new(10, 1, 0, 5), Ipv4Addr::new(10, 2, 0, 9));
        let outer =
            Outer { local, remote, ds_field: 0, df: DontFragment::Clear, id: 9, protocol, payload_len };
        format::outer_v4(&mut v4, &outer);
        v4.to_vec()
    } else {
        let (local, remote) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let outer =
            Outer { local, remote, ds_field: 0, df: DontFragment::Clear, id: 9, protocol, payload_len };
        format::outer_v6(&mut v6, &outer);
        v6.to_vec()
    };
    packet.extend((0..payload).map(|at| (at * 7) as u8));
    packet
}

impl Trial {
    fn transform(&self, direction: Direction) -> Box<dyn Transform> {
        expand(self.suite, &self.keys, direction).unwrap()
    }

    /// The line that the peer reads.
    fn line(&self) -> String {
        let name = self.suite.name();
        let word = |word: &str| if word.is_empty() { "-".to_owned() } else { word.to_owned() };
        let mut line = format!("{} {}", name.algorithm(), name.auth().unwrap_or("-"));
        let secrets = [to_hex(self.keys.cipher.expose()), to_hex(self.keys.auth.expose())];
        for text in secrets {
            write!(line, " {}", word(&text)).unwrap();
        }
        let esn = if self.esn == Esn::On { "on" } else { "off" };
        let outer = if self.is_outer_v4 { "4" } else { "6" };
        let udp = if self.has_udp { "yes" } else { "no" };
        let (inner, packet) = (to_hex(&self.inner), to_hex(&self.seal()));
        writeln!(line, " {} {} {esn} {outer} {udp} {inner} {packet}", self.spi, self.number).unwrap();
        line
    }

    /// The outer packet.
    fn seal(&self) -> Vec<u8> {
        let layout = format::layout(self.inner.len(), self.suite, self.tfc, 1400).unwrap();
        let mut bytes = vec![0x77; SPARE + usize::from(layout.total)];
        let mut header = HeaderMut::of(&mut bytes[SPARE..]).unwrap();
        header.set_spi(self.spi);
        header.set_sequence(self.number as u32);
        let at = SPARE + HEADER_LEN + usize::from(self.suite.iv);
        let text = &mut bytes[at..][..usize::from(layout.text)];
        text[..self.inner.len()].copy_from_slice(&self.inner);
        let next = if self.inner[0] >> 4 == 4 { Protocol::IPV4 } else { Protocol::IPV6 };
        format::trailer(text, &layout, next);
        self.transform(Direction::Out).seal(Packet { bytes: &mut bytes, number: self.number, esn: self.esn });

        let mut payload = Vec::new();
        if self.has_udp {
            let words = [NAT_PORT, NAT_PORT, 8 + layout.total, 0];
            payload.extend(words.into_iter().flat_map(u16::to_be_bytes));
        }
        payload.extend(&bytes[SPARE..]);
        let protocol = if self.has_udp { Protocol::UDP } else { Protocol::ESP };
        let (payload_len, df) = (payload.len() as u16, DontFragment::Set);
        let mut packet = if self.is_outer_v4 {
            let (local, remote) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));
            let mut header = [0; 20];
            format::outer_v4(
                &mut header,
                &Outer { local, remote, ds_field: 0xb8, df, id: 0, protocol, payload_len },
            );
            header.to_vec()
        } else {
            let (local, remote) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let mut header = [0; 40];
            format::outer_v6(
                &mut header,
                &Outer { local, remote, ds_field: 0xb8, df, id: 0, protocol, payload_len },
            );
            header.to_vec()
        };
        packet.extend(payload);
        packet
    }

    /// The inner packet of an ESP packet of the peer's.
    fn open(&self, esp: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = [&[0; SPARE], esp].concat();
        let transform = self.transform(Direction::In);
        transform.open(Packet { bytes: &mut bytes, number: self.number, esn: self.esn }).ok()?;
        let at = SPARE + HEADER_LEN + usize::from(self.suite.iv);
        let text = &bytes[at..bytes.len() - usize::from(self.suite.icv)];
        let trailer = format::untrail(text).ok()?;
        let next = if self.inner[0] >> 4 == 4 { Protocol::IPV4 } else { Protocol::IPV6 };
        (trailer.next == next).then(|| text[..trailer.before].to_vec())
    }
}

fn hex(digits: &str) -> Vec<u8> {
    Secret::of_hex(digits).unwrap().expose().to_vec()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
