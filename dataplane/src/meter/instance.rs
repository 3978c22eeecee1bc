//! Instances of meters: one for all packets, or one for each flow, address or prefix.
//!
//! Memory is fixed: instances lie in sets of eight, two of which a key may be in. An instance whose buckets are full is as good as
//! new, and makes room for another; where there is none, the packet is red, or shares an instance with others of its kind, as the
//! policy says.

use std::net::IpAddr;

use lookup::memory::{MemoryError, Paging};
use policy::model::{Colour, Meter as Settings, MeterScope, NoInstance};
use serde::{Deserialize, Serialize};
use tally::{NoTally, Op, Region, Tally};
use wire::{Bytes, Nanos};

use super::{Arrival, Buckets, Debts, Meter, MeterState};
use crate::flow::Key;
use crate::limiter::{self, Sets};
use crate::nat::Share;
use crate::shard::Shard;
use crate::tables::{Address, Tables};

/// The meters of one shard.
#[derive(Debug, Default)]
pub struct Meters {
    list: Vec<Instances>,
}

/// The instances of one meter.
#[derive(Debug)]
pub(crate) struct Instances {
    meter: Meter,
    when_full: NoInstance,
    /// The instance of all packets, or of those for which there is no other.
    shared: Buckets,
    each: Sets<Buckets>,
    /// Offset of the instances in [`Region::Meter`].
    base: usize,
}

/// Bytes of an instance on a network processor: its subject, time and tokens.
const ENTRY: usize = 64;

impl Meters {
    /// Full buckets for the meters of `tables`, with room for as many instances as they say.
    ///
    /// # Errors
    /// The system has not that much memory to give.
    pub(crate) fn new(
        tables: &Tables,
        share: Share,
        now: Nanos,
        paging: Paging,
    ) -> Result<Meters, MemoryError> {
        let mut base = 0;
        let instances = |settings: &Settings| {
            let mut made = Instances::new(settings, longest(tables), share, now, paging)?;
            made.base = base;
            base += made.region_bytes();
            Ok(made)
        };
        Ok(Meters { list: tables.classes.meters.iter().map(instances).collect::<Result<_, _>>()? })
    }

    /// Meters a packet by the meter at a place. `subject` is the key of the packet's instance with its hash, where there is more
    /// than one.
    #[inline]
    pub(crate) fn colour<T: Tally>(
        &mut self,
        place: u16,
        packet: Arrival,
        subject: Option<(Key, u64)>,
        tally: &mut T,
    ) -> Colour {
        let Some(Instances { meter, when_full, shared, each, base }) = self.list.get_mut(usize::from(place))
        else {
            return Colour::Green;
        };
        let found = match subject {
            None => None,
            Some((key, hash)) => {
                let new = meter.full(packet.at);
                let found = each.find_or_take(&key, hash, new, |buckets| meter.is_full(buckets, packet.at));
                if found.is_none() && *when_full == NoInstance::Red {
                    return Colour::Red;
                }
                found
            }
        };
        let at = *base + found.map_or(0, |place| (place as usize + 1) * ENTRY);
        // Of 64 bits each: time since the last packet, 8; for each rate a product, 10, a quotient by a reciprocal, 26, a remainder, 8, bound to
        // the depth, 14, compared and taken, 20; sizes and colours, 20.
        let rates = meter.rates();
        tally.instructions(28 + 78 * rates);
        tally.execute(Op::Branch, 12 + 12 * rates);
        tally.atomic(Region::Meter, at, 40);
        let buckets = match found {
            Some(place) => each.value(place).unwrap_or(shared),
            None => shared,
        };
        meter.colour(buckets, packet)
    }

    /// True if packets of these lengths, else like `packet`, would get the same colour all, one after the other; `subject` as in
    /// [`Meters::colour`]. False if they have no instance of their own yet. Takes no tokens.
    pub(crate) fn have_one_colour(
        &self,
        place: u16,
        packet: Arrival,
        lengths: impl Iterator<Item = u64>,
        subject: Option<(Key, u64)>,
    ) -> bool {
        let Some(Instances { meter, shared, each, .. }) = self.list.get(usize::from(place)) else {
            return false;
        };
        let found = match subject {
            None => Some(shared),
            Some((key, hash)) => each.get(&key, hash),
        };
        let Some(mut buckets) = found.copied() else { return false };
        let mut colours = lengths.map(|length| meter.colour(&mut buckets, Arrival { length, ..packet }));
        let first = colours.next();
        colours.all(|colour| Some(colour) == first)
    }

    /// The tokens that a packet of that instance would find at `at`; `subject` as in [`Meters::colour`]. An instance that there is
    /// not yet has full buckets.
    pub(crate) fn state(&self, place: u16, subject: Option<(Key, u64)>, at: Nanos) -> Option<MeterState> {
        let Instances { meter, shared, each, .. } = self.list.get(usize::from(place))?;
        let found = subject.map(|(key, hash)| each.get(&key, hash));
        Some(match found {
            None => meter.state(shared, at),
            Some(None) => meter.state(&meter.full(at), at),
            Some(Some(buckets)) => meter.state(buckets, at),
        })
    }

    /// Gives an instance the tokens of `state` at `at`.
    fn set(&mut self, place: u16, subject: Option<(Key, u64)>, state: &MeterState, at: Nanos) {
        let Some(Instances { meter, shared, each, .. }) = self.list.get_mut(usize::from(place)) else {
            return;
        };
        let buckets = meter.with(state, at);
        let Some((key, hash)) = subject else {
            *shared = buckets;
            return;
        };
        let found = each.find_or_take(&key, hash, buckets, |_| true);
        if let Some(value) = found.and_then(|place| each.value(place)) {
            *value = buckets;
        }
    }

