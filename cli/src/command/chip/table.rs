//! Report of a chip run, for people.

use std::io::{self, Write};

use chip::description::Chip;
use chip::report::{EngineReport, Report};

use crate::screen::{BAD, CARE, DIM, GOOD, HEADING, Table, bytes, count, number};

/// Limits of the model, stated in every report.
pub(super) const FICTION: &str = "What a frame's stages change is there at once when it comes in, in the order of arrival: races between engines \
     over one datum are not modelled.";

/// Level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// The main figures.
    Brief,
    /// All figures.
    Full,
}

impl From<bool> for Detail {
    fn from(verbose: bool) -> Detail {
        if verbose { Detail::Full } else { Detail::Brief }
    }
}

/// Number of resources whose relief is reported in brief.
const BEST: usize = 5;

/// Smallest speed-up worth a line in brief.
const WORTH: f64 = 1.005;

/// Prints the report.
pub(super) fn print(out: &mut impl Write, report: &Report, chip: &Chip, detail: Detail) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#} {DIM}{}{DIM:#}", report.chip, report.mapping)?;
    throughput(out, report)?;
    latency(out, report)?;
    bottleneck(out, report, detail)?;
    engines(out, report)?;
    memories(out, report, detail)?;
    caches(out, report)?;
    rings(out, report)?;
    others(out, report, detail)?;
    mix(out, report)?;
    assumed(out, report, chip, detail)?;
    writeln!(out, "{DIM}{FICTION}{DIM:#}")?;
    let speed = report.simulated_instructions as f64 / report.wall_seconds.max(1e-9) / 1e6;
    writeln!(
        out,
        "{DIM}{} instructions in {:.3} s: {speed:.1} million a second.{DIM:#}",
        number(report.simulated_instructions),
        report.wall_seconds
    )
}

fn throughput(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let frames = |mpps: f64| number((mpps * 1e6 * report.seconds).round() as u64);
    let rate = |mpps: f64| format!("{mpps:.4} Mpps");
    let per_second = |frames: u64| frames as f64 / report.seconds.max(1e-12) / 1e6;
    let (lost, reordered) = (per_second(report.lost), per_second(report.reordered));
    // Frames that had come before the window leave within it.
    let share = |mpps: f64| match report.offered_mpps {
        0.0 => String::new(),
        all => format!("{:.2} %", (mpps * 100.0 / all).min(100.0)),
    };
    // Of the frames offered: one that leaves as two fragments has been delivered once.
    let delivered = report.delivered_mpps - report.further_mpps;
    writeln!(out, "{HEADING}Frames{HEADING:#} {DIM}in {:.6} modelled seconds{DIM:#}", report.seconds)?;
    let mut table = Table::new(&[1, 2, 3]);
    for (name, mpps, note) in [
        ("offered", report.offered_mpps, String::new()),
        ("delivered", delivered, format!("{:.4} Gbit/s{}", report.gbps, further(report))),
        ("ended by the policy", report.ended_mpps, String::new()),
        ("lost to overload", lost, by_port(report)),
        ("reordered", reordered, "left after a later frame of their flow".to_owned()),
    ] {
        let count = match name {
            "lost to overload" => number(report.lost),
            "reordered" => number(report.reordered),
            _ => frames(mpps),
        };
        table.row([name.to_owned(), count, rate(mpps), share(mpps), note]);
    }
    write!(out, "{table}")?;
    if report.overruns > 0 {
        writeln!(
            out,
            "{CARE}{} frames found no room in their MAC's buffer halfway: hardware would lose them{CARE:#}",
            number(report.overruns)
        )?;
    }
    Ok(())
}

/// Note on the frames that left beyond one for each that was delivered.
fn further(report: &Report) -> String {
    match (report.further_mpps * 1e6 * report.seconds).round() as u64 {
        0 => String::new(),
        frames => {
            format!(", with {} more than that: fragments, or the gateway's own", number(frames))
        }
    }
}

fn by_port(report: &Report) -> String {
    if report.lost == 0 {
        return String::new();
    }
    let ports = report.lost_by_port.iter().enumerate().filter(|(_, lost)| **lost > 0);
    let ports: Vec<String> = ports.map(|(port, lost)| format!("{} at port {port}", number(*lost))).collect();
    ports.join(", ")
}

