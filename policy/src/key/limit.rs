//! Limits and timeouts.

use wire::Nanos;

use super::Keys;
use crate::model::{FragmentLimits, Limits, Timeouts};
use crate::value::time::DURATION;
use crate::value::{BYTES, NUMBER32};
use crate::word;

/// Keys of `[limit]`.
pub(super) fn limits(keys: &mut Keys<'_, '_>, limits: &mut Limits) {
    let default = Limits::default();
    keys.key_or("flows", NUMBER32, &mut limits.flows, default.flows);
    keys.key("when-full", word::WHEN_FULL, &mut limits.when_full);
    keys.optional("flows-per-source", NUMBER32, &mut limits.flows_per_source);
    keys.key_or("errors-per-second", NUMBER32, &mut limits.errors_per_second, default.errors_per_second);
    keys.key_or("errors-in-all", NUMBER32, &mut limits.errors_in_all, default.errors_in_all);
    keys.key_or("queue", NUMBER32, &mut limits.queue, default.queue);
    keys.key_or("sas", NUMBER32, &mut limits.sas, default.sas);
    keys.key("tcp-window", word::TCP_WINDOW, &mut limits.tcp_window);
    keys.key("pickup", word::PICKUP, &mut limits.pickup);
    keys.key("checksum", word::CHECKSUM, &mut limits.checksum);
    let entry = keys.table("[limit.fragments]", |keys| fragments(keys, &mut limits.fragments));
    keys.absorb(entry);
}

pub(super) fn fragments(keys: &mut Keys<'_, '_>, limits: &mut FragmentLimits) {
    let default = FragmentLimits::default();
    keys.key_or("datagrams", NUMBER32, &mut limits.datagrams, default.datagrams);
    keys.key_or("held", NUMBER32, &mut limits.held, default.held);
    keys.key_or("datagram", BYTES, &mut limits.datagram, default.datagram);
}

/// Keys of `[timeout]`.
pub(super) fn timeouts(keys: &mut Keys<'_, '_>, timeouts: &mut Timeouts) {
    let default = times(&mut Timeouts::default()).map(|(_, time)| *time);
    for ((key, time), default) in times(timeouts).into_iter().zip(default) {
        keys.key_or(key, DURATION, time, default);
    }
}

/// The timeouts, with their keys.
pub(crate) fn times(timeouts: &mut Timeouts) -> [(&'static str, &mut Nanos); 9] {
    [
        ("tcp-half-open", &mut timeouts.tcp_half_open),
        ("tcp-established", &mut timeouts.tcp_established),
        ("tcp-closing", &mut timeouts.tcp_closing),
        ("tcp-reset", &mut timeouts.tcp_reset),
        ("udp", &mut timeouts.udp),
        ("udp-unanswered", &mut timeouts.udp_unanswered),
        ("icmp", &mut timeouts.icmp),
        ("other", &mut timeouts.other),
        ("fragment", &mut timeouts.fragment),
    ]
}
