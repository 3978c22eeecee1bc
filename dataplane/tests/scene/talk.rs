//! A conversation of a host inside with one outside, through an office's gateway.

use wire::PortId;
use wire::build::{self, Tcp};
use wire::ethernet::{self, Mac};
use wire::tcp::Flags;

use super::Out;

/// Policy of an office: masquerade over IPv4, and both versions.
pub const OFFICE: &str = r#"
[interface.lan]
zone = "inside"
addresses = ["192.168.1.1/24", "2001:db8:1::1/64"]
mac = "02:00:00:00:00:01"

[interface.wan]
zone = "outside"
addresses = ["203.0.113.1/24", "2001:db8:2::1/64"]
mac = "02:00:00:00:00:02"
mtu = 1400

[default]
"inside > outside" = "accept"

[[route]]
to = "0.0.0.0/0"
via = "203.0.113.254"

[[route]]
to = "::/0"
via = "2001:db8:2::254"

[[class]]
name = "voice"
dscp = "ef"
mark = "af11"

[[class]]
name = "bulk"
protocol = "tcp"

[[rule]]
name = "web"
from = "inside"
to = "outside"
protocol = "tcp"
action = "accept"

[[nat]]
name = "house"
kind = "masquerade"
from = "inside"
to = "outside"
source = "192.168.1.0/24"
"#;

/// One side of a conversation, in what it has sent.
#[derive(Clone, Copy)]
pub struct Side {
    pub seq: u32,
    pub window: u16,
}

/// A conversation of a host inside with one outside.
pub struct Talk {
    pub v6: bool,
    pub is_tcp: bool,
    pub sport: u16,
    /// True if the gateway translates the host inside, over IPv4.
    pub is_translated: bool,
    /// Port by which it does.
    pub outside: u16,
    pub sides: [Side; 2],
}

impl Talk {
    /// The conversation of a round: of both IP versions in turn, and of TCP in two rounds of three.
    pub fn of_round(round: u32) -> Talk {
        Talk {
            v6: round % 2 == 1,
            is_tcp: round % 3 < 2,
            sport: 4000,
            is_translated: true,
            outside: 0,
            sides: [Side { seq: u32::MAX - 2_000, window: 65_000 }, Side { seq: 7, window: 40_000 }],
        }
    }

    /// Opens the conversation: has `send` take the first frames, which pass, and notes by which port it is translated.
    pub fn open(&mut self, mut send: impl FnMut((PortId, Vec<u8>)) -> Out) {
        let flags: &[(usize, u8)] = match self.is_tcp {
            true => &[(0, 0x02), (1, 0x12), (0, 0x10)],
            false => &[(0, 0), (1, 0)],
        };
        for (from, flags) in flags {
            let out = send(self.frame(*from, *flags, 0, 64, &[]));
            let sent = out.sent.last().expect("it passes");
            if *from == 0 && self.is_hidden() {
                let at = ethernet::parse(&sent.bytes).unwrap().payload_at + 20;
                self.outside = u16::from_be_bytes([sent.bytes[at], sent.bytes[at + 1]]);
            }
            self.sides[*from].seq = self.sides[*from].seq.wrapping_add(u32::from(flags >> 1 & 1));
        }
    }

    /// True if those outside know the host inside by the gateway's address.
    fn is_hidden(&self) -> bool {
        self.is_translated && !self.v6
    }

    /// The frame that one side sends; what the other side sees of it outside is for the caller to know.
    pub fn frame(&self, from: usize, flags: u8, ds_field: u8, ttl: u8, payload: &[u8]) -> (PortId, Vec<u8>) {
        let packet = build::ethernet(Mac([2, 0, 0, 0, 0, 9]), Mac([2, 0, 0, 0, 0, 1 + from as u8]));
        let (inside, gateway, server) = ([192, 168, 1, 7], [203, 0, 113, 1], [198, 51, 100, 1]);
        let v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
        let packet = match (self.v6, from) {
            (false, 0) => packet.ipv4(inside.into(), server.into()),
            (false, _) if self.is_translated => packet.ipv4(server.into(), gateway.into()),
            (false, _) => packet.ipv4(server.into(), inside.into()),
            (true, 0) => packet.ipv6(v6("2001:db8:1::7"), v6("2001:db8:9::1")),
            (true, _) => packet.ipv6(v6("2001:db8:9::1"), v6("2001:db8:1::7")),
        };
        let packet = packet.ds_field(ds_field).ttl(ttl);
        let outside = if self.is_hidden() { self.outside } else { self.sport };
        let (sport, dport) = if from == 0 { (self.sport, 80) } else { (80, outside) };
        let (own, other) = (self.sides[from], self.sides[1 - from]);
        let packet = if self.is_tcp {
            let ack = if flags & Flags::ACK.0 == 0 { 0 } else { other.seq };
            let options: &[u8] = if flags & Flags::SYN.0 != 0 { &[2, 4, 5, 180] } else { &[] };
            packet.tcp(Tcp {
                sport,
                dport,
                seq: own.seq,
                ack,
                flags: Flags(flags),
                window: own.window,
                options,
            })
        } else {
            packet.udp(sport, dport)
        };
        (PortId(from as u16), packet.payload(payload).to_vec())
    }
}
