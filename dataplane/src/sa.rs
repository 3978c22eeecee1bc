//! State of security associations: sequence numbers, and windows against replay.
//!
//! All memory is allocated when a shard is created or a reload is prepared. Numbers belong to a key ([`Sequence`]): all workers count
//! them together, and they outlive reloads, shards and the security association itself. So a number is never used twice under one key.
//! The window of packets received is one shard's; a shard that begins anew takes nothing up to the highest number received.

use std::collections::HashMap;
use std::sync::Arc;

use esp::{Transform, Window};
use foldhash::fast::RandomState;
use wire::Nanos;
use wire::esp::{Direction, Esn};

use crate::stage::decap::Quote;
use crate::tables::{Address, SaSpec, Tables, Tunnel};
use crate::verdict::Reason;

mod count;
mod event;
mod learnt;
mod life;
mod peer;
mod reassembly;
mod sequence;

pub use count::{SaErrors, SaView};
use event::Events;
pub use event::SaEvent;
pub(crate) use learnt::LAG;
use learnt::{Learnt, News};
pub use life::{Bound, Used};
pub(crate) use life::{Expired, Life};
pub(crate) use peer::Peer;
use peer::{Followed, Given};
use reassembly::Reassembly;
pub(crate) use reassembly::{Congestion, Fragment, Whole};
pub(crate) use sequence::UsedUp;
pub use sequence::{Known, Numbering, Sequence, Sequences};

/// Bytes of a security association on a network processor.
pub(crate) const SA_BYTES: usize = 512;

/// All security associations of a shard.
#[derive(Default)]
pub struct Sas {
    /// Those of packets that come in.
    inbound: Vec<Inbound>,
    /// Places in `inbound` by SPI and destination (RFC 4301, section 4.1).
    index: HashMap<(u32, Address), u32, RandomState>,
    /// Those of packets that leave, by the number of their tunnel.
    outbound: Vec<Outbound>,
    /// Bounds that have been reached.
    events: Events,
    learnt: Learnt,
    /// Outer packets that came in fragments. A reload begins anew.
    pub(crate) reassembly: Reassembly,
}

/// Security association of packets that come in.
pub struct Inbound {
    /// Number of its tunnel.
    pub tunnel: u16,
    /// Security parameters index.
    pub spi: u32,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Numbers received.
    pub window: Window,
    /// The highest of them, for whoever comes after this shard.
    sequence: Arc<Sequence>,
    life: Life,
    errors: SaErrors,
    /// Numbers lost before the window was another one.
    lost_before: u64,
    /// The peer's end, where it is followed.
    followed: Followed,
}

/// Security association of packets that leave. Each shard has its own, and the numbers are all shards'.
pub struct Outbound {
    /// Security parameters index.
    pub spi: u32,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Numbers sent.
    pub sequence: Arc<Sequence>,
    /// Number of its tunnel.
    tunnel: u16,
    life: Life,
    errors: SaErrors,
    /// End of the peer, where packets go to.
    pub(crate) peer: Peer,
    given: Given,
}

impl Inbound {
    /// Refuses packets of after the hard lifetime.
    #[inline]
    pub(crate) fn check(&self, now: Nanos) -> Result<(), Expired> {
        self.life.check(&self.sequence.used, now)
    }

    /// Returns the peer's end if that is news: only the packet with the highest number so far tells, so that what is late, or was
    /// delayed by somebody, does not (RFC 7296, section 2.23).
    #[inline]
    pub(crate) fn follow(&mut self, number: u64, source: Peer, now: Nanos) -> Option<Peer> {
        if self.window.top() == number { self.followed.moved(source, now) } else { None }
    }

    /// Takes a packet in whose ICV is right, with so many bytes of text.
    #[inline]
    pub(crate) fn accept(&mut self, number: u64, bytes: usize, now: Nanos) -> Result<(), Expired> {
        self.window.accept(number);
        self.sequence.note(self.window.top());
        self.life.spend(&self.sequence.used, bytes, now)
    }

