//! Enhanced GRE (GRE version 1; RFC 2637, section 4.1): the packets of PPTP calls, with the call ID of their receiver.
//!
//! GRE of version 0 (RFC 2784, RFC 2890) has no call ID, and its key belongs to both directions.

/// Bytes of the header up to the call ID.
pub const HEADER_LEN: usize = 8;

/// Checksum, routing, key, strict source route, recursion and version, in the first two bytes: those that a packet of a call has as below.
const MASK: u16 = 0b1110_1111_0000_0111;
/// In [`MASK`]: a key, and version 1.
const ENHANCED: u16 = 0b0010_0000_0000_0001;
/// Protocol type of PPP.
const PPP: u16 = 0x880b;
/// Place of the call ID: the low half of the key.
const CALL_ID: usize = 6;

/// Call ID of a packet, given from its GRE header on; `None` if the packet is no enhanced GRE, or too short.
pub fn call_id(packet: &[u8]) -> Option<u16> {
    let header = packet.first_chunk::<HEADER_LEN>()?;
    let [flags, kind, _, id] = [0, 2, 4, CALL_ID].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    (flags & MASK == ENHANCED && kind == PPP).then_some(id)
}

/// Gives a packet of a call another call ID. The header has no checksum. Other packets stay as they are.
pub fn set_call_id(packet: &mut [u8], id: u16) {
    if call_id(packet).is_some() {
        packet[CALL_ID..CALL_ID + 2].copy_from_slice(&id.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::{call_id, set_call_id};

    /// Data and acknowledgement, as pptp and pptpd send them.
    const PACKET: [u8; 16] = [0x30, 0x81, 0x88, 0x0b, 0, 4, 0x12, 0x34, 0, 0, 0, 7, 0, 0, 0, 3];

    #[test]
    fn packets_of_calls_have_a_call_id() {
        assert_eq!(call_id(&PACKET), Some(0x1234));
        assert_eq!(call_id(&PACKET[..8]), Some(0x1234));
        assert_eq!(call_id(&PACKET[..7]), None);
        // Acknowledgement alone; no sequence number.
        assert_eq!(call_id(&[0x20, 0x81, 0x88, 0x0b, 0, 0, 0x12, 0x34, 0, 0, 0, 7]), Some(0x1234));
        let others: [(usize, u8); 7] =
            [(1, 0x80), (1, 0x82), (0, 0x10), (0, 0xb0), (0, 0x70), (0, 0x38), (3, 0x00)];
        for (at, byte) in others {
            let mut other = PACKET;
            other[at] = byte;
            assert_eq!(call_id(&other), None, "{at}: {byte:#x}");
            let mut same = other;
            set_call_id(&mut same, 9);
            assert_eq!(same, other);
        }
    }

    proptest! {
        #[test]
        fn a_call_id_that_is_set_is_read(id in any::<u16>(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut packet = PACKET;
            set_call_id(&mut packet, id);
            assert_eq!(call_id(&packet), Some(id));
            let (mut any, before) = (bytes.clone(), call_id(&bytes));
            set_call_id(&mut any, id);
            assert_eq!(call_id(&any), before.map(|_| id));
            assert!(before.is_some() || any == bytes);
        }
    }
}
