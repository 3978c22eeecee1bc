//! XDP features of interfaces, by a message to the kernel's generic netlink family `netdev` (Linux 6.3).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::socket;

/// True if a device takes frames that a program at XDP redirects to it (`ndo_xdp_xmit`), as of now: a veth does while its peer has a program
/// at XDP, or GRO.
///
/// # Errors
/// There is no such interface, or the kernel does not know.
pub(crate) fn takes_frames(ifindex: u32) -> io::Result<bool> {
    let fd = socket::new(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    let answer = ask(fd.as_fd(), CONTROLLER, GET_FAMILY, (FAMILY_NAME, b"netdev\0"))?;
    let family = attribute(&answer, FAMILY_ID).and_then(|id| id.first_chunk()).ok_or_else(bad)?;
    let family = u16::from_ne_bytes(*family);
    let answer = ask(fd.as_fd(), family, GET_DEVICE, (IFINDEX, &ifindex.to_ne_bytes()))?;
    let features = attribute(&answer, XDP_FEATURES).and_then(|features| features.first_chunk());
    Ok(u64::from_ne_bytes(*features.ok_or_else(bad)?) & TRANSMITS != 0)
}

// linux/genetlink.h, linux/netdev.h
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_DEVICE: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`
const TRANSMITS: u64 = 1 << 2;

/// Bytes of `struct nlmsghdr`, and of that and `struct genlmsghdr`.
const HEADER: usize = 16;
const HEADERS: usize = 20;

fn bad() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Sends a request with one attribute, and returns the answer's attributes.
fn ask(fd: BorrowedFd<'_>, family: u16, command: u8, (kind, value): (u16, &[u8])) -> io::Result<Vec<u8>> {
    let length = (4 + value.len()) as u16;
    let mut request = vec![0; 4];
    request.extend_from_slice(&family.to_ne_bytes());
    request.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[command, 1, 0, 0]);
    request.extend_from_slice(&length.to_ne_bytes());
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(4), 0);
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    socket::send(fd, &request)?;
    let mut answer = vec![0; 16 << 10];
    let length = loop {
        // The kernel answers before `send` returns, so this does not wait.
        match socket::receive(fd, &mut answer, &mut []) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    answer.truncate(length);
    let kind = answer.get(4..).and_then(|rest| rest.first_chunk()).ok_or_else(bad)?;
    if i32::from(u16::from_ne_bytes(*kind)) == libc::NLMSG_ERROR {
        let code = answer.get(HEADER..).and_then(|rest| rest.first_chunk()).ok_or_else(bad)?;
        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*code)));
    }
    Ok(answer.split_off(HEADERS.min(answer.len())))
}

/// Content of the attribute of a kind.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let content = rest.get(4..length)?;
        if u16::from_ne_bytes([c, d]) == wanted {
            return Some(content);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_takes_no_frames() {
        match takes_frames(1) {
            Ok(takes) => assert!(!takes),
            Err(error) => eprintln!("SKIPPED: the kernel knows no such features: {error}"),
        }
        assert!(takes_frames(i32::MAX as u32).is_err());
    }
}
