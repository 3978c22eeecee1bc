//! Options of the Link Control Protocol (RFC 1661, section 6). Compression of protocol and address fields, and framing of serial lines, are
//! refused, as PPPoE has it (RFC 2516, section 7).

use arrayvec::ArrayVec;
use policy::model::{Authentication, PppRole};
use wire::ppp::{Protocol, chap, option};

use super::control::{Answer, Negotiation, OptionBytes};
use super::random::Random;

/// Largest packet that every peer receives, where nothing else is agreed on.
const DEFAULT_MRU: u16 = 1_500;
/// Least MRU that is agreed on.
const LEAST_MRU: u16 = 68;
/// Magic numbers of one's own that the peer may send before the link counts as looped back.
const MOST_LOOPS: u8 = 3;

/// Options of LCP, both sides'.
#[derive(Debug)]
pub(super) struct Lcp {
    role: PppRole,
    authentication: Authentication,
    mtu: u16,
    /// Options that the peer knows nothing of are left out.
    sends_mru: bool,
    sends_magic: bool,
    /// The gateway's magic number; 0 where none was agreed on.
    magic: u32,
    loops: u8,
    random: Random,
    /// Largest packet that the peer receives.
    pub(super) peer_mru: u16,
    /// Protocol by which the peer wants the gateway to authenticate itself.
    pub(super) demanded: Option<Protocol>,
}

impl Lcp {
    pub(super) fn new(role: PppRole, authentication: Authentication, mtu: u16, mut random: Random) -> Lcp {
        Lcp {
            role,
            authentication,
            mtu,
            sends_mru: mtu != DEFAULT_MRU,
            sends_magic: true,
            magic: random.magic(),
            loops: 0,
            random,
            peer_mru: DEFAULT_MRU,
            demanded: None,
        }
    }

    /// The gateway's magic number, for echoes.
    pub(super) fn magic(&self) -> u32 {
        if self.sends_magic { self.magic } else { 0 }
    }

    /// Option by which a protocol is demanded.
    fn authentication_option(protocol: Authentication) -> Option<ArrayVec<u8, 16>> {
        match protocol {
            Authentication::None => None,
            Authentication::Pap => Some(collected(option::AUTHENTICATION, &Protocol::PAP.0.to_be_bytes())),
            Authentication::Chap => {
                let [high, low] = Protocol::CHAP.0.to_be_bytes();
                Some(collected(option::AUTHENTICATION, &[high, low, chap::MD5]))
            }
        }
    }

    /// Answers the peer's demand that the gateway authenticate itself.
    fn demand(&mut self, value: &[u8]) -> Answer {
        if self.role == PppRole::Server {
            return Answer::Reject;
        }
        let Some(own) = Lcp::authentication_option(self.authentication) else { return Answer::Reject };
        let [high, low] = Protocol::CHAP.0.to_be_bytes();
        if value == [high, low, chap::MD5] {
            self.demanded = Some(Protocol::CHAP);
            return Answer::Ack;
        }
        if value == Protocol::PAP.0.to_be_bytes() && self.authentication == Authentication::Pap {
            self.demanded = Some(Protocol::PAP);
            return Answer::Ack;
        }
        Answer::Nak(own)
    }
}

/// An option.
pub(super) fn collected(kind: u8, value: &[u8]) -> ArrayVec<u8, 16> {
    let mut bytes = ArrayVec::new();
    bytes.push(kind);
    bytes.push(value.len() as u8 + 2);
    let _ = bytes.try_extend_from_slice(value);
    bytes
}

impl Negotiation for Lcp {
    const PROTOCOL: Protocol = Protocol::LCP;

    fn request(&mut self, options: &mut OptionBytes) {
        let mut put = |kind, value: &[u8]| {
            let _ = options.try_extend_from_slice(&collected(kind, value));
        };
        if self.sends_mru {
            put(option::MRU, &self.mtu.to_be_bytes());
        }
        if self.role == PppRole::Server {
            if let Some(own) = Lcp::authentication_option(self.authentication) {
                put(option::AUTHENTICATION, own.get(2..).unwrap_or_default());
            }
        }
        if self.sends_magic {
            put(option::MAGIC_NUMBER, &self.magic.to_be_bytes());
        }
    }

    fn begin(&mut self) {
        (self.peer_mru, self.demanded) = (DEFAULT_MRU, None);
    }

    fn answer(&mut self, kind: u8, value: &[u8]) -> Answer {
        match (kind, value) {
            (option::MRU, [high, low]) => {
                let mru = u16::from_be_bytes([*high, *low]);
                if mru < LEAST_MRU {
                    return Answer::Nak(collected(option::MRU, &DEFAULT_MRU.to_be_bytes()));
                }
                self.peer_mru = mru;
                Answer::Ack
            }
            (option::MRU, _) => Answer::Nak(collected(option::MRU, &DEFAULT_MRU.to_be_bytes())),
            (option::AUTHENTICATION, value) => self.demand(value),
            (option::MAGIC_NUMBER, value) => {
                let is_own = value == self.magic.to_be_bytes();
                if is_own {
                    self.loops = self.loops.saturating_add(1);
                    self.magic = self.random.magic();
                }
                if value.len() != 4 || value == [0; 4] || is_own {
                    return Answer::Nak(collected(option::MAGIC_NUMBER, &self.random.magic().to_be_bytes()));
                }
                Answer::Ack
            }
            _ => Answer::Reject,
        }
    }

    fn nak(&mut self, kind: u8, value: &[u8]) -> bool {
        match (kind, value) {
            // The peer asks for smaller packets: it sends what it likes.
            (option::MRU, [high, low]) => {
                let mru = u16::from_be_bytes([*high, *low]);
                if (LEAST_MRU..self.mtu).contains(&mru) {
                    self.mtu = mru;
                }
                true
            }
            (option::MAGIC_NUMBER, _) => {
                self.magic = self.random.magic();
                self.loops < MOST_LOOPS
            }
            // No weaker protocol than the policy's.
            (option::AUTHENTICATION, _) => false,
            _ => true,
        }
    }

    fn reject(&mut self, kind: u8) -> bool {
        match kind {
            option::MRU => self.sends_mru = false,
            option::MAGIC_NUMBER => self.sends_magic = false,
            option::AUTHENTICATION => return false,
            _ => {}
        }
        true
    }
}