fn latency(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let of = &report.latency_ns;
    writeln!(out, "{HEADING}Latency{HEADING:#} {DIM}from the last bit in to the last bit out{DIM:#}")?;
    if report.latency_curve.is_empty() {
        return writeln!(out, "  nothing left");
    }
    let mut table = Table::new(&[0, 1, 2, 3, 4, 5]);
    table.row(["least", "50 %", "90 %", "99 %", "99.9 %", "most"].map(str::to_owned));
    table.row([of.min, of.p50, of.p90, of.p99, of.p999, of.max].map(time));
    write!(out, "{table}")
}

/// A time, in the unit that suits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn bottleneck(out: &mut impl Write, report: &Report, detail: Detail) -> io::Result<()> {
    let Some(found) = &report.bottleneck else { return Ok(()) };
    let style = if report.lost == 0 { GOOD } else { BAD };
    writeln!(out, "{HEADING}Bottleneck{HEADING:#} {style}{}{style:#}", found.text)?;
    let mut table = Table::new(&[1, 2]);
    let (most, worth) = if detail == Detail::Full { (usize::MAX, 0.0) } else { (BEST, WORTH) };
    for relief in found.relief.iter().filter(|relief| relief.speed_up >= worth).take(most) {
        table.row([
            relief.name.clone(),
            format!("{:.4} Mpps", relief.mpps),
            format!("x {:.3}", relief.speed_up),
        ]);
    }
    write!(out, "{table}")
}

/// Characters of a bar.
const BAR: usize = 32;

/// An engine's time as a bar: what it executed, lost, waited for and polled.
fn bar(engine: &EngineReport) -> String {
    let mut bar = String::with_capacity(BAR * 3);
    let (mut sum, mut drawn) = (0.0, 0);
    for (share, shade) in
        [(engine.executing, '█'), (engine.aborted, '▓'), (engine.stalled, '▒'), (engine.polling, '░')]
    {
        sum += share;
        let end = ((sum * BAR as f64).round() as usize).min(BAR);
        bar.extend(std::iter::repeat_n(shade, end.saturating_sub(drawn)));
        drawn = end.max(drawn);
    }
    bar.extend(std::iter::repeat_n('·', BAR - drawn));
    bar
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn engines(out: &mut impl Write, report: &Report) -> io::Result<()> {
    // Most engines have no thread that polls.
    let polls = report.engines.iter().any(|engine| engine.polling > 0.0);
    let looks = if polls { "  ░ polling" } else { "" };
    writeln!(
        out,
        "{HEADING}Engines{HEADING:#} {DIM}█ executing  ▓ aborted  ▒ stalled{looks}  · idle{DIM:#}"
    )?;
    let mut table = Table::new(if polls { &[2, 3, 4, 5, 6] } else { &[2, 3, 4, 5] });
    let row = |start: [String; 5], polling: String, end: [String; 2]| {
        start.into_iter().chain(polls.then_some(polling)).chain(end)
    };
    table.row(row(
        ["", "", "executing", "aborted", "stalled"].map(str::to_owned),
        "polling".to_owned(),
        ["idle", ""].map(str::to_owned),
    ));
    for engine in &report.engines {
        table.row(row(
            [
                engine.name.clone(),
                bar(engine),
                percent(engine.executing),
                percent(engine.aborted),
                percent(engine.stalled),
            ],
            percent(engine.polling),
            [percent(engine.idle), engine.pools.join(", ")],
        ));
    }
    write!(out, "{table}")
}

/// Regions of a memory that are told of in brief.
const REGIONS: usize = 4;

fn memories(out: &mut impl Write, report: &Report, detail: Detail) -> io::Result<()> {
    writeln!(out, "{HEADING}Memories{HEADING:#}")?;
    // Where a memory has several channels, busy is the mean over them, and the fullest may be what holds things up.
    let several = report.memories.iter().any(|memory| memory.fullest_channel().is_some());
    let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7]);
    let row = |start: [String; 4], channel: String, end: [String; 3]| {
        start.into_iter().chain(several.then_some(channel)).chain(end)
    };
    table.row(row(
        ["", "references", "bytes", "busy"].map(str::to_owned),
        "fullest channel".to_owned(),
        ["waiting", "mean", "worst"].map(str::to_owned),
    ));
    let most = if detail == Detail::Full { usize::MAX } else { REGIONS };
    for memory in report.memories.iter().filter(|memory| !memory.regions.is_empty()) {
        let references = memory.regions.iter().map(|region| region.references).sum();
        let moved = memory.regions.iter().map(|region| region.bytes).sum();
        table.row(row(
            [memory.name.clone(), number(references), bytes(moved), percent(memory.utilisation)],
            memory.fullest_channel().map(percent).unwrap_or_default(),
            [format!("{:.2}", memory.queue), String::new(), String::new()],
        ));
        let mut regions: Vec<_> = memory.regions.iter().collect();
        regions.sort_by_key(|region| std::cmp::Reverse(region.references));
        for region in regions.iter().take(most) {
            table.row(row(
                [format!("  {}", region.name), number(region.references), bytes(region.bytes), String::new()],
                String::new(),
                [String::new(), time(region.mean_ns), time(region.worst_ns)],
            ));
        }
        if regions.len() > most {
            let rest = count((regions.len() - most) as u64, "more region", "more regions");
            table.row([format!("  and {rest}")]);
        }
    }
    write!(out, "{table}")
}

