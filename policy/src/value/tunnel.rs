//! Algorithms and keys of tunnels.

use std::net::IpAddr;

use config::quantity::{self, Quantity};
use config::value::text;
use config::wrong_type;
use toml::de::DeValue;
use wire::Nanos;
use wire::esp::{BadHex, SUITES, Secret, Suite, Tfc};

use super::address::ADDRESS;
use super::packet::DSCP;
use super::time::{DURATION, duration_text};
use super::{Complaint, Form, NUMBER16, NUMBER32, NUMBER64, Read, Text, Value, quoted};
use crate::diagnostic::Code;
use crate::model::{Lifetime, TunnelDscp, WindowSize};
use crate::word::Words;

/// Cipher of a security association: its word.
pub(crate) const ALGORITHM: Text<&'static str> =
    Text { read: |text| known(text, &algorithms()), print: |word| (*word).to_owned() };

/// Key in hexadecimal digits. Its digits are in no message.
pub(crate) const KEY: Text<Secret> = Text { read: secret, print: hex };

/// Password, as it is. It is in no message.
pub(crate) const PASSWORD: Text<Secret> = Text {
    read: |text| Ok(Secret::new(text.as_bytes().into())),
    print: |secret| String::from_utf8_lossy(secret.expose()).into_owned(),
};

/// Lifetime: a table of bounds.
pub(crate) const LIFETIME: Value<Lifetime> = Value { read: lifetime, print: lifetime_text };

/// Outer address of a peer, or `any`.
pub(crate) const REMOTE: Value<Option<IpAddr>> = Value {
    read: |value| match value {
        DeValue::String(word) if word == ANY => Ok(None),
        other => ADDRESS.read(other).map(Some),
    },
    print: |address| address.as_ref().map_or_else(|| quoted(ANY), |address| ADDRESS.print(address)),
};

const ANY: &str = "any";

/// Time between keepalives: a second at least, or `off`.
pub(crate) const KEEPALIVE: Value<Option<Nanos>> = Value {
    read: |value| match value {
        DeValue::String(word) if word == OFF => Ok(None),
        other => {
            const HINT: &str = "write \"off\", or a time from a second on, such as \"20s\"";
            let time = DURATION.read(other).map_err(|complaint| complaint.hint(HINT))?;
            if time < Nanos::from_secs(1) {
                let message = format!("a keepalive every {}", duration_text(time));
                return Err(Complaint::new(config::Code::BadNumber, message).hint(HINT));
            }
            Ok(Some(time))
        }
    },
    print: |time| quoted(&time.map_or_else(|| OFF.to_owned(), duration_text)),
};

const OFF: &str = "off";

/// Sizes of data, as RFCs and IKE daemons count bytes: a KiB has 1,024.
const SIZE: Quantity = Quantity {
    what: "a number of bytes",
    example: "10 GiB",
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
    most: i64::MAX as u64,
};

/// Reads a number of bytes as policies have it: `"10 GiB"`, or a bare number. `None` for any other text.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let read = |text: &str| {
        let read: Read<u64> = quantity::read(&DeValue::String(text.into()), &SIZE, 0);
        read.ok()
    };
    text.trim().parse().ok().or_else(|| read(text))
}

fn lifetime(value: &DeValue<'_>) -> Read<Lifetime> {
    const EXAMPLE: &str = "for example: { bytes = \"10 GiB\", packets = 1000000, time = \"1h\" }";
    let DeValue::Table(table) = value else {
        return Err(wrong_type("a table of bounds", value).hint(EXAMPLE));
    };
    let mut lifetime = Lifetime::UNBOUNDED;
    for (name, value) in table {
        let value = value.get_ref();
        match name.get_ref().as_ref() {
            "bytes" if matches!(value, DeValue::Integer(_)) => lifetime.bytes = Some(NUMBER64.read(value)?),
            "bytes" => lifetime.bytes = Some(quantity::read(value, &SIZE, 0)?),
            "packets" => lifetime.packets = Some(NUMBER64.read(value)?),
            "time" => lifetime.time = Some(DURATION.read(value)?),
            other => {
                let message = format!("a lifetime has no key `{other}`");
                let hint = config::word::did_you_mean(other, BOUNDS, || {
                    format!("its keys are: {}", BOUNDS.join(", "))
                });
                return Err(Complaint::new(config::Code::UnknownKey, message).hint(hint));
            }
        }
    }
    if lifetime == Lifetime::UNBOUNDED {
        return Err(Complaint::new(Code::BadLifetime, "a lifetime without bounds").hint(EXAMPLE));
    }
    Ok(lifetime)
}

const BOUNDS: [&str; 3] = ["bytes", "packets", "time"];

