//! Textual forms of the values of a policy file: how each is read, and how it is printed.
//!
//! A reader returns the meaning of one value, or a complaint that names the error and the form expected.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use config::quantity::{bit_rate, bit_rate_text};
use config::value::{self, flag, one_of, text};
use config::wrong_type;
use toml::de::DeValue;
use wire::link::MOST_RATE;
use wire::{BitRate, Bytes};

use crate::diagnostic::Code;
use crate::model::{Collector, LogOutput, MssClamp, SyncPeer, Xfrm};
use crate::word::{Words, word_for};

pub(crate) mod address;
pub(crate) mod check;
pub(crate) mod meter;
pub(crate) mod packet;
pub(crate) mod queue;
pub(crate) mod selector;
pub(crate) mod shape;
pub(crate) mod time;
pub(crate) mod tunnel;

pub(crate) type Complaint = config::Complaint<Code>;

/// Result of reading a value, or the complaint about it.
pub(crate) type Read<T> = value::Read<T, Code>;

/// Textual form of values.
pub(crate) trait Form<T> {
    /// Reads a value.
    fn read(&self, value: &DeValue<'_>) -> Read<T>;

    /// Prints a value as TOML, which reads back as the same.
    fn print(&self, value: &T) -> String;
}

/// Form of strings.
pub(crate) struct Text<T> {
    /// Reads the string.
    pub(crate) read: fn(&str) -> Read<T>,
    /// Prints the string, without quotes.
    pub(crate) print: fn(&T) -> String,
}

/// Form of any TOML.
pub(crate) struct Value<T> {
    /// Reads a value.
    pub(crate) read: fn(&DeValue<'_>) -> Read<T>,
    /// Prints a value.
    pub(crate) print: fn(&T) -> String,
}

/// Form of a choice of two: the first is `true`, the second `false`.
pub(crate) struct Flag<T>(pub(crate) T, pub(crate) T);

impl<T> Form<T> for Text<T> {
    fn read(&self, value: &DeValue<'_>) -> Read<T> {
        (self.read)(text(value)?)
    }

    fn print(&self, value: &T) -> String {
        quoted(&(self.print)(value))
    }
}

impl<T> Form<T> for Value<T> {
    fn read(&self, value: &DeValue<'_>) -> Read<T> {
        (self.read)(value)
    }

    fn print(&self, value: &T) -> String {
        (self.print)(value)
    }
}

impl<T: Copy + PartialEq> Form<T> for Flag<T> {
    fn read(&self, value: &DeValue<'_>) -> Read<T> {
        flag(value, self.0, self.1)
    }

    fn print(&self, value: &T) -> String {
        (*value == self.0).to_string()
    }
}

impl<T: Clone + PartialEq> Form<T> for Words<T> {
    fn read(&self, value: &DeValue<'_>) -> Read<T> {
        one_of(value, self)
    }

