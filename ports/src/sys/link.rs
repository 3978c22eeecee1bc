//! Sets up a device of our own by one message to rtnetlink.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use wire::ethernet::Mac;

use super::socket;

/// What to change of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The MTU.
    pub(crate) mtu: u32,
    /// The address, where it is to be another.
    pub(crate) mac: Option<Mac>,
    /// Whether Linux's own stack is to use the device, or nobody: then no ARP, and no IPv6 addresses of its own.
    pub(crate) stack: Stack,
}

/// Who uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// Linux, as any other interface.
    Used,
    /// Nobody: frames are redirected from and to it.
    Bypassed,
}

/// Applies the change to a device and brings it up.
pub(crate) fn change(ifindex: u32, change: Change) -> io::Result<()> {
    let mut message = Message::new();
    let mut flags = libc::IFF_UP as u32;
    if change.stack == Stack::Bypassed {
        flags |= libc::IFF_NOARP as u32;
    }
    // struct ifinfomsg: family, padding, type, index, flags, which of them change.
    message.bytes(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
    message.bytes(&ifindex.to_ne_bytes());
    message.bytes(&flags.to_ne_bytes());
    message.bytes(&flags.to_ne_bytes());
    message.attribute(libc::IFLA_MTU, |message| message.bytes(&change.mtu.to_ne_bytes()));
    if let Some(mac) = change.mac {
        message.attribute(libc::IFLA_ADDRESS, |message| message.bytes(&mac.0));
    }
    if change.stack == Stack::Bypassed {
        message.attribute(libc::IFLA_AF_SPEC, |message| {
            message.attribute(libc::AF_INET6 as u16, |message| {
                message
                    .attribute(IFLA_INET6_ADDR_GEN_MODE, |message| message.bytes(&[IN6_ADDR_GEN_MODE_NONE]));
            });
        });
    }
    message.send()
}

// linux/if_link.h
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// A request to rtnetlink while it is written.
struct Message(Vec<u8>);

impl Message {
    fn new() -> Message {
        let mut header = vec![0; 16];
        header[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        header[6..8].copy_from_slice(&flags.to_ne_bytes());
        Message(header)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// An attribute of what `body` writes, padded to four bytes.
    fn attribute(&mut self, kind: u16, body: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.bytes(&[0; 2]);
        self.bytes(&kind.to_ne_bytes());
        body(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Sends it and waits for the kernel's answer.
    fn send(mut self) -> io::Result<()> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let fd = socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        // SAFETY: the kernel reads a live slice of this length.
        let sent = unsafe { libc::send(fd.as_raw_fd(), self.0.as_ptr().cast(), self.0.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = [0; 512];
        let length = loop {
            // Rtnetlink answers before `send` returns, so this does not wait.
            match socket::receive(fd.as_fd(), &mut answer, &mut []) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        // struct nlmsghdr, then the error's number, negative, or 0.
        let code = answer.get(16..20).filter(|_| length >= 20).and_then(|code| code.try_into().ok());
        match code.map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
