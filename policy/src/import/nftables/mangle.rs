//! Statements that change packets: the MSS of TCP, and code points.

use serde_json::Value;
use wire::Dscp;

use crate::import::IpVersion;
use crate::import::note::Why;
use crate::import::word;
use crate::model::MssClamp;

/// Change that a mangle statement makes.
pub(super) enum Change {
    /// Clamping of the MSS.
    Clamp(MssClamp),
    /// Code point that packets of an IP version are given.
    Mark(Dscp, IpVersion),
}

/// Returns the change that a mangle statement makes, or the reason for which it has no counterpart.
pub(super) fn change(body: &Value) -> Result<Change, Why> {
    let clamp = clamping(body).map(Change::Clamp);
    clamp.or_else(|| marking(body)).ok_or_else(|| without_counterpart(body))
}

/// Clamping of the MSS, to the MTU of the route or to a number of bytes.
fn clamping(body: &Value) -> Option<MssClamp> {
    let option = body.get("key")?.get("tcp option")?;
    if option.get("name")? != "maxseg" {
        return None;
    }
    let value = body.get("value")?;
    match value.as_u64() {
        Some(bytes) => word::mss(bytes),
        None => (value.get("rt")?.get("key")? == "mtu").then_some(MssClamp::Mtu),
    }
}

/// A code point that is the same for all packets.
fn marking(body: &Value) -> Option<Change> {
    let field = body.get("key")?.get("payload")?;
    let version = match (field.get("protocol")?.as_str()?, field.get("field")?.as_str()?) {
        ("ip", "dscp") => IpVersion::V4,
        ("ip6", "dscp") => IpVersion::V6,
        _ => return None,
    };
    let value = body.get("value")?;
    let code_point = match value.as_u64() {
        Some(number) => u8::try_from(number).ok(),
        None => word::dscp(value.as_str()?),
    };
    Some(Change::Mark(code_point.and_then(Dscp::new)?, version))
}

fn without_counterpart(body: &Value) -> Why {
    let word = |kind: &str, name: &str| body.get("key")?.get(kind)?.get(name)?.as_str();
    match (word("meta", "key").or(word("ct", "key")), word("payload", "protocol"), word("payload", "field")) {
        (Some("mark"), _, _) => Why::Mark,
        (Some(key), _, _) => Why::Feature(format!("{key} set")),
        (None, Some(protocol), Some(field)) => Why::Feature(format!("{protocol} {field} set")),
        _ => {
            let option = word("tcp option", "name").map(|name| format!("tcp option {name} set"));
            Why::Feature(option.unwrap_or_else(|| "mangle".to_owned()))
        }
    }
}
