//! DHCP clients on the gateway itself: the last request of each, by interface and time.
//!
//! A client sends from an address that it may not have yet to all hosts on its link. Any server answers, from an address
//! unknown before, to the broadcast address or to one that the client does not have yet (RFC 2131, section 4.1; RFC
//! 8415, section 18): no flow key joins request and answer. The interface is remembered instead. For [`PATIENCE`] after
//! a request has left by an interface, a datagram received there from a server's port to a client's is for the gateway
//! itself, without a rule.
//!
//! Promises: memory of fixed size, no locks, constant work. Workers share the memory, as an answer may be received by
//! another worker than the sender of the request. Interfaces whose numbers collide overwrite one another's entry: the
//! answer to a client then goes through the rules, and the client asks again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::Nanos;
use wire::header::{Ports, Protocol};
use wire::{Family, Frame, ipv4, ipv6};

/// Time after a request during which answers are accepted. Servers that probe an address before they offer it take a
/// second or two; a client retransmits sooner than that at first (RFC 2131, section 4.1).
pub const PATIENCE: Nanos = Nanos::from_secs(30);

/// Ports of servers and clients (RFC 2131, section 4.1; RFC 8415, section 7.2).
const SERVER4: u16 = 67;
const CLIENT4: u16 = 68;
const CLIENT6: u16 = 546;
const SERVER6: u16 = 547;

/// Interfaces of each family that are remembered at most.
const PLACES: usize = 256;

/// Value of an entry without a request.
const NOBODY: u64 = u64::MAX;

/// Time of the clients' last request, by interface.
pub struct Clients {
    /// By family: interface number in the upper half, time in units of 134 ms in the lower.
    requests: [[AtomicU64; PLACES]; 2],
}

impl Default for Clients {
    fn default() -> Clients {
        let nobody = || std::array::from_fn(|_| AtomicU64::new(NOBODY));
        Clients { requests: [nobody(), nobody()] }
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    /// Records a request that leaves by the interface of that number.
    pub fn ask(&self, family: Family, interface: u32, now: Nanos) {
        // The order among workers is that of the frames themselves: the answer comes after the request was sent.
        self.place(family, interface)
            .store(u64::from(interface) << 32 | u64::from(moment(now)), Ordering::Release);
    }

    /// True if a request has left by the interface of that number within [`PATIENCE`].
    pub fn have_asked(&self, family: Family, interface: u32, now: Nanos) -> bool {
        let found = self.place(family, interface).load(Ordering::Acquire);
        // A worker may be a little behind the one that has sent the request.
        let age = moment(now).saturating_sub(found as u32);
        found != NOBODY && (found >> 32) as u32 == interface && age < moment(PATIENCE)
    }

    fn place(&self, family: Family, interface: u32) -> &AtomicU64 {
        &self.requests[usize::from(family == Family::V6)][interface as usize % PLACES]
    }
}

/// Returns a time in units of 134 ms; 32 bits last eighteen years.
fn moment(time: Nanos) -> u32 {
    (time.0 >> 27) as u32
}

/// True if these are the ports of a request.
pub(crate) fn is_request(family: Family, protocol: u8, sport: u16, dport: u16) -> bool {
    let ports = if family == Family::V6 { (CLIENT6, SERVER6) } else { (CLIENT4, SERVER4) };
    protocol == Protocol::UDP.0 && (sport, dport) == ports
}

/// True if these are the ports of an answer.
pub(crate) fn is_answer(family: Family, protocol: u8, sport: u16, dport: u16) -> bool {
    is_request(family, protocol, dport, sport)
}

/// Returns the family of a DHCP request that the gateway sends to a multicast or broadcast address; `parse` has noted
/// only where its IP header begins.
pub(crate) fn request_to_group(frame: &Frame) -> Option<Family> {
    let packet = frame.bytes().get(usize::from(frame.meta.network)..)?;
    let (family, protocol, payload) = match packet.first()? >> 4 {
        4 => {
            let packet = ipv4::parse(packet).ok()?;
            (Family::V4, packet.header.protocol().0, packet.payload)
        }
        6 => {
            let packet = ipv6::parse(packet).ok()?;
            (Family::V6, packet.protocol().0, packet.payload)
        }
        _ => return None,
    };
    let ports = Ports::of(payload)?;
    is_request(family, protocol, ports.sport, ports.dport).then_some(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_expected_for_a_while_and_of_one_interface_and_family() {
        let clients = Clients::default();
        let at = |seconds| Nanos::from_secs(seconds);
        assert!(!clients.have_asked(Family::V4, 0, at(0)), "nobody has asked");
        clients.ask(Family::V4, 7, at(100));
        assert!(clients.have_asked(Family::V4, 7, at(100)));
        assert!(clients.have_asked(Family::V4, 7, at(129)));
        assert!(!clients.have_asked(Family::V4, 7, at(131)));
        assert!(!clients.have_asked(Family::V6, 7, at(101)));
        assert!(!clients.have_asked(Family::V4, 8, at(101)));
        assert!(!clients.have_asked(Family::V4, 7 + PLACES as u32, at(101)), "another one of the same place");
        clients.ask(Family::V4, 7, at(200));
        assert!(clients.have_asked(Family::V4, 7, at(201)));
        // The clock of another worker is behind.
        assert!(clients.have_asked(Family::V4, 7, at(199)));
    }
}
