//! Traffic meters: buckets stay with a meter that is the same under the same name. Other processes take in token debts by the
//! meter's name, whatever its rates are there.

use lookup::memory::Paging;
use policy::model::{Meter, MeterScope};
use tally::{NoTally, Region};
use wire::{Family, Nanos, PortId};

use super::{Applying, Item, MeterRecord, Part, Plan, Prefix, Reload, Subject};
use crate::flow::{Ends, Key};
use crate::import::Refused;
use crate::limiter;
use crate::meter::Meters;
use crate::shard::{Shard, ShardError};
use crate::tables::{Address, Tables};

/// Buckets of meters.
pub(super) struct Buckets;

/// Reload of meters.
struct MetersPlan {
    meters: Meters,
    /// Places of the same meters in the old tables.
    were: Vec<Option<u16>>,
}

impl Part for Buckets {
    fn name(&self) -> &'static str {
        "meters"
    }

    fn prepare(&self, reload: &Reload<'_>) -> Result<Box<dyn Plan>, ShardError> {
        let Reload { old, new, setup, .. } = reload;
        let was = |meter: &Meter| {
            let place = old.classes.meters.iter().position(|old| old == meter)?;
            u16::try_from(place).ok()
        };
        let were = new.classes.meters.iter().map(was).collect();
        let meters = Meters::new(new, setup.share, setup.now, Paging::Prefault);
        Ok(Box::new(MetersPlan { meters: meters.map_err(ShardError::Memory)?, were }))
    }

    fn memory_bytes(&self, shard: &Shard) -> usize {
        size_of::<Meters>() + shard.meters.memory_bytes()
    }

    /// Meters lie in one memory with limits, which have no places that a stage would tell.
    fn regions(&self, _: &Shard, _: &Tables) -> Vec<(Region, usize)> {
        Vec::new()
    }

    /// Instances of each meter, the one for all packets first.
    fn places(&self, shard: &Shard, _: &Tables) -> u32 {
        u32::try_from(shard.meters.rooms().sum::<usize>()).unwrap_or(u32::MAX)
    }

    fn export(&self, shard: &Shard, tables: &Tables, place: u32, now: Nanos) -> Option<Item> {
        let mut place = place as usize;
        for (meter, room) in shard.meters.rooms().enumerate() {
            let Some(next) = place.checked_sub(room) else {
                let (key, debts) = shard.meters.debts(meter, place, now)?;
                let per = tables.classes.meters.get(meter)?.per;
                let subject = key.map_or(Subject::All, |key| subject(tables, per, &key));
                return Some(Item::Meter(MeterRecord { meter: u16::try_from(meter).ok(), subject, debts }));
            };
            place = next;
        }
        None
    }

    fn import(
        &self,
        shard: &mut Shard,
        tables: &Tables,
        item: &Item,
        now: Nanos,
    ) -> Option<Result<(), Refused>> {
        let Item::Meter(record) = item else { return None };
        Some(owe(shard, tables, record, now))
    }
}

/// Packets of the instance with this key.
fn subject(tables: &Tables, per: MeterScope, key: &Key) -> Subject {
    let prefix = |v4: u8, v6: u8| Prefix {
        first: key.source(),
        bits: if key.family() == Family::V6 { v6 } else { v4 },
    };
    match per {
        MeterScope::All => Subject::All,
        MeterScope::Source(v4, v6) => Subject::Source(prefix(v4, v6)),
        MeterScope::Destination(v4, v6) => Subject::Destination(prefix(v4, v6)),
        MeterScope::Flow => {
            let ct_zone = Some(key.ct_zone()).filter(|ct_zone| *ct_zone != 0);
            let is_of = |ct_zone| tables.interfaces.iter().position(|interface| interface.ct_zone == ct_zone);
            let interface = ct_zone.and_then(is_of).map(|place| PortId(place as u16));
            Subject::Flow { ends: Ends::of(key), interface }
        }
    }
}

/// Notes the debts of an instance. A meter whose instances are others here has no such one.
fn owe(shard: &mut Shard, tables: &Tables, record: &MeterRecord, now: Nanos) -> Result<(), Refused> {
    let place = record.meter.ok_or(Refused::NameGone)?;
    let meter = tables.classes.meters.get(usize::from(place)).ok_or(Refused::NameGone)?;
    let key = |prefix: Prefix, v4: u8, v6: u8| {
        let is_same = prefix.bits == if prefix.first.is_ipv6() { v6 } else { v4 };
        let address = Address::from(prefix.first).prefix(v4, v6);
        is_same.then(|| Some(limiter::subject(address, limiter::ALL_RULES))).ok_or(Refused::NameGone)
    };
    let key = match (meter.per, record.subject) {
        (_, Subject::All) => None,
        (MeterScope::Source(v4, v6), Subject::Source(prefix))
        | (MeterScope::Destination(v4, v6), Subject::Destination(prefix)) => key(prefix, v4, v6)?,
        (MeterScope::Flow, Subject::Flow { ends, interface }) => {
            let interface = interface.and_then(|id| tables.interface(id));
            let ct_zone = interface.map_or(0, |interface| interface.ct_zone);
            Some(ends.to_key().ok_or(Refused::Malformed)?.in_ct_zone(ct_zone))
        }
        _ => return Err(Refused::NameGone),
    };
    let of = key.map(|key| (key, shard.flows.hash(&key, &mut NoTally)));
    shard.meters.owe(place, of, record.debts, now).ok_or(Refused::TableFull)
}

