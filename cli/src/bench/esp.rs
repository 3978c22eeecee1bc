//! Packets per second of one core through tunnels of ESP and the whole pipeline around them, frames from memory, no I/O.
//!
//! A stateless gateway has two tunnels, each to a peer with networks behind it. It encrypts what comes from its own hosts, decrypts what
//! comes from the first peer, or does both to what the one peer sends to the other. Peers are gateways, too, and made the packets beforehand.
//! Beside it the cipher alone: packets of the same length, 16 at a time within the first cache, by the fastest library of this build.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use esp::{Forged, KeyError, Keys, Packet, SPARE, Transform};
use policy::Policy;
use tally::NoTally;
use wire::PortId;
use wire::build;
use wire::esp::{self as format, Direction as Way, Esn, HEADER_LEN, Secret, Suite};
use wire::ethernet::Mac;
use wire::random::Random;

use super::in_memory::{self, Arrival, BenchError, Gateway};

/// Processing of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Direction {
    /// From hosts into a tunnel.
    Encrypt,
    /// Out of a tunnel to hosts.
    Decrypt,
    /// Out of one tunnel into another.
    Both,
}

impl Direction {
    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Encrypt => "encrypt",
            Direction::Decrypt => "decrypt",
            Direction::Both => "both",
        }
    }
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Algorithms.
    pub(crate) suite: &'static Suite,
    /// Length of the frames in clear, without check sequence.
    pub(crate) bytes: usize,
    /// Processing.
    pub(crate) direction: Direction,
    /// Millions of packets a second, the median of the rounds.
    pub(crate) mpps: f64,
    /// Library that carried out the cipher.
    pub(crate) library: &'static str,
    /// Millions of packets a second of the cipher alone, by the fastest library for each direction.
    pub(crate) raw_mpps: f64,
}

impl Outcome {
    /// Gbit/s of frames in clear.
    pub(crate) fn gbps(&self) -> f64 {
        self.mpps * self.bytes as f64 * 8.0 / 1e3
    }
}

/// Rounds, of which the median counts.
const ROUNDS: usize = 5;

/// Minimum duration of a round.
const ROUND: Duration = Duration::from_millis(200);

/// Frames of a load: as many as in the load of the peer that is measured beside (VPP's packet generator), which streams the shortest
/// from memory, and keeps longer ones within the last cache.
const SHORTEST: usize = 64;
const FRAMES_SHORTEST: usize = 1 << 18;
const FRAMES: usize = 4_096;

/// Networks behind each peer.
const DESTINATIONS: u32 = 1_000;

/// Shortest and longest frame: the longest becomes an outer packet of 1,500 bytes at most with every suite.
pub(crate) const LENGTHS: std::ops::RangeInclusive<i64> = 60..=1_434;

/// Ports of a gateway, by the order of its policy.
const LAN: PortId = PortId(0);
const WAN: PortId = PortId(1);

/// Measures frames of that length with a suite.
pub(crate) fn measure(
    suite: &'static Suite,
    bytes: usize,
    direction: Direction,
) -> Result<Outcome, BenchError> {
    let bench = Bench::new(suite, bytes, direction)?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rounds.push(bench.round()?);
    }
    rounds.sort_by(f64::total_cmp);
    let raws = Raw::each(suite, bytes)?;
    let least = |of: fn(&Raw) -> f64| raws.iter().map(of).fold(f64::INFINITY, f64::min);
    let raw_mpps = 1e3
        / match direction {
            Direction::Encrypt => least(Raw::seal),
            Direction::Decrypt => least(Raw::open),
            Direction::Both => least(Raw::seal) + least(Raw::open),
        };
    let library = library(suite, bytes)?;
    Ok(Outcome { suite, bytes, direction, mpps: rounds[ROUNDS / 2], library, raw_mpps })
}

/// One end of a tunnel: its site's number, and that of the peer's.
#[derive(Clone, Copy)]
struct Tunnel {
    own: u8,
    peer: u8,
}

