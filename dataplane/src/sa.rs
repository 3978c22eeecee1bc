//! State of security associations: sequence numbers, and windows against replay.
//!
//! All memory is allocated when a shard is created or a reload is prepared. Numbers belong to a key ([`Sequence`]): all workers count
//! them together, and they outlive reloads, shards and the security association itself. So a number is never used twice under one key.
//! The window of packets received is one shard's; a shard that begins anew takes nothing up to the highest number received.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use esp::{Transform, Window};
use foldhash::fast::RandomState;
use policy::model::KeySource;
use wire::esp::{Direction, Esn, Suite, Udp};
use wire::{Nanos, PortId};

use crate::nat::Share;
use crate::stage::decap::Quote;
use crate::state::{Numbered, SaRecord};
use crate::tables::{Address, SaSpec, Selectors, Tables, Tunnel};
use crate::verdict::Reason;

mod change;
mod count;
mod event;
mod keepalive;
mod learnt;
mod life;
mod peer;
mod reassembly;
mod reload;
mod senders;
mod sequence;
mod stand_in;

pub use change::{Agreed, Prepared, RetiredSa, SaAddition, SaChange, SaError, SaId, SaRefused, SaRequest};
pub use count::{SaErrors, SaView, Standing};
pub use esp::{Fingerprint, Keys};
use event::Events;
pub use event::{SaEvent, SaNews};
use keepalive::Keepalives;
pub(crate) use learnt::LAG;
use learnt::Learnt;
pub use learnt::PathNews;
pub use life::{Bound, Usage, Used};
pub(crate) use life::{Expired, Life};
use peer::Followed;
pub(crate) use peer::usual_port;
pub use peer::{Given, Peer};
use reassembly::Reassembly;
pub(crate) use reassembly::{Congestion, Fragment, Whole};
pub(crate) use reload::SasPlan;
pub use senders::Senders;
pub(crate) use sequence::UsedUp;
pub use sequence::{Known, Numbering, Sequence, Sequences};
pub use stand_in::SaStandIn;

/// Associations out of one tunnel, at most: those in use, each for its selectors, and those that they have taken the place of.
pub const MOST_OUT: usize = 32;

/// Bytes of a security association on a network processor.
pub(crate) const SA_BYTES: usize = 512;

/// All security associations of a shard.
#[derive(Default)]
pub struct Sas {
    /// Associations of packets that come in.
    inbound: Vec<Inbound>,
    /// Places in `inbound` by SPI and destination (RFC 4301, section 4.1).
    index: HashMap<(u32, Address), u32, RandomState>,
    /// Associations of packets that leave by this worker, by the number of their tunnel, each with the one to be asked first last.
    outbound: Vec<Vec<Outbound>>,
    /// Associations that other workers alone send by, of all tunnels.
    elsewhere: Vec<Outbound>,
    /// Number of the worker.
    worker: u16,
    /// Ends that the peers of tunnels were last seen at, by the number of the tunnel.
    followed: Vec<Followed>,
    /// Latest event of a packet that nothing carries, or nothing of the worker's own, by the number of the tunnel.
    missed: Vec<Option<Nanos>>,
    /// News that nobody has taken yet.
    events: Events,
    keepalives: Keepalives,
    learnt: Learnt,
    /// Outer packets that came in fragments. A reload begins anew.
    pub(crate) reassembly: Reassembly,
}

/// Source of a security association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The policy: a reload makes it anew.
    Policy,
    /// Added at run time: it stays as long as its tunnel, until it is deleted.
    Added,
    /// An IKE daemon: the same.
    Ike,
}

