use super::*;

/// A machine whose memory begins with these instructions.
fn machine(program: &[u32]) -> Machine<'static> {
    let mut memory = VecMemory::new(vec![0; 1024]);
    memory.mem[..program.len()].copy_from_slice(program);
    let mut hart = HartState::new();
    hart.registers[SP] = 0x800;
    Machine { hart, memory, arguments: &[], executed: 0, saves: 0 }
}

const A1: usize = 11;

/// `addi rd, rs1, immediate`
fn addi(rd: usize, rs1: usize, immediate: i32) -> u32 {
    (immediate as u32) << 20 | (rs1 as u32) << 15 | (rd as u32) << 7 | 0x13
}

#[test]
fn counters_are_read_before_they_count_their_reading() {
    // sw ra, 4(sp); lw ra, 4(sp); addi sp, sp, -16; lw a0, 4(sp); rdinstret a0; csrr a1, hpmcounter3; li a7, 0; ecall
    let program = [
        0x0011_2223,
        0x0041_2083,
        addi(SP, SP, -16),
        0x0041_2503,
        RDINSTRET | (A0 as u32) << 7,
        RDHPMCOUNTER3 | (A1 as u32) << 7,
        addi(A7, 0, 0),
        ECALL,
    ];
    let mut machine = machine(&program);
    assert_eq!(machine.run(), Ok(4), "the exit code is a0");
    assert_eq!(machine.hart.registers[A0], 4);
    assert_eq!(machine.hart.registers[A1], 3, "loads of other registers save nothing");
    assert_eq!(machine.executed, 7);
}

#[test]
fn words_and_half_words_lie_at_any_address() {
    // lw a1, 21(x0); sh a1, 19(x0); lh a0, 19(x0); ecall, a7 being 0
    let program = [0x0150_2583, 0x00b0_19a3, 0x0130_1503, ECALL, 0, 0x8070_6050, 0x0000_00ff];
    let mut machine = machine(&program);
    assert_eq!(machine.run(), Ok(0x60));
    assert_eq!(machine.hart.registers[A1], 0xff80_7060);
    assert_eq!(machine.hart.registers[A0], 0x7060);
    assert_eq!(machine.memory.mem[4] >> 24, 0x60);
}

#[test]
fn what_is_no_instruction_stops_the_machine() {
    assert_eq!(machine(&[0xffff_ffff]).run(), Err(InstructionException::IllegalInstruction(0, 0xffff_ffff)));
}
