//! Queues: per-hop behaviours, shares, bounds, thresholds and delays.

use config::quantity::exact;
use config::word::meaning;
use toml::de::DeValue;
use wire::{Bytes, Nanos};

use super::packet::DSCP;
use super::time::DURATION;
use super::{Complaint, Form, Read, Text, Value, number, quoted};
use crate::diagnostic::Code;
use crate::model::{Phb, Queue, RedThreshold};
use crate::word::Words;

/// A per-hop behaviour: a word, or a code point.
pub(crate) const PHB: Value<Phb> = Value {
    read: phb,
    print: |phb| match phb {
        Phb::Ef => quoted("ef"),
        Phb::Af(class) => quoted(&format!("af{class}")),
        Phb::Cs(class) => quoted(&format!("cs{class}")),
        Phb::Le => quoted("le"),
        Phb::Dscp(dscp) => DSCP.print(dscp),
    },
};

/// A number of instances.
pub(crate) const INSTANCES: Value<u32> =
    Value { read: |value| number32(value, 1, Queue::MOST_INSTANCES), print: u32::to_string };

/// A number of packets that a leaf holds.
pub(crate) const LIMIT: Value<u32> =
    Value { read: |value| number32(value, 1, Queue::MOST_LIMIT), print: u32::to_string };

/// Share of a child: its weight.
pub(crate) const SHARE: Value<u32> =
    Value { read: |value| number32(value, 1, Queue::MOST_WEIGHT), print: u32::to_string };

/// Priority of a child, from 0.
pub(crate) const PRIORITY: Value<u8> = Value {
    read: |value| number(value, 0, u64::from(Queue::PRIORITIES) - 1).map(|priority| priority as u8),
    print: u8::to_string,
};

/// Coupling of DualPI2.
pub(crate) const COUPLING: Value<u32> =
    Value { read: |value| number32(value, 1, Queue::MOST_COUPLING), print: u32::to_string };

/// Bytes of a turn.
pub(crate) const QUANTUM: Value<Bytes> = Value {
    read: |value| number(value, Queue::LEAST_QUANTUM.0, Queue::MOST_QUANTUM.0).map(Bytes),
    print: |bytes| bytes.0.to_string(),
};

/// A number of queues for flows: a power of two.
pub(crate) const FLOWS: Value<u32> = Value {
    read: |value| {
        let flows = number32(value, 1, Queue::MOST_FLOWS)?;
        if flows.is_power_of_two() {
            return Ok(flows);
        }
        Err(Complaint::new(config::Code::BadNumber, format!("{flows} is not a power of two"))
            .hint(format!("write {}", flows.next_power_of_two())))
    },
    print: u32::to_string,
};

/// Thresholds of RED: `20-60 10%`.
pub(crate) const RED: Text<RedThreshold> = Text { read: red, print: red_text };

/// A delay, target or interval of a dropper: not zero, and 10 seconds at most.
pub(crate) const DELAY: Value<Nanos> = Value {
    read: |value| {
        let delay = DURATION.read(value)?;
        if (1..=Queue::MOST_DELAY.0).contains(&delay.0) {
            return Ok(delay);
        }
        Err(Complaint::new(Code::BadDuration, format!("{} is out of range", DURATION.print(&delay)))
            .hint("write more than 0s, and 10s at most"))
    },
    print: |delay| DURATION.print(delay),
};

fn number32(value: &DeValue<'_>, least: u32, most: u32) -> Read<u32> {
    number(value, least.into(), most.into()).map(|number| number as u32)
}

/// Behaviours of three code points; all others are code points with names.
const ASSURED: Words<Phb> =
    &[("af1", Phb::Af(1)), ("af2", Phb::Af(2)), ("af3", Phb::Af(3)), ("af4", Phb::Af(4))];

fn phb(value: &DeValue<'_>) -> Read<Phb> {
    if let Some(phb) = value.as_str().and_then(|text| meaning(ASSURED, text)) {
        return Ok(phb);
    }
    DSCP.read(value).map(Phb::of).map_err(|complaint| {
        complaint
            .hint("write \"ef\", \"af1\" to \"af4\", \"cs0\" to \"cs7\", \"le\", \"be\", or a code point such as \"af12\" or 12")
    })
}

fn red(text: &str) -> Read<RedThreshold> {
    let hint = "write \"20-60 10%\": packets from which some are dropped, and from which all; and the share just below that, 0.1% to 100%";
    let bad = |why: &str| {
        Complaint::new(config::Code::BadQuantity, format!("\"{text}\" is no threshold of RED{why}"))
            .hint(hint)
    };
    let (average, share) = text.trim().split_once(char::is_whitespace).ok_or_else(|| bad(""))?;
    let (min, max) = average.split_once('-').ok_or_else(|| bad(""))?;
    let (min, max): (u32, u32) =
        min.trim().parse().ok().zip(max.trim().parse().ok()).ok_or_else(|| bad(""))?;
    let share = share.trim().strip_suffix('%').ok_or_else(|| bad(""))?.trim();
    if min >= max {
        return Err(bad(": it runs backwards"));
    }
    let per_mille = exact(share, 10).and_then(Result::ok).filter(|share| (1..=1_000).contains(share));
    let per_mille = per_mille.ok_or_else(|| bad(": the share is out of range, or finer than 0.1%"))? as u16;
    Ok(RedThreshold { min, max, per_mille })
}

fn red_text(red: &RedThreshold) -> String {
    let (whole, tenths) = (red.per_mille / 10, red.per_mille % 10);
    let share = if tenths == 0 { whole.to_string() } else { format!("{whole}.{tenths}") };
    format!("{}-{} {share}%", red.min, red.max)
}
