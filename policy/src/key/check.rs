//! Health checks of servers and WANs.

use super::Keys;
use crate::model::{Balance, Pace, Probe, ServerCheck, StatusRange};
use crate::value::check::{PROBE, STATUS};
use crate::value::time::DURATION;
use crate::value::{Value, WEIGHT};

/// `check` of a balance: a table.
pub(super) fn of_balance(keys: &mut Keys<'_, '_>, balance: &mut Balance) {
    if matches!(keys, Keys::Print(_)) && balance.check.is_none() {
        return;
    }
    let mut check = balance.check.take().unwrap_or_default();
    let found = keys.table("[nat.check]", |keys| server_check(keys, &mut check));
    let is_there = found.is_some() || matches!(keys, Keys::Print(_));
    balance.check = is_there.then_some(check);
    keys.absorb(found);
}

/// Keys of `[nat.check]`.
pub(super) fn server_check(keys: &mut Keys<'_, '_>, check: &mut ServerCheck) {
    keys.key_or("probe", PROBE, &mut check.probe, Probe::default());
    status(keys, &mut check.status);
    pace(keys, &mut check.pace, ServerCheck::PACE);
}

/// Statuses of HTTP that pass.
pub(super) fn status(keys: &mut Keys<'_, '_>, status: &mut Vec<StatusRange>) {
    keys.list_or("status", STATUS, status, vec![StatusRange::SUCCESSFUL]);
}

/// Interval and hysteresis of a check, whose defaults are `usual`.
pub(super) fn pace(keys: &mut Keys<'_, '_>, pace: &mut Pace, usual: Pace) {
    const NUMBER: Value<u8> = WEIGHT;
    keys.key_or("every", DURATION, &mut pace.every, usual.every);
    keys.optional("timeout", DURATION, &mut pace.timeout);
    keys.key_or("fall", NUMBER, &mut pace.fall, usual.fall);
    keys.key_or("rise", NUMBER, &mut pace.rise, usual.rise);
}
