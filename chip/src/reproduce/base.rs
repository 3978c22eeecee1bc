//! Base checks: published rates of plain forwarding and of plain code on these chips, from outside the studies. What stands on a check that
//! fails is void, so that they come first.
//!
//! They count as within at 20 %, and in no other score.

use ciphers::{ALL, Optimisation};
use wire::Nanos;

use super::known::Known;
use super::workload::Workload;
use super::{Claim, Model, Outcome, ReproduceError, Study, crypto, shipped};
use crate::description::Chip;
use crate::machine::Ideal;
use crate::mapping::{Extra, Work};
use crate::report::Report;
use crate::traffic::{Flows, Rate, Size, Stream};

pub(super) const CLAIMS: &[Claim] = &[
    claim("B1", &["ixp1200"], forwarding),
    claim("B2", &["ixp1200"], cycles),
    claim("B3", &["ixp1200"], headroom),
    claim("B4", &["ixp1240"], |model| idle_shares(model, &TWO_OC3)),
    claim("B5", &["ixp1240"], |model| idle_shares(model, &OC12)),
    claim("B6", &["ixp1240"], |model| idle_shares(model, &FOUR_OC3)),
    claim("B7", &[], slots),
    claim("B8", &["ixp2800"], optimisation),
];

/// Runs that checks share.
#[derive(Default)]
pub(super) struct Measured {
    plain: Known<(), Report>,
}

/// Tolerance of a base check, as a share of the published number.
const TOLERANCE: f64 = 0.20;

const fn claim(
    id: &'static str,
    chips: &'static [&'static str],
    test: fn(&Model) -> Result<Vec<Outcome>, ReproduceError>,
) -> Claim {
    Claim { id, study: Study::Base, untested: "", chips, test }
}

/// Forwarding without rules, connections and translation.
const POLICY: &str = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n\
    [interface.lan]\nzone = \"lan\"\naddresses = [\"10.0.0.1/16\"]\nmac = \"02:00:00:00:00:01\"\nsource-check = \"off\"\n\
    [interface.wan]\nzone = \"wan\"\naddresses = [\"203.0.113.2/24\"]\nmac = \"02:00:00:00:00:02\"\nsource-check = \"off\"\n\
    [[route]]\nto = \"0.0.0.0/0\"\nvia = \"203.0.113.1\"\n";

/// Frames of a run, and those of them that fill the chip.
const FRAMES: u64 = 30_000;
const WARM: u64 = 5_000;

/// Minimum-size packets a second that are offered: more than the chip forwards.
const OFFERED: f64 = 10e6;

/// An IXP1200 whose ports and bus limit nothing.
fn engines_alone(model: &Model) -> Result<Chip, ReproduceError> {
    let wide =
        [("port.fast.rate", "10 Gbit/s"), ("port.gigabit.rate", "10 Gbit/s"), ("bus.ix.width", "64 B")];
    model.chip_with("ixp1200", &wide)
}

fn plain(model: &Model) -> Result<Report, ReproduceError> {
    model.base.plain.get((), || {
        let stream = Stream {
            rate: Rate::Frames(OFFERED),
            flows: Flows::Fixed(100),
            frames: model.frames(FRAMES),
            ..Stream::new("lan", "wan")
        };
        forwarded(&engines_alone(model)?, "ixp1200-pool", stream, model.frames(WARM))
    })
}

/// Forwards a stream from `lan` to `wan` on a chip, and leaves `warm` frames out.
pub(super) fn forwarded(
    chip: &Chip,
    mapping: &str,
    stream: Stream,
    warm: u64,
) -> Result<Report, ReproduceError> {
    let mapping = shipped::mapping(mapping, chip)?;
    let policy = shipped::policy(POLICY, "plain")?;
    let streams = [(stream, Nanos(0))];
    let workload =
        Workload { chip, mapping: &mapping, policy: &policy, algorithm: None, streams: &streams, warm };
    Ok(workload.run(Ideal::Nothing)?)
}

