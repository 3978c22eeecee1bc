//! The TOML of a chip.

use std::ops::Range;
use std::sync::Arc;

use config::{Diagnostic as Any, Pair, Source as Text};
use toml::de::{DeTable, DeValue};
use wire::{BitRate, Bytes};

use super::{
    Buffer, Bus, Cache, Cam, Carries, Checked, Chip, DataPins, EngineKind, FrameAccess, Lists, LocalMemory,
    Memory, Package, PortKind, Ports, Power, PowerShares, Reach, RingKind, Role, ServiceOrder, Source,
    Standing, Tickets, Unit, UnitWork, bound,
};
use crate::clock::{Cycles, Hertz};
use crate::diagnostic::Code;
use crate::value::{self, Complaint, Read, Sink, Table};

/// Names of memories that mean something else in a mapping.
const RESERVED: [&str; 2] = ["local", "registers"];

/// The keys of the top that are no parameters.
const NO_PARAMETERS: [&str; 3] = ["name", "about", "source"];

pub(super) fn read(text: &str, file: &str) -> Checked {
    let source = Arc::new(Text::new(file, text));
    let sink = Sink::new(&source);
    let mut parameters = Vec::new();
    let chip = config::document(&source, &sink, |top| {
        parameters = leaves(top);
        chip(&sink, top, &parameters)
    });
    let mut diagnostics = sink.into_diagnostics();
    Any::sort(&mut diagnostics);
    let wrong = diagnostics.iter().any(Any::is_error);
    Checked { chip: chip.filter(|_| !wrong), diagnostics, parameters }
}

fn chip(sink: &Sink, root: &DeTable<'_>, parameters: &[String]) -> Chip {
    let mut top = Table::new(sink, root, 0..0, "a chip");
    let name = top.require("name", "\"mine\"", |value| {
        value::owned(value).and_then(|name| value::check_name(&name).map(|()| name))
    });
    let about = top.require("about", "\"what it is, in a sentence\"", value::owned);
    let clock = clock(&mut top);
    let mut names = Vec::new();
    let engines: Vec<EngineKind> = named(sink, &mut top, "engine", &mut names)
        .into_iter()
        .map(|pair| engine(sink, pair, clock))
        .collect();
    // One that could not be read has a name all the same.
    let mut memory_names = Vec::new();
    let memories: Vec<Memory> = named(sink, &mut top, "memory", &mut memory_names)
        .into_iter()
        .filter_map(|pair| memory(sink, pair))
        .collect();
    let memory_names: Vec<&str> = memory_names.iter().map(String::as_str).collect();
    // Pools name engines and units alike.
    let units: Vec<Unit> = named(sink, &mut top, "unit", &mut names)
        .into_iter()
        .filter_map(|pair| unit(sink, pair, &memory_names))
        .collect();
    let rings = named(sink, &mut top, "ring", &mut Vec::new())
        .into_iter()
        .filter_map(|pair| ring(sink, pair, &memory_names, &units))
        .collect();
    let receive = section(&mut top, "receive", "[receive]", true).map(buffer);
    let transmit = section(&mut top, "transmit", "[transmit]", true).map(buffer);
    let buffers = [&receive, &transmit].into_iter().flatten();
    let ports = ports(sink, &mut top, buffers.map(|buffer| buffer.element).max());
    let buses = named(sink, &mut top, "bus", &mut Vec::new())
        .into_iter()
        .filter_map(|pair| bus(sink, pair, &ports))
        .collect();
    let power = section(&mut top, "power", "[power]", false).map(power);
    let package = section(&mut top, "package", "[package]", false).map(package);
    let has_packet_engine = engines.iter().any(|engines| engines.role == Role::Packet)
        || units.iter().any(|unit| unit.work == UnitWork::Stage);
    let all_read = ["engine", "unit"].into_iter().all(|key| holds_tables(root, key));
    if !has_packet_engine && all_read {
        let complaint = Complaint::new(Code::NoPacketEngine, "the chip has nothing that carries packets");
        top.complain(complaint.hint("describe engines: [engine.me], with role = \"packet\""));
    }
    let sources = sources(sink, &mut top, parameters);
    let chip = Chip {
        name: name.unwrap_or_default(),
        about: about.unwrap_or_default(),
        clock,
        engines,
        memories,
        rings,
        units,
        buses,
        receive: receive.unwrap_or(Buffer { elements: 1, element: Bytes(64) }),
        transmit: transmit.unwrap_or(Buffer { elements: 1, element: Bytes(64) }),
        ports,
        power,
        package,
        sources,
    };
    for (key, buffer) in [("receive", chip.receive), ("transmit", chip.transmit)] {
        if let Some(table) = root.get(key) {
            few_elements(sink, table.span(), buffer, &chip.ports);
        }
    }
    if chip.ticks_per_second().is_none() {
        let message = "the clocks have no common measure that time can be counted in";
        let hint = format!(
            "their least common multiple may be {} GHz at most: round them, 66.67 MHz to 66 MHz",
            bound::TICKS_PER_SECOND / 1_000_000_000
        );
        top.complain(Complaint::new(Code::ClockMismatch, message).hint(hint));
    }
    top.finish();
    chip
}

