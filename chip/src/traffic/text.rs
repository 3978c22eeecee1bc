//! A stream as text: `lan>wan,size=64,rate=100%,flows=1000,both`.

use std::str::FromStr;

use ipnet::IpNet;
use wire::Nanos;

use super::stream::{Arrivals, Begin, Flows, Rate, Size, Stream, Transport, Ways};

/// Every key of the text form, with its values and meaning.
pub const KEYS: &[(&str, &str)] = &[
    (
        "size=64..9000|imix|normal:MEAN/DEVIATION[:LEAST-MOST]",
        "bytes of each frame on the wire, its check sequence included; imix is 64, 594 and 1518 in the proportion 7:4:1, normal a distribution that is cut off at 64 and 9000, or at 46 and more [64]",
    ),
    (
        "rate=N%|Nkpps|Nmpps|Nmbit|Ngbit",
        "how many come, each way: a share of the line's rate (up to 100%), or so many frames, or bits of frames, a second [100%]",
    ),
    (
        "arrivals=constant|poisson|on-off:ON/OFF",
        "how they are spread over time; on-off sends at the rate for ON on average, then nothing for OFF (100us/1ms; from 1ns to an hour) [constant]",
    ),
    ("flows=N|each", "so many flows, each frame of a random one; each: every frame opens a flow [1000]"),
    ("frames=N", "how many frames, each way [100000]"),
    ("both", "answers come the other way, too, as many and as fast, to flows that got through"),
    ("established", "flows are set up beforehand, in no modelled time"),
    ("protocol=udp|tcp", "the transport protocol [udp]"),
    (
        "segments=N",
        "each TCP connection is closed after so many segments with data, and begins again by another port; needs both [never]",
    ),
    ("stray", "TCP segments of connections that nobody has opened"),
    ("source=NETWORK", "where packets come from [the first network of the interface]"),
    ("destination=NETWORK", "where they go to [a network that the policy routes out of the other interface]"),
    ("dport=N", "the destination port [443]"),
];

/// Error in the text of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStream {
    /// The text does not begin with two interfaces.
    #[error("`{text}` names no two interfaces: generated traffic begins with FROM>TO")]
    NoInterfaces {
        /// Text in place of the interfaces.
        text: String,
    },
    /// A key is not known.
    #[error("`{key}` is no key of generated traffic; {}", instead(*.nearest))]
    UnknownKey {
        /// The key.
        key: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A key is there twice.
    #[error("`{key}` is there twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A key has no value, or has one and takes none, or a wrong one.
    #[error("{}: {expected}", fault(.key, .value))]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value; empty if there is none.
        value: String,
        /// Values expected, as [`KEYS`] has them.
        expected: &'static str,
    },
}

/// The key that was probably meant, or all there are.
fn instead(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => {
            format!("the keys are {}", KEYS.iter().map(|(key, _)| name(key)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Fault of a value, which is empty where there is none.
fn fault(key: &str, value: &str) -> String {
    if value.is_empty() {
        format!("`{key}` wants a value")
    } else {
        format!("`{value}` is no value of `{key}`")
    }
}

/// The key alone.
fn name(key: &'static str) -> &'static str {
    key.split('=').next().unwrap_or(key)
}

impl FromStr for Stream {
    type Err = BadStream;

    fn from_str(text: &str) -> Result<Stream, BadStream> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or("");
        let ends = first.split_once('>').map(|(from, to)| (from.trim(), to.trim()));
        let Some((from, to)) = ends.filter(|(from, to)| !from.is_empty() && !to.is_empty() && from != to)
        else {
            return Err(BadStream::NoInterfaces { text: first.to_owned() });
        };
        let mut stream = Stream::new(from, to);
        let mut seen = Vec::new();
        for part in parts {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.trim(), value.trim()),
                None => (part.trim(), ""),
            };
            let known = known(key)?;
            if seen.contains(&name(known)) {
                return Err(BadStream::Twice { key: name(known) });
            }
            seen.push(name(known));
            stream.set(key, value)?;
        }
        Ok(stream)
    }
}

/// The key of that name, with its values, as [`KEYS`] has it.
fn known(key: &str) -> Result<&'static str, BadStream> {
    let known = KEYS.iter().find(|(known, _)| name(known) == key);
    known.map(|(known, _)| *known).ok_or_else(|| {
        let nearest = config::nearest(key, KEYS.iter().map(|(known, _)| name(known)));
        BadStream::UnknownKey { key: key.to_owned(), nearest }
    })
}

/// The error of a value; `key` is with its values, as [`KEYS`] has it.
fn bad_value(key: &'static str, value: &str) -> BadStream {
    let expected = key.split_once('=').map_or("it takes none", |(_, values)| values);
    BadStream::BadValue { key: name(key), value: value.to_owned(), expected }
}

impl Stream {
    /// Sets a key, as the text form has it; the value of one that takes none is empty.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), BadStream> {
        let known = known(key)?;
        self.try_set(key, value).ok_or_else(|| bad_value(known, value))
    }

    /// Sets a key; `None` if the value is none of its.
    fn try_set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "size" => {
                self.size = match value {
                    "imix" => Size::Imix,
                    _ => match value.strip_prefix("normal:") {
                        Some(text) => normal(text)?,
                        None => Size::Fixed(within(value, Size::LEAST.into(), Size::MOST.into())? as u16),
                    },
                }
            }
            "rate" => self.rate = rate(value)?,
            "arrivals" => self.arrivals = arrivals(value)?,
            "flows" => {
                self.flows = match value {
                    "each" => Flows::Each,
                    _ => Flows::Fixed(within(value, 1, Flows::MOST.into())? as u32),
                }
            }
            "frames" => self.frames = within(value, 0, u64::MAX)?,
            "both" if value.is_empty() => self.ways = Ways::Both,
            "established" | "stray" if value.is_empty() && self.begin == Begin::Fresh => {
                self.begin = if key == "stray" { Begin::Stray } else { Begin::Established }
            }
            "segments" => self.segments = Some(within(value, 1, u32::MAX.into())? as u32),
            "protocol" => {
                self.transport = match value {
                    "udp" => Transport::Udp,
                    "tcp" => Transport::Tcp,
                    _ => return None,
                }
            }
            "source" => self.source = Some(network(value)?),
            "destination" => self.destination = Some(network(value)?),
            "dport" => self.dport = within(value, 0, 65_535)? as u16,
            _ => return None,
        }
        Some(())
    }
}