    /// A bound that has been reached, once.
    #[inline]
    pub(crate) fn news(&mut self, now: Nanos) -> Option<SaEvent> {
        let bound = self.life.news(&self.sequence.used, now)?;
        Some(SaEvent { at: now, tunnel: self.tunnel, direction: Direction::In, spi: self.spi, bound })
    }

    /// Counts a packet that did not come in.
    #[cold]
    pub(crate) fn note(&mut self, reason: Reason) {
        self.errors.note(reason);
    }
}

impl Outbound {
    /// Takes the next sequence number. Without extended numbers there are 2^32 - 1 (RFC 4303, section 3.3.3).
    #[inline]
    pub(crate) fn number(&self) -> Result<u64, UsedUp> {
        self.sequence.take(match self.esn {
            Esn::Off => u32::MAX.into(),
            Esn::On => u64::MAX,
        })
    }

    /// Takes a packet with so many bytes of text into account.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize, now: Nanos) -> Result<(), Expired> {
        self.life
            .spend(&self.sequence.used, bytes, now)
            .inspect_err(|Expired| self.errors.note(Reason::SaExpired))
    }

    /// A bound that has been reached, once.
    #[inline]
    pub(crate) fn news(&mut self, now: Nanos) -> Option<SaEvent> {
        let bound = self.life.news(&self.sequence.used, now)?;
        Some(SaEvent { at: now, tunnel: self.tunnel, direction: Direction::Out, spi: self.spi, bound })
    }
}

impl Sas {
    /// Returns the security associations that the tables give. Numbers go on where those of the tables are.
    pub(crate) fn new(tables: &Tables) -> Sas {
        let list = &tables.tunnels.list;
        let mut sas = Sas { events: Events::new(), ..Sas::default() };
        sas.outbound.extend((0..).zip(list).map(|(number, tunnel)| Outbound {
            tunnel: number,
            life: Life::new(tunnel.out.soft, tunnel.out.hard),
            errors: SaErrors::default(),
            spi: tunnel.out.spi,
            esn: tunnel.out.esn,
            transform: Arc::clone(&tunnel.out.transform),
            sequence: Arc::clone(&tunnel.out.sequence),
            peer: Peer::of(tunnel),
            given: Given::of(tunnel),
        }));
        for (number, tunnel) in list.iter().enumerate() {
            for spec in &tunnel.inward {
                sas.index.insert((spec.spi, tunnel.local), sas.inbound.len() as u32);
                sas.inbound.push(Inbound {
                    tunnel: number as u16,
                    spi: spec.spi,
                    esn: spec.esn,
                    life: Life::new(spec.soft, spec.hard),
                    errors: SaErrors::default(),
                    lost_before: 0,
                    followed: Followed::new(tunnel),
                    transform: Arc::clone(&spec.transform),
                    window: Window::closed_at(spec.window, spec.sequence.last()),
                    sequence: Arc::clone(&spec.sequence),
                });
            }
        }
        if !list.is_empty() {
            sas.reassembly = Reassembly::new(&tables.timeouts);
        }
        sas.learnt = Learnt::new(&tables.tunnels, sas.inbound.len());
        sas
    }

    /// Takes in another end of a tunnel's peer.
    pub(crate) fn learn_peer(&mut self, tunnel: u16, peer: Peer, now: Nanos) {
        self.learnt.learn(tunnel, News::Peer(peer), now);
    }

