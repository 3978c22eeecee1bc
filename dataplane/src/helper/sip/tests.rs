use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use wire::random::Random;

use super::*;

/// A translation of one sender: its own endpoint and ports stand for others, and another's endpoint for the receiver's.
#[derive(Clone)]
struct Plain {
    own: SocketAddr,
    shown: SocketAddr,
    addressed: SocketAddr,
    really: SocketAddr,
    /// Ports of media become greater by this.
    shift: u16,
    registered: Vec<(SocketAddr, u32)>,
    media: Vec<sdp::Media>,
}

impl Plain {
    fn new(ends: [&str; 4], shift: u16) -> Plain {
        let [own, shown, addressed, really] = ends.map(|end| end.parse().unwrap());
        Plain { own, shown, addressed, really, shift, registered: Vec::new(), media: Vec::new() }
    }

    fn none() -> Plain {
        let same = "192.0.2.1:5060";
        Plain::new([same; 4], 0)
    }
}

impl Ends for Plain {
    fn endpoint(&mut self, named: SocketAddr) -> SocketAddr {
        match named {
            named if named == self.own => self.shown,
            named if named == self.addressed => self.really,
            named => named,
        }
    }

    fn address(&mut self, named: IpAddr) -> IpAddr {
        match named {
            named if named == self.own.ip() => self.shown.ip(),
            named if named == self.addressed.ip() => self.really.ip(),
            named => named,
        }
    }

    fn registered(&mut self, named: SocketAddr, lifetime: u32) -> Result<SocketAddr, Fault> {
        self.registered.push((named, lifetime));
        Ok(self.endpoint(named))
    }

    fn media(&mut self, media: sdp::Media) -> Result<sdp::Media, Fault> {
        self.media.push(media);
        if media.address != self.own.ip() {
            return Ok(media);
        }
        let port = |port: u16| port + self.shift;
        Ok(sdp::Media { address: self.shown.ip(), rtp: port(media.rtp), rtcp: port(media.rtcp) })
    }
}

fn rewritten(text: &str, ends: &mut Plain) -> Result<String, Fault> {
    let message = Message::parse(text.as_bytes())?;
    let changes = message.translate(ends)?;
    let mut out = vec![0; text.len() + 4096];
    let len = message.write(&changes, &mut out).unwrap();
    Ok(String::from_utf8(out[..len].to_vec()).unwrap())
}

/// Lines with the ends of lines that SIP has.
fn lines(text: &str) -> String {
    text.trim_start().replace('\n', "\r\n")
}

/// From a phone behind a masquerade to its registrar.
fn outward() -> Plain {
    Plain::new(["192.168.1.10:5060", "203.0.113.2:61000", "198.51.100.7:5060", "198.51.100.7:5060"], 1000)
}

/// Back to it.
fn inward() -> Plain {
    Plain::new(["198.51.100.7:5060", "198.51.100.7:5060", "203.0.113.2:61000", "192.168.1.10:5060"], 0)
}

const INVITE: &str = r#"
INVITE sip:bob@198.51.100.7 SIP/2.0
Via: SIP/2.0/UDP 192.168.1.10:5060;branch=z9hG4bK776;rport, SIP/2.0/UDP 192.168.1.10:5060;branch=inner
Max-Forwards: 70
To: Bob <sip:bob@198.51.100.7>
From: "Alice, <sip:trap@192.168.1.10>" <sip:alice@192.168.1.10:5060>;tag=1928301774
Call-ID: a84b4c76e66710@192.168.1.10
CSeq: 314159 INVITE
Contact: <sip:alice@192.168.1.10;transport=udp>
Record-Route: <sip:192.168.1.10;lr>, <sip:proxy.example.com;lr>
Content-Type: application/sdp
Content-Length: 221

v=0
o=alice 2890844526 2890844526 IN IP4 192.168.1.10
s=-
c=IN IP4 192.168.1.10
t=0 0
m=audio 49170 RTP/AVP 0 8
a=rtpmap:0 PCMU/8000
m=video 51372 RTP/AVP 31
a=rtcp:51380 IN IP4 192.168.1.10
m=image 0 udptl t38
"#;

#[test]
fn a_call_from_inside() {
    let expected = INVITE
        .replace("Via: SIP/2.0/UDP 192.168.1.10:5060;", "Via: SIP/2.0/UDP 203.0.113.2:61000;")
        .replace("<sip:alice@192.168.1.10:5060>;tag", "<sip:alice@203.0.113.2:61000>;tag")
        .replace("<sip:alice@192.168.1.10;transport", "<sip:alice@203.0.113.2:61000;transport")
        .replace("<sip:192.168.1.10;lr>", "<sip:203.0.113.2:61000;lr>")
        .replace("IN IP4 192.168.1.10", "IN IP4 203.0.113.2")
        .replace("49170", "50170")
        .replace("51372", "52372")
        .replace("51380", "52380")
        .replace("Length: 221", "Length: 218");
    let body = lines(INVITE).split_once("\r\n\r\n").unwrap().1.len();
    assert_eq!(body, 221, "Content-Length of the example");
    let mut ends = outward();
    assert_eq!(rewritten(&lines(INVITE), &mut ends), Ok(lines(&expected)));
    let address = "192.168.1.10".parse().unwrap();
    let media = [(49_170, 49_171), (51_372, 51_380)].map(|(rtp, rtcp)| sdp::Media { address, rtp, rtcp });
    assert_eq!(ends.media, media);
}

