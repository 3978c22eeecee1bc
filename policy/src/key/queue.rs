//! Queues before interfaces.

use super::Keys;
use crate::model::Queue;
use crate::value::meter::{OVERHEAD, SCOPE};
use crate::value::queue::{COUPLING, DELAY, FLOWS, INSTANCES, LIMIT, PHB, PRIORITY, QUANTUM, RED, SHARE};
use crate::value::{BIT_RATE, Flag, SIZE, STRING};
use crate::word;

/// Keys of a `[[queue]]`.
pub(crate) fn queue(keys: &mut Keys<'_, '_>, queue: &mut Queue) -> bool {
    keys.required("name", "\"voice\"", STRING, &mut queue.name);
    keys.list("on", STRING, &mut queue.on);
    keys.list("from", STRING, &mut queue.from);
    keys.optional("in", STRING, &mut queue.parent);
    keys.optional("template", word::TEMPLATE, &mut queue.template);
    keys.key("workers", word::TREE_WORKERS, &mut queue.workers);
    keys.list("class", STRING, &mut queue.classes);
    keys.list("phb", PHB, &mut queue.phbs);
    keys.key("per", SCOPE, &mut queue.per);
    keys.key_or("instances", INSTANCES, &mut queue.instances, Queue::INSTANCES);
    keys.optional("scheduler", word::SCHEDULER, &mut queue.scheduler);
    keys.optional("quantum", QUANTUM, &mut queue.quantum);
    keys.key_or("flows", FLOWS, &mut queue.flows, Queue::FLOWS);
    keys.key("isolate", word::ISOLATION, &mut queue.isolate);
    keys.key("priority", PRIORITY, &mut queue.priority);
    keys.key_or("weight", SHARE, &mut queue.weight, 1);
    keys.optional("guarantee", BIT_RATE, &mut queue.guarantee);
    keys.optional("rate", BIT_RATE, &mut queue.rate);
    keys.optional("burst", SIZE, &mut queue.burst);
    keys.optional("overhead", OVERHEAD, &mut queue.overhead);
    keys.optional("limit", LIMIT, &mut queue.limit);
    keys.optional("limit-bytes", SIZE, &mut queue.limit_bytes);
    keys.key("drop", word::DROPPER, &mut queue.drop);
    keys.list("red", RED, &mut queue.red);
    keys.optional("target", DELAY, &mut queue.target);
    keys.optional("interval", DELAY, &mut queue.interval);
    keys.optional("step", DELAY, &mut queue.step);
    keys.key_or("coupling", COUPLING, &mut queue.coupling, Queue::COUPLING);
    keys.key("ecn", Flag(true, false), &mut queue.ecn);
    true
}
