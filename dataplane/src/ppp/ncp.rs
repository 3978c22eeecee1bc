//! Options of the network control protocols: addresses of IPv4 (RFC 1332), interface identifiers of IPv6 (RFC 5072). Compression of headers,
//! addresses of name servers and all else are refused.

use arrayvec::ArrayVec;
use policy::model::PppRole;
use wire::ppp::{Protocol, option};

use super::control::{Answer, Negotiation, OptionBytes};
use super::lcp::collected;
use super::random::Random;

/// IPv4 addresses of both ends.
#[derive(Debug)]
pub(super) struct Ipcp {
    role: PppRole,
    own: u32,
    /// The peer's by the policy.
    peer: Option<u32>,
    /// The peer's request had an address.
    is_named: bool,
    /// Address that the peer wants the gateway to have in the place of the policy's.
    pub(super) refused: Option<u32>,
}

impl Ipcp {
    pub(super) fn new(role: PppRole, own: u32, peer: Option<u32>) -> Ipcp {
        Ipcp { role, own, peer, is_named: false, refused: None }
    }
}

fn address(address: u32) -> ArrayVec<u8, 16> {
    collected(option::IP_ADDRESS, &address.to_be_bytes())
}

impl Negotiation for Ipcp {
    const PROTOCOL: Protocol = Protocol::IPCP;

    fn request(&mut self, options: &mut OptionBytes) {
        let _ = options.try_extend_from_slice(&address(self.own));
    }

    fn begin(&mut self) {
        self.is_named = false;
    }

    fn answer(&mut self, kind: u8, value: &[u8]) -> Answer {
        let (option::IP_ADDRESS, Ok(value)) = (kind, <[u8; 4]>::try_from(value)) else {
            return Answer::Reject;
        };
        self.is_named = true;
        let asked = u32::from_be_bytes(value);
        match self.peer {
            Some(peer) if asked == peer => Answer::Ack,
            Some(peer) => Answer::Nak(address(peer)),
            // There is none to give.
            None if asked == 0 => Answer::Reject,
            None => Answer::Ack,
        }
    }

    fn missing(&self) -> Option<ArrayVec<u8, 16>> {
        let peer = self.peer.filter(|_| self.role == PppRole::Server && !self.is_named)?;
        Some(address(peer))
    }

    fn nak(&mut self, kind: u8, value: &[u8]) -> bool {
        match (kind, <[u8; 4]>::try_from(value)) {
            (option::IP_ADDRESS, Ok(value)) => {
                let proposed = u32::from_be_bytes(value);
                if proposed != self.own {
                    self.refused = Some(proposed);
                }
                proposed == self.own
            }
            // What was not asked for, such as name servers, is not needed.
            (kind, _) => kind != option::IP_ADDRESS,
        }
    }

    fn reject(&mut self, kind: u8) -> bool {
        kind != option::IP_ADDRESS
    }
}

/// Interface identifiers of both ends.
#[derive(Debug)]
pub(super) struct Ipv6cp {
    own: u64,
    sends: bool,
    random: Random,
}

impl Ipv6cp {
    pub(super) fn new(mut random: Random) -> Ipv6cp {
        Ipv6cp { own: random.identifier(), sends: true, random }
    }
}

fn identifier(identifier: u64) -> ArrayVec<u8, 16> {
    collected(option::INTERFACE_IDENTIFIER, &identifier.to_be_bytes())
}

impl Negotiation for Ipv6cp {
    const PROTOCOL: Protocol = Protocol::IPV6CP;

    fn request(&mut self, options: &mut OptionBytes) {
        if self.sends {
            let _ = options.try_extend_from_slice(&identifier(self.own));
        }
    }

    fn begin(&mut self) {}

    fn answer(&mut self, kind: u8, value: &[u8]) -> Answer {
        let (option::INTERFACE_IDENTIFIER, Ok(value)) = (kind, <[u8; 8]>::try_from(value)) else {
            return Answer::Reject;
        };
        // One of its own for each end (section 4.1).
        match u64::from_be_bytes(value) {
            asked if asked == 0 || asked == self.own => Answer::Nak(identifier(self.random.identifier())),
            _ => Answer::Ack,
        }
    }

    fn nak(&mut self, kind: u8, value: &[u8]) -> bool {
        if let (option::INTERFACE_IDENTIFIER, Ok(value)) = (kind, <[u8; 8]>::try_from(value)) {
            let proposed = u64::from_be_bytes(value);
            self.own = if proposed == 0 { self.random.identifier() } else { proposed };
        }
        true
    }

    fn reject(&mut self, kind: u8) -> bool {
        self.sends &= kind != option::INTERFACE_IDENTIFIER;
        true
    }
}