#[test]
fn a_response_to_inside() {
    let response = lines(
        "
SIP/2.0 200 OK
v: SIP/2.0/UDP 203.0.113.2:61000;branch=z9hG4bK776;received=203.0.113.2;rport=61000
f: <sip:alice@203.0.113.2:61000>;tag=1928301774
t: <sip:bob@198.51.100.7>;tag=a6c85cf
i: a84b4c76e66710@192.168.1.10
CSeq: 1 REGISTER
m: <sip:alice@203.0.113.2:61000>;expires=120, <sip:alice@192.0.2.99>
Expires: 600
l: 0

",
    );
    let expected = response.replace("203.0.113.2:61000", "192.168.1.10:5060");
    let expected = expected.replace("received=203.0.113.2;rport=61000", "received=192.168.1.10;rport=5060");
    // Who has named no port has none named.
    let mut ends = inward();
    assert_eq!(rewritten(&response, &mut ends), Ok(expected));
    let registered = [("203.0.113.2:61000", 120), ("192.0.2.99:5060", 600)];
    assert_eq!(ends.registered, registered.map(|(end, lifetime)| (end.parse().unwrap(), lifetime)));
}

#[test]
fn a_call_to_inside() {
    let request = lines(
        "
INVITE sip:alice@203.0.113.2:61000;ob SIP/2.0
Via:\tSIP / 2.0 / UDP 198.51.100.7 ;branch=z9hG4bK777
Route: <sip:203.0.113.2:61000;lr>
From: sip:bob@198.51.100.7;tag=1
To: <sips:alice@203.0.113.2>
Call-ID: 1
CSeq: 7 INVITE
Contact:
 <sip:bob@198.51.100.7>
Content-Length: 0

",
    );
    let expected = request.replace("203.0.113.2:61000", "192.168.1.10:5060");
    assert_eq!(rewritten(&request, &mut inward()), Ok(expected));
}

#[test]
fn ipv6_has_brackets_where_a_port_may_follow() {
    let request = lines(
        "
OPTIONS sip:[2001:db8::7] SIP/2.0
Via: SIP/2.0/UDP [fd00::10]:5070
Contact: <sip:[fd00::10]:5070>
CSeq: 7 OPTIONS
Content-Type: application/sdp ; charset=utf-8
Content-Length: 73

v=0
o=- 0 0 IN IP6 fd00::10
c=IN IP6 fd00::10
m=audio 4000 RTP/AVP 0
",
    );
    assert_eq!(request.split_once("\r\n\r\n").unwrap().1.len(), 73);
    let mut ends = Plain::new(
        ["[fd00::10]:5070", "[2001:db8:1::1]:5060", "[2001:db8::7]:5060", "[2001:db8::7]:5060"],
        2,
    );
    let expected = request
        .replace("[fd00::10]:5070", "[2001:db8:1::1]:5060")
        .replace("fd00::10", "2001:db8:1::1")
        .replace("4000", "4002")
        .replace("Length: 73", "Length: 83");
    assert_eq!(rewritten(&request, &mut ends), Ok(expected));
}

#[test]
fn what_is_no_message_is_not_read() {
    let good = lines(INVITE);
    assert!(rewritten(&good, &mut Plain::none()).is_ok());
    for (from, to) in [
        (" SIP/2.0\r\nVia", " HTTP/1.1\r\nVia"),
        ("Length: 221", "Length: 222"),
        ("Length: 221", "Length: -1"),
        ("Length: 221", "Length: 99999999999999999999"),
        ("\r\n\r\n", "\r\nX\r\n"),
        ("Max-Forwards: 70", "Max-Forwards 70"),
        ("v=0", "w=0"),
        ("m=audio 49170", "m=audio port"),
        ("m=audio 49170", "m=audio 70000"),
    ] {
        assert!(good.contains(from), "{from}");
        assert_eq!(rewritten(&good.replace(from, to), &mut outward()), Err(Fault::Unread), "{to}");
    }
    let many = format!("m=audio 4000 RTP/AVP 0\r\n{}", "m=audio 4000 RTP/AVP 0\r\n".repeat(8));
    let good = good.replace("Content-Length: 221\r\n", "").replace("m=audio 49170 RTP/AVP 0 8\r\n", &many);
    assert_eq!(rewritten(&good, &mut outward()), Err(Fault::Unread));
    assert!(
        is_keepalive(b"\r\n\r\n")
            && is_keepalive(b"jaK")
            && is_keepalive(b"")
            && !is_keepalive(good.as_bytes())
    );
}

