//! The system call bpf(2): programs, maps, and links that hold a program to an interface for as long as they are open.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::program::Instruction;

/// Where a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// What comes in by an interface, after taps saw it.
    TcxIngress,
    /// What Linux sends by an interface.
    TcxEgress,
}

impl Hook {
    /// `enum bpf_attach_type`
    fn attach_type(self) -> u32 {
        match self {
            Hook::TcxIngress => 46,
            Hook::TcxEgress => 47,
        }
    }

    /// `enum bpf_prog_type`
    fn program_type(self) -> u32 {
        match self {
            Hook::TcxIngress | Hook::TcxEgress => 3,
        }
    }
}

/// Loads `program` and attaches it to an interface. It stays for as long as what is returned.
pub(crate) fn attach(hook: Hook, ifindex: u32, program: &[Instruction]) -> io::Result<OwnedFd> {
    let program = load(hook, program)?;
    let mut attributes = Attributes::default();
    attributes.word(0, program.as_raw_fd() as u32);
    attributes.word(4, ifindex);
    attributes.word(8, hook.attach_type());
    // SAFETY: this command's attributes have no pointers here.
    unsafe { attributes.call(BPF_LINK_CREATE) }
}

fn load(hook: Hook, program: &[Instruction]) -> io::Result<OwnedFd> {
    const LICENCE: &CStr = c"Apache-2.0";
    let mut attributes = Attributes::default();
    attributes.word(0, hook.program_type());
    attributes.word(4, program.len() as u32);
    attributes.long(8, program.as_ptr() as u64);
    attributes.long(16, LICENCE.as_ptr() as u64);
    attributes.bytes(48, b"wirerate");
    attributes.word(68, hook.attach_type());
    // SAFETY: the pointers are those of a live slice of instructions, of the length given, and of a string that ends
    // with a zero; the kernel only reads them.
    unsafe { attributes.call(BPF_PROG_LOAD) }
}

// enum bpf_cmd
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;

/// The beginning of `union bpf_attr`; fields are at the offsets of linux/bpf.h.
#[derive(Default)]
#[repr(C, align(8))]
struct Attributes([[u8; 32]; 4]);

impl Attributes {
    fn bytes(&mut self, at: usize, bytes: &[u8]) {
        self.0.as_flattened_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: usize, value: u32) {
        self.bytes(at, &value.to_ne_bytes());
    }

    fn long(&mut self, at: usize, value: u64) {
        self.bytes(at, &value.to_ne_bytes());
    }

    /// # Safety
    /// What the command takes for pointers must be valid for what it does with them.
    unsafe fn command(&self, command: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: the kernel reads the attributes, which are live and of this size, and what the caller vouches for.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *self, size_of::<Self>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }

    /// A command that opens something.
    ///
    /// # Safety
    /// As for `command`, and the command must return a new file descriptor.
    unsafe fn call(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: as the caller promises; the descriptor is new and nobody else has it.
        unsafe { self.command(command).map(|fd| OwnedFd::from_raw_fd(fd)) }
    }
}
