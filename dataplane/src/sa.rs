//! State of security associations: sequence numbers, and windows against replay.
//!
//! All memory is allocated when a shard is created or a reload is prepared. Numbers and windows outlive a reload wherever the
//! security association stays: a number is never used twice under one key.

use std::collections::HashMap;
use std::sync::Arc;

use esp::{Transform, Window};

use crate::tables::{Address, SaSpec, Tables};

/// Numbers that the window against replay tells apart (RFC 4303, section 3.4.3: the default).
const WINDOW: u32 = 64;

/// Bytes of a security association on a network processor.
pub(crate) const SA_BYTES: usize = 512;

/// All security associations of a shard.
#[derive(Default)]
pub struct Sas {
    /// Those of packets that come in.
    inbound: Vec<Inbound>,
    /// Places in `inbound` by SPI and destination (RFC 4301, section 4.1).
    index: HashMap<(u32, Address), u32>,
    /// Those of packets that leave, by the number of their tunnel.
    outbound: Vec<Outbound>,
}

/// Security association of packets that come in.
pub struct Inbound {
    /// Number of its tunnel.
    pub tunnel: u16,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Numbers received.
    pub window: Window,
}

/// Security association of packets that leave.
pub struct Outbound {
    /// Security parameters index.
    pub spi: u32,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Next sequence number, from 1.
    next: u64,
}

/// The sequence numbers of a security association are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp;

impl Outbound {
    /// Takes the next sequence number. Without extended numbers there are 2^32 - 1 (RFC 4303, section 3.3.3).
    pub(crate) fn number(&mut self) -> Result<u32, UsedUp> {
        let number = u32::try_from(self.next).map_err(|_| UsedUp)?;
        self.next += 1;
        Ok(number)
    }

    /// Number of packets sealed.
    pub fn packets(&self) -> u64 {
        self.next - 1
    }
}

impl Sas {
    /// Returns the security associations that the tables give, none of whose numbers have been used.
    pub(crate) fn new(tables: &Tables) -> Sas {
        let list = &tables.tunnels.list;
        let mut sas = Sas::default();
        sas.outbound.extend(list.iter().map(|tunnel| Outbound {
            spi: tunnel.out.spi,
            transform: Arc::clone(&tunnel.out.transform),
            next: 1,
        }));
        for (number, tunnel) in list.iter().enumerate() {
            for spec in &tunnel.inward {
                sas.index.insert((spec.spi, tunnel.local), sas.inbound.len() as u32);
                sas.inbound.push(Inbound {
                    tunnel: number as u16,
                    transform: Arc::clone(&spec.transform),
                    window: Window::new(WINDOW),
                });
            }
        }
        sas
    }

    /// The security association of packets that come in with this SPI for this destination.
    #[inline]
    pub fn inbound(&mut self, spi: u32, destination: Address) -> Option<&mut Inbound> {
        let place = self.index.get(&(spi, destination))?;
        self.inbound.get_mut(*place as usize)
    }

    /// The security association of packets that leave by the tunnel of that number.
    #[inline]
    pub fn outbound(&mut self, tunnel: u16) -> Option<&mut Outbound> {
        self.outbound.get_mut(usize::from(tunnel))
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Sas>()
            + self.inbound.capacity() * size_of::<Inbound>()
            + self.outbound.capacity() * size_of::<Outbound>()
            + self.index.capacity() * (size_of::<((u32, Address), u32)>() + 1)
            + self.inbound.len() * (WINDOW as usize / 64 + 1) * 8
    }

    /// Bytes on a network processor: of each, 64 of state and 448 of expanded keys (of AES-256, 15 for rounds of 16 bytes each, and a
    /// table of 16 multiples of the hash key with its reductions).
    pub(crate) fn region_bytes(&self) -> usize {
        (self.inbound.len() + self.outbound.len()) * SA_BYTES
    }
}

/// State prepared for other tables.
pub(crate) struct SasPlan {
    sas: Sas,
    /// Places before and after the reload of security associations that stay: of packets that come in, and that leave.
    inbound: Vec<(usize, usize)>,
    outbound: Vec<(usize, usize)>,
}

impl SasPlan {
    /// Prepares the state for the new tables.
    pub(crate) fn prepare(old: &Tables, new: &Tables) -> SasPlan {
        let inward = |tables| specs(tables, |tunnel| &tunnel.inward);
        let out = |tables| specs(tables, |tunnel| std::slice::from_ref(&tunnel.out));
        SasPlan {
            sas: Sas::new(new),
            inbound: stay(&inward(old), &inward(new)),
            outbound: stay(&out(old), &out(new)),
        }
    }

    /// Puts the new state in force, with the numbers and windows of what stays. The retired state stays here.
    pub(crate) fn apply(&mut self, sas: &mut Sas) {
        for (before, after) in &self.inbound {
            if let (Some(old), Some(new)) = (sas.inbound.get_mut(*before), self.sas.inbound.get_mut(*after)) {
                std::mem::swap(&mut old.window, &mut new.window);
            }
        }
        for (before, after) in &self.outbound {
            if let (Some(old), Some(new)) = (sas.outbound.get(*before), self.sas.outbound.get_mut(*after)) {
                new.next = old.next;
            }
        }
        std::mem::swap(sas, &mut self.sas);
    }
}

/// Security associations of all tunnels, in the order of a shard's.
fn specs(tables: &Tables, of: impl Fn(&crate::tables::Tunnel) -> &[SaSpec]) -> Vec<&SaSpec> {
    tables.tunnels.list.iter().flat_map(of).collect()
}

/// Places before and after of what stays: what has the same key, whatever else has changed, as numbers belong to the key.
fn stay(old: &[&SaSpec], new: &[&SaSpec]) -> Vec<(usize, usize)> {
    let same = |a: &SaSpec, b: &SaSpec| a.transform.suite() == b.transform.suite() && a.keys == b.keys;
    let places = new.iter().enumerate();
    places.filter_map(|(after, sa)| Some((old.iter().position(|one| same(one, sa))?, after))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_with_the_field_and_do_not_begin_again() {
        let text = include_str!("../../tests/cases/esp/site.toml");
        let policy = policy::check(text, "site.toml").policy.unwrap();
        let tables = Tables::compile(&policy, 1).unwrap();
        let mut sas = Sas::new(&tables);
        let sa = sas.outbound(0).unwrap();
        assert_eq!((sa.number(), sa.number()), (Ok(1), Ok(2)));
        sa.next = u64::from(u32::MAX);
        assert_eq!(sa.number(), Ok(u32::MAX));
        assert_eq!((sa.number(), sa.number()), (Err(UsedUp), Err(UsedUp)));
        assert_eq!(sa.packets(), u64::from(u32::MAX));
    }
}
