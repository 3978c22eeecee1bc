//! Address generation (Zba), basic bit manipulation (Zbb) and single bits (Zbs) of the RISC-V unprivileged specification, chapter "B".

/// Result of an instruction of these extensions from its operands, the second one being the immediate where `rs2` is none; `None` if `word` is not
/// one of them.
pub(crate) fn execute(word: u32, a: u32, rs2: u32) -> Option<u32> {
    const OP: u32 = 0x33;
    const OP_IMM: u32 = 0x13;
    let (opcode, funct3, funct7) = (word & 0x7f, word >> 12 & 7, word >> 25);
    let second = word >> 20 & 0x1f;
    let b = if opcode == OP { rs2 } else { second };
    let bit = 1 << (b & 31);
    Some(match (opcode, funct7, funct3) {
        (OP, 0b001_0000, 0b010) => (a << 1).wrapping_add(b),
        (OP, 0b001_0000, 0b100) => (a << 2).wrapping_add(b),
        (OP, 0b001_0000, 0b110) => (a << 3).wrapping_add(b),
        (OP, 0b010_0000, 0b111) => a & !b,
        (OP, 0b010_0000, 0b110) => a | !b,
        (OP, 0b010_0000, 0b100) => !(a ^ b),
        (OP, 0b000_0101, 0b100) => (a as i32).min(b as i32) as u32,
        (OP, 0b000_0101, 0b101) => a.min(b),
        (OP, 0b000_0101, 0b110) => (a as i32).max(b as i32) as u32,
        (OP, 0b000_0101, 0b111) => a.max(b),
        (OP, 0b000_0100, 0b100) if second == 0 => a & 0xffff,
        (OP, 0b011_0000, 0b001) => a.rotate_left(b & 31),
        (OP | OP_IMM, 0b011_0000, 0b101) => a.rotate_right(b & 31),
        (OP | OP_IMM, 0b010_0100, 0b001) => a & !bit,
        (OP | OP_IMM, 0b010_0100, 0b101) => u32::from(a & bit != 0),
        (OP | OP_IMM, 0b011_0100, 0b001) => a ^ bit,
        (OP | OP_IMM, 0b001_0100, 0b001) => a | bit,
        (OP_IMM, 0b011_0000, 0b001) => match second {
            0 => a.leading_zeros(),
            1 => a.trailing_zeros(),
            2 => a.count_ones(),
            4 => a as i8 as u32,
            5 => a as i16 as u32,
            _ => return None,
        },
        (OP_IMM, 0b011_0100, 0b101) if second == 0b11000 => a.swap_bytes(),
        (OP_IMM, 0b001_0100, 0b101) if second == 0b00111 => {
            u32::from_le_bytes(a.to_le_bytes().map(|byte| if byte == 0 { 0 } else { 0xff }))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::execute;

    const A: u32 = 0x8123_4500;
    const B: u32 = 0x0000_0007;

    /// Instructions as `llvm-mc -triple=riscv32 -mattr=+zba,+zbb,+zbs -show-encoding` writes them, of `a0, a0, a1` or `a0, a0, 7`.
    #[test]
    fn instructions_are_those_of_the_assembler() {
        let cases = [
            ("sh1add", 0x20b5_2533, 0x0246_8a07),
            ("sh2add", 0x20b5_4533, 0x048d_1407),
            ("sh3add", 0x20b5_6533, 0x091a_2807),
            ("andn", 0x40b5_7533, 0x8123_4500),
            ("orn", 0x40b5_6533, 0xffff_fff8),
            ("xnor", 0x40b5_4533, 0x7edc_baf8),
            ("min", 0x0ab5_4533, 0x8123_4500),
            ("minu", 0x0ab5_5533, 7),
            ("max", 0x0ab5_6533, 7),
            ("maxu", 0x0ab5_7533, 0x8123_4500),
            ("zext.h", 0x0805_4533, 0x4500),
            ("rol", 0x60b5_1533, 0x91a2_8040),
            ("ror", 0x60b5_5533, 0x0102_468a),
            ("rori", 0x6075_5513, 0x0102_468a),
            ("bclr", 0x48b5_1533, 0x8123_4500),
            ("bext", 0x48b5_5533, 0),
            ("binv", 0x68b5_1533, 0x8123_4580),
            ("bset", 0x28b5_1533, 0x8123_4580),
            ("bclri", 0x4875_1513, 0x8123_4500),
            ("bexti", 0x4875_5513, 0),
            ("binvi", 0x6875_1513, 0x8123_4580),
            ("bseti", 0x2875_1513, 0x8123_4580),
            ("clz", 0x6005_1513, 0),
            ("ctz", 0x6015_1513, 8),
            ("cpop", 0x6025_1513, 8),
            ("sext.b", 0x6045_1513, 0),
            ("sext.h", 0x6055_1513, 0x4500),
            ("rev8", 0x6985_5513, 0x0045_2381),
            ("orc.b", 0x2875_5513, 0xffff_ff00),
        ];
        for (name, word, result) in cases {
            assert_eq!(execute(word, A, B), Some(result), "{name}");
        }
    }

    #[test]
    fn others_are_left_to_the_base() {
        // add, sub, slli, srai, mul and lw
        for word in [0x00b5_0533, 0x40b5_0533, 0x0075_1513, 0x4075_5513, 0x02b5_0533, 0x0005_2503] {
            assert_eq!(execute(word, A, B), None, "{word:x}");
        }
    }
}
