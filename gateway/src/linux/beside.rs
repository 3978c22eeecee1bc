//! Linux state that the gateway does not follow, and that therefore has no effect on its packets: queueing disciplines
//! of its interfaces, and routing rules.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator};

use super::message::{AF_INET, AF_INET6, HEADER};
use super::socket::{Received, Socket, wait};

const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
pub(super) const RTM_NEWQDISC: u16 = 36;
pub(super) const RTM_GETQDISC: u16 = 38;

/// Attributes of `<linux/rtnetlink.h>` and `<linux/fib_rules.h>`.
const TCA_KIND: u16 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;

/// Bytes of `struct tcmsg` and of `struct fib_rule_hdr`.
pub(super) const TCMSG: usize = 20;
const RULE: usize = 12;

/// Smallest special parent: the root, or the handle of `ingress` and `clsact`, which queue nothing.
const NOT_A_CLASS: u32 = 0xffff_0000;
const ROOT: u32 = 0xffff_ffff;

/// Default disciplines of interfaces.
const USUAL: [&str; 4] = ["noqueue", "mq", "fq_codel", "pfifo_fast"];

/// Sysctl with the configured default discipline.
const DEFAULT: &str = "/proc/sys/net/core/default_qdisc";

/// Priority and table of Linux's default rules.
const BEGUN_WITH: [(u32, u32); 3] = [(0, 255), (32_766, 254), (32_767, 253)];

/// Time limit for Linux's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Qdisc {
    /// Index of the interface.
    pub(crate) link: u32,
    /// Kind: `tbf`, `htb` and so on.
    pub(crate) kind: String,
}

/// Routing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    v6: bool,
    priority: u32,
    table: u32,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = if self.v6 { "-6 " } else { "" };
        write!(f, "`ip {version}rule` {} (table {})", self.priority, self.table)
    }
}

/// Returns queueing disciplines other than the defaults.
///
/// # Errors
/// Failed dump.
pub(crate) fn qdiscs() -> io::Result<BTreeSet<Qdisc>> {
    let default = fs::read_to_string(DEFAULT).unwrap_or_default();
    let mut found = BTreeSet::new();
    list(RTM_GETQDISC, &[0; TCMSG], |kind, body| {
        let (RTM_NEWQDISC, Some(qdisc)) = (kind, qdisc_of(body)) else { return };
        if !USUAL.contains(&qdisc.kind.as_str()) && qdisc.kind != default.trim() {
            found.insert(qdisc);
        }
    })?;
    Ok(found)
}

/// Returns routing rules other than the defaults.
///
/// # Errors
/// Failed dump.
pub(crate) fn rules() -> io::Result<BTreeSet<Rule>> {
    let mut found = BTreeSet::new();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0; RULE];
        body[0] = family;
        list(RTM_GETRULE, &body, |kind, body| {
            let (RTM_NEWRULE, Some(rule)) = (kind, rule_of(body)) else { return };
            if !BEGUN_WITH.contains(&(rule.priority, rule.table)) {
                found.insert(rule);
            }
        })?;
    }
    Ok(found)
}

/// Requests a dump and passes the type and body of each of its messages to `take`.
pub(super) fn list(request: u16, body: &[u8], mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let mut socket = Socket::open().map_err(io::Error::other)?;
    let sequence = socket.send(request, NLM_F_DUMP, body)?;
    loop {
        wait(&[socket.as_fd()], Some(PATIENCE))?;
        let mut rest = match socket.receive()? {
            Received::Datagram(bytes) => bytes,
            Received::Nothing => return Err(io::ErrorKind::TimedOut.into()),
            Received::Lost => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
            let length = message.length() as usize;
            let body = rest.get(HEADER..length).unwrap_or(&[]);
            let (kind, is_answer) = (message.message_type(), message.sequence_number() == sequence);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            match kind {
                _ if !is_answer => {}
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let error =
                        body.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
                    return Err(io::Error::from_raw_os_error(-error));
                }
                kind => take(kind, body),
            }
        }
    }
}

/// A word of a message.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Parses a queueing discipline at the root, or below a classful one; `None` for `ingress` and `clsact`.
fn qdisc_of(body: &[u8]) -> Option<Qdisc> {
    let (link, parent) = (number(body, 4)?, number(body, 12)?);
    if parent >= NOT_A_CLASS && parent != ROOT {
        return None;
    }
    let mut attributes = NlasIterator::new(body.get(TCMSG..)?).flatten();
    let kind = attributes.find(|attribute| attribute.kind() == TCA_KIND)?;
    let kind = String::from_utf8_lossy(kind.value()).trim_end_matches('\0').to_owned();
    Some(Qdisc { link, kind })
}

fn rule_of(body: &[u8]) -> Option<Rule> {
    let mut rule = Rule { v6: *body.first()? == AF_INET6, priority: 0, table: u32::from(*body.get(4)?) };
    for attribute in NlasIterator::new(body.get(RULE..)?).flatten() {
        match (attribute.kind(), number(attribute.value(), 0)) {
            (FRA_PRIORITY, Some(priority)) => rule.priority = priority,
            (FRA_TABLE, Some(table)) => rule.table = table,
            _ => {}
        }
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dump after `tc qdisc add dev lo root handle 1: tbf`, with `clsact` beside it.
    #[test]
    fn disciplines_that_queue_are_told_from_those_that_do_not() {
        let message = |parent: u32, kind: &str| {
            let mut body = vec![0, 0, 0, 0];
            body.extend(7_u32.to_ne_bytes());
            body.extend(0x1_0000_u32.to_ne_bytes());
            body.extend(parent.to_ne_bytes());
            body.extend(2_u32.to_ne_bytes());
            body.extend((4 + kind.len() as u16 + 1).to_ne_bytes());
            body.extend(TCA_KIND.to_ne_bytes());
            body.extend(kind.as_bytes());
            body.resize(body.len().next_multiple_of(4).max(body.len() + 1).next_multiple_of(4), 0);
            body
        };
        let tbf = Qdisc { link: 7, kind: "tbf".to_owned() };
        assert_eq!(qdisc_of(&message(ROOT, "tbf")), Some(tbf.clone()));
        assert_eq!(qdisc_of(&message(0x1_0001, "tbf")), Some(tbf));
        assert_eq!(qdisc_of(&message(0xffff_fff1, "clsact")), None);
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let bytes: Vec<u8> = (0..64_u8).map(|byte| byte.wrapping_mul(37)).collect();
        for end in 0..bytes.len() {
            let _ = (qdisc_of(&bytes[..end]), rule_of(&bytes[..end]));
        }
    }
}
