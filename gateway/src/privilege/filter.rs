//! Seccomp filter: system calls of a gateway. All others fail as if unknown to the kernel (ENOSYS), so that the C
//! library can fall back on older ones; no process is killed.
//!
//! No process or program can be started; no memory can become executable; sockets are restricted to the families in
//! [`FAMILIES`], and `bpf` to the commands of guards and AF_XDP.

use std::collections::BTreeMap;
use std::fmt;
use std::process;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// System calls permitted with any arguments.
const CALLS: &[c_long] = &[
    // Files.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_memfd_create,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fadvise64,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_futex,
    SYS_FUTEX_WAITV,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // Threads, and what every process has.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_getrlimit,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    // What the C library asks where a thread's stack is.
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
];

/// Number of `futex_waitv`, the same on all architectures (Linux 5.16).
const SYS_FUTEX_WAITV: c_long = 449;

/// Older system calls, absent on newer architectures.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Socket families permitted.
const FAMILIES: [libc::c_int; 6] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// Commands of `bpf` permitted (linux/bpf.h): create a map and update its entries; load a program; pin a link, open a
/// pinned one and query its target; attach a program to a tracepoint; create, update and detach a link.
const BPF_COMMANDS: [u64; 10] = [0, 2, 5, 6, 7, 15, 17, 28, 29, 34];

/// Options of `prctl` permitted: names of threads and of memory, slack of timers, and the auxiliary vector (PR_GET_AUXV).
const PRCTL_OPTIONS: [libc::c_int; 5] =
    [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, libc::PR_SET_TIMERSLACK, 0x4155_5856];

/// Flags of `clone` for a thread of this process.
const THREAD: u64 = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;

/// Flags of `clone` for new namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Reason for the absence of a seccomp filter.
#[derive(Debug)]
pub(super) enum Unfiltered {
    /// No filter for this architecture, or an error of the library.
    Filter(BackendError),
    /// Refusal by the kernel.
    Kernel(seccompiler::Error),
}

impl fmt::Display for Unfiltered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfiltered::Filter(error) => error.fmt(f),
            Unfiltered::Kernel(error) => error.fmt(f),
        }
    }
}

/// Restricts this thread, and those that it starts, to the system calls of a gateway.
///
/// # Errors
/// No seccomp filters in the kernel; nothing is restricted.
pub(super) fn install() -> Result<(), Unfiltered> {
    let program = program().map_err(Unfiltered::Filter)?;
    apply_filter(&program).map_err(Unfiltered::Kernel)
}

fn program() -> Result<BpfProgram, BackendError> {
    let unrestricted = CALLS.iter().chain(OLDER).map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = unrestricted.collect();
    rules.insert(libc::SYS_socket, one_of(0, FAMILIES.map(|family| family as u64))?);
    rules.insert(libc::SYS_socketpair, one_of(0, [libc::AF_UNIX as u64])?);
    rules.insert(libc::SYS_bpf, one_of(0, BPF_COMMANDS)?);
    rules.insert(libc::SYS_prctl, one_of(0, PRCTL_OPTIONS.map(|option| option as u64))?);
    // A panic that aborts; other processes are sent nothing.
    rules.insert(libc::SYS_tgkill, one_of(0, [u64::from(process::id())])?);
    // Limits are asked for, and not set: by no new value, argument 2.
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![without(2, u64::MAX)?])?]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![without(2, libc::PROT_EXEC as u64)?])?]);
    }
    // `clone3`, whose flags lie in memory, is not there: the C library then takes this one.
    let is_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(THREAD), THREAD)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread, without(0, NAMESPACES)?])?]);
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, unknown, SeccompAction::Allow, architecture)?.try_into()
}

/// Rules that match an argument with one of these values.
fn one_of<const N: usize>(argument: u8, values: [u64; N]) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    values.into_iter().map(rule).collect()
}

/// Condition: none of these bits set in an argument.
fn without(argument: u8, bits: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bits), 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread;

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    /// Runs in a thread of its own, so that no other is restricted.
    #[test]
    fn a_program_cannot_be_started_and_a_thread_can() {
        thread::spawn(|| {
            install().unwrap();
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("Seccomp:\t2"), "{status}");
            assert!(Command::new("/bin/true").status().is_err());
            assert!(socket(AddressFamily::BLUETOOTH, SocketType::STREAM, None).is_err());
            assert!(socket(AddressFamily::VSOCK, SocketType::STREAM, None).is_err());
            // What a gateway does all day.
            let (sender, receiver) = channel();
            thread::Builder::new()
                .name("second".to_owned())
                .spawn(move || sender.send(vec![1_u8; 4 << 20].len()).unwrap())
                .unwrap()
                .join()
                .unwrap();
            assert_eq!(receiver.recv().unwrap(), 4 << 20);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            UdpSocket::bind("[::1]:0").unwrap();
            rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).unwrap();
            let path = std::env::temp_dir().join(format!("wirerate-filter-{}", process::id()));
            fs::write(&path, "text").unwrap();
            fs::remove_file(&path).unwrap();
        })
        .join()
        .unwrap();
    }

    /// A panic is reported with its location, and ends only its thread.
    #[test]
    fn a_panic_ends_in_order() {
        let outcome = thread::spawn(|| {
            install().unwrap();
            let inner = thread::spawn(|| std::hint::black_box(&[0_u8][..0])[0]);
            assert!(inner.join().is_err());
            assert!(std::backtrace::Backtrace::force_capture().to_string().contains("a_panic_ends_in_order"));
        });
        outcome.join().unwrap();
    }
}
