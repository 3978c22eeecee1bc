//! `simulator PROGRAM ARGUMENT...`: executes an ELF program of RV32IM, one instruction at a time.
//!
//! The program has one hart with Zba, Zbb and Zbs, which loads and stores words at any address; no privileges; and [`MEMORY`] bytes of memory,
//! in which its stack grows down from the end. `instret`, read by
//! the instruction `rdinstret`, is the number of instructions that were executed before. `ecall` takes a number in `a7`, operands in `a0`
//! to `a2`, and returns a value in `a0`; see [`call`]. `hpmcounter3` counts those instructions among them that save and restore the registers of
//! a caller, as the calling convention wants.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use object::elf::{FileHeader32, PT_LOAD};
use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};
use rrs_lib::instruction_executor::{InstructionException, InstructionExecutor};
use rrs_lib::memories::VecMemory;
use rrs_lib::{HartState, MemAccessSize, Memory};

mod bitmanip;
#[cfg(test)]
mod tests;

/// Bytes of memory, from address 0.
const MEMORY: u32 = 512 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((program, rest)) = arguments.split_first() else {
        eprintln!("usage: simulator PROGRAM ARGUMENT...");
        return ExitCode::from(2);
    };
    match run(program, rest) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("simulator: {program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &str, arguments: &[String]) -> Result<u8, String> {
    let file = fs::read(program).map_err(|error| error.to_string())?;
    let mut memory = VecMemory::new(vec![0; MEMORY as usize / 4]);
    let mut hart = HartState::new();
    hart.pc = load(&file, &mut memory).map_err(|error| error.to_string())?;
    hart.registers[SP] = MEMORY;
    let mut machine = Machine { hart, memory, arguments, executed: 0, saves: 0 };
    machine.run().map_err(|fault| {
        format!("{fault:x?} at pc {:#x} in {}", machine.hart.pc, place(&file, machine.hart.pc))
    })
}

/// Copies a program into memory, and returns the address of its first instruction.
fn load(file: &[u8], memory: &mut VecMemory) -> Result<u32, object::Error> {
    let header = FileHeader32::<LittleEndian>::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        if segment.p_type(endian) == PT_LOAD {
            let bytes = segment.data(endian, file).unwrap_or_default();
            for (at, byte) in (segment.p_vaddr(endian)..).zip(bytes) {
                memory.write_mem(at, MemAccessSize::Byte, u32::from(*byte));
            }
        }
    }
    Ok(header.e_entry(endian))
}

/// Name of the function that holds an address.
fn place(file: &[u8], at: u32) -> String {
    let Ok(file) = ElfFile32::<LittleEndian>::parse(file) else { return String::new() };
    let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let holds = |first: u64, bytes: u64| (first..first + bytes).contains(&u64::from(at));
    let mut holding = functions.filter(|symbol| holds(symbol.address(), symbol.size()));
    holding.next().and_then(|symbol| symbol.name().ok()).unwrap_or_default().to_owned()
}

// Registers, by their names in the calling convention.
const SP: usize = 2;
const A0: usize = 10;
const A7: usize = 17;

const STORE: u32 = 0x23;
const ECALL: u32 = 0x0000_0073;

/// `rdinstret rd`, which is `csrrs rd, instret, x0`, without its register.
const RDINSTRET: u32 = 0xc020_2073;
const RD: u32 = 0x0000_0f80;

/// `csrrs rd, hpmcounter3, x0`, likewise.
const RDHPMCOUNTER3: u32 = 0xc030_2073;

/// True for an instruction that saves or restores a register for a caller: of `ra` and `s0` to `s11`, to and from the stack; and for one that makes
/// room on the stack for that.
fn saves(word: u32) -> bool {
    const SAVED: u32 = 1 << 1 | 1 << 8 | 1 << 9 | 0x3ff << 18;
    let is_saved = |register: u32| SAVED >> (register & 31) & 1 == 1;
    let is_of_stack = word >> 15 & 31 == SP as u32;
    match word & 0x707f {
        // sw, lw and addi
        0x2023 => is_of_stack && is_saved(word >> 20),
        0x2003 => is_of_stack && is_saved(word >> 7),
        0x0013 => is_of_stack && word >> 7 & 31 == SP as u32,
        _ => false,
    }
}

/// Requests of `ecall`, by number.
mod call {
    /// Ends the program with the exit code `a0`.
    pub(crate) const EXIT: u32 = 0;
    /// Writes `a2` bytes from address `a1` to the file `a0`: standard output or standard error.
    pub(crate) const WRITE: u32 = 1;
    /// Number of arguments.
    pub(crate) const ARGUMENTS: u32 = 2;
    /// Writes argument `a0` to address `a1`, unless that is 0; gives its number of bytes.
    pub(crate) const ARGUMENT: u32 = 3;
}

