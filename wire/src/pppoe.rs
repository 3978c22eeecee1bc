//! PPP over Ethernet (RFC 2516): the header of both stages, and the tags of discovery.

use crate::header::be16;

/// Bytes of the header behind the Ethernet header.
pub const HEADER_LEN: usize = 6;

/// Bytes in front of an IP packet of a session: the header, and the PPP protocol field.
pub const SESSION_LEN: usize = HEADER_LEN + 2;

/// Largest IP packet of a session, in bytes (RFC 2516, section 7): what an Ethernet payload of 1500 bytes leaves.
pub const MOST_MTU: u16 = 1492;

/// Version 1 and type 1 (section 4).
const VERSION_TYPE: u8 = 0x11;

/// Codes (section 5).
pub mod code {
    /// A session's packet.
    pub const SESSION: u8 = 0x00;
    /// Active Discovery Offer.
    pub const PADO: u8 = 0x07;
    /// Active Discovery Initiation.
    pub const PADI: u8 = 0x09;
    /// Active Discovery Request.
    pub const PADR: u8 = 0x19;
    /// Active Discovery Session-confirmation.
    pub const PADS: u8 = 0x65;
    /// Active Discovery Terminate.
    pub const PADT: u8 = 0xa7;
}

/// Types of tags (appendix A).
pub mod tag {
    /// End of the list.
    pub const END_OF_LIST: u16 = 0x0000;
    /// Service.
    pub const SERVICE_NAME: u16 = 0x0101;
    /// Name of the access concentrator.
    pub const AC_NAME: u16 = 0x0102;
    /// Value by which a host knows its own exchange again.
    pub const HOST_UNIQ: u16 = 0x0103;
    /// Value by which an access concentrator knows that a host has received its offer.
    pub const AC_COOKIE: u16 = 0x0104;
    /// Value of a relay on the way, to be returned.
    pub const RELAY_SESSION_ID: u16 = 0x0110;
    /// The service is refused.
    pub const SERVICE_NAME_ERROR: u16 = 0x0201;
    /// The access concentrator cannot.
    pub const AC_SYSTEM_ERROR: u16 = 0x0202;
    /// Another error.
    pub const GENERIC_ERROR: u16 = 0x0203;
}

/// A frame that is not PPPoE, or tags that are not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the header, or than its length says.
    #[error("shorter than its length")]
    TooShort,
    /// Another version or type.
    #[error("neither version 1 nor type 1")]
    Version,
}

/// PPPoE packet, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Code.
    pub code: u8,
    /// Session identifier; 0 before a session has one.
    pub session: u16,
    /// Tags, or from the PPP protocol field on; without padding.
    pub payload: &'a [u8],
}

/// Takes a packet apart, from behind the Ethernet header on.
///
/// # Errors
/// [`Malformed`]
#[inline]
pub fn packet(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::TooShort)?;
    if header[0] != VERSION_TYPE {
        return Err(Malformed::Version);
    }
    let length = usize::from(be16(header, 4));
    let payload = bytes.get(HEADER_LEN..HEADER_LEN + length).ok_or(Malformed::TooShort)?;
    Ok(Packet { code: header[1], session: be16(header, 2), payload })
}

/// Returns the header of a packet with so many bytes of payload.
#[inline]
pub fn header(code: u8, session: u16, payload_len: usize) -> [u8; HEADER_LEN] {
    let ([a, b], [c, d]) = (session.to_be_bytes(), (payload_len as u16).to_be_bytes());
    [VERSION_TYPE, code, a, b, c, d]
}

/// Tags of a discovery packet, up to the end of the list; the last item is an error where they are not whole.
#[derive(Clone, Debug)]
pub struct Tags<'a>(&'a [u8]);

impl<'a> Tags<'a> {
    /// The tags in a payload.
    pub fn of(payload: &'a [u8]) -> Tags<'a> {
        Tags(payload)
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = Result<(u16, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.0);
        if all.is_empty() {
            return None;
        }
        let Some((header, rest)) = all.split_first_chunk::<4>() else {
            return Some(Err(Malformed::TooShort));
        };
        let (kind, length) = (be16(header, 0), usize::from(be16(header, 2)));
        if kind == tag::END_OF_LIST {
            return None;
        }
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return Some(Err(Malformed::TooShort));
        };
        self.0 = rest;
        Some(Ok((kind, value)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    /// Bytes of `PPPoED(code=0x09)/PPPoED_Tags(tag_list=[PPPoETag(tag_type=0x0101), PPPoETag(tag_type=0x0103, tag_value=b"abcd")])` of
    /// scapy, with padding behind.
    #[test]
    fn an_initiation_is_taken_apart() {
        let bytes = hex("11 09 0000 000c 0101 0000 0103 0004 61626364 0000");
        let packet = packet(&bytes).unwrap();
        assert_eq!((packet.code, packet.session), (code::PADI, 0));
        let tags: Vec<_> = Tags::of(packet.payload).map(Result::unwrap).collect();
        assert_eq!(tags, [(tag::SERVICE_NAME, &b""[..]), (tag::HOST_UNIQ, &b"abcd"[..])]);
        assert_eq!(header(code::PADI, 0, 12), bytes[..6]);
    }

    #[test]
    fn lengths_and_version_are_checked() {
        assert_eq!(packet(&hex("11 09 0000 00")), Err(Malformed::TooShort));
        assert_eq!(packet(&hex("12 09 0000 0000")), Err(Malformed::Version));
        assert_eq!(packet(&hex("11 00 0001 0003 0021")), Err(Malformed::TooShort));
        let last = |text: &str| Tags::of(&hex(text)).last().and_then(Result::err);
        assert_eq!(last("0101 0000 01"), Some(Malformed::TooShort));
        assert_eq!(last("0101 0001"), Some(Malformed::TooShort));
        // Behind the end of the list nothing counts.
        assert_eq!(last("0101 0000 0000 0000 01"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(packet) = packet(&bytes) {
                prop_assert!(packet.payload.len() + HEADER_LEN <= bytes.len());
                let whole: usize = Tags::of(packet.payload).flatten().map(|(_, value)| value.len() + 4).sum();
                prop_assert!(whole <= packet.payload.len());
            }
        }

        #[test]
        fn what_is_written_comes_back(code: u8, session: u16, payload in prop::collection::vec(any::<u8>(), 0..64)) {
            let bytes = [&header(code, session, payload.len())[..], &payload, &[0; 9]].concat();
            prop_assert_eq!(packet(&bytes), Ok(Packet { code, session, payload: &payload }));
        }
    }
}
