//! Text of a queue's card.

use std::mem;

use policy::model::{Dropper, Queue};
use policy::{Setting, Settings};

use crate::screen::{count, number};

/// Keys of a queue, taken one by one; what is left is written as it stands.
struct Keys(Vec<Setting>);

impl Keys {
    fn take(&mut self, key: &str) -> Option<String> {
        let place = self.0.iter().position(|setting| setting.key == key)?;
        Some(self.0.remove(place).values.join(", "))
    }

    /// Takes a key, with a word for it.
    fn named(&mut self, key: &str, word: &str) -> Option<String> {
        self.take(key).map(|value| format!("{word} {value}"))
    }
}

/// Lines of the card: scheduler, rates, share, dropper, bounds, packets. `limit` is that of a leaf that says none.
pub(super) fn lines(queue: &Queue, is_leaf: bool, order: Option<usize>, limit: u32) -> Vec<String> {
    let mut keys = Keys(queue.settings());
    for drawn in ["name", "on", "from", "in", "template", "class", "per", "instances"] {
        let _ = keys.take(drawn);
    }
    let mut lines = Vec::new();
    let mut line = |pieces: Vec<Option<String>>| {
        let said: Vec<String> = pieces.into_iter().flatten().collect();
        if !said.is_empty() {
            lines.push(said.join(", "));
        }
    };
    let scheduler = keys.take("scheduler").unwrap_or_else(|| if is_leaf { "fifo" } else { "drr" }.to_owned());
    let flows = (scheduler == "fq").then(|| format!("{} flows", number(queue.flows.into())));
    let _ = keys.take("flows");
    line(vec![Some(scheduler), flows, keys.named("isolate", "by"), keys.named("quantum", "quantum")]);
    line(vec![keys.named("guarantee", "guarantee"), keys.named("rate", "ceiling")]);
    line(vec![keys.named("burst", "burst"), keys.named("overhead", "overhead")]);
    let order = order.map(|order| format!("served as number {}", order + 1));
    line(vec![order, keys.named("priority", "priority"), keys.named("weight", "weight")]);
    if is_leaf {
        let dropper = keys.take("drop").unwrap_or_else(|| "tail".to_owned());
        let red = keys.take("red");
        let ecn = queue.ecn.then(|| "marks ECN".to_owned());
        let _ = keys.take("ecn");
        let timers = [keys.named("target", "target"), keys.named("interval", "interval")];
        let dropper =
            if queue.drop == Dropper::Tail { "drop tail".to_owned() } else { format!("drop {dropper}") };
        line([vec![Some(dropper), red], timers.into(), vec![ecn]].concat());
        let packets = count(queue.limit.unwrap_or(limit).into(), "packet", "packets");
        let _ = keys.take("limit");
        line(vec![Some(format!("limit {packets}")), keys.named("limit-bytes", "bytes")]);
        let phb = keys.named("phb", "phb");
        let rest =
            (queue.classes.is_empty() && queue.phbs.is_empty()).then(|| "all other packets".to_owned());
        line(vec![phb, rest]);
    }
    for Setting { key, values } in mem::take(&mut keys.0) {
        lines.push(format!("{key} {}", values.join(", ")));
    }
    lines
}

/// Parties that have a queue of their own.
pub(super) fn instances(queue: &Queue) -> String {
    let per = Keys(queue.settings()).take("per").unwrap_or_default();
    format!("per {per}, {} at most", number(queue.instances.into()))
}