/// Security association of packets that come in.
pub struct Inbound {
    /// Number of its tunnel.
    pub tunnel: u16,
    /// Security parameters index.
    pub spi: u32,
    /// Outer destination.
    pub destination: Address,
    /// UDP encapsulation.
    pub(crate) udp: Udp,
    /// True if the peer is to be followed to where its packets come from.
    pub(crate) is_followed: bool,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    pub(crate) suite: &'static Suite,
    /// Numbers received.
    pub window: Window,
    /// Packets that may come in by it.
    pub selectors: Arc<Selectors>,
    /// The highest of them, for whoever comes after this shard.
    sequence: Arc<Sequence>,
    life: Life,
    /// Numbers lost before the window was another one.
    lost_before: u64,
    /// Packets refused as received before, up to the last event about them, and its moment.
    replays_told: (u64, Option<Nanos>),
    senders: Senders,
    fingerprint: Fingerprint,
    origin: Origin,
}

/// Way of a tunnel's outer packets.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Hop, known or not.
    pub(crate) hop: u32,
    /// Interface of a peer that is on the link itself.
    pub(crate) link: Option<PortId>,
    /// Address of the peer.
    pub(crate) remote: Address,
}

/// Security association of packets that leave. Each shard has its own, and the numbers are all shards'.
pub struct Outbound {
    /// Security parameters index.
    pub spi: u32,
    /// Outer destination, where the peer has not moved: part of its name.
    destination: Address,
    /// UDP encapsulation.
    pub(crate) udp: Udp,
    /// UDP port that packets leave by; 0 without UDP.
    pub(crate) sport: u16,
    /// Extended sequence numbers.
    pub esn: Esn,
    /// Algorithms and keys.
    pub transform: Arc<dyn Transform>,
    /// Numbers sent.
    pub sequence: Arc<Sequence>,
    /// Packets that may leave by it.
    pub selectors: Arc<Selectors>,
    /// Number of its tunnel.
    tunnel: u16,
    /// Workers that send by it.
    pub(crate) senders: Senders,
    life: Life,
    /// End of the peer, where packets go to.
    pub(crate) peer: Peer,
    /// Way there, as routed last.
    way: Option<Way>,
    given: Given,
    fingerprint: Fingerprint,
    origin: Origin,
}

impl Inbound {
    /// The association of the tunnel of that number, with an empty window.
    fn new(number: u16, tunnel: &Tunnel, spec: &SaSpec, window: Window) -> Inbound {
        Inbound {
            tunnel: number,
            spi: spec.spi,
            destination: tunnel.local,
            udp: spec.udp,
            // A port that is not known is not the peer's for packets to it.
            is_followed: tunnel.follows(spec.udp) && spec.peer.takes(spec.udp),
            esn: spec.esn,
            life: Life::new(spec.soft, spec.hard),
            lost_before: 0,
            replays_told: (spec.sequence.used.errors().replayed, None),
            transform: Arc::clone(&spec.transform),
            suite: spec.transform.suite(),
            window,
            selectors: Arc::clone(&spec.selectors),
            sequence: Arc::clone(&spec.sequence),
            senders: spec.senders,
            fingerprint: spec.fingerprint,
            origin: Origin::Policy,
        }
    }

    /// Window of an association, for which nothing has been received that whoever had it before has not.
    fn window(spec: &SaSpec) -> Window {
        Window::closed_at(spec.window, spec.sequence.last())
    }

    /// Refuses packets of after the hard lifetime.
    #[inline]
    pub(crate) fn check(&self, now: Nanos) -> Result<(), Expired> {
        self.life.check(&self.sequence.used, now)
    }

    /// True if there is a bound of its use that a packet may reach, or meet.
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.life.is_bound()
    }

    /// Takes in the number of a packet whose ICV is right. True if it is the highest so far.
    #[inline]
    pub(crate) fn accept(&mut self, number: u64) -> bool {
        self.window.accept(number);
        self.window.top() == number
    }

    /// Notes the highest number accepted, for whoever comes after this shard.
    #[inline]
    pub(crate) fn note_accepted(&self) {
        self.sequence.note(self.window.top());
    }

    /// Takes a packet into account, with so many bytes of text.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize, now: Nanos) -> Result<(), Expired> {
        self.life.spend(&self.sequence.used, bytes, now)
    }

    /// The same for several packets, where there is [no bound](Inbound::is_bound).
    #[inline]
    pub(crate) fn spend_all(&self, packets: u64, bytes: u64) {
        self.sequence.used.add(packets, bytes);
    }

    /// A bound that has been reached, once.
    #[inline]
    pub(crate) fn news(&mut self, now: Nanos) -> Option<SaEvent> {
        let bound = self.life.news(&self.sequence.used, now)?;
        let news = SaNews::Bound { direction: Direction::In, spi: self.spi, bound };
        Some(SaEvent { at: now, tunnel: self.tunnel, news })
    }

    /// Counts a packet that did not come in.
    #[cold]
    pub(crate) fn note(&mut self, reason: Reason) {
        self.sequence.used.refuse(reason);
    }
}

