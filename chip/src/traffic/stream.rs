//! Description of the traffic to generate.

use ipnet::IpNet;
use wire::Nanos;

/// Frames of one kind that come in by one interface, to leave by another, and perhaps their answers.
///
/// The text form is that of the command line; [`super::KEYS`] explains it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The name of the interface that flows begin at.
    pub from: String,
    /// The name of the interface that they lead to.
    pub to: String,
    /// Frame size.
    pub size: Size,
    /// Offered rate, each way.
    pub rate: Rate,
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Number of flows.
    pub flows: Flows,
    /// Total number of frames, each way.
    pub frames: u64,
    /// Directions.
    pub ways: Ways,
    /// State of flows when the traffic begins.
    pub begin: Begin,
    /// The transport protocol.
    pub transport: Transport,
    /// Segments with data that each TCP connection carries from where it begins, and about as many back, until it is closed and begins again by
    /// another port; connections are never closed where absent.
    pub segments: Option<u32>,
    /// Source network; chosen from the networks of `from` where absent.
    pub source: Option<IpNet>,
    /// Destination network; chosen so that the policy routes it out of `to` where absent.
    pub destination: Option<IpNet>,
    /// The destination port.
    pub dport: u16,
}

/// Frame size on the wire, as RFC 2544 (section 9.1) counts: with the frame check sequence of four bytes, which captures
/// leave out, and without preamble and inter-frame gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All alike: [`Size::LEAST`] to [`Size::MOST`] bytes.
    Fixed(u16),
    /// The customary mix, often called simple IMIX (RFC 6985 has the background): of twelve frames, seven of 64
    /// bytes, four of 594 and one of 1518, in random order. Those are IPv4 packets of 40, 576 and 1500 bytes.
    Imix,
    /// Normally distributed, and cut off at both ends: a size beyond them is drawn anew.
    Normal {
        /// Mean before the ends are cut off, in bytes; within them.
        mean: u16,
        /// Standard deviation before the ends are cut off, in bytes; up to the mean.
        deviation: u16,
        /// The least; below [`Size::LEAST`] on lines other than Ethernet's, from [`Size::SHORTEST`] on.
        least: u16,
        /// The most, up to [`Size::MOST`].
        most: u16,
    },
}

impl Size {
    /// The smallest frame.
    pub const LEAST: u16 = 64;
    /// The smallest frame of lines that have no least length: a UDP datagram without data behind an Ethernet header.
    pub const SHORTEST: u16 = 46;
    /// The largest.
    pub const MOST: u16 = 9000;
    /// Bytes of the check sequence.
    pub const CHECK: u16 = 4;
    /// The smallest that it can be, in bytes.
    pub(super) fn least(self) -> u16 {
        match self {
            Size::Fixed(size) => size,
            Size::Imix => Size::LEAST,
            Size::Normal { least, .. } => least,
        }
    }

    /// Sizes of the mix, in bytes, and the number of frames of each among twelve.
    pub const IMIX: [(u16, u64); 3] = [(64, 7), (594, 4), (1518, 1)];
}

/// Offered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// A share of the line rate; 1 is back to back.
    Line(f64),
    /// Frames a second.
    Frames(f64),
    /// Bits of frames a second, without check sequence, preamble and gap.
    Bits(f64),
}

/// Arrival process of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly: rate and frame size give the gap to the next frame.
    Constant,
    /// Independently of each other: gaps are exponentially distributed around that mean.
    Poisson,
    /// In bursts: evenly while on, none while off; both last exponentially distributed times with these means. The
    /// rate is that while on.
    OnOff {
        /// The mean length of a burst.
        on: Nanos,
        /// The mean length of a pause.
        off: Nanos,
    },
}

/// Number of flows that frames belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// A fixed number, each frame in a random flow.
    Fixed(u32),
    /// Every frame opens one.
    Each,
}

impl Flows {
    /// The most, since the state of each takes memory.
    pub const MOST: u32 = 10_000_000;
}

/// Directions of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// From the one interface to the other.
    One,
    /// Answers come, too: as many, as fast, to flows whose first packet got through.
    Both,
}

/// State of flows when the traffic begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Not set up: the first packet of each is part of the traffic.
    Fresh,
    /// Set up before modelled time begins.
    Established,
    /// Never set up: TCP segments of connections that nobody has opened.
    Stray,
}

/// The transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP: SYN, its answer, then data. Segments without data are frames of 64 bytes, whatever the size, or of the least that it can be.
    Tcp,
}

impl Stream {
    /// A stream between two interfaces, with everything else as it is where it is not said: UDP frames of 64 bytes
    /// at the rate of the line, evenly spaced, one way, of a thousand flows that are set up by their own first
    /// packets.
    pub fn new(from: &str, to: &str) -> Stream {
        Stream {
            from: from.to_owned(),
            to: to.to_owned(),
            size: Size::Fixed(Size::LEAST),
            rate: Rate::Line(1.0),
            arrivals: Arrivals::Constant,
            flows: Flows::Fixed(1000),
            frames: 100_000,
            ways: Ways::One,
            begin: Begin::Fresh,
            transport: Transport::Udp,
            segments: None,
            source: None,
            destination: None,
            dport: 443,
        }
    }
}
