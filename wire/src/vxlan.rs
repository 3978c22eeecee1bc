//! VXLAN (RFC 7348): Ethernet frames in UDP datagrams.

/// UDP port that datagrams are sent to.
pub const PORT: u16 = 4789;

/// Bytes of the header in front of a frame.
pub const HEADER_LEN: usize = 8;

/// Flag I: the header has a network identifier.
const HAS_VNI: u8 = 0x08;

/// Payload of a datagram, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Network identifier, 24 bits.
    pub vni: u32,
    /// Ethernet frame, without its frame check sequence.
    pub frame: &'a [u8],
}

/// Returns the header of a frame with a network identifier, of which 24 bits count.
pub const fn header(vni: u32) -> [u8; HEADER_LEN] {
    let [_, high, middle, low] = vni.to_be_bytes();
    [HAS_VNI, 0, 0, 0, high, middle, low, 0]
}

/// Takes a payload apart; `None` if it is too short, or has no network identifier. Reserved bits are ignored (section 5).
pub fn parse(payload: &[u8]) -> Option<Packet<'_>> {
    let (header, frame) = payload.split_first_chunk::<HEADER_LEN>()?;
    let [flags, _, _, _, high, middle, low, _] = *header;
    (flags & HAS_VNI != 0).then_some(Packet { vni: u32::from_be_bytes([0, high, middle, low]), frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_written() {
        // Section 5, figure 1.
        assert_eq!(header(0x12_3456), [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(header(0xff12_3456), header(0x12_3456));
        let mut payload = header(0x12_3456).to_vec();
        payload.extend(b"frame");
        assert_eq!(parse(&payload), Some(Packet { vni: 0x12_3456, frame: b"frame" }));
        assert_eq!(parse(&payload[..8]).map(|packet| packet.frame.len()), Some(0));
    }

    #[test]
    fn what_is_no_header_is_refused_and_reserved_bits_are_not() {
        let payload = header(7);
        assert!((0..HEADER_LEN).all(|len| parse(&payload[..len]).is_none()));
        assert_eq!(parse(&[0xf7, 0xff, 0xff, 0xff, 0, 0, 7, 0xff]), None);
        assert_eq!(parse(&[0xff; 8]).map(|packet| packet.vni), Some(0xff_ffff));
    }
}
