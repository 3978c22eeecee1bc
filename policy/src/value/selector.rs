//! Selectors of tunnels.

use config::wrong_type;
use toml::de::DeValue;

use super::address::PREFIX;
use super::packet::{PORTS, PROTOCOL};
use super::{Complaint, Form, Read, Value};
use crate::diagnostic::Code;
use crate::model::SelectorEnd;

/// Side of a selector: a prefix, or a table of a prefix with protocol and port.
pub(crate) const SELECTOR: Value<SelectorEnd> = Value { read: selector, print: selector_text };

const KEYS: [&str; 3] = ["net", "protocol", "port"];

const EXAMPLE: &str =
    "for example: \"10.1.0.0/16\", or { net = \"10.1.0.0/16\", protocol = \"tcp\", port = 443 }";

fn selector(value: &DeValue<'_>) -> Read<SelectorEnd> {
    let DeValue::Table(table) = value else {
        let DeValue::String(_) = value else {
            return Err(wrong_type("a prefix, or a table with `net`", value).hint(EXAMPLE));
        };
        return PREFIX.read(value).map(SelectorEnd::of);
    };
    let (mut net, mut protocol, mut ports) = (None, None, None);
    for (name, value) in table {
        let value = value.get_ref();
        match name.get_ref().as_ref() {
            "net" => net = Some(PREFIX.read(value)?),
            "protocol" => protocol = Some(PROTOCOL.read(value)?),
            "port" => ports = Some(PORTS.read(value)?),
            other => {
                let message = format!("a selector has no key `{other}`");
                let hint =
                    config::word::did_you_mean(other, KEYS, || format!("its keys are: {}", KEYS.join(", ")));
                return Err(Complaint::new(config::Code::UnknownKey, message).hint(hint));
            }
        }
    }
    let missing = || Complaint::new(config::Code::MissingKey, "a selector without `net`").hint(EXAMPLE);
    let net = net.ok_or_else(missing)?;
    if ports.is_some() && !protocol.is_some_and(|protocol| protocol.has_ports()) {
        let complaint =
            Complaint::new(Code::BadSelector, "a selector with `port`, and no protocol that has ports");
        return Err(complaint.hint("add protocol = \"tcp\" or \"udp\""));
    }
    Ok(SelectorEnd { net, protocol, ports })
}

fn selector_text(end: &SelectorEnd) -> String {
    let net = PREFIX.print(&end.net);
    if end.protocol.is_none() {
        return net;
    }
    let protocol = end.protocol.map(|protocol| format!("protocol = {}", PROTOCOL.print(&protocol)));
    let ports = end.ports.map(|ports| format!("port = {}", PORTS.print(&ports)));
    let parts = [Some(format!("net = {net}")), protocol, ports];
    format!("{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