/// A normal distribution: `MEAN/DEVIATION`, and perhaps its ends.
fn normal(text: &str) -> Option<Size> {
    let (text, least, most) = match text.split_once(':') {
        Some((text, ends)) => {
            let (least, most) = ends.split_once('-')?;
            let most = within(most, Size::SHORTEST.into(), Size::MOST.into())?;
            (text, within(least, Size::SHORTEST.into(), most)?, most)
        }
        None => (text, Size::LEAST.into(), Size::MOST.into()),
    };
    let (mean, deviation) = text.split_once('/')?;
    let mean = within(mean, least, most)?;
    let deviation = within(deviation, 0, mean)?;
    let [mean, deviation, least, most] = [mean, deviation, least, most].map(|bytes| bytes as u16);
    Some(Size::Normal { mean, deviation, least, most })
}

/// A whole number, perhaps with `k` or `m` for thousands or millions.
fn within(text: &str, least: u64, most: u64) -> Option<u64> {
    let (digits, times) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix('m').map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number = digits.parse::<u64>().ok()?.checked_mul(times)?;
    (least..=most).contains(&number).then_some(number)
}

/// Range of a rate in frames or bits a second, as plausible on a line.
const RATES: std::ops::RangeInclusive<f64> = 1e-3..=1e13;

/// A unit of rates, and the conversion from it.
type Unit = (&'static str, fn(f64) -> Rate);

fn rate(text: &str) -> Option<Rate> {
    let units: [Unit; 8] = [
        ("%", |value| Rate::Line(value / 100.0)),
        ("kpps", |value| Rate::Frames(value * 1e3)),
        ("mpps", |value| Rate::Frames(value * 1e6)),
        ("pps", Rate::Frames),
        ("kbit", |value| Rate::Bits(value * 1e3)),
        ("mbit", |value| Rate::Bits(value * 1e6)),
        ("gbit", |value| Rate::Bits(value * 1e9)),
        ("bit", Rate::Bits),
    ];
    let lower = text.to_ascii_lowercase();
    let (digits, of) = units.iter().find_map(|(unit, of)| Some((lower.strip_suffix(unit)?, of)))?;
    let rate = of(digits.trim().parse::<f64>().ok()?);
    let fits = match rate {
        Rate::Line(share) => share > 1e-9 && share <= 1.0,
        Rate::Frames(rate) | Rate::Bits(rate) => RATES.contains(&rate),
    };
    fits.then_some(rate)
}

fn arrivals(text: &str) -> Option<Arrivals> {
    match text {
        "constant" => Some(Arrivals::Constant),
        "poisson" => Some(Arrivals::Poisson),
        _ => {
            let (on, off) = text.strip_prefix("on-off:")?.split_once('/')?;
            Some(Arrivals::OnOff { on: span(on)?, off: span(off)? })
        }
    }
}

/// A time of more than nothing and less than an hour.
fn span(text: &str) -> Option<Nanos> {
    let nanos = config::quantity::duration(text)?;
    (1..=3_600_000_000_000).contains(&nanos).then_some(Nanos(nanos))
}

/// A network, or a single address.
fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address)))
}
