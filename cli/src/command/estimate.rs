//! `wirerate estimate`: which processor do a line, its packets and a number of rules need?

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chip::estimate::points::{self, Unit};
use chip::estimate::published::{PACKAGES, PROCESSORS, Package, Processor};
use chip::estimate::{DOUBLING, Equation, Estimate, EstimateError, Heat, Point, line_rate, packets, years};
use clap::Args;
use config::LoadError;
use serde_json::{Value, json};
use wire::BitRate;

use crate::bench::filter;
use crate::builtin;
use crate::failure::{ChipError, Exit, Failure, InputError, UsageError};
use crate::screen::{self, DIM, HEADING, Table, number};
use crate::with_exit_codes;

/// Estimate the processor that a line rate, a packet size and a number of filter rules need
///
/// A packet's time is a straight line in its number of rules, divided by the speed of the processor: (C0 + C1 R) / DMIPS. C0 and C1
/// are those of RENA-CHIP's study (NTT Technical Review, 2006), or a regression of points of one's own, or of this machine's
/// pipeline, with intervals of 95 %.
#[derive(Debug, Args)]
#[command(after_long_help = with_exit_codes("\
Examples:
  wirerate estimate
  wirerate estimate --rate '1 Gbit/s' --bytes 1500 --rules 100 --rules 1000
  wirerate estimate --dmips 1543 --bytes 1500
  wirerate estimate points.toml --json
  wirerate estimate --watts 7 --ambient 40
  wirerate estimate --measure --rate '10 Gbit/s' --rules 100

A file of points (TOML) has three or more of these:
  [[point]]
  rules = 64                   # that a packet meets
  packets-per-second = 45290   # or microseconds = 22.08, of one packet
  dmips = 764.588              # of the processor; in all points or in none

--json prints an object:
  source                  published, points or measured
  unit                    of c0, c1, deviation and points: us x DMIPS; ns where
                          the processor itself is the unit of speed
  c0 c1                   value, low and high; null where nothing was fitted
  r_squared deviation     of the regression, and of its residuals; or null
  points                  rules, value, fitted and residual of each
  packets_per_second      that are needed
  needed_unit             DMIPS, processors or cores
  needed                  rules, value, low and high: the prediction interval
  processors              name and dmips of published ones, and `carries`:
                          rules and packets_per_second
  heat                    limit of thermal resistance in K/W; packages"))]
pub(crate) struct Arguments {
    /// Measured points (TOML); otherwise the coefficients of RENA-CHIP's study
    #[arg(value_name = "POINTS")]
    points: Option<PathBuf>,

    /// Measure this machine's pipeline on one core: 0, 64, 128 and 256 rules, compared one after the other. Takes seconds
    #[arg(long, conflicts_with = "points")]
    measure: bool,

    /// The line's rate, both directions together
    #[arg(long, value_name = "RATE", default_value = "2 Gbit/s", value_parser = line_rate)]
    rate: BitRate,

    /// The length of a frame with its check sequence; 20 bytes of preamble and gap come to it
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=16_384))]
    bytes: u32,

    /// Packets a second, in place of --rate and --bytes
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "bytes"], value_parser = positive)]
    packets: Option<f64>,

    /// Number of rules that a packet meets; may be repeated. Otherwise 0, 64, 128 and 256
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    rules: Vec<u32>,

    /// Speed of a processor to show beside those that are published
    #[arg(long, value_name = "DMIPS", conflicts_with = "measure", value_parser = positive)]
    dmips: Option<f64>,

    /// Power consumption, for the thermal resistance that a package may have without a heat sink
    #[arg(long, value_name = "W", value_parser = positive)]
    watts: Option<f64>,

    /// Highest temperature of the chip
    #[arg(long, value_name = "CELSIUS", default_value_t = 120.0, requires = "watts", value_parser = celsius)]
    junction: f64,

    /// Highest temperature of the air
    #[arg(long, value_name = "CELSIUS", default_value_t = 50.0, requires = "watts", value_parser = celsius)]
    ambient: f64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn positive(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("a number above 0".to_owned()),
    }
}

fn celsius(word: &str) -> Result<f64, String> {
    match word.parse::<f64>() {
        Ok(value) if (-273.15..=1_000.0).contains(&value) => Ok(value),
        _ => Err("from -273.15 to 1000".to_owned()),
    }
}

