use super::*;
use crate::build;
use crate::header::Fragment;

const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

type Extensions<'a> = &'a [(Protocol, &'a [u8])];

fn v6(extensions: Extensions<'_>) -> build::Packet<'_> {
    let packet = build::ipv6(V6[0].parse().unwrap(), V6[1].parse().unwrap()).udp(7, 8).payload(b"payload");
    extensions.iter().fold(packet, |packet, (protocol, body)| packet.extension(*protocol, body))
}

const OPTIONS: &[u8] = &[1, 4, 0, 0, 0, 0];
/// Type 4 with no segments left.
const ROUTING: &[u8] = &[4, 0, 0, 0, 0, 0];

/// RFC 4303, section 3.1.1: `orig IP hdr | hop-by-hop, dest*, routing, fragment | ESP | dest opt*`.
#[test]
fn esp_stands_behind_what_nodes_on_the_way_read() {
    let (hop, routing, options) = (Protocol::HOP_BY_HOP, Protocol::ROUTING, Protocol::DESTINATION_OPTIONS);
    let long: &[u8] = &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let cases: [(Extensions<'_>, u16, u16); 7] = [
        (&[], 40, 6),
        (&[(hop, OPTIONS)], 48, 40),
        (&[(options, OPTIONS)], 40, 6),
        (&[(hop, long), (options, OPTIONS)], 56, 40),
        (&[(hop, OPTIONS), (options, OPTIONS), (routing, ROUTING), (options, long)], 64, 56),
        (&[(options, long), (routing, ROUTING)], 64, 56),
        (&[(routing, ROUTING)], 48, 40),
    ];
    for (extensions, len, next_at) in cases {
        let packet = v6(extensions).to_vec();
        assert_eq!(Front::of(&packet), Ok(Front { len, next_at }), "{extensions:?}");
        assert_eq!(Front::ending_at(&packet, len), Some(Front { len, next_at }), "{extensions:?}");
        assert_eq!(Front::ending_at(&packet, len + 4), None);
    }
    // An atomic fragment is a whole packet (RFC 6946).
    let atomic = Fragment { id: 9, offset: 0, more: false };
    let packet = v6(&[(hop, OPTIONS)]).fragment(atomic).to_vec();
    assert_eq!(Front::of(&packet), Ok(Front { len: 56, next_at: 48 }));
    for fragment in [Fragment { more: true, ..atomic }, Fragment { offset: 8, ..atomic }] {
        assert_eq!(Front::of(&v6(&[(hop, OPTIONS)]).fragment(fragment).to_vec()), Err(Unfit::Fragment));
        let packet = build::ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into()).fragment(fragment);
        assert_eq!(
            Front::of(&packet.protocol(Protocol::UDP).payload(&[0; 16]).to_vec()),
            Err(Unfit::Fragment)
        );
    }
    for cut in 0..40 {
        assert_eq!(Front::of(&packet[..cut]), Err(Unfit::Malformed));
    }
}

#[test]
fn headers_lead_to_what_is_behind_them() {
    let options = [7, 7, 4, 0, 0, 0, 0, 0];
    let v4 =
        build::ipv4([192, 0, 2, 1].into(), [192, 0, 2, 2].into()).id(9).dont_fragment().ip_options(&options);
    let [was, expected] = [(Protocol(253), &[1; 30][..]), (Protocol::ESP, &[1; 54][..])]
        .map(|(protocol, payload)| v4.clone().protocol(protocol).payload(payload).to_vec());
    let mut packet = [&was[..], &[1; 24]].concat();
    let front = Front::of(&was).unwrap();
    assert_eq!(front.len, 28);
    assert_eq!(Front::ending_at(&was, 28), Some(front));
    assert_eq!(Front::ending_at(&was, 20), None);
    front.lead_to(&mut packet, Protocol::ESP);
    assert_eq!(packet, expected);

    let v6 =
        build::ipv6(V6[0].parse().unwrap(), V6[1].parse().unwrap()).extension(Protocol::HOP_BY_HOP, OPTIONS);
    let [mut packet, expected] = [(Protocol(253), &[1; 54][..]), (Protocol::ESP, &[1; 54][..])]
        .map(|(protocol, payload)| v6.clone().protocol(protocol).payload(payload).to_vec());
    packet[4..6].fill(0xff);
    Front::of(&expected).unwrap().lead_to(&mut packet, Protocol::ESP);
    assert_eq!(packet, expected);
}
