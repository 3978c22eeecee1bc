use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Builder;
use wire::ethernet::Mac;

use super::*;
use crate::port_mapping::upnp::BOUNDS;
use crate::port_mapping::{End, Service as Protocols};
use crate::server::connection::converse;

/// The status and the text of an answer; the gateway behind has ended.
fn exchange(request: &[u8]) -> (u16, String) {
    let end = End {
        interface: "lan".to_owned(),
        link: 7,
        network: "192.168.1.1/24".parse().unwrap(),
        mac: Some(Mac([2, 0, 0, 0, 0, 1])),
        service: Protocols::Upnp,
    };
    let (events, _) = channel();
    let site = Arc::new(Site {
        address: end.network.addr(),
        devices: Device::of(&end),
        events,
        patience: Duration::from_millis(200),
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut host, own) = duplex(1 << 16);
        let routes = router(site, Ipv4Addr::new(192, 168, 1, 10));
        let served = tokio::spawn(converse(own, routes, BOUNDS, Arc::new(AtomicBool::new(false))));
        // What is left of a request that is refused nobody reads.
        let _ = host.write_all(request).await;
        let mut answer = Vec::new();
        let _ = host.read_to_end(&mut answer).await;
        served.abort();
        let text = String::from_utf8(answer).unwrap();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_default(), text)
    })
}

fn get(path: &str, headers: &str) -> u16 {
    exchange(format!("GET {path} HTTP/1.1\r\nHost: 192.168.1.1:1900\r\n{headers}\r\n").as_bytes()).0
}

const SERVICE: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";

fn post(headers: &str, body: &str) -> (u16, String) {
    let len = body.len();
    exchange(
        format!(
            "POST /1/ip HTTP/1.1\r\nHost: 192.168.1.1:1900\r\nContent-Length: {len}\r\n{headers}\r\n{body}"
        )
        .as_bytes(),
    )
}

fn call(action: &str) -> String {
    format!(
        "<e:Envelope xmlns:e=\"http://schemas.xmlsoap.org/soap/envelope/\"><e:Body><u:{action} xmlns:u=\"{SERVICE}\"/></e:Body></e:Envelope>"
    )
}

fn headers(action: &str) -> String {
    format!("Content-Type: text/xml; charset=\"utf-8\"\r\nSOAPAction: \"{SERVICE}#{action}\"\r\n")
}

#[test]
fn documents_are_read_by_the_address_alone() {
    for path in ["/1/device.xml", "/2/device.xml", "/1/ip.xml", "/2/link.xml", "/1/forwarding.xml"] {
        assert_eq!(get(path, ""), 200, "{path}");
    }
    for path in ["/", "/1", "/1/", "/3/device.xml", "/1/other.xml", "/12/device.xml", "/1/device.xml/"] {
        assert_eq!(get(path, ""), 404, "{path}");
    }
    assert_eq!(get("/1/ip", ""), 405);
    for wrong in ["Origin: http://192.168.1.1\r\n", "Origin: null\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        assert_eq!(get("/1/device.xml", wrong), 403, "{wrong}");
    }
    for (host, status) in [
        ("Host: 192.168.1.1\r\n", 200),
        ("Host: 192.168.1.1:80\r\n", 403),
        ("Host: 192.168.1.2:1900\r\n", 403),
        ("Host: gateway:1900\r\n", 403),
        ("Host: localhost\r\n", 403),
        ("", 400),
        ("Host: 192.168.1.1\r\nHost: 192.168.1.1\r\n", 400),
    ] {
        let (found, _) = exchange(format!("GET /1/device.xml HTTP/1.1\r\n{host}\r\n").as_bytes());
        assert_eq!(found, status, "{host}");
    }
    for verb in ["SUBSCRIBE", "UNSUBSCRIBE"] {
        let request = format!(
            "{verb} /1/ip HTTP/1.1\r\nHost: 192.168.1.1:1900\r\nCALLBACK: <http://198.51.100.7/>\r\nNT: upnp:event\r\n\r\n"
        );
        assert_eq!(exchange(request.as_bytes()).0, 501);
    }
}

#[test]
fn requests_are_those_of_programs_and_of_bounded_size_and_time() {
    let action = "GetNATRSIPStatus";
    assert_eq!(post(&headers(action), &call(action)).0, 503, "the gateway has ended");
    assert_eq!(post(&headers(action).replace("text/xml", "text/plain"), &call(action)).0, 415);
    assert_eq!(post(&headers(action).replace("Content-Type", "X-Type"), &call(action)).0, 415);
    assert_eq!(post(&headers(action).replace("SOAPAction", "Other"), &call(action)).0, 400);
    assert_eq!(post(&headers(action), "").0, 400);
    let (status, text) = post(&headers("Nonsense"), &call("Nonsense"));
    assert!(status == 500 && text.contains("<errorCode>401</errorCode>"), "{text}");
    let (status, text) = post(&headers("DeletePortMapping"), &call("DeletePortMapping"));
    assert!(status == 500 && text.contains("<errorCode>402</errorCode>"), "{text}");
    assert_eq!(post(&headers(action), &" ".repeat(LONGEST_BODY + 1)).0, 413);
    // Announced, and never sent: the time of a request is over.
    let (status, _) = exchange(
        format!(
            "POST /1/ip HTTP/1.1\r\nHost: 192.168.1.1:1900\r\nContent-Length: 100\r\n{}\r\n<",
            headers(action)
        )
        .as_bytes(),
    );
    assert_eq!(status, 408);
}