struct Machine<'a> {
    hart: HartState,
    memory: VecMemory,
    arguments: &'a [String],
    /// Instructions executed.
    executed: u64,
    /// Instructions among them that save and restore registers.
    saves: u64,
}

impl Machine<'_> {
    /// Executes until the program ends, and returns its exit code.
    fn run(&mut self) -> Result<u8, InstructionException> {
        loop {
            let word = self.memory.mem.get(self.hart.pc as usize / 4).copied().unwrap_or_default();
            self.saves += u64::from(saves(word));
            if !self.step_extended(word) {
                let mut executor = InstructionExecutor { mem: &mut self.memory, hart_state: &mut self.hart };
                match executor.step() {
                    Ok(()) => {}
                    Err(InstructionException::IllegalInstruction(_, ECALL)) => {
                        if self.hart.registers[A7] == call::EXIT {
                            return Ok(self.hart.registers[A0] as u8);
                        }
                        self.hart.registers[A0] = self.call();
                        self.hart.pc += 4;
                    }
                    // Programs read the lower half alone, and subtract.
                    Err(InstructionException::IllegalInstruction(_, word)) if word & !RD == RDINSTRET => {
                        self.read_counter(word, self.executed);
                    }
                    Err(InstructionException::IllegalInstruction(_, word)) if word & !RD == RDHPMCOUNTER3 => {
                        self.read_counter(word, self.saves);
                    }
                    Err(InstructionException::AlignmentFault(at)) => self.misaligned(at),
                    Err(fault) => return Err(fault),
                }
            }
            self.executed += 1;
        }
    }

    /// Gives the register of `word` a counter's lower half.
    fn read_counter(&mut self, word: u32, count: u64) {
        self.hart.registers[((word & RD) >> 7) as usize] = count as u32;
        self.hart.pc += 4;
    }

    /// Executes an instruction that the library does not know, if `word` is one.
    #[inline(always)]
    fn step_extended(&mut self, word: u32) -> bool {
        // Register to register, or with an immediate, and with a function beyond the base's.
        if word & 0x5f != 0x13 || word >> 25 == 0 {
            return false;
        }
        let [rd, rs1, rs2] = [7, 15, 20].map(|at| (word >> at & 31) as usize);
        let register = |number: usize| if number == 0 { 0 } else { self.hart.registers[number] };
        let Some(result) = bitmanip::execute(word, register(rs1), register(rs2)) else { return false };
        self.hart.registers[rd] = result;
        self.hart.pc += 4;
        true
    }

    /// Loads or stores at an address that is no multiple of the size, as one instruction does on machines that can.
    fn misaligned(&mut self, at: u32) {
        let word = self.memory.mem[self.hart.pc as usize / 4];
        let bytes = at..at + (1 << (word >> 12 & 3));
        if word & 0x7f == STORE {
            let value = self.hart.registers[(word >> 20 & 31) as usize];
            for (byte, at) in bytes.enumerate() {
                self.memory.write_mem(at, MemAccessSize::Byte, value >> (8 * byte) & 0xff);
            }
        } else {
            let mut byte = |at| self.memory.read_mem(at, MemAccessSize::Byte).unwrap_or_default();
            let value = bytes.rev().fold(0, |value, at| value << 8 | byte(at));
            let is_signed_half = word >> 12 & 7 == 1;
            self.hart.registers[(word >> 7 & 31) as usize] =
                if is_signed_half { value as i16 as u32 } else { value };
        }
        self.hart.pc += 4;
    }

    /// Carries out what `ecall` asks for.
    fn call(&mut self) -> u32 {
        let [a0, a1, a2] = [0, 1, 2].map(|operand| self.hart.registers[A0 + operand]);
        match self.hart.registers[A7] {
            call::WRITE => {
                let bytes = (a1..a1 + a2).filter_map(|at| self.memory.read_mem(at, MemAccessSize::Byte));
                let bytes: Vec<u8> = bytes.map(|byte| byte as u8).collect();
                // Nobody is there to be told of an error.
                let _ = if a0 == 1 { io::stdout().write_all(&bytes) } else { io::stderr().write_all(&bytes) };
                a2
            }
            call::ARGUMENTS => self.arguments.len() as u32,
            call::ARGUMENT => {
                let argument = self.arguments.get(a0 as usize).map_or("", String::as_str);
                if a1 != 0 {
                    for (at, byte) in (a1..).zip(argument.bytes()) {
                        self.memory.write_mem(at, MemAccessSize::Byte, u32::from(byte));
                    }
                }
                argument.len() as u32
            }
            number => {
                eprintln!("simulator: ecall {number} is unknown");
                u32::MAX
            }
        }
    }
}
