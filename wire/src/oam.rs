//! OAM cells of ATM (ITU-T I.610): the check of all, and loopback.
//!
//! The payload of an OAM cell is a byte of OAM type and function type, 45 bytes of the function's own, six reserved bits and a CRC-10 of all
//! before. A loopback cell (fault management, function type 8) has an indication, whose lowest bit says that the cell is still to be looped, a
//! correlation tag that the sender knows it by, the location where it is to be looped, and that of its source.

use crate::atm::PAYLOAD_LEN;

/// Virtual channels of a path whose cells are its OAM flow F4, of the segment and end to end (I.610, section 5.2.1).
pub const F4: [u16; 2] = [3, 4];

/// Fault management, loopback (I.610, table 2).
const LOOPBACK: u8 = 0x18;

/// Place of the loopback indication.
const INDICATION: usize = 1;

/// Place of the location where a cell is to be looped.
const LOCATION: std::ops::Range<usize> = 6..22;

/// Location of the end of a connection or segment, wherever that is (I.610, section 10.2.3).
const END: [u8; 16] = [0xff; 16];

/// True if the CRC-10 of an OAM cell's payload is right.
pub fn is_intact(payload: &[u8; PAYLOAD_LEN]) -> bool {
    remainder(payload) == 0
}

/// True for a loopback cell that the end of its connection or segment is to loop.
pub fn is_loopback_request(payload: &[u8; PAYLOAD_LEN]) -> bool {
    payload[0] == LOOPBACK && payload[INDICATION] & 1 == 1 && payload[LOCATION] == END
}

/// Turns a loopback cell into the one that goes back: the indication is cleared, and the CRC-10 computed anew.
pub fn loop_back(payload: &mut [u8; PAYLOAD_LEN]) {
    payload[INDICATION] &= !1;
    payload[PAYLOAD_LEN - 2] &= !0b11;
    payload[PAYLOAD_LEN - 1] = 0;
    let [high, low] = remainder(payload).to_be_bytes();
    payload[PAYLOAD_LEN - 2] |= high;
    payload[PAYLOAD_LEN - 1] = low;
}

/// Remainder of a payload, as a number, by x^10 + x^9 + x^5 + x^4 + x + 1 (I.610, section 10.1). Bit by bit: OAM cells are few.
fn remainder(payload: &[u8; PAYLOAD_LEN]) -> u16 {
    const GENERATOR: u16 = 0b110_0011_0011;
    let bits = payload.iter().flat_map(|byte| (0..8).rev().map(move |place| u16::from(byte >> place & 1)));
    bits.fold(0, |rest, bit| {
        let rest = rest << 1 | bit;
        if rest >> 10 == 1 { rest ^ GENERATOR } else { rest }
    })
}

#[cfg(test)]
mod tests {
    use crc::{CRC_10_ATM, Crc};
    use proptest::prelude::*;

    use super::*;

    /// A loopback cell with a right check.
    fn request(tag: u32) -> [u8; PAYLOAD_LEN] {
        let mut payload = [0x6a; PAYLOAD_LEN];
        payload[..2].copy_from_slice(&[LOOPBACK, 0]);
        payload[2..6].copy_from_slice(&tag.to_be_bytes());
        payload[LOCATION].copy_from_slice(&END);
        payload[46..].fill(0);
        loop_back(&mut payload);
        payload[INDICATION] = 1;
        // The check of one bit more, by the catalogue's CRC, which is of payloads whose check stands behind them.
        let whole = Crc::<u16>::new(&CRC_10_ATM);
        for check in 0..1024_u16 {
            payload[46..].copy_from_slice(&check.to_be_bytes());
            if whole.checksum(&payload) == 0 {
                return payload;
            }
        }
        panic!("no check fits");
    }

    #[test]
    fn a_request_is_looped_and_its_check_is_that_of_the_catalogue() {
        let payload = request(0x1234_5678);
        assert!(is_intact(&payload) && is_loopback_request(&payload));
        let mut looped = payload;
        loop_back(&mut looped);
        assert!(is_intact(&looped) && !is_loopback_request(&looped));
        assert_eq!(looped[1], 0);
        assert_eq!((looped[0], &looped[2..46]), (payload[0], &payload[2..46]));
        assert_eq!(Crc::<u16>::new(&CRC_10_ATM).checksum(&looped), 0);
    }

    #[test]
    fn other_functions_and_locations_are_none_for_this_end() {
        for (at, byte) in [(0, 0x10), (0, 0x28), (1, 0), (6, 0), (21, 0xfe)] {
            let mut payload = request(7);
            payload[at] = byte;
            assert!(!is_loopback_request(&payload), "{at}");
        }
    }

    proptest! {
        #[test]
        fn a_payload_is_intact_as_the_catalogue_has_it(payload: [u8; PAYLOAD_LEN]) {
            let is_right = Crc::<u16>::new(&CRC_10_ATM).checksum(&payload) == 0;
            prop_assert_eq!(is_intact(&payload), is_right);
        }

        #[test]
        fn one_wrong_bit_is_seen(bit in 0..8 * PAYLOAD_LEN, tag: u32) {
            let mut payload = request(tag);
            payload[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_intact(&payload));
        }
    }
}
