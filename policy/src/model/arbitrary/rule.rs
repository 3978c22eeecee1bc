//! Random filter rules.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use wire::Nanos;

use super::{action, conditions, name, scope};
use crate::model::{ConnectionLimit, DnatStatus, Excess, Helper, Logging, Rate, Rule, State, SynAnswer};

/// Any rule.
pub(crate) fn rule() -> impl Strategy<Value = Rule> {
    let rate = (1..u32::MAX, 1..u64::MAX, 1..u32::MAX, scope(), any::<bool>());
    let rate = rate.prop_map(|(count, per, burst, scope, whole)| {
        let per = Nanos(if whole { [1, 60, 3_600, 86_400][per as usize % 4] * 1_000_000_000 } else { per });
        Rate { count, per, burst: if whole { count } else { burst }, scope }
    });
    let connections = (1..u32::MAX, scope()).prop_map(|(most, scope)| ConnectionLimit { most, scope });
    let excess = select(&[Excess::Drop, Excess::Next][..]);
    let states = select(&[State::New, State::Established, State::Related, State::Invalid][..]);
    let dnat = option::of(select(&[DnatStatus::Translated, DnatStatus::Untranslated][..]));
    let then = (
        (option::of(rate), excess),
        option::of(connections),
        select(&[Logging::Off, Logging::On][..]),
        action(),
    );
    let syn = select(&[SynAnswer::Forward, SynAnswer::Proxy][..]);
    let adds = (option::of(name()), option::of(any::<u64>().prop_map(Nanos)));
    let syn = (syn, option::of(prop_oneof![Just(Helper::Ftp), Just(Helper::Sip), Just(Helper::Pptp)]));
    let then = (then, option::of(any::<u64>().prop_map(Nanos)), syn, adds);
    (name(), conditions(), (vec(states, 0..3), dnat), then).prop_map(
        |(
            name,
            conditions,
            (states, dnat),
            (((rate, excess), connections, log, action), timeout, (syn, helper), (add_source, add_for)),
        )| Rule {
            name,
            conditions,
            states,
            dnat,
            rate,
            excess,
            connections,
            timeout,
            syn,
            helper,
            add_source,
            add_for,
            log,
            action,
        },
    )
}
