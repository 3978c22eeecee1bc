//! Network namespaces of a test's own, with real Linux hosts in them. Nothing outside of them is touched, and they go
//! with the threads that live in them.
#![allow(unsafe_code, dead_code, unused_imports)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) mod line;
mod raw;

pub(crate) use raw::Raw;

/// Runs a test on a thread in a network namespace of its own: what it calls `here`. Says so and passes without
/// privileges.
pub(crate) fn run(test: impl FnOnce() + Send + 'static) {
    let done = thread::spawn(|| {
        if let Err(reason) = enter() {
            eprintln!("SKIPPED: {reason}");
            return;
        }
        ip("link set lo up");
        test();
    });
    if let Err(panic) = done.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A thread in another network namespace.
pub(crate) struct Host {
    tid: i32,
    tasks: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn new() -> Host {
        let (tasks, inbox) = channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            enter().unwrap();
            ip("link set lo up");
            // SAFETY: takes nothing and returns a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            inbox.into_iter().for_each(|task| task());
        });
        Host { tid: told.recv().unwrap(), tasks: Some(tasks), thread: Some(thread) }
    }

    /// Makes a pair of interfaces, `near` here and `far` at the host, with as many queues each.
    pub(crate) fn connect(&self, near: &str, far: &str, queues: u32) {
        let of = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add {near} {of} type veth peer name {far} netns {} {of}", self.tid));
        quiet(near);
        ip(&format!("link set {near} up"));
        let far = far.to_owned();
        self.run(move || {
            quiet(&far);
            ip(&format!("link set {far} up"));
        });
    }

    /// Runs something at the host and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(task)()
    }

    /// Starts a task at the host; the returned closure waits for its result.
    pub(crate) fn start<T, F>(&self, task: F) -> impl FnOnce() -> T + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tell, told) = channel();
        let task: Box<dyn FnOnce() + Send> = Box::new(move || tell.send(task()).unwrap());
        self.tasks.as_ref().unwrap().send(task).unwrap();
        move || told.recv().expect("the task panicked")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        // A panic there has been told already, by `run`.
        let _ = self.thread.take().unwrap().join();
    }
}

/// Keeps an interface from sending by itself: no neighbour discovery, no router solicitations, unless it is given an
/// address.
fn quiet(name: &str) {
    ip(&format!("link set {name} addrgenmode none"));
}

/// `ip` with these arguments, which must succeed.
pub(crate) fn ip(arguments: &str) {
    command("ip", arguments);
}

/// Runs a command in this thread's namespace, which must succeed; returns its output.
pub(crate) fn command(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments}: {}{}",
        said(&output.stderr),
        said(&output.stdout)
    );
    said(&output.stdout)
}

/// True if a ping from here is answered within a second.
pub(crate) fn pings(address: &str) -> bool {
    Command::new("ping").args(["-c1", "-W1", address]).output().unwrap().status.success()
}

/// True if Linux at an address answers within [`PATIENCE`]: on a busy machine, or while an address is resolved anew, the
/// first echo may be too late.
pub(crate) fn answers(address: &str) -> bool {
    let begun = Instant::now();
    loop {
        if pings(address) {
            return true;
        }
        if begun.elapsed() > PATIENCE {
            return false;
        }
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Accepts one connection on `address` and echoes its data once all has arrived.
pub(crate) fn echo(address: IpAddr, port: u16) {
    let listener = TcpListener::bind((address, port)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    stream.write_all(&all).unwrap();
}

/// Sends so many bytes to an echo server, and checks its reply.
pub(crate) fn converse(address: IpAddr, port: u16, bytes: usize) {
    let mut stream = (0..)
        .find_map(|tries| match TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE) {
            Ok(stream) => Some(stream),
            Err(error) => {
                assert!(tries < 100, "{address}: {error}");
                thread::sleep(Duration::from_millis(20));
                None
            }
        })
        .unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = pattern(bytes);
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} of {} bytes came back, or others", back.len(), sent.len());
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Has Linux send data of `socket` as datagrams of so many bytes, segmented by the card.
pub(crate) fn segment_udp(socket: &UdpSocket, bytes: i32) {
    const UDP_SEGMENT: i32 = 103;
    // SAFETY: pointer and length are those of a live number.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, UDP_SEGMENT, (&raw const bytes).cast(), 4)
    };
    assert_eq!(set, 0);
}

/// Waits until a descriptor is readable or has an error; true if so within `patience`.
pub(crate) fn wait(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut waiting = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure.
    unsafe { libc::poll(&raw mut waiting, 1, patience.as_millis() as i32) == 1 }
}

/// Capabilities, by their numbers in linux/capability.h.
pub(crate) const NET_ADMIN: u32 = 12;
pub(crate) const NET_RAW: u32 = 13;
pub(crate) const BPF: u32 = 39;

/// Leaves this thread no other capabilities in force than these.
pub(crate) fn restrict(kept: &[u32]) {
    // Version 3 of the header, this thread; then effective, permitted and inheritable, of 32 capabilities each.
    let header = [0x2008_0522_u32, 0];
    let mut data = [0_u32; 6];
    // SAFETY: both point at live arrays of the sizes that this version has.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) }, 0);
    for half in 0..2 {
        let kept = kept.iter().filter(|capability| **capability / 32 == half);
        data[3 * half as usize] = kept.fold(0, |set, capability| set | 1 << (capability % 32));
    }
    // SAFETY: as above.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }, 0);
}

fn enter() -> Result<(), String> {
    // SAFETY: takes a number; changes only this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(format!("no network namespace of our own: {}", std::io::Error::last_os_error()))
}
