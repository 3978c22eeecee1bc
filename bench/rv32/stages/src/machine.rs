//! The machine under the program: its entry, and the functions that the standard library of the target `riscv32im-risc0-zkvm-elf` calls
//! (`library/std/src/sys/pal/zkvm/abi.rs`), by the calls of `bench/rv32/simulator`.

use std::arch::{asm, global_asm};
use std::cell::Cell;

use getrandom::register_custom_getrandom;

// The simulator has set the stack pointer.
global_asm!(
    ".globl _start",
    "_start:",
    ".option push",
    ".option norelax",
    "la gp, __global_pointer$",
    ".option pop",
    "li a0, 0",
    "li a1, 0",
    "call main",
    "li a7, 0",
    "ecall",
);

// As C libraries have them, by eight words at a time; those of `compiler_builtins` go word by word. The machine takes any address.
global_asm!(
    ".globl memcpy",
    "memcpy:",
    "mv a3, a0",
    "li a4, 32",
    "bltu a2, a4, 2f",
    "1:",
    "lw a5, 0(a1)",
    "lw a6, 4(a1)",
    "lw a7, 8(a1)",
    "lw t0, 12(a1)",
    "lw t1, 16(a1)",
    "lw t2, 20(a1)",
    "lw t3, 24(a1)",
    "lw t4, 28(a1)",
    "sw a5, 0(a3)",
    "sw a6, 4(a3)",
    "sw a7, 8(a3)",
    "sw t0, 12(a3)",
    "sw t1, 16(a3)",
    "sw t2, 20(a3)",
    "sw t3, 24(a3)",
    "sw t4, 28(a3)",
    "addi a1, a1, 32",
    "addi a3, a3, 32",
    "addi a2, a2, -32",
    "bgeu a2, a4, 1b",
    "2:",
    "li a4, 4",
    "bltu a2, a4, 4f",
    "3:",
    "lw a5, 0(a1)",
    "sw a5, 0(a3)",
    "addi a1, a1, 4",
    "addi a3, a3, 4",
    "addi a2, a2, -4",
    "bgeu a2, a4, 3b",
    "4:",
    "beqz a2, 6f",
    "5:",
    "lbu a5, 0(a1)",
    "sb a5, 0(a3)",
    "addi a1, a1, 1",
    "addi a3, a3, 1",
    "addi a2, a2, -1",
    "bnez a2, 5b",
    "6:",
    "ret",
    ".globl memset",
    "memset:",
    "mv a3, a0",
    "andi a1, a1, 255",
    "slli a4, a1, 8",
    "or a1, a1, a4",
    "slli a4, a1, 16",
    "or a1, a1, a4",
    "li a4, 32",
    "bltu a2, a4, 2f",
    "1:",
    "sw a1, 0(a3)",
    "sw a1, 4(a3)",
    "sw a1, 8(a3)",
    "sw a1, 12(a3)",
    "sw a1, 16(a3)",
    "sw a1, 20(a3)",
    "sw a1, 24(a3)",
    "sw a1, 28(a3)",
    "addi a3, a3, 32",
    "addi a2, a2, -32",
    "bgeu a2, a4, 1b",
    "2:",
    "li a4, 4",
    "bltu a2, a4, 4f",
    "3:",
    "sw a1, 0(a3)",
    "addi a3, a3, 4",
    "addi a2, a2, -4",
    "bgeu a2, a4, 3b",
    "4:",
    "beqz a2, 6f",
    "5:",
    "sb a1, 0(a3)",
    "addi a3, a3, 1",
    "addi a2, a2, -1",
    "bnez a2, 5b",
    "6:",
    "ret",
);

const EXIT: usize = 0;
const WRITE: usize = 1;
const ARGUMENTS: usize = 2;
const ARGUMENT: usize = 3;

fn call(number: usize, operands: [usize; 3]) -> usize {
    let result;
    // SAFETY: no call of the simulator writes elsewhere than it is told.
    unsafe {
        asm!("ecall", in("a7") number, inlateout("a0") operands[0] => result, in("a1") operands[1], in("a2") operands[2])
    };
    result
}

/// Counters of the machine, modulo 2^32.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Instructions executed.
    pub(crate) executed: u32,
    /// Instructions among them that save and restore registers, which an engine without a stack never does.
    pub(crate) saves: u32,
}

impl Counters {
    #[inline(always)]
    pub(crate) fn read() -> Counters {
        let (executed, saves);
        // SAFETY: reads two counters. That the compiler may think that memory is changed keeps loads and stores on their side.
        unsafe { asm!("rdinstret {}", "csrr {}, hpmcounter3", out(reg) executed, out(reg) saves) };
        Counters { executed, saves }
    }

    /// Instructions executed since, without those that save and restore registers.
    pub(crate) fn since(self, earlier: Counters) -> u32 {
        let Counters { executed, saves } = earlier;
        self.executed.wrapping_sub(executed) - self.saves.wrapping_sub(saves)
    }
}

#[unsafe(no_mangle)]
extern "C" fn sys_halt() -> ! {
    call(EXIT, [1, 0, 0]);
    unreachable!("the program has ended")
}

#[unsafe(no_mangle)]
extern "C" fn sys_write(file: u32, bytes: *const u8, count: usize) {
    call(WRITE, [file as usize, bytes as usize, count]);
}

#[unsafe(no_mangle)]
extern "C" fn sys_panic(message: *const u8, count: usize) -> ! {
    sys_write(2, message, count);
    sys_halt()
}

#[unsafe(no_mangle)]
extern "C" fn sys_log(message: *const u8, count: usize) {
    sys_write(2, message, count);
}

#[unsafe(no_mangle)]
extern "C" fn sys_read(_: u32, _: *mut u8, _: usize) -> usize {
    0
}

/// No variable is set.
#[unsafe(no_mangle)]
extern "C" fn sys_getenv(_: *mut u32, _: usize, _: *const u8, _: usize) -> usize {
    usize::MAX
}

#[unsafe(no_mangle)]
extern "C" fn sys_argc() -> usize {
    call(ARGUMENTS, [0; 3])
}

#[unsafe(no_mangle)]
extern "C" fn sys_argv(words: *mut u32, _: usize, number: usize) -> usize {
    call(ARGUMENT, [number, words as usize, 0])
}

unsafe extern "C" {
    /// First byte behind the program; the linker's.
    static _end: u8;
}

thread_local! {
    /// First free byte of memory; 0 before the first is taken.
    static FREE: Cell<usize> = const { Cell::new(0) };
}

/// Takes zeroed memory, which is never given back: programs are short.
#[unsafe(no_mangle)]
extern "C" fn sys_alloc_aligned(count: usize, align: usize) -> *mut u8 {
    let free = match FREE.get() {
        0 => (&raw const _end) as usize,
        free => free,
    };
    let at = free.next_multiple_of(align);
    FREE.set(at + count);
    at as *mut u8
}

#[unsafe(no_mangle)]
extern "C" fn sys_alloc_words(count: usize) -> *mut u32 {
    sys_alloc_aligned(4 * count, 4).cast()
}

/// The same words in every run.
#[unsafe(no_mangle)]
unsafe extern "C" fn sys_rand(words: *mut u32, count: usize) {
    for place in 0..count {
        // SAFETY: the caller has room for that many.
        unsafe { words.add(place).write(0x9e37_79b9_u32.wrapping_mul(place as u32 + 1)) };
    }
}

fn random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    bytes.fill(0x5a);
    Ok(())
}
register_custom_getrandom!(random);
