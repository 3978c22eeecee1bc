//! Traffic classes and meters.

use wire::vlan::DropEligible;

use super::Keys;
use super::rule::conditions;
use crate::model::{Class, Colour, Meter, Overhead};
use crate::value::meter::{COLOUR_ACTION, OVERHEAD, RATE, SCOPE};
use crate::value::packet::{DSCP, PCP};
use crate::value::{Flag, NUMBER32, NUMBER64, STRING};
use crate::word;

/// Keys of a `[[class]]`.
pub(crate) fn class(keys: &mut Keys<'_, '_>, class: &mut Class) -> bool {
    keys.required("name", "\"voice\"", STRING, &mut class.name);
    conditions(keys, &mut class.conditions);
    keys.list("pcp", PCP, &mut class.pcp);
    keys.optional("dei", Flag(DropEligible::Yes, DropEligible::No), &mut class.dei);
    keys.optional("meter", STRING, &mut class.meter);
    keys.optional("mark", DSCP, &mut class.mark);
    keys.optional("mark-pcp", PCP, &mut class.mark_pcp);
    true
}

/// Keys of a `[[meter]]`.
pub(crate) fn meter(keys: &mut Keys<'_, '_>, meter: &mut Meter) -> bool {
    keys.required("name", "\"gold\"", STRING, &mut meter.name);
    keys.key("kind", word::METER_KIND, &mut meter.kind);
    keys.required("rate", "\"10 Mbit/s\"", RATE, &mut meter.rate);
    keys.required("burst", "15000", NUMBER64, &mut meter.burst);
    keys.optional("peak-rate", RATE, &mut meter.peak_rate);
    keys.optional("peak-burst", NUMBER64, &mut meter.peak_burst);
    keys.optional("excess-rate", RATE, &mut meter.excess_rate);
    keys.optional("excess-burst", NUMBER64, &mut meter.excess_burst);
    keys.key("colours", word::COLOUR_MODE, &mut meter.colours);
    keys.key_or("overhead", OVERHEAD, &mut meter.overhead, Overhead::IP);
    keys.key("per", SCOPE, &mut meter.per);
    keys.key_or("instances", NUMBER32, &mut meter.instances, Meter::INSTANCES);
    keys.key("when-full", word::NO_INSTANCE, &mut meter.when_full);
    for (colour, default) in Colour::ALL.into_iter().zip(Meter::new("").actions) {
        keys.key_or(colour.name(), COLOUR_ACTION, &mut meter.actions[colour as usize], default);
    }
    true
}