/// True if there is nothing under `key` but tables, or nothing at all.
fn holds_tables(root: &DeTable<'_>, key: &str) -> bool {
    let is_table = |value: &DeValue<'_>| matches!(value, DeValue::Table(_));
    root.get(key).is_none_or(|value| match value.get_ref() {
        DeValue::Table(table) => table.values().all(|value| is_table(value.get_ref())),
        _ => false,
    })
}

fn clock(table: &mut Table<'_, '_, '_>) -> Hertz {
    table.require("clock", "\"600 MHz\"", value::hertz).unwrap_or(Hertz(1))
}

/// The tables of the section `key`, whose names are checked and added to `names`.
fn named<'t, 'i>(
    sink: &Sink,
    top: &mut Table<'_, 't, 'i>,
    key: &'static str,
    names: &mut Vec<String>,
) -> Vec<Pair<'t, 'i>> {
    let pairs = config::section(top, key);
    for (name, _) in &pairs {
        let text = name.get_ref().as_ref();
        if let Err(complaint) = value::check_name(text) {
            sink.report(complaint, name.span());
        }
        if names.iter().any(|known| known == text) {
            let message = format!("engines and a unit are both called \"{text}\"");
            let complaint = Complaint::new(config::Code::DuplicateName, message);
            sink.report(complaint.hint("give one of them another name"), name.span());
        }
        if key == "memory" && RESERVED.contains(&text) {
            let message = format!("\"{text}\" is no name for a memory: mappings call a place so");
            let complaint = Complaint::new(config::Code::ReservedName, message);
            sink.report(complaint.hint("give it another name"), name.span());
        }
        names.push(text.to_owned());
    }
    pairs
}

/// The table that is the value of `key`.
fn section<'s, 't, 'i>(
    top: &mut Table<'s, 't, 'i>,
    key: &'static str,
    what: &'static str,
    needed: bool,
) -> Option<Table<'s, 't, 'i>> {
    let sink = top.sink();
    match top.raw(key) {
        Some(value) => Table::of(sink, value, what),
        None => {
            if needed {
                let message = format!("a chip needs the table {what}");
                let complaint = Complaint::new(config::Code::MissingKey, message);
                top.complain(complaint.hint(format!("write {what}, and what belongs to it on lines below")));
            }
            None
        }
    }
}

fn count(table: &mut Table<'_, '_, '_>, key: &'static str) -> u32 {
    known_count(table, key).unwrap_or(1)
}

fn known_count(table: &mut Table<'_, '_, '_>, key: &'static str) -> Option<u32> {
    table.require(key, "1", |value| value::number32(value, 1, bound::COUNT))
}

fn entries(table: &mut Table<'_, '_, '_>, key: &'static str, example: &str) -> u32 {
    table.require(key, example, |value| value::number32(value, 1, bound::ENTRIES)).unwrap_or(1)
}

fn cycles(table: &mut Table<'_, '_, '_>, key: &'static str) -> Cycles {
    table.require(key, "10", value::cycles).unwrap_or_default()
}

fn bytes(table: &mut Table<'_, '_, '_>, key: &'static str, example: &str) -> Bytes {
    table.require(key, example, value::bytes).unwrap_or(Bytes(1))
}

