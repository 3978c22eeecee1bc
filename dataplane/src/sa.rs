//! State of security associations: sequence numbers, and windows against replay.
//!
//! All memory is allocated when a shard is created or a reload is prepared. Numbers belong to a key ([`Sequence`]): all workers count
//! them together, and they outlive reloads, shards and the security association itself. So a number is never used twice under one key.
//! The window of packets received is one shard's; a shard that begins anew takes nothing up to the highest number received.

use std::collections::HashMap;
use std::sync::Arc;

use esp::{Transform, Window};

use crate::tables::{Address, SaSpec, Tables};

mod sequence;

pub(crate) use sequence::UsedUp;
pub use sequence::{Known, Numbering, Sequence, Sequences};

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
    /// The highest of them, for whoever comes after this shard.
    sequence: Arc<Sequence>,
}

/// Security association of packets that leave. Each shard has its own, and the numbers are all shards'.
pub struct Outbound {
    /// Security parameters index.
    pub spi: u32,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Numbers sent.
    pub sequence: Arc<Sequence>,
}

impl Inbound {
    /// Takes a packet in whose ICV is right.
    #[inline]
    pub(crate) fn accept(&mut self, number: u64) {
        self.window.accept(number);
        self.sequence.note(self.window.top());
    }
}

impl Outbound {
    /// Takes the next sequence number. Without extended numbers there are 2^32 - 1 (RFC 4303, section 3.3.3).
    #[inline]
    pub(crate) fn number(&self) -> Result<u32, UsedUp> {
        let number = self.sequence.take(u32::MAX.into())?;
        u32::try_from(number).map_err(|_| UsedUp)
    }
}

impl Sas {
    /// Returns the security associations that the tables give. Numbers go on where those of the tables are.
    pub(crate) fn new(tables: &Tables) -> Sas {
        let list = &tables.tunnels.list;
        let mut sas = Sas::default();
        sas.outbound.extend(list.iter().map(|tunnel| Outbound {
            spi: tunnel.out.spi,
            transform: Arc::clone(&tunnel.out.transform),
            sequence: Arc::clone(&tunnel.out.sequence),
        }));
        for (number, tunnel) in list.iter().enumerate() {
            for spec in &tunnel.inward {
                sas.index.insert((spec.spi, tunnel.local), sas.inbound.len() as u32);
                sas.inbound.push(Inbound {
                    tunnel: number as u16,
                    transform: Arc::clone(&spec.transform),
                    window: Window::closed_at(WINDOW, spec.sequence.last()),
                    sequence: Arc::clone(&spec.sequence),
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
    pub fn outbound(&self, tunnel: u16) -> Option<&Outbound> {
        self.outbound.get(usize::from(tunnel))
    }

    /// Counts by itself, from 1 on: the numbers of a replay are no others', and the same each time.
    pub(crate) fn count_alone(&mut self) {
        for sa in &mut self.outbound {
            sa.sequence = Arc::new(Sequence::from(0));
        }
        for sa in &mut self.inbound {
            sa.sequence = Arc::new(Sequence::from(0));
            sa.window = Window::new(WINDOW);
        }
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
                std::mem::swap(&mut old.sequence, &mut new.sequence);
            }
        }
        for (before, after) in &self.outbound {
            if let (Some(old), Some(new)) = (sas.outbound.get_mut(*before), self.sas.outbound.get_mut(*after))
            {
                std::mem::swap(&mut old.sequence, &mut new.sequence);
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
    let same = |a: &SaSpec, b: &SaSpec| a.fingerprint == b.fingerprint;
    let places = new.iter().enumerate();
    places.filter_map(|(after, sa)| Some((old.iter().position(|one| same(one, sa))?, after))).collect()
}
