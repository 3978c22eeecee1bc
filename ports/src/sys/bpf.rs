//! The system call bpf(2): programs, maps, and links that hold a program on an interface as long as they are open.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::program::Instruction;

/// Hook at which a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// In the driver, before Linux has a buffer for the frame.
    Xdp,
    /// The same, for frames of several buffers, too: the program sees the first of them.
    XdpFragments,
    /// Packets received by an interface, after taps saw them.
    TcxIngress,
    /// Packets that Linux sends by an interface.
    TcxEgress,
}

impl Hook {
    /// `enum bpf_attach_type`
    fn attach_type(self) -> u32 {
        match self {
            Hook::Xdp | Hook::XdpFragments => 37,
            Hook::TcxIngress => 46,
            Hook::TcxEgress => 47,
        }
    }

    /// `enum bpf_prog_type`
    fn program_type(self) -> u32 {
        match self {
            Hook::Xdp | Hook::XdpFragments => 6,
            Hook::TcxIngress | Hook::TcxEgress => 3,
        }
    }

    /// Flags of a program that it takes (`BPF_F_XDP_HAS_FRAGS`).
    fn program_flags(self) -> u32 {
        match self {
            Hook::XdpFragments => 1 << 5,
            Hook::Xdp | Hook::TcxIngress | Hook::TcxEgress => 0,
        }
    }

    fn kind(self) -> Kind {
        Kind { program: self.program_type(), attach: self.attach_type(), flags: self.program_flags() }
    }

    /// XDP in the driver only (`XDP_FLAGS_DRV_MODE`), not on a socket buffer.
    fn flags(self) -> u32 {
        match self {
            Hook::Xdp | Hook::XdpFragments => 1 << 2,
            Hook::TcxIngress | Hook::TcxEgress => 0,
        }
    }
}

/// Loads `program` and attaches it to an interface, until the returned link is closed.
pub(crate) fn attach(hook: Hook, ifindex: u32, program: &[Instruction]) -> io::Result<OwnedFd> {
    attach_loaded(hook, ifindex, load(hook, program)?.as_fd())
}

/// Attaches a program loaded for this hook.
pub(crate) fn attach_loaded(hook: Hook, ifindex: u32, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.word(0, program.as_raw_fd() as u32);
    attributes.word(4, ifindex);
    attributes.word(8, hook.attach_type());
    attributes.word(12, hook.flags());
    // SAFETY: this command's attributes have no pointers here.
    unsafe { attributes.call(BPF_LINK_CREATE) }
}

/// Detaches the program of a link from its interface at once. The link stays open, without effect.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.word(0, link.as_raw_fd() as u32);
    // SAFETY: this command's attributes have no pointers.
    unsafe { attributes.command(BPF_LINK_DETACH) }.map(drop)
}

/// Replaces the program of a link: each packet meets either the old or the new one.
pub(crate) fn update(link: BorrowedFd<'_>, hook: Hook, program: &[Instruction]) -> io::Result<()> {
    let program = load(hook, program)?;
    let mut attributes = Attributes::default();
    attributes.word(0, link.as_raw_fd() as u32);
    attributes.word(4, program.as_raw_fd() as u32);
    // SAFETY: this command's attributes have no pointers.
    unsafe { attributes.command(BPF_LINK_UPDATE) }.map(drop)
}

/// Index of the interface that a TCX link is attached to; `None` if the interface is gone, or the link is of another
/// type.
pub(crate) fn interface_of(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // struct bpf_link_info: type, id, program, padding, then ifindex.
    let mut info = [0_u32; 16];
    let mut attributes = Attributes::default();
    attributes.word(0, link.as_raw_fd() as u32);
    attributes.word(4, size_of_val(&info) as u32);
    attributes.long(8, info.as_mut_ptr() as u64);
    // SAFETY: the pointer is that of a live array of the length given.
    unsafe { attributes.command(BPF_OBJ_GET_INFO_BY_FD) }?;
    Ok(Some(info[4]).filter(|ifindex| info[0] == BPF_LINK_TYPE_TCX && *ifindex != 0))
}

