//! Notes for operators on settings of Linux that have no effect on the gateway's packets.

use std::collections::BTreeMap;

use policy::model::FastPath;
use tracing::{debug, warn};

use super::kernel::Kernel;
use crate::linux::{State, beside};
use crate::reload::Reload;

impl Kernel {
    /// Notes on queueing disciplines and routing rules that have no effect; each is logged once, as long as it is there.
    pub(super) fn notes(&mut self, reload: &Reload) -> Vec<String> {
        let mut notes = Vec::new();
        match beside::qdiscs() {
            Ok(qdiscs) => {
                let has_fast_path = reload.policy.gateway.fast_path != FastPath::Off;
                let but = if has_fast_path { ", but for those on the fast path" } else { "" };
                let names: BTreeMap<u32, &str> = reload
                    .effective
                    .policy
                    .interfaces
                    .iter()
                    .filter_map(|own| Some((self.state.link_named(&own.name)?.0.0, own.name.as_str())))
                    .collect();
                notes.extend(qdiscs.iter().filter_map(|qdisc| {
                    let name = names.get(&qdisc.link)?;
                    Some(format!(
                        "{name} has the queueing discipline {}, which the gateway's frames bypass{but}",
                        qdisc.kind
                    ))
                }));
            }
            Err(error) => debug!("queueing disciplines cannot be listed: {error}"),
        }
        match beside::rules() {
            Ok(rules) => notes.extend(rules.iter().map(|rule| {
                format!("{rule} is not followed: the gateway's routes are those of the main table")
            })),
            Err(error) => debug!("routing rules cannot be listed: {error}"),
        }
        notes.extend(forwarding(&reload.policy, &self.state));
        for note in &notes {
            if !self.logged.contains(note) {
                warn!("{note}");
            }
        }
        self.logged.clone_from(&notes);
        notes
    }
}

/// Returns a note for operators if Linux forwards, and has interfaces that the policy does not name.
fn forwarding(policy: &policy::Policy, linux: &State) -> Option<String> {
    let is_on = |path: &str| std::fs::read_to_string(path).is_ok_and(|value| value.trim() != "0");
    let settings = [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward"),
        ("net.ipv6.conf.all.forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ];
    let on: Vec<&str> = settings.iter().filter(|(_, path)| is_on(path)).map(|(name, _)| *name).collect();
    let punts: Vec<String> = linux.links.keys().map(|index| format!("wr{}", index.0)).collect();
    let mut outside = linux.links.values().map(|link| link.name.as_str()).filter(|name| {
        *name != "lo" && policy.interface(name).is_none() && !punts.iter().any(|punt| punt == name)
    });
    let first = outside.next().filter(|_| !on.is_empty())?;
    let more = match outside.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let fate = if policy.admits_other() {
        "meets the rules of the zone \"other\" where it would leave by an interface of the policy"
    } else {
        "is dropped (other-drop) where it would leave by an interface of the policy"
    };
    let on = on.join(", ");
    Some(format!(
        "Linux forwards ({on}), also from {first}{more}, not of the policy: what comes from there {fate}"
    ))
}
