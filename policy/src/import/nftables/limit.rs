//! Limits: of a rule, and for each source.

use serde_json::Value;

use super::expression::{Field, bare, field};
use crate::import::IpVersion;
use crate::import::chain::{Bound, Limit};
use crate::import::note::Why;
use crate::import::word;
use crate::model::{ConnectionLimit, Rate, Scope};

/// Parses a bound on the rate of packets.
pub(super) fn rate(body: &Value) -> Result<Limit, Why> {
    let bad = || Why::Value(body.to_string());
    let number = |name: &str| body.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    if body.get("rate_unit").is_some_and(|unit| *unit != "packets") {
        return Err(bad());
    }
    let count = number("rate").filter(|&count| count > 0).ok_or_else(bad)?;
    let per = word::unit(body.get("per").and_then(Value::as_str).unwrap_or("second")).ok_or_else(bad)?;
    let burst = number("burst").filter(|&burst| burst > 0).unwrap_or(5);
    let over = body.get("inv").and_then(Value::as_bool).unwrap_or(false);
    Ok(Limit { bound: Bound::Rate(Rate { count, per, burst, scope: Scope::Rule }), over })
}

/// Parses a bound on connections.
pub(super) fn connections(body: &Value) -> Result<Limit, Why> {
    let most = body.get("val").and_then(Value::as_u64).and_then(|most| u32::try_from(most).ok());
    let most = most.filter(|&most| most > 0).ok_or_else(|| Why::Value(body.to_string()))?;
    let over = body.get("inv").and_then(Value::as_bool).unwrap_or(false);
    Ok(Limit { bound: Bound::Connections(ConnectionLimit { most, scope: Scope::Rule }), over })
}

/// Parses a limit for each source, of packets of one IP version: a meter, or a set to which packets add their source.
pub(super) fn per_source(kind: &str, body: &Value) -> Result<(Limit, IpVersion), Why> {
    let unknown = || Why::Feature(kind.to_owned());
    let key = body.get(if kind == "meter" { "key" } else { "elem" }).ok_or_else(unknown)?;
    let key = bare(key);
    let statement = match body.get("stmt") {
        Some(Value::Array(list)) if list.len() == 1 => &list[0],
        Some(one @ Value::Object(_)) => one,
        _ => return Err(unknown()),
    };
    let version = match field(key) {
        Ok(Field::Source { v6: false }) => IpVersion::V4,
        Ok(Field::Source { v6: true }) => IpVersion::V6,
        _ => return Err(unknown()),
    };
    let mut limit = match statement.as_object().and_then(|map| map.iter().next()) {
        Some((name, body)) if name == "limit" => rate(body)?,
        Some((name, body)) if name == "ct count" => connections(body)?,
        _ => return Err(unknown()),
    };
    match &mut limit.bound {
        Bound::Rate(rate) => rate.scope = Scope::Source,
        Bound::Connections(most) => most.scope = Scope::Source,
    }
    Ok((limit, version))
}