fn caches(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.caches.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Caches{HEADING:#}")?;
    let mut table = Table::new(&[1, 2, 3]);
    table.row(["", "look-ups", "hits", "written back"].map(str::to_owned));
    for cache in &report.caches {
        table.row([
            cache.name.clone(),
            number(cache.lookups),
            percent(cache.hit_ratio),
            number(cache.written_back),
        ]);
    }
    write!(out, "{table}")
}

fn rings(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.rings.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Rings{HEADING:#}")?;
    let mut table = Table::new(&[1, 2, 3, 4]);
    table.row(["", "room", "mean", "most", "blocked"].map(str::to_owned));
    for ring in &report.rings {
        table.row([
            ring.name.clone(),
            number(ring.entries.into()),
            format!("{:.1}", ring.mean),
            number(ring.most),
            number(ring.blocked),
        ]);
    }
    write!(out, "{table}")
}

fn others(out: &mut impl Write, report: &Report, detail: Detail) -> io::Result<()> {
    let mut table = Table::new(&[1]);
    for share in report.others.iter().filter(|share| detail == Detail::Full || share.share > 0.0) {
        table.row([share.name.clone(), percent(share.share)]);
    }
    if table.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}Units, buses and lines{HEADING:#}")?;
    write!(out, "{table}")
}

fn mix(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "{HEADING}Instructions{HEADING:#} {:.1} a packet{DIM}, on all engines{DIM:#}",
        report.instructions_per_packet
    )?;
    let kinds: Vec<String> = report
        .mix
        .iter()
        .filter(|kind| kind.share > 0.0)
        .map(|kind| format!("{} {}", kind.name, percent(kind.share)))
        .collect();
    if kinds.is_empty() { Ok(()) } else { writeln!(out, "  of stages: {}", kinds.join(", ")) }
}

fn assumed(out: &mut impl Write, report: &Report, chip: &Chip, detail: Detail) -> io::Result<()> {
    let many = count(report.assumed.len() as u64, "parameter", "parameters");
    if report.assumed.is_empty() {
        return Ok(());
    }
    if detail == Detail::Brief {
        return writeln!(
            out,
            "{CARE}Note{CARE:#}: {many} of the chip assumed, not read in a source; --verbose lists them."
        );
    }
    writeln!(out, "{HEADING}Assumed{HEADING:#} {DIM}{many} that no source gives{DIM:#}")?;
    for source in chip.assumed() {
        writeln!(out, "  {}: {DIM}{}{DIM:#}", source.path, source.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_the_time_they_stand_for() {
        let engine = |executing, aborted, stalled, polling, idle| EngineReport {
            name: String::new(),
            pools: Vec::new(),
            executing,
            aborted,
            stalled,
            polling,
            idle,
            instructions: 0,
        };
        let counts = |bar: &str| ['█', '▓', '▒', '░', '·'].map(|shade| bar.matches(shade).count());
        assert_eq!(counts(&bar(&engine(0.5, 0.25, 0.125, 0.0, 0.125))), [16, 8, 4, 0, 4]);
        assert_eq!(counts(&bar(&engine(0.5, 0.0, 0.0, 0.25, 0.25))), [16, 0, 0, 8, 8]);
        assert_eq!(counts(&bar(&engine(0.0, 0.0, 0.0, 0.0, 1.0))), [0, 0, 0, 0, 32]);
        assert_eq!(counts(&bar(&engine(1.0, 0.0, 0.0, 0.0, 0.0))), [32, 0, 0, 0, 0]);
    }

    #[test]
    fn times_have_the_unit_that_suits() {
        assert_eq!([999.0, 1_500.0, 2.5e6, 3e9].map(time), ["999 ns", "1.50 us", "2.50 ms", "3.00 s"]);
    }
}
