//! A host's raw view of an interface: frames sent and received, byte by byte, by a plain packet socket.

use std::ffi::CString;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A socket on one interface of this thread's namespace, without rings, offloads or filters.
pub(crate) struct Raw(OwnedFd);

impl Raw {
    pub(crate) fn open(name: &str) -> Raw {
        let name = CString::new(name).unwrap();
        // SAFETY: pointers and lengths are those of live values; the descriptor is new and nobody else has it.
        unsafe {
            let protocol = (libc::ETH_P_ALL as u16).to_be();
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            let socket = Raw(OwnedFd::from_raw_fd(fd));
            for (option, value) in [(libc::PACKET_AUXDATA, 1i32), (libc::PACKET_IGNORE_OUTGOING, 1)] {
                assert_eq!(libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const value).cast(), 4), 0);
            }
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let length = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
            socket
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: a live slice.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// The next frame, with the tag that Linux took out put back.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        if !super::wait(self.0.as_fd(), Duration::from_millis(500)) {
            return None;
        }
        let mut frame = vec![0; 70000];
        let mut control = [0u64; 32];
        // SAFETY: the kernel writes to the two buffers only, of these lengths.
        let (length, tag) = unsafe {
            let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let length = libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0);
            assert!(length >= 0);
            let mut tag = None;
            let mut entry = libc::CMSG_FIRSTHDR(&raw const message);
            while !entry.is_null() {
                if (*entry).cmsg_type == libc::PACKET_AUXDATA {
                    let data = libc::CMSG_DATA(entry).cast::<libc::tpacket_auxdata>().read_unaligned();
                    if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                        tag = Some((data.tp_vlan_tpid, data.tp_vlan_tci));
                    }
                }
                entry = libc::CMSG_NXTHDR(&raw const message, entry);
            }
            (length as usize, tag)
        };
        frame.truncate(length);
        if let Some((tpid, tci)) = tag {
            frame.splice(12..12, [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        Some(frame)
    }
}