impl Outbound {
    /// The association of the tunnel of that number.
    fn new(number: u16, tunnel: &Tunnel, spec: &SaSpec) -> Outbound {
        Outbound {
            tunnel: number,
            senders: spec.senders,
            life: Life::new(spec.soft, spec.hard),
            spi: spec.spi,
            destination: spec.peer.address,
            udp: spec.udp,
            sport: spec.sport,
            esn: spec.esn,
            transform: Arc::clone(&spec.transform),
            sequence: Arc::clone(&spec.sequence),
            selectors: Arc::clone(&spec.selectors),
            peer: spec.peer,
            way: None,
            given: Given::new(spec.peer, tunnel),
            fingerprint: spec.fingerprint,
            origin: Origin::Policy,
        }
    }

    /// Way of its packets, if it has been noted for where the peer is now.
    #[inline]
    pub(crate) fn way(&self) -> Option<Way> {
        self.way.filter(|way| way.remote == self.peer.address)
    }

    /// Largest number: without extended numbers there are 2^32 - 1 (RFC 4303, section 3.3.3).
    fn most(&self) -> u64 {
        match self.esn {
            Esn::Off => u32::MAX.into(),
            Esn::On => u64::MAX,
        }
    }

    /// Takes a packet with so many bytes of text into account, and the next number for it.
    fn admit(&mut self, bytes: usize, now: Nanos) -> Result<u64, Reason> {
        let admitted = self.life.admit(&self.sequence.used, bytes, now);
        let number = admitted
            .map_err(|Expired| Reason::SaExpired)
            .and_then(|()| self.sequence.take(self.most()).map_err(|UsedUp| Reason::EspSequence));
        match number {
            Ok(_) => {
                self.sequence.used.add(1, bytes as u64);
                self.sequence.note_sent(now);
            }
            Err(reason) => self.sequence.used.refuse(reason),
        }
        number
    }

    /// A bound that has been reached, once.
    #[inline]
    fn news(&mut self, now: Nanos) -> Option<SaEvent> {
        let bound = self.life.news(&self.sequence.used, now)?;
        let news = SaNews::Bound { direction: Direction::Out, spi: self.spi, bound };
        Some(SaEvent { at: now, tunnel: self.tunnel, news })
    }
}

impl Sas {
    /// Returns the security associations that the tables give, for the shard of that share. Numbers go on where those of the tables are.
    pub(crate) fn new(tables: &Tables, share: Share) -> Sas {
        let list = &tables.tunnels.list;
        let followed = list.iter().map(Followed::new).collect();
        let missed = vec![None; list.len()];
        let worker = share.worker();
        let mut sas = Sas { events: Events::new(), followed, missed, worker, ..Sas::default() };
        if list.is_empty() {
            return sas;
        }
        let room = tables.limits.sas as usize + list.iter().map(|tunnel| tunnel.inward.len()).sum::<usize>();
        sas.inbound.reserve_exact(room);
        sas.index.reserve(room);
        if list.iter().any(|tunnel| tunnel.keys == KeySource::Ike) {
            sas.elsewhere.reserve_exact(tables.limits.sas as usize);
        }
        for (number, tunnel) in (0..).zip(list) {
            let mut out = Vec::with_capacity(MOST_OUT);
            out.extend(tunnel.out.iter().map(|spec| Outbound::new(number, tunnel, spec)));
            sas.outbound.push(out);
            for spec in &tunnel.inward {
                sas.receive(Inbound::new(number, tunnel, spec, Inbound::window(spec)));
            }
        }
        sas.reassembly = Reassembly::new(&tables.timeouts);
        sas.learnt = Learnt::new(&tables.tunnels, room);
        sas.keepalives = Keepalives::new(&tables.tunnels, share);
        sas
    }