fn forwarding(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let rate = plain(model)?.dealt_mpps();
    let row = Outcome::number("B1", "minimum-size packets that six engines forward", 3.47, rate, "Mpps");
    Ok(vec![row.within(TOLERANCE).note(
        "Spalink, Karlin, Peterson and Gottlieb, Building a Robust Software-Based Router Using Network Processors, SOSP 2001: IXP1200 at 200 MHz, \
         lines not limiting. What is said of the IXP1200 stands on it.",
    )])
}

fn cycles(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let report = plain(model)?;
    let chip = engines_alone(model)?;
    let each = chip.clock.0 as f64 / (report.dealt_mpps() * 1e6);
    let all = each * report.engines.len() as f64;
    let busy: f64 = report.engines.iter().map(|engine| engine.executing + engine.aborted).sum();
    let row = |statement, value| Outcome::number("B2", statement, 346.0, value, "cycles").within(TOLERANCE);
    Ok(vec![
        row("engine cycles for each of them", all).not_blind().note("It follows from B1."),
        row("the same, without those in which an engine waits", busy * each),
    ])
}

/// Eight lines at their full rate: what comes by each leaves by the next one.
const LINES: u32 = 8;

/// Frames of each line.
const FRAMES_OF_LINE: u64 = 4_000;

/// Register operations of a block of extra work, beside a word of state: 24 such blocks are 240 operations and 96 bytes.
const BLOCK: u32 = 10;
const WORD: u32 = 4;

/// Bytes that a reference to SRAM moves at most.
const BURST: u32 = 32;

/// Blocks that are more than there is time for.
const BLOCKS: u32 = 200;

fn headroom(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = model.chip("ixp1200")?;
    let memory = chip.memories.iter().position(|memory| memory.name == "sram").unwrap_or(0);
    let spare = |of_blocks: &dyn Fn(u32) -> Extra| -> Result<f64, ReproduceError> {
        let (mut carried, mut lost) = (0, BLOCKS);
        while lost - carried > 1 {
            let blocks = carried.midpoint(lost);
            let is_carried = carries(model, &chip, of_blocks(blocks))?;
            *(if is_carried { &mut carried } else { &mut lost }) = blocks;
        }
        Ok(f64::from(carried * BLOCK))
    };
    let row = |statement, operations| {
        Outcome::number("B3", statement, 240.0, operations, "operations").within(TOLERANCE)
    };
    let none = Extra { memory, ..Extra::default() };
    let words = |blocks| Extra { instructions: blocks * BLOCK, references: blocks, bytes: WORD, ..none };
    let bursts = |blocks: u32| {
        let bytes = blocks * WORD;
        Extra { instructions: blocks * BLOCK, references: bytes.div_ceil(BURST), bytes: BURST, ..none }
    };
    Ok(vec![
        row("register operations to spare at 8 x 100 Mbit/s, a word of state with every ten", spare(&words)?).note(
            "Spalink et al., SOSP 2001: 240 operations and 96 bytes, which are 24 blocks of ten and a word. Each packet of 64 bytes, on all lines at \
             their full rate, both ways, has so many blocks more, on the four engines that run the stages, before one is lost.",
        ),
        row("the same, state read by 32 bytes", spare(&bursts)?)
            .not_blind()
            .note("An experiment: a reference moves eight words at most."),
    ])
}

/// True if the chip loses nothing of eight lines at their full rate, each of whose packets has that work beyond what forwards it.
fn carries(model: &Model, chip: &Chip, extra: Extra) -> Result<bool, ReproduceError> {
    let mut mapping = shipped::mapping("ixp1200-pool", chip)?;
    for task in mapping.pools.iter_mut().flat_map(|pool| &mut pool.tasks) {
        if matches!(task.work, Work::Stages(_)) {
            task.extra = extra;
        }
    }
    let mut text = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n".to_owned();
    for line in 0..LINES {
        text += &format!(
            "[interface.p{line}]\nzone = \"z{line}\"\naddresses = [\"10.{line}.0.1/16\"]\nmac = \"02:00:00:00:00:0{line}\"\n\
             source-check = \"off\"\n[[route]]\nto = \"100.{line}.0.0/16\"\nvia = \"10.{line}.0.2\"\n"
        );
    }
    let policy = shipped::policy(&text, "lines")?;
    let streams = (0..LINES).map(|line| {
        let stream = Stream {
            flows: Flows::Fixed(100),
            frames: model.frames(FRAMES_OF_LINE),
            ..Stream::new(&format!("p{line}"), &format!("p{}", (line + 1) % LINES))
        };
        (stream, Nanos(0))
    });
    let streams: Vec<_> = streams.collect();
    let workload =
        Workload { chip, mapping: &mapping, policy: &policy, algorithm: None, streams: &streams, warm: 0 };
    Ok(workload.run(Ideal::Nothing)?.lost == 0)
}