fn engine(sink: &Sink, (name, value): Pair<'_, '_>, chip_clock: Hertz) -> EngineKind {
    let empty = DeTable::new();
    let table = Table::of(sink, value, "a kind of engines");
    let mut table = table.unwrap_or_else(|| Table::new(sink, &empty, value.span(), "a kind of engines"));
    let role = table
        .take("role", |value| value::one_of(value, &[("packet", Role::Packet), ("control", Role::Control)]));
    let known = known_count(&mut table, "count");
    let engines = known.unwrap_or(1);
    let cluster = table.take("cluster", |value| value::number32(value, 1, bound::COUNT)).unwrap_or(engines);
    // Where it was not said how many there are, nothing contradicts it.
    if known.is_some_and(|engines| cluster > engines) {
        let message = format!("a cluster has {cluster} engines, but there are only {engines}");
        let complaint = Complaint::new(Code::Contradiction, message);
        table.complain(complaint.hint("leave `cluster` out where all share one"));
    }
    let clock = table.take("clock", value::hertz).unwrap_or(chip_clock);
    let threads = count(&mut table, "threads");
    let store = table.take("store", |value| value::number32(value, 1, bound::INSTRUCTIONS));
    let registers = table.take("registers", |value| value::number32(value, 1, bound::REGISTERS));
    let cpi = table.take("cpi", |value| value::thousandths(value, 1, bound::THOUSANDTHS)).unwrap_or(1_000);
    let wait = table.take("wait", value::cycles).unwrap_or_default();
    let switch = cycles(&mut table, "switch");
    let branch = cycles(&mut table, "branch");
    let hash = table.require("hash", "20", |value| value::number32(value, 0, bound::INSTRUCTIONS));
    let commands = entries(&mut table, "commands", "16");
    let local = section(&mut table, "local", "local memory", false).map(|mut local| {
        let read = LocalMemory {
            bytes: bytes(&mut local, "size", "\"2 KB\""),
            latency: cycles(&mut local, "latency"),
        };
        local.finish();
        read
    });
    let cam = section(&mut table, "cam", "a CAM", false).map(|mut cam| {
        let read = Cam { entries: entries(&mut cam, "entries", "16"), latency: cycles(&mut cam, "latency") };
        cam.finish();
        read
    });
    let cache = section(&mut table, "cache", "a cache", false).map(cache);
    table.finish();
    EngineKind {
        name: name.get_ref().to_string(),
        role: role.unwrap_or(Role::Packet),
        count: engines,
        cluster,
        clock,
        threads,
        store,
        registers,
        local,
        cpi,
        wait,
        switch,
        branch,
        hash: hash.unwrap_or(0),
        commands,
        cam,
        cache,
    }
}

fn cache(mut table: Table<'_, '_, '_>) -> Cache {
    let size = table.require("size", "\"32 KB\"", value::bytes);
    let line = table.require("line", "\"32 B\"", value::bytes);
    let ways = table.require("ways", "4", |value| value::number32(value, 1, bound::ENTRIES));
    let latency = cycles(&mut table, "latency");
    if let (Some(size), Some(line), Some(ways)) = (size, line, ways) {
        misshapen(size, line, ways).into_iter().for_each(|complaint| table.complain(complaint));
    }
    table.finish();
    Cache {
        bytes: size.unwrap_or(Bytes(32)),
        line: line.unwrap_or(Bytes(32)),
        ways: ways.unwrap_or(1),
        latency,
    }
}

/// Complaint of a cache that cannot be: lines are found by bits of an address, and sets have the same number of them.
fn misshapen(size: Bytes, line: Bytes, ways: u32) -> Option<Complaint> {
    let wrong = |message: String, hint: String| Some(Complaint::new(Code::CacheShape, message).hint(hint));
    if !line.0.is_power_of_two() {
        let above = line.0.next_power_of_two();
        return wrong(
            format!("a line of {line} is no power of two"),
            format!("write \"{} B\" or \"{above} B\"", above / 2),
        );
    }
    let (lines, set) = (size.0 / line.0, line.0.saturating_mul(ways.into()));
    if u64::from(ways) > lines {
        return wrong(
            format!("a set of {ways} ways, and only {lines} lines in all"),
            "take fewer ways: as many as there are lines make the cache fully associative".to_owned(),
        );
    }
    if size.0 % set != 0 {
        return wrong(
            format!("{size} are no whole number of sets of {ways} lines of {line}"),
            format!("{} sets are \"{} B\"", size.0 / set, size.0 / set * set),
        );
    }
    if lines > bound::LINES {
        return wrong(format!("a cache of {lines} lines"), format!("{} lines at most", bound::LINES));
    }
    None
}