    /// Number of the tunnel that an ICMP error for `local` quotes a packet of.
    pub(crate) fn quoted(&self, quote: &Quote, local: Address, tables: &Tables) -> Option<u16> {
        let mut numbered = tables.tunnels.list.iter().zip(0..);
        let has_sent = |(tunnel, number): &(&Tunnel, u16)| {
            let followed = self.followed.get(usize::from(*number));
            tunnel.local == local
                && self
                    .all_outbound()
                    .any(|sa| (sa.tunnel, sa.spi, sa.sport) == (*number, quote.spi, quote.sport))
                && (tunnel.remote == Some(quote.remote)
                    || followed.is_some_and(|peer| peer.is_at(quote.remote)))
        };
        numbered.find(has_sent).map(|(_, number)| number)
    }

    /// The security association of packets that come in with this SPI for this destination.
    pub fn inbound(&mut self, spi: u32, destination: Address) -> Option<&mut Inbound> {
        self.inbound_at(self.place_of_inbound(spi, destination)?)
    }

    /// Place of the security association of packets that come in with this SPI for this destination.
    #[inline]
    pub(crate) fn place_of_inbound(&self, spi: u32, destination: Address) -> Option<u32> {
        self.index.get(&(spi, destination)).copied()
    }

    /// The security association of packets that come in, of that place.
    #[inline]
    pub(crate) fn inbound_at(&mut self, place: u32) -> Option<&mut Inbound> {
        self.inbound.get_mut(place as usize)
    }

    /// The security association that is asked first for packets that leave by the tunnel of that number.
    #[inline]
    pub fn outbound(&self, tunnel: u16) -> Option<&Outbound> {
        self.outbounds(tunnel).last()
    }

    /// The security associations by which this worker's packets leave by the tunnel of that number. The last whose selectors a packet matches
    /// carries it: the newest of the worker's own, else the newest.
    #[inline]
    pub fn outbounds(&self, tunnel: u16) -> &[Outbound] {
        self.outbound.get(usize::from(tunnel)).map_or(&[], Vec::as_slice)
    }

    /// The one at that place among them, to count a packet.
    #[inline]
    fn outbound_mut(&mut self, tunnel: u16, place: usize) -> Option<&mut Outbound> {
        self.outbound.get_mut(usize::from(tunnel))?.get_mut(place)
    }

