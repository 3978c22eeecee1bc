//! Plot of a replay over time: rate, delay, backlog and losses, of the queues or classes that sent most.

use std::ops::Range;

use dataplane::Tables;
use dataplane::tables::NO_NODE;
use plotters::prelude::{
    ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, LineSeries, RGBColor, Rectangle,
    SVGBackend, Text, WHITE,
};
use replay::measurement::{Measured, Measurements, QueueKey, Step};

use crate::plot::{CURVES, Drawn, FONT, INK, style, svg};

/// Subject of the curves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    /// Queues.
    #[default]
    Queue,
    /// Traffic classes.
    Class,
}

/// Curves that are drawn; what is left is one more.
const MOST_CURVES: usize = CURVES.len() - 1;

/// Points of a curve.
const MOST_POINTS: usize = 160;

/// Width of the plot, height of a chart, of the title and of a row of the legend.
const WIDTH: u32 = 960;
const CHART: u32 = 190;
const TITLE: u32 = 34;
const LEGEND: u32 = 22;
/// Height of labels below the last chart.
const TIME: u32 = 34;

/// Longest name in the legend, in letters, and the width of a letter.
const LONGEST: usize = 44;
const LETTER: u32 = 8;

/// Curve of one queue or class.
struct Curve {
    name: String,
    steps: Vec<Step>,
    bytes: u64,
}

impl Curve {
    /// Name, shortened in its middle: beginning and end tell names apart.
    fn title(&self) -> String {
        let letters: Vec<char> = self.name.chars().collect();
        if letters.len() <= LONGEST {
            return self.name.clone();
        }
        let half = (LONGEST - 1) / 2;
        let (head, tail) = (&letters[..half], &letters[letters.len() - half..]);
        head.iter().chain(['…'].iter()).chain(tail).collect()
    }
}

/// Value of a curve at one moment; `None` where there is none.
type Value = Box<dyn Fn(&Step, u64) -> Option<f64>>;

/// One of the charts.
struct Chart {
    unit: &'static str,
    value: Value,
}

/// Returns the plot, as SVG; the error is what the library says.
pub(super) fn draw(measured: &Measurements, tables: &Tables, by: By, title: &str) -> Result<String, String> {
    let (curves, width) = curves(measured, tables, by);
    let places = legend(&curves);
    let rows = places.last().map_or(0, |(_, row)| row + 1);
    let charts = charts(width);
    let head = TITLE + rows * LEGEND + 6;
    let size = (WIDTH, head + CHART * charts.len() as u32 + TIME);
    let points = curves.iter().map(|curve| curve.steps.len()).max().unwrap_or(0);
    let end = (points as f64 * width).max(1e-3);
    svg(size, |backend| {
        let root = backend.into_drawing_area();
        root.fill(&WHITE)?;
        let ink = RGBColor::from(INK);
        root.draw(&Text::new(title.to_owned(), (16, 10), ("sans-serif", 15).into_font().color(&ink)))?;
        for ((curve, colour), (x, row)) in curves.iter().zip(CURVES).zip(&places) {
            let (x, y) = (*x as i32, (TITLE + row * LEGEND) as i32);
            root.draw(&Rectangle::new([(x, y + 2), (x + 12, y + 12)], RGBColor::from(colour).filled()))?;
            root.draw(&Text::new(curve.title(), (x + 18, y), FONT.into_font().color(&ink)))?;
        }
        let (_, below) = root.split_vertically(head);
        for (number, chart) in charts.iter().enumerate() {
            let is_last = number + 1 == charts.len();
            let (top, bottom) = (CHART as i32 * number as i32, CHART + if is_last { TIME } else { 0 });
            let area = below.clone().shrink((0, top), (WIDTH, bottom));
            draw_chart(&area, chart, &curves, width, 0.0..end, is_last)?;
        }
        root.present()?;
        Ok(())
    })
}

/// The curves, those that sent most first, and the seconds between two points.
fn curves(measured: &Measurements, tables: &Tables, by: By) -> (Vec<Curve>, f64) {
    let all: Vec<(String, &Measured)> = match by {
        By::Queue => {
            let mut keys: Vec<_> = measured.queues.iter().collect();
            keys.sort_by_key(|(key, _)| **key);
            keys.into_iter().map(|(key, one)| (queue_name(tables, *key), one)).collect()
        }
        By::Class => {
            let mut classes: Vec<_> = measured.classes.iter().collect();
            classes.sort_by_key(|(class, _)| **class);
            let name = |class| tables.classes.get(class).map_or("no class", |entry| &entry.name).to_owned();
            classes.into_iter().map(|(class, one)| (name(*class), one)).collect()
        }
    };
    let steps = all.iter().map(|(_, one)| one.steps().len()).max().unwrap_or(0);
    let joined = steps.div_ceil(MOST_POINTS).max(1);
    let mut curves: Vec<Curve> = all
        .into_iter()
        .map(|(name, one)| Curve { name, bytes: one.bytes, steps: coarse(one.steps(), joined, steps) })
        .collect();
    // A stable order: equal ones stay in that of the policy.
    curves.sort_by_key(|curve| std::cmp::Reverse(curve.bytes));
    if curves.len() > MOST_CURVES + 1 {
        let others = curves.split_off(MOST_CURVES);
        let name = format!("{} others", others.len());
        let sum = |place: usize| Step::sum(others.iter().filter_map(|curve| curve.steps.get(place)));
        let longest = others.iter().map(|curve| curve.steps.len()).max().unwrap_or(0);
        let bytes = others.iter().map(|curve| curve.bytes).sum();
        curves.push(Curve { name, bytes, steps: (0..longest).map(sum).collect() });
    }
    (curves, measured.step.as_secs_f64() * joined as f64)
}

