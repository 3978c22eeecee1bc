//! Limits and timeouts.

use config::Entry;

use super::Table;
use super::value;
use crate::model::{Limits, Timeouts};
use crate::word;

/// Reads `[limit]`.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> (Limits, Entry) {
    let mut limits = Limits::default();
    set(&mut limits.flows, table.take("flows", value::number32));
    set(&mut limits.when_full, table.take("when-full", |value| value::one_of(value, word::WHEN_FULL)));
    limits.flows_per_source = table.take("flows-per-source", value::number32);
    set(&mut limits.errors_per_second, table.take("errors-per-second", value::number32));
    set(&mut limits.errors_in_all, table.take("errors-in-all", value::number32));
    set(&mut limits.queue, table.take("queue", value::number32));
    set(&mut limits.tcp_window, table.take("tcp-window", |value| value::one_of(value, word::TCP_WINDOW)));
    set(&mut limits.pickup, table.take("pickup", |value| value::one_of(value, word::PICKUP)));
    set(&mut limits.checksum, table.take("checksum", |value| value::one_of(value, word::CHECKSUM)));
    let inner = table.raw("fragments");
    let inner = inner.and_then(|value| Table::of(table.sink(), value, "[limit.fragments]"));
    let mut entry = Entry::default();
    if let Some(mut fragments) = inner {
        set(&mut limits.fragments.datagrams, fragments.take("datagrams", value::number32));
        set(&mut limits.fragments.held, fragments.take("held", value::number32));
        set(&mut limits.fragments.datagram, fragments.take("datagram", value::bytes));
        entry = fragments.finish();
    }
    let mut whole = table.finish();
    whole.broken |= entry.broken;
    whole.parts.append(&mut entry.parts);
    (limits, whole)
}

/// Reads `[timeout]`.
pub(super) fn read_timeouts(mut table: Table<'_, '_, '_>) -> (Timeouts, Entry) {
    let mut timeouts = Timeouts::default();
    set(&mut timeouts.tcp_half_open, table.take("tcp-half-open", value::duration));
    set(&mut timeouts.tcp_established, table.take("tcp-established", value::duration));
    set(&mut timeouts.tcp_closing, table.take("tcp-closing", value::duration));
    set(&mut timeouts.tcp_reset, table.take("tcp-reset", value::duration));
    set(&mut timeouts.udp, table.take("udp", value::duration));
    set(&mut timeouts.udp_unanswered, table.take("udp-unanswered", value::duration));
    set(&mut timeouts.icmp, table.take("icmp", value::duration));
    set(&mut timeouts.other, table.take("other", value::duration));
    set(&mut timeouts.fragment, table.take("fragment", value::duration));
    (timeouts, table.finish())
}

fn set<T>(to: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *to = given;
    }
}