/// A configuration of Intel's ATM and Ethernet router, and the shares of time in which its memories were idle.
struct AtmRouter {
    id: &'static str,
    name: &'static str,
    /// Changes of the chip, whose lines are one of OC-12 and eight of 100 Mbit/s.
    values: &'static [(&'static str, &'static str)],
    atm: u32,
    ethernet: u32,
    /// Packets a second that all its lines of ATM carry in two cells each.
    capacity: f64,
    /// SRAM's and SDRAM's, in points of a hundred.
    idle: [f64; 2],
}

const OC12: AtmRouter = AtmRouter {
    id: "B5",
    name: "IXP1240, OC-12 and 8 x 100M",
    values: &[],
    atm: 1,
    ethernet: 8,
    capacity: 599.04e6 / CELLS,
    idle: [65.2, 42.9],
};

const FOUR_OC3: AtmRouter = AtmRouter {
    id: "B6",
    name: "IXP1240, 4 x OC-3 and 8 x 100M",
    values: &[("port.atm.count", "4"), ("port.atm.rate", "149.76 Mbit/s")],
    atm: 4,
    ethernet: 8,
    capacity: 4.0 * 149.76e6 / CELLS,
    idle: [57.0, 43.3],
};

/// An IXP1200 is an IXP1240 without CRC hardware.
const TWO_OC3: AtmRouter = AtmRouter {
    id: "B4",
    name: "IXP1200, 2 x OC-3 and 4 x 100M",
    values: &[
        ("port.atm.count", "2"),
        ("port.atm.rate", "149.76 Mbit/s"),
        ("port.fast.count", "4"),
        ("unit.crc.work", "hash"),
    ],
    atm: 2,
    ethernet: 4,
    capacity: 2.0 * 149.76e6 / CELLS,
    idle: [43.0, 57.5],
};

/// Bits of the two cells that a packet of 40 bytes has behind LLC and SNAP.
const CELLS: f64 = 2.0 * 53.0 * 8.0;

/// Points of a hundred by which idle shares may differ.
const POINTS: f64 = 10.0;

/// Packets of 40 bytes, as a frame is counted that has 14 of Ethernet or of what stands in for it, and 4 of its check.
const SMALL: u16 = 40 + 14 + Size::CHECK;

/// Packets of a run, all ways.
const PACKETS: u64 = 20_000;

