//! The keys of a chip's tables, for setting one without reading the whole. A small table in braces is a value, too.

/// The top of the file.
pub(super) const TOP: &[&str] = &["name", "about", "clock"];
const ENGINE: &[&str] = &[
    "role",
    "count",
    "cluster",
    "clock",
    "threads",
    "store",
    "registers",
    "cpi",
    "wait",
    "switch",
    "branch",
    "hash",
    "commands",
    "local",
    "cam",
    "cache",
];
const MEMORY: &[&str] = &[
    "size",
    "channels",
    "interleave",
    "banks",
    "clock",
    "width",
    "data-pins",
    "latency",
    "write-latency",
    "burst",
    "overhead",
    "recovery",
    "atomic",
    "queue",
    "order",
    "bank-queues",
    "priority",
    "cache",
];
const RING: &[&str] = &["count", "entries", "priorities", "memory", "unit", "entry", "latency", "reach"];
const UNIT: &[&str] = &[
    "work", "count", "interval", "per-word", "latency", "frames", "segment", "segments", "queues",
    "pointers", "entries", "contexts",
];
const BUS: &[&str] = &["clock", "width", "overhead", "carries", "ports", "latency", "credits"];

/// The keys of the table at `path` that have values, tables in braces among them; none where there is no such table.
pub(super) fn keys(path: &[&str]) -> Vec<&'static str> {
    let keys: &[&str] = match path {
        [] => TOP,
        ["engine", _] => ENGINE,
        ["engine", _, "local"] => &["size", "latency"],
        ["engine", _, "cam"] => &["entries", "latency"],
        ["engine" | "memory", _, "cache"] => &["size", "line", "ways", "latency"],
        ["memory", _] => MEMORY,
        ["ring", _] => RING,
        ["unit", _] => UNIT,
        ["bus", _] => BUS,
        ["receive" | "transmit"] => &["elements", "element"],
        ["ports"] | ["port", _] => &["count", "rate", "gap", "fifo"],
        ["power"] => &["typical", "most", "engines", "idle"],
        ["package"] => &["pins", "side"],
        _ => &[],
    };
    keys.to_vec()
}
