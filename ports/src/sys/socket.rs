//! Sockets: options, addresses, and sending several messages by one call.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, socklen_t};

use super::{Plain, check};

/// A new socket, closed on exec.
pub(crate) fn new(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes and returns numbers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option to plain data.
pub(crate) fn set<T: Plain>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a live value without pointers in it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as socklen_t,
        )
    })
    .map(drop)
}

/// Reads an option that is plain data.
pub(crate) fn get<T: Plain>(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = T::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes `length` bytes at most, all of which any pattern of bits may fill.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

/// Takes the pending error of a socket, and clears it.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> io::Result<()> {
    match get::<c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the number of bytes that a TCP connection's other end has not acknowledged, also after the connection has ended.
///
/// # Errors
/// The socket is none of TCP.
pub fn unacknowledged(connection: impl AsFd) -> io::Result<u32> {
    let mut bytes: c_int = 0;
    let fd = connection.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one `int`.
    check(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.unsigned_abs())
}

/// Attaches a classic BPF program, whose return value is the number of bytes to keep of a frame.
pub(crate) fn filter(socket: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `len` instructions from a live slice.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    })
    .map(drop)
}

/// Attaches a BPF program loaded as a socket filter, in place of the filter before.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

/// Binds to an address.
pub(crate) fn bind<A: Plain>(socket: BorrowedFd<'_>, address: &A) -> io::Result<()> {
    // SAFETY: pointer and length are those of a live value.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const *address).cast(), size_of::<A>() as socklen_t)
    })
    .map(drop)
}

/// Sends each of `packets` as one message, up to [`wire::BATCH`] of them: returns the number sent, at least one, or the
/// error of the first. Does not block.
pub(crate) fn send_many<'a>(
    socket: BorrowedFd<'_>,
    packets: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    send_many_to(socket, packets.map(|packet| (packet, None::<&c_int>)))
}

/// Sends as [`send_many`] does, each packet to the address beside it, if there is one.
pub(crate) fn send_many_to<'a, A: Plain + 'a>(
    socket: BorrowedFd<'_>,
    packets: impl Iterator<Item = (&'a [u8], Option<&'a A>)>,
) -> io::Result<usize> {
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; wire::BATCH];
    // SAFETY: all zeros is a message header without parts, address or control data.
    let mut messages: [libc::mmsghdr; wire::BATCH] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    for ((part, message), (packet, address)) in parts.iter_mut().zip(&mut messages).zip(packets) {
        *part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        if let Some(address) = address {
            message.msg_hdr.msg_name = (&raw const *address).cast_mut().cast();
            message.msg_hdr.msg_namelen = size_of::<A>() as socklen_t;
        }
        count += 1;
    }
    for (message, part) in messages.iter_mut().zip(&mut parts[..count]) {
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `count` messages point at live parts, which point at packets that outlive the call (`'a`), as their
    // addresses do; the kernel only reads them.
    let sent = check(unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
    })?;
    Ok(sent as usize)
}

/// Sends one message.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads a live slice of this length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends one message made of parts, one after the other. Does not block.
pub(crate) fn send_parts(socket: BorrowedFd<'_>, parts: [&[u8]; 2]) -> io::Result<()> {
    let mut parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: all zeros is a message header without parts, address or control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the kernel only reads the parts, which are live and of these lengths.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one message into `head` and its rest into `body`, without blocking. Returns its length, which exceeds both
/// if the message was truncated.
pub(crate) fn receive(socket: BorrowedFd<'_>, head: &mut [u8], body: &mut [u8]) -> io::Result<usize> {
    let mut parts = [head, body]
        .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast::<c_void>(), iov_len: part.len() });
    // SAFETY: all zeros is a message header without parts, address or control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    // SAFETY: the kernel writes to the two parts only, which are live and of these lengths.
    let length =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// True if there is something to receive. Does not block.
pub(crate) fn is_readable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel reads and writes one live entry.
    check(unsafe { libc::poll(&raw mut asked, 1, 0) }).map(|ready| ready > 0)
}

/// One descriptor to wait for several.
pub(crate) struct Waiter(OwnedFd);

impl Waiter {
    /// Creates a descriptor that is readable when one of `fds` is.
    pub(crate) fn new<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Waiter> {
        // SAFETY: takes and returns numbers.
        let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: just opened, and nobody else has it.
        let waiter = Waiter(unsafe { OwnedFd::from_raw_fd(epoll) });
        for fd in fds {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: the kernel reads one live event.
            check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) })?;
        }
        Ok(waiter)
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