/// The site that is measured, and those of its peers. A site's hosts are in `SITE.0.0.0/8`, its outer address is `203.0.113.SITE`.
const SITE: u8 = 10;
const FIRST: u8 = 20;
const SECOND: u8 = 30;

/// The policy of a site with tunnels to these peers, everything behind a peer that is not among them being behind the first.
fn site(suite: &Suite, own: u8, peers: &[u8]) -> String {
    let mut text = format!(
        "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n\
         [interface.lan]\nzone = \"lan\"\naddresses = [\"{own}.0.0.1/24\"]\nsource-check = \"off\"\n\
         mac = \"02:00:00:00:00:01\"\n\
         [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.{own}/24\"]\nsource-check = \"off\"\n\
         [[route]]\nto = \"{own}.0.0.0/8\"\nvia = \"{own}.0.0.2\"\n"
    );
    for peer in peers {
        text += &format!(
            "[interface.peer-{peer}]\nzone = \"vpn\"\nsource-check = \"off\"\n\
             [interface.peer-{peer}.esp]\nlocal = \"203.0.113.{own}\"\nremote = \"203.0.113.{peer}\"\n"
        );
        if suite.standing == format::Standing::Legacy {
            text += "legacy = true\n";
        }
        for (direction, from, to) in [("out", own, *peer), ("in", *peer, own)] {
            let SaKeys { spi, key, auth } = sa_keys(suite, Tunnel { own: from, peer: to });
            text += &format!(
                "[[interface.peer-{peer}.esp.sa]]\ndirection = \"{direction}\"\nspi = {spi}\nalgorithm = \"{}\"\n",
                suite.name().algorithm()
            );
            if !key.is_empty() {
                text += &format!("key = \"{}\"\n", hex(&key));
            }
            if let Some(name) = suite.name().auth() {
                text += &format!("auth = \"{name}\"\n");
            }
            if !auth.is_empty() {
                text += &format!("auth-key = \"{}\"\n", hex(&auth));
            }
        }
        for destination in 0..DESTINATIONS {
            let (b, c) = (destination / 256, destination % 256);
            text += &format!("[[route]]\nto = \"{peer}.{b}.{c}.0/24\"\ninterface = \"peer-{peer}\"\n");
        }
    }
    if let ([peer], false) = (peers, peers.contains(&SECOND)) {
        text += &format!("[[route]]\nto = \"{SECOND}.0.0.0/8\"\ninterface = \"peer-{peer}\"\n");
    }
    text
}

/// Index and keys of what one site sends to another.
struct SaKeys {
    spi: u32,
    key: Vec<u8>,
    auth: Vec<u8>,
}

fn sa_keys(suite: &Suite, tunnel: Tunnel) -> SaKeys {
    let spi = 0x1000 + u32::from(tunnel.own) * 256 + u32::from(tunnel.peer);
    let mut random = Random::new(u64::from(spi));
    let mut draw = |len: usize| -> Vec<u8> { (0..len).map(|_| random.next_u64() as u8).collect() };
    SaKeys {
        spi,
        key: draw(usize::from(suite.key) + usize::from(suite.salt)),
        auth: draw(suite.auth_key.into()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Frames of a load, one behind another.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn by(&self, ingress: PortId) -> Vec<Load<'_>> {
        let mut start = 0;
        let each = self.ends.iter().map(|end| {
            let bytes = &self.bytes[start..*end];
            start = *end;
            Load { bytes, ingress }
        });
        each.collect()
    }
}

#[derive(Clone, Copy)]
struct Load<'f> {
    bytes: &'f [u8],
    ingress: PortId,
}

impl Arrival for Load<'_> {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    #[inline(always)]
    fn ingress(&self) -> PortId {
        self.ingress
    }
}

/// The policy of the gateway that is measured, and its load.
struct Bench {
    policy: Policy,
    frames: Frames,
    ingress: PortId,
}