/// Origin of an equation's coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Published,
    Points,
    Measured,
}

/// Equation, and all that follows from it.
struct Report {
    source: Source,
    equation: Equation,
    points: Vec<Point>,
    unit: Unit,
    /// Packets a second that are needed.
    packets: f64,
    needed: Vec<(u32, Estimate)>,
    processors: Vec<Carried>,
    heat: Option<Heat>,
}

/// Packets a second of a processor, in the order of the numbers of rules.
struct Carried {
    processor: Processor,
    packets: Vec<f64>,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let heat = self.heat()?;
        let (source, from, mut points, unit) = self.take()?;
        let failed = |error: EstimateError| ChipError::Estimate { file: from.clone(), error };
        let equation = match source {
            Source::Published => Equation::RENA_CHIP,
            Source::Points | Source::Measured => Equation::fitted(&points).map_err(failed)?,
        };
        if unit == Unit::Itself && self.dmips.is_some() {
            return Err(UsageError::Clash { one: "--dmips", other: "points without `dmips`" }.into());
        }
        let rules = if self.rules.is_empty() { vec![0, 64, 128, 256] } else { self.rules };
        let packets = self.packets.unwrap_or_else(|| packets(self.rate, self.bytes));
        let needed: Result<Vec<_>, _> =
            rules.iter().map(|rules| Ok((*rules, equation.speed(packets, *rules)?))).collect();
        let own = self.dmips.map(|dmips| Processor { name: "yours", dmips });
        let processors: Result<Vec<_>, _> = PROCESSORS
            .into_iter()
            .chain(own)
            .filter(|_| unit == Unit::Dmips)
            .map(|processor| {
                let packets = rules.iter().map(|rules| equation.packets(processor.dmips, *rules));
                Ok(Carried { processor, packets: packets.collect::<Result<_, _>>()? })
            })
            .collect();
        // For the reader; rounds were by turns.
        points.sort_by_key(|point| point.rules);
        let report = Report {
            source,
            equation,
            unit,
            packets,
            needed: needed.map_err(failed)?,
            processors: processors.map_err(failed)?,
            heat,
            points,
        };
        report.note_extrapolation();
        let mut out = screen::out();
        if self.json {
            writeln!(out, "{:#}", report.json())?;
        } else {
            report.print(&mut out)?;
        }
        Ok(Exit::Done)
    }

    fn heat(&self) -> Result<Option<Heat>, UsageError> {
        let Arguments { junction, ambient, .. } = *self;
        match self.watts {
            Some(_) if junction <= ambient => Err(UsageError::NoHeat { junction, ambient }),
            watts => Ok(watts.map(|watts| Heat { watts, junction, ambient })),
        }
    }

    /// Reads or measures points, and says where they are from.
    fn take(&self) -> Result<(Source, String, Vec<Point>, Unit), Failure> {
        if self.measure {
            let mut progress = |doing: &str| screen::doing(&doing);
            let points = filter::measure(&mut progress)?;
            return Ok((Source::Measured, "this machine".to_owned(), points, Unit::Itself));
        }
        let Some(path) = &self.points else {
            return Ok((Source::Published, "RENA-CHIP".to_owned(), Vec::new(), Unit::Dmips));
        };
        let file = path.display().to_string();
        let text = read(path, &file)?;
        let checked = points::parse(&text, &file);
        let points = builtin::whole(checked.points, &checked.diagnostics, &file)?;
        Ok((Source::Points, file, points.list, points.unit))
    }
}

fn read(path: &Path, file: &str) -> Result<String, Failure> {
    match config::file::text::<config::Code>(path, "file of points") {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(wrong)) => builtin::whole(None, &[wrong], file),
        Err(LoadError { error, .. }) => Err(InputError::Read { path: path.into(), error }.into()),
    }
}

impl Report {
    /// Notes numbers of rules beyond those that were measured.
    fn note_extrapolation(&self) {
        let measured = || self.points.iter().map(|point| point.rules);
        let (Some(least), Some(most)) = (measured().min(), measured().max()) else { return };
        for (rules, _) in self.needed.iter().filter(|(rules, _)| !(least..=most).contains(rules)) {
            screen::note(&format_args!(
                "{rules} rules are extrapolated from points of {least} to {most}: no interval says whether the line goes on"
            ));
        }
    }

