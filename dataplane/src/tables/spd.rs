//! Security policies (RFC 4301, section 4.4.1): the packets that are to be protected, and by which tunnel.

use tally::Tally;

use super::{Ends, Fit, Selector, Selectors};

/// Selectors of all policy-based tunnels, in the order of their interfaces. The first that a packet matches has the packet.
pub struct Spd {
    selectors: Selectors,
    /// Tunnel of each selector.
    tunnels: Vec<u16>,
}

/// Decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The packet is to be protected by the tunnel of that number.
    By(u16),
    /// Protection may be due: the ports, which selectors ask for, are in another fragment.
    Unknown,
    /// No selector matches.
    None,
}

impl Default for Spd {
    fn default() -> Spd {
        Spd { selectors: Selectors::NONE, tunnels: Vec::new() }
    }
}

impl Spd {
    /// Policies of selectors, each with the number of its tunnel.
    pub fn new(list: Vec<(Selector, u16)>) -> Spd {
        let (selectors, tunnels) = list.into_iter().unzip();
        Spd { selectors: Selectors::new(selectors), tunnels }
    }

    /// True if no tunnel is policy-based.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tunnels.is_empty()
    }

    /// Returns how a packet is to be protected.
    pub fn find<T: Tally>(&self, ends: &Ends, tally: &mut T) -> Protection {
        match self.selectors.find(ends, tally) {
            Fit::At(place) => {
                self.tunnels.get(place).map_or(Protection::None, |tunnel| Protection::By(*tunnel))
            }
            Fit::Unknown => Protection::Unknown,
            Fit::None => Protection::None,
        }
    }

    /// Bytes of the search in the rules' memory of a network processor.
    pub(crate) fn region_bytes(&self) -> u64 {
        self.selectors.region_bytes()
    }

    /// Instructions of the search in an engine's control store.
    pub(crate) fn program(&self) -> u32 {
        if self.is_empty() { 0 } else { self.selectors.program() }
    }
}