/// Gives a link a name in a BPF file system, under which it outlives every process.
pub(crate) fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes::default();
    attributes.long(0, path.as_ptr() as u64);
    attributes.word(8, link.as_raw_fd() as u32);
    // SAFETY: the pointer is that of a live string that ends with a zero; the kernel only reads it.
    unsafe { attributes.command(BPF_OBJ_PIN) }.map(drop)
}

/// Opens the object pinned at a path.
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes::default();
    attributes.long(0, path.as_ptr() as u64);
    // SAFETY: the pointer is that of a live string that ends with a zero; the kernel only reads it.
    unsafe { attributes.call(BPF_OBJ_GET) }
}

/// True if a path lies in a BPF file system.
pub(crate) fn is_bpf_file_system(path: &Path) -> io::Result<bool> {
    const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: integers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends with a zero, and a live structure that the kernel fills in.
    super::check(unsafe { libc::statfs(path.as_ptr(), &raw mut found) })?;
    Ok(found.f_type as u64 & 0xffff_ffff == BPF_FS_MAGIC)
}

/// An array of one program, to be called from another by its number 0. The kernel empties the array when the last
/// process that has it open ends, however it ends, even if a program still refers to it.
pub(crate) fn program_array() -> io::Result<OwnedFd> {
    map(BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 1)
}

/// Puts a program into an array of programs, replacing the one before.
pub(crate) fn enter_program(array: BorrowedFd<'_>, hook: Hook, program: &[Instruction]) -> io::Result<()> {
    enter_loaded(array, load(hook, program)?.as_fd())
}

/// Puts a loaded program into an array of programs.
pub(crate) fn enter_loaded(array: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    enter(array, 0, program.as_raw_fd())
}

/// A hash table with keys of `key` bytes and values of eight, which evicts the least recently used entry when full.
pub(crate) fn recent_map(key: u32, entries: u32) -> io::Result<OwnedFd> {
    map(BPF_MAP_TYPE_LRU_HASH, key, 8, entries)
}

/// Memory of so many bytes, all zero, that programs and this process share.
pub(crate) fn shared_map(bytes: u32) -> io::Result<OwnedFd> {
    /// `BPF_F_MMAPABLE`
    const MAPPABLE: u32 = 1 << 10;
    flagged_map(BPF_MAP_TYPE_ARRAY, 4, bytes, 1, MAPPABLE)
}

/// Loads a program, to be attached later.
pub(crate) fn load(hook: Hook, program: &[Instruction]) -> io::Result<OwnedFd> {
    load_as(hook.kind(), program)
}

/// Loads the filter of a socket.
pub(crate) fn load_filter(program: &[Instruction]) -> io::Result<OwnedFd> {
    const SOCKET_FILTER: u32 = 1;
    load_as(Kind { program: SOCKET_FILTER, attach: 0, flags: 0 }, program)
}

/// Loads a program for a tracepoint of the kernel, to be attached later. Takes CAP_PERFMON.
pub(crate) fn load_trace(program: &[Instruction]) -> io::Result<OwnedFd> {
    const RAW_TRACEPOINT: u32 = 17;
    load_as(Kind { program: RAW_TRACEPOINT, attach: 0, flags: 0 }, program)
}

/// Attaches a loaded program to a tracepoint of the kernel, until the returned descriptor is closed.
pub(crate) fn attach_trace(tracepoint: &CStr, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.long(0, tracepoint.as_ptr() as u64);
    attributes.word(8, program.as_raw_fd() as u32);
    // SAFETY: the pointer is that of a live string that ends with a zero; the kernel only reads it.
    unsafe { attributes.call(BPF_RAW_TRACEPOINT_OPEN) }
}

