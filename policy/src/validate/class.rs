//! Traffic classes and meters.

use std::collections::HashSet;

use config::did_you_mean;

use super::Validator;
use crate::diagnostic::{Code, Diagnostic};
use crate::lines::Item;
use crate::model::{
    Class, Colour, ColourAction, ColourMode, Conditions, Interface, LinkKind, Meter, MeterKind, MeterRate,
    MeterScope,
};

impl Validator<'_> {
    pub(super) fn classes(&mut self) {
        let policy = self.policy;
        for (index, class) in policy.classes.iter().enumerate() {
            let item = Item::Class(index);
            self.known_conditions(item, &class.conditions);
            if let Some(name) = &class.meter {
                self.known_meter(item, name);
            }
            if !self.lines.is_broken(item) {
                self.conditions(item, &class.conditions);
            }
            let is_tagged = policy.interfaces.iter().any(Interface::is_tagged);
            if class.mark_pcp.is_some() && !is_tagged && !self.lines.any_broken(Item::Interface(0)) {
                let message = "frames of no interface have a VLAN tag, and so no priority".to_owned();
                let hint = "write priority-tag = true in an [interface], or leave the key out";
                self.wrong(Code::PcpWithoutTag, item, "mark-pcp", message, hint);
            }
        }
        self.uses();
    }

    /// Reports classes that decide nothing. Where a queue could not be read, it may be for the class.
    fn uses(&mut self) {
        let policy = self.policy;
        let queued: HashSet<&str> =
            policy.queues.iter().flat_map(|queue| &queue.classes).map(String::as_str).collect();
        if self.lines.any_broken(Item::Queue(0)) {
            return;
        }
        for (index, class) in policy.classes.iter().enumerate() {
            let item = Item::Class(index);
            let is_used = class.meter.is_some() || class.mark.is_some() || class.mark_pcp.is_some();
            if is_used || queued.contains(class.name.as_str()) || self.lines.is_broken(item) {
                continue;
            }
            let message = format!("the class \"{}\" has no meter, mark or queue", class.name);
            let hint =
                "leave it out, unless it is there to be counted, or to keep packets out of later classes";
            let place = self.lines.place(item);
            self.report(Diagnostic::new(Code::ClassWithoutUse, message).hint(hint).at(place));
        }
    }

    fn known_meter(&mut self, item: Item, name: &str) {
        let meters = self.policy.meters.iter().map(|meter| meter.name.as_str());
        if meters.clone().any(|known| known == name) || self.lines.any_broken(Item::Meter(0)) {
            return;
        }
        let hint = did_you_mean(name, meters, || "add a [[meter]] with that name".to_owned());
        self.wrong(Code::UnknownMeter, item, "meter", format!("there is no meter \"{name}\""), hint);
    }

    pub(super) fn meters(&mut self) {
        let policy = self.policy;
        let named: HashSet<&str> = policy.classes.iter().filter_map(|class| class.meter.as_deref()).collect();
        for (index, meter) in policy.meters.iter().enumerate() {
            let item = Item::Meter(index);
            if self.lines.is_broken(item) {
                continue;
            }
            self.rates(item, meter);
            self.bursts(item, meter);
            self.scope(item, meter);
            self.eligibility(item, meter);
            if !named.contains(meter.name.as_str()) && !self.lines.any_broken(Item::Class(0)) {
                let message = format!("no class names the meter \"{}\"", meter.name);
                let hint = format!("write meter = \"{}\" in a [[class]], or leave the meter out", meter.name);
                let place = self.lines.place(item);
                self.report(Diagnostic::new(Code::MeterWithoutClass, message).hint(hint).at(place));
            }
        }
    }

    /// Reports second rates and bursts that the algorithm needs or has not, and rates of different kinds.
    fn rates(&mut self, item: Item, meter: &Meter) {
        let (peak, excess_rate, excess_burst, what) = match meter.kind {
            MeterKind::TokenBucket => (false, false, false, "a token bucket"),
            MeterKind::SingleRate => (false, false, true, "srtcm (RFC 2697)"),
            MeterKind::TwoRate => (true, false, false, "trtcm (RFC 2698)"),
            MeterKind::Rfc4115 => (false, true, true, "rfc4115"),
        };
        let keys = [
            ("peak-rate", peak, meter.peak_rate.is_some()),
            ("peak-burst", peak, meter.peak_burst.is_some()),
            ("excess-rate", excess_rate, meter.excess_rate.is_some()),
            ("excess-burst", excess_burst, meter.excess_burst.is_some()),
        ];
        for (key, needed, given) in keys {
            if needed && !given {
                let message = format!("{what} needs `{key}`");
                self.wrong(Code::BadMeter, item, "kind", message, format!("add {key} = ..."));
            } else if given && !needed {
                let message = format!("{what} has no `{key}`");
                self.wrong(Code::BadMeter, item, key, message, "leave it out, or choose another `kind`");
            }
        }
        if meter.possible_colours().all(|colour| colour != Colour::Yellow)
            && meter.actions[Colour::Yellow as usize] != ColourAction::Pass
        {
            let message =
                "a token bucket that is blind to colours gives no packet the colour yellow".to_owned();
            self.wrong(Code::BadMeter, item, "yellow", message, "write `red`: what is past the rate");
        }
        for (key, rate) in [("peak-rate", meter.peak_rate), ("excess-rate", meter.excess_rate)] {
            let Some(rate) = rate else { continue };
            if std::mem::discriminant(&rate) != std::mem::discriminant(&meter.rate) {
                let message = format!("`rate` and `{key}` count different things");
                self.wrong(Code::BadMeter, item, key, message, "write both in bit/s, or both in packets/s");
            } else if key == "peak-rate" && number(rate) < number(meter.rate) {
                let message = "the peak rate is below the committed one (RFC 2698, section 1)".to_owned();
                self.wrong(
                    Code::BadMeter,
                    item,
                    key,
                    message,
                    "write `peak-rate` at least as high as `rate`",
                );
            }
        }
    }

    /// Reports bursts that no packet fits in, or no packet of the largest MTU.
    fn bursts(&mut self, item: Item, meter: &Meter) {
        let bursts = [
            ("burst", Some(meter.burst)),
            ("peak-burst", meter.peak_burst),
            ("excess-burst", meter.excess_burst),
        ];
        let mtus = self.policy.interfaces.iter().map(|interface| interface.mtu);
        let longest = meter.overhead.count(mtus.max().unwrap_or(0).into());
        let is_of_bytes = matches!(meter.rate, MeterRate::Bits(_));
        // RFC 2697, section 1: of both bursts one at least is larger than 0.
        let may_be_none = |key| match meter.kind {
            MeterKind::SingleRate => {
                key == "excess-burst" || meter.excess_burst.is_some_and(|burst| burst > 0)
            }
            MeterKind::Rfc4115 => key != "burst",
            _ => false,
        };
        for (key, burst) in bursts {
            let Some(burst) = burst else { continue };
            if burst > Meter::MOST_BURST {
                let message = format!("a burst of {burst} is more than {}", Meter::MOST_BURST);
                self.wrong(Code::BadMeter, item, key, message, "write a smaller one");
            } else if burst == 0 && !may_be_none(key) {
                let message = "no packet passes a meter without a burst".to_owned();
                self.wrong(
                    Code::BadMeter,
                    item,
                    key,
                    message,
                    "write the bytes, or packets, that may come at once",
                );
            } else if burst > 0 && is_of_bytes && burst < longest {
                let message = format!("a burst of {burst} bytes has no room for a packet of {longest}");
                let hint =
                    format!("write {longest} at least: the largest MTU, with the overhead that is counted");
                self.wrong(Code::BadMeter, item, key, message, hint);
            }
        }
    }

    /// Reports a meter that reads the tags of frames, where all packets of its classes come by interfaces without Ethernet.
    fn eligibility(&mut self, item: Item, meter: &Meter) {
        let policy = self.policy;
        if meter.colours != ColourMode::DropEligible || self.lines.any_broken(Item::Interface(0)) {
            return;
        }
        let named =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|known| known == name);
        let own = |class: &&Class| class.meter.as_deref() == Some(meter.name.as_str());
        let (mut some, mut is_tagged) = (false, false);
        for class in policy.classes.iter().filter(own) {
            let Conditions { from, in_interfaces, .. } = &class.conditions;
            for interface in &policy.interfaces {
                if named(from, &interface.zone) && named(in_interfaces, &interface.name) {
                    some = true;
                    is_tagged |= interface.link == LinkKind::Ethernet;
                }
            }
        }
        if some && !is_tagged {
            let message = "no packet of its classes comes in a frame with a VLAN tag".to_owned();
            let hint = "write colours = \"aware\" for those of code points, or leave the key out";
            self.wrong(Code::PcpWithoutTag, item, "colours", message, hint);
        }
    }

    fn scope(&mut self, item: Item, meter: &Meter) {
        if meter.per == MeterScope::Flow && self.is_stateless() {
            let message = "a stateless policy knows no flows".to_owned();
            self.wrong(
                Code::NeedsStateful,
                item,
                "per",
                message,
                "write per = \"source\", or mode = \"stateful\"",
            );
        }
        if !(1..=Meter::MOST_INSTANCES).contains(&meter.instances) {
            let message =
                format!("{} instances are not from 1 to {}", meter.instances, Meter::MOST_INSTANCES);
            self.wrong(Code::BadLimit, item, "instances", message, "each takes some 160 bytes of memory");
        }
    }
}

fn number(rate: MeterRate) -> u64 {
    match rate {
        MeterRate::Bits(rate) => rate.0,
        MeterRate::Packets(count) => count,
    }
}
