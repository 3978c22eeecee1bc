use proptest::prelude::*;

use super::*;
use crate::port_mapping::upnp::service::{ALL, LINK, WAN_IP};
use crate::port_mapping::upnp::xml;

const SERVICE: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";

/// As miniupnpc sends it.
fn request(action: &str, arguments: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\r\n<s:Envelope xmlns:s=\"{ENVELOPE}\" s:encodingStyle=\"{ENCODING}\"><s:Body>\
         <u:{action} xmlns:u=\"{SERVICE}\">{arguments}</u:{action}></s:Body></s:Envelope>\r\n"
    )
}

fn parse(text: &str, action: &str) -> Result<Call, Malformed> {
    Call::parse(text, &format!("\"{SERVICE}#{action}\""), &WAN_IP, Version::Two)
}

#[test]
fn a_request_is_read_whatever_its_names_for_namespaces() {
    let named = "<NewExternalPort> 8080 </NewExternalPort><NewProtocol>TCP</NewProtocol><NewRemoteHost/>";
    let call = parse(&request("DeletePortMapping", named), "DeletePortMapping").unwrap();
    assert_eq!((call.service.as_str(), call.version), (SERVICE, Version::One));
    assert_eq!(call.number::<u16>("NewExternalPort"), Ok(8080));
    assert_eq!(
        [call.text("NewProtocol"), call.text("NewRemoteHost"), call.text("NewOther")],
        ["TCP", "", ""]
    );
    let action = WAN_IP.action("DeletePortMapping", Version::One).unwrap();
    assert_eq!(call.check(action), Ok(()));
    for (own, other) in [("s", "SOAP-ENV"), ("u", "m")] {
        let renamed = request("DeletePortMapping", named)
            .replace(&format!("xmlns:{own}="), &format!("xmlns:{other}="))
            .replace(&format!("<{own}:"), &format!("<{other}:"))
            .replace(&format!("</{own}:"), &format!("</{other}:"))
            .replace(&format!(" {own}:encoding"), &format!(" {other}:encoding"));
        assert_eq!(parse(&renamed, "DeletePortMapping").as_ref(), Ok(&call), "{renamed}");
    }
    // Without quotation marks, and with comments and text in pieces.
    let pieces = request(
        "DeletePortMapping",
        &named.replace("8080", "80<!-- -->80").replace("TCP", "<![CDATA[TCP]]>"),
    );
    let read = Call::parse(&pieces, &format!("{SERVICE}#DeletePortMapping"), &WAN_IP, Version::One);
    assert_eq!(read, Ok(call));
}

#[test]
fn what_is_no_request_of_the_service_is_refused() {
    let whole = request("GetExternalIPAddress", "");
    let refusal = |text: &str| parse(text, "GetExternalIPAddress").unwrap_err();
    let entities = "<!DOCTYPE x [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>";
    let many = request("GetExternalIPAddress", &"<a/>".repeat(300));
    let deep = "<a>".repeat(5000);
    for (text, expected) in [
        ("", Malformed::Xml),
        ("no XML", Malformed::Xml),
        ("<a/>", Malformed::Envelope),
        (&whole[..whole.len() - 10], Malformed::Xml),
        (&whole.replace("?>", &format!("?>{entities}")), Malformed::Xml),
        (&request("GetExternalIPAddress", "<a>&b;</a>"), Malformed::Xml),
        (&many, Malformed::Xml),
        (&deep, Malformed::Xml),
        (&whole.replace(ENVELOPE, "http://www.w3.org/2003/05/soap-envelope"), Malformed::Envelope),
        (&whole.replace("s:Body", "s:Header"), Malformed::Envelope),
        (&whole.replace("<s:Body>", "<s:Body><x/>"), Malformed::Envelope),
        (&whole.replace("<s:Body>", "<s:Body/><s:Body>"), Malformed::Envelope),
        (&whole.replace("u:Get", "Get"), Malformed::Envelope),
        (&whole.replace(SERVICE, "urn:schemas-upnp-org:service:WANIPConnection:2"), Malformed::Header),
        (&whole.replace("GetExternal", "GetInternal"), Malformed::Header),
    ] {
        assert_eq!(refusal(text), expected, "{}", &text[..text.len().min(300)]);
    }
    // Other services, and later versions than the device's.
    for (header, service, device) in [
        (SERVICE, &LINK, Version::One),
        ("urn:schemas-upnp-org:service:WANIPConnection:2", &WAN_IP, Version::One),
        ("urn:schemas-upnp-org:service:WANIPConnection:3", &WAN_IP, Version::Two),
    ] {
        let text = whole.replace(SERVICE, header);
        let read = Call::parse(&text, &format!("{header}#GetExternalIPAddress"), service, device);
        assert_eq!(read, Err(Malformed::Header));
    }
}