/// Kind of a program.
#[derive(Clone, Copy)]
struct Kind {
    /// `enum bpf_prog_type`
    program: u32,
    /// `enum bpf_attach_type`
    attach: u32,
    /// `BPF_F_...`
    flags: u32,
}

fn load_as(kind: Kind, program: &[Instruction]) -> io::Result<OwnedFd> {
    let attributes = load_attributes(kind, program);
    let mut tries = 0;
    loop {
        // SAFETY: the pointers are those of a live slice of instructions, of the length given, and of a string that ends
        // with a zero; the kernel only reads them.
        match unsafe { attributes.call(BPF_PROG_LOAD) } {
            // The verifier gives up where a signal comes in meanwhile, as when the process is asked to end.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < MOST_TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Attributes of the command that loads a program. They point at it.
fn load_attributes(kind: Kind, program: &[Instruction]) -> Attributes {
    const LICENCE: &CStr = c"Apache-2.0";
    let mut attributes = Attributes::default();
    attributes.word(0, kind.program);
    attributes.word(4, program.len() as u32);
    attributes.long(8, program.as_ptr() as u64);
    attributes.long(16, LICENCE.as_ptr() as u64);
    attributes.word(44, kind.flags);
    attributes.bytes(48, b"wirerate");
    attributes.word(68, kind.attach);
    attributes
}

/// Most retries of loading a program whose verification a signal interrupted.
const MOST_TRIES: u32 = 10;

/// A map from queues to AF_XDP sockets.
pub(crate) fn socket_map(entries: u32) -> io::Result<OwnedFd> {
    map(BPF_MAP_TYPE_XSKMAP, 4, 4, entries)
}

fn map(kind: u32, key: u32, value: u32, entries: u32) -> io::Result<OwnedFd> {
    flagged_map(kind, key, value, entries, 0)
}

fn flagged_map(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    for (at, value) in [(0, kind), (4, key), (8, value), (12, entries), (16, flags)] {
        attributes.word(at, value);
    }
    attributes.bytes(28, b"wirerate");
    // SAFETY: this command's attributes have no pointers.
    unsafe { attributes.call(BPF_MAP_CREATE) }
}

/// Enters the socket of a queue into the map.
pub(crate) fn map_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    enter(map, queue, socket.as_raw_fd())
}

/// Enters a file descriptor into a map.
fn enter(map: BorrowedFd<'_>, key: u32, value: RawFd) -> io::Result<()> {
    let mut attributes = Attributes::default();
    attributes.word(0, map.as_raw_fd() as u32);
    attributes.long(8, &raw const key as u64);
    attributes.long(16, &raw const value as u64);
    // SAFETY: key and value are live and of four bytes each, as the map was made for; the kernel only reads them.
    unsafe { attributes.command(BPF_MAP_UPDATE_ELEM) }.map(drop)
}

// enum bpf_cmd, enum bpf_map_type, enum bpf_link_type
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_LINK_DETACH: libc::c_int = 34;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_PROG_ARRAY: u32 = 3;
const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_LINK_TYPE_TCX: u32 = 11;

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
    /// Pointers among the attributes must be valid for the command's accesses.
    unsafe fn command(&self, command: libc::c_int) -> io::Result<libc::c_int> {
        // SAFETY: the kernel reads the attributes, which are live and of this size, and what the caller vouches for.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *self, size_of::<Self>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }

    /// Runs a command that opens an object.
    ///
    /// # Safety
    /// As for `command`, and the command must return a new file descriptor.
    unsafe fn call(&self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: as the caller promises; the descriptor is new and nobody else has it.
        unsafe { self.command(command).map(|fd| OwnedFd::from_raw_fd(fd)) }
    }
}

#[cfg(any(test, feature = "trial"))]
pub(crate) mod trial;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::program;

    pub(crate) use super::trial::{Context, run_loaded, stay_on_this_cpu};

    fn run(hook: Hook, program: &[Instruction], mark: u32) -> io::Result<(i32, u32)> {
        run_on(&[0; 64], hook, program, mark)
    }

    /// Test run of a program on a frame with this mark: the program's return value, and the mark afterwards.
    pub(crate) fn run_on(
        frame: &[u8],
        hook: Hook,
        program: &[Instruction],
        mark: u32,
    ) -> io::Result<(i32, u32)> {
        let program = load(hook, program)?;
        let context = (hook != Hook::Xdp).then(|| Context { mark, ..Context::default() });
        run_loaded(program.as_fd(), frame, context).map(|run| (run.value, run.mark))
    }

    /// Leaves this thread the privileges that the gateway has: CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK and CAP_BPF. False if it has not got them.
    pub(crate) fn confine() -> bool {
        const KEPT: [u32; 2] = [1 << 12 | 1 << 13 | 1 << 14, 1 << (39 - 32)];
        // struct __user_cap_header_struct, version 3, of this thread; then twice effective, permitted, inheritable.
        let header = [0x2008_0522_u32, 0];
        let sets = [KEPT[0], KEPT[0], 0, KEPT[1], KEPT[1], 0];
        // SAFETY: live arrays of the sizes that this version has; only this thread is changed.
        unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) == 0 }
    }

    /// The verifier's log of a program, from which a test tells why it is refused.
    pub(crate) fn verify(
        kind: u32,
        attach_type: u32,
        program: &[Instruction],
    ) -> (io::Result<OwnedFd>, String) {
        let mut log = vec![0_u8; 1 << 24];
        let mut attributes = load_attributes(Kind { program: kind, attach: attach_type, flags: 0 }, program);
        attributes.word(24, 1);
        attributes.word(28, log.len() as u32);
        attributes.long(32, log.as_mut_ptr() as u64);
        // SAFETY: as in `load_as`; the log is a live buffer of the length given.
        let loaded = unsafe { attributes.call(BPF_PROG_LOAD) };
        log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(log.len()));
        (loaded, String::from_utf8_lossy(&log).into_owned())
    }

    /// Results of test runs; `None`, with a message, if the kernel does not let us.
    fn results(runs: &[(Hook, &[Instruction], u32)]) -> Option<Vec<(i32, u32)>> {
        match runs.iter().map(|(hook, program, mark)| run(*hook, program, *mark)).collect() {
            Ok(results) => Some(results),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                eprintln!("SKIPPED: no programs may be loaded here: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_what_is_marked_passes_and_loses_its_mark() {
        let program = program::only_marked(0xffee_7772);
        let runs = [0xffee_7772, 0, 0x7772, 0xffee_7773].map(|mark| (Hook::TcxIngress, &program[..], mark));
        if let Some(results) = results(&runs) {
            assert_eq!(results, [(-1, 0), (2, 0), (2, 0x7772), (2, 0xffee_7773)]);
        }
    }

    #[test]
    fn delivering_marks_and_redirects_and_diverting_redirects() {
        let (deliver, divert) =
            (program::deliver(0x8000_0001, 1), program::divert(1, wire::LinkKind::Ethernet));
        let runs = [(Hook::TcxIngress, &deliver[..], 0), (Hook::TcxEgress, &divert[..], 5)];
        if let Some(results) = results(&runs) {
            assert_eq!(results, [(7, 0x8000_0001), (7, 5)]);
        }
    }

    #[test]
    fn a_frame_of_a_queue_without_a_socket_is_dropped() {
        use std::os::fd::AsFd;
        let map = match socket_map(1) {
            Ok(map) => map,
            Err(error) => return eprintln!("SKIPPED: no maps may be made here: {error}"),
        };
        let program = program::to_sockets(map.as_fd());
        if let Some(results) = results(&[(Hook::Xdp, &program, 0)]) {
            assert_eq!(results[0].0, 1);
        }
    }
}
