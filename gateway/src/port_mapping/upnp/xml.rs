//! Documents written: descriptions of devices and services (UPnP Device Architecture 1.1, section 2), responses and faults of SOAP
//! (section 3.1), and lists of mappings.

use std::net::Ipv4Addr;

use super::device::{Device, Part};
use super::service::{Action, Argument, LISTING, Service, Version, kind};
use super::soap::{ENCODING, ENVELOPE, Fault};

/// Beginning of every document.
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Returns a text as it stands in an element: without markup, and without what XML has no place for.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(char),
            '\u{fffe}' | '\u{ffff}' => {}
            char if char < ' ' => {}
            char => out.push(char),
        }
    }
    out
}

/// Returns an element with a text.
pub(super) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// Returns the description of a device, with those within it.
pub(super) fn device(device: &Device, address: Ipv4Addr) -> String {
    let version = device.version as u8;
    let root = part(device, Part::Root, address);
    format!(
        "{HEAD}<root xmlns=\"urn:schemas-upnp-org:device-1-0\"><specVersion><major>1</major><minor>{}</minor></specVersion>{root}</root>",
        version - 1
    )
}

fn part(device: &Device, of: Part, address: Ipv4Addr) -> String {
    let service = of.service();
    let place = device.path();
    let within =
        of.within().map(|inner| format!("<deviceList>{}</deviceList>", part(device, inner, address)));
    [
        "<device>".to_owned(),
        element("deviceType", &kind("device", of.name(), device.version)),
        element("friendlyName", &format!("Internet gateway {address}")),
        element("manufacturer", "wirerate"),
        element("modelDescription", "Internet gateway"),
        element("modelName", "wirerate"),
        element("modelNumber", env!("CARGO_PKG_VERSION")),
        element("UDN", &device.udn(of)),
        "<serviceList><service>".to_owned(),
        element("serviceType", &service.kind(device.version)),
        element("serviceId", service.id),
        element("SCPDURL", &format!("{place}/{}.xml", service.path)),
        element("controlURL", &format!("{place}/{}", service.path)),
        // No variable is evented.
        "<eventSubURL></eventSubURL></service></serviceList>".to_owned(),
        within.unwrap_or_default(),
        "</device>".to_owned(),
    ]
    .concat()
}

/// Returns the description of a service, as a version of the device has it.
pub(super) fn service(service: &Service, device: Version) -> String {
    let version = service.version(device);
    let actions = service.actions.iter().filter(|action| action.since <= version);
    let actions: String = actions.map(action).collect();
    let variables = service.variables.iter().filter(|variable| variable.since <= version);
    let variables: String = variables
        .map(|variable| {
            let allowed: String = variable.allowed.iter().map(|word| element("allowedValue", word)).collect();
            let list = match allowed.is_empty() {
                true => String::new(),
                false => format!("<allowedValueList>{allowed}</allowedValueList>"),
            };
            let (name, kind) = (element("name", variable.name), element("dataType", variable.kind));
            format!("<stateVariable sendEvents=\"no\">{name}{kind}{list}</stateVariable>")
        })
        .collect();
    format!(
        "{HEAD}<scpd xmlns=\"urn:schemas-upnp-org:service-1-0\"><specVersion><major>1</major><minor>{}</minor></specVersion>\
         <actionList>{actions}</actionList><serviceStateTable>{variables}</serviceStateTable></scpd>",
        device as u8 - 1
    )
}

fn action(action: &Action) -> String {
    let list = |arguments: &[Argument], direction: &str| -> String {
        let one = |argument: &Argument| {
            let name = element("name", argument.name);
            let of = element("relatedStateVariable", argument.variable);
            format!("<argument>{name}<direction>{direction}</direction>{of}</argument>")
        };
        arguments.iter().map(one).collect()
    };
    let arguments = list(action.takes, "in") + &list(action.gives, "out");
    let arguments = match arguments.is_empty() {
        true => arguments,
        false => format!("<argumentList>{arguments}</argumentList>"),
    };
    format!("<action>{}{arguments}</action>", element("name", action.name))
}

/// Returns the response of an action, with the values of its arguments in order.
pub(super) fn response(service: &str, action: &Action, values: &[String]) -> String {
    let values = action.gives.iter().zip(values);
    let values: String = values.map(|(argument, value)| given(argument, value)).collect();
    let name = action.name;
    envelope(&format!("<u:{name}Response xmlns:u=\"{service}\">{values}</u:{name}Response>"))
}

fn given(argument: &Argument, value: &str) -> String {
    let name = argument.name;
    match argument.variable {
        // A document, which miniupnpc reads as it stands; in its texts every end of a section is escaped.
        LISTING => format!("<{name}><![CDATA[{value}]]></{name}>"),
        _ => element(name, value),
    }
}

/// Returns the fault of an action (section 3.1.3).
pub(super) fn fault(fault: Fault) -> String {
    let code = element("errorCode", &fault.code().to_string());
    let text = element("errorDescription", &fault.to_string());
    envelope(&format!(
        "<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>\
         <UPnPError xmlns=\"urn:schemas-upnp-org:control-1-0\">{code}{text}</UPnPError></detail></s:Fault>"
    ))
}

fn envelope(body: &str) -> String {
    format!(
        "{HEAD}<s:Envelope xmlns:s=\"{ENVELOPE}\" s:encodingStyle=\"{ENCODING}\"><s:Body>{body}</s:Body></s:Envelope>"
    )
}

/// Returns a list of mappings (WANIPConnection:2, A_ARG_TYPE_PortListing); each is given by the elements of its entry.
pub(super) fn listing(entries: &[String]) -> String {
    let entries: String =
        entries.iter().map(|entry| format!("<p:PortMappingEntry>{entry}</p:PortMappingEntry>")).collect();
    format!(
        "<p:PortMappingList xmlns:p=\"urn:schemas-upnp-org:gw:WANIPConnection\">{entries}</p:PortMappingList>"
    )
}
