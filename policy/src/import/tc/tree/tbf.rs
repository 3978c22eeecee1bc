//! Token bucket filter: a shaper, and one more for the peak rate.

use wire::{BitRate, Bytes, Nanos};

use super::{Builder, Entry};
use crate::import::note::Why;
use crate::import::tc::option::Options;
use crate::import::tc::source::Parent;
use crate::import::tc::unit::Handle;
use crate::model::Meter;

impl Builder<'_> {
    /// Puts the shapers of a qdisc at a node, and what it holds behind them.
    pub(super) fn tbf(&mut self, qdisc: usize, slot: usize) -> Vec<Entry> {
        let object = &self.ledger.objects[qdisc];
        let handle = object.handle.unwrap_or(Handle { major: 0, minor: 0 });
        let mut options = Options::of("tbf", &object.words);
        let rate = options.rate(&["rate"]);
        let rate = self.taken(qdisc, rate).and_then(|rate| self.bit_rate(qdisc, rate));
        let burst = options.size(&["burst", "buffer", "maxburst"]);
        let burst = self.taken(qdisc, burst);
        let peak = options.rate(&["peakrate"]);
        let peak = self.taken(qdisc, peak).and_then(|rate| self.bit_rate(qdisc, rate));
        let peak_burst = options.size(&["mtu", "minburst"]);
        let peak_burst = self.taken(qdisc, peak_burst);
        let peak = match peak.zip(rate) {
            Some((peak, rate)) if peak <= rate => {
                self.ledger.miss(qdisc, Why::Refused("a peak rate is above the rate".to_owned()));
                None
            }
            _ => peak,
        };
        if !options.has("peakrate") && peak_burst.is_some_and(|burst| burst > 0) {
            self.ledger.miss(qdisc, Why::NotPrinted("peak rate".to_owned()));
        }
        let limit = options.size(&["limit"]);
        let limit = self.taken(qdisc, limit);
        let latency = options.time(&["latency", "lat"]);
        // JSON has whole microseconds of it, cut off.
        let whole = |time: Nanos| {
            if (time.0 / 1_000 + 1) % 1_000 == 0 { Nanos(time.0 / 1_000 * 1_000 + 1_000) } else { time }
        };
        let latency = self.taken(qdisc, latency).map(whole);
        let Some(rate) = rate else {
            self.ledger.miss(qdisc, Why::Feature("tbf without a rate".to_owned()));
            return vec![Entry::all(slot)];
        };
        self.ledger.translated(qdisc);
        let mut node = slot;
        let shapers = [peak.map(|peak| ("peak", peak, peak_burst)), Some(("rate", rate, burst))];
        for (name, rate, burst) in shapers.into_iter().flatten() {
            let queue = &self.forest.nodes[node].queue;
            if queue.rate.is_some() || queue.guarantee.is_some() {
                let Some(inner) = self.child(node, &format!("{handle}{name}"), qdisc) else {
                    return vec![Entry::all(slot)];
                };
                node = inner;
            }
            let overhead = self.forest.nodes[node].overhead;
            let overhead = self.overhead(qdisc, &mut options, overhead);
            self.set_overhead(node, overhead);
            let longest = self.longest(node);
            // More than what is above lets pass is without effect.
            let ceiling = self.ceiling(node);
            self.node(node).rate = Some(ceiling.map_or(rate, |ceiling| ceiling.min(rate)));
            match burst {
                Some(burst) if burst >= longest => {
                    let key = if name == "peak" { "mtu" } else { "burst" };
                    let bounded = options.within(key, burst, longest..=Meter::MOST_BURST);
                    self.node(node).burst = Some(Bytes(bounded));
                }
                Some(burst) => self
                    .ledger
                    .miss(qdisc, Why::Value(format!("burst {burst}b, less than a packet of {longest}"))),
                None => {}
            }
        }
        let class = Handle { minor: 1, ..handle };
        for (index, parent) in [(class, Parent::Of(class)), (handle, Parent::Of(handle))] {
            if self.device.qdisc_at(parent).is_some() {
                self.rest(qdisc, &options);
                self.imply_classes(handle);
                return self.place_at(index, node);
            }
        }
        self.imply_classes(handle);
        // As tc computes it: what comes in the latency, and a burst.
        let bytes = |(_, rate, burst): (&str, BitRate, Option<u64>)| {
            let time = latency.map(|latency| u128::from(rate.0) * u128::from(latency.0) / 8_000_000_000)?;
            u64::try_from(time).ok()?.checked_add(burst.unwrap_or(0))
        };
        let computed = shapers.into_iter().flatten().filter_map(bytes).min();
        if let Some(limit) = limit.or(computed) {
            let longest = self.longest(node);
            let bounded = if options.has("limit") {
                options.within("limit", limit, longest..=Meter::MOST_BURST)
            } else {
                let bounded = limit.clamp(longest, Meter::MOST_BURST);
                if bounded < limit {
                    options.bound("latency", format!("a limit of {bounded} bytes"));
                }
                bounded
            };
            self.node(node).limit_bytes = Some(Bytes(bounded));
            // The packets of a bound in bytes: as many as may be.
            let packets = (limit / 64).clamp(1, 16_384) as u32;
            self.node(node).limit = Some(packets);
        }
        self.rest(qdisc, &options);
        vec![Entry::all(node)]
    }
}
