//! Sets up a TAP device, and reads its drop counter, by a message to rtnetlink each.

use std::io;
use std::os::fd::AsFd;

use wire::LinkKind;
use wire::ethernet::Mac;

use super::socket;

/// Settings of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The MTU.
    pub(crate) mtu: u32,
    /// The hardware address, if it is to change.
    pub(crate) mac: Option<Mac>,
    /// Link kind of the device.
    pub(crate) kind: LinkKind,
    /// Use of the device by Linux's own stack; a bypassed device has no ARP and no IPv6 addresses of its own.
    pub(crate) stack: Stack,
}

/// User of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// Linux, as any other interface.
    Used,
    /// Nobody: frames are redirected from and to the device.
    Bypassed,
}

/// Applies the settings to a device and brings it up.
pub(crate) fn change(ifindex: u32, change: Change) -> io::Result<()> {
    let mut flags = libc::IFF_UP as u32;
    if change.stack == Stack::Bypassed {
        flags |= libc::IFF_NOARP as u32;
    }
    let mut message = Message::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, ifindex, flags);
    message.attribute(libc::IFLA_MTU, |message| message.bytes(&change.mtu.to_ne_bytes()));
    if let Some(mac) = change.mac {
        message.attribute(libc::IFLA_ADDRESS, |message| message.bytes(&mac.0));
    }
    // Nobody is on a link of bare packets who would hear what comes from a link-local address.
    if change.stack == Stack::Bypassed || change.kind == LinkKind::Ip {
        message.attribute(libc::IFLA_AF_SPEC, |message| {
            message.attribute(libc::AF_INET6 as u16, |message| {
                message
                    .attribute(IFLA_INET6_ADDR_GEN_MODE, |message| message.bytes(&[IN6_ADDR_GEN_MODE_NONE]));
            });
        });
    }
    message.exchange().map(drop)
}

/// Number of frames sent by Linux that a device dropped because its queues were full.
pub(crate) fn lost(ifindex: u32) -> io::Result<u64> {
    let answer = Message::new(libc::RTM_GETLINK, 0, ifindex, 0).exchange()?;
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut rest = answer.get(HEADER + INFO..).ok_or_else(bad)?;
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let attribute = rest.get(4..length).ok_or_else(bad)?;
        if u16::from_ne_bytes([head[2], head[3]]) == libc::IFLA_STATS64 {
            // struct rtnl_link_stats64: received, sent, their bytes, their errors, dropped when received, when sent.
            let dropped = attribute.get(7 * 8..).and_then(|rest| rest.first_chunk()).ok_or_else(bad)?;
            return Ok(u64::from_ne_bytes(*dropped));
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(bad())
}

// linux/if_link.h
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// Bytes of `struct nlmsghdr` and of `struct ifinfomsg`.
const HEADER: usize = 16;
const INFO: usize = 16;

/// A request to rtnetlink about a device, under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, wanted: libc::c_int, ifindex: u32, flags: u32) -> Message {
        let mut message = Message(vec![0; 4]);
        message.bytes(&kind.to_ne_bytes());
        message.bytes(&((libc::NLM_F_REQUEST | wanted) as u16).to_ne_bytes());
        message.bytes(&[0; 8]);
        // Family and type do not matter; flags, and which of them change.
        message.bytes(&[0; 4]);
        message.bytes(&ifindex.to_ne_bytes());
        message.bytes(&flags.to_ne_bytes());
        message.bytes(&flags.to_ne_bytes());
        message
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends an attribute with the content that `body` writes, padded to four bytes.
    fn attribute(&mut self, kind: u16, body: impl FnOnce(&mut Message)) {
        let start = self.0.len();
        self.bytes(&[0; 2]);
        self.bytes(&kind.to_ne_bytes());
        body(self);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Sends the request and returns the kernel's answer or error.
    fn exchange(mut self) -> io::Result<Vec<u8>> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let fd = socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        socket::send(fd.as_fd(), &self.0)?;
        let mut answer = vec![0; 16 << 10];
        let length = loop {
            // Rtnetlink answers before `send` returns, so this does not wait.
            match socket::receive(fd.as_fd(), &mut answer, &mut []) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        answer.truncate(length);
        let (Some(kind), Some(code)) = (
            answer.get(4..).and_then(|rest| rest.first_chunk()),
            answer.get(HEADER..).and_then(|rest| rest.first_chunk()),
        ) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match (i32::from(u16::from_ne_bytes(*kind)), i32::from_ne_bytes(*code)) {
            (libc::NLMSG_ERROR, 0) => Ok(answer),
            (libc::NLMSG_ERROR, code) => Err(io::Error::from_raw_os_error(-code)),
            _ => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_lost_nothing_that_it_could_count() {
        // It has no queue, and every namespace has it, with index 1.
        assert_eq!(lost(1).unwrap(), 0);
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error_of_the_kernel() {
        assert_eq!(lost(i32::MAX as u32).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
