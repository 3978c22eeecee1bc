//! The Point-to-Point Protocol: protocol numbers, control packets and their options (RFC 1661; numbers of IANA, "PPP Numbers").
//!
//! Control packets of LCP, of the network control protocols and of authentication have one form: code, identifier, length, data. A packet
//! is padded by Ethernet, and what is behind its length is ignored (section 5).

use crate::header::be16;

/// PPP protocol number of two bytes: the field is never compressed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(pub u16);

impl Protocol {
    /// IPv4 packet (RFC 1332).
    pub const IPV4: Protocol = Protocol(0x0021);
    /// IPv6 packet (RFC 5072).
    pub const IPV6: Protocol = Protocol(0x0057);
    /// IP Control Protocol (RFC 1332).
    pub const IPCP: Protocol = Protocol(0x8021);
    /// IPv6 Control Protocol (RFC 5072).
    pub const IPV6CP: Protocol = Protocol(0x8057);
    /// Link Control Protocol (RFC 1661).
    pub const LCP: Protocol = Protocol(0xc021);
    /// Password Authentication Protocol (RFC 1334).
    pub const PAP: Protocol = Protocol(0xc023);
    /// Challenge Handshake Authentication Protocol (RFC 1994).
    pub const CHAP: Protocol = Protocol(0xc223);

    /// True for the protocols above.
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            Protocol::IPV4
                | Protocol::IPV6
                | Protocol::IPCP
                | Protocol::IPV6CP
                | Protocol::LCP
                | Protocol::PAP
                | Protocol::CHAP
        )
    }
}

/// Bytes of the protocol field in front of a packet.
pub const PROTOCOL_LEN: usize = 2;

/// Bytes in front of the data of a control packet.
pub const HEADER_LEN: usize = 4;

/// Codes of LCP and of network control protocols (RFC 1661, section 5).
pub mod code {
    /// Configure-Request.
    pub const CONFIGURE_REQUEST: u8 = 1;
    /// Configure-Ack.
    pub const CONFIGURE_ACK: u8 = 2;
    /// Configure-Nak.
    pub const CONFIGURE_NAK: u8 = 3;
    /// Configure-Reject.
    pub const CONFIGURE_REJECT: u8 = 4;
    /// Terminate-Request.
    pub const TERMINATE_REQUEST: u8 = 5;
    /// Terminate-Ack.
    pub const TERMINATE_ACK: u8 = 6;
    /// Code-Reject.
    pub const CODE_REJECT: u8 = 7;
    /// Protocol-Reject, of LCP alone.
    pub const PROTOCOL_REJECT: u8 = 8;
    /// Echo-Request, of LCP alone.
    pub const ECHO_REQUEST: u8 = 9;
    /// Echo-Reply, of LCP alone.
    pub const ECHO_REPLY: u8 = 10;
    /// Discard-Request, of LCP alone.
    pub const DISCARD_REQUEST: u8 = 11;
}

/// Codes of PAP (RFC 1334, section 2.2).
pub mod pap {
    /// Authenticate-Request.
    pub const REQUEST: u8 = 1;
    /// Authenticate-Ack.
    pub const ACK: u8 = 2;
    /// Authenticate-Nak.
    pub const NAK: u8 = 3;
}

/// Codes of CHAP (RFC 1994, section 4), and its algorithm.
pub mod chap {
    /// Challenge.
    pub const CHALLENGE: u8 = 1;
    /// Response.
    pub const RESPONSE: u8 = 2;
    /// Success.
    pub const SUCCESS: u8 = 3;
    /// Failure.
    pub const FAILURE: u8 = 4;
    /// Algorithm of the value: MD5 (section 3).
    pub const MD5: u8 = 5;
}

/// Types of options.
pub mod option {
    /// LCP: largest packet that the sender receives, in bytes (RFC 1661, section 6.1).
    pub const MRU: u8 = 1;
    /// LCP: protocol by which the receiver is to authenticate itself (section 6.2).
    pub const AUTHENTICATION: u8 = 3;
    /// LCP: number by which a looped-back link shows (section 6.4).
    pub const MAGIC_NUMBER: u8 = 5;
    /// IPCP: the sender's IPv4 address (RFC 1332, section 3.3).
    pub const IP_ADDRESS: u8 = 3;
    /// IPV6CP: the sender's interface identifier (RFC 5072, section 4.1).
    pub const INTERFACE_IDENTIFIER: u8 = 1;
}

/// A control packet that is none, or options that are not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the header, or than the length says.
    #[error("shorter than its length")]
    TooShort,
    /// Length below that of the header, of the packet or of an option.
    #[error("a length below that of its header")]
    Length,
}

