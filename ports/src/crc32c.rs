//! CRC-32C (Castagnoli), the checksum of SCTP (RFC 9260, appendix A).

/// The checksum of `bytes`, as the field has it, given that the field was zero.
pub(crate) fn of(bytes: &[u8]) -> [u8; 4] {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        let index = (crc as u8 ^ byte) as usize;
        crc >> 8 ^ TABLE[index]
    });
    // The polynomial is reflected, so the lowest byte goes first.
    (!crc).to_le_bytes()
}

/// What a byte does to the rest.
const TABLE: [u32; 256] = {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::of;

    /// RFC 3720, appendix B.4.
    #[test]
    fn examples_of_iscsi() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(of(&ascending), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(of(&descending), [0x5c, 0xdb, 0x3f, 0x11]);
    }
}