impl Bench {
    fn new(suite: &'static Suite, bytes: usize, direction: Direction) -> Result<Bench, BenchError> {
        let policy = in_memory::policy(&site(suite, SITE, &[FIRST, SECOND]))?;
        let (from, to) = match direction {
            Direction::Encrypt => (SITE, FIRST),
            Direction::Decrypt => (FIRST, SITE),
            Direction::Both => (FIRST, SECOND),
        };
        let clear = clear(from, to, bytes);
        if direction == Direction::Encrypt {
            return Ok(Bench { policy, frames: clear, ingress: LAN });
        }
        let mut peer = Gateway::new(&in_memory::policy(&site(suite, FIRST, &[SITE]))?)?;
        let mut frames = Frames::default();
        peer.pass(&clear.by(LAN), &mut NoTally, &mut |sent| frames.push(sent.bytes()));
        peer.check_all_passed()?;
        Ok(Bench { policy, frames, ingress: WAN })
    }

    /// Millions of packets a second over one round. A gateway that decrypts begins anew with each turn of the load, or its packets
    /// would be replayed ones.
    fn round(&self) -> Result<f64, BenchError> {
        let load = self.frames.by(self.ingress);
        let (mut packets, mut time) = (0, Duration::ZERO);
        let mut gateway = Gateway::new(&self.policy)?;
        while time < ROUND {
            if self.ingress == WAN && packets > 0 {
                gateway = Gateway::new(&self.policy)?;
            }
            let started = Instant::now();
            gateway.pass(&load, &mut NoTally, &mut |_| ());
            time += started.elapsed();
            packets += load.len();
            gateway.check_all_passed()?;
        }
        Ok(packets as f64 / time.as_secs_f64() / 1e6)
    }
}

/// Frames in clear from hosts of one site to those of another, in random order.
fn clear(from: u8, to: u8, bytes: usize) -> Frames {
    let mut random = Random::new(7);
    let mut frames = Frames::default();
    let payload = vec![0x5a; bytes - 42];
    for _ in 0..if bytes > SHORTEST { FRAMES } else { FRAMES_SHORTEST } {
        let destination = random.below(u64::from(DESTINATIONS)) as u32;
        let [_, b, c, _] = (destination << 8).to_be_bytes();
        let source = Ipv4Addr::new(from, 1, 0, 5);
        let link = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1]));
        let packet = link.ipv4(source, Ipv4Addr::new(to, b, c, 9)).udp(10_000, 443).payload(&payload);
        frames.push(&packet.to_vec());
    }
    frames
}

/// The cipher alone, by one library.
struct Raw {
    seals: Box<dyn Transform>,
    opens: Box<dyn Transform>,
    /// Bytes of a packet as transforms take it.
    len: usize,
}

/// Packets of the cipher alone: few, so that they stay in the first cache, and as many as the pipeline has encrypted together.
const PACKETS: usize = 16;

/// Bytes of text that frames of that length become.
fn text_len(suite: &Suite, bytes: usize) -> usize {
    (bytes - wire::ethernet::HEADER_LEN + format::TRAILER_LEN).next_multiple_of(suite.align.into())
}

fn keys(suite: &Suite) -> Keys {
    let SaKeys { key, auth, .. } = sa_keys(suite, Tunnel { own: SITE, peer: FIRST });
    Keys { cipher: Secret::new(key.into()), auth: Secret::new(auth.into()) }
}

