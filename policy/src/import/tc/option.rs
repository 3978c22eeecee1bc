//! Options of a qdisc or class: words with values. Each that is not taken is one that has no translation.

use std::ops::RangeInclusive;

use wire::Nanos;

use super::unit;
use crate::import::note::Why;
use crate::value::time::duration_text;

/// Options, in the order of the source.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    list: Vec<Given>,
    /// Values that were bounded, with what they became.
    bounded: Vec<Bounded>,
}

/// Value out of the range that a policy has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounded {
    /// The value, in the source's words.
    pub(super) given: String,
    /// Value that the policy has.
    pub(super) becomes: String,
}

#[derive(Clone, Debug)]
struct Given {
    key: String,
    value: Option<String>,
    is_taken: bool,
}

/// Words that have no value.
const FLAGS: &[&str] = &[
    // Of several kinds.
    "ecn",
    "noecn",
    "offload",
    "offloaded",
    "multiqueue",
    "headdrop",
    "harddrop",
    "nodrop",
    "adaptive",
    "adaptative",
    "bytemode",
    "nobytemode",
    "dq_rate_estimator",
    "no_dq_rate_estimator",
    "pacing",
    "nopacing",
    // Of CAKE.
    "besteffort",
    "precedence",
    "diffserv8",
    "diffserv4",
    "diffserv3",
    "diffserv",
    "flowblind",
    "srchost",
    "dsthost",
    "hosts",
    "flows",
    "dual-srchost",
    "dual-dsthost",
    "triple-isolate",
    "nat",
    "nonat",
    "wash",
    "nowash",
    "split-gso",
    "no-split-gso",
    "ingress",
    "egress",
    "ack-filter",
    "ack-filter-aggressive",
    "no-ack-filter",
    "raw",
    "conservative",
    "ipoa-vcmux",
    "ipoa-llcsnap",
    "bridged-vcmux",
    "bridged-llcsnap",
    "pppoa-vcmux",
    "pppoa-llc",
    "pppoe-vcmux",
    "pppoe-llcsnap",
    "pppoe-ptm",
    "bridged-ptm",
    "via-ethernet",
    "ethernet",
    "ether-vlan",
    "docsis",
    "ptm",
    "atm",
    "noatm",
    "unlimited",
    "autorate-ingress",
    "datacentre",
    "lan",
    "metro",
    "regional",
    "internet",
    "oceanic",
    "satellite",
    "interplanetary",
    "----------------",
];

impl Options {
    /// Reads words; of kind CAKE `flows` has no value.
    pub(super) fn of(kind: &str, words: &[String]) -> Options {
        let mut list: Vec<Given> = Vec::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let is_flag = FLAGS.contains(&word.as_str()) && (word != "flows" || kind == "cake");
            let value = if is_flag {
                None
            } else if word == "priomap" {
                let mut bands = Vec::new();
                while let Some(band) = words.next_if(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
                    bands.push(band.as_str());
                }
                Some(bands.join(" "))
            } else {
                words.next().cloned()
            };
            list.push(Given { key: word.clone(), value, is_taken: false });
        }
        Options { list, bounded: Vec::new() }
    }

    /// True if the source has the option.
    pub(super) fn has(&self, key: &str) -> bool {
        self.list.iter().any(|given| given.key == key)
    }

    /// Bounds the value of an option to what a policy may have, and remembers that.
    pub(super) fn within(&mut self, key: &str, value: u64, range: RangeInclusive<u64>) -> u64 {
        let bounded = value.clamp(*range.start(), *range.end());
        if bounded != value {
            self.bound(key, bounded.to_string());
        }
        bounded
    }

    /// Bounds the time of an option, and remembers that.
    pub(super) fn within_time(&mut self, key: &str, value: Nanos, range: RangeInclusive<Nanos>) -> Nanos {
        let bounded = value.clamp(*range.start(), *range.end());
        if bounded != value {
            self.bound(key, duration_text(bounded));
        }
        bounded
    }

    /// Remembers what the value of an option became.
    pub(super) fn bound(&mut self, key: &str, becomes: String) {
        let last = self.list.iter().rev().find(|given| given.key == key);
        let word = last.and_then(|given| given.value.as_deref()).unwrap_or_default();
        self.bounded.push(Bounded { given: format!("{key} {word}"), becomes });
    }

    /// Returns the values that have been bounded.
    pub(super) fn bounded(&self) -> &[Bounded] {
        &self.bounded
    }

    /// Takes a value by any of its names: the last, where a command changed it.
    pub(super) fn word(&mut self, keys: &[&str]) -> Option<String> {
        let mut last = None;
        for given in self.list.iter_mut().filter(|given| keys.contains(&given.key.as_str())) {
            given.is_taken = true;
            last = given.value.clone();
        }
        last
    }

    /// Takes a word without a value; true if it is there.
    pub(super) fn flag(&mut self, key: &str) -> bool {
        self.last(&[key]).is_some()
    }

    /// Takes words that exclude each other, and returns the last of them.
    pub(super) fn last(&mut self, keys: &[&str]) -> Option<String> {
        let mut last = None;
        for given in self.list.iter_mut().filter(|given| keys.contains(&given.key.as_str())) {
            given.is_taken = true;
            last = Some(given.key.clone());
        }
        last
    }

    /// Takes all that are among `keys`, in the order of the source, each with its value if it has one.
    pub(super) fn all(&mut self, keys: &[&str]) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        for given in self.list.iter_mut().filter(|given| keys.contains(&given.key.as_str())) {
            given.is_taken = true;
            all.push((given.key.clone(), given.value.clone()));
        }
        all
    }

    /// Takes a rate, in bits per second.
    pub(super) fn rate(&mut self, keys: &[&str]) -> Result<Option<u64>, Why> {
        self.parsed(keys, unit::rate)
    }

    /// Takes a size, in bytes or packets.
    pub(super) fn size(&mut self, keys: &[&str]) -> Result<Option<u64>, Why> {
        self.parsed(keys, unit::size)
    }

    /// Takes a time.
    pub(super) fn time(&mut self, keys: &[&str]) -> Result<Option<Nanos>, Why> {
        self.parsed(keys, unit::time)
    }

    /// Takes a whole number.
    pub(super) fn number(&mut self, keys: &[&str]) -> Result<Option<i64>, Why> {
        self.parsed(keys, |word| word.parse().ok())
    }

    fn parsed<T>(&mut self, keys: &[&str], parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Why> {
        let Some(word) = self.word(keys) else { return Ok(None) };
        match parse(&word) {
            Some(value) => Ok(Some(value)),
            None => Err(Why::Value(format!("{} {word}", keys[0]))),
        }
    }

    /// Reasons for all that has not been taken.
    pub(super) fn rest(&self) -> Vec<Why> {
        let left = self.list.iter().filter(|given| !given.is_taken);
        left.map(|given| {
            let value = given.value.as_deref().map(|value| format!(" {value}")).unwrap_or_default();
            Why::Feature(format!("{}{value}", given.key))
        })
        .collect()
    }
}