    /// Prints the word, or nothing; a test of the tables holds that every value has one.
    fn print(&self, value: &T) -> String {
        quoted(word_for(self, value).unwrap_or_default())
    }
}

/// A string.
pub(crate) const STRING: Text<String> = Text { read: |text| Ok(text.to_owned()), print: String::clone };

/// A name that many items have in common.
pub(crate) const NAME: Text<Arc<str>> =
    Text { read: |text| Ok(Arc::from(text)), print: |name| name.to_string() };

/// A path of the file system.
pub(crate) const PATH: Text<PathBuf> =
    Text { read: |text| Ok(PathBuf::from(text)), print: |path| path.to_string_lossy().into_owned() };

/// A source of the SAs of IKE daemons: Linux, or the path of a socket.
pub(crate) const XFRM: Text<Xfrm> = Text {
    read: |text| {
        Ok(match text {
            "linux" => Xfrm::Linux,
            path => Xfrm::Socket(PathBuf::from(path)),
        })
    },
    print: |xfrm| match xfrm {
        Xfrm::Linux => "linux".to_owned(),
        Xfrm::Socket(path) => path.to_string_lossy().into_owned(),
    },
};

/// An 8-bit integer, not zero.
pub(crate) const WEIGHT: Value<u8> =
    Value { read: |value| number(value, 1, 255).map(|number| number as u8), print: u8::to_string };

/// Any 16-bit integer; `validate` checks the range.
pub(crate) const NUMBER16: Value<u16> = Value {
    read: |value| number(value, 0, u16::MAX.into()).map(|number| number as u16),
    print: u16::to_string,
};

/// Any 32-bit integer; `validate` checks the range.
pub(crate) const NUMBER32: Value<u32> = Value {
    read: |value| number(value, 0, u32::MAX.into()).map(|number| number as u32),
    print: u32::to_string,
};

/// Any integer from 0; `validate` checks the range.
pub(crate) const NUMBER64: Value<u64> =
    Value { read: |value| number(value, 0, i64::MAX as u64), print: u64::to_string };

/// A number of bytes.
pub(crate) const BYTES: Value<Bytes> =
    Value { read: |value| number(value, 0, u32::MAX.into()).map(Bytes), print: |bytes| bytes.0.to_string() };

/// Any number of bytes; `validate` checks the range.
pub(crate) const SIZE: Value<Bytes> =
    Value { read: |value| NUMBER64.read(value).map(Bytes), print: |bytes| bytes.0.to_string() };

/// A number of MiB, up to a TiB.
pub(crate) const MEBIBYTES: Value<Bytes> = Value {
    read: |value| number(value, 1, 1 << 20).map(|number| Bytes(number << 20)),
    print: |bytes| (bytes.0 >> 20).to_string(),
};

/// The rate of a link, not zero.
pub(crate) const BIT_RATE: Value<BitRate> = Value {
    read: |value| bit_rate(value, MOST_RATE.0).map(BitRate),
    print: |rate| quoted(&bit_rate_text(rate.0)),
};

/// An MSS clamp: `off`, `mtu` or a number of bytes.
pub(crate) const MSS: Value<MssClamp> = Value {
    read: |value| match value {
        DeValue::Integer(_) => NUMBER16.read(value).map(MssClamp::Bytes),
        DeValue::String(_) => MSS_WORDS.read(value),
        other => Err(wrong_type("\"off\", \"mtu\" or a number of bytes", other)),
    },
    print: |clamp| match clamp {
        MssClamp::Bytes(bytes) => bytes.to_string(),
        word => MSS_WORDS.print(word),
    },
};

const MSS_WORDS: Words<MssClamp> = &[("off", MssClamp::Off), ("mtu", MssClamp::Mtu)];

/// An output of log records.
pub(crate) const LOG_OUTPUT: Text<LogOutput> = Text {
    read: |text| {
        LogOutput::of(text).ok_or_else(|| {
            let message = format!("\"{text}\" is nowhere that a log can go to");
            Complaint::new(Code::BadLogOutput, message).hint(
                "write \"stderr\", \"journald\", \"syslog\", \"syslog:udp:192.0.2.1:514\", \"syslog:tcp:192.0.2.1:601\" or \
                 \"file:/var/log/wirerate/log.json\"",
            )
        })
    },
    print: LogOutput::to_string,
};

/// A collector of IPFIX records.
pub(crate) const COLLECTOR: Text<Collector> = Text {
    read: |text| {
        Collector::of(text).ok_or_else(|| {
            let message = format!("\"{text}\" is no collector");
            Complaint::new(Code::BadCollector, message).hint(
                "write \"udp:192.0.2.1:4739\" or \"tcp:[2001:db8::1]:4739\": transport, address and port",
            )
        })
    },
    print: Collector::to_string,
};

/// The peer of state synchronisation.
pub(crate) const SYNC_PEER: Text<SyncPeer> = Text {
    read: |text| {
        SyncPeer::of(text).ok_or_else(|| {
            let message = format!("\"{text}\" is no peer of a synchronisation");
            Complaint::new(Code::BadSyncPeer, message).hint(
                "write \"listen:192.0.2.1:9480\", an address of this gateway, on one of the two gateways, and \
                 \"connect:192.0.2.1:9480\" on the other",
            )
        })
    },
    print: SyncPeer::to_string,
};

/// Reads an integer from `least` to `most`.
fn number(value: &DeValue<'_>, least: u64, most: u64) -> Read<u64> {
    value::number(value, least, most)
}

/// Formats a key, in quotes where TOML wants them.
pub fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { quoted(name) }
}

/// Formats a basic string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
