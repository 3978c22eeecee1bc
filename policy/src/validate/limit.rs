//! Limits and timeouts.

use wire::Nanos;

use super::Validator;
use crate::diagnostic::Code;
use crate::key::times;
use crate::lines::Item;
use crate::value::time::duration_text;

/// Least timeouts by RFCs.
const LEAST: [(&str, u64, &str); 6] = [
    ("tcp-half-open", 240, "RFC 5382, REQ-5, asks for 4 minutes at least"),
    ("tcp-established", 7_440, "RFC 5382, REQ-5, asks for 2 hours and 4 minutes at least"),
    ("tcp-closing", 240, "RFC 5382, REQ-5, asks for 4 minutes at least"),
    ("udp", 120, "RFC 4787, REQ-5, asks for 2 minutes at least, and recommends 5"),
    ("icmp", 60, "RFC 5508, REQ-2, asks for 60 seconds at least"),
    ("fragment", 15, "RFC 791, section 3.2, asks for 15 seconds at least"),
];

impl Validator<'_> {
    pub(super) fn limits(&mut self) {
        let limits = &self.policy.limits;
        let fragments = limits.fragments;
        let mut bounds = vec![
            ("flows", u64::from(limits.flows), 1, 16_777_216),
            ("errors-per-second", limits.errors_per_second.into(), 0, 1_000_000),
            ("errors-in-all", limits.errors_in_all.into(), 0, 10_000_000),
            ("queue", limits.queue.into(), 1, 1_000_000),
            ("sas", limits.sas.into(), 1, 65_536),
            ("datagrams", fragments.datagrams.into(), 1, 1_000_000),
            ("held", fragments.held.into(), 0, 1_000_000),
            ("datagram", fragments.datagram.0, 576, 65_535),
        ];
        if let Some(most) = limits.flows_per_source {
            bounds.push(("flows-per-source", most.into(), 1, 16_777_216));
        }
        for (key, given, least, most) in bounds {
            if !(least..=most).contains(&given) {
                let message = format!("`{key}` = {given} is out of range");
                self.wrong(Code::BadLimit, Item::Limit, key, message, format!("from {least} to {most}"));
            }
        }
    }

    pub(super) fn timeouts(&mut self) {
        let mut timeouts = self.policy.timeouts;
        for (key, given) in times(&mut timeouts) {
            let given = *given;
            if given == Nanos(0) {
                let message = format!("with `{key}` = 0 nothing would be remembered");
                self.wrong(
                    Code::ZeroTimeout,
                    Item::Timeout,
                    key,
                    message,
                    "leave the key out for the default",
                );
                continue;
            }
            let least =
                LEAST.iter().find(|(name, least, _)| *name == key && given < Nanos::from_secs(*least));
            if let Some((_, _, why)) = least {
                let message = format!("`{key}` = {} is short", duration_text(given));
                self.wrong(Code::ShortTimeout, Item::Timeout, key, message, *why);
            }
        }
    }
}