fn memory(sink: &Sink, (name, value): Pair<'_, '_>) -> Option<Memory> {
    let mut table = Table::of(sink, value, "a memory")?;
    let (banks, recovery) =
        (known_count(&mut table, "banks"), table.require("recovery", "10", value::cycles));
    let memory = Memory {
        name: name.get_ref().to_string(),
        bytes: table.require("size", "\"8 MB\"", value::bytes).unwrap_or(Bytes(bound::BYTES)),
        channels: count(&mut table, "channels"),
        interleave: bytes(&mut table, "interleave", "\"128 B\""),
        banks: banks.unwrap_or(1),
        clock: clock(&mut table),
        width: bytes(&mut table, "width", "\"8 B\""),
        pins: table
            .take("data-pins", |value| {
                value::one_of(value, &[("shared", DataPins::Shared), ("separate", DataPins::Separate)])
            })
            .unwrap_or_default(),
        latency: cycles(&mut table, "latency"),
        write_latency: cycles(&mut table, "write-latency"),
        burst: bytes(&mut table, "burst", "\"64 B\""),
        overhead: cycles(&mut table, "overhead"),
        recovery: recovery.unwrap_or_default(),
        atomic: table.take("atomic", value::cycles),
        queue: entries(&mut table, "queue", "16"),
        order: ServiceOrder::Arrival,
        priority: table.take("priority", |value| value::number32(value, 1, bound::ENTRIES)),
        cache: section(&mut table, "cache", "a cache", false).map(cache),
    };
    for (what, small) in [("interleave", memory.interleave), ("burst", memory.burst)] {
        if small > memory.bytes {
            let message = format!("`{what}` is more than all of the memory");
            let complaint = Complaint::new(Code::Contradiction, message);
            table.complain(complaint.hint(format!("the memory has {}", memory.bytes)));
        }
    }
    let memory = Memory { order: order(&mut table, &memory, (banks, recovery)), ..memory };
    table.finish();
    Some(memory)
}

/// Reads the order in which a memory serves commands, and complains of one that makes no difference.
fn order(
    table: &mut Table<'_, '_, '_>,
    memory: &Memory,
    (banks, recovery): (Option<u32>, Option<Cycles>),
) -> ServiceOrder {
    let words = [("arrival", false), ("bank", true)];
    let by_bank = table.take("order", |value| value::one_of(value, &words)) == Some(true);
    if by_bank && memory.cache.is_some() {
        let message = "a memory behind a cache serves what misses in the order of arrival";
        let complaint = Complaint::new(Code::Contradiction, message);
        table.complain(complaint.hint("leave `order` out, or `cache`"));
    }
    if !by_bank {
        table.misplaced("bank-queues", "it is for order = \"bank\"");
        return ServiceOrder::Arrival;
    }
    let idle = match (banks, recovery) {
        (Some(1), _) => Some("commands are to pass those that wait for another bank, and there is one bank"),
        (_, Some(Cycles(0))) => {
            Some("commands are to pass those that wait for a bank, and banks recover at once")
        }
        _ => None,
    };
    if let Some(message) = idle {
        let complaint = Complaint::new(Code::Contradiction, message);
        table.complain(complaint.hint("leave `order` out"));
    }
    let most = banks.unwrap_or(bound::COUNT);
    let queues = table.take("bank-queues", |value| value::number32(value, 1, most));
    ServiceOrder::Bank { queues: queues.unwrap_or(memory.banks) }
}

fn ring(sink: &Sink, (name, value): Pair<'_, '_>, memories: &[&str], units: &[Unit]) -> Option<RingKind> {
    let mut table = Table::of(sink, value, "a kind of rings")?;
    let lists = table.take("unit", |value| {
        let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
        let unit = value::place_of(value, &names, "unit", Code::UnknownEngine)?;
        if units[unit].work != UnitWork::List {
            let message = format!("the unit \"{}\" keeps no frames", names[unit]);
            return Err(
                Complaint::new(Code::UnknownEngine, message).hint("name a unit of the kind work = \"list\"")
            );
        }
        Ok(names[unit].to_owned())
    });
    if table.has("unit") {
        table.misplaced("memory", "pointers to frames are in the memory that the unit says");
    }
    let memory = table.take("memory", |value| {
        value::place_of(value, memories, "memory", Code::UnknownMemory)
            .map(|place| memories[place].to_owned())
    });
    let latency = match table.has("memory") || table.has("unit") {
        true => table.take("latency", value::cycles).unwrap_or_default(),
        false => cycles(&mut table, "latency"),
    };
    let reach = table
        .take("reach", |value| value::one_of(value, &[("any", Reach::Any), ("neighbour", Reach::Neighbour)]));
    let ring = RingKind {
        name: name.get_ref().to_string(),
        count: count(&mut table, "count"),
        entries: entries(&mut table, "entries", "128"),
        priorities: table
            .take("priorities", |value| value::number32(value, 1, bound::PRIORITIES))
            .unwrap_or(1),
        memory,
        lists,
        entry: bytes(&mut table, "entry", "\"8 B\""),
        latency,
        reach: reach.unwrap_or(Reach::Any),
    };
    table.finish();
    Some(ring)
}

