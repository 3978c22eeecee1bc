//! What an operator ought to know of Linux because it has no effect on the gateway's packets.

use std::collections::BTreeMap;

use tracing::{debug, warn};

use super::Supervisor;
use crate::linux::beside;

impl Supervisor {
    /// Notes on queueing disciplines and routing rules that have no effect; each is logged once, as long as it is there.
    pub(super) fn notes_beside(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        match beside::qdiscs() {
            Ok(qdiscs) => {
                let names: BTreeMap<u32, &str> = self
                    .reload
                    .effective
                    .policy
                    .interfaces
                    .iter()
                    .filter_map(|own| Some((self.linux.link_named(&own.name)?.0.0, own.name.as_str())))
                    .collect();
                notes.extend(qdiscs.iter().filter_map(|qdisc| {
                    let name = names.get(&qdisc.link)?;
                    Some(format!(
                        "{name} has the queueing discipline {}, which the gateway's frames bypass",
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
        notes.extend(super::answer::forwarding(&self.reload.policy, &self.linux));
        for note in &notes {
            if !self.noted.contains(note) {
                warn!("{note}");
            }
        }
        self.noted.clone_from(&notes);
        notes
    }
}
