//! Packets in packet syntax, as people write them: `lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn ttl 3`.
//!
//! The syntax is that of case files ([`cases::received()`]). Errors point at the word.

use cases::{Fault, Received};
use dataplane::Tables;

/// Help text on the syntax.
pub const GRAMMAR: &str = "\
A packet in words, as in case files; docs/cases.md has all words:
  IFACE PROTOCOL SOURCE > DESTINATION [WORD...]
    IFACE      an interface of the policy, by which it comes in
    PROTOCOL   tcp udp icmp icmpv6 sctp gre esp ... or a number
    SOURCE     192.0.2.1:50000, [2001:db8::1]:443;
               without a port where the protocol has none
    WORD       syn ack fin rst psh urg, also joined by commas, none
               (TCP; syn if none is named); seq N; ack N; win N; mss N;
               echo-request, echo-reply, port-unreachable ... or
               TYPE/CODE (ICMP; echo-request if none is named); id N;
               seq N; ttl N; dscp ef; df; length N (bytes of the IP
               packet); len N (of the payload); data HEX;
               fragment OFFSET[+] (+: more follow); vlan ID[.ID];
               pcp N (of its VLAN tags); dei; from MAC; to MAC; quoting PACKET (ICMP)";

/// A packet in words.
pub const EXAMPLE: &str = "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn";

/// Error in a packet in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}\n  {text}\n  {}", fault.marks(text))]
pub struct WordError {
    text: String,
    fault: Fault,
}

impl WordError {
    /// Returns advice on the error, where there is some but for an [`EXAMPLE`].
    pub fn hint(&self) -> Option<String> {
        self.fault.hint()
    }
}

/// Reads a packet in words, and builds its frame.
///
/// # Errors
/// A word is not understood, or the policy has no such interface.
pub fn read(text: &str, tables: &Tables) -> Result<Received, WordError> {
    cases::received(text, tables).map_err(|fault| WordError { text: text.to_owned(), fault })
}

#[cfg(test)]
mod tests;