/// Memories' idle shares while all ATM lines are full both ways.
fn idle_shares(model: &Model, router: &AtmRouter) -> Result<Vec<Outcome>, ReproduceError> {
    let chip = model.chip_with("ixp1240", router.values)?;
    let mapping = shipped::mapping("ixp1240-atm", &chip)?;
    let mut text = "mode = \"stateless\"\n[default]\n\"any > any\" = \"accept\"\n".to_owned();
    let mut interface = |name: String, network: String, more: &str| {
        text += &format!(
            "[interface.{name}]\nzone = \"{name}\"\naddresses = [\"{network}.1/16\"]\nsource-check = \"off\"\n{more}\n"
        );
    };
    for line in 0..router.ethernet {
        interface(format!("e{line}"), format!("10.{line}.0"), "");
    }
    for line in 0..router.atm {
        interface(format!("a{line}"), format!("20.{line}.0"), "link = \"ip\"\natm = { vc = \"8/35\" }");
    }
    let policy = shipped::policy(&text, "atm")?;
    let each = model.frames(PACKETS) / u64::from(router.ethernet) / 2;
    let streams = (0..router.ethernet).flat_map(|line| {
        let (ethernet, atm) = (format!("e{line}"), format!("a{}", line * router.atm / router.ethernet));
        // Each Ethernet has its share of what the lines of ATM carry; a little less, so that none of it waits for ever.
        let rate = Rate::Frames(0.99 * router.capacity / f64::from(router.ethernet));
        let stream = |from: &str, to: &str, size| Stream {
            rate,
            size: Size::Fixed(size),
            flows: Flows::Fixed(100),
            frames: each,
            ..Stream::new(from, to)
        };
        [stream(&atm, &ethernet, SMALL), stream(&ethernet, &atm, Size::LEAST)]
            .map(|stream| (stream, Nanos(0)))
    });
    let streams: Vec<_> = streams.collect();
    let workload = Workload {
        chip: &chip,
        mapping: &mapping,
        policy: &policy,
        algorithm: None,
        streams: &streams,
        warm: model.frames(PACKETS) / 4,
    };
    let report = workload.run(Ideal::Nothing)?;
    let rows = ["SRAM", "SDRAM"].into_iter().zip(["sram", "dram"]).zip(router.idle);
    let lost = match report.lost {
        0 => String::new(),
        lost => {
            let share = 100.0 * lost as f64 / (report.offered_mpps * report.seconds * 1e6).max(1.0);
            format!(" {share:.0} % of cells and frames were lost, and are no part of it.")
        }
    };
    let rows = rows.map(|((name, memory), published)| {
        let of = report.memories.iter().find(|of| of.name == memory);
        let idle = 100.0 * (1.0 - of.map_or(0.0, |of| of.utilisation));
        let statement = format!("{name} is idle: {}, packets of 40 bytes both ways", router.name);
        Outcome::number(router.id, &statement, published, idle, "%").within_points(POINTS).note(&format!(
            "Intel 301144-001, figure 13, by simulation. Packets of 40 bytes fill the lines of ATM both ways, in two cells each.{lost}"
        ))
    });
    Ok(rows.collect())
}

fn slots(_: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let cycles = |bytes: f64, rate: f64| bytes * 8.0 / rate * 232e6;
    let row = |statement, published, value| {
        let row = Outcome::number("B7", statement, published, value, "cycles").within(TOLERANCE);
        row.not_blind().note("Intel 301144-001, at 232 MHz; arithmetic on inputs.")
    };
    Ok(vec![
        row("a slot of 84 bytes at 100 Mbit/s", 1_559.0, cycles(84.0, 100e6)),
        row("a cell at OC-12, of which cells have 599.04 Mbit/s", 164.0, cycles(53.0, 599.04e6)),
    ])
}

fn optimisation(model: &Model) -> Result<Vec<Outcome>, ReproduceError> {
    let (mut gains, mut near_gains) = (Vec::new(), Vec::new());
    for cipher in ALL {
        let raw = crypto::measure(model, cipher, Optimisation::Raw, 1, 1)?;
        let near = crypto::raw_with_near_tables(model, cipher)?;
        let best = crypto::measure(model, cipher, Optimisation::Overlap, 1, 1)?;
        gains.push(best.mbps / raw.mbps);
        near_gains.push(best.mbps / near.mbps);
    }
    let mean = |gains: &[f64]| gains.iter().sum::<f64>() / gains.len().max(1) as f64;
    let near = Outcome::number(
        "B8",
        "the same, by raw code that reads tables where the optimised code does",
        2.45,
        mean(&near_gains),
        "times",
    );
    let mean = mean(&gains);
    let row = Outcome::number(
        "B8",
        "ciphers on an IXP2800: optimised by raw code, on average",
        2.45,
        mean,
        "times",
    );
    Ok(vec![
        row.within(TOLERANCE).note("NPCryptBench (MEDEA 2005). What is said of raw code stands on it."),
        near.within(TOLERANCE)
            .not_blind()
            .note("An experiment: the rest is text read word by word, each waited for."),
    ])
}
