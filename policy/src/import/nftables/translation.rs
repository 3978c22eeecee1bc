//! Translations and helpers, whose arguments may come from maps.

use std::net::IpAddr;

use serde_json::Value;

use super::expression::{Field, address, ends, fields};
use super::spread::Spread;
use super::statement::{Context, MOST_WAYS, implied};
use crate::import::chain::Verdict;
use crate::import::cond::Cond;
use crate::import::iptables::{forward, netmap, redirect};
use crate::import::note::{NoteKind, Why};
use crate::model::{NatAction, PortRange, PortUse};

/// Parts of a translation that may come from a map.
const PARTS: [&str; 2] = ["addr", "port"];

/// Most pairs of elements of two maps that are compared.
const MOST_PAIRS: usize = 1 << 20;

/// True if the argument of a statement, or a part of it, comes from a map.
pub(super) fn has_map(body: &Value) -> bool {
    let is_map = |value: &Value| value.get("map").is_some();
    is_map(body) || PARTS.iter().any(|part| body.get(part).is_some_and(is_map))
}

impl Context<'_> {
    /// Translation of a statement, whose addresses and ports are values.
    pub(super) fn translation(&mut self, kind: &str, body: &Value) -> Result<NatAction, Why> {
        // Of a network translated to another one they say the same as its types.
        if body.get("flags").is_some_and(|flags| flags != "netmap") {
            self.note(NoteKind::PortOrder);
        }
        let to = || address(body.get("addr").unwrap_or(&Value::Null)).map_err(|_| Why::NatTarget);
        match (kind, body.get("type_flags")) {
            ("masquerade", _) => Ok(NatAction::Masquerade { ports: port_use(body)? }),
            ("redirect", _) => redirect(port_range(body)?),
            (_, Some(flags)) if flags == "prefix" => netmap(to()?),
            (_, Some(_)) => Err(Why::NatTarget),
            ("snat", None) => Ok(NatAction::Source { pool: vec![to()?], ports: port_use(body)? }),
            _ => {
                let target =
                    body.get("addr").and_then(Value::as_str).and_then(|word| word.parse::<IpAddr>().ok());
                Ok(forward(target.ok_or(Why::NatTarget)?, port_range(body)?))
            }
        }
    }

    /// Alternatives of a translation whose address, or port, or both, come from maps. A packet whose key is in no map is not translated.
    pub(super) fn mapped(&mut self, kind: &str, body: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let mut ways = vec![(Cond::default(), body.clone())];
        for part in PARTS {
            let Some(map) = body.get(part).and_then(|value| value.get("map")) else { continue };
            let (key, data) = (&map["key"], &map["data"]);
            if let Some(spread) = Spread::of(key)? {
                if body.get("port").is_some_and(has_map) {
                    return Err(Why::NatTarget);
                }
                return self.balance(kind, body, &spread, data);
            }
            let elements = self.elements(&fields(key).map_err(|_| Why::NatTarget)?, data)?;
            if elements.len().saturating_mul(ways.len()) > MOST_PAIRS {
                return Err(Why::TooMany);
            }
            let mut next = Vec::new();
            for (of_key, to) in elements {
                for (cond, plain) in &ways {
                    // Of two maps by one key the elements of different keys fit no packet.
                    next.extend(cond.and(&of_key).map(|cond| (cond, with_part(plain, part, to))));
                }
            }
            if next.len() > MOST_WAYS {
                return Err(Why::TooMany);
            }
            ways = next;
        }
        let mut translations = Vec::new();
        for (cond, plain) in ways {
            let verdict = self.verdict(kind, &plain)?;
            translations.extend(cond.and(&implied(kind, &plain)).map(|cond| (cond, verdict)));
        }
        Ok(translations)
    }

    /// Alternatives of a helper: one, or those of a map.
    pub(super) fn helped(&mut self, body: &Value) -> Result<Vec<(Cond, Verdict)>, Why> {
        let elements = match body.get("map") {
            Some(map) => self.elements(&fields(&map["key"])?, &map["data"])?,
            None => vec![(Cond::default(), body)],
        };
        let helper = |name: &Value| (self.helper)(name.as_str().unwrap_or_default());
        elements.into_iter().map(|(cond, name)| Ok((cond, Verdict::Help(helper(name)?)))).collect()
    }

    /// Elements of a map by fields of the packet: condition that a packet has the key, and value.
    fn elements<'v>(&mut self, fields: &[Field], data: &'v Value) -> Result<Vec<(Cond, &'v Value)>, Why>
    where
        Self: 'v,
    {
        let mut elements = Vec::new();
        for item in self.way_items(data)? {
            let Some([key, to]) = item.as_array().map(Vec::as_slice) else {
                return Err(Why::Value(item.to_string()));
            };
            elements.extend(self.tuple(fields, key)?.map(|cond| (cond, to)));
        }
        Ok(elements)
    }
}

/// The translation with a value in place of the map of one of its parts.
fn with_part(body: &Value, part: &str, to: &Value) -> Value {
    if part == "addr" {
        return with_address(body, to);
    }
    let mut plain = body.clone();
    plain[part] = to.clone();
    plain
}

/// The translation with an address, or an address and port, in place of its map.
pub(super) fn with_address(body: &Value, to: &Value) -> Value {
    let mut plain = body.as_object().cloned().unwrap_or_default();
    match to.get("concat").and_then(Value::as_array).map(Vec::as_slice) {
        Some([to, port]) => {
            plain.insert("addr".to_owned(), to.clone());
            plain.insert("port".to_owned(), port.clone());
            plain.remove("type_flags");
        }
        _ => {
            plain.insert("addr".to_owned(), to.clone());
        }
    }
    Value::Object(plain)
}

fn port_range(body: &Value) -> Result<Option<PortRange>, Why> {
    let Some(port) = body.get("port") else { return Ok(None) };
    let number = |word: String| word.parse::<u16>().map_err(|_| Why::NatTarget);
    let (first, last) = ends(port).map_err(|_| Why::NatTarget)?;
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 || first > last {
        Err(Why::Value(port.to_string()))
    } else {
        Ok(Some(PortRange { first, last }))
    }
}

fn port_use(body: &Value) -> Result<PortUse, Why> {
    let given = |range| PortUse { ranges: vec![range], ..PortUse::default() };
    Ok(port_range(body)?.map_or_else(PortUse::default, given))
}