fn unit(sink: &Sink, (name, value): Pair<'_, '_>, memories: &[&str]) -> Option<Unit> {
    let mut table = Table::of(sink, value, "a unit")?;
    let access = [("memory", FrameAccess::Memory), ("inline", FrameAccess::Inline)];
    let words = [
        ("hash", UnitWork::Hash),
        ("crypto", UnitWork::Crypto),
        ("queue", UnitWork::Queue),
        ("list", UnitWork::List),
        ("search", UnitWork::Search),
        ("order", UnitWork::Order),
        ("modify", UnitWork::Modify),
        ("crc", UnitWork::Crc),
        ("stage", UnitWork::Stage),
        ("dma", UnitWork::Dma),
    ];
    let work =
        table.require("work", "\"hash\"", |value| value::one_of(value, &words)).unwrap_or(UnitWork::Hash);
    let unit = Unit {
        name: name.get_ref().to_string(),
        work,
        count: count(&mut table, "count"),
        interval: cycles(&mut table, "interval"),
        per_word: table
            .take("per-word", |value| value::thousandths(value, 0, bound::THOUSANDTHS))
            .unwrap_or_default(),
        latency: cycles(&mut table, "latency"),
        frames: table.take("frames", |value| value::one_of(value, &access)).unwrap_or_default(),
        lists: lists(&mut table, work, memories),
        tickets: tickets(&mut table, work),
    };
    table.finish();
    Some(unit)
}

/// Linked lists of a unit that keeps them.
fn lists(table: &mut Table<'_, '_, '_>, work: UnitWork, memories: &[&str]) -> Option<Lists> {
    if work != UnitWork::List {
        for key in ["segment", "segments", "queues", "pointers"] {
            table.misplaced(key, "it is for work = \"list\"");
        }
        return None;
    }
    let mut number = |key, example| {
        table.require(key, example, |value| value::number32(value, 1, bound::SEGMENTS)).unwrap_or(1)
    };
    let (segments, queues) = (number("segments", "65536"), number("queues", "4096"));
    Some(Lists {
        segment: bytes(table, "segment", "\"64 B\""),
        segments,
        queues,
        pointers: table
            .require("pointers", "\"sram\"", |value| {
                value::place_of(value, memories, "memory", Code::UnknownMemory)
                    .map(|place| memories[place].to_owned())
            })
            .unwrap_or_default(),
    })
}

/// Tickets of a unit that keeps an order.
fn tickets(table: &mut Table<'_, '_, '_>, work: UnitWork) -> Option<Tickets> {
    if work != UnitWork::Order {
        for key in ["entries", "contexts"] {
            table.misplaced(key, "it is for work = \"order\"");
        }
        return None;
    }
    let mut number = |key, example| {
        table.require(key, example, |value| value::number32(value, 1, bound::ENTRIES)).unwrap_or(1)
    };
    Some(Tickets { entries: number("entries", "8192"), contexts: number("contexts", "1") })
}

fn bus(sink: &Sink, (name, value): Pair<'_, '_>, ports: &Ports) -> Option<Bus> {
    let mut table = Table::of(sink, value, "a bus")?;
    let words = [("receive", Carries::Receive), ("transmit", Carries::Transmit), ("both", Carries::Both)];
    let carries = table.require("carries", "\"both\"", |value| value::one_of(value, &words));
    let credits = table.take("credits", |value| value::number32(value, 1, bound::ENTRIES));
    let bus = Bus {
        name: name.get_ref().to_string(),
        clock: clock(&mut table),
        width: bytes(&mut table, "width", "\"8 B\""),
        overhead: cycles(&mut table, "overhead"),
        carries: carries.unwrap_or(Carries::Both),
        ports: table.take("ports", |value| kinds(value, ports)).unwrap_or_default(),
        // Without one the first element is acknowledged before the second is sent.
        latency: match table.has("credits") {
            true => cycles(&mut table, "latency"),
            false => table.take("latency", value::cycles).unwrap_or_default(),
        },
        credits,
    };
    table.finish();
    Some(bus)
}

