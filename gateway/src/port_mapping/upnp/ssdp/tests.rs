use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::ethernet::Mac;

use super::*;
use crate::port_mapping::{End, Service};

fn devices() -> [Device; 2] {
    Device::of(&End {
        interface: "lan".to_owned(),
        link: 7,
        network: "192.168.1.1/24".parse().unwrap(),
        mac: Some(Mac([2, 0, 0x5e, 0x10, 0, 1])),
        service: Service::Upnp,
    })
}

/// As miniupnpc sends it.
const SEARCH: &str = "M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\n\
                      ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\nMAN: \"ssdp:discover\"\r\nMX: 2\r\n\r\n";

fn parsed(text: &str) -> Option<Search> {
    Search::parse(text.as_bytes())
}

#[test]
fn a_search_is_read() {
    let search = parsed(SEARCH).unwrap();
    assert_eq!(search.target, "urn:schemas-upnp-org:device:InternetGatewayDevice:1");
    assert_eq!(search.wait, Duration::from_secs(2));
    let wait = |mx| parsed(&SEARCH.replace("MX: 2", mx)).unwrap().wait.as_secs();
    assert_eq!(
        [wait("MX: 99999999999999999999"), wait("mx:  3 "), wait("X: 1"), wait("MX: 120")],
        [1, 3, 1, 5]
    );
    assert!(parsed(&SEARCH.replace("\"ssdp:discover\"", "ssdp:discover")).is_some());
    for wrong in [
        SEARCH.replace("M-SEARCH", "NOTIFY"),
        SEARCH.replace("* HTTP/1.1", "/ HTTP/1.1"),
        SEARCH.replace("1.1\r\nHOST", "1.0\r\nHOST"),
        SEARCH.replace("ST:", "NT:"),
        SEARCH.replace("ssdp:discover", "ssdp:other"),
        SEARCH.replace("\r\n\r\n", "\r\n"),
        SEARCH.replace("MX: 2", &"A: b\r\n".repeat(40)),
        String::new(),
    ] {
        assert_eq!(parsed(&wrong), None, "{wrong:?}");
    }
}

#[test]
fn a_search_finds_the_devices_of_its_version() {
    let [one, two] = devices();
    let targets = |device, target: &str| {
        let search = Search { target: target.to_owned(), wait: Duration::ZERO };
        found(device, &search).len()
    };
    for version in 1..=2 {
        for kind in [
            "device:InternetGatewayDevice",
            "device:WANDevice",
            "device:WANConnectionDevice",
            "service:WANIPConnection",
        ] {
            let target = format!("urn:schemas-upnp-org:{kind}:{version}");
            let expected = if version == 1 { [1, 0] } else { [0, 1] };
            assert_eq!([targets(&one, &target), targets(&two, &target)], expected, "{target}");
        }
    }
    assert_eq!([targets(&one, "upnp:rootdevice"), targets(&two, "ssdp:all")], [1, 10]);
    assert_eq!(targets(&one, "urn:schemas-upnp-org:service:WANCommonInterfaceConfig:1"), 1);
    assert_eq!(targets(&one, "ssdp:al"), 0);
    // Names are unique, and the same after a restart.
    let names: std::collections::BTreeSet<String> =
        [&one, &two].into_iter().flat_map(names).map(|name| name.unique).collect();
    assert_eq!(names.len(), 20);
    assert_eq!(devices(), [one, two]);
}

#[test]
fn messages_are_those_of_the_architecture() {
    let [one, _] = devices();
    let place = Place { device: &one, address: Ipv4Addr::new(192, 168, 1, 1), boot: 7 };
    let name = &names(&one)[1];
    let udn = one.udn(Part::Root);
    assert_eq!(udn.len(), "uuid:00000000-0000-8000-8000-000000000000".len());
    let kind = "urn:schemas-upnp-org:device:InternetGatewayDevice:1";
    let numbers = "BOOTID.UPNP.ORG: 7\r\nCONFIGID.UPNP.ORG: 1\r\n";
    let location = "LOCATION: http://192.168.1.1:1900/1/device.xml\r\n";
    assert_eq!(
        place.answer(name),
        format!(
            "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=1800\r\nEXT:\r\n{location}SERVER: {SOFTWARE}\r\nST: {kind}\r\n\
             USN: {udn}::{kind}\r\n{numbers}\r\n"
        )
    );
    let head = format!(
        "NOTIFY * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nNT: {kind}\r\nUSN: {udn}::{kind}\r\n{numbers}"
    );
    assert_eq!(place.gone(name), format!("{head}NTS: ssdp:byebye\r\n\r\n"));
    assert_eq!(
        place.alive(name),
        format!(
            "{head}CACHE-CONTROL: max-age=1800\r\n{location}SERVER: {SOFTWARE}\r\nNTS: ssdp:alive\r\n\r\n"
        )
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..200), at in 0..SEARCH.len()) {
        let _ = Search::parse(&bytes);
        let mut damaged = SEARCH.as_bytes().to_vec();
        damaged.splice(at..at, bytes);
        let _ = Search::parse(&damaged);
    }
}