impl Plan for MetersPlan {
    fn apply(&mut self, shard: &mut Shard, _: &mut Applying<'_>) {
        self.meters.continue_from(&mut shard.meters, &self.were);
        std::mem::swap(&mut shard.meters, &mut self.meters);
    }
}

#[cfg(test)]
mod tests {
    use policy::model::Colour;

    use super::*;
    use crate::hop::Resolve;
    use crate::meter::Arrival;
    use crate::nat::Share;
    use crate::shard::Setup;
    use crate::state::{Cursor, Names};

    const INTERFACES: &str = "[interface.lan]\nzone = \"lan\"\naddresses = [\"192.168.1.1/24\"]\n";
    const NOW: Nanos = Nanos::from_secs(100);

    /// Buckets of 10,000 bytes that a second fills.
    fn meter(name: &str, per: &str) -> String {
        format!(
            "[[meter]]\nname = \"{name}\"\nrate = \"80 kbit/s\"\nburst = 10000\nper = \"{per}\"\ninstances = 64\n\
             [[class]]\nname = \"{name}\"\ndport = 1\nprotocol = \"udp\"\nmeter = \"{name}\"\n"
        )
    }

    fn shard(text: &str) -> (Tables, Shard) {
        let checked = policy::check(text, "meters.toml");
        let tables = Tables::compile(&checked.policy.expect("a sound policy"), 1).unwrap();
        let setup = Setup { seed: [1, 2], now: NOW, resolve: Resolve::ByHost, share: Share::WHOLE };
        let shard = Shard::new(&tables, setup).unwrap();
        (tables, shard)
    }

    /// Bytes that the instance lets pass at a moment.
    fn passes(shard: &mut Shard, meter: u16, key: Option<Key>, at: Nanos) -> u64 {
        let of = key.map(|key| (key, shard.flows.hash(&key, &mut NoTally)));
        let packet = Arrival { length: 100, before: Colour::Green, at };
        let green = |_: &u64| shard.meters.colour(meter, packet, of, &mut NoTally) == Colour::Green;
        (1..=200).take_while(green).count() as u64 * 100
    }

    #[test]
    fn drained_buckets_are_drained_elsewhere() {
        let meters = [("all", "all"), ("each", "source/24/64"), ("flow", "flow"), ("gone", "all")];
        let meters: Vec<String> = meters.iter().map(|(name, per)| meter(name, per)).collect();
        let (tables, mut before) = shard(&format!("{INTERFACES}{}", meters.concat()));
        let source = Some(limiter::subject(Address::v4(0xc0a8_0100), limiter::ALL_RULES));
        let other = Some(limiter::subject(Address::v4(0xc0a8_0200), limiter::ALL_RULES));
        let flow = |tables: &Tables| {
            let lan = tables.interface_named("lan").and_then(|id| tables.interface(id)).unwrap();
            Some(Key::v4(0xc0a8_0107, 9, 5, 1, 17).in_ct_zone(lan.ct_zone))
        };
        let at = NOW + Nanos::from_secs(1);
        for (meter, key) in [(0, None), (1, source), (2, flow(&tables)), (3, None)] {
            assert_eq!(passes(&mut before, meter, key, at), 10_000);
        }
        let mut items = Vec::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = before.export(&tables, at, from, 7, |item| items.push(item));
        }
        items.retain(|item| matches!(item, Item::Meter(_)));
        assert_eq!(items.len(), 4, "what is full is left out: {items:?}");

        // Other places, another clock, another burst, and a meter less.
        let text =
            format!("[interface.dmz]\nzone = \"dmz\"\n{INTERFACES}{}{}{}", meters[2], meters[1], meters[0]);
        let (tables_now, mut now) = shard(&text.replace("burst = 10000", "burst = 12000"));
        let places = Names::of(&tables).places_in(&tables_now);
        let then = NOW + Nanos::from_secs(5_000);
        let away = Nanos::from_millis(250);
        let refused: Vec<_> = items
            .iter()
            .filter_map(|item| now.import(&tables_now, &places.moved(item).aged(away), then).err())
            .collect();
        assert_eq!(refused, [Refused::NameGone]);
        // A quarter of a second's 2,500 bytes have come, and the 2,000 that the bucket is larger by.
        for (meter, key) in [(2, None), (1, source), (0, flow(&tables_now))] {
            assert_eq!(passes(&mut now, meter, key, then), 4_500, "{meter}");
            assert_eq!(passes(&mut now, meter, key, then + Nanos::from_millis(500)), 5_000, "{meter}");
        }
        assert_eq!(passes(&mut now, 1, other, then), 12_000);
    }

    #[test]
    fn instances_of_another_kind_are_refused() {
        let (tables, mut shard) = shard(&format!("{INTERFACES}{}", meter("each", "source/24/64")));
        let debts = crate::meter::Debts { committed: Nanos(9), second: Nanos(0) };
        let first = "192.168.1.0".parse().unwrap();
        for (subject, outcome) in [
            (Subject::Source(Prefix { first, bits: 24 }), Ok(())),
            (Subject::All, Ok(())),
            (Subject::Source(Prefix { first, bits: 25 }), Err(Refused::NameGone)),
            (Subject::Destination(Prefix { first, bits: 24 }), Err(Refused::NameGone)),
        ] {
            let item = Item::Meter(MeterRecord { meter: Some(0), subject, debts });
            assert_eq!(shard.import(&tables, &item, NOW), outcome, "{subject:?}");
        }
    }
}