/// The kinds of ports that a list names: one at least.
fn kinds(value: &DeValue<'_>, ports: &Ports) -> Read<Vec<String>> {
    let known: Vec<&str> = ports.0.iter().filter_map(|kind| kind.name.as_deref()).collect();
    let kind = |value: &DeValue<'_>| {
        let place = value::place_of(value, &known, "kind of ports", Code::UnknownPort)?;
        Ok(known[place].to_owned())
    };
    match value {
        DeValue::Array(items) if items.is_empty() => {
            let complaint = Complaint::new(Code::IdleBus, "no frame crosses the bus");
            Err(complaint.hint("name the kinds of ports behind it, or leave `ports` out where all are"))
        }
        DeValue::Array(items) => items.iter().map(|item| kind(item.get_ref())).collect(),
        one => kind(one).map(|kind| vec![kind]),
    }
}

fn buffer(mut table: Table<'_, '_, '_>) -> Buffer {
    let buffer = Buffer {
        // Of a number that is wrong no more is said.
        elements: table
            .require("elements", "128", |value| value::number32(value, 1, bound::ENTRIES))
            .unwrap_or(bound::ENTRIES),
        element: bytes(&mut table, "element", "\"64 B\""),
    };
    table.finish();
    buffer
}

/// `[ports]` where they are alike, or a table `[port.NAME]` for each kind.
fn ports(sink: &Sink, top: &mut Table<'_, '_, '_>, element: Option<Bytes>) -> Ports {
    let named = named(sink, top, "port", &mut Vec::new());
    let mut kinds = Vec::new();
    if named.is_empty() {
        let table = section(top, "ports", "[ports]", true);
        kinds.extend(table.map(|table| port_kind(table, None, element)));
    } else {
        top.misplaced("ports", "each [port.NAME] says it of the ports of its kind");
    }
    for (name, value) in named {
        let Some(table) = Table::of(sink, value, "a kind of ports") else { continue };
        kinds.push(port_kind(table, Some(name.get_ref().to_string()), element));
        let count: u32 = kinds.iter().map(|kind| kind.count).sum();
        if count > bound::COUNT {
            let complaint = Complaint::new(Code::Contradiction, format!("that makes {count} ports"));
            sink.report(complaint.hint(format!("{} in all, at most", bound::COUNT)), name.span());
            break;
        }
    }
    Ports(kinds)
}

/// Warns of a buffer with fewer elements than there are ports.
fn few_elements(sink: &Sink, span: Range<usize>, buffer: Buffer, ports: &Ports) {
    let count = ports.count();
    if buffer.elements < count && count <= bound::COUNT {
        let elements = if buffer.elements == 1 { "element" } else { "elements" };
        let message = format!(
            "{count} ports share {} {elements}, and may have a frame each under way",
            buffer.elements
        );
        let complaint = Complaint::new(Code::SmallBuffer, message);
        sink.report(complaint.hint("frames are lost while others have all of them"), span);
    }
}

/// Reads the ports of a kind, which share buffers of elements no larger than `element`.
fn port_kind(mut table: Table<'_, '_, '_>, name: Option<String>, element: Option<Bytes>) -> PortKind {
    let kind = PortKind {
        name,
        count: count(&mut table, "count"),
        rate: table.require("rate", "\"1 Gbit/s\"", value::rate).unwrap_or(BitRate(1)),
        gap: Bytes(table.require("gap", "\"24 B\"", value::offset).unwrap_or(0)),
        fifo: table.take("fifo", value::bytes),
    };
    if let Some((fifo, element)) = kind.fifo.zip(element).filter(|(fifo, element)| fifo < element) {
        let message = format!("the MAC of a port holds {fifo}, and an element of the buffers has {element}");
        let complaint = Complaint::new(Code::Contradiction, message);
        table.complain(complaint.hint("a MAC keeps an element at least; leave `fifo` out for two"));
    }
    table.finish();
    kind
}

