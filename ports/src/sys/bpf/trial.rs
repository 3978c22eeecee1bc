//! Test runs of loaded programs, by the kernel's own facility for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use wire::vlan::Tag;

use super::Attributes;
use crate::program::fast::trial::{TCI, TPID};

const BPF_PROG_TEST_RUN: libc::c_int = 10;

/// Fields of a packet, beside its bytes, in a test run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) mark: u32,
    pub(crate) gso_size: u32,
    /// VLAN tag beside the bytes, for programs that are [`tagged`](crate::program::fast::trial::tagged).
    pub(crate) tag: Option<Tag>,
}

/// Outcome of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) value: i32,
    pub(crate) mark: u32,
    pub(crate) frame: Vec<u8>,
}

/// Test run of a loaded program, of XDP without a context. The packet comes in by the loopback interface.
pub(crate) fn run_loaded(program: BorrowedFd<'_>, frame: &[u8], context: Option<Context>) -> io::Result<Run> {
    // struct __sk_buff, with the mark, the tag, and the GSO fields.
    let (mut input, mut out) = ([0_u8; 192], [0_u8; 192]);
    let mut data = vec![0_u8; 8192];
    let mut attributes = Attributes::default();
    attributes.word(0, program.as_raw_fd() as u32);
    attributes.word(8, frame.len() as u32);
    attributes.word(12, data.len() as u32);
    attributes.long(16, frame.as_ptr() as u64);
    attributes.long(24, data.as_mut_ptr() as u64);
    attributes.word(32, 1);
    if let Some(context) = context {
        input[8..12].copy_from_slice(&context.mark.to_ne_bytes());
        if let Some(tag) = context.tag {
            for (at, value) in [(TPID, tag.tpid.0.to_be()), (TCI, tag.tci)] {
                let at = at as usize;
                input[at..at + 4].copy_from_slice(&u32::from(value).to_ne_bytes());
            }
        }
        input[176..180].copy_from_slice(&context.gso_size.to_ne_bytes());
        attributes.word(40, input.len() as u32);
        attributes.word(44, out.len() as u32);
        attributes.long(48, input.as_ptr() as u64);
        attributes.long(56, out.as_mut_ptr() as u64);
    }
    // SAFETY: the pointers are those of live buffers of the lengths given.
    unsafe { attributes.command(BPF_PROG_TEST_RUN) }?;
    let bytes = attributes.0.as_flattened();
    let number =
        |at: usize, bytes: &[u8]| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    data.truncate(number(12, bytes) as usize);
    Ok(Run { value: number(4, bytes) as i32, mark: number(8, &out), frame: data })
}

/// Keeps this thread on one CPU.
pub(crate) fn stay_on_this_cpu() {
    // SAFETY: takes nothing and returns a number.
    let cpu = unsafe { libc::sched_getcpu() };
    // SAFETY: a set of bits, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set, and the number of a CPU.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: a live set of the length given; only this thread is changed.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }, 0);
}
