use std::net::SocketAddr;

use super::*;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 10));
const SHOWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));

/// Ports of media, by what RTP and RTCP become.
struct Ports(fn(u16) -> u16, fn(u16) -> u16);

impl Ends for Ports {
    fn endpoint(&mut self, named: SocketAddr) -> SocketAddr {
        named
    }

    fn address(&mut self, named: IpAddr) -> IpAddr {
        if named == OWN { SHOWN } else { named }
    }

    fn registered(&mut self, named: SocketAddr, _: u32) -> Result<SocketAddr, Fault> {
        Ok(named)
    }

    fn media(&mut self, media: Media) -> Result<Media, Fault> {
        let Media { address, rtp, rtcp } = media;
        match address {
            OWN => Ok(Media { address: SHOWN, rtp: (self.0)(rtp), rtcp: (self.1)(rtcp) }),
            _ if rtp == 9 => Err(Fault::Refused),
            _ => Ok(media),
        }
    }
}

fn translated(text: &str, ends: &mut Ports) -> Result<String, Fault> {
    let mut changes = Changes::new();
    translate(text.as_bytes(), 0..text.len(), ends, &mut changes)?;
    changes.sort_unstable_by_key(|change| change.place.start);
    let mut out = text.to_owned();
    for change in changes.iter().rev() {
        out.replace_range(change.place.clone(), &change.text);
    }
    Ok(out)
}

#[test]
fn rtcp_elsewhere_is_said() {
    let text = "v=0\nc=IN IP4 192.168.1.10\nm=audio 4000 RTP/AVP 0\na=x\nm=video 4002 RTP/SAVP 0\n";
    let apart = &mut Ports(|port| port + 1000, |port| port + 2000);
    assert_eq!(
        translated(text, apart).as_deref(),
        Ok(
            "v=0\nc=IN IP4 203.0.113.2\nm=audio 5000 RTP/AVP 0\na=x\na=rtcp:6001\r\nm=video 5002 RTP/SAVP 0\na=rtcp:6003\r\n"
        )
    );
    // Of a line without an end, too.
    let apart = &mut Ports(|port| port, |port| port + 2000);
    assert_eq!(
        translated("v=0\nc=IN IP4 192.168.1.10\nm=audio 4000 RTP/AVP 0", apart).as_deref(),
        Ok("v=0\nc=IN IP4 203.0.113.2\nm=audio 4000 RTP/AVP 0\r\na=rtcp:6001")
    );
}

#[test]
fn other_media_stay() {
    let text = "v=0\r\nc=IN IP4 192.168.1.10\r\nm=message 2855 TCP/MSRP *\r\nm=audio 4000/2 RTP/AVP 0\r\n\
                m=video 0 RTP/AVP 0\r\nm=audio 4000 RTP/AVP 0\r\nc=IN IP4 224.2.1.1/127\r\n";
    let next = &mut Ports(|port| port + 2, |port| port + 2);
    assert_eq!(translated(text, next).as_deref(), Ok(text.replace("192.168.1.10", "203.0.113.2").as_str()));
    // A call that is held (RFC 3264, section 8.4).
    let held = "v=0\r\nc=IN IP4 0.0.0.0\r\nm=audio 4000 RTP/AVP 0\r\n";
    assert_eq!(translated(held, next).as_deref(), Ok(held));
    assert_eq!(translated("v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 9 RTP/AVP 0\r\n", next), Err(Fault::Refused));
}
