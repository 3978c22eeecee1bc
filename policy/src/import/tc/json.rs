//! JSON of `tc -j`, as the words of its text.
//!
//! `tc` repeats keys: each `match` of a filter is a key of the same object. So objects are lists here, and the words of all forms
//! have one meaning: numbers of rates are bytes per second, as they are in JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A JSON value that keeps repeated keys, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// A number or a string, as text.
    Word(String, Type),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Type of a [`Json::Word`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Number,
    String,
}

/// Keys whose numbers are bytes per second.
const RATES: &[&str] = &["rate", "ceil", "bandwidth", "peakrate", "maxrate", "low_rate_threshold", "avrate"];

/// Keys that say nothing of what was configured: statistics, and references of the kernel.
const STATISTICS: &[&str] = &[
    "order",
    "index",
    "ref",
    "bind",
    "stats",
    "installed",
    "last_used",
    "first_used",
    "used",
    "expires",
    "rule_hit",
    "success",
    "burst_cell",
    "cburst_cell",
    "fwmark_success",
    "hw_stats",
    "used_hw_stats",
];

impl Json {
    /// Returns the value of a key, the first of several.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of a number or a string.
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Json::Word(word, _) => Some(word),
            _ => None,
        }
    }

    /// Returns the words that tc's text would have for the options of a qdisc, class or filter.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Json::Object(pairs) = self {
            pairs.iter().for_each(|(key, value)| option(key, value, &mut words));
        }
        words
    }
}

/// Appends the words of one option.
fn option(key: &str, value: &Json, words: &mut Vec<String>) {
    if STATISTICS.contains(&key) {
        return;
    }
    let mut push = |word: &str| words.push(word.to_owned());
    match (key, value) {
        ("match", Json::Object(_)) => {
            let part = |name| value.get(name).and_then(Json::word).unwrap_or_default();
            push("match");
            push(&format!("{}/{}", part("value"), part("mask")));
            push("at");
            push(&format!("{}{}", part("offmask"), part("off")));
        }
        ("actions", Json::List(actions)) => {
            for action in actions {
                words.push("action".to_owned());
                if let Json::Object(pairs) = action {
                    pairs.iter().for_each(|(key, value)| option(key, value, words));
                }
            }
        }
        ("kind", Json::Word(kind, _)) => push(kind),
        ("control_action", _) => {
            push("control");
            push(value.get("type").and_then(Json::word).unwrap_or("unknown"));
        }
        // Words that stand by themselves in text.
        ("diffserv" | "flowmode" | "atm" | "autorate", Json::Word(word, _)) => push(word),
        ("ack-filter", Json::Word(word, _)) => match word.as_str() {
            "disabled" => push("no-ack-filter"),
            "enabled" => push("ack-filter"),
            other => push(&format!("ack-filter-{other}")),
        },
        ("nat" | "wash", Json::Bool(is_on)) => {
            push(&if *is_on { key.to_owned() } else { format!("no{key}") })
        }
        ("split_gso", Json::Bool(is_on)) => push(if *is_on { "split-gso" } else { "no-split-gso" }),
        (_, Json::Bool(true) | Json::Null) => push(key),
        (_, Json::Bool(false)) => {}
        ("ip_flags" | "enc_flags", Json::Object(flags)) => {
            push(key);
            let flag = |(name, value): &(String, Json)| match value {
                Json::Bool(false) => format!("no{name}"),
                _ => name.clone(),
            };
            push(&flags.iter().map(flag).collect::<Vec<_>>().join("/"));
        }
        (_, Json::Object(pairs)) => match (value.get("start"), value.get("end")) {
            (Some(Json::Word(first, _)), Some(Json::Word(last, _))) => {
                push(key);
                push(&format!("{first}-{last}"));
            }
            _ => pairs.iter().for_each(|(key, value)| option(key, value, words)),
        },
        (_, Json::List(list)) => {
            push(key);
            list.iter().filter_map(Json::word).for_each(push);
        }
        (_, Json::Word(word, kind)) => {
            push(match key {
                "mpu_rate" | "mpu_ceil" => "mpu",
                key => key,
            });
            if *kind == Type::Number && RATES.contains(&key) {
                push(&format!("{word}bps"));
            } else {
                push(word);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(Json::Word(value.to_string(), Type::Number))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Word(value.to_string(), Type::Number))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
                Ok(Json::Word(value.to_string(), Type::Number))
            }

            fn visit_str<E>(self, value: &str) -> Result<Json, E> {
                Ok(Json::Word(value.to_owned(), Type::String))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(value) = seq.next_element()? {
                    list.push(value);
                }
                Ok(Json::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Json::Object(pairs))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}