#[test]
fn arguments_are_held_to_the_action() {
    let action = WAN_IP.action("DeletePortMapping", Version::One).unwrap();
    let check = |arguments: &str| {
        parse(&request("DeletePortMapping", arguments), "DeletePortMapping").unwrap().check(action)
    };
    let named = "<NewRemoteHost/><NewExternalPort>1</NewExternalPort><NewProtocol>TCP</NewProtocol>";
    assert_eq!(check(named), Ok(()));
    assert_eq!(check(&named.replace("<NewRemoteHost/>", "")), Err(Fault::Arguments));
    assert_eq!(
        check(&named.replace("<NewRemoteHost/>", "<NewRemoteHost/><NewRemoteHost/>")),
        Err(Fault::Arguments)
    );
    assert_eq!(check(&format!("{named}<Other/>")), Ok(()));
    let number = |text: &str| {
        let call = request("X", &format!("<N>{text}</N>"));
        parse(&call, "X").unwrap().number::<u16>("N")
    };
    assert_eq!([number("0"), number("065535")], [Ok(0), Ok(65535)]);
    for wrong in ["", "-1", "+1", "1.0", "0x10", "1 2", "many", "\u{0661}"] {
        assert_eq!(number(wrong), Err(Fault::Arguments), "{wrong}");
    }
    for large in ["65536", "99999999999999999999999"] {
        assert_eq!(number(large), Err(Fault::Range), "{large}");
    }
    assert!(WAN_IP.action("AddAnyPortMapping", Version::One).is_none());
    assert!(WAN_IP.action("AddAnyPortMapping", Version::Two).is_some());
}

#[test]
fn what_is_written_can_be_read() {
    let written = xml::fault(Fault::Conflict);
    let document = Document::parse(&written).unwrap();
    let own = ("urn:schemas-upnp-org:control-1-0", "errorCode");
    let found = document.descendants().find(|node| node.has_tag_name(own)).and_then(|node| node.text());
    assert_eq!(found, Some("718"));
    for service in ALL {
        for version in [Version::One, Version::Two] {
            let described = xml::service(service, version);
            let document = Document::parse(&described).unwrap();
            let actions = document.descendants().filter(|node| node.tag_name().name() == "action").count();
            assert_eq!(
                actions,
                service.actions.iter().filter(|action| action.since <= service.version(version)).count()
            );
        }
    }
    let list = xml::listing(&[xml::element("p:NewDescription", "]]> & <more>")]);
    let action = WAN_IP.action("GetListOfPortMappings", Version::Two).unwrap();
    let response = xml::response(SERVICE, action, std::slice::from_ref(&list));
    let document = Document::parse(&response).unwrap();
    let read =
        document.descendants().find(|node| node.has_tag_name("NewPortListing")).and_then(|node| node.text());
    assert_eq!(read, Some(list.as_str()));
    let list = Document::parse(&list).unwrap();
    assert_eq!(
        list.root_element()
            .first_element_child()
            .and_then(|entry| entry.first_element_child())
            .and_then(|of| of.text()),
        Some("]]> & <more>")
    );
    let action = WAN_IP.action("AddAnyPortMapping", Version::Two).unwrap();
    let response = xml::response(SERVICE, action, &["8080".to_owned()]);
    let document = Document::parse(&response).unwrap();
    assert!(document.descendants().any(|node| node.has_tag_name((SERVICE, "AddAnyPortMappingResponse"))));
    assert_eq!(
        document.descendants().find(|node| node.has_tag_name("NewReservedPort")).and_then(|node| node.text()),
        Some("8080")
    );
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text: String, at in 0..200_usize) {
        let _ = parse(&text, "X");
        let mut damaged = request("GetExternalIPAddress", "");
        let at = (0..=at).rev().find(|at| damaged.is_char_boundary(*at)).unwrap_or(0);
        damaged.insert_str(at, &text);
        let _ = parse(&damaged, "GetExternalIPAddress");
    }

    #[test]
    fn any_text_comes_back_from_its_element(text: String) {
        let written = format!("<list>{}</list>", xml::element("a", &text));
        let document = Document::parse(&written).unwrap();
        let read = document.root_element().first_element_child().unwrap().text().unwrap_or_default().to_owned();
        // Line ends are those of XML, and other control characters have no place in it.
        let expected: String = text.replace("\r\n", "\n").replace('\r', "\n");
        let is_kept = |char: &char| matches!(char, '\t' | '\n' | ' '..) && !matches!(char, '\u{fffe}' | '\u{ffff}');
        let expected: String = expected.chars().filter(is_kept).collect();
        prop_assert_eq!(read, expected);
    }
}