/// Name of the library that carries a suite out in the pipeline, for frames of that length.
fn library(suite: &'static Suite, bytes: usize) -> Result<&'static str, BenchError> {
    let transform = esp::expand(suite, &keys(suite), Way::Out)
        .map_err(|error: KeyError| BenchError::Policy(error.to_string()))?;
    Ok(transform.library(text_len(suite, bytes)))
}

impl Raw {
    /// By each library that has the suite.
    fn each(suite: &'static Suite, bytes: usize) -> Result<Vec<Raw>, BenchError> {
        let keys = keys(suite);
        let expand = |way| {
            esp::expand_by_each(suite, &keys, way).map_err(|error| BenchError::Policy(error.to_string()))
        };
        let len =
            SPARE + HEADER_LEN + usize::from(suite.iv) + text_len(suite, bytes) + usize::from(suite.icv);
        let both = expand(Way::Out)?.into_iter().zip(expand(Way::In)?);
        Ok(both.map(|(seals, opens)| Raw { seals, opens, len }).collect())
    }

    /// Nanoseconds that a packet takes to be sealed.
    fn seal(&self) -> f64 {
        let mut packets = vec![vec![0x5a; self.len]; PACKETS];
        self.median(|number| {
            let mut packets = together(&mut packets, number);
            let started = Instant::now();
            self.seals.seal_many(&mut packets);
            started.elapsed()
        })
    }

    /// Nanoseconds that a packet takes to be opened.
    fn open(&self) -> f64 {
        let mut sealed = vec![vec![0x5a; self.len]; PACKETS];
        self.seals.seal_many(&mut together(&mut sealed, 1));
        let mut packets = sealed.clone();
        let mut outcomes = [Err(Forged); PACKETS];
        self.median(|_| {
            for (bytes, sealed) in packets.iter_mut().zip(&sealed) {
                bytes.copy_from_slice(sealed);
            }
            let mut packets = together(&mut packets, 1);
            let started = Instant::now();
            self.opens.open_many(&mut packets, &mut outcomes);
            let took = started.elapsed();
            debug_assert!(outcomes.iter().all(Result::is_ok));
            took
        })
    }

    /// Median over rounds of the nanoseconds that a packet takes, `once` being given the next number and taking [`PACKETS`] of them.
    fn median(&self, mut once: impl FnMut(u64) -> Duration) -> f64 {
        let mut number = 1;
        let mut rounds = [0.0; ROUNDS];
        for round in &mut rounds {
            let (mut turns, mut time) = (0, Duration::ZERO);
            while time < ROUND / 4 {
                time += once(number);
                turns += 1;
                number += PACKETS as u64;
            }
            *round = time.as_secs_f64() * 1e9 / (turns * PACKETS) as f64;
        }
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    }
}

/// The packets as libraries take them, with numbers from `number` on.
fn together(bytes: &mut [Vec<u8>], number: u64) -> [Packet<'_>; PACKETS] {
    let mut packets = std::array::from_fn(|_| Packet::default());
    for ((packet, bytes), number) in packets.iter_mut().zip(bytes).zip(number..) {
        *packet = Packet { bytes, number, esn: Esn::Off };
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_takes_every_packet_through_the_tunnels_that_it_names() {
        let suite = Suite::named("aes128-gcm", None).unwrap();
        for (direction, protocols) in
            [(Direction::Encrypt, [17, 50]), (Direction::Decrypt, [50, 17]), (Direction::Both, [50, 50])]
        {
            let bench = Bench::new(suite, 100, direction).unwrap();
            let mut gateway = Gateway::new(&bench.policy).unwrap();
            let load = bench.frames.by(bench.ingress);
            assert_eq!(load[0].bytes[23], protocols[0], "{direction:?}");
            let mut sent = Vec::new();
            gateway.pass(&load[..200], &mut NoTally, &mut |frame| sent.push(frame.bytes()[23]));
            gateway.check_all_passed().unwrap();
            assert_eq!(sent, [protocols[1]; 200], "{direction:?}");
        }
    }

    #[test]
    fn the_longest_frame_passes_with_the_suite_that_adds_most() {
        let most =
            |suite: &Suite| suite.inner_mtu(1_500, wire::Family::V4, format::Udp::No, format::Mode::Tunnel);
        let least = format::SUITES.iter().map(most).min().unwrap();
        assert!(*LENGTHS.end() as usize <= wire::ethernet::HEADER_LEN + usize::from(least));
    }

    #[test]
    fn the_cipher_alone_opens_what_it_sealed() {
        let suite = Suite::named("aes128-gcm", None).unwrap();
        let raws = Raw::each(suite, 64).unwrap();
        assert!(raws.len() > 1);
        assert!(raws.iter().all(|raw| raw.seal() > 0.0 && raw.open() > 0.0));
    }
}