    /// Takes a packet that leaves under the security association at that place among those of the tunnel of that number into account, with
    /// so many bytes of text, and the next number for it.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        (tunnel, place): (u16, usize),
        bytes: usize,
        now: Nanos,
    ) -> Result<u64, Reason> {
        let sa = self.outbound_mut(tunnel, place).ok_or(Reason::SaMissing)?;
        let (admitted, news) = (sa.admit(bytes, now), sa.news(now));
        self.note_bound(news);
        admitted
    }

    /// The same for several packets at once, with as many bytes of text each, the last of `now`; `None`, and nothing has happened, if one of
    /// them might be refused, or reach a bound.
    #[inline]
    pub(crate) fn admit_all(
        &mut self,
        (tunnel, place): (u16, usize),
        texts: impl Iterator<Item = u64>,
        now: Nanos,
    ) -> Option<RangeInclusive<u64>> {
        let sa = self.outbound_mut(tunnel, place).filter(|sa| !sa.life.is_bound())?;
        let (packets, bytes) = texts.fold((0, 0), |(packets, bytes), text| (packets + 1, bytes + text));
        let numbers = sa.sequence.take_all(packets, sa.most())?;
        sa.sequence.used.add(packets, bytes);
        sa.sequence.note_sent(now);
        Some(numbers)
    }

    /// Notes the way of packets that leave by the tunnel of that number, under the association that is asked first.
    pub(crate) fn note_way(&mut self, tunnel: u16, way: Way) {
        if let Some(sa) = self.outbound.get_mut(usize::from(tunnel)).and_then(|list| list.last_mut()) {
            sa.way = Some(way);
        }
    }

    /// Forgets all ways: tables are others, or numbers of hops have been given anew.
    pub(crate) fn forget_ways(&mut self) {
        self.outbound.iter_mut().flatten().for_each(|sa| sa.way = None);
    }

    /// Begins the lifetimes of those whose keys were not used before, and the times until keepalives.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.keepalives.begin(&self.outbound, now);
        self.all_outbound().for_each(|sa| sa.sequence.used.begin(now));
        self.inbound.iter().for_each(|sa| sa.sequence.used.begin(now));
    }

    /// Numbers used, those received first.
    pub(crate) fn records(&self) -> impl Iterator<Item = SaRecord> + '_ {
        let record = |fingerprint: Fingerprint, numbered, last| SaRecord {
            fingerprint: fingerprint.to_bytes(),
            numbered,
            last,
        };
        // Of a window that is another shard's, whose owner has gone further, the sequence says so.
        let received = self.inbound.iter().map(move |sa| {
            record(sa.fingerprint, Numbered::Received, sa.window.top().max(sa.sequence.last()))
        });
        let out = self.all_outbound();
        received.chain(out.map(move |sa| record(sa.fingerprint, Numbered::Sent, sa.sequence.last())))
    }

    /// Goes on behind numbers that another process has used under a key. False if there is no such key.
    pub(crate) fn raise(&mut self, record: &SaRecord) -> bool {
        let fingerprint = Fingerprint::from_bytes(record.fingerprint);
        let mut is_known = false;
        for sa in self.inbound.iter_mut().filter(|sa| sa.fingerprint == fingerprint) {
            is_known = true;
            if sa.window.top() < record.last {
                sa.window.close_at(record.last);
                sa.sequence.raise(record.last);
            }
        }
        for sa in self.all_outbound().filter(|sa| sa.fingerprint == fingerprint) {
            is_known = true;
            sa.sequence.raise(record.last);
        }
        is_known
    }

    /// Puts an inbound one in its place.
    fn receive(&mut self, sa: Inbound) {
        self.index.insert((sa.spi, sa.destination), self.inbound.len() as u32);
        self.inbound.push(sa);
    }

    /// Takes an inbound one out of its place.
    fn cease(&mut self, spi: u32, destination: Address) -> Option<Inbound> {
        let place = self.index.remove(&(spi, destination))?;
        let sa = self.inbound.swap_remove(place as usize);
        if let Some(moved) = self.inbound.get(place as usize) {
            self.index.insert((moved.spi, moved.destination), place);
        }
        Some(sa)
    }

    /// Counts by itself, from 1 on: the numbers of a replay are no others', and the same each time.
    pub(crate) fn count_alone(&mut self, now: Nanos) {
        for sa in self.outbound.iter_mut().flatten() {
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
            + self.outbound.iter().map(|list| list.capacity() * size_of::<Outbound>()).sum::<usize>()
            + self.elsewhere.capacity() * size_of::<Outbound>()
            + self.index.capacity() * (size_of::<((u32, Address), u32)>() + 1)
            + self.inbound.iter().map(|sa| sa.window.memory_bytes()).sum::<usize>()
            + self.followed.capacity() * size_of::<Followed>()
            + self.missed.capacity() * size_of::<Option<Nanos>>()
            + self.learnt.memory_bytes()
            + self.keepalives.memory_bytes()
            + self.reassembly.memory_bytes()
    }

    /// Bytes on a network processor: of each, 64 of state and 448 of expanded keys (of AES-256, 15 for rounds of 16 bytes each, and a
    /// table of 16 multiples of the hash key with its reductions).
    pub(crate) fn region_bytes(&self) -> usize {
        (self.inbound.len() + self.all_outbound().count()) * SA_BYTES
    }
}