    /// Number of the tunnel that an ICMP error for `local` quotes a packet of.
    pub(crate) fn quoted(&self, quote: &Quote, local: Address, tables: &Tables) -> Option<u16> {
        let mut numbered = tables.tunnels.list.iter().zip(0..);
        let has_sent = |(tunnel, number): &(&Tunnel, u16)| {
            let mut sources = self.inbound.iter().filter(|sa| sa.tunnel == *number);
            tunnel.local == local
                && tunnel.udp == quote.udp
                && tunnel.out.spi == quote.spi
                && (tunnel.remote == quote.remote || sources.any(|sa| sa.followed.is_at(quote.remote)))
        };
        numbered.find(has_sent).map(|(_, number)| number)
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

    /// The same, to count a packet.
    #[inline]
    pub(crate) fn outbound_mut(&mut self, tunnel: u16) -> Option<&mut Outbound> {
        self.outbound.get_mut(usize::from(tunnel))
    }

    /// Begins the lifetimes of those whose keys were not used before.
    pub(crate) fn begin(&self, now: Nanos) {
        self.outbound.iter().for_each(|sa| sa.sequence.used.begin(now));
        self.inbound.iter().for_each(|sa| sa.sequence.used.begin(now));
    }

    /// Counts by itself, from 1 on: the numbers of a replay are no others', and the same each time.
    pub(crate) fn count_alone(&mut self, now: Nanos) {
        for sa in &mut self.outbound {
            sa.sequence = Arc::new(Sequence::from(0));
        }
        for sa in &mut self.inbound {
            sa.sequence = Arc::new(Sequence::from(0));
            sa.window = Window::new(sa.window.size());
        }
        self.begin(now);
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Sas>()
            + self.inbound.capacity() * size_of::<Inbound>()
            + self.outbound.capacity() * size_of::<Outbound>()
            + self.index.capacity() * (size_of::<((u32, Address), u32)>() + 1)
            + self.inbound.iter().map(|sa| sa.window.memory_bytes()).sum::<usize>()
            + self.learnt.memory_bytes()
            + self.reassembly.memory_bytes()
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

    /// Puts the new state in force, with the numbers, windows and ends of what stays. The retired state stays here.
    pub(crate) fn apply(&mut self, sas: &mut Sas, now: Nanos) {
        sas.settle();
        for (before, after) in &self.inbound {
            if let (Some(old), Some(new)) = (sas.inbound.get_mut(*before), self.sas.inbound.get_mut(*after)) {
                if old.window.size() == new.window.size() {
                    std::mem::swap(&mut old.window, &mut new.window);
                } else {
                    // What is on its way from before the reload is lost, rather than taken twice.
                    new.window.close_at(old.window.top());
                    new.lost_before = old.window.lost();
                }
                new.lost_before += old.lost_before;
                new.followed.go_on(&old.followed);
                new.life.go_on(&old.life);
                new.errors = old.errors;
                std::mem::swap(&mut old.sequence, &mut new.sequence);
            }
        }
        for (before, after) in &self.outbound {
            if let (Some(old), Some(new)) = (sas.outbound.get_mut(*before), self.sas.outbound.get_mut(*after))
            {
                std::mem::swap(&mut old.sequence, &mut new.sequence);
                if old.given == new.given {
                    new.peer = old.peer;
                }
                new.life.go_on(&old.life);
                new.errors = old.errors;
            }
        }
        std::mem::swap(&mut sas.events, &mut self.sas.events);
        std::mem::swap(sas, &mut self.sas);
        sas.begin(now);
    }
}

/// Security associations of all tunnels, in the order of a shard's.
fn specs(tables: &Tables, of: impl Fn(&Tunnel) -> &[SaSpec]) -> Vec<&SaSpec> {
    tables.tunnels.list.iter().flat_map(of).collect()
}

/// Places before and after of what stays: what has the same key, whatever else has changed, as numbers belong to the key.
fn stay(old: &[&SaSpec], new: &[&SaSpec]) -> Vec<(usize, usize)> {
    let same = |a: &SaSpec, b: &SaSpec| a.fingerprint == b.fingerprint;
    let places = new.iter().enumerate();
    places.filter_map(|(after, sa)| Some((old.iter().position(|one| same(one, sa))?, after))).collect()
}