    /// Goes on with the buckets of `old` for meters that are the same: `were` gives, by place, the place of such a one there.
    pub(crate) fn continue_from(&mut self, old: &mut Meters, were: &[Option<u16>]) {
        for (new, was) in self.list.iter_mut().zip(were) {
            let Some(before) = was.and_then(|was| old.list.get_mut(usize::from(was))) else { continue };
            new.shared = before.shared;
            std::mem::swap(&mut new.each, &mut before.each);
        }
    }

    /// Number of instances that there is room for, by meter: those for all packets counted.
    pub(crate) fn rooms(&self) -> impl Iterator<Item = usize> {
        self.list.iter().map(|instances| 1 + instances.each.len())
    }

    /// Key and debts of an instance of a meter, where tokens are missing; no key of the one for all packets, which is the first.
    pub(crate) fn debts(&self, meter: usize, place: usize, now: Nanos) -> Option<(Option<Key>, Debts)> {
        let Instances { meter, shared, each, .. } = self.list.get(meter)?;
        let (key, buckets) = match place.checked_sub(1) {
            None => (None, shared),
            Some(place) => (Some(*each.keys.get(place)?), each.values.get(place)?),
        };
        let debts = meter.debts(buckets, now);
        (key.is_none_or(|key| key.is_some()) && debts != Debts::default()).then_some((key, debts))
    }

    /// Adds debts to an instance of a meter; what has been used meanwhile counts, too. `None` where there is no instance left.
    pub(crate) fn owe(&mut self, place: u16, of: Option<(Key, u64)>, debts: Debts, now: Nanos) -> Option<()> {
        let Instances { meter, shared, each, .. } = self.list.get_mut(usize::from(place))?;
        let buckets = match of {
            None => shared,
            Some((key, hash)) => {
                let place =
                    each.find_or_take(&key, hash, meter.full(now), |buckets| meter.is_full(buckets, now))?;
                each.value(place)?
            }
        };
        *buckets = meter.indebted(debts.max(meter.debts(buckets, now)), now);
        Some(())
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let each = self.list.iter().map(|instances| instances.each.memory_bytes());
        size_of_val(self.list.as_slice()) + each.sum::<usize>()
    }

    /// Bytes of [`Region::Meter`].
    pub(crate) fn region_bytes(&self) -> usize {
        self.list.iter().map(Instances::region_bytes).sum()
    }
}

impl Instances {
    fn new(
        settings: &Settings,
        least: Bytes,
        share: Share,
        now: Nanos,
        paging: Paging,
    ) -> Result<Instances, MemoryError> {
        // What begins at a source, or is of a flow, is one worker's.
        let share = match settings.per {
            MeterScope::All | MeterScope::Destination(..) => share,
            MeterScope::Flow | MeterScope::Source(..) => Share::WHOLE,
        };
        let meter = Meter::new(settings, share, least);
        let each = if settings.per == MeterScope::All { 0 } else { settings.instances };
        Ok(Instances {
            meter,
            when_full: settings.when_full,
            shared: meter.full(now),
            each: Sets::new(each as usize, paging)?,
            base: 0,
        })
    }

    fn region_bytes(&self) -> usize {
        (1 + self.each.len()) * ENTRY
    }
}

/// Ends of a packet whose meters are asked for: source before source NAT, destination after destination NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeteredEnds {
    /// Source.
    pub source: Option<IpAddr>,
    /// Destination.
    pub destination: Option<IpAddr>,
}

impl Shard {
    /// The tokens that each meter of `tables` has at `now` for a packet of these ends; none of a meter with instances by flow.
    pub fn meters(&self, tables: &Tables, ends: MeteredEnds, now: Nanos) -> Vec<Option<MeterState>> {
        let meters = (0..=u16::MAX).zip(&tables.classes.meters);
        meters
            .map(|(place, meter)| {
                let subject = self.metered(meter.per, ends)?;
                self.meters.state(place, subject, now)
            })
            .collect()
    }

    /// Gives the meter of that place the tokens of `state` at `now`, for packets of these ends.
    pub fn set_meter(
        &mut self,
        tables: &Tables,
        place: u16,
        ends: MeteredEnds,
        state: &MeterState,
        now: Nanos,
    ) {
        let per = tables.classes.meters.get(usize::from(place)).map(|meter| meter.per);
        if let Some(subject) = per.and_then(|per| self.metered(per, ends)) {
            self.meters.set(place, subject, state, now);
        }
    }

    /// Key and hash of the instance for packets of these ends, or none where there is one for all.
    fn metered(&self, per: MeterScope, ends: MeteredEnds) -> Option<Option<(Key, u64)>> {
        let keyed = |address: Option<IpAddr>, v4, v6| {
            let key = limiter::subject(Address::from(address?).prefix(v4, v6), limiter::ALL_RULES);
            Some(Some((key, self.flows.hash(&key, &mut NoTally))))
        };
        match per {
            MeterScope::All => Some(None),
            MeterScope::Source(v4, v6) => keyed(ends.source, v4, v6),
            MeterScope::Destination(v4, v6) => keyed(ends.destination, v4, v6),
            MeterScope::Flow => None,
        }
    }
}

/// The longest IP packet that leaves whole.
fn longest(tables: &Tables) -> Bytes {
    let mtus = tables.interfaces.iter().map(|interface| u64::from(interface.mtu));
    Bytes(mtus.max().unwrap_or(0))
}