/// A message with the endpoints of `ends` in places that are translated, and others' in places that are not.
fn message(mut random: Random, ends: [SocketAddr; 2], shift: u16, body: Option<&str>) -> String {
    let mut pick = move |many: usize| random.next_u64() as usize % many;
    let [own, peer] = ends;
    let mut text = String::new();
    let is_request = pick(2) == 0;
    text += &if is_request {
        format!("MESSAGE sip:x@{peer} SIP/2.0\r\n")
    } else {
        "SIP/2.0 180 Ringing\r\n".to_owned()
    };
    let via = if is_request { own } else { peer };
    text += &match (is_request, pick(2)) {
        (false, 0) => format!("Via: SIP/2.0/UDP {via};rport={};received={}\r\n", via.port(), via.ip()),
        _ => format!("v :SIP/2.0/UDP {via};branch=1\r\n"),
    };
    for _ in 0..pick(9) {
        text += &match pick(8) {
            0 => format!("Contact: <sip:a@{own}>, \"q\\\"<,\" <sip:{peer}>;q=1\r\n"),
            1 => format!("m:sip:a@{own};expires=5\r\n"),
            2 => format!("Route: <sip:{peer};lr>,<sip:192.0.2.77>\r\n"),
            3 => format!("RECORD-ROUTE:\r\n <sip:{own};lr>\r\n"),
            4 => format!("f:\"a\" <sip:a@{own}>;tag=x\r\n"),
            5 => format!("To: <sip:b@{peer}>\r\n"),
            // Nobody translates this.
            6 => "X-Note: <sip:a@192.168.1.10:5060>\r\n".to_owned(),
            _ => "Warning: 399 x \"y\"\r\n".to_owned(),
        };
    }
    text += "CSeq: 3 MESSAGE\r\n";
    if let Some(kind) = body {
        let mut sdp = format!("v=0\r\no=- 1 1 IN IP4 {}\r\n", own.ip());
        let is_of_session = pick(2) == 0;
        if is_of_session {
            sdp += &format!("c=IN IP4 {}\r\n", own.ip());
        }
        for _ in 0..pick(4) {
            let port = 2000 + 2 * pick(1000) as u16;
            sdp += &format!("m=audio {} RTP/AVP 0\r\n", port + shift);
            if !is_of_session {
                sdp += &format!("c=IN IP4 {}\r\na=sendrecv\r\n", own.ip());
            }
            if pick(3) == 0 {
                sdp += &format!("a=rtcp:{}\r\n", port + 501 + shift);
            }
        }
        let length = if pick(2) == 0 { "Content-Length" } else { "l" };
        text += &format!("Content-Type: {kind}\r\n{length}: {}\r\n\r\n{sdp}", sdp.len());
    } else {
        text += "\r\n";
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    /// The receiver's message is the sender's with its addresses replaced and Content-Length right.
    #[test]
    fn a_message_is_the_message_with_its_addresses_replaced(seed in any::<u64>(), shift in 0..3000_u16, has_body in any::<bool>()) {
        let own: [&str; 2] = ["192.168.1.10:5060", "10.0.0.9:5062"];
        let place = (seed % 2) as usize;
        let mut ends = Plain::new([own[place], "203.0.113.200:61000", "198.51.100.7:5060", "198.51.100.70:5080"], shift);
        let random = Random::new(seed);
        let body = has_body.then_some("application/sdp");
        let said = message(random.clone(), [ends.own, ends.addressed], 0, body);
        let shown = message(random, [ends.shown, ends.really], shift, body);
        prop_assert_eq!(rewritten(&said, &mut ends), Ok(shown));
    }

    /// Whatever is cut off, doubled or replaced, nothing breaks; and without a translation nothing changes.
    #[test]
    fn any_message_is_borne(
        seed in any::<u64>(),
        cut in 0..2000_usize,
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        from in 0..3_usize,
    ) {
        let text = match from {
            0 => lines(INVITE),
            1 => message(Random::new(seed), [outward().own, outward().addressed], 0, Some("application/sdp")),
            _ => String::new(),
        };
        let mut bytes = text.into_bytes();
        for (at, byte) in changes {
            let at = usize::from(at) % (bytes.len() + 1);
            let special = b"\r\n<>\";:,@[]/ =0";
            let byte = if byte < 128 { special[usize::from(byte) % special.len()] } else { byte };
            if at == bytes.len() { bytes.push(byte) } else { bytes[at] = byte }
        }
        bytes.truncate(cut);
        let mut out = vec![0; bytes.len() + 4096];
        if let Ok(message) = Message::parse(&bytes) {
            if let Ok(changes) = message.translate(&mut outward()) {
                let len = message.write(&changes, &mut out).unwrap();
                let growth: isize = changes.iter().map(|of| of.text.len() as isize - of.place.len() as isize).sum();
                prop_assert_eq!(len as isize, bytes.len() as isize + growth);
                prop_assert!(message.write(&changes, &mut out[..len]).is_some());
                prop_assert!(len == 0 || message.write(&changes, &mut out[..len - 1]).is_none());
            }
            let message = Message::parse(&bytes).unwrap();
            if let Ok(changes) = message.translate(&mut Plain::none()) {
                prop_assert!(changes.is_empty(), "{:?}", changes);
            }
        }
    }

    #[test]
    fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = Message::parse(&bytes) {
            let _ = message.translate(&mut outward());
        }
        let _ = is_keepalive(&bytes);
    }
}