fn power(mut table: Table<'_, '_, '_>) -> Power {
    let watts = |value: &DeValue<'_>| value::float(value, bound::PHYSICAL);
    let share = |value: &DeValue<'_>| value::float(value, 1.0);
    let is_alone = table.has("engines") != table.has("idle");
    let shares = [table.take("engines", share), table.take("idle", share)];
    let power = Power {
        typical: table.require("typical", "10", watts).unwrap_or_default(),
        most: table.require("most", "12", watts).unwrap_or(f64::MAX),
        shares: match shares {
            [Some(engines), Some(idle)] => Some(PowerShares { engines, idle }),
            _ => None,
        },
    };
    if is_alone {
        let message = "`engines` and `idle` say something together, and one of them is missing".to_owned();
        let hint = "`engines` is the share of `most` that all packet engines draw when busy, `idle` that of a busy engine's that an idle one draws";
        table.complain(Complaint::new(Code::Contradiction, message).hint(hint));
    }
    if power.typical > power.most {
        let message = format!("{} W typically, but {} W at most", power.typical, power.most);
        table.complain(Complaint::new(Code::Contradiction, message).hint("exchange the two"));
    }
    table.finish();
    power
}

fn package(mut table: Table<'_, '_, '_>) -> Package {
    let package = Package {
        pins: count(&mut table, "pins"),
        side: table.require("side", "35", |value| value::float(value, bound::PHYSICAL)).unwrap_or_default(),
    };
    table.finish();
    package
}

/// The sources, and a warning of the parameters that have none.
fn sources(sink: &Sink, top: &mut Table<'_, '_, '_>, parameters: &[String]) -> Vec<Source> {
    let span = top.raw("source").map_or(0..0, |value| value.span());
    let mut sources: Vec<Source> = Vec::new();
    for (path, value) in config::section(top, "source") {
        let Some((text, standing)) = source(sink, value) else { continue };
        let source = Source { path: path.get_ref().to_string(), text, standing };
        if !parameters.iter().any(|parameter| source.is_about(parameter)) {
            let message = format!("the chip has no parameter \"{}\"", source.path);
            let complaint = Complaint::new(Code::UnknownPath, message);
            let known = parameters.iter().flat_map(|parameter| prefixes(parameter));
            let hint = config::did_you_mean(&source.path, known, || {
                "write the path of a parameter or of a table, such as \"memory.sram\"".to_owned()
            });
            sink.report(complaint.hint(hint), path.span());
        }
        sources.push(source);
    }
    let without: Vec<&str> = parameters
        .iter()
        .map(String::as_str)
        .filter(|parameter| !sources.iter().any(|source| source.is_about(parameter)))
        .collect();
    if let Some(first) = without.first() {
        let message = match without.len() {
            1 => format!("{first} has no source"),
            2 => format!("{first} and {} have no source", without[1]),
            many => format!("{first}, {} and {} more parameters have no source", without[1], many - 2),
        };
        let hint = format!(
            "say in [source] where they come from: \"{first}\" = \"document, page\", or {{ assumed = \"on what grounds\" }}"
        );
        sink.report(Complaint::new(Code::NoSource, message).hint(hint), span);
    }
    sources
}

fn source(sink: &Sink, value: &toml::Spanned<DeValue<'_>>) -> Option<(String, Standing)> {
    if let DeValue::String(text) = value.get_ref() {
        return Some((text.to_string(), Standing::Read));
    }
    let mut table = Table::of(sink, value, "a source")?;
    let text = table.require("assumed", "\"on what grounds\"", value::owned);
    table.finish();
    text.map(|text| (text, Standing::Assumed))
}

/// The paths of all values under `table` that are parameters, in the order of the text.
fn leaves(table: &DeTable<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in config::in_order(table) {
        if !NO_PARAMETERS.contains(&key.get_ref().as_ref()) {
            gather(key.get_ref(), value.get_ref(), &mut found);
        }
    }
    found
}

fn gather(path: &str, value: &DeValue<'_>, found: &mut Vec<String>) {
    match value {
        DeValue::Table(table) => {
            for (key, value) in config::in_order(table) {
                gather(&format!("{path}.{}", key.get_ref()), value.get_ref(), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// A path and those of the tables around it.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let dots = path.match_indices('.').map(|(at, _)| &path[..at]);
    dots.chain(std::iter::once(path))
}