fn lifetime_text(lifetime: &Lifetime) -> String {
    let Lifetime { bytes, packets, time } = lifetime;
    let texts = [
        bytes.map(|bytes| format!("bytes = {bytes}")),
        packets.map(|packets| format!("packets = {packets}")),
        time.map(|time| format!("time = {}", quoted(&duration_text(time)))),
    ];
    format!("{{ {} }}", texts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Window against replay: a number of packets, or `off`.
pub(crate) const WINDOW: Value<WindowSize> = Value {
    read: |value| match value {
        DeValue::Integer(_) => NUMBER32.read(value).map(WindowSize::Numbers),
        DeValue::String(_) => WINDOW_WORDS
            .read(value)
            .map_err(|complaint| complaint.hint("write \"off\" or a number of packets")),
        other => Err(wrong_type("\"off\" or a number of packets", other)),
    },
    print: |size| match size {
        WindowSize::Numbers(numbers) => numbers.to_string(),
        word => WINDOW_WORDS.print(word),
    },
};

const WINDOW_WORDS: Words<WindowSize> = &[("off", WindowSize::Off)];

/// Code point of outer packets: `copy`, or a code point.
pub(crate) const TUNNEL_DSCP: Value<TunnelDscp> = Value {
    read: |value| match value {
        DeValue::String(word) if word == COPY => Ok(TunnelDscp::Copy),
        other => DSCP.read(other).map(TunnelDscp::Fixed).map_err(|complaint| {
            complaint.hint("write \"copy\", a number from 0 to 63, or ef, af11 to af43, cs0 to cs7, le")
        }),
    },
    print: |dscp| match dscp {
        TunnelDscp::Copy => quoted(COPY),
        TunnelDscp::Fixed(dscp) => DSCP.print(dscp),
    },
};

const COPY: &str = "copy";

/// Padding against traffic analysis: `mtu`, or a number of bytes.
pub(crate) const TFC: Value<Tfc> = Value {
    read: |value| match value {
        DeValue::Integer(_) => NUMBER16.read(value).map(|bytes| match bytes {
            0 => Tfc::Off,
            bytes => Tfc::Multiple(bytes),
        }),
        DeValue::String(_) => {
            TFC_WORDS.read(value).map_err(|complaint| complaint.hint("write \"mtu\" or a number of bytes"))
        }
        other => Err(wrong_type("\"mtu\" or a number of bytes", other)),
    },
    print: |tfc| match tfc {
        Tfc::Off => "0".to_owned(),
        Tfc::Multiple(bytes) => bytes.to_string(),
        word => TFC_WORDS.print(word),
    },
};

const TFC_WORDS: Words<Tfc> = &[("mtu", Tfc::Mtu)];

/// Integrity algorithm beside the cipher of this word, which does not authenticate by itself.
pub(crate) struct Auth(pub(crate) &'static str);

impl Form<Suite> for Auth {
    fn read(&self, value: &DeValue<'_>) -> Read<Suite> {
        let Auth(algorithm) = *self;
        let auth = known(text(value)?, &auths())?;
        Suite::named(algorithm, Some(auth)).copied().ok_or_else(|| {
            let what = format!("{algorithm} with auth = \"{auth}\" protects nothing");
            Complaint::new(Code::NoIntegrity, what)
                .hint("name an integrity algorithm, such as \"hmac-sha256-128\"")
        })
    }

    fn print(&self, suite: &Suite) -> String {
        quoted(suite.name().auth().unwrap_or_default())
    }
}

/// Words of all ciphers.
pub(crate) fn algorithms() -> Vec<&'static str> {
    words(|suite| Some(suite.name().algorithm()))
}

/// Words of all integrity algorithms.
pub(crate) fn auths() -> Vec<&'static str> {
    words(|suite| suite.name().auth())
}

/// Words of all suites, each once, in their order.
fn words(of: impl Fn(&Suite) -> Option<&'static str>) -> Vec<&'static str> {
    let mut words: Vec<&str> = Vec::new();
    for word in SUITES.iter().filter_map(of) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

fn known(text: &str, words: &[&'static str]) -> Read<&'static str> {
    words.iter().copied().find(|word| *word == text).ok_or_else(|| {
        let listed = || format!("one of: {}", words.join(", "));
        Complaint::new(config::Code::UnknownWord, format!("unknown word \"{text}\""))
            .hint(config::word::did_you_mean(text, words.iter().copied(), listed))
    })
}

fn secret(text: &str) -> Read<Secret> {
    Secret::of_hex(text).map_err(|bad| {
        let what = match bad {
            BadHex::Odd => "the key has an odd number of hexadecimal digits".to_owned(),
            BadHex::Digit { at } => format!("character {at} of the key is no hexadecimal digit"),
        };
        Complaint::new(Code::BadKey, what).hint("two digits for each byte, without spaces or colons")
    })
}

fn hex(secret: &Secret) -> String {
    secret.expose().iter().map(|byte| format!("{byte:02x}")).collect()
}
