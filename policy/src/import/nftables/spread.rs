//! Translations whose address a number chooses (`numgen`, `jhash`, `symhash`): connections spread over several servers.

use std::net::IpAddr;

use serde_json::Value;

use super::expression::{Field, fields};

use super::statement::Context;
use super::translation::with_address;
use crate::import::IpVersion;
use crate::import::chain::Verdict;
use crate::import::cond::Cond;
use crate::import::note::Why;
use crate::model::{Balance, NatAction, Server, ServerState, Sticky};

impl Context<'_> {
    /// Translation that spreads connections over the addresses of a map: the numbers of an address, by their count, are its weight.
    pub(super) fn balance(
        &mut self,
        kind: &str,
        body: &Value,
        spread: &Spread,
        data: &Value,
    ) -> Result<Vec<(Cond, Verdict)>, Why> {
        if kind != "dnat" {
            return Err(Why::NatTarget);
        }
        let mut servers: Vec<(IpAddr, Option<u16>, u64)> = Vec::new();
        let mut numbers = Vec::new();
        for item in self.way_items(data)? {
            let Some([key, to]) = item.as_array().map(Vec::as_slice) else {
                return Err(Why::Value(item.to_string()));
            };
            let (first, last) = number_range(key)?;
            numbers.push((first, last));
            let NatAction::Forward { target, target_port, ports, .. } =
                self.translation(kind, &with_address(body, to))?
            else {
                return Err(Why::NatTarget);
            };
            if !ports.is_empty() {
                return Err(Why::NatTarget);
            }
            let count = last - first + 1;
            match servers.iter_mut().find(|(address, port, _)| (*address, *port) == (target, target_port)) {
                Some((_, _, weight)) => *weight += count,
                None => servers.push((target, target_port, count)),
            }
        }
        // Each number leads to a server: else some connections would not be translated.
        numbers.sort_unstable();
        let mut next = spread.offset;
        for (first, last) in numbers {
            if first != next {
                return Err(Why::NatTarget);
            }
            next = last.saturating_add(1);
        }
        if next - spread.offset != spread.modulus || servers.len() > Balance::MOST_SERVERS {
            return Err(Why::NatTarget);
        }
        let divisor =
            servers.iter().fold(0, |divisor, (_, _, weight)| greatest_common_divisor(divisor, *weight));
        let version = servers.first().map(|(address, _, _)| address.is_ipv4()).ok_or(Why::NatTarget)?;
        let servers = servers.into_iter().map(|(address, port, weight)| {
            let weight = u8::try_from(weight / divisor.max(1)).map_err(|_| Why::NatTarget)?;
            let is_of_version = address.is_ipv4() == version;
            is_of_version
                .then_some(Server { address, port, weight, state: ServerState::Up })
                .ok_or(Why::NatTarget)
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let balance = Balance { servers, sticky: spread.sticky, ..Balance::default() };
        let version = if version { IpVersion::V4 } else { IpVersion::V6 };
        Ok(vec![(Cond::of(version), Verdict::Translate(NatAction::Balance(balance)))])
    }
}

/// Numbers that spread connections over several addresses.
pub(super) struct Spread {
    modulus: u64,
    offset: u64,
    sticky: Sticky,
}

impl Spread {
    /// Reads the key of a map; `None` where it is fields of the packet. A number counts for a whole connection, as nft translates its first
    /// packet alone.
    pub(super) fn of(key: &Value) -> Result<Option<Spread>, Why> {
        let Some((kind, body)) = key.as_object().and_then(|map| map.iter().next()) else { return Ok(None) };
        let number = |name| body.get(name).and_then(Value::as_u64);
        let sticky = match kind.as_str() {
            "numgen" | "symhash" => Sticky::Connection,
            "jhash" => {
                let expression = body.get("expr").unwrap_or(&Value::Null);
                let fields = fields(expression).map_err(|_| Why::NatTarget)?;
                let is_sport = |field: &Field| matches!(field, Field::Sport(_));
                match fields.as_slice() {
                    [Field::Source { .. }] => Sticky::Source,
                    fields if fields.iter().any(is_sport) => Sticky::Connection,
                    // By destinations, or by parts of addresses.
                    _ => return Err(Why::NatTarget),
                }
            }
            _ => return Ok(None),
        };
        let modulus = number("mod").filter(|modulus| *modulus > 0).ok_or(Why::NatTarget)?;
        Ok(Some(Spread { modulus, offset: number("offset").unwrap_or(0), sticky }))
    }
}

/// Numbers of an element's key: one, or a range.
fn number_range(key: &Value) -> Result<(u64, u64), Why> {
    let wrong = || Why::Value(key.to_string());
    let numbers = match key.get("range").and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, last]) => first.as_u64().zip(last.as_u64()),
        _ => key.as_u64().map(|number| (number, number)),
    };
    numbers.filter(|(first, last)| first <= last && *last < u64::from(u32::MAX)).ok_or_else(wrong)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