/// Control packet, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Code: the kind of packet.
    pub code: u8,
    /// Identifier, by which answers are matched.
    pub id: u8,
    /// Data behind the header, without padding.
    pub data: &'a [u8],
}

/// Takes a control packet apart.
///
/// # Errors
/// [`Malformed`]: the packet is shorter than its length says, or its length than its header.
pub fn packet(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::TooShort)?;
    let length = usize::from(be16(header, 2));
    if length < HEADER_LEN {
        return Err(Malformed::Length);
    }
    let data = bytes.get(HEADER_LEN..length).ok_or(Malformed::TooShort)?;
    Ok(Packet { code: header[0], id: header[1], data })
}

/// Returns the header of a control packet with so many bytes of data.
pub fn header(code: u8, id: u8, data_len: usize) -> [u8; HEADER_LEN] {
    let [high, low] = ((HEADER_LEN + data_len) as u16).to_be_bytes();
    [code, id, high, low]
}

/// Option of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Type.
    pub kind: u8,
    /// Value.
    pub value: &'a [u8],
    /// The whole option, type and length included.
    pub bytes: &'a [u8],
}

/// Options of a control packet, one after the other; the last item is an error where they are not whole.
#[derive(Clone, Debug)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// The options in the data of a Configure packet.
    pub fn of(data: &'a [u8]) -> Options<'a> {
        Options(data)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Choice<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.0);
        let length = match all {
            [] => return None,
            [_] => return Some(Err(Malformed::TooShort)),
            [_, length, ..] => usize::from(*length),
        };
        if length < 2 {
            return Some(Err(Malformed::Length));
        }
        let Some((bytes, rest)) = all.split_at_checked(length) else { return Some(Err(Malformed::TooShort)) };
        self.0 = rest;
        Some(Ok(Choice { kind: bytes[0], value: &bytes[2..], bytes }))
    }
}

/// Splits a field with a length of one byte in front off the data of an authentication packet: an identity, a password, a value. `None`
/// where the data are shorter.
pub fn counted(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    /// Bytes of `PPP_LCP_Configure(id=7, options=[PPP_LCP_MRU_Option(max_recv_unit=1492),
    /// PPP_LCP_Auth_Protocol_Option(auth_protocol=0xc223, algorithm=5), PPP_LCP_Magic_Number_Option(magic_number=0x12345678)])` of scapy.
    #[test]
    fn a_request_is_taken_apart() {
        let bytes = hex("01 07 0013 010405d4 0305c22305 050612345678 ffff");
        let packet = packet(&bytes).unwrap();
        assert_eq!((packet.code, packet.id, packet.data.len()), (code::CONFIGURE_REQUEST, 7, 15));
        let options: Vec<_> = Options::of(packet.data).map(Result::unwrap).collect();
        let kinds: Vec<_> = options.iter().map(|option| (option.kind, option.value.to_vec())).collect();
        let expected = [
            (option::MRU, hex("05d4")),
            (option::AUTHENTICATION, hex("c22305")),
            (option::MAGIC_NUMBER, hex("12345678")),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(options[1].bytes, hex("0305c22305"));
        assert_eq!(header(packet.code, packet.id, packet.data.len()), bytes[..4]);
    }

    #[test]
    fn lengths_are_checked() {
        assert_eq!(packet(&hex("01 07 00")), Err(Malformed::TooShort));
        assert_eq!(packet(&hex("01 07 0003")), Err(Malformed::Length));
        assert_eq!(packet(&hex("01 07 0005")), Err(Malformed::TooShort));
        assert_eq!(packet(&hex("05 07 0004")).map(|packet| packet.data.len()), Ok(0));
        let last = |text: &str| Options::of(&hex(text)).last().unwrap().err();
        assert_eq!(last("010405d4 01"), Some(Malformed::TooShort));
        assert_eq!(last("0101"), Some(Malformed::Length));
        assert_eq!(last("0100"), Some(Malformed::Length));
        assert_eq!(last("0104 05"), Some(Malformed::TooShort));
        assert_eq!(last("0102"), None);
    }

    #[test]
    fn fields_have_their_length_in_front() {
        let data = hex("02 6162 01 63 ff");
        assert_eq!(counted(&data), Some((&b"ab"[..], &data[3..])));
        assert_eq!(counted(&data[5..]), None);
        assert_eq!(counted(&[]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(packet) = packet(&bytes) {
                prop_assert!(packet.data.len() + HEADER_LEN <= bytes.len());
                let whole: usize = Options::of(packet.data).flatten().map(|option| option.bytes.len()).sum();
                prop_assert!(whole <= packet.data.len());
                let _ = counted(packet.data);
            }
        }
    }
}