    /// Unit of work, and its size in microseconds of a processor of speed 1.
    fn work(&self) -> (&'static str, f64) {
        match self.unit {
            Unit::Dmips => ("us x DMIPS", 1.0),
            Unit::Itself => ("ns", 1e-3),
        }
    }

    /// Unit of the processor that is needed.
    fn needed_unit(&self) -> &'static str {
        match (self.unit, self.source) {
            (Unit::Dmips, _) => "DMIPS",
            (Unit::Itself, Source::Measured) => "cores",
            (Unit::Itself, _) => "processors",
        }
    }

    /// C0 and C1, in the unit of work.
    fn coefficients(&self) -> [Estimate; 2] {
        let (_, scale) = self.work();
        let published = |value| Estimate { value, interval: None };
        let both = match &self.equation.fit {
            Some(fit) => [fit.intercept(), fit.slope()],
            None => [self.equation.line.intercept, self.equation.line.slope].map(published),
        };
        both.map(|coefficient| coefficient.times(1.0 / scale))
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (unit, scale) = self.work();
        let [c0, c1] = self.coefficients();
        let divisor = if self.unit == Unit::Dmips { " / DMIPS" } else { "" };
        writeln!(out, "{HEADING}Time of a packet = (C0 + C1 x rules){divisor}{HEADING:#}")?;
        let mut table = Table::new(&[1]);
        table.row(["C0".to_owned(), text(c0.value), format!("{unit}{}", interval(&c0))]);
        table.row(["C1".to_owned(), text(c1.value), format!("{unit} a rule{}", interval(&c1))]);
        write!(out, "{table}")?;
        match &self.equation.fit {
            None => writeln!(
                out,
                "  {DIM}as published of RENA-CHIP; the points behind them are not, so that nothing has an interval{DIM:#}"
            )?,
            Some(fit) => {
                let r_squared =
                    fit.r_squared.map_or_else(|| "none".to_owned(), |share| format!("{share:.6}"));
                writeln!(
                    out,
                    "  {} points, R^2 {r_squared}, standard deviation of the residuals {} {unit}",
                    fit.points,
                    text(fit.deviation / scale)
                )?;
                let mut table = Table::new(&[0, 1, 2, 3]);
                table.row(["rules", "measured", "fitted", "residual"].map(str::to_owned));
                for point in &self.points {
                    let fitted = fit.line.at(point.rules.into());
                    let values =
                        [point.work(), fitted, point.work() - fitted].map(|value| text(value / scale));
                    table.row(std::iter::once(point.rules.to_string()).chain(values));
                }
                write!(out, "{table}")?;
            }
        }
        let rate = number(self.packets.round() as u64);
        writeln!(out, "{HEADING}Needed for {rate} packets/s{HEADING:#}")?;
        let mut table = Table::new(&[0, 1]);
        table.row(["rules", self.needed_unit(), ""].map(str::to_owned));
        for (rules, needed) in &self.needed {
            table.row([rules.to_string(), text(needed.value), interval(needed).trim_start().to_owned()]);
        }
        write!(out, "{table}")?;
        self.print_processors(out)?;
        self.heat.as_ref().map_or(Ok(()), |heat| print_heat(out, heat))
    }

    fn print_processors(&self, out: &mut impl Write) -> io::Result<()> {
        let Some((fewest, needed)) = self.needed.first().filter(|_| !self.processors.is_empty()) else {
            return Ok(());
        };
        writeln!(out, "{HEADING}Packets/s of published processors{HEADING:#}")?;
        let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut head = vec!["".to_owned(), "DMIPS".to_owned()];
        head.extend(self.needed.iter().map(|(rules, _)| format!("{rules} rules")));
        head.extend([format!("too slow, {fewest} rules"), "years".to_owned()]);
        table.row(head);
        for Carried { processor, packets } in &self.processors {
            let mut row = vec![processor.name.to_owned(), text(processor.dmips)];
            row.extend(packets.iter().map(|packets| number(packets.round() as u64)));
            let times = needed.value / processor.dmips;
            row.extend(match times > 1.0 {
                true => [format!("x {times:.2}"), format!("{:.1}", years(times, DOUBLING))],
                false => ["", ""].map(str::to_owned),
            });
            table.row(row);
        }
        write!(out, "{table}")?;
        writeln!(out, "  {DIM}years: until one is fast enough, if speed doubles in {DOUBLING} months{DIM:#}")
    }

    fn json(&self) -> Value {
        let (unit, scale) = self.work();
        let [c0, c1] = self.coefficients();
        let fit = self.equation.fit.as_ref();
        let points = self.points.iter().map(|point| {
            let fitted = self.equation.line.at(point.rules.into());
            let [value, fitted, residual] =
                [point.work(), fitted, point.work() - fitted].map(|value| value / scale);
            json!({ "rules": point.rules, "value": value, "fitted": fitted, "residual": residual })
        });
        let needed = self.needed.iter().map(|(rules, needed)| {
            let [low, high] = ends(needed);
            json!({ "rules": rules, "value": needed.value, "low": low, "high": high })
        });
        let processors = self.processors.iter().map(|Carried { processor, packets }| {
            let carries = self.needed.iter().zip(packets);
            let carries = carries.map(|((rules, _), packets)| json!({ "rules": rules, "packets_per_second": packets }));
            json!({ "name": processor.name, "dmips": processor.dmips, "carries": carries.collect::<Vec<_>>() })
        });
        json!({
            "source": match self.source {
                Source::Published => "published",
                Source::Points => "points",
                Source::Measured => "measured",
            },
            "unit": unit,
            "c0": estimate(&c0),
            "c1": estimate(&c1),
            "r_squared": fit.and_then(|fit| fit.r_squared),
            "deviation": fit.map(|fit| fit.deviation / scale),
            "points": points.collect::<Vec<_>>(),
            "packets_per_second": self.packets,
            "needed_unit": self.needed_unit(),
            "needed": needed.collect::<Vec<_>>(),
            "processors": processors.collect::<Vec<_>>(),
            "heat": self.heat.as_ref().map(heat),
        })
    }
}