/// Steps `joined` to one, and empty ones behind them up to `all`.
fn coarse(steps: &[Step], joined: usize, all: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = steps.chunks(joined).map(Step::sum).collect();
    steps.resize(all.div_ceil(joined), Step::default());
    steps
}

fn queue_name(tables: &Tables, key: QueueKey) -> String {
    let interface = tables.interface(key.port).map_or("?", |interface| &interface.name);
    if key.leaf == NO_NODE {
        return format!("{interface}, one queue");
    }
    let tree = if key.is_from { tables.queues.from(key.port) } else { tables.queues.on(key.port) };
    let leaf = tree.and_then(|tree| tree.nodes.get(key.leaf as usize)).map_or("?", |leaf| &leaf.name);
    format!("{leaf} ({} {interface})", if key.is_from { "from" } else { "on" })
}

/// Place of each entry of the legend: left edge, and row.
fn legend(curves: &[Curve]) -> Vec<(u32, u32)> {
    let (mut x, mut row) = (16, 0);
    let mut places = Vec::with_capacity(curves.len());
    for curve in curves {
        let width = 18 + LETTER * curve.name.chars().count().min(LONGEST) as u32 + 16;
        if x + width > WIDTH - 16 && x > 16 {
            (x, row) = (16, row + 1);
        }
        places.push((x, row));
        x += width;
    }
    places
}

/// The charts; `seconds` is the time between two points.
fn charts(seconds: f64) -> [Chart; 4] {
    [
        Chart { unit: "Mbit/s", value: Box::new(move |step, _| Some(step.bytes as f64 * 8e-6 / seconds)) },
        Chart {
            unit: "delay, ms",
            value: Box::new(|step, _| (step.bytes > 0).then_some(step.delay as f64 / 1e6)),
        },
        Chart { unit: "packets waiting", value: Box::new(|_, waiting| Some(waiting as f64)) },
        Chart { unit: "lost a second", value: Box::new(move |step, _| Some(step.lost as f64 / seconds)) },
    ]
}

impl Chart {
    /// Points of a curve, in runs without a gap.
    fn runs(&self, curve: &Curve, seconds: f64) -> Vec<Vec<(f64, f64)>> {
        let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
        let mut waiting = 0_u64;
        for (place, step) in curve.steps.iter().enumerate() {
            waiting = (waiting + step.came).saturating_sub(step.went);
            let at = (place as f64 + 0.5) * seconds;
            match (self.value)(step, waiting) {
                Some(value) => runs.last_mut().into_iter().for_each(|run| run.push((at, value))),
                None => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }
}

fn draw_chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    chart: &Chart,
    curves: &[Curve],
    seconds: f64,
    time: Range<f64>,
    is_last: bool,
) -> Drawn {
    let runs: Vec<Vec<Vec<(f64, f64)>>> = curves.iter().map(|curve| chart.runs(curve, seconds)).collect();
    let most = runs.iter().flatten().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.06 } else { 1.0 };
    let end = time.end;
    let mut context = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(16)
        .margin_top(8)
        .x_label_area_size(if is_last { 22 + TIME } else { 22 })
        .y_label_area_size(70)
        .build_cartesian_2d(time, 0.0..top)?;
    let (time, value) = (|at: &f64| digits(*at, end), |value: &f64| digits(*value, top));
    let mut mesh = context.configure_mesh();
    let mesh = style(&mut mesh, FONT)
        .x_labels(11)
        .y_labels(5)
        .x_label_formatter(&time)
        .y_label_formatter(&value)
        .y_desc(chart.unit);
    if is_last {
        mesh.x_desc("seconds");
    }
    mesh.draw()?;
    for (runs, colour) in runs.into_iter().zip(CURVES) {
        let colour = RGBColor::from(colour);
        for run in runs {
            if let [alone] = run.as_slice() {
                context.draw_series([Circle::new(*alone, 2, colour.filled())])?;
            }
            context.draw_series(LineSeries::new(run, colour.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// A number with as many digits as its axis, up to `most`, needs.
fn digits(value: f64, most: f64) -> String {
    match most {
        most if most < 0.1 => format!("{value:.4}"),
        most if most < 1.0 => format!("{value:.3}"),
        most if most < 10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