/// A number as it is read: with four significant digits or more.
fn text(value: f64) -> String {
    match value.abs() {
        large if large >= 10_000.0 => number_signed(value),
        large if large >= 100.0 => format!("{value:.1}"),
        large if large >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn number_signed(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", number(value.abs().round() as u64))
}

fn interval(estimate: &Estimate) -> String {
    estimate
        .interval
        .map_or_else(String::new, |[low, high]| format!("  95 %: {} to {}", text(low), text(high)))
}

fn ends(estimate: &Estimate) -> [Option<f64>; 2] {
    estimate.interval.map_or([None; 2], |ends| ends.map(Some))
}

fn estimate(of: &Estimate) -> Value {
    let [low, high] = ends(of);
    json!({ "value": of.value, "low": low, "high": high })
}

/// Verdict on a package: its thermal resistance depends on the die that is in it.
fn verdict(package: &Package, limit: f64) -> &'static str {
    match package.theta {
        [_, most] if most < limit => "meets it",
        [least, _] if least >= limit => "needs a heat sink",
        _ => "meets it with a large die",
    }
}

fn print_heat(out: &mut impl Write, heat: &Heat) -> io::Result<()> {
    let limit = heat.limit();
    writeln!(
        out,
        "{HEADING}Without a heat sink a package may have {} K/W from junction to air{HEADING:#}",
        text(limit)
    )?;
    let mut table = Table::new(&[]);
    for package in &PACKAGES {
        let Package { name, side, theta: [least, most] } = package;
        table.row([
            (*name).to_owned(),
            format!("{side} x {side} mm"),
            format!("{least} to {most} K/W"),
            verdict(package, limit).to_owned(),
        ]);
    }
    write!(out, "{table}")?;
    writeln!(out, "  {DIM}packages of NEC Electronics, in still air, by size of the die (JEDEC){DIM:#}")
}

fn heat(heat: &Heat) -> Value {
    let Heat { watts, junction, ambient } = heat;
    let limit = heat.limit();
    let packages = PACKAGES.iter().map(|package| {
        let Package { name, side, theta: [least, most] } = package;
        json!({ "name": name, "side_mm": side, "low": least, "high": most, "verdict": verdict(package, limit) })
    });
    json!({
        "watts": watts, "junction": junction, "ambient": ambient, "limit": limit,
        "packages": packages.collect::<Vec<_>>(),
    })
}
